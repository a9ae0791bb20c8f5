"""The words of the world: what they are called in French, what they go with, what they express.

An English noun ending in ``s``, ``x``, ``ch`` or ``sh`` takes ``es``; other irregular plurals stand beside it.
"""

from dataclasses import dataclass
from typing import Literal

Gender = Literal["m", "f"]


@dataclass(frozen=True)
class Noun:
    """``fr`` and ``frs`` are the French singular and plural; ``kind`` decides what may happen to it."""

    en: str
    fr: str
    gender: Gender
    kind: str
    ens: str = ""  # English plural, where it is irregular
    frs: str = ""  # French plural, where it is not + s
    sex: Literal["he", "she", "it"] = "it"

    def english(self, plural: bool) -> str:
        if not plural:
            return self.en
        ending = "es" if self.en.endswith(("s", "x", "ch", "sh")) else "s"
        return self.ens or self.en + ending

    def french(self, plural: bool) -> str:
        return (self.frs or self.fr + "s") if plural else self.fr


@dataclass(frozen=True)
class Adjective:
    """French forms by gender and number; ``before`` the noun or after it; polarity -1, 0 or 1."""

    en: str
    m: str
    f: str
    ms: str = ""
    fs: str = ""
    before: bool = False
    polarity: int = 0

    def french(self, gender: Gender, plural: bool) -> str:
        if gender == "f":
            return (self.fs or self.f + "s") if plural else self.f
        if not plural:
            return self.m
        return self.ms or (self.m if self.m.endswith(("s", "x")) else self.m + "s")


@dataclass(frozen=True)
class Verb:
    """A verb with an object: past tense, base form, French participle (with *avoir*), and what it goes with.

    ``subject_*`` and ``object_*`` are adjectives that explain why it was done (``why``) or not done (``not``):
    none stands on both sides, so that the adjective alone tells whose it is.
    """

    base: str
    past: str
    participle: str
    subjects: tuple[str, ...]
    objects: tuple[str, ...]
    subject_why: tuple[str, ...]
    object_why: tuple[str, ...]
    subject_not: tuple[str, ...]
    object_not: tuple[str, ...]


def nouns(kind: str, text: str) -> list[Noun]:
    """One noun in a line: ``en / fr / gender [/ en plural] [/ fr plural] [/ he or she]``, ``-`` for regular."""
    found = []
    for line in text.strip().splitlines():
        fields = [field.strip() for field in line.split("/")]
        extra = [("" if field == "-" else field) for field in fields[3:]] + [""] * 3
        found.append(Noun(*fields[:2], fields[2], kind, extra[0], extra[1], extra[2] or "it"))
    return found


def verbs(text: str) -> list[Verb]:
    """One verb in two lines: ``base / past / participle / subjects / objects``, then the adjectives.

    They are ``subject_why / object_why / subject_not / object_not``.
    """
    lines = text.strip().splitlines()
    found = []
    for first, second in zip(lines[::2], lines[1::2]):
        base, past, participle, *more = (field.strip() for field in f"{first}/{second}".split("/"))
        found.append(Verb(base, past, participle, *(tuple(field.split()) for field in more)))
    return found


