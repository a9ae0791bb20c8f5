"""What temperature, top-k and top-p do to the next token of a text that a model wrote."""

import html
import json
import operator
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from coursekit.viz.next_token import checked_k, checked_tokens, written
from coursekit.viz.pictures import cell, table_html
from coursekit.viz.tokens import encoded, visible
from coursekit.viz.widget import ROOM, Widget, pack, to_numpy

# where the sliders can stand; the last p cuts nothing
TEMPERATURES = [i / 10 for i in range(21)]
PS = [*(i / 20 for i in range(1, 20)), 0.99, 1.0]
KS = (*range(1, 11), 12, 15, 20, 25, 30, 40, 50, 75, 100, 150, 200, 300, 400, 500)
MOST_KEPT = KS[-1]
SECONDS = 0.2  # how long is written before the page shows it

# of the static table: what stands above, temperature, k, p
SETTINGS = [
    ("probability", 1.0, None, None),
    ("temperature 0.5", 0.5, None, None),
    ("temperature 2", 2.0, None, None),
    ("top-k, k = 5", 1.0, 5, None),
    ("top-p, p = 0.9", 1.0, None, 0.9),
]

# A written token: its id, and the logits (V,) that it was drawn from.
Step = tuple[int, Any]


class Generate(Widget):
    """See what temperature, top-k and top-p make of the probabilities at each place of a written text.

    For each of the likeliest tokens there are two bars, of its probability before, ``softmax(logits)``, and after:
    ``logits / temperature`` first, then top-k, then top-p, as ``coursekit.nn.sampling.next_token`` does it; at
    temperature 0 only the likeliest token is left. Entropies are in nats. Tokens can be drawn, again and again, and
    their counts stand beside the probabilities. Logits are held as float32.

    Of each place the ``keep`` likeliest tokens are held with their logits. The others are held as sums, one for each
    place of the sliders, so that all probabilities, sums and entropies are exact.

    Args:
        tokens: the tokens of the prompt; it may be empty.
        steps: for each written token ``(id, logits)``, in the order of the text: ``logits`` an array or tensor (V,) of
            all tokens, as the model gives them, before any temperature.
        vocabulary: V tokens as a reader sees them, by their ids; several may look the same.
        title: what stands above.
        k: how many tokens have bars of their own.
        keep: how many tokens of each place can be told apart, and how far the slider of top-k goes.
    """

    module = "generate"

    def __init__(
        self,
        tokens: Sequence[str],
        steps: Iterable[Step],
        vocabulary: Sequence[str],
        title: str = "How the next token is chosen",
        k: int = 12,
        keep: int = 300,
    ):
        self.k, self.keep = checked_k(k), checked_keep(keep, k)
        self.vocabulary = checked_vocabulary(vocabulary)
        steps = [checked_step(step, i, self.vocabulary) for i, step in enumerate(steps)]
        if not steps:
            raise ValueError("steps is empty: give (id, logits) of at least one written token")
        self.first = steps[0][1]
        places = [stored_place(token, logits, keep) for token, logits in steps]
        self.data = {
            "title": title,
            "k": k,
            "temperatures": TEMPERATURES,
            "ps": PS,
            "ks": [each for each in KS if each <= min(keep, len(self.vocabulary))],
            "total": len(self.vocabulary),
            "text": self._text(checked_tokens(tokens, "tokens"), places),
        }
        if (size := self.size()) > ROOM:
            raise ValueError(f"the places take {size:,} bytes, more than {ROOM:,}: give fewer steps or a smaller keep")

    def _text(self, tokens: Iterable[str], places: list[dict[str, Any]]) -> dict[str, Any]:
        """A text as generate.js reads it: the words that its places name by their numbers, once."""
        ids = list(dict.fromkeys(i for place in places for i in (*place["ids"], place["token"])))
        number = {i: n for n, i in enumerate(ids)}
        return {
            "prompt": [visible(token) for token in tokens],
            "words": [visible(self.vocabulary[i]) for i in ids],
            "places": [
                {**place, "ids": [number[i] for i in place["ids"]], "token": number[place["token"]]} for place in places
            ],
        }

    def static_html(self) -> str:
        text = self.data["text"]
        # each token keeps its direction to itself, and so its place in the row
        prompt = [f"<bdi>{html.escape(token)}</bdi>" for token in text["prompt"]]
        added = [f"<b><bdi>{html.escape(text['words'][place['token']])}</bdi></b>" for place in text["places"]]
        said = f"<b>{html.escape(self.data['title'])}</b>: {' '.join([*prompt, *added])}"
        shares = [after_cuts(self.first, *setting) for _, *setting in SETTINGS]
        order = np.argsort(self.first, kind="stable")[::-1][: self.k]
        rows = [[visible(self.vocabulary[i]), *(share_cell(p[i], p[i]) for p in shares)] for i in order]
        if len(self.first) > len(order):
            left = [max(0.0, 1 - p[order].sum()) for p in shares]
            rows.append(["all others", *(share_cell(p if p > 1e-12 else 0.0, p) for p in left)])
        rows.append(["tokens left", *(f"{np.count_nonzero(p):,}" for p in shares)])
        rows.append(["entropy (nats)", *(f"{entropy_in_nats(p):.3f}" for p in shares)])
        caption = f"Place 1, the likeliest of {len(self.first):,} tokens: what each setting alone does to them"
        head = ["next token", *(name for name, *_ in SETTINGS)]
        return f'<p style="overflow-wrap:anywhere">{said}</p>{table_html(caption, head, rows)}'

    def live(self, fn: Callable[[str, float, int | None, float | None], Iterable[Step]]):
        """With a field for typing: the text and the three settings go to ``fn``, and what it writes is shown at once.

        The page asks for more as long as there is more, so that it can be stopped at any moment.

        Args:
            fn: the text, temperature (0 or more), k and p (``None`` where nothing is cut) -> ``(id, logits)`` of each
                written token, as in ``steps``; a generator shows each token as it is written. A ``ValueError`` is
                shown with its message.
        """
        shown_text = self.data["text"]  # what is written belongs to this view, and to this fn
        steps: Iterator[Step] = iter(())
        prompt: list[str] = []
        places: list[dict[str, Any]] = []

        def start(message: dict[str, Any]) -> None:
            nonlocal steps, prompt, places
            close_steps(steps)
            steps, places = iter(()), []
            source, k, p = str(message["source"]), message["k"], message["p"]
            encoded(source, "the text")
            prompt = re.findall(r"\s?\S+|\s", source)
            k, p = None if k is None else int(k), None if p is None else float(p)
            steps = iter(fn(source, float(message["temperature"]), k, p))

        def write() -> bool:
            """Whether the text has ended."""
            nonlocal shown_text
            size, end = len(json.dumps(places)), time.monotonic() + SECONDS
            for step in steps:
                new = stored_place(*checked_step(step, len(places), self.vocabulary), self.keep)
                size += len(json.dumps(new))
                if size > ROOM:
                    raise ValueError(f"stopped: the places take more than {ROOM:,} bytes, so write a shorter text")
                places.append(new)
                shown_text = self._text(prompt, places)
                if time.monotonic() >= end:
                    return False
            if not places:
                raise ValueError("nothing was written: give a text that can be gone on with")
            return True

        def answer(message: dict[str, Any]) -> dict[str, Any]:
            error, done = "", True
            try:
                if "source" in message:
                    start(message)
                if not message.get("stop"):
                    done = write()
            except ValueError as refused:
                error = str(refused)
            if done:
                close_steps(steps)
            return {
                **self.data,
                "text": shown_text,
                "written": len(places),
                "turn": int(message["turn"]),
                "done": done,
                "error": error,
            }

        return super().live(answer)


