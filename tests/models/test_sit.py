"""SiT beside its formulas written out again in NumPy, what each objective teaches, and its resuming."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from coursekit.data.batches import Fresh
from coursekit.data.corrupt import corrupted_views, draw_views
from coursekit.models.sit import (
    OBJECTIVES,
    SiT,
    SiTConfig,
    contrastive_losses,
    reconstruction_losses,
    sit_loss,
    weigh,
)
from coursekit.models.vit import ViTConfig
from coursekit.train import Training, adamw, seed
from coursekit.train.checkpoint import load_state
from tests.conftest import randomise
from tests.train.states import same

D, B = 12, 4
VIT = {"image_size": 12, "patch_size": 3, "d_model": D, "n_heads": 3, "d_ff": 20, "n_layers": 2}
VIT |= {"classes": 0, "pooling": "mean"}


def config(vit=None, **changes) -> SiTConfig:
    return SiTConfig(ViTConfig(**VIT | (vit or {})), **{"d_contrast": 7} | changes)


def make(vit=None, dtype=torch.float64, **changes) -> SiT:
    return randomise(SiT(config(vit, **changes))).to(dtype)


def views(seed: int = 0, dtype=torch.float64, n: int = B) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    drawn = draw_views(n, 16, 18, generator, 12)
    batch = corrupted_views(torch.rand(n, 3, 16, 18, generator=generator), drawn)
    return batch | {name: (4 * batch[name] - 2).to(dtype) for name in ("views", "clean")}


# --- the formulas, written out again --------------------------------------------------------------------------


def contrast_by_hand(z: np.ndarray, temperature: float) -> np.ndarray:
    """One view after another: (B, 2)."""
    n = len(z)
    found = np.empty((n, 2))
    for i in range(n):
        for v in range(2):
            others = [(j, u) for j in range(n) for u in range(2) if (j, u) != (i, v)]
            e = {k: math.exp(z[i, v] @ z[k] / temperature) for k in others}
            found[i, v] = -math.log(e[i, 1 - v] / sum(e.values()))
    return found


@settings(max_examples=30)
@given(st.integers(2, 5), st.integers(1, 6), st.sampled_from([0.1, 0.5, 1.0]), st.integers(0, 999))
def test_the_contrastive_loss_is_the_formula(n, size, temperature, seed):
    """Catches a view among its own negatives, the wrong partner, and a missing or inverted temperature."""
    generator = torch.Generator().manual_seed(seed)
    z = F.normalize(torch.randn(n, 2, size, generator=generator, dtype=torch.float64), dim=-1)
    found = contrastive_losses(z, temperature)
    np.testing.assert_allclose(found, contrast_by_hand(z.numpy(), temperature), rtol=1e-9, atol=1e-12)


def test_a_view_is_not_its_own_negative():
    """The views of an image agree and those of others contradict: with itself in the sum it would be ln 2 at least."""
    z = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])[:, None].expand(2, 2, 2)
    assert contrastive_losses(z, 0.05).max() < 1e-6
    alike = contrastive_losses(torch.ones(3, 2, 1), 0.5)
    torch.testing.assert_close(alike, torch.full((3, 2), math.log(5)))


@pytest.mark.parametrize("shape", [(3, 3, 4), (6, 4), (1, 2, 4)], ids=str)
def test_what_cannot_be_contrasted(shape):
    with pytest.raises(ValueError, match=r"must be \(B, 2, d\), of at least 2 images"):
        contrastive_losses(torch.ones(shape), 0.5)


@settings(max_examples=30)
@given(st.integers(1, 4), st.integers(0, 999))
def test_the_weighted_sum_is_the_formula(n, seed):
    lot = np.random.default_rng(seed)
    losses, log_variances = lot.exponential(size=n) * 3, lot.normal(size=n) * 2
    variances = np.exp(log_variances)
    expected = sum(loss / (2 * v) + np.log(1 + v) for loss, v in zip(losses, variances))
    assert weigh(torch.tensor(losses), torch.tensor(log_variances)).item() == pytest.approx(expected, rel=1e-9)


def test_a_loss_that_stands_still_finds_the_variance_of_the_docstring():
    losses = torch.tensor([0.01, 0.5, 2.0, 9.0], dtype=torch.float64)
    s = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([s], lr=0.05)
    for _ in range(600):
        optimizer.zero_grad()
        weigh(losses, s).backward()
        optimizer.step()
    half = losses / 2
    torch.testing.assert_close(s.detach().exp(), (half + (half**2 + 4 * half).sqrt()) / 2, rtol=1e-3, atol=1e-6)


def test_only_corrupted_pixels_are_restored():
    """Image by image: whoever takes the mean over all pixels, or over the batch's corrupted ones, gets another one."""
    generator = torch.Generator().manual_seed(0)
    found, clean = torch.randn(2, 3, 3, 5, 4, generator=generator, dtype=torch.float64)
    masks = torch.rand(3, 5, 4, generator=generator) < torch.tensor([0.2, 0.7, 0.0])[:, None, None]
    assert 0 < masks[0].sum() < masks[1].sum()
    losses = reconstruction_losses(found, clean, masks)
    for b in range(2):
        numbers = [
            abs(found[b, c, y, x].item() - clean[b, c, y, x].item())
            for c in range(3)
            for y in range(5)
            for x in range(4)
            if masks[b, y, x]
        ]
        assert losses[b].item() == pytest.approx(sum(numbers) / len(numbers), rel=1e-12)
    assert losses[2] == 0
    elsewhere = found + torch.randn_like(found) * ~masks[:, None]
    assert torch.equal(reconstruction_losses(elsewhere, clean, masks), losses)


