"""The ``tokenizers`` library's tokenizers, and Unicode text to try on them and on ours."""

import itertools
import json
import unicodedata
from functools import cache

import regex
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from coursekit.text import wordpiece
from coursekit.text.pre_tokens import TEKKEN
from tests.conftest import FULL

MANY = 10 if FULL else 1  # times as many examples in `make full`
BYTE_LEVEL = pre_tokenizers.ByteLevel(add_prefix_space=False)
NORMALIZER, CASED, WORDS = (
    normalizers.BertNormalizer(),
    normalizers.BertNormalizer(lowercase=False),
    pre_tokenizers.BertPreTokenizer(),
)


def their_bpe(model: models.BPE | None = None, specials: list[str] = ()) -> Tokenizer:
    theirs = Tokenizer(model or models.BPE())
    theirs.pre_tokenizer, theirs.decoder = BYTE_LEVEL, decoders.ByteLevel()
    theirs.add_special_tokens(list(specials))
    return theirs


def train_their_bpe(texts: list[str], vocab_size: int, specials: list[str]) -> Tokenizer:
    theirs = their_bpe()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=specials,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    theirs.train_from_iterator(texts, trainer)
    return theirs


def their_wordpiece(vocab: dict[str, int], specials: list[str], lowercase: bool = True) -> Tokenizer:
    theirs = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]", max_input_chars_per_word=100))
    theirs.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    theirs.pre_tokenizer, theirs.decoder = WORDS, decoders.WordPiece()
    theirs.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in specials])
    frame = [(token, vocab[token]) for token in ("[CLS]", "[SEP]")]
    theirs.post_processor = processors.BertProcessing(frame[1], frame[0])
    return theirs


def split_by(expression: str) -> pre_tokenizers.PreTokenizer:
    split = pre_tokenizers.Split(Regex(expression), "isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


# Written out as the models' files have them.
SPLITS = {
    "gpt-2": BYTE_LEVEL,
    "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), BYTE_LEVEL]),
    "llama-bpe": split_by(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
        r"\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    "qwen2": split_by(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
        r"\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    "tekken": split_by(
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}|"
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
}


def train_their_kind(texts: list[str], vocab_size: int, kind: str, specials: list[str]) -> Tokenizer:
    """A small tokenizer that cuts as a model's does; it has tokens only for the bytes of the texts."""
    theirs = Tokenizer(models.BPE())
    theirs.pre_tokenizer, theirs.decoder = SPLITS[kind], decoders.ByteLevel()
    if kind == "qwen2":
        theirs.normalizer = normalizers.NFC()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=specials, show_progress=False)
    theirs.train_from_iterator(texts, trainer)
    return theirs


def their_merges(theirs: Tokenizer) -> list[tuple[str, str]]:
    return [tuple(pair) for pair in json.loads(theirs.to_str())["model"]["merges"]]


@cache
def same_in_gpt2(char: str) -> bool:
    """Whether the library's tables say of this character what ``regex`` says: letter, number, space or other."""
    kind = "".join("01"[bool(regex.match(one, char))] for one in (r"\p{L}", r"\p{N}", r"\s"))
    cuts = (len(BYTE_LEVEL.pre_tokenize_str(beside + char + beside)) for beside in "a1")
    with_letters, with_numbers = (n == 1 for n in cuts)
    is_space = len(BYTE_LEVEL.pre_tokenize_str(f"!{char}!")) > 1 and not with_letters and not with_numbers
    return kind == "".join("01"[x] for x in (with_letters, with_numbers, is_space))


@cache
def same_in_all_kinds(char: str) -> bool:
    """Whether also capitals and marks are the same, and the character is old enough that all compose it alike."""
    around = [f"a{char}B{char}b1", f"A{char}A", f" {char}{char}b"]
    return (
        same_in_gpt2(char)
        and unicodedata.ucd_3_2_0.category(char) != "Cn"
        and all(
            regex.findall(TEKKEN, text) == [text[a:b] for _, (a, b) in SPLITS["tekken"].pre_tokenize_str(text)]
            for text in around
        )
    )


