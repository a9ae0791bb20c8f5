"""Recurrent sequence to sequence with attention: Bahdanau et al. (2014) and Luong et al. (2015).

Read it top to bottom: the configuration, the encoder, the decoder of Luong, the decoder of Bahdanau, the
model that joins them, the objective.

Call chain: ``Seq2Seq.forward`` -> ``Encoder``, then ``LuongDecoder.all_steps``, or, with Bahdanau or input feeding,
for each step ``BahdanauDecoder.step``, ``LuongDecoder.step`` -> ``rnn_step`` in ``nn/cells.py``; both ->
``ScoreAttention`` in ``nn/scores.py`` -> ``masked_softmax`` in ``nn/attention.py``.

Legend: B batch, S source positions, T target steps, V vocabulary size, E embedding size, D size of a
decoder state, K size of an encoder state (both directions together where there are two).
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from coursekit.nn.cells import State, rnn_step
from coursekit.nn.checks import check_sizes, check_text, check_token
from coursekit.nn.losses import summed_cross_entropy
from coursekit.nn.sampling import next_token
from coursekit.nn.scores import SCORES, Memory, ScoreAttention


@dataclass(frozen=True)
class Seq2SeqConfig:
    """Sizes and choices of a ``Seq2Seq``.

    Attributes:
        vocab_size: number of symbols, the start symbol included; source and target share them.
        bos_id: the start symbol that the decoder reads first.
        embed_size, hidden_size: E and D.
        encoder_size: units of the encoder in each direction; None for ``hidden_size``.
        cell: ``"lstm"`` or ``"gru"``.
        score: None for no attention; ``"dot"``, ``"general"`` or ``"concat"`` for Luong's decoder;
            ``"additive"`` for Bahdanau's.
        input_feeding: Luong's decoder also reads its previous ``h~`` (section 3.3).
        bidirectional: one encoder reads left to right, another right to left (Bahdanau, section 3.2).
    """

    vocab_size: int
    bos_id: int
    embed_size: int = 16
    hidden_size: int = 16
    encoder_size: int | None = None
    cell: Literal["lstm", "gru"] = "lstm"
    score: Literal["dot", "general", "concat", "additive"] | None = None
    input_feeding: bool = False
    bidirectional: bool = False

    def __post_init__(self):
        if self.encoder_size is None:
            object.__setattr__(self, "encoder_size", self.hidden_size)
        check_sizes(self, "vocab_size", "embed_size", "hidden_size", "encoder_size")
        check_token(self, "bos_id")
        if self.cell not in ("lstm", "gru"):
            raise ValueError(f"cell={self.cell!r}: must be 'lstm' or 'gru'")
        if self.score is not None and self.score not in SCORES:
            raise ValueError(f"score={self.score!r}: must be None or one of {', '.join(map(repr, SCORES))}")
        if self.score == "dot" and self.key_size != self.hidden_size:
            raise ValueError(
                f"score='dot' with hidden_size={self.hidden_size} and encoder states of {self.key_size}: the dot "
                "product needs equal sizes; change encoder_size, or use score='general'"
            )
        if self.input_feeding and self.score not in ("dot", "general", "concat"):
            raise ValueError(
                f"input_feeding=True with score={self.score!r}: only Luong's decoder feeds its h~ back; "
                "use score='dot', 'general' or 'concat'"
            )

    @property
    def key_size(self) -> int:
        """Size K of an encoder state."""
        return self.encoder_size * (1 + self.bidirectional)

    @classmethod
    def rnnsearch(cls, vocab_size: int = 30_000, bos_id: int = 0) -> "Seq2SeqConfig":
        """Vocabulary, embedding and recurrent layers of Bahdanau et al. (2014), section 4 and appendix A.2.3."""
        return cls(
            vocab_size, bos_id, embed_size=620, hidden_size=1000, cell="gru", score="additive", bidirectional=True
        )


def recurrent(cell: str, input_size: int, hidden_size: int, bidirectional: bool = False) -> nn.LSTM | nn.GRU:
    """One recurrent layer that takes (B, T, input_size)."""
    layer = nn.LSTM if cell == "lstm" else nn.GRU
    return layer(input_size, hidden_size, batch_first=True, bidirectional=bidirectional)


class Encoder(nn.Module):
    """Reads the source; returns all its states and the state that the decoder starts from.

    Padding may stand anywhere: the real symbols are moved to the front and packed, so that neither
    direction reads padding. The decoder starts from the state that has read all of the source: the one at
    the last real symbol or, where there are two directions, the backward one at the first.
    """

    def __init__(self, config: Seq2SeqConfig):
        super().__init__()
        c = config
        self.embedding = nn.Embedding(c.vocab_size, c.embed_size)
        self.rnn = recurrent(c.cell, c.embed_size, c.encoder_size, c.bidirectional)
        self.to_decoder = None
        if c.key_size != c.hidden_size or c.bidirectional:
            parts = 2 if c.cell == "lstm" else 1  # h and c, or h alone
            self.to_decoder = nn.ModuleList(nn.Linear(c.encoder_size, c.hidden_size) for _ in range(parts))

    def forward(self, source: Tensor, mask: Tensor) -> tuple[Tensor, State]:
        """``source`` and ``mask`` (B, S) -> states (B, S, K) and the decoder's first state, (B, D) each."""
        front = mask.int().argsort(dim=1, descending=True, stable=True)  # real positions first, in order
        x = self.embedding(source.gather(1, front))  # (B, S, E)
        packed = pack_padded_sequence(x, mask.sum(dim=1).cpu(), batch_first=True, enforce_sorted=False)
        packed, final = self.rnn(packed)
        states, _ = pad_packed_sequence(packed, batch_first=True, total_length=x.shape[1])  # (B, S, K)
        back = front.argsort(dim=1)[:, :, None].expand_as(states)
        states = states.gather(1, back)  # each state at its symbol's own place again
        return states, self.to_first(final)

    def to_first(self, final: Tensor | State) -> State:
        """The decoder's first state, (B, D) each, from the last of ``rnn``, (directions, B, encoder_size) each."""
        final = final if isinstance(final, tuple) else (final,)
        # f[-1]: forward at the last symbol, or backward at the first; either has read the whole source
        if self.to_decoder is None:
            return tuple(f[-1] for f in final)
        return tuple(torch.tanh(to(f[-1])) for to, f in zip(self.to_decoder, final))  # s_0 = tanh(W h_1)


