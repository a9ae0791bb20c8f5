"""What the package itself costs: its import, and its training loop beside a bare one."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import nn

from coursekit.data.batches import Fresh
from coursekit.data.reversal import reversal
from coursekit.models.seq2seq import seq2seq_loss
from coursekit.train import Training, adamw, warmup_cosine
from tests.benchmarks.seq2seq import model_of
from tests.benchmarks.shared import Row, clock, race

UPDATES = 100


def import_time() -> Iterator[Row]:
    """A Python that imports nothing against one that imports coursekit, in new processes."""

    def python(code: str) -> Callable[[], object]:
        return lambda: subprocess.run([sys.executable, "-c", code], check=True)

    times = clock(python("pass"), python("import coursekit, sys; assert 'torch' not in sys.modules"))
    row = Row("import", "python with import coursekit: seconds more", "python", unit="s", at_most=0.3)
    yield replace(row, rounds=tuple(b - a for a, b in times))


def loop_overhead() -> Iterator[Row]:
    """The same updates by hand and by ``Training``: model, schedule, clipping and records alike."""

    def make(generator: torch.Generator) -> dict[str, torch.Tensor]:
        return reversal(64, 20, 16, generator)

    def bare() -> None:
        model, data, schedule = model_of("dot"), Fresh(make), warmup_cosine(10)
        optimizer = adamw(model, lr=1e-3)
        for step in range(UPDATES):
            for group in optimizer.param_groups:
                group["lr"] = 1e-3 * schedule(step, UPDATES)
            batch = next(data)
            optimizer.zero_grad(set_to_none=True)
            loss, count = seq2seq_loss(model, batch)
            loss = loss / count
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if step % 10 == 0:
                loss.item()

    def ours() -> None:
        model = model_of("dot")
        settings = {"schedule": warmup_cosine(10), "precision": "float32"}
        for _ in Training(model, seq2seq_loss, Fresh(make), adamw(model, 1e-3), UPDATES, **settings):
            pass

    row = Row("training loop", f"{UPDATES} updates by Training: seconds of", "a bare loop", at_most=1.03)
    yield race(row, bare, ours)


def parts() -> list[Callable[[], Iterator[Row]]]:
    return [import_time, loop_overhead]
