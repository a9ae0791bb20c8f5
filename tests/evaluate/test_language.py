import math

import numpy as np
import pytest

from coursekit.evaluate.language import perplexity
from coursekit.models.ngram import AddK, KneserNey, MaximumLikelihood
from coursekit.models.nnlm import NNLM, NNLMConfig
from coursekit.models.rnn_lm import RNNLM, RNNLMConfig
from tests.conftest import randomise

V, END = 8, 5
TRAIN = [[0, 1, 2, 0, 1, 3], [4, 0, 1], [], [7, 7, 0, 1, 6, 2]]
TEST = [[0, 1, 7, 3, 2, 4, 4], [], [6], [1, 0, 1, 2]]
MODELS = {
    "add-k": lambda: AddK(2, V, END, k=0.2).fit(TRAIN),
    "Kneser-Ney": lambda: KneserNey(3, V, END).fit(TRAIN),
    "NNLM": lambda: randomise(NNLM(NNLMConfig(V, 4, 3, 5, end_id=END))),
    **{
        cell: lambda cell=cell: randomise(RNNLM(RNNLMConfig(V, 4, 6, cell, dropout=0.5, end_id=END)), std=0.7)
        for cell in ("rnn", "gru", "lstm")
    },
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
