"""WordPiece with BERT's normalisation.

Schuster and Nakajima (2012), "Japanese and Korean Voice Search"; Devlin et al. (2019), "BERT: Pre-training of Deep
Bidirectional Transformers for Language Understanding", section 3.

Clean the text, cut it into words, and take from the front of each word the longest piece in the vocabulary, again and
again. A piece that does not begin a word is written with ``##`` before it.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain, groupby

import regex

from coursekit.text.bpe import learn_merges
from coursekit.text.tokenizer import Piece, Tokenizer, check_texts

PAD, UNK, CLS, SEP, MASK = SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LONGEST_WORD = 100  # characters; longer ones are unknown

# The library takes control characters away before it looks for spaces; so U+000B, U+000C and U+0085 are no spaces here.
SPACE = r"\t\n\r\p{Z}"
CHUNK = regex.compile(rf"[^{SPACE}]+")
# BERT counts every ASCII sign as punctuation, also those that Unicode calls symbols: $ + < = > ^ ` | ~
PUNCTUATION = r"!-/:-@\[-`{-~\p{P}"
WORD = regex.compile(rf"[{PUNCTUATION}]|[^{SPACE}{PUNCTUATION}]+")
# The blocks of Chinese characters; 2B920 stands in the library for BERT's 2B820, and what it does is done here.
CHINESE = regex.compile(
    "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff"
    "\U00020000-\U0002a6df\U0002a700-\U0002b73f\U0002b740-\U0002b81f\U0002b920-\U0002ceaf\U0002f800-\U0002fa1f]"
)


def normalize(text: str, lowercase: bool = True) -> tuple[str, list[int]]:
    """BERT's normal form of a text.

    Control characters and U+FFFD go, every space becomes " ", Chinese characters get spaces on both sides; then, with
    ``lowercase``, accents go (what NFD splits off as nonspacing marks) and letters become small.

    Returns:
        The normal form, and for each of its characters the place in ``text`` that it comes from.
    """
    found = []
    for i, char in enumerate(text):
        if char in "\t\n\r" or unicodedata.category(char)[0] == "Z":
            found.append((" ", i))
        elif CHINESE.match(char):
            found += [(" ", i), (char, i), (" ", i)]
        elif char != "\ufffd" and unicodedata.category(char) not in ("Cc", "Cf", "Co"):
            found.append((char, i))
    if lowercase and not text.isascii():
        found = [(part, i) for char, i in found for part in unicodedata.normalize("NFD", char)]
        # NFD of the whole text puts marks that follow one another into Unicode's order. Some of them stay.
        runs = groupby(found, key=lambda pair: unicodedata.combining(pair[0]) > 0)
        in_order = (sorted(run, key=lambda pair: unicodedata.combining(pair[0])) if m else run for m, run in runs)
        found = [pair for pair in chain.from_iterable(in_order) if unicodedata.category(pair[0]) != "Mn"]
    if lowercase:
        # After the accents, as in the library: "İ" is "I" and a dot, the dot goes, and "i" is left. Letter by letter,
        # so that a last sigma stays "σ".
        found = [(small, i) for char, i in found for small in char.lower()]
    return "".join(char for char, _ in found), [i for _, i in found]


class WordPiece(Tokenizer):
    """Longest match first, with BERT's words.

    Args:
        tokens: all tokens in the order of their ids.
        special_tokens: those of ``tokens`` that stand for themselves; see ``Tokenizer``.
        lowercase: small letters without accents.
        framed: put ``[CLS]`` before every text and ``[SEP]`` after it.

    Raises:
        ValueError: when ``[UNK]``, or ``[CLS]`` or ``[SEP]`` if framed, is not one of the tokens.

    Decoding does not bring back spaces, accents or capitals.

    What is a mark, a control character or punctuation is as in this Python's ``unicodedata`` and in ``regex``. The
    ``tokenizers`` library (0.23) has that from Unicode 8.0: characters that are newer, and U+166D, U+1734,
    U+1885 and U+1886, whose kind was changed since, may be taken otherwise there.
    """

    def __init__(
        self,
        tokens: Iterable[str],
        special_tokens: Iterable[str] = SPECIAL_TOKENS,
        lowercase: bool = True,
        framed: bool = True,
    ):
        super().__init__(tokens, special_tokens)
        for token in (UNK, CLS, SEP) if framed else (UNK,):
            if token not in self.ids:
                raise ValueError(f"{token} is missing: add it to the special tokens")
        self.lowercase, self.framed = lowercase, framed
        self._encode_chunk = lru_cache(maxsize=2**16)(self.encode_chunk)

    def __reduce__(self):
        return WordPiece, (self.tokens, self.special_tokens, self.lowercase, self.framed)

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        vocab_size: int,
        special_tokens: Iterable[str] = SPECIAL_TOKENS,
        lowercase: bool = True,
    ) -> "WordPiece":
        """Learn pieces from texts.

        Ids: first the special tokens; then every character of the words, then ``##`` and every character that does not
        begin a word, both in the order of Unicode; then what merging makes, as in byte-pair encoding. So does the
        ``tokenizers`` library, with the ``##`` characters in no fixed order, so that its ties have none either.
        The paper merges the pair that makes the text most likely; the program that made BERT's own vocabulary was not
        published.

        Args:
            vocab_size: so many tokens, or fewer where the texts have no more pairs to merge.
        """
        special_tokens = list(dict.fromkeys(special_tokens))
        chunks = Counter(chain.from_iterable(CHUNK.findall(text) for text in check_texts(texts)))
        word_counts = Counter()
        for chunk, count in chunks.items():
            for word in WORD.findall(normalize(chunk, lowercase)[0]):
                word_counts[word] += count
        characters = sorted(set().union(*word_counts))
        inner = sorted({char for word in word_counts for char in word[1:]})
        tokens = list(dict.fromkeys([*special_tokens, *characters, *(f"##{char}" for char in inner)]))
        if vocab_size < len(tokens):
            raise ValueError(f"vocab_size is {vocab_size}: characters and special tokens alone are {len(tokens)}")
        ids = {token: i for i, token in enumerate(tokens)}
        words = [[ids[word[0]], *(ids[f"##{char}"] for char in word[1:])] for word in word_counts]
        learn_merges(words, list(word_counts.values()), tokens, vocab_size, lambda a, b: a + b.removeprefix("##"))
        return cls(tokens, special_tokens, lowercase, framed={CLS, SEP} <= set(special_tokens))

    def encode_word(self, word: str) -> list[tuple[int, int, int]]:
        """The pieces of a word: id, start, end. A word that no pieces make up is ``[UNK]`` as a whole."""
        found, start = [], 0
        while start < len(word) <= LONGEST_WORD:
            for end in range(len(word), start, -1):
                i = self.ids.get(word[start:end] if start == 0 else f"##{word[start:end]}")
                if i is not None:
                    break
            else:
                break
            found.append((i, start, end))
            start = end
        return found if start == len(word) else [(self.ids[UNK], 0, len(word))]

    def encode_chunk(self, chunk: str) -> list[tuple[int, int, int]]:
        """The pieces of a text without spaces: id, start, end."""
        normal, places = normalize(chunk, self.lowercase)
        found = []
        for match in WORD.finditer(normal):
            for i, start, end in self.encode_word(match.group()):
                origin = places[match.start() + start : match.start() + end]
                found.append((i, min(origin), max(origin) + 1))
        return found

    def pieces(self, text: str) -> list[Piece]:
        """The tokens of a text. ``[CLS]`` and ``[SEP]`` have the place (0, 0), as in the library."""
        found = [Piece(CLS, self.ids[CLS], 0, 0)] if self.framed else []
        for start, part, special in self.split_special(text):
            if special:
                found.append(Piece(part, self.ids[part], start, start + len(part)))
                continue
            for chunk in CHUNK.finditer(part):
                first = start + chunk.start()
                for i, begin, end in self._encode_chunk(chunk.group()):
                    found.append(Piece(self.tokens[i], i, first + begin, first + end))
        return [*found, Piece(SEP, self.ids[SEP], 0, 0)] if self.framed else found

    def encode(self, text: str) -> list[int]:
        ids = [self.ids[CLS]] if self.framed else []
        for _, part, special in self.split_special(text):
            if special:
                ids.append(self.ids[part])
            else:
                ids += [i for chunk in CHUNK.findall(part) for i, _, _ in self._encode_chunk(chunk)]
        return [*ids, self.ids[SEP]] if self.framed else ids

    def encode_pair(self, first: str, second: str) -> tuple[list[int], list[int]]:
        """The ids of ``[CLS] first [SEP] second [SEP]``, and their segments: 0 up to the first ``[SEP]``, then 1.

        Raises:
            ValueError: this tokenizer is not ``framed``.
        """
        if not self.framed:
            raise ValueError("a pair needs its frame of [CLS] and [SEP]: use a WordPiece with framed=True")
        a, b = self.encode(first), self.encode(second)[1:]
        return a + b, [0] * len(a) + [1] * len(b)

    def decode(self, ids: Sequence[int]) -> str:
        """The tokens with spaces between words, none before ``. , ? !`` and English contractions, as the library."""
        self.check_ids(ids)
        words = ""
        for k, i in enumerate(ids):
            token = self.tokens[i]
            if k and token.startswith("##"):
                words += token.removeprefix("##")
            elif k and not token.startswith((".", ",", "?", "!", "n't", "'m", "'s", "'ve", "'re")):
                words += f" {token}"
            else:
                words += token
        return words
