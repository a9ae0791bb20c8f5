"""What the checks of several exercises share: draws, references, judges, and layers with places for mistakes."""

import functools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from coursekit.grading.calls import Arrays, Seed
from coursekit.grading.parts import Case

# --- what cases are drawn from -------------------------------------------------------------------------

FAR = 2.0**62  # a score is this squared, or 0 and what the other entries give: exact in every order of adding up


def numbers(*shape: int, generator: torch.Generator, scale: float = 1.0) -> torch.Tensor:
    return scale * torch.randn(shape, generator=generator)


def sizes(generator: torch.Generator, number: int, least: int = 3, most: int = 6) -> list[int]:
    """Different sizes, so that no axis can be taken for another."""
    if number > most - least + 1:
        raise ValueError(f"{number} different sizes from {least} to {most}: there are {most - least + 1}")
    return (least + torch.randperm(most - least + 1, generator=generator)[:number]).tolist()


def number(generator: torch.Generator, least: int, most: int) -> int:
    return int(torch.randint(least, most + 1, (1,), generator=generator))


def share(generator: torch.Generator, least: float, most: float) -> float:
    """With two decimals."""
    return number(generator, round(100 * least), round(100 * most)) / 100


def by_seed(make: Callable[[torch.Generator], list[Case]]) -> Callable[[torch.Generator], list[Case]]:
    """Cases that take some trying: made anew only for a seed that has not been drawn before."""
    known = functools.lru_cache(maxsize=128)(lambda seed: make(torch.Generator().manual_seed(seed)))
    return lambda generator: known(int(torch.randint(2**31, (1,), generator=generator)))


def some_allowed(*shape: int, generator: torch.Generator) -> torch.Tensor:
    """A mask with at least two True and one False in each row (of at least three)."""
    order = torch.rand(shape, generator=generator).argsort(dim=-1)
    kept = torch.randint(2, shape[-1], (*shape[:-1], 1), generator=generator)
    return order < kept


def random_weights(D: int, d_ff: int, attentions: int, generator: torch.Generator) -> list[Tensor]:
    """Weight and bias of all modules, none of them zeros: attentions and their norms, then the network and its norm."""

    def linear(d_out: int, d_in: int) -> list[Tensor]:
        return [numbers(*shape, generator=generator, scale=0.3) for shape in ((d_out, d_in), (d_out,))]

    def of_norm() -> list[Tensor]:  # a scale far from 0: a variance that eps changes is left to cases of its own
        return [0.7 + 0.6 * torch.rand(D, generator=generator), numbers(D, generator=generator, scale=0.5)]

    found = []
    for _ in range(attentions):
        found += [*linear(3 * D, D), *linear(D, D), *of_norm()]
    return [*found, *linear(d_ff, D), *linear(D, d_ff), *of_norm()]


