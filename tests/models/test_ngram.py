"""n-gram models against the formulas written out with dictionaries of tuples."""

import math
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coursekit.models.ngram import AbsoluteDiscounting, AddK, KneserNey, MaximumLikelihood, NGram, windows

V, END = 6, 2
documents = st.lists(st.lists(st.integers(0, V - 1), max_size=12), min_size=1, max_size=6)
orders = st.integers(1, 4)
MODELS = {
    "ml": MaximumLikelihood,
    "add-k": lambda n, V, end: AddK(n, V, end, k=0.3),
    "absolute": AbsoluteDiscounting,
    "kn": KneserNey,
    "kn, 0.75": lambda n, V, end: KneserNey(n, V, end, discount=0.75),
}
models = st.sampled_from(sorted(MODELS))


def padded_ngrams(found, n: int) -> list[tuple[int, ...]]:
    """The n-grams of each document, END in front n - 1 times and once behind."""
    rows = [[END] * (n - 1) + list(document) + [END] for document in found]
    return [tuple(row[i : i + n]) for row in rows for i in range(len(row) - n + 1)]


class SlowKneserNey:
    """The formula, from sets of tuples; with ``contexts=False`` that of absolute discounting."""

    def __init__(self, n: int, found, discount: float | None = None, contexts: bool = True):
        self.n = n
        self.c: dict[int, Counter] = {n: Counter(padded_ngrams(found, n))}
        for k in range(n - 1, 0, -1):
            # different words in front of each k-gram; those in front of n-grams reach further than the model does
            longer = {gram[-(k + 1) :] for gram in padded_ngrams(found, n)}
            before = defaultdict(set)
            for gram in longer:
                before[gram[1:]].add(gram[0])
            self.c[k] = Counter({gram: len(words) for gram, words in before.items()})
            if not contexts:
                self.c[k] = Counter(gram[-k:] for gram in padded_ngrams(found, n))
        self.D = {}
        for k, counts in self.c.items():
            n1 = sum(c == 1 for c in counts.values())
            n2 = sum(c == 2 for c in counts.values())
            self.D[k] = discount or (n1 / (n1 + 2 * n2) if n1 and n2 else 0.5)

    def p(self, w: int, h: tuple[int, ...]) -> float:
        k = len(h) + 1
        lower = self.p(w, h[1:]) if h else 1 / V
        followers = {gram[-1]: c for gram, c in self.c[k].items() if gram[:-1] == h}
        if not followers:
            return lower
        total = sum(followers.values())
        first = max(followers.get(w, 0) - self.D[k], 0) / total
        return first + self.D[k] * len(followers) / total * lower


@given(documents, orders, st.sampled_from([None, 0.4, 1.0]), st.booleans())
def test_discounting_is_the_formula(found, n, discount, contexts):
    model = (KneserNey if contexts else AbsoluteDiscounting)(n, V, END, discount).fit(found)
    slow = SlowKneserNey(n, found, discount, contexts)
    contexts = {gram[:-1] for gram in padded_ngrams(found, n)} | {tuple([5] * (n - 1)), tuple([0, 1, 0][: n - 1])}
    for h in contexts:
        expected = [slow.p(w, h) for w in range(V)]
        np.testing.assert_allclose(model.probabilities(h), expected, rtol=0, atol=1e-12)


def test_discounts_are_estimated_for_each_order():
    """On words as unlike in frequency as those of a language, so that no order falls back to 0.5."""
    generator = np.random.default_rng(1)
    found = [(generator.zipf(1.5, 40) % 60).tolist() for _ in range(4)]
    model, slow = KneserNey(3, 60, END).fit(found), SlowKneserNey(3, found)
    assert model.discounts == pytest.approx(slow.D)
    assert len({0.5, *model.discounts.values()}) == 4


def test_francisco():
    """A word that is frequent after one word only is not expected after others."""
    francisco, san, filler, rare = 0, 1, 3, 4
    found = [[san, francisco]] * 20 + [[filler, rare], [san, rare], [5, rare], [rare], [5, filler]]
    p = KneserNey(2, V, END).fit(found).probabilities([filler])
    assert p[rare] > p[francisco]
    p = AddK(1, V, END, k=0.1).fit(found).probabilities([])
    assert p[francisco] > 3 * p[rare]


@given(documents, orders, st.floats(0, 3))
def test_add_k_is_the_formula(found, n, k):
    model = AddK(n, V, END, k).fit(found)
    grams = Counter(padded_ngrams(found, n))
    totals = Counter(gram[:-1] for gram in grams.elements())
    for h in totals:
        expected = [(grams[*h, w] + k) / (totals[h] + k * V) for w in range(V)]
        np.testing.assert_allclose(model.probabilities(h), expected, rtol=0, atol=1e-12)
        if k == 0:
            np.testing.assert_array_equal(
                model.probabilities(h), MaximumLikelihood(n, V, END).fit(found).probabilities(h)
            )


