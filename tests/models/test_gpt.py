"""GPT: its sizes, its numbers beside formulas written out again, its invariances, caches and objective.

Beside transformers it stands in ``tests/convert/test_gpt.py``.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from coursekit.models.gpt import GPT, GPTConfig, gpt_loss
from coursekit.nn.attention import record_attention
from coursekit.train import Training, adamw
from tests.conftest import randomise

V, D, H, T = 17, 12, 3, 9
SMALL = {"vocab_size": V, "d_model": D, "n_heads": H, "d_ff": 20, "n_layers": 2, "max_length": 16}
PRESETS = {"gpt1": GPTConfig.gpt1, "gpt2": GPTConfig.gpt2, "gpt3": GPTConfig.gpt3}  # the other GPT-2s are only larger


def make(preset: str = "gpt2", seed: int = 0, **changes) -> GPT:
    model = randomise(GPT(PRESETS[preset](**SMALL | changes)), seed).double().eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("norm.weight"):
                p += 1  # much smaller, and each block says less of the words than the one before
    return model


def batch(B: int = 4, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Texts padded at the end: one is full, one has a single token."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.tensor([T, 1, *torch.randint(1, T + 1, (B - 2,), generator=generator)])
    return torch.randint(V, (B, T), generator=generator), torch.arange(T) < lengths[:, None]


def at_the_left(ids: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The same texts with their padding before them."""
    order = torch.stack([torch.roll(torch.arange(T), T - int(n)) for n in mask.sum(dim=1)])
    return ids.gather(1, order), mask.gather(1, order)


# --- sizes ----------------------------------------------------------------------------------------------------

# parameters of the published checkpoints; for GPT-3 nobody outside has counted, and the paper rounds to 175 billions
SIZES = {
    "gpt1": (116_534_784, 117e6),
    "gpt2": (124_439_808, 124e6),
    "gpt2_medium": (354_823_168, 355e6),
    "gpt2_large": (774_030_080, 774e6),
    "gpt2_xl": (1_557_611_200, 1.56e9),
    "gpt3": (174_604_259_328, 175e9),
}


@pytest.mark.parametrize("preset", SIZES)
def test_parameters_of_the_published_models(preset):
    config = getattr(GPTConfig, preset)()
    with torch.device("meta"):
        model = GPT(config)
    exact, published = SIZES[preset]
    assert sum(p.numel() for p in model.parameters()) == exact
    assert exact == pytest.approx(published, rel=0.005)
    assert f"{exact:,}" in getattr(GPTConfig, preset).__doc__
    c = config  # counted once more, from the shapes of the papers
    block = 4 * c.d_model**2 + 4 * c.d_model + 8 * c.d_model**2 + 5 * c.d_model + 4 * c.d_model
    last = 2 * c.d_model * (preset != "gpt1")
    assert exact == (c.vocab_size + c.max_length) * c.d_model + c.n_layers * block + last


def test_the_sizes_that_parameters_do_not_show():
    """A head has 64 numbers in all of them but GPT-3, where it has 128."""
    for preset in SIZES:
        c = getattr(GPTConfig, preset)()
        assert c.d_model // c.n_heads == (128 if preset == "gpt3" else 64)
        assert c.dropout == (0.0 if preset == "gpt3" else 0.1)
        assert c.norm_first == (preset != "gpt1")
        assert c.max_length == {"gpt1": 512, "gpt3": 2048}.get(preset, 1024)
    assert GPTConfig.gpt2_xl(dropout=0.2, n_layers=3) == GPTConfig(50_257, 1600, 25, 6400, 3, 1024, 0.2)


# --- the model, written out again -----------------------------------------------------------------------------


