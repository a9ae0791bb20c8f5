"""Byte-pair encoding over bytes, as in GPT-2.

Sennrich, Haddow and Birch (2016), "Neural Machine Translation of Rare Words with Subword Units"; Radford et al. (2019),
"Language Models are Unsupervised Multitask Learners", section 2.2.

Start with single symbols. Find the two neighbours that stand side by side most often, and write them as one new symbol.
Repeat. The list of merges, in the order in which they were learned, is the tokenizer.
"""

import operator
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from heapq import heapify, heappop, heappush
from itertools import chain, pairwise

import regex

from coursekit.text.pre_tokens import KINDS, Kind, kind_of
from coursekit.text.tokenizer import Piece, Tokenizer, check_texts

END = "<|endoftext|>"  # what GPT-2 calls the token between documents

PRE_TOKEN = regex.compile(KINDS["gpt-2"].expression)  # what merges are learned within

LONG = 64  # bytes of a word from which a heap finds the next merge faster than the smallest of a list


def byte_characters() -> dict[int, str]:
    """One visible character for each of the 256 bytes, GPT-2's: in files and on screens tokens are written with them.

    The 188 bytes that are visible characters of Latin-1 stand for themselves; the others are, in order, U+0100, U+0101
    and so on. The space is "Ġ", the line feed "Ċ". The order of the dictionary is the order of the characters.
    """
    visible = [b for b in range(256) if 33 <= b <= 126 or (161 <= b <= 255 and b != 173)]
    hidden = [b for b in range(256) if b not in set(visible)]
    return {b: chr(b) for b in visible} | {b: chr(256 + k) for k, b in enumerate(hidden)}


CHARACTER = byte_characters()
BYTE = {character: b for b, character in CHARACTER.items()}


def count_pairs(words: Iterable[Sequence], counts: Iterable[int]) -> Counter:
    """How often each two symbols are neighbours, with ``counts`` saying how often each word occurs.

    ``count_pairs([["a", "b", "b"], ["a", "b"]], [1, 5])`` is ``{("a", "b"): 6, ("b", "b"): 1}``.
    """
    found = Counter()
    for word, count in zip(words, counts, strict=True):
        for pair in pairwise(word):
            found[pair] += count
    return found


def merge(word: Sequence, pair: tuple, new) -> list:
    """The word with every ``pair`` of neighbours replaced by the symbol ``new``, from left to right.

    ``merge(["a", "a", "a", "b"], ("a", "a"), "aa")`` is ``["aa", "a", "b"]``.
    """
    merged, i = [], 0
    while i < len(word):
        if word[i] == pair[0] and i + 1 < len(word) and word[i + 1] == pair[1]:
            merged.append(new)
            i += 2
        else:
            merged.append(word[i])
            i += 1
    return merged


def learn_merges(
    words: list[list[int]],
    counts: list[int],
    tokens: list[str],
    vocab_size: int,
    join: Callable[[str, str], str] = operator.add,
) -> list[tuple[int, int]]:
    """Merge the most frequent pair of neighbours until there are ``vocab_size`` tokens or no two neighbours.

    Of equally frequent pairs, the one whose left token has the smaller id is merged, and of those the one whose right
    token has the smaller id: the rule of the ``tokenizers`` library.

    Args:
        words: the ids of each word's symbols; changed in place.
        counts: how often each word occurs.
        tokens: the symbol of each id; every new symbol is appended.
        join: what two symbols make together.

    Returns:
        The merged pairs, in order.
    """
    ids = {token: i for i, token in enumerate(tokens)}
    pair_counts = count_pairs(words, counts)
    # A merge changes only the words that have the pair: remember which they are.
    words_with = defaultdict(set)
    for i, word in enumerate(words):
        for pair in pairwise(word):
            words_with[pair].add(i)
    # The heap's smallest entry is the largest count, and of those the smallest pair.
    heap = [(-count, pair) for pair, count in pair_counts.items()]
    heapify(heap)
    merges = []
    while heap and len(tokens) < vocab_size:
        negative_count, pair = heappop(heap)
        if pair_counts[pair] < -negative_count:
            # Other merges have used up some of its places since it was put here. Counts of old pairs only ever fall, so
            # it is enough to put it back in its right place when it comes up.
            if pair_counts[pair] > 0:
                heappush(heap, (-pair_counts[pair], pair))
            continue
        token = join(tokens[pair[0]], tokens[pair[1]])
        new = ids.setdefault(token, len(tokens))  # a special token of that spelling has its number already
        if new == len(tokens):
            tokens.append(token)
        merges.append(pair)
        new_pairs = set()
        for i in words_with.pop(pair):
            for old in pairwise(words[i]):
                pair_counts[old] -= counts[i]
            words[i] = merge(words[i], pair, new)
            for now in pairwise(words[i]):
                pair_counts[now] += counts[i]
                if new in now:
                    new_pairs.add(now)
                    words_with[now].add(i)
        for now in new_pairs:
            heappush(heap, (-pair_counts[now], now))
    return merges


