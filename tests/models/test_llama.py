"""Llama: its sizes, its numbers beside formulas written out again, its invariances, caches and window.

Beside transformers it stands in ``tests/convert/test_llama.py``.
"""

from copy import deepcopy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from coursekit.decode.generate import generate
from coursekit.models.gpt import gpt_loss
from coursekit.models.llama import Llama, LlamaConfig
from coursekit.nn.attention import record_attention
from coursekit.train import Training, adamw
from tests.conftest import randomise
from tests.models.test_gpt import T, V, at_the_left, batch, recomputed

D, H, KV = 24, 6, 2
SMALL = {"vocab_size": V, "d_model": D, "n_heads": H, "n_kv_heads": KV, "d_ff": 20, "n_layers": 2, "max_length": 32}
KINDS = {
    "llama": {},
    "window": {"window": 3},
    "one head of keys": {"n_kv_heads": 1, "tied": True},
    "qwen3": {"qk_norm": True, "d_head": 6},
}


def make(kind: str = "llama", seed: int = 0, **changes) -> Llama:
    model = randomise(Llama(LlamaConfig(**SMALL | KINDS[kind] | changes)), seed).double().eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "norm" in name:
                p += 1  # much smaller, and each block says less of the words than the one before
    return model


# --- sizes ----------------------------------------------------------------------------------------------------

SIZES = {  # parameters of the published files
    "llama2_7b": 6_738_415_616,
    "llama3_8b": 8_030_261_248,
    "llama32_1b": 1_235_814_400,
    "mistral_7b": 7_241_732_096,
    "smollm2_135m": 134_515_008,
}


@pytest.mark.parametrize("preset", SIZES)
def test_parameters_of_the_published_models(preset):
    with torch.device("meta"):
        model = Llama(getattr(LlamaConfig, preset)())
    assert sum(p.numel() for p in model.parameters()) == SIZES[preset]
    assert f"{SIZES[preset]:,}" in getattr(LlamaConfig, preset).__doc__


# --- numbers --------------------------------------------------------------------------------------------------


def by_hand(model: Llama, ids: list[int]) -> np.ndarray:
    """The logits of one text, token by token, head by head."""
    c, p = model.config, {name: x.detach().numpy() for name, x in model.state_dict().items()}
    half = c.head_size // 2
    theta = [c.rotary_base ** (-2 * i / c.head_size) for i in range(half)]

    def norm(x, g, eps=c.eps):
        return g * x / np.sqrt((x * x).mean() + eps)

    def turn(x, place):
        a, b = x[:half], x[half:]
        cos, sin = (np.array([f(place * t) for t in theta]) for f in (np.cos, np.sin))
        return np.concatenate([a * cos - b * sin, a * sin + b * cos])

    h = [p["tokens.weight"][i] for i in ids]
    for n in range(c.n_layers):
        q = {name.removeprefix(f"blocks.{n}."): x for name, x in p.items() if name.startswith(f"blocks.{n}.")}
        w = q["attention.qkv.weight"].reshape(-1, c.head_size, c.d_model)  # heads of queries, of keys, of values
        normed = [norm(x, q["attention_residual.norm.weight"]) for x in h]
        for t, x in enumerate(list(h)):
            heads = []
            for head in range(c.n_heads):
                shared = c.n_heads + head // (c.n_heads // c.n_kv_heads)
                query, keys = w[head] @ normed[t], [w[shared] @ y for y in normed]
                if c.qk_norm:
                    query = norm(query, q["attention.query_norm.weight"])
                    keys = [norm(k, q["attention.key_norm.weight"]) for k in keys]
                first = 0 if c.window is None else max(0, t - c.window + 1)
                scores = [turn(query, t) @ turn(keys[s], s) / np.sqrt(c.head_size) for s in range(first, t + 1)]
                weights = np.exp(scores) / np.exp(scores).sum()
                values = [w[shared + c.n_kv_heads] @ y for y in normed[first : t + 1]]
                heads.append(sum(a * v for a, v in zip(weights, values)))
            x = x + q["attention.out.weight"] @ np.concatenate(heads)
            y = norm(x, q["feed_forward_residual.norm.weight"])
            gate = q["feed_forward.gate.weight"] @ y
            h[t] = x + q["feed_forward.down.weight"] @ (gate / (1 + np.exp(-gate)) * (q["feed_forward.up.weight"] @ y))
    output = p["tokens.weight"] if c.tied else p["output.weight"]
    return np.stack([output @ norm(x, p["norm.weight"]) for x in h])


