"""From what a learning platform exports to submissions: whose, when, and the answers in it.

Nothing is unpacked onto the disk and nothing in a notebook is believed but the source of its cells. Every
file becomes one ``Submission``; what is wrong with it stands in its ``problem``.
"""

import ast
import csv
import io
import itertools
import json
import re
import unicodedata
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

from coursekit.grading import GradingError
from coursekit.grading.release import mark_up

LARGEST = 20 * 2**20  # bytes of one notebook
MOST_CELLS = 2000
LONGEST_CELL = 100_000  # characters; a longer one is not parsed
LARGEST_ZIP = 2**30  # bytes of all files in one zip together, unpacked
LITTER = {".ds_store", "thumbs.db", "desktop.ini", "timestamp.txt", ".gitkeep"}
DROPPED = {"__macosx", ".ipynb_checkpoints"}


@dataclass
class Submission:
    """One file that was handed in.

    Attributes:
        file: where it came from, for people.
        student: of the roster or of the file's place; empty if that says nothing.
        platform_id: the platform's number for the student, where the place holds one.
        key: what the place or the roster calls them.
        name: the student's name, where roster or place tell it.
        handed_in: when, in UTC; None if unknown.
        late: the platform says so.
        problem: why it cannot be marked; empty if it can.
        flags: what a person should know.
        cells: the notebook's cells.
    """

    file: str
    student: str = ""
    platform_id: str = ""
    key: str = ""
    name: str = ""
    handed_in: datetime | None = None
    late: bool = False
    problem: str = ""
    flags: list[str] = field(default_factory=list)
    cells: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Student:
    """A line of the roster."""

    id: str
    name: str = ""
    email: str = ""
    platform_id: str = ""


# --- files ---------------------------------------------------------------------------------------------


Released = dict[str, list[dict[str, Any]]]  # the cells of each released exercise, by its name


def submissions(
    paths: list[Path], exercise: str, roster: list[Student], released: Released | None = None
) -> list[Submission]:
    """Every file under ``paths`` (folders, zips, notebooks), each as a submission, in a stable order.

    A notebook of another exercise in ``released`` is no hand-in of this one.
    """
    found = []
    for path in paths:
        refuse_unopenable(path)
        listed = []
        for place, data, when, problem in files(path, exercise):
            place = tuple(printable(part) for part in place)
            submission = Submission("/".join(place), handed_in=when, problem=problem or "")
            if not problem:
                read_notebook(submission, data)
            if not submission.problem and (other := other_exercise(submission.cells, exercise, released or {})):
                submission.problem = f"this is {other}"
            listed.append((place, submission))
        wrapper = common_folder([place for place, _ in listed], exercise)
        for place, submission in listed:
            whose(submission, place[wrapper:], exercise, roster)
        if path.suffix.lower() == ".zip":
            forget_packing_time([submission for _, submission in listed])
        found += [submission for _, submission in listed]
    if not found:
        raise GradingError(f"no files in {', '.join(map(str, paths))}")
    latest_counts(found)
    return without_online_texts(found)


def refuse_unopenable(path: Path) -> None:
    """What a person names must be there to read: a broken export would otherwise be a class that handed in nothing."""
    if path.is_symlink():
        raise GradingError(f"{path} is a symbolic link, which is not followed: name what it leads to")
    if not path.exists():
        raise GradingError(f"no such file or folder: {path}")
    try:
        if path.is_dir():
            next(path.iterdir(), None)
        elif path.suffix.lower() == ".zip":
            zipfile.ZipFile(path).close()
        else:
            path.open("rb").close()
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        raise GradingError(f"cannot open {path}: it is no zip, or was broken on its way") from None
    except OSError as error:
        raise GradingError(f"cannot open {path}: {error.strerror or error}") from None


def without_online_texts(found: list[Submission]) -> list[Submission]:
    """Leave out Moodle's text field of those who handed in a notebook too: it is no second hand-in."""
    readable = {submission.student or submission.key for submission in found if not submission.problem}
    return [s for s in found if not (is_online_text(s.file) and s.problem and (s.student or s.key) in readable)]


