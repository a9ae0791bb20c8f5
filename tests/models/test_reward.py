"""The reward model: where it reads, what it learns, and how right it can be."""

import numpy as np
import pytest
import torch

from coursekit.models.gpt import GPT, GPTConfig
from coursekit.models.reward import RewardModel, preference_loss
from coursekit.train import Training, adamw
from tests.conftest import randomise
from tests.models.test_dpo import B, T, V, batch


def make(seed: int = 0) -> RewardModel:
    body = GPT(GPTConfig(V, 8, n_heads=2, d_ff=16, n_layers=1, max_length=T, dropout=0.0))
    return randomise(RewardModel(body), seed).eval()


def test_the_loss_is_that_of_bradley_and_terry():
    model, pairs = make(), batch()
    chosen = model(pairs["chosen"], pairs["chosen_mask"]).detach().numpy()
    rejected = model(pairs["rejected"], pairs["rejected_mask"]).detach().numpy()
    total, count = preference_loss(model, pairs)
    assert count == B
    assert total.item() == pytest.approx(np.log1p(np.exp(rejected - chosen)).sum(), rel=1e-5)


def test_it_is_read_at_the_last_real_token_on_whichever_side_padding_stands():
    model, pairs = make(), batch()
    ids, mask = pairs["chosen"], pairs["chosen_mask"]
    expected = [model(row[real][None]).item() for row, real in zip(ids, mask)]
    order = torch.stack([torch.roll(torch.arange(T), T - int(real.sum())) for real in mask])
    for one, its in ((ids, mask), (ids.gather(1, order), mask.gather(1, order))):
        assert model(one, its).tolist() == pytest.approx(expected, rel=1e-4, abs=1e-6)
    assert len({round(x, 6) for x in expected}) == B
    assert model(ids).tolist() != pytest.approx(expected, rel=1e-4), "without a mask the last place is read"


def test_the_reward_is_one_linear_function_of_that_tokens_vector():
    model, ids = make(), batch()["chosen"]
    vector = model.body.hidden(ids)[:, -1]
    torch.testing.assert_close(model(ids), vector @ model.head.weight[0] + model.head.bias)


def test_a_constant_is_free():
    model, pairs = make(), batch()
    before, _ = preference_loss(model, pairs)
    with torch.no_grad():
        model.head.bias += 100
    after, _ = preference_loss(model, pairs)
    assert after.item() == pytest.approx(before.item(), abs=1e-3)


def test_it_learns_which_answer_an_annotator_likes():
    """He likes answers whose last token is even."""

    class Pairs:
        def __init__(self):
            self.generator = torch.Generator().manual_seed(0)

        def __iter__(self):
            return self

        def __next__(self) -> dict[str, torch.Tensor]:
            ids = torch.randint(V - 1, (2, 32, T), generator=self.generator)
            ids[0, :, -1] -= ids[0, :, -1] % 2
            ids[1, :, -1] += 1 - ids[1, :, -1] % 2
            mask = torch.ones(32, T, dtype=torch.bool)
            return {"chosen": ids[0], "rejected": ids[1], "chosen_mask": mask, "rejected_mask": mask}

        def state_dict(self) -> dict:
            return {}

        def load_state_dict(self, state: dict) -> None:
            pass

    torch.manual_seed(0)
    model = RewardModel(GPT(GPTConfig(V, 16, n_heads=2, d_ff=32, n_layers=1, max_length=T, dropout=0.0)))
    Training(model, preference_loss, Pairs(), adamw(model, 1e-2), 60, precision="float32").fit()
    new = next(Pairs())
    right = model.eval()(new["chosen"]) > model(new["rejected"])
    assert right.float().mean() > 0.9


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda pairs: {"rejected": pairs["rejected"][:2]},
            "4 chosen and 2 rejected answers: must be as many",
        ),
        (lambda pairs: {name: x[:0] for name, x in pairs.items()}, "0 chosen and 0 rejected answers"),
        (
            lambda pairs: {"rejected": pairs["chosen"], "rejected_mask": pairs["chosen_mask"]},
            "chosen and rejected are one text",
        ),
    ],
)
def test_what_is_no_pair_is_refused(change, says):
    pairs = batch()
    with pytest.raises(ValueError, match=says):
        preference_loss(make(), pairs | change(pairs))
