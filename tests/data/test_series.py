"""The station's rules and its best forecast, windows that see nothing of the future, and the prices as they stand."""

import csv
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.cbook import get_sample_data
from scipy.stats import ks_2samp

from coursekit.data import series
from coursekit.data.series import (
    REGIMES,
    STAY,
    YEAR,
    Station,
    best_forecast,
    climate,
    draw_regimes,
    fill_forward,
    fit_scale,
    log_returns,
    possible_futures,
    share_prices,
    station,
    weather_windows,
    windows,
)

# --- the station ----------------------------------------------------------------------------------------------


def test_an_hour_is_what_the_rules_say():
    """Written out with numpy, for a place whose numbers are all its own."""
    found = station(years=0.3, seed=7)
    rules = {name: x.double().numpy() for name, x in vars(found.climate).items()}
    for t in (0, 1, 500, len(found.whole) - 1):
        r = int(found.regimes[t])
        expected = rules["level"] + rules["trend"] * t / YEAR
        expected = expected + rules["yearly"] * np.cos(2 * np.pi * (t - rules["coldest"]) / YEAR - np.pi)
        daily = rules["daily"] * np.cos(2 * np.pi * (t - rules["warmest"]) / rules["period"])
        expected = expected + rules["swing"][r] * daily + rules["offset"][r] + found.noise[t].double().numpy()
        np.testing.assert_allclose(found.whole[t], expected, rtol=1e-6, atol=1e-3)


def test_noise_is_autocorrelated_and_as_rough_as_its_weather():
    found = station(years=3, seed=3)
    rules, n = found.climate, found.noise
    innovations = (n[1:] - rules.rho * n[:-1]) / rules.sigma
    for r in range(len(REGIMES)):
        ruled = innovations[found.regimes[1:] == r]
        torch.testing.assert_close(ruled.std(dim=0), rules.rough[r], rtol=0.04, atol=0)
    assert innovations[1:].mul(innovations[:-1]).mean(dim=0).abs().max() < 0.05, "what is left has no memory"


def test_noise_is_as_wide_in_the_first_hour_as_later(generator):
    regimes = torch.zeros(4000, 200, dtype=torch.long)
    _, noise = series.measured(climate(), regimes, torch.zeros(4000), generator)
    torch.testing.assert_close(noise[:, 0].std(dim=0), noise[:, -1].std(dim=0), rtol=0.06, atol=0)


def test_regimes_stay_and_change_as_their_odds_say(generator):
    drawn = draw_regimes(200, 3000, generator)
    assert drawn.unique().tolist() == [0, 1, 2]
    for r in range(3):
        after = drawn[:, 1:][drawn[:, :-1] == r]
        odds = torch.bincount(after, minlength=3) / len(after)
        expected = torch.full((3,), (1 - STAY) / 2)
        expected[r] = STAY
        torch.testing.assert_close(odds, expected, rtol=0.06, atol=0)


def test_odds_ahead_are_those_of_hour_after_hour():
    odds = series.odds_ahead(5)
    torch.testing.assert_close(odds.sum(dim=-1), torch.ones(5, 3, dtype=torch.float64))
    assert odds[0, 1, 1].item() == pytest.approx(STAY)
    torch.testing.assert_close(odds[4], odds[1] @ odds[2])


def test_a_station_is_always_the_same_and_each_place_another():
    assert torch.equal(station(0.01, 1).whole, station(0.01, 1).whole)
    assert not torch.equal(station(0.01, 1).whole, station(0.01, 2).whole)
    assert not torch.equal(climate(1).level, climate(2).level)
    assert torch.equal(climate(0).sigma, torch.tensor([0.45, 0.12, 0.5])), "place 0 is the middle of all"


