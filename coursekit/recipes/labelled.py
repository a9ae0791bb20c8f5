"""DINO's small ViT, trained with labels instead: the same pictures, the same kinds of views, as many updates.

``python -m coursekit.recipes.labelled`` trains it and writes ``checkpoints/labelled`` beside this file: float16 weights
in Hugging Face's layout, and ``metrics.json``. All else is as in ``recipes/dino.py``: global and local views, their
colours, rates, decay and clipping; and what is kept is an average of the weights, as DINO's teacher is one. It can be
stopped and started again at will.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from coursekit.convert.hub import write_model
from coursekit.convert.vit import from_hugging_face, to_hugging_face
from coursekit.data.batches import Batch, Fresh
from coursekit.data.crops import multi_crop
from coursekit.data.shapes import CLASSES
from coursekit.models.vit import ViT, vit_loss
from coursekit.recipes import CHECKPOINTS, dino, unlabelled
from coursekit.recipes.runs import Clock, read_command, report, to_the_end
from coursekit.recipes.vit import accuracy, scaled
from coursekit.train import EMA, Training, adamw, device, seed, warmup_cosine

CONFIG = replace(dino.VIT, classes=len(CLASSES))
RATES = (dino.RATE, dino.LATER_RATE)  # of the two stages


def in_batches(start: int = 0, later: bool = False) -> Fresh:
    """Endless batches of DINO's views, each with its label.

    ``global`` (2 B, 3, 32, 32) and ``local`` (2 B, 3, 16, 16), and ``labels`` (2 B,) for the one as for the other.
    """
    pictures = unlabelled.pictures(unlabelled.IMAGES)
    labels = unlabelled.images_of("train", unlabelled.IMAGES).labels
    choices = dino.CROPS | {"colours": dino.STRONG if later else dino.COLOURS}

    def make(generator: torch.Generator) -> Batch:
        rows = torch.randint(len(pictures), (dino.BATCH,), generator=generator)
        views = multi_crop(pictures[rows].float() / 255, generator, **choices)
        views = {name: scaled(views[name].flatten(0, 1)) for name in ("global", "local")}
        return views | {"labels": labels[rows].repeat_interleave(2)}

    return Fresh(make, start)


def loss_of_views(model: ViT, batch: Batch) -> tuple[Tensor, Tensor]:
    """Cross-entropy summed over all views, and their number."""
    losses = [vit_loss(model, {"images": batch[name], "labels": batch["labels"]}) for name in ("global", "local")]
    (large, n), (small, m) = losses
    return large + small, n + m


def right(model: ViT, split: str) -> float:
    return accuracy(model, unlabelled.asked(split), unlabelled.images_of(split, unlabelled.QUERIES[split]).labels)


def run(folder: Path, clock: Clock, begun: ViT | None = None) -> tuple[ViT, ViT, Training]:
    """Train it, or go on where ``folder`` says; with strong colours what has ``begun`` without them.

    Returns the network, the average of its weights, and the training.
    """
    seed(0)
    later = begun is not None
    steps, rate = (dino.LATER if later else dino.STEPS), RATES[later]
    model = begun if later else ViT(CONFIG, CLASSES).to(device())

    ema = EMA(model, dino.MOMENTUM)

    def evaluate(_: ViT) -> dict[str, float]:
        clock.save()
        return {"accuracy": right(ema.average, "validation")}

    training = Training(
        model,
        loss_of_views,
        in_batches(int(later), later),
        adamw(model, rate, weight_decay=0.04),
        steps,
        schedule=warmup_cosine(min(dino.WARMUP, steps // 4)),
        clip=3.0,
        clip_each=True,
        log_every=dino.EVALUATE_EVERY,
        evaluate=evaluate,
        evaluate_every=dino.EVALUATE_EVERY,
        monitor="accuracy",
        higher_is_better=True,
        ema=ema,
        folder=folder,
        save_every=dino.SAVE_EVERY,
    )
    to_the_end(training, f"labelled, {folder.name}", clock)
    return model, ema.average, training


def train(folder: Path, checkpoints: Path = CHECKPOINTS) -> dict[str, Any]:
    """Train, measure, and write the network, rounded to float16, with what was measured."""
    clock = Clock(folder / "seconds.json")
    model, _, first = run(folder / "first", clock)
    _, average, second = run(folder / "later", clock, begun=model)
    described, weights = to_hugging_face(average.cpu())
    weights = {name: tensor.half() for name, tensor in weights.items()}
    rounded = from_hugging_face(ViT, described, weights).eval()
    measured = {
        "parameters": sum(p.numel() for p in rounded.parameters()),
        "seconds": round(clock.seconds()),
        "test": {"accuracy": right(rounded, "test")},
        "curve": unlabelled.joined([first, second]),
    }
    write_model(checkpoints / "labelled", described, weights)
    return unlabelled.write_metrics("labelled", checkpoints / "labelled", first.step + second.step, **measured)


def load() -> ViT:
    """The shipped network, in float32 and in eval mode."""
    return ViT.from_pretrained(CHECKPOINTS / "labelled")


def main(arguments: Sequence[str] | None = None) -> None:
    alone = {"labelled": "it is the twin of DINO, which is trained so too"}
    _, folder, out, _ = read_command("labelled", __doc__, arguments, alone=alone)
    report(train(folder, out or CHECKPOINTS))


if __name__ == "__main__":
    main()
