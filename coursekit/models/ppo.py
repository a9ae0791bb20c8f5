"""A policy learns from the reward of what it writes: REINFORCE with a penalty for moving away, and PPO's clipped ratio.

Read it top to bottom: what an answer is worth, how much better than expected that is, the loss of its tokens, the
objective.

Call chain: ``answer_losses`` -> the model (``models/gpt.py``), ``token_log_probs`` in ``nn/log_probs.py``, then
``clipped_losses``.

Legend: B answers, T tokens of prompt and answer.

Source: Williams (1992), *Simple statistical gradient-following algorithms*, Machine Learning 8 (REINFORCE); Ziegler et
al. (2019), *Fine-Tuning Language Models from Human Preferences*, arXiv 1909.08593 (the penalty); Schulman et al.
(2017), *Proximal Policy Optimization Algorithms*, arXiv 1707.06347.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from coursekit.nn.checks import check_shape
from coursekit.nn.log_probs import check_answer, token_log_probs


def penalised(rewards: Tensor, log_probs: Tensor, reference: Tensor, answer: Tensor, beta: float) -> Tensor:
    """``R(x, y) = r(x, y) - beta [ln pi(y) - ln ref(y)]``, (B,).

    The mean of the bracket over what pi writes is ``KL(pi || ref)``. The penalty is part of the reward, which the
    policy can change only by what it writes: so no gradient flows through it.

    Args:
        rewards: r, (B,), one for each whole answer.
        log_probs, reference: ln pi and ln ref of each token but the first, (B, T - 1).
        answer: (B, T), True at the tokens of the answer and its end.
        beta: price of a nat, in units of reward.

    Raises:
        ValueError: ``beta`` is below 0, or the shapes do not fit.

    Source: Ziegler et al. (2019), equation 2.
    """
    if not beta >= 0:
        raise ValueError(f"beta={beta}: must be at least 0")
    B, T = answer.shape
    check_shape("rewards", rewards, (B,))
    check_shape("log_probs", log_probs, (B, T - 1))
    check_shape("reference", reference, (B, T - 1))
    log_ratio = (log_probs - reference).masked_fill(~answer[:, 1:], 0.0).sum(dim=1)
    return (rewards - beta * log_ratio).detach()


def advantages(rewards: Tensor) -> Tensor:
    """``R - mean of R`` over the batch, (B,): the mean as a baseline leaves the expected gradient nearly as it is.

    (Each answer is a B-th part of its own baseline, which shortens the gradient by that part.) There is no gradient in
    them.
    """
    rewards = rewards.detach()
    return rewards - rewards.mean()


def clipped_losses(log_probs: Tensor, old: Tensor, advantages: Tensor, clip: float | None = 0.2) -> Tensor:
    """``- min(w A, clip(w, 1 - c, 1 + c) A)`` of each token, ``w = pi(token) / pi_old(token)``: (B, T - 1).

    The old policy is the one that wrote the answers. In the first update after that, w = 1 and the gradient is that of
    REINFORCE, ``- A grad ln pi``. In later updates with the same answers, a token that already became likelier by the
    factor 1 + c gains nothing by becoming likelier still.

    Args:
        log_probs: ln pi of each token but the first, (B, T - 1), at the temperature that they were drawn with.
        old: the same of the policy that wrote them, without gradients.
        advantages: A, (B,), one for all tokens of an answer.
        clip: c; None for the ratio without a clip.

    Raises:
        ValueError: ``clip`` does not lie between 0 and 1, or the shapes do not belong together.

    Source: Schulman et al. (2017), equation 7.
    """
    check_clip(clip)
    check_shape("old", old, log_probs.shape)
    check_shape("advantages", advantages, log_probs.shape[:1])
    ratio, A = (log_probs - old).exp(), advantages[:, None]
    if clip is None:
        return -ratio * A
    return -torch.minimum(ratio * A, ratio.clamp(1 - clip, 1 + clip) * A)


def check_clip(clip: float | None) -> None:
    """Refuse a clip that is no distance from 1 to a ratio above 0."""
    if clip is not None and not 0 < clip < 1:
        raise ValueError(f"clip={clip}: must lie between 0 and 1, or be None")


def answer_losses(
    model: nn.Module, batch: dict[str, Tensor], clip: float | None, temperature: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Of each token but the first: ln pi, its ``clipped_losses``, and whether it belongs to an answer; (B, T - 1) each.

    Raises:
        ValueError: a text of the batch has no answer, or begins with it.
    """
    ids, answer = batch["ids"], batch["answer"]
    check_answer(ids, answer)
    log_probs = token_log_probs(model(ids, batch["mask"]), ids, temperature)
    return log_probs, clipped_losses(log_probs, batch["old_log_probs"], batch["advantages"], clip), answer[:, 1:]


def ppo_objective(
    clip: float | None = 0.2, temperature: float = 1.0
) -> Callable[[nn.Module, dict[str, Tensor]], tuple[Tensor, Tensor]]:
    """The objective for ``Training``: the sum of ``clipped_losses`` over the answers' tokens, and how many these are.

    A batch holds ``ids`` and ``mask`` (B, T), ``answer`` (B, T), True at what the policy wrote, its end included,
    ``old_log_probs`` (B, T - 1), the log-probabilities at which it did, and ``advantages`` (B,).

    Raises:
        ValueError: see ``clipped_losses``.
    """
    check_clip(clip)

    def ppo_loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        _, losses, counted = answer_losses(model, batch, clip, temperature)
        return losses.masked_fill(~counted, 0.0).sum(), counted.sum()

    return ppo_loss