def norm(x: np.ndarray, weight, bias) -> np.ndarray:
    mean = x.mean(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(((x - mean) ** 2).mean(axis=-1, keepdims=True) + 1e-5) * weight + bias


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def by_hand(model: GPT, ids: list[int]) -> np.ndarray:
    """The logits of one text without padding, head by head and place by place, in NumPy."""
    w = {name: p.detach().numpy() for name, p in model.named_parameters()}

    def linear(name: str, x: np.ndarray) -> np.ndarray:
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def attention(name: str, x: np.ndarray) -> np.ndarray:
        query, key, value = np.split(linear(f"{name}.qkv", x), 3, axis=-1)
        found, size = np.zeros_like(x), D // H
        for h in range(H):
            own = slice(h * size, (h + 1) * size)
            for t in range(len(x)):
                e = np.exp(key[: t + 1, own] @ query[t, own] / math.sqrt(size))  # of itself and those before
                found[t, own] = e @ value[: t + 1, own] / e.sum()
        return linear(f"{name}.out", found)

    def feed_forward(name: str, x: np.ndarray) -> np.ndarray:
        return linear(f"{name}.down", gelu(linear(f"{name}.up", x)))

    x = w["tokens.weight"][ids] + w["positions.encoding"][: len(ids)]
    for i in range(model.config.n_layers):
        for branch in (attention, feed_forward):
            name = f"blocks.{i}.{branch.__name__}"
            affine = w[f"{name}_residual.norm.weight"], w[f"{name}_residual.norm.bias"]
            x = x + branch(name, norm(x, *affine)) if model.config.norm_first else norm(x + branch(name, x), *affine)
    if model.config.norm_first:
        x = norm(x, w["norm.weight"], w["norm.bias"])
    return x @ w["tokens.weight"].T


@pytest.mark.parametrize("scale", [1.0, 1e-3], ids=["", "small enough for another epsilon to show"])
@pytest.mark.parametrize("preset", PRESETS)
def test_the_logits_are_the_papers(preset, scale):
    model, (ids, mask) = make(preset), batch()
    with torch.no_grad():
        for p in (model.tokens.weight, model.positions.encoding):
            p *= scale
    found = model(ids, mask)
    assert found.shape == (4, T, V)
    for row, n in enumerate(mask.sum(dim=1).tolist()):
        expected = by_hand(model, ids[row, :n].tolist())
        np.testing.assert_allclose(found[row, :n].detach(), expected, atol=1e-9 * scale)
    np.testing.assert_allclose(model(ids)[0].detach(), by_hand(model, ids[0].tolist()), atol=1e-9 * scale)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_norm_has_the_programs_epsilon(preset):
    norms = [m for m in make(preset).modules() if isinstance(m, torch.nn.LayerNorm)]
    assert {m.eps for m in norms} == {1e-5}
    assert len(norms) == (4 if preset == "gpt1" else 5)


def test_the_output_matrix_is_the_embedding():
    model, (ids, _) = make(), batch()
    unseen = next(v for v in range(V) if v not in ids)
    model(ids)[..., unseen].sum().backward()
    assert model.tokens.weight.grad[unseen].abs().sum() > 0
    assert sum(p.shape == (V, D) for p in model.parameters()) == 1


# --- who sees whom --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("padded", [False, True], ids=["", "padded"])
@pytest.mark.parametrize("preset", PRESETS)
@given(st.integers(0, 10_000), st.integers(0, T - 1))
def test_a_later_token_changes_nothing_bit_for_bit(preset, padded, seed, place):
    """And it changes every place from its own on."""
    model, (ids, mask) = make(preset, seed % 3), batch(seed=seed)
    mask = mask if padded else None
    other = ids.clone()
    other[:, place] = (ids[:, place] + 1) % V
    before, after = model(ids, mask), model(other, mask)
    assert torch.equal(after[:, :place], before[:, :place])
    changed = ((after - before).abs().amax(dim=-1) > 1e-9)[0]  # the first text has no padding
    assert changed[place:].all()


@pytest.mark.parametrize("preset", PRESETS)
@given(st.integers(0, 10_000), st.integers(0, 3), st.integers(0, 3))
def test_padding_on_either_side_changes_nothing(preset, seed, left, right):
    model, (ids, mask) = make(preset, seed % 3), batch(seed=seed)
    expected = model(ids, mask)[mask]
    for some_ids, some_mask in ((ids, mask), at_the_left(ids, mask)):
        wide = F.pad(some_ids, (left, right), value=seed % V), F.pad(some_mask, (left, right))
        torch.testing.assert_close(model(*wide)[wide[1]], expected, atol=1e-12, rtol=1e-12)
    alone = [model(row[real][None])[0] for row, real in zip(ids, mask)]
    torch.testing.assert_close(torch.cat(alone), expected, atol=1e-12, rtol=1e-12)


@given(st.integers(0, 10_000))
def test_texts_do_not_see_each_other(seed):
    model, inputs = make(seed=seed % 3), batch(seed=seed)
    order = torch.randperm(4, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(model(*(x[order] for x in inputs)), model(*inputs)[order], atol=1e-12, rtol=1e-12)


def test_places_tell_words_apart():
    """The last token sees the same words in another order."""
    model = make()
    one, other = model(torch.tensor([[3, 5, 7, 3]])), model(torch.tensor([[3, 7, 5, 3]]))
    assert (one[0, 3] - other[0, 3]).abs().max() > 1e-3


def test_each_block_shows_its_attention():
    model, (ids, mask) = make(), batch()
    with record_attention(model) as maps:
        watched = model(ids, mask)
    torch.testing.assert_close(watched, model(ids, mask), atol=1e-12, rtol=1e-12)
    assert list(maps) == ["blocks.0.attention", "blocks.1.attention"]
    for (weights,) in maps.values():
        assert weights.shape == (4, H, T, T)
        assert (weights.triu(1) == 0).all()
        assert (weights[~mask[:, None, None].expand_as(weights)] == 0).all()


# --- step by step ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", PRESETS)
@given(st.integers(0, 10_000), st.lists(st.integers(1, 4), min_size=1, max_size=T), st.sampled_from(["", "l", "r"]))
def test_with_caches_piece_by_piece_is_the_same(preset, seed, pieces, padding):
    """Pieces of any sizes: the first queries of each stand beside more keys than there are queries.

    Padding on the right stands between a prompt and what is written after it.
    """
    model, (ids, mask) = make(preset, seed % 3), batch(seed=seed)
    if padding == "l":
        ids, mask = at_the_left(ids, mask)
    mask = F.pad(mask, (0, 4), value=True)  # four tokens that all texts have
    ids = torch.cat([ids, (ids[:, :4] + 3) % V], dim=1)
    if not padding:
        mask = None
    expected = model(ids, mask)
    first = T if padding == "r" else 1  # left padding in pieces would begin with texts that have no token yet
    first = T if padding == "l" else first
    caches = model.new_caches(T + 4)
    sizes, end, found = [first, *pieces], 0, []
    for size in sizes:
        start, end = end, min(end + size, T + 4)
        if start < end:
            found.append(model(ids[:, start:end], None if mask is None else mask[:, :end], caches))
            assert {cache.length for cache in caches} == {end}
    found = torch.cat(found, dim=1)
    real = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask
    torch.testing.assert_close(found[real[:, :end]], expected[:, :end][real[:, :end]], atol=1e-12, rtol=1e-12)


@torch.inference_mode()
def test_caches_can_be_reordered():
    """As beam search does: row i goes on from what another row holds."""
    model, (ids, _) = make(), batch()
    rows, caches = torch.tensor([2, 0, 0, 3]), model.new_caches(T)
    model(ids[:, :5], None, caches)
    for cache in caches:
        cache.reorder(rows)
    found = model(ids[:, 5:], None, caches)
    expected = model(torch.cat([ids[rows, :5], ids[:, 5:]], dim=1))[:, 5:]
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-12)


# --- the objective --------------------------------------------------------------------------------------------


def expected_loss(model: GPT, texts: list[list[int]], learned: list[list[bool]]) -> tuple[float, int]:
    """Each text by itself and each token by itself, from what stands before it alone."""
    loss, count = 0.0, 0
    for text, wanted in zip(texts, learned):
        for t in range(1, len(text)):
            if wanted[t]:
                logits = by_hand(model, text[:t])[-1]
                loss += math.log(np.exp(logits).sum()) - logits[text[t]]
                count += 1
    return loss, count


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("prompts", [False, True], ids=["", "prompts left out"])
def test_the_loss_of_each_next_token(preset, side, prompts):
    model, (ids, mask) = make(preset), batch()
    learned = torch.rand(ids.shape, generator=torch.Generator().manual_seed(1)) < 0.6
    learned[0] = torch.arange(T) >= 4  # a prompt of four tokens
    data = {"ids": ids, "mask": mask, "loss_mask": learned}
    if side == "left":
        data = {"ids": at_the_left(ids, mask)[0], "mask": at_the_left(ids, mask)[1]}
        data["loss_mask"] = at_the_left(learned, mask)[0]
    if not prompts:
        del data["loss_mask"]
        learned = torch.ones_like(learned)
    rows = [[x[:n].tolist() for x, n in zip(some, mask.sum(dim=1))] for some in (ids, learned)]
    loss, count = expected_loss(model, *rows)
    found, number = gpt_loss(model, data)
    assert count == number.item() > 5
    assert found.item() == pytest.approx(loss, rel=1e-5)


def test_without_a_mask_all_tokens_are_real():
    model, (ids, _) = make(), batch()
    total, count = gpt_loss(model, {"ids": ids})
    loss, number = expected_loss(model, ids.tolist(), torch.ones_like(ids).bool().tolist())
    assert (count, total.item()) == (number, pytest.approx(loss, rel=1e-5)) == (4 * (T - 1), total.item())


def test_one_token_more_than_the_longest_text_can_be_learned():
    """Else the vector of the last position would never be trained."""
    model = make()
    ids = torch.randint(V, (2, 17), generator=torch.Generator().manual_seed(0))
    total, count = gpt_loss(model, {"ids": ids})
    total.backward()
    assert count == 2 * 16
    assert model.positions.encoding.grad[15].abs().sum() > 0


def test_of_one_token_nothing_can_be_learned():
    with pytest.raises(ValueError, match=r"^ids of shape \(4, 1\): at least two tokens, since the first is never pre"):
        gpt_loss(make(), {"ids": torch.ones(4, 1).long()})


def test_padding_is_neither_read_nor_learned():
    """Whatever stands there, every gradient is the same."""
    model, (ids, mask) = make(), batch()
    grads = []
    for padding in (0, 1):
        model.zero_grad()
        total, _ = gpt_loss(model, {"ids": ids.masked_fill(~mask, padding), "mask": mask})
        total.backward()
        grads.append([p.grad.clone() for p in model.parameters()])
    for a, b in zip(*grads):
        torch.testing.assert_close(a, b, atol=1e-9, rtol=1e-9)


# --- in training ----------------------------------------------------------------------------------------------


def test_what_is_dropped_in_training():
    """As in the program: embeddings, attention weights, both branches; not the hidden units."""
    model = GPT(GPTConfig(**SMALL | {"dropout": 0.25}))
    assert model.dropout.p == 0.25
    for block in model.blocks:
        assert block.feed_forward.dropout.p == 0
        assert block.attention.dropout == 0.25
        assert block.attention_residual.dropout.p == block.feed_forward_residual.dropout.p == 0.25
    model.blocks = torch.nn.ModuleList()
    model.norm = torch.nn.Identity()
    torch.manual_seed(0)
    ids = torch.randint(V, (50, 16))
    assert (model.hidden(ids) == 0).float().mean().item() == pytest.approx(0.25, abs=0.02)
    assert (model.eval().hidden(ids) != 0).all()


@pytest.mark.parametrize("preset", ["gpt1", "gpt2", "gpt3"])
def test_weights_begin_as_in_the_papers(preset):
    torch.manual_seed(0)
    sizes = {"vocab_size": 3000, "d_model": 64, "n_heads": 2, "d_ff": 256, "n_layers": 8, "max_length": 100}
    model, scaled = GPT(PRESETS[preset](**sizes)), preset != "gpt1"
    checked = 0
    for name, p in model.named_parameters():
        if p.dim() == 2:
            std = 0.02
            if scaled and ("attention.out" in name or "feed_forward.down" in name):
                std = 0.005  # 0.02 / sqrt(2 * 8)
            if scaled and "positions" in name:
                std = 0.01
            assert p.std().item() == pytest.approx(std, rel=0.05), name
            assert p.mean().item() == pytest.approx(0, abs=0.1 * std), name
            checked += 1
        else:
            assert (p == ("norm.weight" in name)).all(), name
    assert checked == 2 + 8 * 4


def test_the_optimizer_decays_matrices_and_embeddings_only():
    """On all weights that are no bias or gain (GPT, section 4.1)."""
    model = make()
    decayed, spared = adamw(model, 1e-4).param_groups
    assert (decayed["weight_decay"], spared["weight_decay"]) == (0.01, 0.0)
    names = {id(p): name for name, p in model.named_parameters()}
    expected = {name for name in names.values() if "norm" not in name and not name.endswith("bias")}
    assert {names[id(p)] for p in decayed["params"]} == expected
    assert {names[id(p)] for p in spared["params"]} == set(names.values()) - expected


def recomputed(model):
    """Gradients with and without checkpointing, of a model with dropout, and how often the first block ran."""
    (ids, mask), calls, grads = batch(), [], []
    model.blocks[0].register_forward_pre_hook(lambda *_: calls.append(1))
    for checkpointed in (False, True):
        model.gradient_checkpointing = checkpointed
        model.zero_grad()
        torch.manual_seed(0)
        gpt_loss(model, {"ids": ids, "mask": mask})[0].backward()
        grads.append([p.grad.clone() for p in model.parameters()])
    return grads, len(calls)


def test_recomputing_gives_the_same_gradients_with_dropout_too():
    model, (ids, _) = make(dropout=0.25).train(), batch()
    grads, calls = recomputed(model)
    assert all(torch.equal(a, b) for a, b in zip(*grads))
    assert calls == 1 + 2, "the block ran twice for one gradient"
    model.eval()
    model(ids[:, :5], None, caches := model.new_caches(T))
    torch.testing.assert_close(model(ids[:, 5:], None, caches), model(ids)[:, 5:], atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("preset", ["gpt1", "gpt2"])
def test_it_learns_texts_by_heart(preset):
    torch.manual_seed(0)

    class Texts:
        def __init__(self):
            self.generator = torch.Generator().manual_seed(0)
            self.texts = torch.stack([torch.randperm(V, generator=self.generator)[:8] for _ in range(8)])
            self.texts[:, 0] = torch.arange(8)  # the first token tells which it is

        def __next__(self):
            return {"ids": self.texts[torch.randint(8, (16,), generator=self.generator)]}

    sizes = {"vocab_size": V, "d_model": 32, "n_heads": 2, "d_ff": 64, "n_layers": 2, "max_length": 8}
    model = GPT(PRESETS[preset](**sizes, dropout=0.0))
    training = Training(model, gpt_loss, Texts(), adamw(model, 1e-2), 100, precision="float32")
    history = training.fit()
    assert history[0]["loss"] < math.log(V) + 0.1, "it begins with knowing nothing"
    assert history[-1]["loss"] < 0.1


def test_at_first_it_knows_nothing():
    """All tokens are about equally likely: the loss of the first batch is ln V."""
    torch.manual_seed(0)
    for preset in PRESETS:
        model = GPT(PRESETS[preset](vocab_size=200, d_model=32, n_heads=2, d_ff=64, n_layers=2, max_length=16)).eval()
        total, count = gpt_loss(model, {"ids": torch.randint(200, (16, 17))})
        assert (total / count).item() == pytest.approx(math.log(200), rel=0.02)


def test_training_in_half_precision_says_the_same():
    model, (ids, mask) = make().float(), batch()
    expected, _ = gpt_loss(model, {"ids": ids, "mask": mask})
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, _ = gpt_loss(model, {"ids": ids, "mask": mask})
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(expected.item(), rel=0.02)
    found.backward()
    assert all(p.grad.isfinite().all() and p.grad.dtype == torch.float32 for p in model.parameters())
    found, _ = gpt_loss(model.bfloat16(), {"ids": ids, "mask": mask})  # weights and logits in half precision too
    assert found.dtype == torch.float32


def test_it_runs_where_there_is_an_accelerator(where):
    model, (ids, mask) = make().float(), batch()
    expected = model(ids, mask)[mask]
    model, ids, mask = model.to(where), ids.to(where), mask.to(where)
    torch.testing.assert_close(model(ids, mask)[mask].cpu(), expected, atol=1e-4, rtol=1e-4)
    caches = model.new_caches(T)
    pieces = [model(ids[:, :5], mask[:, :5], caches), model(ids[:, 5:], mask, caches)]
    torch.testing.assert_close(torch.cat(pieces, dim=1)[mask].cpu(), expected, atol=1e-4, rtol=1e-4)


# --- what is refused ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"n_heads": 5}, "n_heads=5: must divide d_model=12"),
        ({"n_layers": 0}, "n_layers=0: must be at least 1"),
        ({"vocab_size": -1}, "vocab_size=-1: must be at least 1"),
        ({"d_ff": 0}, "d_ff=0: must be at least 1"),
        ({"max_length": 0}, "max_length=0: must be at least 1"),
        ({"dropout": 1.0}, r"dropout=1\.0: must be a probability below 1"),
    ],
)
def test_nonsense_is_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        GPTConfig(**SMALL | changes)


