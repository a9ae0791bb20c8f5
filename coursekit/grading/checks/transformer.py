"""Checks of exercise 04: the layers of the Transformer, how it is trained, beam search, a translator, maps to read.

The references, whose options are places for mistakes, share nothing with ``coursekit.nn`` and ``coursekit.models``.

Legend: B sequences, T target tokens, S source tokens, V vocabulary size, D = d_model, K beams.
"""

import functools
import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from coursekit.data.translation import as_batch, to_ids, world_vocab
from coursekit.data.world import as_text, sentences
from coursekit.decode.translate import greedy
from coursekit.evaluate import bleu
from coursekit.grading.calls import Arrays
from coursekit.grading.checks.common import (
    apart,
    by_seed,
    in_pairs,
    nats,
    norm,
    number,
    numbers,
    post_norm,
    pre_norm,
    random_weights,
    scaled_by,
    scaled_weights,
    silenced,
    sizes,
    together,
    wide,
)
from coursekit.grading.mistakes import given
from coursekit.grading.parts import Case, Part
from coursekit.grading.parts import score as show_score
from coursekit.grading.weights import once_for_a_model, put_into
from coursekit.models.transformer import Transformer, TransformerConfig
from coursekit.text.vocab import Vocab

# --- what both layers are made of ----------------------------------------------------------------------


def relu_network(x: Tensor, up: tuple[Tensor, Tensor], down: tuple[Tensor, Tensor]) -> Tensor:
    return torch.relu(x @ up[0].T + up[1]) @ down[0].T + down[1]


def multi_head(x, memory, mask, n_heads, qkv, out, weigh=scaled_weights) -> Tensor:
    """Queries from ``x`` (B, T, D), keys and values from ``memory`` (B, S, D); ``mask`` broadcasts to (B, H, T, S)."""
    parts = zip((x, memory, memory), qkv[0].chunk(3), qkv[1].chunk(3), strict=True)
    query, key, value = (apart(source @ weight.T + bias, n_heads) for source, weight, bias in parts)
    return together(weigh(query, key, mask) @ value) @ out[0].T + out[1]


def along_keys(real: Tensor) -> Tensor:
    return real[:, None, None, :]


WIRING: dict[str, Callable[..., Tensor]] = {
    "the norm comes before the branch (pre-norm): as published, it is taken of the sum, norm(x + branch(x))": pre_norm,
    "the residual connections are forgotten: what came in is added before the norm": (
        lambda x, branch, normalise: normalise(branch(x))
    ),
    "the norm is taken of the branch alone: add first, norm(x + branch(x))": (
        lambda x, branch, normalise: x + normalise(branch(x))
    ),
}


def some_lengths(B: int, longest: int, generator: torch.Generator) -> Tensor:
    """Lengths (B, 1) below the longest, so that every row has padding; they differ as far as that is possible."""
    return 1 + (number(generator, 0, longest - 1) + torch.arange(B)[:, None]) % (longest - 1)


# --- encoder layer -------------------------------------------------------------------------------------


def encoder_reference(
    x,
    real,
    n_heads,
    *weights,
    wiring=post_norm,
    network=relu_network,
    weigh=scaled_weights,
    mask_of=along_keys,
    normalise=norm,
    skip=lambda x, y: y,
    read=lambda x, y, z: z,
    norms=lambda one, two: (one, two),
):
    x, *weights = wide([x, *weights])
    qkv, out, norm_1, up, down, norm_2 = in_pairs(weights)
    norm_1, norm_2 = norms(norm_1, norm_2)
    mask = mask_of(real)
    y = wiring(x, lambda z: multi_head(z, z, mask, n_heads, qkv, out, weigh), lambda z: normalise(z, *norm_1))
    y = wiring(skip(x, y), lambda z: network(read(x, y, z), up, down), lambda z: normalise(z, *norm_2))
    return y.where(real[..., None], 0)


def encoder_cases(generator: torch.Generator) -> list[Case]:
    draw = partial(numbers, generator=generator)

    def case(aspect, about, B, T, n_heads, D, silent=(), real=None, scale=2.0, high=0.0):
        """With ``high`` one hidden unit is about that."""
        real = torch.ones(B, T, dtype=torch.bool) if real is None else real
        weights = silenced(random_weights(D, D + 3, 1, generator), *silent)
        weights[7][0] += high  # the bias of ``up``
        return Case(aspect, about, (draw(B, T, D, scale=scale), real, n_heads, *weights))

    B, T = sizes(generator, 2)
    place, lengths = torch.arange(T), some_lengths(B, T, generator)
    tiny = "numbers so small that eps counts; both branches give zeros"
    return [
        case("attention", "one sequence, one head; the feed-forward network gives zeros", 1, 2, 1, 6, silent=[4]),
        case("attention", "a batch, two heads; the feed-forward network gives zeros", B, T, 2, 8, silent=[4]),
        case("feed-forward", "one sequence; the attention gives zeros", 1, 2, 1, 6, silent=[1]),
        case("feed-forward", "a batch, hidden units of 30; the attention gives zeros", B, T, 2, 8, [1], high=30.0),
        case("whole layer", "a batch, three heads", B, T, 3, 12),
        case("whole layer", "B = T = H = Dh: no axis can be told by its size", 4, 4, 4, 16),
        case("padding", "a batch, padding on the right", B, T, 2, 8, [4], place < lengths),
        case("padding", "a batch, padding on the left", B, T, 2, 8, [4], place >= T - lengths),
        case("small numbers", tiny, B, T, 2, 8, silent=[1, 4], scale=3e-3),
    ]


