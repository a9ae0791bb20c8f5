"""A small course built as a site and as slides, looked at in real Chromium; nothing may ask for an outside address."""

import base64
import importlib.util
import io
import json
import re
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlparse
from xml.etree import ElementTree

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from fontTools.ttLib import TTFont

from coursekit.commands import cli, doctor, lectures, page_weight, reading, site
from coursekit.commands import slides as decks
from coursekit.commands.single import single
from coursekit.viz import Alignment, Curves
from coursekit.viz import widget as widgets
from coursekit.viz.claims import Claims
from coursekit.viz.figures import figure_html
from coursekit.viz.show import show
from tests.viz.page import brightness

CLAIMS = [{"name": "two and two", "value": 4.0, "at_least": 3, "ok": True}]
LATE = """<div class="ck" style="width:100%;height:40px"></div><script>{
const widget = document.currentScript.previousElementSibling;
const grow = () => { if (widget.clientWidth) widget.style.height = "300px"; };
new ResizeObserver(() => requestAnimationFrame(grow)).observe(widget);
}</script>"""  # has its height a frame after it is shown first
COLAB = "Upload this notebook, as the README describes."
README = """# A small course

It holds two lectures.

More.

## Two commands

Type `make lab`, and see [elsewhere](docs/ELSEWHERE.md).

## Lectures

| lecture | exercise |
|---|---|
| [Sums](notebooks/01_sums.ipynb) | [100 points](exercises/01_sums/01_sums.ipynb) |

### In Colab

Upload it to [Colab](https://colab.research.google.com).

## Making it yours

Fork it.
"""
GLOSSARY = """# Glossary

- **later** (in time): Not before.
- **peel and pith**: What is around it. [01, part 2](../notebooks/01_sums.ipynb)
- **marmalade** (also: jam, MARM): Of *oranges*. [01, part 2](../notebooks/01_sums.ipynb)
- **task**: What is to be done. [02, part 1](../notebooks/02_vit.ipynb)
"""
PAGES = [
    "index.html",
    "run.html",
    "claims.html",
    "lectures/01_sums.html",
    "lectures/02_vit.html",
    "exercises/01_sums.html",
    "docs/glossary.html",
    "package/text.html",
    "_modules/coursekit/text/vocab.html",
    "search.html?q=marmalade",
]


def output(**data):
    return nbformat.v4.new_output("display_data", {kind.replace("_", "/"): value for kind, value in data.items()})


def printed(text: str):
    return nbformat.v4.new_output("stream", text=text)


def chart() -> str:
    fig, ax = plt.subplots(figsize=(4, 3))
    ax.plot([1, 3, 2])
    ax.set(title='What it "shows"', facecolor="none")
    return figure_html(fig)


def figure() -> str:
    file = io.BytesIO()
    fig, ax = plt.subplots(figsize=(4, 3))
    ax.plot([1, 3, 2])
    fig.savefig(file)
    return base64.b64encode(file.getvalue()).decode()


def lecture(title: str, cells: list[tuple[str, str, str, list]]):
    """A notebook of (id, slide type, source, outputs); cells without outputs are text."""
    notebook = nbformat.v4.new_notebook(metadata={"language_info": {"name": "python"}})
    first = ("title", "slide", f"# {title}\n\nAbout 85 minutes.\n\n*Colab:* upload it.", [])
    for name, kind, source, outputs in [first, *cells]:
        new = nbformat.v4.new_code_cell if outputs else nbformat.v4.new_markdown_cell
        cell = new(source, id=name, metadata={"slideshow": {"slide_type": kind}})
        if outputs:
            cell.outputs, cell.execution_count = outputs, 1
        notebook.cells.append(cell)
    return notebook


def write_course(root: Path) -> None:
    weights = np.random.default_rng(0).random((3, 4))
    widget = Alignment("abcd", "xyz", weights / weights.sum(axis=1, keepdims=True))
    source = '<a href="../coursekit/text/vocab.py">code</a>'
    sums = lecture(
        "01 · Sums: a formula",
        [
            ("objectives", "slide", "## Aims\n\n1. Add *two* numbers.\n2. More.", []),
            ("formula", "slide", "## A formula\n\nWith $a_1^2$:\n\n$$\\sum_s \\ln a_s = \\frac{1}{2}$$", []),
            ("hint", "fragment", "Marmalade appears later.", []),
            ("plot", "subslide", "plot()", [output(image_png=figure())]),
            ("add", "-", "claim('two and two', 2 + 2, at_least=3)", [printed("✓ two and two: 4\n")]),
            ("claims", "slide", "claims()", [output(text_html=Claims(CLAIMS)._repr_html_())]),
            ("exercises", "slide", f"{COLAB} Graded: `exercises/01_sums`. Not there: `exercises/09_none`.", []),
        ],
    )
    seeded = [{"name": CLAIMS[0]["name"], "at_least": 3.5, "values": [4.0, 4.25, 3.75], "again": 4.0}]
    (root / "notebooks").mkdir()
    (root / "notebooks" / "seeds.json").write_text(json.dumps({"01_sums": seeded}), encoding="utf-8")
    live = output(text_html=widget._repr_html_())
    live.data[site.LIVE] = {"model_id": "gone", "version_major": 2, "version_minor": 0}
    looks = lecture(
        "02 · Looks",
        [
            ("widget", "slide", "Alignment(...)", [live, output(text_html=source)]),
            ("chart", "skip", "draw()  # a figure", [output(text_html=chart())]),
        ],
    )
    looks.cells[1].metadata["jupyter"] = {"source_hidden": True}
    (root / "README.md").write_text(README, encoding="utf-8")
    (root / "docs").mkdir()
    see = "[sums](../notebooks/01_sums.ipynb), [task](../exercises/01_sums/01_sums.ipynb), [more](other.md#a-part), "
    see += "[gone](../nowhere.md), [above](../README.md), [a paper](https://arxiv.org/abs/1706.03762), "
    see += "[guide](../coursekit/grading/README.md)"
    (root / "docs" / "plan.md").write_text(f"# The plan\n\nSee {see}.\n", encoding="utf-8")
    (root / "coursekit" / "grading").mkdir(parents=True)
    (root / "coursekit" / "grading" / "README.md").write_text("# The guide\n\nFrom [the plan](../../docs/plan.md).\n")
    (root / "docs" / "other.md").write_text("# Other\n\n## A part\n\nIts vocab.\n", encoding="utf-8")
    (root / "docs" / "glossary.md").write_text(GLOSSARY, encoding="utf-8")
    (root / "exercises" / "01_sums").mkdir(parents=True)
    task = lecture(
        "Exercise 01 · Sums",
        [("part", "-", f"Lecture 01 comes first. Write $f(x)$ in `f`. {COLAB}\n\n|  | x |\n|---|---|\n| f | 1 |", [])],
    )
    nbformat.write(task, root / "exercises" / "01_sums" / "01_sums.ipynb")
    for name, notebook in (("01_sums", sums), ("02_vit", looks)):
        folder = root / "build" / name
        folder.mkdir(parents=True)
        nbformat.write(notebook, folder / "notebook.ipynb")
        (folder / "claims.json").write_text(json.dumps(CLAIMS if name == "01_sums" else []), encoding="utf-8")
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs = []
        nbformat.write(notebook, root / "notebooks" / f"{name}.ipynb")


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A course with two executed lectures and an exercise; ``said`` is what building its site had to say."""
    root = tmp_path_factory.mktemp("course")
    write_course(root)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        patch.setattr(site, "ROOMS", ("text",))
        patch.setattr(site, "modules", lambda room: ["coursekit.text.vocab"])
        drawn = site.drawing("07_vit")
        patch.setattr(site, "drawing", lambda stem: drawn if stem == "02_vit" else "")
        said = []
        site.build(root / "build", root / "build" / "site", said.append)
        for path in lectures.lectures():
            decks.slides(path, root / "build", root / "build" / "slides")
    assert said == []
    write_talk(root)
    decks.slides(root / "talk" / "03_talk.ipynb", root / "build", root / "build" / "slides")
    return root


def write_talk(root: Path) -> None:
    """A lecture for its slides: questions, two widgets, and more than a screen holds."""
    curves = [Curves({"a": [{"step": 1, "loss": 1.0}]}, title=title)._repr_html_() for title in ("one", "two")]
    curves[0] += "<style>@media (max-width:520px) { .small { color:red } }</style>"
    lines = "\n\n".join(f"Line {i}." for i in range(60))
    answer = "<details><summary>Answer</summary>\n\nBecause.\n\n</details>"
    reasons = "\n\n".join(f"Reason {i}." for i in range(20))
    rows = "\n".join(f"| row {i} | x |" for i in range(50))
    items = "\n".join(f"{i + 1}. item {i}" for i in range(60))
    code = "\n".join(f"line_{i} = {i}" + "\n" * (i == 14) for i in range(80))  # a function ends there
    decorated = "\n".join(f'@d\ndef f_{i}():\n    """{i}"""\n    return {i}' for i in range(40))
    loops = "\n".join(
        f"for x in loop_{i}:\n    first(x)\n    second(x)\n    third(x)\n    fourth(x)\n    fifth(x)\n    last(x)"
        for i in range(20)
    )
    leading = "\n\n".join(f"Of part {i} this is so:\n\n- clear" for i in range(30))
    talk = lecture(
        "03 · Talk",
        [
            ("predict-one", "slide", "**Predict.** *How many?*", []),
            ("one", "-", "count()", [output(text_plain="forty-two")]),
            ("one-curves", "-", "curves()", [output(text_html=curves[0])]),
            ("one-answer", "fragment", answer, []),
            ("long", "slide", lines, []),
            ("part-2", "subslide", f"{lines}\n\n**Predict.** *How long?*", []),
            ("two", "-", "draw()", [output(image_png=figure()), output(text_plain="so long")]),
            ("two-answer", "fragment", answer, []),
            ("two-more", "-", "more()", [output(text_html=curves[1])]),
            ("table", "slide", f"| a head of the table | b |\n|---|---|\n{rows}\n\n### A heading\n\n{items}", []),
            ("code", "slide", code, [output(text_plain="done")]),
            ("decorated", "slide", decorated, [output(text_plain="decorated")]),
            ("loops", "slide", loops, [output(text_plain="looped")]),
            ("leading", "slide", leading, []),
            ("wide", "slide", "print(rows)", [printed("\n".join(f"{name:60}{0.5:60}" for name in "abc"))]),
            ("asks", "slide", "**Predict.** *What first?*", []),
            ("answers-and-asks", "subslide", answer.replace("Because", "First") + "\n\n**Predict.** *What then?*", []),
            ("answers", "subslide", answer.replace("Because", "Then"), []),
            ("late", "slide", "\n\n".join(f"Before it {i}." for i in range(8)), []),
            ("late-widget", "-", "late()", [output(text_html=LATE)]),
            ("late-more", "-", "\n\n".join(f"Behind it {i}." for i in range(4)), []),
            ("end", "slide", answer.replace("Because.", reasons), []),
            ("end-2", "subslide", "The end.", []),
        ],
    )
    for folder in ("talk", "build/03_talk"):
        (root / folder).mkdir()
    nbformat.write(talk, root / "talk" / "03_talk.ipynb")
    nbformat.write(talk, root / "build" / "03_talk" / "notebook.ipynb")


@pytest.fixture
def open_page(browser, course):
    """Open a page of a folder in ``build/``; at the end, no other address was asked for and no script complained."""
    pages, contexts = [], []

    def open_page(folder: str, name: str, scheme: str = "light", **options):
        context = browser.new_context(color_scheme=scheme, viewport={"width": 1280, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.outside, page.errors = [], []
        pages.append(page)

        def serve(route):
            address = urlparse(route.request.url)
            file = course / "build" / folder / unquote(address.path).lstrip("/")
            if address.hostname == "course.test" and file.is_file():
                route.fulfill(path=file)
            else:
                page.outside.append(route.request.url)
                route.abort()

        context.route("**/*", serve)
        page.on("pageerror", lambda error: page.errors.append(str(error)))
        page.on("console", lambda said: page.errors.append(said.text) if said.type in ("error", "warning") else None)
        page.goto(f"http://course.test/{name}")
        return page

    yield open_page
    outside, errors = ([found for page in pages for found in getattr(page, kind)] for kind in ("outside", "errors"))
    for context in contexts:
        context.close()
    assert (outside, errors) == ([], [])


def violations(page) -> list[tuple[str, str]]:
    """What axe finds, which may keep someone from using the page."""
    found = Axe().run(page, options={"preload": False}).response["violations"]
    return [(v["id"], v["nodes"][0]["html"]) for v in found]


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_for_everyone(name, open_page):
    """Light, dark and on a phone: accessible, no sideways scrolling, no request, no complaint."""
    page = open_page("site", name)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.wait_for_function(f"document.documentElement.dataset.theme === '{scheme}'")
        page.evaluate("document.getAnimations().forEach((change) => change.finish())")  # colours fade to the new theme
        assert violations(page) == []
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("name", ["01_sums.html", "02_vit.html", "03_talk.html"])
def test_a_slide_is_for_everyone(name, open_page):
    page = open_page("slides", name)
    page.wait_for_function("Reveal.isReady()")
    for number in range(page.evaluate("Reveal.getTotalSlides()")):
        assert (number, violations(page)) == (number, [])
        page.evaluate("Reveal.next(); while (Reveal.availableFragments().next) Reveal.nextFragment();")


def test_a_page_waits_for_its_styles_and_one_small_script_alone(course):
    """Catches the theme's 1.5 MB of icons as a script, and the index of all words on pages that search for none."""
    options, index = "documentation_options.js", "searchindex.js"
    search = {"doctools.js", "sphinx_highlight.js", "sphinx-book-theme.js", "searchtools.js", "language_data.js", index}
    pages = [page for page in (course / "build" / "site").rglob("*.html") if "slides" not in page.parts]
    assert len(pages) > 10
    for page in pages:
        text = page.read_text("utf-8")
        scripts = re.findall(r'<script\b([^>]*) src="([^"?]*)', text)
        assert [file for _, file in scripts if not (page.parent / file).is_file()] == []
        waited = {Path(file).name for how, file in scripts if "defer" not in how}
        assert waited == {options} | (search if page.name == "search.html" else set()), page
        assert 'rel="preload"' not in text
        assert 'matchMedia("(prefers-color-scheme: dark)")' in text, (
            "it is light or dark before the theme's scripts run"
        )
    assert (course / "build" / "site" / "_static" / options).stat().st_size < 1000


