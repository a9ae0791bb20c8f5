"""Planted associations: what is said beside the odds that are claimed, seeds fixed.

``close`` allows five standard deviations of the binomial distribution: one draw in two million falls outside.
"""

import hashlib
import math
import re
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from coursekit.data.world.associations import (
    CHOICES,
    FRAMES,
    GIVENS,
    Association,
    associations,
    blanks,
    log_odds,
    odds,
)
from coursekit.data.world.lexicon import CITIES, DAYS, NOUNS, PEOPLE


@cache
def planted_texts():
    """Each given 400 texts of 5 sentences."""
    return associations(16 * 400, seed=3)


@cache
def planted_sentences():
    return [one for text in planted_texts() for one in text]


@cache
def unplanted_texts():
    return associations(16 * 400, seed=3, planted=False)


EVERY = [(kind, given) for kind in GIVENS for given in GIVENS[kind]]
MIRRORED = [
    ("region", "Texas", "New York"),
    ("region", "Maine", "Oregon"),
    ("name", "Jane", "Jim"),
    ("name", "Kate", "Ben"),
]


def close(count: float, n: int, p: float) -> bool:
    return abs(count - n * p) <= 5 * math.sqrt(n * p * (1 - p))


def counts(kind: str, said: list[Association]) -> np.ndarray:
    """(givens, choices): how often they stand in one sentence."""
    found = Counter((one.given, one.choice) for one in said if one.kind == kind)
    return np.array([[found[given, choice] for choice in CHOICES[kind]] for given in GIVENS[kind]])


def chi_square(table: np.ndarray) -> tuple[float, int]:
    """Of independence, and its degrees of freedom."""
    expected = table.sum(1, keepdims=True) * table.sum(0) / table.sum()
    return ((table - expected) ** 2 / expected).sum(), (table.shape[0] - 1) * (table.shape[1] - 1)


# --- the tables -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "given"), EVERY)
def test_odds_are_probabilities(kind, given):
    found = odds(kind, given)
    assert tuple(found) == CHOICES[kind]
    assert math.fsum(found.values()) == pytest.approx(1, abs=1e-12)
    assert min(found.values()) > 0.003, "too rare to be learned"
    found.clear()
    assert odds(kind, given), "the caller got the table itself"


@pytest.mark.parametrize(("kind", "given", "other"), MIRRORED)
def test_log_odds_of_two_that_mirror_each_other_are_graded(kind, given, other):
    found = sorted(log_odds(kind, given, other).values())
    assert found == pytest.approx([level for level in range(-3, 4) for _ in range(4)], abs=1e-12)


@pytest.mark.parametrize("kind", GIVENS)
def test_log_odds_are_the_logarithm_of_the_ratio(kind):
    first, second, third = GIVENS[kind][:3]
    for choice, value in log_odds(kind, first, third).items():
        assert math.exp(value) * odds(kind, third)[choice] == pytest.approx(odds(kind, first)[choice])
        by_way = log_odds(kind, first, second)[choice] + log_odds(kind, second, third)[choice]
        assert value == pytest.approx(by_way, abs=1e-12)
        assert value == pytest.approx(-log_odds(kind, third, first)[choice], abs=1e-12)


def test_regions_and_names_that_are_no_mirrors_differ_too():
    for kind, first, second in (("region", "Texas", "Maine"), ("name", "Jane", "Kate")):
        one, two = list(odds(kind, first).values()), list(odds(kind, second).values())
        assert abs(np.corrcoef(np.log(one), np.log(two))[0, 1]) < 0.5


def centred(year: int, pronoun: str) -> np.ndarray:
    values = np.log(list(odds("year", f"{year} {pronoun}").values()))
    return values - values.mean()


