"""Packed documents: every token once, in order, and nothing between the documents but their end."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from coursekit.data.packing import pack, packed_anew

END = 0
documents = st.lists(st.lists(st.integers(1, 9), max_size=6), min_size=1, max_size=6)


def test_rows_by_hand():
    found = pack([[5, 6, 7], [], [8, 9]], 3, END)  # 0 5 6 7 0 0 8 9 0: two rows, and two tokens are left
    assert found.tolist() == [[0, 5, 6, 7], [7, 0, 0, 8]]
    assert pack([[5, 6, 7], [], [8, 9]], 4, END).tolist() == [[0, 5, 6, 7, 0], [0, 0, 8, 9, 0]]
    assert pack([[5, 6, 7], [], [8, 9]], 3, END, skip=2).tolist() == [[6, 7, 0, 0], [0, 8, 9, 0]]


@given(documents, st.integers(1, 8), st.integers(0, 3))
def test_every_token_is_a_target_once_and_only_the_tail_is_lost(found, length, skip):
    stream = [END]
    for document in found:
        stream = [*stream, *document, END]
    stream = stream[skip:]
    if len(stream) <= length:
        with pytest.raises(ValueError, match=f"{len(stream)} tokens: a row of length={length} takes {length + 1}"):
            pack(found, length, END, skip)
        return
    rows = pack(found, length, END, skip)
    targets = rows[:, 1:].flatten().tolist()
    assert targets == stream[1 : len(targets) + 1]
    assert rows[:, :-1].flatten().tolist() == stream[: len(targets)]
    assert len(stream) - 1 - len(targets) < length


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"length": 0}, "length=0: must be at least 1"), ({"skip": -1}, "skip=-1: must be at least 0")],
)
def test_nonsense_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        pack(**{"documents": [[1, 2, 3]], "length": 2, "end_id": END} | changes)


def test_a_pass_is_in_another_order_with_other_cuts_and_always_the_same_for_its_generator():
    found = [[i] * 7 for i in range(1, 30)]
    draw = [packed_anew(found, 10, END, torch.Generator().manual_seed(seed))["ids"] for seed in (0, 0, 1, 2, 3)]
    assert torch.equal(draw[0], draw[1])
    orders = []
    for ids in draw[1:]:
        assert ids.shape[1] == 11
        stream = torch.cat([ids[0], ids[1:, 1:].flatten()]).tolist()
        # what was skipped and what was left out is at most one row at either end
        whole = [i for i in range(1, 30) if stream.count(i) == 7]
        assert len(whole) >= 29 - 4
        orders.append(sorted(whole, key=stream.index))
        assert all(stream[stream.index(i) : stream.index(i) + 7] == [i] * 7 for i in whole)
    assert len({tuple(order) for order in orders}) == 4
    assert len({tuple(ids[0].tolist()).index(END) for ids in draw[1:]}) > 1
