"""Models as answers: their weights in a model of ours, which is then judged."""

import functools
import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from coursekit.grading.calls import Arrays
from coursekit.grading.differences import values

DIVERGED = "the weights are no finite numbers: the training diverged, the learning rate is far too high"
LARGEST_WEIGHT = 1e6  # a thousand times and more what trainings here end with
NOT_GIVEN = "this is not the model that train was given: "


def diverged(weights: np.ndarray) -> bool:
    """Whether some are no finite numbers, or so large that no training can have meant them."""
    return not (np.abs(weights.astype(float)) <= LARGEST_WEIGHT).all()


def put_into(
    model: nn.Module,
    weights: Arrays,
    missing: str = NOT_GIVEN + "it has no weights {name}",
    sizes: str = NOT_GIVEN + "its sizes differ",
    unused: tuple[str, ...] = (),
) -> str | None:
    """Put the weights of an answer's model into ``model``, one of ours; or say, in words, why they do not fit.

    Args:
        weights: what ``collect`` made of the answer; what ``model`` has no place for is passed over.
        missing: the words where one is not there; ``{name}`` is its name.
        sizes: the words where one has another shape; both shapes are put behind them.
        unused: beginnings of names; what is called so stays as it is in ``model``.
    """
    needed = {name: tensor for name, tensor in model.state_dict().items() if not name.startswith(unused)}
    for name, tensor in needed.items():
        if name not in weights:
            return missing.format(name=name)
        if weights[name].shape != tuple(tensor.shape):
            return sizes + values(weights[name].shape, tuple(tensor.shape))
        if diverged(weights[name]):
            return DIVERGED
    model.load_state_dict({name: torch.tensor(weights[name]).float() for name in needed}, strict=False)
    return None


def once_for_a_model(examine: Callable[[nn.Module, int], Any]) -> Callable[[nn.Module, int], Any]:
    """``examine(model, secret)``, which remembers what it found last: each aspect of a part asks about one model."""
    latest: dict[tuple[str, int], Any] = {}

    @functools.wraps(examine)
    def remembered(model: nn.Module, secret: int) -> Any:
        weights = hashlib.sha256()
        for name, tensor in model.state_dict().items():
            weights.update(name.encode() + tensor.numpy().tobytes())
        asked = (weights.hexdigest(), secret)
        if asked not in latest:
            found = examine(model, secret)
            latest.clear()
            latest[asked] = found
        return latest[asked]

    return remembered
