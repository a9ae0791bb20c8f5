"""Whether what is checked is what its cell says now.

A cell that stops with an error leaves what an earlier run of it has defined. No mark depends on this module: marking
runs each cell once.
"""

import linecache
import types
from collections.abc import Iterator
from typing import Any

_latest: dict[str, tuple[str, str]] = {}  # by the cell's id: its source and the error that it stopped with, if it did
_cell_of: dict[str, str] = {}  # by each source that was run: the id of its cell


def watch(shell: Any) -> None:
    """From now on remember the cells that this IPython runs, if it says which they are (Colab's, of 2022, does not)."""
    if note not in shell.events.callbacks["post_run_cell"]:
        shell.events.register("post_run_cell", note)


def note(result: Any) -> None:
    cell, source = getattr(result.info, "cell_id", None), (result.info.raw_cell or "").strip()
    if cell:
        error = result.error_before_exec or result.error_in_exec
        _latest[cell] = source, type(error).__name__ if error else ""
        _cell_of[source] = cell


def left_over(answer: Any) -> str:
    """In words, why a function or class is not what the latest run of its cell says; empty where it is, or unknown.

    Nor may what it calls of the notebook's be left over: a function that is given may call the one that was written.
    """
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
