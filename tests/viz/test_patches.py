import base64
import zlib

import numpy as np
import pytest
import torch

from coursekit.evaluate import attention_rollout
from coursekit.viz import Patches, patches
from coursekit.viz.images import checked_image, outline
from coursekit.viz.patches import grid_and_front, share_on
from tests.viz.page import (
    EVIL,
    accessible,
    asked_of,
    fits,
    harmless,
    keeps_its_keys,
    live_page,
    page_of,
    refusing,
    status,
    tell,
    told,
)

RNG = np.random.default_rng(0)
IMAGE = RNG.integers(0, 256, (3, 8, 12), dtype=np.uint8)  # six patches of 4 x 4: two rows, three columns
MASK = np.zeros((8, 12), dtype=bool)
MASK[2:6, 3:7] = True


def maps(L: int = 2, H: int = 3, T: int = 7, std: float = 2) -> np.ndarray:
    e = np.exp(np.random.default_rng(1).normal(size=(L, H, T, T)) * std)
    return e / e.sum(-1, keepdims=True)


def unpacked(packed: dict) -> np.ndarray:
    values = np.frombuffer(zlib.decompress(base64.b64decode(packed["deflated"])), dtype=np.uint8)
    return values.reshape(packed["shape"])


def rollout_of(weights: np.ndarray) -> torch.Tensor:
    return attention_rollout([torch.tensor(layer)[None] for layer in weights])[0]


def patches_with_rollout(image, attention, mask=None, **first) -> Patches:
    return Patches(image, attention, rollout_of(attention), mask, **first)


def test_each_weight_is_held_within_the_bound_with_means_and_rollout():
    weights = maps()
    widget = patches_with_rollout(IMAGE, weights, MASK)
    held = unpacked(widget.data["weights"]) * 2 ** (unpacked(widget.data["scales"])[..., None] / -16)
    held = held / widget.data["levels"]
    wanted = np.stack([m for layer in weights for m in (*layer, layer.mean(0))] + [rollout_of(weights).numpy()])
    np.testing.assert_allclose(held, wanted, rtol=0, atol=widget.error + 1e-12)
    assert widget.error <= 1 / 510


def test_tokens_are_the_patches_with_or_without_a_class_token():
    assert grid_and_front(7, 8, 12) == ((2, 3), 1)
    assert grid_and_front(6, 8, 12) == ((2, 3), 0)
    assert grid_and_front(197, 224, 224) == ((14, 14), 1)
    assert grid_and_front(1, 8, 8) == ((1, 1), 0)


def test_share_on_the_object_by_hand():
    weights = RNG.random((5, 6))
    parts = [MASK[r * 4 : r * 4 + 4, c * 4 : c * 4 + 4].mean() for r in range(2) for c in range(3)]
    wanted = (weights * parts).sum(-1) / weights.sum(-1)
    np.testing.assert_allclose(share_on(weights, MASK, (2, 3)), wanted)
    assert share_on(np.zeros((1, 6)), MASK, (2, 3)) == 0


def test_outline_of_one_pixel_is_its_four_sides():
    mask = np.zeros((3, 4), dtype=bool)
    mask[1, 2] = True
    assert outline(mask) == "M2 1h1M2 2h1M2 1v1M3 1v1"


def test_floats_tensors_and_grey_images_are_welcome():
    np.testing.assert_array_equal(checked_image(torch.tensor(IMAGE) / 255), IMAGE.transpose(1, 2, 0))
    assert (checked_image(IMAGE[:1]) == IMAGE[0][..., None]).all()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"image": IMAGE[0]}, r"the image has shape \(8, 12\): must be \(3, height, width\)"),
        ({"image": IMAGE.astype(int)}, "floats in 0..1, or uint8"),
        ({"image": IMAGE / 100}, "undo the model's scaling"),
        ({"attention": maps()[0]}, r"must be \(layers, heads, T, T\)"),
        ({"attention": maps() * 2}, "must be a distribution"),
        ({"attention": maps(T=9)}, "9 tokens: 8 x 12 pixels are not cut into 9 square patches, nor into 8"),
        ({"rollout": np.eye(6)}, r"the rollout has shape \(6, 6\): must be \(7, 7\), of this image alone"),
        ({"rollout": 2 * np.eye(7)}, "each row of the rollout must be a distribution"),
        ({"mask": MASK.T}, r"the mask has shape \(12, 8\): must be \(8, 12\)"),
        ({"mask": MASK.astype(int)}, "must be boolean"),
        ({"layer": 2}, r"layer=2: must lie in 0\.\.1"),
        ({"layer": 0, "head": -1}, r"head=-1: must lie in 0\.\.2"),
        ({"head": 1}, "give layer= too"),
        ({"query": 7}, r"query=7: must lie in 0\.\.6"),
    ],
)
def test_bad_input(change, says):
    with pytest.raises(ValueError, match=says):
        Patches(**{"image": IMAGE, "attention": maps(), "rollout": np.eye(7)} | change)


