"""Endless mini-batches that know where they are, so that training can be resumed at any step."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Batch = dict[str, Tensor]


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
        differs = [name for name in ("size", "batch_size", "seed") if state[name] != getattr(self, name)]
        if differs:
            name = differs[0]
            raise ValueError(f"the state is of data with {name}={state[name]}, these have {getattr(self, name)}")
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
