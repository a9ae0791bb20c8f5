"""Writing with a model: suggestions at the cursor, taken or passed over."""

import html
import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from coursekit.viz.next_token import brief, checked_tokens, written
from coursekit.viz.pictures import cell, table_html
from coursekit.viz.tokens import encoded, readable
from coursekit.viz.widget import ROOM, Widget

MOST_TEXTS = 2_000
LISTED = 13  # texts of the static table: the first, and two levels with three suggestions each

# How a text can go on: (suggestion, probability) of some, each suggestion with its own space in front where it has one.
Suggestions = Iterable[tuple[str, float]]


class Write(Widget):
    """Write with a model: Tab shows at the cursor how the text can go on, and Enter takes what is chosen.

    The arrow keys choose, Escape closes; all else is typed as usual, and undone as usual. Suggestions go on from what
    stands before the cursor. Without a kernel there are those of the stored texts; with ``live`` there is no end.

    Args:
        text: what stands in the field at first; it may be empty.
        tree: whole text -> how it can go on, ``[(suggestion, probability), ...]``. ``tree[text]`` goes with ``text``
            itself, ``tree[text + suggestion]`` with what is there when that one has been taken. A suggestion is one str
            of one or more tokens, put behind the text as it is; its probability is that of all its tokens together.
            The probabilities need not add up to 1 or less: one suggestion may be the beginning of another.
        title: what stands above.
        k: how many suggestions are offered.
    """

    module = "write"

    def __init__(self, text: str, tree: Mapping[str, Suggestions], title: str = "Write with the model", k: int = 3):
        self.k, text = checked_few(k), checked_text(text, "text")
        if not isinstance(tree, Mapping) or text not in tree:
            raise ValueError(f"tree has no {text!r}: give how the text itself can go on as tree[text]")
        self.tree = {
            checked_text(each, "a key of tree"): likeliest(pairs, k, f"tree[{each!r}]") for each, pairs in tree.items()
        }
        self.data = {
            "title": title,
            "text": text,
            "tree": [[each, as_shown(pairs)] for each, pairs in self.tree.items()],
        }
        if (size := self.size()) > ROOM:
            raise ValueError(f"the tree takes {size:,} bytes, more than {ROOM:,}: give fewer texts or a smaller k")

    @classmethod
    def grow(
        cls,
        text: str,
        fn: Callable[[str], Suggestions],
        depth: int = 3,
        title: str = "Write with the model",
        k: int = 3,
    ) -> "Write":
        """With the tree of what ``fn`` suggests for the text and behind every way to take up to ``depth`` suggestions.

        Args:
            fn: a text -> how it can go on. It is called for each different text, at most ``1 + k + ... + k^depth``.
            depth: how many suggestions can be taken, one after the other.
        """
        k, text = checked_few(k), checked_text(text, "text")
        if not isinstance(depth, int) or depth < 0:
            raise ValueError(f"depth={depth!r}: must be a whole number, 0 or more")
        tree, last = {}, [text]
        for _ in range(depth + 1):
            if len(tree) + len(last) > MOST_TEXTS:
                raise ValueError(f"depth={depth} with k={k} makes more than {MOST_TEXTS:,} texts: take a smaller one")
            for each in last:
                tree[each] = likeliest(fn(each), k, f"what comes after {each!r}")
            ways = dict.fromkeys(each + suggestion for each in last for suggestion, _ in tree[each])
            last = [each for each in ways if each not in tree]
        return cls(text, tree, title, k)

    def static_html(self) -> str:
        text = self.data["text"]
        rows = []
        for each, pairs in itertools.islice(self._ways(), LISTED):
            for i, (suggestion, p) in enumerate(pairs):
                name = (readable(each) or "(nothing yet)") if i == 0 else ""
                rows.append([name, readable(suggestion), cell(html.escape(written(p)), p)])
            if not pairs:
                rows.append([readable(each) or "(nothing yet)", "(no suggestion)", ""])
        caption = "How the text can go on"
        if len(self.tree) > LISTED:
            caption += f", for {LISTED} of {len(self.tree):,} stored texts"
        title = f'<p style="overflow-wrap:anywhere"><b>{html.escape(self.data["title"])}</b>: '
        text = f"<bdi>{html.escape(readable(text))}</bdi>"
        return f"{title}{text} …</p>{table_html(caption, ['text', 'suggestion', 'probability'], rows)}"

    def _ways(self) -> Iterable[tuple[str, list[tuple[str, float]]]]:
        """The text itself, what its suggestions lead to, and so on; then the other stored texts."""
        ways = dict.fromkeys([*ways_of(self.tree, self.data["text"]), *self.tree])
        return ((each, self.tree[each]) for each in ways)

    def live(self, fn: Callable[[str], Suggestions]):
        """The same without an end: what is not stored is asked of ``fn``.

        Args:
            fn: what stands before the cursor -> how it can go on, as in ``tree``; an empty list for no suggestion. A
                ``ValueError`` is shown with its message.
        """

        def answer(message: dict[str, Any]) -> dict[str, Any]:
            error, answered = "", None
            try:
                text = checked_text(str(message["text"]), "the text")
                answered = as_shown(likeliest(fn(text), self.k, f"what comes after {text[-40:]!r}"))
            except ValueError as refused:
                error = str(refused)
            return {**self.data, "asked": message, "answer": answered, "error": error}

        return super().live(answer)


def ways_of(tree: Mapping[str, list[tuple[str, float]]], text: str) -> list[str]:
    """The stored texts that suggestions lead to, the fewest of them first."""
    found, last = {text: None}, [text]
    while last:
        ways = dict.fromkeys(each + suggestion for each in last for suggestion, _ in tree[each])
        last = [each for each in ways if each in tree and each not in found]
        found |= dict.fromkeys(last)
    return list(found)


def checked_few(k: int) -> int:
    """How many suggestions."""
    if not isinstance(k, int) or not 1 <= k <= 9:
        raise ValueError(f"k={k!r}: between 1 and 9 suggestions can be read while writing")
    return k


def checked_text(text: str, what: str) -> str:
    """A str as a field can hold it."""
    if not isinstance(text, str):
        raise ValueError(f"{what} is {text!r}: must be a str, the whole text")
    encoded(text, what)
    if "\r" in text:
        raise ValueError(f"{what} has a carriage return (\\r), which a field cannot hold: end lines with \\n alone")
    return text


def likeliest(pairs: Suggestions, k: int, where: str) -> list[tuple[str, float]]:
    """The k likeliest suggestions, the likeliest first."""
    try:
        pairs = [(suggestion, float(p)) for suggestion, p in pairs]
    except (TypeError, ValueError):
        raise ValueError(f"{where}: must be a list of (suggestion, probability)") from None
    suggestions = checked_tokens((suggestion for suggestion, _ in pairs), where)
    for i, (suggestion, p) in enumerate(pairs):
        checked_text(suggestion, where)
        if suggestion in suggestions[:i]:
            raise ValueError(f"{where}: the suggestion {suggestion!r} is given twice, leave one out")
        if not 0 <= p <= 1:
            raise ValueError(f"{where}: the probability of {suggestion!r} is {p}, but must lie in 0..1")
    return sorted(pairs, key=lambda pair: -pair[1])[:k]


def as_shown(pairs: list[tuple[str, float]]) -> list[tuple[str, float, str]]:
    """(suggestion, probability, how it is shown)."""
    return [(suggestion, brief(p), readable(suggestion)) for suggestion, p in pairs]
