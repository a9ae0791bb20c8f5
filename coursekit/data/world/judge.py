"""A judge of stories: it parses a text into statements, from the words alone, and checks whether they hold.

It knows the ways of saying things (``events.EVENTS``) and what is always true, but not how a story was made. It reads
one sentence after another, as you would: who is meant, what happens, and whether that is possible after all that
happened before. Faults are counted by kind:

- ``name``: somebody acts who was never introduced, or is introduced twice;
- ``pronoun``: it fits nobody, or not whom it must mean;
- ``place``: somebody does something where they are not, in another town, or where such things do not happen;
- ``possession``: somebody loses, gives or mourns what is not theirs, or what was never spoken of;
- ``quality``: a thing cannot look like that, or looks different from before;
- ``deed``: anything else that cannot be: a promise kept that was never given, a smith who sells scarves.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache

from coursekit.data.world.events import CONNECTIVES, EVENTS, EventKind, Facts
from coursekit.data.world.lexicon import ADJECTIVES
from coursekit.data.world.plots import PERSONS, SLOT, THING_SLOTS, subject_slot
from coursekit.data.world.words import (
    ANIMALS,
    CHORES,
    JOBS,
    NAMES,
    OBJECT,
    OWN_ADJECTIVES,
    PLACES,
    POSSESSIVE,
    THINGS,
    TOO,
    TOWNS,
    TROUBLES,
    WEATHER,
    WEEK,
    clash,
    fits,
)

KINDS = ("name", "pronoun", "place", "possession", "quality", "deed")
KIND_OF = {
    **dict.fromkeys(("at", "in", "lives", "haunts", "works", "happens", "going"), "place"),
    **dict.fromkeys(("with", "owner"), "possession"),
    **dict.fromkeys(("looks", "too", "is", "loves"), "quality"),
}
DESCRIBING = sorted({*ADJECTIVES, *OWN_ADJECTIVES, *(word for words in TOO.values() for word in words)})


# --- sentences as patterns ------------------------------------------------------------------------------------


def one_of(words) -> str:
    return "(?:" + "|".join(map(re.escape, sorted(words, key=len, reverse=True))) + ")"


WHO = one_of([*NAMES, *(f"the {animal}" for animal in ANIMALS)])
ARTICLE = "(?:a (?![aeiou])|an (?=[aeiou]))"
THING = f"(?:{one_of(DESCRIBING)} )?{one_of(THINGS)}"


def slot_pattern(slot: str) -> str:
    """What may stand in a slot."""
    letter = slot.replace("'s", "").strip("!*")[-1]
    if slot == "they":
        return f"(?:they|{WHO} and {WHO})"
    if letter in PERSONS:
        if slot.startswith("a "):
            return ARTICLE + one_of(ANIMALS)
        if slot.endswith("'s"):
            return f"(?:{WHO}'s|her|his|its)"
        return {"!": WHO, "*": f"(?:{WHO}|her|him|it)"}.get(slot[-1], f"(?:{WHO}|she|he|it)")
    if letter in THING_SLOTS:
        return {"a": ARTICLE + THING, "t": f"(?:it|the {THING})"}.get(slot[0], THING)
    words = {
        "P": [phrases[slot.split()[0]] for phrases in PLACES.values()] if letter == "P" else (),
        "K": TOWNS,
        "L": TOWNS,
        "D": WEEK,
        "J": JOBS,
        "W": [phrase for phrase, _ in WEATHER.values()],
        "X": DESCRIBING,
        "Y": [trouble[0] for trouble in TROUBLES.values()],
        "Z": CHORES.values(),
    }
    return one_of(words[letter])


@dataclass(frozen=True)
class Pattern:
    """A way of saying an event, for reading: its slots are the groups of ``text`` in order.

    Attributes:
        words: what is in every such sentence, by which most are passed over quickly.
        acting: the slot of the subject.
    """

    event: str
    text: re.Pattern
    slots: tuple[str, ...]
    words: str
    acting: str


@cache
def patterns() -> tuple[Pattern, ...]:
    """All ways of saying all events."""
    found = []
    for name, event in EVENTS.items():
        for way in event.ways:
            text, fixed = "", [""]
            for part in re.split(r"(\([^()]*\)|\{[^}]*\})", way.removeprefix("~")):
                if part.startswith("("):
                    text += "(?:" + "|".join(map(re.escape, part[1:-1].split("|"))) + ")"
                elif part.startswith("{"):
                    text += f"({slot_pattern(part[1:-1])})"
                else:
                    text += re.escape(part)
                    fixed.append(part)
            if way.startswith("~"):
                text = f"{one_of(CONNECTIVES)}?{text}"
            slots = tuple(SLOT.findall(way))
            found.append(Pattern(name, re.compile(text), slots, max(fixed, key=len), subject_slot(way)))
    return tuple(found)


def split_sentences(text: str) -> list[str]:
    """Sentences with their full stop; one inside of a quotation is a part of the one around it."""
    ends = [m.end() for m in re.finditer(r'[.!?]"?(?= +[A-Z"])', text) if text[: m.end()].count('"') % 2 == 0]
    return [text[a:b].strip() for a, b in zip([0, *ends], [*ends, len(text)]) if text[a:b].strip()]


# --- what is found --------------------------------------------------------------------------------------------


@dataclass
class Reading:
    """One sentence as it was understood.

    Attributes:
        event: what it says, or ``""`` where no way of saying anything fits.
        checks: how many statements it makes: each name, pronoun and description, and each fact that it rests on.
        faults: (kind, why) of each that does not hold.
    """

    sentence: str
    event: str = ""
    slots: dict[str, str] = field(default_factory=dict)
    checks: int = 0
    faults: list[tuple[str, str]] = field(default_factory=list)
    here: list[str] = field(default_factory=list)  # who is named
    looks: dict[str, str] = field(default_factory=dict)
    thing: str = ""  # the last one, of this sentence or the one before
    named: str = ""  # the last one of this sentence
    topic: str = ""


@dataclass
class StoryReader:
    """What a reader remembers."""

    state: Facts = field(default_factory=Facts)
    looks: dict[str, str] = field(default_factory=dict)  # of every thing that was spoken of
    topic: str | None = ""  # the subject of the sentence before; None where that was not understood
    near: list[str] = field(default_factory=list)
    thing: str = ""
    town: str = ""

    def knows(self, who: str) -> bool:
        return ("known", who) in self.state.facts.get("known", {})

    def read(self, sentence: str) -> Reading:
        """Understand one sentence, in the way with the fewest faults and then the most statements, and believe it."""
        found = []
        for text in dict.fromkeys((sentence, sentence[0].lower() + sentence[1:])):
            for pattern in patterns():
                if pattern.words in text and (match := pattern.text.fullmatch(text)):
                    found.append(self.understand(sentence, pattern, match.groups()))
        if not found:
            self.topic, self.thing = None, ""
            return Reading(sentence)
        best = min(found, key=lambda reading: (len(reading.faults), -reading.checks))
        self.believe(best)
        return best

    def believe(self, reading: Reading) -> None:
        event = EVENTS[reading.event]
        for thing, adjective in reading.looks.items():
            self.looks[thing] = adjective or self.looks.get(thing, "")
        for who in reading.here:
            self.state.add(("known", who))
        self.state.happen(event, reading.slots)
        self.topic, self.near, self.thing = reading.topic, reading.here or self.near, reading.named
        if "K" in reading.slots:
            self.town = self.town or reading.slots["K"]
        if "L" in reading.slots and ("in", "L") in event.makes:
            self.town = reading.slots["L"]

    def understand(self, sentence: str, pattern: Pattern, words: Sequence[str]) -> Reading:
        """Who and what is meant, and what of it cannot be."""
        reading = Reading(sentence, pattern.event, thing=self.thing)
        event = EVENTS[pattern.event]
        new = {fact[1] for fact in event.makes if fact[0] == "known"}
        for slot, word in zip(pattern.slots, words):
            letter = slot.replace("'s", "").strip("!*")[-1]
            if slot == "they":
                self.both(reading, word)
            elif letter in PERSONS:
                subject = reading.slots.get(pattern.acting, "")
                self.somebody(reading, slot, letter, word, subject, letter in new)
            elif letter in THING_SLOTS:
                self.something(reading, slot, letter, word)
            else:
                self.settle(reading, "place", letter, meaning(letter, slot, word))
        who = [reading.slots[letter] for letter in PERSONS if letter in reading.slots]
        self.check(reading, len(set(who)) == len(who), "name", f"{' and '.join(who)}: the same")
        if (town := reading.slots.get("K")) and self.town:
            self.check(reading, town == self.town, "place", f"{town} instead of {self.town}")
        self.topic_after(reading, pattern)
        self.hold(reading, event)
        return reading

    def topic_after(self, reading: Reading, pattern: Pattern) -> None:
        if "they" in pattern.slots:
            reading.topic = ""
        elif pattern.acting:
            reading.topic = reading.slots.get(pattern.acting, "")
        else:
            reading.topic = "" if set(reading.here) - {self.topic} else self.topic

    def check(self, reading: Reading, holds: bool, kind: str, why: str) -> None:
        reading.checks += 1
        if not holds:
            reading.faults.append((kind, why))

    def settle(self, reading: Reading, kind: str, letter: str, word: str) -> None:
        """A slot that comes twice is the same both times."""
        before = reading.slots.setdefault(letter, word)
        if before != word:
            self.check(reading, False, kind, f"{word} instead of {before}")

    # --- who

    def somebody(self, reading: Reading, slot: str, letter: str, word: str, subject: str, new: bool) -> None:
        bare = word.removesuffix("'s").removeprefix("the ")
        if slot.startswith("a "):
            bare = word.split()[-1]
        named = bare in NAMES or bare in ANIMALS
        who = bare if named else self.meant(reading, slot, letter, word, subject)
        if named:
            why = f"{bare} was introduced before" if new else f"who is {bare}?"
            self.check(reading, self.knows(bare) != new, "name", why)
        if who:
            self.settle(reading, "name", letter, who)
            reading.here[:] = [one for one in reading.here if one != who] + [who]

    def meant(self, reading: Reading, slot: str, letter: str, word: str, subject: str) -> str:
        """Whom a pronoun means, or "" if nobody can be meant."""
        forms = POSSESSIVE if slot.endswith("'s") else OBJECT if slot.endswith("*") else {p: p for p in OBJECT}
        fitting = [who for who in self.known() if forms[NAMES.get(who, "it")] == word]
        if letter in reading.slots:  # for the second time
            meant = reading.slots[letter]
            self.check(
                reading, meant in fitting or forms[NAMES.get(meant, "it")] == word, "pronoun", f"{word}: {meant}"
            )
            return meant
        if slot.endswith("*"):
            rivals = [who for who in fitting if who != subject]
            self.check(reading, len(rivals) == 1, "pronoun", f"{word} could be {' or '.join(rivals) or 'nobody'}")
            return rivals[-1] if rivals else ""
        if self.topic is None:  # nobody can say
            return fitting[-1] if fitting else ""
        self.check(reading, self.topic in fitting, "pronoun", f"{word} after {self.topic or 'nobody in particular'}")
        return self.topic

    def known(self) -> list[str]:
        return [fact[1] for fact in self.state.facts.get("known", {})]

    def both(self, reading: Reading, word: str) -> None:
        if word == "they":
            self.check(reading, len(self.near) > 1, "pronoun", "they: who?")
            both = self.near[-2:] if len(self.near) > 1 else []
        else:
            both = [name.removeprefix("the ") for name in word.split(" and ")]
            for who in both:
                self.check(reading, self.knows(who), "name", f"who is {who}?")
        reading.slots |= dict(zip("AB", both))
        reading.here += both

    # --- what

    def something(self, reading: Reading, slot: str, letter: str, word: str) -> None:
        if word == "it":
            self.check(reading, bool(reading.thing), "pronoun", "it: what?")
            reading.named = reading.thing
            if reading.thing:
                self.settle(reading, "pronoun", letter, reading.thing)
            return
        *before, thing = word.split()
        adjective = before[-1] if before and before[-1] in DESCRIBING else ""
        self.settle(reading, "possession", letter, thing)
        reading.thing = reading.named = thing
        if adjective:
            self.check(reading, fits(thing, adjective), "quality", f"a {adjective} {thing}")
            old = self.looks.get(thing, "")
            if old:
                self.check(reading, not clash(old, adjective), "quality", f"{adjective}, but it was {old}")
        if not slot.startswith("a"):
            known = thing in self.looks or thing in reading.looks
            self.check(reading, known, "possession", f"which {thing}?")
        reading.looks[thing] = adjective or reading.looks.get(thing, "")

    # --- whether it can be

    def hold(self, reading: Reading, event: EventKind) -> None:
        state = self.state
        for thing, adjective in reading.looks.items():
            if adjective:
                state.add(("looks", thing, adjective))
        untrue = state.untrue(event.needs, reading.slots)
        reading.checks += len(event.needs)
        for fact in untrue:
            kind = KIND_OF.get(fact[1] if fact[0] == "not" else fact[0], "deed")
            reading.faults.append((kind, " ".join(reading.slots.get(word, word) for word in fact)))
        for fact in event.makes:
            if fact[0] == "is":
                who, adjective = (reading.slots.get(word, word) for word in fact[1:])
                before = [other[2] for other in state.facts.get("is", {}) if other[1] == who]
                holds = fits(who, adjective) and not any(clash(adjective, one) for one in before)
                self.check(reading, holds, "quality", f"{who} was {adjective}")


def meaning(letter: str, slot: str, word: str) -> str:
    """The entry of the table that a phrase is of."""
    if letter == "P":
        return next(place for place, phrases in PLACES.items() if phrases[slot.split()[0]] == word)
    if letter == "W":
        return next(weather for weather, (phrase, _) in WEATHER.items() if phrase == word)
    if letter == "Y":
        return next(trouble for trouble, (phrase, *_) in TROUBLES.items() if phrase == word)
    return word


@dataclass(frozen=True)
class Verdict:
    """What was found of a story: the reading of each sentence."""

    readings: tuple[Reading, ...]

    @property
    def faults(self) -> list[tuple[str, str]]:
        return [fault for reading in self.readings for fault in reading.faults]

    @property
    def checks(self) -> int:
        return sum(reading.checks for reading in self.readings)

    @property
    def parsed(self) -> int:
        return sum(bool(reading.event) for reading in self.readings)

    @property
    def consistent(self) -> bool:
        """Whether every sentence was understood and everything that it says holds."""
        return bool(self.readings) and self.parsed == len(self.readings) and not self.faults


def judge(text: str) -> Verdict:
    """Read a story; nothing but its text is used."""
    reader = StoryReader()
    return Verdict(tuple(reader.read(sentence) for sentence in split_sentences(text)))


def novelty(texts: Sequence[str], read: Sequence[str]) -> dict[str, float]:
    """How much of some stories is word for word in others that were read.

    Returns:
        ``stories known`` and ``sentences known``: the shares that are among those of ``read``.
    """
    stories, sentences = set(read), {sentence for text in read for sentence in split_sentences(text)}
    told = [sentence for text in texts for sentence in split_sentences(text)]
    return {
        "stories known": sum(text in stories for text in texts) / max(1, len(texts)),
        "sentences known": sum(sentence in sentences for sentence in told) / max(1, len(told)),
    }


def judged(texts: Sequence[str], read: Callable[[str], Verdict] = judge) -> dict[str, float]:
    """Shares over many stories.

    Args:
        read: ``judge``, or for plain stories ``plain_judge.judge_plain``.

    Returns:
        ``sentences understood``, ``statements that hold`` (of those in sentences that were understood), ``stories
        consistent``, and for each kind of fault the share of stories that have one.
    """
    verdicts = [read(text) for text in texts]
    readings = [reading for verdict in verdicts for reading in verdict.readings]
    kinds = Counter(kind for verdict in verdicts for kind in {kind for kind, _ in verdict.faults})
    checks = sum(verdict.checks for verdict in verdicts)
    return {
        "sentences understood": sum(bool(reading.event) for reading in readings) / max(1, len(readings)),
        "statements that hold": (checks - sum(len(verdict.faults) for verdict in verdicts)) / max(1, checks),
        "stories consistent": sum(verdict.consistent for verdict in verdicts) / max(1, len(verdicts)),
        **{f"stories with a wrong {kind}": kinds[kind] / max(1, len(verdicts)) for kind in KINDS},
    }
