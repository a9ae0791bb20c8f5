"""A notebook's cell as the plain Python that IPython would run, so that what is judged is what runs."""

import ast
import re
import symtable
import warnings

from IPython.core.inputtransformer2 import TransformerManager

LONGEST = 20_000  # characters of an answer that are read; the longest model answer has 1,400
MOST_MAGICS = 20  # IPython reads the whole cell anew for each
HARMLESS = {"matplotlib", "autoreload", "load_ext", "config", "pip", "conda", "pinfo", "pinfo2"}
TIMED = {"time", "timeit"}
AROUND = {*TIMED, "capture"}  # of a whole cell
MAGIC = re.compile(r"^\s*[%!?/,;]|=\s*[%!]|\?\s*$")  # in a line
OPTIONS = re.compile(r"(-\w+ ?\d* +)*")  # of %timeit


def as_python(source: str) -> str:
    """The cell as Python, line for line, or the cell itself where nothing of the kind can be made of it.

    Magics that do not matter for the marking become ``pass``, and what ``%time`` times is left alone. Others become
    calls of ``get_ipython()``, as IPython has them.
    """
    if len(source) > LONGEST:
        return source
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a student's odd escapes
        plain = parses(source)
        if not plain and sum(map(bool, map(MAGIC.search, source.splitlines()))) > MOST_MAGICS:
            return source
        try:
            text = transformed(source)
            if plain and text.strip("\n") == source.strip("\n") and "get_ipython" not in text:
                return source
            text = without_magics(text)
            if parses(text) and transformed(text) == text:
                return text
        except Exception:  # of IPython's parser, or of Python's
            pass
    return source + "\n(" if plain else source  # in no case may it be judged as what it is not


def parses(text: str) -> bool:
    """Whether Python can read it; ``symtable`` refuses more than the parser."""
    try:
        ast.parse(text)
        symtable.symtable(text, "answer", "exec")
    except Exception:
        return False
    return True


def transformed(source: str) -> str:
    """What IPython makes of it, with the empty lines at the beginning that it takes away."""
    text = TransformerManager().transform_cell(source)
    start = re.match(r"\s*\n|", source)[0].count("\n") - re.match(r"\s*\n|", text)[0].count("\n")
    return "\n" * start + text


def without_magics(text: str) -> str:
    tree, lines = ast.parse(text), text.split("\n")
    for node in ast.walk(tree):
        call = magic_of(node)
        if call is None:
            continue
        kind, words = call
        if kind == "run_cell_magic" and len(tree.body) == 1 and words[0] in AROUND:
            return without_magics("\n" * node.lineno + transformed(words[2]))
        line = lines[node.lineno - 1]
        if node.lineno != node.end_lineno or line.strip() != ast.get_source_segment(text, node):
            continue
        indent = line[: len(line) - len(line.lstrip())]
        if kind == "system" or (kind == "run_line_magic" and words[0] in HARMLESS):
            lines[node.lineno - 1] = f"{indent}pass  # {' '.join(words)}"
        elif kind == "run_line_magic" and words[0] in TIMED:
            lines[node.lineno - 1] = indent + OPTIONS.sub("", words[1], count=1)
    return "\n".join(lines)


def magic_of(node: ast.AST) -> tuple[str, list[str]] | None:
    """``get_ipython().KIND(WORD, ...)`` as a statement of its own: the kind and the words."""
    match node:
        case ast.Expr(
            value=ast.Call(
                func=ast.Attribute(attr=kind, value=ast.Call(func=ast.Name(id="get_ipython"))),
                args=[ast.Constant(value=str()), *_] as arguments,
            )
        ):
            words = [argument.value for argument in arguments if isinstance(argument, ast.Constant)]
            return (kind, words) if len(words) == len(arguments) else None
    return None
