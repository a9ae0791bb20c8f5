"""Neighbours, linear probe and segmentation beside slow ones, scikit-learn's, and cases made by hand."""

import math
from collections import defaultdict

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import jaccard_score
from sklearn.neighbors import KNeighborsClassifier
from torch import nn

from coursekit.evaluate import extract, features, jaccard, keep_mass, knn, linear_probe, neighbours, segment


def clouds(n: int, D: int = 5, classes: int = 4, seed: int = 0, apart: float = 1.5):
    """Vectors around the middle of their class, of all lengths."""
    generator = torch.Generator().manual_seed(seed)
    middles = torch.randn(classes, D, generator=torch.Generator().manual_seed(99)) * apart
    labels = torch.randint(classes, (n,), generator=generator)
    x = middles[labels] + torch.randn(n, D, generator=generator)
    return x * torch.rand(n, 1, generator=generator).exp() ** 3, labels


# --- neighbours -----------------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(st.integers(1, 30), st.integers(1, 12), st.integers(1, 20), st.integers(0, 99))
def test_the_vote_is_the_slow_one(n, m, k, seed):
    k = min(k, n)
    (x, labels), (queries, _) = clouds(n, seed=seed), clouds(m, seed=seed + 1000)
    rows, cosines = neighbours(x, queries, k)
    found = knn(x, labels, queries, k)
    for i, q in enumerate(queries.tolist()):
        all_cosines = [sum(a * b for a, b in zip(q, v)) / math.hypot(*q) / math.hypot(*v) for v in x.tolist()]
        order = sorted(range(n), key=lambda j: -all_cosines[j])[:k]
        assert rows[i].tolist() == order
        assert cosines[i].tolist() == pytest.approx([all_cosines[j] for j in order], abs=1e-5)
        votes = defaultdict(float)
        for j in order:
            votes[labels[j].item()] += math.exp(all_cosines[j] / 0.07)
        assert votes[found[i].item()] == pytest.approx(max(votes.values()), rel=1e-3)


def test_the_vote_is_scikit_learns():
    (x, labels), (queries, _) = clouds(300), clouds(150, seed=1)
    weighted = KNeighborsClassifier(
        20, metric="cosine", weights=lambda away: torch.tensor((1 - away) / 0.07).exp().numpy()
    )
    expected = torch.tensor(weighted.fit(x, labels).predict(queries))
    assert torch.equal(knn(x, labels, queries), expected)
    plain = KNeighborsClassifier(20, metric="cosine").fit(x, labels).predict(queries)
    assert (expected != torch.tensor(plain)).any(), "the weights say nothing here"


@pytest.mark.parametrize("m", [1, 3, 99, 100, 101, 250])
def test_any_number_of_images_is_classified(m, monkeypatch):
    """The published program divides them into 100 parts, and fails on fewer."""
    monkeypatch.setattr(features, "CHUNK", 100)
    (x, labels), (queries, _) = clouds(60), clouds(m, seed=1)
    found = knn(x, labels, queries, 5)
    assert found.shape == (m,)
    assert torch.equal(found, torch.cat([knn(x, labels, q[None], 5) for q in queries]))


def test_a_nearer_neighbour_counts_more_than_two_farther_ones():
    x, labels = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.8, -0.6], [-1.0, 0.0]]), torch.tensor([2, 0, 0, 1])
    query = torch.tensor([[5.0, 0.0]])
    assert knn(x, labels, query, 3).item() == 2
    assert knn(x, labels, query, 3, temperature=10.0).item() == 0
    assert neighbours(x, x, 1)[0][:, 0].tolist() == [0, 1, 2, 3], "each is its own nearest"
    assert knn(x.bfloat16(), labels, query.bfloat16(), 3).item() == 2


