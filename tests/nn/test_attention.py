import contextlib

import pytest
import torch
from torch import nn

from coursekit.nn.attention import Attention, record_attention


class Twice(nn.Module):
    """Two attention modules, one of them called twice."""

    def __init__(self):
        super().__init__()
        self.first, self.second = Attention(), Attention()

    def forward(self, x):
        return self.second.record(self.first.record(x) + self.first.record(2 * x))


def test_records_every_call_by_name_and_only_inside_the_block():
    model, x = Twice(), torch.rand(2, 3, requires_grad=True)
    model(x)
    with record_attention(model) as maps:
        model(x)
    model(x)
    assert {name: len(calls) for name, calls in maps.items()} == {"first": 2, "second": 1}
    torch.testing.assert_close(maps["first"][1], 2 * x.detach())
    assert not maps["second"][0].requires_grad


def test_blocks_nest_and_an_error_ends_them():
    model, x = Twice(), torch.rand(2)
    with record_attention(model) as outer:
        with contextlib.suppress(RuntimeError), record_attention(model) as inner:
            model(x)
            raise RuntimeError
        model(x)
    assert len(inner["second"]) == 1
    assert len(outer["second"]) == 1, "after the inner block the outer one listens again"
    assert model.first.recorded is None


def test_a_model_without_attention_is_refused():
    with pytest.raises(ValueError, match="Linear has no attention module"), record_attention(nn.Linear(2, 2)):
        pass
