"""Checks of exercise 02: scores, masked softmax, one decoding step, the data, a trained model.

The references are written in NumPy, one number at a time, and share nothing with ``coursekit.nn``.

Legend: B sequences, S source positions, D size of a query, K size of a key.
"""

from functools import partial

import numpy as np
import torch

from coursekit.data.reversal import reversal
from coursekit.grading.parts import Arrays, Case, Part, Seed, values
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


def luong_cases(generator: torch.Generator) -> list[Case]:
    draw = partial(numbers, generator=generator)
    return [
        Case("dot", "one query, and three keys that are unit vectors", (draw(1, 3), torch.eye(3)[None])),
        Case("dot", "a batch of 3, 5 positions, vectors of 4", (draw(3, 4), draw(3, 5, 4))),
        Case("dot", "B = S = D = 4: no axis can be told by its size", (draw(4, 4), draw(4, 4, 4))),
        Case("general", "queries of 4, keys of 3", (draw(2, 4), draw(2, 5, 3), draw(4, 3))),
        Case("general", "queries and keys of 4, W not symmetric", (draw(3, 4), draw(3, 5, 4), draw(4, 4))),
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
    draw = partial(numbers, generator=generator)
    W, U, v = draw(4, 4), draw(4, 3), draw(4)
    square = draw(4, 4), draw(4, 4), draw(4)
    zero = torch.zeros
    return [
        Case("formula", "a query of zeros: only U and the keys count", (zero(1, 4), draw(1, 5, 3), W, U, v)),
        Case("formula", "keys of zeros: only W and the query count", (draw(1, 4), zero(1, 5, 3), W, U, v)),
        Case("formula", "both at once", (draw(1, 4), draw(1, 5, 3), W, U, v)),
        Case("formula", "queries and keys of the same size", (draw(1, 4), draw(1, 5, 4), *square)),
        Case("batch", "a batch of 3, 5 positions", (draw(3, 4), draw(3, 5, 3), W, U, v)),
        Case("batch", "B = S = 4: no axis can be told by its size", (draw(4, 4), draw(4, 4, 3), W, U, v)),
    ]


def additive_with(hidden):
    """The additive score with another inner function of W q and U k."""

    def mistake(query, keys, W, U, v):
        query, keys, W, U, v = (np.asarray(x, float) for x in (query, keys, W, U, v))
        return hidden((query @ W.T)[:, None], keys @ U.T) @ v

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
        "W and U are swapped: W belongs to the query, U to the keys": swapped,
        "query number b met position number b: give the query an axis for the positions": query_meets_position,
    },
)


# --- masked softmax ------------------------------------------------------------------------------------


def softmax_reference(scores, mask):
    scores, mask = np.asarray(scores), np.broadcast_to(np.asarray(mask), np.asarray(scores).shape)
    rows = [softmax(s, m) for s, m in zip(scores.reshape(-1, scores.shape[-1]), mask.reshape(-1, scores.shape[-1]))]
    return np.stack(rows).reshape(scores.shape)


def some_allowed(*shape: int, generator: torch.Generator) -> torch.Tensor:
    """A mask with at least one True and, beyond one column, one False in each row."""
    order = torch.rand(shape, generator=generator).argsort(dim=-1)
    kept = torch.randint(1, shape[-1], (*shape[:-1], 1), generator=generator)
    return order < kept


def softmax_cases(generator: torch.Generator) -> list[Case]:
    draw, allow = partial(numbers, generator=generator), partial(some_allowed, generator=generator)
    everything = torch.ones(2, 4, dtype=torch.bool)
    return [
        Case("softmax", "nothing is masked", (draw(2, 4), everything)),
        Case("softmax", "nothing is masked, as many rows as columns", (draw(4, 4), everything[:1].expand(4, 4))),
        Case("mask", "some positions are masked", (draw(3, 5), allow(3, 5))),
        Case("mask", "scores (B, T, S), mask (B, 1, S)", (draw(2, 3, 5, scale=2), allow(2, 1, 5))),
        Case("mask", "all scores are negative", (-5 - draw(3, 5).abs(), allow(3, 5))),
        Case("large scores", "scores around 1,000", (1000 + draw(3, 5), allow(3, 5))),
        Case("large scores", "scores around -10,000,000,000", (-1e10 * (1 + draw(3, 5).abs()), allow(3, 5))),
    ]


def weights_with(change):
    """A softmax of ``change(scores, mask)`` over the last axis, without a mask."""

    def mistake(scores, mask):
        return torch.softmax(change(scores.double(), mask.expand_as(scores)), dim=-1)

    return mistake


def overflowing(scores, mask):
    e = scores.exp() * mask
    return e / e.sum(dim=-1, keepdim=True)


