"""``coursekit single``: a model with everything that it uses of the package, in one file that needs only torch.

The code is cut out of the package's files, docstrings and comments included: all of the model's own file, and of the
others what it needs, directly or through others. The model's file comes first, and each before those that it imports,
as far as Python allows. At the end is a ``main`` for the models that have one in ``coursekit/commands/demos.py``.
"""

import ast
import re
import sys
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path
from textwrap import fill

from coursekit.commands.lectures import LectureError

ROOT = Path(__file__).parents[2]
HUB = "coursekit.models.pretrained"  # left out: it reads and writes Hugging Face's files, with the room convert
CHECKS, DEMOS = "coursekit.nn.checks", "coursekit.commands.demos"  # the last two sections
HEAD = """\
# Written by `coursekit single {model}`; the files that it is taken from are named below.
# Copyright (c) 2026 the authors of "Attention, hands on". SPDX-License-Identifier: MIT
"""
LEFT_OUT = (
    "Left out: from_pretrained and save_pretrained of {}. load_state_dict takes the weights of the course's model."
)
CONTENTS = "The sections of the file, in the order in which they are best read; a line ``# --- PATH`` begins each:"
RUN = "Run as a program, this file trains a tiny model on made-up data. "
LOOP = "``Training`` (the training loop, with its schedules)"
NAMED = r"coursekit[/.](\w+[/.]\w+)|(?<![\w/])(\w+/\w+)\.py"  # modules in docstrings and comments
MAIN = '\n\nif __name__ == "__main__":\n    main()\n'

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

    def cut(self, node: ast.stmt, unused: Collection[ast.FunctionDef] = ()) -> str:
        """The text of a statement and of the comments above it, without ``HUB``'s base class and unused methods."""
        first = {one: min(part.lineno for part in (one, *one.decorator_list)) for one in unused}
        left_out = {i for one in unused for i in range(first[one] - 2, one.end_lineno)}  # and the empty line above
        kept = [self.lines[i] for i in range(self.start[node], node.end_lineno) if i not in left_out]
        text = "\n".join(kept).strip("\n")
        return text.replace("(Pretrained):\n", "(nn.Module):\n") if isinstance(node, ast.ClassDef) else text


source = cache(Source)


@cache
def models() -> dict[str, str]:
    """The models that can be written into one file: their names, and the modules that define them."""
    paths = sorted((ROOT / "coursekit/models").rglob("[!_]*.py"), key=lambda path: path.stem)
    modules = {path.stem: ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths}
    return {name: module for name, module in modules.items() if module != HUB}


def needed(module: str) -> tuple[dict[str, list[ast.stmt]], set[Import]]:
    """What a module and its demonstration need, themselves included: statements by their modules, and imports."""
    own, kept = module, dict[str, list[ast.stmt]]()
    meanings: dict[str, ast.stmt | Import] = {}
    waiting = [(module, name) for name in source(module).definitions]
    waiting += [(DEMOS, name) for name in source(DEMOS).definitions if name == module.rpartition(".")[2]]
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
    unread = {id(node) for one in unused_methods(own, kept) for node in ast.walk(one)}
    nodes = [node for statements in kept.values() for one in statements for node in ast.walk(one)]
    read = {node.id for node in nodes if isinstance(node, ast.Name) and id(node) not in unread}
    return kept, {found for name, found in meanings.items() if isinstance(found, tuple) and name in read}


def unused_methods(own: str, kept: dict[str, list[ast.stmt]]) -> set[ast.FunctionDef]:
    """Methods of other files' classes that nothing in the one file calls, such as a cache's for beam search."""
    nodes = [node for statements in kept.values() for one in statements for node in ast.walk(one)]
    texts = "\n".join(node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))
    called = {node.attr for node in nodes if isinstance(node, ast.Attribute)} | {"forward"}
    called |= {*re.findall(r"``(\w+)``", texts)}  # a docstring sends the reader there
    others = [one for module, statements in kept.items() if module != own for one in statements]
    methods = [one for node in others if isinstance(node, ast.ClassDef) for one in node.body]
    return {
        one
        for one in methods
        if isinstance(one, ast.FunctionDef) and not one.name.startswith("__") and one.name not in called
    }


def imported(module: str) -> list[str]:
    """The module after all of the package that it imports, what it imports first coming last."""
    others = [origin for origin, _ in source(module).imports.values() if origin.startswith("coursekit.")]
    return list(dict.fromkeys([*(name for other in reversed(others) for name in imported(other)), module]))


