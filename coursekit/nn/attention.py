"""Attention: the formula, then the same with PyTorch's fused kernel, several heads, and a way to look at the weights.

Legend: B batch, H heads (G of keys and values, where several heads of queries share them), T queries, S keys and
values, D size of the model, Dh = D / H size of a head's queries and keys, Dv that of its values, as a rule the same.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from coursekit.nn.cache import Cache
from coursekit.nn.checks import can_sync, check_attention, check_probability, check_sequence
from coursekit.nn.dropout import drop
from coursekit.nn.masks import causal_mask


def attention_formula(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, dropout: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Scaled dot-product attention, one step a line: ``softmax(Q K^T / sqrt(Dh)) V``, and the weights before dropout.

    Arguments, result and source as for ``attend``; but key and value have as many heads as the query, and each query
    may attend to at least one key.
    """
    Dh = query.shape[-1]
    scaled = query * Dh**-0.5  # (B, H, T, Dh); before the product, which could overflow in float16
    scores = scaled @ key.transpose(-2, -1)  # (B, H, T, Dh) @ (B, H, Dh, S) -> (B, H, T, S)
    weights = scores.softmax(dim=-1) if mask is None else masked_softmax(scores, mask)  # (B, H, T, S), rows sum to 1
    kept = drop(weights, dropout)  # (B, H, T, S)
    attended = kept @ value  # (B, H, T, S) @ (B, H, S, Dv) -> (B, H, T, Dv)
    return attended, weights


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Softmax over the last axis among the allowed entries; the others get weight exactly 0.

    ``a_s = exp(e_s) / sum over allowed s' of exp(e_s')``

    Args:
        scores: any real numbers, (..., S).
        mask: boolean, broadcastable to ``scores``; True = may attend. Each row needs at least one True:
            a row without any would give NaN.

    Returns:
        Weights of the shape of ``scores``, each row summing to 1.
    """
    return scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)


class Attention(nn.Module):
    """Base class of the attention modules, which pass their weights on inside ``record_attention``.

    Args:
        dropout: of the weights, in training.

    Raises:
        ValueError: ``dropout`` is no probability, or is 1, which would leave nothing.
    """

    def __init__(self, dropout: float = 0.0):
        super().__init__()
        check_probability("dropout", dropout)
        self.dropout = dropout
        self.recorded: list[Tensor] | None = None

    def record(self, weights: Tensor) -> Tensor:
        """Inside ``record_attention``, keep ``weights`` without their gradient; return them unchanged."""
        if self.recorded is not None:
            self.recorded.append(weights.detach())
        return weights

    def attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
        """The function ``attend`` with this module's dropout; the weights are computed only if they are recorded."""
        watched, dropout = self.recorded is not None, self.dropout if self.training else 0.0
        heads, weights = attend(query, key, value, mask, causal, watched, dropout)
        if watched:
            self.record(weights)
        return heads


