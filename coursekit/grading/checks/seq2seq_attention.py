"""Checks of exercise 02: scores, masked softmax, a step of either decoder, the data, a trained model.

The references share nothing with ``coursekit.nn``; their options are places for mistakes.

Legend: B sequences, S source positions, D size of a query, K size of a key, E size of an embedding.
"""

from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch.nn import functional as F

from coursekit.data.reversal import reversal
from coursekit.grading.calls import Seed
from coursekit.grading.checks.common import (
    FAR,
    SOFTMAXES,
    again,
    all_of,
    dealt,
    equally_likely,
    judge_copies,
    judge_zeros,
    number,
    numbers,
    sizes,
    softmax_cases,
    softmax_reference,
    some_allowed,
    tied,
    tied_neighbours,
    wide,
)
from coursekit.grading.differences import results, values
from coursekit.grading.mistakes import given
from coursekit.grading.parts import Case, Part
from coursekit.grading.parts import score as show_score
from coursekit.grading.weights import put_into
from coursekit.models.seq2seq import Seq2Seq, Seq2SeqConfig

# --- scores --------------------------------------------------------------------------------------------


def luong_reference(query, keys, W=None):
    query, keys, W = wide([query, keys, W])
    return (query[:, None] * (keys if W is None else keys @ W.mT)).sum(dim=-1)


def luong_cases(generator: torch.Generator) -> list[Case]:
    draw = partial(numbers, generator=generator)
    B, S, D, K = sizes(generator, 4)
    return [
        Case("dot", "one query, and three keys that are unit vectors", (draw(1, 3), torch.eye(3)[None])),
        Case("dot", "a batch", (draw(B, D), draw(B, S, D))),
        Case("dot", "B = S = D: no axis can be told by its size", (draw(4, 4), draw(4, 4, 4))),
        Case("dot", "many keys", (draw(B, D), draw(B, many := number(generator, 80, 120), D))),
        Case("dot", "one key for each query", (draw(B, D), draw(B, 1, D))),
        Case("general", "one key for each query, W not symmetric", (draw(B, D), draw(B, 1, D), draw(D, D))),
        Case("general", "keys of another size than the query", (draw(B, D), draw(B, S, K), draw(D, K))),
        Case("general", "query and keys of the same size, W not symmetric", (draw(B, D), draw(B, S, D), draw(D, D))),
        Case("general", "many keys", (draw(B, D), draw(B, many, K), draw(D, K))),
    ]


def cosine(query, keys, W=None):
    return luong_reference(F.normalize(query, dim=-1), F.normalize(keys if W is None else keys @ W.mT, dim=-1))


luong_score = Part(
    "luong_score",
    {"dot": 7, "general": 8},
    luong_cases,
    luong_reference,
    {
        "divided by the square root of D: that belongs to the Transformer, Luong's scores are not scaled": (
            given(luong_reference, query=lambda query: query / query.shape[-1] ** 0.5)
        ),
        "W is not used": given(luong_reference, W=lambda W: None),
        "the vectors are scaled to length 1: that is the cosine, not the dot product": cosine,
        "an axis of length 1 is lost: squeeze takes away all of them unless you name one": (
            lambda query, keys, W=None: luong_reference(query, keys, W).squeeze()
        ),
    },
)


def additive_reference(query, keys, W, U, v, *, hidden=lambda q, k: torch.tanh(q + k)):
    query, keys, W, U, v = wide([query, keys, W, U, v])
    return hidden((query @ W.mT)[:, None], keys @ U.mT) @ v


