"""Real handwritten digits that every machine with scikit-learn has: 1,797 images of 8 × 8 pixels.

They are the test part of "Optical Recognition of Handwritten Digits" (Alpaydin and Kaynak 1998, UCI repository), the
work of 13 people. Each pixel counts the inked dots, 0 to 16, of a square of 4 × 4 in a scan of 32 × 32. The same hands
are in both splits, so that a score says nothing about new hands.
"""

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

SPLITS = ("train", "test")
TEST_PER_DIGIT = 40


@dataclass(frozen=True)
class Digits:
    """``images`` (N, 1, 8, 8) float32, 0 for paper to 1 for ink, and ``labels`` (N,), the digits.

    ``vars(digits)`` has both by name, for `Shuffled`.
    """

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)


def digits(split: str = "train") -> Digits:
    """One of the two splits, always the same: ``"test"`` has 40 of each digit, 400; ``"train"`` the other 1,397.

    Which ones is drawn by lot, with a fixed seed; the order is the file's.
    """
    if split not in SPLITS:
        raise ValueError(f"split={split!r}: must be one of {SPLITS}")
    images, labels = all_digits()
    lot = torch.rand(len(labels), generator=torch.Generator().manual_seed(0))
    tested = torch.zeros(len(labels), dtype=torch.bool)
    for digit in range(10):
        rows = (labels == digit).nonzero()[:, 0]
        tested[rows[lot[rows].argsort()[:TEST_PER_DIGIT]]] = True
    kept = tested if split == "test" else ~tested
    return Digits(images[kept], labels[kept])


@cache
def all_digits() -> tuple[Tensor, Tensor]:
    from sklearn.datasets import load_digits  # takes a second, and not every data set needs it

    found = load_digits()
    return torch.tensor(found.images / 16, dtype=torch.float32)[:, None], torch.tensor(found.target, dtype=torch.int64)