def composed(text: str) -> tuple[str, list[tuple[int, int]]]:
    """A text in Unicode's form C, and from where to where in ``text`` each of its characters comes.

    What is written in several characters and is changed, as e with an accent is, is one place for all of them.
    """
    if unicodedata.is_normalized("NFC", text):
        return text, [(k, k + 1) for k in range(len(text))]
    parts, places = [], []
    for match in regex.finditer(r"\X", text):  # nothing is composed across what a reader takes for two characters
        old, new = match.group(), unicodedata.normalize("NFC", match.group())
        start, end = match.span()
        parts.append(new)
        places += [(k, k + 1) for k in range(start, end)] if new == old else [(start, end)] * len(new)
    return "".join(parts), places


def read_merges(merges: Iterable[str | Sequence[str]]) -> list[tuple[str, str]]:
    """Merges as files have them, ``"a b"`` or ``["a", "b"]``, as pairs.

    Raises:
        ValueError: when one is not of two tokens.
    """
    pairs = [tuple(pair.split(" ") if isinstance(pair, str) else pair) for pair in merges]
    for pair in pairs:
        if len(pair) != 2:
            raise ValueError(f"the merge {pair!r} is not of two tokens")
    return pairs


class BPE(Tokenizer):
    """Byte-level byte-pair encoding, with GPT-2's pre-tokens unless another kind is given: any text in, the same out.

    Args:
        tokens: all tokens in the order of their ids, written in ``byte_characters``; the 256 bytes are among them.
        merges: pairs of tokens, first learned first.
        special_tokens, added_tokens: those of ``tokens`` that stand for themselves; see ``Tokenizer``.
        kind: what is done before merging; see ``pre_tokens``. With ``kind.nfc``, a text comes back composed.
        begin: a token that ``encode`` and ``pieces`` put before every text, or None.
        drop_missing: whether bytes may be missing from ``tokens``. They are left out of a text, as the ``tokenizers``
            library leaves them out: SmolLM2 has no tokens for some control characters.

    Raises:
        ValueError: when a byte, a part of a merge or what it makes is missing from ``tokens``, or when a special token
            is spelled like a token of other bytes.

    What is a letter, a digit or a space is as in the ``regex`` package. Its Unicode is newer than that of the
    ``tokenizers`` library (16.0 in 0.23): newer characters may be cut apart differently there.
    """

    def __init__(
        self,
        tokens: Iterable[str],
        merges: Iterable[tuple[str, str]],
        special_tokens: Iterable[str] = (),
        kind: Kind = KINDS["gpt-2"],
        added_tokens: Iterable[str] = (),
        begin: str | None = None,
        drop_missing: bool = False,
    ):
        super().__init__(tokens, special_tokens, added_tokens)
        self.kind, self.begin, self.drop_missing = kind, begin, drop_missing
        self.merges = [(left, right) for left, right in merges]
        for left, right in self.merges:
            for token in (left, right, left + right):
                if token not in self.ids:
                    raise ValueError(f"the merge of {left!r} and {right!r} needs token {token!r}, which is missing")
        missing = [b for b, character in CHARACTER.items() if character not in self.ids]
        if missing and not drop_missing:
            raise ValueError(f"the token {CHARACTER[missing[0]]!r} of byte {missing[0]} is missing: give all 256 bytes")
        for token in (*self.special_tokens, *self.added_tokens):
            if not token.isascii() and set(token) <= BYTE.keys():
                raise ValueError(f"special token {token!r} is spelled like a token of other bytes: use ASCII for it")
        if begin is not None and begin not in self.ids:
            raise ValueError(f"begin={begin!r} must be one of the tokens")
        self._begin = [] if begin is None else [self.ids[begin]]
        self._pre_token = regex.compile(kind.expression)
        self._bytes = [bytes(BYTE[c] for c in t) if set(t) <= BYTE.keys() else t.encode() for t in self.tokens]
        words = (i for i, token in enumerate(self.tokens) if set(token) <= BYTE.keys())
        self._whole = {self._bytes[i]: i for i in words} if kind.ignore_merges else {}
        self._missing = bytes(missing)
        self._byte_ids = [self.ids.get(CHARACTER[b]) for b in range(256)]
        # (left id, right id) -> rank -> id of what they make
        self._ranks = {(self.ids[left], self.ids[right]): rank for rank, (left, right) in enumerate(self.merges)}
        self._made = [self.ids[left + right] for left, right in self.merges]
        # The same pre-tokens come again and again.
        self._encode_word = lru_cache(maxsize=2**16)(self.encode_word)

    def __reduce__(self):  # a cache cannot be copied or sent
        said = self.special_tokens, self.kind, self.added_tokens, self.begin, self.drop_missing
        return BPE, (self.tokens, self.merges, *said)

    @classmethod
    def of_kind(
        cls,
        tokens: Iterable[str],
        merges: Iterable[str | tuple[str, str]],
        special_tokens: Iterable[str],
        name: str,
        added_tokens: Iterable[str] = (),
        begin: str | None = None,
    ) -> "BPE":
        """The tokenizer that the metadata of a GGUF file describe; bytes that it has no token for are dropped.

        Args:
            merges: pairs, or as files have them, both parts in one text with a space between.
            name: of the pre-tokenizer, one of ``pre_tokens.KINDS`` ("gpt-2", "smollm", "llama-bpe", "qwen2", …).

        Raises:
            ValueError: as ``BPE`` does, for an unknown name, and for a merge that is not of two tokens.
        """
        return cls(tokens, read_merges(merges), special_tokens, kind_of(name), added_tokens, begin, drop_missing=True)

    @classmethod
    def train(cls, texts: Iterable[str], vocab_size: int, special_tokens: Iterable[str] = (END,)) -> "BPE":
        """Learn merges from texts.

        Ids: first the special tokens, then the bytes in the order of ``byte_characters``, then the merges. Ties as in
        ``learn_merges``. Both are as in the ``tokenizers`` library's ``BpeTrainer`` with its byte alphabet, and as
        there, special tokens in the texts are text like any other.

        Args:
            vocab_size: so many tokens, or fewer where the texts have no more pairs to merge.
        """
        special_tokens = list(dict.fromkeys(special_tokens))
        tokens = list(dict.fromkeys([*special_tokens, *CHARACTER.values()]))
        if vocab_size < len(tokens):
            raise ValueError(f"vocab_size is {vocab_size}: bytes and special tokens alone are {len(tokens)}")
        ids = {token: i for i, token in enumerate(tokens)}
        word_counts = Counter(chain.from_iterable(PRE_TOKEN.findall(text) for text in check_texts(texts)))
        words = [[ids[CHARACTER[b]] for b in word.encode()] for word in word_counts]
        merges = learn_merges(words, list(word_counts.values()), tokens, vocab_size)
        return cls(tokens, [(tokens[left], tokens[right]) for left, right in merges], special_tokens)

    def encode_word(self, word: str) -> tuple[int, ...]:
        """The ids of a pre-token: its bytes, then again and again the merge that was learned first, leftmost first."""
        raw = word.encode()
        if self._whole and raw in self._whole:
            return (self._whole[raw],)
        if self._missing:
            raw = raw.translate(None, self._missing)
        ids = [self._byte_ids[b] for b in raw]
        if len(ids) >= LONG:
            return self._merge_with_heap(ids)
        rank_of, none = self._ranks.get, len(self._made)
        ranks = [rank_of(pair, none) for pair in pairwise(ids)]  # of each place with the next
        while ranks and (rank := min(ranks)) < none:
            i = ranks.index(rank)
            ids[i : i + 2] = [self._made[rank]]
            del ranks[i]
            if i > 0:
                ranks[i - 1] = rank_of((ids[i - 1], ids[i]), none)
            if i < len(ranks):
                ranks[i] = rank_of((ids[i], ids[i + 1]), none)
        return tuple(ids)

    def _merge_with_heap(self, ids: list[int | None]) -> tuple[int, ...]:
        """The same merges. A heap holds those that are possible, so that n bytes cost O(n log n)."""
        n = len(ids)
        ids.append(None)  # stands behind the last symbol and, as ids[-1], before the first: no merge has it
        left, right = list(range(-1, n)), [*range(1, n + 1), n]  # neighbours of each place
        heap = [(self._ranks[pair], i) for i, pair in enumerate(pairwise(ids)) if pair in self._ranks]
        heapify(heap)
        while heap:
            rank, i = heappop(heap)
            j = right[i]
            if self._ranks.get((ids[i], ids[j])) != rank:
                continue  # one of the two has been merged with another since
            ids[i], ids[j] = self._made[rank], None
            right[i] = right[j]
            left[right[j]] = i
            for k in (left[i], i):
                pair = ids[k], ids[right[k]]
                if pair in self._ranks:
                    heappush(heap, (self._ranks[pair], k))
        return tuple(token for token in ids if token is not None)

    def encode(self, text: str) -> list[int]:
        ids = [*self._begin]
        for _, part, special in self.split_special(text):
            if special:
                ids.append(self.ids[part])
                continue
            if self.kind.nfc:
                part = unicodedata.normalize("NFC", part)
            ids.extend(chain.from_iterable(map(self._encode_word, self._pre_token.findall(part))))
        return ids

    def pieces(self, text: str) -> list[Piece]:
        """The tokens of a text. Tokens that share the bytes of one character all have its place.

        The token that is put before a text takes none of its characters.
        """
        found = [Piece(self.tokens[i], i, 0, 0) for i in self._begin]
        for start, part, special in self.split_special(text):
            if special:
                found.append(Piece(part, self.ids[part], start, start + len(part)))
                continue
            part, places = composed(part) if self.kind.nfc else (part, [(k, k + 1) for k in range(len(part))])
            for match in self._pre_token.finditer(part):
                place = [
                    places[match.start() + k]
                    for k, character in enumerate(match.group())
                    for _ in character.encode().translate(None, self._missing)
                ]
                b = 0
                for i in self._encode_word(match.group()):
                    n = len(self._bytes[i])
                    found.append(Piece(self.tokens[i], i, start + place[b][0], start + place[b + n - 1][1]))
                    b += n
        return found

    def decode(self, ids: Sequence[int]) -> str:
        """The text of tokens; bytes that are no UTF-8 together become U+FFFD."""
        self.check_ids(ids)
        return b"".join(self._bytes[i] for i in ids).decode(errors="replace")

    def spelled(self, i: int) -> str:
        """Token number i as a reader can tell it from all others: bytes that are no UTF-8 alone as ``\\xd7``."""
        self.check_ids([i])
        return self._bytes[i].decode(errors="backslashreplace")
