"""Time series: an invented weather station whose best possible forecast is known, real share prices, and windows.

A station measures three quantities every hour. Each is a level with a trend, a yearly and a daily season,
autocorrelated noise, and what the weather does to it: one of three regimes rules until another takes over, by lot.
Some hours are missing. Since all of this is written down, so is the forecast with the smallest expected squared error.

Share prices are those that come with Matplotlib.

Legend: T hours, C quantities (channels), N windows, L hours of history, H hours of horizon, R regimes.
"""

import csv
import math
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

DAY, YEAR = 24, 8766  # hours
QUANTITIES = ("air", "soil", "pressure")
UNITS = ("°C", "°C", "hPa")
REGIMES = ("clear", "cloudy", "stormy")
STAY = 1 - 1 / 72  # a regime rules for three days on the average


@dataclass(frozen=True)
class Climate:
    """What rules a station; one number for each of the C quantities, or R of them.

    Hour t of a station in regime r: ``level + trend t / YEAR + yearly cos(2 pi (t - coldest) / YEAR - pi)
    + swing_r daily cos(2 pi (t - warmest) / period) + offset_r + n_t``, ``n_t = rho n_{t-1} + sigma rough_r e_t`` with
    ``e_t`` from N(0, 1).

    Attributes:
        level, trend, yearly, daily: in the quantity's unit (the trend in a year).
        coldest, warmest, period: hours.
        swing: of the daily season, (R, C).
        offset: in the quantity's unit, (R, C).
        rough: of the noise, (R, C).
        rho, sigma: of the noise; sigma in the quantity's unit.
    """

    level: Tensor
    trend: Tensor
    yearly: Tensor
    coldest: Tensor
    daily: Tensor
    warmest: Tensor
    period: Tensor
    swing: Tensor
    offset: Tensor
    rough: Tensor
    rho: Tensor
    sigma: Tensor


class Station(NamedTuple):
    """What a station has measured, and what nobody could: the truth behind it.

    Attributes:
        values: (T, C), NaN where an hour is missing.
        whole: the same without gaps.
        regimes: the weather, 0..R-1, (T,).
        noise: ``n_t``, (T, C).
        climate: its rules.
    """

    values: Tensor
    whole: Tensor
    regimes: Tensor
    noise: Tensor
    climate: Climate


class Windows(NamedTuple):
    """Histories and what followed them.

    Attributes:
        history: (N, L, C); a missing value is the last one known.
        target: (N, H, C); NaN where it is missing.
        starts: the hour at which each target begins, (N,).
    """

    history: Tensor
    target: Tensor
    starts: Tensor


class Prices(NamedTuple):
    """Monthly prices of shares and indices.

    Attributes:
        months: T of them, as ``"1990-01"``.
        names: C of them.
        values: in dollars (indices in points), (T, C); NaN before a share was traded.
    """

    months: tuple[str, ...]
    names: tuple[str, ...]
    values: Tensor


def climate(seed: int = 0) -> Climate:
    """The rules of a station: 0 lies in the middle of what is possible, each other number is another place."""
    generator = torch.Generator().manual_seed(seed)
    lot = (lambda low, high: low + (high - low) * torch.rand(3, generator=generator)) if seed else middle
    air, soil, pressure = lot(0.8, 1.25).tolist()
    shift = lot(-2, 2).tolist()
    return Climate(
        level=torch.tensor([10.0, 11.0, 1013.0]) + lot(-4, 4),
        trend=torch.tensor([0.3, 0.2, 0.0]),
        yearly=torch.tensor([8.0 * air, 7.0 * soil, 1.0]),
        coldest=torch.tensor([480.0, 960.0, 480.0]),
        daily=torch.tensor([4.5 * air, 1.2 * soil, 0.8 * pressure]),
        warmest=torch.tensor([15.0, 18.0, 10.0]) + shift[0],
        period=torch.tensor([24.0, 24.0, 12.0]),
        swing=torch.tensor([[1.4, 1.4, 1.0], [0.5, 0.5, 1.0], [0.8, 0.8, 1.0]]),
        offset=torch.tensor([[0.5, 0.3, 4.0], [0.0, 0.0, 0.0], [-1.0, -0.5, -5.0]]) * torch.tensor([1, 1, pressure]),
        rough=torch.tensor([[0.7, 0.7, 0.7], [1.0, 1.0, 1.0], [1.8, 1.8, 1.8]]),
        rho=torch.tensor([0.95, 0.98, 0.98]),
        sigma=torch.tensor([0.45, 0.12, 0.5]) * lot(0.8, 1.25),
    )


