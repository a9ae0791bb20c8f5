"""Checks of configurations and inputs. Each error is one sentence that says what was wrong and what would be right."""

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor


def can_sync(x: Tensor) -> bool:
    """Whether we may ask a tensor for a number, such as how many entries of a mask are True.

    Not on a GPU, where the answer would have to wait for everything computed before it; nor while a graph is compiled
    or exported, when there are no numbers yet.
    """
    return x.device.type not in ("cuda", "meta") and not torch.compiler.is_compiling()


def check_all(right: Tensor, sentence: str) -> None:
    """Refuse a tensor with this sentence if any entry of ``right`` is False.

    On a CPU that is a ``ValueError``. On a GPU nobody waits for the answer: the run ends with the sentence when the
    device gets there. Compiled and exported graphs contain the check too.
    """
    if not can_sync(right):
        torch._assert_async(right.all(), sentence)
    elif not right.all():
        raise ValueError(sentence)


def check_ids(ids: Tensor, vocab_size: int | None = None, name: str = "ids") -> None:
    """Refuse what is no (B, T) of token numbers; with ``vocab_size`` also numbers that are not in the vocabulary."""
    if ids.dim() != 2 or ids.dtype not in (torch.int64, torch.int32):
        found = f"{name} of shape {tuple(ids.shape)}, {ids.dtype}"
        raise ValueError(f"{found}: must be (B, T), whole numbers (torch.int64)")
    if vocab_size is not None:
        sentence = f"{name} must lie in 0..{vocab_size - 1}: the vocabulary has {vocab_size} tokens"
        check_all((ids >= 0) & (ids < vocab_size), sentence)


def check_text(
    ids: Tensor,
    vocab_size: int,
    max_length: int | None = None,
    mask: Tensor | None = None,
    start: int = 0,
    name: str = "ids",
) -> None:
    """Refuse what a model cannot read as text.

    Args:
        ids: (B, T) tokens, which follow ``start`` others that the model has read before.
        max_length: largest number of tokens; None for no limit.
        mask: (B, start + T), True where a token is real; None where all are.
        name: what the caller calls ``ids``.
    """
    check_ids(ids, vocab_size if start == 0 else None, name)  # what the model itself has written is in the vocabulary
    if ids.shape[1] == 0:
        raise ValueError(f"{name} of shape {tuple(ids.shape)}: must be (B, T), with at least one token")
    length = start + ids.shape[1]
    if max_length is not None and length > max_length:
        raise ValueError(f"{length} positions: the model was built for max_length={max_length}")
    if mask is None:
        return
    held = f" with the {start} in the caches" if start else ""
    check_mask("mask", mask, (ids.shape[0], length), f"as the tokens{held}")
    if start == 0:
        text = "text" if name == "ids" else name
        check_all(mask.any(dim=1), f"a {text} has no real token: every row of its mask needs at least one True")


def check_caches(caches: Sequence | None, n_blocks: int) -> None:
    """Refuse caches that are not one for each block."""
    if caches is not None and len(caches) != n_blocks:
        raise ValueError(f"{len(caches)} caches for {n_blocks} blocks: must be one for each, as new_caches makes them")


def check_sizes(config: Any, *fields: str, least: int = 1) -> None:
    """Refuse fields that are no whole numbers, or below ``least``."""
    for field in fields:
        value = getattr(config, field)
        if not isinstance(value, Integral) or isinstance(value, bool):
            raise ValueError(f"{field}={value!r}: must be a whole number")
        if value < least:
            raise ValueError(f"{field}={value}: must be at least {least}")


def check_heads(config: Any) -> None:
    """Refuse a number of heads that does not divide ``d_model``."""
    if config.d_model % config.n_heads:
        raise ValueError(f"n_heads={config.n_heads}: must divide d_model={config.d_model}")


def check_dropout(config: Any) -> None:
    """Refuse a dropout that is no probability below 1."""
    check_probability("dropout", config.dropout)


def check_probability(name: str, p: float) -> None:
    """Refuse to leave out with a probability that is none, or with 1, which would leave nothing."""
    if not isinstance(p, Real) or not 0 <= p < 1:
        raise ValueError(f"{name}={p}: must be a probability below 1")


def check_token(config: Any, field: str) -> None:
    """Refuse a token that is not in the vocabulary."""
    if not 0 <= getattr(config, field) < config.vocab_size:
        last = config.vocab_size - 1
        raise ValueError(f"{field}={getattr(config, field)}: must lie in 0..{last} (vocab_size - 1)")


def check_shape(name: str, x: Tensor, wanted: Sequence[int], why: str = "") -> None:
    """Refuse another shape than the wanted one, which might be broadcast to numbers that nobody meant."""
    if x.shape != tuple(wanted):
        raise ValueError(f"{name} of shape {tuple(x.shape)}: must be {tuple(wanted)}{why and ', '}{why}")


def check_mask(name: str, mask: Tensor, wanted: Sequence[int], why: str = "") -> None:
    """Refuse a mask of another shape, or one that is not boolean."""
    if not isinstance(mask, Tensor):
        raise ValueError(f"{name}={mask!r}: must be a boolean tensor")
    check_shape(name, mask, wanted, why)
    if mask.dtype != torch.bool:
        raise ValueError(f"{name} of {mask.dtype}: must be boolean")


def check_history(history: Tensor, length: int) -> None:
    """Refuse what is not (B, L, C) with L = ``length``."""
    if history.dim() != 3 or history.shape[1] != length:
        raise ValueError(f"histories of shape {tuple(history.shape)}: must be (B, {length}, C)")


def check_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> None:
    """Refuse what ``attend`` cannot take; only shapes are read, so no GPU has to be waited for."""
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x.dim() != 4:
            raise ValueError(f"{name} of shape {tuple(x.shape)}: must have four axes, batch, heads, positions and size")
    if not query.shape[0] == key.shape[0] == value.shape[0]:
        found = f"queries of {query.shape[0]} texts, keys of {key.shape[0]}, values of {value.shape[0]}"
        raise ValueError(f"{found}: must be as many")
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(f"queries of size {query.shape[-1]}, keys of size {key.shape[-1]}: must have one size")
    if key.shape[-2] != value.shape[-2]:
        raise ValueError(f"{key.shape[-2]} keys, {value.shape[-2]} values: each key needs its value")
    if key.shape[-3] != value.shape[-3] or query.shape[-3] % key.shape[-3]:
        found = f"{query.shape[-3]} heads of queries, {key.shape[-3]} of keys, {value.shape[-3]} of values"
        raise ValueError(f"{found}: as many of values as of keys, and a divisor of the queries'")
    if mask is None:
        return
    if mask.dtype != torch.bool:
        raise ValueError(f"mask of {mask.dtype}: must be boolean, True = may attend")
    whole = (*query.shape[:-1], key.shape[-2])  # (B, H, T, S)
    fits = [m == 1 or m == n for m, n in zip(reversed(mask.shape), reversed(whole))]
    if mask.dim() > len(whole) or not all(fits):
        raise ValueError(
            f"mask of shape {tuple(mask.shape)}: must be broadcastable to the scores, (B, H, T, S) = {whole}; "
            "padding_mask makes such a mask of (B, S)"
        )


def check_sequence(name: str, x: Tensor, axes: str, d_model: int) -> None:
    """Refuse what is not a batch of sequences of vectors of the model's size."""
    if x.dim() != 3 or x.shape[-1] != d_model:
        raise ValueError(f"{name} of shape {tuple(x.shape)}: must be ({axes}, d_model={d_model})")