def silenced(weights: Sequence[Tensor], *places: int) -> list[Tensor]:
    """Zeros in the layers at these places, so that their branches add nothing."""
    return [torch.zeros_like(w) if i // 2 in places else w for i, w in enumerate(weights)]


# --- references: their options are places for mistakes -------------------------------------------------


def wide(arguments: Sequence[Any]) -> list[Any]:
    """With numbers of 64 bits."""
    return [a.double() if isinstance(a, Tensor) and a.is_floating_point() else a for a in arguments]


def log_p(scores: np.ndarray) -> np.ndarray:
    return scores - max(scores) - np.log(sum(np.exp(s - max(scores)) for s in scores))


def nats(logits: Tensor, target: Tensor) -> Tensor:
    """- ln p of ``target`` (...) by ``logits`` (..., V)."""
    return -logits.double().log_softmax(dim=-1).gather(-1, target[..., None])[..., 0]


def mean_of_means(each: Tensor, counts: Tensor) -> Tensor:
    """Of rows, in which ``counts`` is True where something counts."""
    return ((each * counts).sum(dim=1) / counts.sum(dim=1)).mean()


def softmax_reference(scores, mask):
    """Zeros where nothing is allowed."""
    return scores.double().masked_fill(~mask, -torch.inf).softmax(dim=-1).nan_to_num(0)


def quotient(e: Tensor, mask: Tensor) -> Tensor:
    e = e * mask
    return e / e.sum(dim=-1, keepdim=True)


SOFTMAXES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "the highest score is a masked one: taken as the maximum, it makes the allowed ones vanish, and if it is not, its "
    "exp may be inf, and inf times 0 is nan; put -inf at the masked places first": (
        lambda scores, mask: quotient((scores - scores.amax(dim=-1, keepdim=True)).exp(), mask)
    ),
    "the weights of a row no longer sum to 1: mask the scores before the softmax, not the weights after it": (
        lambda scores, mask: scores.softmax(dim=-1) * mask
    ),
    "the softmax runs over the wrong axis: each row, the last axis, sums to 1": lambda scores, mask: (
        scores.masked_fill(~mask, -torch.inf).softmax(dim=-2).nan_to_num(0)
    ),
    "exp overflows for large scores: subtract the highest allowed score of each row first, or fill with -inf "
    "and let torch.softmax do it": lambda scores, mask: quotient(scores.exp(), mask),
    "exp overflows for large scores: subtract each row's highest allowed score first, or let torch.softmax do it": (
        lambda scores, mask: quotient(scores.masked_fill(~mask, -torch.inf).exp(), mask)
    ),
}


def smallest_set(shares: Tensor, mass: float, inside: Callable[..., Tensor], descending: bool = True) -> Tensor:
    """True where the last axis's largest shares are, of which ``inside`` tells, in their order, which are kept."""
    ordered, order = shares.sort(dim=-1, descending=descending)
    return torch.zeros_like(shares, dtype=torch.bool).scatter(-1, order, inside(ordered, mass))


def before_it(ordered: Tensor, mass: float) -> Tensor:
    """Those before which less than the mass is reached."""
    return ordered.cumsum(dim=-1) - ordered < mass


def without_the_last(ordered: Tensor, mass: float) -> Tensor:
    """The one that crosses the mass is left out."""
    return ordered.cumsum(dim=-1) < mass


def not_undone(shares: Tensor, mass: float) -> Tensor:
    """The places in the sorted order."""
    return before_it(shares.sort(dim=-1, descending=True).values, mass)


def votes_reference(features, labels, queries, k, temperature, classes) -> np.ndarray:
    features, queries = np.asarray(features, float), np.asarray(queries, float)
    result = np.zeros((len(queries), classes))
    for i, query in enumerate(queries):
        cosines = [x @ query / np.sqrt((x @ x) * (query @ query)) for x in features]
        for row in sorted(range(len(features)), key=lambda row: -cosines[row])[:k]:
            result[i, int(labels[row])] += np.exp(cosines[row] / temperature)
    return result


def cosines_of(features: Tensor, queries: Tensor) -> Tensor:
    return F.normalize(queries, dim=-1) @ F.normalize(features, dim=-1).T


def votes_with(
    near: Callable[[Tensor, Tensor], Tensor] = cosines_of,
    weigh: Callable[[Tensor, float], Tensor] = lambda near, temperature: (near / temperature).exp(),
    choose: Callable[[Tensor, int], Tensor] = lambda near, k: near.topk(k).indices,
    add: bool = True,
    after: Callable[[Tensor], Tensor] = lambda votes: votes,
):
    """The votes of neighbours with something else in them; ``near`` is (m, n)."""

    def mistake(features, labels, queries, k, temperature, classes):
        likeness = near(*wide([features, queries]))
        rows = choose(likeness, k)  # (m, k)
        weights, chosen = weigh(likeness.gather(1, rows), temperature), labels[rows]
        votes = weights.new_zeros(len(queries), classes)
        if add:
            return after(votes.scatter_add(1, chosen, weights))
        for i, j in np.ndindex(*rows.shape):
            votes[i, chosen[i, j]] = weights[i, j]
        return after(votes)

    return mistake