def test_the_theme_is_small_and_lacks_nothing_that_a_page_names(course):
    """Every icon has its letter in the font, and every rule that could be of a page stays in the styles."""
    static = course / "build" / "site" / "_static"
    pages = "".join(page.read_text("utf-8") for page in static.parent.rglob("*.html"))
    style = (static / "styles" / "pydata-sphinx-theme.css").read_text("utf-8")
    assert len(style) < 200_000
    fonts = list(static.rglob("*.woff2"))
    assert len(fonts) == 3
    assert max(font.stat().st_size for font in fonts) < 5000
    letters = {letter for font in fonts for letter in TTFont(font).getBestCmap()}
    icons = set(re.findall(r'class="fa[a-z-]* (fa-[\w-]+)', pages))
    assert {"fa-sun", "fa-magnifying-glass", "fa-bars", "fa-download"} <= icons
    for icon in icons:
        assert int(re.search(rf'\.{icon}\b[^{{}}]*{{--fa:"\\(\w+)"', style)[1], 16) in letters
    used = set(re.findall(r'--pst-icon-[\w-]+:"(.)"', style))
    assert len(used) > 5
    assert set(map(ord, used)) <= letters
    theme = Path(importlib.util.find_spec("pydata_sphinx_theme").origin).parent / "theme" / "pydata_sphinx_theme"
    whole = (theme / "static" / "styles" / "pydata-sphinx-theme.css").read_text("utf-8")
    names = set(" ".join(re.findall(r'class="([^"]*)"', pages)).split())
    rules = re.findall(r"[^{}]+{[^{}]*}", whole)
    needed = {rule for rule in rules if set(re.findall(r"\.([A-Za-z][\w-]*)", rule.split("{")[0])) <= names}
    assert len(needed) > 100
    assert needed - set(re.findall(r"[^{}]+{[^{}]*}", style)) == set()


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_code_is_coloured(scheme, open_page):
    """Although names and brackets have lost their elements, and the styles what is of other languages."""
    colour = "x => getComputedStyle(x).color"
    for name, kinds in (("_modules/coursekit/text/vocab", ["k", "sd", "kn", "o"]), ("lectures/02_vit", ["c1"])):
        page = open_page("site", f"{name}.html", scheme)
        plain = page.locator(".highlight pre").first.evaluate(colour)
        assert plain == page.locator(".highlight").first.evaluate(colour)
        for kind in kinds:
            assert page.locator(f".highlight pre .{kind}").first.evaluate(colour) != plain, kind
        for kind in ("n", "p"):
            assert page.locator(f".highlight pre .{kind}").count() == 0
            made = f"pre => {{ pre.insertAdjacentHTML('beforeend', '<i class={kind}></i>'); return pre.lastChild }}"
            span = page.locator(".highlight pre").first.evaluate_handle(made)
            assert span.evaluate(colour) == plain, f"{kind} is no colour of its own"


@pytest.mark.browser
def test_the_front_page_leads_to_every_lecture(open_page):
    page = open_page("site", "index.html")
    assert page.locator("article h1").inner_text().startswith("A small course")
    assert "It holds two lectures." in page.locator("article").inner_text()
    cards = page.locator(".path li")
    assert cards.count() == 2
    first = cards.first
    assert first.locator("p").all_inner_texts() == ["Add two numbers.", "85 minutes · 1 claim · exercise"]
    assert first.locator("img").evaluate("image => image.naturalWidth") > 100
    drawing = cards.nth(1).locator(".picture > svg")
    box = drawing.bounding_box()
    assert box["width"] > 150
    assert box["height"] > 100
    page.emulate_media(color_scheme="dark")
    page.wait_for_function("document.documentElement.dataset.theme === 'dark'")
    backgrounds = page.locator(".path .picture").evaluate_all(
        "all => all.map(x => getComputedStyle(x).backgroundColor)"
    )
    assert backgrounds == ["rgb(255, 255, 255)", "rgba(0, 0, 0, 0)"], "a drawing is not on white in the dark"
    page.evaluate("document.getAnimations().forEach((change) => change.finish())")
    colours = [x.evaluate("x => getComputedStyle(x).color") for x in (drawing, page.locator("article h1 + p").first)]
    assert colours[0] == colours[1], "what is drawn in currentColor is as light as the text"
    first.locator("a.lecture").click()
    page.wait_for_url("**/lectures/01_sums.html")
    page.locator("nav.bd-links").get_by_text("Exercise 01 · Sums").first.click()
    page.wait_for_url("**/exercises/01_sums.html")


def test_a_card_shows_the_drawing_of_its_lecture_or_its_first_figure(tmp_path):
    first, second = figure(), base64.b64encode(b"another").decode()
    cells = [("a", "-", "x", [printed("no figure")]), ("b", "-", "x", [output(image_png=first)])]
    cells.append(("c", "-", "x", [output(image_png=second)]))
    drawn = site.card(Path("07_vit.ipynb"), lecture("07 · ViT", cells), 0, False, tmp_path)
    assert re.search(r'<span class="picture" aria-hidden="true"><svg [^>]*viewBox="0 0 240 150".*</svg></span>', drawn)
    assert "\n" not in drawn
    assert "<img" not in drawn
    assert list(tmp_path.iterdir()) == []
    shown = site.card(Path("13_new.ipynb"), lecture("13 · New", cells), 0, False, tmp_path)
    assert '<span class="picture" aria-hidden="true"><img src="_static/pictures/13_new.png" alt=""></span>' in shown
    assert (tmp_path / "13_new.png").read_bytes() == base64.b64decode(first)
    empty = site.card(Path("14_empty.ipynb"), lecture("14 · Empty", []), 0, False, tmp_path)
    assert '<span class="picture" aria-hidden="true"></span>' in empty


DRAWINGS = sorted((Path(site.__file__).parent / "site_files" / "cards").glob("*.svg"))


def test_every_drawing_is_of_a_lecture():
    there = {path.stem for path in (Path(__file__).parents[2] / "notebooks").glob("*.ipynb")}
    assert DRAWINGS
    assert {path.stem for path in DRAWINGS} <= there


@pytest.mark.parametrize("path", DRAWINGS, ids=lambda path: path.stem)
def test_a_drawing_is_small_and_fits_both_themes(path):
    """The colours of Okabe and Ito that stand out on white and on near-black; the rest is the colour of the text."""
    allowed = {"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#B57700", "#3D9BD8", "#767676", "currentColor", "none"}
    tags = {"svg", "g", "path", "rect", "circle", "text"}
    assert path.stat().st_size < 3000
    root = ElementTree.parse(path).getroot()
    assert root.get("viewBox") == "0 0 240 150"
    for element in root.iter():
        assert element.tag.removeprefix("{http://www.w3.org/2000/svg}") in tags
        assert {element.get(name, "none") for name in ("fill", "stroke")} <= allowed
        assert not {"id", "style", "class", "color"} & set(element.attrib)
        assert float(element.get("font-size", 12)) >= 12


@pytest.mark.browser
def test_the_pages_lead_to_how_it_is_run_and_to_exercises(open_page):
    page = open_page("site", "index.html")
    page.locator("article").get_by_role("link", name="run it yourself", exact=True).click()
    page.wait_for_url("**/run.html")
    text = page.locator("article").inner_text()
    assert "Type make lab, and see elsewhere." in text
    assert "Fork it" not in text
    links = page.locator("article a:not(.headerlink)").evaluate_all("all => all.map((a) => a.getAttribute('href'))")
    assert links == ["lectures/01_sums.html", "exercises/01_sums.html", "https://colab.research.google.com"]
    for name in ("exercises/01_sums", "lectures/01_sums"):
        page = open_page("site", f"{name}.html")
        page.locator("article").get_by_role("link", name="Run it yourself").click()
        page.wait_for_url("**/run.html#in-colab")
        assert page.locator("#in-colab").count() == 1
    page = open_page("site", "lectures/01_sums.html")
    assert "exercises/09_none" in page.locator("article").inner_text()
    assert page.locator("article a", has_text="09_none").count() == 0
    page.locator("article a", has_text="exercises/01_sums").click()
    page.wait_for_url("**/exercises/01_sums.html")


@pytest.mark.browser
def test_pages_about_the_course_are_shown_and_their_links_lead_to_pages_of_the_site(open_page):
    page = open_page("site", "index.html")
    page.locator("nav.bd-links").get_by_text("The plan").first.click()
    page.wait_for_url("**/docs/plan.html")
    links = page.locator("article a:not(.headerlink)").evaluate_all("all => all.map((a) => a.getAttribute('href'))")
    assert links == [
        "../lectures/01_sums.html",
        "../exercises/01_sums.html",
        "other.html#a-part",
        "https://arxiv.org/abs/1706.03762",
        "grading.html",
    ]
    assert "gone, above, a paper" in page.locator("article").inner_text()
    page.get_by_role("link", name="guide", exact=True).click()
    page.wait_for_url("**/docs/grading.html")
    page.get_by_role("link", name="the plan", exact=True).click()
    page.wait_for_url("**/docs/plan.html")
    page.goto("http://course.test/exercises/01_sums.html")
    page.get_by_role("link", name="Lecture 01", exact=True).click()
    page.wait_for_url("**/lectures/01_sums.html")


