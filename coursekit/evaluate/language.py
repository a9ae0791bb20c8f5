"""How well a language model predicts text."""

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np


class LanguageModel(Protocol):
    """What every language model of the course offers."""

    def log_probabilities(self, documents: Sequence[Sequence[int]]) -> list[np.ndarray]: ...
    def next_probabilities(self, ids: Sequence[int]) -> np.ndarray: ...


class Perplexity(NamedTuple):
    """A measurement; infinite where the model held a token for impossible.

    Attributes:
        perplexity: ``exp(-mean of ln p)`` per token.
        bits_per_token: its binary logarithm.
        bits_per_character: all bits over the characters of the texts; None if their number was not given. Unlike
            the other two it does not depend on how texts are cut into tokens, as long as no token stands for an
            unknown word.
        tokens: how many were predicted: all of each document and one end behind each.
    """

    perplexity: float
    bits_per_token: float
    bits_per_character: float | None
    tokens: int


def perplexity(model: LanguageModel, documents: Sequence[Sequence[int]], characters: int | None = None) -> Perplexity:
    """The perplexity of a language model on documents.

    Every token of a document counts, and the one end behind it; each is predicted from its own document only, the
    first from nothing. So the number depends neither on the order of the documents nor on their grouping.

    Args:
        model: any with ``log_probabilities``.
        documents: ids, without the end.
        characters: number of characters of the texts that the documents were made from.

    Raises:
        ValueError: there is no document, or no character.
    """
    if not len(documents):
        raise ValueError("no documents: there is nothing to measure")
    if characters is not None and characters < 1:
        raise ValueError(f"characters={characters}: must be the number of characters of the texts, at least 1")
    log_p = np.concatenate(model.log_probabilities(documents)).astype(np.float64)
    bits = float(-log_p.sum() / math.log(2))
    per_token = bits / len(log_p)
    # the exponential of a hopeless model's bits does not fit into a float
    value = 2.0**per_token if per_token < 1024 else math.inf
    return Perplexity(value, per_token, None if characters is None else bits / characters, len(log_p))
