"""The card of a check: what a student sees in a notebook, and what stays as text beside it."""

import contextlib
from html.parser import HTMLParser
from types import SimpleNamespace

import IPython
import pytest
import torch

from coursekit.grading import card
from coursekit.grading.checks import self_attention
from coursekit.grading.kernel import CheckFailed
from coursekit.grading.parts import Case, Part, score

HTML, TERMINAL = ["text/plain", "text/html"], ["text/plain"]


@pytest.fixture
def shell(monkeypatch):
    """A notebook that can show HTML; what was shown is in ``shell.shown``."""
    found = SimpleNamespace(display_formatter=SimpleNamespace(active_types=HTML), shown=[])
    monkeypatch.setattr(IPython, "get_ipython", lambda: found)
    monkeypatch.setattr(IPython.display, "display", lambda data, raw: found.shown.append(data))
    return found


@pytest.fixture
def part():
    cases = [
        Case("signs", "a few", (torch.tensor([1.0, -2.0]),)),
        Case("zeros", "nothing", (torch.zeros(2),)),
        Case("sizes", "many", (torch.arange(30.0),)),
    ]
    return Part("double", {"signs": 2, "zeros": 1, "sizes": 3}, lambda g: cases, lambda x: 2 * x)


def checked(part, answer) -> CheckFailed:
    with pytest.raises(CheckFailed) as failed:
        part(answer)
    return failed.value


class Page(HTMLParser):
    """What is in a page: every tag closed, its texts, its styles; nothing that could run or that a cleaner drops."""

    def __init__(self, text: str):
        super().__init__()
        self.open, self.texts, self.badges = [], [], []
        self.feed(text)
        assert not self.open
        self.text = " ".join(" ".join(self.texts).split())

    def handle_starttag(self, tag, attributes):
        assert tag in {"div", "span", "b", "br", "pre", "details", "summary"}, tag
        assert {name for name, _ in attributes} <= {"style", "title"}
        assert "url(" not in str(attributes)
        if tag != "br":
            self.open.append(tag)
        if tag == "span":
            self.badges.append(
                next(color for _, color in (card.GREEN, card.AMBER, card.RED) if color in attributes[0][1])
            )

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def test_a_failed_check_is_a_card_and_an_exception_that_says_no_more_than_its_first_line(shell, part):
    failed = checked(part, lambda x: x * 2 + (x > 10))
    (shown,) = shell.shown
    assert shown["text/plain"] == failed.text == str(failed), "whoever reads text misses nothing"
    assert failed._render_traceback_() == failed._render_traceback_() == ["✗ double: 3 of 6 points"]
    assert len(shell.shown) == 1, "IPython asks twice"
    page = Page(shown["text/html"])
    assert page.badges == [card.GREEN[1], card.GREEN[1], card.RED[1]]
    assert "✗ 0 of 3 sizes : the result has the right shape but wrong values" in page.text
    assert "tried: many; shapes (30,) again: double(*check.double.example(2))" in page.text
    assert "Next: sizes . If you are stuck, unfold the hint above this check." in page.text


def test_to_try_again_one_calls_what_the_check_has_called(shell, part):
    """In some exercises that is a function of the notebook which calls the student's."""
    part.result = "run_double"
    failed = checked(part, lambda x: 3 * x)
    assert "again: run_double(*check.double.example(" in failed.text


def test_a_call_of_itself_does_not_fill_the_card(shell, part):
    scope = {}
    exec(compile("def endless(x):\n    return endless(x)\n", "<ipython-input-1-abc>", "exec"), scope)
    failed = checked(part, scope["endless"])
    assert "RecursionError" in failed.text + "".join(failed.where())
    assert len(failed.where()) <= 25


