"""A check in a notebook: which cells an answer is made of, where it stopped, and what is shown of that."""

import importlib
import itertools
import linecache
import os
import sys
import traceback
import types
from pathlib import Path
from typing import Any

from coursekit.grading.magics import as_python

FRAMES = 20  # lines of a traceback that are shown
YOURS, GIVEN_CELL = "your cell", "a given cell"
GIVEN = "# given"  # the first line of the cells of an exercise that are not the student's, where they define something


def notebook() -> Any | None:
    """The IPython that this runs in."""
    return getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()


def show(text: str, draw: str, *arguments: Any) -> bool:
    """Show ``text`` in a notebook as what the function ``draw`` of ``card.py`` makes; False where nothing can be drawn.

    The text stays beside the drawing, for whatever shows no HTML.
    """
    shell = notebook()
    if shell is None or "text/html" not in shell.display_formatter.active_types:
        return False
    from IPython.display import display

    card = importlib.import_module("coursekit.grading.card")  # by name: no mark depends on it (see closure.py)
    display({"text/plain": text, "text/html": getattr(card, draw)(*arguments)}, raw=True)
    return True


class CheckFailed(AssertionError):
    """A check that failed: in a notebook one sees its words, and the traceback of the student's own code.

    Where they are ``shown`` already, on a card, only the first line is left for the exception to say.
    """

    def __init__(self, text: str, cause: BaseException | None = None):
        super().__init__(text)
        self.text, self.cause, self.shown = text, cause, False

    def _render_traceback_(self) -> list[str]:
        return self.text.splitlines()[:1] if self.shown else self.lines()

    def lines(self) -> list[str]:
        return [self.text, "", *self.where()] if self.cause is not None else [self.text]

    def where(self) -> list[str]:
        """The student's own code at which it stopped, if that is the cause."""
        if self.cause is None:
            return []
        frames = traceback.extract_tb(self.cause.__traceback__)
        said = [
            (f"  {where}, line {one.lineno}, in {one.name}", f"    {one.line}")
            for one in frames
            if (where := place_of(one.filename))
        ]
        lines = [line for place, _ in itertools.groupby(said) for line in place]  # of a call of itself one is enough
        if len(lines) > FRAMES:
            lines = [*lines[: FRAMES // 2], "  …", *lines[-FRAMES // 2 :]]
        if not lines:
            return ["The call itself failed: has it the arguments asked for?"]
        error = f"{type(self.cause).__name__}: {first_line(self.cause)}".rstrip(": ")
        return ["Where it stopped:", *lines, error]


def first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0]


def place_of(filename: str) -> str:
    """Whose code a frame of a traceback runs: the student's, a given cell's, or (empty) that of a library."""
    path = Path(filename)
    ours = (Path(os.__file__).parent, Path(__file__).parents[1])  # Python's own, and this package
    if {"site-packages", "dist-packages"} & set(path.parts) or any(map(path.is_relative_to, ours)):
        return ""
    if "ipykernel" in filename or filename.startswith("<ipython"):  # the second is Colab's way
        return GIVEN_CELL if linecache.getline(filename, 1).startswith(GIVEN) else YOURS
    return "" if filename.startswith("<") else filename


def cells_behind(answer: Any) -> dict[str, str]:
    """The sources of the student's own cells that define an answer and what it calls, in this kernel; without names."""
    waiting, seen, found = [answer], set(), {}
    while waiting:
        one = waiting.pop()
        if isinstance(one, type):
            waiting += [*vars(one).values(), *one.__bases__]
        code = getattr(one, "__code__", None)
        where = place_of(code.co_filename) if isinstance(code, types.CodeType) and code not in seen else ""
        if where in (YOURS, GIVEN_CELL):
            seen.add(code)
            if where == YOURS:
                found[code.co_filename] = as_python("".join(linecache.getlines(code.co_filename)))
            waiting += [one.__globals__[name] for name in names_in(code) if name in one.__globals__]
    return {"": "\n".join(found.values())} if found else {}


def names_in(code: types.CodeType) -> set[str]:
    """The names that a function looks up outside of it, and so do those in it."""
    inner = [one for one in code.co_consts if isinstance(one, types.CodeType)]
    return set(code.co_names).union(*map(names_in, inner))


if (shell := notebook()) is not None:  # by name, as with the card
    importlib.import_module("coursekit.grading.history").watch(shell)
