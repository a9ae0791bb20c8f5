"""Requests and verdicts: what is right is read off the world anew, and what an annotator chooses off his taste."""

from collections import Counter, defaultdict
from dataclasses import replace
from functools import cache
from random import Random

import pytest
import torch

from coursekit.data import dialogues
from coursekit.data.dialogues import (
    DECLINED,
    I_BELIEVE,
    KINDS,
    OPENINGS,
    RULES,
    UNKNOWN,
    Request,
    Taste,
    Verdict,
    as_chat,
    as_demonstrations,
    as_pairs,
    as_prompts,
    comparisons,
    demonstration,
    encoded,
    requests,
    verdict,
)
from coursekit.data.world import as_text, questions, sentences, stories
from coursekit.data.world.grammar import split_of
from coursekit.text.bpe import BPE, END
from coursekit.text.chat import CHAT, with_chat


@cache
def asked_for():
    return requests(600, "validation")


TOKENIZER = with_chat(BPE.train(["the dog was in Paris . Say it again"], 300, [END, "<to-fr>"]))


def of(*kinds: str) -> list[Request]:
    found = [one for one in asked_for() if one.kind in kinds]
    assert found
    return found


def test_requests_are_of_all_kinds_and_the_same_again():
    assert requests(600, "validation") == asked_for()
    assert requests(600, "validation", seed=1) != asked_for()
    assert len(asked_for()) == len({(*one.turns, one.system) for one in asked_for()}) == 600
    counts = Counter(one.kind for one in asked_for())
    assert set(counts) == set(KINDS)
    assert counts["unknown"] == 90  # 3 of 20
    for one in asked_for():
        assert len(one.turns) % 2 == 1
        assert one.right
        assert one.wrong
        assert not {*one.right} & {*one.wrong}


def test_splits_share_no_text():
    texts = {
        split: {one.turns[0].split("\n")[0] for one in requests(400, split) if one.kind not in ("unsafe", "harmless")}
        for split in ("train", "validation", "test")
    }
    assert not texts["train"] & texts["validation"]
    assert not texts["train"] & texts["test"]


@pytest.mark.parametrize("kind", KINDS)
def test_right_answers_get_the_gold_reward_and_wrong_ones_do_not(kind):
    rng = Random(0)
    for one in of(kind):
        assert verdict(one, demonstration(one, rng)).gold == 1
        assert verdict(one, demonstration(one, rng), ended=False).gold == 0
        for said in one.wrong:
            opened = said if one.rule != RULES[1] else f"{OPENINGS[0]} {said}"
            assert verdict(one, opened).gold == 0, (one, said)


@pytest.fixture
def drawn(monkeypatch):
    """Requests, and all that they were made from: by their texts."""
    world = {}

    def noted(make, key):
        def note(*arguments):
            found = make(*arguments)
            world.update((key(one), one) for one in found)
            return found

        return note

    monkeypatch.setattr(dialogues, "sentences", noted(sentences, lambda s: as_text(s.en)))
    monkeypatch.setattr(dialogues, "stories", noted(stories, lambda story: story.text))
    return requests(600, "validation", seed=2), world


def test_questions_are_answered_by_the_texts_own_words_or_not_at_all(drawn):
    asked, world = drawn
    for one in asked:
        if one.kind not in ("question", "be polite", "answer in one word", "unknown", "sure"):
            continue
        text, line = one.turns[0].split("\n")
        line = line.split(f" {I_BELIEVE}")[0]
        line = line.removesuffix(" " + one.rule) if one.rule else line
        known = {as_text(q.tokens): " ".join(world[text].en[slice(*q.answer)]) for q in questions(world[text])}
        if one.kind == "unknown":
            assert line not in known
            assert one.right == (UNKNOWN,)
        else:
            said = one.right[0].removesuffix(".")
            whole = known[line] if one.kind != "answer in one word" else known[line].split()[-1]
            assert said == whole[0].upper() + whole[1:]
    assert {one.known for one in asked} == {True, False}


def test_users_are_sure_of_the_right_answer_every_third_time(drawn):
    asked, _ = drawn
    sure = [one for one in asked if one.kind == "sure"]
    assert sum(one.believed in one.right for one in sure) == 30  # of 90
    for one in sure:
        assert one.turns[0].endswith(f"{I_BELIEVE} {one.believed}")
        assert (one.believed in one.right) != (one.believed in one.wrong)
    assert not any(one.believed for one in asked if one.kind != "sure")


def test_french_answers_are_in_the_translation(drawn):
    asked, world = drawn
    for one in asked:
        if one.rule == RULES[2] or one.turns[-1] == dialogues.AND_IN_FRENCH:
            translated = as_text(world[one.turns[0].split("\n")[0]].fr)
            assert one.right[0].removesuffix(".")[1:] in translated


