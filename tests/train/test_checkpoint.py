import os

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from coursekit.data.batches import Shuffled
from coursekit.train import (
    EMA,
    CheckpointError,
    Training,
    adamw,
    load_weights,
    runs_folder,
    save_weights,
    warmup_cosine,
)  # fmt: skip
from coursekit.train.checkpoint import load_state, save_json, save_state


class Tied(nn.Module):
    def __init__(self, size: int = 6):
        super().__init__()
        self.embedding = nn.Embedding(size, 4)
        self.out = nn.Linear(4, size, bias=False)
        self.out.weight = self.embedding.weight


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("state") / "last.ckpt"
    save_state(path, {"step": 3, "x": torch.arange(50.0), "nested": {"list": [1, "two", None]}})
    return path


@pytest.mark.parametrize(
    ("there", "folder", "says"),
    [
        ("content/drive/MyDrive", "content/drive/MyDrive/attention-course", ", which outlives this runtime"),
        ("content", "build", "; mount Google Drive before, and they outlive this runtime"),
        ("", "build", ""),
    ],
)
def test_runs_lie_in_drive_where_it_is_mounted(there, folder, says, tmp_path, monkeypatch, capsys):
    (tmp_path / there).mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("coursekit.train.checkpoint.DRIVE", tmp_path / "content" / "drive" / "MyDrive")
    assert runs_folder().resolve() == tmp_path / folder
    assert capsys.readouterr().out == f"Checkpoints: in a folder of {tmp_path / folder}{says}\n"


def test_a_training_goes_on_in_the_next_runtime(tmp_path, monkeypatch, capsys):
    """The machine is gone, the Drive is mounted again: the same lines go on from the last state."""
    monkeypatch.setattr("coursekit.train.checkpoint.DRIVE", tmp_path)

    def train(steps_until_lost: int | None = None) -> Training:
        torch.manual_seed(0)
        model = nn.Linear(3, 1)
        data = Shuffled({"x": torch.arange(24.0).reshape(8, 3)}, 4)

        def loss(model, batch):
            return model(batch["x"]).square().sum(), torch.tensor(len(batch["x"]))

        folder = runs_folder() / "mine"
        training = Training(model, loss, data, adamw(model, 0.01), 6, log_every=1, save_every=2, folder=folder)
        for record in training:
            if record["step"] == steps_until_lost:
                break
        return training

    train(steps_until_lost=5)
    assert train().step == 6
    assert f"Resumed after 4 of 6 steps from {tmp_path / 'attention-course' / 'mine'}" in capsys.readouterr().out


def test_a_state_comes_back(saved):
    state = load_state(saved)
    assert state["step"] == 3
    assert state["nested"] == {"list": [1, "two", None]}
    assert torch.equal(state["x"], torch.arange(50.0))


@given(data=st.data())
def test_any_truncation_and_any_flipped_bit_is_noticed(saved, data):
    content = saved.read_bytes()
    place = data.draw(st.integers(0, len(content) - 1))
    broken = saved.with_name("broken.ckpt")
    broken.write_bytes(content[:place])
    with pytest.raises(CheckpointError):
        load_state(broken)
    flipped = bytearray(content)
    flipped[place] ^= 1 << data.draw(st.integers(0, 7))
    broken.write_bytes(bytes(flipped))
    with pytest.raises(CheckpointError):
        load_state(broken)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 some other archive", b"{}"])
def test_a_foreign_file_is_refused_by_name(tmp_path, content):
    path = tmp_path / "last.ckpt"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"last\.ckpt is not a training state"):
        load_state(path)


@pytest.mark.parametrize(
    ("save", "old", "new"),
    [
        (save_json, {"loss": 1}, {"loss": 2}),
        (save_json, {"loss": 1}, {"loss": object()}),
        (save_state, {"step": 1}, {"step": 2}),
        (save_weights, nn.Linear(2, 2), nn.Linear(2, 2)),
    ],
)
def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path, monkeypatch, save, old, new):
    path = tmp_path / "file"
    save(path, old)
    before = path.read_bytes()
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(RuntimeError("disk full")))
    with pytest.raises((RuntimeError, TypeError)):
        save(path, new)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["file"]


def test_weights_come_back_and_tied_ones_are_stored_once(tmp_path):
    model = Tied()
    save_weights(tmp_path / "w.safetensors", model)
    assert (tmp_path / "w.safetensors").stat().st_size < 2 * model.out.weight.nbytes + 150
    other = Tied()
    load_weights(tmp_path / "w.safetensors", other)
    assert torch.equal(other.embedding.weight, model.embedding.weight)
    assert other.out.weight is other.embedding.weight


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (nn.Embedding(6, 4), "lacks 'weight'"),
        (Tied(7), "has another shape for 'embedding.weight'|has another shape for 'out.weight'"),
        (nn.ModuleDict({"out": nn.Linear(4, 6)}), "lacks 'out.bias'"),
    ],
)
def test_weights_of_another_model_are_refused_and_nothing_is_loaded(tmp_path, model, says):
    save_weights(tmp_path / "w.safetensors", Tied())
    before = {k: v.clone() for k, v in model.state_dict().items()}
    with pytest.raises(CheckpointError, match=says):
        load_weights(tmp_path / "w.safetensors", model)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


def test_damaged_weights_are_refused(tmp_path):
    path = tmp_path / "w.safetensors"
    save_weights(path, Tied())
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(CheckpointError, match="cannot be read as safetensors"):
        load_weights(path, Tied())
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_weights(tmp_path / "missing.safetensors", Tied())


def train(folder, model=None, lr=0.1, steps=4, x=2, seed=0, decay=0.01, **settings):
    model = model or nn.Linear(x, x)
    data = Shuffled({"x": torch.ones(4, x)}, 2, seed=seed)
    training = Training(
        model,
        lambda m, b: (m(b["x"]).square().sum(), torch.tensor(2)),
        data,
        adamw(model, lr, decay),
        steps,
        folder=folder,
        **{"precision": "float32"} | settings,
    )
    return training


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"lr": 0.2}, "other optimizer's settings"),
        ({"decay": 0.1}, "other optimizer's settings"),
        ({"seed": 1}, "other data: the state is of data with seed=0, these have 1"),
        ({"schedule": warmup_cosine(2)}, "other schedule|schedule .* now"),
        ({"clip": 0.5}, "clip 1.0, now 0.5"),
        ({"accumulate": 2}, "accumulate 1, now 2"),
        ({"precision": "bfloat16"}, "precision 'float32', now 'bfloat16'"),
        ({"log_every": 2}, "log_every 10, now 2"),
        ({"ema": 0.9}, "ema decay None, now 0.9"),
        ({"steps": 5}, "steps 4, now 5"),
        ({"x": 3}, "parameters .*now"),
        ({"model": nn.Sequential(nn.Linear(2, 2))}, "model 'Linear', now 'Sequential'"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused_and_nothing_is_loaded(tmp_path, change, says):
    train(tmp_path).fit()
    model = change.get("model") or nn.Linear(change.get("x", 2), change.get("x", 2))
    before = {k: v.clone() for k, v in model.state_dict().items()}
    if "ema" in change:
        change = {"ema": EMA(model, change["ema"])}
    with pytest.raises(CheckpointError, match=says):
        train(tmp_path, **{"model": model} | change)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


def test_a_state_that_is_no_training_is_refused(tmp_path):
    save_state(tmp_path / "last.ckpt", {"model": 1})
    with pytest.raises(CheckpointError, match="not the state of a Training"):
        train(tmp_path)