def additive_cases(generator: torch.Generator) -> list[Case]:
    draw, zero = partial(numbers, generator=generator), torch.zeros
    B, S, D, K = sizes(generator, 4)
    W, U, v = draw(D, D), draw(D, K), draw(D)
    square = draw(D, D), draw(D, D), draw(D)
    many, steep = draw(B, number(generator, 80, 120), K), (W.clone(), U.clone())
    many[..., 0] = many[..., 0].sign()
    steep[0][0] = steep[1][0] = 0
    steep[1][0, 0] = 100  # the first hidden unit is tanh of 100 or -100
    return [
        Case("formula", "a query of zeros: only U and the keys count", (zero(1, D), draw(1, S, K), W, U, v)),
        Case("formula", "keys of zeros: only W and the query count", (draw(1, D), zero(1, S, K), W, U, v)),
        Case("formula", "both at once", (draw(1, D), draw(1, S, K), W, U, v)),
        Case("formula", "query and keys of the same size", (draw(1, D), draw(1, S, D), *square)),
        Case("batch", "a batch", (draw(B, D), draw(B, S, K), W, U, v)),
        Case("batch", "B = S: no axis can be told by its size", (draw(S, D), draw(S, S, K), W, U, v)),
        Case("batch", "many keys, tanh of 100 and -100 among others", (draw(B, D), many, *steep, v)),
    ]


additive_score = Part(
    "additive_score",
    {"formula": 6, "batch": 4},
    additive_cases,
    additive_reference,
    {
        "the tanh is missing": partial(additive_reference, hidden=torch.add),
        "tanh is taken of each part: take it once, of the sum W q + U k": partial(
            additive_reference, hidden=lambda q, k: q.tanh() + k.tanh()
        ),
        "a relu where the formula has tanh": partial(additive_reference, hidden=lambda q, k: (q + k).relu()),
        "query number b met position number b: give the query an axis for the positions": partial(
            additive_reference, hidden=lambda q, k: torch.tanh(q.transpose(0, 1) + k)
        ),
    },
)


# --- masked softmax ------------------------------------------------------------------------------------

FILLED = "masked positions get weight where all scores are low: fill with -inf, not with a large number"


def filled(scores, mask):
    return scores.masked_fill(~mask, -1e9).softmax(dim=-1)


masked_softmax = Part(
    "masked_softmax",
    {"softmax": 3, "mask": 4, "large scores": 3},
    partial(softmax_cases, extreme="large scores"),
    softmax_reference,
    {
        FILLED: filled,
        "a masked score of 0 still gets weight, because exp(0) = 1: fill with -inf": (
            lambda scores, mask: (scores * mask).softmax(dim=-1)
        ),
        **SOFTMAXES,
    },
    judge_zeros,
)


# --- one decoding step ---------------------------------------------------------------------------------


def step_reference(
    h, states, mask, W_c, *, combine=lambda c, h, W: torch.tanh(torch.cat([c, h], -1) @ W.mT), weigh=softmax_reference
):
    h, states, W_c = wide([h, states, W_c])
    weights = weigh(luong_reference(h, states), mask)
    return combine((weights[..., None] * states).sum(dim=1), h, W_c), weights


def far_states(states: torch.Tensor, mask: torch.Tensor, real: float) -> torch.Tensor:
    """States whose scores, against a query that begins with ``FAR``, are huge at padding, and elsewhere as ``real``."""
    states = torch.where(mask[..., None], states, 1e12 * states)
    states[..., 0] = torch.where(mask, real, FAR)
    return states


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
    real, h, W_c = allow(B, S), draw(B, D), draw(D, 2 * D)
    h[:, 0] = FAR
    W_c[:, [0, D]] = 0  # that entry counts in the scores alone
    huge, low = ((h, far_states(draw(B, S, D), real, entry), real, W_c) for entry in (0.0, -FAR))
    masked += [
        Case("mask", "the scores of padding are huge", huge, result="1"),
        Case("h_tilde", "the scores of padding are huge", huge, result="0"),
        Case("mask", "equal scores, far below -10,000,000,000, but for padding", low, result="1"),
    ]
    # padding that reaches the context spoils h_tilde, whatever the weights that are returned
    return plain + [replace(case, aspect="mask") if case.result == "1" else case for case in masked]


UPSIDE_DOWN = "the mask is upside down: True is a real position, and padding gets no weight"

