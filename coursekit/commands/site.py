"""The course as a static site, made from executed notebooks; nothing in it needs the network.

Sphinx reads this module as its extension too (``setup``). Formulas become MathML, as in ``lecture.html``: no script and
no font has to be fetched.
"""

import base64
import html
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

from coursekit.commands import browser
from coursekit.commands.doctor import is_missing
from coursekit.commands.lectures import (
    LectureError,
    has_error,
    home,
    lectures,
    mathml,
    only_a_widget,
    read_notebook,
)
from coursekit.commands.page_weight import lighter, smaller_styles, with_parts_apart
from coursekit.commands.reading import for_readers, glossary, with_places, with_term_places
from coursekit.commands.single import models, single

NEEDED = ("sphinx", "myst_nb", "sphinx_book_theme", "sphinx_revealjs", "latex2mathml", "nbconvert", "brotli")
LIVE = "application/vnd.jupyter.widget-view+json"
# what each page of the reference holds: the rooms of the package that others build on
ROOMS = (
    "nn",
    "text",
    "data",
    "data.world",
    "train",
    "models",
    "models.baselines",
    "decode",
    "convert",
    "evaluate",
    "viz",
    "grading",
    "recipes",
)
# the parts of the README that say how the course is run: a page of the site
RUN = ("Two commands", "Lectures", "Exercises")

GUIDE = "coursekit/grading/README.md"  # a page of the site beside those in docs/

CLAIMED = """Each headline of a lecture is a number that the lecture measures while it is executed, beside a bound that
it has to keep: a claim that fails stops the lecture. Most were measured in the execution that these pages show. What is
*recorded* was read from the metrics of a longer training that ships with the course, and *checks* are true by algebra,
so that only a bug could break them. A name leads to the cell that makes the claim."""

SETTINGS: dict[str, Any] = {
    "extensions": [
        "myst_nb",
        "sphinx.ext.autodoc",
        "sphinx.ext.napoleon",
        "sphinx.ext.viewcode",
        "coursekit.commands.site",
    ],
    "html_theme": "sphinx_book_theme",
    "html_theme_options": {
        "use_fullscreen_button": False,
        "footer_content_items": "extra-footer.html",  # without an author who is not named
        "extra_footer": 'Text and figures: <a href="https://creativecommons.org/licenses/by/4.0/">CC BY 4.0</a>. '
        'Code: <a href="https://opensource.org/license/mit">MIT License</a>.',
        "show_toc_level": 2,
        "show_navbar_depth": 1,
        "navbar_persistent": [],  # the sidebar has the search already
    },
    "html_context": {"default_mode": "auto"},
    "html_static_path": ["_static"],
    "html_css_files": ["site.css"],
    "html_js_files": [("site.js", {"defer": "defer"})],
    "html_favicon": "_static/favicon.svg",
    "html_sourcelink_suffix": "",  # a notebook is downloaded under its own name
    "html_show_copyright": False,
    "html_show_sphinx": False,
    "html_math_renderer": "mathml",
    "language": "en",
    "default_role": "code",
    "add_module_names": False,
    "autodoc_member_order": "bysource",
    "autodoc_default_options": {"members": True},
    "viewcode_follow_imported_members": False,  # what one module takes from another is documented there
    "autodoc_inherit_docstrings": False,  # of torch: every model would repeat it
    "autodoc_preserve_defaults": True,  # as they are written, not as paths of this machine
    "napoleon_use_ivar": True,
    "nb_execution_mode": "off",
    "nb_code_prompt_show": "Show the {type}",
    "nb_code_prompt_hide": "Hide the {type}",
    "nb_ipywidgets_js": {},  # two scripts from the network, for live widgets that a page without a kernel cannot have
    "myst_enable_extensions": ["dollarmath"],
    "myst_heading_anchors": 3,
    "suppress_warnings": ["myst.header", "config.cache"],
}


