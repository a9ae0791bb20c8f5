import re

import numpy as np
import pytest
import torch

from coursekit.nn.attention import attend
from coursekit.nn.rotary import rotary_angles, rotary_frequencies, rotate
from coursekit.viz import Rotary
from tests.viz.page import (
    EVIL,
    accessible,
    fits_a_phone,
    harmless,
    keeps_its_keys,
    live_page,
    numbers,
    page_of,
    status,
    table_rows,
    tell,
    violations,
)

q, k = np.random.default_rng(0).normal(size=(2, 8)) * 1.5


def turned(x: np.ndarray, position: int, base: float) -> torch.Tensor:
    """A vector with the rotary position that ``coursekit.nn.rotary`` gives it."""
    cos, sin = rotary_angles(torch.tensor([position]), rotary_frequencies(len(x), base))
    return rotate(torch.tensor(x, dtype=torch.float32)[None, None, None], cos, sin)[0, 0, 0]


def wanted(q: np.ndarray, k: np.ndarray, m: int, n: int, base: float) -> tuple[np.ndarray, float]:
    """The product of each pair, and the score."""
    products = turned(q, m, base) * turned(k, n, base)
    return products.view(2, -1).sum(dim=0).numpy(), float(products.sum() / len(q) ** 0.5)


# --- Python ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "n"), [(0, 0), (40, 25), (3, 60), (4096, 4000), (4096, 0)])
@pytest.mark.parametrize("base", [10_000.0, 500_000, 7.5])
def test_the_numbers_are_those_of_the_course(base, m, n):
    for size in (2, 8, 16):
        a, b = np.random.default_rng(size).normal(size=(2, size))
        widget = Rotary(torch.tensor(a, requires_grad=True), b.tolist(), base, m, n)
        products, score = wanted(a, b, m, n, base)
        np.testing.assert_allclose(widget.theta, rotary_frequencies(size, base), rtol=1e-5)
        np.testing.assert_allclose(widget.products, products, atol=1e-3)
        assert widget.score == pytest.approx(score, abs=1e-3)


def test_the_score_is_that_of_attention_before_the_softmax():
    """Two keys of one query: the logarithm of the ratio of their weights is the difference of their scores."""
    keys = torch.stack([turned(k, n, 10_000.0) for n in (3, 9)])[None, None]
    query = turned(q, 11, 10_000.0)[None, None, None]
    _, weights = attend(query, keys, keys, need_weights=True)
    near, far = weights[0, 0, 0].log().tolist()
    scores = [Rotary(q, k, m=11, n=n).score for n in (3, 9)]
    assert near - far == pytest.approx(scores[0] - scores[1], abs=1e-4)


def test_by_default_arrows_of_length_one_point_right_at_position_0():
    widget = Rotary(m=7, n=4)
    np.testing.assert_allclose(widget.products, np.cos(3 / 10.0 ** np.arange(4)), rtol=1e-12)
    assert widget.score_at(0) == pytest.approx(4 / np.sqrt(8))
    np.testing.assert_array_equal(Rotary(q).k, q)
    np.testing.assert_array_equal(Rotary(k=k).q, k)


def test_a_base_of_its_own_is_offered_beside_the_others():
    assert Rotary(base=1e6).data["bases"] == [10_000, 500_000, 1_000_000]
    assert Rotary(base=1e6).data["base"] == 2
    assert Rotary(base=500_000).data["bases"] == [10_000, 500_000]


