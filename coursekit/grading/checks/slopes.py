"""Losses that a model can learn by: what several exercises share to look at a loss's gradient, too.

In these parts a given cell calls the student's function by a task: "loss" returns what it returns, "slope" the gradient
of that (of the sum, where there are several losses) by the first argument.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coursekit.grading.mistakes import by_task
from coursekit.grading.parts import Case

CUT = "no gradient arrives, so that no model could learn by this: keep tensors (no .item(), float(), NumPy or detach())"
Loss = Callable[..., Any]


def slope(loss: Loss, x: Tensor, *rest: Any) -> np.ndarray:
    """The gradient of ``loss(x, *rest)``, of what is known of it, by a small step of each number to both sides."""
    result, moved, h = np.zeros(x.shape), x.double().clone(), 1e-5
    for place in np.ndindex(*x.shape):
        here, sums = moved[place].item(), []
        for there in (here + h, here - h):
            moved[place] = there
            sums.append(np.nansum(np.asarray(loss(moved, *rest), float)))
        moved[place] = here
        result[place] = (sums[0] - sums[1]) / (2 * h)
    return result


def no_slope(x: Tensor, *rest: Any) -> Tensor:
    return torch.zeros_like(x)


def as_losses(reference: Loss, suspects: Mapping[str, Loss]) -> dict[str, Any]:
    """The same for both tasks, for a ``Part`` whose cases are ``with_slopes``."""

    def both(loss: Loss) -> Loss:
        return by_task(loss=loss, slope=partial(slope, loss))

    wrong = {words: both(loss) for words, loss in suspects.items()}
    return {"reference": both(reference), "suspects": {CUT: by_task(slope=no_slope)} | wrong}


def with_slopes(*which: int) -> Callable[[Callable[..., list[Case]]], Callable[..., list[Case]]]:
    """Cases for both tasks: all of them for the loss, and those of these numbers for the gradient, too."""

    def both(cases: Callable[..., list[Case]]) -> Callable[..., list[Case]]:
        @functools.wraps(cases)
        def drawn(generator: torch.Generator) -> list[Case]:
            found = cases(generator)
            slopes = [replace(found[i], aspect="gradient", about=f"the gradient: {found[i].about}") for i in which]
            return [replace(case, arguments=("loss", *case.arguments)) for case in found] + [
                replace(case, arguments=("slope", *case.arguments)) for case in slopes
            ]

        return drawn

    return both
