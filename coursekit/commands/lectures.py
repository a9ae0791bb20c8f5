"""Find lectures and execute them without a browser."""

import asyncio
import atexit
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from coursekit.commands.doctor import is_missing


class LectureError(Exception):
    """Something a person can mend, said in one line."""


def home() -> Path:
    """The folder that holds ``notebooks/``: here, above here, or where the package was installed from."""
    here = Path.cwd()
    for folder in (here, *here.parents, Path(__file__).resolve().parents[2]):
        if (folder / "notebooks").is_dir() and list((folder / "notebooks").glob("[0-9][0-9]_*.ipynb")):
            return folder
    raise LectureError("no folder 'notebooks' here or above: change into the course's folder first")


def lectures() -> list[Path]:
    """All lectures, in their order."""
    return sorted((home() / "notebooks").glob("[0-9][0-9]_*.ipynb"))


def find_lecture(name: str) -> Path:
    """The lecture called ``name``: its number (``2`` or ``02``), its name, or its file."""
    stem = Path(name).stem
    for path in lectures():
        if stem == path.stem or (stem.isdigit() and int(stem) == int(path.stem[:2])):
            return path
    known = ", ".join(path.stem for path in lectures())
    raise LectureError(f"no lecture {name!r}; there are: {known}")


def find_exercise(name: str) -> str:
    """The name of the exercise called ``name``: its number or its name."""
    return named_exercise(name, sorted(path.name for path in (home() / "exercises").glob("[0-9][0-9]_*")))


def named_exercise(name: str, exercises: list[str]) -> str:
    for exercise in exercises:
        if Path(name).stem == exercise or (name.isdigit() and int(name) == int(exercise[:2])):
            return exercise
    raise LectureError(f"no exercise {name!r}; there are: {', '.join(exercises) or 'none'}")


def execute(path: Path, out: Path, progress: Callable[[int, int], None] = lambda done, cells: None) -> dict[str, Any]:
    """Execute a lecture from top to bottom.

    Writes ``notebook.ipynb``, ``lecture.html`` and ``claims.json`` into ``out``, also when a cell fails.

    Args:
        progress: called with the number of code cells done and the number of them.

    Returns:
        ``seconds`` that the cells took, the ``claims``, and ``error``: None, or what went wrong in one line.
    """
    try:
        import nbformat
        from nbclient import NotebookClient
        from nbclient.exceptions import CellExecutionError
        from nbconvert.preprocessors import CoalesceStreamsPreprocessor
        from traitlets.config import Config
    except ModuleNotFoundError as missing:
        raise LectureError(is_missing(missing.name, "lab")) from None

    if sys.platform == "win32":
        asyncio.set_event_loop_policy(asyncio.WindowsSelectorEventLoopPolicy())
    notebook = read_notebook(path)
    out.mkdir(parents=True, exist_ok=True)
    claims_file = out / "claims.json"
    claims_file.write_text("[]\n", encoding="utf-8")
    code = [i for i, cell in enumerate(notebook.cells) if cell.cell_type == "code" and cell.source.strip()]
    sockets = tempfile.TemporaryDirectory(prefix="kernel-")
    client = NotebookClient(
        notebook,
        config=Config(KernelManager=own_sockets(sockets.name)),
        timeout=1800,
        startup_timeout=300,  # a busy machine, and a Python that compiles what it imports first
        kernel_name="python3",
        resources={"metadata": {"path": str(path.parent)}},
        on_notebook_start=lambda notebook: progress(0, len(code)),
        on_cell_executed=lambda cell, cell_index, execute_reply: progress(code.index(cell_index) + 1, len(code)),
        store_widget_state=False,
        extra_arguments=["--log-level=ERROR"],
    )
    error = None
    started = time.perf_counter()
    try:
        asyncio.run(client.async_execute(env={**os.environ, "COURSEKIT_CLAIMS": str(claims_file.resolve())}))
    except CellExecutionError as failure:
        where = next(i for i, cell in enumerate(notebook.cells) if has_error(cell))
        cell = f"cell {where + 1} of {len(notebook.cells)}, {notebook.cells[where].id}"
        error = f"{path.stem}, {cell}: {failure.ename}: {plain(failure.evalue)}"
    except (RuntimeError, TimeoutError) as failure:  # the kernel died, or never came up
        error = f"{path.stem}: {type(failure).__name__}: {plain(str(failure))}"
    finally:
        atexit.unregister(client._cleanup_kernel)  # a kernel that was killed before it was up makes it fail
        sockets.cleanup()
    seconds = time.perf_counter() - started
    for cell in notebook.cells:
        if "outputs" in cell:
            cell.outputs = [output for output in cell.outputs if not only_a_widget(output)]
    # the kernel sends what is printed in pieces, as it comes: those that nothing stands between become one
    notebook, _ = CoalesceStreamsPreprocessor().preprocess(notebook, {})
    nbformat.write(notebook, out / "notebook.ipynb")
    page = to_html(notebook, path.stem)
    root = os.path.relpath(path.parent.parent, out)  # links to the source are relative to the notebook's folder
    page = page.replace('href="../coursekit/', f'href="{Path(root).as_posix()}/coursekit/')
    (out / "lecture.html").write_text(page, encoding="utf-8")
    return {"seconds": seconds, "claims": json.loads(claims_file.read_text(encoding="utf-8")), "error": error}


