"""What follows from what in the world: which adjectives exclude each other, and which suit which noun."""

from functools import cache

from coursekit.data.world.grammar import OPPOSITES, Thing
from coursekit.data.world.lexicon import ADJECTIVES, LIVING, LOOKS_OF, NEVER, VERBS

USED_UP = ("buy", "eat")  # what is not done twice to the same thing
COLOURS = ("red", "black", "white", "green", "blue", "grey")

# neither the same nor the opposite, but a careful reader would not call them unrelated
NEAR = {
    frozenset(pair.split())
    for pair in (
        *("big high", "big long", "big wide", "big heavy", "small low", "small short", "small narrow", "small light"),
        *("big low", "big short", "big narrow", "big light", "small high", "small long", "small wide", "small heavy"),
        *("high steep", "low steep", "safe slippery", "safe steep", "safe dark", "safe high", "dangerous slippery"),
        *("dangerous steep", "dangerous dark", "dark black", "dark white", "dark grey", "heavy empty", "light empty"),
        *("strong sick", "strong tired", "weak sick", "weak tired", "tired sick", "quick tired", "quick lazy"),
        *("quick weak", "slow weak", "slow tired", "slow lazy", "lazy busy", "lazy tired", "sad sick", "happy sick"),
        *("hungry greedy", "fresh sour", "fresh cold", "sweet sour", "sweet salty", "sour salty", "delicious sour"),
        *("delicious salty", "delicious sweet", "delicious fresh", "funny interesting", "difficult interesting"),
        *("new dirty", "new ugly", "pretty dirty", "ugly dirty", "fast slow", "fast dangerous", "expensive new"),
    )
}


def exclude(one: str, other: str) -> bool:
    """Whether nothing can be both: *wide* and *narrow*, *red* and *blue*."""
    return one != other and (frozenset((one, other)) in OPPOSITES or (one in COLOURS and other in COLOURS))


def near(one: str, other: str) -> bool:
    """Whether one says something about the other, without settling it: *big* and *heavy*."""
    return frozenset((one, other)) in NEAR


@cache
def excluding(adjective: str) -> tuple[str, ...]:
    """All that excludes it."""
    return tuple(other for other in ADJECTIVES if exclude(adjective, other))


@cache
def suiting(kind: str) -> tuple[str, ...]:
    """The adjectives that are said of nouns of a kind, in an order that is always the same."""
    found = dict.fromkeys(LOOKS_OF[kind])
    for verb in VERBS:
        if kind in verb.subjects:
            found |= dict.fromkeys(verb.subject_why + verb.subject_not)
        if kind in verb.objects:
            found |= dict.fromkeys(verb.object_why + verb.object_not)
    return tuple(found)


def kind_of(thing: Thing) -> str:
    return thing.noun.kind if thing.noun else "person"


def is_alive(thing: Thing) -> bool:
    return kind_of(thing) in LIVING


def suits(thing: Thing, adjective: str) -> bool:
    """Whether something can be so at all: a soup cannot be brave, nor a ladder empty."""
    noun = thing.noun.en if thing.noun else ""
    return adjective in suiting(kind_of(thing)) and noun not in NEVER.get(adjective, ())
