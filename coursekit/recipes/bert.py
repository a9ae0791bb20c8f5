"""A small BERT, pre-trained on the world's stories, on planted associations and on the Python documentation.

``python -m coursekit.recipes.bert`` trains it, measures it on texts that it has not read, and writes it to
``checkpoints/bert`` beside this file: float16 weights in Hugging Face's layout, the tokenizer, and ``metrics.json``. It
can be stopped and started again at will. ``--variant`` names one of the models that it is compared with, of which the
metrics alone are kept.
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from functools import cache, partial
from itertools import chain, pairwise
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import Tensor, nn

from coursekit.convert.bert import from_hugging_face, to_hugging_face
from coursekit.convert.hub import write_model
from coursekit.data import pydocs
from coursekit.data.batches import Batch
from coursekit.data.pretraining import Redrawn, mask_tokens, sentence_pairs, special_ids
from coursekit.data.world import question, questions, sentences
from coursekit.data.world.associations import associations, blanks, log_odds
from coursekit.data.world.grammar import as_text
from coursekit.data.world.lexicon import NOUNS, PEOPLE
from coursekit.data.world.stories import Story, stories
from coursekit.models.bert import Bert, BertConfig, BertForPreTraining, pretraining_loss
from coursekit.recipes import CHECKPOINTS
from coursekit.recipes.few_labels import few_labels
from coursekit.recipes.runs import Clock, read_command, report, texts_once, to_the_end, versions
from coursekit.text.tokenizer_json import load_tokenizer, save_tokenizer
from coursekit.text.wordpiece import MASK, WordPiece
from coursekit.train import Training, adamw, device, distributed, seed, warmup_linear
from coursekit.train.checkpoint import save_json

VARIANTS = {
    "bert": "as published",
    "without-associations": "what is said of regions, names and years goes with all of them alike",
    "always-mask": "a chosen word is always [MASK], never another word or itself",
}
SIZES = {"d_model": 128, "n_heads": 4, "d_ff": 512, "n_layers": 4, "max_length": 64}
SMALL = SIZES | {"d_model": 64, "n_heads": 2, "d_ff": 256, "n_layers": 2}  # for comparison, in the lecture
DOCUMENTS = {"stories": 20_000, "stories as told": 2500, "questions": 10_000, "associations": 6400}
HELD_OUT = 1000  # of each for validation and for testing
VOCAB_SIZE = 2500
STEPS, BATCH, RATE, WARMUP, EVALUATE_EVERY, SAVE_EVERY = 16_000, 32, 1e-3, 600, 1000, 250
SPREAD = 0.06  # of matrices at first
COMPARED = {  # pairs of givens whose planted log-odds are looked for in the model
    "region": (("Texas", "New York"), ("Maine", "Oregon")),
    "name": (("Jane", "Jim"), ("Kate", "Ben")),
    "year": (("1908 he", "1908 she"), ("2018 he", "2018 she"), ("1908 he", "2018 he"), ("1908 she", "2018 she")),
}
Document = list[str]  # its sentences


# --- texts ---------------------------------------------------------------------------------------------------


def retold(story: Story) -> list[tuple[str, ...]]:
    """The sentences of a story, each naming whom or what it speaks of first, where it was told with a pronoun.

    *Later, she cleaned it.* becomes *Later, Anna cleaned it.*: one sentence alone says who it was.
    """
    nouns, pronouns = {noun.en: noun for noun in NOUNS}, {place for place, _ in story.pronouns}
    speaks_of = {span[0]: label for label, spans in story.mentions.items() for span in spans}
    found, start = [], 0
    for sentence in story.sentences:
        words = list(sentence.en)
        first = min((place for place in speaks_of if start <= place < start + len(words)), default=None)
        if first in pronouns:
            label, plural = speaks_of[first], words[first - start] == "they"
            words[first - start : first - start + 1] = (
                [label] if label in PEOPLE else ["the", nouns[label].english(plural)]
            )
        found.append(tuple(words))
        start += len(sentence.en)
    return found


def is_tied(sentences: Iterable[Sequence[str]]) -> bool:
    """Whether each sentence names somebody or something that the one before it names."""
    known = {word: noun.en for noun in NOUNS for word in (noun.english(False), noun.english(True))}
    known |= {name: name for name in PEOPLE}
    named = [{known[word] for word in sentence if word in known} for sentence in sentences]
    return all(one & other for one, other in pairwise(named))


@cache
def tied_stories(n: int, split: str) -> tuple[tuple[str, ...], ...]:
    """``n`` stories of a split, retold and tied.

    In others the second half often fits the first half of a stranger (*Then she bought a lamp.*), so that nobody can
    say in more than about nine cases of ten whether it follows.
    """
    found: dict[tuple[str, ...], None] = {}
    number = 0
    while len(found) < n:
        for story in stories(2 * n + 100, split, number):
            sentences = retold(story)
            if is_tied(sentences):
                found.setdefault(tuple(as_text(sentence) for sentence in sentences))
        number += 1
    return tuple(found)[:n]


@cache
def told_stories(n: int, split: str) -> tuple[tuple[str, ...], ...]:
    """``n`` stories of a split as they were told."""
    return tuple(tuple(as_text(sentence.en) for sentence in story.sentences) for story in stories(n, split))


@cache
def asked(n: int, split: str) -> tuple[tuple[str, str], ...]:
    """``n`` questions of a split, each with the sentence that answers it: nowhere else does the model meet *who?*"""
    rng = Random(f"asked {split}")
    found = [one for one in sentences(n + n // 4 + 100, split, seed=1) if questions(one)][:n]
    return tuple((as_text(question(one, rng).tokens), as_text(one.en)) for one in found)


def corpus(split: str = "train", planted: bool = True) -> dict[str, list[Document]]:
    """The documents of a split by their source, each a list of sentences or, of the documentation, paragraphs.

    Args:
        planted: see ``associations``.
    """
    n = {name: size if split == "train" else HELD_OUT for name, size in DOCUMENTS.items()}
    return {
        "stories": [list(story) for story in tied_stories(n["stories"], split)],
        "stories as told": [list(story) for story in told_stories(n["stories as told"], split)],
        "questions": [list(pair) for pair in asked(n["questions"], split)],
        "associations": [
            [one.text for one in text] for text in associations(n["associations"], split, planted=planted)
        ],
        "documentation": [document.text.split("\n") for document in pydocs.documents(split)],
    }


def train_tokenizer(texts: dict[str, list[Document]]) -> WordPiece:
    """A tokenizer of all sources; the world's words are so few and so frequent that each becomes one token."""
    return WordPiece.train(chain.from_iterable(chain.from_iterable(texts.values())), VOCAB_SIZE)


