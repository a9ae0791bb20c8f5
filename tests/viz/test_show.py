import inspect

import pytest

from coursekit.nn.scores import ConcatScore
from coursekit.viz import show


def test_shows_the_code_that_runs_and_where_it_stands():
    shown = show(ConcatScore)
    assert shown.code == inspect.getsource(ConcatScore)
    html = shown._repr_html_()
    assert "coursekit/nn/scores.py, line" in html
    assert "href=" in html
    assert "ConcatScore" in repr(shown)


def test_docstrings_can_be_left_out_and_the_code_stays_whole():
    code = show(ConcatScore, docstring=False).code
    assert "Luong" not in code
    assert "def project_keys" in code
    compile(code, "shown", "exec")


def test_what_has_no_source_is_refused():
    with pytest.raises(ValueError, match="no source for 3"):
        show(3)


def test_a_decorated_function_is_shown_where_it_stands():
    from coursekit.decode.translate import greedy

    shown = show(greedy)
    assert shown.name.as_posix() == "coursekit/decode/translate.py"
    assert shown.path.read_text(encoding="utf-8").splitlines()[shown.line - 1] == shown.code.splitlines()[0]
