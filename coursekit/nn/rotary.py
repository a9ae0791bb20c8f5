"""Rotary positions: queries and keys are turned by an angle that grows with their position.

A query and a key that are turned by the angles of their positions m and n have the product of the unturned ones that
stand m - n apart: so the score knows the distance, and nothing of where both stand.

Legend: B batch, H heads, T tokens, Dh size of a head.

Source: Su et al. (2021), *RoFormer: Enhanced Transformer with Rotary Position Embedding*, arXiv 2104.09864, section
3.2.
"""

from dataclasses import dataclass
from math import tau

import torch
from torch import Tensor


@dataclass(frozen=True)
class RotaryScaling:
    """How Llama 3 stretches its angles to texts longer than those that it was trained on.

    Pairs of entries that turn fast stay as they are, since they tell near positions apart; those that make less than
    ``low`` turns within ``original`` positions turn ``factor`` times as slowly; between ``low`` and ``high`` turns it
    is a mixture of both.

    Source: the program of Llama 3.1 (Grattafiori et al., 2024, arXiv 2407.21783, names none of these numbers). The idea
    is the "NTK-by-parts" of Peng et al. (2023), *YaRN*, arXiv 2309.00071, section 3.2.
    """

    factor: float = 8.0
    low: float = 1.0
    high: float = 4.0
    original: int = 8192

    def __post_init__(self):
        if not self.factor >= 1:
            raise ValueError(f"factor={self.factor}: must be at least 1")
        if not 0 < self.low < self.high:
            raise ValueError(f"low={self.low}, high={self.high}: turns, the lower above 0 and below the higher")


def rotary_frequencies(
    size: int, base: float = 10_000.0, scaling: RotaryScaling | None = None, device: torch.device | None = None
) -> Tensor:
    """``theta_i = base^(-2 i / Dh)``: by how many radians the pair i turns from one position to the next, (Dh / 2,).

    Raises:
        ValueError: ``size``, Dh, is odd.
    """
    if size % 2 or size < 2:
        raise ValueError(f"size={size}: must be even, since entries turn in pairs")
    theta = base ** -(torch.arange(0, size, 2, device=device) / size)
    if scaling is not None:
        turns = scaling.original * theta / tau  # within the texts of the training
        kept = ((turns - scaling.low) / (scaling.high - scaling.low)).clamp(0, 1)
        theta = theta * (kept + (1 - kept) / scaling.factor)
    return theta


def rotary_angles(position_ids: Tensor, frequencies: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines of ``m theta_i``: positions (...) -> (..., Dh / 2) each.

    In float32 also where all else is in half precision, in which neighbouring positions of a long text would be one.
    """
    angles = position_ids[..., None].float() * frequencies
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair of entries by its angle: (B, H, T, Dh) -> the same.

    ``(a, b) -> (a cos - b sin, a sin + b cos)``, where a is an entry of the first half of a vector and b the one in its
    place in the second half. The paper pairs neighbours, which is the same with the entries in another order; the
    files of Hugging Face are ordered for halves.

    Args:
        cos, sin: broadcastable to (B, H, T, Dh / 2).
    """
    a, b = x.chunk(2, dim=-1)
    cos, sin = cos.to(x.dtype), sin.to(x.dtype)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)
