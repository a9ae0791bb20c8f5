"""Drawings of architectures."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

from coursekit.viz.alignment import as_text
from coursekit.viz.plots import COLORS, new_axes


def encoder_decoder(
    source: Sequence, target: Sequence, weights: Sequence[float] | None = None, title: str = ""
) -> Axes:
    """An encoder that reads ``source``; a decoder that reads the symbol before (below) and writes ``target`` (above).

    Args:
        weights: None draws the one state that is handed over. S numbers draw attention instead: how the
            middle decoder state looks at each encoder state, the line as thick as the weight.
    """
    source, target = as_text(source), as_text(target)
    S, T = len(source), len(target)
    ax = new_axes((1.0 * (S + T) + 1, 2.4 if weights is None else 3.4))
    ax.set(xlim=(-0.7, S + T + 0.3), ylim=(-1.25, 1.35 if weights is None else 2.6), title=title, aspect="equal")
    ax.axis("off")

    def box(x: float, text: str, color: str) -> None:
        shape = FancyBboxPatch((x - 0.3, -0.3), 0.6, 0.6, boxstyle="round,pad=0.05", fc=color, ec="none", alpha=0.9)
        ax.add_patch(shape)
        ax.text(x, 0, text, color="w", ha="center", va="center", fontsize=13)

    def arrow(start: tuple[float, float], end: tuple[float, float], **more) -> None:
        ax.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": "0.35", "lw": 1.6} | more)

    for s, token in enumerate(source):
        box(s, rf"$\bar h_{{{s + 1}}}$", COLORS[0])
        ax.text(s, -1, token, ha="center", va="center", fontsize=15)
        arrow((s, -0.82), (s, -0.4))
        if s:
            arrow((s - 0.62, 0), (s - 0.38, 0))
    for t, token in enumerate(target):
        x = S + 0.5 + t
        box(x, f"$h_{{{t + 1}}}$", COLORS[1])
        ax.text(x, 1, token, ha="center", va="center", fontsize=15)
        arrow((x, 0.4), (x, 0.82))
        ax.text(
            x, -1, target[t - 1] if t else "start", ha="center", va="center", fontsize=15 if t else 12, color="0.35"
        )
        arrow((x, -0.82), (x, -0.4))
        if t:
            arrow((x - 0.62, 0), (x - 0.38, 0))
    arrow((S - 0.62, 0), (S + 0.12, 0), lw=4 if weights is None else 1.6)
    if weights is None:
        ax.text(S - 0.25, 0.42, "one state", ha="center", va="bottom", fontsize=12)
    else:
        x = S + 0.5 + T // 2
        for s, weight in enumerate(weights):
            curve = {"arrowstyle": "-", "lw": 0.3 + 7 * weight, "alpha": 0.25 + 0.65 * weight, "color": COLORS[2]}
            arrow((s, 0.38), (x - 0.2, 0.4), **curve, connectionstyle=f"arc3,rad={-0.66 + 0.05 * s}")
            ax.text(s - 0.1, 0.42, f"{weight:.2f}", ha="right", va="bottom", fontsize=11)
    return ax
