"""A run that is killed and started again ends with the same bits as one that was not."""

import os
import random
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from coursekit.data.batches import Fresh, Shuffled
from coursekit.train import EMA, Training, adamw, seed, warmup_cosine
from coursekit.train.checkpoint import load_state

STEPS = 240


heartbeat: int | None = None  # a pipe's end into which each call of the loss writes a byte


def loss_fn(model, batch):
    """Draws from all three global generators, as augmentations of libraries do."""
    if heartbeat is not None:
        os.write(heartbeat, b".")
    noise = random.random() + np.random.rand()  # noqa: NPY002
    error = (model(batch["x"] + 0.1 * noise) - batch["x"]).square()
    return error.sum(), torch.tensor(error.shape[0])


def run(folder: Path, shuffled: bool) -> Training:
    """A small training with everything that has a state: dropout, momentum, schedule, average, sampler."""
    seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.Dropout(0.3), nn.ReLU(), nn.Linear(32, 8))
    if shuffled:
        x = torch.randn(70, 8, generator=torch.Generator().manual_seed(1))
        data = Shuffled({"x": x}, batch_size=16, seed=2)
    else:
        data = Fresh(lambda generator: {"x": torch.randn(16, 8, generator=generator)}, seed=2)
    training = Training(
        model,
        loss_fn,
        data,
        adamw(model, lr=1e-2),
        STEPS,
        schedule=warmup_cosine(20),
        accumulate=2,
        log_every=7,
        evaluate=lambda model: {"validation_loss": next(model.parameters()).sum().item()},
        evaluate_every=50,
        ema=EMA(model, 0.9),
        folder=folder,
        save_every=4,
    )
    for _ in training:
        pass
    return training


def one_life(work, beats: int | None = None, delay: float = 0.0) -> int:
    """Run ``work`` in a fork (torch is loaded already, so that costs milliseconds); return its exit status.

    With ``beats`` it is killed ``delay`` seconds after that many calls of the loss, however slow the machine.
    """
    global heartbeat
    listen, heartbeat = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    os.close(heartbeat)
    heartbeat = None
    with os.fdopen(listen, "rb", buffering=0) as pipe:
        if beats is not None:
            for _ in range(beats):
                pipe.read(1)
            time.sleep(delay)
            os.kill(child, signal.SIGKILL)
        while pipe.read(4096):
            pass
    return os.waitpid(child, 0)[1]


def same(a, b) -> bool:
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def half_written(self: Path, content: bytes) -> None:
    """Stands in for Path.write_bytes: the power fails in the middle."""
    with open(self, "wb") as file:
        file.write(content[: len(content) // 2])
        file.flush()
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("shuffled", [True, False], ids=["Shuffled", "Fresh"])
def test_killed_ten_times_at_any_moment(tmp_path, shuffled, monkeypatch):
    """Twice ten kills, one of each ten while the checkpoint is being written."""
    run(tmp_path / "whole", shuffled)
    expected = load_state(tmp_path / "whole" / "last.ckpt")

    moments = random.Random(shuffled)
    folder = tmp_path / "killed"
    killed, stages = 0, []
    while killed < 10:
        if killed == 5:
            with monkeypatch.context() as patch:
                patch.setattr(Path, "write_bytes", half_written)
                status = one_life(lambda: run(folder, shuffled))
            assert list(folder.glob(".last.ckpt.*.tmp")), "the kill came in the middle of the writing"
        else:
            beats, delay = moments.randint(5, 45), moments.uniform(0, 0.004)
            status = one_life(lambda: run(folder, shuffled), beats, delay)
        assert os.WIFSIGNALED(status), "the run ended before the kill: make it longer"
        killed += 1
        stages.append(load_state(folder / "last.ckpt")["step"] if (folder / "last.ckpt").exists() else 0)
    assert stages == sorted(stages)
    assert len(set(stages)) >= 6, f"the kills hit too few different moments: {stages}"
    assert one_life(lambda: run(folder, shuffled)) == 0

    actual = load_state(folder / "last.ckpt")
    differing = [key for key in expected if not same(expected[key], actual[key])]
    assert not differing
    for best in ("best.safetensors", "best.json"):
        assert (folder / best).read_bytes() == (tmp_path / "whole" / best).read_bytes()


def test_a_finished_run_is_not_run_again(tmp_path):
    first = run(tmp_path, shuffled=True)
    again = run(tmp_path, shuffled=True)
    assert again.step == STEPS
    assert again.history == first.history
