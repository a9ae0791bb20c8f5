"""What a marking leaves behind: signed results, a log that shows when it was changed, and an end to both.

The signatures are made with the marking's secret key. They hold against everybody who has not got it: keep it
elsewhere (``--private``), or whoever can write into the folder of a marking can also forge its records.
"""

import contextlib
import functools
import getpass
import hashlib
import hmac
import json
import os
import re
import shutil
import socket
import sqlite3
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import coursekit
from coursekit.files import write_atomically
from coursekit.grading import GradingError, printable
from coursekit.grading.book import refuse_triggers
from coursekit.grading.identity import LONGEST_SHOWN
from coursekit.grading.intake import Student, Submission
from coursekit.grading.tables import (
    LONGEST_WORD,
    NAMING,
    hide_in,
    keep_identities,
    read_rows,
    remove_nobodys,
    remove_student,
    spelled,
)

LONGEST = 300  # characters of a text in the log
PERSONAL = ("autograded", "feedback", "submitted", "superseded")  # folders with one for each student


def signature(key: bytes, purpose: str, content: bytes) -> str:
    """HMAC-SHA256, different for each purpose, in 64 hexadecimal digits."""
    return hmac.digest(key, b"coursekit\0" + purpose.encode() + b"\0" + content, hashlib.sha256).hex()


def pseudonym(key: bytes, student: str) -> str:
    """A name for a student that says nothing to whoever has not got the key; the same in every exercise."""
    return "student-" + signature(key, "pseudonym", student.encode("utf-8", "surrogatepass"))[:12]


def is_pseudonym(name: str) -> bool:
    return re.fullmatch("student-[0-9a-f]{12}", name) is not None


# --- files ---------------------------------------------------------------------------------------------


@contextlib.contextmanager
def private(out: Path) -> Iterator[None]:
    """Make everything in ``out`` its owner's alone, at the beginning and again at the end.

    The folder itself is closed all the time, so that nobody else gets at what is written meanwhile. The umask stays
    as it is: it belongs to the whole process, and the sandbox has to read files that another thread is making.
    """
    out.mkdir(parents=True, exist_ok=True)
    close(out)
    try:
        yield
    finally:
        close(out)


def close(out: Path) -> None:
    try:
        out.chmod(0o700)
    except OSError as error:
        raise GradingError(f"cannot close {out} to other users ({error.strerror}): name a folder of your own") from None
    for folder, folders, files in os.walk(out):
        for names, mode in ((folders, 0o700), (files, 0o600)):
            for name in names:
                path = os.path.join(folder, name)
                if not os.path.islink(path):
                    with contextlib.suppress(OSError):  # gone meanwhile, or another's: the folder is closed
                        os.chmod(path, mode)


def write(path: Path, text: str) -> None:
    """Write text that may hold what is no Unicode: a question mark stands for it."""
    write_atomically(path, lambda unfinished: unfinished.write_bytes(text.encode("utf-8", "replace")))


# --- results -------------------------------------------------------------------------------------------


class Edited(Exception):
    """A result that no marking with this key has written, or not in this place."""


def store(path: Path, result: dict[str, Any], key: bytes) -> None:
    """Write a result, signed for its place ``results/EXERCISE/DIGEST.json``.

    What ended for lack of time or memory (``unsure``) is tried once more at the next run, and then believed.
    """
    with contextlib.suppress(Edited):
        result["unsure"] &= read_result(path, key) is None
    text = as_json(result)
    signed = f'{{"signature": "{sign_result(path, text, key)}", "result":\n{text}}}\n'
    write(path, signed)


def stored(path: Path, key: bytes) -> dict[str, Any] | None:
    """An earlier result; None where there is none, or where a busy machine may have caused it.

    Raises:
        Edited: it is not what was written. It has to be marked again.
    """
    result = read_result(path, key)
    return None if result is None or result["unsure"] else result


def read_result(path: Path, key: bytes) -> dict[str, Any] | None:
    try:
        whole = json.loads(path.read_bytes())
        given, result = whole["signature"], whole["result"]
        right = sign_result(path, as_json(result), key)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError, TypeError, KeyError):
        given, right, result = "", "-", None
    if not isinstance(given, str) or not hmac.compare_digest(given.encode("utf-8", "replace"), right.encode()):
        raise Edited(f"results/{path.parent.name}/{path.name} is not as it was written: it is not believed")
    return result


