"""What a model restores of corrupted images: clean, corrupted, restored, and where it is wrong by how much."""

import html
from collections.abc import Sequence
from typing import Any

import numpy as np

from coursekit.viz.images import (
    as_array,
    checked_boolean,
    checked_images,
    image_url,
    outline,
    picture_html,
    side_by_side_html,
)
from coursekit.viz.pictures import image_html, table_html
from coursekit.viz.widget import ROOM, Widget, pack_bytes

WIDTH = 150  # of the static pictures
WHERE = ("corrupted pixels", "other pixels")


class Reconstruction(Widget):
    """An image clean, corrupted and restored, and the absolute error of each pixel as a heat map.

    The error of a pixel is ``|restored - clean|``, its mean over the channels, in units of 0..1. Its mean over the
    corrupted pixels and over the others stands below, for the image that is shown and for all n together, where each
    pixel counts alike; it is computed from the numbers given and rounded to 0.0001. The colours of the map hold errors
    as multiples of 1/255 of the largest one of all images. A white line goes around what was corrupted.

    Args:
        clean: (n, 3, height, width), array or tensor, of floats in 0..1 or of uint8.
        corrupted: what the model was given, of the same shape.
        restored: what it made of it, of the same shape.
        masks: (n, height, width), boolean, True where a pixel was corrupted.
        labels: names of the images; by default their numbers from 0 on.
        title: what stands above.
    """

    module = "reconstruction"

    def __init__(
        self,
        clean: Any,
        corrupted: Any,
        restored: Any,
        masks: Any,
        labels: Sequence | None = None,
        title: str = "What is restored",
    ):
        given = {"clean": as_array(clean), "corrupted": as_array(corrupted), "restored": as_array(restored)}
        pixels = {"clean": checked_images(given["clean"], "clean")}
        n, height, width = pixels["clean"].shape[:3]
        for name in ("corrupted", "restored"):
            pixels[name] = checked_images(given[name], name, (n, height, width))
        self.masks = checked_boolean(masks, (n, height, width), "masks", "as the images")
        self.labels = [f"Image {i}" for i in range(n)] if labels is None else [str(label) for label in labels]
        if len(self.labels) != n:
            raise ValueError(f"{len(self.labels)} labels: must be {n}, one for each image")
        self.errors = np.abs(as_floats(given["restored"]) - as_floats(given["clean"])).mean(
            axis=1
        )  # (n, height, width)
        kinds = (self.masks, ~self.masks)
        self.means = [[mean_of(error, kind[i]) for kind in kinds] for i, error in enumerate(self.errors)]
        self.overall = [mean_of(self.errors, kind) for kind in kinds]
        self.largest = float(self.errors.max())
        self.urls = {name: [image_url(x) for x in images] for name, images in pixels.items()}
        self.data = {
            "title": title,
            "size": [height, width],
            "labels": self.labels,
            "images": self.urls,
            "errors": pack_bytes(np.rint(self.errors / (self.largest or 1) * 255)),
            "largest": self.largest,
            "means": self.means,
            "overall": self.overall,
            "outlines": [outline(mask) for mask in self.masks],
        }
        if (size := self.size()) > ROOM:
            raise ValueError(
                f"{n} images of {height} x {width} pixels take {size:,} bytes, more than {ROOM:,}: show fewer "
                f"(clean[:{max(1, n // 2)}]) or smaller ones"
            )

    def static_html(self) -> str:
        pictures = [(name, picture_html(urls[0], name, WIDTH)) for name, urls in self.urls.items()]
        alt = f"absolute error, dark 0 to light {self.largest:.4f}"
        pictures.append((alt, image_html(self.errors[0] / (self.largest or 1), alt, width=WIDTH)))
        rows = [[name, *map(figure, means)] for name, means in zip(self.labels, self.means)]
        if len(rows) > 1:
            rows.append([f"all {len(rows)} images", *map(figure, self.overall)])
        caption = "Mean absolute error, in units of 0 to 1"
        return (
            f"<p><b>{html.escape(self.data['title'])}</b>: {html.escape(self.labels[0])}</p>"
            f"{side_by_side_html(pictures)}{table_html(caption, ['', *(f'on {where}' for where in WHERE)], rows)}"
        )


def as_floats(images: np.ndarray) -> np.ndarray:
    """In units of 0..1, whether they are floats or bytes."""
    return images / 255 if images.dtype == np.uint8 else images.astype(float)


def mean_of(errors: np.ndarray, where: np.ndarray) -> float | None:
    """None where there is nothing."""
    return float(errors[where].mean()) if where.any() else None


def figure(mean: float | None) -> str:
    return "none" if mean is None else f"{mean:.4f}"
