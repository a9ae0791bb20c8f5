"""Show the package's own source in a notebook."""

import html
import inspect
from pathlib import Path
from typing import Any

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from coursekit.viz.widget import PRESENTED, Widget

PACKAGE = Path(__file__).resolve().parents[1]
INK, PAPER = "color: #1b1b1f", "background: #f8f8f8"


class Source(Widget):
    """The source of a class, function or module, highlighted, with the file and line it stands at."""

    module = "inverted"

    def __init__(self, obj: Any, docstring: bool):
        self.data = {}
        obj = inspect.unwrap(obj) if callable(obj) else obj  # what stands inside a decorator
        try:
            self.code = inspect.getsource(obj)
            self.path = Path(inspect.getsourcefile(obj)).resolve()
            self.line = 1 if inspect.ismodule(obj) else inspect.getsourcelines(obj)[1]
        except (TypeError, OSError):
            raise ValueError(f"no source for {obj!r}: give a class, function or module written in Python") from None
        if not docstring:
            self.code = without_docstrings(self.code)
        self.name = self.path.relative_to(PACKAGE.parent) if self.path.is_relative_to(PACKAGE) else self.path

    def static_html(self) -> str:
        # Inline colours, so that the listing needs no style sheet and survives in an untrusted notebook. Ink and paper
        # stand on each element, since JupyterLab gives <pre>, <code> and <a> the colours of its theme: white names in
        # the dark. In an untrusted notebook it drops a colour that is "inherit".
        formatter = HtmlFormatter(style="default", noclasses=True, nobackground=False, wrapcode=True)
        body = highlight(self.code, PythonLexer(), formatter)
        body = body.replace('<pre style="', f'<pre tabindex="0" style="white-space: pre; {PAPER}; {INK}; ', 1)
        body = body.replace("<code>", f'<code style="white-space: pre; {PAPER}; {INK}">', 1)
        where = f"{html.escape(str(self.name))}, line {self.line}"
        # JupyterLab opens a link relative to the notebook; outside the course's folder there is nothing to open
        inside = (PACKAGE.parent / "notebooks").is_dir() and self.path.is_relative_to(PACKAGE)
        link = (
            f'<a style="color: #0b5fa5" href="../{html.escape(self.name.as_posix())}">{where}</a>' if inside else where
        )
        return (
            f'<div class="ck-grows" style="border:1px solid #b8b8c4;border-radius:6px;overflow-x:auto;'
            f'{PAPER};{INK};padding:2px 10px;font-size:13px">{PRESENTED}'
            f'<div style="color:#55555f;font-size:12px;padding:4px 0 0">{link}</div>'
            f"{body}</div>"
        )

    def __repr__(self) -> str:
        return f"# {self.name}, line {self.line}\n{self.code}"


def show(obj: Any, docstring: bool = True) -> Source:
    """Show the source of ``obj``, which is the code that runs.

    Args:
        obj: a class, function or module.
        docstring: False leaves the docstrings out, where the text has said it all.
    """
    return Source(obj, docstring)


def without_docstrings(code: str) -> str:
    """``code`` with the lines of its docstrings cut out."""
    import ast
    import textwrap

    lines = code.splitlines(keepends=True)
    for node in ast.walk(ast.parse(textwrap.dedent(code))):
        body = getattr(node, "body", None)
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.Module) or ast.get_docstring(node) is None:
            continue
        if len(body) == 1:
            continue  # the docstring is all there is
        first, last = body[0].lineno - 1, body[1].lineno - 1 - len(getattr(body[1], "decorator_list", []))
        for i in range(first, last):
            lines[i] = ""
    return "".join(lines)
