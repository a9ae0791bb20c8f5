"""Log-probabilities of answers beside sums that are written out again in NumPy."""

import numpy as np
import pytest
import torch

from coursekit.nn.log_probs import answer_log_probs, token_log_probs

B, T, V = 3, 6, 7


def drawn(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Logits, ids, and answers of 3, 1 and 5 tokens."""
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(B, T, V, generator=generator, dtype=torch.float64)
    ids = torch.randint(V, (B, T), generator=generator)
    answer = torch.zeros(B, T, dtype=torch.bool)
    for row, (first, last) in enumerate(((2, 5), (5, 6), (1, 6))):
        answer[row, first:last] = True
    return logits, ids, answer


def by_hand(logits, ids, temperature: float = 1.0) -> np.ndarray:
    z = logits.numpy() / temperature
    log_p = z - np.log(np.exp(z).sum(axis=-1, keepdims=True))
    return np.array([[log_p[b, t - 1, ids[b, t]] for t in range(1, T)] for b in range(B)])


@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
def test_tokens_are_read_one_place_before_they_stand(temperature):
    logits, ids, _ = drawn()
    found = token_log_probs(logits, ids, temperature)
    np.testing.assert_allclose(found.numpy(), by_hand(logits, ids, temperature), atol=1e-5)


@pytest.mark.parametrize("average", [False, True])
def test_an_answer_is_the_sum_of_its_tokens_and_the_average_counts_what_is_summed(average):
    logits, ids, answer = drawn(1)
    tokens = by_hand(logits, ids)
    expected = [tokens[0, 1:4].sum(), tokens[1, 4:5].sum(), tokens[2, 0:5].sum()]
    if average:
        expected = [x / n for x, n in zip(expected, (3, 1, 5))]
    np.testing.assert_allclose(answer_log_probs(logits, ids, answer, average).numpy(), expected, atol=1e-5)


def test_what_stands_outside_of_the_answer_does_not_matter():
    logits, ids, answer = drawn(2)
    before = answer_log_probs(logits, ids, answer)
    other = torch.where(answer, ids, (ids + 1) % V)
    read = torch.zeros_like(answer)
    read[:, :-1] = answer[:, 1:]
    logits = torch.where(read[..., None], logits, torch.full_like(logits, torch.nan))
    torch.testing.assert_close(answer_log_probs(logits.nan_to_num(5.0), other, answer), before)
    logits.requires_grad_()
    answer_log_probs(logits, ids, answer).sum().backward()
    assert torch.isfinite(logits.grad[read]).all()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"answer": torch.zeros(B, T, dtype=torch.bool)}, "a text has no answer: mark at least its end of turn"),
        ({"answer": torch.ones(B, T, dtype=torch.bool)}, "begins at the first token: put at least one before it"),
        ({"answer": torch.ones(B, T)}, "answer of torch.float32: must be boolean"),
        ({"answer": torch.ones(B, 1, dtype=torch.bool)}, r"must be \(3, 6\), as the ids"),
        ({"ids": torch.zeros(B, T - 1, dtype=torch.long)}, "answer of shape"),
    ],
)
def test_what_marks_no_answer_is_refused(changes, says):
    logits, ids, answer = drawn()
    with pytest.raises(ValueError, match=says):
        answer_log_probs(logits, **{"ids": ids, "answer": answer} | changes)


def test_other_texts_and_no_temperature_are_refused():
    logits, ids, _ = drawn()
    with pytest.raises(ValueError, match=r"logits of \(3, 6\) places: must be \(3, 5\), as the ids"):
        token_log_probs(logits, ids[:, 1:])
    with pytest.raises(ValueError, match="temperature=0: must be at least 1e-06"):
        token_log_probs(logits, ids, 0)