def at_once(node: ast.AST) -> Iterator[str]:
    """The names that Python needs when it reads a definition: base classes, decorators, default values, constants."""
    parts = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.FunctionDef | ast.Lambda):
        parts = [*getattr(node, "decorator_list", []), *node.args.defaults, *filter(None, node.args.kw_defaults)]
    elif isinstance(node, ast.AnnAssign):
        parts = [node.value] if node.value else []
    yield from [node.id] if isinstance(node, ast.Name) else (name for part in parts for name in at_once(part))


def in_order(own: str, kept: dict[str, list[ast.stmt]]) -> list[str]:
    """The modules as they are to be read: the model's own first, but for what Python has to know before."""
    placed: list[str] = []

    def place(module: str) -> None:
        names = {name for node in kept[module] for name in at_once(node)}
        for origin, _ in (source(module).imports[name] for name in sorted(names & source(module).imports.keys())):
            if origin in kept and origin not in placed:
                place(origin)
        if module not in placed:
            placed.append(module)

    read = [module for module in [*reversed(imported(own)), *kept] if module in kept]
    for module in sorted(read, key=lambda module: (module == DEMOS, module == CHECKS)):
        place(module)
    return placed


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


def section(module: str, statements: list[ast.stmt], own: bool, unused: set[ast.FunctionDef]) -> str:
    """Statements of one file below its name and, of another than the model's, the legend of its shapes."""
    here = source(module)
    legends = [] if own else [text for text in here.docstring.split("\n\n") if text.startswith("Legend:")]
    lines = [f"--- {here.path} ".ljust(118, "-"), *"".join(legends).splitlines()]
    text, before = "\n".join(f"# {line}".rstrip() for line in lines) + "\n\n\n", None
    for node in sorted(statements, key=lambda node: node.lineno):
        plain = all(isinstance(one, ast.Assign | ast.AnnAssign) for one in (before, node))
        text += ("" if before is None else "\n" if plain else "\n\n\n") + here.cut(
            node, unused & {*ast.iter_child_nodes(node)}
        )
        before = node
    return text


def contents(kept: dict[str, list[ast.stmt]], order: list[str]) -> str:
    """The sections of the file with what is defined in each, and what is named in them but not there."""
    lines = [(RUN if DEMOS in order else "") + CONTENTS, ""]
    for module in order:
        names = [name for name, node in source(module).definitions.items() if node in kept[module]]
        names[-1:] = ["main"] if module == DEMOS else names[-1:]
        lines.append(f"    {source(module).path}: {', '.join(names)}")
    text = "\n".join(source(module).docstring + source(module).cut(node) for module in order for node in kept[module])
    named = {f"coursekit.{a or b}".replace("/", ".") for a, b in re.findall(NAMED, text)} - {*order, HUB}
    beside = {name for module in order for name, node in source(module).definitions.items() if node not in kept[module]}
    named |= beside & {*re.findall(r"``(\w+)``", text)}
    away = [LOOP] * ("Training" in text) + [f"``{name}``" for name in sorted(named)]
    lines += ["", f"Named below, but only in the course: {', '.join(away)}."] if away else []
    return "\n".join(fill(line, 116, subsequent_indent=" " * 8 if line.startswith(" ") else "") for line in lines)


def opening(model: str, about: str) -> str:
    """The docstring of the model's file with what is said about this one, after its first paragraph."""
    here = source(models()[model])
    first, _, rest = "\n".join(here.lines[: here.opening]).removesuffix('"""').rstrip("\n").partition("\n\n")
    return "\n\n".join(filter(None, [first, about, rest])) + '\n"""\n\nfrom __future__ import annotations'


def single(model: str) -> str:
    """The text of the one file.

    Args:
        model: the name of its file in ``coursekit/models``, such as ``"gpt"``.

    Raises:
        LectureError: there is no such model.
    """
    if model not in models():
        raise LectureError(f"no model {model!r}; there are: {', '.join(models())}")
    own = models()[model]
    kept, imports = needed(own)
    order = in_order(own, kept)
    classes = [one for module in order for one in kept[module] if isinstance(one, ast.ClassDef)]
    cut = [one.name for one in classes if any(ast.unparse(base) == "Pretrained" for base in one.bases)]
    left_out = fill(LEFT_OUT.format(", ".join(cut)), 118, initial_indent="# ", subsequent_indent="# ") + "\n"
    head = HEAD.format(model=model) + (left_out if cut else "")
    unused = unused_methods(own, kept)
    sections = "\n\n\n".join(section(module, kept[module], module == own, unused) for module in order) + "\n"
    text = "\n\n".join([head + opening(model, contents(kept, order)), import_lines(imports), sections])
    return text.replace(f"def {model}() -> None:", "def main() -> None:") + MAIN if DEMOS in order else text
