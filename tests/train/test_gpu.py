"""What only a GPU can show: that nothing waits, and that bfloat16, compile and resuming work there."""

import pytest
import torch

from coursekit.data.batches import Fresh
from coursekit.models.gpt import GPT, GPTConfig, gpt_loss
from coursekit.train import Training, adamw, seed, warmup_cosine
from tests.conftest import GPU

pytestmark = GPU
V, T = 50, 16


def make(generator: torch.Generator) -> dict[str, torch.Tensor]:
    start = torch.randint(V, (8, 1), generator=generator)
    return {"ids": (start + torch.arange(T + 1)) % V}


def training(where: str, steps: int = 40, compiled: bool = False, **options) -> Training:
    seed(0)
    model = GPT(GPTConfig(V, 32, n_heads=2, d_ff=64, n_layers=2, max_length=T, dropout=0.0)).to(where)
    loss_fn = torch.compile(gpt_loss) if compiled else gpt_loss
    data = Fresh(make, seed=1)
    return Training(model, loss_fn, data, adamw(model, 3e-3), steps, schedule=warmup_cosine(5), log_every=10, **options)


def losses(run: Training) -> list[float]:
    return [record["loss"] for record in run.fit()]


def test_the_curve_is_that_of_the_cpu():
    expected = losses(training("cpu", precision="float32"))
    assert losses(training("cuda", precision="float32")) == pytest.approx(expected, rel=1e-3)


def test_no_update_waits_for_the_gpu():
    """Else the next batch is drawn only when the GPU has nothing to do."""
    run = training("cuda")
    run.update()  # allocates, chooses kernels
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(3):
            run.update()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_it_learns_in_bfloat16_with_weights_in_float32():
    run = training("cuda", steps=200, precision="bfloat16")
    found = losses(run)
    assert found[-1] < 0.5 * found[0]
    assert {p.dtype for p in run.model.parameters()} == {torch.float32}


def test_a_compiled_loss_has_the_same_curve():
    expected = losses(training("cuda", precision="float32"))
    assert losses(training("cuda", compiled=True, precision="float32")) == pytest.approx(expected, rel=1e-3)


def test_a_stopped_run_goes_on_as_if_it_had_not_been(tmp_path):
    whole = training("cuda", folder=tmp_path / "whole", save_every=10)
    whole.fit()
    first = training("cuda", folder=tmp_path / "stopped", save_every=10)
    for record in first:
        if record["step"] == 20:
            break
    again = training("cuda", folder=tmp_path / "stopped", save_every=10)
    assert again.step == 20
    again.fit()
    assert [r["step"] for r in again.history] == [r["step"] for r in whole.history]
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(again.model.parameters(), whole.model.parameters()))