def test_the_objective_of_a_batch_is_the_formulas_on_what_the_heads_say():
    model, batch = make(), views()
    parts = {name: np.empty(B) for name in OBJECTIVES}
    vectors = np.empty((B, 2, 7))
    with torch.no_grad():
        for b in range(B):
            restored, rotated = [], []
            for v in range(2):  # one view after another
                found = model(batch["views"][b, v][None])
                mask = batch["masks"][b, v].numpy()
                away = (found["reconstruction"][0] - batch["clean"][b, v]).abs().numpy()
                restored.append(away[:, mask].mean())
                e = np.exp(found["rotation"][0].numpy())
                rotated.append(-math.log(e[batch["rotations"][b, v]] / e.sum()))
                vectors[b, v] = found["contrastive"][0]
            parts["reconstruction"][b], parts["rotation"][b] = np.mean(restored), np.mean(rotated)
    parts["contrastive"] = contrast_by_hand(vectors, 0.5).mean(axis=1)
    losses = model.losses(batch)
    assert tuple(losses) == OBJECTIVES
    for name, expected in parts.items():
        np.testing.assert_allclose(losses[name].detach(), expected, rtol=1e-9)
    total, count = sit_loss(model, batch)
    variances = model.log_variances.detach().exp().numpy()
    expected = sum(parts[name].mean() / (2 * v) + math.log(1 + v) for name, v in zip(OBJECTIVES, variances))
    assert total.item() == pytest.approx(expected * B, rel=1e-9)
    assert count == B
    found = model.diagnose(batch)
    assert found == pytest.approx(
        {name: x.mean() for name, x in parts.items()} | {f"variance_of_{n}": v for n, v in zip(OBJECTIVES, variances)}
    )


# --- the model ------------------------------------------------------------------------------------------------


def test_what_the_heads_say_is_read_from_the_tokens_of_their_own():
    """The blocks one after another, each head on its token, each patch's numbers where the patch lies."""
    model, images = make(), views()["views"][:, 0]
    x = model.vit.patch_embedding(images).flatten(2).mT + model.vit.positions.encoding
    x = torch.cat([model.tokens.expand(B, 2, D), x], dim=1)
    for block in model.vit.blocks:
        x = block(x)
    x = model.vit.norm(x)
    torch.testing.assert_close(model.hidden(images), x)
    found, heads = model(images), model.heads
    torch.testing.assert_close(found["rotation"], x[:, 0] @ heads["rotation"].weight.T + heads["rotation"].bias)
    mlp = heads["contrastive"].mlp
    z = F.gelu(x[:, 1] @ mlp[0].weight.T + mlp[0].bias) @ mlp[2].weight.T + mlp[2].bias
    torch.testing.assert_close(found["contrastive"], z / (z * z).sum(dim=1, keepdim=True).sqrt())
    # a transposed convolution with the same weights
    weight = heads["reconstruction"].weight.T.unflatten(1, (3, 3, 3))  # (D, C, P, P)
    grid = x[:, 2:].mT.unflatten(2, (4, 4))
    bias = heads["reconstruction"].bias.unflatten(0, (3, 3, 3)).repeat(1, 4, 4)
    torch.testing.assert_close(found["reconstruction"], F.conv_transpose2d(grid, weight, stride=3) + bias)
    states = (x[:, 2:].mean(dim=1), x[:, 0], x[:, 1])
    features = model.features(images)
    assert features.shape == (B, 3 * D)
    torch.testing.assert_close(features, torch.cat([F.normalize(state, dim=1) for state in states], dim=1))