def is_online_text(file: str) -> bool:
    return "_assignsubmission_onlinetext" in file and file.endswith("onlinetext.html")


def printable(text: str) -> str:
    """A name without control characters and without what is no Unicode: it is shown and written to files."""
    text = text.encode("utf-8", "replace").decode()
    return "".join(char if char.isprintable() else "?" for char in text)


def forget_packing_time(found: list[Submission]) -> None:
    """Where a zip's times all lie within minutes they tell when it was packed, not when anybody handed in."""
    times = [submission.handed_in for submission in found if submission.handed_in]
    if len(times) > 2 and (max(times) - min(times)).total_seconds() < 600:
        for submission in found:
            submission.handed_in = None


def common_folder(places: list[tuple[str, ...]], exercise: str) -> int:
    """1 if all lie in one folder that is only a wrapper, as zips like to have; otherwise 0."""
    if len({place[0] for place in places}) != 1 or min(map(len, places)) < 2 or MOODLE.match(places[0][0]):
        return 0
    names = {name_in(place[1], exercise) for place in places}
    return int(len(names) > 1 and "" not in names)


File = tuple[tuple[str, ...], bytes, datetime | None, str | None]  # place, content, time, problem


def files(path: Path, exercise: str) -> Iterator[File]:
    """The files under a path; links are not followed, zips are read in memory."""
    if path.is_symlink():
        yield (path.name,), b"", None, "a symbolic link: not followed"
    elif path.is_dir():
        for inner in sorted(path.rglob("*")):
            place = inner.relative_to(path).parts
            if inner.is_symlink():
                yield place, b"", None, "a symbolic link: not followed"
            elif inner.is_file() and not litter(place) and not any(p.is_symlink() for p in inner.parents if p != path):
                yield from one_file(inner, place)
    else:
        alone = path.suffix.lower() == ".ipynb" and plain_stem(path.name) == exercise  # a zip's name is nobody's
        above = (path.resolve().parent.name,) if alone else ()
        yield from one_file(path, (*above, path.name))


def one_file(path: Path, place: tuple[str, ...]) -> Iterator[File]:
    when = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    stamp = path.with_name("timestamp.txt")
    if stamp.is_file() and not stamp.is_symlink():
        when = read_time(stamp.read_text(encoding="utf-8", errors="replace")) or when
    if path.suffix.lower() == ".zip":
        yield from in_zip(path, place[:-1], [LARGEST_ZIP])
    elif path.stat().st_size > LARGEST:
        yield place, b"", when, f"over {LARGEST >> 20} MB"
    else:
        try:
            data, problem = path.read_bytes(), None
        except OSError as error:
            data, problem = b"", f"cannot be read: {error.strerror or error}"
        yield place, data, when, problem


def in_zip(
    path: Path | io.BytesIO, above: tuple[str, ...], left: list[int], depth: int = 1, name: str = ""
) -> Iterator[File]:
    """The files of a zip. Sizes are counted while reading: what the zip says of itself is not believed.

    ``left[0]`` bytes may still be read, in this zip and those inside it together.
    """
    name = name or path.name
    try:
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                parts = PurePosixPath(entry.filename.replace("\\", "/")).parts
                place = (*above, *(part for part in parts if part not in ("/", "..", ".")))
                if entry.is_dir() or litter(place):
                    continue
                when = None
                if entry.date_time > (1980, 1, 1, 0, 0, 0):
                    when = zip_time(entry.date_time)
                if (entry.external_attr >> 16) & 0o170000 == 0o120000:
                    yield place, b"", when, "a symbolic link in the zip: not followed"
                    continue
                if ".." in parts or parts[:1] == ("/",):
                    yield place, b"", when, "a path in the zip that leads out of it: not read"
                    continue
                if left[0] <= 0:
                    yield place, b"", when, f"the zip holds over {LARGEST_ZIP >> 20} MB"
                    continue
                try:
                    with archive.open(entry) as stream:
                        data = stream.read(LARGEST + 1)
                except (OSError, RuntimeError, NotImplementedError, EOFError, ValueError, zipfile.BadZipFile) as error:
                    yield place, b"", when, f"cannot be read from the zip: {error}"
                    continue
                except Exception as error:  # zlib and its relatives have errors of their own
                    yield place, b"", when, f"cannot be read from the zip: {type(error).__name__}"
                    continue
                left[0] -= len(data)
                if len(data) > LARGEST:
                    yield place, b"", when, f"over {LARGEST >> 20} MB"
                elif place[-1].lower().endswith(".zip") and depth < 3:
                    yield from in_zip(io.BytesIO(data), place[:-1], left, depth + 1, place[-1])
                else:
                    yield place, data, when, None
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        yield (*above, name), b"", None, "not a zip, though it is called one"


