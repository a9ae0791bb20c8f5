"""The variations of Table 3 of *Attention Is All You Need*, in miniature: English to French in the world.

Every row changes one thing of a small base model and trains it for the same number of updates on the same 2,000
sentences, few enough for a model to learn them by heart. ``python -m coursekit.recipes.table3`` trains what is missing
in ``table3.json`` beside this file, a row and a seed at a time, and can be stopped and started again at will. The hash
of the sentences stands beside the results: measured on other sentences, or on unknown ones, they are measured anew.
"""

import hashlib
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from coursekit.data.translation import Bucketed, as_batch, to_ids, world_vocab
from coursekit.data.world import Sentence, as_text, sentences
from coursekit.decode.translate import greedy
from coursekit.evaluate import bleu
from coursekit.files import write_atomically
from coursekit.models.transformer import (
    Transformer,
    TransformerConfig,
    inverse_sqrt,
    transformer_adam,
    transformer_objective,
)
from coursekit.recipes.runs import read_command, to_the_end
from coursekit.text.vocab import Vocab
from coursekit.train import Training, seed

RESULTS = Path(__file__).with_name("table3.json")
SENTENCES, HELD_OUT, UPDATES, TOKENS, WARMUP, RATE, SMOOTHING, SEEDS = 2000, 500, 800, 1000, 200, 0.4, 0.1, (0, 1)
BASE = {"d_model": 64, "n_heads": 4, "d_ff": 256, "n_layers": 2, "dropout": 0.1, "max_length": 80}
ROWS: dict[str, dict[str, Any]] = {
    "base": {},
    "1 head": {"n_heads": 1},
    "2 heads": {"n_heads": 2},
    "16 heads": {"n_heads": 16},
    "d_key 2": {"d_key": 2, "d_value": 16},
    "d_key 4": {"d_key": 4, "d_value": 16},
    "1 layer": {"n_layers": 1},
    "4 layers": {"n_layers": 4},
    "d_model 32": {"d_model": 32},
    "d_model 128": {"d_model": 128},
    "d_ff 64": {"d_ff": 64},
    "d_ff 512": {"d_ff": 512},
    "dropout 0": {"dropout": 0.0},
    "dropout 0.2": {"dropout": 0.2},
    "smoothing 0": {"smoothing": 0.0},
    "smoothing 0.2": {"smoothing": 0.2},
    "learned positions": {"positions": "learned"},
    "norm first": {"norm_first": True},
    "4 layers, norm first": {"n_layers": 4, "norm_first": True},
}


def splits() -> tuple[list[Sentence], list[Sentence]]:
    """The sentences that every row is trained on, and those that it is measured on."""
    return sentences(SENTENCES), sentences(HELD_OUT, "validation")


def data_hash() -> str:
    """SHA-256 of the English and French words of both splits, in order: what the results were measured on."""
    words = [[(s.en, s.fr) for s in split] for split in splits()]
    return hashlib.sha256(json.dumps(words).encode()).hexdigest()


def measure(row: str, number: int, vocab: Vocab) -> dict[str, float]:
    """Train a row with a seed: perplexity of a token and BLEU on the validation split, parameters, seconds."""
    changes = {"smoothing": SMOOTHING} | ROWS[row]
    smoothing = changes.pop("smoothing")
    seed(number)
    model = Transformer(TransformerConfig(vocab_size=len(vocab), **BASE | changes))
    training, held_out = splits()
    data = Bucketed(to_ids(training, vocab), TOKENS, seed=number)
    schedule = inverse_sqrt(model.config.d_model, WARMUP)
    options = {"schedule": schedule, "precision": "float32", "log_every": UPDATES}
    started = time.perf_counter()
    optimizer = transformer_adam(model, RATE)
    run = Training(model, transformer_objective(smoothing), data, optimizer, UPDATES, **options)
    to_the_end(run, f"{row}, seed {number}")
    seconds = time.perf_counter() - started
    model.eval()
    batch = as_batch(to_ids(held_out, vocab))
    with torch.inference_mode():
        loss, count = transformer_objective(0.0)(model, batch)
    outputs = greedy(model, batch["source"], batch["source_mask"])
    texts = [as_text(vocab.decode(ids)) for ids in outputs.tolist()]
    return {
        "perplexity": (loss / count).exp().item(),
        "bleu": bleu(texts, [as_text(s.fr) for s in held_out]),
        "parameters": sum(p.numel() for p in model.parameters()),
        "seconds": round(seconds, 1),
    }


def read(path: Path | None = None) -> tuple[str | None, dict[str, list[dict[str, float]]]]:
    """The hash of the data that the saved results were measured on, None where it is unknown, and the results."""
    path = path or RESULTS
    saved = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return saved.pop("data", None), saved


def load() -> dict[str, list[dict[str, float]]]:
    """The saved results: for each row a list with one entry for each seed."""
    return read()[1]


def save(data: str, results: dict[str, list[dict[str, float]]], path: Path | None = None) -> None:
    """Write the results with the hash of the sentences that they were measured on."""
    text = json.dumps({"data": data} | results, indent=1) + "\n"
    write_atomically(path or RESULTS, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def main(arguments: Sequence[str] | None = None) -> None:
    alone = {"table3": "these are many short runs, one after another"}
    _, _, out, fresh = read_command("table3", __doc__, arguments, alone=alone)
    path = out / RESULTS.name if out else RESULTS
    (saved_hash, results), current, vocab = ((None, {}) if fresh else read(path)), data_hash(), world_vocab()
    if results and saved_hash != current:
        other = "unknown sentences" if saved_hash is None else "other sentences than those of the world today"
        print(f"{RESULTS.name} was measured on {other}: every row is trained anew", flush=True)
        results = {}
    for number in SEEDS:
        for row in ROWS:
            done = results.setdefault(row, [])
            if len(done) > number:
                continue
            done.append(measure(row, number, vocab))
            save(current, results, path)
            print(f"{row}, seed {number}: {done[-1]}", flush=True)


if __name__ == "__main__":
    main()
