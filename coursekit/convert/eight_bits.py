"""Weights in eight bits: a quarter of float32's bytes on the disk, and nearly the same numbers.

Each row of a matrix has a scale of its own, ``s = max |w| / 127``, and is stored as the integers ``q = round(w / s)``
from -127 to 127; what is read again is ``s q``, at most ``s / 2`` away. Vectors (biases and norms, less than 1 %
of a Transformer) stay in float16.

Source: Dettmers et al. (2022), arXiv 2208.07339, section 2.1 (absmax quantisation, there of rows and columns).
"""

from collections.abc import Mapping

import torch
from torch import Tensor

SCALE = ".scale"  # after the name of a matrix: the name of its rows' scales


def in_eight_bits(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Matrices (R, C) as int8 (R, C) with float32 scales (R, 1) beside them, vectors as float16.

    Raises:
        ValueError: a weight is not finite, also as float16; or a name ends like that of scales.
    """
    found = {}
    for name, weight in weights.items():
        if name.endswith(SCALE):
            raise ValueError(f"{name}: a name that ends in {SCALE!r} is kept for scales")
        if not weight.isfinite().all():
            raise ValueError(f"{name} has a weight that is not finite")
        if weight.dim() < 2:
            found[name] = weight.half()
            if not found[name].isfinite().all():
                raise ValueError(f"{name} has a weight above 65,504, the largest of float16")
            continue
        largest = weight.float().abs().amax(dim=-1, keepdim=True)
        scale = torch.where(largest > 0, largest / 127, 1.0)  # a row of zeros stays one
        found[name] = (weight.float() / scale).round().to(torch.int8)
        found[name + SCALE] = scale
    return found


def from_eight_bits(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The float32 weights that ``in_eight_bits`` kept, by their names.

    Raises:
        ValueError: a matrix in int8 has no scales.
    """
    found = {}
    for name, weight in weights.items():
        if weight.dtype == torch.int8 and name + SCALE not in weights:
            raise ValueError(f"{name} is in eight bits, but {name + SCALE} is missing")
        if not name.endswith(SCALE):
            found[name] = weight.float() * weights[name + SCALE] if weight.dtype == torch.int8 else weight.float()
    return found
