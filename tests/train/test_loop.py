import itertools
import math
import re
import subprocess
import sys
import tempfile
from types import MappingProxyType

import nbformat
import pytest
import torch
from nbclient import NotebookClient
from torch import nn
from traitlets.config import Config

from coursekit.commands.lectures import own_sockets
from coursekit.data.batches import Fresh, Shuffled
from coursekit.train import EMA, CheckpointError, Training, adamw, constant, warmup_cosine
from coursekit.train.checkpoint import load_state
from coursekit.train.device import autocast, gain_of_bf16, has_fast_bf16, seed


def regression(n: int = 32, seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 5, generator=generator)
    return {"x": x, "y": x @ torch.arange(5.0)}


def squared(model, batch):
    return (model(batch["x"])[:, 0] - batch["y"]).square().sum(), torch.tensor(len(batch["x"]))


def linear() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(5, 1)


def test_equals_a_bare_pytorch_loop(where):
    """Same updates as the loop one would write by hand, schedule and clipping included."""
    ours, theirs = linear().to(where), linear().to(where)
    steps, schedule = 30, warmup_cosine(5, floor=0.1)
    data = Shuffled(regression(), 8)
    optimizer = torch.optim.AdamW(ours.parameters(), lr=0.1, weight_decay=0.1)
    training = Training(ours, squared, data, optimizer, steps, schedule=schedule, clip=0.5, precision="float32")
    history = training.fit()

    data = Shuffled(regression(), 8)
    optimizer = torch.optim.AdamW(theirs.parameters(), lr=0.1, weight_decay=0.1)
    losses = []
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 0.1 * schedule(step, steps)
        batch = {name: tensor.to(where) for name, tensor in next(data).items()}
        loss = (theirs(batch["x"])[:, 0] - batch["y"]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(theirs.parameters(), 0.5)
        optimizer.step()
        losses.append(loss.item())
    for a, b in zip(ours.parameters(), theirs.parameters()):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    assert [r["step"] for r in history] == [10, 20, 30]
    assert history[-1]["loss"] == pytest.approx(sum(losses[20:]) / 10, rel=1e-5)
    assert history[-1]["grad_norm"] == pytest.approx(norm.item(), rel=1e-4)
    assert history[-1]["lr"] == 0.1 * schedule(29, 30)


def test_accumulation_equals_one_large_batch_of_unequal_counts():
    """Normalised by all valid things of all batches, not by the mean of the batches' means."""
    pieces = [regression(2), regression(30, seed=1)]

    class Pieces:
        def __init__(self, batches):
            self.batches = iter(batches * 20)

        def __next__(self):
            return next(self.batches)

    whole = {name: torch.cat([p[name] for p in pieces]) for name in pieces[0]}
    models = []
    for batches, accumulate in (([whole], 1), (pieces, 2)):
        model = linear()
        # plain gradient descent: Adam would not notice a gradient that is too large by a factor
        optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
        settings = {"accumulate": accumulate, "clip": None, "precision": "float32"}
        Training(model, squared, Pieces(batches), optimizer, 10, **settings).fit()
        models.append(model)
    for a, b in zip(models[0].parameters(), models[1].parameters()):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_early_stopping_keeps_the_best_weights(tmp_path):
    """The third evaluation is the best one; two worse ones in a row end the run."""
    values = iter([3.0, 2.0, 1.0, 1.5, 1.2, 0.1])
    seen = []

    def evaluate(model):
        assert not model.training
        assert not torch.is_grad_enabled()
        seen.append(model.weight.clone())
        return {"valid": next(values)}

    model = linear()
    training = Training(
        model,
        squared,
        Shuffled(regression(), 8),
        adamw(model, 0.1),
        100,
        evaluate=evaluate,
        evaluate_every=5,
        monitor="valid",
        patience=2,
        folder=tmp_path,
    )
    history = training.fit()
    assert training.stopped_early
    assert history[-1]["step"] == training.step == 25
    assert training.best == 1.0
    from coursekit.train import load_weights

    best = linear()
    load_weights(tmp_path / "best.safetensors", best)
    assert torch.equal(best.weight, seen[2])
    assert not torch.equal(best.weight, model.weight)
    assert '"step": 15' in (tmp_path / "best.json").read_text()


def test_higher_is_better():
    values = iter([0.5, 0.7, 0.6])
    model = linear()
    training = Training(
        model, squared, Shuffled(regression(), 8), adamw(model, 0.1), 3, evaluate=lambda m: {"acc": next(values)},
        evaluate_every=1, monitor="acc", higher_is_better=True, patience=3,
    )  # fmt: skip
    training.fit()
    assert training.best == 0.7


@pytest.mark.parametrize("higher_is_better", [False, True])
def test_an_equal_metric_is_no_better_one(tmp_path, higher_is_better):
    model = linear()
    options = {"evaluate": lambda model: {"valid": 1.0}, "evaluate_every": 1, "monitor": "valid", "patience": 2}
    options |= {"higher_is_better": higher_is_better, "folder": tmp_path}
    training = Training(model, squared, Shuffled(regression(), 8), adamw(model, 0.1), 10, **options)
    training.fit()
    assert training.step == 3
    assert '"step": 1,' in (tmp_path / "best.json").read_text()


@pytest.mark.parametrize("higher_is_better", [False, True])
def test_nan_is_never_the_best(tmp_path, higher_is_better):
    """Nothing is better than nan, so that a run would stop while it improves, with the weights of that moment kept."""
    values = iter([math.nan, 1.0, 2.0, math.nan] if higher_is_better else [math.nan, 2.0, 1.0, math.nan])
    model = linear()
    options = {"evaluate": lambda model: {"valid": next(values)}, "evaluate_every": 1, "monitor": "valid"}
    options |= {"patience": 3, "higher_is_better": higher_is_better, "folder": tmp_path}
    training = Training(model, squared, Shuffled(regression(), 8), adamw(model, 0.1), 4, **options)
    training.fit()
    assert training.step == 4
    assert '"step": 3,' in (tmp_path / "best.json").read_text()


def test_a_run_that_was_killed_has_the_patience_that_is_left(tmp_path):
    values = iter(range(20))  # worse every time

    def run() -> Training:
        model = linear()
        options = {"evaluate": lambda model: {"valid": float(next(values))}, "evaluate_every": 1, "monitor": "valid"}
        options |= {"patience": 3, "folder": tmp_path, "save_every": 1}
        return Training(model, squared, Shuffled(regression(), 8), adamw(model, 0.1), 10, **options)

    for record in run():
        if record["step"] == 3:  # two evaluations without a better one
            break
    again = run()
    again.fit()
    assert again.stopped_early
    assert again.step == 4


def test_iterating_can_stop_and_go_on():
    whole, parts = linear(), linear()
    expected = Training(whole, squared, Shuffled(regression(), 8), adamw(whole, 0.1), 40).fit()
    training = Training(parts, squared, Shuffled(regression(), 8), adamw(parts, 0.1), 40)
    for record in training:
        if record["step"] == 20:
            break
    assert training.step == 20
    assert training.fit() == expected
    assert len(repr(expected)) < 200, "one line in a notebook"
    assert torch.equal(whole.weight, parts.weight)


def test_an_interrupt_ends_fit_quietly_and_fit_goes_on(capsys):
    model = linear()
    data = Shuffled(regression(), 8)
    calls = []

    def interrupted(model, batch):
        calls.append(1)
        if len(calls) == 13:
            raise KeyboardInterrupt
        return squared(model, batch)

    training = Training(model, interrupted, data, adamw(model, 0.1), 20)
    training.fit()
    assert training.step == 12
    assert "Interrupted after 12 of 20 steps" in "".join(capsys.readouterr())
    training.fit()
    assert training.step == 20


@pytest.mark.parametrize("at", [3, 10, 12])
def test_a_run_that_is_stopped_is_evaluated_where_it_stands_and_goes_on(at):
    """Between two records, at one, and before there is any; cells that read the last record's metrics find them."""
    model = linear()
    settings = {"evaluate": lambda m: {"sum": m.weight.detach().sum().item()}, "evaluate_every": 15, "log_every": 5}
    calls = []

    def interrupted(model, batch):
        calls.append(1)
        if len(calls) == at + 1:
            raise KeyboardInterrupt
        return squared(model, batch)

    training = Training(model, interrupted, Shuffled(regression(), 8), adamw(model, 0.1), 20, **settings)
    history = training.fit()
    steps = [*range(5, at, 5), at]
    assert [record["step"] for record in history] == steps
    assert history[-1]["sum"] == pytest.approx(model.weight.detach().sum().item())
    assert math.isfinite(history[-1]["loss"])
    assert not [record for record in history[:-1] if "sum" in record]
    training.stop()
    assert len(history) == len(steps), "stopped twice"
    assert [record["step"] for record in training.fit() if "sum" in record] == [at, 15, 20]
    assert training.step == 20


def test_a_run_that_is_stopped_twice_is_evaluated_once_and_keeps_its_patience():
    model = linear()
    evaluated = []

    def evaluate(model):
        evaluated.append(1)
        return {"validation_loss": float(len(evaluated))}  # worse every time

    data = Shuffled(regression(), 8)
    options = {"evaluate": evaluate, "evaluate_every": 5, "patience": 1}
    training = Training(model, squared, data, adamw(model, 0.1), 20, **options, log_every=1)
    for record in training:
        if record["step"] == 7:
            break
    training.stop()
    training.stop()
    assert len(evaluated) == 2
    assert not training.stopped_early
    training.fit()
    assert training.step == 10


def test_an_update_that_is_interrupted_counts_nothing():
    model = linear()
    calls = []

    def interrupted(model, batch):
        calls.append(1)
        if len(calls) == 7:
            raise KeyboardInterrupt
        return model(batch["x"]).sum() * 0 + 8, torch.tensor(8.0)

    training = Training(model, interrupted, Shuffled(regression(), 8), adamw(model, 0.1), 20, accumulate=4)
    assert [(record["step"], record["loss"]) for record in training.fit()] == [(1, 1.0)]


def test_a_loss_that_is_no_number_is_named_below_the_bar(capsys):
    model = linear()

    def diverged(model, batch):
        return squared(model, batch)[0] * math.nan, 8

    training = Training(model, diverged, Shuffled(regression(), 8), adamw(model, 0.1), 20)
    with pytest.raises(FloatingPointError, match=r"does a batch hold nan or inf\? If not, try a lower learning rate"):
        training.fit()
    assert "Ended by an error after 10 of 20 steps." in "".join(capsys.readouterr())


def test_nothing_is_evaluated_when_a_run_is_stopped_before_it_began():
    model = linear()
    training = Training(model, squared, Shuffled(regression(), 8), adamw(model, 0.1), 20, evaluate=pytest.fail)
    training.stop()
    assert training.history == []


def test_in_a_notebook_the_bar_leaves_a_line_and_no_widget(tmp_path):
    """A widget that has been closed is "model not found" to whoever opens the saved notebook."""
    source = """import torch
from coursekit.data.batches import Shuffled
from coursekit.train import Training, adamw
model = torch.nn.Linear(1, 1)
data = Shuffled({"x": torch.ones(8, 1)}, 4)
loss = lambda model, batch: (model(batch["x"]).square().sum(), torch.tensor(4))
history = Training(model, loss, data, adamw(model, 0.1), 20).fit()"""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    with tempfile.TemporaryDirectory() as sockets:  # a socket's path must be short, which tmp_path is not
        config, resources = Config(KernelManager=own_sockets(sockets)), {"metadata": {"path": str(tmp_path)}}
        NotebookClient(notebook, config=config, kernel_name="python3", resources=resources).execute()
    (output,) = notebook.cells[0].outputs
    assert list(output.data) == ["text/plain"]
    assert re.fullmatch(r"20 steps in \d+ s: loss \d\.\d{4}", output.data["text/plain"])


def test_a_loss_that_is_not_finite_ends_the_run_with_advice():
    model = linear()
    with pytest.raises(FloatingPointError, match=r"loss is (inf|nan) at step 10: .* lower learning rate"):
        Training(model, lambda m, b: (squared(m, b)[0] * math.inf, torch.tensor(8)), Shuffled(regression(), 8),
                 adamw(model, 0.1), 20).fit()  # fmt: skip


@pytest.mark.parametrize("broken", ["loss", "gradient"])
def test_weights_that_are_lost_are_not_saved(tmp_path, broken):
    """Between two records, too: who resumes goes on from weights that are numbers."""
    model, calls = linear(), itertools.count(1)

    def loss_fn(model, batch):
        loss, count = squared(model, batch)
        if next(calls) < 4:
            return loss, count
        return (loss * math.nan if broken == "loss" else loss + (loss - loss.detach()).sqrt()), count

    data = Shuffled(regression(), 8)
    training = Training(model, loss_fn, data, adamw(model, 0.1), 20, log_every=20, save_every=2, folder=tmp_path)
    named = {"loss": "the loss", "gradient": "the norm of the gradient"}[broken]
    with pytest.raises(FloatingPointError, match=f"{named} is nan at step 4"):
        training.fit()
    saved = load_state(tmp_path / "last.ckpt")
    assert saved["step"] == 2
    assert all(tensor.isfinite().all() for tensor in saved["model"].values())


def test_a_run_without_a_folder_ends_at_the_record_of_a_lost_gradient():
    def loss_fn(model, batch):
        loss, count = squared(model, batch)
        return loss + (loss - loss.detach()).sqrt(), count

    model = linear()
    training = Training(model, loss_fn, Shuffled(regression(), 8), adamw(model, 0.1), 20, log_every=1)
    with pytest.raises(FloatingPointError, match="the norm of the gradient is nan at step 1:"):
        training.fit()


def test_batches_with_nothing_to_learn_are_named_and_change_nothing():
    model = nn.Linear(2, 1)
    before = [p.clone() for p in model.parameters()]

    def loss_fn(model, batch):
        return model(batch["x"]).sum() * 0, torch.tensor(0)

    data = Fresh(lambda generator: {"x": torch.ones(3, 2)}, seed=0)
    with pytest.raises(ValueError, match="the batches of step 1 hold nothing to learn"):
        Training(model, loss_fn, data, adamw(model, 1e-2), steps=2).fit()
    assert all(map(torch.equal, model.parameters(), before))


def test_on_a_gpu_too_batches_with_nothing_to_learn_end_the_run_before_the_weights_change(monkeypatch):
    """Nobody asks for the number there: the device itself ends the run, as ``torch._assert_async`` does on a CPU."""
    monkeypatch.setattr("coursekit.nn.checks.can_sync", lambda x: False)
    model = nn.Linear(2, 1)
    before = [p.clone() for p in model.parameters()]
    data = Fresh(lambda generator: {"x": torch.ones(3, 2)}, seed=0)
    run = Training(model, lambda m, b: (m(b["x"]).sum() * 0, torch.tensor(0)), data, adamw(model, 1e-2), steps=2)
    with pytest.raises(RuntimeError, match="the batches of step 1 hold nothing to learn"):
        run.update()
    assert all(map(torch.equal, model.parameters(), before))


def test_ema_follows_by_its_formula():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    ema = EMA(model, 0.75)
    before = [p.clone() for p in model.parameters()]
    with torch.no_grad():
        for p in model.parameters():
            p.add_(1)
        model[1].running_mean.fill_(5)
    ema.update(model)
    for old, average in zip(before, ema.average.parameters()):
        torch.testing.assert_close(average, old + 0.25)
        assert not average.requires_grad
    assert torch.equal(ema.average[1].running_mean, torch.full((2,), 5.0))
    assert not ema.average.training
    with pytest.raises(ValueError, match="decay=2"):
        EMA(model, 2)


def test_the_average_takes_the_weights_after_each_update():
    model, weights = linear(), []
    ema, expected = EMA(model, 0.75), model.weight.detach().clone()
    options = {"ema": ema, "after_update": lambda model: weights.append(model.weight.detach().clone())}
    Training(model, squared, Shuffled(regression(), 8), adamw(model, 0.1), 5, **options).fit()
    for weight in weights:
        expected = 0.75 * expected + 0.25 * weight
    assert len(weights) == 5
    torch.testing.assert_close(ema.average.weight, expected)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        *(
            ({name: n}, f"{name}={n}: must be a whole number, at least 1")
            for name in ("steps", "accumulate", "log_every", "save_every", "evaluate_every", "patience")
            for n in (0, -1, 2.5)
        ),
        *(({"clip": x}, f"clip={x}: must be above 0, or None for no clipping") for x in (0.0, -1.0, math.nan)),
        ({"precision": "half"}, "precision='half': must be 'auto', 'float32' or 'bfloat16'"),
        ({"optimizer": adamw(linear(), 0.1)}, "none of the model's parameters: make it from model.parameters"),
        ({"patience": 1}, "patience needs evaluate"),
    ],
)
def test_nonsense_is_refused(wrong, says):
    model = linear()
    options = {"optimizer": adamw(model, 0.1), "steps": 5} | wrong
    with pytest.raises(ValueError, match=says):
        Training(model, squared, Shuffled(regression(), 8), **options)


