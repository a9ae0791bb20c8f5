"""GPT, GPT-2 and GPT-3: language models that are a Transformer's decoder and nothing else.

Read it top to bottom: the configuration with the published sizes, the model, its objective. How the next token is
chosen from the logits is in ``coursekit/nn/sampling.py``.

Call chain: ``GPT.forward`` -> ``GPT.hidden`` -> ``LearnedPositions`` in ``nn/positions.py``, then
``through_blocks`` and, for each layer, ``Block`` in ``nn/blocks.py`` -> ``MultiHeadAttention`` -> ``attend`` in
``nn/attention.py``.

Legend: B batch, T tokens, S tokens together with those in the caches, V vocabulary size, D = d_model, H = n_heads,
L = n_layers.

Source: Radford, Narasimhan, Salimans and Sutskever (2018), *Improving Language Understanding by Generative
Pre-Training* (GPT); Radford, Wu, Child, Luan, Amodei and Sutskever (2019), *Language Models are Unsupervised Multitask
Learners* (GPT-2); Brown et al. (2020), arXiv 2005.14165 (GPT-3). What the papers leave open is as in OpenAI's programs.
"""

from dataclasses import dataclass
from functools import partial
from math import sqrt

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from coursekit.models.pretrained import Pretrained
from coursekit.nn.attention import MultiHeadAttention
from coursekit.nn.blocks import Block, FeedForward, through_blocks
from coursekit.nn.cache import Cache
from coursekit.nn.checks import check_caches, check_dropout, check_heads, check_ids, check_mask, check_sizes, check_text
from coursekit.nn.dropout import Dropout
from coursekit.nn.masks import padding_mask
from coursekit.nn.positions import LearnedPositions, positions_of
from coursekit.nn.tied import tied_logits

EPS = 1e-5  # of every layer norm, in the programs
STD = 0.02  # of weights when they are drawn (GPT, section 4.1)
POSITIONS_STD = 0.01  # of GPT-2's positions at first, in its program


@dataclass(frozen=True)
class GPTConfig:
    """Sizes and choices of a ``GPT``; the defaults are the smallest GPT-2.

    Attributes:
        vocab_size: V.
        d_model, n_heads, d_ff, n_layers: D, H, the width of the feed-forward networks, L.
        max_length: largest number of tokens, the context length.
        dropout: in training: on the embeddings, the attention weights and both branches of a block.
        norm_first: True from GPT-2 on: layer norm before each branch, one more at the end, and the layers that write
            to the residual stream begin smaller. False for GPT: layer norm after each residual connection.
    """

    vocab_size: int = 50_257
    d_model: int = 768
    n_heads: int = 12
    d_ff: int = 3072
    n_layers: int = 12
    max_length: int = 1024
    dropout: float = 0.1
    norm_first: bool = True

    def __post_init__(self):
        check_sizes(self, "vocab_size", "d_model", "n_heads", "d_ff", "n_layers", "max_length")
        check_heads(self)
        check_dropout(self)

    @classmethod
    def gpt1(cls, **changes) -> "GPTConfig":
        """GPT (2018, section 4.1), with changes: 116,534,784 parameters."""
        return cls(**{"vocab_size": 40_478, "max_length": 512, "norm_first": False} | changes)

    @classmethod
    def gpt2(cls, **changes) -> "GPTConfig":
        """The smallest GPT-2 (2019, table 2), with changes: 124,439,808 parameters, though the table says 117 million.

        The paper names no dropout; that of the published checkpoints is 0.1.
        """
        return cls(**changes)

    @classmethod
    def gpt2_medium(cls, **changes) -> "GPTConfig":
        """The second GPT-2 of table 2, with changes: 354,823,168 parameters."""
        return cls(**{"d_model": 1024, "n_heads": 16, "d_ff": 4096, "n_layers": 24} | changes)

    @classmethod
    def gpt2_large(cls, **changes) -> "GPTConfig":
        """The third GPT-2 of table 2, with changes: 774,030,080 parameters."""
        return cls(**{"d_model": 1280, "n_heads": 20, "d_ff": 5120, "n_layers": 36} | changes)

    @classmethod
    def gpt2_xl(cls, **changes) -> "GPTConfig":
        """The largest GPT-2 of table 2, with changes: 1,557,611,200 parameters."""
        return cls(**{"d_model": 1600, "n_heads": 25, "d_ff": 6400, "n_layers": 48} | changes)

    @classmethod
    def gpt3(cls, **changes) -> "GPTConfig":
        """GPT-3 (2020, table 2.1), with changes: 174,604,259,328 parameters.

        Every layer attends to all that came before; in the paper every other one only to a band of it (section 2.1),
        which takes away no parameter. No dropout is named (appendix B).
        """
        sizes = {"d_model": 12_288, "n_heads": 96, "d_ff": 49_152, "n_layers": 96}
        return cls(**sizes | {"max_length": 2048, "dropout": 0.0} | changes)


