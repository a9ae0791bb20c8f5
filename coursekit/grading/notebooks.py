"""From a notebook's bytes to the answers in it, however the file was rewritten on its way.

Nothing in a notebook is believed but the source of its cells. This runs in the child process of ``intake.py``, so it
imports little besides IPython's own reader of cells.
"""

import ast
import itertools
import json
import re
import warnings
from pathlib import Path, PurePosixPath
from typing import Any

from coursekit.grading import GradingError
from coursekit.grading.magics import as_python

MOST_CELLS = 2000
LONGEST_CELL = 100_000  # characters; a longer one is not parsed
LONGEST_ANSWER = 100_000  # bytes of one answer
LONGEST_ANSWERS = 1_000_000  # bytes of all answers of a notebook

Cell = dict[str, Any]  # cell_type, source, id, grade_id, solution
Released = dict[str, list[Cell]]  # the cells of each released exercise, by its name


class NoNotebookError(Exception):
    """Why a file is no notebook that can be read, in a few words."""


def cells_of(data: bytes, file: str) -> list[Cell]:
    """The cells of a notebook: type, source, id and grading name, and nothing else of it.

    Raises:
        NoNotebookError: it is something else, or too large.
    """
    try:
        notebook = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        kind = PurePosixPath(file).suffix
        said = f"a {kind[:20]} file" if kind else "a file whose name has no ending"
        raise NoNotebookError(why_not_json(data, error) if kind == ".ipynb" else f"not a notebook: {said}") from None
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list):
        raise NoNotebookError("not a notebook: JSON without a list of cells")
    if len(cells) > MOST_CELLS:
        raise NoNotebookError(f"a notebook with {len(cells)} cells: more than {MOST_CELLS} are not read")
    found = [read for cell in cells if isinstance(cell, dict) and (read := cell_of(cell))]
    if not found:
        raise NoNotebookError("a notebook without cells")
    return found


def why_not_json(data: bytes, error: Exception) -> str:
    if not data.strip():
        return "an empty file"
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "not JSON as notebooks are written: in UTF-16, and UTF-8 is needed"
    if isinstance(error, UnicodeDecodeError):
        return "not JSON as notebooks are written: not in UTF-8, perhaps in an encoding of Windows"
    return "not JSON: broken on its way?"


def cell_of(cell: dict[str, Any]) -> Cell | None:
    source, about = cell.get("source", ""), cell.get("metadata")
    about = about.get("nbgrader") if isinstance(about, dict) else None
    about = about if isinstance(about, dict) else {}
    if isinstance(source, list):
        source = "".join(line for line in source if isinstance(line, str))
    if cell.get("cell_type") not in ("code", "markdown", "raw") or not isinstance(source, str):
        return None
    return {
        "cell_type": cell["cell_type"],
        "source": source.replace("\r\n", "\n").encode("utf-8", "replace").decode(),
        "id": text_or_empty(cell.get("id")),
        "grade_id": text_or_empty(about.get("grade_id")),
        "solution": about.get("solution") is True,  # asked of released notebooks only
    }


def text_or_empty(value: Any) -> str:
    return value if isinstance(value, str) else ""


def read_released(home: Path) -> Released:
    """The cells of every exercise in ``home / "exercises"``."""
    found = {}
    for path in sorted((home / "exercises").glob("*/*.ipynb")):
        if path.stem == path.parent.name:
            try:
                found[path.stem] = cells_of(path.read_bytes(), path.name)
            except (NoNotebookError, OSError) as error:
                raise GradingError(f"cannot read the exercise {path}: {error}") from None
    return found


def defines(source: str) -> set[str]:
    """The functions and classes that a cell defines at its top level."""
    try:
        if len(source) > LONGEST_CELL:
            raise ValueError("too long to parse")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a student's odd escapes
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set(re.findall(r"^(?:async[ \t]+)?(?:def|class)[ \t]+(\w+)", source, re.MULTILINE))
    return {n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}


