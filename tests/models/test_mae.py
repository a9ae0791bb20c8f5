"""MAE beside transformers' and beside loops in NumPy: what is hidden, what is predicted, what the encoder sees."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coursekit.data.batches import Fresh
from coursekit.models.mae import (
    MAE,
    MAEConfig,
    draw_orders,
    mae_loss,
    normalised_patches,
    shuffle,
    sinusoidal_2d,
    unshuffle,
)
from coursekit.models.vit import ViTConfig
from coursekit.train import Training, adamw, seed
from tests.conftest import randomise

SIDE, P, C, D, E, B = 12, 3, 2, 12, 8, 3
N, K = 16, 4
VIT = {"image_size": SIDE, "patch_size": P, "channels": C, "d_model": D, "n_heads": 3, "d_ff": 48, "n_layers": 2}
DECODER = {"d_decoder": E, "decoder_heads": 2, "decoder_layers": 2}


def config(vit=None, **changes) -> MAEConfig:
    return MAEConfig(ViTConfig(**VIT | {"classes": 0} | (vit or {})), **DECODER | changes)


def make(**changes) -> MAE:
    return randomise(MAE(config(**changes))).double()


def pictures(n: int = B) -> torch.Tensor:
    return torch.randn(n, C, SIDE, SIDE, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def orders(n: int = B, seed: int = 0) -> torch.Tensor:
    return draw_orders(n, N, torch.Generator().manual_seed(seed))


# --- positions, and which patches are hidden --------------------------------------------------------------------


@pytest.mark.parametrize(("side", "d"), [(2, 4), (3, 8), (5, 12)])
def test_positions_are_the_sines_and_cosines_of_rows_and_of_columns(side, d):
    found = sinusoidal_2d(side, d)
    assert (found[0] == 0).all()
    for row in range(side):
        for column in range(side):
            expected = []
            for place in (row, column):
                for i in range(d // 4):
                    angle = place / 10_000 ** (2 * i / (d // 2))
                    expected += [math.sin(angle), math.cos(angle)]
            np.testing.assert_allclose(found[1 + side * row + column], expected, atol=1e-6)


def test_positions_need_pairs_for_both_directions():
    with pytest.raises(ValueError, match="d_model=6: must be a multiple of 4"):
        sinusoidal_2d(2, 6)


@settings(max_examples=30)
@given(st.integers(1, 4), st.integers(1, 9), st.integers(0, 999))
def test_shuffling_and_back(n, patches, seed):
    """Place by place, in NumPy, and there and back again."""
    generator = torch.Generator().manual_seed(seed)
    tokens, order = torch.randn(n, patches, 3, generator=generator), draw_orders(n, patches, generator)
    assert (order.sort(dim=1).values == torch.arange(patches)).all()
    shuffled, back = shuffle(tokens, order), np.empty((n, patches, 3))
    for b in range(n):
        for i in range(patches):
            np.testing.assert_array_equal(shuffled[b, i], tokens[b, order[b, i]])
            back[b, order[b, i]] = shuffled[b, i]
    np.testing.assert_array_equal(unshuffle(shuffled, order), back)
    assert torch.equal(unshuffle(shuffled, order), tokens)
    some = max(1, patches // 2)
    assert torch.equal(shuffle(tokens, order[:, :some]), shuffled[:, :some])


@pytest.mark.parametrize(("ratio", "visible"), [(0.75, 4), (0.7, 4), (0.65, 5), (0.5, 8)])
def test_the_number_of_visible_patches_is_rounded_down(ratio, visible):
    """Of 16: a quarter, 4.8, 5.6, a half."""
    assert config(mask_ratio=ratio).visible == visible


def test_as_many_patches_are_visible_as_the_fraction_says():
    """Catches a share that is rounded before it is multiplied: 100 (1 - 0.9) is 9.999999999999998."""
    for side in range(2, 16):
        for percent in range(1, 100):
            if 0 < (visible := side**2 * (100 - percent) // 100) < side**2:
                vit = ViTConfig(image_size=2 * side, patch_size=2, d_model=8, n_heads=2, d_ff=8, n_layers=1, classes=0)
                assert MAEConfig(vit, mask_ratio=percent / 100).visible == visible


def test_each_patch_is_hidden_as_often_as_any_other():
    model = MAE(config())
    hidden = model.hidden_patches(orders(4000))
    assert (hidden.sum(dim=1) == N - K).all()
    # the deviation of a share of 4,000 draws is 0.0068
    np.testing.assert_allclose(hidden.float().mean(dim=0), 0.75, atol=0.03)


# --- what is to be predicted ------------------------------------------------------------------------------------


def normalised_by_hand(image: np.ndarray) -> np.ndarray:
    rows = []
    for y in range(0, SIDE, P):
        for x in range(0, SIDE, P):
            patch = image[:, y : y + P, x : x + P].flatten()
            rows.append((patch - patch.mean()) / np.sqrt(patch.var(ddof=1) + 1e-6))
    return np.stack(rows)


def test_each_patch_loses_its_own_mean_and_deviation():
    images = pictures() * 3 + 5
    found = normalised_patches(images, P)
    for b in range(B):
        np.testing.assert_allclose(found[b], normalised_by_hand(images[b].numpy()), rtol=1e-9)
    assert (normalised_patches(torch.full((1, 3, 4, 4), 0.7), 2) == 0).all()
    red = torch.tensor([0.9, 0.1, 0.1])[:, None, None].expand(1, 3, 4, 4)
    assert normalised_patches(red, 2).abs().min() > 0.5, "hue is left"
    brighter = normalised_patches(2 * images + 1, P)
    torch.testing.assert_close(brighter, found, rtol=1e-4, atol=1e-6)


def test_the_loss_counts_hidden_patches_alone():
    model, images, order = make(), pictures(), orders()
    guessed = model(images, order).detach().numpy()
    errors = []
    for b in range(B):
        wanted = normalised_by_hand(images[b].numpy())
        errors += [((guessed[b, i] - wanted[i]) ** 2).mean() for i in order[b, K:].tolist()]
    total, count = mae_loss(model, {"images": images, "order": order})
    assert count == B * (N - K) == len(errors)
    assert total.item() == pytest.approx(sum(errors), rel=1e-6)


# --- the model --------------------------------------------------------------------------------------------------


def theirs_with_the_weights_of(model: MAE):
    """transformers' model; the numbers of a patch go there pixel by pixel, each with its channels."""
    from transformers import ViTMAEConfig, ViTMAEForPreTraining

    sizes = {"hidden_size": D, "num_attention_heads": 3, "num_hidden_layers": 2, "intermediate_size": 48}
    sizes |= {"image_size": SIDE, "patch_size": P, "num_channels": C, "layer_norm_eps": 1e-6, "norm_pix_loss": True}
    sizes |= {"decoder_hidden_size": E, "decoder_num_attention_heads": 2, "decoder_num_hidden_layers": 2}
    theirs = ViTMAEForPreTraining(ViTMAEConfig(**sizes, decoder_intermediate_size=4 * E)).double().eval()
    w, found = dict(model.named_parameters()), {}
    found["vit.embeddings.cls_token"] = w["vit.class_token"][None]
    found["vit.embeddings.position_embeddings"] = w["vit.positions.encoding"][None]
    found["decoder.mask_token"], found["decoder.decoder_pos_embed"] = w["mask_token"], w["positions"][None]
    pixel_first = torch.arange(C * P * P).view(C, P, P).movedim(0, -1).flatten()
    places = {"vit.patch_embedding": "vit.embeddings.patch_embeddings.projection", "vit.norm": "vit.layernorm"}
    places |= {"embed": "decoder.decoder_embed", "norm": "decoder.decoder_norm", "predict": "decoder.decoder_pred"}
    for ours, there in (("vit.blocks", "vit.layers"), ("blocks", "decoder.decoder_layers")):
        for i in range(2):
            places |= {
                f"{ours}.{i}.attention.out": f"{there}.{i}.attention.o_proj",
                f"{ours}.{i}.attention_residual.norm": f"{there}.{i}.layernorm_before",
                f"{ours}.{i}.feed_forward.up": f"{there}.{i}.mlp.fc1",
                f"{ours}.{i}.feed_forward.down": f"{there}.{i}.mlp.fc2",
                f"{ours}.{i}.feed_forward_residual.norm": f"{there}.{i}.layernorm_after",
            }
            for part in ("weight", "bias"):
                three = w[f"{ours}.{i}.attention.qkv.{part}"].chunk(3)
                found |= {f"{there}.{i}.attention.{x}_proj.{part}": y for x, y in zip("qkv", three)}
    for ours, name in places.items():
        for part in ("weight", "bias"):
            found[f"{name}.{part}"] = w[f"{ours}.{part}"]
            if ours == "predict":
                found[f"{name}.{part}"] = found[f"{name}.{part}"][pixel_first]
    theirs.load_state_dict(found)
    return theirs, pixel_first


