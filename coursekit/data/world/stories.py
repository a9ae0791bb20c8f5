"""Stories of three to five sentences about the same people and things, with their truth.

A cast is drawn first (who, where, when). Then the main character does something, and what follows goes with it:
how the thing was, what was done to it next, what somebody else did, how it ended.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from random import Random

from coursekit.data.world.grammar import Draft, Sentence, Span, Thing, Writer, as_text, of_kind, pick, split_of_all
from coursekit.data.world.lexicon import (
    ADJECTIVES,
    CITIES,
    DAYS,
    LIVING,
    LOOKS_OF,
    PEOPLE,
    UNCOUNTED,
    VERBS,
    Adjective,
    Verb,
)
from coursekit.data.world.meaning import USED_UP, exclude, kind_of, near, suits
from coursekit.data.world.questions import Question, asked_about, definite_phrase, new_question, unmistakable
from coursekit.data.world.telling import Teller

CONFUSING = ("animal", "mouse")  # an animal may be a dog, and a mouse could do what is told of others
NEXT = {"text": ("read",), "load": ("carry", "clean"), "room": ("clean",)}  # what one does with what one has bought
Openings = tuple[tuple[str, str], ...]  # English and French beginnings of a sentence
NOTHING: Openings = (("", ""),)
LATER: Openings = (("then", "puis"), ("later ,", "plus tard ,"), ("after that ,", "après cela ,"), ("", ""))
NOT_LATER: Openings = (("later ,", "plus tard ,"), ("", ""))
MEANWHILE: Openings = (("meanwhile ,", "pendant ce temps ,"), ("", ""))
BUT: Openings = (("but", "mais"),)
AT_LAST: Openings = (("in the end ,", "à la fin ,"), ("that evening ,", "ce soir-là ,"))
FEELINGS = {  # after doing something, after not doing it: adjective, negated
    False: (("happy", False), ("sad", True), ("tired", False)),
    True: (("sad", False), ("happy", True), ("tired", False)),
}


@dataclass(frozen=True)
class Cast:
    """Who and where and when; ``friend`` never has the pronoun of ``main``."""

    main: Thing
    friend: Thing
    place: str
    day: str


def appearance(rng: Random, kind: str) -> Adjective | None:
    return ADJECTIVES[pick(rng, LOOKS_OF[kind])] if rng.random() < 0.4 else None


def character(rng: Random) -> Thing:
    if rng.random() < 0.5:
        return Thing(None, name=pick(rng, list(PEOPLE)))
    noun = pick(rng, [noun for noun in of_kind(*LIVING) if noun.en not in CONFUSING])
    return Thing(noun, plural=rng.random() < 0.2, adjective=appearance(rng, noun.kind), definite=False)


def cast(rng: Random) -> Cast:
    """Draw who, where and when: the one place where what belongs to a person is decided."""
    main = friend = character(rng)
    while friend.pronoun[0] == main.pronoun[0] or friend.label == main.label:
        friend = character(rng)
    return Cast(main, friend, pick(rng, list(CITIES)), pick(rng, list(DAYS)))


@dataclass(frozen=True)
class Story:
    """A story with its truth. Places count through the English tokens of all its sentences.

    Attributes:
        sentences: each with its French, the links and its own truth; there a pronoun has an antecedent only if
            that stands in the same sentence.
        cast: who and where and when.
        summary: one line of tokens: the first thing that the main character did or did not do, and where.
        mentions: for everybody and everything, the noun phrases and pronouns (first, last + 1) that speak of it.
        pronouns: the place of each pronoun, and the last noun phrase before it of what it stands for.
    """

    sentences: tuple[Sentence, ...]
    cast: Cast
    summary: tuple[str, ...]
    mentions: dict[str, tuple[Span, ...]]
    pronouns: tuple[tuple[int, Span], ...]

    @cached_property
    def tokens(self) -> tuple[str, ...]:
        return tuple(word for sentence in self.sentences for word in sentence.en)

    @property
    def text(self) -> str:
        return " ".join(as_text(sentence.en) for sentence in self.sentences)

    @property
    def tags(self) -> tuple[str, ...]:
        return tuple(tag for sentence in self.sentences for tag in sentence.tags)

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        return tuple(pair for sentence in self.sentences for pair in sentence.pairs)

    @property
    def split(self) -> str:
        """``test`` if one of its sentences holds a pair kept for testing, else ``validation`` likewise."""
        return split_of_all(self.pairs)

    @property
    def sentiment(self) -> int:
        """-1, 0 or 1: the sign of the sum over its sentences."""
        total = sum(sentence.sentiment for sentence in self.sentences)
        return (total > 0) - (total < 0)

    @cached_property
    def questions(self) -> list[Question]:
        """Every question that exactly one run of its words answers, people and things by their noun phrase."""
        named = {(place, place + 1): span for place, span in self.pronouns}
        asked, start = [], 0
        for sentence in self.sentences:
            for question in asked_about(sentence):
                span = question.answer[0] + start, question.answer[1] + start
                asked.append(replace(question, answer=named.get(span, span)))
            start += len(sentence.en)
        opening, main = self.sentences[0], self.cast.main
        if opening.kind == "setting":
            place, day = opening.tags.index("B-PLACE"), opening.tags.index("B-DAY")
            was = f"{'were' if main.plural else 'was'} {definite_phrase(main)}"
            asked.append(new_question("where", f"where {was}", (place, place + 1)))
            asked.append(new_question("when", f"when {was} in {self.cast.place}", (day, day + 1)))
        return unmistakable(asked, self.tokens)


# --- the plot ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Deed:
    who: Thing
    verb: Verb
    target: Thing
    negated: bool


@dataclass
class Plot:
    """What happens, told as it happens."""

    teller: Teller
    cast: Cast
    deeds: list[Deed] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)  # things that were described, beginnings that were used

    def something_new(self, who: Thing) -> Deed:
        """A verb that suits somebody, and a thing that nobody has spoken of."""
        rng = self.teller.rng
        verb = pick(rng, [verb for verb in VERBS if kind_of(who) in verb.subjects])
        noun = pick(
            rng, [noun for noun in of_kind(*verb.objects) if noun.en not in (*CONFUSING, *self.teller.spoken_of)]
        )
        negated = rng.random() < 0.4
        # who didn't buy "a lamp" may have had any in mind, and nothing could be said of it later
        definite = negated or noun.en == "soup" or (noun.kind in ("way", "height", "room") and rng.random() < 0.6)
        plural = noun.en not in UNCOUNTED and rng.random() < 0.15
        return Deed(who, verb, Thing(noun, "", plural, appearance(rng, noun.kind), definite), negated)

    def say(self, draft: Draft, deed: Deed, odds: float = 0.6) -> str:
        """Who did what and, with these odds, why: the kind of clause."""
        teller, parts = self.teller, (deed.who, deed.verb, deed.target, deed.negated)
        teller.act(draft, *parts)
        self.deeds.append(deed)
        return "because" if teller.chance(odds) and teller.give_reason(draft, *parts) else "plain"

    def tell(self, deed: Deed, openings: Openings) -> None:
        opening = pick(self.teller.rng, [one for one in openings if one[0] not in self.seen] or NOTHING)
        self.seen |= {opening[0]} - {""}
        draft = self.teller.begin(*opening)
        kind = self.say(draft, deed)
        other = self.opposite(deed) if kind == "plain" and self.teller.chance(0.4) else None
        if other:
            draft.add(draft.writer.link("but", "mais"))
            kind = "chained" if self.say(draft, other) == "because" else "joined"
        self.teller.end(draft, kind)

    def opposite(self, deed: Deed) -> Deed | None:
        """The friend does what the main character didn't, or the other way round, where that makes sense."""
        able = deed.who is self.cast.main and kind_of(self.cast.friend) in deed.verb.subjects
        gone = deed.verb.base in USED_UP and not deed.negated
        return replace(deed, who=self.cast.friend, negated=not deed.negated) if able and not gone else None

    # --- moves: each says whether it could be made

    def set_out(self) -> None:
        """*On Monday, Anna was in Paris.*"""
        teller, main, day = self.teller, self.cast.main, self.cast.day
        draft, first = teller.begin(), teller.chance(0.7)
        if first:
            draft.on(day)
            draft.add(draft.writer.link(",", ","))
        teller.mention(draft, main, "subject")
        draft.add(draft.writer.link(*(("were", "étaient") if main.plural else ("was", "était"))))
        draft.at(self.cast.place)
        if not first:
            draft.on(day)
        teller.end(draft, "setting", self.cast.place, day)

    def set_out_acting(self, deed: Deed) -> None:
        """*On Monday, Anna bought a red lamp in Paris.*"""
        draft = self.teller.begin()
        draft.on(self.cast.day)
        draft.add(draft.writer.link(",", ","))
        self.say(draft, deed, odds=0)
        draft.at(self.cast.place)
        self.teller.end(draft, "plain", self.cast.place, self.cast.day)

    def feel(self, deed: Deed) -> None:
        """*She was brave.* before she crosses the street."""
        reasons = deed.verb.subject_not if deed.negated else deed.verb.subject_why
        fitting = [adjective for adjective in reasons if self.teller.may_say(deed.who, adjective)]
        if fitting:
            self.teller.be(self.teller.begin(), deed.who, [pick(self.teller.rng, fitting)])

    def show_another(self, deed: Deed) -> None:
        """*The river was wide.* before she crosses the bridge.

        So a noun of which every deed is kept for testing (nobody crosses a river in training) is known all the same.
        """
        rng, kind = self.teller.rng, kind_of(deed.target)
        noun = pick(rng, [noun for noun in of_kind(kind) if noun is not deed.target.noun and noun.en not in CONFUSING])
        thing = Thing(noun, plural=noun.en not in UNCOUNTED and rng.random() < 0.3)
        fitting = [one for one in deed.verb.object_why + deed.verb.object_not if suits(thing, one)]
        self.teller.be(self.teller.begin(), thing, [pick(rng, fitting)])

    def look_at(self) -> bool:
        """*The lamp was heavy but pretty.*"""
        teller, deed = self.teller, self.deeds[-1]
        target, good, bad = deed.target, deed.verb.object_why, deed.verb.object_not
        first, second = (bad, good) if deed.negated else (good, bad)
        found = [(a, b) for a in first for b in second if not exclude(a, b) and not near(a, b)]
        found = [pair for pair in found if all(teller.may_say(target, adjective) for adjective in pair)]
        if target.label in self.seen or not found:
            return False
        pair = pick(teller.rng, found)
        self.seen.add(target.label)
        teller.be(teller.begin(), target, pair if teller.chance(0.5) else pair[:1])
        return True

    def use(self) -> bool:
        """*Then she cleaned it.* after she bought it."""
        deed = self.deeds[-1]
        follows = NEXT.get(kind_of(deed.target), ())
        if deed.verb.base != "buy" or deed.negated or not follows:
            return False
        base = pick(self.teller.rng, follows)
        verb = next(verb for verb in VERBS if verb.base == base)
        negated = self.teller.chance(0.4)
        self.tell(Deed(deed.who, verb, deed.target, negated), NOT_LATER if negated else LATER)
        return True

    def answer(self) -> bool:
        """*But Paul carried it because he was strong.*"""
        other = self.opposite(self.deeds[-1])
        if other and "but" not in self.seen:
            self.tell(other, BUT)
            return True
        return False

    def go_on(self) -> bool:
        deed = self.something_new(self.cast.main)
        self.tell(deed, NOT_LATER if deed.negated else LATER)
        return True

    def turn_to_friend(self) -> bool:
        self.tell(self.something_new(self.cast.friend), MEANWHILE)
        return True

    def come_to_an_end(self) -> bool:
        """*In the end, she was happy.*"""
        teller, main = self.teller, self.cast.main
        last = [deed for deed in self.deeds if deed.who is main][-1]
        feelings = [feeling for feeling in FEELINGS[last.negated] if teller.may_say(main, feeling[0])]
        if feelings:
            adjective, negated = pick(teller.rng, feelings)
            teller.be(teller.begin(*pick(teller.rng, AT_LAST)), main, [adjective], negated)
        return bool(feelings)


