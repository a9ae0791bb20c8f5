"""Choose the better of two answers, a dozen times, and see what a reward model makes of it."""

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from random import Random

import numpy as np

from coursekit.viz.pictures import Cell, table_html
from coursekit.viz.tokens import encoded
from coursekit.viz.widget import ROOM, Widget

EMPTY = Cell(  # a bar without a weight: its frame, and 0 in the middle
    '<td><div style="width:120px;height:12px;border:1px solid #888">'
    '<div style="width:50%;height:100%;border-right:2px solid currentColor"></div></div></td>'
)

# An answer: its text, and the value of each feature.
Answer = tuple[str, Sequence[float]]


class Prefer(Widget):
    """Choose the better of two answers, and see what a small reward model believes that you like.

    The model is linear in a few features of an answer, ``r(y) = w · f(y)``, and the probability that A is chosen is
    ``sigma(r(A) - r(B))`` (Bradley and Terry). After each choice the page finds the ``w`` that minimises
    ``- sum ln sigma(w · (f(chosen) - f(rejected)) / s) + ridge / 2 · |w|²``. The scale ``s`` of a feature is the root
    mean square of its differences in all pairs, so that a weight is in units of a typical difference, and weights can
    be compared. Its standard error is the root of the diagonal of the inverse second derivatives: ``1 / sqrt(ridge)``
    before anything was chosen. Each prediction is made before its choice.

    Args:
        pairs: ``(request, answer, answer)`` each, an answer being ``(text, values)`` with a number for each feature.
        features: name -> what it is to like more of it and to like less, ``{"words": ("long answers", "short ones")}``.
        title: what stands above.
        ridge: the penalty.
        seed: of the order in which the two answers of a pair stand.
    """

    module = "prefer"

    def __init__(
        self,
        pairs: Iterable[tuple[str, Answer, Answer]],
        features: Mapping[str, tuple[str, str]],
        title: str = "Which answer is better?",
        ridge: float = 1.0,
        seed: int = 0,
    ):
        if not 0 < ridge < math.inf:
            raise ValueError(f"ridge={ridge!r}: must be above 0, else a first choice would make weights infinite")
        names, likes = checked_features(features)
        rng, found = Random(f"pairs {seed}"), []
        for i, pair in enumerate(pairs):
            request, *answers = checked_pair(pair, i, names)
            found.append((request, *(answers[::-1] if rng.random() < 0.5 else answers)))
        if not found:
            raise ValueError("pairs is empty: give at least one (request, answer, answer)")
        differences = np.array([np.subtract(a, b) for _, (_, a), (_, b) in found])  # (pairs, features)
        scale = np.sqrt((differences**2).mean(axis=0))
        if (scale == 0).any():
            raise ValueError(
                f"the feature {names[int(scale.argmin())]!r} is the same in both answers of every pair: leave it out"
            )
        self.data = {
            "title": title,
            "features": [{"name": name, "more": more, "less": less} for name, (more, less) in zip(names, likes)],
            "ridge": float(ridge),
            "pairs": [
                {"request": request, "answers": [a[0], b[0]], "x": x}
                for (request, a, b), x in zip(found, (differences / scale).tolist())
            ],
        }
        if (size := self.size()) > ROOM:
            raise ValueError(f"the pairs take {size:,} bytes, more than {ROOM:,}: give fewer or shorter ones")

    def static_html(self) -> str:
        n, first = len(self.data["pairs"]), self.data["pairs"][0]
        error = f"0.00\u00a0±\u00a0{self.data['ridge'] ** -0.5:.2f}"
        line = '<p style="white-space:pre-wrap;overflow-wrap:anywhere">'
        parts = [f"<p><b>{html.escape(self.data['title'])}</b></p>", f"{line}{html.escape(first['request'])}</p>"]
        parts += [f"{line}<b>{name}:</b> {html.escape(text)}</p>" for name, text in zip("AB", first["answers"])]
        parts.append(
            f"<p>The first of {n} pairs. Where scripts run, you choose the better answer of each, "
            "and a reward model shows what it believes that you like, and guesses your next choice. "
            "Before the first one it knows nothing:</p>"
        )
        rows = [[one["name"], error, f"← {one['less']}", EMPTY, f"{one['more']} →"] for one in self.data["features"]]
        head = ["", "weight", "below 0", "", "above 0"]
        return "".join(parts) + table_html("What it believes that you like", head, rows)


def checked_features(features: Mapping[str, tuple[str, str]]) -> tuple[list[str], list[tuple[str, str]]]:
    """Names, and what it is to like more and less of each."""
    if not isinstance(features, Mapping) or not features:
        raise ValueError("features must name at least one: {name: (to like more of it, to like less of it)}")
    for name, said in features.items():
        if isinstance(said, str) or len(said) != 2 or not all(isinstance(text, str) for text in (name, *said)):
            raise ValueError(f"the feature {name!r} has {said!r}: must be (to like more of it, to like less of it)")
        for text in (name, *said):
            encoded(text, f"the feature {name!r}")
    return list(features), [(more, less) for more, less in features.values()]


def checked_pair(pair: tuple[str, Answer, Answer], i: int, names: list[str]) -> tuple[str, Answer, Answer]:
    """A request and two answers, each with a number for each feature."""
    try:
        request, *answers = pair
        answers = [(text, np.asarray(values, dtype=float)) for text, values in answers]
    except (TypeError, ValueError):
        answers = []
    if len(answers) != 2:
        raise ValueError(f"pair {i}: must be (request, answer, answer), an answer being (text, values)")
    for text in (request, *(text for text, _ in answers)):
        if not isinstance(text, str):
            raise ValueError(f"pair {i} has {text!r}: request and answers must be str")
        encoded(text, f"pair {i}")
    for text, values in answers:
        if values.shape != (len(names),) or not np.isfinite(values).all():
            raise ValueError(
                f"pair {i}: the values of {text[:40]!r} are {values.tolist()}, but must be a finite number for each of "
                f"{', '.join(map(repr, names))}"
            )
    return (request, *answers)
