import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from coursekit.models.seq2seq import Seq2Seq, Seq2SeqConfig, seq2seq_loss
from coursekit.nn.attention import record_attention
from coursekit.nn.sampling import draw
from tests.conftest import randomise, softmax

VARIANTS = [
    {"score": None},
    {"score": None, "cell": "gru", "bidirectional": True},
    {"score": "dot"},
    {"score": "dot", "bidirectional": True, "encoder_size": 3, "cell": "gru"},
    {"score": "general", "bidirectional": True},
    {"score": "general", "input_feeding": True},
    {"score": "concat", "cell": "gru", "input_feeding": True, "bidirectional": True},
    {"score": "concat", "encoder_size": 4},
    {"score": "additive", "cell": "gru", "bidirectional": True},
    {"score": "additive", "cell": "lstm"},
]
V, D, E = 9, 6, 5


def name(variant: dict) -> str:
    return ", ".join(f"{k}={v}" for k, v in variant.items())


variants = pytest.mark.parametrize("variant", VARIANTS, ids=name)


def make(variant: dict, seed: int = 0) -> Seq2Seq:
    config = Seq2SeqConfig(vocab_size=V, bos_id=V - 1, embed_size=E, hidden_size=D, **variant)
    return randomise(Seq2Seq(config), seed).double()


def batch(B: int = 4, S: int = 6, T: int = 5, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    source = torch.randint(V, (B, S), generator=generator)
    lengths = torch.randint(1, S + 1, (B, 1), generator=generator)
    lengths[0] = S
    return source, torch.arange(S) < lengths, torch.randint(V, (B, T), generator=generator)


def single_reference(model: Seq2Seq, source: list[int], target: list[int]) -> np.ndarray:
    """Logits for one unpadded pair, from the docstrings' formulas with PyTorch's cells, one vector at a time."""
    c, p = model.config, {k: v.double() for k, v in model.state_dict().items()}
    Cell = nn.LSTMCell if c.cell == "lstm" else nn.GRUCell

    def cell(prefix: str, suffix: str, inputs: int, hidden: int):
        made = Cell(inputs, hidden).double()
        made.load_state_dict({n: p[f"{prefix}.{n}_l0{suffix}"] for n in made.state_dict()})
        return made

    def h_of(state):
        return state[0] if c.cell == "lstm" else state

    def read(made, embedded):
        state, states = None, []
        for x in embedded:
            state = made(x, state)
            states.append(h_of(state))
        return states, state

    embedded = [p["encoder.embedding.weight"][i] for i in source]
    states, final = read(cell("encoder.rnn", "", E, c.encoder_size), embedded)
    if c.bidirectional:
        backward, final = read(cell("encoder.rnn", "_reverse", E, c.encoder_size), embedded[::-1])
        states = [torch.cat(pair) for pair in zip(states, backward[::-1])]
    if c.bidirectional or c.encoder_size != D:
        parts = list(final) if c.cell == "lstm" else [final]
        parts = [
            torch.tanh(p[f"encoder.to_decoder.{i}.weight"] @ part + p[f"encoder.to_decoder.{i}.bias"])
            for i, part in enumerate(parts)
        ]
        final = tuple(parts) if c.cell == "lstm" else parts[0]

    def attend(query):
        scores = []
        for key in states:
            if c.score == "dot":
                scores.append(query @ key)
            elif c.score == "general":
                scores.append(query @ p["decoder.attention.score.W.weight"] @ key)
            elif c.score == "concat":
                both = p["decoder.attention.score.W.weight"] @ torch.cat([query, key])
                scores.append(p["decoder.attention.score.v.weight"][0] @ torch.tanh(both))
            else:
                W, U = p["decoder.attention.score.W.weight"], p["decoder.attention.score.U.weight"]
                scores.append(p["decoder.attention.score.v.weight"][0] @ torch.tanh(W @ query + U @ key))
        weights = softmax(np.array([s.item() for s in scores]))
        return sum(w * key for w, key in zip(weights, states))

    inputs = E + (c.key_size if c.score == "additive" else D * c.input_feeding)
    decoder = cell("decoder.rnn", "", inputs, D)
    state, h_tilde, logits = final, torch.zeros(D).double(), []
    for symbol in [c.bos_id, *target[:-1]]:
        x = p["decoder.embedding.weight"][symbol]
        if c.score == "additive":
            context = attend(h_of(state))
            state = decoder(torch.cat([x, context]), state)
            h_tilde = torch.tanh(p["decoder.combine.weight"] @ torch.cat([h_of(state), context, x]))
        else:
            state = decoder(torch.cat([x, h_tilde]) if c.input_feeding else x, state)
            h_tilde = h_of(state)
            if c.score is not None:
                h_tilde = torch.tanh(p["decoder.combine.weight"] @ torch.cat([attend(h_of(state)), h_of(state)]))
        logits.append(p["to_logits.weight"] @ h_tilde + p["to_logits.bias"])
    return torch.stack(logits).detach().numpy()


@variants
def test_equals_an_independent_implementation_one_sequence_at_a_time(variant, where):
    """A padded batch gives what each sequence gives alone, unpadded: padding and batch invariance in one."""
    model = make(variant)
    source, mask, target = batch()
    expected = [single_reference(model, s[m].tolist(), t.tolist()) for s, m, t in zip(source, mask, target)]
    actual = model.to(where)(source.to(where), mask.to(where), target.to(where))
    np.testing.assert_allclose(actual.detach().cpu().numpy(), expected, rtol=0, atol=1e-9)


FUSED = [v for v in VARIANTS if v["score"] != "additive" and not v.get("input_feeding")]


@pytest.mark.parametrize("variant", FUSED, ids=name)
def test_one_call_equals_stepwise(variant, monkeypatch):
    """The fused decoder against the loop, in float32 as it is trained, values and gradients."""
    model = make(variant).float()
    assert model.decoder.one_call
    source, mask, target = batch(B=3, S=20, T=20)

    def run():
        model.zero_grad()
        logits = model(source, mask, target)
        F.cross_entropy(logits.flatten(0, 1), target.flatten()).backward()
        return logits.detach(), [p.grad.clone() for p in model.parameters()]

    fused, fused_gradients = run()
    monkeypatch.setattr(model.decoder, "one_call", False)
    stepwise, stepwise_gradients = run()
    torch.testing.assert_close(fused, stepwise, rtol=0, atol=1e-6)
    for ours, theirs in zip(fused_gradients, stepwise_gradients):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)