def close_steps(steps: Iterator[Step]) -> None:
    """Let a generator end, if it is one."""
    if hasattr(steps, "close"):
        steps.close()


def checked_keep(keep: int, k: int) -> int:
    """How many tokens are held one by one."""
    if not isinstance(keep, int) or not k <= keep <= MOST_KEPT:
        raise ValueError(f"keep={keep!r}: must be a whole number, from k={k} to {MOST_KEPT}")
    return keep


def checked_vocabulary(vocabulary: Sequence[str]) -> list[str]:
    """Two tokens or more."""
    vocabulary = checked_tokens(vocabulary, "vocabulary")
    if len(vocabulary) < 2:
        raise ValueError(f"vocabulary has {len(vocabulary)} tokens: give at least two to choose from")
    return vocabulary


def checked_step(step: Step, i: int, vocabulary: list[str]) -> tuple[int, np.ndarray]:
    """The id of a token, and logits (V,) as float32."""
    size = len(vocabulary)
    try:
        token, logits = step
        token, logits = operator.index(token), to_numpy(logits).astype(np.float32)
    except (TypeError, ValueError):
        raise ValueError(f"step {i}: must be (id, logits), a whole number and an array of numbers") from None
    if not 0 <= token < size:
        raise ValueError(f"step {i} has the id {token}: must lie in 0..{size - 1}, the vocabulary's")
    if logits.shape != (size,):
        raise ValueError(f"step {i}: logits have shape {logits.shape}, but {size} tokens need ({size},)")
    if not np.isfinite(logits).all():
        worst = int(np.argmin(np.isfinite(logits)))
        raise ValueError(
            f"step {i}: the logit of {vocabulary[worst]!r} is {logits[worst]}, but must be finite: give the model's own"
        )
    return token, logits