class GPT(Pretrained):
    """``p(u_t | u_1 … u_{t-1})`` for every place t of a text at once.

    ``h_0 = U W_e + W_p``, ``h_l = block(h_{l-1})``, ``p = softmax(h_L W_e^T)`` (GPT, section 3.1, equation 2): each
    token's vector is the sum of two learned ones, for itself and for its position; blocks follow in which no token
    sees a later one; and the matrix of the embeddings is that of the output too. From GPT-2 on, ``h_L`` is normalised
    before it.

    Attributes:
        gradient_checkpointing: set it to True and training takes less memory and a third more work, with the same
            numbers: see ``through_blocks``.
    """

    def __init__(self, config: GPTConfig):
        super().__init__()
        self.config = c = config
        self.gradient_checkpointing = False
        self.tokens = nn.Embedding(c.vocab_size, c.d_model)
        self.positions = LearnedPositions(c.max_length, c.d_model)
        self.dropout = Dropout(c.dropout)
        self.blocks = nn.ModuleList(
            Block(
                MultiHeadAttention(c.d_model, c.n_heads, dropout=c.dropout),
                # the papers say GELU; the programs compute it with tanh, the first GPT's too
                FeedForward(c.d_model, c.d_ff, "gelu_tanh"),
                norm=partial(nn.LayerNorm, eps=EPS),
                norm_first=c.norm_first,
                dropout=c.dropout,
            )
            for _ in range(c.n_layers)
        )
        self.norm = nn.LayerNorm(c.d_model, eps=EPS) if c.norm_first else nn.Identity()
        self.init_weights()

    def init_weights(self) -> None:
        """Draw all matrices and embeddings from ``N(0, 0.02^2)``; biases are 0.

        From GPT-2 on, the last layer of each branch has ``0.02 / sqrt(2 L)``: the stream is a sum of 2 L branches, and
        so its variance does not grow with their number (GPT-2, section 2.3).
        """
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=STD)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
        if self.config.norm_first:
            nn.init.normal_(self.positions.encoding, std=POSITIONS_STD)
            for block in self.blocks:
                for layer in (block.attention.out, block.feed_forward.down):
                    nn.init.normal_(layer.weight, std=STD / sqrt(2 * self.config.n_layers))

    def hidden(self, ids: Tensor, mask: Tensor | None = None, caches: list[Cache] | None = None) -> Tensor:
        """The last hidden states, (B, T, D), which ``logits`` takes; arguments and errors as for ``forward``."""
        check_caches(caches, len(self.blocks))
        start = caches[0].length if caches else 0
        check_text(ids, self.config.vocab_size, self.config.max_length, mask, start)
        position_ids = start if mask is None else positions_of(mask)[:, start:]  # padding is no position
        x = self.dropout(self.positions(self.tokens(ids), position_ids))  # (B, T, D)
        may_attend = padding_mask(mask)  # (B, 1, 1, S)
        x = through_blocks(x, self.blocks, caches, self.gradient_checkpointing, mask=may_attend, causal=True)
        return self.norm(x)

    def forward(self, ids: Tensor, mask: Tensor | None = None, caches: list[Cache] | None = None) -> Tensor:
        """Logits (B, T, V) of the token that follows each of ``ids`` (B, T).

        Args:
            mask: the attention mask, (B, S), True where a token is real; None where all are. Padding may stand on
                either side and changes nothing for the real tokens.
            caches: one for each block, from ``new_caches``. ``ids`` then continue the tokens in the caches, and
                ``mask`` covers those too: S = T + their number. For decoding, without gradients.

        Raises:
            ValueError: a text has no real token, or more places than ``max_length``; or ``mask`` has another shape; or
                ``ids`` are not (B, T), no whole numbers, or, without earlier tokens, none of the vocabulary's; or there
                are more or fewer caches than blocks.
        """
        return self.logits(self.hidden(ids, mask, caches))

    def logits(self, hidden: Tensor) -> Tensor:
        """Apply the output layer to hidden states: (..., D) -> (..., V)."""
        return tied_logits(hidden, self.tokens.weight)

    def new_caches(self, max_length: int) -> list[Cache]:
        """Empty caches for decoding step by step, one for each block, with room for ``max_length`` tokens."""
        return [Cache(max_length) for _ in self.blocks]


def gpt_loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """The objective for ``Training``: ``- sum over t of ln p(u_t | u_1 … u_{t-1})`` (nats), and how many terms it has.

    A batch holds ``ids`` (B, T). It may hold ``mask`` (B, T), True where a token is real, and ``loss_mask`` (B, T),
    True at the tokens that are to be learned; False, for example, at those of a prompt, which the model then only
    reads. The first token of a text is never predicted, since no token comes before it; so ``max_length + 1`` tokens
    still fit.

    Raises:
        ValueError: ``ids`` are not (B, T), T at least 2, or no whole numbers; or a mask has another shape, or is not
            boolean.

    Source: GPT, section 3.1, equation 1.
    """
    ids, mask = batch["ids"], batch.get("mask")
    check_ids(ids)
    if ids.shape[1] < 2:
        raise ValueError(f"ids of shape {tuple(ids.shape)}: at least two tokens, since the first is never predicted")
    for name in ("mask", "loss_mask"):
        if name in batch:
            check_mask(name, batch[name], ids.shape, "as the tokens")
    learned = torch.ones_like(ids, dtype=torch.bool) if "loss_mask" not in batch else batch["loss_mask"]
    learned = learned[:, 1:]  # (B, T - 1)
    if mask is not None:
        learned = learned & mask[:, 1:] & mask[:, :-1]  # nothing is learned from what is predicted at padding
        mask = mask[:, :-1]
        mask = mask | ~mask.any(dim=1, keepdim=True)  # a text of one token, padded on the left, is only padding now
    logits = model(ids[:, :-1], mask)  # (B, T - 1, V): at each place of the token after it
    check_ids(ids[:, -1:], logits.shape[-1])  # the only ones that the model has not read
    target = ids[:, 1:].long().masked_fill(~learned, -100)  # (B, T - 1); cross_entropy leaves out -100
    logits = logits.float().flatten(0, 1)  # (B, T - 1, V) -> (B (T - 1), V)
    return F.cross_entropy(logits, target.flatten(), reduction="sum"), learned.sum()
