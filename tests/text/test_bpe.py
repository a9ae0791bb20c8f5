import random
import unicodedata
from collections import Counter
from pydoc_data.topics import topics

import pytest
import regex
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers

from coursekit.text import bpe
from coursekit.text.bpe import BPE, BYTE, CHARACTER, PRE_TOKEN, byte_characters, count_pairs, learn_merges, merge
from coursekit.text.pre_tokens import KINDS
from tests.text import library
from tests.text.library import MANY, same_in_gpt2, texts

END = "<|endoftext|>"
SPECIALS = [END, "<|end", "the", "«x»\u2603", "a b"]
MULTILINGUAL = [part for part in library.AWKWARD for _ in range(3)] + ["".join(library.AWKWARD), "日本語の文字 한국어"]
DOCS = list(topics.values())


@pytest.fixture(scope="module")
def trained():
    ours = BPE.train(DOCS[:40] + MULTILINGUAL, 1200, [END, "<|end", "«x»\u2603", "a b"])
    theirs = library.train_their_bpe(DOCS[:40] + MULTILINGUAL, 1200, [END, "<|end", "«x»\u2603", "a b"])
    return ours, theirs


def test_bytes_have_the_librarys_characters():
    assert sorted(CHARACTER) == list(range(256))
    assert set(CHARACTER.values()) == set(pre_tokenizers.ByteLevel.alphabet())
    assert list(byte_characters().values()) == sorted(pre_tokenizers.ByteLevel.alphabet())
    for text in ["é", "\n \t\x7f\xad\xa0", "😀", "\u07ff"]:
        pieces = library.BYTE_LEVEL.pre_tokenize_str(text)
        assert [CHARACTER[b] for b in text.encode()] == [c for piece, _ in pieces for c in piece]
    assert len(BYTE) == 256


