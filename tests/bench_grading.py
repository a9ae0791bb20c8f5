"""How long a class takes: ``coursekit grade`` with two workers beside stock ``nbgrader autograde``, in one run.

``python -m tests.bench_grading`` prints the seconds of both on the same well-formed submissions, the ratio, and the
seconds and memory of each step for ``coursekit/grading/README.md``.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbgrader.api import Gradebook
from rich.console import Console
from rich.table import Table

from coursekit.lectures import home
from tests.grading.answers.seq2seq_attention import RIGHT
from tests.grading.classroom import NAME, handed_in

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


def timed(command: list[str], cwd: Path) -> tuple[float, int]:
    """Seconds, and the largest memory of one of its processes in MiB."""
    tools = os.path.dirname(sys.executable)
    environment = {**os.environ, "PATH": tools + os.pathsep + os.environ["PATH"]}
    start = time.perf_counter()
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    seconds = time.perf_counter() - start
    if done.returncode:
        raise SystemExit(f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return seconds, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10


def main() -> None:
    python = sys.executable
    table = Table("step", "seconds", "largest process so far", title=f"{STUDENTS} right submissions of {NAME}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        folder.chmod(0o755)
        (folder / "nbgrader_config.py").write_text(CONFIG)
        (folder / "source" / NAME).mkdir(parents=True)
        master = home() / "solutions" / NAME / f"{NAME}.ipynb"
        (folder / "source" / NAME / master.name).write_bytes(master.read_bytes())
        for number in range(STUDENTS):
            style = number % 3
            answers = {part: all_of_it[style] for part, all_of_it in RIGHT.items()} if style < 2 else {}
            path = folder / "submitted" / f"s{number:02}" / NAME / f"{NAME}.ipynb"
            path.parent.mkdir(parents=True)
            nbformat.write(handed_in(**answers), path)
        release = timed([python, "-m", "coursekit", "release"], home())
        kit = timed([python, "-m", "coursekit", "release", "--student", str(folder / "kit")], home())
        timed([python, "-m", "nbgrader", "generate_assignment", NAME], folder)
        stock = timed([python, "-m", "nbgrader", "autograde", NAME], folder)
        with Gradebook(f"sqlite:///{folder / 'gradebook.db'}", "course") as book:
            marks = [submission.code_score for submission in book.assignment_submissions(NAME)]
        assert marks == [90] * STUDENTS, "the stock marking marked something else"
        grade = [python, "-m", "coursekit", "grade", NAME, str(folder / "submitted"), "--out", str(folder / "out")]
        ours = timed([*grade, "--workers", "2"], home())
        again = timed([*grade, "--workers", "2"], home())
        one = timed([*grade[:-1], str(folder / "out1"), "--workers", "1"], home())
        peaks = [json.loads(path.read_text())["peak"] for path in (folder / "out" / "results" / NAME).glob("*.json")]
    for name, (seconds, memory) in {
        "release": release,
        "release --student": kit,
        "nbgrader autograde (stock)": stock,
        "grade --workers 2": ours,
        "grade --workers 1": one,
        "grade again: nothing left to mark": again,
    }.items():
        table.add_row(name, f"{seconds:.1f}", f"{memory} MiB")
    console = Console()
    console.print(table)
    console.print(f"stock / two workers: {stock[0] / ours[0]:.2f} (aim ≥ 2); stock / one: {stock[0] / one[0]:.2f}")
    console.print(f"memory of one sandbox: {max(peaks) >> 20} MiB at most")


if __name__ == "__main__":
    main()
