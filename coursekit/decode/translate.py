"""Decoding of encoder-decoder models, step by step with cached keys and values: greedy, and beam search.

Legend: B batch, K beams, V vocabulary size, T tokens so far.
"""

import torch
from torch import Tensor

from coursekit.models.transformer import Transformer


def longest(model: Transformer, source: Tensor, max_length: int | None) -> int:
    """How many tokens to decode at most: by default 50 more than the source has (section 6.1)."""
    if len(source) == 0:
        raise ValueError("source has no sentence: give at least one row")
    most = model.config.max_length
    if max_length is None:
        return min(source.shape[1] + 50, most)
    if not 1 <= max_length <= most:
        raise ValueError(f"max_length={max_length}: must lie in 1..{most}, the model's max_length")
    return max_length


def next_logits(model: Transformer, symbol: Tensor, memory: Tensor, mask: Tensor, caches: list) -> Tensor:
    """Logits (B, V) of the words after the last ones (B, 1). Padding is no word and is never written."""
    logits = model.decode(symbol, memory, mask, caches)[:, -1]
    logits[:, model.config.pad_id] = -torch.inf
    return logits


@torch.inference_mode()
def greedy(model: Transformer, source: Tensor, mask: Tensor, max_length: int | None = None) -> Tensor:
    """The most likely symbol at each step, until every sequence has ended.

    Args:
        source, mask: (B, S), True where the source is real.
        max_length: most symbols to decode, the end symbol included.

    Returns:
        (B, T) with ``eos_id`` at the end of each sequence that ended, and ``pad_id`` behind it.

    Raises:
        ValueError: there is no source, one has no real symbol, or ``max_length`` is more than the model's.
    """
    c, most = model.config, longest(model, source, max_length)
    memory, caches = model.encode(source, mask), model.new_caches(most, source.shape[1])
    symbol = source.new_full((len(source), 1), c.bos_id)
    ended = torch.zeros_like(symbol, dtype=torch.bool)
    found = []
    for _ in range(most):
        logits = next_logits(model, symbol, memory, mask, caches)
        symbol = logits.argmax(dim=-1, keepdim=True).masked_fill(ended, c.pad_id)
        found.append(symbol)
        ended = ended | (symbol == c.eos_id)
        if ended.all():
            break
    return torch.cat(found, dim=1)


@torch.inference_mode()
def beam_search(
    model: Transformer,
    source: Tensor,
    mask: Tensor,
    beams: int = 4,
    alpha: float = 0.6,
    max_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """The best of K sequences that grow side by side.

    A sequence Y is worth ``log P(Y) / lp(Y)`` with ``lp(Y) = ((5 + |Y|) / 6)^alpha``. Of all continuations of the
    K unfinished sequences the K most likely unfinished ones are kept; of those that end, the one that is worth
    most. The search stops when no unfinished one can still win.

    Args:
        source, mask: (B, S), True where the source is real.
        beams: K, 4 in the paper.
        alpha: strength of the length penalty, 0.6 in the paper; 0 for none.
        max_length: most symbols to decode, the end symbol included. What has not ended by then competes too.

    Returns:
        The best sequences (B, T), with ``pad_id`` behind the end, and what they are worth, (B,).

    Raises:
        ValueError: as ``greedy``; and where ``beams`` or ``alpha`` lie out of range.

    Source: Wu et al. (2016), arXiv 1609.08144, section 7, without the coverage penalty.
    """
    if beams < 1 or beams >= model.config.vocab_size:
        raise ValueError(f"beams={beams}: must lie in 1..{model.config.vocab_size - 1} (below vocab_size)")
    if not alpha >= 0:
        raise ValueError(f"alpha={alpha}: must be at least 0 (0 for no length penalty)")
    c, most, B, K = model.config, longest(model, source, max_length), len(source), beams

    def penalty(length: int) -> float:
        return ((5 + length) / 6) ** alpha

    memory = model.encode(source, mask).repeat_interleave(K, dim=0)  # (B K, S, D)
    mask, caches = mask.repeat_interleave(K, dim=0), model.new_caches(most, source.shape[1])
    first_row = torch.arange(B, device=source.device)[:, None] * K  # (B, 1): where each sentence's beams begin
    alive = source.new_full((B, K, 1), c.bos_id)
    log_p = memory.new_full((B, K), -torch.inf)
    log_p[:, 0] = 0  # the K beams begin equal: only the first of them counts
    best = source.new_full((B, most), c.pad_id)  # the best finished sequence
    worth = memory.new_full((B,), -torch.inf)
    for length in range(1, most + 1):
        logits = next_logits(model, alive[:, :, -1].reshape(B * K, 1), memory, mask, caches)
        step = logits.float().log_softmax(dim=-1).view(B, K, -1)
        V = step.shape[-1]
        candidates, index = (log_p[:, :, None] + step).flatten(1).topk(min(2 * K, K * V))  # at most K of them end
        parent, symbol = index // V, index % V  # (B, 2 K)
        ends = symbol == c.eos_id
        grown = torch.cat([alive.gather(1, parent[:, :, None].expand(-1, -1, length)), symbol[:, :, None]], dim=2)

        finished = ends if length < most else torch.ones_like(ends)
        ended, chosen = (candidates / penalty(length)).masked_fill(~finished, -torch.inf).max(dim=1)  # (B,)
        better = ended > worth
        worth = torch.where(better, ended, worth)
        new = grown[torch.arange(B, device=source.device), chosen, 1:]  # (B, length)
        best[:, :length] = torch.where(better[:, None], new, best[:, :length])

        log_p, chosen = candidates.masked_fill(ends, -torch.inf).topk(K)
        alive = grown.gather(1, chosen[:, :, None].expand(-1, -1, length + 1))
        rows = (first_row + parent.gather(1, chosen)).flatten()  # (B K,)
        for own, _ in caches:  # what is kept of the source is the same for all beams of a sentence
            own.reorder(rows)
        # log P only falls, and no length divides it by more than the longest
        if (worth >= log_p.max(dim=1).values / penalty(most)).all():
            break
    length = int((best != c.pad_id).sum(dim=1).max())
    return best[:, :length], worth