attention_step = Part(
    "attention_step",
    {"weights": 4, "h_tilde": 8, "mask": 3},
    step_cases,
    step_reference,
    {
        FILLED: partial(step_reference, weigh=filled),
        UPSIDE_DOWN: lambda h, states, mask, W_c: step_reference(h, states, ~mask, W_c),
        "the context is made with weights that ignore the mask: padding must not reach h_tilde either": (
            lambda h, states, mask, W_c: (
                step_reference(h, states, torch.ones_like(mask), W_c)[0],
                step_reference(h, states, mask, W_c)[1],
            )
        ),
        "h and c are swapped: W_c multiplies [c; h], the context first": partial(
            step_reference, combine=lambda c, h, W: torch.tanh(torch.cat([h, c], -1) @ W.mT)
        ),
        "the tanh is missing": partial(step_reference, combine=lambda c, h, W: torch.cat([c, h], -1) @ W.mT),
        "this is the context: it still has to be combined with h": partial(step_reference, combine=lambda c, h, W: c),
        "these are the scores: return the weights": lambda h, states, *rest: (
            step_reference(h, states, *rest)[0],
            luong_reference(h, states),
        ),
        "the scores are divided by the square root of D: Luong's are not": lambda h, *rest: step_reference(
            h, *rest, weigh=lambda scores, mask: softmax_reference(scores / h.shape[1] ** 0.5, mask)
        ),
    },
)


# --- one step of Bahdanau's decoder ------------------------------------------------------------------------


def bahdanau_reference(
    x,
    s,
    states,
    mask,
    W_s,
    W_o,
    *,
    ask=lambda old, new: old,
    reads=lambda new, c, x, old: (new, c, x),
    read_out=torch.tanh,
    weigh=softmax_reference,
    context_mask=lambda mask: mask,
):
    x, s, states, W_s, W_o = wide([x, s, states, W_s, W_o])

    def look(query, mask):
        weights = weigh(luong_reference(query, states), mask)
        return weights, (weights[..., None] * states).sum(dim=1)

    blind = torch.tanh(torch.cat([x, torch.zeros_like(s), s], -1) @ W_s.mT)  # the state before it has looked
    query = ask(s, blind)
    context = look(query, context_mask(mask))[1]
    new = torch.tanh(torch.cat([x, context, s], -1) @ W_s.mT)
    return new, read_out(torch.cat(reads(new, context, x, s), -1) @ W_o.mT), look(query, mask)[0]


def bahdanau_cases(generator: torch.Generator) -> list[Case]:
    draw, allow = partial(numbers, generator=generator), partial(some_allowed, generator=generator)
    everything = partial(torch.ones, dtype=torch.bool)
    E, B, S, D = sizes(generator, 4)
    situations = [
        ("one sequence whose states are all equal, so the context is that state", 1, S, D, E, everything(1, S)),
        ("a batch, nothing is padding", B, S, D, E, everything(B, S)),
        ("some positions are padding", B, S, D, E, allow(B, S)),
        ("B = S = D = E: no axis can be told by its size", 4, 4, 4, 4, allow(4, 4)),
    ]
    cases = []
    for i, (about, B, S, D, E, mask) in enumerate(situations):
        states = draw(B, S, D) if i else draw(1, 1, D).expand(1, S, D).clone()
        arguments = draw(B, E), draw(B, D), states, mask, draw(D, E + 2 * D), draw(D, 2 * D + E)
        for result, aspect in (("2", "weights"), ("0", "state"), ("1", "read-out")):
            cases.append(Case(aspect, about, arguments, result=result))
    x, s, W_s, W_o, real = draw(B, E), draw(B, D), draw(D, E + 2 * D), draw(D, 2 * D + E), allow(B, S)
    s[:, 0] = FAR
    W_s[:, [E, E + D]], W_o[:, D] = 0, 0  # that entry counts in the scores alone
    huge, low = ((x, s, far_states(draw(B, S, D), real, entry), real, W_s, W_o) for entry in (0.0, -FAR))
    return [
        *cases,
        Case("weights", "the scores of padding are huge", huge, result="2"),
        Case("weights", "equal scores, far below -10,000,000,000, but for padding", low, result="2"),
        Case("state", "the scores of padding are huge", huge, result="0"),
        Case("read-out", "the scores of padding are huge", huge, result="1"),
    ]


