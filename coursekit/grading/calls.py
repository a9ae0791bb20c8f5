"""Calls of an answer: copies of the arguments go in, arrays come out, and what it must not do is noticed.

The notebook calls answers by this in its own kernel, the marking inside the sandbox.
"""

import contextlib
import copy
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

NOTHING = "it returned None: is there a 'return' at the end?"
MORE_THAN_A_MODEL = "it returned a model and something else: return the model alone"

Arrays = dict[str, np.ndarray]  # what an answer returned: "value", "0", "1", ... or names of weights


class Unusable(Exception):
    """There is nothing to judge. The message is in words that a student may see."""


class Seed(NamedTuple):
    """An argument that the answer receives as a ``torch.Generator``, a new one for each call."""

    seed: int
    used: int = 0  # numbers that were already drawn from it


class Called(NamedTuple):
    """What came back from a call, and what it did that an answer must not do."""

    arrays: Arrays
    changed: int | None  # number of the first argument that is not as it was
    used: str  # what was forbidden


def call(answer: Callable[..., Any], arguments: Sequence[Any], forbidden: Collection[str] = ()) -> Called:
    """Call an answer with copies of the arguments.

    Raises:
        Unusable: it returned nothing that can be judged. What it raises itself goes through.
    """
    given, watch = fresh_copies(arguments), Watch(forbidden)
    with watch if forbidden else contextlib.nullcontext():
        arrays = collect(answer(*given))
    changed = (i for i, (before, now) in enumerate(zip(arguments, given, strict=True)) if not same(before, now))
    return Called(arrays, next(changed, None), watch.used)


class Watch(TorchFunctionMode):
    """Notes which of the forbidden functions and options are used inside of it.

    It sees what reaches PyTorch, by whatever public name it was called: ``nn.LayerNorm``, ``F.layer_norm`` and an
    alias of ``torch.layer_norm`` are one. The call goes on, so that no answer can catch what would be raised.
    """

    def __init__(self, forbidden: Collection[str]):
        super().__init__()
        self.forbidden, self.used = forbidden, ""

    def __torch_function__(self, function, types, arguments=(), options=None):
        options = options or {}
        for name in self.forbidden:
            if name == getattr(function, "__name__", "").partition(".")[0] or options.get(name):
                self.used = self.used or name
        return function(*arguments, **options)


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
    raise Unusable(f"it returned a {type(value).__name__} where a tensor is expected")
