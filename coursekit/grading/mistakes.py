"""Common mistakes, recognised without a part's writing them out.

Each is made from the right result, or from the right function with other arguments, and is recognised where it gives
what the answer gave. Its words state no more than that, so that they are true whatever the answer does. Where several
of a kind fit, as on a matrix of one row and one column, nothing is said.
"""

import contextlib
import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from coursekit.grading.calls import Arrays, collect
from coursekit.grading.differences import alike

Alike = Iterator[tuple[str, Any, Any]]
# the right function, a call, the names of its results that are wrong -> mistakes that can be made in it, in words, and
# whether they lead to the answer
Kind = Callable[[Callable[..., Any], "Compared", list[str]], dict[str, bool]]
DIVIDED = "divided by the wrong number: is this a mean where a sum is asked for, or a mean over what does not count?"


def by_task(**functions: Callable[..., Any]) -> Callable[..., Any]:
    """A function of the name of a task and its arguments, for a part with several functions."""

    def call(task: str, *arguments: Any) -> Any:
        return functions[task](*arguments)

    call.functions = functions
    return call


def given(function: Callable[..., Any], **changes: Callable[[Any], Any]) -> Callable[..., Any]:
    """``function`` with other arguments: each change makes one from the argument of its name."""
    signature = inspect.signature(function)

    def mistake(*arguments: Any) -> Any:
        bound = signature.bind(*arguments)
        bound.apply_defaults()
        bound.arguments.update({name: change(bound.arguments[name]) for name, change in changes.items()})
        return function(*bound.args, **bound.kwargs)

    return mistake


class Compared(NamedTuple):
    """What came back from one call, and what should have."""

    arguments: Sequence[Any]
    answer: Arrays
    right: Arrays
    only: str = ""  # the one result that counts, if not all do


def recognise(reference: Callable[..., Any], compared: Sequence[Compared]) -> tuple[int, str] | None:
    """The common mistake that explains all that is wrong: the number of the first call that shows it, and words.

    None if there is no such, or several of a kind: it must fit every call, those too in which it changes nothing.
    """
    if hasattr(reference, "functions"):
        kinds = {c.arguments[0] for c in compared}
        if len(kinds) != 1:
            return None
        reference, compared = (
            reference.functions[kinds.pop()],
            [c._replace(arguments=c.arguments[1:]) for c in compared],
        )
    with np.errstate(all="ignore"):  # in a mistake a logarithm may be one of 0
        for kind in KINDS:
            shown: dict[str, int] = {}
            refuted: set[str] = set()
            for number, call in enumerate(compared):
                if set(call.answer) != set(call.right):
                    return None
                wrong = wrong_ones(call)
                for words, fits in kind(reference, call, wrong).items():
                    if not fits:
                        refuted.add(words)
                    elif wrong and all(call.right[name].size >= least(call.right[name]) for name in wrong):
                        shown.setdefault(words, number)
            if found := [(number, words) for words, number in shown.items() if words not in refuted]:
                return found[0] if len(found) == 1 else None
    return None


def counted(call: Compared) -> list[str]:
    """The names of the results that count."""
    return [name for name in call.right if call.only in ("", name)]


def wrong_ones(call: Compared) -> list[str]:
    return [name for name in counted(call) if not alike(call.answer[name], call.right[name])]


def in_all(made: Callable[[Callable[..., Any], Compared], Iterator[tuple[str, Arrays]]]) -> Kind:
    """Mistakes in a call as a whole; ``made`` yields words, and all results that come out with the mistake."""

    def explained(reference: Callable[..., Any], call: Compared, wrong: list[str]) -> dict[str, bool]:
        found: dict[str, bool] = {}
        for words, got in made(reference, call):
            fits = set(got) == set(call.right) and all(fit(call.answer[name], got[name]) for name in counted(call))
            found[words] = found.get(words, False) or fits
        return found

    return explained


