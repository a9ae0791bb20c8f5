"""Losses that training and measuring share."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from coursekit.nn.checks import can_sync, check_mask


def real_rows(logits: Tensor, target: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """Flatten logits (B, T, V) and targets (B, T) to (N, V) and (N,), as a cross-entropy reads them.

    Where ``real`` (B, T) is False there is nothing to predict. On a CPU these rows are left out. On a GPU we would have
    to wait to learn how many they are, so they stay, with the target -100, which a cross-entropy leaves out.

    Raises:
        ValueError: ``real`` is not boolean, or of another shape than the targets.
    """
    check_mask("the mask of the targets", real, target.shape)
    if can_sync(real):
        return logits[real], target[real]  # N: as many as are real
    return logits.flatten(0, 1), target.masked_fill(~real, -100).flatten()  # N = B T


def summed_cross_entropy(logits: Tensor, target: Tensor, real: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The end of many an objective: ``- sum of ln p(target)`` (nats), and how many terms it has.

    Args:
        logits: (N, V), or with ``real`` (B, T, V).
        target: (N,), or with ``real`` (B, T).
        real: True where there is something to predict, (B, T); None where that is so everywhere.

    Raises:
        ValueError: as ``real_rows``.
    """
    if real is None:
        rows, count = logits, target.new_full((), len(target))
    else:
        (rows, target), count = real_rows(logits, target, real), real.sum()
    return F.cross_entropy(rows.float(), target, reduction="sum"), count


def pinball_loss(forecast: Tensor, target: Tensor, levels: Sequence[float]) -> Tensor:
    """How wrong each forecast quantile is: ``max(q (y - f), (q - 1) (y - f))`` with level q, value y, forecast f.

    A forecast that is too low costs q for each unit, one that is too high 1 - q. The mean cost is least where a share q
    of the values lies below f. At q = 0.5 it is half the absolute error.

    Args:
        forecast: (..., Q), a quantile for each level.
        target: (...), in the same units. Where it is NaN the loss is NaN too; leave these losses out of the sum, and
            no gradient comes from them.
        levels: the Q levels, each between 0 and 1.

    Returns:
        The losses in these units, (..., Q).

    Raises:
        ValueError: a level is not between 0 and 1, or forecast, target and levels do not belong together.

    Source: Koenker and Bassett (1978), *Regression quantiles*, Econometrica 46(1).
    """
    for level in levels:
        if not 0 < level < 1:
            raise ValueError(f"levels={tuple(levels)}: each must lie between 0 and 1")
    if forecast.shape != (*target.shape, len(levels)):
        raise ValueError(
            f"forecast of shape {tuple(forecast.shape)}: must be {(*target.shape, len(levels))}, the target's shape "
            f"and {len(levels)} levels"
        )
    above = target.unsqueeze(-1) - forecast  # (..., Q)
    q = torch.stack([above.new_full((), level) for level in levels])  # a tensor of the CPU would have to be sent
    return torch.maximum(q * above, (q - 1) * above)
