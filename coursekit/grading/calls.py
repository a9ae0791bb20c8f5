"""Calls of an answer: copies of the arguments go in, arrays come out, and what it must not do is noticed.

The notebook calls answers by this in its own kernel, the marking inside the sandbox.
"""

import contextlib
import copy
import math
import types
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.library import Library
from torch.nn import functional as F

NOTHING = "it returned None: is there a 'return' at the end?"
MORE_THAN_A_MODEL = "it returned a model and something else: return the model alone"

Arrays = dict[str, np.ndarray]  # what an answer returned: "value", "0", "1", ... or names of weights


class Unusable(Exception):
    """There is nothing to judge. The message is in words that a student may see."""


class Seed(NamedTuple):
    """An argument that the answer receives as a ``torch.Generator``, a new one for each call."""

    seed: int
    used: int = 0  # numbers that were already drawn from it
    calls: int = 1  # of the answer with the same generator, the last of which counts
    alone: bool = False  # in the marking: in a process of its own that knows of no other call


class Called(NamedTuple):
    """What came back from a call, and the arguments as they were afterwards."""

    arrays: Arrays
    after: list[Any]


def call(answer: Callable[..., Any], arguments: Sequence[Any]) -> Called:
    """Call an answer with copies of the arguments.

    Raises:
        Unusable: it returned nothing that can be judged. What it raises itself goes through.
    """
    given = fresh_copies(arguments)
    for _ in range(max((one.calls for one in arguments if isinstance(one, Seed)), default=1) - 1):
        answer(*given)
    arrays = collect(answer(*given))
    after = [one if isinstance(one, Seed) else now for one, now in zip(arguments, given)]  # generators are to be used
    return Called(arrays, after)


def gradient(loss: Callable[..., Any], *arguments: Any, by: int = 1) -> Tensor | tuple[Tensor, ...] | None:
    """The gradient of what ``loss(*arguments)`` returns, or of its sum, by the first argument or the first few.

    Zeros where none arrives, and None where nothing is returned: for given cells, which hand it to the check.
    """
    inputs = [x.requires_grad_() for x in arguments[:by]]
    found = loss(*arguments)
    if found is None:
        return None
    if isinstance(found, Tensor) and found.requires_grad:
        slopes = torch.autograd.grad(found.sum(), inputs, allow_unused=True, materialize_grads=True)
    else:
        slopes = tuple(map(torch.zeros_like, inputs))
    return slopes[0] if by == 1 else slopes


# Bound here, before any answer runs and could put something else into their places.
NAN = math.nan
ATEN = torch.ops.aten
IN_PYTHON = {f"F.{name}": one for name, one in vars(F).items() if isinstance(one, types.FunctionType)}


@contextlib.contextmanager
def spoiled(forbidden: Collection[str]) -> Iterator[list[str]]:
    """Make forbidden functions of PyTorch return nan, and yield the list of those that were used.

    This is done in PyTorch's dispatcher, which every call passes, by whatever name and way it was reached: from
    ``nn.LayerNorm``, an alias of ``torch.layer_norm``, scripted code or another thread. A function that is written in
    Python, and so is not there, gets another body.

    Args:
        forbidden: names of ``aten``'s functions, or of ``torch.nn.functional``'s if they have the prefix ``F.``;
            ``"cross_entropy_loss(label_smoothing)"`` forbids one option alone.
    """
    used: list[str] = []
    bodies = {IN_PYTHON[name]: IN_PYTHON[name].__code__ for name in forbidden if name in IN_PYTHON}
    others = [name for name in forbidden if name not in IN_PYTHON]
    library = Library("aten", "IMPL") if others else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a function is replaced
        for name in others:
            function, _, option = name.rstrip(")").partition("(")
            packet = getattr(ATEN, function)
            for overload in (getattr(packet, one) for one in packet.overloads()):
                for key in ("CPU", "AutogradCPU"):
                    library.impl(overload, partial(spoil, overload, name, option, used), key)
    try:
        for function, body in bodies.items():
            original = types.FunctionType(body, function.__globals__, function.__name__, function.__defaults__)
            original.__kwdefaults__ = function.__kwdefaults__
            function.__globals__[STAND_IN] = partial(spoil_python, original, f"F.{function.__name__}", used)
            function.__code__ = stand_in.__code__
        yield used
    finally:
        for function, body in bodies.items():
            function.__code__ = body
            function.__globals__.pop(STAND_IN, None)
        if library is not None:
            library._destroy()


