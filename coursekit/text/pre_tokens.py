"""How a text becomes pre-tokens, the stretches within which byte-pair encoding merges: GPT-2's way and its successors'.

Models differ little in how they merge and much in where they cut before. All expressions are alternatives that are
tried in order, and each takes every character of a text, so that nothing is lost between two pre-tokens.
"""

from typing import NamedTuple

# Letters, with at most one space before; an English clitic; digits or other signs, again with at most one space before;
# spaces. A run of spaces leaves its last one to the word that follows.
GPT2 = r" ?\p{L}+|'(?:[stmd]|re|ve|ll)| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

# Every digit alone, then GPT-2's expression on each stretch between digits: there, the spaces before a digit are the
# last ones, so that none of them is left to a word.
SMOLLM = r" ?\p{L}+|'(?:[stmd]|re|ve|ll)|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?![^\s\p{N}])|\s+"

# Clitics in capitals, too; a word takes any one sign before it, not only a space; line feeds stay with the signs before
# them, or with the spaces. Llama 3 writes numbers in groups of three digits, Qwen 2 digit by digit.
CLITIC, SIGNS_AND_SPACES = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)", r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CLITIC + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|" + SIGNS_AND_SPACES
QWEN2 = CLITIC + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|" + SIGNS_AND_SPACES

# Mistral's newer models cut a word, too, where a small letter is followed by a capital one.
BEFORE, CAPITAL, SMALL = r"[^\r\n\p{L}\p{N}]?", r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
TEKKEN = (
    f"{BEFORE}{CAPITAL}*{SMALL}+|{BEFORE}{CAPITAL}+{SMALL}*"
    + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


class Kind(NamedTuple):
    """What a family of byte-level tokenizers does before it merges.

    Attributes:
        expression: whose matches are the pre-tokens.
        ignore_merges: whether a pre-token that is itself a token is taken whole, even if no merges lead to it.
        nfc: whether the text is composed first (Unicode's form C): e and U+0301 become é.
    """

    expression: str
    ignore_merges: bool = False
    nfc: bool = False


# By the names that GGUF files have for them (``tokenizer.ggml.pre``).
KINDS = {
    "gpt-2": Kind(GPT2),
    "smollm": Kind(SMOLLM),
    "llama-bpe": Kind(LLAMA3, ignore_merges=True),
    "qwen2": Kind(QWEN2, nfc=True),
    "tekken": Kind(TEKKEN, ignore_merges=True),
}


def kind_of(name: str) -> Kind:
    """The kind of tokenizer that GGUF files call ``name``.

    Raises:
        ValueError: when it is none of ``KINDS``.
    """
    if name not in KINDS:
        raise ValueError(f"pre-tokenizer {name!r} is not known: {', '.join(KINDS)} are")
    return KINDS[name]
