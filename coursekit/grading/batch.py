"""Mark a class: take in what was handed in, mark it in parallel, book it, write tables and feedback.

Everything that is decided about one submission is a file in ``out/results``, named after all that decided it.
A marking that was killed finds these files again and does only what is missing. Whatever goes wrong with one submission
becomes that one's row.
"""

import contextlib
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import nbformat

from coursekit.grading import GradingError, few, records, sandbox, shortened, walls
from coursekit.grading.book import Standing, answers_of, book_exercise, book_submission, open_book, standing
from coursekit.grading.closure import fingerprint
from coursekit.grading.cluster import marked_by_dask
from coursekit.grading.feedback import page
from coursekit.grading.folder import key_of, locked, make_folder, refuse_folder, refuse_private
from coursekit.grading.identity import Student, read_roster
from coursekit.grading.intake import Submission, submissions
from coursekit.grading.limited import TookTooLong, limited
from coursekit.grading.magics import as_python
from coursekit.grading.marking import LATER, SECONDS, check_hidden_cases, mark, seed_for
from coursekit.grading.notebooks import read_released
from coursekit.grading.plain import carried_together, unusual
from coursekit.grading.release import CHECK, checks_of, mark_up
from coursekit.grading.rules import borrowed_in, forbidden_in, shadowed_in
from coursekit.grading.tables import IDENTITIES, read_rows, write_tables

HIDDEN_DOUBT = "a file of theirs is in doubt: see identities.csv and the files' names"


@dataclass
class Row:
    """What came of one file (or of a student who handed in nothing)."""

    submission: Submission
    status: str = "marked"  # or "not marked", "nothing handed in", or "booked before, ..."
    notes: list[str] = field(default_factory=list)  # flags for the marker alone
    result: dict[str, Any] | None = None
    standing: Standing | None = None
    seed: int = 0
    digest: str = ""

    def fails(self, problem: str) -> None:
        self.status, self.result, self.standing = "not marked", None, None
        self.submission.problem = shortened(problem, 300)


@dataclass
class Outcome:
    """A marked class."""

    rows: list[Row]
    again: int  # results that were there from an earlier run
    of: int  # points of the exercise
    edited: list[str]  # what somebody has changed since the last marking


@dataclass
class Marking:
    """One exercise of a class in the folder ``out``, while it is marked."""

    exercise: str
    master: Any  # the released notebook
    out: Path
    key: bytes
    private: Path | None
    unsafe: bool
    rows: list[Row]
    log: records.Log
    book: Any = None

    def result_path(self, row: Row) -> Path:
        return self.out / "results" / self.exercise / f"{row.digest}.json"

    @property
    def of(self) -> int:
        return sum(mark_up(cell)["points"] for cell in self.master.cells if mark_up(cell).get("grade"))


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
    anonymous: bool = False,
    unsafe: bool = False,
    scheduler: str | None = None,
    tls: Path | None = None,
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
        anonymous: who marks sees pseudonyms; the names are in the platforms' tables and in ``identities.csv`` alone.
        unsafe: run student code without the sandbox.
        scheduler: address of a Dask scheduler whose workers do the marking instead.
        tls: folder with the cluster's certificate.
        start: called once with the number of submissions, before the first is marked.
        progress: called with the number of submissions done and of all.

    Raises:
        GradingError: nothing can be marked: no sandbox, no such exercise, no such folder, nothing readable in it,
            a mistake in the hidden cases. What lies in ``out`` is not touched then.
    """
    master = released(exercise, home)
    if not unsafe and not scheduler and (problem := walls.why_not()):
        raise GradingError(f"not marked: {problem}; --unsafe marks without walls around the students' code")
    refuse_folder(out, paths)
    refuse_private(private, exercise, list(read_released(home)))
    if private:
        check_hidden_cases(str(private), exercise)
    students = read_roster(roster) if roster else []
    collected = submissions(paths, exercise, students, home)
    refuse_unreadable(collected.found)
    make_folder(out)
    with locked(out), records.private(out):
        key = key_of(out, private)
        rows = [Row(submission) for submission in collected.found]
        rows += absent(students, rows)
        for row in rows:
            s = row.submission
            row.seed = seed_for(key, exercise, s.student or s.file, s.answers)
            row.notes += collected.doubts.get(row.submission.student, [])
        log = records.Log(out, key)
        edited = changed_by_hand(log, out, key)
        doubts = collected.doubts
        real = hide_names(rows, key, students) if anonymous else None
        if real is not None:
            doubts = {records.pseudonym(key, student): [HIDDEN_DOUBT] for student in doubts}
            real = known_before(out) | real
        marking = Marking(exercise, master, out, key, private, unsafe, rows, log)
        jobs = jobs_of(marking, due)
        with contextlib.closing(open_book(out)) as marking.book:
            book_exercise(marking.book, out, exercise, master)
            refuse_other_names(marking, {student.id for student in students}, anonymous)
            log.add("started", exercise, submissions=len(collected.found), unsafe=unsafe, anonymous=anonymous)
            start(len(jobs))
            again = mark_all(marking, jobs, workers, scheduler, tls, progress)
            rows += gone(marking, doubts)
            write_feedback(marking)
        for row in rows:
            row.submission.flags += row.notes
        marking.log.wrote(exercise, write_tables(rows, out, exercise, master, marking.of, real))
        marking.log.add("finished", exercise)
        return Outcome(rows, again, marking.of, edited)


def changed_by_hand(log: records.Log, out: Path, key: bytes) -> list[str]:
    """What is not as the last marking left it, but for points that people set; booking anew would hide some of it."""
    if not log.events and not log.problems:
        return []  # nothing was marked here yet, or by an edition that kept no log
    problems = records.verify(out, key, people=False) if (out / "gradebook.db").is_file() else log.problems
    log.add("verified", problems=len(problems))
    if lost := log.lost(out):
        log.add("lost", digests=sorted(lost))  # it is said once: whoever wants all marked again takes them away
    return problems


def released(exercise: str, home: Path) -> Any:
    path = home / "exercises" / exercise / f"{exercise}.ipynb"
    if not path.is_file():
        raise GradingError(f"no exercise {exercise!r}: {path} is not there ('coursekit release' makes it)")
    return nbformat.read(path, as_version=4)


def refuse_unreadable(found: list[Submission]) -> None:
    """Where no file at all can be marked the export is broken or the wrong one: a class's marks must not vanish."""
    problems = [f"{submission.file}: {submission.problem}" for submission in found if submission.problem]
    if len(problems) == len(found):
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise GradingError(f"nothing that can be marked was handed in: {problems[0]}{more}")


