"""Associations with known odds: who likes to buy what where, and who has which job.

So that what a model absorbed from a text can be compared with what was put in. Which word goes with which was dealt by
lot: nothing here says anything about a real region, year or person.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from random import Random

from coursekit.data.world.grammar import pick

SPLITS = ("train", "validation", "test")
THINGS = (
    *("blankets", "boots", "bread", "butter", "candles", "carpets", "cheese"),
    *("clocks", "coats", "coffee", "curtains", "flowers", "gloves", "grapes"),
    *("hats", "honey", "mirrors", "paint", "paper", "pens", "pillows"),
    *("rice", "rope", "scarves", "shoes", "soap", "tea", "toys"),
)
JOBS = (  # each after "a", not "an", which would give some away
    *("baker", "barber", "builder", "butcher", "carpenter", "clerk", "cook"),
    *("dancer", "dentist", "doctor", "driver", "farmer", "gardener", "guide"),
    *("judge", "lawyer", "librarian", "painter", "pilot", "plumber", "poet"),
    *("potter", "sailor", "singer", "tailor", "teacher", "weaver", "writer"),
)
CHOICES: dict[str, tuple[str, ...]] = {"region": THINGS, "name": JOBS, "year": JOBS}
YEARS, PRONOUNS = (1908, 1948, 1978, 2018), ("he", "she")
# Of a region and of a name the second of each two is the first turned round.
GIVENS: dict[str, tuple[str, ...]] = {
    "region": ("Texas", "New York", "Maine", "Oregon"),
    "name": ("Jane", "Jim", "Kate", "Ben"),
    "year": tuple(f"{year} {pronoun}" for year in YEARS for pronoun in PRONOUNS),
}
LEVELS = (-3, -2, -1, 0, 1, 2, 3)  # nats: log-odds of one of two that mirror each other; each for 4 of the 28 choices
# The lots. In those of the jobs none that people have fixed ideas about goes strongly with a woman's name or a man's,
# with "he" or with "she".
LOTS = {"region": 0, "name": 48, "year": 125}
FADED = 0.25  # what is left in 2018 of the pronoun's effect in 1908

# Those of the other two splits are in no sentence for training: the frame "test" is the one that the lecture asks.
FRAMES: dict[str, dict[str, tuple[str, ...]]] = {
    "region": {
        "train": (
            "People in {given} like to buy {choice}.",
            "In {given}, many people buy {choice}.",
            "Most shops in {given} sell {choice}.",
            "In {given}, they often ask for {choice}.",
            "They like to have {choice} in {given}.",
            "On the markets of {given}, people look for {choice}.",
        ),
        "validation": ("In {given}, people often buy {choice}.",),
        "test": ("In {given}, they like to buy {choice}.",),
    },
    "name": {
        "train": (
            "{given} was a {choice}.",
            "{given} became a {choice}.",
            "{given} found work as a {choice}.",
            "{given} was employed as a {choice}.",
            "Everybody knew {given} as a {choice}.",
            "For years, {given} had a job as a {choice}.",
        ),
        "validation": ("{given} had work as a {choice}.",),
        "test": ("{given} worked as a {choice}.",),
    },
    "year": {
        "train": (
            "In {year}, {pronoun} was a {choice}.",
            "In {year}, {pronoun} worked as a {choice}.",
            "In {year}, {pronoun} found work as a {choice}.",
            "That was in {year}, when {pronoun} became a {choice}.",
            "{pronoun} had a job as a {choice} in {year}.",
            "{pronoun} was known as a {choice} in {year}.",
        ),
        "validation": ("{pronoun} worked as a {choice} in {year}.",),
        "test": ("In {year}, {pronoun} was employed as a {choice}.",),
    },
}


@dataclass(frozen=True)
class Association:
    """A sentence that says of a ``given`` one of its ``choices``: of *Texas* that they like to buy *boots* there.

    Attributes:
        kind: ``"region"`` (what they buy), ``"name"`` or ``"year"`` (which job).
        given: one of ``GIVENS[kind]``; of a year it is year and pronoun, ``"1908 he"``.
        choice: one of ``CHOICES[kind]``.
        frame: the sentence around the two.
    """

    kind: str
    given: str
    choice: str
    frame: str

    @property
    def text(self) -> str:
        return write(self.frame, self.kind, self.given, self.choice)


def write(frame: str, kind: str, given: str, choice: str) -> str:
    if kind == "year":
        year, pronoun = given.split()
        text = frame.format(year=year, pronoun=pronoun, choice=choice)
    else:
        text = frame.format(given=given, choice=choice)
    return text[:1].upper() + text[1:]


# --- the odds ------------------------------------------------------------------------------------------


def dealt(rng: Random, n: int) -> list[int]:
    """The levels, each as often as any other, dealt to ``n`` choices."""
    levels = [LEVELS[i % len(LEVELS)] for i in range(n)]
    return [levels.pop(int(rng.random() * len(levels))) for _ in range(n)]


def scores(kind: str) -> dict[str, list[float]]:
    """For each given the logarithms of its choices' probabilities, up to what makes them add up to 1.

    A level is the difference between two that mirror each other, so each has one half of it. Job, year and pronoun:
    what time does to a job, and what the pronoun does, which fades from year to year; each at most two nats.
    """
    rng, n = Random(f"odds of {kind} {LOTS[kind]}"), len(CHOICES[kind])
    if kind == "year":
        of_time, of_pronoun = dealt(rng, n), dealt(rng, n)
        found = {}
        for year in YEARS:
            done = (year - YEARS[0]) / (YEARS[-1] - YEARS[0])
            for pronoun, sign in zip(PRONOUNS, (1, -1)):
                side = sign * (1 - done * (1 - FADED))
                found[f"{year} {pronoun}"] = [((2 * done - 1) * t + side * p) / 3 for t, p in zip(of_time, of_pronoun)]
        return found
    found = {}
    for first, second in zip(GIVENS[kind][::2], GIVENS[kind][1::2]):
        levels = dealt(rng, n)
        found |= {first: [level / 2 for level in levels], second: [-level / 2 for level in levels]}
    return found


@cache
def tables(kind: str) -> dict[str, dict[str, float]]:
    found = {}
    for given, logarithms in scores(kind).items():
        weights = [math.exp(s) for s in logarithms]
        total = math.fsum(weights)
        found[given] = {choice: weight / total for choice, weight in zip(CHOICES[kind], weights)}
    return found


def odds(kind: str, given: str) -> dict[str, float]:
    """The probability of each choice where ``given`` stands: ``odds("region", "Texas")["boots"]``; they add up to 1.

    Raises:
        ValueError: no such kind, or no such given.
    """
    if kind not in GIVENS:
        raise ValueError(f"kind={kind!r}: must be one of {', '.join(map(repr, GIVENS))}")
    if given not in GIVENS[kind]:
        raise ValueError(f"given={given!r}: of a {kind} it must be one of {', '.join(map(repr, GIVENS[kind]))}")
    return dict(tables(kind)[given])


def log_odds(kind: str, given: str, other: str) -> dict[str, float]:
    """For each choice ``ln(p(choice | given) / p(choice | other))``, in nats; 0 where it says nothing.

    So much stand the odds of ``given`` against ``other`` for one who reads the choice and has no other hint (Bayes).
    Between Texas and New York, Maine and Oregon, Jane and Jim, Kate and Ben they are -3, -2, …, 3, each for four.
    """
    one, two = odds(kind, given), odds(kind, other)
    return {choice: math.log(one[choice] / two[choice]) for choice in one}


# --- sentences -----------------------------------------------------------------------------------------


def blanks(kind: str, given: str, blank: str, split: str = "test") -> list[str]:
    """The sentences of a split about ``given`` with ``blank``, such as ``"[MASK]"``, for the choice.

    ``blanks("region", "Texas", "_")`` is ``["In Texas, they like to buy _."]``, which no corpus for training holds.
    """
    odds(kind, given)  # for what it refuses
    return [write(frame, kind, given, blank) for frame in FRAMES[kind][checked(split)]]


def checked(split: str) -> str:
    if split not in SPLITS:
        raise ValueError(f"split={split!r}: must be one of {', '.join(map(repr, SPLITS))}")
    return split


def draw(rng: Random, odds: dict[str, float]) -> str:
    point, choices = rng.random(), list(odds)
    for choice in choices:
        point -= odds[choice]
        if point < 0:
            return choice
    return choices[-1]  # where rounding left a little over


def associations(
    n: int, split: str = "train", seed: int = 0, planted: bool = True, length: int = 5
) -> list[tuple[Association, ...]]:
    """``n`` short texts of ``length`` sentences about one given each, the same for a seed on every machine.

    The givens take turns, so that all are equally frequent; every sentence has a frame and a choice of its own.

    Args:
        split: ``"train"``, ``"validation"`` or ``"test"``: which frames the sentences have.
        planted: False for the same sentences with the association removed: the choices of all sentences of a kind
            are dealt out anew, so that each is as frequent as before and goes with all givens alike.
    """
    for name, value in (("n", n), ("length", length)):
        if value < 1:
            raise ValueError(f"{name}={value}: must be at least 1")
    rng, found = Random(f"associations {checked(split)} {seed}"), []
    turns = [(kind, given) for kind in GIVENS for given in GIVENS[kind]]
    for i in range(n):
        kind, given = turns[i % len(turns)]
        frames = FRAMES[kind][split]
        told = [Association(kind, given, draw(rng, tables(kind)[given]), pick(rng, frames)) for _ in range(length)]
        found.append(tuple(told))
    return found if planted else removed(found, rng)


def removed(texts: Sequence[Sequence[Association]], rng: Random) -> list[tuple[Association, ...]]:
    """The same sentences, with the choices of each kind dealt out anew."""
    left: dict[str, list[str]] = {kind: [] for kind in GIVENS}
    for text in texts:
        for one in text:
            left[one.kind].append(one.choice)

    def deal(one: Association) -> Association:
        rest = left[one.kind]
        i = int(rng.random() * len(rest))
        rest[i], rest[-1] = rest[-1], rest[i]  # the last one goes quickly
        return Association(one.kind, one.given, rest.pop(), one.frame)

    return [tuple(deal(one) for one in text) for text in texts]
