"""A small world of people, animals, places and things, told in English and French, with the answers written down."""

from coursekit.data.world.entailment import LABELS, Pair, entailment, entailments
from coursekit.data.world.grammar import CLAUSES, Event, Sentence, State, as_text, sentences
from coursekit.data.world.questions import Question, question, questions
from coursekit.data.world.stories import Cast, Story, stories

__all__ = [
    "CLAUSES",
    "LABELS",
    "Cast",
    "Event",
    "Pair",
    "Question",
    "Sentence",
    "State",
    "Story",
    "as_text",
    "entailment",
    "entailments",
    "question",
    "questions",
    "sentences",
    "stories",
]
