"""How likely a language model finds an answer: the log-probabilities of its tokens, and their sum.

Legend: B texts, T tokens of a prompt and its answer, V vocabulary size.
"""

from torch import Tensor

from coursekit.nn.checks import check_all, check_mask
from coursekit.nn.sampling import with_temperature


def token_log_probs(logits: Tensor, ids: Tensor, temperature: float = 1.0) -> Tensor:
    """``ln p(u_t | u_1 … u_{t-1})`` of every token but the first, (B, T - 1), in nats.

    Args:
        logits: (B, T, V), at each place those of the token after it, as ``GPT`` gives them.
        ids: (B, T).
        temperature: that the tokens were drawn with: ``p = softmax(logits / temperature)``.

    Raises:
        ValueError: logits and ids are not of the same texts, or ``temperature`` is not above 0.
    """
    if logits.shape[:-1] != ids.shape:
        raise ValueError(f"logits of {tuple(logits.shape[:-1])} places: must be {tuple(ids.shape)}, as the ids")
    log_p = with_temperature(logits[:, :-1].float(), temperature).log_softmax(dim=-1)  # (B, T - 1, V)
    return log_p.gather(-1, ids[:, 1:, None]).squeeze(-1)  # (B, T - 1, 1) -> (B, T - 1)


def answer_log_probs(logits: Tensor, ids: Tensor, answer: Tensor, average: bool = False) -> Tensor:
    """``ln p(answer | prompt)`` of each text, (B,): the sum over the answer's tokens, its end of turn among them.

    The logarithm of a product of probabilities is the sum of their logarithms, so the longer an answer, the less likely
    it is. ``average`` divides by the number of tokens. The result is then no longer the logarithm of the answer's
    probability, so methods that use it say so.

    Args:
        answer: (B, T), True at the tokens of the answer and at its end.

    Raises:
        ValueError: ``answer`` is not boolean or of another shape than ``ids``; a text has no answer; or its answer
            begins at the first token, which no token before it could predict.
    """
    check_answer(ids, answer)
    counted = answer[:, 1:]  # (B, T - 1)
    total = token_log_probs(logits, ids).masked_fill(~counted, 0.0).sum(dim=1)  # (B, T - 1) -> (B,)
    return total / counted.sum(dim=1) if average else total


def check_answer(ids: Tensor, answer: Tensor) -> None:
    """Refuse a mask that marks no answers."""
    check_mask("answer", answer, ids.shape, "as the ids")
    check_all(answer.any(dim=1), "a text has no answer: mark at least its end of turn")
    check_all(~answer[:, 0], "an answer begins at the first token: put at least one before it, by which it is chosen")