encoder_layer = Part(
    "encoder_layer",
    {"attention": 3, "feed-forward": 3, "whole layer": 2, "padding": 4, "small numbers": 2},
    encoder_cases,
    encoder_reference,
    {
        **{words: partial(encoder_reference, wiring=way) for words, way in WIRING.items()},
        "the second residual connection begins at x: what is added there is what came out of the first norm": partial(
            encoder_reference, skip=lambda x, y: x, read=lambda x, y, z: y
        ),
        "the feed-forward network reads x: it reads what came out of the first norm": partial(
            encoder_reference, read=lambda x, y, z: x
        ),
        "the two norms have changed places": partial(encoder_reference, norms=lambda one, two: (two, one)),
        "the first norm is used twice: each branch has its own": partial(
            encoder_reference, norms=lambda one, two: (one, one)
        ),
        "the activation is gelu: it is relu": partial(
            encoder_reference, network=lambda x, up, down: F.gelu(x @ up[0].T + up[1]) @ down[0].T + down[1]
        ),
        "the relu between the two linear layers is missing": partial(
            encoder_reference, network=lambda x, up, down: (x @ up[0].T + up[1]) @ down[0].T + down[1]
        ),
        "the scores are not divided by the square root of Dh": partial(
            encoder_reference, weigh=scaled_by(lambda query, key: 1)
        ),
        "padding is attended: no query may look at a key that is not real, and keys are the last axis of the mask": (
            partial(encoder_reference, mask_of=lambda real: None)
        ),
        "the mask is upside down: True means that a position may be attended": partial(
            encoder_reference, mask_of=lambda real: ~along_keys(real)
        ),
        "the variance of the layer norm divides by D - 1: it is D, as in nn.LayerNorm": partial(
            encoder_reference, normalise=partial(norm, correction=1)
        ),
    },
    given=("MultiHeadAttention",),
)


# --- decoder layer -------------------------------------------------------------------------------------


def earlier(x: Tensor) -> Tensor:
    return torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()


def decoder_reference(
    x,
    memory,
    real,
    n_heads,
    *weights,
    wiring=(post_norm, post_norm, post_norm),
    self_mask=lambda x, real: earlier(x),
    cross_mask=lambda x, real: along_keys(real),
    source=lambda x, memory: memory,
    order=(0, 1, 2),
):
    x, memory, *weights = wide([x, memory, *weights])
    qkv_1, out_1, norm_1, qkv_2, out_2, norm_2, up, down, norm_3 = in_pairs(weights)
    branches = [
        lambda y: multi_head(y, y, self_mask(y, real), n_heads, qkv_1, out_1),
        lambda y: multi_head(y, source(y, memory), cross_mask(y, real), n_heads, qkv_2, out_2),
        lambda y: relu_network(y, up, down),
    ]
    norms = norm_1, norm_2, norm_3
    for i in order:
        x = wiring[i](x, branches[i], lambda z, i=i: norm(z, *norms[i]))
    return x


