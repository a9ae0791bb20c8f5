"""``attend`` and ``MultiHeadAttention`` beside PyTorch's own, what must not change their result, and recording."""

import contextlib
import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from coursekit.nn.attention import Attention, MultiHeadAttention, attend, attention_formula, record_attention
from coursekit.nn.cache import Cache
from coursekit.nn.masks import causal_mask, padding_mask, window_mask
from tests.conftest import randomise, softmax

sizes = st.integers(1, 6)


def by_hand(query, key, value, allowed):
    """The formula, one number at a time; zeros for a query that may attend to nothing."""
    B, H, T, Dh = query.shape
    out = torch.zeros(B, H, T, value.shape[-1], dtype=query.dtype)
    weights = torch.zeros(B, H, T, key.shape[2], dtype=query.dtype)
    for b in range(B):
        for h in range(H):
            for t in range(T):
                places = [s for s in range(key.shape[2]) if allowed[b, h, t, s]]
                e = [math.exp(float(query[b, h, t] @ key[b, h, s]) / math.sqrt(Dh)) for s in places]
                for s, e_s in zip(places, e):
                    weights[b, h, t, s] = e_s / sum(e)
                    out[b, h, t] += e_s / sum(e) * value[b, h, s]
    return out, weights


@given(sizes, sizes, sizes, sizes, sizes, st.booleans(), st.booleans(), st.integers(0, 99))
def test_attend_is_the_formula_on_both_paths(B, H, T, S, Dh, causal, masked, seed):
    generator = torch.Generator().manual_seed(seed)
    S = max(S, T) if causal else S
    query, key, value = (
        torch.randn(B, H, n, size, generator=generator, dtype=torch.float64)
        for n, size in ((T, Dh), (S, Dh), (S, Dh + 1))
    )
    allowed = torch.ones(B, H, T, S, dtype=torch.bool)
    mask = None
    if masked:  # some rows allow nothing
        mask = torch.rand(B, H, T, S, generator=generator) < 0.5
        allowed &= mask
    if causal:
        allowed &= torch.tensor([[s <= t + S - T for s in range(S)] for t in range(T)])
    expected, weights = by_hand(query, key, value, allowed)
    for need_weights in (False, True):
        found, found_weights = attend(query, key, value, mask, causal, need_weights)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found_weights, weights, rtol=1e-9, atol=1e-9)
    if allowed.any(dim=-1).all():
        by_itself = attention_formula(query, key, value, allowed if masked or causal else None)
        torch.testing.assert_close(by_itself, (expected, weights), rtol=1e-9, atol=1e-9)


