"""The words of the plots: who lives in the world, what there is, and what is always true of it.

Each table is one word a line with what belongs to it. ``STATIC`` has the same as facts ``(relation, word, word)``:
what holds in every story, such as ``("sells", "baker", "pie")``. Other nouns and adjectives than these are in
``lexicon``; where a noun is in both, ``meaning.suits`` decides about its adjectives.
"""

from coursekit.data.world.grammar import Thing
from coursekit.data.world.lexicon import ADJECTIVES, NOUNS, Noun
from coursekit.data.world.meaning import COLOURS, exclude, suits

Fact = tuple[str, ...]


def table(text: str) -> dict[str, list[list[str]]]:
    """``word: some words / other words`` in each line, as ``{word: [[some, words], [other, words]]}``."""
    rows = (line.split(":") for line in text.strip().splitlines())
    return {word.strip(): [field.split() for field in fields.split("/")] for word, fields in rows}


SHE = """Anna Clara Emma Julia Nora Sarah Ida Lena Mia Rosa
    Olga Greta Maria Eva Lucy Alice Ella Hanna Martha Zoe"""
HE = """Adam David Leon Oscar Paul Victor Hugo Max Felix Tom
    Peter Ivan Karl Noah Simon Henry Jack Theo Ali Marco"""
NAMES: dict[str, str] = dict.fromkeys(SHE.split(), "she") | dict.fromkeys(HE.split(), "he")
OBJECT = {"she": "her", "he": "him", "it": "it"}
POSSESSIVE = {"she": "her", "he": "his", "it": "its"}

TOWNS = (
    "Paris",
    "London",
    "Berlin",
    "Rome",
    "Vienna",
    "Lisbon",
    "Geneva",
    "Brussels",
    "Prague",
    "Athens",
    "Oslo",
    "Madrid",
)
WEEK = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

PLACES: dict[str, dict[str, str]] = {  # where one is, goes to, comes from
    "home": {"at": "at home", "to": "home", "from": "from home"},
    **{
        noun: {"at": f"{at} the {noun}", "to": f"to the {noun}", "from": f"from the {noun}"}
        for at, nouns in {
            "at": "market station school mill castle bakery smithy",
            "in": "park forest harbour library garden museum theatre bookshop workshop",
            "on": "bridge beach hill square farm",
            "by": "river lake tower",
        }.items()
        for noun in nouns.split()
    },
}
OUTDOORS = (
    *("market", "station", "park", "forest", "harbour", "garden", "bridge", "beach"),
    *("hill", "square", "river", "lake", "tower", "castle", "mill"),
)
SOFT = ("park", "forest", "garden", "beach", "hill", "river", "lake")  # where one can dig

# what suits it / what it is good for: lose, lend, gift, wear, fragile, light (for the wind), food
THINGS = table("""
    umbrella: red black blue green big small old / lose lend light
    hat: red black blue green white grey new old pretty ugly / lose gift wear light
    scarf: red blue green white grey new old pretty warm / lose gift wear light
    coat: red black blue green grey new old warm / lend gift
    kite: red blue green white big small new pretty / lose lend gift light
    ball: red blue green white big small / lose lend gift light
    book: old funny interesting difficult boring short / lose lend gift
    letter: long short / lose light
    map: old big small / lose lend light
    key: old small big rusty golden / lose
    ring: golden silver small old pretty / lose gift
    watch: golden silver small old new pretty / lose lend gift
    clock: big small old new pretty / gift fragile
    lamp: big small red blue green white old new / lend gift fragile
    vase: blue white green big small old pretty / lend gift fragile
    cup: blue white red small old pretty / lend gift fragile
    jug: blue white green big old / lend gift fragile
    mirror: big small old round / lend gift fragile
    picture: big small old pretty ugly / gift
    violin: old small black / lend gift fragile
    drum: big red blue new / lend gift
    flute: silver wooden small old / lose lend gift
    bicycle: red blue green black old new / lend gift
    basket: big small old empty / lose lend
    bag: red black blue big small old heavy / lose lend
    box: wooden big small heavy old / lend
    bell: silver small big old / gift
    ladder: old heavy wooden / lend
    rope: long old strong / lend
    boat: small old green white / lend
    knife: small old new / lend
    net: big old / lend
    spade: old new heavy / lend
    hammer: heavy old new / lend
    brush: small big new old / lend
    bucket: old big heavy / lend
    chair: wooden old small pretty / gift
    table: wooden big old / gift
    rose: red white / gift
    pie: big sweet delicious / food gift
    cake: big sweet delicious / food gift
    loaf: big fresh / food
    biscuit: small sweet / food
    apple: big sweet sour / food
    pear: big sweet / food
    melon: big sweet fresh / food
    carrot: big fresh / food
    cabbage: big green / food
    fish: big fresh small / food
    egg: big fresh / food
    sausage: big delicious / food
    cheese: big delicious / food
    nut: big small / food
""")

# where they work / what they sell / what they mend / what they work with
JOBS = table("""
    baker: bakery / pie cake loaf biscuit / / basket
    potter: workshop / vase cup jug / vase cup jug / brush
    tailor: workshop / coat hat scarf / / mirror
    carpenter: workshop / chair table ladder box / violin chair / hammer ladder
    clockmaker: workshop / clock watch / clock watch / lamp
    smith: smithy / knife key bell ring / lamp mirror / hammer
    bookseller: bookshop / book map picture / / ladder
    farmer: farm / melon carrot cabbage cheese / / spade basket
    gardener: garden / rose apple pear / / spade ladder
    painter: workshop / picture / / brush ladder
    sailor: harbour / fish rope net / / boat map
    teacher: school / / / book bell
    librarian: library / / / ladder lamp
    musician: theatre / violin drum flute / / violin flute
    cook: market / sausage pie / / knife bucket
    doctor: square / / / bag bicycle
    guard: castle / / / lamp bell
""")

