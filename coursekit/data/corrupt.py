"""Corrupted views for SiT: turned, with blocks of noise or of another image in them, and in other colours.

As in ``augment``, what is random is drawn apart from what is done: `draw_views` gives parameters, one row per image,
and `corrupted_views` applies them, so that a widget can show what was drawn, change it, and see what becomes of it::

    drawn = draw_views(len(images), 32, 32, generator, size=32, sigma=(0.1, 1.0))
    batch = corrupted_views(images, drawn)
    turned = corrupted_views(images, drawn | {"rotations": (drawn["rotations"] + 1) % 4})

Source: Atito, Awais and Kittler (2021), "SiT: Self-supervised vision Transformer", arXiv 2104.03602: blocks, shares and
rotations; the changes of colour are those of ``augment``. Written without a look at the paper's program; ours are the
scale of the crops, the odds, uniform noise, how large blocks are below the largest, and that a view has either noise or
another image in it.

Legend: B images, n images or views, V = 2 views of an image, S side of a view in pixels, K blocks.
"""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from coursekit.data.augment import (
    blur,
    check,
    draw_boxes,
    draw_chosen,
    draw_jitter,
    draw_sigmas,
    flip,
    greyscale,
    jitter,
    pick,
    resized_crop,
)
from coursekit.data.batches import Batch

VIEWS = 2
FLIPPED, GREY, BLURRED = 0.5, 0.2, 0.5  # how often
NOISE, FOREIGN = (0.5, 0.7), (0.0, 0.35)  # share of the pixels in blocks of noise, and in blocks of another image


# --- Drawing ---------------------------------------------------------------------------------------------------


def draw_blocks(
    n: int, height: int, width: int, generator: torch.Generator, share: Tensor, largest: float = 0.3
) -> Tensor:
    """Blocks (n, K, 4) in each image, until their union covers its share: top, left, height, width in whole pixels.

    Height and width are uniform from 1 pixel to ``largest`` of the image's, the place is uniform among those that fit.
    Blocks may overlap; a pixel in several of them counts once. The last one is cut below where the share is reached, so
    that less than one row of a block is covered in excess. K is as many as the image with most blocks needs; the others
    end with blocks of height 0.

    Args:
        share: wanted of each image, (n,), in 0..1; at least one pixel is covered.
        largest: 0.3 of a side, in the paper.

    Raises:
        ValueError: a share is not in 0..1, or no pixel is as small as ``largest``.
    """
    if share.shape != (n,) or not ((share >= 0) & (share <= 1)).all():
        raise ValueError(f"share={share.tolist()}: must be {n} numbers in 0..1")
    limits = [int(largest * side) for side in (height, width)]
    if not (0 < largest <= 1 and min(limits) >= 1):
        raise ValueError(f"largest={largest}: must lie in 0..1, and be a pixel at least of {height} × {width}")
    device = generator.device
    row, column = torch.arange(height, device=device), torch.arange(width, device=device)
    wanted = (share.to(device).double() * height * width).ceil().clamp(min=1)
    covered, count = torch.zeros(n, height, width, dtype=torch.bool, device=device), torch.zeros_like(wanted)
    blocks = []
    while (count < wanted).any():
        lot = torch.rand(4, n, generator=generator, device=device)
        h, w = ((lot[i] * limit).long() + 1 for i, limit in enumerate(limits))
        top, left = (lot[2] * (height - h + 1)).long(), (lot[3] * (width - w + 1)).long()
        inside = within(row, top, h)[:, :, None] & within(column, left, w)[:, None]  # (n, height, width)
        so_far = count[:, None] + (inside & ~covered).sum(dim=2).cumsum(dim=1)  # with all rows down to this one
        # a row is needed where those above it are not enough; none where the image has its share already
        needed = F.pad(so_far, (1, 0))[:, :-1]
        needed[:, 0] = count
        kept = within(row, top, h) & (needed < wanted[:, None])
        blocks.append(torch.stack([top, left, kept.sum(dim=1), w], dim=1))
        covered |= inside & kept[:, :, None]
        count = covered.sum(dim=(1, 2))
    return torch.stack(blocks, dim=1)


