"""Checks of exercise 08: blocks, turns, three losses and their weights, neighbours, hidden patches, a SiT of one's own.

The references are written in NumPy, one number at a time, and share nothing with ``coursekit.models.sit``,
``coursekit.data`` and ``coursekit.evaluate``.

Legend: B images, C channels, K blocks or visible patches, S side of a square image, d size of a vector, n losses or
vectors, m queries, N patches of M numbers.
"""

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from coursekit.data.digits import Digits, digits
from coursekit.evaluate.features import knn
from coursekit.grading.calls import Arrays
from coursekit.grading.checks.common import (
    cosines_of,
    number,
    numbers,
    sizes,
    votes_reference,
    votes_with,
)
from coursekit.grading.checks.slopes import CUT, as_losses, no_slope, slope, with_slopes
from coursekit.grading.mistakes import by_task
from coursekit.grading.parts import Case, Part
from coursekit.grading.parts import score as show_score
from coursekit.grading.weights import once_for_a_model, put_into
from coursekit.models.sit import OBJECTIVES, SiT, SiTConfig
from coursekit.models.vit import ViTConfig

# --- blocks until a share of the pixels is covered -----------------------------------------------------------


def block_reference(blocks, height, width, share) -> np.ndarray:
    covered: set[tuple[int, int]] = set()
    for top, left, h, w in blocks.tolist():
        if len(covered) >= share * height * width:
            break
        covered |= set(itertools.product(range(top, top + h), range(left, left + w)))
    result = np.zeros((height, width), dtype=bool)
    for place in covered:
        result[place] = True
    return result


def corrupt_reference(images, masks, filling) -> np.ndarray:
    images, masks, filling = map(np.asarray, (images, masks, filling))
    result = images.copy()
    for b, c, y, x in np.ndindex(images.shape):
        if masks[b, y, x]:
            result[b, c, y, x] = filling[b, c, y, x]
    return result


def tiles(rows: int, columns: int, h: int, w: int, generator: torch.Generator) -> Tensor:
    """Blocks of ``h`` x ``w`` pixels that fill an image and do not overlap, in any order."""
    corners = torch.cartesian_prod(h * torch.arange(rows), w * torch.arange(columns))
    found = torch.cat([corners, torch.tensor([[h, w]]).expand(len(corners), 2)], dim=1)
    return found[torch.randperm(len(found), generator=generator)]


def blocks_cases(generator: torch.Generator) -> list[Case]:
    def case(aspect, about, blocks, height, width, share, **more):
        arguments = ("block_mask", torch.as_tensor(blocks), height, width, share)
        return Case(aspect, f"block_mask: {about}", arguments, **more)

    def corrupt(about, B, C, height, width):
        draw = partial(numbers, B, C, height, width, generator=generator)
        masks = torch.rand(B, height, width, generator=generator) < 0.4
        masks[0, 0, 1], masks[0, 1, 0] = True, False  # one of each, and no mask is its own transpose
        return Case("corrupt", f"corrupt: {about}", ("corrupt", draw(), masks, draw()))

    top, left, down, right = sizes(generator, 4, 1, 9)
    h, w, rows, columns = sizes(generator, 4, 2, 5)
    grid = tiles(rows, columns, h, w, generator)
    some = number(generator, 2, len(grid) - 2)
    between = (h * w * some - 0.5) / (h * w * len(grid))
    quarter = tiles(4, 4, 2, 2, generator)
    first = [1, 1, 4, 5]
    within = [2, 2, 2, 3]
    behind = [[6, 1, 2, 2], [0, 7, 2, 2], [5, 7, 2, 2], [2, 7, 2, 2]]
    H, W = 9, 11
    lots = torch.rand(40, 4, generator=generator)
    side = 1 + (lots[:, :2] * 4).long()
    many = torch.cat([(lots[:, 2:] * (torch.tensor([H, W]) - side + 1)).long(), side], dim=1)
    many = torch.cat([many[:1], many])  # the first one twice
    H_big, W_big, n = 40, 50, number(generator, 250, 300)
    dots = tiles(H_big, W_big, 1, 1, generator)
    nearly = (n - 0.5) / (H_big * W_big)  # beside which 0.001 is two pixels
    B, C, S = sizes(generator, 3, 2, 4)
    return [
        case("one block", "one block of 2 x 3, in 4 x 5 pixels", [[1, 2, 2, 3]], 4, 5, 0.1, public=True),
        case("one block", "one block that is no square", [[top, left, h, w + 2]], top + h + 1, left + w + 4, 0.01),
        case("one block", "one block in the lower right corner", [[down, right, h, w]], down + h, right + w, 0.01),
        case("until the share", "four blocks side by side, half the pixels", tiles(1, 4, 2, 1, generator), 2, 4, 0.5),
        case("until the share", "16 blocks, exactly a quarter of the pixels", quarter, 8, 8, 0.25),
        case("until the share", "blocks that do not overlap", grid, h * rows, w * columns, between),
        case("until the share", "hundreds of blocks of one pixel", dots[: n + 20], H_big, W_big, nearly),
        case("until the share", "a share of 0", quarter, 8, 8, 0.0),
        case("until the share", "too few blocks", quarter[:3], 8, 8, 0.9),
        case("overlaps", "the second block lies in the first", [first, within, *behind], 8, 10, 29.5 / 80, public=True),
        case("overlaps", "40 blocks, some of which overlap", many, H, W, (number(generator, 35, 60) + 0.5) / (H * W)),
        corrupt("one image of 2 x 2", 1, 1, 2, 2),
        corrupt("a batch", B, C, S + 1, S + 3),
        corrupt("B = C = height = width: no axis can be told by its size", 4, 4, 4, 4),
    ]


def inside(block: Sequence[int], height: int, width: int) -> Tensor:
    """True in the block."""
    top, left, h, w = block
    found = torch.zeros(height, width, dtype=torch.bool)
    found[top : top + h, left : left + w] = True
    return found


