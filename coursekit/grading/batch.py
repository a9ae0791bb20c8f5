"""Mark a class: take in what was handed in, mark it in parallel, book it, write tables and feedback.

Everything that is decided about one submission is a file in ``out/results``, named after all that decided it.
A marking that was killed finds these files again and does only what is missing.
"""

import contextlib
import csv
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import nbformat

from coursekit.files import write_atomically
from coursekit.grading import GradingError, sandbox
from coursekit.grading.book import Standing, book_exercise, book_submission, open_book, standing
from coursekit.grading.feedback import page
from coursekit.grading.intake import Student, Submission, answers, read_released, read_roster, submissions
from coursekit.grading.marking import check_hidden_cases, mark, seed_for
from coursekit.grading.release import checks_of, mark_up


@dataclass
class Row:
    """What came of one file (or of a student who handed in nothing)."""

    submission: Submission
    status: str = "marked"  # or "not marked", "nothing handed in"
    answers: dict[str, str] = field(default_factory=dict)
    result: dict[str, Any] | None = None
    standing: Standing | None = None
    digest: str = ""


@dataclass
class Outcome:
    """A marked class."""

    rows: list[Row]
    again: int  # results that were there from an earlier run
    of: int  # points of the exercise


def grade(
    exercise: str,
    paths: list[Path],
    out: Path,
    home: Path,
    *,
    private: Path | None = None,
    workers: int = 1,
    roster: Path | None = None,
    due: datetime | None = None,
    unsafe: bool = False,
    scheduler: str | None = None,
    start: Callable[[int], None] = lambda of: None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Outcome:
    """Mark every submission under ``paths`` and write everything into ``out``.

    Args:
        exercise: its name; ``home / "exercises"`` holds the released notebook.
        private: a folder with the secret ``key`` and, in ``EXERCISE.py``, hidden cases. Without it the key
            lies in ``out``.
        workers: submissions at a time on this machine.
        roster: a CSV of the class.
        due: later submissions are flagged.
        unsafe: run student code without the sandbox.
        scheduler: address of a Dask scheduler whose workers do the marking instead.
        start: called once with the number of submissions, before the first is marked.
        progress: called with the number of submissions done and of all.

    Raises:
        GradingError: nothing can be marked: no sandbox, no such exercise, no such folder, nothing readable in it,
            a mistake in the hidden cases. What lies in ``out`` is not touched then.
    """
    path = home / "exercises" / exercise / f"{exercise}.ipynb"
    if not path.is_file():
        raise GradingError(f"no exercise {exercise!r}: {path} is not there ('coursekit release' makes it)")
    if not unsafe and not scheduler and (problem := sandbox.why_not()):
        raise GradingError(f"not marked: {problem}; --unsafe marks without walls around the students' code")
    master = nbformat.read(path, as_version=4)
    for path in paths:
        if path.is_dir() and out.resolve().is_relative_to(path.resolve()):
            raise GradingError(f"the results in {out} would be read as handed in, since it lies inside {path}")
    if private and not private.is_dir():
        raise GradingError(f"no private folder {private}: make it first (a new key would draw other cases)")
    refuse_other_files(out)
    released = read_released(home)
    if private:
        refuse_misnamed(private, exercise, list(released))
        check_hidden_cases(str(private), exercise)
    students = read_roster(roster) if roster else []
    rows = [Row(submission) for submission in submissions(paths, exercise, students, released)]
    refuse_unreadable(rows)
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / ".writable").touch()
        (out / ".writable").unlink()
    except OSError as error:
        raise GradingError(f"cannot write results into {out}: {error.strerror}") from None
    with locked(out):
        if private and (out / "key").exists() and (private / "key").exists():
            raise GradingError(
                f"marks in {out} are drawn by the key that lies there, others by the key in {private}: leave --private "
                "out here, or mark anew into another --out"
            )
        if private and (out / "key").exists():
            raise GradingError(
                f"marks in {out} are drawn by the key that lies there: move {out / 'key'} into {private}, so that they "
                "stay as they are, or leave --private out"
            )
        key = secret_key(private or out)
        given = "\n".join(cell.source for cell in master.cells)
        jobs: dict[int, dict[str, Any]] = {}
        for number, row in enumerate(rows):
            flag_late(row.submission, due)
            if row.submission.problem:
                row.status = "not marked"
                continue
            row.answers = answers(master.cells, row.submission)
            flag_borrowed(row, given)
            seed = seed_for(key, exercise, row.submission.student or row.submission.file)
            jobs[number] = {
                "exercise": exercise,
                "master": master,
                "answers": row.answers,
                "seed": seed,
                "private": str(private.resolve()) if private else None,
                "unsafe": unsafe,
            }
            row.digest = digest(jobs[number])
        results = out / "results" / exercise
        results.mkdir(parents=True, exist_ok=True)
        ready = {n: found for n in jobs if (found := stored(results / f"{rows[n].digest}.json")) is not None}
        with contextlib.closing(open_book(out)) as book:
            book_exercise(book, out, exercise, master)
            same_students(book, exercise, rows)
            start(len(jobs))
            book_row = partial(finish, book=book, out=out, exercise=exercise, master=master)
            for count, (number, result) in enumerate(ready.items(), 1):
                book_row(rows[number], result)
                progress(count, len(jobs))
            waiting = {number: job for number, job in jobs.items() if number not in ready}
            for count, (number, result) in enumerate(marked(waiting, workers, scheduler), len(ready) + 1):
                if "failed" in result:
                    rows[number].status, rows[number].submission.problem = "not marked", result["failed"]
                else:
                    store(results / f"{rows[number].digest}.json", result)
                    book_row(rows[number], result)
                progress(count, len(jobs))
            rows += absent(students, rows)
            rows += gone(book, out, exercise, rows)
            for row in rows:
                if row.result and row.submission.student:
                    row.standing = standing(book, exercise, row.submission.student)
                    text = page(exercise, master, row.submission, row.answers, row.result, row.standing)
                    write(out / "feedback" / row.submission.student / exercise / f"{exercise}.html", text)
                    row.submission.flags += row.standing.earlier  # for the marker: the page is written
        of = sum(mark_up(cell)["points"] for cell in master.cells if mark_up(cell).get("grade"))
        write_tables(rows, out, exercise, master, of)
        return Outcome(rows, len(ready), of)


