"""Forecasts of time series: how wrong they are, what is to be beaten, and tests on the past that do not cheat.

A forecaster is a function from histories (N, L, C) to forecasts (N, H, C); a trained model is one.

Legend: N windows, T time steps of a series, L of history, H of forecast (horizon), C channels, Q quantiles, m season.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from coursekit.evaluate.vision import precise
from coursekit.nn.losses import pinball_loss

# --- measures: a target that is NaN is missing and does not count; a forecast that is NaN makes the measure NaN -----


def mae(forecast: Tensor, target: Tensor) -> float:
    """Mean absolute error, ``mean |target - forecast|``, in the target's units.

    Args:
        forecast: any shape.
        target: the same; NaN where the value is missing.

    Raises:
        ValueError: the shapes differ, or all of the target is missing.
    """
    known = known_values(forecast, target)
    return (precise(target) - precise(forecast))[known].abs().mean().item()


def rmse(forecast: Tensor, target: Tensor) -> float:
    """Root of the mean squared error, ``sqrt(mean (target - forecast) ** 2)``, in the target's units.

    Arguments and errors as for `mae`.
    """
    known = known_values(forecast, target)
    return math.sqrt((precise(target) - precise(forecast))[known].square().mean().item())


def mase(forecast: Tensor, target: Tensor, train: Tensor, season: int) -> float:
    """Mean absolute scaled error: 1 is as wrong as, in training, the value of one season before was.

    For each channel ``mean |target - forecast| / mean |train_t - train_{t-m}|``, then the mean over channels. It has no
    units, so that channels in different ones can be averaged; the scale is of the training part alone.

    Args:
        forecast: (..., C).
        target: the same; NaN where the value is missing.
        train: the series before, (T, C), in the same units; pairs with a NaN do not count.
        season: m, time steps; 1 compares with the value just before.

    Raises:
        ValueError: shapes that do not belong together, a channel without any target, or one that in training has no
            pair of values a season apart or never differs from itself a season before.

    Source: Hyndman and Koehler (2006), *Another look at measures of forecast accuracy*, International Journal of
    Forecasting 22(4), section 3; the seasonal scale: Hyndman and Athanasopoulos (2021), section 5.8.
    """
    known = known_values(forecast, target)
    if train.dim() != 2 or train.shape[1:] != target.shape[-1:]:
        raise ValueError(
            f"train of shape {tuple(train.shape)}: must be (T, C) with the C={target.shape[-1]} channels of the target"
        )
    if not 1 <= season < len(train):
        raise ValueError(f"season={season}: must lie in 1..{len(train) - 1}, below the length of the training part")
    train = precise(train)
    before = (train[season:] - train[:-season]).abs()  # (T - m, C)
    wrong = (precise(target) - precise(forecast)).abs().flatten(0, -2)  # (..., C) -> (n, C)
    errors, scale = mean_of(wrong, known.flatten(0, -2)), mean_of(before, ~before.isnan())  # (C,) each, NaN of none
    for c in range(len(scale)):
        if not known[..., c].any():
            raise ValueError(f"channel {c}: all of its target is missing")
        if not scale[c] > 0:
            raise ValueError(
                f"channel {c}: in the training part |x_t - x_(t-{season})| is {scale[c]:.3g} on the average, and must "
                "be above 0 to divide by it"
            )
    return (errors / scale).mean().item()


def pinball(forecast: Tensor, target: Tensor, levels: Sequence[float]) -> float:
    """The mean of ``pinball_loss`` over all quantiles and values, in the target's units.

    Args:
        forecast: (..., Q), a quantile for each level.
        target: (...); NaN where the value is missing.
        levels: the Q levels, each between 0 and 1.

    Raises:
        ValueError: as ``pinball_loss``, or all of the target is missing.
    """
    losses = pinball_loss(precise(forecast), precise(target), levels)  # (..., Q)
    return losses[known_values(forecast[..., 0], target)].mean().item()


def coverage(lower: Tensor, upper: Tensor, target: Tensor) -> float:
    """The share of the values that lie in ``lower..upper``, the ends among them.

    Between quantiles 0.1 and 0.9 that are right it is 0.8, but for chance.

    Args:
        lower, upper, target: all of one shape; NaN in the target where the value is missing.

    Raises:
        ValueError: the shapes differ, all of the target is missing, or a lower end lies above its upper one or is NaN.
    """
    known_values(lower, target)
    known = known_values(upper, target)
    if not (lower <= upper).all():
        raise ValueError(f"{int((~(lower <= upper)).sum())} intervals have a lower end above the upper one, or NaN")
    return ((lower <= target) & (target <= upper))[known].float().mean().item()


def known_values(forecast: Tensor, target: Tensor) -> Tensor:
    """Where the target is not missing: boolean, of its shape."""
    if forecast.shape != target.shape:
        raise ValueError(f"forecast of shape {tuple(forecast.shape)}, target of {tuple(target.shape)}: must be equal")
    known = ~target.isnan()
    if not known.any():
        raise ValueError(f"all of the target's {target.numel()} values are missing: there is nothing to compare with")
    return known


def mean_of(x: Tensor, known: Tensor) -> Tensor:
    """The mean over the known rows of x (n, C), NaN for a channel without any: (C,)."""
    # nanmean would leave out the NaN of a broken forecast too
    return torch.where(known, x, 0.0).sum(dim=0) / known.sum(dim=0)


# --- what is to be beaten -------------------------------------------------------------------------------------


def persistence(history: Tensor, horizon: int) -> Tensor:
    """The last value, again and again: (N, L, C) -> (N, H, C).

    Raises:
        ValueError: the history has another shape or a value that is not finite, or the horizon is below 1.
    """
    return seasonal_naive(history, horizon, season=1)


def seasonal_naive(history: Tensor, horizon: int, season: int) -> Tensor:
    """The last whole season, as often as the horizon needs it: ``x_{t + h - m ceil(h / m)}`` for h = 1..H.

    Args:
        history: (N, L, C).
        horizon: H.
        season: m, time steps, at most L.

    Returns:
        (N, H, C).

    Raises:
        ValueError: the history has another shape or a value that is not finite, or the season is not in 1..L, or the
            horizon is below 1.
    """
    check_windows(history, "season", season)
    check_horizon(horizon)
    last = history[:, history.shape[1] - season :]  # (N, m, C)
    return last[:, torch.arange(horizon, device=history.device) % season]


def exponential_smoothing(
    history: Tensor, horizon: int, season: int, alpha: float | Tensor, gamma: float | Tensor
) -> Tensor:
    """Exponential smoothing with a level and an additive season: Holt and Winters' method without a trend.

    Each value is foretold, ``e_t = x_t - (l_{t-1} + s_{t-m})``, and what was wrong corrects level and season:

        l_t = l_{t-1} + alpha e_t = alpha (x_t - s_{t-m}) + (1 - alpha) l_{t-1}
        s_t = s_{t-m} + gamma e_t = gamma (x_t - l_{t-1}) + (1 - gamma) s_{t-m}

    The forecast is the last level plus the last season's state. The first season of the history is where it starts:
    its mean is the level, what remains the season. ``alpha=0, gamma=1`` is `seasonal_naive`.

    Args:
        history: (N, L, C).
        horizon: H.
        season: m, time steps, at most L; 1 is a level alone if ``gamma`` is 0.
        alpha, gamma: from 0 to 1, for all channels or for each, (C,).

    Returns:
        (N, H, C).

    Raises:
        ValueError: as `seasonal_naive`, or a constant is not in 0..1.

    Source: Winters (1960), *Forecasting sales by exponentially weighted moving averages*, Management Science 6(3), as
    in Hyndman and Athanasopoulos (2021), *Forecasting: principles and practice*, section 8.3; the start is ours.
    """
    check_windows(history, "season", season)
    check_horizon(horizon)
    for name, constant in (("alpha", alpha), ("gamma", gamma)):
        given = torch.as_tensor(constant)
        if not ((given >= 0) & (given <= 1)).all():
            raise ValueError(f"{name}={constant}: must lie in 0..1")
    x = precise(history).movedim(1, 0)  # (L, N, C)
    level = x[:season].mean(dim=0)  # (N, C)
    states = list((x[:season] - level).unbind())  # (N, C) for each place in the season
    for t in range(season, len(x)):
        error = x[t] - level - states[t % season]
        level = level + alpha * error
        states[t % season] = states[t % season] + gamma * error
    return torch.stack([level + states[(len(x) + h) % season] for h in range(horizon)], dim=1)


def fit_exponential_smoothing(
    history: Tensor,
    target: Tensor,
    season: int,
    alphas: Sequence[float] = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8),
    gammas: Sequence[float] = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.0),
) -> Callable[[Tensor], Tensor]:
    """`exponential_smoothing` with the constants that are best on training windows, for each channel by itself.

    All pairs of the grid with ``alpha + gamma <= 1`` are tried; the best has the smallest mean absolute error of the
    whole forecast, as it is measured in the end, not of the next step alone. Of equally good ones it is the first.

    Args:
        history: (N, L, C); some hundred windows that are spread over the training part do. As those to be forecast,
            they should begin at all places of the season: not every 24 hours.
        target: what followed, (N, H, C); NaN where it is missing.
        season: m, time steps, at most L.
        alphas, gammas: the grid.

    Returns:
        The forecaster: histories (n, L', C) -> (n, H, C). Its ``keywords`` hold ``alpha`` and ``gamma``, (C,) each.

    Raises:
        ValueError: as `exponential_smoothing`, windows that do not belong together, a channel without any target, or no
            pair in the grid.
    """
    known = check_training(history, target, "season", season)
    pairs = [(a, g) for a in alphas for g in gammas if a + g <= 1]
    if not pairs:
        raise ValueError(f"alphas={tuple(alphas)}, gammas={tuple(gammas)}: no pair of them sums to at most 1")
    horizon, errors = target.shape[1], []
    for alpha, gamma in pairs:
        wrong = (precise(target) - exponential_smoothing(history, horizon, season, alpha, gamma)).abs()
        errors.append(mean_of(wrong.flatten(0, 1), known.flatten(0, 1)))  # (C,)
    best = torch.stack(errors).argmin(dim=0)  # (C,)
    alpha, gamma = errors[0].new_tensor(pairs)[best].unbind(dim=-1)
    return partial(exponential_smoothing, horizon=horizon, season=season, alpha=alpha, gamma=gamma)


def lagged(history: Tensor, weights: Tensor, bias: Tensor) -> Tensor:
    """``x_L + W (x_{L-p+1} - x_L, ..., x_{L-1} - x_L) + b`` for each channel, x the history and p the number of lags.

    Args:
        history: (N, L, C).
        weights: W, (C, H, p - 1), the oldest value first.
        bias: b, (C, H).

    Returns:
        (N, H, C).

    Raises:
        ValueError: the history has another shape, fewer than p steps, other channels, or a value that is not finite.
    """
    check_windows(history, "lags", weights.shape[2] + 1)
    if history.shape[2] != len(weights):
        raise ValueError(f"histories of {history.shape[2]} channels: the map was fitted to {len(weights)}")
    x = precise(history)
    last = x[:, -1:]  # (N, 1, C)
    lags = x[:, x.shape[1] - 1 - weights.shape[2] : -1] - last  # (N, p - 1, C)
    return torch.einsum("npc,chp->nhc", lags, weights.to(x)) + bias.to(x).T + last


def fit_ridge(history: Tensor, target: Tensor, lags: int, penalty: float = 1.0) -> Callable[[Tensor], Tensor]:
    """Ridge regression of the whole forecast on the last ``lags`` values, all less the last one: a map per channel.

    For each channel by itself, with x the lags and y the target, both less the last value, so that no level matters,
    and divided by the root mean square of x over the windows, so that no unit does:
    ``minimise sum over windows of |y - W x - b| ** 2 + penalty |W| ** 2``; b is not penalised.
    A map that all channels shared would be that of the channel with the largest numbers.

    Args:
        history: (N, L, C). As those to be forecast, they should begin at all places of the season: from windows every
            24 hours the map learns what is right at one hour of the day, and wrong at all others.
        target: what followed, (N, H, C). A channel learns from the windows in which nothing of its target is missing
            (NaN).
        lags: at least 2, at most L.
        penalty: above 0. Each lag then has a sum of squares of about N: 1 is little.

    Returns:
        The forecaster: histories (n, L', C) -> (n, H, C), L' at least ``lags``. Its ``keywords`` hold ``weights``
        (C, H, lags - 1) and ``bias`` (C, H).

    Raises:
        ValueError: windows that do not belong together, ``lags`` or ``penalty`` out of range, or a channel with no
            window whose target is whole.

    Source: Hoerl and Kennard (1970), *Ridge regression*, Technometrics 12(1); fitted by scikit-learn.
    """
    from sklearn.linear_model import Ridge

    if lags < 2:
        raise ValueError(f"lags={lags}: must be at least 2, since the last value is taken away from the others")
    if not penalty > 0:
        raise ValueError(f"penalty={penalty}: must be above 0")
    whole = check_training(history, target, "lags", lags).all(dim=1)  # (N, C)
    x, y = (part.detach().cpu().double() for part in (history[:, history.shape[1] - lags :], target))
    x, y = x[:, :-1] - x[:, -1:], y - x[:, -1:]  # (N, lags - 1, C), (N, H, C)
    weights, bias = [], []
    for c, chosen in enumerate(whole.T.cpu()):
        if not chosen.any():
            raise ValueError(f"channel {c}: no window whose target is whole")
        inputs, outputs = x[chosen, :, c], y[chosen, :, c]
        scale = inputs.square().mean().sqrt().item() or 1.0  # a channel that never changes has nothing to divide by
        ridge = Ridge(alpha=penalty).fit((inputs / scale).numpy(), (outputs / scale).numpy())
        weights.append(torch.from_numpy(ridge.coef_).reshape(-1, lags - 1))  # (H, lags - 1); without H if that is 1
        bias.append(torch.as_tensor(ridge.intercept_, dtype=torch.float64).reshape(-1) * scale)
    return partial(lagged, weights=torch.stack(weights), bias=torch.stack(bias))


def linear_map(history: Tensor, weights: Tensor, bias: Tensor) -> Tensor:
    """``W x + b`` with x all numbers of a history.

    Args:
        history: (N, L, C).
        weights: W, (H, C, L, C): of output hour and channel, and of input hour and channel.
        bias: b, (H, C).

    Returns:
        (N, H, C).

    Raises:
        ValueError: the history has another shape than the weights, or a value that is not finite.
    """
    check_windows(history, "lags", weights.shape[2])
    if history.shape[1:] != weights.shape[2:]:
        L, C = weights.shape[2:]
        raise ValueError(f"histories of shape {tuple(history.shape)}: the map was fitted to (N, {L}, {C})")
    x = precise(history)
    return torch.tensordot(x, weights.to(x), dims=([1, 2], [2, 3])) + bias.to(x)


def fit_linear_map(history: Tensor, target: Tensor, penalty: float = 1.0) -> Callable[[Tensor], Tensor]:
    """Ordinary ridge regression of every channel's forecast on every number of the history: all channels, all hours.

    ``minimise sum over windows of |y - W x - b| ** 2 + penalty |W| ** 2``, b not penalised, with x the L C numbers of a
    history, each channel divided by its standard deviation over all windows and hours, so that no unit matters.
    Other than in `fit_ridge` no last value is taken away: with a large penalty the forecast is the mean of the targets,
    and not "as it was". With one channel it is the textbook's ridge regression of a series on its own past.

    Args:
        history: (N, L, C).
        target: what followed, (N, H, C). Windows with a gap (NaN) anywhere in the target are left out.
        penalty: above 0. Each input then has a sum of squares of about N: 1 is little.

    Returns:
        The forecaster: histories (n, L, C) -> (n, H, C). Its ``keywords`` hold ``weights`` (H, C, L, C) and ``bias``
        (H, C), in the units of the data.

    Raises:
        ValueError: windows that do not belong together, ``penalty`` out of range, or no window whose target is whole.

    Source: Hoerl and Kennard (1970), *Ridge regression*, Technometrics 12(1); fitted by scikit-learn.
    """
    from sklearn.linear_model import Ridge

    if not penalty > 0:
        raise ValueError(f"penalty={penalty}: must be above 0")
    whole = check_training(history, target, "lags", 1).flatten(1).all(dim=1)
    if not whole.any():
        raise ValueError("no window whose target is whole")
    x, y = (part[whole].detach().cpu().double() for part in (history, target))
    scale = x.std(dim=(0, 1), correction=0)
    scale = torch.where(scale > 0, scale, 1.0)  # a channel that never changes has nothing to divide by
    ridge = Ridge(alpha=penalty).fit((x / scale).flatten(1).numpy(), y.flatten(1).numpy())
    weights = torch.from_numpy(ridge.coef_).reshape(*y.shape[1:], *x.shape[1:]) / scale
    return partial(linear_map, weights=weights, bias=torch.as_tensor(ridge.intercept_).reshape(y.shape[1:]))


def check_windows(history: Tensor, name: str, least: int) -> None:
    """Refuse histories that are not (N, L, C), shorter than ``least``, or with gaps; and a ``least`` below 1."""
    if history.dim() != 3 or not history.numel():
        raise ValueError(f"histories of shape {tuple(history.shape)}: must be (N, L, C), none of them 0")
    if not 1 <= least <= history.shape[1]:
        raise ValueError(f"{name}={least}: must lie in 1..{history.shape[1]}, the length of the histories")
    if not history.isfinite().all():
        bad = int((~history.isfinite()).sum())
        raise ValueError(f"{bad} values of the histories are not finite: fill the gaps first, from what came before")


def check_horizon(horizon: int) -> None:
    if horizon < 1:
        raise ValueError(f"horizon={horizon}: must be at least 1")


def check_training(history: Tensor, target: Tensor, name: str, least: int) -> Tensor:
    """Refuse windows that do not belong together or leave a channel without target; where that is known, (N, H, C)."""
    check_windows(history, name, least)
    if target.dim() != 3 or not target.numel() or target.shape[::2] != history.shape[::2]:
        raise ValueError(
            f"histories of shape {tuple(history.shape)}, targets of {tuple(target.shape)}: must be (N, L, C), (N, H, C)"
        )
    known = ~target.isnan()
    for c, any_known in enumerate(known.flatten(0, 1).any(dim=0).tolist()):
        if not any_known:
            raise ValueError(f"channel {c}: all of its target is missing")
    return known


# --- tests on the past ----------------------------------------------------------------------------------------


class Fold(NamedTuple):
    """What was forecast from one cut to the next by what was fitted before it.

    Attributes:
        cut: the first time step that the fit did not see.
        starts: the time step at which each target begins, (N,).
        forecast: (N, H, C), or with quantiles (N, H, C, Q).
        target: (N, H, C), NaN where the value is missing.
    """

    cut: int
    starts: Tensor
    forecast: Tensor
    target: Tensor


def backtest(
    fit: Callable[[Tensor], Callable[[Tensor], Tensor]],
    values: Tensor,
    cuts: Sequence[int],
    history: int,
    horizon: int,
    stride: int,
    fill: Callable[[Tensor], Tensor] | None = None,
) -> list[Fold]:
    """What a method would have forecast, had it been fitted anew at each cut, on nothing but the past.

    At each cut ``fit(values[:cut])`` gives a forecaster; it forecasts all windows whose targets lie in
    ``cut..next cut - 1`` (the last: up to T - 1). Their histories may reach back before the cut, and with later windows
    hold what has come since, as in use. ``fit`` gets a copy: there is no way from it to the rest.

    Args:
        fit: (t, C) -> forecaster of histories (N, L, C), on the same device. A model is put into eval mode. It gives
            (N, H, C), or with quantiles (N, H, C, Q).
        values: the series, (T, C), NaN where a value is missing; ``fit`` gets it like that.
        cuts: rising, each at least ``history``.
        history, horizon: L and H, time steps.
        stride: time steps from one window to the next.
        fill: fills the gaps of (t, C) for the histories, each from what came before it
            (``coursekit.data.series.fill_forward``); None if there are none.

    Returns:
        A fold for each cut.

    Raises:
        ValueError: sizes below 1, cuts that do not rise or leave no room for a history before or a target behind, gaps
            in the histories, or a forecast of another shape.

    Source: Tashman (2000), *Out-of-sample tests of forecasting accuracy*, International Journal of Forecasting 16(4).
    """
    for name, size in (("history", history), ("horizon", horizon), ("stride", stride)):
        if size < 1:
            raise ValueError(f"{name}={size}: must be at least 1")
    if values.dim() != 2:
        raise ValueError(f"values of shape {tuple(values.shape)}: must be (T, C)")
    ends = [*cuts[1:], len(values)]
    if not len(cuts) or cuts[0] < history or any(end - cut < horizon for cut, end in zip(cuts, ends)):
        raise ValueError(
            f"cuts={tuple(cuts)}: there must be one, the first at least history={history}, and at least "
            f"horizon={horizon} time steps from each to the next and from the last to the end, {len(values)}"
        )
    folds = []
    for cut, end in zip(cuts, ends):
        forecaster = fit(values[:cut].clone())
        if isinstance(forecaster, nn.Module):
            forecaster.eval()
        starts = torch.arange(cut, end - horizon + 1, stride)
        past = values[:end].clone() if fill is None else fill(values[:end].clone())
        before = torch.stack([past[start - history : start] for start in starts.tolist()])  # (N, L, C)
        target = torch.stack([values[start : start + horizon] for start in starts.tolist()])  # (N, H, C)
        check_windows(before, "history", history)
        with torch.no_grad():
            forecast = forecaster(before)
        if forecast.shape[:3] != target.shape:
            raise ValueError(
                f"forecast of shape {tuple(forecast.shape)}: must be {tuple(target.shape)}, then quantiles if any"
            )
        folds.append(Fold(cut, starts, forecast, target))
    return folds


class DieboldMariano(NamedTuple):
    """Whether one forecast is better than another, or just had luck.

    Attributes:
        statistic: below 0 where A's losses are smaller.
        p: how often a statistic at least as far from 0 comes up where both are equally good on the average.
    """

    statistic: float
    p: float


def diebold_mariano(losses_a: Tensor, losses_b: Tensor, horizon: int = 1) -> DieboldMariano:
    """Are two forecasts of the same values equally good? A paired test, two-sided, on the differences of their losses.

    With ``d_t = a_t - b_t`` for t = 1..n, its mean ``D`` and autocovariances
    ``g_k = sum over t of (d_t - D) (d_{t-k} - D) / n``, the statistic is
    ``D / sqrt((g_0 + 2 (g_1 + ... + g_{h-1})) / n)``, times ``sqrt((n + 1 - 2 h + h (h - 1) / n) / n)`` for small
    samples, and compared with Student's t with n - 1 degrees of freedom. For h = 1 it is the paired t-test.

    Args:
        losses_a, losses_b: of the same windows in order of time, (n,), such as the mean absolute error of each.
        horizon: h: forecasts h steps ahead, one made at every step, have errors in common for h - 1 steps. In steps of
            the losses: of windows of H hours every ``stride`` hours it is ``ceil(H / stride)``.

    Raises:
        ValueError: losses that are not finite or do not pair, a horizon that is not in 1..n-1, or a variance of the
            mean that is estimated as 0 or less: of equal losses, or by chance with a large horizon.

    Source: Diebold and Mariano (1995), *Comparing predictive accuracy*, Journal of Business & Economic Statistics
    13(3), section 1.1; Harvey, Leybourne and Newbold (1997), *Testing the equality of prediction mean squared errors*,
    International Journal of Forecasting 13(2), section 2.
    """
    from scipy.stats import t as student

    if losses_a.dim() != 1 or losses_a.shape != losses_b.shape:
        raise ValueError(
            f"losses of shape {tuple(losses_a.shape)} and {tuple(losses_b.shape)}: must be (n,), one for each window"
        )
    n = len(losses_a)
    if not 1 <= horizon < n:
        raise ValueError(f"horizon={horizon}: must be at least 1 and below {n}, the number of losses")
    a, b = (losses.detach().cpu().double() for losses in (losses_a, losses_b))
    if not (a.isfinite() & b.isfinite()).all():
        raise ValueError("losses that are not finite: leave out windows without any target, in both alike")
    d = a - b
    mean, rest = d.mean(), d - d.mean()
    covariances = [torch.dot(rest[k:], rest[: n - k]) / n for k in range(horizon)]
    variance = (covariances[0] + 2 * sum(covariances[1:])) / n
    # what rounding leaves of differences that are all the same lies far below
    if not variance > 1e-20 * (a.square().mean() + b.square().mean()):
        raise ValueError(
            f"the variance of the mean difference is estimated as {variance:.3g}, and must be above 0: the losses "
            "differ by the same everywhere, or there are too few for the horizon"
        )
    small_sample = math.sqrt((n + 1 - 2 * horizon + horizon * (horizon - 1) / n) / n)
    statistic = (mean / variance.sqrt()).item() * small_sample
    return DieboldMariano(statistic, float(2 * student.sf(abs(statistic), n - 1)))
