import base64
import json
import zlib

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import colormaps

from coursekit.viz import AttentionHeads, heads
from coursekit.viz.heads import shrink
from tests.viz.page import live_page, numbers, page_of, status

KEYS, QUERIES = ["the", "black", "cat", "."], ["le", "chat", "noir", ",", "."]


def softmax(scores: np.ndarray) -> np.ndarray:
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def maps(L: int = 2, H: int = 3, T: int = 5, S: int = 4, std: float = 2, seed: int = 0) -> np.ndarray:
    return softmax(np.random.default_rng(seed).normal(size=(L, H, T, S)) * std)


def unpacked(widget: AttentionHeads) -> np.ndarray:
    packed = widget.data["weights"]
    values = np.frombuffer(zlib.decompress(base64.b64decode(packed["deflated"])), dtype=np.uint8)
    return values.reshape(packed["shape"]) / widget.data["levels"]


@given(
    st.tuples(*[st.integers(1, 3)] * 2, *[st.integers(1, 9)] * 2), st.integers(0, 10_000), st.sampled_from([0, 1, 8])
)
def test_each_weight_is_held_within_the_bound(shape, seed, std):
    L, H, T, S = shape
    weights = maps(L, H, T, S, std, seed)
    rng = np.random.default_rng(seed)
    weights = weights * (rng.random(weights.shape) < 0.7)
    weights = weights / np.where(weights.sum(-1, keepdims=True) == 0, 1, weights.sum(-1, keepdims=True))
    widget = AttentionHeads(range(S), weights, range(T))
    assert widget.error == 1 / 510
    np.testing.assert_allclose(unpacked(widget), weights, rtol=0, atol=widget.error + 1e-12)
    assert (unpacked(widget)[weights == 0] == 0).all()


@pytest.mark.parametrize("T", [64, 128])
@pytest.mark.parametrize("std", [0, 1, 2], ids=["uniform", "std 1", "std 2"])
def test_a_hundred_and_forty_four_maps_fit(T, std):
    weights = maps(12, 12, T, T, std)
    widget = AttentionHeads([f"word{i}" for i in range(T)], weights)
    assert len(widget._repr_html_().encode()) <= 1_000_000
    assert widget.error == (1 / 254 if (T, std) == (128, 1) else 1 / 510)
    np.testing.assert_allclose(unpacked(widget), weights, rtol=0, atol=widget.error + 1e-12)


def test_what_does_not_fit_is_refused_with_what_would_do(monkeypatch):
    monkeypatch.setattr(heads, "ROOM", 5_000)
    with pytest.raises(
        ValueError, match=r"4 layers of 3 heads on 30 x 30 tokens take .*\(weights\[:2\]\) or fewer tokens"
    ):
        AttentionHeads(range(30), maps(4, 3, 30, 30))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"weights": maps()[0]},
            r"weights have shape \(3, 5, 4\), but 5 queries and 4 keys need \(layers, heads, 5, 4\)",
        ),
        ({"target": None}, "but 4 queries and 4 keys need"),
        ({"weights": maps() * 2}, "must be a distribution"),
        ({"weights": np.full((1, 1, 5, 4), np.nan)}, "must be a distribution"),
        ({"weights": maps() * 3 - 0.5}, "must be a distribution"),
        ({"layer": 2}, r"layer=2: must lie in 0\.\.1"),
        ({"head": -1}, r"head=-1: must lie in 0\.\.2"),
        ({"query": 99}, r"query=99: must lie in 0\.\."),
    ],
)
def test_bad_input(change, says):
    with pytest.raises(ValueError, match=says):
        AttentionHeads(**{"tokens": KEYS, "weights": maps(), "target": QUERIES} | change)


def test_tensors_are_welcome():
    weights = torch.tensor(maps(1, 2, 4, 4), requires_grad=True)
    assert AttentionHeads(torch.tensor([3, 4, 5, 6]), weights).data["target"] == ["3", "4", "5", "6"]


def test_shrinking_keeps_every_peak():
    weights = np.zeros((50, 37))
    weights[31, 22] = 1
    small = shrink(weights, 16, 16)
    assert small.shape == (16, 16)
    assert small.sum() == 1
    assert small[10, 9] == 1  # patch 10 begins at row 10 * 50 // 16 = 31, patch 9 holds columns 20 to 22
    np.testing.assert_array_equal(shrink(weights, 50, 37), weights)