def draw_others(n: int, generator: torch.Generator) -> Tensor:
    """For each of n images the number of another one, uniform among the n - 1 others: (n,)."""
    if n < 2:
        raise ValueError(f"n={n}: must be at least 2, or there is no other image")
    step = 1 + torch.randint(n - 1, (n,), generator=generator, device=generator.device)
    return (torch.arange(n, device=generator.device) + step) % n


def draw_views(
    n: int,
    height: int,
    width: int,
    generator: torch.Generator,
    size: int = 224,
    scale: tuple[float, float] = (0.4, 1.0),
    noise: tuple[float, float] = NOISE,
    foreign: tuple[float, float] = FOREIGN,
    p_foreign: float = 0.5,
    largest: float = 0.3,
    sigma: tuple[float, float] = (0.1, 2.0),
    colours: Mapping[str, float] | None = None,
) -> Batch:
    """Draw all that `corrupted_views` does to n images: two views of each, independent of each other.

    Args:
        height, width: of the images in pixels.
        size: S, of the views.
        scale: what share of the image's area a view shows.
        noise, foreign: the share of a view's pixels in blocks lies in the first of these where they are noise, in the
            second (and is one pixel at least) where they show another image; what is wanted is uniform from the lower
            to a row of the largest block below the upper one.
        p_foreign: how often that is; 0 for a batch of one image.
        largest: see `draw_blocks`.
        sigma: of the blur, in pixels of the view; what suits 224 is too much for 32.
        colours: strengths for ``draw_jitter``; None for its own.

    Returns:
        ``boxes`` (n, V, 4) as from ``draw_boxes``; ``flipped`` (n, V); ``rotations`` (n, V), quarter turns
        anticlockwise, 0..3; ``blocks`` (n, V, K, 4); ``others`` (n, V), the number of the image that they show, -1 for
        noise; ``noise`` (n, V, 3, S, S), in 0..1; ``jitter`` (n, V, 4); ``grey`` (n, V); ``sigmas`` (n, V).

    Raises:
        ValueError: shares that do not lie in 0..1, or too close together for images of so few pixels; or what the
            functions that draw each of them refuse.
    """
    if size < 1:
        raise ValueError(f"size={size}: must be at least 1")
    excess = int(largest * size) / size**2  # less than that is too much with the last row
    for name, (low, high) in {"noise": noise, "foreign": foreign}.items():
        if not (0 <= low <= high <= 1 and high - low >= excess):
            raise ValueError(
                f"{name}={(low, high)}: must be two shares in 0..1, the second at least {excess:.4f} above the first, "
                "as much as a row of a block"
            )
    views = []
    for _ in range(VIEWS):
        drawn = {"boxes": draw_boxes(n, height, width, generator, scale), "flipped": draw_chosen(n, FLIPPED, generator)}
        drawn["rotations"] = torch.randint(4, (n,), generator=generator, device=generator.device)
        chosen = draw_chosen(n, p_foreign, generator)
        lot = torch.rand(n, generator=generator, device=generator.device).double()
        share = [low + lot * (high - excess - low) for low, high in (noise, foreign)]
        drawn["blocks"] = draw_blocks(n, size, size, generator, torch.where(chosen, share[1], share[0]), largest)
        drawn["others"] = chosen.long() - 1
        if p_foreign:
            drawn["others"] = torch.where(chosen, draw_others(n, generator), -1)
        drawn["noise"] = torch.rand(n, 3, size, size, generator=generator, device=generator.device)
        drawn["jitter"] = draw_jitter(n, generator, **colours or {})
        drawn["grey"] = draw_chosen(n, GREY, generator)
        drawn["sigmas"] = draw_sigmas(n, generator, sigma, BLURRED)
        views.append(drawn)
    most = max(drawn["blocks"].shape[1] for drawn in views)
    for drawn in views:
        drawn["blocks"] = F.pad(drawn["blocks"], (0, 0, 0, most - drawn["blocks"].shape[1]))
    return {name: torch.stack([drawn[name] for drawn in views], dim=1) for name in views[0]}