def hide_names(rows: list[Row], key: bytes, students: list[Student]) -> dict[str, Submission]:
    """Put pseudonyms in the place of the students; return who they are."""
    real = [row.submission for row in rows]
    for row, hidden in zip(rows, records.without_names(real, key, students)):
        row.submission = hidden
        row.notes = [HIDDEN_DOUBT] * bool(row.notes)
    return {row.submission.student or row.submission.file: s for row, s in zip(rows, real)}


def known_before(out: Path) -> dict[str, Submission]:
    """Who the pseudonyms of earlier markings are."""
    path = out / "identities.csv"
    rows = read_rows(path)[1:] if path.exists() else []
    return {row[0]: Submission(row[4], row[1], row[3], row[2]) for row in rows if len(row) == len(IDENTITIES)}


def refuse_other_names(marking: Marking, ids: set[str], anonymous: bool) -> None:
    """Refuse to call students otherwise than they were booked: what people set for them by hand would be lost."""
    booked = {s.student.id for s in marking.book.assignment_submissions(marking.exercise)}
    if booked and anonymous != all(map(records.is_pseudonym, booked)):
        was = "with names" if anonymous else "with --anonymous"
        raise GradingError(f"{marking.exercise} was marked {was} in {marking.out}: do the same, or mark anew elsewhere")
    for row in marking.rows:
        number, student = row.submission.platform_id, row.submission.student
        if ids and number != student and number in booked - ids:
            raise GradingError(
                f"{number} was marked here before the roster called them {student}: mark into a new folder"
            )


# --- marking -------------------------------------------------------------------------------------------


def jobs_of(marking: Marking, due: datetime | None) -> dict[int, dict[str, Any]]:
    """What is to be marked, by the number of its row; and flags on what a person should look at."""
    given = "\n".join(cell.source for cell in marking.master.cells if cell.cell_type == "code")
    all_of_it = "\n".join(cell.source for cell in marking.master.cells)
    decides = fingerprint(checks_of(marking.exercise).__name__, given)
    jobs = {}
    for number, row in enumerate(marking.rows):
        if row.status != "marked":
            continue
        flag_late(row.submission, due)
        if row.submission.problem:
            row.status = "not marked"
            continue
        try:
            try:
                with limited(SECONDS):
                    row.notes += notes_on(marking, row.submission.answers, all_of_it)
            except (TookTooLong, RecursionError):
                row.notes.append("its code is so long or nested that it could not be looked through: read it")
            job = {
                "exercise": marking.exercise,
                "master": marking.master,
                "answers": row.submission.answers,
                "seed": row.seed,
                "private": str(marking.private.resolve()) if marking.private else None,
                "unsafe": marking.unsafe,
            }
            row.digest = digest(job, decides)
            jobs[number] = job
        except Exception as error:
            row.fails(f"not marked: {type(error).__name__}: {error}")
    return jobs


