"""The scaling recipe: what a width is trained on, the law and its interval, and that it goes on from what is done."""

import json

import numpy as np
import pytest
import torch

from coursekit.recipes import scaling
from coursekit.recipes.runs import Clock


def test_the_law_finds_its_own_numbers_and_predicts_what_follows_it():
    n = np.array([1e4, 3e4, 1e5, 3e5, 1e6])
    losses = scaling.law(n, 1.5, 2.0, 0.3)
    found = scaling.predicted(n, losses + 1e-9 * np.array([1, -1, 1, -1, 1]), 3e6)
    assert found["law"] == pytest.approx([1.5, 2.0, 0.3], rel=1e-4)
    assert found["loss"] == pytest.approx(1.5 + 2.0 * 30**-0.3, rel=1e-5)
    assert found["high"] - found["low"] < 1e-5


def test_the_interval_covers_as_often_as_it_says():
    """Noise about a known law: the sixth point lies inside in about 95 of 100 draws."""
    n, rng = np.array([1e4, 3e4, 1e5, 3e5, 1e6, 3e6]), np.random.default_rng(0)
    inside = []
    for _ in range(300):
        losses = scaling.law(n, 1.5, 2.0, 0.3) + 0.01 * rng.standard_normal(6)
        found = scaling.predicted(n[:5], losses[:5], n[5])
        inside.append(found["low"] <= losses[5] <= found["high"])
    assert 0.9 <= np.mean(inside) <= 0.99


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    texts = {split: [f"{split} {i} {'ab cd ef ' * (i % 7 + 3)}" for i in range(60)] for split in scaling.ROWS}
    monkeypatch.setattr(scaling, "files", texts.__getitem__)
    monkeypatch.setattr(scaling, "METRICS", tmp_path / "out/metrics.json")
    sizes = {"VOCAB_SIZE": 280, "LENGTH": 8, "N_LAYERS": 1, "WIDTHS": (8, 16), "PREDICTED": 24, "BATCH": 2}
    sizes |= {"STEPS": 4, "EVERY": 2, "WARMUP": 1, "ROWS": {"train": 8, "validation": 4, "test": 6}}
    for name, value in sizes.items():
        monkeypatch.setattr(scaling, name, value)
    scaling.rows.cache_clear()
    yield
    scaling.rows.cache_clear()


def test_a_width_reads_every_row_once_and_is_measured_on_the_others(tiny, tmp_path, monkeypatch):
    read, loss = [], scaling.gpt_loss

    def gpt_loss(model, batch):
        if model.training:
            read.append(batch["ids"])
        return loss(model, batch)

    monkeypatch.setattr(scaling, "gpt_loss", gpt_loss)
    tmp_path.joinpath("state").mkdir()
    found = scaling.run(16, tmp_path / "state", Clock(tmp_path / "seconds.json"))
    tokenizer = scaling.read_tokenizer(tmp_path / "state")
    rows = scaling.rows("train", tokenizer)
    assert sorted(torch.cat(read).tolist()) == sorted(rows.tolist())
    assert found["n"] == 12 * 16**2 + 280 * 16
    assert list(found["curve"]) == ["2", "4"]
    assert found["rate"] == pytest.approx(0.006)
    assert all(2 < loss < 7 for loss in (found["test"], *found["curve"].values()))


def test_what_is_done_is_not_computed_again(tiny, tmp_path, monkeypatch):
    computed = []

    def run(width, folder, clock, factor=1.0):
        if len(computed) == 3 and (width, factor) not in computed:
            computed.append((width, factor))
            raise KeyboardInterrupt
        computed.append((width, factor))
        return {"n": width, "test": 1 / width}

    monkeypatch.setattr(scaling, "run", run)
    arguments = ["--state", str(tmp_path / "state")]
    with pytest.raises(KeyboardInterrupt):
        scaling.main(arguments)
    scaling.main(arguments)
    first, *others = [(8, 1.0), (16, 1.0), (24, 1.0), (8, 0.5), (8, 2.0), (16, 0.5), (16, 2.0)]
    assert computed[:3] == [first, *others[:2]]
    assert computed[4:] == others[2:]
    metrics = json.loads(scaling.METRICS.read_text())
    assert metrics["runs"] == {str(width): {"n": width, "test": 1 / width} for width in (8, 16, 24)}
    assert metrics["checks"]["16"]["2.0"]["n"] == 16
    assert metrics["tokens"] == 4 * 2 * 8
    assert json.loads((tmp_path / "state/scaling/metrics.json").read_text())["runs"] == metrics["runs"]


def test_several_processes_are_refused_before_anything_is_trained(monkeypatch):
    """Each of them would measure and write at the end."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(SystemExit, match="is trained by one process, so start it without torchrun"):
        scaling.main([])