def test_a_loss_without_its_count_is_refused():
    model = linear()
    training = Training(model, lambda m, b: squared(m, b)[0] / 8, Shuffled(regression(), 8), adamw(model, 0.1), 5)
    with pytest.raises(ValueError, match=r"returned Tensor: it must return \(loss_sum, count\)"):
        training.fit()


@pytest.mark.parametrize(
    ("loss_fn", "evaluate", "says"),
    [
        (lambda m, b: (squared(m, b)[0].item(), 8), None, r"returned float, int: it must return \(loss_sum, count\)"),
        (lambda m, b: squared(m, {"x": b["ids"]}), None, "the loss function asked for 'ids'; its batch holds x, y$"),
        (squared, lambda m: 0.5, r"evaluate returned a float: it must return {name: number}"),
    ],
)
def test_what_a_function_must_take_and_return_is_said(loss_fn, evaluate, says):
    model = linear()
    training = Training(model, loss_fn, Shuffled(regression(), 8), adamw(model, 0.1), 5, evaluate=evaluate)
    with pytest.raises(ValueError, match=says):
        training.fit()


def test_data_that_cannot_be_asked_for_the_next_batch_is_refused():
    model, loader = linear(), torch.utils.data.DataLoader([regression()])
    with pytest.raises(ValueError, match="data of type DataLoader: must give a batch at each next"):
        Training(model, squared, loader, adamw(model, 0.1), 5)