def decoder_cases(generator: torch.Generator) -> list[Case]:
    draw = partial(numbers, generator=generator)

    def case(aspect, about, B, T, S, n_heads, D, silent=(), real=None, high=0.0):
        """With ``high`` one hidden unit is about that."""
        real = torch.ones(B, S, dtype=torch.bool) if real is None else real
        weights = silenced(random_weights(D, D + 3, 2, generator), *silent)
        weights[13][0] += high  # the bias of ``up``
        return Case(aspect, about, (draw(B, T, D), draw(B, S, D), real, n_heads, *weights))

    B, T, S = sizes(generator, 3)
    real, square = (torch.arange(length) < some_lengths(B, length, generator) for length in (S, 5))
    no_self, no_cross = [1, 7], [4, 7]  # the network gives zeros too
    quiet = "; the other parts give zeros"
    return [
        case("self-attention", f"one sequence, one head{quiet}", 1, 2, 3, 1, 6, no_cross),
        case("self-attention", f"a batch, two heads{quiet}", B, T, S, 2, 8, no_cross),
        case("self-attention", f"as many target as source tokens{quiet}", B, 5, 5, 2, 8, no_cross),
        case(
            "self-attention",
            f"as many target as source tokens, padding{quiet}",
            B,
            5,
            5,
            2,
            8,
            no_cross,
            square,
        ),
        case("self-attention", f"a long sequence{quiet}", 1, number(generator, 520, 560), 3, 2, 8, no_cross),
        case("cross-attention", f"one sequence, one head{quiet}", 1, 2, 3, 1, 6, no_self),
        case("cross-attention", f"a batch, more target than source tokens{quiet}", B, S + T, S, 2, 8, no_self),
        case("cross-attention", f"as many target as source tokens{quiet}", B, 5, 5, 2, 8, no_self),
        case("whole layer", "a batch, three heads, hidden units of 30", B, T, S, 3, 12, high=30.0),
        case("whole layer", "B = T = S = H = Dh: no axis can be told by its size", 4, 4, 4, 4, 16),
        case("padding", f"a batch{quiet}", B, T, S, 2, 8, no_self, real),
        case(
            "padding",
            f"as many target as source tokens, padding on the left{quiet}",
            B,
            5,
            5,
            2,
            8,
            no_self,
            square.flip(1),
        ),
    ]


decoder_layer = Part(
    "decoder_layer",
    {"self-attention": 4, "cross-attention": 4, "whole layer": 4, "padding": 4},
    decoder_cases,
    decoder_reference,
    {
        "the self-attention sees what comes later: a causal mask is missing": partial(
            decoder_reference, self_mask=lambda x, real: None
        ),
        "the source's mask is laid on the target too: `real` is about the memory, the target needs its triangle": (
            partial(decoder_reference, self_mask=lambda x, real: earlier(x) & along_keys(real))
        ),
        "the cross-attention is causal too: every target word may look at the whole source": partial(
            decoder_reference, cross_mask=lambda x, real: earlier(x) & along_keys(real)
        ),
        "the memory is not used: the keys and values of the cross-attention come from it": partial(
            decoder_reference, source=lambda x, memory: x
        ),
        "the cross-attention comes first: it follows the self-attention": partial(decoder_reference, order=(1, 0, 2)),
        **{words: partial(decoder_reference, wiring=(way,) * 3) for words, way in WIRING.items()},
        "x is not added to the result of the cross-attention": partial(
            decoder_reference, wiring=(post_norm, lambda x, branch, normalise: normalise(branch(x)), post_norm)
        ),
        "the source's padding is attended: no query may look at a key that is not real": partial(
            decoder_reference, cross_mask=lambda x, real: None
        ),
    },
    given=("MultiHeadAttention",),
)


# --- the learning rate ---------------------------------------------------------------------------------


def rate_reference(step, d_model, warmup, *, first=1, d_power=-0.5, warm_power=-1.5, choose=min):
    n = step + first
    return float(d_model) ** d_power * choose(n**-0.5, n * float(warmup) ** warm_power)


def rate_cases(generator: torch.Generator) -> list[Case]:
    d_model, d_other = sizes(generator, 2, 8, 99)
    warmup, warmup_other = sizes(generator, 2, 8, 30)
    early, late = sizes(generator, 2, 2, 6), sizes(generator, 2, 40, 99)
    return [
        Case("warm-up", f"update {early[0]}, in the warm-up", (early[0], d_model, warmup)),
        Case("warm-up", f"update {early[1]}, other sizes", (early[1], d_other, warmup_other)),
        Case("decay", f"update {late[0]}, after the warm-up", (late[0], d_model, warmup)),
        Case("decay", f"update {late[1]}, other sizes", (late[1], d_other, warmup_other)),
        Case("first update", "step 0", (0, d_model, warmup)),
        Case("highest", "the last step of the warm-up, whose rate is the highest", (warmup - 1, d_model, warmup)),
    ]


learning_rate = Part(
    "learning_rate",
    {"warm-up": 4, "decay": 3, "first update": 2, "highest": 1},
    rate_cases,
    rate_reference,
    {
        "after the warm-up n * warmup ** -1.5 is the larger of the two, and rises for ever: take the smaller one, min "
        "(or has n ** -0.5 lost its sign?)": partial(rate_reference, choose=lambda falling, rising: rising),
        "in the warm-up n ** -0.5 is the larger of the two: take the smaller one, min (or has warmup ** -1.5 lost its "
        "sign?)": partial(rate_reference, choose=max),
        "step counts from 0, the formula from 1: the first update, step 0, is n = 1": partial(rate_reference, first=0),
        "an exponent has lost its sign: d_model ** -0.5": partial(rate_reference, d_power=0.5),
        "the exponent of warmup is wrong: it is -1.5, so that the two lines meet at n = warmup": partial(
            rate_reference, warm_power=-0.5
        ),
        "d_model is not used": partial(rate_reference, d_power=0),
    },
    needs={"highest": ("warm-up", "decay", "first update")},
)


