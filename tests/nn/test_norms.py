"""RMS normalisation beside its formula."""

import numpy as np
import torch

from coursekit.nn.norms import RMSNorm
from tests.conftest import randomise


def test_the_formula():
    norm = randomise(RMSNorm(5, eps=0.1)).double()
    x = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    g, values = norm.weight.detach().numpy(), x.numpy()
    expected = g * values / np.sqrt((values**2).mean(axis=-1, keepdims=True) + 0.1)
    np.testing.assert_allclose(norm(x).detach(), expected, rtol=1e-6)


def test_scale_changes_nothing_and_the_mean_stays():
    norm = RMSNorm(64, eps=0.0)
    x = torch.randn(4, 64, generator=torch.Generator().manual_seed(0)) + 3
    torch.testing.assert_close(norm(7 * x), norm(x))
    assert (norm(x).mean(dim=-1) > 0.5).all()  # a layer norm would have made it 0
    torch.testing.assert_close(norm(x).square().mean(dim=-1), torch.ones(4))


def test_large_values_in_half_precision():
    """Their squares would overflow in float16."""
    x = torch.tensor([[300.0, -400.0]], dtype=torch.float16)
    norm = RMSNorm(2).half()
    expected = x.float() / x.float().square().mean().sqrt()
    torch.testing.assert_close(norm(x).float(), expected, atol=1e-3, rtol=1e-3)
    assert norm(x).dtype == torch.float16
