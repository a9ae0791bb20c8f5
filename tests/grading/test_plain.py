"""What an answer may use where functions are forbidden: everyday code passes, what could hide something does not."""

import collections.abc
import importlib
import linecache
import types
import typing

import nbformat
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from coursekit.commands.lectures import home
from coursekit.grading.batch import around_answers
from coursekit.grading.calls import spoiled
from coursekit.grading.kernel import CheckFailed, cells_behind
from coursekit.grading.magics import as_python
from coursekit.grading.parts import Case, Part
from coursekit.grading.plain import ANNOTATIONS, ATTRIBUTES, OTHERS, beyond, brought_along, carried_together, unusual
from coursekit.grading.release import mark_up, masters
from coursekit.grading.rules import borrowed_in
from tests.grading.answers import assistants, llama, self_attention, transformer

HIDES = {
    "x = x.to_mkldnn()": "to_mkldnn",
    "y = torch.vmap(norm)(x)": "vmap",
    "y = torch.compile(norm)(x)": "compile",
    "x = torch.nested.nested_tensor([x])": "nested",
    "torch.Tensor.clone = norm": "clone = ...",
    "def setup(self):\n    self._running_with_deploy = norm\nsetup(torch)": "_running_with_deploy = ...",
    "class A:\n    __del__ = norm": "__del__",
    "class A:\n    from math import pi as __del__": "__del__",
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
    "match f:\n    case {**__builtins__}: pass": "__builtins__",
    "f = __stand_in__.args[0]": "__stand_in__",
    "try:\n    ('{0.' + path + '.nope}').format(f)\nexcept Exception as e:\n    found = e.obj": "format",
    "text = '{0.__globals__}'.format(f)": "__globals__",
    "text = ''.join(map(str.format, parts, fs))": "format",
    "t = '{0. f_back}'.format(f)": "f_back",
    "torch.exp = mine": "exp = ...",
    "def patch(self):\n    self.forward = mine\npatch(Transformer)": "forward = ...",
    "class M(type): pass": "type",
    "A = type(*['A', (), space])": "type",
    "match f:\n    case A(found): pass": "match",
    "functools.wraps(F.relu, (), (NAME,))(f)": "wraps",
    "match f:\n    case f.__globals__: pass": "__globals__",
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
    "async def f(): pass": "AsyncFunctionDef",
    "x = 1\n" * 4000: "what cannot be read",
    "from typing import get_type_hints\ndef f(a: 'torch._refs.native_layer_norm'): pass": "get_type_hints",
    "from typing import sys": "sys",
    "from typing import operator": "operator",
    "from typing import ForwardRef": "ForwardRef",
    "from typing import Optional\nOptional['norm'].__args__[0]": "__args__",
    "from collections.abc import sys": "sys",
    "import typing": "typing",
    "from time import sleep": "sleep",
    "from operator import attrgetter": "attrgetter",
    "import warnings\nwarnings.sys": "sys",
    "y = torch.cuda.memory.pickle": "pickle",
    "import matplotlib.pyplot as plt\nplt.switch_backend(x)": "matplotlib.pyplot",
    "import matplotlib.pyplot as plt\nlines = plt.plot(x)": "matplotlib.pyplot",
    "plt.matplotlib": "matplotlib.pyplot",  # that another cell has imported
    "class A:\n    import matplotlib.pyplot as plt\nA.plt.matplotlib": "matplotlib.pyplot",
    "import matplotlib.pyplot as figures": "matplotlib.pyplot",
    "import matplotlib, matplotlib.pyplot as plt": "matplotlib",
}

# Ways to code that is not the answer's own; the attacker's among them fetched a model answer.
HIDES |= {
    "try:\n    ('{0.' + path + '.nope}').format(f)\nexcept Exception as e:\n    found = e.obj": "format",
    "try:\n    f.nope\nexcept Exception as e:\n    found = e.obj": "obj",
    "text = '{0.__globals__}'.format(f)": "__globals__",
}

