"""How what ships was trained: one module for each recipe, whose ``main`` is its command."""

import ast
from pathlib import Path


def recipes() -> dict[str, str]:
    """The recipes by name, each with the first line of what its module says of itself."""
    found = {}
    for path in sorted(Path(__file__).parent.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))  # not imported: each would load torch
        if any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in tree.body):
            found[path.stem] = ast.get_docstring(tree).splitlines()[0]
    return found
