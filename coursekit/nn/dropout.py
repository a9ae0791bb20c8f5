"""Dropout, which takes a fifth of a small model's training step on a CPU if PyTorch draws its numbers."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

STEPS = 2**16  # 16 random bits tell so many probabilities apart


class Dropout(nn.Dropout):
    """``torch.nn.Dropout``, by the function ``drop``."""

    def forward(self, x: Tensor) -> Tensor:
        return drop(x, self.p) if self.training else x


def drop(x: Tensor, p: float) -> Tensor:
    """In training, set each number to 0 with probability ``p`` and scale the others: ``x * (u >= p) / (1 - p)``.

    PyTorch draws u as one double for each number. On a CPU 16 random bits do: one draw of 64 serves four numbers,
    in half the time or less. ``p`` is rounded to a multiple of 1 / 65,536, the scale with it, so the mean stays x.

    Args:
        x: any shape.
        p: from 0 to 1.

    Raises:
        ValueError: ``p`` is no probability.

    Source: Srivastava et al. (2014), Journal of Machine Learning Research 15, section 4; the scale in training:
    section 10.
    """
    dropped = round(p * STEPS)  # so many of the STEPS numbers of 16 bits stand for "set to 0"
    if x.device.type != "cpu" or not 0 < dropped < STEPS or torch.compiler.is_compiling():
        return F.dropout(x, p)
    n = x.numel()
    drawn = torch.empty((n + 3) // 4, dtype=torch.int64).random_(-(2**63), None)  # all 64 bits of each
    u = drawn.view(torch.int16)[:n].view(x.shape)  # from -32,768 to 32,767
    kept = torch.ge(u, dropped - STEPS // 2, out=torch.empty_like(x))  # 0 or 1; a copy of truth values takes longer
    return x * kept.mul_(STEPS / (STEPS - dropped))
