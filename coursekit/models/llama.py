"""Llama, Llama 2 and 3, Mistral 7B and their like: what became of GPT-2's decoder.

Read it top to bottom: the configuration with the published sizes, the model. Its objective is GPT's, ``gpt_loss`` in
``models/gpt.py``, and it is used as a GPT is. Five things have changed: positions turn queries and keys instead of
being added (``nn/rotary.py``), the norms subtract no mean (``nn/norms.py``), the feed-forward networks have a gate
(``nn/blocks.py``), several heads of queries share one of keys and values (``nn/grouped_query.py``), nothing has a bias
but, with ``qkv_bias``, queries, keys and values.

Call chain: ``Llama.forward`` -> ``Llama.hidden`` -> ``positions_of`` in ``nn/positions.py``, ``rotary_angles`` in
``nn/rotary.py``, then ``through_blocks`` and, for each layer, ``Block`` in ``nn/blocks.py`` ->
``GroupedQueryAttention`` in ``nn/grouped_query.py`` -> ``attend`` in ``nn/attention.py``; ``RMSNorm`` in
``nn/norms.py``.

Legend: B batch, T tokens, S tokens together with those in the caches, V vocabulary size, D = d_model, H = n_heads,
G = n_kv_heads, Dh size of a head, L = n_layers.

Source: Touvron et al. (2023), *LLaMA: Open and Efficient Foundation Language Models*, arXiv 2302.13971; *Llama 2: Open
Foundation and Fine-Tuned Chat Models*, arXiv 2307.09288; Grattafiori et al. (2024), *The Llama 3 Herd of Models*, arXiv
2407.21783; Jiang et al. (2023), *Mistral 7B*, arXiv 2310.06825. What the papers leave open is as in their programs.
"""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from coursekit.models.pretrained import Pretrained
from coursekit.nn.blocks import Block, FeedForward, through_blocks
from coursekit.nn.cache import Cache, WindowCache
from coursekit.nn.checks import check_caches, check_dropout, check_sizes, check_text
from coursekit.nn.dropout import Dropout
from coursekit.nn.grouped_query import GroupedQueryAttention
from coursekit.nn.masks import padding_mask
from coursekit.nn.norms import RMSNorm
from coursekit.nn.positions import positions_of
from coursekit.nn.rotary import RotaryScaling, rotary_angles, rotary_frequencies, rotate
from coursekit.nn.tied import tied_logits

STD = 0.02  # of weights when they are drawn


@dataclass(frozen=True)
class LlamaConfig:
    """Sizes and choices of a ``Llama``; the defaults are Llama 2's smallest.

    Attributes:
        vocab_size: V.
        d_model, n_heads, d_ff, n_layers: D, H, the width of the feed-forward networks, L.
        n_kv_heads: G, heads of keys and values, a divisor of H; None for H.
        d_head: size of a head; None for D / H.
        max_length: largest number of tokens, the context length.
        window: positions that a layer reaches, a token's own among them; None for all.
        rotary_base: the larger it is, the slower the slowest pair of entries turns.
        rotary_scaling: for texts longer than those of the training; None for none.
        eps: of every norm.
        tied: whether the matrix of the embeddings is that of the output too.
        qk_norm: normalise queries and keys, as Qwen 3.
        qkv_bias: a bias of queries, keys and values, as Qwen 2.
        dropout: in training, as in ``GPT``; none of the published models had any.
    """

    vocab_size: int = 32_000
    d_model: int = 4096
    n_heads: int = 32
    n_kv_heads: int | None = None
    d_ff: int = 11_008
    n_layers: int = 32
    d_head: int | None = None
    max_length: int = 4096
    window: int | None = None
    rotary_base: float = 10_000.0
    rotary_scaling: RotaryScaling | None = None
    eps: float = 1e-5
    tied: bool = False
    qk_norm: bool = False
    qkv_bias: bool = False
    dropout: float = 0.0

    def __post_init__(self):
        if self.n_kv_heads is None:
            object.__setattr__(self, "n_kv_heads", self.n_heads)
        optional = [field for field in ("d_head", "window") if getattr(self, field) is not None]
        sizes = "vocab_size", "d_model", "n_heads", "n_kv_heads", "d_ff", "n_layers", "max_length"
        check_sizes(self, *sizes, *optional)
        check_dropout(self)
        if self.n_heads % self.n_kv_heads:
            raise ValueError(f"n_kv_heads={self.n_kv_heads}: must divide n_heads={self.n_heads}")
        if self.d_head is None and self.d_model % self.n_heads:
            raise ValueError(f"n_heads={self.n_heads}: must divide d_model={self.d_model}, or give d_head")
        if self.head_size % 2:
            raise ValueError(f"heads of size {self.head_size}: must be even, since entries turn in pairs")
        if not self.eps >= 0:
            raise ValueError(f"eps={self.eps}: must be at least 0")
        if not isinstance(self.rotary_scaling, RotaryScaling | None):
            raise ValueError(f"rotary_scaling={self.rotary_scaling!r}: must be a RotaryScaling, or None")
        if not self.rotary_base > 1:
            raise ValueError(f"rotary_base={self.rotary_base}: must be above 1")

    @property
    def head_size(self) -> int:
        """Size of a head's queries, keys and values."""
        return self.d_model // self.n_heads if self.d_head is None else self.d_head

    @classmethod
    def llama2_7b(cls, **changes) -> "LlamaConfig":
        """Llama 2 7B (2023, section 2.2 and table 1), with changes: 6,738,415,616 parameters."""
        return cls(**changes)

    @classmethod
    def llama3_8b(cls, **changes) -> "LlamaConfig":
        """Llama 3 8B (2024, table 3), with changes: 8,030,261,248 parameters."""
        sizes = {"vocab_size": 128_256, "n_kv_heads": 8, "d_ff": 14_336, "max_length": 8192, "rotary_base": 500_000.0}
        return cls(**sizes | changes)

    @classmethod
    def llama32_1b(cls, **changes) -> "LlamaConfig":
        """Llama 3.2 1B, as its published configuration says, with changes: 1,235,814,400 parameters."""
        sizes = {"d_model": 2048, "d_ff": 8192, "n_layers": 16, "max_length": 131_072, "tied": True}
        return cls.llama3_8b(**sizes | {"rotary_scaling": RotaryScaling(factor=32.0)} | changes)

    @classmethod
    def mistral_7b(cls, **changes) -> "LlamaConfig":
        """Mistral 7B (2023, table 1), with changes: 7,241,732,096 parameters.

        The table says 8,192 positions; 32,768 is the limit in its published configuration.
        """
        return cls(**{"n_kv_heads": 8, "d_ff": 14_336, "max_length": 32_768, "window": 4096} | changes)

    @classmethod
    def smollm2_135m(cls, **changes) -> "LlamaConfig":
        """The smallest SmolLM2, as its published configuration says, with changes: 134,515,008 parameters.

        Source: Ben Allal et al. (2025), *SmolLM2: When Smol Goes Big*, arXiv 2502.02737.
        """
        sizes = {"vocab_size": 49_152, "d_model": 576, "n_heads": 9, "n_kv_heads": 3, "d_ff": 1536, "n_layers": 30}
        return cls(**sizes | {"max_length": 8192, "rotary_base": 100_000.0, "tied": True} | changes)


