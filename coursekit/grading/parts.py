"""A part of a graded exercise: cases to call the answer with, and a judge of what comes back.

The same parts serve twice. A student calls them in the notebook, ``check.luong_score(luong_score)``, with
cases from a public seed. The marker draws other cases from a secret seed, lets the answer run in the sandbox,
and judges the arrays that come out of it.
"""

import re
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

NOTHING = "it returned None: is there a 'return' at the end?"

Arrays = dict[str, np.ndarray]  # what an answer returned: "value", "0", "1", ... or names of weights


class Unusable(Exception):
    """There is nothing to judge. The message is in words that a student may see."""


class Seed(int):
    """An argument that the answer receives as a ``torch.Generator`` with this seed, a new one for each call."""


@dataclass(frozen=True)
class Case:
    """One call of the answer.

    Attributes:
        aspect: what it tests; points belong to aspects.
        about: the situation, in words for the student.
        arguments: what the answer is called with; None where the answer is no function but the result itself.
        secret: what only the judge may know.
    """

    aspect: str
    about: str
    arguments: tuple[Any, ...] | None = None
    secret: Any = None


class Verdict(NamedTuple):
    """What an aspect earned, and why not all of it."""

    aspect: str
    points: int
    of: int
    words: str  # empty where all is right
    case: int | None  # number of the first case that failed


@dataclass
class Part:
    """One graded part. Calling it checks an answer, says what is wrong and counts the points.

    Attributes:
        name: of the cell with the answer, and of what that cell must define (or lead to).
        aspects: points of each aspect. An aspect is earned when all its cases are right.
        cases: draws the cases from a generator, the simplest first.
        reference: the right result for a case's arguments, written independently of the package.
        suspects: likely mistakes, in words, each with the function that makes it.
        judge: instead of a reference: words on what is wrong (None if nothing) for a case and the answers of
            the part so far, the last of them to this case.
        seconds: that the cells and calls of the part may take in the marking.
    """

    name: str
    aspects: dict[str, int]
    cases: Callable[[torch.Generator], list[Case]]
    reference: Callable[..., Any] | None = None
    suspects: dict[str, Callable[..., Any]] = field(default_factory=dict)
    judge: Callable[[Case, Sequence[Arrays]], str | None] | None = None
    seconds: float = 20
    earned: int | None = None  # by the latest check in this session

    @property
    def points(self) -> int:
        return sum(self.aspects.values())

    def draw(self, seed: int) -> list[Case]:
        return self.cases(torch.Generator().manual_seed(seed))

    def verdicts(self, cases: Sequence[Case], answers: Sequence[Arrays | Unusable]) -> list[Verdict]:
        """Judge the answers, one for each case: a verdict for each aspect."""
        wrong: dict[str, tuple[int, str]] = {}
        usable: list[Arrays] = []
        for i, (case, answer) in enumerate(zip(cases, answers, strict=True)):
            if isinstance(answer, Unusable):
                words = str(answer)
                usable.append({})
            else:
                usable.append(answer)
                words = self.judge(case, usable) if self.judge else self.compare(case, answer)
            if words:
                wrong.setdefault(case.aspect, (i, words))
        return [
            Verdict(aspect, 0 if aspect in wrong else of, of, *reversed(wrong.get(aspect, (None, ""))))
            for aspect, of in self.aspects.items()
        ]

    def compare(self, case: Case, answer: Arrays) -> str | None:
        """What is wrong with an answer, by the reference and the suspects."""
        want = collect(self.reference(*case.arguments))
        problem = difference(answer, want)
        if problem is None:
            return None
        for words, mistake in self.suspects.items():
            try:
                with np.errstate(all="ignore"):
                    suspected = collect(mistake(*case.arguments))
            except Exception:
                continue  # with these shapes nobody can make that mistake
            if difference(answer, suspected) is None:
                return words
        return problem

    def __call__(self, answer: Any, seed: int = 0) -> None:
        """Check ``answer`` as a student does; raises ``CheckFailed`` with what to mend."""
        cases, answers, stopped = self.draw(seed), [], None
        for case in cases:
            try:
                answers.append(collect(answer if case.arguments is None else answer(*fresh_copies(case.arguments))))
            except Unusable as problem:
                answers.append(problem)
            except NotImplementedError:
                answers.append(Unusable("not answered yet: replace the line that raises NotImplementedError"))
            except Exception as error:
                stopped = stopped or error
                answers.append(Unusable(f"it stopped with {type(error).__name__}: {error}"))
        verdicts = self.verdicts(cases, answers)
        self.earned = sum(verdict.points for verdict in verdicts)
        title = f"{self.name}: {self.earned} of {self.points} points"
        if self.earned == self.points:
            print(f"✓ {title}")
            return
        lines = [f"✗ {title}"]
        width = max(map(len, self.aspects))
        for aspect, points, of, words, i in verdicts:
            lines.append(f"  {aspect:{width}}  {points} of {of}" + (f": {words}" if words else ""))
            if i is not None and not isinstance(answers[i], Unusable):
                lines.append(f"  {'':{width}}  tried: {cases[i].about}")
                lines += [f"  {'':{width}}  {line}" for line in self.comparison(cases[i], answers[i])]
        raise CheckFailed("\n".join(lines), stopped)

    def comparison(self, case: Case, answer: Arrays) -> list[str]:
        """Small results beside what they should be."""
        if self.reference is None:
            return []
        lines = []
        for name, right in collect(self.reference(*case.arguments)).items():
            got = answer.get(name)
            if got is not None and right.size <= 12 and got.size <= 12:
                label = "" if name == "value" else f" ({ordinal(name)})"
                for title, array in (("returned", got), ("expected", right)):
                    lines.append(f"{title}{label}: {np.array2string(array, precision=4, suppress_small=True)}")
        return [part for line in lines for part in line.splitlines()]


