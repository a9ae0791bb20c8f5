"""PatchTST beside transformers', all parameters randomised; forecasts that know no level and no other channel."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from coursekit.models.baselines.encoder_decoder_forecaster import EncoderDecoderForecaster, teacher_forcing_loss
from coursekit.models.patchtst import (
    PatchForecaster,
    PatchTSTConfig,
    SeriesClassifier,
    absolute_loss,
    cut_patches,
    forecast_loss,
    series_classification_loss,
)
from coursekit.nn.attention import record_attention
from coursekit.nn.revin import normalise
from tests.conftest import randomise

L, H, C = 30, 7, 3
CONFIG = PatchTSTConfig(L, patch_size=8, stride=5, d_model=12, n_heads=3, d_ff=20, n_layers=2)


@pytest.fixture
def history(generator):
    return torch.randn(4, L, C, generator=generator) * torch.tensor([1.0, 5, 0.2]) + torch.tensor([0.0, 900, -3])


# --- patches --------------------------------------------------------------------------------------------------


@given(st.integers(1, 9), st.integers(1, 9), st.integers(9, 24))
def test_patches_are_cut_from_the_end(size, stride, length):
    x = torch.arange(2 * length).view(2, length)
    found = cut_patches(x, size, stride)
    assert found.shape == (2, (length - size) // stride + 1, size)
    ends = [length - i * stride for i in range(found.shape[1])][::-1]
    for n, end in enumerate(ends):
        assert torch.equal(found[:, n], x[:, end - size : end])


@pytest.mark.parametrize(("size", "stride"), [(9, 1), (0, 1), (2, 0)])
def test_patches_that_do_not_fit_are_refused(size, stride):
    with pytest.raises(ValueError, match=f"patches of {size} every {stride}"):
        cut_patches(torch.zeros(8), size, stride)


# --- beside transformers --------------------------------------------------------------------------------------


def patchtst(kind: str, config: PatchTSTConfig, **more):
    import transformers

    sizes = {"num_input_channels": C, "context_length": config.history, "patch_length": config.patch_size}
    sizes |= {"patch_stride": config.stride, "num_hidden_layers": config.n_layers, "d_model": config.d_model}
    sizes |= {"num_attention_heads": config.n_heads, "ffn_dim": config.d_ff, "norm_type": "layernorm"}
    sizes |= {"positional_encoding_type": "random", "scaling": "std", "loss": "mse", "head_dropout": 0.0}
    theirs = getattr(transformers, kind)(transformers.PatchTSTConfig(**sizes, **more))
    return randomise(theirs, seed=1).eval()


def give(ours: nn.Module, theirs: nn.Module) -> None:
    """Our weights become theirs, all of them."""
    state, found = theirs.state_dict(), {}

    def take(here: str, there: str) -> None:
        for part in ("weight", "bias"):
            found[f"{here}.{part}"] = state.pop(f"{there}.{part}")

    take("encoder.embedding", "model.encoder.embedder.input_embedding")
    found["encoder.positions.encoding"] = state.pop("model.encoder.positional_encoder.position_enc")
    for i in range(ours.config.n_layers):
        here, there = f"encoder.blocks.{i}", f"model.encoder.layers.{i}"
        for part in ("weight", "bias"):
            qkv = [state.pop(f"{there}.self_attn.{x}_proj.{part}") for x in "qkv"]
            found[f"{here}.attention.qkv.{part}"] = torch.cat(qkv)
        take(f"{here}.attention.out", f"{there}.self_attn.out_proj")
        take(f"{here}.attention_residual.norm", f"{there}.norm_sublayer1")
        take(f"{here}.feed_forward_residual.norm", f"{there}.norm_sublayer3")
        take(f"{here}.feed_forward.up", f"{there}.ff.0")
        take(f"{here}.feed_forward.down", f"{there}.ff.3")
    take("head", "head.projection" if "head.projection.weight" in state else "head.linear")
    assert not state
    ours.load_state_dict(found)


def test_forecasts_and_gradients_are_those_of_transformers(history, generator):
    theirs = patchtst("PatchTSTForPrediction", CONFIG, prediction_length=H, pooling_type=None)
    ours = PatchForecaster(CONFIG, H).eval()
    give(ours, theirs)
    y = theirs(past_values=history).prediction_outputs
    torch.testing.assert_close(ours(history), y, rtol=1e-4, atol=1e-4)
    target = history[:, -H:] + torch.randn(4, H, C, generator=generator)
    (y - target).square().sum().backward()
    forecast_loss(ours, {"history": history, "target": target})[0].backward()
    for mine, its in (
        (ours.encoder.embedding, theirs.model.encoder.embedder.input_embedding),
        (ours.encoder.blocks[1].feed_forward.up, theirs.model.encoder.layers[1].ff[0]),
        (ours.head, theirs.head.projection),
    ):
        torch.testing.assert_close(mine.weight.grad, its.weight.grad, rtol=1e-3, atol=1e-3)


def test_a_window_that_never_changes_is_read_as_transformers_reads_it():
    """The 1e-5 stands under the root: beside it, or on the deviation, this would blow up by other factors."""
    theirs = patchtst("PatchTSTForPrediction", CONFIG, prediction_length=H, pooling_type=None)
    ours = PatchForecaster(CONFIG, H).eval()
    give(ours, theirs)
    still = torch.full((1, L, C), 7.0)
    still[0, 3, 1] += 1e-3
    torch.testing.assert_close(ours(still), theirs(past_values=still).prediction_outputs, rtol=1e-4, atol=1e-5)


def test_classes_are_those_of_transformers(history):
    theirs = patchtst("PatchTSTForClassification", CONFIG, num_targets=4, pooling_type="mean", use_cls_token=False)
    ours = SeriesClassifier(CONFIG, C, 4).eval()
    give(ours, theirs)
    torch.testing.assert_close(
        ours(normalise(history)[0]), theirs(past_values=history).prediction_logits, rtol=1e-4, atol=1e-4
    )


# --- what a forecast may know ---------------------------------------------------------------------------------

MODELS = {
    "encoder": lambda: PatchForecaster(CONFIG, H),
    "quantiles": lambda: PatchForecaster(CONFIG, H, (0.1, 0.5, 0.9)),
    "encoder and decoder": lambda: EncoderDecoderForecaster(CONFIG, H),
}


@pytest.fixture(params=MODELS)
def model(request):
    return randomise(MODELS[request.param](), std=0.4).eval()


@torch.no_grad()
def test_a_window_that_is_shifted_and_stretched_gets_its_forecast_so(model, history):
    torch.testing.assert_close(model(3 * history + 20), 3 * model(history) + 20, rtol=1e-3, atol=2e-2)


@torch.no_grad()
def test_channels_know_nothing_of_each_other_and_are_read_alike(model, history):
    y = model(history)
    changed = history.clone()
    changed[..., 1] = torch.linspace(0, 1, L)
    found = model(changed)
    torch.testing.assert_close(found[:, :, [0, 2]], y[:, :, [0, 2]])
    assert (found[:, :, 1] - y[:, :, 1]).abs().max() > 1
    torch.testing.assert_close(model(history[..., [2, 0]]), y[:, :, [2, 0]], rtol=1e-4, atol=1e-3)


@torch.no_grad()
def test_the_order_of_the_hours_matters(model, history):
    flipped = model(history.flip(1))
    assert (flipped - model(history)).abs().max() > 0.1


def test_every_head_can_be_looked_at(history):
    model = randomise(PatchForecaster(CONFIG, H)).eval()
    with record_attention(model) as maps:
        model(history)
    shapes = {tuple(weights.shape) for found in maps.values() for weights in found}
    assert shapes == {(4 * C, 3, CONFIG.n_patches, CONFIG.n_patches)}
    assert len(maps) == 2


# --- quantiles ------------------------------------------------------------------------------------------------


@torch.no_grad()
def test_quantiles_rise(history):
    model = randomise(PatchForecaster(CONFIG, H, (0.1, 0.5, 0.9)), std=1.0).eval()
    y = model(history)
    assert y.shape == (4, H, C, 3)
    assert (y.diff(dim=-1) >= 0).all()


def test_quantiles_learn_to_have_their_share_of_values_below(generator):
    """Of noise with nothing to forecast: a loss with its sides swapped would turn the levels round."""
    history, target = torch.randn(2000, 8, 1, generator=generator), torch.randn(2000, 2, 1, generator=generator)
    model = PatchForecaster(PatchTSTConfig(8, 4, 4, 8, 2, 8, 1), 2, (0.1, 0.5, 0.8))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(150):
        loss, count = forecast_loss(model, {"history": history, "target": target})
        optimizer.zero_grad()
        (loss / count).backward()
        optimizer.step()
    with torch.no_grad():
        below = (target[..., None] < model(history)).float().mean(dim=(0, 1, 2))
    np.testing.assert_allclose(below, [0.1, 0.5, 0.8], atol=0.04)


@pytest.mark.parametrize("quantiles", [(0.5, 0.1), (0.1, 0.1), (0.0, 0.5), (0.5, 1.0)])
def test_quantiles_that_are_none_are_refused(quantiles):
    with pytest.raises(ValueError, match="quantiles="):
        PatchForecaster(CONFIG, H, quantiles)


# --- losses ---------------------------------------------------------------------------------------------------


def gaps(target):
    target = target.clone()
    target[0, 2, 1] = target[3, :, 0] = math.nan
    return target


@pytest.mark.parametrize("loss", [forecast_loss, absolute_loss, teacher_forcing_loss])
def test_what_is_missing_costs_nothing_and_sends_no_gradient(loss, history, generator):
    model = EncoderDecoderForecaster(CONFIG, H) if loss is teacher_forcing_loss else PatchForecaster(CONFIG, H)
    randomise(model)
    target = gaps(history[:, -H:] + torch.randn(4, H, C, generator=generator))
    total, count = loss(model, {"history": history, "target": target})
    total.backward()
    assert count == 4 * H * C - 1 - H
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    if loss is not teacher_forcing_loss:
        wrong = model(history).detach().numpy() - target.numpy()
        expected = np.nansum(wrong**2 if loss is forecast_loss else np.abs(wrong))
        assert total.item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("loss", [forecast_loss, absolute_loss, teacher_forcing_loss])
def test_targets_are_refused_that_would_be_compared_with_every_channel_or_hour(loss, history):
    model = EncoderDecoderForecaster(CONFIG, H) if loss is teacher_forcing_loss else PatchForecaster(CONFIG, H)
    for target in (history[:, -H:, :1], history[:, -1:]):
        with pytest.raises(ValueError, match=rf"target of shape .*: must be \(4, {H}, {C}\)"):
            loss(model, {"history": history, "target": target})


def test_the_pinball_loss_counts_every_quantile(history):
    model = randomise(PatchForecaster(CONFIG, H, (0.2, 0.6))).eval()
    target = gaps(history[:, -H:])
    total, count = forecast_loss(model, {"history": history, "target": target})
    assert count == 2 * (4 * H * C - 1 - H)
    y, expected = model(history).detach().numpy(), 0.0
    for q, level in enumerate((0.2, 0.6)):
        error = target.numpy() - y[..., q]
        expected += np.nansum(np.where(error >= 0, level * error, (level - 1) * error))
    assert total.item() == pytest.approx(expected, rel=1e-4)


@torch.no_grad()
def test_the_size_of_the_swings_may_tell_the_class(history):
    model = randomise(SeriesClassifier(CONFIG, C, 4), std=0.4).eval()
    assert (model(3 * history) - model(history)).abs().max() > 0.1


def test_classes_cost_their_cross_entropy(history):
    model = randomise(SeriesClassifier(CONFIG, C, 4), std=0.1).eval()
    labels = torch.tensor([0, 3, 1, 1])
    total, count = series_classification_loss(model, {"history": history, "labels": labels})
    logits = model(history).detach().double().numpy()
    expected = [np.log(np.exp(row - row[k]).sum()) for row, k in zip(logits, labels.tolist())]
    assert total.item() == pytest.approx(sum(expected), rel=1e-5)
    assert count == 4


# --- encoder and decoder --------------------------------------------------------------------------------------


@pytest.fixture
def translator():
    return randomise(EncoderDecoderForecaster(CONFIG, H), std=0.4).eval()


@torch.no_grad()
def test_a_true_hour_changes_only_what_is_forecast_after_it(translator, history):
    """Teacher forcing that let an hour see itself would be a perfect forecast, and worth nothing."""
    target = history[:, -H:]
    y = translator(history, target)
    for t in range(H):
        changed = target.clone()
        changed[:, t] += 5
        found = translator(history, changed)
        torch.testing.assert_close(found[:, : t + 1], y[:, : t + 1], rtol=1e-4, atol=1e-4)
        if t + 1 < H:
            assert (found[:, t + 1] - y[:, t + 1]).abs().min() > 1e-3


@torch.no_grad()
def test_it_reads_its_own_forecasts_as_it_would_the_truth(translator, history):
    y = translator(history)
    torch.testing.assert_close(translator(history, y), y, rtol=1e-4, atol=1e-3)


def test_a_missing_hour_is_read_as_the_last_one_known(translator, history, monkeypatch):
    read = []
    forward = translator.forward
    monkeypatch.setattr(translator, "forward", lambda h, t: read.append(t) or forward(h, t))
    target = history[:, -H:].clone()
    target[0, :2, 0] = target[1, 4, 2] = math.nan
    teacher_forcing_loss(translator, {"history": history, "target": target})
    (seen,) = read
    assert not seen.isnan().any()
    # what is read before hour t stands at t - 1
    assert seen[0, 1, 0] == seen[0, 0, 0] == history[0, -1, 0]
    assert seen[1, 4, 2] == target[1, 3, 2]
    there = ~target.isnan()
    assert torch.equal(seen[there], target[there])


# --- refusals -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"patch_size": 31}, "patch_size=31"),
        ({"stride": 0}, "stride=0"),
        ({"n_heads": 5}, "n_heads=5"),
        ({"dropout": 1.0}, "dropout=1.0"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        PatchTSTConfig(**{"history": L} | changes)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PatchForecaster(CONFIG, 0), "horizon=0"),
        (lambda: EncoderDecoderForecaster(CONFIG, 0), "horizon=0"),
        (lambda: SeriesClassifier(CONFIG, 0, 3), "channels=0"),
        (
            lambda: PatchForecaster(CONFIG, H)(torch.zeros(1, L + 1, C)),
            rf"histories of shape \(1, {L + 1}, {C}\): must be",
        ),
        (
            lambda: PatchForecaster(CONFIG, H)(torch.zeros(2, L)),
            rf"histories of shape \(2, {L}\): must be \(B, {L}, C\)",
        ),
    ],
)
def test_what_cannot_be_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
