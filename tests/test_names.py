"""What the lectures and masters take from the package is there: a name that is gone is found before they are run."""

import ast
import contextlib
import functools
import importlib
import inspect
import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted([*ROOT.glob("notebooks/*.ipynb"), *ROOT.glob("solutions/*/*.ipynb")])


@functools.cache
def attributes(kind: type) -> set[str]:
    """What an instance has: what its classes define, and what their methods set on ``self``."""
    ours = [inspect.getsource(one) for one in kind.__mro__ if one.__module__.startswith("coursekit.")]
    nodes = [node for source in ours for node in ast.walk(ast.parse(textwrap.dedent(source)))]
    stored = {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    calls = [node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    buffers = {node.args[0].value for node in calls if node.func.attr == "register_buffer"}
    fields = {name for one in kind.__mro__ for name in vars(one).get("__annotations__", {})}
    return {*dir(kind), *stored, *buffers, *fields}


def is_ours(thing: object) -> bool:
    """Whether it is a module or a class of the package."""
    name = thing.__name__ if inspect.ismodule(thing) else thing.__module__ if isinstance(thing, type) else ""
    return name.startswith("coursekit.")


def imported(nodes: list[ast.AST]) -> tuple[dict[str, object], list[str]]:
    """What is imported from the package, by name, and what of it is not there."""
    known, gone = {}, []
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("coursekit"):
            module = importlib.import_module(node.module)
            for alias in node.names:
                with contextlib.suppress(ModuleNotFoundError):  # a module that nobody has imported yet
                    importlib.import_module(f"{node.module}.{alias.name}")
                if hasattr(module, alias.name):
                    known[alias.asname or alias.name] = getattr(module, alias.name)
                else:
                    gone.append(f"{node.module}.{alias.name}")
    return known, gone


def meaning(node: ast.AST | None, known: dict[str, object]) -> object:
    """The module, class or function that a name or a chain of attributes stands for; None for all else."""
    if isinstance(node, ast.Name):
        return known.get(node.id)
    owner = meaning(node.value, known) if isinstance(node, ast.Attribute) else None
    return getattr(owner, node.attr, None) if is_ours(owner) else None


def missing(cells: list[str]) -> Iterator[str]:
    """What some code takes from the package's modules, classes and their instances that is not there."""
    nodes = [node for source in cells for node in ast.walk(ast.parse(source))]
    known, gone = imported(nodes)
    yield from gone
    stored = Counter(node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    stored.update(node.arg for node in nodes if isinstance(node, ast.arg))
    known = {name: thing for name, thing in known.items() if not stored[name]}
    made = {}  # names that stand for one instance throughout, and its class
    for node in nodes:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Call)
            and is_ours(meaning(node.value.func, known))
        ):
            made |= {one.id: meaning(node.value.func, known) for one in node.targets if isinstance(one, ast.Name)}
    made = {name: kind for name, kind in made.items() if stored[name] == 1}
    for node in (node for node in nodes if isinstance(node, ast.Attribute)):
        owner = meaning(node.value, known)
        kind = made.get(getattr(node.value, "id", ""), meaning(getattr(node.value, "func", None), known))
        if is_ours(owner) and not hasattr(owner, node.attr):
            yield ast.unparse(node)
        if isinstance(kind, type) and is_ours(kind) and node.attr not in attributes(kind):
            yield ast.unparse(node)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: f"{path.relative_to(ROOT).parts[0]}-{path.stem}")
def test_what_a_notebook_takes_from_the_package_is_there(path):
    notebook = nbformat.read(path, as_version=4)
    gone = [*missing([cell.source for cell in notebook.cells if cell.cell_type == "code" and cell.id != "setup"])]
    assert not gone, f"{', '.join(gone)}: not in the package (any more)"


@pytest.mark.parametrize(
    ("code", "gone"),
    [
        ("from coursekit.nn.positions import SinusoidalPositions, sinusoid", ["coursekit.nn.positions.sinusoid"]),
        ("from coursekit.nn import positions\npositions.sinusoid(3)", ["positions.sinusoid"]),
        ("from coursekit.models.seq2seq import LuongDecoder as L\nshow(L.attend, L.step)", ["L.attend"]),
        ("from coursekit.nn.positions import LearnedPositions as P\nP(5, 4).code, P(5, 4).encoding", ["P(5, 4).code"]),
        ("from coursekit.nn.positions import SinusoidalPositions as P\nx = P(5, 4)\nx.code, x.encoding", ["x.code"]),
        ("from coursekit.models.gpt import GPTConfig\nc = GPTConfig()\nc.d_modle, c.d_model", ["c.d_modle"]),
        ("from coursekit.nn import positions\npositions = 1\npositions.sinusoid", []),
    ],
)
def test_a_name_that_is_gone_is_found(code, gone):
    assert [*missing([code])] == gone
