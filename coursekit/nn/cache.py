"""What attention keeps of the positions so far, for decoding step by step.

Legend: B batch, G heads of keys and values, T new positions, S all so far, W window, Dh size of a head.
"""

import torch
from torch import Tensor


class Cache:
    """Keys and values of the positions so far, for decoding step by step; their memory is allocated once.

    Use it without gradients: every ``append`` writes into the same memory, so a backward pass through a step fails
    once another step has followed, and ``reorder`` is refused by PyTorch.

    Args:
        max_length: largest number of positions, those of the prompt included; ``append`` refuses more.

    Raises:
        ValueError: ``max_length`` is below 1.

    Attributes:
        length: positions so far.
    """

    def __init__(self, max_length: int):
        if max_length < 1:
            raise ValueError(f"max_length={max_length}: a cache has room for at least 1 position")
        self.max_length, self.length = max_length, 0
        self.key: Tensor | None = None
        self.value: Tensor | None = None
        self.spare: tuple[Tensor, Tensor] | None = None  # two memories take turns: new ones each time would take longer

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Add keys and values (B, G, T, Dh); return all so far, (B, G, S, Dh).

        Raises:
            ValueError: they are more than ``max_length``, or of another number of texts than before.
        """
        start, end = self.length, self.length + key.shape[-2]
        self.check_room(key, end)
        if self.key is None:
            self.key, self.value = (x.new_empty(*x.shape[:2], self.max_length, x.shape[-1]) for x in (key, value))
        self.key[:, :, start:end], self.value[:, :, start:end] = key, value
        self.length = end
        return self.key[:, :, :end], self.value[:, :, :end]

    def check_room(self, key: Tensor, end: int) -> None:
        """Refuse keys that do not continue those so far, or with which there are ``end`` positions, too many."""
        if end > self.max_length:
            raise ValueError(f"{end} positions do not fit into a cache of max_length={self.max_length}")
        if self.key is not None and len(key) != len(self.key):
            raise ValueError(f"a batch of {len(key)} cannot continue the batch of {len(self.key)} that the cache holds")
        if self.key is not None and (key.shape[1], key.shape[3]) != (self.key.shape[1], self.key.shape[3]):
            found, held = (f"{x.shape[1]} heads of size {x.shape[3]}" for x in (key, self.key))
            raise ValueError(f"{found} cannot continue the {held} that the cache holds")

    def reorder(self, rows: Tensor) -> None:
        """Let row i of the batch go on from what row ``rows[i]`` holds (beam search)."""
        if self.key is None:
            return
        before, shape = (self.key, self.value), (len(rows), *self.key.shape[1:-1])
        if self.spare is None or self.spare[0].shape[:-1] != shape:
            self.spare = tuple(x.new_empty(*shape, x.shape[-1]) for x in before)
        for x, moved in zip(before, self.spare):
            torch.index_select(x[:, :, : self.length], 0, rows, out=moved[:, :, : self.length])
        (self.key, self.value), self.spare = self.spare, before


class WindowCache(Cache):
    """A ``Cache`` for attention to the last W positions: of those before, only W - 1 are kept for the next step.

    Args:
        max_length: largest number of positions, as for a ``Cache``.
        window: W.

    Raises:
        ValueError: ``max_length`` or ``window`` is below 1.
    """

    def __init__(self, max_length: int, window: int):
        super().__init__(max_length)
        if window < 1:
            raise ValueError(f"window={window}: must be at least 1")
        self.window = window

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Add keys and values (B, G, T, Dh); return those that the T queries reach, (B, G, at most T + W - 1, Dh)."""
        end = self.length + key.shape[-2]
        self.check_room(key, end)
        self.length = end
        both = (self.key, key), (self.value, value)
        key, value = (new if old is None else torch.cat([old, new], dim=-2) for old, new in both)
        first = max(0, key.shape[-2] - self.window + 1)
        self.key, self.value = key[:, :, first:].clone(), value[:, :, first:].clone()
        return key, value