class Llama(Pretrained):
    """``p(u_t | u_1 … u_{t-1})`` for every place t of a text at once.

    ``h_0 = U W_e``, ``h_l = block(h_{l-1})``, ``p = softmax(norm(h_L) W_o)``: as in ``GPT``, but nothing is added for
    the position, which enters each layer by the angles of its queries and keys alone.

    Attributes:
        gradient_checkpointing: as of ``GPT``.
    """

    def __init__(self, config: LlamaConfig):
        super().__init__()
        self.config = c = config
        self.gradient_checkpointing = False
        self.tokens = nn.Embedding(c.vocab_size, c.d_model)
        self.dropout = Dropout(c.dropout)
        norm = partial(RMSNorm, eps=c.eps)
        self.blocks = nn.ModuleList(
            Block(
                GroupedQueryAttention(
                    c.d_model,
                    c.n_heads,
                    c.n_kv_heads,
                    d_head=c.head_size,
                    qkv_bias=c.qkv_bias,
                    dropout=c.dropout,
                    window=c.window,
                    qk_norm=norm if c.qk_norm else None,
                ),
                FeedForward(c.d_model, c.d_ff, "silu", bias=False, gated=True),
                norm=norm,
                dropout=c.dropout,
            )
            for _ in range(c.n_layers)
        )
        self.norm = norm(c.d_model)
        self.output = None if c.tied else nn.Linear(c.d_model, c.vocab_size, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=STD)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def hidden(self, ids: Tensor, mask: Tensor | None = None, caches: list[Cache] | None = None) -> Tensor:
        """The last hidden states, (B, T, D), which ``logits`` takes; arguments and errors as for ``forward``."""
        check_caches(caches, len(self.blocks))
        start = caches[0].length if caches else 0
        check_text(ids, self.config.vocab_size, self.config.max_length, mask, start)
        if mask is None:
            position_ids = torch.arange(start, start + ids.shape[1], device=ids.device)  # (T,)
        else:
            position_ids = positions_of(mask)[:, None, start:]  # (B, 1, T): padding is no position
            reached = start if self.config.window is None else min(start, self.config.window - 1)
            mask = padding_mask(mask[:, start - reached :])
        c = self.config  # the frequencies are no buffer, which model.bfloat16() would round
        frequencies = rotary_frequencies(c.head_size, c.rotary_base, c.rotary_scaling, ids.device)
        cos, sin = rotary_angles(position_ids, frequencies)  # (T, Dh / 2) each, or (B, 1, T, Dh / 2)
        x = self.dropout(self.tokens(ids))  # (B, T, D)
        options = {"mask": mask, "causal": True, "rotary": partial(rotate, cos=cos, sin=sin)}
        x = through_blocks(x, self.blocks, caches, self.gradient_checkpointing, **options)
        return self.norm(x)

    def forward(self, ids: Tensor, mask: Tensor | None = None, caches: list[Cache] | None = None) -> Tensor:
        """Logits (B, T, V) of the token that follows each of ``ids`` (B, T).

        Args:
            mask: (B, S), True where a token is real; None where all are. Padding may stand on either side and changes
                nothing for the real tokens.
            caches: one for each block, from ``new_caches``. ``ids`` then continue the tokens in the caches, and
                ``mask`` covers those too: S = T + their number. For decoding, without gradients. Where there is a
                ``window``, texts that are continued are to be padded on the left: it counts places.

        Raises:
            ValueError: a text has no real token, or more places than ``max_length``; or ``mask`` has another shape; or
                ``ids`` are not (B, T), no whole numbers, or, without earlier tokens, none of the vocabulary's; or there
                are more or fewer caches than blocks.
        """
        return self.logits(self.hidden(ids, mask, caches))

    def logits(self, hidden: Tensor) -> Tensor:
        """Apply the output layer to hidden states: (..., D) -> (..., V)."""
        return tied_logits(hidden, self.tokens.weight) if self.output is None else self.output(hidden)

    def new_caches(self, max_length: int) -> list[Cache]:
        """Empty caches for decoding step by step, one for each block; with a window they hold no more than that."""
        window = self.config.window
        return [Cache(max_length) if window is None else WindowCache(max_length, window) for _ in self.blocks]
