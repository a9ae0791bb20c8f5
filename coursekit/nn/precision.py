"""Where autocast must not choose the precision."""

import contextlib

import torch


def full_precision(where: torch.device) -> contextlib.AbstractContextManager:
    """Context in which nothing is multiplied in bfloat16, whatever autocast says around it."""
    if not torch.amp.is_autocast_available(where.type):
        return contextlib.nullcontext()
    return torch.autocast(where.type, enabled=False)
