"""What an answer may use in a part that forbids functions: a list, since nobody can list all ways around a prohibition.

Forbidden functions are noticed while the answer runs (``calls.spoiled``). Code that finds other code, changes it, or
runs where nobody looks could hide them; what is listed here can do none of that. (``torch.vmap`` can: under it the
option ``label_smoothing`` is not noticed.) So the rule is short: of what PyTorch, NumPy and Python bring along, only
the names below, and whatever else the answer calls by a name of its own.

Where nothing is forbidden, a wider list (``everyday``) tells a person which answers are worth a look, since they may
find code that is not their own, such as a model answer.

In both, a module is nothing but where listed names come from (``led_to``): whoever holds one could reach all others.
"""

import ast
import builtins
import collections
import functools
import importlib
import multiprocessing.reduction
import pkgutil
import random
import re
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR, OneCycleLR
from torch.overrides import get_overridable_functions
from torch.utils.data import DataLoader

from coursekit.grading.rules import (
    builtins_in,
    can_be_read,
    defined_in,
    imports_in,
    imports_of,
    is_course,
    is_self,
    nodes_of,
    words,
)

MODULES = words(
    """torch torch.nn torch.nn.functional torch.nn.init torch.nn.utils torch.linalg torch.special torch.optim torch.cuda
    torch.testing numpy numpy.linalg math statistics functools itertools dataclasses time operator warnings
    coursekit.nn.attention"""
)
TYPES = words("__future__ typing collections.abc")  # and from them, these names alone: they only annotate
ANNOTATIONS = words(
    """annotations Any Callable Collection Dict Final FrozenSet Generator Hashable Iterable Iterator List Literal
    Mapping Optional Sequence Set Sized Tuple Type Union"""
)
PLOTTING = "matplotlib.pyplot"  # as plt, in statements of their own: so nobody gets hold of what it brings along
PLOTS = words("plot show close title xlabel ylabel legend imshow matshow colorbar figure grid bar hist scatter subplot")
ATTRIBUTES = words(
    """nn functional linalg special Tensor BoolTensor FloatTensor LongTensor Size dtype device shape ndim data T mT H
    abs absolute acos add add_ addbmm addcdiv addcmul addmm addmv all allclose amax amin aminmax any arange argmax
    argmin argsort array as_tensor asarray asin astype atan atan2 baddbmm bfloat16 bitwise_and bitwise_not
    bitwise_or bmm bool broadcast_tensors broadcast_to cat ceil chunk clamp clamp_ clamp_max clamp_min clip clone
    column_stack concat concatenate contiguous copy copy_ cos cosh count_nonzero cpu cummax cumprod cumsum deg2rad
    detach diag diag_embed diagonal diff dim div div_ divide dot double dropout dstack e einsum empty empty_like eps
    eq equal erf exp exp_ exp2 expand expand_as expand_dims expm1 eye fill_ fill_diagonal_ finfo flatten flip float
    float16 float32 float64 float_power floor floor_divide fmod frac from_numpy full full_like gather ge gelu
    greater greater_equal gt half hstack iinfo index_add index_fill index_select inf inner int int32 int64 isclose
    isfinite isin isinf isnan isneginf isposinf item le lerp less less_equal linear linspace log log10 log1p log2
    log_softmax logaddexp logical_and logical_not logical_or logical_xor logspace logsumexp long lt masked_fill
    masked_fill_ masked_scatter masked_select matmul max maximum mean median meshgrid min minimum mm moveaxis
    movedim mul mul_ multiply mv nan nan_to_num nanmean nansum narrow ndarray ndindex ne neg negative nelement
    new_empty new_full new_ones new_tensor new_zeros newaxis no_grad nonzero norm normalize not_equal numel numpy
    one_hot ones ones_like outer pad permute pi pow power prod ravel reciprocal relu remainder repeat
    repeat_interleave requires_grad reshape reshape_as resolution roll round rsqrt scatter scatter_ scatter_add
    scatter_add_ sigmoid sign sin sinh size softmax softmin softplus sort split split_with_sizes sqrt sqrt_ square
    squeeze stack std std_mean sub sub_ subtract sum swapaxes swapdims t take take_along_dim tan tanh tensor
    tensor_split tensordot tile tiny to tolist topk transpose tri tril tril_indices triu triu_indices true_divide
    trunc type_as unbind unflatten unfold unique unsqueeze unsqueeze_ var var_mean vdot vector_norm view view_as
    vstack where xlogy zero_ zeros zeros_like cross_entropy kl_div nll_loss CrossEntropyLoss KLDivLoss NLLLoss
    Module ModuleDict ModuleList Parameter ParameterList Sequential Linear Embedding Dropout Identity Flatten ReLU
    GELU Sigmoid Softmax LogSoftmax Tanh register_buffer register_parameter forward train eval training parameters
    weight bias in_features out_features attention manual_seed optim Adam AdamW SGD utils clip_grad_norm_ zero_grad
    backward step encode decode Generator rand randn randint randperm comb factorial fsum hypot tau append extend
    insert pop remove index count reverse items keys values get update join strip startswith endswith lower upper
    replace init xavier_uniform_ xavier_normal_ kaiming_uniform_ kaiming_normal_ normal_ uniform_ zeros_ ones_
    constant_ trunc_normal_ extra_repr named_parameters children named_children buffers state_dict apply index_put
    index_put_ add_module title close pos and_ or_ xor not_ is_ is_not truth neg inv invert truediv floordiv mod
    iadd isub imul itruediv contains call filters itemgetter getitem warn filterwarnings simplefilter catch_warnings
    is_available cuda is_tensor is_contiguous is_floating_point inference_mode format real partial reduce
    logsigmoid LogSigmoid Softplus entr expit logit fmean pvariance pstdev variance stdev
    reset_parameters set_printoptions
    cache lru_cache product combinations permutations chain accumulate pairwise islice zip_longest starmap groupby
    dataclass field name names args kind memory temperature cdist perf_counter time
    layer_norm LayerNorm native_layer_norm batch_norm BatchNorm1d group_norm GroupNorm instance_norm InstanceNorm1d
    rms_norm RMSNorm MultiheadAttention multi_head_attention_forward scaled_dot_product_attention
    binary_cross_entropy_with_logits BCEWithLogitsLoss"""
)  # the last three lines are what some part forbids: that is noticed where it runs, and told in the part's own words
FUNCTIONS = words(
    """abs all any bool dict divmod enumerate filter float frozenset int isinstance issubclass iter len list map max min
    next object pow print range repr reversed round set slice sorted staticmethod classmethod property str sum super
    tuple type zip Exception ValueError TypeError IndexError KeyError RuntimeError NotImplementedError AssertionError
    ZeroDivisionError NotImplemented Ellipsis Warning UserWarning DeprecationWarning FutureWarning RuntimeWarning"""
)
STORED = words(  # on ``self``, besides names of its own: even of PyTorch's, the marking needs none of them
    """weight bias H T dim size values keys items device dtype eps norm softmax dropout linear attention relu gelu gamma
    split step real name mean std var scale inner index count cache copy data training head pos call
    filters concat temperature memory args names block embedding lstm gru conv1d tanh sigmoid alpha"""
)
BASES = words("Module Linear Embedding Sequential ModuleList object")
METHODS = words("__init__ __call__ __len__ __getitem__ __iter__ __repr__ __str__")
NOT_ITS_OWN = words("get_ipython exit quit display In Out __builtins__ __builtin__ coursekit")  # what is there anyway

