"""A small SiT, trained without labels on two pictures of each object, and each of its objectives alone.

``python -m coursekit.recipes.sit sit`` trains the one that is shipped and writes it to ``checkpoints/sit`` beside this
file: float16 weights and ``metrics.json``. It learns in two stages, the later with strong changes of colour.
``… sit-objectives`` trains it for fewer steps with all objectives and with
each alone; of these only ``metrics.json`` is kept, in ``checkpoints/sit-objectives``. Both can be stopped and started
again at will.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from coursekit.data.batches import Batch, Fresh
from coursekit.data.corrupt import corrupted_views, draw_views
from coursekit.evaluate.features import extract
from coursekit.models.sit import OBJECTIVES, SiT, SiTConfig, sit_loss
from coursekit.models.vit import ViTConfig
from coursekit.recipes import unlabelled
from coursekit.recipes.runs import Clock, read_command, report
from coursekit.recipes.vit import CHECKPOINTS, scaled
from coursekit.train import Training, adamw, device, load_weights, save_weights, seed, warmup_cosine

VARIANTS = {
    "sit": "the model that is shipped",
    "sit-objectives": "fewer steps with all objectives and with each alone; the metrics alone",
}
CONFIG = SiTConfig(ViTConfig(32, 4, d_model=64, n_heads=4, d_ff=256, n_layers=4, classes=0, pooling="mean"))
BATCH, RATE, WARMUP, SAVE_EVERY, EVALUATE_EVERY = 48, 2e-3, 200, 250, 250
STEPS = {"sit": 6000, "sit-objectives": 600}
LATER, LATER_RATE = 4000, 1e-3  # updates with strong colours, and their learning rate
RUNS = {"all": OBJECTIVES} | {name: (name,) for name in OBJECTIVES}
VIEWS = {"size": 32, "scale": (0.7, 1.0), "p_foreign": 0.8, "sigma": (0.1, 0.5)}
COLOURS = {"brightness": 0.3, "contrast": 0.3, "saturation": 0.3, "hue": 0.1}
STRONG = COLOURS | {"saturation": 0.5, "hue": 0.25}  # for what has begun without, as in coursekit/recipes/dino.py


def corrupted(images: Tensor, generator: torch.Generator, later: bool = False) -> Batch:
    """Two corrupted views of each image, or of two pictures of the same thing, in 0..1."""
    height, width = images.shape[-2:]
    colours = STRONG if later else COLOURS
    return corrupted_views(images, draw_views(len(images), height, width, generator, **VIEWS, colours=colours))


def in_batches(images: Tensor, start: int = 0, later: bool = False) -> Fresh:
    """Endless batches of corrupted views of images drawn by lot; see ``unlabelled.pictures``."""

    def make(generator: torch.Generator) -> Batch:
        batch = corrupted(unlabelled.drawn_from(images, BATCH, generator), generator, later)
        return batch | {name: scaled(batch[name]) for name in ("views", "clean")}

    return Fresh(make, start)


def worth(model: SiT, split: str) -> dict[str, float]:
    known, asked = (
        extract(model, images, read=model.features) for images in (unlabelled.known(), unlabelled.asked(split))
    )
    return unlabelled.worth(known, asked, split)


def run(
    variant: str, folder: Path, clock: Clock, objectives: Sequence[str] = OBJECTIVES, begun: SiT | None = None
) -> tuple[SiT, Training]:
    """Train one, or go on where ``folder`` says; with strong colours what has ``begun`` without them."""
    seed(0)
    later = begun is not None
    steps, rate = (LATER, LATER_RATE) if later else (STEPS[variant], RATE)
    model = SiT(SiTConfig(CONFIG.vit, objectives)).to(device())
    if begun is not None:
        model.load_state_dict(begun.state_dict())
    images, often = unlabelled.pictures(unlabelled.IMAGES), min(EVALUATE_EVERY, steps // 4)
    unseen = next(in_batches(images, 10**6, later))

    def evaluate(model: SiT) -> dict[str, float]:
        clock.save()
        return model.diagnose(unseen) | worth(model, "validation")

    training = Training(
        model,
        sit_loss,
        in_batches(images, int(later), later),
        adamw(model, rate, weight_decay=0.05),
        steps,
        schedule=warmup_cosine(min(WARMUP, steps // 4)),
        log_every=often,
        evaluate=evaluate,
        evaluate_every=often,
        monitor="probe",
        higher_is_better=True,
        folder=folder,
        save_every=SAVE_EVERY,
    )
    for record in training:
        print(json.dumps({name: float(f"{value:.4g}") for name, value in record.items()}), flush=True)
    return model, training


def train(variant: str, folder: Path, checkpoints: Path = CHECKPOINTS) -> dict[str, Any]:
    """Train and measure; the shipped one, rounded to float16, is written too."""
    clock = Clock(folder / "seconds.json")
    if variant != "sit":
        found = {}
        for name, objectives in RUNS.items():
            model, training = run(variant, folder / name, clock, objectives)
            found[name] = worth(model.cpu(), "test") | {"curve": list(training.history)}
        return unlabelled.write_metrics("sit", variant, checkpoints, training.step, runs=found)
    model, first = run(variant, folder / "first", clock)
    model, second = run(variant, folder / "later", clock, begun=model)
    model = model.cpu().half()
    save_weights(checkpoints / variant / "model.safetensors", model)
    measured = {
        "parameters": sum(p.numel() for p in model.parameters()),
        "seconds": round(clock.seconds()),
        "test": worth(model.float(), "test"),
        "curve": unlabelled.joined([first, second]),
    }
    return unlabelled.write_metrics("sit", variant, checkpoints, first.step + second.step, **measured)


def load() -> SiT:
    """The shipped model, in float32 and in eval mode."""
    model = SiT(CONFIG)
    load_weights(CHECKPOINTS / "sit" / "model.safetensors", model)
    return model.eval()


def load_metrics(variant: str = "sit") -> dict[str, Any]:
    """What was measured: of ``"sit"`` or ``"sit-objectives"``."""
    return json.loads((CHECKPOINTS / variant / "metrics.json").read_text(encoding="utf-8"))


def main(arguments: Sequence[str] | None = None) -> None:
    alone = dict.fromkeys(VARIANTS, "its contrastive loss compares all views of a batch")
    variant, folder, out, _ = read_command("sit", __doc__, arguments, VARIANTS, alone=alone)
    report(train(variant, folder, out or CHECKPOINTS))


if __name__ == "__main__":
    main()
