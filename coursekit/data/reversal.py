"""Sequence reversal: the answer to [2, 8, 1, 6] is [6, 1, 8, 2].

The ids of the symbols are the integers themselves, 0 to n_symbols - 1; the start symbol comes after them.
"""

import torch
from torch import Tensor
from torch.nn import functional as F


def bos_id(n_symbols: int) -> int:
    """Id of the start symbol, the first one that no sequence contains."""
    return n_symbols


def reversal(
    n_sequences: int,
    length: int | tuple[int, int],
    n_symbols: int,
    generator: torch.Generator,
    one_hot: bool = False,
) -> dict[str, Tensor]:
    """Random sequences and their reversals.

    Args:
        n_sequences: how many, B.
        length: of every sequence, or the shortest and the longest: then each length is equally likely and
            shorter sequences are padded on the right with 0.
        n_symbols: V; each symbol is equally likely at each place.
        generator: the only source of randomness.
        one_hot: give ``source`` and ``target`` as one-hot vectors (padding all zero) instead of ids.

    Returns:
        ``source`` and ``target`` (B, T) of ids, or (B, T, V) float32 one-hot; ``source_mask`` and
        ``target_mask`` (B, T), True where the symbol is real.
    """
    shortest, longest = (length, length) if isinstance(length, int) else length
    if n_sequences < 1 or n_symbols < 1:
        raise ValueError(f"n_sequences={n_sequences} and n_symbols={n_symbols}: both must be at least 1")
    if not 1 <= shortest <= longest:
        raise ValueError(f"length={length}: the shortest must be at least 1 and at most the longest")
    lengths = torch.randint(shortest, longest + 1, (n_sequences, 1), generator=generator)  # (B, 1)
    place = torch.arange(longest)
    mask = place < lengths  # (B, T)
    source = torch.randint(n_symbols, (n_sequences, longest), generator=generator).where(mask, 0)
    target = source.gather(1, true_position(lengths, longest).clamp(min=0)).where(mask, 0)
    if one_hot:
        source, target = (F.one_hot(ids, n_symbols).float() * mask[:, :, None] for ids in (source, target))
    return {"source": source, "source_mask": mask, "target": target, "target_mask": mask.clone()}


def true_position(lengths: Tensor, steps: int) -> Tensor:
    """Where each output comes from: step t of a sequence of ``lengths`` (B, 1) is source position length - 1 - t.

    Returns:
        (B, steps), negative after the end of a sequence.
    """
    return lengths - 1 - torch.arange(steps)
