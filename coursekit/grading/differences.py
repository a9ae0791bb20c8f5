"""How what an answer returned differs from what is right, in words."""

import re
from typing import Any

import numpy as np

from coursekit.grading.calls import Arrays


def alike(one: Any, other: Any) -> bool:
    one, other = np.asarray(one), np.asarray(other)
    if one.shape != other.shape or (one.dtype == bool) != (other.dtype == bool):
        return False
    half = np.float16 in (one.dtype, other.dtype)  # which is known to three digits
    return np.allclose(one, other, rtol=2e-3 if half else 1e-4, atol=1e-3 if half else 1e-5, equal_nan=True)


def difference(got: Arrays, want: Arrays, only: str = "") -> str | None:
    """In words, how ``got`` differs from ``want``: number of results, shape, kind, not a number, values.

    ``only`` names the one result to look at, if not all.
    """
    if set(got) != set(want):
        return "it did not return what is asked for" + values(results(got), results(want))
    for name, right in want.items():
        if only not in ("", name):
            continue
        found = got[name]
        which = "the result" if name == "value" else f"the {ordinal(name)} result"
        if found.shape != right.shape:
            return f"{which} has the wrong shape" + values(found.shape, right.shape)
        if (found.dtype == bool) != (right.dtype == bool):
            unlike = "is of type bool, and should hold numbers" if found.dtype == bool else "is not of type bool"
            return f"{which} {unlike}" + values(found.dtype, right.dtype)
        if not np.isfinite(found).all() and np.isfinite(right).all():
            return f"{which} holds entries that are no finite number (nan or inf)"
        if not alike(found, right):
            return f"{which} has the right shape but wrong values"
    return None


def values(got: Any, expected: Any) -> str:
    """What was found and what should be: for the student's own checks, never out of the marking."""
    return f" (got {got}, expected {expected})"


def without_values(words: str) -> str:
    return re.sub(r" \(got .*, expected .*\)", "", words)


def results(arrays: Arrays) -> str:
    """What kind of thing was returned."""
    if set(arrays) == {"value"}:
        return "one tensor"
    if not all(name.isdigit() for name in arrays):
        return "a dictionary or a model"
    return f"a tuple or list of {len(arrays)}"


def ordinal(name: str) -> str:
    """``"0"`` is the first."""
    if not name.isdigit():
        return repr(name)
    number = int(name)
    return ("first", "second", "third", "fourth")[number] if number < 4 else f"{number + 1}th"
