"""Images with the answers written down: whether the answers are right, seen from the pixels."""

import colorsys
import hashlib
import itertools
import math
import os
import subprocess
import sys
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import rgb_to_hsv
from PIL import Image
from scipy.ndimage import affine_transform, binary_dilation, binary_erosion, label
from sklearn.datasets import load_sample_image
from sklearn.linear_model import RidgeClassifier
from sklearn.neighbors import KNeighborsClassifier

from coursekit.data.batches import Batch, Shuffled
from coursekit.data.shapes import (
    BACKGROUNDS,
    CLASSES,
    COLOURS,
    DRAW,
    EXTENT,
    FAVOURITES,
    HUES,
    SPLITS,
    TEXTURES,
    Shapes,
    covered,
    draw_scenes,
    held_out,
    render,
    shapes,
    textures,
)

C = len(CLASSES)
TWINS = (("ladybird", "ball"), ("fish", "rocket"), ("mushroom", "umbrella"), ("butterfly", "flower"))
AROUND = np.ones((3, 3), dtype=bool)  # a pixel and its eight neighbours


def close(count, n: int, p: float) -> bool:
    """Within five standard deviations of the binomial distribution."""
    return abs(float(count) - n * p) <= 5 * math.sqrt(n * p * (1 - p))


@cache
def some(size: int = 32, split: str = "train") -> Shapes:
    return shapes(50 * C, split, 1, size)


def plain_scenes(n: int, seed: int = 0, **changes: float) -> Batch:
    """Scenes with nothing in front and a background that can be painted at any size."""
    scenes = draw_scenes(n, "train", seed)
    still = {"occluder": 0.5, "background": 0} | changes
    return scenes | {name: torch.full_like(scenes[name], value) for name, value in still.items()}


def only(scenes: Batch, rows: torch.Tensor) -> Batch:
    return {name: tensor[rows] for name, tensor in scenes.items()}


def same(one: Shapes, other: Shapes) -> bool:
    return all(torch.equal(x, y) for x, y in zip(vars(one).values(), vars(other).values()))


# --- the same for a seed --------------------------------------------------------------------------------------


def test_what_it_looks_like_from_outside():
    found = some()
    n = len(found)
    assert n == 50 * C
    assert found.images.shape == (n, 3, 32, 32)
    assert found.masks.shape == (n, 32, 32)
    assert (found.images.dtype, found.masks.dtype, found.labels.dtype) == (torch.uint8, torch.bool, torch.int64)
    assert (found.rgb.shape, found.position.shape) == ((n, 3), (n, 2))
    assert tuple(DRAW) == CLASSES == tuple(FAVOURITES)
    assert {name: len(tensor) for name, tensor in vars(found).items()} == dict.fromkeys(vars(found), n)
    batch = next(Shuffled(vars(found), 32))
    assert batch["images"].shape == (32, 3, 32, 32)
    assert len({image.numpy().tobytes() for image in found.images}) == n


@settings(max_examples=5)
@given(n=st.integers(1, 600), size=st.sampled_from([32, 64]))
def test_the_first_images_do_not_depend_on_how_many_follow(n, size):
    assert same(shapes(n, "train", 1, size), Shapes(**{name: x[:n] for name, x in vars(some(size)).items()}))


def test_seed_and_split_decide_and_nothing_else():
    torch.manual_seed(1)
    first = shapes(24, "train", 3)
    torch.manual_seed(2)
    assert same(first, shapes(24, "train", 3))
    others = [shapes(24, split, seed).images for split in SPLITS for seed in range(2, 5)]
    assert len({hashlib.sha256(images.numpy()).digest() for images in others}) == 9
    for one, other in itertools.combinations(others, 2):
        assert not (one == other).all(dim=3).all(dim=2).all(dim=1).any(), "two splits or seeds share an image"


