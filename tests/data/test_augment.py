"""Changes of images beside Pillow, SciPy and colorsys, which share no code with them."""

import colorsys
import math

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image, ImageEnhance, ImageOps
from scipy.ndimage import gaussian_filter
from scipy.stats import kstest

from coursekit.data.augment import (
    blur,
    change_brightness,
    change_contrast,
    change_saturation,
    draw_boxes,
    draw_chosen,
    draw_jitter,
    draw_sigmas,
    flip,
    greyscale,
    jitter,
    resized_crop,
    solarise,
    turn_hue,
)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def pictures(n: int = 6, height: int = 12, width: int = 17, seed: int = 0) -> torch.Tensor:
    """Bytes as floats, reddish rather than blue, so that the channels' weights matter in a mean too."""
    lot = torch.rand(n, 3, height, width, generator=seeded(seed))
    return (lot ** torch.tensor([0.4, 1.0, 3.0])[:, None, None] * 255).round() / 255


def as_pillow(image: torch.Tensor) -> Image.Image:
    return Image.fromarray((image * 255).round().to(torch.uint8).permute(1, 2, 0).numpy())


def from_pillow(image: Image.Image) -> torch.Tensor:
    return torch.tensor(np.array(image), dtype=torch.float32).permute(2, 0, 1) / 255


def some_sigmas(n: int) -> torch.Tensor:
    return torch.linspace(0, 2.5, n)


# each with parameters that differ from image to image
OPERATIONS = {
    "resized_crop": (lambda x, p: resized_crop(x, p, 7), lambda n: draw_boxes(n, 12, 17, seeded(1), scale=(0.1, 0.8))),
    "flip": (flip, lambda n: torch.arange(n) % 2 == 0),
    "change_brightness": (change_brightness, lambda n: torch.linspace(0, 2, n)),
    "change_contrast": (change_contrast, lambda n: torch.linspace(0, 2, n)),
    "change_saturation": (change_saturation, lambda n: torch.linspace(0, 2, n)),
    "turn_hue": (turn_hue, lambda n: torch.linspace(-0.5, 0.5, n)),
    "jitter": (jitter, lambda n: draw_jitter(n, seeded(1), p=1)),
    "greyscale": (greyscale, lambda n: torch.arange(n) % 2 == 0),
    "solarise": (solarise, lambda n: torch.arange(n) % 2 == 0),
    "blur": (blur, some_sigmas),
}
operations = pytest.mark.parametrize(("operation", "parameters"), OPERATIONS.values(), ids=OPERATIONS)


# --- what all of them have in common --------------------------------------------------------------------------


@operations
def test_each_image_has_its_own_parameters(operation, parameters):
    """Catches parameters that are broadcast along a wrong axis, and statistics taken over the batch."""
    images, p = pictures(), parameters(6)
    together = operation(images, p)
    alone = torch.cat([operation(images[i : i + 1], p[i : i + 1]) for i in range(6)])
    torch.testing.assert_close(together, alone, atol=1e-6, rtol=0)
    assert not torch.allclose(together, operation(images, p.flip(0)), atol=0.02)


@operations
def test_every_device_does_the_same_and_images_stay_as_they_are(operation, parameters, where):
    images, p = pictures(), parameters(6)
    there = images.to(where)
    found = operation(there, p)
    assert found.device == there.device
    assert torch.equal(there.cpu(), images), "the images were changed in place"
    torch.testing.assert_close(found.cpu(), operation(images, p), atol=1e-5, rtol=0)
    torch.testing.assert_close(operation(there, p.to(where)), found, atol=1e-6, rtol=0)


@operations
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_type_of_the_images_stays(operation, parameters, dtype):
    images, p = pictures(), parameters(6)
    found = operation(images.to(dtype), p)
    assert found.dtype == dtype
    if dtype == torch.float64:
        torch.testing.assert_close(found.float(), operation(images, p), atol=1e-5, rtol=0)


