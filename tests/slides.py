"""Whether what each slide of every executed lecture holds fits on it, in real Chromium.

``python -m tests.slides`` measures all lectures, ``python -m tests.slides 03`` one.
"""

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from coursekit.commands.lectures import find_lecture, home, lectures
from coursekit.commands.slides import slides
from tests.conftest import CHROMIUM, FLAGS

OVERFLOWING = """() => Reveal.getSlides().flatMap((slide, i) => {
  const {h, v} = Reveal.getIndices(slide);
  Reveal.slide(h, v, 99); // with all its fragments
  return slide.scrollHeight > slide.clientHeight + 1 ? [[i + 1, slide.scrollHeight]] : [];
})"""

PRINTED = """() => [...document.querySelectorAll(".slides > section > section")].flatMap((slide, i) => {
  const bottom = (el) => el.getBoundingClientRect().bottom, end = Math.max(...[...slide.children].map(bottom));
  return end > bottom(slide) + 1 ? [[i + 1, Math.round(720 + (end - bottom(slide)) / slide.currentCSSZoom)]] : [];
})"""


def main() -> None:
    results = home() / "build"
    wrong = []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 720})
        for path in list(map(find_lecture, sys.argv[1:])) or lectures():
            file = slides(path, results, Path(folder))
            page.goto(file.as_uri(), timeout=120_000)
            page.wait_for_function("window.Reveal?.isReady()", timeout=120_000)
            print(f"{path.stem}: {page.evaluate('Reveal.getTotalSlides()')} slides", flush=True)
            wrong += [f"{path.stem}, slide {i}: {height} pixels of 720" for i, height in page.evaluate(OVERFLOWING)]
            page.emulate_media(media="print")
            wrong += [f"{path.stem}, {i} on paper: {height} pixels of 720" for i, height in page.evaluate(PRINTED)]
            page.emulate_media(media="screen")
        browser.close()
    if not wrong:
        print("All fit.")
    sys.exit("\n".join(wrong) or 0)  # an empty text would be a failure


if __name__ == "__main__":
    main()
