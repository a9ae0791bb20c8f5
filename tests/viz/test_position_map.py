import base64
import zlib

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from coursekit.viz import PositionMap
from tests.viz.page import EVIL, accessible, fits, harmless, keeps_its_keys, numbers, page_of, status

CODE = np.random.default_rng(0).normal(size=(7, 5))  # a class token and two rows of three


def wanted(code: np.ndarray) -> np.ndarray:
    code = torch.tensor(code)
    return F.cosine_similarity(code[:, None], code[None], dim=-1).numpy()


def test_cosines_are_held_to_16_bits():
    widget = PositionMap(CODE, (2, 3))
    raw = zlib.decompress(base64.b64decode(widget.data["alike"]["deflated"]))
    held = np.frombuffer(raw, dtype="<u2") / 32767 - 1
    np.testing.assert_allclose(held, wanted(CODE[1:])[np.tril_indices(6)], atol=1 / 65534 + 1e-12)


def test_a_square_is_found_with_and_without_a_class_token():
    code = np.random.default_rng(1).normal(size=(17, 4))
    np.testing.assert_array_equal(PositionMap(code).alike, PositionMap(code[1:]).alike)
    assert PositionMap(torch.tensor(code, requires_grad=True)).grid == (4, 4)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"code": CODE[0]}, r"code has shape \(5,\): must be \(N, D\)"),
        ({"grid": None}, r"7 vectors: neither 7 nor 6 positions fill a square; say which with grid="),
        ({"grid": (2, 2)}, r"grid=\(2, 2\): has 4 positions, but code has 7 vectors"),
        ({"code": np.full((7, 5), np.nan)}, "must be finite"),
        ({"code": np.zeros((7, 5))}, "position 0 is a vector of zeros"),
        ({"position": (2, 0)}, r"position=\(2, 0\): must be a row in 0\.\.1 and a column in 0\.\.2"),
        ({"code": np.random.default_rng(0).normal(size=(1024, 4)), "grid": None}, "32 x 32 positions take .* smaller"),
    ],
)
def test_bad_input(change, says):
    with pytest.raises(ValueError, match=says):
        PositionMap(**{"code": CODE, "grid": (2, 3)} | change)


def open_page(browser, widget, **kwargs):
    page = page_of(browser, widget._repr_html_(), **kwargs)
    page.locator(".ck [aria-live]").wait_for()
    return page


@pytest.mark.browser
def test_numbers_keys_and_pointer(browser):
    alike = wanted(CODE[1:])
    page = open_page(browser, PositionMap(CODE, (2, 3), position=(0, 0)))
    every, large = page.locator(".map").all()
    every.focus()
    for key in ("ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    assert status(page).startswith("Most like the position in row 1, column 1 is ")
    shown = numbers(page.locator(".numbers span").all_inner_texts())
    np.testing.assert_allclose(shown, alike[4], atol=0.00502)
    large.focus()
    page.keyboard.press("ArrowLeft")
    assert status(page).startswith("The positions in row 1, column 1 and in row 1, column 0 have the cosine ")
    assert abs(numbers([status(page).split()[-1].rstrip(".")])[0] - alike[4, 3]) <= 0.00052
    size = every.bounding_box()
    every.hover(position={"x": size["width"] * 5 / 6, "y": size["height"] / 4})
    np.testing.assert_allclose(numbers(page.locator(".numbers span").all_inner_texts()), alike[2], atol=0.00502)
    keeps_its_keys(page, every, ["ArrowDown", "ArrowLeft"])
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessible_in_both_themes(browser, scheme):
    accessible(browser, PositionMap(CODE, (2, 3)), scheme)


@pytest.mark.browser
def test_titles_are_text_and_the_static_picture_stays(browser):
    widget = PositionMap(CODE, (2, 3), title=EVIL)
    page = open_page(browser, widget, width=390)
    harmless(page, ".ck img, .ck strong *")
    assert page.locator(".ck strong").inner_text() == EVIL
    fits(page, 390)
    still = page_of(browser, widget._repr_html_(), scripts=False, width=390)
    assert still.get_by_role("img").count() == 1
    assert still.locator("table").count() == 1
    fits(still, 390)