def masked_with(
    block: Callable[[Sequence[int], int, int], Tensor] = inside,
    covered: Callable[[Tensor, int], int] = lambda mask, area: int(mask.sum()),
    enough: Callable[[float, float], bool] = lambda count, wanted: count >= wanted,
    with_the_next: bool = False,
):
    """The mask with something else in it.

    Args:
        covered: how many pixels count, by the mask and the area of all its blocks together.
        with_the_next: the block that would be enough is left out.
    """

    def mistake(blocks, height, width, share):
        mask, area = torch.zeros(height, width, dtype=torch.bool), 0
        for one in blocks.tolist():
            new, new_area = mask | block(one, height, width), area + one[2] * one[3]
            count = covered(new, new_area) if with_the_next else covered(mask, area)
            if enough(count, share * height * width):
                break
            mask, area = new, new_area
        return mask

    return by_task(block_mask=mistake)


def to_the_end(block: Sequence[int], height: int, width: int) -> Tensor:
    top, left, bottom, right = block
    return inside((top, left, max(0, bottom - top), max(0, right - left)), height, width)


block_masks = Part(
    "block_masks",
    {"one block": 2, "until the share": 3, "overlaps": 2, "corrupt": 3},
    blocks_cases,
    by_task(block_mask=block_reference, corrupt=corrupt_reference),
    {
        "a pixel in two blocks counts twice: count the pixels of the union, not the areas": masked_with(
            covered=lambda mask, area: area
        ),
        "one block too many: where exactly the share is covered, that is enough": masked_with(
            enough=lambda count, wanted: count > wanted
        ),
        "rows and columns have changed places: a block is top, left, height, width": masked_with(
            lambda block, height, width: inside([block[i] for i in (1, 0, 3, 2)], height, width)
        ),
        "the third and fourth number are read as the lower and the right edge: they are height and width": masked_with(
            to_the_end
        ),
        "all blocks are taken: none is where the share is reached already": masked_with(
            enough=lambda count, wanted: False
        ),
        "the block with which the share is reached is left out: it belongs to the mask": masked_with(
            with_the_next=True
        ),
        "the filling stands outside of the mask: it belongs where the mask is True": by_task(
            corrupt=lambda images, masks, filling: corrupt_reference(filling, masks, images)
        ),
    },
)


# --- quarter turns and their labels --------------------------------------------------------------------------


def turned_left(image: np.ndarray, times: int) -> np.ndarray:
    """(C, S, S), ``times`` quarters anticlockwise: what was in the last column comes into the first row."""
    for _ in range(times):
        S, before = image.shape[-1], image
        image = np.empty_like(before)
        for y, x in np.ndindex(S, S):
            image[:, y, x] = before[:, x, S - 1 - y]
    return image


def turn_reference(images, turns):
    return np.stack([turned_left(image, int(k)) for image, k in zip(np.asarray(images), turns)])


def four_reference(images):
    pairs = [(turned_left(image, k), k) for image in np.asarray(images) for k in range(4)]
    return np.stack([image for image, _ in pairs]), np.array([k for _, k in pairs])


def rotations_cases(generator: torch.Generator) -> list[Case]:
    draw = partial(numbers, generator=generator)

    def turn(aspect, about, images, turns, **more):
        return Case(aspect, f"turn: {about}", ("turn", images, torch.as_tensor(turns)), **more)

    def four(about, *shape):
        return Case("four turns", f"four_turns: {about}", ("four_turns", draw(*shape)))

    B, C, S = sizes(generator, 3, 2, 5)
    mixed = torch.cat([torch.tensor([1, 3, 0, 2]), torch.randint(4, (3,), generator=generator)])
    return [
        turn("one image", "one image of 2 x 2", torch.arange(1.0, 5.0).view(1, 1, 2, 2), [1], public=True),
        turn("one image", "one image, three quarters", draw(1, C, S, S), [3]),
        turn("one image", "one image, two quarters", draw(1, 1, 3, 3), [2]),
        turn("one image", "one image, no quarter", draw(1, 1, 3, 3), [0]),
        turn("a batch", "two images of 2 x 2, none and one quarter", draw(2, 1, 2, 2), [0, 1]),
        turn("a batch", "seven images", draw(7, C, S, S), mixed),
        turn("a batch", "B = C = S: no axis can be told by its size", draw(4, 4, 4, 4), mixed[:4]),
        four("one image of 2 x 2", 1, 1, 2, 2),
        four("a batch", B, C, S, S),
        four("B = C = S = 4: no axis can be told by its size", 4, 4, 4, 4),
    ]


def each_turned(images: Tensor, turns: Tensor, one: Callable[[Tensor, int], Tensor]) -> Tensor:
    return torch.stack([one(image, int(k)) for image, k in zip(images, turns)])


def left(image: Tensor, k: int) -> Tensor:
    return image.rot90(k, (-2, -1))


def rotated_with(
    one: Callable[[Tensor, int], Tensor] = left,
    turns: Callable[[Tensor], Tensor] = lambda turns: turns,
    by_turn: bool = False,
    labels: Callable[[Tensor, int], Tensor] = lambda labels, B: labels,
):
    """Both functions with something else in them. ``by_turn``: of four turns, all images with the first come first.
    ``labels`` sees the right ones and B."""

    def turn(images, given):
        return each_turned(images, turns(given), one)

    def four(images):
        B = len(images)
        found = torch.arange(4).repeat_interleave(B) if by_turn else torch.arange(4).repeat(B)
        images = images.repeat(4, 1, 1, 1) if by_turn else images.repeat_interleave(4, dim=0)
        return turn(images, found), labels(found, B)

    return by_task(turn=turn, four_turns=four)


def judge_labels(case: Case, answers: Sequence[Arrays]) -> str | None:
    whole = case.aspect != "four turns" or answers[-1]["1"].dtype.kind in "iu"
    return None if whole else "the labels are no whole numbers: they are classes, as F.cross_entropy takes them"


