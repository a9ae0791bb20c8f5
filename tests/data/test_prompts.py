"""Tasks as text: what is asked and what is true, against the world's own notes."""

from collections import Counter

import pytest
import torch

from coursekit.data import prompts
from coursekit.data.prompts import (
    AGAIN,
    HOW_IS_IT,
    IN_FRENCH,
    PROMPTS,
    as_ids,
    classifications,
    instructions,
    summaries,
    translations,
)
from coursekit.data.world import as_text, questions, sentences, stories
from coursekit.text.bpe import BPE

MAKERS = {
    "<to-fr>": translations,
    "<summarize>": summaries,
    "<classify>": classifications,
    "<answer>": instructions,
}


@pytest.mark.parametrize("token", MAKERS)
def test_pairs_are_framed_and_the_same_again(token):
    found = MAKERS[token](60, "validation", seed=3)
    assert found == MAKERS[token](60, "validation", seed=3) != MAKERS[token](60, "validation", seed=4)
    assert len({prompt for prompt, _ in found}) == len(found) == 60
    for prompt, target in found:
        assert prompt.endswith(token)
        assert prompt.count("<") == 1
        assert target
        assert target == target.strip()
        assert not any(one in target for one in PROMPTS)


def test_translations_and_summaries_are_the_worlds():
    assert [t for _, t in translations(30, "test")] == [as_text(s.fr) for s in sentences(30, "test")]
    for (prompt, target), story in zip(summaries(30, "test"), stories(30, "test"), strict=True):
        assert prompt == story.text + "<summarize>"
        assert target == as_text(story.summary)


def test_what_is_good_and_what_is_bad():
    truth = {as_text(s.en): s.sentiment for s in sentences(1300, "train")}
    found = classifications(400)
    for prompt, target in found:
        assert target == {-1: "bad", 0: "neither", 1: "good"}[truth[prompt.removesuffix("<classify>")]]
    assert set(Counter(target for _, target in found).values()) == {133, 134}


def test_instructions_are_followed():
    world = {as_text(s.en): s for s in sentences(1000, "train", seed=1)}
    kinds = Counter()
    for prompt, target in instructions(600):
        text, line = prompt.removesuffix("<answer>").split("\n")
        sentence = world[text]
        if line == IN_FRENCH:
            assert target == as_text(sentence.fr)
        elif line == AGAIN:
            assert target == text
        elif line == HOW_IS_IT:
            assert target == {-1: "bad", 0: "neither", 1: "good"}[sentence.sentiment]
        else:
            (asked,) = [one for one in questions(sentence) if as_text(one.tokens) == line]
            first, last = asked.answer
            assert target.split() == list(sentence.en[first:last])
            line = "question"
        kinds[line] += 1
    assert kinds == {"question": 300, IN_FRENCH: 100, HOW_IS_IT: 100, AGAIN: 100}


@pytest.mark.parametrize("token", MAKERS)
def test_nothing_that_is_tested_was_trained(token):
    train, test = (MAKERS[token](300, split) for split in ("train", "test"))
    assert not {prompt for prompt, _ in train} & {prompt for prompt, _ in test}


def test_ids_say_what_is_to_be_learned():
    pairs = [prompts.Prompted("Ab cd.<to-fr>", "Ef."), prompts.Prompted("Ab.<to-fr>", "Ghij kl.")]
    tokenizer = BPE.train(["Ab cd. Ef. Ghij kl."], 270, ["<|endoftext|>", *PROMPTS])
    batch, end = as_ids(pairs, tokenizer), tokenizer.ids["<|endoftext|>"]
    assert batch["ids"].shape == batch["mask"].shape == batch["loss_mask"].shape
    for row, (prompt, target) in enumerate(pairs):
        real = batch["ids"][row][batch["mask"][row]].tolist()
        assert tokenizer.decode(real) == f"<|endoftext|>{prompt}{target}<|endoftext|>"
        learned = batch["ids"][row][batch["loss_mask"][row]].tolist()
        assert tokenizer.decode(learned) == f"{target}<|endoftext|>"
        assert (batch["ids"][row][~batch["mask"][row]] == end).all()
        assert batch["mask"][row].int().diff().max() <= 0  # padding stands at the end
    assert not torch.equal(batch["mask"][0], batch["mask"][1])
