"""PatchTST, a Transformer that reads numbers: Nie, Nguyen, Sinthong and Kalagnanam (2023), arXiv 2211.14730.

Read it top to bottom: a series as patches, the configuration, the encoder that both tasks share, forecasts (as numbers
or as quantiles), classes, the objectives.

Call chain: ``PatchForecaster.forward`` -> ``normalise`` in ``nn/revin.py``, then ``PatchEncoder`` ->
``LearnedPositions`` in ``nn/positions.py``, then for each layer ``Block`` in ``nn/blocks.py`` ->
``MultiHeadAttention`` -> ``attend`` in ``nn/attention.py``; the forecast -> ``denormalise`` in ``nn/revin.py``.

Legend: B batch, L hours of history, H hours of horizon, C channels (quantities measured), P hours in a patch,
N patches, D = d_model, Q quantiles, K classes.
"""

from dataclasses import dataclass

from torch import Tensor, nn

from coursekit.nn.attention import MultiHeadAttention
from coursekit.nn.blocks import Block, FeedForward
from coursekit.nn.checks import check_dropout, check_heads, check_history, check_shape, check_sizes
from coursekit.nn.dropout import Dropout
from coursekit.nn.losses import pinball_loss, summed_cross_entropy
from coursekit.nn.positions import LearnedPositions
from coursekit.nn.revin import denormalise, normalise


def cut_patches(x: Tensor, size: int, stride: int) -> Tensor:
    """Patches of ``size`` numbers, each ``stride`` after the one before, the last at the end: (..., L) -> (..., N, P).

    ``N = (L - P) // stride + 1``; numbers left over at the beginning are not read.

    Raises:
        ValueError: a patch is longer than the series.

    Source: section 3.1, which pads the end with ``stride`` repeated values instead; as here in transformers.
    """
    L = x.shape[-1]
    if not (1 <= size <= L and stride >= 1):
        raise ValueError(f"patches of {size} every {stride}: must be at least 1 and fit into the {L} numbers")
    return x[..., (L - size) % stride :].unfold(-1, size, stride)


@dataclass(frozen=True)
class PatchTSTConfig:
    """Sizes and choices of a ``PatchEncoder``.

    Attributes:
        history: L.
        patch_size, stride: P, and the hours from one patch to the next; patches overlap where it is below P.
        d_model, n_heads, d_ff, n_layers: D, the heads, the width of the feed-forward networks, the blocks.
        dropout: in training: on the embeddings, the attention weights, the hidden units and both branches.
    """

    history: int
    patch_size: int = 16
    stride: int = 8
    d_model: int = 128
    n_heads: int = 16
    d_ff: int = 256
    n_layers: int = 3
    dropout: float = 0.0

    def __post_init__(self):
        check_sizes(self, "history", "patch_size", "stride", "d_model", "n_heads", "d_ff", "n_layers")
        if self.patch_size > self.history:
            raise ValueError(f"patch_size={self.patch_size}: must be at most history={self.history}")
        check_heads(self)
        check_dropout(self)

    @property
    def n_patches(self) -> int:
        return (self.history - self.patch_size) // self.stride + 1


class PatchEncoder(nn.Module):
    """Each channel's patches, read as words are, by the same weights for all channels: they know nothing of each other.

    ``z_0 = x_p W + b + E_pos``, ``z_l = block(z_{l-1})``, x_p the patches of the normalised window (sections 3.1, 3.2).
    The blocks are pre-norm with layer norms, none after the last block; the paper's are post-norm with batch norms.
    """

    def __init__(self, config: PatchTSTConfig):
        super().__init__()
        self.config = c = config
        self.embedding = nn.Linear(c.patch_size, c.d_model)
        self.positions = LearnedPositions(c.n_patches, c.d_model)
        self.dropout = Dropout(c.dropout)
        self.blocks = nn.ModuleList(
            Block(
                MultiHeadAttention(c.d_model, c.n_heads, dropout=c.dropout),
                FeedForward(c.d_model, c.d_ff, "gelu", dropout=c.dropout),
                dropout=c.dropout,
            )
            for _ in range(c.n_layers)
        )

    def forward(self, history: Tensor) -> Tensor:
        """One vector for each patch of each channel: (B, L, C), already normalised, -> (B, C, N, D)."""
        check_history(history, self.config.history)
        B, _, C = history.shape
        patches = cut_patches(history.transpose(1, 2), self.config.patch_size, self.config.stride)  # (B, C, N, P)
        x = self.dropout(self.positions(self.embedding(patches.flatten(0, 1))))  # (B C, N, P) -> (B C, N, D)
        for block in self.blocks:
            x = block(x)
        return x.unflatten(0, (B, C))  # (B C, N, D) -> (B, C, N, D)