@pytest.mark.parametrize("kind", KINDS)
def test_the_logits_written_out(kind):
    model, ids = make(kind), [3, 1, 4, 1, 5, 9, 2]
    found, expected = model(torch.tensor([ids]))[0].detach(), by_hand(model, ids)
    assert expected.std() > 0.1, "it says nothing"
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_every_norm_has_the_configurations_epsilon(kind):
    """One so large that another, in a single norm, would show."""
    model, ids = make(kind, eps=0.5), [3, 1, 4, 1, 5, 9, 2]
    np.testing.assert_allclose(model(torch.tensor([ids]))[0].detach(), by_hand(model, ids), atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_that_are_recorded_are_those_that_are_used(kind):
    model, (ids, _) = make(kind), batch()
    with record_attention(model) as maps:
        found = model(ids)
    torch.testing.assert_close(found, model(ids))
    weights = maps["blocks.1.attention"][0]
    assert weights.shape == (4, H, T, T)
    reach = T if model.config.window is None else model.config.window
    allowed = torch.ones(T, T).tril().triu(1 - reach).bool()
    assert ((weights > 0) == allowed).all()


# --- invariances ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 100), place=st.integers(1, T - 1))
def test_a_later_token_changes_nothing(kind, seed, place):
    model, (ids, _) = make(kind), batch(seed=seed)
    changed = ids.clone()
    changed[:, place] = (ids[:, place] + 1) % V
    before, after = model(ids), model(changed)
    assert torch.equal(before[:, :place], after[:, :place])
    assert (before[:, place] - after[:, place]).abs().max() > 1e-3


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 100))
def test_padding_on_either_side_changes_nothing(kind, seed):
    model, (ids, mask) = make(kind), batch(seed=seed)
    moved, moved_mask = at_the_left(ids, mask)
    junk = torch.randint(V, ids.shape, generator=torch.Generator().manual_seed(seed + 1))
    right = model(ids.where(mask, junk), mask)[mask]
    torch.testing.assert_close(model(moved.where(moved_mask, junk), moved_mask)[moved_mask], right, atol=1e-6, rtol=0)
    torch.testing.assert_close(right[:T], model(ids[:1])[0], atol=1e-6, rtol=0)


def test_only_distances_count():
    """A text behind others, none of which it may attend to, says what it says alone."""
    model, (ids, _) = make("window", window=2, n_layers=1), batch()
    alone = model(ids[:, 3:])
    torch.testing.assert_close(model(ids)[:, 4:], alone[:, 1:], atol=1e-5, rtol=0)


def test_what_depth_makes_reachable():
    """With a window of 3, a token reaches 2 places back in each of two layers: 4 in all."""
    model, (ids, _) = make("window"), batch()
    for place, reached in ((T - 5, True), (T - 6, False)):
        changed = ids.clone()
        changed[:, place] = (ids[:, place] + 1) % V
        assert torch.equal(model(ids)[:, -1], model(changed)[:, -1]) != reached


def test_half_precision_rounds_no_angle():
    """In bfloat16 the positions 256 and 257 are one, and so are the angles of the fast pairs."""
    model = make(max_length=600).float()
    ids = torch.randint(V, (1, 600), generator=torch.Generator().manual_seed(0))
    exact, rounded = model(ids), deepcopy(model).bfloat16()(ids).float()
    apart = (exact - rounded).abs().mean(dim=-1)[0]
    assert apart[-100:].mean() < 1.5 * apart[:100].mean()


# --- caches ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@given(
    seed=st.integers(0, 100),
    pieces=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    padding=st.sampled_from([None, "left"]),
)
def test_with_caches_piece_by_piece_is_the_same(kind, seed, pieces, padding):
    model, (ids, mask) = make(kind), batch(seed=seed)
    ids, mask = (ids, None) if padding is None else at_the_left(ids, mask)
    caches, parts, start = model.new_caches(32), [], T if padding else 0
    whole_ids = torch.cat([ids, ids, ids], dim=1)
    whole_mask = None if mask is None else torch.cat([mask, torch.ones(4, 2 * T).bool()], dim=1)
    if padding:  # the first piece holds a real token of each row
        parts.append(model(ids, mask, caches))
    for piece in pieces:
        end = start + piece
        parts.append(model(whole_ids[:, start:end], None if mask is None else whole_mask[:, :end], caches))
        start = end
    found, expected = torch.cat(parts, dim=1), model(whole_ids, whole_mask)[:, :start]
    real = torch.ones(4, start).bool() if mask is None else whole_mask[:, :start]
    torch.testing.assert_close(found[real], expected[real], atol=1e-6, rtol=0)
    assert caches[0].length == start