def test_hours_are_missing_as_often_as_asked_in_gaps_of_all_quantities():
    found = station(years=4, missing=0.05)
    gone = found.values.isnan()
    assert gone.float().mean().item() == pytest.approx(0.05, rel=0.15)
    assert torch.equal(gone[:, :1].expand(-1, 3), gone)
    assert torch.equal(found.values[~gone], found.whole[~gone])
    edges = torch.diff(gone[:, 0].int())
    lengths = (edges == -1).nonzero()[:, 0] - (edges == 1).nonzero()[: (edges == -1).sum(), 0]
    assert 5 < lengths.float().mean() < 8
    assert not gone[0].any()
    assert not station(years=0.1, missing=0).values.isnan().any()


@pytest.mark.parametrize(("wrong", "message"), [({"years": 0.001}, "years=0.001"), ({"missing": 0.5}, "missing=0.5")])
def test_a_station_that_cannot_be_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        station(**wrong)


# --- the best forecast ----------------------------------------------------------------------------------------


def played_on(found: Station, start: int, horizon: int, n: int, generator: torch.Generator) -> torch.Tensor:
    """The rules played on from one hour, step by step: (H, n, C)."""
    rules, state, regime = found.climate, found.noise[start - 1].expand(n, 3), found.regimes[start - 1].expand(n)
    total = []
    for h in range(horizon):
        changes = torch.rand(n, generator=generator) >= STAY
        regime = (regime + changes * torch.randint(1, 3, (n,), generator=generator)) % 3
        state = rules.rho * state + rules.sigma * rules.rough[regime] * torch.randn(n, 3, generator=generator)
        seasons = series.seasons(rules, torch.tensor(start + h), rules.swing[regime])
        total.append(seasons + rules.offset[regime] + state)
    return torch.stack(total)


def test_the_best_forecast_is_the_mean_of_many_futures(generator):
    """The rules played on 20,000 times from one hour: an oracle that knew less, or more, would lie elsewhere."""
    found = station(years=0.2, seed=5)
    start, H, n = 900, 30, 20_000
    futures = played_on(found, start, H, n, generator)
    error = 5 * futures.std(dim=1) / math.sqrt(n)
    best = best_forecast(found, torch.tensor([start]), H)[0]
    assert ((best - futures.mean(dim=1)).abs() < error + 1e-4).all()
    assert (best[-1] - found.whole[start + H - 1]).abs().min() > 1e-3, "it does not know the future"


def test_possible_futures_are_spread_as_the_rules_played_on(generator):
    """Whole distributions, in each weather: by the two-sample test of Kolmogorov and Smirnov, hour by hour."""
    found = station(years=0.5, seed=5)
    starts = torch.stack([(found.regimes == r).nonzero()[40, 0] + 1 for r in range(3)])
    H, n = 24, 2000
    drawn = possible_futures(found, starts, H, n, generator)
    assert drawn.shape == (3, n, H, 3)
    for futures, start in zip(drawn, starts.tolist()):
        slow = played_on(found, start, H, n, generator)
        slow = slow.movedim(0, 1)
        # differences, too: a future is one path, not a draw for each hour
        for ours, theirs in ((futures, slow), (futures.diff(dim=1), slow.diff(dim=1))):
            for h in (0, 1, 5, 22):
                for c in range(3):
                    assert ks_2samp(ours[:, h, c], theirs[:, h, c]).pvalue > 1e-5, (start, h, c)


def test_possible_futures_have_the_best_forecast_as_their_mean(generator):
    found = station(years=0.2, seed=5)
    starts = torch.tensor([400, 900, len(found.whole)])
    drawn = possible_futures(found, starts, 24, 4000, generator)
    error = 5 * drawn.std(dim=1) / math.sqrt(4000)
    assert ((drawn.mean(dim=1) - best_forecast(found, starts, 24)).abs() < error + 1e-4).all()


def test_possible_futures_look_at_nothing_after_their_start():
    found = station(years=0.2, seed=5)
    later = found._replace(regimes=found.regimes.clone(), noise=found.noise.clone(), whole=found.whole.clone())
    later.regimes[900:] = 0
    later.noise[900:] = 1e6
    starts = torch.tensor([400, 900])
    first, second = (possible_futures(x, starts, 24, 9, torch.Generator().manual_seed(1)) for x in (found, later))
    assert torch.equal(first, second)


