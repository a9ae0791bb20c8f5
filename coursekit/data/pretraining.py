"""What BERT is pre-trained on: pairs of sentences with masked words, drawn anew for every pass.

Source: Devlin et al. (2019), arXiv 1810.04805, section 3.1 and appendix A.1 and A.2; where the paper leaves a choice,
as in its program, ``create_pretraining_data.py``.
"""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from coursekit.data.batches import Batch, check_same, pad
from coursekit.text.tokenizer import Tokenizer
from coursekit.text.wordpiece import CLS, MASK, PAD, SEP

Sentence = Sequence[int]  # its tokens, without [CLS] and [SEP]
RATE = 0.15  # of the tokens of a text, [CLS] and [SEP] counted in, that are to be guessed


def mask_tokens(samples: Batch, tokenizer: Tokenizer, generator: torch.Generator) -> Batch:
    """Choose the tokens that are to be guessed, and hide most of them.

    Of a text of n tokens, ``[CLS]`` and ``[SEP]`` counted in, ``max(1, round(0.15 n))`` are chosen, all sets of so
    many alike, ``[CLS]``, ``[SEP]`` and padding never. Each of them becomes ``[MASK]`` in 8 cases of 10, a token drawn
    from the whole vocabulary in 1, and stays as it is in 1.

    Args:
        samples: ``ids`` (N, T) and ``mask`` (N, T), True where a token is real; what else there is stays as it is.
        tokenizer: whose ids these are; it has ``[CLS]``, ``[SEP]`` and ``[MASK]``.
        generator: what all draws are from.

    Returns:
        ``samples`` with other ``ids``, and with ``target`` (N, T), the ids as they were, ``masked`` (N, T), True at
        the chosen ones, and ``places`` (N, P), where these are, as ``places_of`` says it.

    Raises:
        ValueError: a text has nothing but special tokens, or the tokenizer lacks one.
    """
    cls, sep, hidden = special_ids(tokenizer, CLS, SEP, MASK)
    ids, mask = samples["ids"], samples["mask"]
    free = mask & (ids != cls) & (ids != sep)
    if not free.any(dim=1).all():
        row = int(free.any(dim=1).int().argmin())
        raise ValueError(f"text {row} has no token to guess: it needs one beside [CLS] and [SEP]")
    number = (RATE * mask.sum(dim=1).double()).round().clamp(min=1)  # a half to the even side, as Python rounds
    chance = torch.rand(ids.shape, generator=generator).masked_fill(~free, 2.0)
    masked = (chance.argsort(dim=1).argsort(dim=1) < number[:, None]) & free  # the lowest of each row
    fate = torch.rand(ids.shape, generator=generator)
    anything = torch.randint(len(tokenizer), ids.shape, generator=generator)
    seen = torch.where(masked & (fate < 0.8), hidden, ids)
    seen = torch.where(masked & (fate >= 0.8) & (fate < 0.9), anything, seen)
    return {**samples, "ids": seen, "target": ids, "masked": masked, "places": places_of(masked)}


def places_of(masked: Tensor) -> Tensor:
    """Where each row of ``masked`` (N, T) is True, in order: (N, P), P being the most of any row; the rest is -1.

    With these a model can pick what it needs at once: how many are True, a GPU would have to be asked and waited for.
    """
    first = masked.int().argsort(dim=1, descending=True, stable=True)[:, : int(masked.sum(dim=1).max())]
    return first.masked_fill(~masked.gather(1, first), -1)


def special_ids(tokenizer: Tokenizer, *tokens: str) -> list[int]:
    for token in tokens:
        if token not in tokenizer.ids:
            raise ValueError(f"the tokenizer has no {token}: use a WordPiece, or add it to the tokens")
    return [tokenizer.ids[token] for token in tokens]


