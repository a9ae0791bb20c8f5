"""``coursekit single``: a model with everything that it uses of the package, in one file that needs only torch.

The code is cut out of the package's files, docstrings and comments included: all of the model's own file, and of the
others what it needs, directly or through others. The model's file comes first, and each before those that it imports,
as far as Python allows. At the end is a ``main`` for the models that have one in ``coursekit/commands/demos.py``.

With ``--plain``, only the first paragraph of each docstring stays, arguments are not checked, and PyTorch's own take
the place of what is here for speed on a CPU alone: dropout, and the output layer tied to the embeddings.
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
FASTER = (
    "coursekit.nn.dropout",
    "coursekit.nn.tied",
)  # in a plain file PyTorch's own, slower on a CPU, takes their place:
PYTORCHS = {"Dropout": "nn.Dropout", "drop": "F.dropout", "tied_logits": "F.linear"}
HEAD = """\
# Written by `coursekit single {model}`; the files that it is taken from are named below.
# Copyright (c) 2026 the authors of "Attention, hands on". SPDX-License-Identifier: MIT
"""
LEFT_OUT = (
    "Left out: from_pretrained and save_pretrained of {}. load_state_dict takes the weights of the course's model."
)
CONTENTS = "The sections of the file, from the whole to its parts; a line ``# --- PATH`` begins each:"
RUN = "Run as a program, this file trains a tiny model on made-up data. "
PLAIN = "Docstrings are cut to their first paragraphs, and arguments are not checked. "
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


def needed(module: str) -> tuple[dict[str, list[ast.stmt]], dict[str, Import]]:
    """What a module and its demonstration need, themselves included: statements by their modules, imports by name."""
    kept = dict[str, list[ast.stmt]]()
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
    return kept, {name: found for name, found in meanings.items() if isinstance(found, tuple)}


def unused_methods(own: str, kept: dict[str, list[ast.stmt]], plain: bool) -> set[ast.FunctionDef]:
    """Methods of other files' classes that nothing in the one file calls, such as a cache's for beam search."""
    nodes = [node for statements in kept.values() for one in statements for node in ast.walk(one)]
    texts = "\n".join(node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))
    called = {node.attr for node in nodes if isinstance(node, ast.Attribute)} | {"forward"}
    called |= set() if plain else {*re.findall(r"``(\w+)``", texts)}  # a docstring sends the reader there
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


def shorter(text: str) -> str:
    """The text with the first paragraphs of its docstrings, and without what only tests arguments."""
    lines, tree, left_out = text.splitlines(keepends=True), ast.parse(text), set[int]()
    read = dict[ast.AST, set[str]]()  # of what is in a function, the names that this function reads
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.Module | ast.FunctionDef)):
        read |= dict.fromkeys((node for node in ast.walk(function) if node is not function), names_read(function))
    bodies = [part for node in ast.walk(tree) for part in (getattr(node, "body", 0), getattr(node, "orelse", 0))]
    for one in (one for body in bodies if isinstance(body, list) for one in body):
        if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant):
            rest = range(one.lineno, one.end_lineno)
            end = next((i for i in rest if not lines[i].strip()), one.end_lineno)
            if end < one.end_lineno:
                lines[end - 1] = lines[end - 1].rstrip() + '"""\n'
                left_out |= {*range(end, one.end_lineno)}
        elif tests_arguments(one, read):
            first = one.lineno
            while lines[first - 2].lstrip().startswith("#"):  # a comment above it
                first -= 1
            left_out |= {*range(first - 1, one.end_lineno)}
    kept = "".join(line for i, line in enumerate(lines) if i not in left_out)
    kept = re.sub(r"(:(?:  #.*)?\n)\n+(?= )", r"\1", kept)  # no empty line at the beginning of a block
    kept = re.sub(r"\n{4,}", "\n\n\n", re.sub(r"\n{3,}(?= )", "\n\n", kept))
    return shorter(kept) if left_out else kept  # what only a test needed is not read any more


def tests_arguments(one: ast.stmt, read: dict[ast.AST, set[str]]) -> bool:
    """Whether a statement is a docstring, or there only to raise an error where an argument is wrong."""
    if isinstance(one, ast.Expr):
        function = getattr(one.value, "func", None)
        name = getattr(function, "id", getattr(function, "attr", ""))
        return isinstance(one.value, ast.Constant) or name.startswith("check")
    if isinstance(one, ast.If):
        raises = isinstance(one.body[-1], ast.Raise) or all(tests_arguments(part, read) for part in one.body)
        return raises and not one.orelse
    if isinstance(one, ast.FunctionDef) and one.name.startswith("check") and one.name not in read[one]:
        return True
    if isinstance(one, ast.Assign) and one.col_offset:
        names = [node for node in ast.walk(one.targets[0]) if not isinstance(node, ast.Tuple | ast.Store)]
        return all(isinstance(node, ast.Name) and node.id not in read[one] for node in names)
    return isinstance(one, ast.For | ast.FunctionDef) and all(tests_arguments(part, read) for part in one.body)


