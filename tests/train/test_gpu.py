"""What only a GPU can show: that no objective waits for it, its numbers, and that compiling and resuming work there."""

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_map

from coursekit.data.batches import Fresh
from coursekit.models.dino import DINO
from coursekit.models.gpt import GPT, GPTConfig, gpt_loss
from coursekit.train import EMA, Training, adamw, seed, warmup_cosine
from tests.conftest import GPU
from tests.train.objectives import OBJECTIVES

pytestmark = GPU
V, T = 50, 16
WAITS = [name for name in OBJECTIVES if name.startswith("seq2seq")]  # for lengths, once an update
RECURRENT = [*WAITS, "rnn_lm", "lstm"]


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


def objective(name: str, steps: int = 6, **options) -> Training:
    """With all that may happen in an update: accumulation, clipping, EMA, DINO's teacher that follows."""
    seed(0)
    model, loss_fn, batch = OBJECTIVES[name]()
    model = model.to("cuda")
    optimizer = adamw(model, 1e-3)
    follows = DINO.update_teacher if isinstance(model, DINO) else None
    options = {"clip": 1.0, "accumulate": 2, "ema": EMA(model, 0.9), "after_update": follows} | options
    return Training(model, loss_fn, Fresh(lambda generator: batch(), seed=0), optimizer, steps=steps, **options)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", [name for name in OBJECTIVES if name not in WAITS])
def test_no_update_waits_for_the_gpu(name, precision):
    """Else the next batch is drawn only when the GPU has nothing to do."""
    run = objective(name, precision=precision)
    run.update()  # allocates, chooses kernels
    torch.cuda.set_sync_debug_mode("error")
    try:
        found = [run.update() for _ in range(3)]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.stack(found).isfinite().all()


@pytest.mark.parametrize("name", OBJECTIVES)
def test_loss_and_gradients_are_those_of_the_cpu(name):
    found = []
    for where in ("cpu", "cuda"):
        seed(0)
        model, loss_fn, batch = OBJECTIVES[name]()
        model = model.double().to(where).train(name in RECURRENT)  # cuDNN has gradients in training only
        for module in model.modules():
            if isinstance(module, nn.Dropout | nn.LSTM | nn.GRU):
                module.p = module.dropout = 0.0
        wide = tree_map(lambda x: x.double() if x.is_floating_point() else x, batch())
        loss, count = loss_fn(model, {name: x.to(where) for name, x in wide.items()})
        loss.backward()
        grads = {name: p.grad.cpu() for name, p in model.named_parameters() if p.grad is not None}
        found.append((loss.detach().cpu(), torch.as_tensor(count).cpu(), grads))
    torch.testing.assert_close(found[1], found[0], rtol=1e-3, atol=1e-5)  # some losses are computed in float32


@pytest.mark.parametrize("name", OBJECTIVES)
def test_two_steps_run_in_bfloat16_with_weights_in_float32(name):
    run = objective(name, precision="bfloat16")
    assert all(torch.isfinite(run.update()) for _ in range(2))
    assert {p.dtype for p in run.model.parameters()} == {torch.float32}


def test_a_batch_may_hold_views():
    """Of which some have fewer numbers in memory than they show, and cannot be pinned as they are."""
    run = training("cuda")
    run.data = iter([{"ids": torch.arange(T + 1).expand(8, -1)}])
    assert torch.isfinite(run.update())


def test_the_curve_is_that_of_the_cpu():
    expected = losses(training("cpu", precision="float32"))
    assert losses(training("cuda", precision="float32")) == pytest.approx(expected, rel=1e-3)


def test_it_learns_in_bfloat16():
    found = losses(training("cuda", steps=200, precision="bfloat16"))
    assert found[-1] < 0.5 * found[0]


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
