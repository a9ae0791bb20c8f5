"""How what ships was trained: one module for each recipe, whose ``main`` is its command."""

import ast
import json
from pathlib import Path
from typing import Any

CHECKPOINTS = Path(__file__).with_name("checkpoints")  # a folder for each model that ships


def load_metrics(name: str) -> dict[str, Any]:
    """What was measured of ``checkpoints/NAME``, such as ``"gpt-documentation"``, and how it was trained."""
    return json.loads((CHECKPOINTS / name / "metrics.json").read_text(encoding="utf-8"))


def recipes() -> dict[str, str]:
    """The recipes by name, each with the first line of what its module says of itself."""
    found = {}
    for path in sorted(Path(__file__).parent.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))  # not imported: each would load torch
        if any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in tree.body):
            found[path.stem] = ast.get_docstring(tree).splitlines()[0]
    return found