def digest(job: dict[str, Any], decides: str) -> str:
    """Of all that decides a mark: the answers, the exercise, the seed, hidden cases, and the code and versions."""
    private = Path(job["private"] or "", f"{job['exercise']}.py")
    hidden = private.read_bytes() if job["private"] and private.is_file() else b""
    state = hashlib.sha256(json.dumps(job, sort_keys=True).encode())
    state.update(decides.encode() + hidden)
    return state.hexdigest()[:32]


def notes_on(marking: Marking, answers: dict[str, str], released: str) -> list[str]:
    """What a person should look at in the code: what it borrows from the course, and what a part forbids."""
    checks = checks_of(marking.exercise)
    code = {name: source for name, source in answers.items() if name not in checks.WRITTEN}
    given, stubs, above = around_answers(marking.master)
    notes = []
    for name, source in code.items():
        place, text = above[name]
        notes += [f"{name} {words}" for words in few(borrowed_in(source, given, place, text))]
        notes += [f"{name} {words}: read it" for words in few(shadowed_in(source, given, stubs, place))]
        if found := unusual(source, released):
            shown = ", ".join(few([shortened(what, 60) for what in found]))
            notes.append(f"{name} uses {shown}, which few answers need: worth a look")
    for found in carried_together(code.values()):
        notes.append(f"the answers have {found} in all: worth a look")
    behind = answers_of(marking.master)
    for part in checks.PARTS:
        for name in behind.get(CHECK + part.name, []):
            if unread := part.unread({"": answers.get(name, "")}):
                notes.append(f"{name} is not marked, {unread.partition(':')[0]}: read it")
            if named := forbidden_in(answers.get(name, ""), part.forbidden):
                notes.append(f"{name} names {named}, which it must not use")
    return notes


def around_answers(notebook: nbformat.NotebookNode) -> tuple[list[str], list[str], dict[str, tuple[int, str]]]:
    """The code of a released notebook's given cells, its stubs, and what stands above each answer.

    The last is, by the answer's name, the number of given cells above it, and all text and code there.
    """
    given: list[str] = []
    stubs: list[str] = []
    above, told = {}, ""
    for cell in notebook.cells:
        told += cell.source + "\n"
        if mark_up(cell).get("solution"):
            above[mark_up(cell)["grade_id"]] = len(given), told
            stubs += [cell.source] * (cell.cell_type == "code")
        elif cell.cell_type == "code":
            given.append(as_python(cell.source))
    return given, stubs, above


