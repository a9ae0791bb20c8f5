"""Lectures as slides, and what is printed of them, made from executed notebooks; nothing in them needs the network."""

import importlib.util
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

from coursekit.commands.browser import without_weights
from coursekit.commands.lectures import FOLDED, LectureError, markdown_html
from coursekit.commands.publish import COLAB_LINE
from coursekit.commands.reading import after_questions
from coursekit.commands.site import executed, first_line, need, number, read_packaged, without_kernel
from coursekit.files import write_atomically
from coursekit.viz.widget import PRESENTED

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")  # one of them prints

# reveal.js stands beside the slides, and they fetch nothing else: no require.js, jQuery, MathJax or Mermaid
SLIDES = """{% extends 'reveal/index.html.j2' %}
{% block html_head_js %}{% endblock %}
{% block jupyter_widgets %}{% endblock %}
{% block html_head_js_mathjax %}{% endblock %}
{% block header %}{{ super() | replace("</head>", resources.head + "</head>") }}{% endblock %}
{% block input_group %}
{% if cell.metadata.get('jupyter', {}).get('source_hidden') %}<details><summary>FOLDED</summary>{{ super() }}</details>
{% else %}{{ super() }}{% endif %}
{% endblock %}
{% block footer_js %}
<script src="{{ resources.reveal.url_prefix }}/dist/reveal.js"></script>
<script src="{{ resources.reveal.url_prefix }}/plugin/notes/notes.js"></script>
<script>{{ resources.slides_js }}</script>
{% endblock %}
""".replace("FOLDED", FOLDED)


def slides(path: Path, results: Path, out: Path, page: str = "", models: str = "") -> Path:
    """Write a lecture's slides, ``out/04_transformer.html``, and reveal.js beside it; returns the file.

    Args:
        page: the address of the lecture's page, to which the first slide leads.
        models: the address of the script that lets widgets ask the models which the site has beside its pages.
    """
    need()
    from jinja2 import pass_context
    from nbconvert import SlidesExporter

    notebook = executed(path, results)
    if notebook is None:
        raise not_executed(path)
    title = COLAB_LINE.sub("", notebook.cells[0].source).rstrip()  # a slide is run nowhere
    notebook.cells[0].source = f"{title}\n\n[This lecture as a page]({page})" if page else title

    class OfflineSlides(SlidesExporter):
        @pass_context
        def markdown2html(self, context: Any, source: str) -> str:
            return markdown_html(source)

    icon = f'<link rel="icon" href="data:image/svg+xml,{quote(read_packaged("favicon.svg"))}">'
    head = f"{icon}<style>{read_packaged('slides.css')}</style>"
    if models:
        head += f'<script type="module" src="{models}"></script>'  # before those of the widgets, which look for it
    looks = {"head": head, "slides_js": read_packaged("slides.js")}
    exporter = OfflineSlides(raw_template=SLIDES, reveal_url_prefix="reveal.js", reveal_theme="white")
    resources = {"metadata": {"name": first_line(notebook)}, **looks}
    text, _ = exporter.from_notebook_node(question_first(without_kernel(notebook)), resources)
    text = text.replace(PRESENTED, "")  # for JupyterLab; one that moves to another slide styles the whole page anew
    text = re.sub(
        r'<a [^>]*href="\.\./coursekit/[^>]*>(.*?)</a>', r"\1", text
    )  # of listings: no such file beside slides
    text = without_weights(text) if models else text
    copy_reveal(out / "reveal.js")
    file = out / f"{path.stem}.html"
    write_atomically(file, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    return file


def not_executed(path: Path) -> LectureError:
    n = number(path)
    return LectureError(f"{path.stem} is not executed yet: coursekit run {n} (make run LECTURE={n})")


def handout(path: Path, results: Path, out: Path) -> Path:
    """Print an executed lecture, ``out/04_transformer.pdf``: the page in its print style; returns it."""
    page = results / path.stem / "lecture.html"
    if not page.exists():
        raise not_executed(path)
    return print_page(page, out / f"{path.stem}.pdf")


def slide_notes(path: Path, results: Path, out: Path) -> Path:
    """Print a lecture's slides with lines to write on below each, ``out/04_transformer_slides.pdf``; returns it."""
    with tempfile.TemporaryDirectory() as folder:
        return print_page(slides(path, results, Path(folder)), out / f"{path.stem}_slides.pdf")


def print_page(page: Path, file: Path) -> Path:
    """Print a page as a PDF by a Chromium; returns the file."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise LectureError(f"no {BROWSERS[0]} on this machine: install it, or open {page} in a browser and print it")
    file.parent.mkdir(parents=True, exist_ok=True)
    file = file.resolve()
    with tempfile.TemporaryDirectory() as folder:
        # of a user of its own, whose settings and extensions are nobody's; root needs to give up the inner walls
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}"]
        command += ["--virtual-time-budget=10000"]  # slides are laid out once they are loaded
        command += ["--no-pdf-header-footer", f"--print-to-pdf={folder}/page.pdf", page.resolve().as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        made = Path(folder) / "page.pdf"
        if done.returncode or not made.exists():
            raise LectureError(f"{Path(browser).name} could not print {page}: {done.stderr.strip()[-300:]}")
        write_atomically(file, lambda temporary: shutil.copy(made, temporary))
    return file


def question_first(notebook: Any) -> Any:
    """The notebook with what follows each *Predict* up to its folded answer as fragments, one for each cell.

    Here and not in the notebooks' metadata: it holds for every lecture, and for one that you add.
    """
    for cell, same_slide in after_questions(notebook):
        if same_slide and cell.metadata.get("slideshow", {}).get("slide_type", "-") == "-":
            cell.metadata["slideshow"] = {"slide_type": "fragment"}
    return notebook


def copy_reveal(folder: Path) -> None:
    """Copy reveal.js out of the Python package that ships it, without its styles for paper.

    They give every text another size and lay out every ``div`` anew, so that not all would fit that fits on the screen.
    """
    if folder.exists():
        return
    package = Path(importlib.util.find_spec("sphinx_revealjs").origin).parent / "_static" / "revealjs"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".reveal-") as room:
        copy = Path(room) / "reveal.js"
        shutil.copytree(package / "dist", copy / "dist", ignore=shutil.ignore_patterns("*.map", "*.mjs", "*.esm.js"))
        shutil.copytree(package / "plugin" / "notes", copy / "plugin" / "notes")
        shutil.copy(package / "LICENSE", copy)
        styles = copy / "dist" / "reveal.css"
        on_paper = re.compile(r"@media print\s*\{(?:[^{}]*\{[^{}]*\})*\s*\}")
        styles.write_text(on_paper.sub("", styles.read_text(encoding="utf-8")), encoding="utf-8")
        copy.rename(folder)