NOUNS: list[Noun] = [
    *nouns(
        "person",
        """
        man / homme / m / men / - / he
        woman / femme / f / women / - / she
        boy / garçon / m / - / - / he
        girl / fille / f / - / - / she
        king / roi / m / - / - / he
        queen / reine / f / - / - / she
        father / père / m / - / - / he
        mother / mère / f / - / - / she
        brother / frère / m / - / - / he
        sister / sœur / f / - / - / she
        uncle / oncle / m / - / - / he
        aunt / tante / f / - / - / she
        """,
    ),
    *nouns(
        "animal",
        """
        animal / animal / m / - / animaux
        dog / chien / m
        cat / chat / m
        horse / cheval / m / - / chevaux
        cow / vache / f
        goat / chèvre / f
        duck / canard / m
        bear / ours / m / - / ours
        fox / renard / m
        frog / grenouille / f
        ant / fourmi / f
        donkey / âne / m
        """,
    ),
    *nouns(
        "way",
        """
        street / rue / f
        road / route / f
        river / rivière / f
        bridge / pont / m
        field / champ / m
        square / place / f
        tunnel / tunnel / m
        avenue / avenue / f
        """,
    ),
    *nouns(
        "height",
        """
        wall / mur / m
        hill / colline / f
        tree / arbre / m
        mountain / montagne / f
        tower / tour / f
        stone / pierre / f
        """,
    ),
    *nouns(
        "food",
        """
        apple / pomme / f
        cake / gâteau / m / - / gâteaux
        egg / œuf / m
        soup / soupe / f
        orange / orange / f
        pear / poire / f
        fish / poisson / m / fish
        biscuit / biscuit / m
        carrot / carotte / f
        melon / melon / m
        """,
    ),
    *nouns(
        "load",
        """
        box / boîte / f
        bag / sac / m
        table / table / f
        chair / chaise / f
        basket / panier / m
        trunk / malle / f
        ladder / échelle / f
        lamp / lampe / f
        """,
    ),
    *nouns(
        "text",
        """
        book / livre / m
        letter / lettre / f
        newspaper / journal / m / - / journaux
        poem / poème / m
        story / histoire / f / stories
        message / message / m
        """,
    ),
    *nouns(
        "runner",
        """
        bus / bus / m / - / bus
        train / train / m
        car / voiture / f
        bicycle / vélo / m
        ball / balle / f
        mouse / souris / f / mice / souris
        """,
    ),
    *nouns(
        "room",
        """
        house / maison / f
        kitchen / cuisine / f
        office / bureau / m / - / bureaux
        school / école / f
        garden / jardin / m
        shop / magasin / m
        """,
    ),
]

ADJECTIVES: dict[str, Adjective] = {
    adjective.en: adjective
    for adjective in [
        # states of who acts
        Adjective("tired", "fatigué", "fatiguée", polarity=-1),
        Adjective("weak", "faible", "faible", polarity=-1),
        Adjective("sick", "malade", "malade", polarity=-1),
        Adjective("lazy", "paresseux", "paresseuse", polarity=-1),
        Adjective("afraid", "effrayé", "effrayée", polarity=-1),
        Adjective("sad", "triste", "triste", polarity=-1),
        Adjective("slow", "lent", "lente", polarity=-1),
        Adjective("poor", "pauvre", "pauvre", polarity=-1),
        Adjective("busy", "occupé", "occupée"),
        Adjective("brave", "courageux", "courageuse", polarity=1),
        Adjective("strong", "fort", "forte", polarity=1),
        Adjective("hungry", "affamé", "affamée"),
        Adjective("greedy", "gourmand", "gourmande", polarity=-1),
        Adjective("curious", "curieux", "curieuse", polarity=1),
        Adjective("rich", "riche", "riche", polarity=1),
        Adjective("happy", "content", "contente", polarity=1),
        Adjective("quick", "rapide", "rapide", polarity=1),
        Adjective("clever", "malin", "maligne", polarity=1),
        # qualities of what it is done to
        Adjective("wide", "large", "large"),
        Adjective("long", "long", "longue"),
        Adjective("dangerous", "dangereux", "dangereuse", polarity=-1),
        Adjective("dark", "sombre", "sombre", polarity=-1),
        Adjective("narrow", "étroit", "étroite"),
        Adjective("safe", "sûr", "sûre", polarity=1),
        Adjective("short", "court", "courte"),
        Adjective("high", "haut", "haute"),
        Adjective("steep", "raide", "raide"),
        Adjective("slippery", "glissant", "glissante", polarity=-1),
        Adjective("low", "bas", "basse"),
        Adjective("cold", "froid", "froide", polarity=-1),
        Adjective("sour", "acide", "acide", polarity=-1),
        Adjective("salty", "salé", "salée", polarity=-1),
        Adjective("fresh", "frais", "fraîche", polarity=1),
        Adjective("sweet", "sucré", "sucrée", polarity=1),
        Adjective("delicious", "délicieux", "délicieuse", polarity=1),
        Adjective("heavy", "lourd", "lourde"),
        Adjective("fragile", "fragile", "fragile"),
        Adjective("light", "léger", "légère"),
        Adjective("empty", "vide", "vide"),
        Adjective("boring", "ennuyeux", "ennuyeuse", polarity=-1),
        Adjective("difficult", "difficile", "difficile", polarity=-1),
        Adjective("funny", "drôle", "drôle", polarity=1),
        Adjective("interesting", "intéressant", "intéressante", polarity=1),
        Adjective("fast", "rapide", "rapide"),
        Adjective("noisy", "bruyant", "bruyante", polarity=-1),
        Adjective("expensive", "cher", "chère", polarity=-1),
        Adjective("ugly", "laid", "laide", polarity=-1),
        Adjective("new", "neuf", "neuve", ms="neufs", fs="neuves", polarity=1),
        Adjective("dirty", "sale", "sale", polarity=-1),
        # what describes without explaining
        Adjective("red", "rouge", "rouge"),
        Adjective("black", "noir", "noire"),
        Adjective("white", "blanc", "blanche"),
        Adjective("green", "vert", "verte"),
        Adjective("blue", "bleu", "bleue"),
        Adjective("grey", "gris", "grise"),
        Adjective("small", "petit", "petite", before=True),
        Adjective("big", "grand", "grande", before=True),
        Adjective("young", "jeune", "jeune", before=True),
        Adjective("pretty", "joli", "jolie", before=True, polarity=1),
    ]
}