def test_data_that_cannot_say_where_it_is_is_refused_before_the_first_step(tmp_path):
    model, data = linear(), itertools.cycle([regression()])
    with pytest.raises(ValueError, match="data of type cycle: must have state_dict and load_state_dict"):
        Training(model, squared, data, adamw(model, 0.1), 5, folder=tmp_path)
    Training(model, squared, data, adamw(model, 0.1), 5).fit()


def test_data_that_ends_is_named():
    model = linear()
    with pytest.raises(ValueError, match="the data ended in step 3 of 5: it must be endless"):
        Training(model, squared, iter([regression()] * 2), adamw(model, 0.1), 5).fit()


@pytest.mark.parametrize("end", ["fit", "iteration", "break", "interrupt", "error"])
def test_a_model_is_left_in_eval_mode(end):
    model = nn.Sequential(nn.Dropout(0.5), linear())
    modes = []

    def loss_fn(model, batch):
        modes.append(model.training)
        if len(modes) == 4 and end in ("interrupt", "error"):
            raise KeyboardInterrupt if end == "interrupt" else RuntimeError("broken")
        return squared(model, batch)

    options = {"evaluate": lambda m: {"zero": 0.0}, "evaluate_every": 2, "log_every": 1}
    run = Training(model, loss_fn, Shuffled(regression(), 8), adamw(model, 0.1), 5, **options)
    if end in ("fit", "interrupt"):
        run.fit()
    elif end == "error":
        with pytest.raises(RuntimeError, match="broken"):
            run.fit()
    else:
        for record in run:
            if end == "break" and record["step"] == 3:
                break
    assert modes == [True] * len(modes), "every update is in train mode, also after an evaluation"
    assert not any(module.training for module in model.modules())