@contextmanager
def record_attention(model: nn.Module) -> Iterator[dict[str, list[Tensor]]]:
    """Collect the attention weights of every attention module inside ``model``.

    ::

        with record_attention(model) as maps:
            model(source, mask, target)
        weights = torch.cat(maps["attention"], dim=-2)  # (B, T, S)

    Yields:
        For each module's name, the weights of its calls in order, each (..., T, S). They have no gradient;
        in training they are those before dropout. Where gradient checkpointing computes a call a second time, its
        weights come a second time too, and the backward pass belongs inside.

    Raises:
        ValueError: the model has no attention module.
    """
    modules = {name: module for name, module in model.named_modules() if isinstance(module, Attention)}
    if not modules:
        raise ValueError(f"{type(model).__name__} has no attention module, so there are no weights to record")
    before = {name: module.recorded for name, module in modules.items()}
    maps: dict[str, list[Tensor]] = {name: [] for name in modules}
    for name, module in modules.items():
        module.recorded = maps[name]
    try:
        yield maps
    finally:
        for name, module in modules.items():
            module.recorded = before[name]


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    causal: bool = False,
    need_weights: bool = False,
    dropout: float = 0.0,
) -> tuple[Tensor, Tensor | None]:
    """Scaled dot-product attention: ``softmax(Q K^T / sqrt(Dh)) V``.

    There are two paths. As a rule PyTorch's fused kernel computes it; ``attention_formula``, which you should read
    first, is used where the weights are asked for, which the kernel never has as a whole, and where ``fused_is_slow``
    says that it is faster. Both give the same numbers up to rounding, but with dropout they draw differently. A query
    that may attend to nothing gets zeros.

    Args:
        query: (B, H, T, Dh).
        key: (B, H, S, Dh). There may be fewer heads of keys, a divisor of H; each then serves several neighbouring
            heads of queries.
        value: (B, H, S, Dv), of as many heads as the keys.
        mask: boolean, broadcastable to (B, H, T, S); True = may attend.
        causal: attend to no later position; the queries are the last T of the S positions.
        need_weights: return the weights too.
        dropout: probability with which a weight is set to 0 (and the others are scaled up).

    Returns:
        The weighted values (B, H, T, Dv), and the weights before dropout (B, H, T, S) or None.

    Raises:
        ValueError: the mask is not boolean, or the shapes do not fit.

    Source: Vaswani et al. (2017), arXiv 1706.03762, section 3.2.1, equation 1; fewer heads of keys: Ainslie et al.
    (2023), arXiv 2305.13245, section 2.2.
    """
    check_attention(query, key, value, mask)
    if mask is not None and mask.dim() < 2:
        mask = mask.expand(1, key.shape[-2])  # which the fused kernel does not do by itself
    T, S = query.shape[-2], key.shape[-2]
    if T == 1:
        causal = False  # nothing is later than the last position
    grouped = {"enable_gqa": True} if key.shape[-3] != query.shape[-3] else {}
    by_formula = need_weights or fused_is_slow(query, key, dropout)
    if mask is None and not by_formula and (not causal or T == S):
        return F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=causal, **grouped), None
    if causal:
        not_later = causal_mask(T, S, query.device)
        mask = not_later if mask is None else mask & not_later
    has_any_key = None
    if mask is not None:
        has_any_key = mask.any(dim=-1, keepdim=True)  # (…, T, 1); other rows are let through here and set to 0 below
        if can_sync(mask) and has_any_key.all():
            has_any_key = None  # as in nearly every call: that spares going through all results once more
        else:
            mask = mask | ~has_any_key
    if by_formula:
        if grouped:  # (B, G, S, Dh) -> (B, H, S, Dh)
            key, value = (x.repeat_interleave(query.shape[-3] // x.shape[-3], dim=-3) for x in (key, value))
        attended, weights = attention_formula(query, key, value, mask, dropout)  # (B, H, T, Dv), (B, H, T, S)
    else:
        attended, weights = F.scaled_dot_product_attention(query, key, value, mask, dropout_p=dropout, **grouped), None
    if has_any_key is not None:
        attended = attended * has_any_key
        weights = weights * has_any_key if need_weights else None
    return attended, weights if need_weights else None


def fused_is_slow(query: Tensor, key: Tensor, dropout: float = 0.0) -> bool:
    """Whether the formula takes less time than the fused kernel.

    That is so in training on a CPU: with dropout, which the kernel there lacks, so that PyTorch takes the formula too,
    with its slower dropout; and in bfloat16 up to 256 positions, where the kernel is up to 7 times slower. Beyond them
    the kernel is faster, and needs less memory.
    """
    if query.device.type != "cpu":
        return False
    if dropout > 0:
        return True
    learns = torch.is_grad_enabled() and query.requires_grad
    if not (learns and query.dtype == torch.bfloat16):
        return False
    return query.shape[-2] * key.shape[-2] <= 256**2  # last, so that an export for all lengths has no such bound


class MultiHeadAttention(Attention):
    """Several attentions side by side, each with projections of its own.

    ``head_h = attend(x W_h^Q, y W_h^K, y W_h^V)``, and the output is ``[head_1; ...; head_H] W^O``. The
    projections of all heads are one matrix ``qkv``: the queries' rows, the keys', the values', (3 D, D) as a rule.

    Args:
        d_model: D.
        n_heads: H.
        bias: add biases to the projections.
        dropout: of the weights, in training.
        d_key: size of a query and of a key in each head; None for D / H.
        d_value: size of a value in each head; None for D / H.

    Raises:
        ValueError: the heads do not divide D, or a size is below 1.

    Source: Vaswani et al. (2017), arXiv 1706.03762, section 3.2.2.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        bias: bool = True,
        dropout: float = 0.0,
        d_key: int | None = None,
        d_value: int | None = None,
    ):
        super().__init__(dropout)
        if n_heads < 1 or d_model < 1 or (d_model % n_heads and None in (d_key, d_value)):
            raise ValueError(f"n_heads={n_heads}: must divide d_model={d_model}")
        for name, size in (("d_key", d_key), ("d_value", d_value)):
            if size is not None and size < 1:
                raise ValueError(f"{name}={size}: must be at least 1, or None for d_model / n_heads")
        self.d_model, self.n_heads = d_model, n_heads
        Dh, Dv = (d_model // n_heads if size is None else size for size in (d_key, d_value))
        self.qkv_sizes = [n_heads * Dh, n_heads * Dh, n_heads * Dv]  # of queries, keys, values in all heads together
        self.qkv = nn.Linear(d_model, sum(self.qkv_sizes), bias=bias)
        self.out = nn.Linear(n_heads * Dv, d_model, bias=bias)

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        mask: Tensor | None = None,
        causal: bool = False,
        cache: Cache | None = None,
    ) -> Tensor:
        """Queries from ``x`` (B, T, D); keys and values from ``memory`` (B, S, D), or from ``x`` itself.

        Args:
            mask: boolean, broadcastable to (B, H, T, S); True = may attend. With a cache S counts the
                positions in it too.
            causal: attend to no later position (self-attention alone).
            cache: keys and values so far: ``x`` continues them. With a ``memory`` they are computed at the
                first call and kept.

        Returns:
            (B, T, D).

        Raises:
            ValueError: ``x`` or ``memory`` has another shape; a ``memory`` with ``causal``; or see ``attend``.
        """
        check_sequence("x", x, "B, T", self.d_model)
        if memory is None:
            query, key, value = self.split(self.qkv(x))  # (B, H, T, Dh), (B, H, T, Dh), (B, H, T, Dv)
            if cache is not None:
                key, value = cache.append(key, value)  # (B, H, S, Dh), (B, H, S, Dv)
        else:
            check_sequence("memory", memory, "B, S", self.d_model)
            if causal:
                raise ValueError("causal is for self-attention: leave it out with a memory")
            query, key, value = self.project_with_memory(x, memory, cache)  # (B, H, T, Dh), (B, H, S, Dh), …
        heads = self.attend(query, key, value, mask, causal)  # (B, H, T, Dv)
        return self.out(join_heads(heads))

    def split(self, x: Tensor) -> list[Tensor]:
        """Split what ``qkv`` computes into the heads' queries, keys and values: (B, H, T, Dh), … each."""
        return [split_heads(part, self.n_heads) for part in x.split(self.qkv_sizes, dim=-1)]

    def project_with_memory(self, x: Tensor, memory: Tensor, cache: Cache | None) -> list[Tensor]:
        """Queries from ``x``; keys and values from ``memory``, or from the ``cache`` once they are in it."""
        n, W, b = self.qkv_sizes[0], self.qkv.weight, self.qkv.bias  # the first n rows are the queries'
        query = split_heads(F.linear(x, W[:n], None if b is None else b[:n]), self.n_heads)
        if cache is not None and cache.length > 0:
            return [query, cache.key[:, :, : cache.length], cache.value[:, :, : cache.length]]
        both = F.linear(memory, W[n:], None if b is None else b[n:])  # (B, S, H (Dh + Dv))
        key, value = (split_heads(part, self.n_heads) for part in both.split(self.qkv_sizes[1:], dim=-1))
        if cache is not None:
            cache.append(key, value)
        return [query, key, value]


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """(B, T, H Dh) -> (B, H, T, Dh)."""
    return x.unflatten(-1, (n_heads, -1)).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """(B, H, T, Dh) -> (B, T, H Dh)."""
    return x.transpose(1, 2).flatten(2)