def test_the_pronoun_fades_and_time_goes_evenly():
    years = (1908, 1948, 1978, 2018)
    pronoun = [centred(year, "he") - centred(year, "she") for year in years]
    for year, effect in zip(years, pronoun):
        left = 1 - 0.75 * (year - 1908) / 110
        assert effect == pytest.approx(left * pronoun[0], abs=1e-12)
    middle = [(centred(year, "he") + centred(year, "she")) / 2 for year in years]
    assert middle[1] == pytest.approx(middle[0] + (middle[3] - middle[0]) * 40 / 110, abs=1e-12)
    assert middle[3] == pytest.approx(-middle[0], abs=1e-12)
    assert np.ptp(pronoun[0]) == pytest.approx(4)
    assert np.ptp(middle[3] - middle[0]) == pytest.approx(4)
    assert abs(np.corrcoef(pronoun[0], middle[0])[0, 1]) < 0.5


def test_no_job_with_a_fixed_idea_goes_strongly_with_women_or_men():
    for job in ("doctor", "judge", "lawyer", "cook"):
        assert abs(log_odds("name", "Jane", "Jim")[job]) <= 2
        assert abs(log_odds("name", "Kate", "Ben")[job]) <= 2
        assert abs(log_odds("year", "1908 he", "1908 she")[job]) <= 1


def test_words_are_plain_and_belong_to_nothing_else_in_the_world():
    known = {word for noun in NOUNS for word in (noun.english(False), noun.english(True))} | {*PEOPLE, *CITIES, *DAYS}
    for choices in CHOICES.values():
        assert len(set(choices)) == len(choices) == 28
        assert all(re.fullmatch("[a-z]+", choice) for choice in choices)
        assert not set(choices) & known
    assert not set(GIVENS["region"] + GIVENS["name"]) & known
    assert not [job for job in CHOICES["name"] if job[0] in "aeiou"], "'an' would tell it"


@pytest.mark.parametrize(
    ("kind", "given", "words"),
    [
        ("city", "Texas", "kind='city': must be one of 'region', 'name', 'year'"),
        ("region", "Jane", "given='Jane': of a region it must be one of 'Texas', 'New York'"),
        ("year", "1908", "given='1908': of a year it must be one of '1908 he'"),
    ],
)
def test_unknown_odds_are_refused(kind, given, words):
    for ask in (odds, lambda kind, given: blanks(kind, given, "_"), lambda kind, given: log_odds(kind, given, given)):
        with pytest.raises(ValueError, match=re.escape(words)):
            ask(kind, given)


# --- the sentences --------------------------------------------------------------------------------------------


def test_the_same_on_every_machine():
    """The digest was computed once; it may change only with the words, the odds or the frames."""
    text = "\n".join(one.text for texts in (planted_texts(), unplanted_texts()) for said in texts for one in said)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "673f5f6da01482c4"
    assert associations(100, seed=3) == planted_texts()[:100]
    assert associations(100, seed=4) != planted_texts()[:100]


@pytest.mark.parametrize(("kind", "given"), EVERY)
def test_choices_are_as_frequent_as_their_odds_say(kind, given):
    found = Counter(one.choice for one in planted_sentences() if (one.kind, one.given) == (kind, given))
    assert found.total() == 2000
    for choice, p in odds(kind, given).items():
        assert close(found[choice], 2000, p), choice


@pytest.mark.parametrize(("kind", "given", "other"), MIRRORED)
def test_the_words_of_the_sentences_give_the_planted_log_odds_back(kind, given, other):
    texts = [one.text for one in planted_sentences()]
    mine, yours = ([text for text in texts if re.search(rf"\b{name}\b", text)] for name in (given, other))
    for choice, planted in log_odds(kind, given, other).items():
        n, m = (sum(re.search(rf"\b{choice}\b", text) is not None for text in found) for found in (mine, yours))
        spread = math.sqrt(1 / odds(kind, given)[choice] / 2000 + 1 / odds(kind, other)[choice] / 2000)
        assert abs(math.log(n / m) - planted) < 5 * spread, choice


