"""Decoding of encoder-decoder models, step by step with cached keys and values: greedy, and beam search.

Legend: B batch, K beams, V vocabulary size, T tokens so far.
"""

import torch
from torch import Tensor

from coursekit.decode.beams import check_beams, search
from coursekit.models.transformer import Transformer
from coursekit.nn.modes import evaluating, out_of_inference_mode


def longest(model: Transformer, source: Tensor, max_length: int | None) -> int:
    """How many tokens to decode at most: by default 50 more than the longest source of the batch has (section 6.1)."""
    if len(source) == 0:
        raise ValueError("source has no sentence: give at least one row")
    most = model.config.max_length
    if max_length is None:
        return min(source.shape[1] + 50, most)
    if not 1 <= max_length <= most:
        raise ValueError(f"max_length={max_length}: must lie in 1..{most}, the model's max_length")
    return max_length


def next_word_logits(
    model: Transformer, symbol: Tensor, memory: Tensor, source_mask: Tensor | None, caches: list
) -> Tensor:
    """Logits (B, V) of the words after the last ones (B, 1). Padding is no word and is never written."""
    logits = model.decode(symbol, memory, source_mask, caches)[:, -1]
    logits[:, model.config.pad_id] = -torch.inf
    return logits


@torch.inference_mode()
def greedy(
    model: Transformer, source: Tensor, source_mask: Tensor | None = None, max_length: int | None = None
) -> Tensor:
    """The most likely symbol at each step, in eval mode, until every sequence has ended.

    Args:
        source, source_mask: (B, S), True where the source is real; None where all of it is.
        max_length: most symbols to decode, the end symbol included.

    Returns:
        (B, T) with ``eos_id`` at the end of each sequence that ended, and ``pad_id`` behind it.

    Raises:
        ValueError: there is no source, one has no real token, or ``max_length`` is more than the model's.
    """
    c, most = model.config, longest(model, source, max_length)
    symbol = source.new_full((len(source), 1), c.bos_id)  # (B, 1)
    ended = torch.zeros_like(symbol, dtype=torch.bool)
    found = []
    with evaluating(model):
        memory, caches = model.encode(source, source_mask), model.new_caches(most, source.shape[1])
        for _ in range(most):
            logits = next_word_logits(model, symbol, memory, source_mask, caches)  # (B, V)
            symbol = logits.argmax(dim=-1, keepdim=True).masked_fill(ended, c.pad_id)  # (B, 1)
            found.append(symbol)
            ended = ended | (symbol == c.eos_id)
            if ended.all():
                break
    return out_of_inference_mode(torch.cat(found, dim=1))  # T x (B, 1) -> (B, T)


@torch.inference_mode()
def beam_search(
    model: Transformer,
    source: Tensor,
    source_mask: Tensor | None = None,
    beams: int = 4,
    alpha: float = 0.6,
    max_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """The best of K sequences that grow side by side: ``decode.beams.search`` with this model, in eval mode.

    Args:
        source, source_mask: (B, S), True where the source is real; None where all of it is.
        beams: K, 4 in the paper.
        alpha: strength of the length penalty, 0.6 in the paper; 0 for none.
        max_length: most symbols to decode, the end symbol included. What has not ended by then competes too.

    Returns:
        The best sequences (B, T), with ``pad_id`` behind the end, and their scores, (B,).

    Raises:
        ValueError: as ``greedy``; and where ``beams`` or ``alpha`` lie out of range.
    """
    c, most = model.config, longest(model, source, max_length)
    check_beams(beams, alpha, c.vocab_size)
    caches = model.new_caches(most, source.shape[1])

    def step(symbol: Tensor) -> Tensor:
        return next_word_logits(model, symbol, memory, source_mask, caches)

    def reorder(rows: Tensor) -> None:
        for own, _ in caches:  # what is kept of the source is the same for all beams of a sentence
            own.reorder(rows)

    with evaluating(model):
        memory = model.encode(source, source_mask).repeat_interleave(beams, dim=0)  # (B K, S, D)
        source_mask = None if source_mask is None else source_mask.repeat_interleave(beams, dim=0)
        first = step(source.new_full((len(memory), 1), c.bos_id))[::beams]  # of one beam of each: all are equal
        found, scores = search(first, step, reorder, beams, alpha, most, [c.eos_id], c.pad_id)
    return out_of_inference_mode(found), out_of_inference_mode(scores)
