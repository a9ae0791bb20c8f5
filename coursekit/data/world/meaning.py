"""What follows from what in the world: which adjectives exclude each other, and which suit which noun."""

from functools import cache

from coursekit.data.world.grammar import LOOKS, OPPOSITES, Thing
from coursekit.data.world.lexicon import ADJECTIVES, LIVING, VERBS

USED_UP = ("buy", "eat")  # what is not done twice to the same thing
COLOURS = ("red", "black", "white", "green", "blue", "grey")

NEVER = {  # nouns that an adjective does not go with, although others of their kind do
    adjective: tuple(nouns.split())
    for adjective, nouns in {
        "interesting": "box bag table chair basket trunk ladder lamp bus train car bicycle ball mouse kitchen",
        "empty": "ladder lamp table chair",
        "dark": "box bag table chair basket trunk ladder lamp",
        "fragile": "bag trunk ladder",
        "steep": "tree stone tower",
        "noisy": "bicycle ball mouse",
        "salty": "apple cake orange pear melon",
        "sour": "cake egg fish biscuit carrot",
        "sweet": "egg soup fish",
        "dirty": "poem story message",
        "long": "field square",
        "short": "field square",
    }.items()
}

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
    found = dict.fromkeys(("young", "small", "big", *(("black", "white", "grey") if kind == "animal" else ())))
    if kind not in LIVING:
        found = dict.fromkeys(LOOKS)
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
