"""The blocks beside PyTorch's layers, with every parameter randomised, and the properties they must keep."""

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import coursekit.nn.attention
import coursekit.nn.dropout
from coursekit.nn.attention import MultiHeadAttention
from coursekit.nn.blocks import Block, DecoderBlock, DropPath, FeedForward
from coursekit.nn.cache import Cache
from coursekit.nn.masks import causal_mask, padding_mask
from tests.conftest import randomise

D, H, F = 12, 3, 20
THEIR_ACTIVATION = {"relu": "relu", "gelu": "gelu", "gelu_tanh": lambda x: nn.functional.gelu(x, approximate="tanh")}


def copy(pairs):
    with torch.no_grad():
        for theirs, ours in pairs:
            theirs.copy_(ours)


def check_all(pairs, ours, theirs):
    """Without biases neither side has one: the pairs are all parameters of both."""
    pairs = [(their, our) for their, our in pairs if not (their is None and our is None)]
    copy(pairs)
    assert len(pairs) == len(list(ours.parameters())) == len(list(theirs.parameters()))
    return pairs


def their_attention(theirs, ours):
    return [
        (theirs.in_proj_weight, ours.qkv.weight),
        (theirs.in_proj_bias, ours.qkv.bias),
        (theirs.out_proj.weight, ours.out.weight),
        (theirs.out_proj.bias, ours.out.bias),
    ]


def same(theirs, ours):
    return [(theirs.weight, ours.weight), (theirs.bias, ours.bias)]


def parts(activation="relu", dropout=0.0, bias=True, n_attentions=1):
    """What a block is made of: one attention or two, and the feed-forward network."""
    attentions = [MultiHeadAttention(D, H, bias, dropout) for _ in range(n_attentions)]
    return *attentions, FeedForward(D, F, activation, bias, dropout)


def encoder_pair(norm_first, activation, eps, dropout=0.0, bias=True):
    options = {"norm_first": norm_first, "dropout": dropout, "bias": bias}
    norm = partial(nn.LayerNorm, eps=eps, bias=bias)
    ours = Block(*parts(activation, dropout, bias), norm=norm, norm_first=norm_first, dropout=dropout)
    ours = randomise(ours).double()
    theirs = nn.TransformerEncoderLayer(
        *(D, H, F), activation=THEIR_ACTIVATION[activation], layer_norm_eps=eps, batch_first=True, **options
    ).double()
    pairs = [
        *their_attention(theirs.self_attn, ours.attention),
        *same(theirs.linear1, ours.feed_forward.up),
        *same(theirs.linear2, ours.feed_forward.down),
        *same(theirs.norm1, ours.attention_residual.norm),
        *same(theirs.norm2, ours.feed_forward_residual.norm),
    ]
    return ours, theirs, check_all(pairs, ours, theirs)


def decoder_pair(norm_first, activation, eps, dropout=0.0, bias=True):
    options = {"norm_first": norm_first, "dropout": dropout, "bias": bias}
    norm = partial(nn.LayerNorm, eps=eps, bias=bias)
    ours = DecoderBlock(
        *parts(activation, dropout, bias, n_attentions=2), norm=norm, norm_first=norm_first, dropout=dropout
    )
    ours = randomise(ours).double()
    theirs = nn.TransformerDecoderLayer(
        *(D, H, F), activation=THEIR_ACTIVATION[activation], layer_norm_eps=eps, batch_first=True, **options
    ).double()
    pairs = [
        *their_attention(theirs.self_attn, ours.self_attention),
        *their_attention(theirs.multihead_attn, ours.cross_attention),
        *same(theirs.linear1, ours.feed_forward.up),
        *same(theirs.linear2, ours.feed_forward.down),
        *same(theirs.norm1, ours.self_residual.norm),
        *same(theirs.norm2, ours.cross_residual.norm),
        *same(theirs.norm3, ours.feed_forward_residual.norm),
    ]
    return ours, theirs, check_all(pairs, ours, theirs)


