"""DLinear beside loops over numbers, its weights at first, and what it can say exactly."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coursekit.models.baselines.dlinear import DLinear, DLinearConfig, decompose
from tests.conftest import randomise


def slow_trend(x: np.ndarray, kernel: int) -> np.ndarray:
    """Of one channel: an index outside of the history is that of its end."""
    around = range(-(kernel // 2), kernel // 2 + 1)
    return np.array([np.mean([x[min(max(t + k, 0), len(x) - 1)] for k in around]) for t in range(len(x))])


@settings(max_examples=50)
@given(st.integers(1, 3), st.integers(1, 12), st.integers(1, 3), st.integers(0, 10), st.integers(0, 99))
def test_the_trend_is_the_slow_one(B, L, C, half, seed):
    """Catches zeros at the edges, a kernel off its centre, and one that cannot be longer than the history."""
    x = torch.randn(B, L, C, generator=torch.Generator().manual_seed(seed)).double()
    trend, remainder = decompose(x, 2 * half + 1)
    assert trend.shape == remainder.shape == x.shape
    for b in range(B):
        for c in range(C):
            np.testing.assert_allclose(trend[b, :, c], slow_trend(x[b, :, c].numpy(), 2 * half + 1), atol=1e-12)
    torch.testing.assert_close(trend + remainder, x)


def test_is_what_its_words_say():
    model = randomise(DLinear(DLinearConfig(history=9, horizon=4, kernel=5)))
    x = torch.randn(2, 9, 3, generator=torch.Generator().manual_seed(1))
    found = model(x)
    assert found.shape == (2, 4, 3)
    W_t, b_t, W_r, b_r = (p.detach().numpy() for p in (*model.trend.parameters(), *model.remainder.parameters()))
    for b in range(2):
        for c in range(3):
            trend = slow_trend(x[b, :, c].numpy(), 5)
            expected = W_t @ trend + b_t + W_r @ (x[b, :, c].numpy() - trend) + b_r
            np.testing.assert_allclose(found[b, :, c].detach(), expected, rtol=1e-4, atol=1e-5)


def test_forecasts_the_mean_at_first():
    """Catches torch's own initial weights, and 1 / H for 1 / L."""
    model = DLinear(DLinearConfig(history=8, horizon=3))
    for layer in (model.trend, model.remainder):
        torch.testing.assert_close(layer.weight, torch.full((3, 8), 1 / 8))
        assert layer.bias.abs().max() > 0, "as those of any linear layer"
    x = torch.randn(2, 8, 5) + 100
    expected = x.mean(dim=1, keepdim=True) + (model.trend.bias + model.remainder.bias)[:, None]
    torch.testing.assert_close(model(x), expected)


def test_a_channel_knows_nothing_of_the_others():
    model = randomise(DLinear(DLinearConfig(history=6, horizon=2, kernel=3)))
    x = torch.randn(3, 6, 4)
    torch.testing.assert_close(model(x), torch.cat([model(one) for one in x.split(1, dim=2)], dim=2))
    torch.testing.assert_close(model(x.flip(2)), model(x).flip(2))


def test_has_two_maps_however_many_channels():
    model = DLinear(DLinearConfig(history=336, horizon=96))
    assert sum(p.numel() for p in model.parameters()) == 2 * (336 * 96 + 96)
    assert model.config.kernel == 25


@pytest.mark.parametrize("field", ["history", "horizon", "kernel"])
def test_refuses_sizes_below_one(field):
    with pytest.raises(ValueError, match=f"{field}=0: must be at least 1"):
        DLinearConfig(**{"history": 4, "horizon": 2, field: 0})


def test_refuses_an_even_kernel():
    with pytest.raises(ValueError, match="kernel=24: must be odd"):
        DLinearConfig(history=4, horizon=2, kernel=24)
    with pytest.raises(ValueError, match="kernel=2: must be odd"):
        decompose(torch.zeros(1, 5, 1), 2)


@pytest.mark.parametrize("shape", [(2, 5, 1), (2, 6), (6, 1), (1, 2, 6, 1)])
def test_refuses_other_histories(shape):
    with pytest.raises(ValueError, match=r"histories of shape .*: must be \(B, 6, C\)"):
        DLinear(DLinearConfig(history=6, horizon=2))(torch.zeros(shape))