def test_each_character_is_a_letter_a_number_a_space_or_other_as_in_the_library():
    """Every character of Unicode that this Python knows; only what is newer than the library's tables may differ."""
    known = (chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co"))
    assert [c for c in known if not same_in_gpt2(c)] == []


@settings(max_examples=600 * MANY)
@given(texts(same_in_gpt2))
def test_pre_tokens_are_the_librarys(text):
    theirs = [text[start:end] for _, (start, end) in library.BYTE_LEVEL.pre_tokenize_str(text)]
    assert PRE_TOKEN.findall(text) == theirs
    assert "".join(theirs) == text


SYMBOLS = st.lists(st.sampled_from("abc"), max_size=12)


@given(st.lists(st.tuples(SYMBOLS, st.integers(1, 5)), max_size=6))
def test_count_pairs(words):
    expected = Counter()
    for word, n in words:
        for i in range(len(word) - 1):
            expected.update({(word[i], word[i + 1]): n})
    assert count_pairs([w for w, _ in words], [n for _, n in words]) == expected


@given(SYMBOLS, st.sampled_from("abc"), st.sampled_from("abc"))
def test_merge_is_replacement_from_left_to_right(word, left, right):
    assert "".join(merge(word, (left, right), "X")) == "".join(word).replace(left + right, "X")


def test_merge_leaves_the_word_as_it_is():
    word = [1, 2, 1, 2]
    assert merge(word, (1, 2), 3) == [3, 3]
    assert word == [1, 2, 1, 2]


@settings(max_examples=300 * MANY)
@given(
    st.lists(st.tuples(st.text("abcd", min_size=1, max_size=14), st.integers(1, 4)), min_size=1, max_size=12),
    st.integers(0, 40),
    st.permutations("abcd"),
)
def test_learning_is_what_counting_anew_each_time_gives(words, n_merges, alphabet):
    """Few letters and small counts: almost every merge has a rival."""
    tokens, ids = list(alphabet), {c: i for i, c in enumerate(alphabet)}
    counted = Counter()
    for word, n in words:
        counted[tuple(word)] += n
    symbols = [[ids[c] for c in word] for word in counted]
    expected = library.recount_and_merge(dict(counted), n_merges, dict(ids), lambda a, b: a + b)
    found = learn_merges(symbols, list(counted.values()), tokens, 4 + n_merges)
    assert [(tokens[a], tokens[b]) for a, b in found] == [(a, b) for a, b, _ in expected]
    assert tokens == [*alphabet, *(a + b for a, b, _ in expected)]


def assert_trained_alike(corpus, vocab_size, specials):
    ours, theirs = BPE.train(corpus, vocab_size, specials), library.train_their_bpe(corpus, vocab_size, specials)
    assert ours.merges == library.their_merges(theirs)
    assert ours.ids == theirs.get_vocab()
    return ours


@settings(max_examples=200 * MANY)
@given(
    st.lists(st.text("ab \n'", max_size=30) | st.text("abcdé😀 ", max_size=20), max_size=8),
    st.integers(0, 120),
    st.lists(st.sampled_from([END, "ab", "a", "abab", "ba"]), unique=True),
)
def test_training_merges_what_the_library_merges_with_ties(corpus, n_merges, specials):
    """Special tokens that are spelled like a byte or like what a merge makes share its id, as in the library."""
    assert_trained_alike(corpus, 256 + len(specials) + n_merges, specials)


@settings(max_examples=60 * MANY)
@given(st.lists(texts(same_in_gpt2, SPECIALS), max_size=8), st.integers(0, 200))
def test_training_merges_what_the_library_merges_on_any_text(corpus, n_merges):
    assert_trained_alike(corpus, 256 + 1 + n_merges, [END])


@pytest.mark.parametrize("seed", range(3))
def test_training_merges_what_the_library_merges_where_all_is_tied(seed):
    """Words of the same letters, each once: thousands of pairs of the same count."""
    rng = random.Random(seed)
    corpus = [" ".join("".join(rng.choices("abcdefgh", k=rng.randint(2, 9))) for _ in range(400)) for _ in range(5)]
    assert_trained_alike(corpus, 900, [])
    assert_trained_alike(["".join(rng.choices("ab", k=3000))], 600, [])


@pytest.mark.parametrize("corpus", [DOCS, MULTILINGUAL, [regex.sub(r"[a-z]", "x", text) for text in DOCS]])
def test_training_merges_what_the_library_merges_on_documents(corpus):
    ours = assert_trained_alike(corpus, 1500, [END])
    assert len(ours) > 350


def test_training_ends_when_nothing_is_left_to_merge():
    assert BPE.train(["abc"], 1000, []).merges == [("a", "b"), ("ab", "c")]
    assert BPE.train([], 300).merges == []


@settings(max_examples=600 * MANY)
@given(texts(same_in_gpt2, SPECIALS))
def test_encoding_is_the_librarys_and_comes_back(trained, text):
    ours, theirs = trained
    expected, pieces = theirs.encode(text), ours.pieces(text)
    assert ours.encode(text) == expected.ids
    assert [piece.token for piece in pieces] == expected.tokens
    assert [(piece.start, piece.end) for piece in pieces] == expected.offsets
    assert ours.decode(expected.ids) == text


@settings(max_examples=200 * MANY)
@given(st.text(st.characters(exclude_categories=["Cs"])) | texts(lambda char: True, SPECIALS))
def test_any_text_comes_back_and_its_pieces_cover_it(trained, text):
    """Here with the characters, too, that the library's tables do not know."""
    ours, _ = trained
    pieces = ours.pieces(text)
    assert ours.decode([piece.id for piece in pieces]) == text
    end = 0
    for piece in pieces:
        assert piece.start in (end, end - 1), "the next character, or the rest of the bytes of the last one"
        assert piece.start < piece.end
        whole = text[piece.start : piece.end].encode()
        written = piece.token.encode() if piece.id < 4 else bytes(BYTE[c] for c in piece.token)
        assert written in whole
        assert len(whole) - len(written) <= 6, "what is missing is bytes of the first or the last character"
        end = piece.end
    assert end == len(text)


@settings(max_examples=150 * MANY)
@given(st.randoms(use_true_random=False), st.text("abc", max_size=40))
def test_merges_in_an_order_that_no_training_gives(rng, text):
    """A merge may be possible only after a later one: then merging all of a kind at once gives something else."""
    learned = BPE.train(["".join(rng.choices("abc", k=60)) for _ in range(3)], 256 + rng.randint(1, 30), [])
    merges = rng.sample(learned.merges, len(learned.merges))
    ours = BPE(learned.tokens, merges)
    theirs = library.their_bpe(models.BPE(learned.ids, merges))
    assert ours.encode(text) == theirs.encode(text).ids


def test_an_order_in_which_one_merge_at_a_time_matters():
    merges = [("ab", "a"), ("a", "b")]
    ours = BPE([*CHARACTER.values(), "ab", "aba"], merges)
    assert [piece.token for piece in ours.pieces("abab")] == ["aba", "b"]


@settings(max_examples=150 * MANY, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.randoms(use_true_random=False), st.text("abcé", min_size=1, max_size=40))
def test_list_and_heap_find_the_same_merges(monkeypatch, rng, word):
    """In an order that no training gives, too: whether a word is merged with one or the other, only its length says."""
    learned = BPE.train(["".join(rng.choices("abcé", k=60)) for _ in range(3)], 256 + rng.randint(1, 30), [])
    for merges in (learned.merges, rng.sample(learned.merges, len(learned.merges))):
        ours, found = BPE(learned.tokens, merges), []
        for long in (0, 1000):
            monkeypatch.setattr(bpe, "LONG", long)
            found.append(ours.encode_word(word))
        assert found[0] == found[1]


@pytest.mark.parametrize("text", ["a" * 60_000, "the" * 20_000, "é" * 30_000, " " * 60_000, "😀\u200d" * 10_000])
def test_long_words(trained, text):
    ours, theirs = trained
    assert ours.encode(text) == theirs.encode(text).ids


@settings(max_examples=150 * MANY)
@given(st.lists(st.integers(0, 1199), max_size=20))
def test_any_ids_are_decoded_as_in_the_library(trained, ids):
    ours, theirs = trained
    ids = [i % len(ours) for i in ids]
    assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=False)