def equal_with_gradients(found, expected, pairs, inputs):
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    ours = torch.autograd.grad((found**2).sum(), [our for _, our in pairs] + inputs)
    theirs = torch.autograd.grad((expected**2).sum(), [their for their, _ in pairs] + inputs)
    for our, their in zip(ours, theirs):
        torch.testing.assert_close(our, their, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("activation", ["relu", "silu", "gelu"])
def test_without_a_gradient_the_numbers_are_the_same_and_the_input_stays(activation, gated, generator):
    layer = randomise(FeedForward(4, 6, activation, gated=gated))
    x = torch.randn(2, 3, 4, generator=generator)
    expected, before = layer(x), x.clone()
    with torch.inference_mode():
        assert torch.equal(layer(x), expected)
    assert torch.equal(x, before)


def test_with_a_gate_the_activation_is_the_gates():
    ours = randomise(FeedForward(D, F, "silu", gated=True)).eval()
    x = torch.randn(2, 5, D)
    gate, up = (x @ layer.weight.T + layer.bias for layer in (ours.gate, ours.up))
    expected = (gate / (1 + torch.exp(-gate)) * up) @ ours.down.weight.T + ours.down.bias
    torch.testing.assert_close(ours(x), expected)


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("activation", THEIR_ACTIVATION)
@pytest.mark.parametrize("eps", [1e-5, 0.1])
@pytest.mark.parametrize("bias", [True, False])
def test_block_is_pytorchs_encoder_layer(norm_first, activation, eps, bias, generator):
    ours, theirs, pairs = encoder_pair(norm_first, activation, eps, bias=bias)
    x = torch.randn(2, 5, D, generator=generator, dtype=torch.float64, requires_grad=True)
    real = torch.tensor([[True] * 5, [True, True, True, False, False]])
    expected = theirs(x, src_mask=~causal_mask(5), src_key_padding_mask=~real)
    equal_with_gradients(ours(x, padding_mask(real), causal=True), expected, pairs, [x])


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("eps", [1e-5, 0.1])
@pytest.mark.parametrize("bias", [True, False])
def test_decoder_block_is_pytorchs_decoder_layer(norm_first, activation, eps, bias, generator):
    ours, theirs, pairs = decoder_pair(norm_first, activation, eps, bias=bias)
    x, memory = (torch.randn(2, n, D, generator=generator, dtype=torch.float64, requires_grad=True) for n in (4, 6))
    real = torch.tensor([[True] * 6, [True, True, False, False, False, False]])
    expected = theirs(x, memory, tgt_mask=~causal_mask(4), memory_key_padding_mask=~real)
    equal_with_gradients(ours(x, memory, memory_mask=padding_mask(real)), expected, pairs, [x, memory])
    kept = torch.tensor([[True] * 4, [True, False, True, True]])  # one in the middle: those after it would see it
    expected = theirs(x, memory, tgt_mask=~causal_mask(4), tgt_key_padding_mask=~kept, memory_key_padding_mask=~real)
    found = ours(x, memory, padding_mask(kept), padding_mask(real))
    equal_with_gradients(found, expected, pairs, [x, memory])


@given(st.booleans(), st.integers(1, 6), st.integers(1, 3), st.integers(0, 99))
def test_decoding_with_caches_is_the_same_as_all_at_once(norm_first, T, n_layers, seed):
    generator = torch.Generator().manual_seed(seed)
    layers = [DecoderBlock(*parts(n_attentions=2), norm_first=norm_first) for _ in range(n_layers)]
    layers = [randomise(layer, seed + i).double() for i, layer in enumerate(layers)]
    x, memory = (torch.randn(2, n, D, generator=generator).double() for n in (T, 4))
    whole = x
    for layer in layers:
        whole = layer(whole, memory)
    caches = [(Cache(T), Cache(4)) for _ in layers]
    for t in range(T):
        step = x[:, t : t + 1]
        for layer, cache in zip(layers, caches):
            step = layer(step, memory, cache=cache)
        torch.testing.assert_close(step, whole[:, t : t + 1])


@pytest.mark.parametrize("norm_first", [True, False])
def test_a_block_without_positions_does_not_know_the_order(norm_first, generator):
    block, x = (
        randomise(Block(*parts(), norm_first=norm_first)).double(),
        torch.randn(2, 6, D, generator=generator).double(),
    )
    order = torch.randperm(6, generator=generator)
    torch.testing.assert_close(block(x[:, order]), block(x)[:, order])


@pytest.mark.parametrize("norm_first", [True, False])
def test_gradients_of_a_block_are_those_of_finite_differences(norm_first, generator):
    block = randomise(Block(MultiHeadAttention(4, 2), FeedForward(4, 6, "gelu"), norm_first=norm_first)).double()
    x = torch.randn(1, 3, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: block(x, causal=True), [x])


@pytest.mark.parametrize("norm_first", [True, False])
def test_dropout_stands_where_pytorch_has_it(norm_first, generator, monkeypatch):
    """With PyTorch's draws on both sides: weights, branches and hidden units are all dropped, in the same order."""
    for module in (coursekit.nn.attention, coursekit.nn.dropout):
        monkeypatch.setattr(module, "drop", nn.functional.dropout)
    # one sample: torch's attention returns a batch in another layout, which dropout fills in another order
    x, memory = (torch.randn(1, n, D, generator=generator, dtype=torch.float64) for n in (5, 7))
    ours, theirs, _ = encoder_pair(norm_first, "relu", 1e-5, dropout=0.4)
    found, expected = seeded(lambda: ours(x)), seeded(lambda: theirs(x))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    assert not torch.allclose(found, ours.eval()(x), atol=0.1)
    causal = nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64)
    ours, theirs, _ = decoder_pair(norm_first, "relu", 1e-5, dropout=0.4)
    found = seeded(lambda: ours(x, memory))
    torch.testing.assert_close(found, seeded(lambda: theirs(x, memory, tgt_mask=causal)), rtol=1e-9, atol=1e-9)


def seeded(call):
    torch.manual_seed(3)
    return call()


@pytest.mark.parametrize("norm_first", [True, False])
def test_a_block_drops_paths_in_training_alone(norm_first, generator):
    block = randomise(Block(*parts(), norm_first=norm_first, drop_path=0.5))
    x = torch.randn(200, 3, D, generator=generator)
    kept = block.eval()(x)
    block.attention_residual.drop_path.p = 0.0
    only_first = block.attention_residual(x, block.attention)
    without = only_first if norm_first else block.feed_forward_residual.norm(only_first)
    found = block.train()(x)
    left_out = (found - without).abs().amax(dim=(1, 2)) < 1e-5
    assert 60 < left_out.sum() < 140
    assert not torch.allclose(kept, without)


def test_drop_path_leaves_out_whole_samples_and_keeps_the_mean():
    torch.manual_seed(0)
    x = torch.ones(4000, 2, 3)
    out = DropPath(0.25)(x)
    assert out.unique().tolist() == [0.0, pytest.approx(1 / 0.75)]
    assert (out == out[:, :1, :1]).all(), "a sample is left out as a whole"
    assert out.mean().item() == pytest.approx(1, abs=0.05)
    assert DropPath(0.25).eval()(x) is x
    with pytest.raises(ValueError, match="drop_path=1"):
        DropPath(1)


def test_an_unknown_activation_is_refused():
    with pytest.raises(ValueError, match="activation='tanh': must be one of 'relu', 'silu', 'gelu', 'gelu_tanh'"):
        FeedForward(4, 8, "tanh")
