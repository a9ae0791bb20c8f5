"""The views for SiT: blocks painted one pixel after another, and views beside what was drawn for them."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstest

from coursekit.data.augment import flip, resized_crop
from coursekit.data.corrupt import (
    corrupted_views,
    cover,
    draw_blocks,
    draw_others,
    draw_views,
    replace,
    rotate,
)

STILL = {"brightness": 0.0, "contrast": 0.0, "saturation": 0.0, "hue": 0.0}
SHAPES = {"boxes": (4,), "flipped": (), "rotations": (), "others": (), "jitter": (4,), "grey": (), "sigmas": ()}


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def pictures(n: int = 6, height: int = 16, width: int = 18) -> torch.Tensor:
    return torch.rand(n, 3, height, width, generator=seeded(5))


def uncoloured(drawn: dict) -> dict:
    """The same without jitter, grey and blur."""
    jitter = torch.tensor([1.0, 1.0, 1.0, 0.0]).expand_as(drawn["jitter"])
    return drawn | {"jitter": jitter, "grey": drawn["grey"] & False, "sigmas": drawn["sigmas"] * 0}


def painted(blocks: torch.Tensor, height: int, width: int) -> np.ndarray:
    """How often each pixel was painted over, with loops."""
    found = np.zeros((len(blocks), height, width), dtype=int)
    for image, rows in zip(found, blocks.tolist()):
        for top, left, h, w in rows:
            for y in range(top, top + h):
                for x in range(left, left + w):
                    image[y, x] += 1
    return found


# --- blocks ---------------------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(st.integers(4, 24), st.integers(4, 24), st.sampled_from([0.3, 0.5, 1.0]), st.integers(0, 999))
def test_blocks_cover_their_share_and_no_more_than_a_row_too_much(height, width, largest, seed):
    """Catches overlaps counted twice, the wrong side or limit, and blocks that are drawn on when all is covered."""
    share = torch.rand(5, generator=seeded(seed), dtype=torch.float64)
    share[0], share[1] = 0, 1
    blocks = draw_blocks(5, height, width, seeded(seed), share, largest)
    top, left, h, w = blocks.unbind(dim=-1)
    assert min(top.min(), left.min(), h.min()) >= 0
    assert (top + h).max() <= height
    assert (left + w).max() <= width
    assert h.max() <= largest * height
    assert 1 <= w.min() <= w.max() <= largest * width
    times = painted(blocks, height, width)
    masks = cover(blocks, height, width)
    assert masks.dtype == torch.bool
    assert (masks.numpy() == (times > 0)).all()
    wanted = np.maximum(1, np.ceil(share.numpy() * height * width))
    count = (times > 0).sum(axis=(1, 2))
    assert (count >= wanted).all()
    assert (count - wanted < int(largest * width)).all()
    used = (h > 0).tolist()
    assert all(row == sorted(row, reverse=True) for row in used), "those not used are the last ones"
    for i, row in enumerate(used):  # the last one was needed, and so was its last row
        last = blocks[i : i + 1, : sum(row)].clone()
        last[0, -1, 2] -= 1
        assert (painted(last, height, width) > 0).sum() < wanted[i]


def test_blocks_are_of_all_sizes_and_in_all_places():
    """The first block of 4,000 images, which nothing cuts: catches a side used for both, and an edge missed."""
    blocks = draw_blocks(4000, 20, 40, seeded(), torch.full((4000,), 0.1))
    top, left, h, w = blocks[:, 0].T
    assert set(h.tolist()) == set(range(1, 7))
    assert set(w.tolist()) == set(range(1, 13))
    for number, most in ((h, 6), (w, 12)):
        expected = 4000 / most
        assert all(abs(x - expected) < 5 * expected**0.5 for x in torch.bincount(number)[1:].tolist())
    assert set(top[h == 6].tolist()) == set(range(15))
    assert set(left[w == 12].tolist()) == set(range(29))
    assert len({tuple(row) for row in blocks[:, 0].tolist()}) > 2000, "each image has its own"


@pytest.mark.parametrize(("share", "largest", "message"), [
    ([0.5], 0.3, r"share=\[0.5\]: must be 2 numbers in 0..1"),
    ([0.5, 1.1], 0.3, r"must be 2 numbers in 0..1"),
    ([0.5, float("nan")], 0.3, r"must be 2 numbers in 0..1"),
    ([0.5, 0.5], 0.09, "largest=0.09: must lie in 0..1, and be a pixel at least of 10 × 20"),
    ([0.5, 0.5], 1.2, "largest=1.2: must lie in 0..1"),
])  # fmt: skip
def test_blocks_that_cannot_be(share, largest, message):
    with pytest.raises(ValueError, match=message):
        draw_blocks(2, 10, 20, seeded(), torch.tensor(share), largest)


def test_the_other_image_is_never_the_image_itself():
    lots = torch.stack([draw_others(4, seeded(i)) for i in range(300)])
    assert not (lots == torch.arange(4)).any()
    steps = (lots - torch.arange(4)) % 4
    assert (steps != steps[:, :1]).any(dim=1).float().mean() > 0.8, "each image has one of its own"
    for i in range(4):
        counts = torch.bincount(lots[:, i], minlength=4).tolist()
        assert all(60 < count < 140 for j, count in enumerate(counts) if j != i)
    with pytest.raises(ValueError, match="n=1: must be at least 2, or there is no other image"):
        draw_others(1, seeded())


# --- what is done ---------------------------------------------------------------------------------------------


def test_quarters_are_turned_anticlockwise():
    images = pictures(4, 5, 5)
    found = rotate(images, torch.tensor([0, 1, 2, 3]))
    assert torch.equal(found[0], images[0])
    for y in range(5):
        for x in range(5):  # what was on the right is on top after one quarter
            assert torch.equal(found[1][:, y, x], images[1][:, x, 4 - y])
            assert torch.equal(found[2][:, y, x], images[2][:, 4 - y, 4 - x])
            assert torch.equal(found[3][:, y, x], images[3][:, 4 - x, y])
    with pytest.raises(ValueError, match="images of 5 × 6: must be square"):
        rotate(pictures(2, 5, 6), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="turns with 4: must be 0, 1, 2 or 3"):
        rotate(images, torch.tensor([0, 1, 4, 0]))
    with pytest.raises(ValueError, match="turns"):
        rotate(images, torch.tensor([0, -1, 2, 0]))


def test_shapes_and_ranges():
    drawn = draw_views(5, 16, 18, seeded(), 12)
    assert {name: drawn[name].shape for name in SHAPES} == {name: (5, 2, *rest) for name, rest in SHAPES.items()}
    assert drawn["noise"].shape == (5, 2, 3, 12, 12)
    assert drawn["blocks"].shape[:2] == (5, 2)
    batch = corrupted_views(pictures(5), drawn)
    assert {name: (tuple(x.shape), x.dtype) for name, x in batch.items()} == {
        "views": ((5, 2, 3, 12, 12), torch.float32),
        "clean": ((5, 2, 3, 12, 12), torch.float32),
        "masks": ((5, 2, 12, 12), torch.bool),
        "rotations": ((5, 2), torch.int64),
    }
    assert 0 <= batch["views"].min() <= batch["views"].max() <= 1
    assert draw_views(2, 16, 18, seeded())["noise"].shape[-1] == 224


def test_shares_lie_within_bounds_for_either_kind_and_all_of_them_occur():
    """On small images, where a last block that is not cut would lead out of them."""
    drawn = draw_views(400, 16, 16, seeded(), 16)
    masks = cover(drawn["blocks"].flatten(0, 1), 16, 16)
    share = masks.float().mean(dim=(1, 2))
    foreign = drawn["others"].flatten() >= 0
    assert abs(foreign.float().mean().item() - 0.5) < 0.08
    for chosen, low, high in ((~foreign, 0.5, 0.7), (foreign, 0.0, 0.35)):
        found = share[chosen]
        assert max(low, 1 / 256) <= found.min()
        assert found.max() <= high
        assert kstest(((found - low) / (high - low)).double().numpy(), "uniform").statistic < 0.12
    first, second = drawn["blocks"][:, 0, 0], drawn["blocks"][:, 1, 0]
    assert (first != second).any(dim=1).float().mean() > 0.9, "the views of an image are drawn apart"
    counts = torch.bincount(drawn["rotations"].flatten(), minlength=4)
    assert ((counts - 200).abs() < 50).all()
    assert abs((drawn["rotations"][:, 0] == drawn["rotations"][:, 1]).float().mean().item() - 0.25) < 0.1


def test_only_corrupted_pixels_differ_and_they_are_what_was_drawn():
    """Without changes of colour; catches a mask of another view, or inverted, or turned with the image."""
    images, drawn = pictures(), uncoloured(draw_views(6, 16, 18, seeded(2), 12))
    drawn["others"][0] = torch.tensor([3, -1])
    assert (drawn["rotations"] > 0).any()
    batch = corrupted_views(images, drawn)
    for b in range(6):
        for v in range(2):
            view, clean, mask = (batch[name][b, v] for name in ("views", "clean", "masks"))
            times = painted(drawn["blocks"][b, v][None], 12, 12)[0]
            assert (mask.numpy() == (times > 0)).all()
            differs = (view - clean).abs().amax(dim=0) > 1e-5  # a blur of no width multiplies by 1
            assert torch.equal(differs, mask)
            other = drawn["others"][b, v]
            filling = drawn["noise"][b, v] if other < 0 else batch["clean"][other, v]
            torch.testing.assert_close(view[:, mask], filling[:, mask])
            crop = resized_crop(images[b : b + 1], drawn["boxes"][b, v][None], 12)
            k = drawn["rotations"][b, v].item()
            expected = flip(crop, drawn["flipped"][b, v][None]).rot90(k, (2, 3))[0]
            assert torch.equal(clean, expected)
    assert torch.equal(batch["rotations"], drawn["rotations"])


def test_colours_are_changed_in_views_but_not_in_what_is_to_be_restored():
    images, drawn = pictures(40), draw_views(40, 16, 18, seeded(), 12)
    plain, coloured = corrupted_views(images, uncoloured(drawn)), corrupted_views(images, drawn)
    for name in ("clean", "masks", "rotations"):
        assert torch.equal(plain[name], coloured[name])
    grey = coloured["views"].std(dim=2).amax(dim=(2, 3)) < 1e-5
    assert torch.equal(grey, drawn["grey"])
    same = (plain["views"] - coloured["views"]).abs().amax(dim=(2, 3, 4)) < 1e-5
    nothing = (drawn["jitter"] == torch.tensor([1.0, 1.0, 1.0, 0.0])).all(dim=-1) & (drawn["sigmas"] == 0)
    assert torch.equal(same, nothing & ~drawn["grey"])
    assert 0 < same.float().mean() < 0.3
    assert abs(drawn["grey"].float().mean().item() - 0.2) < 0.2
    still = draw_views(40, 16, 18, seeded(), 12, colours=STILL, sigma=(0.0, 0.0))
    assert (still["jitter"] == torch.tensor([1.0, 1.0, 1.0, 0.0])).all()
    assert (still["sigmas"] == 0).all()


def test_what_was_drawn_can_be_varied():
    """One quarter more turns the clean view and the label, and leaves the blocks where they are."""
    images, drawn = pictures(), uncoloured(draw_views(6, 16, 18, seeded(), 12))
    before = corrupted_views(images, drawn)
    after = corrupted_views(images, drawn | {"rotations": (drawn["rotations"] + 1) % 4})
    assert torch.equal(after["clean"], before["clean"].rot90(1, (3, 4)))
    assert torch.equal(after["masks"], before["masks"])
    assert torch.equal(after["rotations"], (before["rotations"] + 1) % 4)


def test_only_the_generator_decides():
    torch.manual_seed(1)
    first = draw_views(4, 16, 18, seeded(3), 12)
    torch.manual_seed(2)
    second, third = draw_views(4, 16, 18, seeded(3), 12), draw_views(4, 16, 18, seeded(4), 12)
    assert all(torch.equal(x, second[name]) for name, x in first.items())
    assert not torch.equal(first["noise"], third["noise"])
    one, two = (corrupted_views(pictures(4), drawn) for drawn in (first, second))
    assert all(torch.equal(x, two[name]) for name, x in one.items())


def test_every_device_does_the_same(where):
    drawn = draw_views(4, 16, 18, seeded(), 12)
    expected, found = (corrupted_views(images, drawn) for images in (pictures(4), pictures(4).to(where)))
    for name, x in expected.items():
        assert found[name].device.type == where.type
        torch.testing.assert_close(found[name].cpu(), x, atol=1e-4, rtol=0)
    drawn = draw_views(4, 16, 18, torch.Generator(where).manual_seed(0), 12)
    assert {x.device.type for x in drawn.values()} == {where.type}


def test_another_order_of_the_images_is_another_order_of_the_views():
    """Catches whatever is taken from the place in the batch."""
    images, drawn, order = pictures(), draw_views(6, 16, 18, seeded(), 12, p_foreign=0.7), torch.randperm(6)
    place = order.argsort()
    moved = {name: x[order] for name, x in drawn.items()}
    moved["others"] = torch.where(moved["others"] < 0, -1, place[moved["others"].clamp(min=0)])
    before, after = corrupted_views(images, drawn), corrupted_views(images[order], moved)
    for name, x in before.items():
        torch.testing.assert_close(after[name], x[order])


def test_views_show_several_pictures_of_the_same_thing_in_turns():
    one = torch.rand(4, 3, 12, 12, generator=seeded(5))
    other = one.flip(0)
    drawn = draw_views(4, 12, 12, seeded(), size=12)
    both = corrupted_views(torch.stack([one, other], dim=1), drawn)
    apart = [corrupted_views(images, drawn) for images in (one, other)]
    for name, found in both.items():
        for v in (0, 1):
            assert torch.equal(found[:, v], apart[v][name][:, v]), (name, v)
    assert not torch.equal(apart[0]["clean"][:, 1], apart[1]["clean"][:, 1])


def test_one_image_has_no_other():
    drawn = draw_views(1, 16, 18, seeded(), 12, p_foreign=0)
    assert (drawn["others"] == -1).all()
    assert corrupted_views(pictures(1), drawn)["views"].shape == (1, 2, 3, 12, 12)
    with pytest.raises(ValueError, match="n=1: must be at least 2"):
        draw_views(1, 16, 18, seeded(), 12)


@pytest.mark.parametrize(("changes", "message"), [
    ({"size": 0}, "size=0: must be at least 1"),
    ({"noise": (0.7, 0.5)}, r"noise=\(0.7, 0.5\): must be two shares in 0..1"),
    ({"noise": (0.6, 0.61)}, r"noise=\(0.6, 0.61\): .* the second at least 0.0208 above the first"),
    ({"foreign": (0.0, 1.5)}, r"foreign=\(0.0, 1.5\): must be two shares in 0..1"),
    ({"p_foreign": 2.0}, "p=2.0: must lie in 0..1"),
    ({"scale": (0.0, 1.0)}, "scale"),
])  # fmt: skip
def test_nonsense_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        draw_views(3, 16, 18, seeded(), **{"size": 12} | changes)


def test_what_does_not_fit_together_is_refused():
    with pytest.raises(ValueError, match="drawn for 4 images: these are 5"):
        corrupted_views(pictures(5), draw_views(4, 16, 18, seeded(), 12))
    with pytest.raises(ValueError, match=r"masks of shape \(2, 5, 4\)"):
        replace(pictures(2, 4, 5), torch.ones(2, 5, 4, dtype=torch.bool), pictures(2, 4, 5))
