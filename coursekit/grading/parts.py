"""A part of a graded exercise: cases to call the answer with, and a judge of what comes back.

The same parts serve twice. A student calls them in the notebook, ``check.luong_score(luong_score)``, with
cases from a public seed. The marker draws other cases from a secret seed, lets the answer run in the sandbox,
and judges the arrays that come out of it.
"""

import inspect
import sys
import textwrap
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from coursekit.grading.calls import Arrays, Unusable, call, changed, collect, fresh_copies, spoiled
from coursekit.grading.differences import difference, ordinal
from coursekit.grading.kernel import CheckFailed, cells_behind, first_line, notebook, show
from coursekit.grading.mistakes import Compared, recognise
from coursekit.grading.plain import beyond

SENSELESS = "what it returned cannot be judged: has all of it the type, the shape and the range that are asked for?"
UNREAD = (
    "uses {}, which this part does not allow: it can be marked only if it uses nothing but everyday functions of "
    "PyTorch, NumPy and Python, and your own. Write it in another way"
)
IDLE = "this is right, but an answer that does nothing has it, too: it counts as soon as something of {} is right"
SAME = "the same"
SHAPES = 8  # of so many arguments at most
UNANSWERED = "not answered yet: replace the line that raises NotImplementedError"


@dataclass(frozen=True)
class Case:
    """One call of the answer.

    Attributes:
        aspect: what it tests; points belong to aspects.
        about: the situation, in words for the student.
        arguments: what the answer is called with; None where the answer is no function but the result itself.
        result: the one of several results that is looked at (``"0"`` is the first); empty for all.
        secret: what only the judge may know.
        public: shown in the notebook, but left out of the marking: it is the same for every seed, so that whoever
            has seen it knows the result.
        easy: right for an answer that does nothing, or the same always, too: it does not show what ``Part.needs`` asks.
    """

    aspect: str
    about: str
    arguments: tuple[Any, ...] | None = None
    result: str = ""
    secret: Any = None
    public: bool = False
    easy: bool = False


class Verdict(NamedTuple):
    """What an aspect earned, and why not all of it."""

    aspect: str
    points: int
    of: int
    words: str  # empty where all is right
    case: int | None  # number of the first case that failed


class Row(NamedTuple):
    """An aspect as a student sees it."""

    verdict: Verdict
    words: str  # why points are missing: of a mistake that a row above has named, only that it is the same
    details: list[str]  # what was tried, and how to try it again


