"""What is masked and which sentences are paired: counts beside the odds that the paper gives, seeds fixed.

``close`` allows five standard deviations of the binomial distribution: one draw in two million falls outside.
"""

import itertools
import math
from functools import cache

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from coursekit.data.pretraining import Redrawn, mask_tokens, places_of, sentence_pairs
from coursekit.text.tokenizer import Tokenizer
from coursekit.text.wordpiece import SPECIAL_TOKENS, WordPiece

PAD, UNK, CLS, SEP, MASK = range(5)
V = 40
WORDS = [f"w{i}" for i in range(V - 5)]


@cache
def tokenizer() -> WordPiece:
    return WordPiece([*SPECIAL_TOKENS, *WORDS])


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def close(count, n: int, p: float) -> bool:
    return abs(float(count) - n * p) <= 5 * math.sqrt(n * p * (1 - p))


def framed(lengths: list[int], T: int, word: int | None = None, seed: int = 0) -> dict[str, torch.Tensor]:
    """Texts of so many tokens between [CLS] and [SEP], with another [SEP] in the middle of long ones."""
    ids = torch.full((len(lengths), T), PAD)
    for row, n in zip(ids, lengths):
        row[:n] = torch.randint(5, V, (n,), generator=seeded(seed + n)) if word is None else word
        row[0], row[n - 1] = CLS, SEP
        if n > 5:
            row[n // 2] = SEP
    return {"ids": ids, "mask": torch.arange(T) < torch.tensor(lengths)[:, None]}


# --- masking --------------------------------------------------------------------------------------------------


def test_the_number_of_masked_tokens_is_the_programs():
    lengths = list(range(3, 200))
    masked = mask_tokens(framed(lengths, 200), tokenizer(), seeded())["masked"]
    assert masked.sum(dim=1).tolist() == [max(1, round(0.15 * n)) for n in lengths]


@given(st.integers(0, 10_000))
def test_only_what_may_be_guessed_is_touched(seed):
    generator = seeded(seed)
    lengths = torch.randint(3, 31, (6,), generator=generator).tolist()
    samples = framed(lengths, 30, seed=seed) | {"labels": torch.arange(6)}
    found = mask_tokens(samples, tokenizer(), generator)
    ids, mask = samples["ids"], samples["mask"]
    assert set(found) == {"ids", "mask", "labels", "target", "masked", "places"}
    assert torch.equal(found["target"], ids)
    assert torch.equal(found["mask"], mask)
    assert not found["masked"][(ids == CLS) | (ids == SEP) | ~mask].any()
    assert torch.equal(found["ids"][~found["masked"]], ids[~found["masked"]])


@given(st.integers(0, 10_000))
def test_places_are_where_the_mask_is_true(seed):
    masked = torch.rand(5, 12, generator=seeded(seed)) < 0.3
    masked[0] = masked[1] = False  # nothing in one row, more than elsewhere in another
    masked[1, [0, 3, 4, 11]] = True
    places = places_of(masked)
    assert [[t for t in row if t >= 0] for row in places.tolist()] == [row.nonzero()[:, 0].tolist() for row in masked]
    assert places.shape == (5, masked.sum(dim=1).max())
    assert all(row == sorted(row, key=lambda t: t < 0) for row in places.tolist())


def test_padding_is_never_masked_even_where_it_looks_like_a_word():
    samples = framed([4] * 500, 40)
    samples["ids"][:, 4:] = 7
    found = mask_tokens(samples, tokenizer(), seeded())["masked"]
    assert found[:, 1:3].any(dim=0).all()
    assert not found[:, 4:].any()


def test_eight_in_ten_are_hidden_one_is_anything_one_stays():
    """One word everywhere, so that what it became is seen. A word drawn at random may be any of V, itself too."""
    word, samples = 9, framed([128] * 4000, 128, word=9)
    found = mask_tokens(samples, tokenizer(), seeded())
    became = found["ids"][found["masked"]]
    n = len(became)
    assert n == 4000 * 19
    assert close((became == MASK).sum(), n, 0.8 + 0.1 / V)
    assert close((became == word).sum(), n, 0.1 + 0.1 / V)
    others = [v for v in range(V) if v not in (MASK, word)]
    for v in others:  # the whole vocabulary, special tokens too, each as often as any other
        assert close((became == v).sum(), n, 0.1 / V), v
    # chi-square of the others: its mean is their number less one, its variance twice that
    counts = torch.tensor([float((became == v).sum()) for v in others])
    chi_square = ((counts - counts.mean()) ** 2 / counts.mean()).sum().item()
    degrees = len(others) - 1
    assert abs(chi_square - degrees) < 5 * math.sqrt(2 * degrees)


def test_every_place_is_as_likely_as_any_other():
    samples = framed([22] * 20_000, 24)
    masked = mask_tokens(samples, tokenizer(), seeded())["masked"]
    free = [t for t in range(22) if t not in (0, 11, 21)]  # [CLS], both [SEP]
    chosen = round(0.15 * 22)
    for t in free:
        assert close(masked[:, t].sum(), 20_000, chosen / len(free)), t
    together = (masked[:, 5] & masked[:, 6]).sum()  # whether places are chosen apart from each other
    pairs = len(free) * (len(free) - 1) / (chosen * (chosen - 1))
    assert close(together, 20_000, 1 / pairs)


def test_masks_are_new_with_every_draw_and_the_same_for_a_seed():
    samples, generator = framed([30] * 50, 30), seeded(3)
    before = {name: tensor.clone() for name, tensor in samples.items()}
    first, second = (mask_tokens(samples, tokenizer(), generator) for _ in range(2))
    assert all(torch.equal(samples[name], tensor) for name, tensor in before.items()), "the texts were changed"
    again = mask_tokens(samples, tokenizer(), seeded(3))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["masked"], second["masked"])
    same = (first["masked"] & second["masked"]).sum()
    assert close(same, 50 * 27, (4 / 27) ** 2), "a mask is drawn as if there had been none before"


