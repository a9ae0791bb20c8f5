"""Checks of exercise 07: patches, their embedding, class token and positions, rollout, other sizes, digits to read.

The references, whose options are places for mistakes, share nothing with ``coursekit.nn``,
``coursekit.models.vit`` and ``coursekit.evaluate.vision``.

Legend: B images, C channels, P side of a patch, N patches, T tokens (N and the class token), D = d_model, K classes,
L layers, H heads.
"""

import functools
from collections.abc import Callable, Sequence
from functools import partial
from math import isqrt, prod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from coursekit.data.digits import Digits, digits
from coursekit.grading.calls import Arrays
from coursekit.grading.checks.common import norm, number, numbers, sizes
from coursekit.grading.differences import values
from coursekit.grading.mistakes import by_task, given
from coursekit.grading.parts import Case, Part
from coursekit.grading.parts import score as show_score
from coursekit.grading.weights import put_into
from coursekit.nn.attention import MultiHeadAttention
from coursekit.nn.blocks import Block, FeedForward

# --- images as rows of patches, and back ---------------------------------------------------------------------


def patchify_reference(images, size, *, order="brcCpq"):
    """b images, r rows and c columns of patches, C channels, p and q the rows and columns of their pixels."""
    B, C = images.shape[:2]
    x = images.unflatten(3, (-1, size)).unflatten(2, (-1, size))
    return x.permute(["bCrpcq".index(axis) for axis in order]).reshape(B, -1, C * size * size)


