"""What several models answer to one request, side by side, in a conversation."""

import html
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from matplotlib.colors import to_hex

from coursekit.text.chat import END_OF_TURN
from coursekit.viz.alignment import ink_on
from coursekit.viz.next_token import brief
from coursekit.viz.pictures import VIRIDIS
from coursekit.viz.tokens import as_read, encoded
from coursekit.viz.widget import ROOM, Widget

# A conversation: what the user said, what the model answered, and so on; the last turn is the user's.
Turns = tuple[str, ...]


class Chat(Widget):
    """Ask several models the same, about a text, and go on: their answers side by side.

    Each token is shaded by its probability, which it tells when one points at it. The token that ends a turn is shown;
    an answer without it is marked as one that has not stopped. Each model goes on from its own answers. Without a
    kernel there are the conversations of the examples; with ``live`` anything can be asked.

    Args:
        answer: the name of a model and the turns so far, ``(user, assistant, user, ...)``, -> the tokens of its answer
            as text, each with its probability, ``[(token, probability), ...]``. The last one is ``"<|end|>"`` if the
            answer ended. The first turn is the text, a line feed and the first request.
        models: the names that ``answer`` is asked for.
        examples: conversations that are computed at once, each ``(text, request, request, ...)``. The first one is
            shown; the text may be empty.
        title: what stands above.
        verdict: turns, an answer without its end, and whether it ended -> what is said of it; empty where nothing is.
    """

    module = "chat"

    def __init__(
        self,
        answer: Callable[[str, Turns], Iterable[tuple[str, float]]],
        models: Sequence[str] = ("base", "instructed", "preferred"),
        examples: Iterable[Sequence[str]] = (),
        title: str = "Ask the models",
        verdict: Callable[[Turns, str, bool], str] | None = None,
    ):
        if isinstance(models, str) or not models or len(set(models)) < len(models):
            raise ValueError(f"models={models!r}: must be a list of different names, at least one")
        self.answer, self.models, self.verdict = answer, [str(name) for name in models], verdict
        examples = [checked_conversation(example, f"example {i}") for i, example in enumerate(examples)]
        if not examples:
            raise ValueError("examples is empty: give at least one (text, request), which is shown first")
        self.known = known = Answers(self)
        for text, requests in examples:
            for m in range(len(self.models)):
                for n in range(len(requests)):
                    known.ask(m, text, requests[: n + 1])
        self.data = {
            "title": title,
            "models": self.models,
            "examples": [known.conversation(*example) for example in examples],
        }
        if (size := self.size()) > ROOM:
            raise ValueError(f"the examples take {size:,} bytes, more than {ROOM:,}: give fewer or shorter ones")

    def static_html(self) -> str:
        first = self.data["examples"][0]
        line = '<p style="white-space:pre-wrap;overflow-wrap:anywhere">'
        parts = [f"<p><b>{html.escape(self.data['title'])}</b></p>"]
        if first["text"]:
            parts.append(f"{line}<i>{html.escape(first['text'])}</i></p>")
        for request, answers in zip(first["requests"], zip(*first["answers"])):
            parts.append(f"{line}<b>You:</b> {html.escape(request)}</p>")
            for name, said in zip(self.models, answers):
                tokens = "".join(static_token(*token) for token in said["tokens"])
                end = "" if said["ended"] else " … <b>(has not stopped)</b>"
                told = f" – {html.escape(said['verdict'])}" if said["verdict"] else ""
                parts.append(f"{line}<b>{html.escape(name)}:</b> {tokens}{end}{told}</p>")
        scale = "".join(static_token(f" {10 * i} % ", i / 10, f"{10 * i} %") for i in range(0, 11, 2))
        return "".join(parts) + f"<p>Probability of each token: {scale}</p>"

    def live(self):
        """With fields for typing: each request goes to every model that is shown, and what it is asked goes on.

        A ``ValueError`` of ``answer`` is shown with its message, in place of the answer.
        """
        known = self.known.copy()  # what is answered belongs to this view

        def answer(message: dict[str, Any]) -> dict[str, Any]:
            text, requests = str(message["text"]), tuple(map(str, message["requests"]))
            try:
                known.ask(int(message["model"]), *checked_conversation((text, *requests), "the conversation"))
            except ValueError as refused:
                known.refuse(int(message["model"]), text, requests, str(refused))
            return {**self.data, "conversation": known.conversation(text, requests), "asked": message}

        return super().live(answer)