@settings(max_examples=40)
@given(seed=st.integers(0, 10_000), extreme=st.booleans())
def test_values_stay_within_0_and_1(seed, extreme):
    images = torch.rand(4, 3, 9, 11, generator=seeded(seed))
    if extreme:
        images = images.round()
    generator = seeded(seed)
    for found in (
        resized_crop(images, draw_boxes(4, 9, 11, generator), 8),
        jitter(images, draw_jitter(4, generator, 1.0, 1.0, 1.0, 0.5, p=1)),
        blur(images, draw_sigmas(4, generator, p=1)),
        solarise(images, draw_chosen(4, 0.5, generator)),
        greyscale(images, draw_chosen(4, 0.5, generator)),
        turn_hue(images, torch.rand(4, generator=generator) * 8 - 4),
    ):
        assert 0 <= found.min() <= found.max() <= 1


@pytest.mark.parametrize("name", [name for name in OPERATIONS if name not in ("resized_crop", "flip", "blur")])
def test_colours_of_a_pixel_do_not_depend_on_its_place(name):
    operation, parameters = OPERATIONS[name]
    images, p = pictures(), parameters(6)
    turned = operation(images.flip(2).mT, p)
    torch.testing.assert_close(turned.mT.flip(2), operation(images, p), atol=1e-6, rtol=0)


# --- crops ----------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(seed=st.integers(0, 10_000), size=st.integers(1, 20), height=st.integers(1, 20), width=st.integers(1, 20))
def test_a_crop_is_pillows(seed, size, height, width):
    """Smaller and larger, odd sides, and boxes that end between pixels."""
    images = torch.rand(3, 2, height, width, generator=seeded(seed))
    lot = torch.rand(3, 4, generator=seeded(seed + 1)).double()
    sides = torch.tensor([height, width])
    extent = (0.05 + 0.95 * lot[:, :2]) * sides
    boxes = torch.cat([(sides - extent) * lot[:, 2:], extent], dim=1).float()
    found = resized_crop(images, boxes, size)
    for image, (top, left, h, w), crop in zip(images, boxes.tolist(), found):
        box = (left, top, min(left + w, width), min(top + h, height))
        for channel, mine in zip(image, crop):
            picture = Image.fromarray(channel.numpy())
            expected = np.array(picture.resize((size, size), Image.Resampling.BILINEAR, box=box))
            torch.testing.assert_close(mine, torch.tensor(expected), atol=2e-5, rtol=0)


def test_the_whole_image_at_its_size_is_the_image():
    images = pictures(3, 9, 9)
    torch.testing.assert_close(resized_crop(images, torch.tensor([[0, 0, 9, 9]] * 3), 9), images, atol=1e-6, rtol=0)


def test_a_box_of_whole_pixels_is_a_slice():
    images, boxes = pictures(2, 10, 12), torch.tensor([[2, 5, 4, 4], [6, 0, 4, 4]])
    found = resized_crop(images, boxes, 4)
    torch.testing.assert_close(found[0], images[0, :, 2:6, 5:9], atol=1e-6, rtol=0)
    torch.testing.assert_close(found[1], images[1, :, 6:10, 0:4], atol=1e-6, rtol=0)


def test_a_mask_goes_with_its_image():
    masks = torch.zeros(8, 20, 20, dtype=torch.bool)
    masks[:, 4:15, 7:18] = True
    images = masks[:, None].expand(-1, 3, -1, -1).float()
    boxes = draw_boxes(8, 20, 20, seeded())
    seen = resized_crop(masks[:, None].float(), boxes, 16)[:, 0] > 0.5
    assert torch.equal(seen, resized_crop(images, boxes, 16)[:, 1] > 0.5)
    assert seen.any()
    assert not seen.all()


