"""A small DINO, trained without labels on two pictures of each object.

``python -m coursekit.recipes.dino`` trains the one that is shipped and writes its teacher to ``checkpoints/dino``
beside this file: float16 weights in Hugging Face's layout, and ``metrics.json``. It learns in two stages, the later
with strong changes of colour. It can be stopped and started again at will.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from coursekit.convert.hub import write_model
from coursekit.convert.vit import from_hugging_face, to_hugging_face
from coursekit.data.batches import Batch, Fresh
from coursekit.data.crops import multi_crop
from coursekit.evaluate.features import Segmentation, extract, segment
from coursekit.models.dino import DINO, DINOConfig, dino_loss
from coursekit.models.vit import ViT, ViTConfig
from coursekit.nn.attention import record_attention
from coursekit.recipes import CHECKPOINTS, unlabelled
from coursekit.recipes.runs import Clock, read_command, report, to_the_end
from coursekit.recipes.vit import as_numbers, scaled
from coursekit.train import Training, adamw, device, seed, warmup_cosine

VIT = ViTConfig(32, 4, d_model=64, n_heads=4, d_ff=256, n_layers=4, classes=0, resize="dino")
HEAD = {"d_head": 256, "bottleneck": 64, "out_dim": 256}
TEMPERATURES, MOMENTUM = (0.0125, 0.02), 0.99
BATCH, RATE, WARMUP, SAVE_EVERY, EVALUATE_EVERY = 48, 2e-3, 300, 250, 250
STEPS = 6000
LATER, LATER_RATE = 4000, 1e-3  # updates with strong colours, and their learning rate
# the image is as large as a published local view: views are cut less, and colours changed less
CROPS = {"n_local": 2, "sizes": (32, 16), "scales": ((0.7, 1.0), (0.3, 0.6)), "sigma": (0.1, 0.5)}
COLOURS = {"brightness": 0.3, "contrast": 0.3, "saturation": 0.3, "hue": 0.1}
# Colour is the first thing by which objects are told apart; without it the first 500 updates come to nothing. What has
# been learned with it stays when it is taken away, and new combinations of colour and shape are known better.
STRONG = COLOURS | {"saturation": 0.5, "hue": 0.5}


def config(steps: int, later: bool = False) -> DINOConfig:
    warm = {"teacher_temperature": TEMPERATURES, "teacher_temperature_warmup": steps // 2, "freeze_last_layer": 150}
    warmed = {"teacher_temperature": TEMPERATURES[1:] * 2, "teacher_temperature_warmup": 1, "freeze_last_layer": 0}
    return DINOConfig(VIT, **HEAD, momentum=MOMENTUM, steps=steps, **(warmed if later else warm))


def in_batches(images: Tensor, start: int = 0, later: bool = False) -> Fresh:
    """Endless batches of views of objects drawn by lot; see ``unlabelled.pictures``."""

    def make(generator: torch.Generator) -> Batch:
        views = multi_crop(
            unlabelled.drawn_from(images, BATCH, generator), generator, **CROPS, colours=STRONG if later else COLOURS
        )
        return {name: scaled(views[name]) for name in ("global", "local")}

    return Fresh(make, start)


@torch.no_grad()
def segmented(vit: ViT, split: str, n: int = 400) -> Segmentation:
    """What the heads of the last block find of the objects in the first n images of a split."""
    found = unlabelled.images_of(split, unlabelled.QUERIES[split])
    images = as_numbers(found.images[:n]).to(next(vit.parameters()).device)
    with record_attention(vit) as maps:
        vit.eval()(images)
    *_, (last,) = maps.values()
    return segment(last.cpu(), found.masks[:n], vit.config.patch_size)


def evaluate_features(vit: ViT, split: str) -> dict[str, float]:
    """Right answers from its features, and the Jaccard index of the head that is best on the validation images."""
    found = unlabelled.evaluate_features(extract(vit, unlabelled.known()), extract(vit, unlabelled.asked(split)), split)
    head = segmented(vit, "validation").best
    return found | {"jaccard": segmented(vit, split).per_head[head].item()}


def run(folder: Path, clock: Clock, begun: DINO | None = None) -> tuple[DINO, Training]:
    """Train one, or go on where ``folder`` says; with strong colours what has ``begun`` without them."""
    seed(0)
    later = begun is not None
    steps, rate = (LATER, LATER_RATE) if later else (STEPS, RATE)
    model = DINO(config(steps, later)).to(device())
    if begun is not None:
        model.load_state_dict(begun.state_dict())
        model.step = 0
    images, often = unlabelled.pictures(unlabelled.IMAGES), max(1, min(EVALUATE_EVERY, steps // 4))
    unseen = next(in_batches(images, 10**6, later))

    def evaluate(model: DINO) -> dict[str, float]:
        clock.save()
        return model.diagnose(unseen) | evaluate_features(model.teacher.backbone, "validation")

    training = Training(
        model,
        dino_loss,
        in_batches(images, int(later), later),
        adamw(model, rate, weight_decay=0.04),
        steps,
        schedule=warmup_cosine(min(WARMUP, steps // 4)),
        clip=3.0,
        clip_each=True,
        log_every=often,
        evaluate=evaluate,
        evaluate_every=often,
        monitor="knn",
        higher_is_better=True,
        after_update=DINO.update_teacher,
        folder=folder,
        save_every=SAVE_EVERY,
    )
    to_the_end(training, f"dino, {folder.name}", clock)
    return model, training


def train(folder: Path, checkpoints: Path = CHECKPOINTS) -> dict[str, Any]:
    """Train, measure, and write the teacher, rounded to float16, with what was measured."""
    clock = Clock(folder / "seconds.json")
    model, first = run(folder / "first", clock)
    model, second = run(folder / "later", clock, begun=model)
    described, weights = to_hugging_face(model.teacher.backbone.cpu())
    weights = {name: tensor.half() for name, tensor in weights.items()}
    rounded = from_hugging_face(ViT, described, weights)
    measured = {
        "parameters": sum(p.numel() for p in rounded.parameters()),
        "seconds": round(clock.seconds()),
        "test": evaluate_features(rounded, "test"),
        "curve": unlabelled.joined([first, second]),
    }
    write_model(checkpoints / "dino", described, weights)
    return unlabelled.write_metrics("dino", checkpoints / "dino", first.step + second.step, **measured)


def load() -> ViT:
    """The shipped teacher, in float32 and in eval mode."""
    return ViT.from_pretrained(CHECKPOINTS / "dino")


def main(arguments: Sequence[str] | None = None) -> None:
    alone = {"dino": "its centre is the mean over all views of a batch"}
    _, folder, out, _ = read_command("dino", __doc__, arguments, alone=alone)
    report(train(folder, out or CHECKPOINTS))


if __name__ == "__main__":
    main()