def refuse_unreadable(rows: list[Row]) -> None:
    """Where no file at all can be marked the export is broken or the wrong one: a class's marks must not vanish."""
    problems = [f"{row.submission.file}: {row.submission.problem}" for row in rows if row.submission.problem]
    if len(problems) == len(rows):
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise GradingError(f"nothing that can be marked was handed in: {problems[0]}{more}")


def refuse_other_files(out: Path) -> None:
    """Marks, names and the secret key do not belong among what is no marking's, such as the course's own folders."""
    if out.is_dir() and any(out.iterdir()) and not any((out / mine).exists() for mine in (".lock", "results")):
        raise GradingError(f"{out} holds something else: name a new folder, or that of an earlier marking")


def refuse_misnamed(private: Path, exercise: str, exercises: list[str]) -> None:
    """Hidden cases under a name that is no exercise's would be passed over without a word."""
    for path in sorted(private.glob("*.py")):
        if path.stem not in exercises:
            right = next((name for name in exercises if path.stem in name.split("_", 1)), exercise)
            raise GradingError(f"{path} is no exercise's: the hidden cases of {right} belong in {private / right}.py")


@contextlib.contextmanager
def locked(out: Path) -> Iterator[None]:
    """One marking at a time in a folder; the lock ends with the process."""
    try:
        import fcntl
    except ModuleNotFoundError:  # not on Windows
        yield
        return
    with (out / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise GradingError(f"another marking is at work in {out}: wait for it, or name another folder") from None
        yield


def marked(jobs: dict[int, dict], workers: int, scheduler: str | None) -> Iterator[tuple[int, dict[str, Any]]]:
    """The results of the jobs, as they come. What fails for a reason of the machine is ``{"failed": why}``."""
    if scheduler:
        yield from marked_by_dask(jobs, scheduler)
        return
    with ThreadPoolExecutor(workers) as pool:
        futures: dict[Future, int] = {pool.submit(mark, job): number for number, job in jobs.items()}
        try:
            for future in as_completed(futures):
                yield futures[future], result_of(future)
        except BaseException:
            sandbox.stop.set()  # the runs that are under way end at once; what is done is stored
            raise
        finally:
            pool.shutdown(cancel_futures=True)
            sandbox.stop.clear()


def marked_by_dask(jobs: dict[int, dict], scheduler: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The same on a cluster: a job whose worker dies is given to another by Dask."""
    try:
        from distributed import Client
        from distributed import as_completed as as_dask_completes
    except ModuleNotFoundError:
        raise GradingError("--scheduler needs Dask: pip install 'attention-course[grade,dask]'") from None
    try:
        client = Client(scheduler)  # it waits as long as Dask's "comm.timeouts.connect" says
    except (OSError, ValueError) as error:
        raise GradingError(f"no Dask scheduler answers at {scheduler}: {error}") from None
    with client:
        futures = {
            client.submit(mark_walled, job, key=f"mark-{digest(job)}-{n}", pure=False): n for n, job in jobs.items()
        }
        for future in as_dask_completes(list(futures)):
            yield futures[future], result_of(future)


def mark_walled(job: dict[str, Any]) -> dict[str, Any]:
    """``mark`` on a machine that was not asked yet whether it has a sandbox."""
    if not job["unsafe"] and (problem := sandbox.why_not()):
        raise GradingError(problem)
    return mark(job)


def result_of(future: Any) -> dict[str, Any]:
    try:
        return future.result()
    except Exception as error:
        return {"failed": f"marking failed, mark it again: {error or type(error).__name__}"}


# --- what decides a mark -------------------------------------------------------------------------------


def secret_key(folder: Path) -> bytes:
    """The key of the secret seeds; made at the first marking, readable by its owner alone."""
    path = folder / "key"
    try:
        if not path.exists():
            if any((folder / "results").glob("*/*.json")):
                raise GradingError(
                    f"the secret key {path} is gone: if --private was given before, give it again; if not, put the key "
                    "back, since a new one would draw every mark anew"
                )
            unfinished = path.with_name(f"key.{os.getpid()}")
            with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(secrets.token_hex(32) + "\n")
            unfinished.rename(path)
        key = bytes.fromhex(path.read_text(encoding="ascii").strip())
    except (OSError, ValueError) as error:
        raise GradingError(f"cannot use the secret key {path}: {error}") from None
    if len(key) < 16:
        raise GradingError(f"the secret key {path} is shorter than 16 bytes: delete it, and a new one is made")
    return key


def digest(job: dict[str, Any]) -> str:
    """Of all that decides a mark: the answers, the exercise, its checks, the seed, the hidden cases."""
    checks = checks_of(job["exercise"])
    private = Path(job["private"] or "", f"{job['exercise']}.py")
    sources = [Path(checks.__file__), *(Path(__file__).with_name(name) for name in ("parts.py", "calls.py"))]
    if job["private"] and private.is_file():
        sources.append(private)
    state = hashlib.sha256(json.dumps(job, sort_keys=True).encode())
    for path in sources:
        state.update(hashlib.sha256(path.read_bytes()).digest())
    return state.hexdigest()[:32]


def stored(path: Path) -> dict[str, Any] | None:
    """An earlier result; None where there is none, or where a busy machine may have caused it."""
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return None if result["unsure"] else result


def store(path: Path, result: dict[str, Any]) -> None:
    """What ended for lack of time or memory is tried once more at the next run, and then believed."""
    result["unsure"] &= not path.exists()
    write(path, json.dumps(result, indent=1, ensure_ascii=False) + "\n")


def write(path: Path, text: str) -> None:
    write_atomically(path, lambda unfinished: unfinished.write_text(text, encoding="utf-8"))


def finish(row: Row, result: dict[str, Any], *, book: Any, out: Path, exercise: str, master: Any) -> None:
    row.result = result
    for part in result["parts"]:
        if any("NameError" in aspect["words"] for aspect in part["aspects"]):
            row.submission.flags.append(f"{part['name']}: a NameError; does the answer need a cell that is not read?")
    for part in result["parts"]:
        if part["problem"] and part["problem"] != "not answered":
            row.submission.flags.append(f"{part['name']} did not run: {part['problem']}")
    if row.submission.student:
        try:
            book_submission(book, out, exercise, master, row.submission, row.answers, result)
        except Exception as error:  # one strange file must not stop the class
            book.db.rollback()
            row.result, row.status = None, "not marked"
            row.submission.problem = f"marked, but could not be booked: {type(error).__name__}: {error}"[:300]


def flag_late(submission: Submission, due: datetime | None) -> None:
    if due and submission.handed_in and submission.handed_in > due:
        minutes = int((submission.handed_in - due).total_seconds() // 60)
        days, hours = minutes // 1440, minutes // 60 % 24
        submission.flags.append(f"late by {f'{days} d ' if days else ''}{hours} h {minutes % 60} min")
    elif submission.late:
        submission.flags.append("late, says the platform")


def flag_borrowed(row: Row, given: str) -> None:
    """Say where an answer imports from the course what the exercise did not give it: a person decides on that."""
    for name, source in row.answers.items():
        for module in dict.fromkeys(re.findall(r"(?:from|import)\s+(coursekit[\w.]*)", source)):
            if module not in given:
                row.submission.flags.append(f"{name} imports {module}")


def same_students(book: Any, exercise: str, rows: list[Row]) -> None:
    """Refuse a roster that gives other names to students who were booked without it: marks by hand would be lost."""
    booked = {submission.student.id for submission in book.assignment_submissions(exercise)}
    for row in rows:
        s = row.submission
        if s.platform_id and s.platform_id != s.student and s.platform_id in booked:
            raise GradingError(
                f"{s.platform_id} was marked here before the roster called them {s.student}: mark into a new folder"
            )


def gone(book: Any, out: Path, exercise: str, rows: list[Row]) -> list[Row]:
    """Students who are booked, but whose hand-in is not there any more; their feedback is put aside."""
    marked = {row.submission.student for row in rows if row.result}
    found = []
    for submission in book.assignment_submissions(exercise):
        name = submission.student.id
        page = out / "feedback" / name / exercise
        if name in marked:
            continue
        if page.is_dir():
            aside = out / "superseded" / name / exercise
            shutil.rmtree(aside, ignore_errors=True)
            aside.parent.mkdir(parents=True, exist_ok=True)
            page.rename(aside)
        found.append(Row(Submission("", student=name), status="booked before, no longer handed in"))
    return found


def absent(students: list[Student], rows: list[Row]) -> list[Row]:
    there = {row.submission.student for row in rows}
    return [
        Row(Submission("", student=s.id, name=s.name, platform_id=s.platform_id), status="nothing handed in")
        for s in students
        if s.id not in there
    ]


# --- tables --------------------------------------------------------------------------------------------


def write_tables(rows: list[Row], out: Path, exercise: str, master: Any, of: int) -> None:
    """One line for each file, and what Moodle and Canvas take."""
    graded = [mark_up(cell)["grade_id"] for cell in master.cells if mark_up(cell).get("grade")]
    lines = []
    for row in rows:
        s, result = row.submission, row.result
        if row.standing:
            points = row.standing.points
        else:
            points = {f"check-{part['name']}": part["points"] for part in result["parts"]} if result else {}
        numbers = [("" if points.get(name) is None else f"{points[name]:g}") for name in graded]
        waits = any(points.get(name) is None for name in graded)
        total = "" if not result else f"{sum(p for p in points.values() if p is not None):g}"
        when = s.handed_in.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if s.handed_in else ""
        state = row.status if not result else "waits for a person" if waits else "marked"
        details = " | ".join(result["details"]) if result else ""
        flags = "; ".join([*([s.problem] if s.problem else []), *s.flags])
        lines.append([s.student, s.name, s.file, when, state, total, of, *numbers, flags, details])
    names = [name.removeprefix("check-") for name in graded]
    head = ["student", "name", "file", "handed_in", "status", "total", "of", *names, "flags", "details"]
    write_csv(out / f"{exercise}.csv", [head, *lines])
    booked = [row for row in rows if row.standing]
    finals = [(r.submission, f"{r.standing.total:g}" if not r.standing.waiting else "") for r in booked]
    head = "Identifier,Full name,ID number,Grade,Maximum Grade,Last modified (grade),Feedback comments"
    moodle = [head.split(",")]
    for s, total in finals:
        identifier = f"Participant {s.platform_id}" if s.platform_id else ""
        own = s.student if s.student != s.platform_id else ""  # without a roster only the platform's number is known
        moodle.append([identifier, s.name, own, total, of, "", ""])
    write_csv(out / f"{exercise}_moodle.csv", moodle)
    canvas = [["Student", "ID", "SIS User ID", "SIS Login ID", "Section", exercise]]
    canvas.append(["Points Possible", "", "", "", "", of])
    for s, total in finals:
        own = s.student if s.student != s.platform_id else ""
        if total:  # an empty cell would wipe what stands there
            canvas.append([s.name, s.platform_id, own, "", "", total])
    write_csv(out / f"{exercise}_canvas.csv", canvas)


def write_csv(path: Path, lines: list[list[Any]]) -> None:
    def fill(unfinished: Path) -> None:
        with unfinished.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([[no_formula(cell) for cell in line] for line in lines])

    write_atomically(path, fill)


def no_formula(cell: Any) -> Any:
    """Text that a spreadsheet would run, such as a file called ``=cmd|...``, gets a quote before it."""
    text = " ".join(cell.split()) if isinstance(cell, str) else cell
    return f"'{text}" if isinstance(text, str) and text[:1] in ("=", "+", "-", "@") else text
