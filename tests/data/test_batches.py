from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from coursekit.data.batches import Fresh, Shuffled, of_like_length, pad


def samples(n: int = 10) -> dict[str, torch.Tensor]:
    return {"x": torch.arange(n), "y": 10 * torch.arange(n)}


@given(st.lists(st.lists(st.integers(4, 50), min_size=1, max_size=9), min_size=1, max_size=40), st.integers(0, 5))
def test_padding_keeps_every_row(rows, pad_id):
    ids, mask = pad(rows, pad_id)
    assert [row[keep].tolist() for row, keep in zip(ids, mask)] == rows
    assert (ids[~mask] == pad_id).all()
    assert mask[:, 0].all()
    assert ids.shape[1] == max(map(len, rows))


def test_rows_without_a_token_are_padded_and_no_rows_refused():
    for rows in ([[]], [[], []]):
        ids, mask = pad(rows)
        assert (ids.shape, ids.dtype, mask.shape) == ((len(rows), 0), torch.int64, (len(rows), 0))
    with pytest.raises(ValueError, match="no rows: give at least one"):
        pad([])


def test_a_pass_shows_every_sample_once_in_a_new_order():
    data = Shuffled(samples(), batch_size=5)
    passes = [torch.cat([next(data)["x"], next(data)["x"]]).tolist() for _ in range(3)]
    assert all(sorted(p) == list(range(10)) for p in passes)
    assert len({tuple(p) for p in passes} | {tuple(range(10))}) == 4


def test_tensors_stay_together_and_the_rest_of_a_pass_is_left_out():
    data = Shuffled(samples(), batch_size=4)
    batches = [next(data) for _ in range(4)]
    assert all(torch.equal(b["y"], 10 * b["x"]) and len(b["x"]) == 4 for b in batches)
    assert len(set(torch.cat([b["x"] for b in batches[:2]]).tolist())) == 8


@pytest.mark.parametrize(
    "make",
    [
        lambda: Shuffled(samples(), batch_size=3, seed=1),
        lambda: Fresh(lambda generator: {"x": torch.rand(3, generator=generator)}, seed=1),
    ],
    ids=["Shuffled", "Fresh"],
)
@pytest.mark.parametrize("drawn", range(8))
def test_it_goes_on_where_it_was(make, drawn):
    data = make()
    for _ in range(drawn):
        next(data)
    state = data.state_dict()
    rest = [next(data)["x"] for _ in range(5)]
    again = make()
    again.load_state_dict(state)
    assert all(torch.equal(a, next(again)["x"]) for a in rest)
    assert not torch.equal(rest[0], rest[1])


@pytest.mark.parametrize("other", [{"seed": 2}, {"batch_size": 4}, {"samples": samples(12)}])
def test_a_state_of_other_data_is_refused(other):
    state = Shuffled(samples(), batch_size=3, seed=1).state_dict()
    with pytest.raises(ValueError, match=r"these have (2|4|12)"):
        Shuffled(**{"samples": samples(), "batch_size": 3, "seed": 1} | other).load_state_dict(state)


def test_nonsense_is_refused():
    with pytest.raises(ValueError, match=r"samples differ in number: \{'x': 2, 'y': 3\}"):
        Shuffled({"x": torch.zeros(2), "y": torch.zeros(3)}, 1)
    with pytest.raises(ValueError, match="batch_size=11: must lie"):
        Shuffled(samples(), 11)


def test_batches_of_like_length_hold_samples_whole_and_lose_only_padding():
    rows = [[i + 1] * (2 + 5 * (i % 5) + i % 3) for i in range(30)]
    ids, mask = pad(rows)
    data, counts = of_like_length({"ids": ids, "number": torch.arange(30)}, mask.sum(dim=1), 8), Counter()
    for _ in range(600):
        batch = next(data)
        real = batch["ids"] > 0
        assert [row[keep].tolist() for row, keep in zip(batch["ids"], real)] == [rows[i] for i in batch["number"]]
        assert real.sum(dim=1).max() - real.sum(dim=1).min() <= 10  # of 2 to 24
        assert real.any(dim=0).all()
        counts.update(batch["number"].tolist())
    assert len(counts) == 30
    assert max(counts.values()) < 1.8 * min(counts.values())  # each as often as any other, 160 times on average
    again = of_like_length({"ids": ids}, mask.sum(dim=1), 8, seed=1)
    assert not torch.equal(next(again)["ids"], next(of_like_length({"ids": ids}, mask.sum(dim=1), 8))["ids"])


def test_lengths_of_other_samples_are_refused():
    with pytest.raises(ValueError, match="3 lengths for the 4 samples of ids: each needs its own"):
        of_like_length({"ids": torch.zeros(4, 5).long()}, torch.tensor([1, 2, 3]), 2)
