import pytest
import torch
from torch import nn

from coursekit.nn.cells import rnn_step
from tests.conftest import randomise


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU])
def test_steps_equal_the_fused_layer(layer, where, generator):
    """Outputs, last state and every gradient, with all parameters and the first state random."""
    rnn = randomise(layer(5, 7, batch_first=True)).double().to(where)
    x = torch.randn(3, 6, 5, generator=generator).double().to(where).requires_grad_()
    parts = 2 if layer is nn.LSTM else 1
    first = tuple(torch.randn(1, 3, 7, generator=generator).double().to(where).requires_grad_() for _ in range(parts))

    expected, last = rnn(x, first if parts == 2 else first[0])
    last = last if parts == 2 else (last,)
    readout = torch.randn(expected.shape, generator=generator).double().to(where)
    inputs = [x, *first, *rnn.parameters()]
    expected_gradients = torch.autograd.grad((expected * readout).sum(), inputs)

    state, outputs = tuple(f[0] for f in first), []
    for t in range(x.shape[1]):
        state = rnn_step(rnn, x[:, t], state)
        outputs.append(state[0])
    actual = torch.stack(outputs, dim=1)

    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-10)
    for ours, theirs in zip(state, last):
        torch.testing.assert_close(ours, theirs[0], rtol=0, atol=1e-10)
    for ours, theirs in zip(torch.autograd.grad((actual * readout).sum(), inputs), expected_gradients):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9)
