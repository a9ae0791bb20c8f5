"""Images and masks as widgets take them, and as they stand in a page."""

import base64
import html
import io
from typing import Any

import numpy as np
from PIL import Image

LARGEST_PNG = 40_000  # bytes; an image that takes more is held as JPEG


def as_array(values: Any) -> np.ndarray:
    """An array, a list, or a tensor on any device, as a NumPy array that still is of floats, of integers or boolean."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        values = (values.float() if values.is_floating_point() else values).numpy()
    return np.asarray(values)


def checked_image(image: Any, name: str = "the image") -> np.ndarray:
    """(C, height, width), of floats in 0..1 or of uint8 -> (height, width, 3), uint8."""
    pixels = as_array(image)
    if pixels.ndim != 3 or pixels.shape[0] not in (1, 3) or pixels.size == 0:
        raise ValueError(f"{name} has shape {pixels.shape}: must be (3, height, width) or (1, height, width)")
    if pixels.dtype != np.uint8:
        if not np.issubdtype(pixels.dtype, np.floating):
            raise ValueError(f"{name} is of {pixels.dtype}: must be floats in 0..1, or uint8")
        if not (pixels.min() >= 0 and pixels.max() <= 1):
            raise ValueError(
                f"{name} goes from {pixels.min():.3g} to {pixels.max():.3g}: floats must lie in 0..1; "
                "undo the model's scaling first, and clip what still lies outside"
            )
        pixels = np.rint(pixels * 255).astype(np.uint8)
    return np.repeat(pixels, 3 // len(pixels), axis=0).transpose(1, 2, 0)


def checked_images(images: Any, name: str = "images", like: tuple[int, ...] = ()) -> np.ndarray:
    """(n, C, height, width), of floats in 0..1 or of uint8 -> (n, height, width, 3), uint8.

    Args:
        like: the shape that the result must have, where there is one; of its first numbers, if it has fewer.
    """
    images = as_array(images)
    if images.ndim != 4 or len(images) == 0:
        raise ValueError(f"{name} has shape {images.shape}: must be (n, 3, height, width)")
    pixels = np.stack([checked_image(image, f"{name}[{i}]") for i, image in enumerate(images)])
    if pixels.shape[: len(like)] != like:
        n, *size = like
        wanted = (n, 3, *size[:2]) if size else f"({n}, 3, height, width)"
        raise ValueError(f"{name} has shape {images.shape}: must be {wanted}, as the others")
    return pixels


def checked_mask(mask: Any, height: int, width: int) -> np.ndarray:
    return checked_boolean(mask, (height, width), "the mask", "as the image")


def checked_boolean(masks: Any, shape: tuple[int, ...], name: str, why: str) -> np.ndarray:
    masks = as_array(masks)
    if masks.shape != shape:
        raise ValueError(f"{name} has shape {masks.shape}: must be {shape}, {why}")
    if masks.dtype != bool:
        raise ValueError(f"{name} is of {masks.dtype}: must be boolean, True where the object is")
    return masks


def outline(mask: np.ndarray) -> str:
    """The border of a mask as an SVG path in pixels: straight lines wherever True and False lie side by side."""
    parts = []
    for lying, command in ((mask, "{start} {at}h{length}"), (mask.T, "{at} {start}v{length}")):
        framed = np.pad(lying, ((1, 1), (0, 0)))
        border = framed[1:] != framed[:-1]  # between row i - 1 and row i
        ends = np.diff(np.pad(border, ((0, 0), (1, 1))).astype(int), axis=1)
        for at, (starts, stops) in enumerate(zip(ends == 1, ends == -1)):
            for start, stop in zip(np.flatnonzero(starts), np.flatnonzero(stops)):
                parts.append("M" + command.format(start=start, at=at, length=stop - start))
    return "".join(parts)


def image_url(pixels: np.ndarray) -> str:
    """(height, width, 3) as a ``data:`` address: PNG, or JPEG where that takes too much."""
    picture = Image.fromarray(np.ascontiguousarray(pixels))
    for kind, options in (("png", {"optimize": True}), ("jpeg", {"quality": 90})):
        buffer = io.BytesIO()
        picture.save(buffer, format=kind, **options)
        if buffer.tell() <= LARGEST_PNG:
            break
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def picture_html(url: str, alt: str, width: int) -> str:
    """An image of the static side, as wide as said, in its own proportions."""
    style = f"width:{width}px;max-width:100%;image-rendering:pixelated"
    return f'<img alt="{html.escape(alt)}" style="{style}" src="{url}">'


def side_by_side_html(pictures: list[tuple[str, str]]) -> str:
    """Pictures, each with what stands beneath it, in as many rows as they need."""
    each = "".join(
        f'<figure style="display:inline-block;margin:0 10px 6px 0;max-width:100%;vertical-align:top">{picture}'
        f'<figcaption style="font-size:13px">{html.escape(caption)}</figcaption></figure>'
        for caption, picture in pictures
    )
    return f"<div>{each}</div>"