def test_images_of_other_sizes():
    found = make()(views()["views"][:, 0, :, :9, :6])
    assert found["reconstruction"].shape == (B, 3, 9, 6)
    assert (found["rotation"].shape, found["contrastive"].shape) == ((B, 4), (B, 7))


@pytest.mark.parametrize(
    "objectives", [*[(name,) for name in OBJECTIVES], ("contrastive", "reconstruction"), OBJECTIVES], ids="-".join
)
def test_gradients_reach_all_that_is_used_and_there_is_nothing_else(objectives):
    model, batch = make(objectives=objectives), views()
    needed = {"views"}
    needed |= {"rotations"} if "rotation" in objectives else set()
    needed |= {"clean", "masks"} if "reconstruction" in objectives else set()
    total, count = sit_loss(model, {name: x for name, x in batch.items() if name in needed})
    total.backward()
    assert count == B
    assert set(model.heads) == set(objectives)
    assert model.log_variances.shape == (len(objectives),)
    for name, p in model.named_parameters():
        assert p.grad is not None, name
        if "qkv.bias" not in name:  # of keys, which softmax takes no notice of
            assert p.grad.abs().max() > 1e-9, name
    assert tuple(model.losses(batch)) == objectives
    assert model.features(batch["views"][:, 0]).shape == (B, D * len(objectives))
    # the weighted parts belong together
    parts = torch.stack([model.losses(batch)[name].mean() for name in objectives])
    torch.testing.assert_close(total, weigh(parts, model.log_variances) * B)


def test_one_objective_alone_is_the_same_as_among_all():
    """Same body, same weights: only the others are missing."""
    whole, batch = make(), views()
    for name, expected in whole.losses(batch).items():
        alone = make(objectives=[name])
        weights = whole.state_dict() | {"log_variances": torch.zeros(1)}
        alone.load_state_dict({key: weights[key] for key in alone.state_dict()})
        torch.testing.assert_close(alone.losses(batch)[name], expected)


def test_another_order_of_the_images_is_another_order_of_the_losses():
    model, batch, order = make(), views(), torch.tensor([2, 0, 3, 1])
    before, after = (model.losses(x) for x in (batch, {name: x[order] for name, x in batch.items()}))
    for name, losses in before.items():
        torch.testing.assert_close(after[name], losses[order])
        assert losses.std() > 1e-4, "they differ from image to image"
    swapped = model.losses({name: x.flip(1) for name, x in batch.items()})
    for name, losses in before.items():
        torch.testing.assert_close(swapped[name], losses)


def test_the_diagnosis_drops_nothing_and_leaves_the_mode():
    model, batch = make({"dropout": 0.3, "drop_path": 0.3}), views()
    assert model.diagnose(batch) == model.diagnose(batch)
    assert model.training
    assert not torch.equal(sit_loss(model, batch)[0], sit_loss(model, batch)[0])
    seen = []
    model.vit.blocks[0].register_forward_pre_hook(lambda _, x: seen.append(x[0]))
    model.hidden(batch["views"][:, 0])
    assert (seen[0][:, :2] == 0).any(), "the tokens are dropped from as the patches are"
    model.eval().diagnose(batch)
    assert not model.training


