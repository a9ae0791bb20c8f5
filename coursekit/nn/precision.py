"""Computing in full precision where autocast is on."""

import contextlib

import torch


def full_precision(where: torch.device) -> contextlib.AbstractContextManager:
    """Inside this context, matrix products are not computed in bfloat16, even where autocast is on."""
    if not torch.amp.is_autocast_available(where.type):
        return contextlib.nullcontext()
    return torch.autocast(where.type, enabled=False)
