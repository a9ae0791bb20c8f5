"""What all tokenizers share: text to numbered pieces and back. Characters and words, the two plain ones."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import regex

from coursekit.text.vocab import Vocab


class Piece(NamedTuple):
    """A token in its place: it stands for ``text[start:end]``."""

    token: str
    id: int
    start: int
    end: int


class Tokenizer:
    """Text to ids and back.

    Attributes:
        tokens: all tokens, in the order of their ids.
        ids: the id of each token.
        special_tokens: tokens that no text is merged or matched into. Where one is written out in a text, it is found
            first, and what stands before and after it is encoded apart.
        added_tokens: more such tokens that are not special: readers are to see them, as Qwen's ``<tool_call>``.

    Raises:
        ValueError: when a token is given twice, or a special token is empty or not one of the tokens.
    """

    def __init__(self, tokens: Iterable[str], special_tokens: Iterable[str] = (), added_tokens: Iterable[str] = ()):
        self.tokens, self.special_tokens, self.added_tokens = list(tokens), list(special_tokens), list(added_tokens)
        self.ids = {token: i for i, token in enumerate(self.tokens)}
        if len(self.ids) < len(self.tokens):
            twice = next(token for token, n in Counter(self.tokens).items() if n > 1)
            raise ValueError(f"token {twice!r} is given twice: give each token once")
        found_first = [*self.special_tokens, *self.added_tokens]
        for token in found_first:
            if not token or token not in self.ids:
                raise ValueError(f"special token {token!r} must be one of the tokens, and not empty")
        # The longest first: where two fit at the same place, the library takes the longer one.
        longest_first = sorted(found_first, key=len, reverse=True)
        self._special = re.compile(f"({'|'.join(map(re.escape, longest_first))})") if longest_first else None

    def __len__(self) -> int:
        return len(self.tokens)

    def pieces(self, text: str) -> list[Piece]:
        """The tokens of a text with their ids and the characters that they stand for."""
        raise NotImplementedError

    def encode(self, text: str) -> list[int]:
        """The ids of a text's tokens."""
        return [piece.id for piece in self.pieces(text)]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of tokens."""
        raise NotImplementedError

    def check_ids(self, ids: Sequence[int]) -> None:
        """Refuse ids that no token has.

        Raises:
            ValueError: naming the first such id.
        """
        for i in ids:
            if not 0 <= i < len(self.tokens):
                raise ValueError(f"id {i} is no token: ids go from 0 to {len(self.tokens) - 1}")

    def split_special(self, text: str) -> Iterator[tuple[int, str, bool]]:
        """A text cut at its special tokens: start, part, and whether the part is a special token."""
        check_text(text)
        start = 0
        for k, part in enumerate(self._special.split(text) if self._special else [text]):
            if part:
                yield start, part, k % 2 == 1
            start += len(part)


def check_text(text: str) -> None:
    """Refuse what is not Unicode text.

    Raises:
        ValueError: when ``text`` is no str or has a lone surrogate (half of a UTF-16 pair, which no UTF-8 can hold).
    """
    if not isinstance(text, str):
        raise ValueError(f"text is {type(text).__name__}, not str: decode bytes first, encode a list text by text")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"character {error.start} of the text is U+{ord(text[error.start]):04X}, a lone surrogate, half of a "
            'character: text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") mends it'
        ) from None


def check_texts(texts: Iterable[str]) -> Iterator[str]:
    """The texts to train on, each of them checked.

    Raises:
        ValueError: as ``check_text`` does, and for one str, whose characters would be taken for texts.
    """
    if isinstance(texts, str):
        raise ValueError("texts is one str: put it into a list")
    for text in texts:
        check_text(text)
        yield text


class CharTokenizer(Tokenizer):
    """Every character is a token; one that is not in the vocabulary becomes ``<unk>``."""

    def __init__(self, vocab: Vocab):
        super().__init__(vocab.tokens)
        self.vocab = vocab

    @classmethod
    def train(cls, texts: Iterable[str]) -> "CharTokenizer":
        """The characters of the texts, in the order of Unicode."""
        return cls(Vocab(sorted(set().union(*check_texts(texts)))))

    def pieces(self, text: str) -> list[Piece]:
        check_text(text)
        ids = self.vocab.encode(text)
        return [Piece(self.tokens[i], i, start, start + 1) for start, i in enumerate(ids)]

    def decode(self, ids: Sequence[int]) -> str:
        """The characters, up to the end symbol and without padding and start."""
        self.check_ids(ids)
        return "".join(self.vocab.decode(ids))


class WordTokenizer(Tokenizer):
    """Every word and every other visible character is a token; a word that is not in the vocabulary becomes ``<unk>``.

    Spaces are not kept: decoding puts one between any two tokens.
    """

    WORD = regex.compile(r"\w+|[^\w\s]")

    def __init__(self, vocab: Vocab):
        super().__init__(vocab.tokens)
        self.vocab = vocab

    @classmethod
    def train(cls, texts: Iterable[str], vocab_size: int) -> "WordTokenizer":
        """The most frequent words of the texts, of equally frequent ones those first in the order of Unicode.

        Args:
            vocab_size: at most so many tokens, ``Vocab``'s four symbols among them.
        """
        counts = Counter(word for text in check_texts(texts) for word in cls.WORD.findall(text))
        n_words = vocab_size - len(Vocab([]))
        if n_words < 1:
            raise ValueError(f"vocab_size is {vocab_size}: the symbols alone are {len(Vocab([]))}, give more")
        return cls(Vocab(sorted(counts, key=lambda word: (-counts[word], word))[:n_words]))

    def pieces(self, text: str) -> list[Piece]:
        check_text(text)
        found = list(self.WORD.finditer(text))
        ids = self.vocab.encode(match.group() for match in found)
        return [Piece(self.tokens[i], i, *match.span()) for match, i in zip(found, ids)]

    def decode(self, ids: Sequence[int]) -> str:
        """The words with spaces between them, up to the end symbol and without padding and start."""
        self.check_ids(ids)
        return " ".join(self.vocab.decode(ids))
