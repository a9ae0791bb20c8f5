"""The judge: it accepts real stories, says of planted mistakes what they are, and reads what the teller meant."""

import re
from functools import cache
from random import Random

import pytest

from coursekit.data.world.grammar import pick
from coursekit.data.world.judge import DESCRIBING, KINDS, judge, judged, patterns, split_sentences
from coursekit.data.world.plots import PLOTS, Teller, tales
from coursekit.data.world.words import NAMES, PLACES, THINGS, TOWNS, fits


@cache
def real():
    return [tale.text for tale in tales(150, "train", 21) + tales(150, "test", 21)]


STORY = (
    "Anna was a baker in Rome. She had a red kite. Her best friend was Paul, a sailor. Anna went to the bridge. "
    "On the bridge, Anna lost her kite without noticing. She walked home from the bridge. "
    'Anna noticed that her kite was gone. Anna asked Paul, "Have you seen my red kite?" '
    '"No, but I will help you," said Paul. Anna and Paul went to the bridge together. '
    "On the bridge, under a bench, Paul found the kite. Then he gave it back to Anna. Anna thanked him warmly. "
    "Nobody in Rome was happier than Anna."
)


def changed(old: str, new: str) -> str:
    assert STORY.count(old) == 1, old
    return STORY.replace(old, new)


# --- what holds, and what does not ----------------------------------------------------------------------------


def test_a_story_by_hand_holds():
    verdict = judge(STORY)
    assert verdict.consistent, verdict.faults
    assert verdict.parsed == len(verdict.readings) == 14
    assert verdict.checks > 40


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ('"No, but I will help you," said Paul.', '"No, but I will help you," said Felix.', "name"),
        ("Her best friend was Paul, a sailor.", "Her best friend was Anna, a sailor.", "name"),
        ("She had a red kite.", "He had a red kite.", "pronoun"),
        ("without noticing. She walked", "without noticing. He walked", "pronoun"),
        ("Anna thanked him warmly.", "Anna thanked her warmly.", "pronoun"),
        ("On the bridge, Anna lost", "On the hill, Anna lost", "place"),
        ("She walked home from the bridge.", "She walked home from the mill.", "place"),
        ("Nobody in Rome was", "Nobody in Paris was", "place"),
        ("under a bench, Paul found", "under a bench, Anna found", "pronoun"),
        ('"Have you seen my red kite?"', '"Have you seen my violin?"', "possession"),
        ("Then he gave it back to Anna.", "", "deed"),
        ("Anna thanked him warmly.", "She had a hat. She had an old hat. She had a new hat.", "quality"),
        ('"Have you seen my red kite?"', '"Have you seen my blue kite?"', "quality"),
        ("She had a red kite.", "She had a salty kite.", "quality"),
        ("Nobody in Rome", "Paul was sick. On Monday, Paul forgot all about his promise. Nobody in Rome", "deed"),
    ],
)
def test_what_cannot_be_is_said_with_its_kind(old, new, kind):
    assert kind in {found for found, _ in judge(changed(old, new)).faults}


def test_what_is_no_sentence_of_the_world_is_not_understood():
    verdict = judge(changed("Anna went to the bridge.", "Anna flew to the moon. Anna went to the bridge."))
    assert [reading.sentence for reading in verdict.readings if not reading.event] == ["Anna flew to the moon."]
    assert not verdict.faults
    assert not verdict.consistent
    assert not judge("").consistent
    assert not judge("Anna was a baker in Rome. She had a old kite.").consistent
    assert not judge("Anna was a baker in Rome. She had a red").consistent


def test_a_pronoun_after_a_sentence_that_was_not_understood_is_not_held_against_it():
    assert not judge("Anna was a baker in Rome. Something stirred. She had a red kite.").faults


def test_it_means_what_the_sentence_before_has_named():
    beginning = "Anna was a farmer in Rome. Her best friend was Ida, a cook. Ida had an old ladder. "
    lent = 'Anna said to Ida, "Please lend me your ladder." "Gladly," said Ida and gave '
    assert judge(f"{beginning}{lent}it to Anna.").consistent
    broken = f"{beginning}Ida had red hair and a soft voice. {lent}it to Anna."
    assert judge(broken).consistent  # named in the sentence before
    late = f"{beginning}Anna went to the mill. Ida was quick. Soon Ida gave it to Anna."
    assert ("pronoun", "it: what?") in judge(late).faults


def test_trades_weather_and_promises_are_known():
    earning = "Ali was a cook in Oslo. He went to the {}. {}, a smith, was busy at the smithy. {} had {} for sale."
    assert judge(earning.format("smithy", "Zoe", "Zoe", "an old key")).consistent
    faults = judge(earning.format("smithy", "Zoe", "Zoe", "a red scarf")).faults
    assert [kind for kind, _ in faults] == ["deed"]
    rain = "Ali was a cook in Oslo. It was raining in Oslo. Ali wanted an umbrella, because {}."
    assert judge(rain.format("it was raining")).consistent
    assert not judge(rain.format("it was snowing")).consistent


