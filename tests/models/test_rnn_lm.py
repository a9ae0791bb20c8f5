import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from coursekit.models.rnn_lm import RNNLM, RNNLMConfig, Streams, tbptt_objective
from coursekit.train import Training, adamw, seed
from coursekit.train.checkpoint import load_state
from tests.conftest import randomise

V, END, D = 7, 3, 5
DOCUMENTS = [[1, 0, 2, 6, 4, 4, 0, 1, 1, 5], [], [5], [6, 6, 1, 2, 2, 0, 4], [0] * 23]
CELLS = {"rnn": nn.RNNCell, "gru": nn.GRUCell, "lstm": nn.LSTMCell}
variants = pytest.mark.parametrize(
    "variant",
    [{"cell": "rnn"}, {"cell": "gru", "dropout": 0.5}, {"cell": "lstm"}, {"cell": "lstm", "tied": True}],
    ids=str,
)


def make(variant: dict, seed: int = 0) -> RNNLM:
    config = RNNLMConfig(V, D if variant.get("tied") else 4, D, end_id=END, **variant)
    return randomise(RNNLM(config), seed, std=0.6).double()


def by_hand(model: RNNLM, document: list[int]) -> np.ndarray:
    """ln p of all tokens at each place (T, V), by PyTorch's cells, one token at a time."""
    p = model.state_dict()
    cell = CELLS[model.config.cell](model.config.embed_size, D).double()
    cell.load_state_dict({name: p[f"rnn.{name}_l0"] for name in cell.state_dict()})
    state, rows = None, []
    with torch.no_grad():
        for w in [END, *document]:
            state = cell(p["embedding.weight"][w], state)
            h = state[0] if isinstance(state, tuple) else state
            rows.append((p["to_logits.weight"] @ h + p["to_logits.bias"]).log_softmax(dim=-1))
    return torch.stack(rows).numpy()


@variants
def test_whole_documents(variant, where):
    """Values of each token one at a time, against documents padded, read side by side and in pieces."""
    model = make(variant)
    expected = [by_hand(model, document) for document in DOCUMENTS]
    model = model.to(where).train()  # dropout must not be in what is measured
    for length, batch_size in ((64, 32), (3, 2), (1, 1)):
        found = model.log_probabilities(DOCUMENTS, length, batch_size)
        for document, log_p, rows in zip(DOCUMENTS, found, expected, strict=True):
            values = [row[w] for row, w in zip(rows, [*document, END])]
            np.testing.assert_allclose(log_p, values, rtol=0, atol=1e-6)  # the logits are rounded to float32
    for i in (0, 4, 10):
        p = model.next_probabilities(DOCUMENTS[0][:i])
        np.testing.assert_allclose(p, np.exp(expected[0][i]), rtol=0, atol=1e-12)
        assert p.sum() == pytest.approx(1)
    assert model.training
    assert model.log_probabilities([]) == []


@variants
def test_a_carried_state_is_one_long_run(variant):
    model = make(variant).eval()
    ids = torch.randint(V, (3, 20), generator=torch.Generator().manual_seed(1))
    expected, last = model(ids)
    state, pieces = None, []
    for piece in ids.split([7, 1, 12], dim=1):
        logits, state = model(piece, state)
        pieces.append(logits)
    np.testing.assert_allclose(torch.cat(pieces, dim=1).detach(), expected.detach(), rtol=0, atol=1e-12)
    assert len(state) == len(last) == (2 if variant["cell"] == "lstm" else 1)
    for a, b in zip(state, last):
        np.testing.assert_allclose(a.detach(), b.detach(), rtol=0, atol=1e-12)


documents = st.lists(st.lists(st.integers(0, V - 1), max_size=9), min_size=1, max_size=6)


@given(documents, st.integers(1, 4), st.integers(1, 6), st.integers(0, 3))
def test_every_row_reads_documents_from_beginning_to_end(found, batch_size, length, start):
    """Rows put together again: whole documents, each as often as the others give or take what is under way."""
    streams = Streams(found, batch_size, length, END, seed=start)
    texts: list[list[list[int]]] = [[] for _ in range(batch_size)]
    for _ in range(12):
        batch = next(streams)
        assert all(batch[name].shape == (batch_size, length) for name in ("ids", "target", "mask"))
        for b in range(batch_size):
            ids, target = (batch[name][b][batch["mask"][b]].tolist() for name in ("ids", "target"))
            assert ids, "no row is idle"
            assert batch["mask"][b][: len(ids)].all(), "what is real comes first"
            if batch["fresh"][b]:
                assert ids[0] == END
                texts[b].append([])
            else:
                assert ids[0] == texts[b][-1][-1], "reads what it predicted last"
            assert ids[1:] == target[:-1]
            texts[b][-1] += target
    begun = [text for row in texts for text in row]
    assert streams.drawn == len(begun)
    whole = [*[text for row in texts for text in row[:-1]]]
    rows = sorted([*document, END] for document in found)
    assert all(text in rows for text in whole)
    for text in (row[-1] for row in texts):
        assert any(row[: len(text)] == text for row in rows)