# --- label smoothing -----------------------------------------------------------------------------------


def even(target: Tensor, V: int, smoothing: float, pad_id: int) -> Tensor:
    return (1 - smoothing) * F.one_hot(target, V) + smoothing / V


def loss_reference(
    logits,
    target,
    smoothing,
    pad_id,
    *,
    q_of=even,
    log_of=lambda logits: logits.double().log_softmax(dim=-1),
    mean=lambda losses, real: losses[real].mean(),
):
    q = q_of(target, logits.shape[-1], smoothing, pad_id)
    return mean(-(q * log_of(logits)).sum(dim=-1), target != pad_id)


def loss_cases(generator: torch.Generator) -> list[Case]:
    draw = partial(numbers, generator=generator)
    B, T, V = sizes(generator, 3, 4, 7)

    def case(aspect, about, smoothing, padded=False, pad_id=0, scale=2.0, shape=(B, T, V)):
        B, T, V = shape
        target = torch.randint(1, V, (B, T), generator=generator)
        target = torch.where(target <= pad_id, target - 1, target)  # any symbol but pad_id
        if padded:
            longest = torch.arange(T) < torch.arange(1, B + 1)[:, None]  # rows of 1, 2, 3, ... real symbols
            target = target.where(longest, pad_id)
        return Case(aspect, about, (draw(B, T, V, scale=scale), target, smoothing, pad_id))

    return [
        case("cross-entropy", "one symbol of three, no smoothing", 0.0, shape=(1, 1, 3)),
        case("cross-entropy", "no padding, no smoothing", 0.0),
        case("cross-entropy", "B = T = V: no axis can be told by its size", 0.0, shape=(4, 4, 4)),
        case("smoothing", "one symbol of three, smoothing 0.3", 0.3, shape=(1, 1, 3)),
        case("smoothing", "no padding, smoothing 0.1", 0.1),
        case("padding", "padding, no smoothing", 0.0, padded=True),
        case("padding", "padding, no smoothing; pad_id is the last symbol", 0.0, padded=True, pad_id=V - 1),
        case("both", "padding, smoothing 0.2", 0.2, padded=True),
        case("both", "padding, smoothing 0.1; pad_id is the last symbol", 0.1, padded=True, pad_id=V - 1),
        case("large logits", "logits of several hundred", 0.1, scale=300.0),
    ]


def over_the_others(target: Tensor, V: int, smoothing: float, pad_id: int) -> Tensor:
    right = F.one_hot(target, V)
    return (1 - smoothing) * right + smoothing / (V - 1) * (1 - right)


def without_padding(target: Tensor, V: int, smoothing: float, pad_id: int) -> Tensor:
    """As in The Annotated Transformer: nothing for the padding symbol, the rest for the V - 2 others."""
    right = F.one_hot(target, V)
    q = (1 - smoothing) * right + smoothing / max(V - 2, 1) * (1 - right)
    q[..., pad_id] = 0
    return q


def smoothed_everywhere(logits, target, smoothing, pad_id):
    real, of_all = target != pad_id, -logits.double().log_softmax(dim=-1).mean(dim=-1)
    return ((1 - smoothing) * nats(logits, target) * real + smoothing * of_all).sum() / real.sum()


smoothed_loss = Part(
    "smoothed_loss",
    {"cross-entropy": 2, "smoothing": 4, "padding": 3, "both": 3, "large logits": 2},
    loss_cases,
    loss_reference,
    {
        "epsilon is spread over the V - 1 wrong symbols: here each of all V gets epsilon / V, the right one too": (
            partial(loss_reference, q_of=over_the_others)
        ),
        "epsilon is spread over V - 2 symbols, none of it on the padding symbol: here each of all V gets epsilon / V": (
            partial(loss_reference, q_of=without_padding)
        ),
        "the right symbol has lost epsilon, but nobody got it: each of the V symbols gets epsilon / V": partial(
            loss_reference, q_of=lambda target, V, smoothing, pad_id: (1 - smoothing) * F.one_hot(target, V)
        ),
        "the smoothing's part of the loss counts padding: leave padding out of both parts": smoothed_everywhere,
        "the sum is divided by all places, padding too: divide by the number of real symbols": partial(
            loss_reference, mean=lambda losses, real: (losses * real).mean()
        ),
        "the mean of each row is taken first, and then the mean of the rows: every real symbol counts as much": partial(
            loss_reference,
            mean=lambda losses, real: ((losses * real).sum(dim=-1) / real.sum(dim=-1)).mean(),
        ),
        "symbol 0 is taken for padding: it is pad_id that is": given(loss_reference, pad_id=lambda pad_id: 0),
        "padding is not ignored: leave out the places where target is pad_id": partial(
            loss_reference, mean=lambda losses, real: losses.mean()
        ),
        "exp overflows for large logits, or the log of 0 is taken: log_softmax avoids both": partial(
            loss_reference, log_of=lambda logits: logits.softmax(dim=-1).log()
        ),
    },
    forbidden={
        "cross_entropy_loss(label_smoothing)": "the option label_smoothing is used: write it out, "
        "-(1 - eps) * ln p of the right symbol - eps * the mean of ln p over all V"
    },
)


