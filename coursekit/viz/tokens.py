"""How a text falls into tokens, in one tokenizer or several side by side."""

import html
import operator
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from coursekit.text.bpe import BYTE
from coursekit.viz.pictures import table_html
from coursekit.viz.widget import ROOM, Widget, read_text

MARKS = {" ": "·", "\n": "⏎", "\t": "⇥"}
UNSEEN = {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"}  # Unicode categories that leave no ink
TINTS = ("#cfe3f5", "#fde3c0", "#cdebdd", "#f3d3e6")  # the same as in tokens.js; gaps tell pieces apart, too

# A token of (piece, id, start, end): it stands for text[start:end].
Token = tuple[str, int, int, int]


class Tokens(Widget):
    """See how a text falls into pieces: the pieces, their ids, the characters that they stand for, and how many.

    A piece is shown as the characters that it stands for, with visible spaces (·) and line feeds (⏎). Pieces that share
    a character (byte-level BPE of an emoji) are shown as their bytes in hexadecimal where they are written in GPT-2's
    alphabet of bytes or as ``<0xF0>``, and otherwise as they are written. What no piece stands for is shown without a
    colour.

    Args:
        text: at least one character.
        tokenizers: name -> the tokens of the text, each ``(piece, id, start, end)``, standing for ``text[start:end]``,
            in the order of the text. One that stands for nothing (an added ``[CLS]``) has ``start == end``.
        title: what stands above.
        special: which pieces are special tokens or stand for what is unknown: they are marked.
    """

    module = "tokens"

    def __init__(
        self,
        text: str,
        tokenizers: Mapping[str, Iterable[Token]],
        title: str = "How the text falls into tokens",
        special: Iterable[str] = (),
    ):
        if not isinstance(text, str):
            raise ValueError(f"text is {type(text).__name__}, not str: give the text itself, not its tokens")
        if not text:
            raise ValueError("the text is empty: give at least one character")
        n_bytes = len(encoded(text, "the text"))
        if not isinstance(tokenizers, Mapping) or not tokenizers:
            raise ValueError("tokenizers must name at least one: {name: [(piece, id, start, end), ...]}")
        special = {special} if isinstance(special, str) else set(special)
        shown = []
        for name, tokens in tokenizers.items():
            tokens = [checked(token, i, str(name), len(text)) for i, token in enumerate(tokens)]
            starts = [start for _, _, start, end in tokens if start < end]
            if starts != sorted(starts):
                raise ValueError(f"the tokens of {str(name)!r} are not in the order of the text: sort them by start")
            shown.append({"name": str(name), "count": len(tokens), "pieces": list(pieces(text, tokens, special))})
        example = {"name": "first text", "text": text, "characters": len(text), "bytes": n_bytes, "tokenizers": shown}
        self._show([example], title)

    @classmethod
    def of(
        cls,
        examples: "Mapping[str, Tokens]",
        title: str = "How the text falls into tokens",
        first: str | None = None,
    ) -> "Tokens":
        """Several texts to choose from, without the kernel.

        Args:
            examples: name -> Tokens.
            title: what stands above, in place of the titles of the examples.
            first: the name of the example that is shown first; by default the first one.
        """
        if not isinstance(examples, Mapping) or not examples:
            raise ValueError("examples must name at least one: {name: Tokens(...)}")
        for name, tokens in examples.items():
            if not isinstance(tokens, Tokens):
                raise ValueError(f"the example {name!r} is {type(tokens).__name__}: it must be Tokens")
        if first is not None and first not in examples:
            raise ValueError(f"first={first!r}: must be one of the examples, {', '.join(map(repr, examples))}")
        shown = [{**tokens.data["examples"][tokens.data["chosen"]], "name": str(n)} for n, tokens in examples.items()]
        return cls._joined(shown, title, 0 if first is None else list(examples).index(first))

    @classmethod
    def _joined(cls, examples: list[dict[str, Any]], title: str, chosen: int) -> "Tokens":
        self = cls.__new__(cls)
        self._show(examples, title, chosen)
        return self

    def _show(self, examples: list[dict[str, Any]], title: str, chosen: int = 0) -> None:
        self.data = {"title": title, "chosen": chosen, "examples": examples}
        if (size := self.size()) > ROOM:
            raise ValueError(f"the pieces take {size:,} bytes, more than {ROOM:,}: show shorter texts or fewer of them")

    def static_html(self) -> str:
        title = f"<p><b>{html.escape(self.data['title'])}</b></p>"
        return title + "".join(map(static_example, self.data["examples"]))

    def live(self, read: Callable[[str], "Tokens"]):
        """With a field for typing: each new text goes through ``read``; the examples stay to choose from.

        Args:
            read: what was typed -> the Tokens to show. A ``ValueError`` is shown with its message.
        """

        def with_examples(text: str) -> Tokens:
            typed = {**read(text).data["examples"][0], "name": "typed"}
            examples = self.data["examples"]
            return self._joined([*examples, typed], self.data["title"], len(examples))

        return super().live(read_text(self.data, with_examples))


def encoded(text: str, what: str) -> bytes:
    """A text in UTF-8, or what is wrong with it."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        raise ValueError(f"{what} has a lone surrogate, U+{code:04X}, half of a character: leave it out") from None


def checked(token: Sequence, i: int, name: str, length: int) -> Token:
    """One token of plain str and ints."""
    where = f"token {i} of {name!r}"
    try:
        piece, number, start, end = token
        number, start, end = map(operator.index, (number, start, end))
    except (TypeError, ValueError):
        raise ValueError(f"{where} is {token!r}: it must be (piece, id, start, end) with three whole numbers") from None
    if not isinstance(piece, str):
        raise ValueError(f"the piece of {where} is {type(piece).__name__}: it must be str, as the vocabulary writes it")
    encoded(piece, where)
    if not 0 <= start <= end <= length:
        raise ValueError(f"{where}, {piece!r}, stands for {start} to {end}: must lie in 0..{length}, start first")
    return piece, number, start, end


def visible(text: str) -> str:
    """A text in which every character can be seen and none turns or joins the others around it."""
    shown = []
    for i, char in enumerate(text):
        kind = unicodedata.category(char)
        if char in MARKS:
            shown.append(MARKS[char])
        elif kind in UNSEEN or (i == 0 and unicodedata.name(char, "").startswith("VARIATION SELECTOR")):
            shown.append(f"U+{ord(char):04X}")
        else:
            shown.append(("◌" if kind[0] == "M" and i == 0 else "") + char)  # a mark needs something to stand on
    return "".join(shown)


def as_read(token: str) -> str:
    """A token whose spaces stay spaces; all else that leaves no ink is made visible."""
    return " ".join(visible(word) if word else "" for word in token.split(" "))


def readable(text: str) -> str:
    """A text whose spaces stay spaces, but for those at its ends; all else that leaves no ink is made visible."""
    inner = text.strip(" ")
    if not inner:
        return visible(text)
    start = len(text) - len(text.lstrip(" "))
    return visible(" " * start) + as_read(inner) + visible(" " * (len(text) - start - len(inner)))


def bytes_of(piece: str) -> bytes | None:
    """The bytes that a piece is written for, where it is written for bytes."""
    if found := re.fullmatch("<0x([0-9A-Fa-f]{2})>", piece):
        return bytes.fromhex(found[1])
    return bytes(BYTE[char] for char in piece) if all(char in BYTE for char in piece) else None


def pieces(text: str, tokens: list[Token], special: set[str]) -> Iterator[list]:
    """What is shown of one tokenizer: [shown, written, id, start, end, kind, whole], described in tokens.js."""
    at = 0  # all characters before it are shown
    for group in groups(tokens):
        start, end = group[0][2], max(end for *_, end in group)
        if start > at and start < end:
            yield [visible(text[at:start]), "", None, at, start, "gap", ""]
        at = max(at, end if start < end else 0)
        piece, number, *_ = group[0]
        if len(group) > 1:
            yield from shared(text[start:end], group)
        elif piece in special:
            yield [visible(piece), visible(piece), number, start, end, "special", visible(text[start:end])]
        elif start == end:
            yield [visible(piece), visible(piece), number, start, end, "empty", ""]
        else:
            yield [visible(text[start:end]), visible(piece), number, start, end, "text", ""]
    if at < len(text):
        yield [visible(text[at:]), "", None, at, len(text), "gap", ""]


def groups(tokens: list[Token]) -> Iterator[list[Token]]:
    """Neighbours that share characters together, all others alone."""
    group, reach = [], 0
    for token in tokens:
        _, _, start, end = token
        if group and not start < min(end, reach):
            yield group
            group, reach = [], 0
        group.append(token)
        reach = max(reach, end)
        if start == end:
            yield group
            group, reach = [], 0
    if group:
        yield group


def shared(part: str, group: list[Token]) -> Iterator[list]:
    """Tokens that share characters of ``part``: as their bytes, where these are those of ``part``."""
    raw = [bytes_of(piece) for piece, *_ in group]
    known = None not in raw and b"".join(raw) == part.encode()
    for i, (piece, number, start, end) in enumerate(group):
        shown = raw[i].hex(" ").upper() if known else visible(piece)
        whole = visible(part) if i == 0 else ""
        yield [shown, visible(piece), number, start, end, "bytes" if known else "shared", whole]


def static_example(example: dict[str, Any]) -> str:
    """Counts, pieces and ids of one text, with inline styles."""
    rows = []
    for shown in example["tokenizers"]:
        each = f"{example['characters'] / shown['count']:.2f}" if shown["count"] else "–"
        rows.append([shown["name"], shown["count"], example["characters"], example["bytes"], each])
    head = ["", "tokens", "characters", "bytes", "characters per token"]
    parts = [table_html(example["name"], head, rows)]
    for shown in example["tokenizers"]:
        spans, ids, split = [], [], False
        for word, _, number, _, _, kind, whole in shown["pieces"]:
            word, parted = html.escape(word), kind in ("bytes", "shared")
            if split and (whole or not parted):
                spans.append("</span>")
            if parted and whole:  # in a frame: the characters, then the pieces that share them
                spans.append(f'<span style="outline:1px solid;padding:0 2px"><bdi>{html.escape(whole)}</bdi>')
            split = parted
            if kind == "gap":
                spans.append(f"<bdi>{word}</bdi>")
                continue
            color = TINTS[len(ids) % len(TINTS)]
            edge = ";outline:1px dashed #000" if kind in ("special", "empty") else ""
            word = f"<code>{word}</code>" if kind == "bytes" else word
            # bdi: pieces of Hebrew stand in the order of their ids, as all others do
            spans.append(f'<bdi style="background:{color};color:#000{edge}">{word}</bdi>')
            ids.append(str(number))
        spans.append("</span>" if split else "")
        name = html.escape(shown["name"])
        parts.append(f'<p style="overflow-wrap:anywhere;line-height:1.7">{name}: {" ".join(spans)}</p>')
        parts.append(f'<p style="overflow-wrap:anywhere">ids: {" ".join(ids)}</p>')
    return "".join(parts)
