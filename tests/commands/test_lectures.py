"""The page that an executed lecture becomes."""

import re

import nbformat
import pytest
from axe_playwright_python.sync_playwright import Axe

from coursekit.commands.lectures import home, lectures, mathml, to_html, with_spaces
from coursekit.grading.release import masters

TEXT = """# Why divide by $\\sqrt{d_k}$?

Inline $a_1^2$, and on a line of its own:

$$\\sum_s \\frac{1}{2} a_s = 1$$
"""


@pytest.fixture
def page() -> str:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(TEXT)])
    return to_html(notebook, "t")


def test_a_formula_in_a_heading_is_mathml_like_any_other(page):
    """nbconvert parses and writes headings as XML, which gave their formulas a prefix that browsers do not know."""
    heading = page[page.index("<h1") : page.index("</h1>")]
    assert "<msub><mi>d</mi><mi>k</mi></msub>" in heading[heading.index("<msqrt>") : heading.index("</msqrt>")]
    assert "ns0:" not in page
    assert page.count("<math") == 3


def test_the_names_of_functions_stand_apart():
    cell = nbformat.v4.new_markdown_cell(r"$2 \ln 8 - \ln(x) + \log_2 p^{\ln \frac{1}{2}} = \,\ln$")
    page = to_html(nbformat.v4.new_notebook(cells=[cell]), "t")
    formula = page[page.index("<math") : page.index("</math>")].replace('<mspace width="0.167em"></mspace>', "_")
    assert re.sub(r"<[^>]*>", "", formula) == "2_ln_8−ln(x)+log2_pln_12=_ln"


@pytest.mark.parametrize("formula", ["<math><mi>a</mi></math>", "<math><mtext>a < b & c</mtext></math>"])
def test_other_formulas_stay_as_they_are(formula):
    assert with_spaces(formula) == formula


@pytest.mark.parametrize("formula", [r"|A|", r"\lambda |W|^2", r"\|x\|"])
def test_bars_have_no_spaces_around_them(formula):
    bars = re.findall(r"<mo([^>]*)>[|‖]</mo>", mathml(formula, "inline"))
    assert len(bars) == 2
    assert all('lspace="0" rspace="0"' in bar for bar in bars)
    assert "lspace" not in mathml(r"p(x \mid y)", "inline")


@pytest.mark.parametrize("path", [*lectures(), *masters(home())], ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_formulas_use_what_a_page_can_show(path):
    """Of ``aligned``, latex2mathml shows the ``&`` and no new lines."""
    texts = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "markdown"]
    formulas = [formula for text in texts for formula in re.findall(r"\$\$(.+?)\$\$", text, re.DOTALL)]
    assert [formula for formula in formulas if re.search("<mi>&|linebreak", mathml(formula, "block"))] == []


@pytest.mark.browser
def test_no_line_begins_with_the_full_stop_behind_a_formula(browser):
    words = r"The root ($\sqrt{n}$). " * 40
    page = to_html(nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(words)]), "t")
    view = browser.new_page(viewport={"width": 700, "height": 900})
    view.set_content(page)
    held = view.locator("span:has(> math)").evaluate_all(
        "all => all.map((one) => [one.textContent, one.getClientRects().length])"
    )
    assert held == [["(n).", 1]] * 40
    tops = view.locator("span:has(> math)").evaluate_all("all => all.map((one) => one.getBoundingClientRect().top)")
    assert len(set(tops)) > 3


@pytest.mark.browser
def test_brackets_are_as_high_as_what_they_hold(page, browser):
    """With the fonts of this machine, whichever of the list it has."""
    view = browser.new_page()
    view.set_content(page)
    view.locator("h1").evaluate("""h1 => { h1.outerHTML = `<math display="block"><mo stretchy="true">(</mo>
      <mfrac><mi>a</mi><mi>b</mi></mfrac><mo stretchy="true">)</mo></math>`; }""")
    bracket, fraction = (view.locator(name).first.bounding_box()["height"] for name in ("mo", "mfrac"))
    assert bracket > 0.85 * fraction