HANGS = {  # a function of the course's on something that another answer reads
    "def hang(self):\n    self.mine = helper\nhang(torch)": "mine = ...",
    "def hang(self):\n    self.weight = helper\nhang(torch)": "weight = ...",
    "torch.mine = helper": "mine = ...",
    "for where in [F]:\n    where.mine = helper": "mine = ...",
    "class A:\n    def hang(self):\n        self.mine = helper\nA.hang(torch)": "A.hang",
    "class A:\n    def hang(self):\n        self.mine = helper\n    hang(torch)": "hang",
    "class A:\n    @apply\n    def hang(self):\n        self.mine = helper": "apply",
    "class A:\n    def hang(self):\n        self.mine = helper\n    def f(self, x=hang(torch)): pass": "hang",
    "class A:\n    def hang(self):\n        self = torch\n        self.mine = helper": "self = ...",
    "class A:\n    def f(self):\n        def hang(self):\n            self.mine = 1\n        hang(torch)": "mine = ...",
}
FINDS = {
    "import torch\n_utils = _import_dotted_name = None\ng = torch._utils._import_dotted_name(NAME)": "_utils",
    "from IPython.utils.importstring import import_item": "IPython.utils.importstring",
    "import numpy as np\nnp.testing.runstring(TEXT, {})": "testing",
    "from torch.utils.benchmark import Timer": "torch.utils.benchmark",
    "y = torch.utils.benchmark.Timer(TEXT).timeit(1)": "benchmark",
    "import logging.config\nlogging.config.dictConfig(NAMES)": "logging.config",
    "from __future__ import annotations\nfrom typing import get_type_hints\nget_type_hints(f)": "get_type_hints",
    "import typing\nclass C: x: NAME\ng = typing.get_type_hints(C)['x']": "get_type_hints",
    "from functools import singledispatch\n@singledispatch\ndef h(x): pass": "singledispatch",
    "import string\nstring.Formatter().get_field(NAME, [f], {})": "Formatter",
    "import typing\ntyping._eval_type(typing.ForwardRef(TEXT), None, None)": "ForwardRef",
    "from torch.fx import Graph": "torch.fx",
    "g = torch.fx.Graph()": "fx",
    "import matplotlib, matplotlib.pyplot as plt\nmatplotlib.use(NAME)": "matplotlib",
    "g = np.load(file, allow_pickle=True)": "load",
    "text = np.loadtxt(path, dtype=str)": "loadtxt",
    "import numpy as np\ng = np.ones(1).ctypes._ctypes": "ctypes",
    "m = __import__('course' + 'kit.nn.attention')": "__import__",
    "import sys\nm = sys.modules['x']": "sys",
    "import gc": "gc",
    "exec(text)": "exec",
    "f = course.attend.__globals__['x']": "__globals__",
    "g = getattr(__builtins__, 'eval')": "__builtins__",
    "try: 1/0\nexcept Exception as e: e.__traceback__.tb_frame": "__traceback__",
    "f = getattr(F, 'layer' + '_norm')": "getattr",
    "g = getattr\nf = g(F, 'layer' + '_norm')": "getattr",
    "f = functools.reduce(getattr, names, F)": "getattr",
    "from torch import library": "library",
    "import pydoc": "pydoc",
    "match f:\n    case object(__globals__=g): pass": "__globals__",
    "import os\nos.fork()": "os",
    "torch.ops.aten.layer_norm.overloads = lambda: []": "ops",
    "y = torch._refs.native_layer_norm": "_refs",
    "m = collections._sys.modules": "_sys",
    "from random import _os": "_os",
    "f = torch.serialization.pickle.loads(b'')": "serialization",
    "def f(x, vars=vars):\n    return vars(x)": "vars",
    "def g(vars): pass\nh = (lambda q: q)(vars)": "vars",
    "def h(f):\n    return f._of_nobody": "_of_nobody",
    "class A:\n    def __reduce__(self): pass": "__reduce__",
    "from torch.optim import *": "*",
    "from . import x": ".",
    "lines = plt.gcf().canvas": "matplotlib.pyplot",
    "memory = Transformer.encode(model, source, mask)": "Transformer.encode",
    "memory = super(type(model), model).encode(source, mask)": "super",
    "model._padding_read.zero_()": "_padding_read",
    "from functools import wraps\nwraps(course.attend, assigned=(), updated=(NAME,))(f)": "wraps",
    "class A(ABC):\n    __match_args__ = (NAME,)\nmatch f:\n    case A(space): pass": "__match_args__",
    "class A(type):\n    __instancecheck__ = lambda self, one: True": "__instancecheck__",
    "@dataclass\nclass A:\n    __builtins__: object": "__builtins__",
    "A = type('A', (), {PART + 'match_args__': (NAME,)})": "type",
    "f = __stand_in__.args[0]": "__stand_in__",
    "try:\n    ('{0.' + path + '.nope}').format(f)\nexcept Exception as e:\n    found = e.obj": "format",
    "text = '{0.__globals__}'.format(f)": "__globals__",
    "text = ''.join(map(str.format, parts, fs))": "format",
    "t = '{0. f_back}'.format(f)": "f_back",
    "torch.exp = mine": "exp = ...",
    "def patch(self):\n    self.forward = mine\npatch(Transformer)": "forward = ...",
    "class M(type): pass": "type",
    "A = type(*['A', (), space])": "type",
    "match f:\n    case A(found): pass": "match",
    "g = space['__import__']": "__import__",
    "w = dict(" + "\u4e00" * 30 + "=1)": "long names",
    "\n".join(f"name_of_a_weight_{i} = 1" for i in range(70)): "long names",
    f"labels = {7**400}": "many numbers",
    f"labels = {hex(7**400)}": "many numbers",
    "digits = '" + "\u4e00" * 250 + "'": "long texts",
    f"def f():\n    'a{'b' * 700}'\nw = f.__doc__": "long texts",
    "from torch.utils.data import IterDataPipe": "IterDataPipe",
    "async def f(): return g\nh = f().cr_code.replace(co_names=('x',))": "cr_code",
    "async def f(): return g": "AsyncFunctionDef",
    # of the twelfth attack, each of which fetched what it liked
    "from torch.optim.lr_scheduler import LRScheduler": "LRScheduler",
    "g = torch.optim.lr_scheduler.StepLR.state_dict(thing)": "state_dict",
    "from torch.optim.lr_scheduler import StepLR\ninside = StepLR.state_dict": "state_dict",
    "inside(torch)['importlib']": "torch, whatever of it",
    "def f(torch=None): return g(torch)\nh(torch)": "torch, whatever of it",
    "schedule.lr_lambdas.append(thing)": "lr_lambdas",
    "other.load_state_dict(thing, {'tensor': noted})": "load_state_dict",
    "import collections\n_sys = None\ndef inner(self):\n    return self._sys\ninner(collections)": (
        "collections, whatever of it"
    ),
    "_backward_hooks = None\ndef hooks(self):\n    return self._backward_hooks": "_backward_hooks",
    "import contextlib\nclass Q(contextlib.redirect_stdout):\n    _stream = 'modules'": "redirect_stdout",
    "import enum": "enum",
    "kind = type\nkind('A', (), {})": "type",
    "make = functools.partial(type, 'Read', ())": "type",
    "told = {'__array_' + 'interface__': 3}": "__array_",
    "import torch.utils.data as data\n@data.argument_validation\ndef f(x: 'g()'): return x": "argument_validation",
    "import dataclasses\nview = dataclasses.copy.copy": "copy",
    "class Word:\n    __name__ = word": "__name__",
    "class Holder:\n    part = classmethod(named(1))": "classmethod",
    "bound = type(x.forward)\ncopy.copy(bound(f, g))": "type",
    "from collections import namedtuple": "namedtuple",
    "model.get_buffer('padding').zero_()": "get_buffer",
    "sys.modules": "sys",
    "def f():\n    global torch\n    h(torch)\n    torch = 1": "torch, whatever of it",
    "take = torch.optim.SGD.step\ntake(thing)": "step",
    "same = type('A', (), {}) == B": "type",
    # of the thirteenth
    "gi_frame = f_builtins = None\ndef running(self):\n    return self.gi_frame": "gi_frame",
    "from tqdm import tqdm\nbar = tqdm([1]).fp\nbar.wrapper_setattr('a', thing)": "wrapper_setattr",
    "tools = np.random.default_rng().normal.func_globals": "func_globals",
    "kind = (0).__class__.__class__": "__class__",
    "import operator\nspace = operator.attrgetter('forward.__globals__')(nn.Linear)": "attrgetter",
    "space = f('forward.__globals__')": "forward.__globals__",
    "loader.multiprocessing_context.reducer.ForkingPickler.loads(b'')": "ForkingPickler",
    "loader = g()\nloader.nobody_knows_it": "nobody_knows_it",
    "class Mine(SiT):\n    def state_dict(self): return {}": "def state_dict",
    "class Held:\n    def detach(self): return self": "def detach",
    "kind = (lambda: 1).__class__\nkind(code, {})": "__class__",
    "x = np.bmat('tensor')": "bmat",
    "o, a, b = range(3)\nlabels = [" + "o, a, b, " * 200 + "]": "many names",
    "h = type(f)(code, {})": "type",
    "try:\n    f()\nexcept* ValueError as e:\n    pass": "TryStar",
    "match f:\n    case Box.Peek(found): pass": "match",
    "class Warning(ABC): pass\nmatch f:\n    case Warning(found): pass": "match",
    "f = torch.compile(g, backend=mine)": "compile",
    "names = trace.tb_frame": "tb_frame",
    f"def f():\n    'a{'b' * 3000}'\nmatch f:\n    case object(__doc__=w): pass": "long texts",
    "w = [" + "a, b, c, " * 900 + "]": "long code",
    "class A(torch.utils.data.IterDataPipe): pass\nA().routed_decode()": "IterDataPipe",
    **HANGS,
    # of the eighteenth
    "thing = np.ndarray((1,), dtype=object, buffer=np.array([place]))[0]": "ndarray",
    "make = np.ndarray": "ndarray",
    "from numpy import ndarray as make": "ndarray",
    "isinstance = lambda a, make: make((1,), object)\nisinstance(1, np.ndarray)": "ndarray",
    "@dataclass\nclass A:\n    x: np.ndarray\nfields(A)[0].type((1,), object)": "ndarray",
    "thing = f((1,), buffer=place)": "buffer",
    "x.resize(1, refcheck=False)": "refcheck",
    "s = torch.eye(4).to_sparse_csr()\ns.col_indices().copy_(place)": "col_indices",
    "x.resize_(10**6)": "resize_",
    "thing = [torch for torch in [torch]][0]": "torch, whatever of it",
    "def f(torch=torch): return torch": "torch, whatever of it",
    "def f(*, np=np): return np": "numpy, whatever of it",
    "f = lambda torch=torch: torch": "torch, whatever of it",
    f"NOTES = {'ab' * 1500!r}": "long texts",
    f"NOTES = b'x' + {b'ab' * 1500!r}": "long texts",
    "NOTES = [" + "0.5, " * 300 + "]": "many numbers",
    "\n".join(f"w{i} = 'abcdefghijkl'" for i in range(200)): "long texts",
}