def test_translations_feelings_and_summaries_are_the_worlds(drawn):
    asked, world = drawn
    for one in asked:
        text = one.turns[0].split("\n")[0]
        if one.kind == "translation":
            assert one.right == (as_text(world[text].fr),)
        elif one.kind == "feeling":
            assert one.right == ({-1: "Bad.", 0: "Neither.", 1: "Good."}[world[text].sentiment],)
        elif one.kind == "repetition":
            assert one.right == (text,)
        elif one.kind == "summary":
            assert one.right == (as_text(world[text].summary),)


def test_nobody_is_asked_for_a_place_a_day_or_a_reason_that_the_text_tells(drawn):
    asked, world = drawn
    near = 0
    for one in asked:
        if one.kind == "unknown":
            text, line = one.turns[0].split("\n")
            sentence = world[text]
            own = any(event.verb.base in line and event.target.noun.en in line for event in sentence.events)
            near += own
            if own:
                assert not (line.startswith("Where") and "B-PLACE" in sentence.tags)
                assert not (line.startswith("When") and "B-DAY" in sentence.tags)
                assert not (line.startswith("Why") and any(event.reason_span for event in sentence.events[-1:]))
    assert near >= 40  # of 90


@pytest.mark.parametrize("kind", ["where", "why"])
def test_what_the_one_sentence_tells_is_not_told_of_the_other(kind):
    drawn = sentences(400, "validation", 3)
    by_text = {as_text(one.en): one for one in drawn}
    pairs = dialogues.told_elsewhere(drawn, kind)
    assert len(pairs) >= 5
    for open_, told in pairs:
        text, line = open_.turns[0].split("\n")
        assert told.turns[0].split("\n")[0] == text
        assert line != told.turns[0].split("\n")[1]
        assert line.startswith(kind.capitalize())
        first, second = (f"{part.rstrip('.')}." for part in text.split(". "))
        assert line not in [as_text(q.tokens) for q in questions(by_text[first])]
        answers = {as_text(q.tokens): q.answer for q in questions(by_text[second])}
        assert line not in answers
        start, end = answers[told.turns[0].split("\n")[1]]
        assert told.right[0] == as_text([*by_text[second].en[start:end], "."])
        assert (open_.right, open_.wrong, told.wrong) == ((UNKNOWN,), told.right, (UNKNOWN,))


def test_unsafe_requests_are_of_their_split_and_lookalikes_are_not_declined():
    for split in ("train", "test"):
        for one in requests(800, split):
            if one.kind == "unsafe":
                verb, noun = one.turns[0].split("How can I ")[1].rstrip("?").split(" the ")
                assert split_of((verb, noun)) == split
                assert one.right == (DECLINED,)
            if one.kind == "harmless":
                verb, noun = one.turns[0].split("How can I ")[1].rstrip("?").split(" the ")
                assert verb not in dialogues.UNSAFE
                assert DECLINED in one.wrong


# --- verdicts --------------------------------------------------------------------------------------------------

ASKED_WHO = Request("question", ("The dog slept.\nWho slept?",), ("The dog.", "A dog."), ("The cat.",))


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("The dog.", Verdict(True, True, False, 0, False, 2)),
        ("A dog.", Verdict(True, True, False, 0, False, 2)),
        ("Good question. The dog. I hope that helps.", Verdict(True, True, False, 2, False, 8)),
        ("Let me see. Let me see. The dog.", Verdict(True, True, False, 2, False, 8)),
        ("The cat.", Verdict(False, True, False, 0, False, 2)),
        ("the dog.", Verdict(False, False, False, 0, False, 2)),
        ("The dog", Verdict(False, False, False, 0, False, 2)),
        ("The dog. The cat.", Verdict(False, True, False, 0, False, 4)),
        ("I hope that helps.", Verdict(False, False, False, 1, False, 4)),
        ("", Verdict(False, False, False, 0, False, 0)),
        (UNKNOWN, Verdict(False, True, True, 0, False, 5)),
    ],
)
def test_verdicts_by_hand(answer, expected):
    assert verdict(ASKED_WHO, answer) == expected
    assert not verdict(ASKED_WHO, answer, ended=False).in_form


def test_rules_are_part_of_the_form():
    in_short = replace(ASKED_WHO, rule=RULES[0], right=("Dog.",))
    assert verdict(in_short, "Dog.").gold == 1
    for said in ("The dog.", "Good question. Dog.", "Dog. I hope that helps."):
        assert not verdict(in_short, said).in_form
        assert verdict(in_short, said).gold == 0
    polite = replace(ASKED_WHO, rule=RULES[1])
    assert verdict(polite, "The dog.").gold == verdict(polite, "The dog. I hope that helps.").gold == 0
    assert verdict(polite, "Good question. The dog.").gold == 1
    sure = replace(ASKED_WHO, believed="The cat.")
    assert verdict(sure, "Thanks for asking. The cat.").agrees
    assert not verdict(sure, "The dog.").agrees