rotations = Part(
    "rotations",
    {"one image": 2, "a batch": 2, "four turns": 5},
    rotations_cases,
    by_task(turn=turn_reference, four_turns=four_reference),
    judge=judge_labels,
    suspects={
        "the images are turned clockwise: one quarter anticlockwise brings the last column into the first row": (
            rotated_with(lambda image, k: left(image, -k))
        ),
        "the images are turned clockwise, or the labels count clockwise: both go anticlockwise": rotated_with(
            labels=lambda labels, B: -labels % 4
        ),
        "the images are mirrored at their diagonal: that is no turn": rotated_with(
            lambda image, k: image.mT if k == 1 else image.mT.rot90(2, (-2, -1)) if k == 3 else left(image, k)
        ),
        "each image is turned by the first one's number: each has its own": rotated_with(
            turns=lambda turns: turns[:1].expand_as(turns)
        ),
        "all images with no turn come first: the four turns of an image stand beside each other": rotated_with(
            by_turn=True
        ),
        "images and labels have different orders: the labels go 0 1 2 3 0 1 2 3 …, so should the turns": rotated_with(
            by_turn=True, labels=lambda labels, B: torch.arange(4).repeat(B)
        ),
        "images and labels have different orders: the turns go 0 1 2 3 0 1 2 3 …, so should the labels": rotated_with(
            labels=lambda labels, B: labels.sort().values
        ),
        "the labels are the images' numbers: they are the turns'": rotated_with(
            labels=lambda labels, B: torch.arange(B).repeat_interleave(4)
        ),
    },
)


# --- restore what was corrupted ------------------------------------------------------------------------------


def reconstruction_reference(found, clean, masks) -> np.ndarray:
    found, clean, masks = np.asarray(found, float), np.asarray(clean, float), np.asarray(masks)
    result = np.zeros(len(found))
    for b in range(len(found)):
        errors = [
            abs(found[b, c, y, x] - clean[b, c, y, x]) for c, y, x in np.ndindex(found[b].shape) if masks[b, y, x]
        ]
        result[b] = sum(errors) / len(errors) if errors else 0.0
    return result


@with_slopes(4)
def reconstruction_cases(generator: torch.Generator) -> list[Case]:
    def case(aspect, about, B, C, height, width, covered: Sequence[int] = (), copied: bool = False):
        """``covered``: how many pixels, of each image; with ``copied`` the others are found as they are."""
        draw = partial(numbers, B, C, height, width, generator=generator)
        order = torch.rand(B, height * width, generator=generator).argsort(dim=1)
        masks = order < torch.tensor(covered)[:, None]
        found, clean, masks = draw(scale=2.0), draw(scale=2.0), masks.view(B, height, width)
        return Case(aspect, about, (found.where(masks[:, None], clean) if copied else found, clean, masks))

    B, C, height, width = sizes(generator, 4, 2, 6)
    pixels = height * width
    some = (1 + torch.randperm(pixels - 1, generator=generator))[: B - 1].tolist()
    return [
        case("which pixels", "one image of 2 x 2, two pixels corrupted", 1, 1, 2, 2, [2]),
        case("which pixels", "one image, five pixels corrupted", 1, 1, 4, 5, [5]),
        case("which pixels", "one image, all pixels corrupted", 1, 1, 2, 3, [6]),
        case("batch", "two images of 2 x 2, one and three pixels corrupted", 2, 1, 2, 2, [1, 3]),
        case(
            "batch", "one image, three channels, what is not corrupted is found as it is", 1, 3, 3, 2, [4], copied=True
        ),
        case("batch", "images with different numbers of corrupted pixels", B, C, height, width, [*some, 1]),
        case("batch", "B = C = height = width: no axis can be told by its size", 4, 4, 4, 4, [3, 7, 10, 15]),
        case("nothing corrupted", "the second of three images has no corrupted pixel", 3, 2, 3, 4, [5, 0, 12]),
        case("nothing corrupted", "one image without a corrupted pixel", 1, 1, 2, 2, [0]),
    ]


def reconstructed_with(
    error: Callable[[Tensor], Tensor] = torch.abs,
    divisor: Callable[[Tensor], Any] = lambda masks: masks.sum(dim=(1, 2)).clamp(min=1),
    channels: Callable[[Tensor], Tensor] = lambda wrong: wrong.mean(dim=1),
):
    """The losses with something else in them."""

    def mistake(found, clean, masks):
        wrong = channels(error(found - clean)) * masks
        return wrong.sum(dim=(1, 2)) / divisor(masks)

    return mistake


reconstruction_losses = Part(
    "reconstruction_losses",
    {"which pixels": 3, "batch": 2, "nothing corrupted": 2, "gradient": 1},
    reconstruction_cases,
    **as_losses(
        reconstruction_reference,
        {
            "this is the mean over all pixels, with zeros where nothing was corrupted: divide by the corrupted ones": (
                reconstructed_with(divisor=lambda masks: masks[0].numel())
            ),
            "the errors are squared: take their absolute values": reconstructed_with(torch.square),
            "the channels are added up: take their mean, too": reconstructed_with(
                channels=lambda wrong: wrong.sum(dim=1)
            ),
            "this is one number for all: each image has its own mean": lambda found, clean, masks: (
                (found - clean).abs().mean(dim=1)[masks].mean()
            ),
            "all corrupted pixels of the batch are counted together: each image is divided by its own number": (
                reconstructed_with(divisor=lambda masks: masks.sum().clamp(min=1))
            ),
            "an image without a corrupted pixel gives 0 / 0: its loss is 0": reconstructed_with(
                divisor=lambda masks: masks.sum(dim=(1, 2))
            ),
        },
    ),
    result="run_reconstruction_losses",
)


# --- find the other view -------------------------------------------------------------------------------------


def contrastive_reference(vectors, temperature) -> np.ndarray:
    vectors = np.asarray(vectors, float)
    B = len(vectors)
    units = [[row / np.sqrt(sum(row * row)) for row in views] for views in vectors]
    result = np.zeros((B, 2))
    for b, v in np.ndindex(B, 2):
        logits = {(i, j): sum(units[b][v] * units[i][j]) / temperature for i, j in np.ndindex(B, 2) if (i, j) != (b, v)}
        result[b, v] = np.log(sum(np.exp(x) for x in logits.values())) - logits[b, 1 - v]
    return result


