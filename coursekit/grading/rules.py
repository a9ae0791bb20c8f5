"""What an answer's source says of itself, read from its syntax tree: nothing here runs, and nothing is believed."""

import ast
import functools
import re
import symtable
import warnings
from collections.abc import Collection

from coursekit.grading.magics import LONGEST, parses


def words(text: str) -> set[str]:
    return set(text.split())


# What an answer needs; with any other module it may find, and change, code that is not its own while it runs.
MODULES = words(
    """torch numpy scipy pandas sklearn matplotlib tqdm coursekit IPython __future__ math cmath random typing functools
    itertools collections dataclasses copy enum string re time warnings heapq bisect operator contextlib abc logging
    statistics numbers fractions decimal json textwrap pprint"""
)
FUNCTIONS = words("__import__ eval exec compile globals locals vars get_ipython open breakpoint")
ATTRIBUTES = words(
    """tb_frame gi_frame cr_frame ag_frame f_back f_globals f_locals f_builtins
    ops library overrides multiprocessing hub package serialization overloads ctypeslib attrgetter methodcaller
    sys os io gc types inspect builtins bltns importlib subprocess threading traceback weakref linecache pickle
    copyreg zipfile modules popen get_objects load fromfile memmap"""
)
DUNDERS = words(
    """__init__ __call__ __name__ __class__ __len__ __getitem__ __iter__ __post_init__ __main__ __doc__ __version__
    __repr__ __str__ __eq__ __hash__ __add__ __mul__ __matmul__"""
)


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


def borrowed_in(source: str, released: str) -> list[str]:
    """What an answer takes from the course although the exercise does not give it, and how it may hide that.

    Args:
        source: an answer.
        released: all text and code of the released notebook, whose given cells import what answers may use.

    Returns:
        Words that follow the answer's name, each once. They are for a person, who decides.
    """
    given = set(re.findall(r"\w+", released)) - defined_in(source)
    modules = set(re.findall(r"import coursekit[\w.]* as (\w+)", released))
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
            found += [f"imports {alias.name}" for alias in node.names if is_course(alias.name)]
        elif isinstance(node, ast.ImportFrom) and is_course(node.module or ""):
            found += [f"imports {alias.name} from {node.module}" for alias in node.names]
        elif isinstance(node, ast.Constant) and is_course(str(node.value).removeprefix("b'")):
            found.append(f"names {str(node.value)[:60]!r} in a text")
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            found += [f"uses {node.value.id}.{node.attr}, which the exercise does not give"] * (node.attr not in given)
    found += [f"may find code while it runs, by {name}: read it" for name in ways_in(source)]
    if source.strip() and not nodes_of(source):
        found.append("cannot be read by Python, or is too long: read it")
    return list(dict.fromkeys(found))


@functools.lru_cache(maxsize=256)
def places_in(source: str) -> list[int]:
    """The numbers of the lines on which a statement of the source begins; magics move none."""
    return sorted({node.lineno for node in nodes_of(source) if isinstance(node, ast.stmt)})


@functools.lru_cache(maxsize=256)
def nodes_of(source: str) -> list[ast.AST]:
    """The syntax tree's nodes, without docstrings; none where Python cannot read it."""
    nodes = list(ast.walk(ast.parse(source))) if can_be_read(source) else []
    texts = {id(node.value) for node in nodes if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)}
    return [node for node in nodes if id(node) not in texts]


def can_be_read(source: str) -> bool:
    """Whether it is short enough and Python (see ``magics.as_python``), so that what is found in it is all there is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a student's odd escapes
        return len(source) <= LONGEST and parses(source)


def defined_in(source: str) -> set[str]:
    """The names that a source gives a function, a class or a value."""
    nodes = nodes_of(source)
    names = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    return names | {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def ways_in(source: str) -> list[str]:
    """The ways by which a source may find, and change, code that is not its own while it runs."""
    if source.strip() and not nodes_of(source):
        return ["what cannot be read"]
    nodes = nodes_of(source)
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    own = {name for name in defined_in(source) if is_private(name)}
    ways = [way for node in nodes for way in ways_of(node) if way not in own]
    ways += [f"{node.id} under another name" for node in nodes if is_access(node) and id(node) not in called]
    return list(dict.fromkeys([*ways, *(name for name in builtins_in(source) if name in FUNCTIONS or is_hidden(name))]))


def builtins_in(source: str) -> set[str]:
    """The names that a source takes from outside of it, hence perhaps Python's own functions."""
    names: set[str] = set()
    for table in tables_of(source):
        outer = table.get_type() != "function"
        names |= {s.get_name() for s in table.get_symbols() if s.is_referenced() and (outer or s.is_global())}
    return names


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


def ways_of(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Call) and is_access(node.func):
        plain = len(node.args) > 1 and isinstance(node.args[1], ast.Constant)
        return [] if plain else [f"{node.func.id} of a name that is computed"]
    if isinstance(node, ast.MatchClass):
        return [name for name in node.kwd_attrs if is_hidden(name) or name in ATTRIBUTES]
    if isinstance(node, ast.Attribute):
        own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
        known = node.attr in ATTRIBUTES or is_private(node.attr)
        return [node.attr] * (is_hidden(node.attr) or (known and not own))
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value] * (is_hidden(node.value) or node.value in ATTRIBUTES | FUNCTIONS)
    names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
    others = [name for name in names if name.startswith("coursekit.grading")]
    if isinstance(node, ast.Import | ast.ImportFrom):
        imported = [alias.name for alias in node.names]
        others += [name for name in imported if name.startswith("coursekit.grading")]
        parts = [part for name in (*names, *imported) for part in name.split(".") if part != "__future__"]
        others += [p for p in parts if p in ATTRIBUTES | FUNCTIONS or is_hidden(p) or is_private(p)]
        names += imported if isinstance(node, ast.Import) else []
    return others + [name for name in names if name.partition(".")[0] not in MODULES]


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"


def is_access(node: ast.AST) -> bool:
    """Whether it is one of the functions that take an attribute's name."""
    return isinstance(node, ast.Name) and node.id in ("getattr", "setattr", "delattr", "hasattr")


def is_hidden(name: str) -> bool:
    return name.startswith("__") and name.endswith("__") and name not in DUNDERS


def is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def is_course(name: str) -> bool:
    return name.partition(".")[0].strip() == "coursekit" or "coursekit." in name


def squeezed(name: str) -> str:
    """``LayerNorm``, ``layer_norm`` and ``native_layer_norm`` alike; ``BatchNorm1d`` too."""
    return re.sub(r"\d+d$", "", name.replace("_", "").lower()).removeprefix("native").removeprefix("functional")