def test_each_pass_has_every_document_once_in_a_new_order():
    streams = Streams([[i] for i in range(5)], batch_size=1, length=2)
    passes = [[next(streams)["target"][0, 0].item() for _ in range(5)] for _ in range(4)]
    assert all(sorted(p) == list(range(5)) for p in passes)
    assert len({tuple(p) for p in passes}) > 2


@variants
def test_the_tbptt_loss_is_that_of_whole_documents(variant):
    """Without updates in between, the sum over all batches is that of documents read in one go from zeros."""
    model = make(variant).eval()
    streams = Streams(DOCUMENTS, batch_size=1, length=4, end_id=END, seed=2)
    loss_fn, total, count = tbptt_objective(streams), 0.0, 0
    while count < sum(map(len, DOCUMENTS)) + len(DOCUMENTS):
        loss, n = loss_fn(model, next(streams))
        total, count = total + loss.item(), count + n.item()
    expected = -sum(by_hand(model, document)[i, w] for document in DOCUMENTS for i, w in enumerate([*document, END]))
    assert count == 46
    assert total == pytest.approx(expected, rel=1e-6)


@variants
def test_gradients_stop_at_the_edge_of_a_batch(variant):
    """The loss of the second batch moves by the state that came before, but its gradient does not reach there."""
    model = make(variant).eval()
    streams = Streams([[0, 1, 2, 4, 5, 6, 0]], batch_size=1, length=4, end_id=END)
    loss_fn = tbptt_objective(streams)
    first, second = next(streams), next(streams)
    loss_fn(model, first)
    before = tuple(s.clone() for s in streams.state)
    assert not any(s.requires_grad for s in streams.state)
    loss, _ = loss_fn(model, second)
    loss.backward()
    # symbols 0, 1 and END are read in the first batch only
    gradient = model.embedding.weight.grad
    if not model.config.tied:
        assert gradient[[5, 6, 0]].abs().sum(dim=1).all()
        assert not gradient[[END, 1, 2]].any()
    # the same with the state as a plain number
    actual = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    logits, _ = model(second["ids"], before)
    nn.functional.cross_entropy(logits[0].float(), second["target"][0], reduction="sum").backward()
    assert all(torch.equal(a, p.grad) for a, p in zip(actual, model.parameters(), strict=True))
    streams.state = None
    assert loss_fn(model, second)[0].item() != pytest.approx(loss.item(), abs=1e-3)


@variants
def test_a_fresh_row_forgets_and_the_others_do_not(variant):
    model = make(variant).eval()
    streams = Streams([[1]], batch_size=2, length=1, end_id=END)
    loss_fn = tbptt_objective(streams)
    batch = {
        "ids": torch.tensor([[END], [4]]),
        "target": torch.tensor([[1], [2]]),
        "mask": torch.ones(2, 1, dtype=torch.bool),
        "fresh": torch.tensor([True, False]),
    }
    generator = torch.Generator().manual_seed(0)
    parts = 2 if variant["cell"] == "lstm" else 1
    carried = tuple(torch.randn(1, 2, D, generator=generator).double() for _ in range(parts))
    streams.state = carried
    loss_fn(model, batch)
    _, of_nothing = model(batch["ids"][:1])
    _, of_carried = model(batch["ids"][1:], tuple(s[:, 1:].contiguous() for s in carried))
    for got, a, b in zip(streams.state, of_nothing, of_carried):
        np.testing.assert_allclose(got.detach(), torch.cat([a, b], dim=1).detach(), rtol=0, atol=1e-12)


