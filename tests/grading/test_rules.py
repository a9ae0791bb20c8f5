"""What an answer's source gives away: forbidden and borrowed things in any spelling, and nothing that is allowed."""

import time

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coursekit.commands.lectures import home
from coursekit.grading.batch import around_answers, released
from coursekit.grading.magics import as_python
from coursekit.grading.release import mark_up, masters
from coursekit.grading.rules import (
    TO_LOOK_AT,
    borrowed_in,
    builtins_in,
    can_be_read,
    forbidden_in,
    made_in,
    nodes_of,
    places_in,
    shadowed_in,
)

FORBIDDEN = ("layer_norm", "batch_norm", "cross_entropy_loss(label_smoothing)")
COURSE = "import coursekit.nn.attention as course"


@pytest.mark.parametrize(
    "source",
    [
        "y = nn.LayerNorm(4)(x)",
        "y = F.layer_norm(x, (4,))",
        "y = torch.nn.functional.layer_norm(x, (4,))",
        "from torch.nn.functional import layer_norm as by_hand",
        "y = torch.native_layer_norm(x, [4], None, None, 1e-5)",
        "y = getattr(F, 'layer_norm')(x, (4,))",
        "y = getattr(torch.ops.aten, 'native_layer_norm')",
        "%time y = 1\ny = nn.BatchNorm1d(4)",
        "loss = F.cross_entropy(x, y, label_smoothing=eps)",
        "loss = F.cross_entropy(x, y, **{'label_smoothing': eps})",
    ],
)
def test_forbidden_things_are_seen_in_every_spelling(source):
    assert forbidden_in(as_python(source), FORBIDDEN) in FORBIDDEN
    assert forbidden_in(as_python(source), ()) == ""


@pytest.mark.parametrize(
    "source",
    [
        "def layer_norm(x):\n    '''layer_norm, written out'''\n    return x - x.mean(-1, keepdim=True)",
        "self.layer_norm = Norm(4)",
        "# F.layer_norm does the same",
        "loss = F.cross_entropy(x, y, label_smoothing=0.0)",
        "y = layer_norm(x)",
        "y = torch.linalg.norm(x)",
        "class Net:\n    def layer_norm(self, x): return x\ny = Net().layer_norm(1)",
        "def f(:",
    ],
)
def test_what_is_the_students_own_or_not_used_is_allowed(source):
    assert forbidden_in(source, FORBIDDEN) == ""


def test_what_a_cell_makes_is_what_others_can_use():
    source = "import a.b, c as d\nx = 1\ndef f(y):\n    global g\n    g = z = 2\nclass C:\n    h = 3"
    assert made_in(source) == {"a", "d", "x", "f", "C", "g"}


GIVEN = [
    "from data import digits\nimport torch.nn.functional as F\nlearned = digits('train')",
    "x = 1\nheld_back = digits('test')\nprint(F.relu(x), len(calls), average(learned))\ndel digits",
]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def len(x): return 3", ["replaces len"]),
        ("from functools import cache as print", ["replaces print"]),
        ("for F in range(3): pass", ["replaces F"]),
        ("def f():\n    global learned\n    learned = 2", ["replaces learned"]),
        ("test = lambda: digits('test')", ["reads digits, which a given cell takes away"]),
        ("class A:\n    def eval(self): return best(held_back)", ["reads held_back, which a later cell makes"]),
        ("def f():\n    return x", ["reads x, which a later cell makes"]),
        ("x = 0\ndef f():\n    return x", ["reads x, which a later cell makes"]),
        ("x = 3\nprint(x)", []),
        ("def f(x):\n    return learned, F, average, x", []),
        ("def average(x): return sum(x)\nx = [average(y) for y in z]", []),
        ("import torch.nn.functional as F", []),
        ("from torch.nn import functional as F", []),
        ("def f(digits, len=3):\n    F = print = digits\n    return len", []),
        ("def f(:", []),
    ],
)
def test_what_given_cells_call_and_hide_is_theirs(source, words):
    assert shadowed_in(source, GIVEN, ["def average(x):\n    raise NotImplementedError"], place=1) == words


