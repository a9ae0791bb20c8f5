"""The blocks that every Transformer of the course is built from.

Legend: B batch, T tokens, S tokens of the memory, D = d_model.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from coursekit.nn.attention import Attention, MultiHeadAttention
from coursekit.nn.cache import Cache
from coursekit.nn.checks import check_probability
from coursekit.nn.dropout import Dropout

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    # in place spares a second (B, T, d_ff); with a gradient to keep it took a tenth more time, not less
    "relu": lambda x: F.relu(x, inplace=not torch.is_grad_enabled()),
    "silu": F.silu,  # x * sigmoid(x), also called swish (Marian)
    "gelu": F.gelu,  # x * Phi(x), exact
    "gelu_tanh": partial(F.gelu, approximate="tanh"),  # GPT-2's approximation of it
}


class FeedForward(nn.Module):
    """Two linear layers with an activation between, at each position by itself: ``act(x W_1 + b_1) W_2 + b_2``.

    With ``gated`` there is a third, whose outputs the others are multiplied by: ``(act(x W_g) * x W_1) W_2``, and the
    biases as before. With silu that is SwiGLU.

    Source: Vaswani et al. (2017), arXiv 1706.03762, section 3.3, equation 2 (there with relu); ``gated``: Shazeer
    (2020), arXiv 2002.05202, equation 6.
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        activation: str = "relu",
        bias: bool = True,
        dropout: float = 0.0,
        gated: bool = False,
    ):
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation={activation!r}: must be one of {', '.join(map(repr, ACTIVATIONS))}")
        self.up = nn.Linear(d_model, d_ff, bias=bias)
        self.gate = nn.Linear(d_model, d_ff, bias=bias) if gated else None
        self.down = nn.Linear(d_ff, d_model, bias=bias)
        self.activation, self.dropout = activation, Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        act = ACTIVATIONS[self.activation]
        hidden = act(self.up(x)) if self.gate is None else act(self.gate(x)) * self.up(x)  # (B, T, D) -> (B, T, d_ff)
        return self.down(self.dropout(hidden) if self.training else hidden)  # (B, T, D); spares a call for each token


class DropPath(nn.Module):
    """In training, leaves out a whole branch of a sample with probability p, and scales the others by 1 / (1 - p).

    Source: Huang et al. (2016), arXiv 1603.09382 (stochastic depth), for each sample by itself.
    """

    def __init__(self, p: float = 0.0):
        super().__init__()
        check_probability("drop_path", p)
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if self.p == 0 or not self.training:
            return x
        kept = torch.rand(x.shape[0], *[1] * (x.dim() - 1), device=x.device) >= self.p  # (B, 1, 1)
        return x * kept / (1 - self.p)


class Residual(nn.Module):
    """A branch beside a skip connection, with its norm.

    ``x + branch(norm(x))`` with ``norm_first`` (pre-norm), else ``norm(x + branch(x))`` (post-norm, Vaswani et al.'s).
    """

    def __init__(self, norm: nn.Module, norm_first: bool, dropout: float, drop_path: float = 0.0):
        super().__init__()
        self.norm = norm
        self.norm_first = norm_first
        self.dropout, self.drop_path = Dropout(dropout), DropPath(drop_path)

    def forward(self, x: Tensor, branch: Callable[..., Tensor], **options: Any) -> Tensor:
        """(B, T, D) -> (B, T, D); ``options`` are what the branch is given besides its input."""
        if self.norm_first:
            return x + self.dropped(branch(self.norm(x), **options))
        return self.norm(x + self.dropped(branch(x, **options)))

    def dropped(self, y: Tensor) -> Tensor:
        """What training leaves of a branch; otherwise all, without a call of two modules for each token written."""
        return self.drop_path(self.dropout(y)) if self.training else y