def litter(place: tuple[str, ...]) -> bool:
    """What operating systems leave behind."""
    return place[-1].lower() in LITTER or place[-1].startswith("._") or bool({p.lower() for p in place} & DROPPED)


def zip_time(parts: tuple[int, ...]) -> datetime | None:
    try:
        return datetime(*parts).astimezone(UTC)  # a zip tells local time
    except (ValueError, OverflowError):
        return None


def read_time(text: str) -> datetime | None:
    """nbgrader's ``2026-11-30 23:59:59.123456 UTC`` and ISO 8601; local time where no zone is told."""
    text = text.strip().removesuffix("UTC").strip() + ("+00:00" if text.strip().endswith("UTC") else "")
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        return None


# --- whose ---------------------------------------------------------------------------------------------


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
        Student(**{key: (line.get(key) or "").strip() for key in ("id", "name", "email", "platform_id")})
        for line in lines
        if (line["id"] or "").strip()
    ]
    ids = [student.id for student in students]
    twice = sorted({i for i in ids if ids.count(i) > 1})
    if twice:
        raise GradingError(f"the roster {path} has more than one line with the id {twice[0]!r}")
    unfit = [i for i in ids if clean(i) != i]
    if unfit:
        raise GradingError(f"the roster {path}: the id {unfit[0]!r} may hold letters, digits and . _ - @ only")
    return students


ROSTER_COLUMNS = "name, email, platform_id"
MOODLE = re.compile(r"^(?P<name>.+?)_(?P<id>\d+)_assignsubmission_[a-z]+")
CANVAS = re.compile(r"^(?P<name>[^_]+)_(?P<late>LATE_)?(?P<id>\d+)_\d+_.+$")


def whose(submission: Submission, place: tuple[str, ...], exercise: str, roster: list[Student]) -> None:
    """Read student, name and lateness off the place, and look them up in the roster."""
    for part in place:
        if match := MOODLE.match(part):
            submission.name, submission.platform_id = match["name"], match["id"]
    if not submission.platform_id and (match := CANVAS.match(place[-1])):
        submission.name, submission.platform_id = match["name"], match["id"]
        submission.late = bool(match["late"])
    folders = [part for part in place[:-1] if part not in (exercise, "submitted")]
    keys = [key for key in (submission.platform_id, *folders, name_in(place[-1], exercise)) if clean(key)]
    submission.key = keys[0] if keys else ""
    submission.student = clean(submission.key)
    if roster:
        student = next((s for key in [*keys, submission.name] if (s := known(key, roster))), None)
        if student is None:
            submission.flags.append("not in the roster")
            submission.student = ""
        else:
            submission.key = student.id
            submission.student, submission.name = student.id, student.name or submission.name
            submission.platform_id = submission.platform_id or student.platform_id  # Moodle's differ by assignment
    if not submission.student:
        submission.flags.append(
            "nobody's: neither the roster nor the file's place says whose it is, so it is not booked"
        )


def plain_stem(filename: str) -> str:
    """A file's name without what browsers and Colab add: ``Copy of x (1).ipynb`` is ``x``."""
    stem = PurePosixPath(filename).stem
    stem = re.sub(r"^(copy of|kopie von|copie de|copia de)\s+", "", stem, flags=re.IGNORECASE)
    return re.sub(r"(\s*\(\d+\)|\s*-\s*copy|-Copy\d+)+$", "", stem, flags=re.IGNORECASE).strip()