@given(st.integers(1, 3), st.integers(1, 3), sizes, st.integers(1, 6), st.integers(1, 7), st.integers(0, 99))
def test_fewer_heads_of_keys_and_a_window(heads, shared, T, more, window, seed):
    """Each head of keys serves neighbouring queries; a query reaches the last positions alone, its own among them."""
    generator, S = torch.Generator().manual_seed(seed), T + more - 1
    query, key, value = (
        torch.randn(2, n, length, 4, generator=generator, dtype=torch.float64)
        for n, length in ((heads * shared, T), (heads, S), (heads, S))
    )
    reached = torch.tensor([[t + S - T - window < s <= t + S - T for s in range(S)] for t in range(T)])
    repeated = [torch.stack([x[:, h // shared] for h in range(heads * shared)], dim=1) for x in (key, value)]
    expected, weights = by_hand(query, *repeated, reached.expand(2, heads * shared, T, S))
    for need_weights in (False, True):
        found, found_weights = attend(query, key, value, window_mask(T, S, window), True, need_weights)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found_weights, weights, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("need_weights", [False, True])
def test_gradients_are_those_of_finite_differences(causal, need_weights, generator):
    inputs = [torch.randn(1, 2, 3, 4, generator=generator, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    mask = torch.tensor([[True, True, False], [False, False, False], [True, True, True]])

    def run(*qkv):
        return attend(*qkv, mask, causal, need_weights)[0]

    assert torch.autograd.gradcheck(run, inputs)


def test_no_mask_gives_nan_in_value_or_gradient(where, generator):
    for mask in (torch.zeros(2, 1, 4, 4), torch.eye(4)[None, None].expand(2, 1, 4, 4), torch.ones(2, 1, 1, 4) * 0):
        for need_weights in (False, True):
            qkv = [torch.randn(2, 3, 4, 5, generator=generator).to(where).requires_grad_() for _ in range(3)]
            out, _ = attend(*qkv, mask.bool().to(where), need_weights=need_weights)
            out.sum().backward()
            assert out.isfinite().all()
            assert all(x.grad.isfinite().all() for x in qkv)
            if not mask.any():
                assert (out == 0).all()


def test_dropout_drops_weights_and_keeps_the_mean():
    torch.manual_seed(0)
    value = torch.eye(50)[None, None]
    zeros = torch.zeros(1, 1, 4000, 8), torch.zeros(1, 1, 50, 8)
    for need_weights in (False, True):
        out, _ = attend(*zeros, value, dropout=0.25, need_weights=need_weights)
        assert (out == 0).float().mean().item() == pytest.approx(0.25, abs=0.01)
        assert out.mean().item() == pytest.approx(1 / 50, rel=0.01)


def test_with_dropout_a_cpu_takes_the_formula(generator, monkeypatch):
    """Whose dropout is the faster one: the fused kernel has none there."""
    monkeypatch.setattr(nn.functional, "scaled_dot_product_attention", lambda *_, **__: pytest.fail("the kernel ran"))
    qkv = [torch.randn(2, 3, 9, 4, generator=generator) for _ in range(3)]
    for options in ({}, {"causal": True}, {"mask": (torch.arange(9) < 7)[None, None, None]}):
        assert attend(*qkv, dropout=0.5, **options)[0].isfinite().all()


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"mask": (torch.arange(9) < 7)[None, None, None]}], ids=list)
def test_short_gradients_in_bfloat16_on_a_cpu_come_from_the_formula(generator, monkeypatch, options):
    """And are those of the fused kernel, as far as bfloat16 tells them; without gradients the kernel itself runs."""
    fused, calls = nn.functional.scaled_dot_product_attention, []
    monkeypatch.setattr(
        nn.functional, "scaled_dot_product_attention", lambda *x, **y: calls.append(1) or fused(*x, **y)
    )
    qkv = [torch.randn(3, 2, 9, 8, generator=generator).bfloat16().requires_grad_() for _ in range(3)]
    found, weights = attend(*qkv, **options)
    assert (len(calls), weights) == (0, None)
    with torch.no_grad():
        kept, _ = attend(*qkv, **options)
    assert len(calls) == 1
    assert (found - kept).float().norm() < 0.02 * kept.float().norm()
    other = fused(*qkv, options.get("mask"), is_causal=options.get("causal", False))
    ours, theirs = (torch.autograd.grad(x.float().pow(2).sum(), qkv) for x in (found, other))
    for a, b in zip(ours, theirs):
        assert (a - b).float().norm() < 0.02 * b.float().norm()
    attend(*(x.repeat(1, 1, 29, 1) for x in qkv))  # 261 positions
    assert len(calls) == 2


@pytest.mark.parametrize("need_weights", [False, True])
def test_large_entries_do_not_overflow_in_float16(need_weights, where):
    """40 * 40 * 64 is more than float16 holds; divided by sqrt(64) it is not."""
    query = torch.full((1, 1, 2, 64), 40.0)
    query[:, :, 1] *= -1
    key = torch.tensor([1.0, -1.0, 1.0])[:, None].expand(1, 1, 3, 64) * 40
    value = torch.tensor([[1.0, 0.0], [8.0, 8.0], [0.0, 1.0]])[None, None]
    half = [x.to(where, torch.float16) for x in (query, key, value)]
    found, weights = attend(*half, need_weights=need_weights)
    assert found.tolist() == [[[[0.5, 0.5], [8.0, 8.0]]]]
    if need_weights:
        assert weights.tolist() == [[[[0.5, 0.0, 0.5], [0.0, 1.0, 0.0]]]]


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.uint8])
def test_masks_that_are_not_boolean_are_refused(dtype, need_weights, generator):
    qkv = [torch.randn(1, 2, 3, 4, generator=generator) for _ in range(3)]
    with pytest.raises(ValueError, match=f"mask of {dtype}: must be boolean, True = may attend"):
        attend(*qkv, torch.ones(3, 3, dtype=dtype), need_weights=need_weights)


# --- several heads -------------------------------------------------------------------------------------


def pair(d_model=12, n_heads=3, bias=True):
    """Ours and PyTorch's, with the same parameters, none of them at its default."""
    ours = randomise(MultiHeadAttention(d_model, n_heads, bias)).double()
    theirs = nn.MultiheadAttention(d_model, n_heads, bias=bias, batch_first=True).double()
    with torch.no_grad():
        theirs.in_proj_weight.copy_(ours.qkv.weight)
        theirs.out_proj.weight.copy_(ours.out.weight)
        if bias:
            theirs.in_proj_bias.copy_(ours.qkv.bias)
            theirs.out_proj.bias.copy_(ours.out.bias)
    return ours, theirs


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("cross", [True, False])
def test_equal_to_pytorch_in_value_weights_and_gradient(bias, cross, generator):
    ours, theirs = pair(bias=bias)
    x = torch.randn(2, 5, 12, generator=generator, dtype=torch.float64)
    y = torch.randn(2, 7, 12, generator=generator, dtype=torch.float64) if cross else x
    real = torch.arange(y.shape[1]) < torch.tensor([[y.shape[1]], [3]])
    blocked = None if cross else ~causal_mask(5)
    expected, expected_weights = theirs(x, y, y, key_padding_mask=~real, attn_mask=blocked, average_attn_weights=False)
    found = ours(x, y if cross else None, padding_mask(real), causal=not cross)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    with record_attention(ours) as maps:
        watched = ours(x, y if cross else None, padding_mask(real), causal=not cross)
    torch.testing.assert_close(watched, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(maps[""][0], expected_weights, rtol=1e-9, atol=1e-9)
    (found**2).sum().backward()
    (expected**2).sum().backward()
    torch.testing.assert_close(ours.qkv.weight.grad, theirs.in_proj_weight.grad)
    torch.testing.assert_close(ours.out.weight.grad, theirs.out_proj.weight.grad)
    if bias:
        torch.testing.assert_close(ours.qkv.bias.grad, theirs.in_proj_bias.grad)


def test_a_change_moves_nothing_before_it(generator):
    module, x = randomise(MultiHeadAttention(8, 2)), torch.randn(3, 6, 8, generator=generator)
    before = module(x, causal=True)
    for t in range(6):
        changed = x.clone()
        changed[:, t] += 1
        after = module(changed, causal=True)
        assert torch.equal(after[:, :t], before[:, :t])
        assert not torch.isclose(after[:, t:], before[:, t:]).all(-1).any()


@given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 99))
def test_padding_changes_nothing_on_either_side(length, padding, seed):
    generator = torch.Generator().manual_seed(seed)
    module = randomise(MultiHeadAttention(8, 2)).double()
    x = torch.randn(1, length, 8, generator=generator, dtype=torch.float64)
    pad = torch.randn(1, padding, 8, generator=generator, dtype=torch.float64) * 100
    alone = module(x)
    for first in (True, False):
        padded = torch.cat([pad, x] if first else [x, pad], dim=1)
        real = torch.zeros(1, length + padding, dtype=torch.bool)
        place = slice(padding, None) if first else slice(length)
        real[:, place] = True
        torch.testing.assert_close(module(padded, mask=padding_mask(real))[:, place], alone)