def test_the_loop_needs_no_ipython():
    code = "import sys; sys.modules['IPython'] = None; import coursekit.train.bar as bar; bar.Bar(total=1).end('done')"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_monitor_that_is_not_measured_is_named():
    model = linear()
    training = Training(model, squared, Shuffled(regression(), 8), adamw(model, 0.1), 5, patience=1,
                        evaluate=lambda m: {"accuracy": 1.0})  # fmt: skip
    with pytest.raises(ValueError, match="monitor='validation_loss': evaluate returned only accuracy"):
        training.fit()


@pytest.mark.parametrize("name", ["step", "loss", "lr", "grad_norm"])
def test_a_metric_does_not_take_the_place_of_the_trainings_own(name):
    model = linear()
    training = Training(model, squared, Shuffled(regression(), 8), adamw(model, 0.1), 5, evaluate=lambda m: {name: 99})
    with pytest.raises(ValueError, match=f"evaluate returned '{name}', .* call it 'validation_{name}', for example"):
        training.fit()


def test_autocast_computes_in_bfloat16_and_keeps_float32_weights(where):
    layer, x = nn.Linear(4, 4).to(where), torch.randn(2, 4, device=where)
    with autocast(where, "bfloat16"):
        assert layer(x).dtype == torch.bfloat16
    with autocast(where, "float32"):
        assert layer(x).dtype == torch.float32
    with autocast(where, "auto"):
        assert layer(x).dtype == (torch.bfloat16 if has_fast_bf16(where) else torch.float32)
    assert layer.weight.dtype == torch.float32
    with pytest.raises(ValueError, match="precision='half'"):
        autocast(where, "half")


