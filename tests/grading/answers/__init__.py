"""Right and wrong answers to each exercise.

A module holds for each answer ``(base, right ones, wrong ones)``. A right one is its source. A wrong one, which is a
mistake that a student could make, is ``(points, words, ...)``: the points that it deserves, the words that it must be
told, and either its source or, two by two, what is replaced in the base and by what, one after the other. A right one
may be a tuple of such replacements, too. The base is MODEL, the model answer, or FIRST, the first of the right ones.
"""

import functools
import importlib
import re

import nbformat

from coursekit.commands.lectures import home
from coursekit.grading.parts import Part
from coursekit.grading.release import mark_up

MODEL, FIRST = "the model answer", "the first right answer"


@functools.cache
def models(exercise):
    """The model answers of the exercise's master, by name."""
    cells = nbformat.read(home() / "solutions" / exercise / f"{exercise}.ipynb", as_version=4).cells
    return {
        mark_up(cell)["grade_id"]: re.sub(r"\n *### (BEGIN|END) SOLUTION", "", cell.source)
        for cell in cells
        if mark_up(cell).get("solution") and cell.cell_type == "code"
    }


def answers_of(exercise):
    """The module with the exercise's answers, right and wrong ones."""
    return importlib.import_module(f"tests.grading.answers.{exercise[3:]}")


def trained(part):
    """Whether what is checked is the result of a training, which is examined anew, and slowly, for each seed."""
    return part.seconds > Part.seconds


def changed(base, changes, where):
    """``base`` with what ``changes`` names two by two replaced; a single one of them is the source itself."""
    if len(changes) == 1:
        return changes[0]
    for old, new in zip(changes[::2], changes[1::2], strict=True):
        if (times := base.count(old)) != 1:
            raise ValueError(f"{where}: {old!r} is to be replaced and should be there once, but is there {times} times")
        base = base.replace(old, new)
    return base


def load(exercise, answers):
    """The sources of the right ones, {name: [source]}, and the wrong ones, {name: [(points, words, source)]}."""
    if (found := list(answers)) != (wanted := list(models(exercise))):
        raise ValueError(f"{exercise}: answers to {found}, but those of the master are {wanted}")
    right, wrong = {}, {}
    for name, (kind, styles, mistakes) in answers.items():
        base = models(exercise)[name] if kind is MODEL else styles[0]
        sources = [(style,) if isinstance(style, str) else style for style in styles]
        right[name] = [changed(base, source, f"{exercise}, {name}") for source in sources]
        wrong[name] = [
            (points, words, changed(base, changes, f"{exercise}, {name}, {words!r}"))
            for points, words, *changes in mistakes
        ]
    return right, wrong
