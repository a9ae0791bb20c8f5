"""Whose a hand-in is, and when it was handed in.

Only the outermost part of a file's place is asked, since the learning platform wrote it. Whatever lies inside is the
student's and can neither name nor date anything. Where that part says two things, or two parts say the same, nobody
is chosen: the hand-in belongs to no one until a person has looked.
"""

import csv
import hashlib
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

from coursekit.grading import GradingError, few, printable, shortened

LONGEST_ID = 80  # bytes of UTF-8
LONGEST_SHOWN = 120  # characters of a folder's or file's name in a flag
ROSTER_COLUMNS = "name, email, platform_id"
MOODLE = re.compile(r"_([0-9]+)_assignsubmission_[a-z]+")
CANVAS = re.compile(r"_([0-9]+)_[0-9]+_.")
COPIES = ("copy of ", "kopie von ", "copie de ", "copia de ")  # what Google Drive puts before a name
NOBODY = "nobody's: neither the roster nor the file's place says whose it is, so it is not booked"


@dataclass(frozen=True)
class Student:
    """A line of the roster."""

    id: str
    name: str = ""
    email: str = ""
    platform_id: str = ""


@dataclass(frozen=True)
class Part:
    """What the outermost part of a place says.

    Attributes:
        text: the part as it was written.
        layout: ``moodle``, ``canvas``, ``nbgrader`` (its exchange) or ``plain``.
        key: what it calls the student: the platform's number, or a name or id where there is none.
        name: the student's name, where the platform writes it beside a number.
        late: Canvas says so.
        handed_in: in UTC, where nbgrader's exchange wrote it down.
        exercise: the one that nbgrader's exchange wrote down.
        problem: why it can name nobody.
        meant: ids that such a part could mean.
        origin: equal for those parts with a ``problem`` that come from one person.
    """

    text: str
    layout: str = "plain"
    key: str = ""
    name: str = ""
    late: bool = False
    handed_in: datetime | None = None
    exercise: str = ""
    problem: str = ""
    meant: tuple[str, ...] = ()
    origin: str = ""

    @property
    def source(self) -> tuple[str, ...]:
        """Equal for those parts that are one student's by the platform's own way of writing."""
        if self.problem:
            return ("in doubt", self.origin or self.text)
        return (self.layout, self.key, self.name) if self.layout != "plain" and self.key else ("plain", self.text)


@dataclass
class Whose:
    """Who a part belongs to; ``student`` is empty where that is unknown or in doubt, and ``flags`` say why."""

    student: str = ""
    platform_id: str = ""
    name: str = ""
    flags: list[str] = field(default_factory=list)


# --- what a part says ----------------------------------------------------------------------------------


def read_part(text: str, exercise: str, *, folder: bool, platform: str = "") -> Part:
    """What the outermost part says by itself, whatever lies in it; with ``platform``, if Moodle or Canvas wrote it."""
    canvas = None if folder or platform == "moodle" else CANVAS.search(text)
    if (marks := list(MOODLE.finditer(text))) and not (canvas and platform == "canvas"):
        if len(marks) > 1:
            words = "its name has Moodle's '_NUMBER_assignsubmission_' more than once, so it is not booked"
            return Part(text, "moodle", problem=words, origin=text[: marks[0].end(1)])
        if canvas and canvas.start() < marks[0].start():
            words = "its name could be Canvas's or Moodle's, so it is not booked"
            return Part(text, "moodle", problem=words, origin=text[: canvas.end(1)])
        return Part(text, "moodle", marks[0][1], text[: marks[0].start()])
    if folder and (part := nbgraders(text)):
        return part
    if canvas and canvas.start():
        name = text[: canvas.start()]
        return Part(text, "canvas", canvas[1], name.removesuffix("_LATE"), late=name.endswith("_LATE"))
    key = name_in(text, exercise) if not folder else "" if text == exercise else text
    return Part(text, key=key)


def nbgraders(text: str) -> Part | None:
    """``STUDENT+EXERCISE+2026-11-30 23:59:59.123456 UTC``, since nbgrader 0.6 with ``+random`` after it."""
    pieces = text.split("+")
    for date in (-1, -2):
        if len(pieces) >= 2 - date and (match := re.match(r"([0-9-]{10} [0-9:.]{8,15}) (\w+)$", pieces[date])):
            when = None
            if match[2] == "UTC":
                with suppress(ValueError):
                    when = sane(datetime.fromisoformat(match[1]).replace(tzinfo=UTC))
            student = "+".join(pieces[: date - 1])
            return Part(text, "nbgrader", student, handed_in=when, exercise=pieces[date - 1])
    return None


def plain_stem(filename: str) -> str:
    """A file's name without what browsers and Colab add: ``Copy of x (1).ipynb`` is ``x``."""
    stem = PurePosixPath(filename).stem.strip()
    for start in COPIES:
        if stem.casefold().startswith(start):
            stem = stem[len(start) :]
            break
    while True:
        stem = stem.strip()
        before, bracket, number = stem.rpartition("(")
        if bracket and number.endswith(")") and number[:-1].isdecimal():
            stem = before
            continue
        before, dash, end = stem.rpartition("-")
        end = end.strip().casefold()
        if dash and end.startswith("copy") and (end == "copy" or end[4:].isdecimal()):
            stem = before
            continue
        return stem


