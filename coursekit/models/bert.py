"""BERT: Devlin, Chang, Lee and Toutanova (2019), arXiv 1810.04805.

Read it top to bottom: the configuration, the encoder, the two heads of pre-training and their objective, then the
heads of fine-tuning with theirs. What is masked, and which sentences are paired, is in
``coursekit/data/pretraining.py``.

Call chain: each head -> ``Bert.forward`` -> ``Bert.hidden_states`` -> ``LearnedPositions`` in ``nn/positions.py``,
then for each layer ``Block`` in ``nn/blocks.py`` -> ``MultiHeadAttention`` -> ``attend`` in ``nn/attention.py``.

Legend: B batch, T tokens, V vocabulary size, D = d_model, K labels, N masked tokens of a batch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from coursekit.models.pretrained import Pretrained
from coursekit.nn.attention import MultiHeadAttention
from coursekit.nn.blocks import Block, FeedForward
from coursekit.nn.checks import (
    can_sync,
    check_all,
    check_dropout,
    check_heads,
    check_mask,
    check_shape,
    check_sizes,
    check_text,
)
from coursekit.nn.dropout import Dropout
from coursekit.nn.losses import summed_cross_entropy
from coursekit.nn.masks import padding_mask
from coursekit.nn.modes import evaluating
from coursekit.nn.positions import LearnedPositions, positions_of
from coursekit.nn.tied import tied_logits

EPS = 1e-12  # of every layer norm
STD = 0.02  # of weights at first, before the cut at two deviations; not in the paper, but in Google's program


@dataclass(frozen=True)
class BertConfig:
    """Sizes of a ``Bert``; the defaults are the base model for English in small letters.

    Attributes:
        vocab_size: V.
        d_model, n_heads, d_ff, n_layers: D, H, the width of the feed-forward networks, the blocks (section 3).
        max_length: largest number of tokens, the context length.
        dropout: in training: on the embeddings, the attention weights, both branches of a block, and before the
            layer of a classifier.
    """

    vocab_size: int = 30_522
    d_model: int = 768
    n_heads: int = 12
    d_ff: int = 3072
    n_layers: int = 12
    max_length: int = 512
    dropout: float = 0.1

    def __post_init__(self):
        check_sizes(self, "vocab_size", "d_model", "n_heads", "d_ff", "n_layers", "max_length")
        check_heads(self)
        check_dropout(self)

    @classmethod
    def tiny(cls, **changes) -> "BertConfig":
        """The smallest of Turc et al. (2019), arXiv 1908.08962, with changes: 4,385,920 parameters."""
        return cls(**{"d_model": 128, "n_heads": 2, "d_ff": 512, "n_layers": 2} | changes)

    @classmethod
    def base(cls, **changes) -> "BertConfig":
        """The base model, with changes: 109,482,240 parameters."""
        return cls(**changes)

    @classmethod
    def large(cls, **changes) -> "BertConfig":
        """The large model, with changes: 335,141,888 parameters."""
        return cls(**{"d_model": 1024, "n_heads": 16, "d_ff": 4096, "n_layers": 24} | changes)


def init_weights(*modules: nn.Module) -> None:
    """Matrices and embeddings from a normal distribution cut at two deviations; biases 0."""
    for module in modules:
        for name, parameter in module.named_parameters():
            if parameter.dim() >= 2:
                nn.init.trunc_normal_(parameter, std=STD, a=-2 * STD, b=2 * STD)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)


class Bert(Pretrained):
    """The encoder: what every token means among all others, to its left and to its right.

    A token enters as the sum of three vectors, for itself, its position and its segment, under a layer norm
    (figure 2); blocks with the norm after each residual connection follow.

    ``Bert.from_pretrained`` takes the files of any BERT and leaves their heads behind. A model with a head wants files
    with that head; a new head goes on a body: ``BertForTokenClassification(Bert.from_pretrained(...), labels)``.

    Args:
        config: its sizes.
        pooler: with the layer that makes one vector of a text, which models for spans, tags and masked words alone
            come without.
    """

    def __init__(self, config: BertConfig, pooler: bool = True):
        super().__init__()
        self.config = c = config
        self.tokens = nn.Embedding(c.vocab_size, c.d_model)
        self.positions = LearnedPositions(c.max_length, c.d_model)
        self.segments = nn.Embedding(2, c.d_model)
        self.norm = nn.LayerNorm(c.d_model, eps=EPS)
        self.dropout = Dropout(c.dropout)
        self.blocks = nn.ModuleList(
            Block(
                MultiHeadAttention(c.d_model, c.n_heads, dropout=c.dropout),
                FeedForward(c.d_model, c.d_ff, "gelu"),
                norm=partial(nn.LayerNorm, eps=EPS),
                norm_first=False,
                dropout=c.dropout,
            )
            for _ in range(c.n_layers)
        )
        self.pooler = nn.Linear(c.d_model, c.d_model) if pooler else None
        init_weights(self)

    def hidden_states(self, ids: Tensor, mask: Tensor | None = None, segments: Tensor | None = None) -> list[Tensor]:
        """The embeddings, and what each block makes of them: ``n_layers + 1`` tensors (B, T, D).

        Args:
            ids: (B, T), ``[CLS]`` first.
            mask: (B, T), True where a token is real; None where all are. Padding may stand on either side and changes
                nothing for the real tokens. (In transformers its place at the left counts as positions.)
            segments: (B, T), 0 up to the first ``[SEP]`` and 1 after it; None for 0 everywhere.

        Raises:
            ValueError: a text has no real token, or more than ``max_length``; ``ids`` are not (B, T), no whole
                numbers, or none of the vocabulary's; or ``mask`` or ``segments`` have another shape, or ``segments``
                other numbers than 0 and 1.
        """
        check_text(ids, self.config.vocab_size, self.config.max_length, mask)
        if segments is None:
            segments = torch.zeros_like(ids)
        elif segments.shape != ids.shape:
            raise ValueError(f"segments of shape {tuple(segments.shape)}: must be {tuple(ids.shape)}, as the tokens")
        if segments.dtype not in (torch.int64, torch.int32):
            raise ValueError(f"segments of {segments.dtype}: must be whole numbers (torch.int64)")
        check_all((segments == 0) | (segments == 1), "segments must be 0 in the first text and 1 in the second")
        x = self.tokens(ids) + self.segments(segments)  # (B, T, D)
        x = self.positions(x, 0 if mask is None else positions_of(mask))
        states, may_attend = [self.dropout(self.norm(x))], padding_mask(mask)  # (B, 1, 1, T)
        for block in self.blocks:
            states.append(block(states[-1], mask=may_attend))
        return states

    def forward(self, ids: Tensor, mask: Tensor | None = None, segments: Tensor | None = None) -> Tensor:
        """The last of the ``hidden_states``, (B, T, D)."""
        return self.hidden_states(ids, mask, segments)[-1]

    def pool(self, hidden: Tensor, mask: Tensor | None = None) -> Tensor:
        """One vector for a text: ``tanh(W h + b)`` of its first token, ``[CLS]``; (B, T, D) -> (B, D)."""
        if self.pooler is None:
            raise ValueError("this Bert has no pooler: load one that was saved with it, or pool its states yourself")
        first = hidden[:, 0]
        if mask is not None:  # padding may come before it
            first = hidden[torch.arange(hidden.shape[0], device=hidden.device), mask.int().argmax(dim=1)]
        return torch.tanh(self.pooler(first))

    @torch.no_grad()
    def features(
        self, ids: Tensor, mask: Tensor | None = None, segments: Tensor | None = None, of: str = "concat_last_four"
    ) -> Tensor:
        """The features of each token from a frozen model: without gradient or dropout, in whatever mode it is.

        Args:
            of: ``"last"``, ``"sum_last_four"``, (B, T, D) both, or ``"concat_last_four"``, (B, T, 4 D): of the blocks.

        Source: section 5.3, table 7.
        """
        if of not in FEATURES:
            raise ValueError(f"of={of!r}: must be one of {', '.join(map(repr, FEATURES))}")
        if of != "last" and len(self.blocks) < 4:
            raise ValueError(f"of={of!r}: a Bert of {len(self.blocks)} blocks has no last four; use of='last'")
        with evaluating(self):
            return FEATURES[of](self.hidden_states(ids, mask, segments))


FEATURES: dict[str, Callable[[list[Tensor]], Tensor]] = {
    "last": lambda states: states[-1],
    "sum_last_four": lambda states: sum(states[-4:]),
    "concat_last_four": lambda states: torch.cat(states[-4:], dim=-1),
}


# --- pre-training: guess the masked words, and whether B follows A -------------------------------------------


class BertForPreTraining(Pretrained):
    """``bert`` with the heads of both tasks of section 3.1.

    Masked words: a layer with GELU and layer norm, then the product with the embedding of each word (the same matrix
    as at the input) and a bias for each. Next sentence: two logits from the pooled vector; label 0 says that B
    follows A.
    """

    def __init__(self, bert: Bert):
        super().__init__()
        D, V = bert.config.d_model, bert.config.vocab_size
        self.bert = bert
        self.dense, self.norm = nn.Linear(D, D), nn.LayerNorm(D, eps=EPS)
        self.bias = nn.Parameter(torch.zeros(V))
        self.next_sentence = nn.Linear(D, 2)
        init_weights(self.dense, self.next_sentence)

    def guess(self, hidden: Tensor) -> Tensor:
        """Logits (..., V) of the word at places with these last hidden states (..., D)."""
        return tied_logits(self.norm(F.gelu(self.dense(hidden))), self.bert.tokens.weight, self.bias)

    def forward(
        self,
        ids: Tensor,
        mask: Tensor | None = None,
        segments: Tensor | None = None,
        where: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Logits (B, T, V) of the word at each place, and (B, 2) of the next-sentence labels.

        Args:
            ids, mask, segments: as in ``Bert.hidden_states``.
            where: the places where words are to be guessed, so that logits of others are never computed: of 128 tokens
                19 are masked, and V is by far the largest size there is. Either (B, T), True at these, for logits
                (N, V); or (B, P), their numbers, for logits (B, P, V), those of a number -1 of no meaning.
        """
        hidden = self.bert(ids, mask, segments)
        follows = self.next_sentence(self.bert.pool(hidden, mask))
        if where is not None and where.dtype == torch.bool:
            hidden = hidden[where]  # (N, D)
        elif where is not None:
            hidden = hidden.gather(1, where.clamp(min=0)[..., None].expand(-1, -1, hidden.shape[-1]))  # (B, P, D)
        return self.guess(hidden), follows