# --- beam search ---------------------------------------------------------------------------------------

BOS, EOS = 0, 1
Beam = tuple[float, tuple[int, ...]]  # log P, and the symbols
Found = tuple[tuple[int, ...], float]  # symbols without the first, and what they are worth


class Language:
    """A language given by a table (n, V, V): what follows depends on all symbols so far, by their distance."""

    def __init__(self, table: Any):
        self.table = np.asarray(table, float)
        self.known: dict[tuple[int, ...], np.ndarray] = {}

    def after(self, prefix: tuple[int, ...]) -> np.ndarray:
        """Log-probabilities (V,) of the next symbol."""
        if prefix not in self.known:
            logits = sum(self.table[distance, symbol] for distance, symbol in enumerate(reversed(prefix)))
            self.known[prefix] = logits - np.log(np.exp(logits).sum())
        return self.known[prefix]


def gnmt(length: int, alpha: float) -> float:
    return ((5 + length) / 6) ** alpha


def search(
    language: Language,
    beams: int,
    alpha: float,
    max_length: int,
    *,
    penalty: Callable[[int, float], float] = gnmt,
    chosen: Callable[[list[Beam], int], list[Beam]] = lambda found, beams: found[:beams],
    width: int | None = None,
    goes_on: bool = False,
    both: bool = False,
    first_wins: bool = False,
    total: bool = True,
    unfinished: bool = True,
    enough: Callable[[list[float], float, int], bool] | None = None,
) -> Found:
    """Beam search in plain Python, as the exercise defines it, with places for mistakes.

    Args:
        chosen: of all continuations that may go on, the best first, those that do.
        width: only so many times K continuations may end or go on; with 1 the finished take places among the K.
        goes_on: the end symbol ends nothing.
        both: what has ended is set aside, and goes on as well.
        first_wins: stop as soon as one of the K best ends.
        total: add up the log-probabilities.
        unfinished: at the end these compete too.
        enough: stop, with what has finished, when this is true of the worths of that, of what the best unfinished
            sequence is worth now, and of K.
    """
    alive: list[Beam] = [(0.0, (BOS,))]
    ended: list[Beam] = []
    stopped = False

    def end(found: list[Beam]) -> None:
        ended.extend((log_p / penalty(len(prefix) - 1, alpha), prefix[1:]) for log_p, prefix in found)

    for _ in range(max_length):
        grown = [
            (log_p * total + more, (*prefix, symbol))
            for log_p, prefix in alive
            for symbol, more in enumerate(language.after(prefix).tolist())
        ]
        grown = sorted(grown, reverse=True)[: width and width * beams]
        if not goes_on:
            end([beam for beam in grown if beam[1][-1] == EOS])
            grown = [beam for beam in grown if both or beam[1][-1] != EOS]
        alive = chosen(grown, beams)
        if not alive or (first_wins and ended):
            break
        now = alive[0][0] / penalty(len(alive[0][1]) - 1, alpha)
        if stopped := enough is not None and enough([worth for worth, _ in ended], now, beams):
            break
    if unfinished and not stopped and not (first_wins and ended):
        end(alive)
    worth, symbols = max(ended, default=(-np.inf, ()))
    return symbols, worth


def best_of_each(found: list[Beam], beams: int) -> list[Beam]:
    """For every beginning its own best continuation; at first, the K best of the one beginning."""
    if len(found[0][1]) == 2:
        return found[:beams]
    best: dict[tuple[int, ...], Beam] = {}
    for log_p, prefix in found:
        best.setdefault(prefix[:-1], (log_p, prefix))
    return list(best.values())


