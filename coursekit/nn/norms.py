"""Root mean square normalisation.

Legend: B batch, T tokens, D size of a vector.
"""

import torch
from torch import Tensor, nn


class RMSNorm(nn.Module):
    """``y = g x / sqrt(mean(x^2) + eps)`` over the last axis: a layer norm that takes away no mean and adds no bias.

    The mean is taken in float32, whatever ``x`` is.

    Args:
        d_model: D.
        eps: added to the mean square.

    Attributes:
        weight: g, (D,), initialised to 1.

    Source: Zhang and Sennrich (2019), arXiv 1910.07467, section 4.
    """

    def __init__(self, d_model: int, eps: float = 1e-5):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(d_model)), eps

    def forward(self, x: Tensor) -> Tensor:
        scale = torch.rsqrt(x.float().square().mean(dim=-1, keepdim=True) + self.eps)  # (…, 1)
        return self.weight * (x * scale).to(x.dtype)  # (…, D)
