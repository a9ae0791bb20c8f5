"""The command line of all recipes, and one that two processes train."""

import contextlib
import importlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from coursekit.data.batches import Shuffled
from coursekit.recipes import CHECKPOINTS, recipes
from coursekit.recipes.runs import Clock, read_command, to_the_end
from coursekit.train import Training, adamw, bar, seed
from coursekit.train.checkpoint import load_state

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


@pytest.mark.parametrize("option", ["--out", "--state"])
def test_folders_that_cannot_be_written_are_refused_before_anything_is_forgotten(option, tmp_path, monkeypatch, capsys):
    """Catches a run of hours whose end cannot be written."""
    (tmp_path / "some").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "open").mkdir()
    state = [] if option == "--state" else ["--state", str(tmp_path)]

    def refused(folder) -> str:
        with pytest.raises(SystemExit) as ended:
            read_command("some", "about", [*state, option, str(folder), "--fresh"])
        assert ended.value.code == 2
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert (tmp_path / "some").exists()
        return err

    file = tmp_path / "file"
    assert refused(file) == f"{option} {file}: {file} is a file, and a folder is needed\n"
    assert refused(file / "below") == f"{option} {file / 'below'}: {file} is a file, and a folder is needed\n"
    for name, command in (("vit", "vit vit"), ("ladder", "ladder")):  # with weights, and with metrics alone
        assert f"holds what 'python -m coursekit.recipes.{command}' has written" in refused(CHECKPOINTS / name)
    given = read_command("some", "about", ["--state", str(tmp_path / "new/er"), "--out", str(tmp_path / "open")])
    assert given.out == tmp_path / "open"
    assert not (tmp_path / "new").exists(), "looking leaves nothing behind"
    assert not list((tmp_path / "open").iterdir())

    shut, usual = tmp_path / "open", tempfile.TemporaryFile

    def file_in(dir):
        if dir == shut:
            raise PermissionError(13, "Permission denied")
        return usual(dir=dir)

    monkeypatch.setattr(tempfile, "TemporaryFile", file_in)
    assert refused(shut) == f"{option} {shut}: nothing can be written there: Permission denied\n"


def small(folder: Path | None, interrupt: tuple[int, ...] = ()) -> Training:
    """A training of ten steps, in which Control-C is pressed while a step is computed, as often as it is named."""
    seed(0)
    model = nn.Sequential(nn.Linear(2, 4), nn.Dropout(0.5), nn.Linear(4, 1))

    def loss_fn(model, batch):
        for number in interrupt:
            if run.step + 1 == number:
                os.kill(os.getpid(), signal.SIGINT)
        return ((model(batch["x"]) - 1) ** 2).sum(), torch.tensor(len(batch["x"]))

    data = Shuffled({"x": torch.randn(12, 2, generator=torch.Generator().manual_seed(0))}, 4)
    options = {"log_every": 3, "save_every": 5, "folder": folder}
    run = Training(model, loss_fn, data, adamw(model, 0.1), 10, **options)
    return run


def test_control_c_saves_the_step_and_the_run_ends_like_one_that_was_not_stopped(tmp_path, capfd):
    to_the_end(whole := small(tmp_path / "whole"), "small")
    stopped = small(tmp_path / "parts", interrupt=(7,))
    clock = Clock(tmp_path / "seconds.json")
    with pytest.raises(KeyboardInterrupt) as told:
        to_the_end(stopped, "small", clock)
    assert str(told.value) == "stopped after step 7 of 10, which is saved; the same command goes on from there"
    assert load_state(tmp_path / "parts/last.ckpt")["step"] == 7
    assert Clock(tmp_path / "seconds.json").before > 0
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert "Control-C again stops at once" in capfd.readouterr().err
    again = small(tmp_path / "parts")
    assert again.step == 7
    to_the_end(again, "small")
    assert list(again.history) == list(whole.history)
    assert all(torch.equal(p, q) for p, q in zip(whole.model.parameters(), again.model.parameters(), strict=True))


def test_the_second_control_c_does_not_wait(tmp_path):
    with pytest.raises(KeyboardInterrupt) as told:
        to_the_end(small(tmp_path, interrupt=(7, 7)), "small")
    assert str(told.value) == ""
    assert load_state(tmp_path / "last.ckpt")["step"] == 5


def test_a_short_run_that_is_stopped_is_not_taken_for_one_that_is_done():
    """Catches half of a training that is measured as if it were the whole."""
    with pytest.raises(KeyboardInterrupt) as told:
        to_the_end(small(None, interrupt=(4,)), "base, seed 0")
    assert str(told.value).startswith("stopped after step 4 of 10 of base, seed 0, which begins again")


def test_progress_in_a_file_is_plain_lines(monkeypatch, capfd):
    monkeypatch.setattr(bar, "EVERY_S", 0)
    to_the_end(small(None), "small")
    out, err = capfd.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert len(lines) == 11
    assert re.fullmatch(r"small: step 7 of 10, 00:00 left, loss \d.*", lines[6])
    assert re.fullmatch(r"small: 10 steps in \d+ s, loss \d.*", lines[-1])
    assert not re.search(r"[^\n -~]", out), "nothing that moves a cursor"
    monkeypatch.setattr(bar, "EVERY_S", 30)
    to_the_end(small(None), "small")
    assert capfd.readouterr().out.count("\n") == 1, "now and then"


def test_progress_in_a_terminal_is_a_bar(monkeypatch):
    class AtOnce(bar.Bar):
        def __init__(self, **settings):
            super().__init__(**settings, mininterval=0)

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setattr(bar, "Bar", AtOnce)
    to_the_end(small(None), "small")
    drawn = terminal.getvalue()
    assert re.search(r"small: .*\| step \d+ of 10, \d\d:\d\d left, loss \d", drawn)
    assert "\r" in drawn


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
