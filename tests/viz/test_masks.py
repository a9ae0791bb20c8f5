import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from coursekit.nn.attention import attend
from coursekit.nn.masks import causal_mask, padding_mask
from coursekit.viz import Masks
from coursekit.viz.masks import masked_softmax
from tests.viz.page import page_of, status

TOKENS = ["pad", "a", "b", "c"]
REAL = [False, True, True, True]


def scores(T: int = 4, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(T, T)) * 3


def wanted(raw: np.ndarray, real, causal: bool) -> np.ndarray:
    """The weights that ``attend`` gives: with the identity as keys a query's scores are its entries."""
    T = len(raw)
    query, key = torch.tensor(raw)[None, None] * T**0.5, torch.eye(T, dtype=torch.float64)[None, None]
    return attend(query, key, key, mask=padding_mask(torch.tensor([real])), causal=causal, need_weights=True)[1][0, 0]


@given(st.integers(1, 7), st.integers(0, 10_000), st.sampled_from([1, 30, 1000]))
def test_masked_softmax_is_the_course_s(T, seed, size):
    rng = np.random.default_rng(seed)
    raw, real, causal = rng.normal(size=(T, T)) * size, rng.random(T) < 0.6, bool(seed % 2)
    masks = Masks(range(T), real.tolist(), causal, raw)
    np.testing.assert_allclose(masks.weights, wanted(raw, real.tolist(), causal), atol=1e-9)
    allowed = padding_mask(torch.tensor(real)[None])[0, 0] & (causal_mask(T) if causal else torch.tensor(True))
    assert (masks.allowed == allowed.numpy()).all()
    assert (masks.weights[~masks.allowed] == 0).all()


def test_a_row_without_anything_is_zero_not_nan():
    weights = masked_softmax(np.zeros((2, 3)), np.array([[False] * 3, [True, False, True]]))
    assert weights.tolist() == [[0, 0, 0], [0.5, 0, 0.5]]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tokens": range(25)}, "25 tokens: between 1 and 24"),
        ({"real": [True] * 3}, r"real has shape \(3,\), but 4 tokens need \(4,\)"),
        ({"real": [1, 1, 1, 0]}, "must be boolean"),
        ({"scores": np.zeros((4, 3))}, r"scores have shape \(4, 3\)"),
        ({"scores": np.full((4, 4), -np.inf)}, "scores must be finite"),
    ],
)
def test_bad_input(change, says):
    with pytest.raises(ValueError, match=says):
        Masks(**{"tokens": TOKENS} | change)


def test_static_numbers():
    masks = Masks(TOKENS, REAL, True, scores())
    html = masks.static_html()
    assert html.count("·</td>") == (~masks.allowed).sum()
    assert f">{masks.weights[3, 1]:.2f}</td>" in html
    assert "causal mask, padding: pad" in html
    assert "all weights are 0: pad" in html


def shown(page) -> np.ndarray:
    return np.array([float(td.get_attribute("data-weight")) for td in page.locator(".weights td[data-weight]").all()])


@pytest.mark.browser
def test_every_switch_gives_the_weights_of_the_course(browser):
    raw = scores().astype("f4").astype(float)
    page = page_of(browser, Masks(TOKENS, REAL, True, raw)._repr_html_())
    causal, padding = page.get_by_label("causal mask"), page.get_by_label("padding mask")
    real = list(REAL)

    def check():
        alive = real if padding.is_checked() else [True] * 4
        weights = wanted(raw, alive, causal.is_checked()).numpy()
        np.testing.assert_allclose(shown(page), weights.flatten(), atol=1e-6)
        texts = page.locator(".weights tbody td").all_inner_texts()
        np.testing.assert_allclose([float(text) for text in texts], weights.flatten(), atol=0.00501)
        allowed = np.broadcast_to(alive, (4, 4)) & (np.tri(4, dtype=bool) | (not causal.is_checked()))
        assert [text == "✓" for text in page.locator(".mask tbody td").all_inner_texts()] == allowed.flatten().tolist()
        assert ("Nothing is allowed for" in status(page)) == (not allowed.any(axis=1).all())

    check()
    assert "Nothing is allowed for ‘pad’ (0): a row of zeros" in status(page)
    causal.click()
    check()
    padding.click()
    check()
    padding.click()
    for s in (3, 0, 1, 2):  # c and then a and b become padding, pad becomes real
        page.get_by_role("button", name=TOKENS[s], exact=True).click()
        real[s] = not real[s]
        check()
    page.get_by_role("button", name="pad", exact=True).click()
    real[0] = False
    check()
    assert shown(page).tolist() == [0] * 16
    assert page.errors == []


@pytest.mark.browser
def test_the_keyboard_asks_for_a_cell_and_gets_the_reason(browser):
    page = page_of(browser, Masks(TOKENS, [True, True, True, False])._repr_html_())
    assert status(page).startswith("9 of 16 pairs are allowed.")
    page.get_by_label("padding mask").focus()
    page.keyboard.press("Tab")  # to the tokens
    page.keyboard.press("ArrowDown")
    assert status(page) == "Query ‘pad’ (0) attends to key ‘pad’ (0) with weight 1.000."
    page.keyboard.press("ArrowRight")
    assert status(page) == "Query ‘pad’ (0) may not attend to key ‘a’ (1): it comes later."
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    assert status(page).endswith("key ‘c’ (3): it comes later and it is padding.")
    for _ in range(5):
        page.keyboard.press("ArrowDown")
    assert status(page).endswith("‘c’ (3) may not attend to key ‘c’ (3): it is padding.")
    page.keyboard.press("ArrowLeft")
    assert status(page) == "Query ‘c’ (3) attends to key ‘b’ (2) with weight 0.333."
    page.get_by_label("causal mask").focus()
    page.keyboard.press("Space")
    assert status(page) == "Query ‘c’ (3) attends to key ‘b’ (2) with weight 0.333.", "the cell stays chosen"
    assert page.locator(".mask td.yes").count() == 12
