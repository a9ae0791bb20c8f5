"""Whether what is checked is what its cell says now.

A cell that stops with an error leaves what an earlier run of it has defined. No mark depends on this module: marking
runs each cell once.
"""

import ast
import linecache
import types
from collections.abc import Iterator
from typing import Any

_latest: dict[str, tuple[str, str]] = {}  # by the cell's id: its source and the error that it stopped with, if it did
_cell_of: dict[str, str] = {}  # by each source that was run: the id of its cell
_before: dict[str, int] = {}  # what each name stood for when the cell that is running began
_failed: dict[str, str] = {}  # by each name that the latest cell to assign it did not: the error that this stopped with


def watch(shell: Any) -> None:
    """From now on remember the cells that this IPython runs, if it says which they are (Colab's, of 2022, does not)."""
    if note not in shell.events.callbacks["post_run_cell"]:
        shell.events.register("pre_run_cell", lambda _: begin(shell.user_ns))
        shell.events.register("post_run_cell", note)
        shell.events.register("post_run_cell", lambda result: note_names(result, shell.user_ns))


def begin(names: dict[str, Any]) -> None:
    _before.clear()
    _before.update({name: id(value) for name, value in names.items()})


def note_names(result: Any, names: dict[str, Any]) -> None:
    """Which names keep what they had, since the cell that assigns them stopped before."""
    try:
        found = ast.walk(ast.parse(result.info.raw_cell or ""))
    except (SyntaxError, ValueError):
        return
    error = result.error_in_exec
    for name in {node.id for node in found if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}:
        if error and name in names and _before.get(name) == id(names[name]):
            _failed[name] = type(error).__name__
        else:
            _failed.pop(name, None)


def note(result: Any) -> None:
    cell, source = getattr(result.info, "cell_id", None), (result.info.raw_cell or "").strip()
    if cell:
        error = result.error_before_exec or result.error_in_exec
        _latest[cell] = source, type(error).__name__ if error else ""
        _cell_of[source] = cell


def left_over(answer: Any, names: dict[str, Any] | None = None) -> str:
    """In words, why an answer is not what the latest run of its cell says; empty where it is, or unknown.

    ``names`` are the notebook's: a model, say, is looked up among them. Nor may what it calls of the notebook's be left
    over: a function that is given may call the one that was written.
    """
    for name, error in _failed.items():
        if names and not isinstance(answer, types.FunctionType | type) and names.get(name) is answer:
            what = f"the latest run of the cell that makes {name} stopped with {error}"
            return f"{what}, and what is there is from an earlier one"
    for code in codes_behind(answer):
        source = "".join(linecache.getlines(code.co_filename)).strip()
        latest, error = _latest.get(_cell_of.get(source, ""), (source, ""))
        if latest != source:
            happened = f"stopped with {error}" if error else "has not defined it"
            return f"the latest run of its cell {happened}, and what is there is from an earlier one: mend the cell"
    return ""


def codes_behind(answer: Any) -> Iterator[types.CodeType]:
    """The code of a function or a class's methods, and of what of the same notebook they name."""
    waiting = [answer]
    for part in waiting:
        found = list(vars(part).values()) if isinstance(part, type) else []
        code = getattr(part, "__code__", None)
        if isinstance(code, types.CodeType):
            yield code
            found = [part.__globals__.get(name) for name in code.co_names]
            found = [one for one in found if getattr(one, "__module__", "") == part.__module__]
        waiting += [one for one in found if isinstance(one, types.FunctionType | type) and one not in waiting]