def softmax_cases(generator: torch.Generator, extreme: str) -> list[Case]:
    """Those of exercises 02 and 03; ``extreme`` is the aspect of very high and low scores."""
    draw, allow = partial(numbers, generator=generator), partial(some_allowed, generator=generator)
    B, T, S = sizes(generator, 3)
    everything = partial(torch.ones, dtype=torch.bool)
    highest_masked = torch.tensor([[1000.0, 0.0, 1.0], [2.0, 1000.0, 0.0]])
    low = torch.full((2, 3), -1e38 * share(generator, 0.3, 1))  # equal: what is masked wins if it gets a higher number
    allowed = torch.tensor([[False, True, True], [True, False, True]])
    return [
        Case("softmax", "nothing is masked", (draw(B, S), everything(B, S))),
        Case("softmax", "nothing is masked, as many rows as columns", (draw(4, 4), everything(4, 4))),
        Case("mask", "some positions are masked", (draw(B, S), allow(B, S))),
        Case("mask", "scores (B, T, S), mask (B, 1, S)", (draw(B, T, S, scale=2), allow(B, 1, S))),
        Case("mask", "all scores are negative", (-5 - draw(B, S).abs(), allow(B, S))),
        Case(extreme, "scores around 1,000", (1000 + draw(B, S), allow(B, S))),
        Case(extreme, "the highest score is masked", (highest_masked + draw(2, 3), allowed)),
        Case(extreme, "equal scores, far below -10,000,000,000", (low, allowed)),
    ]


