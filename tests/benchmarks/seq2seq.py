"""The decoder with attention, in one call and step by step, alone and within a training step."""

from collections.abc import Callable, Iterator
from functools import partial
from unittest import mock

import torch

from coursekit.data.reversal import reversal
from coursekit.models.seq2seq import LuongDecoder, Seq2Seq, Seq2SeqConfig, seq2seq_loss
from coursekit.train import adamw
from tests.benchmarks.shared import Row, race

REPEATS = 3
SCORES = ("dot", "general", "concat", None)
ALONE, WHOLE = (8, 20, 16), (64, 20, 64)  # batch, steps, units: the larger, the more of the time is products


def model_of(score: str | None, n_symbols: int = 16, size: int = 64) -> Seq2Seq:
    torch.manual_seed(0)
    return Seq2Seq(Seq2SeqConfig(n_symbols + 1, n_symbols, embed_size=8, hidden_size=size, score=score))


def row_of(what: str, score: str | None, shape: tuple[int, int, int], aim: float | None = None) -> Row:
    batch_size, steps, size = shape
    what = f"{what}, {score or 'no attention'}, batch {batch_size}, {steps} steps, {size} units"
    return Row("02 seq2seq", f"{what}: one call", "step by step", at_least=aim, measured_in="times/s")


def made(score: str | None, shape: tuple[int, int, int]) -> tuple[Seq2Seq, dict[str, torch.Tensor]]:
    batch_size, steps, size = shape
    model = model_of(score, size=size)
    assert isinstance(model.decoder, LuongDecoder)
    return model, reversal(batch_size, steps, 16, torch.Generator().manual_seed(0))


def decoder_alone(shape: tuple[int, int, int], score: str | None) -> Iterator[Row]:
    """Forward and backward."""
    model, batch = made(score, shape)
    with torch.no_grad():
        states, first = model.encoder(batch["source"], batch["source_mask"])

    def at_once() -> None:
        for _ in range(REPEATS):
            memory, state, _ = model.decoder.start(states, batch["source_mask"], first)
            model.decoder.all_steps(batch["target"], memory, state).sum().backward()

    def stepwise() -> None:
        for _ in range(REPEATS):
            memory, state, h_tilde = model.decoder.start(states, batch["source_mask"], first)
            outputs = []
            for symbol in batch["target"].unbind(dim=1):
                state, h_tilde = model.decoder.step(symbol, memory, state, h_tilde)
                outputs.append(h_tilde)
            torch.stack(outputs, dim=1).sum().backward()

    yield race(row_of("decoder alone", score, shape, aim=5), at_once, stepwise, amount=REPEATS)


def training_step(shape: tuple[int, int, int], score: str | None) -> Iterator[Row]:
    """Encoder, decoder, loss, backward pass and update."""
    model, batch = made(score, shape)
    optimizer = adamw(model, lr=1e-3)

    def train() -> None:
        for _ in range(REPEATS):
            optimizer.zero_grad()
            loss, count = seq2seq_loss(model, batch)
            (loss / count).backward()
            optimizer.step()

    def loop() -> None:
        with mock.patch.object(model.decoder, "one_call", False):
            train()

    yield race(row_of("training step", score, shape), train, loop, amount=REPEATS)


def parts() -> list[Callable[[], Iterator[Row]]]:
    alone = [partial(decoder_alone, ALONE, score) for score in SCORES]
    return alone + [partial(training_step, WHOLE, score) for score in SCORES]