PLAIN = {"penalty": lambda length, alpha: 1.0}
ONE = {"chosen": lambda found, beams: found[:1]}
OWN = {"chosen": best_of_each}
MORE = {"chosen": lambda found, beams: found[: beams + 1]}
MANY = {"chosen": lambda found, beams: found[: 8 * beams]}
TOGETHER = {"width": 1}
GOES_ON = {"goes_on": True}
BOTH = {"both": True}
FIRST = {"first_wins": True, "width": 1}
LAST_ONLY = {"total": False}
ENDED_ONLY = {"unfinished": False}
# Rules to stop by, all of them too early:
BEST_NOW = {"enough": lambda ended, now, beams: max(ended, default=-np.inf) > now}
K_NOW = {"enough": lambda ended, now, beams: len(ended) >= beams and sorted(ended)[-beams] > now}
K_ENDED = {"enough": lambda ended, now, beams: len(ended) >= beams}
TOO_EARLY = "the search stops too early: what is alive may still win, since the penalty favours length. Go on for "
SEARCHES: dict[str, dict[str, Any]] = {
    "no length penalty: what a sequence is worth is log P divided by ((5 + |Y|) / 6) ** alpha": PLAIN,
    "the penalty is |Y| ** alpha: it is ((5 + |Y|) / 6) ** alpha": {"penalty": pow},
    "the start symbol is counted in |Y|": {"penalty": lambda length, alpha: gnmt(length + 1, alpha)},
    "one beam alone is followed, whatever K is": ONE,
    "more than K go on: cut all continuations down to the K most likely that have not ended": MORE,
    "finished sequences take places among the K: the K most likely that have not ended go on": TOGETHER,
    "a finished sequence is extended behind its end: set it aside": GOES_ON,
    "a finished sequence is set aside, but goes on as well: only what has not ended goes on": BOTH,
    "log P is that of the last symbol alone: add up those of all symbols": LAST_ONLY,
    "what has not ended after max_length symbols must compete too": ENDED_ONLY,
    TOO_EARLY + "max_length rounds (that what has finished is worth more now is no reason to stop)": BEST_NOW,
    TOO_EARLY + "max_length rounds (that K sequences have finished is no reason to stop)": K_ENDED,
}


def unlike(one: Found, other: Found) -> bool:
    return one[0] != other[0] or abs(one[1] - other[1]) > 1e-2


def any_table(max_length: int, generator: torch.Generator) -> Tensor:
    return numbers(max_length, *[number(generator, 5, 7)] * 2, generator=generator)


def rarely_ending(max_length: int, generator: torch.Generator) -> Tensor:
    table = any_table(max_length, generator)
    table[:, :, EOS] -= 3
    return table


def late_winner(max_length: int, generator: torch.Generator) -> Tensor:
    """Two short sequences lead until a long one, whose later symbols are all but certain, wins by the penalty."""
    symbols = max_length + 2
    first, *chain = [symbols - 1, *range(2, max_length), EOS]  # the long one
    table = 0.1 * numbers(max_length, symbols, symbols, generator=generator)
    table[0, BOS, first] += 5
    table[0, first, [EOS, chain[0]]] += torch.tensor([0.28, 0.45]).log() - np.log(0.27 / (symbols - 2))
    table[0, chain[0], [EOS, chain[1]]] += torch.tensor([0.5, 0.45]).log() - np.log(0.05 / (symbols - 2))
    for symbol, following in itertools.pairwise(chain[1:]):
        table[0, symbol, following] += 8
    return table


def table_for(settings: tuple[int, float, int], seen: list, unseen: list, draw: Callable, generator) -> Tensor:
    """A table on which every mistake of ``seen`` changes the result, and none of ``unseen``.

    Those that do change it differ from each other, so that one is not taken for another, but for the rules that stop
    too early, which are told the same. To let only the 2 K best
    continuations end or go on, a variant that is common too, changes nothing.
    """
    while True:
        table = draw(settings[2], generator)
        found = partial(search, Language(table), *settings)
        right = found()
        if not all(unlike(found(**mistake), right) for mistake in seen):
            continue
        if any(unlike(found(**mistake), right) for mistake in (*unseen, {"width": 2})):
            continue
        told = [mistake for words, mistake in SEARCHES.items() if not words.startswith(TOO_EARLY)]
        wrong = [result for mistake in told if unlike(result := found(**mistake), right)]
        early = [found(**rule) for rule in (BEST_NOW, K_NOW, K_ENDED) if rule in seen]
        pairs = itertools.chain(itertools.combinations(wrong, 2), itertools.product(wrong, early))
        if all(unlike(one, other) for one, other in pairs):
            return table


