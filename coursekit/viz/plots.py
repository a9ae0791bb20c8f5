"""Matplotlib figures with the look of the course. Each takes plain arrays and returns the axes it drew on."""

from collections.abc import Mapping, Sequence
from itertools import cycle

import matplotlib
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import to_hex

from coursekit.viz.alignment import as_text, ink_on
from coursekit.viz.figures import COLORS, color_of, show_as_svg, with_alt
from coursekit.viz.widget import to_numpy

DASHES = ("-", "--", "-.", ":")  # of curves: whoever sees no colours, or a print without them, tells them by these
LETTERS = {"font.size": 13, "axes.titlesize": 15}  # points
STYLE = LETTERS | {
    "figure.figsize": (8, 4),
    "figure.dpi": 110,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.facecolor": "none",
    "axes.grid": True,
    "grid.alpha": 0.3,
    "lines.linewidth": 2.2,
    "axes.prop_cycle": plt.cycler(color=COLORS),
}


def new_axes(figsize: tuple[float, float] | None = None, alt: str = "") -> Axes:
    """Empty axes in the style of the course.

    Args:
        figsize: width and height in inches. What is wider than 8 is drawn smaller on a page, and its words with it.
        alt: what the figure shows, for those who do not see it; by default it is made from the data.
    """
    return new_panels(1, 1, figsize, alt)[0, 0]


def new_panels(
    rows: int, columns: int, figsize: tuple[float, float] | None = None, alt: str = "", **shared: bool
) -> np.ndarray:
    """Several empty axes, (rows, columns), in one figure; ``sharex`` and ``sharey`` as Matplotlib has them."""
    with plt.rc_context(STYLE):
        axes = plt.subplots(rows, columns, figsize=figsize, squeeze=False, layout="constrained", **shared)[1]
        interactive = plt.isinteractive()  # set by a notebook's backend when the first figure is made
    plt.rcParams.update(LETTERS)  # for what is written later: titles, legends, numbers above bars
    matplotlib.interactive(interactive)  # the end of the context forgets it, and no figure would be shown
    show_as_svg()  # now, since a notebook's backend forgets it when it makes its first figure
    with_alt(axes[0, 0], alt)
    return axes


def curves(
    histories: Mapping[str, Sequence[Mapping[str, float]]],
    key: str = "loss",
    title: str = "",
    ylabel: str = "loss (nats per symbol)",
    ax: Axes | None = None,
    alt: str = "",
) -> Axes:
    """One line per training run, each in a colour and with dashes of its own.

    Args:
        histories: name -> records, as ``Training.fit`` returns them.
        key: which entry of the records; records without it are passed over.
    """
    ax = ax or new_axes(alt=alt)
    for (name, history), color, dashes in zip(histories.items(), colors_for(list(histories)), cycle(DASHES)):
        points = [(record["step"], record[key]) for record in history if key in record]
        if not points:
            raise ValueError(f"no record of {name!r} has the entry {key!r}")
        ax.plot(*zip(*points), label=name, color=color, linestyle=dashes)
    ax.set(title=title, xlabel="updates", ylabel=ylabel)
    if len(histories) > 1:
        ax.legend(frameon=False, fontsize=11)
    return ax


def colors_for(names: Sequence[str]) -> list[str]:
    """Of each model the colour that it has everywhere, of others one that no other has here, as far as there are."""
    known = [color_of(name, "") for name in names]
    if len(set(known) - {""}) < len(known) - known.count(""):
        known = [""] * len(names)  # two runs of one model: their colours tell the runs apart
    free = [color for color in COLORS if color not in known] * len(names)
    return [color or free.pop(0) for color in known]


