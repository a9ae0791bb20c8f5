"""Size and speed of the widget of attention maps; ``python -m tests.bench_viz`` prints a table and fails on nothing.

The published size to compare with: BertViz's notebook output for 64 tokens, 12 layers and 12 heads, 26.5 MB.
"""

import statistics
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from coursekit.viz import AttentionHeads
from tests.conftest import CHROMIUM, FLAGS
from tests.viz.page import page_of

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


def html_bytes(T: int, std: float) -> tuple[int, float]:
    """Bytes of the whole HTML, and the error bound of the weights in it."""
    shown = widget(T, std)
    return len(shown._repr_html_().encode()), shown.error


def head_change(browser: Any, T: int, mode: str, std: float = 2) -> tuple[list[float], list[float]]:
    """Milliseconds of each change of head: of the work itself, and to the frame after it is drawn."""
    page = page_of(browser, widget(T, std)._repr_html_())
    page.locator(".ck [aria-live]").wait_for()
    return page.evaluate(CHANGE, [CHANGES, mode])


def main() -> None:
    sizes = Table(
        "tokens", "scores", "HTML bytes", "error bound", "26.5 MB / this", title="AttentionHeads, 12 x 12 maps"
    )
    for T in (64, 128):
        for std in (0, 0.5, 1, 1.5, 2, 3):
            size, error = html_bytes(T, std)
            ratio = f"{BERTVIZ_BYTES / size:.0f}" if T == 64 else ""  # published for 64 tokens alone
            sizes.add_row(str(T), f"std {std}" if std else "uniform", f"{size:,}", f"1/{1 / error:.0f}", ratio)
    Console().print(sizes)

    from playwright.sync_api import sync_playwright

    times = Table(
        "tokens", "view", "work", "to the frame after", "slowest", title="ms for each change of head (median)"
    )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        for T in (64, 128):
            for mode in ("Lines", "Matrix"):
                work, painted = head_change(browser, T, mode)
                cells = [statistics.median(work), statistics.median(painted), max(painted)]
                times.add_row(str(T), mode, *(f"{ms:.0f}" for ms in cells))
        browser.close()
    Console().print(times)


if __name__ == "__main__":
    main()