@pytest.mark.parametrize(
    ("flags", "gain", "fast"),
    [
        ({"amx_bf16": True}, 0.5, True),
        ({"amx_bf16": False}, 2.0, False),
        ({"avx512_bf16": True}, 2.0, True),
        ({"avx512_bf16": True, "amx_bf16": False}, 1.1, False),
    ],
)
def test_a_cpu_has_fast_bfloat16_if_it_says_so_and_a_measurement_too(monkeypatch, flags, gain, fast):
    """What torch finds is a read-only mapping, which is true whatever stands in it."""
    found = MappingProxyType({"avx512_f": True} | flags)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: found, raising=False)
    monkeypatch.setitem(has_fast_bf16.__globals__, "gain_of_bf16", lambda: gain)
    assert has_fast_bf16(torch.device("cpu")) == fast


def test_the_gain_of_bfloat16_is_the_ratio_of_the_best_times(monkeypatch):
    """By a clock on which float32 takes 6 and then 3 seconds, bfloat16 4 and then 1; on one thread, drawing nothing."""
    times, threads, state = iter([0, 6, 6, 10, 10, 13, 13, 14]), torch.get_num_threads(), torch.get_rng_state()
    seen = set()

    def clock() -> int:
        seen.add(torch.get_num_threads())
        return next(times)

    monkeypatch.setattr("time.perf_counter", clock)
    assert gain_of_bf16.__wrapped__(4, rounds=2) == 3.0
    assert seen == {1}
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)


