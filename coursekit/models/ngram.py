"""n-gram language models: maximum likelihood, add-k, absolute discounting and Kneser-Ney.

Read it top to bottom: what is counted, the class that counts it, the four ways from counts to probabilities.

Every language model of the course has two methods: ``next_probabilities(ids)``, the distribution of the token after
the beginning of a document, and ``log_probabilities(documents)``, for measuring. A document is a list of ids;
``end_id`` stands behind it, and as often as a context asks for in front of it: no context reaches into the document
before.

Legend: N tokens to predict, n order, V vocabulary size, h context (the n - 1 tokens before), w token.

Source: Chen and Goodman (1999), *An Empirical Study of Smoothing Techniques for Language Modeling*, Computer Speech
and Language 13.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

Documents = Sequence[Sequence[int]]


def windows(documents: Documents, n: int, end_id: int) -> np.ndarray:
    """Each token of each document and the end after it, with the n - 1 tokens before it: (N, n), int64.

    Before a document's first token comes ``end_id``, n - 1 times; so no window reaches into another document.
    """
    padded = [np.array([*[end_id] * (n - 1), *document, end_id]) for document in documents]
    if any(row.dtype.kind not in "iu" for row in padded):
        raise ValueError("a document holds what is no whole number: documents are lists of the numbers of tokens")
    if not padded:
        return np.empty((0, n), np.int64)
    return np.concatenate([np.lib.stride_tricks.sliding_window_view(row, n) for row in padded])


def find(keys: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Place of each of ``wanted`` in the sorted ``keys``; -1 for those that are not there."""
    if not len(keys):
        return np.full(wanted.shape, -1)
    places = np.searchsorted(keys, wanted).clip(max=len(keys) - 1)
    return np.where(keys[places] == wanted, places, -1)


class Counts(NamedTuple):
    """How often token w followed context h, for the (h, w) that were seen, and the sums over w.

    Attributes:
        keys: ``h * V + w``, sorted; contexts are numbered.
        values: c(h w), as many as keys.
        totals: for each context, the sum of c(h w) over w.
        types: for each context, how many different w followed it: N1+(h .).
    """

    keys: np.ndarray
    values: np.ndarray
    totals: np.ndarray
    types: np.ndarray