def as_json(result: Any) -> str:
    """One text for each value, in ASCII: half of a surrogate pair is escaped, and comes back as it was."""
    return json.dumps(result, ensure_ascii=True, indent=1)


def sign_result(path: Path, text: str, key: bytes) -> str:
    return signature(key, "result", f"{path.parent.name}/{path.stem}\0{text}".encode())


# --- log -----------------------------------------------------------------------------------------------


Known = dict[tuple[str, str], dict[str, Any]]  # what the log says last of an exercise and a student ("": of all)


class Log:
    """``log.jsonl``: a line of JSON for each event, each signed and tied to the line before it.

    Students are named by ``pseudonym``; who that is follows from the gradebook alone. Hold the lock of the marking
    while you add to it.

    Attributes:
        events: the lines that can be believed.
        problems: in sentences, what was done to the file.
        known: of each exercise and student the last ``points``, ``by_hand``, ``digest`` and hashes of ``files``;
            ``stale``: files are older than the points.
    """

    def __init__(self, out: Path, key: bytes):
        self.path, self.key = out / "log.jsonl", key
        self.events: list[dict[str, Any]] = []
        self.problems: list[str] = []
        self.known: Known = {}
        self.last = ""  # the signature of the last line
        data = self.path.read_bytes() if self.path.exists() else b""
        self.torn = bool(data) and not data.endswith(b"\n")
        for number, line in enumerate(data.removesuffix(b"\n").split(b"\n") if data else [], 1):
            self.read(number, line)

    def read(self, number: int, line: bytes) -> None:
        body, _, end = line.rpartition(b', "signature": "')
        try:
            event, given = json.loads(body + b"}"), re.fullmatch(rb'([0-9a-f]{64})"}', end)[1].decode()
            before = event["before"]
        except (ValueError, RecursionError, TypeError, KeyError):
            self.problems.append(f"log.jsonl: line {number} is torn, as by a crash while it was written")
            return
        if not hmac.compare_digest(given, signature(self.key, "log", body)):
            self.problems.append(f"log.jsonl: line {number} was changed, or written without this key")
            self.last = given
            return
        if before != self.last:
            self.problems.append(f"log.jsonl: before line {number}, lines are missing, or were moved or added")
        self.last = given
        self.learn(event)

    def learn(self, event: dict[str, Any]) -> None:
        self.events.append(event)
        exercise, student = event.get("exercise", ""), event.get("student", "")
        if event["event"] in ("forgotten", "expired"):
            gone = [at for at in self.known if (student or exercise) in at]
            for at in gone:
                del self.known[at]
            return
        if event["event"] == "lost":
            for known in self.known.values():
                if known.get("digest") in event["digests"]:
                    known["digest"] = ""
            return
        about = self.known.setdefault((exercise, student), {"files": {}})
        if "points" in event or "by_hand" in event:
            about["stale"] = self.known.setdefault((exercise, ""), {"files": {}})["stale"] = True
        about |= {name: event[name] for name in ("points", "by_hand", "digest") if name in event}
        if "files" in event:
            about["files"] = {n: sha for n, sha in (about["files"] | event["files"]).items() if sha}
            about["stale"] = False

    def add(self, event: str, exercise: str = "", student: str = "", **about: Any) -> None:
        """Write a line and wait until it is on the disk.

        Args:
            event: "started", "marked", "booked", "overruled", "wrote", "set aside", "edited", "forgotten", ...
            student: their id; the log gets the pseudonym.
            about: what else there is to say, as JSON.
        """
        line = {"time": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}", "event": event} | versions()
        line |= {"exercise": exercise} if exercise else {}
        line |= {"student": pseudonym(self.key, student)} if student else {}
        line |= {name: printable(v)[:LONGEST] if isinstance(v, str) else v for name, v in about.items()}
        line["before"] = self.last
        body = json.dumps(line, ensure_ascii=True)[:-1].encode()
        signed = signature(self.key, "log", body)
        data = b"\n" * self.torn + body + f', "signature": "{signed}"}}\n'.encode()
        self.torn = True  # until it is written: the disk may be full
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(file, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        self.torn, self.last = False, signed
        self.learn(line)

    def of(self, exercise: str, student: str = "") -> dict[str, Any]:
        """What the log says last of a student's exercise, or of an exercise."""
        return self.known.get((exercise, pseudonym(self.key, student) if student else ""), {"files": {}})

    def booked(
        self, book: Any, exercise: str, digests: dict[str, str], expected: Mapping[str, dict[str, float]] = {}
    ) -> list[str]:
        """Note what the gradebook says now, where it is not what the log knows.

        Call it after the class is booked. Points of the marking are noted for those alone whom this run has booked:
        whatever else changed in the gradebook, somebody else changed, and ``verify`` says so.

        Args:
            digests: of each student booked in this run, what decided the mark.
            expected: of each of them, the points of each part, by grade_id.

        Returns:
            Students whose points in the gradebook are not those that were booked. They are not noted.
        """
        wrong = []
        for (_, student), grades in in_book(book, exercise).items():
            points, by_hand = points_in(grades)
            known = self.of(exercise, student)
            if any(points.get(name) != of for name, of in expected.get(student, {}).items()):
                wrong.append(student)
                continue
            if student in digests and (points, digests[student]) != (known.get("points"), known.get("digest")):
                self.add("booked", exercise, student, digest=digests[student], points=points)
            if by_hand != (before := known.get("by_hand", {})):
                new = any(by_hand[name] != before.get(name) for name in by_hand)
                self.add("overruled" if new else "set aside", exercise, student, by_hand=by_hand)
        return wrong

    def wrote(self, exercise: str, files: list[Path], student: str = "") -> None:
        """Note the hashes of files written for a student, or of the tables, where they or the points are new."""
        known = self.of(exercise, student)
        hashes = {name_of(path, student): sha256(path) for path in files}
        if known.get("stale") or hashes.items() - known["files"].items():
            self.add("wrote", exercise, student, files=hashes)

    def lost(self, out: Path) -> dict[str, str]:
        """The files of results that are gone, by what decided them."""
        found = {}
        for (exercise, student), about in self.known.items():
            path = out / "results" / exercise / f"{about.get('digest')}.json"
            if student and about.get("digest") and not path.is_file():
                found[about["digest"]] = f"results/{exercise}/{path.name}"
        return found

    def put_aside(self, exercise: str, student: str) -> None:
        """Note that a student's feedback was moved to ``superseded/``."""
        files = self.of(exercise, student)["files"]
        moved = {"superseded": files.get("feedback", "")}
        self.add("set aside", exercise, student, files=dict.fromkeys(files, "") | moved)


def name_of(path: Path, student: str) -> str:
    """A file's name in the log: what a student gets is in a folder that names them."""
    return path.parents[2].name if student else path.name  # feedback/STUDENT/EXERCISE/EXERCISE.html


def sha256(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


@functools.cache
def versions() -> dict[str, str]:
    """Who is marking, where, and with which version of coursekit."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = str(os.getuid()) if hasattr(os, "getuid") else ""
    found = {"user": user, "host": socket.gethostname(), "version": coursekit.__version__}
    root = Path(coursekit.__file__).parents[1]
    if (root / ".git").exists():
        command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
            found["commit"] = done.stdout.strip()
    return {name: printable(text)[:LONGEST] for name, text in found.items()}


# --- gradebook -----------------------------------------------------------------------------------------


@contextlib.contextmanager
def gradebook(out: Path) -> Iterator[Any]:
    from nbgrader.api import Gradebook

    path = out.resolve() / "gradebook.db"
    if not path.is_file():
        raise GradingError(f"no gradebook in {out}: name the folder of a marking")
    refuse_triggers(path)
    with Gradebook(f"sqlite:///{path}", "course") as book:
        yield book


def in_book(book: Any, exercise: str | None = None) -> dict[tuple[str, str], dict[str, tuple]]:
    """(exercise, student) -> grade_id -> (points of the marking, points by hand, extra points)."""
    from nbgrader.api import Assignment, BaseCell, Grade, Student, SubmittedAssignment, SubmittedNotebook

    query = book.db.query(
        *(Assignment.name, Student.id, BaseCell.name, Grade.auto_score, Grade.manual_score, Grade.extra_credit)
    )
    query = query.select_from(Grade).join(BaseCell, Grade.cell_id == BaseCell.id)
    query = query.join(SubmittedNotebook, Grade.notebook_id == SubmittedNotebook.id)
    query = query.join(SubmittedAssignment, SubmittedNotebook.assignment_id == SubmittedAssignment.id)
    query = query.join(Assignment, SubmittedAssignment.assignment_id == Assignment.id)
    query = query.join(Student, SubmittedAssignment.student_id == Student.id)
    found: dict[tuple[str, str], dict[str, tuple]] = {}
    for name, student, cell, *points in query.order_by(Assignment.name, Student.id, BaseCell.name):
        if exercise in (None, name):
            found.setdefault((name, student), {})[cell] = tuple(points)
    return found


def points_in(grades: dict[str, tuple]) -> tuple[dict[str, float | None], dict[str, list[float | None]]]:
    """Points of the marking by grade_id, and those that a person set (with extra points) where one did."""
    points = {name: auto for name, (auto, _, _) in grades.items()}
    by_hand = {name: [manual, extra] for name, (_, manual, extra) in grades.items() if manual is not None or extra}
    return points, by_hand


# --- verify --------------------------------------------------------------------------------------------


def verify(out: Path, key: bytes, people: bool = True) -> list[str]:
    """What in the folder of a marking is not as the marking left it, in sentences; empty if all is.

    Args:
        people: count points that a person has set since the last marking as well. The next marking notes them.
    """
    log = Log(out, key)
    problems = list(log.problems)
    for path in sorted((out / "results").glob("*/*.json")):
        try:
            read_result(path, key)
        except Edited as error:
            problems.append(f"{error}; the next marking decides anew")
    problems += [f"{path} is gone; the next marking decides anew" for path in log.lost(out).values()]
    with gradebook(out) as book:
        grades, others = in_book(book), beside_points(book)
    names = {pseudonym(key, student): student for _, student in grades}
    for (exercise, student), found in grades.items():
        problems += in_gradebook(log, exercise, student, found, people)
    problems += others + in_files(log, out, names) + in_end(log)
    there = {(exercise, pseudonym(key, student)) for exercise, student in grades}
    for exercise, name in log.known:
        if name and "points" in log.known[exercise, name] and (exercise, name) not in there:
            problems.append(f"{exercise}: marks of {names.get(name, name)} are in the log and not in the gradebook")
    return problems


def in_gradebook(log: Log, exercise: str, student: str, grades: dict[str, tuple], people: bool) -> list[str]:
    known = log.of(exercise, student)
    points, by_hand = points_in(grades)
    where = f"{exercise}, {printable(student)}"
    if "points" not in known:
        if exercise in unfinished(log):  # ``in_end`` says so once
            return []
        return [f"{where}: marks are in the gradebook of which the log knows nothing; was its end cut off?"]
    booked = known["points"]
    problems = [
        f"{where}: {name} has {say(points.get(name))} in the gradebook, the marking booked {say(booked.get(name))}"
        for name in sorted({*points, *booked})
        if name not in points or points[name] != booked.get(name)
    ]
    before = known.get("by_hand", {})
    for name in sorted({*by_hand, *before}) if people else ():
        if by_hand.get(name) != before.get(name):
            now, then = (say(sum(filter(None, p))) if p else "none" for p in (by_hand.get(name), before.get(name)))
            problems.append(f"{where}: {name} has points by hand ({now}) that no marking has noted yet ({then})")
    return problems


def beside_points(book: Any) -> list[str]:
    """What nbgrader has room for and no marking writes: nbgrader would show other totals than the tables."""
    from sqlalchemy import text

    found = book.db.execute(
        text(
            "select a.name, s.student_id, n.late_submission_penalty, s.extension from submitted_assignment s "
            "join assignment a on a.id = s.assignment_id left join submitted_notebook n on n.assignment_id = s.id "
            "where n.late_submission_penalty <> 0 or s.extension is not null order by a.name, s.student_id"
        )
    )
    return [
        f"{exercise}, {printable(student)}: {what} is in the gradebook, which no marking writes and no table counts"
        for exercise, student, penalty, extension in found
        for what, is_there in (("a penalty", penalty), ("an extension", extension is not None))
        if is_there
    ]


def unfinished(log: Log) -> list[str]:
    """Exercises whose last marking has begun and not ended."""
    last = {event["exercise"]: event["event"] for event in log.events if event["event"] in ("started", "finished")}
    return sorted(exercise for exercise, event in last.items() if event == "started")


def in_end(log: Log) -> list[str]:
    """Markings that were begun and not finished, or whose end somebody has cut off the log."""
    words = "the last marking was not finished (marks may be in the gradebook that the log does not know yet), or the"
    return [f"{name}: {words} log's end was cut off; mark again" for name in unfinished(log)]


def in_files(log: Log, out: Path, names: dict[str, str]) -> list[str]:
    """Tables and what students get: changed, gone, older than the points, or not written here."""
    problems, right = [], set()
    for (exercise, name), about in log.known.items():
        student = names.get(name, "")
        if name and not student:
            continue
        for file, sha in about["files"].items():
            path = out / file
            if name:
                suffix = ".ipynb" if file == "autograded" else ".html"
                path = out / file / student / exercise / f"{exercise}{suffix}"
            right.add(path)
            if sha256(path) != sha:
                problems.append(f"{path.relative_to(out)} {'was changed' if path.exists() else 'is gone'}")
        if about.get("stale") and about["files"]:
            whose = f"the feedback of {printable(student)}" if name else "the tables"
            problems.append(f"{exercise}: {whose} may be older than the points; mark again to write them anew")
    paths = [path for kind in ("feedback", "superseded") for path in (out / kind).rglob("*")]
    pages = [path for path in paths if path.is_symlink() or not path.is_dir()]
    tables = out.glob("[0-9][0-9]_*.csv")  # which somebody could take for an exercise's
    strange = sorted({*pages, *tables} - right)
    return problems + [f"{path.relative_to(out)} was not written by a marking" for path in strange]


def say(points: float | None) -> str:
    return "no points" if points is None else f"{points:g} point{'s' * (points != 1)}"


# --- forget --------------------------------------------------------------------------------------------


def forget(out: Path, student: str, key: bytes) -> list[str]:
    """Remove everything that names a student, and say what that was; hold the lock of the marking.

    Their lines in the log stay, since the others hang on them. They hold a pseudonym, and nothing is left that leads
    from it to the student. (Whoever has the key and guesses the name can still see whether the guess is right.)

    Raises:
        GradingError: nothing here names that student.
    """
    log = Log(out, key)
    ids = {student, pseudonym(key, student)}  # marked by name, or anonymously
    removed = []
    with gradebook(out) as book:
        booked = sorted({found.id for found in book.students} & ids)
        for name in booked:
            book.remove_student(name)
            removed.append(f"{printable(name)} in the gradebook")
    if re.fullmatch(r"[\w.@-]+", student) and student.strip("."):  # as all ids are: the path of no other folder
        removed += [remove(out, out / kind / name) for kind in PERSONAL for name in ids if (out / kind / name).exists()]
    theirs = {pseudonym(key, name) for name in ids}
    removed += [remove(out, path) for path in results_of(log, out, theirs)]
    tables, words, names, quoted = set(), {*ids}, {student}, False
    for path in sorted(out.glob("*.csv")):
        if rows := remove_student(path, ids):
            tables.add(path)
            removed.append(f"{len(rows)} row{'s' * (len(rows) > 1)} of {path.name}")
            words |= {row.get(column, "").removeprefix("Participant ") for row in rows for column in NAMING}
            words |= {number for row in rows for number in re.findall(r"(?<=_)\d+(?=_)", row.get("file", ""))}
            names |= {row.get(column, "") for row in rows for column in ("name", "Full name", "Student")} - {""}
    for path in sorted(out.glob("*.csv")):  # what is booked for nobody may bear their name, in any spelling
        head, *lines = read_rows(path)
        found = set[str]().union(*(spelled(dict(zip(head, line)), names) for line in lines))
        words |= found
        quoted |= bool(found)
        if found and path.name == "identities.csv":
            count = remove_nobodys(path, names)
            removed.append(f"{count} row{'s' * (count > 1)} of what is booked for nobody in {path.name}")
    hidden = hiding(dict.fromkeys(words, "…"))
    for path in sorted(out.glob("*.csv")) if removed or quoted else ():
        if rows := hide_in(path, hidden):
            tables.add(path)
            removed.append(f"their name in {rows} other row{'s' * (rows > 1)} of {path.name}")
    if not removed:
        raise GradingError(f"nothing in {out} names a student {printable(student)!r}")
    if (out / "similar").exists():  # pairs of students; it can be made again
        removed.append(remove(out, out / "similar"))
    for name in booked or [student]:
        log.add("forgotten", student=name)
    for path in sorted(tables):
        for exercise, whose in list(log.known):
            if not whose and path.name in log.known[exercise, ""]["files"]:
                log.add("wrote", exercise, files={path.name: sha256(path)})
    overwrite_removed_rows(out)
    return removed


def expire(out: Path, before: datetime, key: bytes) -> list[str]:
    """Remove every exercise whose last marking was before a time, and say what that was; hold the lock of the marking.

    Students who have no marks left are removed with it.
    """
    log = Log(out, key)
    last: dict[str, str] = {}
    for event in log.events:
        if exercise := event.get("exercise"):
            last[exercise] = max(last.get(exercise, ""), event["time"])
    removed = []
    with gradebook(out) as book:
        for exercise in sorted(assignment.name for assignment in book.assignments):
            if exercise not in last:
                continue  # marked by an edition without a log: nothing says when
            if datetime.fromisoformat(last[exercise]) >= before:
                continue
            book.remove_assignment(exercise)
            removed.append(f"{exercise} in the gradebook, last marked {last[exercise][:10]}")
            paths = [path for kind in PERSONAL for path in out.glob(f"{kind}/*/{exercise}")]
            paths += [out / kind / exercise for kind in ("results", "source")]
            paths += [*out.glob(f"{exercise}.csv"), *out.glob(f"{exercise}_*.csv"), *out.glob(f"similar/{exercise}.*")]
            removed += [remove(out, path) for path in paths if path.exists()]
            log.add("expired", exercise)
        for student in [student.id for student in book.students if removed and not student.submissions]:
            book.remove_student(student)
            removed.append(f"{printable(student)} in the gradebook")
            for kind in PERSONAL:
                with contextlib.suppress(OSError):  # it is not there, or not empty
                    (out / kind / student).rmdir()
            log.add("forgotten", student=student)
        left = [student.id for student in book.students]
    if removed and (count := keep_identities(out / "identities.csv", left)):
        removed.append(f"{count} row{'s' * (count > 1)} of identities.csv")
    if removed:
        overwrite_removed_rows(out)
    return removed


def results_of(log: Log, out: Path, names: set[str]) -> list[Path]:
    """The results that only these students' hand-ins had, earlier ones included."""
    theirs, others = set(), set()
    for event in log.events:
        if "digest" in event:
            (theirs if event.get("student") in names else others).add((event.get("exercise"), event["digest"]))
    paths = [out / "results" / str(exercise) / f"{digest}.json" for exercise, digest in sorted(theirs - others)]
    return [path for path in paths if path.is_file()]


def remove(out: Path, path: Path) -> str:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
    return printable(str(path.relative_to(out)))


def overwrite_removed_rows(out: Path) -> None:
    """SQLite leaves what was removed in its file until something else needs the room."""
    try:
        with contextlib.closing(sqlite3.connect(out / "gradebook.db", timeout=30)) as database:
            database.execute("VACUUM")
    except sqlite3.OperationalError as error:
        raise GradingError(
            f"removed, but the gradebook could not be rewritten ({error}): close Formgrader, then run the same again"
        ) from None


# --- anonymous marking ---------------------------------------------------------------------------------


def without_names(found: list[Submission], key: bytes, roster: Iterable[Student] = ()) -> list[Submission]:
    """Copies that do not say whose they are, in the same order; a pseudonym takes the place of the id.

    Names and ids are taken out of flags and problems too, those of the roster included, but not out of what students
    wrote. A file that is nobody's gets a pseudonym of its own in ``file``, to be found in ``identities.csv``.
    """
    names = [pseudonym(key, submission.student or submission.file) for submission in found]
    words = {word: pseudonym(key, s.id) for s in roster for word in (s.id, s.name, s.email, s.platform_id)}
    for s, name in zip(found, names):  # flags quote the outermost folder or file, in which a name has any spelling
        words |= dict.fromkeys((s.file, s.file.partition("/")[0], s.student, s.name, s.platform_id), name)
    hidden = hiding(words)
    return [
        replace(
            s,
            student=name if s.student else "",
            file="" if s.student else name,
            name="",
            platform_id="",
            problem=hidden(s.problem),
            flags=[hidden(flag) for flag in s.flags],
        )
        for s, name in zip(found, names)
    ]


def hiding(words: Mapping[str, str]) -> Callable[[str], str]:
    """A function that puts other words into the places of names, in whatever case these are written."""
    lengths = (None, LONGEST_SHOWN - 1, LONGEST_WORD - 1)  # flags show the beginning of what is longer
    words = {word[:n].casefold(): other for n in lengths for word, other in words.items() if len(word) > 1}
    longest_first = sorted(words, key=len, reverse=True)
    letter = r"[^\W_]"  # in "Anna Schmidt_4711" a name ends at the underscore
    pattern = re.compile(rf"(?<!{letter})(?:{'|'.join(map(re.escape, longest_first))})(?!{letter})", re.IGNORECASE)
    return lambda text: pattern.sub(lambda match: words.get(match[0].casefold(), "…"), text) if words else text
