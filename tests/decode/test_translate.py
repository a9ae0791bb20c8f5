"""Greedy and beam search beside searches without a cache, and beside all sequences that there are."""

import copy
import itertools
from dataclasses import replace

import pytest
import torch

from coursekit.decode.translate import beam_search, greedy, longest
from coursekit.models.transformer import Transformer, TransformerConfig
from tests.conftest import randomise

V, PAD, BOS, EOS = 5, 0, 1, 2


def make(seed: int, vocab_size: int = V, std: float = 1.0) -> Transformer:
    """So much noise in the weights that what comes next depends on what came before."""
    config = TransformerConfig(vocab_size, d_model=8, n_heads=2, d_ff=12, n_layers=2, max_length=20)
    model = randomise(Transformer(config), seed, std).double().eval()
    with torch.no_grad():
        model.embedding.weight.mul_(0.5)
    model.logits_bias[PAD] = -torch.inf  # nothing but the search itself writes padding
    return model


@pytest.fixture(scope="module")
def half_trained() -> Transformer:
    """Has begun to learn to write its source backwards: ends at many lengths, and errs often."""
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(11, d_model=32, n_heads=2, d_ff=64, n_layers=1, max_length=20, dropout=0.0))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for seed in range(60):
        source, mask = batch(seed, 11, B=64)
        target = torch.zeros(64, 6).long()
        for row, symbols in enumerate(source):
            length = mask[row].sum()
            target[row, : length + 1] = torch.cat([symbols[:length].flip(0), torch.tensor([EOS])])
        loss = torch.nn.functional.cross_entropy(model(source, mask, target).flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.logits_bias[PAD] = -torch.inf
    return model.double().eval()


def batch(seed: int, vocab_size: int = V, B: int = 3, S: int = 5):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.tensor([S, *torch.randint(1, S + 1, (B - 1,), generator=generator)])
    return torch.randint(3, vocab_size, (B, S), generator=generator), torch.arange(S) < lengths[:, None]


def log_p(model, source, mask, symbols: tuple[int, ...]) -> float:
    """Of a whole sequence, in one call without a cache."""
    logits = model(source, mask, torch.tensor([symbols]))[0].log_softmax(dim=-1)
    return sum(logits[t, symbol].item() for t, symbol in enumerate(symbols))


def worth(value: float, length: int, alpha: float) -> float:
    return value / ((5 + length) / (5 + 1)) ** alpha


def real(row: torch.Tensor) -> tuple[int, ...]:
    return tuple(symbol for symbol in row.tolist() if symbol != PAD)


def stepwise(model, source, mask, most: int) -> list[tuple[int, ...]]:
    """Greedy, a sentence at a time, everything computed anew at every step."""
    found = []
    for i in range(len(source)):
        symbols: list[int] = []
        while len(symbols) < most and EOS not in symbols:
            logits = model(source[i : i + 1], mask[i : i + 1], torch.tensor([[*symbols, EOS]]))
            symbols.append(logits[0, -1].argmax().item())
        found.append(tuple(symbols))
    return found


@torch.no_grad()
def test_greedy_is_one_step_at_a_time_without_a_cache(half_trained):
    model, lengths = half_trained, set()
    for seed in range(30):
        source, mask = batch(seed, 11)
        expected = stepwise(model, source, mask, 9)
        found = greedy(model, source, mask, max_length=9)
        assert [real(row) for row in found] == expected
        assert found.shape[1] == max(map(len, expected))
        lengths |= set(map(len, expected))
    assert len(lengths) > 4  # some end early, some late, some not at all


@torch.no_grad()
@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
def test_a_wide_beam_finds_the_best_of_all_sequences(alpha):
    """With as many beams as there are unfinished sequences nothing is lost on the way."""
    most, symbols, differs = 4, [3, 4, 5], 0
    for seed in range(8):
        model, (source, mask) = make(seed, 6, std=0.6), batch(seed, 6, B=2)
        model.logits_bias[BOS] = -torch.inf
        all_of_them = [
            (*head, last)
            for length in range(1, most + 1)
            for head in itertools.product(symbols, repeat=length - 1)
            for last in ([EOS] if length < most else [EOS, *symbols])
        ]
        model.logits_bias.clamp_(min=-1e9)
        # more beams than the vocabulary are refused, so a vocabulary with symbols that never come
        found, value = beam_search(wide(model, 40), source, mask, beams=30, alpha=alpha, max_length=most)
        for i in range(2):
            scores = {y: worth(log_p(model, source[i : i + 1], mask[i : i + 1], y), len(y), alpha) for y in all_of_them}
            best = max(scores, key=scores.get)
            assert real(found[i]) == best
            assert value[i].item() == pytest.approx(scores[best], abs=1e-5)
            differs += best != stepwise(model, source[i : i + 1], mask[i : i + 1], most)[0]
    assert differs > 2  # greedy would not have found all of them


def wide(model: Transformer, vocab_size: int) -> Transformer:
    """The same model with symbols that have no chance."""
    config = TransformerConfig(vocab_size, d_model=8, n_heads=2, d_ff=12, n_layers=2, max_length=20)
    new, old = Transformer(config).double().eval(), model.state_dict()
    rows = model.config.vocab_size
    state = new.state_dict()
    for name, tensor in old.items():
        if name == "embedding.weight":
            state[name][:rows] = tensor
        elif name == "logits_bias":
            state[name] = torch.full((vocab_size,), -1e9, dtype=torch.float64)
            state[name][:rows] = tensor
        else:
            state[name] = tensor
    new.load_state_dict(state)
    return new


def doubtful(model: Transformer, factor: float) -> Transformer:
    """The same model with smaller logits: beams come close, change places, and end at other lengths."""
    model = copy.deepcopy(model)
    for parameter in model.decoder[-1].feed_forward_residual.norm.parameters():
        parameter.mul_(factor)
    return model


def plain_beam_search(model, source, mask, K: int, alpha: float, most: int) -> tuple[float, tuple[int, ...]]:
    """One sentence, in lists: no cache, no stop before the longest, every continuation looked at and sorted."""
    alive, finished = [(0.0, ())], []
    for length in range(1, most + 1):
        behind = torch.tensor([[*y, EOS] for _, y in alive])  # what stands at the last place is not read
        logits = model(source.repeat(len(alive), 1), mask.repeat(len(alive), 1), behind)[:, -1]
        logits[:, PAD] = -torch.inf
        steps = logits.log_softmax(dim=-1).tolist()
        candidates = [
            (value + step[symbol], (*y, symbol))
            for (value, y), step in zip(alive, steps)
            for symbol in range(model.config.vocab_size)
        ]
        candidates = sorted(candidates, reverse=True)[: 2 * K]
        ended = [(value, y) for value, y in candidates if y[-1] == EOS or length == most]
        finished += [(worth(value, length, alpha), y) for value, y in ended]
        alive = [(value, y) for value, y in candidates if y[-1] != EOS][:K]
    return max(finished)


@torch.no_grad()
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.0])
def test_beam_search_is_the_plain_one(alpha, half_trained):
    """With few beams it matters what is lost on the way: caches in another order, fewer candidates, an early stop."""
    most, searches, differs = 10, 0, 0
    for seed in range(8):
        for doubt in (0.25, 0.4):
            model, (source, mask) = doubtful(half_trained, doubt), batch(seed, 11)
            outputs: dict[int, set] = {}
            for K in (2, 3, 4):
                found, value = beam_search(model, source, mask, beams=K, alpha=alpha, max_length=most)
                for i in range(len(source)):
                    expected, y = plain_beam_search(model, source[i : i + 1], mask[i : i + 1], K, alpha, most)
                    assert real(found[i]) == y
                    assert value[i].item() == pytest.approx(expected, abs=1e-4)
                    outputs.setdefault(i, set()).add(y)
            searches += len(outputs)
            differs += sum(len(different) > 1 for different in outputs.values())
    assert differs > searches / 12  # the number of beams matters


