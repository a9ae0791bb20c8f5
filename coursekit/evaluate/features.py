"""What vectors of images are worth, without training the model that makes them: neighbours, a linear layer, attention.

Legend: B batch, D size of a vector, H heads, T tokens, N patches (the last N of the tokens).
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from coursekit.evaluate.vision import precise
from coursekit.nn.checks import check_mask
from coursekit.nn.modes import evaluating

CHUNK = 1024  # queries at a time, so that memory grows with the images searched alone


@torch.no_grad()
def extract(
    model: nn.Module, images: Tensor, batch_size: int = 256, read: Callable[[Tensor], Tensor] | None = None
) -> Tensor:
    """What ``model`` gives for images (n, C, height, width), in eval mode, part by part: on the CPU, (n, D).

    ``read`` is the method that gives it, such as ``model.features``; by default the model is called.
    """
    where = next(model.parameters()).device
    with evaluating(model):
        return torch.cat([(read or model)(part.to(where)).cpu() for part in images.split(batch_size)])


def neighbours(features: Tensor, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """For each query the ``k`` vectors with the largest cosine, the nearest first.

    Args:
        features: what is searched, (n, D); of a query that is among them the nearest is itself.
        queries: (m, D); any number.

    Returns:
        Their rows in ``features``, (m, k), and the cosines, (m, k).

    Raises:
        ValueError: k is not in 1..n, or the vectors differ in size.
    """
    if not 1 <= k <= len(features):
        raise ValueError(f"k={k}: must lie in 1..{len(features)}, the number of vectors that are searched")
    if features.shape[1:] != queries.shape[1:]:
        raise ValueError(
            f"queries of {queries.shape[1]} numbers: the vectors that are searched have {features.shape[1]}"
        )
    gallery = F.normalize(precise(features), dim=-1)
    parts = [(F.normalize(precise(part), dim=-1) @ gallery.T).topk(k) for part in queries.split(CHUNK)]
    return torch.cat([part.indices for part in parts]), torch.cat([part.values for part in parts])


def knn(features: Tensor, labels: Tensor, queries: Tensor, k: int = 20, temperature: float = 0.07) -> Tensor:
    """The class of each query by the vote of its ``k`` nearest neighbours, with weights ``exp(cosine / temperature)``.

    Args:
        features: with known classes, (n, D).
        labels: these, from 0 on, (n,).
        queries: (m, D); any number.

    Returns:
        Classes (m,).

    Raises:
        ValueError: as ``neighbours``; the labels are not as many as the vectors; or ``temperature`` is not above 0.

    Source: Wu et al. (2018), arXiv 1805.01978, section 3.4; Caron et al. (2021), arXiv 2104.14294, section 4.
    """
    if not temperature > 0:
        raise ValueError(f"temperature={temperature}: must be above 0")
    check_labels(features, labels)
    rows, cosines = neighbours(features, queries, k)
    votes = cosines.new_zeros(len(queries), int(labels.max()) + 1)
    return votes.scatter_add_(1, labels[rows], (cosines / temperature).exp()).argmax(dim=1)


def linear_probe(features: Tensor, labels: Tensor, queries: Tensor, C: float = 1.0) -> Tensor:
    """The class of each query by a linear layer trained on ``features``: logistic regression.

    Each number is shifted and scaled first, to mean 0 and deviation 1 over ``features``.

    Args:
        features: (n, D).
        labels: (n,).
        queries: (m, D).
        C: inverse of the strength of the penalty on the weights' squares.

    Returns:
        Classes (m,).

    Raises:
        ValueError: the labels are not as many as the vectors, or all the same.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    check_labels(features, labels)
    probe = make_pipeline(StandardScaler(), LogisticRegression(C=C, max_iter=1000))
    features, queries = (precise(x).detach().cpu().numpy() for x in (features, queries))
    probe.fit(features, labels.cpu().numpy())
    return torch.from_numpy(probe.predict(queries)).to(labels)


def check_labels(features: Tensor, labels: Tensor) -> None:
    if features.dim() != 2 or labels.shape != features.shape[:1]:
        raise ValueError(
            f"vectors of shape {tuple(features.shape)}, labels of {tuple(labels.shape)}: must be (n, D) and (n,)"
        )


# --- attention as segmentation --------------------------------------------------------------------------------


def keep_mass(weights: Tensor, mass: float = 0.6) -> Tensor:
    """The fewest entries that hold at least the share ``mass`` of each row's sum: (..., N) -> boolean (..., N).

    Raises:
        ValueError: ``mass`` is not in 0..1.
    """
    if not 0 < mass <= 1:
        raise ValueError(f"mass={mass}: must lie in 0..1, above 0")
    weights, order = weights.double().sort(dim=-1, descending=True, stable=True)
    share = weights / weights.sum(dim=-1, keepdim=True)
    larger = share.cumsum(dim=-1) - share  # what those before hold together
    # rounded in float32, what is just enough may sum to a little less
    return torch.zeros_like(order, dtype=torch.bool).scatter_(-1, order, larger < mass - 1e-6)


def jaccard(found: Tensor, true: Tensor) -> Tensor:
    """``|A and B| / |A or B|`` of boolean masks (..., height, width), (...); 1 where both are empty."""
    check_mask("found", found, true.shape)
    check_mask("true", true, true.shape)
    both, either = ((found & true).sum(dim=(-2, -1)), (found | true).sum(dim=(-2, -1)))
    return torch.where(either > 0, both / either.clamp(min=1), 1.0)


class Segmentation(NamedTuple):
    """What the heads of a layer find.

    Attributes:
        masks: what each head keeps, (B, H, height, width), boolean.
        jaccard: with the true mask, of each image and head, (B, H).
        per_head: the mean over images, (H,).
        best: the head with the highest one.
    """

    masks: Tensor
    jaccard: Tensor
    per_head: Tensor
    best: int


def segment(weights: Tensor, masks: Tensor, patch_size: int, mass: float = 0.6) -> Segmentation:
    """Objects as the patches that the class token looks at, compared with their true masks.

    Each head by itself keeps the fewest patches that hold ``mass`` of what it gives to all patches. One head is the
    best for all images; to choose another for each image (``jaccard.amax(dim=1)``) would flatter many heads.

    Args:
        weights: of attention, (B, H, T, T), as a rule of the last block; the class token is the first.
        masks: true ones, (B, height, width), boolean.
        patch_size: side of a patch in pixels.

    Raises:
        ValueError: the patches are not the last tokens behind a class token.

    Source: Caron et al. (2021), arXiv 2104.14294, section 4.2.2 and figure 4.
    """
    height, width = masks.shape[-2:]
    rows, columns, T = height // patch_size, width // patch_size, weights.shape[-1]
    N = rows * columns
    if height % patch_size or width % patch_size or T <= N:
        raise ValueError(
            f"{T} tokens and masks of {height} x {width} pixels: must be a class token and the patches of {patch_size} "
            "pixels that fill the masks"
        )
    seen = keep_mass(weights[:, :, 0, T - N :], mass)  # (B, H, N)
    seen = seen.unflatten(2, (rows, columns)).repeat_interleave(patch_size, 2).repeat_interleave(patch_size, 3)
    found = jaccard(seen, masks[:, None].to(seen.device).expand_as(seen))  # (B, H)
    per_head = found.mean(dim=0)
    return Segmentation(seen, found, per_head, int(per_head.argmax()))
