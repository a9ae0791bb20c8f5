import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from coursekit.data.reversal import bos_id, reversal, true_position


@given(
    n=st.integers(1, 30), low=st.integers(1, 6), more=st.integers(0, 5), V=st.integers(1, 20), seed=st.integers(0, 99)
)
def test_each_target_is_its_source_backwards(n, low, more, V, seed):
    batch = reversal(n, (low, low + more), V, torch.Generator().manual_seed(seed))
    for source, s_mask, target, t_mask in zip(*(batch[k] for k in ("source", "source_mask", "target", "target_mask"))):
        length = int(s_mask.sum())
        assert low <= length <= low + more
        assert s_mask.tolist() == t_mask.tolist() == [True] * length + [False] * (low + more - length)
        assert target[:length].tolist() == source[:length].tolist()[::-1]
        assert source[length:].sum() == target[length:].sum() == 0
        assert 0 <= source.min() <= source.max() < V


def test_every_symbol_and_length_is_equally_likely():
    batch = reversal(20_000, (2, 5), 4, torch.Generator().manual_seed(0))
    lengths = torch.bincount(batch["source_mask"].sum(1), minlength=6)[2:] / 20_000
    symbols = torch.bincount(batch["source"][batch["source_mask"]], minlength=4).float()
    torch.testing.assert_close(lengths, torch.full((4,), 0.25), atol=0.012, rtol=0)
    torch.testing.assert_close(symbols / symbols.sum(), torch.full((4,), 0.25), atol=0.012, rtol=0)


def test_the_seed_decides_and_nothing_else():
    torch.manual_seed(1)
    first = reversal(5, 4, 9, torch.Generator().manual_seed(3))["source"]
    torch.manual_seed(2)
    assert torch.equal(first, reversal(5, 4, 9, torch.Generator().manual_seed(3))["source"])
    assert not torch.equal(first, reversal(5, 4, 9, torch.Generator().manual_seed(4))["source"])


def test_one_hot_is_the_same_data():
    ids = reversal(6, (1, 4), 5, torch.Generator().manual_seed(0))
    hot = reversal(6, (1, 4), 5, torch.Generator().manual_seed(0), one_hot=True)
    for key in ("source", "target"):
        mask = ids[f"{key}_mask"]
        assert torch.equal(hot[key].argmax(-1), ids[key])
        assert torch.equal(hot[key].sum(-1), mask.float())


def test_true_position():
    assert true_position(torch.tensor([[4], [2]]), 4).tolist() == [[3, 2, 1, 0], [1, 0, -1, -2]]


def test_the_start_symbol_is_no_symbol():
    assert bos_id(10) == 10


@pytest.mark.parametrize("wrong", [{"n_sequences": 0}, {"length": 0}, {"length": (5, 4)}, {"n_symbols": 0}])
def test_nonsense_is_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        reversal(**{"n_sequences": 2, "length": 3, "n_symbols": 4} | wrong, generator=torch.Generator())
