"""The command ``coursekit``: lab, run, doctor."""

import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from coursekit import doctor as diagnosis
from coursekit import lectures

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, help=__doc__)
console = Console()


def fail(message: str, code: int = 2) -> typer.Exit:
    Console(stderr=True).print(message, style="bold red", highlight=False, markup=False, soft_wrap=True)
    return typer.Exit(code)


@app.command()
def lab(
    lecture: Annotated[str | None, typer.Argument(help="Lecture to open: its number or name.")] = None,
    port: Annotated[int, typer.Option(help="Port to serve on.")] = 8888,
) -> None:
    """Open JupyterLab at a lecture (the first one by default)."""
    path = lectures.find_lecture(lecture) if lecture else lectures.lectures()[0]
    root = lectures.home()
    try:
        import jupyterlab  # noqa: F401
    except ModuleNotFoundError:
        raise fail("JupyterLab is missing: in the course's folder, pip install --editable '.[lab]'") from None
    command = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={root}", f"--port={port}"]
    # no questions to the network: no news, no search for updates or extensions
    command += ["--LabApp.news_url=", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"]
    command.append("--LabApp.extension_manager=readonly")
    command += [f"--LabApp.default_url=/lab/tree/{path.relative_to(root).as_posix()}"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")
    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        command.append("--no-browser")  # the server prints the address instead
    with subprocess.Popen(command) as server:
        while True:
            try:
                raise typer.Exit(server.wait())
            except KeyboardInterrupt:
                continue  # the server hears it too, and asks whether to stop


@app.command()
def run(
    lecture: Annotated[list[str] | None, typer.Argument(help="Lectures to execute: numbers or names.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Execute all of them.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for the results (default: build/ of the course).")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Lectures at a time, each with its share of the cores.")] = 1,
) -> None:
    """Execute lectures without a browser and check their claims."""
    if bool(lecture) == every:
        raise fail("name the lectures to run, such as 'coursekit run 02', or give --all")
    paths = lectures.lectures() if every else [lectures.find_lecture(name) for name in lecture]
    out = out or lectures.home() / "build"
    if jobs > 1:
        os.environ["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // jobs))
    failed = False
    if len(paths) == 1:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("cells"))
        with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
            task = progress.add_task(paths[0].stem)
            result = lectures.execute(
                paths[0], out / paths[0].stem, lambda done, cells: progress.update(task, completed=done, total=cells)
            )
        failed = report(paths[0], out, result)
    else:
        with ProcessPoolExecutor(jobs) as pool:
            futures = {pool.submit(lectures.execute, path, out / path.stem): path for path in paths}
            for future in as_completed(futures):
                failed |= report(futures[future], out, future.result())
    if failed:
        raise typer.Exit(1)


def report(path: Path, out: Path, result: dict) -> bool:
    """Print what a lecture measured; return whether it failed."""
    table = Table(
        "claim", "measured", "bound", "", title=f"{path.stem}: {result['seconds']:.0f} s", title_justify="left"
    )
    for claim in result["claims"]:
        bound = f"≥ {claim['at_least']:g}" if "at_least" in claim else f"≤ {claim['at_most']:g}"
        table.add_row(claim["name"], f"{claim['value']:.4g}", bound, "ok" if claim["ok"] else "FAILS")
    console.print(table)
    console.print(
        f"Executed notebook, page and claims: {out / path.stem}", highlight=False, markup=False, soft_wrap=True
    )
    if result["error"]:
        fail(result["error"])
    return result["error"] is not None


@app.command()
def doctor() -> None:
    """Say what this machine is, and what to do about each problem."""
    fine = True
    for ok, subject, text in diagnosis.examine():
        line = f"{'✓' if ok else '✗'} {subject:9} {text}"
        console.print(line, style=None if ok else "bold red", highlight=False, markup=False, soft_wrap=True)
        fine &= ok
    if not fine:
        raise typer.Exit(1)


def main() -> None:
    """Entry point: mistakes of the user are one line and exit code 2."""
    try:
        sys.exit(app(sys.argv[1:] or ["--help"], standalone_mode=False))
    except lectures.LectureError as error:
        sys.exit(fail(str(error)).exit_code)
    except Exception as error:
        if not hasattr(error, "format_message"):  # click's usage errors, wherever typer takes click from
            raise
        sys.exit(fail(f"{error.format_message()} ('coursekit --help' lists the commands)").exit_code)


if __name__ == "__main__":
    main()
