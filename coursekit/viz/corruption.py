"""How an image is corrupted for SiT: blocks of noise or of another image, grey, quarter turns."""

import html
from typing import Any

import numpy as np

from coursekit.viz.images import as_array, checked_images, image_url, picture_html, side_by_side_html
from coursekit.viz.pictures import table_html
from coursekit.viz.widget import ROOM, Widget, pack_bytes

COVERED, FREE = (255, 255, 255), (48, 48, 56)  # of the mask, as in corruption.js
WIDTH = 180  # of the static pictures


class Corruption(Widget):
    """Vary how an image is corrupted: the clean view, the mask, and what a model gets to see.

    The first blocks, as many as one likes, are filled with noise or with the other image; the view may be turned by
    quarters, and made grey. As in ``coursekit.data.corrupt`` the clean view is turned, the blocks stay where they are,
    and grey are all pixels, blocks too. Beneath the mask stands which share of the pixels is covered, each pixel once:
    the number is exact, the share rounded to 0.1 %. Colours are held as bytes.

    Args:
        clean: (n, 3, S, S), array or tensor, of floats in 0..1 or of uint8.
        noise: what noise the blocks are cut out of, of the same shape.
        other: for each image the clean view of another one, of the same shape.
        blocks: (n, K, 4), whole numbers: top, left, height and width in pixels. Those of height 0 only fill up.
        title: what stands above.

    Source: Atito, Awais and Kittler (2021), arXiv 2104.03602.
    """

    module = "corruption"

    def __init__(self, clean: Any, noise: Any, other: Any, blocks: Any, title: str = "How an image is corrupted"):
        self.clean = checked_images(clean, "clean")
        n, height, width = self.clean.shape[:3]
        if height != width:
            raise ValueError(f"clean: images of {height} x {width} pixels: must be square to be turned")
        self.noise, other = (
            checked_images(x, name, (n, height, width)) for x, name in ((noise, "noise"), (other, "other"))
        )
        self.blocks = checked_blocks(blocks, n, height)
        self.masks = np.stack([union(each, height) for each in self.blocks])  # (n, S, S)
        self.data = {"title": title, "blocks": self.blocks}
        self.data |= {
            name: pack_bytes(x) for name, x in (("clean", self.clean), ("noise", self.noise), ("other", other))
        }
        if (size := self.size()) > ROOM:
            raise ValueError(
                f"{n} images of {height} x {width} pixels take {size:,} bytes, more than {ROOM:,}: show fewer "
                f"(clean[:{max(1, n // 2)}]) or smaller ones"
            )

    def static_html(self) -> str:
        clean, mask = self.clean[0], self.masks[0]
        corrupted = np.where(mask[:, :, None], self.noise[0], clean)
        seen = np.where(mask[:, :, None], COVERED, FREE).astype(np.uint8)
        pictures = [
            (name, picture_html(image_url(pixels), name, WIDTH))
            for name, pixels in (("clean", clean), ("mask", seen), ("corrupted", corrupted))
        ]
        rows = [
            [f"image {i}", len(blocks), f"{mask.sum():,} of {mask.size:,}", percent(int(mask.sum()), mask.size)]
            for i, (blocks, mask) in enumerate(zip(self.blocks, self.masks))
        ]
        caption = "What the blocks cover, each pixel counted once; images are counted from 0"
        return (
            f"<p><b>{html.escape(self.data['title'])}</b>: image 0</p>{side_by_side_html(pictures)}"
            f"{table_html(caption, ['', 'blocks', 'pixels', 'share'], rows)}"
        )


def percent(count: int, total: int) -> str:
    """Rounded to 0.1 %, and half of that upwards, as the page does."""
    return f"{(2000 * count + total) // (2 * total) / 10:.1f} %"


def checked_blocks(blocks: Any, n: int, side: int) -> list[list[list[int]]]:
    """(n, K, 4) -> of each image the blocks that are not empty."""
    blocks = as_array(blocks)
    if blocks.ndim != 3 or len(blocks) != n or blocks.shape[2] != 4:
        raise ValueError(f"blocks has shape {blocks.shape}: must be ({n}, K, 4), top, left, height and width of each")
    if not np.issubdtype(blocks.dtype, np.integer):
        raise ValueError(f"blocks is of {blocks.dtype}: must be whole numbers of pixels")
    top, left, height, width = np.moveaxis(blocks, 2, 0)
    good = (np.minimum(top, left) >= 0) & (width >= 1) & (top + height <= side) & (left + width <= side)
    wrong = (height < 0) | ((height > 0) & ~good)
    if wrong.any():
        i, k = np.argwhere(wrong)[0]
        raise ValueError(f"blocks[{i}, {k}]={blocks[i, k].tolist()}: must lie within images of {side} x {side} pixels")
    return [each[each[:, 2] > 0].tolist() for each in blocks]


def union(blocks: list[list[int]], side: int) -> np.ndarray:
    """True in any of the blocks: (side, side)."""
    inside = np.zeros((side, side), dtype=bool)
    for top, left, height, width in blocks:
        inside[top : top + height, left : left + width] = True
    return inside