def heatmap(
    weights,
    source: Sequence,
    target: Sequence,
    title: str = "",
    xlabel: str = "source symbol",
    ylabel: str = "output symbol",
    numbers: bool | None = None,
    outline: Sequence[int] | None = None,
    label: str = "attention weight",
    ax: Axes | None = None,
    alt: str = "",
) -> Axes:
    """Attention weights, or other numbers in 0..1, (T, S) from dark 0 to light 1, with the tokens on the axes.

    Args:
        numbers: write each weight into its cell; by default where they fit.
        outline: for each row, the column whose cell is framed.
        label: what the numbers are.
    """
    weights = to_numpy(weights)
    source, target = as_text(source), as_text(target)
    if weights.shape != (len(target), len(source)):
        raise ValueError(f"weights have shape {weights.shape}, the tokens need {(len(target), len(source))}")
    ax = ax or new_axes((1.8 + min(6.2, 0.42 * max(6, len(source))), 1.2 + min(6.6, 0.36 * max(4, len(target)))), alt)
    image = ax.imshow(weights, vmin=0, vmax=1, cmap="viridis", aspect="auto")
    ax.set_xticks(range(len(source)), source)
    ax.set_yticks(range(len(target)), target)
    ax.set(title=title, xlabel=xlabel, ylabel=ylabel)
    ax.grid(False)
    ax.spines[:].set_visible(False)
    if len(source) <= 12 if numbers is None else numbers:
        for (t, s), weight in np.ndenumerate(weights):
            ax.text(
                s, t, f"{weight:.2f}", ha="center", va="center", color=ink_on(to_hex(image.cmap(weight))), fontsize=11
            )
    for t, s in enumerate([] if outline is None else outline):
        ax.add_patch(plt.Rectangle((s - 0.5, t - 0.5), 1, 1, fill=False, edgecolor=COLORS[1], linewidth=2.2))
    scale = ax.figure.colorbar(image, ax=ax, fraction=0.04, pad=0.02)
    scale.set_label(label, fontsize=11)
    scale.ax.tick_params(labelsize=11)
    return ax


def bars(
    values: Mapping[str, float],
    title: str = "",
    ylabel: str = "",
    percent: bool = True,
    colors: Sequence[str] = (),
    ax: Axes | None = None,
    alt: str = "",
) -> Axes:
    """One bar per name with its value written above it: in percent, as a whole number, or with three digits.

    Args:
        colors: one for each bar; by default a model has the colour that it has everywhere.
    """
    ax = ax or new_axes(alt=alt)
    scale = 100 if percent else 1
    heights = [scale * value for value in values.values()]
    drawn = ax.bar(list(values), heights, color=colors or [color_of(name) for name in values])
    if percent:
        written = [f"{height:.1f} %" for height in heights]
    elif all(height == int(height) for height in heights):
        written = [f"{height:,.0f}" for height in heights]
    else:
        written = [f"{height:#.3g}".rstrip(".") for height in heights]  # as many digits everywhere: 0.140 beside 0.137
    ax.bar_label(drawn, written, padding=3, fontsize=11)
    ax.set(title=title, ylabel=ylabel)
    ax.grid(False, axis="x")
    if percent:
        ax.set_ylim(0, 112)
        ax.set_yticks(range(0, 101, 20))
    else:
        ax.margins(y=0.12)  # the numbers keep off the title
    return ax


def image_grid(images, titles: Sequence[str] = (), columns: int = 8, width: float = 1.0, alt: str = "") -> np.ndarray:
    """Small images side by side, row after row.

    Args:
        images: (N, C, height, width) of numbers in 0..1, with one channel (grey) or three; what lies outside is cut.
        titles: one above each of the first images.
        width: of one image, in inches.

    Returns:
        The axes, (rows, columns).
    """
    images = to_numpy(images)
    if images.ndim != 4 or images.shape[1] not in (1, 3):
        raise ValueError(f"images have shape {images.shape}, expected (N, 1 or 3, height, width)")
    rows = -(-len(images) // columns)
    size = (width * columns, (width + 0.25) * rows)
    axes = new_panels(rows, columns, size, alt)
    for ax in axes.flat:
        ax.axis("off")
    for ax, image in zip(axes.flat, images):
        image = np.moveaxis(image, 0, -1).clip(0, 1)  # (C, height, width) -> (height, width, C)
        ax.imshow(np.broadcast_to(image, (*image.shape[:2], 3)))
    for ax, title in zip(axes.flat, titles):
        ax.set_title(title, fontsize=11)
    return axes