def test_the_folder_of_a_published_course_is_cloned(tmp_path, monkeypatch):
    write_course(tmp_path)
    monkeypatch.chdir(tmp_path)
    urls = '[project]\nname = "x"\n[project.urls]\nRepository = "https://github.com/o/r"\n'
    (tmp_path / "pyproject.toml").write_text(urls, encoding="utf-8")
    assert "`git clone https://github.com/o/r`" in site.run_page(README, tmp_path)


@pytest.mark.browser
def test_a_formula_is_not_to_be_scrolled_up_and_down(open_page):
    page = open_page("site", "lectures/01_sums.html")
    line = "<msub><mi>e</mi><mi>s</mi></msub><mo>=</mo><mi>q</mi><mo>·</mo><msub><mi>k</mi><mi>s</mi></msub>"
    hidden = page.locator(".formula").first.evaluate(
        """(formula, line) => {
          formula.innerHTML = `<math display="block"><mrow>${line}</mrow></math>`;
          return formula.scrollHeight - formula.clientHeight;
        }""",
        line,
    )
    assert hidden == 0


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", ["claims.html", "lectures/01_sums.html"])
def test_the_columns_of_the_claims_stand_apart(name, width, open_page):
    page = open_page("site", name)
    page.set_viewport_size({"width": width, "height": 800})
    gaps = page.locator("article table").first.evaluate("""table => [...table.rows].flatMap((row) => {
      const texts = [...row.cells].map((cell) => {
        const range = document.createRange();
        range.selectNodeContents(cell);
        return range.getBoundingClientRect();
      });
      return texts.slice(1).map((text, i) => text.left - texts[i].right);
    })""")
    assert len(gaps) == 6
    assert min(gaps) >= 12


@pytest.mark.browser
def test_formulas_figures_and_claims_are_there(open_page):
    page = open_page("site", "lectures/01_sums.html")
    article = page.locator("article")
    assert "$" not in article.inner_text()
    assert article.locator("math").count() == 2
    formula = article.locator(".formula math")
    assert formula.locator("mfrac").evaluate(
        "f => f.firstElementChild.getBoundingClientRect().bottom"
    ) <= formula.locator("mfrac").evaluate("f => f.lastElementChild.getBoundingClientRect().top + 2"), (
        "the fraction is set, one above the other"
    )
    assert article.locator(".cell_output img").evaluate("image => image.naturalWidth") > 100
    assert "✓ holds" in article.locator("table").inner_text()
    page = open_page("site", "claims.html")
    assert "two and two" in page.locator("article").inner_text()
    page.get_by_text("On 3 seeds").click()
    assert page.locator("details td").all_inner_texts() == ["≥ 3.5", "4", "4.25", "3.75"]


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_widget_answers_and_follows_the_theme(scheme, open_page):
    page = open_page("site", "lectures/02_vit.html", scheme)
    widget = page.locator(".ck")
    before = widget.locator("[aria-live]").inner_text()
    widget.get_by_role("button", name="Next step").click()
    assert widget.locator("[aria-live]").inner_text() != before
    assert (widget.get_attribute("data-dark") is not None) == (scheme == "dark")
    buttons = widget.locator(".row").first.locator("button").evaluate_all("all => all.map(b => b.offsetTop)")
    assert len(buttons) > 1
    assert len(set(buttons)) == 1, "its controls stand in one row"
    picture = """box => { const {padding, filter, backgroundColor} = getComputedStyle(box.appendChild(new Image()));
        return [padding, filter, backgroundColor]; }"""
    assert widget.evaluate(picture) == ["0px", "none", "rgba(0, 0, 0, 0)"], "no frame, in which it would be moved"
    assert page.locator("details").get_by_text("Alignment(...)").is_hidden(), "hidden code is folded"
    page.locator("a", has_text="code").click()
    page.wait_for_url("**/_modules/coursekit/text/vocab.html")


@pytest.mark.browser
def test_a_widget_wakes_when_it_comes_near_also_where_pages_are_files(browser, course):
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    errors, asked = [], []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
    page.on("request", lambda request: asked.append(request.url))
    below = "document.querySelector('article').style.paddingTop = '5000px'"
    page.add_init_script(f"addEventListener('DOMContentLoaded', () => {{ {below} }})")
    page.goto((course / "build" / "site" / "lectures" / "02_vit.html").as_uri())
    page.wait_for_timeout(300)
    assert page.locator("[data-ck]").inner_text().strip(), "its static picture is there"
    assert page.locator(".ck, [data-mounted]").count() == 0
    parts = [url for url in asked if "/parts/" in url and not url.endswith(".svg")]
    assert parts == [], "and its script waits"
    page.locator("[data-ck]").scroll_into_view_if_needed()
    page.locator(".ck [aria-live]").wait_for()
    assert errors == []
    page.close()


@pytest.mark.browser
def test_the_script_of_every_widget_is_a_file_of_its_own_and_no_module(browser, tmp_path):
    page = browser.new_page()
    names = [file.stem for file in (Path(site.__file__).parents[1] / "viz" / "js").glob("*.js")]
    assert len(names) > 20
    for name in names:
        still = [f'<div data-ck="ck-{i}"><p>{i}</p></div>' for i in range(2)]
        scripts = [f'<script type="module">{widgets.source(name)}\nmount({i});</script>' for i in range(2)]
        assert page_weight.with_parts_apart("".join(map("".join, zip(still, scripts))), tmp_path) == "".join(still)
        for i in range(2):
            script = (tmp_path / f"ck-{i}.js").read_text("utf-8")
            assert f"mount({i});" in script
            page.evaluate("script => { new Function(script) }", script)
    page.close()


@pytest.mark.browser
def test_a_figure_is_a_picture_in_the_colours_of_the_page(open_page):
    page = open_page("site", "lectures/02_vit.html")
    for scheme in ("light", "dark", "light"):
        page.emulate_media(color_scheme=scheme)
        page.wait_for_function(f"document.documentElement.dataset.theme === '{scheme}'")
        page.evaluate("document.getAnimations().forEach((change) => change.finish())")
        text = page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--pst-color-text-base')")
        assert text == page_weight.INK[scheme]
        ground = "x => document.body.appendChild(Object.assign(document.createElement('i'), {style: `color:${x}`}))"
        colour = page.evaluate(f"x => getComputedStyle(({ground})(x)).color", page_weight.GROUND[scheme])
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == colour
        picture = page.get_by_role("img", name='What it "shows"')
        assert picture.count() == 1, "one of the two is shown, and read out"
        picture.scroll_into_view_if_needed()
        picture.evaluate("image => image.decode()")
        alone = page.get_by_role("link", name='What it "shows"')
        drawing = alone.evaluate("async (link) => (await fetch(link.href)).text()")
        assert f"background:{page_weight.GROUND[scheme]}" in drawing, "looked at alone, it can be seen too"
        box = picture.bounding_box()
        assert 300 < box["width"] < 500
        assert box["height"] / box["width"] == pytest.approx(
            picture.evaluate("x => x.naturalHeight / x.naturalWidth"), 0.02
        )
        background, ink = brightness(picture)
        light = (background, ink) if scheme == "light" else (ink, background)
        assert light[0] > 0.7
        assert light[1] < 0.3
    page.emulate_media(media="print")
    assert page.get_by_role("img", name='What it "shows"').count() == 1


def test_a_lecture_that_is_downloaded_holds_its_figures_and_widgets(course):
    text = (course / "build" / "site" / "_sources" / "lectures" / "02_vit.ipynb").read_text("utf-8")
    assert text.count("<svg xmlns") == 1
    assert text.count('<script type=\\"module\\">') == 1
    assert "_static" not in text


class Connected:
    """What ``setup`` connects to Sphinx's events."""

    def __init__(self):
        self.events = {}

    def add_html_math_renderer(self, *options):
        pass

    def connect(self, event, handler, **options):
        self.events[event] = handler


class Pair(NamedTuple):
    first: int

    def total(self):
        return self.first


@pytest.fixture
def events():
    app = Connected()
    site.setup(app)
    return app.events


def test_the_fields_of_a_tuple_stand_once_in_the_reference(events):
    """In its docstring; Python's own "Alias for field number 0" would repeat each."""
    skips = {
        name: events["autodoc-skip-member"](None, "class", name, vars(Pair)[name], False, None)
        for name in ("first", "total")
    }
    assert skips == {"first": True, "total": None}, "None: as Sphinx decides"


def test_a_parameter_that_is_a_letter_is_no_list(events):
    """``d_model: D.``: docutils takes a letter and a full stop for the fourth item of a list."""
    lines = [":param d_model: D.", ":param T: T tokens.", "A. Author wrote it."]
    events["autodoc-process-docstring"](None, "class", "x", None, None, lines)
    assert lines == [":param d_model: D\\.", ":param T: T tokens.", "A. Author wrote it."]


def test_a_lecture_on_a_model_offers_it_in_one_file(course):
    pages = course / "build" / "site"
    assert (pages / "_static" / "vit_single.py").read_text("utf-8") == single("vit")
    assert (pages / "_static" / "vit_plain.py").read_text("utf-8") == single("vit", plain=True)
    offered = [page.stem for page in pages.glob("lectures/*.html") if "_single.py" in page.read_text("utf-8")]
    assert offered == ["02_vit"]
    for kind in ("single", "plain"):
        assert f'href="../_static/vit_{kind}.py"' in (pages / "lectures" / "02_vit.html").read_text("utf-8")


def test_folds_are_called_by_what_is_in_them(course):
    pages = "".join(page.read_text("utf-8") for page in (course / "build" / "site" / "lectures").glob("*.html"))
    told = set(re.findall(r'<p class="collapsed admonition-title">Show the ([^<]*)<', pages))
    assert told == {"code"}


@pytest.mark.browser
def test_an_executed_lecture_leads_to_its_slides(open_page, course):
    pages = course / "build" / "site"
    linked = {page.stem for page in pages.glob("lectures/*.html") if "/slides/" in page.read_text("utf-8")}
    assert linked == {page.stem for page in pages.glob("slides/*.html")} == {"01_sums", "02_vit"}
    page = open_page("site", "lectures/01_sums.html")
    page.get_by_role("link", name="This lecture as slides").click()
    page.wait_for_url("**/slides/01_sums.html")
    page.wait_for_function("window.Reveal?.isReady()")
    title = page.locator("section.present section.present")
    assert title.locator("h1").inner_text().startswith("01 · Sums")
    assert "Colab" not in title.inner_text()
    title.get_by_role("link", name="This lecture as a page").click()
    page.wait_for_url("**/lectures/01_sums.html")


@pytest.mark.browser
def test_a_claim_leads_to_its_cell_and_back(open_page):
    page = open_page("site", "claims.html")
    page.get_by_role("link", name="two and two").click()
    page.wait_for_url("**/lectures/01_sums.html#claim-0")
    behind = "x => x.closest('.claimed').nextElementSibling.innerText"
    assert "claim('two and two'" in page.locator("#claim-0").evaluate(behind)
    page.get_by_role("link", name="claim", exact=True).click()
    page.wait_for_url("**#verdict-0")
    row = page.locator("tr:has(a:target)")
    assert row.locator("td").first.inner_text() == "two and two"
    assert row.evaluate("x => x.getBoundingClientRect().top") > 0, "below the bar at the top"
    assert page.locator("table a", has_text="two and two").get_attribute("href") == "#claim-0"


@pytest.mark.browser
def test_a_word_of_the_glossary_is_explained_once_and_not_before_its_lecture(open_page):
    page = open_page("site", "lectures/01_sums.html")
    assert page.locator("a.term").all_inner_texts() == ["Marmalade"]
    tip = page.locator("#term-tip")
    assert tip.is_hidden()
    page.locator("a.term").focus()
    assert tip.inner_text() == "Of oranges. 01, part 2"
    page.keyboard.press("Escape")
    assert tip.is_hidden()
    page.locator("a.term").hover()
    assert tip.is_visible()
    page.locator("a.term").click()
    page.wait_for_url("**/docs/glossary.html#term-marmalade")
    assert page.locator("#term-marmalade").evaluate("x => x.parentElement.innerText").startswith("marmalade")


