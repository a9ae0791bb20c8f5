"""Where the patches of an image look: every layer, every head, and the rollout through all layers."""

from collections.abc import Callable
from math import isqrt
from typing import Any

import numpy as np

from coursekit.viz.images import checked_image, checked_mask, image_url, outline, picture_html
from coursekit.viz.pictures import image_html, table_html
from coursekit.viz.widget import ROOM, Widget, pack_bytes, read_text, to_numpy

SCALES_PER_OCTAVE = 16  # the largest weight of a query is held as 2^(-k / 16), rounded up
LEVELS = (255, 127, 63, 31, 15, 7, 3)


class Patches(Widget):
    """Point at a patch of an image, or at the class token, and see where it looks in each layer and head.

    The mean of the heads of each layer and the rollout through all layers stand beside the heads.
    With a mask of an object, the share of the weight that lies on it stands below: of the weight on patches, each
    patch counted for the part of it that the mask covers.

    The page holds the weights of each query as multiples of 1/255 of the largest of them. What would not fit into 1 MB
    that way is held as multiples of 1/127, 1/63, 1/31, 1/15, 1/7 or 1/3. ``error`` holds the bound that all weights
    meet; the page says it for the query that is shown. Shares of weight are held to 1/510.

    Args:
        image: (3, height, width) or (1, height, width), array or tensor, of floats in 0..1 or of uint8. It is shown in
            up to 40,000 bytes as it is, otherwise as JPEG.
        attention: (L, H, T, T), array or tensor: weights of the layers from the first on, each row summing to 1. T = N
            tokens for N square patches, which fill the image row by row, or N + 1 with the class token in front.
        rollout: (T, T), through all layers, as ``coursekit.evaluate.attention_rollout`` computes it.
        mask: (height, width), boolean, True where the object is; by default none.
        layer: which layer is shown at first, counted from 0; by default the rollout through all of them.
        head: which of its heads; by default their mean.
        query: the token that looks at first, counted from 0.
        title: what stands above.
    """

    module = "patches"

    def __init__(
        self,
        image: Any,
        attention: Any,
        rollout: Any,
        mask: Any = None,
        layer: int | None = None,
        head: int | None = None,
        query: int = 0,
        title: str = "Where each patch looks",
    ):
        self.image = checked_image(image)
        height, width = self.image.shape[:2]
        attention = checked_attention(attention)
        n_layers, n_heads, T, _ = attention.shape
        self.grid, self.front = grid_and_front(T, height, width)
        if layer is None and head is not None:
            raise ValueError(f"head={head}: give layer= too, as a head is one of a layer")
        for name, chosen, n in (("layer", layer, n_layers), ("head", head, n_heads), ("query", query, T)):
            if chosen is not None and not 0 <= chosen < n:
                raise ValueError(f"{name}={chosen}: must lie in 0..{n - 1}")
        rollout = checked_rollout(rollout, T)
        self.maps = with_means(
            attention, rollout
        )  # (M, T, T): all heads of a layer and their mean, layer by layer; the rollout
        M, columns = len(self.maps), (len(self.maps) - 1) // n_layers
        self.query = int(query)
        self.data = {
            "title": title,
            "image": image_url(self.image),
            "size": [height, width],
            "grid": list(self.grid),
            "front": self.front,
            "layers": n_layers,
            "heads": n_heads,
            "map": M - 1 if layer is None else layer * columns + (columns - 1 if head is None else int(head)),
            "query": self.query,
        }
        self.on_object = None
        if mask is not None:
            mask = checked_mask(mask, height, width)
            self.on_object = share_on(self.maps[:, :, self.front :], mask, self.grid)  # (M, T)
            self.data |= {"outline": outline(mask), "covered": float(mask.mean())}
            self.data["shares"] = pack_bytes(np.rint(self.on_object * 255))
        largest = np.minimum(self.maps.max(axis=-1), 1)
        steps = np.floor(-SCALES_PER_OCTAVE * np.log2(largest) + 1e-9)  # (M, T)
        scale = 2 ** (-steps / SCALES_PER_OCTAVE)
        self.data["scales"] = pack_bytes(steps)
        room = ROOM - self.size()
        for levels in LEVELS:
            held = np.rint((self.maps / scale[..., None]).clip(0, 1) * levels).astype(np.uint8)
            some = held[:: max(1, M // 8)]  # packing all maps at every number of levels would take a minute
            size = len(pack_bytes(some)["deflated"]) * M // len(some)
            if size > 1.2 * room and levels != LEVELS[-1]:
                continue
            packed = pack_bytes(held)
            size = len(packed["deflated"])
            if size <= room:
                break
        else:
            raise ValueError(
                f"{n_layers} layers of {n_heads} heads on {T} tokens take {size:,} bytes, more than "
                f"{max(0, room):,}: show fewer layers (attention[-{max(1, n_layers // 2)}:]) or larger patches"
            )
        self.error = float(scale.max()) / 2 / levels
        self.data |= {"levels": levels, "weights": packed}

    def static_html(self) -> str:
        title, (rows, columns) = self.data["title"], self.grid
        shown = self.maps[-1, self.query, self.front :].reshape(rows, columns)
        name = self.name(self.query)
        alt = f"{title}: rollout of {name}, dark 0 to light {shown.max():.3f}"
        # the width alone gives the height: both pictures stand in the image's proportions
        picture = picture_html(self.data["image"], "The image", 260)
        heat = image_html(np.sqrt(shown / (shown.max() or 1)), alt, width=260)
        n_layers, per_layer = self.data["layers"], (len(self.maps) - 1) // self.data["layers"]
        means = [(f"layer {i}, mean of heads", (i + 1) * per_layer - 1) for i in range(n_layers)]
        table = []
        for where, m in [*means, ("rollout", -1)]:
            row = self.maps[m, self.query]
            peak = int(row.argmax())
            table.append([where, self.name(peak), f"{row[peak]:.3f}"])
            if self.on_object is not None:
                table[-1].append(f"{100 * self.on_object[m, self.query]:.0f} %")
        head = ["", "looks most at", "weight"]
        caption = f"{title}: where {name} looks. Rows and columns of patches are counted from 0"
        if self.on_object is not None:
            head.append("on the object")
            caption += f"; the object covers {100 * self.data['covered']:.0f} % of the image"
        return f"<div>{picture} {heat}</div>{table_html(caption, head, table)}"

    def name(self, token: int) -> str:
        """A token in words, as the page has it."""
        if token < self.front:
            return "the class token"
        row, column = divmod(token - self.front, self.grid[1])
        return f"the patch in row {row}, column {column}"

    def live(self, read: Callable[[str], "Patches"]):
        """With a field for typing, as a rule an image's number: each text goes through ``read``.

        Args:
            read: what was typed -> the Patches to show. A ``ValueError`` is shown with its message.
        """
        return super().live(read_text(self.data, read))


def checked_attention(attention: Any) -> np.ndarray:
    attention = to_numpy(attention)
    if attention.ndim != 4 or attention.shape[2] != attention.shape[3] or attention.size == 0:
        raise ValueError(
            f"attention has shape {attention.shape}: must be (layers, heads, T, T), of one image; "
            "torch.stack joins the layers"
        )
    if not ((attention >= 0).all() and np.isclose(attention.sum(axis=-1), 1, atol=1e-2).all()):
        raise ValueError("each row of attention must be a distribution: nothing negative, summing to 1")
    return attention


def checked_rollout(rollout: Any, T: int) -> np.ndarray:
    rollout = to_numpy(rollout)
    if rollout.shape != (T, T):
        raise ValueError(f"the rollout has shape {rollout.shape}: must be {(T, T)}, of this image alone")
    if not ((rollout >= 0).all() and np.isclose(rollout.sum(axis=-1), 1, atol=1e-2).all()):
        raise ValueError("each row of the rollout must be a distribution: nothing negative, summing to 1")
    return rollout


def grid_and_front(T: int, height: int, width: int) -> tuple[tuple[int, int], int]:
    """Rows and columns of the square patches that T tokens stand for, and whether a class token is in front (1 or 0).

    At most one of the two can be: T and T - 1 patches of whole sides would both have to be squares.
    """
    for front in (0, 1):
        N = T - front
        side = isqrt(height * width // N) if N else 0
        if side and side**2 * N == height * width and height % side == 0 and width % side == 0:
            return (height // side, width // side), front
    raise ValueError(
        f"{T} tokens: {height} x {width} pixels are not cut into {T} square patches, nor into {T - 1} "
        "(and a class token)"
    )


def with_means(attention: np.ndarray, rollout: np.ndarray) -> np.ndarray:
    """(L, H, T, T) -> (M, T, T): of each layer the heads and, of several, their mean; at the end the rollout."""
    T = attention.shape[-1]
    layers = attention
    if attention.shape[1] > 1:
        layers = np.concatenate([attention, attention.mean(axis=1, keepdims=True)], axis=1)
    return np.concatenate([layers.reshape(-1, T, T), rollout[None]])


def share_on(weights: np.ndarray, mask: np.ndarray, grid: tuple[int, int]) -> np.ndarray:
    """Share of the weights on N patches (..., N) that lies on an object (height, width): ``sum w_n m_n / sum w_n``.

    ``m_n`` is the part of patch n that the object covers. Where no weight is on patches the share is 0.
    """
    rows, columns = grid
    height, width = mask.shape
    parts = mask.reshape(rows, height // rows, columns, width // columns).mean(axis=(1, 3)).ravel()  # (N,)
    total = weights.sum(axis=-1)
    return np.divide(weights @ parts, total, out=np.zeros_like(total), where=total > 0)