def test_without_positions_the_order_means_nothing(generator):
    module, x = randomise(MultiHeadAttention(8, 4)).double(), torch.randn(2, 7, 8, generator=generator).double()
    order = torch.randperm(7, generator=generator)
    torch.testing.assert_close(module(x[:, order]), module(x)[:, order])


@pytest.mark.parametrize("steps", [[1] * 6, [3, 1, 2], [6]])
def test_with_a_cache_piece_by_piece_is_the_same(steps, generator):
    module, x = randomise(MultiHeadAttention(8, 2)).double(), torch.randn(2, 6, 8, generator=generator).double()
    real = torch.tensor([[False, True, True, True, True, True], [True] * 6])
    cache, done, pieces = Cache(max_length=6), 0, []
    for n in steps:
        mask = padding_mask(real[:, : done + n])
        pieces.append(module(x[:, done : done + n], mask=mask, causal=True, cache=cache))
        done += n
    torch.testing.assert_close(torch.cat(pieces, dim=1), module(x, mask=padding_mask(real), causal=True))
    with pytest.raises(ValueError, match="7 positions do not fit"):
        module(x[:, :1], causal=True, cache=cache)


@torch.inference_mode()
def test_the_cache_of_a_memory_is_filled_once_and_can_be_reordered(generator):
    module = randomise(MultiHeadAttention(8, 2)).double()
    x, memory = (torch.randn(3, n, 8, generator=generator).double() for n in (2, 5))
    cache = Cache(max_length=5)
    first = module(x[:, :1], memory, cache=cache)
    second = module(x[:, 1:], torch.full_like(memory, torch.nan), cache=cache)
    torch.testing.assert_close(torch.cat([first, second], dim=1), module(x, memory))
    for rows in (torch.tensor([2, 0, 0]), torch.tensor([1, 0, 2, 2])):  # as many as there are, and more
        cache.reorder(rows)
        x, memory = x[rows], memory[rows]
        torch.testing.assert_close(module(x, memory, cache=cache), module(x, memory))


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize(
    ("key", "value", "mask", "says"),
    [
        ((2, 3, 5, 6), (2, 3, 5, 6), None, "queries of size 8, keys of size 6: must have one size"),
        ((2, 3, 5, 8), (2, 3, 4, 8), None, "5 keys, 4 values: each key needs its value"),
        ((2, 2, 5, 8), (2, 2, 5, 8), None, "3 heads of queries, 2 of keys, 2 of values: as many of values as of keys"),
        ((2, 3, 5, 8), (2, 1, 5, 8), None, "3 heads of queries, 3 of keys, 1 of values: as many of values as of keys"),
        ((2, 3, 5, 8), (2, 3, 5, 8), (2, 5), r"mask of shape \(2, 5\): .* = \(2, 3, 4, 5\); padding_mask makes such"),
        ((2, 3, 5, 8), (2, 3, 5, 8), (2, 1, 1, 4), r"mask of shape \(2, 1, 1, 4\)"),
        ((2, 3, 5, 8), (2, 3, 5, 8), (3, 1, 4, 5), r"mask of shape \(3, 1, 4, 5\)"),
        ((2, 3, 5, 8), (2, 3, 5, 8), (1, 2, 1, 4, 5), r"mask of shape \(1, 2, 1, 4, 5\)"),
    ],
)
def test_shapes_that_do_not_fit_are_refused_in_a_sentence(key, value, mask, says, need_weights):
    query, key, value = torch.zeros(2, 3, 4, 8), torch.zeros(key), torch.zeros(value)
    with pytest.raises(ValueError, match=says):
        attend(query, key, value, None if mask is None else torch.ones(mask).bool(), need_weights=need_weights)