@pytest.mark.browser
def test_what_was_worked_through_is_remembered(open_page):
    page = open_page("site", "lectures/01_sums.html")
    page.get_by_label("I have worked through this lecture").check()
    page.goto("http://course.test/index.html")
    assert "1 of 2 lectures" in page.locator("article").inner_text()
    assert page.locator(".path .place").all_inner_texts() == ["01 ✓", "02"]
    page.goto("http://course.test/lectures/01_sums.html")
    page.get_by_label("I have worked through this lecture").uncheck()
    page.goto("http://course.test/index.html")
    assert "worked through" not in page.locator("article").inner_text()


@pytest.mark.browser
@pytest.mark.parametrize(
    ("printed", "columns"),
    [
        ("a     0.5   12\nbb    0.7    3", True),
        ("unigram  'This method returns what'\nbigram   'This method returns'", False),
        ("a     0.5   12\na sentence", False),
    ],
)
def test_what_is_printed_in_columns_is_not_wrapped_and_names_with_sentences_are(printed, columns, open_page):
    page = open_page("site", "lectures/01_sums.html")
    assert page.evaluate("(text) => inColumns(text)", printed) == columns


@pytest.mark.browser
def test_search_finds_a_word(open_page):
    page = open_page("site", "search.html?q=marmalade")
    found = page.locator("#search-results li a")
    found.first.wait_for()
    assert sorted(found.all_inner_texts()) == ["01 · Sums: a formula", "Glossary"]


@pytest.mark.browser
def test_what_is_found_opens_at_its_first_match_and_no_button_hides_what_is_not_there(open_page):
    page = open_page("site", "search.html?q=marmalade")
    page.set_viewport_size({"width": 1280, "height": 300})
    page.locator("#search-results li a", has_text="01 · Sums").click()
    page.locator("span.highlighted").first.wait_for()
    assert page.locator(".highlight-link").count() == page.locator(".highlight-link:visible").count() > 0
    page.wait_for_function("""() => {
      const {top, bottom} = document.querySelector("span.highlighted").getBoundingClientRect();
      return top > 0 && bottom < innerHeight && scrollY > 0;
    }""")
    page.evaluate("localStorage.setItem('sphinx_highlight_terms', 'search')")
    page.goto("http://course.test/lectures/01_sums.html")
    page.wait_for_function("!document.querySelector('.highlight-link .highlighted')")
    assert page.locator(".highlight-link").last.inner_text() == "Hide Search Matches"
    page.evaluate("localStorage.setItem('sphinx_highlight_terms', 'nowhere')")
    page.goto("http://course.test/lectures/01_sums.html")
    page.wait_for_timeout(100)
    assert page.locator(".highlight-link:visible").count() == 0


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_the_search_marks_can_be_read(scheme, open_page):
    page = open_page("site", "search.html?q=sums", scheme)
    page.locator("#search-results a .highlighted").first.wait_for()
    assert violations(page) == []


@pytest.mark.browser
def test_single_letters_of_what_is_searched_are_marked_nowhere(open_page):
    page = open_page("site", "search.html?q=k-marmalade")
    page.locator("#search-results li a").first.wait_for()
    assert page.evaluate("localStorage.getItem('sphinx_highlight_terms')") == "marmalade"


@pytest.mark.browser
def test_the_search_shows_the_text_of_a_page_and_not_its_menus(open_page):
    page = open_page("site", "search.html?q=sums")  # in titles, too, whose first place is in a menu
    excerpts = page.locator("#search-results p.context")
    excerpts.nth(1).wait_for()
    assert any("Add two numbers" in one for one in excerpts.all_inner_texts())
    assert not [one for one in excerpts.all_inner_texts() if re.search(r"Contents|Light|Download", one)]


@pytest.mark.browser
@pytest.mark.parametrize(
    ("asked", "says", "leads"),
    [
        ("Jam", "The glossary says of it: Of oranges.", ["docs/glossary.html#term-marmalade"]),
        ("pith", "The glossary says of it: What is around it.", ["docs/glossary.html#term-peel-and-pith"]),
        ("Marmalades", "The glossary says of it: Of oranges.", ["docs/glossary.html#term-marmalade"]),
        ("marmelad", "Did you mean marmalade? The glossary says of that: Of oranges.",
         ["?q=marmalade", "docs/glossary.html#term-marmalade"]),
        ("τ", "What a letter means in each lecture stands in Notation.", ["docs/notation.html"]),
        ("nothing", None, []),
        ("ham", None, []),  # of three letters one is not a slip
    ],
)  # fmt: skip
def test_the_glossary_stands_above_what_the_search_finds(asked, says, leads, open_page):
    page = open_page("site", f"search.html?q={asked}")
    page.locator("#search-results .search-summary").wait_for()
    assert page.locator("#search-results").evaluate("found => found.previousElementSibling?.matches('p')") is bool(says)
    if says is None:
        return
    said = page.locator("p:has(+ #search-results)")
    assert said.inner_text().startswith(says)
    links = said.get_by_role("link").evaluate_all("all => all.map((link) => link.getAttribute('href'))")
    assert links == leads


@pytest.mark.browser
def test_pages_are_found_before_the_names_of_modules(open_page):
    page = open_page("site", "search.html?q=vocab")
    found = page.locator("#search-results li")
    found.nth(1).wait_for()
    kinds = found.evaluate_all("all => all.map((one) => one.classList.contains('kind-object'))")
    assert kinds == sorted(kinds)
    assert True in kinds
    assert False in kinds
    page = open_page("site", "search.html?q=gibberish")
    page.locator("#search-results .search-summary", has_text="No page has all of these words.").wait_for()
    assert page.locator(".search-summary a").count() == 0
    page = open_page("site", "search.html?q=vocab+gibberish")
    offer = "No page has all of these words. Search for one of them: vocab, gibberish."
    said = page.locator(".search-summary", has_text=offer)
    said.get_by_role("link", name="vocab").click()
    page.wait_for_url("**/search.html?q=vocab")
    page.locator("#search-results li").first.wait_for()
    page = open_page("site", "search.html?q=vocab+marmelad")
    page.locator(".search-summary", has_text="Did you mean vocab marmalade? Search for one").wait_for()


@pytest.mark.browser
def test_slides_go_on_by_key_and_fragments_appear(open_page):
    page = open_page("slides", "01_sums.html")
    page.wait_for_function("Reveal.isReady()")
    shown = page.locator("section.present section.present, section.present:not(.stack)")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert "A formula" in shown.last.inner_text()
    assert shown.last.locator("math mfrac").is_visible()
    hint = page.locator(".fragment", has_text="Marmalade")
    assert "visible" not in hint.get_attribute("class")
    page.keyboard.press("ArrowRight")
    assert "visible" in hint.get_attribute("class")
    page.keyboard.press("ArrowDown")
    assert shown.last.locator("img").evaluate("image => image.naturalWidth") > 100
    page.keyboard.press("ArrowRight")
    assert "two and two" in shown.last.inner_text()
    assert page.locator(".slide-number").inner_text().split() == ["5", "/", "6"]
    zooms = "all => all.map((part) => part.style.zoom)"
    assert not any(shown.last.locator(":scope > *").evaluate_all(zooms)), "what fits is as large as it is, a table too"


SLIDE = """() => {
  const slide = Reveal.getCurrentSlide();
  const fragments = [...slide.querySelectorAll(".fragment")];
  return {
    number: Reveal.getSlidePastCount() + 1, of: Reveal.getTotalSlides(),
    screen: slide.clientHeight, whole: slide.scrollHeight,
    shown: fragments.filter((part) => part.matches(".visible")).length, fragments: fragments.length,
    text: [...slide.querySelectorAll(".jp-Cell")].filter((cell) => cell.checkVisibility({visibilityProperty: true}))
      .map((cell) => cell.innerText).join(" "),
  };
}"""
READY = """Reveal.isReady() && document.querySelectorAll('.ck').length === 3
  && (document.querySelector('section[inert]') || Reveal.isScrollView())"""  # all is laid out


def walk(page, key: str) -> list[dict]:
    """What is seen from here on, with the key pressed until nothing changes."""
    page.add_style_tag(content=".reveal .fragment { transition: none !important }")  # they fade in otherwise
    seen = [page.evaluate(SLIDE)]
    while len(seen) < 100:
        page.keyboard.press(key)
        now = page.evaluate(SLIDE)
        if now == seen[-1]:
            break
        seen.append(now)
    return seen


@pytest.mark.browser
@pytest.mark.parametrize(
    ("key", "other"), [("Space", "Shift+Space"), ("PageDown", "PageUp"), ("ArrowRight", "ArrowLeft")]
)
def test_one_key_shows_everything_once_and_another_one_goes_back(key, other, open_page):
    page = open_page("slides", "03_talk.html")
    page.wait_for_function(READY)
    seen = walk(page, key)
    assert [step["number"] for step in seen] == sorted(step["number"] for step in seen)
    assert {step["number"] for step in seen} == set(range(1, seen[0]["of"] + 1))
    for before, after in pairwise(seen):
        if after["number"] != before["number"]:
            assert before["shown"] == before["fragments"], "every fragment was seen"
            assert after["shown"] == 0
        else:
            assert after["shown"] == before["shown"] + 1
    again = walk(page, other)
    states = [(step["number"], step["shown"]) for step in again]
    assert states == [(step["number"], step["shown"]) for step in seen][::-1]


@pytest.mark.browser
def test_what_is_taller_than_a_slide_goes_on_on_the_next(open_page):
    """Nothing is left out, said twice or out of sight; headings stand above something; lists and tables go on."""
    page = open_page("slides", "03_talk.html")
    page.wait_for_function(READY)
    seen = walk(page, "Space")
    assert [step for step in seen if step["whole"] > step["screen"] + 1] == []
    last = {step["number"]: step["text"] for step in seen}
    text = " ".join(last.values())
    assert [int(n) for n in re.findall(r"Line (\d+)\.", text)] == [*range(60), *range(60)]
    assert re.findall(r"row (\d+)", text) == [str(n) for n in range(50)]
    assert re.findall(r"item (\d+)", text) == [str(n) for n in range(60)]
    assert re.findall(r"line_(\d+)", text) == [str(n) for n in range(80)]
    first = next(one for one in last.values() if "line_0" in one)
    assert re.findall(r"line_(\d+)", first)[-1] == "14", "a listing is cut where a function ends"
    assert re.findall(r"return (\d+)", text) == [str(n) for n in range(40)]
    assert re.findall(r"Of part (\d+)", text) == [str(n) for n in range(30)]
    ends = [one.strip() for one in last.values()]
    assert not [one for one in ends if re.search(r'(@d|\(\):|""")$', one)], "no listing ends where something begins"
    assert all(one.endswith(("last(x)", "looped")) for one in ends if "in loop_" in one), "no statement is cut in two"
    assert sum("in loop_" in one for one in ends) > 1
    assert not [one for one in ends if one.endswith("so:")], "a sentence stands above what it leads to"
    assert text.count("a head of the table") > 1
    assert page.locator("ol").evaluate_all("all => all.map((one) => one.start)")[1] > 10
    assert not any(one.strip().endswith("A heading") for one in last.values())
    parts = page.locator("section[data-part]").evaluate_all("all => all.map((slide) => slide.dataset.part)")
    assert len(parts) > 5, "what goes on has a title above it"
    assert set(parts) == {"03 · Talk"}
    zooms = page.locator(".jp-OutputArea-output:has(.ck)").evaluate_all("all => all.map((one) => +one.style.zoom)")
    assert max(zooms) > 1.2, "a widget is as large as there is room for"


