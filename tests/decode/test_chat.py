"""Answers token by token: as read anew for each token, with probabilities of a text scored from its beginning."""

import pytest
import torch

from coursekit.decode.chat import reply, whole_characters
from coursekit.decode.generate import generate
from coursekit.models.gpt import GPT, GPTConfig
from coursekit.models.llama import Llama, LlamaConfig
from coursekit.text.bpe import BPE, END
from tests.conftest import randomise
from tests.decode.test_generate import naive, shaken

CHAT = ["<|user|>", "<|assistant|>", "<|end|>"]


@pytest.fixture(scope="module")
def tokenizer():
    return BPE.train(["abc cab ca bc"], 268, [END, *CHAT])


@pytest.fixture
def model(tokenizer):
    model = GPT(GPTConfig(len(tokenizer), 16, 2, 32, 2, 40))
    shaken(model, model.positions.encoding)
    with torch.no_grad():
        model.tokens.weight[tokenizer.ids["<|end|>"]] *= 2.5  # so that answers end, some of them
    return model


@torch.no_grad()
def test_answers_and_probabilities_as_read_anew_for_each_token(tokenizer, model):
    ended = []
    for text in ["a bc", "b", "abc cab ca", "c", "bb", "ca ca", "abc", "a a a"]:
        prompt = f"<|user|>{text}<|end|><|assistant|>"
        start = [tokenizer.ids[END], *tokenizer.encode(prompt)]
        written = naive(model, start, 12)
        if tokenizer.ids["<|end|>"] in written:
            written = written[: written.index(tokenizer.ids["<|end|>"]) + 1]
        expected = [
            float(model(torch.tensor([[*start, *written[:i]]]))[0, -1].softmax(dim=-1)[token])
            for i, token in enumerate(written)
        ]
        found = reply(model, tokenizer, prompt, max_new=12)
        ended.append(found[-1][0] == "<|end|>")
        assert ended[-1] == (written[-1] == tokenizer.ids["<|end|>"])
        assert "".join(token for token, _ in found) == tokenizer.decode(written)
        product = torch.tensor([p for _, p in found]).prod()
        torch.testing.assert_close(product, torch.tensor(expected).prod(), rtol=1e-4, atol=0)
        if len(found) == len(written):  # no character of several tokens
            assert [p for _, p in found] == pytest.approx(expected, rel=1e-4)
    assert len(set(ended)) == 2, "some end and some do not"


def test_tokens_within_a_character_are_one(tokenizer):
    def ids(raw):
        return [tokenizer.ids[character] for character in raw]

    a, e_acute = tokenizer.encode("a"), tokenizer.encode("é")
    assert len(e_acute) == 2
    found = whole_characters(tokenizer, [*a, *e_acute, *a], [0.5, 0.5, 0.25, 1.0])
    assert found == [("a", 0.5), ("é", 0.125), ("a", 1.0)]
    assert whole_characters(tokenizer, [*a, e_acute[0]], [0.5, 0.25]) == [("a", 0.5), ("\ufffd", 0.25)], "cut off"
    assert whole_characters(tokenizer, [e_acute[0], *a], [0.5, 0.5]) == [("\ufffda", 0.25)], "no character at all"
    assert whole_characters(tokenizer, ids(["<|user|>"]), [0.5]) == [("<|user|>", 0.5)]
    assert whole_characters(tokenizer, [], []) == []


def test_probabilities_are_the_models_own_at_any_temperature(tokenizer, model):
    generator = torch.Generator().manual_seed(1)  # whose first token is a whole character
    drawn = reply(model, tokenizer, "abc", max_new=5, temperature=3.0, generator=generator)
    ids = [tokenizer.ids[END], *tokenizer.encode("abc")]
    first = model(torch.tensor([ids]))[0, -1].softmax(dim=-1)
    assert first[tokenizer.encode(drawn[0][0])[0]].item() == pytest.approx(drawn[0][1], rel=1e-4)
    assert drawn != reply(model, tokenizer, "abc", max_new=5)


def test_an_answer_takes_the_places_that_are_left(tokenizer, model):
    with torch.no_grad():
        model.tokens.weight[tokenizer.ids["<|end|>"]] = 0  # as a base model, which does not stop
    words = tokenizer.decode(tokenizer.encode("b") * 35)
    assert len(tokenizer.encode(words)) == 35
    tokens = reply(model, tokenizer, words)
    assert tokens[-1][0] != "<|end|>"
    assert len(tokens) <= 40 - 36
    with pytest.raises(ValueError, match=r"takes 41 tokens, and the model has 40 places .* write less, or start"):
        reply(model, tokenizer, tokenizer.decode(tokenizer.encode("b") * 40))


def test_ids_are_taken_as_they_are_by_either_kind_of_model(tokenizer, model):
    text = "<|user|>abc<|end|><|assistant|>"
    ids = tokenizer.encode(text)
    assert reply(model, tokenizer, [tokenizer.ids[END], *ids]) == reply(model, tokenizer, text)
    assert reply(model, tokenizer, ids) != reply(model, tokenizer, text), "nothing is put before them"
    sizes = {"d_model": 16, "n_heads": 2, "n_kv_heads": 1, "d_ff": 32, "n_layers": 2, "max_length": 40}
    llama = randomise(Llama(LlamaConfig(len(tokenizer), **sizes))).eval()
    written = generate(llama, torch.tensor([ids]), None, 5, temperature=0, stop=[tokenizer.ids["<|end|>"]])[0].tolist()
    assert "".join(token for token, _ in reply(llama, tokenizer, ids, max_new=5)) == tokenizer.decode(written)


def test_a_special_token_is_spelled_as_it_is():
    """Also where its characters are none of those that bytes are written with."""
    tokenizer = BPE.train(["abc"], 262, [END, "<\uff5cend\u2581of\uff5c>"])
    token = tokenizer.ids["<\uff5cend\u2581of\uff5c>"]
    assert whole_characters(tokenizer, [token], [0.5]) == [("<\uff5cend\u2581of\uff5c>", 0.5)]


def test_probabilities_are_those_without_dropout_and_the_model_stays_in_its_mode(tokenizer):
    model = GPT(GPTConfig(len(tokenizer), 16, 2, 32, 2, 40, dropout=0.5))
    shaken(model, model.positions.encoding)
    found = [reply(model.train(mode), tokenizer, "a bc", max_new=4) for mode in (False, True)]
    assert found[0] == found[1]
    assert model.training
