"""What an answer's source gives away: forbidden and borrowed things in any spelling, and nothing that is allowed."""

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coursekit.grading.magics import as_python
from coursekit.grading.release import mark_up, masters
from coursekit.grading.rules import borrowed_in, forbidden_in, made_in, nodes_of, places_in, ways_in
from coursekit.lectures import home

FORBIDDEN = ("layer_norm", "batch_norm", "cross_entropy_loss(label_smoothing)")
RELEASED = "import coursekit.nn.attention as course\nuse `course.attend` here"


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


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import coursekit.nn.attention", "imports coursekit.nn.attention"),
        ("import coursekit.nn.attention as mine", "imports coursekit.nn.attention"),
        ("def f(x):\n    from coursekit.nn import attention", "imports attention from coursekit.nn"),
        ("import importlib\nimportlib.import_module('coursekit.nn.attention')", "names 'coursekit.nn.attention' in a"),
        ("m = __import__('course' + 'kit.nn.attention')", "may find code while it runs, by __import__"),
        ("import sys\nm = sys.modules['x']", "may find code while it runs, by sys"),
        ("import gc", "may find code while it runs, by gc"),
        ("exec(text)", "may find code while it runs, by exec"),
        ("f = course.attend.__globals__['x']", "may find code while it runs, by __globals__"),
        ("g = getattr(__builtins__, 'eval')", "may find code while it runs, by eval"),
        ("try: 1/0\nexcept Exception as e: e.__traceback__.tb_frame", "may find code while it runs, by tb_frame"),
        ("f = getattr(F, 'layer' + '_norm')", "may find code while it runs, by getattr of a name that is computed"),
        ("from coursekit.grading import calls", "may find code while it runs, by coursekit.grading"),
        ("from torch import library", "may find code while it runs, by library"),
        ("import pickle\nf = pickle.loads(b'ccoursekit.nn.attention\\nattend\\n.')", "names "),
        ("import pydoc", "may find code while it runs, by pydoc"),
        ("%time from coursekit.nn.attention import attend", "imports attend from coursekit.nn.attention"),
        ("_ = %time 0\nfrom coursekit.nn import attention", "imports attention from coursekit.nn"),
        ("class attend(course.attend): pass", "uses course.attend, which the exercise does not give"),
        ("g = getattr\nf = g(F, 'layer' + '_norm')", "may find code while it runs, by getattr under another name"),
        ("f = functools.reduce(getattr, names, F)", "may find code while it runs, by getattr under another name"),
        ("match f:\n    case object(__globals__=g): pass", "may find code while it runs, by __globals__"),
        ("import traceback", "may find code while it runs, by traceback"),
        ("import os\nos.fork()", "may find code while it runs, by os"),
        ("torch.ops.aten.layer_norm.overloads = lambda: []", "may find code while it runs, by ops"),
        ("y = torch._refs.native_layer_norm", "may find code while it runs, by _refs"),
        ("w = course.masked_softmax(s, m)", "uses course.masked_softmax, which the exercise does not give"),
        ("c = course\nclass Mine(c.attend): pass", "uses course under another name"),
        ("m = collections._sys.modules", "may find code while it runs, by _sys"),
        ("from random import _os", "may find code while it runs, by _os"),
        ("f = torch.serialization.pickle.loads(b'')", "may find code while it runs, by serialization"),
        ("f = [getattr][0](F, name)", "may find code while it runs, by getattr under another name"),
        ("def f(x, vars=vars):\n    return vars(x)", "may find code while it runs, by vars"),
        ("def g(vars): pass\nh = (lambda q: q)(vars)", "may find code while it runs, by vars"),
        ("b = __builtins__", "may find code while it runs, by __builtins__"),
        ("import coursekit\ndef f(:", "cannot be read by Python"),
        ("y = coursekit.nn.attention.masked_softmax(s, m)", "uses coursekit, whatever of it"),
    ],
)
def test_borrowed_code_is_flagged_whatever_way_it_comes(source, words):
    assert any(found.startswith(words) for found in borrowed_in(as_python(source), RELEASED))


@pytest.mark.parametrize("path", masters(home()), ids=lambda path: path.stem)
def test_model_answers_borrow_only_what_their_exercise_gives(path):
    released = nbformat.read(home() / "exercises" / path.stem / path.name, as_version=4)
    text = "\n".join(cell.source for cell in released.cells)
    for cell in nbformat.read(path, as_version=4).cells:
        if mark_up(cell).get("solution") and cell.cell_type == "code":
            assert borrowed_in(cell.source, text) == []


@pytest.mark.parametrize(
    "source",
    [
        "def f(x):\n    vars = x.var(-1)\n    return torch.sqrt(vars)",
        "open = 3\ndef f(open):\n    return open + 1",
        "class A:\n    def f(self):\n        return self.ops, self._cache",
        "if __name__ == '__main__':\n    print(torch.__version__, f.__doc__)",
        "%pip install einops\n!pip install einops",
        "!ls -la data\n%timeit f(3)\n%load_ext autoreload\n%autoreload 2\n?torch.softmax\ntorch.softmax?\nx = 1",
        "%config InlineBackend.figure_format = 'retina'\n%matplotlib inline\nx = 1",
        "import heapq, logging, contextlib, abc\nfrom operator import itemgetter\nfrom IPython.display import display",
        "class A:\n    def _split(x): return x\ny = A._split(3)",
        "%%time\nx = getattr(config, 'size', 3)",
    ],
)
def test_harmless_code_is_no_way_in(source):
    assert ways_in(as_python(source)) == []


def test_lines_that_exist_are_those_on_which_a_statement_begins():
    source = "\n\n# x\ndef f(a,\n      b):\n    '''\n    long\n    '''\n    return (a +\n        b)\n"
    assert places_in(source) == [4, 6, 9]
    assert places_in("\n" * 99_000) == []
    assert places_in("def f(:") == []


@given(st.text(max_size=200))
def test_no_source_is_too_strange(source):
    list(nodes_of(source))
    borrowed_in(source, source)
    forbidden_in(source, FORBIDDEN)


def test_deep_and_long_sources_are_read_or_given_up():
    for source in ("(" * 5000, "x = " + "-" * 100_000 + "1", "a." * 50_000 + "b", "\0", "x = '\ud800'"):
        assert isinstance(borrowed_in(source, ""), list)