class LuongDecoder(nn.Module):
    """Steps first, then looks: ``h~_t = tanh(W_c [c_t; h_t])`` with ``c_t`` asked for by ``h_t`` itself.

    Without attention ``h~_t = h_t``: then everything about the source must fit into the first state.
    With input feeding the cell reads ``[E y_{t-1}; h~_{t-1}]``, otherwise ``E y_{t-1}`` alone.
    In the latter case the states of all steps depend on nothing but the given symbols, and one fused call
    computes them.

    Source: Luong et al. (2015), sections 3.1 and 3.3, equation 5.
    """

    def __init__(self, config: Seq2SeqConfig):
        super().__init__()
        c = config
        self.embedding = nn.Embedding(c.vocab_size, c.embed_size)
        self.rnn = recurrent(c.cell, c.embed_size + c.hidden_size * c.input_feeding, c.hidden_size)
        self.input_feeding = c.input_feeding
        self.attention = None
        if c.score is not None:
            self.attention = ScoreAttention(c.score, c.hidden_size, c.key_size)
            self.combine = nn.Linear(c.key_size + c.hidden_size, c.hidden_size, bias=False)
        self.one_call = not c.input_feeding

    def start(self, states: Tensor, mask: Tensor, first: State) -> tuple[Memory | None, State, Tensor]:
        """Memory, first state and first ``h~`` (zeros)."""
        memory = None if self.attention is None else self.attention.remember(states, mask)
        return memory, first, torch.zeros_like(first[0])

    def attentional_state(self, h: Tensor, memory: Memory | None) -> Tensor:
        """``h~`` (B, T, D) for decoder states (B, T, D)."""
        if memory is None:
            return h
        context = self.attention(h, memory)  # (B, T, K)
        return torch.tanh(self.combine(torch.cat([context, h], dim=-1)))  # (B, T, K + D) -> (B, T, D)

    def all_steps(self, inputs: Tensor, memory: Memory | None, state: State) -> Tensor:
        """``h~`` of all steps (B, T, D) for given input symbols (B, T), in one fused call."""
        first = tuple(s[None].contiguous() for s in state)  # (B, D) -> (1, B, D), as PyTorch wants it
        h, _ = self.rnn(self.embedding(inputs), first if len(first) == 2 else first[0])  # (B, T, D)
        return self.attentional_state(h, memory)

    def step(self, symbol: Tensor, memory: Memory | None, state: State, h_tilde: Tensor) -> tuple[State, Tensor]:
        """One step: input symbol (B,) and the last state and ``h~`` -> the new state and ``h~`` (B, D)."""
        x = self.embedding(symbol)  # (B, E)
        if self.input_feeding:
            x = torch.cat([x, h_tilde], dim=-1)  # (B, E + D)
        state = rnn_step(self.rnn, x, state)
        return state, self.attentional_state(state[0][:, None], memory)[:, 0]


