"""Cells as plain Python: what IPython would run, line for line, and nothing that it would not."""

import ast
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from IPython.core.inputtransformer2 import TransformerManager

from coursekit.grading.magics import as_python


@pytest.mark.parametrize(
    ("source", "python"),
    [
        ("x = 1\ny = '''\n%pip \n'''", "x = 1\ny = '''\n%pip \n'''"),
        ("\n\nx = 1", "\n\nx = 1"),
        ("%matplotlib inline\nx = 1", "pass  # matplotlib inline\nx = 1\n"),
        ("%%time\nx = 1", "\nx = 1\n"),
        ("%%capture out\n%time x = 1", "\nx = 1\n"),
        ("def f():\n    %timeit -n1 -r 2 g()\n    !ls {x}", "def f():\n    g()\n    pass  # ls {x}\n"),
        ("torch.softmax?", "pass  # pinfo torch.softmax\n"),
        ("\n\n%pip install a\nx = 3", "\n\npass  # pip install a\nx = 3\n"),
        ("%run x.py", "get_ipython().run_line_magic('run', 'x.py')\n"),
        ("x = !ls", "x = get_ipython().getoutput('ls')\n"),
        ("/f x", "f(x)\n"),
        ("z = (7\n%autoreload\n)", "z = (7\n%autoreload\n)"),  # a remainder
        ("get_ipython().system('rm -r x'); x = 1", "get_ipython().system('rm -r x'); x = 1\n"),
    ],
)
def test_a_cell_becomes_what_ipython_would_run(source, python):
    assert as_python(source) == python


def test_what_stands_in_a_string_stays_there():
    """A line that looks like a magic may end a string, with code behind it."""
    source = "note = '''\n%pip '''; exec('x'); more = '''\n'''"
    assert as_python(source) == source
    assert "exec" in {node.id for node in ast.walk(ast.parse(as_python(source))) if isinstance(node, ast.Name)}


@pytest.mark.parametrize(
    "source", ["def f(:", "(" * 5000, "lambda:" * 400 + "1", "x = 1\n" * 4000, "a=!b\n" * 400, "\0", "x = '\ud800'"]
)
def test_what_cannot_be_read_stays_as_it_is(source):
    assert as_python(source) == source


@pytest.mark.parametrize("source", ["\n! " + " " * 8000 + "@\n", "\n" * 19_900 + "%foo", "%foo\n" * 20 + "x=1\n" * 400])
def test_no_cell_is_read_for_minutes(source):
    started = time.process_time()
    as_python(source)
    assert time.process_time() - started < 8, "with patterns that overlap it took 25 minutes"


LINES = st.sampled_from(
    ["x = 1", "%time y", "!a", "'''", '"""', "%pip z'''", "(", ")", "if x:", "    %m", "a?", "", "\\"]
)


@given(st.lists(LINES, max_size=8).map("\n".join) | st.text(max_size=80))
def test_ipython_runs_it_as_it_is_written(source):
    found = as_python(source)
    try:
        ast.parse(found)
    except Exception:
        return
    assert TransformerManager().transform_cell(found).strip("\n") == found.strip("\n")
