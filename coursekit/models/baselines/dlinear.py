"""DLinear: Zeng, Chen, Zhang, Xu (2023), "Are Transformers effective for time series forecasting?", arXiv 2205.13504.

Two linear maps from the past to the future, one for the trend and one for what remains, the same for every channel.
Read it top to bottom: the configuration, the decomposition, the model.

Legend: B batch, L time steps of history, H of forecast, C channels.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from coursekit.nn.checks import check_history, check_sizes


@dataclass(frozen=True)
class DLinearConfig:
    """Sizes of a ``DLinear``.

    Attributes:
        history: L, time steps that are read.
        horizon: H, time steps that are forecast.
        kernel: of the moving average, in time steps; odd. 25 in the paper's code, for hourly and all other data.
    """

    history: int
    horizon: int
    kernel: int = 25

    def __post_init__(self):
        check_sizes(self, "history", "horizon", "kernel")
        check_kernel(self.kernel)


def check_kernel(kernel: int) -> None:
    if kernel < 1 or kernel % 2 == 0:
        raise ValueError(f"kernel={kernel}: must be odd, to average as many values before as behind")


def decompose(history: Tensor, kernel: int) -> tuple[Tensor, Tensor]:
    """Trend and remainder: the moving average over ``kernel`` time steps, centred, and the history less that.

    At both edges the average takes the end value for those that are not there, as in the paper's code; the trend is
    as long as the history, and flat towards the ends.

    Args:
        history: (B, L, C), in any units; ``kernel`` may exceed L.

    Returns:
        Trend and remainder in the same units, (B, L, C) each; they sum to the history.

    Raises:
        ValueError: ``kernel`` is not odd.

    Source: section 4 of the paper, after Wu et al. (2021), arXiv 2106.13008 (Autoformer), equation 1.
    """
    check_kernel(kernel)
    padded = F.pad(history.transpose(1, 2), (kernel // 2, kernel // 2), mode="replicate")  # (B, C, L + kernel - 1)
    trend = F.avg_pool1d(padded, kernel, stride=1).transpose(1, 2)  # (B, L, C)
    return trend, history - trend


class DLinear(nn.Module):
    """``forecast = W_t trend + b_t + W_r remainder + b_r``, along time; both W are (H, L) and shared by all channels.

    All weights are 1 / L at first, as in the paper's code: an untrained model forecasts the mean of the history, but
    for the biases, which start as those of any linear layer.

    Source: section 4 of the paper.
    """

    def __init__(self, config: DLinearConfig):
        super().__init__()
        self.config = c = config
        self.trend = nn.Linear(c.history, c.horizon)
        self.remainder = nn.Linear(c.history, c.horizon)
        for layer in (self.trend, self.remainder):
            nn.init.constant_(layer.weight, 1 / c.history)

    def forward(self, history: Tensor) -> Tensor:
        """The forecast (B, H, C) of histories (B, L, C), in their units.

        Raises:
            ValueError: the histories have another shape.
        """
        check_history(history, self.config.history)
        trend, remainder = (part.transpose(1, 2) for part in decompose(history, self.config.kernel))  # (B, C, L)
        return torch.transpose(self.trend(trend) + self.remainder(remainder), 1, 2)  # (B, C, H) -> (B, H, C)
