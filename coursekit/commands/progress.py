"""How far a student has come: the points that the checks left in the saved notebooks of the exercises.

It believes these outputs, which anybody can edit: so it is for the student alone. A mark never comes from here.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from coursekit.commands.lectures import LectureError

NOTHING = "not begun"
EMPTY = "YOUR ANSWER HERE"  # what nbgrader leaves of a written answer
CHECKED = re.compile(r"^[✓✗] (\w+): (\d+) of \d+ points", re.MULTILINE)


class Part(NamedTuple):
    """A part of an exercise.

    Attributes:
        earned: points by its latest check; of a written answer 0, which is there; None where there is nothing yet.
        written: whether a person reads it.
    """

    name: str
    earned: int | None
    points: int
    written: bool


def read(path: Path) -> list[Part]:
    """The graded parts in the notebook of an exercise, in its order.

    Raises:
        LectureError: it is no notebook.
    """
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        graded = [(cell, cell["metadata"]["nbgrader"]) for cell in cells if "nbgrader" in cell["metadata"]]
        return [part(cell, about["grade_id"], about["points"]) for cell, about in graded if about["grade"]]
    except (ValueError, LookupError, TypeError, AttributeError):
        raise LectureError(f"{path.name} cannot be read: is it whole, and an exercise of this course?") from None


def part(cell: dict[str, Any], name: str, points: int) -> Part:
    """A part by its graded cell: the check, or the answer in words."""
    name = name.removeprefix("check-")
    if cell["cell_type"] == "markdown":
        return Part(name, None if whole(cell["source"]).strip() in ("", EMPTY) else 0, points, True)
    found = [int(earned) for text in said(cell) for one, earned in CHECKED.findall(text) if one == name]
    return Part(name, min(found[-1], points) if found else None, points, False)


def said(cell: dict[str, Any]) -> Iterator[str]:
    """The texts that a cell has printed, shown or raised."""
    for output in cell["outputs"]:
        yield whole(output.get("text") or output.get("data", {}).get("text/plain") or output.get("evalue") or "")


def whole(text: str | list[str]) -> str:
    """A text of a notebook, which may be there line by line."""
    return "".join(text)


def row(parts: list[Part]) -> tuple[str, str, str]:
    """Of an exercise: points so far, what is done, what is to do."""
    code = [part for part in parts if not part.written]
    points = f"{sum(part.earned or 0 for part in code)} of {sum(part.points for part in code)}"
    if all(part.earned is None for part in parts):
        return points, "", NOTHING
    done = [f"✓ {one.name} {one.points}" for one in code if one.earned == one.points]
    to_do = [f"✗ {one.name} {one.earned} of {one.points}" for one in code if one.earned not in (None, one.points)]
    to_do += [f"– {one.name} {one.points}" for one in code if one.earned is None]
    done += [f"… {one.name}, a person reads it" for one in parts if one.written and one.earned is not None]
    to_do += [f"– {one.name} {one.points}, in words" for one in parts if one.written and one.earned is None]
    return points, "\n".join(done), "\n".join(to_do)