def test_bad_texts_are_refused():
    samples = framed([5, 3, 5], 5)
    samples["ids"][1, 1] = SEP
    with pytest.raises(ValueError, match=r"text 1 has no token to guess: it needs one beside \[CLS\] and \[SEP\]"):
        mask_tokens(samples, tokenizer(), seeded())
    with pytest.raises(ValueError, match=r"the tokenizer has no \[MASK\]: use a WordPiece"):
        mask_tokens(samples, Tokenizer(["[CLS]", "[SEP]"]), seeded())


# --- sentence pairs -------------------------------------------------------------------------------------------


def library(n: int = 300, sentences: int = 6) -> list[list[list[int]]]:
    """Documents whose tokens are all different: document, sentence and place can be told from a token."""
    lengths = torch.randint(1, 9, (n, sentences), generator=seeded())
    number = iter(range(5, 10**9))
    return [[[next(number) for _ in range(length)] for length in row] for row in lengths.tolist()]


def parts(pairs: dict[str, torch.Tensor]) -> list[tuple[list[int], list[int], int]]:
    """A, B and label of each pair, after a look at its frame and segments."""
    found = []
    for ids, mask, segments, label in zip(*(pairs[name].tolist() for name in ("ids", "mask", "segments", "labels"))):
        n = sum(mask)
        assert mask == [True] * n + [False] * (len(mask) - n)
        assert ids[n:] == [PAD] * (len(ids) - n)
        assert segments[n:] == [0] * (len(ids) - n)
        assert ids[0] == CLS
        assert ids.count(SEP) == 2
        cut = ids.index(SEP)
        assert ids[n - 1] == SEP
        assert segments[:n] == [0] * (cut + 1) + [1] * (n - cut - 1)
        found.append((ids[1:cut], ids[cut + 1 : n - 1], label))
    return found


