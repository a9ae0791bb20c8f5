"""DPO and IPO beside NumPy, and what is known of them without a computer."""

import math

import numpy as np
import pytest
import torch

from coursekit.models.dpo import dpo_objective, pair_log_probs, preference_losses, with_reference
from coursekit.models.gpt import GPT, GPTConfig
from tests.conftest import randomise

B, T, V = 4, 8, 11


def model(seed: int = 0) -> GPT:
    return randomise(GPT(GPTConfig(V, 8, n_heads=2, d_ff=16, n_layers=1, max_length=T, dropout=0.0)), seed).eval()


def batch(seed: int = 0) -> dict[str, torch.Tensor]:
    """Pairs whose answers begin at place 3 and have other lengths; padded at the end."""
    generator = torch.Generator().manual_seed(seed)
    found = {}
    for side in ("chosen", "rejected"):
        length = torch.randint(4, T + 1, (B, 1), generator=generator)
        found[side] = torch.randint(V, (B, T), generator=generator)
        found[f"{side}_mask"] = torch.arange(T) < length
        found[f"{side}_answer"] = found[f"{side}_mask"] & (torch.arange(T) >= 3)
    return found


def four(seed: int) -> list[torch.Tensor]:
    return list(-10 * torch.rand(4, B, generator=torch.Generator().manual_seed(seed), dtype=torch.float64))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_dpo_is_equation_7(seed, smoothing):
    pc, pr, rc, rr = four(seed)
    h = 0.3 * ((pc - rc) - (pr - rr)).numpy()
    expected = (1 - smoothing) * np.log1p(np.exp(-h)) + smoothing * np.log1p(np.exp(h))
    np.testing.assert_allclose(preference_losses((pc, pr), (rc, rr), 0.3, smoothing).numpy(), expected, rtol=1e-12)


def test_ipo_is_a_square_around_its_margin():
    pc, pr, rc, rr = four(5)
    h = ((pc - rc) - (pr - rr)).numpy()
    found = preference_losses((pc, pr), (rc, rr), 0.25, loss="ipo")
    np.testing.assert_allclose(found.numpy(), (h - 2.0) ** 2, rtol=1e-12)
    at_its_margin = preference_losses((rc + 2.0, rr), (rc, rr), 0.25, loss="ipo")
    torch.testing.assert_close(at_its_margin, torch.zeros(B, dtype=torch.float64))


def test_before_anything_is_learned_the_loss_is_ln_2():
    policy, pairs = model(), with_reference(model(), batch())
    total, count = dpo_objective(beta=0.5)(policy, pairs)
    assert count == B
    assert total.item() / B == pytest.approx(math.log(2), abs=1e-6)
    total, _ = dpo_objective(beta=0.5)(model(1), pairs)
    assert abs(total.item() / B - math.log(2)) > 1e-3, "another policy has another loss"


def test_a_step_prefers_the_chosen_answers():
    policy, pairs = model(), with_reference(model(), batch())
    loss, _ = dpo_objective(beta=0.5)(policy, pairs)
    loss.backward()
    before = pair_log_probs(policy, pairs)
    with torch.no_grad():
        for p in policy.parameters():
            p -= 1e-3 * p.grad if p.grad is not None else 0.0
    after = pair_log_probs(policy, pairs)
    assert ((after[0] - after[1]) - (before[0] - before[1])).sum() > 0


def test_the_sum_and_not_the_mean_of_an_answers_tokens_counts():
    """A pair whose chosen answer is long: by the sum the margin is negative, by the mean it is positive."""
    policy, pairs = model(), batch(1)
    chosen, rejected = pair_log_probs(policy, pairs)
    logits = policy(pairs["chosen"], pairs["chosen_mask"]).log_softmax(-1)
    tokens = logits[:, :-1].gather(-1, pairs["chosen"][:, 1:, None])[..., 0]
    expected = (tokens * pairs["chosen_answer"][:, 1:]).sum(dim=1)
    torch.testing.assert_close(chosen, expected)
    assert not torch.allclose(chosen, expected / pairs["chosen_answer"].sum(dim=1))
    assert chosen.shape == rejected.shape == (B,)


def test_the_reference_is_read_without_dropout_and_left_as_it_was():
    reference = GPT(GPTConfig(V, 8, n_heads=2, d_ff=16, n_layers=1, max_length=T, dropout=0.5)).train()
    one, two = with_reference(reference, batch()), with_reference(reference, batch())
    assert torch.equal(one["chosen_reference"], two["chosen_reference"])
    assert reference.training
    assert not one["chosen_reference"].requires_grad


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"beta": 0.0}, "beta=0.0: must be above 0"),
        ({"label_smoothing": 0.5}, "label_smoothing=0.5: must lie between 0 and 0.5, where labels say nothing"),
        ({"loss": "hinge"}, "loss='hinge': must be one of 'dpo', 'ipo'"),
        ({"loss": "ipo", "label_smoothing": 0.1}, "label_smoothing=0.1: is of 'dpo' alone"),
    ],
)
def test_options_that_mean_nothing_are_refused(options, says):
    pc, pr, rc, rr = four(0)
    with pytest.raises(ValueError, match=says):
        preference_losses((pc, pr), (rc, rr), **{"beta": 0.1} | options)
    with pytest.raises(ValueError, match=says):  # before the first batch
        dpo_objective(**options)


def test_columns_are_refused_that_would_be_compared_with_every_row():
    pc, pr, rc, rr = four(0)
    for name, policy, reference in (
        ("rejected", (pc, pr[:, None]), (rc, rr)),
        ("chosen_reference", (pc, pr), (rc[:, None], rr)),
        ("rejected_reference", (pc, pr), (rc, rr[:1])),
    ):
        with pytest.raises(ValueError, match=rf"^{name} of shape .*: must be \({len(pc)},\)"):
            preference_losses(policy, reference, 0.1)


def test_pairs_of_one_text_are_refused():
    pairs = batch()
    for name in ("", "_mask", "_answer"):
        pairs[f"rejected{name}"] = pairs[f"chosen{name}"].clone()
    pairs["rejected"][~pairs["rejected_mask"]] = 1  # what stands at padding makes no difference
    with pytest.raises(ValueError, match="chosen and rejected are one text: was what differs cut off"):
        dpo_objective()(model(), with_reference(model(), pairs))