STAND_IN = "__stand_in__"


def stand_in(*arguments, **options):
    return __stand_in__(*arguments, **options)  # noqa: F821, in the globals of the function that it stands for


def spoil_python(original: Callable[..., Any], name: str, used: list[str], *arguments: Any, **options: Any) -> Any:
    """What a forbidden function that is written in Python does instead."""
    used.append(name)
    result = original(*arguments, **options)
    several = isinstance(result, tuple)
    spoiled = [one * NAN if isinstance(one, Tensor) else one for one in (result if several else [result])]
    return tuple(spoiled) if several else spoiled[0]


def spoil(overload: Any, name: str, option: str, used: list[str], *arguments: Any, **options: Any) -> Any:
    """What a forbidden function does instead; without the option that is forbidden, what it always does."""
    names = [argument.name for argument in overload._schema.arguments]
    given = dict(zip(names, arguments)) | options
    if option and not given.get(option):
        return overload.decompose(*arguments, **options)
    used.append(name)
    nothing = given[names[0]] * NAN
    return nothing if len(overload._schema.returns) == 1 else (nothing,) * len(overload._schema.returns)


def changed(before: Sequence[Any], after: Sequence[Any]) -> int | None:
    """The number of the first argument that a call did not leave as it was; None if there is none."""
    pairs = zip(before, after, strict=True)
    return next((number for number, (one, other) in enumerate(pairs) if not same(one, other)), None)


def same(before: Any, now: Any) -> bool:
    """Whether an argument is as it was before a call."""
    if isinstance(before, Seed):
        return True  # a generator is there to be drawn from
    if type(before) is not type(now):
        return False
    if isinstance(before, Tensor):
        if before.shape != now.shape or before.dtype != now.dtype:
            return False
        return np.array_equal(as_array(before), as_array(now), equal_nan=before.is_floating_point())
    if isinstance(before, dict):
        return list(before) == list(now) and all(same(before[key], now[key]) for key in before)
    if isinstance(before, list | tuple):
        return len(before) == len(now) and all(map(same, before, now))
    return before is now or before == now


def fresh_copies(arguments: Sequence[Any]) -> list[Any]:
    """Arguments as an answer gets them: copies, and generators for seeds."""
    return [
        new_generator(a) if isinstance(a, Seed) else a.clone() if isinstance(a, Tensor) else copy.deepcopy(a)
        for a in arguments
    ]


def new_generator(seed: Seed) -> torch.Generator:
    generator = torch.Generator().manual_seed(seed.seed)
    torch.rand(seed.used, generator=generator)
    return generator


def collect(result: Any) -> Arrays:
    """What an answer returned, as arrays: a tensor, several, a number, or the weights of a model."""
    if result is None:
        raise Unusable(NOTHING)
    if isinstance(result, nn.Module):
        return {name: as_array(tensor) for name, tensor in result.state_dict().items()}
    if isinstance(result, dict):
        return {str(name): as_array(value) for name, value in result.items()}
    if isinstance(result, tuple | list):
        return {str(i): as_array(value) for i, value in enumerate(result)}
    return {"value": as_array(result)}


def as_array(value: Any) -> np.ndarray:
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        return value.float().numpy() if value.dtype is torch.bfloat16 else value.numpy()
    if isinstance(value, np.ndarray | np.generic | bool | int | float) and np.asarray(value).dtype.kind in "biuf":
        return np.asarray(value)
    if isinstance(value, nn.Module):
        raise Unusable(MORE_THAN_A_MODEL)
    what = "None" if value is None else f"a {type(value).__name__}"
    raise Unusable(f"it returned {what} where a tensor is expected")
