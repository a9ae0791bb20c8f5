"""How long a class takes: ``coursekit grade`` with two workers beside stock ``nbgrader autograde``, in one run.

Both mark the same well-formed submissions, once: it takes minutes. The seconds and the memory of each step are those of
``coursekit/grading/README.md``.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import nbformat

from coursekit.commands.lectures import home
from coursekit.grading.release import checks_of, mark_up
from tests.benchmarks.shared import Row, seconds
from tests.grading.answers import models
from tests.grading.answers.self_attention import RIGHT

TOPIC = "grading"
NAME = "03_self_attention"
STUDENTS = 12
CONFIG = """
from pathlib import Path
here = Path(__file__).resolve().parent
c = get_config()
c.CourseDirectory.root = str(here)
c.CourseDirectory.db_url = f"sqlite:///{here / 'gradebook.db'}"
c.CourseDirectory.course_id = "course"
c.ClearSolutions.code_stub = {"python": "raise NotImplementedError()"}
"""


def run(command: list[str], cwd: Path) -> None:
    tools = os.path.dirname(sys.executable)
    environment = {**os.environ, "PATH": tools + os.pathsep + os.environ["PATH"]}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[2:])}: {done.stderr.strip().rsplit(chr(10), 1)[-1]}")


def timed(command: list[str], cwd: Path) -> tuple[float, int]:
    """Seconds, and the largest memory of any process so far in MiB."""
    return seconds(lambda: run(command, cwd)), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10


def hand_in(folder: Path) -> None:
    """A course of stock nbgrader in ``folder``, and a class's right submissions."""
    (folder / "nbgrader_config.py").write_text(CONFIG)
    (folder / "source" / NAME).mkdir(parents=True)
    master = home() / "solutions" / NAME / f"{NAME}.ipynb"
    (folder / "source" / NAME / master.name).write_bytes(master.read_bytes())
    for number in range(STUDENTS):
        style = number % 3
        answers = {part: all_of_it[style] for part, all_of_it in RIGHT.items()} if style < 2 else models(NAME)
        notebook = nbformat.read(home() / "exercises" / NAME / f"{NAME}.ipynb", as_version=4)
        for cell in notebook.cells:
            if mark_up(cell).get("grade_id") in answers:
                cell.source = answers[mark_up(cell)["grade_id"]]
        path = folder / "submitted" / f"s{number:02}" / NAME / f"{NAME}.ipynb"
        path.parent.mkdir(parents=True)
        nbformat.write(notebook, path)


def marking() -> Iterator[Row]:
    from nbgrader.api import Gradebook

    python = sys.executable
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        folder.chmod(0o755)
        hand_in(folder)
        steps = {"release": timed([python, "-m", "coursekit", "release"], home())}
        kit = [python, "-m", "coursekit", "release", "--student", str(folder / "kit")]
        steps["release --student"] = timed(kit, home())
        run([python, "-m", "nbgrader", "generate_assignment", NAME], folder)
        steps["nbgrader autograde (stock)"] = timed([python, "-m", "nbgrader", "autograde", NAME], folder)
        with Gradebook(f"sqlite:///{folder / 'gradebook.db'}", "course") as book:
            marks = [submission.code_score for submission in book.assignment_submissions(NAME)]
        right = sum(part.points for part in checks_of(NAME).PARTS)
        assert marks == [right] * STUDENTS, "the stock marking marked something else"
        grade = [python, "-m", "coursekit", "grade", NAME, str(folder / "submitted"), "--out", str(folder / "out")]
        steps["grade --workers 2"] = timed([*grade, "--workers", "2"], home())
        steps["grade again: nothing left to mark"] = timed([*grade, "--workers", "2"], home())
        steps["grade --workers 1"] = timed([*grade[:-1], str(folder / "out1"), "--workers", "1"], home())
        peaks = [
            json.loads(path.read_text())["result"]["peak"]
            for path in (folder / "out" / "results" / NAME).glob("*.json")
        ]
    stock = steps["nbgrader autograde (stock)"][0]
    for workers, aim in ((2, 3), (1, None)):
        ours = steps[f"grade --workers {workers}"][0]
        what = f"{STUDENTS} right submissions, grade --workers {workers}"
        yield Row(TOPIC, what, "nbgrader autograde", rounds=(stock / ours,), at_least=aim, both=(ours, stock))
    for name, (time, memory) in steps.items():
        yield Row(TOPIC, f"{name}: seconds", "", rounds=(time,), unit="s")
        yield Row(TOPIC, f"{name}: largest process so far", "", rounds=(memory,), unit="MiB")
    yield Row(TOPIC, "one sandbox: memory at most", "", rounds=(max(peaks) >> 20,), unit="MiB")


def parts() -> list[Callable[[], Iterator[Row]]]:
    return [marking]