@by_seed
def beam_cases(generator: torch.Generator) -> list[Case]:
    def case(aspect, about, settings, seen, unseen=(), draw=any_table):
        early = [rule for rule in (BEST_NOW, K_NOW) if rule not in seen]
        table = table_for(settings, [*seen, LAST_ONLY], [*unseen, *early], draw, generator)
        symbols = table.shape[1]
        shift = number(generator, 1, symbols - 1)  # so that neither bos_id is 0 nor eos_id 1
        table = table.roll((shift, shift), (1, 2))
        return Case(aspect, about, (table, *settings, BOS + shift, (EOS + shift) % symbols))

    harmless = [ONE, OWN, TOGETHER, FIRST, ENDED_ONLY]
    late, longer = "the most likely sequence has not ended", "two beams, alpha = 0.6; a long sequence wins late"
    too_early = [BEST_NOW, K_NOW, K_ENDED]
    return [
        case("search", "one beam, no penalty", (1, 0.0, 4), [GOES_ON], harmless),
        case("search", "two beams, no penalty", (2, 0.0, 5), [ONE, K_ENDED], [ENDED_ONLY]),
        case("search", "two beams, no penalty, longer", (2, 0.0, 6), [OWN], [ENDED_ONLY]),
        case("search", "two beams miss the most likely sequence", (2, 0.0, 5), [MORE, MANY], [ENDED_ONLY]),
        case("search", "three beams, no penalty", (3, 0.0, 5), [TOGETHER, FIRST], [ENDED_ONLY]),
        case("search", "more beams than symbols", (12, 0.0, 4), [], [ENDED_ONLY]),
        case("length penalty", "one beam, alpha = 0.6", (1, 0.6, 4), [GOES_ON, PLAIN], harmless),
        case("length penalty", "three beams, alpha = 0.6", (3, 0.6, 5), [GOES_ON, BOTH, PLAIN], harmless),
        case("length penalty", longer, (2, 0.6, 7), too_early, [ONE, OWN, TOGETHER, ENDED_ONLY], late_winner),
        case("end", late, (2, 0.0, 4), [ENDED_ONLY], [ONE, OWN, MORE, TOGETHER, FIRST, GOES_ON], rarely_ending),
    ]


def beam_reference(table, beams, alpha, max_length, bos_id, eos_id, **mistake):
    others = [i for i in range(table.shape[1]) if i not in (bos_id, eos_id)]
    ids = np.array([bos_id, eos_id, *others])  # of the symbols BOS, EOS and so on
    symbols, worth = search(Language(table[:, ids][:, :, ids]), beams, alpha, max_length, **mistake)
    return ids[list(symbols)], worth


beam_search = Part(
    "beam_search",
    {"search": 7, "length penalty": 6, "end": 5},
    beam_cases,
    beam_reference,
    {words: partial(beam_reference, **mistake) for words, mistake in SEARCHES.items()},
)


# --- the translator ------------------------------------------------------------------------------------

SIZES = {"d_model": 64, "n_heads": 2, "d_ff": 256, "n_layers": 2, "dropout": 0.0, "max_length": 80}
SENTENCES = 200


@functools.cache
def vocabulary() -> Vocab:
    return world_vocab()


def translator_cases(generator: torch.Generator) -> list[Case]:
    seed = int(torch.randint(2**31, (1,), generator=generator))
    about = f"{SENTENCES} new sentences"
    return [Case(aspect, about, secret=seed) for aspect in ("BLEU 40", "BLEU 80", "padding")]


class Examined:
    """A translator at work on new sentences."""

    def __init__(self, model: Transformer, seed: int):
        self.model, self.vocab = model, vocabulary()
        unseen = sentences(SENTENCES, "test", seed=seed)
        batch = as_batch(to_ids(unseen, self.vocab))
        self.source, self.mask, self.target, self.real = (
            batch[name] for name in ("source", "source_mask", "target", "target_mask")
        )
        texts = [as_text(self.vocab.decode(ids)) for ids in greedy(model, self.source, self.mask, 60).tolist()]
        self.bleu = bleu(texts, [as_text(s.fr) for s in unseen])

    @torch.inference_mode()
    def logits(self, source: Tensor, mask: Tensor, inputs: Tensor) -> Tensor:
        return self.model.decode(inputs, self.model.encode(source, mask), mask)

    def moved(self, ids: Tensor) -> Tensor:
        """One place to the right, behind the start symbol; the last symbol is kept too."""
        return F.pad(ids, (1, 0), value=self.vocab.bos_id)

    @torch.inference_mode()
    def loss(self, encoder: Tensor, decoder: Tensor) -> float:
        """Mean of - log p over the real symbols, in nats, with these masks (B, S) of the source in either half."""
        logits = self.model.decode(self.moved(self.target)[:, :-1], self.model.encode(self.source, encoder), decoder)
        return F.cross_entropy(logits[self.real], self.target[self.real]).item()

    def why_not(self) -> str:
        """The likely reason for bad translations, in words."""
        copied = self.logits(self.source, self.mask, self.target).argmax(dim=-1) == self.target
        right = self.logits(self.source, self.mask, self.moved(self.target)[:, :-1]).argmax(dim=-1) == self.target
        back = self.logits(self.target, self.real, self.moved(self.source)[:, :-1]).argmax(dim=-1) == self.source
        if copied[self.real].float().mean() > 0.7:
            return (
                "the decoder has learned to copy what it reads: at each place it read the very symbol that it has to "
                "predict. Move the target one place to the right before the decoder reads it"
            )
        if back[self.mask].float().mean() > 0.5:
            return "it translates from French to English: the source is English, the target French"
        if right[self.real].float().mean() < 0.25:
            return (
                "it has hardly learned anything: do the updates reach the weights (backward, then step), are the "
                "gradients set to zero in each, and do you predict the symbol that comes next?"
            )
        if right[:, 0].float().mean() < 0.25 and right[:, 1:][self.real[:, 1:]].float().mean() > 0.6:
            return (
                "it can go on with a sentence, but not begin one: the decoder reads <bos> first, and the first symbol "
                "of the target is to be predicted too"
            )
        return "train longer: a few hundred updates, the learning rate not above 0.01"

    def padding(self) -> str | None:
        """Whether padding took part in the training, in words."""
        place = self.real.sum(dim=1)  # there the decoder has read the end symbol
        logits = self.logits(self.source, self.mask, self.moved(self.target))[torch.arange(len(place)), place]
        if (logits.argmax(dim=-1) == self.vocab.pad_id).float().mean() > 0.5:
            return "it has learned to write padding behind the end: leave padding out of the loss"
        # A model that has never read padding is thrown off: 1.4 times the loss and more (8 trainings); else up to 1.06
        everything = torch.ones_like(self.mask)
        if self.loss(everything, everything) < 1.2 * self.loss(self.mask, self.mask):
            return "it has learned to read the source's padding like words: mask it in the encoder and the decoder"
        return None