def pretraining_loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """The objective for ``Training``: with the count divided out, the mean over the masked words of -ln p plus the
    mean over the pairs of -ln p (nats; appendix A.2); and the number of masked words.

    A batch holds ``ids``, ``mask``, ``segments`` (B, T), ``masked`` (B, T), True where words are to be guessed,
    ``target`` (B, T), what stood there, and ``labels`` (B,), 0 where B follows A. Without ``labels`` the masked words
    are all there is ("No NSP" in table 5). With ``accumulate``, the mean over pairs weighs each batch by its masked
    words. On a GPU it needs ``places`` (B, P) too: where ``masked`` is True, and then -1.
    """
    masked, target = batch["masked"], batch["target"]
    if can_sync(masked):
        where, target = masked, target[masked]  # (B, T), (N,)
    else:
        where = batch["places"]
        target = target.gather(1, where.clamp(min=0))  # (B, T) -> (B, P)
        target = target.masked_fill(where < 0, -100)  # which cross_entropy leaves out
    words, follows = model(batch["ids"], batch["mask"], batch.get("segments"), where)  # (N, V) or (B, P, V), (B, 2)
    words = words.float().flatten(0, -2)  # (N, V) or (B P, V)
    loss = F.cross_entropy(words, target.flatten(), reduction="sum")
    count = masked.sum()
    if "labels" in batch:
        loss = loss + count * F.cross_entropy(follows.float(), batch["labels"])
    return loss, count


