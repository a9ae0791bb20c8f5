import unicodedata
from pydoc_data.topics import topics

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, trainers

from coursekit.text.wordpiece import SPECIAL_TOKENS, WORD, WordPiece, normalize
from tests.text import library
from tests.text.library import MANY, same_in_bert, texts

CORPUS = [*list(topics.values())[:40], *library.AWKWARD, "日本語 한국어 텍스트 Ελληνικά русский עברית हिन्दी"]
SPECIALS = [*SPECIAL_TOKENS, "[MASK]x", "<İ>"]


@pytest.fixture(scope="module", params=[True, False], ids=["lowercase", "cased"])
def trained(request):
    ours = WordPiece.train(CORPUS, 1500, SPECIALS, request.param)
    return ours, library.their_wordpiece(ours.ids, SPECIALS, request.param)


def test_each_character_of_unicode_3_2_is_taken_as_in_the_library():
    """But those whose category Unicode has changed since version 8.0: they are named, none is guessed."""
    differ = [char for char in library.characters_of_unicode_3_2() if not same_in_bert(char)]
    assert set(differ) <= set("\u166d\u1734\u1885\u1886")


@pytest.mark.slow
@settings(max_examples=600 * MANY)
@given(texts(same_in_bert), st.booleans())
def test_the_normal_form_is_the_librarys(text, lowercase):
    theirs = library.NORMALIZER if lowercase else library.CASED
    normal, places = normalize(text, lowercase)
    assert normal == theirs.normalize_str(text)
    assert len(normal) == len(places)
    assert WORD.findall(normal) == [word for word, _ in library.WORDS.pre_tokenize_str(normal)]


@settings(max_examples=200 * MANY)
@given(st.text(st.characters(exclude_categories=["Cs"])) | texts(lambda char: True), st.booleans())
def test_each_character_of_the_normal_form_comes_from_its_place(text, lowercase):
    """Each character of the text by itself has in its normal form what is said to come from it."""
    normal, places = normalize(text, lowercase)
    for char, place in zip(normal, places):
        assert char in normalize(text[place], lowercase)[0]


@settings(max_examples=600 * MANY)
@given(texts(same_in_bert, SPECIALS))
def test_encoding_is_the_librarys(trained, text):
    ours, theirs = trained
    expected, pieces = theirs.encode(text), ours.pieces(text)
    assert ours.encode(text) == expected.ids
    assert [piece.token for piece in pieces] == expected.tokens
    if unicodedata.normalize("NFD", text) == "".join(unicodedata.normalize("NFD", char) for char in text):
        assert [(piece.start, piece.end) for piece in pieces] == expected.offsets
    # else marks change places, and the library's offsets with them: "\u0301\U0001d165" is (0, 1) there, of the accent


@settings(max_examples=100 * MANY)
@given(texts(same_in_bert, SPECIALS), texts(same_in_bert, SPECIALS))
def test_a_pair_is_the_librarys(trained, first, second):
    ours, theirs = trained
    expected = theirs.encode(first, second)
    assert ours.encode_pair(first, second) == (expected.ids, expected.type_ids)


def test_a_pair_without_a_frame_is_refused(trained):
    ours, _ = trained
    with pytest.raises(ValueError, match=r"a pair needs its frame of \[CLS\] and \[SEP\]: .* framed=True"):
        WordPiece(ours.tokens, ours.special_tokens, framed=False).encode_pair("a", "b")


@settings(max_examples=200 * MANY)
@given(texts(lambda char: True, SPECIALS))
def test_pieces_stand_for_their_characters(trained, text):
    """The piece of characters that are known is the normal form of the characters it stands for."""
    ours, _ = trained
    pieces = ours.pieces(text)
    assert [(p.token, p.start, p.end) for p in (pieces[0], pieces[-1])] == [("[CLS]", 0, 0), ("[SEP]", 0, 0)]
    for piece in pieces[1:-1]:
        stands_for = text[piece.start : piece.end]
        assert stands_for
        if piece.token in SPECIALS:
            assert piece.token in ("[UNK]", stands_for)
        else:
            normal = normalize(stands_for, ours.lowercase)[0].replace(" ", "")
            assert piece.token.removeprefix("##") in normal


def test_private_use_and_the_ends_of_the_chinese_blocks_are_taken_as_in_the_library():
    ends = [0x4E00, 0x9FFF, 0x3400, 0x4DBF, 0x20000, 0x2A6DF, 0x2A700, 0x2B73F, 0x2B740, 0x2B81F, 0x2B820, 0x2B91F]
    ends += [0x2B920, 0x2CEAF, 0xF900, 0xFAFF, 0x2F800, 0x2FA1F, 0xE001, 0xF8FF, 0xF0000, 0xFFFFD, 0x100000, 0x10FFFD]
    for code in (end + step for end in ends for step in (-1, 0, 1)):
        text = f"a{chr(code)}b"
        assert normalize(text)[0] == library.NORMALIZER.normalize_str(text), hex(code)


def test_offsets_where_marks_change_places():
    ours = WordPiece([*SPECIAL_TOKENS, "a", "##\ua9c0", "##\U0001d165"])
    found = [(piece.token, piece.start, piece.end) for piece in ours.pieces("x a\U0001d165\u0301\ua9c0")[1:-1]]
    assert found == [("[UNK]", 0, 1), ("a", 2, 3), ("##\ua9c0", 5, 6), ("##\U0001d165", 3, 4)]
    assert WordPiece(SPECIAL_TOKENS).pieces("\U0001d165\u0301\ua9c0")[1][2:] == (0, 3)


