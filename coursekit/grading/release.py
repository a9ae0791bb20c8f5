"""From the masters in ``solutions/`` to what students get: ``exercises/``, and a folder and zip to hand out."""

import ast
import importlib
import io
import json
import logging
import os
import re
import shutil
import sys
import tempfile
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import nbformat

from coursekit.grading import GradingError
from coursekit.grading.magics import as_python
from coursekit.grading.rules import is_course, nodes_of

CHECK = "check-"  # a part's test cell is called like the part, with this before it
HIDDEN = ("BEGIN HIDDEN", "BEGIN SOLUTION", "BEGIN MARK SCHEME")


def checks_of(name: str) -> Any:
    """The module of checks of the exercise ``name``: ``02_seq2seq_attention`` -> ``checks.seq2seq_attention``."""
    module = re.sub(r"^\d+_", "", name)
    try:
        return importlib.import_module(f"coursekit.grading.checks.{module}")
    except ModuleNotFoundError:
        raise GradingError(f"exercise {name!r} has no checks: expected coursekit/grading/checks/{module}.py") from None


def mark_up(cell: Any) -> dict[str, Any]:
    """nbgrader's metadata of a cell, empty where there is none."""
    found = cell.get("metadata", {}).get("nbgrader", {})
    return found if isinstance(found, dict) else {}


def problems_of(path: Path) -> list[str]:
    """What is wrong with a master, each in a few words; empty if it can be released."""
    notebook = nbformat.from_dict(json.loads(path.read_text(encoding="utf-8")))  # nbformat.read would mend ids
    for cell in notebook.cells:
        cell.source = "".join(cell.source)
    problems = []
    if notebook.nbformat_minor < 5:
        return ["it has no cell ids (nbformat_minor is below 5)"]
    for what, names in {
        "cell id": [cell.get("id") for cell in notebook.cells],
        "grade_id": [mark_up(cell)["grade_id"] for cell in notebook.cells if "grade_id" in mark_up(cell)],
    }.items():
        problems += [f"duplicate {what} {name!r}" for name, count in Counter(names).items() if count > 1]
    for cell in notebook.cells:
        if "grade_id" not in mark_up(cell):
            problems.append(f"cell {cell.id!r} has no grade_id")
        elif (name := mark_up(cell)["grade_id"]) != cell.get("id"):
            problems.append(f"cell {cell.id!r} has the grade_id {name!r}, but must have its id")
        if cell.get("outputs"):
            problems.append(f"cell {cell.id!r} has outputs")
        if cell.cell_type == "code" and mark_up(cell).get("solution") and "### BEGIN SOLUTION" not in cell.source:
            problems.append(f"answer {cell.id!r} marks no solution")
    graded = {
        mark_up(cell)["grade_id"]: mark_up(cell)["points"] for cell in notebook.cells if mark_up(cell).get("grade")
    }
    if sum(graded.values()) != 100:
        problems.append(f"the points add up to {sum(graded.values())}, not 100")
    checks = checks_of(path.stem)
    expected = {CHECK + part.name: part.points for part in checks.PARTS} | checks.WRITTEN
    if graded != expected:
        problems.append(f"points in the notebook {graded}, in its checks {expected}")
    problems += [
        f"{name} is imported in the part {part}, which does not use it: import it just before the part that does"
        for part, name in imported_early(notebook.cells)
    ]
    return problems


def imported_early(cells: list[Any]) -> list[tuple[str, str]]:
    """Names of the course's that are there before the part that needs them, each after the part that they come with.

    An answer in between could call them instead of doing the work, and no flag would tell, since what a given cell
    imports is given. What comes with the last part can serve no other.
    """
    found, names, used = [], [], set()
    checks = [cell.id for cell in cells if cell.id.startswith(CHECK)]
    for cell in cells:
        for node in nodes_of(as_python(cell.source)) if cell.cell_type == "code" else ():
            if isinstance(node, ast.Name):
                used.add(node.id)
            elif isinstance(node, ast.ImportFrom) and is_course(node.module or ""):
                names += [alias.asname or alias.name for alias in node.names]
            elif isinstance(node, ast.Import):
                names += [alias.asname for alias in node.names if alias.asname and is_course(alias.name)]
        if cell.id in checks[:-1]:
            found += [(cell.id.removeprefix(CHECK), name) for name in names if name not in used]
            names, used = [], set()
    return found


