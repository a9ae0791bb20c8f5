import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from coursekit.evaluate.vision import attention_distance, attention_rollout


def random_maps(layers: int, B: int, H: int, T: int, seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(B, H, T, T, generator=generator).double().softmax(dim=-1) for _ in range(layers)]


@given(st.integers(1, 3), st.integers(1, 2), st.integers(1, 3), st.integers(1, 5), st.integers(0, 99))
def test_rollout_follows_every_path(layers, B, H, T, seed):
    """What reaches token t is the sum over all ways through the layers: one token after another."""
    maps = random_maps(layers, B, H, T, seed)
    found = attention_rollout(maps)
    for b in range(B):
        for t in range(T):
            reached = [1.0 if s == t else 0.0 for s in range(T)]  # from the last layer downwards
            for weights in reversed(maps):
                below = [0.0] * T
                for s, share in enumerate(reached):
                    row = [sum(weights[b, h, s, r].item() for h in range(H)) / H + (r == s) for r in range(T)]
                    for r in range(T):
                        below[r] += share * row[r] / sum(row)
                reached = below
            assert found[b, t].tolist() == pytest.approx(reached, abs=1e-12)
            assert sum(found[b, t].tolist()) == pytest.approx(1)


def test_the_layers_have_an_order():
    """Only the first layer moves token 1 to place 0, only the second place 0 to place 2: from 1 to 2 it takes both."""
    first, second = torch.eye(3)[None, None].repeat(2, 1, 1, 1, 1).double()
    first[0, 0, 0], second[0, 0, 2] = torch.eye(3)[1].double(), torch.eye(3)[0].double()
    assert attention_rollout([first, second])[0, 2].tolist() == [0.25, 0.25, 0.5]
    assert attention_rollout([second, first])[0, 2].tolist() == [0.5, 0, 0.5]


def test_no_maps_are_refused():
    with pytest.raises(ValueError, match="no attention maps: give those of each layer, from the first on"):
        attention_rollout([])


@given(st.integers(1, 3), st.integers(1, 4), st.integers(0, 2), st.sampled_from([1.0, 16.0]), st.integers(0, 99))
def test_distance_is_the_slow_mean(rows, columns, front, patch_size, seed):
    N = rows * columns
    (weights,) = random_maps(1, 2, 3, N + front, seed)
    found = attention_distance(weights, (rows, columns), patch_size)
    assert found.shape == (2, 3)
    for b in range(2):
        for h in range(3):
            total = 0.0
            for i in range(N):
                share = [weights[b, h, front + i, front + j].item() for j in range(N)]
                for j in range(N):
                    away = math.dist(divmod(i, columns), divmod(j, columns)) * patch_size
                    total += share[j] / sum(share) * away / N
            assert found[b, h].item() == pytest.approx(total, abs=1e-9)


def test_distances_by_hand():
    """Rows of a grid are read one after another, and a head that looks at itself alone looks 0 far."""
    here = torch.eye(6)[None, None]
    assert attention_distance(here, (2, 3)).item() == 0
    right = torch.zeros(1, 1, 7, 7)  # a class token in front; each patch looks at the last one
    right[..., 0], right[..., 6] = 0.75, 0.25
    away = (math.sqrt(5) + math.sqrt(2) + 1 + 2 + 1 + 0) / 6
    assert attention_distance(right, (2, 3), 16).item() == pytest.approx(16 * away, rel=1e-6)
    assert attention_distance(right.bfloat16(), (2, 3), 16).item() == pytest.approx(16 * away, rel=1e-6)
    with pytest.raises(ValueError, match="7 tokens: a grid of 2 x 4 has 8 patches"):
        attention_distance(right, (2, 4))