def flag_late(submission: Submission, due: datetime | None) -> None:
    if due and submission.handed_in and submission.handed_in > due:
        minutes = int((submission.handed_in - due).total_seconds() // 60)
        days, hours = minutes // 1440, minutes // 60 % 24
        submission.flags.append(f"late by {f'{days} d ' if days else ''}{hours} h {minutes % 60} min")
    elif submission.late:
        submission.flags.append("late, says the platform")


def mark_all(
    marking: Marking,
    jobs: dict[int, dict[str, Any]],
    workers: int,
    scheduler: str | None,
    tls: Path | None,
    progress: Callable[[int, int], None],
) -> int:
    """Find or make the result of every job, and book it; return how many were there from an earlier run."""
    ready = {n: found for n in jobs if (found := earlier(marking, marking.rows[n])) is not None}
    waiting = {number: job for number, job in jobs.items() if number not in ready}
    results = marked(waiting, {n: marking.rows[n].digest for n in waiting}, workers, scheduler, tls)
    booked, points = {}, {}
    for done, (number, result) in enumerate(chain_of(ready, results), 1):
        row = marking.rows[number]
        try:
            if "failed" in result:
                row.fails(result["failed"])
            else:
                if number not in ready:
                    records.store(marking.result_path(row), result, marking.key)
                    whose = row.submission.student or row.submission.file
                    marking.log.add("marked", marking.exercise, whose, digest=row.digest)
                finish(marking, row, result)
                if row.submission.student:
                    booked[row.submission.student] = row.digest
                    points[row.submission.student] = {CHECK + p["name"]: p["points"] for p in result["parts"]}
        except Exception as error:  # one strange submission must not stop the class
            marking.book.db.rollback()
            row.fails(f"marked, but could not be booked: {type(error).__name__}: {error}")
        progress(done, len(jobs))
    changed = marking.log.booked(marking.book, marking.exercise, booked, points)
    for row in marking.rows:
        if row.submission.student in changed:
            row.fails("not booked: somebody is changing the gradebook's points while they are booked")
    return len(ready)


def chain_of(ready: dict[int, Any], results: Iterator[tuple[int, Any]]) -> Iterator[tuple[int, dict[str, Any]]]:
    yield from ready.items()
    yield from results


def earlier(marking: Marking, row: Row) -> dict[str, Any] | None:
    """The result of an earlier run; one that was edited since is not believed."""
    try:
        return records.stored(marking.result_path(row), marking.key)
    except records.Edited as error:
        row.notes.append(f"{error}; it was marked again")
        marking.log.add("edited", marking.exercise, row.submission.student, digest=row.digest)
        marking.result_path(row).unlink(missing_ok=True)
        return None


def marked(
    jobs: dict[int, dict], digests: dict[int, str], workers: int, scheduler: str | None, tls: Path | None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The results of the jobs, as they come. What fails for a reason of the machine is ``{"failed": why}``."""
    if scheduler:
        for number, future in marked_by_dask(jobs, digests, scheduler, tls):
            yield number, result_of(future)
        return
    with ThreadPoolExecutor(workers) as pool:
        futures = {pool.submit(mark, job): number for number, job in jobs.items()}
        try:
            for future in as_completed(futures):
                yield futures[future], result_of(future)
        except BaseException:
            sandbox.stop.set()  # the runs that are under way end at once; what is done is stored
            raise
        finally:
            pool.shutdown(cancel_futures=True)
            sandbox.stop.clear()


def result_of(future: Any) -> dict[str, Any]:
    try:
        return future.result()
    except Exception as error:
        return {"failed": f"marking failed, mark it again: {error or type(error).__name__}"}


def finish(marking: Marking, row: Row, result: dict[str, Any]) -> None:
    """Flag what is strange in a result, and book it."""
    row.result = result
    for part in result["parts"]:
        if any("NameError" in aspect["words"] for aspect in part["aspects"]):
            later = any(LATER in aspect["words"] for aspect in part["aspects"])
            why = (
                "the answer needs a cell below its check" if later else "does the answer need a cell that is not read?"
            )
            row.submission.flags.append(f"{part['name']}: a NameError; {why}")
    for part in result["parts"]:
        if part["problem"] and part["problem"] != "not answered":
            row.submission.flags.append(f"{part['name']} did not run: {part['problem']}")
    if row.submission.student:
        given = (marking.exercise, marking.master, row.submission, row.submission.answers, result)
        book_submission(marking.book, marking.out, *given)


# --- after the marking ---------------------------------------------------------------------------------


def absent(students: list[Student], rows: list[Row]) -> list[Row]:
    there = {row.submission.student for row in rows}
    return [
        Row(Submission("", student=s.id, name=s.name, platform_id=s.platform_id), status="nothing handed in")
        for s in students
        if s.id not in there
    ]


def gone(marking: Marking, doubts: dict[str, list[str]]) -> list[Row]:
    """Students who are booked, but whose hand-in is not there any more; their feedback is put aside.

    Where something is there that could be theirs, the earlier mark stays as it was, with feedback and in all tables.
    """
    rows = {row.submission.student: row for row in marking.rows}
    found = []
    for submission in marking.book.assignment_submissions(marking.exercise):
        name = submission.student.id
        if name in rows and rows[name].status != "nothing handed in":
            continue
        if name not in rows:
            found.append(Row(Submission("", student=name), notes=doubts.get(name, [])))
        row = rows.get(name) or found[-1]
        if name in doubts:
            row.status = "booked before, now in doubt"
            with contextlib.suppress(Exception):  # somebody took rows out of the gradebook
                row.standing = standing(marking.book, marking.exercise, name)
            continue
        row.status = "booked before, no longer handed in"
        page = marking.out / "feedback" / name / marking.exercise
        if page.is_dir():
            aside = marking.out / "superseded" / name / marking.exercise
            shutil.rmtree(aside, ignore_errors=True)
            aside.parent.mkdir(parents=True, exist_ok=True)
            page.rename(aside)
            marking.log.put_aside(marking.exercise, name)
    return found


def write_feedback(marking: Marking) -> None:
    """A page for each student, with what people set and wrote in the gradebook."""
    for row in marking.rows:
        student = row.submission.student
        if not row.result or not student:
            continue
        try:
            row.standing = standing(marking.book, marking.exercise, student)
            given = (marking.exercise, marking.master, row.submission, row.submission.answers, row.result)
            path = marking.out / "feedback" / student / marking.exercise / f"{marking.exercise}.html"
            records.write(path, page(*given, row.standing))
            notebook = marking.out / "autograded" / student / marking.exercise / f"{marking.exercise}.ipynb"
            marking.log.wrote(marking.exercise, [path, notebook], student)
            row.notes += row.standing.earlier
        except Exception as error:
            row.notes.append(f"no feedback could be written: {type(error).__name__}: {error}")
