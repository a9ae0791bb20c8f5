"""The widgets' modules in a plain page in real Chromium: numbers, keyboard, accessibility, themes, no scripts."""

import re

import numpy as np
import pytest
from matplotlib import colormaps

from coursekit.nn.scores import ConcatScore
from coursekit.viz import Alignment, AttentionHeads, Curves, show
from tests.viz.page import brightness, live_page, page_of, status, themed, violations
from tests.viz.test_chat import chat
from tests.viz.test_prefer import prefer

pytestmark = pytest.mark.browser

SOURCE, TARGET = ["2", "8", "1", "6"], ["6", "1", "8"]


def weights(T: int = 3, S: int = 4, seed: int = 0) -> np.ndarray:
    w = np.random.default_rng(seed).random((T, S)) ** 4
    return w / w.sum(axis=1, keepdims=True)


def test_every_number_is_the_tensors(browser):
    w = weights()
    page = page_of(browser, Alignment(SOURCE, TARGET, w)._repr_html_())
    cells = page.locator("tbody tr")
    assert cells.count() == 3
    for t in range(3):
        page.get_by_role("button", name="First step").click()
        for _ in range(t):
            page.get_by_role("button", name="Next step").click()
        row = [float(x) for x in cells.nth(t).locator("td").all_inner_texts()]
        np.testing.assert_allclose(row, w[t], atol=0.00501)
        titles = [cells.nth(t).locator("td").nth(s).get_attribute("title") for s in range(4)]
        np.testing.assert_allclose([float(x.rsplit(" ", 1)[1]) for x in titles], w[t], atol=0.000501)
        assert titles[2] == f"output {t + 1} ({TARGET[t]}) → source 3 (1): {w[t, 2]:.3f}"
        bars = [float(x) for x in page.locator("svg text.weight").all_text_contents()]
        np.testing.assert_allclose(bars, w[t], atol=0.00501)
        peak = int(w[t].argmax())
        assert (
            f"Step {t + 1} of 3: output {TARGET[t]} looks most at source position {peak + 1} ({SOURCE[peak]})"
            in status(page)
        )
        assert f"weight {w[t, peak]:.2f}" in status(page)
        assert cells.nth(t).get_attribute("aria-current") == "true"
        heights = [float(r.get_attribute("height")) for r in page.locator("svg rect").all()]
        np.testing.assert_allclose(np.array(heights) / sum(heights), w[t], atol=1e-5)
    assert page.errors == []
    assert page.requests == ["http://ck.test/"], "a widget asks the network for nothing"


def test_colours_are_viridis(browser):
    w = np.linspace(0, 1, 21)
    w = np.stack([w / w.sum(), np.eye(21)[3], np.linspace(0, 0.5, 21) ** 2 / (np.linspace(0, 0.5, 21) ** 2).sum()])
    page = page_of(browser, Alignment(range(21), range(3), w)._repr_html_())
    script = "cells => cells.map(cell => getComputedStyle(cell).backgroundColor)"
    shown = [list(map(int, re.findall(r"\d+", c))) for c in page.locator("tbody td").evaluate_all(script)]
    expected = 255 * colormaps["viridis"](w.flatten())[:, :3]
    np.testing.assert_allclose(shown, expected, atol=6)  # 21 points of the map, straight lines between


def test_keyboard_alone_is_enough(browser):
    page = page_of(browser, Alignment(SOURCE, TARGET, weights())._repr_html_())
    page.get_by_role("button", name="First step").focus()
    for key, step in [
        ("ArrowRight", 2),
        ("ArrowRight", 3),
        ("ArrowRight", 3),
        ("ArrowLeft", 2),
        ("End", 3),
        ("Home", 1),
    ]:
        page.keyboard.press(key)
        assert status(page).startswith(f"Step {step} of 3")
    slider = page.get_by_role("slider", name="Output step")
    slider.focus()
    page.keyboard.press("ArrowRight")
    assert status(page).startswith("Step 2 of 3")
    assert slider.get_attribute("aria-valuetext") == "step 2 of 3"
    page.get_by_role("button", name="Play").focus()
    page.keyboard.press("Enter")
    page.wait_for_function("document.querySelector('[aria-live]').textContent.startsWith('Step 3')")
    page.get_by_role("button", name="Play").wait_for()  # it ends by itself


def test_the_keys_work_after_a_click_anywhere(browser):
    page = page_of(browser, Alignment(SOURCE, TARGET, weights())._repr_html_())
    page.locator(".ck svg").first.click()
    page.keyboard.press("ArrowRight")
    assert status(page).startswith("Step 2 of 3")


