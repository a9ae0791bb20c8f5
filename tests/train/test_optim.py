"""AdamW and its schedules."""

import pytest
import torch
from torch import nn

from coursekit.train import adamw, warmup_cosine, warmup_linear


def test_adamw_decays_matrices_only():
    model = nn.Sequential(nn.Embedding(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    decayed, kept = adamw(model, 1e-3, weight_decay=0.3).param_groups
    assert decayed["weight_decay"] == 0.3
    assert kept["weight_decay"] == 0
    assert [p.shape for p in decayed["params"]] == [(3, 4), (2, 4)]
    assert [p.shape for p in kept["params"]] == [(4,), (4,), (2,)]


def test_warmup_cosine_by_hand():
    factor = warmup_cosine(4, floor=0.2)
    assert [factor(s, 12) for s in range(4)] == [0.25, 0.5, 0.75, 1.0]
    assert factor(4, 12) == 1.0
    assert factor(8, 12) == pytest.approx(0.6)  # half way: the mean of 1 and the floor
    assert factor(12, 12) == pytest.approx(0.2)
    assert all(factor(s, 12) > factor(s + 1, 12) for s in range(4, 12))


def test_warmup_linear_by_hand_and_beside_transformers():
    factor = warmup_linear(4)
    assert [factor(s, 12) for s in range(13)] == [0.25, 0.5, 0.75, 1, 1, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125, 0]
    assert [warmup_linear(0)(s, 4) for s in range(4)] == [1, 0.75, 0.5, 0.25]
    assert warmup_linear(3)(2, 3) == 1  # nothing but warm-up
    from transformers import get_linear_schedule_with_warmup

    optimizer = torch.optim.SGD(nn.Linear(5, 1).parameters(), lr=1.0)
    theirs = get_linear_schedule_with_warmup(optimizer, 4, 12)
    rates = []
    for _ in range(12):
        rates.append(theirs.get_last_lr()[0])
        optimizer.step()
        theirs.step()
    # on the way up theirs begins at 0, a step behind
    assert [factor(s, 12) for s in range(4)] == rates[1:5]
    assert [factor(s, 12) for s in range(4, 12)] == rates[4:]


@pytest.mark.parametrize("schedule", [warmup_cosine, warmup_linear])
@pytest.mark.parametrize("warmup", [0.1, -1, 2.5])
def test_a_warm_up_is_a_number_of_steps(schedule, warmup):
    with pytest.raises(ValueError, match=f"warmup={warmup}: must be a number of steps, 0 or more"):
        schedule(warmup)