def given_code(home: Path, name: str) -> tuple[list[str], list[str]]:
    """The names of an exercise's answers in code; and all code that is no student's: given cells, model answers."""
    cells = nbformat.read(home / "solutions" / name / f"{name}.ipynb", as_version=4).cells
    code = [cell for cell in cells if cell.cell_type == "code"]
    return [mark_up(c)["grade_id"] for c in code if mark_up(c).get("solution")], [cell.source for cell in code]


def masters(home: Path) -> list[Path]:
    """The master notebooks, in order."""
    found = sorted(path for path in (home / "solutions").glob("*/*.ipynb") if path.stem == path.parent.name)
    if not found:
        raise GradingError(f"no master in {home / 'solutions'}: expected solutions/NAME/NAME.ipynb")
    return found


def release(home: Path, out: Path | None = None, only: str = "*") -> list[Path]:
    """Make ``exercises/NAME/`` from every ``solutions/NAME/``, with nbgrader; the same bytes on every run.

    Args:
        home: the course's folder.
        out: where to write instead of ``home / "exercises"``.
        only: the name of a single exercise.

    Returns:
        The notebooks written.

    Raises:
        GradingError: a master has a problem, or somebody's answers would be lost; nothing is changed then.
    """
    found = [path for path in masters(home) if only in ("*", path.stem)]
    wrong = [f"{path.stem}: {'; '.join(problems)}" for path in found if (problems := problems_of(path))]
    if wrong:
        raise GradingError("not released. " + " | ".join(wrong))
    out = out or home / "exercises"
    refuse_to_lose_answers([*out.glob(f"{only}/*.ipynb")])
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        for path in found:
            generate(home, path.stem, work)
        shutil.rmtree(out if only == "*" else out / only, ignore_errors=True)
        shutil.copytree(work / "release", out, dirs_exist_ok=True)
    return sorted(out.glob(f"{only}/*.ipynb"))


def refuse_to_lose_answers(notebooks: list[Path]) -> None:
    """Before exercises are written again: nobody's work may be in them."""
    answered = [path for path in notebooks if holds_answers(path)]
    if answered:
        raise GradingError(f"not released: {answered[0]} holds answers; move it away first")


def holds_answers(path: Path) -> bool:
    """Whether somebody worked in a released notebook: an answer cell is not what nbgrader left there."""
    from nbgrader.utils import compute_checksum

    cells = nbformat.read(path, as_version=4).cells
    return any(mark_up(c).get("solution") and mark_up(c).get("checksum") != compute_checksum(c) for c in cells)


def generate(home: Path, name: str, work: Path) -> None:
    """One exercise through nbgrader's generate_assignment; everything it writes lies in ``work``."""
    with_tools_on_path()
    from nbgrader.converters import GenerateAssignment
    from nbgrader.coursedir import CourseDirectory
    from traitlets.config import Config

    config = Config()
    config.CourseDirectory = Config(
        root=str(home),
        course_id="course",
        source_directory=str(home / "solutions"),
        release_directory=str(work / "release"),
        submitted_directory=str(work / "submitted"),
        autograded_directory=str(work / "autograded"),
        feedback_directory=str(work / "feedback"),
        db_url=f"sqlite:///{work / 'gradebook.db'}",
        assignment_id=name,
    )
    config.GenerateAssignment.logfile = ""
    log, said = logging.Logger("nbgrader", logging.WARNING), io.StringIO()
    log.addHandler(logging.StreamHandler(said))
    converter = GenerateAssignment(coursedir=CourseDirectory(config=config, log=log), config=config, log=log)
    try:
        converter.start()
    except (Exception, SystemExit):
        lines = [line for line in said.getvalue().splitlines() if line.strip()]
        raise GradingError(f"nbgrader could not release {name}: {' '.join(lines[-3:])}") from None


