"""A recurrent forecaster, for comparison: an LSTM reads the history, a linear layer says the whole future at once.

Hochreiter and Schmidhuber (1997), *Long short-term memory*, Neural Computation 9(8), with the forget gate of Gers et
al. (2000). Read it top to bottom: the configuration, the model. One step of the LSTM is written out in
``coursekit/nn/cells.py``.

Call chain: ``LSTMForecaster.forward`` -> ``normalise`` in ``nn/revin.py`` -> PyTorch's LSTM -> ``denormalise`` in
``nn/revin.py``.

Legend: B batch, L time steps of history, H of forecast, C channels, D hidden size.
"""

from dataclasses import dataclass

from torch import Tensor, nn

from coursekit.nn.checks import check_dropout, check_history, check_sizes
from coursekit.nn.dropout import Dropout
from coursekit.nn.revin import denormalise, normalise


@dataclass(frozen=True)
class LSTMForecasterConfig:
    """Sizes of an ``LSTMForecaster``.

    Attributes:
        history: L, time steps that are read.
        horizon: H, time steps that are forecast.
        hidden_size: D.
        n_layers: LSTMs, each of which reads the states of the one before.
        dropout: in training: between the layers and on the state that goes to the output, never from step to step.
    """

    history: int
    horizon: int
    hidden_size: int = 64
    n_layers: int = 1
    dropout: float = 0.0

    def __post_init__(self):
        check_sizes(self, "history", "horizon", "hidden_size", "n_layers")
        check_dropout(self)


class LSTMForecaster(nn.Module):
    """``h_t = LSTM(x_t, h_{t-1})``, ``forecast = W h_L + b``: each channel by itself, one number a step.

    A history is normalised by its own mean and deviation, and the forecast put back to these. All channels share the
    weights, and none sees another.
    """

    def __init__(self, config: LSTMForecasterConfig):
        super().__init__()
        self.config = c = config
        between = c.dropout if c.n_layers > 1 else 0.0  # torch warns of a dropout behind a single layer
        self.lstm = nn.LSTM(1, c.hidden_size, c.n_layers, batch_first=True, dropout=between)
        self.dropout = Dropout(c.dropout)
        self.head = nn.Linear(c.hidden_size, c.horizon)

    def forward(self, history: Tensor) -> Tensor:
        """The forecast (B, H, C) of histories (B, L, C), in their units.

        Raises:
            ValueError: the histories have another shape.
        """
        check_history(history, self.config.history)
        x, mean, std = normalise(history)  # (B, L, C), and (B, 1, C) twice
        steps = x.transpose(1, 2).flatten(0, 1).unsqueeze(-1)  # (B, L, C) -> (B C, L, 1)
        _, (h, _) = self.lstm(steps)  # (n_layers, B C, D)
        y = self.head(self.dropout(h[-1]))  # (B C, H)
        return denormalise(y.unflatten(0, history.shape[::2]).transpose(1, 2), mean, std)