def in_each(made: Callable[..., Alike]) -> Kind:
    """Mistakes that are made in each wrong result; ``made`` yields words, and two things that are alike with them.

    ``made`` is given a result of the answer, the right one, the right function and its arguments.
    """

    def explained(reference: Callable[..., Any], call: Compared, wrong: list[str]) -> dict[str, bool]:
        of_each: list[dict[str, bool]] = []
        for name in wrong or counted(call):
            of_each.append(found := {})
            for words, one, other in made(call.answer[name], call.right[name], reference, call.arguments):
                found[words] = found.get(words, False) or fit(one, other)
        return {words: all(found[words] for found in of_each) for words in set.intersection(*map(set, of_each))}

    return explained


def least(right: np.ndarray) -> int:
    """Entries that a result needs, so that hardly anything fits by chance."""
    return {"b": 12, "i": 4, "u": 4}.get(right.dtype.kind, 1)


def fit(one: Any, other: Any) -> bool:
    """Alike, and not just because both are nan, or nearly 0."""
    if not alike(one, other) or not np.isfinite(other).any():
        return False
    return bool(np.nanmax(np.abs(np.asarray(other, float))) > 1e-4) or np.array_equal(one, other)


@in_all
def in_results(reference: Callable[..., Any], call: Compared) -> Iterator[tuple[str, Arrays]]:
    right = call.right
    for order in itertools.permutations(right):
        if list(order) != list(right):
            yield "the results are in the wrong order", dict(zip(right, (right[name] for name in order)))


@in_each
def in_values(y: np.ndarray, x: np.ndarray, *_: Any) -> Alike:
    if x.dtype == bool:
        yield "True and False have changed places", y, ~x
        return
    e = np.exp(x - x.max(axis=-1, keepdims=True)) if x.ndim else np.exp(x)
    for words, mistaken in {
        "the sign is wrong": -x,
        "every number is one too large": x + 1,
        "every number is one too small": x - 1,
        "every number is twice as large as it should be": 2 * x,
        "every number is half as large as it should be": x / 2,
        "this is in percent: a share lies between 0 and 1": 100 * x,
        "this is in bits: use the natural logarithm": x / np.log(2),
        "this is in nats: bits have the logarithm of base 2": x * np.log(2),
        "this is 1 minus what is asked for": 1 - x,
        "this is 1 divided by what is asked for": 1 / x,
        "this is the square of what is asked for: take the root": x**2,
        "this is the root of what is asked for": np.sqrt(x),
        "this is the logarithm of what is asked for": np.log(x),
        "this is the exponential of what is asked for": np.exp(x),
        "this is the softmax of what is asked for": e / e.sum(axis=-1, keepdims=True) if x.ndim else e,
    }.items():
        yield words, y, mistaken


@in_each
def in_axes(y: np.ndarray, x: np.ndarray, *_: Any) -> Alike:
    for one, other in itertools.combinations(range(x.ndim), 2):
        words = f"the {nth(one, x)} and the {nth(other, x)} axis have changed places"
        yield words, y, x.swapaxes(one, other)
    for axis in range(x.ndim):
        which, n = f"along the {nth(axis, x)} axis", x.shape[axis]
        if n > 1:
            first, last = x.take([0], axis), x.take(range(n - 1), axis)
            yield f"{which} the order is reversed", y, np.flip(x, axis)
            yield f"{which} all is like the first entry", y, np.broadcast_to(first, x.shape)
            yield f"{which} the last entry is missing", y, last
            yield f"{which} the first entry is missing", y, x.take(range(1, n), axis)
            if y.shape == x.shape and n > 2:
                yield f"{which} all stands one place too late", y.take(range(1, n), axis), last
                yield f"{which} all stands one place too early", y.take(range(n - 1), axis), x.take(range(1, n), axis)
            if x.dtype != bool:
                yield f"the mean is taken over the {nth(axis, x)} axis too", y, x.mean(axis)
                yield f"the sum is taken over the {nth(axis, x)} axis too", y, x.sum(axis)
    if x.ndim > 1 and x.size and x.dtype != bool:
        yield "this is the mean of all that is asked for", y, x.mean()
    for axis in range(y.ndim):
        if y.shape[axis] > 1 and y.dtype != bool:
            yield f"the mean over the {nth(axis, y)} axis of your result is still to be taken", y.mean(axis), x
            yield f"the sum over the {nth(axis, y)} axis of your result is still to be taken", y.sum(axis), x


