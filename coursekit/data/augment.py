"""Random changes of images that leave their content: crops, flips, colours, blur; each image of a batch has its own.

What is random is drawn apart from what is done: `draw_…` functions give parameters, one row per image, and plain
functions apply them to batches (B, C, H, W) of floats in 0..1, on any device. So the same crop can be given to an image
and to its mask, a lecture can show what was drawn, and every device does the same::

    boxes = draw_boxes(len(images), 32, 32, generator, scale=(0.4, 1.0))
    views = jitter(resized_crop(images, boxes, 32), draw_jitter(len(images), generator))
    seen = resized_crop(masks[:, None].float(), boxes, 32)[:, 0] > 0.5

Source: the changes, and the defaults of `draw_jitter`, are those of Grill et al. (2020), arXiv 2006.07733, appendix B,
which DINO took over (Caron et al. 2021, arXiv 2104.14294, section 3.2). Crops are interpolated linearly, there by
cubics; colours change in one order, there in a random one. Sigmas are in pixels: what suits 224 × 224 is too much for
32 × 32.
"""

import math

import torch
from torch import Tensor

GREY = (0.299, 0.587, 0.114)  # how bright red, green and blue look: ITU-R BT.601


# --- Drawing ---------------------------------------------------------------------------------------------------


def draw_boxes(
    n: int,
    height: int,
    width: int,
    generator: torch.Generator,
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
) -> Tensor:
    """Boxes (n, 4) inside of an image: top, left, height and width in pixels, not rounded.

    The share s of the image's area is uniform in ``scale``. The ratio of width to height is log-uniform in that part of
    ``ratio`` for which a box of this area fits, ``s W/H`` to ``W/(s H)``; the place is uniform among those that fit.
    (Szegedy et al. 2015, arXiv 1409.4842, section 6. The usual program draws again up to ten times where a box does not
    fit, which makes large ones rarer.)

    Raises:
        ValueError: n or a side below 1, ``scale`` not within 0..1, or no box of the largest area and such a ratio fits.
    """
    if min(n, height, width) < 1:
        raise ValueError(f"n={n}, height={height}, width={width}: all must be at least 1")
    if not 0 < scale[0] <= scale[1] <= 1:
        raise ValueError(f"scale={scale}: must be two shares of the area in 0..1, above 0, the smaller one first")
    if not 0 < ratio[0] <= ratio[1]:
        raise ValueError(f"ratio={ratio}: must be two numbers above 0, the smaller one first")
    largest = (1 - 1e-9) * scale[1]  # rounding is no reason to refuse the whole image
    if ratio[0] * height * largest > width or width * largest > ratio[1] * height:
        raise ValueError(
            f"scale={scale}, ratio={ratio}: the largest do not fit into {height} × {width}: lower the scale"
        )
    lot = torch.rand(4, n, generator=generator, device=generator.device)
    share = scale[0] + (scale[1] - scale[0]) * lot[0]
    low = (share * width / height).clamp(min=ratio[0]).log()
    high = (width / height / share).clamp(max=ratio[1]).log()
    chosen = (low + (high - low) * lot[1]).exp()
    h = (share * height * width / chosen).sqrt().clamp(max=height)
    w = (share * height * width * chosen).sqrt().clamp(max=width)
    return torch.stack([lot[2] * (height - h), lot[3] * (width - w), h, w], dim=1)


def draw_chosen(n: int, p: float, generator: torch.Generator) -> Tensor:
    """Booleans (n,), each True with probability ``p``: which images to flip, to make grey, to solarise."""
    if n < 1:
        raise ValueError(f"n={n}: must be at least 1")
    if not 0 <= p <= 1:
        raise ValueError(f"p={p}: must lie in 0..1")
    return torch.rand(n, generator=generator, device=generator.device) < p


def draw_jitter(
    n: int,
    generator: torch.Generator,
    brightness: float = 0.4,
    contrast: float = 0.4,
    saturation: float = 0.2,
    hue: float = 0.1,
    p: float = 0.8,
) -> Tensor:
    """Parameters (n, 4) of `jitter`: three factors, uniform in 1 ± their strength, and a turn of hue in ± ``hue``.

    With probability ``1 - p`` a row is (1, 1, 1, 0), which changes nothing.
    """
    strengths = {"brightness": brightness, "contrast": contrast, "saturation": saturation, "hue": hue}
    for name, strength in strengths.items():
        most = 0.5 if name == "hue" else 1
        if not 0 <= strength <= most:
            raise ValueError(f"{name}={strength}: must lie in 0..{most}")
    chosen = draw_chosen(n, p, generator)
    lot = 2 * torch.rand(n, 4, generator=generator, device=generator.device) - 1
    strength, still = (lot.new_tensor(row) for row in (list(strengths.values()), [1.0, 1.0, 1.0, 0.0]))
    return still + lot * strength * chosen[:, None]


