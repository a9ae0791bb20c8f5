"""``make test ONLY=03``: the tests of what one lecture and its exercise use, and those that go through all lectures."""

import ast
import re
from functools import cache
from inspect import getsource
from pathlib import Path

import nbformat
import pytest

import coursekit
from coursekit.commands.lectures import LectureError, find_lecture, home

TESTS, PACKAGE = Path(__file__).parent, Path(coursekit.__file__).parent
FOR_ALL = {TESTS / "test_structure.py", TESTS / "commands" / "test_lectures.py", TESTS / "grading" / "test_checks.py"}
FOR_ALL |= {TESTS / "grading" / "test_release.py"}
NAMED = re.compile(r"(?<![0-9])(\d\d)(?:_[a-z]|\b)")  # a lecture in the name of a case, as in [03_self_attention-...]


def code_of(stem: str) -> list[str]:
    """Sources of the lecture, of its exercise's model answer and of that exercise's checks."""
    books = [home() / "notebooks" / f"{stem}.ipynb", home() / "solutions" / stem / f"{stem}.ipynb"]
    cells = [c.source for path in books for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code"]
    return [*cells, (PACKAGE / "grading" / "checks" / f"{stem[3:]}.py").read_text("utf-8")]


def modules_of(source: str) -> set[str]:
    """Modules of the package that a source imports from: of ``from coursekit.viz import bars`` the one it lies in."""
    found = set()
    for node in ast.walk(ast.parse(re.sub(r"(?m)^\s*[%!].*$", "", source))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "coursekit":
            room = PACKAGE.joinpath(*node.module.split(".")[1:])
            for alias in node.names:
                found.add(f"{node.module}.{alias.name}" if (room / f"{alias.name}.py").exists() else node.module)
                if (room / "__init__.py").exists():  # shown at the door of the room
                    text = (room / "__init__.py").read_text("utf-8")
                    found |= set(re.findall(rf"from (coursekit[\w.]+) import [^\n]*\b{alias.name}\b", text))
    return found


@cache
def files_of(stem: str) -> set[Path]:
    """The test files that mirror them: ``tests/nn/test_attention.py`` for ``coursekit.nn.attention``.

    A file that mirrors none, such as ``tests/viz/test_widgets_in_a_browser.py``, goes with what it imports of its room.
    """
    found = set(FOR_ALL)
    for module in set().union(*map(modules_of, code_of(stem))):
        _, *room, name = module.split(".")
        found |= {path for path in [TESTS.joinpath(*room, f"test_{name}.py")] if path.exists()}
        for path in TESTS.joinpath(*room).glob("test_*.py") if room else ():
            mirrored = PACKAGE.joinpath(*room, f"{path.stem[5:]}.py")
            if not mirrored.exists() and f"from {module} import" in path.read_text("utf-8"):
                found.add(path)
    return found


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--lecture", help="only the tests of what this lecture uses: its number or name")


def pytest_configure(config: pytest.Config) -> None:
    if name := config.getoption("lecture"):
        try:
            config.stash[STEM] = find_lecture(name).stem
        except LectureError as error:
            raise pytest.UsageError(str(error)) from None


STEM = pytest.StashKey[str]()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if (stem := config.stash.get(STEM, None)) and collection_path.suffix == ".py":
        return collection_path not in files_of(stem) or None
    return None


def lectures_of(item: pytest.Function) -> list[str]:
    """The numbers of the lectures that a test is about: those in the name of its case, or those that it names."""
    return NAMED.findall(item.name.partition("[")[2]) or re.findall(r'"(\d\d)_[a-z]', getsource(item.function))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not (stem := config.stash.get(STEM, None)):
        return
    kept, others = [], []
    for item in items:
        named = lectures_of(item) if item.path in FOR_ALL or item.path.parent.name == "grading" else []
        (kept if all(number == stem[:2] for number in named) else others).append(item)
    config.hook.pytest_deselected(items=others)
    items[:] = kept
