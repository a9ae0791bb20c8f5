"""Random tokens, and then the same ones again: nothing can be predicted in the first half, all in the second."""

import torch

from coursekit.data.batches import Batch


def repeats(n: int, lengths: tuple[int, int], n_symbols: int, generator: torch.Generator) -> Batch:
    """A batch of texts ``u_1 … u_L u_1 … u_L``, with one L for all, drawn anew for each batch.

    A length that varies matters: with always the same one, *look L - 1 tokens back* would do, whatever stands there.

    Args:
        n: how many texts.
        lengths: the shortest and the longest L; at least 2, since the first token of a copy is never learned.
        n_symbols: each of the tokens 0 to ``n_symbols - 1`` is equally likely at each place of the first half.

    Returns:
        ``ids`` (n, 2 L), and ``loss_mask`` (n, 2 L), True at the second half but for its first token, before which
        nobody can know that a copy begins.

    Raises:
        ValueError: a number below 1, a length below 2, or the shortest length is above the longest.

    Source: Olsson et al. (2022), arXiv 2209.11895 (repeated random tokens).
    """
    shortest, longest = lengths
    if n < 1 or n_symbols < 1:
        raise ValueError(f"n={n} and n_symbols={n_symbols}: both must be at least 1")
    if not 2 <= shortest <= longest:
        raise ValueError(f"lengths={lengths}: the shortest must be at least 2 and at most the longest")
    length = int(torch.randint(shortest, longest + 1, (), generator=generator))
    half = torch.randint(n_symbols, (n, length), generator=generator)
    learned = torch.arange(2 * length) > length  # (2 L)
    return {"ids": torch.cat([half, half], dim=1), "loss_mask": learned.expand(n, -1).clone()}