def sentence_pairs(
    documents: Sequence[Sequence[Sentence]], tokenizer: Tokenizer, max_length: int, generator: torch.Generator
) -> Batch:
    """One pass over the documents in pairs ``[CLS] A [SEP] B [SEP]``, B following A in half of them.

    A and B are runs of sentences that together fill ``max_length`` as well as whole sentences do. In a document a run
    of at least two is taken and cut in two at a place drawn anew: A, and what follows it. By the toss of a coin B is
    what follows, or a run from another document; in the latter case the document goes on after A. A pair that is
    still too long loses tokens of its longer part, at either end. (The program makes one pair in ten shorter on
    purpose, which is left out here.)

    Args:
        documents: sentences as ids, without ``[CLS]`` and ``[SEP]``; empty ones are passed over.
        tokenizer: whose ids these are.
        max_length: most tokens of a pair, the three special ones counted in.
        generator: what all draws are from.

    Returns:
        ``ids``, ``mask`` (True where a token is real), ``segments`` (0 up to the first ``[SEP]``, then 1), (N, T) each,
        in the order of the documents and padded at the end, and ``labels`` (N,): 0 where B follows A, else 1.

    Raises:
        ValueError: fewer than two documents with sentences, no document with two, or too small a ``max_length``.
    """
    cls, sep, padding = special_ids(tokenizer, CLS, SEP, PAD)
    budget = max_length - 3
    if budget < 2:
        raise ValueError(f"max_length={max_length}: [CLS] A [SEP] B [SEP] takes at least 5")
    kept = [sentences for document in documents if (sentences := [list(s) for s in document if len(s)])]
    if len(kept) < 2 or max(map(len, kept)) < 2:
        raise ValueError(
            f"{len(kept)} documents with sentences, the longest of {max(map(len, kept), default=0)}: "
            "pairs need two documents and one with two sentences"
        )

    def draw(n: int) -> int:
        return int(torch.randint(n, (), generator=generator))

    rows, segments, labels = [], [], []
    for number, document in enumerate(kept):
        at = 0
        while at < len(document) - 1:
            run = take_sentences(document, at, budget, at_least=2)
            cut = 1 + draw(len(run) - 1)
            a, b, label = list(chain(*run[:cut])), list(chain(*run[cut:])), draw(2)
            at += len(run) if label == 0 else cut
            if label == 1:
                other = kept[(number + 1 + draw(len(kept) - 1)) % len(kept)]  # any but this one
                b = list(chain(*take_sentences(other, draw(len(other)), budget - len(a), at_least=1)))
            while len(a) + len(b) > budget:
                (a if len(a) > len(b) else b).pop(0 if draw(2) else -1)
            rows.append([cls, *a, sep, *b, sep])
            segments.append([0] * (len(a) + 2) + [1] * (len(b) + 1))
            labels.append(label)
    ids, mask = pad(rows, padding)
    return {"ids": ids, "mask": mask, "segments": pad(segments)[0], "labels": torch.tensor(labels)}


def take_sentences(document: list[list[int]], start: int, budget: int, at_least: int) -> list[list[int]]:
    """Sentences from ``start`` on, as many as fit into ``budget`` tokens, but ``at_least`` so many."""
    end, tokens = start, 0
    while end < len(document) and (end - start < at_least or tokens + len(document[end]) <= budget):
        tokens += len(document[end])
        end += 1
    return document[start:end]


class Redrawn:
    """Passes over samples that are drawn anew for every pass, in batches of equal size, in random order.

    ::

        def make(generator):
            return mask_tokens(sentence_pairs(documents, tokenizer, 128, generator), tokenizer, generator)

        data = Redrawn(make, batch_size=32)

    What is left at the end of a pass and makes no whole batch is left out.

    Args:
        make: draws the samples of one pass, tensors with the sample on the first axis, from the generator it is given,
            and from nothing else.
        batch_size: samples per batch.
        seed: of the samples and of their order. Pass number p is drawn with ``seed + p``.
    """

    def __init__(self, make: Callable[[torch.Generator], Batch], batch_size: int, seed: int = 0):
        if batch_size < 1:
            raise ValueError(f"batch_size={batch_size}: must be at least 1")
        self.make, self.batch_size, self.seed = make, batch_size, seed
        self.number = self.place = 0  # of the pass, of the next batch in it
        self.drawn: tuple[int, Batch, Tensor] | None = None  # pass number, its samples and their order

    def samples(self) -> tuple[Batch, Tensor]:
        """The samples of this pass and their order."""
        if self.drawn is None or self.drawn[0] != self.number:
            generator = torch.Generator().manual_seed(self.seed + self.number)
            samples = self.make(generator)
            size = len(next(iter(samples.values())))
            if size < self.batch_size:
                raise ValueError(f"batch_size={self.batch_size}: pass {self.number} has only {size} samples")
            self.drawn = self.number, samples, torch.randperm(size, generator=generator)
        return self.drawn[1:]

    def __iter__(self) -> "Redrawn":
        return self

    def __next__(self) -> Batch:
        samples, order = self.samples()
        chosen = order[self.place * self.batch_size :][: self.batch_size]
        self.place += 1
        if self.place == len(order) // self.batch_size:
            self.number, self.place = self.number + 1, 0
        return {name: tensor[chosen] for name, tensor in samples.items()}

    def state_dict(self) -> dict[str, Any]:
        size = len(self.samples()[1])
        settings = {"batch_size": self.batch_size, "seed": self.seed, "size": size}
        return {"number": self.number, "place": self.place, **settings}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        check_same(state, vars(self), "batch_size", "seed")
        before = self.number
        self.number = state["number"]
        if len(self.samples()[1]) != state["size"]:
            size, self.number = len(self.samples()[1]), before
            raise ValueError(f"the state is of data with size={state['size']} in this pass, these have {size}")
        self.place = state["place"]