def test_before_anything_is_learned():
    torch.manual_seed(0)
    model = SiT(config())
    found = model.diagnose(views(dtype=torch.float32))
    assert found["rotation"] == pytest.approx(math.log(4), rel=0.02)
    assert [found[f"variance_of_{name}"] for name in OBJECTIVES] == [1, 1, 1]
    assert model.tokens.std().item() == pytest.approx(0.02, rel=0.4)


def test_heads_and_losses_are_in_float32_under_autocast():
    model, batch = make(dtype=torch.float32), views(dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = model(batch["views"].flatten(0, 1))
        losses, (total, _) = model.losses(batch), sit_loss(model, batch)
    assert {x.dtype for x in (*found.values(), *losses.values(), total)} == {torch.float32}
    z = found["contrastive"].double().detach().unflatten(0, (B, 2)).numpy()
    np.testing.assert_allclose(losses["contrastive"].detach(), contrast_by_hand(z, 0.5).mean(axis=1), rtol=1e-5)
    exact = model(batch["views"].flatten(0, 1))["contrastive"]
    assert not torch.allclose(found["contrastive"], exact, atol=1e-6), "the body is in bfloat16"


def test_on_any_device(where):
    model, batch = make(), views()
    expected = sit_loss(model, batch)[0].item()
    found, count = sit_loss(model.to(where), {name: x.to(where) for name, x in batch.items()})
    assert found.item() == pytest.approx(expected, rel=1e-6)
    assert (found.device.type, count.device.type) == (where.type, where.type)
    assert model.diagnose(batch).keys() >= set(OBJECTIVES), "which moves the batch"


def test_published_numbers():
    c = SiTConfig.s16()
    assert (c.temperature, c.objectives, c.vit.patch_size, c.vit.image_size) == (0.5, OBJECTIVES, 16, 224)
    assert (c.vit.d_model, c.vit.n_layers, c.vit.n_heads, c.vit.d_ff) == (384, 12, 6, 1536)
    with torch.device("meta"):
        model = SiT(c)
    assert sum(p.numel() for p in (*model.vit.parameters(), model.tokens)) == 21_665_664
    assert "21,665,664" in SiTConfig.s16.__doc__
    assert SiTConfig.s16(objectives=["rotation"]).objectives == ("rotation",)


@pytest.mark.parametrize(("vit", "changes", "message"), [
    ({"classes": 3}, {}, "vit.classes=3: must be 0"),
    ({"representation_size": 3}, {}, "vit.representation_size=3: must be 0"),
    ({"pooling": "class"}, {}, "vit.pooling='class': must be 'mean'"),
    ({}, {"objectives": ()}, r"objectives=\(\): must be one or more of"),
    ({}, {"objectives": ("rotation", "colour")}, r"objectives=\('rotation', 'colour'\): must be one or more"),
    ({}, {"objectives": ("rotation", "rotation")}, "each once"),
    ({}, {"d_contrast": 0}, "d_contrast=0: must be at least 1"),
    ({}, {"temperature": 0.0}, "temperature=0.0: must be above 0"),
], ids=lambda x: None)  # fmt: skip
def test_nonsense_is_refused(vit, changes, message):
    with pytest.raises(ValueError, match=message):
        config(vit, **changes)


def test_batches_that_do_not_fit_are_refused():
    model, batch = make(), views()
    for wrong in (batch["views"][:, 0], batch["views"][:, :1]):
        with pytest.raises(ValueError, match=r"views of shape .* must be \(B, 2, C, height, width\)"):
            model.losses(batch | {"views": wrong})
    with pytest.raises(ValueError, match="of at least 2 images"):
        model.losses({name: x[:1] for name, x in batch.items()})
    assert make(objectives=["rotation"]).losses({name: x[:1] for name, x in batch.items()})["rotation"].shape == (1,)
    with pytest.raises(ValueError, match="both must be multiples of the patches' 3"):
        model(torch.zeros(1, 3, 10, 12, dtype=torch.float64))


# --- in Training ----------------------------------------------------------------------------------------------


def train(steps: int, folder=None, upto: int | None = None) -> Training:
    """A small training with all that has a state; ``upto``: left there, as if it were killed."""
    seed(0)
    model = SiT(config({"drop_path": 0.3, "dropout": 0.1}))
    images = torch.rand(16, 3, 16, 16, generator=torch.Generator().manual_seed(1))

    def draw(generator):
        rows = torch.randint(len(images), (4,), generator=generator)
        batch = corrupted_views(images[rows], draw_views(4, 16, 16, generator, 12, sigma=(0.1, 1.0)))
        return batch | {name: 4 * batch[name] - 2 for name in ("views", "clean")}

    options = {"accumulate": 2, "precision": "float32", "log_every": 1, "evaluate_every": 3, "monitor": "rotation"}
    options |= {"evaluate": lambda model: model.diagnose(views(dtype=torch.float32))}
    optimizer = adamw(model, 1e-3, 0.05)
    training = Training(model, sit_loss, Fresh(draw, 2), optimizer, steps, folder=folder, save_every=2, **options)
    for record in training:
        if record["step"] == upto:
            break
    return training


def test_a_run_that_is_killed_goes_on_to_the_same_bits(tmp_path):
    """Catches randomness that is not the generator's, and variances that are not kept; two steps are done again."""
    whole = train(6, tmp_path / "whole")
    train(6, tmp_path / "killed", upto=3)
    train(6, tmp_path / "killed", upto=5)
    again = train(6, tmp_path / "killed")
    assert again.step == whole.step == 6
    expected, found = (load_state(tmp_path / name / "last.ckpt") for name in ("whole", "killed"))
    assert not [name for name in expected if not same(expected[name], found[name])]
    assert {*OBJECTIVES, *(f"variance_of_{name}" for name in OBJECTIVES), "loss"} <= whole.history[-1].keys()
    assert (whole.model.log_variances != 0).all()


def test_which_weights_decay():
    """Matrices, tokens and positions; no bias, no norm, and no variance, which would be drawn to 1."""
    model = make()
    names = {id(p): name for name, p in model.named_parameters()}
    decayed, spared = ({names[id(p)] for p in g["params"]} for g in adamw(model, 1e-4, 0.05).param_groups)
    assert {"tokens", "vit.positions.encoding", "heads.rotation.weight"} <= decayed
    assert "log_variances" in spared
    assert all(name.endswith(".bias") or "norm" in name for name in spared - {"log_variances"})
    assert decayed | spared == set(names.values())


def test_all_three_are_learned_from_images_that_say_enough():
    """Each has a colour of its own and is bright on one side; views are turned, and have noise in them."""
    ramp = torch.linspace(0, 1, 12).expand(12, 12)

    def draw(generator, n=16):
        turns = torch.randint(4, (n, 2), generator=generator)
        turned = torch.stack([ramp.rot90(k) for k in turns.flatten().tolist()]).unflatten(0, (n, 2))
        clean = turned[:, :, None] * 3 * torch.rand(n, 1, 3, 1, 1, generator=generator)
        masks = torch.rand(n, 2, 12, 12, generator=generator) < 0.1
        views = torch.where(masks[:, :, None], torch.randn(clean.shape, generator=generator), clean)
        return {"views": views, "clean": clean, "masks": masks, "rotations": turns}

    seed(0)
    model, test = SiT(config()), draw(torch.Generator().manual_seed(9))
    before = model.diagnose(test)
    Training(model, sit_loss, Fresh(draw), adamw(model, 1e-2), 80, precision="float32").fit()
    after = model.diagnose(test)
    assert after["rotation"] < 0.4
    assert after["contrastive"] < math.log(31) - 0.5
    assert after["reconstruction"] < 0.5 * before["reconstruction"]
    assert after["variance_of_reconstruction"] < after["variance_of_rotation"] < after["variance_of_contrastive"]


def test_losses_of_other_shapes_are_not_broadcast():
    images, masks = torch.rand(2, 3, 4, 4), torch.ones(2, 4, 4)
    for found, where in ((images[:1], masks), (images, masks[:1]), (images, masks[:, None])):
        with pytest.raises(ValueError, match="must be"):
            reconstruction_losses(found, images, where)
    with pytest.raises(ValueError, match=r"log_variances of shape \(2,\): must be \(3,\)"):
        weigh(torch.ones(3), torch.zeros(2))
    with pytest.raises(ValueError, match="temperature=0: must be above 0"):
        contrastive_losses(torch.rand(2, 2, 3), 0)
