"""Tokens and their numbers."""

from collections.abc import Iterable, Sequence

PAD, BOS, EOS, UNK = "<pad>", "<bos>", "<eos>", "<unk>"


class Vocab:
    """Tokens numbered from 0: padding, start, end, unknown, then the others in the order in which they are given.

    Args:
        tokens: repetitions count once.
    """

    def __init__(self, tokens: Iterable[str]):
        self.tokens = list(dict.fromkeys([PAD, BOS, EOS, UNK, *tokens]))
        self.ids = {token: i for i, token in enumerate(self.tokens)}
        self.pad_id, self.bos_id, self.eos_id, self.unk_id = range(4)

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(self, tokens: Iterable[str]) -> list[int]:
        """Numbers of tokens; those that are not known get ``unk_id``."""
        return [self.ids.get(token, self.unk_id) for token in tokens]

    def decode(self, ids: Sequence[int]) -> list[str]:
        """Tokens up to the end symbol, without padding and start."""
        found = []
        for i in ids:
            if i == self.eos_id:
                break
            if i not in (self.pad_id, self.bos_id):
                found.append(self.tokens[i])
        return found