def name_in(filename: str, exercise: str) -> str:
    """What a file's name says beside the exercise."""
    return plain_stem(filename).replace(exercise, "").strip(" _-.")


def known(key: str, roster: list[Student]) -> Student | None:
    """The one student of the roster that ``key`` means: an id, the platform's number, an address or a name."""
    if not key:
        return None
    for same in (
        lambda s: key in (s.id, s.platform_id),
        lambda s: key.casefold() in (s.email.casefold(), s.email.casefold().partition("@")[0], s.id.casefold()),
        lambda s: letters(key) == letters(s.name) and letters(key) != "",
    ):
        found = [student for student in roster if same(student)]
        if len(found) == 1:
            return found[0]
    return None


def letters(name: str) -> str:
    """A name for comparing: no case, accents, spaces or order of its words (Canvas joins them, so by letter)."""
    plain = unicodedata.normalize("NFKD", name.casefold())
    return "".join(sorted(char for char in plain if char.isalnum()))


def clean(text: str) -> str:
    """A student's id as the name of a folder."""
    text = unicodedata.normalize("NFC", text).strip()
    return re.sub(r"[^\w.@-]+", "_", text).strip("._")[:80]


def latest_counts(found: list[Submission]) -> None:
    """Of several files of one student the latest readable one is marked; the others say so."""
    by_student: dict[str, list[Submission]] = {}
    for submission in found:
        if submission.student and not submission.problem:
            by_student.setdefault(submission.student, []).append(submission)
    beginning = datetime.min.replace(tzinfo=UTC)
    for group in by_student.values():
        if len({submission.key for submission in group}) > 1:
            names = " and ".join(sorted({repr(submission.key) for submission in group}))
            for submission in group:
                submission.flags.append(f"{names} become one student: rename one, or use a roster")
        *earlier, last = sorted(group, key=lambda s: (s.handed_in or beginning, by_number(s.file)))
        for submission in earlier:
            submission.problem = f"not the latest: {last.file} is marked instead"


def by_number(file: str) -> list[Any]:
    """For sorting: ``x.ipynb`` before ``x-1.ipynb`` before ``x-10.ipynb``."""
    stem = re.sub(r"\.[^./]*$", "", file)
    return [int(part) if part.isdigit() else part for part in re.split(r"([0-9]+)", stem)]


# --- notebooks -----------------------------------------------------------------------------------------


def read_notebook(submission: Submission, data: bytes) -> None:
    """Take the cells out of a file, however it was rewritten on its way; or say what it is instead."""
    try:
        notebook = json.loads(data.decode("utf-8-sig"))
    except (UnicodeDecodeError, ValueError, RecursionError):
        kind = PurePosixPath(submission.file).suffix
        submission.problem = "not JSON: broken on its way?" if kind == ".ipynb" else f"not a notebook: a {kind} file"
        return
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list):
        submission.problem = "not a notebook: JSON without a list of cells"
        return
    for cell in cells[:MOST_CELLS]:
        if not isinstance(cell, dict) or cell.get("cell_type") not in ("code", "markdown", "raw"):
            continue
        source = cell.get("source", "")
        if isinstance(source, list):
            source = "".join(line for line in source if isinstance(line, str))
        if isinstance(source, str):
            metadata = cell.get("metadata")
            identity = cell.get("id")
            submission.cells.append(
                {
                    "cell_type": cell["cell_type"],
                    "source": source.replace("\r\n", "\n").encode("utf-8", "replace").decode(),
                    "id": identity if isinstance(identity, str) else "",
                    "metadata": metadata if isinstance(metadata, dict) else {},
                }
            )
    if not submission.cells:
        submission.problem = "a notebook without cells"


def defines(source: str) -> set[str]:
    """The functions and classes that a cell defines at its top level."""
    try:
        if len(source) > LONGEST_CELL:
            raise ValueError("too long to parse")
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set(re.findall(r"^(?:async\s+)?(?:def|class)\s+(\w+)", source, re.MULTILINE))
    return {n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}


