"""How well a language model predicts text."""

import math
from collections.abc import Hashable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch.nn import functional as F

from coursekit.models.gpt import GPT
from coursekit.nn.modes import evaluating


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


class SlidingWindow:
    """A GPT as a ``LanguageModel`` for documents of any length: it reads them through a window that moves on.

    A window holds as many tokens as the model has positions. It moves on by ``stride`` of them, and each time only the
    tokens that are new in it count, so that every token is predicted from at least ``max_length - stride`` before it,
    or from its document's beginning.

    Args:
        model: read in eval mode; the mode that it is in is left as it is.
        end_id: the token that divided documents in training: the first thing that is read of each.
        stride: None for half of the model's ``max_length``.

    Raises:
        ValueError: ``stride`` is not in 1..max_length.
    """

    def __init__(self, model: GPT, end_id: int, stride: int | None = None):
        self.width = model.config.max_length
        self.model, self.end_id = model, end_id
        self.stride = max(1, self.width // 2) if stride is None else stride
        if not 1 <= self.stride <= self.width:
            raise ValueError(f"stride={stride}: must lie in 1..{self.width}, the model's max_length")

    @torch.inference_mode()
    def log_probabilities(self, documents: Sequence[Sequence[int]], batch_size: int = 16) -> list[np.ndarray]:
        """ln p of every token of each document and of the end behind it: an array of ``len(document) + 1`` each."""
        where = self.model.tokens.weight.device
        rows = [torch.tensor([self.end_id, *document, self.end_id]) for document in documents]
        # where each window begins: one for the first ``width`` targets, one for each ``stride`` more
        windows = [
            (i, start)
            for i, row in enumerate(rows)
            for start in range(0, max(1, len(row) - 1 - self.width + self.stride), self.stride)
        ]
        windows.sort(key=lambda window: len(rows[window[0]]) - window[1])  # of like length side by side
        found = [np.zeros(len(row) - 1) for row in rows]
        for first in range(0, len(windows), batch_size):
            chosen = windows[first : first + batch_size]
            parts = [rows[i][start : start + self.width + 1] for i, start in chosen]
            ids = torch.nn.utils.rnn.pad_sequence(parts, batch_first=True, padding_value=self.end_id).to(where)
            with evaluating(self.model):
                logits = self.model(ids[:, :-1]).float().transpose(1, 2)  # (B, V, T)
            log_p = -F.cross_entropy(logits, ids[:, 1:], reduction="none").double().cpu().numpy()
            for (i, start), part, row in zip(chosen, parts, log_p):
                old = self.width - self.stride if start else 0
                found[i][start + old : start + len(part) - 1] = row[old : len(part) - 1]
        return found

    @torch.inference_mode()
    def next_probabilities(self, ids: Sequence[int]) -> np.ndarray:
        """p of all tokens after ``ids``, a document's beginning (empty at its start): (V,)."""
        where = self.model.tokens.weight.device
        with evaluating(self.model):
            logits = self.model(torch.tensor([[self.end_id, *ids][-self.width :]], device=where))[0, -1]
        return logits.double().softmax(dim=-1).cpu().numpy()


def distinct_n(texts: Sequence[Sequence[Hashable]], n: int) -> float:
    """The share of different ones among all runs of ``n`` tokens in texts: 1 where no run comes twice.

    Source: Li et al. (2016), arXiv 1510.03055, section 5.2 (there of words).
    """
    check_run(n)
    runs = [tuple(text[i : i + n]) for text in texts for i in range(len(text) - n + 1)]
    if not runs:
        raise ValueError(f"n={n}: no text has so many tokens")
    return len(set(runs)) / len(runs)


def check_run(n: int) -> None:
    if n < 1:
        raise ValueError(f"n={n}: a run has at least 1 token")


def repetition_n(texts: Sequence[Sequence[Hashable]], n: int) -> float:
    """How much texts repeat themselves: ``1 - distinct_n`` of each alone, and the mean of that.

    A text of less than ``n`` tokens says nothing of this and is left out.

    Source: Welleck et al. (2020), arXiv 1908.04319, section 6.1 (seq-rep-n).
    """
    check_run(n)
    texts = [text for text in texts if len(text) >= n]
    if not texts:
        raise ValueError(f"n={n}: no text has so many tokens")
    return sum(1 - distinct_n([text], n) for text in texts) / len(texts)
