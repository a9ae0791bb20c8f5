"""What pre-training is worth where labels are few: four tasks, one short training for all of them."""

from collections.abc import Callable
from statistics import fmean
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from coursekit.data import downstream
from coursekit.data.batches import Batch, Shuffled
from coursekit.models.bert import (
    Bert,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    best_span,
    classification_loss,
    span_loss,
    tagging_loss,
)
from coursekit.text.wordpiece import WordPiece
from coursekit.train import Training, adamw, seed, warmup_linear

LABELS, TESTED = 50, 500
STEPS, BATCH, RATE, WARMUP = 100, 16, 5e-4, 10


class Task(NamedTuple):
    make: Callable[..., Batch]  # (n, tokenizer, split, seed)
    head: Callable[[Bert], nn.Module]
    loss_fn: Callable[[Any, Batch], tuple[Tensor, Tensor]]
    score: Callable[[Any, Batch], float]  # the share of the samples, or of the words, that are right


def outputs(model: nn.Module, samples: Batch) -> Any:
    where = next(model.parameters()).device
    return model(*(samples[name].to(where) for name in ("ids", "mask", "segments")))


@torch.no_grad()
def score_labels(model: nn.Module, samples: Batch) -> float:
    """The share of texts or pairs with the right label."""
    return (outputs(model, samples).argmax(dim=1).cpu() == samples["labels"]).float().mean().item()


@torch.no_grad()
def score_spans(model: nn.Module, samples: Batch) -> float:
    """The share of answers of which both ends are right."""
    start, end = (logits.cpu() for logits in outputs(model, samples))
    true = torch.stack([samples["start"], samples["end"]], dim=1)
    return (best_span(start, end, samples["allowed"]) == true).all(dim=1).float().mean().item()


@torch.no_grad()
def score_tags(model: nn.Module, samples: Batch) -> float:
    """The share of nouns and names that are tagged rightly."""
    named = samples["tags"] > 0
    return (outputs(model, samples).argmax(dim=-1).cpu() == samples["tags"])[named].float().mean().item()


TASKS = {
    "does it make sense?": Task(
        downstream.plausible,
        lambda bert: BertForSequenceClassification(bert, downstream.PLAUSIBLE),
        classification_loss,
        score_labels,
    ),
    "is it answered?": Task(
        downstream.answered,
        lambda bert: BertForSequenceClassification(bert, downstream.ANSWERED),
        classification_loss,
        score_labels,
    ),
    "where is the answer?": Task(downstream.answers, BertForQuestionAnswering, span_loss, score_spans),
    "what kind of thing?": Task(
        downstream.entities,
        lambda bert: BertForTokenClassification(bert, downstream.TAGS),
        tagging_loss,
        score_tags,
    ),
}


def fine_tune(task: Task, bert: Bert, samples: Batch, run: int = 0) -> nn.Module:
    """``bert`` with a new layer for a task, all of it trained on the samples.

    Args:
        run: seed of the new layer, of dropout and of the order.
    """
    seed(run)
    model = task.head(bert).to(next(bert.parameters()).device)
    data, optimizer = Shuffled(samples, BATCH, run), adamw(model, RATE)
    for _ in Training(model, task.loss_fn, data, optimizer, STEPS, schedule=warmup_linear(WARMUP), precision="float32"):
        pass  # seconds: no progress to show
    return model.eval()


def few_labels(new_bert: Callable[[], Bert], tokenizer: WordPiece, runs: int = 5) -> dict[str, float]:
    """For each task the score on 500 test samples after fine-tuning on 50; the mean of runs with other samples too."""
    return {
        name: fmean(
            task.score(
                fine_tune(task, new_bert(), task.make(LABELS, tokenizer, "train", run), run),
                task.make(TESTED, tokenizer, "test"),
            )
            for run in range(runs)
        )
        for name, task in TASKS.items()
    }
