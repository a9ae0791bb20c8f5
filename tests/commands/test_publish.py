"""The address of a public repository, written into a small copy of the course; and the setup cell, executed."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import nbformat
import pytest

from coursekit.commands import cli, site
from coursekit.commands import publish as publishing
from coursekit.commands.lectures import LectureError, home
from coursekit.commands.publish import publish, published_as, setup_cell, write_notebook
from coursekit.grading import GradingError

NAME = "03_self_attention"
FILES = ["pyproject.toml", "README.md", f"notebooks/{NAME}.ipynb", "notebooks/01_language_models.ipynb"]
FILES += [f"{folder}/{NAME}/{NAME}.ipynb" for folder in ("solutions", "exercises")]


def everything(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def cell(path: Path, name: str) -> str:
    return next(cell.source for cell in nbformat.read(path, as_version=4).cells if cell.id == name)


@pytest.fixture(scope="module")
def states(tmp_path_factory):
    """The course's folder before, after publishing, after doing so again, and after another name."""
    root = tmp_path_factory.mktemp("course")
    for name in FILES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes((home() / name).read_bytes())
    states = [everything(root)]
    for name in ("ada/course", "ada/course", "babbage-2/other.name"):
        changed = publish(root, name)
        states.append(everything(root))
        assert {p.relative_to(root).as_posix() for p in changed} == {
            name for name in states[-1] if states[-1][name] != states[-2][name]
        }
    return root, *states


def written(state: dict[str, bytes], name: str, tmp_path: Path) -> dict[str, str]:
    """Id and source of each cell of a notebook."""
    (tmp_path / "x.ipynb").write_bytes(state[name])
    return {cell.id: cell.source for cell in nbformat.read(tmp_path / "x.ipynb", as_version=4).cells}


@pytest.mark.slow
def test_every_place_names_the_repository(states, tmp_path):
    _, before, after, again, other = states
    assert after == again
    assert set(before) == set(FILES) == set(after) == set(other)
    for state, repository in ((after, "ada/course"), (other, "babbage-2/other.name")):
        assert tomllib.loads(state["pyproject.toml"].decode())["project"]["urls"] == {
            "Repository": f"https://github.com/{repository}"
        }
        for name in (name for name in FILES if name.endswith(".ipynb")):
            cells = written(state, name, tmp_path)
            assert f'online = "https://github.com/{repository}/archive/refs/heads/main.zip"' in cells["setup"]
            opens = name.replace("solutions/", "exercises/")
            link = f"[Open in Colab](https://colab.research.google.com/github/{repository}/blob/main/{opens})"
            assert cells["title"].splitlines().count(link) == 1
            assert "*Colab:*" not in cells["title"]
    assert b"ada/course" not in b"".join(other.values())


def test_nothing_else_is_touched(states, tmp_path):
    """But for the lines that name the repository, and nbgrader's checksums of them, all is as it was."""
    _, before, _, _, other = states
    for name in FILES:
        old, new = (state[name].decode().splitlines() for state in (before, other))
        added = [line for line in new if line not in old]
        assert added
        about = [line for line in added if "babbage-2/other.name" in line]
        assert set(added) - set(about) <= {line for line in added if '"checksum"' in line or line == "[project.urls]"}
        if name.endswith(".ipynb"):
            ids = [list(written(state, name, tmp_path)) for state in (before, other)]
            assert ids[0] == ids[1]


def test_the_readme_opens_lectures_and_exercises(states):
    other = states[-1]["README.md"].decode()
    links = re.findall(r"\]\((https://colab\.\S+)\) ?[|,]?", other)
    assert len(links) == 2 * len(re.findall(r"^\| \d\d \|", other, re.MULTILINE)) > 0
    start = "https://colab.research.google.com/github/babbage-2/other.name/blob/main/"
    for link in links:
        assert (home() / link.removeprefix(start)).is_file()


def test_an_unpublished_course_has_no_address(states, tmp_path):
    root, before, *_ = states
    assert published_as(root) == "babbage-2/other.name"
    (tmp_path / "pyproject.toml").write_bytes(before["pyproject.toml"].split(b"[project.urls]")[0])
    assert published_as(tmp_path) is None
    assert 'online = ""' in setup_cell()