@pytest.mark.browser
def test_a_widget_has_its_time_to_lay_itself_out(open_page):
    """On a busy machine a frame takes long: here a tenth of a second, after which the widget is twice as tall."""
    page = open_page("slides", "03_talk.html")
    page.wait_for_function(READY)
    height = page.evaluate("""async () => {
      const draw = requestAnimationFrame, slide = Reveal.getCurrentSlide();
      window.requestAnimationFrame = (callback) => setTimeout(() => draw(callback), 100);
      const output = `<div class="jp-OutputArea-output"><div class="ck" style="height: 300px"></div></div>`;
      slide.innerHTML = `<div>${output}</div>`;
      const widget = slide.querySelector(".ck");
      new ResizeObserver(() => requestAnimationFrame(() => { widget.style.height = "600px"; })).observe(widget);
      await enlarge(slide);
      await new Promise((done) => setTimeout(done, 500));
      return slide.scrollHeight;
    }""")
    assert height <= 720


@pytest.mark.browser
def test_the_rows_of_a_printed_table_are_whole(open_page):
    page = open_page("slides", "03_talk.html")
    page.wait_for_function(READY)
    fits = """() => {
      const pre = [...document.querySelectorAll(".slides pre")].find((one) => one.textContent.startsWith("a  "));
      const {h, v} = Reveal.getIndices(pre.closest("section"));
      Reveal.slide(h, v);
      pre.style.whiteSpace = "pre";
      return [pre.scrollWidth - pre.clientWidth, parseFloat(getComputedStyle(pre).fontSize)];
    }"""
    beyond, size = page.evaluate(fits)
    assert beyond <= 0
    assert size > 12, "not smaller than it must be"


@pytest.mark.browser
def test_no_lines_stand_alone_at_the_end_of_a_slide_or_at_the_begin_of_one(open_page):
    page = open_page("slides", "03_talk.html")
    page.wait_for_function(READY)
    kept = """(shown) => {
      const pre = document.createElement("pre");
      pre.style.cssText = "font: 20px/30px monospace; padding: 0; position: absolute; top: 0";
      pre.textContent = Array.from({length: 10}, (_, i) => `line ${i}`).join("\\n");
      document.body.append(pre);
      const rest = linesBelow(pre, pre.getBoundingClientRect().top + 30 * shown + 5);
      pre.remove();
      return rest && pre.textContent.trim().split("\\n").length;
    }"""
    assert [page.evaluate(kept, shown) for shown in range(1, 10)] == [None, None, 3, 4, 5, 6, 7, 7, 7]


@pytest.mark.browser
def test_after_a_jump_back_the_next_slides_are_the_next(open_page):
    """reveal.js remembers the place in each part that one has left, and would pass over the slides before it."""
    page = open_page("slides", "03_talk.html")
    page.wait_for_function(READY)
    parts = page.locator(".slides > section").evaluate_all("all => all.map((part) => part.children.length)")
    far = next(i for i, n in enumerate(parts) if i > 1 and n > 2)
    page.evaluate(f"Reveal.slide({far}, 2); Reveal.slide({far - 1}, 0, 99)")
    seen = walk(page, "Space")
    assert [step["number"] for step in seen] == sorted(step["number"] for step in seen)
    assert {step["number"] for step in seen} == set(range(seen[0]["number"], seen[0]["of"] + 1))


@pytest.mark.browser
def test_an_opened_answer_fits_too_and_is_in_the_notes(open_page):
    page = open_page("slides", "03_talk.html")
    page.wait_for_function(READY)
    place = """() => {
      const slide = [...document.querySelectorAll(".slides details")].at(-1).closest("section");
      const {h, v} = Reveal.getIndices(slide);
      Reveal.slide(h, v, 99);
    }"""
    page.evaluate(place)
    page.wait_for_function("Reveal.getCurrentSlide().querySelector('details').open")  # it has a slide of its own
    page.wait_for_timeout(100)
    step = page.evaluate(SLIDE)
    assert "Reason 19." in step["text"]
    assert step["whole"] <= step["screen"] + 1
    notes = page.evaluate("Reveal.getCurrentSlide().querySelector('aside.notes').textContent")
    assert "Reason 19." in notes
    assert "Answer" not in notes
    assert not page.locator("details.answer").first.evaluate("answer => answer.open"), "there is room for it there"
    slides = "[...document.querySelectorAll('.slides > section > section')]"
    first = f"{slides}.find((slide) => /Predict/.test(slide.innerHTML))"
    asking = page.evaluate(f"{first}.querySelector('.notes').innerHTML")
    assert "Because." in asking, "the speaker knows it before"


@pytest.mark.browser
def test_an_opened_answer_makes_its_slide_no_smaller_than_it_must(open_page):
    page = open_page("slides", "03_talk.html")
    page.wait_for_function(READY)
    page.evaluate(
        """() => {
          const answer = document.querySelector(".fragment details.answer"), slide = answer.closest("section");
          const {h, v} = Reveal.getIndices(slide);
          Reveal.slide(h, v, 99);
          const bottom = Math.max(...[...slide.children].map((part) => part.getBoundingClientRect().bottom));
          answer.insertAdjacentHTML("beforeend", `<div style="height: ${780 - bottom}px"></div>`);
        }"""
    )
    page.locator(".present details.answer summary").click()
    page.wait_for_timeout(600)
    zooms = page.evaluate("[...Reveal.getCurrentSlide().children].map((part) => part.style.zoom)")
    assert len(set(zooms)) == 1
    assert 0.75 < float(zooms[0]) < 1
    step = page.evaluate(SLIDE)
    assert step["whole"] <= step["screen"] + 1


@pytest.mark.browser
def test_enter_opens_the_answers_of_a_slide_and_folds_them(open_page):
    page = open_page("slides", "03_talk.html")
    page.wait_for_function(READY)
    answers = page.locator(".present > .present details.answer")
    seen = walk(page, "Space")
    while not answers.count() or answers.first.evaluate("answer => answer.open"):
        page.keyboard.press("Shift+Space")
    here = page.evaluate(SLIDE)["number"]
    for open_now in (True, False, True):
        page.keyboard.press("Enter")
        assert answers.evaluate_all("all => all.map((answer) => answer.open)") == [open_now] * answers.count()
    answers.first.locator("summary").focus()
    page.keyboard.press("Enter")
    assert not answers.first.evaluate("answer => answer.open"), "it folds it once, and not twice"
    assert page.evaluate(SLIDE)["number"] == here
    assert len(seen) > 20


@pytest.mark.browser
def test_enter_opens_code_where_a_slide_has_no_answer(open_page):
    page = open_page("slides", "03_talk.html")
    page.wait_for_function(READY)
    fold = "<details><summary>{}</summary><pre>draw()</pre></details>"
    page.evaluate("html => Reveal.getCurrentSlide().insertAdjacentHTML('beforeend', html)", fold.format("Code"))
    opened = "[...Reveal.getCurrentSlide().querySelectorAll('details')].map((one) => one.open)"
    for one in (True, False):
        page.keyboard.press("Enter")
        assert page.evaluate(opened) == [one]
    answer = fold.format("Answer").replace("<details", "<details class='answer'")
    page.evaluate("html => Reveal.getCurrentSlide().insertAdjacentHTML('beforeend', html)", answer)
    page.keyboard.press("Enter")
    assert page.evaluate(opened) == [False, True]
    page.keyboard.press("c")  # where both are folded, one may want to see the code first
    assert page.evaluate(opened) == [True, True]


@pytest.mark.browser
def test_keys_that_come_while_the_slides_are_laid_out_count(open_page):
    page = open_page("slides", "03_talk.html")
    assert not page.evaluate("Reveal.isReady()")
    page.keyboard.press("End")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    page.wait_for_function(READY)
    page.wait_for_function("Reveal.getSlidePastCount() > 0 || document.querySelector('.fragment.visible')")
    assert page.evaluate("Reveal.getProgress()") < 0.5


@pytest.mark.browser
def test_tab_stays_on_the_slide(open_page):
    page = open_page("slides", "03_talk.html")
    page.wait_for_function(READY)
    outside = """() => {
      const here = document.activeElement, slide = Reveal.getCurrentSlide();
      return here.closest(".slides") && !slide.contains(here) ? here.outerHTML : null;
    }"""
    page.evaluate("Reveal.next()")
    for _ in range(15):
        page.keyboard.press("Tab")
        assert page.evaluate(outside) is None


@pytest.mark.browser
def test_what_is_on_a_slide_keeps_the_shapes_that_it_shares_with_the_slides_beside_it(open_page):
    """Figures of the same size clip by shapes of the same name, and a browser takes the first that it finds."""
    page = open_page("slides", "03_talk.html")
    page.wait_for_function(READY)
    seen = """() => {
      const slides = [...document.querySelectorAll(".slides > section > section")], n = slides.length - 2;
      const drawing = `<svg viewBox="0 0 100 100" style="width: 200px">
        <clipPath id="shared"><rect width="100" height="100"/></clipPath>
        <rect class="clipped" width="100" height="100" clip-path="url(#shared)"/></svg>`;
      for (const slide of slides.slice(n)) slide.insertAdjacentHTML("afterbegin", drawing);
      const {h, v} = Reveal.getIndices(slides.at(-1));
      Reveal.slide(h, v);
      const {left, top, width, height} = slides.at(-1).querySelector(".clipped").getBoundingClientRect();
      return document.elementFromPoint(left + width / 2, top + height / 2)?.classList.contains("clipped");
    }"""
    assert page.evaluate(seen)


@pytest.mark.browser
def test_above_a_slide_without_a_title_a_root_is_a_root(open_page):
    page = open_page("slides", "03_talk.html")
    page.wait_for_function(READY)
    part = """() => {
      const heading = "<h2>By <math><msqrt><mi>d</mi></msqrt></math>?<a>¶</a></h2>";
      const [titled, other] = [heading, "<p>on</p>"].map((html) => {
        const slide = document.createElement("section");
        slide.innerHTML = html;
        return slide;
      });
      head([titled, other]);
      return [other.dataset.part, titled.textContent];
    }"""
    assert page.evaluate(part) == ["By √d?", "By d?¶"]


def divided(page, content: str, word: str) -> list[int | None]:
    """How often ``word`` stands on a slide with this content, and on the next one; None if there is none."""
    return page.evaluate(
        """([content, word]) => {
          const slide = document.createElement("section");
          slide.innerHTML = content;
          document.querySelector(".slides > section").append(slide);
          document.querySelector(".reveal").classList.add("measured");
          for (const one of [slide, slide.parentElement]) one.classList.add("fitting");
          divide(slide);
          const next = slide.nextElementSibling;
          const found = [slide, next].map((one) => one && one.textContent.split(word).length - 1);
          for (const one of [slide, next]) one?.remove();
          return found;
        }""",
        [content, word],
    )


PRE = "<pre style='font: 20px/40px monospace'>ROWS</pre>"


@pytest.mark.browser
@pytest.mark.parametrize(
    ("n", "before", "row", "frame"),
    [
        (
            4,
            600,
            "<tr><td>row</td></tr>",
            "<div><table><thead><tr><th>head</th></tr></thead><tbody>ROWS</tbody></table></div>",
        ),
        (10, 400, "row\n", f"<div>{PRE}</div>"),
        (20, 400, "row\n", f"<div>{PRE}</div>"),  # printed, and a slide holds it when it is drawn smaller
    ],
)
def test_a_small_table_or_a_short_listing_is_not_cut(n, before, row, frame, open_page):
    page = open_page("slides", "03_talk.html")
    page.wait_for_function(READY)
    shown = f'<p>Before.</p><div style="height: {{}}px">&nbsp;</div>{frame}'
    assert divided(page, shown.format(before).replace("ROWS", row * n), "row") == [0, n]
    here, there = divided(page, shown.format(400).replace("ROWS", row * 40), "row")
    assert here > 0 < there, "a long one is"