def scaled_scores(query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
    scores = query @ key.mT / query.shape[-1] ** 0.5
    return scores if mask is None else scores.masked_fill(~mask, -torch.inf)


def filled_with(low: float, add: bool = False) -> Callable[..., Tensor]:
    """Weights of scores that are set to a number where they are forbidden, or to which it is added."""

    def weigh(query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
        scores = scaled_scores(query, key, None)
        return (scores if mask is None else torch.where(mask, scores, add * scores + low)).softmax(dim=-1)

    return weigh


def scaled_weights(query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
    return scaled_scores(query, key, mask).softmax(dim=-1).nan_to_num(0)


def scaled_by(factor: Callable[..., float]) -> Callable[..., Tensor]:
    """Weights of scores that are multiplied by a factor of queries and keys, instead of 1 / sqrt(Dh)."""
    return lambda query, key, mask: scaled_weights(query * query.shape[-1] ** 0.5 * factor(query, key), key, mask)


def apart(x: Tensor, n_heads: int) -> Tensor:
    """(B, T, H Dh) -> (B, H, T, Dh)."""
    return x.unflatten(-1, (n_heads, -1)).transpose(1, 2)


def together(heads: Tensor) -> Tensor:
    """(B, H, T, Dh) -> (B, T, H Dh)."""
    return heads.transpose(1, 2).flatten(2)


def thirds(qkv: Tensor, n_heads: int) -> list[Tensor]:
    return [apart(part, n_heads) for part in qkv.chunk(3, dim=-1)]


def viewed_thirds(qkv: Tensor, n_heads: int) -> list[Tensor]:
    return [x.reshape(len(x), n_heads, x.shape[1], -1) for x in qkv.chunk(3, dim=-1)]


VIEWED = (
    "the heads are cut by a view alone, which mixes positions and heads: make it (B, T, H, Dh) first, then swap the "
    "axes T and H"
)


# --- layers: wirings, and a norm with places for mistakes ----------------------------------------------


def in_pairs(weights: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Weight and bias of each module."""
    return list(zip(weights[::2], weights[1::2], strict=True))


def norm(z, weight, bias, *, eps: float = 1e-5, dim: int = -1, correction: int = 0, outside: bool = False) -> Tensor:
    """The layer norm; ``outside``: eps is added to the root."""
    variance = z.var(dim, keepdim=True, correction=correction)
    root = variance.sqrt() + eps if outside else (variance + eps).sqrt()
    return weight * (z - z.mean(dim, keepdim=True)) / root + bias


def post_norm(x: Tensor, branch: Callable[[Tensor], Tensor], normalise: Callable[[Tensor], Tensor]) -> Tensor:
    return normalise(x + branch(x))


def pre_norm(x, branch, normalise):
    return x + branch(normalise(x))


# --- judges --------------------------------------------------------------------------------------------


def judge_zeros(case: Case, answers: Sequence[Arrays]) -> str | None:
    scores, mask = case.arguments
    small = (answers[-1]["value"][~mask.expand_as(scores).numpy()] != 0).any()
    return "a masked position has a small weight: it must be exactly 0" if small else None


def judge_draws(case: Case, answers: Sequence[Arrays], names: Sequence[str]) -> str | None:
    """Whether the draws come from the generator, all of them, and from nothing else."""
    if len(answers) < 2 or case.secret not in ("same", "other"):
        return None
    before, now = answers[-2], answers[-1]
    unchanged = [np.array_equal(before.get(name), now[name]) for name in names]
    if case.secret == "same" and not all(unchanged):
        return "the same generator state gave another result: draw from the generator you are given, nothing else"
    if case.secret == "other" and any(unchanged):
        return (
            "another generator, or the same one later, gave the same result: it must come from the generator you are "
            "given, not from one with a seed of its own or from no draw at all"
        )
    return None


RARE = 1e-7  # the chance that a right answer is found wrong by one question about its draws
AGAIN = 120  # seeds: with each the answer is called, and called twice
COPIED = "a second call with the same generator gives the same again: draw from the generator itself, not from a copy"
FEW = "two generators gave the same result: all draws come from the generator, not from a number that has few values"


def again(aspects: Sequence[str], about: str, arguments: Sequence[Any], generator: torch.Generator) -> list[Case]:
    """Small calls, again and again, and for each aspect one more, with which they are judged, see ``all_of``."""

    def case(aspect: str, seed: int, calls: int = 1, secret: Any = "more") -> Case:
        which = ", the second call" if calls > 1 else ""
        return Case(
            aspect, f"{about}, again and again{which}", (*arguments, Seed(seed, 0, calls)), "", secret, easy=True
        )

    seeds = torch.randint(2**31, (AGAIN,), generator=generator).tolist()
    pairs = [case(aspects[0], seed, calls) for calls in (1, 2) for seed in seeds]
    return [*pairs, *(case(aspect, seeds[0], secret=("again", i)) for i, aspect in enumerate(aspects))]


def latest(answers: Sequence[Arrays], times: int, name: str) -> list[np.ndarray]:
    """The result of this name of the last so many calls, whose arguments differ in nothing but the generator.

    Empty if one of them is missing or of another size, or if all of them are the same: what has nothing to do with the
    generator is told elsewhere.
    """
    found = [answer[name] for answer in answers[-times:] if name in answer]
    if (
        len(found) < times
        or len({one.shape for one in found}) > 1
        or all(np.array_equal(one, found[0]) for one in found)
    ):
        return []
    return found


def all_of(case: Case, answers: Sequence[Arrays], names: str) -> list[np.ndarray]:
    """What came back, under these names, from all calls that ``again`` makes: the first ones, then the second ones.

    Empty where ``latest`` is for one of the names.
    """
    before = answers[: len(answers) - 1 - case.secret[1]]
    columns = [latest(before, 2 * AGAIN, name) for name in names]
    return [np.stack(column) for column in columns] if all(columns) else []


def judge_copies(columns: Sequence[np.ndarray]) -> str | None:
    """Whether the generator goes on from call to call, and every generator gives something else."""
    results = [
        b"".join(parts) for parts in zip(*([one.tobytes() for one in column] for column in columns), strict=True)
    ]
    if sum(first == second for first, second in zip(results[:AGAIN], results[AGAIN:], strict=True)) > AGAIN / 2:
        return COPIED
    return FEW if len(set(results)) < len(results) else None


def unlikely(found: np.ndarray, n: np.ndarray, chance: Any) -> bool:
    """Whether one of these counts, each of n independent draws, is off by more than chance does.

    Chernoff's bound says how far it may be, ``P(share beyond q) <= exp(-n KL(q, p))``. It holds for any n and p, which
    a number of standard deviations does not.
    """
    q = found / np.maximum(n, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        far = np.nan_to_num(q * np.log(q / chance)) + np.nan_to_num((1 - q) * np.log((1 - q) / (1 - chance)))
    return bool((n * far > np.log(2 * max(np.size(q), 1) / RARE)).any())


def tied(draws: np.ndarray, chances: float | Sequence[float]) -> bool:
    """Whether some two of several things, all of them drawn again and again, depend on each other.

    For every pair of things, and every pair of kinds: how often the second thing was of the one kind while the first
    was of the other. Where all kinds are equally likely, also how often the kinds were so far apart.

    Args:
        draws: (times, things): which kind each thing was, a whole number, -1 where it was not drawn. Whether it is
            drawn may depend on things before it.
        chances: of the kinds, the same for every thing; one number if all are equally likely.
    """
    times, things = draws.shape
    p = np.full(round(1 / chances), chances) if isinstance(chances, float) else np.asarray(chances)
    kinds = len(p)
    here = (draws[..., None] == np.arange(kinds)).astype(np.float32).reshape(times, -1)
    first, second = np.triu_indices(things, 1)
    both = (here.T @ here).reshape(things, kinds, things, kinds).swapaxes(1, 2)[first, second]  # (pairs, kinds, kinds)
    n = (here.T @ (draws >= 0).astype(np.float32)).reshape(things, kinds, things).swapaxes(1, 2)[first, second]
    if unlikely(both, n[..., None], p):
        return True
    if p.max() - p.min() > 1e-9:
        return False
    k = np.arange(kinds)
    apart = np.stack([both[:, k, (k + gap) % kinds].sum(axis=1) for gap in k], axis=1)  # (pairs, kinds)
    return unlikely(apart, n.sum(axis=1)[:, None], p[0])


def tied_neighbours(draws: np.ndarray, chances: float | Sequence[float]) -> bool:
    """Whether neighbours along the last axis depend on each other, wherever they stand: 0 and 1, 2 and 3, ... or 1 and
    2, 3 and 4, ..."""
    rows = [draws[..., start : start + (draws.shape[-1] - start) // 2 * 2] for start in (0, 1)]
    return any(tied(row.reshape(-1, 2), chances) for row in rows)


def dealt(draws: np.ndarray, kinds: int) -> bool:
    """Whether those of a row are alike more seldom, or more often, than if each were drawn by itself: as from a deck.

    Two of them are alike with the chance 1 / kinds, and any two pairs independently of each other; so the variance of
    the number of pairs is known, and eight standard deviations are allowed.

    Args:
        draws: (rows, things), -1 where a thing was not drawn.
    """
    counts = np.stack([(draws == kind).sum(axis=1) for kind in range(kinds)], axis=1)
    alike, pairs = (counts * (counts - 1) / 2).sum(), (counts.sum(axis=1) * (counts.sum(axis=1) - 1) / 2).sum()
    return bool(abs(alike - pairs / kinds) > 8 * (pairs * (1 - 1 / kinds) / kinds) ** 0.5)


def chosen_together(draws: np.ndarray, chance: float) -> bool:
    """Whether some two of the things (times, things) are chosen together more or less often than by this chance."""
    pairs = np.triu_indices(draws.shape[1], 1)
    together = (draws.T.astype(float) @ draws)[pairs]
    return unlikely(together, np.full(len(together), len(draws)), chance)


def equally_likely(counts: np.ndarray) -> bool:
    return not unlikely(counts, np.full(len(counts), counts.sum()), 1 / len(counts))
