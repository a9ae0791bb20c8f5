"""Eval mode for a while."""

from contextlib import nullcontext

import pytest
import torch
from torch import nn

from coursekit.nn.modes import evaluating


@pytest.mark.parametrize("fails", [False, True])
def test_every_module_is_in_its_own_mode_again_even_after_an_error(fails):
    model = nn.Sequential(nn.Dropout(0.5), nn.Sequential(nn.Dropout(0.5)))
    model[1].eval()  # a part that is frozen while the rest learns
    before = [module.training for module in model.modules()]
    x = torch.ones(100)
    with pytest.raises(RuntimeError) if fails else nullcontext(), evaluating(model):
        assert torch.equal(model(x), x)
        if fails:
            raise RuntimeError
    assert [module.training for module in model.modules()] == before == [True, True, False, False]