def need() -> None:
    """Refuse, in one sentence, where the extra ``site`` is not installed."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise LectureError(is_missing(missing[0], "site"))


def executed(path: Path, results: Path) -> Any | None:
    """The notebook that ``coursekit run`` left of a lecture, or None; one that did not come to its end is refused.

    What ``coursekit publish`` writes is taken as it is today: it changes nothing that was computed.
    """
    file = results / path.stem / "notebook.ipynb"
    if not file.exists():
        return None
    notebook = read_notebook(file)
    if any(has_error(cell) for cell in notebook.cells):
        raise LectureError(
            f"{path.stem} stopped at an error: mend it and execute it again, coursekit run {number(path)}"
        )
    if any(cell.cell_type == "code" and cell.source.strip() and not cell.execution_count for cell in notebook.cells):
        raise LectureError(f"{path.stem} was stopped before its end: execute it again, coursekit run {number(path)}")
    today = {cell.get("id"): cell.source for cell in read_notebook(path).cells}
    for cell in notebook.cells:
        if cell.id in ("title", "setup"):
            cell.source = today.get(cell.id, cell.source)
    return notebook


def number(path: Path) -> str:
    return path.stem[:2]


def is_stale(notebook: Any, path: Path) -> bool:
    """Whether the lecture has changed since it was executed."""
    now = read_notebook(path)
    return [cell.source for cell in now.cells] != [cell.source for cell in notebook.cells]


def without_kernel(notebook: Any) -> Any:
    """The notebook with the still version of every live widget, and without what only the formatter reads."""
    for cell in notebook.cells:
        cell.source = cell.source.replace("  # fmt: skip", "")
        if "outputs" in cell:
            cell.outputs = [output for output in cell.outputs if not only_a_widget(output)]
        for output in cell.get("outputs", []):
            output.get("data", {}).pop(LIVE, None)
    notebook.metadata.pop("widgets", None)
    return notebook


def setup(app: Any) -> dict[str, bool]:
    """What Sphinx calls: formulas as MathML, and links between the pages."""
    from docutils import nodes

    def inline(translator: Any, node: Any) -> None:
        translator.body.append(mathml(node.astext(), "inline"))
        raise nodes.SkipNode

    def block(translator: Any, node: Any) -> None:
        translator.body.append(f'<div class="formula" tabindex="0">{mathml(node.astext(), "block")}</div>')
        raise nodes.SkipNode

    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    app.connect("source-read", linked)
    app.connect("autodoc-skip-member", is_field)
    app.connect("autodoc-process-docstring", with_letters, priority=600)  # after napoleon
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def with_letters(app: Any, what: str, name: str, member: Any, options: Any, lines: list[str]) -> None:
    """A parameter that is explained by its letter alone, ``D.``, which docutils would take for the item of a list."""
    lines[:] = [re.sub(r"^(\s*:[^:]+:\s*[A-Z])\.(?=\s|$)", r"\1\\.", line) for line in lines]


def is_field(app: Any, what: str, name: str, member: Any, skip: bool, options: Any) -> bool | None:
    """Whether a member is the field of a NamedTuple, which its docstring explains and Python calls an alias."""
    return True if type(member).__name__ == "_tuplegetter" else None


def linked(app: Any, page: str, source: list[str]) -> None:
    """Where a notebook names the README or an exercise, link its page; offer its slides, and its model in one file.

    Its figures and the scripts of its widgets are put into files. A notebook that is downloaded stays as it is.
    """
    if not page.startswith(("lectures/", "exercises/")):
        return

    def exercise(match: re.Match[str]) -> str:
        known = f"exercises/{match[1]}" in app.env.found_docs
        return f"[{match[0]}](../exercises/{match[1]}.ipynb)" if known else match[0]

    def before(match: re.Match[str]) -> str:
        found = next((name for name in app.env.found_docs if name.startswith(f"lectures/{match[1]}_")), None)
        return f"[{match[0]}](../{found}.ipynb)" if found else match[0]

    notebook = json.loads(source[0])
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            text = "".join(cell["source"])
            text = text.replace("as the README describes", "as [Run it yourself](../run.md#in-colab) describes")
            text = re.sub(r"`exercises/(\w+)(?:/\1\.ipynb)?`", exercise, text)
            cell["source"] = re.sub(r"Lecture (\d\d)(?= comes first)", before, text)
        for output in cell.get("outputs", []):
            if shown := "".join(output.get("data", {}).get("text/html", [])):
                output["data"]["text/html"] = with_parts_apart(shown, Path(app.srcdir, "_static", "parts"))
    if page.startswith("lectures/") and any(cell.get("outputs") for cell in notebook["cells"]):
        slides = f'<a href="../slides/{page.removeprefix("lectures/")}.html">This lecture as slides</a>'
        notebook["cells"][0]["source"] += f"\n\n{slides}"
    if page.startswith("lectures/") and (model := model_of(page)):
        link = f'<a href="../_static/{model}_single.py" download>The model in one file</a>, with everything it uses'
        short = f'<a href="../_static/{model}_plain.py" download>shorter</a>, without its checks'
        notebook["cells"][0]["source"] += f"\n\n{link}, to read or to run with PyTorch alone; or {short}."
    source[0] = json.dumps(notebook)


def model_of(page: str) -> str | None:
    """The model that bears a lecture's name, such as ``"gpt"`` of ``"06_gpt"``."""
    name = page.partition("_")[2]
    return name if name in models() else None