# --- fine-tuning: a thin new layer on the pre-trained body (figure 4) ----------------------------------------


def check_labels(labels: Sequence[str]) -> None:
    """Refuse one text, whose characters would be taken for labels, none at all, and equal ones."""
    if isinstance(labels, str) or not labels or len(set(labels)) < len(labels):
        raise ValueError(f"labels={labels!r}: must be a list of names, at least one, each another")


class BertForSequenceClassification(Pretrained):
    """One label for a text or for a pair of texts: ``softmax(W C + b)``, C the pooled vector.

    Figures 4a and 4b are one model: a pair is a text with two segments.

    Args:
        bert: the body, fine-tuned along with the new layer.
        labels: their names.
    """

    def __init__(self, bert: Bert, labels: Sequence[str]):
        super().__init__()
        check_labels(labels)
        self.bert, self.labels, self.dropout = bert, tuple(labels), Dropout(bert.config.dropout)
        self.classifier = nn.Linear(bert.config.d_model, len(self.labels))
        init_weights(self.classifier)

    def forward(self, ids: Tensor, mask: Tensor | None = None, segments: Tensor | None = None) -> Tensor:
        """Logits (B, K)."""
        return self.classifier(self.dropout(self.bert.pool(self.bert(ids, mask, segments), mask)))