class NGram:
    """Counts of n-grams of every order up to n; the subclasses turn them into probabilities.

    Args:
        n: order: a token is predicted from the n - 1 before it. 1 is the unigram model.
        vocab_size: V.
        end_id: the token at the end of a document, and in front of it.

    Attributes:
        counts: for each order 1..n, under its number, the ``Counts`` that the model uses.
    """

    def __init__(self, n: int, vocab_size: int, end_id: int = 0):
        if n < 1:
            raise ValueError(f"n={n}: must be at least 1, the unigram model")
        if vocab_size < 1:
            raise ValueError(f"vocab_size={vocab_size}: must be at least 1")
        if not 0 <= end_id < vocab_size:
            raise ValueError(f"end_id={end_id}: must lie in 0..{vocab_size - 1} (vocab_size - 1)")
        self.n, self.vocab_size, self.end_id = n, vocab_size, end_id
        self.contexts: list[np.ndarray] = []  # sorted keys of the contexts of length 1, 2, ...; see ``number``
        self.counts: dict[int, Counts] = {}

    # -- what the subclasses say -------------------------------------------------------------------------------

    def orders(self) -> Sequence[int]:
        """The orders that the model looks at, the lowest first."""
        raise NotImplementedError

    def estimate(self, order: int, lower, count, total, types):
        """p(w | h) from the counts of one order and p of the order below; numbers or arrays alike."""
        raise NotImplementedError

    def lower_counts(self) -> None:
        """Called at the end of ``fit``: what follows from the counts, and may replace those of the lower orders."""

    # -- counting ----------------------------------------------------------------------------------------------

    def number(self, contexts: np.ndarray, learn: bool = False) -> list[np.ndarray]:
        """Numbers of the last 0, 1, ..., n - 1 tokens of contexts (M, n - 1), (M,) each; -1 for what was never seen.

        Contexts grow to the left: a context of k tokens is its first token and the number of the k - 1 after it.
        """
        numbers = [np.zeros(len(contexts), np.int64)]
        for k in range(1, self.n):
            suffix = numbers[-1]
            size = len(self.contexts[k - 2]) if k > 1 else 1  # how many numbers suffixes have
            keys = contexts[:, self.n - 1 - k] * size + suffix
            if learn:
                self.contexts.append(np.unique(keys))
            numbers.append(np.where(suffix < 0, -1, find(self.contexts[k - 1], keys)))
        return numbers

    def suffix(self, k: int, contexts: np.ndarray) -> np.ndarray:
        """Numbers of contexts of length k without their first token."""
        return self.contexts[k - 1][contexts] % (len(self.contexts[k - 2]) if k > 1 else 1)

    def summed(self, order: int, keys: np.ndarray, values: np.ndarray) -> Counts:
        """``Counts`` of sorted keys and their values."""
        h = keys // self.vocab_size
        size = len(self.contexts[order - 2]) if order > 1 else 1
        return Counts(keys, values, np.bincount(h, values, size), np.bincount(h, minlength=size))

    def fit(self, documents: Documents) -> "NGram":
        """Count the n-grams of documents; what was counted before is forgotten. Returns the model itself.

        Raises:
            ValueError: there is no document, or an id is not in the vocabulary.
        """
        found = windows(documents, self.n, self.end_id)
        if not len(found):
            raise ValueError("no documents: there is nothing to count")
        self.check(found)
        self.contexts, self.counts = [], {}
        numbers = self.number(found[:, :-1], learn=True)
        for order in range(1, self.n + 1):
            keys, values = np.unique(numbers[order - 1] * self.vocab_size + found[:, -1], return_counts=True)
            self.counts[order] = self.summed(order, keys, values)
        self.lower_counts()
        return self

    def check(self, ids: np.ndarray) -> None:
        outside = ids[(ids < 0) | (ids >= self.vocab_size)]
        if len(outside):
            raise ValueError(f"id {outside[0]} is not in the vocabulary: ids lie in 0..{self.vocab_size - 1}")

    # -- probabilities -----------------------------------------------------------------------------------------

    def probabilities(self, context: Sequence[int]) -> np.ndarray:
        """p(w | h) of all tokens after the last n - 1 of ``context``: (V,), positive or zero, summing to 1.

        Args:
            context: at least n - 1 tokens; see ``next_probabilities`` for the beginning of a document.
        """
        if len(context) < self.n - 1:
            raise ValueError(f"context of {len(context)} tokens: a model of order {self.n} needs {self.n - 1}")
        if not self.counts:
            raise ValueError("the model has no counts yet: call fit first")
        h = np.array([context[len(context) - self.n + 1 :]], dtype=np.int64).reshape(1, self.n - 1)
        self.check(h)
        p = np.full(self.vocab_size, 1 / self.vocab_size)
        numbers = self.number(h)
        for order in self.orders():
            found, counts = numbers[order - 1].item(), self.counts[order]
            if found < 0:  # nor has any longer context that ends in this one been seen
                break
            count = np.zeros(self.vocab_size)
            first, last = np.searchsorted(counts.keys, [found * self.vocab_size, (found + 1) * self.vocab_size])
            count[counts.keys[first:last] % self.vocab_size] = counts.values[first:last]
            p = self.estimate(order, p, count, counts.totals[found], counts.types[found])
        return p

    def next_probabilities(self, ids: Sequence[int]) -> np.ndarray:
        """p of all tokens after ``ids``, a document's beginning (empty at its start): (V,)."""
        return self.probabilities([*[self.end_id] * (self.n - 1), *ids])

    def log_probabilities(self, documents: Documents) -> list[np.ndarray]:
        """ln p of every token of each document and of the end after it: an array of ``len(document) + 1`` each.

        An n-gram that the model thinks impossible has minus infinity.
        """
        if not self.counts:
            raise ValueError("the model has no counts yet: call fit first")
        if not len(documents):
            return []
        found = windows(documents, self.n, self.end_id)
        self.check(found)
        w, numbers = found[:, -1], self.number(found[:, :-1])
        p = np.full(len(w), 1 / self.vocab_size)
        for order in self.orders():
            h, counts = numbers[order - 1], self.counts[order]
            places = find(counts.keys, h * self.vocab_size + w)
            count = np.where(places < 0, 0, counts.values[places])
            with np.errstate(invalid="ignore", divide="ignore"):
                p = np.where(h < 0, p, self.estimate(order, p, count, counts.totals[h], counts.types[h]))
        with np.errstate(divide="ignore"):
            log_p = np.log(p)
        return np.split(log_p, np.cumsum([len(document) + 1 for document in documents])[:-1])


