"""GRPO: advantages within groups, the loss beside NumPy, and the bias of an answer's length."""

import numpy as np
import pytest
import torch

from coursekit.models.grpo import group_advantages, grpo_objective
from coursekit.nn.log_probs import token_log_probs
from tests.models.test_ppo import batch, model


def test_advantages_are_standard_scores_of_each_group():
    rewards = torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 1.0]])
    r = rewards.numpy()
    expected = (r - r.mean(1, keepdims=True)) / r.std(1, ddof=1, keepdims=True)
    np.testing.assert_allclose(group_advantages(rewards).numpy(), expected, rtol=1e-6)
    assert not group_advantages(rewards.requires_grad_()).requires_grad


@pytest.mark.parametrize("worth", [0.0, 1.0, 0.1])
def test_a_group_that_is_all_alike_teaches_nothing(worth):
    found = group_advantages(torch.tensor([[worth] * 3, [0.0, 1.0, 1.0]]))
    assert found[0].tolist() == [0.0] * 3
    assert found[1].abs().min() > 0
    policy = model()
    given = batch(policy) | {"advantages": torch.zeros(5)}
    loss, _ = grpo_objective(beta=0.0)(policy, given)
    loss.backward()
    assert all(not p.grad.any() for p in policy.parameters())


@pytest.mark.parametrize(("by_length", "temperature"), [(True, 1.0), (False, 1.0), (True, 0.5)])
def test_the_loss_is_that_of_equation_3(by_length, temperature):
    policy, reference = model(1), model(2)
    given = batch(model())
    with torch.no_grad():
        given["reference"] = token_log_probs(reference(given["ids"], given["mask"]), given["ids"])
        new = token_log_probs(policy(given["ids"], given["mask"]), given["ids"], temperature).double().numpy()
    old, ref, A = (given[name].double().numpy() for name in ("old_log_probs", "reference", "advantages"))
    w, a, r = np.exp(new - old), A[:, None], ref - new
    losses = -np.minimum(w * a, np.clip(w, 0.8, 1.2) * a) + 0.3 * (np.exp(r) - r - 1)
    counted = given["answer"][:, 1:].numpy()
    total, count = grpo_objective(beta=0.3, by_length=by_length, temperature=temperature)(policy, given)
    if by_length:
        expected, n = sum(row[real].mean() for row, real in zip(losses, counted)), len(counted)
    else:
        expected, n = losses[counted].sum(), counted.sum()
    assert total.item() == pytest.approx(expected, rel=1e-4)
    assert count == n


def test_by_length_a_token_of_a_long_answer_weighs_less():
    """Two answers with the same advantage, of four tokens and of one: by length the latter's weighs four times."""
    policy = model()
    given = {name: x[:2] for name, x in batch(policy).items()} | {"advantages": -torch.ones(2)}
    counted = given["answer"][:, 1:].sum(dim=1)
    assert counted.tolist() == [4, 1]

    def weights(by_length: bool) -> torch.Tensor:
        objective = grpo_objective(beta=0.0, by_length=by_length)
        given["old_log_probs"] = given["old_log_probs"].detach().clone().requires_grad_()
        total, count = objective(policy, given)
        (total / count).backward()
        return given["old_log_probs"].grad.abs().sum(dim=1) / counted

    assert (weights(True)[1] / weights(True)[0]).item() == pytest.approx(4, rel=1e-4)
    assert (weights(False)[1] / weights(False)[0]).item() == pytest.approx(1, rel=1e-4)


def test_one_answer_to_a_prompt_is_no_group():
    for rewards in (torch.zeros(3, 1), torch.zeros(4)):
        with pytest.raises(ValueError, match="at least two answers to a prompt"):
            group_advantages(rewards)
    with pytest.raises(ValueError, match="beta=-1: must be at least 0"):
        grpo_objective(beta=-1)


def test_rewards_may_be_verdicts():
    verdicts = torch.tensor([[1, 0, 0], [1, 1, 0]])
    for rewards in (verdicts, verdicts.bool()):
        torch.testing.assert_close(group_advantages(rewards), group_advantages(verdicts.float()))


def test_rounding_is_no_advantage():
    rewards = torch.tensor([[0.7, 0.7, 0.7 + 6e-8, 0.7], [0.0, 1e-3, 0.0, 0.0]])
    assert len(rewards[0].unique()) == 2
    found = group_advantages(rewards)
    assert found[0].tolist() == [0.0] * 4
    torch.testing.assert_close(found[1], torch.tensor([-0.5, 1.5, -0.5, -0.5]))