def test_sentences_end_outside_of_what_is_said():
    text = 'Anna asked Paul, "Why? Tell me." "No. Never," said Paul. He ran home. "Good day," said Anna.'
    assert split_sentences(text) == [
        'Anna asked Paul, "Why? Tell me."',
        '"No. Never," said Paul.',
        "He ran home.",
        '"Good day," said Anna.',
    ]


# --- real stories ---------------------------------------------------------------------------------------------


def test_real_stories_are_accepted():
    shares = judged(real())
    assert shares["stories consistent"] >= 0.995
    assert shares["sentences understood"] >= 0.999
    assert shares["statements that hold"] >= 0.999
    assert all(shares[f"stories with a wrong {kind}"] <= 0.005 for kind in KINDS)


def test_the_judge_finds_what_the_teller_meant():
    """Every event with everybody in it, from the words alone; happiness may be a trait or a feeling."""
    rng, said, alike = Random(11), [], {"be glad", "be sad", "trait"}

    class Noting(Teller):
        def say(self, name, **slots):
            said.append((name, slots))
            return super().say(name, **slots)

    for _ in range(10):
        for plot in PLOTS.values():
            said.clear()
            teller = Noting(rng)
            plot(teller)
            for (event, slots), reading in zip(said, judge(" ".join(teller.told)).readings, strict=True):
                if {event, reading.event} <= alike:
                    continue
                assert reading.event == event, reading.sentence
                together = {"A", "B"} if event in ("go together", "see at once") else set()
                found = {letter: word for letter, word in reading.slots.items() if letter not in together | {"K"}}
                assert found.items() <= slots.items(), reading.sentence


def test_no_two_ways_are_the_same():
    texts = [pattern.text.pattern for pattern in patterns()]
    assert len(set(texts)) == len(texts)


# --- planted contradictions -----------------------------------------------------------------------------------

AT = [phrase["at"] for place, phrase in PLACES.items() if place != "home"]
TO = [phrase["to"] for place, phrase in PLACES.items() if place != "home"]


def one_of(words) -> str:
    return rf"\b({'|'.join(sorted(map(re.escape, words), key=len, reverse=True))})\b"


def replaced(text: str, pattern: str, other, rng: Random) -> str | None:
    """One occurrence, chosen at random, becomes another word."""
    found = list(re.finditer(pattern, text))
    if not found:
        return None
    match = pick(rng, found)
    return text[: match.start()] + other(match) + text[match.end() :]


def another(words):
    return lambda match, rng: pick(rng, [word for word in words if word != match[0]])


def other_pronoun(match: re.Match, rng: Random) -> str:
    after = match.string[match.end() :]
    possessive = re.match(r" (?!to |and |if |for |from |with |until |in |again|warmly|a )[a-z]", after)
    swap = {"he": "she", "she": "he", "him": "her", "his": "her", "her": "his" if possessive else "him"}
    new = swap[match[0].lower()]
    return new.capitalize() if match[0][0].isupper() else new


def unfitting(match: re.Match, rng: Random) -> str:
    start = match.string[: match.start()]
    bad = [word for word in DESCRIBING if not fits(match[2], word)]
    if start.endswith("an "):
        bad = [word for word in bad if word[0] in "aeiou"]
    elif start.endswith(("a ", "A ")):
        bad = [word for word in bad if word[0] not in "aeiou"]
    return f"{pick(rng, bad)} {match[2]}"


PLANTED = {
    "name": (one_of(NAMES), another(list(NAMES))),
    "town": (one_of(TOWNS), another(TOWNS)),
    "place where": (one_of(AT), another(AT)),
    "place whereto": (one_of(TO), another(TO)),
    "pronoun": (r"\b([Hh]e|[Ss]he|him|[Hh]er|[Hh]is)\b", other_pronoun),
    "adjective": (rf"{one_of(DESCRIBING)} {one_of(THINGS)}", unfitting),
}


@pytest.mark.parametrize("kind", PLANTED)
def test_a_planted_contradiction_is_noticed(kind):
    """In 19 of 20 stories at least; nearly all of the others are none, such as a baker who is called Eva throughout."""
    pattern, other = PLANTED[kind]
    rng = Random(kind)
    wrong = [replaced(text, pattern, lambda match: other(match, rng), rng) for text in real()]
    wrong = [text for text in wrong if text is not None]
    assert len(wrong) >= 150
    noticed = sum(bool(judge(text).faults) for text in wrong)
    assert noticed >= 0.95 * len(wrong), noticed / len(wrong)


def test_sentences_in_another_order_are_no_story():
    """The null: each sentence is right by itself."""
    rng, mixed = Random(0), []
    for text in real()[:60]:
        first, *rest = split_sentences(text)
        order = sorted(range(len(rest)), key=lambda _: rng.random())
        mixed.append(" ".join([first, *(rest[i] for i in order)]))
    shares = judged(mixed)
    assert shares["sentences understood"] >= 0.999
    assert shares["stories consistent"] <= 0.05
