"""Two sentences that differ in one word, and how much likelier each candidate is in one than in the other."""

import html
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from coursekit.text.wordpiece import MASK
from coursekit.viz.next_token import brief, checked_tokens
from coursekit.viz.pictures import DIVERGING, cell, table_html
from coursekit.viz.tokens import encoded, visible
from coursekit.viz.widget import ROOM, Widget, pack, to_numpy

COUNTS = (30, 200, 1_000, 5_000)  # how many of the likeliest words to show; and all of them
AT_FIRST = 200
LISTED = 10  # words of the static table to each side


class Association(Widget):
    """Compare what two sentences make likely: a dot for each candidate word, and the differences as bars.

    A dot stands at ``ln p(word | first)`` across and ``ln p(word | second)`` upwards. On the diagonal a word is as
    likely in both; its height above the diagonal is the difference, ``ln p(word | second) - ln p(word | first)`` in
    nats, the logarithm of the ratio of both probabilities. Shown are the words that are likeliest in one of the two
    sentences: the 30, 200, 1,000 or 5,000 first, or all. Numbers are held as float32.

    Args:
        words: n candidates, two or more, each given once.
        log_likelihoods: sentence -> (n,) array or tensor of ``ln p`` of each word, in nats, for two sentences that
            differ in one place. ``[MASK]`` in a sentence stands where the word goes; without it, at the end.
        planted: word -> the difference that its data were made with, in nats, where it is known.
        title: what stands above.
    """

    module = "association"

    def __init__(
        self,
        words: Sequence[str],
        log_likelihoods: Mapping[str, Any],
        planted: Mapping[str, float] | None = None,
        title: str = "What one word changes",
    ):
        words = checked_tokens(words, "words")
        if len(words) < 2:
            raise ValueError(f"words has {len(words)} entries: give at least two candidates to compare")
        place = {word: i for i, word in enumerate(words)}
        if len(place) < len(words):
            twice = next(word for i, word in enumerate(words) if place[word] != i)
            raise ValueError(f"the word {twice!r} is given twice: give each candidate once")
        if not isinstance(log_likelihoods, Mapping) or len(log_likelihoods) != 2:
            raise ValueError("log_likelihoods must be of two sentences: {sentence: ln p of each word, sentence: ...}")
        both = np.stack([checked_log(values, words, said) for said, values in log_likelihoods.items()])
        sentences = [str(said) for said in log_likelihoods]
        parts = in_three_parts(*sentences)
        order = np.argsort(-both.max(axis=0), kind="stable")  # the likeliest in one of the two first
        self.words, self.log_likelihoods = [words[i] for i in order], both[:, order]
        rank = {word: i for i, word in enumerate(self.words)}
        self.planted = {rank[word]: value for word, value in checked_planted(planted, rank).items()}
        counts = [n for n in COUNTS if n < len(words)] + [len(words)]
        self.data = {
            "title": title,
            "mask": MASK,
            "sentences": parts,
            "words": [visible(word) for word in self.words],
            "log": pack(self.log_likelihoods),
            "planted": [[i, brief(value)] for i, value in self.planted.items()],
            "counts": counts,
            "count": AT_FIRST if AT_FIRST in counts else len(words),
        }
        if (size := self.size()) > ROOM:
            raise ValueError(f"the words take {size:,} bytes, more than {ROOM:,}: give only the likeliest of them")

    def static_html(self) -> str:
        first, second = self.log_likelihoods[:, : self.data["count"]]
        difference = second - first
        order = np.argsort(difference, kind="stable")
        planted = [i for i in order if i in self.planted]
        # those most different to each side, and what was planted
        listed = dict.fromkeys([*order[:LISTED], *order[max(LISTED, len(order) - LISTED) :], *planted[: 4 * LISTED]])
        listed = sorted(listed, key=lambda i: difference[i])
        most = max(abs(difference[listed]).max(), 1e-9)
        names = [part for _, part, _ in self.data["sentences"]]
        rows = []
        for i in listed:
            row = [visible(self.words[i]), f"{first[i]:.3f}", f"{second[i]:.3f}"]
            row.append(cell(f"{difference[i]:+.3f}", 0.5 + 0.5 * difference[i] / most, DIVERGING))
            if self.planted:
                row.append(f"{self.planted[i]:+.3f}" if i in self.planted else "")
            rows.append(row)
        head = ["word", f"ln p, {names[0]}", f"ln p, {names[1]}", "difference"] + ["planted"] * bool(self.planted)
        said = "".join(
            f"<p>{html.escape(before)}<b>{html.escape(part)}</b>{html.escape(after)}</p>"
            for before, part, after in self.data["sentences"]
        )
        few = f"the {len(order):,} likeliest of " if len(order) < len(self.words) else ""
        caption = (
            f"The most different of {few}{len(self.words):,} words; a difference above 0: "
            f"likelier with {names[1]}, below: with {names[0]}"
        )
        return f"<p><b>{html.escape(self.data['title'])}</b></p>{said}{table_html(caption, head, rows)}"