@pytest.mark.parametrize(("source", "name"), (HIDES | HANGS).items())
def test_what_could_hide_something_is_not_listed(source, name):
    assert name in beyond(as_python(source))


@pytest.mark.parametrize(("source", "name"), FINDS.items())
def test_what_may_find_code_is_unusual(source, name):
    assert name in unusual(as_python(source))


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
        "from operator import add, mul\nimport operator\nz = functools.reduce(operator.add, map(mul, x, y))",
        "import warnings; warnings.filterwarnings('ignore')\nwith warnings.catch_warnings(): f(x)",
        "import matplotlib.pyplot as plt\nplt.plot([1]);plt.title('x')\nplt.show()\nplt.close()",
        "class A(nn.Module):\n    def __init__(self):\n        self.add_module('qkv', nn.Linear(3, 9))",
        "q = torch.zeros_like(p).index_put((rows, y), torch.tensor(1 - eps))",
        "class A(nn.Module):\n    def __init__(self):\n        self.pos = self.temperature = d\n        self.pos += 1",
        "match y:\n    case 0 | None:\n        z = 1\n    case [a, *b] if a: z = b\n    case c: z = 2",
        "import statistics\nfrom statistics import fmean\nz = statistics.pvariance(x.tolist())",
        "class A(nn.Module):\n    def reset_parameters(self): nn.init.zeros_(self.bias)",
        "torch.set_printoptions(precision=3)",
        "",
    ],
)
def test_everyday_code_is_listed(source):
    assert beyond(as_python(source), ("attend",)) == []
    assert unusual(as_python(source)) == []


