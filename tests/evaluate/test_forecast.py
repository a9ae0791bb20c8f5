"""Measures, forecasters to be beaten, tests on the past: beside loops over numbers, scikit-learn's and SciPy's."""

import math

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge
from sklearn.metrics import mean_absolute_error, mean_pinball_loss, mean_squared_error

from coursekit.evaluate.forecast import (
    backtest,
    coverage,
    diebold_mariano,
    exponential_smoothing,
    fit_exponential_smoothing,
    fit_linear_map,
    fit_ridge,
    linear_map,
    mae,
    mase,
    persistence,
    pinball,
    rmse,
    seasonal_naive,
)
from coursekit.models.baselines.dlinear import DLinear, DLinearConfig

SEEDS = st.integers(0, 999)


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).double()


def with_gaps(x: torch.Tensor, share: float = 0.3, seed: int = 0) -> torch.Tensor:
    """NaN at some places, but not at the first."""
    gaps = torch.rand(x.shape, generator=torch.Generator().manual_seed(seed)) < share
    gaps.view(-1)[0] = False
    return x.masked_fill(gaps, math.nan)


def cut_windows(x: torch.Tensor, L: int, H: int, stride: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    starts = range(L, len(x) - H + 1, stride)
    return torch.stack([x[s - L : s] for s in starts]), torch.stack([x[s : s + H] for s in starts])


# --- measures -------------------------------------------------------------------------------------------------


@given(SEEDS)
def test_errors_are_scikit_learns_on_what_is_known(seed):
    """Catches missing values that count as 0, and means of means."""
    forecast, target = noise(4, 5, 3, seed=seed), with_gaps(noise(4, 5, 3, seed=seed + 1), seed=seed)
    known = ~target.isnan()
    assert mae(forecast, target) == pytest.approx(mean_absolute_error(target[known], forecast[known]))
    assert rmse(forecast, target) == pytest.approx(math.sqrt(mean_squared_error(target[known], forecast[known])))
    levels = (0.1, 0.5, 0.8)
    quantiles = noise(4, 5, 3, 3, seed=seed + 2)
    expected = [mean_pinball_loss(target[known], quantiles[known][:, i], alpha=q) for i, q in enumerate(levels)]
    assert pinball(quantiles, target, levels) == pytest.approx(np.mean(expected))
    assert pinball(forecast[..., None], target, [0.5]) == pytest.approx(mae(forecast, target) / 2)


def test_a_broken_forecast_is_not_hidden():
    """Catches nanmean, for which a model that has diverged in part is a good one."""
    target, train = torch.tensor([[1.0, 2.0], [3.0, math.nan], [5.0, 6.0]]), noise(9, 2)
    broken = torch.tensor([[1.0, math.nan], [3.0, 0.0], [5.0, 6.0]])
    for value in (mae(broken, target), rmse(broken, target), mase(broken, target, train, 1)):
        assert math.isnan(value)
    assert math.isnan(pinball(broken[..., None], target, [0.5]))
    unasked = target.clone()  # NaN where nothing is known to compare with
    assert mae(unasked, target) == rmse(unasked, target) == mase(unasked, target, train, 1) == 0


def test_half_precision_is_summed_in_full():
    forecast, target = torch.zeros(10_000, dtype=torch.bfloat16), torch.full((10_000,), 1.0)
    target[::2] = 1.5
    assert mae(forecast, target) == pytest.approx(1.25)


@settings(max_examples=50)
@given(st.integers(1, 5), SEEDS)
def test_mase_is_the_slow_one(season, seed):
    scale = torch.tensor([1.0, 100.0, 0.01]).double()
    train = with_gaps(noise(30, 3, seed=seed), share=0.2, seed=seed) * scale
    forecast, target = noise(4, 5, 3, seed=seed + 1) * scale, with_gaps(noise(4, 5, 3, seed=seed + 2)) * scale
    expected = []
    for c in range(3):
        wrong = [abs(f - y) for f, y in zip(forecast[..., c].flatten(), target[..., c].flatten()) if y == y]
        steps = [abs(train[t, c] - train[t - season, c]) for t in range(season, 30)]
        expected.append(np.mean(wrong) / np.mean([s for s in steps if s == s]))
    found = mase(forecast, target, train, season)
    assert found == pytest.approx(np.mean(expected))
    shift, units = noise(3), torch.tensor([0.5, 30.0, 7.0]).double()
    moved = mase(forecast * units + shift, target * units + shift, train * units + shift, season)
    assert moved == pytest.approx(found), "it has no units, whatever those of the channels are"


@given(st.integers(1, 6), st.integers(1, 3), SEEDS)
def test_mase_of_the_seasonal_naive_forecast_in_training_is_one(season, C, seed):
    """Catches a scale of another season or a squared one."""
    train = noise(20, C, seed=seed).cumsum(dim=0) * torch.arange(1, C + 1)
    history, target = cut_windows(train, season, 1)
    assert mase(seasonal_naive(history, 1, season), target, train, season) == pytest.approx(1)


def test_coverage_counts_the_ends_and_what_is_known():
    lower, upper = torch.zeros(6), torch.tensor([1.0, 1.0, 1.0, 1.0, 0.0, 1.0])
    target = torch.tensor([0.0, 1.0, 0.5, 1.1, -0.1, math.nan])
    assert coverage(lower, upper, target) == pytest.approx(3 / 5)
    y = noise(10_000)
    inside = coverage(torch.full_like(y, scipy.stats.norm.ppf(0.1)), torch.full_like(y, scipy.stats.norm.ppf(0.9)), y)
    assert inside == pytest.approx(0.8, abs=0.015)


def test_measures_refuse_what_cannot_be_compared():
    x = torch.zeros(2, 3)
    for measure in (mae, rmse, lambda f, y: mase(f, y, noise(9, 3), 1), lambda f, y: coverage(f, f, y)):
        with pytest.raises(ValueError, match=r"forecast of shape \(2, 1\), target of \(2, 3\): must be equal"):
            measure(x[:, :1], x)
        with pytest.raises(ValueError, match="all of the target's 6 values are missing"):
            measure(x, x * math.nan)
    with pytest.raises(ValueError, match=r"forecast of shape \(2, 3\), target of \(2, 1\): must be equal"):
        coverage(x[:, :1], x, x[:, :1])
    with pytest.raises(ValueError, match="all of the target's 6 values are missing"):
        pinball(x[..., None], x * math.nan, [0.5])
    with pytest.raises(ValueError, match=r"levels=\(1\.5,\): each must lie between 0 and 1"):
        pinball(x[..., None], x, [1.5])
    with pytest.raises(ValueError, match=r"must be \(2, 3, 2\), the target's shape and 2 levels"):
        pinball(x[..., None], x, [0.1, 0.9])
    for lower in (torch.tensor([[0.0, 2.0, 2.0]] * 2), torch.tensor([[0.0, 2.0, math.nan]] * 2)):
        with pytest.raises(ValueError, match="4 intervals have a lower end above the upper one, or NaN"):
            coverage(lower, x + 1, x)


def test_mase_refuses_a_scale_that_is_none():
    x, train = torch.zeros(4, 2), noise(6, 2)
    with pytest.raises(ValueError, match=r"train of shape \(6, 3\): must be \(T, C\) with the C=2 channels"):
        mase(x, x, noise(6, 3), 1)
    with pytest.raises(ValueError, match=r"train of shape \(6,\)"):
        mase(x, x, train[:, 0], 1)
    for season in (0, 6):
        with pytest.raises(ValueError, match=rf"season={season}: must lie in 1\.\.5"):
            mase(x, x, train, season)
    periodic = torch.stack([train[:, 0], torch.tensor([1.0, 2.0] * 3).double()], dim=1)
    with pytest.raises(ValueError, match=r"channel 1: .* \|x_t - x_\(t-2\)\| is 0 on the average, and must be above 0"):
        mase(x, x, periodic, 2)
    gone = train.clone()
    gone[::2, 1] = math.nan  # no pair is left
    with pytest.raises(ValueError, match=r"channel 1: in the training part .* is nan on the average"):
        mase(x, x, gone, 1)
    with pytest.raises(ValueError, match="channel 1: all of its target is missing"):
        mase(x, x * torch.tensor([1, math.nan]), train, 1)


# --- forecasters to be beaten ---------------------------------------------------------------------------------


@given(st.integers(1, 6), st.integers(0, 5), st.integers(1, 20), SEEDS)
def test_a_periodic_series_is_continued_exactly(season, more, horizon, seed):
    """Catches a season that begins at the wrong place, and one that is not repeated."""
    period = noise(season, 2, seed=seed)
    series = period[torch.arange(season + more + horizon) % season]
    history, target = series[None, : season + more], series[None, season + more :]
    assert torch.equal(seasonal_naive(history, horizon, season), target)


def test_persistence_repeats_the_last_value():
    x = noise(3, 5, 2)
    assert torch.equal(persistence(x, 4), x[:, -1:].expand(3, 4, 2))
    assert torch.equal(persistence(x, 4), seasonal_naive(x, 4, 1))


def slow_smoothing(x, horizon: int, m: int, alpha: float, gamma: float) -> list[float]:
    """Of one series, in the form with components."""
    level = sum(x[:m]) / m
    s = [value - level for value in x[:m]]  # of every time step so far
    for t in range(m, len(x)):
        s.append(gamma * (x[t] - level) + (1 - gamma) * s[t - m])
        level = alpha * (x[t] - s[t - m]) + (1 - alpha) * level
    T = len(x)
    return [level + s[T + h - m * ((h - 1) // m + 1) - 1] for h in range(1, horizon + 1)]


@settings(max_examples=50)
@given(st.integers(1, 4), st.integers(0, 9), st.integers(1, 9), st.floats(0, 1), st.floats(0, 1), SEEDS)
def test_smoothing_is_the_slow_one(season, more, horizon, alpha, gamma, seed):
    """Catches a level that is corrected before the season is, and states that stand at the wrong place of it."""
    x = noise(2, season + more, 3, seed=seed) + 10
    found = exponential_smoothing(x, horizon, season, alpha, gamma)
    for n in range(2):
        for c in range(3):
            expected = slow_smoothing(x[n, :, c].tolist(), horizon, season, alpha, gamma)
            assert found[n, :, c].tolist() == pytest.approx(expected)


def test_smoothing_has_constants_for_each_channel():
    x, alpha, gamma = noise(4, 12, 2), torch.tensor([0.1, 0.7]), torch.tensor([0.6, 0.2])
    found = exponential_smoothing(x, 5, 3, alpha, gamma)
    for c in range(2):
        alone = exponential_smoothing(x[..., c : c + 1], 5, 3, alpha[c].item(), gamma[c].item())
        torch.testing.assert_close(found[..., c : c + 1], alone)


def test_smoothing_holds_the_naive_forecasts():
    x = noise(3, 14, 2)
    torch.testing.assert_close(exponential_smoothing(x, 9, 4, alpha=0, gamma=1), seasonal_naive(x, 9, 4))
    torch.testing.assert_close(exponential_smoothing(x, 9, 1, alpha=1, gamma=0), persistence(x, 9))


@given(st.floats(0.01, 100), st.floats(-1000, 1000), SEEDS)
def test_forecasters_follow_shift_and_scale(a, b, seed):
    """Fitted anew in other units each forecasts the same, in these units: catches a penalty or grid that has units."""
    x = noise(60, 2, seed=seed)
    history, target = cut_windows(x, 12, 4, stride=3)
    moved, moved_target = a * history + b, a * target + b
    for fit in (
        lambda h, y: fit_ridge(h, y, lags=5, penalty=3.0),
        lambda h, y: fit_exponential_smoothing(h, y, 4, alphas=(0, 0.5), gammas=(0, 0.5)),
    ):
        expected = a * fit(history, target)(history) + b
        torch.testing.assert_close(fit(moved, moved_target)(moved), expected, rtol=1e-6, atol=1e-6 * (a + abs(b)))


def test_the_constants_are_the_best_of_the_grid_in_each_channel():
    """A level that wanders, a season that changes, noise around what never does: catches constants for all channels."""
    T, m = 240, 4
    season = torch.tensor([3.0, 0.0, -3.0, 0.0]).double()[torch.arange(T) % m]
    wandering = noise(T).cumsum(dim=0) * 2
    changing = noise(T // m, m, seed=1).cumsum(dim=0).flatten() * 2
    still = season + noise(T, seed=2)
    history, target = cut_windows(torch.stack([wandering, changing, still], dim=1), 40, 6, stride=2)
    target = with_gaps(target)
    alphas, gammas = (0.0, 0.1, 0.5, 0.9), (0.0, 0.1, 0.5, 1.0)
    forecaster = fit_exponential_smoothing(history, target, m, alphas, gammas)
    for c in range(3):
        errors = {
            (a, g): mae(exponential_smoothing(history, 6, m, a, g)[..., c], target[..., c])
            for a in alphas
            for g in gammas
            if a + g <= 1
        }
        best = min(errors, key=errors.get)
        assert (forecaster.keywords["alpha"][c].item(), forecaster.keywords["gamma"][c].item()) == best
    alpha, gamma = forecaster.keywords["alpha"], forecaster.keywords["gamma"]
    assert alpha[0] >= 0.5
    assert gamma[1] >= 0.5
    assert max(alpha[2], gamma[2]) <= 0.1
    new = noise(2, 17, 3)  # of another length
    torch.testing.assert_close(forecaster(new), exponential_smoothing(new, 6, m, alpha, gamma))
    # of windows whose forecasts are all alike the first pair is taken
    flat = fit_exponential_smoothing(torch.ones(2, 8, 1), torch.ones(2, 1, 1), 4)
    assert (flat.keywords["alpha"], flat.keywords["gamma"]) == (0, 0)


def slow_ridge(x: np.ndarray, y: np.ndarray, penalty: float) -> tuple[np.ndarray, np.ndarray]:
    """The normal equations, with both sides centred so that the intercept is not penalised."""
    x_mean, y_mean = x.mean(axis=0), y.mean(axis=0)
    a = (x - x_mean).T @ (x - x_mean) + penalty * np.eye(x.shape[1])
    weights = np.linalg.solve(a, (x - x_mean).T @ (y - y_mean))
    return weights, y_mean - x_mean @ weights


@settings(max_examples=30)
@given(st.integers(2, 6), st.integers(1, 4), st.floats(0.1, 100), SEEDS)
def test_ridge_is_the_normal_equations(lags, H, penalty, seed):
    """Catches lags from the wrong end, an intercept that is penalised or not scaled back, and H = 1."""
    size = torch.tensor([1.0, 50.0])
    history = noise(20, 6, 2, seed=seed) * size + 30
    target = history[:, -1:] + (noise(20, H, 2, seed=seed + 1) + 2) * size
    new = noise(3, 9, 2, seed=seed + 2)
    found = fit_ridge(history, target, lags, penalty)(new)
    assert found.shape == (3, H, 2)
    for c in range(2):
        h, y, n = (part[..., c].numpy() for part in (history, target, new))
        x = (h - h[:, -1:])[:, 6 - lags : -1]
        scale = np.sqrt(np.mean(x**2))
        weights, bias = slow_ridge(x / scale, (y - h[:, -1:]) / scale, penalty)
        expected = n[:, -1:] + (n - n[:, -1:])[:, 9 - lags : -1] @ weights + bias * scale
        np.testing.assert_allclose(found[..., c], expected, rtol=1e-6, atol=1e-8)


def test_ridge_finds_the_rule_of_a_wave_at_any_level():
    """``x_{t+1} = 2 cos(w) x_t - x_{t-1}``, for waves of any size and phase; the level here is another every time."""
    t, generator = torch.arange(16), torch.Generator().manual_seed(0)
    phase, size, level = (torch.rand(200, 1, 1, generator=generator).double() * s for s in (7, 5, 100))
    waves = level + size * torch.sin(2 * torch.pi * t[None, :, None] / torch.tensor([5.0, 9.0]) + phase)
    forecaster = fit_ridge(waves[:100, :12], waves[:100, 12:], lags=6, penalty=1e-6)
    assert rmse(forecaster(waves[100:, :12]), waves[100:, 12:]) < 0.01


def test_ridge_learns_each_channel_from_windows_that_are_whole():
    history, target = noise(30, 6, 2), noise(30, 3, 2, seed=1)
    holes = target.clone()
    holes[::3, 1, 1] = math.nan
    found, whole = fit_ridge(history, holes, 4).keywords, fit_ridge(history, target, 4).keywords
    torch.testing.assert_close(found["weights"][0], whole["weights"][0])
    kept = torch.arange(30) % 3 > 0
    alone = fit_ridge(history[kept, :, 1:], target[kept, :, 1:], 4).keywords
    torch.testing.assert_close(found["weights"][1], alone["weights"][0])
    torch.testing.assert_close(found["bias"][1], alone["bias"][0])
    other = history * torch.tensor([1.0, -7.0])
    torch.testing.assert_close(fit_ridge(other, target, 4).keywords["weights"][0], whole["weights"][0])


def test_ridge_of_one_channel_is_scikit_learns():
    x = noise(200, 1).cumsum(dim=0)
    history, target = cut_windows(x, 8, 5)
    inputs = (history - history[:, -1:])[:, :-1, 0]
    scale = inputs.square().mean().sqrt()
    expected = Ridge(alpha=2.0 * scale.item() ** 2).fit(inputs, (target - history[:, -1:])[..., 0])
    found = fit_ridge(history, target, lags=8, penalty=2.0)(history)
    np.testing.assert_allclose(found[..., 0], expected.predict(inputs) + history[:, -1].numpy(), atol=1e-8)


def test_a_channel_that_never_changes_is_continued():
    history, target = torch.full((5, 6, 1), 3.0), torch.full((5, 2, 1), 3.0)
    assert torch.equal(fit_ridge(history, target, 4)(history), target)
    assert torch.equal(fit_exponential_smoothing(history, target, 2)(history), target)


def test_a_linear_map_is_the_slow_one():
    history, weights, bias = noise(3, 4, 2), noise(5, 2, 4, 2, seed=1), noise(5, 2, seed=2)
    found = linear_map(history, weights, bias)
    assert found.shape == (3, 5, 2)
    for n in range(3):
        for h in range(5):
            for c in range(2):
                terms = [weights[h, c, i, d] * history[n, i, d] for i in range(4) for d in range(2)]
                assert found[n, h, c].item() == pytest.approx((sum(terms) + bias[h, c]).item())


@settings(max_examples=30)
@given(st.integers(1, 5), st.integers(1, 4), st.floats(0.1, 100), SEEDS)
def test_ridge_on_all_channels_is_the_normal_equations(L, H, penalty, seed):
    """Catches channels that are not scaled or not scaled back, an intercept that is penalised, axes mixed up."""
    size = torch.tensor([1.0, 50.0])
    history = noise(20, L, 2, seed=seed) * size + 30
    target = (history[:, -1:] + noise(20, H, 2, seed=seed + 1)).flip(-1)  # each channel follows from the other
    new = noise(3, L, 2, seed=seed + 2) * size
    found = fit_linear_map(history, target, penalty)(new)
    assert found.shape == (3, H, 2)
    scale = np.tile([np.std(history[..., c].numpy()) for c in range(2)], L)
    weights, bias = slow_ridge(history.flatten(1).numpy() / scale, target.flatten(1).numpy(), penalty)
    expected = (new.flatten(1).numpy() / scale) @ weights + bias
    np.testing.assert_allclose(found.flatten(1), expected, rtol=1e-6, atol=1e-7)


def test_ridge_on_all_channels_finds_what_one_channel_alone_cannot():
    """The second channel is the first of two hours before: alone, noise; together, known."""
    x = noise(402, 1)
    history, target = cut_windows(torch.cat([x[2:], x[:-2]], dim=1), 4, 2)
    forecast = fit_linear_map(history[:200], target[:200], 1e-6)(history[200:])
    assert rmse(forecast[..., 1], target[200:, :, 1]) < 1e-4
    assert rmse(forecast[..., 0], target[200:, :, 0]) > 0.9
    assert rmse(fit_ridge(history[:200], target[:200], 4)(history[200:])[..., 1], target[200:, :, 1]) > 0.9


def test_ridge_on_all_channels_learns_from_windows_that_are_whole_and_shrinks_to_the_mean():
    history, target = noise(30, 6, 2), noise(30, 3, 2, seed=1)
    holes = target.clone()
    holes[::3, 1, 1] = math.nan
    kept = torch.arange(30) % 3 > 0
    found, alone = fit_linear_map(history, holes, 2.0), fit_linear_map(history[kept], target[kept], 2.0)
    scale = history.std(dim=(0, 1), correction=0)
    torch.testing.assert_close(found(history), alone(history))
    assert fit_linear_map(history, target, 1e12)(history).allclose(target.mean(dim=0), atol=1e-6)
    # no unit matters: a channel in other units has other weights and the same forecasts
    other = fit_linear_map(history / scale, target, 2.0)
    torch.testing.assert_close(other(history / scale), fit_linear_map(history, target, 2.0)(history))
    still = history.clone()
    still[..., 1] = 7.0
    torch.testing.assert_close(
        fit_linear_map(still, target, 2.0)(still)[..., 0],
        fit_linear_map(history[..., :1], target[..., :1], 2.0)(history[..., :1])[..., 0],
    )


def test_ridge_on_all_channels_refuses_what_it_cannot_fit_or_read():
    x, y = noise(4, 6, 2), noise(4, 3, 2)
    for penalty in (0, -1, math.nan):
        with pytest.raises(ValueError, match=f"penalty={penalty}: must be above 0"):
            fit_linear_map(x, y, penalty)
    forecaster = fit_linear_map(x, y)
    for wrong in (x[:, :5], x[..., :1], noise(4, 7, 2)):
        with pytest.raises(ValueError, match=r"lags=6: must lie in|the map was fitted to \(N, 6, 2\)"):
            forecaster(wrong)
    y[:, 0, 0] = torch.tensor([math.nan, math.nan, 1, 1])
    y[:, 0, 1] = torch.tensor([1, 1, math.nan, math.nan])
    with pytest.raises(ValueError, match="no window whose target is whole"):
        fit_linear_map(x, y)


@pytest.mark.parametrize(
    "forecast",
    [
        lambda x: persistence(x, 2),
        lambda x: seasonal_naive(x, 2, 3),
        lambda x: exponential_smoothing(x, 2, 3, 0.1, 0.1),
        lambda x: fit_exponential_smoothing(x, torch.zeros(4, 2, 2), 3),
        lambda x: fit_ridge(x, torch.zeros(4, 2, 2), 3),
        fit_exponential_smoothing(noise(4, 6, 2), noise(4, 2, 2), 3),
        fit_ridge(noise(4, 6, 2), noise(4, 2, 2), 3),
        lambda x: fit_linear_map(x, torch.zeros(4, 2, 2)),
        fit_linear_map(noise(4, 6, 2), noise(4, 2, 2)),
    ],
)
def test_forecasters_refuse_histories_with_gaps_or_of_another_shape(forecast):
    for gap in (math.nan, math.inf):
        x = noise(4, 6, 2)
        x[1, 2:4, 0] = gap
        with pytest.raises(ValueError, match="2 values of the histories are not finite: fill the gaps first"):
            forecast(x)
    for shape in ((6, 2), (4, 0, 2), (0, 6, 2)):
        with pytest.raises(ValueError, match=r"histories of shape .*: must be \(N, L, C\), none of them 0"):
            forecast(torch.zeros(shape))


def test_forecasters_refuse_sizes_and_constants():
    x, y = noise(4, 6, 2), noise(4, 3, 2)
    for season in (0, 7):
        message = rf"season={season}: must lie in 1\.\.6, the length of the histories"
        with pytest.raises(ValueError, match=message):
            seasonal_naive(x, 2, season)
        with pytest.raises(ValueError, match=message):
            exponential_smoothing(x, 2, season, 0.1, 0.1)
        with pytest.raises(ValueError, match=message):
            fit_exponential_smoothing(x, y, season)
    for forecast in (
        persistence,
        lambda h, H: seasonal_naive(h, H, 2),
        lambda h, H: exponential_smoothing(h, H, 2, 0, 0),
    ):
        with pytest.raises(ValueError, match="horizon=0: must be at least 1"):
            forecast(x, 0)
    with pytest.raises(ValueError, match=r"alpha=1\.1: must lie in 0\.\.1"):
        exponential_smoothing(x, 2, 3, 1.1, 0.1)
    with pytest.raises(ValueError, match=r"gamma=tensor\(\[ 0\.5000, -0\.5000\]\): must lie in 0\.\.1"):
        exponential_smoothing(x, 2, 3, 0.1, torch.tensor([0.5, -0.5]))
    with pytest.raises(ValueError, match=r"alphas=\(0\.9,\), gammas=\(0\.2,\): no pair of them sums to at most 1"):
        fit_exponential_smoothing(x, y, 3, alphas=[0.9], gammas=[0.2])
    with pytest.raises(ValueError, match="lags=1: must be at least 2"):
        fit_ridge(x, y, 1)
    with pytest.raises(ValueError, match=r"lags=7: must lie in 1\.\.6"):
        fit_ridge(x, y, 7)
    for penalty in (0, -1, math.nan):
        with pytest.raises(ValueError, match=f"penalty={penalty}: must be above 0"):
            fit_ridge(x, y, 3, penalty)
    forecaster = fit_ridge(x, y, 4)
    with pytest.raises(ValueError, match=r"lags=4: must lie in 1\.\.3"):
        forecaster(x[:, :3])
    with pytest.raises(ValueError, match="histories of 1 channels: the map was fitted to 2"):
        forecaster(x[..., :1])


@pytest.mark.parametrize("fit", [fit_ridge, fit_exponential_smoothing])
def test_fitting_refuses_windows_that_do_not_belong_together(fit):
    x, y = noise(4, 6, 2), noise(4, 3, 2)
    for target in (y[:3], y[..., :1], y[:, :0], y[0]):
        with pytest.raises(ValueError, match=r"histories of shape \(4, 6, 2\), targets of .*: must be \(N, L, C\), \("):
            fit(x, target, 3)
    with pytest.raises(ValueError, match="channel 1: all of its target is missing"):
        fit(x, y * torch.tensor([1, math.nan]), 3)


def test_ridge_refuses_a_channel_without_a_whole_target():
    y = noise(4, 3, 2)
    y[:, 0, 1] = math.nan
    with pytest.raises(ValueError, match="channel 1: no window whose target is whole"):
        fit_ridge(noise(4, 6, 2), y, 3)


# --- tests on the past ----------------------------------------------------------------------------------------


def sums(history: torch.Tensor) -> torch.Tensor:
    """A forecast that depends on all that it is given."""
    return history.sum(dim=1, keepdim=True).expand(-1, 2, -1)


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 4), SEEDS)
def test_windows_and_targets_are_the_slow_ones(L, H, stride, seed):
    """Catches targets that reach into the next fold, histories that touch their target, a last window left out."""
    values = noise(30, 2, seed=seed)
    cuts = [10, 17, 21]
    folds = backtest(lambda past: lambda x: sums(x)[:, :1].expand(-1, H, -1), values, cuts, L, H, stride)
    assert [fold.cut for fold in folds] == cuts
    for fold, end in zip(folds, [17, 21, 30]):
        starts = [s for s in range(fold.cut, end, stride) if s + H <= end]
        assert fold.starts.tolist() == starts
        for s, forecast, target in zip(starts, fold.forecast, fold.target, strict=True):
            assert torch.equal(target, values[s : s + H])
            torch.testing.assert_close(forecast[0], values[s - L : s].sum(dim=0))


@settings(max_examples=30)
@given(st.sampled_from([math.nan, 1e30, 0.0]), st.integers(0, 1))
def test_no_fit_sees_anything_after_its_cut(spoilt, changed):
    """The future becomes another: what was fitted and forecast before stays the same, to the bit."""
    cuts, seen = [12, 20], []

    def fit(past):
        seen.append(past.clone())
        assert past.untyped_storage().nbytes() == past.numel() * past.element_size(), "a view of the whole series"
        past.zero_()  # what a fit does to its copy is its own business
        return sums

    values = noise(30, 2)
    before = backtest(fit, values, cuts, 4, 2, 1)
    other = values.clone()
    other[cuts[changed] :] = spoilt
    after = backtest(fit, other, cuts, 4, 2, 1, fill=lambda x: x.nan_to_num(7.0))
    assert torch.equal(values, noise(30, 2))
    first, second = seen[:2], seen[2:]
    assert [len(past) for past in seen] == cuts * 2
    for i in range(changed + 1):
        assert torch.equal(first[i], second[i])
        assert torch.equal(first[i], values[: cuts[i]])
    if changed:
        assert torch.equal(before[0].forecast, after[0].forecast)
        assert torch.equal(before[0].target, after[0].target)
    # the first window of the fold that was spoilt lies in the past altogether
    assert torch.equal(before[changed].forecast[0], after[changed].forecast[0])
    assert not torch.equal(before[changed].forecast, after[changed].forecast), "later ones hold what has come since"


def test_gaps_are_filled_for_histories_alone():
    values, seen, filled = noise(20, 1), [], []
    values[[8, 13]] = math.nan

    def fit(past):
        seen.append(past)
        return sums

    def fill(x):
        filled.append(len(x))
        return torch.where(x.isnan(), 100.0, x)

    first, second = backtest(fit, values, [10, 15], 4, 2, 1, fill=fill)
    assert seen[0].isnan().nonzero().tolist() == [[8, 0]], "a fit knows what is missing"
    assert torch.cat([first.target, second.target]).isnan().any()
    assert first.forecast[0, 0].item() == pytest.approx(values[[6, 7, 9]].sum().item() + 100)
    assert filled == [15, 20], "no more than the fold needs"
    with pytest.raises(ValueError, match=r"values of the histories are not finite: fill the gaps first"):
        backtest(fit, values, [10, 15], 4, 2, 1)


def test_a_model_forecasts_in_eval_mode_and_without_gradients():
    class Dropped(DLinear):
        def forward(self, history):
            return torch.nn.functional.dropout(super().forward(history), 0.5, self.training)

    model = Dropped(DLinearConfig(history=5, horizon=3, kernel=3)).train()
    values = noise(20, 2).float()
    (fold,) = backtest(lambda past: model, values, [10], 5, 3, 4)
    assert not model.training
    assert not fold.forecast.requires_grad
    torch.testing.assert_close(fold.forecast, model(torch.stack([values[5:10], values[9:14]])).detach())


def test_quantiles_are_kept_and_measured():
    values = noise(2000, 1)

    def fit(past):
        quantiles = past.quantile(torch.tensor([0.1, 0.9]).double(), dim=0).T  # (C, Q)
        return lambda history: quantiles.expand(len(history), 2, 1, 2)

    (fold,) = backtest(fit, values, [1000], 3, 2, 2)
    assert fold.forecast.shape == (500, 2, 1, 2)
    assert coverage(fold.forecast[..., 0], fold.forecast[..., 1], fold.target) == pytest.approx(0.8, abs=0.04)


def test_backtest_refuses_what_has_no_room():
    values = noise(20, 2)
    for name in ("history", "horizon", "stride"):
        with pytest.raises(ValueError, match=f"{name}=0: must be at least 1"):
            backtest(lambda past: sums, values, [10], **{"history": 4, "horizon": 2, "stride": 1, name: 0})
    with pytest.raises(ValueError, match=r"values of shape \(20,\): must be \(T, C\)"):
        backtest(lambda past: sums, values[:, 0], [10], 4, 2, 1)
    for cuts in ([], [3], [12, 10], [10, 10], [10, 11], [19], [21]):
        with pytest.raises(ValueError, match=r"cuts=\(.*\): there must be one, the first at least history=4, and at l"):
            backtest(lambda past: sums, values, cuts, 4, 2, 1)
    backtest(lambda past: sums, values, [4, 6, 18], 4, 2, 1)  # just enough
    with pytest.raises(ValueError, match=r"forecast of shape \(9, 1, 2\): must be \(9, 2, 2\), then quantiles if any"):
        backtest(lambda past: lambda x: x[:, :1], values, [10], 4, 2, 1)


# --- is it better, or was it luck? ----------------------------------------------------------------------------


@given(st.integers(2, 40), SEEDS)
def test_of_one_step_it_is_the_paired_t_test(n, seed):
    """Catches the sample correction and the degrees of freedom: with h = 1 they come to that exactly."""
    a, b = noise(n, seed=seed) + 0.2, noise(n, seed=seed + 1)
    found, expected = diebold_mariano(a, b), scipy.stats.ttest_rel(a, b)
    assert found.statistic == pytest.approx(expected.statistic, rel=1e-6, abs=1e-9)
    assert found.p == pytest.approx(expected.pvalue, rel=1e-6)


@settings(max_examples=50)
@given(st.integers(2, 6), SEEDS)
def test_of_more_steps_it_is_the_slow_one(h, seed):
    n = 60
    a, b = noise(n, seed=seed).cumsum(dim=0), noise(n, seed=seed + 1)
    d = (a - b).tolist()
    mean = sum(d) / n
    g = [sum((d[t] - mean) * (d[t - k] - mean) for t in range(k, n)) / n for k in range(h)]
    statistic = mean / math.sqrt((g[0] + 2 * sum(g[1:])) / n) * math.sqrt((n + 1 - 2 * h + h * (h - 1) / n) / n)
    found = diebold_mariano(a, b, h)
    assert found.statistic == pytest.approx(statistic)
    assert found.p == pytest.approx(2 * scipy.stats.t.cdf(-abs(statistic), n - 1))


def test_the_sign_says_who_is_better():
    a, b = noise(50).abs(), noise(50, seed=1).abs() + 2
    found, turned = diebold_mariano(a, b), diebold_mariano(b, a)
    assert found.statistic < -3, "A's losses are smaller"
    assert found.p < 0.01
    assert turned == (pytest.approx(-found.statistic), pytest.approx(found.p))


@pytest.mark.parametrize("h", [1, 4])
def test_of_equally_good_forecasts_p_is_uniform(h):
    """Catches a p of one side, and autocovariances that are left out: they then reject far too often."""
    n, runs, counted, ignored = 120, 1000, [], []
    innovations = noise(runs, n + h - 1)
    for d in innovations.unfold(1, h, 1).sum(dim=-1):  # errors h steps ahead: a moving average of h terms
        counted.append(diebold_mariano(d + 5, torch.full_like(d, 5.0), h).p)
        ignored.append(diebold_mariano(d, torch.zeros_like(d)).p)
    counted, ignored = np.array(counted), np.array(ignored)
    for level in (0.05, 0.1, 0.25, 0.5, 0.75, 0.9):
        assert (counted <= level).mean() == pytest.approx(level, abs=0.05)
    assert (counted <= 0.05).mean() < 0.09
    if h > 1:
        assert (ignored <= 0.05).mean() > 0.2


def test_the_test_refuses_losses_that_cannot_be_compared():
    a, b = noise(10), noise(10, seed=1)
    for x, y in ((a, b[:9]), (a[:, None], b[:, None]), (a, b[:1])):
        with pytest.raises(ValueError, match=r"must be \(n,\), one for each window"):
            diebold_mariano(x, y)
    for h in (0, 10):
        with pytest.raises(ValueError, match=f"horizon={h}: must be at least 1 and below 10, the number of losses"):
            diebold_mariano(a, b, h)
    with pytest.raises(ValueError, match="losses that are not finite: leave out windows without any target, in both"):
        diebold_mariano(a, b * torch.tensor([1.0] * 9 + [math.nan]))
    for same in (a, a + 0.1):  # rounding makes the differences of the latter differ
        with pytest.raises(ValueError, match=r"the variance of the mean difference is estimated as .*, and must be ab"):
            diebold_mariano(a, same)
    alternating = torch.tensor([1.0, -1.0] * 5)  # a negative covariance outweighs the variance
    with pytest.raises(ValueError, match="or there are too few for the horizon"):
        diebold_mariano(alternating, torch.zeros(10), 2)
