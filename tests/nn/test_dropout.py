"""``drop`` beside what dropout must be: how often, how much, independent, with its gradient, reproducible, compiled."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from coursekit.nn.dropout import Dropout, drop


@pytest.mark.parametrize("p", [0.1, 0.25, 0.9, 1e-4, 1 - 1e-4])
def test_as_many_are_dropped_as_asked_for_and_the_others_scaled(p):
    torch.manual_seed(0)
    n = 2_000_000
    kept = drop(torch.ones(n), p)
    dropped = (kept == 0).double().mean().item()
    assert dropped == pytest.approx(p, abs=5 * (p * (1 - p) / n) ** 0.5 + 2**-17)  # the rounding of p, too
    assert kept[kept > 0].unique().item() == pytest.approx(1 / (1 - p), rel=2**-17 / (1 - p) + 1e-6)
    assert kept.mean().item() == pytest.approx(1, abs=5 * (p / (1 - p) / n) ** 0.5)


def test_numbers_are_dropped_independently():
    """Four share one draw of 64 bits; none of them, and none of the following, says anything about another."""
    torch.manual_seed(0)
    dropped = (drop(torch.ones(400_000, 8), 0.5) == 0).double()
    correlation = torch.corrcoef(dropped.T) - torch.eye(8)
    assert correlation.abs().max().item() < 5 / 400_000**0.5
    assert dropped.mean(dim=0).sub(0.5).abs().max().item() < 5 * 0.5 / 400_000**0.5


@given(st.lists(st.integers(0, 5), max_size=4), st.floats(0, 1), st.sampled_from([torch.float64, torch.bfloat16]))
def test_every_shape_keeps_its_numbers_or_scales_them(shape, p, dtype):
    x = torch.randn(shape, dtype=dtype).add(10).transpose(0, -1) if shape else torch.tensor(3.0, dtype=dtype)
    found = drop(x, p)
    assert (found.shape, found.dtype) == (x.shape, dtype)
    kept = found != 0
    if p < 1 - 1e-3:
        torch.testing.assert_close(found[kept].double(), x[kept].double() / (1 - p), rtol=0.02, atol=0)
    elif p == 1:
        assert not kept.any()
    if p == 0:
        assert torch.equal(found, x)


def test_the_gradient_is_the_same_noise():
    x = torch.randn(1_001, requires_grad=True)
    found = drop(x, 0.3)
    upstream = torch.randn(1_001)
    found.backward(upstream)
    torch.testing.assert_close(x.grad, upstream * (found / x).detach())


def test_a_seed_repeats_it_and_two_draws_differ():
    x = torch.ones(100)
    first, second = ((torch.manual_seed(seed), drop(x, 0.5))[1] for seed in (0, 0))
    assert torch.equal(first, second)
    assert not torch.equal(first, drop(x, 0.5))


@pytest.mark.parametrize("p", [-0.1, 1.5])
def test_what_is_no_probability_is_refused(p):
    with pytest.raises(ValueError, match=rf"has to be between 0 and 1, but got {p}"):
        drop(torch.ones(3), p)


def test_the_module_drops_in_training_alone_and_compiles_whole():
    module, x = Dropout(0.5), torch.ones(1_000)
    assert isinstance(module, nn.Dropout)
    assert torch.equal(module.eval()(x), x)
    compiled = torch.compile(module.train(), fullgraph=True, backend="aot_eager")
    for found in (module(x), compiled(x)):
        assert (found == 0).double().mean().item() == pytest.approx(0.5, abs=0.1)
