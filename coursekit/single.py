"""``coursekit single``: a model with everything that it uses of the package, in one file that needs only torch.

The code is cut out of the package's files, docstrings and comments included: all of the model's own file, and of the
others what it needs, directly or through others. A file comes after those that it imports, so the model's is the last.
"""

import ast
import sys
from functools import cache
from pathlib import Path

from coursekit.lectures import LectureError

ROOT = Path(__file__).parents[1]
HUB = "coursekit.models.pretrained"  # left out: it reads and writes Hugging Face's files, with the room convert
HEAD = """\
# Written by `coursekit single {model}`; the files that it is taken from are named below.
# Copyright (c) 2026 the authors of "Attention, hands on". SPDX-License-Identifier: MIT
"""
LEFT_OUT = "# Left out: from_pretrained and save_pretrained. load_state_dict takes the weights of the course's model.\n"

Import = tuple[str, str]  # ``from MODULE import WHAT``, or with an empty MODULE ``import WHAT``


class Source:
    """A file of the package: what its names stand for, and where its statements are."""

    def __init__(self, module: str):
        self.path = f"{module.replace('.', '/')}.py"
        text = (ROOT / self.path).read_text(encoding="utf-8")
        tree = ast.parse(text)
        self.docstring, self.lines, self.opening = ast.get_docstring(tree), text.splitlines(), tree.body[0].end_lineno
        self.imports: dict[str, Import] = {}
        self.definitions: dict[str, ast.stmt] = {}
        self.start: dict[ast.stmt, int] = {}  # where the statement before ends: comments belong to what follows
        for before, node in zip(tree.body, tree.body[1:]):  # the first is the docstring
            self.start[node] = before.end_lineno
            if isinstance(node, ast.Import | ast.ImportFrom):
                for alias in node.names:
                    self.imports[alias.asname or alias.name] = getattr(node, "module", ""), ast.unparse(alias)
            else:  # def NAME, class NAME, NAME: ... = ..., NAME = ...
                target = getattr(node, "target", None) or getattr(node, "targets", [None])[0]
                self.definitions[target.id if target else node.name] = node

    def cut(self, node: ast.stmt) -> str:
        """The text of a statement and of the comments above it, without ``HUB``'s base class."""
        text = "\n".join(self.lines[self.start[node] : node.end_lineno]).strip("\n")
        return text.replace("(Pretrained):\n", "(nn.Module):\n") if isinstance(node, ast.ClassDef) else text


source = cache(Source)


def models() -> list[str]:
    """Names of the models that can be written into one file."""
    return sorted({path.stem for path in (ROOT / "coursekit/models").glob("[!_]*.py")} - {"pretrained"})


def needed(module: str) -> tuple[dict[str, list[ast.stmt]], set[Import]]:
    """What a module needs, itself included: statements by their modules, and imports of other packages."""
    kept: dict[str, list[ast.stmt]] = {}
    meanings: dict[str, ast.stmt | Import] = {}
    waiting = [(module, name) for name in source(module).definitions]
    while waiting:
        module, name = waiting.pop()
        here = source(module)
        found = here.definitions.get(name) or here.imports.get(name)
        if found is None:
            continue  # of Python itself, or local
        if isinstance(found, tuple) and found[0].startswith("coursekit."):
            waiting += [found] if found[0] != HUB else []
            continue
        if meanings.setdefault(name, found) != found:
            raise LectureError(f"{name} in {here.path} is another than one of this name that is needed too: rename one")
        if isinstance(found, ast.stmt) and found not in kept.setdefault(module, []):
            kept[module].append(found)
            waiting += [(module, node.id) for node in ast.walk(found) if isinstance(node, ast.Name)]
    return kept, {found for found in meanings.values() if isinstance(found, tuple)}


def in_order(module: str) -> list[str]:
    """The module after all of the package that it imports."""
    others = [origin for origin, _ in source(module).imports.values() if origin.startswith("coursekit.")]
    return list(dict.fromkeys([*(name for other in others for name in in_order(other)), module]))


def import_lines(imports: set[Import]) -> str:
    """Imports in ruff's order: the standard library's first, ``import`` before ``from``, classes before functions."""
    groups: dict[tuple[bool, bool, str, str], list[str]] = {}
    for module, what in imports:
        origin, renamed = module or what, what if " as " in what else ""
        other = origin.split()[0].partition(".")[0] not in sys.stdlib_module_names
        groups.setdefault((other, bool(module), origin, renamed), []).append(what)
    blocks: tuple[list[str], list[str]] = ([], [])
    for (other, has_module, origin, _), names in sorted(groups.items()):
        names.sort(key=lambda name: (not name.isupper(), name[0].islower(), name))
        blocks[other].append(f"from {origin} import {', '.join(names)}" if has_module else f"import {origin}")
    return "\n\n".join("\n".join(block) for block in blocks if block)


def section(module: str, statements: list[ast.stmt], own: bool) -> str:
    """Statements of one file below its name and, of another than the model's, what its docstring says of them."""
    here = source(module)
    paragraphs = [] if own else here.docstring.split("\n\n")
    about = "\n\n".join(text for text in paragraphs if not text.startswith(("Read it", "Call chain")))
    lines = [f"--- {here.path} ".ljust(118, "-"), *about.splitlines()]
    text, before = "\n".join(f"# {line}".rstrip() for line in lines) + "\n\n\n", None
    for node in sorted(statements, key=lambda node: node.lineno):
        plain = all(isinstance(one, ast.Assign | ast.AnnAssign) for one in (before, node))
        text += ("" if before is None else "\n" if plain else "\n\n\n") + here.cut(node)
        before = node
    return text


def single(model: str) -> str:
    """The text of the one file.

    Args:
        model: the name of its file in ``coursekit/models``, such as ``"gpt"``.

    Raises:
        LectureError: there is no such model.
    """
    if model not in models():
        raise LectureError(f"no model {model!r}; there are: {', '.join(models())}")
    own = f"coursekit.models.{model}"
    kept, imports = needed(own)
    head = HEAD.format(model=model) + (LEFT_OUT if HUB in in_order(own) else "")
    sections = [section(module, kept[module], module == own) for module in in_order(own) if module in kept]
    top = "\n".join(source(own).lines[: source(own).opening])  # its docstring
    return head + "\n\n".join([top, import_lines(imports), "\n\n\n".join(sections)]) + "\n"