def test_what_cannot_be_searched_is_refused():
    x, labels = clouds(10)
    for k in (0, 11):
        with pytest.raises(ValueError, match=rf"k={k}: must lie in 1\.\.10, the number of vectors that are searched"):
            knn(x, labels, x, k)
    with pytest.raises(ValueError, match="queries of 4 numbers: the vectors that are searched have 5"):
        neighbours(x, x[:, :4], 1)
    for probe in (knn, linear_probe):
        with pytest.raises(
            ValueError, match=r"vectors of shape \(10, 5\), labels of \(9,\): must be \(n, D\) and \(n,\)"
        ):
            probe(x, labels[:9], x)


# --- the linear probe -----------------------------------------------------------------------------------------


def test_the_probe_separates_what_a_plane_does_whatever_the_units():
    """Catches numbers that are not standardised, and a scale taken from the queries."""
    x = torch.randn(400, 6, generator=torch.Generator().manual_seed(0))
    labels = (x[:, 2] + x[:, 4] > 0).long() * 3
    units, shift = 10.0 ** torch.arange(-3, 3), torch.arange(6.0) * 100
    scaled = (x * units + shift).requires_grad_()
    found = linear_probe(scaled[:200], labels[:200], scaled[200:])
    assert found.dtype == labels.dtype
    assert (found == labels[200:]).float().mean() > 0.95
    assert torch.equal(found, linear_probe(x[:200], labels[:200], x[200:]))
    few = linear_probe(scaled[:200], labels[:200], scaled[200:205])
    assert torch.equal(few, found[:5])


def test_the_probe_is_scikit_learns_regression():
    from sklearn.linear_model import LogisticRegression

    (x, labels), (queries, _) = clouds(200), clouds(50, seed=1)
    mean, deviation = x.mean(dim=0), x.std(dim=0, correction=0)
    for C in (0.001, 1.0):
        regression = LogisticRegression(C=C, max_iter=1000).fit((x - mean) / deviation, labels)
        expected = torch.tensor(regression.predict((queries - mean) / deviation))
        assert (linear_probe(x, labels, queries, C) == expected).float().mean() > 0.95


def test_vectors_are_extracted_part_by_part(where):
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 3), nn.Dropout(0.5)).to(where)
    images = torch.randn(7, 3, 2, 2)
    found = extract(model, images, batch_size=3)
    assert model.training
    assert not found.requires_grad
    torch.testing.assert_close(found, model.eval()(images.to(where)).detach().cpu())
    nn.Linear(3, 1)(found).sum().backward()  # which what inference_mode makes would not let


def test_vectors_of_another_method_are_extracted_in_eval_mode_too(where):
    """Catches a model that is called all the same, and one that is left in the mode it is in."""

    class TwoWays(nn.Module):
        def __init__(self):
            super().__init__()
            self.drop, self.one = nn.Dropout(0.5), nn.Parameter(torch.ones(1))

        def forward(self, images):
            return images.flatten(1) * self.one

        def middle(self, images):
            assert not self.training
            assert len(images) <= 3
            return self.drop(images.flatten(1)[:, 5:7] * self.one)

    model, images = TwoWays().to(where), torch.randn(7, 3, 2, 2)
    found = extract(model, images, batch_size=3, read=model.middle)
    assert torch.equal(found, images.flatten(1)[:, 5:7])
    assert not found.requires_grad
    assert model.training


# --- segmentation ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mass", "kept"),
    [(0.4, [1]), (0.5, [1]), (0.51, [1, 3]), (0.6, [1, 3]), (0.75, [1, 3]), (0.8, [0, 1, 3]), (1.0, [0, 1, 2, 3])],
)
def test_the_fewest_that_hold_the_mass(mass, kept):
    weights = torch.tensor([0.15, 0.5, 0.1, 0.25]) * 0.7  # a class token has the rest
    assert keep_mass(weights, mass).nonzero()[:, 0].tolist() == kept


