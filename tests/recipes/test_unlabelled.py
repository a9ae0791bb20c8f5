"""What the recipes of SiT and DINO share: two pictures of an object, batches by lot, and what features are worth."""

import pytest
import torch
from torch.nn import functional as F

from coursekit.data.shapes import CLASSES, shapes
from coursekit.evaluate.features import knn, linear_probe
from coursekit.recipes import unlabelled
from coursekit.recipes.vit import as_numbers


def test_two_pictures_show_the_same_object_in_other_scenes():
    n = 36
    both = unlabelled.pictures(n)
    assert (both.shape, both.dtype) == ((n, 2, 3, 32, 32), torch.uint8)
    seen = [unlabelled.images_of("train", n), unlabelled.images_of("train", n, scene=1)]
    for p, found in enumerate(seen):
        assert torch.equal(both[:, p], found.images)
    for name in ("labels", "texture", "colour", "rgb"):
        assert torch.equal(*(getattr(found, name) for found in seen)), name
    assert torch.equal(seen[0].images, shapes(n, "train").images), "the first is the one with a label in other recipes"
    changed = both[:, 0].ne(both[:, 1]).float().mean(dim=(1, 2, 3))
    assert changed.min() > 0.5, "of the pixels of each"
    assert not torch.equal(seen[0].rotation, seen[1].rotation)


def test_batches_are_drawn_by_lot_from_all(generator):
    images = unlabelled.pictures(24)
    found = unlabelled.drawn_from(images, 1000, generator)
    assert (found.shape, found.dtype) == ((1000, *images.shape[1:]), torch.float32)
    assert 0 <= found.min() < 0.1
    assert 0.9 < found.max() <= 1
    rows = torch.cdist(found.flatten(1), images.flatten(1) / 255).argmin(dim=1)
    torch.testing.assert_close(found, images[rows] / 255)
    assert torch.bincount(rows, minlength=24).min() > 15, "of 42 expected"
    assert torch.equal(found, unlabelled.drawn_from(images, 1000, torch.Generator().manual_seed(0)))


def test_known_are_of_the_training_and_asked_of_their_split(few_images):
    assert torch.equal(unlabelled.known(), as_numbers(shapes(36, "train").images))
    for split, n in (("validation", 12), ("test", 24)):
        assert torch.equal(unlabelled.asked(split), as_numbers(shapes(n, split).images))


def test_the_evaluation_is_the_share_of_right_answers(few_images):
    """The features say the class; of the queries every fourth says another one."""
    classes = torch.arange(36) % len(CLASSES)
    features, queries = (F.one_hot(labels, len(CLASSES)).float() for labels in (classes, classes[:24]))
    assert unlabelled.evaluate_features(features, queries, "test") == {"knn": 1, "probe": 1}
    queries[::4] = queries[::4].roll(1, dims=1)
    assert unlabelled.evaluate_features(features, queries, "test") == pytest.approx({"knn": 0.75, "probe": 0.75})


def test_neighbours_and_probe_are_not_exchanged(generator, monkeypatch):
    monkeypatch.setattr(unlabelled, "GALLERY", 240)
    monkeypatch.setattr(unlabelled, "QUERIES", {"test": 480})
    middles = torch.randn(len(CLASSES), 6, generator=generator)
    features, queries = (
        (middles[torch.arange(n) % len(CLASSES)] + torch.randn(n, 6, generator=generator)) for n in (240, 480)
    )
    labels, truth = (torch.arange(n) % len(CLASSES) for n in (240, 480))
    answers = {"knn": knn(features, labels, queries, k=20), "probe": linear_probe(features, labels, queries)}
    expected = {name: (found == truth).float().mean().item() for name, found in answers.items()}
    assert abs(expected["knn"] - expected["probe"]) > 0.01, "this test tells nothing"
    assert unlabelled.evaluate_features(features, queries, "test") == pytest.approx(expected)