@torch.no_grad()
def test_by_default_it_may_write_50_symbols_more_than_the_source_has():
    config = TransformerConfig(V, d_model=8, n_heads=2, d_ff=12, n_layers=1, max_length=60)
    for length, most in ((4, 54), (12, 60)):  # the second would go beyond the positions that the model has
        model = randomise(Transformer(config)).double().eval()
        model.logits_bias[EOS] = -torch.inf  # never ends
        source = torch.full((2, length), 3)
        mask = torch.ones_like(source).bool()
        assert longest(model, source, None) == most
        assert greedy(model, source, mask).shape == (2, most)
        assert beam_search(model, source, mask, beams=2)[0].shape == (2, most)


def test_what_was_written_can_be_trained_on(half_trained):
    source = torch.full((2, 4), 3)
    mask = torch.ones_like(source).bool()
    for written in (greedy(half_trained, source, mask), *beam_search(half_trained, source, mask, beams=2)):
        assert not written.is_inference()


@torch.no_grad()
def test_one_beam_is_greedy(half_trained):
    model = half_trained
    for seed in range(10):
        source, mask = batch(seed, 11)
        found, value = beam_search(model, source, mask, beams=1, alpha=0.0, max_length=9)
        expected = greedy(model, source, mask, max_length=9)
        for i in range(len(source)):
            y = real(found[i])
            assert value[i].item() == pytest.approx(log_p(model, source[i : i + 1], mask[i : i + 1], y), abs=1e-5)
            # one beam looks at the two best: an end that is only second may still win in the end
            assert y == real(expected[i]) or value[i] > log_p(
                model, source[i : i + 1], mask[i : i + 1], real(expected[i])
            )


