"""Writing with a GPT: against transformers and against one step at a time without a cache."""

import copy
import itertools
import math

import pytest
import torch

from coursekit.decode.beams import search
from coursekit.decode.generate import beam_search, generate, left_padded, stream
from coursekit.models.gpt import GPT, GPTConfig, gpt_loss

V = 11


def shaken(model, positions):
    """All parameters at random, and positions so strong that greedy texts do not repeat one token."""
    torch.manual_seed(2)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    torch.nn.init.normal_(positions, std=3.0)
    return model.eval()


@pytest.fixture(scope="module")
def model():
    model = GPT(GPTConfig(V, 16, 2, 32, 2, 24, dropout=0.2))
    return shaken(model, model.positions.encoding)


def naive(model, prompt, n, choose=lambda logits: logits.argmax().item()):
    """One text, read anew from its beginning for each token."""
    text = list(prompt)
    for _ in range(n):
        text.append(choose(model(torch.tensor([text]))[0, -1]))
    return text[len(prompt) :]


def prompts(lengths=(3, 7, 5), right=False):
    generator = torch.Generator().manual_seed(1)
    rows = [torch.randint(V, (n,), generator=generator).tolist() for n in lengths]
    longest = max(lengths)
    mask = torch.tensor([[i < n if right else i >= longest - n for i in range(longest)] for n in lengths])
    ids = torch.full((len(rows), longest), 9)  # a token that could be real stands at padding
    ids[mask] = torch.tensor([token for row in rows for token in row])
    return rows, ids, mask


def test_it_writes_what_transformers_write():
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"vocab_size": V, "n_positions": 24, "n_embd": 16, "n_layer": 2, "n_head": 2}
    theirs = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=None, pad_token_id=0))
    shaken(theirs, theirs.transformer.wpe.weight)
    from coursekit.convert.gpt import from_hugging_face

    ours = from_hugging_face(GPT, theirs.config.to_dict(), theirs.state_dict())
    _, ids, mask = prompts()
    expected = theirs.generate(ids, attention_mask=mask.long(), max_new_tokens=15, do_sample=False)[:, 7:]
    assert len(set(expected.flatten().tolist())) > 3
    assert torch.equal(generate(ours, ids, mask, 15, temperature=0), expected)
    options = {"do_sample": False, "repetition_penalty": 1.7, "max_new_tokens": 15}
    alone = theirs.generate(ids[1:2], attention_mask=mask[1:2].long(), **options)[:, 7:]
    assert torch.equal(generate(ours, ids[1:2], None, 15, temperature=0, repetition_penalty=1.7), alone)


@pytest.mark.parametrize("right", [False, True], ids=["padded left", "padded right"])
def test_a_prompt_alone_without_a_cache_and_in_a_batch(model, right):
    rows, ids, mask = prompts(right=right)
    whole = [naive(model, row, 12) for row in rows]
    assert generate(model, ids, mask, 12, temperature=0).tolist() == whole
    lengths = set()
    for stop in range(V):
        written = [row[: (row.index(stop) if stop in row else 11) + 1] for row in whole]
        longest = max(map(len, written))
        expected = [row + [stop] * (longest - len(row)) for row in written]
        assert generate(model, ids, mask, 12, temperature=0, stop=[stop]).tolist() == expected
        lengths.add(tuple(map(len, written)))
    assert any(len(set(each)) == 3 for each in lengths), "some texts end before others"


def test_repetition_counts_prompt_and_text_but_no_padding(model):
    rows, ids, mask = prompts()

    def choose_for(row):
        text = list(row)

        def choose(logits):
            for token in set(text):
                logits[token] = logits[token] / 1.5 if logits[token] > 0 else logits[token] * 1.5
            text.append(logits.argmax().item())
            return text[-1]

        return choose

    with torch.inference_mode():
        expected = [naive(model, row, 12, choose_for(row)) for row in rows]
    for padding in range(V):  # whichever token stands there
        ids = ids.masked_fill(~mask, padding)
        assert generate(model, ids, mask, 12, temperature=0, repetition_penalty=1.5).tolist() == expected
    assert expected != generate(model, ids, mask, 12, temperature=0).tolist()