@pytest.mark.parametrize("need_weights", [False, True])
def test_a_mask_of_the_keys_alone_is_broadcast(need_weights, generator):
    query, key, value = (torch.randn(2, 3, 4, 8, generator=generator) for _ in range(3))
    mask = torch.tensor([True, False, True, True])
    expected = attend(query, key, value, mask.expand(2, 3, 4, 4), need_weights=need_weights)[0]
    torch.testing.assert_close(attend(query, key, value, mask, need_weights=need_weights)[0], expected)


def test_queries_of_other_texts_than_the_keys_are_refused():
    one, three = torch.zeros(1, 2, 4, 8), torch.zeros(3, 2, 4, 8)
    with pytest.raises(ValueError, match="queries of 3 texts, keys of 1, values of 1: must be as many"):
        attend(three, one, one)
    attention, cache = MultiHeadAttention(8, 2), Cache(10)
    attention(torch.zeros(1, 1, 8), torch.zeros(1, 5, 8), cache=cache)
    with pytest.raises(ValueError, match="queries of 3 texts, keys of 1"):
        attention(torch.zeros(3, 1, 8), torch.zeros(3, 7, 8), cache=cache)
    with pytest.raises(ValueError, match=r"query of shape \(4, 8\): must have four axes"):
        attend(*torch.zeros(3, 4, 8))