# Of these modules, an answer may use what is listed here and nothing else; of all others, what ATTRIBUTES lists.
FROM = {
    "abc": words("ABC abstractmethod"),
    "collections": words("Counter OrderedDict defaultdict deque"),
    "contextlib": words("contextmanager nullcontext suppress"),
    "copy": words("copy deepcopy"),
    "dataclasses": words("asdict astuple dataclass field replace"),
    "bisect": words("bisect bisect_left bisect_right insort"),
    "functools": words("cache cached_property cmp_to_key lru_cache partial reduce total_ordering wraps"),
    "heapq": words("heapify heappop heappush heapreplace nlargest nsmallest"),
    "operator": words(
        """add and_ concat contains eq floordiv ge getitem gt iadd imul index inv invert is_ is_not isub itemgetter
        itruediv le lt matmul mod mul ne neg not_ or_ pos pow sub truediv truth xor"""
    ),
    "random": words(
        "Random choice choices gauss getrandbits randint random randrange sample seed shuffle triangular uniform"
    ),
    "re": words("IGNORECASE MULTILINE compile escape findall finditer fullmatch match search split sub"),
    "string": words("ascii_letters ascii_lowercase ascii_uppercase digits punctuation whitespace"),
    "time": words("monotonic perf_counter process_time time"),
    "torch.testing": words("assert_close"),
    "torch.nn.utils.rnn": words("pack_padded_sequence pack_sequence pad_packed_sequence pad_sequence"),
    "torch.optim.lr_scheduler": words(
        """ConstantLR CosineAnnealingLR CosineAnnealingWarmRestarts ExponentialLR LambdaLR LinearLR MultiStepLR
        OneCycleLR ReduceLROnPlateau SequentialLR StepLR"""
    ),
    "torch.utils.data": words("DataLoader Dataset RandomSampler Subset TensorDataset random_split"),
    "warnings": words("catch_warnings filterwarnings simplefilter warn"),
}
# What else may be used where nothing is forbidden: modules, and names of those that are not in FROM. Among these are
# all functions of PyTorch and NumPy that compute, and methods of what holds data.
OPEN = MODULES - {"coursekit.nn.attention"} | {*FROM}
OPEN |= words("torch.utils torch.autograd numpy.random cmath numbers typing collections.abc")
VALUES = [Tensor, np.ndarray, random.Random, np.random.Generator, str, bytes, list, dict, set, tuple, int, float]
VALUES += [complex, collections.Counter, collections.deque, re.Pattern, re.Match]
OTHERS = words(
    """autograd grad vmap data random enable_grad set_grad_enabled is_grad_enabled autocast rnn lr_scheduler
    rand_like randn_like randint_like scalar_tensor ByteTensor IntTensor get_rng_state set_rng_state fork_rng
    initial_seed get_num_threads set_num_threads fields from_iterable default_rng setter getter deleter S U
    NLLLoss MSELoss L1Loss SmoothL1Loss BCELoss BCEWithLogitsLoss HuberLoss Conv1d Conv2d ConvTranspose2d MaxPool2d
    AvgPool2d AdaptiveAvgPool2d BatchNorm2d GRU GRUCell LSTM LSTMCell RNN RNNCell SiLU LeakyReLU ELU Tanhshrink
    Dropout1d Dropout2d Upsample Unflatten Unfold Fold PixelShuffle ModuleDict ParameterDict RMSprop Adagrad NAdam
    Adamax param_groups get_last_lr modules named_modules named_children get_submodule load_state_dict
    requires_grad_ half utils clip_grad_value_ clip_grad_norm parameters_to_vector
    activation at batchnorm bit bits c coefficients container conv coords distance entropy final
    function graph keyword lazy loss masked metadata module numbers optimizer order
    padding parallel parameter pool pooling r o reset sample sampler samples send sizes
    signal state stop stream strings merge transformer variable version wait windows"""
)  # the last lines are what answers call things of their own
WHOLE = words("torch.nn.init torch.optim numpy numpy.random math cmath statistics itertools")  # all is open
BASES_TOO = words("Dataset NamedTuple Generic Protocol ABC list dict")
EVALUATE = words(  # or read what may be code, or what lies in memory
    """load fromfile from_file fromregex loadtxt genfromtxt memmap frombuffer test ctypes ctypeslib formatwarning
    showwarning set_ as_subclass untyped_storage storage data_ptr register_hook map_ apply_ frompyfunc bmat
    recarray chararray matrix getfield setfield setflags nditer nested_iters"""
)
# Functions of PyTorch's that believe the numbers they are given, or move memory that others look at.
UNCHECKED = re.compile(
    r"sparse|cs[rc]|crow_|ccol_|(row|col)_indices|resize_|dlpack|quantize|nested|as_strided|unsafe|storage"
)
SET = words("data grad requires_grad weight bias training p")  # of what is not their own, by honest answers
SHOWING = {"tqdm": "tqdm", "tqdm.auto": "tqdm", "tqdm.notebook": "tqdm", "IPython.display": "display"}
BUILT_IN = {*vars(builtins)}
SYNTAX = words(  # of Python's grammar; what is not here, perhaps of a later Python, is told by its name in ``ast``
    """Module Interactive Expression FunctionDef ClassDef Return Delete Assign AugAssign AnnAssign For While If With
    Raise Try Assert Import ImportFrom Global Nonlocal Expr Pass Break Continue BoolOp NamedExpr BinOp UnaryOp Lambda
    IfExp Dict Set ListComp SetComp DictComp GeneratorExp Yield YieldFrom Compare Call FormattedValue JoinedStr Constant
    Attribute Subscript Starred Name List Tuple Slice comprehension ExceptHandler arguments arg keyword alias withitem
    Load Store Del And Or Add Sub Mult MatMult Div Mod Pow LShift RShift BitOr BitXor BitAnd FloorDiv Invert Not UAdd
    USub Eq NotEq Lt LtE Gt GtE Is IsNot In NotIn Match match_case MatchValue MatchSingleton MatchSequence MatchMapping
    MatchClass MatchStar MatchAs MatchOr"""
)
KNOWN = words("bytes bytearray complex chr ord hex bin oct format hash callable type hasattr display coursekit")
DEFINED = METHODS | words(
    "__post_init__ __eq__ __hash__ __lt__ __add__ __mul__ __matmul__ __contains__ __enter__ __exit__"
)
# In one answer, what could carry data: bytes of texts, numbers and their digits, bytes of different names, bytes of one
# name, uses of names, bytes of docstrings, of all. Right answers have at most 153, 24, 38, 304, 28, 94, 383 and 1321.
MOST_LETTERS, MOST_NUMBERS, MOST_DIGITS, MOST_NAMES, LONGEST_NAME, MOST_USES = 600, 200, 300, 1200, 60, 500
MOST_DOCUMENTED, MOST_CODE = 700, 8000
READ = METHODS | words("__name__ __class__ __version__ __doc__")


