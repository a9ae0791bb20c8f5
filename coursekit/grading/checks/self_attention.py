"""Checks of exercise 03: masked softmax, attention, several heads, positions, masks, layer norm, heads to read.

The references share nothing with ``coursekit.nn``; their options are places for mistakes.

Legend: B sequences, H heads, T queries, S keys and values, D size of the model, Dh = D / H size of a head.
"""

import re
from functools import partial

import torch
from torch import Tensor, nn

from coursekit.grading.checks.common import (
    FAR,
    SOFTMAXES,
    VIEWED,
    apart,
    filled_with,
    judge_zeros,
    norm,
    number,
    numbers,
    scaled_by,
    scaled_scores,
    scaled_weights,
    sizes,
    softmax_cases,
    softmax_reference,
    some_allowed,
    thirds,
    together,
    viewed_thirds,
    wide,
)
from coursekit.grading.mistakes import given
from coursekit.grading.parts import Case, Part
from coursekit.grading.parts import score as show_score
from coursekit.nn.attention import MultiHeadAttention
from coursekit.nn.positions import sinusoidal, sinusoidal_frequencies

# --- masked softmax ------------------------------------------------------------------------------------


def masked_cases(generator: torch.Generator) -> list[Case]:
    draw, allow = partial(numbers, generator=generator), partial(some_allowed, generator=generator)
    B, T, S = sizes(generator, 3)
    row_empty, sequence_empty = allow(B, S), allow(B, 1, S)
    row_empty[number(generator, 0, B - 1)] = sequence_empty[number(generator, 0, B - 1)] = False
    # One or two scores of 0 are allowed in each row: every way to compute a softmax gives exactly 1 or 1/2, even in
    # float16, where three numbers are hardly right.
    few = torch.rand(B, S, generator=generator).argsort(dim=-1) < torch.randint(1, 3, (B, 1), generator=generator)
    half = draw(B, S).masked_fill(few, 0).half()
    return [
        *softmax_cases(generator, "extreme scores"),
        Case("empty rows", "one row has nothing that is allowed", (draw(B, S), row_empty)),
        Case("empty rows", "one sequence is nothing but padding, mask (B, 1, S)", (draw(B, T, S), sequence_empty)),
        Case("extreme scores", "scores of type float16", (half, few)),
    ]


masked_softmax = Part(
    "masked_softmax",
    {"softmax": 3, "mask": 4, "empty rows": 4, "extreme scores": 3},
    masked_cases,
    softmax_reference,
    {
        "a row with nothing allowed became nan: a softmax of nothing but -inf is 0 / 0; give such rows zeros": (
            lambda scores, mask: scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
        ),
        "a row with nothing allowed got equal weights, as if all were allowed: give such rows zeros": (
            lambda scores, mask: scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(dim=-1)
        ),
        "masked positions get weight where all scores are low, and in float16 such a number does not even exist: "
        "fill with -inf, not with a large number": lambda scores, mask: scores.masked_fill(~mask, -1e9).softmax(dim=-1),
        **SOFTMAXES,
    },
    judge_zeros,
)


# --- one head ------------------------------------------------------------------------------------------

LOW, VERY_LOW = (
    f"the forbidden scores get a number such as {low}: where the allowed ones are lower still, the forbidden keys win. "
    "Fill with -inf"
    for low in ("-20", "-1e9")
)


UPSIDE_DOWN = "the mask is upside down: True means that a key may be attended to"


def other_way(mask: Tensor | None) -> Tensor | None:
    return None if mask is None else ~mask


