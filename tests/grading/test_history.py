"""A check looks at what its cell says now, and not at what an earlier run of it has left."""

import sys

import pytest
from IPython.core.interactiveshell import InteractiveShell

from coursekit.grading import history
from coursekit.grading.checks import language_models
from coursekit.grading.kernel import CheckFailed

GOOD = "def f(x):\n    return x"


@pytest.fixture
def shell(monkeypatch):
    monkeypatch.setattr(history, "_latest", {})
    monkeypatch.setattr(history, "_cell_of", {})
    monkeypatch.setattr(history, "_failed", {})
    shell = InteractiveShell()
    history.watch(shell)
    history.watch(shell)
    assert shell.events.callbacks["post_run_cell"].count(history.note) == 1
    return shell


@pytest.mark.parametrize(
    ("second", "says"),
    [
        (GOOD, ""),
        (GOOD + "\n\n1 / 0", ""),  # defined anew before the error
        ("def f(x)\n    return x", "stopped with SyntaxError"),
        ("1 / 0\n" + GOOD, "stopped with ZeroDivisionError"),
        (GOOD.replace("f(", "g("), "has not defined it"),
    ],
)
@pytest.mark.parametrize("first", [GOOD, "class f:\n    def __call__(self, x):\n        return x"])
def test_what_an_earlier_run_left_is_told(first, second, says, shell, capsys):
    shell.run_cell(first, cell_id="answer")
    assert history.left_over(shell.user_ns["f"]) == ""
    shell.run_cell("f(1)", cell_id="try")
    shell.run_cell(second, cell_id="answer")
    found = history.left_over(shell.user_ns["f"])
    assert says in found
    assert bool(found) is bool(says)
    shell.run_cell(first, cell_id="answer")
    assert history.left_over(shell.user_ns["f"]) == "", "mended"


@pytest.mark.parametrize(
    ("second", "says"),
    [
        ("model = 1 / 0", "makes model stopped with ZeroDivisionError"),
        ("raise KeyboardInterrupt\nmodel = object()", "makes model stopped with KeyboardInterrupt"),
        ("model = object()\n1 / 0", ""),  # made anew before the error
        ("1 / 0", ""),
        ("model = object()", ""),
    ],
)
def test_a_model_of_an_earlier_run_is_told(second, says, shell, capsys):
    shell.run_cell("model = object()", cell_id="train-it")
    shell.run_cell(second, cell_id="train-it")
    found = history.left_over(shell.user_ns["model"], shell.user_ns)
    assert says in found
    assert bool(found) is bool(says)
    assert history.left_over(object(), shell.user_ns) == ""
    shell.run_cell("model = object()", cell_id="another")
    assert history.left_over(shell.user_ns["model"], shell.user_ns) == "", "made anew"


@pytest.mark.parametrize(
    "given", ["def given(x):\n    return f(x)", "class given:\n    def __call__(self, x):\n        return f(x)"]
)
def test_what_a_given_function_calls_is_not_left_over_either(given, shell, capsys):
    shell.run_cell("def f(x):\n    return x and f(x - 1)", cell_id="answer")
    shell.run_cell(given, cell_id="given")
    assert history.left_over(shell.user_ns["given"]) == ""
    shell.run_cell("def f(x)\n    return x", cell_id="answer")
    shell.run_cell(given, cell_id="given")
    assert "stopped with SyntaxError" in history.left_over(shell.user_ns["given"])
    shell.run_cell(GOOD, cell_id="answer")
    assert history.left_over(shell.user_ns["given"]) == ""


def test_what_comes_from_elsewhere_or_from_cells_without_a_name_is_checked(shell, capsys):
    shell.run_cell(GOOD)
    shell.run_cell("def f(x)")
    for answer in (shell.user_ns["f"], print, int, 5, None, pytest.fixture):
        assert history.left_over(answer) == ""


def test_the_check_says_so_and_gives_no_points(shell, capsys):
    shell.run_cell("def ngram(*arguments):\n    pass", cell_id="answer")
    shell.run_cell("def ngram(*arguments)\n    pass", cell_id="answer")
    part = language_models.PARTS[0]
    assert "coursekit.grading.history" in sys.modules
    with pytest.raises(CheckFailed, match=rf"^✗ {part.name}: not checked, since the latest run .* SyntaxError, and"):
        part(shell.user_ns["ngram"])
    assert part.earned is None
