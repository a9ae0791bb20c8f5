"""Self-attention of today's decoders: fewer heads of keys than of queries, turned by their positions.

Legend: B batch, T tokens, S tokens together with those in the cache, H heads of queries, G of keys and values,
D size of the model, Dh size of a head.
"""

from collections.abc import Callable

from torch import Tensor, nn

from coursekit.nn.attention import Attention, join_heads, split_heads
from coursekit.nn.cache import Cache
from coursekit.nn.checks import check_sequence
from coursekit.nn.masks import window_mask


class GroupedQueryAttention(Attention):
    """``MultiHeadAttention`` of a sequence to itself, in which H / G neighbouring heads of queries share one of keys.

    Args:
        d_model: D.
        n_heads: H.
        n_kv_heads: G, heads of keys and values, a divisor of H; None for H.
        d_head: Dh; None for D / H.
        bias: add biases to the projections.
        qkv_bias: of the queries, keys and values; None for ``bias``.
        dropout: of the weights, in training.
        window: positions that are reached, the query's own included; None for all.
        qk_norm: makes the norms of the queries and of the keys of a head, of their size; None for none.

    Raises:
        ValueError: the heads do not divide D, or G does not divide H; or ``window`` is below 1.

    Source: Ainslie et al. (2023), arXiv 2305.13245, section 2.2; ``window``: Jiang et al. (2023), arXiv 2310.06825,
    section 2; ``qk_norm``: Yang et al. (2025), *Qwen3 Technical Report*, arXiv 2505.09388.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        n_kv_heads: int | None = None,
        *,
        d_head: int | None = None,
        bias: bool = False,
        qkv_bias: bool | None = None,
        dropout: float = 0.0,
        window: int | None = None,
        qk_norm: Callable[[int], nn.Module] | None = None,
    ):
        super().__init__(dropout)
        n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
        if d_head is not None and d_head < 1:
            raise ValueError(f"d_head={d_head}: must be at least 1, or None for d_model / n_heads")
        if n_heads < 1 or d_model < 1 or (d_model % n_heads and d_head is None):
            raise ValueError(f"n_heads={n_heads}: must divide d_model={d_model}")
        if n_kv_heads < 1 or n_heads % n_kv_heads:
            raise ValueError(f"n_kv_heads={n_kv_heads}: must divide n_heads={n_heads}")
        if window is not None and window < 1:
            raise ValueError(f"window={window}: must be at least 1, or None for all positions")
        Dh = d_model // n_heads if d_head is None else d_head
        self.d_model, self.window = d_model, window
        self.n_heads, self.n_kv_heads = n_heads, n_kv_heads
        self.qkv_sizes = [n_heads * Dh, n_kv_heads * Dh, n_kv_heads * Dh]  # of queries, keys, values
        self.qkv = nn.Linear(d_model, sum(self.qkv_sizes), bias=bias if qkv_bias is None else qkv_bias)
        self.out = nn.Linear(n_heads * Dh, d_model, bias=bias)
        self.query_norm, self.key_norm = (None if qk_norm is None else qk_norm(Dh) for _ in range(2))

    def forward(
        self,
        x: Tensor,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        cache: Cache | None = None,
        rotary: Callable[[Tensor], Tensor] | None = None,
    ) -> Tensor:
        """(B, T, D) -> (B, T, D).

        Args:
            mask: boolean, broadcastable to (B, H, T, S); True = may attend. With a cache S counts the positions in it
                too.
            causal: attend to no later position.
            cache: keys and values so far: ``x`` continues them.
            rotary: turns queries and keys by their positions, (B, H, T, Dh) -> the same.

        Raises:
            ValueError: ``x`` has another shape; a window without ``causal``; or see ``attend``.
        """
        check_sequence("x", x, "B, T", self.d_model)
        query, key, value = self.qkv(x).split(self.qkv_sizes, dim=-1)  # (B, T, H Dh), (B, T, G Dh), (B, T, G Dh)
        query = split_heads(query, self.n_heads)  # (B, H, T, Dh)
        key, value = (split_heads(part, self.n_kv_heads) for part in (key, value))  # (B, G, T, Dh)
        if self.query_norm is not None:
            query, key = self.query_norm(query), self.key_norm(key)
        if rotary is not None:
            query, key = rotary(query), rotary(key)
        if cache is not None:
            key, value = cache.append(key, value)  # (B, G, S, Dh)
        if self.window is not None:
            if not causal:
                raise ValueError(f"window={self.window} is for what came before: it needs causal=True")
            T, S = query.shape[-2], key.shape[-2]
            if self.window < S:
                within = window_mask(T, S, self.window, x.device)
                mask, causal = within if mask is None else mask & within, False
        heads = self.attend(query, key, value, mask, causal)  # (B, H, T, Dh)
        return self.out(join_heads(heads))