def test_static_pictures_and_peaks():
    weights = maps()
    weights[1, 2, 3] = 0
    html = AttentionHeads(["<b>", *KEYS[1:]], weights, QUERIES, layer=1, head=2).static_html()
    assert html.count('src="data:image/png;base64,') == 2
    assert "2 layers (downwards) of 3 heads" in html
    peak = int(weights[1, 2, 0].argmax())
    assert f"{peak}: {['&lt;b&gt;', *KEYS[1:]][peak]}</td>" in html
    assert f"{weights[1, 2, 0].max():.2f}" in html
    assert "nothing (masked)" in html


def test_typing_a_text():
    first = AttentionHeads(KEYS, maps(), QUERIES)

    def read(text):
        if not text:
            raise ValueError("type something")
        return AttentionHeads(text.split(), np.ones((1, 1, 1, 1)))

    view = first.live(read)
    (callback,) = view._msg_callbacks.callbacks
    callback(view, {"source": "x"}, [])
    assert (view.data["tokens"], view.data["error"]) == (["x"], "")
    callback(view, {"source": ""}, [])
    assert (view.data["tokens"], view.data["error"]) == (["x"], "type something")


def open_page(browser, widget, **kwargs):
    page = page_of(browser, widget._repr_html_(), **kwargs)
    page.locator(".ck [aria-live]").wait_for()  # the weights are inflated first
    return page


def beside(page, side: str, n: int) -> np.ndarray:
    """The numbers beside the tokens of a side; NaN where there is none."""
    texts = [token.locator("b").all_inner_texts() for token in page.locator(f".{side} .token").all()]
    assert len(texts) == n
    return np.array([numbers(text)[0] if text else np.nan for text in texts])


def test_a_token_without_ink_is_seen():
    data = AttentionHeads(["\n", " file", "New York"], np.full((1, 1, 1, 3), 1 / 3), [" "]).data
    assert (data["tokens"], data["target"]) == (["⏎", "·file", "New York"], ["·"])


@pytest.mark.browser
def test_every_number_is_the_tensors(browser):
    weights = maps()
    weights[1, 0, 2] = 0
    widget = AttentionHeads(KEYS, weights, QUERIES, layer=1, head=2, query=3)
    page = open_page(browser, widget)
    bound = widget.error + 0.00501

    def same(shown, wanted):
        missing = np.isnan(shown)
        assert (wanted[missing] < 0.005 + widget.error).all(), "only what rounds to nothing has no number"
        np.testing.assert_allclose(shown[~missing], wanted[~missing], atol=bound)

    assert status(page).startswith(f"Layer 1, head 2: query ‘{QUERIES[3]}’ (3)")
    for layer, head in [(1, 2), (0, 0), (0, 2), (1, 0)]:
        page.get_by_role("button", name=f"Layer {layer}, head {head}").click()
        for t in range(5):
            page.locator(".queries .token").nth(t).hover()
            same(beside(page, "keys", 4), weights[layer, head, t])
            assert np.isnan(beside(page, "queries", 5)).all()
            if weights[layer, head, t].any():
                peak = int(weights[layer, head, t].argmax())
                assert f"‘{QUERIES[t]}’ ({t}) looks most at key ‘{KEYS[peak]}’ ({peak}), weight" in status(page)
            else:
                assert status(page) == f"Layer {layer}, head {head}: query ‘noir’ (2) looks at nothing."
        for s in range(4):
            page.locator(".keys .token").nth(s).hover()
            same(beside(page, "queries", 5), weights[layer, head, :, s])
            assert f"key ‘{KEYS[s]}’ ({s}) gets most from query" in status(page)
    assert page.errors == []
    assert page.requests == ["http://ck.test/"]


PIXELS = "c => Array.from(c.getContext('2d').getImageData(0, 0, c.width, c.height).data)"


