"""The labelled tasks: labels that are true, places that fit whatever the tokenizer cuts."""

import pytest
import torch

from coursekit.data import downstream
from coursekit.data.downstream import TAGS, answered, answers, entities, plausible
from coursekit.data.world import as_text, sentences
from coursekit.data.world.lexicon import NOUNS
from coursekit.text.wordpiece import WordPiece

TEXTS = [as_text(one.en) for one in sentences(800)] + ["Who? What? When? Where? Why did and how were the like."]
MAKERS = {"plausible": plausible, "answered": answered, "answers": answers, "entities": entities}


@pytest.fixture(scope="module", params=[110, 600], ids=["pieces", "words"])
def tokenizer(request):
    """One that cuts most words into several pieces, one that leaves them whole."""
    return WordPiece.train(TEXTS, request.param)


def read(batch, tokenizer, row, segment=None):
    chosen = batch["mask"][row] if segment is None else batch["mask"][row] & (batch["segments"][row] == segment)
    words = tokenizer.decode(batch["ids"][row][chosen].tolist())
    return words.replace("[CLS]", "").replace("[SEP]", "").replace(" ' ", "'").strip()


@pytest.mark.parametrize("name", MAKERS)
def test_samples_are_framed_and_the_same_again(name, tokenizer):
    batch, again = (MAKERS[name](40, tokenizer, "validation", seed=3) for _ in range(2))
    assert batch.keys() == again.keys()
    assert all(torch.equal(batch[key], again[key]) for key in batch)
    assert {len(value) for value in batch.values()} == {40}
    cls, sep, padding = (tokenizer.ids[token] for token in ("[CLS]", "[SEP]", "[PAD]"))
    for ids, mask, segments in zip(batch["ids"], batch["mask"], batch["segments"]):
        n = int(mask.sum())
        assert mask[:n].all()
        assert (ids[n:] == padding).all()
        assert (ids[0], ids[n - 1]) == (cls, sep)
        seps = (ids == sep).nonzero().flatten().tolist()
        assert seps == ([n - 1] if name in ("plausible", "entities") else [seps[0], n - 1])
        assert segments[: seps[0] + 1].sum() == 0
        assert segments[seps[0] + 1 : n].all()
    other = MAKERS[name](40, tokenizer, "validation", seed=4)
    assert batch["ids"].shape != other["ids"].shape or not torch.equal(batch["ids"], other["ids"])


def test_nonsense_is_sense_with_two_phrases_exchanged(tokenizer):
    batch = plausible(200, tokenizer)
    assert batch["labels"].tolist() == [0, 1] * 100
    first_nouns = {0: set(), 1: set()}
    kind_of = {form: noun.kind for noun in NOUNS for form in (noun.english(False), noun.english(True))}
    for row, label in enumerate(batch["labels"].tolist()):
        kinds = [kind_of[word] for word in read(batch, tokenizer, row).replace(".", "").split() if word in kind_of]
        if kinds:  # of "Anna read the story" there is no noun before the verb
            first_nouns[label].add(kinds[0])
    assert {"food", "text", "way"} <= first_nouns[0]

    def bag(text):
        return tuple(sorted(text.lower().replace(".", "").replace(",", "").split()))

    true = {bag(as_text(one.en)) for one in sentences(900, kinds=("plain",))}
    assert {bag(read(batch, tokenizer, row)) for row in range(200)} <= true, "the same words as a sentence of the world"
    assert not any(word in read(batch, tokenizer, row) for row in range(200) for word in ("carried", "followed"))


def test_every_second_question_was_asked_about_another_sentence(tokenizer):
    batch = answered(120, tokenizer)
    assert batch["labels"].tolist() == [1, 0] * 60
    asked = {}
    for one in sentences(340):
        asked[as_text(one.en).lower()] = {as_text(q.tokens).lower() for q in downstream.questions(one)}
    for row, label in enumerate(batch["labels"].tolist()):
        question, sentence = (read(batch, tokenizer, row, segment) for segment in (0, 1))
        assert (question in asked[sentence]) == bool(label), (question, sentence)


def test_the_span_holds_the_answer(tokenizer):
    batch = answers(150, tokenizer)
    truth = {}
    for one in sentences(400):
        for q in downstream.questions(one):
            words = " ".join(one.en[slice(*q.answer)]).lower()
            truth[as_text(q.tokens).lower(), as_text(one.en).lower()] = words
    for row, (start, end) in enumerate(zip(batch["start"].tolist(), batch["end"].tolist())):
        assert batch["allowed"][row, start : end + 1].all()
        found = tokenizer.decode(batch["ids"][row, start : end + 1].tolist()).replace(" ' ", "'")
        assert found == truth[read(batch, tokenizer, row, 0), read(batch, tokenizer, row, 1)]
    sep = tokenizer.ids["[SEP]"]
    assert torch.equal(batch["allowed"].sum(dim=1), (batch["segments"] == 1).sum(dim=1) - 1)
    assert not (batch["ids"] == sep)[batch["allowed"]].any()


def test_tags_stand_at_first_pieces_and_name_the_kind(tokenizer):
    batch = entities(150, tokenizer)
    assert batch["tags"][~batch["tagged"]].sum() == 0
    found = {}
    for one, ids, tags, tagged in zip(sentences(150), batch["ids"], batch["tags"], batch["tagged"]):
        assert int(tagged.sum()) == len(one.en)
        assert not any(tokenizer.tokens[i].startswith("##") for i in ids[tagged].tolist())
        found.update(zip(one.en, (TAGS[tag] for tag in tags[tagged].tolist())))
    expected = {
        **{"Anna": "PERSON", "queen": "PERSON", "women": "PERSON", "dog": "ANIMAL", "mice": "ANIMAL", "soup": "FOOD"},
        **{"Paris": "PLACE", "streets": "PLACE", "house": "PLACE", "lamp": "THING", "Monday": "DAY", "the": "O"},
        **{"ate": "O", "hungry": "O", ".": "O", "didn't": "O"},
    }
    seen = {word: found[word] for word in expected if word in found}
    assert seen == {word: expected[word] for word in seen}
    assert len(seen) >= 12
