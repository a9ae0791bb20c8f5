"""Pairs of a sentence and a second one that follows from it, speaks against it, or is left open by it.

Claims are put together from what a sentence speaks of, and a judge that knows what it says gives each its label.
What a careful reader could dispute gets none. A set of pairs is drawn so that only reading both sentences helps:
every pair has two partners of its shape with the two other labels.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import product
from random import Random
from typing import Literal

from coursekit.data.world.grammar import (
    Draft,
    Sentence,
    Thing,
    Writer,
    deed_pairs,
    drafted,
    finished,
    of_kind,
    pick,
    split_of_all,
)
from coursekit.data.world.lexicon import ADJECTIVES, CITIES, DAYS, VERBS, Verb
from coursekit.data.world.meaning import USED_UP, exclude, excluding, is_alive, kind_of, near, suiting, suits

Label = Literal["entailment", "neutral", "contradiction"]
DENIALS = ("didn't", "wasn't", "weren't")
LABELS: tuple[Label, ...] = ("entailment", "neutral", "contradiction")


@dataclass(frozen=True)
class Claim:
    """*On Monday, the dog didn't cross the street in Paris.* or *The dog wasn't tired.*"""

    subject: Thing
    negated: bool
    verb: Verb | None = None
    target: Thing | None = None
    adjective: str = ""
    place: str = ""
    day: str = ""

    def drafted(self) -> Draft:
        draft = Draft(Writer())
        if self.day:
            draft.on(self.day)
            draft.add(draft.writer.link(",", ","))
        draft.say(self.subject, "subject")
        if self.verb and self.target:
            draft.add(draft.writer.action(self.verb, self.subject.plural, self.negated))
            draft.say(self.target, "object", self.negated)
            draft.happen(self.verb, self.subject, self.target, self.negated)
        else:
            draft.add(draft.writer.state(self.subject, ADJECTIVES[self.adjective], self.negated))
            draft.judge(self.subject, ADJECTIVES[self.adjective], self.negated)
        if self.place:
            draft.at(self.place)
        draft.add(draft.writer.link(".", "."))
        return draft

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Those of ``drafted()``, the combinations that decide which split it belongs to: they take far less time."""
        done = self.verb and self.target
        return deed_pairs(self.verb, self.target) if done else [(self.subject.label, self.adjective)]

    @property
    def content(self) -> set[str]:
        """What it speaks of, in base forms."""
        words = {self.subject.label, self.adjective, self.place, self.day}
        if self.verb and self.target:
            words |= {self.verb.base, self.target.label}
        return words - {""}


@dataclass(frozen=True)
class Pair:
    """A premise, a hypothesis (tokens) and whether the second follows from the first.

    Attributes:
        split: ``test`` if premise or hypothesis holds a pair of words kept for testing, else ``validation`` likewise.
    """

    premise: Sentence
    hypothesis: tuple[str, ...]
    label: Label
    split: str


# --- what follows --------------------------------------------------------------------------------------