def test_the_best_forecast_looks_at_nothing_after_its_start():
    found = station(years=0.2, seed=5)
    later = found._replace(regimes=found.regimes.clone(), noise=found.noise.clone(), whole=found.whole.clone())
    later.regimes[900:] = 0
    later.noise[900:] = 1e6
    starts = torch.tensor([400, 900])
    assert torch.equal(best_forecast(found, starts, 24), best_forecast(later, starts, 24))


def test_the_best_forecast_has_smaller_errors_than_it_would_with_any_part_wrong():
    found = station(years=2, seed=2)
    part = windows(found.values, 48, 24, stride=7)
    error = lambda f: (f - part.target).square().nanmean(dim=(0, 1))  # noqa: E731
    best = error(best_forecast(found, part.starts, 24))
    for changed in (
        found._replace(noise=torch.zeros_like(found.noise)),
        found._replace(regimes=torch.ones_like(found.regimes)),
    ):
        assert (error(best_forecast(changed, part.starts, 24)) > 1.02 * best).sum() >= 2


@pytest.mark.parametrize("start", [0, 10_000])
def test_a_start_without_an_hour_before_is_refused(start):
    with pytest.raises(ValueError, match="starts"):
        best_forecast(station(years=0.1), torch.tensor([start]), 3)
    with pytest.raises(ValueError, match="starts"):
        possible_futures(station(years=0.1), torch.tensor([start]), 3, 2, torch.Generator())


# --- regimes to be told apart ---------------------------------------------------------------------------------


def test_weather_windows_are_of_one_weather_each_and_hide_level_and_season():
    found = weather_windows(3000, length=72)
    x, labels = found["history"], found["labels"]
    assert x.shape == (3000, 72, 3)
    assert torch.bincount(labels, minlength=3).min() > 900
    assert torch.equal(weather_windows(5, seed=3)["history"], weather_windows(5, seed=3)["history"])
    assert not torch.equal(weather_windows(5, seed=3)["history"], weather_windows(5, seed=4)["history"])
    steps = x.diff(dim=1).std(dim=1)[:, 2]  # the roughness of the pressure
    means = torch.stack([steps[labels == r].mean() for r in range(3)])
    assert (means.diff() > 0.1).all()
    level = x.mean(dim=1)[:, 0]
    spread = torch.stack([level[labels == r].mean() for r in range(3)])
    assert spread.std() < 0.2 * level.std()


def test_no_weather_windows_are_refused():
    with pytest.raises(ValueError, match="n=0"):
        weather_windows(0)


# --- windows --------------------------------------------------------------------------------------------------


def numbered(T: int, C: int = 2) -> torch.Tensor:
    """Hour t of channel c holds t + 1000 c."""
    return torch.arange(T)[:, None] + 1000.0 * torch.arange(C)


@given(st.integers(1, 7), st.integers(1, 5), st.integers(1, 4), st.data())
def test_windows_stand_next_to_each_other_and_within_their_bounds(L, H, stride, data):
    T = 40
    begin = data.draw(st.integers(L, T - H))
    end = data.draw(st.integers(begin + H, T))
    found = windows(numbered(T), L, H, begin, end, stride)
    assert found.starts.tolist() == list(range(begin, end - H + 1, stride))
    for history, target, start in zip(*found):
        assert torch.equal(history, numbered(T)[start - L : start])
        assert torch.equal(target, numbered(T)[start : start + H])
    assert found.history.shape == (len(found.starts), L, 2)


def test_nothing_from_the_cut_on_reaches_training_not_even_its_scale():
    known, cut = station(years=0.2).values, 1200
    other = known.clone()
    other[cut:] = torch.where(torch.arange(len(known) - cut)[:, None] % 3 == 0, math.nan, 1e6)
    one, two = (windows(x, 48, 24, end=cut) for x in (known, other))
    assert int(one.starts.max()) + 24 == cut, "and it reaches to the cut"
    for a, b in zip(one, two):
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
    for a, b in zip(fit_scale(known[:cut]), fit_scale(other[:cut])):
        assert torch.equal(a, b)
    assert not torch.equal(fit_scale(known).mean, fit_scale(other).mean), "the check could fail"


