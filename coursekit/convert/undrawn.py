"""Models whose weights are not drawn, because others are about to take their places."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class LeaveAlone(TorchFunctionMode):
    """Within it the functions of ``torch.nn.init`` leave a tensor as it is: on ``meta`` each takes a millisecond."""

    def __torch_function__(self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if getattr(function, "__module__", "") == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        return function(*args, **kwargs or {})


@contextmanager
def undrawn() -> Iterator[None]:
    """A model made within it has shapes and no numbers; ``load_state_dict(weights, assign=True)`` gives it some."""
    with torch.device("meta"), LeaveAlone():
        yield