@cache
def same_in_bert(char: str) -> bool:
    """Whether the library's tables say of this character what ours say, after normalisation and in a word."""

    def ours(text: str, lowercase: bool) -> str:
        return wordpiece.normalize(text, lowercase)[0]

    around = f"a{char}b"
    normal = ours(around, True)
    alike = (
        normal == NORMALIZER.normalize_str(around)
        and ours(around, False) == CASED.normalize_str(around)
        and wordpiece.WORD.findall(normal) == [word for word, _ in WORDS.pre_tokenize_str(normal)]
    )
    if not unicodedata.combining(unicodedata.normalize("NFD", char)[-1]):
        return alike
    # where it stands among combining marks of classes 1, 9, 216, 220 and 230
    marks = "\u0334\ua9c0\U0001d165\u0316\u0301"
    return alike and all(
        ours(text, True) == NORMALIZER.normalize_str(text)
        for mark in marks
        for text in (f"a{mark}{char}", f"a{char}{mark}")
    )


def characters_of_unicode_3_2() -> list[str]:
    """Every character of 2002, when Python's oldest table was made; private use left out."""
    category = unicodedata.ucd_3_2_0.category
    return [chr(c) for c in range(0x110000) if category(chr(c)) not in ("Cn", "Cs", "Co")]


AWKWARD = [
    *("the", " the", "The", "ing", "it's", "we'LL", "'s", "'ve", "123", "²½", "naïve", "e\u0301", "e\u0316\u0301", "İ"),
    *("ΣΑΣ", "ß", "ﬁ", "Ǆ", "한국어", "각", "日本語", "中文字", "שלום", "مَرْحَبًا", "हिन्दी", "ไทย", "ἀρχή", "\u0301"),
    *(
        "😀",
        "👩‍👩‍👧",
        "🇩🇪",
        "👍🏽",
        "❤️",
        "\u200d",
        "\u200e",
        "\u202e",
        "\ufeff",
        "\xad",
        "\0",
        "\x07",
        "\x7f",
        "\ufffd",
    ),
    *(" ", "  ", "   ", "\t", "\n", "\r\n", "\x0b", "\x0c", "\x1c", "\x85", "\xa0", "\u2003", "\u2028", "\u3000"),
    *(
        "DON'T",
        "'\u017f",
        "I'Ll've",
        "12345 67",
        "  7",
        "7  a",
        "\n\n",
        " \n \r\n\t",
        "a\n\n  b",
        "camelCase",
        "/\n",
        "\x04",
    ),
    *("!", "...", "$", "`", "_", "##", "##a", "[", "]", "#", "<|", "a" * 99, "a" * 100, "a" * 101, "é" * 60, "ab" * 90),
]


def texts(same, specials: list[str] = (), max_size: int = 12) -> st.SearchStrategy[str]:
    """Text of any characters for which ``same`` is true, awkward ones often, special tokens among them."""
    characters = st.characters(exclude_categories=["Cs"]).filter(same)
    parts = [st.sampled_from(AWKWARD), characters, st.text(characters, max_size=6)]
    if specials:
        parts.append(st.sampled_from([*specials, *(s[:-1] for s in specials), *(s[1:] for s in specials)]))
    return st.lists(st.one_of(parts), max_size=max_size).map("".join)


def recount_and_merge(words: dict[tuple[str, ...], int], n_merges: int, ids: dict[str, int], join) -> list[tuple]:
    """The merges, by counting everything anew each time; with whether each had a rival of the same count."""
    found = []
    for _ in range(n_merges):
        counts = {}
        for word, n in words.items():
            for pair in itertools.pairwise(word):
                counts[pair] = counts.get(pair, 0) + n
        if not counts:
            break
        most = max(counts.values())
        best = [pair for pair in counts if counts[pair] == most]
        left, right = min(best, key=lambda pair: (ids[pair[0]], ids[pair[1]]))
        new = join(left, right)
        ids.setdefault(new, len(ids))
        found.append((left, right, len(best) > 1))
        merged = {}
        for word, n in words.items():
            out = []
            for symbol in word:
                if out and out[-1] == left and symbol == right:
                    out[-1] = new
                else:
                    out.append(symbol)
            merged[tuple(out)] = merged.get(tuple(out), 0) + n
        words = merged
    return found