LIVING = ("person", "animal")
VERBS: list[Verb] = verbs(
    """
    cross / crossed / traversé / person animal / way
        brave curious hungry / narrow safe short / tired weak afraid sick / wide long dangerous dark
    climb / climbed / escaladé / person animal / height
        brave strong curious / low safe / tired lazy afraid sick / high steep slippery dangerous
    eat / ate / mangé / person animal / food
        hungry greedy / fresh sweet delicious / sad sick busy / cold sour salty
    carry / carried / porté / person animal / load
        strong happy brave / light empty / weak tired lazy / heavy fragile big
    read / read / lu / person / text
        curious clever / short funny interesting / tired busy lazy / boring difficult long
    follow / followed / suivi / person animal / runner
        quick curious strong / noisy new small / slow tired afraid / fast dangerous
    buy / bought / acheté / person / load runner room text
        rich clever happy / new pretty interesting / poor busy sad / expensive ugly dirty
    clean / cleaned / nettoyé / person / room load
        happy strong / dirty small ugly / lazy tired sick / big dark
    """
)

LOOKS_OF: dict[str, tuple[str, ...]] = {  # how each kind looks: all of no sentiment, none that would be odd
    "person": ("young", "small"),
    "animal": ("young", "small", "big", "black", "white", "grey"),
    "way": ("wide", "narrow", "small"),
    "height": ("small", "big", "white", "grey"),
    "food": ("small", "big"),
    "load": ("small", "big", "heavy", "red", "black", "white", "green", "blue", "grey"),
    "text": ("short", "small", "big"),
    "runner": ("small", "big", "fast", "red", "black", "white", "green", "blue", "grey"),
    "room": ("small", "big", "white", "grey"),
}
UNCOUNTED = ("fish", "soup")  # told of as one only

NEVER: dict[str, tuple[str, ...]] = {  # nouns that an adjective does not go with, although others of their kind do
    adjective: tuple(nouns.split())
    for adjective, nouns in {
        "new": "book letter newspaper poem story message mouse garden",
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

PEOPLE: dict[str, tuple[str, Gender]] = {
    "Anna": ("she", "f"),
    "Clara": ("she", "f"),
    "Emma": ("she", "f"),
    "Julia": ("she", "f"),
    "Nora": ("she", "f"),
    "Sarah": ("she", "f"),
    "Adam": ("he", "m"),
    "David": ("he", "m"),
    "Leon": ("he", "m"),
    "Oscar": ("he", "m"),
    "Paul": ("he", "m"),
    "Victor": ("he", "m"),
}

CITIES: dict[str, str] = {
    "Paris": "Paris",
    "London": "Londres",
    "Berlin": "Berlin",
    "Rome": "Rome",
    "Vienna": "Vienne",
    "Lisbon": "Lisbonne",
    "Geneva": "Genève",
    "Brussels": "Bruxelles",
}

DAYS: dict[str, str] = {
    "Monday": "lundi",
    "Tuesday": "mardi",
    "Wednesday": "mercredi",
    "Thursday": "jeudi",
    "Friday": "vendredi",
    "Saturday": "samedi",
    "Sunday": "dimanche",
}
