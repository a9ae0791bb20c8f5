"""SiT: Atito, Awais and Kittler (2021), "SiT: Self-supervised vision Transformer", arXiv 2104.03602.

Three things learned at once from two corrupted views of an image, without labels: to restore what was corrupted, to
tell by how many quarters a view is turned, and to know the other view of the same image among all others. Read it top
to bottom: the configuration, the three losses and how they are weighed, then the model. The views are drawn in
``coursekit/data/corrupt.py``. This is the version with all three objectives, written from the formulas; initial weights
and the sizes of the contrastive head are ours.

Call chain: ``SiT.losses`` -> ``SiT.forward`` -> ``SiT.hidden`` -> ``ViT.embed`` in ``models/vit.py``, then for each
layer ``Block`` in ``nn/blocks.py`` -> ``MultiHeadAttention`` -> ``attend`` in ``nn/attention.py``.

Legend: B batch, V = 2 views of an image, C channels, P side of a patch in pixels, N patches, D = d_model.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from coursekit.models.vit import ViT, ViTConfig, unpatchify
from coursekit.nn.checks import check_shape, check_sizes
from coursekit.nn.modes import evaluating
from coursekit.nn.precision import full_precision

OBJECTIVES = ("reconstruction", "rotation", "contrastive")
TURNS = 4
STD = 0.02  # of the tokens and of the heads' weights at first


@dataclass(frozen=True)
class SiTConfig:
    """Sizes and choices of a ``SiT``.

    Attributes:
        vit: the body; ``classes`` must be 0 and ``pooling`` "mean", for two other tokens take the class token's place.
        objectives: which of ``OBJECTIVES`` are learned; there is no head for the others.
        d_contrast: size of the vectors that are compared; the hidden layer before them is as wide as D.
        temperature: tau of the contrastive loss.
    """

    vit: ViTConfig
    objectives: Sequence[str] = OBJECTIVES
    d_contrast: int = 128
    temperature: float = 0.5

    def __post_init__(self):
        object.__setattr__(self, "objectives", tuple(self.objectives))
        if self.vit.classes or self.vit.representation_size:
            field = "classes" if self.vit.classes else "representation_size"
            raise ValueError(f"vit.{field}={getattr(self.vit, field)}: must be 0, the heads of SiT take its place")
        if self.vit.pooling != "mean":
            raise ValueError(f"vit.pooling={self.vit.pooling!r}: must be 'mean', without a class token")
        known = [name for name in OBJECTIVES if name in self.objectives]
        if not known or sorted(known) != sorted(self.objectives):
            raise ValueError(f"objectives={self.objectives}: must be one or more of {OBJECTIVES}, each once")
        check_sizes(self, "d_contrast")
        if not self.temperature > 0:
            raise ValueError(f"temperature={self.temperature}: must be above 0")

    @classmethod
    def s16(cls, **changes) -> "SiTConfig":
        """ViT-S/16, with changes: 21,665,664 parameters without the heads."""
        return cls(**{"vit": ViTConfig.s16(classes=0, pooling="mean")} | changes)


def reconstruction_losses(found: Tensor, clean: Tensor, masks: Tensor) -> Tensor:
    """Mean of ``|found - clean|`` over the corrupted pixels of each image; what was never corrupted does not count.

    Args:
        found, clean: (B, C, height, width).
        masks: True where a pixel was corrupted, (B, height, width).

    Returns:
        (B,), in units of the images; 0 where nothing was corrupted.
    """
    check_shape("found", found, clean.shape)
    check_shape("masks", masks, (len(clean), *clean.shape[2:]))
    wrong = (found - clean).abs().mean(dim=1) * masks  # (B, height, width)
    return wrong.sum(dim=(1, 2)) / masks.sum(dim=(1, 2)).clamp(min=1)


def contrastive_losses(vectors: Tensor, temperature: float) -> Tensor:
    """Cross-entropy of finding the other view of an image among all views of the batch but the view itself.

    ``l(i, j) = - ln (exp(z_i . z_j / tau) / sum over k != i of exp(z_i . z_k / tau))``, where i and j are the two views
    of an image, and k goes through all 2 B views.

    Args:
        vectors: z, of length 1, (B, 2, d).
        temperature: tau.

    Returns:
        In nats, (B, 2).

    Raises:
        ValueError: there are not two views of each image, or not two images; or ``temperature`` is not above 0.

    Source: the normalised temperature-scaled cross-entropy of Chen, Kornblith, Norouzi and Hinton (2020), arXiv
    2002.05709, section 2.1.
    """
    if not temperature > 0:
        raise ValueError(f"temperature={temperature}: must be above 0")
    if vectors.dim() != 3 or vectors.shape[1] != 2 or len(vectors) < 2:
        raise ValueError(f"vectors of shape {tuple(vectors.shape)}: must be (B, 2, d), of at least 2 images")
    z = vectors.flatten(0, 1)  # (2 B, d), the views of an image beside each other
    with full_precision(z.device):
        similar = z @ z.T / temperature  # (2 B, 2 B)
    itself = torch.eye(len(z), dtype=torch.bool, device=z.device)
    other = torch.arange(len(z), device=z.device) ^ 1  # 1, 0, 3, 2, …
    losses = F.cross_entropy(similar.masked_fill(itself, -torch.inf), other, reduction="none")
    return losses.unflatten(0, (-1, 2))


def weigh(losses: Tensor, log_variances: Tensor) -> Tensor:
    """One loss of several: ``sum over i of L_i / (2 sigma_i^2) + ln(1 + sigma_i^2)``, where the sigmas are learned.

    The larger a loss stays, the less it counts; the logarithm keeps the variances from growing without end. Learned is
    ``s = ln sigma^2``, which may be any number while ``sigma^2 = e^s`` is always above 0, and ``ln(1 + e^s)`` is a
    softplus. For a loss that no longer changes, the best variance solves ``sigma^4 = (1 + sigma^2) L / 2``.

    Args:
        losses, log_variances: (n,).

    Returns:
        A scalar.

    Source: Kendall, Gal and Cipolla (2018), arXiv 1705.07115; with 1 + sigma^2: Liebel and Körner (2018), arXiv
    1805.06334.
    """
    check_shape("log_variances", log_variances, losses.shape)
    return (losses / 2 * (-log_variances).exp() + F.softplus(log_variances)).sum()


class ContrastiveHead(nn.Module):
    """``z = f(x) / |f(x)|``, f two linear layers with GELU between: (..., D) -> (..., d_contrast)."""

    def __init__(self, d_model: int, d_contrast: int):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(d_model, d_model), nn.GELU(), nn.Linear(d_model, d_contrast))

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(self.mlp(x), dim=-1)


class SiT(nn.Module):
    """A Vision Transformer with a token for rotation and one for contrast in front of the patches, and three heads.

    ``z_0 = [x_rotation; x_contrast; x_1 E + p_1; …; x_N E + p_N]``, then the blocks and the last norm of ``ViT``. The
    two tokens have no positions of their own: a learned vector plus a learned vector would be one learned vector. Both
    are there whatever is learned, so that the body is the same; they and the heads are read as follows:

    - reconstruction, from each patch: a linear layer to its C P^2 numbers (a convolution, transposed, whose stride is
      as wide as its kernel);
    - rotation, from its token: a linear layer to four logits;
    - contrastive, from its token: ``ContrastiveHead``.

    ``sit_loss`` is the objective for ``Training``. A batch is what ``coursekit.data.corrupt.corrupted_views`` gives,
    with ``views`` and ``clean`` scaled as the ViT reads them.

    Attributes:
        log_variances: one for each objective, in the order of ``config.objectives``; see ``weigh``.
    """

    def __init__(self, config: SiTConfig):
        super().__init__()
        self.config = c = config
        self.vit, D = ViT(c.vit), c.vit.d_model
        self.tokens = nn.Parameter(torch.empty(2, D).normal_(std=STD))
        heads = {
            "reconstruction": lambda: nn.Linear(D, c.vit.channels * c.vit.patch_size**2),
            "rotation": lambda: nn.Linear(D, TURNS),
            "contrastive": lambda: ContrastiveHead(D, c.d_contrast),
        }
        self.heads = nn.ModuleDict({name: heads[name]() for name in c.objectives})
        for layer in self.heads.modules():
            if isinstance(layer, nn.Linear):
                nn.init.trunc_normal_(layer.weight, std=STD)
                nn.init.zeros_(layer.bias)
        self.log_variances = nn.Parameter(torch.zeros(len(c.objectives)))

    def hidden(self, images: Tensor) -> Tensor:
        """All tokens as the model understands them: (B, C, height, width) -> (B, 2 + N, D).

        Raises:
            ValueError: the images have another number of channels, or patches do not fill them.
        """
        x = self.vit.embed(images)  # (B, N, D), with positions
        x = torch.cat([self.vit.dropout(self.tokens.to(x).expand(len(x), -1, -1)), x], dim=1)
        for block in self.vit.blocks:
            x = block(x)
        return self.vit.norm(x)

    def read(self, images: Tensor) -> dict[str, Tensor]:
        """What each objective reads: the patches (B, N, D), and the token of its own (B, D)."""
        hidden = self.hidden(images)
        states = {"reconstruction": hidden[:, 2:], "rotation": hidden[:, 0], "contrastive": hidden[:, 1]}
        return {name: states[name] for name in self.config.objectives}

    def features(self, images: Tensor) -> Tensor:
        """Vectors for k-NN, probe and the like: what the objectives read, side by side; (B, D times how many).

        These are the mean of the patches and the two tokens, each divided by its length, so that a cosine weighs them
        alike. What no objective reads is left out, for nothing has taught it to say anything; and the tokens are not
        averaged with the patches, which are so many more.
        """
        # the patches (B, N, D) -> (B, D); the tokens are (B, D)
        states = [x.mean(dim=1) if x.dim() == 3 else x for x in self.read(images).values()]
        return torch.cat([F.normalize(x, dim=-1) for x in states], dim=1)

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        """For (B, C, height, width), of the objectives that are learned.

        Returns:
            ``reconstruction`` (B, C, height, width), ``rotation`` logits (B, 4), ``contrastive`` (B, d_contrast), of
            length 1.
        """
        found = self.read(images)
        with full_precision(images.device):  # heads and losses
            found = {name: head(found[name].to(self.log_variances)) for name, head in self.heads.items()}
        if "reconstruction" in found:  # (B, N, C P^2) -> (B, C, height, width)
            found["reconstruction"] = unpatchify(
                found["reconstruction"], self.config.vit.patch_size, self.vit.grid(images)
            )
        return found

    def losses(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Each objective by itself, the mean over the views of an image: (B,).

        Raises:
            ValueError: there are not two views of each image, or, where they are contrasted, not two images.
        """
        views = batch["views"]
        if views.dim() != 5 or views.shape[1] != 2:
            raise ValueError(f"views of shape {tuple(views.shape)}: must be (B, 2, C, height, width)")
        found = self(views.flatten(0, 1))  # (B, 2, C, height, width) -> (2 B, C, height, width)
        losses = {}
        if "reconstruction" in found:
            clean, masks = batch["clean"].flatten(0, 1), batch["masks"].flatten(0, 1)
            losses["reconstruction"] = reconstruction_losses(found["reconstruction"], clean, masks)
        if "rotation" in found:
            turns = batch["rotations"].flatten()  # (B, 2) -> (2 B,)
            losses["rotation"] = F.cross_entropy(found["rotation"], turns, reduction="none")
        if "contrastive" in found:
            vectors = found["contrastive"].unflatten(0, (-1, 2))  # (2 B, d) -> (B, 2, d)
            losses["contrastive"] = contrastive_losses(vectors, self.config.temperature).flatten()
        # (2 B,) -> (B, 2) -> (B,)
        return {name: losses[name].unflatten(0, (-1, 2)).mean(dim=1) for name in self.config.objectives}

    @torch.no_grad()
    def diagnose(self, batch: dict[str, Tensor]) -> dict[str, float]:
        """Curves for each objective by itself, without dropping anything.

        Returns:
            Of each that is learned, under its name, the mean loss: in units of the images; in nats, ln 4 for guesses;
            in nats, ln(2 B - 1) where all views look alike. And as ``variance_of_…`` its sigma^2 in ``weigh``.
        """
        with evaluating(self):
            losses = self.losses({name: x.to(self.log_variances.device) for name, x in batch.items()})
        found = {name: loss.mean().item() for name, loss in losses.items()}
        variances = zip(losses, self.log_variances.exp().tolist())
        return found | {f"variance_of_{name}": variance for name, variance in variances}


def sit_loss(model: SiT, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """The objective for ``Training``: the mean losses as ``weigh`` puts them together, times the images, and these.

    Views are contrasted with those of the batch alone: several batches for one update are not as one large one.
    """
    losses = torch.stack(list(model.losses(batch).values()))  # (objectives, B)
    count = losses.shape[1]
    return weigh(losses.mean(dim=1), model.log_variances) * count, losses.new_full((), count)
