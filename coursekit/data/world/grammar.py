"""Sentences of the world: English and French built side by side from the same meaning, so that the links are known.

Every word carries the numbers of the pieces of meaning that it expresses; an English and a French word are
aligned where they share one.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import count
from random import Random
from typing import NamedTuple, TypeVar
from zlib import crc32

from coursekit.data.world.lexicon import (
    ADJECTIVES,
    CITIES,
    DAYS,
    LOOKS_OF,
    NEVER,
    NOUNS,
    PEOPLE,
    UNCOUNTED,
    VERBS,
    Adjective,
    Gender,
    Noun,
    Verb,
)

Item = TypeVar("Item")
Span = tuple[int, int]  # places (first, last + 1) in the English words


class Word(NamedTuple):  # made in half the time of a frozen dataclass
    text: str
    keys: tuple[int, ...]
    tag: str = ""  # PERSON, PLACE or DAY for names


@dataclass
class Phrase:
    """The same in both languages, word by word."""

    en: list[Word] = field(default_factory=list)
    fr: list[Word] = field(default_factory=list)

    def __add__(self, other: "Phrase") -> "Phrase":
        return Phrase(self.en + other.en, self.fr + other.fr)


@dataclass(frozen=True)
class Thing:
    """What a noun phrase stands for: a noun or a person, one or several, perhaps described."""

    noun: Noun | None
    name: str = ""
    plural: bool = False
    adjective: Adjective | None = None
    definite: bool = True

    @property
    def gender(self) -> Gender:
        return self.noun.gender if self.noun else PEOPLE[self.name][1]

    @property
    def label(self) -> str:
        return self.noun.en if self.noun else self.name

    @property
    def pronoun(self) -> tuple[str, str]:
        """English and French."""
        english = "they" if self.plural else self.noun.sex if self.noun else PEOPLE[self.name][0]
        return english, ("elle" if self.gender == "f" else "il") + ("s" if self.plural else "")


@dataclass(frozen=True)
class Event:
    """Somebody did something to a thing, or did not, and where the sentence says so.

    ``reason_span`` are the words after *because*.
    """

    verb: Verb
    subject: Thing
    target: Thing
    negated: bool
    subject_span: Span
    target_span: Span
    reason_span: Span | None = None


@dataclass(frozen=True)
class State:
    """Somebody or something was so, or was not; ``span`` is the noun phrase, also where a pronoun stands for it.

    ``place`` is that of the adjective.
    """

    of: Thing
    adjective: Adjective
    negated: bool
    span: Span
    place: int


@dataclass(frozen=True)
class Sentence:
    """A sentence with its truth.

    Attributes:
        en, fr: tokens; French ones end in an apostrophe where they are elided.
        links: pairs (English place, French place) of words that mean the same.
        kind: of clause.
        tags: for each English token ``O`` or ``B-PERSON``, ``B-PLACE``, ``B-DAY``.
        pronoun: place of the English pronoun, or None.
        antecedent: places (first, last + 1) of what it stands for.
        rival: places of the other noun phrase that it could stand for.
        sentiment: -1, 0 or 1: the sign of the adjectives that are said of something, turned by *not*.
        pairs: the combinations of two words that decide which split it belongs to.
        facts: who did what to whom where and when, in English words: keys ``subject verb object place day reason``;
            ``negated`` is "not" or empty. Of two clauses, the second.
        events, states: all that it says: of every clause with a verb, and of every *was* or *were*.
    """

    en: tuple[str, ...]
    fr: tuple[str, ...]
    links: tuple[tuple[int, int], ...]
    kind: str
    tags: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]
    pronoun: int | None = None
    antecedent: tuple[int, int] | None = None
    rival: tuple[int, int] | None = None
    sentiment: int = 0
    facts: dict[str, str] = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    states: tuple[State, ...] = ()

    @property
    def ambiguous(self) -> bool:
        """Whether the pronoun fits the rival as well, so that only the meaning tells the two apart."""
        event = self.events[-1] if self.pronoun is not None else None
        return event is not None and event.subject.pronoun[0] == event.target.pronoun[0]

    @property
    def split(self) -> str:
        """``test`` if it holds a pair kept for testing, else ``validation`` likewise, else ``train``."""
        return split_of_all(self.pairs)


def split_of_all(pairs: Iterable[tuple[str, str]]) -> str:
    """``test`` if one of the pairs is kept for testing, else ``validation`` likewise, else ``train``."""
    kept = {split_of(pair) for pair in pairs}
    return "test" if "test" in kept else "validation" if "validation" in kept else "train"


@cache
def split_of(pair: tuple[str, str]) -> str:
    """One pair of words in twenty is kept for testing, one for validation; the same on every machine."""
    return {0: "test", 1: "validation"}.get(crc32("|".join(pair).encode()) % 20, "train")


# --- phrases -------------------------------------------------------------------------------------------

VOWELS = "aeiouyâàéèêëîïôœû"
MUTE_H = ("homme", "hommes", "histoire", "histoires")


def sounds_open(word: str) -> bool:
    """Whether a French word begins with a vowel sound, before which others are elided."""
    return word[0].lower() in VOWELS or word in MUTE_H


def elided(words: Sequence[Word]) -> list[Word]:
    """French with *le, la, ne, que, de* shortened before a vowel sound."""
    found = []
    for word, after in zip(words, [*words[1:], None]):
        short = word.text in ("le", "la", "ne", "que", "de") and after is not None and sounds_open(after.text)
        found.append(Word(word.text[:-1] + "'", word.keys, word.tag) if short else word)
    return found


class Writer:
    """Gives out fresh pieces of meaning."""

    def __init__(self):
        self.numbers = count()

    def key(self) -> tuple[int]:
        return (next(self.numbers),)

    def link(self, en: str, fr: str = "", tag: str = "") -> Phrase:
        """Words that translate each other; either side may hold several."""
        key = self.key()
        return Phrase([Word(w, key, tag) for w in en.split()], [Word(w, key, tag) for w in fr.split()])

    def thing(self, thing: Thing, denied: bool = False) -> Phrase:
        """A noun phrase: article, adjective, noun; in French most adjectives follow the noun.

        ``denied``: it is the object of a negated verb, where French says *de* for *un, une, des*.
        """
        if thing.noun is None:
            return self.link(thing.name, thing.name, "PERSON")
        described = Phrase()
        if thing.adjective:
            described = self.link(thing.adjective.en, thing.adjective.french(thing.gender, thing.plural))
        noun = self.link(thing.noun.english(thing.plural), thing.noun.french(thing.plural))
        article = self.article(thing, (described.en + noun.en)[0].text, denied)
        before = thing.adjective is not None and thing.adjective.before
        french = described.fr + noun.fr if before else noun.fr + described.fr
        return Phrase(article.en + described.en + noun.en, article.fr + french)

    def article(self, thing: Thing, following: str, denied: bool) -> Phrase:
        feminine, before = thing.gender == "f", thing.adjective is not None and thing.adjective.before
        if thing.definite:
            return self.link("the", "les" if thing.plural else "la" if feminine else "le")
        if thing.plural:
            return self.link("any" if denied else "some", "de" if before or denied else "des")
        french = "de" if denied else "une" if feminine else "un"
        return self.link("an" if following[0] in "aeiou" else "a", french)

    def action(self, verb: Verb, plural: bool, negated: bool) -> Phrase:
        """The verb in the past: *crossed*, *didn't cross*; *a traversé*, *n'a pas traversé*."""
        done, auxiliary = self.key(), "ont" if plural else "a"
        if not negated:
            return Phrase([Word(verb.past, done)], [Word(auxiliary, done), Word(verb.participle, done)])
        denied, past = self.key(), self.key()
        english = [Word("didn't", denied + past), Word(verb.base, done)]
        french = [Word("ne", denied), Word(auxiliary, past), Word("pas", denied), Word(verb.participle, done)]
        return Phrase(english, french)

    def state(self, of: Thing, adjective: Adjective, negated: bool = False, too: bool = False) -> Phrase:
        """*was (too) tired*, *wasn't tired*; *était (trop) fatigué*, *n'était pas fatigué*."""
        being = self.key()
        verb = Phrase([Word("were" if of.plural else "was", being)], [Word("étaient" if of.plural else "était", being)])
        if negated:
            denied = self.key()
            verb = Phrase(
                [Word(("weren't" if of.plural else "wasn't"), being + denied)],
                [Word("ne", denied), *verb.fr, Word("pas", denied)],
            )
        degree = self.link("too", "trop") if too else Phrase()
        return verb + degree + self.link(adjective.en, adjective.french(of.gender, of.plural))


# --- clauses -------------------------------------------------------------------------------------------


def pick(rng: Random, items: Sequence[Item]) -> Item:
    """One of the items, each equally likely; by ``random()`` alone, which is the same in every version of Python."""
    return items[int(rng.random() * len(items))]


@cache
def of_kind(*kinds: str) -> tuple[Noun, ...]:
    return tuple(noun for noun in NOUNS if noun.kind in kinds)


def a_thing(rng: Random, kinds: Sequence[str], plural: bool, rich: bool = True) -> Thing:
    """A thing of one of the kinds, perhaps with a word on how it looks."""
    noun = pick(rng, of_kind(*kinds))
    adjective = ADJECTIVES[pick(rng, LOOKS_OF[noun.kind])] if rich and rng.random() < 0.4 else None
    plural = plural and noun.en not in UNCOUNTED
    return Thing(noun, plural=plural, adjective=adjective, definite=rng.random() < 0.8 or noun.en == "soup")


def fitting(thing: Thing, names: Sequence[str]) -> list[str]:
    """Those adjectives that go with a thing and neither repeat nor deny how it looks."""
    looks = thing.adjective.en if thing.adjective else ""
    going = [name for name in names if thing.label not in NEVER.get(name, ())]
    return [name for name in going if name != looks and frozenset((name, looks)) not in OPPOSITES]


def a_subject(rng: Random, verb: Verb, plural: bool) -> Thing:
    if not plural and "person" in verb.subjects and rng.random() < 0.3:
        return Thing(None, name=pick(rng, list(PEOPLE)))
    return a_thing(rng, verb.subjects, plural)


@cache
def n_verbs(kind: str) -> int:
    """How many verbs can have such an object."""
    return sum(kind in verb.objects for verb in VERBS)


def deed_pairs(verb: Verb, target: Thing) -> list[tuple[str, str]]:
    """What a deed adds to the pairs of a sentence: its verb and its object, or nothing."""
    # a river is only ever crossed: without that pair the very word would be rare in training
    return [(verb.base, target.label)] if n_verbs(target.noun.kind) > 1 else []


@dataclass
class Draft:
    """A sentence in the making."""

    writer: Writer
    phrase: Phrase = field(default_factory=Phrase)
    pairs: list[tuple[str, str]] = field(default_factory=list)
    facts: dict[str, str] = field(default_factory=dict)
    sentiment: int = 0
    spans: dict[str, Span] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    states: list[State] = field(default_factory=list)

    def add(self, phrase: Phrase, span: str = "") -> None:
        start = len(self.phrase.en)
        self.phrase.en += phrase.en
        self.phrase.fr += phrase.fr
        if span:
            self.spans[span] = (start, len(self.phrase.en))

    def say(self, thing: Thing, span: str = "", denied: bool = False) -> None:
        self.add(self.writer.thing(thing, denied), span)
        if thing.adjective:
            self.pairs.append((thing.label, thing.adjective.en))

    def on(self, day: str) -> None:
        key = self.writer.key()
        self.add(Phrase([Word("on", key), Word(day, key, "DAY")], [Word(DAYS[day], key, "DAY")]))

    def at(self, place: str) -> None:
        self.add(self.writer.link("in", "à"))
        self.add(self.writer.link(place, CITIES[place], "PLACE"))

    def act(self, rng: Random, verb: Verb, subject: Thing, target: Thing, negated: bool) -> None:
        """Subject, verb and object."""
        self.say(subject, "subject")
        self.add(self.writer.action(verb, subject.plural, negated), "verb")
        self.say(target, "object", negated)
        self.happen(verb, subject, target, negated)

    def happen(self, verb: Verb, subject: Thing, target: Thing, negated: bool) -> None:
        """Write down what the last subject did to the last object."""
        self.pairs += deed_pairs(verb, target)
        self.facts |= {"verb": verb.base, "negated": "not" if negated else ""}
        self.events.append(Event(verb, subject, target, negated, self.spans["subject"], self.spans["object"]))

    def judge(self, of: Thing, adjective: Adjective, negated: bool = False, role: str = "subject") -> None:
        """Write down that the last word is said of the last subject or object."""
        self.pairs.append((of.label, adjective.en))
        self.states.append(State(of, adjective, negated, self.spans[role], len(self.phrase.en) - 1))
        self.sentiment += -adjective.polarity if negated else adjective.polarity


def because(rng: Random, draft: Draft) -> str:
    """*The dog didn't cross the street because it was too tired.* Whose the adjective is, only its meaning tells."""
    verb, negated, plural = pick(rng, VERBS), rng.random() < 0.5, rng.random() < 0.25
    subject = a_subject(rng, verb, plural)
    target = a_thing(rng, verb.objects, plural)
    of_subject = rng.random() < 0.5
    subject_reasons = fitting(subject, verb.subject_not if negated else verb.subject_why)
    target_reasons = fitting(target, verb.object_not if negated else verb.object_why)
    of_subject = of_subject or not target_reasons  # a small lamp is cleaned by whoever is not tired
    meant, reasons = (subject, subject_reasons) if of_subject else (target, target_reasons)
    reason = ADJECTIVES[pick(rng, reasons)]
    draft.act(rng, verb, subject, target, negated)
    explain(draft, meant, reason, of_subject, too=negated)
    return "because"