@pytest.mark.browser
def test_the_browser_draws_every_formula(page, browser):
    """As MathML: the root in the heading has a height, and the sum stands on a line of its own."""
    view = browser.new_page()
    view.set_content(page)
    kinds = view.locator("math").evaluate_all(
        "found => found.map((el) => [el.namespaceURI, getComputedStyle(el).display])"
    )
    mathml = "http://www.w3.org/1998/Math/MathML"
    assert kinds == [[mathml, "math"], [mathml, "math"], [mathml, "block math"]]
    assert view.locator("h1 msqrt").bounding_box()["height"] > 10


@pytest.mark.browser
def test_the_page_follows_light_and_dark(page, browser):
    def ink(scheme: str, media: str = "screen") -> list[int]:
        """How bright the page and its text are: the red of each."""
        opened.emulate_media(color_scheme=scheme, media=media)
        colours = opened.evaluate(
            "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.querySelector('h1')).color]"
        )
        return [int(re.search(r"\d+", colour)[0]) for colour in colours]

    opened = browser.new_page()
    opened.set_content(page)
    for background, text in (ink("light"), ink("dark", "print")):
        assert background == 255
        assert text < 50
    background, text = ink("dark")
    assert background < 50
    assert text > 200


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_for_everyone(scheme, browser):
    """Code in every colour, what is printed and returned, a link in a sentence, a table with an empty corner."""
    text = f"{TEXT}\nSee [a paper](https://arxiv.org/abs/1706.03762).\n\n|  | a |\n|---|---|\n| b | 1 |\n"
    source = 'import a  # why\n@a.b\ndef f(x: int):\n    """What."""\n    return f"{x}\\n" if x is None else 2.5 * -1'
    outputs = [
        nbformat.v4.new_output("stream", text="printed\n"),
        nbformat.v4.new_output("execute_result", {"text/plain": "returned"}, execution_count=1),
    ]
    code = nbformat.v4.new_code_cell(source, execution_count=1, outputs=outputs)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text), code])
    view = browser.new_page(color_scheme=scheme)
    view.set_content(to_html(notebook, "t"))
    found = Axe().run(view).response["violations"]
    assert [(v["id"], v["nodes"][0]["html"]) for v in found] == []


def test_links_to_other_notebooks_are_text_on_a_page_by_itself_and_papers_stay_links():
    text = "See [02](02_x.ipynb), the [glossary](../docs/glossary.md) and [a paper](https://arxiv.org/abs/1706.03762)."
    page = to_html(nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text)]), "t")
    assert "See 02, the glossary and <a" in page
    assert 'href="https://arxiv.org/abs/1706.03762"' in page
    assert "02_x.ipynb" not in page


def test_folded_code_says_which_it_is():
    folded = {"jupyter": {"source_hidden": True}}
    cells = [nbformat.v4.new_code_cell(f"{text}x = 1", metadata=folded) for text in ("", "# bug 2: <b>\n")]
    page = to_html(nbformat.v4.new_notebook(cells=cells), "t")
    assert re.findall("<summary>(.*?)</summary>", page) == ["Code", "Code (bug 2: &lt;b&gt;)"]


@pytest.mark.browser
def test_on_paper_answers_are_open_code_is_wrapped_and_what_was_folded_is_left_out(browser):
    cells = [
        nbformat.v4.new_markdown_cell("<details><summary>Answer</summary>\n\nForty-two.\n</details>"),
        nbformat.v4.new_code_cell(f"long = {'x' * 300!r}"),
        nbformat.v4.new_code_cell("folded = 1", metadata={"jupyter": {"source_hidden": True}}),
    ]
    view = browser.new_page(viewport={"width": 700, "height": 900})
    view.set_content(to_html(nbformat.v4.new_notebook(cells=cells), "t"))
    answer = view.get_by_text("Forty-two.")
    assert not answer.is_visible()
    view.emulate_media(media="print")
    assert answer.is_visible()
    assert not view.get_by_text("folded").is_visible()
    code = view.locator(".highlight pre").first
    assert code.evaluate("pre => pre.scrollWidth <= pre.clientWidth + 1")
    assert code.bounding_box()["height"] > 40, "on several lines"