def read_notebook(path: Path) -> Any:
    """A notebook from its file.

    Raises:
        LectureError: the file is none, or was not written to its end.
    """
    import nbformat

    try:
        return nbformat.read(path, as_version=4)
    except (ValueError, AttributeError, LookupError, TypeError):
        raise LectureError(f"{path} is no notebook: was it written to its end?") from None


def own_sockets(folder: str) -> dict[str, str]:
    """Settings of a kernel manager whose kernel is spoken to by sockets in ``folder``, on Windows by network ports.

    A port that was free when it was chosen may be another program's before the kernel opens it; a file may not.
    """
    if sys.platform == "win32":
        return {}
    return {"transport": "ipc", "connection_file": str(Path(folder, "kernel.json"))}


def only_a_widget(output: Any) -> bool:
    """Whether an output is a view of a live widget and nothing else: without its kernel there is nothing to see."""
    data = output.get("data", {})
    return "application/vnd.jupyter.widget-view+json" in data and "text/html" not in data


def has_error(cell: Any) -> bool:
    return any(output.output_type == "error" for output in cell.get("outputs", []))


def plain(text: str) -> str:
    """The last line of a message, without terminal colours."""
    lines = re.sub(r"\x1b\[[0-9;]*m", "", text).strip().splitlines()
    return lines[-1] if lines else ""


# above folded code: which it is, where a comment at its beginning says so, such as "# bug 1"
FOLDED = "Code{% if cell.source[:2] == '# ' %} ({{ cell.source.splitlines()[0][2:] | e }}){% endif %}"

# The page of nbconvert without the three scripts that it would fetch from the network, hidden code folded,
# and dark where the reader's system is.
PAGE = """{% extends 'lab/index.html.j2' %}
{% block html_head_js_requirejs %}{% endblock %}
{% block html_head_js_mathjax %}{% endblock %}
{% block html_head_js_mermaidjs %}{% endblock %}
{% block html_head_css %}{{ super() }}
{% set dark = '<style media="screen and (prefers-color-scheme: dark)"' %}
{{ resources.include_css("static/theme-dark.css") | replace("<style", dark) }}
<style>math { font-family: "STIX Two Math", "Cambria Math", "DejaVu Math TeX Gyre", "Noto Sans Math", math }
details { margin-bottom: 1em }
.jp-RenderedHTMLCommon :is(p, li, td) a:link { text-decoration: underline }
/* JupyterLab's colours for prompts and code, as far as they are too faint to be read */
:root {
  --jp-cell-prompt-not-active-opacity: 1;
  --jp-mirror-editor-comment-color: #336f6f; --jp-mirror-editor-number-color: #070;
  --jp-mirror-editor-operator-color: #9318e0; --jp-mirror-editor-meta-color: #9318e0;
}
@media screen and (prefers-color-scheme: dark) { :root {
  --jp-mirror-editor-comment-color: #7ab3b3; --jp-mirror-editor-number-color: #66bb6a;
  --jp-mirror-editor-operator-color: #d08cff; --jp-mirror-editor-meta-color: #d08cff;
} }
.jp-OutputArea-output pre { word-break: normal; overflow-wrap: anywhere } /* JupyterLab breaks words */
@page { size: A4; margin: 16mm 14mm }
@media print { /* the whole text: answers open, code wrapped, figures and tables in one piece */
  .jp-InputPrompt, .jp-OutputPrompt, .jp-InputCollapser, .jp-OutputCollapser { display: none !important }
  .jp-Notebook { padding: 0 !important }
  .jp-RenderedHTMLCommon { font-size: 10.5pt }
  .jp-Notebook pre, .jp-Notebook .highlight pre { white-space: pre-wrap; overflow-wrap: anywhere; font-size: 8.5pt }
  .jp-Cell-inputWrapper, .jp-InputArea, .jp-OutputArea-output { overflow: visible !important }
  h1, h2, h3 { break-after: avoid }
  img, svg, table, math[display=block], .jp-CodeCell .highlight, details > summary { break-inside: avoid }
  img { max-height: 240mm }
  details.code { display: none }
  details::details-content { content-visibility: visible; block-size: auto }
}</style>
{% endblock %}
{% block input_group %}
{% if cell.metadata.get('jupyter', {}).get('source_hidden') %}
<details class="code"><summary>FOLDED</summary>{{ super() }}</details>
{% else %}{{ super() }}{% endif %}
{% endblock %}
""".replace("FOLDED", FOLDED)