class Answers:
    """What the models of a ``Chat`` have answered, so that each conversation can go on from it."""

    def __init__(self, chat: Chat):
        self.chat = chat
        self.said: dict[tuple[int, str, tuple[str, ...]], str] = {}
        self.shown: dict[tuple[int, str, tuple[str, ...]], dict[str, Any]] = {}

    def copy(self) -> "Answers":
        other = Answers(self.chat)
        other.said, other.shown = dict(self.said), dict(self.shown)
        return other

    def ask(self, model: int, text: str, requests: tuple[str, ...]) -> None:
        """Let a model answer the last request; it has answered those before."""
        name, turns = self.chat.models[model], [f"{text}\n{requests[0]}" if text else requests[0]]
        for n, request in enumerate(requests[1:], start=1):
            turns += [self.said[model, text, requests[:n]], request]
        tokens = checked_answer(self.chat.answer(name, tuple(turns)), name)
        ended = tokens[-1][0] == END_OF_TURN
        said = "".join(token for token, _ in (tokens[:-1] if ended else tokens))
        verdict = self.chat.verdict(tuple(turns), said, ended) if self.chat.verdict else ""
        self.said[model, text, requests] = said
        self.shown[model, text, requests] = {
            "tokens": [[as_read(token), brief(p), in_percent(p)] for token, p in tokens],
            "ended": ended,
            "verdict": str(verdict),
        }

    def refuse(self, model: int, text: str, requests: tuple[str, ...], error: str) -> None:
        self.shown[model, text, requests] = {"tokens": [], "ended": True, "verdict": "", "error": error}

    def conversation(self, text: str, requests: tuple[str, ...]) -> dict[str, Any]:
        """As chat.js reads it: for each model its answers, None where it was not asked."""
        of = [
            [self.shown.get((m, text, requests[: n + 1])) for n in range(len(requests))]
            for m in range(len(self.chat.models))
        ]
        return {"text": text, "requests": list(requests), "answers": of}


def checked_conversation(parts: Sequence[str], what: str) -> tuple[str, tuple[str, ...]]:
    """A text and at least one request."""
    if isinstance(parts, str) or len(parts) < 2 or not all(isinstance(part, str) for part in parts):
        raise ValueError(f"{what} is {parts!r}: must be (text, request, ...), each a str")
    for part in parts:
        encoded(part, what)
    text, *requests = parts
    if not all(request.strip() for request in requests):
        raise ValueError(f"{what} has an empty request: write what the models should do")
    return text, tuple(requests)


def checked_answer(tokens: Iterable[tuple[str, float]], name: str) -> list[tuple[str, float]]:
    """At least one token, each a text with its probability."""
    try:
        tokens = [(token, float(p)) for token, p in tokens]
    except (TypeError, ValueError):
        raise ValueError(f"the answer of {name!r}: must be a list of (token, probability)") from None
    if not tokens:
        raise ValueError(f"the answer of {name!r} is empty: give at least its end, ({END_OF_TURN!r}, probability)")
    for token, p in tokens:
        if not isinstance(token, str) or not token:
            raise ValueError(f"the answer of {name!r} has the token {token!r}: each must be str and not empty")
        encoded(token, f"the answer of {name!r}")
        if not 0 <= p <= 1:
            raise ValueError(f"the answer of {name!r}: the probability of {token!r} is {p}, but must lie in 0..1")
    return tokens


def in_percent(p: float) -> str:
    """A probability as it is said, and neither a small one as nothing nor a large one as certain."""
    if 0 < p < 0.0005:
        return "< 0.1 %"
    return "> 99.9 %" if 0.9995 <= p < 1 else f"{100 * p:.1f} %"


def static_token(shown: str, p: float, percent: str) -> str:
    fill = to_hex(VIRIDIS(p))
    return (
        f'<bdi title="{percent}" style="background:{fill};color:{ink_on(fill)};border-radius:3px">'
        f"{html.escape(shown)}</bdi>"
    )
