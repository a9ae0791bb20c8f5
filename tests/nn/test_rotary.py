"""Rotary positions beside complex numbers, and what they are for: scores that depend on distances alone."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from coursekit.nn.rotary import RotaryScaling, rotary_angles, rotary_frequencies, rotate

DRAW = torch.Generator()


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=DRAW.manual_seed(seed), dtype=torch.float64)


def test_frequencies_by_hand():
    np.testing.assert_allclose(rotary_frequencies(6, 1000.0), [1.0, 0.1, 0.01], rtol=1e-6)
    assert rotary_frequencies(128)[-1].item() == pytest.approx(10_000 ** (-126 / 128), rel=1e-6)


def test_rotating_is_a_product_of_complex_numbers():
    x, places = random(2, 3, 4, 6), torch.tensor([0, 1, 5, 200])
    frequencies = rotary_frequencies(6, 1000.0)
    found = rotate(x, *rotary_angles(places, frequencies)).numpy()
    pairs = x[..., :3].numpy() + 1j * x[..., 3:].numpy()
    turned = pairs * np.exp(1j * places.numpy()[:, None] * frequencies.numpy())
    np.testing.assert_allclose(found[..., :3], turned.real, atol=1e-5)
    np.testing.assert_allclose(found[..., 3:], turned.imag, atol=1e-5)


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 100), st.integers(0, 100))
def test_scores_depend_on_the_distance_alone(m, n, shift, seed):
    query, key = random(1, 1, 1, 8, seed=seed), random(1, 1, 1, 8, seed=seed + 1)
    frequencies = rotary_frequencies(8)

    def score(at: int, of: int) -> float:
        turned = (
            rotate(x, *rotary_angles(torch.tensor([place]), frequencies)) for x, place in ((query, at), (key, of))
        )
        return float(torch.mul(*turned).sum())

    assert score(m + shift, n + shift) == pytest.approx(score(m, n), abs=1e-4)


def test_a_distance_changes_the_score():
    """And the length of a vector stays."""
    x, frequencies = random(1, 1, 2, 8), rotary_frequencies(8)
    near, far = (rotate(x, *rotary_angles(torch.tensor([0, place]), frequencies)) for place in (1, 9))
    products = [(y[0, 0, 0] * y[0, 0, 1]).sum().item() for y in (near, far)]
    assert abs(products[0] - products[1]) > 0.1
    torch.testing.assert_close(far.norm(dim=-1), x.norm(dim=-1), atol=1e-5, rtol=1e-5)


def test_neighbours_far_into_a_text_differ_in_half_precision_too():
    """In bfloat16 the positions 30,000 and 30,001 would be one."""
    frequencies = rotary_frequencies(8)
    with torch.autocast("cpu", torch.bfloat16):
        cos, sin = rotary_angles(torch.tensor([30_000, 30_001]), frequencies)
    assert cos.dtype == torch.float32
    apart = torch.atan2(sin[1, 0], cos[1, 0]) - torch.atan2(sin[0, 0], cos[0, 0])
    assert float(apart) % math.tau == pytest.approx(1.0, abs=0.01)
    assert rotate(random(1, 1, 2, 8).bfloat16(), cos, sin).dtype == torch.bfloat16


def test_scaling_beside_the_published_program():
    """Written out as in Llama 3.1's, pair by pair."""
    scaling, frequencies = RotaryScaling(8.0, 1.0, 4.0, 8192), rotary_frequencies(128, 500_000.0)
    expected, kinds = [], set()
    for theta in frequencies.double().tolist():
        wavelength = 2 * math.pi / theta
        if wavelength < 8192 / 4.0:
            expected.append(theta)
            kinds.add("fast")
        elif wavelength > 8192 / 1.0:
            expected.append(theta / 8)
            kinds.add("slow")
        else:
            smooth = (8192 / wavelength - 1.0) / (4.0 - 1.0)
            expected.append((1 - smooth) * theta / 8 + smooth * theta)
            kinds.add("between")
    assert kinds == {"fast", "slow", "between"}
    np.testing.assert_allclose(rotary_frequencies(128, 500_000.0, scaling), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: rotary_frequencies(7), "size=7: must be even"),
        (lambda: RotaryScaling(factor=0.5), "factor=0.5: must be at least 1"),
        (lambda: RotaryScaling(low=4.0, high=4.0), "low=4.0, high=4.0: turns, the lower above 0 and below the higher"),
    ],
)
def test_nonsense_is_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()
