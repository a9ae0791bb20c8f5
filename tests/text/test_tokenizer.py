import copy
import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coursekit.text.bpe import BPE
from coursekit.text.pre_tokens import KINDS
from coursekit.text.tokenizer import CharTokenizer, Piece, Tokenizer, WordTokenizer
from coursekit.text.vocab import BOS, EOS, PAD, UNK
from coursekit.text.wordpiece import WordPiece

TEXTS = ["to be, or not to be", "that is the question: is it?"]
ALL = [
    CharTokenizer.train(TEXTS),
    WordTokenizer.train(TEXTS, 12),
    BPE.train(TEXTS, 270),
    WordPiece.train(TEXTS, 50),
]
NAMES = [type(tokenizer).__name__ for tokenizer in ALL]
BYTES = BPE.train(TEXTS, 270)
ALL.append(
    BPE([*BYTES.tokens, "<t>"], BYTES.merges, BYTES.special_tokens, KINDS["qwen2"], ["<t>"], "<|endoftext|>", True)
)
NAMES.append("BPE as Qwen 2's, with a token before the text")
each = pytest.mark.parametrize("tokenizer", ALL, ids=NAMES)


def test_characters():
    tokenizer = CharTokenizer.train(["hallo", "é"])
    assert tokenizer.tokens == [PAD, BOS, EOS, UNK, "a", "h", "l", "o", "é"]
    assert tokenizer.encode("holé!") == [5, 7, 6, 8, 3]
    assert tokenizer.pieces("o!") == [Piece("o", 7, 0, 1), Piece(UNK, 3, 1, 2)]
    assert tokenizer.decode([1, 5, 4, 0, 2, 6]) == "ha"


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_known_characters_come_back(text):
    tokenizer = CharTokenizer.train([text])
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_words():
    tokenizer = WordTokenizer.train(["b a, b a c", "c b d"], vocab_size=8)
    assert tokenizer.tokens == [PAD, BOS, EOS, UNK, "b", "a", "c", ","]
    assert tokenizer.pieces("b  c,d\n") == [
        Piece("b", 4, 0, 1),
        Piece("c", 6, 3, 4),
        Piece(",", 7, 4, 5),
        Piece(UNK, 3, 5, 6),
    ]
    assert tokenizer.decode(tokenizer.encode("b  c,d\n")) == f"b c , {UNK}"
    assert [piece.start for piece in tokenizer.pieces("cafe\u0301 हिन्दी 中文")] == [0, 6, 13], "marks belong to words"


def test_equally_frequent_words_are_taken_in_order():
    assert WordTokenizer.train(["z y x w", "z"], 7).tokens[4:] == ["z", "w", "x"]


@pytest.mark.parametrize("cls", [CharTokenizer, WordTokenizer])
def test_symbols_written_out_in_a_text_are_text(cls):
    tokenizer = cls.train(["a <pad> b"], *([20] if cls is WordTokenizer else []))
    assert not {0, 1, 2, 3} & set(tokenizer.encode("a <pad> b"))


@each
@given(st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(TEXTS))
def test_encode_gives_the_ids_of_the_pieces_and_each_piece_its_token(tokenizer, text):
    pieces = tokenizer.pieces(text)
    assert tokenizer.encode(text) == [piece.id for piece in pieces]
    assert [piece.token for piece in pieces] == [tokenizer.tokens[piece.id] for piece in pieces]
    assert len(tokenizer) == len(tokenizer.tokens) == len(tokenizer.ids)


@each
@pytest.mark.parametrize(("text", "where"), [("ab\ud800c", 2), ("\udfff", 0), ("is\ud83d\ude00", 2)])
def test_lone_surrogates_are_refused(tokenizer, text, where):
    message = f"character {where} of the text is U\\+{ord(text[where]):04X}, a lone surrogate"
    for work in (tokenizer.encode, tokenizer.pieces, lambda t: type(tokenizer).train([t], 300)):
        if work == tokenizer.encode or work == tokenizer.pieces or not isinstance(tokenizer, CharTokenizer):
            with pytest.raises(ValueError, match=message):
                work(text)
    with pytest.raises(ValueError, match=message):
        CharTokenizer.train([text])
    mended = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert tokenizer.encode(mended), "what the message proposes works"


@each
def test_what_is_no_text_is_refused(tokenizer):
    for work in (tokenizer.encode, tokenizer.pieces):
        with pytest.raises(ValueError, match="text is bytes, not str"):
            work(b"abc")
        with pytest.raises(ValueError, match="text is list, not str"):
            work(["abc"])


def test_one_text_is_not_a_list_of_texts():
    for train in (CharTokenizer.train, lambda t: WordTokenizer.train(t, 99), lambda t: BPE.train(t, 300)):
        with pytest.raises(ValueError, match="texts is one str: put it into a list"):
            train("abc")
    with pytest.raises(ValueError, match="texts is one str: put it into a list"):
        WordPiece.train("abc", 300)


@each
def test_ids_that_no_token_has_are_refused(tokenizer):
    n = len(tokenizer)
    tokenizer.decode([n - 1, 0])
    for i in (n, -1):
        with pytest.raises(ValueError, match=re.escape(f"id {i} is no token: ids go from 0 to {n - 1}")):
            tokenizer.decode([0, i])


@each
def test_copies_do_the_same(tokenizer):
    text = "to be or nöt o\u0308 😀 [SEP]<|endoftext|><t>"
    for again in (copy.deepcopy(tokenizer), pickle.loads(pickle.dumps(tokenizer))):
        assert again.pieces(text) == tokenizer.pieces(text)
        assert again.tokens is not tokenizer.tokens
        assert vars(again).keys() == vars(tokenizer).keys()
        for name in ("special_tokens", "added_tokens", "kind", "begin", "drop_missing"):
            assert getattr(again, name, None) == getattr(tokenizer, name, None)


def test_bad_tokens_are_refused():
    with pytest.raises(ValueError, match="token 'b' is given twice"):
        Tokenizer(["a", "b", "c", "b"])
    with pytest.raises(ValueError, match="special token 'x' must be one of the tokens"):
        Tokenizer(["a"], ["x"])
    with pytest.raises(ValueError, match="special token '' must be one of the tokens, and not empty"):
        Tokenizer(["a", ""], [""])
    with pytest.raises(ValueError, match="vocab_size is 4: the symbols alone are 4, give more"):
        WordTokenizer.train(["a"], 4)


def test_the_longest_special_token_wins_and_their_signs_mean_nothing():
    tokenizer = Tokenizer(["<s>", "<s>x", ".*", "("], ["<s>", "<s>x", ".*", "("])
    assert list(tokenizer.split_special("a<s>x.*<s>b(")) == [
        (0, "a", False),
        (1, "<s>x", True),
        (5, ".*", True),
        (7, "<s>", True),
        (10, "b", False),
        (11, "(", True),
    ]
