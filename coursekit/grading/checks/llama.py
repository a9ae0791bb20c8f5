"""Checks of exercise 12: the pieces of a Llama, its cache, its sizes, fewer bits, and a mixture of experts.

The references are plain code in float64 and share nothing with ``coursekit.nn``, ``coursekit.models`` and
``coursekit.convert``; their options are places for mistakes.

Legend: B sequences, H heads of queries, G heads of keys and values, T tokens (or queries), S keys and values, D size of
the model, Dh of a head, F width of the feed-forward network, W window, N tokens of all sequences together, E experts.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coursekit.grading.calls import Arrays
from coursekit.grading.checks.common import number, numbers, sizes, wide
from coursekit.grading.checks.slopes import CUT, no_slope, slope
from coursekit.grading.mistakes import by_task
from coursekit.grading.parts import Case, Part
from coursekit.grading.parts import score as show_score

Made = Callable[..., Any]


UNLIKE = "the result has another type than x: give it the type of x, at the very end"


def judge_type(case: Case, answers: Sequence[Arrays]) -> str | None:
    """Whether a result has the type of the numbers that were given."""
    return None if answers[-1]["value"].dtype == case.arguments[0].numpy().dtype else UNLIKE


# --- root mean square normalisation --------------------------------------------------------------------------


def rms_reference(
    x,
    weight,
    eps,
    *,
    square: Callable[[Tensor], Tensor] = lambda x: x.double().square(),
    mean: Callable[[Tensor], Tensor] = lambda z: z.mean(dim=-1, keepdim=True),
    root: Callable[[Tensor, float], Tensor] = lambda mean, eps: (mean + eps).sqrt(),
    centre: bool = False,
):
    """``square``: of x, before the mean; ``centre``: take away the mean first, as a layer norm does."""
    y = x.double()
    y = y - y.mean(dim=-1, keepdim=True) if centre else y
    of = square(y.to(x.dtype)) if centre else square(x)
    return (weight.double() * y / root(mean(of).double(), eps)).to(x.dtype if x.dtype is torch.half else torch.double)


def rms_cases(generator: torch.Generator) -> list[Case]:
    draw = partial(numbers, generator=generator)
    B, T, D = sizes(generator, 3, least=4, most=7)
    tiny = 1e-12  # where eps is tiny, its place makes no difference

    def half(about: str, B: int, T: int, size: float):
        """All entries of a position are of one size, so that its norm is exact: 1 or -1 times the weight."""
        signs = torch.randint(2, (B, T, D), generator=generator) * 2.0 - 1
        weight = torch.randint(2, 17, (D,), generator=generator) / 8
        of_each = size * 2.0 ** torch.randint(0, 2, (B, T, 1), generator=generator)
        return Case("half precision", about, ((of_each * signs).half(), weight.half(), 1e-14))

    return [
        Case("norm", "two positions, all weights are 1", (draw(1, 2, 4) + 1, torch.ones(4), tiny)),
        Case("norm", "a batch, with weights", (draw(B, T, D) + 1, draw(D), tiny)),
        Case("norm", "B = T = D: no axis can be told by its size", (draw(5, 5, 5) + 1, draw(5), tiny)),
        Case("norm", "numbers around 10,000", (1e4 + 100 * draw(B, T, D), draw(D), tiny)),
        Case("eps", "two positions, eps = 0.5", (draw(1, 2, 4), torch.ones(4), 0.5)),
        Case("eps", "eps = 0.5, a mean square near 0.01", (draw(B, T, D, scale=0.1), draw(D), 0.5)),
        Case("eps", "a position of zeros", (draw(1, 2, 4) * torch.tensor([0.0, 1.0])[:, None], draw(4), 0.01)),
        half("float16, numbers of 300 and 600", 1, 2, 300.0),
        half("float16, a batch, numbers of 500 and 1,000", B, T, 500.0),
        half("float16, very small numbers", B, T, 2.0**-13),
    ]


NORMS = ("layer_norm", "native_layer_norm", "rms_norm", "_fused_rms_norm", "native_batch_norm", "batch_norm")
NORMS += ("instance_norm", "group_norm", "native_group_norm", "F.normalize")
NORMS = tuple(name for name in NORMS if name.startswith("F.") or hasattr(torch.ops.aten, name))

rms_norm = Part(
    "rms_norm",
    {"norm": 3, "eps": 2, "half precision": 3},
    rms_cases,
    rms_reference,
    {
        "the numbers are squared in float16, where 300 squared is infinite and 0.0001 squared is 0: go to float32 "
        "first, and come back at the end": lambda x, weight, eps: (
            nobody_can() if x.dtype is not torch.half else rms_reference(x, weight, eps, square=lambda x: x.square())
        ),
        "the mean is subtracted, as in a layer norm: RMSNorm divides, and that is all": partial(
            rms_reference, centre=True
        ),
        "eps is outside the root: it is added to the mean square, then comes the root": partial(
            rms_reference, root=lambda mean, eps: mean.sqrt() + eps
        ),
        "eps is missing": partial(rms_reference, root=lambda mean, eps: mean.sqrt()),
        "eps is squared: it is added to the mean square as it is": partial(
            rms_reference, root=lambda mean, eps: (mean + eps**2).sqrt()
        ),
        "the weight is missing": lambda x, weight, eps: rms_reference(x, torch.ones_like(weight), eps),
        "the weight is 1 + weight: that is how Gemma stores it; here it is weight alone": (
            lambda x, weight, eps: rms_reference(x, 1 + weight, eps)
        ),
        "the squares are summed: take their mean": partial(rms_reference, mean=lambda z: z.sum(dim=-1, keepdim=True)),
        "the sum of the squares is divided by D - 1, as torch.std does: divide by D": partial(
            rms_reference, mean=lambda z: z.sum(dim=-1, keepdim=True) / (z.shape[-1] - 1)
        ),
        "the mean runs over the positions: each position has its own, over the last axis, D": partial(
            rms_reference, mean=lambda z: z.mean(dim=1, keepdim=True)
        ),
        "the mean runs over all positions together: each has its own, over the last axis, D": partial(
            rms_reference, mean=lambda z: z.mean()
        ),
        "the root is missing: divide by the root of the mean square": partial(
            rms_reference, root=lambda mean, eps: mean + eps
        ),
        "these are mean sizes, without a square: square, take the mean, take the root": partial(
            rms_reference, square=lambda x: x.double().abs(), root=lambda mean, eps: mean + eps
        ),
    },
    judge_type,
    forbidden=dict.fromkeys(
        NORMS,
        "a norm of PyTorch is used: write it out, weight * x / sqrt(mean of x squared + eps), over the last axis",
    ),
)


def nobody_can() -> Any:
    raise ValueError("with these arguments nobody can make that mistake")


# --- rotary positions ----------------------------------------------------------------------------------------


def in_halves(x: Tensor) -> tuple[Tensor, Tensor]:
    return x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]


def in_neighbours(x: Tensor) -> tuple[Tensor, Tensor]:
    return x[..., ::2], x[..., 1::2]


def side_by_side(a: Tensor, b: Tensor) -> Tensor:
    return torch.cat([a, b], dim=-1)


def in_turn(a: Tensor, b: Tensor) -> Tensor:
    return torch.stack([a, b], dim=-1).flatten(-2)


def turned_by(a: Tensor, b: Tensor, angle: Tensor) -> tuple[Tensor, Tensor]:
    return a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()


def rotate_reference(
    x,
    positions,
    base,
    *,
    cut: Made = in_halves,
    join: Made = side_by_side,
    exponent: Callable[[Tensor, int], Tensor] = lambda i, Dh: -2 * i / Dh,
    angled: Callable[[Tensor, Tensor], Tensor] = lambda positions, theta: positions.double()[..., None] * theta,
    turn: Made = turned_by,
    rounded: bool = True,
):
    """``exponent``: of the base, for the pair i; ``angled``: of positions (B, T) and what a pair turns, (Dh / 2,);
    ``rounded``: to the type of x."""
    i = torch.arange(x.shape[-1] // 2).double()
    angle = angled(positions, base ** exponent(i, x.shape[-1]))[:, None].double()  # (B, 1, T, Dh / 2)
    return join(*turn(*cut(x.double()), angle)).to(x.dtype if rounded and x.dtype is torch.half else torch.double)


def mixed_up(x, positions, base):
    """The halves are pairs, but neighbours share an angle."""
    i = torch.arange(x.shape[-1] // 2).double()
    angle = (positions.double()[..., None] * base ** (-2 * i / x.shape[-1]))[:, None].repeat_interleave(2, dim=-1)
    a, b = in_halves(x.double())
    return (x.double() * angle.cos() + torch.cat([-b, a], dim=-1) * angle.sin()).to(x.dtype)


def steady(position: int) -> bool:
    """Whether cosine and sine are clearly nearer to one number of float16 than to any other."""
    return all(
        np.float16(f(position) * (1 + d)) == np.float16(f(position))
        for f in (math.cos, math.sin)
        for d in (1e-5, -1e-5)
    )


def rotate_cases(generator: torch.Generator) -> list[Case]:
    draw = partial(numbers, generator=generator)

    def case(aspect, about, B, H, T, Dh, positions, base=10_000.0):
        positions = torch.as_tensor(positions)
        return Case(aspect, about, (draw(B, H, T, Dh), positions.expand(B, T).clone(), base))

    def half(about, B, H, T, least, most):
        """Of heads of two entries, one of which is 0 and the other a power of two, so that the result is exact."""
        found: list[int] = []
        while len(found) < B * T:
            position = 2 * number(generator, least // 2, most // 2) + 1  # odd: float16 has none of them above 2,048
            found += [position] * steady(position)
        entries = 2.0 ** torch.randint(-2, 3, (B, H, T, 1), generator=generator)
        place = torch.randint(2, (B, H, T, 1), generator=generator)
        x = (entries * (torch.arange(2) == place)).half()
        return Case("half precision", about, (x, torch.tensor(found).view(B, T), 10_000.0))

    B, H, T = sizes(generator, 3, least=2, most=5)
    Dh = 2 * number(generator, 3, 5)
    base = float(10 * number(generator, 5, 40))
    later = number(generator, 7, 20)
    padded = (torch.arange(T) - torch.randint(1, T, (B, 1), generator=generator)).clamp(min=0)
    jumps = torch.randint(0, 40, (B, T), generator=generator)
    jumps[0, 0] = 5  # the positions differ from 0, 1, 2, ... and from each other
    return [
        case("turn", "one head of four entries, the positions 0 and 1", 1, 1, 2, 4, [0, 1]),
        case("turn", "one head of eight entries, the positions 0 to 4", 1, 1, 5, 8, range(5)),
        case("turn", f"several heads, base {base:g}", B, H, T, Dh, range(T), base),
        case("turn", "several heads, base 500,000", B, H, T, Dh, range(T), 500_000.0),
        case("turn", "B = H = T = Dh: no axis can be told by its size", 4, 4, 4, 4, range(4)),
        case("positions", f"one token, at position {later}", B, H, 1, Dh, [later]),
        case("positions", f"the positions begin at {later}", B, H, T, Dh, range(later, later + T)),
        case("positions", "padding on the left: each sequence has positions of its own", B, H, T, Dh, padded),
        case("positions", "any positions, in any order, of each sequence its own", B, H, T, Dh, jumps, base),
        half("float16, two tokens at odd positions of several thousands", 1, 1, 2, 2_100, 9_000),
        half("float16, positions up to 60,000", B, H, T, 9_000, 60_000),
        half("float16, positions around 100,000", B, H, T, 70_000, 130_000),
    ]


rotate = Part(
    "rotate",
    {"turn": 6, "positions": 4, "half precision": 3},
    rotate_cases,
    rotate_reference,
    {
        "the angles are computed in float16, in which odd positions above 2,048 do not exist and those above 65,504 "
        "are infinite: make positions, frequencies and angles float32, and give only the result the type of x": (
            partial(
                rotate_reference,
                angled=lambda positions, theta: positions.half()[..., None] * theta.half(),
            )
        ),
        UNLIKE: partial(rotate_reference, rounded=False),
        "neighbours are turned as a pair, as in the paper: here entry i and entry i + Dh/2 are a pair": partial(
            rotate_reference, cut=in_neighbours, join=in_turn
        ),
        "the pairs are neighbours when they are read or when they are put back, and halves otherwise: both times it is "
        "entry i with entry i + Dh/2": partial(rotate_reference, join=in_turn),
        "the pairs are halves, but the angles are those of neighbours, each twice in a row: entry i and entry i + Dh/2 "
        "share an angle, so the row of Dh/2 angles is repeated as a whole": mixed_up,
        "this turns the other way: (a, b) becomes (a cos - b sin, a sin + b cos)": partial(
            rotate_reference, turn=lambda a, b, angle: turned_by(a, b, -angle)
        ),
        "the second half is not that of a rotation: it is a sin + b cos": partial(
            rotate_reference,
            turn=lambda a, b, angle: (a * angle.cos() - b * angle.sin(), b * angle.cos() - a * angle.sin()),
        ),
        "the positions that are given are not used: the tokens need not stand at 0, 1, 2, …": (
            lambda x, positions, base: rotate_reference(x, torch.arange(x.shape[2]).expand_as(positions), base)
        ),
        "all sequences are turned by the positions of the first: each has its own": (
            lambda x, positions, base: rotate_reference(x, positions[:1].expand_as(positions), base)
        ),
        "the positions are one too large: a token at position 0 is not turned at all": (
            lambda x, positions, base: rotate_reference(x, positions + 1, base)
        ),
        "the base is always 10,000: it is an argument": lambda x, positions, base: rotate_reference(
            x, positions, 10_000.0
        ),
        "the exponent is i / Dh: it is 2i / Dh": partial(rotate_reference, exponent=lambda i, Dh: -i / Dh),
        "the exponent is 4i / Dh, doubled twice: torch.arange(0, Dh, 2) is 2i already": partial(
            rotate_reference, exponent=lambda i, Dh: -4 * i / Dh
        ),
        "the exponent is 2i / (Dh - 2): it is 2i / Dh, which never quite reaches 1": partial(
            rotate_reference, exponent=lambda i, Dh: -2 * i / (Dh - 2)
        ),
        "the exponent has the wrong sign: the pairs turn slower and slower, theta_i = base^(-2i/Dh)": partial(
            rotate_reference, exponent=lambda i, Dh: 2 * i / Dh
        ),
    },
    judge_type,
)


# --- grouped queries -----------------------------------------------------------------------------------------


def one_after_the_other(x: Tensor, times: int) -> Tensor:
    """(B, G, S, Dh) -> (B, H, S, Dh), each head as often as it has queries, one after the other."""
    return x[:, :, None].expand(-1, -1, times, -1, -1).flatten(1, 2)


def all_again(x: Tensor, times: int) -> Tensor:
    return torch.cat([x] * times, dim=1)


def within_reach(t: Tensor, s: Tensor, window: int | None) -> Tensor:
    """Of queries and keys by their positions, (T, 1) and (S,)."""
    return (s <= t) & (s > t - (window or math.inf))


def over_keys(scores: Tensor, allowed: Tensor) -> Tensor:
    return scores.masked_fill(~allowed, -torch.inf).softmax(dim=-1)


def grouped_reference(
    query,
    key,
    value,
    window=None,
    *,
    of_keys: Made = one_after_the_other,
    of_values: Made = one_after_the_other,
    scale: Callable[[int], float] = lambda Dh: Dh**-0.5,
    places: Callable[[int, int], Tensor] = lambda T, S: torch.arange(S - T, S),
    allowed: Made = within_reach,
    weigh: Made = over_keys,
):
    """``places``: of the queries among the keys; ``allowed``: of positions (T, 1), (S,) and the window."""
    query, key, value = wide([query, key, value])
    times, (T, Dh), S = query.shape[1] // key.shape[1], query.shape[2:], key.shape[2]
    key, value = of_keys(key, times), of_values(value, times)
    scores = torch.einsum("bhtd,bhsd->bhts", query, key) * scale(Dh)
    weights = weigh(scores, allowed(places(T, S)[:, None], torch.arange(S), window))
    return torch.einsum("bhts,bhsd->bhtd", weights, value)


def nearly_opposite(query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """Each query is nearly the opposite of each key, so that all scores are far below 0."""
    return 5 + 0.1 * query, -5 + 0.1 * key


def grouped_cases(generator: torch.Generator) -> list[Case]:
    def case(aspect, about, B, H, G, T, S, Dh, window=None, lower=False):
        shapes = (B, H, T, Dh), (B, G, S, Dh), (B, G, S, Dh)
        query, key, value = (numbers(*shape, generator=generator) for shape in shapes)
        query, key = nearly_opposite(query, key) if lower else (query, key)
        return Case(aspect, about, (query, key, value, window))

    B, T, S = sizes(generator, 3, least=2, most=5)
    S, T = T + S + 1, T + 1
    Dh, W = number(generator, 3, 6), number(generator, 2, 3)
    return [
        case("groups", "one token, four heads of queries, two of keys and values", 1, 4, 2, 1, 1, 3),
        case("groups", "one token after three others, four heads of queries, two of keys", 1, 4, 2, 1, 4, 3),
        case("groups", "one token, six heads of queries, three of keys and values", B, 6, 3, 1, S, Dh),
        case("groups", "one token, four heads of queries, all with one of keys and values", B, 4, 1, 1, S, Dh),
        case("causal", "T = S = 3, two heads of queries and of keys", 1, 2, 2, 3, 3, 3),
        case("causal", "T = S, as many heads of keys as of queries", B, 3, 3, S, S, Dh),
        case("causal", "B = H = T = S = Dh: no axis can be told by its size", 4, 4, 4, 4, 4, 4),
        case("causal", "T = S, all scores are far below 0", B, 2, 2, S, S, Dh, lower=True),
        case("more keys", "the last two of four positions, one head", 1, 1, 1, 2, 4, 3),
        case("more keys", f"the last {T} of {S} positions, as many heads of keys", B, 2, 2, T, S, Dh),
        case("window", "T = S = 4, window 2, one head", 1, 1, 1, 4, 4, 3, 2),
        case("window", f"T = S = {S}, window {W}, as many heads of keys", B, 2, 2, S, S, Dh, W),
        case("window", "window 1: every token sees itself alone", B, 2, 2, S, S, Dh, 1),
        case("window", "a window longer than the text", B, 2, 2, S, S, Dh, S + 2),
        case("together", f"T = S = {S}, six heads of queries, two of keys and values", B, 6, 2, S, S, Dh),
        case("together", f"the last {T} of {S} positions, six heads, two of keys, window {W}", B, 6, 2, T, S, Dh, W),
    ]


def afterwards(scores: Tensor, allowed: Tensor) -> Tensor:
    return scores.softmax(dim=-1) * allowed


def over_queries(scores: Tensor, allowed: Tensor) -> Tensor:
    return scores.masked_fill(~allowed, -torch.inf).softmax(dim=-2).nan_to_num(0)


MULTI_HEAD = ("F.multi_head_attention_forward", "_native_multi_head_attention")  # the second in eval, without gradients

grouped_attention = Part(
    "grouped_attention",
    {"groups": 5, "causal": 3, "more keys": 2, "window": 2, "together": 3},
    grouped_cases,
    grouped_reference,
    {
        "the heads of keys and values are tiled, 0 1 0 1, where they should be repeated, 0 0 1 1: neighbouring heads "
        "of queries share one": partial(grouped_reference, of_keys=all_again, of_values=all_again),
        "the heads of the keys are tiled, 0 1 0 1, and those of the values repeated, 0 0 1 1: repeat both": partial(
            grouped_reference, of_keys=all_again
        ),
        "the heads of the values are tiled, 0 1 0 1, and those of the keys repeated, 0 0 1 1: repeat both": partial(
            grouped_reference, of_values=all_again
        ),
        "all heads of queries use the first head of keys and values: each group has its own": partial(
            grouped_reference,
            of_keys=lambda x, n: all_again(x[:, :1], n * x.shape[1]),
            of_values=lambda x, n: all_again(x[:, :1], n * x.shape[1]),
        ),
        "the scores are not divided by the square root of Dh": partial(grouped_reference, scale=lambda Dh: 1.0),
        "the scores are divided by Dh: divide by its square root": partial(grouped_reference, scale=lambda Dh: 1 / Dh),
        "the softmax runs over the queries: each query's weights, the last axis, sum to 1": partial(
            grouped_reference, weigh=over_queries
        ),
        "masked after the softmax: the weights of a query no longer sum to 1": partial(
            grouped_reference, weigh=afterwards
        ),
        "the forbidden scores get a number such as -20: where the allowed ones are lower still, the forbidden keys "
        "win. Fill with -inf": partial(
            grouped_reference, weigh=lambda scores, allowed: scores.masked_fill(~allowed, -20.0).softmax(dim=-1)
        ),
        "the forbidden scores get a 0, which is a score like others: fill with -inf": partial(
            grouped_reference, weigh=lambda scores, allowed: scores.masked_fill(~allowed, 0.0).softmax(dim=-1)
        ),
        "the window is one too wide: it counts the token itself": partial(
            grouped_reference, allowed=lambda t, s, W: within_reach(t, s, W and W + 1)
        ),
        "the window is one too narrow: a token and the W - 1 before it": partial(
            grouped_reference, allowed=lambda t, s, W: within_reach(t, s, W and max(W - 1, 1))
        ),
        "the window is not used": partial(grouped_reference, allowed=lambda t, s, W: within_reach(t, s, None)),
        "with a window the future is seen, too: a token attends to nothing later than itself": partial(
            grouped_reference, allowed=lambda t, s, W: within_reach(t, s, None) if W is None else (t - s).abs() < W
        ),
        "the queries are taken for the first of the positions: they are the last T of the S, so that query t stands at "
        "t + S - T": partial(grouped_reference, places=lambda T, S: torch.arange(T)),
        "a token may not attend to itself: s = t is allowed": partial(
            grouped_reference,
            allowed=lambda t, s, W: (s < t) & within_reach(t, s, W),
            weigh=lambda scores, allowed: over_keys(scores, allowed).nan_to_num(0),
        ),
        "later tokens are attended to: only s <= t is allowed": partial(
            grouped_reference, allowed=lambda t, s, W: s > t - (W or math.inf)
        ),
        "the causal mask is turned round: a query sees what comes later, and nothing before it": partial(
            grouped_reference, allowed=lambda t, s, W: s >= t
        ),
        "the keys are added up: the weights belong to the values": (
            lambda query, key, value, window=None: grouped_reference(query, key, key, window)
        ),
    },
    forbidden=dict.fromkeys(
        ("scaled_dot_product_attention", *MULTI_HEAD),
        "PyTorch's own attention is used: write it out, the scores of each query with the keys of its group, their "
        "softmax over what is allowed, and the sum of the values with these weights",
    ),
)


# --- a gate --------------------------------------------------------------------------------------------------


def logistic(z: Tensor) -> Tensor:
    return 1 / (1 + (-z).exp())


def by_erf(z: Tensor) -> Tensor:
    return z * (1 + torch.erf(z / 2**0.5)) / 2


def by_tanh(z: Tensor) -> Tensor:
    return z * (1 + torch.tanh((2 / math.pi) ** 0.5 * (z + 0.044715 * z**3))) / 2


def gated_by_silu(gate: Tensor, up: Tensor) -> Tensor:
    return gate * logistic(gate) * up


def network_reference(x, gate, up, down, *, between: Made = gated_by_silu):
    x, gate, up, down = wide([x, gate, up, down])
    return between(x @ gate.mT, x @ up.mT) @ down.mT


def width_reference(
    d_model, multiple, *, entries: Callable[[int], int] = lambda D: 8 * D, parts: int = 3, up: bool = True
):
    """The smallest multiple (or, not ``up``, the largest) on that side of ``entries(D) / parts``."""
    found = 0
    while parts * (found + (0 if up else multiple)) < entries(d_model) + (0 if up else 1):
        found += multiple
    return np.int64(found)


def swiglu_cases(generator: torch.Generator) -> list[Case]:
    draw = partial(numbers, generator=generator)

    def case(about, B, T, D, F):
        weights = [draw(*shape, scale=0.7) for shape in ((F, D), (F, D), (D, F))]
        return Case("network", about, ("network", draw(B, T, D, scale=1.5), *weights))

    def of(about, d_model, multiple, public=False):
        return Case("width", about, ("width", d_model, multiple), public=public)

    def just_above(eighth):
        return of("8/3 of d_model is just above a multiple", 3 * (eighth * times + 1), 8 * eighth)

    B, T, D, F = sizes(generator, 4, least=2, most=7)
    multiple = 8 * number(generator, 2, 8)
    times = number(generator, 3, 9)
    odd = 8 * number(generator, 20, 90) + 2  # 8/3 of it is no whole number
    return [
        case("one token, two entries", 1, 1, 2, 3),
        case("a batch", B, T, D, F),
        case("D = F: no axis can be told by its size", B, T, 5, 5),
        of("d_model = 4096, multiples of 256: Llama 2's smallest", 4096, 256, public=True),
        of(f"d_model = {odd}, multiples of {multiple}", odd, multiple),
        of("8/3 of d_model is a multiple already", 3 * multiple * times // 8, multiple),
        just_above(number(generator, 4, 9)),
        of("a large model", 8 * number(generator, 1000, 2000), 128),
    ]


def gated_with(between: Made) -> Made:
    return by_task(network=partial(network_reference, between=between))


def width_with(**options: Any) -> Made:
    return by_task(width=partial(width_reference, **options))


feed_forward = Part(
    "feed_forward",
    {"network": 5, "width": 2},
    swiglu_cases,
    by_task(network=network_reference, width=width_reference),
    {
        "gate and up have changed places: it is the gate that goes through the SiLU": gated_with(
            lambda gate, up: gated_by_silu(up, gate)
        ),
        "the gate goes through a GELU: that is GEGLU; SiLU is z sigma(z)": gated_with(
            lambda gate, up: by_erf(gate) * up
        ),
        "the gate goes through the approximate GELU: SiLU is z sigma(z)": gated_with(
            lambda gate, up: by_tanh(gate) * up
        ),
        "the gate goes through a sigmoid alone: SiLU is z sigma(z)": gated_with(lambda gate, up: logistic(gate) * up),
        "the gate goes through a ReLU: SiLU is z sigma(z)": gated_with(lambda gate, up: gate.relu() * up),
        "the SiLU is taken of the product: take it of the gate alone": gated_with(
            lambda gate, up: gated_by_silu(gate * up, torch.ones_like(up))
        ),
        "both branches go through the SiLU: the other one, up, stays as it is": gated_with(
            lambda gate, up: gated_by_silu(gate, gated_by_silu(up, torch.ones_like(up)))
        ),
        "gate and up are added: multiply them": gated_with(
            lambda gate, up: gated_by_silu(gate, torch.ones_like(up)) + up
        ),
        "nothing goes through the SiLU": gated_with(lambda gate, up: gate * up),
        "`up` is missing": gated_with(lambda gate, up: gated_by_silu(gate, torch.ones_like(up))),
        "this is rounded to the nearest multiple: round up": by_task(
            width=lambda D, multiple: np.int64((16 * D + 3 * multiple) // (6 * multiple) * multiple)
        ),
        "this is rounded down to a multiple: round up": width_with(up=False),
        "this is 4 D: three matrices of that width would hold half as many weights again": width_with(
            entries=lambda D: 4 * D, parts=1
        ),
        "this is 2/3 D, rounded up: it is two thirds of 4 D": width_with(entries=lambda D: 2 * D),
        "this is 8/3 D rounded up to a whole number: it is to be a multiple of `multiple`": by_task(
            width=lambda D, multiple: width_reference(D, 1)
        ),
        "this is one multiple too many where 8/3 D is a multiple already": width_with(entries=lambda D: 8 * D + 1),
    },
    result="run_feed_forward",
)


# --- a cache -------------------------------------------------------------------------------------------------


def kept_places(window: int | None, length: int) -> slice:
    """What the next token can reach: all, or the last W - 1."""
    return slice(None) if window is None else slice(max(0, length - window + 1), None)


def cached_reference(
    query,
    key,
    value,
    pieces,
    base,
    window=None,
    *,
    start: Callable[[int, int], int] = lambda seen, held: seen,
    turned: Sequence[bool] = (True, True, False),
    again: bool = False,
    late: bool = False,
    kept: Callable[[int | None, int], slice] = kept_places,
    first_cut: bool = False,
    count: Callable[[int, int], int] = lambda seen, T: seen + T,
    attend: Made = grouped_reference,
    forget: bool = False,
):
    """Piece after piece: the outputs, then keys, values and count in the cache at the end.

    ``start``: the first position, of the tokens seen and of those in the cache; ``turned``: whether queries, keys and
    values are; ``again``: the cached keys are turned once more; ``late``: they are not turned until they are used;
    ``first_cut``: the cache is cut before the attention.
    """
    query, key, value = wide([query, key, value])
    keys, values, seen, outputs, begin = key[:, :, :0], value[:, :, :0], 0, [], 0

    def turn(x: Tensor, first: int) -> Tensor:
        return rotate_reference(x, torch.arange(first, first + x.shape[2]).expand(len(x), -1), base)

    for T in pieces:
        place = slice(begin, begin + T)
        q, k, v = query[:, :, place], key[:, :, place], value[:, :, place]
        held, begin = keys.shape[2], begin + T
        first = start(seen, held)
        q, v = turn(q, first) if turned[0] else q, turn(v, first) if turned[2] else v
        k = turn(k, first) if turned[1] and not (late or again) else k
        keys, values = torch.cat([keys, k], dim=2), torch.cat([values, v], dim=2)
        seen = count(seen, T)
        if first_cut:
            keys, values = (x[:, :, kept(window, x.shape[2])] for x in (keys, values))
        used = turn(keys, first - held) if late or again else keys
        outputs.append(attend(q, used, values, window))
        keys = used if again else keys
        if not first_cut:
            keys, values = (x[:, :, kept(window, x.shape[2])] for x in (keys, values))
        if forget:
            keys, values = k, v
    return torch.cat(outputs, dim=2), keys, values, np.int64(seen)


OUTPUTS, KEYS, VALUES, SEEN = "0123"


def cached_cases(generator: torch.Generator) -> list[Case]:
    def case(aspect, about, pieces, window=None, result=OUTPUTS, B=1, H=2, G=1, Dh=4, base=10_000.0):
        shapes = (B, H), (B, G), (B, G)
        query, key, value = (numbers(*shape, sum(pieces), Dh, generator=generator) for shape in shapes)
        return Case(aspect, about, (query, key, value, pieces, base, window), result)

    B, T, Dh = number(generator, 2, 3), number(generator, 3, 5), 2 * number(generator, 2, 4)
    W = number(generator, 4, 5)
    base = float(10 * number(generator, 5, 40))
    larger = {"B": B, "H": 4, "G": 2, "Dh": Dh, "base": base}
    ones, mixed = [T, 1, 1, 1], [T, 1, 3, 1]
    words = {KEYS: "the keys", VALUES: "the values", SEEN: "the number of tokens"}
    found = [
        case("one piece", "two tokens at once", [2]),
        case("one piece", f"{T} tokens at once, four heads of queries, two of keys", [T], **larger),
        case("step by step", "two tokens, then one", [2, 1]),
        case("step by step", f"{T} tokens, then three, one at a time", ones, **larger),
        case("step by step", "one token at a time from the start", [1] * 4, **larger),
        case("step by step", "pieces of several tokens", [2, 3, 1, 2], **larger),
    ]
    in_cache = [
        case("cache", f"{words[result]} in the cache after {about}", pieces, None, result, **larger)
        for result in words
        for about, pieces in ((f"one piece of {T} tokens", [T]), ("several pieces", mixed))
    ]
    return [
        *found,
        *in_cache,
        case("window", f"window {W}: {T + 2} tokens, then one", [T + 2, 1], W),
        case("window", f"window {W}: one token at a time", [1] * (W + 4), W, **larger),
        case("window", f"window {W}: pieces of several tokens", [2, T + 1, 1, 2], W, **larger),
        *(
            case("window", f"window {W}: {words[result]} in the cache in the end", [T + 1, 1, 1], W, result, **larger)
            for result in words
        ),
        case("window", "a window longer than the text", ones, T + 9, KEYS, **larger),
        case("window", "window 1: nothing has to be kept", ones, 1, KEYS, **larger),
    ]


def inside_alone(query, key, value, window=None):
    """As if nothing came later than the queries: right for one token at a time."""
    T, S = query.shape[2], key.shape[2]
    return grouped_reference(query, key, value, window, allowed=lambda t, s, W: (s < S) & (s > S - T - (W or math.inf)))


cached_attention = Part(
    "cached_attention",
    {"one piece": 3, "step by step": 4, "cache": 3, "window": 3},
    cached_cases,
    cached_reference,
    {
        "every piece is turned as if it began at position 0: it goes on where the tokens before it end, at `seen`, "
        "which grows with every piece by the number of its tokens": partial(
            cached_reference, start=lambda seen, held: 0
        ),
        "the first position is the number of keys in the cache, which with a window is no longer the number of tokens "
        "so far: that is `seen`": partial(cached_reference, start=lambda seen, held: held),
        "the positions are one too large. In the output that does not show, since only distances count; in the cache "
        "it does": partial(cached_reference, start=lambda seen, held: seen + 1),
        "all keys are turned again with every piece, also those that were turned when they came into the cache: turn "
        "the new ones alone": partial(cached_reference, again=True),
        "the keys in the cache are not turned: turn them once, before they go in": partial(cached_reference, late=True),
        "neither queries nor keys are turned": partial(cached_reference, turned=(False, False, False)),
        "the queries are not turned": partial(cached_reference, turned=(False, True, False)),
        "the keys are not turned": partial(cached_reference, turned=(True, False, False)),
        "the values are turned, too: positions enter by queries and keys alone": partial(
            cached_reference, turned=(True, True, True)
        ),
        "`seen` is the length of the last piece: it is the number of all tokens so far": partial(
            cached_reference, count=lambda seen, T: T
        ),
        "the new cache holds the new tokens alone: those before them stay in it": partial(
            cached_reference, forget=True
        ),
        "the cache is cut before the attention, so that the first queries of a piece miss keys within their window: "
        "attend first": partial(cached_reference, first_cut=True),
        "with window 1 everything is kept: x[:, :, -0:] is all of x": partial(
            cached_reference, kept=lambda window, length: slice(None) if window == 1 else kept_places(window, length)
        ),
        "nothing is cut off: with a window, the cache keeps the last W - 1 positions": partial(
            cached_reference, kept=lambda window, length: slice(None)
        ),
        "the cache keeps one position too many: the next token reaches the last W - 1 and itself": partial(
            cached_reference, kept=lambda window, length: kept_places(window and window + 1, length)
        ),
        "the attention is over the new tokens alone: the keys and values of the cache come before them": partial(
            cached_reference,
            attend=lambda q, k, v, W: grouped_reference(q, k[:, :, -q.shape[2] :], v[:, :, -q.shape[2] :], W),
        ),
        "the window is not used in the attention": partial(
            cached_reference, attend=lambda q, k, v, W: grouped_reference(q, k, v, None)
        ),
        "within a piece later tokens are attended to: the attention is causal": partial(
            cached_reference, attend=inside_alone
        ),
    },
    result="run_cached_attention",
)


# --- sizes ---------------------------------------------------------------------------------------------------

Sizes = Mapping[str, Any]


def parameters_reference(
    c: Sizes,
    *,
    embeddings: Callable[[Sizes], int] = lambda c: 1 if c["tied"] else 2,
    heads: Callable[[Sizes], int] = lambda c: 2 * c["n_heads"] + 2 * c["n_kv_heads"],
    size: Callable[[Sizes], int] = lambda c: c["d_head"],
    matrices: int = 3,
    norms: int = 2,
    last: int = 1,
    biases: Callable[[Sizes], int] = lambda c: 0,
):
    """Of heads, those of queries and of the output, of keys and of values; of norms those of a layer, and the last."""
    D = c["d_model"]
    layer = D * size(c) * heads(c) + matrices * D * c["d_ff"] + norms * D + biases(c)
    return np.int64(embeddings(c) * c["vocab_size"] * D + c["n_layers"] * layer + last * D)


def bytes_reference(
    c: Sizes,
    batch,
    tokens,
    bits,
    *,
    both: int = 2,
    heads: str = "n_kv_heads",
    size: Callable[[Sizes], float] = lambda c: c["d_head"],
    layers: Callable[[Sizes], int] = lambda c: c["n_layers"],
    reach: Callable[[int], int] = lambda window: window - 1,
    of_a_byte: float = 1 / 8,
):
    length = tokens if c["window"] is None else min(tokens, reach(c["window"]))
    return np.float64(both * layers(c) * batch * length * c[heads] * size(c) * bits * of_a_byte)


LLAMA2 = {
    "vocab_size": 32_000, "d_model": 4096, "n_heads": 32, "n_kv_heads": 32, "d_head": 128, "d_ff": 11_008,
    "n_layers": 32, "window": None, "tied": False,
}  # fmt: skip
LLAMA3 = LLAMA2 | {"vocab_size": 128_256, "n_kv_heads": 8, "d_ff": 14_336}


def sizes_cases(generator: torch.Generator) -> list[Case]:
    def config(same: bool = False, grouped: bool = True, **changes: Any) -> dict[str, Any]:
        """So small that a norm more or less is seen; ``same``: D = H Dh, as in most models."""
        G, Dh = number(generator, 2, 3), 2 * number(generator, 4, 5)
        H = 3 * G if grouped else G
        D = H * Dh if same else H * (Dh + number(generator, 1, 3)) + number(generator, 1, 3)
        V, F, L = number(generator, 20, 40), number(generator, 5, 11), 3
        sizes = {"vocab_size": V, "d_model": D, "n_heads": H, "n_kv_heads": G, "d_head": Dh, "d_ff": F, "n_layers": L}
        return sizes | {"window": None, "tied": False} | changes

    def of(about, c, public=False):
        return Case("parameters", f"parameters_of: {about}", ("parameters_of", c), public=public)

    def bytes_of(about, c, batch, tokens, bits=16, public=False):
        arguments = "cache_bytes", c, batch, tokens, bits
        return Case("cache", f"cache_bytes: {about}", arguments, public=public)

    B, S = 2 * number(generator, 2, 4) + 1, number(generator, 20, 40)  # no factor is equal to another one
    W = number(generator, 5, 12)
    return [
        of("Llama 3 8B", LLAMA3, public=True),
        of("Llama 2 7B", LLAMA2, public=True),
        of("as many heads of keys as of queries", config(same=True, grouped=False)),
        of("fewer heads of keys and values", config(same=True)),
        of("tied embeddings", config(same=True, tied=True)),
        of("heads whose sizes do not add up to d_model", config(tied=True)),
        bytes_of("Llama 3 8B, one text of 8,192 tokens", LLAMA3, 1, 8192, public=True),
        bytes_of("one text", config(same=True), 1, S),
        bytes_of("several texts", config(same=True), B, S),
        bytes_of("8 bits a number", config(same=True), B, S, 8),
        bytes_of("4 bits a number", config(same=True), B, S, 4),
        bytes_of("heads whose sizes do not add up to d_model", config(), B, S),
        bytes_of(f"window {W}, a longer text", config(same=True, window=W), B, S),
        bytes_of(f"window {W + S}, a shorter text", config(same=True, window=W + S), B, S),
    ]


def counted_with(**options: Any) -> Made:
    return by_task(parameters_of=partial(parameters_reference, **options))


def held_with(**options: Any) -> Made:
    return by_task(cache_bytes=partial(bytes_reference, **options))


memory = Part(
    "memory",
    {"parameters": 5, "cache": 4},
    sizes_cases,
    by_task(parameters_of=parameters_reference, cache_bytes=bytes_reference),
    {
        "the embeddings are counted twice although they are tied: the output layer uses the same matrix": counted_with(
            embeddings=lambda c: 2
        ),
        "the output layer is missing: if it is not tied, it is a matrix of its own": counted_with(
            embeddings=lambda c: 1
        ),
        "keys and values are counted with as many heads as the queries": counted_with(heads=lambda c: 4 * c["n_heads"]),
        "the output of the attention is missing, which puts the heads together": counted_with(
            heads=lambda c: c["n_heads"] + 2 * c["n_kv_heads"]
        ),
        "the output of the attention is counted with n_kv_heads: each head of queries has a result": counted_with(
            heads=lambda c: c["n_heads"] + 3 * c["n_kv_heads"]
        ),
        "keys and values share a matrix here: each has its own": counted_with(
            heads=lambda c: 2 * c["n_heads"] + c["n_kv_heads"]
        ),
        "the size of a head is d_model / n_heads: it is d_head, which may be another number": counted_with(
            size=lambda c: c["d_model"] // c["n_heads"]
        ),
        "the network has two matrices here: with a gate it has three": counted_with(matrices=2),
        "the norms are missing": counted_with(norms=0, last=0),
        "the last norm is missing, the one before the output layer": counted_with(last=0),
        "a layer has one norm here: it has two": counted_with(norms=1),
        "the norms have a bias here: RMSNorm has a weight alone": counted_with(norms=4, last=2),
        "biases are counted: these models have none": counted_with(
            biases=lambda c: c["d_head"] * (c["n_heads"] + 2 * c["n_kv_heads"]) + 2 * c["d_ff"] + 2 * c["d_model"]
        ),
        "these are bits where bytes are asked for: a byte has 8 bits": held_with(of_a_byte=1.0),
        "only keys, or only values, are counted: the cache holds both": held_with(both=1),
        "there are as many heads here as queries have: the cache holds those of keys and values": held_with(
            heads="n_heads"
        ),
        "the size of a head is d_model / n_heads: the cache holds heads of size d_head": held_with(
            size=lambda c: c["d_model"] / c["n_heads"]
        ),
        "this is one layer: each has a cache": held_with(layers=lambda c: 1),
        "the window is not used: no more than W - 1 positions are kept": held_with(reach=lambda window: math.inf),
        "with a window, one position too many is counted: W - 1 are kept, as in part 5": held_with(
            reach=lambda window: window
        ),
        "with a window, W - 1 positions are counted even where the text is shorter": by_task(
            cache_bytes=lambda c, batch, tokens, bits: bytes_reference(
                c, batch, tokens if c["window"] is None else c["window"] - 1, bits
            )
        ),
        "the texts of a batch are not counted: each has its own keys and values": by_task(
            cache_bytes=lambda c, batch, tokens, bits: bytes_reference(c, 1, tokens, bits)
        ),
        "the bits are always 16": by_task(
            cache_bytes=lambda c, batch, tokens, bits: bytes_reference(c, batch, tokens, 16)
        ),
    },
    result="run_memory",
)


# --- fewer bits ----------------------------------------------------------------------------------------------


def in_blocks(weight: Tensor, block: int) -> Tensor:
    """(R, C) -> (R, C / block, block)."""
    return weight.double().unflatten(1, (-1, block))


def quantise_reference(
    weight,
    bits,
    block,
    *,
    cut: Made = in_blocks,
    low: Callable[[Tensor], Tensor] = lambda z: z.amin(dim=-1, keepdim=True),
    high: Callable[[Tensor], Tensor] = lambda z: z.amax(dim=-1, keepdim=True),
    steps: Callable[[int], int] = lambda bits: 2**bits - 1,
    whole: Callable[[Tensor], Tensor] = torch.round,
    division: Made = lambda z, scale: torch.where(scale > 0, z / scale, 0.0),
    stored: Callable[[Tensor], Tensor] = lambda q: q,
):
    z = cut(weight, block)
    minimum = low(z)
    scale = (high(z) - minimum) / steps(bits)
    q = stored(whole(division(z - minimum, scale)))
    return q.reshape(weight.shape), scale[..., 0], minimum[..., 0]


def dequantise_reference(q, scale, minimum, *, spread: Made | None = None, back: Made = lambda q, d, m: d * q + m):
    """``spread``: of what each block has one, (R, C / block), to each of its numbers, (R, C)."""
    spread = spread or (lambda z, times: z.double()[..., None].expand(-1, -1, times).flatten(1))
    times = q.shape[1] // scale.shape[1]
    return back(q.double(), spread(scale, times), spread(minimum, times))


def bits_reference(bits, block, *, stored: float = 32):
    return np.float64(bits + stored / block)


def to_store(generator: torch.Generator, R: int, n: int, block: int, bits: int, equal: bool = False) -> Tensor:
    """A matrix (R, n block) none of whose numbers is near the middle of two levels.

    In each block the lowest and the highest level occur, so that it is known where the levels are; ``equal``: in the
    first block of each row all numbers are the same.
    """
    top = 2**bits - 1
    level = torch.randint(0, top + 1, (R, n, block), generator=generator).double()
    level[..., 0], level[..., 1] = 0, top
    off = 0.8 * torch.rand(R, n, block, generator=generator).double() - 0.4  # of a step
    off[(level == 0) | (level == top)] = 0
    order = torch.rand(R, n, block, generator=generator).argsort(dim=-1)
    scale = 0.02 + torch.rand(R, n, 1, generator=generator).double() / top
    minimum = numbers(R, n, 1, generator=generator).double()
    values = minimum + scale * (level + off).gather(-1, order)
    if equal:
        values[:, 0] = minimum[:, 0]
    return values.flatten(1).float()


def quantise_cases(generator: torch.Generator) -> list[Case]:
    def case(aspect, about, R, n, block, bits, result="", equal=False):
        weight = to_store(generator, R, n, block, bits, equal)
        return Case(aspect, f"quantise: {about}", ("quantise", weight, bits, block), result)

    def back(about, R, n, block, bits):
        q = torch.randint(0, 2**bits, (R, n * block), generator=generator)
        scale = 0.1 + torch.rand(R, n, generator=generator)
        arguments = "dequantise", q.to(torch.uint8), scale, numbers(R, n, generator=generator)
        return Case("back", f"dequantise: {about}", arguments)

    def of(bits, block, public=False):
        about = f"bits_per_number: {bits} bits in blocks of {block}"
        return Case("bits", about, ("bits_per_number", bits, block), public=public)

    R, n = sizes(generator, 2, least=2, most=4)
    block = 4 * number(generator, 2, 5)
    shapes = (
        ("one row, one block of six numbers, 2 bits", 1, 1, 6, 2),
        ("two rows of two blocks, 4 bits", 2, 2, 8, 4),
        (f"{R} rows of {n} blocks, 4 bits", R, n, block, 4),
        (f"{R} rows of {n} blocks, 3 bits", R, n, block, 3),
        ("as many rows as columns: no axis can be told by its size", 8, 2, 4, 4),
        ("8 bits", R, n, 32, 8),
    )
    return [
        *(case("numbers", about, *sizes) for about, *sizes in shapes),
        case("equal numbers", "a block whose numbers are all equal", 1, 2, 4, 4, equal=True),
        case("equal numbers", "in each row a block whose numbers are all equal", R, n, block, 4, equal=True),
        back("one row, two blocks of three numbers, 2 bits", 1, 2, 3, 2),
        back(f"{R} rows of {n} blocks, 4 bits", R, n, block, 4),
        back("as many rows as columns, 8 bits", 8, 2, 4, 8),
        of(4, 32, public=True),
        of(number(generator, 2, 3), 32),
        of(number(generator, 5, 8), number(generator, 40, 300)),
    ]


def stored_with(**options: Any) -> Made:
    return by_task(quantise=partial(quantise_reference, **options))


def read_with(**options: Any) -> Made:
    return by_task(dequantise=partial(dequantise_reference, **options))


def bits_with(stored: float) -> Made:
    return by_task(bits_per_number=partial(bits_reference, stored=stored))


def by_all(change: Callable[[Tensor], Tensor]) -> Made:
    """Lowest and highest number of more than a block."""

    def mistake(weight, bits, block):
        z = in_blocks(weight, block)
        return quantise_reference(
            weight,
            bits,
            block,
            low=lambda _: -change(-z).expand_as(z[..., :1]),
            high=lambda _: change(z).expand_as(z[..., :1]),
        )

    return mistake


def largest_size(z: Tensor) -> Tensor:
    return z.abs().amax(dim=-1, keepdim=True)


def columns_first(weight: Tensor, block: int) -> Tensor:
    return in_blocks(weight.mT.reshape(weight.shape), block)


quantisation = Part(
    "quantisation",
    {"numbers": 5, "equal numbers": 2, "back": 3, "bits": 2},
    quantise_cases,
    by_task(quantise=quantise_reference, dequantise=dequantise_reference, bits_per_number=bits_reference),
    {
        "in a block of equal numbers 0 is divided by 0: there q is 0, the scale 0, and the minimum says it all": (
            stored_with(division=lambda z, scale: z / scale)
        ),
        "the scale of equal numbers is not 0: all there is to say about them is the minimum": by_task(
            quantise=lambda weight, bits, block: one_for_nothing(quantise_reference(weight, bits, block))
        ),
        "the range is divided by 2^bits: that many levels have 2^bits - 1 steps between them": stored_with(
            steps=lambda bits: 2**bits
        ),
        "the range is divided by 2^(bits - 1) - 1, as with a sign: q goes from 0 to 2^bits - 1": stored_with(
            steps=lambda bits: 2 ** (bits - 1) - 1
        ),
        "this is cut off, not rounded: take the nearest level": stored_with(whole=torch.floor),
        "this is rounded up: take the nearest level": stored_with(whole=torch.ceil),
        "the blocks lie in the columns: a block is so many neighbours of one row": stored_with(cut=columns_first),
        "each row has one scale and one minimum here: each block has its own": by_task(
            quantise=by_all(lambda z: z.amax(dim=(1, 2), keepdim=True))
        ),
        "all blocks have the same scale and minimum here: each has its own": by_task(
            quantise=by_all(lambda z: z.amax())
        ),
        "the levels are symmetric around 0: they go from the lowest number of a block to the highest": stored_with(
            low=lambda z: -largest_size(z), high=largest_size
        ),
        "the scale is that of the largest size: it is the range, highest minus lowest, over the number of steps": (
            stored_with(high=lambda z: largest_size(z) + z.amin(dim=-1, keepdim=True))
        ),
        "the minimum is not subtracted before q is computed": by_task(
            quantise=lambda weight, bits, block: not_subtracted(weight, bits, block)
        ),
        "levels above 127 have become negative: int8 ends there, uint8 goes to 255": stored_with(
            stored=lambda q: torch.where(q > 127, q - 256, q)
        ),
        "scale and minimum have changed places": read_with(back=lambda q, d, m: m * q + d),
        "the minimum is added before the scale is multiplied: it is d q + m": read_with(
            back=lambda q, d, m: d * (q + m)
        ),
        "the minimum is missing": read_with(back=lambda q, d, m: d * q),
        "the minimum is subtracted: add it": read_with(back=lambda q, d, m: d * q - m),
        "scales and minima are tiled, 0 1 0 1, where each belongs to so many neighbours, 0 0 1 1": read_with(
            spread=lambda z, times: z.double().repeat(1, times)
        ),
        "scale and minimum of a block are not counted: they are 16 bits each": bits_with(0),
        "only one of scale and minimum is counted: they are 16 bits each": bits_with(16),
        "scale and minimum are counted with 32 bits each: they are stored in float16": bits_with(64),
        "this is in bytes: a byte has 8 bits": by_task(bits_per_number=lambda *sizes: bits_reference(*sizes) / 8),
        "this is what a block takes: divide by its numbers": by_task(
            bits_per_number=lambda bits, block: block * bits_reference(bits, block)
        ),
    },
    result="run_quantisation",
)


def one_for_nothing(found: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    q, scale, minimum = found
    return q, scale.masked_fill(scale == 0, 1.0), minimum


def not_subtracted(weight: Tensor, bits: int, block: int) -> tuple[Tensor, Tensor, Tensor]:
    _, scale, minimum = quantise_reference(weight, bits, block)
    return (in_blocks(weight, block) / scale[..., None]).round().flatten(1), scale, minimum


# --- a mixture of experts ------------------------------------------------------------------------------------


def chosen_by(logits: Tensor, k: int) -> Tensor:
    """True at the k largest of each row, (N, E)."""
    rank = (logits[:, None] > logits[:, :, None]).sum(dim=-1)  # how many are larger
    return rank < k


def gates_reference(logits, k, *, chosen: Made = chosen_by, weigh: Made = lambda z, chosen: over_keys(z, chosen)):
    return weigh(logits.double(), chosen(logits, k))


def mixture_reference(x, logits, matrices, k, *, gates: Made = gates_reference, join: Made | None = None):
    """The sum of ``tanh(x W_e^T)`` with the gates as weights, and how many tokens each expert was called with."""
    weights = gates(logits, k)  # (N, E)
    x, matrices = wide([x, matrices])
    each = torch.stack([torch.tanh(x @ W.mT) for W in matrices], dim=1)  # (N, E, D)
    used = chosen_by(logits, k)
    join = join or (lambda x, each, weights, used: (weights[..., None] * each).sum(dim=1))
    return join(x, each, weights, used), used.sum(dim=0)


def balance_reference(
    logits,
    k,
    *,
    shares: Made = lambda logits, k: chosen_by(logits, k).double().mean(dim=0) / k,
    mean: Made = lambda logits, k: logits.double().softmax(dim=-1).mean(dim=0),
    times: Callable[[int, int], float] = lambda E, k: E,
    join: Made = lambda f, P: (f * P).sum(),
):
    return times(logits.shape[1], k) * join(shares(logits, k), mean(logits, k))


def router_logits(generator: torch.Generator, N: int, E: int, scale: float = 1.0, lean: float = 0.0) -> Tensor:
    """Logits no two of which in a row are close; ``lean``: how much the first experts are favoured."""
    ranks = torch.rand(N, E, generator=generator).argsort(dim=-1) + 0.4 * torch.rand(N, E, generator=generator)
    return scale * (0.7 * ranks - lean * torch.arange(E))


def mixture_cases(generator: torch.Generator) -> list[Case]:
    def gates(about, N, E, k, scale=1.0):
        return Case("gates", f"gates_of: {about}", ("gates_of", router_logits(generator, N, E, scale), k))

    def mixture(about, N, D, E, k, lean=0.0, result="0"):
        matrices = numbers(E, D, D, generator=generator)
        arguments = (
            "mixture",
            numbers(N, D, generator=generator),
            router_logits(generator, N, E, 1.0, lean),
            matrices,
            k,
        )
        return Case("mixture" if result == "0" else "calls", f"mixture: {about}", arguments, result)

    def loss(task, about, N, E, k, lean=0.0):
        aspect = "gradient" if task == "slope" else "balance"
        return Case(aspect, f"{about}", (task, router_logits(generator, N, E, 1.0, lean), k))

    N, D = sizes(generator, 2, least=3, most=7)
    E = number(generator, 5, 7)
    slope_of = "the gradient of balance_loss"
    return [
        gates("one token, 2 of 3 experts", 1, 3, 2),
        gates("several tokens, 2 of 8 experts", N, 8, 2),
        gates(f"several tokens, 3 of {E} experts", N, E, 3),
        gates("1 of 4 experts", N, 4, 1),
        gates("as many tokens as experts, 2 of 5", 5, 5, 2),
        gates("logits of several hundred", N, 8, 2, 100.0),
        mixture("two tokens, 2 of 3 experts", 2, 2, 3, 2),
        mixture("several tokens, 2 of 8 experts", N + 8, D, 8, 2),
        mixture("experts that nobody chooses", N, D, 8, 2, lean=3.0),
        mixture(f"as many tokens as experts, 3 of {E}", E, D, E, 3),
        mixture("how many tokens each expert was called with, 2 of 3 experts", 2, 2, 3, 2, result="1"),
        mixture("how many tokens each expert was called with, 2 of 8 experts", N + 8, D, 8, 2, result="1"),
        loss("balance", "balance_loss: two tokens, 2 of 3 experts", 2, 3, 2),
        loss("balance", "balance_loss: 1 of 4 experts", N + 3, 4, 1),
        loss("balance", "balance_loss: 2 of 8 experts", N + 8, 8, 2),
        loss("balance", "balance_loss: 2 of 8 experts, two of which get all tokens", N + 8, 8, 2, lean=9.0),
        loss("slope", f"{slope_of}: 2 of 4 experts", 3, 4, 2),
        loss("slope", f"{slope_of}: 2 of {E} experts", N + 2, E, 2),
    ]


def gates_with(**options: Any) -> Made:
    """The same mistake where gates are asked for, and in the mixture that is made with them."""
    gates = partial(gates_reference, **options)
    return by_task(gates_of=gates, mixture=partial(mixture_reference, gates=gates))


def mixed_with(**options: Any) -> Made:
    return by_task(mixture=partial(mixture_reference, **options))


def balanced_with(**options: Any) -> Made:
    loss = partial(balance_reference, **options)
    return by_task(balance=loss, slope=partial(slope, loss))


def called_with_all(x, logits, matrices, k):
    output, used = mixture_reference(x, logits, matrices, k)
    return output, torch.full_like(used, len(x))


def renormalised(p: Tensor, chosen: Tensor) -> Tensor:
    return p * chosen / (p * chosen).sum(dim=-1, keepdim=True)


def without_slope(x: Tensor, *rest: Any) -> Tensor:
    return no_slope(x)


mixture = Part(
    "mixture",
    {"gates": 4, "mixture": 3, "calls": 1, "balance": 3, "gradient": 2},
    mixture_cases,
    by_task(
        gates_of=gates_reference,
        mixture=mixture_reference,
        balance=balance_reference,
        slope=partial(slope, balance_reference),
    ),
    {
        CUT: by_task(slope=without_slope),
        "the gates of the chosen experts do not sum to 1: divide them by their sum, or take the softmax of their "
        "logits alone": gates_with(weigh=lambda z, chosen: z.softmax(dim=-1) * chosen),
        "all experts have a gate above 0: only the k with the largest logits are used": gates_with(
            chosen=lambda logits, k: torch.ones_like(logits, dtype=torch.bool)
        ),
        "the softmax is taken twice, of probabilities instead of logits: take it of the logits once": gates_with(
            weigh=lambda z, chosen: over_keys(z.softmax(dim=-1), chosen)
        ),
        "the chosen experts have equal gates: they are weighted by the softmax of their logits": gates_with(
            weigh=lambda z, chosen: chosen.double() / chosen.sum(dim=-1, keepdim=True)
        ),
        "the logits themselves, divided by their sum, are the gates: take their softmax": gates_with(
            weigh=renormalised
        ),
        "these are sigmoids, divided by their sum: take the softmax of the chosen logits": gates_with(
            weigh=lambda z, chosen: renormalised(logistic(z), chosen)
        ),
        "the smallest logits are chosen: take the largest": gates_with(chosen=lambda logits, k: chosen_by(-logits, k)),
        "one expert is used: it is k": gates_with(chosen=lambda logits, k: chosen_by(logits, 1)),
        "the softmax runs over the tokens: each token's gates, the last axis, sum to 1": gates_with(
            weigh=lambda z, chosen: z.masked_fill(~chosen, -torch.inf).softmax(dim=0).nan_to_num(0)
        ),
        "the experts' results are summed without their gates": mixed_with(
            join=lambda x, each, weights, used: (used[..., None] * each).sum(dim=1)
        ),
        "a token keeps what the last of its experts gave, and loses the others: add, do not overwrite": mixed_with(
            join=lambda x, each, weights, used: last_expert(weights[..., None] * each, used)
        ),
        "a token is added to what its experts made of it: the residual connection is around this, not in it": (
            mixed_with(join=lambda x, each, weights, used: x + (weights[..., None] * each).sum(dim=1))
        ),
        "every expert is called with all tokens: call it with those alone that have chosen it, or nothing is saved": (
            by_task(mixture=called_with_all)
        ),
        "the factor E is missing: with equal shares the loss would be 1 / E": balanced_with(times=lambda E, k: 1.0),
        "the shares f sum to k: divide by all N k choices": balanced_with(times=lambda E, k: E * k),
        "only the first choice of each token is counted: all k are": balanced_with(
            shares=lambda logits, k: chosen_by(logits, 1).double().mean(dim=0)
        ),
        "P is taken for f as well: f is the share of the choices, which are counted": balanced_with(
            shares=lambda logits, k: logits.double().softmax(dim=-1).mean(dim=0)
        ),
        "f is taken for P as well: P is the mean of the softmax, and by it alone the loss has a gradient": (
            balanced_with(mean=lambda logits, k: chosen_by(logits, k).double().mean(dim=0) / k)
        ),
        "P is the mean of the gates: it is the mean of the softmax over all experts, before any is chosen": (
            balanced_with(mean=lambda logits, k: gates_reference(logits, k).mean(dim=0))
        ),
        "P is summed over the tokens: take the mean": by_task(
            balance=lambda logits, k: len(logits) * balance_reference(logits, k),
            slope=lambda logits, k: len(logits) * slope(balance_reference, logits, k),
        ),
        "this is the squared distance from equal shares: it is E times the sum of f P": balanced_with(
            times=lambda E, k: 1.0, join=lambda f, P: ((f - 1 / len(f)) ** 2).sum()
        ),
    },
    result="run_mixture",
)


def last_expert(each: Tensor, used: Tensor) -> Tensor:
    """Of each token, what the last expert that it has chosen gives, (N, D)."""
    place = torch.arange(used.shape[1]).where(used, -1).amax(dim=1)
    return each[torch.arange(len(each)), place]


PARTS = (rms_norm, rotate, grouped_attention, feed_forward, cached_attention, memory, quantisation, mixture)
WRITTEN = {"what_fits": 10}
score = partial(show_score, PARTS, WRITTEN)