def names_read(tree: ast.AST) -> set[str]:
    """The names that are read in some code, those of attributes among them."""
    nodes = [node for node in ast.walk(tree) if isinstance(getattr(node, "ctx", None), ast.Load)]
    return {getattr(node, "id", getattr(node, "attr", "")) for node in nodes}


def contents(kept: dict[str, list[ast.stmt]], order: list[str], text: str, plain: bool) -> str:
    """The sections of the file with what is defined in each, and what its text names but lacks."""
    lines = [(PLAIN if plain else "") + (RUN if DEMOS in order else "") + CONTENTS, ""]
    for module in order:
        names = [name for name, node in source(module).definitions.items() if node in kept[module]]
        names[-1:] = ["main"] if module == DEMOS else names[-1:]
        lines.append(f"    {source(module).path}: {', '.join(names)}")
    text = re.sub(r"^# --- .*", "", text, flags=re.MULTILINE)
    named = {f"coursekit.{a or b}".replace("/", ".") for a, b in re.findall(NAMED, text)} - {*order, HUB}
    beside = {name for module in order for name, node in source(module).definitions.items() if node not in kept[module]}
    named |= beside & {*re.findall(r"``(\w+)``", text)}
    away = [LOOP] * ("``Training``" in text) + [f"``{name}``" for name in sorted(named)]
    lines += ["", f"Named below, but only in the course: {', '.join(away)}."] if away else []
    return "\n".join(fill(line, 116, subsequent_indent=" " * 8 if line.startswith(" ") else "") for line in lines)


def opening(model: str, about: str) -> str:
    """The docstring of the model's file with what is said about this one, after its first paragraph."""
    here = source(models()[model])
    first, _, rest = "\n".join(here.lines[: here.opening]).removesuffix('"""').rstrip("\n").partition("\n\n")
    return "\n\n".join(filter(None, [first, about, rest])) + '\n"""\n\nfrom __future__ import annotations'


def single(model: str, plain: bool = False) -> str:
    """The text of the one file.

    Args:
        model: the name of its file in ``coursekit/models``, such as ``"gpt"``.
        plain: with only the first paragraph of each docstring, and without checks of arguments.

    Raises:
        LectureError: there is no such model.
    """
    if model not in models():
        raise LectureError(f"no model {model!r}; there are: {', '.join(models())}")
    own = models()[model]
    kept, imports = needed(own)
    unused = unused_methods(own, kept, plain)
    if plain:
        kept = {module: statements for module, statements in kept.items() if module not in FASTER}
        whole = "\n".join(section(module, kept[module], True, unused) for module in kept if module != CHECKS)
        read = names_read(ast.parse(shorter(whole)))
        for module in kept.keys() - {DEMOS}:
            unread = {name: node for name, node in source(module).definitions.items() if name not in read}
            needless = {node for name, node in unread.items() if module != own or name.startswith("check")}
            kept[module] = [node for node in kept[module] if node not in needless]
        kept = {module: statements for module, statements in kept.items() if statements}
    order = in_order(own, kept)
    classes = [one for module in order for one in kept[module] if isinstance(one, ast.ClassDef)]
    cut = [one.name for one in classes if any(ast.unparse(base) == "Pretrained" for base in one.bases)]
    left_out = fill(LEFT_OUT.format(", ".join(cut)), 118, initial_indent="# ", subsequent_indent="# ") + "\n"
    head = HEAD.format(model=model + " --plain" * plain) + (left_out if cut else "")
    code = "\n\n\n".join(section(module, kept[module], module == own, unused) for module in order) + "\n"
    if plain:
        code = shorter(re.sub(rf"\b({'|'.join(PYTORCHS)})(?=\()", lambda name: PYTORCHS[name[0]], code))
    read = names_read(ast.parse(code))
    above = import_lines({found for name, found in imports.items() if name in read})
    text = "\n\n".join([head + opening(model, contents(kept, order, source(own).docstring + code, plain)), above, code])
    return text.replace(f"def {model}() -> None:", "def main() -> None:") + MAIN if DEMOS in order else text
