"""The modes: a model drops out in train mode and not in eval mode, and PyTorch keeps no gradients in inference mode."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put ``model`` into eval mode; at the end, or after an error, each of its modules is in its own mode again."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def out_of_inference_mode(x: Tensor) -> Tensor:
    """A copy that a model may be trained on, of what was computed in inference mode: on that itself it may not."""
    with torch.inference_mode(False):
        return x.clone()
