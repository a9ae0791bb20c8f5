"""The recurrent forecaster beside one that takes a step at a time, and what it must not see or depend on."""

import warnings

import pytest
import torch

from coursekit.models.baselines.lstm_forecaster import LSTMForecaster, LSTMForecasterConfig
from coursekit.nn.cells import lstm_step
from tests.conftest import randomise

CONFIG = LSTMForecasterConfig(history=6, horizon=4, hidden_size=5)


def histories(B: int = 3, L: int = 6, C: int = 2, seed: int = 1) -> torch.Tensor:
    return torch.randn(B, L, C, generator=torch.Generator().manual_seed(seed)) * 3 + 20


def test_is_what_its_words_say():
    """Step by step, one channel of one history at a time: catches mixed up channels, rows and times."""
    model, x = randomise(LSTMForecaster(CONFIG)), histories()
    found = model(x)
    assert found.shape == (3, 4, 2)
    for b in range(3):
        for c in range(2):
            series = x[b, :, c]
            mean, std = series.mean(), (series.var(correction=0) + 1e-5).sqrt()
            state = (torch.zeros(1, 5), torch.zeros(1, 5))
            for value in (series - mean) / std:
                state = lstm_step(model.lstm, value.reshape(1, 1), state)
            expected = (model.head.weight @ state[0][0] + model.head.bias) * std + mean
            torch.testing.assert_close(found[b, :, c], expected, rtol=1e-4, atol=1e-4)


def test_of_two_layers_the_upper_one_speaks():
    model, x = randomise(LSTMForecaster(LSTMForecasterConfig(6, 4, hidden_size=5, n_layers=2))), histories(B=1, C=1)
    z = (x - x.mean()) / (x.var(correction=0) + 1e-5).sqrt()
    states, _ = model.lstm(z)
    expected = model.head(states[:, -1]) * (x.var(correction=0) + 1e-5).sqrt() + x.mean()
    torch.testing.assert_close(model(x)[..., 0], expected)


def test_follows_shift_and_scale_of_each_channel():
    model, x = randomise(LSTMForecaster(CONFIG)).double(), histories().double()
    scale, shift = torch.tensor([5.0, 0.5]).double(), torch.tensor([-100.0, 7.0]).double()
    torch.testing.assert_close(model(x * scale + shift), model(x) * scale + shift, rtol=1e-4, atol=1e-4)


def test_a_channel_knows_nothing_of_the_others():
    model, x = randomise(LSTMForecaster(CONFIG)), histories(C=4)
    torch.testing.assert_close(model(x), torch.cat([model(one) for one in x.split(1, dim=2)], dim=2))


def test_dropout_acts_in_training_alone_and_without_a_warning():
    for n_layers in (1, 2):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model = randomise(LSTMForecaster(LSTMForecasterConfig(6, 4, 16, n_layers, dropout=0.5)))
        assert model.lstm.dropout == (0.5 if n_layers > 1 else 0.0)
        x = histories()
        assert not torch.equal(model(x), model(x))
        model.eval()
        assert torch.equal(model(x), model(x))


def test_learns_a_sine():
    torch.manual_seed(0)
    model = LSTMForecaster(LSTMForecasterConfig(history=24, horizon=6, hidden_size=16))
    t = torch.arange(30) + torch.arange(12)[:, None] * 5
    wave = (10 + 3 * torch.sin(2 * torch.pi * t / 12))[..., None]
    x, y = wave[:, :24], wave[:, 24:]
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(120):
        loss = (model(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.1, "of a variance of 4.5"


@pytest.mark.parametrize("field", ["history", "horizon", "hidden_size", "n_layers"])
def test_refuses_sizes_below_one(field):
    with pytest.raises(ValueError, match=f"{field}=0: must be at least 1"):
        LSTMForecasterConfig(**{"history": 4, "horizon": 2, field: 0})


def test_refuses_a_dropout_that_leaves_nothing():
    with pytest.raises(ValueError, match=r"dropout=1\.0: must be a probability below 1"):
        LSTMForecasterConfig(4, 2, dropout=1.0)


@pytest.mark.parametrize("shape", [(2, 5, 1), (2, 6), (1, 2, 6, 1)])
def test_refuses_other_histories(shape):
    with pytest.raises(ValueError, match=r"histories of shape .*: must be \(B, 6, C\)"):
        LSTMForecaster(CONFIG)(torch.zeros(shape))
