"""Direct preference optimisation: a language model learns from pairs of answers, without a reward model.

Read it top to bottom: the loss of log-probabilities, then the objective that computes these.

Call chain: ``check_pairs`` in ``models/reward.py``; ``pair_log_probs`` -> the model (``models/gpt.py``),
``answer_log_probs`` in ``nn/log_probs.py``; ``preference_losses``.

Legend: B pairs, T tokens of prompt and answer.

Source: Rafailov, Sharma, Mitchell, Ermon, Manning and Finn (2023), *Direct Preference Optimization: Your Language Model
is Secretly a Reward Model*, arXiv 2305.18290; label smoothing as in its authors' program; IPO: Azar et al. (2023),
*A General Theoretical Paradigm to Understand Learning from Human Preferences*, arXiv 2310.12036.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from coursekit.models.reward import check_pairs
from coursekit.nn.checks import check_shape
from coursekit.nn.log_probs import answer_log_probs
from coursekit.nn.modes import evaluating

LOSSES = ("dpo", "ipo")
SIDES = ("chosen", "rejected")


def preference_losses(
    policy: tuple[Tensor, Tensor],
    reference: tuple[Tensor, Tensor],
    beta: float,
    label_smoothing: float = 0.0,
    loss: str = "dpo",
) -> Tensor:
    """The loss of each pair, (B,), by the log-probabilities of its answers.

    With the margin ``h = [ln pi(y_+) - ln ref(y_+)] - [ln pi(y_-) - ln ref(y_-)]`` of the chosen answer ``y_+`` over
    the rejected ``y_-``:

    ``dpo``: ``- (1 - e) ln sigma(beta h) - e ln sigma(-beta h)``, ln 2 where policy and reference are the same.
    ``ipo``: ``(h - 1 / (2 beta))^2``, which is least at a finite margin, whatever the labels. (The library ``trl``
    puts the mean over an answer's tokens in the place of the sum; the paper's equation has the sum.)

    Args:
        policy: ln pi of the chosen and of the rejected answers, (B,) each: **sums** over their tokens.
        reference: ln ref of the same, without gradients.
        beta: how much moving away from the reference costs, in units of reward per nat.
        label_smoothing: e, the share of labels that are believed to be flipped; of ``dpo`` alone.
        loss: ``"dpo"`` or ``"ipo"``.

    Raises:
        ValueError: ``beta`` is not above 0, ``label_smoothing`` not in 0 ... 0.5, there is no such loss, or the four
            have not one shape.

    Source: Rafailov et al. (2023), equation 7; Azar et al. (2023), equation 17.
    """
    check_options(beta, label_smoothing, loss)
    for name, x in zip(("rejected", "chosen_reference", "rejected_reference"), (policy[1], *reference), strict=True):
        check_shape(name, x, policy[0].shape)
    chosen, rejected = (ours - theirs for ours, theirs in zip(policy, reference, strict=True))
    margin = chosen - rejected
    if loss == "ipo":
        return (margin - 1 / (2 * beta)).square()
    return -(1 - label_smoothing) * F.logsigmoid(beta * margin) - label_smoothing * F.logsigmoid(-beta * margin)


def check_options(beta: float, label_smoothing: float, loss: str) -> None:
    """Refuse what ``preference_losses`` cannot take."""
    if not beta > 0:
        raise ValueError(f"beta={beta}: must be above 0")
    if not 0 <= label_smoothing < 0.5:
        raise ValueError(f"label_smoothing={label_smoothing}: must lie between 0 and 0.5, where labels say nothing")
    if loss not in LOSSES:
        raise ValueError(f"loss={loss!r}: must be one of {', '.join(map(repr, LOSSES))}")
    if loss == "ipo" and label_smoothing:
        raise ValueError(f"label_smoothing={label_smoothing}: is of 'dpo' alone; 'ipo' needs none")


def pair_log_probs(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """``ln p`` of the chosen and of the rejected answers, (B,) each."""
    chosen, rejected = (
        answer_log_probs(model(batch[side], batch[f"{side}_mask"]), batch[side], batch[f"{side}_answer"])
        for side in SIDES
    )
    return chosen, rejected


@torch.no_grad()
def with_reference(reference: nn.Module, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """A batch with the reference's log-probabilities, ``chosen_reference`` and ``rejected_reference`` (B,).

    They never change, so that they are computed once, before the training, and not in each of its steps.
    """
    with evaluating(reference):
        found = pair_log_probs(reference, batch)
    return batch | {f"{side}_reference": one for side, one in zip(SIDES, found)}


def dpo_objective(
    beta: float = 0.1, label_smoothing: float = 0.0, loss: str = "dpo"
) -> Callable[[nn.Module, dict[str, Tensor]], tuple[Tensor, Tensor]]:
    """The objective for ``Training``: the sum of ``preference_losses`` (nats), and how many pairs there are.

    A batch holds for ``chosen`` and ``rejected`` each: the tokens of prompt and answer (B, T), ``chosen_mask`` (B, T),
    True where a token is real, ``chosen_answer`` (B, T), True at the answer and its end of turn, and
    ``chosen_reference`` (B,), from ``with_reference``. Train without dropout: with it the policy differs from its
    reference before anything is learned.

    Raises:
        ValueError: an option is none of those of ``preference_losses``.
    """
    check_options(beta, label_smoothing, loss)

    def dpo_loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        check_pairs(batch)
        reference = batch["chosen_reference"], batch["rejected_reference"]
        losses = preference_losses(pair_log_probs(model, batch), reference, beta, label_smoothing, loss)
        return losses.sum(), losses.new_full((), len(losses))

    return dpo_loss
