"""Where each output of a sequence-to-sequence model looked."""

import html
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_hex, to_rgb

from coursekit.viz.widget import Widget, pack, to_numpy


class Alignment(Widget):
    """Step through a decoding and see how each output spread its attention over the source.

    Args:
        source: S tokens (or anything with a ``str``).
        target: T tokens.
        weights: (T, S) array or tensor; row t says where output t looked. Each row sums to 1.
        title: what stands above.
        typed: what stands in the field for typing, where there is one; by default the source.
    """

    module = "alignment"

    def __init__(
        self,
        source: Sequence,
        target: Sequence,
        weights: Any,
        title: str = "Where each output looked",
        typed: str | None = None,
    ):
        source, target = as_text(source), as_text(target)
        weights = to_numpy(weights)
        if weights.shape != (len(target), len(source)):
            raise ValueError(
                f"weights have shape {weights.shape}, but {len(target)} target and {len(source)} source tokens "
                f"need {(len(target), len(source))}"
            )
        if weights.size == 0 or not np.allclose(weights.sum(axis=1), 1, atol=1e-3) or (weights < 0).any():
            raise ValueError("each row of weights must be a distribution: nothing negative, summing to 1")
        self.weights = weights
        self.data = {"title": title, "source": source, "target": target, "weights": pack(weights), "step": 0}
        self.data["typed"] = " ".join(source) if typed is None else typed

    def static_html(self) -> str:
        viridis = colormaps["viridis"]
        # many words side by side would make the table wider than a page: they stand on end
        upright = ' style="writing-mode:vertical-rl;text-align:right"' if len(self.data["source"]) > 12 else ""
        head = "".join(f"<th{upright}>{html.escape(token)}</th>" for token in self.data["source"])
        rows = []
        for token, row in zip(self.data["target"], self.weights):
            cells = []
            for weight in row:
                fill = to_hex(viridis(weight))
                cells.append(f'<td style="background:{fill};color:{ink_on(fill)};font-size:11px">{weight:.2f}</td>')
            rows.append(f"<tr><th>{html.escape(token)}</th>{''.join(cells)}</tr>")
        caption = f"{html.escape(self.data['title'])}: a row for each output, a column for each source token"
        return (
            '<div style="overflow-x:auto"><table style="border-spacing:1px">'
            f'<caption style="text-align:left">{caption}</caption>'
            f"<thead><tr><td></td>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
        )

    def live(self, decode: Callable[[str], "Alignment"]):
        """With a field for typing: each new source goes through ``decode``.

        Args:
            decode: what was typed -> the Alignment to show. A ``ValueError`` is shown with its message.
        """

        shown = self.data

        def answer(message: dict[str, str]) -> dict[str, Any]:
            nonlocal shown
            error = ""
            try:
                shown = decode(str(message["source"])).data
            except ValueError as refused:
                error = str(refused)
            return {**shown, "error": error}

        return super().live(answer)


def as_text(tokens: Sequence) -> list[str]:
    """Tokens as text; tensors of ids too."""
    return [str(token) for token in (tokens.tolist() if hasattr(tokens, "tolist") else tokens)]


def ink_on(color: str) -> str:
    """Nearly black or white, whichever contrasts more with ``color`` (WCAG 2.2, relative luminance)."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(color)]
    return "#010101" if np.dot(linear, (0.2126, 0.7152, 0.0722)) > 0.179 else "#fff"