def test_clicking_a_row_shows_it(browser):
    page = page_of(browser, Alignment(SOURCE, TARGET, weights())._repr_html_())
    page.locator("tbody tr").nth(2).click()
    assert status(page).startswith("Step 3 of 3")


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    "widget",
    [
        Alignment(SOURCE, TARGET, weights()),
        Alignment(range(20), range(20), weights(20, 20)),
        Curves({"a": [{"step": 1, "loss": 2}, {"step": 9, "loss": 1}], "b": [{"step": 1, "loss": 3}]}, title="Loss"),
    ],
    ids=["small", "large", "curves"],
)
def test_accessible_in_both_themes(browser, widget, scheme):
    page = page_of(browser, themed(widget, scheme), scheme=scheme)
    assert page.locator(".ck[data-dark]").count() == (scheme == "dark")
    assert violations(page) == []


def test_the_background_decides_the_theme_not_the_system(browser):
    dark_host = "<style>body{background:#111}</style>" + Alignment(SOURCE, TARGET, weights())._repr_html_()
    page = page_of(browser, dark_host, scheme="light")
    assert page.locator(".ck[data-dark]").count() == 1
    page.evaluate("document.body.style.background = 'white'")
    page.wait_for_function("!document.querySelector('.ck[data-dark]')")


def test_without_scripts_the_numbers_still_stand_there(browser):
    w = weights()
    page = page_of(browser, Alignment(["<b>", *SOURCE[1:]], TARGET, w)._repr_html_(), scripts=False)
    rows = page.locator("tbody tr")
    for t in range(3):
        shown = [float(x) for x in rows.nth(t).locator("td").all_inner_texts()]
        np.testing.assert_allclose(shown, w[t], atol=0.00501)
    assert page.locator("thead th").nth(0).inner_text() == "<b>"


def test_a_narrow_page_is_wide_enough(browser):
    page = page_of(browser, Alignment(range(20), range(20), weights(20, 20))._repr_html_(), width=380)
    page.locator(".ck svg").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 380


def test_tokens_are_text_not_markup(browser):
    tokens = ["</script><script>window.hacked=1</script>", '"quote"', "<img src=x onerror='window.hacked=1'>", "é"]
    page = page_of(browser, Alignment(tokens, TARGET, weights())._repr_html_())
    assert page.locator("thead th").nth(1).inner_text() == tokens[0]
    assert page.evaluate("window.hacked") is None


WORDS = ["the", "tired", "brown", "animal", "didn't", "cross", "the", "wide", "busy", "street"]
WORDS += ["because", "it", "was", "much", "too"]
LONG = [f"Rechtsschutz{i}" for i in range(16)]

# pairs of boxes that share a pixel or more; `inside` is what nothing may reach out of
OVERLAPS = """([words, inside]) => {
  const boxes = [...document.querySelectorAll(words)].map((word) => [word.textContent, word.getBoundingClientRect()]);
  const frame = document.querySelector(inside).getBoundingClientRect();
  const found = boxes
    .filter(([, a]) => a.left < frame.left - 1 || a.right > frame.right + 1 || a.bottom > frame.bottom + 1)
    .map(([name]) => [name, "cut off"]);
  boxes.forEach(([one, a], i) => boxes.slice(i + 1).forEach(([other, b]) => {
    const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (across > 0 && down > 0) found.push([one, other]);
  }));
  return {count: boxes.length, found};
}"""