def with_tools_on_path() -> None:
    """nbgrader runs ``alembic`` by name: it lies beside this Python, which need not be on PATH."""
    tools = str(Path(sys.executable).parent)
    if tools not in os.environ.get("PATH", "").split(os.pathsep):
        os.environ["PATH"] = tools + os.pathsep + os.environ.get("PATH", "")


# --- what students get ---------------------------------------------------------------------------------

READ_ME = """# {title}

With Python 3.11 to 3.13, in this folder:

```
python3 -m venv .venv
.venv/bin/pip install --constraint constraints.txt "{wheel}[lab]"
.venv/bin/coursekit lab
```

The last line opens JupyterLab at the first lecture; the exercises are in the folder `exercises/`. Work in the notebook
of the exercise, run the checks in it, and hand in that one file. On Windows say `py -m venv .venv`, and
`.venv\\Scripts` instead of `.venv/bin`. `coursekit doctor`, called in the same way, says whether all is well.

On Linux the second line brings several gigabytes of CUDA libraries. If you have no GPU, install the CPU build of torch
{torch} into `.venv` before it, as pytorch.org describes.

On Colab: put `{wheel}` into your Google Drive, or upload it beside the notebook.
"""


def student_kit(home: Path, out: Path) -> Path:
    """Write what students get into the folder ``out``, and as ``out.zip``: lectures, exercises, the package's wheel.

    Returns:
        The zip.

    Raises:
        GradingError: ``out`` is not empty, the exercises are not up to date, or something secret would leave.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise GradingError(f"{out} is not empty: name a new folder")
    with tempfile.TemporaryDirectory() as folder:
        kit = Path(folder) / out.name
        release(home, kit / "exercises")
        ignored = shutil.ignore_patterns(".*", "__pycache__", "build")  # runs_folder() is build
        shutil.copytree(home / "notebooks", kit / "notebooks", ignore=ignored)
        wheel = build_wheel(home, kit)
        shutil.copy(home / "constraints.txt", kit)
        (torch,) = re.findall(r"^torch==(.+)$", (kit / "constraints.txt").read_text("utf-8"), re.MULTILINE)
        text = READ_ME.format(title="Attention, hands on", wheel=wheel.name, torch=torch)
        (kit / "README.md").write_text(text, encoding="utf-8")
        for path, data in contents(kit):
            if leak := next((word for word in HIDDEN if word.encode() in data), None):
                raise GradingError(f"not written: {path} holds '{leak}'")
        out.parent.mkdir(parents=True, exist_ok=True)
        archive = out.with_name(out.name + ".zip")
        unfinished = archive.with_name(archive.name + ".part")
        with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as file:
            for path in sorted(kit.rglob("*")):
                if path.is_file():
                    entry = zipfile.ZipInfo(path.relative_to(kit.parent).as_posix(), (2026, 1, 1, 0, 0, 0))
                    entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
                    file.writestr(entry, path.read_bytes())
        unfinished.replace(archive)
        shutil.copytree(kit, out, dirs_exist_ok=True)
    return archive


def build_wheel(home: Path, out: Path) -> Path:
    """The package's wheel, built without the network."""
    from hatchling.builders.wheel import WheelBuilder

    if not (home / "pyproject.toml").is_file():
        raise GradingError(f"no pyproject.toml in {home}: run this in the course's repository")
    here = Path.cwd()
    os.environ.setdefault("SOURCE_DATE_EPOCH", "1767225600")
    try:
        os.chdir(home)
        return Path(next(WheelBuilder(str(home)).build(directory=str(out), versions=["standard"])))
    finally:
        os.chdir(here)


def contents(kit: Path) -> list[tuple[str, bytes]]:
    """Every notebook of the kit and every file inside its wheels, by name."""
    found = [(path.relative_to(kit).as_posix(), path.read_bytes()) for path in kit.rglob("*.ipynb")]
    for wheel in kit.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            found += [(entry, archive.read(entry)) for entry in archive.namelist() if entry.endswith(".ipynb")]
    return found