masked_softmax = Part(
    "masked_softmax",
    {"softmax": 4, "mask": 7, "large scores": 4},
    softmax_cases,
    softmax_reference,
    {
        "the mask is not used": weights_with(lambda s, m: s),
        "the mask is upside down: True means that a position may be attended": (
            lambda scores, mask: softmax_reference(scores, ~mask)
        ),
        "masked positions get weight where all scores are low: fill with -inf, not with a large number": (
            weights_with(lambda s, m: s.masked_fill(~m, -1e9))
        ),
        "a masked score of 0 still gets weight, because exp(0) = 1: fill with -inf": weights_with(lambda s, m: s * m),
        "the weights of a row no longer sum to 1: mask the scores before the softmax, not the weights after it": (
            lambda scores, mask: weights_with(lambda s, m: s)(scores, mask) * mask
        ),
        "the softmax runs over the wrong axis: each row, the last axis, sums to 1": lambda scores, mask: torch.softmax(
            scores.double().masked_fill(~mask, -torch.inf), dim=0
        ),
        "exp overflows for large scores: subtract each row's maximum first, or let torch.softmax do it": overflowing,
    },
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
    def case(aspect, about, states, mask):
        B, _, D = states.shape
        h, W_c = numbers(B, D, generator=generator), numbers(D, 2 * D, generator=generator)
        return Case(aspect, about, (h, states, mask, W_c))

    draw, allow = partial(numbers, generator=generator), partial(some_allowed, generator=generator)
    everything = partial(torch.ones, dtype=torch.bool)
    same = draw(1, 1, 4).expand(1, 3, 4).clone()
    return [
        case("context", "all states are equal, so the context is that state", same, everything(1, 3)),
        case("context", "a batch of 3, 5 positions", draw(3, 5, 4), everything(3, 5)),
        case("context", "B = S = D = 4: no axis can be told by its size", draw(4, 4, 4), everything(4, 4)),
        case("mask", "some positions are padding", draw(3, 5, 4), allow(3, 5)),
        case("mask", "two sequences with one real position each", draw(2, 3, 4), torch.eye(3).bool()[:2]),
    ]


attention_step = Part(
    "attention_step",
    {"context": 13, "mask": 7},
    step_cases,
    step_with(),
    {
        "h and c are swapped: W_c multiplies [c; h], the context first": step_with(
            lambda c, h, W: np.tanh(W @ np.concatenate([h, c]))
        ),
        "the tanh is missing": step_with(lambda c, h, W: W @ np.concatenate([c, h])),
        "the mask is not used: padding gets weight": (
            lambda h, states, mask, W_c: step_with()(h, states, torch.ones_like(mask), W_c)
        ),
        "the first result is the context: it still has to be combined with h": step_with(lambda c, h, W: c),
        "the second result holds the scores: return the weights": (
            lambda h, states, mask, W_c: (step_with()(h, states, mask, W_c)[0], luong_reference(h, states))
        ),
        "the scores are divided by the square root of D: Luong's are not": (
            lambda h, states, mask, W_c: step_with(weigh=lambda s, m: softmax(s / 2, m))(h, states, mask, W_c)
        ),
        "the two results are in the wrong order: first h~, then the weights": (
            lambda h, states, mask, W_c: step_with()(h, states, mask, W_c)[::-1]
        ),
    },
)


# --- the data ------------------------------------------------------------------------------------------


def batch_cases(generator: torch.Generator) -> list[Case]:
    seeds = [Seed(seed) for seed in torch.randint(2**31, (4,), generator=generator).tolist()]
    longest, symbols = torch.randint(5, 9, (2,), generator=generator).tolist()
    many, few = (4000, longest, symbols), (1000, 6, symbols)
    about = f"4,000 sequences of up to {longest} of {symbols} symbols"
    return [
        Case("sequences", about, (*many, seeds[0])),
        Case("sequences", "the same generator state again", (*many, seeds[0]), secret="same"),
        Case("sequences", "another generator state", (*many, seeds[1]), secret="other"),
        Case("mask", "1,000 sequences of up to 6", (*few, seeds[2])),
        Case("target", "1,000 sequences of up to 6", (*few, seeds[3])),
    ]


def judge_batch(case: Case, answers) -> str | None:
    """Properties instead of a reference: the draws are the student's own."""
    n, longest, symbols, _ = case.arguments
    if set(answers[-1]) != {"0", "1", "2"}:
        return "the results must be three: source, mask, target" + values(len(answers[-1]), 3)
    source, mask, target = (answers[-1][name] for name in "012")
    for name, array in (("source", source), ("mask", mask), ("target", target)):
        if array.shape != (n, longest):
            return f"{name} does not have the shape (n_sequences, longest)" + values(array.shape, (n, longest))
    if mask.dtype != bool:
        return f"mask is of type {mask.dtype}, not bool"
    if source.dtype.kind not in "iu" or target.dtype.kind not in "iu":
        return "source and target hold ids: integers"
    lengths = mask.sum(axis=1)
    padded_right = (mask == (np.arange(longest) < lengths[:, None])).all()
    if case.aspect == "mask":
        if not padded_right and (mask == (np.arange(longest) >= (longest - lengths)[:, None])).all():
            return "the mask is upside down, or padding stands on the left: True = real, padding on the right"
        if not padded_right:
            return "padding must stand on the right of the real symbols in mask"
        if (source[~mask] != 0).any():
            return "padding in source must have the id 0"
        return None
    if case.aspect == "target":
        return judge_target(source, lengths, target)
    if case.secret == "same":
        before = answers[-2]
        if any(not np.array_equal(before.get(name), answers[-1][name]) for name in "012"):
            return "the same generator state gave another batch: draw from the generator you are given, nothing else"
        return None
    if case.secret == "other":
        if np.array_equal(answers[-2].get("0"), source):
            return "another generator gave the same batch: draw from the generator you are given"
        return None
    return judge_draws(source, mask, longest, symbols)


def judge_draws(source, mask, longest, symbols) -> str | None:
    """Are lengths and symbols equally likely? A count may differ from its mean by six standard deviations."""
    lengths = mask.sum(axis=1)
    if lengths.min() < 1:
        return "there is a sequence of length 0: lengths are 1 to longest"
    if (source < 0).any() or (source[mask] >= symbols).any():
        return "an id lies outside 0 to n_symbols - 1"
    if lengths.max() < longest or (lengths == lengths[0]).all():
        return "not every length from 1 to longest occurs (the upper end of torch.randint is left out)"
    drawn = source[mask]
    if drawn.max() < symbols - 1:
        return "the last symbol, n_symbols - 1, never occurs (the upper end of torch.randint is left out)"
    for counts, what in (
        (np.bincount(lengths, minlength=longest + 1)[1:], "lengths"),
        (np.bincount(drawn, minlength=symbols), "symbols"),
    ):
        p = 1 / len(counts)
        if (abs(counts - counts.sum() * p) > 6 * (counts.sum() * p * (1 - p)) ** 0.5).any():
            return f"the {what} are not equally likely"
    if mask.all(axis=1).any() and (source[mask.all(axis=1)] == source[mask.all(axis=1)][0]).all():
        return "all sequences are the same"
    return None


def judge_target(source, lengths, target) -> str | None:
    right, flipped = np.zeros_like(source), source[:, ::-1]
    for b, length in enumerate(lengths):
        right[b, :length] = source[b, :length][::-1]
    if np.array_equal(target, right):
        return None
    if np.array_equal(target, flipped):
        return "the whole row is reversed, so that padding comes first: reverse only the real symbols"
    if np.array_equal(target, source):
        return "target is the source, not its reversal"
    if all(np.array_equal(t[:n], r[:n]) for t, r, n in zip(target, right, lengths)):
        return "padding in target must have the id 0"
    return "target is not the reversal of the real symbols"


reversal_batch = Part(
    "reversal_batch", {"sequences": 6, "mask": 4, "target": 5}, batch_cases, judge=judge_batch, seconds=20
)


# --- the trained model ---------------------------------------------------------------------------------

CONFIG = Seq2SeqConfig(vocab_size=11, bos_id=10, embed_size=8, hidden_size=64, score="dot")


def model_cases(generator: torch.Generator) -> list[Case]:
    unseen = reversal(1000, 10, 10, generator)["source"]
    return [Case(aspect, "1,000 new sequences", secret=unseen) for aspect in ("symbols", "sequences")]


def judge_model(case: Case, answers) -> str | None:
    """Load the weights into a model of our own and let it decode."""
    weights: Arrays = answers[-1]
    model = Seq2Seq(CONFIG).eval()
    for name, tensor in model.state_dict().items():
        if name not in weights:
            return f"this is not the model that train was given: it has no weights {name}"
        if weights[name].shape != tuple(tensor.shape):
            return "this is not the model that train was given: its sizes differ" + values(
                weights[name].shape, tuple(tensor.shape)
            )
        if not np.isfinite(weights[name]).all():
            return "the weights are no finite numbers: the training diverged, the learning rate is far too high"
    model.load_state_dict({name: torch.tensor(weights[name]).float() for name in model.state_dict()})
    source = case.secret
    decoded = model.generate(source, torch.ones_like(source).bool(), steps=10)
    symbols = (decoded == source.flip(1)).float().mean().item()
    exact = (decoded == source.flip(1)).all(dim=1).float().mean().item()
    if case.aspect == "symbols":
        if (decoded == source).float().mean() > 0.5:
            return "the model copies the source: its target in training was not the reversal"
        if symbols < 0.15:
            return (
                f"{symbols:.0%} of the symbols are right, no better than guessing: does each update change the "
                "weights, and downhill?"
            )
        if symbols < 0.9:
            return (
                f"{symbols:.0%} of the symbols are right, 90 % are asked for: too few updates, or the same data "
                "again and again"
            )
        return None
    if exact < 0.99:
        return (
            f"{exact:.1%} of the sequences are exactly right, 99 % are asked for: train longer, and let the "
            "learning rate fall to 0"
        )
    return None


model = Part("model", {"symbols": 5, "sequences": 10}, model_cases, judge=judge_model, seconds=90)

PARTS = (luong_score, additive_score, masked_softmax, attention_step, reversal_batch, model)
WRITTEN = {"alignment": 10}
score = partial(show_score, PARTS, WRITTEN)