def name_in(filename: str, exercise: str) -> str:
    """What a file's name says beside the exercise."""
    return plain_stem(filename).replace(exercise, "").strip(" _-.")


def sane(when: datetime) -> datetime | None:
    """A time that every later step can print in any time zone; None for years before 1980 or after 2100."""
    return when.astimezone(UTC) if 1980 <= when.year <= 2100 else None


def time_of(stamp: Any) -> datetime | None:
    """Seconds since 1970, or a zip's (year, month, day, hour, minute, second) in local time; None if impossible."""
    try:
        if isinstance(stamp, int | float):
            return sane(datetime.fromtimestamp(stamp, UTC))
        year, *rest = stamp
        return sane(datetime(year, *rest).astimezone(UTC)) if 1980 <= year <= 2100 else None
    except (ValueError, OverflowError, OSError, TypeError):
        return None


# --- whose it is ---------------------------------------------------------------------------------------


def identify(parts: Iterable[Part], roster: list[Student]) -> tuple[list[Whose], dict[str, list[str]]]:
    """Whose each part is, and for each student what is in doubt about a hand-in that could be theirs.

    With a roster a platform's number decides (``platform_id``), then the name; a folder or file that is called like a
    student may hold the id, the e-mail address, the part of it before the @, or the name. A number that happens to
    equal somebody's id means nothing. Without a roster the part itself names the student.
    """
    parts = list(parts)
    found, doubts = [], defaultdict(list)
    book = Roster(roster) if roster else None
    for part in parts:
        whose, candidates, sentence = book.whose(part) if book else by_itself(part)
        if sentence:
            whose.flags.append(sentence)
            for student in candidates:
                named = shown(part.text) in sentence
                doubts[student.id].append(sentence if named else f"{shown(part.text)}: {sentence}")
        found.append(whose)
    by_student = defaultdict(list)
    for part, whose in zip(parts, found):
        if whose.student:
            by_student[whose.student.casefold()].append((part, whose))
    for group in by_student.values():
        names = list({part.source: shown(part.text) for part, _ in group}.values())
        if len(names) > 1:
            students = sorted({whose.student for _, whose in group})
            advice = "rename one" if roster else "rename one, or use a roster"
            sentence = f"{joined_by_and(names)} become one student ({students[0]}), so none is booked: {advice}"
            for student in students:
                doubts[student].append(sentence)
            for _, whose in group:
                whose.student = ""
                whose.flags.append(sentence)
    return found, {student: few(list(dict.fromkeys(sentences))) for student, sentences in doubts.items()}


def by_itself(part: Part) -> tuple[Whose, list[Student], str]:
    """Without a roster."""
    number = part.key if part.layout in ("moodle", "canvas") else ""
    if part.problem:
        return (
            Whose("", number, printable(part.name)),
            [Student(key) for key in map(clean, part.meant) if key],
            part.problem,
        )
    whose = Whose(clean(part.key), number, printable(part.name))
    return whose, [], "" if whose.student else NOBODY


