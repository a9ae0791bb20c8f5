"""What a check looks like in a notebook: a card with a row for each aspect, and a bar of all the exercise's parts.

No mark depends on this module. Styles are inline, since an untrusted notebook drops the others. Letters have the
colour of the notebook's theme, or are white on a badge; badges and borders are dark enough for that (4.6 : 1) and
light enough to stand out from a dark page (3.3 : 1). A symbol and a number say again what each colour says.
"""

import html
import sys
from collections.abc import Sequence
from typing import Any

from coursekit.grading.parts import IDLE, SAME, UNANSWERED, Part, Row

GREEN, AMBER, RED, GREY = ("✓", "#18803c"), ("○", "#a06a00"), ("✗", "#d1303a"), ("–", "#707070")
PARTLY = (RED[0], AMBER[1])  # wrong, as the text below the card says it, but not in all


def card(part: Part, rows: Sequence[Row], where: Sequence[str] = ()) -> str:
    """What a check found.

    Args:
        where: lines on where the student's code stopped.
    """
    kinds = [kind_of(row) for row in rows]
    whole = GREEN if part.earned == part.points else AMBER if RED not in kinds else PARTLY if GREEN in kinds else RED
    lines, opened = "", False
    for row, kind in zip(rows, kinds):
        words = f": {html.escape(row.words)}" if row.words else ""
        details = preformatted(row.details)
        if row.details and opened:
            details = f"<details><summary>What was tried</summary>{details}</details>"
        opened |= bool(row.details)
        name, points = html.escape(row.verdict.aspect), f"{row.verdict.points} of {row.verdict.of}"
        lines += line(kind, f"{badge(kind, points)} <b>{name}</b>{words}{details}")
    name = f'<b style="font-size:115%">{whole[0]} {html.escape(part.name)}</b>'
    title = f"<div>{name} &nbsp;{part.earned} of {part.points} points</div>"
    parts, written = exercise_of(part)
    advice = f"<div><b>Next:</b> {next_step(part, rows, parts, written)}</div>"
    return frame(whole[1], title + lines + preformatted(where) + advice + bar(parts, written, part))


def overview(parts: Sequence[Part], written: dict[str, int]) -> str:
    """The points of all parts so far, by their names."""
    lines = ""
    for number, part in enumerate(parts, 1):
        kind = GREY if part.earned is None else GREEN if part.earned == part.points else PARTLY if part.earned else RED
        points = "not checked yet" if part.earned is None else f"{part.earned} of {part.points}"
        if not part.answered:
            kind, points = AMBER, "not answered yet"
        lines += line(kind, f"{number} · <b>{html.escape(part.name)}</b> {badge(kind, points)}")
    for number, (name, points) in enumerate(written.items(), len(parts) + 1):
        lines += line(GREY, f"{number} · <b>{html.escape(name)}</b> {points} points: a person reads it")
    return frame(GREY[1], lines + bar(parts, written))


def frame(color: str, content: str) -> str:
    style = f"border:1px solid {GREY[1]};border-left:6px solid {color};border-radius:6px;padding:8px 14px"
    return f'<div style="{style};margin:4px 0;line-height:1.5">{content}</div>'


def line(kind: tuple[str, str], content: str) -> str:
    return f'<div style="border-left:3px solid {kind[1]};padding:1px 0 1px 10px;margin:8px 0">{content}</div>'


def badge(kind: tuple[str, str], text: str) -> str:
    style = f"background-color:{kind[1]};color:#ffffff;border-radius:4px;padding:1px 8px"
    return f'<span style="{style};font-weight:bold;white-space:nowrap">{kind[0]} {text}</span>'


def preformatted(lines: Sequence[str]) -> str:
    style = "font-family:monospace;font-size:12px;margin:4px 0"
    style += ";white-space:pre-wrap;overflow-wrap:anywhere;word-break:normal"  # JupyterLab breaks lines inside of words
    return f'<pre style="{style}">{html.escape(chr(10).join(lines))}</pre>' if lines else ""


def kind_of(row: Row) -> tuple[str, str]:
    """Amber is what nobody has to look at yet: it is not answered, or it waits for another row."""
    if row.verdict.points:
        return GREEN
    waits = row.words in (SAME, UNANSWERED) or row.words.startswith(IDLE.partition("{")[0])
    return AMBER if waits else RED


def next_step(part: Part, rows: Sequence[Row], parts: Sequence[Part], written: dict[str, int]) -> str:
    """What to look at next, as HTML."""
    if wrong := [row.verdict for row in rows if kind_of(row) == RED]:
        return f"<b>{html.escape(wrong[0].aspect)}</b>. If you are stuck, unfold the hint above this check."
    if part.earned != part.points:
        return "write your answer in its cell, run the cell, then this check. A hint is folded above this check."
    for number, one in enumerate(parts, 1):
        if one.earned != one.points:
            return f"part {number}, <b>{html.escape(one.name)}</b>."
    if written:
        return f"the written question, <b>{html.escape(next(iter(written)))}</b>, which a person reads."
    return "nothing, all parts are right."


def bar(parts: Sequence[Part], written: dict[str, int], current: Part | None = None) -> str:
    """The points of all parts by their latest checks: a part is as wide as it counts and as full as it is right."""
    segments = ""
    for number, part in enumerate(parts, 1):
        share, weight = 100 * (part.earned or 0) / part.points, "bold" if part is current else "normal"
        full = f'<div style="width:{share:.0f}%;height:9px;background-color:{GREEN[1]}"></div>'
        earned = "–" if part.earned is None else part.earned
        segments += (
            f'<div style="flex:{part.points} 1 0%;min-width:34px" title="{html.escape(part.name)}">'
            f'<div style="border:1px solid {GREY[1]};border-radius:3px">{full}</div>'
            f'<div style="font-size:11px;line-height:1.3;text-align:center;font-weight:{weight}">'
            f"part {number}<br>{earned}/{part.points}</div></div>"
        )
    reached, of = sum(part.earned or 0 for part in parts), sum(part.points for part in parts)
    more = f", and {sum(written.values())} for a person to give" if written else ""
    return (
        f'<div style="display:flex;flex-wrap:wrap;gap:3px;margin-top:10px">{segments}</div>'
        f"<div>So far in this session: <b>{reached} of {of} points</b>{more}.</div>"
    )


def exercise_of(part: Part) -> tuple[Sequence[Part], dict[str, int]]:
    """All parts of the exercise that a part is of, and the points of what a person reads there."""
    for name, module in list(sys.modules.items()):
        parts: Any = getattr(module, "PARTS", ()) if name.startswith("coursekit.grading.checks.") else ()
        if any(one is part for one in parts):
            return parts, module.WRITTEN
    return (part,), {}
