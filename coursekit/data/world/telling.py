"""The teller of a story: writes its sentences and remembers who has been spoken of and what has been said.

So every pronoun has one meaning, whoever is new is introduced in full, and nothing is contradicted.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

from coursekit.data.world.grammar import Draft, Phrase, Sentence, Span, Thing, Word, Writer, explain, finished, pick
from coursekit.data.world.lexicon import ADJECTIVES, Verb
from coursekit.data.world.meaning import exclude, is_alive, near, suits


def acting_on_pronoun(writer: Writer, verb: Verb, subject: Thing, target: Thing, negated: bool) -> Phrase:
    """*carried it*; *l'a portée*: in French the pronoun stands before the verb and the participle agrees with it."""
    action, feminine = writer.action(verb, subject.plural, negated), target.gender == "f"
    french = "les" if target.plural else "la" if feminine else "le"
    pronoun = writer.link("them" if target.plural else "it", french)
    *before, participle = action.fr
    agreeing = participle.text + ("e" if feminine else "") + ("s" if target.plural else "")
    at = 1 if negated else 0  # behind "ne"
    return Phrase(action.en + pronoun.en, [*before[:at], *pronoun.fr, *before[at:], Word(agreeing, participle.keys)])


@dataclass
class Teller:
    """Places in ``mentions``, ``named`` and ``pronouns`` count through the English of the whole story."""

    rng: Random
    told: list[Sentence] = field(default_factory=list)
    length: int = 0
    spoken_of: dict[str, Thing] = field(default_factory=dict)
    mentions: dict[str, list[Span]] = field(default_factory=dict)
    named: dict[str, Span] = field(default_factory=dict)  # the last noun phrase of each
    pronouns: list[tuple[int, Span]] = field(default_factory=list)
    said: dict[str, list[str]] = field(default_factory=dict)  # the adjectives of each
    topics: list[str] = field(default_factory=list)  # the last subject, and that of its *because*

    def chance(self, odds: float) -> bool:
        return self.rng.random() < odds

    # --- sentences

    def begin(self, english: str = "", french: str = "") -> Draft:
        """A new sentence, perhaps after *then* or *later ,*."""
        draft = Draft(Writer())
        draft.add(draft.writer.link(english.removesuffix(" ,"), french.removesuffix(" ,")))
        if english.endswith(" ,"):
            draft.add(draft.writer.link(",", ","))
        return draft

    def end(self, draft: Draft, kind: str, place: str = "", day: str = "") -> None:
        draft.add(draft.writer.link(".", "."))
        self.told.append(finished(draft, kind, place, day))
        self.length += len(draft.phrase.en)

    # --- noun phrases and pronouns

    def clear(self, thing: Thing, alive: bool = False) -> bool:
        """Whether a pronoun can mean this alone, of all (or of all alive) that was spoken of."""
        others = [other for label, other in self.spoken_of.items() if label != thing.label]
        rivals = [other for other in others if is_alive(other) or not alive]
        return thing.label in self.spoken_of and all(other.pronoun[0] != thing.pronoun[0] for other in rivals)

    def stands(self, thing: Thing, clear: bool) -> bool:
        """Whether to write a pronoun for a subject: where it is clear, and more often for who was the last one.

        After a sentence about boxes *they* are the boxes, even if only aunts could do what comes.
        """
        others = [self.spoken_of[label] for label in self.topics if label != thing.label]
        misleading = any(other.pronoun[0] == thing.pronoun[0] for other in others)
        return clear and not misleading and self.chance(0.8 if thing.label in self.topics else 0.5)

    def note(self, draft: Draft, thing: Thing, role: str, pronoun: bool) -> None:
        """Account for the noun phrase or pronoun that was just written."""
        first, last = draft.spans[role]
        span = first + self.length, last + self.length
        self.spoken_of[thing.label] = thing
        self.mentions.setdefault(thing.label, []).append(span)
        if pronoun:
            self.pronouns.append((span[0], self.named[thing.label]))
        else:
            self.named[thing.label] = span

    def mention(self, draft: Draft, thing: Thing, role: str, pronoun: bool = False) -> None:
        """*a red lamp* at first, then *the lamp* or *it*."""
        if pronoun:
            draft.add(draft.writer.link(*thing.pronoun), role)
        elif thing.label in self.spoken_of:
            draft.say(replace(thing, adjective=None, definite=True), role)
        else:
            draft.say(thing, role)
            self.said[thing.label] = [thing.adjective.en] if thing.adjective else []
        self.note(draft, thing, role, pronoun)
        self.topics = [thing.label] if role == "subject" else self.topics

    # --- clauses

    def act(self, draft: Draft, who: Thing, verb: Verb, target: Thing, negated: bool) -> None:
        # after "but" somebody else acts, who is named
        self.mention(draft, who, "subject", not draft.events and self.stands(who, self.clear(who, alive=True)))
        if self.clear(target) and self.chance(0.6):
            draft.add(acting_on_pronoun(draft.writer, verb, who, target, negated))
            draft.spans["object"] = len(draft.phrase.en) - 1, len(draft.phrase.en)
            self.note(draft, target, "object", pronoun=True)
        else:
            draft.add(draft.writer.action(verb, who.plural, negated))
            self.mention(draft, target, "object")
        draft.happen(verb, who, target, negated)

    def may_say(self, thing: Thing, adjective: str) -> bool:
        """Whether it makes sense, and the story so far neither says that already nor anything that touches it."""
        said = self.said.get(thing.label, [thing.adjective.en] if thing.adjective else [])
        return suits(thing, adjective) and not any(
            old == adjective or exclude(old, adjective) or near(old, adjective) for old in said
        )

    def give_reason(self, draft: Draft, who: Thing, verb: Verb, target: Thing, negated: bool) -> bool:
        """*because she was strong*, if there is a reason that goes with what was said."""
        subject, target_ = (verb.subject_not, verb.object_not) if negated else (verb.subject_why, verb.object_why)
        reasons = [(who, adjective) for adjective in subject if self.may_say(who, adjective)]
        reasons += [(target, adjective) for adjective in target_ if self.may_say(target, adjective)]
        if not reasons:
            return False
        meant, adjective = pick(self.rng, reasons)
        explain(draft, meant, ADJECTIVES[adjective], meant is who, too=negated)
        self.said[meant.label].append(adjective)
        self.note(draft, meant, "pronoun", pronoun=True)
        self.topics.append(meant.label)
        return True

    def be(self, draft: Draft, thing: Thing, adjectives: Sequence[str], negated: bool = False) -> None:
        """*It was heavy but pretty.*"""
        self.mention(draft, thing, "subject", self.stands(thing, self.clear(thing)))
        for number, name in enumerate(adjectives):
            adjective = ADJECTIVES[name]
            if number:
                draft.add(draft.writer.link("but", "mais"))
                draft.add(draft.writer.link(name, adjective.french(thing.gender, thing.plural)))
            else:
                draft.add(draft.writer.state(thing, adjective, negated))
            draft.judge(thing, adjective, negated)
            self.said[thing.label].append(name)
        self.end(draft, "describing")
