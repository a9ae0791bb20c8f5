"""ViT: its sizes, its numbers beside formulas written out again, its invariances, its beginning and its training.

Beside transformers it stands in ``tests/convert/test_vit.py``.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from coursekit.models.vit import ViT, ViTConfig, patchify, unpatchify, vit_loss
from coursekit.nn.attention import MultiHeadAttention, record_attention
from coursekit.nn.blocks import Block, DropPath, FeedForward, LastBlock
from coursekit.train import Training, adamw
from tests.conftest import randomise

SIDE, P, C, D, H, L, K = 12, 3, 2, 12, 3, 2, 5
N = (SIDE // P) ** 2
SMALL = {"image_size": SIDE, "patch_size": P, "channels": C, "d_model": D, "n_heads": H, "d_ff": 20, "n_layers": L}
SMALL |= {"classes": K}
KINDS = {
    "class": {},
    "mean": {"pooling": "mean"},
    "with a hidden layer": {"representation_size": 7},
    "without a head": {"classes": 0, "eps": 1e-12},
}


def make(seed: int = 0, **changes) -> ViT:
    model = randomise(ViT(ViTConfig(**SMALL | changes)), seed).double().eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("norm.weight"):
                p += 1  # much smaller, and each block says less of the patches than the one before
    return model


def pictures(B: int = 3, height: int = SIDE, width: int = SIDE, seed: int = 0) -> torch.Tensor:
    return torch.randn(B, C, height, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# --- sizes ----------------------------------------------------------------------------------------------------

SIZES = {  # of the published checkpoints for images of 224 x 224 and 1,000 classes, and as the papers round them
    "s16": (22_050_664, 22e6),
    "b16": (86_567_656, 86e6),
    "b32": (88_224_232, 88e6),
    "l16": (304_326_632, 307e6),
    "l32": (306_535_400, 307e6),
    "h14": (632_045_800, 632e6),
}


@pytest.mark.parametrize("preset", SIZES)
def test_parameters_of_the_published_models(preset):
    c = getattr(ViTConfig, preset)()
    with torch.device("meta"):
        model = ViT(c)
    exact, published = SIZES[preset]
    assert sum(p.numel() for p in model.parameters()) == exact
    assert exact == pytest.approx(published, rel=0.01)
    assert f"{exact:,}" in getattr(ViTConfig, preset).__doc__
    assert c.patch_size == int(preset[1:])
    assert (c.d_ff, c.image_size, c.classes, c.eps) == (4 * c.d_model, 224, 1000, 1e-6)
    assert c.d_model // c.n_heads == (80 if preset == "h14" else 64)
    patches = (224 // c.patch_size) ** 2  # counted once more, from the shapes of the paper
    block = 4 * c.d_model**2 + 4 * c.d_model + 8 * c.d_model**2 + 5 * c.d_model + 4 * c.d_model
    ends = (3 * c.patch_size**2 + 1) * c.d_model + (patches + 2) * c.d_model + 2 * c.d_model + (c.d_model + 1) * 1000
    assert exact == c.n_layers * block + ends


def test_presets_take_changes():
    assert ViTConfig.s16(classes=0, patch_size=8) == ViTConfig(224, 8, 3, 384, 6, 1536, 12, 0)
    assert ViTConfig.l32(d_ff=9) == ViTConfig(224, 32, 3, 1024, 16, 9, 24)


@pytest.mark.parametrize(
    "config",
    [
        ViTConfig(image_size=8, patch_size=2, channels=1, d_model=32, n_heads=4, d_ff=64, n_layers=2, classes=10),
        ViTConfig(image_size=32, patch_size=4, d_model=48, n_heads=4, d_ff=96, n_layers=1, classes=3),
    ],
    ids=["digits", "colour"],
)
def test_small_images_are_easy(config):
    images = torch.randn(2, config.channels, config.image_size, config.image_size)
    assert ViT(config)(images).shape == (2, config.classes)


# --- patches --------------------------------------------------------------------------------------------------


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 4), st.integers(1, 3), st.integers(1, 4))
def test_patches_by_hand_and_back(B, channels, size, rows, columns):
    images = torch.arange(B * channels * rows * size * columns * size).view(B, channels, rows * size, columns * size)
    found = patchify(images, size)
    assert found.shape == (B, rows * columns, channels * size * size)
    for b in range(B):
        for row in range(rows):
            for column in range(columns):
                numbers = [
                    images[b, c, row * size + y, column * size + x].item()
                    for c in range(channels)
                    for y in range(size)
                    for x in range(size)
                ]
                assert found[b, row * columns + column].tolist() == numbers
    assert torch.equal(unpatchify(found, size, (rows, columns)), images)
    if rows == columns:
        assert torch.equal(unpatchify(found, size), images)


def test_the_convolution_is_a_linear_layer_on_patches():
    model, images = make(), pictures(height=6, width=9)
    layer = model.patch_embedding
    expected = F.linear(patchify(images, P), layer.weight.flatten(1), layer.bias)
    torch.testing.assert_close(model.patches(images), expected, atol=1e-12, rtol=1e-12)


def test_patches_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"images of shape \(2, 12, 12\): must be \(B, C, height, width\)"):
        patchify(torch.zeros(2, 12, 12), 3)
    for height, width in ((12, 11), (11, 12), (0, 12)):
        with pytest.raises(ValueError, match=f"images of {height} x {width} pixels: both must be multiples of the pat"):
            patchify(torch.zeros(1, 2, height, width), 3)
    with pytest.raises(ValueError, match="6 patches: a grid of 2 x 2 has 4; say which with grid="):
        unpatchify(torch.zeros(1, 6, 9), 3)
    with pytest.raises(ValueError, match="6 patches: a grid of 2 x 4 has 8"):
        unpatchify(torch.zeros(1, 6, 9), 3, (2, 4))
    with pytest.raises(ValueError, match="patches of 10 numbers: must be a multiple of 3 x 3, one for each channel"):
        unpatchify(torch.zeros(1, 4, 10), 3)


# --- the model, written out again -----------------------------------------------------------------------------


def norm(x: np.ndarray, weight, bias, eps: float) -> np.ndarray:
    mean = x.mean(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(((x - mean) ** 2).mean(axis=-1, keepdims=True) + eps) * weight + bias


def by_hand(model: ViT, image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What the model gives for an image (C, side, side), and its last states: patch by patch and head by head."""
    c, w = model.config, {name: p.detach().numpy() for name, p in model.named_parameters()}

    def linear(name: str, x: np.ndarray) -> np.ndarray:
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def attention(name: str, x: np.ndarray) -> np.ndarray:
        query, key, value = np.split(linear(f"{name}.qkv", x), 3, axis=-1)
        found, size = np.zeros_like(x), D // H
        for h in range(H):
            own = slice(h * size, (h + 1) * size)
            for t in range(len(x)):
                e = np.exp(key[:, own] @ query[t, own] / math.sqrt(size))  # of all tokens
                found[t, own] = e @ value[:, own] / e.sum()
        return linear(f"{name}.out", found)

    def feed_forward(name: str, x: np.ndarray) -> np.ndarray:
        up = linear(f"{name}.up", x)
        return linear(f"{name}.down", up * 0.5 * (1 + np.vectorize(math.erf)(up / math.sqrt(2))))

    rows = range(0, SIDE, P)
    patches = np.stack([image[:, y : y + P, x : x + P] for y in rows for x in rows])  # (N, C, P, P)
    kernel = w["patch_embedding.weight"]
    x = np.array([[(one * patch).sum() for one in kernel] for patch in patches]) + w["patch_embedding.bias"]
    if c.pooling == "class":
        x = np.concatenate([w["class_token"], x])
    x = x + w["positions.encoding"]
    for i in range(c.n_layers):
        for branch in (attention, feed_forward):
            name = f"blocks.{i}.{branch.__name__}"
            x = x + branch(name, norm(x, w[f"{name}_residual.norm.weight"], w[f"{name}_residual.norm.bias"], c.eps))
    hidden = norm(x, w["norm.weight"], w["norm.bias"], c.eps)
    pooled = hidden[0] if c.pooling == "class" else hidden.mean(axis=0)
    if c.representation_size:
        pooled = np.tanh(linear("representation", pooled))
    return linear("head", pooled) if c.classes else pooled, hidden


