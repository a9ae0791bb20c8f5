import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from coursekit.nn.positions import (
    GridPositions,
    LearnedPositions,
    SinusoidalPositions,
    binary_code,
    positions_of,
    resize_grid,
    sinusoidal,
    sinusoidal_frequencies,
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
    for i, w in enumerate(sinusoidal_frequencies(16).tolist()):
        c, s = math.cos(w * shift), math.sin(w * shift)
        pairs = code[:, 2 * i : 2 * i + 2]  # (sin, cos)
        rotated = pairs[:-shift] @ torch.tensor([[c, -s], [s, c]], dtype=torch.float64)
        torch.testing.assert_close(rotated, pairs[shift:], rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", [SinusoidalPositions, LearnedPositions])
def test_positions_are_added_from_a_start(kind):
    positions, x = kind(10, 4), torch.zeros(2, 3, 4)
    whole = positions(torch.zeros(2, 10, 4))
    assert torch.equal(positions(x, position_ids=5), whole[:, 5:8])
    assert len(whole[0].unique(dim=0)) == 10
    with pytest.raises(ValueError, match="11 positions: the model was built for max_length=10"):
        positions(x, position_ids=8)
    with pytest.raises(ValueError, match="position_ids=-1: the first position is 0"):
        positions(x, position_ids=-1)


def test_only_learned_positions_are_parameters():
    assert not list(SinusoidalPositions(10, 4).parameters())
    assert not SinusoidalPositions(10, 4).state_dict()
    positions = LearnedPositions(10, 4)
    positions(torch.zeros(1, 2, 4)).sum().backward()
    assert positions.encoding.grad.sum(dim=1).tolist() == [4, 4] + [0] * 8


@pytest.mark.parametrize("kind", [SinusoidalPositions, LearnedPositions])
def test_each_token_may_be_given_its_position(kind):
    positions, x = kind(9, 4), torch.randn(2, 3, 4)
    at = torch.tensor([[0, 0, 1], [8, 2, 5]])
    assert torch.equal(positions(x, at) - x, (x + positions.encoding[at]) - x)


def test_positions_count_the_real_tokens():
    mask = torch.tensor([[True, True, False], [False, True, True], [False, False, True]])
    assert positions_of(mask)[mask].tolist() == [0, 1, 0, 1, 0]
    assert positions_of(mask).min() == 0  # padding in front has a position that exists


# --- on a grid ------------------------------------------------------------------------------------------------


def cubic(x: float) -> float:
    """The weight of a neighbour at distance x in bicubic interpolation, with a = -3/4 as in PyTorch."""
    x, a = abs(x), -0.75
    if x <= 1:
        return (a + 2) * x**3 - (a + 3) * x**2 + 1
    return a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a if x < 2 else 0.0


def resized(line: list[torch.Tensor], new: int, added: float) -> list[torch.Tensor]:
    """A line of vectors at ``new`` places, each a sum of four neighbours; beyond the ends stands the last one."""
    n, found = len(line), []
    for i in range(new):
        at = (i + 0.5) * n / (new + added) - 0.5
        near = range(math.floor(at) - 1, math.floor(at) + 3)
        found.append(sum(cubic(at - j) * line[min(max(j, 0), n - 1)] for j in near))
    return found


@given(st.integers(1, 6), st.integers(1, 9), st.integers(1, 9), st.sampled_from(["size", "dino"]), st.integers(0, 99))
def test_a_grid_is_resized_by_the_formula(side, rows, columns, resize, seed):
    """Row by row, then column by column; DINO's program adds 0.1 to the new size."""
    code = torch.randn(side, side, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    added = {"size": 0.0, "dino": 0.1}[resize]
    wide = [torch.stack(resized(list(row), columns, added)) for row in code]
    expected = torch.stack(resized(wide, rows, added))
    found = resize_grid(code, (rows, columns), resize)
    assert found.shape == (rows, columns, 3)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-12)


@given(st.integers(1, 40), st.integers(1, 60), st.integers(1, 60))
def test_no_row_is_lost_to_rounding(side, rows, columns):
    for resize in ("size", "dino"):
        assert resize_grid(torch.zeros(side, side, 1), (rows, columns), resize).shape == (rows, columns, 1)


@pytest.mark.parametrize("resize", ["size", "dino"])
@pytest.mark.parametrize("front", [0, 1, 2])
def test_a_grid_is_read_row_by_row_behind_what_stands_in_front(front, resize):
    positions = GridPositions(4, 6, front, resize)
    assert positions.encoding.shape == (front + 16, 6)
    assert positions.encoding_of((4, 4)) is positions.encoding
    cells = positions.encoding[front:].view(4, 4, 6)
    for rows, columns in ((2, 8), (8, 2), (5, 5), (1, 3)):  # the first two have as many cells
        x = torch.randn(3, front + rows * columns, 6)
        added = positions(x, (rows, columns)) - x
        expected = resize_grid(cells, (rows, columns), resize).flatten(0, 1)
        torch.testing.assert_close(added[:, :front], positions.encoding[:front].expand(3, -1, -1))
        torch.testing.assert_close(added[:, front:], expected.expand(3, -1, -1))


def test_gradients_reach_the_learned_grid_from_another():
    positions = GridPositions(3, 2, n_prefix_tokens=1)
    positions(torch.zeros(1, 1 + 2 * 5, 2), (2, 5)).sum().backward()
    assert positions.encoding.grad[0].tolist() == [1, 1]
    assert positions.encoding.grad[1:].sum(dim=0).tolist() == pytest.approx([10, 10], rel=1e-5)


def test_an_unknown_way_to_resize_is_refused():
    for make in (lambda: GridPositions(3, 2, resize="linear"), lambda: resize_grid(torch.zeros(2, 2, 1), (3, 3), "")):
        with pytest.raises(ValueError, match=r"resize='(linear)?': must be one of 'size', 'dino'"):
            make()
