"""What an answer may use in a part that forbids functions: a list, since nobody can list all ways around a prohibition.

Forbidden functions are noticed while the answer runs (``calls.spoiled``). Code that finds other code, changes it, or
runs where nobody looks could hide them; what is listed here can do none of that. So the rule is short: of what
PyTorch, NumPy and Python bring along, only the names below, and whatever else the answer calls by a name of its own.
"""

import ast
import builtins
import functools
import importlib
import pkgutil
import re
import types
from collections.abc import Collection
from typing import Any

import numpy as np
import torch
from torch import nn

from coursekit.grading.rules import builtins_in, is_long, nodes_of, words

MODULES = words("torch torch.nn torch.nn.functional math numpy coursekit.nn.attention")
TYPES = words("__future__ typing collections.abc")  # what is imported from them only annotates
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
    backward step encode decode Generator rand randn randint randperm comb factorial fsum hypot prod tau append
    extend insert pop remove index count reverse items keys values get update join strip startswith endswith lower
    upper replace
    layer_norm LayerNorm native_layer_norm batch_norm BatchNorm1d group_norm GroupNorm instance_norm InstanceNorm1d
    rms_norm RMSNorm MultiheadAttention multi_head_attention_forward scaled_dot_product_attention"""
)  # the last two lines are what some part forbids: that is noticed where it runs, and told in the part's own words
FUNCTIONS = words(
    """abs all any bool dict divmod enumerate filter float frozenset int isinstance issubclass iter len list map max min
    next object pow print range reversed round set slice sorted staticmethod classmethod property str sum super tuple
    zip Exception ValueError TypeError IndexError KeyError RuntimeError NotImplementedError AssertionError
    ZeroDivisionError NotImplemented Ellipsis"""
)
STORED = words("weight bias H eps norm softmax dropout linear attention relu gelu")  # besides names of its own
BASES = words("Module Linear Embedding Sequential ModuleList object")
METHODS = words("__init__ __call__ __len__ __getitem__ __iter__ __repr__ __str__")
FROM_IPYTHON = words("get_ipython exit quit open display In Out __builtins__ __builtin__")


@functools.cache
def brought_along() -> frozenset[str]:
    """The attributes of all that an answer can get hold of by listed names, but for what it defines itself."""
    waiting = [*map(importlib.import_module, MODULES), super, type, property, types.FunctionType, types.MethodType]
    waiting += [types.GeneratorType, types.CodeType, types.FrameType, BaseException, torch.finfo(), torch.device("cpu")]
    waiting += [
        nn.Linear(1, 1),
        nn.Parameter(torch.ones(1, 1)),
        torch.float,
        np.float64(1),
        np.ones((1, 1)),
        torch.Generator(),
    ]
    waiting += [vars(builtins)[name] for name in FUNCTIONS]
    found: dict[int, Any] = {}
    while waiting:
        if id(one := waiting.pop()) not in found:
            found[id(one)] = one
            inside = [getattr(one, name) for name in ATTRIBUTES.intersection(dir(one))]
            waiting += [value for value in inside if isinstance(value, types.ModuleType | type)]
    modules = [module for one in found.values() for module in pkgutil.iter_modules(getattr(one, "__path__", []))]
    return frozenset([name for one in found.values() for name in dir(one)] + [module.name for module in modules])


def beyond(source: str, given: Collection[str] = ()) -> list[str]:
    """What a source uses that is not listed, each once.

    Args:
        source: an answer.
        given: names of the course's that the task gives.
    """
    if is_long(source):
        return ["a cell that is too long to be read"]
    if re.search(r"^\s*!", source, re.MULTILINE):
        return ["a command of the shell"]
    nodes = nodes_of(source)  # none if it has an error: then it does not run
    classes = {node.name for node in nodes if isinstance(node, ast.ClassDef)}
    found = [name for node in nodes for name in beyond_in(node, frozenset(given), classes)]
    outside = builtins_in(source) & ({*vars(builtins)} | FROM_IPYTHON)
    return list(dict.fromkeys([*found, *sorted(outside - FUNCTIONS)]))


def beyond_in(node: ast.AST, given: frozenset[str], classes: set[str]) -> list[str]:
    if isinstance(node, ast.Attribute):
        if isinstance(node.ctx, ast.Load):
            return [node.attr] * (not is_listed(node.attr, given))
        mine = isinstance(node.value, ast.Name) and node.value.id == "self"  # which may still be anything
        return [f"{node.attr} = ..."] * (not mine or node.attr in brought_along() - STORED or is_dunder(node.attr))
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names if alias.name not in MODULES]
    if isinstance(node, ast.ImportFrom):
        if node.module in TYPES and not node.level:
            return []
        if node.module not in MODULES or node.level:
            return [node.module or "."]
        return [alias.name for alias in node.names if alias.name == "*" or not is_listed(alias.name, given)]
    if isinstance(node, ast.ClassDef):
        bases = [ast.unparse(base) for base in node.bases]
        others = [base for base in bases if base.rpartition(".")[2] not in {*BASES, *classes}]
        return others + [keyword.arg or "**" for keyword in node.keywords]
    if isinstance(node, ast.FunctionDef):
        return [node.name] * (is_dunder(node.name) and node.name not in METHODS)
    if isinstance(node, ast.Match | ast.AsyncFunctionDef | ast.Await):
        return [type(node).__name__.lower().removesuffix("functiondef")]
    return []


def is_listed(name: str, given: Collection[str]) -> bool:
    if is_dunder(name):
        return name in METHODS
    return name in ATTRIBUTES or name in given or name not in brought_along()


def is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")