def test_the_sliders_reach_the_positions():
    def reach(m, n):
        data = Rotary(m=m, n=n).data
        return data["ranges"][data["range"]]

    assert [reach(64, 0), reach(0, 65), reach(513, 3), reach(4096, 4096)] == [64, 512, 4096, 4096]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"q": q[:7]}, "q has 7 entries: must have an even number, since entries turn in pairs"),
        ({"q": []}, "q has 0 entries: must have an even number"),
        ({"k": np.ones(18)}, "k has 9 pairs of entries: at most 8 can be read, so show some of them"),
        ({"k": k[:6]}, "q has 8 entries and k 6: both must have as many"),
        ({"q": q[None]}, r"q has shape \(1, 8\): must be \(Dh,\), one vector"),
        ({"q": 3.0}, r"q has shape \(\): must be \(Dh,\), one vector"),
        ({"q": "abc"}, "q must be a vector of numbers"),
        ({"k": [1.0, np.nan]}, "k must be finite and below a million"),
        ({"k": [1.0, 1e39]}, "k must be finite and below a million"),
        ({"m": -1}, r"m=-1: a position must be a whole number in 0\.\.4096"),
        ({"n": -3}, r"n=-3: a position must be a whole number in 0\.\.4096"),
        ({"n": 4097}, r"n=4097: a position must be a whole number in 0\.\.4096"),
        ({"m": 2.5}, r"m=2\.5: a position must be a whole number"),
        ({"m": True}, "m=True: a position must be a whole number"),
        ({"base": 1}, "base=1: must be a number above 1, such as 10_000"),
        ({"base": float("inf")}, "base=inf: must be a number above 1"),
        ({"base": float("nan")}, "base=nan: must be a number above 1"),
        ({"base": "10000"}, "base='10000': must be a number above 1"),
    ],
)
def test_bad_input(change, says):
    with pytest.raises(ValueError, match=says) as refused:
        Rotary(**{"q": q, "k": k} | change)
    assert "\n" not in str(refused.value)


# --- in the browser -------------------------------------------------------------------------------------------


def open_page(browser, widget, **kwargs):
    page = page_of(browser, widget._repr_html_(), **kwargs)
    page.locator(".ck [aria-live]").wait_for()
    return page


def slider(page, name: str):
    return page.get_by_role("slider", name=name)


def positions(page) -> tuple[int, int]:
    return int(slider(page, "Query position m").input_value()), int(slider(page, "Key position n").input_value())


def exact(page, css: str) -> list[float]:
    return [float(x) for x in page.locator(css).evaluate_all("all => all.map((x) => x.title)")]


def arrow_of(page, kind: str) -> np.ndarray:
    """Where each pair's arrow ends, in units of the dial's radius, upwards counted as above 0: (pairs, 2)."""
    tips = page.locator(f"figure .{kind} path").evaluate_all(
        "all => all.map((path) => path.getAttribute('d').slice(1).split('L')[0].split(' ').map(Number))"
    )
    return np.array(tips) * [1, -1] / 92


def drawn(page) -> tuple[np.ndarray, np.ndarray]:
    """The curve: distances and scores, read off the axes; 0 and the other lines of the scale say what is where."""
    points = page.locator(".plot polyline").get_attribute("points").split()
    x, y = np.array([list(map(float, point.split(","))) for point in points]).T
    texts = page.locator(".plot text.quiet").evaluate_all(
        "all => all.map((t) => [t.textContent, t.getAttribute('text-anchor'), Number(t.getAttribute('x'))])"
    )
    far = max(int(text.replace(",", "")) for text, anchor, _ in texts if anchor == "middle" and "−" not in text)
    lines = page.locator(".plot line[stroke='var(--line)']").evaluate_all(
        "all => all.map((l) => Number(l.getAttribute('y1')))"
    )
    return np.interp(x, [x[0], x[-1]], [-far, far]), (y, lines)


def shows(page, q, k, m, n, base, atol=1e-3) -> None:
    """Products, sum, score and arrows are those of ``coursekit.nn.rotary``."""
    assert positions(page) == (m, n)
    products, score = wanted(q, k, m, n, base)
    np.testing.assert_allclose(exact(page, ".product .number"), products, atol=atol)
    np.testing.assert_allclose(exact(page, ".sum .number"), [score], atol=atol)
    np.testing.assert_allclose(
        numbers(page.locator(".product .number").all_inner_texts()), products, atol=0.00501 + atol
    )
    assert numbers([page.locator(".sum .number").inner_text()])[0] == pytest.approx(score, abs=0.00501 + atol)
    said = page.locator(".sum span").first.inner_text()
    assert numbers([said.split(" = ")[-1]])[0] == pytest.approx(products.sum(), abs=0.00501 + atol)
    reach = max(np.hypot(*x.reshape(2, -1)).max() for x in (q, k))
    for kind, x, position in (("query", q, m), ("key", k, n)):
        tips = turned(x, position, base).view(2, -1).T.numpy() / reach
        np.testing.assert_allclose(arrow_of(page, kind), tips, atol=atol)
    for found, (a, b) in zip(page.locator(".cosine").all_inner_texts(), zip(q.reshape(2, -1).T, k.reshape(2, -1).T)):
        here, there, angle = re.fullmatch(r"(\S+) × (\S+) × cos (\d+)°", found).groups()
        np.testing.assert_allclose([float(here), float(there)], [np.hypot(*a), np.hypot(*b)], atol=0.00501)
        assert 0 <= int(angle) <= 180
    track = page.locator(".track").evaluate_all("""all => all.map((el) => {
      const [frame, bar] = [el, el.firstChild].map((one) => one.getBoundingClientRect());
      const middle = frame.left + frame.width / 2;
      return [(bar.left - middle) / (frame.width / 2 - 1), (bar.right - middle) / (frame.width / 2 - 1)];
    })""")
    most = (np.hypot(*q.reshape(2, -1)) * np.hypot(*k.reshape(2, -1))).max()
    np.testing.assert_allclose(track, [sorted([0, x / most]) for x in products], atol=0.01)