def stored_place(token: int, logits: np.ndarray, keep: int) -> dict[str, Any]:
    """One place as generate.js reads it: the likeliest tokens one by one, the others as sums.

    ``others[t, j]``, for each temperature above 0 and each p, is (how many of the others the nucleus takes in,
    ``ln sum w`` of them, ``sum w x / sum w``), with ``x = (logit - largest) / temperature`` and ``w = exp(x)``. Top-k
    leaves none of them.
    """
    # the likeliest first; of equal ones the later, as keep_top_p takes them
    order = np.argsort(logits, kind="stable")[::-1]
    ordered = logits[order].astype(float)
    n = int(np.count_nonzero(ordered >= ordered[min(keep, len(ordered)) - 1]))  # equal ones are not parted: top-k
    rank = int(np.flatnonzero(order == token)[0])
    packed = {"ids": order[:n].tolist(), "logits": pack(ordered[:n]), "others": None}
    packed |= {"token": token, "rank": rank, "logit": float(ordered[rank])}
    if n == len(ordered):
        return packed
    others = np.zeros((len(TEMPERATURES) - 1, len(PS), 3))
    for t, temperature in enumerate(TEMPERATURES[1:]):
        x = (ordered - ordered[0]) / temperature
        w = np.exp(x)
        from_least = (w / w.sum())[::-1].cumsum()
        sums, means = w[n:].cumsum(), (w * x)[n:].cumsum()
        for j, p in enumerate(PS):
            out = np.searchsorted(from_least, 1 - p, side="right") if p < 1 else 0
            if (count := len(ordered) - n - int(out)) > 0:
                total = sums[count - 1]
                others[t, j] = (count, np.log(total), means[count - 1] / total) if total > 0 else (count, -np.inf, 0)
    return packed | {"others": pack(others)}


def after_cuts(
    logits: np.ndarray, temperature: float = 1.0, k: int | None = None, p: float | None = None
) -> np.ndarray:
    """Probabilities (V,) of what is drawn: temperature, then top-k, then top-p. 0 for what is cut."""
    logits = np.asarray(logits, dtype=float)
    if temperature == 0:
        return (np.arange(len(logits)) == logits.argmax()).astype(float)
    share = np.exp((logits - logits.max()) / temperature)
    if k is not None:
        share[logits < np.sort(logits)[-min(k, len(logits))]] = 0
    share /= share.sum()
    if p is not None:
        order = np.argsort(share, kind="stable")
        out = share[order].cumsum() <= 1 - p
        out[-1] = False
        share[order[out]] = 0
    return share / share.sum()


def entropy_in_nats(share: np.ndarray) -> float:
    """In nats."""
    share = share[share > 0]
    return float(-(share * np.log(share)).sum()) + 0.0


def share_cell(p: float, share: float) -> str:
    """A cell with a probability and its colour; what is cut has none."""
    return cell(html.escape(written(float(p))), float(share)) if p > 0 else "–"
