import numpy as np
import pytest
import torch

from coursekit.nn.attention import attend
from coursekit.viz import QKV
from tests.viz.page import numbers, page_of, status

TOKENS = ["the", "cat", "sat", "the", "mat"]


def arrays(T: int = 5, Dh: int = 4, Dv: int = 3, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(T, size)) * 1.5 for size in (Dh, Dh, Dv)]


MASK = np.array([[1, 1, 0, 0, 1], [0, 0, 0, 0, 0], [1, 1, 1, 0, 0], [0, 0, 0, 1, 0], [1, 1, 1, 1, 1]], dtype=bool)


@pytest.mark.parametrize("mask", [None, MASK])
def test_the_step_is_that_of_the_course(mask):
    q, k, v = arrays()
    four = (torch.tensor(x)[None, None] for x in (q, k, v))
    output, weights = attend(*four, mask=None if mask is None else torch.tensor(mask), need_weights=True)
    step = QKV(TOKENS, q, torch.tensor(k), v, mask=mask)
    np.testing.assert_allclose(step.weights, weights[0, 0], atol=1e-6)
    np.testing.assert_allclose(step.output, output[0, 0], atol=1e-6)
    if mask is not None:
        assert (step.weights[~mask] == 0).all()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"query": np.ones((5, 17)), "key": np.ones((5, 17))}, "each query has 17 entries: at most 16"),
        ({"tokens": "abcd"}, r"query has shape \(5, 4\), but 4 tokens need"),
        ({"tokens": range(17)}, "17 tokens: between 1 and 16"),
        ({"tokens": []}, "0 tokens"),
        ({"key": np.ones((5, 3))}, r"query \(5, 4\) and key \(5, 3\) must have one shape"),
        ({"value": np.ones(5)}, r"value has shape \(5,\)"),
        ({"value": np.full((5, 2), np.nan)}, "value must be finite"),
        ({"position": 5}, r"position=5: must lie in 0\.\.4"),
        ({"mask": np.zeros((5, 5))}, "a mask of float64 was given: it must be boolean"),
        ({"mask": np.ones((5, 4), dtype=bool)}, r"mask has shape \(5, 4\)"),
    ],
)
def test_bad_input(change, says):
    q, k, v = arrays()
    with pytest.raises(ValueError, match=says):
        QKV(**{"tokens": TOKENS, "query": q, "key": k, "value": v} | change)


def test_static_numbers():
    q, k, v = arrays()
    html = QKV(TOKENS, q, k, v, position=2, mask=MASK).static_html()
    weight = np.exp(q[2] @ k[1] / 2) / np.exp(k[:3] @ q[2] / 2).sum()
    for number in (q[2] @ k[1], q[2] @ k[1] / 2, weight, v[1, 2]):
        assert f">{number:.2f}</td>" in html
    assert "the (masked)" in html


def cells(row) -> list[float]:
    return numbers(row.locator(".cell").all_inner_texts())


@pytest.mark.browser
@pytest.mark.parametrize("masked", [False, True])
def test_every_stage_shows_the_numbers_of_every_query(browser, masked):
    q, k, v = arrays()
    step = QKV(TOKENS, q, k, v, position=1, mask=MASK if masked else None)
    page = page_of(browser, step._repr_html_())
    rows = page.locator("tbody tr:not(.query):not(.output)")
    queries = page.get_by_role("group", name="Query").get_by_role("button")
    assert queries.nth(1).get_attribute("aria-pressed") == "true"

    def column(kind: str) -> list[float]:
        return numbers(rows.locator(kind).all_inner_texts())

    def close(shown, wanted, digits=2):
        np.testing.assert_allclose(shown, wanted, atol=0.501 * 10**-digits)

    for t in range(5):
        queries.nth(t).click()
        page.get_by_role("button", name="1 Query, keys").click()
        close(cells(page.locator("tr.query")), q[t])
        for s in range(5):
            close(cells(rows.nth(s)), k[s])
        page.get_by_role("button", name="Next stage").click()
        close(column("td.number"), step.scores[t])
        for s in range(5):
            rows.nth(s).hover()
            close(cells(page.locator("tr.products")), q[t] * k[s])
            close(numbers([page.locator("tr.products .number").inner_text()]), q[t] @ k[s])
            assert "4 products that add up to" in status(page)
        page.get_by_role("button", name="3 Scaled").click()
        both = column("td.number")
        close(both[::2], step.scores[t])
        close(both[1::2], step.scaled[t])
        page.get_by_role("button", name="4 Softmax").click()
        close(column("td.weight"), step.weights[t], digits=3)
        texts = rows.locator("td.weight").all_inner_texts()
        assert [text == "0" for text in texts] == (~MASK[t] if masked else np.zeros(5, dtype=bool)).tolist()
        nothing = masked and not MASK[t].any()
        assert ("may attend to nothing" if nothing else "add up to 1") in status(page)
        page.get_by_role("button", name="5 Output").click()
        for s in range(5):
            close(cells(rows.nth(s)), step.weights[t, s] * v[s])
        rows.nth(4).hover()
        close(cells(page.locator("tr.value")), v[4])
        close(cells(page.locator("tr.output")), step.output[t])
    assert page.errors == []


@pytest.mark.browser
def test_keys_step_through_stages_and_queries(browser):
    page = page_of(browser, QKV(TOKENS, *arrays(), position=2)._repr_html_())
    current = page.locator("[aria-current=step]")
    pressed = page.get_by_role("group", name="Query").locator("[aria-pressed=true]")
    page.get_by_role("button", name="1 Query, keys").focus()
    for key, stage, token in [
        ("ArrowRight", "2 Scores", "sat"),
        ("ArrowUp", "2 Scores", "cat"),
        ("End", "5 Output", "cat"),
        ("ArrowRight", "5 Output", "cat"),
        ("ArrowDown", "5 Output", "sat"),
        ("ArrowLeft", "4 Softmax", "sat"),
        ("Home", "1 Query, keys", "sat"),
        ("ArrowLeft", "1 Query, keys", "sat"),
    ]:
        page.keyboard.press(key)
        assert (current.inner_text(), pressed.inner_text()) == (stage, token)
    page.get_by_role("button", name="2 Scores").focus()
    page.keyboard.press("Enter")
    page.locator("tbody th button").nth(0).focus()
    page.keyboard.press("Tab")
    assert "key ‘cat’" in status(page)
    page.keyboard.press("ArrowRight")
    assert current.inner_text() == "3 Scaled"
    page.keyboard.press("ArrowRight")
    assert current.inner_text() == "4 Softmax", "the keys go on although the focused row was drawn anew"


@pytest.mark.browser
def test_equal_tokens_are_told_apart(browser):
    page = page_of(browser, QKV(TOKENS, *arrays(), position=3)._repr_html_())
    assert "‘the’ (3)" in status(page)