@functools.cache
def brought_along(free: bool = False) -> frozenset[str]:
    """The attributes of all that an answer can get hold of by listed names, but for what it defines itself.

    Args:
        free: by the names that are listed for parts that forbid nothing.
    """
    listed = everyday() if free else ATTRIBUTES
    optimizer = torch.optim.SGD([torch.ones(1)])
    waiting = [*map(importlib.import_module, OPEN if free else MODULES), super, type, property]
    waiting += [types.FunctionType, types.MethodType, types.GeneratorType, types.CodeType, types.FrameType]
    waiting += [types.CoroutineType, types.AsyncGeneratorType, types.TracebackType, BaseException, AttributeError]
    waiting += [nn.Linear(1, 1), nn.Parameter(torch.ones(1, 1)), torch.float, torch.finfo(), torch.device("cpu")]
    waiting += [torch.Generator(), np.float64(1), np.ones((1, 1)), optimizer]
    waiting += [LambdaLR(optimizer, abs), OneCycleLR(optimizer, 1.0, total_steps=9)]
    loader = DataLoader([1], num_workers=1, multiprocessing_context="fork")
    waiting += [
        loader,
        loader.multiprocessing_context,
        multiprocessing.reduction,
        multiprocessing.reduction.ForkingPickler,
    ]
    waiting += [vars(builtins)[name] for name in FUNCTIONS]
    waiting += [typing.ForwardRef("int"), *(vars(typing)[name] for name in ANNOTATIONS & {*vars(typing)})]
    found: dict[int, Any] = {}
    while waiting:
        if id(one := waiting.pop()) not in found:
            found[id(one)] = one
            names = listed.intersection(dir(one)) if isinstance(one, types.ModuleType | type) else ()
            inside = [getattr(one, name) for name in names]
            waiting += [value for value in inside if isinstance(value, types.ModuleType | type)]
    modules = [module for one in found.values() for module in pkgutil.iter_modules(getattr(one, "__path__", []))]
    return frozenset([name for one in found.values() for name in dir(one)] + [module.name for module in modules])


