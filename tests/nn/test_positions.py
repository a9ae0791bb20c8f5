import math

import pytest
import torch

from coursekit.nn.positions import (
    LearnedPositions,
    SinusoidalPositions,
    binary_code,
    count_real,
    frequencies,
    sinusoidal,
)


def test_binary_digits_count():
    code = binary_code(8, 3)
    assert [sum(int(bit) << i for i, bit in enumerate(row)) for row in code.tolist()] == list(range(8))
    assert code[1].tolist() == [1, 0, 0], "the fastest digit comes first"
    with pytest.raises(ValueError, match="n_bits=3: 9 positions need 4"):
        binary_code(9, 3)


def test_sines_and_cosines_alternate_as_in_the_paper():
    code = sinusoidal(50, 6)
    for t in (0, 1, 7, 49):
        for i in range(3):
            angle = t / 10_000 ** (2 * i / 6)
            assert code[t, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert code[t, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)
    with pytest.raises(ValueError, match="d_model=5: sines and cosines come in pairs"):
        sinusoidal(3, 5)


def test_a_shift_is_a_rotation_that_does_not_depend_on_the_position():
    code, shift = sinusoidal(200, 16).double(), 17
    for i, w in enumerate(frequencies(16).tolist()):
        c, s = math.cos(w * shift), math.sin(w * shift)
        pairs = code[:, 2 * i : 2 * i + 2]  # (sin, cos)
        rotated = pairs[:-shift] @ torch.tensor([[c, -s], [s, c]], dtype=torch.float64)
        torch.testing.assert_close(rotated, pairs[shift:], rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", [SinusoidalPositions, LearnedPositions])
def test_positions_are_added_from_a_start(kind):
    positions, x = kind(10, 4), torch.zeros(2, 3, 4)
    whole = positions(torch.zeros(2, 10, 4))
    assert torch.equal(positions(x, at=5), whole[:, 5:8])
    assert len(whole[0].unique(dim=0)) == 10
    with pytest.raises(ValueError, match="11 positions: the model was built for max_length=10"):
        positions(x, at=8)


def test_only_learned_positions_are_parameters():
    assert not list(SinusoidalPositions(10, 4).parameters())
    assert not SinusoidalPositions(10, 4).state_dict()
    positions = LearnedPositions(10, 4)
    positions(torch.zeros(1, 2, 4)).sum().backward()
    assert positions.code.grad.sum(dim=1).tolist() == [4, 4] + [0] * 8


@pytest.mark.parametrize("kind", [SinusoidalPositions, LearnedPositions])
def test_each_token_may_be_given_its_position(kind):
    positions, x = kind(9, 4), torch.randn(2, 3, 4)
    at = torch.tensor([[0, 0, 1], [8, 2, 5]])
    assert torch.equal(positions(x, at) - x, (x + positions.code[at]) - x)


def test_positions_count_the_real_tokens():
    mask = torch.tensor([[True, True, False], [False, True, True], [False, False, True]])
    assert count_real(mask)[mask].tolist() == [0, 1, 0, 1, 0]
    assert count_real(mask).min() == 0  # padding in front has a position that exists
