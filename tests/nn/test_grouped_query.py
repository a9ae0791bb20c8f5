"""Attention with fewer heads of keys beside ``MultiHeadAttention`` with the same heads written out."""

import re
from functools import partial

import pytest
import torch
from torch import nn

from coursekit.nn.attention import MultiHeadAttention, record_attention
from coursekit.nn.cache import Cache, WindowCache
from coursekit.nn.grouped_query import GroupedQueryAttention
from coursekit.nn.masks import causal_mask, padding_mask, window_mask
from coursekit.nn.norms import RMSNorm
from tests.conftest import randomise

B, T, D, H, Dh = 2, 5, 12, 6, 2
REAL = torch.tensor([[True] * T, [False, True, True, True, False]])


def written_out(ours, n_kv_heads):
    """The same as ``MultiHeadAttention``: each head of keys and values once for each query that shares it."""
    theirs = MultiHeadAttention(D, H).double()
    with torch.no_grad():
        for name, whole in ours.qkv.named_parameters():
            queries, keys, values = whole.split([H * Dh, n_kv_heads * Dh, n_kv_heads * Dh])
            shared = [torch.cat([part[Dh * (h * n_kv_heads // H) :][:Dh] for h in range(H)]) for part in (keys, values)]
            theirs.qkv.get_parameter(name).copy_(torch.cat([queries, *shared]))
        theirs.out.load_state_dict(ours.out.state_dict())
    return theirs


@pytest.mark.parametrize("n_kv_heads", [6, 3, 1])
@pytest.mark.parametrize("window", [None, 2])
def test_heads_that_share_are_heads_with_the_same_weights(n_kv_heads, window, generator):
    ours = randomise(GroupedQueryAttention(D, H, n_kv_heads, bias=True, window=window)).double()
    theirs = written_out(ours, n_kv_heads)
    x = torch.randn(B, T, D, generator=generator, dtype=torch.float64)
    mask = (causal_mask(T) if window is None else window_mask(T, T, window)) & padding_mask(REAL)
    with record_attention(ours) as found, record_attention(theirs) as expected:
        torch.testing.assert_close(ours(x, mask=padding_mask(REAL), causal=True), theirs(x, mask=mask))
    torch.testing.assert_close(found[""], expected[""])
    torch.testing.assert_close(ours(x, mask=padding_mask(REAL), causal=True), theirs(x, mask=mask))  # the fused path
    if window is None:
        torch.testing.assert_close(ours(x), theirs(x))


@pytest.mark.parametrize("window", [None, 3])
def test_step_by_step_with_a_cache_is_all_at_once(window, generator):
    module = randomise(GroupedQueryAttention(D, H, 2, window=window, qk_norm=RMSNorm)).double()
    x = torch.randn(B, T, D, generator=generator, dtype=torch.float64)
    cache = Cache(T) if window is None else WindowCache(T, window)
    steps = torch.cat([module(x[:, t : t + 1], causal=True, cache=cache) for t in range(T)], dim=1)
    torch.testing.assert_close(steps, module(x, causal=True))


def test_queries_and_keys_are_normalised_then_turned_and_values_are_not(generator):
    module = randomise(GroupedQueryAttention(D, H, 2, qk_norm=nn.LayerNorm)).double()
    x = torch.randn(B, T, D, generator=generator, dtype=torch.float64)
    query, key, value = module.qkv(x).split([H * Dh, 2 * Dh, 2 * Dh], dim=-1)
    turned = torch.linspace(0.5, 2, T, dtype=torch.float64)[:, None]
    joined = []
    for h in range(H):
        q, k, v = (part[..., Dh * i :][..., :Dh] for part, i in ((query, h), (key, h // 3), (value, h // 3)))
        q, k = turned * module.query_norm(q), turned * module.key_norm(k)
        scores = (q @ k.mT / Dh**0.5).masked_fill(~causal_mask(T), -torch.inf)
        joined.append(scores.softmax(dim=-1) @ v)
    expected = module.out(torch.cat(joined, dim=-1))
    torch.testing.assert_close(module(x, causal=True, rotary=lambda part: turned * part), expected)


def test_dropout_is_for_training(generator):
    module = randomise(GroupedQueryAttention(D, H, 2, dropout=0.5))
    x = torch.randn(B, T, D, generator=generator)
    assert not torch.allclose(module(x), module(x), atol=1e-3)
    torch.testing.assert_close(module.eval()(x), module(x))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"n_heads": 5}, "n_heads=5: must divide d_model=12"),
        ({"n_heads": 0}, "n_heads=0: must divide d_model=12"),
        ({"n_kv_heads": 4}, "n_kv_heads=4: must divide n_heads=6"),
        ({"n_kv_heads": 0}, "n_kv_heads=0: must divide n_heads=6"),
        ({"window": 0}, "window=0: must be at least 1, or None for all positions"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        GroupedQueryAttention(**{"d_model": D, "n_heads": H} | options)


def test_a_window_is_for_what_came_before():
    with pytest.raises(ValueError, match="window=2 is for what came before: it needs causal=True"):
        GroupedQueryAttention(D, H, window=2)(torch.zeros(B, T, D))
    for make in (partial(window_mask, 4, 4), partial(WindowCache, 4)):
        with pytest.raises(ValueError, match="window=0: must be at least 1"):
            make(window=0)


def test_another_shape_is_refused_and_any_size_of_a_head_taken():
    with pytest.raises(ValueError, match=re.escape("x of shape (2, 5, 10): must be (B, T, d_model=12)")):
        GroupedQueryAttention(D, H, 2)(torch.zeros(B, T, 10))
    assert GroupedQueryAttention(D, 5, d_head=4)(torch.zeros(B, T, D)).shape == (B, T, D)


def test_heads_have_a_size():
    with pytest.raises(ValueError, match="d_head=0: must be at least 1"):
        GroupedQueryAttention(8, 2, d_head=0)