@pytest.mark.browser
def test_a_listing_that_is_not_short_fills_the_slide_that_it_begins_on(open_page):
    page = open_page("slides", "03_talk.html")
    page.wait_for_function(READY)
    shown = f'<p>Before.</p><div style="height: 300px">&nbsp;</div><div class="highlight">{PRE}</div>'
    here, there = divided(page, shown.replace("ROWS", "row\n" * 20), "row")
    assert here > 0 < there


@pytest.mark.browser
@pytest.mark.parametrize(("kind", "places"), [("ck", [0, 1]), ("chart", [1, None])])
def test_a_widget_goes_on_a_slide_of_its_own_rather_than_below_code_in_small(kind, places, open_page):
    page = open_page("slides", "03_talk.html")
    page.wait_for_function(READY)
    code = '<div class="jp-InputArea" style="height: 300px">Code.</div>'
    shown = f'<div class="jp-OutputArea-output"><div class="{kind}" style="height: 560px">shown</div></div>'
    assert divided(page, f"<div class='jp-Cell'>{code}{shown}</div>", "shown") == places


@pytest.mark.browser
@pytest.mark.parametrize(
    ("above", "output", "code"),
    [(300, 250, [0, 1]), (80, 450, [1, 0]), (300, 600, [1, 0])],
    ids=["together", "little would be left", "too tall together"],
)
def test_code_moves_on_with_its_output(above, output, code, open_page):
    page = open_page("slides", "03_talk.html")
    page.wait_for_function(READY)
    cell = f"<div style='height: 200px'>Code</div><div><img style='height: {output}px'></div>"
    shown = (
        f"<p>Before.</p><div style='height: {above}px'>&nbsp;</div><div class='jp-CodeCell'>{cell}</div><p>After.</p>"
    )
    assert divided(page, shown, "Code") == code


@pytest.mark.browser
def test_a_widget_that_grows_is_smaller_and_can_be_scrolled(open_page):
    """Only the one on the slide that is shown; where not even half its size is enough, one can scroll."""
    page = open_page("slides", "03_talk.html")
    page.wait_for_function(READY)
    page.evaluate("""() => {
      const slide = [...document.querySelectorAll(".slides > section > section")].at(-1);
      slide.insertAdjacentHTML("beforeend", "<div class='grown'>A widget</div>");
      const {h, v} = Reveal.getIndices(slide);
      Reveal.slide(h, v);
    }""")
    page.evaluate("Reveal.prev(); Reveal.next()")  # what is on it now is watched
    grown = page.locator(".grown")
    slide = "(() => { const s = Reveal.getCurrentSlide(); return [s.scrollHeight <= 720, s.style.overflowY]; })()"
    for height, fits in ((900, [True, ""]), (3000, [False, "auto"])):
        grown.evaluate("(one, height) => { one.style.height = `${height}px`; }", height)
        page.wait_for_function(f"fits => JSON.stringify({slide}) === JSON.stringify(fits)", arg=fits)
    assert float(grown.evaluate("one => one.style.zoom")) < 0.6
    grown.evaluate("one => { one.style.height = '200px'; }")
    page.wait_for_function("!document.querySelector('.grown').style.zoom")


@pytest.mark.browser
def test_a_frame_with_a_script_alone_does_not_begin_a_slide(open_page):
    """What comes behind it would wait for a second key."""
    page = open_page("slides", "03_talk.html")
    page.wait_for_function(READY)
    script = "<div style='height: 60px'><script>1</script></div>"
    widget = f"<div class='jp-Cell'><div style='height: 690px'>Widget</div>{script}</div>"
    behind = page.evaluate(
        """(content) => {
          const slide = document.createElement("section");
          slide.innerHTML = content;
          document.querySelector(".slides > section").append(slide);
          document.querySelector(".reveal").classList.add("measured");
          for (const one of [slide, slide.parentElement]) one.classList.add("fitting");
          divide(slide);
          return [slide.querySelectorAll("script").length, slide.nextElementSibling.innerHTML];
        }""",
        f"<div class='fragment'>{widget}</div><div class='fragment'><p style='height: 300px'>Behind.</p></div>",
    )
    assert behind == [1, '<div class=""><p style="height: 300px">Behind.</p></div>']


@pytest.mark.browser
def test_after_a_click_on_a_control_the_keys_turn_pages(open_page):
    page = open_page("slides", "03_talk.html")
    page.wait_for_function(READY)
    page.evaluate("""() => Reveal.getCurrentSlide().insertAdjacentHTML("beforeend",
      "<label><input type=checkbox> mask</label><input type=range style='width: 200px'>")""")
    box = page.get_by_role("checkbox")
    page.get_by_text("mask").click()
    assert box.is_checked()
    page.keyboard.press("PageDown")
    assert page.evaluate(SLIDE)["number"] == 2
    page.keyboard.press("PageUp")
    box.focus()
    page.keyboard.press("Space")  # of the keyboard, which stays where it is
    assert not box.is_checked()
    assert box.evaluate("box => document.activeElement === box")


@pytest.mark.browser
def test_a_finger_that_drags_a_slider_turns_no_page(open_page):
    page = open_page("slides", "03_talk.html", has_touch=True)
    page.wait_for_function(READY)
    page.evaluate("""() => Reveal.getCurrentSlide().insertAdjacentHTML("beforeend",
      "<input type=range style='width: 400px'><p class=aside>Text.</p>")""")
    touch = page.context.new_cdp_session(page)
    for place, number in ((page.get_by_role("slider"), 1), (page.locator(".aside"), 2)):
        frame = place.bounding_box()
        x, y = frame["x"] + 200, frame["y"] + frame["height"] / 2
        touch.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": x, "y": y}]})
        for step in range(1, 9):
            points = [{"x": x - 20 * step, "y": y}]
            touch.send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": points})
        touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
        page.wait_for_timeout(100)
        assert page.evaluate(SLIDE)["number"] == number


@pytest.mark.browser
@pytest.mark.parametrize(
    "frame", ["{}", "<div>{}</div>", "<div class='fragment'>{}</div>"], ids=["none", "a cut slide's", "a fragment's"]
)
def test_only_one_thing_is_drawn_much_smaller_rather_than_cut(frame, open_page):
    page = open_page("slides", "03_talk.html")
    page.wait_for_function(READY)
    cell = "<div class='jp-Cell'><div class='jp-RenderedHTML' style='height: {0}px'>{0}</div></div>"
    assert divided(page, frame.format(cell.format(300) + cell.format(560)), "560") == [0, 1]
    assert divided(page, frame.format(cell.format(860)), "860") == [1, None]


@pytest.mark.browser
def test_folded_code_stands_with_the_figure_that_it_draws(open_page):
    page = open_page("slides", "03_talk.html")
    page.wait_for_function(READY)
    cell = "<details><summary>Code</summary><pre>draw()</pre></details><div><img style='height: 500px'></div>"
    shown = f"<p>Before.</p><div style='height: {{}}px'>&nbsp;</div><div>{cell}</div>"
    assert divided(page, shown.format(400), "Code") == [0, 1]
    assert divided(page, shown.format(10), "Code") == [1, None]


@pytest.mark.browser
def test_a_slide_that_answers_and_asks_has_both_answers_in_its_notes(open_page):
    page = open_page("slides", "03_talk.html")
    page.wait_for_function(READY)
    notes = {
        asked: page.locator(".slides section:not(:has(section))", has_text=asked).locator(".notes").all_text_contents()
        for asked in ("What first?", "What then?")
    }
    assert ["First." in text for text in notes["What first?"]] == [True]
    assert not any("Then." in text for text in notes["What first?"])
    assert sum("Then." in text for text in notes["What then?"]) == 1


@pytest.mark.browser
def test_a_question_is_seen_before_its_answer(open_page):
    page = open_page("slides", "03_talk.html")
    page.wait_for_function(READY)
    seen = [step["text"] for step in walk(page, "Space")]
    first = [text for text in seen if "How many?" in text]
    assert ["forty-two" in text for text in first] == [False, True, True, True]
    assert ["Answer" in text for text in first] == [False, False, False, True]
    asked = next(i for i, text in enumerate(seen) if "How long?" in text)
    assert "so long" not in seen[asked]


@pytest.mark.browser
def test_slides_are_the_same_in_a_narrow_window(open_page):
    """The speaker's small views are such. A widget that goes on on the next slide takes its styles along."""
    page = open_page("slides", "03_talk.html")
    page.set_viewport_size({"width": 480, "height": 270})
    page.evaluate("sessionStorage.clear()")
    page.reload()
    page.wait_for_function(READY)
    narrow = page.evaluate("""() => {
      const output = document.querySelector(".ck").closest(".jp-OutputArea-output");
      output.parentElement.append(output);
      const rules = [...document.styleSheets].filter((sheet) => !sheet.href).flatMap((sheet) => [...sheet.cssRules]);
      const own = rules.filter((rule) => rule.cssText.includes(".small"));
      return own.map((rule) => matchMedia(rule.conditionText).matches);
    }""")
    assert narrow == [False]


@pytest.mark.browser
def test_slides_are_the_same_in_a_window_that_draws_no_frames(open_page):
    """As one in the background: there a widget that lays itself out when it is shown first does so later."""
    divided = "[...document.querySelectorAll('.slides > section')].map((part) => part.children.length)"
    page = open_page("slides", "03_talk.html")
    page.wait_for_function(READY)
    drawn = page.evaluate(divided)
    page.add_init_script("window.requestAnimationFrame = () => 0;")
    page.set_viewport_size({"width": 654, "height": 688})
    page.evaluate("sessionStorage.clear()")
    page.reload()
    page.wait_for_function(READY, polling=100)
    assert page.evaluate(divided) == drawn


@pytest.mark.browser
@pytest.mark.parametrize("how", ["click", "tap"])
def test_the_arrows_on_the_screen_turn_pages_and_all_slides_can_be_shown(how, open_page):
    page = open_page("slides", "03_talk.html", has_touch=how == "tap")
    page.wait_for_function(READY)
    getattr(page.locator(".controls .navigate-right"), how)()
    assert page.evaluate(SLIDE)["number"] == 2
    getattr(page.locator(".controls .navigate-left"), how)()
    assert page.evaluate(SLIDE)["number"] == 1
    page.keyboard.press("Escape")
    assert page.evaluate("Reveal.isOverview()")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("Reveal.isOverview()")
    page.keyboard.press("Escape")
    assert not page.evaluate("Reveal.isOverview()")
    assert page.evaluate(SLIDE)["number"] == 2
    page.keyboard.press("Escape")
    page.keyboard.press("Enter")
    assert not page.evaluate("Reveal.isOverview()")
    page.keyboard.press("Escape")
    page.keyboard.press("Space")
    assert not page.evaluate("Reveal.isOverview()")
    here = page.evaluate(SLIDE)
    page.keyboard.press("ArrowLeft")
    assert page.evaluate(SLIDE) != here
    page.keyboard.press("End")
    here = page.evaluate(SLIDE)
    assert here["number"] == here["of"]
    page.keyboard.press("Home")
    assert page.evaluate(SLIDE)["number"] == 1


@pytest.mark.slow
@pytest.mark.browser
def test_the_speakers_view_leads_the_audience_and_shows_the_answer(open_page):
    audience = open_page("slides", "03_talk.html")
    audience.wait_for_function(READY)
    before = audience.evaluate("Reveal.getState()")
    with audience.expect_popup() as opened:
        audience.keyboard.press("s")
    speaker = opened.value
    audience.keyboard.press("ArrowRight")  # before the view is laid out, which then says where it was opened
    audience.evaluate("Reveal.slide(1, 0)")
    begun = audience.evaluate(SLIDE)
    audience.evaluate("state => postMessage(JSON.stringify({method: 'setState', args: [state]}), '*')", before)
    copy = speaker.frame_locator("#current-slide iframe").locator("body")
    copy.locator(".ck").nth(1).wait_for(state="attached")
    speaker.wait_for_function("document.querySelector('#current-slide iframe').contentWindow.Reveal.isReady()")
    speaker.wait_for_timeout(1500)
    assert audience.evaluate(SLIDE) == begun, "nobody is led back"
    names, seen = ("number", "shown"), set()
    for key in ["Space"] * 12 + ["ArrowLeft"] * 4:
        speaker.keyboard.press(key)
        speaker.wait_for_timeout(50)
        deadline = time.monotonic() + 10  # a message has to come and go
        while time.monotonic() < deadline:
            theirs, ours = ([page.evaluate(SLIDE)[name] for name in names] for page in (copy, audience))
            if theirs == ours:
                break
        assert theirs == ours
        seen.add(ours[0])
    assert len(seen) > 3
    speaker.get_by_text("Because.").first.wait_for(state="attached")


