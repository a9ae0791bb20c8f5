"""Fine-tuning on few labels: the scores, and that all of the body is trained."""

import pytest
import torch
from torch import nn

from coursekit.data.world import as_text, sentences
from coursekit.models.bert import Bert, BertConfig
from coursekit.recipes import few_labels as module
from coursekit.recipes.few_labels import TASKS, few_labels, fine_tune
from coursekit.text.wordpiece import WordPiece


@pytest.fixture(scope="module")
def tokenizer():
    texts = [as_text(one.en) for one in sentences(300)] + ["Who? What? When? Where? Why did and how were the like."]
    return WordPiece.train(texts, 500)


def new_body(tokenizer):
    torch.manual_seed(1)
    return Bert(BertConfig(len(tokenizer), 16, 2, 32, 1, 64, dropout=0.0))


class Says(nn.Module):
    """Gives the outputs that it was made with, whatever goes in."""

    def __init__(self, outputs):
        super().__init__()
        self.outputs, self.anything = outputs, nn.Parameter(torch.zeros(()))

    def forward(self, ids, mask, segments):
        return self.outputs


@pytest.mark.parametrize("name", TASKS)
def test_scores_count_what_is_right(name, tokenizer):
    samples = TASKS[name].make(40, tokenizer, "test")
    if "tags" in samples:
        logits = nn.functional.one_hot(samples["tags"], 7).float()
        named = samples["tags"] > 0
        first = named.nonzero()[0].tolist()
        spoilt = logits.clone()
        spoilt[*first] = torch.arange(7.0).roll(int(samples["tags"][*first]))  # another tag is the largest
        spoilt[~named] = torch.arange(7.0)  # what is no noun does not count
        expected = 1 - 1 / int(named.sum())
    elif "start" in samples:
        T = samples["ids"].shape[1]
        logits = tuple(nn.functional.one_hot(samples[end], T).float() for end in ("start", "end"))
        spoilt = (logits[0], logits[1].clone())
        row = int((samples["end"] > samples["start"]).nonzero()[0])
        spoilt[1][row] = logits[0][row]  # right start, wrong end
        expected = 1 - 1 / 40
    else:
        logits = nn.functional.one_hot(samples["labels"], 2).float()
        spoilt = torch.cat([logits[:10].flip(1), logits[10:]])
        expected = 30 / 40
    assert TASKS[name].score(Says(logits), samples) == 1
    assert TASKS[name].score(Says(spoilt), samples) == pytest.approx(expected)


@pytest.mark.parametrize("name", TASKS)
def test_fine_tuning_learns_its_samples_and_moves_the_whole_body(name, tokenizer, monkeypatch):
    monkeypatch.setattr(module, "RATE", 1e-2)
    samples = TASKS[name].make(16, tokenizer, "train")
    before = new_body(tokenizer)
    model = fine_tune(TASKS[name], new_body(tokenizer), samples)
    assert not model.training
    assert TASKS[name].score(model, samples) >= 0.9
    after = dict(model.bert.named_parameters())
    still = [n for n, p in before.named_parameters() if n in after and torch.equal(p, after[n])]
    reads_cls = name in ("does it make sense?", "is it answered?")
    assert still == ([] if reads_cls else ["pooler.weight", "pooler.bias"])
    again = fine_tune(TASKS[name], new_body(tokenizer), samples)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), again.parameters()))
    other = fine_tune(TASKS[name], new_body(tokenizer), samples, run=1)
    assert not all(torch.equal(p, q) for p, q in zip(model.parameters(), other.parameters()))


def test_the_mean_is_over_runs_with_other_samples(tokenizer, monkeypatch):
    seen = []

    def remember(task, bert, samples, run=0):
        seen.append((task.make.__name__, run, samples["ids"].sum().item()))
        return float(run)

    monkeypatch.setattr(module, "fine_tune", remember)
    one = {"t": TASKS["does it make sense?"]._replace(score=lambda model, samples: model)}
    monkeypatch.setattr(module, "TASKS", one)
    assert few_labels(lambda: new_body(tokenizer), tokenizer, runs=3) == {"t": 1.0}
    assert [run for _, run, _ in seen] == [0, 1, 2]
    assert len({total for *_, total in seen}) == 3