def test_the_same_objects_are_seen_again_in_other_scenes():
    n = 24_000
    first, again, third = (draw_scenes(n, "test", 5, scene) for scene in (0, 1, 2))
    own = {"labels", "texture", "colour", "rgb", "period", "phase", "direction", "grain"}
    for name in first:
        if name in own:
            assert torch.equal(first[name], again[name]), name
        else:
            for one, other in itertools.combinations((first, again, third), 2):
                pair = torch.stack([scenes[name].double().reshape(n, -1)[:, 0] for scenes in (one, other)])
                assert torch.corrcoef(pair)[0, 1].abs() < 5 / math.sqrt(n), name
    pictures = [shapes(60, "test", 5, scene=scene) for scene in (0, 1)]
    assert torch.equal(pictures[0].rgb, pictures[1].rgb)
    assert not torch.equal(pictures[0].position, pictures[1].position)
    assert (pictures[0].images != pictures[1].images).flatten(1).any(dim=1).all()


def test_other_instructions_of_the_processor_give_the_same_bits():
    """Without its vector units every sum and product is made in another loop."""
    code = (
        "import hashlib, torch; from coursekit.data.shapes import shapes; torch.set_num_threads(2);"
        "found = vars(shapes(120, 'train', 1)).values(); digest = hashlib.sha256();"
        "[digest.update(x.contiguous().numpy()) for x in found]; print(digest.hexdigest())"
    )
    environment = os.environ | {"ATEN_CPU_CAPABILITY": "default"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    digest = hashlib.sha256()
    for tensor in vars(some()).values():
        digest.update(tensor[:120].contiguous().numpy())
    assert done.stdout.strip() == digest.hexdigest()


def test_both_sizes_show_the_same_scenes():
    small, large = some(32), some(64)
    attributes = set(vars(small)) - {"images", "masks", "occluded"}
    assert all(torch.equal(getattr(small, name), getattr(large, name)) for name in attributes)
    assert (small.occluded - large.occluded).abs().max() < 0.1
    halved = torch.nn.functional.avg_pool2d(large.images.float(), 2)
    difference = (halved - small.images.float()).abs().mean(dim=(1, 2, 3)) / 255
    assert difference.max() < 0.05
    share = torch.nn.functional.avg_pool2d(large.masks.float(), 2)
    assert small.masks[share == 1].float().mean() > 0.999
    assert small.masks[share == 0].float().mean() < 0.001


# --- classes, textures and colours ----------------------------------------------------------------------------


@given(n=st.integers(1, 100))
def test_classes_take_turns(n):
    counts = draw_scenes(n)["labels"].bincount(minlength=C)
    assert counts.max() - counts.min() <= 1


def test_held_out_combinations_are_in_the_test_and_only_there():
    seen = {}
    for split in SPLITS:
        scenes = draw_scenes(60_000, split, 0)
        seen[split] = set(zip(*(scenes[name].tolist() for name in ("labels", "texture", "colour"))))
    everything = set(itertools.product(range(C), range(len(TEXTURES)), range(len(COLOURS))))
    hidden = {combination for combination in everything if held_out(*map(torch.tensor, combination))}
    assert len(hidden) == len(everything) / 4
    assert seen["test"] <= hidden
    assert not (seen["train"] | seen["validation"]) & hidden
    assert seen["train"] == seen["validation"] == everything - hidden, "60,000 images show every combination"
    for split in ("train", "test"):  # every class with every texture and with every colour
        for other in (1, 2):
            pairs = {(one[0], one[other]) for one in seen[split]}
            assert len(pairs) == C * (len(TEXTURES), len(COLOURS))[other - 1]
    assert {one[1:] for one in seen["train"]} == {one[1:] for one in everything}


@pytest.mark.parametrize("split", SPLITS)
def test_textures_and_colours_are_as_frequent_as_the_tendencies_say(split):
    scenes = draw_scenes(24_000, split, 0)
    for number, name in enumerate(CLASSES):
        rows = scenes["labels"] == number
        textures, colours = FAVOURITES[name]
        expected = {}
        for (t, texture), (c, colour) in itertools.product(enumerate(TEXTURES), enumerate(COLOURS)):
            weight = {**dict(zip(textures, (0.4, 0.2)))}.get(texture, 0.1)
            weight *= {**dict(zip(colours, (0.45, 0.25, 0.15)))}.get(colour, 0.03)
            if bool((number + t + c) % 4 == 0) == (split == "test"):
                expected[t, c] = weight
        total = sum(expected.values())
        for (t, c), weight in expected.items():
            count = (rows & (scenes["texture"] == t) & (scenes["colour"] == c)).sum()
            assert close(count, 2000, weight / total), (name, TEXTURES[t], COLOURS[c])


def test_what_says_nothing_about_the_class_is_drawn_evenly():
    scenes = draw_scenes(24_000)
    for kind in range(len(BACKGROUNDS)):
        for number in range(C):
            count = ((scenes["background"] == kind) & (scenes["labels"] == number)).sum()
            assert close(count, 2000, 1 / len(BACKGROUNDS))
    assert close(scenes["mirrored"].sum(), 24_000, 0.5)
    for name, low, high in (("rotation", -40, 40), ("size", 0.56, 0.92)):
        values = (scenes[name].double() - low) / (high - low)
        assert 0 <= values.min() < 0.01
        assert 0.99 < values.max() <= 1
        assert abs(values.mean() - 0.5) < 5 * math.sqrt(1 / 12 / 24_000)


def test_nothing_is_drawn_from_the_same_number_as_something_else():
    """Only texture and colour depend on the class, and on each other by what is held out."""
    scenes = draw_scenes(24_000)
    low, high = torch.tensor(HUES)[scenes["colour"]].T
    hue, saturation, value = torch.tensor(rgb_to_hsv(scenes["rgb"].double().numpy())).T
    drawn = {name: x.double() for name, x in scenes.items() if x.ndim == 1 and name not in ("texture", "colour")}
    drawn |= {"hue": ((360 * hue - low + 180) % 360 - 180) / (high - low), "saturation": saturation, "value": value}
    place = (scenes["position"] - scenes["size"][:, None] / 2) / (1 - scenes["size"][:, None])
    drawn |= {"x": place[:, 0], "y": place[:, 1]}
    for name in ("phase", "window", "tones", "occluder_tone"):
        drawn |= {f"{name} {i}": x for i, x in enumerate(scenes[name].unbind(dim=1))}
    found = torch.corrcoef(torch.stack([x.double() for x in drawn.values()])).fill_diagonal_(0).abs()
    assert len(drawn) > 25
    worst = int(found.argmax())
    assert found.max() < 5 / math.sqrt(24_000), [list(drawn)[i] for i in divmod(worst, len(drawn))]


def test_the_outline_alone_does_not_decide():
    """Twins have the same mask, and other pixels inside of it."""
    for one, other in TWINS:
        scenes = plain_scenes(40, seed=2)
        drawn = [render(scenes | {"labels": torch.full((40,), CLASSES.index(name))}, 32) for name in (one, other)]
        assert torch.equal(drawn[0][1], drawn[1][1])
        differs = (drawn[0][0] != drawn[1][0]).any(dim=1)
        assert (differs & drawn[0][1]).sum() > 0.3 * drawn[0][1].sum()
        assert (differs & ~grown(drawn[0][1])).sum() < STRAY * drawn[0][1].sum()
    outlines = []
    for number in range(C):
        scenes = plain_scenes(1, size=0.9, rotation=0, mirrored=False, labels=number)
        scenes["position"] = torch.full((1, 2), 0.5)
        outlines.append(render(scenes, 32)[1].numpy().tobytes())
    assert len(set(outlines)) == C - len(TWINS)


# --- masks ----------------------------------------------------------------------------------------------------


# What may be seen of an object beyond the pixels around its mask, as a share of the mask: needle-sharp tips, and
# slivers beside an occluder, that nowhere fill half of a pixel.
STRAY = 0.003


def grown(masks: torch.Tensor) -> torch.Tensor:
    return torch.tensor(binary_dilation(masks.numpy(), AROUND[None]))


@pytest.mark.parametrize("size", [32, 64])
def test_without_the_object_exactly_the_mask_is_different(size):
    scenes = draw_scenes(50 * C, "train", 1)
    images, masks, whole = render(scenes, size)
    found = some(size)
    assert torch.equal(images, found.images)
    assert torch.equal(masks, found.masks)
    without = render(scenes, size, objects=False)[0]
    change = (images.int() - without.int()).abs().amax(dim=1)
    assert ((change > 0) & masks).sum() > 0.999 * masks.sum(), "the object is not seen inside of its mask"
    assert ((change > 0) & ~grown(masks)).sum() < STRAY * masks.sum(), "it is seen far from its mask"
    assert change[~masks].max() <= 128, "it is more than half of a pixel that is not in its mask"
    assert not (masks & ~whole).any()


def test_masks_are_the_pixels_that_are_covered_by_more_than_half():
    """Beside the same scene painted 8 times larger, where a pixel is 64."""
    scenes = plain_scenes(8 * C, seed=4)
    images, masks, _ = render(scenes, 32)
    large = [render(only(scenes, rows), 256) for rows in torch.arange(8 * C).split(24)]
    share = torch.cat([torch.nn.functional.avg_pool2d(one[1].float(), 8) for one in large])
    assert masks[share > 0.9].all()
    assert not masks[share < 0.1].any()
    assert masks[share > 0.65].float().mean() > 0.998  # tips and notches narrower than a pixel
    assert masks[share < 0.35].float().mean() < 0.002
    assert (masks == (share > 0.5))[(share > 0.35) & (share < 0.65)].float().mean() > 0.8
    # and colours are means over the pixel too: closer to the true ones than what is seen at its middle
    true = torch.cat([torch.nn.functional.avg_pool2d(one[0].float(), 8) for one in large])
    middle = torch.cat([one[0][:, :, 4::8, 4::8].float() for one in large])
    error, jagged = ((x - true).square().mean().sqrt() for x in (images.float(), middle))
    assert error < 0.5 * jagged


def test_objects_are_in_the_image_large_enough_and_in_one_piece():
    found = some()
    scenes = draw_scenes(50 * C, "train", 1)
    whole = render(scenes, 32)[2]
    share = whole.float().mean(dim=(1, 2))
    assert share.min() > 0.06
    assert share.max() < 0.7
    assert all(label(one, AROUND)[1] == 1 for one in whole.numpy())
    assert found.masks.sum(dim=(1, 2)).min() > 40
    radius = scenes["size"][:, None] / 2
    assert (scenes["position"] - radius).min() > -1e-6
    assert (scenes["position"] + radius).max() < 1 + 1e-6


def test_what_is_hidden_is_a_share_of_the_object():
    found, (_, masks, whole) = some(), render(draw_scenes(50 * C, "train", 1), 32)
    for i in range(len(found)):
        hidden = int((whole[i] & ~masks[i]).sum())
        assert float(found.occluded[i]) == pytest.approx(hidden / int(whole[i].sum()), abs=1e-6)
    behind = found.occluded > 0
    assert close(behind.sum(), len(found), 1 / 3)
    assert 0.3 < found.occluded.max() < 0.6
    assert found.occluded[behind].mean() > 0.1
    bare = plain_scenes(50 * C, seed=1)
    assert torch.equal(render(bare, 32)[1], whole)


# --- what is told agrees with the pixels ----------------------------------------------------------------------


def test_smaller_objects_lie_anywhere_and_nothing_else_of_them_changes():
    """Catches a range that is not used, or not in other scenes, objects cut off or in the middle."""
    few = (0.2, 0.3)
    for scene in (0, 1):
        usual, small = (draw_scenes(1200, "train", 3, scene, extent) for extent in (EXTENT, few))
        assert all(torch.equal(usual[name], small[name]) for name in usual if name not in ("size", "position"))
        share = (usual["size"] - EXTENT[0]) / (EXTENT[1] - EXTENT[0])
        torch.testing.assert_close(small["size"], few[0] + (few[1] - few[0]) * share)
        radius = small["size"][:, None] / 2
        assert ((small["position"] >= radius - 1e-6) & (small["position"] <= 1 - radius + 1e-6)).all()
        assert small["position"].std(dim=0).min() > 2 * usual["position"].std(dim=0).max()
    found = shapes(60, "train", 3, 64, extent=few)
    y, x = (
        torch.stack([grid[mask].float().mean() for mask in found.masks])
        for grid in torch.meshgrid(torch.arange(64), torch.arange(64), indexing="ij")
    )
    assert (torch.stack([x, y], dim=1) / 64 - found.position).abs().max() < 0.1
    assert found.masks.float().mean(dim=(1, 2)).max() < 0.3**2


def test_position_and_size():
    """Of round things, whose middle and diameter are seen."""
    scenes = plain_scenes(40 * C, seed=3)
    round_ones = [CLASSES.index(name) for name in ("ladybird", "ball", "doughnut")]
    rows = torch.isin(scenes["labels"], torch.tensor(round_ones))
    masks = render(only(scenes, rows), 64)[2].numpy()
    for mask, size, (x, y) in zip(masks, scenes["size"][rows].tolist(), scenes["position"][rows].tolist()):
        ys, xs = np.nonzero(mask)
        assert [xs.mean() + 0.5, ys.mean() + 0.5] == pytest.approx([64 * x, 64 * y], abs=0.35)
        for seen in (xs, ys):
            assert seen.max() - seen.min() + 1 == pytest.approx(0.98 * 64 * size, abs=1.1)


def test_rotation_and_mirror():
    """Each object is the upright one, mirrored, then turned clockwise about its position (SciPy's interpolation)."""
    scenes = plain_scenes(8 * C, seed=6, size=0.7)
    scenes["position"] = scenes["position"] * 0.1 + 0.45
    upright = scenes | {"rotation": torch.zeros(8 * C), "mirrored": torch.zeros(8 * C, dtype=torch.bool)}
    turned, straight = (render(one, 64)[2].numpy() for one in (scenes, upright))
    worse = []
    for i in range(8 * C):
        angle, (x, y) = math.radians(scenes["rotation"][i]), (64 * scenes["position"][i] - 0.5).tolist()
        c, s, sign = math.cos(angle), math.sin(angle), -1 if scenes["mirrored"][i] else 1
        back = np.array([[c, -s], [sign * s, sign * c]])  # (y, x) of the upright object from (y, x) of the turned one
        middle = np.array([y, x])
        expected = affine_transform(straight[i].astype(float), back, middle - back @ middle, order=1) > 0.5
        union, both = (expected | turned[i]).sum(), (expected & turned[i]).sum()
        assert both / union > 0.93, (CLASSES[i % C], scenes["rotation"][i])
        mistaken = np.array([[c, s], [-sign * s, sign * c]])
        other = affine_transform(straight[i].astype(float), mistaken, middle - mistaken @ middle, order=1) > 0.5
        worse.append((other & turned[i]).sum() / (other | turned[i]).sum())
    assert np.mean(worse) < 0.85, "the test would not notice another sense of rotation"
    for fish in straight[CLASSES.index("fish") :: C]:
        heights = fish.sum(axis=0)[fish.any(axis=0)]
        assert heights[-2] > 2 * heights[1], "the tail is not at the right"


def test_the_colour_is_seen_in_the_pixels():
    """Light, shade and texture make a colour darker or brighter, which leaves its hue and saturation."""
    scenes = plain_scenes(8 * C, seed=5)
    images, masks, _ = render(scenes, 64)
    for i in range(len(images)):
        body = masks[i] & torch.tensor(binary_erosion(masks[i].numpy(), AROUND))
        pixels = images[i][:, body].T.double() / 255
        h, s, _ = (np.array(x) for x in zip(*(colorsys.rgb_to_hsv(*pixel) for pixel in pixels.tolist())))
        true_h, true_s, _ = colorsys.rgb_to_hsv(*scenes["rgb"][i].tolist())
        low, high = HUES[scenes["colour"][i]]
        assert low - 0.1 <= (360 * true_h + 180) % 360 - 180 <= high + 0.1 or low - 0.1 <= 360 * true_h <= high + 0.1
        turned = np.abs((h - true_h + 0.5) % 1 - 0.5)
        agrees = (turned < 4 / 360) & (np.abs(s - true_s) < 0.05)
        assert agrees.mean() > 0.2, (CLASSES[scenes["labels"][i]], COLOURS[scenes["colour"][i]])
    gaps = sorted(HUES)
    assert all(low[1] + 5 < high[0] for low, high in itertools.pairwise(gaps))


def test_a_dark_rim_and_light_from_above_on_the_left():
    scenes = plain_scenes(20 * C, seed=9)
    images, _, whole = render(scenes, 64)
    bright = images.float().mean(dim=1)
    inner = torch.tensor(binary_erosion(whole.numpy(), AROUND[None], iterations=3))
    rim = whole & ~torch.tensor(binary_erosion(whole.numpy(), AROUND[None]))
    means = [(bright * part).sum(dim=(1, 2)) / part.sum(dim=(1, 2)) for part in (rim, inner)]
    assert (means[0] / means[1]).mean() < 0.75
    pixel = (torch.arange(64) + 0.5) / 64
    x, y = scenes["position"][:, :, None, None].unbind(dim=1)
    lit = (pixel - x) + (pixel[:, None] - y) < 0
    means = [(bright * part).sum() / part.sum() for part in (inner & lit, inner & ~lit)]
    assert means[0] > 1.05 * means[1]


def test_textures_darken_only_the_body_and_each_in_its_way():
    scenes = plain_scenes(6 * C, seed=7)
    drawn = [
        render(scenes | {"texture": torch.full_like(scenes["texture"], kind)}, 64)[0] for kind in range(len(TEXTURES))
    ]
    masks = render(scenes, 64)[2]
    for image in drawn[1:]:
        assert (image.int() <= drawn[0].int() + 1).all()
        differs = (image != drawn[0]).any(dim=1)
        assert (differs & ~grown(masks)).sum() < STRAY * masks.sum()
        assert (differs.sum(dim=(1, 2)) > 0.05 * masks.sum(dim=(1, 2))).all()
    for one, other in itertools.combinations(drawn[1:], 2):
        assert ((one.int() - other.int()).abs() > 25).any(dim=1).float().mean(dim=(1, 2)).min() > 0.01


def test_patterns_repeat_as_their_names_say():
    n = 60
    scenes = draw_scenes(n)
    lot = 2 * torch.rand(2, n, 16, 16, generator=torch.Generator().manual_seed(0)) - 1
    blur = torch.full((n, 1, 1), 0.02)
    angle = (180 * scenes["direction"]).deg2rad()[:, None, None]
    period = (0.5 + 0.2 * scenes["period"])[:, None, None]

    def pattern(name: str, along: float | torch.Tensor = 0.0, across: float | torch.Tensor = 0.0) -> torch.Tensor:
        u = lot[0] + along * angle.cos() - across * angle.sin()
        v = lot[1] + along * angle.sin() + across * angle.cos()
        return textures(scenes | {"texture": torch.full((n,), TEXTURES.index(name))}, u, v, blur)

    def repeats(name: str, along: float | torch.Tensor, across: float | torch.Tensor) -> bool:
        return bool(((pattern(name) - pattern(name, along, across)).abs() < 2e-3).float().mean() > 0.995)

    assert not pattern("plain").any()
    assert repeats("stripes", period, 0.37)
    assert not repeats("stripes", period / 2, 0)
    for name, p in (("dots", period), ("checks", 1.3 * period)):
        assert repeats(name, p, 0)
        assert repeats(name, 0, p)
        assert not repeats(name, p / 2, 0)
    assert repeats("checks", 0.65 * period, 0.65 * period)
    assert not repeats("dots", period / 2, period / 2)
    dark = {name: float(pattern(name).mean()) for name in TEXTURES}
    assert dark["stripes"] == pytest.approx(0.5, abs=0.03)
    assert dark["checks"] == pytest.approx(0.5, abs=0.03)
    assert dark["dots"] == pytest.approx(math.pi * 0.3**2, abs=0.03)
    # rings: the pattern depends on the distance from their middle, which is where along = across = -phase
    middle = [0.5 - scenes["phase"][:, i, None, None] for i in (0, 1)]
    turn = 2 * math.pi * torch.rand(2, n, 1, 1, generator=torch.Generator().manual_seed(1))
    on_a_ring = []
    for t in turn:
        a, b = middle[0] + 0.4 * t.cos(), middle[1] + 0.4 * t.sin()
        u, v = a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()
        on_a_ring.append(textures(scenes | {"texture": torch.full((n,), TEXTURES.index("rings"))}, u, v, blur))
    torch.testing.assert_close(*on_a_ring, atol=1e-3, rtol=0)


@pytest.mark.parametrize(("name", "file"), [("temple", "china.jpg"), ("dahlia", "flower.jpg")])
def test_photographs_are_photographs(name, file):
    """A window of the file, made smaller by Pillow's means over squares."""
    photo = Image.fromarray(load_sample_image(file))
    scenes = plain_scenes(300, seed=8, background=BACKGROUNDS.index(name))
    windows = set()
    for size in (32, 64):
        images = render(scenes, size, objects=False)[0]
        for image, (a, b, c) in zip(images[:60], scenes["window"].double().tolist()):
            side = 64 * (1 + int(4 * a))
            top, left = int(b * (photo.height - side + 1)), int(c * (photo.width - side + 1))
            box = (left, top, left + side, top + side)
            expected = np.array(photo.resize((size, size), Image.Resampling.BOX, box=box)).astype(int)
            assert np.abs(image.permute(1, 2, 0).numpy().astype(int) - expected).max() <= 1
            windows.add(box)
    assert len(windows) == 60
    assert {box[2] - box[0] for box in windows} == {64, 128, 192, 256}


def test_backgrounds_differ():
    scenes = draw_scenes(60)
    found = []
    for kind in range(len(BACKGROUNDS)):
        one = scenes | {"background": torch.full((60,), kind), "occluder": torch.full((60,), 0.5)}
        found.append(render(one, 32, objects=False)[0].float())
    for one, other in itertools.combinations(found, 2):
        assert ((one - other).abs().mean(dim=(1, 2, 3)) > 2).float().mean() > 0.9
    assert all((images.std(dim=(2, 3)).mean(dim=1) > 0.5).float().mean() > 0.9 for images in found)


@given(st.floats(-3, 3), st.floats(0.01, 1))
def test_the_share_that_is_covered(distance, blur):
    found = float(covered(torch.tensor(distance), torch.tensor(blur)))
    assert 0 <= found <= 1
    assert found == pytest.approx(min(max(0.5 - distance / blur, 0), 1), abs=1e-5)


# --- how hard it is -------------------------------------------------------------------------------------------


def test_a_linear_model_of_pixels_is_poor_and_colour_a_tendency_only():
    train, test = shapes(3000), shapes(1200, "test")
    pixels = [data.images.flatten(1).numpy() / np.float32(255) for data in (train, test)]
    assert 0.2 < RidgeClassifier(1000.0).fit(pixels[0], train.labels).score(pixels[1], test.labels) < 0.6
    for least, most, seen in ((0.12, 0.4, False), (0.35, 0.75, True)):  # of the image, and of the object only
        colours = []
        for data in (train, test):
            weight = (data.masks if seen else torch.ones_like(data.masks))[:, None].float()
            colours.append(((data.images * weight).sum(dim=(2, 3)) / weight.sum(dim=(2, 3))).numpy())
        model = KNeighborsClassifier(15).fit(colours[0], train.labels)
        assert least < model.score(colours[1], test.labels) < most


# --- nonsense -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"n": 0}, "n=0: must be at least 1"),
        ({"split": "dev"}, r"split='dev': must be one of \('train', 'validation', 'test'\)"),
        ({"size": 48}, r"size=48: must be one of \(32, 64\)"),
        ({"seed": -1}, "seed=-1: must lie in 0..999999999"),
        ({"seed": 10**9}, "seed=1000000000: must lie"),
        ({"scene": -1}, "scene=-1: must lie in 0..999999"),
        ({"extent": (0.0, 0.5)}, r"extent=\(0.0, 0.5\): must be two shares of the side in 0..1"),
        ({"extent": (0.6, 0.5)}, r"extent=\(0.6, 0.5\): must be two shares"),
        ({"extent": (0.5, 1.1)}, r"extent=\(0.5, 1.1\): must be two shares"),
    ],
)
def test_nonsense_is_refused(wrong, words):
    with pytest.raises(ValueError, match=words):
        shapes(**{"n": 12} | wrong)
