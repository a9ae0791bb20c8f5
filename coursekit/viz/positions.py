"""Codes that tell positions apart, looked at entry by entry and compared with each other."""

import html
from collections.abc import Mapping
from typing import Any

import numpy as np

from coursekit.viz.pictures import image_html, table_html
from coursekit.viz.widget import MAX_BYTES, Widget, pack, to_numpy

LISTED = 12  # positions in the static table


class Positions(Widget):
    """Look at position codes: all entries as a heat map, one position's row, how alike it is to all the others.

    Alike means ``P_t P_u / (|P_t| |P_u|)``, the cosine, for a code in which every position has a length above 0, and
    ``P_t P_u``, the dot product, for one that has a zero vector. The widget says which.

    Args:
        codes: name -> (T, D), array or tensor; T is the same for all, D is not.
        title: what stands above.
        name: which code is shown at first; by default the first one.
        position: which of its positions is marked at first.
    """

    module = "positions"

    def __init__(
        self, codes: Mapping[str, Any], title: str = "Position codes", name: str | None = None, position: int = 0
    ):
        if not codes:
            raise ValueError("codes is empty: give at least one name with its array (T, D)")
        self.codes = {str(key): to_numpy(code) for key, code in codes.items()}
        lengths = {len(code) if code.ndim == 2 else None for code in self.codes.values()}
        if None in lengths or len(lengths) > 1 or any(0 in code.shape for code in self.codes.values()):
            shapes = ", ".join(f"{key} {code.shape}" for key, code in self.codes.items())
            raise ValueError(f"each code must be (T, D) with the same T, but the shapes are {shapes}")
        for key, code in self.codes.items():
            if not np.isfinite(code).all():
                raise ValueError(f"the code {key!r} must be finite")
        size = sum(code.size for code in self.codes.values()) * 16 // 3  # float32 in base64
        if size > 0.9 * MAX_BYTES:
            raise ValueError(f"the codes take {size:,} bytes, more than {MAX_BYTES:,}: show fewer positions or entries")
        name = next(iter(self.codes)) if name is None else name
        if name not in self.codes:
            raise ValueError(f"name={name!r}: must be one of the codes, {', '.join(map(repr, self.codes))}")
        (T,) = lengths
        if not 0 <= position < T:
            raise ValueError(f"position={position}: must lie in 0..{T - 1}")
        self.data = {
            "title": title,
            "which": list(self.codes).index(name),
            "position": int(position),
            "names": list(self.codes),
            "codes": [pack(code) for code in self.codes.values()],
            "cosine": [bool((np.linalg.norm(code, axis=1) > 1e-9).all()) for code in self.codes.values()],
        }

    def static_html(self) -> str:
        parts = [f"<p><b>{html.escape(self.data['title'])}</b></p>"]
        for (name, code), cosine in zip(self.codes.items(), self.data["cosine"]):
            low, high = code.min(), code.max()
            T, D = code.shape
            entries = "1 entry" if D == 1 else f"{D} entries"
            alt = f"{name}: {T} positions (downwards) with {entries} each, dark {low:.3g} to light {high:.3g}"
            alike = likeness(code, cosine)[0]
            kind = "cosine" if cosine else "dot product"
            shown = range(min(T, LISTED))
            rows = [[f"{kind} with position 0", *(f"{alike[t]:.2f}" for t in shown)]]
            parts.append(table_html(alt, ["position", *map(str, shown)], rows))
            parts.append(image_html((code - low) / ((high - low) or 1), alt, width=min(600, max(60, 8 * D))))
        return "".join(parts)


def likeness(code: np.ndarray, cosine: bool) -> np.ndarray:
    """How alike any two positions are, (T, D) -> (T, T): the cosine, or else the dot product."""
    if cosine:
        code = code / np.linalg.norm(code, axis=1, keepdims=True)
    return code @ code.T
