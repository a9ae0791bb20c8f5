"""RevIN: a history is normalised by its own mean and deviation, which is undone on the forecast.

Legend: L time steps of history, H of forecast, C channels; ... any number of dimensions before, as a rule one, B.
"""

import torch
from torch import Tensor

EPSILON = 1e-5  # under the root: a history that never changes has variance 0


def normalise(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Each channel of each history with its mean taken away and its deviation made 1: ``(x - mean) / std``.

    ``std = sqrt(variance + 1e-5)`` with the population variance, the mean over L of ``(x - mean) ** 2``.
    ``denormalise`` undoes it. Shift a history by b and stretch it by a > 0, and the result stays the same, apart from
    the effect of the 1e-5. So a model between the two can forecast at any level and in any units.

    Args:
        x: histories, (..., L, C), in any units.

    Returns:
        Without units, (..., L, C); the mean and the std in units of ``x``, both (..., 1, C).

    Raises:
        ValueError: ``x`` has no dimension of time, or a length of 0 there.

    Source: Kim et al. (2022), *Reversible instance normalization for accurate time-series forecasting against
    distribution shift* (RevIN), ICLR, equations 1 and 2, here without the learned scale and shift. PatchTST in
    transformers has the same std: population variance plus 1e-5 under the root.
    """
    if x.dim() < 2 or not x.shape[-2]:
        raise ValueError(f"histories of shape {tuple(x.shape)}: must be (..., L, C), L at least 1")
    mean = x.mean(dim=-2, keepdim=True)
    std = torch.sqrt(x.var(dim=-2, correction=0, keepdim=True) + EPSILON)
    return (x - mean) / std, mean, std


def denormalise(y: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """A forecast (..., H, C) in units of the history again: ``y * std + mean``, with what ``normalise`` returned.

    Source: Kim et al. (2022), equation 3.
    """
    return y * std + mean
