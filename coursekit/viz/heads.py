"""All attention maps of a model: every layer, every head."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from coursekit.viz.alignment import as_text
from coursekit.viz.pictures import image_html, table_html
from coursekit.viz.tokens import readable
from coursekit.viz.widget import MAX_BYTES, Widget, pack_bytes, read_text, to_numpy

ROOM = MAX_BYTES - 100_000  # what the weights may take; the rest is for the module, the tokens and the static picture
THUMBNAIL = 16  # most pixels along a side of a head in the static picture
LISTED = 128  # most queries in the static table


class AttentionHeads(Widget):
    """Look through the attention maps of all layers and heads: small ones to choose from, the chosen one large.

    The page holds each weight as the nearest multiple of 1/255, so that a number shown is at most 1/510 = 0.002 off
    (besides its own rounding). Weights that would not fit into 1 MB that way are held as multiples of 1/127: at most
    1/254 = 0.004 off. A weight of 0 stays exactly 0. 144 maps of 128 x 128 fit; ``error`` holds the bound that is met.

    Args:
        tokens: S tokens, the keys.
        weights: (L, H, T, S), array or tensor. Each row sums to 1, or is all zeros where a query was masked.
        target: T tokens, the queries; by default ``tokens``, as in self-attention.
        layer, head: which map is large at first, counted from 0.
        query: which of its rows is marked at first.
        title: what stands above.
    """

    module = "heads"

    def __init__(
        self,
        tokens: Sequence,
        weights: Any,
        target: Sequence | None = None,
        layer: int = 0,
        head: int = 0,
        query: int = 0,
        title: str = "Where each head looks",
    ):
        tokens = [readable(token) for token in as_text(tokens)]
        target = tokens if target is None else [readable(token) for token in as_text(target)]
        weights = to_numpy(weights)
        if weights.ndim != 4 or weights.shape[2:] != (len(target), len(tokens)) or weights.size == 0:
            raise ValueError(
                f"weights have shape {weights.shape}, but {len(target)} queries and {len(tokens)} keys need "
                f"(layers, heads, {len(target)}, {len(tokens)})"
            )
        total = weights.sum(axis=-1)
        if not ((weights >= 0).all() and (np.isclose(total, 1, atol=1e-3) | (total == 0)).all()):
            raise ValueError("each row of weights must be a distribution (nothing negative, summing to 1) or all zeros")
        n_layers, n_heads, T, S = weights.shape
        for name, chosen, n in (("layer", layer, n_layers), ("head", head, n_heads), ("query", query, T)):
            if not 0 <= chosen < n:
                raise ValueError(f"{name}={chosen}: must lie in 0..{n - 1}")
        self.weights, self.layer, self.head = weights, int(layer), int(head)
        for levels in (255, 127):
            packed = pack_bytes(np.rint(weights * levels))
            if len(packed["deflated"]) <= ROOM:
                break
        else:
            raise ValueError(
                f"{n_layers} layers of {n_heads} heads on {T} x {S} tokens take {len(packed['deflated']):,} bytes, "
                f"more than {ROOM:,}: show fewer layers (weights[:{max(1, n_layers // 2)}]) or fewer tokens"
            )
        self.error = 0.5 / levels
        self.data = {
            "title": title,
            "tokens": tokens,
            "target": target,
            "levels": levels,
            "weights": packed,
            "layer": self.layer,
            "head": self.head,
            "query": int(query),
        }

    def static_html(self) -> str:
        n_layers, n_heads, T, S = self.weights.shape
        rows, columns = min(T, THUMBNAIL), min(S, THUMBNAIL)
        small = shrink(self.weights, rows, columns)  # (L, H, rows, columns)
        framed = np.full((n_layers, n_heads, rows + 1, columns + 1), np.nan)  # a gap of one pixel after each head
        framed[:, :, :rows, :columns] = np.sqrt(small)
        # (L, H, rows + 1, columns + 1) -> (L, rows + 1, H, columns + 1) -> one picture
        mosaic = framed.transpose(0, 2, 1, 3).reshape(n_layers * (rows + 1), n_heads * (columns + 1))
        chosen = self.weights[self.layer, self.head]
        where = f"layer {self.layer}, head {self.head}"
        looks = []
        for t, (token, row) in enumerate(zip(self.data["target"][:LISTED], chosen)):
            peak = int(row.argmax())
            looks.append([f"{t}: {token}", f"{peak}: {self.data['tokens'][peak]}" if row.any() else "nothing (masked)"])
            looks[-1].append(f"{row[peak]:.2f}")
        every = image_html(
            mosaic,
            f"{self.data['title']}: {n_layers} layers (downwards) of {n_heads} heads, dark 0 to light 1",
            width=min(700, 64 * n_heads),
        )
        large = image_html(
            np.sqrt(shrink(chosen, min(T, 64), min(S, 64))), f"{where}: queries downwards, keys across", width=300
        )
        caption = f"{self.data['title']}: where each query of {where} looks most"
        return f"<div>{every}</div><div>{large}</div>{table_html(caption, ['query', 'key', 'weight'], looks)}"

    def live(self, read: Callable[[str], "AttentionHeads"]):
        """With a field for typing: each new text goes through ``read``.

        Args:
            read: what was typed -> the AttentionHeads to show. A ``ValueError`` is shown with its message.
        """
        return super().live(read_text(self.data, read))


def shrink(maps: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """(..., T, S) -> (..., rows, columns): the largest weight of each patch, so that no peak gets lost."""
    starts = [np.arange(n) * size // n for n, size in ((rows, maps.shape[-2]), (columns, maps.shape[-1]))]
    return np.maximum.reduceat(np.maximum.reduceat(maps, starts[0], axis=-2), starts[1], axis=-1)
