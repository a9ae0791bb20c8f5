"""Group relative policy optimisation: several answers to one prompt are each other's baseline.

Read it top to bottom: the advantages within a group, the objective.

Call chain: ``answer_losses`` in ``models/ppo.py`` -> the model (``models/gpt.py``), ``token_log_probs`` in
``nn/log_probs.py``, ``clipped_losses`` in ``models/ppo.py``; then ``k3`` in ``nn/kl.py``.

Legend: P prompts, G answers to each, B = P G, T tokens of prompt and answer.

Source: Shao et al. (2024), *DeepSeekMath: Pushing the Limits of Mathematical Reasoning in Open Language Models*, arXiv
2402.03300, section 4.1; without the division by an answer's length: Liu et al. (2025), *Understanding R1-Zero-Like
Training: A Critical Perspective*, arXiv 2503.20783.
"""

from collections.abc import Callable

from torch import Tensor, nn

from coursekit.models.ppo import answer_losses, check_clip
from coursekit.nn.checks import check_shape
from coursekit.nn.kl import k3


def group_advantages(rewards: Tensor) -> Tensor:
    """``A = (r - mean) / std`` within each group: (P, G) -> (P, G).

    A group whose answers are all worth the same, up to rounding, teaches nothing: its advantages are 0, and so is its
    gradient. There is no gradient in the advantages.

    Raises:
        ValueError: ``rewards`` is not (P, G), or a group has one answer alone.

    Source: Shao et al. (2024), section 4.1.2 (outcome supervision).
    """
    if rewards.dim() != 2 or rewards.shape[1] < 2:
        raise ValueError(f"rewards of shape {tuple(rewards.shape)}: must be (P, G), at least two answers to a prompt")
    rewards = rewards.detach().float()  # they may be whole numbers, or verdicts
    centred, std = rewards - rewards.mean(dim=1, keepdim=True), rewards.std(dim=1, keepdim=True)
    largest = rewards.abs().amax(dim=1, keepdim=True)
    equal = (centred.abs() <= 1e-6 * largest).all(dim=1, keepdim=True)  # without it rounding would become advantages
    return (centred / std.masked_fill(equal, 1.0)).masked_fill(equal, 0.0)


def grpo_objective(
    beta: float = 0.04, clip: float = 0.2, temperature: float = 1.0, by_length: bool = True
) -> Callable[[nn.Module, dict[str, Tensor]], tuple[Tensor, Tensor]]:
    """The objective for ``Training``: ``clipped_losses + beta k3`` of the answers' tokens, summed, and what it counts.

    Args:
        beta: price of moving away from the reference, 0 for none.
        clip: of the ratio to the policy that wrote the answers.
        temperature: that they were drawn with.
        by_length: the paper's: the mean over each answer's tokens, then over the answers. In a long wrong answer each
            token is then punished less than in a short one. False sums over all tokens alike.

    A batch holds what ``ppo_objective`` asks for, its advantages by ``group_advantages``, and ``reference`` (B, T - 1),
    the reference's log-probabilities.

    Raises:
        ValueError: ``beta`` is below 0; and see ``clipped_losses``.

    Source: Shao et al. (2024), equations 3 and 4.
    """
    if not beta >= 0:
        raise ValueError(f"beta={beta}: must be at least 0")
    check_clip(clip)

    def grpo_loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        log_probs, losses, counted = answer_losses(model, batch, clip, temperature)
        if beta:
            check_shape("reference", batch["reference"], log_probs.shape)
            losses = losses + beta * k3(log_probs - batch["reference"])
        total = losses.masked_fill(~counted, 0.0).sum(dim=1)  # (B,)
        if by_length:
            return (total / counted.sum(dim=1)).sum(), total.new_full((), len(total))
        return total.sum(), counted.sum()

    return grpo_loss
