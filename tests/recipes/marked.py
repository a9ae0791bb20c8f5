"""Pictures of one shade of grey each, so that it can be told of a view which picture it shows, whatever was cut out."""

import torch
from torch import Tensor

OBJECTS = 12


def pictures() -> Tensor:
    """Two of each object, numbers 2 i and 2 i + 1 of object i, (12, 2, 3, 32, 32) uint8; too dark to be solarised."""
    shades = 8 + 4 * torch.arange(2 * OBJECTS, dtype=torch.uint8)
    return shades.view(OBJECTS, 2, 1, 1, 1).expand(-1, -1, 3, 32, 32).contiguous()


def shown(views: Tensor) -> Tensor:
    """The numbers of the pictures that views (B, V, 3, side, side) show, as the models read them: (B, V)."""
    shades = 255 * (0.25 * views + 0.5)
    found = shades.mean(dim=(2, 3, 4))
    assert (shades - found[..., None, None, None]).abs().max() < 0.1, "not of one shade: colours were changed"
    numbers = (found - 8) / 4
    assert (numbers - numbers.round()).abs().max() < 0.05, "a shade that no picture has"
    return numbers.round().long()
