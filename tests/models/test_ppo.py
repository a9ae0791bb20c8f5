"""Policy gradients: PPO's loss beside NumPy, and what an update does to a policy whose rewards are known."""

import numpy as np
import pytest
import torch

from coursekit.models.gpt import GPT, GPTConfig
from coursekit.models.grpo import grpo_objective
from coursekit.models.ppo import advantages, clipped_losses, penalised, ppo_objective
from coursekit.nn.log_probs import token_log_probs
from tests.conftest import randomise

B, T, V = 5, 7, 11


def model(seed: int = 0) -> GPT:
    return randomise(GPT(GPTConfig(V, 8, n_heads=2, d_ff=16, n_layers=1, max_length=T, dropout=0.0)), seed).eval()


def batch(policy: GPT, seed: int = 0, temperature: float = 1.0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    ids, length = torch.randint(V, (B, T), generator=generator), torch.tensor([[7], [4], [5], [6], [4]])
    mask = torch.arange(T) < length
    with torch.no_grad():
        old = token_log_probs(policy(ids, mask), ids, temperature)
    worth = torch.randn(B, generator=generator)
    return {
        "ids": ids,
        "mask": mask,
        "answer": mask & (torch.arange(T) >= 3),
        "old_log_probs": old,
        "advantages": worth,
    }


def test_the_clipped_loss_is_equation_7():
    generator = torch.Generator().manual_seed(0)
    new, old = -3 * torch.rand(2, B, T - 1, generator=generator, dtype=torch.float64)
    A = torch.randn(B, generator=generator, dtype=torch.float64)
    w, a = np.exp((new - old).numpy()), A.numpy()[:, None]
    expected = -np.minimum(w * a, np.clip(w, 0.8, 1.2) * a)
    np.testing.assert_allclose(clipped_losses(new, old, A, 0.2).numpy(), expected, rtol=1e-12)
    np.testing.assert_allclose(clipped_losses(new, old, A, None).numpy(), -w * a, rtol=1e-12)


@pytest.mark.parametrize(("ratio", "A", "moves"), [(1.3, 1, False), (0.7, 1, True), (1.3, -1, True), (0.7, -1, False)])
def test_what_went_far_enough_has_no_gradient_but_what_went_the_wrong_way_has(ratio, A, moves):
    new = torch.tensor([[ratio]]).log().requires_grad_()
    clipped_losses(new, torch.zeros(1, 1), torch.tensor([float(A)]), 0.2).sum().backward()
    assert bool(new.grad.item()) == moves


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_first_update_is_reinforce_on_the_answers_alone(temperature):
    policy = model()
    given = batch(policy, temperature=temperature)
    total, count = ppo_objective(temperature=temperature)(policy, given)
    total.backward()
    found = [p.grad.clone() for p in policy.parameters()]
    policy.zero_grad()
    log_probs = token_log_probs(policy(given["ids"], given["mask"]), given["ids"], temperature)
    counted = given["answer"][:, 1:]
    (-(log_probs * given["advantages"][:, None])[counted]).sum().backward()
    for one, p in zip(found, policy.parameters(), strict=True):
        torch.testing.assert_close(one, p.grad, atol=1e-5, rtol=1e-4)
    assert count == counted.sum()
    assert total.item() == pytest.approx(-(counted.sum(dim=1) * given["advantages"]).sum().item(), rel=1e-4)


def test_without_the_temperature_of_drawing_the_ratio_is_not_one():
    policy = model()
    given = batch(policy, temperature=0.5)
    total, _ = ppo_objective(clip=None)(policy, given)
    right, _ = ppo_objective(clip=None, temperature=0.5)(policy, given)
    assert abs(total.item() - right.item()) > 1e-2


def test_rewards_pay_for_nats_and_nothing_is_learned_through_the_price():
    log_probs = torch.tensor([[-1.0, -2.0, -3.0]], requires_grad=True)
    reference, answer = torch.tensor([[-1.0, -3.0, -2.5]]), torch.tensor([[False, False, True, True]])
    found = penalised(torch.tensor([2.0]), log_probs, reference, answer, beta=0.4)
    assert found.tolist() == pytest.approx([2.0 - 0.4 * (1.0 - 0.5)])
    assert not found.requires_grad
    with pytest.raises(ValueError, match="beta=-1: must be at least 0"):
        penalised(torch.tensor([2.0]), log_probs, reference, answer, beta=-1)


def test_the_mean_reward_is_the_baseline_and_has_no_gradient():
    rewards = torch.tensor([1.0, 2.0, 6.0], requires_grad=True)
    assert advantages(rewards).tolist() == [-2.0, -1.0, 3.0]
    assert not advantages(rewards).requires_grad


def test_what_is_rewarded_becomes_likelier():
    policy = model()
    given = batch(policy)
    given["advantages"] = torch.tensor([1.0, -1.0, 0.0, 0.0, 0.0])
    loss, count = ppo_objective()(policy, given)
    (loss / count).backward()
    with torch.no_grad():
        for p in policy.parameters():
            p -= 0.01 * p.grad
        after = token_log_probs(policy(given["ids"], given["mask"]), given["ids"])
    change = ((after - given["old_log_probs"]) * given["answer"][:, 1:]).sum(dim=1)
    assert change[0] > 0 > change[1]


@pytest.mark.parametrize("clip", [0.0, 1.0, -0.2])
def test_a_clip_out_of_range_is_refused(clip):
    with pytest.raises(ValueError, match=f"clip={clip}: must lie between 0 and 1, or be None"):
        clipped_losses(torch.zeros(1, 1), torch.zeros(1, 1), torch.ones(1), clip)
    for objective in (ppo_objective, grpo_objective):
        with pytest.raises(ValueError, match=f"clip={clip}: must lie between 0 and 1, or be None"):
            objective(clip=clip)


@pytest.mark.parametrize("objective", [ppo_objective(), grpo_objective(0.0), grpo_objective(0.0, by_length=False)])
def test_an_answer_without_a_token_is_refused(objective):
    policy = model()
    given = batch(policy)
    for row, says in ((False, "a text has no answer"), (True, "an answer begins at the first token")):
        given["answer"][1] = row
        with pytest.raises(ValueError, match=says):
            objective(policy, given)


def test_columns_are_refused_that_would_be_compared_with_every_row():
    log_probs = torch.zeros(3, 4)
    with pytest.raises(ValueError, match=r"advantages of shape \(3, 1\): must be \(3,\)"):
        clipped_losses(log_probs, log_probs, torch.ones(3, 1))
    with pytest.raises(ValueError, match=r"old of shape \(1, 4\): must be \(3, 4\)"):
        clipped_losses(log_probs, log_probs[:1], torch.ones(3))
    policy = model()
    given = batch(policy)
    given["reference"] = given["old_log_probs"][:1]
    with pytest.raises(ValueError, match="reference of shape"):
        grpo_objective()(policy, given)


@pytest.mark.parametrize("shapes", [[(2, 1), (2, 3), (2, 3)], [(2,), (2, 4), (2, 3)], [(2,), (2, 3), (1, 3)]])
def test_what_would_be_broadcast_is_not_penalised(shapes):
    with pytest.raises(ValueError, match=r"(rewards|log_probs|reference) of shape .*: must be"):
        penalised(*map(torch.zeros, shapes), torch.ones(2, 4, dtype=torch.bool), 0.1)
