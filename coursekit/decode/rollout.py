"""What a policy writes, with all that learning from it needs; and the best of several answers.

Legend: B prompts, T tokens of a prompt and its answer, N tokens that may be written, n answers to a prompt.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from coursekit.decode.generate import Decoder, generate, left_padded
from coursekit.nn.log_probs import token_log_probs
from coursekit.nn.modes import evaluating


class Rollout(NamedTuple):
    """Prompts with the answers that were written behind them.

    Attributes:
        ids: (B, T); padding before the prompts, and behind the answers that ended before others.
        mask: (B, T), True where a token is real.
        answer: (B, T), True at what was written, the end included.
        log_probs: (B, T - 1), ln pi of each token but the first, at the temperature that it was drawn with.
    """

    ids: Tensor
    mask: Tensor
    answer: Tensor
    log_probs: Tensor


@torch.no_grad()
def rollout(
    model: Decoder,
    ids: Tensor,
    mask: Tensor | None,
    end_id: int,
    max_new: int,
    temperature: float = 1.0,
    generator: torch.Generator | None = None,
) -> Rollout:
    """Draw an answer to each prompt, with cached keys and values, and say how likely each of its tokens was.

    The log-probabilities come from one more pass over the whole, the same that training makes: so the ratio of new to
    old is exactly 1 in the first update. An answer that did not end within ``max_new`` tokens has no end; what it is
    worth is up to the reward.

    Args:
        ids, mask, generator: as for ``decode.generate.stream``.
        end_id: the token that ends an answer.
        temperature: above 0.

    Raises:
        ValueError: ``temperature`` is 0, at which nothing is drawn; and see ``stream``.
    """
    if not temperature > 0:
        raise ValueError(
            f"temperature={temperature}: must be above 0, at 0 nothing is drawn and nothing can be learned"
        )
    ids, mask = left_padded(ids, mask)
    with evaluating(model):
        written = generate(model, ids, mask, max_new, temperature=temperature, stop=[end_id], generator=generator)
        ends = (written == end_id).int()  # (B, N)
        said = ends.cumsum(dim=1) == ends  # no end before it: (B, N)
        answer = torch.cat([torch.zeros_like(ids, dtype=torch.bool), said], dim=1)  # (B, T)
        real = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask
        ids, mask = torch.cat([ids, written], dim=1), torch.cat([real, said], dim=1)  # (B, T)
        return Rollout(ids, mask, answer, token_log_probs(model(ids, mask), ids, temperature))


def best_of_n(answers: Sequence[str], score: Callable[[str], float]) -> str:
    """The answer with the highest score; of equals the first.

    If the scores of answers are drawn independently and never equal, the best of n is at most
    ``KL = ln n - (n - 1) / n`` away from the policy that wrote them (Stiennon et al., 2020, arXiv 2009.01325,
    appendix G.3).

    Raises:
        ValueError: there is no answer, or a score is nan.
    """
    if not answers:
        raise ValueError("no answers: draw at least one")
    scores = [score(answer) for answer in answers]
    if any(one != one for one in scores):
        raise ValueError("a score is nan: it can be compared with none")
    return answers[scores.index(max(scores))]
