"""Sentences of the world as tensors for a translator, in batches of like length."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from coursekit.data.batches import Batch, check_same, pad
from coursekit.data.world import Sentence, sentences
from coursekit.text.vocab import Vocab


@cache
def world_vocab() -> Vocab:
    """All words of the world, English and French, in alphabetical order."""
    found = sentences(20_000, "train")
    return Vocab(sorted({word for s in found for word in s.en + s.fr}))


def to_ids(found: Sequence[Sentence], vocab: Vocab) -> list[tuple[list[int], list[int]]]:
    """English and French of each sentence as numbers; both end with the end symbol."""
    return [([*vocab.encode(s.en), vocab.eos_id], [*vocab.encode(s.fr), vocab.eos_id]) for s in found]


def as_batch(pairs: Sequence[tuple[list[int], list[int]]]) -> Batch:
    """``source``, ``source_mask`` (B, S), ``target`` and ``target_mask`` (B, T) of pairs of numbers."""
    source, source_mask = pad([pair[0] for pair in pairs])
    target, target_mask = pad([pair[1] for pair in pairs])
    return {"source": source, "source_mask": source_mask, "target": target, "target_mask": target_mask}


class Bucketed:
    """Passes over pairs in batches of like length, each with at most so many tokens on either side, padding included.

    Every pass shuffles the pairs, sorts them by length (equal ones stay shuffled), cuts batches and shuffles
    those. Each pair comes once a pass.

    Args:
        pairs: (source, target), lists of numbers.
        max_tokens: most tokens of a batch, of the sources and of the targets by themselves.
        seed: of the order. Pass number p is shuffled with ``seed + p``.

    Source: Vaswani et al. (2017), section 5.1.
    """

    def __init__(self, pairs: Sequence[tuple[list[int], list[int]]], max_tokens: int, seed: int = 0):
        if not pairs:
            raise ValueError("no pairs: there is nothing to draw batches from")
        longest = max(max(map(len, pair)) for pair in pairs)
        if max_tokens < longest:
            raise ValueError(f"max_tokens={max_tokens}: the longest sequence alone has {longest}")
        self.pairs, self.max_tokens, self.seed = pairs, max_tokens, seed
        self.number = self.place = 0  # of the pass, of the next batch in it
        self.order: tuple[int, list[list[int]]] | None = None  # pass number and its batches

    def batches(self, number: int) -> list[list[int]]:
        generator = torch.Generator().manual_seed(self.seed + number)
        order = torch.randperm(len(self.pairs), generator=generator).tolist()
        order.sort(key=lambda i: max(map(len, self.pairs[i])))
        cut, first = [], 0
        for i, row in enumerate(order):
            # sorted, so the newest is the longest and says how far all of them are padded
            if (i - first + 1) * max(map(len, self.pairs[row])) > self.max_tokens:
                cut.append(order[first:i])
                first = i
        cut.append(order[first:])
        return [cut[i] for i in torch.randperm(len(cut), generator=generator).tolist()]

    def __iter__(self) -> "Bucketed":
        return self

    def __next__(self) -> Batch:
        if self.order is None or self.order[0] != self.number:
            self.order = self.number, self.batches(self.number)
        chosen = self.order[1][self.place]
        self.place += 1
        if self.place == len(self.order[1]):
            self.number, self.place = self.number + 1, 0
        return as_batch([self.pairs[i] for i in chosen])

    def state_dict(self) -> dict[str, Any]:
        settings = {"size": len(self.pairs), "max_tokens": self.max_tokens, "seed": self.seed}
        return {"number": self.number, "place": self.place, **settings}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        check_same(state, self.state_dict(), "size", "max_tokens", "seed")
        self.number, self.place = state["number"], state["place"]
