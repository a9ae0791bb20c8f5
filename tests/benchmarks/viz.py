"""Size and speed of the widget of attention maps.

The published size to compare with: BertViz's notebook output for 64 tokens, 12 layers and 12 heads, 26.5 MB.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from coursekit.viz import AttentionHeads
from tests.benchmarks.shared import Row

TOPIC = "widgets"
BERTVIZ_BYTES = 26_500_000  # 64 tokens x 12 layers x 12 heads
CHANGES = 30

# From the click to the frame after the one in which the new head was drawn.
CHANGE = """async ([n, mode]) => {
  const box = document.querySelector('.ck');
  [...box.querySelectorAll('.row button')].find((button) => button.textContent === mode).click();
  const thumbs = box.querySelectorAll('.grid button');
  const frame = () => new Promise(requestAnimationFrame);
  const [work, painted] = [[], []];
  for (let i = 0; i < n; i++) {
    await frame();
    const start = performance.now();
    thumbs[(7 * i + 1) % thumbs.length].click();
    box.getBoundingClientRect();
    work.push(performance.now() - start);
    await frame();
    await frame();
    painted.push(performance.now() - start);
  }
  return [work, painted];
}"""


def attention(T: int, std: float, L: int = 12, H: int = 12) -> np.ndarray:
    """Softmax of Gaussian scores, (L, H, T, T); ``std`` 0 gives uniform maps."""
    scores = np.random.default_rng(0).normal(size=(L, H, T, T)) * std
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def widget(T: int, std: float) -> AttentionHeads:
    return AttentionHeads([f"word{i}" for i in range(T)], attention(T, std))


def sizes() -> Iterator[Row]:
    """Bytes of the whole HTML; the published number is for 64 tokens alone."""
    for T in (64, 128):
        for std in (0, 0.5, 1, 1.5, 2, 3):
            size = len(widget(T, std)._repr_html_().encode())
            what = f"AttentionHeads, 12 x 12 maps of {T} tokens, {f'scores of std {std}' if std else 'uniform'}"
            if T == 64:
                row = Row(TOPIC, f"{what}: how much smaller than", "BertViz's 26.5 MB", rounds=(BERTVIZ_BYTES / size,))
            else:
                row = Row(TOPIC, f"{what}: size", "the course's limit", rounds=(size / 1e6,), unit="MB", at_most=1)
            yield replace(row, counted=True)


def head_change(browser: Any, T: int, mode: str, std: float = 2) -> tuple[list[float], list[float]]:
    """Milliseconds of each change of head: of the work itself, and to the frame after it is drawn."""
    from tests.viz.page import page_of

    page = page_of(browser, widget(T, std)._repr_html_())
    page.locator(".ck [aria-live]").wait_for()
    return page.evaluate(CHANGE, [CHANGES, mode])


def changes() -> Iterator[Row]:
    """No ratios, and no aim: of the work of a change of head, and of the time until it is seen."""
    from playwright.sync_api import sync_playwright

    from tests.conftest import CHROMIUM, FLAGS

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        for T in (64, 128):
            for mode in ("Lines", "Matrix"):
                for what, times in zip(("work", "until it is drawn"), head_change(browser, T, mode)):
                    row = Row(TOPIC, f"AttentionHeads, {T} tokens, {mode}: another head, {what}", "", unit="ms")
                    yield replace(row, rounds=tuple(times))
        browser.close()


def parts() -> list[Callable[[], Iterator[Row]]]:
    return [sizes, changes]
