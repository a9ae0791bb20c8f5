"""Two processes are one run: the same curve, one folder, one end."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from coursekit.data.batches import Shuffled
from coursekit.train import Training, adamw, device, distributed
from coursekit.train.checkpoint import load_state
from coursekit.train.distributed import DistributedError
from tests.train import shared_run
from tests.train.states import same

ROOT = Path(__file__).parents[2]


def torchrun(*arguments, script=shared_run, **environment) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return subprocess.run(
        [*command, script.__file__, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)} | environment,
    )


def said(done: subprocess.CompletedProcess) -> list[str]:
    """What the two processes said of their end, in torchrun's long report; one may hear of it twice."""
    return [line for line in done.stderr.splitlines() if " of 2 ends because " in line]


def finished(folder: Path) -> list[dict]:
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in (0, 1)]


def alike(history, expected, rel: float = 1e-5) -> bool:
    names = [record.keys() for record in history] == [record.keys() for record in expected]
    pairs = [(a[name], b[name]) for a, b in zip(history, expected) for name in b]
    return names and all(math.isclose(a, b, rel_tol=rel, abs_tol=rel) for a, b in pairs)


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """The run of one process."""
    run = shared_run.training(tmp_path_factory.mktemp("one"))
    run.fit()
    return run


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """The folder of the run of two."""
    folder = tmp_path_factory.mktemp("two")
    done = torchrun(folder)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    return folder


def test_two_processes_give_the_curve_of_one(one, two):
    first, second = finished(two)
    assert alike(first["history"], one.history)
    assert first["history"] == second["history"]
    assert first["weights"] == second["weights"], "they would drift apart"
    for name, tensor in one.model.state_dict().items():
        torch.testing.assert_close(torch.tensor(first["weights"][name]), tensor.flatten(), rtol=1e-4, atol=1e-5)


def test_their_random_numbers_differ_but_for_those_of_the_first(one, two):
    first, second = finished(two)
    assert first["random"] == load_state(one.folder / "last.ckpt")["torch"].tolist()
    assert first["random"] != second["random"]


def test_the_first_alone_evaluates_and_writes(one, two):
    """That no other evaluates is asserted in ``shared_run``."""
    assert {path.name for path in two.iterdir()} == {"0.json", "1.json", "last.ckpt", "best.json", "best.safetensors"}
    ours, theirs = (json.loads((folder / "best.json").read_text()) for folder in (two, one.folder))
    assert ours["step"] == theirs["step"] == 8
    average, expected = (load_state(folder / "last.ckpt")["ema"] for folder in (two, one.folder))
    for name in expected:
        torch.testing.assert_close(average[name], expected[name], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_one_that_is_killed_ends_both_and_both_go_on_to_the_same_bits(two, tmp_path):
    done = torchrun(tmp_path, "--stop-at", 8, "killed")
    assert done.returncode != 0
    assert said(done)
    assert all(line.endswith("the same command goes on from the last checkpoint") for line in said(done))
    assert load_state(tmp_path / "last.ckpt")["step"] == 6
    again = torchrun(tmp_path)
    assert again.returncode == 0, again.stderr
    assert again.stdout.count("Resumed after 6 of 12 steps") == 1
    assert finished(tmp_path) == finished(two)
    assert same(load_state(tmp_path / "last.ckpt"), load_state(two / "last.ckpt"))


@pytest.mark.slow
def test_one_that_hangs_ends_both_and_the_run_goes_on_with_any_number(one, tmp_path):
    """From one process to two, of which one stops answering, to one again."""
    begun = shared_run.training(tmp_path)
    for record in begun:
        if record["step"] == 4:
            break
    assert load_state(tmp_path / "last.ckpt")["step"] == 3
    done = torchrun(tmp_path, "--stop-at", 8, "asleep", "--timeout", 8)
    assert done.returncode != 0
    assert any(line.startswith("process 0 of 2 ends because another one has ended") for line in said(done))
    assert load_state(tmp_path / "last.ckpt")["step"] == 6
    again = shared_run.training(tmp_path)
    assert again.step == 6
    assert alike(again.fit(), one.history)


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_two_gpus_give_the_curve_of_one_process(one, tmp_path):
    done = torchrun(tmp_path, ON_GPU="1")
    assert done.returncode == 0, done.stderr
    assert alike(finished(tmp_path)[0]["history"], one.history, rel=1e-3)


# --- without other processes ---------------------------------------------------------------------------------


@pytest.fixture
def second_of_three(monkeypatch):
    for name, value in {"WORLD_SIZE": "3", "RANK": "1", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)


def test_each_takes_its_rows_and_together_they_take_all(monkeypatch):
    batch = {"x": torch.arange(14).view(7, 2), "y": torch.arange(7)}
    monkeypatch.setenv("WORLD_SIZE", "3")
    rows = []
    for rank in range(3):
        monkeypatch.setenv("RANK", str(rank))
        part = distributed.share(batch)
        assert torch.equal(part["x"], batch["x"][part["y"]])
        rows += part["y"].tolist()
    assert sorted(rows) == list(range(7))


@pytest.mark.parametrize(
    ("batch", "says"),
    [
        ({"x": torch.ones(2, 5)}, "a batch of 2 rows cannot be shared by 3 processes: start fewer"),
        ({"x": torch.ones(4), "y": torch.ones(6)}, "a batch of 4 or 6 rows"),
        ({"x": torch.ones(4), "y": torch.ones(())}, "a batch of 0 or 4 rows"),
    ],
)
def test_a_batch_that_cannot_be_shared_is_refused(second_of_three, batch, says):
    with pytest.raises(DistributedError, match=says):
        distributed.share(batch)


def test_what_needs_whole_batches_is_refused(second_of_three):
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    with pytest.raises(DistributedError, match="1 is a BatchNorm1d, whose statistics are of a whole batch"):
        distributed.together(model, None)
    data = Shuffled({"x": torch.ones(6, 2)}, 3)
    with pytest.raises(DistributedError, match="after_update would see one part of 3 of each batch"):
        Training(model, None, data, adamw(model, 0.1), 2, after_update=print)


def test_each_has_a_gpu_of_its_own_or_says_how_many_there_are(second_of_three, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert device() == torch.device("cuda", 1)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(DistributedError, match="process 1 of this machine has no GPU: torchrun --nproc-per-node 1"):
        device()


def test_what_is_not_a_lost_connection_stays_as_it_is(second_of_three):
    with pytest.raises(RuntimeError, match="out of memory") as found, distributed.noticing_losses():
        raise RuntimeError("out of memory")
    assert not isinstance(found.value, DistributedError)


def test_alone_a_process_is_one_like_any_other(second_of_three):
    with distributed.alone():
        assert (distributed.world_size(), distributed.rank()) == (1, 0)
        distributed.leave_to_first()
    assert (distributed.world_size(), distributed.rank()) == (3, 1)