def test_a_check_that_is_passed_is_a_card_too_and_says_what_comes_next(shell, capsys):
    parts = self_attention.PARTS
    for one in parts:
        one.earned = None
    with contextlib.suppress(CheckFailed):
        parts[1](lambda *arguments: None)
    parts[0](parts[0].reference)
    assert shell.shown[-1]["text/plain"] == "✓ masked_softmax: 14 of 14 points"
    assert capsys.readouterr().out == "", "not said twice"
    page = Page(shell.shown[-1]["text/html"])
    assert {*page.badges} == {card.GREEN[1]}
    assert "Next: part 2, attention ." in page.text
    assert "part 1 14/14 part 2 0/14 part 3 –/24" in page.text
    assert "So far in this session: 14 of 88 points , and 12 for a person to give" in page.text
    for one in parts:
        one.earned, one.answered = one.points, True
    parts[0](parts[0].reference)
    assert "Next: the written question, which_head , which a person reads" in Page(shell.shown[-1]["text/html"]).text
    self_attention.score()
    assert Page(shell.shown[-1]["text/html"]).badges == [card.GREEN[1]] * 6
    assert "so far" in shell.shown[-1]["text/plain"]
    for one in parts:
        one.earned = None


def test_its_title_has_the_symbol_of_the_text(shell, part):
    def stub(x):
        raise NotImplementedError

    answers = {
        "✗ double 3 of 6": lambda x: x * 2 + (x > 10),
        "✗ double 0 of 6": lambda x: x - 1,
        "○ double 0 of 6": stub,
    }
    for title, answer in answers.items():
        failed = checked(part, answer)
        assert Page(shell.shown[-1]["text/html"]).text.startswith(title)
        assert failed.text.startswith(title.replace("double", "double:"))


def test_amber_is_what_waits(shell, part):
    """Not answered, wrong for the reason of a row above, or right as soon as another row is."""

    def stub(x):
        raise NotImplementedError

    checked(part, stub)
    assert Page(shell.shown[-1]["text/html"]).badges == [card.AMBER[1]] * 3
    assert "Next: write your answer in its cell" in Page(shell.shown[-1]["text/html"]).text

    checked(part, lambda x: x / "")
    assert Page(shell.shown[-1]["text/html"]).badges == [card.RED[1], card.AMBER[1], card.AMBER[1]]
    part.needs = {"zeros": ("signs", "sizes")}
    checked(part, lambda x: x + (len(x) > 2) * x**2)
    assert Page(shell.shown[-1]["text/html"]).badges == [card.RED[1], card.AMBER[1], card.RED[1]]


def test_no_word_of_a_student_is_markup(shell, part):
    nasty = "<script>alert(1)</script>&<img src=x onerror=alert(2)>"

    def answer(x):
        raise ValueError(nasty)

    checked(part, answer)
    page = Page(shell.shown[0]["text/html"])
    assert page.text.count(nasty) == 2, "in the row, and where it stopped"


@pytest.mark.parametrize("types", [None, TERMINAL])
def test_where_no_html_is_shown_all_is_text(types, shell, part, monkeypatch, capsys):
    if types is None:
        monkeypatch.setattr(IPython, "get_ipython", lambda: None)
    else:
        shell.display_formatter.active_types = types
    failed = checked(part, lambda x: x)
    assert failed._render_traceback_() == [failed.text]
    part(lambda x: 2 * x)
    score([part], {"essay": 4})
    assert capsys.readouterr().out.splitlines()[:2] == [
        "✓ double: 6 of 6 points",
        "1  double  ██████████    6 of   6",
    ]
    assert not shell.shown


def luminance(color: str) -> float:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(one: str, other: str) -> float:
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("color", [kind[1] for kind in (card.GREEN, card.AMBER, card.RED)])
def test_colours_can_be_read_in_both_themes(color):
    assert contrast(color, "#ffffff") >= 4.5
    assert contrast(color, "#111111") >= 3, "JupyterLab's dark"
    assert contrast(color, "#1e1e1e") >= 3, "the dark of VS Code"
