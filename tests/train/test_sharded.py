"""A model in parts on two processes: the curve and the files of one that is whole."""

import json

import pytest
import torch
from safetensors import safe_open
from torch import nn

from coursekit.data.batches import Shuffled
from coursekit.train import EMA, Training, adamw, load_weights
from coursekit.train.checkpoint import load_state
from coursekit.train.distributed import DistributedError
from coursekit.train.sharded import ShardedTraining
from tests.train import sharded_run
from tests.train.test_distributed import alike, finished, said, torchrun


@pytest.fixture(scope="module")
def one(tmp_path_factory) -> Training:
    """The run of one process, whole."""
    run = sharded_run.training(tmp_path_factory.mktemp("one"))
    run.fit()
    return run


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """The folder of the run of two."""
    folder = tmp_path_factory.mktemp("two")
    done = torchrun(folder, script=sharded_run)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    return folder


def assert_close(found: dict, expected: dict) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_the_curve_is_that_of_a_whole_model(one, two):
    first, second = finished(two)
    assert alike(first["history"], one.history)
    assert first["history"] == second["history"]
    each = sharded_run.training(None, clip_each=True)
    each.steps = 2
    assert alike(first["each"], each.fit())


@pytest.mark.slow
def test_each_process_holds_its_part_only(two):
    first, second = (found["held"] for found in finished(two))
    whole, learned = first["whole"], first["learned"]
    assert 0 < learned < whole, "there are parameters that no loss reaches"
    for name, count in (("parameters", whole), ("gradients", learned), ("moments", learned)):
        assert first[name] + second[name] == count
        assert first[name] < 0.55 * count, "a few axes cannot be halved"


@pytest.mark.slow
def test_the_files_are_those_of_a_whole_model(one, two):
    assert {path.name for path in two.iterdir()} == {"0.json", "1.json", "last.ckpt", "best.json", "best.safetensors"}
    found, expected = (load_state(folder / "last.ckpt") for folder in (two, one.folder))
    assert found.keys() == expected.keys()
    assert found["settings"] == expected["settings"]
    assert_close(found["model"], expected["model"])
    weights = found["model"]
    assert weights["out.weight"].data_ptr() == weights["embedding.weight"].data_ptr(), "tied ones are stored once"
    found, expected = found["optimizer"], expected["optimizer"]
    assert found["param_groups"] == expected["param_groups"]
    assert found["state"].keys() == expected["state"].keys()
    for number, values in expected["state"].items():
        assert_close(found["state"][number], values)


@pytest.mark.slow
def test_the_best_weights_are_whole(one, two):
    ours, theirs = (json.loads((folder / "best.json").read_text()) for folder in (two, one.folder))
    assert ours["step"] == theirs["step"]
    models = sharded_run.Model(), sharded_run.Model()
    names = []
    for folder, model in zip((two, one.folder), models):
        load_weights(folder / "best.safetensors", model)
        with safe_open(folder / "best.safetensors", framework="pt") as file:
            names.append((set(file.keys()), file.metadata()))
    assert names[0] == names[1]
    assert_close(models[0].state_dict(), models[1].state_dict())


@pytest.mark.slow
def test_a_run_goes_on_from_whole_to_parts_and_back(one, tmp_path):
    """From one process to two, of which one is lost, to one again."""
    begun = sharded_run.training(tmp_path)
    for record in begun:
        if record["step"] == 4:
            break
    assert load_state(tmp_path / "last.ckpt")["step"] == 3
    done = torchrun(tmp_path, "--killed-at", 8, script=sharded_run)
    assert done.returncode != 0
    assert done.stdout.count("Resumed after 3 of 12 steps") == 1
    assert said(done)
    assert load_state(tmp_path / "last.ckpt")["step"] == 6
    again = sharded_run.training(tmp_path)
    assert type(again) is Training
    assert again.step == 6
    assert alike(again.fit(), one.history)
    assert_close(again.model.state_dict(), one.model.state_dict())


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize(("precision", "rel"), [("float32", 1e-3), ("bfloat16", 0.05)])
def test_two_gpus_give_the_curve_of_one_process(one, tmp_path, precision, rel):
    done = torchrun(tmp_path, "--precision", precision, script=sharded_run, ON_GPU="1")
    assert done.returncode == 0, done.stderr
    assert alike(finished(tmp_path)[0]["history"], one.history, rel=rel)


# --- without other processes ---------------------------------------------------------------------------------


def sharded(model: nn.Module, **options) -> ShardedTraining:
    data = Shuffled({"x": torch.ones(6, 2)}, 3)
    return ShardedTraining(model, None, data, adamw(model, 0.1), 2, **{"blocks": model.children()} | options)


def test_one_process_is_told_that_it_needs_others():
    with pytest.raises(DistributedError, match="one process has no other to share a model with: use torchrun, or a"):
        sharded(nn.Sequential(nn.Linear(2, 2)))


def test_what_would_go_wrong_is_refused_before_the_model_is_touched(monkeypatch):
    for name, value in {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    with pytest.raises(DistributedError, match="an EMA keeps a whole model in each process"):
        sharded(model, ema=EMA(model, 0.9))
    with pytest.raises(DistributedError, match="1 is a BatchNorm1d, whose statistics are of a whole batch"):
        sharded(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    model[0].weight = model[1].weight
    for blocks in (model, model[:1]):
        with pytest.raises(DistributedError, match="a parameter lies in two blocks, or in one and outside of it too"):
            sharded(model, blocks=blocks)
    assert not [p for p in model.parameters() if type(p) is not nn.Parameter]
