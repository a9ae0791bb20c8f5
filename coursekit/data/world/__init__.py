"""A small world of people, animals, places and things, told in English and French, with the answers written down."""

from coursekit.data.world.grammar import CLAUSES, Sentence, as_text, sentences

__all__ = ["CLAUSES", "Sentence", "as_text", "sentences"]