class PatchForecaster(nn.Module):
    """PatchTST: patches, an encoder, and one linear layer from all its vectors to the horizon.

    The window is normalised first, and the forecast brought back to its level and scale, which the model never sees:
    it learns how a series changes, relative to where it is.

    Args:
        config: of the encoder.
        horizon: H.
        quantiles: the levels that it forecasts, rising, such as ``(0.1, 0.5, 0.9)``; empty for one number, the mean.
    """

    def __init__(self, config: PatchTSTConfig, horizon: int, quantiles: tuple[float, ...] = ()):
        super().__init__()
        if horizon < 1:
            raise ValueError(f"horizon={horizon}: must be at least 1")
        if list(quantiles) != sorted(set(quantiles)) or not all(0 < q < 1 for q in quantiles):
            raise ValueError(f"quantiles={quantiles}: must rise, and lie between 0 and 1")
        self.config, self.horizon, self.quantiles = config, horizon, tuple(quantiles)
        self.encoder = PatchEncoder(config)
        self.head = nn.Linear(config.n_patches * config.d_model, horizon * max(1, len(quantiles)))

    def forward(self, history: Tensor) -> Tensor:
        """Forecasts (B, H, C), or (B, H, C, Q) of quantiles, in the units of ``history`` (B, L, C).

        Quantiles are sorted, so that none lies below a lower one.
        """
        x, mean, std = normalise(history)
        y = self.head(self.encoder(x).flatten(2))  # (B, C, N, D) -> (B, C, N D) -> (B, C, H Q)
        if not self.quantiles:
            return denormalise(y.transpose(1, 2), mean, std)  # (B, C, H) -> (B, H, C)
        y = y.unflatten(2, (self.horizon, -1)).transpose(1, 2)  # (B, C, H Q) -> (B, C, H, Q) -> (B, H, C, Q)
        return denormalise(y.sort(dim=-1).values, mean[..., None], std[..., None])


class SeriesClassifier(nn.Module):
    """The mean of each channel's vectors, one after the other, and a linear layer: what kind of series is it?

    A window is read without ``normalise``, which would remove how large its swings are: that may be just what
    distinguishes the classes. Scale all windows alike, with ``coursekit.data.series.fit_scale``.

    Args:
        config: of the encoder.
        channels: C.
        classes: K.
    """

    def __init__(self, config: PatchTSTConfig, channels: int, classes: int):
        super().__init__()
        if min(channels, classes) < 1:
            raise ValueError(f"channels={channels}, classes={classes}: both must be at least 1")
        self.config = config
        self.encoder = PatchEncoder(config)
        self.head = nn.Linear(channels * config.d_model, classes)

    def forward(self, history: Tensor) -> Tensor:
        """Logits (B, K) of ``history`` (B, L, C)."""
        return self.head(self.encoder(history).mean(dim=2).flatten(1))  # (B, C, D) -> (B, C D)


def forecast_loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """The objective for ``Training``: squared error, or pinball loss where the model has quantiles, summed; its count.

    A batch holds ``history`` (B, L, C) and ``target`` (B, H, C), which may have NaN where nothing is known.
    """
    target = batch["target"]
    there = ~target.isnan()
    y = model(batch["history"])
    if getattr(model, "quantiles", ()):
        losses = pinball_loss(y, target, model.quantiles).where(there[..., None], 0.0)  # (B, H, C, Q)
        return losses.sum(), there.sum() * losses.shape[-1]
    check_shape("target", target, y.shape)
    return (y - target).where(there, 0.0).square().sum(), there.sum()


def absolute_loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """As ``forecast_loss`` with the absolute error, so that the model learns the median as MASE rewards it."""
    target, y = batch["target"], model(batch["history"])
    check_shape("target", target, y.shape)
    there = ~target.isnan()
    return (y - target).where(there, 0.0).abs().sum(), there.sum()


def series_classification_loss(model: SeriesClassifier, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Cross-entropy of ``labels`` (B,) given ``history`` (B, L, C), summed (nats), and how many there are."""
    return summed_cross_entropy(model(batch["history"]), batch["labels"])