def test_memory_of_a_window_does_not_grow():
    model = make("window")
    caches = model.new_caches(32)
    for _ in range(10):
        model(torch.tensor([[1]]), None, caches)
    assert caches[0].key.shape == caches[0].value.shape == (1, KV, 2, D // H)
    assert caches[0].key.untyped_storage().nbytes() == 8 * KV * 2 * (D // H)
    model(torch.ones(1, 12, dtype=torch.long), None, caches)
    assert caches[0].key.untyped_storage().nbytes() == 8 * KV * 2 * (D // H)
    assert caches[0].length == 22


def test_a_cache_holds_the_shared_heads_alone():
    caches = make().new_caches(32)
    make()(torch.tensor([[1, 2]]), None, caches)
    assert caches[0].key.shape == (1, KV, 32, D // H)


def test_it_writes_as_it_would_without_caches():
    model, (ids, mask) = make("window"), batch()
    ids, mask = at_the_left(ids, mask)
    found = generate(model.float(), ids, mask, 8, temperature=0)
    for t in range(8):
        following = model(torch.cat([ids, found[:, :t]], dim=1), torch.cat([mask, torch.ones(4, t).bool()], dim=1))
        assert torch.equal(following[:, -1].argmax(dim=-1), found[:, t])


# --- training -------------------------------------------------------------------------------------------------


def test_it_learns_texts_by_heart():
    model, ids = Llama(LlamaConfig(**SMALL)), torch.arange(32).view(4, 8) * 7 % V
    Training(model, gpt_loss, iter(lambda: {"ids": ids}, None), adamw(model, 1e-2), 150).fit()
    assert (model(ids)[:, 1:-1].argmax(dim=-1) == ids[:, 2:]).float().mean() > 0.9


def test_recomputing_gives_the_same_gradients():
    grads, calls = recomputed(make(dropout=0.25).train())
    assert all(torch.equal(a, b) for a, b in zip(*grads))
    assert calls == 1 + 2, "the block ran twice for one gradient"


def test_at_first_it_knows_nothing():
    torch.manual_seed(0)
    model, ids = Llama(LlamaConfig(**SMALL)), torch.randint(V, (8, T))
    total, count = gpt_loss(model, {"ids": ids})
    assert (total / count).item() == pytest.approx(np.log(V), abs=0.05)


def test_without_a_number_every_head_has_its_own_keys():
    assert LlamaConfig(d_model=64, n_heads=4).n_kv_heads == 4


# --- what is refused ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"n_kv_heads": 4}, "n_kv_heads=4: must divide n_heads=6"),
        ({"n_heads": 5, "n_kv_heads": 5}, "n_heads=5: must divide d_model=24, or give d_head"),
        ({"d_head": -2}, "d_head=-2: must be at least 1"),
        ({"eps": -1.0}, "eps=-1.0: must be at least 0"),
        ({"window": 1.5}, "window=1.5: must be a whole number"),
        ({"d_head": 5}, "heads of size 5: must be even, since entries turn in pairs"),
        ({"window": 0}, "window=0: must be at least 1"),
        ({"rotary_base": 1.0}, "rotary_base=1.0: must be above 1"),
        ({"n_layers": 0}, "n_layers=0: must be at least 1"),
        ({"dropout": 1.0}, "dropout=1.0: must be a probability below 1"),
    ],
)
def test_nonsense_is_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        LlamaConfig(**SMALL | changes)


def test_bad_input_is_refused():
    model, (ids, mask) = make(), batch()
    for arguments, words in (
        ((torch.zeros(1, 33, dtype=torch.long),), "33 positions: the model was built for max_length=32"),
        ((ids, mask & (torch.arange(4) != 2)[:, None]), "a text has no real token"),
        ((ids, mask[:, 1:]), r"mask of shape \(4, 8\): must be \(4, 9\), as the tokens"),
        ((torch.full((1, 2), V),), rf"ids must lie in 0\.\.{V - 1}"),
        ((ids, mask, []), "^0 caches for 2 blocks: must be one for each"),
        ((ids, mask, model.new_caches(9)[:1]), "^1 caches for 2 blocks: must be one for each"),
    ):
        with pytest.raises(ValueError, match=words):
            model(*arguments)


def test_a_scaling_is_no_dictionary():
    with pytest.raises(ValueError, match=r"rotary_scaling=\{'factor': 8\.0\}: must be a RotaryScaling, or None"):
        LlamaConfig(rotary_scaling={"factor": 8.0})
