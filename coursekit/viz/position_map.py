"""How alike the positions of a grid are to each other: a map for each of them."""

import html
from math import isqrt
from typing import Any

import numpy as np

from coursekit.viz.pictures import image_html, table_html
from coursekit.viz.widget import ROOM, Widget, pack_bytes, to_numpy

DRAWN = 8  # most rows and columns of maps in the static picture
STEPS = 32767  # a cosine is held as a multiple of 1/32767


class PositionMap(Widget):
    """A map for each position of a grid, how alike all positions are to it, laid out as the grid itself.

    Alike means the cosine, ``P_t P_u / (|P_t| |P_u|)``. The page holds each as a multiple of 1/32767.

    Args:
        code: (N, D), array or tensor, a vector for each position, row by row of the grid; or (N + 1, D) with the class
            token's in front, which has no place in the grid and is left out.
        grid: rows and columns; by default as many rows as columns.
        position: row and column of the position whose map is large at first; by default the one in the middle.
        title: what stands above.

    Source: Dosovitskiy et al. (2021), arXiv 2010.11929, figure 7 (centre).
    """

    module = "position_map"

    def __init__(
        self,
        code: Any,
        grid: tuple[int, int] | None = None,
        position: tuple[int, int] | None = None,
        title: str = "How alike the positions are",
    ):
        code = to_numpy(code)
        if code.ndim != 2 or code.size == 0:
            raise ValueError(f"code has shape {code.shape}: must be (N, D), or (N + 1, D) with a class token in front")
        self.grid = (rows, columns) = side_by_side(len(code)) if grid is None else checked_grid(grid, len(code))
        code = code[len(code) - rows * columns :]
        if not np.isfinite(code).all():
            raise ValueError("code must be finite")
        length = np.linalg.norm(code, axis=1, keepdims=True)
        if not length.all():
            raise ValueError(f"position {int(length.argmin())} is a vector of zeros: it has no cosine with any other")
        position = (rows // 2, columns // 2) if position is None else tuple(map(int, position))
        if len(position) != 2 or not (0 <= position[0] < rows and 0 <= position[1] < columns):
            raise ValueError(f"position={position}: must be a row in 0..{rows - 1} and a column in 0..{columns - 1}")
        self.position = position
        self.alike = ((code / length) @ (code / length).T).clip(-1, 1)  # (N, N)
        half = np.rint(self.alike[np.tril_indices(len(code))] * STEPS) + STEPS  # the matrix is symmetric
        self.data = {
            "title": title,
            "grid": [rows, columns],
            "position": list(position),
            "alike": pack_bytes(half.astype("<u2").view(np.uint8).reshape(-1, 2)),
        }
        if (size := self.size()) > ROOM:
            raise ValueError(
                f"{rows} x {columns} positions take {size:,} bytes, more than {ROOM:,}: show a smaller grid"
            )

    def static_html(self) -> str:
        rows, columns = self.grid
        low, high = self.alike.min(), self.alike.max()
        share = (self.alike.reshape(rows, columns, rows, columns) - low) / ((high - low) or 1)
        down, across = (np.unique(np.linspace(0, n - 1, min(n, DRAWN)).round().astype(int)) for n in (rows, columns))
        framed = np.full((len(down), len(across), rows + 1, columns + 1), np.nan)  # a gap of one pixel after each map
        framed[..., :rows, :columns] = share[np.ix_(down, across)]
        # (n, m, rows + 1, columns + 1) -> (n, rows + 1, m, columns + 1) -> one picture
        mosaic = framed.transpose(0, 2, 1, 3).reshape(len(down) * (rows + 1), len(across) * (columns + 1))
        every = (
            "" if (len(down), len(across)) == (rows, columns) else f" of rows {spoken(down)}, columns {spoken(across)}"
        )
        alt = f"{self.data['title']}: a map of cosines for each position{every}, dark {low:.2f} to light {high:.2f}"
        row, column = self.position
        near = self.alike[row * columns + column].reshape(rows, columns)[down]
        table = [[f"row {r}", *(f"{x:.2f}" for x in line[across])] for r, line in zip(down, near)]
        caption = f"Cosine with the position in row {row}, column {column}, counted from 0"
        title = f"<p><b>{html.escape(self.data['title'])}</b></p>"
        return title + image_html(mosaic, alt) + table_html(caption, ["", *(f"column {c}" for c in across)], table)


def side_by_side(n: int) -> tuple[int, int]:
    """Rows and columns of a square grid for n vectors, one of which may be the class token's."""
    for N in (n, n - 1):
        if N and isqrt(N) ** 2 == N:
            return isqrt(N), isqrt(N)
    raise ValueError(
        f"{n} vectors: neither {n} nor {n - 1} positions fill a square; say which with grid=(rows, columns)"
    )


def checked_grid(grid: tuple[int, int], n: int) -> tuple[int, int]:
    rows, columns = map(int, grid)
    if rows < 1 or columns < 1 or n - rows * columns not in (0, 1):
        raise ValueError(
            f"grid={(rows, columns)}: has {rows * columns} positions, but code has {n} vectors; "
            "there may be one more vector than positions, the class token's"
        )
    return rows, columns


def spoken(numbers: np.ndarray) -> str:
    return " ".join(map(str, numbers))
