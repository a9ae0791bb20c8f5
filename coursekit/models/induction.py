"""A Transformer of nothing but attention: the smallest model in which induction heads appear.

Blocks have no feed-forward network. With two of them a model can continue a text that repeats itself: one head notes
which token came before each place, a head above it looks for the place after an earlier copy of the current token.

Call chain: ``AttentionOnly.forward`` -> ``LearnedPositions`` in ``nn/positions.py``, then for each layer
``MultiHeadAttention`` -> ``attend`` in ``nn/attention.py``.

Legend: B batch, T tokens, V vocabulary size, D = d_model.

Source: Elhage et al. (2021), *A Mathematical Framework for Transformer Circuits*; Olsson et al. (2022), arXiv
2209.11895.
"""

from copy import deepcopy
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

from coursekit.nn.attention import MultiHeadAttention
from coursekit.nn.checks import check_heads, check_sizes, check_text
from coursekit.nn.grouped_query import GroupedQueryAttention
from coursekit.nn.masks import padding_mask
from coursekit.nn.positions import LearnedPositions

Model = TypeVar("Model", bound=nn.Module)


@dataclass(frozen=True)
class AttentionOnlyConfig:
    """Sizes of an ``AttentionOnly``.

    Attributes:
        vocab_size: V.
        d_model, n_heads, n_layers: D, the heads of a layer, the layers.
        max_length: largest number of tokens, the context length.
    """

    vocab_size: int
    d_model: int = 64
    n_heads: int = 4
    n_layers: int = 2
    max_length: int = 64

    def __post_init__(self):
        check_sizes(self, "vocab_size", "d_model", "n_heads", "n_layers", "max_length")
        check_heads(self)


class AttentionOnly(nn.Module):
    """``h_0 = W_e[u] + W_p``, ``h_l = h_{l-1} + attention(norm(h_{l-1}))``, ``p = softmax(norm(h_L) W_u)``.

    Every layer attends to no later position. Input and output have matrices of their own.
    """

    def __init__(self, config: AttentionOnlyConfig):
        super().__init__()
        self.config = c = config
        self.tokens = nn.Embedding(c.vocab_size, c.d_model)
        self.positions = LearnedPositions(c.max_length, c.d_model)
        self.attention = nn.ModuleList(MultiHeadAttention(c.d_model, c.n_heads) for _ in range(c.n_layers))
        self.norms = nn.ModuleList(nn.LayerNorm(c.d_model) for _ in range(c.n_layers))
        self.norm, self.out = nn.LayerNorm(c.d_model), nn.Linear(c.d_model, c.vocab_size, bias=False)

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """Logits (B, T, V) of the token after each of ``ids`` (B, T); ``mask`` (B, T) is True where one is real.

        Raises:
            ValueError: as ``GPT.forward``.
        """
        check_text(ids, self.config.vocab_size, self.config.max_length, mask)
        real = padding_mask(mask)
        x = self.positions(self.tokens(ids))  # (B, T, D)
        for norm, attention in zip(self.norms, self.attention):
            x = x + attention(norm(x), mask=real, causal=True)
        return self.out(self.norm(x))


def ablate_head(model: Model, layer: int, head: int) -> Model:
    """A copy of ``model`` in which one head of its self-attention adds nothing (a *zero ablation*).

    Layers are counted from 0 in the order of the model's attentions, heads within each of them.

    Raises:
        ValueError: the model has no such head.
    """
    model = deepcopy(model)
    layers = [part for part in model.modules() if isinstance(part, MultiHeadAttention | GroupedQueryAttention)]
    if not (0 <= layer < len(layers) and 0 <= head < layers[layer].n_heads):
        heads = layers[0].n_heads if layers else 0
        raise ValueError(
            f"layer={layer}, head={head}: must lie in 0..{len(layers) - 1} and 0..{heads - 1}, counted from 0"
        )
    out = layers[layer].out
    each = out.in_features // layers[layer].n_heads
    with torch.no_grad():
        out.weight[:, head * each : (head + 1) * each] = 0
    return model