def test_what_does_not_fit_is_refused_with_what_would_do(monkeypatch):
    monkeypatch.setattr(patches, "ROOM", 9_000)
    with pytest.raises(ValueError, match=r"4 layers of 3 heads on 65 tokens take .* fewer layers \(attention\[-2:\]\)"):
        patches_with_rollout(np.zeros((1, 8, 8)), maps(4, 3, 65))


def open_page(browser, widget, **kwargs):
    page = page_of(browser, widget._repr_html_(), **kwargs)
    page.locator(".ck [aria-live]").wait_for()
    return page


def over(page, row: int, column: int) -> dict[str, float]:
    size = page.locator(".picture").bounding_box()
    return {"x": size["width"] * (column + 0.5) / 3, "y": size["height"] * (row + 0.5) / 2}


@pytest.mark.browser
def test_numbers_are_the_tensors(browser):
    weights = maps()
    widget = patches_with_rollout(IMAGE, weights, MASK, layer=1, head=2)
    page = open_page(browser, widget)
    picture = page.locator(".picture")
    picture.hover(position=over(page, 1, 0))
    peak = int(weights[1, 2, 4].argmax())
    target = "itself" if peak == 4 else widget.name(peak)
    assert status(page).startswith(f"Layer 1, head 2: the patch in row 1, column 0 looks most at {target}, weight ")
    share = share_on(weights[1, 2, 4, 1:], MASK, (2, 3))
    assert f"; {100 * share:.0f} % of its weight on patches lies on the object" in status(page)
    picture.click(position=over(page, 1, 0))
    for row, column in [(0, 0), (0, 2), (1, 1)]:
        picture.hover(position=over(page, row, column))
        s = 1 + 3 * row + column
        assert f"gives the patch in row {row}, column {column} the weight" in status(page)
        assert abs(float(page.locator(".tag").inner_text()) - weights[1, 2, 4, s]) <= 0.00051 + widget.error
    page.get_by_role("button", name="Layer 0, mean of heads").click()
    assert abs(float(page.locator(".class b").inner_text()) - weights[0, :, 4].mean(0)[0]) <= 0.00051 + widget.error
    assert page.errors == []


@pytest.mark.browser
def test_keyboard_alone_is_enough(browser):
    page = open_page(browser, patches_with_rollout(IMAGE, maps()))
    assert status(page).startswith("Rollout: the class token takes most from")
    page.get_by_role("button", name="Rollout").focus()
    page.keyboard.press("ArrowUp")
    assert status(page).startswith("Layer 1, head 0:")
    page.keyboard.press("ArrowDown")
    assert status(page).startswith("Rollout:")
    page.locator(".picture").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "Enter", "ArrowUp"):
        page.keyboard.press(key)
    assert "the patch in row 1, column 1 takes from the patch in row 0, column 1 the weight" in status(page)
    page.keyboard.press("Escape")
    assert "the patch in row 1, column 1 takes most from" in status(page)
    keeps_its_keys(page, page.locator(".picture"), ["ArrowDown", "Enter"])


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessible_in_both_themes(browser, scheme):
    accessible(browser, patches_with_rollout(IMAGE, maps(), MASK, layer=0), scheme)


@pytest.mark.browser
def test_titles_are_text_and_the_static_picture_stays(browser):
    widget = patches_with_rollout(IMAGE, maps(), MASK, title=EVIL)
    page = open_page(browser, widget)
    harmless(page, ".ck img[src=x], .ck strong *")
    assert page.locator(".ck strong").inner_text() == EVIL
    still = page_of(browser, widget._repr_html_(), scripts=False, width=390)
    assert still.get_by_role("img").count() == 2
    fits(still, 390)


@pytest.mark.browser
def test_a_phone_is_wide_enough(browser):
    fits(open_page(browser, patches_with_rollout(IMAGE, maps(12, 12), MASK), width=390), 390)


@pytest.mark.browser
def test_live_a_typed_number_is_sent_and_its_answer_shown(browser):
    page = live_page(browser, "patches", patches_with_rollout(IMAGE, maps()).data)
    field = page.get_by_role("textbox", name="Image")
    field.fill("3")
    field.press("Enter")
    assert page.evaluate("window.sent") == [{"source": "3"}]
    view = patches_with_rollout(IMAGE, maps()).live(
        refusing(lambda text: patches_with_rollout(IMAGE, maps(), layer=1, query=2))
    )
    told(page, view)
    page.wait_for_function("document.querySelector('[aria-live]').textContent.startsWith('Layer 1, mean of heads')")
    tell(page, asked_of(view, {"source": "bad"}))
    page.wait_for_function("document.querySelector('[role=alert]').textContent === 'no <bad> here'")
    assert page.errors == []
