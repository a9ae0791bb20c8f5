import numpy as np
import pytest
import torch
from torch.nn import functional as F

from coursekit.data.batches import Shuffled
from coursekit.models.nnlm import NNLM, NNLMConfig, context_windows, nnlm_loss
from coursekit.train import Training, adamw, seed
from tests.conftest import randomise, softmax

V, END = 7, 3
DOCUMENTS = [[1, 0, 2, 6, 4], [], [5], [6, 6, 1, 2, 2, 0]]
directs = pytest.mark.parametrize("direct", [True, False])


def make(direct: bool = True, n: int = 4) -> NNLM:
    config = NNLMConfig(V, n, embed_size=3, hidden_size=5, direct=direct, end_id=END)
    return randomise(NNLM(config)).double()


def by_hand(model: NNLM, context: list[int]) -> np.ndarray:
    """Equation 1 with the paper's letters, one context, NumPy."""
    p = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    C, H, d, U, b = p["embedding.weight"], p["H.weight"], p["H.bias"], p["U.weight"], p["U.bias"]
    x = np.concatenate([C[w] for w in context])
    y = b + U @ np.tanh(d + H @ x)
    return y + p["W.weight"] @ x if model.config.direct else y


@directs
def test_is_equation_1(direct, where):
    model = make(direct)
    contexts = torch.randint(V, (8, 3), generator=torch.Generator().manual_seed(1))
    expected = [by_hand(model, context) for context in contexts.tolist()]
    actual = model.to(where)(contexts.to(where))
    np.testing.assert_allclose(actual.detach().cpu().numpy(), expected, rtol=0, atol=1e-12)


@directs
def test_probabilities_of_whole_documents(direct):
    """The distribution after each beginning of a document, padded by hand, and the log-probabilities of its tokens."""
    model = make(direct)
    found = model.log_probabilities(DOCUMENTS)
    for document, log_p in zip(DOCUMENTS, found, strict=True):
        expected = []
        for i, w in enumerate([*document, END]):
            p = softmax(by_hand(model, [END, END, END, *document[:i]][-3:]))
            np.testing.assert_allclose(model.next_probabilities(document[:i]), p, rtol=0, atol=1e-12)
            expected.append(np.log(p[w]))
        np.testing.assert_allclose(log_p, expected, rtol=0, atol=1e-6)  # the logits are rounded to float32
    assert model.log_probabilities([]) == []


def test_many_documents_are_measured_in_pieces():
    model = make()
    many = DOCUMENTS * 200  # 3,200 windows, more than one piece
    found = model.log_probabilities(many)
    assert [len(row) for row in found] == [len(document) + 1 for document in many]
    for i in (0, 401, 799):
        np.testing.assert_allclose(found[i], model.log_probabilities([many[i]])[0], rtol=0, atol=1e-6)


def test_windows_stay_within_documents():
    samples = context_windows([[1, 2], [4]], NNLMConfig(V, 3, end_id=END))
    assert samples["context"].tolist() == [[END, END], [END, 1], [1, 2], [END, END], [END, 4]]
    assert samples["target"].tolist() == [1, 2, END, 4, END]


def test_loss_is_the_sum_of_nats():
    model, samples = make(), context_windows(DOCUMENTS, make().config)
    loss, count = nnlm_loss(model, samples)
    assert count == 16
    expected = -sum(row.sum() for row in model.log_probabilities(DOCUMENTS))
    assert loss.item() == pytest.approx(expected, rel=1e-6)
    loss.backward()
    assert all(p.grad.abs().sum() > 0 for p in model.parameters())


def test_it_learns_and_resumes_to_the_same_bits(tmp_path):
    """A run killed between checkpoints and begun again, against one in a single piece."""

    def run(folder, until: int) -> tuple[NNLM, Training]:
        seed(0)
        model = NNLM(NNLMConfig(V, 3, 8, 16, end_id=END))
        data = Shuffled(context_windows(DOCUMENTS * 5, model.config), 16, seed=1)
        training = Training(
            model, nnlm_loss, data, adamw(model, 1e-2), 60, log_every=1, folder=tmp_path / folder, save_every=10
        )
        for record in training:
            if record["step"] == until:
                break
        return model, training

    whole, history = run("whole", 60)
    run("killed", 37)  # the last checkpoint is that of step 30
    resumed, again = run("killed", 60)
    assert again.history == history.history
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), resumed.parameters()))
    assert history.history[-1]["loss"] < 0.5 * history.history[0]["loss"]
    logits = whole(context_windows(DOCUMENTS, whole.config)["context"])
    assert F.cross_entropy(logits, context_windows(DOCUMENTS, whole.config)["target"]) < 0.9


def test_parameters_of_the_paper():
    """Section 2: |V| (1 + n m + h) + h (1 + (n - 1) m) free parameters with direct connections."""
    c = NNLMConfig.mlp1(1000)
    expected = c.vocab_size * (1 + c.n * c.embed_size + c.hidden_size) + c.hidden_size * (1 + (c.n - 1) * c.embed_size)
    assert sum(p.numel() for p in NNLM(c).parameters()) == expected
    assert (c.n, c.embed_size, c.hidden_size) == (5, 60, 50)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocab_size": 0}, "vocab_size=0: must be at least 1"),
        ({"embed_size": 0}, "embed_size=0"),
        ({"hidden_size": -1}, "hidden_size=-1"),
        ({"n": 1}, "n=1: must be at least 2"),
        ({"end_id": V}, r"end_id=7: must lie in 0..6"),
    ],
)
def test_bad_sizes_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        NNLMConfig(**{"vocab_size": V} | change)