@settings(max_examples=50)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(1, 20))
def test_no_fewer_would_do(counts, twentieths):
    kept = keep_mass(torch.tensor(counts).float(), twentieths / 20)
    held = sum(n for n, k in zip(counts, kept) if k)
    assert 20 * held >= twentieths * sum(counts)
    inside = [n for n, k in zip(counts, kept) if k]
    assert 20 * (held - min(inside)) < twentieths * sum(counts)
    assert min(inside) >= max([n for n, k in zip(counts, kept) if not k], default=0)


def test_a_mass_that_is_none_is_refused():
    for mass in (0, 1.1, -0.5):
        with pytest.raises(ValueError, match=f"mass={mass}: must lie in 0..1, above 0"):
            keep_mass(torch.ones(3), mass)


def test_jaccard_by_hand_and_by_scikit_learn():
    a, b = torch.zeros(2, 4, 4, dtype=torch.bool), torch.zeros(2, 4, 4, dtype=torch.bool)
    a[0, :2, :2], b[0, 1:3, :2] = True, True  # 2 of 6 in common
    assert jaccard(a, b).tolist() == pytest.approx([1 / 3, 1])
    assert jaccard(a, ~a).tolist() == [0, 0]
    assert jaccard(a, a).tolist() == [1, 1]
    found, true = torch.rand(2, 6, 5, 7, generator=torch.Generator().manual_seed(0)) > 0.4
    expected = [jaccard_score(t.flatten().int(), f.flatten().int()) for f, t in zip(found, true)]
    assert jaccard(found, true).tolist() == pytest.approx(expected)


def test_a_head_that_looks_at_the_object_is_the_best_one():
    """A grid of 2 x 3 patches of 2 pixels, two heads, two images; patch 4 is in row 1, column 1."""
    masks = torch.zeros(2, 4, 6, dtype=torch.bool)
    masks[:, 2:4, 2:4] = True
    masks[1, 2:4, 2] = False  # half of it
    weights = torch.full((2, 2, 7, 7), 1 / 7)
    weights[:, :, 0] = 0.0
    weights[:, 0, 0, 1 + 1] = 1.0  # looks above it
    weights[:, 1, 0, 1 + 4] = 0.25  # of which the class token takes no part
    weights[:, 1, 0, 1 + 3], weights[:, 1, 0, 0] = 0.05, 0.7
    found = segment(weights, masks, 2)
    assert found.masks.shape == (2, 2, 4, 6)
    assert found.masks[0, 1].nonzero().tolist() == [[2, 2], [2, 3], [3, 2], [3, 3]]
    assert found.masks[0, 0].nonzero().tolist() == [[0, 2], [0, 3], [1, 2], [1, 3]]
    torch.testing.assert_close(found.jaccard, torch.tensor([[0.0, 1.0], [0.0, 0.5]]))
    torch.testing.assert_close(found.per_head, torch.tensor([0.0, 0.75]))
    assert found.best == 1
    assert segment(weights, masks, 2, mass=0.95).masks[0, 1].sum() == 8, "two patches"


def test_patches_that_do_not_fit_the_masks_are_refused():
    weights = torch.full((1, 2, 7, 7), 1 / 7)
    for height, width, tokens in ((4, 6, 6), (4, 7, 7), (6, 6, 7)):
        with pytest.raises(
            ValueError, match=f"{tokens} tokens and masks of {height} x {width} pixels: must be a class t"
        ):
            segment(weights[..., :tokens], torch.zeros(1, height, width, dtype=torch.bool), 2)


def test_masks_of_other_shapes_or_types_are_not_compared():
    mask = torch.ones(2, 4, 4, dtype=torch.bool)
    for found, true in ((mask[:1], mask), (mask, mask.long()), (mask.float(), mask)):
        with pytest.raises(ValueError, match="must be"):
            jaccard(found, true)


@pytest.mark.parametrize("temperature", [0, -1])
def test_the_nearest_have_the_largest_weight(temperature):
    with pytest.raises(ValueError, match=f"temperature={temperature}: must be above 0"):
        knn(torch.eye(4), torch.arange(4), torch.eye(4), k=2, temperature=temperature)
