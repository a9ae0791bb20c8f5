"""The judge's colleague for the world's plain stories (``stories.stories``): ``judge.judge`` reads those with plots.

Plain stories have no plot to follow, but every sentence still says who did or was what: whether such verbs and
adjectives go with such nouns, whether a reason is one, whether nobody is both rich and poor, whether a pronoun has one
meaning. Kinds of faults are those of ``judge``.
"""

import re
from dataclasses import dataclass, field

from coursekit.data.world.grammar import Thing
from coursekit.data.world.judge import Reading, Verdict, split_sentences
from coursekit.data.world.lexicon import ADJECTIVES, CITIES, DAYS, NOUNS, PEOPLE, VERBS, Noun, Verb
from coursekit.data.world.meaning import USED_UP, exclude, is_alive, suits
from coursekit.data.world.stories import AT_LAST, BUT, LATER, MEANWHILE

OPENINGS = sorted({english for some in (AT_LAST, BUT, LATER, MEANWHILE) for english, _ in some if english}, key=len)
PRONOUNS = {"he": "he", "she": "she", "it": "it", "they": "they", "them": "they"}
ONE = {noun.english(False): noun for noun in NOUNS}
MANY = {noun.english(True): noun for noun in NOUNS}
PAST, BASE = {verb.past: verb for verb in VERBS}, {verb.base: verb for verb in VERBS}
BEING = {"was": (False, False), "wasn't": (False, True), "were": (True, False), "weren't": (True, True)}


class Unreadable(Exception):
    """A sentence that no plain story has."""


class Meaningless(Exception):
    """A sentence about nobody, which leaves nothing to believe."""