def test_boxes_are_drawn_evenly():
    """The share of the area, the ratio where all fit, and the place; Kolmogorov and Smirnov's test, seed fixed."""
    n = 4000
    top, left, h, w = draw_boxes(n, 40, 60, seeded(), scale=(0.08, 1.0), ratio=(3 / 4, 4 / 3 * 1.5)).double().unbind(1)
    assert kstest(((h * w / 2400 - 0.08) / 0.92).numpy(), "uniform").pvalue > 0.01
    for start, side, whole in ((top, h, 40), (left, w, 60)):
        free = (whole - side) > 0.5
        assert kstest((start / (whole - side))[free].numpy(), "uniform").pvalue > 0.01
    top, left, h, w = draw_boxes(n, 40, 60, seeded(), scale=(0.05, 0.2)).double().unbind(1)
    apart = torch.stack([top / (40 - h), left / (60 - w), h * w, w / h])
    assert torch.corrcoef(apart).fill_diagonal_(0).abs().max() < 5 / math.sqrt(n), "drawn from the same number"
    place = ((w / h).log() - math.log(3 / 4)) / (math.log(4 / 3) - math.log(3 / 4))
    assert kstest(place.numpy(), "uniform").pvalue > 0.01


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    height=st.integers(1, 64),
    width=st.integers(1, 64),
    low=st.floats(0.01, 1),
    more=st.floats(0, 1),
    wide=st.floats(1, 4),
)
@example(seed=0, height=11, width=15, low=1.0, more=0.0, wide=1.0)  # 15 / 11 is rounded up
def test_boxes_lie_in_the_image_and_keep_their_bounds(seed, height, width, low, more, wide):
    scale = (low, low + (1 - low) * more)
    ratio = (width / height / wide, width / height * wide)
    boxes = draw_boxes(50, height, width, seeded(seed), scale, ratio)
    top, left, h, w = boxes.unbind(dim=1)
    assert min(top.min(), left.min()) >= 0
    assert (top + h).max() <= height * (1 + 1e-6)
    assert (left + w).max() <= width * (1 + 1e-6)
    share = h * w / (height * width)
    assert scale[0] * (1 - 1e-5) <= share.min() <= share.max() <= scale[1] * (1 + 1e-5)
    assert ratio[0] * (1 - 1e-5) <= (w / h).min() <= (w / h).max() <= ratio[1] * (1 + 1e-5)
    resized_crop(torch.rand(50, 1, height, width), boxes, 4)  # which refuses boxes outside of the image


# --- flips and colours ----------------------------------------------------------------------------------------


def test_flip_exchanges_left_and_right_of_those_that_are_chosen():
    images = torch.arange(2 * 3 * 2 * 3).reshape(2, 3, 2, 3) / 36
    found = flip(images, torch.tensor([False, True]))
    assert torch.equal(found[0], images[0])
    for x in range(3):
        assert torch.equal(found[1, :, :, x], images[1, :, :, 2 - x])


# Pillow cuts its results off to whole bytes, and rounds the mean of a picture to one, of which 1 - f counts.
BYTE = 1 / 255


@pytest.mark.parametrize(
    ("change", "enhance", "tolerance"),
    [
        (change_brightness, ImageEnhance.Brightness, 1.01 * BYTE),
        (change_contrast, ImageEnhance.Contrast, 2.01 * BYTE),
        (change_saturation, ImageEnhance.Color, 2.01 * BYTE),
    ],
)
def test_light_and_contrast_and_saturation_are_pillows(change, enhance, tolerance):
    images, factors = pictures(), torch.tensor([0.0, 0.4, 0.8, 1.0, 1.3, 1.9])
    found = change(images, factors)
    for image, factor, mine in zip(images, factors.tolist(), found):
        expected = from_pillow(enhance(as_pillow(image)).enhance(factor))
        torch.testing.assert_close(mine, expected, atol=tolerance, rtol=0)
    assert torch.equal(found[3], images[3]) or torch.allclose(found[3], images[3], atol=1e-6)


@settings(max_examples=40)
@given(seed=st.integers(0, 10_000), turn=st.floats(-2, 2))
def test_hue_is_colorsyss(seed, turn):
    images = torch.rand(1, 3, 2, 4, generator=seeded(seed)).double()
    images[0, 1, 0] = images[0, 0, 0]  # two channels alike
    images[0, :, 1, 0] = 0.3  # grey
    images[0, :, 1, 1] = torch.tensor([0.0, 1.0, 0.0])
    found = turn_hue(images, torch.tensor([turn], dtype=torch.float64))
    for y in range(2):
        for x in range(4):
            h, s, v = colorsys.rgb_to_hsv(*images[0, :, y, x].tolist())
            expected = colorsys.hsv_to_rgb((h + turn) % 1, s, v)
            assert found[0, :, y, x].tolist() == pytest.approx(expected, abs=1e-12)


