import inspect

import pytest

from coursekit.nn.attention import MultiHeadAttention
from coursekit.nn.scores import ConcatScore
from coursekit.viz import show
from tests.viz.page import page_of, violations

# what JupyterLab's dark theme says about the elements of an output
DARK = """<style>body { background: #111; color: #fff; }
.jp-RenderedHTMLCommon { color: rgba(255, 255, 255, 0.87); }
.jp-RenderedHTMLCommon pre, .jp-RenderedHTMLCommon code { color: rgba(255, 255, 255, 0.87); background: #111; }
.jp-RenderedHTMLCommon a { color: #64b5f6; }</style>"""
INKS = """root => [...root.querySelectorAll('pre, code, span, a')].map((el) => getComputedStyle(el).color)"""


def test_shows_the_code_that_runs_and_where_it_stands():
    shown = show(ConcatScore)
    assert shown.code == inspect.getsource(ConcatScore)
    html = shown._repr_html_()
    assert "coursekit/nn/scores.py, line" in html
    assert "href=" in html
    assert "ConcatScore" in repr(shown)


def test_docstrings_can_be_left_out_and_the_code_stays_whole():
    code = show(ConcatScore, docstring=False).code
    assert "Luong" not in code
    assert "def project_keys" in code
    compile(code, "shown", "exec")


def test_what_has_no_source_is_refused():
    with pytest.raises(ValueError, match="no source for 3"):
        show(3)


def test_a_decorated_function_is_shown_where_it_stands():
    from coursekit.decode.translate import greedy

    shown = show(greedy)
    assert shown.name.as_posix() == "coursekit/decode/translate.py"
    assert shown.path.read_text(encoding="utf-8").splitlines()[shown.line - 1] == shown.code.splitlines()[0]


@pytest.mark.browser
@pytest.mark.parametrize("css", ["", DARK], ids=["plain", "dark JupyterLab"])
def test_readable_in_both_themes(browser, css):
    """A page that colours pre, code and links: names, which have no colour of their own, stay dark on light."""
    listing = f'<div class="jp-RenderedHTMLCommon" id="listing">{show(MultiHeadAttention)._repr_html_()}</div>'
    page = page_of(browser, css + listing, scheme="dark" if css else "light")
    assert violations(page) == []
    inks = page.locator("#listing").evaluate(INKS)
    plain = page_of(browser, listing).locator("#listing").evaluate(INKS)
    assert len(inks) > 100
    assert inks == plain
    assert "inherit" not in listing, "an untrusted JupyterLab drops it: dark ink on its dark <pre>"
    assert page.locator("pre").evaluate("el => getComputedStyle(el.querySelector('code')).color") == "rgb(27, 27, 31)"
