"""What every attention module shares: the masked softmax, and a way to look at the weights."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Softmax over the last axis among the allowed entries; the others get weight exactly 0.

    ``a_s = exp(e_s) / sum over allowed s' of exp(e_s')``

    Args:
        scores: any real numbers, (..., S).
        mask: boolean, broadcastable to ``scores``; True = may attend. Each row needs at least one True:
            a row without any would give NaN.

    Returns:
        Weights of the shape of ``scores``, each row summing to 1.
    """
    return scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)


class Attention(nn.Module):
    """Base of the attention modules: hands its weights to ``record_attention`` when that listens."""

    def __init__(self):
        super().__init__()
        self.recorded: list[Tensor] | None = None

    def record(self, weights: Tensor) -> Tensor:
        """Keep a copy of ``weights`` if someone listens; return them unchanged."""
        if self.recorded is not None:
            self.recorded.append(weights.detach())
        return weights


@contextmanager
def record_attention(model: nn.Module) -> Iterator[dict[str, list[Tensor]]]:
    """Collect the attention weights of every attention module inside ``model``.

    ::

        with record_attention(model) as maps:
            model(source, mask, target)
        weights = torch.cat(maps["attention"], dim=-2)  # (B, T, S)

    Yields:
        For each module's name, the weights of its calls in order, each (..., T, S). They have no gradient.

    Raises:
        ValueError: the model has no attention module.
    """
    modules = {name: module for name, module in model.named_modules() if isinstance(module, Attention)}
    if not modules:
        raise ValueError(f"{type(model).__name__} has no attention module, so there are no weights to record")
    before = {name: module.recorded for name, module in modules.items()}
    maps: dict[str, list[Tensor]] = {name: [] for name in modules}
    for name, module in modules.items():
        module.recorded = maps[name]
    try:
        yield maps
    finally:
        for name, module in modules.items():
            module.recorded = before[name]