def classification_loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Cross-entropy of ``labels`` (B,), summed (nats), and their number."""
    logits = model(batch["ids"], batch["mask"], batch.get("segments"))  # (B, K)
    return summed_cross_entropy(logits, batch["labels"])


class BertForTokenClassification(Pretrained):
    """One label for each token, as for names in a text (figure 4d): the same layer at every place.

    Args: as for ``BertForSequenceClassification``.
    """

    def __init__(self, bert: Bert, labels: Sequence[str]):
        super().__init__()
        check_labels(labels)
        self.bert, self.labels, self.dropout = bert, tuple(labels), Dropout(bert.config.dropout)
        self.classifier = nn.Linear(bert.config.d_model, len(self.labels))
        init_weights(self.classifier)

    def forward(self, ids: Tensor, mask: Tensor | None = None, segments: Tensor | None = None) -> Tensor:
        """Logits (B, T, K)."""
        return self.classifier(self.dropout(self.bert(ids, mask, segments)))


def tagging_loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Cross-entropy of ``tags`` (B, T) where ``tagged`` (B, T), summed (nats), and their number.

    ``tagged`` is True at the first piece of each word and nowhere else (section 5.3).
    """
    logits = model(batch["ids"], batch["mask"], batch.get("segments"))  # (B, T, K)
    return summed_cross_entropy(logits, batch["tags"], batch["tagged"])


class BertForQuestionAnswering(Pretrained):
    """Where in a text the answer to a question begins and ends (figure 4c): two vectors, S and E.

    The question is segment 0, the text segment 1; ``p(begin at i) = softmax over i of S . T_i``, and with E for the
    end, T being the last hidden states (section 4.2).
    """

    def __init__(self, bert: Bert):
        super().__init__()
        self.bert = bert
        self.span = nn.Linear(bert.config.d_model, 2)  # its rows are S and E
        init_weights(self.span)

    def forward(self, ids: Tensor, mask: Tensor | None = None, segments: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Logits of each place to be the first of the answer and to be its last, (B, T) both; -inf at padding."""
        start, end = self.span(self.bert(ids, mask, segments)).unbind(-1)  # (B, T, 2) -> 2 x (B, T)
        if mask is not None:
            start, end = start.masked_fill(~mask, -torch.inf), end.masked_fill(~mask, -torch.inf)
        return start, end


def span_loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """-ln p of ``start`` (B,) and of ``end`` (B,), the answers' first and last places, summed (nats); and B.

    Raises:
        ValueError: an answer begins or ends at padding.
    """
    start, end = batch["start"], batch["end"]
    for name, place in (("start", start), ("end", end)):
        real = batch["mask"].gather(1, place[:, None])
        check_all(real, f"the {name} of an answer lies at padding: it must be a token")
    start_logits, end_logits = model(batch["ids"], batch["mask"], batch.get("segments"))
    loss = F.cross_entropy(start_logits.float(), start, reduction="sum")
    loss = loss + F.cross_entropy(end_logits.float(), end, reduction="sum")
    return loss, start.new_full((), len(start))


def best_span(start: Tensor, end: Tensor, allowed: Tensor) -> Tensor:
    """The most likely answers: first and last place with the largest ``S . T_i + E . T_j``, j >= i; (B, 2).

    Args:
        start, end: logits (B, T), from ``BertForQuestionAnswering``.
        allowed: (B, T), True where an answer may lie: in the text, not in the question. Each row needs one True.

    Raises:
        ValueError: ``end`` or ``allowed`` has another shape than ``start``, or a row of ``allowed`` no True.

    Source: section 4.2.
    """
    check_shape("end", end, start.shape)
    check_mask("allowed", allowed, start.shape)
    check_all(allowed.any(dim=1), "a text has no place that is allowed: each row needs one True")
    T = start.shape[1]
    may = (allowed[:, :, None] & allowed[:, None]).triu()  # (B, T, T): first place, last place
    scores = (start[:, :, None] + end[:, None]).masked_fill(~may, -torch.inf)
    best = scores.flatten(1).argmax(dim=1)  # (B, T T) -> (B,)
    return torch.stack([best // T, best % T], dim=1)