@variants
@given(B=st.integers(1, 4), S=st.integers(1, 7), T=st.integers(1, 6), left=st.integers(0, 3), seed=st.integers(0, 99))
def test_padding_anywhere_changes_nothing(variant, B, S, T, left, seed):
    """Padding on the left, on the right, with whatever ids: same logits, and exactly no weight on it."""
    model = make(variant)
    source, mask, target = batch(B, S, T, seed)
    expected = model(source, mask, target)
    generator = torch.Generator().manual_seed(seed)

    def pad(width):
        return torch.randint(V, (B, width), generator=generator), torch.zeros(B, width).bool()

    (ids_l, mask_l), (ids_r, mask_r) = pad(left), pad(2)
    noise = torch.randint(V, source.shape, generator=generator)
    padded = torch.cat([ids_l, torch.where(mask, source, noise), ids_r], dim=1)
    padded_mask = torch.cat([mask_l, mask, mask_r], dim=1)
    if model.config.score is None:
        actual = model(padded, padded_mask, target)
    else:
        with record_attention(model) as maps:
            actual = model(padded, padded_mask, target)
        weights = torch.cat(maps["decoder.attention"], dim=1)
        assert weights.shape == (B, T, left + S + 2)
        assert (weights * ~padded_mask[:, None] == 0).all()
        torch.testing.assert_close(weights.sum(-1), torch.ones(B, T).double())
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-10)


@variants
def test_a_prediction_does_not_see_what_it_predicts(variant):
    model = make(variant)
    source, mask, target = batch()
    before = model(source, mask, target)
    changed = target.clone()
    changed[:, 2] = (changed[:, 2] + 1) % V
    after = model(source, mask, changed)
    assert torch.equal(before[:, :3], after[:, :3])
    assert (before[:, 3] != after[:, 3]).any()


@variants
def test_the_gradient_is_right(variant):
    model = make(variant)
    source, mask, target = batch(B=2, S=3, T=2)
    names = [n for n, _ in model.named_parameters()]
    weights = [p.detach().clone().requires_grad_() for p in model.parameters()]

    def run(*weights):
        return torch.func.functional_call(model, dict(zip(names, weights)), (source, mask, target))

    assert torch.autograd.gradcheck(run, weights, fast_mode=True)


@variants
def test_greedy_decoding_feeds_each_choice_back(variant, where):
    model = make(variant).to(where)
    source, mask, _ = batch()
    source, mask = source.to(where), mask.to(where)
    decoded = model.generate(source, mask, steps=5)
    logits = model(source, mask, decoded)  # teacher-forced with its own output
    assert torch.equal(logits.argmax(-1), decoded)
    assert torch.equal(model(source, mask, torch.zeros_like(decoded), teacher_forcing=0.0).argmax(-1), decoded)


def test_sampling_follows_the_distribution():
    model = make({"score": "dot"})
    source, mask, _ = batch(B=1)
    many = model.generate(source.expand(20_000, -1), mask.expand(20_000, -1), 1, 0.7, torch.Generator().manual_seed(0))
    p = (model(source, mask, torch.zeros(1, 1, dtype=torch.long))[0, 0] / 0.7).softmax(-1)
    share = torch.bincount(many[:, 0], minlength=V) / 20_000
    torch.testing.assert_close(share.double(), p.detach(), rtol=0, atol=0.015)