class Reading:
    """What a sentence says, ready to judge claims about it."""

    def __init__(self, premise: Sentence):
        self.premise = premise
        self.place, self.day = premise.facts["place"], premise.facts["day"]
        spoken_of = [thing for event in premise.events for thing in (event.subject, event.target)]
        spoken_of = spoken_of or [premise.states[0].of]
        self.things = {thing.label: thing for thing in spoken_of}
        # what is said of each: adjective and whether it is denied
        self.said: dict[str, list[tuple[str, bool]]] = {label: [] for label in self.things}
        for thing in spoken_of:
            if thing.adjective:
                self.said[thing.label].append((thing.adjective.en, False))
        for state in premise.states:
            self.said[state.of.label].append((state.adjective.en, state.negated))
        animals = [thing for thing in spoken_of if kind_of(thing) == "animal"]
        # two dogs could be meant by "the dog", and the animal could be the dog
        alike = len(self.things) < len(spoken_of) or (len(animals) > 1 and "animal" in self.things)
        self.plain = not alike and all(self.consistent(said) for said in self.said.values())

    @staticmethod
    def consistent(said: list[tuple[str, bool]]) -> bool:
        """Not *the small box was too big*."""
        so = {adjective for adjective, denied in said if not denied}
        return not any(exclude(one, other) for one in so for other in so) and not any((a, True) in said for a in so)

    @cached_property
    def content(self) -> set[str]:
        words = set(self.things) | {self.place, self.day} | {event.verb.base for event in self.premise.events}
        return words | {adjective for said in self.said.values() for adjective, _ in said}

    def judge(self, claim: Claim) -> Label | None:
        """The label of a claim, or None where it could be disputed."""
        return self.judge_event(claim) if claim.verb else self.judge_state(claim)

    def judge_event(self, claim: Claim) -> Label | None:
        events = self.premise.events
        # in "on Monday, the girl who read the book was happy" nothing says when she read it
        day = "" if self.premise.kind == "relative" else self.day
        for number, event in enumerate(events, 1):
            same_deed = event.verb is claim.verb and event.target.label == claim.target.label
            if same_deed and event.subject.label != claim.subject.label and event.verb.base in USED_UP:
                return None  # who ate the apple left none to others
            if not same_deed or event.subject.label != claim.subject.label:
                continue
            # a place stands at the end: of two clauses it belongs to the second, and perhaps to the first
            place = self.place if number == len(events) else ""
            if (self.place and claim.place and not place) or (self.day and claim.day and not day):
                return None
            agreeing = (claim.place, claim.day) == (place, day)
            if event.negated:
                # what did not happen on Monday may have happened on Tuesday; who bought no lamp had none in mind
                disputed = not agreeing or not event.target.definite or (self.place and not place)
                return None if disputed else "entailment" if claim.negated else "contradiction"
            added = (claim.place and not place) or (claim.day and not day)
            other = (claim.place and place != claim.place) or (claim.day and day != claim.day)
            if added:
                return "neutral"
            return None if other else "contradiction" if claim.negated else "entailment"
        return "neutral"

    def judge_state(self, claim: Claim) -> Label | None:
        said, adjective = self.said[claim.subject.label], claim.adjective
        so = [other for other, denied in said if not denied]
        not_so = [other for other, denied in said if denied]
        if adjective in so:
            return "contradiction" if claim.negated else "entailment"
        if any(exclude(adjective, other) for other in so):
            return "entailment" if claim.negated else "contradiction"
        if adjective in not_so:
            return None if self.day else "entailment" if claim.negated else "contradiction"
        unclear = any(near(adjective, other) for other in so + not_so)
        return None if unclear or any(exclude(adjective, other) for other in not_so) else "neutral"


# --- claims --------------------------------------------------------------------------------------------


def as_known(thing: Thing) -> Thing:
    """As a second sentence speaks of it: *a red lamp* is now *the lamp*."""
    return replace(thing, definite=True, adjective=None)


@cache
def other_verbs(verb: Verb, kind: str) -> list[Verb]:
    """What else can be done to a thing of this kind."""
    return [other for other in VERBS if other is not verb and kind in other.objects]


def claims(reading: Reading, rng: Random) -> Iterator[Claim]:
    """Claims about what a sentence speaks of: what it says, turned round, exchanged, or with something new."""
    things = [as_known(thing) for thing in reading.things.values()]
    mentioned = [adjective for said in reading.said.values() for adjective, _ in said]
    for thing in things:
        own = [other for adjective, _ in reading.said[thing.label] for other in excluding(adjective)]
        new = [pick(rng, suiting(kind_of(thing))) for _ in range(2)]
        for adjective in dict.fromkeys(mentioned + own + new):
            if suits(thing, adjective):
                yield from (Claim(thing, negated, adjective=adjective) for negated in (False, True))
    deeds = [(event.verb, as_known(event.target)) for event in reading.premise.events]
    for verb, target in list(deeds):
        deeds += [(verb, Thing(pick(rng, of_kind(*verb.objects)), plural=target.plural))]
        others = other_verbs(verb, kind_of(target))
        deeds += [(pick(rng, others), target)] if others else []
    settings = [("", ""), (reading.place, reading.day), (reading.place or pick(rng, list(CITIES)), "")]
    settings += [("", reading.day or pick(rng, list(DAYS)))]
    for subject in things:
        for verb, target in deeds:
            if is_alive(subject) and kind_of(subject) in verb.subjects:
                place, day = pick(rng, settings)
                for negated in (False, True):
                    yield Claim(subject, negated, verb, target, place=place, day=day)


def judged(reading: Reading, rng: Random) -> Iterator[tuple[Claim, Label]]:
    if reading.plain:
        for claim in claims(reading, rng):
            label = reading.judge(claim)
            if label:
                yield claim, label


