"""nbgrader's gradebook: book marks into it, and read what people wrote into it by hand.

The folder of a marking is a course of nbgrader's: its formgrader opens there for the written questions.
"""

import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat

from coursekit.files import write_atomically
from coursekit.grading import GradingError
from coursekit.grading.intake import Submission
from coursekit.grading.release import CHECK, mark_up, with_tools_on_path

FOR_EARLIER = "for an earlier answer"  # ends the first line of a note on what a person had set
NBGRADER_CONFIG = """# For nbgrader and its formgrader, started in this folder; written by `coursekit grade`.
from pathlib import Path

here = Path(__file__).resolve().parent
c = get_config()
c.CourseDirectory.root = str(here)
c.CourseDirectory.course_id = "course"
c.CourseDirectory.db_url = f"sqlite:///{here / 'gradebook.db'}"
c.Exchange.root = str(here / "exchange")
"""


@dataclass
class Standing:
    """What the gradebook says of one student's exercise."""

    points: dict[str, float | None] = field(default_factory=dict)  # by grade_id; None: waits for a person
    comments: dict[str, str] = field(default_factory=dict)  # of people, by grade_id
    by_hand: set[str] = field(default_factory=set)  # grade_ids whose points a person set
    earlier: list[str] = field(default_factory=list)  # what a person had set for answers that were replaced since

    @property
    def total(self) -> float:
        return sum(points or 0 for points in self.points.values())

    @property
    def waiting(self) -> list[str]:
        return [name for name, points in self.points.items() if points is None]


def open_book(out: Path) -> Any:
    """The gradebook in ``out``, made where there is none."""
    with_tools_on_path()
    from nbgrader.api import Gradebook

    config = out / "nbgrader_config.py"
    if not config.exists():
        config.write_text(NBGRADER_CONFIG, encoding="utf-8")
    (out / "exchange").mkdir(exist_ok=True)  # formgrader insists on one that it may write to
    refuse_triggers(out / "gradebook.db")
    return Gradebook(f"sqlite:///{out.resolve() / 'gradebook.db'}", "course")


def refuse_triggers(path: Path) -> None:
    """nbgrader's gradebook has none, and one could change every mark while it is booked."""
    if path.is_file():
        with closing(sqlite3.connect(path)) as book:
            found = book.execute("select name from sqlite_master where type not in ('table', 'index')").fetchall()
        if found:
            raise GradingError(f"somebody has put the trigger {found[0][0]!r} into {path}: look at its marks, drop it")


def book_exercise(book: Any, out: Path, exercise: str, master: Any) -> None:
    """Make the exercise and its cells known to the gradebook, and the released notebook to the formgrader.

    Raises:
        GradingError: somebody has taken rows out of the gradebook that others need.
    """
    from nbgrader.api import InvalidEntry

    source = out / "source" / exercise / f"{exercise}.ipynb"
    source.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(master, source)
    book.update_or_create_assignment(exercise)
    book.update_or_create_notebook(exercise, exercise, kernelspec="{}")
    for cell in master.cells:
        about, name = mark_up(cell), mark_up(cell).get("grade_id")
        if about.get("grade"):
            settings = {"max_score": float(about["points"]), "cell_type": cell.cell_type}
            try:
                book.update_or_create_grade_cell(name, exercise, exercise, **settings)
            except InvalidEntry:
                book.db.rollback()
                raise GradingError(f"{out / 'gradebook.db'} has lost a part of {name}: put back a copy of it") from None
        if about.get("solution"):
            book.update_or_create_solution_cell(name, exercise, exercise)
        if name:
            settings = {"cell_type": cell.cell_type, "locked": about["locked"], "source": cell.source}
            book.update_or_create_source_cell(name, exercise, exercise, checksum=about.get("checksum"), **settings)


def book_submission(
    book: Any, out: Path, exercise: str, master: Any, submission: Submission, answers: dict, result: dict
) -> None:
    """Book one marked submission, and write the notebook that the formgrader shows. Doing it again changes nothing."""
    student = submission.student
    first, _, last = submission.name.rpartition(" ")
    names = {"first_name": first or None, "last_name": last or None} if submission.name else {}
    book.update_or_create_student(student, **names)
    when = submission.handed_in.replace(tzinfo=None) if submission.handed_in else None
    with book.db.no_autoflush:  # nbgrader's own order of adding rows makes SQLAlchemy warn of a flush amid them
        book.update_or_create_submission(exercise, student, timestamp=when)
    path = out / "autograded" / student / exercise / f"{exercise}.ipynb"
    before = written_before(path)
    points = {CHECK + part["name"]: float(part["points"]) for part in result["parts"]}
    for name, cells in answers_of(master).items():
        grade = grade_of(book, name, exercise, student)
        comments = [book.find_comment(cell, exercise, exercise, student) for cell in cells]
        waits = name not in points and name in answers  # a written answer keeps its points until it is read again
        if path.is_file() and any(before.get(cell) != answers.get(cell) for cell in cells):
            set_aside(grade, comments, name.removeprefix(CHECK), keep_points=waits)
        elif not grade.needs_manual_grade or any(comment.manual_comment for comment in comments):
            for comment in comments:
                comment.auto_comment = None  # a person has looked since
        noted = any(is_note(comment.auto_comment) for comment in comments)
        if name in points:
            overruled = grade.manual_score is not None and grade.auto_score != points[name]
            grade.auto_score, grade.needs_manual_grade = points[name], overruled or noted
        elif waits:
            changed = before.get(name) != answers[name]
            grade.auto_score = None
            grade.needs_manual_grade = grade.manual_score is None or changed or grade.needs_manual_grade
        else:
            grade.auto_score, grade.needs_manual_grade = 0.0, grade.manual_score is not None or noted
        if name not in points and not noted:
            comments[0].auto_comment = None if waits else "No response."
    book.db.commit()
    write_atomically(path, lambda unfinished: nbformat.write(marked_notebook(master, answers, result), unfinished))


