"""Codes that tell positions apart: binary digits, sines and cosines, and learned vectors.

Legend: B batch, T positions, D size of the model.
"""

import torch
from torch import Tensor, nn


def binary_code(n_positions: int, n_bits: int) -> Tensor:
    """Position t as binary digits, the fastest first: ``code[t, i] = (t // 2^i) mod 2``; (n_positions, n_bits)."""
    if n_positions > 2**n_bits:
        raise ValueError(f"n_bits={n_bits}: {n_positions} positions need {(n_positions - 1).bit_length()}")
    return (torch.arange(n_positions)[:, None] >> torch.arange(n_bits) & 1).float()


def frequencies(d_model: int, base: float = 10_000.0) -> Tensor:
    """Angular frequencies ``w_i = base^(-2i / D)`` in radians per position; float64, (D / 2,)."""
    if d_model < 2 or d_model % 2:
        raise ValueError(f"d_model={d_model}: sines and cosines come in pairs, so it must be even")
    return base ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)


def sinusoidal(n_positions: int, d_model: int, base: float = 10_000.0) -> Tensor:
    """``P[t, 2i] = sin(w_i t)``, ``P[t, 2i + 1] = cos(w_i t)``; float32, (n_positions, d_model).

    Source: Vaswani et al. (2017), arXiv 1706.03762, section 3.5.
    """
    angle = torch.arange(n_positions, dtype=torch.float64)[:, None] * frequencies(d_model, base)  # (T, D / 2)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1).float()  # (T, D / 2, 2) -> (T, D)


class SinusoidalPositions(nn.Module):
    """Adds the sinusoidal code to embeddings. It has no parameters and is not saved."""

    def __init__(self, max_length: int, d_model: int):
        super().__init__()
        self.register_buffer("code", sinusoidal(max_length, d_model), persistent=False)

    def forward(self, x: Tensor, at: int | Tensor = 0) -> Tensor:
        """``x`` (B, T, D) with its positions; ``at``: that of the first token, or of each one, (B, T)."""
        return x + look_up(self.code, at, x.shape[1])


class LearnedPositions(nn.Module):
    """Adds a learned vector for each position to embeddings."""

    def __init__(self, max_length: int, d_model: int):
        super().__init__()
        self.code = nn.Parameter(torch.empty(max_length, d_model).normal_(std=0.02))

    def forward(self, x: Tensor, at: int | Tensor = 0) -> Tensor:
        """``x`` (B, T, D) with its positions; ``at``: that of the first token, or of each one, (B, T)."""
        return x + look_up(self.code, at, x.shape[1])


def look_up(code: Tensor, at: int | Tensor, length: int) -> Tensor:
    """The rows of ``code`` for ``length`` positions from ``at`` on, (T, D), or for given ones, (B, T, D)."""
    end = at + length if isinstance(at, int) else length
    if end > len(code):
        raise ValueError(f"{end} positions: the model was built for max_length={len(code)}")
    return code[at : at + length] if isinstance(at, int) else code[at]


def count_real(mask: Tensor) -> Tensor:
    """Position of each token among the real ones of its row, (B, T); padding on either side does not count."""
    return (mask.long().cumsum(dim=1) - 1).clamp(min=0)
