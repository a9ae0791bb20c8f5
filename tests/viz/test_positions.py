import re

import numpy as np
import pytest
from matplotlib import colormaps

from coursekit.nn.positions import binary_code, sinusoidal
from coursekit.viz import Positions
from coursekit.viz.positions import likeness
from tests.viz.page import numbers, page_of, status

T = 12
CODES = {
    "index": np.arange(T)[:, None],
    "binary": binary_code(T, 4),
    "sinusoidal": sinusoidal(T, 16),
    "learned": np.random.default_rng(0).normal(size=(T, 6)) * 0.02,
}


def test_cosine_where_no_position_is_zero():
    assert Positions(CODES).data["cosine"] == [False, False, True, True]


def test_likeness_of_sines_depends_on_the_distance_alone():
    alike = likeness(sinusoidal(40, 16).double().numpy(), cosine=True)
    for distance in range(40):
        assert np.ptp(np.diagonal(alike, distance)) < 1e-6
    np.testing.assert_allclose(np.diagonal(alike), 1)


@pytest.mark.parametrize(
    ("codes", "says"),
    [
        ({}, "codes is empty"),
        ({"a": np.ones((3, 2)), "b": np.ones((4, 2))}, r"the same T, but the shapes are a \(3, 2\), b \(4, 2\)"),
        ({"a": np.ones(3)}, r"each code must be \(T, D\)"),
        ({"a": np.ones((3, 0))}, r"each code must be \(T, D\)"),
        ({"a": np.full((3, 2), np.inf)}, "the code 'a' must be finite"),
        ({"a": np.ones((1000, 300))}, "show fewer positions or entries"),
    ],
)
def test_bad_input(codes, says):
    with pytest.raises(ValueError, match=says):
        Positions(codes)


def test_unknown_beginnings_are_refused():
    with pytest.raises(ValueError, match="name='sine': must be one of the codes, 'index', 'binary'"):
        Positions(CODES, name="sine")
    for position in (-1, T):
        with pytest.raises(ValueError, match=rf"position={position}: must lie in 0..{T - 1}"):
            Positions(CODES, position=position)


@pytest.mark.browser
def test_opens_on_what_it_is_told(browser):
    page = page_of(browser, Positions(CODES, name="sinusoidal", position=7)._repr_html_())
    assert status(page).startswith("sinusoidal: entry 0 of position 7 is ")
    page = page_of(browser, Positions(CODES)._repr_html_())
    assert status(page).startswith("index: entry 0 of position 0 is ")


def test_static_names_ranges_and_likeness():
    html = Positions(CODES, title="<b>")._repr_html_()
    static = html[: html.index("<script")]
    assert static.count('src="data:image/png;base64,') == 4
    assert "binary: 12 positions (downwards) with 4 entries each, dark 0 to light 1" in static
    assert "&lt;b&gt;" in static
    assert "dot product with position 0" in static
    alike = likeness(CODES["sinusoidal"].numpy().astype(float), True)
    assert f"<td style=\"text-align:left\">{alike[0, 5]:.2f}</td>" in static  # fmt: skip


def curve(page, which: int) -> np.ndarray:
    """Heights of a drawn curve, in its own units: 0 at the bottom line, 1 at the top line."""
    svg = page.locator(".ck svg").nth(which)
    points = svg.locator("polyline").get_attribute("points").split()
    levels = [float(line.get_attribute("y1")) for line in svg.locator("line:not([stroke-dasharray])").all()]
    y = np.array([float(point.split(",")[1]) for point in points])
    return (levels[0] - y) / (levels[0] - levels[-1])


@pytest.mark.browser
def test_rows_curves_and_maps_are_the_codes(browser):
    page = page_of(browser, Positions(CODES)._repr_html_())
    slider = page.get_by_role("slider", name="Position")
    for name, code in CODES.items():
        page.get_by_role("button", name=name).click()
        code = np.asarray(code, dtype=float)
        cosine = name in ("sinusoidal", "learned")
        alike = code @ code.T
        if cosine:
            length = np.sqrt(np.diagonal(alike))
            alike = alike / length / length[:, None]
        for t in (0, 7):
            slider.fill(str(t))
            values = page.locator(".strip span").all()
            np.testing.assert_allclose([float(v.get_attribute("data-value")) for v in values], code[t], atol=1e-6)
            low, high = alike.min(), alike.max()
            np.testing.assert_allclose(curve(page, 0), (alike[t] - low) / (high - low), atol=1e-4)
            assert ("cosine" if cosine else "dot product") + f" with position {t}" in page.locator(".ck").inner_text()
        pixels = page.locator("figure canvas").first.evaluate(
            "c => Array.from(c.getContext('2d').getImageData(0, 0, c.width, c.height).data)"
        )
        share = (code - code.min()) / (code.max() - code.min())
        expected = 255 * colormaps["viridis"](share.astype("f4"))
        np.testing.assert_allclose(np.reshape(pixels, (*code.shape, 4)), expected, atol=6)
        caption = page.locator("figcaption").first.inner_text()
        shown = numbers(re.search(r"dark (\S+) to light (\S+)", caption).groups())
        np.testing.assert_allclose(shown, [code.min(), code.max()], atol=0.00501)
    assert page.errors == []


@pytest.mark.browser
def test_keyboard_chooses_position_and_entry(browser):
    page = page_of(browser, Positions(CODES)._repr_html_())
    page.get_by_role("button", name="sinusoidal").focus()
    page.keyboard.press("Enter")
    for key in ["ArrowDown"] * 3 + ["ArrowRight"] * 2 + ["ArrowUp"]:
        page.keyboard.press(key)
    code = CODES["sinusoidal"].numpy()
    assert f"entry 2 of position 2 is {code[2, 2]:.3f}".replace("-", "−") in status(page)
    low, high = code[:, 2].min(), code[:, 2].max()
    wave = curve(page, 1)
    np.testing.assert_allclose((wave - wave.min()) / np.ptp(wave), (code[:, 2] - low) / (high - low), atol=1e-3)
    slider = page.get_by_role("slider", name="Position")
    slider.focus()
    page.keyboard.press("ArrowRight")
    assert slider.input_value() == "3"
    page.keyboard.press("ArrowDown")
    assert slider.input_value() == "2"


@pytest.mark.browser
def test_a_click_in_the_map_chooses_both(browser):
    page = page_of(browser, Positions(CODES)._repr_html_())
    page.get_by_role("button", name="binary").click()
    canvas = page.locator("figure canvas").first
    size = canvas.bounding_box()
    canvas.click(position={"x": size["width"] * 2.5 / 4, "y": size["height"] * 5.5 / T})
    assert status(page).startswith("binary: entry 2 of position 5 is 1.000.")  # 5 = 101 in binary
