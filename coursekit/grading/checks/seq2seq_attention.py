"""Checks of exercise 02: scores, masked softmax, one decoding step, the data, a trained model.

The references are written in NumPy, one number at a time, and share nothing with ``coursekit.nn``.

Legend: B sequences, S source positions, D size of a query, K size of a key.
"""

from dataclasses import replace
from functools import partial

import numpy as np
import torch

from coursekit.data.reversal import reversal
from coursekit.grading.calls import Seed
from coursekit.grading.parts import Case, Part, put_into, results, values
from coursekit.grading.parts import score as show_score
from coursekit.models.seq2seq import Seq2Seq, Seq2SeqConfig


def numbers(*shape: int, generator: torch.Generator, scale: float = 1.0) -> torch.Tensor:
    return scale * torch.randn(shape, generator=generator)


def softmax(scores: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """One row of scores, the reference way; weights 0 where not allowed."""
    weights = np.zeros(len(scores))
    highest = max(s for s, ok in zip(scores, allowed) if ok)
    for i in range(len(scores)):
        if allowed[i]:
            weights[i] = np.exp(float(scores[i]) - float(highest))
    return weights / weights.sum()


# --- scores --------------------------------------------------------------------------------------------


def luong_reference(query, keys, W=None):
    query, keys = np.asarray(query, float), np.asarray(keys, float)
    scores = np.zeros(keys.shape[:2])
    for b in range(keys.shape[0]):
        for s in range(keys.shape[1]):
            key = keys[b, s] if W is None else np.asarray(W, float) @ keys[b, s]
            scores[b, s] = sum(q * k for q, k in zip(query[b], key))
    return scores


def sizes(generator: torch.Generator, number: int, least: int = 3, most: int = 6) -> list[int]:
    """Different sizes, so that no axis can be taken for another."""
    return (least + torch.randperm(most - least + 1, generator=generator)[:number]).tolist()


def luong_cases(generator: torch.Generator) -> list[Case]:
    draw = partial(numbers, generator=generator)
    B, S, D, K = sizes(generator, 4)
    return [
        Case("dot", "one query, and three keys that are unit vectors", (draw(1, 3), torch.eye(3)[None])),
        Case("dot", "a batch", (draw(B, D), draw(B, S, D))),
        Case("dot", "B = S = D: no axis can be told by its size", (draw(4, 4), draw(4, 4, 4))),
        Case("general", "keys of another size than the query", (draw(B, D), draw(B, S, K), draw(D, K))),
        Case("general", "query and keys of the same size, W not symmetric", (draw(B, D), draw(B, S, D), draw(D, D))),
    ]


def row_softmax(scores: np.ndarray) -> np.ndarray:
    return np.stack([softmax(row, np.ones(len(row), bool)) for row in scores])


def cosine(query, keys, W=None):
    keys = keys if W is None else keys @ W.T
    return luong_reference(query / query.norm(dim=-1, keepdim=True), keys / keys.norm(dim=-1, keepdim=True))


luong_score = Part(
    "luong_score",
    {"dot": 7, "general": 8},
    luong_cases,
    luong_reference,
    {
        "divided by the square root of D: that belongs to the Transformer, Luong's scores are not scaled": (
            lambda query, keys, W=None: luong_reference(query, keys, W) / query.shape[-1] ** 0.5
        ),
        "these are weights already: return the scores, the softmax comes later": (
            lambda query, keys, W=None: row_softmax(luong_reference(query, keys, W))
        ),
        "a mean over the entries: the dot product is their sum": (
            lambda query, keys, W=None: luong_reference(query, keys, W) / query.shape[-1]
        ),
        "W is transposed: the formula is q · (W k), so W multiplies the key": (
            lambda query, keys, W=None: luong_reference(query, keys, W.T)
        ),
        "W is not used": lambda query, keys, W=None: luong_reference(query, keys),
        "the vectors are scaled to length 1: that is the cosine, not the dot product": cosine,
    },
)


def additive_reference(query, keys, W, U, v):
    query, keys, W, U, v = (np.asarray(x, float) for x in (query, keys, W, U, v))
    scores = np.zeros(keys.shape[:2])
    for b in range(keys.shape[0]):
        for s in range(keys.shape[1]):
            hidden = np.tanh(W @ query[b] + U @ keys[b, s])
            scores[b, s] = (v * hidden).sum()
    return scores


def additive_cases(generator: torch.Generator) -> list[Case]:
    draw, zero = partial(numbers, generator=generator), torch.zeros
    B, S, D, K = sizes(generator, 4)
    W, U, v = draw(D, D), draw(D, K), draw(D)
    square = draw(D, D), draw(D, D), draw(D)
    return [
        Case("formula", "a query of zeros: only U and the keys count", (zero(1, D), draw(1, S, K), W, U, v)),
        Case("formula", "keys of zeros: only W and the query count", (draw(1, D), zero(1, S, K), W, U, v)),
        Case("formula", "both at once", (draw(1, D), draw(1, S, K), W, U, v)),
        Case("formula", "query and keys of the same size", (draw(1, D), draw(1, S, D), *square)),
        Case("batch", "a batch", (draw(B, D), draw(B, S, K), W, U, v)),
        Case("batch", "B = S: no axis can be told by its size", (draw(S, D), draw(S, S, K), W, U, v)),
    ]


def additive_with(hidden, last=lambda scores: scores):
    """The additive score with another inner function of W q and U k, and something done to the scores."""

    def mistake(query, keys, W, U, v):
        query, keys, W, U, v = (np.asarray(x, float) for x in (query, keys, W, U, v))
        return last(hidden((query @ W.T)[:, None], keys @ U.T) @ v)

    return mistake


def swapped(query, keys, W, U, v):
    return additive_reference(query, keys, U, W, v)


def query_meets_position(query, keys, W, U, v):
    """Query b meets position b."""
    query, keys, W, U, v = (np.asarray(x, float) for x in (query, keys, W, U, v))
    return np.tanh((query @ W.T)[None] + keys @ U.T) @ v


additive_score = Part(
    "additive_score",
    {"formula": 6, "batch": 4},
    additive_cases,
    additive_reference,
    {
        "the tanh is missing": additive_with(lambda q, k: q + k),
        "tanh is taken of each part: take it once, of the sum W q + U k": additive_with(
            lambda q, k: np.tanh(q) + np.tanh(k)
        ),
        "a relu where the formula has tanh": additive_with(lambda q, k: np.maximum(q + k, 0)),
        "v is not used: multiply by it before you add up": (
            lambda query, keys, W, U, v: additive_reference(query, keys, W, U, np.ones(len(v)))
        ),
        "tanh comes last here: it belongs inside, before v": additive_with(lambda q, k: q + k, np.tanh),
        "these are weights already: return the scores, the softmax comes later": additive_with(
            lambda q, k: np.tanh(q + k), row_softmax
        ),
        "W and U are swapped: W belongs to the query, U to the keys": swapped,
        "W is transposed: the entries of W q are query @ W.T": (
            lambda query, keys, W, U, v: additive_reference(query, keys, W.T, U, v)
        ),
        "U is transposed: the entries of U k are keys @ U.T": (
            lambda query, keys, W, U, v: additive_reference(query, keys, W, U.T, v)
        ),
        "query number b met position number b: give the query an axis for the positions": query_meets_position,
    },
)


# --- masked softmax ------------------------------------------------------------------------------------


def softmax_reference(scores, mask):
    scores, mask = np.asarray(scores), np.broadcast_to(np.asarray(mask), np.asarray(scores).shape)
    rows = [softmax(s, m) for s, m in zip(scores.reshape(-1, scores.shape[-1]), mask.reshape(-1, scores.shape[-1]))]
    return np.stack(rows).reshape(scores.shape)


def some_allowed(*shape: int, generator: torch.Generator) -> torch.Tensor:
    """A mask with at least two True and one False in each row (of at least three)."""
    order = torch.rand(shape, generator=generator).argsort(dim=-1)
    kept = torch.randint(2, shape[-1], (*shape[:-1], 1), generator=generator)
    return order < kept


def softmax_cases(generator: torch.Generator) -> list[Case]:
    draw, allow = partial(numbers, generator=generator), partial(some_allowed, generator=generator)
    B, T, S = sizes(generator, 3)
    everything = partial(torch.ones, dtype=torch.bool)
    highest_masked = torch.tensor([[1000.0, 0.0, 1.0], [2.0, 1000.0, 0.0]])
    low = torch.tensor([[-1e10, -2e10, -2e10], [-3e10, -1e10, -3e10]])
    allowed = torch.tensor([[False, True, True], [True, False, True]])
    return [
        Case("softmax", "nothing is masked", (draw(B, S), everything(B, S))),
        Case("softmax", "nothing is masked, as many rows as columns", (draw(4, 4), everything(4, 4))),
        Case("mask", "some positions are masked", (draw(B, S), allow(B, S))),
        Case("mask", "scores (B, T, S), mask (B, 1, S)", (draw(B, T, S, scale=2), allow(B, 1, S))),
        Case("mask", "all scores are negative", (-5 - draw(B, S).abs(), allow(B, S))),
        Case("large scores", "scores around 1,000", (1000 + draw(B, S), allow(B, S))),
        Case("large scores", "the highest score is masked", (highest_masked + draw(2, 3), allowed)),
        Case("large scores", "scores below -10,000,000,000", (low, allowed)),
    ]


def weights_with(change):
    """A softmax of ``change(scores, mask)`` over the last axis, without a mask."""

    def mistake(scores, mask):
        return torch.softmax(change(scores, mask.expand_as(scores)), dim=-1)

    return mistake


def quotient(e, mask):
    e = e * mask
    return e / e.sum(dim=-1, keepdim=True)


def judge_zeros(case: Case, answers) -> str | None:
    scores, mask = case.arguments
    if (answers[-1]["value"][~mask.expand_as(scores).numpy()] != 0).any():
        return "a masked position has a small weight: it must be exactly 0"
    return None


masked_softmax = Part(
    "masked_softmax",
    {"softmax": 4, "mask": 7, "large scores": 4},
    softmax_cases,
    softmax_reference,
    {
        "masked positions get weight where all scores are low: fill with -inf, not with a large number": weights_with(
            lambda s, m: s.masked_fill(~m, -1e9)
        ),
        "the mask is upside down: True means that a position may be attended": weights_with(
            lambda s, m: s.masked_fill(m, -torch.inf)
        ),
        "the mask is not used": weights_with(lambda s, m: s),
        "a masked score of 0 still gets weight, because exp(0) = 1: fill with -inf": weights_with(lambda s, m: s * m),
        "the weights of a row no longer sum to 1: mask the scores before the softmax, not the weights after it": (
            lambda scores, mask: weights_with(lambda s, m: s)(scores, mask) * mask
        ),
        "the softmax runs over the wrong axis: each row, the last axis, sums to 1": lambda scores, mask: (
            scores.masked_fill(~mask, -torch.inf).softmax(dim=-2)
        ),
        "the highest score is a masked one, and beside it the allowed ones vanish: mask first, then find the maximum": (
            lambda scores, mask: quotient((scores - scores.amax(dim=-1, keepdim=True)).exp(), mask)
        ),
        "exp overflows for large scores: subtract the highest allowed score of each row first, or fill with -inf "
        "and let torch.softmax do it": lambda scores, mask: quotient(scores.exp(), mask),
    },
    judge_zeros,
)


# --- one decoding step ---------------------------------------------------------------------------------


def step_with(combine=lambda c, h, W: np.tanh(W @ np.concatenate([c, h])), weigh=softmax):
    """One step of Luong's decoder in NumPy, with places for mistakes."""

    def step(h, states, mask, W_c):
        h, states, mask, W_c = np.asarray(h, float), np.asarray(states, float), np.asarray(mask), np.asarray(W_c, float)
        read_out, weights = [], []
        for b in range(len(h)):
            a = weigh(luong_reference(h[b][None], states[b][None])[0], mask[b])
            context = sum(weight * state for weight, state in zip(a, states[b]))
            weights.append(a)
            read_out.append(combine(context, h[b], W_c))
        return np.stack(read_out), np.stack(weights)

    return step


def step_cases(generator: torch.Generator) -> list[Case]:
    def both(about, states, mask):
        B, _, D = states.shape
        h, W_c = numbers(B, D, generator=generator), numbers(D, 2 * D, generator=generator)
        return [
            Case("weights", about, (h, states, mask, W_c), result="1"),
            Case("h_tilde", about, (h, states, mask, W_c), result="0"),
        ]

    draw, allow = partial(numbers, generator=generator), partial(some_allowed, generator=generator)
    everything = partial(torch.ones, dtype=torch.bool)
    B, S, D = sizes(generator, 3)
    same = draw(1, 1, D).expand(1, S, D).clone()
    plain = [
        *both("one sequence whose states are all equal, so the context is that state", same, everything(1, S)),
        *both("a batch", draw(B, S, D), everything(B, S)),
        *both("B = S = D: no axis can be told by its size", draw(4, 4, 4), everything(4, 4)),
    ]
    masked = [
        *both("some positions are padding", draw(B, S, D), allow(B, S)),
        *both("two sequences with one real position each", draw(2, 3, D), torch.eye(3).bool()[:2]),
    ]
    return plain + [replace(case, aspect="mask") for case in masked if case.result == "1"]


attention_step = Part(
    "attention_step",
    {"weights": 6, "h_tilde": 8, "mask": 6},
    step_cases,
    step_with(),
    {
        "h and c are swapped: W_c multiplies [c; h], the context first": step_with(
            lambda c, h, W: np.tanh(W @ np.concatenate([h, c]))
        ),
        "the tanh is missing": step_with(lambda c, h, W: W @ np.concatenate([c, h])),
        "this is the context: it still has to be combined with h": step_with(lambda c, h, W: c),
        "the context is a plain mean of the states: weight them": step_with(
            weigh=lambda s, m: np.ones(len(s)) / len(s)
        ),
        "the mask is upside down: True means that a position may be attended": (
            lambda h, states, mask, W_c: step_with()(h, states, ~mask, W_c)
        ),
        "the mask is not used: padding gets weight": (
            lambda h, states, mask, W_c: step_with()(h, states, torch.ones_like(mask), W_c)
        ),
        "masked after the softmax: the weights of a row no longer sum to 1": step_with(
            weigh=lambda s, m: softmax(s, np.ones(len(s), bool)) * m
        ),
        "these are the scores: return the weights": (
            lambda h, states, mask, W_c: (step_with()(h, states, mask, W_c)[0], luong_reference(h, states))
        ),
        "the scores are divided by the square root of D: Luong's are not": (
            lambda h, states, mask, W_c: step_with(weigh=lambda s, m: softmax(s / h.shape[1] ** 0.5, m))(
                h, states, mask, W_c
            )
        ),
        "the two results are in the wrong order: first h~, then the weights": (
            lambda h, states, mask, W_c: step_with()(h, states, mask, W_c)[::-1]
        ),
    },
)


# --- the data ------------------------------------------------------------------------------------------


def batch_cases(generator: torch.Generator) -> list[Case]:
    seeds = torch.randint(2**31, (5,), generator=generator).tolist()
    longest, symbols = sizes(generator, 1, 6, 8)[0], sizes(generator, 1, 3, 5)[0]
    many = (4000, longest, symbols)
    about = f"4,000 sequences of up to {longest} of {symbols} symbols"
    return [
        Case("sequences", about, (*many, Seed(seeds[0]))),
        Case("sequences", "the same state of the generator again", (*many, Seed(seeds[0])), secret="same"),
        Case("sequences", "the same generator, later", (*many, Seed(seeds[0], used=5)), secret="other"),
        Case("sequences", "another generator", (*many, Seed(seeds[1])), secret="other"),
        Case("mask", "1,000 sequences", (1000, longest, symbols, Seed(seeds[2]))),
        Case("mask", "one sequence", (1, longest, symbols, Seed(seeds[3]))),
        Case("target", "1,000 sequences", (1000, longest, symbols, Seed(seeds[4]))),
    ]


def judge_batch(case: Case, answers) -> str | None:
    """Properties instead of a reference: the draws are the student's own."""
    n, longest, symbols, _ = case.arguments
    if set(answers[-1]) != {"0", "1", "2"}:
        return "return a tuple of three tensors: source, mask, target" + values(results(answers[-1]), "a tuple of 3")
    source, mask, target = (answers[-1][name] for name in "012")
    for name, array in (("source", source), ("mask", mask), ("target", target)):
        if array.shape != (n, longest):
            return f"{name} does not have the shape (n_sequences, longest)" + values(array.shape, (n, longest))
        if not np.isfinite(array).all():
            return f"{name} holds entries that are no finite number"
    kinds = {
        "sequences": (source, "iu", "source must hold integers"),
        "target": (target, "iu", "target must hold integers"),
    }
    array, kind, words = kinds.get(case.aspect, (mask, "b", "mask must be boolean"))
    if array.dtype.kind not in kind:
        return words + values(array.dtype, "torch.long" if kind == "iu" else "torch.bool")
    source, mask, target = source.astype(np.int64), mask.astype(bool), target.astype(np.int64)
    lengths = mask.sum(axis=1)
    if case.aspect == "mask":
        return judge_mask(source, mask, lengths)
    if case.aspect == "target":
        return judge_target(source, lengths, target)
    before = answers[-2] if len(answers) > 1 else {}
    unchanged = {name: np.array_equal(before.get(name), answers[-1][name]) for name in "012"}
    if case.secret == "same" and not all(unchanged.values()):
        return "the same generator state gave another batch: draw from the generator you are given, nothing else"
    if case.secret == "other" and unchanged["0"]:
        return "another generator, or the same one later, gave the same batch: draw from the generator you are given"
    if case.secret == "other" and unchanged["1"]:
        return "the lengths do not depend on the generator: draw them"
    return judge_draws(source, mask, longest, symbols)


def judge_mask(source, mask, lengths) -> str | None:
    place = np.arange(mask.shape[1])
    if (mask == (place < lengths[:, None])).all():
        return "padding in source must have the id 0" if (source[~mask] != 0).any() else None
    if np.array_equal(mask, source != 0):
        return "0 is a symbol too, not only padding: make the mask from the lengths, not from the ids"
    if (mask == (place >= mask.shape[1] - lengths[:, None])).all():
        return "the mask is upside down, or padding stands on the left: True = real, padding on the right"
    return "in each row of mask the True come first, one for each real symbol"


UNEVEN = "the symbols are not equally likely, or not independent: draw each for itself"


def judge_draws(source, mask, longest, symbols) -> str | None:
    """Are lengths and symbols equally likely and independent?"""
    lengths, drawn = mask.sum(axis=1), source[mask]
    if (source == source[0]).all():
        return "all sequences are the same"
    if np.array_equal(mask, source != 0):
        return "0 is a symbol too, not only padding: make the mask from the lengths, not from the ids"
    if lengths.min() < 1:
        return "a mask has no True: the lengths are 1 to longest, and True = real"
    if (source < 0).any() or (drawn >= symbols).any():
        return "an id lies outside 0 to n_symbols - 1"
    if (lengths == lengths[0]).all():
        return "all sequences have the same length: draw one for each"
    if len(np.unique(lengths)) < longest:
        return "not every length from 1 to longest occurs (the upper end of torch.randint is left out)"
    if drawn.max() < symbols - 1:
        return "the last symbol, n_symbols - 1, never occurs (the upper end of torch.randint is left out)"
    chances = [
        (lengths - 1, longest, "the lengths are not equally likely"),
        (drawn, symbols, UNEVEN),
    ]
    if (mask == (np.arange(longest) < lengths[:, None])).all():  # otherwise the aspect of the mask says so
        both = mask[:, 1::2]  # symbols 1 and 2, 3 and 4, ... that are real
        left, right = source[:, 0 : 2 * both.shape[1] : 2][both], source[:, 1::2][both]
        together, first = left * symbols + right, (lengths - 1) * symbols + source[:, 0]
        chances += [
            (together, symbols**2, UNEVEN),
            (first, longest * symbols, "length and first symbol depend on each other"),
        ]
    for codes, kinds, words in chances:
        if not equally_likely(np.bincount(codes, minlength=kinds)):
            return words
    return None


def equally_likely(counts: np.ndarray) -> bool:
    """A count may differ from its mean by six standard deviations: right answers fail once in millions."""
    n, p = counts.sum(), 1 / len(counts)
    return bool((abs(counts - n * p) <= 6 * (n * p * (1 - p)) ** 0.5).all())


def judge_target(source, lengths, target) -> str | None:
    right = np.zeros_like(source)
    for b, length in enumerate(lengths):
        right[b, :length] = source[b, :length][::-1]
    if np.array_equal(target, right):
        return None
    if np.array_equal(target, source[:, ::-1]):
        return "the whole row is reversed, so that padding comes first: reverse only the real symbols"
    if np.array_equal(target, source):
        return "target is the source, not its reversal"
    if all(np.array_equal(t[:n], r[:n]) for t, r, n in zip(target, right, lengths)):
        return "padding in target must have the id 0"
    return "target is not the reversal of the real symbols"


reversal_batch = Part("reversal_batch", {"sequences": 6, "mask": 4, "target": 5}, batch_cases, judge=judge_batch)


# --- the trained model ---------------------------------------------------------------------------------

CONFIG = Seq2SeqConfig(vocab_size=11, bos_id=10, embed_size=8, hidden_size=64, score="dot")


def model_cases(generator: torch.Generator) -> list[Case]:
    unseen = reversal(1000, 10, 10, generator)["source"]
    return [Case(aspect, "1,000 new sequences", secret=unseen) for aspect in ("symbols", "sequences")]


def judge_model(case: Case, answers) -> str | None:
    """Load the weights into a model of our own and let it decode."""
    model = Seq2Seq(CONFIG).eval()
    if words := put_into(model, answers[-1]):
        return words
    source = case.secret
    decoded = model.generate(source, torch.ones_like(source).bool(), steps=10)
    symbols = (decoded == source.flip(1)).float().mean().item()
    exact = (decoded == source.flip(1)).all(dim=1).float().mean().item()
    if case.aspect == "sequences":
        words = f"{exact:.1%} of the sequences are exactly right, 99 % are asked for"
        return None if exact >= 0.99 else words + ": train longer, and let the learning rate fall to 0"
    if symbols >= 0.9:
        return None
    if (decoded == source).float().mean() > 0.5:
        return "the model copies the source: its target in training was not the reversal"
    words = f"{symbols:.0%} of the symbols are right, 90 % are asked for"
    if symbols < 0.15:
        return f"{words}, and guessing gives 10 %: do the updates reach the weights, with a learning rate near 0.01?"
    return (
        f"{words}. Is each batch a new one, are the gradients set to zero in each update, is the learning rate near "
        "0.01, and are there a few hundred updates?"
    )


train = Part("train", {"symbols": 5, "sequences": 10}, model_cases, judge=judge_model, result="model", seconds=90)

PARTS = (luong_score, additive_score, masked_softmax, attention_step, reversal_batch, train)
WRITTEN = {"read_a_map": 10}
score = partial(show_score, PARTS, WRITTEN)
