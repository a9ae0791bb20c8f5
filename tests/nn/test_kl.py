"""The three estimators over distributions that can be summed exactly: what each is unbiased for."""

import math

import pytest
import torch

from coursekit.nn.kl import FAR, k1, k2, k3


def exact(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    return (p * (p / q).log()).sum()


def two(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits of a policy and of its reference."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(2, 5, generator=generator, dtype=torch.float64))


def test_by_hand():
    """pi = (0.9, 0.1), ref = (0.5, 0.5): the divergence is 0.368 nats; with the ratio inverted k3 gives 0.511."""
    pi, ref = torch.tensor([0.9, 0.1], dtype=torch.float64), torch.tensor([0.5, 0.5], dtype=torch.float64)
    r = (pi / ref).log()
    assert exact(pi, ref).item() == pytest.approx(0.368, abs=5e-4)
    assert (pi * k3(r)).sum().item() == pytest.approx(exact(pi, ref).item(), rel=1e-12)
    assert (pi * k1(r)).sum().item() == pytest.approx(exact(pi, ref).item(), rel=1e-12)
    assert k2(r).tolist() == pytest.approx([math.log(1.8) ** 2 / 2, math.log(0.2) ** 2 / 2])


@pytest.mark.parametrize("seed", range(5))
def test_k1_and_k3_are_unbiased_as_values_and_k2_is_nearly_so_near_the_reference(seed):
    policy, reference = two(seed)
    pi, ref = policy.softmax(0), reference.softmax(0)
    r = policy.log_softmax(0) - reference.log_softmax(0)
    for estimator in (k1, k3):
        torch.testing.assert_close((pi * estimator(r)).sum(), exact(pi, ref), rtol=1e-12, atol=0)
    assert (k3(r) >= 0).all()
    assert (k1(r) < 0).any()
    near = (0.99 * reference + 0.01 * policy).log_softmax(0)
    r, pi = near - reference.log_softmax(0), near.exp()
    assert (pi * k2(r)).sum().item() == pytest.approx(exact(pi, ref).item(), rel=0.05)
    spread = [(pi * (estimator(r) - exact(pi, ref)) ** 2).sum() for estimator in (k1, k3)]
    assert spread[1] < 0.01 * spread[0], "near the reference k3 scatters far less"


@pytest.mark.parametrize("seed", range(5))
def test_as_losses_they_have_other_gradients(seed):
    """Expected gradients by exact sums, the samples' probabilities held fixed."""
    policy, reference = two(seed)
    pi, log_ref = policy.softmax(0), reference.log_softmax(0)

    def gradient(loss) -> torch.Tensor:
        logits = policy.clone().requires_grad_()
        loss(logits.log_softmax(0)).backward()
        return logits.grad

    forward = gradient(lambda log_pi: (log_pi.exp() * (log_pi - log_ref)).sum())  # of KL(pi || ref)
    backward = gradient(lambda log_pi: (log_ref.exp() * (log_ref - log_pi)).sum())  # of KL(ref || pi)
    found = {one: gradient(lambda log_pi, one=one: (pi * one(log_pi - log_ref)).sum()) for one in (k1, k2, k3)}
    torch.testing.assert_close(found[k1], torch.zeros_like(policy), atol=1e-12, rtol=0)
    torch.testing.assert_close(found[k2], forward)
    torch.testing.assert_close(found[k3], backward)


def test_far_below_the_reference_k3_goes_on_as_a_line():
    r = torch.tensor([-FAR + 1e-3, -FAR, -FAR - 1, -1000.0], dtype=torch.float32, requires_grad=True)
    found = k3(r)
    found.sum().backward()
    assert torch.isfinite(found).all()
    assert torch.isfinite(r.grad).all()
    assert (found[1:] > found[:-1]).all()
    assert r.grad[3].item() == pytest.approx(1 - math.exp(FAR), rel=1e-5)
    assert r.grad[1].item() == pytest.approx(1 - math.exp(FAR), rel=1e-3)
    plain = torch.linspace(-10, 10, 21, dtype=torch.float64)
    torch.testing.assert_close(k3(plain), (-plain).exp() - 1 + plain, rtol=1e-12, atol=1e-12)


def test_in_float32_the_gradient_of_k3_is_that_of_its_formula():
    r = torch.linspace(-15, 15, 31, requires_grad=True)
    (gradient,) = torch.autograd.grad(k3(r).sum(), r)
    torch.testing.assert_close(gradient, 1 - (-r.detach()).exp())
