"""What an answer's source says of itself, read from its syntax tree: nothing here runs, and nothing is believed."""

import ast
import functools
import re
import warnings
from collections.abc import Collection

from IPython.core.inputtransformer2 import TransformerManager

# What an answer needs; with any other module it may find, and change, code that is not its own while it runs.
MODULES = {
    *("torch", "numpy", "scipy", "math", "cmath", "random", "typing", "functools", "itertools", "collections"),
    *(
        "dataclasses",
        "copy",
        "enum",
        "string",
        "re",
        "time",
        "warnings",
        "matplotlib",
        "tqdm",
        "coursekit",
        "__future__",
    ),
}
FUNCTIONS = {"__import__", "eval", "exec", "compile", "globals", "locals", "vars", "get_ipython", "open", "breakpoint"}
ATTRIBUTES = {
    *("tb_frame", "gi_frame", "cr_frame", "ag_frame", "f_back", "f_globals", "f_locals", "f_builtins"),
    *("_C", "ops", "library", "_refs", "_prims", "_decomp", "overrides", "multiprocessing", "hub", "package"),
    *("sys", "os", "io", "builtins", "importlib", "_dispatch", "overloads", "ctypeslib", "attrgetter", "methodcaller"),
}
DUNDERS = {"__init__", "__call__", "__name__", "__class__", "__len__", "__getitem__", "__iter__", "__post_init__"}
LONGEST = 20_000  # characters of an answer that are read; the longest model answer has 1,400


def forbidden_in(source: str, forbidden: Collection[str]) -> str:
    """The first forbidden function or option that the source names, in any spelling; empty if there is none.

    ``nn.LayerNorm``, ``F.layer_norm``, ``from torch import layer_norm`` and ``getattr(F, "layer_norm")`` name the same.
    A function of the student's own may be called so, and so may an attribute of ``self``.
    """
    functions = {squeezed(name.removeprefix("F.")): name for name in forbidden if "(" not in name}
    options = {name.rstrip(")").partition("(")[2]: name for name in forbidden if "(" in name}
    for node in nodes_of(source):
        name = ""
        if isinstance(node, ast.Attribute) and not is_self(node.value):
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
    found = []
    for node in nodes_of(source):
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
    """The syntax tree's nodes, without docstrings; none where Python cannot read it. Magics are what IPython makes."""
    harmless = re.sub(r"^[ \t]*(%matplotlib[ \t]+\w+|%%time)[ \t]*$", "pass", source, flags=re.MULTILINE)
    tree = parsed(harmless) or parsed(harmless, magics=True)
    nodes = list(ast.walk(tree)) if tree else []
    texts = {id(node.value) for node in nodes if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)}
    return [node for node in nodes if id(node) not in texts]


def parsed(source: str, magics: bool = False) -> ast.AST | None:
    if len(source) > LONGEST:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a student's odd escapes
            return ast.parse(TransformerManager().transform_cell(source) if magics else source)
    except Exception:  # of Python's parser, or of IPython's
        return None


def defined_in(source: str) -> set[str]:
    """The names that a source gives a function, a class or a value."""
    nodes = nodes_of(source)
    names = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    return names | {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def ways_in(source: str) -> list[str]:
    """The ways by which a source may find, and change, code that is not its own while it runs."""
    if source.strip() and not nodes_of(source):
        return ["what cannot be read"]
    return list(dict.fromkeys(way for node in nodes_of(source) for way in ways_of(node)))


def ways_of(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("getattr", "setattr"):
        plain = len(node.args) > 1 and isinstance(node.args[1], ast.Constant)
        return [] if plain else [f"{node.func.id} of a name that is computed"]
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id in ("getattr", "setattr"):
        return [f"{node.value.id} under another name"]
    if isinstance(node, ast.Name):
        return [node.id] * (node.id in FUNCTIONS)
    if isinstance(node, ast.Attribute):
        return [node.attr] * (is_hidden(node.attr) or node.attr in ATTRIBUTES)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value] * (is_hidden(node.value) or node.value in ATTRIBUTES | FUNCTIONS)
    names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
    others = [name for name in names if name.startswith("coursekit.grading")]
    if isinstance(node, ast.Import | ast.ImportFrom):
        imported = [alias.name for alias in node.names]
        others += [name for name in imported if name.startswith("coursekit.grading") or is_hidden(name)]
        others += [part for name in (*names, *imported) for part in name.split(".") if part in ATTRIBUTES | FUNCTIONS]
        names += imported if isinstance(node, ast.Import) else []
    return others + [name for name in names if name.partition(".")[0] not in MODULES]


def is_hidden(name: str) -> bool:
    return name.startswith("__") and name.endswith("__") and name not in DUNDERS


def is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def is_course(name: str) -> bool:
    return name.partition(".")[0].strip() == "coursekit" or "coursekit." in name


def squeezed(name: str) -> str:
    """``LayerNorm``, ``layer_norm`` and ``native_layer_norm`` alike; ``BatchNorm1d`` too."""
    return re.sub(r"\d+d$", "", name.replace("_", "").lower()).removeprefix("native").removeprefix("functional")
