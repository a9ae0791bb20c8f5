"""Normalisation by the history's own mean and deviation, beside NumPy's, transformers', and what it is there for."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coursekit.nn.revin import denormalise, normalise

SHAPES = st.tuples(st.integers(1, 4), st.integers(1, 9), st.integers(1, 3))  # (B, L, C)


def histories(shape, seed: int = 0) -> torch.Tensor:
    """Of other level and size in each row and channel, in double precision."""
    generator = torch.Generator().manual_seed(seed)
    sizes, levels = (torch.rand(shape[0], 1, shape[-1], generator=generator).double() for _ in range(2))
    return torch.randn(shape, generator=generator).double() * (sizes + 0.1) * 30 + levels * 1000


@given(SHAPES, st.integers(0, 99))
def test_is_the_formula(shape, seed):
    """Catches the sample variance, an epsilon outside of the root, and means over the batch or the channels."""
    x = histories(shape, seed)
    z, mean, std = normalise(x)
    expected = np.sqrt(x.numpy().var(axis=1, ddof=0, keepdims=True) + 1e-5)
    np.testing.assert_allclose(std.numpy(), expected, rtol=1e-9)
    np.testing.assert_allclose(mean.numpy(), x.numpy().mean(axis=1, keepdims=True))
    np.testing.assert_allclose(z.numpy(), (x.numpy() - mean.numpy()) / expected, atol=1e-9)


def test_is_that_of_patchtst_in_transformers():
    transformers = pytest.importorskip("transformers")
    from transformers.models.patchtst.modeling_patchtst import PatchTSTStdScaler

    x = histories((3, 11, 2)) / 1000  # where 1e-5 is to be seen
    for found, expected in zip(normalise(x), PatchTSTStdScaler(transformers.PatchTSTConfig())(x, torch.ones_like(x))):
        torch.testing.assert_close(found, expected)


@given(SHAPES, st.integers(0, 99))
def test_restoring_takes_it_back(shape, seed):
    x = histories(shape, seed)
    z, mean, std = normalise(x)
    torch.testing.assert_close(denormalise(z, mean, std), x)


@settings(max_examples=50)
@given(st.floats(0.1, 100), st.floats(-1e5, 1e5), st.integers(0, 99))
def test_a_forecaster_between_the_two_follows_shift_and_scale(a, b, seed):
    """Whatever it does, here a nonlinear one: catches a mean or deviation that is taken of anything but the history."""
    # so large that the 1e-5 under the root, which has no other weight in other units, is not to be seen
    x = torch.randn(2, 12, 3, generator=torch.Generator().manual_seed(seed)).double() * 1000

    def forecast(history: torch.Tensor) -> torch.Tensor:
        z, mean, std = normalise(history)
        return denormalise(torch.sin(z[:, -5:]) + z[:, :5] ** 2, mean, std)

    torch.testing.assert_close(forecast(a * x + b), a * forecast(x) + b, rtol=1e-6, atol=1e-3 * a)


def test_a_history_that_never_changes_is_finite_and_comes_back():
    x = torch.full((1, 5, 1), 7.0)
    z, mean, std = normalise(x)
    assert torch.equal(z, torch.zeros_like(x))
    assert torch.equal(denormalise(z, mean, std), x)


def test_any_dimensions_before_and_a_longer_forecast():
    x = histories((6, 7, 2)).unflatten(0, (2, 3))
    z, mean, std = normalise(x)
    assert mean.shape == std.shape == (2, 3, 1, 2)
    torch.testing.assert_close(z[1, 2], normalise(x[1, 2])[0])
    assert denormalise(torch.zeros(2, 3, 20, 2), mean, std).shape == (2, 3, 20, 2)


@pytest.mark.parametrize("shape", [(5,), (2, 0, 3)])
def test_refuses_what_has_no_time(shape):
    with pytest.raises(ValueError, match=r"must be \(\.\.\., L, C\), L at least 1"):
        normalise(torch.zeros(shape))
