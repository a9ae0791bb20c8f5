"""Fine-tuning the pre-trained GPT for tasks that are given by a prompt, and what pre-training was worth for them.

``python -m coursekit.recipes.prompted`` teaches the pre-trained model, and the same from scratch, to translate from
more and more pairs, and writes the shares of translations that are right to ``checkpoints/prompted/metrics.json``. It
can be stopped and started again at will.
"""

import json
from collections.abc import Sequence
from typing import Any

import torch

from coursekit.data.batches import Batch, Fresh
from coursekit.data.prompts import Prompted, as_ids, translations
from coursekit.decode.text import complete
from coursekit.models.gpt import GPT, gpt_loss
from coursekit.recipes import gpt
from coursekit.text.bpe import BPE
from coursekit.train import Training, adamw, device, warmup_cosine
from coursekit.train.checkpoint import save_json

BATCH, RATE, WARMUP = 32, 1e-3, 20
METRICS = gpt.CHECKPOINTS / "prompted" / "metrics.json"
STEPS, PAIRS, TESTED = 300, (100, 300, 1000, 3000, 10_000), 200
BEGINNINGS = ("pre-trained", "from scratch")


def in_batches(pairs: Sequence[Prompted], tokenizer: BPE, batch_size: int = BATCH, seed: int = 0) -> Fresh:
    """Endless batches of ``as_ids``, each of pairs drawn at random, without the columns that are padding in all.

    Those of a batch are of like length: eight times as many are drawn, put in order, and one part of eight is taken.
    """
    samples = as_ids(pairs, tokenizer)
    lengths = samples["mask"].sum(dim=1)

    def make(generator: torch.Generator) -> Batch:
        drawn = torch.randint(len(pairs), (8 * batch_size,), generator=generator)
        parts = drawn[lengths[drawn].argsort(stable=True)].split(batch_size)
        chosen = parts[int(torch.randint(8, (), generator=generator))]
        return {name: rows[chosen, : int(lengths[chosen].max())] for name, rows in samples.items()}

    return Fresh(make, seed)


def prompted_training(model: GPT, pairs: Sequence[Prompted], tokenizer: BPE, steps: int, **options: Any) -> Training:
    """A run that teaches ``model`` to write the targets of ``pairs``; ``options`` are those of ``Training``."""
    optimizer = adamw(model, RATE)
    schedule = warmup_cosine(min(WARMUP, steps // 2))
    return Training(model, gpt_loss, in_batches(pairs, tokenizer), optimizer, steps, schedule=schedule, **options)


def share_exact(model: GPT, tokenizer: BPE, pairs: Sequence[Prompted], max_new: int = 60) -> float:
    """The share of prompts behind which the model writes just the target, taking the most likely token each time."""
    written = complete(model, tokenizer, [prompt for prompt, _ in pairs], max_new)
    return sum(one == target for one, (_, target) in zip(written, pairs, strict=True)) / len(pairs)


def curve_point(beginning: str, n: int) -> float:
    """The share of test sentences that are translated word for word after training on ``n`` pairs."""
    model, tokenizer = gpt.load()
    if beginning == "from scratch":
        model = gpt.new_gpt("gpt-code")  # without dropout, as the loaded one is
    run = prompted_training(model.to(device()), translations(n), tokenizer, STEPS)
    run.fit()
    return share_exact(model.eval(), tokenizer, translations(TESTED, "test"))


def load_metrics() -> dict[str, Any]:
    """The curves: ``["translations"][beginning][pairs]`` is the share that is right, ``pairs`` a str of a number."""
    return json.loads(METRICS.read_text(encoding="utf-8"))


def main() -> None:
    found = (
        load_metrics()
        if METRICS.exists()
        else {
            "command": "python -m coursekit.recipes.prompted",
            "steps": STEPS,
            "tested": TESTED,
            "translations": {beginning: {} for beginning in BEGINNINGS},
        }
    )
    for beginning, points in found["translations"].items():
        for n in PAIRS:
            if str(n) not in points:
                points[str(n)] = curve_point(beginning, n)
                print(f"{beginning}, {n} pairs: {points[str(n)]:.3f}", flush=True)
                METRICS.parent.mkdir(exist_ok=True)
                save_json(METRICS, found)


if __name__ == "__main__":
    main()
