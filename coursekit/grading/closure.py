"""What a mark depends on in this package: the modules that its checks, its marking and its exercise import."""

import ast
import hashlib
from collections.abc import Iterable
from functools import cache
from importlib.metadata import version
from pathlib import Path

OTHERS = ("torch", "numpy", "safetensors", "ipython")  # whose versions can change what an answer returns
PACKAGE = Path(__file__).parents[1]
MARKING = ("coursekit.grading.marking", "coursekit.grading.inside")


def fingerprint(exercise: str, given: str) -> str:
    """A digest of everything in the course that decides the marks of an exercise, but for the answers themselves.

    Args:
        exercise: the name of its module of checks, such as ``coursekit.grading.checks.vit``.
        given: the code of the released notebook, which names the parts of the course that answers are run with.
    """
    state = hashlib.sha256("\0".join(f"{name} {version(name)}" for name in OTHERS).encode())
    paths = {name: path_of(name) for name in closure([exercise, *MARKING, *imported(given)])}
    if "coursekit.recipes" in paths:  # what ships with them is read too
        weights = paths["coursekit.recipes"].with_name("checkpoints")
        paths |= {str(path.relative_to(weights)): path for path in weights.rglob("*") if path.is_file()}
    for name, path in sorted(paths.items()):
        state.update(f"{name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return state.hexdigest()


def closure(names: Iterable[str]) -> set[str]:
    """The modules of the course that these import, directly or through others, and they themselves."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        path = path_of(name)
        if path is None or name in found:
            continue
        found.add(name)
        waiting += [name.rpartition(".")[0], *imported(path.read_text(encoding="utf-8"))]
    return found


def imported(source: str) -> list[str]:
    """What of the course a piece of code imports; ``from a import b`` may mean the module ``a.b``."""
    lines = [line for line in source.splitlines() if not line.lstrip().startswith(("%", "!"))]
    names = []
    for node in ast.walk(ast.parse("\n".join(lines))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return [name for name in names if name.partition(".")[0] == "coursekit"]


@cache
def path_of(name: str) -> Path | None:
    """The file of a module of the course; None where the name is none, such as that of a function."""
    package, *inside = name.split(".")
    place = PACKAGE.joinpath(*inside)  # importlib would import what the module is in
    found = [path for path in (place / "__init__.py", place.with_name(f"{place.name}.py")) if path.is_file()]
    return found[0] if found and package == PACKAGE.name else None
