"""What a batch is, and endless mini-batches that know where they are, so that training can be resumed at any step.

A batch is a dictionary of tensors with the samples on the first axis, B of them. Each loss says in its docstring what
it reads. Names that several models share mean this::

    ids                         (B, T)                   int64    tokens, padded to one length
    mask                        (B, T)                   bool     True where a token is real
    segments                    (B, T)                   int64    BERT: 0 in the first text, 1 in the second
    masked                      (B, T)                   bool     BERT: True where a token is to be guessed
    loss_mask                   (B, T)                   bool     GPT: True where a token is to be learned
    target                      (B, T)                   int64    what is to be predicted at each place
    source, target              (B, S), (B, T)           int64    the two sides of a translation
    source_mask, target_mask    (B, S), (B, T)           bool     True where they are real
    images                      (B, C, height, width)    float32  scaled as the model reads them
    labels                      (B,)                     int64    classes
    history, target             (B, L, C), (B, H, C)     float32  time series; NaN in the target where nothing is known
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

Batch = dict[str, Tensor]


def pad(rows: Sequence[Sequence[int]], pad_id: int = 0) -> tuple[Tensor, Tensor]:
    """Rows of unequal length as ids (B, T), padded at the end, and a mask (B, T), True where a token is real.

    Raises:
        ValueError: there are no rows.
    """
    if not len(rows):
        raise ValueError("no rows: give at least one")
    length = max(map(len, rows))
    ids = torch.tensor([[*row, *[pad_id] * (length - len(row))] for row in rows], dtype=torch.long)
    return ids, torch.arange(length) < torch.tensor([[len(row)] for row in rows])


def check_same(state: dict[str, Any], own: dict[str, Any], *names: str) -> None:
    """Refuse a ``state`` that was saved of other data than these, which differ in one of the settings ``names``."""
    for name in names:
        if state[name] != own[name]:
            raise ValueError(f"the state is of data with {name}={state[name]}, these have {own[name]}")


class Shuffled:
    """Passes over a data set, each in a new order, in batches of equal size.

    The last ``size % batch_size`` samples of a pass are left out of it; the next pass is shuffled anew.

    Args:
        samples: tensors with the sample on the first axis, all of the same size there.
        batch_size: samples per batch.
        seed: of the order. Pass number p is shuffled with ``seed + p``.
    """

    def __init__(self, samples: Batch, batch_size: int, seed: int = 0):
        sizes = {name: len(tensor) for name, tensor in samples.items()}
        if len(set(sizes.values())) != 1:
            raise ValueError(f"samples differ in number: {sizes}")
        self.size = next(iter(sizes.values()))
        if not 1 <= batch_size <= self.size:
            raise ValueError(f"batch_size={batch_size}: must lie in 1..{self.size}, the number of samples")
        self.samples, self.batch_size, self.seed = samples, batch_size, seed
        self.drawn = 0
        self.order: tuple[int, Tensor] | None = None  # pass number and its permutation

    def __iter__(self) -> "Shuffled":
        return self

    def __next__(self) -> Batch:
        number, place = divmod(self.drawn, self.size // self.batch_size)
        if self.order is None or self.order[0] != number:
            generator = torch.Generator().manual_seed(self.seed + number)
            self.order = number, torch.randperm(self.size, generator=generator)
        chosen = self.order[1][place * self.batch_size :][: self.batch_size]
        self.drawn += 1
        return {name: tensor[chosen] for name, tensor in self.samples.items()}

    def state_dict(self) -> dict[str, Any]:
        return {"drawn": self.drawn, "size": self.size, "batch_size": self.batch_size, "seed": self.seed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        check_same(state, vars(self), "size", "batch_size", "seed")
        self.drawn = state["drawn"]


class Fresh:
    """A batch drawn anew every time, by ``make(generator)``.

    Args:
        make: draws one batch from the generator it is given, and from nothing else.
        seed: of that generator.
    """

    def __init__(self, make: Callable[[torch.Generator], Batch], seed: int = 0):
        self.make = make
        self.generator = torch.Generator().manual_seed(seed)

    def __iter__(self) -> "Fresh":
        return self

    def __next__(self) -> Batch:
        return self.make(self.generator)

    def state_dict(self) -> dict[str, Any]:
        return {"generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.generator.set_state(state["generator"])


def of_like_length(samples: Batch, lengths: Tensor, batch_size: int, seed: int = 0) -> Fresh:
    """Endless batches of samples drawn at random, those of a batch of like length, without the columns that are
    padding in all of them.

    Eight times as many are drawn, put in order of length, and one part of eight is taken.

    Args:
        samples: tensors with the sample on the first axis; where they have a second, it is that of the tokens, padded
            at the end.
        lengths: how many columns each sample needs, (N,).

    Raises:
        ValueError: there are more or fewer lengths than samples.
    """
    for name, rows in samples.items():
        if len(rows) != len(lengths):
            raise ValueError(f"{len(lengths)} lengths for the {len(rows)} samples of {name}: each needs its own")

    def make(generator: torch.Generator) -> Batch:
        drawn = torch.randint(len(lengths), (8 * batch_size,), generator=generator)
        parts = drawn[lengths[drawn].argsort(stable=True)].split(batch_size)
        chosen = parts[int(torch.randint(8, (), generator=generator))]
        longest = int(lengths[chosen].max())
        return {name: rows[chosen, :longest] if rows.dim() > 1 else rows[chosen] for name, rows in samples.items()}

    return Fresh(make, seed)