@settings(max_examples=150 * MANY)
@given(st.sampled_from("abcdef#") | st.text("abcdefABÉ#. ", max_size=130), st.randoms(use_true_random=False))
def test_the_longest_piece_of_any_vocabulary_is_taken(text, rng):
    pieces = {"".join(rng.choices("abcdef#", k=rng.randint(1, 4))) for _ in range(20)}
    vocab = [*SPECIAL_TOKENS, *sorted(pieces), *sorted(f"##{piece}" for piece in pieces if f"##{piece}" not in pieces)]
    ours = WordPiece(vocab)
    theirs = library.their_wordpiece(ours.ids, list(SPECIAL_TOKENS))
    assert ours.encode(text) == theirs.encode(text).ids


@pytest.mark.parametrize(("length", "known"), [(99, True), (100, True), (101, False), (30_000, False)])
def test_a_word_of_more_than_100_characters_is_unknown(length, known):
    ours = WordPiece([*SPECIAL_TOKENS, "a", "##a"])
    for char in ("a", "á", "A"):  # counted after normalisation
        assert (ours.encode(char * length)[1:-1] == [1]) is not known
        assert ours.encode(char * length) == library.their_wordpiece(ours.ids, []).encode(char * length).ids


@settings(max_examples=200 * MANY)
@given(st.data())
def test_decoding_is_the_librarys(trained, data):
    ours, theirs = trained
    closing = [ours.ids[token] for token in (".", ",", "!", "##s", "[CLS]", "'") if token in ours.ids]
    ids = data.draw(st.lists(st.integers(0, len(ours) - 1) | st.sampled_from(closing), max_size=12))
    assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=False)


def test_decoding_closes_up_what_the_library_closes_up():
    vocab = [*SPECIAL_TOKENS, "do", "n't", "'s", "'m", "'ve", "'re", ".", "not", "n", "##n't", "##.", "?!", "'"]
    ours = WordPiece(vocab)
    theirs = library.their_wordpiece(ours.ids, [])
    for a in vocab:
        for b in vocab:
            ids = [ours.ids[token] for token in (a, b, a)]
            assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=False)


def reference(words: dict[str, int], n_merges: int) -> tuple[list[str], list[tuple]]:
    base = [*SPECIAL_TOKENS, *sorted(set("".join(words)))]
    base += [f"##{char}" for char in sorted({char for word in words for char in word[1:]})]
    split = {(word[0], *(f"##{char}" for char in word[1:])): n for word, n in words.items()}
    ids = {token: i for i, token in enumerate(base)}
    merges = library.recount_and_merge(split, n_merges, ids, lambda a, b: a + b.removeprefix("##"))
    return base, merges


WORDS = st.dictionaries(st.text("abcde", min_size=1, max_size=9), st.integers(1, 500), min_size=1, max_size=10)


@settings(max_examples=150 * MANY)
@given(WORDS, st.integers(0, 30))
def test_training_is_what_counting_anew_each_time_gives(words, n_merges):
    base, merges = reference(words, n_merges)
    ours = WordPiece.train([f"{word} " * n for word, n in words.items()], len(base) + n_merges)
    assert ours.tokens == [*base, *(left + right.removeprefix("##") for left, right, _ in merges)]


@settings(max_examples=100 * MANY)
@given(WORDS)
def test_training_finds_the_librarys_pieces_up_to_its_first_tie(words):
    """The library's ties go by ids that it gives in no fixed order."""
    base, merges = reference(words, 20)
    free = next((i for i, (_, _, tie) in enumerate(merges) if tie), len(merges))
    assume(free > 0)
    corpus = [f"{word} " * n for word, n in words.items()]
    theirs = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    theirs.normalizer, theirs.pre_tokenizer = library.NORMALIZER, library.WORDS.__class__()
    trainer = trainers.WordPieceTrainer(
        vocab_size=len(base) + free, special_tokens=list(SPECIAL_TOKENS), show_progress=False
    )
    theirs.train_from_iterator(corpus, trainer)
    ours = WordPiece.train(corpus, len(base) + free)
    assert set(ours.tokens) == set(theirs.get_vocab())
    assert ours.tokens[len(base) :] == sorted(theirs.get_vocab(), key=theirs.get_vocab().get)[len(base) :]


def test_training_normalises():
    ours = WordPiece.train(["Éa éa", "EA"], 20)
    assert ours.tokens == [*SPECIAL_TOKENS, "a", "e", "##a", "ea"]
    assert WordPiece.train(["Éa"], 20, lowercase=False).tokens == [*SPECIAL_TOKENS, "a", "É", "##a", "Éa"]


def test_without_a_frame():
    ours = WordPiece.train(["ab"], 20, ["[UNK]"])
    assert not ours.framed
    assert [piece.token for piece in ours.pieces("ab x")] == ["ab", "[UNK]"]
    assert ours.encode("ab x") == [ours.ids["ab"], 0]


def test_bad_tokens_are_refused():
    with pytest.raises(ValueError, match=r"\[UNK\] is missing: add it to the special tokens"):
        WordPiece.train(["a"], 20, [])
    with pytest.raises(ValueError, match=r"\[SEP\] is missing"):
        WordPiece(["[UNK]", "[CLS]"], [])
    with pytest.raises(ValueError, match="vocab_size is 9: characters and special tokens alone are 10"):
        WordPiece.train(["abc ab"], 9)
    assert len(WordPiece.train(["abc ab"], 10)) == 10
