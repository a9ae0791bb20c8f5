"""What an answer's source says of itself, read from its syntax tree: nothing here runs, and nothing is believed."""

import ast
import builtins
import functools
import re
import symtable
import warnings
from collections.abc import Collection, Sequence

from coursekit.grading.magics import LONGEST, parses


def words(text: str) -> set[str]:
    return set(text.split())


def forbidden_in(source: str, forbidden: Collection[str]) -> str:
    """The first forbidden function or option that the source names, in any spelling; empty if there is none.

    ``nn.LayerNorm``, ``F.layer_norm``, ``from torch import layer_norm`` and ``getattr(F, "layer_norm")`` name the same.
    A function of the student's own may be called so, and so may an attribute of ``self``.
    """
    functions = {squeezed(name.removeprefix("F.")): name for name in forbidden if "(" not in name}
    options = {name.rstrip(")").partition("(")[2]: name for name in forbidden if "(" in name}
    own = {node.name for node in nodes_of(source) if isinstance(node, ast.FunctionDef)}
    for node in nodes_of(source):
        name = ""
        if isinstance(node, ast.Attribute) and not is_self(node.value) and node.attr not in own:
            name = functions.get(squeezed(node.attr), "")
        elif isinstance(node, ast.alias):
            name = functions.get(squeezed(node.name.rpartition(".")[2]), "")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = functions.get(squeezed(node.value.rpartition(".")[2]), "") or options.get(node.value, "")
        elif isinstance(node, ast.keyword) and not (isinstance(node.value, ast.Constant) and not node.value.value):
            name = options.get(node.arg or "", "")
        if name:
            return name
    return ""