def test_seed_reaches_all_three_generators():
    import random

    import numpy as np

    def draw():
        return random.random(), np.random.rand(), torch.rand(1).item()  # noqa: NPY002

    seed(5)
    first = draw()
    seed(5)
    assert draw() == first
    seed(6)
    assert not set(draw()) & set(first)


def test_fresh_data_trains():
    model = linear()
    data = Fresh(lambda generator: regression(16, int(torch.randint(1000, (), generator=generator))))
    history = Training(model, squared, data, adamw(model, 0.3, weight_decay=0), 200).fit()
    assert history[-1]["loss"] < 0.01 * history[0]["loss"]


def test_weight_decay_has_a_schedule_and_what_is_called_after_updates_sees_them():
    """Beside a loop by hand: biases, which begin without a decay, never get one."""
    ours, theirs, seen = linear(), linear(), []
    schedule = warmup_cosine(0, floor=10.0)
    training = Training(ours, squared, Shuffled(regression(), 8), adamw(ours, 0.1, 0.02), 6, decay_schedule=schedule,
                        precision="float32", after_update=lambda m: seen.append(m.weight.detach().clone()))  # fmt: skip
    training.fit()
    data, optimizer = Shuffled(regression(), 8), adamw(theirs, 0.1, 0.02)
    for step in range(6):
        optimizer.param_groups[0]["weight_decay"] = 0.02 + 0.18 * 0.5 * (1 - math.cos(math.pi * step / 6))
        total, count = squared(theirs, next(data))
        optimizer.zero_grad()
        (total / count).backward()
        nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
        optimizer.step()
        torch.testing.assert_close(seen[step], theirs.weight, rtol=1e-5, atol=1e-6)
    assert len(seen) == 6
    assert training.optimizer.param_groups[1]["weight_decay"] == 0