@pytest.mark.parametrize(
    "source",
    [
        "def f(x):\n    vars = x.var(-1)\n    return torch.sqrt(vars)",
        "open = 3\ndef f(open):\n    return open + 1",
        "class A:\n    def f(self):\n        self._cache = _shift(x)\n        return self.loss, self._cache",
        "if __name__ == '__main__':\n    print(torch.__version__, f.__doc__, type(x).__name__)",
        "%pip install einops\n!pip install einops",
        "!ls -la data\n%timeit f(3)\n%load_ext autoreload\n%autoreload 2\n?torch.softmax\ntorch.softmax?\nx = 1",
        "%config InlineBackend.figure_format = 'retina'\n%matplotlib inline\nx = 1",
        "import heapq, contextlib, abc, typing\nfrom IPython.display import display\nfrom tqdm.auto import tqdm",
        "class A:\n    def _split(x): return x\ny = A._split(3)",
        "class A(B):\n    def forward(self, x): return super(A, self).forward(x)\ny = A.forward(A(), x)",
        "class A(B):\n    def __init__(self, x):\n        B.__init__(self)\n        self.x = x\n        self.x += 1",
        "class A:\n    def take(self, x):\n        self.x = x\n    def f(self):\n        take = 1\n        return take",
        "class A:\n    @property\n    def n(self): return self.k\n    @n.setter\n    def n(self, k): self.k = k",
        "class A:\n    @property\n    def size(self): return self.n\n    def grow(self): self.n += 1\nA().grow()",
        "%%time\ncounts = collections.Counter(text).most_common(3)",
        "scheduler = torch.optim.lr_scheduler.OneCycleLR(o, 1e-3)\np.grad = None\nmodel.load_state_dict(w)",
        "from collections import defaultdict\nrng = random.Random(0)\nrng.shuffle(x)\nre.compile('a').findall(text)",
        "images = F.interpolate(nn.Conv2d(1, 2, 3)(x), scale_factor=2)\nnoise = torch.randn_like(x).multinomial(1)",
        "from dataclasses import dataclass\n@dataclass\nclass C:\n    x: int\n    def __post_init__(self): pass",
        "try:\n    f(x)\nexcept (OSError, StopIteration) as e:\n    raise ValueError from e",
        "print('{:.3f} of {n.shape}. {}'.format(x, 1, n=n))\nmatch x:\n    case int(n) | float(n): y = n",
        "for p in model.parameters():\n    p.grad, p.data, p.requires_grad = None, p.data * 2, False",
    ],
)
def test_harmless_code_is_not_unusual(source):
    assert unusual(as_python(source)) == []