def explain(draft: Draft, meant: Thing, reason: Adjective, of_subject: bool, too: bool) -> None:
    """*because it was too tired*, of the last subject or object."""
    role, other = ("subject", "object") if of_subject else ("object", "subject")
    draft.add(draft.writer.link("because", "parce que"))
    draft.add(draft.writer.link(*meant.pronoun), "pronoun")
    draft.add(draft.writer.state(meant, reason, too=too), "reason")
    draft.judge(meant, reason, role=role)
    draft.spans["antecedent"], draft.spans["rival"] = draft.spans[role], draft.spans[other]
    why = draft.spans["pronoun"][0], draft.spans["reason"][1]
    draft.events[-1] = replace(draft.events[-1], reason_span=why)


def plain(rng: Random, draft: Draft) -> str:
    """*Anna bought a red lamp.*"""
    verb, plural = pick(rng, VERBS), rng.random() < 0.3
    subject, target = a_subject(rng, verb, plural), a_thing(rng, verb.objects, rng.random() < 0.3)
    draft.act(rng, verb, subject, target, rng.random() < 0.25)
    return "plain"


OPPOSITES = {
    frozenset(pair.split())
    for pair in (
        *("rich poor", "weak strong", "brave afraid", "wide narrow", "dangerous safe", "long short", "high low"),
        *("heavy light", "boring interesting", "slow quick", "sad happy", "big small", "ugly pretty", "boring funny"),
    )
}


