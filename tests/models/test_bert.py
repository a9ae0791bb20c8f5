"""BERT: its size, its numbers beside formulas written out again, its invariances and objectives.

Beside transformers it stands in ``tests/convert/test_bert.py``.
"""

import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from coursekit.models.bert import (
    Bert,
    BertConfig,
    BertForPreTraining,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    best_span,
    classification_loss,
    pretraining_loss,
    span_loss,
    tagging_loss,
)
from coursekit.nn.attention import record_attention
from coursekit.train import Training, adamw, warmup_linear
from tests.conftest import randomise

V, D, H = 17, 12, 3
SMALL = {"vocab_size": V, "d_model": D, "n_heads": H, "d_ff": 20, "n_layers": 2, "max_length": 16}
LABELS = ["no", "yes", "maybe"]


def make(kind=Bert, seed: int = 0, **changes):
    bert = Bert(BertConfig(**SMALL | changes))
    if kind is not Bert:
        bert = kind(bert, LABELS) if "Classification" in kind.__name__ else kind(bert)
    model = randomise(bert, seed).double().eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("norm.weight"):
                p += 1  # much smaller, and each block says less of the words than the one before
    return model


def batch(B: int = 4, T: int = 9, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.tensor([T, 1, *torch.randint(1, T + 1, (B - 2,), generator=generator)])
    ids = torch.randint(V, (B, T), generator=generator)
    segments = (torch.arange(T) >= torch.randint(1, T, (B, 1), generator=generator)).long()
    return ids, torch.arange(T) < lengths[:, None], segments


def parameters(kind, **changes) -> int:
    with torch.device("meta"):
        model = Bert(BertConfig(**changes))
        model = model if kind is Bert else kind(model)
    return sum(p.numel() for p in model.parameters())


def test_parameters_of_the_published_models():
    """Sizes from the papers, counts from Google's checkpoints (appendix A.2 rounds them to 110 and 340 millions)."""
    for config, size, millions in (
        (BertConfig.base(), 109_482_240, 110),
        (BertConfig.large(), 335_141_888, 340),
        (BertConfig.tiny(), 4_385_920, 4.4),
    ):
        with torch.device("meta"):
            model = Bert(config)
        assert sum(p.numel() for p in model.parameters()) == size
        assert size / 1e6 == pytest.approx(millions, rel=0.02)
    c = BertConfig.large(dropout=0.2)
    assert (c.n_layers, c.d_model, c.n_heads, c.d_ff, c.dropout, c.max_length) == (24, 1024, 16, 4096, 0.2, 512)


def test_parameters_of_the_heads():
    """The decoder is the embedding: it adds one bias for each word, and no matrix."""
    assert parameters(BertForPreTraining) - parameters(Bert) == (768 * 768 + 768) + 2 * 768 + 30_522 + (2 * 768 + 2)


# --- the encoder, written out again ---------------------------------------------------------------------------


def norm(x: np.ndarray, weight, bias) -> np.ndarray:
    mean = x.mean(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(((x - mean) ** 2).mean(axis=-1, keepdims=True) + 1e-12) * weight + bias


def gelu(x: np.ndarray) -> np.ndarray:
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def by_hand(model: Bert, ids: list[int], segments: list[int]) -> list[np.ndarray]:
    """The states of one text without padding, head by head, in NumPy."""
    w = {name: p.detach().numpy() for name, p in model.named_parameters()}
    x = w["tokens.weight"][ids] + w["positions.encoding"][: len(ids)] + w["segments.weight"][segments]
    states = [norm(x, w["norm.weight"], w["norm.bias"])]
    for i in range(model.config.n_layers):
        x, p = states[-1], f"blocks.{i}."
        qkv = x @ w[f"{p}attention.qkv.weight"].T + w[f"{p}attention.qkv.bias"]
        query, key, value = np.split(qkv, 3, axis=-1)
        heads, size = [], D // H
        for h in range(H):
            q, k, v = (part[:, h * size : (h + 1) * size] for part in (query, key, value))
            e = np.exp(q @ k.T / math.sqrt(size))
            heads.append(e / e.sum(axis=-1, keepdims=True) @ v)
        out = np.concatenate(heads, axis=-1) @ w[f"{p}attention.out.weight"].T + w[f"{p}attention.out.bias"]
        x = norm(x + out, w[f"{p}attention_residual.norm.weight"], w[f"{p}attention_residual.norm.bias"])
        hidden = gelu(x @ w[f"{p}feed_forward.up.weight"].T + w[f"{p}feed_forward.up.bias"])
        out = hidden @ w[f"{p}feed_forward.down.weight"].T + w[f"{p}feed_forward.down.bias"]
        states.append(
            norm(x + out, w[f"{p}feed_forward_residual.norm.weight"], w[f"{p}feed_forward_residual.norm.bias"])
        )
    return states


@pytest.mark.parametrize("scale", [1.0, 1e-4], ids=["", "small enough for a larger epsilon to show"])
def test_the_states_are_the_papers(scale):
    model, (ids, mask, segments) = make(), batch()
    with torch.no_grad():
        for p in (model.tokens.weight, model.positions.encoding, model.segments.weight):
            p *= scale
    found = model.hidden_states(ids, mask, segments)
    assert len(found) == 3
    for row in range(len(ids)):
        n = int(mask[row].sum())
        for state, expected in zip(found, by_hand(model, ids[row, :n].tolist(), segments[row, :n].tolist())):
            np.testing.assert_allclose(state[row, :n].detach(), expected, atol=1e-9)
    assert torch.equal(model(ids, mask, segments), found[-1])


def test_every_part_of_a_block_keeps_the_papers_epsilon():
    assert {m.eps for m in make(BertForPreTraining).modules() if isinstance(m, torch.nn.LayerNorm)} == {1e-12}


def test_words_are_guessed_by_the_head_of_the_paper():
    model, (ids, mask, segments) = make(BertForPreTraining), batch()
    w = {name: p.detach().numpy() for name, p in model.named_parameters()}
    hidden = model.bert(ids, mask, segments).detach().numpy()
    x = norm(gelu(hidden @ w["dense.weight"].T + w["dense.bias"]), w["norm.weight"], w["norm.bias"])
    words, follows = model(ids, mask, segments)
    np.testing.assert_allclose(words.detach(), x @ w["bert.tokens.weight"].T + w["bias"], atol=1e-9)
    pooled = np.tanh(hidden[:, 0] @ w["bert.pooler.weight"].T + w["bert.pooler.bias"])
    expected = pooled @ w["next_sentence.weight"].T + w["next_sentence.bias"]
    np.testing.assert_allclose(follows.detach(), expected, atol=1e-9)


def test_at_chosen_places_the_same_words_are_guessed():
    model, (ids, mask, segments) = make(BertForPreTraining), batch()
    where = mask & (torch.rand(mask.shape, generator=torch.Generator().manual_seed(1)) < 0.5)
    everywhere, follows = model(ids, mask, segments)
    words, same = model(ids, mask, segments, where)
    assert words.shape == (where.sum(), V)
    torch.testing.assert_close(words, everywhere[where], atol=1e-12, rtol=1e-12)
    assert torch.equal(same, follows)


def test_the_output_matrix_is_the_embedding():
    model, (ids, mask, segments) = make(BertForPreTraining), batch()
    unseen = next(v for v in range(V) if v not in ids)
    words, _ = model(ids, mask, segments)
    words[..., unseen].sum().backward()
    assert model.bert.tokens.weight.grad[unseen].abs().sum() > 0
    assert sum(p.shape == (V, D) for p in model.parameters()) == 1


# --- invariances ----------------------------------------------------------------------------------------------

KINDS = [Bert, BertForPreTraining, BertForSequenceClassification, BertForTokenClassification, BertForQuestionAnswering]


def outputs(model, *inputs) -> list[torch.Tensor]:
    found = model(*inputs)
    return list(found) if isinstance(found, tuple) else [found]


def real_ones(found: list[torch.Tensor], mask: torch.Tensor) -> list[torch.Tensor]:
    """Of what was found for each token that for the real ones, else all of it."""
    return [x[mask] if x.shape[:2] == mask.shape else x for x in found]


@pytest.mark.parametrize("kind", KINDS)
@given(st.integers(0, 10_000), st.integers(0, 3), st.integers(0, 3))
def test_padding_on_either_side_changes_nothing(kind, seed, left, right):
    model, (ids, mask, segments) = make(kind, seed % 3), batch(seed=seed)
    expected = real_ones(outputs(model, ids, mask, segments), mask)
    wide = (
        F.pad(ids, (left, right), value=seed % V),
        F.pad(mask, (left, right)),
        F.pad(segments, (left, right), value=1),
    )
    for a, b in zip(real_ones(outputs(model, *wide), wide[1]), expected):
        torch.testing.assert_close(a, b, atol=1e-9, rtol=1e-9)
    n = int(mask[-1].sum())
    alone = outputs(model, ids[-1:, :n], None, segments[-1:, :n])
    together = outputs(model, ids, mask, segments)
    for a, b in zip(alone, together):
        b = b[-1:, :n] if b.shape[:2] == mask.shape else b[-1:]
        torch.testing.assert_close(a, b, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@given(st.integers(0, 10_000))
def test_texts_do_not_see_each_other(kind, seed):
    model, inputs = make(kind, seed % 3), batch(seed=seed)
    order = torch.randperm(len(inputs[0]), generator=torch.Generator().manual_seed(seed))
    for a, b in zip(outputs(model, *(x[order] for x in inputs)), outputs(model, *inputs)):
        torch.testing.assert_close(a, b[order], atol=1e-9, rtol=1e-9)


@given(st.integers(0, 10_000), st.integers(0, 8))
def test_every_token_sees_every_other_and_its_segment(seed, place):
    """In both directions: a change at one place, of the word or of its segment alone, is felt at each."""
    model, (ids, _, segments) = make(seed=seed % 3), batch(seed=seed)
    before = model(ids, None, segments)
    other, other_segment = ids.clone(), segments.clone()
    other[:, place], other_segment[:, place] = (ids[:, place] + 1) % V, 1 - segments[:, place]
    for after in (model(other, None, segments), model(ids, None, other_segment)):
        assert ((after - before).abs().amax(dim=-1) > 1e-9).all()


def test_places_tell_words_apart():
    model = make()
    ids = torch.tensor([[3, 5, 7, 3]])
    swapped = torch.tensor([[3, 7, 5, 3]])
    assert (model(ids)[0, 1] - model(swapped)[0, 2]).abs().max() > 1e-3
    assert torch.equal(model(ids), model(ids, torch.ones(1, 4).bool(), torch.zeros(1, 4).long()))


def test_each_block_shows_its_attention():
    model, (ids, mask, segments) = make(), batch()
    with record_attention(model) as maps:
        model(ids, mask, segments)
    assert list(maps) == ["blocks.0.attention", "blocks.1.attention"]
    for (weights,) in maps.values():
        assert weights.shape == (4, H, 9, 9)
        assert (weights[~mask[:, None, None].expand_as(weights)] == 0).all()


# --- objectives -----------------------------------------------------------------------------------------------


def test_the_loss_of_pretraining():
    """The mean over masked words plus the mean over pairs; the other places do not count."""
    model, (ids, mask, segments) = make(BertForPreTraining), batch()
    masked = torch.zeros_like(mask)
    masked[0, 2:6] = masked[1, 0] = masked[2, 0] = True
    target, label = (ids + 1) % V, torch.tensor([0, 1, 1, 0])
    data = {
        "ids": ids,
        "mask": mask,
        "segments": segments,
        "masked": masked,
        "target": target,
        "labels": label,
    }
    words, follows = model(ids, mask, segments)
    log_p = words.log_softmax(dim=-1)
    places = masked.nonzero().tolist()
    of_words = -sum(log_p[b, t, target[b, t]] for b, t in places) / len(places)
    of_pairs = -sum(follows.log_softmax(dim=-1)[b, label[b]] for b in range(4)) / 4
    total, count = pretraining_loss(model, data)
    assert count == 6
    assert (total / count).item() == pytest.approx((of_words + of_pairs).item(), rel=1e-5)
    elsewhere = {**data, "target": torch.where(masked, target, 0)}
    assert pretraining_loss(model, elsewhere)[0] == total
    del data["labels"]
    total, count = pretraining_loss(model, data)
    assert (total / count).item() == pytest.approx(of_words.item(), rel=1e-5)


def test_the_losses_of_fine_tuning():
    ids, mask, segments = batch()
    data = {"ids": ids, "mask": mask, "segments": segments, "labels": torch.tensor([2, 0, 1, 1])}
    model = make(BertForSequenceClassification)
    total, count = classification_loss(model, data)
    expected = F.cross_entropy(model(ids, mask, segments), data["labels"], reduction="sum")
    assert (count, total.item()) == (4, pytest.approx(expected.item(), rel=1e-5))

    model, tags = make(BertForTokenClassification), ids % 3
    tagged = mask & (ids % 2 == 0)
    assert 0 < tagged.sum() < mask.sum()
    total, count = tagging_loss(model, {**data, "tags": tags, "tagged": tagged})
    log_p = model(ids, mask, segments).log_softmax(dim=-1)
    expected = -sum(log_p[b, t, tags[b, t]] for b, t in tagged.nonzero().tolist())
    assert (count, total.item()) == (tagged.sum(), pytest.approx(expected.item(), rel=1e-5))

    model = make(BertForQuestionAnswering)
    n = mask.sum(dim=1)
    start, end = n // 3, n - 1
    total, count = span_loss(model, {**data, "start": start, "end": end})
    expected = 0.0
    for b in range(4):  # each text by itself, without padding
        places = model(ids[b : b + 1, : n[b]], None, segments[b : b + 1, : n[b]])
        for logits, place in zip(places, (start[b], end[b])):
            expected -= logits[0].log_softmax(dim=0)[place].item()
    assert (count, total.item()) == (4, pytest.approx(expected, rel=1e-5))
    with pytest.raises(ValueError, match="the end of an answer lies at padding: it must be a token"):
        span_loss(model, {**data, "start": start, "end": n.clamp(max=mask.shape[1] - 1)})


def test_a_span_is_two_vectors():
    model, (ids, mask, segments) = make(BertForQuestionAnswering), batch()
    start, end = model(ids, mask, segments)
    hidden = model.bert(ids, mask, segments)
    S, E = model.span.weight
    torch.testing.assert_close(start[mask], hidden[mask] @ S + model.span.bias[0], atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(end[mask], hidden[mask] @ E + model.span.bias[1], atol=1e-9, rtol=1e-9)
    assert (start[~mask] == -torch.inf).all()
    assert (end[~mask] == -torch.inf).all()


@given(st.integers(0, 10_000))
def test_the_best_span_is_found_by_trying_all(seed):
    generator = torch.Generator().manual_seed(seed)
    start, end = torch.randn(2, 3, 7, generator=generator)
    allowed = torch.rand(3, 7, generator=generator) < 0.6
    allowed[:, seed % 7] = True
    for row, found in enumerate(best_span(start, end, allowed).tolist()):
        spans = [(i, j) for i in range(7) for j in range(i, 7) if allowed[row, i] and allowed[row, j]]
        assert tuple(found) == max(spans, key=lambda span: start[row, span[0]] + end[row, span[1]])


# --- frozen, and in training ----------------------------------------------------------------------------------


@pytest.mark.parametrize("training", [False, True])
def test_features_of_a_frozen_model(training):
    model, inputs = make(n_layers=5), batch()
    _, *blocks = model.hidden_states(*inputs)
    model.train(training)
    expected = {
        "last": blocks[4],
        "sum_last_four": blocks[1] + blocks[2] + blocks[3] + blocks[4],
        "concat_last_four": torch.cat([blocks[1], blocks[2], blocks[3], blocks[4]], dim=2),
    }
    for of, states in expected.items():
        found = model.features(*inputs, of=of)
        assert not found.requires_grad
        torch.testing.assert_close(found, states, atol=1e-12, rtol=1e-12)
        assert model.training == training
    with pytest.raises(ValueError, match="of='first': must be one of 'last', 'sum_last_four'"):
        model.features(*inputs, of="first")
    with pytest.raises(ValueError, match="a Bert of 2 blocks has no last four; use of='last'"):
        make().features(*inputs)


def test_what_is_dropped_in_training():
    """As in Google's program: embeddings, attention weights, both branches; not the hidden units."""
    model = Bert(BertConfig(**SMALL | {"dropout": 0.25}))
    for block in model.blocks:
        assert block.feed_forward.dropout.p == 0
        assert block.attention.dropout == 0.25
        assert block.attention_residual.dropout.p == block.feed_forward_residual.dropout.p == 0.25
    torch.manual_seed(0)
    ids = torch.randint(V, (50, 16))
    embedded = model.hidden_states(ids)[0]
    assert (embedded == 0).float().mean().item() == pytest.approx(0.25, abs=0.02)
    assert (model.eval().hidden_states(ids)[0] != 0).all()


def test_weights_begin_as_in_the_program():
    torch.manual_seed(0)
    bert = Bert(BertConfig(vocab_size=3000, d_model=64, n_heads=2, d_ff=128, n_layers=1))
    learned = {name: p.clone() for name, p in bert.named_parameters()}
    model = BertForPreTraining(bert)
    cut = 0.02 * 0.8796  # deviation of a normal distribution cut at two deviations
    checked = 0
    for name, p in model.named_parameters():
        if p.dim() >= 2:
            assert p.abs().max() <= 0.04, name
            if p.numel() > 1000:
                assert p.std().item() == pytest.approx(cut, rel=0.05), name
                checked += 1
        else:
            assert (p == ("norm.weight" in name)).all(), name
    assert checked == 8
    assert all(torch.equal(p, learned[name]) for name, p in bert.named_parameters()), "a head changed its body"


def test_a_body_serves_several_heads():
    bert = make()
    before = copy.deepcopy(bert.state_dict())
    one, other = BertForSequenceClassification(bert, LABELS), BertForQuestionAnswering(bert)
    assert one.bert is other.bert is bert
    assert all(torch.equal(a, b) for a, b in zip(before.values(), bert.state_dict().values()))
    assert one.classifier.weight.shape == (3, D)
    assert one.labels == tuple(LABELS)


def test_the_optimizer_of_the_paper_spares_norms_and_biases():
    """Decoupled decay on every matrix and embedding, the one of positions among them, and on nothing else."""
    model = make(BertForPreTraining)
    decayed, spared = adamw(model, 1e-4).param_groups
    assert (decayed["weight_decay"], spared["weight_decay"]) == (0.01, 0.0)
    names = {id(p): name for name, p in model.named_parameters()}
    expected = {name for name in names.values() if "norm" not in name and not name.endswith("bias")}
    assert {names[id(p)] for p in decayed["params"]} == expected
    assert {names[id(p)] for p in spared["params"]} == set(names.values()) - expected


def test_it_learns_texts_by_heart():
    """Two of eight words are hidden each time; what is left tells which of eight texts it is."""
    torch.manual_seed(0)

    class Texts:
        def __init__(self):
            self.generator = torch.Generator().manual_seed(0)
            self.texts = torch.randint(1, V, (8, 8), generator=self.generator)

        def __next__(self):
            target = self.texts[torch.randint(8, (32,), generator=self.generator)]
            masked = torch.rand(32, 8, generator=self.generator).argsort(dim=1) < 2
            ids, mask = target.masked_fill(masked, 0), torch.ones(32, 8).bool()
            return {"ids": ids, "mask": mask, "masked": masked, "target": target}

    config = BertConfig(vocab_size=V, d_model=32, n_heads=2, d_ff=64, n_layers=2, max_length=8, dropout=0.0)
    model = BertForPreTraining(Bert(config))
    settings = {"schedule": warmup_linear(10), "clip": 1.0, "precision": "float32"}
    history = Training(model, pretraining_loss, Texts(), adamw(model, 1e-2), 150, **settings).fit()
    assert history[0]["loss"] == pytest.approx(math.log(V), rel=0.1), "it knows nothing yet"
    assert history[-1]["loss"] < 0.1


def test_training_in_half_precision_says_the_same():
    model, (ids, mask, segments) = make(BertForPreTraining).float(), batch()
    masked = mask & (torch.arange(9) % 2 == 0)
    data = {
        "ids": ids,
        "mask": mask,
        "segments": segments,
        "masked": masked,
        "target": ids,
        "labels": ids[:, 0] % 2,
    }
    expected, _ = pretraining_loss(model, data)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, _ = pretraining_loss(model, data)
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(expected.item(), rel=0.02)
    found.backward()
    assert all(p.grad.isfinite().all() and p.grad.dtype == torch.float32 for p in model.parameters())


def test_it_runs_where_there_is_an_accelerator(where):
    model, inputs = make(BertForPreTraining).float(), batch()
    expected = model(*inputs)
    moved = model.to(where)
    for a, b in zip(moved(*(x.to(where) for x in inputs)), expected):
        torch.testing.assert_close(a.cpu(), b, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"n_heads": 5}, "n_heads=5: must divide d_model=12"),
        ({"n_layers": 0}, "n_layers=0: must be at least 1"),
        ({"max_length": 0}, "max_length=0: must be at least 1"),
        ({"dropout": 1.0}, "dropout=1.0: must be a probability below 1"),
    ],
)
def test_nonsense_is_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        BertConfig(**SMALL | changes)


def test_bad_input_is_refused():
    model, (ids, mask, segments) = make(), batch()
    for wrong in (V, -1):
        with pytest.raises(ValueError, match=rf"ids must lie in 0\.\.{V - 1}: the vocabulary has {V} tokens"):
            model(torch.full((2, 3), wrong))
    with pytest.raises(ValueError, match="a text has no real token: every row of its mask needs at least one True"):
        model(ids, mask & (torch.arange(4) != 2)[:, None], segments)
    with pytest.raises(ValueError, match="17 positions: the model was built for max_length=16"):
        model(torch.zeros(1, 17, dtype=torch.long))
    with pytest.raises(ValueError, match=r"mask of torch\.int64: must be boolean"):
        model(ids, mask.long(), segments)
    bert = Bert(BertConfig(**SMALL), pooler=False)
    with pytest.raises(ValueError, match="this Bert has no pooler"):
        bert.pool(bert(ids))


@pytest.mark.parametrize("head", [BertForSequenceClassification, BertForTokenClassification])
@pytest.mark.parametrize("labels", ["good", [], ["good", "bad", "good"]])
def test_labels_that_are_no_names_are_refused(head, labels):
    with pytest.raises(ValueError, match="must be a list of names, at least one, each another"):
        head(Bert(BertConfig(30, 16, 2, 32, 1, 10)), labels)


def test_spans_that_cannot_be_found_are_refused():
    start, allowed = torch.zeros(2, 5), torch.tensor([[False, True, True, False, False], [False] * 5])
    with pytest.raises(ValueError, match="a text has no place that is allowed"):
        best_span(start, start, allowed)
    with pytest.raises(ValueError, match=r"end of shape \(1, 5\): must be \(2, 5\)"):
        best_span(start, start[:1], allowed)
