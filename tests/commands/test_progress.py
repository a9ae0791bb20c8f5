"""``coursekit progress``: what the checks left in saved notebooks."""

import re
import shutil

import nbformat
import pytest
import torch
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from coursekit.grading.kernel import CheckFailed
from coursekit.grading.parts import Case, Part
from tests.commands.test_cli import run

PART = Part("double", {"a": 2, "b": 3}, lambda g: [Case(x, "", (torch.ones(1),)) for x in "ab"], lambda x: 2 * x)


def about(name: str, points: int) -> dict:
    return {"nbgrader": {"grade": True, "grade_id": name, "points": points}}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A course with exercises 01 and 02, not begun: two parts in code, one in words."""
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks/01_one.ipynb").touch()
    for name in ("01_one", "02_two"):
        cells = [new_code_cell("check", metadata=about(f"check-{part}", 5)) for part in ("double", "halve")]
        cells += [new_markdown_cell("YOUR ANSWER HERE", metadata=about("why", 4)), new_code_cell("check.score()")]
        (tmp_path / "exercises" / name).mkdir(parents=True)
        nbformat.write(new_notebook(cells=cells), tmp_path / "exercises" / name / f"{name}.ipynb")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path / "exercises"


def save(folder, *outputs, cell=0, source=None):
    path = folder / "01_one/01_one.ipynb"
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[cell].outputs = list(outputs)
    if source:
        notebook.cells[2].source = source
    nbformat.write(notebook, path)


def stream(text: str):
    return new_output("stream", text=text)


def shown(text: str):
    return new_output("display_data", {"text/plain": text, "text/html": "<b>✓ double: 5 of 5 points</b>"})


def error(text: str):
    return new_output("error", ename="CheckFailed", evalue=text, traceback=[text])


def told(monkeypatch, capsys) -> str:
    code, out, err = run("progress", monkeypatch=monkeypatch, capsys=capsys)
    assert (code or 0, err) == (0, "")
    return " ".join(out.replace("│", " ").split())


@pytest.mark.parametrize("output", [stream, shown, error])
def test_what_a_check_says_is_found_however_it_was_said(output, folder, monkeypatch, capsys):
    with pytest.raises(CheckFailed) as failed:
        PART(lambda x: 3 * x)
    save(folder, output(failed.value.text))
    assert "01_one 0 of 10 ✗ double 0 of 5 – halve 5 – why 4, in words" in told(monkeypatch, capsys)
    PART(lambda x: 2 * x)
    save(folder, output(capsys.readouterr().out), source="Because.")
    found = told(monkeypatch, capsys)
    assert "01_one 5 of 10 ✓ double 5 – halve 5 … why, a person reads it" in found
    assert "02_two 0 of 10 not begun" in found
    assert "for you alone" in found


def test_neither_other_cells_nor_more_points_than_there_are_count(folder, monkeypatch, capsys):
    save(folder, stream("✓ double: 99 of 99 points"))
    save(folder, stream("✓ double: 5 of 5 points\n✓ why: 4 of 4 points"), cell=1)
    save(folder, stream("✓ halve: 5 of 5 points"), cell=3)
    assert "01_one 5 of 10 ✓ double 5 – halve 5" in told(monkeypatch, capsys)


def test_the_latest_check_counts(folder, monkeypatch, capsys):
    """As the masters have it: a cell may check twice."""
    save(folder, stream("✓ double: 5 of 5 points\n"), error("✗ double: 2 of 5 points\n  a  0 of 3: wrong"))
    assert "✗ double 2 of 5" in told(monkeypatch, capsys)


def test_nothing_done_yet_is_a_sentence(folder, monkeypatch, capsys):
    assert told(monkeypatch, capsys).startswith("No answer has been checked and saved yet: open a notebook in")


def test_a_notebook_that_cannot_be_read_hides_no_other(folder, monkeypatch, capsys):
    save(folder, stream("✓ double: 5 of 5 points\n"))
    for broken in ("{", '{"cells": [{"metadata": {"nbgrader": {"grade": true}}}]}', "[]"):
        (folder / "02_two/02_two.ipynb").write_text(broken)
        found = told(monkeypatch, capsys)
        assert "✓ double 5" in found
        assert "cannot be read" in found


def test_notebooks_elsewhere_are_read_where_they_are(folder, tmp_path, monkeypatch, capsys):
    """Downloaded ones are called otherwise; what is no exercise, or a checkpoint, is left out."""
    save(folder, stream("✓ double: 5 of 5 points\n"))
    elsewhere = tmp_path / "downloads"
    (elsewhere / "old" / ".ipynb_checkpoints").mkdir(parents=True)
    for name in ("01_one (1)", "old/01_one", "old/.ipynb_checkpoints/01_one-checkpoint"):
        shutil.copy(folder / "01_one/01_one.ipynb", elsewhere / f"{name}.ipynb")
    nbformat.write(new_notebook(cells=[new_code_cell("1 + 1")]), elsewhere / "shopping.ipynb")
    code, out, err = run("progress", str(elsewhere), monkeypatch=monkeypatch, capsys=capsys)
    assert (code or 0, err) == (0, "")
    assert re.findall(r"^│ (\S.*?) +│", out, re.MULTILINE) == ["01_one (1)", "old/01_one"]
    code, out, err = run("progress", str(elsewhere / "old/01_one.ipynb"), monkeypatch=monkeypatch, capsys=capsys)
    assert (code or 0, err) == (0, "")
    assert re.findall(r"^│ (\S.*?) +│", out, re.MULTILINE) == ["01_one"], "one alone"
    code, out, err = run("progress", str(elsewhere / "none"), monkeypatch=monkeypatch, capsys=capsys)
    assert (code, out) == (2, "")
    assert err == f"no folder {elsewhere / 'none'}: name the one in which your notebooks are\n"


def test_without_exercises_it_says_so(folder, monkeypatch, capsys):
    for path in folder.glob("*/*.ipynb"):
        path.unlink()
    code, out, err = run("progress", monkeypatch=monkeypatch, capsys=capsys)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("no exercises in")


def test_of_one_notebook_it_says_what_is_with_that(folder, tmp_path, monkeypatch, capsys):
    notebook, other, broken = folder / "01_one/01_one.ipynb", tmp_path / "talk.ipynb", tmp_path / "broken.ipynb"
    save(folder, stream("○ double: 0 of 5 points, not answered yet\n"))
    code, out, err = run("progress", str(notebook), monkeypatch=monkeypatch, capsys=capsys)
    assert (code or 0, err) == (0, "")
    assert " ".join(out.split()).startswith(f"No answer has been checked and saved yet: open {notebook}, answer")
    nbformat.write(new_notebook(cells=[new_code_cell("1 + 1")]), other)
    broken.write_text("{")
    for path, says in ((other, f"{other} is no exercise\n"), (broken, "broken.ipynb cannot be read: is it whole")):
        code, out, err = run("progress", str(path), monkeypatch=monkeypatch, capsys=capsys)
        assert (code, out) == (2, "")
        assert err.startswith(says)


@pytest.mark.parametrize("name", ["1", "01", "01_one"])
def test_an_exercise_is_named_by_its_number_too(name, folder, monkeypatch, capsys):
    save(folder, shown("✓ double: 5 of 5 points"))
    code, out, err = run("progress", name, monkeypatch=monkeypatch, capsys=capsys)
    assert (code or 0, err) == (0, "")
    assert "01_one" in out
    assert "02_two" not in out
    code, _, err = run("progress", "7", monkeypatch=monkeypatch, capsys=capsys)
    assert code == 2
    assert err == "no exercise '7'; there are: 01_one, 02_two\n"
