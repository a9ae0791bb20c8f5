"""All figures of the executed lectures on sheets to look at, in both themes, on a screen and on a phone.

``python -m tests.contact_sheet`` writes ``build/figures/03_self_attention-dark-390.png`` and so on, with the id of the
cell below each figure; ``python -m tests.contact_sheet 03`` those of one lecture.
"""

import sys
from pathlib import Path

import nbformat
from playwright.sync_api import Browser, sync_playwright

from coursekit.commands.lectures import find_lecture, home, lectures
from tests.conftest import CHROMIUM, FLAGS

SHEET = """<!doctype html><meta charset="utf-8"><style>
:root {{ color-scheme: light dark }} body {{ font: 14px sans-serif; margin: 12px }}
main {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 30rem), 1fr)); gap: 16px }}
figure {{ margin: 0; overflow: hidden }}
</style><main>{}</main>"""


def figures(path: Path) -> list[tuple[str, str]]:
    """The id of the cell and the drawing of each chart and diagram that the executed lecture shows."""
    return [
        (cell.id, page)
        for cell in nbformat.read(path, as_version=4).cells
        for output in cell.get("outputs", [])
        if (page := output.get("data", {}).get("text/html", "")).lstrip().startswith("<svg")
    ]


def sheets(browser: Browser, path: Path, folder: Path) -> None:
    shown = [f"<figure>{page}<figcaption>{name}</figcaption></figure>" for name, page in figures(path)]
    for scheme in ("light", "dark"):
        for width in (1280, 390):
            page = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": 800})
            page.set_content(SHEET.format("".join(shown)))
            page.screenshot(path=folder / f"{path.parent.name}-{scheme}-{width}.png", full_page=True)
            page.close()
    print(f"{path.parent.name}: {len(shown)} figure{'s' * (len(shown) != 1)}, on sheets in {folder}")


def main() -> None:
    chosen = [find_lecture(name) for name in sys.argv[1:]] or lectures()
    folder = home() / "build" / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        for lecture in chosen:
            sheets(browser, home() / "build" / lecture.stem / "notebook.ipynb", folder)
        browser.close()


if __name__ == "__main__":
    main()