def test_a_third_of_a_turn_moves_the_channels_on():
    images = pictures(1)
    found = turn_hue(images, torch.tensor([1 / 3]))
    torch.testing.assert_close(found, images.roll(1, dims=1), atol=1e-6, rtol=0)


def test_jitter_is_the_four_changes_one_after_the_other():
    images, p = pictures(), draw_jitter(6, seeded(), p=1)
    expected = change_brightness(images, p[:, 0])
    expected = change_contrast(expected, p[:, 1])
    expected = change_saturation(expected, p[:, 2])
    assert torch.equal(jitter(images, p), turn_hue(expected, p[:, 3]))
    torch.testing.assert_close(jitter(images, torch.tensor([[1.0, 1, 1, 0]] * 6)), images, atol=1e-6, rtol=0)


def test_greyscale_is_pillows():
    images = pictures(2)
    found = greyscale(images, torch.tensor([True, False]))
    expected = torch.tensor(np.array(as_pillow(images[0]).convert("L"))) / 255
    torch.testing.assert_close(found[0], expected.expand(3, -1, -1), atol=0.51 * BYTE, rtol=0)
    assert torch.equal(found[1], images[1])


def test_solarise_is_pillows():
    images = (torch.arange(256) / 255).expand(2, 3, 1, 256)
    found = solarise(images, torch.tensor([True, False]))
    expected = from_pillow(ImageOps.solarize(as_pillow(images[0]), threshold=128))
    torch.testing.assert_close(found[0], expected, atol=1e-6, rtol=0)
    assert torch.equal(found[1], images[1])
    at = torch.tensor([0.0, 0.2, 0.25, 0.3]).expand(1, 3, 1, 4)
    assert solarise(at, torch.tensor([True]), threshold=0.25)[0, 0, 0].tolist() == pytest.approx([0, 0.2, 0.75, 0.7])


def test_blur_is_scipys_where_only_the_image_counts():
    images, sigmas = pictures(4).double(), torch.tensor([0.1, 0.7, 1.5, 3.0])
    found = blur(images, sigmas)
    for image, sigma, mine in zip(images.numpy(), sigmas.tolist(), found):
        for channel, m in zip(image, mine):
            smooth, share = (
                gaussian_filter(x, sigma, mode="constant", truncate=50) for x in (channel, channel * 0 + 1)
            )
            torch.testing.assert_close(m, torch.tensor(smooth / share), atol=1e-6, rtol=0)
    assert torch.equal(blur(images, torch.zeros(4)), images)


# --- drawing --------------------------------------------------------------------------------------------------