SCOPES = (ast.FunctionDef, ast.Lambda, ast.ClassDef, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
MOST = 200_000  # scopes times names; right answers have at most 1,200
TO_LOOK_AT = "# to look at, not to learn from"  # behind a line of a given cell


def borrowed_in(source: str, given: Sequence[str], place: int, told: str) -> list[str]:
    """What an answer takes from the course although the exercise does not give it (``plain.unusual``: in hidden ways).

    It may import again what a cell above it has imported, as long as no given cell takes that away, or shows it only to
    be looked at; and of a module it may use what the text and the cells above use of it.

    Args:
        source: an answer.
        given: the code of the released notebook's other cells.
        place: how many of the given cells stand above the answer.
        told: all text and code of the released notebook above the answer.

    Returns:
        Words that follow the answer's name, each once. They are for a person, who decides.
    """
    bound = [node for one in given for node in nodes_of(one) if isinstance(node, ast.Import)]
    modules = {alias.asname for node in bound for alias in node.names if alias.asname and is_course(alias.name)}
    offered = courses_in(given[:place], withheld_by(given))
    nodes = nodes_of(source)
    asked = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
    found = [
        f"uses {node.id} under another name"
        for node in nodes
        if isinstance(node, ast.Name) and node.id in modules and id(node) not in asked
    ]
    found += ["uses coursekit, whatever of it"] * any(isinstance(n, ast.Name) and n.id == "coursekit" for n in nodes)
    for node in nodes:
        if isinstance(node, ast.Import):
            others = [alias for alias in node.names if (alias.name, alias.asname) not in offered]
            found += [f"imports {alias.name}" for alias in others if is_course(alias.name)]
        elif isinstance(node, ast.ImportFrom) and is_course(node.module or ""):
            others = [alias.name for alias in node.names if (node.module, alias.name) not in offered]
            found += [f"imports {name} from {node.module}" for name in others]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
            text = str(node.value).removeprefix("b'")
            found += [f"names {text[:60]!r} in a text"] * is_course(text)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            name = f"{node.value.id}.{node.attr}"
            its_own = node.attr in defined_in(source)
            is_given = re.search(rf"\b{name}\b", told) and not its_own
            found += [f"uses {name}, which the exercise does not give"] * (not is_given)
    if source.strip() and not nodes_of(source):
        found.append("cannot be read by Python, or is too long: read it")
    return list(dict.fromkeys(found))


def courses_in(cells: Sequence[str], withheld: Collection[str]) -> set[tuple[str, str | None]]:
    """What of the course these cells import, but for what is withheld: module and name, or module and its alias."""
    found = set()
    for node in (node for one in cells for node in nodes_of(one)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            kept = [alias for alias in node.names if (alias.asname or alias.name) not in withheld]
            whole = isinstance(node, ast.Import)
            found |= {(alias.name, alias.asname) if whole else (node.module, alias.name) for alias in kept}
    return {(module, name) for module, name in found if name and is_course(module or "")}


def withheld_by(given: Sequence[str]) -> set[str]:
    """Names that given cells take away, or show only to be looked at."""
    deleted = {node.id for one in given for node in nodes_of(one) if is_deleted(node)}
    return deleted | shown_by(given)


def shown_by(given: Sequence[str]) -> set[str]:
    """Names that are there to be looked at, and functions that read them."""
    shown = {name for one in given for line in one.splitlines() if TO_LOOK_AT in line for name in made_in(line.strip())}
    functions = {
        node.name: builtins_in(ast.unparse(node))
        for one in given
        for node in nodes_of(one)
        if isinstance(node, ast.FunctionDef)
    }
    while more := {name for name, used in functions.items() if used & shown} - shown:
        shown |= more
    return shown


def shadowed_in(source: str, given: Sequence[str], stubs: Collection[str], place: int) -> list[str]:
    """What an answer puts in the place of what given cells call, and what it reads that they take away, or make later.

    All cells share one namespace: an answer's ``len`` is what a given cell calls from then on, and a method of what it
    returns may run in a later cell, beside data that the answer was not to see.

    Args:
        source: an answer.
        given: the code of the released notebook's other cells.
        stubs: what stands where answers are to be written: they may define what these do.
        place: how many of the given cells stand before the answer.
    """
    used = set[str]().union(*(builtins_in(one) - made_in(one) for one in given))
    replaced = made_in(source) & used - set[str]().union(*map(made_in, stubs))
    imported = imports_in(source)
    same = set[tuple[str, str]]().union(*(imports_in(one).items() for one in given))
    found = [f"replaces {name}" for name in sorted(replaced) if (name, imported.get(name, "")) not in same]
    deleted = {node.id for one in given for node in nodes_of(one) if is_deleted(node)}
    found += [f"reads {name}, which a given cell takes away" for name in sorted(deleted & builtins_in(source))]
    shown = shown_by(given[:place]) & builtins_in(source)
    found += [f"reads {name}, which is there to be looked at" for name in sorted(shown)]
    there, later = (set[str]().union(*map(made_in, some)) for some in ([*given[:place], *stubs], given[place:]))
    waiting = builtins_in(source, functions=True) & later - there - deleted - {*vars(builtins), *imported}
    return found + [f"reads {name}, which a later cell makes" for name in sorted(waiting)]


def imports_in(source: str) -> dict[str, str]:
    return imports_of(nodes_of(source))


def imports_of(nodes: list[ast.AST]) -> dict[str, str]:
    """What each imported name stands for: ``F`` for ``torch.nn.functional``, however it is imported."""
    found = {}
    for node in nodes:
        for alias in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
            whole = alias.name if isinstance(node, ast.Import) else f"{node.module}.{alias.name}"
            name = alias.asname or alias.name.partition(".")[0]
            found[name] = whole if alias.asname or isinstance(node, ast.ImportFrom) else name
    return found


def is_deleted(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Del)


@functools.lru_cache(maxsize=256)
def places_in(source: str) -> list[int]:
    """The numbers of the lines on which a statement of the source begins; magics move none."""
    return sorted({node.lineno for node in nodes_of(source) if isinstance(node, ast.stmt)})


@functools.lru_cache(maxsize=256)
def nodes_of(source: str) -> list[ast.AST]:
    """The syntax tree's nodes, without docstrings unless they are read; none where Python cannot read it."""
    nodes = list(ast.walk(ast.parse(source))) if can_be_read(source) else []
    if any(isinstance(node, ast.Attribute) and node.attr == "__doc__" for node in nodes):
        return nodes
    texts = {id(node.value) for node in nodes if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)}
    return [node for node in nodes if id(node) not in texts]


@functools.lru_cache(maxsize=256)
def can_be_read(source: str) -> bool:
    """Whether it is short enough and Python (see ``magics.as_python``), so that what is found in it is all there is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a student's odd escapes
        return len(source) <= LONGEST and parses(source) and is_flat(source)


def is_flat(source: str) -> bool:
    """Whether scopes in scopes hold few names: Python makes a symbol of each name in each scope within another."""
    nodes = list(ast.walk(ast.parse(source)))
    return sum(isinstance(node, SCOPES) for node in nodes) * sum(isinstance(node, ast.Name) for node in nodes) < MOST


def defined_in(source: str) -> set[str]:
    """The names that a source gives a function, a class or a value."""
    nodes = nodes_of(source)
    names = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    return names | {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


@functools.lru_cache(maxsize=1024)
def builtins_in(source: str, functions: bool = False) -> set[str]:
    """The names that a source takes from outside of it, hence perhaps Python's own; or that its functions do."""
    names: set[str] = set()
    for table in tables_of(source):
        if functions and table.get_type() != "function":
            continue
        outer = table.get_type() != "function"
        names |= {s.get_name() for s in table.get_symbols() if s.is_referenced() and (outer or s.is_global())}
    return names


@functools.lru_cache(maxsize=1024)
def made_in(source: str) -> set[str]:
    """The names that a source gives to something outside of its functions."""
    names: set[str] = set()
    for table in tables_of(source):
        outer = table.get_type() == "module"
        for s in table.get_symbols():
            if (s.is_assigned() or s.is_imported()) and (outer or s.is_declared_global()):
                names.add(s.get_name())
    return names


def tables_of(source: str) -> list[symtable.SymbolTable]:
    found = [symtable.symtable(source, "answer", "exec")] if can_be_read(source) else []
    for table in found:
        found += table.get_children()
    return found


def is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def is_course(name: str) -> bool:
    return name.partition(".")[0].strip() == "coursekit" or "coursekit." in name


def squeezed(name: str) -> str:
    """``LayerNorm``, ``layer_norm`` and ``native_layer_norm`` alike; ``BatchNorm1d`` too."""
    return re.sub(r"\d+d$", "", name.replace("_", "").lower()).removeprefix("native").removeprefix("functional")