def test_it_is_transformers_model():
    """The same weights and the same order give the same guesses and the same loss."""
    model, images, order = make(), pictures(), orders()
    theirs, pixel_first = theirs_with_the_weights_of(model)
    noise = order.argsort(dim=1).double()  # whose argsort is the order
    with torch.no_grad():
        expected, found = theirs(images, noise=noise), model(images, order)
        total, count = mae_loss(model, {"images": images, "order": order})
    torch.testing.assert_close(found[..., pixel_first], expected.logits)
    assert (total / count).item() == pytest.approx(expected.loss.item(), rel=1e-5)
    assert torch.equal(model.hidden_patches(order), expected.mask.bool())


def test_the_encoder_sees_nothing_of_hidden_patches():
    """Neither their pixels nor their number of places: as many tokens as are visible, and the class token."""
    model, images, order = make(), pictures(), orders()
    seen = []
    model.vit.blocks[0].register_forward_pre_hook(lambda _, x: seen.append(x[0].shape))
    states = model.encode(images, order)
    assert seen == [(B, 1 + K, D)]
    hidden = model.hidden_patches(order).view(B, 1, 4, 4).repeat_interleave(P, 2).repeat_interleave(P, 3)
    other = torch.where(hidden, torch.randn_like(images), images)
    assert not torch.equal(other, images)
    torch.testing.assert_close(model.encode(other, order), states)
    torch.testing.assert_close(model(other, order), model(images, order))