def draw_sigmas(n: int, generator: torch.Generator, sigma: tuple[float, float] = (0.1, 2.0), p: float = 0.5) -> Tensor:
    """Standard deviations (n,) for `blur` in pixels, uniform in ``sigma``; 0 with probability ``1 - p``."""
    if not 0 <= sigma[0] <= sigma[1]:
        raise ValueError(f"sigma={sigma}: must be two numbers of pixels, at least 0, the smaller one first")
    chosen = draw_chosen(n, p, generator)
    lot = torch.rand(n, generator=generator, device=generator.device)
    return (sigma[0] + (sigma[1] - sigma[0]) * lot) * chosen


# --- Doing: places ---------------------------------------------------------------------------------------------


def resized_crop(images: Tensor, boxes: Tensor, size: int) -> Tensor:
    """Cut a box out of each image and scale it to ``size`` × ``size`` pixels.

    Along each axis, output pixel i stands for the place c = start + (i + 1/2) · length / size, and is the mean of the
    input pixels j with weights max(0, 1 - ``|j + 1/2 - c|`` / r), r = max(1, length / size): linear interpolation,
    spread over more pixels where the image gets smaller. (Pillow's ``resize(…, BILINEAR, box=…)`` does the same.)

    Args:
        images: (B, C, H, W).
        boxes: (B, 4), as from `draw_boxes`: top, left, height, width in pixels.
        size: S.

    Returns:
        (B, C, S, S).
    """
    check(images, boxes, "boxes", 4)
    if size < 1:
        raise ValueError(f"size={size}: must be at least 1")
    height, width = images.shape[2:]
    top, left, h, w = boxes.float().unbind(dim=1)
    slack = 1e-3  # for rounding
    bad = (
        (top < -slack) | (left < -slack) | (top + h > height + slack) | (left + w > width + slack) | (h <= 0) | (w <= 0)
    )
    if bad.any():
        row = int(bad.int().argmax())
        raise ValueError(
            f"boxes[{row}]={[round(x, 3) for x in boxes[row].tolist()]}: top, left, height and width must lie within "
            f"an image of {height} × {width}"
        )
    rows, columns = interpolation(top, h, height, size), interpolation(left, w, width, size)
    return weighted(images, rows, columns)


def interpolation(start: Tensor, length: Tensor, inputs: int, outputs: int) -> Tensor:
    """Weights (B, outputs, inputs) of the formula in `resized_crop`; each row sums to 1."""
    step = (length / outputs)[:, None]  # (B, 1)
    centre = start[:, None] + (torch.arange(outputs, device=start.device) + 0.5) * step  # (B, outputs)
    pixel = torch.arange(inputs, device=start.device) + 0.5
    weights = (1 - (pixel - centre[:, :, None]).abs() / step[:, :, None].clamp(min=1)).clamp(min=0)
    return weights / weights.sum(dim=-1, keepdim=True)