class Block(nn.Module):
    """Self-attention, then the feed-forward network, each beside a residual connection.

    Args:
        attention: among the tokens, a ``MultiHeadAttention`` or a ``GroupedQueryAttention``; its ``d_model`` is D.
        feed_forward: at each position by itself, (B, T, D) -> the same; a ``FeedForward``, as a rule.
        norm: makes a norm of a size; layer norm, as a rule.
        norm_first: pre-norm (True) or post-norm (False).
        dropout: of both branches, in training.
        drop_path: probability to leave out a branch of a sample, in training.

    Source: Vaswani et al. (2017), arXiv 1706.03762, section 3.1.
    """

    def __init__(
        self,
        attention: Attention,
        feed_forward: nn.Module,
        *,
        norm: Callable[[int], nn.Module] = nn.LayerNorm,
        norm_first: bool = True,
        dropout: float = 0.0,
        drop_path: float = 0.0,
    ):
        super().__init__()
        D = attention.d_model
        self.attention = attention
        self.attention_residual = Residual(norm(D), norm_first, dropout, drop_path)
        self.feed_forward = feed_forward
        self.feed_forward_residual = Residual(norm(D), norm_first, dropout, drop_path)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
        cache: Cache | None = None,
        **options: Any,
    ) -> Tensor:
        """``x`` (B, T, D) -> (B, T, D); the other arguments as those of the attention's ``forward``."""
        # x + attention(norm(x)), or norm(x + attention(x)); then the same with the feed-forward network
        x = self.attention_residual(x, self.attention, mask=mask, causal=causal, cache=cache, **options)
        return self.feed_forward_residual(x, self.feed_forward)


def through_blocks(
    x: Tensor, blocks: Sequence[nn.Module], caches: Sequence[Cache] | None, checkpointing: bool, **options: Any
) -> Tensor:
    """One block after another: (B, T, D) -> (B, T, D).

    Args:
        caches: one for each block, or None.
        checkpointing: training keeps only what goes into each block, and computes the rest a second time when the
            gradient is needed: less memory, a third more work, the same numbers (Chen et al., 2016, arXiv 1604.06174).
        options: what each block is given besides.
    """
    checkpointing = checkpointing and torch.is_grad_enabled() and not caches
    for block, cache in zip(blocks, caches or [None] * len(blocks), strict=True):
        step = partial(checkpoint, block, use_reentrant=False) if checkpointing else block
        x = step(x, cache=cache, **options)
    return x


class LastBlock(Block):
    """A ``Block`` that need not compute what nobody reads: behind the last one a ViT pools its first token alone."""

    def forward(self, x: Tensor, *, first_only: bool = False) -> Tensor:
        """(B, T, D) -> the same, or with ``first_only`` the first token's part of it, (B, 1, D).

        The other tokens are but keys and values then: the same numbers for less. Where attention is recorded, all are
        computed.
        """
        if not first_only or self.attention.recorded is not None:
            return super().forward(x)
        residual = self.attention_residual
        first = residual(x[:, :1], self.attention, memory=residual.norm(x) if residual.norm_first else x)  # (B, 1, D)
        return self.feed_forward_residual(first, self.feed_forward)


class DecoderBlock(nn.Module):
    """Causal self-attention, attention to the encoder's output, the feed-forward network.

    Args: as for ``Block``; there are two attentions.

    Source: Vaswani et al. (2017), arXiv 1706.03762, section 3.1.
    """

    def __init__(
        self,
        self_attention: MultiHeadAttention,
        cross_attention: MultiHeadAttention,
        feed_forward: nn.Module,
        *,
        norm: Callable[[int], nn.Module] = nn.LayerNorm,
        norm_first: bool = True,
        dropout: float = 0.0,
    ):
        super().__init__()
        D = self_attention.d_model
        self.self_attention = self_attention
        self.self_residual = Residual(norm(D), norm_first, dropout)
        self.cross_attention = cross_attention
        self.cross_residual = Residual(norm(D), norm_first, dropout)
        self.feed_forward = feed_forward
        self.feed_forward_residual = Residual(norm(D), norm_first, dropout)

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        cache: tuple[Cache, Cache] | None = None,
    ) -> Tensor:
        """One more layer of the decoder.

        Args:
            x: (B, T, D).
            memory: the encoder's output, (B, S, D).
            mask: on the target, besides the causal one; broadcastable to (B, H, T, T).
            memory_mask: on the memory, broadcastable to (B, H, T, S).
            cache: of the self-attention and of the attention to the memory.

        Returns:
            (B, T, D).
        """
        own, other = cache or (None, None)
        # each x + branch(norm(x)), or norm(x + branch(x))
        x = self.self_residual(x, self.self_attention, mask=mask, causal=True, cache=own)
        x = self.cross_residual(x, self.cross_attention, memory=memory, mask=memory_mask, cache=other)
        return self.feed_forward_residual(x, self.feed_forward)
