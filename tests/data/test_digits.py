import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

from coursekit.data.digits import digits


def test_the_splits_are_all_of_the_file_and_share_nothing():
    file = load_digits()
    known = {image.astype(np.uint8).tobytes(): label for image, label in zip(file.images, file.target)}
    assert len(known) == 1797, "images of the file are not all different: the test could not tell them apart"
    found = {}
    for split in ("train", "test"):
        data = digits(split)
        assert data.images.shape == (len(data), 1, 8, 8)
        assert data.images.dtype == torch.float32
        assert data.labels.dtype == torch.int64
        for image, label in zip(data.images, data.labels.tolist()):
            key = (16 * image[0]).to(torch.uint8).numpy().tobytes()
            assert key not in found
            found[key] = label
    assert found == known


def test_each_digit_is_tested_forty_times():
    assert digits("test").labels.bincount().tolist() == [40] * 10
    assert len(digits("train")) == 1397


def test_grey_is_between_paper_and_ink():
    images = digits().images
    assert (images.min(), images.max()) == (0, 1)
    assert set((16 * images).unique().tolist()) == set(range(17))
    assert images[:, 0, 3:5, 2:6].mean() > 4 * images[:, 0, :, [0, 7]].mean(), "the ink is in the middle"


def test_the_split_is_the_same_for_good_and_comes_from_all_of_the_file():
    """A change of torch's generator or of the rule would make results that were published another test's."""
    torch.manual_seed(1)
    test = digits("test")
    assert torch.equal(test.images, digits("test").images)
    assert test.labels[:20].tolist() == [2, 3, 2, 3, 8, 7, 8, 5, 6, 5, 0, 7, 7, 0, 2, 6, 3, 1, 2, 0]
    assert float(16 * test.images.sum()) == 124_536
    file = load_digits().images.reshape(1797, 64)
    places = [int((file == row).all(axis=1).argmax()) for row in (16 * test.images).flatten(1).numpy()]
    assert places == sorted(places)
    assert max(np.histogram(places, bins=8, range=(0, 1797))[0]) < 75  # 50 on average: not one part of the file


def test_it_can_be_learnt():
    train, test = digits("train"), digits("test")
    model = KNeighborsClassifier(3).fit(train.images.flatten(1), train.labels)
    assert model.score(test.images.flatten(1), test.labels) > 0.97


def test_nonsense_is_refused():
    with pytest.raises(ValueError, match=r"split='valid': must be one of \('train', 'test'\)"):
        digits("valid")
