"""A text that grows token by token, and how likely each next token is."""

import html
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from coursekit.viz.pictures import cell, table_html
from coursekit.viz.tokens import encoded, visible
from coursekit.viz.widget import ROOM, Widget

MOST_NODES = 5_000

# What one model says, (token, probability) of its tokens, or name -> that of several models.
Next = Iterable[tuple[str, float]] | Mapping[str, Iterable[tuple[str, float]]]
Path = tuple[str, ...]
Nodes = dict[Path, dict[str, list[tuple[str, float]]]]


class NextToken(Widget):
    """Extend a text token by token: the most likely next tokens as bars, of one model or of several side by side.

    A bar is as long as its probability, 0 to 1. The last bar holds what is left, 1 minus those above it. A click on a
    bar appends its token, as far as the tree goes; with ``live`` there is no end.

    Args:
        prompt: the tokens of the text so far; it may be empty.
        tree: what the models say, for each way to go on: appended tokens -> ``[(token, probability), ...]`` or, for
            several models, ``{name: [(token, probability), ...]}``. ``tree[()]`` goes with the prompt itself,
            ``tree["the", "cat"]`` with the prompt, "the" and "cat". A list may hold all tokens or only the most likely
            ones: its probabilities add up to 1 or less.
        title: what stands above.
        k: how many tokens have bars of their own.
    """

    module = "next_token"

    def __init__(
        self, prompt: Sequence[str], tree: Mapping[Path, Next], title: str = "Which token comes next", k: int = 8
    ):
        prompt, k = checked_tokens(prompt, "prompt"), checked_k(k)
        if not isinstance(tree, Mapping) or () not in tree:
            raise ValueError("tree has no (): give what comes after the prompt itself as tree[()]")
        for path in tree:
            if not isinstance(path, tuple):
                raise ValueError(f"tree has the key {path!r}: each key must be a tuple of tokens")
        self.k = k
        nodes = {}
        for path, says in sorted(tree.items(), key=lambda item: len(item[0])):
            path = tuple(checked_tokens(path, f"the key {path!r}"))
            nodes[path] = models = checked_models(says, k, f"tree[{path!r}]")
            if list(models) != list(nodes[()]):
                raise ValueError(
                    f"tree[{path!r}] is of {list(models)}, but tree[()] of {list(nodes[()])}: name the same"
                )
            if path and not (path[:-1] in nodes and path[-1] in offered(nodes[path[:-1]])):
                raise ValueError(f"tree[{path!r}] cannot be reached: {path[-1]!r} is none of the {k} bars before it")
        self.prompt, self.nodes = prompt, nodes
        self.data = self._data(title, nodes)
        if (size := self.size()) > ROOM:
            raise ValueError(f"the tree takes {size:,} bytes, more than {ROOM:,}: give fewer levels or a smaller k")

    @classmethod
    def grow(
        cls,
        prompt: Sequence[str],
        fn: Callable[[list[str]], Next],
        depth: int = 2,
        title: str = "Which token comes next",
        k: int = 8,
    ) -> "NextToken":
        """With the tree of what ``fn`` says of the prompt and of every way to go on by at most ``depth`` bars.

        Args:
            fn: the tokens so far -> what the models say of the next one. It is called ``1 + b + ... + b^depth`` times,
                b the number of different tokens with bars: k of one model, up to n k of n models.
            depth: how many tokens can be appended.
        """
        prompt, k = checked_tokens(prompt, "prompt"), checked_k(k)
        if not isinstance(depth, int) or depth < 0:
            raise ValueError(f"depth={depth!r}: must be a whole number, 0 or more")
        tree, last = {}, [()]
        for level in range(depth + 1):
            if len(tree) + len(last) > MOST_NODES:
                raise ValueError(f"depth={depth} with k={k} makes more than {MOST_NODES:,} nodes: take a smaller one")
            for path in last:
                tree[path] = checked_models(fn([*prompt, *path]), k, f"what comes after {path!r}")
            if level < depth:
                last = [(*path, token) for path in last for token in offered(tree[path])]
        return cls(prompt, tree, title, k)

    def _data(self, title: str, nodes: Nodes, path: Path = (), error: str = "", turn: int = 0) -> dict[str, Any]:
        tokens = itertools.chain(self.prompt, *nodes, *(offered(models) for models in nodes.values()))
        return {
            "title": title,
            "prompt": self.prompt,
            "names": list(nodes[()]),
            # tokens that are not shown as they are
            "shown": {token: visible(token) for token in tokens if visible(token) != token},
            "nodes": [
                [list(way), [[[[token, brief(p)] for token, p in says], brief(rest(says))] for says in models.values()]]
                for way, models in nodes.items()
            ],
            "path": list(path),
            "error": error,
            "turn": turn,
        }

    def static_html(self) -> str:
        # each token keeps its direction to itself, and so its place in the row
        text = " ".join(f"<bdi>{html.escape(visible(token))}</bdi>" for token in self.prompt) or "(nothing yet)"
        parts = [f'<p style="overflow-wrap:anywhere"><b>{html.escape(self.data["title"])}</b>: {text} …</p>']
        for name, says in self.nodes[()].items():
            rows = [[visible(token), cell(html.escape(written(p)), p)] for token, p in says]
            rows.append(["all others", cell(html.escape(written(rest(says))), rest(says))])
            parts.append(table_html(name or "next token", ["token", "probability"], rows))
        return "".join(parts)

    def live(self, fn: Callable[[list[str]], Next]):
        """The same without an end: where the tree ends, ``fn`` is asked.

        Args:
            fn: the tokens so far, the prompt in front -> what the models say of the next one, as in ``tree``. A
                ``ValueError`` is shown with its message.
        """
        title, names = self.data["title"], self.data["names"]
        nodes = dict(self.nodes)  # what is answered belongs to this view, and to this fn

        def answer(message: dict[str, Any]) -> dict[str, Any]:
            path, turn = tuple(map(str, message["path"])), int(message["turn"])
            error = ""
            try:
                models = checked_models(fn([*self.prompt, *path]), self.k, f"what comes after {path!r}")
                if list(models) != names:
                    raise ValueError(f"the answer is of {list(models)}, but the prompt's of {names}: name the same")
                nodes[path] = models
            except ValueError as refused:
                error = str(refused)
            return self._data(title, nodes, path, error, turn)

        return super().live(answer)