def test_what_follows_a_question_waits_up_to_its_answer_or_the_next_slide():
    cells = [
        ("a", "-", "text", []),
        ("part-1", "slide", "## 1 · A part\n\n**Predict.** *What?*", []),
        ("b", "-", "b()", [output(text_plain="b")]),
        ("c", "skip", "c()", [output(text_plain="c")]),
        ("d", "-", "A text.", []),
        ("answer", "fragment", "<details><summary>Answer</summary>\n\nSo.</details>", []),
        ("e", "-", "e()", [output(text_plain="e")]),
        ("predict-two", "fragment", "Well.\n\n**Predict.** *And?*", []),
        ("f", "-", "f()", [output(text_plain="f")]),
        ("g", "subslide", "g()", [output(text_plain="g")]),
        ("h", "-", "h()", [output(text_plain="h")]),
        ("i", "-", "We predict nothing here: Predict", []),
        ("j", "-", "j()", [output(text_plain="j")]),
    ]
    after = decks.question_first(lecture("01 · X", cells))
    kinds = {cell.id: cell.metadata.slideshow.slide_type for cell in after.cells}
    before = {name: kind for name, kind, _, _ in cells}
    assert {name for name, kind in before.items() if kinds[name] != kind} == {"b", "d", "f"}
    assert {kinds[name] for name in "bdf"} == {"fragment"}


def test_what_a_visitor_can_try_first_has_its_heading_or_cell():
    """So that the front page's links lead there."""
    for place in site.TO_TRY:
        page, _, heading = place.partition("#")
        cells = lectures.read_notebook(lectures.home() / "notebooks" / page.replace(".html", ".ipynb")).cells
        found = re.findall("^#{2,3} (.*)", "\n".join(cell.source for cell in cells), re.MULTILINE)
        slugs = {re.sub(r"[^a-z0-9]+", "-", re.sub(r"^\d+ · ", "", one).lower()).strip("-") for one in found}
        widgets = {f"cell-{cell.id}" for cell in cells if ".in_browser(" in cell.source}
        assert heading in slugs | widgets


def test_a_widget_that_answers_in_the_browser_can_be_linked_to():
    cells = [("a", "-", "a()", [output(text_html='{"browser": {"model": "gpt"}}')]), ("b", "-", "b()", [])]
    notebook = lecture("01 · X", cells)
    reading.for_readers(notebook, [])
    at = [cell.id for cell in notebook.cells].index("a")
    assert notebook.cells[at - 1].source == '<div id="cell-a"></div>'
    assert sum("cell-" in cell.source for cell in notebook.cells) == 1


@pytest.mark.parametrize("live", [True, False])
def test_the_front_page_promises_answers_only_where_a_model_gives_them(live):
    page = site.front_page("Course", "About [it](docs/it.md).", ['<a href="lectures/06_gpt.html">'], live)
    assert ("answer in your browser" in page) is live
    assert ('<a href="lectures/06_gpt.html#writing-and-completing-code">write with GPT</a>' in page) is live
    assert "09_dino" not in page, "a page that the site does not have"
    assert "[run it yourself](run.md)" in page
    assert 'description: "About it."' in page, "what a search engine shows, without links"


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 1920])
def test_the_text_has_its_place_before_the_contents_beside_it_are_read(width, open_page):
    """The browser draws a long page before it has read as far as them."""
    page = open_page("site", "lectures/01_sums.html")
    page.set_viewport_size({"width": width, "height": 800})
    text, contents = page.locator("article"), page.locator(".bd-sidebar-secondary")
    whole = text.bounding_box()
    assert contents.bounding_box()["x"] >= whole["x"] + whole["width"]
    contents.evaluate("contents => contents.remove()")
    assert text.bounding_box() == whole


@pytest.mark.browser
def test_the_contents_follow_the_reader(open_page):
    page = open_page("site", "lectures/01_sums.html")
    page.evaluate("""() => {
      const contents = document.querySelector(".bd-sidebar-secondary");
      contents.style.cssText = "height:200px;overflow:auto";
      const entry = Object.assign(document.createElement("a"), {className: "active", textContent: "here"});
      entry.style.cssText = "display:block;margin-top:2000px";
      contents.append(entry);
      dispatchEvent(new Event("scroll")); // on which the theme marks the entry of what is read
    }""")
    page.wait_for_function("""() => {
      const box = document.querySelector(".bd-sidebar-secondary").getBoundingClientRect();
      const entry = [...document.querySelectorAll(".bd-sidebar-secondary a.active")].at(-1).getBoundingClientRect();
      return entry.top >= box.top && entry.bottom <= box.bottom + 1;
    }""")


@pytest.mark.browser
def test_after_a_jump_the_contents_mark_what_is_read(open_page):
    """The theme marks an entry on the way, and goes on doing so."""
    page = open_page("site", "lectures/01_sums.html")
    last = page.locator(".bd-sidebar-secondary a.nav-link").last
    last.evaluate("entry => { entry.classList.add('active'); dispatchEvent(new Event('scroll')); }")
    wrong = "document.querySelector('.bd-sidebar-secondary li:last-child > a.nav-link.active')"
    page.wait_for_function(f"{wrong} === null")


@pytest.mark.browser
def test_on_a_telephone_the_contents_go_away_once_a_place_is_chosen(open_page):
    page = open_page("site", "lectures/01_sums.html")
    page.set_viewport_size({"width": 390, "height": 800})
    page.locator("button.secondary-toggle").first.click()
    link = page.locator("dialog[open] a.nav-link").last
    place = link.get_attribute("href")
    link.click()
    page.wait_for_url(f"**{place}")
    page.wait_for_function("!document.querySelector('dialog[open]')")
    place = place.removeprefix("#")
    page.wait_for_function("(id) => document.getElementById(id).getBoundingClientRect().top < innerHeight", arg=place)


@pytest.mark.browser
def test_a_link_to_a_claim_opens_the_cell_that_makes_it(open_page):
    page = open_page("site", "lectures/01_sums.html")
    fold = "document.querySelector('.claimed').nextElementSibling.querySelector('details')"
    page.evaluate("""() => {
      const cell = document.querySelector(".claimed").nextElementSibling;
      const fold = document.createElement("details");
      fold.append(...cell.childNodes);
      cell.append(fold);
      location.hash = document.querySelector(".claimed span[id]").id;
    }""")
    page.wait_for_function(f"{fold}.open")


@pytest.mark.browser
def test_the_place_of_a_link_stays_in_sight_until_the_reader_moves(open_page):
    page = open_page("site", "lectures/01_sums.html#claim-0")
    top = "Math.round(document.getElementById('claim-0').getBoundingClientRect().top)"
    grow = """() => {
      const tall = document.createElement("div");
      tall.style.height = "2000px";
      document.querySelector("article h1").after(tall);
    }"""
    page.add_style_tag(content="* {overflow-anchor: none}")  # as in Safari, which anchors no scrolling
    page.wait_for_timeout(200)
    page.evaluate(grow)  # as a widget does when it is mounted
    page.wait_for_function(f"0 <= {top} && {top} < innerHeight - 50")
    page.mouse.wheel(0, -300)
    page.wait_for_timeout(300)
    here = page.evaluate("scrollY")
    page.evaluate("document.querySelector('article').append(document.createElement('hr'))")
    page.wait_for_timeout(200)
    assert page.evaluate("scrollY") == here, "it is the reader who turns the page now"


def fill(page) -> str:
    """Text above and below the second part of lecture 01; the place on the screen of a line in it."""
    page.evaluate("""() => {
      const part = [...document.querySelectorAll("article section section")].at(-1);
      const lines = (n) => Array.from({length: n}, (_, i) => `<p>${i} ${"word ".repeat(60)}</p>`).join("");
      part.insertAdjacentHTML("beforebegin", lines(40));
      part.insertAdjacentHTML("beforeend", `${lines(3)}<p id=here>Here.</p>${lines(60)}`);
    }""")
    return "Math.round(document.getElementById('here').getBoundingClientRect().top)"


