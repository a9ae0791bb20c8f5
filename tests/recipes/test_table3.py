"""The saved results belong to the recipe as it stands."""

import dataclasses
import hashlib
import json
import math

import pytest
import torch
from torch.nn import functional as F

from coursekit.data.translation import as_batch, to_ids, world_vocab
from coursekit.data.world import sentences
from coursekit.models.transformer import Transformer, TransformerConfig
from coursekit.recipes import table3
from coursekit.train import Training


@pytest.fixture(scope="module")
def vocab():
    return world_vocab()


@pytest.fixture(scope="module")
def vocab_size(vocab) -> int:
    return len(vocab)


def test_every_row_has_every_seed():
    results = table3.load()
    assert list(results) == list(table3.ROWS)
    assert {len(entries) for entries in results.values()} == {len(table3.SEEDS)}
    for entries in results.values():
        assert len({entry["perplexity"] for entry in entries}) == len(entries), "seeds differ"
        assert all(math.isfinite(entry["perplexity"]) and 0 <= entry["bleu"] <= 100 for entry in entries)


def test_the_results_are_of_these_sentences():
    saved, _ = table3.read()
    if saved is None:
        pytest.skip("table3.json was saved before it held the hash of its sentences")
    assert saved == table3.data_hash(), "the world has changed: python -m coursekit.recipes.table3 measures anew"


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
    monkeypatch.setattr(table3, "SENTENCES", 30)
    monkeypatch.setattr(table3, "world_vocab", lambda: None)
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


@pytest.fixture
def small(tmp_path, monkeypatch):
    """One row, two seeds, few sentences; what is measured is the number of the call."""
    monkeypatch.setattr(table3, "RESULTS", tmp_path / "table3.json")
    monkeypatch.setattr(table3, "ROWS", {"base": {}})
    monkeypatch.setattr(table3, "SEEDS", (0, 1))
    monkeypatch.setattr(table3, "world_vocab", lambda: None)
    monkeypatch.setattr(table3, "SENTENCES", 30)
    monkeypatch.setattr(table3, "HELD_OUT", 20)
    calls = []
    monkeypatch.setattr(table3, "measure", lambda *_: calls.append(0) or {"perplexity": len(calls), "bleu": 0.0})
    return table3.RESULTS


def perplexities() -> list[float]:
    return [entry["perplexity"] for entry in table3.load()["base"]]


def test_the_hash_stands_beside_the_results_and_is_no_row(small):
    table3.main()
    words = [[[s.en, s.fr] for s in found] for found in (sentences(30), sentences(20, "validation"))]
    expected = hashlib.sha256(json.dumps(words).encode()).hexdigest()
    assert json.loads(small.read_text())["data"] == table3.read()[0] == expected
    assert list(table3.load()) == ["base"]


@pytest.mark.parametrize("name", ["SENTENCES", "HELD_OUT"])
def test_results_of_other_sentences_are_measured_anew(name, small, monkeypatch, capsys):
    table3.main()
    table3.main()
    assert perplexities() == [1, 2], "of the same sentences they are kept"
    assert "anew" not in capsys.readouterr().out
    monkeypatch.setattr(table3, name, 19)
    table3.main()
    said = "table3.json was measured on other sentences than those of the world today: every row is trained anew"
    assert said in capsys.readouterr().out
    assert perplexities() == [3, 4]


def test_one_word_of_another_translation_is_another_hash(small, monkeypatch):
    before = table3.data_hash()
    for split in (0, 1):
        for field in ("en", "fr"):
            changed = [list(found) for found in table3.splits()]
            words = getattr(changed[split][7], field)
            changed[split][7] = dataclasses.replace(changed[split][7], **{field: (*words[:-1], "!")})
            with monkeypatch.context() as patch:
                patch.setattr(table3, "splits", lambda changed=changed: changed)
                assert table3.data_hash() != before
    assert table3.data_hash() == before


def test_results_of_unknown_sentences_are_read_but_not_continued(small, capsys):
    small.write_text(json.dumps({"base": [{"perplexity": 50.0, "bleu": 1.0}]}))
    assert table3.read() == (None, {"base": [{"perplexity": 50.0, "bleu": 1.0}]})
    assert perplexities() == [50.0]
    table3.main()
    assert "measured on unknown sentences: every row is trained anew" in capsys.readouterr().out
    assert perplexities() == [1, 2]


@pytest.mark.parametrize(
    ("row", "smoothing"), [("dropout 0.2", 0.1), ("smoothing 0.2", 0.2), ("norm first", 0.1), ("d_key 2", 0.1)]
)
def test_a_row_is_trained_with_its_change_and_measured_on_validation_sentences(row, smoothing, vocab, monkeypatch):
    monkeypatch.setattr(table3, "UPDATES", 2)
    monkeypatch.setattr(table3, "SENTENCES", 40)
    monkeypatch.setattr(table3, "HELD_OUT", 20)
    seen = []

    class Spy(Training):
        def __init__(self, model, loss, data, *rest, **options):
            seen.append((model, loss, data))
            super().__init__(model, loss, data, *rest, **options)

    held_out = to_ids(sentences(20, "validation"), vocab)
    batch = as_batch(held_out)
    translations = {tuple(source): target for source, target in held_out}

    def perfect(model, source, mask):
        """Knows the validation sentences alone by heart."""
        assert not model.training
        return torch.nn.utils.rnn.pad_sequence(
            [torch.tensor(translations[tuple(ids[real].tolist())]) for ids, real in zip(source, mask)], batch_first=True
        )

    monkeypatch.setattr(table3, "Training", Spy)
    monkeypatch.setattr(table3, "greedy", perfect)
    found = table3.measure(row, 1, vocab)
    ((model, loss, data),) = seen
    assert found["bleu"] == pytest.approx(100)
    changes = {name: value for name, value in table3.ROWS[row].items() if name != "smoothing"}
    assert model.config == TransformerConfig(vocab_size=len(vocab), **{**table3.BASE, **changes})
    assert data.pairs == to_ids(sentences(40), vocab)
    model.eval()
    with torch.no_grad():
        logits = model(batch["source"], batch["source_mask"], batch["target"])[batch["target_mask"]]
        target = batch["target"][batch["target_mask"]]
        total, count = loss(model, batch)
    assert found["perplexity"] == pytest.approx(F.cross_entropy(logits, target).exp().item(), rel=1e-5)
    expected = F.cross_entropy(logits, target, label_smoothing=smoothing)
    assert (total / count).item() == pytest.approx(expected.item(), rel=1e-5)
    assert found["parameters"] == sum(p.numel() for p in Transformer(model.config).parameters())