def with_spaces(formula: str) -> str:
    """A formula in MathML with a thin space around ``ln``, ``log`` and ``exp``, as TeX sets it: latex2mathml has none.

    There is none beside an operator, a comma or a bracket.
    """
    try:
        math = ElementTree.fromstring(formula)
    except ElementTree.ParseError:  # a text with a bare & or <, which only HTML forgives
        return formula
    for row in [part for part in math.iter() if part.tag in ("math", "mrow", "mstyle", "mtd")]:
        for i in reversed(range(1, len(row))):
            beside = row[i - 1 : i + 1]
            if any(map(is_named, beside)) and not {"mo", "mspace"} & {part.tag for part in beside}:
                row.insert(i, ElementTree.Element("mspace", width="0.167em"))
    return ElementTree.tostring(math, encoding="unicode", short_empty_elements=False)


def is_named(part: ElementTree.Element) -> bool:
    """Whether it is the name of a function, alone or with a base or power."""
    name = part[0] if part.tag in ("msub", "msup", "msubsup") else part
    return name.tag == "mi" and name.text in ("ln", "log", "exp")


def mathml(formula: str, display: str) -> str:
    """A formula of TeX as MathML: ``display`` is ``inline`` or ``block``."""
    from latex2mathml.converter import convert

    # HTML knows <math> without its namespace; with it, nbconvert writes a heading's formula as <ns0:math>, unseen
    made = convert(formula, display=display).replace(' xmlns="http://www.w3.org/1998/Math/MathML"', "", 1)
    # to TeX the bars of |x| are letters, to browsers operators, with spaces
    return with_spaces(
        re.sub(r'<mo((?: \w+="false")*)>(?=[|‖]|&#x0007C;|&#x02016;)', r'<mo\1 lspace="0" rspace="0">', made)
    )


def with_punctuation_held(page: str) -> str:
    """A page in which no line begins with the full stop or the bracket behind a formula."""
    formula = r'<math\b[^>]*display="inline"[^>]*>(?:(?!</math>).)*</math>'
    return re.sub(rf"\(?{formula}[.,;:!?)’”]+", r'<span style="white-space:nowrap">\g<0></span>', page)


def markdown_html(source: str) -> str:
    """A cell's Markdown as HTML, with formulas as MathML; links to files that lie beside the notebook become text."""
    from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

    source = re.sub(r"\[([^\]]+)\]\((?!\w+:|#)[^)\s]+\.(?:ipynb|md)\)", r"\1", source)

    class MathMLRenderer(IPythonRenderer):
        def inline_math(self, body: str) -> str:
            return mathml(body, "inline")

        def block_math(self, body: str) -> str:
            return mathml(body, "block")

    rendered = MarkdownWithMath(renderer=MathMLRenderer(escape=False)).render(source)
    return with_punctuation_held(without_empty_headers(rendered))


def without_empty_headers(page: str) -> str:
    """A page whose tables have plain cells where they have headers without a text: a screen reader announces each."""
    return re.sub(r"<th\b([^>]*)>\s*(?:<p></p>)?\s*</th>", r"<td\1></td>", page)


def to_html(notebook: Any, title: str) -> str:
    """An executed notebook as one page that needs nothing from the network; formulas become MathML."""
    from jinja2 import pass_context
    from nbconvert import HTMLExporter

    class OfflineExporter(HTMLExporter):
        @property
        def default_config(self):
            # a live widget needs its kernel: the page takes the still version beside it
            config = super().default_config
            config.NbConvertBase.display_data_priority.remove("application/vnd.jupyter.widget-view+json")
            return config

        @pass_context
        def markdown2html(self, context, source):
            return markdown_html(source)

    html, _ = OfflineExporter(raw_template=PAGE).from_notebook_node(notebook, {"metadata": {"name": title}})
    return html