def checked_log(values: Any, words: list[str], sentence: str) -> np.ndarray:
    """ln p of each word in one sentence."""
    if not isinstance(sentence, str) or not sentence.strip():
        raise ValueError(f"log_likelihoods has the sentence {sentence!r}: it must be str and not empty")
    encoded(sentence, "a sentence")
    try:
        values = to_numpy(values)
    except (TypeError, ValueError):
        raise ValueError(f"{sentence!r}: must have a number for each word, ln p") from None
    if values.shape != (len(words),):
        raise ValueError(f"{sentence!r}: has shape {values.shape}, but {len(words)} words need ({len(words)},)")
    for word, value in zip(words, values):
        if not -1e30 < value < 1e-6:  # a probability of 1 may come out a rounding above it
            raise ValueError(f"{sentence!r}: ln p of {word!r} is {value}, but must be a number of at most 0")
    total = math.fsum(np.exp(values))
    if total > 1.001:
        raise ValueError(
            f"{sentence!r}: the probabilities exp(ln p) add up to {total:.4g}, more than 1: give ln p after the softmax"
        )
    return np.minimum(values, 0)


def checked_planted(planted: Mapping[str, float] | None, words: Mapping[str, int]) -> dict[str, float]:
    """The planted differences, of words that are there."""
    if planted is None:
        return {}
    if not isinstance(planted, Mapping):
        raise ValueError(
            "planted must give the difference of each word: {word: ln p in the second - ln p in the first}"
        )
    checked = {}
    for word, value in planted.items():
        if word not in words:
            raise ValueError(
                f"planted has {word!r}, which is none of the words: give it as one of them, or leave it out"
            )
        try:
            checked[word] = float(value)
        except (TypeError, ValueError):
            raise ValueError(f"planted: the difference of {word!r} is {value!r}, not a number") from None
        if not abs(checked[word]) < 1e30:
            raise ValueError(f"planted: the difference of {word!r} is {value}, but must be finite")
    return checked


def in_three_parts(first: str, second: str) -> list[list[str]]:
    """Of each sentence what stands before the words in which they differ, these words, and what stands after them."""
    sentences = (first, second)
    found = [[match.span() for match in re.finditer(r"\w+|[^\w\s]", sentence)] for sentence in sentences]
    a, b = ([s[start:end] for start, end in spans] for s, spans in zip(sentences, found))
    if a == b:
        raise ValueError(f"the two sentences are the same, {first!r}: change one word in one of them")
    shorter = min(len(a), len(b))
    head = next((i for i in range(shorter) if a[i] != b[i]), shorter)
    tail = next((i for i in range(shorter - head) if a[-1 - i] != b[-1 - i]), shorter - head)
    if head + tail == shorter:  # one of them only has more words: each gets a neighbour to be called by
        head, tail = (head, tail - 1) if tail else (head - 1, tail)
    parts = []
    for sentence, spans in zip(sentences, found):
        start, end = spans[head][0], spans[len(spans) - tail - 1][1]
        parts.append([sentence[:start], sentence[start:end], sentence[end:]])
    return parts