def test_a_token_is_spelled_so_that_it_differs_from_all_others(trained):
    ours, _ = trained
    spelled = [ours.spelled(i) for i in range(len(ours))]
    assert len(set(spelled)) == len(ours)
    assert all(spelled[i] == ours.decode([i]) for i in range(len(ours)) if "\ufffd" not in ours.decode([i]))
    assert [ours.spelled(i) for i in ours.encode("ש")] == [r"\xd7", r"\xa9"]
    with pytest.raises(ValueError, match="id"):
        ours.spelled(len(ours))


def test_special_tokens_are_found_first(trained):
    ours, _ = trained
    tokens = [piece.token for piece in ours.pieces(f"the{END}the<|endof")]
    assert tokens[:3] == ["the", END, "the"]
    assert tokens[3] == "<|end"
    assert ours.ids[END] == 0
    assert END not in [piece.token for piece in BPE.train(DOCS[:3], 300, []).pieces(END)]


WHOLE = [*CHARACTER.values(), "ab", "Ġab", "bc", "abc", "the"]


def test_a_pre_token_that_is_a_token_is_taken_whole_where_merges_are_ignored():
    merges = [("b", "c"), ("a", "b")]
    for ignore, expected in ((True, ["abc", "Ġab", "a", "bc", "d"]), (False, ["a", "bc", "Ġ", "ab", "a", "bc", "d"])):
        kind = KINDS["gpt-2"]._replace(ignore_merges=ignore)
        ours = BPE(WHOLE, merges, kind=kind)
        theirs = library.their_bpe(models.BPE(ours.ids, merges, ignore_merges=ignore))
        assert [p.token for t in ("abc", " ab", "abcd") for p in ours.pieces(t)] == expected
        for text in ("abc", " ab", "abcd", "abc ab abcd the"):
            assert ours.encode(text) == theirs.encode(text).ids


def test_a_special_token_is_no_word_to_be_taken_whole():
    """Where it has the spelling of bytes that are written otherwise: the space in a special token is itself."""
    ours = BPE([*CHARACTER.values(), "Ġa", " a"], [("Ġ", "a")], [" a"], KINDS["llama-bpe"])
    assert [p.token for p in ours.pieces("! a\u0301")] == ["!", " a", "Ì", "ģ"]
    assert [p.token for p in BPE([*CHARACTER.values(), "Ġa", " a"], [], [], KINDS["llama-bpe"]).pieces("! a")] == [
        "!",
        "Ġa",
    ]