def answers(master: list[Any], submission: Submission) -> dict[str, str]:
    """The student's source of every answer cell of the master, by ``grade_id``.

    An answer is looked for by ``grade_id``, then by cell id, then by what the cell defines (a written one by
    the text before it). Of several, the last that was changed counts, since it is the one that a run would use;
    one that still raises ``NotImplementedError`` gives way to one that does not. An answer that is not there, or
    was not touched, is left out.
    """
    cells, found = submission.cells, {}
    defined = defined_in(cells)
    for number, wanted in enumerate(master):
        if not mark_up(wanted).get("solution"):
            continue
        name = mark_up(wanted)["grade_id"]
        ways = ways_to(master, number, cells, defined)
        if not any(ways):
            submission.flags.append(f"{name}: the answer cell is gone")
            continue
        changed = [[c["source"] for c in way if squeezed(c) != squeezed(wanted)] for way in ways]
        finished = [[text for text in way if "raise NotImplementedError" not in text] for way in changed]
        chosen = next((way for way in (*finished, *changed) if way), None)
        if chosen:
            found[name] = chosen[-1]
        others = {text.strip() for way in changed for text in way} - {found.get(name, "").strip()}
        if others:
            submission.flags.append(f"{name}: {len(others) + 1} different answers, one of them is marked")
    return found


def defined_in(cells: list[dict[str, Any]]) -> list[set[str]]:
    return [defines(cell["source"]) if cell["cell_type"] == "code" else set() for cell in cells]


def ways_to(
    master: list[Any], number: int, cells: list[dict[str, Any]], defined: list[set[str]]
) -> list[list[dict[str, Any]]]:
    """Cells that could hold the answer to the master's cell ``number``: by grade_id, by cell id, by content."""
    wanted = master[number]
    name = mark_up(wanted)["grade_id"]
    ways = (
        [cell for cell in cells if mark_up(cell).get("grade_id") == name],
        [cell for cell in cells if cell["id"] == wanted["id"]],
        similar(master, number, cells, defined),
    )
    return [[cell for cell in way if same_kind(cell, wanted)] for way in ways]


def read_released(home: Path) -> Released:
    """The cells of every exercise in ``home / "exercises"``."""
    found = {}
    for path in sorted((home / "exercises").glob("*/*.ipynb")):
        if path.stem == path.parent.name:
            exercise = Submission(str(path))
            read_notebook(exercise, path.read_bytes())
            found[path.stem] = exercise.cells
    return found


def other_exercise(cells: list[dict[str, Any]], exercise: str, released: Released) -> str:
    """The exercise that a notebook belongs to, if that is another one; otherwise nothing.

    Exercises share some names (``train``, ``masked_softmax``), so one answer cell of this one may well be there.
    """
    if exercise not in released:
        return ""
    defined = defined_in(cells)
    if share_of(released[exercise], cells, defined) > 0.25:
        return ""
    shares = {name: share_of(master, cells, defined) for name, master in released.items()}
    best = max(shares, key=lambda name: shares[name])
    return best if shares[best] >= 0.75 else ""


def share_of(master: list[Any], cells: list[dict[str, Any]], defined: list[set[str]]) -> float:
    """Which share of the master's answer cells is there."""
    wanted = [number for number, cell in enumerate(master) if mark_up(cell).get("solution")]
    return sum(any(ways_to(master, number, cells, defined)) for number in wanted) / max(1, len(wanted))


def similar(
    master: list[Any], number: int, cells: list[dict[str, Any]], defined: list[set[str]]
) -> list[dict[str, Any]]:
    """Cells that could be the master's cell ``number``, by what they define or by the text before them."""
    wanted = master[number]
    if wanted["cell_type"] == "code":
        names = defines(wanted["source"])
        return [cell for cell, there in zip(cells, defined) if cell["cell_type"] == "code" and names <= there]
    before = squeezed(master[number - 1])
    return [after for cell, after in itertools.pairwise(cells) if squeezed(cell) == before]


def same_kind(cell: dict[str, Any], wanted: Any) -> bool:
    return cell["cell_type"] == wanted["cell_type"] or wanted["cell_type"] == "markdown"


def squeezed(cell: Any) -> str:
    return "".join(cell["source"].split())
