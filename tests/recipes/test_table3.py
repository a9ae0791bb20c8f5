"""The saved results belong to the recipe as it stands."""

import math

import pytest
import torch

from coursekit.data.translation import world_vocab
from coursekit.models.transformer import Transformer, TransformerConfig
from coursekit.recipes import table3


@pytest.fixture(scope="module")
def vocab_size() -> int:
    return len(world_vocab())


def test_every_row_has_every_seed():
    results = table3.load()
    assert list(results) == list(table3.ROWS)
    assert {len(entries) for entries in results.values()} == {len(table3.SEEDS)}
    for entries in results.values():
        assert len({entry["perplexity"] for entry in entries}) == len(entries), "seeds differ"
        assert all(math.isfinite(entry["perplexity"]) and 0 <= entry["bleu"] <= 100 for entry in entries)


@pytest.mark.parametrize("row", table3.ROWS)
def test_the_results_are_of_these_models(row, vocab_size):
    changes = {name: value for name, value in table3.ROWS[row].items() if name != "smoothing"}
    with torch.device("meta"):
        model = Transformer(TransformerConfig(vocab_size=vocab_size, **table3.BASE | changes))
    parameters = sum(p.numel() for p in model.parameters())
    assert {entry["parameters"] for entry in table3.load()[row]} == {parameters}


def test_a_stopped_recipe_goes_on_where_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr(table3, "RESULTS", tmp_path / "table3.json")
    monkeypatch.setattr(table3, "ROWS", {"base": {}, "1 layer": {"n_layers": 1}})
    monkeypatch.setattr(table3, "SEEDS", (0, 1))
    calls = []

    def measure(row, number, vocab):
        if len(calls) == 3:
            raise KeyboardInterrupt
        calls.append((row, number))
        return {"perplexity": len(calls), "bleu": 0.0}

    monkeypatch.setattr(table3, "measure", measure)
    with pytest.raises(KeyboardInterrupt):
        table3.main()
    assert {row: len(entries) for row, entries in table3.load().items()} == {"base": 2, "1 layer": 1}
    monkeypatch.setattr(table3, "measure", lambda row, number, vocab: {"perplexity": 99.0, "bleu": 1.0})
    table3.main()
    assert [entry["perplexity"] for entry in table3.load()["1 layer"]] == [2, 99.0]
    assert [entry["perplexity"] for entry in table3.load()["base"]] == [1, 3]