def answers(released: list[Cell], cells: list[Cell]) -> tuple[dict[str, str], list[str]]:
    """The student's source of every answer cell of the released exercise, by ``grade_id``; and what to flag.

    Code is what IPython makes of it, as far as that can be read: whoever judges it later need not ask IPython again.

    An answer is looked for by ``grade_id``, then by cell id, then by what the cell defines (a written one by
    the text before it). Of several, the last that was changed counts, since it is the one that a run would use;
    one that still raises ``NotImplementedError`` gives way to one that does not. An answer that is not there, or
    was not touched, is left out, and so is one that is too long.
    """
    found, flags, size = {}, [], 0
    defined = defined_in(cells)
    for number, wanted in enumerate(released):
        if not wanted["solution"]:
            continue
        name = wanted["grade_id"]
        ways = ways_to(released, number, cells, defined)
        if wanted["cell_type"] == "markdown" and any(ways[:2]):
            ways = ways[:2]  # its own cell is there; what lies beside it is asked below
        if not any(ways):
            flags.append(f"{name}: the answer cell is gone")
            continue
        changed = [[c["source"] for c in way if squeezed(c) != squeezed(wanted)] for way in ways]
        finished = [[text for text in way if "raise NotImplementedError" not in text] for way in changed]
        chosen = next((way[-1] for way in (*finished, *changed) if way), None)
        if chosen is None and wanted["cell_type"] == "markdown" and (chosen := below(released, ways, cells) or None):
            flags.append(f"{name}: the answer is in new cells beside its own")
        if chosen is None:
            continue
        others = {text.strip() for way in changed for text in way} - {chosen.strip()}
        if others:
            flags.append(f"{name}: {len(others) + 1} different answers, one of them is marked")
        length = len(chosen.encode())
        if length > LONGEST_ANSWER or size + length > LONGEST_ANSWERS:
            flags.append(f"{name}: the answer is longer than {LONGEST_ANSWER // 1000} kB and is not marked")
            continue
        size += length
        found[name] = as_python(chosen) if wanted["cell_type"] == "code" else chosen
    return found, flags


def below(released: list[Cell], ways: list[list[Cell]], cells: list[Cell]) -> str:
    """What a student wrote into new cells around the one for a written answer, which is as it was.

    New cells of text count from the released cell before it to the next one after it; code between them does not.
    """
    known = {squeezed(cell) for cell in released}
    own = {id(cell) for way in ways for cell in way}
    found: list[str] = []
    near, new = False, []
    for cell in cells:
        if id(cell) in own:
            near = True
        elif squeezed(cell) in known:
            found += new if near else []
            near, new = False, []
        elif cell["cell_type"] == "markdown" and cell["source"].strip():
            new.append(cell["source"])
    return "\n\n".join([*found, *(new if near else [])])


def defined_in(cells: list[Cell]) -> list[set[str]]:
    return [defines(cell["source"]) if cell["cell_type"] == "code" else set() for cell in cells]


def ways_to(released: list[Cell], number: int, cells: list[Cell], defined: list[set[str]]) -> list[list[Cell]]:
    """Cells that could hold the answer to the released cell ``number``: by grade_id, by cell id, by content."""
    wanted = released[number]
    ways = (
        [cell for cell in cells if cell["grade_id"] == wanted["grade_id"]],
        [cell for cell in cells if cell["id"] == wanted["id"]],
        similar(released, number, cells, defined),
    )
    return [[cell for cell in way if same_kind(cell, wanted)] for way in ways]


def other_exercise(cells: list[Cell], exercise: str, released: Released) -> str:
    """The exercise that a notebook belongs to, if that is another one; otherwise nothing.

    Exercises share some names (``train``, ``masked_softmax``), so one answer cell of this one may well be there.
    """
    defined = defined_in(cells)
    if share_of(released[exercise], cells, defined) > 0.25:
        return ""
    shares = {name: share_of(its, cells, defined) for name, its in released.items()}
    best = max(shares, key=lambda name: shares[name])
    return best if shares[best] >= 0.75 else ""


def share_of(released: list[Cell], cells: list[Cell], defined: list[set[str]]) -> float:
    """Which share of the released answer cells is there."""
    wanted = [number for number, cell in enumerate(released) if cell["solution"]]
    return sum(any(ways_to(released, number, cells, defined)) for number in wanted) / max(1, len(wanted))


def similar(released: list[Cell], number: int, cells: list[Cell], defined: list[set[str]]) -> list[Cell]:
    """Cells that could be the released cell ``number``, by what they define or by the text before them."""
    wanted = released[number]
    if wanted["cell_type"] == "code":
        names = defines(wanted["source"])
        return [cell for cell, there in zip(cells, defined) if cell["cell_type"] == "code" and names <= there]
    before = squeezed(released[number - 1])
    return [after for cell, after in itertools.pairwise(cells) if squeezed(cell) == before]


def same_kind(cell: Cell, wanted: Cell) -> bool:
    return cell["cell_type"] == wanted["cell_type"] or wanted["cell_type"] == "markdown"


def squeezed(cell: Cell) -> str:
    return "".join(cell["source"].split())
