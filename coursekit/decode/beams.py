"""Beam search, whatever the model: the best of K sequences that grow side by side.

Legend: B batch, K beams, V vocabulary size, T symbols written, N candidates: K that may go on, and those that may end.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from coursekit.nn.checks import check_all


def check_beams(beams: int, alpha: float, vocab_size: int) -> None:
    if not 1 <= beams < vocab_size:
        raise ValueError(f"beams={beams}: must lie in 1..{vocab_size - 1} (below vocab_size)")
    if not alpha >= 0:
        raise ValueError(f"alpha={alpha}: must be at least 0 (0 for no length penalty)")


def search(
    first: Tensor,
    step: Callable[[Tensor], Tensor],
    reorder: Callable[[Tensor], None],
    beams: int,
    alpha: float,
    max_length: int,
    ends: Sequence[int],
    pad_id: int,
) -> tuple[Tensor, Tensor]:
    """The best sequences (B, T), with ``pad_id`` behind the end, and their scores, (B,).

    The score of a sequence Y is ``log P(Y) / lp(Y)`` with ``lp(Y) = ((5 + |Y|) / 6)^alpha``. Of all continuations of
    the K unfinished sequences the K most likely unfinished ones are kept; of those that end, the one with the highest
    score. The search stops when no unfinished one can still win.

    Args:
        first: logits (B, V) of the first symbol.
        step: the symbols (B K, 1) that were written last -> logits (B K, V) of the next; the model's caches hold what
            came before, for each of the K beams of each row.
        reorder: let beam i of all B K go on from what beam ``rows[i]`` has written.
        beams, alpha: K and the strength of the length penalty, 0 for none.
        max_length: most symbols to write, the end symbol included. What has not ended by then competes too.
        ends: symbols that end a sequence.

    Raises:
        ValueError: ``beams`` or ``alpha`` lie out of range, or the logits hold nan.

    Source: Wu et al. (2016), arXiv 1609.08144, section 7, without the coverage penalty.
    """
    (B, V), K = first.shape, beams
    check_beams(beams, alpha, V)

    def penalty(length: int) -> float:
        return ((5 + length) / 6) ** alpha

    last = torch.tensor(ends, dtype=torch.long, device=first.device)
    each = torch.arange(B, device=first.device)
    alive = last.new_empty((B, K, 0))  # the unfinished sequences, (B, K, T)
    log_p = first.new_full((B, K), -torch.inf, dtype=torch.float32)  # theirs
    log_p[:, 0] = 0  # the K beams begin equal: only the first of them counts
    best = last.new_full((B, max_length), pad_id)  # the best finished sequence
    best_score, written = log_p.new_full((B,), -torch.inf), last.new_zeros(B)  # its number of symbols
    logits = first.repeat_interleave(K, dim=0)  # (B K, V)
    for length in range(1, max_length + 1):
        likely = logits.float().log_softmax(dim=-1).view(B, K, V)  # (B K, V) -> (B, K, V)
        # at most K x (number of ends) of all candidates end, so that K are left to go on
        candidates, index = (log_p[:, :, None] + likely).flatten(1).topk(min(K + K * len(last), K * V))  # (B, N) each
        parent, symbol = index // V, index % V  # which beam goes on with which symbol, (B, N) each
        ended = torch.isin(symbol, last)  # (B, N)
        old = alive.gather(1, parent[:, :, None].expand(-1, -1, length - 1))  # (B, K, T - 1) -> (B, N, T - 1)
        grown = torch.cat([old, symbol[:, :, None]], dim=2)  # (B, N, T)

        finished = ended if length < max_length else torch.ones_like(ended)
        score, chosen = (candidates / penalty(length)).masked_fill(~finished, -torch.inf).max(dim=1)  # (B,)
        better = score > best_score
        best_score, written = torch.where(better, score, best_score), written.masked_fill(better, length)
        best[:, :length] = torch.where(better[:, None], grown[each, chosen], best[:, :length])
        if length == max_length:
            break

        log_p, chosen = candidates.masked_fill(ended, -torch.inf).topk(K)  # (B, K) each
        # log P only falls, and no length divides it by more than the longest
        if (best_score >= log_p.max(dim=1).values / penalty(max_length)).all():
            break
        alive = grown.gather(1, chosen[:, :, None].expand(-1, -1, length))  # (B, N, T) -> (B, K, T)
        reorder((each[:, None] * K + parent.gather(1, chosen)).flatten())  # (B K,)
        logits = step(alive[:, :, -1].reshape(B * K, 1))  # (B K, 1) -> (B K, V)
    check_all(written > 0, "no sequence can be written: the logits hold nan, or allow no symbol")
    return best[:, : int(written.max())], best_score