bahdanau_step = Part(
    "bahdanau_step",
    {"weights": 5, "state": 4, "read-out": 6},
    bahdanau_cases,
    bahdanau_reference,
    {
        "the new state asks: Bahdanau's decoder looks before it moves, so the old state is the query": partial(
            bahdanau_reference, ask=lambda old, new: new
        ),
        FILLED: partial(bahdanau_reference, weigh=filled),
        UPSIDE_DOWN: lambda x, s, states, mask, *weights: bahdanau_reference(x, s, states, ~mask, *weights),
        "the context is made with weights that ignore the mask: padding must not reach the state": partial(
            bahdanau_reference, context_mask=torch.ones_like
        ),
        "the read-out does not see the context: it reads the new state, the context and the symbol": partial(
            bahdanau_reference, reads=lambda new, c, x, old: (new, torch.zeros_like(c), x)
        ),
        "the read-out reads the old state: it comes after the step, so it reads the new one": partial(
            bahdanau_reference, reads=lambda new, c, x, old: (old, c, x)
        ),
        "the read-out's parts are in the wrong order: W_o multiplies [s_new; c; x]": partial(
            bahdanau_reference, reads=lambda new, c, x, old: (c, new, x)
        ),
        "the tanh of the read-out is missing": partial(bahdanau_reference, read_out=lambda z: z),
        "the scores are divided by the square root of D: these are not": lambda x, s, *rest: bahdanau_reference(
            x, s, *rest, weigh=lambda scores, mask: softmax_reference(scores / s.shape[1] ** 0.5, mask)
        ),
    },
)


# --- the data ------------------------------------------------------------------------------------------


def batch_cases(generator: torch.Generator) -> list[Case]:
    seeds = torch.randint(2**31, (6,), generator=generator).tolist()
    longest, symbols = sizes(generator, 1, 6, 8)[0], sizes(generator, 1, 3, 5)[0]
    long, large, few = (number(generator, *limits) for limits in ((40, 60), (60, 90), (5, 6)))
    many = (4000, longest, symbols)
    about = f"4,000 sequences of up to {longest} of {symbols} symbols"
    return [
        Case("sequences", about, (*many, Seed(seeds[0]))),
        Case("sequences", "the same state of the generator again", (*many, Seed(seeds[0], alone=True)), secret="same"),
        Case("sequences", "the same generator, later", (*many, Seed(seeds[0], used=5)), secret="other"),
        Case("sequences", "another generator", (*many, Seed(seeds[1])), secret="other"),
        Case("sequences", "long sequences of many symbols", (4000, long, large, Seed(seeds[5])), secret="long"),
        # as many symbols as lengths, so that one stream of numbers that makes both shows
        *again(["sequences"], "12 sequences", (12, few, few), generator),
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
        "sequences": (source, "iu" if case.secret is None else "i", "source is not of type torch.long"),
        "target": (target, "i", "target is not of type torch.long"),
    }
    array, kind, words = kinds.get(case.aspect, (mask, "b", "mask must be boolean"))
    if array.dtype.kind not in kind:
        return words + values(array.dtype, "torch.bool" if kind == "b" else "torch.long")
    source, mask, target = source.astype(np.int64), mask.astype(bool), target.astype(np.int64)
    lengths = mask.sum(axis=1)
    if case.aspect == "mask":
        return judge_mask(source, mask, lengths)
    if case.aspect == "target":
        return judge_target(source, lengths, target)
    if isinstance(case.secret, tuple):
        return judge_rows(all_of(case, answers, "01"), longest)
    if case.secret == "more":
        return None  # what they show all together is looked at in the case behind them
    before = answers[-2] if len(answers) > 1 else {}
    unchanged = {name: np.array_equal(before.get(name), answers[-1][name]) for name in "012"}
    if case.secret == "same" and not all(unchanged.values()):
        return "the same generator state gave another batch: draw from the generator you are given, nothing else"
    if case.secret == "other" and unchanged["0"]:
        return "another generator, or the same one later, gave the same batch: draw from the generator you are given"
    if case.secret == "other" and unchanged["1"]:
        return "the lengths do not depend on the generator: draw them"
    if case.secret == "other" and len(np.unique(lengths)) > 1:
        return None  # how it is drawn was judged before
    return judge_draws(source, mask, longest, symbols, pairs=case.secret != "long")


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


