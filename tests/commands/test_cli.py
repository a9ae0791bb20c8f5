import importlib.util
import json
import re
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import nbformat
import psutil
import pytest

import coursekit
from coursekit.commands import cli, doctor, lectures


def run(*arguments, monkeypatch, capsys) -> tuple[int, str, str]:
    """The command in this process: exit code, stdout, stderr."""
    monkeypatch.setattr(sys, "argv", ["coursekit", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code, *capsys.readouterr()


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A course of two tiny lectures: one that holds, one that does not."""
    (tmp_path / "notebooks").mkdir()
    holds = ["import time; from coursekit.viz import bars, claim, claims", "bars({'a': 1});", "bars({'b': 1});"]
    holds += ["claim('two', 1 + 1, at_least=2)", "claims()"]
    holds += ["for i in range(3): print(i, flush=True); time.sleep(0.05)\nbars({'c': 1});\nprint(3)"]
    fails = ["from coursekit.viz import claim", "claim('three', 1 + 1, at_least=3)", "print('never')"]
    for name, cells in (("01_holds", holds), ("02_fails", fails)):
        text = nbformat.v4.new_markdown_cell("# Formula $a_1^2$\n\n$$\\sum_s a_s = 1$$")
        notebook = nbformat.v4.new_notebook(cells=[text, *map(nbformat.v4.new_code_cell, cells)])
        notebook.cells[2].metadata["jupyter"] = {"source_hidden": True}
        nbformat.write(notebook, tmp_path / "notebooks" / f"{name}.ipynb")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["rum"], "No such command 'rum'"),
        (["run"], "name the lectures to run"),
        (["run", "7"], "no lecture '7'; there are: 01_holds, 02_fails"),
        (["run", "1", "--jobs", "0"], "--jobs"),
        (["lab", "--port", "x"], "--port"),
        (["lab", "ten"], "no lecture 'ten'"),
        (["single", "gpt", "--out", "notebooks/01_holds.ipynb/x.py"], "notebooks/01_holds.ipynb/x.py: Not a directory"),
        (["single", "gpt", "--out", "nowhere/x.py"], "nowhere/x.py: No such file or directory"),
        (["slides", "1"], "build/01_holds/notebook.ipynb is no notebook: was it written to its end?"),
        (["progress"], "no exercises in"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(arguments, says, course, monkeypatch, capsys):
    (course / "build/01_holds").mkdir(parents=True)
    (course / "build/01_holds/notebook.ipynb").write_text('{"cells": [')
    code, out, err = run(*arguments, monkeypatch=monkeypatch, capsys=capsys)
    assert code == 2
    assert says in err
    assert err.count("\n") == 1
    assert out == ""


@pytest.mark.parametrize("arguments", [["--version"], ["--version", "run", "7"]])
def test_the_version(arguments, monkeypatch, capsys):
    code, out, err = run(*arguments, monkeypatch=monkeypatch, capsys=capsys)
    assert (code or 0, out, err) == (0, f"coursekit {coursekit.__version__}\n", "")


def test_outside_the_course_it_says_where_to_go(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(lectures, "__file__", str(tmp_path / "coursekit" / "commands" / "lectures.py"))
    code, _, err = run("run", "1", monkeypatch=monkeypatch, capsys=capsys)
    assert code == 2
    assert "change into the course's folder" in err


def test_a_lecture_runs_to_its_files(course, monkeypatch, capsys):
    code, out, _ = run("run", "01", monkeypatch=monkeypatch, capsys=capsys)
    folder = course / "build" / "01_holds"
    assert code in (None, 0)
    assert "two" in out
    assert json.loads((folder / "claims.json").read_text()) == [
        {"name": "two", "value": 2.0, "at_least": 2, "ok": True, "kind": "measured"}
    ]
    executed = nbformat.read(folder / "notebook.ipynb", as_version=4)
    assert [c.execution_count for c in executed.cells[1:]] == [1, 2, 3, 4, 5, 6]
    pictures = ["image/png" in output.get("data", {}) for cell in executed.cells[1:] for output in cell.outputs]
    assert sum(pictures) == 3, "every figure is shown, not only the first"
    assert [output.get("text") for output in executed.cells[-1].outputs] == ["0\n1\n2\n3\n", None], "in one piece"
    page = (folder / "lecture.html").read_text(encoding="utf-8")
    assert "<math" in page
    assert "$" not in page.split("Formula")[1].split("</div>")[0]
    assert "https://cdn" not in page
    assert page.count("<summary>Code</summary>") == 1
    assert not nbformat.read(course / "notebooks" / "01_holds.ipynb", as_version=4).cells[1].outputs, "source untouched"


def test_a_claim_that_fails_fails_the_run_and_nothing_is_lost(course, monkeypatch, capsys):
    code, out, err = run("run", "--all", "--jobs", "2", monkeypatch=monkeypatch, capsys=capsys)
    assert code == 1
    assert re.search(r"02_fails, cell 3 of 4, \w+: ClaimFailed: three: measured 2, claimed at least 3", err)
    assert "FAILS" in out
    assert json.loads((course / "build" / "02_fails" / "claims.json").read_text())[0]["ok"] is False
    executed = nbformat.read(course / "build" / "02_fails" / "notebook.ipynb", as_version=4)
    assert executed.cells[3].execution_count is None, "the notebook stops at the claim"
    assert "ClaimFailed" in (course / "build" / "02_fails" / "lecture.html").read_text(encoding="utf-8")
    assert json.loads((course / "build" / "01_holds" / "claims.json").read_text())[0]["ok"] is True


def test_doctor_says_one_line_on_each_thing(monkeypatch, capsys):
    code, out, _ = run("doctor", monkeypatch=monkeypatch, capsys=capsys)
    subjects = [line.split()[1] for line in out.splitlines()]
    assert subjects == ["Python", "torch", "device", "memory", "versions", "widgets", "sandbox", "network"]
    assert code in (None, 0)


def test_doctor_says_what_to_do(monkeypatch, capsys):
    old = SimpleNamespace(version_info=(3, 9, 1))  # not for all to see
    monkeypatch.setattr(doctor, "sys", old)
    monkeypatch.setattr(doctor, "COLAB", {"no-such-package": "1"})
    code, out, _ = run("doctor", monkeypatch=monkeypatch, capsys=capsys)
    assert code == 1
    assert "install one of these" in out
    assert "pip install no-such-package" in out


def test_python_m_coursekit_is_the_same_command():
    done = subprocess.run([sys.executable, "-m", "coursekit", "--help"], capture_output=True, text=True, check=True)
    assert all(command in done.stdout for command in ("lab", "run", "release", "grade", "doctor"))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["grade"], "Missing argument 'exercise'"),
        (["grade", "02", "nowhere", "--out", "out"], "no such file or folder: nowhere"),
        (["grade", "77", ".", "--out", "out"], "no exercise '77'; there are: 01_language_models"),
        (["grade", "02", ".", "--out", "out", "--due", "tomorrow"], "does not match the formats"),
        (["grade", "02", ".", "--out", "out"], "the results in out would be read as handed in"),
        (["grade", "02", "exercises", "--out", "out", "--private", "no"], "no private folder no: make it first"),
        (["grade", "02", "exercises", "--out", "README.md"], "cannot write results into README.md: File exists"),
        (["grade", "02", "exercises", "--out", "out", "--roster", "no.csv"], "cannot read the roster no.csv"),
        (["release", "99"], "no exercise '99'; there are: 01_language_models, "),
        (["release", "--student", "tests"], "tests is not empty: name a new folder"),
        (["release", "--gradescope", "02", "--out", "tests"], "tests is a folder: name a zip"),
        (["release", "04", "--student", "kit"], "one at a time: "),
        (["release", "--gradescope", "02", "--classroom50", "03", "--out", "a"], "one at a time: "),
        (["release", "04", "--out", "a"], "--out goes with --gradescope or --classroom50"),
        (["release", "--classroom50", "02", "--out", "a", "--private", "b"], "--private goes with --gradescope"),
    ],
)
def test_mistakes_in_grading_are_one_line(arguments, says, monkeypatch, capsys):
    monkeypatch.chdir(lectures.home())
    code, _, err = run(*arguments, monkeypatch=monkeypatch, capsys=capsys)
    assert code == 2
    assert says.lower() in err.lower()  # old versions of typer name arguments in capitals
    assert len(err.strip().splitlines()) == 1
    assert not (lectures.home() / "out").exists()


def test_a_doctor_who_cannot_mark_for_lack_of_nbgrader_says_so(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr("coursekit.grading.walls.why_not", lambda: None)
    for counted, words in ((True, "a memory cgroup counts all"), (False, "only resident memory is watched")):
        monkeypatch.setattr("coursekit.grading.walls.memory_is_counted", lambda counted=counted: counted)
        (ok, _, text) = doctor.sandbox_line()
        assert ok
        assert text.startswith("works: exercises can be marked safely")
        assert words in text
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "nbgrader" else find(name))
    (ok, _, text) = doctor.sandbox_line()
    assert ok, "students need none"
    assert text == "works, but " + doctor.is_missing("nbgrader", "grade")


def test_grading_without_nbgrader_says_what_to_install(monkeypatch, capsys):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "nbgrader" else find(name))
    code, _, err = run("release", monkeypatch=monkeypatch, capsys=capsys)
    assert code == 2
    assert err == (
        "nbgrader is missing: in the course's folder, pip install --constraint constraints.txt --editable '.[grade]'\n"
    )


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_stopped_leaves_no_kernel_and_loses_nothing(by, jobs, course):
    first = ["import os, time; from pathlib import Path", "print('computed')"]
    for name in ("01_holds", "02_fails"):
        cells = [*first, f"Path('{name}.pid').write_text(str(os.getpid())); time.sleep(600)"]
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        nbformat.write(notebook, course / "notebooks" / f"{name}.ipynb")
    command = [sys.executable, "-m", "coursekit", "run", "--all", "--jobs", jobs]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    listens = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.default_int_handler)}  # also under nohup
    running = subprocess.Popen(command, cwd=course, **streams, **listens)
    begun = ["01_holds", "02_fails"][: int(jobs)]
    kernels = [course / "notebooks" / f"{name}.pid" for name in begun]
    deadline = time.monotonic() + 120
    while not all(kernel.exists() and kernel.read_text() for kernel in kernels) and time.monotonic() < deadline:
        time.sleep(0.1)
    running.send_signal(by)
    time.sleep(0.5)
    running.send_signal(by)  # nobody waits patiently
    _, told = running.communicate(timeout=120)
    assert running.returncode == 130
    assert told.strip().splitlines()[-1] == f"stopped; what had been executed is in {course / 'build'}"
    assert "Traceback" not in told
    for kernel, name in zip(kernels, begun):
        assert not psutil.pid_exists(int(kernel.read_text()))
        executed = nbformat.read(course / "build" / name / "notebook.ipynb", as_version=4)
        assert executed.cells[1].outputs[0].text == "computed\n"
    assert len(list((course / "build").glob("*/notebook.ipynb"))) == int(jobs), "the second never began"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
def test_a_run_that_is_stopped_before_its_kernel_is_up_says_so_in_one_line(course):
    command = [sys.executable, "-m", "coursekit", "run", "01"]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    listens = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.default_int_handler)}
    running = subprocess.Popen(command, cwd=course, **streams, **listens)
    deadline = time.monotonic() + 120
    while not psutil.Process(running.pid).children() and time.monotonic() < deadline:
        time.sleep(0.01)
    running.send_signal(signal.SIGINT)
    _, told = running.communicate(timeout=120)
    assert (running.returncode, told) == (130, f"stopped; what had been executed is in {course / 'build'}\n")


def test_a_kernel_that_never_comes_up_costs_the_other_lectures_nothing(course, monkeypatch, capsys):
    from nbclient import NotebookClient

    start = NotebookClient.async_start_new_kernel

    async def refused(client, **options):
        if "01_holds" in client.nb.cells[0].source:
            raise RuntimeError("Kernel didn't respond in 300 seconds")
        return await start(client, **options)

    monkeypatch.setattr(NotebookClient, "async_start_new_kernel", refused)
    for name in ("01_holds", "02_fails"):
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(f"print('{name}')")])
        nbformat.write(notebook, course / "notebooks" / f"{name}.ipynb")
    code, said, err = run("run", "--all", monkeypatch=monkeypatch, capsys=capsys)
    assert code == 1
    assert "01_holds: RuntimeError: Kernel didn't respond in 300 seconds" in err
    assert "02_fails" in said
    executed = nbformat.read(course / "build" / "02_fails" / "notebook.ipynb", as_version=4)
    assert executed.cells[0].outputs[0].text == "02_fails\n"