@torch.no_grad()
def test_a_sentence_alone_and_in_a_batch(half_trained):
    model = half_trained
    for seed in range(10):
        source, mask = batch(seed, 11)
        together, value = beam_search(model, source, mask, beams=3, max_length=9)
        for i in range(len(source)):
            short = source[i : i + 1, : mask[i].sum()]
            alone, own = beam_search(model, short, torch.ones_like(short).bool(), beams=3, max_length=9)
            assert real(alone[0]) == real(together[i])
            assert own.item() == pytest.approx(value[i].item(), abs=1e-6)


def test_a_model_amid_its_training_translates_without_dropout_and_goes_on(half_trained):
    model = Transformer(replace(half_trained.config, dropout=0.9)).double()
    model.load_state_dict(half_trained.state_dict())
    model.decoder[0].eval()  # of two minds, as it was left
    modes = [module.training for module in model.modules()]
    source, mask = batch(0, 11)
    assert greedy(model, source, mask).tolist() == greedy(half_trained, source, mask).tolist()
    assert beam_search(model, source, mask)[0].tolist() == beam_search(half_trained, source, mask)[0].tolist()
    assert [module.training for module in model.modules()] == modes


def test_bad_input_is_refused():
    model, (source, mask) = make(0), batch(0)
    with pytest.raises(ValueError, match=r"beams=0: must lie in 1\.\.4"):
        beam_search(model, source, mask, beams=0)
    with pytest.raises(ValueError, match=r"max_length=99: must lie in 1\.\.20"):
        greedy(model, source, mask, max_length=99)
    for alpha in (-0.1, float("nan")):
        with pytest.raises(ValueError, match=rf"alpha={alpha}: must be at least 0"):
            beam_search(model, source, mask, alpha=alpha)
    for search in (greedy, beam_search):
        with pytest.raises(ValueError, match="source has no sentence: give at least one row"):
            search(model, source[:0], mask[:0])
        with pytest.raises(ValueError, match="a source has no real token: every row of its mask needs"):
            search(model, source, mask & torch.tensor([[True], [False], [True]]))


@pytest.mark.parametrize("decode", [greedy, lambda *given: beam_search(*given)[0]], ids=["greedy", "beams"])
def test_a_source_without_a_mask_is_read_whole(decode):
    model, (source, _) = make(0), batch(0)
    torch.testing.assert_close(decode(model, source), decode(model, source, torch.ones_like(source).bool()))