def judge_draws(source, mask, longest, symbols, pairs=True) -> str | None:
    """Are lengths and symbols equally likely and, if ``pairs`` are looked at, independent?"""
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
    pairs = pairs and padded_right(mask)
    if pairs:  # otherwise the aspect of the mask says so
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
    if pairs and tied(np.where(mask, source, -1), 1 / symbols):
        return "two symbols of a sequence depend on each other, wherever they stand: draw each for itself"
    if pairs and not all(equally_likely(triples(source, mask, first, symbols)) for first in range(3)):
        return "of three symbols in a row two say what the third one is: draw each for itself"
    return None


def triples(source, mask, first, symbols) -> np.ndarray:
    """How often each three symbols stand side by side, three by three from place ``first`` on."""
    end = first + (mask.shape[1] - first) // 3 * 3
    three, real = (array[:, first:end].reshape(-1, 3) for array in (source, mask))
    return np.bincount(three[real[:, 2]] @ [symbols**2, symbols, 1], minlength=symbols**3)


def padded_right(mask: np.ndarray) -> bool:
    return bool((mask == (np.arange(mask.shape[1]) < mask.sum(axis=1)[:, None])).all())


BETWEEN = "two sequences of a batch depend on each other, as if one were made from the other: draw each for itself"


def judge_rows(results, kinds) -> str | None:
    """Whether all lengths and symbols of a batch, and of the next one, are independent, by many small batches."""
    if not results or not all(map(padded_right, results[1])):
        return None
    if words := judge_copies(results):
        return words
    drawn, lengths = np.where(results[1], results[0], -1), results[1].sum(axis=2) - 1  # (times, rows, places); rows
    columns, flat = drawn.swapaxes(1, 2), drawn.reshape(len(drawn), -1)
    if any(tied(one, 1 / kinds) for one in (lengths, flat)):
        return BETWEEN
    if any(dealt(rows.reshape(-1, rows.shape[-1]), kinds) for rows in (lengths, columns, drawn)):
        return "each kind comes too evenly, or too unevenly, in a batch, as from a shuffled deck: draw each for itself"
    if tied_neighbours(columns, 1 / kinds):
        return BETWEEN
    if tied(np.concatenate([*np.split(lengths, 2), *np.split(flat, 2)], axis=1), 1 / kinds):  # first and second calls
        return (
            "some of what is drawn, lengths and symbols, depends on other draws, of this batch or of the one before, "
            "as if one were made from the other: draw each for itself"
        )
    return None


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


reversal_batch = Part(
    "reversal_batch",
    {"sequences": 4, "mask": 3, "target": 3},
    batch_cases,
    judge=judge_batch,
    needs={"mask": ("sequences",), "target": ("sequences",)},
)


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
        words = f"{exact:.1%} of the sequences are exactly right, 99% are asked for"
        return None if exact >= 0.99 else words + ": train longer, and let the learning rate fall to 0"
    if symbols >= 0.9:
        return None
    if (decoded == source).float().mean() > 0.5:
        return "the model copies the source: its target in training was not the reversal"
    words = f"{symbols:.0%} of the symbols are right, 90% are asked for"
    if symbols < 0.15:
        return f"{words}, and guessing gives 10%: do the updates reach the weights, with a learning rate near 0.01?"
    return (
        f"{words}. Is each batch a new one, are the gradients set to zero in each update, is the learning rate near "
        "0.01, and are there a few hundred updates?"
    )


train = Part("train", {"symbols": 5, "sequences": 10}, model_cases, judge=judge_model, result="model", seconds=90)

PARTS = (luong_score, additive_score, masked_softmax, attention_step, bahdanau_step, reversal_batch, train)
WRITTEN = {"read_a_map": 10}
score = partial(show_score, PARTS, WRITTEN)
