"""Codes that distinguish positions: binary digits, sines and cosines, and learned vectors, in a row and on a grid.

Legend: B batch, T positions, D size of the model.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def binary_code(n_positions: int, n_bits: int) -> Tensor:
    """Position t as binary digits, the fastest first: ``code[t, i] = (t // 2^i) mod 2``; (n_positions, n_bits)."""
    if n_positions > 2**n_bits:
        raise ValueError(f"n_bits={n_bits}: {n_positions} positions need {(n_positions - 1).bit_length()}")
    return (torch.arange(n_positions)[:, None] >> torch.arange(n_bits) & 1).float()


def sinusoidal_frequencies(d_model: int) -> Tensor:
    """Angular frequencies ``w_i = 10000^(-2i / D)`` in radians per position; float64, (D / 2,)."""
    if d_model < 2 or d_model % 2:
        raise ValueError(f"d_model={d_model}: sines and cosines come in pairs, so it must be even")
    return 10_000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)


def sinusoidal(n_positions: int, d_model: int) -> Tensor:
    """``P[t, 2i] = sin(w_i t)``, ``P[t, 2i + 1] = cos(w_i t)``; float32, (n_positions, d_model).

    Source: Vaswani et al. (2017), arXiv 1706.03762, section 3.5.
    """
    t = torch.arange(n_positions, dtype=torch.float64)
    angle = t[:, None] * sinusoidal_frequencies(d_model)  # (T, 1) * (D / 2,) -> (T, D / 2)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1).float()  # (T, D / 2, 2) -> (T, D)


class SinusoidalPositions(nn.Module):
    """Adds the sinusoidal code to embeddings. It has no parameters and is not saved."""

    def __init__(self, max_length: int, d_model: int):
        super().__init__()
        self.register_buffer("encoding", sinusoidal(max_length, d_model), persistent=False)

    def forward(self, x: Tensor, position_ids: int | Tensor = 0) -> Tensor:
        """``x`` (B, T, D) with its positions; ``position_ids``: of the first token, or of each one, (B, T)."""
        return x + look_up(self.encoding, position_ids, x.shape[1])


class LearnedPositions(nn.Module):
    """Adds a learned vector for each position to embeddings."""

    def __init__(self, max_length: int, d_model: int):
        super().__init__()
        self.encoding = nn.Parameter(torch.empty(max_length, d_model).normal_(std=0.02))

    def forward(self, x: Tensor, position_ids: int | Tensor = 0) -> Tensor:
        """``x`` (B, T, D) with its positions; ``position_ids``: of the first token, or of each one, (B, T)."""
        return x + look_up(self.encoding, position_ids, x.shape[1])


def look_up(code: Tensor, position_ids: int | Tensor, length: int) -> Tensor:
    """The rows of ``code`` for ``length`` positions from a first one on, (T, D), or for given ones, (B, T, D)."""
    start = position_ids if isinstance(position_ids, int) else None
    if start is not None and start < 0:
        raise ValueError(f"position_ids={start}: the first position is 0, so it must be at least that")
    end = length if start is None else start + length
    if end > len(code):
        raise ValueError(f"{end} positions: the model was built for max_length={len(code)}")
    return code[position_ids] if start is None else code[start:end]


def positions_of(mask: Tensor) -> Tensor:
    """Position of each token among the real ones of its row, (B, T); padding on either side does not count."""
    return (mask.long().cumsum(dim=1) - 1).clamp(min=0)


RESIZES = {"size": 0.0, "dino": 0.1}  # what is added to the new size of a grid


def resize_grid(code: Tensor, grid: tuple[int, int], resize: str = "size") -> Tensor:
    """Vectors of a grid for the cells of another one, by bicubic interpolation: (n, m, D) -> (rows, columns, D).

    Row i of the new grid lies at ``(i + 1/2) n / (rows + c) - 1/2`` of the old one, and the same for columns. Beyond
    the old grid's edge, the vectors of the edge are repeated.

    Args:
        code: (n, m, D).
        grid: rows and columns of the new one.
        resize: ``"size"``: c = 0, as in Hugging Face's models. ``"dino"``: c = 0.1, as in DINO's program, to keep
            rounding from losing a row; the new grid ends a little before the old one.

    Source: Dosovitskiy et al. (2021), arXiv 2010.11929, section 3.2 (whose program interpolates linearly).
    """
    check_resize(resize)
    scale = [(new + RESIZES[resize]) / old for new, old in zip(grid, code.shape)]
    size = {"scale_factor": scale} if RESIZES[resize] else {"size": grid}
    cells = code.movedim(-1, 0)[None]  # (n, m, D) -> (1, D, n, m)
    return F.interpolate(cells, **size, mode="bicubic", align_corners=False)[0].movedim(0, -1)


def check_resize(resize: str) -> None:
    if resize not in RESIZES:
        raise ValueError(f"resize={resize!r}: must be one of {', '.join(map(repr, RESIZES))}")


class GridPositions(nn.Module):
    """Adds a learned vector to each cell of a grid, which is read row by row, and to each token in front of the cells.

    For a grid of another size, ``resize_grid`` interpolates the vectors of the cells; tokens in front keep theirs.

    Args:
        side: rows of the grid, and columns.
        d_model: D.
        n_prefix_tokens: how many tokens are in front of the cells, such as a class token.
        resize: as in ``resize_grid``.
    """

    def __init__(self, side: int, d_model: int, n_prefix_tokens: int = 0, resize: str = "size"):
        super().__init__()
        check_resize(resize)
        self.side, self.n_prefix_tokens, self.resize = side, n_prefix_tokens, resize
        self.encoding = nn.Parameter(torch.empty(n_prefix_tokens + side**2, d_model).normal_(std=0.02))

    def forward(self, x: Tensor, grid: tuple[int, int]) -> Tensor:
        """``x`` (B, n_prefix_tokens + rows columns, D) with its positions; ``grid``: rows and columns."""
        return x + self.encoding_of(grid)

    def encoding_of(self, grid: tuple[int, int]) -> Tensor:
        """The vectors for a ``grid`` of rows and columns, (n_prefix_tokens + rows columns, D)."""
        if tuple(grid) == (self.side, self.side):
            return self.encoding
        prefix, cells = self.encoding.split([self.n_prefix_tokens, self.side**2])
        cells = resize_grid(cells.unflatten(0, (self.side, self.side)), grid, self.resize)
        return torch.cat([prefix, cells.flatten(0, 1)])  # (rows, columns, D) -> (rows columns, D)
