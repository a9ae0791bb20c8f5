import pytest
import torch

from coursekit.evaluate import exact_match, peak_accuracy, symbol_accuracy

TARGET = torch.tensor([[1, 2, 3], [4, 5, 0]])
MASK = torch.tensor([[1, 1, 1], [1, 1, 0]]).bool()


def test_padding_neither_helps_nor_hurts():
    predicted = torch.tensor([[1, 2, 9], [4, 5, 9]])
    assert symbol_accuracy(predicted, TARGET, MASK) == torch.tensor(4 / 5)
    assert exact_match(predicted, TARGET, MASK) == 0.5
    predicted = torch.tensor([[1, 2, 3], [4, 9, 0]])
    assert symbol_accuracy(predicted, TARGET, MASK) == torch.tensor(4 / 5)
    assert exact_match(predicted, TARGET, MASK) == 0.5


def test_peaks():
    weights = torch.tensor([[[0.6, 0.4], [0.3, 0.7], [1, 0]], [[0.1, 0.9], [0.8, 0.2], [1, 0]]])
    assert peak_accuracy(weights, torch.tensor([[0, 1, 1], [0, 0, -1]]), MASK) == torch.tensor(3 / 5)


@pytest.mark.parametrize("measure", [symbol_accuracy, exact_match])
def test_what_does_not_belong_together_is_refused(measure):
    for predicted, mask, says in (
        (TARGET[:, :1], MASK, r"predicted of shape \(2, 1\): must be \(2, 3\)"),
        (TARGET, MASK[:1], r"mask of shape \(1, 3\): must be \(2, 3\)"),
        (TARGET, MASK.long(), "mask of torch.int64: must be boolean"),
        (TARGET, ~MASK & MASK, "the mask has no True: there is nothing to compare"),
    ):
        with pytest.raises(ValueError, match=says):
            measure(predicted, TARGET, mask)


def test_peaks_are_compared_place_by_place():
    weights, place, real = torch.rand(2, 3, 4), torch.zeros(2, 3).long(), torch.ones(2, 3, dtype=torch.bool)
    for change in ({"position": place[0]}, {"mask": real.long()}, {"mask": ~real}):
        with pytest.raises(ValueError, match=r"must be|nothing to compare"):
            peak_accuracy(**{"weights": weights, "position": place, "mask": real} | change)