def test_bad_input_is_refused():
    model, (ids, mask) = make(), batch()
    with pytest.raises(ValueError, match="a text has no real token: every row of its mask needs at least one True"):
        model(ids, mask & (torch.arange(4) != 2)[:, None])
    for one in (torch.ones(1, 17).bool(), None):
        with pytest.raises(ValueError, match="17 positions: the model was built for max_length=16"):
            model(torch.zeros(1, 17, dtype=torch.long), one)
    with pytest.raises(ValueError, match=r"mask of shape \(4, 8\): must be \(4, 9\), as the tokens$"):
        model(ids, mask[:, 1:])
    with pytest.raises(ValueError, match=r"mask of torch\.int64: must be boolean"):
        model(ids, mask.long())
    caches = model.new_caches(16)
    model(ids, mask, caches)
    with pytest.raises(ValueError, match=r"mask of shape \(4, 1\): must be \(4, 10\), as the tokens with the 9 in the"):
        model(ids[:, :1], mask[:, :1], caches)
    with pytest.raises(ValueError, match="18 positions: the model was built for max_length=16"):
        model(ids, torch.ones(4, 18).bool(), caches)
    caches = model.new_caches(T)
    model(ids, mask, caches)
    with pytest.raises(ValueError, match="10 positions do not fit into a cache of max_length=9"):
        model(ids[:, :1], None, caches)
    for caches in ([], model.new_caches(T)[:1], model.new_caches(T) * 2):
        with pytest.raises(ValueError, match=rf"^{len(caches)} caches for 2 blocks: must be one for each"):
            model(ids, None, caches)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ids": torch.zeros(4)}, r"ids of shape \(4,\), torch\.float32: must be \(B, T\), whole numbers"),
        ({"ids": torch.zeros(4, T)}, r"ids of shape \(4, 9\), torch\.float32: must be"),
        ({"ids": torch.full((4, T), V)}, rf"ids must lie in 0\.\.{V - 1}: the vocabulary has {V} tokens"),
        ({"ids": torch.full((4, T), -1)}, "ids must lie in"),
        ({"ids": torch.tensor([[1, V]])}, rf"ids must lie in 0\.\.{V - 1}: the vocabulary has {V} tokens"),
        ({"ids": torch.tensor([[1, 2, -100]])}, "ids must lie in"),
        ({"mask": torch.ones(4, T - 1).bool()}, r"mask of shape \(4, 8\): must be \(4, 9\), as the tokens"),
        ({"mask": torch.ones(T).bool()}, r"mask of shape \(9,\): must be \(4, 9\), as the tokens"),
        ({"loss_mask": torch.ones(4, T - 1).bool()}, r"loss_mask of shape \(4, 8\): must be \(4, 9\), as the tokens"),
        ({"loss_mask": torch.ones(4, T)}, "loss_mask of torch.float32: must be boolean"),
    ],
)
def test_a_batch_of_another_kind_is_refused(changes, words):
    model, (ids, _) = make(), batch()
    with pytest.raises(ValueError, match=words):
        gpt_loss(model, {"ids": ids} | changes)
    if "ids" in changes:
        with pytest.raises(ValueError, match=words):
            model(changes["ids"])
