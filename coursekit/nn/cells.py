"""One step of a recurrent network, written out: LSTM and GRU.

The functions read the parameters of a one-layer ``nn.LSTM`` or ``nn.GRU``, so that the same
weights run a whole sequence in one fused call or one step at a time.

Legend: B batch, E input features, D hidden units.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

State = tuple[Tensor, ...]  # (h,) for a GRU, (h, c) for an LSTM, each (B, D)


def lstm_step(rnn: nn.LSTM, x: Tensor, state: State) -> State:
    """One LSTM step: ``c' = f*c + i*g`` and ``h' = o*tanh(c')``.

    With the input, forget and output gates ``i, f, o = sigmoid(W x + U h + b)`` and the candidate
    ``g = tanh(W x + U h + b)``, each with its own rows of ``W``, ``U`` and ``b``.

    Args:
        rnn: a one-layer ``nn.LSTM`` whose weights are used.
        x: input of this step, (B, E).
        state: ``(h, c)`` of the step before, each (B, D).

    Returns:
        The new ``(h, c)``.

    Source: Hochreiter and Schmidhuber (1997), with the forget gate of Gers et al. (2000).
    """
    h, c = state
    gates = F.linear(x, rnn.weight_ih_l0, rnn.bias_ih_l0) + F.linear(h, rnn.weight_hh_l0, rnn.bias_hh_l0)
    i, f, g, o = gates.chunk(4, dim=-1)  # (B, 4D) -> 4 x (B, D)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    h = o.sigmoid() * c.tanh()
    return h, c


def gru_step(rnn: nn.GRU, x: Tensor, state: State) -> State:
    """One GRU step: ``h' = (1 - z)*n + z*h``.

    With the reset and update gates ``r, z = sigmoid(W x + U h + b)`` and the candidate
    ``n = tanh(W_n x + b_n + r*(U_n h + u_n))``.

    Args:
        rnn: a one-layer ``nn.GRU`` whose weights are used.
        x: input of this step, (B, E).
        state: ``(h,)`` of the step before, (B, D).

    Returns:
        The new ``(h,)``.

    Source: Cho et al. (2014), arXiv 1406.1078, equations 5 to 8. As there, ``z`` keeps the old state (in
    Bahdanau et al., appendix A.1.1, ``z`` admits the new one). As in cuDNN and PyTorch, and unlike in both
    papers, the reset gate acts after the matrix product.
    """
    (h,) = state
    from_x = F.linear(x, rnn.weight_ih_l0, rnn.bias_ih_l0)
    from_h = F.linear(h, rnn.weight_hh_l0, rnn.bias_hh_l0)
    r_x, z_x, n_x = from_x.chunk(3, dim=-1)  # (B, 3D) -> 3 x (B, D)
    r_h, z_h, n_h = from_h.chunk(3, dim=-1)
    r = torch.sigmoid(r_x + r_h)
    z = torch.sigmoid(z_x + z_h)
    n = torch.tanh(n_x + r * n_h)
    return (n + z * (h - n),)


def rnn_step(rnn: nn.LSTM | nn.GRU, x: Tensor, state: State) -> State:
    """One step of whichever layer ``rnn`` is."""
    return lstm_step(rnn, x, state) if isinstance(rnn, nn.LSTM) else gru_step(rnn, x, state)
