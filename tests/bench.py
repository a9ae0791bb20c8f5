"""Benchmarks: ratios measured side by side in one run, since these machines differ and are shared.

``make bench`` prints a table and fails on nothing; the aims are printed beside the ratios.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from unittest import mock

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from coursekit.data.batches import Fresh
from coursekit.data.reversal import reversal
from coursekit.models.seq2seq import LuongDecoder, Seq2Seq, Seq2SeqConfig, seq2seq_loss
from coursekit.train import Training, adamw, warmup_cosine

ROUNDS = 5
REPEATS = 3


def alternate(first: Callable[[], None], second: Callable[[], None]) -> tuple[float, float, float]:
    """Median seconds of both, run in turn, and the median of the ratios second / first, pair by pair."""
    first(), second()  # warm up
    pairs = []
    for _ in range(ROUNDS):
        times = []
        for work in (first, second):
            start = time.perf_counter()
            work()
            times.append(time.perf_counter() - start)
        pairs.append(times)
    a, b = zip(*pairs)
    return statistics.median(a), statistics.median(b), statistics.median(y / x for x, y in pairs)


def model_of(score: str | None, n_symbols: int = 16, size: int = 64) -> Seq2Seq:
    torch.manual_seed(0)
    return Seq2Seq(Seq2SeqConfig(n_symbols + 1, n_symbols, embed_size=8, hidden_size=size, score=score))


def one_call_against_stepwise(score: str | None, batch_size: int, steps: int, size: int, whole: bool):
    """One training step with the decoder in one call, and with its loop.

    Args:
        whole: True times encoder, decoder, loss, backward pass and update; False the decoder alone, forward
            and backward.
    """
    model = model_of(score, size=size)
    assert isinstance(model.decoder, LuongDecoder)
    optimizer = adamw(model, lr=1e-3)
    batch = reversal(batch_size, steps, 16, torch.Generator().manual_seed(0))
    with torch.no_grad():
        states, first = model.encoder(batch["source"], batch["source_mask"])

    def train() -> None:
        for _ in range(REPEATS):
            optimizer.zero_grad()
            loss, count = seq2seq_loss(model, batch)
            (loss / count).backward()
            optimizer.step()

    def loop() -> None:
        with mock.patch.object(model.decoder, "one_call", False):
            train()

    def decode_at_once() -> None:
        for _ in range(REPEATS):
            memory, state, _ = model.decoder.start(states, batch["source_mask"], first)
            model.decoder.all_steps(batch["target"], memory, state).sum().backward()

    def decode_stepwise() -> None:
        for _ in range(REPEATS):
            memory, state, h_tilde = model.decoder.start(states, batch["source_mask"], first)
            outputs = []
            for symbol in batch["target"].unbind(dim=1):
                state, h_tilde = model.decoder.step(symbol, memory, state, h_tilde)
                outputs.append(h_tilde)
            torch.stack(outputs, dim=1).sum().backward()

    return alternate(train, loop) if whole else alternate(decode_at_once, decode_stepwise)


def loop_overhead(updates: int = 100) -> tuple[float, float, float]:
    """The same updates by hand and by ``Training``: model, schedule, clipping and records alike."""

    def make(generator: torch.Generator) -> dict[str, torch.Tensor]:
        return reversal(64, 20, 16, generator)

    def bare() -> None:
        model, data, schedule = model_of("dot"), Fresh(make), warmup_cosine(10)
        optimizer = adamw(model, lr=1e-3)
        for step in range(updates):
            for group in optimizer.param_groups:
                group["lr"] = 1e-3 * schedule(step, updates)
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
        for _ in Training(model, seq2seq_loss, Fresh(make), adamw(model, 1e-3), updates, **settings):
            pass

    return alternate(bare, ours)


def import_time() -> tuple[float, float, float]:
    """A Python that imports nothing against one that imports coursekit, in new processes."""

    def python(code: str) -> Callable[[], None]:
        return lambda: subprocess.run([sys.executable, "-c", code], check=True) and None

    return alternate(python("pass"), python("import coursekit, sys; assert 'torch' not in sys.modules"))


def main() -> None:
    table = Table("what", "A", "B", "B / A", "aim", title=f"A: one call, B: step by step; medians of {ROUNDS} rounds")
    threads = torch.get_num_threads()
    for whole, batch_size, steps, size in (
        (False, 8, 20, 16),
        (False, 8, 50, 64),
        (False, 64, 20, 64),
        (True, 64, 20, 64),
    ):
        for score in ("dot", "general", "concat", None):
            a, b, ratio = one_call_against_stepwise(score, batch_size, steps, size, whole)
            what = "training step" if whole else "decoder alone"
            name = f"{what}, {score or 'no attention'}, batch {batch_size}, {steps} steps, {size} units"
            table.add_row(name, f"{a / REPEATS * 1e3:.1f} ms", f"{b / REPEATS * 1e3:.1f} ms", f"{ratio:.2f}", "≥ 5")
    a, b, ratio = loop_overhead()
    table.add_row("100 updates; A: bare loop, B: Training", f"{a:.3f} s", f"{b:.3f} s", f"{ratio:.3f}", "≤ 1.03")
    a, b, _ = import_time()
    table.add_row(
        "A: python, B: python with import coursekit", f"{a:.3f} s", f"{b:.3f} s", f"{b - a:+.3f} s", "≤ +0.3 s"
    )
    console = Console()
    console.print(table)
    console.print(f"torch {torch.__version__}, {threads} threads")


if __name__ == "__main__":
    main()
