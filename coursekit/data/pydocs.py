"""English that every machine has: the Python documentation that comes with Python.

Two sources: the texts that ``help("topics")`` shows, one document each, and the docstrings of the standard
library, one document for each file. Files are parsed, never imported. The text differs a little from one
version of Python to the next; quote ``fingerprint`` beside every figure that depends on it.
"""

import ast
import hashlib
import re
import sysconfig
import warnings
import zlib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

SPLITS = ("train", "validation", "test")
# tests, what pip installed, tables instead of code, and what newer versions of Python have dropped
SKIPPED = {
    *("test", "tests", "idle_test", "idlelib", "site-packages", "dist-packages", "__pycache__"),
    *("encodings", "pydoc_data", "distutils", "lib2to3"),
}


class Document(NamedTuple):
    """A text and where it comes from."""

    name: str
    text: str


def split_of(name: str) -> str:
    """The split of a document, by a hash of its name: of ten documents about eight train, one each for the others.

    A document is in the same split whatever else there is, and with every version of Python.
    """
    return {0: "test", 1: "validation"}.get(zlib.crc32(name.encode()) % 10, "train")


def in_split(found: Iterable[Document], split: str) -> list[Document]:
    """Those of the documents that belong to ``split``: ``"train"``, ``"validation"`` or ``"test"``."""
    if split not in SPLITS:
        raise ValueError(f"split={split!r}: must be one of {', '.join(map(repr, SPLITS))}")
    return [document for document in found if split_of(document.name) == split]


def fingerprint(found: Iterable[Document]) -> str:
    """SHA-256 of names and texts in their order, as 64 hexadecimal digits."""
    digest = hashlib.sha256()
    for part in (part for document in found for part in document):
        content = part.encode()
        digest.update(len(content).to_bytes(8, "big") + content)  # the length tells where a text ends
    return digest.hexdigest()


@cache
def standard_library() -> tuple[Document, ...]:
    """The source files of the standard library by name, tests and tables left out.

    Raises:
        FileNotFoundError: this Python comes without its source files.
    """
    folder = Path(sysconfig.get_path("stdlib"))
    # what depends on the machine stands in config-* and _sysconfigdata*
    paths = [
        path
        for path in folder.rglob("*.py")
        if not SKIPPED & set(path.relative_to(folder).parts) and "config-" not in str(path.relative_to(folder))
        if not path.name.startswith("_sysconfigdata")
    ]
    if not paths:
        raise FileNotFoundError(f"no Python files in {folder}: use a Python that has its standard library as files")
    found = []
    for path in paths:
        try:
            found.append(Document(path.relative_to(folder).as_posix(), path.read_text(encoding="utf-8")))
        except UnicodeDecodeError:  # an old file in another encoding
            continue
    return tuple(sorted(found))


def docstrings(source: str) -> Iterator[str]:
    """The docstrings of a module, its classes and its functions, from top to bottom."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes that newer versions frown upon
            tree = ast.parse(source)
    except SyntaxError:  # of another version of Python
        return
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    nodes = [node for node in ast.walk(tree) if isinstance(node, kinds)]
    for node in sorted(nodes, key=lambda node: getattr(node, "lineno", 0)):
        text = ast.get_docstring(node)
        if text:
            yield text


def is_prose(paragraph: str) -> bool:
    """Whether a paragraph reads as sentences: begins at the margin or as a list item, nine of ten characters are
    letters, spaces or common punctuation, it has five words, and it ends as a sentence or a lead-in does."""
    plain = re.sub(r"[^\w\s.,;:'\"()-]|_|\d", "", paragraph)
    return (
        ">>>" not in paragraph
        and "::=" not in paragraph
        and len(plain) >= 0.9 * len(paragraph)
        and len(paragraph.split()) >= 5
        and re.search(r"[.:;,?!)\"']$", paragraph) is not None
    )


def clean(text: str) -> Iterator[str]:
    """The paragraphs of a text that are prose, each as one line.

    Examples of code, tables, rules and grammars go: indented blocks, paragraphs with prompts, and those with more
    symbols than prose has.
    """
    for block in re.split(r"\n\s*\n", text.expandtabs()):
        lines = [line for line in block.split("\n") if not re.fullmatch(r"\s*([*=\-~^#+.])\1{2,}\s*", line)]
        # columns: a run of spaces inside several lines
        columns = sum(re.search(r"\S {3,}\S", line) is not None for line in lines)
        paragraph = " ".join(" ".join(lines).split())
        if columns <= len(lines) / 3 and is_prose(paragraph):
            yield paragraph


@cache
def everything() -> tuple[Document, ...]:
    """All documents by name; a paragraph that comes again anywhere is left out the second time."""
    from pydoc_data.topics import topics

    raw = {f"topics/{name}": [text] for name, text in topics.items()}
    raw |= {name: list(docstrings(source)) for name, source in standard_library()}
    seen: set[str] = set()
    found = []
    for name, texts in sorted(raw.items()):
        kept = []
        for paragraph in (paragraph for text in texts for paragraph in clean(text)):
            if paragraph not in seen:
                seen.add(paragraph)
                kept.append(paragraph)
        if kept:
            found.append(Document(name, "\n".join(kept)))
    return tuple(found)


def documents(split: str = "train") -> list[Document]:
    """The documents of a split, by name: paragraphs of English, one to a line.

    Args:
        split: ``"train"``, ``"validation"`` or ``"test"``; no paragraph is in two of them.
    """
    return in_split(everything(), split)