# --- Doing -----------------------------------------------------------------------------------------------------


def within(place: Tensor, start: Tensor, length: Tensor) -> Tensor:
    """Whether each place (S,) lies in ``start <= place < start + length``, both (...): (..., S)."""
    return (place >= start[..., None]) & (place < (start + length)[..., None])


def cover(blocks: Tensor, height: int, width: int) -> Tensor:
    """The union of the blocks (n, K, 4) of each image, True inside: (n, height, width)."""
    top, left, h, w = blocks.unbind(dim=-1)
    rows = within(torch.arange(height, device=blocks.device), top, h).float()  # (n, K, height)
    columns = within(torch.arange(width, device=blocks.device), left, w).float()
    return rows.mT @ columns > 0  # in how many blocks a pixel lies: (n, height, K) @ (n, K, width)


def replace(images: Tensor, masks: Tensor, filling: Tensor) -> Tensor:
    """``filling`` where ``masks`` (B, H, W) is True, ``images`` elsewhere: (B, C, H, W)."""
    if masks.shape != (len(images), *images.shape[2:]) or filling.shape != images.shape:
        raise ValueError(
            f"masks of shape {tuple(masks.shape)} and filling of {tuple(filling.shape)}: must be those of images of "
            f"{tuple(images.shape)}"
        )
    return torch.where(masks[:, None], filling, images)


def rotate(images: Tensor, turns: Tensor) -> Tensor:
    """Turn each image by its number of quarters, anticlockwise; square images, ``turns`` (B,) of 0..3."""
    check(images, turns, "turns", least=0)
    if images.shape[2] != images.shape[3]:
        raise ValueError(f"images of {images.shape[2]} × {images.shape[3]}: must be square to be turned")
    if (turns > 3).any():
        raise ValueError(f"turns with {int(turns.max())}: must be 0, 1, 2 or 3 quarters")
    for k in (1, 2, 3):
        images = pick(turns == k, images.rot90(k, (2, 3)), images)
    return images


def corrupted_views(images: Tensor, drawn: Batch) -> Batch:
    """Two corrupted views of each image and what they should be restored to, as `draw_views` has drawn them.

    A view is cut out, mirrored and turned: that is the clean one. Then its blocks are filled, with noise or with what
    the clean view of the same number of another image has in this place; then colours are changed, some are made grey,
    some blurred, blocks and all.

    Args:
        images: (B, 3, height, width) of floats in 0..1; or (B, P, 3, height, width), P pictures of the same thing,
            which the views show in turns.
        drawn: by `draw_views`; ``noise`` decides on the size of the views.

    Returns:
        For ``coursekit.models.sit.sit_loss``: ``views`` and ``clean`` (B, V, 3, S, S), in 0..1; ``masks`` (B, V, S, S),
        True in blocks; ``rotations`` (B, V).

    Raises:
        ValueError: what was drawn is not of these images, or what the functions of ``augment`` refuse.
    """
    drawn = {name: x.to(images.device) for name, x in drawn.items()}
    if drawn["rotations"].shape != (len(images), VIEWS):
        raise ValueError(f"drawn for {len(drawn['rotations'])} images: these are {len(images)}")
    size, found = drawn["noise"].shape[-1], []
    pictures = images if images.dim() == 5 else images[:, None]
    for v in range(VIEWS):
        at = {name: x[:, v] for name, x in drawn.items()}
        picture = pictures[:, v % pictures.shape[1]]
        clean = rotate(flip(resized_crop(picture, at["boxes"], size), at["flipped"]), at["rotations"])
        masks = cover(at["blocks"], size, size)
        filling = pick(at["others"] >= 0, clean[at["others"].clamp(min=0)], at["noise"].to(clean))
        x = greyscale(jitter(replace(clean, masks, filling), at["jitter"]), at["grey"])
        found.append((blur(x, at["sigmas"]), clean, masks, at["rotations"]))
    return {
        name: torch.stack(parts, dim=1) for name, parts in zip(("views", "clean", "masks", "rotations"), zip(*found))
    }