def test_each_tensor_is_clipped_by_itself():
    """One with a large gradient takes nothing from the others; the norm that is noted is that of all, before."""
    model = linear()
    data, optimizer = Shuffled(regression(), 8), torch.optim.SGD(model.parameters(), 1.0)
    before = [p.detach().clone() for p in model.parameters()]
    total, count = squared(model, next(Shuffled(regression(), 8)))
    gradients = torch.autograd.grad(total / count, list(model.parameters()))
    clip = (gradients[0].norm().item() * gradients[1].norm().item()) ** 0.5
    history = Training(model, squared, data, optimizer, 1, clip=clip, clip_each=True, precision="float32").fit()
    for p, old, gradient in zip(model.parameters(), before, gradients):
        factor = min(1.0, clip / gradient.norm().item())
        torch.testing.assert_close(old - p, factor * gradient, rtol=1e-4, atol=1e-6)
    assert history[0]["grad_norm"] == pytest.approx(math.hypot(*(g.norm().item() for g in gradients)), rel=1e-5)


@pytest.mark.parametrize(
    "other",
    [{"clip_each": False}, {"decay_schedule": None}, {"decay_schedule": constant}],
    ids=["clips the sum", "decays as before", "another schedule"],
)
def test_a_run_with_another_way_of_clipping_or_decaying_is_another_run(tmp_path, other):
    def run(**changes):
        model = linear()
        options = {"clip_each": True, "decay_schedule": warmup_cosine(0, floor=2.0)} | changes
        return Training(model, squared, Shuffled(regression(), 8), adamw(model, 0.1), 4, folder=tmp_path, **options)

    run().fit()
    assert run().step == 4
    with pytest.raises(CheckpointError, match="belongs to a run with"):
        run(**other)
