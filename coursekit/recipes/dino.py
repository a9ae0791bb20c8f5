"""A small DINO, trained without labels on two pictures of each object, and its rival, trained on labels.

``python -m coursekit.recipes.dino dino`` trains the one that is shipped and writes its teacher to ``checkpoints/dino``
beside this file: float16 weights in Hugging Face's layout, and ``metrics.json``. ``… dino-supervised`` trains the same
network on the labels of the same pictures, changed in the same ways, into ``checkpoints/dino-supervised``. Both can be
stopped and started again at will.

The pictures are of 64 × 64 pixels, and objects in them are smaller and further from the middle than in lectures 07 and
08, so that neither a disc nor a fixed patch says where they are.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from coursekit.convert.hub import write_model
from coursekit.convert.vit import from_hugging_face, to_hugging_face
from coursekit.data.batches import Batch
from coursekit.data.crops import multi_crop
from coursekit.data.shapes import CLASSES, Shapes, shapes
from coursekit.evaluate.features import Segmentation, extract, knn, linear_probe, segment
from coursekit.models.dino import DINO, DINOConfig, dino_loss
from coursekit.models.vit import ViT, ViTConfig, vit_loss
from coursekit.nn.attention import record_attention
from coursekit.recipes import unlabelled
from coursekit.recipes.runs import Clock, read_command, report
from coursekit.recipes.vit import CHECKPOINTS, as_numbers, scaled
from coursekit.train import Training, adamw, device, seed, warmup_cosine

VARIANTS = {
    "dino": "the teacher that is shipped",
    "dino-supervised": "the same network trained on labels",
}
SIZE, EXTENT = 64, (0.4, 0.75)  # of the pictures in pixels, of the objects in them as shares of the side
IMAGES, GALLERY = 12_000, 4800
QUERIES = {"validation": 1200, "test": 2400}
VIT = ViTConfig(SIZE, 8, d_model=96, n_heads=6, d_ff=384, n_layers=4, classes=0, resize="dino")
HEAD = {"d_head": 256, "bottleneck": 64, "outputs": 256}
TEMPERATURES, MOMENTUM = (0.0125, 0.02), 0.99
BATCH, RATE, WARMUP, SAVE_EVERY, EVALUATE_EVERY = 48, 2e-3, 300, 250, 500
DECAY, LAST_DECAY = 0.04, 0.4
STEPS = {"dino": 4000, "dino-supervised": 1500}
# two pictures of one object differ by themselves: views are cut less than published, and colours changed less
CROPS = {"n_local": 4, "sizes": (SIZE, SIZE // 2), "scales": ((0.6, 1.0), (0.25, 0.6)), "sigma": (0.1, 1.0)}
COLOURS = {"brightness": 0.3, "contrast": 0.3, "saturation": 0.3, "hue": 0.1}
# Colour is the first thing by which objects are told apart; without it the first 500 updates come to nothing. What has
# been learned with it stays when it is taken away, and new combinations of colour and shape are known better.
STRONG, STRONG_FROM = COLOURS | {"saturation": 0.5, "hue": 0.5}, 0.35
ENLARGED = 128  # pixels a side of the pictures whose attention is looked at, as the authors enlarge theirs
MASSES = tuple(n / 20 for n in range(6, 20))  # of which the best on validation images is kept


def config(steps: int) -> DINOConfig:
    warm = {"teacher_temperature": TEMPERATURES, "warmup": steps // 3, "frozen": min(150, steps // 4)}
    return DINOConfig(VIT, **HEAD, momentum=MOMENTUM, steps=steps, **warm)


@cache
def images_of(split: str, n: int, scene: int = 0) -> Shapes:
    return shapes(n, split, size=SIZE, scene=scene, extent=EXTENT)


def pictures(n: int) -> Tensor:
    """Two pictures of each of n objects, in two scenes, (n, 2, 3, 64, 64) uint8."""
    return torch.stack([images_of("train", n, scene).images for scene in (0, 1)], dim=1)


class Views:
    """Endless batches of views of images drawn at random; colours change strongly from ``STRONG_FROM`` of the run on.

    Args:
        images: (n, P, 3, height, width) uint8, P pictures of each object.
        steps: of the whole run.
        labels: (n,), for batches of single views with their labels, ``images`` and ``labels``; None for ``global`` and
            ``local`` views without.
        seed: of all that is random.
    """

    def __init__(self, images: Tensor, steps: int, labels: Tensor | None = None, seed: int = 0):
        self.images, self.steps, self.labels = images, steps, labels
        self.generator, self.drawn = torch.Generator().manual_seed(seed), 0

    def __iter__(self) -> "Views":
        return self

    def __next__(self) -> Batch:
        colours = STRONG if self.drawn >= STRONG_FROM * self.steps else COLOURS
        self.drawn += 1
        rows = torch.randint(len(self.images), (BATCH,), generator=self.generator)
        crops = CROPS if self.labels is None else CROPS | {"n_local": 0}
        views = multi_crop(self.images[rows].float() / 255, self.generator, **crops, colours=colours)
        if self.labels is None:
            return {name: scaled(views[name]) for name in ("global", "local")}
        seen = views["global"]
        return {
            "images": scaled(seen.flatten(0, 1)),
            "labels": self.labels[rows].repeat_interleave(seen.shape[1]),
        }

    def state_dict(self) -> dict[str, Any]:
        return {"generator": self.generator.get_state(), "drawn": self.drawn}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.generator.set_state(state["generator"])
        self.drawn = state["drawn"]


# --- What it has learned ---------------------------------------------------------------------------------------


def features(vit: ViT, images: Tensor) -> Tensor:
    """The class token's last state for images (n, 3, height, width) uint8, part by part: (n, D)."""
    return torch.cat(
        [extract(vit, as_numbers(part), read=lambda x: vit.pool(vit.hidden(x))) for part in images.split(400)]
    )


