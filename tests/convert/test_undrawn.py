"""Models of shapes alone, which take their weights from elsewhere."""

import pytest
import torch
from torch import nn

from coursekit.convert.undrawn import undrawn
from coursekit.models.bert import Bert, BertConfig
from coursekit.models.gpt import GPT, GPTConfig
from coursekit.models.llama import Llama, LlamaConfig
from coursekit.models.vit import ViT, ViTConfig

MODELS = {
    "bert": lambda: Bert(BertConfig(30, 16, 2, 32, 2, 10)),
    "gpt": lambda: GPT(GPTConfig(30, 16, 2, 32, 2, 10)),
    "llama": lambda: Llama(LlamaConfig(30, 16, 4, 2, 32, 2)),
    "vit": lambda: ViT(ViTConfig(16, 4, 3, 16, 2, 32, 2, 3)),
}


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_a_model_has_its_shapes_and_takes_any_weights(make):
    model = make()
    with undrawn():
        other = make()
    assert {p.device.type for p in other.parameters()} == {"meta"}
    assert {name: p.shape for name, p in other.named_parameters()} == {
        name: p.shape for name, p in model.named_parameters()
    }
    other.load_state_dict(model.state_dict(), assign=True)
    assert all(torch.equal(other.get_parameter(name), p) for name, p in model.named_parameters())


def test_nothing_is_drawn_within_and_all_is_drawn_after():
    weight = torch.zeros(4, 4)
    state = torch.get_rng_state()
    with undrawn():
        assert nn.init.normal_(weight) is weight
        assert nn.init.uniform_(tensor=weight) is weight
        nn.init.kaiming_uniform_(weight)
    assert not weight.any()
    assert torch.equal(torch.get_rng_state(), state)
    nn.init.normal_(weight)
    assert weight.all()
    assert nn.Linear(2, 2).weight.device.type == "cpu"


def test_an_error_within_ends_it_too():
    with pytest.raises(ZeroDivisionError), undrawn():
        1 / 0  # noqa: B018
    assert nn.Linear(2, 2).weight.device.type == "cpu"