class AddK(NGram):
    """``p(w | h) = (c(h w) + k) / (c(h) + k V)``: every n-gram is taken to have been seen k times more.

    After a context that was never seen all tokens are equally likely, 1 / V.

    Args:
        n, vocab_size, end_id: as for ``NGram``.
        k: 1 is Laplace's rule.

    Source: section 2.1 (there with a delta for k).
    """

    def __init__(self, n: int, vocab_size: int, end_id: int = 0, k: float = 1.0):
        super().__init__(n, vocab_size, end_id)
        if not k >= 0:
            raise ValueError(f"k={k}: a count cannot shrink below what was seen; take k of at least 0")
        self.k = k

    def orders(self) -> Sequence[int]:
        return (self.n,)

    def estimate(self, order: int, lower, count, total, types):
        return (count + self.k) / (total + self.k * self.vocab_size)


class MaximumLikelihood(AddK):
    """``p(w | h) = c(h w) / c(h)``: the relative frequency; zero for what was never seen.

    After a context that was never seen there is no frequency; all tokens are then equally likely, 1 / V, as is the
    limit of ``AddK`` for k towards 0.

    Source: section 2, equation 3.
    """

    def __init__(self, n: int, vocab_size: int, end_id: int = 0):
        super().__init__(n, vocab_size, end_id, k=0.0)


class AbsoluteDiscounting(NGram):
    """Interpolated absolute discounting: take D from each count, share it out as the order below says.

    ``p(w | h) = max(c(h w) - D, 0) / c(h) + D N1+(h .) / c(h) * p(w | h')``, h' being h without its first token.
    Below the unigrams stands 1 / V. After a context that was never seen, p is that of the order below.

    Args:
        n, vocab_size, end_id: as for ``NGram``.
        discount: D of every order, in 0..1; None estimates one for each order from the numbers n1 and n2 of n-grams
            that were counted once and twice: ``D = n1 / (n1 + 2 n2)``; 0.5 where one of these is zero.

    Attributes:
        discounts: D of each order.

    Source: section 2.6, with one discount for each order.
    """

    def __init__(self, n: int, vocab_size: int, end_id: int = 0, discount: float | None = None):
        super().__init__(n, vocab_size, end_id)
        if discount is not None and not 0 < discount <= 1:
            raise ValueError(f"discount={discount}: must be above 0 and at most 1, or None to estimate it")
        self.discount = discount
        self.discounts: dict[int, float] = {}

    def orders(self) -> Sequence[int]:
        return range(1, self.n + 1)

    def lower_counts(self) -> None:
        for order, counts in self.counts.items():
            n1, n2 = (counts.values == 1).sum(), (counts.values == 2).sum()
            estimated = float(n1 / (n1 + 2 * n2)) if n1 and n2 else 0.5
            self.discounts[order] = estimated if self.discount is None else self.discount

    def estimate(self, order: int, lower, count, total, types):
        D = self.discounts[order]
        return np.maximum(count - D, 0) / total + D * types / total * lower


class KneserNey(AbsoluteDiscounting):
    """Interpolated Kneser-Ney: absolute discounting whose lower orders count contexts, not occurrences.

    The formula is that of ``AbsoluteDiscounting``. At the highest order c counts occurrences; below,
    ``c(h w) = N1+(. h w)``, in how many different contexts ``h w`` was seen: "Francisco" is frequent, but follows one
    word only.

    Args and attributes: as for ``AbsoluteDiscounting``.

    Source: section 2.7; Kneser and Ney (1995), *Improved backing-off for M-gram language modeling*, ICASSP.
    """

    def lower_counts(self) -> None:
        for order in range(1, self.n):
            h, w = np.divmod(self.counts[order + 1].keys, self.vocab_size)
            # every different n-gram one order up is one context of what remains without its first token
            keys, values = np.unique(self.suffix(order, h) * self.vocab_size + w, return_counts=True)
            self.counts[order] = self.summed(order, keys, values)
        super().lower_counts()