# where they live / what they eat
ANIMALS = table("""
    fox: forest hill / egg fish cheese
    dog: park square / sausage cheese
    cat: harbour market / fish cheese
    goat: hill farm / cabbage carrot apple
    duck: lake river / loaf biscuit
    goose: lake farm / loaf cabbage
    donkey: mill farm / carrot apple
    horse: farm castle / apple carrot
    frog: lake river / biscuit
    bear: forest / fish pie melon
    crow: tower forest / nut egg biscuit
    squirrel: park forest / nut apple
    hedgehog: garden park / apple pear
    rabbit: hill garden / carrot cabbage
""")

# the trouble that animals get into: who, where / with what they are saved / who
TROUBLES: dict[str, tuple[str, str, str, str]] = {  # phrase, places, saved with, who
    "tree": ("sat high in a tree and could not come down", "park forest garden", "ladder rope", "cat squirrel bear"),
    "well": ("had fallen into a deep well", "castle farm square", "rope bucket", "fox dog cat goat rabbit hedgehog"),
    "net": ("was caught in an old net", "harbour lake river beach", "knife", "duck goose crow frog cat"),
    "mud": ("was stuck in the mud", "river lake mill", "rope spade", "donkey horse goat dog"),
    "stone": ("sat on a stone in the water and could not swim", "river lake harbour", "boat", "cat fox rabbit goat"),
    "ice": ("was stuck in the ice", "lake river", "hammer spade", "duck goose frog"),
}

WEATHER: dict[str, tuple[str, str]] = {  # why one does something, and what is useful then
    "rain": ("it was raining", "umbrella coat"),
    "snow": ("it was snowing", "coat scarf"),
    "wind": ("the wind was strong", "kite scarf"),
    "sun": ("the sun was hot", "hat umbrella"),
    "fog": ("the fog was thick", "lamp bell"),
}

CHORES = {
    "baker": "carried sacks of flour",
    "potter": "mixed the clay",
    "tailor": "sewed on buttons",
    "carpenter": "carried boards",
    "clockmaker": "polished tiny wheels",
    "smith": "kept the fire burning",
    "bookseller": "dusted the shelves",
    "farmer": "fed the hens",
    "gardener": "watered the flowers",
    "painter": "washed the brushes",
    "sailor": "scrubbed the deck",
    "musician": "polished the trumpets",
    "cook": "peeled onions",
}

TRAITS = ("brave", "curious", "clever", "strong", "quick", "slow", "lazy", "poor", "rich", "greedy", "busy", "happy")
OWN_ADJECTIVES = ("old", "warm", "golden", "silver", "rusty", "round", "wooden")  # in no verb's reasons
AGES = ("young", "old")

BY_WORD = {noun.en: noun for noun in NOUNS}
ANY_ANIMAL = Noun("animal", "animal", "m", "animal")


def fits(word: str, adjective: str) -> bool:
    """Whether a person, an animal or a thing can be so: of lexicon's words as ``meaning.suits``, else by the tables."""
    if word in NAMES or word in JOBS:
        return adjective in AGES or suits(Thing(BY_WORD["man"]), adjective)
    if word in ANIMALS:
        return adjective in AGES or suits(Thing(ANY_ANIMAL), adjective)
    if word in BY_WORD and adjective in ADJECTIVES:
        return suits(Thing(BY_WORD[word]), adjective)
    return adjective in THINGS.get(word, [[]])[0] or adjective in TOO.get(word, ())


def clash(one: str, other: str) -> bool:
    """Whether nothing is both: as ``meaning.exclude``, and with colours and materials that are not in its tables."""
    materials, ages = ("golden", "silver", "wooden", "rusty"), ("old", "new", "young")
    return exclude(one, other) or any(
        one != other and one in group and other in group for group in (COLOURS, materials, ages)
    )


TOO: dict[str, tuple[str, ...]] = {  # why it does not help
    "ladder": ("short", "heavy"),
    "rope": ("short", "weak"),
    "bucket": ("small", "heavy"),
    "spade": ("small", "heavy"),
    "hammer": ("small",),
    "knife": ("blunt",),
    "boat": ("small", "slow"),
}


def static() -> frozenset[Fact]:
    """What is true in every story."""
    facts: list[Fact] = []
    for thing, (_, uses) in THINGS.items():
        facts += [("use", thing, use) for use in uses]
    for job, (where, sells, mends, tools) in JOBS.items():
        facts += [("works", job, place) for place in where]
        facts += [("sells", job, thing) for thing in sells]
        facts += [("mends", job, thing) for thing in mends]
        facts += [("tool", job, thing) for thing in tools]
    for animal, (homes, foods) in ANIMALS.items():
        facts += [("haunts", animal, place) for place in homes]
        facts += [("eats", animal, food) for food in foods]
    for trouble, (_, places, things, animals) in TROUBLES.items():
        facts += [("happens", trouble, place) for place in places.split()]
        facts += [("solves", thing, trouble) for thing in things.split()]
        facts += [("prone", animal, trouble) for animal in animals.split()]
    facts += [("chore", job, chore) for job, chore in CHORES.items()]
    facts += [("too", thing, adjective) for thing, adjectives in TOO.items() for adjective in adjectives]
    facts += [("person", name) for name in NAMES] + [("animal", animal) for animal in ANIMALS]
    facts += [("worn", "hat"), ("shows", "map"), ("digs", "spade"), ("opens", "box"), ("speaks", "letter")]
    facts += [("soft", place) for place in SOFT]
    for weather, (_, things) in WEATHER.items():
        facts += [("helps", thing, weather) for thing in things.split()]
    return frozenset(facts)


STATIC = static()