def test_the_site_shows_a_lecture_as_it_is_published(states, tmp_path):
    """Executed before, shown after: no lecture need be executed for its address."""
    root, before, *_ = states
    results = tmp_path / NAME
    results.mkdir()
    executed = nbformat.reads(before[f"notebooks/{NAME}.ipynb"].decode(), as_version=4)
    for cell in executed.cells:
        if cell.cell_type == "code":
            cell.execution_count = 1
    nbformat.write(executed, results / "notebook.ipynb")
    path = root / "notebooks" / f"{NAME}.ipynb"
    notebook = site.executed(path, tmp_path)
    assert not site.is_stale(notebook, path)
    assert "babbage-2/other.name" in notebook.cells[0].source
    link = re.search(
        r'<a href="(\S+)" aria-label="Lecture 03 in Colab">', site.card(path, notebook, 0, False, tmp_path)
    )
    assert link[1].endswith(f"/babbage-2/other.name/blob/main/notebooks/{NAME}.ipynb")


# --- what is refused -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        *("", "course", "ada/", "/course", "ada/course/more", "ada/..", "a da/course", "-ada/course", 'ada/"x'),
        *("https://github.com/ada/course", "ada/course.git", "ada/course\n", "../course", "ada/ü", "a" * 40 + "/b"),
    ],
)
def test_a_wrong_name_is_refused_in_one_line(name, states, monkeypatch, capsys):
    root = states[0]
    monkeypatch.chdir(root)
    monkeypatch.setattr(sys, "argv", ["coursekit", "publish", "--", name])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    out, err = capsys.readouterr()
    assert ended.value.code == 2
    assert out == ""
    assert len(err.strip().splitlines()) == 1
    assert "OWNER/REPO" in err or "leave out '.git'" in err
    assert everything(root) == states[-1]


def spoil_points(root: Path) -> None:
    path = root / "solutions" / NAME / f"{NAME}.ipynb"
    path.write_text(re.sub(r'"points": \d+', '"points": 1', path.read_text(encoding="utf-8")), encoding="utf-8")


def rename_setup(root: Path) -> None:
    path = root / "notebooks" / f"{NAME}.ipynb"
    path.write_text(path.read_text(encoding="utf-8").replace('"id": "setup"', '"id": "start"'), encoding="utf-8")


def answer(root: Path) -> None:
    path = root / "exercises" / NAME / f"{NAME}.ipynb"
    text = path.read_text(encoding="utf-8").replace("raise NotImplementedError", "return 1 #")
    path.write_text(text, encoding="utf-8")


def no_repository(root: Path) -> None:
    (root / "pyproject.toml").unlink()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (spoil_points, "not released. .*: the points add up to"),
        (rename_setup, f"{NAME}.ipynb has no cell with the id 'setup'"),
        (answer, "holds answers; move it away first"),
        (no_repository, "no pyproject.toml in"),
    ],
)
def test_a_fault_anywhere_changes_nothing(spoil, words, states, tmp_path):
    for name, content in states[1].items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    spoil(tmp_path)
    before = everything(tmp_path)
    with pytest.raises((GradingError, LectureError), match=words):
        publish(tmp_path, "ada/course")
    assert everything(tmp_path) == before


def test_what_was_written_before_a_failure_is_put_back(tmp_path, monkeypatch):
    made, course = tmp_path / "made", tmp_path / "course"
    for folder in (made, course):
        folder.mkdir()
        for name in "abc":
            (folder / name).write_text(f"{folder.name} {name}", encoding="utf-8")
    before, write = everything(course), publishing.write_atomically

    def fails_at_c(path, writer):
        if path.name == "c":
            raise OSError("no space left on device")
        write(path, writer)

    monkeypatch.setattr(publishing, "write_atomically", fails_at_c)
    with pytest.raises(OSError, match="no space left"):
        publishing.replace_all(made, course)
    assert everything(course) == before


# --- the setup cell, executed --------------------------------------------------------------------------

SHELL = """
import json, sys, types
from IPython.core.interactiveshell import InteractiveShell
installed, works = map(json.loads, sys.argv[1:])
sys.modules["coursekit"] = types.ModuleType("coursekit") if installed else None
shell, asked = InteractiveShell(), []

def pip(line):
    asked.append(line)
    if works:
        sys.modules["coursekit"] = types.ModuleType("coursekit")

shell.register_magic_function(pip, "line", "pip")
shell.run_cell(sys.stdin.read())
print(json.dumps(asked), file=sys.stderr)
"""


