"""The tables of a marked class: one for the marker, and what Moodle and Canvas import.

Much of their text comes from students. Whatever the separator that a spreadsheet reads a table with, no cell
of it begins a formula.
"""

import csv
import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Any

from coursekit.files import write_atomically
from coursekit.grading import identity, printable, shortened
from coursekit.grading.identity import is_joined, plain_stem, words_of
from coursekit.grading.release import CHECK, mark_up

LONGEST = 16_000  # characters, before marks are put in; Excel has room for 32,767 in a cell
LONGEST_FLAG, LONGEST_WORD = 800, 100  # of a cell that holds several
SIGNS = "=+@＝＋－＠﹦﹢﹣﹫-"  # begin a formula
# A German Excel ends a cell at ";", so that one can begin in the middle of ours, or a quotation that swallows the next.
NEEDS_MARK = re.compile(rf"(^[\s\"]*)(?=[{SIGNS}])|([;|]\s*)(?=[\"{SIGNS}]|$)")
MOODLE = ["Identifier", "Full name", "ID number", "Grade", "Maximum Grade"]
MOODLE += ["Last modified (grade)", "Feedback comments"]
CANVAS = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section"]
# columns that hold a student's names and numbers
NAMING = ["student", "name", "platform_id", "Full name", "Identifier", "Student", "ID"]
PLATFORMS = (identity.MOODLE, identity.CANVAS)
IDENTITIES = ["pseudonym", "student", "name", "platform_id", "file"]


def as_cell(value: Any) -> str:
    """The text of a cell: numbers as they are, other text on one line, with ``'`` where a formula would begin."""
    if isinstance(value, int | float):
        return f"{value:g}"
    text = " ".join(printable(shortened(str(value), LONGEST)).split())
    return NEEDS_MARK.sub(r"\g<0>'", text)


def brief(text: str) -> str:
    """A flag in which no word is so long, and which itself is not so long, that it hides others."""
    short = re.sub(rf"\S{{{LONGEST_WORD + 1},}}", lambda word: shortened(word[0], LONGEST_WORD), text)
    return shortened(short, LONGEST_FLAG)


def joined(texts: Iterable[str], separator: str) -> str:
    """Several texts in one cell, each shortened; how many more there are where the cell has no room for them."""
    short = [brief(printable(text)) for text in texts]
    ends = list(itertools.accumulate(len(separator) + len(text) for text in short))
    fit = sum(end < LONGEST - 50 for end in ends)
    more = [f"and {len(short) - fit} more, for which there is no room"] * (fit < len(short))
    return separator.join(short[:fit] + more)


def write_csv(path: Path, lines: Iterable[Iterable[Any]]) -> None:
    write_rows(path, [[as_cell(value) for value in line] for line in lines])


def write_rows(path: Path, rows: list[list[str]]) -> None:
    def fill(unfinished: Path) -> None:
        with unfinished.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(rows)

    write_atomically(path, fill)


