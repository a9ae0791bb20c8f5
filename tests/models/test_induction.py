"""A Transformer of attention alone: its formula, its mask, and the removal of a head."""

import pytest
import torch
from torch.nn import functional as F

from coursekit.models.gpt import GPT, GPTConfig, gpt_loss
from coursekit.models.induction import AttentionOnly, AttentionOnlyConfig, ablate_head
from coursekit.models.llama import Llama, LlamaConfig
from coursekit.nn.attention import record_attention
from tests.conftest import randomise

CONFIG = AttentionOnlyConfig(11, 8, 2, 2, 12)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return randomise(AttentionOnly(CONFIG)).eval()


def by_loops(model, ids, dead=None):
    """The formula, one position and one head after another; the head ``dead`` (layer, head) adds nothing."""
    c, rows = model.config, []
    each = c.d_model // c.n_heads
    x = [model.tokens.weight[i] + model.positions.encoding[t] for t, i in enumerate(ids)]
    for layer, (norm, attention) in enumerate(zip(model.norms, model.attention)):
        y = [F.layer_norm(one, (c.d_model,), norm.weight, norm.bias) for one in x]
        rows = []
        for t in range(len(ids)):
            heads = []
            for head in range(c.n_heads):
                part = slice(head * each, (head + 1) * each)
                w, b = (p.chunk(3) for p in (attention.qkv.weight, attention.qkv.bias))
                q, k, v = ([w[i][part] @ one + b[i][part] for one in y[: t + 1]] for i in range(3))
                p = torch.stack([q[t] @ one / each**0.5 for one in k]).softmax(dim=0)
                found = sum(weight * one for weight, one in zip(p, v))
                heads.append(torch.zeros_like(found) if (layer, head) == dead else found)
            rows.append(x[t] + attention.out.weight @ torch.cat(heads) + attention.out.bias)
        x = rows
    y = [F.layer_norm(one, (c.d_model,), model.norm.weight, model.norm.bias) for one in x]
    return torch.stack([model.out.weight @ one for one in y])


@pytest.mark.parametrize("dead", [None, (0, 1), (1, 0)])
def test_it_is_the_formula_and_a_head_that_is_removed_adds_nothing(model, dead):
    ids = torch.tensor([[3, 1, 4, 1, 5, 9]])
    one = model if dead is None else ablate_head(model, *dead)
    with torch.no_grad():
        assert torch.allclose(one(ids)[0], by_loops(model, ids[0].tolist(), dead), atol=1e-4)


def test_a_head_of_a_gpt_is_removed_too():
    """What is left without all heads of a block is the block's feed-forward network and the bias of the output."""
    gpt = randomise(GPT(GPTConfig(11, 8, 2, 16, 2, 12, dropout=0.0))).eval()
    ids = torch.tensor([[3, 1, 4, 1, 5, 9]])
    neither = ablate_head(ablate_head(gpt, 1, 0), 1, 1)
    attention = neither.blocks[1].attention
    assert torch.equal(attention.out.weight, torch.zeros(8, 8))
    assert torch.equal(neither.blocks[0].attention.out.weight, gpt.blocks[0].attention.out.weight)
    with torch.no_grad(), record_attention(gpt) as maps:
        gpt(ids)
        before, removed = gpt(ids), ablate_head(gpt, 0, 1)(ids)
    assert len(maps) == 2
    assert not torch.allclose(before, removed, atol=1e-3)


def test_a_head_of_a_llama_is_one_of_its_queries():
    llama = randomise(Llama(LlamaConfig(11, 8, 4, 2, 16, 1, d_head=6))).eval()
    with pytest.raises(ValueError, match=r"layer=0, head=4: must lie in 0\.\.0 and 0\.\.3"):
        ablate_head(llama, 0, 4)
    kept = llama.blocks[0].attention.out.weight.detach().clone()
    kept[:, 6:12] = 0  # the entries of the second head
    assert torch.equal(ablate_head(llama, 0, 1).blocks[0].attention.out.weight, kept)


def test_removing_a_head_leaves_the_model_as_it_is(model):
    ids = torch.tensor([[3, 1, 4, 1, 5, 9]])
    with torch.no_grad():
        before = model(ids)
        assert not torch.allclose(ablate_head(model, 1, 1)(ids), before, atol=1e-3)
        assert torch.equal(model(ids), before)


def test_padding_changes_nothing_for_real_tokens_and_the_loss_can_be_learned_from(model):
    ids = torch.tensor([[3, 1, 4, 1, 5, 0]])
    mask = torch.arange(6)[None] < 5
    with torch.no_grad():
        assert torch.allclose(model(ids, mask)[:, :5], model(ids[:, :5]), atol=1e-5)
    gpt_loss(model, {"ids": ids, "mask": mask})[0].backward()
    assert all(p.grad.abs().sum() > 0 for name, p in model.named_parameters() if "qkv.bias" not in name)


def test_what_cannot_be_is_refused(model):
    with pytest.raises(ValueError, match="13 positions"):
        model(torch.zeros(1, 13, dtype=torch.long))
    for layer, head in ((2, 0), (0, 2), (-1, 0)):
        with pytest.raises(ValueError, match=f"layer={layer}, head={head}"):
            ablate_head(model, layer, head)
    with pytest.raises(ValueError, match="n_heads"):
        AttentionOnlyConfig(11, 8, 3)
