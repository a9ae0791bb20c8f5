"""The recipe of the story teller: its texts, that it can be stopped, and that what it shipped is what it says."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from coursekit.data.world.plots import tales
from coursekit.recipes import load_metrics
from coursekit.recipes import stories as recipe
from coursekit.text.bpe import END
from coursekit.train.checkpoint import load_state


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(recipe, "SIZES", {"d_model": 16, "n_heads": 2, "d_ff": 32, "n_layers": 1, "max_length": 32})
    monkeypatch.setattr(recipe, "HELD_OUT", {"validation": 4, "test": 6})
    monkeypatch.setattr(recipe, "TOLD", {"validation": 2, "test": 3})
    monkeypatch.setattr(recipe, "ORDERS", (2, 3))
    small = {"VOCAB_SIZE": 400, "FOR_TOKENIZER": 20, "BATCH": 4, "PASS": 5, "COUNTED": 1}
    often = {"STEPS": 6, "WARMUP": 2, "EVALUATE_EVERY": 2, "SAVE_EVERY": 3, "LOG_EVERY": 2}
    for name, value in (small | often).items():
        monkeypatch.setattr(recipe, name, value)
    recipe.held_out.cache_clear()
    yield
    recipe.held_out.cache_clear()


def test_a_run_that_was_stopped_ends_like_one_that_was_not(tiny, tmp_path, monkeypatch):
    whole = recipe.train(tmp_path / "whole", tmp_path / "out1")
    steps = recipe.Training.__iter__

    def until_four(self):
        for record in steps(self):
            yield record
            if self.step == 4:
                raise KeyboardInterrupt

    with monkeypatch.context() as stopped:
        stopped.setattr(recipe.Training, "__iter__", until_four)
        with pytest.raises(KeyboardInterrupt):
            recipe.train(tmp_path / "parts", tmp_path / "out2")
    assert not (tmp_path / "out2").exists()
    assert load_state(tmp_path / "parts/last.ckpt")["step"] == 3
    again = recipe.train(tmp_path / "parts", tmp_path / "out2")
    one, other = (load_file(tmp_path / out / "model.safetensors") for out in ("out1", "out2"))
    assert all(torch.equal(one[name], other[name]) for name in one | other)
    assert {tensor.dtype for tensor in one.values()} == {torch.int8, torch.float16, torch.float32}
    assert whole["test"] == again["test"]
    assert whole["tellers"] == again["tellers"]
    assert whole["tokens"] == 6 * 4 * 32
    assert json.loads((tmp_path / "out2/metrics.json").read_text())["test"] == whole["test"]


def test_what_is_written_can_be_loaded_and_tells_stories(tiny, tmp_path, monkeypatch):
    metrics = recipe.train(tmp_path / "state", tmp_path / "out")
    monkeypatch.setattr(recipe, "FOLDER", tmp_path / "out")
    model, tokenizer = recipe.load()
    assert not model.training
    assert json.loads((tmp_path / "out/metrics.json").read_text()) == json.loads(json.dumps(metrics))
    assert recipe.measure(model, "test", tokenizer) == metrics["test"]
    told = recipe.tell(model, tokenizer, 3, "Anna was a baker in Rome.")
    assert all(text.startswith("Anna was a baker in Rome.") for text in told)
    assert len(set(told)) == 3
    assert told == recipe.tell(model, tokenizer, 3, "Anna was a baker in Rome.")
    assert len({*recipe.tell(model, tokenizer, 2, temperature=0)}) == 1


def test_each_pass_has_stories_of_its_own_and_none_that_is_held_out(tiny):
    passes = recipe.read_first(3)
    assert len(set(passes)) == 15
    assert not set(passes) & {*recipe.held_out("validation"), *recipe.held_out("test")}
    tokenizer = recipe.train_tokenizer()
    rows = recipe.told_anew(tokenizer, torch.Generator().manual_seed(1))["ids"]
    assert rows.shape[1] == 33
    end = tokenizer.ids[END]
    stream = [end, *(i for text in passes[5:10] for i in (*tokenizer.encode(text), end))]
    assert rows[:, :-1].flatten().tolist() == stream[: rows[:, :-1].numel()]


def test_the_rival_is_the_best_order_and_writes_as_it_counted(tiny):
    tokenizer = recipe.train_tokenizer()
    text = "Anna was a baker in Rome."
    rival = recipe.counting_rival(tokenizer, [tale.text for tale in tales(30)])
    assert rival.n in recipe.ORDERS
    sure = recipe.KneserNey(3, len(tokenizer), end_id=tokenizer.ids[END]).fit([tokenizer.encode(text)] * 1000)
    told = recipe.tell_by_counts(sure, tokenizer, 20)
    assert told.count(text) > 15
    assert all(len(tokenizer.encode(one)) <= 32 for one in recipe.tell_by_counts(rival, tokenizer, 3))


def test_real_stories_beat_their_sentences_shuffled(tiny, monkeypatch):
    monkeypatch.setattr(recipe, "TOLD", {"test": 6})
    tokenizer = recipe.train_tokenizer()
    found = recipe.compare(recipe.new_model().eval(), tokenizer)
    assert found["real stories"]["stories consistent"] == 1.0
    assert found["real sentences, shuffled"]["sentences understood"] == 1.0
    assert found["real sentences, shuffled"]["stories consistent"] < 0.5
    assert found["model"]["stories consistent"] == 0.0  # untrained
    plain = {teller for teller in found if "plain" in teller}
    assert len(plain) == 2
    assert found["real plain stories"]["stories consistent"] == 1.0
    assert all(("stories known" in shares) == (teller not in plain) for teller, shares in found.items())


# --- what it shipped -----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(not recipe.FOLDER.exists(), reason="the model has not been trained yet")
def test_the_shipped_model_is_as_good_as_its_metrics_say():
    model, tokenizer = recipe.load()
    metrics = load_metrics("stories")
    assert sum(p.numel() for p in model.parameters()) == metrics["parameters"]
    assert sum(path.stat().st_size for path in recipe.FOLDER.iterdir()) <= 8_000_000
    assert recipe.data_hash({split: recipe.held_out(split) for split in recipe.HELD_OUT}) == metrics["data"]
    test, whole = metrics["test"], metrics["test in float32"]
    assert test["perplexity"] == pytest.approx(whole["perplexity"], rel=0.01)
    ids = [tokenizer.encode(text) for text in recipe.held_out("test")[:60]]
    found = recipe.perplexity(recipe.SlidingWindow(model, tokenizer.ids[END]), ids)
    assert found.perplexity == pytest.approx(test["perplexity"], rel=0.05)
    consistent = recipe.judged(recipe.tell(model, tokenizer, 40))["stories consistent"]
    spread = 3 * np.sqrt(max(0.02, test["stories consistent"] * (1 - test["stories consistent"])) / 40)
    assert consistent == pytest.approx(test["stories consistent"], abs=spread)