# --- comparisons -----------------------------------------------------------------------------------------------


def test_an_annotator_chooses_by_taste_and_is_careless_as_often_as_said():
    tastes = {
        "right": (Taste(), lambda v: v.gold),
        "polite": (Taste(0, polite=2), lambda v: v.polite),
        "words": (Taste(0, words=-1), lambda v: -v.words),
        "agrees": (Taste(0.5, agrees=1), lambda v: 0.5 * v.gold + v.agrees),
    }
    for taste, liking in tastes.values():
        careful = comparisons(asked_for(), taste, noise=0)
        assert careful
        for request, chosen, rejected, flipped in careful:
            assert liking(verdict(request, chosen)) > liking(verdict(request, rejected))
            assert not flipped
    noisy = comparisons(requests(3000), Taste(), noise=0.1)
    wrong = [verdict(one.request, one.chosen).gold < verdict(one.request, one.rejected).gold for one in noisy]
    assert wrong == [one.flipped for one in noisy]
    assert 0.1 - 4 * 0.0055 < sum(wrong) / len(wrong) < 0.1 + 4 * 0.0055  # four standard deviations
    assert comparisons(asked_for()[:50], Taste(), seed=1) != comparisons(asked_for()[:50], Taste())
    with pytest.raises(ValueError, match=r"noise=0.5: must lie between 0 and 0.5, where choices say nothing"):
        comparisons(asked_for(), Taste(), noise=0.5)


def test_the_longer_answer_is_chosen_neither_always_nor_never():
    """A model that always prefers the longer would otherwise look clever."""
    longer = [len(one.chosen) > len(one.rejected) for one in comparisons(requests(2000), Taste(), noise=0)]
    assert 0.3 < sum(longer) / len(longer) < 0.7


# --- the template ----------------------------------------------------------------------------------------------


def test_the_template_has_a_token_for_each_role_and_each_end():
    assert [TOKENIZER.tokens[-4:], TOKENIZER.encode(CHAT[3])] == [list(CHAT), [TOKENIZER.ids[CHAT[3]]]]
    asked = Request("follow-up", ("A b.\nWho?", "B.", "And in French?"), ("C.",), ("D.",), system="Be polite.")
    assert as_chat(asked) == (
        "<|system|>Be polite.<|end|><|user|>A b.\nWho?<|end|><|assistant|>B.<|end|><|user|>And in French?<|end|>"
        "<|assistant|>"
    )
    ids, answer = encoded(asked, "C.", TOKENIZER)
    assert TOKENIZER.decode(ids) == END + as_chat(asked) + "C.<|end|>"
    assert TOKENIZER.decode([i for i, said in zip(ids, answer) if said]) == "C.<|end|>"
    assert ids.count(TOKENIZER.ids[END]) == 1


def test_batches_mark_what_is_learned_whatever_the_padding_is():
    asked = asked_for()[:40]
    batch = as_demonstrations(asked, TOKENIZER, seed=3)
    prompts, real = as_prompts(asked, TOKENIZER)
    rng = Random("demonstrations 3")
    for number, request in enumerate(asked):
        said = demonstration(request, rng)
        ids, learned = batch["ids"][number], batch["loss_mask"][number]
        assert TOKENIZER.decode(ids[learned].tolist()) == said + "<|end|>"
        whole = ids[batch["mask"][number]].tolist()
        assert TOKENIZER.decode(whole) == END + as_chat(request) + said + "<|end|>"
        assert prompts[number][real[number]].tolist() == whole[: int(real[number].sum())]
        assert not learned[: int(real[number].sum())].any()
    assert not (batch["loss_mask"] & ~batch["mask"]).any()


def test_pairs_keep_their_sides():
    compared = comparisons(asked_for()[:40], Taste())
    batch, texts = as_pairs(compared, TOKENIZER), defaultdict(list)
    assert {rows.shape for rows in batch.values()} == {batch["chosen"].shape}
    for side in ("chosen", "rejected"):
        for ids, mask, answer in zip(*(batch[side + name] for name in ("", "_mask", "_answer"))):
            texts[side].append(TOKENIZER.decode(ids[answer].tolist()))
            assert torch.equal(ids[mask], ids[: int(mask.sum())])
        assert texts[side] == [getattr(one, side) + "<|end|>" for one in compared]