def middle(low: float, high: float) -> Tensor:
    return torch.full((3,), (low + high) / 2 if low < 0 else 1.0)


def station(years: float = 4.0, seed: int = 0, missing: float = 0.02) -> Station:
    """Hours that a station has measured, from the first of January on.

    Args:
        years: how long; at least a day.
        seed: of the place (see `climate`) and of its weather.
        missing: share of the hours in which it fails, each time for 1 to 12 hours; all quantities at once.
    """
    T = round(years * YEAR)
    if T < DAY:
        raise ValueError(f"years={years}: at least {DAY / YEAR:.4f}, one day")
    if not 0 <= missing < 0.5:
        raise ValueError(f"missing={missing}: a share below 0.5")
    generator = torch.Generator().manual_seed(1_000_003 + seed)
    rules = climate(seed)
    regimes = draw_regimes(1, T, generator)
    whole, noise = (x[0] for x in measured(rules, regimes, torch.zeros(1), generator))
    gone = torch.rand(T, generator=generator) < missing / 6.5  # the mean length of a gap
    lengths = torch.randint(1, 13, (T,), generator=generator)
    gaps = torch.zeros(T + 13, dtype=torch.int64)
    for begin in gone.nonzero()[:, 0].tolist():
        gaps[begin : begin + int(lengths[begin])] = 1
    lost = gaps[:T].bool()
    lost[0] = False  # nothing to carry forward before it
    return Station(whole.masked_fill(lost[:, None], math.nan), whole, regimes[0], noise, rules)


def draw_regimes(n: int, length: int, generator: torch.Generator) -> Tensor:
    """n Markov chains of regimes, (n, length): the next hour has another with odds 1 - ``STAY``."""
    R = len(REGIMES)
    first = torch.randint(R, (n, 1), generator=generator)
    changes = torch.rand(n, length - 1, generator=generator) >= STAY
    steps = torch.randint(1, R, (n, length - 1), generator=generator) * changes  # how far on in the circle of regimes
    return torch.cat([first, first + steps.cumsum(dim=1)], dim=1) % R


