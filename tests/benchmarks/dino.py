"""DINO's training step beside a plain program's, with the same weights and the same loss.

A step is all that an update takes: views drawn, student and teacher, loss, backward pass, clipping, AdamW, teacher and
centre. The plain program is written as algorithm 1 of the paper reads: a forward pass for each crop, loops over pairs,
parameters and images, the layers of PyTorch; its views are drawn by Pillow, one after another, as DINO's own program
does. With the "head once" it puts the vectors of all crops through the projection head together, as that program does
too: with many outputs most of what ours gains is that the head's weights are normalised once.

Both spend most of their time in the same kernels, at nearly the same shapes, if both compute in float32; there neither
can be much faster. What ours gains more is bfloat16, in which ``Training`` runs where it is fast. Nothing is dropped:
there is no stochastic depth in ``nn.TransformerEncoderLayer``.
"""

import copy
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

from coursekit.data.batches import Batch, Fresh
from coursekit.data.crops import FLIPPED, GLOBAL, GREY, LOCAL, Odds, multi_crop
from coursekit.models.dino import DINO, DINOConfig, Network, dino_loss
from coursekit.models.vit import ViTConfig
from coursekit.nn.positions import resize_grid
from coursekit.recipes import dino as recipe
from coursekit.recipes.vit import scaled
from coursekit.train import Training, adamw
from coursekit.train.device import has_fast_bf16
from tests.benchmarks.shared import Row, clock, ratio

RATE, DECAY, CLIP = 1e-4, 0.04, 3.0
STEPS = {"whole step": 1, "views given": 0}  # whether views are drawn in it
PROGRAMS = {"": 3, ", head once": 4}  # where `compare` has the plain program's seconds


class Case(NamedTuple):
    """What is trained, on how many images of which size, and how views are drawn of them."""

    config: DINOConfig
    batch_size: int
    pixels: int
    crops: dict[str, Any]
    colours: dict[str, float]


PUBLISHED = {"n_local": 6, "sizes": (224, 96), "scales": ((0.4, 1.0), (0.05, 0.4)), "sigma": (0.1, 2.0)}
CASES = {
    "lecture": Case(recipe.config(6000), recipe.BATCH, 32, recipe.CROPS, recipe.COLOURS),
    "S/16": Case(
        DINOConfig.s16(vit=ViTConfig.s16(classes=0, resize="dino")),
        **{"batch_size": 2, "pixels": 256, "crops": PUBLISHED},
        colours={"brightness": 0.4, "contrast": 0.4, "saturation": 0.2, "hue": 0.1},
    ),
}


# --- The plain program -----------------------------------------------------------------------------------------


class Plain(nn.Module):
    """A network for one crop: ViT and projection head of PyTorch's layers, with the weights of ours."""

    def __init__(self, config: DINOConfig, ours: Network):
        super().__init__()
        c = config.vit
        self.side = c.image_size // c.patch_size
        self.patches = nn.Conv2d(c.channels, c.d_model, c.patch_size, c.patch_size)
        self.token = nn.Parameter(ours.backbone.class_token.detach().clone())
        self.positions = nn.Parameter(ours.backbone.positions.encoding.detach().clone())
        options = {"dropout": 0.0, "activation": "gelu", "layer_norm_eps": c.eps, "batch_first": True}
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(c.d_model, c.n_heads, c.d_ff, norm_first=True, **options)
            for _ in range(c.n_layers)
        )
        self.norm = nn.LayerNorm(c.d_model, eps=c.eps)
        one, two, three = (nn.Linear(c.d_model, config.d_head), nn.Linear(config.d_head, config.d_head),
                           nn.Linear(config.d_head, config.bottleneck))  # fmt: skip
        self.mlp = nn.Sequential(one, nn.GELU(), two, nn.GELU(), three)
        self.last = weight_norm(nn.Linear(config.bottleneck, config.out_dim, bias=False))
        self.last.parametrizations.weight.original0.requires_grad_(False)
        pairs = [(self.patches, ours.backbone.patch_embedding), (self.norm, ours.backbone.norm)]
        pairs += [(self.mlp, ours.head.mlp), (self.last, ours.head.last)]
        for layer, block in zip(self.layers, ours.backbone.blocks):
            layer.self_attn.in_proj_weight.data.copy_(block.attention.qkv.weight)
            layer.self_attn.in_proj_bias.data.copy_(block.attention.qkv.bias)
            pairs += [(layer.self_attn.out_proj, block.attention.out), (layer.norm1, block.attention_residual.norm)]
            pairs += [(layer.linear1, block.feed_forward.up), (layer.linear2, block.feed_forward.down)]
            pairs += [(layer.norm2, block.feed_forward_residual.norm)]
        for mine, its in pairs:
            mine.load_state_dict(its.state_dict())

    def read(self, crop: Tensor) -> Tensor:
        """(B, C, side, side) -> the class token's vector (B, D)."""
        x = self.patches(crop)
        rows, columns = x.shape[2:]
        x = torch.cat([self.token.expand(len(x), 1, -1), x.flatten(2).transpose(1, 2)], dim=1)
        positions = self.positions
        if rows != self.side:
            cells = resize_grid(positions[1:].unflatten(0, (self.side, self.side)), (rows, columns), "dino")
            positions = torch.cat([positions[:1], cells.flatten(0, 1)])
        x = x + positions
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)[:, 0]

    def head(self, x: Tensor) -> Tensor:
        """(..., D) -> logits (..., K)."""
        return self.last(F.normalize(self.mlp(x), dim=-1))

    def forward(self, crops: Sequence[Tensor], head_once: bool) -> Sequence[Tensor]:
        """The logits of each crop."""
        if head_once:
            return self.head(torch.stack([self.read(crop) for crop in crops])).unbind()
        return [self.head(self.read(crop)) for crop in crops]


