"""A forecaster of encoder and decoder, as Vaswani et al. (2017) translate, with numbers for words.

Read it top to bottom: the model, its objective. The encoder is that of PatchTST.

Call chain: ``EncoderDecoderForecaster.forward`` -> ``normalise`` in ``nn/revin.py``, then ``PatchEncoder`` in
``models/patchtst.py``, then ``EncoderDecoderForecaster.decode`` -> for each layer ``DecoderBlock`` in ``nn/blocks.py``
-> ``MultiHeadAttention`` -> ``attend`` in ``nn/attention.py``; the forecast -> ``denormalise`` in ``nn/revin.py``.

Legend: B batch, L hours of history, H hours of horizon, T hours that the decoder has read, C channels (quantities
measured), N patches, D = d_model.
"""

import torch
from torch import Tensor, nn

from coursekit.models.patchtst import PatchEncoder, PatchTSTConfig
from coursekit.nn.attention import MultiHeadAttention
from coursekit.nn.blocks import DecoderBlock, FeedForward
from coursekit.nn.checks import check_shape
from coursekit.nn.positions import LearnedPositions
from coursekit.nn.revin import denormalise, normalise


class EncoderDecoderForecaster(nn.Module):
    """The Transformer of translation, with numbers for words: one forecast after the other.

    The encoder reads the patches of the history; the decoder reads the last hour and its own forecasts and says the
    next one. In training it reads the true ones (teacher forcing). Channels are read one by one, by the same weights.

    Args:
        config: of the encoder; the decoder has as many blocks, of the same size, and reads hours.
        horizon: H.
    """

    def __init__(self, config: PatchTSTConfig, horizon: int):
        super().__init__()
        if horizon < 1:
            raise ValueError(f"horizon={horizon}: must be at least 1")
        self.config, self.horizon, c = config, horizon, config
        self.encoder = PatchEncoder(config)
        self.memory_norm = nn.LayerNorm(c.d_model)
        self.embedding = nn.Linear(1, c.d_model)
        self.positions = LearnedPositions(horizon, c.d_model)
        self.decoder = nn.ModuleList(
            DecoderBlock(
                MultiHeadAttention(c.d_model, c.n_heads, dropout=c.dropout),
                MultiHeadAttention(c.d_model, c.n_heads, dropout=c.dropout),
                FeedForward(c.d_model, c.d_ff, "gelu", dropout=c.dropout),
                dropout=c.dropout,
            )
            for _ in range(c.n_layers)
        )
        self.norm = nn.LayerNorm(c.d_model)
        self.head = nn.Linear(c.d_model, 1)

    def decode(self, inputs: Tensor, memory: Tensor) -> Tensor:
        """What follows each of ``inputs`` (B C, T), normalised, as a step from it: (B C, T)."""
        x = self.positions(self.embedding(inputs[..., None]))  # (B C, T, D)
        for block in self.decoder:
            x = block(x, memory)
        return inputs + self.head(self.norm(x))[..., 0]

    def forward(self, history: Tensor, target: Tensor | None = None) -> Tensor:
        """Forecasts (B, H, C) in the units of ``history`` (B, L, C).

        Args:
            target: (B, H, C), without gaps: each hour is then forecast from the true hours before it, as in training.
                None to forecast from forecasts.
        """
        x, mean, std = normalise(history)
        memory = self.memory_norm(self.encoder(x).flatten(0, 1))  # (B, C, N, D) -> (B C, N, D)
        known = x[:, -1].flatten()[:, None]  # (B, C) -> (B C, 1)
        if target is not None:
            true = ((target - mean) / std).transpose(1, 2).flatten(0, 1)  # (B, H, C) -> (B C, H)
            y = self.decode(torch.cat([known, true[:, :-1]], dim=1), memory)
        else:
            for _ in range(self.horizon):
                known = torch.cat([known, self.decode(known, memory)[:, -1:]], dim=1)
            y = known[:, 1:]
        return denormalise(y.unflatten(0, (len(history), -1)).transpose(1, 2), mean, std)  # (B C, H) -> (B, H, C)


def teacher_forcing_loss(model: EncoderDecoderForecaster, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """The objective for ``Training``: squared error of a decoder that reads the true hours, summed; and its count.

    A batch is as for ``forecast_loss`` in ``patchtst.py``. A missing hour is read as the last one known.
    """
    target, last = batch["target"], batch["history"][:, -1:]
    check_shape("target", target, (len(last), model.horizon, last.shape[-1]))
    there = ~target.isnan()
    rows = torch.arange(1, target.shape[1] + 1, device=target.device)[None, :, None] * there
    read = torch.cat([last, target], dim=1).gather(1, rows.cummax(dim=1).values)
    y = model(batch["history"], read)
    return (y - target).where(there, 0.0).square().sum(), there.sum()