Encoded = dict[str, list[list[list[int]]]]  # source -> documents -> sentences -> ids


def encode(texts: dict[str, list[Document]], tokenizer: WordPiece) -> Encoded:
    """The same as ids, without ``[CLS]`` and ``[SEP]``."""
    return {
        source: [[tokenizer.encode(sentence)[1:-1] for sentence in document] for document in found]
        for source, found in texts.items()
    }


# --- batches -------------------------------------------------------------------------------------------------


def draw_pairs(texts: Encoded, tokenizer: WordPiece, generator: torch.Generator, always_mask: bool = False) -> Batch:
    """One pass over all sources in pairs, with words masked. A stranger's B is from the same source as A.

    Args:
        always_mask: put ``[MASK]`` for every chosen word.
    """
    parts = [sentence_pairs(found, tokenizer, SIZES["max_length"], generator) for found in texts.values()]
    samples = mask_tokens(joined(parts), tokenizer, generator)
    if always_mask:
        (hidden,) = special_ids(tokenizer, MASK)
        samples["ids"] = samples["target"].masked_fill(samples["masked"], hidden)
    return samples


def joined(parts: Sequence[Batch]) -> Batch:
    """Batches one after another, padded to the longest."""
    longest = max(part["ids"].shape[1] for part in parts)

    def longer(rows: Tensor) -> Tensor:
        return nn.functional.pad(rows, (0, longest - rows.shape[1])) if rows.dim() > 1 else rows  # [PAD] is 0

    return {name: torch.cat([longer(part[name]) for part in parts]) for name in parts[0]}


def trimmed(batch: Batch) -> Batch:
    """Without the columns that are padding in every row."""
    length = int(batch["mask"].sum(dim=1).max())
    return {name: rows[:, :length] if rows.dim() > 1 else rows for name, rows in batch.items()}


