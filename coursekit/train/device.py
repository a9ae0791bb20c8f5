"""Where the numbers are crunched, and with which random numbers."""

import contextlib
import functools
import math
import os
import random
import time
from collections.abc import Mapping

import numpy as np
import torch


class DistributedError(RuntimeError):
    """Something that several processes cannot do, or the loss of one of them; the message says which."""


def device() -> torch.device:
    """The fastest device at hand: cuda, then mps, then cpu; of the GPUs of a machine its own for each of torchrun's
    processes.

    Raises:
        DistributedError: torchrun started more processes than there are GPUs.
    """
    if torch.cuda.is_available():
        number, count = os.environ.get("LOCAL_RANK"), torch.cuda.device_count()
        if number is None:
            return torch.device("cuda")
        if int(number) >= count:
            raise DistributedError(f"process {number} of this machine has no GPU: torchrun --nproc-per-node {count}")
        return torch.device("cuda", int(number))
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


def seed(value: int) -> None:
    """Seed Python, NumPy and torch (every device)."""
    random.seed(value)
    np.random.seed(value)  # noqa: NPY002  libraries still draw from the global state
    torch.manual_seed(value)


def has_fast_bf16(where: torch.device) -> bool:
    """Whether bfloat16 matrix products are faster than float32 there.

    On cuda from Ampere on; on CPUs with AMX, and on those with AVX-512's bfloat16 if a measurement says so.
    """
    if where.type == "cuda":
        return torch.cuda.get_device_capability(where)[0] >= 8
    get = getattr(torch.cpu, "get_capabilities", None) or getattr(torch.cpu, "_is_amx_tile_supported", None)
    if where.type != "cpu" or get is None:
        return False
    found = get()  # all that the processor can do, by name, but for old versions of torch
    if not isinstance(found, Mapping):
        return bool(found)
    return bool(found.get("amx_bf16")) or (bool(found.get("avx512_bf16")) and gain_of_bf16() > 1.25)


@functools.cache
def gain_of_bf16(width: int = 256, rounds: int = 10) -> float:
    """How many times as fast a layer is in bfloat16 as in float32, on this CPU: measured once, in a few milliseconds.

    Of each the best of several rounds in turn, since others on the machine only ever add time; and on one thread, since
    two of them wait for each other on a busy machine, and then the answer would be another one from run to run.
    """
    x, weight = torch.ones(4 * width, width), torch.ones(width, width)  # nothing is drawn, so that no result changes
    best, threads = dict.fromkeys((torch.float32, torch.bfloat16), math.inf), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for _ in range(rounds):
            for dtype in best:
                start = time.perf_counter()
                torch.nn.functional.linear(x.to(dtype), weight.to(dtype))
                best[dtype] = min(best[dtype], time.perf_counter() - start)
    finally:
        torch.set_num_threads(threads)
    return best[torch.float32] / best[torch.bfloat16]


def check_precision(precision: str) -> None:
    """Refuse what ``autocast`` does not know."""
    if precision not in ("auto", "float32", "bfloat16"):
        raise ValueError(f"precision={precision!r}: must be 'auto', 'float32' or 'bfloat16'")


def autocast(where: torch.device, precision: str = "auto") -> contextlib.AbstractContextManager:
    """Context in which matrix products run in bfloat16, weights staying float32.

    Args:
        where: the model's device.
        precision: ``"float32"``, ``"bfloat16"``, or ``"auto"`` for bfloat16 where ``has_fast_bf16``.
    """
    check_precision(precision)
    if precision == "bfloat16" or (precision == "auto" and has_fast_bf16(where)):
        return torch.autocast(where.type, dtype=torch.bfloat16)
    return contextlib.nullcontext()