@pytest.mark.browser
@pytest.mark.parametrize("given", [False, True], ids=["default", "given"])
def test_every_number_is_that_of_the_course(browser, given):
    widget = Rotary(q, k) if given else Rotary()
    a, b = widget.q, widget.k
    page = open_page(browser, widget)
    shows(page, a, b, 40, 25, 10_000.0)
    for m, n in [(0, 0), (64, 0), (3, 64)]:
        slider(page, "Query position m").fill(str(m))
        slider(page, "Key position n").fill(str(n))
        shows(page, a, b, m, n, 10_000.0)
    page.get_by_role("button", name="500,000").click()
    shows(page, a, b, 3, 64, 500_000.0)
    assert status(page).startswith("With base 500,000, query at position 3 and key at 64: distance −61, score ")
    page.get_by_role("button", name="4,096").click()
    for m, n in [(4096, 3), (4001, 4096)]:
        slider(page, "Query position m").fill(str(m))
        slider(page, "Key position n").fill(str(n))
        shows(page, a, b, m, n, 500_000.0)
    page.get_by_role("button", name="512").click()
    shows(page, a, b, 512, 512, 500_000.0)
    assert page.errors == []
    assert page.requests == ["http://ck.test/"]


@pytest.mark.browser
def test_speeds_are_those_of_the_course(browser):
    page = open_page(browser, Rotary(base=500_000))
    theta = rotary_frequencies(8, 500_000).numpy()
    captions = [text.splitlines() for text in page.locator("figcaption").all_inner_texts()]
    assert [lines[0] for lines in captions] == [f"pair {i}: entries {i}, {i + 4}" for i in range(4)]
    found = [[float(line.split()[-1].replace(",", "")) for line in lines[1:]] for lines in captions]
    np.testing.assert_allclose(np.transpose(found), [theta, 2 * np.pi / theta], rtol=5e-3)


@pytest.mark.browser
def test_shifting_both_leaves_the_score_and_moving_one_does_not(browser):
    page = open_page(browser, Rotary(q, k, m=12, n=5))
    before, arrows = exact(page, ".sum .number"), arrow_of(page, "query")
    both = slider(page, "Shift both")
    assert (both.input_value(), both.get_attribute("max"), both.get_attribute("aria-valuetext")) == (
        "5",
        "57",
        "m − n = 7",
    )
    both.focus()
    for key, place in [("ArrowRight", (13, 6)), ("End", (64, 57)), ("Home", (7, 0)), ("ArrowUp", (8, 1))]:
        page.keyboard.press(key)
        assert positions(page) == place
        np.testing.assert_allclose(exact(page, ".sum .number"), before, atol=1e-9)
        assert status(page) == (
            f"Both shifted to m = {place[0]}, n = {place[1]}: the distance is still 7, the score still {before[0]:.2f}."
        ).replace("-", "−")
    assert np.abs(arrow_of(page, "query") - arrows).max() > 0.1
    shows(page, q, k, 8, 1, 10_000.0)
    for name, place in [("Query position m", (9, 1)), ("Key position n", (9, 2))]:
        slider(page, name).focus()
        page.keyboard.press("ArrowRight")
        assert positions(page) == place
        assert slider(page, name).get_attribute("aria-valuetext") in ("m = 9", "n = 2")
        distance = place[0] - place[1]
        assert status(page).startswith(
            f"Query at position {place[0]} and key at {place[1]}: distance {distance}, score "
        )
    slider(page, "Query position m").fill("8")
    assert abs(exact(page, ".sum .number")[0] - before[0]) > 0.01, "another distance, another score"


