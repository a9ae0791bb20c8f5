import math

import numpy as np
import pytest
import torch

from coursekit.evaluate.language import SlidingWindow, distinct_n, perplexity, repetition_n
from coursekit.models.gpt import GPT, GPTConfig
from coursekit.models.ngram import AddK, KneserNey, MaximumLikelihood
from coursekit.models.nnlm import NNLM, NNLMConfig
from coursekit.models.rnn_lm import RNNLM, RNNLMConfig
from tests.conftest import randomise

V, END = 8, 5
TRAIN = [[0, 1, 2, 0, 1, 3], [4, 0, 1], [], [7, 7, 0, 1, 6, 2]]
TEST = [[0, 1, 7, 3, 2, 4, 4], [], [6], [1, 0, 1, 2]]


def small_gpt(max_length):
    return randomise(GPT(GPTConfig(V, 8, 2, 16, 2, max_length, dropout=0.5)), std=0.6)


MODELS = {
    "add-k": lambda: AddK(2, V, END, k=0.2).fit(TRAIN),
    "Kneser-Ney": lambda: KneserNey(3, V, END).fit(TRAIN),
    "NNLM": lambda: randomise(NNLM(NNLMConfig(V, 4, 3, 5, end_id=END))),
    **{
        cell: lambda cell=cell: randomise(RNNLM(RNNLMConfig(V, 4, 6, cell, dropout=0.5, end_id=END)), std=0.7)
        for cell in ("rnn", "gru", "lstm")
    },
    "GPT": lambda: SlidingWindow(small_gpt(8), END),
}


@pytest.mark.parametrize("name", MODELS)
def test_equals_the_slow_sum(name):
    """One distribution for each token of each document and for the end behind it, none for anything else."""
    model = MODELS[name]()
    bits, tokens = 0.0, 0
    for document in TEST:
        for i, w in enumerate([*document, END]):
            p = model.next_probabilities(document[:i])
            assert p.sum() == pytest.approx(1, abs=1e-6)
            bits -= math.log2(p[w])
            tokens += 1
    found = perplexity(model, TEST, characters=31)
    assert found.tokens == tokens == 16
    assert found.bits_per_token == pytest.approx(bits / 16, rel=1e-5)
    assert found.perplexity == pytest.approx(2 ** (bits / 16), rel=1e-5)
    assert found.bits_per_character == pytest.approx(bits / 31, rel=1e-5)
    assert perplexity(model, TEST).bits_per_character is None


@pytest.mark.parametrize("name", MODELS)
def test_documents_do_not_see_each_other(name):
    model = MODELS[name]()
    whole = perplexity(model, TEST)
    assert perplexity(model, TEST[::-1]).bits_per_token == pytest.approx(whole.bits_per_token, rel=1e-5)
    apart = [perplexity(model, [document]) for document in TEST]
    bits = sum(part.bits_per_token * part.tokens for part in apart)
    assert whole.bits_per_token == pytest.approx(bits / whole.tokens, rel=1e-5)


def test_a_model_that_knows_nothing_has_the_perplexity_of_its_vocabulary():
    class Uniform:
        def log_probabilities(self, documents):
            return [np.full(len(document) + 1, -math.log(V), np.float32) for document in documents]

    found = perplexity(Uniform(), TEST, characters=48)
    assert found.perplexity == pytest.approx(V)
    assert found.bits_per_token == pytest.approx(3)
    assert found.bits_per_character == pytest.approx(1)


def test_what_is_impossible_is_infinite():
    model = MaximumLikelihood(2, V, END).fit(TRAIN)
    assert perplexity(model, TEST, 31)[:3] == (math.inf, math.inf, math.inf)
    assert perplexity(model, TRAIN).perplexity < 4


def test_nothing_to_measure():
    model = MODELS["add-k"]()
    with pytest.raises(ValueError, match="no documents"):
        perplexity(model, [])
    with pytest.raises(ValueError, match="characters=0"):
        perplexity(model, TEST, characters=0)


@pytest.mark.parametrize(("width", "stride"), [(4, None), (4, 1), (5, 3), (6, 6), (1, 1), (30, 7)])
def test_a_window_moves_on_by_its_stride(width, stride):
    """Against one token at a time: which tokens it was given is computed from the description, not from windows."""
    model = small_gpt(width).eval()
    generator = torch.Generator().manual_seed(0)
    documents = [torch.randint(V, (n,), generator=generator).tolist() for n in (0, 1, 3, 4, 5, 6, 11, 12, 13, 23)]
    for document, found in zip(documents, SlidingWindow(model, END, stride).log_probabilities(documents, batch_size=3)):
        row, step = [END, *document, END], stride or width // 2
        assert len(found) == len(document) + 1
        for t in range(1, len(row)):  # row[t] is the target
            late = max(0, t - width)
            start = -(-late // step) * step  # the first window that reaches it
            logits = model(torch.tensor([row[start:t]]))[0, -1]
            assert found[t - 1] == pytest.approx(logits.log_softmax(dim=-1)[row[t]].item(), abs=1e-5)


def test_a_window_leaves_the_mode_and_says_what_comes_next_in_a_long_text():
    model = small_gpt(4).train()
    window, ids = SlidingWindow(model, END), [1, 2, 3, 4, 0, 6]
    p = window.next_probabilities(ids)
    window.log_probabilities([ids])
    assert model.training
    assert p == pytest.approx(model.eval()(torch.tensor([ids[-4:]]))[0, -1].softmax(dim=-1).detach().numpy(), abs=1e-6)


@pytest.mark.parametrize("stride", [-1, 5])
def test_a_stride_that_leaves_tokens_out_is_refused(stride):
    with pytest.raises(ValueError, match=rf"stride={stride}: must lie in 1..4, the model's max_length"):
        SlidingWindow(small_gpt(4), END, stride)


def test_runs_counted_by_hand():
    texts = ["abab", "abc", "z"]  # ab ba ab, ab bc, none
    assert distinct_n(texts, 2) == pytest.approx(3 / 5)
    assert distinct_n(texts, 1) == pytest.approx(4 / 8)
    assert repetition_n(["abab", "abc", "z", ""], 2) == pytest.approx((1 / 3 + 0) / 2)
    assert distinct_n([[1, 23], [12, 3]], 2) == 1
    for measure in (distinct_n, repetition_n):
        with pytest.raises(ValueError, match="n=0: a run has at least 1 token"):
            measure(texts, 0)
    with pytest.raises(ValueError, match="n=5: no text has so many tokens"):
        distinct_n(texts, 5)
    with pytest.raises(ValueError, match="n=5: no text has so many tokens"):
        repetition_n(texts, 5)