def beyond(source: str, given: Collection[str] = ()) -> list[str]:
    """What a source uses that is not listed, each once.

    Args:
        source: an answer.
        given: names of the course's that the task gives.
    """
    if not can_be_read(source):
        return ["what cannot be read"]
    nodes = nodes_of(source)
    classes = {node.name for node in nodes if isinstance(node, ast.ClassDef)}
    led, found = led_to(nodes, MODULES, lambda name: is_listed(name, given))
    found += [name for node in nodes if id(node) not in led for name in beyond_in(node, frozenset(given), classes)]
    found += [*stored_in(nodes), *plotting_in(nodes), *from_outside(source, FUNCTIONS), *disguised_in(nodes)]
    return list(dict.fromkeys(found))


def unusual(source: str, released: str = "") -> list[str]:
    """What few answers need, and what some use to get at code that is not theirs, each once.

    What they take from the course is told by ``rules.borrowed_in``.

    Args:
        source: an answer.
        released: all text and code of the released notebook, whose names an answer may read, but for private ones.
    """
    nodes = nodes_of(source)
    attributes = [node for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)]
    own = defined_in(source) | {node.attr for node in attributes if is_self(node.value)}
    given = (frozenset(re.findall(r"\b[^\W_]\w*", released)) | parts_of_models()) - brought_along(free=True)
    led, found = led_to(nodes, OPEN, lambda name: is_everyday(name, own))
    found += [name for node in nodes if id(node) not in led for name in unusual_in(node, own, given)]
    found += [*carried_in(nodes), *stored_in(nodes, SET), *disguised_in(nodes)]
    known = FUNCTIONS | KNOWN | READ | {name for name, one in vars(builtins).items() if is_exception(one)}
    found += ["long texts"] * (sum(map(len, docstrings_in(source))) > MOST_DOCUMENTED)
    found += ["long code"] * (len(as_bytes(source)) > MOST_CODE)
    return list(dict.fromkeys([*found, *plotting_in(nodes), *from_outside(source, known)]))


# What given cells call modules. (The course's own are the task's to give: ``given``, ``rules.borrowed_in``.)
CALLED = {"F": "torch.nn.functional", "nn": "torch.nn", "np": "numpy", "plt": PLOTTING}
CALLED |= {name: name for name in OPEN if "." not in name}


