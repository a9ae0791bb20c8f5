"""Rollouts: what was written, where it ends, and how likely it was, whatever padding stands before the prompts."""

import math

import pytest
import torch

from coursekit.decode.rollout import best_of_n, rollout
from coursekit.models.gpt import GPT, GPTConfig
from coursekit.models.ppo import clipped_losses
from coursekit.nn.log_probs import token_log_probs
from tests.conftest import randomise

V, END, T, NEW = 9, 2, 5, 8


def model(dropout: float = 0.0) -> GPT:
    return randomise(GPT(GPTConfig(V, 8, n_heads=2, d_ff=16, n_layers=2, max_length=20, dropout=dropout)), 3).eval()


def prompts(B: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(3, V, (B, T), generator=generator), torch.arange(T) < torch.arange(B)[:, None] % T + 1


def drawn(policy: GPT, seed: int = 0, temperature: float = 1.5):
    return rollout(policy, *prompts(), END, NEW, temperature, torch.Generator().manual_seed(seed))


def test_an_answer_begins_behind_its_prompt_and_ends_with_its_end():
    found = drawn(model())
    ids, mask = prompts()
    ended = 0
    for row in range(len(ids)):
        assert found.ids[row][found.mask[row] & ~found.answer[row]].tolist() == ids[row][mask[row]].tolist()
        written = found.ids[row][found.answer[row]].tolist()
        assert END not in written[:-1]
        assert written[-1] == END or len(written) == NEW
        ended += len(written) < NEW
        places = found.mask[row].nonzero().flatten().tolist()
        assert places == list(range(places[0], places[-1] + 1)), "padding stands before and behind, nowhere between"
    assert ended >= 2, "or nothing is shown of ends"


@pytest.mark.parametrize("temperature", [0.7, 1.5])
def test_the_log_probabilities_are_those_at_which_each_token_was_drawn(temperature):
    """Beside each text alone, without padding."""
    policy = model()
    found = drawn(policy, temperature=temperature)
    for row in range(len(found.ids)):
        real = found.mask[row]
        alone = found.ids[row][real][None]
        expected = token_log_probs(policy(alone), alone, temperature)[0]
        answer = found.answer[row][1:]
        expected = expected[found.answer[row][real][1:]]
        torch.testing.assert_close(found.log_probs[row][answer], expected, atol=1e-5, rtol=1e-4)


def test_tokens_are_drawn_as_often_as_their_probabilities_say():
    """Of 4,000 first tokens of one prompt: a wrong temperature or padding that is read would show."""
    policy, prompt = model(), prompts(1)[0][:, :1].expand(4000, 1)
    found = rollout(policy, prompt, None, END, 1, 0.8, torch.Generator().manual_seed(0))
    expected = (policy(prompt[:1])[0, -1] / 0.8).softmax(-1)
    counts = torch.bincount(found.ids[:, -1], minlength=V) / 4000
    assert ((counts - expected).abs() < 6 * (expected * (1 - expected) / 4000).sqrt()).all()


def test_in_the_first_update_the_ratio_is_one_though_the_model_has_dropout():
    policy = model(dropout=0.5).train()
    found = drawn(policy)
    assert policy.training
    policy.eval()
    again = token_log_probs(policy(found.ids, found.mask), found.ids, 1.5)
    assert torch.equal(again, found.log_probs)
    A = torch.ones(len(again))
    assert (clipped_losses(again, found.log_probs, A) == -1).all()


def test_a_seed_draws_the_same_and_another_does_not():
    one, two, three = drawn(model(), 0), drawn(model(), 0), drawn(model(), 1)
    assert torch.equal(one.ids, two.ids)
    assert one.ids.shape != three.ids.shape or not torch.equal(one.ids, three.ids)


def test_nothing_is_drawn_at_temperature_0_and_a_prompt_needs_room():
    with pytest.raises(ValueError, match="temperature=0: must be above 0"):
        drawn(model(), temperature=0)
    with pytest.raises(ValueError, match="has room for 16 new ones; shorten the prompt"):
        rollout(model(), *prompts(), END, 30, 1.0)


def test_the_best_of_n_is_the_best_and_its_divergence_is_known():
    assert best_of_n(["a", "ccc", "bb", "ddd"], len) == "ccc"
    with pytest.raises(ValueError, match="no answers: draw at least one"):
        best_of_n([], len)
    with pytest.raises(ValueError, match="a score is nan"):
        best_of_n(["a", "bb"], {"a": math.nan, "bb": 1.0}.get)
    # Exactly, for a policy that draws one of many numbers and a score that is the number itself.
    many, n = 20_000, 8
    upto = torch.arange(1, many + 1, dtype=torch.float64) / many
    best = upto**n - torch.cat([torch.zeros(1, dtype=torch.float64), upto[:-1]]) ** n
    kl = (best * (best * many).log()).sum().item()
    assert kl == pytest.approx(math.log(n) - (n - 1) / n, abs=1e-3)
