"""Checks of exercise 07: patches, their embedding, class token and positions, rollout, other sizes, digits to read.

The references are written in NumPy, one number at a time, and share nothing with ``coursekit.nn``,
``coursekit.models.vit`` and ``coursekit.evaluate.vision``.

Legend: B images, C channels, P side of a patch, N patches, T tokens (N and the class token), D = d_model, K classes,
L layers, H heads.
"""

import functools
import itertools
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
from coursekit.grading.checks.bert import number
from coursekit.grading.checks.seq2seq_attention import numbers, sizes
from coursekit.grading.checks.transformer import norm_of
from coursekit.grading.parts import Case, Part, put_into, values
from coursekit.grading.parts import score as show_score
from coursekit.nn.blocks import Block

# --- images as rows of patches, and back ---------------------------------------------------------------------


def cut_reference(images, size: int) -> np.ndarray:
    B, C, height, width = images.shape
    places = itertools.product(range(0, height, size), range(0, width, size))
    corners = [np.asarray(images)[:, :, y : y + size, x : x + size] for y, x in places]
    return np.stack([corner.reshape(B, C * size * size) for corner in corners], axis=1)


def patches_reference(task, given, size, rows=0, columns=0) -> np.ndarray:
    if task == "patchify":
        return cut_reference(given, size)
    B, _, n = given.shape
    images = np.zeros((B, n // size**2, rows * size, columns * size))
    for i, c, y, x in np.ndindex(images.shape):
        place = (y // size) * columns + x // size
        images[i, c, y, x] = given[i, place, c * size**2 + (y % size) * size + x % size]
    return images


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


def arranged(order: str, task, given: Tensor, size: int, rows: int = 0, columns: int = 0) -> Tensor:
    """Both functions with other axes of the patches than ``"brcCpq"``: b images, r rows and c columns of patches,
    C channels, p and q the rows and columns of their pixels."""
    if task == "patchify":
        B, C, height, width = given.shape
        x = given.unflatten(3, (width // size, size)).unflatten(2, (height // size, size))
        return x.permute(["bCrpcq".index(axis) for axis in order]).reshape(B, -1, C * size * size)
    B, _, n = given.shape
    long = {"b": B, "r": rows, "c": columns, "C": n // size**2, "p": size, "q": size}
    x = given.reshape([long[axis] for axis in order])
    return x.permute([order.index(axis) for axis in "bCrpcq"]).flatten(4).flatten(2, 3)


def only_viewed(task, given: Tensor, size: int, rows: int = 0, columns: int = 0) -> Tensor:
    n = given[0].numel()
    if task == "patchify":
        return given.reshape(len(given), -1, given.shape[1] * size**2)
    return given.reshape(len(given), n // (rows * columns * size**2), rows * size, columns * size)


def for_unpatchify(change: Callable[[int, int, int], tuple[int, int]]):
    """The way back with another number of rows and columns, by those and N."""

    def mistake(task, given, size, rows=0, columns=0):
        grid = change(rows, columns, given.shape[1]) if task == "unpatchify" else ()
        return arranged("brcCpq", task, given, size, *grid)

    return mistake


def patch_by_patch(task, given, size, rows=0, columns=0):
    """The numbers of each patch stay together when the image is put together."""
    if task == "patchify":
        return arranged("brcCpq", task, given, size)
    x = given.unflatten(2, (-1, size, size)).movedim(2, 1)  # (B, C, N, P, P)
    return x.reshape(*x.shape[:2], rows * size, columns * size)


patches = Part(
    "patches",
    {"order of patches": 4, "numbers of a patch": 5, "back": 7},
    patches_cases,
    patches_reference,
    {
        "the patches go column by column: they go row by row, as one reads a page": partial(arranged, "bcrCpq"),
        "the pixels of a patch go column by column: they go row by row": partial(arranged, "brcCqp"),
        "patches and their pixels go column by column: both go row by row": partial(arranged, "bcrCqp"),
        "the channels come last: all pixels of channel 0 come first, then all of channel 1, as in a kernel": (
            partial(arranged, "brcpqC")
        ),
        "the channels come before the patches: each patch holds its pixels of all channels, (B, rows, columns, C, P, "
        "P)": partial(arranged, "bCrcpq"),
        "the axes are joined as (rows, columns, P, P): a row of pixels goes through all patches beside each other, "
        "(rows, P, columns, P)": patch_by_patch,
        "this is a view alone, which cuts the rows of pixels into pieces: a patch has pixels of several rows. Make an "
        "axis for each of rows, P, columns and P, then bring them into order": only_viewed,
        "rows and columns of the grid have changed places: it has rows rows of patches": for_unpatchify(
            lambda rows, columns, N: (columns, rows)
        ),
        "the grid is taken to be a square: it has the rows and columns that are given": for_unpatchify(
            lambda rows, columns, N: (isqrt(N), isqrt(N))
        ),
    },
)


# --- the layer on patches is a convolution -------------------------------------------------------------------


def kernels_reference(task, *arguments):
    if task == "n_parameters":
        channels, height, width, size, d_model = arguments
        patches = (height // size) * (width // size)
        return (channels * size * size + 1) * d_model + (patches + 2) * d_model
    given = np.asarray(arguments[0])
    if task == "as_matrix":
        D, C, P, _ = given.shape
        result = np.zeros((C * P * P, D))
        for d, c, y, x in np.ndindex(given.shape):
            result[(c * P + y) * P + x, d] = given[d, c, y, x]
        return result
    _, C, P = arguments
    result = np.zeros((given.shape[1], C, P, P))
    for d, c, y, x in np.ndindex(result.shape):
        result[d, c, y, x] = given[(c * P + y) * P + x, d]
    return result


def kernels_cases(generator: torch.Generator) -> list[Case]:
    draw = partial(numbers, generator=generator)

    def there(about, D, C, P):
        return Case("matrix", f"as_matrix: {about}", ("as_matrix", draw(D, C, P, P)))

    def back(about, D, C, P):
        return Case("kernel", f"as_kernel: {about}", ("as_kernel", draw(C * P * P, D), C, P))

    def count(C, height, width, P, D):
        about = f"n_parameters: {C} channels, {height} x {width} pixels, patches of {P} x {P}, D = {D}"
        return Case("count", about, ("n_parameters", C, height, width, P, D))

    C, P, D = sizes(generator, 3, 2, 5)
    rows, columns = sizes(generator, 2, 3, 6)
    return [
        there("one channel, patches of 2 x 2, D = 3", 3, 1, 2),
        there(f"{C} channels, patches of {P} x {P}, D = {D}", D, C, P),
        there("D = C P^2: no axis can be told by its size", 18, 2, 3),
        back("one channel, patches of 2 x 2, D = 3", 3, 1, 2),
        back(f"{C} channels, patches of {P} x {P}, D = {D}", D, C, P),
        back("D = C P^2: no axis can be told by its size", 18, 2, 3),
        count(1, 4, 4, 2, 5),
        count(C, rows * P, columns * P, P, D),
        count(3, 224, 160, 16, 768),
    ]


def rearranged(order: str, transposed: bool, task, *arguments):
    """Both ways with the numbers of a patch in another order than ``"Cpq"``, or the matrix the other way round."""
    if task == "n_parameters":
        return kernels_reference(task, *arguments)
    given, places = arguments[0], ["Cpq".index(axis) for axis in order]
    if task == "as_matrix":
        matrix = given.permute(0, *[1 + place for place in places]).flatten(1)
        return matrix if transposed else matrix.T
    C, P = arguments[1:]
    long = {"C": C, "p": P, "q": P}
    matrix = given.reshape(-1, given.shape[0]) if transposed else given.T
    x = matrix.reshape(-1, *[long[axis] for axis in order])
    return x.permute(0, *[1 + order.index(axis) for axis in "Cpq"])


def kernels_viewed(task, given, *arguments):
    if task == "n_parameters":
        return kernels_reference(task, given, *arguments)
    return given.reshape(-1, len(given)) if task == "as_matrix" else given.reshape(given.shape[1], *arguments, -1)


def counted(count: Callable[[int, int, int], int]):
    """Another number of parameters, from C P^2, N and D."""

    def mistake(task, *arguments):
        if task != "n_parameters":
            return kernels_reference(task, *arguments)
        C, height, width, P, D = arguments
        return count(C * P * P, height * width // P**2, D)

    return mistake


kernels = Part(
    "kernels",
    {"matrix": 4, "kernel": 4, "count": 4},
    kernels_cases,
    kernels_reference,
    {
        "a view alone mixes the D outputs: each kernel becomes one column, so the axis D has to move": kernels_viewed,
        "the matrix is the other way round: it is (C P^2, D), so that patches @ matrix works": (
            partial(rearranged, "Cpq", True)
        ),
        "the channels come last among the numbers of a patch: they come first, as in patchify": (
            partial(rearranged, "pqC", False)
        ),
        "the pixels of a patch go column by column: they go row by row, as in patchify": (
            partial(rearranged, "Cqp", False)
        ),
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
        "the positions have one number each: a vector of D": counted(lambda n, N, D: (n + 2) * D + N + 1),
    },
)


# --- class token and positions, and what is read at the end --------------------------------------------------


def tokens_reference(task, x, *arguments) -> np.ndarray:
    if task == "embed":
        size, weight, bias, class_token, positions = (np.asarray(a, float) for a in arguments)
        vectors = cut_reference(np.asarray(x, float), int(size)) @ weight.T + bias
        front = np.broadcast_to(class_token, (len(vectors), 1, len(bias)))
        return np.concatenate([front, vectors], axis=1) + positions
    scale, shift, weight, bias = (np.asarray(a, float) for a in arguments)
    return norm_of(np.asarray(x, float)[:, 0], scale, shift) @ weight.T + bias


def tokens_cases(generator: torch.Generator) -> list[Case]:
    draw = partial(numbers, generator=generator)

    def embed(aspect, about, B, C, rows, columns, P, D, still=False):
        """With ``still`` all positions are zeros."""
        weights = [draw(D, C * P * P), draw(D), draw(D), draw(1 + rows * columns, D)]
        weights[3] = 0 * weights[3] if still else weights[3]
        return Case(aspect, f"embed: {about}", ("embed", draw(B, C, rows * P, columns * P), P, *weights))

    def read(about, B, T, D, K):
        weights = [1 + draw(D, scale=0.3), draw(D, scale=0.3), draw(K, D), draw(K)]
        return Case("read out", f"read_out: {about}", ("read_out", 1 + draw(B, T, D, scale=3.0), *weights))

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
        read("a batch", B, 1 + rows * columns, D + 6, K),
        read("B = T = D = K: no axis can be told by its size", 7, 7, 7, 7),
    ]


def front(token: Tensor, vectors: Tensor) -> Tensor:
    return torch.cat([token.expand(len(vectors), 1, -1), vectors], dim=1)


def behind(token: Tensor, vectors: Tensor) -> Tensor:
    return torch.cat([vectors, token.expand(len(vectors), 1, -1)], dim=1)


def embed_with(
    join=front,
    add: Callable[[Tensor, Tensor], Tensor] = lambda x, positions: x + positions,
    order: str = "brcCpq",
    bias: float = 1.0,
):
    def mistake(x, size, weight, bias_, class_token, positions):
        vectors = arranged(order, "patchify", x, size) @ weight.T + bias * bias_
        return add(join(class_token, vectors), positions)

    return mistake


def read_with(
    choose: Callable[[Tensor], Tensor] = lambda z: z[:, 0],
    normalise: bool = True,
    last: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda x, weight, bias: x @ weight.T + bias,
):
    """``choose`` sees the normed tokens (B, T, D)."""

    def mistake(z, scale, shift, weight, bias):
        z = F.layer_norm(z, z.shape[-1:], scale, shift) if normalise else z
        return last(choose(z), weight, bias)

    return mistake


EMBED, READ = embed_with(), read_with()  # as they should be
EMBEDS: dict[str, Callable[..., Tensor]] = {
    "the class token stands behind the patches: it comes first": embed_with(behind),
    "there is no class token: it comes before the patches": embed_with(
        lambda token, vectors: vectors, lambda x, positions: x + positions[1:]
    ),
    "the class token is zeros: it is a learned vector": embed_with(lambda token, vectors: front(0 * token, vectors)),
    "the positions are not added": embed_with(add=lambda x, positions: x),
    "the class token gets no position: positions[0] is its own": embed_with(
        add=lambda x, positions: torch.cat([x[:, :1], x[:, 1:] + positions[1:]], dim=1)
    ),
    "the class token gets the last position, and the patches the first ones: positions[0] is its own": embed_with(
        add=lambda x, positions: x + positions.roll(1, dims=0)
    ),
    "the bias of the layer on patches is missing": embed_with(bias=0.0),
    "the patches go column by column: they go row by row": embed_with(order="bcrCpq"),
    "the pixels of a patch go column by column: they go row by row": embed_with(order="brcCqp"),
    "the channels come last among the numbers of a patch: they come first": embed_with(order="brcpqC"),
}
READS: dict[str, Callable[..., Tensor]] = {
    "the last token is read: the class token is the first": read_with(lambda z: z[:, -1]),
    "the mean of all tokens is read: the class token speaks for the image": read_with(lambda z: z.mean(dim=1)),
    "the mean of the patches is read: the class token speaks for the image": read_with(lambda z: z[:, 1:].mean(dim=1)),
    "the first image is read: z[:, 0] is the first token of each image": read_with(lambda z: z[0]),
    "every token has logits: only the class token is read": read_with(lambda z: z),
    "the layer norm before the head is missing": read_with(normalise=False),
    "the bias of the head is missing": read_with(last=lambda x, weight, bias: x @ weight.T),
    "these are probabilities: return the logits": read_with(
        last=lambda x, weight, bias: (x @ weight.T + bias).softmax(dim=-1)
    ),
}


def tokens_with(embed=EMBED, read=READ):
    return lambda task, *arguments: (embed if task == "embed" else read)(*arguments)


tokens = Part(
    "tokens",
    {"class token": 4, "positions": 4, "read out": 6},
    tokens_cases,
    tokens_reference,
    {words: tokens_with(embed) for words, embed in EMBEDS.items()}
    | {words: tokens_with(read=read) for words, read in READS.items()},
)


# --- where attention has looked, through all layers ----------------------------------------------------------


def rollouts_reference(task, given, *arguments) -> np.ndarray:
    given = np.asarray(given, float)
    if task == "class_map":
        rows, columns = arguments
        result = np.zeros((len(given), rows, columns))
        for b, row, column in np.ndindex(result.shape):
            result[b, row, column] = given[b, 0, 1 + row * columns + column] / sum(given[b, 0, 1:])
        return result
    L, B, H, T, _ = given.shape
    result = np.stack([np.eye(T)] * B)
    for layer, b in np.ndindex(L, B):
        step = sum(given[layer, b, h] for h in range(H)) / H + np.eye(T)
        result[b] = np.stack([row / sum(row) for row in step]) @ result[b]
    return result


def rollouts_cases(generator: torch.Generator) -> list[Case]:
    def weights(*shape):
        return numbers(*shape, generator=generator, scale=1.5).softmax(dim=-1)

    def roll(aspect, about, L, B, H, T):
        return Case(aspect, f"rollout: {about}", ("rollout", weights(L, B, H, T, T)))

    def draw(about, B, rows, columns):
        T = 1 + rows * columns
        return Case("map", f"class_map: {about}", ("class_map", weights(B, T, T), rows, columns))

    B, H, T = sizes(generator, 3, 2, 5)
    L, rows, columns = number(generator, 3, 5), *sizes(generator, 2, 2, 5)
    return [
        roll("one layer", "one layer, one head, three tokens", 1, 1, 1, 3),
        roll("one layer", f"one layer, {H} heads, a batch", 1, B, H, T),
        roll("several layers", "two layers, one head, two tokens", 2, 1, 1, 2),
        roll("several layers", f"{L} layers, {H} heads, a batch", L, B, H, T),
        roll("several layers", "L = B = H = T: no axis can be told by its size", 3, 3, 3, 3),
        draw("one image of 1 x 2 patches", 1, 1, 2),
        draw(f"a batch of {rows} x {columns} patches", B, rows, columns),
        draw("a batch of 2 x 2 patches", B, 2, 2),
    ]


def with_own(step: Tensor) -> Tensor:
    """(…, T, T) with the identity, and rows that sum to 1."""
    step = step + torch.eye(step.shape[-1])
    return step / step.sum(dim=-1, keepdim=True)


def multiplied(steps: Sequence[Tensor]) -> Tensor:
    """A_L ··· A_2 A_1."""
    return functools.reduce(lambda below, step: step @ below, steps)


def head_mean(weights: Tensor) -> Tensor:
    return weights.mean(dim=1)


def rolled_with(
    step: Callable[[Tensor], Tensor] = with_own,
    heads: Callable[[Tensor], Tensor] = head_mean,
    product: Callable[[Sequence[Tensor]], Tensor] = multiplied,
    after: Callable[[Tensor], Tensor] = lambda rolled: rolled,
):
    return lambda maps: after(product([step(heads(weights)) for weights in maps]))


def map_with(
    choose: Callable[[Tensor], Tensor] = lambda rolled: rolled[:, 0, 1:],
    share: Callable[[Tensor], Tensor] = lambda found: found / found.sum(dim=1, keepdim=True),
    transposed: bool = False,
):
    def mistake(rolled, rows, columns):
        found = share(choose(rolled))
        return found.unflatten(1, (columns, rows)).mT if transposed else found.unflatten(1, (rows, columns))

    return mistake


ROLL, DRAW = rolled_with(), map_with()  # as they should be
ROLLS: dict[str, Callable[[Tensor], Tensor]] = {
    "the identity is missing: it stands for the residual connection, by which a token keeps its own vector": (
        rolled_with(lambda step: step)
    ),
    "the rows are not divided by their sums: with the identity they sum to 2": rolled_with(
        lambda step: step + torch.eye(step.shape[-1])
    ),
    "the columns are divided by their sums: divide the rows": rolled_with(lambda step: with_own(step.mT).mT),
    "the heads are averaged after the product: average them first, in each layer": rolled_with(
        heads=lambda weights: weights, after=head_mean
    ),
    "the heads are added up, which makes the identity too small: average them": rolled_with(
        heads=lambda weights: weights.sum(dim=1)
    ),
    "this is the largest of the heads: average them": rolled_with(heads=lambda weights: weights.amax(dim=1)),
    "only the first head is used: average them": rolled_with(heads=lambda weights: weights[:, 0]),
    "the product has the wrong order: the last layer stands on the left, A_L ··· A_2 A_1": rolled_with(
        product=lambda steps: multiplied(steps[::-1])
    ),
    "this is transposed: row t tells of token t after the last layer": rolled_with(after=lambda rolled: rolled.mT),
    "the matrices are multiplied entry by entry: use the product of matrices, @": rolled_with(
        product=lambda steps: functools.reduce(torch.mul, steps)
    ),
    "this is only the last layer: multiply all of them": rolled_with(product=lambda steps: steps[-1]),
    "this is the mean of the layers: multiply them": rolled_with(product=lambda steps: sum(steps) / len(steps)),
    "the identity is added once, to the product: add it in each layer": rolled_with(lambda step: step, after=with_own),
}
MAPS: dict[str, Callable[[Tensor, int, int], Tensor]] = {
    "this is the column of the class token, what each token has from it: take its row": map_with(
        lambda rolled: rolled[:, 1:, 0]
    ),
    "the class token's own share is among them: leave the first entry out, not the last": map_with(
        lambda rolled: rolled[:, 0, :-1]
    ),
    "this is the last row: the class token is the first": map_with(lambda rolled: rolled[:, -1, 1:]),
    "this is the mean over all tokens: only the row of the class token counts": map_with(
        lambda rolled: rolled.mean(dim=1)[:, 1:]
    ),
    "the map is filled column by column: the patches go row by row": map_with(transposed=True),
    "a map does not sum to 1: divide it by the sum over its patches": map_with(share=lambda found: found),
    "the maps are divided by the sum of the whole batch: each has its own": map_with(
        share=lambda found: found / found.sum()
    ),
}


def rollouts_with(roll=ROLL, draw=DRAW):
    return lambda task, *arguments: (roll if task == "rollout" else draw)(*arguments)


rollouts = Part(
    "rollouts",
    {"one layer": 5, "several layers": 6, "map": 5},
    rollouts_cases,
    rollouts_reference,
    {words: rollouts_with(roll) for words, roll in ROLLS.items()}
    | {words: rollouts_with(draw=draw) for words, draw in MAPS.items()},
)


# --- positions for another size ------------------------------------------------------------------------------


def bicubic(t: float) -> list[float]:
    """Weights of the cells at -1, 0, 1 and 2 for a place t in 0..1 (Keys 1981, with a = -0.75)."""
    a = -0.75
    near = [(a + 2) * x**3 - (a + 3) * x**2 + 1 for x in (t, 1 - t)]
    far = [a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a for x in (1 + t, 2 - t)]
    return [far[0], *near, far[1]]


def line_weights(old: int, new: int) -> np.ndarray:
    """(new, old): what each old cell of a line gives to each new one."""
    result = np.zeros((new, old))
    for i in range(new):
        place = (i + 0.5) * old / new - 0.5
        first = int(np.floor(place))
        for j, weight in zip(range(first - 1, first + 3), bicubic(place - first), strict=True):
            result[i, min(max(j, 0), old - 1)] += weight
    return result


def resize_reference(positions, old_rows, old_columns, rows, columns) -> np.ndarray:
    positions = np.asarray(positions, float)
    down, right = line_weights(old_rows, rows), line_weights(old_columns, columns)
    result = np.zeros((1 + rows * columns, positions.shape[1]))
    result[0] = positions[0]
    for row, column, i, j in np.ndindex(rows, columns, old_rows, old_columns):
        result[1 + row * columns + column] += down[row, i] * right[column, j] * positions[1 + i * old_columns + j]
    return result


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
        case("not square", (a, b), (more, more + 1), D),
        case("not square", (a, c), (more + 1, more), D),
    ]


def grown(cells: Tensor, grid: tuple[int, int], **options: Any) -> Tensor:
    """(n, m, D) -> (rows, columns, D)."""
    options = {"mode": "bicubic", "align_corners": False} | options
    return F.interpolate(cells.movedim(-1, 0)[None], size=grid, **options)[0].movedim(0, -1)


def resized_with(
    split: Callable[[Tensor], tuple[Tensor, Tensor]] = lambda p: (p[:1], p[1:]),
    grow: Callable[..., Tensor] = grown,
    old: Callable[[Tensor, int, int], Tensor] = lambda cells, n, m: cells.reshape(n, m, -1),
    grid: Callable[[int, int], tuple[int, int]] = lambda rows, columns: (rows, columns),
    join: Callable[[Tensor, Tensor], Tensor] = lambda token, cells: torch.cat([token, cells]),
    flat: Callable[[Tensor], Tensor] = lambda cells: cells.flatten(0, 1),
    **options: Any,
):
    def mistake(positions, old_rows, old_columns, rows, columns):
        token, cells = split(positions)
        return join(token, flat(grow(old(cells, old_rows, old_columns), grid(rows, columns), **options)))

    return mistake


def as_a_row(positions, old_rows, old_columns, rows, columns, first: int = 0) -> Tensor:
    """All vectors from ``first`` on lie on one line."""
    line = grown(positions[None, first:], (1, 1 + rows * columns - first))[0]
    return torch.cat([positions[:first], line])


resize_positions = Part(
    "resize_positions",
    {"class token": 3, "larger": 4, "smaller": 3, "not square": 4},
    resize_cases,
    resize_reference,
    {
        "the class token's position is interpolated too, and the grid is taken for a row: set the class token's aside, "
        "and interpolate the others in two directions": as_a_row,
        "the grid is taken for a row: make it (old_rows, old_columns) first, and interpolate in both directions": (
            partial(as_a_row, first=1)
        ),
        "the class token's position is lost: it stays in front": resized_with(join=lambda token, cells: cells),
        "the class token's position stands behind: it stays in front": resized_with(
            join=lambda token, cells: torch.cat([cells, token])
        ),
        "the last vector is taken for the class token's: it is the first": resized_with(
            lambda p: (p[-1:], p[:-1]), join=lambda token, cells: torch.cat([cells, token])
        ),
        "the last vector is left out of the grid instead of the first: the class token's is the first": resized_with(
            lambda p: (p[:1], p[:-1])
        ),
        "the new grid has its rows and columns exchanged: size=(rows, columns)": resized_with(
            grid=lambda rows, columns: (columns, rows)
        ),
        "the old grid has its rows and columns exchanged: it is (old_rows, old_columns)": resized_with(
            old=lambda cells, n, m: cells.reshape(m, n, -1)
        ),
        "the old grid is read column by column: the patches go row by row": resized_with(
            old=lambda cells, n, m: cells.reshape(m, n, -1).transpose(0, 1)
        ),
        "the new grid is read column by column: the patches go row by row": resized_with(
            flat=lambda cells: cells.transpose(0, 1).flatten(0, 1)
        ),
        "the axis D comes first by a view, which mixes positions and D: move the axis": resized_with(
            old=lambda cells, n, m: cells.reshape(-1, n, m).movedim(0, -1)
        ),
        "the result is viewed as (N, D), which mixes positions and D: move the axis D back first": resized_with(
            flat=lambda cells: cells.movedim(-1, 0).reshape(-1, cells.shape[-1])
        ),
        "the corners are aligned: align_corners=False": resized_with(align_corners=True),
        "this is linear: mode='bicubic'": resized_with(mode="bilinear"),
        "each new position is a copy of the nearest old one: mode='bicubic'": resized_with(
            grow=lambda cells, grid: F.interpolate(cells.movedim(-1, 0)[None], size=grid)[0].movedim(0, -1)
        ),
        "this is antialiased: leave antialias as it is, False": resized_with(antialias=True),
    },
)


# --- a Vision Transformer that reads digits ------------------------------------------------------------------

LOW, HIGH = 0.80, 0.90  # of the hidden digits
PROBES = 40  # images whose logits the notebook sends along


class DigitViT(nn.Module):
    """The model of the exercise, with places for mistakes."""

    def __init__(self):
        super().__init__()
        self.patch_embedding = nn.Linear(16, 64)
        self.class_token = nn.Parameter(torch.zeros(64))
        self.positions = nn.Parameter(torch.zeros(5, 64))
        self.blocks = nn.ModuleList(Block(64, 4, 128, activation="gelu") for _ in range(3))
        self.norm = nn.LayerNorm(64)
        self.head = nn.Linear(64, 10)

    def forward(self, images: Tensor, embed=EMBED, read=READ, layers: slice = slice(None)) -> Tensor:
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
    "the class token stands behind the patches, but the first token is read": {"embed": embed_with(behind)},
    "the class token stands behind the patches: it comes first": {
        "embed": embed_with(behind),
        "read": READS["the last token is read: the class token is the first"],
    },
    "the patches are cut by a view alone, which cuts the rows of pixels into pieces": {
        "embed": lambda x, size, weight, bias, token, positions: (
            front(token, only_viewed("patchify", x, size) @ weight.T + bias) + positions
        )
    },
    "the blocks are not used": {"layers": slice(0)},
    "only the last block is used: each reads what the one before it has left": {"layers": slice(-1, None)},
}


def digit_cases(generator: torch.Generator) -> list[Case]:
    seed = number(generator, 1, 2**31 - 1)
    aspects = ("forward", f"{LOW:.0%} right", f"{HIGH:.0%} right")
    return [Case(aspect, "digits of the test split, changed by lot", secret=seed) for aspect in aspects]


def rebuilt(weights: Arrays) -> DigitViT | str:
    """A model of ours with these weights; or, in words, why there is none."""
    model = DigitViT().eval()
    return put_into(model, weights) or model


@torch.inference_mode()
def judge_forward(model: DigitViT, logits: np.ndarray | None) -> str | None:
    """Whether the student's forward pass gives the logits that ours gives with the same weights."""
    if logits is None:
        return "the model did not read images: see the error of the cell that trains it"
    images = scaled(digits("test").images[:PROBES])

    def same(**mistake):
        ours = model(images, **mistake).numpy()
        return ours.shape == logits.shape and np.allclose(ours, logits, rtol=1e-3, atol=1e-3)

    if same():
        return None
    for words, mistake in FORWARDS.items():
        if same(**mistake):
            return words
    if logits.shape != (PROBES, 10):
        return "the logits have the wrong shape" + values(logits.shape, (PROBES, 10))
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
    """Load the weights into a model of our own and let it read."""
    model = rebuilt(answers[-1])
    if isinstance(model, str):
        return model
    forward = judge_forward(model, answers[-1].get("logits"))
    if case.aspect == "forward":
        return forward
    wanted = {f"{bound:.0%} right": bound for bound in (LOW, HIGH)}[case.aspect]
    right = accuracy(model, *changed(digits("test"), case.secret))
    if right >= wanted:
        return "forward has to be right first" if forward and wanted == HIGH else None
    return f"{right:.0%} are right, {wanted:.0%} are asked for: {'mend forward first' if forward else why_not(model)}"


digit_vit = Part(
    "digit_vit",
    {"forward": 5, f"{LOW:.0%} right": 5, f"{HIGH:.0%} right": 6},
    digit_cases,
    judge=judge_digits,
    result="trained",
    seconds=180,
)

PARTS = (patches, kernels, tokens, rollouts, resize_positions, digit_vit)
WRITTEN = {"read_the_evidence": 12}
score = partial(show_score, PARTS, WRITTEN)
