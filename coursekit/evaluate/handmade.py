"""Vectors of images that nobody had to train: rivals for every network that claims to have learned some.

Legend: B images, C channels, A angles, Y and X rows and columns of cells.
"""

import torch
from torch import Tensor
from torch.nn import functional as F


def colour_histogram(images: Tensor, bins: int = 4, middle: bool = False) -> Tensor:
    """Which share of the pixels has which colour: (B, 3, height, width) in 0..1 -> (B, bins^3).

    Each of red, green and blue is cut into ``bins`` equal ranges. Where things lie does not count.

    Args:
        middle: look at the middle alone, half as high and half as wide, where the object often is.

    Source: Swain and Ballard (1991), "Color Indexing", International Journal of Computer Vision 7.
    """
    if middle:
        height, width = images.shape[2:]
        images = images[:, :, height // 4 : height - height // 4, width // 4 : width - width // 4]
    ranges = (images * bins).long().clamp(0, bins - 1)  # (B, 3, height, width)
    place = (ranges[:, 0] * bins + ranges[:, 1]) * bins + ranges[:, 2]
    return F.one_hot(place.flatten(1), bins**3).float().mean(dim=1)


def hog(images: Tensor, cell: int = 8, angles: int = 9) -> Tensor:
    """Histograms of oriented gradients: (B, C, height, width) -> (B, (Y - 1) (X - 1) 4 A).

    At each pixel the differences ``x[i + 1] - x[i - 1]`` are taken down and to the right, in the channel where they
    are largest; beyond the edge the image goes on with its last pixels. In each cell of ``cell`` x ``cell`` pixels
    every pixel votes for the direction of its gradient, of which there are A from 0 to 180 degrees, with the
    gradient's length, shared between the two nearest directions. Each 2 x 2 cells that touch make a block, whose
    numbers are divided by their length.

    Raises:
        ValueError: cells do not fill the image, or there are less than two in a row or column.

    Source: Dalal and Triggs (2005), "Histograms of Oriented Gradients for Human Detection", CVPR; without their
    weights by the distance from a block's middle, and without cutting large numbers.
    """
    height, width = images.shape[2:]
    if height % cell or width % cell or min(height, width) < 2 * cell:
        raise ValueError(f"cell={cell}: must divide {height} and {width} pixels into at least two cells each")
    x = F.pad(images, (1, 1, 1, 1), mode="replicate")
    down = x[:, :, 2:, 1:-1] - x[:, :, :-2, 1:-1]  # (B, C, height, width)
    right = x[:, :, 1:-1, 2:] - x[:, :, 1:-1, :-2]
    length, channel = (down**2 + right**2).sqrt().max(dim=1, keepdim=True)  # (B, 1, height, width)
    down, right = down.gather(1, channel), right.gather(1, channel)
    turn = torch.atan2(down, right) / torch.pi * angles % angles  # 0..A, for 0..180 degrees
    low = turn.floor()
    share = turn - low
    votes = length * (1 - share) * F.one_hot(low[:, 0].long() % angles, angles).movedim(-1, 1)
    votes = votes + length * share * F.one_hot((low[:, 0].long() + 1) % angles, angles).movedim(-1, 1)
    cells = F.avg_pool2d(votes, cell)  # (B, A, Y, X)
    corners = [cells[:, :, i : i - 1 or None, j : j - 1 or None] for i in (0, 1) for j in (0, 1)]
    blocks = torch.cat(corners, dim=1)  # (B, 4 A, Y - 1, X - 1)
    return F.normalize(blocks, dim=1, eps=1e-6).flatten(1)