def nth(axis: int, x: np.ndarray) -> str:
    if axis == x.ndim - 1:
        return "last"
    return ("first", "second", "third", "fourth")[axis] if axis < 4 else f"{axis + 1}th"


def counts(arguments: Sequence[Any]) -> set[int]:
    """Numbers of entries, in which sums and means differ: sizes of the arguments, and how often True is in them."""
    tensors = [a for a in arguments if isinstance(a, Tensor)]
    found = {prod(a.shape[i:j]) for a in tensors for i in range(a.ndim) for j in range(i + 1, a.ndim + 1)}
    return (found | {int(a.sum()) for a in tensors if a.dtype is torch.bool}) - {0}


@in_each
def in_factors(y: np.ndarray, x: np.ndarray, reference: Callable[..., Any], arguments: Sequence[Any]) -> Alike:
    for n in counts(arguments):
        yield "too large by a factor that is a number of entries: is this a sum where a mean is asked for?", y, x * n
        yield DIVIDED, y, x / n


@in_each
def in_fractions(y: np.ndarray, x: np.ndarray, reference: Callable[..., Any], arguments: Sequence[Any]) -> Alike:
    for n, m in itertools.permutations(counts(arguments), 2):
        yield DIVIDED, y, x * (n / m)


@in_all
def in_arguments(reference: Callable[..., Any], call: Compared) -> Iterator[tuple[str, Arrays]]:
    """The right function of other arguments, of those that have a name."""
    arguments = call.arguments
    parameters = [p for p in inspect.signature(reference).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    named = {p.name: argument for p, argument in zip(parameters, arguments)}
    changes = [(words, {name: other}) for name, value in named.items() for words, other in in_place_of(name, value)]
    changes += [
        (f"{called(p.name)} is not used", {p.name: None})
        for p in parameters
        if p.default is None and named.get(p.name) is not None
    ]
    for (a, one), (b, other) in itertools.combinations(named.items(), 2):
        if type(one) is type(other) and getattr(one, "dtype", None) == getattr(other, "dtype", None):
            changes.append((f"{called(a)} and {called(b)} change places", {a: other, b: one}))
    for words, change in changes:
        with contextlib.suppress(Exception):  # with these arguments nobody can make that mistake
            made = collect(reference(*(named | change).values(), *arguments[len(named) :]))
            yield f"this is the result if {words}", made


def in_place_of(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """What a mistake may put in the place of an argument, and its words."""
    which, unused, upside_down = called(name), f"{called(name)} is not used", f"{called(name)} is upside down"
    if isinstance(value, Tensor) and value.ndim > 1:
        yield f"{which} is transposed, its last two axes exchanged", value.mT
    if isinstance(value, Tensor) and value.dtype is torch.bool:
        yield f"{upside_down}, True and False exchanged", ~value
        yield unused, torch.ones_like(value)
    elif isinstance(value, Tensor) and value.is_floating_point():
        yield unused, torch.zeros_like(value)
        yield unused, torch.ones_like(value)
        yield f"{which} has the wrong sign", -value
    elif isinstance(value, float):
        yield unused, 0.0
        yield unused, 1.0
        yield f"{upside_down}, 1 / {name}", 1 / value if value else 1.0
        yield f"1 - {name} takes the place of {which}", 1 - value


def called(name: str) -> str:
    return "the mask" if name.endswith("mask") else f"`{name}`"


@in_each
def in_sums(y: np.ndarray, x: np.ndarray, reference: Callable[..., Any], arguments: Sequence[Any]) -> Alike:
    for name, value in zip(inspect.signature(reference).parameters, arguments):
        if isinstance(value, Tensor) and value.shape == x.shape and value.dtype is not torch.bool:
            given = value.double().numpy()
            yield f"this is {called(name)} as it was given", y, given
            if y.shape == x.shape and given.any() and x.dtype != bool and y.dtype != bool:
                yield f"{called(name)} is added to what is asked for: leave it out", y - given, x
                yield f"{called(name)} is to be added to this", y + given, x


KINDS = in_results, in_values, in_axes, in_factors, in_fractions, in_arguments, in_sums
