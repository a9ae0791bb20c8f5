import pytest
import torch

from coursekit.data.repeats import repeats


def drawn(seed=0, n=50, lengths=(2, 5), n_symbols=7):
    return repeats(n, lengths, n_symbols, torch.Generator().manual_seed(seed))


def test_the_second_half_is_the_first_again_and_is_learned_but_for_its_first_token():
    for seed in range(20):
        batch = drawn(seed)
        length = batch["ids"].shape[1] // 2
        assert torch.equal(batch["ids"][:, :length], batch["ids"][:, length:])
        assert batch["loss_mask"].tolist() == [[False] * (length + 1) + [True] * (length - 1)] * 50


def test_every_length_and_every_symbol_comes():
    batches = [drawn(seed) for seed in range(60)]
    assert {batch["ids"].shape[1] for batch in batches} == {4, 6, 8, 10}
    assert {int(i) for batch in batches for i in batch["ids"].unique()} == set(range(7))
    again = drawn(3)
    assert torch.equal(again["ids"], batches[3]["ids"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n": 0}, "n=0"),
        ({"n_symbols": 0}, "n_symbols=0"),
        ({"lengths": (3, 2)}, "lengths"),
        ({"lengths": (1, 2)}, "at least 2"),
    ],
)
def test_what_cannot_be_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        drawn(**changes)
