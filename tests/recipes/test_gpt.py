"""GPT's recipe: its texts, that it can be stopped, and that what it shipped is what it says."""

import json
import sys
from functools import partial

import pytest
import torch
from safetensors.torch import load_file

from coursekit.convert.hub import read_model
from coursekit.data.prompts import PROMPTS
from coursekit.data.world import as_text, sentences, stories
from coursekit.recipes import gpt as recipe
from coursekit.recipes import load_metrics
from coursekit.recipes.runs import data_hash
from coursekit.text.bpe import END
from coursekit.train.checkpoint import load_state
from tests.conftest import IN_FULL
from tests.recipes.stopped import ends_like_one_that_was_not

# --- texts ---------------------------------------------------------------------------------------------------


@pytest.fixture
def fewer(monkeypatch):
    monkeypatch.setattr(recipe, "STORIES", 1000)
    monkeypatch.setattr(recipe, "FRENCH", 1500)
    recipe.corpus.cache_clear()
    yield
    recipe.corpus.cache_clear()


def test_no_text_is_in_two_splits_and_no_english_stands_beside_its_french(fewer):
    parts = {split: recipe.corpus("gpt-documentation", split) for split in ("train", "validation", "test")}
    for source in parts["train"]:
        texts = [set(parts[split][source]) for split in parts]
        assert not texts[0] & texts[1]
        assert not (texts[0] | texts[1]) & texts[2]
        assert all(texts)
    english = {as_text(s.en) for story in stories(recipe.STORIES) for s in story.sentences}
    french = set(parts["train"]["french"])
    known = [s for s in sentences(recipe.FRENCH, seed=2) if as_text(s.en) in english]
    assert len(known) < 0.1 * len(french)  # short ones that anybody would say


def test_a_file_and_its_documentation_are_in_one_split(fewer):
    trained = " ".join("\n".join(recipe.corpus("gpt-documentation")["code"]).split())
    held_out = [text for text in recipe.corpus("gpt-documentation", "test")["documentation"] if "\n" in text]
    paragraphs = [line for text in held_out for line in text.split("\n") if len(line) > 200]
    found = [line for line in paragraphs if " ".join(line.split())[:120] in trained]
    assert len(paragraphs) > 50
    assert len(found) <= 0.02 * len(paragraphs)


def test_the_documentation_is_read_more_often():
    texts = {"documentation": [[1, 2], [3]], "stories": [[4]]}
    assert recipe.in_one_pass(texts) == [[1, 2], [3]] * recipe.TIMES + [[4]]


def test_the_tokenizer_has_what_prompts_need_and_texts_do_not_have_it(monkeypatch):
    monkeypatch.setattr(recipe, "VOCAB_SIZE", 300)
    tokenizer = recipe.train_tokenizer({"code": ["x = 1\n" * 5], "stories": ["On Monday, Anna was here."] * 20})
    assert tokenizer.special_tokens == [END, *PROMPTS]
    assert len({tokenizer.ids[token] for token in PROMPTS}) == 4
    trained = recipe.corpus("gpt-documentation", "validation")
    assert not any(token in text for found in trained.values() for text in found for token in PROMPTS)


# --- the runs ------------------------------------------------------------------------------------------------


@pytest.fixture
def tiny(monkeypatch):
    texts = {
        "documentation": [f"the value {i} is returned by function number {i}" for i in range(40)],
        "stories": [f"On Monday, Anna was in room {i}." for i in range(40)],
    }
    monkeypatch.setattr(recipe, "corpus", lambda variant, split="train": texts)
    monkeypatch.setattr(recipe, "SIZES", {"d_model": 16, "n_heads": 2, "d_ff": 32, "n_layers": 1, "max_length": 16})
    monkeypatch.setattr(recipe, "STEPS", dict.fromkeys(recipe.STEPS, 6))
    for name, value in {"VOCAB_SIZE": 280, "BATCH": 4, "WARMUP": 2, "EVALUATE_EVERY": 2, "SAVE_EVERY": 3}.items():
        monkeypatch.setattr(recipe, name, value)


def test_a_run_that_was_stopped_ends_like_one_that_was_not(tiny, tmp_path, monkeypatch):
    whole, again = ends_like_one_that_was_not(
        partial(recipe.train, "gpt-documentation"), "gpt-documentation", tmp_path, monkeypatch
    )
    assert whole["test"] == again["test"]
    assert whole["tokens"] == 6 * 4 * 16
    assert json.loads((tmp_path / "out2/gpt-documentation/metrics.json").read_text())["test"] == whole["test"]


def test_the_lstm_sees_as_many_tokens_and_leaves_only_metrics(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(recipe, "BATCH", 256)  # 6 · 256 · 16 tokens are 24 batches of the LSTM's 32 · 32
    found = recipe.train("lstm-documentation", tmp_path / "state", tmp_path / "out")
    assert found["tokens"] == 6 * 256 * 16 == found["steps"] * 32 * 32
    assert [path.name for path in (tmp_path / "out/lstm-documentation").iterdir()] == ["metrics.json"]


def test_the_best_weights_are_kept_not_the_last(tiny, tmp_path, monkeypatch):
    bits = iter([3.0, 1.0, 2.0])
    measured = recipe.measure

    def measure(model, variant, split, tokenizer):
        if split == "test":
            return measured(model, variant, split, tokenizer)
        return {"documentation": {"bits per character": next(bits)}}

    monkeypatch.setattr(recipe, "measure", measure)
    assert recipe.train("gpt-documentation", tmp_path / "state", tmp_path / "out")["step of the best weights"] == 4
    kept = load_file(tmp_path / "state/best.safetensors")["positions.encoding"]
    assert not torch.equal(kept, load_state(tmp_path / "state/last.ckpt")["model"]["positions.encoding"])
    (shipped,) = (
        w for name, w in read_model(tmp_path / "out/gpt-documentation")[1].items() if name.endswith("wpe.weight")
    )
    assert torch.equal(shipped, kept.half())


# --- what it shipped -----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["gpt-documentation", pytest.param("gpt-code", marks=IN_FULL)])
def test_the_shipped_model_is_as_good_as_its_metrics_say(variant, fewer, monkeypatch):
    of_sources = recipe.corpus
    model, tokenizer = recipe.load(variant)
    metrics = load_metrics(variant)
    assert not model.training
    assert sum(p.numel() for p in model.parameters()) == metrics["parameters"]
    if not metrics["versions"]["python"].startswith("{}.{}.".format(*sys.version_info)):
        pytest.skip("another Python has other texts")
    source = variant.removeprefix("gpt-")  # its other sources would take minutes
    assert data_hash({source: recipe.corpus(variant)[source]})[source] == metrics["data"][source]
    language_model = recipe.as_language_model(model, tokenizer.ids[END])
    with monkeypatch.context() as patched:
        patched.setattr(recipe, "corpus", lambda _, split: {source: of_sources(variant, split)[source]})
        found = recipe.measure(language_model, variant, "validation", tokenizer)
    (best,) = (one for one in metrics["curve"] if one["step"] == metrics["step of the best weights"])
    assert found[source]["bits per character"] == pytest.approx(best["bits per character"], rel=2e-3)


def test_the_lstm_read_the_same_texts_and_as_many_tokens():
    ours, of_lstm = (load_metrics(f"{kind}-documentation") for kind in ("gpt", "lstm"))
    assert ours["data"] == of_lstm["data"]
    assert ours["tokens"] == of_lstm["tokens"]
    assert ours["test"].keys() == of_lstm["test"].keys() == {"documentation", "code", "stories", "french"}
