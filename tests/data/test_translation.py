"""Batches of like length."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from coursekit.data.translation import Bucketed, as_batch, to_ids, world_vocab
from coursekit.data.world import sentences

pairs = st.lists(
    st.tuples(
        st.lists(st.integers(4, 50), min_size=1, max_size=9), st.lists(st.integers(4, 50), min_size=1, max_size=9)
    ),
    min_size=1,
    max_size=40,
)


def real_rows(ids, mask):
    return [row[keep].tolist() for row, keep in zip(ids, mask)]


@given(pairs, st.integers(9, 60), st.integers(0, 3))
def test_each_pair_comes_once_a_pass_and_no_batch_is_too_big(found, max_tokens, seed):
    data = Bucketed(found, max_tokens, seed)
    for _ in range(2):
        number, seen = data.number, []
        while data.number == number:
            batch = next(data)
            assert batch["source"].numel() <= max_tokens
            assert batch["target"].numel() <= max_tokens
            sources = real_rows(batch["source"], batch["source_mask"])
            seen += zip(sources, real_rows(batch["target"], batch["target_mask"]))
        assert sorted(seen) == sorted((a, b) for a, b in found)


def long_pairs(n: int = 300):
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, 20, (n,), generator=generator).tolist()
    return [([10 + i] * length, [i + 5] * length) for i, length in enumerate(lengths)]


def test_batches_hold_little_padding_and_come_in_a_new_order():
    data = Bucketed(long_pairs(), 200)
    passes = [data.batches(number) for number in range(2)]
    for batches in passes:
        total = real = 0
        for rows in batches:
            mask = as_batch([data.pairs[i] for i in rows])["source_mask"]
            total, real = total + mask.numel(), real + int(mask.sum())
        assert real / total > 0.9  # batches drawn at random hold about half
    assert passes[0] != passes[1]
    # neither the batches nor the sentences beside each other are those of the pass before
    assert {tuple(sorted(rows)) for rows in passes[0]} != {tuple(sorted(rows)) for rows in passes[1]}
    lengths = [max(len(data.pairs[i][0]) for i in rows) for rows in passes[0]]
    assert lengths != sorted(lengths)


def test_it_goes_on_where_it_was():
    data = Bucketed(long_pairs(), 200, seed=3)
    for _ in range(25):  # into the second pass
        next(data)
    state = data.state_dict()
    assert state["number"] > 0
    expected = [next(data) for _ in range(30)]
    again = Bucketed(long_pairs(), 200, seed=3)
    again.load_state_dict(state)
    for batch in expected:
        other = next(again)
        assert all(torch.equal(other[name], batch[name]) for name in batch)
    with pytest.raises(ValueError, match="max_tokens=200, these have 100"):
        Bucketed(long_pairs(), 100, seed=3).load_state_dict(state)


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="no pairs"):
        Bucketed([], 100)
    with pytest.raises(ValueError, match="max_tokens=5: the longest sequence alone has 19"):
        Bucketed(long_pairs(), 5)


def test_the_vocabulary_knows_every_word_of_the_world():
    vocab = world_vocab()
    assert 500 < len(vocab) < 1000
    for split, n in (("train", 4000), ("validation", 500), ("test", 500)):  # the others have no words of their own
        for source, target in to_ids(sentences(n, split, seed=5), vocab):
            assert vocab.unk_id not in source + target
            assert source[-1] == target[-1] == vocab.eos_id