def mask_afterwards(query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
    return scaled_weights(query, key, None) * (1 if mask is None else mask)


def over_queries(query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
    return scaled_scores(query, key, mask).softmax(dim=-2)


def attention_reference(query, key, value, mask=None, *, weigh=scaled_weights):
    query, key, value = wide([query, key, value])
    weights = weigh(query, key, mask)
    return weights @ value, weights


def attention_cases(generator: torch.Generator) -> list[Case]:
    def all_of(aspect, about, T, S, Dh, Dv, mask=None, result="", batch=None):
        query, key, value = (numbers(batch or B, *shape, generator=generator) for shape in ((T, Dh), (S, Dh), (S, Dv)))
        return Case(aspect, about, (query, key, value, mask), result)

    allow = partial(some_allowed, generator=generator)
    B, T, S, Dh = sizes(generator, 4)
    Dv = Dh + 2
    small = 2, 3, 2, 5  # few enough numbers to be printed, and no two likely divisors are equal
    plain = [
        ("two queries, three keys", small, 1),
        ("sizes that all differ", (T, S, Dh, Dv), B),
        ("T = S = Dh: no axis can be told by its size", (4, 4, 4, 4), B),
        ("one query", (1, S, Dh, Dv), B),
    ]
    cases = [all_of("weights", about, *shape, result="1", batch=batch) for about, shape, batch in plain]
    cases += [all_of("output", about, *shape, result="0", batch=batch) for about, shape, batch in plain]
    some = torch.tensor([[True, False, True], [False, True, True]])
    return [
        *cases,
        all_of("mask", "two queries, three keys, a mask (T, S)", *small, some, batch=1),
        all_of("mask", "T = S, a causal mask (T, S)", T, T, Dh, Dv, torch.ones(T, T, dtype=torch.bool).tril()),
        all_of("mask", "a mask (B, T, S)", T, S, Dh, Dv, allow(B, T, S)),
        all_of("mask", "a mask (B, 1, S)", T, S, Dh, Dv, allow(B, 1, S)),
        all_of("mask", "a mask (T, S)", T, S, Dh, Dv, allow(T, S)),
        Case("mask", "all scores are far below 0", low_scores(B, T, S, Dh, Dv, allow(B, T, S), generator)),
        Case("mask", "the scores of padding are huge", far_scores(B, T, S, Dh, Dv, allow(B, 1, S), 0.0, generator)),
        Case("mask", "very low scores, but for padding", far_scores(B, T, S, Dh, Dv, allow(B, 1, S), -FAR, generator)),
        Case("mask", "very high scores", far_scores(B, T, S, Dh, Dv, allow(B, 1, S), FAR, generator)),
    ]


def far_scores(B, T, S, Dh, Dv, mask, real, generator):
    """Arguments whose scores are huge at padding, mask (B, 1, S), and what ``real`` makes them elsewhere."""
    draw = partial(numbers, generator=generator)
    query, key, value = draw(B, T, Dh), draw(B, S, Dh), draw(B, S, Dv)
    query[..., 0], key[..., 0] = FAR, torch.where(mask[:, 0], real, FAR)
    return query, key, torch.where(mask.mT, value, 1e12 * value), mask


def low_scores(B, T, S, Dh, Dv, mask, generator):
    """Arguments whose scores lie far below 0: each query is nearly the opposite of each key."""
    draw = partial(numbers, generator=generator)
    one = 5 * torch.ones(Dh)
    return one + 0.1 * draw(B, T, Dh), -one + 0.1 * draw(B, S, Dh), draw(B, S, Dv), mask


MULTI_HEAD = ("F.multi_head_attention_forward", "_native_multi_head_attention")  # the second in eval, without gradients
BY_HAND_ATTENTION = (
    "PyTorch's own attention is used: write it out, scores = query @ key.mT / Dh ** 0.5, the weights as their softmax "
    "over the allowed keys, and weights @ value"
)


attention = Part(
    "attention",
    {"weights": 5, "output": 5, "mask": 4},
    attention_cases,
    attention_reference,
    {
        "the scores are not divided by the square root of Dh": partial(
            attention_reference, weigh=scaled_by(lambda query, key: 1)
        ),
        "the scores are divided by Dh: divide by its square root": partial(
            attention_reference, weigh=scaled_by(lambda query, key: 1 / query.shape[-1])
        ),
        "the scores are divided by the square root of Dv: Dh, the size of a query, is what counts": (
            lambda query, key, value, mask: attention_reference(
                query, key, value, mask, weigh=scaled_by(lambda *_: value.shape[-1] ** -0.5)
            )
        ),
        "the softmax runs over the queries: each query's weights, the last axis, sum to 1": partial(
            attention_reference, weigh=over_queries
        ),
        "masked after the softmax: the weights of a row no longer sum to 1": partial(
            attention_reference, weigh=mask_afterwards
        ),
        "the mask is on the wrong axis: its rows, (.., T, ..), are the queries, its columns, (.., S), the keys": (
            given(attention_reference, mask=lambda mask: None if mask is None else mask.mT)
        ),
        "the keys are added up: the weights belong to the values": (
            lambda query, key, value, mask: attention_reference(query, key, key, mask)
        ),
        UPSIDE_DOWN: given(attention_reference, mask=other_way),
        LOW: partial(attention_reference, weigh=filled_with(-20)),
        VERY_LOW: partial(attention_reference, weigh=filled_with(-1e9)),
    },
    forbidden=dict.fromkeys(("scaled_dot_product_attention", *MULTI_HEAD), BY_HAND_ATTENTION),
    given=("masked_softmax",),
)


# --- several heads -------------------------------------------------------------------------------------


def heads_reference(
    x, mask, n_heads, qkv_weight, qkv_bias, out_weight, out_bias, *, cut=thirds, weigh=scaled_weights, join=together
):
    x, qkv_weight, qkv_bias, out_weight, out_bias = wide([x, qkv_weight, qkv_bias, out_weight, out_bias])
    query, key, value = cut(x @ qkv_weight.mT + qkv_bias, n_heads)
    return join(weigh(query, key, mask) @ value) @ out_weight.mT + out_bias


def heads_cases(generator: torch.Generator) -> list[Case]:
    draw, allow = partial(numbers, generator=generator), partial(some_allowed, generator=generator)

    def case(aspect, about, B, T, n_heads, D, mask=None, low=False):
        shapes = (3 * D, D), (3 * D,), (D, D), (D,)
        weights = [draw(*shape, scale=0.3) for shape in shapes]  # the biases too: zeros would hide what forgets them
        if low:  # each query is nearly the opposite of each key
            weights[0][: 2 * D] *= 0.1
            weights[1][:D], weights[1][D : 2 * D] = 5, -5
        return Case(aspect, about, (draw(B, T, D, scale=2), mask, n_heads, *weights))

    B, T = sizes(generator, 2)
    causal = torch.ones(T, T, dtype=torch.bool).tril()
    real = torch.arange(T) < torch.randint(1, T, (B, 1), generator=generator)  # (B, T), every row has padding
    padding = real[:, None, None, :]  # (B, 1, 1, T)
    return [
        case("one head", "one sequence, one head", 1, 3, 1, 4),
        case("one head", "a batch, one head", B, T, 1, 6),
        case("several heads", "one sequence, two heads", 1, 3, 2, 4),
        case("several heads", "a batch, three heads", B, T, 3, 12),
        case("several heads", "B = T = H = Dh: no axis can be told by its size", 4, 4, 4, 16),
        case("mask", "two heads, the last positions are padding, mask (B, 1, 1, T)", B, T, 2, 8, padding),
        case("mask", "two heads, a causal mask (T, T)", B, T, 2, 8, causal),
        case("mask", "two heads, padding and causal, mask (B, 1, T, T)", B, T, 2, 8, padding & causal),
        case("mask", "two heads with masks of their own, mask (B, H, T, T)", B, T, 2, 8, allow(B, 2, T, T)),
        case("mask", "two heads, all scores are far below 0, mask (H, T, T)", B, T, 2, 8, allow(2, T, T), low=True),
    ]


multi_head_attention = Part(
    "multi_head_attention",
    {"one head": 6, "several heads": 12, "mask": 6},
    heads_cases,
    heads_reference,
    {
        VIEWED: partial(heads_reference, cut=viewed_thirds),
        "the heads are joined without swapping the axes back, which mixes positions and heads: (B, H, T, Dh) becomes "
        "(B, T, H, Dh), then (B, T, D)": partial(
            heads_reference, join=lambda heads: heads.reshape(len(heads), heads.shape[2], -1)
        ),
        "the scores are divided by the square root of D: a head's queries have only Dh = D / H entries": partial(
            heads_reference, weigh=scaled_by(lambda query, key: (query.shape[1] * query.shape[3]) ** -0.5)
        ),
        "the three parts of qkv are taken as key, query, value: they are query, key, value": partial(
            heads_reference, cut=lambda qkv, H: [thirds(qkv, H)[i] for i in (1, 0, 2)]
        ),
        "qkv is cut into heads first, and each head into three: cut it into query, key and value first": partial(
            heads_reference, cut=lambda qkv, H: apart(qkv, H).chunk(3, dim=-1)
        ),
        "the output projection is missing: apply self.out to the joined heads": given(
            heads_reference, out_weight=lambda W: torch.eye(len(W)), out_bias=torch.zeros_like
        ),
        UPSIDE_DOWN: given(heads_reference, mask=other_way),
        LOW: partial(heads_reference, weigh=filled_with(-20)),
    },
    forbidden=dict.fromkeys(
        MULTI_HEAD,
        "PyTorch's own multi-head attention is used: write it out, the heads cut apart and joined by you; each of them "
        "may call course.attend",
    ),
    given=("masked_softmax", "attend"),
)


# --- positions -----------------------------------------------------------------------------------------


def in_turn(even: Tensor, odd: Tensor) -> Tensor:
    return torch.stack([even, odd], dim=-1).flatten(1)


def positions_reference(x, *, angle=lambda t, i, D: t / 10_000 ** (2 * i / D), join=in_turn):
    """x and a code of sines and cosines of the angles of the positions t, (T, 1), and of i = 0, 1, … below D / 2."""
    _, T, D = x.shape
    angles = angle(torch.arange(T).double()[:, None], torch.arange(D // 2).double(), D)
    return x + join(angles.sin(), angles.cos())


def positions_cases(generator: torch.Generator) -> list[Case]:
    draw = partial(numbers, generator=generator)
    B, T, half = sizes(generator, 3)
    D, few, long, wide = 2 * half, number(generator, 2, 12), number(generator, 15, 60), 2 * number(generator, 3, 12)
    return [
        Case("code", "two zeros of six entries, so that only the code is left", (torch.zeros(1, 2, 6),), public=True),
        Case("code", "one sequence of zeros", (torch.zeros(1, few, 4),)),
        Case("code", "a longer sequence of zeros", (torch.zeros(1, long, wide),)),
        Case("code", "a very long sequence of zeros", (torch.zeros(1, number(generator, 5100, 5500), 4),)),
        Case("added", "one short sequence", (draw(1, 2, 6),)),
        Case("added", "one sequence", (draw(1, T, D),)),
        Case("added", "a batch", (draw(B, T, D),)),
        Case("added", "B = T = D: no axis can be told by its size", (draw(6, 6, 6),)),
    ]


add_positions = Part(
    "add_positions",
    {"code": 7, "added": 6},
    positions_cases,
    positions_reference,
    {
        "the positions run over the batch: every sequence has them, along its own axis T": (
            lambda x: positions_reference(x.transpose(0, 1)).transpose(0, 1)
        ),
        "all sines come first, then all cosines: entries 0, 2, 4, … are sines, 1, 3, 5, … cosines": partial(
            positions_reference, join=lambda sines, cosines: torch.cat([sines, cosines], dim=-1)
        ),
        "the exponent is i / D: it is 2i / D": partial(
            positions_reference, angle=lambda t, i, D: t / 10_000 ** (i / D)
        ),
        "the exponent is 4i / D, doubled twice: torch.arange(0, D, 2) is 2i already": partial(
            positions_reference, angle=lambda t, i, D: t / 10_000 ** (4 * i / D)
        ),
        "the exponent is i / (D/2 - 1): it is 2i / D, which never quite reaches 1": partial(
            positions_reference, angle=lambda t, i, D: t / 10_000 ** (i / (D / 2 - 1))
        ),
        "t is multiplied by 10000^(2i/D): divide by it": partial(
            positions_reference, angle=lambda t, i, D: t * 10_000 ** (2 * i / D)
        ),
        "each entry has a frequency of its own: a sine and the cosine after it share one": partial(
            positions_reference,
            angle=lambda t, i, D: t / 10_000 ** (torch.arange(D).double() / D),
            join=lambda sines, cosines: in_turn(sines[:, ::2], cosines[:, 1::2]),
        ),
        "the positions begin at 1: the first one is 0": partial(
            positions_reference, angle=lambda t, i, D: (t + 1) / 10_000 ** (2 * i / D)
        ),
    },
)


# --- masks ---------------------------------------------------------------------------------------------


def mask_reference(real, *, join=torch.logical_and):
    """From the causal mask, (T, T), and the keys that are real, (B, 1, 1, T)."""
    T = real.shape[1]
    return join(torch.ones(T, T, dtype=torch.bool).tril(), real[:, None, None])


def mask_cases(generator: torch.Generator) -> list[Case]:
    B, T, n = sizes(generator, 3, 3, 12)
    place = torch.arange(T)
    lengths = torch.randint(1, T, (B, 1), generator=generator)
    every = partial(torch.ones, dtype=torch.bool)
    return [
        Case("causal", "one sequence of three real tokens", (every(1, 3),), public=True),
        Case("causal", f"one sequence of {n} real tokens", (every(1, n),)),
        Case("causal", "a batch without padding", (every(B, T),)),
        Case("causal", "a long sequence", (every(1, number(generator, 520, 560)),)),
        Case("padding", "three tokens, the first is padding", (torch.tensor([[False, True, True]]),), public=True),
        Case("padding", "three tokens, the last is padding", (torch.tensor([[True, True, False]]),), public=True),
        Case("padding", "a batch, padding on the right", (place < lengths,)),
        Case("padding", "a batch, padding on the left", (place >= T - lengths,)),
        Case("padding", "B = T: no axis can be told by its size", (some_allowed(4, 4, generator=generator),)),
    ]


decoder_mask = Part(
    "decoder_mask",
    {"causal": 6, "padding": 7},
    mask_cases,
    mask_reference,
    {
        "the causal mask is turned round: a query sees what comes later, and nothing before it (tril, not triu)": (
            partial(mask_reference, join=lambda causal, real: causal.T & real)
        ),
        "a position may not attend to itself: s = t is allowed": partial(
            mask_reference, join=lambda causal, real: causal.tril(-1) & real
        ),
        "this is the upper triangle: PyTorch's own module means by True 'forbidden', this course 'may be attended'": (
            partial(mask_reference, join=lambda causal, real: ~causal & real)
        ),
        "queries that are padding may attend to nothing here: what counts is only whether position s is real": (
            partial(mask_reference, join=lambda causal, real: causal & real & real.mT)
        ),
        "the padding is on the query axis: no query may attend to padding, so it goes along the last axis": (
            partial(mask_reference, join=lambda causal, real: causal & real.mT)
        ),
        "later positions may be attended: only s <= t is allowed": partial(
            mask_reference, join=lambda causal, real: real.expand(-1, 1, len(causal), -1)
        ),
        # Later than the one above: without padding the two give the same, and there the words above are the safer ones.
        "one of the two conditions is enough here: both must hold (and, not or)": partial(
            mask_reference, join=torch.logical_or
        ),
        "the axis of the heads is missing: the shape is (B, 1, T, T)": partial(
            mask_reference, join=lambda causal, real: (causal & real)[:, 0]
        ),
    },
)


# --- residual connection and layer norm ----------------------------------------------------------------


def norm_reference(x, y, weight, bias, eps, **mistake):
    return norm(*wide([x + y, weight, bias]), eps=eps, **mistake)


def norm_cases(generator: torch.Generator) -> list[Case]:
    draw = partial(numbers, generator=generator)
    B, T, D = sizes(generator, 3, least=4, most=7)
    tiny, large = 1e-12, 0.5  # where eps is tiny its place makes no difference
    no_x, nothing = torch.zeros(B, T, D), torch.zeros(1, 2, 4)
    same = draw(1, T, 1).expand(1, T, D).clone()
    cube = torch.zeros(5, 5, 5), draw(5, 5, 5), draw(5), draw(5)
    four = 1 + draw(4), draw(4)  # weight and bias
    # whole numbers, of which each sum is exact, and so is the mean of four; their squares are not
    steps = torch.stack([torch.randperm(9, generator=generator)[:4] for _ in range(2)])[None].float()
    return [
        Case("norm", "two positions, x is zeros", (nothing, 1 + draw(1, 2, 4), *four, tiny)),
        Case("norm", "x is zeros, weight ones, bias zeros", (no_x, draw(B, T, D), torch.ones(D), torch.zeros(D), tiny)),
        Case("norm", "x is zeros, with a weight and a bias", (no_x, 1 + draw(B, T, D), draw(D), draw(D), tiny)),
        Case("norm", "B = T = D: no axis can be told by its size", (*cube, tiny)),
        Case("residual", "two positions", (draw(1, 2, 4), draw(1, 2, 4), *four, tiny)),
        Case("residual", "two positions, numbers around 10,000", (torch.full_like(steps, 1e4), steps, *four, tiny)),
        Case("residual", "a batch", (draw(B, T, D), draw(B, T, D), draw(D), draw(D), tiny)),
        Case("eps", "two positions, eps = 0.5", (nothing, draw(1, 2, 4), *four, large)),
        Case("eps", "eps = 0.5, a variance near 1", (no_x, draw(B, T, D), draw(D), draw(D), large)),
        Case("eps", "eps = 0.5, a variance near 0.01", (no_x, draw(B, T, D, scale=0.1), draw(D), draw(D), large)),
        Case("eps", "eps = 0.5, all entries of a row are equal", (no_x[:1], same, draw(D), draw(D), large)),
    ]


NORMS = sorted(
    {
        name.removeprefix("aten::").partition(".")[0]
        for name in torch._C._dispatch_get_all_op_names()
        if re.match("aten::.*(layer|batch|group|instance|rms)_norm", name) and "backward" not in name
    }
)
BY_HAND = (
    "a norm of PyTorch is used: write it out, with z = x + y, the mean and the variance of z over the last axis and "
    "weight * (z - mean) / sqrt(variance + eps) + bias"
)

add_and_norm = Part(
    "add_and_norm",
    {"norm": 4, "residual": 3, "eps": 3},
    norm_cases,
    norm_reference,
    {
        "the variance divides by D - 1, which is torch's default: divide by D (correction=0)": partial(
            norm_reference, correction=1
        ),
        "eps is outside the root: it is added to the variance, then comes the root": partial(
            norm_reference, outside=True
        ),
        "the mean and the variance run over the positions: take them over the last axis, D": partial(
            norm_reference, dim=1
        ),
        "x is added after the norm: add first, then take the norm of the sum": (
            lambda x, y, *rest: x + norm_reference(0 * x, y, *rest)
        ),
        "y is added after the norm: add first, then take the norm of the sum": (
            lambda x, y, *rest: y + norm_reference(x, 0 * y, *rest)
        ),
    },
    forbidden=dict.fromkeys([*NORMS, "F.normalize"], BY_HAND),
)


# --- three heads to read -------------------------------------------------------------------------------

LETTERS = 26


class ThreeHeads(nn.Module):
    """One layer of self-attention over the letters of a text, its weights set by hand.

    An embedding is a letter as one of 26 ones, beside the sinusoidal code of its position. Head 0 looks for the code
    of the position before, head 1 for its own letter, head 2 always for the code of position 0. Heads 0 and 1 pass on
    the letters that they read; head 2's values are zeros.
    """

    def __init__(self):
        super().__init__()
        Dh, D = LETTERS, 3 * LETTERS
        self.attention = MultiHeadAttention(D, n_heads=3)
        letter, place = torch.eye(D)[:Dh], torch.eye(D)[Dh : 2 * Dh]  # each (Dh, D); the slow half is not used
        angle = sinusoidal_frequencies(D - Dh)[: Dh // 2].float()
        back = torch.zeros(Dh, Dh)  # turns the code of a position into the code of the one before
        for i, a in enumerate(angle):
            cos, sin = a.cos(), a.sin()
            back[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = torch.stack([cos, -sin, sin, cos]).view(2, 2)
        start = sinusoidal(1, D - Dh)[0, :Dh]
        none = torch.zeros(Dh, D)
        sharp = 30.0  # makes the scores of what is looked for stand out
        rows = {
            "query": [sharp * back @ place, sharp * letter, none],
            "key": [place, letter, place],
            "value": [letter, letter, none],
        }
        with torch.no_grad():
            self.attention.qkv.weight.copy_(torch.cat([row for three in rows.values() for row in three]))
            self.attention.qkv.bias.zero_()
            self.attention.qkv.bias[2 * Dh : 3 * Dh] = sharp * start
            self.attention.out.weight.copy_(torch.eye(D))
            self.attention.out.bias.zero_()
        self.requires_grad_(False)

    def forward(self, text: str) -> Tensor:
        """A text of letters a to z -> (1, T, 78)."""
        if not text or set(text) - set("abcdefghijklmnopqrstuvwxyz"):
            raise ValueError(f"{text!r}: the encoder reads a text of the letters a to z, without spaces")
        letters = nn.functional.one_hot(torch.tensor([ord(letter) - ord("a") for letter in text]), LETTERS)
        x = torch.cat([letters, sinusoidal(len(text), 2 * LETTERS)], dim=-1)  # (T, 26), (T, 52) -> (T, 78)
        return self.attention(x[None])


PARTS = (masked_softmax, attention, multi_head_attention, add_positions, decoder_mask, add_and_norm)
WRITTEN = {"which_head": 12}
score = partial(show_score, PARTS, WRITTEN)