class BahdanauDecoder(nn.Module):
    """Looks first, then steps: ``c_t`` is asked for by ``s_{t-1}`` and goes into the cell's input.

    ``s_t = cell([E y_{t-1}; c_t], s_{t-1})``, read out as ``t~_t = tanh(W_o [s_t; c_t; E y_{t-1}])``.

    Source: Bahdanau et al. (2014), equations 4 to 6 and appendix A.2.2. The read-out differs from the
    appendix: a tanh layer of D units instead of maxout, and it reads ``s_t`` as in equation 4, not ``s_{t-1}``.
    """

    one_call = False  # each state depends on the context that the state before it asked for

    def __init__(self, config: Seq2SeqConfig):
        super().__init__()
        c = config
        self.embedding = nn.Embedding(c.vocab_size, c.embed_size)
        self.attention = ScoreAttention(c.score, c.hidden_size, c.key_size)
        self.rnn = recurrent(c.cell, c.embed_size + c.key_size, c.hidden_size)
        self.combine = nn.Linear(c.hidden_size + c.key_size + c.embed_size, c.hidden_size, bias=False)

    def start(self, states: Tensor, mask: Tensor, first: State) -> tuple[Memory, State, Tensor]:
        """Memory, first state and an unused placeholder (Luong's decoder has its ``h~`` there)."""
        return self.attention.remember(states, mask), first, torch.zeros_like(first[0])

    def step(self, symbol: Tensor, memory: Memory, state: State, _: Tensor) -> tuple[State, Tensor]:
        """One step: input symbol (B,) and the last state -> the new state and the read-out (B, D)."""
        x = self.embedding(symbol)  # (B, E)
        context = self.attention(state[0][:, None], memory)[:, 0]  # (B, K)
        state = rnn_step(self.rnn, torch.cat([x, context], dim=-1), state)  # (B, E + K) -> (B, D) each
        read_out = self.combine(torch.cat([state[0], context, x], dim=-1))  # (B, D + K + E) -> (B, D)
        return state, torch.tanh(read_out)