@variants
@pytest.mark.parametrize("accumulate", [1, 2])
def test_it_resumes_to_the_same_bits(variant, accumulate, tmp_path):
    """Stopped in the middle of a document, the carried state is what makes the difference."""

    def run(folder, until: int) -> Training:
        seed(0)
        model = RNNLM(RNNLMConfig(V, D, D, end_id=END, **variant))
        streams = Streams(DOCUMENTS, batch_size=3, length=4, end_id=END, seed=1)
        training = Training(
            model,
            tbptt_objective(streams),
            streams,
            adamw(model, 1e-2),
            40,
            accumulate=accumulate,
            log_every=1,
            folder=tmp_path / folder,
            save_every=9,
        )
        for record in training:
            if record["step"] == until:
                break
        return training

    whole = run("whole", 40)
    run("killed", 25)  # the last checkpoint is that of step 18
    state = load_state(tmp_path / "killed" / "last.ckpt")
    assert any(place for _, place in state["data"]["rows"]), "in the middle of a document"
    assert all(s.abs().sum() > 0 for s in state["data"]["state"])
    again = run("killed", 40)
    assert again.history == whole.history
    for a, b in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert whole.history[-1]["loss"] < whole.history[0]["loss"]


def test_tied_matrices_are_one():
    tied, free = (RNNLM(RNNLMConfig(100, 16, 16, tied=tied)) for tied in (True, False))
    assert tied.to_logits.weight is tied.embedding.weight
    assert sum(p.numel() for p in free.parameters()) - sum(p.numel() for p in tied.parameters()) == 1600


def test_dropout_is_on_embeddings_and_outputs_only():
    """The state that a step hands on is that of the dropped embeddings, itself not dropped."""
    model = make({"cell": "gru", "dropout": 0.5}).train()
    ids = torch.randint(V, (4, 6), generator=torch.Generator().manual_seed(0))
    seen = []
    model.dropout.register_forward_hook(lambda _, inputs, output: seen.append((inputs[0], output)))
    torch.manual_seed(0)
    logits, (state,) = model(ids)
    (embedded, into_rnn), (h, into_logits) = seen
    np.testing.assert_allclose(embedded.detach(), model.embedding(ids).detach())
    expected, last = model.rnn(into_rnn)
    assert torch.equal(h, expected)
    assert torch.equal(state, last)
    assert torch.equal(logits, model.to_logits(into_logits))
    for before, after in seen:
        dropped = after == 0
        assert 0.3 < dropped.double().mean() < 0.7
        np.testing.assert_allclose(after[~dropped].detach(), 2 * before[~dropped].detach())


def test_a_state_of_other_data_is_refused():
    state = Streams(DOCUMENTS, 2, 4, END).state_dict()
    for change, message in (
        ({"batch_size": 3}, "batch_size=2, these have 3"),
        ({"length": 5}, "length=4, these have 5"),
        ({"seed": 1}, "seed=0, these have 1"),
        ({"end_id": 0}, "end_id=3, these have 0"),
        ({"documents": DOCUMENTS[:-1]}, "documents=5, these have 4"),
        ({"documents": [*DOCUMENTS[:-1], [0]]}, "tokens=51, these have 29"),
    ):
        arguments = {"documents": DOCUMENTS, "batch_size": 2, "length": 4, "end_id": END} | change
        with pytest.raises(ValueError, match=message):
            Streams(**arguments).load_state_dict(state)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocab_size": 0}, "vocab_size=0: must be at least 1"),
        ({"hidden_size": 0}, "hidden_size=0"),
        ({"embed_size": -2}, "embed_size=-2"),
        ({"cell": "GRU"}, "cell='GRU': must be one of 'rnn', 'gru', 'lstm'"),
        ({"tied": True, "embed_size": 4}, "embed_size=4 and hidden_size=128: one matrix"),
        ({"dropout": 1.0}, r"dropout=1.0: must be a probability below 1"),
        ({"end_id": -1}, r"end_id=-1: must lie in 0..6"),
    ],
)
def test_bad_choices_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        RNNLMConfig(**{"vocab_size": V} | change)


def test_bad_streams_are_refused():
    with pytest.raises(ValueError, match="no documents"):
        Streams([], 1, 1)
    with pytest.raises(ValueError, match="batch_size=0"):
        Streams(DOCUMENTS, 0, 1)
    with pytest.raises(ValueError, match="length=0"):
        Streams(DOCUMENTS, 1, 0)


@pytest.mark.parametrize("sizes", [{"batch_size": 0}, {"batch_size": -1}, {"length": 0}])
def test_documents_are_read_by_one_or_more(sizes):
    model = RNNLM(RNNLMConfig(vocab_size=5, embed_size=3, hidden_size=3))
    with pytest.raises(ValueError, match="both must be at least 1"):
        model.log_probabilities([[1, 2]], **sizes)