def test_a_stream_is_what_generate_returns_and_can_be_left(model):
    _, ids, mask = prompts()

    def draws(seed):
        return {"temperature": 1.3, "top_k": 6, "top_p": 0.95, "generator": torch.Generator().manual_seed(seed)}

    whole = generate(model, ids, mask, 10, **draws(5))
    assert whole.shape == (3, 10)
    steps = itertools.islice(stream(model, ids, mask, 10, **draws(5)), 4)
    assert torch.equal(torch.stack(list(steps), dim=1), whole[:, :4])
    assert not torch.equal(generate(model, ids, mask, 10, **draws(6)), whole)
    assert not torch.is_inference_mode_enabled()


def test_what_was_written_can_be_trained_on(model):
    ids = torch.zeros(2, 1, dtype=torch.long)
    texts, worth = beam_search(model, ids, max_new=4, beams=2)
    tokens = torch.stack(list(stream(model, ids, max_new=4)), dim=1)
    for written in (texts, tokens, generate(model, ids, max_new=4)):
        loss, _ = gpt_loss(model, {"ids": written})
        loss.backward()
    assert not worth.is_inference()


def test_in_train_mode_it_writes_without_dropout_and_leaves_the_mode_alone(model):
    _, ids, mask = prompts()
    expected, beams = generate(model, ids, mask, 10, temperature=0), beam_search(model, ids, mask, 4)
    learning = copy.deepcopy(model).train()
    learning.blocks[0].eval()  # a part that is frozen
    modes = [module.training for module in learning.modules()]
    assert torch.equal(generate(learning, ids, mask, 10, temperature=0), expected)
    assert all(map(torch.equal, beam_search(learning, ids, mask, 4), beams))
    text = stream(learning, ids, mask, 10, temperature=0)
    for step in range(4):  # left halfway
        assert torch.equal(next(text), expected[:, step])
        assert [module.training for module in learning.modules()] == modes
    del text
    assert [module.training for module in learning.modules()] == modes
    assert True in modes


def test_drawn_texts_have_the_models_probabilities(model):
    ids = torch.tensor([[1, 2, 3]])
    n = 20_000
    drawn = generate(model, ids.expand(n, -1), None, 2, generator=torch.Generator().manual_seed(0))
    pairs = torch.bincount(drawn[:, 0] * V + drawn[:, 1], minlength=V * V) / n
    with torch.no_grad():
        first = model(ids)[0, -1].softmax(dim=-1)
        second = torch.stack([model(torch.tensor([[1, 2, 3, v]]))[0, -1].softmax(dim=-1) for v in range(V)])
    torch.testing.assert_close(pairs, (first[:, None] * second).flatten(), atol=0.012, rtol=0)


