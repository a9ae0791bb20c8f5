"""Byte-pair encoding beside the ``tokenizers`` library, on one thread, and beside the straightforward way.

``python -m tests.bench_text`` prints a table. Trained on the Python documentation; encoded is 1 MB of that and of
the standard library's source, in which nothing is repeated on purpose. Caches are empty at each start.
"""

import copy
import os
import sysconfig
import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from pydoc_data.topics import topics

from rich.console import Console
from rich.table import Table

from coursekit.text.bpe import BPE, CHARACTER, PRE_TOKEN, count_pairs, merge
from coursekit.text.wordpiece import SPECIAL_TOKENS, WordPiece
from tests.bench import ROUNDS, alternate
from tests.text import library

VOCAB_SIZE = 2048
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


def encode_first_try(bpe: BPE, ranks: dict[tuple[int, int], tuple[int, int]], text: str) -> list[int]:
    """The same with the two functions that training has: count the pairs, merge the one that was learned first."""
    ids = []
    for found in PRE_TOKEN.findall(text):
        word = [bpe.ids[CHARACTER[b]] for b in found.encode()]
        while pairs := count_pairs([word], [1]):
            pair = min(pairs, key=lambda pair: ranks.get(pair, (len(ranks), 0)))
            if pair not in ranks:
                break
            word = merge(word, pair, ranks[pair][1])
        ids += word
    return ids


def once(work: Callable[[], object]) -> tuple[float, object]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def main() -> None:
    os.environ |= {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1"}
    text = megabyte()
    title = f"A: ours, B: the other; medians of {ROUNDS} rounds, the straightforward ways once; {VOCAB_SIZE} tokens"
    table = Table("what", "A", "B", "B / A", "aim", title=title)

    def row(what: str, a: float, b: float, ratio: float, aim: str) -> None:
        table.add_row(what, f"{a:.3f} s", f"{b:.3f} s", f"{ratio:.3g}", aim)

    bpe = BPE.train(DOCS, VOCAB_SIZE, [])
    theirs = library.train_their_bpe(DOCS, VOCAB_SIZE, [])
    assert bpe.ids == theirs.get_vocab()
    assert bpe.encode(text) == theirs.encode(text).ids
    pieces = WordPiece.train(DOCS, VOCAB_SIZE)
    berts = library.their_wordpiece(pieces.ids, list(SPECIAL_TOKENS))
    assert pieces.encode(text) == berts.encode(text).ids

    def cold(tokenizer) -> Callable[[], object]:
        def work() -> None:
            if isinstance(tokenizer, BPE | WordPiece):
                copy.deepcopy(tokenizer).encode(text)  # the copy's cache is empty
            else:
                if hasattr(tokenizer.model, "_clear_cache"):
                    tokenizer.model._clear_cache()
                tokenizer.encode(text)

        return work

    size = sum(len(doc.encode()) for doc in DOCS) / 2**20
    train = alternate(lambda: BPE.train(DOCS, VOCAB_SIZE, []), lambda: library.train_their_bpe(DOCS, VOCAB_SIZE, []))
    row(f"BPE.train on {size:.2f} MB; B: tokenizers", *train, "≥ 1/30 = 0.033")
    seconds, merges = once(lambda: train_anew(DOCS, VOCAB_SIZE))
    assert [(bpe.tokens[a], bpe.tokens[b]) for a, b in merges] == bpe.merges
    row("the same; B: counting anew for each merge", train[0], seconds, seconds / train[0], "≥ 20")

    encode = alternate(cold(bpe), cold(theirs))
    row("BPE.encode of 1 MB; B: tokenizers", *encode, "≥ 1/30 = 0.033")
    ranks = {(bpe.ids[a], bpe.ids[b]): (rank, bpe.ids[a + b]) for rank, (a, b) in enumerate(bpe.merges)}
    for what, other in (
        ("with count_pairs and merge", encode_first_try),
        ("with a list of possible merges", encode_anew),
    ):
        seconds, ids = once(lambda other=other: other(bpe, ranks, text))
        assert ids == bpe.encode(text)
        row(f"the same; B: all pairs anew for each merge, {what}", encode[0], seconds, seconds / encode[0], "≥ 10")
    row("WordPiece.encode of 1 MB; B: tokenizers", *alternate(cold(pieces), cold(berts)), "≥ 1/30 = 0.033")
    Console().print(table)


if __name__ == "__main__":
    main()
