"""Drawings of architectures."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

from coursekit.viz.alignment import as_text, ink_on
from coursekit.viz.figures import COLORS, GREY, with_alt
from coursekit.viz.plots import new_axes


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
    ax = new_axes((min(8, S + T + 1), 2.4 if weights is None else 3.6))
    ax.set(xlim=(-0.7, S + T + 0.3), ylim=(-1.25, 1.35 if weights is None else 2.8), title=title, aspect="equal")
    ax.axis("off")

    def box(x: float, text: str, color: str) -> None:
        ax.add_patch(FancyBboxPatch((x - 0.3, -0.3), 0.6, 0.6, boxstyle="round,pad=0.05", fc=color, ec="none"))
        ax.text(x, 0, text, color=ink_on(color), ha="center", va="center", fontsize=13)

    def arrow(start: tuple[float, float], end: tuple[float, float], **more) -> None:
        ax.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": "0.5", "lw": 1.6} | more)

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
        ax.text(x, -1, target[t - 1] if t else "start", ha="center", va="center", fontsize=15 if t else 12)
        arrow((x, -0.82), (x, -0.4))
        if t:
            arrow((x - 0.62, 0), (x - 0.38, 0))
    arrow((S - 0.62, 0), (S + 0.12, 0), lw=4 if weights is None else 1.6)
    if weights is None:
        ax.text(S - 0.25, 0.42, "one state", ha="center", va="bottom", fontsize=12)
    else:
        x = S + 0.5 + T // 2
        for s, weight in enumerate(weights):
            curve = {"arrowstyle": "-", "lw": 0.8 + 7 * weight, "color": COLORS[2]}
            arrow((s, 0.38), (x - 0.22, 0.38), **curve, connectionstyle="angle3,angleA=36,angleB=97")
            ax.text(s - 0.1, 0.42, f"{weight:.2f}", ha="right", va="bottom", fontsize=11)
    return with_alt(ax, f"An encoder reads {' '.join(source)}, a decoder writes {' '.join(target)}. {title}")


def transformer_stacks(n_layers: int = 6) -> Axes:
    """The encoder beside the decoder, norms after the residual connections, bottom to top.

    Source: after Vaswani et al. (2017), figure 1.
    """
    ax = new_axes((8, 8))
    ax.set(xlim=(-3.2, 8.2), ylim=(-1.4, 9.4), aspect="equal")
    ax.axis("off")

    def box(x: float, y: float, text: str, color: str, high: float = 0.56) -> None:
        shape = FancyBboxPatch((x - 1.35, y - high / 2), 2.7, high, boxstyle="round,pad=0.05", fc=color, ec="none")
        ax.add_patch(shape)
        ax.text(x, y, text, color=ink_on(color), ha="center", va="center", fontsize=11)

    def line(*points: tuple[float, float], **more) -> None:
        ax.plot(*zip(*points[:-1], strict=True), color="0.5", lw=1.6)
        ax.annotate("", points[-1], points[-2], arrowprops={"arrowstyle": "-|>", "color": "0.5", "lw": 1.6} | more)

    def part(x: float, y: float, text: str, color: str, side: int) -> None:
        """A part of a block, its residual connection around it on one side, and the norm that adds the two."""
        line((x, y - 0.85), (x, y - 0.33))
        line((x, y - 0.7), (x + 1.75 * side, y - 0.7), (x + 1.75 * side, y + 0.85), (x + 1.42 * side, y + 0.85))
        box(x, y, text, color)
        line((x, y + 0.33), (x, y + 0.55))
        box(x, y + 0.85, "add, layer norm", GREY, 0.4)

    def stack(x: float, parts: Sequence[tuple[str, str]], side: int) -> float:
        """The blocks above an embedding; where its top is."""
        box(x, 0, r"embedding $\times\,\sqrt{D}$", GREY, 0.5)
        line((x, 0.3), (x, 0.52))
        ax.text(x, 0.72, "+ position", ha="center", va="center", fontsize=11)
        for number, (text, color) in enumerate(parts):
            part(x, 1.9 + 2.05 * number, text, color, side)
        top = 1.9 + 2.05 * len(parts) - 0.75
        frame = (x - 2.1, 1.02), 4.2, top - 1.02
        ax.add_patch(FancyBboxPatch(*frame, boxstyle="round,pad=0.06", fc="none", ec="0.5", ls="--"))
        ax.text(x + 2.6 * side, (1.02 + top) / 2, rf"$\times\,{n_layers}$", ha="center", va="center", fontsize=14)
        line((x, -0.85), (x, -0.32))
        return top

    attention, feed_forward = ("self-attention", COLORS[0]), ("feed-forward", COLORS[1])
    top = stack(0, [attention, feed_forward], -1)
    ax.text(0, -1.1, "source words", ha="center", va="center", fontsize=12)
    causal, cross = ("causal self-attention", COLORS[0]), ("cross-attention", COLORS[2])
    high = stack(5, [causal, cross, feed_forward], 1)
    ax.text(5, -1.1, "<bos> and the target words so far", ha="center", va="center", fontsize=12)
    line((0, top - 0.05), (0, top + 0.55), (2.4, top + 0.55), (2.4, 3.95), (3.58, 3.95), ls="-")
    ax.text(0, top + 0.85, "memory: keys and values", ha="center", va="center", fontsize=11)
    line((5, high - 0.05), (5, high + 0.3))
    box(5, high + 0.65, "logits: the same matrix", GREY, 0.5)
    line((5, high + 0.97), (5, high + 1.5))
    ax.text(5, high + 1.75, "the next target words", ha="center", va="center", fontsize=12)
    return with_alt(ax, f"Encoder and decoder of a Transformer, {n_layers} layers each")


def several_heads(n_heads: int = 4) -> Axes:
    """Multi-head attention, bottom to top: split into heads, attend, put side by side, mix by ``W^O``.

    Source: after Vaswani et al. (2017), figure 2 (right).
    """
    if not 1 <= n_heads <= len(COLORS):
        raise ValueError(f"n_heads={n_heads}: there are colours for 1 to {len(COLORS)}")
    wide, gap = 2.0, 0.5
    middle = (n_heads * wide + (n_heads - 1) * gap) / 2
    ax = new_axes((8, 5.2))
    ax.set(xlim=(-0.4, 2 * middle + 0.4), ylim=(-0.5, 6.1))
    ax.axis("off")

    def box(x: float, y: float, width: float, text: str, color: str, high: float = 0.62) -> None:
        ax.add_patch(FancyBboxPatch((x, y), width, high, boxstyle="round,pad=0.04", fc=color, ec="none"))
        ax.text(x + width / 2, y + high / 2, text, color=ink_on(color), ha="center", va="center", fontsize=11)

    def arrow(start: tuple[float, float], end: tuple[float, float]) -> None:
        ax.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": "0.5", "lw": 1.5})

    side = wide * n_heads  # of the heads put side by side, without gaps
    box(middle - side / 2, -0.3, side, "$x$: $T \\times D$", GREY)
    box(middle - side / 2, 5.25, side, "output: $T \\times D$", GREY)
    for head, color in zip(range(n_heads), COLORS):
        left = head * (wide + gap)
        x, joined = left + wide / 2, middle - side / 2 + wide * (head + 0.5)
        arrow((joined, 0.38), (x, 0.88))
        box(left, 0.95, wide, f"$W^Q_{head}\\;\\;W^K_{head}\\;\\;W^V_{head}$", color)
        arrow((x, 1.63), (x, 2.0))
        box(left, 2.1, wide, f"attention\nhead {head}", color, 0.9)
        arrow((x, 3.06), (joined, 3.9))
        outer, align = (left, "left") if joined > x else (left + wide, "right")
        ax.text(outer, 3.45, "$T \\times D / H$", ha=align, va="center", fontsize=11)
        box(joined - wide / 2 + 0.06, 4.0, wide - 0.12, "its rows of $W^O$", color)
        arrow((joined, 4.68), (joined, 5.18))
    ax.text(middle, 4.95, "added", ha="center", va="center", fontsize=11)
    return with_alt(ax, f"Multi-head attention: {n_heads} heads, each with a share of the outputs")


def block_diagram(norm_first: bool = True) -> Axes:
    """One block, left to right: two parts, each with its layer norm and a skip connection around it.

    Args:
        norm_first: the norm before each part, or after each sum.

    Source: after Vaswani et al. (2017), figure 1, and Xiong et al. (2020), arXiv 2002.04745, figure 1.
    """
    ax = new_axes((8, 2.1))
    ax.set(xlim=(-0.6, 13.4), ylim=(-0.7, 1.9))
    ax.axis("off")

    def box(x: float, text: str, color: str, wide: float) -> float:
        """From ``x`` on; where it ends."""
        ax.add_patch(FancyBboxPatch((x, -0.35), wide, 0.7, boxstyle="round,pad=0.05", fc=color, ec="none"))
        ax.text(x + wide / 2, 0, text, color=ink_on(color), ha="center", va="center", fontsize=11)
        return x + wide

    def line(*points: tuple[float, float]) -> None:
        ax.plot(*zip(*points[:-1], strict=True), color="0.5", lw=1.6)
        ax.annotate("", points[-1], points[-2], arrowprops={"arrowstyle": "-|>", "color": "0.5", "lw": 1.6})

    x = 0.0
    ax.text(-0.35, 0, "$x$", ha="center", va="center", fontsize=14)
    for text, color in (("self-attention", COLORS[0]), ("feed-forward", COLORS[1])):
        start = x
        parts = [("layer norm", GREY, 1.7), (text, color, 2.0)] if norm_first else [(text, color, 2.0)]
        for name, shade, wide in parts:
            line((x, 0), (x + 0.5, 0))
            x = box(x + 0.55, name, shade, wide) + 0.05
        line((x, 0), (x + 0.5, 0))
        line((start + 0.2, 0), (start + 0.2, 1.2), (x + 0.75, 1.2), (x + 0.75, 0.25))
        ax.text((start + x) / 2 + 0.4, 1.45, "residual connection", ha="center", va="center", fontsize=11)
        ax.text(x + 0.75, 0, "+", ha="center", va="center", fontsize=17)
        x += 1.0
        if not norm_first:
            line((x, 0), (x + 0.4, 0))
            x = box(x + 0.45, "layer norm", GREY, 1.7) + 0.05
    line((x, 0), (x + 0.6, 0))
    where = "before each" if norm_first else "after each sum"
    return with_alt(ax, f"A block: self-attention and feed-forward, the norm {where}")