def test_the_last_place_is_used_and_no_more(model):
    ids = torch.arange(10)[None]
    assert generate(model, ids, None, 15, temperature=0).shape == (1, 15)  # 24 places: the last token is not read
    with pytest.raises(ValueError, match=r"a prompt of 10 tokens and 16 new ones: .* room for 15 new ones"):
        generate(model, ids, None, 16)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"ids": torch.zeros(0, 3).long()}, r"ids of shape \(0, 3\)"),
        ({"ids": torch.zeros(1, 0).long()}, r"ids of shape \(1, 0\)"),
        (
            {"ids": torch.zeros(2, 2).long(), "mask": torch.tensor([[True, True], [False, False]])},
            "prompt 1 has no token",
        ),
        ({"ids": torch.zeros(2, 2).long(), "mask": torch.ones(1, 2).bool()}, r"mask of shape \(1, 2\).* be \(2, 2\)"),
        ({"ids": torch.zeros(1, 4).long(), "mask": torch.ones(1, 2).bool()}, r"mask of shape \(1, 2\).* be \(1, 4\)"),
        ({"ids": torch.zeros(1, 2).long(), "mask": torch.ones(1, 2)}, "torch.float32: .* boolean"),
        ({"ids": torch.zeros(1, 2), "max_new": 2}, r"torch.float32: must be \(B, T\), whole numbers \(torch.int64\)"),
        ({"ids": torch.zeros(1, 2).long(), "max_new": 0}, "max_new=0"),
        ({"ids": torch.zeros(1, 2).long(), "temperature": -1.0}, "temperature=-1.0: must be 0, .* or at least 1e-06"),
        ({"ids": torch.zeros(1, 2).long(), "temperature": 1e-37}, "temperature=1e-37: must be 0, .* or at least 1e-06"),
        ({"ids": torch.zeros(1, 2).long(), "mask": 60}, "mask=60: must be a boolean tensor"),
        ({"ids": torch.zeros(1, 2).long(), "repetition_penalty": 0}, "repetition_penalty=0: must be above 0"),
        (
            {"ids": torch.zeros(1, 2).long(), "temperature": 0, "top_k": 0},
            "top_k=0: must be a whole number, at least 1",
        ),
        ({"ids": torch.zeros(1, 2).long(), "temperature": 0, "top_p": 5.0}, "top_p=5.0: must lie above 0"),
        ({"ids": torch.zeros(1, 2).long(), "stop": [99]}, "stop: token 99 is not one of the .* in the vocabulary"),
    ],
)
def test_bad_input_is_refused(model, arguments, says):
    for write in (generate, beam_search) if arguments.keys() <= {"ids", "mask", "max_new", "stop"} else (generate,):
        with pytest.raises(ValueError, match=says):
            write(model, **arguments)
    if not arguments["ids"].is_floating_point():  # the model says that, when it reads them
        with pytest.raises(ValueError, match=says):
            stream(model, **arguments)  # before the first token is asked for


def test_prompts_may_be_of_32_bits(model):
    ids = torch.tensor([[3, 1, 4], [1, 5, 9]])
    choices = {"max_new": 4, "temperature": 0, "repetition_penalty": 1.5}
    assert torch.equal(generate(model, ids.int(), **choices).long(), generate(model, ids, **choices))
    assert torch.equal(gpt_loss(model, {"ids": ids.int()})[0], gpt_loss(model, {"ids": ids})[0])


@pytest.mark.parametrize("choices", [{"temperature": 0}, {"temperature": 1.0}])
def test_a_broken_model_writes_nothing(model, choices):
    broken = copy.deepcopy(model)
    broken.norm.weight.data[:] = math.nan
    ids = torch.zeros(1, 2).long()
    with pytest.raises(ValueError, match="there is no next token: the logits hold nan"):
        generate(broken, ids, max_new=2, **choices)
    with pytest.raises(ValueError, match="no sequence can be written: the logits hold nan"):
        beam_search(broken, ids, max_new=3, beams=2)


def test_padding_moves_to_the_left():
    ids = torch.tensor([[5, 0, 6, 0], [7, 8, 0, 0]])
    mask = torch.tensor([[True, False, True, False], [True, True, False, False]])
    moved, where = left_padded(ids, mask)
    assert moved.tolist() == [[5, 6], [7, 8]]
    assert where.all()


# --- beams ---------------------------------------------------------------------------------------------------


