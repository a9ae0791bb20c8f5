"""Byte-pair encoding beside the ``tokenizers`` library, on one thread, and beside the straightforward way.

Trained on the Python documentation; encoded is 1 MB of that and of the standard library's source, in which nothing is
repeated on purpose. Caches are empty at each start.
"""

import copy
import os
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from pydoc_data.topics import topics

from coursekit.text.bpe import BPE, CHARACTER, PRE_TOKEN, merge
from coursekit.text.wordpiece import SPECIAL_TOKENS, WordPiece
from tests.benchmarks.shared import Row, clock, guarded, race, ratio
from tests.text import library

TOPIC = "01 tokenizers"
LIBRARY = 1 / 30  # of the speed of tokenizers, which is written in Rust, in training
VOCAB_SIZE, FEW_TOKENS = 2048, 384  # counting anew for 2,048 takes a minute
DOCS = list(topics.values())


def megabyte() -> str:
    sources = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    text = "\n".join([*DOCS, *(path.read_text(encoding="utf-8") for path in sources)])
    return text.encode()[: 2**20].decode(errors="ignore")


def train_anew(texts: list[str], vocab_size: int) -> list[tuple[int, int]]:
    """Count all pairs of all words for every merge, then go through all words."""
    first = {b: i for i, b in enumerate(CHARACTER)}
    counts = Counter(word for text in texts for word in PRE_TOKEN.findall(text))
    words = [([first[b] for b in word.encode()], n) for word, n in counts.items()]
    merges = []
    for new in range(256, vocab_size):
        pairs = Counter()
        for word, n in words:
            for pair in pairwise(word):
                pairs[pair] += n
        best = max(pairs, key=lambda pair: (pairs[pair], -pair[0], -pair[1]))
        words = [(merge(word, best, new), n) for word, n in words]
        merges.append(best)
    return merges


def encode_anew(bpe: BPE, ranks: dict[tuple[int, int], tuple[int, int]], text: str) -> list[int]:
    """For every pre-token, again and again look at all its pairs and merge the first learned."""
    ids = []
    for found in PRE_TOKEN.findall(text):
        word = [bpe.ids[CHARACTER[b]] for b in found.encode()]
        while True:
            possible = [ranks[pair] + pair for pair in pairwise(word) if pair in ranks]
            if not possible:
                break
            _, new, left, right = min(possible)
            word = merge(word, (left, right), new)
        ids += word
    return ids


def slow_race(row: Row, ours: Callable[[], object], anew: Callable[[], object]) -> Row:
    """As ``race``, in two rounds: doing everything anew takes long, and is slower by far more than the noise."""
    return guarded(row, lambda: ratio(row, clock(ours, anew, rounds=2, most=2)))


def training() -> Iterator[Row]:
    bpe = BPE.train(DOCS, VOCAB_SIZE, [])
    assert bpe.ids == library.train_their_bpe(DOCS, VOCAB_SIZE, []).get_vocab(), "other tokens than theirs"
    size = sum(len(doc.encode()) for doc in DOCS) / 2**20
    what = f"BPE.train, {VOCAB_SIZE} tokens of {size:.2f} MB"

    def ours() -> None:
        BPE.train(DOCS, VOCAB_SIZE, [])

    def theirs() -> None:
        library.train_their_bpe(DOCS, VOCAB_SIZE, [])

    yield race(Row(TOPIC, what, "tokenizers", at_least=LIBRARY), ours, theirs)
    few = BPE.train(DOCS, FEW_TOKENS, [])

    def anew() -> None:
        merges = train_anew(DOCS, FEW_TOKENS)
        assert [(few.tokens[a], few.tokens[b]) for a, b in merges] == few.merges, "other merges than by counting anew"

    row = Row(TOPIC, f"BPE.train, {FEW_TOKENS} tokens", "counting anew for each merge, once", at_least=10)
    yield slow_race(row, lambda: BPE.train(DOCS, FEW_TOKENS, []), anew)


def encode_cold(tokenizer, text: str) -> Callable[[], None]:
    def work() -> None:
        if isinstance(tokenizer, BPE | WordPiece):
            copy.deepcopy(tokenizer).encode(text)  # the copy's cache is empty
        else:
            if hasattr(tokenizer.model, "_clear_cache"):
                tokenizer.model._clear_cache()
            tokenizer.encode(text)

    return work


def encoding() -> Iterator[Row]:
    text, bpe = megabyte(), BPE.train(DOCS, VOCAB_SIZE, [])
    theirs = library.train_their_bpe(DOCS, VOCAB_SIZE, [])
    ids = theirs.encode(text).ids
    assert copy.deepcopy(bpe).encode(text) == ids, "other ids than theirs"
    what, ours = "BPE.encode of 1 MB", encode_cold(bpe, text)
    yield race(Row(TOPIC, what, "tokenizers", at_least=1), ours, encode_cold(theirs, text))
    ranks = {(bpe.ids[a], bpe.ids[b]): (rank, bpe.ids[a + b]) for rank, (a, b) in enumerate(bpe.merges)}

    def anew() -> None:
        assert encode_anew(bpe, ranks, text) == ids, "other ids than by merging anew"

    yield slow_race(Row(TOPIC, what, "all pairs anew for each merge"), ours, anew)


def wordpiece() -> Iterator[Row]:
    text, pieces = megabyte(), WordPiece.train(DOCS, VOCAB_SIZE)
    theirs = library.their_wordpiece(pieces.ids, list(SPECIAL_TOKENS))
    assert copy.deepcopy(pieces).encode(text) == theirs.encode(text).ids, "other ids than theirs"
    row = Row(TOPIC, "WordPiece.encode of 1 MB", "tokenizers", at_least=1)
    yield race(row, encode_cold(pieces, text), encode_cold(theirs, text))


def parts() -> list[Callable[[], Iterator[Row]]]:
    os.environ |= {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1"}  # read at their first use
    return [training, encoding, wordpiece]
