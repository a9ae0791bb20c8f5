"""What an answer may use where functions are forbidden: everyday code passes, what could hide something does not."""

import collections.abc
import importlib
import linecache
import types
import typing

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from coursekit.grading.magics import as_python
from coursekit.grading.parts import Case, CheckFailed, Part, cells_behind
from coursekit.grading.plain import ANNOTATIONS, ATTRIBUTES, beyond, brought_along
from tests.grading.answers import self_attention, transformer

HIDES = {
    "x = x.to_mkldnn()": "to_mkldnn",
    "y = torch.vmap(norm)(x)": "vmap",
    "y = torch.compile(norm)(x)": "compile",
    "x = torch.nested.nested_tensor([x])": "nested",
    "torch.Tensor.clone = norm": "clone = ...",
    "def setup(self):\n    self._running_with_deploy = norm\nsetup(torch)": "_running_with_deploy = ...",
    "class A:\n    __del__ = norm": "__del__",
    "class A:\n    from math import pi as __del__": "pi",
    "class Tensor: pass\nclass A(torch.Tensor): pass": "torch.Tensor",
    "y = coursekit.nn.attention.attend(x)": "coursekit",
    "note = '''\n%pip '''; exec(x); more = '''\n'''": "exec",
    "def f(x:": "what cannot be read",
    "def setup(self):\n    self.clone = norm\nsetup(torch.Tensor)": "clone = ...",
    "def setup(self):\n    self.__class__ = A": "__class__ = ...",
    "nn.Linear.forward = norm": "forward = ...",
    "del F.softmax": "softmax = ...",
    "f = getattr(F, 'layer' + '_norm')": "getattr",
    "class A(torch.Tensor): pass": "torch.Tensor",
    "class A(nn.Module, metaclass=M): pass": "metaclass",
    "class A(nn.Module):\n    def __getattr__(self, name): pass": "__getattr__",
    "import os": "os",
    "from torch import *": "*",
    "from torch.nn.attention.flex_attention import flex_attention": "torch.nn.attention.flex_attention",
    "f = nn.attention.flex_attention": "flex_attention",
    "from . import x": ".",
    "exit()": "exit",
    "get_ipython().run_cell('')": "get_ipython",
    "%run x.py": "get_ipython",
    "x = !cp a b": "get_ipython",
    "match f:\n    case object(__globals__=g): pass": "match",
    "g = f.__globals__": "__globals__",
    "y = course.attend(x)": "attend",
    "torch.ops.aten.layer_norm": "ops",
    "np.load('x')": "load",
    "x.register_hook(f)": "register_hook",
    "module.register_forward_hook(f)": "register_forward_hook",
    "A = type('A', (), {})": "type",
    "y = torch._native_multi_head_attention(x)": "_native_multi_head_attention",
    "layer = nn.TransformerEncoderLayer(4, 2)": "TransformerEncoderLayer",
    "x = x.to_sparse()": "to_sparse",
    "x = torch.zeros(3, layout=torch.sparse_coo)": "sparse_coo",
    "async def f(): pass": "async",
    "x = 1\n" * 4000: "what cannot be read",
    "from typing import get_type_hints\ndef f(a: 'torch._refs.native_layer_norm'): pass": "get_type_hints",
    "from typing import sys": "sys",
    "from typing import operator": "operator",
    "from typing import ForwardRef": "ForwardRef",
    "from typing import Optional\nOptional['norm'].__args__[0]": "__args__",
    "from collections.abc import sys": "sys",
    "import typing": "typing",
    "from time import sleep": "sleep",
}


@pytest.mark.parametrize(("source", "name"), HIDES.items())
def test_what_could_hide_something_is_not_listed(source, name):
    assert name in beyond(as_python(source))


