"""The neural probabilistic language model: Bengio, Ducharme, Vincent and Jauvin (2003), JMLR 3.

Read it top to bottom: the configuration, the model, what it is trained on, the objective. It looks at as many words
as an n-gram model, but as vectors: what it learns about one word helps with words that have similar vectors.

Legend: B batch, n order, V vocabulary size, m embedding size, h hidden units.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from coursekit.models.ngram import Documents, windows
from coursekit.nn.checks import check_ids, check_sizes, check_token
from coursekit.nn.losses import summed_cross_entropy


@dataclass(frozen=True)
class NNLMConfig:
    """Sizes of an ``NNLM``.

    Attributes:
        vocab_size: V.
        n: order: the n - 1 tokens before are the context.
        embed_size: m, features of a token.
        hidden_size: h, units of the tanh layer.
        direct: also connect the embeddings to the output (W in equation 1).
        end_id: the token at the end of a document, and in front of it.
    """

    vocab_size: int
    n: int = 5
    embed_size: int = 64
    hidden_size: int = 128
    direct: bool = True
    end_id: int = 0

    def __post_init__(self):
        check_sizes(self, "vocab_size", "embed_size", "hidden_size")
        if self.n < 2:
            raise ValueError(f"n={self.n}: must be at least 2, one token of context")
        check_token(self, "end_id")

    @classmethod
    def mlp1(cls, vocab_size: int = 16_383) -> "NNLMConfig":
        """The network MLP1 of Table 1, on the Brown corpus."""
        return cls(vocab_size, n=5, embed_size=60, hidden_size=50)


class NNLM(nn.Module):
    """``y = b + W x + U tanh(d + H x)``, x being the embeddings of the context side by side; ``softmax(y)`` is p.

    Source: equation 1 and the text around it.
    """

    def __init__(self, config: NNLMConfig):
        super().__init__()
        self.config = c = config
        x_size = (c.n - 1) * c.embed_size
        self.embedding = nn.Embedding(c.vocab_size, c.embed_size)  # C in the paper
        self.H = nn.Linear(x_size, c.hidden_size)  # its bias is d
        self.U = nn.Linear(c.hidden_size, c.vocab_size)  # its bias is b
        self.W = nn.Linear(x_size, c.vocab_size, bias=False) if c.direct else None
        nn.init.normal_(self.embedding.weight, std=0.1)  # with torch's 1, chance would decide who is near whom

    def forward(self, context: Tensor) -> Tensor:
        """Logits (B, V) of the token after each context (B, n - 1).

        Raises:
            ValueError: ``context`` is not (B, n - 1), no whole numbers, or none of the vocabulary's.
        """
        check_ids(context, self.config.vocab_size, "context")
        if context.shape[1] != self.config.n - 1:
            raise ValueError(f"context of {context.shape[1]} tokens: must have n - 1 = {self.config.n - 1}")
        x = self.embedding(context).flatten(1)  # (B, n - 1, m) -> (B, (n - 1) m)
        y = self.U(torch.tanh(self.H(x)))
        return y if self.W is None else y + self.W(x)

    @torch.no_grad()
    def next_probabilities(self, ids: Sequence[int]) -> np.ndarray:
        """p of all tokens after ``ids``, a document's beginning (empty at its start): (V,)."""
        c = self.config
        context = [*[c.end_id] * (c.n - 1), *ids][-(c.n - 1) :]
        logits = self(torch.tensor([context], device=self.U.weight.device))[0]
        return logits.double().softmax(dim=-1).cpu().numpy()

    @torch.no_grad()
    def log_probabilities(self, documents: Documents) -> list[np.ndarray]:
        """ln p of every token of each document and of the end after it: an array of ``len(document) + 1`` each."""
        samples = context_windows(documents, self.config)
        log_p = [np.empty(0)]
        for context, target in zip(samples["context"].split(1024), samples["target"].split(1024)):
            context, target = context.to(self.U.weight.device), target.to(self.U.weight.device)
            log_p.append(-F.cross_entropy(self(context).float(), target, reduction="none").double().cpu().numpy())
        ends = np.cumsum([len(document) + 1 for document in documents])
        return np.split(np.concatenate(log_p), ends)[:-1]


def context_windows(documents: Documents, config: NNLMConfig) -> dict[str, Tensor]:
    """``context`` (N, n - 1) and ``target`` (N,) of every token of the documents and of the end after each.

    Before a document's first token comes ``end_id``, n - 1 times; no context reaches into another document. Train
    on ``Shuffled(context_windows(...), batch_size)``.
    """
    found = torch.from_numpy(windows(documents, config.n, config.end_id))
    return {"context": found[:, :-1].contiguous(), "target": found[:, -1].contiguous()}


def nnlm_loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Cross-entropy of the targets: its sum (nats) and their number.

    ``batch`` holds ``context`` (B, n - 1) and ``target`` (B,).
    """
    return summed_cross_entropy(model(batch["context"]), batch["target"])
