"""What holds for each widget of the lectures on self-attention, the Transformer and today's decoder."""

import numpy as np
import pytest
import torch
from torch import nn

from coursekit.viz import QKV, AttentionHeads, Flow, Masks, Positions, Rotary
from tests.viz.page import page_of, status, themed, violations

pytestmark = pytest.mark.browser

EVIL = ["</script><script>window.hacked=1</script>", "<img src=x onerror='window.hacked=1'>", '"quote"', "é"]


def small() -> dict[str, object]:
    rng = np.random.default_rng(0)
    weights = rng.random((2, 2, 4, 4))
    model = nn.Sequential(nn.Linear(4, 8), nn.Sequential(nn.ReLU(), nn.Linear(8, 3)))
    return {
        "QKV": QKV(EVIL, *rng.normal(size=(3, 4, 5)), mask=np.tri(4, dtype=bool), position=2),
        "AttentionHeads": AttentionHeads(EVIL, weights / weights.sum(-1, keepdims=True)),
        "Masks": Masks(EVIL, [False, True, True, True]),
        "Positions": Positions({EVIL[0]: rng.normal(size=(9, 3)), "wide": rng.normal(size=(9, 40))}),
        "Flow": Flow.trace(model, torch.ones(2, 4)),
        "Rotary": Rotary(title=EVIL[0]),
    }


def large() -> dict[str, object]:
    rng = np.random.default_rng(0)
    words = [f"longword{i}" for i in range(16)]
    weights = rng.random((12, 12, 40, 40))
    deep = nn.Sequential(*[nn.Sequential(nn.Linear(40, 40), nn.Tanh()) for _ in range(20)])
    return {
        "QKV": QKV(words, *rng.normal(size=(3, 16, 16)) * 9),
        "AttentionHeads": AttentionHeads(range(40), weights / weights.sum(-1, keepdims=True)),
        "Masks": Masks([*words, *words[:8]]),
        "Positions": Positions({"a": rng.normal(size=(128, 256))}),
        "Flow": Flow.trace(deep, torch.randn(2, 30, 40, generator=torch.Generator().manual_seed(0))),
        "Rotary": Rotary(*rng.normal(size=(2, 16)) * 300, base=123_456.789, m=4096, n=1234),
    }


SMALL, LARGE = small(), large()
NAMES = list(SMALL)
# keys that lead through the states of each widget, from its first control on
WAYS = {
    "QKV": ["ArrowRight"] * 4,
    "AttentionHeads": ["ArrowDown", "Tab", "Tab", "Enter"],
    "Masks": ["Space", "Tab", "Tab", "Enter"],
    "Positions": ["Enter", "ArrowDown", "ArrowRight"],
    "Flow": ["ArrowDown"] * 3,
    "Rotary": ["ArrowRight", "Tab", "ArrowRight", "Tab", "ArrowLeft", "Tab", "ArrowLeft", "Tab", "ArrowLeft"],
}
FIRST = {
    "QKV": ".stages button[aria-current]",
    "AttentionHeads": ".grid button",
    "Masks": "input",
    "Positions": "button",
    "Flow": "[role=treeitem]",
    "Rotary": "[aria-label=Base] button[aria-pressed=true]",
}


def ready(page):
    page.locator(".ck [aria-live]").first.wait_for()
    return page


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", ["small", "large"])
@pytest.mark.parametrize("name", NAMES)
def test_accessible_in_both_themes_in_every_state(browser, name, size, scheme):
    widget = {"small": SMALL, "large": LARGE}[size][name]
    page = ready(page_of(browser, themed(widget, scheme), scheme=scheme))
    assert page.locator(".ck[data-dark]").count() == (scheme == "dark")
    assert violations(page, scheme=scheme) == []
    page.locator(".ck").locator(FIRST[name]).first.focus()
    said = [status(page)]
    for key in WAYS[name]:
        page.keyboard.press(key)
        said.append(status(page))
        assert violations(page, scheme=scheme) == []
    assert len(set(said)) > 1, "the keys change what is said"
    assert page.errors == []


@pytest.mark.parametrize("name", NAMES)
def test_static_is_accessible_and_there_without_scripts(browser, name):
    page = page_of(browser, SMALL[name]._repr_html_(), scripts=False)
    assert page.locator("[data-ck] table, [data-ck] img").count() >= 1
    assert page.locator("[data-ck] img:not([alt])").count() == 0
    assert page.locator("[data-ck]").inner_text().strip()
    assert page.locator(".ck").count() == 0


@pytest.mark.parametrize("scripts", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_a_phone_is_wide_enough(browser, name, scripts):
    page = page_of(browser, LARGE[name]._repr_html_(), width=400, scripts=scripts)
    if scripts:
        ready(page)
        page.locator(".ck").locator(FIRST[name]).first.focus()
    for key in [None, *WAYS[name]] if scripts else [None]:
        if key:
            page.keyboard.press(key)
        assert page.evaluate("document.documentElement.scrollWidth") <= 400


@pytest.mark.parametrize("name", NAMES)
def test_tokens_are_text_and_nothing_is_fetched(browser, name):
    page = ready(page_of(browser, SMALL[name]._repr_html_()))
    assert page.evaluate("window.hacked") is None
    assert page.requests == ["http://ck.test/"]
    assert page.errors == []
    if name != "Flow":
        assert page.get_by_text(EVIL[0], exact=True).count() >= 1


def test_all_on_one_page_keep_to_themselves(browser):
    """Each twice: they neither answer each other's keys nor take each other's styles."""
    looks = """box => Array.from(box.querySelectorAll('*')).map(el => {
      const {color, fontSize, width, display, padding} = getComputedStyle(el);
      return [el.tagName, color, fontSize, width, display, padding].join(' ');
    })"""
    alone = {}
    for name in NAMES:
        alone[name] = ready(page_of(browser, SMALL[name]._repr_html_())).locator(".ck").evaluate(looks)
    page = page_of(browser, "".join(SMALL[name]._repr_html_() * 2 for name in NAMES))
    page.wait_for_function(f"document.querySelectorAll('.ck [aria-live]').length === {2 * len(NAMES)}")
    page.wait_for_timeout(200)
    boxes = page.locator(".ck")
    for i, name in enumerate(NAMES):
        assert boxes.nth(2 * i).evaluate(looks) == alone[name]
        before = page.locator("[aria-live]").all_inner_texts()
        boxes.nth(2 * i + 1).locator(FIRST[name]).first.focus()
        for key in WAYS[name]:
            page.keyboard.press(key)
        changed = [a != b for a, b in zip(before, page.locator("[aria-live]").all_inner_texts())]
        assert [k for k in range(2 * len(NAMES)) if changed[k]] == [2 * i + 1]
    assert page.errors == []