def test_histories_are_filled_from_the_past_and_targets_keep_their_gaps():
    x = numbered(12)
    x[3:5, 0] = math.nan
    x[7, 1] = math.nan
    found = windows(x, 4, 2)
    assert found.history[0, :, 0].tolist() == [0, 1, 2, 2]
    assert found.history[4, :, 1].tolist() == [1004, 1005, 1006, 1006]
    assert found.target[:, :, 0].isnan().sum() == 1, "hour 4 of the first window; hour 3 belongs to no target"
    assert torch.equal(found.target.isnan().sum(dim=(0, 1)), torch.tensor([1, 2]))


def test_a_gap_is_filled_with_the_last_number_of_its_own_channel():
    nan = math.nan
    x = torch.tensor([[1, 10], [nan, 20], [nan, nan], [4, nan]])
    assert fill_forward(x).tolist() == [[1, 10], [1, 20], [1, 20], [4, 20]]
    with pytest.raises(ValueError, match="first row"):
        fill_forward(x[1:])


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"begin": 3}, "begin=3"),
        ({"begin": 8, "end": 9}, "no target of 2 hours"),
        ({"end": 21}, "no target of 2 hours"),
        ({"stride": 0}, "stride=0"),
    ],
)
def test_windows_that_do_not_fit_are_refused(asked, message):
    with pytest.raises(ValueError, match=message):
        windows(numbered(20), 4, 2, **asked)


def test_a_scale_is_that_of_what_is_there_and_can_be_undone():
    x = torch.tensor([[1.0, 5], [math.nan, 7], [3, 9]])
    scale = fit_scale(x)
    assert scale.mean.tolist() == [2, 7]
    np.testing.assert_allclose(scale.std, [1, np.std([5, 7, 9])], rtol=1e-6)
    torch.testing.assert_close(scale.undo(scale(x)), x, equal_nan=True)
    with pytest.raises(ValueError, match="channel 1"):
        fit_scale(torch.tensor([[1.0, 2], [2, 2]]))


# --- prices ---------------------------------------------------------------------------------------------------


def test_prices_are_those_of_the_file_with_its_gaps():
    found = share_prices()
    assert found.values.shape == (390, 10)
    assert (found.months[0], found.months[-1]) == ("1990-01", "2022-06")
    years = [12 * int(month[:4]) + int(month[5:]) for month in found.months]
    assert set(np.diff(years)) == {1}, "every month once"
    lines = get_sample_data("Stocks.csv", asfileobj=False)
    with open(lines, encoding="utf-8") as file:
        rows = {row["Date"]: row for row in csv.DictReader(line for line in file if not line.startswith("#"))}
    for month, name in (("1990-01", "IBM"), ("2008-10", "^GSPC"), ("2022-06", "ADBE")):
        value = found.values[found.months.index(month), found.names.index(name)].item()
        assert value == pytest.approx(float(rows[f"{month}-01"][name]), rel=1e-6)
    missing = dict(zip(found.names, found.values.isnan().sum(dim=0).tolist()))
    assert {name: n for name, n in missing.items() if n} == {"AMZN": 89, "DELL": 320, "GOOGL": 176}
    begun = ~found.values.isnan()
    assert torch.equal(begun, begun.int().cummax(dim=0).values.bool()), "once traded, always traded"


def test_log_returns_add_up_to_the_whole_rise():
    prices = torch.tensor([[1.0, math.nan], [2, 4], [8, 2]])
    found = log_returns(prices)
    np.testing.assert_allclose(found[:, 0], np.log([2, 4]), rtol=1e-6)
    assert found[0, 1].isnan()
    assert found[1, 1].item() == pytest.approx(-math.log(2))
