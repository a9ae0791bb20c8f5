import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from coursekit.nn.attention import record_attention
from coursekit.nn.scores import SCORES, ScoreAttention
from tests.conftest import randomise, softmax


def reference(name: str, parameters: dict[str, np.ndarray], q: np.ndarray, k: np.ndarray) -> float:
    """One score of one query and one key, as the papers write it, in plain loops."""
    if name == "dot":
        return sum(a * b for a, b in zip(q, k))
    if name == "general":
        W = parameters["W.weight"]
        return sum(q[i] * W[i, j] * k[j] for i in range(len(q)) for j in range(len(k)))
    v = parameters["v.weight"][0]
    if name == "concat":
        both = np.concatenate([q, k])
        hidden = [np.tanh(sum(row[j] * both[j] for j in range(len(both)))) for row in parameters["W.weight"]]
    else:
        W, U = parameters["W.weight"], parameters["U.weight"]
        hidden = [np.tanh(np.dot(W[i], q) + np.dot(U[i], k)) for i in range(len(W))]
    return sum(a * b for a, b in zip(v, hidden))


@pytest.mark.parametrize("name", SCORES)
@given(B=st.integers(1, 3), T=st.integers(1, 4), S=st.integers(1, 5), D=st.integers(1, 6), data=st.data())
def test_score_equals_a_numpy_loop(name, B, T, S, D, data):
    K = D if name == "dot" else data.draw(st.integers(1, 6), label="K")
    score = randomise(SCORES[name](D, K)).double()
    generator = torch.Generator().manual_seed(1)
    query = torch.randn(B, T, D, generator=generator).double()
    keys = torch.randn(B, S, K, generator=generator).double()
    actual = score(query, score.project_keys(keys)).detach().numpy()
    parameters = {key: value.numpy() for key, value in score.state_dict().items()}
    assert actual.shape == (B, T, S)
    for b, t, s in np.ndindex(B, T, S):
        expected = reference(name, parameters, query[b, t].numpy(), keys[b, s].numpy())
        np.testing.assert_allclose(actual[b, t, s], expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", SCORES)
def test_gradients(name, where, generator):
    attention = randomise(ScoreAttention(name, 3, 3)).double().to(where)
    query = torch.randn(2, 2, 3, generator=generator).double().to(where).requires_grad_()
    values = torch.randn(2, 4, 3, generator=generator).double().to(where).requires_grad_()
    mask = torch.tensor([[1, 1, 1, 1], [0, 1, 1, 0]], device=where).bool()
    parameters = list(attention.parameters())
    weights = [p.detach().clone().requires_grad_() for p in parameters]
    names = [n for n, _ in attention.named_parameters()]

    def run(query, values, *weights):
        call = torch.func.functional_call
        replaced = dict(zip(names, weights))
        return call(Whole(attention), {f"attention.{n}": w for n, w in replaced.items()}, (query, values, mask))

    assert torch.autograd.gradcheck(run, (query, values, *weights))


class Whole(torch.nn.Module):
    def __init__(self, attention):
        super().__init__()
        self.attention = attention

    def forward(self, query, values, mask):
        return self.attention(query, self.attention.remember(values, mask))


@pytest.mark.parametrize("name", SCORES)
def test_context_is_the_weighted_sum_over_real_positions(name, where, generator):
    attention = randomise(ScoreAttention(name, 4, 4)).to(where)
    query, values = torch.randn(2, 3, 4, generator=generator), torch.randn(2, 5, 4, generator=generator)
    mask = torch.tensor([[1, 1, 1, 1, 1], [0, 1, 0, 1, 1]]).bool()
    query, values, mask = query.to(where), values.to(where), mask.to(where)
    with record_attention(attention) as maps:
        context = attention(query, attention.remember(values, mask))
    (weights,) = maps[""]
    assert (weights[~mask[:, None].expand_as(weights)] == 0).all(), "padding must get exactly 0"
    scores = attention.score(query, attention.score.project_keys(values)).detach().cpu().numpy()
    for b, t in np.ndindex(2, 3):
        real = mask[b].cpu().numpy()
        expected = softmax(scores[b, t][real])
        np.testing.assert_allclose(weights[b, t].cpu().numpy()[real], expected, atol=1e-6)
        np.testing.assert_allclose(context[b, t].detach().cpu(), expected @ values[b].cpu().numpy()[real], atol=1e-6)


def test_an_unknown_score_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match="score='cosine': must be one of 'dot', 'general', 'concat', 'additive'"):
        ScoreAttention("cosine", 4, 4)


def test_dot_refuses_unequal_sizes():
    with pytest.raises(ValueError, match="score='general'"):
        ScoreAttention("dot", 4, 6)
