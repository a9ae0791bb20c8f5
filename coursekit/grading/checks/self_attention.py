"""Checks of exercise 03: masked softmax, attention, several heads, positions, masks, layer norm, heads to read.

The references are written in NumPy, one row at a time, and share nothing with ``coursekit.nn``.

Legend: B sequences, H heads, T queries, S keys and values, D size of the model, Dh = D / H size of a head.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from coursekit.grading.checks.seq2seq_attention import judge_zeros, numbers, quotient, sizes, some_allowed, weights_with
from coursekit.grading.parts import Case, Part
from coursekit.grading.parts import score as show_score
from coursekit.nn.attention import MultiHeadAttention
from coursekit.nn.positions import frequencies, sinusoidal

# --- masked softmax ------------------------------------------------------------------------------------


def weigh(scores: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """The softmax of one row among the allowed entries; zeros where nothing is allowed."""
    weights, places = np.zeros(len(scores)), np.flatnonzero(allowed)
    if len(places):
        highest = max(scores[s] for s in places)
        for s in places:
            weights[s] = np.exp(scores[s] - highest)
        weights /= weights.sum()
    return weights


def softmax_reference(scores, mask):
    scores = np.asarray(scores, float)
    mask = np.broadcast_to(np.asarray(mask), scores.shape)
    weights = np.zeros(scores.shape)
    for row in np.ndindex(scores.shape[:-1]):
        weights[row] = weigh(scores[row], mask[row])
    return weights


def softmax_cases(generator: torch.Generator) -> list[Case]:
    draw, allow = partial(numbers, generator=generator), partial(some_allowed, generator=generator)
    everything = partial(torch.ones, dtype=torch.bool)
    B, T, S = sizes(generator, 3)
    one_row_empty, one_sequence_empty = allow(B, S), allow(B, 1, S)
    one_row_empty[int(torch.randint(B, (1,), generator=generator))] = False
    one_sequence_empty[int(torch.randint(B, (1,), generator=generator))] = False
    highest_masked = torch.tensor([[1000.0, 0.0, 1.0], [2.0, 1000.0, 0.0]])
    low = torch.tensor([[-1e10, -2e10, -2e10], [-3e10, -1e10, -3e10]])
    allowed = torch.tensor([[False, True, True], [True, False, True]])
    # One or two scores of 0 are allowed in each row: every way to compute a softmax gives exactly 1 or 1/2, even in
    # float16, where three numbers are hardly right.
    few = torch.rand(B, S, generator=generator).argsort(dim=-1) < torch.randint(1, 3, (B, 1), generator=generator)
    half = draw(B, S).masked_fill(few, 0).half()
    return [
        Case("softmax", "nothing is masked", (draw(B, S), everything(B, S))),
        Case("softmax", "nothing is masked, as many rows as columns", (draw(4, 4), everything(4, 4))),
        Case("mask", "some positions are masked", (draw(B, S), allow(B, S))),
        Case("mask", "scores (B, T, S), mask (B, 1, S)", (draw(B, T, S, scale=2), allow(B, 1, S))),
        Case("mask", "all scores are negative", (-5 - draw(B, S).abs(), allow(B, S))),
        Case("empty rows", "one row has nothing that is allowed", (draw(B, S), one_row_empty)),
        Case("empty rows", "one sequence is nothing but padding, mask (B, 1, S)", (draw(B, T, S), one_sequence_empty)),
        Case("extreme scores", "scores around 1,000", (1000 + draw(B, S), allow(B, S))),
        Case("extreme scores", "the highest score is masked", (highest_masked + draw(2, 3), allowed)),
        Case("extreme scores", "scores below -10,000,000,000", (low, allowed)),
        Case("extreme scores", "scores of type float16", (half, few)),
    ]


def zeros_for_nan(weights: Tensor) -> Tensor:
    return weights.nan_to_num(0)


def minus_logsumexp(scores: Tensor, mask: Tensor) -> Tensor:
    scores = scores.masked_fill(~mask, -torch.inf)
    return zeros_for_nan((scores - scores.logsumexp(dim=-1, keepdim=True)).exp())


masked_softmax = Part(
    "masked_softmax",
    {"softmax": 3, "mask": 4, "empty rows": 4, "extreme scores": 3},
    softmax_cases,
    softmax_reference,
    {
        "a row with nothing allowed became nan: a softmax of nothing but -inf is 0 / 0; give such rows zeros": (
            weights_with(lambda s, m: s.masked_fill(~m, -torch.inf))
        ),
        "a row with nothing allowed got equal weights, as if all were allowed: give such rows zeros": weights_with(
            lambda s, m: s.masked_fill(~m, torch.finfo(s.dtype).min)
        ),
        "masked positions get weight where all scores are low, and in float16 such a number does not even exist: "
        "fill with -inf, not with a large number": weights_with(lambda s, m: s.masked_fill(~m, -1e9)),
        "the mask is upside down: True means that a position may be attended": lambda scores, mask: zeros_for_nan(
            weights_with(lambda s, m: s.masked_fill(m, -torch.inf))(scores, mask)
        ),
        "the mask is not used": weights_with(lambda s, m: s),
        "a masked score of 0 still gets weight, because exp(0) = 1: fill with -inf": weights_with(lambda s, m: s * m),
        "the highest score is a masked one, and beside it the allowed ones vanish: mask first, then find the maximum": (
            lambda scores, mask: zeros_for_nan(quotient((scores - scores.amax(dim=-1, keepdim=True)).exp(), mask))
        ),
        "the weights of a row no longer sum to 1: mask the scores before the softmax, not the weights after it": (
            lambda scores, mask: weights_with(lambda s, m: s)(scores, mask) * mask
        ),
        "the softmax runs over the wrong axis: each row, the last axis, sums to 1": lambda scores, mask: zeros_for_nan(
            scores.masked_fill(~mask, -torch.inf).softmax(dim=-2)
        ),
        "exp overflows for large scores: subtract the highest allowed score of each row first, or fill with -inf "
        "and let torch.softmax do it": lambda scores, mask: quotient(scores.exp(), mask),
        "a large score minus logsumexp has lost its digits: subtract the highest allowed score first": minus_logsumexp,
    },
    judge_zeros,
)


# --- one head ------------------------------------------------------------------------------------------


def attention_reference(query, key, value, mask=None):
    query, key, value = (np.asarray(x, float) for x in (query, key, value))
    B, T, S = len(query), query.shape[1], key.shape[1]
    allowed = np.broadcast_to(True if mask is None else np.asarray(mask), (B, T, S))
    output, weights = np.zeros((B, T, value.shape[-1])), np.zeros((B, T, S))
    for b in range(B):
        for t in range(T):
            scores = np.array([np.dot(query[b, t], key[b, s]) / np.sqrt(query.shape[-1]) for s in range(S)])
            weights[b, t] = weigh(scores, allowed[b, t])
            for s in range(S):
                output[b, t] += weights[b, t, s] * value[b, s]
    return output, weights


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
    ]


def scaled_scores(query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
    scores = query @ key.mT / query.shape[-1] ** 0.5
    return scores if mask is None else scores.masked_fill(~mask, -torch.inf)


def attention_with(weights_of: Callable[[Tensor, Tensor, Tensor | None], Tensor]):
    """Attention with another way to the weights."""

    def mistake(query, key, value, mask=None):
        weights = weights_of(query, key, mask)
        return weights @ value, weights

    return mistake


def mask_afterwards(query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
    return scaled_scores(query, key, None).softmax(dim=-1) * (1 if mask is None else mask)


attention = Part(
    "attention",
    {"weights": 5, "output": 5, "mask": 4},
    attention_cases,
    attention_reference,
    {
        "the scores are not divided by the square root of Dh": (
            lambda query, key, value, mask=None: attention_reference(query * query.shape[-1] ** 0.5, key, value, mask)
        ),
        "the scores are divided by Dh: divide by its square root": (
            lambda query, key, value, mask=None: attention_reference(query / query.shape[-1] ** 0.5, key, value, mask)
        ),
        "the scores are divided by the square root of S: Dh, the size of a query, is what counts": (
            lambda query, key, value, mask=None: attention_reference(
                query * (query.shape[-1] / key.shape[-2]) ** 0.5, key, value, mask
            )
        ),
        "the scores are divided by the square root of Dv: Dh, the size of a query, is what counts": (
            lambda query, key, value, mask=None: attention_reference(
                query * (query.shape[-1] / value.shape[-1]) ** 0.5, key, value, mask
            )
        ),
        "the softmax runs over the queries: each query's weights, the last axis, sum to 1": attention_with(
            lambda query, key, mask: scaled_scores(query, key, mask).softmax(dim=-2)
        ),
        "masked after the softmax: the weights of a row no longer sum to 1": attention_with(mask_afterwards),
        "the mask is upside down: True means that a position may be attended": (
            lambda query, key, value, mask=None: attention_reference(query, key, value, None if mask is None else ~mask)
        ),
        "the mask is not used": lambda query, key, value, mask=None: attention_reference(query, key, value),
        "the mask is on the wrong axis: its rows, (.., T, ..), are the queries, its columns, (.., S), the keys": (
            lambda query, key, value, mask=None: attention_reference(
                query, key, value, None if mask is None else mask.mT
            )
        ),
        "these are the scores: return the weights": attention_with(scaled_scores),
        "the keys are added up: the weights belong to the values": (
            lambda query, key, value, mask=None: attention_reference(query, key, key, mask)
        ),
        "the two results are in the wrong order: first the output, then the weights": (
            lambda query, key, value, mask=None: attention_reference(query, key, value, mask)[::-1]
        ),
    },
)


# --- several heads -------------------------------------------------------------------------------------


def heads_reference(x, mask, n_heads, qkv_weight, qkv_bias, out_weight, out_bias):
    x, W, b = (np.asarray(a, float) for a in (x, qkv_weight, qkv_bias))
    B, T, D = x.shape
    Dh = D // n_heads
    allowed = np.broadcast_to(True if mask is None else np.asarray(mask), (B, n_heads, T, T))
    joined = np.zeros((B, T, D))
    for h in range(n_heads):
        first = h * Dh
        rows = [slice(part * D + first, part * D + first + Dh) for part in range(3)]
        query, key, value = (x @ W[r].T + b[r] for r in rows)
        joined[:, :, first : first + Dh] = attention_reference(query, key, value, allowed[:, h])[0]
    return joined @ np.asarray(out_weight, float).T + np.asarray(out_bias, float)


def heads_cases(generator: torch.Generator) -> list[Case]:
    draw, allow = partial(numbers, generator=generator), partial(some_allowed, generator=generator)

    def case(aspect, about, B, T, n_heads, D, mask=None):
        shapes = (3 * D, D), (3 * D,), (D, D), (D,)
        weights = [draw(*shape, scale=0.3) for shape in shapes]  # the biases too: zeros would hide what forgets them
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
    ]


def apart(x: Tensor, n_heads: int) -> Tensor:
    """(B, T, H Dh) -> (B, H, T, Dh)."""
    return x.unflatten(-1, (n_heads, -1)).transpose(1, 2)


def thirds(qkv: Tensor, n_heads: int, order=(0, 1, 2)) -> list[Tensor]:
    parts = qkv.chunk(3, dim=-1)
    return [apart(parts[i], n_heads) for i in order]


def together(heads: Tensor) -> Tensor:
    """(B, H, T, Dh) -> (B, T, H Dh)."""
    return heads.transpose(1, 2).flatten(2)


def scaled_weights(query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
    return scaled_scores(query, key, mask).softmax(dim=-1)


def heads_with(cut=thirds, weigh=scaled_weights, join=together, last=lambda joined, W, b: joined @ W.T + b):
    """Multi-head attention with another way to the queries, keys and values, or to what comes later."""

    def mistake(x, mask, n_heads, qkv_weight, qkv_bias, out_weight, out_bias):
        query, key, value = cut(x @ qkv_weight.T + qkv_bias, n_heads)
        return last(join(weigh(query, key, mask) @ value), out_weight, out_bias)

    return mistake


def rescaled(factor: Callable[[int, int], float]):
    """Another factor in place of 1 / sqrt(Dh), from H and Dh."""

    def weigh(query, key, mask):
        H, Dh = query.shape[1], query.shape[3]
        return scaled_weights(query * factor(H, Dh) * Dh**0.5, key, mask)

    return heads_with(weigh=weigh)


def viewed(x: Tensor, n_heads: int) -> Tensor:
    return x.reshape(len(x), n_heads, x.shape[1], -1)


ORDERS = {
    "key, query, value": (1, 0, 2),
    "query, value, key": (0, 2, 1),
    "value, key, query": (2, 1, 0),
    "key, value, query": (2, 0, 1),
    "value, query, key": (1, 2, 0),
}

multi_head_attention = Part(
    "multi_head_attention",
    {"one head": 6, "several heads": 12, "mask": 6},
    heads_cases,
    heads_reference,
    {
        "the heads are cut by a view alone, which mixes positions and heads: make it (B, T, H, Dh) first, then swap "
        "the axes T and H": heads_with(lambda qkv, H: [viewed(x, H) for x in qkv.chunk(3, dim=-1)]),
        "the heads are joined without swapping the axes back, which mixes positions and heads: (B, H, T, Dh) becomes "
        "(B, T, H, Dh), then (B, T, D)": heads_with(
            join=lambda heads: heads.reshape(len(heads), heads.shape[2], -1),
        ),
        "the scores are divided by the square root of D: a head's queries have only Dh = D / H entries": rescaled(
            lambda H, Dh: (H * Dh) ** -0.5
        ),
        "the scores are not divided by the square root of Dh": rescaled(lambda H, Dh: 1.0),
        **{
            f"the three parts of qkv are taken as {names}: they are query, key, value": heads_with(
                partial(thirds, order=order)
            )
            for names, order in ORDERS.items()
        },
        "qkv is cut into heads first, and each head into three: cut it into query, key and value first": heads_with(
            lambda qkv, H: apart(qkv, H).chunk(3, dim=-1)
        ),
        "the heads take turns, entry by entry: head 0 has the first Dh entries, head 1 the next": heads_with(
            lambda qkv, H: [x.unflatten(-1, (-1, H)).permute(0, 3, 1, 2) for x in qkv.chunk(3, dim=-1)]
        ),
        "there is only one head: cut D into H parts, and let each attend by itself": (
            lambda x, mask, H, *weights: heads_reference(x, mask, 1, *weights)
        ),
        "the output projection is missing: apply self.out to the joined heads": heads_with(
            last=lambda joined, W, b: joined
        ),
        "the bias of the output projection is missing: call self.out, which adds it": heads_with(
            last=lambda joined, W, b: joined @ W.T
        ),
        "the bias of qkv is missing: call self.qkv, which adds it": (
            lambda x, mask, H, W, b, *out: heads_with()(x, mask, H, W, torch.zeros_like(b), *out)
        ),
        "x is added to the result: that is the residual connection, which comes later": (
            lambda x, *rest: x + heads_with()(x, *rest)
        ),
        "the softmax runs over the queries: each query's weights, the last axis, sum to 1": heads_with(
            weigh=lambda query, key, mask: scaled_scores(query, key, mask).softmax(dim=-2)
        ),
        "masked after the softmax: the weights of a row no longer sum to 1": heads_with(weigh=mask_afterwards),
        "the mask is upside down: True means that a position may be attended": (
            lambda x, mask, *rest: heads_reference(x, None if mask is None else ~mask, *rest)
        ),
        "the mask is not used": lambda x, mask, *rest: heads_reference(x, None, *rest),
        "the mask is on the wrong axis: its rows are the queries, its columns the keys": (
            lambda x, mask, *rest: heads_with()(x, None if mask is None else mask.mT, *rest)
        ),
    },
)


# --- positions -----------------------------------------------------------------------------------------


def positions_reference(x):
    x = np.asarray(x, float)
    _, T, D = x.shape
    result = x.copy()
    for t in range(T):
        for i in range(D // 2):
            angle = t / 10000 ** (2 * i / D)
            result[:, t, 2 * i] += np.sin(angle)
            result[:, t, 2 * i + 1] += np.cos(angle)
    return result


def positions_cases(generator: torch.Generator) -> list[Case]:
    draw = partial(numbers, generator=generator)
    B, T, half = sizes(generator, 3)
    D = 2 * half
    return [
        Case("code", "one sequence of zeros, so that only the code is left", (torch.zeros(1, 3, 4),)),
        Case("code", "a longer sequence of zeros", (torch.zeros(1, 5 * T, D),)),
        Case("added", "one short sequence", (draw(1, 3, 4),)),
        Case("added", "one sequence", (draw(1, T, D),)),
        Case("added", "a batch", (draw(B, T, D),)),
        Case("added", "B = T = D: no axis can be told by its size", (draw(6, 6, 6),)),
    ]


def angles(T: int, D: int, exponents: Tensor | None = None, start: int = 0) -> Tensor:
    """(T, D / 2), in radians."""
    w = frequencies(D) if exponents is None else 10_000.0 ** -exponents.double()
    return torch.arange(start, start + T)[:, None] * w


def coded(code: Callable[[int, int], Tensor]):
    """Embeddings with another code, (T, D), added."""
    return lambda x: x + code(*x.shape[1:])


def in_turn(even: Tensor, odd: Tensor) -> Tensor:
    return torch.stack([even, odd], dim=-1).flatten(1)


def sine_cosine(a: Tensor) -> Tensor:
    return in_turn(a.sin(), a.cos())


add_positions = Part(
    "add_positions",
    {"code": 7, "added": 6},
    positions_cases,
    positions_reference,
    {
        "the positions run over the batch: every sequence has them, along its own axis T": (
            lambda x: x + sinusoidal(len(x), x.shape[2])[:, None]
        ),
        "all sines come first, then all cosines: entries 0, 2, 4, … are sines, 1, 3, 5, … cosines": coded(
            lambda T, D: torch.cat([angles(T, D).sin(), angles(T, D).cos()], dim=-1)
        ),
        "the exponent is i / D: it is 2i / D": coded(
            lambda T, D: sine_cosine(angles(T, D, torch.arange(D // 2).double() / D))
        ),
        "the exponent is twice too large: if i counts 0, 2, 4, … it is 2i already": coded(
            lambda T, D: sine_cosine(angles(T, D, 2 * torch.arange(0, D, 2).double() / D))
        ),
        "t is multiplied by 10000^(2i/D): divide by it": coded(
            lambda T, D: sine_cosine(torch.arange(T)[:, None] / frequencies(D))
        ),
        "each entry has a frequency of its own: a sine and the cosine after it share one": coded(
            lambda T, D: torch.where(
                torch.arange(D) % 2 == 0,
                angles(T, D, torch.arange(D).double() / D).sin(),
                angles(T, D, torch.arange(D).double() / D).cos(),
            )
        ),
        "sine and cosine have changed places: entry 2i is the sine": coded(
            lambda T, D: in_turn(angles(T, D).cos(), angles(T, D).sin())
        ),
        "the positions begin at 1: the first one is 0": coded(lambda T, D: sine_cosine(angles(T, D, start=1))),
        "the angle is in degrees: torch.sin wants radians, as they are": coded(
            lambda T, D: sine_cosine(angles(T, D).deg2rad())
        ),
        "this is the code alone: add it to x": lambda x: torch.zeros_like(x) + sinusoidal(*x.shape[1:]),
        "x is multiplied by the code: add it": lambda x: x * sinusoidal(*x.shape[1:]),
        "x is multiplied by the square root of D: the paper does that to its embeddings, here x is added as it is": (
            lambda x: x * x.shape[-1] ** 0.5 + sinusoidal(*x.shape[1:])
        ),
    },
)


# --- masks ---------------------------------------------------------------------------------------------


def mask_reference(real):
    real = np.asarray(real)
    B, T = real.shape
    mask = np.zeros((B, 1, T, T), bool)
    for b in range(B):
        for t in range(T):
            for s in range(t + 1):
                mask[b, 0, t, s] = real[b, s]
    return mask


def mask_cases(generator: torch.Generator) -> list[Case]:
    B, T = sizes(generator, 2)
    place = torch.arange(T)
    lengths = torch.randint(1, T, (B, 1), generator=generator)
    return [
        Case("causal", "one sequence of three real tokens", (torch.ones(1, 3, dtype=torch.bool),)),
        Case("causal", "a batch without padding", (torch.ones(B, T, dtype=torch.bool),)),
        Case("padding", "three tokens, the first is padding", (torch.tensor([[False, True, True]]),)),
        Case("padding", "three tokens, the last is padding", (torch.tensor([[True, True, False]]),)),
        Case("padding", "a batch, padding on the right", (place < lengths,)),
        Case("padding", "a batch, padding on the left", (place >= T - lengths,)),
        Case("padding", "B = T: no axis can be told by its size", (some_allowed(4, 4, generator=generator),)),
    ]


def mask_with(combine: Callable[[Tensor, Tensor], Tensor]):
    """A mask made from the causal one, (T, T), and from ``real``, (B, T)."""

    def mistake(real):
        causal = torch.ones(real.shape[1], real.shape[1], dtype=torch.bool).tril()
        return combine(causal, real)

    return mistake


decoder_mask = Part(
    "decoder_mask",
    {"causal": 6, "padding": 7},
    mask_cases,
    mask_reference,
    {
        "the causal mask is turned round: a query sees what comes later, and nothing before it (tril, not triu)": (
            mask_with(lambda causal, real: causal.T & real[:, None, None])
        ),
        "a position may not attend to itself: s = t is allowed": mask_with(
            lambda causal, real: causal.tril(-1) & real[:, None, None]
        ),
        "the mask is upside down: True means that a position may be attended": mask_with(
            lambda causal, real: ~(causal & real[:, None, None])
        ),
        "this is the upper triangle: PyTorch's own module means by True 'forbidden', this course 'may be attended'": (
            mask_with(lambda causal, real: ~causal & real[:, None, None])
        ),
        "queries that are padding may attend to nothing here: what counts is only whether position s is real": (
            mask_with(lambda causal, real: causal & real[:, None, None] & real[:, None, :, None])
        ),
        "the padding is on the query axis: no query may attend to padding, so it goes along the last axis": mask_with(
            lambda causal, real: causal & real[:, None, :, None]
        ),
        "padding may be attended: what is not real must be False": mask_with(
            lambda causal, real: causal.expand(len(real), 1, -1, -1)
        ),
        "later positions may be attended: only s <= t is allowed": mask_with(
            lambda causal, real: real[:, None, None].expand(-1, 1, len(causal), -1)
        ),
        # Later than the one above: without padding the two give the same, and there the words above are the safer ones.
        "one of the two conditions is enough here: both must hold (and, not or)": mask_with(
            lambda causal, real: causal | real[:, None, None]
        ),
        "the axis of the heads is missing: the shape is (B, 1, T, T)": mask_with(
            lambda causal, real: causal & real[:, None]
        ),
    },
)


# --- residual connection and layer norm ----------------------------------------------------------------


def norm_reference(x, y, weight, bias, eps):
    x, y, weight, bias = (np.asarray(a, float) for a in (x, y, weight, bias))
    z = x + y
    result = np.zeros(z.shape)
    for row in np.ndindex(z.shape[:-1]):
        mean = sum(z[row]) / len(z[row])
        variance = sum((entry - mean) ** 2 for entry in z[row]) / len(z[row])
        result[row] = weight * (z[row] - mean) / np.sqrt(variance + eps) + bias
    return result


def norm_cases(generator: torch.Generator) -> list[Case]:
    draw = partial(numbers, generator=generator)
    B, T, D = sizes(generator, 3, least=4, most=7)
    tiny, large = 1e-12, 0.5  # where eps is tiny its place makes no difference
    no_x, nothing = torch.zeros(B, T, D), torch.zeros(1, 2, 4)
    same = draw(1, T, 1).expand(1, T, D).clone()
    cube = torch.zeros(5, 5, 5), draw(5, 5, 5), draw(5), draw(5)
    four = 1 + draw(4), draw(4)  # weight and bias
    return [
        Case("norm", "two positions, x is zeros", (nothing, 1 + draw(1, 2, 4), *four, tiny)),
        Case("norm", "x is zeros, weight ones, bias zeros", (no_x, draw(B, T, D), torch.ones(D), torch.zeros(D), tiny)),
        Case("norm", "x is zeros, with a weight and a bias", (no_x, 1 + draw(B, T, D), draw(D), draw(D), tiny)),
        Case("norm", "B = T = D: no axis can be told by its size", (*cube, tiny)),
        Case("residual", "two positions", (draw(1, 2, 4), draw(1, 2, 4), *four, tiny)),
        Case("residual", "a batch", (draw(B, T, D), draw(B, T, D), draw(D), draw(D), tiny)),
        Case("eps", "two positions, eps = 0.5", (nothing, draw(1, 2, 4), *four, large)),
        Case("eps", "eps = 0.5, a variance near 1", (no_x, draw(B, T, D), draw(D), draw(D), large)),
        Case("eps", "eps = 0.5, a variance near 0.01", (no_x, draw(B, T, D, scale=0.1), draw(D), draw(D), large)),
        Case("eps", "eps = 0.5, all entries of a row are equal", (no_x[:1], same, draw(D), draw(D), large)),
    ]


def normed(z: Tensor, weight, bias, eps, dims=(-1,), root=lambda variance, eps: (variance + eps).sqrt(), correction=0):
    z = z.double()
    mean, variance = z.mean(dims, keepdim=True), z.var(dims, keepdim=True, correction=correction)
    return weight * (z - mean) / root(variance, eps) + bias


def norm_with(**other):
    """The layer norm of x + y with something else in it."""
    return lambda x, y, weight, bias, eps: normed(x + y, weight, bias, eps, **other)


NORMS = ("layer_norm", "group_norm", "batch_norm", "instance_norm", "rms_norm")
NORMS += tuple(f"native_{name}" for name in NORMS[:3])
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
        "the variance divides by D - 1, which is torch's default: divide by D (correction=0)": norm_with(correction=1),
        "eps is outside the root: it is added to the variance, then comes the root": norm_with(
            root=lambda variance, eps: variance.sqrt() + eps
        ),
        "the variance divides by D - 1, and eps is outside the root": norm_with(
            root=lambda variance, eps: variance.sqrt() + eps, correction=1
        ),
        "eps is not used": norm_with(root=lambda variance, eps: variance.sqrt()),
        "the root is missing: divide by the standard deviation, not by the variance": norm_with(
            root=lambda variance, eps: variance + eps
        ),
        "the mean and the variance run over the positions: take them over the last axis, D": norm_with(dims=(1,)),
        "the mean and the variance run over the batch, as in batch norm: take them over the last axis, D": norm_with(
            dims=(0,)
        ),
        "the mean and the variance run over all positions of a sequence: each position has its own, over D alone": (
            norm_with(dims=(1, 2))
        ),
        "the mean and the variance are those of all numbers together: each position has its own, over D alone": (
            norm_with(dims=(0, 1, 2))
        ),
        "x is forgotten: the norm is of x + y": lambda x, y, *rest: normed(y, *rest),
        "y is forgotten: the norm is of x + y": lambda x, y, *rest: normed(x, *rest),
        "x is added after the norm: add first, then take the norm of the sum": lambda x, y, *rest: x + normed(y, *rest),
        "y is added after the norm: add first, then take the norm of the sum": lambda x, y, *rest: y + normed(x, *rest),
        "weight and bias have changed places: weight multiplies, bias is added": (
            lambda x, y, weight, bias, eps: normed(x + y, bias, weight, eps)
        ),
        "weight and bias are not used": lambda x, y, weight, bias, eps: normed(x + y, 1, 0, eps),
        "weight is not used": lambda x, y, weight, bias, eps: normed(x + y, 1, bias, eps),
        "bias is not used": lambda x, y, weight, bias, eps: normed(x + y, weight, 0, eps),
        "bias is added before weight multiplies: first times weight, then plus bias": (
            lambda x, y, weight, bias, eps: weight * normed(x + y, 1, bias, eps)
        ),
        "the mean is not subtracted": lambda x, y, weight, bias, eps: (
            weight * (x + y) / ((x + y).double().var(-1, keepdim=True, correction=0) + eps).sqrt() + bias
        ),
    },
    forbidden=dict.fromkeys(NORMS, BY_HAND),
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
        angle = frequencies(D - Dh)[: Dh // 2].float()
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