def by_length(batch: Batch, parts: int) -> list[Batch]:
    """A batch in parts of like length, each trimmed: two thirds of the time, since a story has half of 64 tokens."""
    order = batch["mask"].sum(dim=1).argsort(stable=True)
    return [trimmed({name: rows[some] for name, rows in batch.items()}) for some in order.chunk(parts)]


def loss_in_parts(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    """``pretraining_loss`` of a batch, computed in two parts of like length."""
    losses, counts = zip(*(pretraining_loss(model, part) for part in by_length(batch, 2)))
    return sum(losses), sum(counts)


# --- measures ------------------------------------------------------------------------------------------------


@torch.no_grad()
def measure(model: BertForPreTraining, samples: Batch) -> dict[str, float]:
    """Of fixed samples: shares of masked words and of next sentences that are right, and nats of a masked word."""
    right = words = follows = 0
    nats = 0.0
    for part in by_length(samples, -(-len(samples["ids"]) // 100)):
        part = {name: rows.to(next(model.parameters()).device) for name, rows in part.items()}
        logits, label = model(part["ids"], part["mask"], part["segments"], part["masked"])
        target = part["target"][part["masked"]]
        right += (logits.argmax(dim=1) == target).sum().item()
        nats += nn.functional.cross_entropy(logits.float(), target, reduction="sum").item()
        words += len(target)
        follows += (label.argmax(dim=1) == part["labels"]).sum().item()
    return {
        "masked words": right / words,
        "next sentence": follows / len(samples["ids"]),
        "nats of a masked word": nats / words,
    }


@torch.no_grad()
def log_likelihoods(model: BertForPreTraining, tokenizer: WordPiece, text: str) -> Tensor:
    """``ln p`` of every token in place of the one ``[MASK]`` of a text, (V,), in nats."""
    ids = torch.tensor([tokenizer.encode(text)], device=next(model.parameters()).device)
    (hidden,) = special_ids(tokenizer, MASK)
    logits = model(ids, where=ids == hidden)[0]
    if len(logits) != 1:
        raise ValueError(f"{text!r} has {len(logits)} of {MASK}: it needs one")
    return logits[0].float().log_softmax(dim=0).cpu()


def recovered(
    model: BertForPreTraining, tokenizer: WordPiece, kind: str, given: str, other: str, split: str = "test"
) -> dict[str, float]:
    """What the model makes of ``log_odds(kind, given, other)``: for each choice ``ln p(choice | given) - ln p(choice |
    other)`` in the sentence of a split, in nats."""

    def mean(name: str) -> Tensor:
        asked = blanks(kind, name, MASK, split)
        return torch.stack([log_likelihoods(model, tokenizer, text) for text in asked]).mean(dim=0)

    choices = log_odds(kind, given, other)
    if missing := [choice for choice in choices if choice not in tokenizer.ids]:
        raise ValueError(f"{missing[0]!r} is not one token: train the tokenizer on more associations")
    difference = mean(given) - mean(other)
    return {choice: difference[tokenizer.ids[choice]].item() for choice in choices}


def compare(model: BertForPreTraining, tokenizer: WordPiece, split: str = "test") -> dict[str, dict[str, float]]:
    """For each kind Pearson's correlation of recovered with planted log-odds, and the slope of the former on the
    latter (1 where the model says just what was planted)."""
    found = {}
    for kind, pairs in COMPARED.items():
        planted = torch.tensor([value for pair in pairs for value in log_odds(kind, *pair).values()])
        own = [value for pair in pairs for value in recovered(model, tokenizer, kind, *pair, split).values()]
        both = torch.stack([planted, torch.tensor(own)])
        covariance = both.cov()
        found[kind] = {
            "correlation": both.corrcoef()[0, 1].item(),
            "slope": (covariance[0, 1] / covariance[0, 0]).item(),
        }
    return found


# --- the run -------------------------------------------------------------------------------------------------


def new_model(vocab_size: int, dropout: float = 0.0, sizes: Mapping[str, int] = SIZES) -> BertForPreTraining:
    """The untrained model: matrices with a deviation of 0.06, which fits 128 units as 0.02 fits 768 and more.

    With 0.02 attention starts so even that next sentences take much longer to learn.
    """
    seed(0)
    model = BertForPreTraining(Bert(BertConfig(vocab_size, **sizes, dropout=dropout)))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2 and not name.startswith(("bert.tokens", "bert.positions", "bert.segments")):
                parameter *= SPREAD / 0.02
    return model


def held_out(split: str, tokenizer: WordPiece) -> dict[str, Batch]:
    """Pairs with masked words from each source of a split, always the same."""
    return {
        source: draw_pairs({source: found}, tokenizer, torch.Generator().manual_seed(0))
        for source, found in encode(corpus(split), tokenizer).items()
    }


def train(variant: str, folder: Path, checkpoints: Path = CHECKPOINTS) -> dict[str, Any]:
    """Train a variant, or go on with it where ``folder`` says, and write its checkpoint; returns the metrics."""
    texts, tokenizer, hashes = texts_once(
        folder, partial(corpus, planted=variant != "without-associations"), train_tokenizer, encode
    )
    data = Redrawn(lambda generator: draw_pairs(texts, tokenizer, generator, variant == "always-mask"), BATCH)
    model = new_model(len(tokenizer)).to(device())
    validation, clock = held_out("validation", tokenizer), Clock(folder / "seconds.json")

    def evaluate(model: BertForPreTraining) -> dict[str, float]:
        found = {
            f"{source}: {name}": value
            for source, samples in validation.items()
            for name, value in measure(model, samples).items()
        }
        correlations = compare(model, tokenizer, "validation")
        return found | {f"{kind}: correlation": one["correlation"] for kind, one in correlations.items()}

    training = Training(
        model,
        loss_in_parts,
        data,
        adamw(model, RATE),
        STEPS,
        **{"precision": "float32"},  # with so small matrices bfloat16 is slower, AMX or not
        **{"schedule": warmup_linear(WARMUP), "folder": folder, "save_every": SAVE_EVERY, "log_every": 100},
        **{"evaluate": evaluate, "evaluate_every": EVALUATE_EVERY},
        **{"monitor": "stories: next sentence", "higher_is_better": True},
    )
    to_the_end(training, variant, clock)
    distributed.leave_to_first()
    return finish(variant, model.cpu(), tokenizer, training.history, hashes, clock.seconds(), checkpoints / variant)


def finish(
    variant: str,
    model: BertForPreTraining,
    tokenizer: WordPiece,
    history: Sequence[dict[str, float]],
    hashes: dict[str, str],
    seconds: float,
    folder: Path,
) -> dict[str, Any]:
    """Round the weights to float16, measure the model on the test split, and write it with its metrics."""
    config, weights = to_hugging_face(model)
    weights = {name: tensor.half() for name, tensor in weights.items()}
    # none while pre-training, which sees too much text to learn it by heart; fine-tuning has as much as published
    config |= dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), BertConfig.dropout)
    model = from_hugging_face(BertForPreTraining, config, weights).eval()
    metrics = {
        "variant": VARIANTS[variant],
        "command": f"python -m coursekit.recipes.bert --variant {variant}",
        "steps": STEPS,
        "pairs": STEPS * BATCH,
        "parameters": sum(p.numel() for p in model.parameters()),
        "seconds": round(seconds),
        "versions": versions(),
        "data": hashes,
        **{source: measure(model, samples) for source, samples in held_out("test", tokenizer).items()},
        "log-odds": compare(model, tokenizer),
        "50 labels": few_labels(lambda: deepcopy(model.bert), tokenizer),
        "curve": [record for record in history if "stories: next sentence" in record],
    }
    if variant == "bert":  # of the others the metrics are enough
        untrained = new_model(len(tokenizer), BertConfig.dropout).bert
        metrics["50 labels, from scratch"] = few_labels(lambda: deepcopy(untrained), tokenizer)
        write_model(folder, config, weights)
        save_tokenizer(tokenizer, folder / "tokenizer.json")
    save_json(folder / "metrics.json", metrics)
    return metrics


def load() -> tuple[BertForPreTraining, WordPiece]:
    """The shipped model, in float32 and in eval mode, and its tokenizer."""
    folder = CHECKPOINTS / "bert"
    return BertForPreTraining.from_pretrained(folder), load_tokenizer(folder / "tokenizer.json")


def main(arguments: Sequence[str] | None = None) -> None:
    variant, folder, out, _ = read_command("bert", __doc__, arguments, VARIANTS, named="bert-{}".format)
    report(train(variant, folder, out or CHECKPOINTS))


if __name__ == "__main__":
    main()
