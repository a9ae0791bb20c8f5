"""Masks. In the whole course True = may attend, and a mask broadcasts to (B, H, T, S).

Legend: B batch, H heads, T queries, S keys, W positions in a window.
"""

import torch
from torch import Tensor


def padding_mask(real: Tensor | None) -> Tensor | None:
    """No query attends to padding: ``real`` (B, S), True where a token is real -> (B, 1, 1, S); None, all real, stays.

    ``real`` is the attention mask of Hugging Face's models, and the opposite of PyTorch's ``key_padding_mask``.
    """
    return None if real is None else real[:, None, None, :]


def causal_mask(queries: int, keys: int | None = None, device: torch.device | None = None) -> Tensor:
    """No query attends to what comes after it: (T, S), True at ``s <= t + S - T``.

    The queries are the last T of the S positions: with a cache there are more keys than queries.

    Source: Vaswani et al. (2017), arXiv 1706.03762, section 3.2.3.
    """
    keys = queries if keys is None else keys
    if not 0 < queries <= keys:
        raise ValueError(f"queries={queries}, keys={keys}: the queries are the last of the keys, so at most as many")
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)


def window_mask(queries: int, keys: int, window: int, device: torch.device | None = None) -> Tensor:
    """No query attends to more than the last W positions, its own among them: (T, S).

    True where ``t + S - T - W < s <= t + S - T``: the queries are the last T of the S positions, as in ``causal_mask``.

    Raises:
        ValueError: ``window``, W, is below 1, or there are more queries than keys.

    Source: Jiang et al. (2023), *Mistral 7B*, arXiv 2310.06825, section 2.
    """
    if window < 1:
        raise ValueError(f"window={window}: must be at least 1")
    return causal_mask(queries, keys, device).triu(keys - queries - window + 1)