@dataclass
class Part:
    """One graded part. Calling it checks an answer, says what is wrong and counts the points.

    Attributes:
        name: of the cell with the answer.
        aspects: points of each aspect. An aspect is earned when all its cases are right.
        cases: draws the cases from a generator, the simplest first.
        reference: the right result for a case's arguments, written independently of the package.
        suspects: likely mistakes, in words, each with the function that makes it.
        judge: words on what is wrong (None if nothing) for a case and the answers of the part so far, the last
            of them to this case. With a reference it is asked about answers that agree with that.
        forbidden: PyTorch's functions, or options of them, that an answer must not use (see ``calls.spoiled``), each
            with words on what to do instead. Whatever else, no answer may change its arguments: what the task is to
            change in place (a teacher, an optimizer's weights) is no argument, but made by a given cell. An answer to
            a part that forbids something may use only what ``plain`` lists, so that it cannot hide what it does.
        needs: of aspects that an answer has which does nothing, or the same always: others of which at least one case
            has to be right, so that they count.
        given: names of the course's that the task allows, such as ``attend`` for ``course.attend``.
        result: what the notebook defines and the check is given; by default what ``name`` says.
        seconds: that each cell and the calls of the part may take in the marking.
    """

    name: str
    aspects: dict[str, int]
    cases: Callable[[torch.Generator], list[Case]]
    reference: Callable[..., Any] | None = None
    suspects: dict[str, Callable[..., Any]] = field(default_factory=dict)
    judge: Callable[[Case, Sequence[Arrays]], str | None] | None = None
    forbidden: dict[str, str] = field(default_factory=dict)
    needs: dict[str, tuple[str, ...]] = field(default_factory=dict)
    given: tuple[str, ...] = ()
    result: str = ""
    seconds: float = 20
    earned: int | None = None  # by the latest check in this session
    answered: bool = True  # unless that found what the exercise begins with

    def __post_init__(self):
        self.result = self.result or self.name

    @property
    def points(self) -> int:
        return sum(self.aspects.values())

    def draw(self, seed: int, marking: bool = False) -> list[Case]:
        cases = self.cases(torch.Generator().manual_seed(seed))
        return [case for case in cases if not (marking and case.public)]

    def verdicts(
        self, cases: Sequence[Case], answers: Sequence[Arrays | Unusable], faults: Mapping[int, str] = {}
    ) -> list[Verdict]:
        """Judge the answers, one for each case: a verdict for each aspect.

        ``faults``: words on what was wrong in calls, by number, whatever came back from them.
        """
        wrong: dict[str, tuple[int | None, str]] = {}
        shown: set[str] = set()  # aspects of which something is right
        usable: list[Arrays] = []
        for i, (case, answer) in enumerate(zip(cases, answers, strict=True)):
            if isinstance(answer, Unusable):
                words = str(answer)
                usable.append({})
            else:
                usable.append(answer)
                words = faults.get(i)
                if words not in self.forbidden.values():  # that comes first: no other mending makes it right
                    words = self.problem_with(case, usable) or words
            if not words and not case.easy:
                shown.add(case.aspect)
            known = case.aspect in wrong and wrong[case.aspect][1] in (*self.suspects, *self.forbidden.values())
            if words and (case.aspect not in wrong or (words in self.suspects and not known)):
                wrong[case.aspect] = (i, words)  # the first that failed, or the first whose mistake is known
        for aspect, (i, words) in wrong.items() if self.reference else ():
            failed, passed = [], []
            for c, answer in zip(cases, usable):
                if c.aspect == aspect and answer:
                    (failed if self.compare(c, answer) else passed).append((c, answer))
            if words in self.suspects and not (self.explains(words, failed) and self.fits(words, passed)):
                # in one case two mistakes can look alike
                others = (other for other in self.suspects if self.explains(other, failed) and self.fits(other, passed))
                whole = next(((i, other) for other in others), None)
                wrong[aspect] = whole or self.common_mistake(aspect, cases, usable) or (i, words)
            elif words not in self.suspects and words == self.compare(cases[i], usable[i]):
                wrong[aspect] = self.common_mistake(aspect, cases, usable) or (i, words)
        for aspect, others in self.needs.items():
            if aspect not in wrong and not shown & {*others}:
                wrong[aspect] = None, IDLE.format(" or ".join(map(repr, others)))
        return [
            Verdict(aspect, 0 if aspect in wrong else of, of, *reversed(wrong.get(aspect, (None, ""))))
            for aspect, of in self.aspects.items()
        ]

    def unread(self, sources: Mapping[str, str]) -> str:
        """Why nothing that these cells compute can count, in words; empty if it can.

        Args:
            sources: of the answer's own cells and of those whose code it calls, by the cells' names.
        """
        for name, source in sources.items() if self.forbidden else ():
            if found := beyond(source, self.given):
                call = "" if name in ("", self.name) else f"calls the code of {name}, which "
                return f"it {call}{UNREAD.format(found[0])}"
        return ""

    def problem_with(self, case: Case, usable: Sequence[Arrays]) -> str | None:
        """In words, what is wrong with the last of the answers so far."""
        found = self.compare(case, usable[-1]) if self.reference else None
        if found is None and self.judge:
            try:
                found = self.judge(case, usable)
            except Exception:  # arrays that make no sense to it: then they are wrong
                found = SENSELESS
        return found

    def compare(self, case: Case, answer: Arrays) -> str | None:
        """What is wrong with an answer, by the reference and the suspects."""
        want = collect(self.reference(*case.arguments))
        problem = difference(answer, want, case.result)
        if problem is None:
            return None
        for words in self.suspects:
            suspected = self.suspected(words, case)
            if (
                suspected
                and difference(suspected, want, case.result)
                and difference(answer, suspected, case.result) is None
            ):
                return words
        return problem

    def suspected(self, words: str, case: Case) -> Arrays | None:
        """What one of the suspects returns; None where with these shapes nobody can make that mistake."""
        try:
            with np.errstate(all="ignore"):
                return collect(self.suspects[words](*case.arguments))
        except Exception:
            return None

    def explains(self, words: str, failed: Sequence[tuple[Case, Arrays]]) -> bool:
        """Whether all these wrong answers are what one of the suspects returns."""
        for case, answer in failed:
            suspected = self.suspected(words, case)
            if suspected is None or difference(answer, suspected, case.result):
                return False
        return bool(failed)

    def fits(self, words: str, passed: Sequence[tuple[Case, Arrays]]) -> bool:
        """Whether one of the suspects returns these right answers, too, wherever it returns something."""
        found = ((case, answer, self.suspected(words, case)) for case, answer in passed)
        return not any(suspected and difference(answer, suspected, case.result) for case, answer, suspected in found)

    def common_mistake(self, aspect: str, cases: Sequence[Case], usable: Sequence[Arrays]) -> tuple[int, str] | None:
        """What explains all that is wrong in an aspect: the number of the case that shows it, and words."""
        numbers = [i for i, case in enumerate(cases) if case.aspect == aspect and usable[i]]
        compared = [
            Compared(cases[i].arguments, usable[i], collect(self.reference(*cases[i].arguments)), cases[i].result)
            for i in numbers
        ]
        found = recognise(self.reference, compared)
        return found and (numbers[found[0]], found[1])

    def fault(self, case: Case, changed: int | None, used: str) -> str | None:
        """In words, what a call did that no right result makes good: it used what is forbidden, or changed an argument.

        Args:
            changed: the number of the argument, from ``calls.changed``; None if there is none.
            used: a key of ``forbidden``; empty if nothing of it was used.
        """
        if used:
            return self.forbidden[used]
        if changed is None:
            return None
        kind = type(case.arguments[changed])
        alike = [i for i, argument in enumerate(case.arguments) if type(argument) is kind]
        which = kind.__name__.lower()
        taken = inspect.signature(self.reference).parameters if self.reference else {"task": None}
        names = [name for name, p in taken.items() if p and p.kind is p.POSITIONAL_OR_KEYWORD]
        if changed < len(names) and "task" not in taken:
            which += f" {names[changed]}"
        elif len(alike) > 1:
            which = f"{ordinal(str(alike.index(changed)))} {which}"
        instead = "work on a copy"
        if kind is Tensor:
            instead += ", x.clone(), or with what makes a new one: x + y and masked_fill do, += and masked_fill_ do not"
        return f"the {which} that you are given is changed, and its owner may still need it: {instead}"

    def example(self, number: int, seed: int = 0) -> list[Any]:
        """The arguments of a case, to call an answer with by hand."""
        return fresh_copies(self.draw(seed)[number].arguments)

    def __call__(self, answer: Any, seed: int = 0) -> None:
        """Check ``answer`` as a student does; raises ``CheckFailed`` with what to mend."""
        cases, answers, errors, faults = self.draw(seed), [], {}, {}
        self.earned = None
        history = sys.modules.get("coursekit.grading.history")
        if history and (words := history.left_over(answer, getattr(notebook(), "user_ns", None))):
            raise CheckFailed(f"✗ {self.name}: not checked, since {words}")
        unread = self.unread(cells_behind(answer)) if self.forbidden else ""
        for number, case in enumerate(cases):
            try:
                if unread:
                    raise Unusable(unread)
                if case.arguments is None:
                    answers.append(collect(answer))
                    continue
                with spoiled(self.forbidden) as used:
                    called = call(answer, case.arguments)
                answers.append(called.arrays)
                if words := self.fault(case, changed(case.arguments, called.after), next(iter(used), "")):
                    faults[number] = words
            except Unusable as problem:
                answers.append(problem)
            except NotImplementedError:
                answers.append(Unusable(UNANSWERED))
            except KeyboardInterrupt:
                raise CheckFailed(f"✗ {self.name}: interrupted. An endless loop? Tried: {case.about}") from None
            except Exception as error:
                errors[number] = error
                answers.append(Unusable(f"it stopped with {type(error).__name__}: {first_line(error)}"))
        with warnings.catch_warnings(action="ignore"):  # what guesses at mistakes do is no concern of the student's
            verdicts = self.verdicts(cases, answers, faults)
        self.earned = sum(verdict.points for verdict in verdicts)
        self.answered = self.earned > 0 or UNANSWERED not in [verdict.words for verdict in verdicts]
        title, rows, told = f"{self.name}: {self.earned} of {self.points} points", [], set()
        for verdict in verdicts:
            shown, number = SAME if verdict.words in told else verdict.words, verdict.case
            told |= {verdict.words} - {""}
            hides = number is None or shown == SAME or cases[number].arguments is None
            details = [] if hides else self.details(cases[number], number, answers[number], shown)
            rows.append(Row(verdict, shown, details))
        if self.earned == self.points:
            if not show(f"✓ {title}", "card", self, rows):
                print(f"✓ {title}")
            return
        lines, width = [f"{'✗' if self.answered else '○'} {title}"], max(map(len, self.aspects))
        for (aspect, points, of, _, _), shown, details in rows:
            line = f"{aspect:{width}}  {points} of {of}" + (f": {shown}" if shown else "")
            lines += textwrap.wrap(line, 92, initial_indent="  ", subsequent_indent=" " * (width + 4))
            lines += [" " * (width + 4) + line for line in details]
        failed = CheckFailed("\n".join(lines), next((errors[v.case] for v in verdicts if v.case in errors), None))
        failed.shown = show("\n".join(failed.lines()), "card", self, rows, failed.where())
        raise failed

    def details(self, case: Case, number: int, answer: Arrays | Unusable, words: str = "") -> list[str]:
        """What a failed case was, how to call it again, and small results beside what they should be."""
        shapes = [str(tuple(a.shape)) for a in case.arguments if isinstance(a, Tensor)]
        shapes[SHAPES:] = [f"… ({len(shapes)} tensors)"] * (len(shapes) > SHAPES)
        lines = [f"tried: {case.about}" + (f"; shapes {', '.join(shapes)}" if shapes else "")]
        lines.append(f"again: {self.result}(*check.{self.name}.example({number}))")
        if self.reference is None or isinstance(answer, Unusable) or words in self.forbidden.values():
            return lines  # what is forbidden gives nothing but nan here
        want = collect(self.reference(*case.arguments))
        if difference(answer, want, case.result) is None:
            return lines  # the result is right, and the fault is in how it was made
        for name, right in want.items():
            got = answer.get(name)
            if got is not None and right.size <= 12 and got.size <= 12 and case.result in ("", name):
                label = "" if name == "value" else f" ({ordinal(name)})"
                shown = [np.array2string(array, precision=4, suppress_small=True) for array in (got, right)]
                lines += [f"{title}{label}: {text}" for title, text in zip(("returned", "expected"), shown)]
                if shown[0] == shown[1] and got.shape == right.shape and (got != right).any():
                    apart = np.abs(got.astype(float) - right.astype(float))
                    lines.append(f"They differ by up to {np.nanmax(apart):.1e}.")
        return [part for line in lines for part in line.splitlines()]


def score(parts: Sequence[Part], written: dict[str, int]) -> None:
    """Show the points so far, from the latest check of each part in this session."""
    width, lines = max(map(len, [*(part.name for part in parts), *written])), []
    for number, part in enumerate(parts, 1):
        earned = part.earned or 0
        bar = "█" * round(10 * earned / part.points)
        note = "  not checked yet" if part.earned is None else "" if part.answered else "  not answered yet"
        lines.append(f"{number}  {part.name:{width}}  {bar:░<10}  {earned:3} of {part.points:3}{note}")
    for number, (name, points) in enumerate(written.items(), len(parts) + 1):
        lines.append(f"{number}  {name:{width}}  {'':10}    – of {points:3}  a person reads it")
    reached, of = sum(part.earned or 0 for part in parts), sum(part.points for part in parts)
    lines.append(
        f"   {'so far':{width}}  {'':10}  {reached:3} of {of:3}  and {sum(written.values())} for a person to give"
    )
    if not show("\n".join(lines), "overview", parts, written):
        print("\n".join(lines))