class PlainProgram:
    """Student, teacher, centre, and an update as it is usually written."""

    def __init__(self, config: DINOConfig, ours: DINO, head_once: bool):
        self.config, self.step, self.head_once = config, 0, head_once
        self.student = Plain(config, ours.student)
        self.teacher = copy.deepcopy(self.student).requires_grad_(False).eval()
        self.centre = torch.zeros(config.out_dim)
        learned = [p for p in self.student.parameters() if p.requires_grad]
        groups = [{"params": [p for p in learned if p.dim() > 1], "weight_decay": DECAY}]
        groups += [{"params": [p for p in learned if p.dim() == 1], "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=RATE)

    def loss(self, batch: Batch) -> tuple[Tensor, Sequence[Tensor]]:
        """The mean over images and pairs, and the teacher's logits."""
        wide = batch["global"].unbind(dim=1)
        with torch.no_grad():
            teacher = self.teacher(wide, self.head_once)
        student = self.student((*wide, *batch["local"].unbind(dim=1)), self.head_once)
        total, terms = 0.0, 0
        for i, logits in enumerate(teacher):
            target = ((logits - self.centre) / self.config.teacher_temperature[1]).softmax(dim=-1)
            for j, other in enumerate(student):
                if i != j:
                    total = total - (target * (other / self.config.student_temperature).log_softmax(-1)).sum(-1).mean()
                    terms += 1
        return total / terms, teacher

    def update(self, batch: Batch) -> None:
        loss, teacher = self.loss(batch)
        self.optimizer.zero_grad()
        loss.backward()
        for p in self.student.parameters():
            if p.grad is not None:
                factor = CLIP / (p.grad.norm() + 1e-6)
                if factor < 1:
                    p.grad.mul_(factor)
        self.optimizer.step()
        half = 0.5 * (1 + math.cos(math.pi * self.step / self.config.steps))
        m = 1 - (1 - self.config.momentum) * half
        with torch.no_grad():
            for mine, its in zip(self.teacher.parameters(), self.student.parameters()):
                mine.mul_(m).add_((1 - m) * its)
            mean = torch.cat(teacher).mean(dim=0)
            self.centre = self.centre * self.config.centre_momentum + mean * (1 - self.config.centre_momentum)
        self.step += 1


def view(image: Image.Image, size: int, scale: tuple[float, float], odds: Odds, case: Case) -> Tensor:
    """One view, as the functions of torchvision draw it from a Pillow image."""
    (W, H), colours = image.size, case.colours
    share = random.uniform(*scale) * W * H
    for _ in range(10):
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = math.sqrt(share * ratio), math.sqrt(share / ratio)
        if w <= W and h <= H:
            break
    else:
        w, h = W, H
    left, top = random.uniform(0, W - w), random.uniform(0, H - h)
    x = image.resize((size, size), Image.Resampling.BILINEAR, box=(left, top, left + w, top + h))
    if random.random() < FLIPPED:
        x = x.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    if random.random() < 0.8:
        kinds = {"brightness": ImageEnhance.Brightness, "contrast": ImageEnhance.Contrast}
        for name, kind in (kinds | {"saturation": ImageEnhance.Color}).items():
            x = kind(x).enhance(random.uniform(1 - colours[name], 1 + colours[name]))
        turn = round(255 * random.uniform(-colours["hue"], colours["hue"])) % 256
        hue, *others = x.convert("HSV").split()
        hue = Image.fromarray(np.array(hue) + np.uint8(turn))
        x = Image.merge("HSV", (hue, *others)).convert("RGB")
    if random.random() < GREY:
        x = x.convert("L").convert("RGB")
    if random.random() < odds.blur:
        x = x.filter(ImageFilter.GaussianBlur(random.uniform(*case.crops["sigma"])))
    if random.random() < odds.solarise:
        x = ImageOps.solarize(x)
    return scaled(torch.from_numpy(np.array(x)).permute(2, 0, 1).float() / 255)


def draw_plainly(images: list[Image.Image], case: Case) -> Batch:
    kinds = {"global": GLOBAL, "local": (LOCAL,) * case.crops["n_local"]}
    sizes, scales = (dict(zip(kinds, case.crops[name])) for name in ("sizes", "scales"))
    return {
        name: torch.stack(
            [torch.stack([view(one, sizes[name], scales[name], odds, case) for odds in views]) for one in images]
        )
        for name, views in kinds.items()
    }


# --- Both ------------------------------------------------------------------------------------------------------


class Last:
    """Endless batches that are always the last one drawn: so that drawing and learning are timed apart."""

    batch: Batch

    def __next__(self) -> Batch:
        return self.batch

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


def compare(case: Case, precision: str) -> list[tuple[float, ...]]:
    """Seconds of five things in turn, in each round: our drawing of views and the rest of our step; the plain drawing,
    the rest of the plain step, and of that with the head once.

    Raises:
        AssertionError: in float32 and with the same views the losses differ, at first or after two updates.
    """
    torch.manual_seed(0)
    t = case.config.teacher_temperature[1]
    config = replace(case.config, freeze_last_layer=0, teacher_temperature=(t, t))
    ours = DINO(config)
    plain, once = (PlainProgram(config, ours, head_once) for head_once in (False, True))
    data, options = Last(), {"clip": CLIP, "clip_each": True, "after_update": DINO.update_teacher}
    options |= {"log_every": config.steps, "precision": precision}
    training = Training(ours, dino_loss, data, adamw(ours, RATE, DECAY), config.steps, **options)
    images = torch.randint(256, (case.batch_size, 3, case.pixels, case.pixels), dtype=torch.uint8)
    pillows = [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in images]

    def make(generator: torch.Generator) -> Batch:
        views = multi_crop(images.float() / 255, generator, **case.crops, colours=case.colours)
        return {name: scaled(views[name]) for name in ("global", "local")}

    def draw() -> None:
        data.batch = next(fresh)

    fresh = Fresh(make)
    draw()
    draw_plainly(pillows, case)
    for updates in range(3):
        if updates:  # these warm up too
            training.update()
            plain.update(data.batch)
            once.update(data.batch)
        if precision == "float32":
            with torch.no_grad():
                losses = [loss_of(ours, data.batch), *(one.loss(data.batch)[0].item() for one in (plain, once))]
            same = all(math.isclose(loss, losses[0], rel_tol=1e-4) for loss in losses)
            assert same, f"the losses after {updates} updates are {losses}"
    parts = (draw, training.update, lambda: draw_plainly(pillows, case))
    parts += tuple(lambda one=one: one.update(data.batch) for one in (plain, once))
    return clock(*parts)


def loss_of(model: DINO, batch: Batch) -> float:
    total, count = dino_loss(model.eval(), batch)  # in training mode it would be kept for the next update
    model.train()
    return (total / count).item()


def beside(name: str, precision: str) -> Iterator[Row]:
    """Our step beside the plain ones, which always compute in float32, with and without the drawing of views."""
    case = CASES[name]
    rounds = compare(case, precision)
    aim = 1.45  # for the whole step beside the program as the paper writes it; the others explain it
    for (how, column), (what, views) in product(PROGRAMS.items(), STEPS.items()):
        row = Row("09 DINO", f"{name}, {precision}: {what}", f"plain program, float32{how}", at_least=aim)
        pairs = [(views * one[0] + one[1], views * one[2] + one[column]) for one in rounds]
        yield ratio(replace(row, measured_in="images/s"), pairs, amount=case.batch_size)
        aim = None
    row = Row("09 DINO", f"{name}, {precision}: drawing views, share of", "our whole step", at_most=0.15, unit="%")
    yield ratio(row, [(one[0] + one[1], one[0]) for one in rounds])


def parts() -> list[Callable[[], Iterator[Row]]]:
    precisions = ("float32", "bfloat16") if has_fast_bf16(torch.device("cpu")) else ("float32",)
    return [partial(beside, "lecture", precision) for precision in precisions] + [partial(beside, "S/16", "float32")]
