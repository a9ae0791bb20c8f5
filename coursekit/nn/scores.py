"""How well a decoder state matches an encoder state: four score functions, and attention with them.

Every score is used in two halves. ``project_keys`` does what depends on the encoder states alone, once
per source; ``forward`` then scores any number of queries against the result.

Legend: B batch, T target steps (queries) of size D, S source positions (keys) of size K.
"""

from typing import NamedTuple

from torch import Tensor, nn

from coursekit.nn.attention import Attention, masked_softmax


class DotScore(nn.Module):
    """``score(q, k) = q . k``. No parameters; needs ``query_size == key_size``.

    Source: Luong et al. (2015), arXiv 1508.04025, section 3.1, "dot" (listed after equation 7).
    """

    def __init__(self, query_size: int, key_size: int):
        super().__init__()
        if query_size != key_size:
            raise ValueError(
                f"the dot score multiplies query and key entry by entry, but query_size={query_size} and "
                f"key_size={key_size}: make them equal, or use score='general'"
            )

    def project_keys(self, keys: Tensor) -> Tensor:
        return keys

    def forward(self, query: Tensor, projected: Tensor) -> Tensor:
        return query @ projected.transpose(-2, -1)  # (B, T, D) @ (B, K, S) -> (B, T, S)


class GeneralScore(nn.Module):
    """``score(q, k) = q . (W k)``: a learned matrix between the two.

    Source: Luong et al. (2015), arXiv 1508.04025, section 3.1, "general" (listed after equation 7).
    """

    def __init__(self, query_size: int, key_size: int):
        super().__init__()
        self.W = nn.Linear(key_size, query_size, bias=False)

    def project_keys(self, keys: Tensor) -> Tensor:
        return self.W(keys)  # (B, S, K) -> (B, S, D)

    def forward(self, query: Tensor, projected: Tensor) -> Tensor:
        return query @ projected.transpose(-2, -1)  # (B, T, D) @ (B, D, S) -> (B, T, S)


class ConcatScore(nn.Module):
    """``score(q, k) = v . tanh(W [q; k])``: a small network looks at both at once.

    ``W`` is one matrix over the concatenation. Its left columns meet ``q``, its right columns ``k``, so the
    key's share is computed once and the concatenation is never built.

    Source: Luong et al. (2015), arXiv 1508.04025, section 3.1, "concat" (listed after equation 7).
    """

    def __init__(self, query_size: int, key_size: int):
        super().__init__()
        self.query_size = query_size
        self.W = nn.Linear(query_size + key_size, query_size, bias=False)
        self.v = nn.Linear(query_size, 1, bias=False)

    def project_keys(self, keys: Tensor) -> Tensor:
        return keys @ self.W.weight[:, self.query_size :].T  # (B, S, K) -> (B, S, D)

    def forward(self, query: Tensor, projected: Tensor) -> Tensor:
        from_query = query @ self.W.weight[:, : self.query_size].T  # (B, T, D)
        hidden = (from_query[:, :, None] + projected[:, None]).tanh_()  # (B, T, S, D), in place: it is large
        return self.v(hidden).squeeze(-1)  # (B, T, S)


class AdditiveScore(nn.Module):
    """``score(q, k) = v . tanh(W q + U k)``: one matrix for the query, one for the key.

    The same family of functions as ``ConcatScore``, published a year earlier. What differs is the query:
    Bahdanau's decoder asks with its state *before* the step, Luong's with the state *after* it.

    Source: Bahdanau et al. (2014), arXiv 1409.0473, appendix A.1.2.
    """

    def __init__(self, query_size: int, key_size: int):
        super().__init__()
        self.W = nn.Linear(query_size, query_size, bias=False)
        self.U = nn.Linear(key_size, query_size, bias=False)
        self.v = nn.Linear(query_size, 1, bias=False)

    def project_keys(self, keys: Tensor) -> Tensor:
        return self.U(keys)  # (B, S, K) -> (B, S, D)

    def forward(self, query: Tensor, projected: Tensor) -> Tensor:
        hidden = (self.W(query)[:, :, None] + projected[:, None]).tanh_()  # (B, T, S, D)
        return self.v(hidden).squeeze(-1)  # (B, T, S)


SCORES = {"dot": DotScore, "general": GeneralScore, "concat": ConcatScore, "additive": AdditiveScore}


class Memory(NamedTuple):
    """What a decoder may look at: the encoder states, their projected keys, and which are real."""

    values: Tensor  # (B, S, K)
    keys: Tensor  # (B, S, D) as the score's project_keys left them
    mask: Tensor  # (B, S), True = may attend


class ScoreAttention(Attention):
    """Attention over a memory: ``a = softmax(score(q, k))`` over the source, context ``c = sum_s a_s v_s``.

    Args:
        score: one of ``"dot"``, ``"general"``, ``"concat"``, ``"additive"``.
        query_size: size of the decoder state.
        key_size: size of an encoder state.

    Raises:
        ValueError: there is no such score.
    """

    def __init__(self, score: str, query_size: int, key_size: int):
        super().__init__()
        if score not in SCORES:
            raise ValueError(f"score={score!r}: must be one of {', '.join(map(repr, SCORES))}")
        self.score = SCORES[score](query_size, key_size)

    def remember(self, values: Tensor, mask: Tensor) -> Memory:
        """Project the keys, once per source. ``values`` (B, S, K), ``mask`` (B, S)."""
        return Memory(values, self.score.project_keys(values), mask)

    def forward(self, query: Tensor, memory: Memory) -> Tensor:
        """Context vectors (B, T, K) for queries (B, T, D)."""
        scores = self.score(query, memory.keys)  # (B, T, S)
        weights = self.record(masked_softmax(scores, memory.mask[:, None]))  # (B, T, S)
        return weights @ memory.values  # (B, T, S) @ (B, S, K) -> (B, T, K)
