"""Weights by the names of DINO's program, beside its network written out again as functions of these weights."""

import math

import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional as F

from coursekit.convert.dino import from_dino
from coursekit.models.dino import DINO, DINOConfig
from coursekit.models.vit import ViT, ViTConfig

D, H, FF, L, P, SIDE, C = 12, 3, 20, 2, 3, 12, 2


def theirs(D: int = D, seed: int = 0) -> dict[str, torch.Tensor]:
    """All at random."""
    shapes = {
        "cls_token": (1, 1, D),
        "pos_embed": (1, (SIDE // P) ** 2 + 1, D),
        "patch_embed.proj.weight": (D, C, P, P),
    }
    shapes |= {"patch_embed.proj.bias": (D,), "norm.weight": (D,), "norm.bias": (D,)}
    for i in range(L):
        inside = {"norm1": (D,), "norm2": (D,), "attn.qkv": (3 * D, D), "attn.proj": (D, D), "mlp.fc1": (FF, D)}
        for name, shape in (inside | {"mlp.fc2": (D, FF)}).items():
            shapes |= {f"blocks.{i}.{name}.weight": shape, f"blocks.{i}.{name}.bias": shape[:1]}
    generator = torch.Generator().manual_seed(seed)
    found = {name: torch.randn(shape, generator=generator) * 0.3 for name, shape in shapes.items()}
    return {name: x + 1 if "norm" in name and name.endswith("weight") else x for name, x in found.items()}


def said(w: dict[str, torch.Tensor], images: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """All tokens behind the last norm."""

    def linear(name, x):
        return F.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])

    def norm(name, x):
        return F.layer_norm(x, (D,), w[f"{name}.weight"], w[f"{name}.bias"], 1e-6)

    x = F.conv2d(images, w["patch_embed.proj.weight"], w["patch_embed.proj.bias"], stride=P).flatten(2).mT
    x = torch.cat([w["cls_token"].expand(len(x), -1, -1), x], dim=1)
    code, side = w["pos_embed"], SIDE // P
    if (rows, columns) != (side, side):
        cells = code[:, 1:].reshape(1, side, side, D).permute(0, 3, 1, 2)
        scale = ((rows + 0.1) / side, (columns + 0.1) / side)
        cells = F.interpolate(cells, scale_factor=scale, mode="bicubic").permute(0, 2, 3, 1).reshape(1, -1, D)
        code = torch.cat([code[:, :1], cells], dim=1)
    x = x + code
    for i in range(L):
        b = f"blocks.{i}"
        qkv = linear(f"{b}.attn.qkv", norm(f"{b}.norm1", x)).view(len(x), -1, 3, H, D // H).permute(2, 0, 3, 1, 4)
        weights = (qkv[0] @ qkv[1].mT / math.sqrt(D // H)).softmax(dim=-1)
        x = x + linear(f"{b}.attn.proj", (weights @ qkv[2]).transpose(1, 2).reshape(x.shape))
        x = x + linear(f"{b}.mlp.fc2", F.gelu(linear(f"{b}.mlp.fc1", norm(f"{b}.norm2", x))))
    return norm("norm", x)


HEAD = {f"head.mlp.{i}.{part}": torch.zeros(4) for i in (0, 2, 4) for part in ("weight", "bias")}
HEAD |= {f"head.last_layer.weight_{part}": torch.zeros(4) for part in "gv"}
WAYS = {
    "alone": lambda w: w,
    "of a training": lambda w: (
        {f"module.backbone.{n}": x for n, x in w.items()} | {f"module.{n}": x for n, x in HEAD.items()}
    ),
    "of a teacher": lambda w: {f"backbone.{n}": x for n, x in w.items()} | HEAD,
    "in half the precision": lambda w: {n: x.half() for n, x in w.items()},
}


@pytest.mark.parametrize(("height", "width"), [(12, 12), (6, 24), (15, 9), (27, 24)])
@pytest.mark.parametrize("way", WAYS)
def test_all_tokens_equal_the_original(way, height, width):
    weights = WAYS[way](theirs())
    model = from_dino(weights, H)
    assert model.config == ViTConfig(SIDE, P, C, D, H, FF, L, classes=0, eps=1e-6, resize="dino")
    assert not model.training
    images = torch.randn(2, C, height, width, generator=torch.Generator().manual_seed(1))
    plain = {name: x.half().float() if "half" in way else x for name, x in theirs().items()}
    expected = said(plain, images, height // P, width // P)
    assert expected.std() > 0.1, "it says nothing"
    torch.testing.assert_close(model.hidden(images), expected, atol=2e-5, rtol=1e-5)
    torch.testing.assert_close(model(images), expected[:, 0], atol=2e-5, rtol=1e-5)


def test_a_published_model_has_heads_of_64_numbers():
    assert [from_dino(theirs(D)).config.n_heads for D in (12, 64, 192)] == [1, 1, 3]


@pytest.mark.parametrize("name", ["cls_token", "blocks.1.norm2.bias", "blocks.0.mlp.fc1.weight", "norm.weight"])
def test_missing_weights_are_named(name):
    with pytest.raises(ValueError, match=r"no weight for .*, so this is no ViT of DINO's program"):
        from_dino({n: x for n, x in theirs().items() if n != name}, H)


def test_others_are_refused():
    for name in ("head.weight", "fc_norm.weight", "blocks.1.ls1.gamma", "reg_token"):
        with pytest.raises(ValueError, match=f"no place for {name}, so this is no ViT of DINO's program"):
            from_dino(theirs() | {name: torch.zeros(1)}, H)
    with pytest.raises(ValueError, match=r"attention.out.weight is \(12, 13\), the other weights say \(12, 12\)"):
        from_dino(theirs() | {"blocks.1.attn.proj.weight": torch.zeros(D, 13)}, H)


def test_the_weights_are_copies():
    weights = theirs()
    before = {name: x.clone() for name, x in weights.items()}
    with torch.no_grad():
        for p in from_dino(weights, H).parameters():
            p.zero_()
    assert all(torch.equal(x, before[name]) for name, x in weights.items())


def test_our_own_teacher_is_kept_in_the_hubs_layout(tmp_path):
    """What is used after training, ``teacher.backbone``, is a ViT as any other."""
    c = DINOConfig(ViTConfig(SIDE, P, C, D, H, FF, L, classes=0, resize="dino"), 8, 4, 5)
    backbone, images = DINO(c).teacher.backbone, torch.randn(2, C, 6, 24)
    backbone.save_pretrained(tmp_path)
    assert "embeddings.cls_token" in load_file(tmp_path / "model.safetensors")
    torch.testing.assert_close(ViT.from_pretrained(tmp_path)(images), backbone(images), atol=1e-5, rtol=1e-5)
    assert all(map(torch.equal, ViT.from_pretrained(tmp_path).state_dict().values(), backbone.state_dict().values()))