@pytest.mark.browser
@pytest.mark.parametrize("last", [64, 512, 4096])
def test_the_curve_is_the_score_of_each_distance(browser, last):
    widget = Rotary(q, k)
    page = open_page(browser, widget)
    page.get_by_role("button", name=f"{last:,}").click()
    for base in (10_000, 500_000):
        page.get_by_role("button", name=f"{base:,}").click()
        distances, (heights, lines) = drawn(page)
        fine = np.rint(distances * 4) / 4  # steps of a quarter, a half or a whole
        np.testing.assert_allclose(distances, fine, atol=0.01)
        distances = fine
        whole = distances[distances == np.rint(distances)]
        np.testing.assert_array_equal(whole, np.arange(-last, last + 1), "each distance is a point of the curve")
        one = Rotary(q, k, base=base)
        scores = np.array([one.score_at(d) for d in distances])
        every = [Rotary(q, k, base=b).score_at(d) for b in (10_000, 500_000) for d in distances]
        low, high = min(0, *every), max(0, *every)
        shown = np.interp(heights, [min(lines), max(lines)], [high, low])
        np.testing.assert_allclose(shown, scores, atol=0.002 * (high - low))
        point = page.locator(".plot circle")
        x, y = (float(point.get_attribute(name)) for name in ("cx", "cy"))
        assert np.interp(y, [min(lines), max(lines)], [high, low]) == pytest.approx(one.score, abs=1e-3 * (high - low))
        points = page.locator(".plot polyline").get_attribute("points").split()
        ends = [float(points[i].split(",")[0]) for i in (0, -1)]
        assert np.interp(x, ends, [-last, last]) == pytest.approx(15, abs=0.02 * last / 64)
        assert page.locator(".plot text.here").text_content() == f"m − n = 15: {one.score:.2f}".replace("-", "−")


@pytest.mark.browser
def test_keyboard_alone_is_enough(browser):
    page = open_page(browser, Rotary())
    page.get_by_role("button", name="10,000").focus()
    seen = []
    for _ in range(5):
        seen.append(page.evaluate("document.activeElement.ariaLabel ?? document.activeElement.textContent"))
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid" or len(seen) == 1, "the focus can be seen"
        page.keyboard.press("Tab")
    assert seen == ["10,000", "64", "Query position m", "Key position n", "Shift both"]
    page.get_by_role("button", name="10,000").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("[aria-pressed=true]").all_inner_texts() == ["500,000", "64"]
    page.keyboard.press("Tab")
    page.keyboard.press("End")
    assert page.locator("[aria-pressed=true]").all_inner_texts() == ["500,000", "4,096"]
    page.keyboard.press("Tab")
    page.keyboard.press("End")
    assert positions(page) == (4096, 25)
    keeps_its_keys(page, slider(page, "Shift both"), ["ArrowUp", "ArrowLeft", "Home", "PageDown"])
    page = open_page(browser, Rotary())
    keeps_its_keys(page, page.get_by_role("button", name="10,000"), ["ArrowRight", "ArrowLeft", "End", "Home"])


@pytest.mark.browser
def test_dials_are_told_to_those_who_do_not_see_them(browser):
    page = open_page(browser, Rotary(m=3, n=60))
    names = page.get_by_role("img").evaluate_all(
        "all => all.map((svg) => svg.ariaLabel ?? svg.getAttribute('aria-label'))"
    )
    turns = [[round(np.degrees(place * theta)) % 360 for place in (3, 60)] for theta in 10.0 ** -np.arange(4)]
    assert names == [f"pair {i}: the query points to {a}°, the key to {b}°" for i, (a, b) in enumerate(turns)]


@pytest.mark.browser
def test_of_two_arrows_in_one_place_both_are_seen(browser):
    page = open_page(browser, Rotary(m=5, n=5))
    for dial in page.locator("figure svg").all():
        kinds = dial.locator("g").evaluate_all("all => all.map((g) => g.getAttribute('class'))")
        assert kinds == ["query", "key"], "the thin dashed one above"
    long, short = np.array([3.0, 0, 0, 0]), np.array([1.0, 0, 0, 0])
    page = open_page(browser, Rotary(short, long, m=5, n=5))
    assert page.locator("figure").first.locator("g").evaluate_all("all => all.map((g) => g.getAttribute('class'))") == [
        "key",
        "query",
    ]
    hidden = (
        page.locator("figure").nth(1).locator("g").evaluate_all("all => all.map((g) => g.getAttribute('visibility'))")
    )
    assert hidden == ["hidden", "hidden"], "a pair of zeros has no arrow"
    assert page.errors == []