DRAWS = {
    "boxes": lambda n, g: draw_boxes(n, 32, 32, g),
    "chosen": lambda n, g: draw_chosen(n, 0.5, g),
    "jitter": lambda n, g: draw_jitter(n, g),
    "sigmas": lambda n, g: draw_sigmas(n, g),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_only_the_generator_decides(draw):
    torch.manual_seed(1)
    first = draw(64, seeded(3))
    torch.manual_seed(2)
    generator = seeded(3)
    assert torch.equal(first, draw(64, generator))
    assert not torch.equal(first, draw(64, generator))
    rows = {str(row) for row in first.tolist()}
    assert len(rows) == 2 if first.dtype == torch.bool else len(rows) > 20


def test_how_often_and_how_much():
    """Frequencies within five standard deviations, values within their bounds and close to them."""
    n = 20_000
    for p in (0.0, 0.2, 1.0):
        assert abs(draw_chosen(n, p, seeded()).sum() - n * p) <= 5 * math.sqrt(n * p * (1 - p))
    drawn = draw_jitter(n, seeded(), 0.4, 0.3, 0.2, 0.1, p=0.8)
    still = (drawn == torch.tensor([1.0, 1, 1, 0])).all(dim=1)
    assert abs(still.sum() - 0.2 * n) <= 5 * math.sqrt(n * 0.16)
    changed = drawn[~still] - torch.tensor([1.0, 1, 1, 0])
    for column, strength in zip(changed.unbind(dim=1), (0.4, 0.3, 0.2, 0.1)):
        assert kstest((column / strength).double().numpy(), "uniform", (-1, 2)).pvalue > 0.01
    assert torch.corrcoef(changed.T).fill_diagonal_(0).abs().max() < 0.05
    sigmas = draw_sigmas(n, seeded(), (0.3, 1.1), p=0.5)
    assert abs((sigmas == 0).sum() - 0.5 * n) <= 5 * math.sqrt(n * 0.25)
    assert kstest(((sigmas[sigmas > 0] - 0.3) / 0.8).double().numpy(), "uniform").pvalue > 0.01


# --- nonsense -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda g: draw_boxes(0, 8, 8, g), "n=0, height=8, width=8: all must be at least 1"),
        (lambda g: draw_boxes(2, 8, 8, g, scale=(0.5, 1.5)), r"scale=\(0.5, 1.5\): must be two shares"),
        (lambda g: draw_boxes(2, 8, 8, g, scale=(0.5, 0.2)), r"scale=\(0.5, 0.2\): must be two shares"),
        (lambda g: draw_boxes(2, 8, 8, g, ratio=(0, 1)), r"ratio=\(0, 1\): must be two numbers above 0"),
        (lambda g: draw_boxes(2, 8, 8, g, ratio=(2, 3)), "the largest do not fit into 8 × 8: lower the scale"),
        (lambda g: draw_boxes(2, 8, 8, g, ratio=(0.3, 0.5)), "the largest do not fit into 8 × 8: lower the scale"),
        (lambda g: draw_chosen(2, 1.2, g), "p=1.2: must lie in 0..1"),
        (lambda g: draw_chosen(0, 0.5, g), "n=0: must be at least 1"),
        (lambda g: draw_jitter(2, g, hue=0.6), "hue=0.6: must lie in 0..0.5"),
        (lambda g: draw_jitter(2, g, contrast=1.1), "contrast=1.1: must lie in 0..1"),
        (lambda g: draw_sigmas(2, g, (2, 1)), r"sigma=\(2, 1\): must be two numbers of pixels"),
    ],
)
def test_what_cannot_be_drawn_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call(seeded())


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: flip(x[0], torch.ones(2)), r"images of shape \(3, 4, 5\) and type torch.float32: must be \(B, C"),
        (lambda x: flip((255 * x).byte(), torch.ones(2)), "type torch.uint8: .* divide bytes by 255"),
        (lambda x: flip(x, torch.ones(3)), r"flipped of shape \(3,\): must be \(2,\), one row per image"),
        (lambda x: jitter(x, torch.ones(2)), r"parameters of shape \(2,\): must be \(2, 4\)"),
        (lambda x: resized_crop(x, torch.tensor([[0, 0, 4, 5]] * 2), 0), "size=0: must be at least 1"),
        (
            lambda x: resized_crop(x, torch.tensor([[0, 0, 4, 5], [0, 1, 4, 5]]), 3),
            r"boxes\[1\]=\[0, 1, 4, 5\]: .* an image of 4 × 5",
        ),
        (lambda x: resized_crop(x, torch.tensor([[1.0, 0, 0, 5]] * 2), 3), r"boxes\[0\]=\[1.0, 0.0, 0.0, 5.0\]"),
        (lambda x: change_brightness(x, torch.tensor([1.0, -0.5])), "factors with -0.5: must be finite and at least 0"),
        (lambda x: turn_hue(x, torch.tensor([0.0, math.nan])), "turns with nan: must be finite$"),
        (lambda x: blur(x, torch.tensor([-1.0, 1.0])), "sigmas with -1.0: must be finite and at least 0"),
        (lambda x: turn_hue(x[:, :1], torch.zeros(2)), r"shape \(2, 1, 4, 5\): must have 3 channels, red, green"),
        (lambda x: greyscale(x[:, :1], torch.ones(2)), "must have 3 channels"),
    ],
)
def test_what_cannot_be_done_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call(torch.rand(2, 3, 4, 5))
