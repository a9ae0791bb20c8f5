"""Whether what measures slides tells one that is too tall, and is content with the others."""

import sys

import pytest

from coursekit.commands.lectures import lectures
from tests import slides
from tests.conftest import CHROMIUM

PAGE = """<!doctype html><section style="height:720px;overflow:hidden"><div style="height:{}px"></div></section><script>
const all = [...document.querySelectorAll("section")];
window.Reveal = {{
  isReady: () => true, getTotalSlides: () => 1, getSlides: () => all, getIndices: () => ({{}}), slide() {{}},
}};
</script>"""


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
@pytest.mark.parametrize(("tall", "says"), [(720, 0), (900, "03_self_attention, slide 1: 900 pixels of 720")])
def test_a_slide_that_does_not_fit_is_named(tall, says, monkeypatch, capsys):
    measured = []

    def made(path, results, folder):
        measured.append(path)
        file = folder / f"{path.stem}.html"
        file.write_text(PAGE.format(tall), encoding="utf-8")
        return file

    monkeypatch.setattr(slides, "slides", made)
    monkeypatch.setattr(sys, "argv", ["slides", "03"])
    with pytest.raises(SystemExit) as ended:
        slides.main()
    assert ended.value.code == says
    assert measured == [path for path in lectures() if path.stem == "03_self_attention"]
    assert capsys.readouterr().out == "03_self_attention: 1 slides\n" + "All fit.\n" * (says == 0)
