"""A small Vision Transformer for images of objects, beside a convolutional network with as many parameters.

``python -m coursekit.recipes.vit vit`` trains the one that is shipped and writes it to ``checkpoints/vit`` beside this
file: float16 weights in Hugging Face's layout, and ``metrics.json``. ``… curves`` trains smaller ones of both kinds on
fewer and fewer images, and ``… shuffled`` the first on images whose patches have changed places; of these only
``metrics.json`` is kept, in ``checkpoints/vit-curves`` and ``checkpoints/vit-shuffled``. All can be stopped and started
again at will.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from coursekit.convert.hub import write_model
from coursekit.convert.vit import from_hugging_face, to_hugging_face
from coursekit.data.augment import draw_boxes, draw_chosen, flip, resized_crop
from coursekit.data.batches import Batch, Fresh
from coursekit.data.shapes import CLASSES, Shapes, shapes
from coursekit.models.baselines.cnn import CNN, CNNConfig
from coursekit.models.vit import ViT, ViTConfig, patchify, unpatchify, vit_loss
from coursekit.nn.modes import evaluating
from coursekit.recipes import CHECKPOINTS
from coursekit.recipes.runs import Clock, each_once, read_command, report, to_the_end, versions
from coursekit.train import Training, adamw, device, distributed, seed, warmup_cosine
from coursekit.train.checkpoint import save_json

VARIANTS = {
    "vit": "the model that is shipped",
    "curves": "a smaller one and a convolutional network on fewer and fewer images; the metrics alone",
    "shuffled": "the smaller one on images whose patches have changed places; the metrics alone",
}
CONFIG = ViTConfig(32, 4, d_model=96, n_heads=3, d_ff=384, n_layers=6, classes=len(CLASSES), drop_path=0.1)
SMALL = replace(CONFIG, d_model=64, n_heads=4, d_ff=256, n_layers=4, drop_path=0.0)  # for what is trained many times
WIDTH = 27  # of the convolutional network: 1 % fewer parameters than the small ViT's
IMAGES, TESTED = 30_000, 2400
BATCH, WARMUP, SAVE_EVERY, EVALUATE_EVERY = 64, 200, 250, 500
STEPS = {"vit": 8000, "curves": 1000, "shuffled": 1000}
SIZES = (480, 1920, 7680, 30_000)
KINDS = {
    "shipped": lambda: ViT(CONFIG, CLASSES),
    "ViT": lambda: ViT(SMALL, CLASSES),
    "CNN": lambda: CNN(CNNConfig(3, WIDTH, 3, len(CLASSES))),
}
COMPARED = ("ViT", "CNN")
RATES = {"shipped": 1e-3, "ViT": 2e-3, "CNN": 2e-3}
SHUFFLES = ("none", "fixed", "each image")


@cache
def images_of(split: str, n: int) -> Shapes:
    return shapes(n, split)


def scaled(images: Tensor) -> Tensor:
    """Floats in 0..1 to numbers from -2 to 2, about -1 to 1 as a rule."""
    return (images - 0.5) / 0.25


def as_numbers(images: Tensor) -> Tensor:
    """uint8 to the same."""
    return scaled(images.float() / 255)


def views(images: Tensor, generator: torch.Generator) -> Tensor:
    """What is trained on: half of the images mirrored, and at least 70 % of the area of each, at its old size."""
    n, _, height, width = images.shape
    images = flip(images.float() / 255, draw_chosen(n, 0.5, generator))
    return resized_crop(images, draw_boxes(n, height, width, generator, scale=(0.7, 1.0), ratio=(0.8, 1.25)), height)


def in_batches(found: Shapes, change: Callable[[Tensor, torch.Generator], Tensor], start: int = 0) -> Fresh:
    """Endless batches of images drawn at random, each seen a little differently."""

    def make(generator: torch.Generator) -> Batch:
        rows = torch.randint(len(found), (BATCH,), generator=generator)
        images = scaled(views(found.images[rows], generator))
        return {"images": change(images, generator), "labels": found.labels[rows]}

    return Fresh(make, start)


def shuffled(images: Tensor, generator: torch.Generator, how: str) -> Tensor:
    """The patches of images in another order: in ``SHUFFLES``, the same for all (``"fixed"``) or for each another."""
    if how == "none":
        return images
    patches = patchify(images, CONFIG.patch_size)  # (B, N, C P^2)
    B, N = patches.shape[:2]
    if how == "fixed":
        order = torch.randperm(N, generator=torch.Generator().manual_seed(0)).expand(B, -1)
    else:
        order = torch.rand(B, N, generator=generator).argsort(dim=1)
    return unpatchify(patches.gather(1, order[..., None].expand_as(patches)), CONFIG.patch_size)


@torch.inference_mode()
def accuracy(model: nn.Module, images: Tensor, labels: Tensor, batch_size: int = 200) -> float:
    """The share of images (N, 3, height, width), as of ``as_numbers``, whose class is found."""
    where = next(model.parameters()).device
    with evaluating(model):
        found = torch.cat([model(part.to(where)).argmax(dim=-1).cpu() for part in images.split(batch_size)])
    return (found == labels).float().mean().item()


def run(
    kind: str, folder: Path, steps: int, n: int = IMAGES, how: str = "none", clock: Clock | None = None, **options: Any
) -> tuple[nn.Module, Training]:
    """Train one model on ``n`` images, or go on where ``folder`` says."""
    seed(0)
    model = KINDS[kind]().to(device())
    data = in_batches(images_of("train", n), partial(shuffled, how=how))
    optimizer = adamw(model, RATES[kind], weight_decay=0.05)
    settings = {"schedule": warmup_cosine(min(WARMUP, steps // 4)), "folder": folder, "save_every": SAVE_EVERY}
    training = Training(model, vit_loss, data, optimizer, steps, **settings | options)
    to_the_end(training, f"{kind}, {n:,} images", clock)
    return model.eval(), training


def accuracy_on_test(model: nn.Module, how: str = "none") -> float:
    found = images_of("test", TESTED)
    generator = torch.Generator().manual_seed(1)
    return accuracy(model, shuffled(as_numbers(found.images), generator, how), found.labels)


def train(folder: Path, checkpoints: Path = CHECKPOINTS) -> dict[str, Any]:
    """Train the ViT that is shipped, round it to float16, measure it, and write it with its metrics."""
    clock, known = Clock(folder / "seconds.json"), images_of("validation", 1200)

    def evaluate(model: nn.Module) -> dict[str, float]:
        clock.save()
        return {"accuracy": accuracy(model, as_numbers(known.images), known.labels)}

    options = {"evaluate": evaluate, "evaluate_every": EVALUATE_EVERY, "monitor": "accuracy", "higher_is_better": True}
    model, training = run("shipped", folder, STEPS["vit"], log_every=100, clock=clock, **options)
    distributed.leave_to_first()
    config, weights = to_hugging_face(model.cpu())
    weights = {name: tensor.half() for name, tensor in weights.items()}
    rounded = from_hugging_face(ViT, config, weights).eval()
    metrics = {
        "command": "python -m coursekit.recipes.vit vit",
        "parameters": sum(p.numel() for p in model.parameters()),
        "steps": training.step,
        "images": IMAGES,
        "seconds": round(clock.seconds()),
        "versions": versions(),
        "test": {"accuracy": accuracy_on_test(rounded)},
        "curve": [record for record in training.history if "accuracy" in record],
    }
    write_model(checkpoints / "vit", config, weights)
    save_json(checkpoints / "vit" / "metrics.json", metrics)
    return metrics


def measure_all(what: str, folder: Path, checkpoints: Path = CHECKPOINTS) -> dict[str, Any]:
    """The accuracies of all runs of ``"curves"`` or ``"shuffled"``, by their names; those that are done are kept."""
    if what == "curves":
        runs = {f"{kind}, {n}": {"kind": kind, "n": n} for n in SIZES for kind in COMPARED}
    else:
        runs = {how: {"kind": "ViT", "how": how} for how in SHUFFLES}

    def accuracy_of(name: str) -> float:
        settings = runs[name]
        model, _ = run(folder=folder / name.replace(", ", "-"), steps=STEPS[what], log_every=100, **settings)
        return accuracy_on_test(model, settings.get("how", "none"))

    found = each_once({(name,): partial(accuracy_of, name) for name in runs}, folder / "metrics.json")
    metrics = {"command": f"python -m coursekit.recipes.vit {what}", "steps": STEPS[what], "accuracy": found}
    if what == "curves":
        metrics["parameters"] = {kind: sum(p.numel() for p in KINDS[kind]().parameters()) for kind in COMPARED}
    (checkpoints / f"vit-{what}").mkdir(parents=True, exist_ok=True)
    save_json(checkpoints / f"vit-{what}" / "metrics.json", metrics)
    return metrics


def load() -> ViT:
    """The shipped model, in float32 and in eval mode."""
    return ViT.from_pretrained(CHECKPOINTS / "vit")


def main(arguments: Sequence[str] | None = None) -> None:
    alone = dict.fromkeys(("curves", "shuffled"), "these are several short runs, one after another")
    chosen = read_command(
        "vit", __doc__, arguments, VARIANTS, named=lambda what: "vit" if what == "vit" else f"vit-{what}", alone=alone
    )
    folders = chosen.folder, chosen.out or CHECKPOINTS
    report(train(*folders) if chosen.variant == "vit" else measure_all(chosen.variant, *folders))


if __name__ == "__main__":
    main()
