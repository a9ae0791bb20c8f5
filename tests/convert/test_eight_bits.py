"""Weights in eight bits, beside the same by hand in NumPy."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from coursekit.convert.eight_bits import SCALE, from_eight_bits, in_eight_bits


def weights() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(6, 50, generator=generator) * torch.tensor([1e-4, 0.01, 1.0, 3.0, 100.0, 0.0])[:, None]
    return {"matrix": rows, "bias": torch.randn(7, generator=generator)}


def test_the_numbers_are_those_of_the_formula():
    found = in_eight_bits(weights())
    for row, kept, scale in zip(weights()["matrix"].numpy(), found["matrix"].numpy(), found[f"matrix{SCALE}"].numpy()):
        s = np.float32(np.abs(row).max()) / np.float32(127)
        assert scale == pytest.approx(s if s > 0 else 1.0)
        np.testing.assert_array_equal(kept, np.round(row / (s if s > 0 else 1)))
    assert found["matrix"].dtype == torch.int8
    assert found["matrix"].abs().max() == 127
    assert found["bias"].dtype == torch.float16


def test_what_is_read_is_half_a_step_away_at_most():
    read = from_eight_bits(in_eight_bits(weights()))
    step = weights()["matrix"].abs().amax(dim=1, keepdim=True) / 127
    assert ((read["matrix"] - weights()["matrix"]).abs() <= 0.5001 * step).all()
    assert torch.equal(read["matrix"][-1], torch.zeros(50))
    assert torch.allclose(read["bias"], weights()["bias"], rtol=1e-3)
    assert {tensor.dtype for tensor in read.values()} == {torch.float32}
    assert read.keys() == weights().keys()


def test_a_file_needs_a_quarter_and_comes_back(tmp_path):
    large = {"matrix": torch.randn(200, 256)}
    save_file(in_eight_bits(large), tmp_path / "a.safetensors")
    assert (tmp_path / "a.safetensors").stat().st_size < 0.27 * 4 * 200 * 256
    assert torch.equal(
        from_eight_bits(load_file(tmp_path / "a.safetensors"))["matrix"],
        from_eight_bits(in_eight_bits(large))["matrix"],
    )


def test_what_cannot_be_kept_is_refused():
    with pytest.raises(ValueError, match="w has a weight that is not finite"):
        in_eight_bits({"w": torch.tensor([[1.0, torch.inf]])})
    with pytest.raises(ValueError, match="b has a weight above 65,504, the largest of float16"):
        in_eight_bits({"b": torch.tensor([1e6])})
    with pytest.raises(ValueError, match=r"a\.scale: a name"):
        in_eight_bits({"a.scale": torch.ones(2, 2)})
    with pytest.raises(ValueError, match=r"w is in eight bits, but w\.scale is missing"):
        from_eight_bits({"w": torch.ones(2, 2, dtype=torch.int8)})
