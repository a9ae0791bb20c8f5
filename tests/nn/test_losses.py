"""The pinball loss beside scikit-learn's, what it is least for, and its gradient."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import mean_pinball_loss

from coursekit.nn.losses import pinball_loss, real_rows


def test_by_hand():
    """Catches levels that are turned round."""
    losses = pinball_loss(torch.tensor([[1.0, 7.0], [1.0, 7.0]]), torch.tensor([5.0, 10.0]), (0.1, 0.9))
    torch.testing.assert_close(losses, torch.tensor([[0.4, 0.2], [0.9, 2.7]]))


@settings(max_examples=50)
@given(st.lists(st.floats(0.01, 0.99), min_size=1, max_size=4), st.integers(0, 99))
def test_is_scikit_learns(levels, seed):
    generator = torch.Generator().manual_seed(seed)
    target = torch.randn(3, 5, 2, generator=generator).double()
    forecast = torch.randn(3, 5, 2, len(levels), generator=generator).double()
    losses = pinball_loss(forecast, target, levels)
    assert losses.shape == forecast.shape
    for i, level in enumerate(levels):
        expected = mean_pinball_loss(target.flatten(), forecast[..., i].flatten(), alpha=level)
        assert losses[..., i].mean().item() == pytest.approx(expected)


@pytest.mark.parametrize("level", [0.1, 0.5, 0.9])
def test_training_with_it_finds_the_quantile(level):
    """Catches a sign, and a gradient that is cut off."""
    y = torch.randn(2001, generator=torch.Generator().manual_seed(0)).exp()
    f = torch.zeros(1, requires_grad=True)
    for step in range(300):
        (gradient,) = torch.autograd.grad(pinball_loss(f.expand(2001, 1), y, [level]).mean(), f)
        f = (f - 2 / (1 + step / 20) * gradient).detach().requires_grad_()
    assert abs((y < f).float().mean().item() - level) < 0.02
    assert f.item() == pytest.approx(np.quantile(y.numpy(), level), rel=0.05)


def test_a_missing_target_sends_back_no_gradient():
    target = torch.tensor([1.0, math.nan, 3.0])
    forecast = torch.zeros(3, 2, requires_grad=True)
    losses = pinball_loss(forecast, target, (0.25, 0.5))
    assert losses.isnan().all(dim=-1).tolist() == [False, True, False]
    losses[~target.isnan()].sum().backward()
    assert forecast.grad.tolist() == [[-0.25, -0.5], [0, 0], [-0.25, -0.5]]


def test_levels_are_not_rounded_with_the_forecast():
    """In bfloat16 0.9 is 0.8984, which training under autocast would aim at."""
    losses = pinball_loss(torch.zeros(1, 1, dtype=torch.bfloat16), torch.ones(1), [0.9])
    assert losses.dtype == torch.float32
    assert losses.item() == pytest.approx(0.9, rel=1e-6)


@pytest.mark.parametrize("levels", [(0.1, 0.0), (1.0, 0.5), (math.nan, 0.5)])
def test_refuses_levels_that_are_none(levels):
    with pytest.raises(ValueError, match=r"levels=\(.*\): each must lie between 0 and 1"):
        pinball_loss(torch.zeros(3, 2), torch.zeros(3), levels)


@pytest.mark.parametrize("shape", [(3,), (3, 1), (3, 3), (4, 2), (1, 2)])
def test_refuses_shapes_that_would_broadcast(shape):
    with pytest.raises(ValueError, match=r"must be \(3, 2\), the target's shape and 2 levels"):
        pinball_loss(torch.zeros(shape), torch.zeros(3), (0.1, 0.9))


def test_rows_of_padding_are_left_out_and_what_is_no_mask_is_refused():
    logits, target, real = torch.randn(2, 3, 5), torch.arange(6).view(2, 3) % 5, torch.tensor([[1, 1, 0], [1, 0, 0]])
    rows, wanted = real_rows(logits, target, real.bool())
    assert torch.equal(rows, torch.stack([logits[0, 0], logits[0, 1], logits[1, 0]]))
    assert wanted.tolist() == [0, 1, 3]
    with pytest.raises(ValueError, match=r"the mask of the targets of torch.int64: must be boolean"):
        real_rows(logits, target, real)
    with pytest.raises(ValueError, match=r"the mask of the targets of shape \(1, 3\): must be \(2, 3\)"):
        real_rows(logits, target, real[:1].bool())