@pytest.mark.parametrize("dropout", [-0.1, 1.0, 2.0])
def test_a_dropout_that_is_none_is_refused(dropout):
    with pytest.raises(ValueError, match=f"dropout={dropout}: must be a probability below 1"):
        MultiHeadAttention(8, 2, dropout=dropout)


@pytest.mark.parametrize("heads", [1, 2])
def test_vectors_of_another_shape_are_refused(heads):
    module = MultiHeadAttention(8, heads)
    for shape in ((2, 3, 6), (3, 8), (1, 2, 3, 8)):
        with pytest.raises(ValueError, match=rf"x of shape {re.escape(str(shape))}: must be \(B, T, d_model=8\)"):
            module(torch.zeros(shape))
    for shape in ((2, 5, 9), (5, 8)):
        with pytest.raises(ValueError, match=rf"memory of shape {re.escape(str(shape))}: must be \(B, S, d_model=8\)"):
            module(torch.zeros(2, 3, 8), torch.zeros(shape))


def test_there_is_nothing_later_in_a_memory():
    x, memory = torch.zeros(2, 3, 8), torch.zeros(2, 5, 8)
    with pytest.raises(ValueError, match="causal is for self-attention: leave it out with a memory"):
        MultiHeadAttention(8, 2)(x, memory, causal=True)


class Masked(nn.Module):
    """Attention with its mask, for ``torch.export``, which takes modules."""

    def __init__(self):
        super().__init__()
        self.attention = randomise(MultiHeadAttention(8, 2)).eval()

    def forward(self, x, real):
        return self.attention(x, mask=padding_mask(real), causal=True)


def some(B, T):
    return torch.randn(B, T, 8), torch.arange(T) < torch.arange(1, B + 1)[:, None]


def test_it_compiles_without_a_break_once_for_all_sizes():
    from torch._dynamo.testing import CompileCounter

    model, graphs = Masked(), CompileCounter()
    compiled = torch.compile(model, backend=graphs, dynamic=True, fullgraph=True)
    for B, T in ((2, 5), (3, 7), (4, 9)):
        x, real = some(B, T)
        torch.testing.assert_close(compiled(x, real), model(x, real))
    assert graphs.frame_count == 1


def test_it_is_exported_for_all_sizes():
    model, (B, T) = Masked(), (torch.export.Dim("B", min=2), torch.export.Dim("T", min=2))
    exported = torch.export.export(model, some(2, 5), dynamic_shapes=({0: B, 1: T}, {0: B, 1: T})).module()
    for sizes in ((2, 5), (3, 7)):
        x, real = some(*sizes)
        torch.testing.assert_close(exported(x, real), model(x, real))


def test_it_runs_without_data():
    """On the meta device whatever asks for a value fails, as it would wait on a GPU."""
    out = Masked().to("meta")(torch.empty(2, 5, 8, device="meta"), torch.empty(2, 5, dtype=torch.bool, device="meta"))
    assert out.shape == (2, 5, 8)


def test_heads_that_do_not_divide_are_refused():
    with pytest.raises(ValueError, match="n_heads=5: must divide d_model=12"):
        MultiHeadAttention(12, 5)


@pytest.mark.parametrize("sizes", [{"d_key": 0}, {"d_value": 0}, {"d_key": -1}, {"d_key": 0, "d_value": 4}])
def test_sizes_below_one_are_refused(sizes):
    (name, size), *_ = sizes.items()
    with pytest.raises(ValueError, match=f"{name}={size}: must be at least 1, or None for d_model / n_heads"):
        MultiHeadAttention(12, 3, **sizes)