def story(rng: Random) -> Story:
    """Draw a cast and tell what happened to it."""
    people = cast(rng)
    plot = Plot(Teller(rng), people)
    teller, length = plot.teller, 3 + int(rng.random() * 3)
    deed = plot.something_new(people.main)
    if teller.chance(0.6):
        plot.set_out()
        if teller.chance(0.3):
            plot.feel(deed)
        elif teller.chance(0.3):
            plot.show_another(deed)
        plot.tell(deed, NOTHING)
    else:
        plot.set_out_acting(deed)
    moves: list[Callable[[], bool]] = [plot.look_at, plot.use, plot.answer, plot.go_on, plot.turn_to_friend]
    while len(teller.told) < length:
        last = len(teller.told) == length - 1
        if not (last and teller.chance(0.6) and plot.come_to_an_end()):
            while not pick(rng, moves)():
                pass
    return Story(
        sentences=tuple(teller.told),
        cast=people,
        summary=summary(deed, people.place),
        mentions={label: tuple(spans) for label, spans in teller.mentions.items()},
        pronouns=tuple(teller.pronouns),
    )


def summary(deed: Deed, place: str) -> tuple[str, ...]:
    draft = Draft(Writer())
    draft.say(deed.who)
    draft.add(draft.writer.action(deed.verb, deed.who.plural, deed.negated))
    draft.say(deed.target)
    draft.at(place)
    draft.add(draft.writer.link("."))
    return tuple(word.text for word in draft.phrase.en)


def stories(n: int, split: str = "train", seed: int = 0) -> list[Story]:
    """``n`` different stories of a split, the same for a seed on every machine.

    Args:
        split: ``"train"``, ``"validation"`` or ``"test"``. A story for testing holds at least one pair of words
            (noun and adjective, or verb and object) that no story or sentence for training holds.
    """
    if split not in ("train", "validation", "test"):
        raise ValueError(f"split={split!r}: must be 'train', 'validation' or 'test'")
    rng, found = Random(f"stories {split} {seed}"), {}
    for _ in range(1000 + 300 * n):
        if len(found) == n:
            return list(found.values())
        drawn = story(rng)
        if drawn.split == split:
            found.setdefault(drawn.tokens, drawn)
    raise ValueError(f"n={n}: only {len(found)} different stories of this split were found")