@pytest.mark.parametrize(
    "source",
    [
        "import math\nimport numpy as np\nimport torch.nn.functional as F\nfrom torch import nn, Tensor",
        "from typing import Callable, Optional, Tuple\nfrom __future__ import annotations",
        "import time\nstart = time.perf_counter()\nprint(time.time() - start)",
        "class A(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.norm, self.d = 1, 2",
        "class A:\n    def _split(x): return x\ny = A._split(3)",
        "%time y = torch.softmax(x, -1)\nprint(f'{y.shape}')",
        "def f(x, open=3):\n    return open + max(x)",
        "y = course.attend(q, k, v, mask)[0]",
        "y = nn.functional.layer_norm(x, (4,))",  # noticed where it runs, and told in the part's own words
        "%matplotlib inline\n%autoreload 2\n!ls\n%timeit -n1 f(x)\ntorch.softmax?",
        "from functools import partial\nimport itertools\nfrom dataclasses import dataclass\nf = partial(g)",
        "class A(nn.Module):\n    def __init__(self, dim):\n        self.dim, self.size, self.device, self.keys = dim",
        "nn.init.xavier_uniform_(layer.weight)\nassert torch.is_tensor(x), repr('{}'.format(x))",
        "device = 'cuda' if torch.cuda.is_available() else 'cpu'",
        "",
    ],
)
def test_everyday_code_is_listed(source):
    assert beyond(as_python(source), ("attend",)) == []


@pytest.mark.parametrize("module", [self_attention, transformer])
def test_right_and_wrong_answers_to_parts_that_forbid_something_are_read(module):
    checks = importlib.import_module(module.__name__.replace("tests.grading.answers", "coursekit.grading.checks"))
    strict = [part for part in checks.PARTS if part.forbidden]
    assert strict
    for part in strict:
        for source in [*module.RIGHT[part.name], *(source for _, _, source in module.MUTANTS[part.name])]:
            assert beyond(source, part.given) == []


def test_the_course_answers_no_part_that_forbids_its_own_subject():
    """``course.attend`` may be called in part 3 of exercise 03; in part 2 it would be the answer."""
    from coursekit.grading.checks.self_attention import attention, multi_head_attention

    source = "def attention(q, k, v, mask=None):\n    return course.attend(q, k, v, mask, need_weights=True)"
    assert beyond(source, attention.given) == ["attend"]
    assert beyond(source, multi_head_attention.given) == []


def test_what_may_be_imported_for_annotations_evaluates_nothing():
    """``typing`` has functions that run strings, and modules: ``get_type_hints``, ``typing.sys``."""
    for name in ANNOTATIONS - {"annotations"}:
        for module in (typing, collections.abc):
            one = getattr(module, name, list)
            assert not isinstance(one, types.ModuleType | types.FunctionType | types.BuiltinFunctionType), name


def test_every_listed_name_exists_so_that_what_it_leads_to_is_known():
    assert {"to_mkldnn", "register_forward_hook", "__globals__", "gi_frame", "flex_attention"} <= brought_along()
    assert ATTRIBUTES - brought_along() == {"decode"}, "a model's own; str has no other"


@given(st.text(max_size=200))
def test_no_source_is_too_strange(source):
    assert isinstance(beyond(source), list)


def cell(source, number=0, **names):
    """The functions that a cell of a notebook defines."""
    filename = f"/tmp/ipykernel_1/{number}.py"
    linecache.cache[filename] = len(source), None, source.splitlines(keepends=True), filename
    space = {"torch": torch, "nn": nn, "F": F, **names}
    exec(compile(source, filename, "exec"), space)
    return types.SimpleNamespace(**space)


def test_the_check_in_the_notebook_says_what_the_marking_will_say():
    x = torch.randn(3, 4)
    cases = [Case("a", "", (x,))]
    part = Part("norm", {"a": 2}, lambda g: cases, lambda x: x - x.mean(), forbidden={"layer_norm": "write it out"})
    part(cell("def norm(x):\n    return x - x.mean()").norm)
    with pytest.raises(CheckFailed, match="it uses to_mkldnn: since this part forbids functions"):
        part(cell("def norm(x):\n    return x.to_mkldnn() - x.mean()").norm)
    Part("norm", {"a": 2}, part.cases, part.reference)(cell("def norm(x):\n    return x - eval('x.mean()')").norm)


def test_the_cells_behind_an_answer_are_found_through_given_ones():
    one = cell("class Mine(nn.Module):\n    def forward(self, x):\n        return helped(x)", 1)
    one.Mine.forward.__globals__["helped"] = cell("def helped(x):\n    return x + 1", 2).helped
    given_cell = cell("# given, leave as it is\ndef run(x):\n    return Mine()(x)", 3, Mine=one.Mine)
    (source,) = cells_behind(given_cell.run).values()
    assert "class Mine(nn.Module):" in source
    assert "def helped(x):" in source
    assert "def run" not in source