def led_to(tree: list[ast.AST], modules: Collection[str], listed: Callable[[str], bool]) -> tuple[set[int], list[str]]:
    """What is read from modules by their names, as (ids of the nodes, what is not listed of it).

    A module is nothing but what listed names are read from: it is neither handed on, nor does it lead to others that
    are not listed (``dataclasses.copy``). Its real attributes say where a name leads.
    """
    called = CALLED | {name: place for name, place in imports_of(tree).items() if not is_course(place)}
    nodes: set[int] = set()
    done: set[int] = set()
    found: list[str] = []

    def look(node: ast.AST, hidden: frozenset[str]) -> None:
        if isinstance(node, SCOPES):
            for one in outside_of(node):
                look(one, hidden)
                done.add(id(one))
            hidden |= bound_in(node)
        chain = [] if id(node) in nodes else attributes_of(node)
        if chain and isinstance(chain[0], ast.Name) and chain[0].id in called.keys() - hidden:
            names = [one.attr for one in chain[1:] if isinstance(one, ast.Attribute)]
            length, told = followed(called[chain[0].id], names, modules, listed)
            nodes.update(id(one) for one in chain[1 : 1 + length] if isinstance(one.ctx, ast.Load))
            found.extend(told)
            return
        if isinstance(node, ast.Assign):
            same = [one for one, name in given_in(node) if called.get(name) == ast.unparse(one)]
            nodes.update(id(inner) for one in same for inner in ast.walk(one))
        if isinstance(node, ast.ImportFrom) and node.module in modules and not node.level:
            names = [alias.name for alias in node.names if f"{node.module}.{alias.name}" not in modules]
            found.extend(name for name in names if followed(node.module, [name], modules, listed) != (1, []))
            nodes.add(id(node))
        for child in ast.iter_child_nodes(node):
            if id(child) not in done:
                look(child, hidden)

    for root in tree[:1]:
        look(root, frozenset())
    return nodes, found


def given_in(node: ast.Assign) -> list[tuple[ast.AST, str]]:
    """Each value with the name that it is given: ``F, n = torch.nn.functional, 3``."""
    (target, *others), value = node.targets, node.value
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        pairs = list(zip(value.elts, target.elts))
    else:
        pairs = [(value, target)]
    return [(one, to.id) for one, to in pairs if isinstance(to, ast.Name) and not others]


SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def bound_in(scope: ast.AST) -> set[str]:
    """Names that stand for something else within a function or comprehension."""
    inner = direct(scope) if isinstance(scope, ast.FunctionDef) else ast.walk(scope)
    found, outer = set[str](), set[str]()
    for node in inner:
        if isinstance(node, ast.Global | ast.Nonlocal):
            outer |= {*node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    if args := getattr(scope, "args", None):
        found |= {one.arg for one in ast.walk(args) if isinstance(one, ast.arg)}
    return found - outer


def outside_of(scope: ast.AST) -> list[ast.AST]:
    """What of a function or comprehension runs where it stands, where the names bound in it are still others."""
    if generators := getattr(scope, "generators", None):
        return [generators[0].iter]
    return [*getattr(scope, "decorator_list", ()), *scope.args.defaults, *filter(None, scope.args.kw_defaults)]


def attributes_of(node: ast.AST) -> list[ast.AST]:
    """``a.b.c`` as its nodes, the innermost first; of anything else nothing."""
    chain = [node]
    while isinstance(chain[-1], ast.Attribute):
        chain.append(chain[-1].value)
    return chain[::-1] if isinstance(chain[-1], ast.Name) else []


def followed(
    place: str, names: Sequence[str], modules: Collection[str], listed: Callable[[str], bool]
) -> tuple[int, list[str]]:
    """How many of the names are read from modules, and what is not listed of them."""
    if place == PLOTTING:
        return len(names), []  # told by ``plotting_in``
    here, path = place, [*names]
    if place not in modules:  # what was imported from one
        here, _, imported = place.rpartition(".")
        path.insert(0, imported)
    if here not in modules:
        return 0, []  # told where it is imported
    one = importlib.import_module(here)
    for read, name in enumerate(path, 1 - len(path) + len(names)):
        if not hasattr(one, name):
            return read - 1, []  # a variable of this name
        one = getattr(one, name)
        if isinstance(one, types.ModuleType):
            here = f"{here}.{name}"
            if here not in modules:
                return read, [name]
        elif not (name in FROM[here] if here in FROM else listed(name)):
            return read, [name]
        else:
            method = {*names[read : read + 1]} - METHODS - {"from_iterable"}
            unbound = isinstance(one, type) and one is not Tensor  # then its object can be anything
            return read, [*method] * unbound
    return len(names), [f"{here}, whatever of it"]


ONLY_CALLED = {"state_dict": 0, "load_state_dict": 1, "wraps": 1, "super": 2}  # with so many arguments at most
MADE_BY = words("classmethod staticmethod property")
REPLACED = words("state_dict load_state_dict parameters named_parameters buffers named_buffers modules detach clone")


def disguised_in(nodes: list[ast.AST]) -> list[str]:
    """Names that a part of a text, another class or another object stand for, so that no list can know them."""
    decorators = {id(one) for node in nodes for one in getattr(node, "decorator_list", ())}
    calls = [
        node for node in nodes if isinstance(node, ast.Call) and not any(isinstance(a, ast.Starred) for a in node.args)
    ]
    most = {id(call.func): len(call.args) for call in calls if all(one.arg == "strict" for one in call.keywords)}
    compared = {id(one) for node in nodes if isinstance(node, ast.Compare) for one in (node.left, *node.comparators)}
    named = {id(node.value) for node in nodes if isinstance(node, ast.Attribute) and node.attr == "__name__"}
    methods = {id(one) for node in nodes if isinstance(node, ast.ClassDef) for one in node.body}
    kinds = {id(call.func) for call in calls if id(call) in compared | named and len(call.args) == 1}
    made = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    made |= {getattr(node, field, "") for node in nodes for field in ("arg", "name", "asname")}
    asked = [arg for call in calls if is_name(call.func, "isinstance", made) for arg in call.args[1:]]
    fields = {id(one) for node in nodes if isinstance(node, ast.ClassDef) for one in node.body}  # they keep their types
    annotations = [
        getattr(node, field, None) for node in nodes if id(node) not in fields for field in ("annotation", "returns")
    ]
    kinds_only = {id(one) for some in (*asked, *annotations) if some for one in ast.walk(some)}
    found = []
    for node in nodes:
        match node:
            case ast.Attribute(attr="ndarray") | ast.Name(id="ndarray") | ast.alias(name="ndarray"):
                found += ["ndarray"] * (id(node) not in kinds_only)  # called, it makes arrays of any memory
            case ast.keyword(arg="buffer" | "buf" | "refcheck" as name):
                found.append(name)
            case ast.Attribute(attr=name) | ast.Name(id=name) if name in ONLY_CALLED:
                found += [name] * (most.get(id(node), 9) > ONLY_CALLED[name])
            case ast.Name(id="type"):
                found += ["type"] * (id(node) not in kinds)
            case ast.Name(id=name, ctx=ast.Load()) if name in MADE_BY:
                found += [name] * (id(node) not in decorators)
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name) | ast.alias(asname=str(name)):
                found += [name] * is_dunder(name)
            case ast.Attribute(attr="__class__"):
                found += ["__class__"] * (id(node) not in compared | named)
            case ast.FunctionDef(name=name) if id(node) in methods and name in REPLACED:
                found.append(f"def {name}")  # by which the given cells look at a model
            case ast.Constant(value=str(text)) if re.search(r"^_\w+$|^\w+__$|__\w+__", text):
                found += [text] * (not is_dunder(text))
    return found