@torch.no_grad()
def attention(vit: ViT, images: Tensor, side: int = ENLARGED) -> Tensor:
    """What the class token of the last block gives to each patch, in each head: (n, H, rows, columns).

    Args:
        images: (n, 3, S, S) uint8; enlarged to ``side`` pixels, and the positions with them, for a finer map.
    """
    vit.eval()
    found = []
    for part in images.split(100):
        x = as_numbers(part).to(next(vit.parameters()).device)
        x = F.interpolate(x, size=(side, side), mode="bilinear", align_corners=False)
        with record_attention(vit) as maps:
            vit.hidden(x)
        *_, (last,) = maps.values()
        grid = side // vit.config.patch_size
        found.append(last[:, :, 0, -(grid**2) :].unflatten(2, (grid, grid)).cpu())
    return torch.cat(found)


def found_by(maps: Tensor, masks: Tensor, mass: float) -> Segmentation:
    """What maps (n, H, rows, columns) find of the objects whose masks are (n, S, S)."""
    patch = masks.shape[-1] // maps.shape[-1]
    # as ``segment`` reads them: a row of weights on the class token, which is none, and the patches
    weights = F.pad(maps.flatten(2), (1, 0))[:, :, None]
    return segment(weights, masks, patch, mass)


def best_mass(maps: Tensor, masks: Tensor) -> tuple[float, float]:
    """The share of a map's sum that finds most of the objects, and the Jaccard index reached."""
    tried = {mass: found_by(maps, masks, mass).per_head.max().item() for mass in MASSES}
    return max(tried.items(), key=lambda item: item[1])