@pytest.mark.browser
def test_only_zeros_are_shown_as_well(browser):
    page = open_page(browser, Rotary(np.zeros(4)))
    assert exact(page, ".product .number") == [0, 0]
    assert page.locator(".sum .number").inner_text() == "0.00"
    assert "NaN" not in page.locator(".ck").inner_html()
    assert page.errors == []


@pytest.mark.browser
def test_a_live_view_follows_its_kernel(browser):
    page = live_page(browser, "rotary", Rotary().data)
    shows(page, Rotary().q, Rotary().k, 40, 25, 10_000.0)
    tell(page, Rotary(q[:6], k[:6], base=2e6, m=700, n=2, title="other").data)
    shows(page, q[:6], k[:6], 700, 2, 2e6)
    assert page.locator(".ck strong").inner_text() == "other"
    assert page.locator("[aria-pressed=true]").all_inner_texts() == ["2,000,000", "4,096"]
    assert page.evaluate("window.sent") == [], "there is nothing to ask"


@pytest.mark.browser
def test_static_numbers(browser):
    page = page_of(browser, Rotary(q, k, m=11, n=4)._repr_html_(), scripts=False)
    pairs, scores = page.locator("table").all()
    products, score = wanted(q, k, 11, 4, 10_000.0)
    rows = table_rows(pairs)
    assert [row[0] for row in rows[:4]] == [f"{i}: entries {i}, {i + 4}" for i in range(4)]
    np.testing.assert_allclose([float(row[-1]) for row in rows], [*products, products.sum(), score], atol=0.00501)
    for column, x, place in ((3, q, 11), (4, k, 4)):
        a, b = turned(x, place, 10_000.0).view(2, -1).numpy()
        found = [float(row[column].removesuffix("°")) for row in rows[:4]]
        np.testing.assert_allclose(np.cos(np.radians(found) - np.arctan2(b, a)), 1, atol=1e-4)
    (row,) = table_rows(scores)
    distances = [int(text) for text in scores.locator("thead th").all_inner_texts()[1:]]
    np.testing.assert_allclose(
        [float(x) for x in row[1:]], [wanted(q, k, d, 0, 10_000.0)[1] for d in distances], atol=0.00501
    )


LARGE = Rotary(*np.random.default_rng(1).normal(size=(2, 16)) * 300, base=123_456.789, m=4096, n=1234, title=EVIL)


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("widget", [Rotary(), LARGE], ids=["plain", "large"])
def test_accessible_in_both_themes(browser, widget, scheme):
    page = accessible(browser, widget, scheme)
    page.get_by_role("button", name="500,000").click()
    slider(page, "Shift both").focus()
    page.keyboard.press("ArrowLeft")
    assert violations(page) == []


@pytest.mark.browser
@pytest.mark.parametrize("scripts", [True, False])
@pytest.mark.parametrize("widget", [Rotary(), LARGE], ids=["plain", "large"])
def test_a_phone_is_wide_enough(browser, widget, scripts):
    fits_a_phone(
        browser,
        widget,
        scripts,
        lambda page: page.get_by_role("button", name="4,096").click(),
        lambda page: slider(page, "Key position n").fill("4096"),
        lambda page: slider(page, "Query position m").fill("7"),
    )


@pytest.mark.browser
def test_a_projector_shows_all_of_it_at_once(browser):
    """800 pixels wide, four pairs fit a screen, and nothing that is to be read is below 14 pixels."""
    page = open_page(browser, Rotary(), width=800)
    size = page.locator(".ck").bounding_box()
    assert size["width"] <= 784
    assert size["height"] <= 760
    tops = page.locator("figure").evaluate_all("all => all.map((f) => f.getBoundingClientRect().top)")
    assert len(set(tops)) == 1, "four dials in a row"
    sizes = page.locator(".ck *").evaluate_all(
        "all => all.filter((e) => [...e.childNodes].some((c) => c.nodeType === 3 && c.data.trim()))"
        ".map((e) => parseFloat(getComputedStyle(e).fontSize))"
    )
    assert min(sizes) >= 14


@pytest.mark.browser
def test_the_title_is_text(browser):
    page = open_page(browser, LARGE)
    harmless(page, ".ck img, .ck strong *")
    assert page.locator(".ck strong").inner_text() == EVIL