def test_the_token_before_every_text():
    ours = BPE([*CHARACTER.values(), "<s>"], [], ["<s>"], begin="<s>")
    assert ours.encode("") == [256]
    assert ours.encode("a<s>") == [256, ours.ids["a"], 256]
    assert ours.pieces("é")[:2] == [("<s>", 256, 0, 0), ("Ã", ours.ids["Ã"], 0, 1)]
    with pytest.raises(ValueError, match="begin='<x>' must be one of the tokens"):
        BPE(list(CHARACTER.values()), [], begin="<x>")


@settings(max_examples=100 * MANY)
@given(texts(same_in_gpt2) | st.text("abé\x00中", max_size=90))
def test_bytes_without_a_token_are_dropped_as_in_the_library(text):
    """é is two bytes, of which only the second has a token; what stands around a gap is merged across it."""
    tokens = [c for b, c in CHARACTER.items() if b not in (0, 0xC3, 0xE4)]
    merges = [("a", "b"), ("ab", "a"), ("©", "b")]
    tokens += [a + b for a, b in merges]
    ours = BPE(tokens, merges, drop_missing=True)
    theirs = library.their_bpe(models.BPE(ours.ids, merges))
    found = theirs.encode(text)
    assert ours.encode(text) == found.ids == [piece.id for piece in ours.pieces(text)]
    assert all(text[piece.start : piece.end] for piece in ours.pieces(text))
    assert [p[2:] for p in ours.pieces("\0aéb")] == [(1, 2), (2, 4)]


def test_a_tokenizer_of_the_four_things_in_a_gguf_file():
    tokens = [c for b, c in CHARACTER.items() if b != 4] + ["ab", "Ġ1", "<|im_end|>"]
    ours = BPE.of_kind(tokens, ["a b", "Ġ 1"], ["<|im_end|>"], "smollm")
    assert [p.token for p in ours.pieces("ab\x04 1<|im_end|>")] == ["ab", "Ġ", "1", "<|im_end|>"]
    assert ours.kind == KINDS["smollm"]
    with pytest.raises(ValueError, match="pre-tokenizer 'falcon' is not known"):
        BPE.of_kind(tokens, [], [], "falcon")
    with pytest.raises(ValueError, match=r"the merge \('a', 'b', 'c'\) is not of two tokens"):
        BPE.of_kind(tokens, ["a b c"], [], "gpt-2")


@settings(max_examples=100 * MANY)
@given(texts(lambda char: True))
def test_pieces_of_a_composed_text_cover_it(text):
    ours = BPE([*CHARACTER.values(), "Ã©", "ê°", "Ġe"], [("Ã", "©"), ("ê", "°"), ("Ġ", "e")], kind=KINDS["qwen2"])
    for one in (text, unicodedata.normalize("NFD", text)):
        pieces = ours.pieces(one)
        assert ours.encode(one) == [piece.id for piece in pieces]
        assert ours.decode(ours.encode(one)) == unicodedata.normalize("NFC", one)
        assert {k for piece in pieces for k in range(piece.start, piece.end)} == set(range(len(one)))
    assert [p[2:] for p in ours.pieces("xe\u0301y")] == [(0, 1), (1, 3), (3, 4)]


def test_bad_tokens_are_refused():
    base = list(CHARACTER.values())
    with pytest.raises(ValueError, match="the merge of 'a' and 'b' needs token 'ab', which is missing"):
        BPE(base, [("a", "b")])
    with pytest.raises(ValueError, match="the token 'Ġ' of byte 32 is missing"):
        BPE([c for c in base if c != "Ġ"], [])
    with pytest.raises(ValueError, match="special token 'Ġx' is spelled like a token of other bytes"):
        BPE([*base, "Ġx"], [], ["Ġx"])
    with pytest.raises(ValueError, match="vocab_size is 256: bytes and special tokens alone are 257"):
        BPE.train(["a"], 256)