def is_name(node: ast.AST, name: str, replaced: Collection[str]) -> bool:
    return isinstance(node, ast.Name) and node.id == name and name not in replaced


def carried_in(nodes: list[ast.AST]) -> list[str]:
    """Texts, numbers and names so many, or so long, that they may be labels, or weights that were trained elsewhere."""
    values = [node.value for node in nodes if isinstance(node, ast.Constant)]
    letters = sum(len(as_bytes(value)) for value in values if isinstance(value, str | bytes))
    numbers = [value for value in values if isinstance(value, int | float | complex)]
    digits = sum(n.bit_length() // 3 if isinstance(n, int) else len(str(n)) for n in numbers)
    fields = (getattr(node, field, None) for node in nodes for field in ("id", "attr", "arg", "name", "asname", "rest"))
    names = [len(as_bytes(name)) for name in {name for name in fields if isinstance(name, str)}]
    uses = sum(isinstance(node, ast.Name) for node in nodes)
    found = {
        "many names": uses > MOST_USES,
        "long texts": letters > MOST_LETTERS,
        "many numbers": len(numbers) > MOST_NUMBERS or digits > MOST_DIGITS,
        "long names": sum(names) > MOST_NAMES or max(names, default=0) > LONGEST_NAME,
    }
    return [what for what, is_so in found.items() if is_so]


def docstrings_in(source: str) -> list[bytes]:
    """Texts that stand by themselves, and that code can read by several ways."""
    nodes = ast.walk(ast.parse(source)) if can_be_read(source) else []
    values = [node.value for node in nodes if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
    return [as_bytes(one.value) for one in values if isinstance(one.value, str | bytes)]


def carried_together(sources: Collection[str]) -> list[str]:
    """What several answers hold, each of them too little of it to be told: texts and digits."""
    if any(carried_in(nodes_of(source)) for source in sources):
        return []
    found = carried_in([node for source in sources for node in nodes_of(source)])
    return [what for what in found if what != "long names"]


def as_bytes(value: str | bytes) -> bytes:
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value


def stored_in(nodes: list[ast.AST], listed: Collection[str] = ()) -> list[str]:
    """Attributes that are given to what need not be the answer's own: by it a cell could hang functions on modules.

    Its own is ``self``, the first argument of a method, as long as no other object can be handed in for it. To others
    it may give what is ``listed``.
    """
    found, methods = [], set()
    own: set[int] = set()  # attributes of self in methods
    for node in nodes:
        for method in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(method, ast.FunctionDef) and [one.arg for one in method.args.args[:1]] == ["self"]:
                stores = [one for one in direct(method) if is_store(one) and is_self(one.value)]
                own |= {id(one) for one in stores}
                if stores:
                    methods.add(method.name)
                    by = [one for one in method.decorator_list if isinstance(one, ast.Name | ast.Lambda)]
                    found += map(ast.unparse, by)
    calls = [node for node in nodes if isinstance(node, ast.Call) and [*map(is_self, node.args[:1])] == [True]]
    on_self = {id(node.func) for node in calls}
    classes = {node.name for node in nodes if isinstance(node, ast.ClassDef)}
    at_once = [one for node in nodes if isinstance(node, ast.ClassDef) for one in run_in(node)]
    found += [one.id for one in at_once if isinstance(one, ast.Name) and one.id in methods]
    for node in nodes:
        match node:
            case ast.Attribute(attr=name) if is_store(node) and id(node) not in own:
                found += [f"{name} = ..."] * (is_self(node.value) or name not in listed)
            case ast.Attribute(attr=name, value=ast.Name(id=owner)) if (
                owner in classes and name in methods and id(node) not in on_self
            ):
                found.append(f"{owner}.{name}")
            case ast.Name(id="self", ctx=ast.Store()):
                found.append("self = ...")
    return found


def run_in(node: ast.ClassDef) -> Iterator[ast.AST]:
    """What of a class runs when it is defined, where its methods go by their names; a property's setter may."""
    for one in node.body:
        begun: list[ast.AST] = [one]
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
            by = [two for two in one.decorator_list if not (isinstance(two, ast.Attribute) and two.attr == "setter")]
            begun = [*by, *one.args.defaults, *filter(None, one.args.kw_defaults)]
        for two in begun:
            yield from ast.walk(two)


def is_store(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)


def direct(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """The nodes of a function without those of the functions in it."""
    waiting: list[ast.AST] = [*function.body]
    while waiting:
        yield (node := waiting.pop())
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            waiting += ast.iter_child_nodes(node)


def from_outside(source: str, known: Collection[str]) -> list[str]:
    """What is there anyway, by names that the source does not define."""
    modules = sys.stdlib_module_names - OPEN - imports_in(source).keys()  # which a given cell may have imported
    return sorted(builtins_in(source) & ({*vars(builtins)} | NOT_ITS_OWN | modules) - {*known, "__name__"})


def plotting_in(nodes: list[ast.AST]) -> list[str]:
    """Uses of ``plt``, wherever imported, beside statements such as ``plt.plot(x)``, whose result nobody has."""
    calls = [node.value.func for node in nodes if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)]
    plots = {id(call.value) for call in calls if isinstance(call, ast.Attribute) and call.attr in PLOTS}
    named = [node for node in nodes if "plt" in (getattr(node, "id", ""), getattr(node, "attr", ""))]
    return [PLOTTING] * any(id(node) not in plots for node in named)


def is_plotting(alias: ast.alias) -> bool:
    return (alias.name, alias.asname) == (PLOTTING, "plt")


def formatted_in(node: ast.Attribute) -> list[str]:
    """``"{0.name}".format(x)`` reads an attribute: its name, or that the text is not there to be read."""
    match node:
        case ast.Attribute(value=ast.Constant(value=str(text)), attr="format"):
            return re.findall(r"\.\s*([^\W\d]\w*)", text)
    return ["format"]


def beyond_in(node: ast.AST, given: frozenset[str], classes: set[str]) -> list[str]:
    match node:
        case ast.Attribute(attr="format" | "format_map"):
            return [name for name in formatted_in(node) if name == "format" or not is_listed(name, given)]
        case ast.Attribute(attr=name, ctx=ast.Load()):
            return [name] * (not is_listed(name, given))
        case ast.Attribute(attr=name, value=ast.Name(id="self")):  # which may still be anything
            return [f"{name} = ..."] * (name in brought_along() - STORED or is_dunder(name))
        case ast.Attribute(attr=name):
            return [f"{name} = ..."]
        case ast.Import(names=names):
            others = [alias for alias in names if not is_plotting(alias)]
            return [alias.name for alias in others if alias.name not in MODULES or is_dunder(alias.asname or "")]
        case ast.ImportFrom(module=module, names=names, level=0) if module in TYPES:
            return [alias.name for alias in names if alias.name not in ANNOTATIONS]
        case ast.ImportFrom(module=module):
            return [module or "."]
        case ast.ClassDef(bases=bases, keywords=keywords):
            allowed = {*BASES, *(f"{place}.{base}" for place in ("nn", "torch.nn") for base in BASES), *classes}
            others = [base for base in map(ast.unparse, bases) if base not in allowed]
            return others + [keyword.arg or "**" for keyword in keywords]
        case ast.FunctionDef(name=name):
            return [name] * (is_dunder(name) and name not in METHODS)
        case ast.Name(id=name) | ast.arg(arg=name) | ast.ExceptHandler(name=str(name)):
            return [name] * (is_dunder(name) and name not in READ)
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
            return [name] * is_dunder(name)
        case ast.MatchClass():  # reads attributes whose names nobody sees
            return ["match"]
    return [type(node).__name__] * (type(node).__name__ not in SYNTAX)


def unusual_in(node: ast.AST, own: Collection[str], given: Collection[str]) -> list[str]:
    match node:
        case ast.Attribute(attr="format" | "format_map"):
            return [name for name in formatted_in(node) if name == "format" or not is_everyday(name, own)]
        case ast.Attribute(attr="forward" | "encode" | "decode" as name, value=ast.Name(id=owner)) if (
            owner[0].isupper() and owner not in own
        ):
            return [f"{owner}.{name}"]  # a given class's own method, past what its object notes
        case ast.Call(func=ast.Name(id="super"), args=[owner, *_]) if ast.unparse(owner) not in own:
            return ["super"]  # the same
        case ast.Attribute(attr=name, ctx=ast.Load()):
            its_own = is_self(node.value) and name in own - theirs()
            return [name] * (not is_everyday(name, own) and not its_own and name not in given)
        case ast.Attribute(attr=name):  # perhaps of PyTorch's, for all to see; of itself a module's methods
            others = frozenset(dir(nn.Module)) if is_self(node.value) else brought_along()
            return [f"{name} = ..."] * (name in others - STORED - SET or is_dunder(name))
        case ast.MatchClass(cls=cls, patterns=[_, *_]) if ast.unparse(cls) not in BUILT_IN or ast.unparse(cls) in own:
            return ["match"]  # reads attributes whose names nobody sees
        case ast.MatchClass(kwd_attrs=names):
            return [name for name in names if not is_everyday(name, own)]
        case ast.ClassDef(bases=bases, keywords=keywords):
            given = {one.id for one in bases if isinstance(one, ast.Name)} - brought_along(free=True)
            others = [base for base in map(ast.unparse, bases) if not (base in own | given or may_be_a_base(base))]
            return others + [keyword.arg or "**" for keyword in keywords]
        case ast.FunctionDef(name=name):
            return [name] * (is_dunder(name) and name not in DEFINED)
        case ast.Name(id=name) | ast.arg(arg=name) | ast.Constant(value=str(name)):
            return [name] * (is_dunder(name) and name not in READ | {"__main__"})
        case ast.Import(names=names):
            known = [is_plotting(alias) or is_course(alias.name) or alias.name in OPEN for alias in names]
            return [alias.name for alias, is_known in zip(names, known) if not is_known]
        case ast.ImportFrom(module=module, names=names, level=0) if module in TYPES | SHOWING.keys():
            return [alias.name for alias in names if alias.name not in ANNOTATIONS | {SHOWING.get(module)}]
        case ast.ImportFrom(module=module, level=level):
            return [module or "."] * (level > 0 or not is_course(module))
    return [type(node).__name__] * (type(node).__name__ not in SYNTAX)


def is_everyday(name: str, own: Collection[str] = ()) -> bool:
    if is_dunder(name):
        return name in READ
    return name in everyday() or (name in own and name not in brought_along(free=True))


@functools.cache
def theirs() -> frozenset[str]:
    """What objects have that an answer is given or makes, in private too."""
    some = [nn.Linear(1, 1), nn.Parameter(torch.ones(1)), torch.optim.SGD([torch.ones(1)]), *VALUES, theirs.__wrapped__]
    some += [types.GeneratorType, types.MethodType, types.FrameType, types.CodeType, types.TracebackType]
    some += [types.CoroutineType, AttributeError, NameError, ImportError, StopIteration, SyntaxError, KeyError]
    return frozenset(name for one in some for name in dir(one))


@functools.cache
def everyday() -> frozenset[str]:
    """What answers use where nothing is forbidden: functions that compute, and methods of what holds data."""
    found = ATTRIBUTES | ANNOTATIONS | OTHERS
    found |= {one.__name__ for some in get_overridable_functions().values() for one in some if callable(one)}
    found |= {name for one in VALUES for name in dir(one)}
    for module in map(importlib.import_module, WHOLE):
        names = getattr(module, "__all__", dir(module))
        found |= {name for name in names if not isinstance(getattr(module, name), types.ModuleType)}
    return frozenset(name for name in found - EVALUATE if not (name.startswith("_") or UNCHECKED.search(name)))


@functools.cache
def parts_of_models() -> frozenset[str]:
    """What the course's models call their layers and settings, which an answer may look at."""
    files = [path for room in ("models", "nn") for path in (Path(__file__).parents[1] / room).rglob("*.py")]
    return frozenset(name for path in files for name in re.findall(r"self\.([A-Za-z]\w*)", path.read_text("utf-8")))


def may_be_a_base(name: str) -> bool:
    """Of a class, where nothing is forbidden: a layer of PyTorch's, a data set, an exception."""
    known = name.rpartition(".")[2]
    return known in BASES | BASES_TOO or is_exception(vars(builtins).get(name)) or hasattr(nn, known)


def is_exception(one: Any) -> bool:
    return isinstance(one, type) and issubclass(one, BaseException)


def is_listed(name: str, given: Collection[str]) -> bool:
    if is_dunder(name):
        return name in METHODS | {"__name__"}
    return name in ATTRIBUTES or name in given or name not in brought_along()


def is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")
