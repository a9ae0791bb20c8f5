"""Fine-tuning the pre-trained GPT for tasks that are given by a prompt, and what pre-training was worth for them.

``python -m coursekit.recipes.prompted`` teaches one model four tasks at once, longer than a lecture lasts; and the
pre-trained model, and the same from scratch, to translate from more and more pairs. The weights of the first go to
``checkpoints/prompted`` in eight bits, the shares of test prompts that are answered word for word to ``metrics.json``
there. It can be stopped and started again at will.

In the metrics ``["tasks"]`` is a list of records of shares, ``["test"]`` has the shares at their end, and
``["translations"][beginning][pairs]`` is one, ``pairs`` a number as a str.
"""

import itertools
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from coursekit.convert.eight_bits import from_eight_bits, in_eight_bits
from coursekit.convert.gpt import DROPOUTS, from_hugging_face, to_hugging_face
from coursekit.convert.hub import read_model, write_model
from coursekit.data.batches import of_like_length
from coursekit.data.prompts import Prompted, as_ids, classifications, instructions, summaries, translations
from coursekit.decode.text import complete
from coursekit.models.gpt import GPT, gpt_loss
from coursekit.recipes import CHECKPOINTS, gpt
from coursekit.recipes.runs import each_once, read_command, to_the_end
from coursekit.text.bpe import BPE
from coursekit.train import Training, adamw, device, warmup_cosine
from coursekit.train.checkpoint import load_weights, save_json

BATCH, RATE, WARMUP, DROPOUT = 32, 1e-3, 20, 0.1
FOLDER = CHECKPOINTS / "prompted"
METRICS = FOLDER / "metrics.json"
# pairs to learn from: a translation needs every word's counterpart, the others hardly more than those of the prompt
TASKS = {translations: 30_000, summaries: 8000, classifications: 4000, instructions: 24_000}
TASK_STEPS, EVERY = 4000, 500
STEPS, PAIRS, TESTED = 300, (100, 300, 1000, 3000, 10_000), 200
BEGINNINGS = ("pre-trained", "from scratch")


def prompted_training(model: GPT, pairs: Sequence[Prompted], tokenizer: BPE, steps: int, **options: Any) -> Training:
    """A run that teaches ``model`` to write the targets of ``pairs``; ``options`` are those of ``Training``.

    The residual stream has dropout, as in pre-training: without it pairs of words that were never seen side by side,
    such as *small* and *girl* here, became others that were (82.5 % of the test's translations were right, not 93.5 %).
    """
    for dropout in (
        model.dropout,
        *(part.dropout for block in model.blocks for part in (block.attention_residual, block.feed_forward_residual)),
    ):
        dropout.p = DROPOUT
    optimizer = adamw(model, RATE)
    schedule = warmup_cosine(min(WARMUP, steps // 2))
    samples = as_ids(pairs, tokenizer)
    data = of_like_length(samples, samples["mask"].sum(dim=1), BATCH)
    return Training(model, gpt_loss, data, optimizer, steps, schedule=schedule, **options)


def share_exact(model: GPT, tokenizer: BPE, pairs: Sequence[Prompted], max_new: int = 60) -> float:
    """The share of prompts behind which the model writes just the target, taking the most likely token each time."""
    written = complete(model, tokenizer, [prompt for prompt, _ in pairs], max_new)
    return sum(one == target for one, (_, target) in zip(written, pairs, strict=True)) / len(pairs)


def teach_tasks(folder: Path) -> dict[str, Any]:
    """Teach the pre-trained model all of ``TASKS``, or go on with it where ``folder`` says.

    The weights that translate the validation split best are rounded to eight bits and written to ``folder/rounded``.

    Returns the records of the run, each with the shares of validation prompts that are answered right, as ``"tasks"``,
    and the shares of test prompts of the best weights, before rounding as ``"test in float32"`` and after as
    ``"test"``.
    """
    model, tokenizer = gpt.load()
    model = model.to(device())
    pairs = [pair for task, n in TASKS.items() for pair in task(n)]

    def evaluate(model: GPT, split: str = "validation") -> dict[str, float]:
        return {task.__name__: share_exact(model, tokenizer, task(TESTED, split)) for task in TASKS}

    options = {"evaluate": evaluate, "monitor": "translations", "higher_is_better": True, "folder": folder}
    options |= {"log_every": EVERY, "evaluate_every": EVERY, "save_every": EVERY}
    run = prompted_training(model, pairs, tokenizer, TASK_STEPS, **options)
    to_the_end(run, "all tasks")
    load_weights(folder / "best.safetensors", model)
    before = evaluate(model.eval(), "test")
    write(model, folder / "rounded")
    return {
        "pairs": {task.__name__: n for task, n in TASKS.items()},
        "tasks": list(run.history),
        "test in float32": before,
        "test": evaluate(read(folder / "rounded").to(device()), "test"),
    }


def curve_point(beginning: str, n: int) -> float:
    """The share of test sentences that are translated word for word after training on ``n`` pairs."""
    model, tokenizer = gpt.load()
    if beginning == "from scratch":
        model = gpt.new_gpt("gpt-documentation")
    run = prompted_training(model.to(device()), translations(n), tokenizer, STEPS)
    to_the_end(run, f"{beginning}, {n:,} pairs")
    return share_exact(model.eval(), tokenizer, translations(TESTED, "test"))


def write(model: GPT, folder: Path) -> None:
    """Configuration, and weights in eight bits."""
    config, weights = to_hugging_face(model)
    write_model(folder, config | dict.fromkeys(DROPOUTS, 0.0), in_eight_bits(weights))


def read(folder: Path) -> GPT:
    config, weights = read_model(folder)
    return from_hugging_face(GPT, config, from_eight_bits(weights))


def load() -> tuple[GPT, BPE]:
    """The model that was taught all tasks, in float32 and in eval mode, and its tokenizer, that of ``gpt.load``."""
    return read(FOLDER).eval(), gpt.load()[1]


def main(arguments: Sequence[str] | None = None) -> None:
    alone = {"prompted": "these are several short runs, one after another"}
    _, folder, out, _ = read_command("prompted", __doc__, arguments, alone=alone)
    kept = folder / "metrics.json"
    found = (
        json.loads(kept.read_text(encoding="utf-8"))
        if kept.exists()
        else {
            "command": "python -m coursekit.recipes.prompted",
            "tested": TESTED,
            "steps": STEPS,
        }
    )
    if "test" not in found:
        found |= teach_tasks(folder)
        save_json(kept, found)
    points = itertools.product(BEGINNINGS, PAIRS)
    pieces = {("translations", beginning, str(n)): partial(curve_point, beginning, n) for beginning, n in points}
    found = each_once(pieces, kept)
    shipped = FOLDER if out is None else out / "prompted"
    write(read(folder / "rounded"), shipped)  # rounding again changes nothing
    save_json(shipped / "metrics.json", found)


if __name__ == "__main__":
    main()
