"""Weights of a ViT by the names of DINO's own program, which timm has too, as this course's ``ViT``."""

import re
from collections.abc import Mapping
from math import isqrt

import torch
from torch import Tensor

from coursekit.convert.undrawn import undrawn
from coursekit.models.vit import ViT, ViTConfig

BEFORE = r"^((module|backbone)\.)+"  # what its training puts in front
LEFT = r"^head\.(mlp|last_layer)\."  # of the projection head
NAMES = {  # theirs -> ours
    r"^cls_token$": "class_token",
    r"^pos_embed$": "positions.encoding",
    r"^patch_embed\.proj\.": "patch_embedding.",
    r"\.norm1\.": ".attention_residual.norm.",
    r"\.attn\.qkv\.": ".attention.qkv.",
    r"\.attn\.proj\.": ".attention.out.",
    r"\.norm2\.": ".feed_forward_residual.norm.",
    r"\.mlp\.fc1\.": ".feed_forward.up.",
    r"\.mlp\.fc2\.": ".feed_forward.down.",
}
WRAPPED = ("class_token", "positions.encoding")  # theirs have one more axis in front, of size 1
HEAD_SIZE = 64  # in every published model


def our_name(name: str) -> str:
    for theirs, ours in NAMES.items():
        name = re.sub(theirs, ours, name)
    return name


def from_dino(weights: Mapping[str, Tensor], n_heads: int | None = None) -> ViT:
    """A ``ViT`` without a head, in float32 and in eval mode, from weights such as ``blocks.0.attn.qkv.weight``.

    The sizes are read from the weights. ``module.`` and ``backbone.`` in front of names are passed over; a projection
    head is left behind.

    Args:
        weights: by their names; a training's file has them for ``"student"`` and ``"teacher"``.
        n_heads: H, the one size that no weight tells; None for heads of 64 numbers, as published.

    Raises:
        ValueError: weights are missing, too many, or of another shape.
    """
    weights = {re.sub(BEFORE, "", name): tensor for name, tensor in weights.items()}
    found = {
        our_name(name): tensor.to(torch.float32, copy=True)
        for name, tensor in weights.items()
        if not re.match(LEFT, name)
    }
    for name in (*WRAPPED, "patch_embedding.weight", "blocks.0.feed_forward.up.weight"):
        if name not in found:
            raise ValueError(f"no weight for {name}, so this is no ViT of DINO's program")
    found |= {name: found[name].flatten(0, 1) for name in WRAPPED}
    d_model, channels, patch_size, _ = found["patch_embedding.weight"].shape
    side = isqrt(len(found["positions.encoding"]) - 1)
    blocks = {int(name.split(".")[1]) for name in found if name.startswith("blocks.")}
    config = ViTConfig(
        image_size=side * patch_size,
        patch_size=patch_size,
        channels=channels,
        d_model=d_model,
        n_heads=max(1, d_model // HEAD_SIZE) if n_heads is None else n_heads,
        d_ff=len(found["blocks.0.feed_forward.up.weight"]),
        n_layers=max(blocks) + 1,
        classes=0,
        resize="dino",
    )
    with undrawn():
        model = ViT(config)
    wanted = {name: p.shape for name, p in model.state_dict().items()}
    for what, names in (("no weight for", wanted.keys() - found), ("no place for", found.keys() - wanted)):
        if names:
            raise ValueError(f"{what} {min(names)}, so this is no ViT of DINO's program")
    for name, shape in wanted.items():
        if found[name].shape != shape:
            raise ValueError(f"{name} is {tuple(found[name].shape)}, the other weights say {tuple(shape)}")
    model.load_state_dict(found, assign=True)
    return model.eval()