@dataclass
class PlainReader:
    """Reads word by word; ``said`` and ``done`` are what the sentences before have said."""

    words: list[str] = field(default_factory=list)
    spoken_of: dict[str, Thing] = field(default_factory=dict)
    said: dict[str, list[str]] = field(default_factory=dict)
    done: set[tuple[str, str, str, bool]] = field(default_factory=set)
    reading: Reading = field(default_factory=lambda: Reading(""))

    def read(self, sentence: str) -> Reading:
        """Understand a sentence, and believe it."""
        first = sentence.split(" ")[0].strip(",.")
        text = sentence if first in PEOPLE else sentence[:1].lower() + sentence[1:]
        self.words, self.reading = re.findall(r"[\w']+|[.,]", text), Reading(sentence)
        before = dict(self.spoken_of), {name: [*some] for name, some in self.said.items()}, set(self.done)
        try:
            self.sentence()
            self.reading.event = "plain"
        except (Unreadable, IndexError):
            self.spoken_of, self.said, self.done = before
            return Reading(sentence)
        except Meaningless:
            self.spoken_of, self.said, self.done = before
            self.reading.event = "plain"
        return self.reading

    def check(self, holds: bool, kind: str, why: str) -> None:
        self.reading.checks += 1
        if not holds:
            self.reading.faults.append((kind, why))

    def takes(self, *words: str) -> bool:
        if found := tuple(self.words[: len(words)]) == words:
            del self.words[: len(words)]
        return found

    def one_of(self, table) -> str:
        word = self.words.pop(0)
        if word not in table:
            raise Unreadable(word)
        return word

    def sentence(self) -> None:
        for opening in reversed(OPENINGS):
            if self.takes(*opening.split()):
                break
        if self.takes("on"):
            self.one_of(DAYS)
            self.one_of(",")
        self.clause()
        while self.takes("but") or self.takes("and"):
            self.clause()
        self.setting()
        self.one_of(".")
        if self.words:
            raise Unreadable(self.words[0])

    def setting(self) -> None:
        if self.takes("in"):
            self.one_of(CITIES)
        if self.takes("on"):
            self.one_of(DAYS)

    def clause(self) -> None:
        verb = next((word for word in self.words if word in BEING or word == "didn't" or word in PAST), "")
        who = self.noun_phrase(acting=verb not in BEING)
        if self.words[0] not in BEING:
            self.deed(who)
        elif self.words[1] in ("in", "on"):
            self.check(BEING[self.words.pop(0)][0] == who.plural, "pronoun", "was or were")
            self.setting()
        else:
            self.state(who)

    def noun_phrase(self, acting: bool = False) -> Thing:
        word = self.words.pop(0)
        if word in PRONOUNS:
            return self.meant(word, acting)
        thing = Thing(None, name=word) if word in PEOPLE else self.described(word)
        self.spoken_of.setdefault(thing.label, thing)
        if thing.adjective:
            self.believe(thing, thing.adjective.en)
        return thing

    def described(self, article: str) -> Thing:
        """A noun phrase after its article; somebody alive is introduced by *a* or *some*."""
        if article not in ("a", "an", "some", "any", "the"):
            raise Unreadable(article)
        adjective = self.words.pop(0) if self.words[0] in ADJECTIVES else ""
        noun = self.one_of(ONE | MANY)
        plural = noun not in ONE or (noun == "fish" and article in ("some", "any"))
        kind: Noun = (MANY if plural else ONE)[noun]
        thing = Thing(kind, plural=plural, adjective=ADJECTIVES.get(adjective))
        known = self.spoken_of.get(thing.label)
        if article == "the":
            here = known is not None or not is_alive(thing)
            self.check(here, "name", f"which {noun}?")
            self.check(known is None or known.plural == plural, "name", f"{noun}: one or many?")
        else:
            self.check(known is None, "name", f"{noun} was spoken of before")
        return thing

    def meant(self, word: str, acting: bool) -> Thing:
        fitting = [
            thing
            for thing in self.spoken_of.values()
            if thing.pronoun[0] == PRONOUNS[word] and (is_alive(thing) or not acting)
        ]
        self.check(len(fitting) == 1, "pronoun", f"{word}: {' or '.join(t.label for t in fitting) or 'nobody'}")
        if not fitting:
            raise Meaningless(word)
        return fitting[-1]

    def believe(self, thing: Thing, adjective: str) -> None:
        said = self.said.setdefault(thing.label, [])
        self.check(suits(thing, adjective), "quality", f"{thing.label} cannot be {adjective}")
        against = [old for old in said if exclude(old, adjective)]
        self.check(not against, "quality", f"{thing.label} was {' and '.join(against)}, now {adjective}")
        said.append(adjective)

    def state(self, who: Thing) -> None:
        many, denied = BEING[self.words.pop(0)]
        self.check(many == who.plural, "pronoun", "was or were")
        self.takes("too")
        adjective = self.one_of(ADJECTIVES)
        if denied:
            self.check(suits(who, adjective), "quality", f"{who.label} cannot be {adjective}")
        else:
            self.believe(who, adjective)
        if self.words[0] == "but" and self.words[1] in ADJECTIVES:
            self.words.pop(0)
            self.believe(who, self.words.pop(0))

    def deed(self, who: Thing) -> None:
        denied = self.takes("didn't")
        verb = (BASE if denied else PAST)[self.one_of(BASE if denied else PAST)]
        what = self.noun_phrase()
        kind = what.noun.kind if what.noun else "person"
        self.check(
            (who.noun.kind if who.noun else "person") in verb.subjects, "deed", f"{who.label} cannot {verb.base}"
        )
        self.check(kind in verb.objects, "deed", f"{what.label}: nothing to {verb.base}")
        deed = who.label, verb.base, what.label
        self.check((*deed, not denied) not in self.done, "deed", f"{' '.join(deed)}: done and not done")
        gone = any(one[1:] == (verb.base, what.label, False) for one in self.done) and verb.base in USED_UP
        self.check(denied or not gone, "deed", f"{verb.base} {what.label} twice")
        self.done.add((*deed, denied))
        if self.takes("because"):
            self.reason(who, verb, what, denied)

    def reason(self, who: Thing, verb: Verb, what: Thing, denied: bool) -> None:
        """*because it was too cold*: whose the adjective is, the verb says."""
        pronoun = self.one_of(PRONOUNS)
        adjective = next((word for word in self.words if word in ADJECTIVES), "")
        of_who = adjective in (verb.subject_not if denied else verb.subject_why)
        of_what = adjective in (verb.object_not if denied else verb.object_why)
        self.check(of_who or of_what, "deed", f"{adjective} is no reason to {verb.base}")
        meant = who if of_who else what
        self.check(PRONOUNS[pronoun] == meant.pronoun[0], "pronoun", f"{pronoun}: {meant.label}")
        self.state(meant)


def judge_plain(text: str) -> Verdict:
    """Read a plain story; nothing but its text is used."""
    reader = PlainReader()
    return Verdict(tuple(reader.read(sentence) for sentence in split_sentences(text)))
