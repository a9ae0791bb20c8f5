"""An exponential moving average of a model's weights."""

import copy
from typing import Any

import torch
from torch import nn


class EMA:
    """Keeps ``average <- decay * average + (1 - decay) * weights``; buffers are copied as they are.

    Args:
        model: the average starts as a copy of it.
        decay: how much of the average stays at each update, in 0..1.

    Attributes:
        average: a model of the same kind that holds the averaged weights, in eval mode, without gradients.

    Source: Tarvainen and Valpola (2017), arXiv 1703.01780, section 2.
    """

    def __init__(self, model: nn.Module, decay: float):
        if not 0 <= decay <= 1:
            raise ValueError(f"decay={decay}: must lie in 0..1")
        self.decay = decay
        self.average = copy.deepcopy(model).eval().requires_grad_(False)

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Take one step towards ``model``."""
        torch._foreach_lerp_(list(self.average.parameters()), list(model.parameters()), 1 - self.decay)
        for average, buffer in zip(self.average.buffers(), model.buffers()):
            average.copy_(buffer)

    def state_dict(self) -> dict[str, Any]:
        return self.average.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.average.load_state_dict(state)