def test_pairs_follow_each_other_or_come_from_two_documents():
    documents = library(2000)
    where = {t: (d, s) for d, document in enumerate(documents) for s, x in enumerate(document) for t in x}
    found = parts(sentence_pairs(documents, tokenizer(), 64, seeded()))
    expected = (0, 0)  # document and sentence at which the next A begins
    begins, cuts = [], []
    for a, b, label in found:
        for run in (a, b):  # whole sentences, one after the other, of one document
            (d, first), (_, last) = where[run[0]], where[run[-1]]
            assert run == [t for sentence in documents[d][first : last + 1] for t in sentence]
        assert where[a[0]] == expected
        (d, last), (other, first) = where[a[-1]], where[b[0]]
        if label == 0:
            assert (other, first) == (d, last + 1)
            end = where[b[-1]][1] + 1
            if expected[1] == 0 and end == 6:
                cuts.append(last + 1)
        else:
            assert other != d
            begins.append(first)
            end = last + 1
        expected = (d, end) if end < 5 else (d + 1, 0)  # of six sentences, one alone makes no pair
    assert expected == (2000, 0)
    assert len(cuts) > 500
    assert all(close(cuts.count(cut), len(cuts), 1 / 5) for cut in range(1, 6))
    assert all(close(begins.count(first), len(begins), 1 / 6) for first in range(6))


def test_half_of_the_pairs_follow_each_other():
    labels = sentence_pairs([[[5], [6]]] * 20_000, tokenizer(), 5, seeded())["labels"].tolist()
    assert len(labels) == 20_000
    assert close(labels.count(0), 20_000, 0.5)
    # and a label says nothing of the next one
    assert close(sum(a == b for a, b in itertools.pairwise(labels)), 19_999, 0.5)


def test_sentences_are_used_and_cuts_differ():
    documents = library(50)
    generator = seeded()
    passes = [parts(sentence_pairs(documents, tokenizer(), 64, generator)) for _ in range(3)]
    assert len({str(one) for one in passes}) == 3
    in_order = [{t for a, b, label in one for t in (a + b if label == 0 else a)} for one in passes]
    tokens = {t for document in documents for sentence in document for t in sentence}
    assert all(len(one) > 0.6 * len(tokens) for one in in_order)
    assert len(set.union(*in_order)) > len(in_order[0])
    again = parts(sentence_pairs(documents, tokenizer(), 64, seeded()))
    assert again == passes[0]


def test_the_other_document_is_any_but_this_one():
    """Each of the others as often; a token tells its document."""
    documents = [[[5 + d], [5 + d]] for d in range(6)]
    generator, seen = seeded(), {}
    for _ in range(1500):
        for a, b, label in parts(sentence_pairs(documents, tokenizer(), 5, generator)):
            if label == 1:
                seen.setdefault(a[0], []).append(b[0])
    for own, others in seen.items():
        assert own not in others
        for other in set(range(5, 11)) - {own}:
            assert close(others.count(other), len(others), 1 / 5)


@given(st.integers(0, 10_000), st.integers(5, 40))
def test_no_pair_is_too_long(seed, max_length):
    documents = library(12, sentences=4)
    documents[seed % 12][1] *= 9  # longer than any pair may be
    documents[(seed + 1) % 12][2] = []
    pairs = sentence_pairs(documents, tokenizer(), max_length, seeded(seed))
    found = parts(pairs)
    assert pairs["ids"].shape[1] <= max_length
    for a, b, _ in found:
        assert min(len(a), len(b)) >= 1


def test_pairs_are_filled_up():
    found = parts(sentence_pairs(library(300, sentences=40), tokenizer(), 64, seeded()))
    lengths = [len(a) + len(b) for a, b, _ in found]
    assert sum(lengths) / len(lengths) > 0.85 * 61


def test_a_long_pair_loses_tokens_of_its_longer_part_at_either_end():
    documents = [[list(range(100, 130)), list(range(200, 210))], [[5], [6]]]
    ends = set()
    for seed in range(40):
        for a, b, label in parts(sentence_pairs(documents, tokenizer(), 23, seeded(seed))):
            if a[0] >= 100 and label == 0:
                assert (len(a), len(b)) == (10, 10)
                assert a == list(range(a[0], a[0] + 10))
                assert b == list(range(200, 210))
                ends.add(a[0])
    assert len(ends) > 5