@pytest.mark.parametrize("path", masters(home()), ids=lambda path: path.stem)
def test_model_answers_take_only_what_their_exercise_gives_and_replace_nothing(path):
    given, stubs, above = around_answers(released(path.stem, home()))
    for cell in nbformat.read(path, as_version=4).cells:
        if mark_up(cell).get("solution") and cell.cell_type == "code":
            place, told = above[mark_up(cell)["grade_id"]]
            source = as_python(cell.source)
            assert shadowed_in(source, given, stubs, place) == borrowed_in(source, given, place, told) == []


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import coursekit.nn.attention", "imports coursekit.nn.attention"),
        ("import coursekit.nn.attention as mine", "imports coursekit.nn.attention"),
        ("def f(x):\n    from coursekit.nn import attention", "imports attention from coursekit.nn"),
        ("import importlib\nimportlib.import_module('coursekit.nn.attention')", "names 'coursekit.nn.attention' in a"),
        ("from coursekit.grading import calls", "imports calls from coursekit.grading"),
        ("import pickle\nf = pickle.loads(b'ccoursekit.nn.attention\\nattend\\n.')", "names "),
        ("%time from coursekit.nn.attention import attend", "imports attend from coursekit.nn.attention"),
        ("_ = %time 0\nfrom coursekit.nn import attention", "imports attention from coursekit.nn"),
        ("class attend(course.attend): pass", "uses course.attend, which the exercise does not give"),
        ("w = course.masked_softmax(s, m)", "uses course.masked_softmax, which the exercise does not give"),
        ("c = course\nclass Mine(c.attend): pass", "uses course under another name"),
        ("import coursekit\ndef f(:", "cannot be read by Python"),
        ("y = coursekit.nn.attention.masked_softmax(s, m)", "uses coursekit, whatever of it"),
    ],
)
def test_borrowed_code_is_flagged_whatever_way_it_comes(source, words):
    assert any(
        found.startswith(words) for found in borrowed_in(as_python(source), [COURSE], 1, "use `course.attend` here")
    )


def test_lines_that_exist_are_those_on_which_a_statement_begins():
    source = "\n\n# x\ndef f(a,\n      b):\n    '''\n    long\n    '''\n    return (a +\n        b)\n"
    assert places_in(source) == [4, 6, 9]
    assert places_in("\n" * 99_000) == []
    assert places_in("def f(:") == []


@given(st.text(max_size=200))
def test_no_source_is_too_strange(source):
    list(nodes_of(source))
    borrowed_in(source, [source], 1, source)
    forbidden_in(source, FORBIDDEN)


def test_deep_and_long_sources_are_read_or_given_up():
    for source in ("(" * 5000, "x = " + "-" * 100_000 + "1", "a." * 50_000 + "b", "\0", "x = '\ud800'"):
        assert isinstance(borrowed_in(source, [], 0, ""), list)


def test_what_is_there_to_be_looked_at_is_not_to_be_read():
    given = [
        "a = 1\nasked = windows(a)  # to look at, not to learn from",
        "from x import best  # to look at, not to learn from",
        "def error(x):\n    return x - asked\n\ndef share(x):\n    return error(x) / error(a)",
        "def harmless(x):\n    return x + a",
    ]
    assert shadowed_in("def f():\n    return g(asked, best, a)", given, [], 2) == [
        "reads asked, which is there to be looked at",
        "reads best, which is there to be looked at",
    ]
    assert shadowed_in("def f():\n    return error(1), share(2), harmless(3)", given, [], 4) == [
        "reads error, which is there to be looked at",
        "reads share, which is there to be looked at",
    ]


GIVES = ["from coursekit.nn.sampling import (\n    top_k,\n    top_p,\n)", "import coursekit.nn.attention as course"]


@pytest.mark.parametrize(
    ("source", "place", "later", "words"),
    [
        ("from coursekit.nn.sampling import top_k\nimport coursekit.nn.attention as course", 2, "", []),
        ("from coursekit.nn.sampling import next_token", 2, "", ["imports next_token from coursekit.nn.sampling"]),
        ("from coursekit.nn.sampling import top_k", 0, "", ["imports top_k from coursekit.nn.sampling"]),
        ("import coursekit.nn.attention as c", 2, "", ["imports coursekit.nn.attention"]),
        ("import coursekit.nn.attention as course", 1, "", ["imports coursekit.nn.attention"]),
        ("from coursekit.nn.sampling import top_k as k", 2, "del top_k", ["imports top_k from coursekit.nn.sampling"]),
        ("from coursekit.nn import sampling", 2, "", ["imports sampling from coursekit.nn"]),
    ],
)
def test_what_cells_above_import_may_be_imported_again_if_nothing_takes_it_away(source, place, later, words):
    assert borrowed_in(source, [*GIVES, later], place, "") == words


def test_what_is_imported_to_be_looked_at_is_not_to_be_imported_again():
    given = [f"from coursekit.data.series import station  {TO_LOOK_AT}"]
    source = "from coursekit.data.series import station as s"
    assert borrowed_in(source, given, 1, "") == ["imports station from coursekit.data.series"]


def test_many_names_in_many_scopes_are_given_up_at_once():
    """Python's symbol tables would hold each name once in each scope."""
    names = [f"n{i}" for i in range(1500)]
    source = f"def f({','.join(names)}):\n    return " + "lambda:" * 900 + f"({','.join(names)})\n"
    begun = time.process_time()
    assert not can_be_read(source)
    assert not (made_in(source) | builtins_in(source))
    assert time.process_time() - begun < 10