def score(parts: Sequence[Part], written: dict[str, int]) -> None:
    """Print the points so far, from the latest check of each part in this session."""
    width = max(map(len, [*(part.name for part in parts), *written]))
    for part in parts:
        earned = part.earned or 0
        bar = "█" * round(10 * earned / part.points)
        note = "" if part.earned is not None else "  not checked yet"
        print(f"{part.name:{width}}  {bar:░<10}  {earned:3} of {part.points:3}{note}")
    for name, points in written.items():
        print(f"{name:{width}}  {'':10}    – of {points:3}  read by a person")
    reached = sum(part.earned or 0 for part in parts)
    print(f"{'so far':{width}}  {'':10}  {reached:3} of {sum(part.points for part in parts):3}")


class CheckFailed(AssertionError):
    """A check that failed: in a notebook one sees its words, and the traceback of the student's own code."""

    def __init__(self, text: str, cause: BaseException | None = None):
        super().__init__(text)
        self.text, self.cause = text, cause

    def _render_traceback_(self) -> list[str]:
        if self.cause is None:
            return [self.text]
        frames = [f for f in traceback.extract_tb(self.cause.__traceback__) if f.filename != __file__]
        return [self.text, "", "Where it stopped:", *(line.rstrip() for line in traceback.format_list(frames))]


def fresh_copies(arguments: Sequence[Any]) -> list[Any]:
    """Arguments as an answer gets them: copies, and generators for seeds."""
    return [
        torch.Generator().manual_seed(a) if isinstance(a, Seed) else a.clone() if isinstance(a, Tensor) else a
        for a in arguments
    ]


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
    raise Unusable(f"it returned a {type(value).__name__} where a tensor is expected")


def difference(got: Arrays, want: Arrays) -> str | None:
    """In words, how ``got`` differs from ``want``: number of results, shape, kind, not a number, values."""
    if set(got) != set(want):
        return "it returned the wrong number of results" + values(results(got), results(want))
    for name, right in want.items():
        found = got[name]
        which = "the result" if name == "value" else f"the {ordinal(name)} result"
        if found.shape != right.shape:
            return f"{which} has the wrong shape" + values(found.shape, right.shape)
        if (found.dtype == bool) != (right.dtype == bool):
            return f"{which} is of type {found.dtype}, not {right.dtype}"
        if not np.isfinite(found).all() and np.isfinite(right).all():
            return f"{which} holds entries that are no finite number (nan or inf)"
        if not np.allclose(found, right, rtol=1e-4, atol=1e-5, equal_nan=True):
            return f"{which} has the right shape but wrong values"
    return None


def values(got: Any, expected: Any) -> str:
    """What was found and what should be: for the student's own checks, never out of the marking."""
    return f" (got {got}, expected {expected})"


def without_values(words: str) -> str:
    return re.sub(r" \(got .*, expected .*\)", "", words)


def results(arrays: Arrays) -> str:
    return "one result" if set(arrays) == {"value"} else f"{len(arrays)} results"


def ordinal(name: str) -> str:
    """``"0"`` is the first."""
    if not name.isdigit():
        return repr(name)
    number = int(name)
    return ("first", "second", "third", "fourth")[number] if number < 4 else f"{number + 1}th"