@with_slopes(4)
def contrastive_cases(generator: torch.Generator) -> list[Case]:
    def case(aspect, about, B, d, temperature, length=1.0):
        vectors = numbers(B, 2, d, generator=generator)
        lengths = 1.0
        if length != 1:
            lengths = length * (0.3 + torch.rand(B, 2, 1, generator=generator))
        return Case(aspect, about, (F.normalize(vectors, dim=-1) * lengths, temperature))

    def cold(about, B, d, temperature, aside=False):
        """Short vectors, all of them much alike: their cosines over the temperature are more than exp can take. With
        ``aside`` one is not: beside its cosine with itself a double forgets those with the others."""
        vectors = 1 + 0.2 * numbers(B, 2, d, generator=generator)
        vectors[0, 0] -= vectors[0, 0].mean() if aside else 0
        lengths = 1e-3 * (0.3 + torch.rand(B, 2, 1, generator=generator))
        return Case("temperature", about, (F.normalize(vectors, dim=-1) * lengths, temperature))

    corner = torch.tensor([[[1.0, 0], [1, 0]], [[0, 1], [0.6, 0.8]]])
    B, d = sizes(generator, 2, 3, 7)
    tau = 0.1 * number(generator, 2, 7)
    return [
        Case("two images", "two images, vectors in the plane, temperature 1", (corner, 1.0), public=True),
        case("two images", "two images, temperature 1", 2, 3, 1.0),
        case("batch", "a batch, temperature 1", B, d, 1.0),
        case("batch", "d = 2 B = 8, temperature 1: no axis can be told by its size", 4, 8, 1.0),
        case("temperature", f"two images, temperature {tau:.1f}", 2, 3, tau),
        case("temperature", f"a batch, temperature {tau:.1f}", B + 1, d, tau),
        cold("vectors of length 0.001 that are much alike, temperature 0.01", B, d, 0.01),
        cold("one is at right angles to the others, which are much alike, temperature 0.02", B, d, 0.02, aside=True),
        case("lengths", "two images, vectors of other lengths, temperature 1", 2, 3, 1.0, 3.0),
        case("lengths", "a batch of vectors of other lengths", B, d + 1, 0.5, 2.0),
    ]


def contrasted_with(
    unit: Callable[[Tensor], Tensor] = lambda vectors: F.normalize(vectors, dim=-1),
    scale: Callable[[Tensor, float], Tensor] = lambda cosines, temperature: cosines / temperature,
    out: Callable[[int], Tensor] = lambda n: torch.eye(n, dtype=torch.bool),
    other: Callable[[int], Tensor] = lambda n: torch.arange(n) ^ 1,
    without_other: bool = False,
):
    """The losses with something else in them. ``out``: which of the 2 B are not among those to choose from.
    ``without_other``: nor is the other view, below the fraction's line."""

    def mistake(vectors, temperature):
        z = unit(vectors).flatten(0, 1)
        n = len(z)
        logits, partner = scale(z @ z.T, temperature), other(n)[:, None]
        below = logits.masked_fill(out(n), -torch.inf)
        if without_other:
            below = below.scatter(1, partner, -torch.inf)
        losses = below.logsumexp(dim=1) - logits.gather(1, partner)[:, 0]
        return losses.unflatten(0, (-1, 2))

    return mistake


def nearly_unit(vectors: Tensor, least: float) -> Tensor:
    return vectors / (vectors.norm(dim=-1, keepdim=True) + least)


def first_views(vectors: Tensor, temperature: float) -> Tensor:
    """Each first view looks for its partner among the second ones."""
    first, second = F.normalize(vectors, dim=-1).unbind(dim=1)
    return F.cross_entropy(first @ second.T / temperature, torch.arange(len(first)), reduction="none")


