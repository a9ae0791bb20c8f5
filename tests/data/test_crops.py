"""The views for DINO, recognised from what is done to them: each is compared with what it could be."""

import itertools

import pytest
import torch
from scipy.stats import kstest

from coursekit.data.augment import blur, flip, greyscale, resized_crop, solarise
from coursekit.data.crops import multi_crop

N = 400
STILL = {"brightness": 0.0, "contrast": 0.0, "saturation": 0.0, "hue": 0.0}


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def pictures(n: int = N, height: int = 16, width: int = 18) -> torch.Tensor:
    return torch.rand(n, 3, height, width, generator=seeded(5))


def views_of(crops: dict, images: torch.Tensor):
    """One after another: name, number, the view, and the box cut out of the image."""
    for name in ("global", "local"):
        for v in range(crops[name].shape[1]):
            view = crops[name][:, v]
            yield name, v, view, resized_crop(images, crops[f"{name}_boxes"][:, v], view.shape[-1])


def test_shapes_and_sides():
    images = pictures(3)
    crops = multi_crop(images, seeded(), 5, (12, 6))
    assert {name: x.shape for name, x in crops.items()} == {
        "global": (3, 2, 3, 12, 12),
        "global_boxes": (3, 2, 4),
        "local": (3, 5, 3, 6, 6),
        "local_boxes": (3, 5, 4),
    }
    for name in ("global", "local"):
        assert 0 <= crops[name].min() <= crops[name].max() <= 1
    assert multi_crop(images, seeded(), 0, (12, 6)).keys() == {"global", "global_boxes"}
    assert multi_crop(images, seeded(), 1)["global"].shape[-1] == 224
    assert multi_crop(images, seeded(), 1)["local"].shape[-1] == 96
    with pytest.raises(ValueError, match="n_local=-1: must be at least 0"):
        multi_crop(images, seeded(), -1)


def test_views_show_several_pictures_of_the_same_thing_in_turns():
    one, other = pictures(4), pictures(4).flip(0)
    both = multi_crop(torch.stack([one, other], dim=1), seeded(3), 3, (12, 6))
    apart = [multi_crop(images, seeded(3), 3, (12, 6)) for images in (one, other)]
    for name, found in both.items():
        for v in range(found.shape[1]):
            assert torch.equal(found[:, v], apart[v % 2][name][:, v]), (name, v)
    assert not torch.equal(apart[0]["local"][:, 1], apart[1]["local"][:, 1])


def test_only_the_generator_decides():
    images = pictures(4)
    torch.manual_seed(1)
    first = multi_crop(images, seeded(3), 2, (12, 6))
    torch.manual_seed(2)
    second, third = multi_crop(images, seeded(3), 2, (12, 6)), multi_crop(images, seeded(4), 2, (12, 6))
    assert all(torch.equal(x, second[name]) for name, x in first.items())
    assert not any(torch.equal(x, third[name]) for name, x in first.items())


def test_boxes_have_the_scale_of_their_kind_and_no_two_are_alike():
    crops = multi_crop(pictures(), seeded(), 2, (4, 2), ((0.4, 0.9), (0.05, 0.4)))
    for name, (low, high) in {"global": (0.4, 0.9), "local": (0.05, 0.4)}.items():
        boxes = crops[f"{name}_boxes"]
        share = (boxes[..., 2] * boxes[..., 3] / (16 * 18)).flatten()
        assert kstest(((share - low) / (high - low)).double().numpy(), "uniform").pvalue > 0.01
        assert len({tuple(box) for box in boxes.flatten(0, 1).tolist()}) == 2 * N


def test_what_is_done_to_a_view_and_how_often():
    """Without jitter a view is its crop, mirrored or not, grey or not, blurred or not, solarised or not.

    Catches a crop that is not that of its box, an order or odds of changes that are not as published, and a change that
    is drawn for the whole batch. Frequencies lie within four standard deviations.
    """
    images = pictures()
    crops = multi_crop(images, seeded(), 2, (8, 6), ((0.4, 0.9), (0.1, 0.4)), (1.0, 1.0), STILL)
    expected = {  # flipped, grey, blurred, solarised
        ("global", 0): (0.5, 0.2, 1.0, 0.0),
        ("global", 1): (0.5, 0.2, 0.1, 0.2),
        ("local", 0): (0.5, 0.2, 0.5, 0.0),
        ("local", 1): (0.5, 0.2, 0.5, 0.0),
    }
    for name, v, view, crop in views_of(crops, images):
        done = torch.zeros(N, 4)
        nearest = torch.full((N,), torch.inf)
        for choice in itertools.product([False, True], repeat=4):
            f, g, b, s = (torch.full((N,), x) for x in choice)
            could_be = solarise(blur(greyscale(flip(crop, f), g), b.float()), s)
            away = (view - could_be).abs().amax(dim=(1, 2, 3))
            done[away < nearest] = torch.tensor(choice).float()
            nearest = torch.minimum(nearest, away)
        assert nearest.max() < 1e-4, f"{name} {v}: something else was done"
        for found, p in zip(done.mean(dim=0).tolist(), expected[name, v]):
            assert abs(found - p) <= 4 * (p * (1 - p) / N) ** 0.5, (name, v, done.mean(dim=0))


def test_colours_are_changed_as_strongly_as_asked_for():
    """Of images of one colour a crop shows nothing else; in four of five the brightness is changed."""
    images = torch.tensor([0.2, 0.3, 0.4])[None, :, None, None].expand(N, 3, 8, 8)
    crops = multi_crop(images, seeded(), 1, (4, 4), colours=STILL | {"brightness": 0.3})
    seen = crops["local"].amax(dim=(1, 2, 3, 4))
    coloured = crops["local"].std(dim=2).amax(dim=(1, 2, 3)) > 1e-3
    factor = seen[coloured] / 0.4
    assert 0.7 <= factor.min() < 0.75
    assert 1.25 < factor.max() <= 1.3001
    assert ((factor - 1).abs() > 1e-4).float().mean().item() == pytest.approx(0.8, abs=0.1)
    default = multi_crop(images, seeded(), 1, (4, 4))["local"].amax(dim=(1, 2, 3, 4)) / 0.4
    assert default.max() > 1.31