@given(documents, orders, models, st.lists(st.integers(0, V - 1), max_size=8))
def test_probabilities_sum_to_one_after_any_context(found, n, name, ids):
    model = MODELS[name](n, V, END).fit(found)
    p = model.next_probabilities(ids)
    assert p.shape == (V,)
    assert (p >= 0).all()
    assert p.sum() == pytest.approx(1, abs=1e-12)
    if name.startswith("kn"):
        assert (p > 0).all()
    if len(ids) >= n - 1:
        np.testing.assert_array_equal(p, model.probabilities(ids))


@given(documents, documents, orders, models)
def test_log_probabilities_are_those_of_each_token_by_itself(found, others, n, name):
    """The fast way against the slow: one distribution for each token of each document and its end."""
    model = MODELS[name](n, V, END).fit(found)
    actual = model.log_probabilities(others)
    assert len(actual) == len(others)
    for document, log_p in zip(others, actual):
        p = [model.next_probabilities(document[:i])[w] for i, w in enumerate([*document, END])]
        expected = [math.log(x) if x else -math.inf for x in p]
        np.testing.assert_allclose(log_p, expected, rtol=0, atol=1e-12)


def test_no_ngram_crosses_documents():
    assert windows([[3, 4], [], [5]], 3, END).tolist() == [
        [END, END, 3],
        [END, 3, 4],
        [3, 4, END],
        [END, END, END],
        [END, END, 5],
        [END, 5, END],
    ]
    apart = MaximumLikelihood(2, V, END).fit([[3, 4], [5, 0]])
    assert apart.probabilities([4]).tolist() == [0, 0, 1, 0, 0, 0]
    assert MaximumLikelihood(2, V, END).fit([[3, 4, 5, 0]]).probabilities([4])[5] == 1
    assert apart.next_probabilities([]).tolist() == [0, 0, 0, 0.5, 0, 0.5]


@given(documents, orders, models)
def test_documents_may_come_in_any_order(found, n, name):
    model, other = (MODELS[name](n, V, END).fit(rows) for rows in (found, found[::-1]))
    for a, b in zip(model.log_probabilities(found), other.log_probabilities(found)):
        np.testing.assert_array_equal(a, b)


def test_fitting_again_forgets():
    first, second = [[0, 1, 0, 1, 3]], [[4, 5, 5, 4]]
    again = KneserNey(3, V, END).fit(first).fit(second)
    np.testing.assert_array_equal(
        again.next_probabilities([4, 5]), KneserNey(3, V, END).fit(second).next_probabilities([4, 5])
    )


def test_large_orders_and_vocabularies():
    """Keys must not overflow: 50,257 to the power of 8 does not fit into 64 bits."""
    generator = np.random.default_rng(0)
    found = [generator.integers(0, 50_257, 300).tolist() for _ in range(3)]
    model = KneserNey(8, 50_257).fit(found)
    p = model.next_probabilities(found[0][:100])
    assert p.argmax() == found[0][100]
    assert p.sum() == pytest.approx(1)


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="n=0: must be at least 1"):
        KneserNey(0, V)
    with pytest.raises(ValueError, match="vocab_size=0"):
        AddK(1, 0)
    with pytest.raises(ValueError, match=r"end_id=6: must lie in 0..5"):
        MaximumLikelihood(2, V, 6)
    with pytest.raises(ValueError, match="k=-1"):
        AddK(2, V, k=-1)
    with pytest.raises(ValueError, match="k=nan"):
        AddK(2, V, k=math.nan)
    with pytest.raises(ValueError, match="a document holds what is no whole number"):
        KneserNey(2, V).fit([[1, 2], [1.7]])
    for discount in (0, 1.5):
        with pytest.raises(ValueError, match=f"discount={discount}: must be above 0"):
            KneserNey(2, V, discount=discount)
    with pytest.raises(ValueError, match="no documents"):
        KneserNey(2, V).fit([])
    for outside in (-1, V):
        with pytest.raises(ValueError, match=f"id {outside} is not in the vocabulary"):
            KneserNey(2, V).fit([[1, outside]])
    model = KneserNey(3, V).fit([[1, 2]])
    with pytest.raises(ValueError, match="context of 1 tokens: a model of order 3 needs 2"):
        model.probabilities([1])
    with pytest.raises(ValueError, match=f"id {V} is not"):
        model.probabilities([1, V])
    with pytest.raises(ValueError, match=f"id {V} is not"):
        model.log_probabilities([[V]])
    for ask in (lambda m: m.probabilities([1]), lambda m: m.log_probabilities([[1]])):
        with pytest.raises(ValueError, match="call fit first"):
            ask(AddK(2, V))
    assert model.log_probabilities([]) == []
    assert isinstance(model, NGram)
