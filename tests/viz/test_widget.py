"""What every widget's page has in common: its size, and that no text in it gets out of the script."""

import json
import re
from importlib.resources import files

import pytest

from coursekit.viz.next_token import NextToken
from coursekit.viz.tokens import Tokens
from coursekit.viz.widget import MAX_BYTES, Widget, in_script, source
from tests.viz.page import largest, page_of

EVIL = "<!--<script></script><!--<SCRIPT>--></SCRIPT ><script>window.hacked=1</script>"


class Plain(Widget):
    module = "masks"

    def __init__(self, text: str):
        self.data = {"text": text}

    def static_html(self) -> str:
        return "<p>é</p>"


@pytest.mark.parametrize("text", [EVIL, "<!--", "<\\!--", "</", "\u2028\u2029", '"\\', "<!-" * 3 + "-"])
def test_data_in_a_script_are_the_data(text):
    shown = in_script({text: [text]})
    assert json.loads(shown) == {text: [text]}
    assert "<!--" not in shown
    assert "</" not in shown


def test_no_module_opens_a_comment_or_ends_its_script():
    names = [path.name.removesuffix(".js") for path in (files("coursekit.viz") / "js").iterdir()]
    assert {"shared", "fill_mask", "association"} < set(names)
    for name in names:
        assert "<!--" not in source(name)
        assert "</script" not in source(name).lower()


def test_a_module_comes_behind_what_it_imports_once_and_imports_nothing_else():
    folder, line = files("coursekit.viz") / "js", re.compile(r'^import \{(.*)\} from "\./(\w+)\.js";$', re.MULTILINE)
    for path in folder.iterdir():
        for names, module in line.findall(path.read_text("utf-8")):
            text = (folder / f"{module}.js").read_text("utf-8")
            exported = set(re.findall(r"^export (?:async )?(?:const|function) (\w+)", text, re.MULTILINE))
            assert set(names.split(", ")) <= exported, path.name
        assert "import " not in re.sub(r"(?m)//.*$", "", source(path.name.removesuffix(".js")))
    text = source("heads")
    assert text.count("function followTheme(") == text.count("function root(") == 1
    assert text.index("function followTheme(") < text.index("function root(") < text.index("function mount(")
    assert "function root(" not in source("inverted"), "only what it needs"


@pytest.mark.browser
def test_a_page_takes_any_text_back_as_it_was(browser):
    widget = Plain(EVIL)
    script = widget._repr_html_().split('<script type="module">')[1]
    data = script.split("const data = ")[1].split(";\nfor (const el")[0]
    page = page_of(browser, f"<script>window.got = {data}</script><p id=end>end</p>")
    assert page.evaluate("window.got.text") == EVIL
    assert page.locator("#end").count() == 1, "the script ends where it should"
    assert page.evaluate("window.hacked") is None
    assert page.errors == []


@pytest.mark.parametrize("text", ["a", "é", "<!--", "</", "😊"])
def test_the_limit_is_of_the_bytes_in_the_page(text):
    """Not of characters, and with what is written differently in a script."""
    each = len(in_script(text).encode()) - 2
    room = MAX_BYTES - len(in_script({"text": ""}).encode())
    html = Plain(text * (room // each))._repr_html_()
    assert MAX_BYTES - 10 <= len(html.split("const data = ")[1].split(";\nfor (const el")[0].encode()) <= MAX_BYTES
    with pytest.raises(ValueError, match=r"the widget's data take 1,000,0\d\d bytes, more than 1,000,000: show a part"):
        Plain(text * (room // each + 1))._repr_html_()


def test_half_a_character_is_not_taken_for_too_much():
    assert "\ud83d" in Plain("a\ud83d")._repr_html_()


def test_size_counts_data_and_picture():
    assert Plain("<!--é").size() == len('{"text": "') + len("\\u003c!--") + 2 + len('"}') + len("<p></p>") + 2


@pytest.mark.parametrize(
    "make",
    [
        lambda n: Tokens("<!--" * n, {"t": [("<!--", 1, 4 * i, 4 * i + 4) for i in range(n)]}),
        lambda n: NextToken(["<!--"] * n, {(): [("<!--", 1)]}),
    ],
    ids=["Tokens", "NextToken"],
)
def test_a_text_of_comment_signs_stays_below_the_limit_too(make):
    low = largest(make, 100_000, "bytes, more than 900,000: ")
    assert 850_000 < len(make(low)._repr_html_().encode()) < 1_000_000
