"""The Transformer: Vaswani et al. (2017), *Attention Is All You Need*, arXiv 1706.03762.

Read it top to bottom: the configuration, the model (encoder, decoder, shared embeddings), the objective with
label smoothing, the optimizer with its warm-up.

Call chain: ``Transformer.forward`` -> ``Transformer.encode``, ``Transformer.decode`` -> ``Transformer.embed`` ->
``SinusoidalPositions`` in ``nn/positions.py``, then for each layer ``Block``, ``DecoderBlock`` in ``nn/blocks.py`` ->
``MultiHeadAttention`` -> ``attend`` in ``nn/attention.py``.

Legend: B batch, S source tokens, T target tokens, V vocabulary size, D = d_model.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from coursekit.nn.attention import MultiHeadAttention
from coursekit.nn.blocks import ACTIVATIONS, Block, DecoderBlock, FeedForward
from coursekit.nn.cache import Cache
from coursekit.nn.checks import (
    check_all,
    check_caches,
    check_dropout,
    check_heads,
    check_sizes,
    check_text,
    check_token,
)
from coursekit.nn.dropout import Dropout
from coursekit.nn.losses import real_rows
from coursekit.nn.masks import padding_mask
from coursekit.nn.positions import LearnedPositions, SinusoidalPositions, positions_of
from coursekit.nn.tied import tied_logits


@dataclass(frozen=True)
class TransformerConfig:
    """Sizes and choices of a ``Transformer``; the defaults are the paper's base model.

    Attributes:
        vocab_size: V, shared by source and target.
        d_model, n_heads, d_ff, n_layers: D, H, the width of the feed-forward networks, and the blocks in the
            encoder and again in the decoder.
        d_key, d_value: sizes of a key and a value in each head; None for D / H.
        dropout: in training: on the embeddings, the attention weights, the hidden units and every branch. The
            paper's section 5.4 lists only the embeddings and the branches.
        positions: ``"sinusoidal"`` or ``"learned"``.
        norm_first: False as published, layer norm after each residual connection and none at the end; True
            before each branch, and one more at the end of the encoder and of the decoder.
        activation: of the feed-forward networks, a name in ``coursekit.nn.blocks.ACTIVATIONS``.
        max_length: largest number of tokens of a source or a target.
        bos_id: the symbol that the decoder reads first.
        eos_id: the symbol that ends a target.
        pad_id: the symbol after the end; not ``eos_id``, since padding is never written.
    """

    vocab_size: int = 37_000
    d_model: int = 512
    n_heads: int = 8
    d_ff: int = 2048
    n_layers: int = 6
    d_key: int | None = None
    d_value: int | None = None
    dropout: float = 0.1
    positions: str = "sinusoidal"
    norm_first: bool = False
    activation: str = "relu"
    max_length: int = 512
    bos_id: int = 1
    eos_id: int = 2
    pad_id: int = 0

    def __post_init__(self):
        check_sizes(self, "vocab_size", "d_model", "n_heads", "d_ff", "n_layers", "max_length")
        check_sizes(self, *(field for field in ("d_key", "d_value") if getattr(self, field) is not None))
        if None in (self.d_key, self.d_value):
            check_heads(self)
        check_dropout(self)
        if self.positions not in ("sinusoidal", "learned"):
            raise ValueError(f"positions={self.positions!r}: must be 'sinusoidal' or 'learned'")
        if self.positions == "sinusoidal" and self.d_model % 2:
            raise ValueError(
                f"d_model={self.d_model}: sines and cosines come in pairs, so it must be even, or positions='learned'"
            )
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"activation={self.activation!r}: must be one of {', '.join(map(repr, ACTIVATIONS))}")
        for field in ("bos_id", "eos_id", "pad_id"):
            check_token(self, field)
        if self.pad_id == self.eos_id:
            raise ValueError(
                f"pad_id=eos_id={self.eos_id}: padding is never written, so no sequence would end; make them differ"
            )

    @classmethod
    def base(cls, **changes) -> "TransformerConfig":
        """The base model of Table 3, with changes."""
        return cls(**changes)

    @classmethod
    def big(cls, **changes) -> "TransformerConfig":
        """The big model of Table 3, with changes."""
        return cls(**{"d_model": 1024, "d_ff": 4096, "n_heads": 16, "dropout": 0.3} | changes)


class Transformer(nn.Module):
    """Encoder and decoder with one embedding matrix for source, target and output (section 3.4).

    A token's vector is its row of the matrix times ``sqrt(D)`` plus its position's code; its logit is the product of
    the decoder's output with its row.
    """

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.config = c = config
        self.embedding = nn.Embedding(c.vocab_size, c.d_model)
        self.positions = (SinusoidalPositions if c.positions == "sinusoidal" else LearnedPositions)(
            c.max_length, c.d_model
        )
        self.dropout = Dropout(c.dropout)
        attention = partial(
            MultiHeadAttention, c.d_model, c.n_heads, dropout=c.dropout, d_key=c.d_key, d_value=c.d_value
        )
        feed_forward = partial(FeedForward, c.d_model, c.d_ff, c.activation, dropout=c.dropout)
        options = {"norm_first": c.norm_first, "dropout": c.dropout}
        self.encoder = nn.ModuleList(Block(attention(), feed_forward(), **options) for _ in range(c.n_layers))
        self.decoder = nn.ModuleList(
            DecoderBlock(attention(), attention(), feed_forward(), **options) for _ in range(c.n_layers)
        )
        self.encoder_norm = nn.LayerNorm(c.d_model) if c.norm_first else nn.Identity()
        self.decoder_norm = nn.LayerNorm(c.d_model) if c.norm_first else nn.Identity()
        # zero as published; translators of the Marian family bring one along
        self.register_buffer("logits_bias", torch.zeros(c.vocab_size))
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2 and "positions" not in name:
                # qkv (3 D, D) as one matrix, as PyTorch does: a smaller bound than for each D x D part by itself
                nn.init.xavier_uniform_(parameter)
        nn.init.normal_(self.embedding.weight, std=c.d_model**-0.5)  # times sqrt(D): entries of variance 1
        if c.positions == "learned":
            nn.init.normal_(self.positions.encoding, std=0.5**0.5)  # as large as sines: much smaller, words drown them

    def embed(self, ids: Tensor, position_ids: int | Tensor = 0) -> Tensor:
        """(B, T) -> (B, T, D); ``position_ids``: of the first token, or of each one."""
        return self.dropout(self.positions(self.embedding(ids) * self.config.d_model**0.5, position_ids))

    def encode(self, source: Tensor, source_mask: Tensor | None) -> Tensor:
        """The memory (B, S, D) of a source (B, S). Padding, where ``source_mask`` is False, may be on either side; None
        where there is none.

        Raises:
            ValueError: a source has no real token, or more than ``max_length``; or ``source`` is not (B, S), no whole
                numbers, or none of the vocabulary's; or ``source_mask`` has another shape.
        """
        check_text(source, self.config.vocab_size, self.config.max_length, source_mask, name="source")
        x = self.embed(source, 0 if source_mask is None else positions_of(source_mask))
        may_attend = padding_mask(source_mask)  # (B, 1, 1, S)
        for block in self.encoder:
            x = block(x, mask=may_attend)
        return self.encoder_norm(x)

    def decode(
        self,
        inputs: Tensor,
        memory: Tensor,
        source_mask: Tensor | None,
        caches: list[tuple[Cache, Cache]] | None = None,
    ) -> Tensor:
        """Logits (B, T, V) of the symbols that follow each of ``inputs`` (B, T).

        Args:
            memory: (B, S, D).
            source_mask: (B, S), True where the source is real; None where all of it is.
            caches: of each block, from ``new_caches``; ``inputs`` then continue what they hold.

        Raises:
            ValueError: as ``encode``, of ``inputs``; or there are more or fewer caches than blocks.
        """
        check_caches(caches, len(self.decoder))
        start = caches[0][0].length if caches else 0
        check_text(inputs, self.config.vocab_size, self.config.max_length, start=start, name="inputs")
        x = self.embed(inputs, start)
        memory_mask = padding_mask(source_mask)
        for block, cache in zip(self.decoder, caches or [None] * len(self.decoder), strict=True):
            x = block(x, memory, memory_mask=memory_mask, cache=cache)
        return tied_logits(self.decoder_norm(x), self.embedding.weight, self.logits_bias)

    def new_caches(self, max_length: int, source_length: int) -> list[tuple[Cache, Cache]]:
        """Empty caches for decoding step by step: in each block one of the target, one of the source."""
        return [(Cache(max_length), Cache(source_length)) for _ in self.decoder]

    def forward(self, source: Tensor, source_mask: Tensor | None, target: Tensor) -> Tensor:
        """Logits (B, T, V) of each target symbol, given the source and the target symbols before it.

        Args:
            source: symbols, (B, S).
            source_mask: (B, S), True where the source is real; every row needs one True. None where all of it is.
            target: symbols, (B, T), padded at the end. The decoder reads them one place to the right, after
                the start symbol.

        Raises:
            ValueError: as ``encode``, of ``source`` and of ``target``.
        """
        check_text(target, self.config.vocab_size, self.config.max_length, name="target")
        first = target.new_full((target.shape[0], 1), self.config.bos_id)
        inputs = torch.cat([first, target[:, :-1]], dim=1)  # (B, T)
        return self.decode(inputs, self.encode(source, source_mask), source_mask)


def smoothed_cross_entropy(logits: Tensor, target: Tensor, smoothing: float = 0.0) -> Tensor:
    """Cross-entropy with smoothed targets, summed (nats).

    The target distribution is ``q = (1 - smoothing) onehot + smoothing / V``, and the loss
    ``- sum over v of q_v log p_v``.

    Args:
        logits: (N, V).
        target: (N,); -100 where there is nothing to predict, as in ``torch.nn.functional.cross_entropy``.
        smoothing: 0 for the plain cross-entropy, 0.1 in the paper.

    Raises:
        ValueError: ``smoothing`` is no probability below 1, or a target is none of 0..V-1 and not -100.

    Source: Szegedy et al. (2015), arXiv 1512.00567, section 7; used in 1706.03762, section 5.4.
    """
    if not 0 <= smoothing < 1:
        raise ValueError(f"smoothing={smoothing}: must be a probability below 1; 0 for none")
    V = logits.shape[-1]
    known = (target == -100) | ((target >= 0) & (target < V))
    check_all(known, f"a target must lie in 0..{V - 1}, or be -100 where there is nothing to predict")
    log_p = logits.float().log_softmax(dim=-1)
    right = log_p.gather(1, target.clamp(min=0)[:, None])[:, 0]  # log p of the right symbols, (N,)
    losses = -right if smoothing == 0 else -(1 - smoothing) * right - smoothing * log_p.mean(dim=-1)
    return losses.masked_fill(target == -100, 0.0).sum()


def transformer_objective(smoothing: float = 0.1) -> Callable[[nn.Module, dict[str, Tensor]], tuple[Tensor, Tensor]]:
    """The objective for ``Training``: smoothed cross-entropy over the real target symbols, and their number.

    A batch holds ``source``, ``source_mask`` (B, S), ``target`` and ``target_mask`` (B, T).
    """

    def loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        logits = model(batch["source"], batch["source_mask"], batch["target"])
        real = batch["target_mask"]
        return smoothed_cross_entropy(*real_rows(logits, batch["target"], real), smoothing), real.sum()

    return loss


def inverse_sqrt(d_model: int, warmup: int) -> Callable[[int, int], float]:
    """The learning rate of update n = 1, 2, …: ``D^(-1/2) min(n^(-1/2), n warmup^(-3/2))``.

    It rises linearly for ``warmup`` updates and then falls with the square root. As a schedule of
    ``Training`` it multiplies the optimizer's own learning rate, 1 in the paper.

    Source: section 5.3, equation 3.
    """
    if warmup < 1:
        raise ValueError(f"warmup={warmup}: at least one update")
    return lambda step, steps: d_model**-0.5 * min((step + 1) ** -0.5, (step + 1) * warmup**-1.5)


def transformer_adam(model: nn.Module, lr: float = 1.0) -> torch.optim.Adam:
    """Adam as in section 5.3: beta 0.9 and 0.98, epsilon 1e-9. Multiplied by ``inverse_sqrt``, ``lr`` is 1."""
    return torch.optim.Adam(model.parameters(), lr=lr, betas=(0.9, 0.98), eps=1e-9, fused=True)