def grade_of(book: Any, name: str, exercise: str, student: str) -> Any:
    """The row of one grade, made again if somebody has taken it out."""
    from nbgrader.api import Grade, MissingEntry

    try:
        return book.find_grade(name, exercise, exercise, student)
    except MissingEntry:
        cell = book.find_grade_cell(name, exercise, exercise)
        grade = Grade(cell=cell, notebook=book.find_submission_notebook(exercise, exercise, student))
        book.db.add(grade)
        book.db.flush()
        return grade


def answers_of(master: Any) -> dict[str, list[str]]:
    """The answer cells that each graded cell judges: those since the one before; a written answer is its own."""
    found, waiting = {}, []
    for cell in master.cells:
        if mark_up(cell).get("solution"):
            waiting.append(mark_up(cell)["grade_id"])
        if mark_up(cell).get("grade"):
            found[mark_up(cell)["grade_id"]], waiting = waiting, []
    return found


def set_aside(grade: Any, comments: list[Any], part: str, keep_points: bool) -> None:
    """Take back what a person set for an answer that another one replaced, and note it where they will look.

    The formgrader shows the note in the empty box for a comment. It is in the same commit as what it tells of.
    """
    texts = [comment.manual_comment for comment in comments if comment.manual_comment]
    by_hand = not keep_points and is_by_hand(grade)
    if not texts and not by_hand:
        return
    score = float(grade.score)
    things = [f"{score:g} point{'s' * (score != 1)}"] * by_hand + ["comment"] * bool(texts)
    were = "was" if things in (["1 point"], ["comment"]) else "were"
    note = f"your {' and '.join(things)} for {part} {were} {FOR_EARLIER}"
    if by_hand:
        grade.manual_score = grade.extra_credit = None
    for comment in comments:
        comment.manual_comment = None
    comments[0].auto_comment = "\n".join([note, *texts])


def is_by_hand(grade: Any) -> bool:
    return grade.manual_score is not None or bool(grade.extra_credit)


def is_note(text: str | None) -> bool:
    return (text or "").partition("\n")[0].endswith(FOR_EARLIER)


def written_before(path: Path) -> dict[str, str]:
    """The answers in the notebook of an earlier marking."""
    if not path.is_file():
        return {}
    cells = nbformat.read(path, 4).cells
    return {mark_up(cell)["grade_id"]: cell.metadata["handed_in"] for cell in cells if "handed_in" in cell.metadata}


def marked_notebook(master: Any, answers: dict[str, str], result: dict) -> Any:
    """The released notebook with the student's answers, and the marker's words below each check."""
    notebook = nbformat.from_dict(master)
    notebook = nbformat.reads(nbformat.writes(notebook), as_version=4)
    parts = {CHECK + part["name"]: part for part in result["parts"]}
    for cell in notebook.cells:
        name = mark_up(cell).get("grade_id")
        if name in answers:
            cell.metadata["handed_in"] = answers[name]
            cell.source = answers[name] if cell.cell_type == "code" else as_plain_text(answers[name])
        if name in parts:
            text = "\n".join(in_words(parts[name])) + "\n"
            cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text=text)]
    return notebook


def in_words(part: dict[str, Any]) -> list[str]:
    """A part's result, a line for each aspect."""
    lines = [f"{part['points']} of {part['of']} points"]
    for aspect in part["aspects"]:
        words = f", {aspect['words']}" if aspect["words"] else ""
        lines.append(f"{aspect['name']}: {aspect['points']} of {aspect['of']}{words}")
    return lines


def as_plain_text(text: str) -> str:
    """Markdown that shows ``text`` as it is: the formgrader would run a student's scripts and links as the marker.

    In a fenced block long lines would run out of the page. Nothing of the text is left that Markdown or HTML read.
    """
    harmless = "".join(char if char.isalnum() or char == " " else f"&#{ord(char)};" for char in text)
    return f'<pre style="white-space: pre-wrap; overflow-wrap: anywhere">{harmless}</pre>'


def standing(book: Any, exercise: str, student: str) -> Standing:
    """Points and comments of a student, those by hand included."""
    notebook = book.find_submission_notebook(exercise, exercise, student)
    found = Standing()
    for grade in notebook.grades:
        waits = grade.auto_score is None and grade.manual_score is None
        waits |= grade.needs_manual_grade and grade.auto_score is None
        found.points[grade.name] = None if waits else float(grade.score)
        if is_by_hand(grade):
            found.by_hand.add(grade.name)
    for comment in notebook.comments:
        if comment.manual_comment:
            found.comments[comment.name] = comment.manual_comment
        if is_note(comment.auto_comment):
            found.earlier.append(comment.auto_comment.partition("\n")[0])
    return found
