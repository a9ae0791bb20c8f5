"""Forecasts of a series from many points in time, beside what came."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from matplotlib import pyplot as plt

from coursekit.viz.figures import COLORS, figure_html, with_alt
from coursekit.viz.pictures import table_html
from coursekit.viz.plots import new_axes
from coursekit.viz.widget import ROOM, Widget, pack, to_numpy

BEST = "best possible"
DASHES = ("-", (0, (3, 2)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5)), (0, (7, 2)), (0, (2, 1)))  # as many as models may be
CLOCK = (1, 2, 3, 6, 12, *(24 * 2**n for n in range(20)))  # steps between labels, which often count hours


class Forecast(Widget):
    """Drag the cut, from which several models forecast a series, and compare what they say with what came.

    Forecast k has seen ``values[:cuts[k]]`` and is one of ``values[cuts[k] : cuts[k] + horizon]``. A table holds for
    each model the mean absolute error and the share of values inside its band (edges included), at this cut and over
    all values of all cuts; a missing value is not counted. What is drawn is held in float32.

    Args:
        values: (T,), array or list, NaN where a value is missing.
        forecasts: name -> (K, horizon), of at most six models.
        cuts: (K,), increasing, in 1..T - horizon. Where not everything has come yet, let ``values`` end in NaN.
        bands: a model's name -> (K, horizon, 2), lower and upper edge of its band; not every model needs one.
        labels: T texts for the axis of time; by default the index.
        unit: of the values, for the axis and the table.
        title: what stands above.
        history: how many values before the cut are drawn as known; what else fits on the axis is pale.
        best: (K, horizon), the best forecast that there can be, where the rule and the noise of a series are known.
            It is drawn apart from the models and does not compete with them.
    """

    module = "forecast"

    def __init__(
        self,
        values: Any,
        forecasts: Mapping[str, Any],
        cuts: Any,
        *,
        bands: Mapping[str, Any] | None = None,
        labels: Sequence[str] | None = None,
        unit: str = "",
        title: str = "",
        history: int = 72,
        best: Any = None,
    ):
        self.values = to_numpy(values)
        if self.values.ndim != 1 or self.values.size == 0:
            raise ValueError(f"values have shape {self.values.shape}: must be (T,), and not empty")
        if np.isinf(self.values).any():
            raise ValueError("values must be finite, or NaN where one is missing")
        if not isinstance(forecasts, Mapping) or not 1 <= len(forecasts) <= len(DASHES):
            raise ValueError(f"forecasts must map the names of 1 to {len(DASHES)} models to arrays (K, horizon)")
        self.forecasts = {str(name): to_numpy(x) for name, x in forecasts.items()}
        name, given = next(iter(self.forecasts.items()))
        if given.ndim != 2 or given.size == 0:
            raise ValueError(f"forecasts[{name!r}] has shape {given.shape}: must be (K, horizon), and not empty")
        K, self.horizon = given.shape
        self.cuts = checked_cuts(cuts, K, self.horizon, len(self.values))
        for name, x in self.forecasts.items():
            check_numbers(x, given.shape, f"forecasts[{name!r}]")
        if best is not None:
            if BEST in self.forecasts:
                raise ValueError(f"a model is called {BEST!r}, as what best= holds is: give it another name")
            self.forecasts[BEST] = to_numpy(best)
            check_numbers(self.forecasts[BEST], given.shape, "best")
        self.bands = {str(name): to_numpy(x) for name, x in (bands or {}).items()}
        for name, x in self.bands.items():
            if name not in self.forecasts:
                raise ValueError(f"bands[{name!r}]: no such model among {', '.join(map(repr, self.forecasts))}")
            check_numbers(x, (*given.shape, 2), f"bands[{name!r}]")
            if (x[..., 0] > x[..., 1]).any():
                raise ValueError(f"bands[{name!r}]: a lower edge lies above the upper one")
        if labels is not None and len(labels) != len(self.values):
            raise ValueError(f"{len(labels)} labels for {len(self.values)} values: must be as many")
        if not (history >= 1 and history == int(history)):
            raise ValueError(f"history={history}: must be a whole number, 1 or more")
        self.labels = None if labels is None else [str(label) for label in labels]
        self.history, self.unit, self.title = min(int(history), int(self.cuts[-1])), unit, title
        self.has_best, self.start = best is not None, K // 2

        targets = self.values[self.cuts[:, None] + np.arange(self.horizon)]  # (K, horizon)
        self.errors = {name: Means(np.abs(x - targets)) for name, x in self.forecasts.items()}
        self.inside = {
            name: Means(np.where(np.isnan(targets), np.nan, (x[..., 0] <= targets) & (targets <= x[..., 1])))
            for name, x in self.bands.items()
        }
        offset = max(0, int(self.cuts[0]) - self.history)
        drawn = slice(offset, int(self.cuts[-1]) + self.horizon)
        span = extent(self.values[drawn]) or extent(given)
        spread = span[1] - span[0]
        self.digits = int(np.clip(3 - np.floor(np.log10(spread)), 0, 9)) if spread > 0 else 2
        self.data = {
            "title": title,
            "unit": unit,
            "names": list(self.forecasts),
            "best": len(self.forecasts) - 1 if self.has_best else None,
            "cuts": self.cuts.tolist(),
            "start": self.start,
            "history": self.history,
            "offset": offset,
            "values": pack(self.values[drawn]),
            "labels": self.labels and self.labels[drawn],
            "forecasts": [pack(x) for x in self.forecasts.values()],
            "bands": [pack(self.bands[name]) if name in self.bands else None for name in self.forecasts],
            "errors": [mean.data() for mean in self.errors.values()],
            "inside": [self.inside[name].data() if name in self.inside else None for name in self.forecasts],
            # of the values, then of each model with its band: the axis leaves out what is switched off
            "extents": [extent(self.values[drawn])]
            + [extent(np.append(x, self.bands.get(name, x))) for name, x in self.forecasts.items()],
            "digits": self.digits,
        }
        if (size := self.size()) > ROOM:
            raise ValueError(
                f"{K} forecasts of {self.horizon} values by {len(forecasts)} models take {size:,} bytes, more than "
                f"{ROOM:,}: show fewer (every second cut, or cuts[:{max(1, K // 2)}])"
            )

    def static_html(self) -> str:
        return self.still

    @cached_property
    def still(self) -> str:
        """The forecasts from the cut in the middle, and the table; drawn once, since ``size`` asks for it too."""
        k, cut = self.start, int(self.cuts[self.start])
        ax = new_axes((8.5, 4))
        past, ahead = np.arange(max(0, cut - self.history), cut), np.arange(cut, cut + self.horizon)
        lines = ax.plot(past, self.values[past], color="#000000", linewidth=1.6)
        near = np.append(past[-1:], ahead)
        lines += ax.plot(near, self.values[near], color="#999999", linewidth=4, alpha=0.6, solid_capstyle="round")
        marker = "o" if self.horizon == 1 else None  # one point alone is no line
        for i, (name, x) in enumerate(self.forecasts.items()):
            best = self.has_best and name == BEST
            color = "#000000" if best else COLORS[i]
            style = {"color": color, "linestyle": (0, (1, 2)) if best else DASHES[i], "linewidth": 1.4 if best else 2}
            lines += ax.plot(ahead, x[k], marker=marker, **style)
            if name in self.bands:
                ax.fill_between(ahead, *self.bands[name][k].T, color=color, alpha=0.16, linewidth=0)
        ax.axvline(cut - 0.5, color="#000000", linewidth=1, linestyle=(0, (4, 3)))
        names = [plain(name, 30) for name in ("known", "what came", *self.forecasts)]
        ax.legend(lines, names, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
        ax.set(title=plain(self.title, 60), ylabel=plain(self.unit, 30), xlabel="" if self.labels else "time step")
        if self.labels:
            fit = max(2, 55 // (min(25, max(len(self.labels[t]) for t in (*past, *ahead))) + 2))
            step = next(step for step in CLOCK if step >= (len(past) + len(ahead)) / fit)
            ticks = np.arange(past[0] + (cut - past[0]) % step, ahead[-1] + 1, step)  # one of them is the cut
            ax.set_xticks(ticks, [plain(self.labels[t], 25) for t in ticks])
        where = f"from {self.time(cut)}"
        head = ["model", where, f"from all {len(self.cuts)} cuts"]
        head += [f"inside its band, {where}", "inside its band, all cuts"] if self.bands else []
        rows = []
        for name, error in self.errors.items():
            rows.append([name, number(error.each[k], self.digits), number(error.all, self.digits)])
            if self.bands:
                held = self.inside.get(name)
                rows[-1] += [percent(held.each[k]), percent(held.all)] if held else ["", ""]
        unit = f" ({self.unit})" if self.unit else ""
        alt = f"{self.title or 'Forecasts'}: {', '.join(self.forecasts)}, {where}, beside what came"
        plt.close(ax.figure)
        return figure_html(with_alt(ax, alt).figure) + table_html(
            f"Mean absolute error{unit} of the forecasts", head, rows
        )

    def time(self, t: int) -> str:
        return self.labels[t] if self.labels else f"time step {t}"


class Means:
    """Of (K, horizon) numbers the mean of each row, and of all of them; NaN is left out, and is the mean of nothing."""

    def __init__(self, x: np.ndarray):
        counts, sums = (~np.isnan(x)).sum(axis=1), np.nansum(x, axis=1)
        self.each = np.divide(sums, counts, out=np.full(len(x), np.nan), where=counts > 0)  # (K,)
        self.all = float(sums.sum() / counts.sum()) if counts.any() else np.nan

    def data(self) -> dict[str, Any]:
        return {"each": pack(self.each), "all": None if np.isnan(self.all) else self.all}


def checked_cuts(cuts: Any, K: int, horizon: int, T: int) -> np.ndarray:
    given = to_numpy(cuts)
    if given.shape != (K,):
        raise ValueError(f"cuts have shape {given.shape}: must be ({K},), one for each of the {K} forecasts")
    if not (given == np.floor(given)).all():
        raise ValueError("cuts must be whole numbers, indices of values")
    cuts = given.astype(int)
    if (np.diff(cuts) <= 0).any():
        raise ValueError("cuts must be increasing")
    if cuts[0] < 1 or cuts[-1] + horizon > T:
        raise ValueError(
            f"cuts lie in {cuts[0]}..{cuts[-1]}: with {T} values and forecasts of {horizon} they must lie in "
            f"1..{T - horizon} (where not everything has come yet, let values end in NaN)"
        )
    return cuts


def check_numbers(x: np.ndarray, shape: tuple[int, ...], name: str) -> None:
    if x.shape != shape:
        raise ValueError(f"{name} has shape {x.shape}: must be {shape}")
    if not np.isfinite(x).all():
        raise ValueError(f"{name} must be finite")


def extent(x: np.ndarray) -> list[float] | None:
    """The smallest and the largest of the numbers that are there."""
    return None if np.isnan(x).all() else [float(np.nanmin(x)), float(np.nanmax(x))]


def number(x: float, digits: int) -> str:
    return "–" if np.isnan(x) else f"{x:.{digits}f}"


def percent(share: float) -> str:
    return "–" if np.isnan(share) else f"{100 * share:.1f} %"


def plain(text: str, most: int) -> str:
    """For Matplotlib, which makes no room for a long text and reads what stands between two dollars as a formula."""
    return (text if len(text) <= most else f"{text[: most - 1]}…").replace("$", r"\$")
