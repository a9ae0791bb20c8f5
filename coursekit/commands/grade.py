"""The command ``coursekit grade``: mark a class, and look after what the marking leaves."""

import contextlib
import importlib.util
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from coursekit.commands import lectures
from coursekit.commands.doctor import is_missing
from coursekit.grading import GradingError, printable

DUE = ["%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M"]
console = Console()

Out = Annotated[Path, typer.Option(help="Folder of the marking.")]
Private = Annotated[Path | None, typer.Option(help="Folder with your secret key, if it was given at the marking.")]


class MarksByDefault(TyperGroup):
    """``coursekit grade 02 …`` is ``coursekit grade mark 02 …``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        named = args and (args[0] in self.commands or args[0] == "--help")
        return super().parse_args(ctx, args if named else ["mark", *args])


app = typer.Typer(cls=MarksByDefault)


@app.callback()
def needs_nbgrader() -> None:
    """Mark a class; the other commands look after the marks."""
    if importlib.util.find_spec("nbgrader") is None:
        raise GradingError(is_missing("nbgrader", "grade"))


def say(text: str) -> None:
    console.print(printable(text), highlight=False, markup=False, soft_wrap=True)


@app.command()
def mark(
    exercise: Annotated[str, typer.Argument(help="Its number or name.")],
    submissions: Annotated[
        list[Path], typer.Argument(help="Folders, zips or notebooks, as the platform exports them.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for gradebook, tables and feedback; a second run goes on there.")],
    private: Annotated[Path | None, typer.Option(help="Folder with your secret key and hidden cases.")] = None,
    roster: Annotated[Path | None, typer.Option(help="CSV of the class: id, name, email, platform_id.")] = None,
    due: Annotated[datetime | None, typer.Option(help="Later is flagged; local time.", formats=DUE)] = None,
    anonymous: Annotated[bool, typer.Option("--anonymous", help="Show pseudonyms to whoever marks.")] = False,
    workers: Annotated[int, typer.Option(min=1, help="Submissions at a time.")] = max(1, os.cpu_count() or 1),
    scheduler: Annotated[str | None, typer.Option(help="Address of a Dask scheduler, to mark on its workers.")] = None,
    tls: Annotated[Path | None, typer.Option(help="The cluster's certificate, from 'coursekit grade cluster'.")] = None,
    unsafe: Annotated[bool, typer.Option("--unsafe", help="Run students' code without a sandbox.")] = False,
) -> None:
    """Mark what students handed in, book it, and write tables and feedback ('mark' may be left out)."""
    from coursekit.grading.batch import grade

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("submissions"))
    name = lectures.find_exercise(exercise)
    with stoppable(), contextlib.ExitStack() as shown:
        bar = Progress(*columns, TimeElapsedColumn(), console=console)
        task = bar.add_task(name, total=None)

        def start(of: int) -> None:
            bar.update(task, total=of)
            shown.enter_context(bar)  # only now: a mistake is said without a bar before it

        outcome = grade(
            name,
            submissions,
            out,
            lectures.home(),
            private=private,
            workers=workers,
            roster=roster,
            due=due.astimezone() if due else None,
            anonymous=anonymous,
            unsafe=unsafe,
            scheduler=scheduler,
            tls=tls,
            start=start,
            progress=lambda done, of: bar.update(task, completed=done),
        )
    tell(outcome, name, out)
    if any(row.submission.problem.startswith("marking failed") for row in outcome.rows):
        say("Some submissions could not be marked for a reason of this machine: run the same command again.")
        raise typer.Exit(1)


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        text = "stopped; what is marked is kept, and the same command goes on"
        Console(stderr=True).print(text, style="bold red", soft_wrap=True)
        raise typer.Exit(130) from None


def tell(outcome: Any, name: str, out: Path) -> None:
    """What is flagged, how many were marked, and where everything is."""
    from coursekit.grading.tables import brief

    flagged = [row for row in outcome.rows if row.submission.problem or row.submission.flags or not row.result]
    if flagged:
        table = Table("student", "file", "points", "what to look at", title="Flagged", title_justify="left")
        for row in flagged:
            s, points = row.submission, f"{row.standing.total:g}" if row.standing else ""
            words = [s.problem, *s.flags] if row.result or s.problem else [row.status, *s.flags]
            file = Text(printable(s.file), overflow="fold")
            table.add_row(
                Text(printable(s.name or s.student)),
                file,
                points,
                Text("\n".join(brief(printable(w)) for w in words if w)),
            )
        console.print(table)
    marked = [row for row in outcome.rows if row.result]
    waiting = sum(bool(row.standing and row.standing.waiting) for row in marked)
    rows = "1 row" if len(outcome.rows) == 1 else f"{len(outcome.rows)} rows"
    absent = sum(row.status == "nothing handed in" for row in flagged)
    missing = f", {absent} handed in nothing" if absent else ""
    say(f"{rows}: {len(marked)} marked ({outcome.again} of them before), {len(flagged) - absent} flagged{missing}.")
    if waiting:
        answers = "1 written answer waits" if waiting == 1 else f"{waiting} written answers wait"
        say(f"{answers} for a person: in {out}, jupyter lab, then Formgrader; then run this again.")
    for problem in outcome.edited[:20]:
        say(f"Changed since the last marking: {problem}")
    if len(outcome.edited) > 20:
        say(f"and {len(outcome.edited) - 20} more: 'coursekit grade verify' lists them")
    say(f"Points: {out / name}.csv, _moodle.csv and _canvas.csv; feedback: {out / 'feedback'}")


@contextlib.contextmanager
def at(out: Path, private: Path | None) -> Iterator[bytes]:
    """The key of an earlier marking, while no other command is at work in its folder."""
    from coursekit.grading import records
    from coursekit.grading.folder import key_of, locked

    if not (out / "gradebook.db").is_file():
        raise GradingError(f"no gradebook in {out}: name the folder of a marking")
    with locked(out), records.private(out):
        yield key_of(out, private, new=False)


@app.command()
def verify(out: Out, private: Private = None) -> None:
    """Say what in a marking's folder is not as the marking left it: marks, results, feedback, tables, the log."""
    from coursekit.grading import records

    with at(out, private) as key:
        problems = records.verify(out, key)
        records.Log(out, key).add("verified", problems=len(problems))
    for problem in problems:
        say(problem)
    if problems:
        raise typer.Exit(1)
    say("Everything is as the marking left it.")


