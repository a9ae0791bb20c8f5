"""A small SiT, trained without labels on two pictures of each object, and each of its objectives alone.

``python -m coursekit.recipes.sit sit`` trains the one that is shipped and writes it to ``checkpoints/sit`` beside this
file: float16 weights and ``metrics.json``. It learns in two stages, the later with strong changes of colour.
``… sit-objectives`` trains it for fewer steps with all objectives and with each alone, and ``… sit-few`` measures what
remains of its lead where both may train on 120 labelled images, with augmentation or without: the shipped model,
fine-tuned, and a convolutional network from scratch. Of these two only ``metrics.json`` is kept, in
``checkpoints/sit-objectives`` and ``checkpoints/sit-few``. All can be stopped and started again at will.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from coursekit.data.batches import Batch, Fresh
from coursekit.data.corrupt import corrupted_views, draw_views
from coursekit.data.shapes import CLASSES
from coursekit.evaluate.features import extract
from coursekit.models.baselines.cnn import CNN, CNNConfig
from coursekit.models.sit import OBJECTIVES, SiT, SiTConfig, sit_loss
from coursekit.models.vit import ViTConfig, vit_loss
from coursekit.recipes import CHECKPOINTS, unlabelled
from coursekit.recipes.runs import Clock, read_command, report, to_the_end
from coursekit.recipes.vit import WIDTH, accuracy, as_numbers, scaled
from coursekit.recipes.vit import views as mirrored_and_cropped
from coursekit.train import Training, adamw, device, load_weights, save_weights, seed, warmup_cosine
from coursekit.train.checkpoint import save_json

VARIANTS = {
    "sit": "the model that is shipped",
    "sit-objectives": "fewer steps with all objectives and with each alone; the metrics alone",
    "sit-few": "fine-tuned on 120 labelled images, beside a convolutional network; the metrics alone",
}
CONFIG = SiTConfig(ViTConfig(32, 4, d_model=64, n_heads=4, d_ff=256, n_layers=4, classes=0, pooling="mean"))
BATCH, RATE, WARMUP, SAVE_EVERY, EVALUATE_EVERY = 48, 2e-3, 200, 250, 250
STEPS = {"sit": 6000, "sit-objectives": 600}
LATER, LATER_RATE = 4000, 1e-3  # updates with strong colours, and their learning rate
RUNS = {"all": OBJECTIVES} | {name: (name,) for name in OBJECTIVES}
VIEWS = {"size": 32, "scale": (0.7, 1.0), "p_foreign": 0.8, "sigma": (0.1, 0.5)}
COLOURS = {"brightness": 0.3, "contrast": 0.3, "saturation": 0.3, "hue": 0.1}
FEW, DRAWS, FEW_BATCH, FEW_TESTED = 120, 3, 64, 1200  # labelled images, sets of them; images of a batch and of a test
FEW_STEPS = (150, 450)  # updates; the fewer also without augmentation
FEW_KINDS = {  # name -> model, learning rate
    "CNN": (lambda: CNN(CNNConfig(3, WIDTH, 3, len(CLASSES))), 2e-3),
    "SiT, fine-tuned": (lambda: Tuned(load()), 2e-3),
    "SiT from random weights": (lambda: Tuned(SiT(CONFIG)), 4e-3),
}
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


def evaluate_features(model: SiT, split: str) -> dict[str, float]:
    known, asked = (
        extract(model, images, read=model.features) for images in (unlabelled.known(), unlabelled.asked(split))
    )
    return unlabelled.evaluate_features(known, asked, split)


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
    images, often = unlabelled.pictures(unlabelled.IMAGES), max(1, min(EVALUATE_EVERY, steps // 4))
    unseen = next(in_batches(images, 10**6, later))

    def evaluate(model: SiT) -> dict[str, float]:
        clock.save()
        return model.diagnose(unseen) | evaluate_features(model, "validation")

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
    to_the_end(training, f"{variant}, {folder.name}", clock)
    return model, training


def train(variant: str, folder: Path, checkpoints: Path = CHECKPOINTS) -> dict[str, Any]:
    """Train and measure; the shipped one, rounded to float16, is written too."""
    if variant == "sit-few":
        return measure_few(folder, checkpoints)
    clock = Clock(folder / "seconds.json")
    if variant != "sit":
        found = {}
        for name, objectives in RUNS.items():
            model, training = run(variant, folder / name, clock, objectives)
            found[name] = evaluate_features(model.cpu(), "test") | {"curve": list(training.history)}
        return unlabelled.write_metrics(f"sit {variant}", checkpoints / variant, training.step, runs=found)
    model, first = run(variant, folder / "first", clock)
    model, second = run(variant, folder / "later", clock, begun=model)
    model = model.cpu().half()
    save_weights(checkpoints / variant / "model.safetensors", model)
    measured = {
        "parameters": sum(p.numel() for p in model.parameters()),
        "seconds": round(clock.seconds()),
        "test": evaluate_features(model.float(), "test"),
        "curve": unlabelled.joined([first, second]),
    }
    return unlabelled.write_metrics(f"sit {variant}", checkpoints / variant, first.step + second.step, **measured)


# --- Few labels -------------------------------------------------------------------------------------------------


class Tuned(nn.Module):
    """A SiT and a linear layer on its features, both to be trained: (B, 3, height, width) -> logits (B, 12)."""

    def __init__(self, model: SiT):
        super().__init__()
        self.model = model
        self.layer = nn.Linear(len(model.config.objectives) * model.config.vit.d_model, len(CLASSES))

    def forward(self, images: Tensor) -> Tensor:
        return self.layer(self.model.features(images))


def few_labels(first: int = 0, augment: bool = True) -> Fresh:
    """Endless batches of 64 of the 120 labelled images from number ``first`` on; mirrored and cropped to ``augment``.

    Classes take turns, so there are ten images of each.
    """
    found = unlabelled.images_of("train", DRAWS * FEW)

    def make(generator: torch.Generator) -> Batch:
        rows = first + torch.randint(FEW, (FEW_BATCH,), generator=generator)
        images = found.images[rows]
        images = scaled(mirrored_and_cropped(images, generator)) if augment else as_numbers(images)
        return {"images": images, "labels": found.labels[rows]}

    return Fresh(make)


def learn_few(
    model: nn.Module, rate: float, first: int = 0, augment: bool = True, steps: int = FEW_STEPS[0]
) -> nn.Module:
    """``model``, trained on the 120 labelled images from number ``first`` on."""
    data, optimizer, schedule = few_labels(first, augment), adamw(model, rate), warmup_cosine(steps // 10)
    to_the_end(Training(model, vit_loss, data, optimizer, steps, schedule=schedule), "few labels")
    return model


def measure_few(folder: Path, checkpoints: Path = CHECKPOINTS) -> dict[str, Any]:
    """Accuracies after 120 labels: of each kind, number of updates and set of images; those that are done are kept."""
    kept = folder / "metrics.json"
    found = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    names = {f"{kind}, {n} updates": (kind, n, True) for n in FEW_STEPS for kind in FEW_KINDS}
    names |= {f"{kind}, {FEW_STEPS[0]} updates, unaugmented": (kind, FEW_STEPS[0], False) for kind in FEW_KINDS}
    for name, (kind, steps, augment) in names.items():
        build, rate = FEW_KINDS[kind]
        for i in range(len(found.setdefault(name, [])), DRAWS):
            seed(i)
            model, right = learn_few(build(), rate, i * FEW, augment, steps), {}
            for split in ("validation", "test"):
                labels = unlabelled.images_of(split, unlabelled.QUERIES[split]).labels[:FEW_TESTED]
                right[split] = accuracy(model, unlabelled.asked(split)[:FEW_TESTED], labels)
            found[name].append(right)
            print(f"{name}, images from {i * FEW}: validation {right['validation']:.3f}", flush=True)
            folder.mkdir(parents=True, exist_ok=True)
            save_json(kept, found)
    return unlabelled.write_metrics("sit sit-few", checkpoints / "sit-few", max(FEW_STEPS), labels=FEW, runs=found)


def load() -> SiT:
    """The shipped model, in float32 and in eval mode."""
    model = SiT(CONFIG)
    load_weights(CHECKPOINTS / "sit" / "model.safetensors", model)
    return model.eval()


def main(arguments: Sequence[str] | None = None) -> None:
    alone = dict.fromkeys(VARIANTS, "its contrastive loss compares all views of a batch")
    alone["sit-few"] = "these are several short runs, one after another"
    variant, folder, out, _ = read_command("sit", __doc__, arguments, VARIANTS, alone=alone)
    report(train(variant, folder, out or CHECKPOINTS))


if __name__ == "__main__":
    main()