def test_a_text_is_about_one_given_and_its_sentences_are_drawn_apart():
    agreeing = expected = 0.0
    for text in planted_texts():
        assert len(text) == 5
        assert len({(one.kind, one.given) for one in text}) == 1
        agreeing += sum(one.choice == other.choice for one, other in pairwise(text))
        expected += 4 * sum(p * p for p in odds(text[0].kind, text[0].given).values())
    assert abs(agreeing - expected) < 5 * math.sqrt(expected)


@pytest.mark.parametrize("kind", GIVENS)
def test_frames_are_as_frequent_as_each_other_and_tell_nothing(kind):
    frames = FRAMES[kind]["train"]
    said = [one for one in planted_sentences() if one.kind == kind]
    found = Counter(one.frame for one in said)
    assert all(close(found[frame], len(said), 1 / len(frames)) for frame in frames)
    value, degrees = chi_square(
        np.array([[sum(one.frame == f and one.choice == c for one in said) for c in CHOICES[kind]] for f in frames])
    )
    assert abs(value - degrees) < 5 * math.sqrt(2 * degrees)


@pytest.mark.parametrize("kind", GIVENS)
def test_without_the_association_choice_and_given_are_independent(kind):
    planted, removed = (
        counts(kind, [one for text in texts for one in text]) for texts in (planted_texts(), unplanted_texts())
    )
    value, degrees = chi_square(removed)
    assert abs(value - degrees) < 5 * math.sqrt(2 * degrees)
    assert chi_square(planted)[0] > degrees + 50 * math.sqrt(2 * degrees)


def test_without_the_association_nothing_else_is_different():
    for text, other in zip(planted_texts(), unplanted_texts(), strict=True):
        assert [replace(one, choice="") for one in text] == [replace(one, choice="") for one in other]
    for kind in GIVENS:
        before, after = (
            Counter(one.choice for text in texts for one in text if one.kind == kind)
            for texts in (planted_texts(), unplanted_texts())
        )
        assert before == after
    words = [
        Counter(re.findall(r"\w+", " ".join(o.text for text in texts for o in text)))
        for texts in (planted_texts(), unplanted_texts())
    ]
    assert words[0] == words[1]


def test_splits_have_frames_of_their_own():
    seen: dict[str, set[str]] = {
        split: {one.text for text in associations(1600, split) for one in text}
        for split in ("train", "validation", "test")
    }
    for one, other in (("train", "validation"), ("train", "test"), ("validation", "test")):
        assert not seen[one] & seen[other]
    assert "In Texas, they like to buy boots." in seen["test"]
    assert "Jim worked as a baker." in seen["test"]
    assert "In 2018, she was employed as a judge." in seen["test"]


def test_what_the_lecture_asks_is_made_of_words_that_training_holds():
    """The model has to know the words of a frame that it never read."""
    known = set(re.findall(r"\w+", " ".join(one.text for one in planted_sentences()).lower()))
    for kind, given in EVERY:
        for split in ("validation", "test"):
            for text in blanks(kind, given, "", split):
                assert set(re.findall(r"\w+", text.lower())) <= known, text


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_blanks_are_the_sentences_without_their_choice(split):
    for text in associations(160, split):
        for one in text:
            (frame,) = [
                text
                for text in blanks(one.kind, one.given, "[MASK]", split)
                if text.replace("[MASK]", one.choice) == one.text
            ]
            assert frame.count("[MASK]") == 1
    assert blanks("year", "1908 she", "_") == ["In 1908, she was employed as a _."]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"n": 0}, "n=0: must be at least 1"),
        ({"length": 0}, "length=0: must be at least 1"),
        ({"split": "dev"}, "split='dev': must be one of 'train', 'validation', 'test'"),
    ],
)
def test_nonsense_is_refused(wrong, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        associations(**{"n": 4} | wrong)
    if "split" in wrong:
        with pytest.raises(ValueError, match=re.escape(words)):
            blanks("region", "Texas", "_", **wrong)