@pytest.mark.browser
def test_thumbnails_and_matrix_are_the_maps(browser):
    weights = maps()
    page = open_page(browser, AttentionHeads(KEYS, weights, QUERIES))
    wanted = 255 * colormaps["viridis"](np.sqrt(np.rint(weights * 255) / 255).astype("f4"))
    shown = [canvas.evaluate(PIXELS) for canvas in page.locator(".grid canvas").all()]
    np.testing.assert_allclose(np.reshape(shown, (2, 3, 5, 4, 4)), wanted, atol=6)
    wide = "canvases => canvases.map(c => [c.width, c.height])"
    assert page.locator(".grid canvas").evaluate_all(wide) == [[4, 5]] * 6, "keys across, queries down"
    page.get_by_role("button", name="Matrix").click()
    page.get_by_role("button", name="Layer 1, head 1").click()
    canvas = page.locator(".matrix canvas")
    assert canvas.evaluate("c => [c.width, c.height]") == [4, 5]
    np.testing.assert_allclose(np.reshape(canvas.evaluate(PIXELS), (5, 4, 4)), wanted[1, 1], atol=6)
    size = canvas.bounding_box()
    for t, s in [(0, 0), (4, 1), (2, 3)]:
        canvas.hover(position={"x": size["width"] * (s + 0.5) / 4, "y": size["height"] * (t + 0.5) / 5})
        text = status(page)
        assert text.startswith(f"Layer 1, head 1: query ‘{QUERIES[t]}’ ({t}) gives key ‘{KEYS[s]}’ ({s}) the weight ")
        np.testing.assert_allclose(float(text.split()[-1].rstrip(".")), weights[1, 1, t, s], atol=0.00501 + 1 / 510)


@pytest.mark.browser
def test_lines_are_as_thick_as_the_weights(browser):
    """Two queries, each with one key: the weights 1 and 0.5 beside each other in the drawing."""
    weights = np.array([[[[1.0, 0, 0], [0, 0.5, 0.5], [0, 0, 1]]]])
    page = open_page(browser, AttentionHeads("abc", weights))
    page.locator(".queries .token").nth(0).hover()
    # ink down a vertical line through the middle of the drawing, in CSS pixels
    profile = """canvas => {
      const {width, height} = canvas;
      const data = canvas.getContext('2d').getImageData(Math.round(width / 2), 0, 1, height).data;
      return Array.from({length: height}, (_, y) => data[4 * y + 3] / 255);
    }"""
    ink = np.array(page.locator(".lines canvas").evaluate(profile))
    high = page.locator(".queries .token").first.bounding_box()["height"]

    def around(y: float) -> np.ndarray:
        return ink[round((y - 0.25) * high) : round((y + 0.25) * high)]

    np.testing.assert_allclose(around(0.5).sum(), 7, atol=0.1)  # a to a, chosen: 7 pixels for a weight of 1
    np.testing.assert_allclose(around(1.5).sum() / around(1.5).max(), 3.5, atol=0.2)  # b to b: half of that
    assert around(1.5).max() < around(0.5).max(), "what is not chosen stands back"


@pytest.mark.browser
def test_lines_follow_the_scrolling(browser):
    """Every query looks at itself: wherever one scrolls to, a line stands in the middle of each row in sight."""
    page = open_page(browser, AttentionHeads(range(128), np.eye(128)[None, None]))
    view = page.locator(".view")
    rows = """view => {
      const canvas = view.querySelector('canvas');
      const context = canvas.getContext('2d');
      const top = canvas.getBoundingClientRect().top;
      const frame = view.getBoundingClientRect();
      const seen = [...view.querySelectorAll('.queries .token')].map((token, i) => [i, token.getBoundingClientRect()])
        .filter(([, box]) => box.top >= frame.top && box.bottom <= frame.bottom);
      const ink = (y) => context.getImageData(canvas.width / 2, Math.round(y - top), 1, 1).data[3] > 0;
      return seen.map(([i, box]) => [i, ink(box.top + box.height / 2), ink(box.top + 1)]);
    }"""
    for scroll, first in [(0, 0), (1010, 51), (10_000, 100)]:
        view.evaluate("(view, y) => { view.scrollTop = y; }", scroll)
        page.wait_for_timeout(100)
        found = view.evaluate(rows)
        assert [middle for _, middle, _ in found] == [True] * len(found)
        assert not any(edge for _, _, edge in found)
        assert found[0][0] == first
        assert len(found) > 20


