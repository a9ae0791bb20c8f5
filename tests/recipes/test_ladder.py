"""The ladder from GPT to Llama: its two ends are the models of the course, all have one size, and all read the same."""

import json

import pytest
import torch

from coursekit.models.gpt import GPT, GPTConfig
from coursekit.models.llama import Llama, LlamaConfig
from coursekit.recipes import gpt, ladder
from coursekit.recipes.runs import Clock


@pytest.fixture
def ids():
    return torch.randint(gpt.VOCAB_SIZE, (2, 40), generator=torch.Generator().manual_seed(0))


def randomised(model):
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


def test_the_lowest_rung_is_lecture_06s_gpt(ids):
    rung = randomised(ladder.Rung(0))
    model = GPT(GPTConfig(gpt.VOCAB_SIZE, **gpt.SIZES)).eval()
    model.load_state_dict(rung.state_dict())
    assert torch.equal(rung(ids), model(ids))


@pytest.mark.parametrize(("n_kv_heads", "name"), [(2, "two KV heads"), (1, "one KV head")])
def test_the_highest_rungs_are_llamas(ids, n_kv_heads, name):
    rung = randomised(ladder.Rung(ladder.NAMES.index(name)))
    sizes = {name: gpt.SIZES[name] for name in ("d_model", "n_heads", "n_layers")} | {"n_kv_heads": n_kv_heads}
    config = LlamaConfig(gpt.VOCAB_SIZE, **sizes, d_ff=ladder.D_FF[name], max_length=ladder.LENGTH, tied=True)
    model = Llama(config).eval()
    model.load_state_dict(rung.state_dict())
    torch.testing.assert_close(rung(ids), model(ids))


def test_each_swap_changes_what_it_says_and_keeps_the_size():
    rungs = [ladder.Rung(height) for height in range(len(ladder.NAMES))]
    sizes = [sum(p.numel() for p in rung.parameters()) for rung in rungs]
    assert max(sizes) < 1.01 * min(sizes)
    names = [set(rung.state_dict()) for rung in rungs]
    assert any(name.endswith("up.bias") for name in names[0])
    assert not any(name.endswith("bias") for name in names[1])
    assert [type(rung.norm).__name__ for rung in rungs] == ["LayerNorm"] * 2 + ["RMSNorm"] * 5
    assert ["positions.encoding" in found for found in names] == [True] * 3 + [False] * 4
    assert ["blocks.0.feed_forward.gate.weight" in found for found in names] == [False] * 4 + [True] * 3
    assert [rung.blocks[0].attention.qkv.weight.shape[0] for rung in rungs] == [768] * 5 + [256 + 2 * 64, 256 + 64]
    assert [rung.blocks[0].feed_forward.activation for rung in rungs] == ["gelu_tanh"] * 4 + ["silu"] * 3


def test_weights_of_all_rungs_begin_alike():
    for height in range(len(ladder.SWAPS) + 1):
        block = ladder.Rung(height).blocks[1]
        assert block.attention.qkv.weight.std().item() == pytest.approx(0.02, rel=0.1)
        assert block.attention.out.weight.std().item() == pytest.approx(0.02 / 8**0.5, rel=0.1)
        assert block.feed_forward.down.weight.std().item() == pytest.approx(0.02 / 8**0.5, rel=0.1)


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    corpus = {"documentation": ["ab cd " * (i % 5 + 3) for i in range(20)], "stories": ["One day. " * 9] * 5}
    monkeypatch.setattr(gpt, "corpus", lambda variant, split="train": corpus)
    monkeypatch.setattr(ladder, "METRICS", tmp_path / "ladder/metrics.json")
    for name, value in {"LENGTH": 16, "STEPS": 3, "BATCH": 2, "WARMUP": 1, "SEEDS": range(2)}.items():
        monkeypatch.setattr(ladder, name, value)
    ladder.rows.cache_clear()
    yield
    ladder.rows.cache_clear()


def test_all_read_the_same_rows_once_and_are_measured(tiny, tmp_path, monkeypatch):
    read, loss = [], ladder.gpt_loss

    def gpt_loss(model, batch):
        read.append(batch["ids"])
        return loss(model, batch)

    monkeypatch.setattr(ladder, "gpt_loss", gpt_loss)
    found = [ladder.run(height, 0, tmp_path, Clock(tmp_path / "seconds.json")) for height in (0, 5)]
    assert torch.equal(torch.cat(read[:3]), torch.cat(read[3:]))
    assert sorted(torch.cat(read[:3]).tolist()) == sorted(ladder.rows().tolist())
    assert set(found[0]["bits per character"]) == {"documentation", "stories"}
    assert found[0]["bits per character"] != found[1]["bits per character"]


@pytest.fixture
def computed(monkeypatch):
    """What is trained: height, seed and factor of each run."""
    found = []
    monkeypatch.setattr(
        ladder, "run", lambda height, start, folder, clock, factor=1.0: found.append((height, start, factor))
    )
    return found


def test_every_rung_with_every_seed_and_the_ends_with_other_rates(tiny, tmp_path, computed):
    ladder.main(["--state", str(tmp_path / "state")])
    metrics = json.loads(ladder.METRICS.read_text())
    assert list(metrics["runs"]) == ["GPT", *ladder.SWAPS]
    assert computed[:12] == [(height, start, 1.0) for start in (0, 1) for height in range(6)]
    assert computed[12:] == [(height, 0, factor) for height in (0, 5) for factor in (0.5, 2.0)]
    assert metrics["tokens"] == 3 * 2 * 16


def test_one_kv_head_beside_two(tiny, tmp_path, computed):
    ladder.main(["ladder-further", "--state", str(tmp_path / "state")])
    metrics = json.loads((tmp_path / "ladder-further/metrics.json").read_text())
    assert list(metrics["runs"]) == ["two KV heads", "one KV head"]
    assert computed == [(5, 0, 1), (6, 0, 1), (5, 1, 1), (6, 1, 1), (5, 2, 1), (6, 2, 1)]
    assert "checks" not in metrics
    assert metrics["device"] in ("cpu", "cuda", "mps")