def few_labels(known: Tensor, labels: Tensor, queries: Tensor, truth: Tensor, n: int, draws: int = 20) -> float:
    """Accuracy of a linear probe from ``n`` labels, as many of each class, on average over several choices of them."""
    right = []
    for draw in range(draws):
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(draw))
        rows = torch.cat([order[labels[order] == k][: n // len(CLASSES)] for k in range(len(CLASSES))])
        right.append((linear_probe(known[rows], labels[rows], queries) == truth).float().mean().item())
    return sum(right) / draws


def worth(vit: ViT, split: str, gallery: int | None = None, queries: int | None = None) -> dict[str, float]:
    """Right answers from its features, and how well the mean of its heads finds objects.

    The share of the map that is kept is chosen on validation images, whatever the split.
    """
    known, asked = (images_of("train", gallery or GALLERY), images_of(split, queries or QUERIES[split]))
    x, y = features(vit, known.images), features(vit, asked.images)
    found = {"knn": (knn(x, known.labels, y) == asked.labels).float().mean().item()}
    for n, draws in ((12, 20), (120, 5)):
        found[f"labels_{n}"] = few_labels(x, known.labels, y, asked.labels, n, draws)
    chosen, seen = images_of("validation", QUERIES["validation"]), asked
    maps = attention(vit, chosen.images[:400]).mean(dim=1, keepdim=True)
    found["mass"], found["jaccard"] = best_mass(maps, chosen.masks[:400])
    if split != "validation":
        maps = attention(vit, seen.images).mean(dim=1, keepdim=True)
        found["jaccard"] = found_by(maps, seen.masks, found["mass"]).per_head.item()
    return found


# --- Training --------------------------------------------------------------------------------------------------


def run(variant: str, folder: Path, clock: Clock) -> tuple[nn.Module, Training]:
    """Train one, or go on where ``folder`` says."""
    seed(0)
    steps = STEPS[variant]
    often = min(EVALUATE_EVERY, max(1, steps // 4))
    supervised = variant == "dino-supervised"
    model = (ViT(replace(VIT, classes=len(CLASSES)), CLASSES) if supervised else DINO(config(steps))).to(device())
    images, labels = pictures(IMAGES), images_of("train", IMAGES).labels if supervised else None
    backbone: Callable[[Any], ViT] = (lambda m: m) if supervised else (lambda m: m.teacher.backbone)
    unseen = next(Views(images, steps, labels, seed=10**6))

    def evaluate(model: Any) -> dict[str, float]:
        clock.save()
        diagnosed = {} if supervised else model.diagnose(unseen)
        return diagnosed | worth(backbone(model), "validation", min(GALLERY, 2400), min(QUERIES["validation"], 600))

    training = Training(
        model,
        vit_loss if supervised else dino_loss,
        Views(images, steps, labels),
        adamw(model, RATE / 2 if supervised else RATE, weight_decay=DECAY),
        steps,
        schedule=warmup_cosine(min(WARMUP, steps // 4)),
        decay_schedule=warmup_cosine(0, floor=LAST_DECAY / DECAY),
        clip=3.0,
        clip_each=True,
        log_every=often,
        evaluate=evaluate,
        evaluate_every=often,
        monitor="knn",
        higher_is_better=True,
        after_update=None if supervised else DINO.follow,
        folder=folder,
        save_every=SAVE_EVERY,
    )
    for record in training:
        print(json.dumps({name: float(f"{value:.4g}") for name, value in record.items()}), flush=True)
    return backbone(model), training


def train(variant: str, folder: Path, checkpoints: Path = CHECKPOINTS) -> dict[str, Any]:
    """Train and measure, and write the weights, rounded to float16."""
    clock = Clock(folder / "seconds.json")
    vit, training = run(variant, folder, clock)
    described, weights = to_hugging_face(vit.cpu())
    weights = {name: tensor.half() for name, tensor in weights.items()}
    rounded = from_hugging_face(ViT, described, weights)
    measured = {
        "images": IMAGES,
        "parameters": sum(p.numel() for p in rounded.parameters()),
        "seconds": round(clock.seconds()),
        "validation": worth(rounded, "validation"),
        "test": worth(rounded, "test"),
        "curve": list(training.history),
    }
    write_model(checkpoints / variant, described, weights)
    return unlabelled.write_metrics("dino", variant, checkpoints, training.step, **measured)


def load(variant: str = "dino") -> ViT:
    """The shipped teacher, or its rival ``"dino-supervised"``, in float32 and in eval mode."""
    return ViT.from_pretrained(CHECKPOINTS / variant)


def load_metrics(variant: str = "dino") -> dict[str, Any]:
    """What was measured of ``"dino"`` or ``"dino-supervised"``."""
    return json.loads((CHECKPOINTS / variant / "metrics.json").read_text(encoding="utf-8"))


def main(arguments: Sequence[str] | None = None) -> None:
    alone = {"dino": "its centre is the mean over all views of a batch"}
    chosen = read_command("dino", __doc__, arguments, VARIANTS, alone=alone)
    report(train(chosen.variant, chosen.folder, chosen.out or CHECKPOINTS))


if __name__ == "__main__":
    main()