@pytest.mark.parametrize(
    ("documents", "max_length", "words"),
    [
        ([[[5], [6]]], 16, "1 documents with sentences, the longest of 2: pairs need two documents"),
        ([[[5]], [[6], []]], 16, "2 documents with sentences, the longest of 1: .* one with two sentences"),
        ([], 16, "0 documents with sentences, the longest of 0"),
        ([[[5], [6]], [[7]]], 4, r"max_length=4: \[CLS\] A \[SEP\] B \[SEP\] takes at least 5"),
    ],
)
def test_nonsense_is_refused(documents, max_length, words):
    with pytest.raises(ValueError, match=words):
        sentence_pairs(documents, tokenizer(), max_length, seeded())


# --- passes ---------------------------------------------------------------------------------------------------


def make(generator: torch.Generator) -> dict[str, torch.Tensor]:
    return mask_tokens(sentence_pairs(library(30), tokenizer(), 32, generator), tokenizer(), generator)


def test_a_pass_shows_each_of_its_samples_once_and_the_next_has_others():
    data = Redrawn(lambda generator: {"x": torch.rand(10, generator=generator)}, batch_size=3, seed=5)
    passes = []
    for _ in range(3):
        batches = [next(data)["x"] for _ in range(3)]
        assert data.place == 0
        passes.append(torch.cat(batches).tolist())
    drawn = [torch.rand(10, generator=seeded(5 + p)).tolist() for p in range(3)]
    for seen, samples in zip(passes, drawn):
        assert len(set(seen)) == 9
        assert set(seen) < set(samples)
        assert seen != [x for x in samples if x in seen], "in the order in which they were drawn"


def test_masks_are_fresh_in_each_pass_over_the_same_texts():
    samples = framed([20] * 8, 20)
    data = Redrawn(lambda generator: mask_tokens(samples, tokenizer(), generator), batch_size=8)
    seen = []
    for _ in range(3):
        batch = next(data)
        order = batch["target"].tolist()
        seen.append([batch["masked"][order.index(row)].tolist() for row in samples["ids"].tolist()])
    same = [a == b for one, other in itertools.combinations(seen, 2) for a, b in zip(one, other)]
    assert sum(same) <= 1, "24 times one of more than 600 masks"


@pytest.mark.parametrize("drawn", [0, 1, 6, 7, 8, 30])
def test_it_goes_on_where_it_was(drawn):
    data = Redrawn(make, batch_size=8, seed=1)
    for _ in range(drawn):
        next(data)
    state = data.state_dict()
    rest = [next(data) for _ in range(9)]
    again = Redrawn(make, batch_size=8, seed=1)
    again.load_state_dict(state)
    for batch in rest:
        other = next(again)
        assert all(torch.equal(batch[name], other[name]) for name in batch)
    assert len({str(batch["ids"].tolist()) for batch in rest}) == 9
    assert data.number > state["number"], "the test does not reach another pass"


def test_a_state_of_other_data_is_refused():
    state = Redrawn(make, batch_size=8, seed=1).state_dict()
    with pytest.raises(ValueError, match="the state is of data with seed=1, these have 2"):
        Redrawn(make, batch_size=8, seed=2).load_state_dict(state)
    with pytest.raises(ValueError, match="the state is of data with batch_size=8, these have 4"):
        Redrawn(make, batch_size=4, seed=1).load_state_dict(state)
    other = Redrawn(lambda generator: {"x": torch.zeros(9)}, batch_size=8, seed=1)
    with pytest.raises(ValueError, match=r"the state is of data with size=\d+ in this pass, these have 9"):
        other.load_state_dict(state)
    with pytest.raises(ValueError, match="batch_size=10: pass 0 has only 9 samples"):
        next(Redrawn(lambda generator: {"x": torch.zeros(9)}, batch_size=10))
    with pytest.raises(ValueError, match="batch_size=0: must be at least 1"):
        Redrawn(make, batch_size=0)