def test_visible_patches_in_another_order_are_the_same_patches():
    model, images, order = make(), pictures(), orders()
    other = torch.cat([order[:, :K].flip(1), order[:, K:].roll(3, dims=1)], dim=1)
    assert torch.equal(model.hidden_patches(order), model.hidden_patches(other))
    torch.testing.assert_close(model(images, other), model(images, order))


def test_it_paints_hidden_patches_alone():
    model, images, order = make(), pictures(), orders()
    painted, guessed = model.reconstruct(images, order), model(images, order).detach()
    for b in range(B):
        for i in range(N):
            y, x = P * (i // 4), P * (i % 4)
            patch, result = (a[b, :, y : y + P, x : x + P].flatten() for a in (images, painted))
            if i in order[b, :K]:
                assert torch.equal(result, patch)
            else:
                expected = guessed[b, i] * (patch.var() + 1e-6).sqrt() + patch.mean()
                torch.testing.assert_close(result, expected)


def test_features_are_those_of_the_whole_image():
    model, images = make(), pictures()
    whole = torch.arange(N).expand(B, -1)
    states = make(mask_ratio=0.05).encode(images, whole)  # 15 of 16 patches: one is missing
    assert states.shape == (B, 16, D)
    torch.testing.assert_close(model.features(images), model.vit.hidden(images)[:, 1:].mean(dim=1))
    assert not torch.allclose(model.features(images), states[:, 1:].mean(dim=1))


def test_gradients_reach_all_but_the_positions():
    model = make()
    mae_loss(model, {"images": pictures(), "order": orders()})[0].backward()
    for name, p in model.named_parameters():
        if name in ("positions", "vit.positions.encoding"):
            assert p.grad is None
            assert not p.requires_grad
        elif "qkv.bias" not in name:  # of keys, which softmax takes no notice of
            assert p.grad.abs().max() > 1e-9, name


def test_before_anything_is_learned():
    torch.manual_seed(0)
    model = MAE(config())
    torch.testing.assert_close(model.vit.positions.encoding, sinusoidal_2d(4, D), rtol=0, atol=0)
    torch.testing.assert_close(model.positions, sinusoidal_2d(4, E), rtol=0, atol=0)
    assert model.mask_token.std().item() == pytest.approx(0.02, rel=0.6)


def test_it_learns_and_goes_on_where_it_was_stopped(tmp_path):
    images = torch.rand(16, C, SIDE, SIDE, generator=torch.Generator().manual_seed(1))

    def run(steps, folder=None):
        seed(0)
        model = MAE(config())
        data = Fresh(lambda g: {"images": images, "order": draw_orders(16, N, g)})
        training = Training(model, mae_loss, data, adamw(model, 3e-3), 20, folder=folder, save_every=5, log_every=5)
        for record in training:
            if record["step"] == steps:
                break
        return training

    whole = run(20)
    assert whole.history[-1]["loss"] < 0.8 * whole.history[0]["loss"]
    run(10, tmp_path)
    again = run(20, tmp_path)
    for one, other in zip(whole.model.parameters(), again.model.parameters()):
        assert torch.equal(one, other)


def test_on_any_device(where):
    model, images, order = make(), pictures(), orders()
    expected = mae_loss(model, {"images": images, "order": order})[0].item()
    total, count = mae_loss(model.to(where), {"images": images.to(where), "order": order.to(where)})
    assert total.item() == pytest.approx(expected, rel=1e-6)
    assert (total.device.type, count.device.type) == (where.type, where.type)


def test_published_numbers():
    c = MAEConfig.b16()
    assert (c.mask_ratio, c.patches, c.visible, c.d_decoder, c.decoder_layers) == (0.75, 196, 49, 512, 8)
    with torch.device("meta"):
        model = MAE(c)
    assert sum(p.numel() for p in model.parameters()) == 111_907_840
    assert sum(p.numel() for p in model.parameters() if not p.requires_grad) == 252_160


@pytest.mark.parametrize(("vit", "changes", "message"), [
    ({"classes": 3}, {}, "vit.classes=3: must be 0"),
    ({"representation_size": 3}, {}, "vit.representation_size=3: must be 0"),
    ({"pooling": "mean"}, {}, "vit.pooling='mean': must be 'class'"),
    ({}, {"d_decoder": 0}, "d_decoder=0: must be at least 1"),
    ({}, {"decoder_heads": 3}, "d_decoder=8: must be a multiple of decoder_heads=3"),
    ({}, {"mask_ratio": 0.0}, "mask_ratio=0.0: of 16 patches some must be hidden"),
    ({}, {"mask_ratio": 0.99}, "mask_ratio=0.99: of 16 patches some must be hidden"),
], ids=lambda x: None)  # fmt: skip
def test_nonsense_is_refused(vit, changes, message):
    with pytest.raises(ValueError, match=message):
        config(vit, **changes)


def test_an_order_of_other_patches_is_refused():
    with pytest.raises(ValueError, match=r"order of shape \(3, 4\): must be \(3, 16\)"):
        make()(pictures(), orders()[:, :K])


@pytest.mark.parametrize("change", [lambda order: order * 0, lambda order: order + 1])
def test_an_order_is_each_patch_once(change):
    with pytest.raises(ValueError, match="order: each row must hold each of the numbers 0 to 15 once"):
        make()(pictures(), change(orders()))


@pytest.mark.parametrize("side", [8, 32])
def test_images_of_another_size_are_refused(side):
    images = torch.zeros(3, pictures().shape[1], side, side)
    with pytest.raises(ValueError, match=rf"images of shape \(3, \d, {side}, {side}\): must be"):
        make()(images, orders())


def test_a_share_that_is_no_number_is_refused():
    with pytest.raises(ValueError, match="mask_ratio=nan"):
        MAEConfig(ViTConfig(classes=0), mask_ratio=float("nan"))
