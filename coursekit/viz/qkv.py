"""One step of attention with its numbers."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from coursekit.viz.alignment import as_text
from coursekit.viz.masks import masked_softmax
from coursekit.viz.pictures import DIVERGING, cell, table_html
from coursekit.viz.widget import Widget, pack, to_mask, to_numpy

MOST_TOKENS = 16
MOST_ENTRIES = 16


class QKV(Widget):
    """Walk through ``softmax(q K^T / sqrt(Dh)) V`` for one query, stage by stage.

    The stages: the query beside all keys; the scores ``q k_s``; the scores over ``sqrt(Dh)``; their softmax, the
    weights; the values times their weights, added up to the output. Where a query may attend to nothing its weights
    and its output are zeros.

    Args:
        tokens: T tokens, at most 16.
        query, key: (T, Dh), Dh at most 16.
        value: (T, Dv), Dv at most 16.
        position: of the query that is shown first, 0 to T - 1.
        mask: (T, T), boolean, True = may attend; None allows everything.
        title: what stands above.

    Source: Vaswani et al. (2017), arXiv 1706.03762, section 3.2.1, equation 1.
    """

    module = "qkv"

    def __init__(
        self,
        tokens: Sequence,
        query: Any,
        key: Any,
        value: Any,
        position: int = 0,
        mask: Any = None,
        title: str = "One step of attention",
    ):
        tokens = as_text(tokens)
        T = len(tokens)
        if not 1 <= T <= MOST_TOKENS:
            raise ValueError(f"{T} tokens: between 1 and {MOST_TOKENS} can be read, so show a part of the sequence")
        arrays = {"query": to_numpy(query), "key": to_numpy(key), "value": to_numpy(value)}
        for name, array in arrays.items():
            if array.ndim != 2 or len(array) != T or array.shape[1] < 1:
                raise ValueError(f"{name} has shape {array.shape}, but {T} tokens need ({T}, size of a vector)")
            if array.shape[1] > MOST_ENTRIES:
                raise ValueError(
                    f"each {name} has {array.shape[1]} entries: at most {MOST_ENTRIES} can be read, so show some of "
                    "them or a smaller head"
                )
            if not np.isfinite(array).all():
                raise ValueError(f"{name} must be finite")
        query, key, value = arrays.values()
        if query.shape != key.shape:
            raise ValueError(f"query {query.shape} and key {key.shape} must have one shape: a score is their product")
        if not 0 <= position < T:
            raise ValueError(f"position={position}: must lie in 0..{T - 1}")
        allowed = np.ones((T, T), dtype=bool) if mask is None else to_mask(mask)
        if allowed.shape != (T, T):
            raise ValueError(f"mask has shape {allowed.shape}, but {T} tokens need {(T, T)}")
        self.scores = query @ key.T  # (T, Dh) @ (Dh, T) -> (T, T)
        self.scaled = self.scores / np.sqrt(query.shape[1])
        self.weights = masked_softmax(self.scaled, allowed)
        self.output = self.weights @ value  # (T, T) @ (T, Dv) -> (T, Dv)
        self.key, self.value, self.position = key, value, int(position)
        numbers = {
            **arrays,
            "scores": self.scores,
            "scaled": self.scaled,
            "weights": self.weights,
            "output": self.output,
        }
        self.data = {
            "title": title,
            "tokens": tokens,
            "position": self.position,
            "allowed": allowed.tolist(),
            **{name: pack(array) for name, array in numbers.items()},
        }

    def static_html(self) -> str:
        t, tokens = self.position, self.data["tokens"]
        scale = max(np.abs(self.value).max(), np.abs(self.output).max()) or 1

        def cells(vector: np.ndarray) -> list[str]:
            return [cell(f"{x:.2f}", (x / scale + 1) / 2, DIVERGING) for x in vector]

        rows = []
        for s, token in enumerate(tokens):
            weight = cell(f"{self.weights[t, s]:.2f}", self.weights[t, s])
            may = "" if self.data["allowed"][t][s] else " (masked)"
            scores = [f"{self.scores[t, s]:.2f}", f"{self.scaled[t, s]:.2f}"]
            rows.append([token + may, *scores, weight, *cells(self.value[s])])
        rows.append(["output", "", "", "", *cells(self.output[t])])
        head = ["key", "q·k", f"÷ √{self.key.shape[1]}", "weight", "value"] + [""] * (self.value.shape[1] - 1)
        return table_html(f"{self.data['title']}: the query of {tokens[t]}", head, rows)