def halves(n: int) -> Tensor:
    return torch.arange(n).roll(n // 2)


contrastive_losses = Part(
    "contrastive_losses",
    {"two images": 4, "batch": 3, "temperature": 3, "lengths": 3, "gradient": 2},
    contrastive_cases,
    **as_losses(
        contrastive_reference,
        {
            "the view itself is among those to choose from: leave k = i out of the sum": contrasted_with(
                out=lambda n: torch.zeros(n, n, dtype=torch.bool)
            ),
            "the view itself keeps the logit 0 in the sum: leave it out, its logit is -inf": contrasted_with(
                scale=lambda cosines, temperature: (cosines / temperature).fill_diagonal_(0.0),
                out=lambda n: torch.zeros(n, n, dtype=torch.bool),
            ),
            "only the first views look for their partners: each of the two views does, (B, 2)": first_views,
            "the other view is left out of the sum: k goes through all but i": contrasted_with(without_other=True),
            "this is the partner's place as if all first views came before all second ones: the two views of an image "
            "are vectors[b, 0] and vectors[b, 1]": contrasted_with(other=halves),
            "the vectors are not scaled to length 1": contrasted_with(lambda vectors: vectors),
            **{
                f"{least:g} is added to the lengths, which short vectors feel: divide each by its length alone, as "
                "F.normalize does": contrasted_with(partial(nearly_unit, least=least))
                for least in (1e-8, 1e-7, 1e-6, 1e-5)
            },
        },
    ),
    result="run_contrastive_losses",
)


# --- one loss of several -------------------------------------------------------------------------------------


def slopes(function: Callable[[Tensor, Tensor], Tensor], losses: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients by the losses and by s."""
    losses, s = losses.clone().requires_grad_(), s.clone().requires_grad_()
    total = function(losses, s)
    if not total.requires_grad:
        return torch.zeros_like(losses), torch.zeros_like(s)
    return torch.autograd.grad(total, (losses, s), allow_unused=True, materialize_grads=True)


def total_reference(losses, s):
    losses, variances = np.asarray(losses, float), np.exp(np.asarray(s, float))
    return np.float64(sum(losses / (2 * variances) + np.log(1 + variances)))


def slopes_reference(losses, s):
    losses, variances = np.asarray(losses, float), np.exp(np.asarray(s, float))
    return 1 / (2 * variances), variances / (1 + variances) - losses / (2 * variances)


def best_reference(losses):
    """Where the derivative by v = e^s is 0: 2 v^2 = L (1 + v)."""
    losses = np.asarray(losses, float)
    return np.log((losses + np.sqrt(losses**2 + 8 * losses)) / 4)


def weighing_cases(generator: torch.Generator) -> list[Case]:
    def losses(n):
        return 0.1 + 3 * torch.rand(n, generator=generator)

    def pair(n):
        s = numbers(n, generator=generator)
        return losses(n), s + s.sign() * 0.2  # none is near 0

    n = number(generator, 4, 6)
    return [
        Case(
            "total", "one loss of 2, s = 0, so sigma^2 = 1", ("total", torch.tensor([2.0]), torch.zeros(1)), public=True
        ),
        Case("total", "three losses, s = 0", ("total", losses(3), torch.zeros(3))),
        Case("total", "one loss, sigma^2 = 3", ("total", losses(1), torch.tensor([3.0]).log())),
        Case("total", f"{n} losses", ("total", *pair(n))),
        Case("learned", "the gradients for one loss", ("slopes", *pair(1))),
        Case("learned", f"the gradients for {n} losses", ("slopes", *pair(n))),
        Case("best", "the loss 1, whose best sigma^2 is 1", ("best", torch.ones(1)), public=True),
        Case("best", f"{n} losses", ("best", losses(n))),
    ]


def weighed_with(total: Callable[[Tensor, Tensor], Tensor]):
    return by_task(total=total, slopes=partial(slopes, total))


weighing = Part(
    "weighing",
    {"total": 5, "learned": 3, "best": 3},
    weighing_cases,
    by_task(total=total_reference, slopes=slopes_reference, best=best_reference),
    {
        "s is taken for the variance itself: it is its logarithm, sigma^2 = e^s": weighed_with(
            lambda L, s: (L / (2 * s) + (1 + s).log()).sum()
        ),
        "the term ln(1 + sigma^2) is missing: without it the variances grow without end": weighed_with(
            lambda L, s: (L / 2 * (-s).exp()).sum()
        ),
        "this is ln(sigma^2), which falls without end where a loss is near 0: take ln(1 + sigma^2)": weighed_with(
            lambda L, s: (L / 2 * (-s).exp() + s).sum()
        ),
        "this is s / 2, the price of Kendall et al., which falls without end where a loss is near 0: take ln(1 + "
        "sigma^2)": weighed_with(lambda L, s: (L / 2 * (-s).exp() + s / 2).sum()),
        "the factor 1/2 is missing": weighed_with(lambda L, s: (L * (-s).exp() + F.softplus(s)).sum()),
        "s is taken for ln(sigma): it is ln(sigma^2)": weighed_with(
            lambda L, s: (L / 2 * (-2 * s).exp() + F.softplus(2 * s)).sum()
        ),
        "no gradient reaches s: the variances are learned, so keep tensors (no .item(), float() or detach())": (
            weighed_with(lambda L, s: (L / 2 * (-s.detach()).exp() + F.softplus(s.detach())).sum())
        ),
        "this is for ln(sigma^2) in the place of ln(1 + sigma^2)": by_task(best=lambda losses: (losses / 2).log()),
    },
)


# --- what features are worth, without a leak -----------------------------------------------------------------


def standardise_reference(features, queries):
    features, queries = (np.asarray(a, float) for a in (features, queries))
    shifted = [np.zeros_like(features), np.zeros_like(queries)]
    for j in range(features.shape[1]):
        column = features[:, j]
        mean = sum(column) / len(column)
        deviation = (sum((column - mean) ** 2) / len(column)) ** 0.5
        for result, given in zip(shifted, (features, queries)):
            result[:, j] = (given[:, j] - mean) / (deviation if deviation > 1e-9 else 1.0)
    return tuple(shifted)


def shares_reference(features, labels, queries, k, temperature, classes):
    votes = votes_reference(features, labels, queries, k, temperature, classes)
    return votes / votes.sum(axis=1, keepdims=True)


def evaluation_cases(generator: torch.Generator) -> list[Case]:
    draw = partial(numbers, generator=generator)

    def standardise(aspect, about, n, m, D, constant=False, unit=1.0):
        spread, middle = 0.5 + 3 * torch.rand(D, generator=generator), draw(D, scale=4.0)
        features, queries = draw(n, D) * spread + middle, 1 + 2 * draw(m, D) * spread + middle
        if constant:
            features[:, 1] = 2.0  # exact in every way to take a mean
        return Case(aspect, f"standardise: {about}", ("standardise", unit * features, unit * queries))

    def vote(about, n, m, D, k, temperature, classes, longer=1.0, unit=1.0):
        """No two cosines are nearly alike where k ends."""
        while True:
            features, labels = draw(n, D), torch.arange(n) % (classes - 1)  # of one class there is none
            features = unit * features * (0.5 + longer * torch.rand(n, 1, generator=generator))
            order, queries = torch.randperm(n, generator=generator), unit * draw(m, D, scale=3.0)
            ordered = cosines_of(features, queries).sort(dim=1, descending=True).values
            if (ordered[:, k - 1] - ordered[:, k]).min() > 1e-4:
                break
        arguments = (features, labels[order], queries, k, temperature, classes)
        return Case("neighbours", f"knn_shares: {about}", ("knn_shares", *arguments))

    n, m, D = sizes(generator, 3, 5, 9)
    k = number(generator, 4, 6)
    return [
        standardise("standardise", "three vectors of one number, two queries", 3, 2, 1),
        standardise("standardise", f"{n} vectors of {D} numbers, {m} queries", n, m, D),
        standardise("standardise", "n = m = D: no axis can be told by its size", 6, 6, 6),
        standardise("standardise", "one query", n, 1, D),
        standardise("constant numbers", "the second number is the same in all vectors", n, m, D, constant=True),
        standardise("constant numbers", "numbers that hardly differ, and do", n, m, D, unit=1e-3),
        vote("four vectors, the two nearest vote, temperature 1", 4, 1, 2, 2, 1.0, 3),
        vote(f"{3 * n} vectors, {k} nearest, {m} queries", 3 * n, m, D, k, 0.3, 4),
        vote("n = m = D = classes: no axis can be told by its size", 6, 6, 6, 4, 0.5, 6, longer=3.0),
        vote("60 short vectors, 20 nearest", 60, m, D, 20, 0.3, 5, unit=0.01),
    ]


def standardised_with(
    by: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] = lambda features, queries: (features, features),
    statistics: Callable[[Tensor], tuple[Tensor, Tensor]] = lambda x: (x.mean(dim=0), x.std(dim=0, correction=0)),
    divide: Callable[[Tensor, Tensor], Tensor] = lambda x, deviation: x / deviation.where(deviation > 1e-9, 1.0),
):
    """``by``: what the statistics of the features come from, and those of the queries."""

    def mistake(features, queries):
        results = []
        for given, source in zip((features, queries), by(features, queries)):
            mean, deviation = statistics(source)
            results.append(divide(given - mean, deviation))
        return tuple(results)

    return by_task(standardise=mistake)


def shares_with(**mistake: Any):
    return by_task(knn_shares=votes_with(after=lambda votes: votes / votes.sum(dim=1, keepdim=True), **mistake))


evaluation = Part(
    "evaluation",
    {"standardise": 3, "constant numbers": 2, "neighbours": 4},
    evaluation_cases,
    by_task(standardise=standardise_reference, knn_shares=shares_reference),
    {
        "the queries are standardised by their own mean and deviation: that leaks the test into the features, and one "
        "query alone would have no deviation": standardised_with(lambda features, queries: (features, queries)),
        "mean and deviation are those of features and queries together: the test leaks into them. Take the features' "
        "alone": standardised_with(lambda features, queries: (torch.cat([features, queries]),) * 2),
        "one mean and one deviation for all numbers: each of the D numbers has its own, dim=0": standardised_with(
            statistics=lambda x: (x.mean(), x.std(correction=0))
        ),
        "a number that is the same in all vectors gives 0 / 0: divide by 1 there": standardised_with(
            divide=lambda x, deviation: x / deviation
        ),
        "these are products of vectors that are not scaled to length 1: take the cosines": shares_with(
            near=lambda features, queries: queries @ features.T
        ),
        "all neighbours have the same weight: it is exp(cosine / temperature)": shares_with(
            weigh=lambda near, temperature: torch.ones_like(near)
        ),
        "all vectors vote: only the k nearest do": shares_with(choose=lambda near, k: near.argsort(dim=1)),
        "a class with several neighbours has one vote: the weights of all of them are added": shares_with(add=False),
    },
)


# --- hidden patches, as in a masked autoencoder --------------------------------------------------------------


def keep_reference(patches, order, visible):
    patches, order = np.asarray(patches), np.asarray(order)
    return np.stack([[rows[i] for i in some[:visible]] for rows, some in zip(patches, order)])


def put_back_reference(states, mask_token, order):
    states, mask_token, order = map(np.asarray, (states, mask_token, order))
    result = np.empty((*order.shape, len(mask_token)))
    for b, some in enumerate(order):
        for place, i in enumerate(some):
            result[b, i] = states[b, place] if place < states.shape[1] else mask_token
    return result


def painting_reference(guessed, patches, order, visible):
    guessed, patches, order = (np.asarray(a, float) for a in (guessed, patches, order))
    errors = []
    for b, some in enumerate(order.astype(int)):
        for i in some[visible:]:
            x = patches[b, i] - sum(patches[b, i]) / len(patches[b, i])
            x = x / np.sqrt(sum(x * x) / (len(x) - 1) + 1e-6)
            errors.append(sum((guessed[b, i] - x) ** 2) / len(x))
    return np.float64(sum(errors) / len(errors))


def painting_cases(generator: torch.Generator) -> list[Case]:
    draw = partial(numbers, generator=generator)

    def orders(B, N):
        """None of which is its own inverse."""
        found = [torch.randperm(N, generator=generator) for _ in range(20 * B)]
        return torch.stack([x for x in found if not torch.equal(x, x.argsort())][:B])

    def keep(about, B, N, D, K):
        return Case("keep", f"keep: {about}", ("keep", draw(B, N, D), orders(B, N), K))

    def back(about, B, N, E, K):
        return Case("put back", f"put_back: {about}", ("put_back", draw(B, K, E), draw(E), orders(B, N)))

    def loss(about, B, N, M, K, unit=1.0):
        patches = unit * draw(B, N, M) * (0.5 + torch.rand(B, N, 1, generator=generator)) + draw(B, N, 1, scale=2.0)
        return Case("loss", f"painting_loss: {about}", ("painting_loss", draw(B, N, M), patches, orders(B, N), K))

    def by_guesses(case):
        return Case("gradient", f"the gradient of {case.about}", ("painting_slope", *case.arguments[1:]))

    order = torch.tensor([[3, 0, 1, 2]])
    B, D, M = sizes(generator, 3, 3, 8)
    N, K = 9 + number(generator, 1, 4), number(generator, 2, 5)
    return [
        Case("keep", "keep: four patches of one number, one visible",
             ("keep", torch.arange(1.0, 5.0).view(1, 4, 1), order, 1), public=True),
        keep("one image", 1, 6, 2, 3),
        keep(f"{B} images, {K} of {N} patches", B, N, D, K),
        keep("B = N = D: no axis can be told by its size", 5, 5, 5, 2),
        Case("put back", "put_back: one of four patches is visible",
             ("put_back", torch.tensor([[[7.0]]]), torch.tensor([0.5]), order), public=True),
        back("one image", 1, 6, 2, 3),
        back(f"{B} images, {K} of {N} patches", B, N, D, K),
        back("B = N = E: no axis can be told by its size", 5, 5, 5, 2),
        loss("one image, three of six patches hidden", 1, 6, 4, 3),
        loss(f"{B} images, all but {K} of {N} patches hidden", B, N, M, K),
        loss("B = N = M: no axis can be told by its size", 6, 6, 6, 2),
        loss("patches so dark that 0.000001 counts", B, N, M, K, 2e-3),
        by_guesses(loss("one image, three of six patches hidden", 1, 6, 4, 3)),
    ]  # fmt: skip


def picked_by(x: Tensor, order: Tensor) -> Tensor:
    """x[b, order[b, i]] at place i."""
    return x.gather(1, order[..., None].expand(-1, -1, x.shape[-1]))


def filled_with(undo: Callable[[Tensor], Tensor] = lambda order: order.argsort(dim=1), tokens_first: bool = False):
    def mistake(states, mask_token, order):
        B, N = order.shape
        parts = [states, mask_token.expand(B, N - states.shape[1], -1)]
        return picked_by(torch.cat(parts[::-1] if tokens_first else parts, dim=1), undo(order))

    return by_task(put_back=mistake)


def own(patches: Tensor, correction: int = 1) -> Tensor:
    """Each patch less its mean, over its deviation."""
    variance = patches.var(dim=-1, keepdim=True, correction=correction)
    return (patches - patches.mean(dim=-1, keepdim=True)) / (variance + 1e-6).sqrt()


def of_the_image(patches: Tensor) -> Tensor:
    return own(patches.flatten(1)).view_as(patches)


def painted_with(
    wanted: Callable[[Tensor], Tensor] = own,
    counted: Callable[[Tensor, int], Tensor] = lambda order, visible: order[:, visible:],
):
    def mistake(guessed, patches, order, visible):
        return picked_by((guessed - wanted(patches)) ** 2, counted(order, visible)).mean()

    return by_task(painting_loss=mistake, painting_slope=partial(slope, mistake))


painting = Part(
    "painting",
    {"keep": 3, "put back": 4, "loss": 4, "gradient": 1},
    painting_cases,
    by_task(
        keep=keep_reference,
        put_back=put_back_reference,
        painting_loss=painting_reference,
        painting_slope=partial(slope, painting_reference),
    ),
    {
        CUT: by_task(painting_slope=no_slope),
        "these are the hidden patches: the first ones of the order stay visible": by_task(
            keep=lambda patches, order, visible: picked_by(patches, order[:, visible:])
        ),
        "these are the first patches of the image: take the first ones of its order": by_task(
            keep=lambda patches, order, visible: patches[:, :visible]
        ),
        "the order is applied once more: put_back must undo it, and state i belongs in place order[b, i]": filled_with(
            undo=lambda order: order
        ),
        "the mask tokens stand before the states: the visible patches are the first ones of the order": filled_with(
            tokens_first=True
        ),
        "all patches count: only hidden ones do": painted_with(counted=lambda order, visible: order),
        "the visible patches count: only hidden ones do": painted_with(
            counted=lambda order, visible: order[:, :visible]
        ),
        "the patches are not normalised: each less its mean, over its deviation": painted_with(lambda patches: patches),
        "mean and deviation are those of the whole image: each patch has its own": painted_with(of_the_image),
    },
)


# --- a SiT of one's own, without labels ----------------------------------------------------------------------

BODY = ViTConfig(8, 4, 1, d_model=64, n_heads=4, d_ff=128, n_layers=2, classes=0, pooling="mean")
LOW, HIGH = 0.60, 0.80  # of the hidden digits, by their 20 neighbours


def scaled(images: Tensor) -> Tensor:
    return (images - 0.3) / 0.6


def lit(images: Tensor, generator: torch.Generator) -> Tensor:
    """In weaker ink, in a light of its own, with noise; as in the exercise."""
    B, place = len(images), torch.linspace(-1, 1, 8)
    ink = 0.5 + 0.5 * torch.rand(B, 1, 1, 1, generator=generator)
    down, right, level = 2 * torch.rand(3, B, 1, 1, 1, generator=generator) - 1
    light = down * place[:, None] + right * place + level
    return scaled(ink * images + light + 0.05 * torch.randn(images.shape, generator=generator))


def pretrain_cases(generator: torch.Generator) -> list[Case]:
    seed = number(generator, 1, 2**31 - 1)
    about = "digits of the test split, each in a light of its own"
    return [Case(f"{bound:.0%} right", about, secret=seed) for bound in (LOW, HIGH)]


def rebuilt(weights: Arrays) -> SiT | str:
    """A model of ours with these weights and the heads that they are for; or, in words, why there is none."""
    objectives = [name for name in OBJECTIVES if any(key.startswith(f"heads.{name}.") for key in weights)]
    if not objectives:
        return "this is no SiT: return the model that new_sit gave you"
    model = SiT(SiTConfig(BODY, objectives, d_contrast=64)).eval()
    missing = "this is not a model of new_sit: it has no weights {name}"
    return put_into(model, weights, missing, "its sizes are not those of new_sit") or model


@torch.inference_mode()
def neighbours_right(model: SiT, found: Digits, asked: Tensor, labels: Tensor, generator: torch.Generator | None):
    """The share of ``asked`` whose class the 20 nearest of ``found`` give; all in a light of their own, or in none."""
    views = [scaled(x) if generator is None else lit(x, generator) for x in (found.images, asked)]
    return (knn(model.features(views[0]), found.labels, model.features(views[1])) == labels).float().mean().item()


@torch.inference_mode()
def likeness(model: SiT) -> tuple[float, float]:
    """Mean cosines of features, less the mean of all: of one digit in two lights, and of two digits in one light."""
    images = digits("train").images[:200]
    one, other, same_light = (
        model.features(lit(x, torch.Generator().manual_seed(seed)))
        for x, seed in ((images, 1), (images, 2), (images.roll(1, dims=0), 1))
    )
    one, other, same_light = (x - one.mean(dim=0) for x in (one, other, same_light))
    return F.cosine_similarity(one, other).mean().item(), F.cosine_similarity(one, same_light).mean().item()


@torch.inference_mode()
def guesses(model: SiT) -> bool:
    """Whether the model hardly finds the other view of an image, be it in another light or in the same one."""
    images, generator = digits("train").images[:128], torch.Generator().manual_seed(1)
    one, other = (lit(images, generator) for _ in range(2))
    losses = []
    for second in (other, one + 0.05 * torch.randn(one.shape, generator=generator)):
        z = model(torch.cat([one, second]))["contrastive"]
        logits = (z @ z.T / 0.2).fill_diagonal_(-torch.inf)
        losses.append(F.cross_entropy(logits, torch.arange(len(z)).roll(len(one))).item())
    return min(losses) > 0.9 * np.log(len(z) - 1)


# What trained heads do with digits that they have not seen, measured on 256 of the split "train" that were kept out of
# 14 trainings, nine of them with a contrastive loss, three of these short, 185 updates. Contrastive losses were 0.5 to
# 2.0 at the temperature 0.1, turns 88 % right, restored images alike by 0.96 and more. Heads that were not trained
# had 3.6 and more, even where the light was projected out of the first weights; 23 to 32 %; and 0.05 and less.
CONTRAST, TURNED_RIGHT, RESTORED = 3.0, 0.5, 0.5
TOGETHER = 64  # images whose views are contrasted


def same_image(one: Tensor, other: Tensor) -> float:
    """The mean correlation of their pixels."""
    one, other = (x.flatten(1) - x.flatten(1).mean(dim=1, keepdim=True) for x in (one, other))
    return F.cosine_similarity(one, other).mean().item()


@torch.inference_mode()
def untaught(model: SiT, seed: int) -> str | None:
    """Whether none of its heads does with new digits what its objective teaches, in words.

    Features in which a digit's like can be found come from a skilful choice of weights, too; the task is to train them.
    """
    generator = torch.Generator().manual_seed(seed)
    images = digits("test").images[torch.randperm(400, generator=generator)[: 4 * TOGETHER]]
    views = [lit(images, generator) for _ in range(2)]
    said = [model(view) for view in views]
    if "contrastive" in model.config.objectives:
        partner = torch.arange(2 * TOGETHER).roll(TOGETHER)
        pairs = [torch.cat(both) for both in zip(*(one["contrastive"].split(TOGETHER) for one in said))]
        for temperature in (0.1, 0.2):
            logits = [(z @ z.T / temperature).fill_diagonal_(-torch.inf) for z in pairs]
            if np.mean([F.cross_entropy(one, partner).item() for one in logits]) <= CONTRAST:
                return None
    if "rotation" in model.config.objectives:
        for way in (1, -1):  # whichever way its labels count, and whatever came first, turning or lighting
            for turned in (lambda k: lit(images.rot90(k, (-2, -1)), generator), lambda k: views[0].rot90(k, (-2, -1))):
                found = [(model(turned(k))["rotation"].argmax(dim=1) == way * k % 4).float().mean() for k in range(4)]
                if sum(found) / 4 >= TURNED_RIGHT:
                    return None
    if "reconstruction" in model.config.objectives:
        restored = said[0]["reconstruction"]
        if max(same_image(restored, images), same_image(restored, views[0])) >= RESTORED:
            return None
    return "none of its heads has learned what its objective teaches: train the model, its weights as well as its heads"


def why_not(model: SiT) -> str:
    """The likely reason for wrong digits, in words."""
    if bool((model.vit.norm.weight == 1).all()):
        return "no weight has changed: do the updates reach the model that you return (backward, then step)?"
    contrasted = "contrastive" in model.config.objectives
    if contrasted and guesses(model):
        return (
            "its contrastive loss is that of mere guesses: are the two views of an image partners, vectors[b, 0] and "
            "vectors[b, 1], and was it trained for long enough?"
        )
    same_digit, same_light = likeness(model)
    if same_light < same_digit:
        return "it looks at the digit more than at the light already: train longer, with larger batches or another rate"
    words = "two digits in one light are more alike for it than one digit in two lights: "
    if contrasted:
        return words + "each of the two views needs a light of its own, by a call of lit for each"
    return words + "your objective gains nothing from what stays when the light changes. Which one would?"


@once_for_a_model
def judged(model: SiT, seed: int) -> tuple[float, str, str | None]:
    """The share of right digits, why not more are right, and whether its heads have learned nothing."""
    test, generator = digits("test"), torch.Generator().manual_seed(seed)
    asked, labels = test.images.repeat(2, 1, 1, 1), test.labels.repeat(2)
    right = neighbours_right(model, digits("train"), asked, labels, generator)
    return right, why_not(model) if right < HIGH else "", untaught(model, seed) if right >= LOW else None


def judge_features(case: Case, answers: Sequence[Arrays]) -> str | None:
    """Load the weights into a model of our own and look at the neighbours of its features."""
    model = rebuilt(answers[-1])
    if isinstance(model, str):
        return model
    right, why, untrained = judged(model, case.secret)
    wanted = {f"{bound:.0%} right": bound for bound in (LOW, HIGH)}[case.aspect]
    return untrained if right >= wanted else f"{right:.0%} are right, {wanted:.0%} are asked for: {why}"


pretrain = Part(
    "pretrain",
    {f"{LOW:.0%} right": 6, f"{HIGH:.0%} right": 8},
    pretrain_cases,
    judge=judge_features,
    result="model",
    seconds=180,
)

PARTS = (block_masks, rotations, reconstruction_losses, contrastive_losses, weighing, evaluation, painting, pretrain)
WRITTEN = {"what_a_loss_says": 12}
score = partial(show_score, PARTS, WRITTEN)
