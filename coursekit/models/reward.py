"""A reward model: how much an annotator would like an answer, learned from which of two was liked better.

Read it top to bottom: the model, its objective.

Call chain: ``RewardModel.forward`` -> ``GPT.hidden`` in ``models/gpt.py``, then a linear layer at the last real token.

Legend: B pairs, T tokens of prompt and answer, D = d_model.

Source: Ouyang et al. (2022), *Training language models to follow instructions with human feedback*, arXiv 2203.02155,
section 3.5; the model of choices: Bradley and Terry (1952), Biometrika 39.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from coursekit.models.gpt import GPT
from coursekit.nn.checks import check_all


class RewardModel(nn.Module):
    """A language model without its output layer, and one number of the last token's vector: ``r(x, y)``.

    The last real token is the end of the answer, the only place that has seen all of it. Only differences of rewards
    mean something, since the objective leaves a constant free.

    Args:
        body: a GPT, as a rule the one that was taught to answer; its weights are trained on.
    """

    def __init__(self, body: GPT):
        super().__init__()
        self.body = body
        self.head = nn.Linear(body.config.d_model, 1)
        nn.init.normal_(self.head.weight, std=(body.config.d_model + 1) ** -0.5)  # as in the paper's forerunners
        nn.init.zeros_(self.head.bias)

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """The reward of each text, (B,): prompt and answer ``ids`` (B, T).

        Args:
            mask: (B, T), True where a token is real, None where all are. Padding may be on either side: the reward
                is read at the last real token, never at padding.
        """
        hidden = self.body.hidden(ids, mask)  # (B, T, D)
        last = ids.shape[1] - 1
        if mask is not None:
            places = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)  # (B, T)
            last = places.masked_fill(~mask, -1).amax(dim=1)  # (B,)
        x = hidden[torch.arange(len(ids), device=ids.device), last]  # (B, D)
        return self.head(x).squeeze(-1)  # (B, 1) -> (B,)


def preference_loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """The objective for ``Training``: ``- ln sigma(r(x, y_chosen) - r(x, y_rejected))``, summed (nats); how many pairs.

    By Bradley and Terry, ``sigma(difference)`` is the probability that the first is chosen. Where an annotator flips a
    share e of the labels, no model is right more often than 1 - e, or has a lower loss than the entropy of e.

    A batch holds ``chosen`` and ``rejected``, (B, T) and (B, T'), and their masks ``chosen_mask`` and
    ``rejected_mask``, True where a token is real.

    Raises:
        ValueError: the two answers of a pair are equal, perhaps since both were cut: they say nothing.

    Source: Ouyang et al. (2022), equation 1, with one pair for each prompt.
    """
    check_pairs(batch)
    chosen, rejected = (model(batch[name], batch[f"{name}_mask"]) for name in ("chosen", "rejected"))  # (B,)
    return -F.logsigmoid(chosen - rejected).sum(), chosen.new_full((), len(chosen))


def check_pairs(batch: dict[str, Tensor]) -> None:
    """Refuse batches without pairs, and pairs that are one text twice."""
    chosen, rejected = batch["chosen"], batch["rejected"]
    if len(chosen) != len(rejected) or not len(chosen):
        raise ValueError(f"{len(chosen)} chosen and {len(rejected)} rejected answers: must be as many, at least one")
    if chosen.shape != rejected.shape:
        return
    masks = batch["chosen_mask"], batch["rejected_mask"]
    same = ((chosen == rejected) | ~masks[0]) & (masks[0] == masks[1])
    check_all(~same.all(dim=1), "chosen and rejected are one text: was what differs cut off? Leave such pairs out")