@pytest.mark.parametrize(
    "widget",
    [
        Alignment(range(20), range(20), weights(20, 20)),
        Curves({"a": [{"step": step, "loss": 1 / step} for step in range(1, 3000, 50)]}, title="Loss"),
    ],
    ids=["alignment", "curves"],
)
def test_on_a_phone_the_words_of_a_drawing_can_be_read(browser, widget):
    """Drawn to the width that there is, and not made smaller with the drawing."""
    page = page_of(browser, widget._repr_html_(), width=390)
    sizes = page.locator("svg text").evaluate_all("""all => all.map((text) => {
      const svg = text.ownerSVGElement;
      return parseFloat(text.getAttribute("font-size")) * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
    })""")
    assert len(sizes) > 5
    assert min(sizes) >= 8
    page.set_viewport_size({"width": 1000, "height": 800})
    page.wait_for_function("document.querySelector('svg').viewBox.baseVal.width === 760")


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ([*WORDS, "tired"], [*WORDS, "big"]),
        ([*WORDS, "."], "ab"),
        (LONG, LONG),
        ("ab", LONG),
        (range(40), range(40)),
    ],
    ids=["sentences", "one row", "long words", "long outputs", "40 numbers"],
)
def test_no_word_covers_another(browser, source, target):
    """At the last step every output stands there; of weights that would be too small to read, only the largest."""
    w = weights(len(target), len(source))
    page = page_of(browser, Alignment(source, target, w)._repr_html_())
    page.get_by_role("button", name="Last step").click()
    for words in ("svg .word", "svg .weight"):
        seen = page.evaluate(OVERLAPS, [words, "svg"])
        assert seen["found"] == []
        many = len(source) == 40
        assert seen["count"] == (len(source) + len(target) if words == "svg .word" else 1 if many else len(source))
    bars, names = (page.locator(f"svg {kind}").all() for kind in ("rect", ".word"))
    for bar, name in zip(bars, names[: len(source)], strict=True):
        one, other = bar.bounding_box(), name.bounding_box()
        assert abs(one["x"] + one["width"] / 2 - other["x"] - other["width"] / 2) < 2, "a word stands below its bar"
    sizes = page.locator("svg .word").evaluate_all("words => words.map(word => getComputedStyle(word).fontSize)")
    assert min(float(size.removesuffix("px")) for size in sizes) >= 11


@pytest.mark.parametrize("tokens", [[*WORDS, "tired"], LONG], ids=["sentence", "long words"])
def test_no_word_of_the_static_table_covers_another(browser, tokens):
    page = page_of(browser, Alignment(tokens, tokens, weights(16, 16))._repr_html_(), scripts=False)
    seen = page.evaluate(OVERLAPS, ["th", "table"])
    assert seen["count"] == 32
    assert seen["found"] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 900
    assert page.locator("table").bounding_box()["width"] <= 700


