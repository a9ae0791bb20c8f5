"""Where autocast must not choose the precision."""

import torch

from coursekit.nn.precision import full_precision


def test_nothing_in_it_is_in_bfloat16_and_after_it_things_are_as_before():
    x = torch.randn(4, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with full_precision(x.device):
            assert (x @ x).dtype == torch.float32
        assert (x @ x).dtype == torch.bfloat16


def test_a_device_without_autocast_is_left_alone():
    x = torch.randn(4, 4, device="meta")
    with full_precision(x.device):
        assert (x @ x).dtype == torch.float32