@pytest.mark.parametrize("scale", [1.0, 1e-3], ids=["", "small enough for another epsilon to show"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_logits_are_the_papers(kind, scale):
    model, images = make(**KINDS[kind]), pictures()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "blocks" not in name and "norm" not in name and "head" not in name:
                p *= scale
    found, hidden = model(images), model.hidden(images)
    for i, image in enumerate(images.numpy()):
        logits, states = by_hand(model, image)
        np.testing.assert_allclose(found[i].detach(), logits, atol=1e-9 * scale, rtol=1e-9)
        np.testing.assert_allclose(hidden[i].detach(), states, atol=1e-9 * scale, rtol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_every_norm_has_the_epsilon_of_the_configuration(kind):
    norms = [m for m in make(**KINDS[kind]).modules() if isinstance(m, nn.LayerNorm)]
    assert {m.eps for m in norms} == {1e-12 if kind == "without a head" else 1e-6}
    assert len(norms) == 2 * L + 1


@pytest.mark.parametrize("kind", KINDS)
def test_what_comes_out_step_by_step(kind):
    """``forward`` is made of the pieces that others use: embeddings, states, patches and pooling."""
    model, images = make(**KINDS[kind]), pictures()
    states, hidden = model.hidden_states(images), model.hidden(images)
    front = 0 if kind == "mean" else 1
    assert len(states) == L + 1
    assert {x.shape for x in [*states, hidden]} == {(3, N + front, D)}
    assert torch.equal(states[0], model.embed(images))
    assert torch.equal(hidden, model.norm(states[-1]))
    patches = model.patch_tokens(hidden)
    assert torch.equal(patches, hidden[:, front:])
    assert patches.shape == (3, N, D)
    pooled = patches.mean(dim=1) if kind == "mean" else hidden[:, 0]
    if kind == "with a hidden layer":
        pooled = torch.tanh(model.representation(pooled))
    torch.testing.assert_close(model.pool(hidden), pooled, atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(model(images), model.head(model.pool(hidden)), atol=1e-12, rtol=1e-12)
    assert model(images).shape == (3, D if kind == "without a head" else K)


@pytest.mark.parametrize("kind", KINDS)
def test_the_last_block_computes_what_is_pooled(kind):
    """In training, too, where whole branches of a sample are left out: the same draws for one token as for all."""
    model = make(**KINDS[kind] | {"drop_path": 0.4}).train()
    x = model.hidden_states(pictures())[-2][:1].expand(40, -1, -1)
    found = []
    for alone in (kind != "mean", False):
        torch.manual_seed(0)
        found.append(model.blocks[-1](x, first_only=alone))
    read = slice(None) if kind == "mean" else slice(1)
    assert len(found[0][:, 0].unique(dim=0)) == 4, "each of two branches is there or not"
    torch.testing.assert_close(found[0], found[1][:, read], atol=1e-12, rtol=1e-12)
    calls = []
    for block in model.blocks:
        block.register_forward_hook(lambda block, given, made: calls.append(made.shape[1]))
    model(pictures())
    assert calls == [N + (kind != "mean")] * (len(model.blocks) - 1) + [N if kind == "mean" else 1]
    with record_attention(model) as maps:
        model(pictures())
    assert {x.shape[-2] for calls in maps.values() for x in calls} == {N + (kind != "mean")}, (
        "of all tokens, where someone looks"
    )


@pytest.mark.parametrize("norm_first", [True, False])
def test_a_last_block_is_a_block(norm_first, generator):
    block = randomise(LastBlock(MultiHeadAttention(8, 2), FeedForward(8, 16), norm_first=norm_first)).double()
    x = torch.randn(2, 5, 8, generator=generator).double()
    torch.testing.assert_close(block(x), Block.forward(block, x))
    torch.testing.assert_close(block(x, first_only=True), Block.forward(block, x)[:, :1])


# --- who sees whom --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25)
@given(st.integers(0, 10_000))
def test_without_positions_the_order_of_patches_says_nothing(kind, seed):
    """The patches' states are in the new order, what is said of the image is the same."""
    model, images = make(seed % 3, **KINDS[kind]), pictures(seed=seed)
    order = torch.randperm(N, generator=torch.Generator().manual_seed(seed))
    other = unpatchify(patchify(images, P)[:, order], P)
    told = model(other)
    assert (told - model(images)).abs().max() > 1e-6 or (order == torch.arange(N)).all(), "with positions it does"
    with torch.no_grad():
        model.positions.encoding.zero_()
    torch.testing.assert_close(model(other), model(images), atol=1e-10, rtol=1e-10)
    before, after = (model.patch_tokens(model.hidden(x)) for x in (images, other))
    torch.testing.assert_close(after, before[:, order], atol=1e-10, rtol=1e-10)


@settings(max_examples=25)
@given(st.integers(0, 10_000), st.sampled_from([(12, 12), (6, 15), (21, 3)]))
def test_images_do_not_see_each_other(seed, size):
    model, images = make(seed % 3), pictures(4, *size, seed)
    alone = torch.cat([model(image[None]) for image in images])
    torch.testing.assert_close(model(images), alone, atol=1e-12, rtol=1e-12)


def test_every_pixel_counts_and_every_patch_sees_every_other():
    model, images = make(), pictures(1).requires_grad_()
    model(images).sum().backward()
    assert (images.grad.abs() > 1e-9).all()
    other = images.detach().clone()
    other[..., -1, -1] += 1  # of the last patch
    before, after = model.hidden(images), model.hidden(other)
    assert ((after - before).abs().amax(dim=-1) > 1e-9).all()


@pytest.mark.parametrize("kind", ["class", "mean"])
def test_each_block_shows_its_attention(kind):
    model, images = make(**KINDS[kind]), pictures(height=6, width=15)
    with record_attention(model) as maps:
        watched = model(images)
    torch.testing.assert_close(watched, model(images), atol=1e-12, rtol=1e-12)
    assert list(maps) == ["blocks.0.attention", "blocks.1.attention"]
    T = 2 * 5 + (kind == "class")
    for (weights,) in maps.values():
        assert weights.shape == (3, H, T, T)
        torch.testing.assert_close(weights.sum(dim=-1), torch.ones(3, H, T).double())


@pytest.mark.parametrize("resize", ["size", "dino"])
def test_other_sizes_get_other_positions(resize):
    """How they are found, ``tests/nn/test_positions.py`` says."""
    model = make(resize=resize)
    for height, width in ((6, 15), (24, 24), (6, 24), (12, 12)):
        images = pictures(height=height, width=width)
        grid = height // P, width // P
        assert model.grid(images) == grid
        x = model.embed(images) - model.positions.encoding_of(grid)
        class_token, patches = x[:, 0], x[:, 1:]
        torch.testing.assert_close(class_token, model.class_token.expand(3, -1), atol=1e-12, rtol=1e-12)
        torch.testing.assert_close(patches, model.patches(images), atol=1e-12, rtol=1e-12)


# --- in training ----------------------------------------------------------------------------------------------


def test_what_is_dropped_in_training():
    """Embeddings, hidden units and both branches; not the attention weights (appendix B.1)."""
    model = ViT(ViTConfig(**SMALL | {"dropout": 0.25}))
    for block in model.blocks:
        assert block.attention.dropout == 0
        assert block.feed_forward.dropout.p == 0.25
        assert block.attention_residual.dropout.p == block.feed_forward_residual.dropout.p == 0.25
    torch.manual_seed(0)
    embedded = model.embed(pictures(100).float())
    assert (embedded == 0).float().mean().item() == pytest.approx(0.25, abs=0.02)
    assert (model.eval().embed(pictures(100).float()) != 0).all()


@pytest.mark.parametrize(("n_layers", "expected"), [(1, [0]), (2, [0, 0.5]), (5, [0, 0.125, 0.25, 0.375, 0.5])])
def test_paths_are_dropped_more_often_the_deeper_they_lie(n_layers, expected):
    model = ViT(ViTConfig(**SMALL | {"n_layers": n_layers, "drop_path": 0.5}))
    for block, p in zip(model.blocks, expected, strict=True):
        assert block.attention_residual.drop_path.p == block.feed_forward_residual.drop_path.p == p
    assert not any(m.p for m in ViT(ViTConfig(**SMALL)).modules() if isinstance(m, DropPath))


def test_dropping_paths_keeps_the_mean_and_changes_nothing_in_use():
    """Only attention writes here: the last block's branch is there or not, and made up for where it is."""
    model, plain = make(drop_path=0.4), make()
    images = pictures()
    assert torch.equal(model(images), plain(images))
    with torch.no_grad():
        for p in model.blocks[-1].feed_forward.down.parameters():
            p.zero_()
    torch.manual_seed(0)
    many = images[:1].expand(3000, -1, -1, -1)
    before, after = model.train().hidden_states(many)[-2:]
    branch = (after - before)[:, 0, 0]
    before, after = model.eval().hidden_states(images[:1])[-2:]
    expected = (after - before)[0, 0, 0].item()
    assert sorted({round(x, 9) for x in branch.tolist()}) == sorted({0.0, round(expected / 0.6, 9)})
    assert branch.mean().item() == pytest.approx(expected, rel=0.05)


def test_weights_begin_as_in_the_papers_program():
    torch.manual_seed(0)
    sizes = {"image_size": 32, "patch_size": 4, "channels": 3, "d_model": 192, "n_heads": 3, "d_ff": 768, "n_layers": 2}
    model = ViT(ViTConfig(**sizes, classes=9, representation_size=300))
    bound = {"qkv": 6 / (192 + 192), "out": 6 / (192 + 192), "up": 6 / (192 + 768), "down": 6 / (768 + 192)}
    checked = 0
    for name, p in model.named_parameters():
        layer = name.split(".")[-2] if "." in name else name
        if layer in bound and p.dim() == 2:
            assert p.abs().max().item() == pytest.approx(bound[layer] ** 0.5, rel=0.01), name
            assert p.std().item() == pytest.approx((bound[layer] / 3) ** 0.5, rel=0.02), name
        elif layer in ("patch_embedding", "representation") and p.dim() > 1:
            assert p.std().item() == pytest.approx(p[0].numel() ** -0.5, rel=0.02), name
            assert p.abs().max().item() == pytest.approx(2 / 0.8796 * p[0].numel() ** -0.5, rel=0.02), name
        elif layer == "positions":
            assert p.std().item() == pytest.approx(0.02, rel=0.05)
        elif layer in ("up", "down"):
            assert p.std().item() == pytest.approx(1e-6, rel=0.15), name
        else:
            assert (p == ("norm.weight" in name)).all(), name
        checked += 1
    assert checked == 2 * 12 + 10


def test_the_optimizer_decays_no_bias_and_no_gain():
    model = make()
    names = {id(p): name for name, p in model.named_parameters()}
    decayed, spared = adamw(model, 1e-4).param_groups
    assert {names[id(p)] for p in spared["params"]} == {n for n in names.values() if "norm" in n or "bias" in n}
    assert "class_token" in {names[id(p)] for p in decayed["params"]}


@pytest.mark.parametrize("kind", ["class", "mean", "with a hidden layer"])
def test_at_first_it_knows_nothing(kind):
    """The head is 0: all classes are equally likely, and the loss is ln K."""
    model, labels = ViT(ViTConfig(**SMALL | KINDS[kind])), torch.tensor([0, 4, 2])
    total, count = vit_loss(model, {"images": pictures().float(), "labels": labels})
    assert count == 3
    assert total.item() == pytest.approx(3 * math.log(K), rel=1e-6)


def test_the_loss_is_that_of_the_labels():
    model, images, labels = make(), pictures(), torch.tensor([1, 4, 2])
    total, _ = vit_loss(model, {"images": images, "labels": labels})
    logits = [by_hand(model, image)[0] for image in images.numpy()]
    expected = sum(math.log(np.exp(row).sum()) - row[k] for row, k in zip(logits, labels))
    assert total.item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("changes", [{}, {"pooling": "mean"}, {"representation_size": 64}], ids=lambda c: str(c))
def test_it_learns_images_by_heart(changes):
    """They differ in the places of their patches only, so that without positions it could not."""
    torch.manual_seed(0)
    patches = patchify(torch.randn(1, 1, 8, 8), 2)
    images = torch.cat([unpatchify(patches[:, torch.randperm(16)], 2) for _ in range(8)])

    class Images:
        def __next__(self):
            return {"images": images, "labels": torch.arange(8)}

    sizes = {"image_size": 8, "patch_size": 2, "channels": 1, "d_model": 32, "n_heads": 2, "d_ff": 64, "n_layers": 2}
    model = ViT(ViTConfig(**sizes | {"classes": 8} | changes))
    training = Training(model, vit_loss, Images(), adamw(model, 3e-3), 120, precision="float32")
    history = training.fit()
    assert history[0]["loss"] == pytest.approx(math.log(8), rel=0.1)
    assert history[-1]["loss"] < 0.1


def test_a_new_head_begins_at_zero_on_the_same_body():
    model, images = make(representation_size=7), pictures()
    hidden, body = model.hidden(images), [p for n, p in model.named_parameters() if "head" not in n and "repr" not in n]
    model.replace_head(4, ["a", "b", "c", "d"])
    assert torch.equal(model.hidden(images), hidden)
    assert model(images).tolist() == [[0.0] * 4] * 3
    assert model(images).dtype == torch.float64
    assert model.config == ViTConfig(**SMALL | {"classes": 4})
    assert model.labels == ("a", "b", "c", "d")
    assert [id(p) for p in model.parameters()][: len(body)] == [id(p) for p in body]
    assert len(list(model.parameters())) == len(body) + 2
    model.replace_head(0)
    torch.testing.assert_close(model(images), hidden[:, 0], atol=1e-12, rtol=1e-12)
    assert (model.labels, model.config.classes) == ((), 0)
    with pytest.raises(ValueError, match="2 labels: must be as many as classes=3, or none"):
        model.replace_head(3, ["a", "b"])
    assert model.config.classes == 0, "it is as it was"


def test_training_in_half_precision_says_the_same(monkeypatch):
    """On a CPU without the fused kernel, whose backward pass in bfloat16 takes most of the time."""
    model, images = make().float(), pictures().float()
    batch = {"images": images, "labels": torch.tensor([1, 4, 2])}
    expected, _ = vit_loss(model, batch)
    expected.backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    fused, calls = F.scaled_dot_product_attention, []
    monkeypatch.setattr(F, "scaled_dot_product_attention", lambda *x, **y: calls.append(1) or fused(*x, **y))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, _ = vit_loss(model, batch)
        assert not calls
        with torch.no_grad():
            model(images)
        assert len(calls) == L
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(expected.item(), rel=0.02)
    found.backward()
    for p, gradient in zip(model.parameters(), gradients):
        assert p.grad.dtype == torch.float32
        assert (p.grad - gradient).norm() < 0.05 * gradient.norm() + 1e-3
    found, _ = vit_loss(model.bfloat16(), batch | {"images": images.bfloat16()})  # weights in half precision too
    assert found.dtype == torch.float32


def test_it_runs_where_there_is_an_accelerator(where):
    model = make().float()
    for height, width in ((12, 12), (6, 15)):
        images = pictures(height=height, width=width).float()
        expected = model.cpu()(images)
        torch.testing.assert_close(model.to(where)(images.to(where)).cpu(), expected, atol=1e-4, rtol=1e-4)


# --- what is refused ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"n_heads": 5}, "n_heads=5: must divide d_model=12"),
        ({"patch_size": 5}, "patch_size=5: must divide image_size=12"),
        ({"patch_size": 0}, "patch_size=0: must be at least 1"),
        ({"image_size": -3}, "image_size=-3: must be at least 1"),
        ({"channels": 0}, "channels=0: must be at least 1"),
        ({"n_layers": 0}, "n_layers=0: must be at least 1"),
        ({"d_ff": 0}, "d_ff=0: must be at least 1"),
        ({"classes": -1}, "classes=-1: must be at least 0"),
        ({"representation_size": -1}, "representation_size=-1: must be at least 0"),
        ({"pooling": "max"}, "pooling='max': must be one of 'class', 'mean'"),
        ({"dropout": 1.0}, r"dropout=1\.0: must be a probability below 1"),
        ({"drop_path": -0.1}, r"drop_path=-0\.1: must be a probability below 1"),
        ({"eps": 0}, "eps=0: must be above 0"),
        ({"resize": "bilinear"}, "resize='bilinear': must be one of 'size', 'dino'"),
    ],
)
def test_nonsense_is_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        ViTConfig(**SMALL | changes)


def test_bad_input_is_refused():
    model = make()
    with pytest.raises(ValueError, match="images of 3 channels: the model was built for 2"):
        model(torch.zeros(1, 3, 12, 12).double())
    with pytest.raises(ValueError, match=r"images of torch\.uint8: must be floating-point numbers, scaled as in train"):
        model(torch.zeros(1, 2, 12, 12, dtype=torch.uint8))
    with pytest.raises(ValueError, match="images of 12 x 13 pixels: both must be multiples of the patches' 3"):
        model(torch.zeros(1, 2, 12, 13).double())
    with pytest.raises(ValueError, match=r"images of shape \(2, 12, 12\): must be \(B, C, height, width\)"):
        model(torch.zeros(2, 12, 12).double())
    with pytest.raises(ValueError, match="1 labels: must be as many as classes=5, or none"):
        ViT(ViTConfig(**SMALL), ["cat"])


def test_labels_are_names_and_classes_are_counted():
    with pytest.raises(ValueError, match="labels='cat': must be a list of names"):
        ViT(ViTConfig(image_size=8, patch_size=4, d_model=8, n_heads=2, d_ff=8, n_layers=1, classes=3), "cat")
    with pytest.raises(ValueError, match=r"classes=2\.5: must be a whole number"):
        ViTConfig(classes=2.5)
    with pytest.raises(ValueError, match="multiples of the patches' 0"):
        patchify(torch.zeros(1, 3, 4, 4), 0)
