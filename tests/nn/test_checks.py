"""Each check lets good values pass, refuses the nearest bad one, and names it."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from coursekit.models.bert import Bert, BertConfig
from coursekit.models.gpt import GPT, GPTConfig
from coursekit.models.induction import AttentionOnly, AttentionOnlyConfig
from coursekit.models.llama import Llama, LlamaConfig
from coursekit.models.nnlm import NNLM, NNLMConfig
from coursekit.models.reward import RewardModel
from coursekit.models.rnn_lm import RNNLM, RNNLMConfig
from coursekit.models.seq2seq import Seq2Seq, Seq2SeqConfig
from coursekit.models.transformer import Transformer, TransformerConfig
from coursekit.nn.checks import check_dropout, check_heads, check_sizes, check_token

GOOD = {"vocab_size": 3, "d_model": 12, "n_heads": 4, "dropout": 0.0, "end_id": 2}


def check_all(**changes):
    config = SimpleNamespace(**GOOD | changes)
    check_sizes(config, "vocab_size", "d_model", "n_heads")
    check_heads(config)
    check_dropout(config)
    check_token(config, "end_id")


@pytest.mark.parametrize(
    "changes", [{}, {"vocab_size": 1, "end_id": 0}, {"dropout": 0.99}, {"n_heads": 12}, {"n_heads": np.int64(4)}]
)
def test_good_values_pass(changes):
    check_all(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab_size": 0}, "^vocab_size=0: must be at least 1$"),
        ({"n_heads": 0}, "^n_heads=0: must be at least 1$"),
        ({"d_model": 12.0}, r"^d_model=12\.0: must be a whole number$"),
        ({"n_heads": True}, "^n_heads=True: must be a whole number$"),
        ({"vocab_size": "3"}, "^vocab_size='3': must be a whole number$"),
        ({"n_heads": None}, "^n_heads=None: must be a whole number$"),
        ({"n_heads": 5}, "^n_heads=5: must divide d_model=12$"),
        ({"dropout": 1.0}, "^dropout=1.0: must be a probability below 1$"),
        ({"dropout": None}, "^dropout=None: must be a probability below 1$"),
        ({"dropout": -0.1}, "^dropout=-0.1: must be a probability below 1$"),
        ({"end_id": 3}, r"^end_id=3: must lie in 0..2 \(vocab_size - 1\)$"),
        ({"end_id": -1}, r"^end_id=-1: must lie in 0..2 \(vocab_size - 1\)$"),
    ],
)
def test_bad_values_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        check_all(**changes)


V, L = 11, 6  # the vocabulary's size, and max_length
SIZES = {"d_model": 8, "n_heads": 2, "n_layers": 1, "max_length": L}
MASK = torch.ones(2, 4, dtype=torch.bool)


def gpt() -> GPT:
    return GPT(GPTConfig(V, d_ff=16, **SIZES))


def transformer():
    return Transformer(TransformerConfig(V, d_ff=16, **SIZES))


def seq2seq(score):
    return Seq2Seq(Seq2SeqConfig(V, bos_id=1, score=score))


def bert():
    return Bert(BertConfig(V, d_ff=16, **SIZES))


TOKENS = torch.full((2, 4), 3)
# what the tokens are called, what reads them (with their mask, see MASKED), and whether it has a max_length
READERS = {
    "gpt": lambda: ("ids", gpt(), True),
    "reward": lambda: ("ids", RewardModel(gpt()), True),
    "llama": lambda: ("ids", Llama(LlamaConfig(V, n_kv_heads=2, d_ff=16, **SIZES)), True),
    "attention only": lambda: ("ids", AttentionOnly(AttentionOnlyConfig(V, **SIZES)), True),
    "bert": lambda: ("ids", bert(), True),
    "rnn": lambda: ("ids", RNNLM(RNNLMConfig(V, 8, 8)), False),
    "nnlm": lambda: ("context", NNLM(NNLMConfig(V, n=5)), False),
    "transformer's source": lambda: ("source", lambda x, mask: transformer()(x, mask, TOKENS), True),
    "transformer's target": lambda: ("target", lambda x: transformer()(TOKENS, MASK, x), True),
    "transformer's inputs": lambda: ("inputs", lambda x: transformer().decode(x, torch.zeros(2, 4, 8), MASK), True),
    "seq2seq's source": lambda: ("source", lambda x, mask: seq2seq("dot")(x, mask, TOKENS), False),
    "seq2seq's target": lambda: ("target", lambda x: seq2seq(None)(TOKENS, MASK, x), False),
}
MASKED = ("gpt", "reward", "llama", "attention only", "bert", "transformer's source", "seq2seq's source")


@pytest.mark.parametrize("reader", READERS)
def test_every_model_of_tokens_refuses_what_it_cannot_read(reader):
    name, read, bounded = READERS[reader]()
    masks = [MASK] if reader in MASKED else []
    read(TOKENS, *masks)
    above, below = TOKENS.clone(), TOKENS.clone()
    above[1, -1], below[0, -1] = V, -1
    for wrong in (above, below):
        with pytest.raises(ValueError, match=f"^{name} must lie in 0..10: the vocabulary has 11 tokens$"):
            read(wrong, *masks)
    for wrong in (TOKENS[0], TOKENS[None], TOKENS.float(), TOKENS > 2):
        with pytest.raises(ValueError, match=f"^{name} of shape .*: must be \\(B, T\\), whole numbers"):
            read(wrong, *masks)
    if bounded:
        with pytest.raises(ValueError, match=r"^7 positions: the model was built for max_length=6$"):
            read(torch.zeros(2, 7, dtype=torch.long), *([torch.ones(2, 7).bool()] if masks else []))
    if masks:
        with pytest.raises(ValueError, match=r"^mask of shape \(2, 3\): must be \(2, 4\), as the tokens$"):
            read(TOKENS, MASK[:, :3])
        text = "text" if name == "ids" else name
        with pytest.raises(ValueError, match=f"^a {text} has no real token: every row of its mask needs at least one"):
            read(TOKENS, MASK & torch.tensor([[True], [False]]))


@pytest.mark.parametrize("reader", [reader for reader in READERS if reader not in ("rnn", "nnlm")])
def test_a_text_of_no_tokens_is_refused(reader):
    name, read, _ = READERS[reader]()
    for masks in ([], [MASK[:, :0]]) if name == "ids" else ([MASK[:, :0]] if reader in MASKED else [],):
        with pytest.raises(ValueError, match=rf"^{name} of shape \(2, 0\): must be \(B, T\), with at least one token$"):
            read(TOKENS[:, :0], *masks)


def test_the_caches_of_a_decoder_are_as_many_as_its_blocks():
    model = transformer()
    memory = model.encode(TOKENS, MASK)
    for caches in ([], model.new_caches(L, 4) * 2):
        with pytest.raises(ValueError, match=f"^{len(caches)} caches for 1 blocks: must be one for each"):
            model.decode(TOKENS, memory, MASK, caches)


def test_a_context_of_another_length_is_refused():
    with pytest.raises(ValueError, match="context of 4 tokens: must have n - 1 = 3"):
        NNLM(NNLMConfig(V, n=4))(TOKENS)


def test_segments_are_those_of_the_tokens():
    with pytest.raises(ValueError, match=r"segments of shape \(2, 3\): must be \(2, 4\), as the tokens"):
        bert()(TOKENS, segments=torch.zeros(2, 3, dtype=torch.long))
    with pytest.raises(ValueError, match="segments must be 0 in the first text and 1 in the second"):
        bert()(TOKENS, segments=torch.full((2, 4), 2))