def test_sampling_draws_once_a_step_from_the_generator():
    """The same tokens as of a loop that is written out, with the same generator."""
    model = make({"score": "general"})
    source, mask, _ = batch()
    many, generator = model.generate(source, mask, 6, 0.7, torch.Generator().manual_seed(3)), torch.Generator()
    generator.manual_seed(3)
    written = torch.zeros(len(source), 0, dtype=torch.long)
    for _ in range(6):
        more = torch.cat([written, written.new_zeros(len(source), 1)], dim=1)
        p = (model(source, mask, more)[:, -1].float() / 0.7).softmax(dim=-1)
        written = torch.cat([written, draw(p, generator)[:, None]], dim=1)
    assert torch.equal(many, written)


def test_teacher_forcing_ratio_draws_per_sequence_and_step():
    """With ratio r the logits of step 1 are those of the true symbol for about r of the sequences, else of its own."""
    model = make({"score": "dot"})
    B = 2000
    source, mask, target = (x[:1].expand(B, -1) for x in batch())
    target = (model.generate(source[:1], mask[:1], 5) + 1).expand(B, -1) % V  # never the model's own choice
    true, own = model(source[:1], mask[:1], target[:1])[0, 1], model(source[:1], mask[:1], target[:1], 0.0)[0, 1]
    assert not torch.allclose(true, own)
    mixed = model(source, mask, target, 0.3, torch.Generator().manual_seed(0))[:, 1]
    forced = torch.isclose(mixed, true).all(-1)
    assert (forced | torch.isclose(mixed, own).all(-1)).all()
    assert abs(forced.float().mean().item() - 0.3) < 0.04

    # step 2 draws anew: among the sequences that were forced at step 1 the share is the same
    after = model(source[:1], mask[:1], target[:1])[0, 2]
    mixed = model(source, mask, target, 0.3, torch.Generator().manual_seed(0))[forced, 2]
    assert abs(torch.isclose(mixed, after).all(-1).float().mean().item() - 0.3) < 0.06


@pytest.mark.parametrize("score", ["general", "concat", "additive"])
def test_keys_are_projected_once_per_source(score):
    model = make({"score": score, "input_feeding": score != "additive"})
    calls = []
    project = model.decoder.attention.score.project_keys
    model.decoder.attention.score.project_keys = lambda keys: (calls.append(1), project(keys))[1]
    source, mask, _ = batch()
    model.generate(source, mask, steps=5)
    assert len(calls) == 1


def test_loss_counts_only_real_targets():
    model = make({"score": "dot"})
    source, mask, target = batch()
    real = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [1, 0, 0, 0, 0], [1, 1, 1, 0, 0]]).bool()
    sample = {"source": source, "source_mask": mask, "target": target, "target_mask": real}
    loss, count = seq2seq_loss(model, sample)
    logits = model(source, mask, target).log_softmax(-1)
    expected = -sum(logits[b, t, target[b, t]] for b, t in real.nonzero().tolist())
    assert count == 11
    torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"hidden_size": 0}, "hidden_size=0"),
        ({"bos_id": 9}, "bos_id=9: must lie in 0..8"),
        ({"cell": "rnn"}, "'lstm' or 'gru'"),
        ({"score": "cosine"}, "'cosine'.*'dot'.*'additive'"),
        ({"score": "dot", "bidirectional": True}, "change encoder_size, or use score='general'"),
        ({"score": None, "input_feeding": True}, "only Luong"),
        ({"score": "additive", "input_feeding": True}, "only Luong"),
    ],
)
def test_nonsense_is_refused_with_the_field_and_a_way_out(wrong, says):
    with pytest.raises(ValueError, match=says):
        Seq2SeqConfig(**{"vocab_size": V, "bos_id": 0} | wrong)


def test_bad_calls_are_refused():
    model = make({"score": "dot"})
    source, mask, target = batch()
    mask = mask.clone()
    mask[1] = False
    with pytest.raises(ValueError, match="no real token"):
        model(source, mask, target)
    mask[1] = True
    with pytest.raises(ValueError, match="a probability lies in"):
        model(source, mask, target, teacher_forcing=1.5)
    with pytest.raises(ValueError, match="steps=0"):
        model.generate(source, mask, steps=0)
    with pytest.raises(ValueError, match="temperature=-1"):
        model.generate(source, mask, steps=1, temperature=-1)


def test_rnnsearch_has_the_published_sizes():
    with torch.device("meta"):
        model = Seq2Seq(Seq2SeqConfig.rnnsearch())
    assert model.encoder.rnn.hidden_size == 1000
    assert model.encoder.rnn.bidirectional
    assert model.decoder.rnn.input_size == 620 + 2000
    assert model.encoder.embedding.weight.shape == (30_000, 620)