def unpatchify_reference(patches, size, rows, columns, *, order="brcCpq"):
    B, _, n = patches.shape
    long = {"b": B, "r": rows, "c": columns, "C": n // size**2, "p": size, "q": size}
    x = patches.reshape([long[axis] for axis in order])
    return x.permute([order.index(axis) for axis in "bCrpcq"]).flatten(4).flatten(2, 3)


def patches_with(order):
    return by_task(
        patchify=partial(patchify_reference, order=order), unpatchify=partial(unpatchify_reference, order=order)
    )


def patches_cases(generator: torch.Generator) -> list[Case]:
    draw = partial(numbers, generator=generator)

    def cut(aspect, about, B, C, rows, columns, P, flat=False):
        """With ``flat`` all pixels of a patch are alike."""
        images = draw(B, C, rows, columns).repeat_interleave(P, 2).repeat_interleave(P, 3)
        images = images if flat else draw(B, C, rows * P, columns * P)
        return Case(aspect, f"patchify: {about}", ("patchify", images, P))

    def back(about, B, C, rows, columns, P):
        patches = draw(B, rows * columns, C * P * P)
        return Case("back", f"unpatchify: {about}", ("unpatchify", patches, P, rows, columns))

    B, C, P = sizes(generator, 3, 2, 4)
    rows, columns = sizes(generator, 2, 5, 7)
    big, alike = f"{rows} x {columns} patches of {P} x {P}", "B = C = P = rows = columns: no axis can be told by its"
    return [
        cut("order of patches", "2 x 3 patches, each of one colour", 1, 1, 2, 3, 2, flat=True),
        cut("order of patches", f"{big}, each of one colour, a batch", B, 1, rows, columns, P, flat=True),
        cut("numbers of a patch", "one patch of 2 x 2", 1, 1, 1, 1, 2),
        cut("numbers of a patch", "one patch of 2 x 2, three channels", 1, 3, 1, 1, 2),
        cut("numbers of a patch", f"{big}, a batch, {C} channels", B, C, rows, columns, P),
        cut("numbers of a patch", f"{alike} size", 3, 3, 3, 3, 3),
        back("one patch of 2 x 2, three channels", 1, 3, 1, 1, 2),
        back("2 x 3 patches, one channel", 1, 1, 2, 3, 2),
        back("2 x 8 patches: as many as in a square", B, C, 2, 8, P),
        back(f"{big}, a batch, {C} channels", B, C, rows, columns, P),
        back(f"{alike} size", 3, 3, 3, 3, 3),
    ]


def viewed(images: Tensor, size: int) -> Tensor:
    return images.reshape(len(images), -1, images.shape[1] * size**2)


def unviewed(patches: Tensor, size: int, rows: int, columns: int) -> Tensor:
    return patches.reshape(len(patches), -1, rows * size, columns * size)


def patch_by_patch(patches: Tensor, size: int, rows: int, columns: int) -> Tensor:
    """The numbers of each patch stay together when the image is put together."""
    return unviewed(patches.unflatten(2, (-1, size * size)).transpose(1, 2), size, rows, columns)


def squared(patches: Tensor, size: int, rows: int, columns: int) -> Tensor:
    return unpatchify_reference(patches, size, isqrt(patches.shape[1]), isqrt(patches.shape[1]))


patches = Part(
    "patches",
    {"order of patches": 4, "numbers of a patch": 5, "back": 7},
    patches_cases,
    patches_with("brcCpq"),
    {
        "the patches go column by column: they go row by row, as one reads a page": patches_with("bcrCpq"),
        "the pixels of a patch go column by column: they go row by row": patches_with("brcCqp"),
        "the channels come last: all pixels of channel 0 come first, then all of channel 1, as in a kernel": (
            patches_with("brcpqC")
        ),
        "the channels come before the patches: each patch holds its pixels of all channels, (B, rows, columns, C, P, "
        "P)": patches_with("bCrcpq"),
        "the axes are joined as (rows, columns, P, P): a row of pixels goes through all patches beside each other, "
        "(rows, P, columns, P)": by_task(unpatchify=patch_by_patch),
        "this is a view alone, which cuts the rows of pixels into pieces: a patch has pixels of several rows. Make an "
        "axis for each of rows, P, columns and P, then bring them into order": by_task(
            patchify=viewed, unpatchify=unviewed
        ),
        "the grid is taken to be a square: it has the rows and columns that are given": by_task(unpatchify=squared),
    },
)


# --- the layer on patches is a convolution -------------------------------------------------------------------


def matrix_reference(kernel, *, order="dCpq"):
    return kernel.permute(["dCpq".index(axis) for axis in order]).flatten(1).T


def kernel_reference(matrix, channels, size, *, order="dCpq"):
    long = {"d": matrix.shape[1], "C": channels, "p": size, "q": size}
    x = matrix.T.reshape([long[axis] for axis in order])
    return x.permute([order.index(axis) for axis in "dCpq"])


def count_reference(channels, height, width, size, d_model, *, count=lambda n, N, D: (n + 1) * D + (N + 2) * D):
    """From n numbers of a patch, N patches and D."""
    return count(channels * size * size, height * width // size**2, d_model)


def kernels_with(order):
    return by_task(as_matrix=partial(matrix_reference, order=order), as_kernel=partial(kernel_reference, order=order))


def counted(count: Callable[[int, int, int], int]):
    return by_task(n_parameters=partial(count_reference, count=count))


def kernels_cases(generator: torch.Generator) -> list[Case]:
    draw = partial(numbers, generator=generator)

    def there(about, D, C, P):
        return Case("matrix", f"as_matrix: {about}", ("as_matrix", draw(D, C, P, P)))

    def back(about, D, C, P):
        return Case("kernel", f"as_kernel: {about}", ("as_kernel", draw(C * P * P, D), C, P))

    def count(C, height, width, P, D, **more):
        about = (
            f"n_parameters: {C} channel{'s' if C > 1 else ''}, {height} x {width} pixels, patches of {P} x {P}, D = {D}"
        )
        return Case("count", about, ("n_parameters", C, height, width, P, D), **more)

    C, P, D = sizes(generator, 3, 2, 5)
    rows, columns = sizes(generator, 2, 3, 6)
    return [
        there("one channel, patches of 2 x 2, D = 3", 3, 1, 2),
        there(f"{C} channels, patches of {P} x {P}, D = {D}", D, C, P),
        there("D = C P^2: no axis can be told by its size", 18, 2, 3),
        back("one channel, patches of 2 x 2, D = 3", 3, 1, 2),
        back(f"{C} channels, patches of {P} x {P}, D = {D}", D, C, P),
        back("D = C P^2: no axis can be told by its size", 18, 2, 3),
        count(1, 4, 4, 2, 5, public=True),
        count(C, rows * P, columns * P, P, number(generator, 5, 99)),
        count(3, 224, 16 * number(generator, 5, 20), 16, 64 * number(generator, 2, 12)),
    ]


kernels = Part(
    "kernels",
    {"matrix": 4, "kernel": 4, "count": 4},
    kernels_cases,
    by_task(as_matrix=matrix_reference, as_kernel=kernel_reference, n_parameters=count_reference),
    {
        "a view alone mixes the D outputs: each kernel becomes one column, so the axis D has to move": by_task(
            as_matrix=lambda kernel: kernel.reshape(-1, len(kernel)),
            as_kernel=lambda matrix, channels, size: matrix.reshape(-1, channels, size, size),
        ),
        "the matrix is the other way round: it is (C P^2, D), so that patches @ matrix works": by_task(
            as_matrix=lambda kernel: matrix_reference(kernel).T,
            as_kernel=lambda matrix, channels, size: kernel_reference(
                matrix.reshape(matrix.shape[::-1]).T, channels, size
            ),
        ),
        "the channels come last among the numbers of a patch: they come first, as in patchify": kernels_with("dpqC"),
        "the pixels of a patch go column by column: they go row by row, as in patchify": kernels_with("dCqp"),
        "one vector of D is missing: the layer has a bias, and the class token has a position too": counted(
            lambda n, N, D: (n + 1) * D + (N + 1) * D
        ),
        "two vectors of D are missing: are the class token and its position counted?": counted(
            lambda n, N, D: (n + 1) * D + N * D
        ),
        "the layer is counted once for each patch: all patches go through the same one": counted(
            lambda n, N, D: N * (n + 1) * D + (N + 2) * D
        ),
        "the positions are not counted: there is one vector for each token": counted(lambda n, N, D: (n + 2) * D),
    },
)


# --- class token and positions, and what is read at the end --------------------------------------------------


def front(token: Tensor, vectors: Tensor) -> Tensor:
    return torch.cat([token.expand(len(vectors), 1, -1), vectors], dim=1)


def behind(token: Tensor, vectors: Tensor) -> Tensor:
    return torch.cat([vectors, token.expand(len(vectors), 1, -1)], dim=1)


def embed_reference(
    images, size, weight, bias, class_token, positions, *, join=front, add=torch.add, cut=patchify_reference
):
    return add(join(class_token, cut(images, size) @ weight.T + bias), positions)


def read_reference(z, scale, shift, weight, bias, *, choose=lambda z: z[:, 0], normalise=norm):
    """``choose`` sees the normed tokens (B, T, D)."""
    return choose(normalise(z, scale, shift)) @ weight.T + bias


def tokens_cases(generator: torch.Generator) -> list[Case]:
    draw = partial(numbers, generator=generator)

    def embed(aspect, about, B, C, rows, columns, P, D, still=False):
        """With ``still`` all positions are zeros."""
        weights = [draw(D, C * P * P), draw(D), draw(D), draw(1 + rows * columns, D)]
        weights[3] = 0 * weights[3] if still else weights[3]
        return Case(aspect, f"embed: {about}", ("embed", draw(B, C, rows * P, columns * P), P, *weights))

    def read(about, B, T, D, K, alike=False):
        """With ``alike`` all numbers of the first class token are the same."""
        weights = [1 + draw(D, scale=0.3), draw(D, scale=0.3), draw(K, D), draw(K)]
        z = 1 + draw(B, T, D, scale=3.0)
        z[:1, 0] = 2.0 if alike else z[:1, 0]
        return Case("read out", f"read_out: {about}", ("read_out", z, *weights))

    B, P, D = sizes(generator, 3, 2, 4)
    rows, columns = sizes(generator, 2, 2, 4)
    K = number(generator, 5, 7)
    return [
        embed("class token", "one image of 1 x 2 patches, all positions 0", 1, 1, 1, 2, 2, 3, still=True),
        embed("class token", "a batch, all positions 0", B, 3, rows, columns, P, D, still=True),
        embed("positions", "one image of 1 x 2 patches", 1, 1, 1, 2, 2, 3),
        embed("positions", f"a batch of {rows} x {columns} patches", B, 2, rows, columns, P, D),
        embed("positions", "B = T = D: no axis can be told by its size", 5, 1, 2, 2, 2, 5),
        read("one image of three tokens, D = 6", 1, 3, 6, 2),
        read("a batch; all numbers of one class token are the same", B, 1 + rows * columns, D + 6, K, alike=True),
        read("B = T = D = K: no axis can be told by its size", 7, 7, 7, 7),
    ]


BEHIND = "the class token stands behind the patches: it comes first"
EMBEDS: dict[str, Callable[..., Tensor]] = {
    BEHIND: partial(embed_reference, join=behind),
    "the positions are not added": partial(embed_reference, add=lambda x, positions: x),
    "the class token gets no position: positions[0] is its own": partial(
        embed_reference, add=lambda x, positions: torch.cat([x[:, :1], x[:, 1:] + positions[1:]], dim=1)
    ),
    "the class token gets the last position, and the patches the first ones: positions[0] is its own": given(
        embed_reference, positions=lambda positions: positions.roll(1, dims=0)
    ),
    "the patches go column by column: they go row by row": partial(
        embed_reference, cut=partial(patchify_reference, order="bcrCpq")
    ),
    "the pixels of a patch go column by column: they go row by row": partial(
        embed_reference, cut=partial(patchify_reference, order="brcCqp")
    ),
}
READS: dict[str, Callable[..., Tensor]] = {
    "the last token is read: the class token is the first": partial(read_reference, choose=lambda z: z[:, -1]),
    "all tokens of the first image are read, z[0]: the class token of each image is z[:, 0]": partial(
        read_reference, choose=lambda z: z[0]
    ),
    "the mean of all tokens is read: the class token speaks for the image": partial(
        read_reference, choose=lambda z: z.mean(dim=1)
    ),
    "the mean of all tokens is taken, and goes through the norm: the class token speaks for the image": (
        lambda z, *weights: read_reference(z.mean(dim=1, keepdim=True), *weights)
    ),
    "the mean of the patches is read: the class token speaks for the image": partial(
        read_reference, choose=lambda z: z[:, 1:].mean(dim=1)
    ),
    "the eps of the layer norm is missing, without which a token of equal numbers gives 0 / 0": partial(
        read_reference, normalise=partial(norm, eps=0.0)
    ),
    "the layer norm before the head is missing": partial(read_reference, normalise=lambda z, scale, shift: z),
}

tokens = Part(
    "tokens",
    {"class token": 4, "positions": 4, "read out": 6},
    tokens_cases,
    by_task(embed=embed_reference, read_out=read_reference),
    {words: by_task(embed=embed) for words, embed in EMBEDS.items()}
    | {words: by_task(read_out=read) for words, read in READS.items()},
)


# --- where attention has looked, through all layers ----------------------------------------------------------


def with_own(step: Tensor) -> Tensor:
    """(…, T, T) with the identity, and rows that sum to 1."""
    step = step + torch.eye(step.shape[-1])
    return step / step.sum(dim=-1, keepdim=True)


def multiplied(steps: Sequence[Tensor]) -> Tensor:
    """A_L ··· A_2 A_1."""
    return functools.reduce(lambda below, step: step @ below, steps)


def head_mean(weights: Tensor) -> Tensor:
    return weights.mean(dim=1)


def rollout_reference(maps, *, step=with_own, heads=head_mean, product=multiplied):
    return product([step(heads(weights)) for weights in maps])


def map_reference(rolled, rows, columns):
    found = rolled[:, 0, 1:]
    return (found / found.sum(dim=1, keepdim=True)).unflatten(1, (rows, columns))


def rollouts_cases(generator: torch.Generator) -> list[Case]:
    def weights(*shape):
        return numbers(*shape, generator=generator, scale=1.5).softmax(dim=-1)

    def roll(aspect, about, L, B, H, T):
        return Case(aspect, f"rollout: {about}", ("rollout", weights(L, B, H, T, T)))

    def draw(about, B, rows, columns):
        T = 1 + rows * columns
        return Case("map", f"class_map: {about}", ("class_map", weights(B, T, T), rows, columns))

    def kept(about, B, rows, columns):
        """What reaches the class token from the patches is 0.003, beside which a constant such as 1e-6 shows."""
        rolled = weights(B, 1 + rows * columns, 1 + rows * columns)
        rolled[:, 0, 1:] *= 3e-3 / rolled[:, 0, 1:].sum(dim=1, keepdim=True)
        rolled[:, 0, 0] = 1 - 3e-3
        return Case("map", f"class_map: {about}", ("class_map", rolled, rows, columns))

    B, H, T = sizes(generator, 3, 2, 5)
    L, rows, columns = number(generator, 3, 5), *sizes(generator, 2, 2, 5)
    return [
        roll("one layer", "one layer, one head, three tokens", 1, 1, 1, 3),
        roll("one layer", f"one layer, {H} heads, a batch", 1, B, H, T),
        roll("several layers", "two layers, one head, two tokens", 2, 1, 1, 2),
        roll("several layers", f"{L} layers, {H} heads, a batch", L, B, H, T),
        roll("several layers", "L = B = H = T: no axis can be told by its size", 3, 3, 3, 3),
        roll("several layers", "twelve layers", 12, 2, 2, 4),
        draw("one image of 1 x 2 patches", 1, 1, 2),
        draw(f"a batch of {rows} x {columns} patches", B, rows, columns),
        draw("a batch of 2 x 2 patches", B, 2, 2),
        kept("the class token keeps nearly all of itself", B, 2, 2),
    ]


rollouts = Part(
    "rollouts",
    {"one layer": 5, "several layers": 6, "map": 5},
    rollouts_cases,
    by_task(rollout=rollout_reference, class_map=map_reference),
    {
        "the identity is missing: it stands for the residual connection, by which a token keeps its own vector": (
            by_task(rollout=partial(rollout_reference, step=lambda step: step))
        ),
        "the rows are not divided by their sums: with the identity they sum to 2": by_task(
            rollout=partial(rollout_reference, step=lambda step: step + torch.eye(step.shape[-1]))
        ),
        "the columns are divided by their sums: divide the rows": by_task(
            rollout=partial(rollout_reference, step=lambda step: with_own(step.mT).mT)
        ),
        "the heads are averaged after the product: average them first, in each layer": by_task(
            rollout=lambda maps: head_mean(rollout_reference(maps, heads=lambda weights: weights))
        ),
        "the heads are added up, which makes the identity too small: average them": by_task(
            rollout=partial(rollout_reference, heads=lambda weights: weights.sum(dim=1))
        ),
        "the product has the wrong order: the last layer stands on the left, A_L ··· A_2 A_1": by_task(
            rollout=partial(rollout_reference, product=lambda steps: multiplied(steps[::-1]))
        ),
        "this is the column of the class token, what each token has from it: take its row": by_task(
            class_map=given(map_reference, rolled=lambda rolled: rolled.mT)
        ),
        "the weights of the patches are not divided by their sum": by_task(
            class_map=lambda rolled, rows, columns: rolled[:, 0, 1:].unflatten(1, (rows, columns))
        ),
        "the map is filled column by column: the patches go row by row": by_task(
            class_map=lambda rolled, rows, columns: map_reference(rolled, columns, rows).mT
        ),
    },
)


# --- positions for another size ------------------------------------------------------------------------------


def grown(cells: Tensor, grid: tuple[int, int], **options: Any) -> Tensor:
    """(n, m, D) -> (rows, columns, D)."""
    options = {"mode": "bicubic", "align_corners": False} | options
    return F.interpolate(cells.movedim(-1, 0)[None], size=grid, **options)[0].movedim(0, -1)


def resize_reference(
    positions, old_rows, old_columns, rows, columns, *, old=lambda cells, n, m: cells.reshape(n, m, -1), **options
):
    cells = grown(old(positions[1:], old_rows, old_columns), (rows, columns), **options)
    return torch.cat([positions[:1], cells.flatten(0, 1)])


def resize_cases(generator: torch.Generator) -> list[Case]:
    def case(aspect, old, new, D, alike=False):
        """With ``alike`` all cells have the same vector."""
        cells = numbers(prod(old), D, generator=generator)
        cells = cells[:1].expand_as(cells) if alike else cells
        positions = torch.cat([numbers(1, D, generator=generator), cells])
        about = f"{old[0]} x {old[1]} patches become {new[0]} x {new[1]}"
        return Case(aspect, about + ", all with the same position" * alike, (positions, *old, *new))

    n, more, D = number(generator, 3, 4), number(generator, 5, 7), number(generator, 4, 6)
    a, b, c = sizes(generator, 3, 2, 4)
    return [
        case("class token", (2, 2), (3, 3), 2, alike=True),
        case("class token", (n, n), (2, 2), D, alike=True),
        case("larger", (2, 2), (3, 3), 2),
        case("larger", (n, n), (more, more), D),
        case("smaller", (3, 3), (2, 2), 2),
        case("smaller", (more, more), (n, n), D),
        case("not square", (2, 2), (2, 4), 2),
        case("not square", (n, n), (more, n), D),
        case("not square", (2, 8), (4, 4), D),
        case("not square", (a, b), (more, more + 1), D),
        case("not square", (a, c), (more + 1, more), D),
    ]


def as_a_row(positions, old_rows, old_columns, rows, columns) -> Tensor:
    """All vectors lie on one line."""
    return grown(positions[None], (1, 1 + rows * columns))[0]


def viewed_back(positions, old_rows, old_columns, rows, columns) -> Tensor:
    """What is interpolated, (D, rows, columns), is taken for (rows, columns, D)."""
    cells = grown(positions[1:].reshape(old_rows, old_columns, -1), (rows, columns)).movedim(-1, 0)
    return torch.cat([positions[:1], cells.reshape(rows * columns, -1)])


resize_positions = Part(
    "resize_positions",
    {"class token": 3, "larger": 4, "smaller": 3, "not square": 4},
    resize_cases,
    resize_reference,
    {
        "the class token's position is interpolated too, and the grid is taken for a row: set the class token's aside, "
        "and interpolate the others in two directions": as_a_row,
        "the class token's position stands behind the others: it stays in front": (
            lambda *arguments: resize_reference(*arguments).roll(-1, 0)
        ),
        "the class token's position is lost: it stays in front": lambda *arguments: resize_reference(*arguments)[1:],
        "the last vector is taken for the class token's: it is the first": lambda positions, *grids: resize_reference(
            positions.roll(1, 0), *grids
        ).roll(-1, 0),
        "the old grid is read column by column: the patches go row by row": partial(
            resize_reference, old=lambda cells, n, m: cells.reshape(m, n, -1).transpose(0, 1)
        ),
        "the axis D comes first by a view, which mixes positions and D: move the axis": partial(
            resize_reference, old=lambda cells, n, m: cells.reshape(-1, n, m).movedim(0, -1)
        ),
        "on the way back a view mixes positions and D: move the axis D behind the others again": viewed_back,
        "the vectors of the patches are positions[1:]: these are all but the last": lambda positions, *grids: torch.cat(
            [positions[:1], resize_reference(positions.roll(1, 0), *grids)[1:]]
        ),
        "the corners are aligned: align_corners=False": partial(resize_reference, align_corners=True),
        "antialias=True weighs the cells in another way: leave it out": partial(resize_reference, antialias=True),
        "this is linear: mode='bicubic'": partial(resize_reference, mode="bilinear"),
    },
)


# --- a Vision Transformer that reads digits ------------------------------------------------------------------

LOW, HIGH = 0.80, 0.90  # of the hidden digits


class DigitViT(nn.Module):
    """The model of the exercise, with places for mistakes."""

    def __init__(self):
        super().__init__()
        self.patch_embedding = nn.Linear(16, 64)
        self.class_token = nn.Parameter(torch.zeros(64))
        self.positions = nn.Parameter(torch.zeros(5, 64))
        self.blocks = nn.ModuleList(Block(MultiHeadAttention(64, 4), FeedForward(64, 128, "gelu")) for _ in range(3))
        self.norm = nn.LayerNorm(64)
        self.head = nn.Linear(64, 10)

    def forward(
        self, images: Tensor, embed=embed_reference, read=read_reference, layers: slice = slice(None)
    ) -> Tensor:
        embedding, head, norm = self.patch_embedding, self.head, self.norm
        z = embed(images, 4, embedding.weight, embedding.bias, self.class_token, self.positions)
        for block in self.blocks[layers]:
            z = block(z)
        return read(z, norm.weight, norm.bias, head.weight, head.bias)


def scaled(images: Tensor) -> Tensor:
    return (images - 0.3) / 0.37


def varied(images: Tensor, generator: torch.Generator) -> Tensor:
    """Moved by at most one pixel, fainter, with noise; as in the exercise."""
    B, place = len(images), torch.arange(8)
    wide = F.pad(images, (1, 1, 1, 1))[:, 0]  # (B, 10, 10)
    down, right = torch.randint(3, (2, B, 1, 1), generator=generator)
    moved = wide[torch.arange(B)[:, None, None], down + place[:, None], right + place]
    ink = 0.5 + 0.5 * torch.rand(B, 1, 1, generator=generator)
    return scaled(ink * moved + 0.1 * torch.randn(moved.shape, generator=generator))[:, None]


FORWARDS: dict[str, dict[str, Any]] = {
    **{words: {"embed": embed} for words, embed in EMBEDS.items() if "first" not in words},
    **{words: {"read": read} for words, read in READS.items()},
    "the class token stands behind the patches, but the first token is read": {"embed": EMBEDS[BEHIND]},
    BEHIND: {
        "embed": EMBEDS[BEHIND],
        "read": READS["the last token is read: the class token is the first"],
    },
    "the patches are cut by a view alone, which cuts the rows of pixels into pieces": {
        "embed": partial(embed_reference, cut=viewed)
    },
    "the blocks are not used": {"layers": slice(0)},
    "only the last block is used: each reads what the one before it has left": {"layers": slice(-1, None)},
}


def digit_cases(generator: torch.Generator) -> list[Case]:
    images = scaled(torch.rand(5, 1, 8, 8, generator=generator))
    shapes = {name: tensor.shape for name, tensor in DigitViT().state_dict().items()}
    norms = [name for name in shapes if name.endswith("norm.weight")]
    weights = [numbers(*shape, generator=generator, scale=0.15) + (name in norms) for name, shape in shapes.items()]
    seed = number(generator, 1, 2**31 - 1)
    forward = ("forward", images, *weights)
    return [
        Case("forward", "images and weights drawn at random", forward),
        *(
            Case(f"{bound:.0%} right", "digits of the test split, changed by lot", ("weights",), secret=(seed, forward))
            for bound in (LOW, HIGH)
        ),
    ]


def rebuilt(weights: Arrays) -> DigitViT | str:
    """A model of ours with these weights; or, in words, why there is none."""
    model = DigitViT().eval()
    return put_into(model, weights) or model


@torch.inference_mode()
def judge_forward(arguments: Sequence[Any], logits: np.ndarray | None) -> str | None:
    """Whether the student's forward pass gives the logits that ours gives, with weights that the student cannot choose.

    With some weights, such as zeros, a wrong forward pass gives the right logits.
    """
    if logits is None:
        return "forward gave nothing"
    _, images, *weights = arguments
    model = DigitViT().eval()
    model.load_state_dict(dict(zip(model.state_dict(), weights)))

    def same(**mistake):
        ours = model(images, **mistake).numpy()
        return ours.shape == logits.shape and np.allclose(ours, logits, rtol=1e-3, atol=1e-3)

    if same():
        return None
    for words, mistake in FORWARDS.items():
        if same(**mistake):
            return words
    if logits.shape != (len(images), 10):
        return "the logits have the wrong shape" + values(logits.shape, (len(images), 10))
    return "the logits are not those of a ViT with these weights: compare forward with the five steps above"


@torch.inference_mode()
def accuracy(model: DigitViT, images: Tensor, labels: Tensor) -> float:
    return (model(images).argmax(dim=-1) == labels).float().mean().item()


def changed(found: Digits, seed: int) -> tuple[Tensor, Tensor]:
    """Each digit four times, varied by other lots: what one lot adds to the score, and takes from it, evens out."""
    images, labels = found.images.repeat(4, 1, 1, 1), found.labels.repeat(4)
    return varied(images, torch.Generator().manual_seed(seed)), labels


def why_not(model: DigitViT) -> str:
    """The likely reason for wrong digits, in words."""
    train, test = digits("train"), digits("test")
    plain = accuracy(model, scaled(test.images), test.labels)
    learned = accuracy(model, *changed(train, 0))
    if plain > 0.85 and learned < 0.85:
        return "it reads the digits as they are in the file, but not the changed ones: train it with varied(…)"
    if accuracy(model, scaled(train.images), train.labels) < 0.25:
        return (
            "it has hardly learned anything: do the updates reach the weights (backward, then step), are the gradients "
            "set to zero in each, and do images and labels belong together?"
        )
    return f"of the digits that it was trained on, changed too, {learned:.0%}: train longer, or with another rate"


def judge_digits(case: Case, answers: Sequence[Arrays]) -> str | None:
    """Compare the forward pass, or load the weights into a model of our own and let it read."""
    if case.aspect == "forward":
        return judge_forward(case.arguments, answers[-1].get("value"))
    model = rebuilt(answers[-1])
    if isinstance(model, str):
        return model
    seed, probe = case.secret
    forward = judge_forward(probe, answers[0].get("value"))
    wanted = {f"{bound:.0%} right": bound for bound in (LOW, HIGH)}[case.aspect]
    right = accuracy(model, *changed(digits("test"), seed))
    if right >= wanted:
        return "forward has to be right first" if forward and wanted == HIGH else None
    return f"{right:.0%} are right, {wanted:.0%} are asked for: {'mend forward first' if forward else why_not(model)}"


digit_vit = Part(
    "digit_vit",
    {"forward": 5, f"{LOW:.0%} right": 5, f"{HIGH:.0%} right": 6},
    digit_cases,
    judge=judge_digits,
    seconds=180,
)

PARTS = (patches, kernels, tokens, rollouts, resize_positions, digit_vit)
WRITTEN = {"read_the_evidence": 12}
score = partial(show_score, PARTS, WRITTEN)