def describing(rng: Random, draft: Draft) -> str:
    """*The soup was cold but delicious.* or *The road wasn't safe.*"""
    verb, plural = pick(rng, VERBS), rng.random() < 0.3
    about_object = rng.random() < 0.6
    thing = a_thing(rng, verb.objects, plural) if about_object else a_subject(rng, verb, plural)
    bad, good = (verb.object_not, verb.object_why) if about_object else (verb.subject_not, verb.subject_why)
    if not (fitting(thing, bad) and fitting(thing, good)):
        thing = replace(thing, adjective=None)
    first, second = (ADJECTIVES[pick(rng, fitting(thing, names))] for names in (bad, good))
    if rng.random() < 0.5:
        first, second = second, first
    negated = rng.random() < 0.3
    draft.say(thing, "subject")
    draft.add(draft.writer.state(thing, first, negated), "reason")
    draft.judge(thing, first, negated)
    if not negated and frozenset([first.en, second.en]) not in OPPOSITES and rng.random() < 0.5:
        draft.add(draft.writer.link("but", "mais"))
        draft.add(draft.writer.link(second.en, second.french(thing.gender, thing.plural)))
        draft.judge(thing, second)
    return "describing"


def relative(rng: Random, draft: Draft) -> str:
    """*The horse that carried the box was strong.*"""
    verb, plural = pick(rng, VERBS), rng.random() < 0.25
    subject, target = a_thing(rng, verb.subjects, plural), a_thing(rng, verb.objects, rng.random() < 0.3)
    negated = rng.random() < 0.3
    state = ADJECTIVES[pick(rng, fitting(subject, verb.subject_not if negated else verb.subject_why))]
    draft.say(subject, "subject")
    draft.add(draft.writer.link("who" if subject.noun.kind == "person" else "that", "qui"))
    draft.add(draft.writer.action(verb, plural, negated), "verb")
    draft.say(target, "object", negated)
    draft.happen(verb, subject, target, negated)
    draft.add(draft.writer.state(subject, state), "reason")
    draft.judge(subject, state)
    return "relative"


