"""``coursekit new``: what it makes passes the tests that ask for a lecture, an exercise, a widget and a recipe."""

import json
import re
import shutil
import subprocess
import sys

import nbformat
import pytest

from coursekit.commands import new
from coursekit.commands.lectures import LectureError, home

pytestmark = pytest.mark.slow  # it makes a lecture, a widget and a recipe, and runs what they must pass

ROOM = ["coursekit", "docs", "exercises", "notebooks", "solutions", "tests"]


def run(house, module, *words):
    """A command in the copy, of its own package."""
    return subprocess.run([sys.executable, "-m", module, *words], cwd=house, capture_output=True, text=True)


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A copy of the course in which one of each was made."""
    copy = tmp_path_factory.mktemp("house")
    unwanted = shutil.ignore_patterns("__pycache__", ".*", "*.safetensors")
    for room in ROOM:
        shutil.copytree(home() / room, copy / room, ignore=unwanted)
    for name in ("README.md", "pyproject.toml"):
        shutil.copy(home() / name, copy)
    titled = ("--title", "Odds and ends: what is left")
    for words in (("98", "odds_and_ends", *titled), ("widget", "dot_map"), ("recipe", "line")):
        told = run(copy, "coursekit", "new", *words)
        assert told.returncode == 0, told.stderr
        assert 1 <= told.stdout.count("Fill in: ") <= 6
    return copy


def test_the_lecture_and_its_exercise_pass_what_is_asked_of_each(house):
    done = run(
        house, "pytest", "-n0", "tests/test_structure.py", "tests/grading/test_checks.py", "-k", "98 or setup_cell"
    )
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout or "100%" in done.stdout
    assert (house / "exercises/98_odds_and_ends/98_odds_and_ends.ipynb").exists()


def test_the_widget_and_the_recipe_pass_their_tests(house):
    done = run(house, "pytest", "-n0", "tests/viz/test_dot_map.py", "tests/recipes/test_line.py")
    assert done.returncode == 0, done.stdout


def test_the_lecture_runs_and_its_claims_hold(house, tmp_path):
    done = run(house, "coursekit", "run", "98", "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\d+ TODOs? left in .*98_odds_and_ends\.ipynb", done.stdout)
    assert "TODO left in README.md, in the row of 98_odds_and_ends" in done.stdout
    claims = json.loads((tmp_path / "98_odds_and_ends/claims.json").read_text("utf-8"))
    assert len(claims) == 3
    assert all(claim["ok"] for claim in claims)


def test_what_is_made_is_formatted(house):
    for words in (["check"], ["format", "--check"]):
        done = run(house, "ruff", *words)
        assert done.returncode == 0, done.stdout


def test_the_row_of_the_readme_is_in_its_place(house, tmp_path):
    assert "(notebooks/98_odds_and_ends.ipynb) | 90 |" in (house / "README.md").read_text("utf-8")
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(home() / name, tmp_path)
    for room in ("exercises", "solutions"):
        (tmp_path / room).mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(new, "release", lambda home, only: [])
        new.new_lecture(tmp_path, 3, "between")
    rows = [line[2:4] for line in (tmp_path / "README.md").read_text("utf-8").splitlines() if "](notebooks/" in line]
    assert [row for row in rows if row.isdigit()][:4] == ["01", "02", "03", "03"], "before the next, after the last"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda house: new.new_lecture(house, 98, "again"), "98_odds_and_ends.ipynb is lecture 98 already"),
        (lambda house: new.new_lecture(house, 0, "zero"), "a number from 1 to 99"),
        (lambda house: new.new_lecture(house, 15, "Odd name"), "'Odd name' cannot name a lecture: use small letters"),
        (lambda house: new.new_lecture(house, 15, "bert"), r"checks/bert\.py is there already"),
        (lambda house: new.new_widget(house, "dot_map"), r"viz/dot_map\.py is there already"),
        (lambda house: new.new_recipe(house, "../x"), "cannot name a recipe"),
    ],
)
def test_what_is_taken_or_no_name_is_refused_and_nothing_is_written(house, make, says):
    before = sorted(path for path in house.rglob("*") if "__pycache__" not in path.parts)
    with pytest.raises(LectureError, match=says):
        make(house)
    assert sorted(path for path in house.rglob("*") if "__pycache__" not in path.parts) == before


def test_every_template_says_what_is_to_be_filled_in():
    made = nbformat.reads(
        nbformat.writes(new.notebook(new.template("lecture", number="14", stem="14_x", title="X"), "", None, False)), 4
    )
    assert sum("TODO" in cell.source for cell in made.cells) >= 8
