"""DINO's small ViT, trained with labels instead: the same pictures, the same global views, as many updates.

``python -m coursekit.recipes.labelled`` trains it and writes ``checkpoints/labelled`` beside this file: float16 weights
in Hugging Face's layout, and ``metrics.json``. Only the objective is not that of ``recipes/dino.py``; so what the two
networks see differently comes from the labels. It can be stopped and started again at will.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from coursekit.convert.hub import write_model
from coursekit.convert.vit import from_hugging_face, to_hugging_face
from coursekit.data.batches import Batch, Fresh
from coursekit.data.crops import multi_crop
from coursekit.data.shapes import CLASSES
from coursekit.models.vit import ViT, vit_loss
from coursekit.recipes import dino, unlabelled
from coursekit.recipes.runs import Clock, read_command, report
from coursekit.recipes.vit import CHECKPOINTS, accuracy, scaled
from coursekit.train import Training, adamw, device, seed, warmup_cosine

CONFIG = replace(dino.VIT, classes=len(CLASSES))
RATES = (2e-3, 1e-3)  # of the two stages; those of DINO, and of lecture 07's ViT of this size


def in_batches(start: int = 0, later: bool = False) -> Fresh:
    """Endless batches of DINO's global views, each with its label: ``images`` (2 B, 3, 32, 32), ``labels`` (2 B,)."""
    pictures = unlabelled.pictures(unlabelled.IMAGES)
    labels = unlabelled.images_of("train", unlabelled.IMAGES).labels
    choices = dino.CROPS | {"n_local": 0, "colours": dino.STRONG if later else dino.COLOURS}

    def make(generator: torch.Generator) -> Batch:
        rows = torch.randint(len(pictures), (dino.BATCH,), generator=generator)
        views = multi_crop(pictures[rows].float() / 255, generator, **choices)["global"]  # (B, 2, 3, 32, 32)
        return {"images": scaled(views.flatten(0, 1)), "labels": labels[rows].repeat_interleave(2)}

    return Fresh(make, start)


def right(model: ViT, split: str) -> float:
    return accuracy(model, unlabelled.asked(split), unlabelled.images_of(split, unlabelled.QUERIES[split]).labels)


def run(folder: Path, clock: Clock, begun: ViT | None = None) -> tuple[ViT, Training]:
    """Train it, or go on where ``folder`` says; with strong colours what has ``begun`` without them."""
    seed(0)
    later = begun is not None
    steps, rate = (dino.LATER if later else dino.STEPS), RATES[later]
    model = begun if later else ViT(CONFIG, CLASSES).to(device())

    def evaluate(model: ViT) -> dict[str, float]:
        clock.save()
        return {"accuracy": right(model, "validation")}

    training = Training(
        model,
        vit_loss,
        in_batches(int(later), later),
        adamw(model, rate, weight_decay=0.05),
        steps,
        schedule=warmup_cosine(min(dino.WARMUP, steps // 4)),
        log_every=dino.EVALUATE_EVERY,
        evaluate=evaluate,
        evaluate_every=dino.EVALUATE_EVERY,
        monitor="accuracy",
        higher_is_better=True,
        folder=folder,
        save_every=dino.SAVE_EVERY,
    )
    for record in training:
        print(json.dumps({name: float(f"{value:.4g}") for name, value in record.items()}), flush=True)
    return model, training


def train(folder: Path, checkpoints: Path = CHECKPOINTS) -> dict[str, Any]:
    """Train, measure, and write the network, rounded to float16, with what was measured."""
    clock = Clock(folder / "seconds.json")
    model, first = run(folder / "first", clock)
    model, second = run(folder / "later", clock, begun=model)
    described, weights = to_hugging_face(model.cpu())
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


def load_metrics() -> dict[str, Any]:
    return json.loads((CHECKPOINTS / "labelled" / "metrics.json").read_text(encoding="utf-8"))


def main(arguments: Sequence[str] | None = None) -> None:
    _, folder, out, _ = read_command("labelled", __doc__, arguments)
    report(train(folder, out or CHECKPOINTS))


if __name__ == "__main__":
    main()