def chained(rng: Random, draft: Draft) -> str:
    """*The king read a book and the small dog didn't eat the soup because it was too cold.*"""
    verb = pick(rng, VERBS)
    subject, target = a_subject(rng, verb, rng.random() < 0.2), a_thing(rng, verb.objects, rng.random() < 0.2)
    draft.act(rng, verb, subject, target, False)
    draft.add(draft.writer.link(*pick(rng, [("and", "et"), ("but", "mais")])))
    because(rng, draft)
    return "chained"


def joined(rng: Random, draft: Draft) -> str:
    """*The boy read a letter and the girl cleaned the kitchen.*"""
    for number in range(2):
        verb = pick(rng, VERBS)
        subject, target = (
            a_subject(rng, verb, rng.random() < 0.2),
            a_thing(rng, verb.objects, rng.random() < 0.2, False),
        )
        if number:
            draft.add(draft.writer.link(*pick(rng, [("and", "et"), ("but", "mais")])))
        draft.act(rng, verb, subject, target, bool(number) and rng.random() < 0.3)
    return "joined"


CLAUSES: dict[str, Callable[[Random, Draft], str]] = {
    clause.__name__: clause for clause in (because, plain, describing, relative, joined, chained)
}


def sentence(rng: Random, kinds: Sequence[str] = tuple(CLAUSES)) -> Sentence:
    """Draw one sentence of one of the kinds."""
    return finished(*drafted(rng, kinds))