@pytest.fixture
def run_setup(tmp_path):
    """Run the setup cell in a shell of its own whose ``%pip`` only notes what it is asked for."""
    beside, drive = tmp_path / "content", tmp_path / "My Drive"
    for folder in (beside, drive / "Colab Notebooks" / "attention" / "deeper"):
        folder.mkdir(parents=True)

    def run_setup(repository=None, installed=False, works=True):
        source = setup_cell(repository)
        assert source.count("/content/drive/MyDrive") == 1
        done = subprocess.run(
            [sys.executable, "-c", SHELL, *map(json.dumps, (installed, works))],
            input=source.replace("/content/drive/MyDrive", str(drive)),
            cwd=beside,
            env={**os.environ, "IPYTHONDIR": str(tmp_path / "ipython"), "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        )
        return json.loads(done.stderr.splitlines()[-1]), re.sub(r"\x1b\[[\d;]*m", "", done.stdout).strip()

    return beside, drive, run_setup


def wheel(folder: Path, version: str) -> Path:
    path = folder / f"attention_course-{version}-py3-none-any.whl"
    path.touch()
    return path


def test_where_the_course_is_installed_nothing_happens(run_setup):
    beside, _, run = run_setup
    wheel(beside, "0.1.0")
    assert run("ada/course", installed=True) == ([], "")


def test_the_newest_wheel_beside_the_notebook_is_taken(run_setup):
    beside, drive, run = run_setup
    for version in ("0.9.0", "0.10.0", "0.2"):
        wheel(beside, version)
    wheel(drive, "3.0.0")
    (beside / "attention_course-7.0-py3-none-any (1).whl").touch()  # a browser's copy, which pip refuses
    assert run("ada/course") == (['install --quiet "attention_course-0.10.0-py3-none-any.whl"'], "")


@pytest.mark.parametrize("folder", ["", "Colab Notebooks", "Colab Notebooks/attention"])
def test_else_the_newest_in_drive(folder, run_setup):
    _, drive, run = run_setup
    wheel(drive, "0.9.0")
    newest = wheel(drive / folder, "0.10.0")
    wheel(drive / "Colab Notebooks" / "attention" / "deeper", "9.0.0")
    assert run("ada/course") == ([f'install --quiet "{newest}"'], "")


def test_else_the_published_course(run_setup):
    *_, run = run_setup
    assert run("ada/course") == (
        ['install --quiet "https://github.com/ada/course/archive/refs/heads/main.zip"'],
        "",
    )


def test_else_the_last_line_says_what_to_do(run_setup):
    *_, run = run_setup
    asked, said = run()
    assert asked == []
    assert said.splitlines()[-1] == (
        "FileNotFoundError: put attention_course-*-any.whl beside the notebook, or mount Drive with it"
    )
    assert said.count("Error") == said.count("Traceback") + 2, "one error, not two"


def test_an_installation_that_fails_is_not_passed_over(run_setup):
    *_, run = run_setup
    asked, said = run("ada/course", works=False)
    assert len(asked) == 1
    assert said.splitlines()[-1].startswith("ModuleNotFoundError: ")


def test_it_changes_no_package_that_is_installed():
    assert "%pip install --quiet" in setup_cell("ada/course")
    assert "upgrade" not in setup_cell("ada/course")


def test_a_title_without_the_line_gets_one(tmp_path):
    notebook = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_markdown_cell("# A lecture\n\nText.", id="title"),
            nbformat.v4.new_code_cell("", id="setup"),
        ]
    )
    nbformat.write(notebook, tmp_path / "04_new.ipynb")
    write_notebook(tmp_path / "04_new.ipynb", "notebooks/04_new.ipynb", "ada/course")
    lines = cell(tmp_path / "04_new.ipynb", "title").splitlines()
    assert lines[:4] == ["# A lecture", "", "Text.", ""]
    assert lines[4].startswith("[Open in Colab](https://colab.research.google.com/github/ada/course/blob/main/")
