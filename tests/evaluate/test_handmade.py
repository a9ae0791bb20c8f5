"""Histograms of colours and of gradients, beside loops over pixels."""

import math

import numpy as np
import pytest
import torch

from coursekit.evaluate.handmade import colour_histogram, hog


def pictures(B: int = 3, C: int = 3, height: int = 12, width: int = 16) -> torch.Tensor:
    return torch.rand(B, C, height, width, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("middle", [False, True])
def test_colours_are_counted_pixel_by_pixel(middle):
    images, bins = pictures(), 3
    images[0, 0, 0, 0], images[0, :, 6, 8] = 1.0, 1.0  # the end of the last range
    found = colour_histogram(images, bins, middle)
    rows, columns = (range(3, 9), range(4, 12)) if middle else (range(12), range(16))
    for b in range(3):
        counts = np.zeros((bins, bins, bins))
        for y in rows:
            for x in columns:
                counts[tuple(min(int(bins * c), bins - 1) for c in images[b, :, y, x].tolist())] += 1
        np.testing.assert_allclose(found[b], counts.flatten() / counts.sum(), atol=1e-6)


def hog_by_hand(image: np.ndarray, cell: int, angles: int) -> np.ndarray:
    C, height, width = image.shape
    votes = np.zeros((height // cell, width // cell, angles))
    for y in range(height):
        for x in range(width):
            best = (-1.0, 0.0)
            for c in range(C):
                down = image[c, min(y + 1, height - 1), x] - image[c, max(y - 1, 0), x]
                right = image[c, y, min(x + 1, width - 1)] - image[c, y, max(x - 1, 0)]
                if math.hypot(down, right) > best[0]:
                    best = (math.hypot(down, right), math.degrees(math.atan2(down, right)) % 180)
            length, angle = best
            place = angle / (180 / angles)
            low, share = int(place), place - int(place)
            votes[y // cell, x // cell, low % angles] += length * (1 - share)
            votes[y // cell, x // cell, (low + 1) % angles] += length * share
    blocks = {}
    for y in range(height // cell - 1):
        for x in range(width // cell - 1):
            block = np.concatenate([votes[y + i, x + j] for i in (0, 1) for j in (0, 1)])
            blocks[y, x] = block / np.linalg.norm(block)
    return np.array([[blocks[y, x][k] for y, x in blocks] for k in range(4 * angles)]).flatten()


@pytest.mark.parametrize(("cell", "angles"), [(4, 9), (2, 4)])
def test_gradients_vote_pixel_by_pixel(cell, angles):
    images = pictures().double()
    found = hog(images, cell, angles)
    for image, numbers in zip(images, found):
        np.testing.assert_allclose(numbers, hog_by_hand(image.numpy(), cell, angles), atol=1e-9)


def test_gradients_do_not_notice_light_or_the_sign_of_a_contrast():
    images = pictures().double()
    torch.testing.assert_close(hog(0.5 * images + 0.2, 4), hog(images, 4))
    torch.testing.assert_close(hog(1 - images, 4), hog(images, 4))
    assert (hog(torch.full((1, 3, 8, 8), 0.5), 4) == 0).all()


@pytest.mark.parametrize("cell", [5, 12])
def test_cells_must_fill_the_image(cell):
    with pytest.raises(ValueError, match=f"cell={cell}: must divide 12 and 16 pixels into at least two cells"):
        hog(pictures(), cell)
