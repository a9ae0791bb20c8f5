"""The recurrent language model: Mikolov et al. (2010), with a plain RNN, a GRU or an LSTM.

Read it top to bottom: the configuration, the model, the batches that it is trained on, the objective. Its state
carries what it has read: there is no fixed number of words that it looks back to, except in training, where the
gradient stops at the edge of a batch (truncated back-propagation through time).

Legend: B batch, T steps, V vocabulary size, E embedding size, D hidden size.

Source: Mikolov, Karafiat, Burget, Cernocky and Khudanpur (2010), *Recurrent neural network based language model*,
Interspeech; with an LSTM: Zaremba, Sutskever and Vinyals (2014), arXiv 1409.2329.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from coursekit.models.ngram import Documents
from coursekit.nn.checks import check_dropout, check_ids, check_sizes, check_token
from coursekit.nn.dropout import Dropout
from coursekit.nn.losses import summed_cross_entropy
from coursekit.nn.modes import evaluating

RNNState = tuple[Tensor, ...]  # (h,), or (h, c) of an LSTM, each (1, B, D) as PyTorch has them
CELLS = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}


@dataclass(frozen=True)
class RNNLMConfig:
    """Sizes and choices of an ``RNNLM``.

    Attributes:
        vocab_size: V.
        embed_size, hidden_size: E and D.
        cell: ``"rnn"`` (tanh), ``"gru"`` or ``"lstm"``.
        tied: the output matrix is the embedding matrix (Press and Wolf, 2017, arXiv 1608.05859); needs E = D.
        dropout: in training: on the embeddings and on the states that go to the output, never from step to step
            (Zaremba et al., section 3.2).
        end_id: the token at the end of a document; the first thing that the model reads of a document.
    """

    vocab_size: int
    embed_size: int = 128
    hidden_size: int = 128
    cell: Literal["rnn", "gru", "lstm"] = "lstm"
    tied: bool = False
    dropout: float = 0.0
    end_id: int = 0

    def __post_init__(self):
        check_sizes(self, "vocab_size", "embed_size", "hidden_size")
        if self.cell not in CELLS:
            raise ValueError(f"cell={self.cell!r}: must be one of {', '.join(map(repr, CELLS))}")
        if self.tied and self.embed_size != self.hidden_size:
            raise ValueError(
                f"tied=True with embed_size={self.embed_size} and hidden_size={self.hidden_size}: one matrix for input "
                "and output needs them equal"
            )
        check_dropout(self)
        check_token(self, "end_id")


class RNNLM(nn.Module):
    """``h_t = cell(E w_{t-1}, h_{t-1})``, ``p(w_t | all before) = softmax(W h_t + b)``."""

    def __init__(self, config: RNNLMConfig):
        super().__init__()
        self.config = c = config
        self.embedding = nn.Embedding(c.vocab_size, c.embed_size)
        self.rnn = CELLS[c.cell](c.embed_size, c.hidden_size, batch_first=True)
        self.to_logits = nn.Linear(c.hidden_size, c.vocab_size)
        self.dropout = Dropout(c.dropout)
        if c.tied:
            nn.init.uniform_(self.embedding.weight, -0.1, 0.1)  # the logits would be wild otherwise
            self.to_logits.weight = self.embedding.weight

    def forward(self, ids: Tensor, state: RNNState | None = None) -> tuple[Tensor, RNNState]:
        """Logits (B, T, V) of the token after each of ``ids`` (B, T), and the state after the last.

        Args:
            state: what was read before ``ids``; None for nothing, a state of zeros.

        Raises:
            ValueError: ``ids`` are not (B, T), no whole numbers, or none of the vocabulary's.
        """
        check_ids(ids, self.config.vocab_size)
        x = self.dropout(self.embedding(ids))  # (B, T, E)
        if state is not None and self.config.cell != "lstm":
            (state,) = state
        h, state = self.rnn(x, state)  # (B, T, D)
        return self.to_logits(self.dropout(h)), state if isinstance(state, tuple) else (state,)

    @torch.no_grad()
    def next_probabilities(self, ids: Sequence[int]) -> np.ndarray:
        """p of all tokens after ``ids``, a document's beginning (empty at its start): (V,)."""
        with evaluating(self):
            logits, _ = self(torch.tensor([[self.config.end_id, *ids]], device=self.embedding.weight.device))
        return logits[0, -1].double().softmax(dim=-1).cpu().numpy()

    @torch.no_grad()
    def log_probabilities(self, documents: Documents, length: int = 64, batch_size: int = 32) -> list[np.ndarray]:
        """ln p of every token of each document and of the end after it: an array of ``len(document) + 1`` each.

        ``batch_size`` documents of like length are read side by side, ``length`` tokens at a time, the state carried
        on; neither changes the result.
        """
        if batch_size < 1 or length < 1:
            raise ValueError(f"length={length}, batch_size={batch_size}: both must be at least 1")
        where = self.embedding.weight.device
        found: list[np.ndarray] = [np.empty(0)] * len(documents)
        order = sorted(range(len(documents)), key=lambda i: len(documents[i]))
        for first in range(0, len(order), batch_size):
            chosen = order[first : first + batch_size]
            ids, target, _ = in_rows([documents[i] for i in chosen], self.config.end_id)
            state, log_p = None, []
            with evaluating(self):
                for i, t in zip(ids.to(where).split(length, dim=1), target.to(where).split(length, dim=1)):
                    logits, state = self(i, state)
                    log_p.append(-F.cross_entropy(logits.float().transpose(1, 2), t, reduction="none").double().cpu())
            for i, row in zip(chosen, torch.cat(log_p, dim=1).numpy()):
                found[i] = row[: len(documents[i]) + 1]  # the rest is padding, which is read last
        return found