def measured(rules: Climate, regimes: Tensor, begins: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """What n stations measure in given weather, and the noise in it: (n, T, C) each.

    Args:
        regimes: (n, T).
        begins: the hour of the year at which each begins, (n,).
    """
    n, T = regimes.shape
    innovations = torch.randn(n, T, len(QUANTITIES), generator=generator) * rules.sigma * rules.rough[regimes]
    noise = torch.empty_like(innovations)
    # before the first hour as wide as it is in the long run
    before = torch.randn(n, len(QUANTITIES), generator=generator) * rules.sigma * rules.rough[regimes[:, 0]]
    state = before / (1 - rules.rho**2).sqrt()
    for t in range(T):
        noise[:, t] = state = rules.rho * state + innovations[:, t]
    hours = begins[:, None] + torch.arange(T)  # (n, T)
    return seasons(rules, hours, rules.swing[regimes]) + rules.offset[regimes] + noise, noise


def seasons(rules: Climate, hours: Tensor, swing: Tensor) -> Tensor:
    """Level, trend, yearly and daily season at ``hours`` (...), the daily one ``swing`` (..., C) times as large."""
    t = hours.double()[..., None]
    turn = 2 * math.pi
    yearly = -rules.yearly * torch.cos(turn * (t - rules.coldest) / YEAR)
    daily = rules.daily * torch.cos(turn * (t - rules.warmest) / rules.period)
    return (rules.level + rules.trend * t / YEAR + yearly + swing * daily).float()


def odds_ahead(horizon: int) -> Tensor:
    """``P^h`` for h = 1..horizon, (horizon, R, R): the odds of each regime h hours after each regime."""
    R = len(REGIMES)
    P = torch.full((R, R), (1 - STAY) / (R - 1), dtype=torch.float64)
    P.fill_diagonal_(STAY)
    return torch.stack([torch.linalg.matrix_power(P, h) for h in range(1, horizon + 1)])


def best_forecast(known: Station, starts: Tensor, horizon: int) -> Tensor:
    """The mean of what can follow, for one who knows the rules, the weather and the noise of the hour before.

    ``E[x_{t+h}] = seasons + sum over r of P^h[r_t, r] (swing_r daily season + offset_r) + rho^h n_t``, t the last hour
    before the start: no forecast from the past has a smaller expected squared error.

    Args:
        starts: hours at which a forecast begins, at least 1, (N,).
        horizon: H.

    Returns:
        (N, H, C).
    """
    if len(starts) and (int(starts.min()) < 1 or int(starts.max()) > len(known.whole)):
        raise ValueError(f"starts: must lie in 1..{len(known.whole)}, since the hour before is looked at")
    rules, h = known.climate, torch.arange(1, horizon + 1)
    odds = odds_ahead(horizon)[:, known.regimes[starts - 1]].transpose(0, 1).float()  # (H, N, R) -> (N, H, R)
    hours = starts[:, None] + h - 1  # (N, H)
    fading = rules.rho ** h[:, None] * known.noise[starts - 1][:, None]  # (H, C) * (N, 1, C)
    return seasons(rules, hours, odds @ rules.swing) + odds @ rules.offset + fading


def possible_futures(known: Station, starts: Tensor, horizon: int, n: int, generator: torch.Generator) -> Tensor:
    """n futures for each start, drawn by one who knows the rules, the weather and the noise of the hour before.

    Their mean is `best_forecast` but for chance; their median is the forecast with the smallest expected absolute
    error, and their quantiles those with the smallest expected pinball loss.

    Args:
        starts: hours at which a future begins, at least 1, (N,).
        horizon: H.

    Returns:
        (N, n, H, C).
    """
    if len(starts) and (int(starts.min()) < 1 or int(starts.max()) > len(known.whole)):
        raise ValueError(f"starts: must lie in 1..{len(known.whole)}, since the hour before is looked at")
    rules, before = known.climate, starts - 1
    paths = draw_regimes(len(starts) * n, horizon + 1, generator).unflatten(0, (-1, n))  # (N, n, 1 + H)
    # no regime is special, so that a chain that is turned on to begin with the known weather is as likely
    weather = ((paths - paths[..., :1] + known.regimes[before][:, None, None]) % len(REGIMES))[..., 1:]
    noise = torch.randn(*weather.shape, len(QUANTITIES), generator=generator) * rules.sigma * rules.rough[weather]
    state = known.noise[before][:, None]  # (N, 1, C)
    for h in range(horizon):
        noise[:, :, h] = state = rules.rho * state + noise[:, :, h]
    hours = starts[:, None] + torch.arange(horizon)  # (N, H)
    still = seasons(rules, hours, torch.zeros(len(QUANTITIES)))
    daily = seasons(rules, hours, torch.ones(len(QUANTITIES))) - still
    return still[:, None] + rules.swing[weather] * daily[:, None] + rules.offset[weather] + noise


def weather_windows(n: int, length: int = 96, seed: int = 0) -> dict[str, Tensor]:
    """Stretches of one weather each, in as many places: ``history`` (n, length, C) and ``labels`` (n,), the regime.

    No place, level or time of year tells the regime: these are drawn by lot. What does are the size of the daily
    season, the roughness of the noise, and for the pressure a little the level.
    """
    if n < 1 or length < 1:
        raise ValueError(f"n={n}, length={length}: both must be at least 1")
    generator = torch.Generator().manual_seed(2_000_003 + seed)
    labels = torch.randint(len(REGIMES), (n,), generator=generator)
    begins = torch.randint(YEAR, (n,), generator=generator)
    x, _ = measured(climate(), labels[:, None].expand(n, length), begins, generator)
    return {"history": x + 10 * torch.randn(n, 1, len(QUANTITIES), generator=generator), "labels": labels}


def fill_forward(values: Tensor) -> Tensor:
    """Each NaN of ``values`` (T, C) becomes the last number before it: nothing is taken from the future.

    Raises:
        ValueError: the first row has a NaN.
    """
    there = ~values.isnan()
    if not there[0].all():
        raise ValueError("the first row has a missing value, and nothing stands before it: cut such rows off")
    rows = torch.arange(len(values))[:, None] * there  # the row itself, or 0
    return values.gather(0, rows.cummax(dim=0).values)


def windows(
    values: Tensor, history: int, horizon: int, begin: int | None = None, end: int | None = None, stride: int = 1
) -> Windows:
    """All windows whose targets lie in ``begin`` to ``end - 1``; histories may reach back before ``begin``.

    So a split by time is two calls: ``windows(values, L, H, end=cut)`` to learn from, which holds nothing from the cut
    on, and ``windows(values, L, H, begin=cut)`` to be asked, whose histories are past by then.

    Args:
        values: (T, C), NaN where they are missing; the first row must be there.
        history, horizon: L and H.
        begin: by default the first hour that has a whole history.
        end: by default T.
        stride: hours from one window to the next.

    Raises:
        ValueError: no window fits, or ``begin`` leaves no history.
    """
    T = len(values)
    begin, end = history if begin is None else begin, T if end is None else end
    if min(history, horizon, stride) < 1:
        raise ValueError(f"history={history}, horizon={horizon}, stride={stride}: must be at least 1")
    if begin < history:
        raise ValueError(f"begin={begin}: a history of {history} hours does not fit before it")
    if not begin + horizon <= end <= T:
        raise ValueError(f"begin={begin}, end={end}: no target of {horizon} hours fits between them (T={T})")
    starts = torch.arange(begin, end - horizon + 1, stride)
    filled = fill_forward(values[:end])
    return Windows(
        filled.unfold(0, history, 1)[starts - history].transpose(1, 2),  # (N, C, L) -> (N, L, C)
        values.unfold(0, horizon, 1)[starts].transpose(1, 2),
        starts,
    )


class Scale(NamedTuple):
    """Mean and standard deviation of each channel, (C,) each; ``fit_scale`` finds them.

    ``scale(x)`` is ``(x - mean) / std``, ``scale.undo(z)`` goes back; x (..., C).
    """

    mean: Tensor
    std: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.std

    def undo(self, z: Tensor) -> Tensor:
        return z * self.std + self.mean


def fit_scale(values: Tensor) -> Scale:
    """Mean and population deviation of each channel of ``values`` (T, C), of what is not missing.

    Give it the training part alone.

    Raises:
        ValueError: a channel has no two different numbers.
    """
    mean = values.nanmean(dim=0)
    std = (values - mean).square().nanmean(dim=0).sqrt()
    if not (std > 0).all():
        raise ValueError(f"channel {int((~(std > 0)).nonzero()[0])}: has no two different numbers, so no scale")
    return Scale(mean, std)


@cache
def share_prices() -> Prices:
    """Matplotlib's sample of share prices: eight shares and two indices, 1990-01 to 2022-06.

    The file has a row for the first of each month, and others for other days, most of them empty: these are left out.
    Prices are adjusted for splits and dividends, as its source, Yahoo, gives them.
    """
    from matplotlib.cbook import get_sample_data  # half a second, and only one data set needs it

    path = get_sample_data("Stocks.csv", asfileobj=False)
    with open(path, encoding="utf-8") as file:
        head, *rows = csv.reader(line for line in file if not line.startswith("#"))
    monthly = [row for row in rows if row[0].endswith("-01")]
    values = np.array([[float(cell or "nan") for cell in row[1:]] for row in monthly])
    return Prices(tuple(row[0][:7] for row in monthly), tuple(head[1:]), torch.tensor(values, dtype=torch.float32))


def log_returns(prices: Tensor) -> Tensor:
    """``ln p_t - ln p_{t-1}``, (T, C) -> (T - 1, C): 0.01 is about one per cent in a month."""
    return prices.double().log().diff(dim=0).float()
