"""Questions about a sentence or a story, each answered by a run of its own words."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from coursekit.data.world.grammar import Event, Sentence, Span, State, Thing, Writer, pick

PASSING = ("tired", "weak", "sick", "afraid", "sad", "busy", "happy", "hungry")  # asked with *how*, not *what ... like*


@dataclass(frozen=True)
class Question:
    """A question and the places (first, last + 1) of its answer in the English tokens that it was asked about.

    Attributes:
        kind: ``subject object why where when holder quality``: who did it, what it was done to, the reason, the
            place, the day, who or what was so, how somebody or something was.
        key: what is asked for, in base forms. Two questions with one key could be taken for each other.
    """

    kind: str
    tokens: tuple[str, ...]
    answer: Span
    key: tuple[str, ...]


def definite_phrase(thing: Thing) -> str:
    """What the text spoke of, now known: *a red lamp* becomes *the red lamp*."""
    return " ".join(word.text for word in Writer().thing(replace(thing, definite=True)).en)


def asker(thing: Thing) -> str:
    return "who" if thing.noun is None or thing.noun.kind in ("person", "animal") else "what"


def new_question(kind: str, text: str, answer: Span, *key: str) -> Question:
    return Question(kind, (*text.split(), "?"), answer, (kind, *key))


def about_event(event: Event, place: Span | None, day: Span | None) -> Iterator[Question]:
    """Place and day are asked for only where it did happen: *when didn't she?* has no answer."""
    verb, denied = event.verb, event.negated
    who, what = definite_phrase(event.subject), definite_phrase(event.target)
    did = "didn't" if denied else "did"
    done = f"didn't {verb.base}" if denied else verb.past
    subject, target = event.subject.label, event.target.label
    yield new_question("subject", f"who {done} {what}", event.subject_span, verb.base, did, target)
    yield new_question("object", f"what {did} {who} {verb.base}", event.target_span, verb.base, did, subject)
    if event.reason_span:
        yield new_question(
            "why", f"why {did} {who} {verb.base} {what}", event.reason_span, verb.base, did, subject, target
        )
    if place and not denied:
        yield new_question("where", f"where did {who} {verb.base} {what}", place, verb.base, subject, target)
    if day and not denied:
        yield new_question("when", f"when did {who} {verb.base} {what}", day, verb.base, subject, target)


def about_states(states: Sequence[State], day: Span | None) -> Iterator[Question]:
    """*Who was too tired?* (whom the pronoun meant), *what was the soup like?* (*cold but delicious*)."""
    for state in states:
        was = "was" if not state.negated else "wasn't"
        adjective = state.adjective.en
        yield new_question("holder", f"{asker(state.of)} {was} {adjective}", state.span, adjective, was)
    for state in states:
        if state.negated:
            continue
        last = max(other.place for other in states if other.span == state.span and not other.negated)
        first = min(other.place for other in states if other.span == state.span and not other.negated)
        if state.place != first:
            continue
        was = f"{'were' if state.of.plural else 'was'} {definite_phrase(state.of)}"
        text = f"how {was}" if state.adjective.en in PASSING else f"what {was} like"
        yield new_question("quality", text, (first, last + 1), state.of.label)
        if day:
            yield new_question("when", f"when {was} {state.adjective.en}", day, state.adjective.en, state.of.label)


def unmistakable(asked: Iterable[Question], words: Sequence[str]) -> list[Question]:
    """Those that only one thing answers: of *the boy read a book and the girl read a book* nobody asks who did.

    Nor does anybody ask who was big where *big* stands twice in the words.
    """
    found: dict[tuple[str, ...], list[Question]] = {}
    for question in asked:
        found.setdefault(question.key, []).append(question)
    alone = [same[0] for same in found.values() if len(same) == 1]
    return [one for one in alone if one.kind != "holder" or words.count(one.key[1]) == 1]


def asked_about(sentence: Sentence) -> Iterator[Question]:
    """All that its clauses answer, before those that two clauses answer are taken out."""
    place = day = None
    for i, tag in enumerate(sentence.tags):
        place, day = (i, i + 1) if tag == "B-PLACE" else place, (i, i + 1) if tag == "B-DAY" else day
    for number, event in enumerate(sentence.events, 1):
        # a place stands behind the last clause, whatever else it may go with; the day stands before all
        relative = sentence.kind == "relative"
        yield from about_event(event, place if number == len(sentence.events) else None, None if relative else day)
    yield from about_states(sentence.states, None if sentence.kind in ("because", "chained") else day)


def questions(sentence: Sentence) -> list[Question]:
    """Every question about a sentence that exactly one run of its words answers; few sentences have none."""
    return unmistakable(asked_about(sentence), sentence.en)


def question(sentence: Sentence, rng: Random) -> Question:
    """One of them, drawn.

    Raises:
        ValueError: the sentence answers no question without doubt.
    """
    found = questions(sentence)
    if not found:
        raise ValueError(f"{' '.join(sentence.en)!r} answers no question without doubt: take another sentence")
    return pick(rng, found)
