"""AdamW, and schedules for its learning rate and weight decay."""

import math
from collections.abc import Callable

import torch
from torch import nn

Schedule = Callable[[int, int], float]  # (step, steps) -> factor on the learning rate


def adamw(model: nn.Module, lr: float, weight_decay: float = 0.01, betas=(0.9, 0.999)) -> torch.optim.AdamW:
    """AdamW that decays matrices and embeddings only, not biases and norms (tensors with one axis).

    Source: Loshchilov and Hutter (2019), arXiv 1711.05101.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=lr, betas=betas, fused=True)


def constant(step: int, steps: int) -> float:
    """Factor 1 throughout."""
    return 1.0


def check_warmup(warmup: int) -> None:
    if warmup < 0 or int(warmup) != warmup:  # a share would multiply the first rate: 1 / 0.1 is 10
        raise ValueError(f"warmup={warmup}: must be a number of steps, 0 or more")


def warmup_cosine(warmup: int, floor: float = 0.0) -> Schedule:
    """Rise linearly to 1 over ``warmup`` steps, then fall along half a cosine to ``floor``.

    With a ``floor`` above 1 it rises to that instead, as a weight decay may.

    Raises:
        ValueError: ``warmup`` is no number of steps, such as a share of them.

    Source: Loshchilov and Hutter (2017), arXiv 1608.03983, equation 5, without restarts.
    """
    check_warmup(warmup)

    def factor(step: int, steps: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        done = (step - warmup) / max(1, steps - warmup)
        return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * done))

    return factor


def warmup_linear(warmup: int) -> Schedule:
    """Rise linearly to 1 over ``warmup`` steps, then fall linearly to 0 at the end.

    Raises:
        ValueError: as ``warmup_cosine``.

    Source: Devlin et al. (2019), arXiv 1810.04805, appendix A.2.
    """
    check_warmup(warmup)

    def factor(step: int, steps: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        return (steps - step) / max(1, steps - warmup)

    return factor