class Roster:
    """The class, by everything that can name a student."""

    def __init__(self, students: list[Student]) -> None:
        self.students = students
        self.by_number, self.by_key, self.by_name = defaultdict(list), defaultdict(list), defaultdict(list)
        for student in students:
            email = fold(student.email)
            for key in {fold(student.id), email, email.partition("@")[0]} - {""}:
                self.by_key[key].append(student)
            if student.platform_id:
                self.by_number[student.platform_id].append(student)
            if words := words_of(student.name):
                self.by_name[words].append(student)

    def whose(self, part: Part) -> tuple[Whose, list[Student], str]:
        """(whose it is, the students whom it could mean instead, why nobody was chosen)."""
        number = part.key if part.layout in ("moodle", "canvas") else ""
        nobody = Whose("", number, printable(part.name))
        if part.problem:
            meant = [student for key in part.meant for student in self.by_key[fold(key)]]
            return nobody, meant or self.named_in(part.text), part.problem
        student, candidates, sentence = self.by_platform(part) if number else self.by_any(part)
        if student:
            return Whose(student.id, number or student.platform_id, student.name or nobody.name), [], ""
        if not sentence:
            nobody.flags.append("not in the roster")
        return nobody, candidates, sentence or NOBODY

    def by_platform(self, part: Part) -> tuple[Student | None, list[Student], str]:
        text, numbered, named = shown(part.text), self.by_number[part.key], self.named(part)
        if len(numbered) > 1:
            return None, numbered, f"{text} could be {either(numbered)} by its number, so it is not booked"
        if numbered and (not named or numbered[0] in named):
            return numbered[0], [], ""
        if numbered:
            both = f"is {numbered[0].id}'s, and the name is {either(named)}'s"
            return None, [*numbered, *named], f"{text}: the number {part.key} {both}, so it is not booked"
        if len(named) > 1:
            return None, named, f"{text} could be {either(named)} by its name, so it is not booked"
        if named and named[0].platform_id:
            other = f"is {named[0].id}'s, but the roster's platform_id for {named[0].id} is {named[0].platform_id}"
            return None, named, f"{text}: the name {other}, not {part.key}, so it is not booked"
        return (named[0] if named else None), [], ""

    def by_any(self, part: Part) -> tuple[Student | None, list[Student], str]:
        could = self.called(part.key)
        if len(could) > 1:
            return None, could, f"{shown(part.text)} could be {either(could)}, so it is not booked"
        return next(iter(could), None), [], ""

    def called(self, text: str) -> list[Student]:
        """Those whose id, e-mail address, part of it before the @, or name it is."""
        return list({s.id: s for s in (*self.by_key[fold(text)], *self.by_name[words_of(text)])}.values())

    def named(self, part: Part) -> list[Student]:
        """Those whose name it is; Canvas writes a name's words without spaces between them."""
        exact = self.by_name[words_of(part.name)]
        if part.layout != "canvas":
            return exact
        text = "".join(words_of(part.name))
        more = [s for s in self.students if s not in exact and text and is_joined(text, words_of(s.name))]
        return [*exact, *more]

    def named_in(self, text: str) -> list[Student]:
        """Those whom a part with marks of both platforms, or several of one, could mean: the first of each counts.

        What comes after them may be the name that a student gave a file, and could name the whole class.
        """
        found = []
        for pattern, layout in ((CANVAS, "canvas"), (MOODLE, "moodle")):
            if mark := pattern.search(text):
                found += [*self.by_number[mark[1]], *self.named(Part(text, layout, name=text[: mark.start()]))]
        return list({student.id: student for student in found}.values())


def is_joined(text: str, words: tuple[str, ...]) -> bool:
    """Whether ``text`` is ``words`` in some order without spaces."""
    if not words or len(words) > 8 or len(text) != sum(map(len, words)):
        return False
    for word in set(words):
        if text.startswith(word):
            rest = list(words)
            rest.remove(word)
            if not rest or is_joined(text[len(word) :], tuple(rest)):
                return True
    return False


def words_of(name: str) -> tuple[str, ...]:
    """A name for comparing: its words in alphabetical order, without case, accents and marks."""
    plain = "".join(char for char in unicodedata.normalize("NFKD", fold(name)) if not unicodedata.combining(char))
    return tuple(sorted("".join(char if char.isalnum() else " " for char in plain).split()))


def fold(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold().strip()


def either(students: list[Student]) -> str:
    names = [student.id for student in students]
    more = f" or {len(names) - 5} others" if len(names) > 5 else ""
    return " or ".join(names[:5]) + more


def joined_by_and(names: list[str]) -> str:
    more = f" and {len(names) - 5} others" if len(names) > 5 else ""
    return " and ".join(names[:5]) + more


# --- how it is written ---------------------------------------------------------------------------------


def clean(text: str) -> str:
    """A student's id as the name of a folder: at most 80 bytes, and different for different long texts."""
    text = unicodedata.normalize("NFC", text.encode("utf-8", "replace").decode()).strip()
    name = re.sub(r"[^\w.@-]+", "_", text).strip("._")
    if len(name.encode()) > LONGEST_ID:
        tail = "-" + hashlib.sha256(text.encode()).hexdigest()[:10]
        name = name.encode()[: LONGEST_ID - len(tail)].decode(errors="ignore") + tail
    return name


def shown(text: str) -> str:
    return f"'{shortened(printable(text), LONGEST_SHOWN)}'"


# --- the roster ----------------------------------------------------------------------------------------


def read_roster(path: Path) -> list[Student]:
    """A CSV with a column ``id`` and, if there, ``name``, ``email``, ``platform_id``."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            start = file.readline()
            file.seek(0)
            delimiter = max(",;\t", key=start.count)  # German Excel writes semicolons
            lines = list(csv.DictReader(file, delimiter=delimiter))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise GradingError(f"cannot read the roster {path}: {error}") from None
    if not lines or "id" not in lines[0]:
        raise GradingError(f"the roster {path} needs a first line with the column 'id', and may have {ROSTER_COLUMNS}")
    students = [
        Student(**{key: printable((line.get(key) or "").strip()) for key in ("id", "name", "email", "platform_id")})
        for line in lines
        if (line["id"] or "").strip()
    ]
    unfit = [s.id for s in students if clean(s.id) != s.id]
    if unfit:
        raise GradingError(
            f"the roster {path}: the id {unfit[0]!r} may hold letters, digits and . _ - @ only, and at most 80 bytes"
        )
    for what, values in {"id": [s.id for s in students], "platform_id": [s.platform_id for s in students]}.items():
        folded = [value.casefold() for value in values if value]
        twice = sorted({value for value in values if folded.count(value.casefold()) > 1})
        if twice:
            raise GradingError(f"the roster {path} has more than one line with the {what} {twice[0]!r}")
    return students