examined = once_for_a_model(Examined)
BATCHES = 50  # that the given model itself must have learned from; BLEU 80 takes some hundreds
ENCODER = (
    "the encoder has learned to read the source's padding like words: the mask that model.encode is given has to be "
    "False there (and return the model that train was given)"
)
ANOTHER = (
    "what padding did in the training cannot be seen: the model that learned is not the one that train was given. "
    "Train that one, with model.encode and model.decode, and return it"
)


def judge_translator(case: Case, answers: Sequence[Arrays]) -> str | None:
    """Load the weights into a model of our own and let it translate."""
    model = Transformer(TransformerConfig(len(vocabulary()), **SIZES)).eval()
    if words := put_into(model, answers[-1]):
        return words
    found = examined(model, case.secret)
    if case.aspect == "padding":
        if found.bleu < 80:
            return "it has to translate first: BLEU 80 is asked for"
        # by its loss alone it cannot be told: without the mask in the encoder 0.99 to 1.19 times, else 1.04 and more
        if answers[-1].get("_batches_read", 0) < BATCHES:
            return found.padding() or ANOTHER
        return found.padding() or (ENCODER if answers[-1].get("_padding_read", 1) else None)
    wanted = int(case.aspect.split()[1])
    return None if found.bleu >= wanted else f"BLEU {found.bleu:.0f}, {wanted} is asked for: {found.why_not()}"


train = Part(
    "train",
    {"BLEU 40": 5, "BLEU 80": 7, "padding": 4},
    translator_cases,
    judge=judge_translator,
    result="model",
    seconds=180,
)


# --- a map to read -------------------------------------------------------------------------------------

# Second head of the second layer, in percent, of a translator trained as in part 6 (500 updates, torch.manual_seed(2)).
PERCENT = """
       the small boy didn't carry the red lamp because  it was too heavy   . end
le      95     0   0      0     0   5   0    0       0   0   0   0     0   0   0
petit    0    98   2      0     0   0   0    0       0   0   0   0     0   0   0
garçon   0     1  99      0     0   0   0    0       0   0   0   0     0   0   0
n'       0     0   0      6     0   0   0    0      47   0   3  43     0   0   0
a        1     0   0      0     0   0   0    0      49   6   1   0     0   1  43
pas     11    19   1      0     1  11   0    1       1   3   0   0     0   7  44
porté    0     0   0      0   100   0   0    0       0   0   0   0     0   0   0
la       0     0   0      0     0  99   0    0       0   1   0   0     0   0   0
lampe    0     0   0      0     1   0   4   95       0   0   0   0     0   0   0
rouge    0     0   0      0     0   0 100    0       0   0   0   0     0   0   0
parce    0     0   0      0     0   0   0    0      96   3   1   1     0   0   0
qu'      0     0   0      0     0   0  13    0      46  26   2   2    11   0   1
elle     0     0   0      0     0   1   0    0       1   1  85   5     5   0   2
était    0     0   0      0     0   0   0    0       2   0  60  12    22   1   2
trop     0     0   0      0     0   0  34    1       5   1   0   2    56   0   0
lourde   0     0   0      0     0   0   0    0       0   0   0   0   100   0   0
.        0     0   0      0     0   0   0    0       0   0   0   0     4   0  95
end      0     1   0      0     0   0   2    4       3   2   4   1    70   4  10
"""
ENGLISH, *ROWS = [line.split() for line in PERCENT.strip().splitlines()]
FRENCH = [row[0] for row in ROWS]
HEAD = np.array([row[1:] for row in ROWS], float) / 100  # (T, S)

PARTS = (encoder_layer, decoder_layer, learning_rate, smoothed_loss, beam_search, train)
WRITTEN = {"read_cross_attention": 12}
score = partial(show_score, PARTS, WRITTEN)