@app.command()
def forget(student: Annotated[str, typer.Argument(help="Their id.")], out: Out, private: Private = None) -> None:
    """Remove everything that names a student from a marking's folder."""
    from coursekit.grading.records import forget as forgotten

    with at(out, private) as key:
        for what in forgotten(out, student, key):
            say(f"Removed: {what}")


@app.command()
def expire(
    before: Annotated[datetime, typer.Option(help="Remove what was marked for the last time before.", formats=DUE)],
    out: Out,
    private: Private = None,
) -> None:
    """Remove exercises that were marked long ago, with all who have no other marks."""
    from coursekit.grading.records import expire as expired

    with at(out, private) as key:
        removed = expired(out, before.astimezone(), key)
    for what in removed:
        say(f"Removed: {what}")
    if not removed:
        say("Nothing is as old as that.")


@app.command()
def similar(
    exercise: Annotated[str, typer.Argument(help="Its number or name.")],
    out: Out,
    earlier: Annotated[Path | None, typer.Option(help="Folder of an earlier class's marking, to compare with.")] = None,
) -> None:
    """Find pairs of students whose code is alike beyond what the task forces: a reason to look, and nothing more."""
    from coursekit.grading import records, similarity
    from coursekit.grading.release import given_code

    name = lectures.find_exercise(exercise)
    parts, released = given_code(lectures.home(), name)
    answers = similarity.answers_in(out, name, parts)
    if not answers:
        raise GradingError(f"nobody's {name} was marked into {out}")
    before = similarity.answers_in(earlier, name, parts) if earlier else None
    pairs = similarity.similar(answers, released, before)
    table, page = similarity.write_report(pairs, answers, out, name, before)
    records.close(out)
    say(f"{len(pairs)} pairs among {len(answers)} students: {table} and, side by side, {page}")


@app.command()
def cluster(folder: Annotated[Path, typer.Argument(help="New folder for the certificate.")]) -> None:
    """Make a certificate with which a scheduler, its workers and this command talk to each other alone."""
    from coursekit.grading.cluster import new_certificate

    commands = new_certificate(folder)
    say(f"Written: {folder}/cert.pem and key.pem. Copy the folder to each machine (whoever has it can run code there):")
    say(commands)
    say(f"then mark with --scheduler tls://ADDRESS:8786 --tls {folder}")