@pytest.mark.browser
def test_what_one_reads_stays_in_sight_when_a_phone_is_turned(open_page):
    page = open_page("site", "lectures/01_sums.html")
    page.set_viewport_size({"width": 390, "height": 844})
    at = fill(page)
    page.evaluate(f"scrollBy({{top: {at} - 300, behavior: 'instant'}})")
    page.wait_for_timeout(400)  # one reads
    for width, height in ((844, 390), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_timeout(400)
        assert -500 < page.evaluate(at) < 850


@pytest.mark.browser
def test_after_a_reload_one_reads_on_where_one_was(open_page):
    """Though what stands above has another height now, as a widget has that was worked with."""
    page = open_page("site", "lectures/01_sums.html")
    page.add_init_script("""addEventListener("DOMContentLoaded", () => {
      document.querySelector("article h1").insertAdjacentHTML("afterend", "<div id=tall style='height: 4000px'></div>");
      document.querySelector("article").insertAdjacentHTML("beforeend", "<div style='height: 4000px'></div>");
    })""")
    page.reload()
    page.add_style_tag(content="* {overflow-anchor: none}")
    page.evaluate("document.getElementById('tall').style.height = '6000px'")
    at = "Math.round([...document.querySelectorAll('article h2')].at(-1).getBoundingClientRect().top)"
    page.evaluate(f"scrollBy({{top: {at} - 120, behavior: 'instant'}})")
    page.wait_for_timeout(400)
    assert page.evaluate(at) == 120
    page.reload()
    page.wait_for_function(f"Math.abs({at} - 120) < 5")


@pytest.mark.browser
def test_a_figure_is_shown_by_itself_and_escape_leads_back(open_page):
    page = open_page("site", "lectures/02_vit.html")
    page.set_viewport_size({"width": 390, "height": 844})
    link = page.locator(".cell_output a.only-light").first
    small = link.locator("img").bounding_box()["width"]
    link.click()
    shown = page.locator("dialog.figure img")
    shown.wait_for()
    assert shown.bounding_box()["width"] > max(700, small)
    page.keyboard.press("Escape")
    shown.wait_for(state="detached")
    link.click()
    shown.click()
    shown.wait_for(state="detached")


@pytest.mark.browser
def test_a_widget_whose_script_did_not_come_is_there_when_the_network_is(open_page):
    page = open_page("site", "index.html")
    page.context.route("**/parts/*.js", lambda route: route.abort())
    page.goto("http://course.test/lectures/02_vit.html")
    page.locator("[data-ck]").first.scroll_into_view_if_needed()
    page.wait_for_timeout(300)
    assert page.locator(".ck").count() == 0
    page.context.unroute("**/parts/*.js")
    page.evaluate("dispatchEvent(new Event('online'))")
    page.locator(".ck").first.wait_for()
    page.errors.clear()  # of the script that did not come


@pytest.mark.browser
def test_the_page_that_is_read_is_in_sight_among_all_others(open_page):
    page = open_page("site", "index.html")
    page.set_viewport_size({"width": 1280, "height": 260})
    page.evaluate("sessionStorage.setItem('sidebar-scroll-top', 0)")  # as the theme remembers it
    page.goto("http://course.test/docs/plan.html")
    at = page.locator(".bd-sidebar-primary .current > a").last.evaluate(
        "x => [x.getBoundingClientRect().top, x.getBoundingClientRect().bottom, innerHeight]"
    )
    assert 0 <= at[0] < at[1] <= at[2]


@pytest.mark.browser
def test_on_paper_a_page_is_light_and_nothing_is_folded(open_page):
    page = open_page("site", "lectures/02_vit.html", "dark")
    folded = page.locator("article details:not([open])")
    before = folded.count()
    assert before > 0
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert folded.count() == 0
    faded = page.locator("article details > *").evaluate_all(
        "all => all.filter((x) => getComputedStyle(x).opacity < 1).length"
    )
    assert faded == 0, "black at once, and not half faded in"
    assert page.locator("html").get_attribute("data-theme") == "light"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert folded.count() == before
    assert page.locator("html").get_attribute("data-theme") == "dark"


@pytest.mark.browser
def test_a_listing_on_a_slide_is_whole(open_page):
    """reveal.js would cut it at 400 pixels, and its own lines at the slide's right edge."""
    page = open_page("slides", "02_vit.html")
    listing = show(single)._repr_html_().partition("<script")[0]
    put = "(slide, html) => { slide.firstElementChild.insertAdjacentHTML('beforeend', html); }"
    page.locator(".slides > section > section").first.evaluate(put, listing)
    look = "code => { const {maxHeight, whiteSpace} = getComputedStyle(code); return [maxHeight, whiteSpace]; }"
    assert page.locator("[data-ck] pre code").first.evaluate(look) == ["none", "pre-wrap"]


@pytest.mark.browser
def test_a_listing_on_a_slide_is_drawn_smaller_rather_than_wrapped(open_page):
    page = open_page("slides", "03_talk.html")
    page.wait_for_function(READY)
    size = page.evaluate("""() => {
      const slide = Reveal.getCurrentSlide(), line = "x".repeat(100);
      slide.insertAdjacentHTML("beforeend", `<div data-ck><pre><code>${line}</code></pre></div>`);
      const pre = slide.querySelector("pre"), before = parseFloat(getComputedStyle(pre).fontSize);
      narrow(slide);
      const row = 1.5 * parseFloat(getComputedStyle(pre).fontSize);
      return [parseFloat(getComputedStyle(pre).fontSize) / before, pre.clientHeight < 2 * row];
    }""")
    assert 0.7 < size[0] < 1
    assert size[1]


def test_slides_name_the_models_of_the_site_and_no_file_that_is_not_beside_them(course, tmp_path, monkeypatch):
    monkeypatch.chdir(course)
    listing = '<a style="color: #0b5fa5" href="../coursekit/nn/a.py">nn/a.py, line 3</a><p>"float16": "AAAA"</p>'
    notebook = lecture("04 · More", [("show", "slide", "show(f)", [output(text_html=listing)])])
    (tmp_path / "build" / "04_more").mkdir(parents=True)
    for file in (tmp_path / "04_more.ipynb", tmp_path / "build" / "04_more" / "notebook.ipynb"):
        nbformat.write(notebook, file)
    plain, asking = (
        decks.slides(tmp_path / "04_more.ipynb", tmp_path / "build", tmp_path / name, "", models).read_text("utf-8")
        for name, models in (("plain", ""), ("site", "../_static/models/page.js"))
    )
    assert "nn/a.py, line 3" in plain
    assert "../coursekit/" not in plain
    assert "page.js" not in plain
    assert '"float16": "AAAA"' in plain
    assert re.search(r'<script src="../_static/models/page.js" type="module"></script>.*<script', asking, re.DOTALL)
    assert '"float16": ""' in asking


@pytest.mark.browser
def test_a_widget_on_a_slide_answers(open_page):
    page = open_page("slides", "02_vit.html")
    page.wait_for_function("Reveal.isReady()")
    page.keyboard.press("ArrowRight")
    widget = page.locator(".ck")
    before = widget.locator("[aria-live]").inner_text()
    widget.get_by_role("button", name="Next step").click()
    assert widget.locator("[aria-live]").inner_text() != before
    assert page.locator(".slide-number").inner_text().split() == ["2", "/", "2"]
    page.wait_for_function("document.activeElement === document.body")
    page.keyboard.press("ArrowLeft")  # which a widget may take for itself as long as it has the keys
    assert page.locator(".slide-number").inner_text().split() == ["1", "/", "2"]


@pytest.mark.browser
def test_a_slider_on_a_slide_has_the_arrows_and_the_lecture_the_other_keys(open_page):
    page = open_page("slides", "02_vit.html")
    page.wait_for_function("Reveal.isReady()")
    page.keyboard.press("ArrowRight")
    slider, number = page.locator("input[type=range]"), page.locator(".slide-number")
    slider.focus()
    before = slider.input_value()
    page.keyboard.press("ArrowRight")
    assert slider.input_value() != before
    assert number.inner_text().split() == ["2", "/", "2"]
    kept = slider.input_value()
    page.keyboard.press("PageUp")
    assert number.inner_text().split() == ["1", "/", "2"]
    assert slider.input_value() == kept
    page.keyboard.press("PageDown")
    slider.click()
    page.wait_for_function("document.activeElement === document.body")
    page.keyboard.press("Shift+Space")
    assert number.inner_text().split() == ["1", "/", "2"]


def test_what_can_be_downloaded_is_the_notebook_itself(course):
    task = course / "exercises" / "01_sums" / "01_sums.ipynb"
    assert (course / "build" / "site" / "_sources" / "exercises" / "01_sums.ipynb").read_bytes() == task.read_bytes()
    assert not (course / "build" / "site" / "solutions").exists()


def run(*arguments, monkeypatch, capsys) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["coursekit", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code, *capsys.readouterr()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["site", "--out", "notebooks"], "notebooks is no site and not empty: name a new folder"),
        (["site", "--lectures", "exercises"], "no lecture was executed into exercises: coursekit run --all"),
        (["slides", "3"], "no lecture '3'; there are: 01_sums, 02_vit"),
        (
            ["slides", "1", "--lectures", "exercises"],
            "01_sums is not executed yet: coursekit run 01 (make run LECTURE=01)",
        ),
        (["slides"], "Missing argument"),
    ],
)
def test_mistakes_are_one_line(arguments, says, course, monkeypatch, capsys):
    monkeypatch.chdir(course)
    code, _, err = run(*arguments, monkeypatch=monkeypatch, capsys=capsys)
    assert code == 2
    assert says in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize("arguments", [["site"], ["slides", "1"]])
def test_without_the_extra_it_says_what_to_install(arguments, course, monkeypatch, capsys):
    find = importlib.util.find_spec
    monkeypatch.chdir(course)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "myst_nb" else find(name))
    code, _, err = run(*arguments, monkeypatch=monkeypatch, capsys=capsys)
    assert code == 2
    assert err == f"{doctor.is_missing('myst_nb', 'site')}\n"


def test_a_lecture_that_is_missing_old_or_broken_is_said(tmp_path, monkeypatch):
    write_course(tmp_path)
    monkeypatch.chdir(tmp_path)
    results = tmp_path / "build"
    old = results / "01_sums" / "notebook.ipynb"
    notebook = nbformat.read(old, as_version=4)
    notebook.cells[1].source = "Another text."
    nbformat.write(notebook, old)
    (results / "02_vit" / "notebook.ipynb").unlink()
    said = []
    site.stage(results, tmp_path / "source", said.append)
    assert said == [
        "01_sums has changed since it was executed, so its text and its numbers may disagree: coursekit run 01",
        "02_vit is not executed yet, so its page has no outputs: coursekit run 02",
    ]
    assert said[1] in (tmp_path / "source" / "lectures" / "02_vit.ipynb").read_text(encoding="utf-8")
    last = next(cell for cell in notebook.cells if cell.id == "claims")
    last.execution_count = None
    nbformat.write(notebook, old)
    with pytest.raises(lectures.LectureError, match="01_sums was stopped before its end: execute it again"):
        site.stage(results, tmp_path / "again", said.append)
    last.outputs = [nbformat.v4.new_output("error", ename="ClaimFailed", evalue="", traceback=[])]
    nbformat.write(notebook, old)
    with pytest.raises(lectures.LectureError, match="01_sums stopped at an error"):
        site.stage(results, tmp_path / "again2", said.append)


def test_a_build_that_fails_leaves_the_old_site(course, tmp_path, monkeypatch):
    out = tmp_path / "site"
    out.mkdir()
    (out / "objects.inv").write_text("the old site", encoding="utf-8")
    monkeypatch.chdir(course)
    monkeypatch.setattr(site, "stage", lambda results, source, say: source.mkdir())  # without a conf.py
    with pytest.raises(lectures.LectureError, match="Sphinx failed"):
        site.build(course / "build", out)
    assert [path.name for path in tmp_path.iterdir()] == ["site"]
    assert (out / "objects.inv").read_text(encoding="utf-8") == "the old site"


@pytest.mark.browser
def test_a_handout_is_printed_or_it_is_said_what_is_missing(tmp_path, monkeypatch):
    write_course(tmp_path)
    monkeypatch.chdir(tmp_path)
    sums = tmp_path / "notebooks" / "01_sums.ipynb"
    with pytest.raises(lectures.LectureError, match="01_sums is not executed yet: coursekit run 01"):
        decks.handout(sums, tmp_path / "build", tmp_path / "out")
    page = tmp_path / "build" / "01_sums" / "lecture.html"
    page.write_text("<h1>Sums</h1>" + "<p>one and one</p>" * 200, encoding="utf-8")
    printed = decks.handout(sums, tmp_path / "build", tmp_path / "out")
    content = printed.read_bytes()
    assert content.startswith(b"%PDF-")
    assert len(re.findall(rb"/Type\s*/Page\b", content)) > 2
    monkeypatch.setattr(decks, "BROWSERS", ("no-such-browser",))
    with pytest.raises(
        lectures.LectureError, match=r"no no-such-browser on this machine: install it, or open .*lecture\.html"
    ):
        decks.handout(sums, tmp_path / "build", tmp_path / "out")


@pytest.mark.browser
def test_on_paper_every_slide_is_seen_with_lines_below_it(open_page, course, tmp_path):
    """Catches the blank page that reveal.js prints, what waits for a key and stays hidden, a sheet for each slide."""
    page = open_page("slides", "01_sums.html")
    page.emulate_media(media="print")
    slides = page.evaluate("""[...document.querySelectorAll(".slides > section > section")].map((slide) => {
      const {top, bottom, width, height} = slide.getBoundingClientRect();
      const lines = parseFloat(getComputedStyle(slide, "::after").height) * slide.currentCSSZoom;
      return {top, bottom, lines, shape: width / height, page: width / document.documentElement.clientWidth};
    })""")
    assert len(slides) > 4
    for above, slide in zip([None, *slides], slides):
        assert slide["shape"] == pytest.approx(16 / 9, 0.02), "as it is projected, with its frame"
        assert slide["lines"] > 80
        assert above is None or slide["top"] >= above["bottom"] + above["lines"]
    hidden = (
        """[...document.querySelectorAll(".fragment")].filter((x) => getComputedStyle(x).visibility !== "visible")"""
    )
    assert page.locator(".fragment").count() > 0
    assert page.evaluate(f"{hidden}.length") == 0
    seen = "all => all.filter((one) => one.checkVisibility()).length"
    assert page.locator(".speaker-notes, .jp-OutputPrompt, .jp-InputPrompt").evaluate_all(seen) == 0
    size = "one => getComputedStyle(one).fontSize"
    on_paper = page.locator(".slides td").first.evaluate(size)
    page.emulate_media(media="screen")
    assert page.locator(".slides td").first.evaluate(size) == on_paper, "what fitted on the screen fits on paper"
    printed = decks.slide_notes(course / "notebooks" / "01_sums.ipynb", course / "build", tmp_path)
    assert printed.name == "01_sums_slides.pdf"
    sheets = len(re.findall(rb"/Type\s*/Page\b", printed.read_bytes()))
    assert 1 <= sheets < len(slides)
