"""The views of an image that DINO's student and teacher see: where they lie, and which pairs of them count."""

import html
from typing import Any

import numpy as np

from coursekit.viz.images import as_array, checked_images, image_url, picture_html, side_by_side_html
from coursekit.viz.pictures import table_html
from coursekit.viz.widget import ROOM, Widget, to_numpy

GLOBALS = 2
COLORS = {"global": "#d55e00", "local": "#0072b2"}  # as in crops.js; Okabe and Ito's vermilion and blue
SLACK = 1e-3  # pixels that a box may lie outside of the image, for rounding
WIDTHS = {"image": 260, "global": 100, "local": 60}  # of the static pictures


class Crops(Widget):
    """The two global and the local views of an image, with the boxes that were cut out; and the pairs of views.

    A view that is pointed at or chosen shows its box, a box (the nearest line counts) its view; then it is said which
    share of the image's area it shows, ``height * width / (H W)``, rounded to 0.1 %. The table has the pairs of
    DINO's loss: what the teacher says of each global view is compared with what the student says of every view, except
    of the same one. That makes ``2 (V - 1)`` pairs of V views.

    Args:
        image: (3, H, W), array or tensor, of floats in 0..1 or of uint8; or (n, 3, H, W), of which one is chosen on the
            page; then all others have n in front too.
        global_views: (2, 3, s, s), of the same kind.
        local_views: (v, 3, s', s'); v may be 0.
        global_boxes: (2, 4), top, left, height, width in pixels of the image, not rounded.
        local_boxes: (v, 4).
        title: what stands above.

    Source: Caron et al. (2021), arXiv 2104.14294, section 3.1, equation 3.
    """

    module = "crops"

    def __init__(
        self,
        image: Any,
        global_views: Any,
        local_views: Any,
        global_boxes: Any,
        local_boxes: Any,
        title: str = "What teacher and student see",
    ):
        given = {"image": image, "global_views": global_views, "local_views": local_views}
        given |= {"global_boxes": global_boxes, "local_boxes": local_boxes}
        given = {name: (to_numpy if "boxes" in name else as_array)(x) for name, x in given.items()}
        if given["image"].ndim == 3:
            given = {name: x[None] for name, x in given.items()}
        pixels = checked_images(given["image"], "image")
        n, *size = pixels.shape[:3]
        self.size_of_image = tuple(size)
        views, boxes = [], []
        for kind in COLORS:
            count = GLOBALS if kind == "global" else None
            views.append(checked_views(given[f"{kind}_views"], n, count, f"{kind}_views"))
            boxes.append(checked_boxes(given[f"{kind}_boxes"], (n, views[-1].shape[1]), self.size_of_image, kind))
        self.boxes = np.concatenate(boxes, axis=1)  # (n, V, 4)
        self.names = [f"{kind} {i}" for kind, x in zip(COLORS, views) for i in range(x.shape[1])]
        self.shares = self.boxes[..., 2] * self.boxes[..., 3] / (size[0] * size[1])  # (n, V)
        self.data = {
            "title": title,
            "size": size,
            "images": [image_url(x) for x in pixels],
            "views": [[image_url(x) for each in views for x in each[i]] for i in range(n)],
            "globals": GLOBALS,
            "boxes": self.boxes.tolist(),
        }
        if (total := self.size()) > ROOM:
            raise ValueError(
                f"{n} images with {len(self.names)} views each take {total:,} bytes, more than {ROOM:,}: show fewer "
                f"(image[:{max(1, n // 2)}]) or smaller ones"
            )

    def static_html(self) -> str:
        title, (height, width) = self.data["title"], self.size_of_image
        rectangles = "".join(
            f'<rect x="{left:.2f}" y="{top:.2f}" width="{w:.2f}" height="{h:.2f}" fill="none" stroke="{color}" '
            f'stroke-width="{stroke}" vector-effect="non-scaling-stroke"{dash}/>'
            for name, (top, left, h, w) in zip(self.names, self.boxes[0])
            for color, stroke, dash in (("#fff", 5, ""), (COLORS[name.split()[0]], 3, dashed(name)))
        )
        first = " of the first image" if len(self.boxes) > 1 else ""
        image = (
            f'<div style="position:relative;display:inline-block;max-width:100%;line-height:0">'
            f"{picture_html(self.data['images'][0], 'The image', WIDTHS['image'])}"
            f'<svg viewBox="0 0 {width} {height}" preserveAspectRatio="none" aria-hidden="true" '
            f'style="position:absolute;left:0;top:0;width:100%;height:100%">{rectangles}</svg></div>'
        )
        views = [
            (f"{name}: {100 * share:.1f} %", picture_html(url, f"View {name}", WIDTHS[name.split()[0]]))
            for name, share, url in zip(self.names, self.shares[0], self.data["views"][0])
        ]
        V = len(self.names)
        rows = [
            [f"teacher: {self.names[i]}", *("same view" if i == j else "counts" for j in range(V))]
            for i in range(GLOBALS)
        ]
        caption = f"Pairs of views, of which {GLOBALS * (V - 1)} count; views are counted from 0"
        says = f"the views{first}, and which share of its area they show; global ones solid, local ones dashed"
        return (
            f"<p><b>{html.escape(title)}</b>: {says}</p>{image}{side_by_side_html(views)}"
            f"{table_html(caption, ['', *(f'student: {name}' for name in self.names)], rows)}"
        )


def dashed(name: str) -> str:
    return "" if name.startswith("global") else ' stroke-dasharray="6 4"'


def checked_views(views: np.ndarray, n: int, count: int | None, name: str) -> np.ndarray:
    """(n, v, C, s, s) -> (n, v, s, s, 3), uint8; ``count`` is what v must be, where it is not None."""
    wanted = "v" if count is None else count
    if views.ndim != 5 or len(views) != n or (count is not None and views.shape[1] != count):
        right = as_given((n, wanted, 3, "s", "s"), n)
        raise ValueError(f"{name} has shape {as_given(views.shape, n)}: must be {right}, as the image")
    if views.shape[1] == 0:
        return np.zeros((n, 0, 1, 1, 3), dtype=np.uint8)
    return np.stack([checked_images(x, f"{name}[{i}]" if n > 1 else name) for i, x in enumerate(views)])


def checked_boxes(boxes: np.ndarray, count: tuple[int, int], size: tuple[int, int], kind: str) -> np.ndarray:
    n, v = count
    if boxes.size == v == 0:
        return np.zeros((n, 0, 4))
    if boxes.shape != (n, v, 4):
        raise ValueError(
            f"{kind}_boxes has shape {as_given(boxes.shape, n)}: must be {as_given((n, v, 4), n)}, a box for each view"
        )
    top, left, h, w = np.moveaxis(boxes, -1, 0)
    height, width = size
    inside = (top >= -SLACK) & (left >= -SLACK) & (top + h <= height + SLACK) & (left + w <= width + SLACK)
    good = inside & (h > 0) & (w > 0)
    if not good.all():
        i, j = np.argwhere(~good)[0]
        where = f"{kind}_boxes[{j}]" if n == 1 else f"{kind}_boxes[{i}, {j}]"
        raise ValueError(
            f"{where}={[round(x, 3) for x in boxes[i, j].tolist()]}: top, left, height and width must lie within an "
            f"image of {height} × {width}"
        )
    return boxes


def as_given(shape: tuple, n: int) -> str:
    """A shape as it was given, if possible: without the leading 1 of a single image."""
    return str(tuple(shape[1:] if n == 1 and shape[:1] == (1,) else shape)).replace("'", "")