@pytest.mark.browser
def test_keyboard_alone_is_enough(browser):
    weights = maps()
    page = open_page(browser, AttentionHeads(KEYS, weights, QUERIES))
    page.get_by_role("button", name="Layer 0, head 0").focus()
    for key, where in [("ArrowDown", (1, 0)), ("ArrowDown", (1, 0)), ("ArrowRight", (1, 1)), ("ArrowUp", (0, 1))]:
        page.keyboard.press(key)
        assert status(page).startswith("Layer {}, head {}: query ‘le’ (0)".format(*where))
    page.keyboard.press("Tab")  # out of the grid at once: to the views
    assert page.evaluate("document.activeElement.textContent") == "Lines"
    page.keyboard.press("ArrowDown")
    assert "query ‘chat’ (1) looks most" in status(page)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert "key ‘black’ (1) gets most from query" in status(page)
    page.keyboard.press("ArrowLeft")
    assert "query ‘chat’ (1) looks most" in status(page)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    shown = f"{np.rint(255 * weights[0, 1, 2, 1]) / 255:.2f}"
    assert status(page) == f"Layer 0, head 1: query ‘noir’ (2) gives key ‘black’ (1) the weight {shown}."


@pytest.mark.browser
def test_128_tokens_scroll_inside_the_widget(browser):
    words = [f"word{i}" for i in range(128)]
    page = open_page(browser, AttentionHeads(words, maps(1, 1, 128, 128)), width=400)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert page.locator(".ck").bounding_box()["height"] < 1000
    page.get_by_role("button", name="Lines").focus()
    top = page.evaluate("scrollY")
    for _ in range(100):
        page.keyboard.press("ArrowDown")
    view, token = page.locator(".view").bounding_box(), page.locator(".token.chosen").bounding_box()
    assert page.locator(".token.chosen").inner_text() == "word100"
    assert view["y"] <= token["y"]
    assert token["y"] + token["height"] <= view["y"] + view["height"] + 1
    assert page.evaluate("scrollY") == top, "the page itself stays"


@pytest.mark.browser
def test_an_old_browser_keeps_the_static_picture(browser):
    old = "<script>delete globalThis.DecompressionStream</script>"
    page = page_of(browser, old + AttentionHeads(KEYS, maps(), QUERIES)._repr_html_())
    page.wait_for_selector("[data-mounted]")
    assert page.get_by_role("img").count() == 2
    assert page.errors == []


@pytest.mark.browser
def test_the_latest_update_wins(browser):
    """Inflating takes time: an answer that comes late must not replace a newer one."""
    many = [AttentionHeads(range(n), maps(1, 1, n, n)).data for n in (60, 3)]
    page = live_page(browser, "heads", AttentionHeads(KEYS, maps(), QUERIES).data)
    field = page.get_by_role("textbox", name="Text")
    assert field.input_value() == " ".join(KEYS)
    field.fill("a b c")
    field.press("ArrowLeft")
    page.keyboard.press("Enter")
    assert page.evaluate("window.sent") == [{"source": "a b c"}]
    page.evaluate("""() => {
      const read = Response.prototype.arrayBuffer;
      Response.prototype.arrayBuffer = async function () {
        const bytes = await read.call(this);
        if (bytes.byteLength > 1000) await new Promise((done) => setTimeout(done, 200));
        return bytes;
      };
    }""")
    page.evaluate(f"for (const data of {json.dumps(many)}) view.update({{...data, error: 'too short', live: true}})")
    page.wait_for_function("document.querySelectorAll('.queries .token').length === 3")
    page.wait_for_timeout(500)
    assert page.locator(".queries .token").count() == 3
    assert page.get_by_role("alert").inner_text() == "too short"
    assert page.evaluate("document.activeElement.value") == "a b c", "the field keeps text and focus"


@pytest.mark.browser
def test_the_chosen_head_stays_for_another_text_and_a_refused_one_changes_nothing(browser):
    """Comparing one head over several texts is what the field is for."""
    first, other = AttentionHeads(KEYS, maps(), QUERIES).data, AttentionHeads(range(3), maps(2, 3, 3, 3)).data
    page = live_page(browser, "heads", first)
    page.locator(".grid button").nth(3).click()
    page.locator(".view .token").nth(1).click()
    page.mouse.move(0, 0)  # what is said of the refused text moves the tokens along under it
    chosen = status(page)
    page.evaluate(f"view.update({json.dumps(first | {'error': 'too long', 'live': True})})")
    page.get_by_role("alert").get_by_text("too long").wait_for()
    assert status(page) == chosen
    page.evaluate(f"view.update({json.dumps(other | {'live': True})})")
    page.wait_for_function("document.querySelectorAll('.queries .token').length === 3")
    assert page.locator(".grid button").nth(3).get_attribute("aria-pressed") == "true"
