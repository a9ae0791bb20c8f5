"""The command line of all recipes, and one that two processes train."""

import contextlib
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from coursekit.recipes import recipes
from coursekit.recipes.runs import Clock, read_command

ROOT = Path(__file__).parents[2]


def test_there_are_recipes_and_each_has_its_line():
    assert {"bert", "dino", "gpt", "prompted", "sit", "table3", "vit"} <= recipes().keys()
    assert not {"runs", "unlabelled", "few_labels"} & recipes().keys()
    assert all(line.endswith(".") for line in recipes().values())


@pytest.mark.parametrize("recipe", recipes())
def test_every_recipe_has_the_same_command_line(recipe, capsys):
    module = importlib.import_module(f"coursekit.recipes.{recipe}")
    with pytest.raises(SystemExit) as ended:
        module.main(["--help"])
    assert ended.value.code == 0
    usage = capsys.readouterr().out
    assert usage.startswith(f"usage: python -m coursekit.recipes.{recipe} ")
    assert all(name in usage for name in ("--state", "--out", "--fresh", *getattr(module, "VARIANTS", ())))


def test_a_command_line_is_read(tmp_path):
    found = read_command("some", "about", [], ["one", "two"])
    assert found == ("one", Path("build/recipes/one"), None, False)
    arguments = ["two", "--state", str(tmp_path), "--out", "here"]
    assert read_command("some", "about", arguments, ["one", "two"], "a-{}".format) == (
        "two", tmp_path / "a-two", Path("here"), False
    )  # fmt: skip
    assert read_command("some", "about", ["--variant", "two"], ["one", "two"]).variant == "two"
    assert read_command("some", "about", []).folder == Path("build/recipes/some")
    with pytest.raises(SystemExit):
        read_command("some", "about", ["three"], ["one", "two"])


def test_in_colab_a_run_is_kept_in_drive(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("coursekit.train.checkpoint.DRIVE", tmp_path)
    assert read_command("some", "about", []).folder == tmp_path / "attention-course" / "recipes" / "some"
    assert str(tmp_path) in capsys.readouterr().out
    assert read_command("some", "about", ["--state", "here"]).folder == Path("here/some")
    assert capsys.readouterr().out == ""


def test_a_fresh_start_forgets_this_run_alone(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    arguments = ["one", "--state", str(tmp_path)]
    read_command("some", "about", arguments, ["one", "two"])
    assert (tmp_path / "one").exists()
    assert read_command("some", "about", [*arguments, "--fresh"], ["one", "two"]).fresh
    assert [path.name for path in tmp_path.iterdir()] == ["two"]


@pytest.mark.parametrize(("rank", "says"), [("0", "two is trained by one process.*: it is short"), ("1", "1")])
def test_what_several_processes_cannot_share_is_refused_once(rank, says, monkeypatch):
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", rank)
    before = sys.stdout
    for variant in ("one", "two"):
        ends = contextlib.nullcontext() if variant == "one" else pytest.raises(SystemExit, match=says)
        with ends:
            read_command("some", "about", [variant], ["one", "two"], alone={"two": "it is short"})
        if rank == "1":
            assert sys.stdout.name == os.devnull, "only the first prints"
            sys.stdout.close()
        else:
            assert sys.stdout is before


def test_the_clock_is_the_first_ones(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in "10":
        assert not (tmp_path / "seconds.json").exists()
        monkeypatch.setenv("RANK", rank)
        Clock(tmp_path / "seconds.json").save()
    assert (tmp_path / "seconds.json").exists()


@pytest.mark.slow
def test_two_processes_train_what_one_trains(tmp_path):
    """By torchrun and ``coursekit train``; the texts are made once, and the second ends where the work is done."""
    script = str(Path(__file__).with_name("shared_recipe.py"))
    printed = []
    for name, launcher in {
        "one": [],
        "two": ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"],
    }.items():
        folders = ["--state", str(tmp_path / name), "--out", str(tmp_path / f"out-{name}")]
        done = subprocess.run(
            [sys.executable, *launcher, script, "train", "gpt", "gpt-code", *folders],
            capture_output=True, text=True, check=False, timeout=180,
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout)
        assert not list(tmp_path.rglob("*.tmp"))
    assert [text.count('"variant"') for text in printed] == [1, 1]
    metrics = [json.loads((tmp_path / f"out-{name}/gpt-code/metrics.json").read_text()) for name in ("one", "two")]
    for a, b in zip(*(found["curve"] for found in metrics)):
        assert a == pytest.approx(b, rel=1e-3)
    weights = [load_file(tmp_path / f"out-{name}/gpt-code/model.safetensors") for name in ("one", "two")]
    for name, tensor in weights[0].items():
        if name.endswith("c_attn.bias"):  # softmax does not see the keys' bias: Adam makes steps of its rounding errors
            tensor[16:32] = weights[1][name][16:32]
        torch.testing.assert_close(tensor, weights[1][name], rtol=1e-2, atol=1e-3)
