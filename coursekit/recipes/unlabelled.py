"""What the recipes of SiT and DINO share: images without labels, and what vectors of images are worth."""

from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from coursekit.data.shapes import Shapes, shapes
from coursekit.evaluate.features import knn, linear_probe
from coursekit.recipes.runs import versions
from coursekit.recipes.vit import as_numbers
from coursekit.train import Training
from coursekit.train.checkpoint import save_json
from coursekit.train.loop import Record

IMAGES, GALLERY = 30_000, 4800
QUERIES = {"validation": 1200, "test": 2400}


@cache
def images_of(split: str, n: int, scene: int = 0) -> Shapes:
    return shapes(n, split, scene=scene)


def pictures(n: int) -> Tensor:
    """Two pictures of each of n objects, in two scenes, (n, 2, 3, 32, 32) uint8."""
    return torch.stack([images_of("train", n, scene=scene).images for scene in (0, 1)], dim=1)


def drawn_from(images: Tensor, batch_size: int, generator: torch.Generator) -> Tensor:
    """A batch of them by lot, as floats in 0..1."""
    return images[torch.randint(len(images), (batch_size,), generator=generator)].float() / 255


def known() -> Tensor:
    """The images whose labels are known where features are judged, as the models read them."""
    return as_numbers(images_of("train", GALLERY).images)


def asked(split: str) -> Tensor:
    return as_numbers(images_of(split, QUERIES[split]).images)


def evaluate_features(features: Tensor, queries: Tensor, split: str) -> dict[str, float]:
    """How many of the images ``asked`` of a split get the right class from the features of those ``known``.

    Args:
        features: of ``known()``, (n, D).
        queries: of ``asked(split)``.

    Returns:
        ``knn``, with 20 neighbours, and ``probe``, a linear layer.
    """
    labels, truth = images_of("train", GALLERY).labels, images_of(split, QUERIES[split]).labels
    found = {"knn": knn(features, labels, queries), "probe": linear_probe(features, labels, queries)}
    return {name: (classes == truth).float().mean().item() for name, classes in found.items()}


def joined(runs: Sequence[Training]) -> list[Record]:
    """The records of runs of which each goes on with what the one before has learned, their steps counted on."""
    before = [0, *accumulate(run.step for run in runs)]
    return [{**record, "step": n + record["step"]} for n, run in zip(before, runs) for record in run.history]


def write_metrics(command: str, folder: Path, steps: int, **more: Any) -> dict[str, Any]:
    """Write what the run of ``python -m coursekit.recipes.<command>`` has come to beside its weights; returned too."""
    metrics = {
        "command": f"python -m coursekit.recipes.{command}",
        "steps": steps,
        "images": IMAGES,
        "versions": versions(),
    } | more
    folder.mkdir(parents=True, exist_ok=True)
    save_json(folder / "metrics.json", metrics)
    return metrics
