"""A query and a key that are turned by their positions, pair by pair, and the score that comes of it."""

import html
import math
from numbers import Integral, Real
from typing import Any

import numpy as np

from coursekit.viz.pictures import DIVERGING, cell, table_html
from coursekit.viz.widget import Widget, pack, to_numpy

MOST_PAIRS = 8
BASES = (10_000.0, 500_000.0)  # of the paper (and Llama 2), and of Llama 3
RANGES = (64, 512, 4096)  # the last position that the sliders reach
LISTED = (0, 1, 2, 3, 4, 8, 16, 32, 64)  # distances in the static table


class Rotary(Widget):
    """Two tokens with rotary positions: the arrows of each pair of entries, and their score ``q · k / sqrt(Dh)``.

    The pair i holds the entries ``i`` and ``i + Dh / 2``, as in ``coursekit.nn.rotary``, and turns by
    ``theta_i = base^(-2 i / Dh)`` radians from one position to the next, once around in ``2 pi / theta_i`` positions,
    its wavelength. It adds to ``q · k`` the lengths of its two arrows times the cosine of the angle between them.
    Sliders move the query to position m, the key to position n, or both together, which leaves the score as it is. A
    curve gives the score at each distance ``m - n``. The page computes all of it without a kernel.

    Args:
        q, k: (Dh,), array or tensor, before rotation: Dh even, at most 16. Where only one is given the other one
            equals it; without either, both have four pairs with an arrow of length 1 that points right at position 0.
        base: of the angles that are shown first, above 1. The page offers 10,000 and 500,000 as well.
        m, n: positions of query and key at first, 0 to 4,096.
        title: what stands above.

    Source: Su et al. (2021), arXiv 2104.09864, section 3.2.
    """

    module = "rotary"

    def __init__(
        self,
        q: Any = None,
        k: Any = None,
        base: float = 10_000.0,
        m: int = 40,
        n: int = 25,
        title: str = "Rotary positions",
    ):
        if q is None and k is None:
            q = np.repeat([1.0, 0.0], 4)
        self.q, self.k = (
            checked(name, one) for name, one in (("q", k if q is None else q), ("k", q if k is None else k))
        )
        if self.q.shape != self.k.shape:
            raise ValueError(f"q has {len(self.q)} entries and k {len(self.k)}: both must have as many")
        if isinstance(base, bool) or not isinstance(base, Real) or not 1 < base < math.inf:
            raise ValueError(f"base={base!r}: must be a number above 1, such as 10_000")
        for name, position in (("m", m), ("n", n)):
            if isinstance(position, bool) or not isinstance(position, Integral) or not 0 <= position <= RANGES[-1]:
                raise ValueError(f"{name}={position!r}: a position must be a whole number in 0..{RANGES[-1]}")
        self.m, self.n, self.base = int(m), int(n), float(base)
        self.theta = self.base ** (-2 * np.arange(len(self.q) // 2) / len(self.q))  # (Dh / 2,)
        self.products = self.products_at(self.m - self.n)
        self.score = self.score_at(self.m - self.n)
        bases = sorted({*BASES, self.base})
        self.data = {
            "title": title,
            "q": pack(self.q),
            "k": pack(self.k),
            "m": self.m,
            "n": self.n,
            "bases": bases,
            "base": bases.index(self.base),
            "ranges": list(RANGES),
            "range": next(i for i, last in enumerate(RANGES) if max(m, n) <= last),
        }

    def products_at(self, distance: float) -> np.ndarray:
        """What each pair adds to ``q · k`` where the query is ``distance`` positions after the key, (Dh / 2,)."""
        (a, b), (c, d) = self.q.reshape(2, -1), self.k.reshape(2, -1)
        angle = distance * self.theta
        return (a * c + b * d) * np.cos(angle) + (a * d - b * c) * np.sin(angle)

    def score_at(self, distance: float) -> float:
        """``q · k / sqrt(Dh)`` where the query is ``distance`` positions after the key."""
        return float(self.products_at(distance).sum() / np.sqrt(len(self.q)))

    def static_html(self) -> str:
        pairs, root = len(self.theta), f"√{len(self.q)}"
        most = np.hypot(*self.q.reshape(2, -1)) * np.hypot(*self.k.reshape(2, -1))
        scale = most.max() or 1
        at = [degrees(x, self.theta * position) for x, position in ((self.q, self.m), (self.k, self.n))]
        rows = [
            [
                f"{i}: entries {i}, {i + pairs}",
                f"{theta:.3g}",
                wavelength(2 * math.pi / theta),
                f"{at[0][i]:.0f}°",
                f"{at[1][i]:.0f}°",
                cell(f"{product:.2f}", (product / scale + 1) / 2, DIVERGING),
            ]
            for i, (theta, product) in enumerate(zip(self.theta, self.products))
        ]
        rows.append(["q·k, the sum", "", "", "", "", f"{self.products.sum():.2f}"])
        rows.append([f"score, q·k / {root}", "", "", "", "", f"{self.score:.2f}"])
        head = ["pair", "θ", "wavelength", "query points to", "key points to", "product"]
        caption = f"Query at position {self.m:,}, key at position {self.n:,}, base {self.base:,.10g}"
        scores = [["score", *(f"{self.score_at(distance):.2f}" for distance in LISTED)]]
        return (
            f"<p><b>{html.escape(self.data['title'])}</b></p>"
            + table_html(caption, head, rows)
            + table_html("The score knows the distance m − n alone", ["m − n", *map(str, LISTED)], scores)
        )


def checked(name: str, values: Any) -> np.ndarray:
    """A vector of at most eight pairs of finite entries."""
    try:
        values = to_numpy(values)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a vector of numbers") from None
    if values.ndim != 1:
        raise ValueError(f"{name} has shape {values.shape}: must be (Dh,), one vector")
    if len(values) % 2 or not len(values):
        raise ValueError(f"{name} has {len(values)} entries: must have an even number, since entries turn in pairs")
    if len(values) > 2 * MOST_PAIRS:
        raise ValueError(
            f"{name} has {len(values) // 2} pairs of entries: at most {MOST_PAIRS} can be read, so show some of them"
        )
    if not (np.abs(values) < 1e6).all():
        raise ValueError(f"{name} must be finite and below a million")
    return values


def degrees(x: np.ndarray, angle: np.ndarray) -> np.ndarray:
    """Where the arrow of each pair of a vector points after a turn by ``angle``, in degrees from 0 to 359."""
    a, b = x.reshape(2, -1)
    return np.rint(np.degrees(np.arctan2(b, a) + angle)) % 360


def wavelength(positions: float) -> str:
    return f"{positions:.3g}" if positions < 100 else f"{positions:,.0f}"