def build(results: Path, out: Path, say: Callable[[str], None] = lambda text: None) -> None:
    """Build the course's site into the folder ``out``, which it replaces when everything is there.

    Args:
        results: where ``coursekit run`` left its results.
        say: is told, in one sentence each, what about the site is not as it should be.
    """
    from coursekit.commands.slides import slides

    need()
    if out.exists() and (not out.is_dir() or any(out.iterdir())) and not (out / "objects.inv").exists():
        raise LectureError(f"{out} is no site and not empty: name a new folder")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as room:
        source, made, old = (Path(room) / name for name in ("source", "site", "old"))
        stage(results, source, say)
        command = [sys.executable, "-m", "sphinx", "--quiet", "--jobs", "auto", "--builder", "html"]
        command += ["--doctree-dir", f"{room}/doctrees", str(source), str(made)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise LectureError(f"Sphinx failed: {done.stderr.strip()[-2000:]}")
        for line in done.stderr.splitlines():
            say(line.replace(f"{source}{os.sep}", ""))
        for pattern in ("*webpack-macros.html", "*.map", "fontawesome.js*"):  # what the theme's makers need
            for file in (made / "_static").rglob(pattern):
                file.unlink()
        for file in made.rglob("*.html"):
            file.write_text(lighter(file.read_text("utf-8"), file.name == "search.html"), encoding="utf-8")
        smaller_styles(made)
        models = "../_static/models/page.js" if (made / "_static/models/page.js").exists() else ""
        for path in lectures():
            if (results / path.stem / "notebook.ipynb").exists():
                slides(path, results, made / "slides", f"../lectures/{path.stem}.html", models)
        (made / ".nojekyll").touch()  # GitHub Pages would leave out every folder that begins with _
        if out.exists():
            out.rename(old)
        made.rename(out)


def stage(results: Path, source: Path, say: Callable[[str], None]) -> None:
    """Write what Sphinx reads."""
    import nbformat

    for folder in ("lectures", "exercises", "package", "docs", "_static/pictures"):
        (source / folder).mkdir(parents=True)
    terms = json.dumps(glossary(read(home() / "docs" / "glossary.md", "")), ensure_ascii=False)
    script = read_packaged("site.js").replace("const TERMS = [];", f"const TERMS = {terms};")
    (source / "_static" / "site.js").write_text(script, encoding="utf-8")
    for name in ("site.css", "favicon.svg"):
        (source / "_static" / name).write_text(read_packaged(name), encoding="utf-8")
    title, about = heading(home() / "README.md")
    # the package's code has pages of its own on the site
    rooms = {room: modules(room) for room in ROOMS}
    known = {name for names in rooms.values() for name in names}
    seeds = json.loads(read(home() / "notebooks" / "seeds.json", "{}"))
    cards, tables, exercises, answering = [], [], [], {}
    done = {path: executed(path, results) for path in lectures()}
    if not any(done.values()):
        raise LectureError(f"no lecture was executed into {results}: coursekit run --all")
    for path, notebook in done.items():
        note = None
        if notebook is None:
            notebook = read_notebook(path)
            note = f"{path.stem} is not executed yet, so its page has no outputs: coursekit run {number(path)}"
        elif is_stale(notebook, path):
            stale = f"{path.stem} has changed since it was executed, so its text and its numbers may disagree"
            note = f"{stale}: coursekit run {number(path)}"
        if note:
            say(note)
            notebook.cells.insert(1, nbformat.v4.new_markdown_cell(f"```{{note}}\n{note}\n```"))
        if model := model_of(path.stem):
            for kind in ("single", "plain"):
                text = single(model, plain=kind == "plain")
                (source / "_static" / f"{model}_{kind}.py").write_text(text, encoding="utf-8")
        claims = json.loads(read(results / path.stem / "claims.json", "[]"))
        task = home() / "exercises" / path.stem / f"{path.stem}.ipynb"
        if task.exists():
            shutil.copy(task, source / "exercises")
            exercises.append(path.stem)
        cards.append(card(path, notebook, len(claims), task.exists(), source / "_static" / "pictures"))
        placed = for_readers(notebook, claims)
        if claims:
            tables.append(claims_table(path, first_line(notebook), claims, placed))
            if path.stem in seeds:
                tables.append(seeds_table(seeds[path.stem]))
        answering |= models_named(notebook)
        nbformat.write(for_sphinx(without_kernel(notebook), known), source / "lectures" / path.name)
    scripts = answers(answering, source / "_static" / "models", say)
    settings = f"project = html_title = {title!r}\nhtml_js_files += {scripts!r}\n"
    (source / "conf.py").write_text(
        f"from coursekit.commands.site import SETTINGS\nglobals().update(SETTINGS)\n{settings}", encoding="utf-8"
    )
    papers = [*sorted((home() / "docs").glob("*.md")), *(path for path in [home() / GUIDE] if path.exists())]
    pages = [
        front_page(title, about, cards, live=bool(scripts)),
        contents("Begin", ["run"]),
        contents("Lectures", [f"lectures/{path.stem}" for path in lectures()]),
        contents("Exercises", [f"exercises/{name}" for name in exercises]),
        contents("About the course", ["claims", *(f"docs/{page_name(path)}" for path in papers)]),
        contents("Package", [f"package/{room}" for room in rooms]),
    ]
    (source / "index.md").write_text("\n\n".join(pages), encoding="utf-8")
    (source / "run.md").write_text(run_page(read(home() / "README.md", ""), source), encoding="utf-8")
    said = ["# What the course claims, and what it measured", CLAIMED, *tables]
    (source / "claims.md").write_text("\n\n".join(said), encoding="utf-8")
    for path in papers:
        text = path.read_text("utf-8")
        text = with_term_places(text) if path.stem == "glossary" else text
        folder = path.parent.relative_to(home()).as_posix()
        (source / "docs" / f"{page_name(path)}.md").write_text(with_links(text, source, folder), "utf-8")
    for room, names in rooms.items():
        (source / "package" / f"{room}.rst").write_text(room_page(room, names), encoding="utf-8")


def models_named(notebook: Any) -> dict[str, browser.Load]:
    """The models by which widgets of a lecture are to be answered; what they carry of them is taken out."""
    found: dict[str, browser.Load] = {}
    for data in (output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", [])):
        if page := data.get("text/html"):
            found |= browser.named(page)
            data["text/html"] = browser.without_weights(page)
    return found


def answers(
    models: dict[str, browser.Load], folder: Path, say: Callable[[str], None]
) -> list[tuple[str, dict[str, str]]]:
    """Put the models into a folder; returns the script that lets widgets ask them, for Sphinx."""
    if not models:
        return []
    try:
        browser.stage(models, folder)
    except browser.CannotRun as reason:
        say(f"The widgets have their stored answers only: {reason}")
        shutil.rmtree(folder, ignore_errors=True)
        return []
    return [(f"{folder.name}/page.js", {"type": "module"})]


def read(file: Path, otherwise: str) -> str:
    return file.read_text(encoding="utf-8") if file.exists() else otherwise


def heading(readme: Path) -> tuple[str, str]:
    """Title and first paragraph of the course's README."""
    parts = read(readme, "").split("\n\n")
    title = parts[0].removeprefix("# ").strip() if parts[0].startswith("# ") else "Course"
    return title, parts[1] if len(parts) > 1 and parts[0].startswith("# ") else ""


def first_line(notebook: Any) -> str:
    """The title of a lecture, with its number: ``04 · The Transformer``."""
    return notebook.cells[0].source.splitlines()[0].removeprefix("# ").strip()


def for_sphinx(notebook: Any, known: set[str]) -> Any:
    """Folded code as myst-nb folds it, and the setup; links to the package's code lead to its page, if there is one."""

    def target(match: re.Match[str]) -> str:
        name = match[1].replace("/", ".")
        return f'href="../_modules/{match[1]}.html' if name in known else match[0]

    for cell in notebook.cells:
        if cell.metadata.get("jupyter", {}).get("source_hidden") or cell.id == "setup":
            cell.metadata["tags"] = [*cell.metadata.get("tags", []), "hide-input"]
        for output in cell.get("outputs", []):
            page = output.get("data", {}).get("text/html")
            if page and "../coursekit/" in page:
                output.data["text/html"] = re.sub(r'href="\.\./(coursekit/[\w/]+)\.py', target, page)
    return notebook


def drawing(stem: str) -> str:
    """The drawing that stands for a lecture, as inline SVG without blank lines, which would end Markdown's HTML."""
    file = files("coursekit.commands") / "site_files" / "cards" / f"{stem}.svg"
    return " ".join(file.read_text(encoding="utf-8").split()) if file.is_file() else ""


def first_figure(notebook: Any) -> bytes | None:
    outputs = (output for cell in notebook.cells for output in cell.get("outputs", []))
    figures = (output.get("data", {}).get("image/png") for output in outputs)
    return next((base64.b64decode(figure) for figure in figures if figure), None)


def card(path: Path, notebook: Any, claims: int, has_exercise: bool, pictures: Path) -> str:
    """A lecture on the front page: its picture, its title, what it teaches first, and how long it takes.

    A lecture without a drawing shows its first figure, which is written into the folder ``pictures``.
    """
    place, title = first_line(notebook).split(" · ", 1) if " · " in first_line(notebook) else ("", first_line(notebook))
    title = title.replace("'", "’")  # as Sphinx writes it in its own text
    goals = next((cell.source for cell in notebook.cells if cell.id.startswith("objectives")), "")
    goal = re.search(r"^1\. (.*)", goals, re.MULTILINE)
    line = html.escape(re.sub(r"[*`$]", "", goal[1])) if goal else ""
    minutes = re.search(r"About (\d+) minutes", notebook.cells[0].source)
    facts = [f"{minutes[1]} minutes"] if minutes else []
    facts += [f"{claims} claim{'s' * (claims > 1)}"] if claims else []
    if has_exercise:
        facts.append(f'<a href="exercises/{path.stem}.html" aria-label="Exercise {place}">exercise</a>')
    if colab := re.search(r"\[Open in Colab\]\((.*)\)", notebook.cells[0].source):
        facts.append(f'<a href="{colab[1]}" aria-label="Lecture {place} in Colab">Colab</a>')
    shown = drawing(path.stem)
    if not shown and (figure := first_figure(notebook)):
        (pictures / f"{path.stem}.png").write_bytes(figure)
        shown = f'<img src="_static/pictures/{path.stem}.png" alt="">'
    return (
        f'<li><a class="lecture" href="lectures/{path.stem}.html">'
        f'<span class="picture" aria-hidden="true">{shown}</span>'
        f'<span class="name"><span class="place">{place}</span> {html.escape(title)}</span></a>'
        f'<p>{line}</p><p class="facts">{" · ".join(facts)}</p></li>'
    )


TO_TRY = {  # widgets that a visitor can try first
    "06_gpt.html#writing-and-completing-code": "write with GPT",
    "05_bert.html#cell-heads-widget": "watch BERT's heads",
    "09_dino.html#cell-overlay": "see where DINO looks",
    "11_assistants.html#cell-chat-widget": "talk to an assistant",
}


def front_page(title: str, about: str, cards: list[str], live: bool) -> str:
    """The page with a card for each lecture; ``live``: models answer on the site."""
    run = "It runs on your machine or in Colab: [run it yourself](run.md)."
    if live:
        shown = "".join(cards)
        places = [place for place in TO_TRY.items() if f'"lectures/{place[0].partition("#")[0]}"' in shown]
        links = " · ".join(f'<a href="lectures/{place}">{what}</a>' for place, what in places)
        run += f" Or stay here, where the course's own models answer in your browser{': ' if links else '.'}{links}"
    plain = json.dumps(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", about).replace("\n", " "), ensure_ascii=False)
    head = f"---\nmyst:\n  html_meta:\n    description: {plain}\n---\n"
    return f'{head}# {title}\n\n{about}\n\n{run}\n\n<ol class="path">\n{"".join(cards)}\n</ol>'


def page_name(paper: Path) -> str:
    """The name on the site of one of the repository's pages."""
    return "grading" if paper.name == "README.md" else paper.stem


def with_links(text: str, source: Path, folder: str = "") -> str:
    """Markdown of the repository's ``folder``; its links lead to the site's pages, one that it has not becomes text."""
    up = "../" if folder else ""

    def link(match: re.Match[str]) -> str:
        target, _, place = match[2].partition("#")
        path = os.path.normpath(os.path.join(folder, target)) if target else ""
        page = re.sub(r"^notebooks/(\w+\.ipynb)$", r"lectures/\1", path)
        page = re.sub(r"^exercises/(\w+)/\1\.ipynb$", r"exercises/\1.ipynb", page)
        page = "docs/grading.md" if path == GUIDE else page
        if path.endswith((".png", ".svg")) and (home() / path).exists():
            page = f"_static/pictures/{Path(path).name}"
            shutil.copy(home() / path, source / page)
        if "://" in match[2] or not target:
            return match[0]
        there = (source / page).exists() or (page.startswith("docs/") and (home() / path).exists())
        return f"{match[1]}({up}{page}{'#' * bool(place)}{place})" if there else match[1].strip("![]")

    return re.sub(r"(!?\[[^\]]*\])\(([^)]+)\)", link, text)


def run_page(readme: str, source: Path) -> str:
    """How the course is run, in the README's own words; its links lead to the pages of the site."""
    from coursekit.commands.publish import GITHUB, published_as

    repository = published_as(home()) if (home() / "pyproject.toml").exists() else None
    where = f"`git clone {GITHUB}{repository}`" if repository else "from whoever gave you this site"
    parts = {part.split("\n", 1)[0]: part for part in re.split(r"^## ", readme, flags=re.MULTILINE)[1:]}
    text = "\n".join(f"## {parts[name]}" for name in RUN if name in parts)

    text = with_links(text, source)
    return f"# Run it yourself\n\nGet the course's folder, {where}; the commands are run in it.\n\n{text}"


def contents(caption: str, pages: list[str]) -> str:
    """A part of the navigation."""
    listed = "\n".join(pages)
    return f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{listed}\n```" if pages else ""


def claims_table(path: Path, title: str, claims: list[dict[str, Any]], placed: set[str]) -> str:
    from coursekit.viz.claims import Claims

    table = with_places(Claims(claims)._repr_html_(), claims, placed, f"lectures/{path.stem}.html")
    return f'## [{title}](lectures/{path.stem}.ipynb)\n\n<div class="claims">{table}</div>'


def seeds_table(claims: list[dict[str, Any]]) -> str:
    """What the same claims measured on each of several seeds, folded."""
    from coursekit.viz.claims import bound_of

    seeds = range(len(claims[0]["values"]))

    def row(c: dict[str, Any]) -> str:
        values = "".join("<td>–</td>" if value is None else f"<td>{value:.4g}</td>" for value in c["values"])
        return f'<tr><th scope="row">{html.escape(c["name"])}</th><td>{bound_of(c)}</td>{values}</tr>'

    head = "".join(f"<th>seed {seed}</th>" for seed in seeds)
    return (
        f"<details><summary>On {len(seeds)} seeds</summary>"
        "<p>Recorded in an earlier run, so that seed 0 need not give the value above.</p>"
        f'<div class="claims"><table><thead><tr><th>claim</th><th>bound</th>{head}</tr></thead>'
        f"<tbody>{''.join(map(row, claims))}</tbody></table></div></details>"
    )


def modules(room: str) -> list[str]:
    """The public modules of a room, by their full names."""
    folder = files("coursekit").joinpath(*room.split("."))
    stems = sorted(Path(entry.name).stem for entry in folder.iterdir() if entry.name.endswith(".py"))
    return [f"coursekit.{room}.{stem}" for stem in stems if not stem.startswith("_")]


def room_page(room: str, names: list[str]) -> str:
    """A page of the reference, in reStructuredText."""

    def section(name: str, underline: str) -> str:
        return f"{name}\n{underline * len(name)}"

    parts = [section(f"coursekit.{room}", "=")]
    for name in names:
        parts += [section(name.removeprefix("coursekit."), "-"), f".. automodule:: {name}"]
    return "\n\n".join(parts) + "\n"


def read_packaged(name: str) -> str:
    return (files("coursekit.commands") / "site_files" / name).read_text(encoding="utf-8")
