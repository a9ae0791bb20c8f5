"""From text to text: each prompt as if it were alone, suggestions as if every text were scored."""

import pytest
import torch

from coursekit.decode.text import complete, suggest
from coursekit.models.gpt import GPT, GPTConfig
from coursekit.text.bpe import BPE, END
from tests.decode.test_generate import naive, shaken


def test_texts_are_completed_to_their_end_each_as_if_it_were_alone():
    texts = ["a bc", "", "abc cab ca", "b", "c<to>", "bb bb"]
    tokenizer = BPE.train(["abc cab ca bc"], 264, [END, "<to>"])
    end = tokenizer.ids[END]
    model = GPT(GPTConfig(len(tokenizer), 16, 2, 32, 2, 24))
    shaken(model, model.positions.encoding)
    with torch.no_grad():
        model.tokens.weight[end] *= 2  # so that texts end, some of them
    alone = []
    for text in texts:
        written = naive(model, [end, *tokenizer.encode(text)], 12)
        alone.append(tokenizer.decode(written[: written.index(end)] if end in written else written))
    for size in (1, 2, 100):
        assert complete(model, tokenizer, texts, 12, batch_size=size) == alone
    lengths = {len(tokenizer.encode(text)) for text in alone}
    assert len(lengths) > 2  # otherwise nothing was tested
    drawn = [
        complete(model, tokenizer, texts, 12, temperature=2.0, generator=torch.Generator().manual_seed(s))
        for s in (0, 0, 1)
    ]
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize("text", ["abc ca", "abc c", "a", "", "ca ", "b b b b b b b b b b b b b b b b b b b b b b b"])
@torch.no_grad()
def test_suggestions_against_every_candidate_scored_alone(text):
    tokenizer = BPE.train(["abc cab ca bc"], 264, [END])
    end, k, length = tokenizer.ids[END], 3, 3
    model = GPT(GPTConfig(len(tokenizer), 16, 2, 32, 2, 20))
    shaken(model, model.positions.encoding)
    for token in range(len(tokenizer)):
        if not tokenizer.decode([token]).isprintable() or not tokenizer.decode([token]).isascii():
            model.tokens.weight[token] = 0  # never among the likeliest: bytes that are no text by themselves

    def log_p(ids):
        row = model(torch.tensor([ids]))[0, -1].log_softmax(dim=-1)
        row[end] = -torch.inf
        return row

    ids = [end, *tokenizer.encode(text)[-(20 - length - 2) :]]
    # after the text as it is; and where its last token can be replaced by a longer one, instead of that
    candidates = [(ids, [token], float(p)) for token, p in enumerate(log_p(ids))]
    if len(ids) > 1:
        *before, last = ids
        begun = tokenizer.decode([last])
        fits = [t for t in range(len(tokenizer)) if t != end and tokenizer.decode([t]).startswith(begun)]
        p = log_p(before)
        total = p[fits].logsumexp(0)
        candidates = [(ids, tokens, q + float(p[last] - total)) for ids, tokens, q in candidates]
        candidates += [(before, [t], float(p[t] - total)) for t in fits if t != last]
    else:
        begun = ""
    expected = {}
    for start, tokens, q in sorted(candidates, key=lambda one: -one[2]):
        written = naive(model, [*start, *tokens], length - 1, lambda row: int(row.argmax()))
        for token in written:
            if token == end:
                break
            q += float(model(torch.tensor([[*start, *tokens]]))[0, -1].log_softmax(dim=-1)[token])
            tokens = [*tokens, token]
        piece = tokenizer.decode(tokens)[0 if start == ids else len(begun) :]
        if piece.strip("\n") and "\n" not in piece and "\ufffd" not in piece and len(expected) < k:
            expected.setdefault(piece, q)
    found = suggest(model, tokenizer, text, k, length)
    assert len(found) == len(expected) > 0
    assert {piece: pytest.approx(p, rel=1e-4) for piece, p in found} == {
        piece: float(torch.tensor(q).exp()) for piece, q in expected.items()
    }
    assert [p for _, p in found] == sorted((p for _, p in found), reverse=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"k": 0}, "k=0: must be at least 1"), ({"length": 0}, "length=0"), ({"length": 18}, "no room for a text")],
)
def test_suggestions_that_cannot_be_are_refused(changes, message):
    tokenizer = BPE.train(["abc"], 258, [END])
    with pytest.raises(ValueError, match=message):
        suggest(GPT(GPTConfig(len(tokenizer), 16, 2, 32, 1, 20)), tokenizer, "abc", **changes)


def test_suggestions_are_those_without_dropout_and_the_model_stays_in_its_mode():
    tokenizer = BPE.train(["abc cab ca bc"], 264, [END])
    model = GPT(GPTConfig(len(tokenizer), 16, 2, 32, 2, 20, dropout=0.5))
    shaken(model, model.positions.encoding)
    found = [suggest(model.train(mode), tokenizer, "abc c") for mode in (False, True)]
    assert found[0] == found[1]
    assert model.training


@torch.no_grad()
def test_behind_an_end_a_new_text_begins():
    """The end is no text that could be written on: what comes after it has a probability."""
    tokenizer = BPE.train(["abc cab ca bc"], 264, [END])
    model = GPT(GPTConfig(len(tokenizer), 16, 2, 32, 2, 20))
    shaken(model, model.positions.encoding)
    for token in range(len(tokenizer)):
        if not tokenizer.decode([token]).isalpha() or not tokenizer.decode([token]).isascii():
            model.tokens.weight[token] = 0
    assert tokenizer.encode("abc" + END)[-1] == tokenizer.ids[END]
    found = suggest(model, tokenizer, "abc" + END, 3, 3)
    assert len(found) == 3
    assert all(0 < p < 1 for _, p in found)