class Seq2Seq(nn.Module):
    """Encoder, decoder and the map from its read-out to the logits of the next symbol."""

    def __init__(self, config: Seq2SeqConfig):
        super().__init__()
        self.config = config
        self.encoder = Encoder(config)
        self.decoder = (BahdanauDecoder if config.score == "additive" else LuongDecoder)(config)
        self.to_logits = nn.Linear(config.hidden_size, config.vocab_size)

    def forward(
        self,
        source: Tensor,
        source_mask: Tensor,
        target: Tensor,
        teacher_forcing: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Logits (B, T, V) of each target symbol, given the source and the target symbols before it.

        Args:
            source: symbols, (B, S).
            source_mask: (B, S), True where the source is real; every row needs one True.
            target: symbols, (B, T).
            teacher_forcing: probability that a step reads the true previous symbol rather than the
                model's own most likely one, drawn for each sequence and step (scheduled sampling,
                arXiv 1506.03099).
            generator: draws those, on the CPU; None draws from torch's global one.

        Raises:
            ValueError: a source has no real token; ``source`` or ``target`` are not (B, T), no whole numbers, or none
                of the vocabulary's; ``source_mask`` has another shape; or ``teacher_forcing`` is no probability.
        """
        check_text(target, self.config.vocab_size, name="target")
        if not 0 <= teacher_forcing <= 1:
            raise ValueError(f"teacher_forcing={teacher_forcing}: a probability lies in 0..1")
        memory, state, h_tilde = self.start(source, source_mask)
        inputs = torch.cat([self.first_symbol(source)[:, None], target[:, :-1]], dim=1)  # (B, T)
        if teacher_forcing == 1 and self.decoder.one_call:
            return self.to_logits(self.decoder.all_steps(inputs, memory, state))
        forced = torch.rand(inputs.shape, generator=generator).to(inputs.device) < teacher_forcing  # (B, T)
        logits = []
        for t in range(inputs.shape[1]):
            own = logits[-1].argmax(dim=-1) if t else inputs[:, 0]
            symbol = torch.where(forced[:, t], inputs[:, t], own)
            state, h_tilde = self.decoder.step(symbol, memory, state, h_tilde)
            logits.append(self.to_logits(h_tilde))  # (B, V)
        return torch.stack(logits, dim=1)  # T x (B, V) -> (B, T, V)

    @torch.no_grad()
    def generate(
        self,
        source: Tensor,
        source_mask: Tensor,
        steps: int,
        temperature: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Decode ``steps`` symbols, each fed back as the next input: (B, steps).

        Args:
            source, source_mask: as in ``forward``.
            steps: how many symbols to decode.
            temperature: 0 takes the most likely symbol (greedy); above 0 samples from
                ``softmax(logits / temperature)``.
            generator: draws the samples, on the device of ``source``.
        """
        if steps < 1:
            raise ValueError(f"steps={steps}: decode at least one symbol")
        if temperature < 0:
            raise ValueError(f"temperature={temperature}: 0 is greedy, above 0 samples")
        memory, state, h_tilde = self.start(source, source_mask)
        symbols = [self.first_symbol(source)]
        for _ in range(steps):
            state, h_tilde = self.decoder.step(symbols[-1], memory, state, h_tilde)
            symbols.append(next_token(self.to_logits(h_tilde), temperature, generator=generator))  # (B,)
        return torch.stack(symbols[1:], dim=1)  # (B, steps)

    def start(self, source: Tensor, source_mask: Tensor) -> tuple[Memory | None, State, Tensor]:
        """Encode the source: memory, first decoder state, first ``h~``."""
        check_text(source, self.config.vocab_size, mask=source_mask, name="source")
        states, first = self.encoder(source, source_mask)
        return self.decoder.start(states, source_mask, first)

    def first_symbol(self, source: Tensor) -> Tensor:
        return source.new_full((source.shape[0],), self.config.bos_id)  # (B,)


def seq2seq_loss(model: Seq2Seq, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Cross-entropy over the real target symbols: its sum (nats) and their number.

    ``batch`` holds ``source``, ``source_mask`` (B, S), ``target`` and ``target_mask`` (B, T).
    """
    logits = model(batch["source"], batch["source_mask"], batch["target"])
    return summed_cross_entropy(logits, batch["target"], batch["target_mask"])