def drafted(rng: Random, kinds: Sequence[str] = tuple(CLAUSES)) -> tuple[Draft, str, str, str]:
    """What ``finished`` makes a sentence of: its draft, the kind, where and when."""
    draft = Draft(Writer())
    where = when = ""
    if rng.random() < 0.25:
        when = pick(rng, list(DAYS))
        draft.on(when)
        draft.add(draft.writer.link(",", ","))
    kind = CLAUSES[pick(rng, kinds)](rng, draft)
    if rng.random() < 0.2 and kind in ("plain", "joined"):
        where = pick(rng, list(CITIES))
        draft.at(where)
    draft.add(draft.writer.link(".", "."))
    return draft, kind, where, when


def finished(draft: Draft, kind: str, where: str, when: str) -> Sentence:
    english, french = draft.phrase.en, elided(draft.phrase.fr)
    spans = draft.spans
    places = defaultdict(list)  # in the French words, of each piece of meaning
    for j, word in enumerate(french):
        for key in word.keys:
            places[key].append(j)
    facts = draft.facts | {"place": where, "day": when}
    for role in ("subject", "object"):
        if role in spans:
            facts[role] = " ".join(word.text for word in english[slice(*spans[role])])
    if draft.events and draft.events[-1].reason_span:
        facts["reason"] = " ".join(word.text for word in english[slice(*draft.events[-1].reason_span)])
    return Sentence(
        en=tuple(word.text for word in english),
        fr=tuple(word.text for word in french),
        links=tuple((i, j) for i, e in enumerate(english) for j in sorted({j for key in e.keys for j in places[key]})),
        kind=kind,
        tags=tuple(f"B-{word.tag}" if word.tag else "O" for word in english),
        pairs=tuple(draft.pairs),
        pronoun=spans["pronoun"][0] if "pronoun" in spans else None,
        antecedent=spans.get("antecedent"),
        rival=spans.get("rival"),
        sentiment=(draft.sentiment > 0) - (draft.sentiment < 0),
        facts=facts,
        events=tuple(draft.events),
        states=tuple(draft.states),
    )


def repeats(draft: Draft) -> bool:
    """Whether its clauses speak of the same twice: *the dog ate the egg and the dog* ..."""
    spoken_of = [thing.label for event in draft.events for thing in (event.subject, event.target)]
    return len(set(spoken_of)) < len(spoken_of)


def sentences(n: int, split: str = "train", seed: int = 0, kinds: Sequence[str] = tuple(CLAUSES)) -> list[Sentence]:
    """``n`` different sentences of a split, the same for a seed on every machine.

    Args:
        split: ``"train"``, ``"validation"`` or ``"test"``. A sentence for testing holds at least one pair of words
            (noun and adjective, or verb and object) that no training sentence holds.
        kinds: of clauses, of ``because plain describing relative joined chained``.
    """
    if split not in ("train", "validation", "test"):
        raise ValueError(f"split={split!r}: must be 'train', 'validation' or 'test'")
    unknown = [kind for kind in kinds if kind not in CLAUSES]
    if unknown or not kinds:
        raise ValueError(f"kinds={tuple(kinds)}: must be some of {', '.join(CLAUSES)}")
    rng, found = Random(f"{split} {seed}"), {}
    for _ in range(1000 + 300 * n):
        draft, *rest = drafted(rng, kinds)
        if split_of_all(draft.pairs) == split and not repeats(draft):
            drawn = finished(draft, *rest)
            found.setdefault(drawn.en, drawn)
            if len(found) == n:
                return list(found.values())
    raise ValueError(f"n={n}: only {len(found)} different sentences of this split and these kinds were found")


def as_text(tokens: Sequence[str]) -> str:
    """Tokens as one writes them: no space before . , ? or after an apostrophe, a capital first."""
    text = " ".join(tokens).replace(" .", ".").replace(" ,", ",").replace(" ?", "?").replace("' ", "'")
    return text[:1].upper() + text[1:]
