"""Where each family of tokenizers cuts a text, beside the ``tokenizers`` library."""

import itertools
import unicodedata

import pytest
import regex
from hypothesis import example, given, settings

from coursekit.text.bpe import composed
from coursekit.text.pre_tokens import KINDS, kind_of
from tests.text.library import AWKWARD, MANY, SPLITS, same_in_all_kinds, texts

each = pytest.mark.parametrize("name", KINDS)


def theirs(name: str, text: str) -> list[str]:
    return [text[start:end] for _, (start, end) in SPLITS[name].pre_tokenize_str(text)]


def ours(name: str, text: str) -> list[str]:
    return regex.findall(KINDS[name].expression, text)


@each
@settings(max_examples=150 * MANY)
@given(text=texts(same_in_all_kinds))
def test_pre_tokens_are_the_librarys(name, text):
    assert ours(name, text) == theirs(name, text)
    assert "".join(ours(name, text)) == text


@each
def test_any_two_awkward_neighbours_are_cut_as_in_the_library(name):
    marks = ["a", "B", "1", " ", "\n", "\r\n", "'", "!", "\u0301", "中", "/", "'LL", "½", "\xa0"]
    for one in [*marks, *AWKWARD]:
        for other in marks:
            for text in (one + other, f"{one} {other}{one}", f"{one}  {other}\n"):
                assert ours(name, text) == theirs(name, text), text


@each
@pytest.mark.parametrize(
    "text", ["a" * 30_000, "é中" * 15_000, " " * 30_000, "\n" * 30_000, "1" * 30_000, "A!" * 15_000]
)
def test_long_texts_take_no_longer_than_they_must(name, text):
    """A search that starts anew at each character would take a minute, not a moment."""
    assert ours(name, text) == theirs(name, text)
    assert ours(name, text + "x") == theirs(name, text + "x")


def test_what_sets_the_kinds_apart():
    assert ours("gpt-2", "I'LL pay  1234\n\nx") == ["I", "'", "LL", " pay", " ", " 1234", "\n", "\n", "x"]
    assert ours("smollm", "I'LL pay  1234\n\nx") == ["I", "'", "LL", " pay", "  ", *"1234", "\n", "\n", "x"]
    assert ours("llama-bpe", "I'LL pay  1234\n\nx") == ["I", "'LL", " pay", " ", " ", "123", "4", "\n\n", "x"]
    assert ours("qwen2", "I'LL pay  1234\n\nx") == ["I", "'LL", " pay", " ", " ", *"1234", "\n\n", "x"]
    assert ours("tekken", "camelCase (x)") == ["camel", "Case", " (", "x", ")"]


def test_a_kind_that_is_not_known_is_refused():
    assert kind_of("smollm") is KINDS["smollm"]
    with pytest.raises(ValueError, match="pre-tokenizer 'default' is not known: gpt-2, smollm, llama-bpe"):
        kind_of("default")


@settings(max_examples=200 * MANY)
@given(texts(lambda char: True))
@example("q\u0301\u0316")  # as long as before, but in another order
def test_a_composed_text_says_where_its_characters_come_from(text):
    """With decomposed letters of every script, since one text in a few is composed anew here."""
    for one in (text, unicodedata.normalize("NFD", text)):
        normal, places = composed(one)
        assert normal == unicodedata.normalize("NFC", one)
        assert len(places) == len(normal)
        whole = [places[0], *(b for a, b in itertools.pairwise(places) if a != b)] if places else []
        assert [start for start, _ in whole] + [len(one)] == [0] + [end for _, end in whole] or not one
        for start, end in whole:
            made = "".join(c for c, place in zip(normal, places) if place == (start, end))
            assert made == unicodedata.normalize("NFC", one[start:end])


def test_every_mark_stays_with_the_character_before():
    """Else a text that is composed piece by piece is another than one that is composed at once."""
    seconds = {
        unicodedata.normalize("NFD", chr(c))[-1]
        for c in range(0x110000)
        if unicodedata.decomposition(chr(c)) and "<" not in unicodedata.decomposition(chr(c))
    }
    marks = {chr(c) for c in range(0x110000) if unicodedata.combining(chr(c))}
    for mark in marks | {
        c for c in seconds if unicodedata.normalize("NFC", "a" + c) != "a" + c or unicodedata.combining(c)
    }:
        assert len(regex.findall(r"\X", f"a{mark}")) == 1, hex(ord(mark))
    assert len(regex.findall(r"\X", "\u1100\u1161\u11a8")) == 1
