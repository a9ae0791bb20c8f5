"""Views of images for DINO: two global crops and several local ones, each changed in place and colour by itself.

Source: Caron et al. (2021), arXiv 2104.14294, section 3.1, and its program; the crops are those of Caron et al. (2020),
arXiv 2006.09882, the changes of colour those of Grill et al. (2020), arXiv 2006.07733, as in ``augment``.
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from coursekit.data.augment import (
    blur,
    draw_boxes,
    draw_chosen,
    draw_jitter,
    draw_sigmas,
    flip,
    greyscale,
    jitter,
    resized_crop,
    solarise,
)
from coursekit.data.batches import Batch

FLIPPED, GREY = 0.5, 0.2  # how often, in all views


class Odds(NamedTuple):
    """How often a view is blurred, and how often solarised."""

    blur: float
    solarise: float


GLOBAL, LOCAL = (Odds(1.0, 0.0), Odds(0.1, 0.2)), Odds(0.5, 0.0)


def multi_crop(
    images: Tensor,
    generator: torch.Generator,
    n_local: int = 8,
    sizes: tuple[int, int] = (224, 96),
    scales: tuple[tuple[float, float], tuple[float, float]] = ((0.4, 1.0), (0.05, 0.4)),
    sigma: tuple[float, float] = (0.1, 2.0),
    colours: Mapping[str, float] | None = None,
) -> Batch:
    """Draw two global views and ``n_local`` local ones of each image; the defaults are those for ImageNet.

    The first global view is always blurred; the second with probability 0.1, and solarised with 0.2; local views are
    blurred with 0.5. All are mirrored with 0.5, and grey with 0.2.

    Args:
        images: (B, 3, height, width) of floats in 0..1; or (B, P, 3, height, width), P pictures of the same thing,
            which the global views show in turns, and so do the local ones.
        generator: of all that is random.
        n_local: 0 for none; the result has no ``local`` then.
        sizes: side of the global views and of the local ones in pixels.
        scales: what share of the image's area they show, of global and of local views.
        sigma: of the blur, in pixels of the view; what suits 224 is too much for 32.
        colours: strengths for ``draw_jitter``; None for its own.

    Returns:
        ``global`` (B, 2, 3, side, side) and ``local`` (B, n_local, 3, side, side), in 0..1; with ``global_boxes``
        (B, 2, 4) and ``local_boxes`` (B, n_local, 4), where they lie in their image: top, left, height, width in
        pixels.

    Raises:
        ValueError: ``n_local`` below 0, or what the functions of ``augment`` refuse.
    """
    if n_local < 0:
        raise ValueError(f"n_local={n_local}: must be at least 0")
    found, pictures = {}, images if images.dim() == 5 else images[:, None]
    for name, views, size, scale in zip(("global", "local"), (GLOBAL, (LOCAL,) * n_local), sizes, scales):
        drawn = [
            draw_view(pictures[:, v % pictures.shape[1]], generator, size, scale, odds, sigma, colours or {})
            for v, odds in enumerate(views)
        ]
        if drawn:
            found[name], found[f"{name}_boxes"] = (torch.stack(parts, dim=1) for parts in zip(*drawn))
    return found


def draw_view(
    images: Tensor,
    generator: torch.Generator,
    size: int,
    scale: tuple[float, float],
    odds: Odds,
    sigma: tuple[float, float],
    colours: Mapping[str, float],
) -> tuple[Tensor, Tensor]:
    """One view of each image, (B, 3, size, size), and its box, (B, 4)."""
    n, _, height, width = images.shape
    boxes = draw_boxes(n, height, width, generator, scale)
    x = flip(resized_crop(images, boxes, size), draw_chosen(n, FLIPPED, generator))
    x = greyscale(jitter(x, draw_jitter(n, generator, **colours)), draw_chosen(n, GREY, generator))
    x = blur(x, draw_sigmas(n, generator, sigma, odds.blur))
    return solarise(x, draw_chosen(n, odds.solarise, generator)), boxes
