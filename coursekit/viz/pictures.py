"""Small pictures and coloured cells of the widgets' static side."""

import base64
import html
import io
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import Colormap, LinearSegmentedColormap, to_hex
from PIL import Image

from coursekit.viz.alignment import ink_on

VIRIDIS = colormaps["viridis"]
# the same colours as in shared.js: blue below zero, white at it, orange above
DIVERGING = LinearSegmentedColormap.from_list(
    "blue_orange", ["#2166ac", "#4393c3", "#92c5de", "#d1e5f0", "#f7f7f7", "#fee0b6", "#fdb863", "#e08214", "#b35806"]
)


class Cell(str):
    """HTML of a whole table cell, not to be escaped again."""


def cell(text: str, share: float, colors: Colormap = VIRIDIS) -> Cell:
    """A table cell with its colour, ``share`` in 0..1 of the colour map."""
    fill = to_hex(colors(float(share)))
    return Cell(f'<td style="background:{fill};color:{ink_on(fill)};font-size:11px;text-align:center">{text}</td>')


def image_html(share: np.ndarray, alt: str, width: int = 400) -> str:
    """An array (rows, columns) as a PNG inside the page, a pixel for each entry.

    Args:
        share: of the colour map, in 0..1; NaN stays transparent.
        alt: what a reader hears who does not see it.
        width: on the page, in CSS pixels.
    """
    blank = np.isnan(share)
    # 32 colours and one for "nothing here": as a palette they make a small file
    index = np.where(blank, 32, np.rint(np.clip(np.nan_to_num(share), 0, 1) * 31)).astype(np.uint8)
    picture = Image.fromarray(index).convert("P")
    picture.putpalette([round(255 * c) for x in np.linspace(0, 1, 32) for c in VIRIDIS(x)[:3]] + [0, 0, 0])
    buffer = io.BytesIO()
    picture.save(buffer, format="png", optimize=True, transparency=32)
    data = base64.b64encode(buffer.getvalue()).decode()
    return (
        f'<img alt="{html.escape(alt)}" '
        f'style="width:{width}px;max-width:100%;max-height:24rem;image-rendering:pixelated" '
        f'src="data:image/png;base64,{data}">'
    )


def table_html(caption: str, head: list[str], rows: list[list[Any]]) -> str:
    """A table with inline styles; the first entry of each row names it. Entries are text, or a ``Cell``."""

    def entry(x: Any) -> str:
        return x if isinstance(x, Cell) else f'<td style="text-align:left">{html.escape(str(x))}</td>'

    top = "".join(f'<th style="text-align:left">{html.escape(x)}</th>' if x else "<td></td>" for x in head)
    body = "".join(
        f'<tr><th style="text-align:left">{html.escape(str(name))}</th>{"".join(map(entry, entries))}</tr>'
        for name, *entries in rows
    )
    return (
        f'<div style="overflow-x:auto"><table style="border-collapse:separate;border-spacing:.4em 2px">'
        f'<caption style="text-align:left">{html.escape(caption)}</caption>'
        f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )
