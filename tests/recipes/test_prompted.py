"""Fine-tuning for prompts: what is learned and what is measured, and that a run goes on from what is done."""

import json
from copy import deepcopy
from functools import cache

import pytest
import torch
from torch import nn

from coursekit.data.prompts import PROMPTS, Prompted
from coursekit.models.gpt import GPT, GPTConfig
from coursekit.recipes import gpt, load_metrics, prompted
from coursekit.text.bpe import BPE, END
from coursekit.train.checkpoint import load_state
from tests.conftest import randomise


def test_what_was_taught_is_written_and_counted(monkeypatch):
    pairs = [Prompted(f"{a} and {b}<to-fr>", f"{b} et {a}") for a in "abcd" for b in "efgh"]
    tokenizer = BPE.train(["a and b et e f g h"], 265, [END, *PROMPTS])
    torch.manual_seed(0)
    model = GPT(GPTConfig(len(tokenizer), 32, 4, 64, 2, 32, dropout=0.0))
    assert prompted.share_exact(model.eval(), tokenizer, pairs, 12) == 0
    monkeypatch.setattr(prompted, "RATE", 5e-3)
    prompted.prompted_training(model, pairs, tokenizer, 800, precision="float32").fit()
    assert prompted.share_exact(model.eval(), tokenizer, pairs, 12) == 1
    wrong = [Prompted(prompt, target.upper()) for prompt, target in pairs[:4]] + pairs[4:]
    assert prompted.share_exact(model, tokenizer, wrong, 12) == 0.75


# --- the runs ------------------------------------------------------------------------------------------------

TESTED, STEPS, PAIRS = 3, 2, (4, 6)
TASKS = dict.fromkeys(map(cache, prompted.TASKS), 6)  # cached: held-out sentences take a second


@pytest.fixture(scope="module")
def shipped():
    """A small GPT and its tokenizer, for the ones that are shipped."""
    texts = [text for task in TASKS for pair in task(6) for text in pair]
    tokenizer = BPE.train(texts, 420, [END, *PROMPTS])
    return randomise(GPT(GPTConfig(len(tokenizer), 8, 2, 16, 2, 512, dropout=0.0))).eval(), tokenizer


@pytest.fixture
def tiny(monkeypatch, tmp_path, shipped):
    """Few pairs and steps. The model from scratch has a bias of -1 in its last norm, by which it is known."""

    def untrained(variant):
        model = deepcopy(shipped[0])
        nn.init.constant_(model.norm.bias, -1)
        return model

    monkeypatch.setattr(gpt, "load", lambda: (deepcopy(shipped[0]), shipped[1]))
    monkeypatch.setattr(gpt, "new_gpt", untrained)
    monkeypatch.setattr(prompted, "TASKS", TASKS)
    monkeypatch.setattr(prompted, "FOLDER", tmp_path / "out")
    monkeypatch.setattr(prompted, "METRICS", tmp_path / "out/metrics.json")
    sizes = {"BATCH": 2, "TASK_STEPS": 6, "EVERY": 2, "STEPS": STEPS, "PAIRS": PAIRS, "TESTED": TESTED}
    for name, value in sizes.items():
        monkeypatch.setattr(prompted, name, value)


@pytest.fixture
def trained(monkeypatch) -> list:
    """What is trained: the last norm's bias at first, the pairs, and the run."""
    seen, run = [], prompted.prompted_training

    def prompted_training(model, pairs, tokenizer, steps, **options):
        bias = model.norm.bias.tolist()
        seen.append((bias, list(pairs), run(model, pairs, tokenizer, steps, **options)))
        return seen[-1][-1]

    monkeypatch.setattr(prompted, "prompted_training", prompted_training)
    return seen


@pytest.fixture
def measured(monkeypatch) -> list:
    """What ``share_exact`` is asked for; it answers by the number of times."""
    seen = []

    def share_exact(model, tokenizer, pairs, max_new=60):
        assert not model.training
        seen.append(pairs)
        return len(seen) / 100

    monkeypatch.setattr(prompted, "share_exact", share_exact)
    return seen


def test_the_residual_stream_has_dropout_and_nothing_else(tiny):
    model, tokenizer = gpt.load()
    prompted.prompted_training(model, prompted.translations(4), tokenizer, 2)
    rates = {name: part.p for name, part in model.named_modules() if isinstance(part, nn.Dropout) and part.p}
    branches = [f"blocks.{i}.{part}_residual.dropout" for i in range(2) for part in ("attention", "feed_forward")]
    assert rates == dict.fromkeys(["dropout", *branches], prompted.DROPOUT)
    assert [block.attention.dropout for block in model.blocks] == [0.0, 0.0]


def test_tasks_are_watched_on_the_validation_split_and_measured_on_the_test_split(tiny, trained, measured, tmp_path):
    found = prompted.teach_tasks(tmp_path)
    ((_, learned, run),) = trained
    assert learned == [pair for task in TASKS for pair in task(6)]
    assert run.step == 6
    of = {split: [task(TESTED, split) for task in TASKS] for split in ("validation", "test")}
    assert measured == 3 * of["validation"] + 2 * of["test"]
    names = [task.__name__ for task in TASKS]
    assert found["pairs"] == dict.fromkeys(names, 6)
    assert [record["step"] for record in found["tasks"]] == [2, 4, 6]
    for i, record in enumerate([*found["tasks"], found["test in float32"], found["test"]]):
        assert {name: record[name] for name in names} == {name: (4 * i + j) / 100 for j, name in enumerate(names, 1)}
    best = json.loads((tmp_path / "best.json").read_text())
    assert best["step"] == 6, "the more are right, the better"
    taught, read = run.model, prompted.read(tmp_path / "rounded")
    for name, weight in taught.state_dict().items():
        steps = weight.abs().max() / 127 if weight.dim() > 1 else 1e-3 * weight.abs() + 1e-6  # scales are of rows
        assert ((read.state_dict()[name] - weight).abs() <= 0.51 * steps + 1e-7).all(), name


@pytest.mark.parametrize("beginning", prompted.BEGINNINGS)
def test_a_point_of_the_curve_is_measured_on_the_test_split(tiny, trained, measured, shipped, beginning):
    assert prompted.curve_point(beginning, 4) == 0.01
    ((bias, learned, run),) = trained
    assert bias == (shipped[0].norm.bias.tolist() if beginning == "pre-trained" else [-1] * 8)
    assert learned == prompted.translations(4)
    assert run.step == STEPS
    assert measured == [prompted.translations(TESTED, "test")]


def test_teaching_that_was_stopped_ends_like_one_that_was_not(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(prompted, "share_exact", lambda model, _, pairs: model.norm.bias.sum().item())
    torch.manual_seed(1)
    whole = prompted.teach_tasks(tmp_path / "whole")
    assert len({record["translations"] for record in whole["tasks"]}) == 3
    update, done = prompted.Training.update, []

    def until_three(self):
        if self.step == 3:
            raise KeyboardInterrupt
        return update(self)

    def noted(self):
        done.append(self.step)
        return update(self)

    torch.manual_seed(1)
    with monkeypatch.context() as stopped:
        stopped.setattr(prompted.Training, "update", until_three)
        with pytest.raises(KeyboardInterrupt):
            prompted.teach_tasks(tmp_path / "parts")
    torch.manual_seed(2)  # a process of its own draws others, if it is let
    monkeypatch.setattr(prompted.Training, "update", noted)
    assert prompted.teach_tasks(tmp_path / "parts") == whole
    assert done == [2, 3, 4, 5]  # the state was saved after two
    one, other = (load_state(tmp_path / folder / "last.ckpt")["model"] for folder in ("whole", "parts"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_what_is_done_is_not_computed_again(tiny, tmp_path, monkeypatch):
    """Stopped in each thing in turn, and started again: each is done once, and the file is as it would be."""
    begun, computed = set(), []
    order = ["tasks", *((beginning, n) for beginning in prompted.BEGINNINGS for n in PAIRS)]

    def compute(name):
        if name not in begun:
            begun.add(name)
            raise KeyboardInterrupt
        computed.append(name)
        return order.index(name) / 100

    def teach_tasks(folder):
        share = compute("tasks")
        prompted.write(gpt.load()[0], folder / "rounded")
        return {"test": {"translations": share}, "tasks": []}

    monkeypatch.setattr(prompted, "teach_tasks", teach_tasks)
    monkeypatch.setattr(prompted, "curve_point", lambda beginning, n: compute((beginning, n)))
    arguments = ["--state", str(tmp_path / "state")]
    for _ in order:
        with pytest.raises(KeyboardInterrupt):
            prompted.main(arguments)
        assert not prompted.METRICS.exists()
    prompted.main(arguments)
    assert computed == order
    found = json.loads(prompted.METRICS.read_text())
    assert found["test"] == {"translations": 0}
    assert found["translations"] == {
        beginning: {str(n): order.index((beginning, n)) / 100 for n in PAIRS} for beginning in prompted.BEGINNINGS
    }
    assert json.loads((tmp_path / "state/prompted/metrics.json").read_text()) == found
    prompted.main(arguments)
    assert computed == order
    model, _ = prompted.load()
    assert not model.training
    once, twice = (prompted.read(tmp_path / folder).state_dict() for folder in ("state/prompted/rounded", "out"))
    assert all(torch.allclose(once[name], twice[name], rtol=1e-6, atol=0) for name in once)


# --- what it shipped -----------------------------------------------------------------------------------------


def test_what_was_measured_of_prompts_is_what_the_recipe_does():
    found = load_metrics("prompted")
    assert found["pairs"] == {task.__name__: n for task, n in prompted.TASKS.items()}
    assert [record["step"] for record in found["tasks"]] == [
        *range(prompted.EVERY, prompted.TASK_STEPS + 1, prompted.EVERY)
    ]
    assert found["test"].keys() == found["pairs"].keys()
    assert (found["steps"], found["tested"]) == (prompted.STEPS, prompted.TESTED)
    for points in found["translations"].values():
        assert [int(n) for n in points] == list(prompted.PAIRS)
        assert all(
            share * prompted.TESTED == pytest.approx(round(share * prompted.TESTED)) for share in points.values()
        )
