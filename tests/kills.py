"""Kill the marking of a class at random moments, again and again: nothing may be lost, booked twice or left behind.

``python -m tests.kills 1000`` marks a class of twelve, kills the command after a random time, starts it again, and so
on until the class is done; then the next class, until there were as many kills. ``make full`` does it.
"""

import ctypes
import multiprocessing
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from multiprocessing.context import ForkProcess
from pathlib import Path

import nbformat
import psutil

from coursekit.commands.lectures import home
from coursekit.grading.batch import grade
from tests.grading.classroom import NAME, SOLUTIONS, only

FORK = multiprocessing.get_context("fork")
CLASS = 12
MEAN_SHARE = 0.1  # of the time that marking the class takes undisturbed: what passes, on average, until a kill
TABLES = [f"{NAME}{kind}.csv" for kind in ("", "_moodle", "_canvas")]


def hand_in(folder: Path) -> None:
    """Right, wrong, empty and broken submissions of one small part."""
    for number in range(CLASS):
        path = folder / f"s{number:02}" / f"{NAME}.ipynb"
        path.parent.mkdir(parents=True)
        source = SOLUTIONS["luong_score"] + f"\n# {number}"
        if number % 4 == 3:
            source = source.replace("return", "raise ValueError\n    return", 1)
        nbformat.write(only(luong_score=source), path)
    (folder / "s05" / f"{NAME}.ipynb").write_text("{")


def start(folder: Path, out: Path) -> ForkProcess:
    """``coursekit grade`` in a process that has imported what it needs: imports are no interesting moment."""
    process = FORK.Process(target=grade, args=(NAME, [folder], out, home()), kwargs={"workers": 2})
    process.start()
    return process


def ended(process: ForkProcess, seconds: float) -> bool:
    """Wait; True if the marking came to its end by itself, False if it had to be killed."""
    process.join(seconds)
    if process.exitcode is None:
        process.kill()
        process.join()
        return False
    assert process.exitcode == 0, "the marking failed"
    return True


def adopt() -> None:
    """From now on, what a killed marking leaves running becomes a child of this process, where it can be seen."""
    PR_SET_CHILD_SUBREAPER = 36
    assert ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1) == 0


def left_running() -> list[str]:
    """Processes of a killed marking that are still there after a minute."""
    deadline = time.monotonic() + 60  # a busy machine takes long to end what was just starting
    while True:
        left = psutil.Process().children(recursive=True)
        _, alive = psutil.wait_procs(left, timeout=0.1)
        if not alive or time.monotonic() > deadline:
            return [str(process) for process in alive]


def booked(out: Path) -> list[tuple]:
    """What the gradebook says: student, part, points. Each pair stands once, or it was booked twice."""
    if not (out / "gradebook.db").exists():
        return []
    query = """select s.student_id, b.name, g.auto_score from grade g
        join submitted_notebook n on g.notebook_id = n.id join submitted_assignment s on n.assignment_id = s.id
        join base_cell b on b.id = g.cell_id order by 1, 2"""
    with closing(sqlite3.connect(out / "gradebook.db")) as book:
        if not book.execute("select 1 from sqlite_master where name = 'grade'").fetchall():
            return []  # killed while it was made
        rows = book.execute(query).fetchall()
    assert len({row[:2] for row in rows}) == len(rows), "booked twice"
    return rows


def tables(out: Path) -> list[bytes]:
    return [(out / name).read_bytes() for name in TABLES]


def verified(out: Path) -> None:
    words = [sys.executable, "-m", "coursekit", "grade", "verify", "--out", str(out)]
    done = subprocess.run(words, cwd=home(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def main(kills: int) -> str:
    """Kill until there were so many; what was seen, in a sentence."""
    moments, killed, classes, resumed = random.Random(0), 0, 0, 0
    adopt()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        folder.chmod(0o755)
        hand_in(folder / "in")
        (folder / "private").mkdir()
        began = time.monotonic()
        assert ended(start(folder / "in", folder / "whole"), 600)
        mean = MEAN_SHARE * (time.monotonic() - began)
        want = booked(folder / "whole")
        key = (folder / "whole" / "key").read_bytes()
        while killed < kills:
            out, classes = folder / f"out{classes}", classes + 1
            out.mkdir()
            (out / "results").mkdir()
            (out / "key").write_bytes(key)  # the same cases
            while True:
                process = start(folder / "in", out)
                seconds = moments.expovariate(1 / mean) if killed < kills else 600
                if ended(process, seconds):
                    break
                killed, resumed = killed + 1, resumed + 1
                assert not (left := left_running()), f"of a killed marking is still running: {left}"
                booked(out)
                print(f"{killed} kills", flush=True)
            assert booked(out) == want, "the gradebook differs from that of a marking that was not killed"
            assert tables(out) == tables(folder / "whole")
            verified(out)
            print(f"{classes} classes", flush=True)
    return f"{killed} kills in {classes} classes of {CLASS}: nothing lost, booked twice or left running"


if __name__ == "__main__":
    print(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000))