def log_p(model, prompt, text):
    logits = model(torch.tensor([[*prompt, *text]]))[0].log_softmax(dim=-1)
    return sum(logits[len(prompt) - 1 + i, token].item() for i, token in enumerate(text))


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_wide_beams_find_the_best_of_all_texts(alpha):
    torch.manual_seed(2)
    model = GPT(GPTConfig(5, 8, 2, 16, 1, 16, dropout=0.0)).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.6)
    wide = GPT(GPTConfig(60, 8, 2, 16, 1, 16, dropout=0.0)).eval()  # more words, so that more beams are allowed
    with torch.no_grad():
        own = dict(wide.named_parameters())
        for name, parameter in model.named_parameters():
            own[name][: len(parameter)] = parameter
    ids, mask = torch.tensor([[0, 1, 2], [9, 3, 3]]), torch.tensor([[True, True, True], [False, True, True]])
    found, worth = beam_search(wide, ids, mask, max_new=3, beams=40, alpha=alpha, stop=[4, 59], pad_id=58)
    for row, prompt in enumerate(([0, 1, 2], [3, 3])):
        texts = [
            text
            for n in (1, 2, 3)
            for text in itertools.product(range(5), repeat=n)
            if 4 not in text[:-1] and (n == 3 or text[-1] == 4)
        ]
        values = {text: log_p(wide, prompt, text) / ((5 + len(text)) / 6) ** alpha for text in texts}
        best = max(values, key=values.get)
        got = tuple(token for token in found[row].tolist() if token != 58)
        assert worth[row].item() >= values[best] - 1e-4
        assert worth[row].item() == pytest.approx(log_p(wide, prompt, got) / ((5 + len(got)) / 6) ** alpha, abs=1e-4)


def test_a_text_goes_on_though_several_ends_are_likelier_for_now():
    """0 and 1 end a text. "2 0" is worth ln(0.25) / (7 / 6)^3 = -0.873, "0" ln(0.4) = -0.916: but "2" comes third."""
    first, then = (torch.tensor([p]).log() for p in ([0.4, 0.35, 0.25], [1.0, 1e-9, 1e-9]))
    found, worth = search(first, lambda last: then, lambda rows: None, 1, 3.0, 5, ends=[0, 1], pad_id=3)
    assert found.tolist() == [[2, 0]]
    assert worth.item() == pytest.approx(math.log(0.25) / (7 / 6) ** 3, rel=1e-6)


def test_nothing_that_was_written_is_taken_for_padding(model):
    """Without an end every text is as long as was asked for, though the model writes the token 0, which pads too."""
    _, ids, mask = prompts()
    found, _ = beam_search(model, ids, mask, max_new=10, beams=3, stop=[])
    assert found.shape == (len(ids), 10)
    biased = copy.deepcopy(model)
    with torch.no_grad():
        biased.tokens.weight[0] += 3 * biased.tokens.weight.abs().max()
    found, _ = beam_search(biased, ids, mask, max_new=10, beams=3, stop=[])
    assert found.shape == (len(ids), 10)
    assert (found == 0).any()


def test_one_beam_is_greedy(model):
    _, ids, mask = prompts()
    found, _ = beam_search(model, ids, mask, max_new=10, beams=1, pad_id=V)
    assert found.tolist() == generate(model, ids, mask, 10, temperature=0).tolist()


def test_compiled_decoding_is_compiled_once_for_all_lengths_and_writes_the_same(model, monkeypatch):
    from torch._dynamo.testing import CompileCounter

    prompts = [torch.randint(V, (2, n), generator=torch.Generator().manual_seed(n)) for n in (5, 3, 8, 4, 6)]
    expected = [generate(model, ids, max_new=16, temperature=0) for ids in prompts]
    graphs = CompileCounter()  # counts them and runs them as they are
    compiled = torch.compile(model.hidden, backend=graphs, dynamic=True)
    monkeypatch.setattr(model, "hidden", compiled, raising=False)
    counts = []
    for ids, texts in zip(prompts, expected):
        assert torch.equal(generate(model, ids, max_new=16, temperature=0), texts)
        counts.append(graphs.frame_count)
    assert counts == counts[:1] * 5
    assert 0 < counts[0] < 16  # fewer than tokens
