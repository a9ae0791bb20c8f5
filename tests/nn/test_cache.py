"""The caches by themselves; that attention with one computes the same is tested with each kind of attention."""

from functools import partial

import pytest
import torch

from coursekit.nn.cache import Cache, WindowCache


@pytest.mark.parametrize("cache", [Cache(6), WindowCache(6, 3)])
def test_a_cache_goes_on_with_as_many_texts_as_it_holds(cache, generator):
    x = torch.randn(3, 2, 1, 4, generator=generator)
    cache.append(x, x)
    for n in (1, 2, 4):
        some = x[:1].expand(n, -1, -1, -1)
        with pytest.raises(ValueError, match=f"a batch of {n} cannot continue the batch of 3 that the cache holds"):
            cache.append(some, some)
    assert cache.append(x, x)[0].shape == (3, 2, 2, 4)


@pytest.mark.parametrize("max_length", [0, -1])
def test_a_cache_without_room_is_refused(max_length):
    for make in (Cache, partial(WindowCache, window=2)):
        with pytest.raises(ValueError, match="a cache has room for at least 1 position"):
            make(max_length)


def test_a_window_keeps_what_the_next_step_reaches(generator):
    cache, x = WindowCache(10, 4), torch.randn(2, 1, 10, 3, generator=generator)
    for start, end, reached in ((0, 2, 0), (2, 3, 0), (3, 6, 0), (6, 10, 3)):  # the last three before the piece
        key, value = cache.append(x[:, :, start:end], -x[:, :, start:end])
        torch.testing.assert_close((key, value), (x[:, :, reached:end], -x[:, :, reached:end]))
    assert cache.key.shape[2] == cache.value.shape[2] == 3
    assert cache.key.untyped_storage().nbytes() == 2 * 3 * 3 * 4, "the rest of the memory is given back"


@pytest.mark.parametrize("cache", [Cache(6), WindowCache(6, 3)])
@pytest.mark.parametrize("shape", [(2, 1, 1, 4), (2, 3, 1, 1)])
def test_heads_that_are_not_those_of_the_cache_are_refused(cache, shape):
    cache = type(cache)(*([6, 3] if isinstance(cache, WindowCache) else [6]))
    cache.append(torch.zeros(2, 3, 2, 4), torch.zeros(2, 3, 2, 4))
    with pytest.raises(ValueError, match="cannot continue the 3 heads of size 4 that the cache holds"):
        cache.append(torch.zeros(shape), torch.zeros(shape))
    assert cache.length == 2
