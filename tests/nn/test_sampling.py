"""Which token is drawn: against transformers, and the draws against their probabilities."""

from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coursekit.nn.sampling import draw, keep_top_k, keep_top_p, next_token, penalise_repetition, with_temperature


def some_logits(seed, shape=(4, 50), scale=3.0, ties=False):
    logits = torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale
    return logits.round() if ties else logits


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 60), st.floats(0.01, 1.0), st.floats(0.1, 5), st.booleans())
def test_processors_are_those_of_transformers(seed, k, p, number, ties):
    from transformers.generation import logits_process as theirs

    logits = some_logits(seed, ties=ties)
    assert torch.equal(keep_top_k(logits, k), theirs.TopKLogitsWarper(min(k, 50))(None, logits))
    if not ties:  # which of two equals comes first is open
        assert torch.equal(keep_top_p(logits, p), theirs.TopPLogitsWarper(p)(None, logits.clone()))
    torch.testing.assert_close(with_temperature(logits, number), theirs.TemperatureLogitsWarper(number)(None, logits))
    written = torch.randint(50, (4, 7), generator=torch.Generator().manual_seed(seed))
    expected = theirs.RepetitionPenaltyLogitsProcessor(number)(written, logits.clone())
    torch.testing.assert_close(penalise_repetition(logits, written, number), expected)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.01, 0.999), st.booleans())
def test_the_nucleus_is_the_smallest_that_reaches_p(seed, p, ties):
    logits = some_logits(seed, ties=ties)
    kept = keep_top_p(logits, p) > -torch.inf
    for row, chosen in zip(logits.double().softmax(dim=-1), kept):
        inside = row[chosen].sum().item()
        assert inside >= p - 1e-6
        assert inside - row[chosen].min().item() < p + 1e-6
        assert row[chosen].min() >= row[~chosen].max() if (~chosen).any() else True


def test_the_nucleus_that_reaches_p_exactly_has_nothing_beyond():
    for n in range(1, 9):
        assert (keep_top_p(torch.zeros(1, 8), n / 8) > -torch.inf).sum() == n


def test_padding_is_not_punished():
    logits, written = torch.tensor([[2.0, -2.0, 1.0]]), torch.tensor([[0, 0, 1]])
    real = torch.tensor([[False, False, True]])
    assert penalise_repetition(logits, written, 2.0, real).tolist() == [[2.0, -4.0, 1.0]]
    assert penalise_repetition(logits, written, 2.0).tolist() == [[1.0, -4.0, 1.0]]


def test_draws_have_the_probabilities_of_what_is_left():
    logits = torch.tensor([0.5, 2.0, 1.0, -1.0, 1.5])
    generator = torch.Generator().manual_seed(0)
    drawn = next_token(logits.expand(40_000, -1), 0.7, top_k=4, top_p=0.9, generator=generator)
    share = torch.bincount(drawn, minlength=5) / 40_000
    p = (logits / 0.7).softmax(dim=-1)  # by hand: 0.065 0.552 0.132 0.008 0.243; k drops the last but one
    p[3] = 0
    p /= p.sum()
    p[0] = 0  # 0.56 + 0.24 + 0.13 = 0.93 reaches 0.9
    torch.testing.assert_close(share, p / p.sum(), atol=0.01, rtol=0)


@pytest.mark.parametrize("u", [0.0, 0.25, 0.5, 1 - 2.0**-53])
def test_what_has_no_probability_is_never_drawn(u):
    """Whatever number comes, and where the probabilities add up to more than 1."""
    p = torch.tensor([[0.0, 0.25, 0.0, 0.25, 0.5, 0.0], [0.0, 0.0, 1.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.5, 0.0, 0.5, 0.0]])
    p[2, 1] += 2.0**-20
    with mock.patch.object(torch, "rand", lambda *size, dtype, **_: torch.full(size, u, dtype=dtype)):
        drawn = draw(p)
    assert p.gather(1, drawn[:, None]).all()
    assert drawn[0] == {0.0: 1, 0.25: 3, 0.5: 4}.get(u, 4), "the first whose sum exceeds it"


def test_rare_tokens_of_a_large_vocabulary_are_drawn_as_often_as_they_should():
    """A sum of 50,000 probabilities in float32, or a uniform number with 24 bits, would pass over most of these."""
    rare, size = 2.0**-30, 50_000
    p = torch.full((1, size), rare)
    p[0, 0] = 1 - rare * (size - 1)
    p = p.double() / p.double().sum()
    place = torch.arange(1, size, 997)  # a number in the middle of each one's step
    u = 1 - (size - place - 0.5) * rare
    with mock.patch.object(torch, "rand", lambda *shape, dtype, **_: u[:, None].to(dtype)):
        drawn = draw(p.float().expand(len(u), -1))
    assert (drawn - place).abs().max() <= 32, "float32 has the first one's probability to within half a step of 2^-24"
    assert len(drawn.unique()) == len(place)


@pytest.mark.parametrize("row", [[0.0, torch.nan, 1.0], [-torch.inf] * 3])
def test_where_nothing_can_be_drawn_that_is_said(row):
    with pytest.raises(ValueError, match="there is no next token: the logits hold nan, or all of a row are -inf"):
        next_token(torch.tensor([[1.0, 2.0, 3.0], row]))


def test_temperature_0_takes_the_largest():
    logits = some_logits(3)
    assert torch.equal(next_token(logits, 0.0, top_k=3, top_p=0.1), logits.argmax(dim=-1))


def test_the_generator_decides():
    logits = some_logits(4, (200, 50), 0.5)
    one, again, other = (next_token(logits, generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda x: with_temperature(x, 0), "temperature=0: must be at least 1e-06"),
        (lambda x: with_temperature(x, 1e-37), "temperature=1e-37: must be at least 1e-06"),
        (lambda x: keep_top_k(x, 0), "k=0: must be a whole number, at least 1"),
        (lambda x: keep_top_p(x, 0), "p=0: must lie above 0"),
        (lambda x: keep_top_p(x, 1.2), "p=1.2: must lie above 0"),
        (lambda x: penalise_repetition(x, torch.zeros(4, 1).long(), 0), "penalty=0: must be above 0"),
    ],
)
def test_numbers_out_of_range_are_refused(call, says):
    with pytest.raises(ValueError, match=says):
        call(some_logits(0))


@pytest.mark.parametrize("shape", [(5,), (2, 3, 5)])
def test_logits_of_one_place_are_asked_for(shape):
    with pytest.raises(ValueError, match=r"must be \(B, V\), those of the last place of each text"):
        next_token(torch.zeros(shape))


def test_so_many_of_the_most_likely_is_a_whole_number():
    for k in (2.5, 2.0, float("inf")):
        with pytest.raises(ValueError, match=rf"k={k}: must be a whole number"):
            keep_top_k(torch.zeros(1, 4), k)
