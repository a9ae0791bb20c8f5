"""The one door through which every chart goes: an SVG that follows light and dark, with words for a screen reader."""

import html
import io
import re

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.text import Text

from coursekit.viz.widget import PRESENTED

# Okabe and Ito's colours, orange and black toned down: distinct with any kind of colour vision, in light and in dark
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#B57700", "#3D9BD8", "#767676")
BLUE, VERMILION, GREEN, PINK, OCHRE, SKY, GREY = COLORS
# One colour for each model and method through the whole course, by a word in its name; the first that fits counts.
COLOR_OF = {
    "untr": GREY,
    "random": GREY,
    "guess": GREY,
    "pixels": GREY,
    "histogram": GREY,
    "hog": GREY,
    "patchtst": BLUE,
    "dlinear": GREEN,
    "lstm": VERMILION,
    "gru": VERMILION,
    "recurrent": VERMILION,
    "bengio": PINK,
    "kneser": GREY,
    "bag of words": GREY,
    "ridge": GREY,
    "counting": GREY,
    "no attention": VERMILION,  # what is left is recurrent
    "bert": GREEN,
    "gpt": OCHRE,
    "dino": PINK,
    "cnn": VERMILION,
    "vit": SKY,
    "transformer": BLUE,
    "attention": BLUE,
}
SETTINGS = {"svg.fonttype": "path", "svg.hashsalt": "coursekit"}  # drawn alike everywhere, and in every run
MANY_POINTS = 2000  # from here on a cloud of points is a picture inside the drawing
LISTED = 12  # entries of a chart that are read out
LEAST = 11  # points: smaller letters cannot be read from the last row


def color_of(name: str, other: str = BLUE) -> str:
    """The colour that a model or method has in every chart; ``other`` for what has none."""
    return next((color for word, color in COLOR_OF.items() if word in name.lower()), other)


def with_alt(ax: Axes, alt: str) -> Axes:
    """``ax``, whose figure ``alt`` describes to those who do not see it, instead of what its data say."""
    ax.figure.set_label(alt)
    return ax


def described(figure: Figure) -> str:
    """The words for a screen reader: the author's, or what the chart shows, made from its data."""
    if label := figure.get_label():
        return str(label)
    axes = [ax for ax in figure.axes if ax.get_label() != "<colorbar>"]
    told = [figure.get_suptitle(), *map(described_axes, axes[:LISTED])]
    more = f"and {len(axes) - LISTED} more" if len(axes) > LISTED else ""
    return ". ".join(text.rstrip(".") for text in [*told, more] if text) or "A drawing"


def described_axes(ax: Axes) -> str:
    told = [ax.get_title()]
    if ax.axison and (ax.get_xlabel() or ax.get_ylabel()):
        told.append(" against ".join(text for text in (ax.get_ylabel(), ax.get_xlabel()) if text))
    for bars in (drawn for drawn in ax.containers if isinstance(drawn, BarContainer)):
        lie = bars.orientation == "horizontal"
        ticks = [tick.get_text() for tick in (ax.get_yticklabels() if lie else ax.get_xticklabels())]
        values = [said(bar.get_width() if lie else bar.get_height()) for bar in bars]
        names = ticks if len(ticks) == len(values) else [""] * len(values)
        entries = ", ".join(f"{name} {value}".strip() for name, value in listed(list(zip(names, values))))
        told.append(entries + f" ({len(values)} in all)" * (len(values) > LISTED))
    with_bars = [drawn for drawn in ax.containers if isinstance(drawn, ErrorbarContainer)]
    caps = [cap for _, ends, _ in with_bars for cap in ends]  # the ends of error bars: no lines of their own
    names = {line: drawn.get_label() for drawn in with_bars if (line := drawn[0])}  # the label is the container's
    lines = listed([line for line in ax.lines if line not in caps])
    told += [described_line(line, ax, names.get(line, line.get_label())) for line in lines if ax.axison]
    told += [f"{len(c.get_offsets())} points" for c in ax.collections if isinstance(c, PathCollection)]
    for image in ax.images:
        shape = image.get_array().shape
        kind = "image" if len(shape) == 3 else "map"
        values = "" if kind == "image" else f", from {said(image.get_array().min())} to {said(image.get_array().max())}"
        told.append(f"{kind} of {shape[0]} rows and {shape[1]} columns{values}")
    return ". ".join(text.rstrip(".") for text in told if text)