def in_rows(documents: Documents, end_id: int) -> tuple[Tensor, Tensor, Tensor]:
    """What is read, what is to be predicted, and where that is real: ids, target and mask (B, T), padded at the end."""
    length = max(len(document) for document in documents) + 1
    rows = torch.full((len(documents), length + 1), end_id)
    for row, document in zip(rows, documents):
        row[1 : len(document) + 1] = torch.as_tensor(document)
    real = torch.arange(length) <= torch.tensor([[len(document)] for document in documents])
    return rows[:, :-1], rows[:, 1:], real


class Streams:
    """Endless batches for truncated back-propagation through time: each goes on where the one before stopped.

    Each of ``batch_size`` rows reads a document from its first token to its end, ``length`` tokens a batch; in the
    batch after its end it begins the next one, with nothing remembered. The documents come in a new order in every
    pass. ``state`` is what the model remembers after the last batch, without gradients; the objective
    (``tbptt_objective``) reads and writes it, and ``state_dict`` holds it, so that a run resumes to the same bits.

    A batch holds ``ids``, ``target`` and ``mask`` (B, T), and ``fresh`` (B,): True for rows that begin a document.

    Args:
        documents: ids, without the end.
        batch_size, length: B and T.
        end_id: the token at the end of a document; the first thing that is read of it.
        seed: of the order. Pass number p is shuffled with ``seed + p``.
    """

    def __init__(self, documents: Documents, batch_size: int, length: int, end_id: int = 0, seed: int = 0):
        if not len(documents):
            raise ValueError("no documents: there is nothing to draw batches from")
        for name, value in (("batch_size", batch_size), ("length", length)):
            if value < 1:
                raise ValueError(f"{name}={value}: must be at least 1")
        self.documents = [torch.tensor([end_id, *document, end_id]) for document in documents]
        self.batch_size, self.length, self.end_id, self.seed = batch_size, length, end_id, seed
        self.drawn = 0  # documents begun so far, over all passes
        self.rows: list[tuple[int, int]] = [(-1, 0)] * batch_size  # document and place in it; -1 for none
        self.state: RNNState | None = None
        self.order: tuple[int, list[int]] | None = None  # pass number and its order

    def next_document(self) -> int:
        number, place = divmod(self.drawn, len(self.documents))
        if self.order is None or self.order[0] != number:
            generator = torch.Generator().manual_seed(self.seed + number)
            self.order = number, torch.randperm(len(self.documents), generator=generator).tolist()
        self.drawn += 1
        return self.order[1][place]

    def __iter__(self) -> "Streams":
        return self

    def __next__(self) -> dict[str, Tensor]:
        shape = self.batch_size, self.length
        ids, target = torch.full(shape, self.end_id), torch.full(shape, self.end_id)
        mask, fresh = torch.zeros(shape, dtype=torch.bool), torch.zeros(self.batch_size, dtype=torch.bool)
        for b, (document, place) in enumerate(self.rows):
            if document < 0:
                document, place, fresh[b] = self.next_document(), 0, True
            piece = self.documents[document][place : place + self.length + 1]
            n = len(piece) - 1
            ids[b, :n], target[b, :n], mask[b, :n] = piece[:-1], piece[1:], True
            place += n
            self.rows[b] = (-1, 0) if place == len(self.documents[document]) - 1 else (document, place)
        return {"ids": ids, "target": target, "mask": mask, "fresh": fresh}

    def settings(self) -> dict[str, int]:
        tokens = sum(map(len, self.documents))
        own = {name: getattr(self, name) for name in ("batch_size", "length", "end_id", "seed")}
        return {"documents": len(self.documents), "tokens": tokens, **own}

    def state_dict(self) -> dict[str, Any]:
        return {**self.settings(), "drawn": self.drawn, "rows": list(self.rows), "state": self.state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, value in self.settings().items():
            if state[name] != value:
                raise ValueError(f"the state is of data with {name}={state[name]}, these have {value}")
        self.drawn, self.rows, self.state = state["drawn"], list(state["rows"]), state["state"]


def tbptt_objective(streams: Streams) -> Callable[[nn.Module, dict[str, Tensor]], tuple[Tensor, Tensor]]:
    """The objective for ``Training`` on ``streams``: cross-entropy over the real targets (nats), and their number.

    The state after each batch is kept in ``streams.state``, cut off from its gradients, and is where the next batch
    starts; rows that begin a document start from zeros.
    """

    def loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        state, real = streams.state, batch["mask"]
        if state is not None:
            kept = ~batch["fresh"][None, :, None]  # (1, B, 1)
            state = tuple(s.to(real.device) * kept for s in state)
        logits, state = model(batch["ids"], state)
        streams.state = tuple(s.detach() for s in state)
        return summed_cross_entropy(logits, batch["target"], real)

    return loss
