"""What masks allow, and the weights that are left."""

import html
from collections.abc import Sequence
from typing import Any

import numpy as np

from coursekit.viz.alignment import as_text
from coursekit.viz.pictures import cell, table_html
from coursekit.viz.widget import Widget, pack, to_mask, to_numpy

MOST_TOKENS = 24


def masked_softmax(scores: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """Softmax of each row over its allowed entries, ``exp(e_s) / sum over allowed s' of exp(e_s')``; the others are 0.

    A row that allows nothing is all zeros, as in ``coursekit.nn.attention.attend``.
    """
    masked = np.where(allowed, scores, -np.inf)
    peak = masked.max(axis=-1, keepdims=True)
    e = np.exp(masked - np.where(np.isfinite(peak), peak, 0))  # the largest exponent is 0: nothing overflows
    total = e.sum(axis=-1, keepdims=True)
    return e / np.where(total == 0, 1, total)


class Masks(Widget):
    """Switch the causal and the padding mask on and off, turn tokens into padding, and see which weights are left.

    Rows are queries, columns are keys. True = may attend. The padding mask forbids padding as a key; a query that
    is padding itself still attends to what is real, as in ``coursekit.nn.masks.padding_mask``.

    Args:
        tokens: T tokens, at most 24.
        real: (T,), boolean, True where a token is real; by default all are.
        causal: whether the causal mask is on at first. The padding mask is.
        scores: (T, T), the scores before the softmax; by default zeros, so that the weights are uniform.
        title: what stands above.
    """

    module = "masks"

    def __init__(
        self,
        tokens: Sequence,
        real: Any = None,
        causal: bool = True,
        scores: Any = None,
        title: str = "Who may attend to whom",
    ):
        tokens = as_text(tokens)
        T = len(tokens)
        if not 1 <= T <= MOST_TOKENS:
            raise ValueError(f"{T} tokens: between 1 and {MOST_TOKENS} can be read in a grid")
        real = np.ones(T, dtype=bool) if real is None else to_mask(real)
        if real.shape != (T,):
            raise ValueError(f"real has shape {real.shape}, but {T} tokens need {(T,)}")
        scores = np.zeros((T, T)) if scores is None else to_numpy(scores)
        if scores.shape != (T, T):
            raise ValueError(f"scores have shape {scores.shape}, but {T} tokens need {(T, T)}")
        if not np.isfinite(scores).all():
            raise ValueError("scores must be finite: leave the masking to the widget")
        self.allowed = real & (np.tri(T, dtype=bool) if causal else np.ones((T, T), dtype=bool))  # (T,) & (T, T)
        self.weights = masked_softmax(scores, self.allowed)
        self.data = {
            "title": title,
            "tokens": tokens,
            "real": real.tolist(),
            "causal": bool(causal),
            "scores": pack(scores),
        }

    def static_html(self) -> str:
        tokens = self.data["tokens"]
        rows = [
            [token, *(cell(f"{w:.2f}", w) if may else "·" for w, may in zip(weights, allowed))]
            for token, weights, allowed in zip(tokens, self.weights, self.allowed)
        ]
        padding = [token for token, real in zip(tokens, self.data["real"]) if not real]
        masks = ", ".join(
            ["causal mask"] * self.data["causal"] + ([f"padding: {' '.join(padding)}"] if padding else [])
        )
        caption = f"{self.data['title']} ({masks or 'no mask'}). Rows: queries, columns: keys, · = may not attend"
        empty = [token for token, allowed in zip(tokens, self.allowed) if not allowed.any()]
        note = f"<p>May attend to nothing, so all weights are 0: {html.escape(' '.join(empty))}</p>" if empty else ""
        return table_html(caption, ["", *tokens], rows) + note