def described_line(line: Line2D, ax: Axes, label: str) -> str:
    x, y = (np.asarray(get(orig=False), float) for get in (line.get_xdata, line.get_ydata))
    x, y = x[np.isfinite(x) & np.isfinite(y)], y[np.isfinite(x) & np.isfinite(y)]
    name = "" if label.startswith("_") else f"{label}: "
    if len(x) < 2 or line.get_transform() != ax.transData:  # a point, or a level across the whole chart
        upright = len(x) > 1 and x[0] == x[-1]  # it stands at one x, from the bottom to the top
        return f"{name}{said(x[0] if upright else y[0])}" if name and len(y) else ""
    if (np.diff(x) < 0).any():
        return f"{name}{len(x)} points from {said(y.min())} to {said(y.max())}"
    return f"{name}from {said(y[0])} at {said(x[0])} to {said(y[-1])} at {said(x[-1])}"


def said(number: float) -> str:
    """A number as it is read out: 0.25, 12.5, 2020, 30,000."""
    if abs(number) >= 10_000:
        return f"{number:,.0f}"
    return f"{number:.0f}" if abs(number) >= 1000 else f"{number:.3g}"


def listed(entries: list) -> list:
    """The first and the last where there are too many to be read out."""
    return entries if len(entries) <= LISTED else [*entries[: LISTED - 1], entries[-1]]


def figure_html(figure: Figure) -> str:
    """A figure as SVG inside the page: black is the page's own text colour, and the ground is the page's."""
    for cloud in figure.findobj(PathCollection):
        if len(cloud.get_offsets()) > MANY_POINTS:
            cloud.set_rasterized(True)
    for legend in figure.findobj(Legend):
        legend.get_frame().set(facecolor="none", edgecolor="none")
    for text in figure.findobj(Text):  # Matplotlib's own 10 points, which legends and numbers above bars have
        text.set_fontsize(max(LEAST, text.get_fontsize()))
    buffer = io.StringIO()
    with plt.rc_context(SETTINGS):
        about = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(buffer, format="svg", facecolor="none", bbox_inches="tight", pad_inches=0.05, metadata=about)
    drawing = buffer.getvalue()
    drawing = drawing[drawing.index("<svg") :]
    used = set(re.findall(r'(?:url\(|href=")#([\w-]+)', drawing))
    drawing = re.sub(r' id="([\w.-]+)"', lambda found: found[0] if found[1] in used else "", drawing)
    drawing = re.sub(r"#000000\b", "currentColor", drawing)
    # a style sheet that speaks of every element would do so for the whole page: what the drawing says is inherited
    top, inside = re.sub(r"<style[^>]*>\*\{[^}]*\}</style>", "", drawing).split(">", 1)
    width, view = re.search(r'width="([\d.]+)pt"', top)[1], re.search(r'viewBox="[^"]*"', top)[0]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" {view} '
        f'class="ck-grows" role="img" aria-label="{html.escape(described(figure))}" fill="currentColor" '
        'stroke-linejoin="round" stroke-linecap="butt" '
        f'style="width:{float(width):.0f}pt;max-width:100%;height:auto">{PRESENTED}{inside.strip()}'
    )


def show_as_svg() -> None:
    """Let this notebook show Matplotlib's figures by ``figure_html``, the PNG staying beside it for untrusted pages."""
    from IPython import get_ipython

    shell = get_ipython()
    if shell is not None:
        shell.display_formatter.formatters["text/html"].for_type(Figure, figure_html)