def paired(premise: Sentence, claim: Claim, label: Label) -> Pair:
    draft = claim.drafted()
    words = tuple(word.text for word in draft.phrase.en)
    return Pair(premise, words, label, split_of_all([*premise.pairs, *draft.pairs]))


def entailment(premise: Sentence, rng: Random) -> list[Pair]:
    """At most one pair of each label about a sentence, drawn; none where two of its things could be confused."""
    found: dict[Label, list[Claim]] = {label: [] for label in LABELS}
    for claim, label in judged(Reading(premise), rng):
        found[label].append(claim)
    return [paired(premise, pick(rng, found[label]), label) for label in LABELS if found[label]]


# --- a balanced set ------------------------------------------------------------------------------------

SLACK = 3  # by how much a label may be ahead in hypotheses with a new word
COMMON = 16  # no verb or adjective is in more than about one hypothesis of so many
# the verb or adjective of the hypothesis; whether that is denied; whether anything in the premise is
Shape = tuple[str, bool, bool]


class Balance:
    """Gives out pairs three at a time, of one shape and with the three labels.

    Some hypotheses have a word that the premise has not, which within a shape tells one label from another. So it is
    kept as frequent with one label as with the others over the whole set.
    """

    def __init__(self) -> None:
        self.waiting: dict[Shape, dict[Label, dict[bool, list[Pair]]]] = {}
        self.new: Counter[Label] = Counter()  # how many had a new word

    def add(self, pair: Pair, shape: Shape, new: bool) -> None:
        by_label = self.waiting.setdefault(shape, {label: {True: [], False: []} for label in LABELS})
        by_label[pair.label][new].append(pair)

    def take(self, shape: Shape) -> list[Pair]:
        """One pair of each label, or none as long as one is missing or would tip the balance."""
        by_label = self.waiting[shape]
        offers = [[new for new in (True, False) if by_label[label][new]] for label in LABELS]

        def tipped(choice: tuple[bool, ...]) -> int:
            counts = [self.new[label] + new for label, new in zip(LABELS, choice)]
            return max(counts) - min(counts)

        choices = sorted(product(*offers), key=tipped)
        if not choices or tipped(choices[0]) > SLACK:
            return []
        self.new.update(dict(zip(LABELS, choices[0])))
        return [by_label[label][new].pop() for label, new in zip(LABELS, choices[0])]


def entailments(n: int, split: str = "train", seed: int = 0) -> list[Pair]:
    """``n`` different pairs of a split, the three labels equally frequent, the same for a seed on every machine.

    Each triple shares the verb or adjective of the hypothesis and whether that is negated, and whether anything in
    the premise is. Claims about events stand beside premises with two clauses, of which one may be exchanged for
    the other; claims about states beside any.

    Args:
        split: ``"train"``, ``"validation"`` or ``"test"``, by the pairs of words of premise and hypothesis.
    """
    if split not in ("train", "validation", "test"):
        raise ValueError(f"split={split!r}: must be 'train', 'validation' or 'test'")
    rng, balance = Random(f"entailments {split} {seed}"), Balance()
    found: list[Pair] = []
    seen: set[tuple[tuple[str, ...], tuple[str, ...]]] = set()
    used: Counter[str] = Counter()
    for _ in range(1000 + 300 * n):
        draft, *rest = drafted(rng)
        if split_of_all(draft.pairs) not in ("train", split):
            continue
        premise = finished(draft, *rest)
        reading = Reading(premise)
        denied = any(word in DENIALS for word in premise.en)
        fitting: dict[tuple[Label, bool, bool], list[Claim]] = {}
        for claim, label in judged(reading, rng):
            new = not claim.content <= reading.content
            if claim.adjective or (len(premise.events) == 2 and not new):
                fitting.setdefault((label, bool(claim.adjective), new), []).append(claim)
        for (label, _, new), some in fitting.items():
            claim = pick(rng, some)
            word = claim.verb.base if claim.verb else claim.adjective
            if used[word] * COMMON > n or split_of_all([*premise.pairs, *claim.pairs]) != split:
                continue
            pair = paired(premise, claim, label)
            if (premise.en, pair.hypothesis) in seen:
                continue
            seen.add((premise.en, pair.hypothesis))
            shape = (word, claim.negated, denied)
            balance.add(pair, shape, new)
            triple = balance.take(shape)
            used[word] += len(triple)
            while triple:
                found.append(triple.pop(int(rng.random() * len(triple))))
        if len(found) >= n:
            return found[:n]
    raise ValueError(f"n={n}: only {len(found)} different pairs of this split were found")