def read_rows(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def in_zone(when: datetime, zone: tzinfo | None = None) -> datetime:
    """A time in ``zone`` (None: here), or in its own zone where the move would leave the years 1 to 9999."""
    try:
        return when.astimezone(zone)
    except (OverflowError, ValueError, OSError):
        return when


def write_tables(
    rows: Iterable[Any], out: Path, exercise: str, master: Any, of: int, real: Mapping[str, Any] | None = None
) -> list[Path]:
    """Write ``EXERCISE.csv``, ``EXERCISE_moodle.csv`` and ``EXERCISE_canvas.csv``; return their paths.

    Args:
        rows: each with ``submission``, ``status``, ``result`` and ``standing``.
        of: points of the exercise.
        real: for anonymous marking, the submission with the real names by the student's pseudonym. The platforms
            get the names, the marker's table does not, and ``identities.csv`` leads from one to the other.
    """
    rows = list(rows)
    if real is not None:
        rows.sort(key=lambda row: row.submission.student)  # the order of the names would tell who is who
        write_identities(out / "identities.csv", real)
    graded = [mark_up(cell)["grade_id"] for cell in master.cells if mark_up(cell).get("grade")]
    head = ["student", "name", "file", "handed_in", "status", "total", "of"]
    head += [*(name.removeprefix(CHECK) for name in graded), "flags", "details"]
    paths = {kind: out / f"{exercise}{kind}.csv" for kind in ("", "_moodle", "_canvas")}
    write_csv(paths[""], [head, *(marker_line(row, graded, of) for row in rows)])
    before = known_before(paths["_moodle"])
    moodle, canvas = [MOODLE], [[*CANVAS, exercise], ["Points Possible", "", "", "", "", of]]
    for row in rows:
        if not row.standing:
            continue
        s = (real or {}).get(row.submission.student, row.submission)
        total = "" if row.standing.waiting else row.standing.total
        own = s.student if s.student != s.platform_id else ""  # without a roster only the platform's number is known
        number, name = before.get(as_cell(s.student), ("", ""))
        number, name = s.platform_id or number, s.name or name
        own = "" if own == number else own
        moodle.append([f"Participant {number}" if number else "", name, own, total, of, "", ""])
        if total != "":  # an empty cell would wipe what stands there
            canvas.append([name, number, own, "", "", total])
    if real is not None:  # and so would the order here, next to the marker's table
        moodle[1:], canvas[2:] = sorted(moodle[1:], key=str), sorted(canvas[2:], key=str)
    write_csv(paths["_moodle"], moodle)
    write_csv(paths["_canvas"], canvas)
    return list(paths.values())


def known_before(path: Path) -> dict[str, tuple[str, str]]:
    """Number and name of each student in an earlier table for Moodle: where no file is left, nothing else says them."""
    found = {}
    with suppress(OSError, ValueError, csv.Error):  # there is none, or somebody saved it in their own way
        for identifier, name, own, *_ in read_rows(path)[1:]:
            number = identifier.removeprefix("Participant ")
            found[own or number] = number, name
    return found


def marker_line(row: Any, graded: list[str], of: int) -> list[Any]:
    s, result = row.submission, row.result
    if row.standing:
        points = row.standing.points
    else:
        points = {CHECK + part["name"]: part["points"] for part in result["parts"]} if result else {}
    numbers = ["" if points.get(name) is None else points[name] for name in graded]
    total = sum(p for p in points.values() if p is not None) if result or row.standing else ""
    state = row.status if not result else "waits for a person" if "" in numbers else "marked"
    when = in_zone(s.handed_in, UTC) if s.handed_in else None
    handed_in = f"{when.replace(tzinfo=None).isoformat(' ', 'seconds')} {when.tzname()}" if when else ""
    flags = joined([*([s.problem] if s.problem else []), *s.flags], "; ")
    details = joined(result["details"], " | ") if result else ""
    return [s.student, s.name, s.file, handed_in, state, total, of, *numbers, flags, details]


def write_identities(path: Path, real: Mapping[str, Any]) -> None:
    """Add to the list that leads from pseudonyms to students; it serves all exercises of a marking's folder."""
    known = {row[0]: row for row in read_rows(path)[1:] if row} if path.exists() else {}
    known |= {name: [as_cell(v) for v in (name, s.student, s.name, s.platform_id, s.file)] for name, s in real.items()}
    write_rows(path, [IDENTITIES, *(known[name] for name in sorted(known))])


def remove_student(path: Path, names: set[str]) -> list[dict[str, str]]:
    """Take the rows of a student out of a table written here; return them, by column.

    Args:
        names: the student's id, pseudonym and number on the platform. A number counts where no id stands beside it.
    """
    head, *rows = read_rows(path)
    names = {as_cell(name) for name in names} - {""}
    numbers = names | {f"Participant {name}" for name in names}

    def is_theirs(row: list[str]) -> bool:
        line = dict(zip(head, row))
        own = [line[column] for column in ("pseudonym", "student", "ID number", "SIS User ID") if line.get(column)]
        return bool(set(own) & names) or (not own and bool({line.get("Identifier"), line.get("ID")} & numbers))

    theirs = [row for row in rows if is_theirs(row)]
    if theirs:
        write_rows(path, [head, *(row for row in rows if not is_theirs(row))])
    return [dict(zip(head, row)) for row in theirs]


def spelled(line: Mapping[str, str], names: set[str]) -> set[str]:
    """How a row that is booked for nobody spells one of these names; empty if it does not name them."""
    place = "" if line.get("student") else line.get("file", "").partition("/")[0]
    texts = {place, plain_stem(place), *(place[: mark.start()] for p in PLATFORMS if (mark := p.search(place)))}
    texts |= set() if line.get("student") else {line.get("name", "")}
    return {text for text in texts for name in names if is_joined("".join(words_of(text)), words_of(name))}


def remove_nobodys(path: Path, names: set[str]) -> int:
    """Take out of ``identities.csv`` what is booked for nobody and bears one of these names; return how many rows."""
    head, *rows = read_rows(path)
    kept = [row for row in rows if not spelled(dict(zip(head, row)), names)]
    if kept != rows:
        write_rows(path, [head, *kept])
    return len(rows) - len(kept)


def keep_identities(path: Path, names: Iterable[str]) -> int:
    """Take all but these, and those in the markers' tables beside it, out of ``identities.csv``; return how many."""
    if not path.exists():
        return 0
    head, *rows = read_rows(path)
    there = {cell for table in path.parent.glob("[0-9][0-9]_*.csv") for row in read_rows(table) for cell in row[:3]}
    kept = [row for row in rows if row and row[0] in {*names, *there}]
    write_rows(path, [head, *kept])
    return len(rows) - len(kept)


def hide_in(path: Path, hidden: Callable[[str], str]) -> int:
    """Put names out of sight where other rows of the marker's table quote them; return in how many."""
    head, *rows = read_rows(path)
    changed = []
    for row in rows:
        line = dict(zip(head, row))
        quoting = ("file", "flags") if line.get("student") else ("file", "flags", "name")
        changed.append([hidden(cell) if column in quoting else cell for column, cell in line.items()])
    if changed != rows:
        write_rows(path, [head, *changed])
    return sum(new != old for new, old in zip(changed, rows))