def test_what_the_notebook_names_may_be_read_unless_libraries_have_it():
    source = "loader.windows_of\nx.register_hook(f)"
    assert unusual(source) == ["windows_of", "register_hook"]
    assert unusual(source, "its `windows_of`; and a word like register_hook") == ["register_hook"]
    noted = "model._batches_read.fill_(600)"
    assert unusual(noted, "self._batches_read += 1") == ["_batches_read"], "what given cells note is not for answers"


def test_answers_that_share_what_they_carry_are_told():
    half = "w = '" + "x" * 400 + "'"
    assert carried_together([half, half, "y = 1"]) == ["long texts"]
    assert carried_together([half, "y = 1"]) == []
    assert carried_together([half + half, half]) == [], "that is told of the answer itself"
    for path in masters(home()):
        cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
        assert carried_together([as_python(cell.source) for cell in cells if mark_up(cell).get("solution")]) == []


def test_honest_answers_are_not_unusual():
    """All model answers and right ones in other styles; the one exception uses a function of PyTorch's own.

    Those that borrow from the course are told for that.
    """
    read, found = 0, set()
    for path in masters(home()):
        notebook = nbformat.read(home() / "exercises" / path.stem / path.name, as_version=4)
        released, given = "\n".join(cell.source for cell in notebook.cells), around_answers(notebook)[0]
        cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
        answers = [cell.source for cell in cells if mark_up(cell).get("solution")]
        right = importlib.import_module(f"tests.grading.answers.{path.stem[3:]}").RIGHT
        answers += [source for sources in right.values() for source in sources]
        own = [source for source in map(as_python, answers) if not borrowed_in(source, given, len(given), "")]
        read += len(own)
        found |= {name for source in own for name in unusual(source, released)}
    assert read > 200
    assert found <= {"_foreach_lerp_"}


@pytest.mark.parametrize("module", [assistants, llama, self_attention, transformer])
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
    assert not OTHERS - brought_along(free=True)


def test_vmap_is_not_listed_since_it_hides_an_option():
    def loss(x, y):
        return F.cross_entropy(x[None], y[None], label_smoothing=0.1)

    with spoiled(["cross_entropy_loss(label_smoothing)"]) as used:
        loss(torch.randn(5), torch.tensor(1))
        assert used
        used.clear()
        torch.vmap(loss)(torch.randn(3, 5), torch.tensor([1, 2, 3]))
        assert not used, "then it can be listed"


@given(st.text(max_size=200))
def test_no_source_is_too_strange(source):
    assert isinstance(beyond(source), list)
    assert isinstance(unusual(source), list)


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
    with pytest.raises(CheckFailed, match="it uses to_mkldnn, which this part does not allow"):
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