def test_recorded_weights_are_those_before_dropout(generator):
    module = randomise(MultiHeadAttention(8, 2, dropout=0.5)).double()
    x = torch.randn(2, 5, 8, generator=generator, dtype=torch.float64)
    with record_attention(module) as maps:
        quiet, dropped = module.eval()(x, causal=True), module.train()(x, causal=True)
    assert not torch.allclose(dropped, quiet, atol=0.1)  # it did drop
    torch.testing.assert_close(maps[""][1], maps[""][0])
    torch.testing.assert_close(maps[""][1].sum(dim=-1), torch.ones(2, 2, 5).double())


@pytest.mark.parametrize("cross", [False, True])
def test_keys_and_values_may_have_sizes_of_their_own(cross):
    """Rows B of the paper's Table 3: each head by itself, in NumPy."""
    H, D, d_key, d_value = 3, 8, 2, 5
    attention = randomise(MultiHeadAttention(D, H, d_key=d_key, d_value=d_value)).double()
    x, memory = torch.randn(2, 4, D).double(), torch.randn(2, 6, D).double()
    y = (memory if cross else x).numpy()
    W, b = attention.qkv.weight.detach().numpy(), attention.qkv.bias.detach().numpy()
    assert W.shape == (H * (2 * d_key + d_value), D)
    expected = np.zeros((2, 4, D)) + attention.out.bias.detach().numpy()
    for h in range(H):
        rows_q = slice(h * d_key, (h + 1) * d_key)
        rows_k = slice(H * d_key + h * d_key, H * d_key + (h + 1) * d_key)
        rows_v = slice(2 * H * d_key + h * d_value, 2 * H * d_key + (h + 1) * d_value)
        q, k, v = (z @ W[rows].T + b[rows] for z, rows in ((x.numpy(), rows_q), (y, rows_k), (y, rows_v)))
        for i in range(2):
            for t in range(4):
                weights = softmax(q[i, t] @ k[i].T / np.sqrt(d_key))
                columns = attention.out.weight.detach().numpy()[:, h * d_value : (h + 1) * d_value]
                expected[i, t] += columns @ (weights @ v[i])
    found = attention(x, memory if cross else None)
    np.testing.assert_allclose(found.detach().numpy(), expected, atol=1e-12)
    if not cross:
        cache = Cache(4)
        steps = [attention(x[:, t : t + 1], causal=True, cache=cache) for t in range(4)]
        torch.testing.assert_close(torch.cat(steps, dim=1), attention(x, causal=True), atol=1e-12, rtol=0)


# --- recording ------------------------------------------------------------------------------------------


class Twice(nn.Module):
    """Two attention modules, one of them called twice."""

    def __init__(self):
        super().__init__()
        self.first, self.second = Attention(), Attention()

    def forward(self, x):
        return self.second.record(self.first.record(x) + self.first.record(2 * x))


def test_records_every_call_by_name_and_only_inside_the_block():
    model, x = Twice(), torch.rand(2, 3, requires_grad=True)
    model(x)
    with record_attention(model) as maps:
        model(x)
    model(x)
    assert {name: len(calls) for name, calls in maps.items()} == {"first": 2, "second": 1}
    torch.testing.assert_close(maps["first"][1], 2 * x.detach())
    assert not maps["second"][0].requires_grad


def test_blocks_nest_and_an_error_ends_them():
    model, x = Twice(), torch.rand(2)
    with record_attention(model) as outer:
        with contextlib.suppress(RuntimeError), record_attention(model) as inner:
            model(x)
            raise RuntimeError
        model(x)
    assert len(inner["second"]) == 1
    assert len(outer["second"]) == 1, "after the inner block the outer one listens again"
    assert model.first.recorded is None


def test_a_model_without_attention_is_refused():
    with pytest.raises(ValueError, match="Linear has no attention module"), record_attention(nn.Linear(2, 2)):
        pass


def test_an_attention_has_a_size():
    with pytest.raises(ValueError, match="n_heads=2: must divide d_model=0"):
        MultiHeadAttention(0, 2)
