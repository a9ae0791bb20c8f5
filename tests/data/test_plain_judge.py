"""The judge of plain stories: real ones hold, planted contradictions do not."""

from functools import cache
from random import Random

import pytest

from coursekit.data.world import stories
from coursekit.data.world.grammar import pick
from coursekit.data.world.judge import judged
from coursekit.data.world.lexicon import ADJECTIVES
from coursekit.data.world.plain_judge import judge_plain


@cache
def real():
    return [story.text for story in stories(300, "train", 31) + stories(300, "test", 31)]


def test_real_stories_are_accepted():
    shares = judged(real(), judge_plain)
    assert shares["stories consistent"] >= 0.995
    assert shares["sentences understood"] >= 0.999


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("On Monday, Anna was in Paris. He was brave.", "pronoun"),
        ("Anna was in Paris on Monday. Emma climbed a wall. She was happy.", "pronoun"),
        ("Anna carried the box because it was strong.", "pronoun"),
        ("Anna carried the box because it was wide.", "deed"),
        ("On Monday, a dog was in Rome. The cat was hungry.", "name"),
        ("Some dogs were in Rome on Monday. The dog ate an egg.", "name"),
        ("Anna ate the soup. It was brave.", "quality"),
        ("The box was light. Anna carried it because she was strong. But it was heavy.", "quality"),
        ("A cow read the newspaper.", "deed"),
        ("Paul ate the river.", "deed"),
        ("Paul bought a lamp. Then he bought it.", "deed"),
        ("Paul crossed a street. Later, he didn't cross it.", "deed"),
    ],
)
def test_what_cannot_be_is_said_with_its_kind(text, kind):
    verdict = judge_plain(text)
    assert all(reading.event for reading in verdict.readings)
    assert kind in {found for found, _ in verdict.faults}


def test_what_no_plain_story_says_is_not_understood():
    verdict = judge_plain("Anna was in Paris on Monday. The girles were dangerous. She ate a cake. She slept.")
    assert [bool(reading.event) for reading in verdict.readings] == [True, False, True, False]
    assert not verdict.faults
    assert not judge_plain("Anna was in").consistent


def test_an_adjective_by_chance_is_mostly_noticed():
    rng, noticed, n = Random(5), 0, 0
    for text in real():
        words = text.split(" ")
        places = [i for i, word in enumerate(words) if word.strip(".") in ADJECTIVES]
        if places:
            i = pick(rng, places)
            old = words[i].strip(".")
            words[i] = words[i].replace(old, pick(rng, [word for word in ADJECTIVES if word != old]))
            noticed, n = noticed + (not judge_plain(" ".join(words)).consistent), n + 1
    assert n > 400
    assert noticed > 0.8 * n