def checked_k(k: int) -> int:
    """How many bars."""
    if not isinstance(k, int) or not 1 <= k <= 50:
        raise ValueError(f"k={k!r}: between 1 and 50 bars can be read")
    return k


def checked_tokens(tokens: Iterable[str], what: str) -> list[str]:
    """A list of plain str."""
    if isinstance(tokens, str):
        raise ValueError(f"{what} is one str, {tokens!r}: give a list of tokens")
    tokens = list(tokens)
    for token in tokens:
        if not isinstance(token, str) or not token:
            raise ValueError(f"{what} has the token {token!r}: each must be str and not empty, as a reader sees it")
        encoded(token, what)
    return tokens


def checked_models(says: Next, k: int, where: str) -> dict[str, list[tuple[str, float]]]:
    """name -> its k most likely tokens with their probabilities; a list alone has the name ''."""
    if not isinstance(says, Mapping):
        says = {"": says}
    if not says:
        raise ValueError(f"{where} names no model: give [(token, probability), ...] or {{name: [...]}}")
    return {str(name): likeliest(pairs, k, f"{where}, {name}" if name else where) for name, pairs in says.items()}


def likeliest(pairs: Iterable[tuple[str, float]], k: int, where: str) -> list[tuple[str, float]]:
    """The k most likely tokens, the likeliest first."""
    try:
        pairs = [(token, float(p)) for token, p in pairs]
    except (TypeError, ValueError):
        raise ValueError(f"{where}: must be a list of (token, probability)") from None
    if not pairs:
        raise ValueError(f"{where}: the list is empty, give at least one (token, probability)")
    tokens = checked_tokens((token for token, _ in pairs), where)
    if len(set(tokens)) < len(tokens):
        twice = next(token for i, token in enumerate(tokens) if token in tokens[:i])
        raise ValueError(f"{where}: the token {twice!r} is given twice, so add its probabilities up first")
    for token, p in pairs:
        if not 0 <= p <= 1:
            raise ValueError(f"{where}: the probability of {token!r} is {p}, but must lie in 0..1")
    total = math.fsum(p for _, p in pairs)
    if total > 1.001:
        raise ValueError(f"{where}: the probabilities add up to {total:.4f}, more than 1")
    return sorted(pairs, key=lambda pair: -pair[1])[:k]


def rest(says: list[tuple[str, float]]) -> float:
    """What the shown tokens leave to all others; 0 where it is no more than the rounding of float32."""
    left = 1 - math.fsum(p for _, p in says)
    return left if left > 1e-6 else 0.0


def offered(models: Mapping[str, list[tuple[str, float]]]) -> list[str]:
    """The tokens that have a bar, each once."""
    return list(dict.fromkeys(token for says in models.values() for token, _ in says))


def written(p: float) -> str:
    """A probability with three digits, and a small one not as zero."""
    return "< 0.001" if 0 < p < 0.0005 else f"{p:.3f}"


def brief(p: float) -> float:
    """Seven digits, as many as float32 has."""
    return float(f"{p:.7g}")
