"""What a lecture claims, as numbers with bounds.

``claim`` notes a claim and stops the notebook if it does not hold; ``claims()`` shows the table at the end and,
where the environment variable ``COURSEKIT_CLAIMS`` names a file, writes it there.
"""

import html
import json
import math
import os
from pathlib import Path
from typing import Any

KINDS = {
    "measured": "measured now",
    "recorded": "recorded with the shipped weights",
    "check": "checks: true by algebra, whatever was learned",
}
_claims: dict[str, dict[str, Any]] = {}
_stopped: dict[str, str] = {}  # runs that were ended by hand


class ClaimFailed(AssertionError):
    """A claim of the lecture does not hold."""

    def _render_traceback_(self) -> list[str]:
        return [f"ClaimFailed: {self}"]  # in a notebook the sentence says it all


def claim(
    name: str, value: float, *, at_least: float | None = None, at_most: float | None = None, kind: str = "measured"
) -> None:
    """State that ``value`` lies within a bound, and check it.

    Args:
        name: what is claimed; saying it again replaces it (a cell may be run twice).
        value: the number measured.
        at_least, at_most: the bound; exactly one of the two.
        kind: ``"measured"`` in this notebook, ``"recorded"`` when the number is read from the metrics of shipped
            weights, or ``"check"`` when it has to hold by algebra, so that only a bug could break it.

    Raises:
        ClaimFailed: the value is outside the bound, or not a number.
    """
    if (at_least is None) == (at_most is None):
        raise ValueError(f"claim {name!r} needs exactly one of at_least and at_most")
    if kind not in KINDS:
        raise ValueError(f"claim {name!r} is of kind {kind!r}: must be one of {', '.join(KINDS)}")
    value = float(value.detach() if hasattr(value, "detach") else value)
    bound = {"at_least": at_least} if at_most is None else {"at_most": at_most}
    ok = not math.isnan(value) and (value >= at_least if at_most is None else value <= at_most)
    _claims[name] = {"name": name, "value": value, **bound, "ok": ok, "kind": kind}
    save()
    known = "".join(f"; {text}: run its cell again to the end" for text in _stopped.values())
    if not ok:
        word, limit = ("at least", at_least) if at_most is None else ("at most", at_most)
        raise ClaimFailed(f"{name}: measured {value:.4g}, claimed {word} {limit:g}{known}")
    print(f"✓ {name}: {value:.4g}{known}")


def note_stopped(run: str, text: str | None) -> None:
    """Remember that a run was ended by hand, as ``text`` says it, or with None that it was not."""
    _stopped.pop(run, None)
    if text is not None:
        _stopped[run] = text


NONE = "No claim has been made: the cells above have not run, or the first of them stopped with an error."


def bound_of(claim: dict[str, Any]) -> str:
    """≥ or ≤ and the number."""
    return f"≥ {claim['at_least']:g}" if "at_least" in claim else f"≤ {claim['at_most']:g}"


class Claims:
    """The table of the claims so far."""

    def __init__(self, rows: list[dict[str, Any]]):
        self.rows = rows

    def _repr_html_(self) -> str:
        def row(c: dict[str, Any]) -> str:
            mark = "✓ holds" if c["ok"] else "✗ fails"
            name = f"<td style='text-align:left'>{html.escape(c['name'])}</td>"
            return f"<tr>{name}<td>{c['value']:.4g}</td><td>{bound_of(c)}</td><td>{mark}</td></tr>"

        head = "<tr><th style='text-align:left'>{}</th><th>value</th><th>bound</th><th>verdict</th></tr>"
        body = ""
        for kind, title in KINDS.items():
            if found := [c for c in self.rows if c.get("kind", "measured") == kind]:
                body += f"<tbody>{head.format(title)}{''.join(map(row, found))}</tbody>"
        return f"<table style='font-size:15px'>{body}</table>" if body else f"<p>{NONE}</p>"

    def __repr__(self) -> str:
        rows = [f"{'ok  ' if c['ok'] else 'FAIL'} {c['value']:10.4g}  {c['name']}" for c in self.rows]
        return "\n".join(rows) or NONE


def claims() -> Claims:
    """All claims made in this notebook, as a table."""
    save()
    return Claims(list(_claims.values()))


def save() -> None:
    if path := os.environ.get("COURSEKIT_CLAIMS"):
        Path(path).write_text(json.dumps(list(_claims.values()), indent=2) + "\n", encoding="utf-8")