@pytest.mark.parametrize("module", ["alignment", "heads"])
@pytest.mark.parametrize("width", [900, 380])
def test_a_sentence_fits_into_the_field(browser, module, width):
    """Most of a sentence is in sight, and the field's focus ring stays off its label."""
    words = [*WORDS, "tired"]
    maps = np.eye(16)
    widget = Alignment(words, words, maps) if module == "alignment" else AttentionHeads(words, maps[None, None])
    page = live_page(browser, module, widget.data, width=width)
    page.locator(".ck [aria-live]").wait_for()
    field = page.get_by_role("textbox").bounding_box()
    text = page.locator(".typed").evaluate("""label => {
      const range = document.createRange();
      range.selectNodeContents(label.firstChild);
      return range.getBoundingClientRect().right;
    }""")
    assert field["x"] - text >= 6, "the ring is 3 pixels wide and 2 pixels off"
    assert field["width"] >= (500 if width == 900 else 200)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_two_views_of_one_output_both_work(browser):
    """A notebook's 'new view for output' puts the same HTML into the page again."""
    html = Alignment(SOURCE, TARGET, weights())._repr_html_()
    page = page_of(browser, html + html)
    assert page.locator(".ck").count() == 2
    page.get_by_role("button", name="Last step").nth(1).click()
    assert [s.split(":")[0] for s in page.locator("[aria-live]").all_inner_texts()] == ["Step 1 of 3", "Step 3 of 3"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_widget_looks_the_same_beside_another_one(browser, scheme):
    """Both call a part ``request``, and have styles of their own for it."""
    alone, other = themed(prefer(), scheme), chat()._repr_html_()
    looks = """all => all.map((e) => { const s = getComputedStyle(e);
        return [s.color, s.backgroundColor, s.borderRadius, s.fontSize, s.display, s.maxWidth]; })"""
    found = [page_of(browser, html).locator(".prefer *") for html in (alone, other + alone)]
    apart = [one.evaluate_all(looks) for one in found]
    assert len(apart[0]) > 20
    assert apart[0] == apart[1]


def test_a_finger_reads_a_curve_off_as_a_mouse_does(browser):
    page = page_of(browser, Curves({"a": [{"step": 1, "loss": 2}, {"step": 9, "loss": 1}]}, title="Loss")._repr_html_())
    note = page.locator(".note")
    for kind, leaves in (("touch", "After 9 updates: a 1.0000"), ("mouse", "")):
        page.locator(".plot").evaluate(
            """(plot, kind) => {
              const {right, top} = plot.getBoundingClientRect();
              for (const name of ["pointerdown", "pointerleave"]) {
                plot.dispatchEvent(new PointerEvent(name, {pointerType: kind, clientX: right, clientY: top}));
              }
            }""",
            kind,
        )
        assert note.inner_text() == leaves


def test_widgets_of_a_kind_have_names_of_their_own_and_are_no_slides(browser):
    """A screen reader lists two trainings apart; reveal.js would count every <section> as a slide."""
    history = [{"step": 1, "loss": 1.0}]
    widgets = [Curves({"a": history}, title=title) for title in ("GRU", "LSTM", "")]
    page = page_of(browser, "".join(widget._repr_html_() for widget in widgets))
    names = page.get_by_role("region").evaluate_all("all => all.map((box) => box.ariaLabel)")
    assert names == ["Training curves: GRU", "Training curves: LSTM", "Training curves"]
    assert page.locator("section").count() == 0


def test_a_listing_turns_dark_with_the_page(browser):
    page = page_of(browser, themed(show(ConcatScore, docstring=False), "light"))
    shown = page.locator("[data-mounted]")
    background, ink = brightness(shown)
    assert background > 0.9
    assert ink < 0.2
    page.evaluate("document.body.style.background = '#111'")
    page.wait_for_function("document.querySelector('[data-mounted]').style.filter")
    background, ink = brightness(shown)
    assert background < 0.2
    assert ink > 0.6
    page.evaluate("document.body.style.background = '#fff'")
    page.wait_for_function("!document.querySelector('[data-mounted]').style.filter")
    assert brightness(shown)[0] > 0.9
    assert page.errors == []


def test_where_no_script_runs_a_listing_stays_readable(browser):
    page = page_of(browser, themed(show(ConcatScore, docstring=False), "dark"), scripts=False)
    background, ink = brightness(page.locator("[data-ck] > *"))
    assert background > 0.9
    assert ink < 0.2


def test_curves_tell_their_values(browser):
    history = [{"step": 10 * i, "loss": 3.0 / i} for i in range(1, 8)]
    page = page_of(browser, Curves({"dot": history}, title="Loss")._repr_html_())
    plot = page.get_by_role("img")
    assert "dot 0.4286 after 70 updates" in plot.get_attribute("aria-label")
    plot.focus()
    page.keyboard.press("Home")
    assert status(page) == "After 10 updates: dot 3.0000"
    page.keyboard.press("ArrowRight")
    assert status(page) == "After 20 updates: dot 1.5000"
    other = [{"step": 20, "loss": 7.0}, {"step": 40, "loss": 5.0}]
    both = page_of(browser, Curves({"dot": history, "other": other})._repr_html_())
    both.get_by_role("img").focus()
    both.keyboard.press("Home")
    assert status(both) == "After 10 updates: dot 3.0000"
    both.keyboard.press("ArrowRight")
    assert status(both) == "After 20 updates: dot 1.5000, other 7.0000"
    points = page.locator("polyline").get_attribute("points").split()
    x, y = np.array([list(map(float, p.split(","))) for p in points]).T
    steps, losses = (np.array([r[k] for r in history]) for k in ("step", "loss"))
    assert abs(np.corrcoef(x, steps)[0, 1] - 1) < 1e-6
    assert abs(np.corrcoef(y, losses)[0, 1] + 1) < 1e-4
    assert page.errors == []


def test_typing_asks_the_kernel_and_shows_the_answer(browser):
    page = live_page(browser, "alignment", Alignment(SOURCE, TARGET, weights()).data)
    field = page.get_by_role("textbox", name="Source")
    assert field.input_value() == "2 8 1 6"
    field.fill("3 4")
    field.press("ArrowLeft")  # moves the cursor, not the step
    assert status(page).startswith("Step 1 of 3")
    page.keyboard.press("Enter")
    assert page.evaluate("window.sent") == [{"source": "3 4"}]
    answer = Alignment(["3", "4"], ["4", "3"], [[0.1, 0.9], [0.8, 0.2]]).data | {"error": "too short"}
    page.evaluate("(data) => view.update({...data, live: true})", answer)
    assert status(page) == "Step 1 of 2: output 4 looks most at source position 2 (4), weight 0.90."
    assert page.get_by_role("alert").inner_text() == "too short"
    assert page.evaluate("document.activeElement.value") == "3 4", "the field keeps text and focus"


def test_the_stop_button_speaks_once(browser):
    data = Curves({"run": []}, total=100).data | {"running": True}
    page = live_page(browser, "curves", data)
    button = page.get_by_role("button", name=re.compile("Stop"))
    button.click()
    assert page.evaluate("window.sent") == [{"stop": True}]
    assert button.is_disabled()
    page.evaluate("(data) => view.update({...data, live: true})", data | {"running": False})
    assert page.get_by_role("button").inner_text() == "Training has ended"
    assert page.errors == []
