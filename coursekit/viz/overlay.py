"""Attention of the class token laid over images: what each head keeps of it, compared with the true masks."""

import base64
import html
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from coursekit.viz.images import (
    checked_boolean,
    checked_images,
    image_url,
    outline,
    picture_html,
    side_by_side_html,
)
from coursekit.viz.patches import grid_and_front
from coursekit.viz.pictures import image_html, table_html
from coursekit.viz.widget import ROOM, Widget, pack, to_numpy

SLACK = 1e-6  # rounded in float32, what is just enough may sum to a little less


class Overlay(Widget):
    """See on which patches of an image the class token's attention lies, head by head, and how well that finds objects.

    The large picture is the image with the weights of one head over it. An orange line goes around the fewest patches
    that hold the share ``mass`` of what this head gives to all patches (of equal weights the first ones), a white one
    around the true object. Beside it are the plain image and all heads, each with its Jaccard index
    ``|A and B| / |A or B|``, counted in pixels, rounded to 0.001. The share is moved in steps of 1 %; page and kernel
    find the same patches, for the page holds the weights in float32.

    Args:
        images: (n, 3, height, width), array or tensor, of floats in 0..1 or of uint8.
        attention: (n, H, N), weights of the class token on the N square patches that fill an image row by row, as a
            rule of the last block. They need not sum to 1, for the class token's own share is left out.
        masks: (n, height, width), boolean, True where the object is; by default none, and then there is no Jaccard
            index.
        models: name -> attention of this model, in place of ``attention``; one of them is chosen on the page. They may
            differ in their heads.
        mass: which share the kept patches hold at first, a whole number of percent.
        mean: put the mean of each model's heads in front of them, and open on it.
        title: what stands above.

    Source: Caron et al. (2021), arXiv 2104.14294, section 4.2.2 and figure 4.
    """

    module = "overlay"

    def __init__(
        self,
        images: Any,
        attention: Any = None,
        masks: Any = None,
        models: Mapping[str, Any] | None = None,
        mass: float = 0.6,
        mean: bool = False,
        title: str = "Where the class token looks",
    ):
        pixels = checked_images(images)
        n, height, width = pixels.shape[:3]
        if (attention is None) == (not models):
            raise ValueError("give the weights either as attention= or as models=, a mapping from names to them")
        given = (
            {"attention": attention}
            if attention is not None
            else {f"models[{name!r}]": models[name] for name in models}
        )
        self.weights = [checked_weights(x, n, name) for name, x in given.items()]  # of each model, (n, H, N), float32
        if mean:
            self.weights = [np.concatenate([x.mean(axis=1, keepdims=True), x], axis=1) for x in self.weights]
        self.mean = mean
        N = self.weights[0].shape[2]
        if any(x.shape[2] != N for x in self.weights):
            raise ValueError(f"weights on {[x.shape[2] for x in self.weights]} patches: must be as many for all models")
        (self.rows, self.columns), front = grid_and_front(N, height, width)
        if front:
            raise ValueError(
                f"{N} weights of the class token on {N - 1} patches of {height} x {width} pixels: leave out the one on "
                "itself, attention[:, :, 1:]"
            )
        percent = round(100 * mass)
        if not (1 <= percent <= 100 and abs(percent - 100 * mass) < 1e-9):
            raise ValueError(f"mass={mass}: must lie in 0.01..1, in whole percent")
        self.mass, self.masks = percent / 100, None
        self.names = list(models) if attention is None else [""]
        self.data = {
            "title": title,
            "size": [height, width],
            "grid": [self.rows, self.columns],
            "images": [image_url(x) for x in pixels],
            "names": self.names,
            "weights": [pack(x) for x in self.weights],
            "mass": percent,
            "mean": mean,
        }
        if masks is not None:
            self.masks = checked_boolean(masks, (n, height, width), "masks", "as the images")
            tiles = self.masks.reshape(n, self.rows, height // self.rows, self.columns, width // self.columns)
            self.data["inside"] = tiles.sum(axis=(2, 4)).reshape(n, N).tolist()  # pixels of the object in each patch
            self.data["outlines"] = [outline(mask) for mask in self.masks]
        if (size := self.size()) > ROOM:
            raise ValueError(
                f"{n} images of {height} x {width} pixels with weights of {len(given)} models take {size:,} bytes, "
                f"more than {ROOM:,}: show fewer (images[:{max(1, n // 2)}])"
            )

    def static_html(self) -> str:
        title, weights = self.data["title"], self.weights[0]
        model = f": {self.names[0]}" if self.names[0] else ""
        pictures = [("the first image", picture_html(self.data["images"][0], "The first image", 130))]
        found = [self.jaccard(x) for x in self.weights]  # of each model, (n, H), or nothing
        for head, row in enumerate(weights[0]):
            shares = np.sqrt(row / row.max()).reshape(self.rows, self.columns)
            says = self.name(head) + (f": Jaccard {found[0][0, head]:.3f}" if self.masks is not None else "")
            alt = f"Weights of {self.name(head)}, dark 0 to light {row.max():.4f}"
            pictures.append((says, image_html(shares, alt, width=130)))
        most = max(x.shape[1] for x in self.weights)
        rows = []
        for name, x, indices in zip(self.names, self.weights, found):
            if self.masks is None:
                entries = [f"{count:.1f}" for count in keep(x, self.mass).sum(axis=2).mean(axis=0)]
            else:
                entries = [f"{mean:.3f}" for mean in indices.mean(axis=0)]
            rows.append([name, *entries, *[""] * (most - len(entries))])
        what = f"of {weights.shape[2]} patches, how many each head keeps" if self.masks is None else "Jaccard index"
        caption = (
            f"{what}, mean over {len(weights)} images; kept: {100 * self.mass:.0f} % of a head’s weight on patches"
        )
        return (
            f"<p><b>{html.escape(title)}</b>{html.escape(model)}</p>{side_by_side_html(pictures)}"
            f"{table_html(caption, ['', *map(self.name, range(most))], rows)}"
        )

    def live(self, look: Callable[[np.ndarray], Any]):
        """With pictures of the reader's: one is loaded from a file, or drawn on the one that is shown.

        Args:
            look: a picture (3, height, width), uint8, of the size of ``images`` -> the weights (H, N) on its patches,
                or with ``models`` those of each, ``{name: weights}``. A ``ValueError`` is shown with its message.
        """

        def answer(message: dict[str, Any]) -> dict[str, Any]:
            data = {**self.data, "asked": message, "error": ""}
            try:
                raw = np.frombuffer(base64.b64decode(message["pixels"]), np.uint8)
                pixels = raw.reshape(*self.data["size"], 3)
                found = look(pixels.transpose(2, 0, 1))
                found = found if isinstance(found, Mapping) else {self.names[0]: found}
                weights = []
                for name, old in zip(self.names, self.weights):
                    new = checked_weights(to_numpy(found[name])[None], 1, name or "attention")
                    new = np.concatenate([new.mean(axis=1, keepdims=True), new], axis=1) if self.mean else new
                    weights.append(pack(np.concatenate([old, new])))
                data |= {"images": [*self.data["images"], image_url(pixels)], "weights": weights}
                data |= {name: [*self.data[name], None] for name in ("inside", "outlines") if name in self.data}
            except ValueError as refused:
                data["error"] = str(refused)
            return data

        return super().live(answer)

    def name(self, head: int) -> str:
        """Of a row of weights: a head, or the mean in front of them."""
        if not self.mean:
            return f"head {head}"
        return f"head {head - 1}" if head else "mean of heads"

    def jaccard(self, weights: np.ndarray) -> np.ndarray | None:
        """Of what each head keeps with the true masks, (n, H)."""
        if self.masks is None:
            return None
        n, height, width = self.masks.shape
        found = keep(weights, self.mass).reshape(n, -1, self.rows, self.columns)
        found = found.repeat(height // self.rows, axis=2).repeat(width // self.columns, axis=3)
        true = self.masks[:, None]
        return (found & true).sum(axis=(2, 3)) / (found | true).sum(axis=(2, 3))


def checked_weights(weights: Any, n: int, name: str) -> np.ndarray:
    weights = to_numpy(weights)
    if weights.ndim != 3 or len(weights) != n or weights.size == 0:
        raise ValueError(f"{name} has shape {weights.shape}: must be ({n}, heads, patches), for {n} images")
    weights = weights.astype(np.float32)
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any(axis=2).all()):
        raise ValueError(f"{name}: weights must be finite and not negative, and of no head all zero")
    return weights


def keep(weights: np.ndarray, mass: float) -> np.ndarray:
    """The fewest patches that hold the share ``mass`` of each row's sum: (..., N) -> boolean (..., N).

    The rule of ``coursekit.evaluate.features.keep_mass``; of equal weights the first ones are kept.
    """
    order = np.argsort(-weights, axis=-1, kind="stable")
    largest = np.take_along_axis(weights, order, axis=-1).astype(float)
    share = largest / largest.sum(axis=-1, keepdims=True)
    before = share.cumsum(axis=-1) - share
    kept = np.zeros(weights.shape, dtype=bool)
    np.put_along_axis(kept, order, before < mass - SLACK, axis=-1)
    return kept
