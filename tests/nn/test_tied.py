"""``tied_logits`` beside ``F.linear``: the same bits, and no third matrix for the sum of two gradients."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

from coursekit.models.llama import Llama
from coursekit.nn.tied import tied_logits
from tests.train.objectives import OBJECTIVES

V, D = 300, 16


def gradients(product, shape, bias, frozen=()):
    """The logits and the gradients of a model whose output layer is ``product``, with the embeddings' matrix."""
    torch.manual_seed(0)
    parts = {"W": torch.randn(V, D), "inner": torch.randn(D, D), "bias": torch.randn(V) if bias else None}
    for name, part in parts.items():
        if part is not None and name not in frozen:
            part.requires_grad_()
    hidden = F.embedding(torch.randint(V, shape), parts["W"]) @ parts["inner"]
    logits = product(hidden, parts["W"], parts["bias"])
    logits.backward(torch.randn(*shape, V))
    return [logits.detach(), *(part.grad for part in parts.values() if part is not None and part.requires_grad)]


@pytest.mark.parametrize("frozen", [(), ("W",), ("inner",), ("bias",)])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(), (7,), (2, 5), (2, 1, 3)])
def test_logits_and_gradients_are_those_of_linear(shape, bias, frozen):
    found, expected = (gradients(product, shape, bias, frozen) for product in (tied_logits, F.linear))
    assert len(found) == len(expected)
    assert all(torch.equal(x, y) for x, y in zip(found, expected))


def test_derivatives_of_derivatives_are_right():
    torch.manual_seed(0)
    hidden, W, b = (torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((2, 2, 3), (4, 3), (4,)))
    assert torch.autograd.gradcheck(tied_logits, (hidden, W, b))
    assert torch.autograd.gradgradcheck(tied_logits, (hidden, W, b))


def most_memory(product):
    """Bytes of the largest sum of what autograd allocates, as the profiler counts them, beyond what it frees."""
    W, ids = nn.Parameter(torch.randn(V * 100, D)), torch.randint(V, (5,))
    loss = product(F.embedding(ids, W) * 2, W, None).sum()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        loss.backward()
    held = most = 0
    for event in sorted(seen.profiler.kineto_results.events(), key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    return most / (W.numel() * W.element_size())


def graph_of(loss):
    """The names of all steps by which autograd goes back from a loss."""
    seen, left = set(), [loss.grad_fn]
    while left:
        step = left.pop()
        if step is not None and step not in seen:
            seen.add(step)
            left += [before for before, _ in step.next_functions]
    return {step.name() for step in seen}


@pytest.mark.parametrize("name", ["gpt", "llama", "bert-pretraining", "transformer"])
def test_the_models_with_one_matrix_use_it(name):
    net, loss_fn, draw = OBJECTIVES[name]()
    if name == "llama":
        net = Llama(replace(net.config, tied=True))
    loss, _ = loss_fn(net, draw())
    assert "ProductWithOwnGradientBackward" in graph_of(loss)


def test_two_gradients_become_one_in_place():
    assert most_memory(tied_logits) == pytest.approx(2, abs=0.5)
    assert most_memory(F.linear) == pytest.approx(3, abs=0.5)  # should PyTorch do it, this function can go


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_under_autocast_it_is_linear(dtype):
    torch.manual_seed(0)
    hidden, W = torch.randn(3, D, requires_grad=True), torch.randn(V, D, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        logits = tied_logits(hidden, W)
    assert logits.dtype == dtype
    logits.float().sum().backward()
    assert (hidden.grad.dtype, W.grad.dtype) == (torch.float32, torch.float32)


def test_it_compiles_to_one_graph():
    hidden, W = torch.randn(3, D), torch.randn(V, D, requires_grad=True)
    compiled = torch.compile(tied_logits, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(hidden, W), hidden @ W.T)