def weighted(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Weighted means along both axes: ``rows`` (B, S, H) · images (B, C, H, W) · ``columns`` (B, S, W) transposed."""
    rows, columns = (weights.to(images)[:, None] for weights in (rows, columns))
    return (rows @ images @ columns.mT).clamp(0, 1)  # rounding can lead out of 0..1


def flip(images: Tensor, flipped: Tensor) -> Tensor:
    """Exchange left and right of the images for which ``flipped`` (B,) is True."""
    check(images, flipped, "flipped")
    return pick(flipped, images.flip(-1), images)


# --- Doing: colours --------------------------------------------------------------------------------------------


def jitter(images: Tensor, parameters: Tensor) -> Tensor:
    """Change brightness, contrast, saturation and hue, in this order, by the columns of ``parameters`` (B, 4).

    See `change_brightness`, `change_contrast`, `change_saturation` and `turn_hue`.
    """
    check(images, parameters, "parameters", 4)
    b, c, s, h = parameters.unbind(dim=1)
    return turn_hue(change_saturation(change_contrast(change_brightness(images, b), c), s), h)


def change_brightness(images: Tensor, factors: Tensor) -> Tensor:
    """f x, cut off at 0 and 1; ``factors`` (B,)."""
    check(images, factors, "factors", least=0)
    return (images * each(factors, images)).clamp(0, 1)


def change_contrast(images: Tensor, factors: Tensor) -> Tensor:
    """f x + (1 - f) m, cut off at 0 and 1, where m is the mean brightness of the image; ``factors`` (B,)."""
    check(images, factors, "factors", least=0)
    f = each(factors, images)
    return (f * images + (1 - f) * grey(images).mean(dim=(2, 3), keepdim=True)).clamp(0, 1)


def change_saturation(images: Tensor, factors: Tensor) -> Tensor:
    """f x + (1 - f) g, cut off at 0 and 1, where g is the brightness of the pixel; ``factors`` (B,)."""
    check(images, factors, "factors", least=0)
    f = each(factors, images)
    return (f * images + (1 - f) * grey(images)).clamp(0, 1)


def turn_hue(images: Tensor, turns: Tensor) -> Tensor:
    """Turn the hue by ``turns`` (B,), where 1 is all around; saturation and value (as in HSV) stay.

    With V = max(r, g, b), chroma C = V - min(r, g, b) and hue h in sixths of a turn, channels r, g and b of the result
    are V - C · clamp(min(k, 4 - k), 0, 1) for k = (5 + h) mod 6, (3 + h) mod 6 and (1 + h) mod 6. (Smith 1978.)
    """
    check(images, turns, "turns")
    red, green, blue = channels(images)
    value = red.maximum(green).maximum(blue)
    chroma = value - red.minimum(green).minimum(blue)
    divisor = chroma.where(chroma > 0, 1)  # a grey pixel has no hue, and C = 0 leaves it as it is
    below = ((blue - red) / divisor + 2).where(value == green, (red - green) / divisor + 4)
    hue = ((green - blue) / divisor).where(value == red, below) + 6 * each(turns, images)[:, 0]
    k = torch.stack([(hue + n) % 6 for n in (5, 3, 1)], dim=1)
    turned = value[:, None] - chroma[:, None] * torch.minimum(k, 4 - k).clamp(0, 1)
    return turned.clamp(0, 1)


def greyscale(images: Tensor, chosen: Tensor) -> Tensor:
    """Give all channels 0.299 r + 0.587 g + 0.114 b in the images for which ``chosen`` (B,) is True."""
    check(images, chosen, "chosen")
    return pick(chosen, grey(images).expand_as(images), images)


def solarise(images: Tensor, chosen: Tensor, threshold: float = 0.5) -> Tensor:
    """1 - x for all x of at least ``threshold``, in the images for which ``chosen`` (B,) is True."""
    check(images, chosen, "chosen")
    return pick(chosen, torch.where(images < threshold, images, 1 - images), images)


def blur(images: Tensor, sigmas: Tensor) -> Tensor:
    """Gaussian blur: weights proportional to exp(-d² / 2 σ²) at a distance of d pixels along each axis.

    At the border only pixels of the image count. ``sigmas`` (B,) are in pixels; 0 leaves an image as it is.
    """
    check(images, sigmas, "sigmas", least=0)

    def weights(side: int) -> Tensor:
        place = torch.arange(side, device=sigmas.device, dtype=torch.float32)
        # below a thousandth of a pixel the other weights are 0 in any case
        z = (place[:, None] - place) / sigmas.float().clamp(min=1e-3)[:, None, None]  # (B, side, side)
        weights = (-0.5 * z * z).softmax(dim=-1)
        # numbers below 1e-38 are denormal: processors multiply with them slowly
        return weights.where(weights > 1e-20, 0)

    height, width = images.shape[2:]
    return weighted(images, weights(height), weights(width))


def grey(images: Tensor) -> Tensor:
    """How bright each pixel looks, 0.299 r + 0.587 g + 0.114 b, (B, 1, H, W)."""
    red, green, blue = channels(images)
    return (GREY[0] * red + GREY[1] * green + GREY[2] * blue)[:, None]


def channels(images: Tensor) -> tuple[Tensor, ...]:
    if images.shape[1] != 3:
        raise ValueError(f"images of shape {tuple(images.shape)}: must have 3 channels, red, green and blue")
    return images.unbind(dim=1)


def each(parameters: Tensor, images: Tensor) -> Tensor:
    """One number per image (B, 1, 1, 1), of the images' type and device."""
    return parameters.to(images)[:, None, None, None]


def pick(chosen: Tensor, changed: Tensor, images: Tensor) -> Tensor:
    return torch.where(chosen.bool().to(images.device)[:, None, None, None], changed, images)


def check(images: Tensor, parameters: Tensor, name: str, columns: int = 0, least: float = -math.inf) -> None:
    if images.ndim != 4 or not images.is_floating_point():
        raise ValueError(
            f"images of shape {tuple(images.shape)} and type {images.dtype}: must be (B, C, H, W) of floats in 0..1; "
            "divide bytes by 255"
        )
    expected = (len(images), columns) if columns else (len(images),)
    if parameters.shape != expected:
        raise ValueError(f"{name} of shape {tuple(parameters.shape)}: must be {expected}, one row per image")
    good = parameters.isfinite() & (parameters >= least)
    if not good.all():
        wrong = parameters[~good][0].item()
        raise ValueError(f"{name} with {wrong}: must be finite" + (f" and at least {least}" if least == 0 else ""))
