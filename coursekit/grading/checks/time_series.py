"""Checks of exercise 10: windows without a leak, normalisation that is undone, patches, quantiles, baselines, a model.

The references are written in NumPy, one number at a time, and share nothing with ``coursekit.data.series``,
``coursekit.nn``, ``coursekit.models`` and ``coursekit.evaluate``.

Legend: T hours, C quantities, N windows, B windows in a batch, L hours of history, H hours of horizon, P hours in a
patch, Q levels of quantiles, m hours in a season.
"""

import functools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from coursekit.data.series import Station, best_forecast, climate, draw_regimes, measured
from coursekit.evaluate.forecast import mase, seasonal_naive
from coursekit.grading.calls import Arrays
from coursekit.grading.checks.common import number, numbers, sizes, wide
from coursekit.grading.checks.slopes import CUT, no_slope, slope
from coursekit.grading.mistakes import by_task
from coursekit.grading.parts import Case, Part
from coursekit.grading.parts import score as show_score
from coursekit.grading.weights import diverged, once_for_a_model, put_into
from coursekit.models.patchtst import PatchForecaster, PatchTSTConfig

NAN = math.nan

# --- windows that know nothing of the future -----------------------------------------------------------------


def fill_reference(values) -> np.ndarray:
    """Each missing value is the last one before it."""
    result = np.array(values, float)
    for t, c in np.ndindex(result.shape):
        if t and np.isnan(result[t, c]):
            result[t, c] = result[t - 1, c]
    return result


def scale_reference(values, cut):
    values = np.asarray(values, float)
    mean, deviation = np.zeros((2, values.shape[1]))
    for c in range(values.shape[1]):
        known = [x for x in values[:cut, c] if not np.isnan(x)]
        mean[c] = sum(known) / len(known)
        deviation[c] = (sum((x - mean[c]) ** 2 for x in known) / len(known)) ** 0.5
    return mean, deviation


def windows_reference(values, L, H, begin, end):
    values, filled = np.asarray(values, float), fill_reference(values)
    histories, targets, start = [], [], begin
    while start + H <= end:
        histories.append([filled[start - back] for back in range(L, 0, -1)])
        targets.append([values[start + ahead] for ahead in range(H)])
        start += 1
    return np.array(histories), np.array(targets)


def station_like(T: int, C: int, generator: torch.Generator, cut: int | None = None, gaps: bool = True) -> Tensor:
    """(T, C), each quantity with a level and size of its own, other ones from ``cut`` on, and with gaps."""
    level, size = numbers(C, generator=generator, scale=5.0), 1 + 2 * torch.rand(C, generator=generator)
    values = level + size * numbers(T, C, generator=generator)
    if cut is not None:
        values[cut:] = values[cut:] * 1.5 + 3 * size
    if gaps:
        for c in range(C):
            for begin in range(2 + c % 3, T - 1, 7 + c):  # each quantity at its own hours, for 1 to 3 of them
                values[begin : begin + number(generator, 1, 3), c] = NAN
    return values


def no_leaks_cases(generator: torch.Generator) -> list[Case]:
    draw = partial(station_like, generator=generator)

    def fill(about, values, **more):
        return Case("gaps", f"fill_gaps: {about}", ("fill_gaps", values), **more)

    def scale(about, T, C, cut, gaps):
        return Case("scale", f"scale_of: {about}", ("scale_of", draw(T, C, cut=cut, gaps=gaps), cut))

    def cut(aspect, about, values, *sizes, **more):
        return Case(aspect, f"cut_windows: {about}", ("cut_windows", values, *sizes), **more)

    column = torch.tensor([[1.0], [NAN], [NAN], [4.0], [NAN]])
    late = draw(9, 2, gaps=False)
    late[6:, 0], late[8, 1] = NAN, NAN
    C, H, L = sizes(generator, 3, 2, 4)
    T = 6 * (L + H)
    begin = L + number(generator, 1, 4)
    end = begin + H + number(generator, 6, 9)
    long = draw(60, 2, gaps=False)
    long[3:50, 0], long[20:, 1] = NAN, NAN
    units = torch.stack([1013 + numbers(40, generator=generator), 2e-3 * numbers(40, generator=generator)], dim=1)
    gap = draw(14, 2, gaps=False)
    gap[8:11, 0], gap[9:10, 1] = NAN, NAN  # it lasts from before the cut, 10, until after it
    return [
        fill("one quantity, five hours", column, public=True),
        fill("missing until the end", late),
        fill("each quantity is missing at other hours", draw(30, 3)),
        fill("gaps of 40 hours and more", long),
        scale("one quantity, of six hours the first four", 6, 1, 4, False),
        scale("three quantities", 40, 3, 25, False),
        scale("some values are missing", 50, 3, 30, True),
        Case("scale", "scale_of: values around 1013, and others around 0.002", ("scale_of", units, 30)),
        cut(
            "windows", "five hours 0 1 2 3 4, history 2, horizon 1", torch.arange(5.0)[:, None], 2, 1, 2, 5, public=True
        ),
        cut("windows", f"history {L}, horizon {H}, in the middle", draw(T, C, gaps=False), L, H, begin, end),
        cut("windows", "room for one window alone", draw(T, C, gaps=False), L, H, begin, begin + H),
        cut("windows with gaps", "one quantity, five hours", column, 2, 1, 2, 5, public=True),
        cut("windows with gaps", "a gap across the cut, windows up to it", gap, 4, 2, 4, 10),
        cut("windows with gaps", "a gap across the cut, windows from it on", gap, 4, 2, 10, 14),
        cut("windows with gaps", "a gap that begins before the first history", gap, 2, 2, 11, 14),
        cut("windows with gaps", "each quantity is missing at other hours", draw(T, C), L, H, begin, end),
    ]


def filled_forward(values: Tensor) -> Tensor:
    return torch.from_numpy(fill_reference(values))


def filled_backward(values: Tensor) -> Tensor:
    return filled_forward(values.flip(0)).flip(0)


def filled_between(values: Tensor) -> Tensor:
    """On a straight line from the value before to the value after; behind the last one the last one."""
    result, hours = values.double().numpy().copy(), np.arange(len(values))
    for column in result.T:
        known = ~np.isnan(column)
        column[:] = np.interp(hours, hours[known], column[known])
    return torch.from_numpy(result)


def unbiased(values: Tensor) -> tuple[np.ndarray, np.ndarray]:
    mean, deviation = scale_reference(values, None)
    n = (~values.isnan()).sum(dim=0).numpy()
    return mean, deviation * (n / (n - 1)) ** 0.5


def windows_with(
    fill: Callable[[Tensor], Tensor] = filled_forward,
    late: int = 0,
    targets_of: Callable[[Tensor], Tensor] = lambda values: values,
):
    """Windows with something else in them; ``late``: by how many hours the history is."""

    def windows(values, L, H, begin, end):
        starts = range(begin, end - H + 1)
        rows = [list(range(start - L + late, start + late)) for start in starts]
        later = [list(range(start, start + H)) for start in starts]
        return fill(values)[torch.tensor(rows)], targets_of(values)[torch.tensor(later)]

    return windows


def filled_with(fill: Callable[[Tensor], Tensor]):
    return by_task(fill_gaps=fill, cut_windows=windows_with(fill))


no_leaks = Part(
    "no_leaks",
    {"gaps": 4, "scale": 4, "windows": 5, "windows with gaps": 5},
    no_leaks_cases,
    by_task(fill_gaps=fill_reference, scale_of=scale_reference, cut_windows=windows_reference),
    {
        "gaps are filled from the future, with the next value: only what came before is known": filled_with(
            filled_backward
        ),
        "gaps are filled on a line to the next value, which lies in the future: carry the last one on": filled_with(
            filled_between
        ),
        "the series is cut before its gaps are filled: the last known value may stand before the history": by_task(
            cut_windows=lambda values, L, H, begin, end: windows_reference(
                values[begin - L :], L, H, L, end - begin + L
            )
        ),
        "the targets are filled, too (or values itself is): leave them NaN, nobody measured these values": by_task(
            cut_windows=windows_with(targets_of=filled_forward)
        ),
        "the scale is that of all hours: from `cut` on nothing may be seen": by_task(
            scale_of=lambda values, cut: scale_reference(values, None)
        ),
        "the deviation is divided by n - 1: divide by n": by_task(scale_of=lambda values, cut: unbiased(values[:cut])),
        "missing values are filled before the scale is taken, so that some count twice: leave them out": by_task(
            scale_of=lambda values, cut: scale_reference(fill_reference(values), cut)
        ),
        "the history holds the first hour of the target: it ends with the hour before": by_task(
            cut_windows=windows_with(late=1)
        ),
    },
)


# --- normalised, forecast, brought back ----------------------------------------------------------------------


def normal_moments(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each quantity of each history (B, L, C): mean and deviation, (B, 1, C)."""
    B, L, C = x.shape
    mean, deviation = np.zeros((2, B, 1, C))
    for b, c in np.ndindex(B, C):
        mean[b, 0, c] = sum(x[b, :, c]) / L
        variance = sum((x[b, t, c] - mean[b, 0, c]) ** 2 for t in range(L)) / L
        deviation[b, 0, c] = (variance + 1e-5) ** 0.5
    return mean, deviation


def to_reference(x):
    x = np.asarray(x, float)
    mean, deviation = normal_moments(x)
    return (x - mean) / deviation, mean, deviation


def from_reference(y, mean, deviation):
    y, mean, deviation = (np.asarray(a, float) for a in (y, mean, deviation))
    result = np.zeros_like(y)
    for b, h, c in np.ndindex(y.shape):
        result[b, h, c] = y[b, h, c] * deviation[b, 0, c] + mean[b, 0, c]
    return result


def with_reference(x, weight):
    z, mean, deviation = to_reference(x)
    return from_reference(np.tanh(np.stack([np.asarray(weight, float) @ one for one in z])), mean, deviation)


def normalising_cases(generator: torch.Generator) -> list[Case]:
    draw = partial(numbers, generator=generator)

    def histories(B, L, C):
        """Each quantity of each history with a level and a deviation of its own, from 1 to 3: 1e-5 is nothing there."""
        x = draw(B, L, C)
        x = (x - x.mean(dim=1, keepdim=True)) / x.std(dim=1, correction=0, keepdim=True)
        return 3 * draw(B, 1, C) + (1 + 2 * torch.rand(B, 1, C, generator=generator)) * x

    def to(aspect, about, x, **more):
        return Case(aspect, f"to_standard: {about}", ("to_standard", x), **more)

    def back(about, B, H, C):
        deviation = 0.5 + 2 * torch.rand(B, 1, C, generator=generator)
        return Case("back", f"from_standard: {about}", ("from_standard", draw(B, H, C), 3 * draw(B, 1, C), deviation))

    def through(about, B, L, C, H):
        return Case("through a model", f"forecast_with: {about}", ("forecast_with", histories(B, L, C), draw(H, L)))

    B, L, C, H = sizes(generator, 4, 2, 6)
    one = torch.tensor([[[1.0], [3.0], [1.0], [3.0]]])
    calm = 0.05 + 0.01 * draw(2, 5, 2)  # near 0, where float32 has places enough
    # eight numbers of which each sum is exact, and so is the mean; their squares are not
    order = torch.stack([torch.randperm(12, generator=generator)[:8] for _ in range(4)]).view(2, 8, 2)
    pressure = 1013 + order / 4
    return [
        to("histories", "one history: 1 3 1 3", one, public=True),
        to("histories", f"{B} histories of {L + 2} hours", histories(B, L + 2, C)),
        to("histories", "pressures of about 1013", pressure),
        to("histories", "B = L = C: no axis can be told by its size", histories(4, 4, 4)),
        to("calm hours", "a deviation of about 0.01", calm),
        to(
            "calm hours", "the second quantity never changes", torch.cat([calm[..., :1], torch.full((2, 5, 1), 2.0)], 2)
        ),
        back("one forecast of two hours", 1, 2, 1),
        back(f"{B} forecasts of {H} hours", B, H, C),
        back("B = H = C: no axis can be told by its size", 4, 4, 4),
        through("one history, one hour ahead", 1, 3, 1, 1),
        through(f"{B} histories, {H} hours ahead", B, L + 1, C, H),
        through("B = L = C = H: no axis can be told by its size", 4, 4, 4, 4),
    ]


def root_of(x: Tensor, correction: int = 0, dim=1) -> Tensor:
    return (x.var(dim=dim, correction=correction, keepdim=True) + 1e-5).sqrt()


def normal_with(
    mean: Callable[[Tensor], Tensor] = lambda x: x.mean(dim=1, keepdim=True),
    deviation: Callable[[Tensor], Tensor] = root_of,
    back: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda y, mean, deviation: y * deviation + mean,
    alone: Callable[..., Tensor] | None = None,
):
    """The three functions with something else in them; ``alone``: what ``forecast_with`` does at the end."""

    def to(x):
        x = x.double()
        m, s = (part.expand(len(x), 1, x.shape[2]) for part in (mean(x), deviation(x)))
        return (x - m) / s, m, s

    def through(x, weight):
        z, m, s = to(x)
        return (alone or back)((weight.double() @ z).tanh(), m, s)

    return by_task(to_standard=to, from_standard=back, forecast_with=through)


normalising = Part(
    "normalising",
    {"histories": 4, "calm hours": 3, "back": 2, "through a model": 4},
    normalising_cases,
    by_task(to_standard=to_reference, from_standard=from_reference, forecast_with=with_reference),
    {
        "the variance is divided by L - 1: divide by L, correction=0": normal_with(
            deviation=lambda x: root_of(x, correction=1)
        ),
        "1e-5 is added to the deviation: it belongs under the root, to the variance": normal_with(
            deviation=lambda x: x.std(dim=1, correction=0, keepdim=True) + 1e-5
        ),
        "1e-5 is missing: add it to the variance, under the root": normal_with(
            deviation=lambda x: x.std(dim=1, correction=0, keepdim=True)
        ),
        "this is divided by the variance: divide by its root": normal_with(deviation=lambda x: root_of(x).square()),
        "mean and deviation are those of all histories together: each has its own": normal_with(
            mean=lambda x: x.mean(dim=(0, 1), keepdim=True), deviation=lambda x: root_of(x, dim=(0, 1))
        ),
        "this is not brought back: the model's numbers have no units, and a level of 0": normal_with(
            alone=lambda y, mean, deviation: y
        ),
        "the mean is added first and then all is multiplied: the way back begins with what came last": normal_with(
            back=lambda y, mean, deviation: (y + mean) * deviation
        ),
        "only the deviation comes back: add the mean then": normal_with(back=lambda y, mean, deviation: y * deviation),
    },
)


# --- patches -------------------------------------------------------------------------------------------------


def patches_reference(x, size, stride) -> np.ndarray:
    x = np.asarray(x, float)
    ends, end = [], x.shape[-1]
    while end >= size:
        ends.append(end)
        end -= stride
    return np.stack([x[..., end - size : end] for end in reversed(ends)], axis=-2)


def tokens_reference(x, size, stride) -> np.ndarray:
    rows = [window[:, c] for window in np.asarray(x) for c in range(x.shape[2])]
    return patches_reference(np.stack(rows), size, stride)


def patching_cases(generator: torch.Generator) -> list[Case]:
    draw = partial(numbers, generator=generator)

    def cut(aspect, about, x, size, stride, **more):
        return Case(aspect, f"patches_of: {about}", ("patches_of", x, size, stride), **more)

    def tokens(about, x, size, stride):
        return Case("quantities", f"channel_tokens: {about}", ("channel_tokens", x, size, stride))

    size, B, C = sizes(generator, 3, 2, 5)
    stride = 2 + (size - 2 + number(generator, 1, 2)) % 3  # 2, 3 or 4, and never the size
    N = number(generator, 3, 6)
    odd = size + stride * N + number(generator, 1, stride - 1)
    row = torch.arange(7.0)
    return [
        cut("side by side", "six numbers, patches of 3 every 3", torch.arange(6.0), 3, 3, public=True),
        cut("side by side", "a row of patches", draw(size * N), size, size),
        cut("side by side", "one patch, as long as the series", draw(size), size, 2),
        cut("overlapping", "seven numbers, patches of 3 every 2", row, 3, 2, public=True),
        cut("overlapping", "patches of 4 every 1", draw(9), 4, 1),
        cut("overlapping", "gaps between the patches, 2 every 5", draw(17), 2, 5),
        cut("what is left over", "eight numbers, patches of 3 every 2", torch.arange(8.0), 3, 2, public=True),
        cut("what is left over", f"{odd} numbers, patches of {size} every {stride}", draw(odd), size, stride),
        cut("what is left over", "many series", draw(B, C, odd), size, stride),
        cut("overlapping", "100 patches of 4 every 1", draw(103), 4, 1),
        tokens("one window, two quantities", draw(1, 5, 2), 3, 2),
        tokens("a batch", draw(B, odd, C), size, stride),
        tokens("B = L = C: no axis can be told by its size", draw(4, 4, 4), 3, 1),
    ]


def cut_from_the_end(x: Tensor, size: int, stride: int) -> Tensor:
    return x[..., (x.shape[-1] - size) % stride :].unfold(-1, size, stride)


def padded(x: Tensor, size: int, stride: int) -> Tensor:
    """As the paper has it: the last value is repeated at the end, ``stride`` times."""
    return torch.cat([x, x[..., -1:].expand(*x.shape[:-1], stride)], dim=-1).unfold(-1, size, stride)


def patched_with(
    cut: Callable[[Tensor, int, int], Tensor] = cut_from_the_end,
    rows: Callable[[Tensor], Tensor] = lambda x: x.transpose(1, 2).flatten(0, 1),
):
    """Both functions with something else in them; ``rows``: the series of a batch, (B, L, C) -> (B C, L)."""

    return by_task(patches_of=cut, channel_tokens=lambda x, size, stride: cut(rows(x), size, stride))


patching = Part(
    "patching",
    {"side by side": 2, "overlapping": 3, "what is left over": 4, "quantities": 3},
    patching_cases,
    by_task(patches_of=patches_reference, channel_tokens=tokens_reference),
    {
        "the patches begin with the first number: they are counted from the end, what is left over stands in front": (
            patched_with(lambda x, size, stride: x.unfold(-1, size, stride))
        ),
        "the patches stand side by side: each begins `stride` after the one before": patched_with(
            lambda x, size, stride: cut_from_the_end(x, size, size)
        ),
        "`stride` numbers lie between the patches: it goes from the beginning of one to that of the next": patched_with(
            lambda x, size, stride: cut_from_the_end(x, size, size + stride)
        ),
        "the end is padded with its last value, as in the paper: here nothing is padded": patched_with(padded),
        "hours and quantities are mixed: reshape does not turn (B, L, C) into (B, C, L), a transpose does": (
            patched_with(rows=lambda x: x.reshape(-1, x.shape[1]))
        ),
        "the first quantity of all windows comes first: all quantities of a window stand beside each other": (
            patched_with(rows=lambda x: x.permute(2, 0, 1).flatten(0, 1))
        ),
    },
)


# --- quantiles -----------------------------------------------------------------------------------------------


def losses_reference(forecast, target, levels) -> np.ndarray:
    forecast, target = np.asarray(forecast, float), np.asarray(target, float)
    losses = np.zeros_like(forecast)
    for place in np.ndindex(forecast.shape):
        y, f, q = target[place[:-1]], forecast[place], levels[place[-1]]
        losses[place] = NAN if np.isnan(y) else q * (y - f) if y > f else (1 - q) * (f - y)
    return losses


def mean_reference(forecast, target, levels) -> np.float64:
    known = [x for x in losses_reference(forecast, target, levels).flatten() if not np.isnan(x)]
    return np.float64(sum(known) / len(known))


def quantiles_cases(generator: torch.Generator) -> list[Case]:
    draw = partial(numbers, generator=generator)

    def case(aspect, about, task, shape, levels, missing=False):
        target = draw(*shape)
        if missing:
            flat = target.view(-1)
            flat[torch.randperm(len(flat), generator=generator)[: max(1, len(flat) // 3)]] = NAN
        return Case(aspect, f"{task}: {about}", (task, draw(*shape, len(levels)), target, levels))

    def close(about, N, levels):
        """Every other forecast is exactly right, the others nearly."""
        target = draw(N, scale=0.1)
        forecast = target[:, None] + 1e-4 * draw(N, len(levels)) * (torch.arange(N) % 2)[:, None]
        return Case("levels", f"quantile_losses: {about}", ("quantile_losses", forecast, target, levels))

    N, H, C = sizes(generator, 3, 2, 5)
    odd = [round(0.01 * x, 2) for x in sorted(sizes(generator, 4, 4, 96)) if x != 50][:3]
    both = (torch.tensor([[5.0], [9.0]]), torch.tensor([7.0, 7.0]), [0.9])
    return [
        Case(
            "one level",
            "quantile_losses: too low by 2, and too high by 2, level 0.9",
            ("quantile_losses", *both),
            public=True,
        ),
        case("one level", "the level 0.5", "quantile_losses", (5,), [0.5]),
        case("one level", "the level 0.2", "quantile_losses", (N, H, C), [0.2]),
        case("levels", "three levels", "quantile_losses", (4,), [0.1, 0.5, 0.9]),
        case("levels", f"the levels {odd}", "quantile_losses", (N, H, C), odd),
        case("levels", "N = H = C = Q = 4, the last level is 0.995", "quantile_losses", (4, 4, 4), [*odd, 0.995]),
        Case(
            "mean", "quantile_loss: too low by 2, and too high by 2, level 0.9", ("quantile_loss", *both), public=True
        ),
        case("mean", f"the levels {odd}", "quantile_loss", (N, H, C), odd),
        close("forecasts that are right, or wrong by 0.0001", 8, odd),
        case("missing", "every third target is missing", "quantile_losses", (9,), [0.3, 0.8], True),
        case("missing", "every third target is missing", "quantile_loss", (9,), [0.3, 0.8], True),
        case("missing", "missing targets", "quantile_loss", (N + 1, H, C), odd, True),
        case("gradient", "two levels", "quantile_slope", (2, 3), [0.2, 0.7]),
    ]


def tilted(forecast: Tensor, target: Tensor, levels: Sequence[float]) -> Tensor:
    above, q = target[..., None] - forecast, torch.tensor(levels)
    return torch.where(above > 0, q * above, (q - 1) * above)


def quantiles_with(
    losses: Callable[..., Tensor] = tilted,
    mean: Callable[[Tensor], Tensor] = torch.nanmean,
):
    def one(f, y, levels):
        return mean(losses(f, y, levels))

    return by_task(quantile_losses=losses, quantile_loss=one, quantile_slope=partial(slope, one))


quantiles = Part(
    "quantiles",
    {"one level": 3, "levels": 3, "mean": 2, "missing": 3, "gradient": 1},
    quantiles_cases,
    by_task(
        quantile_losses=losses_reference, quantile_loss=mean_reference, quantile_slope=partial(slope, mean_reference)
    ),
    {
        CUT: by_task(quantile_slope=no_slope),
        "the sides have changed places: to lie too low costs `level` for each unit, to lie too high 1 - `level`": (
            quantiles_with(lambda f, y, levels: tilted(f, y, [1 - q for q in levels]))
        ),
        "this is the absolute error, whatever the level: too low and too high cost differently": quantiles_with(
            lambda f, y, levels: (y[..., None] - f).abs().expand(f.shape)
        ),
        "this is the absolute error times the level, on both sides: too high costs 1 - `level`": quantiles_with(
            lambda f, y, levels: (y[..., None] - f).abs() * torch.tensor(levels)
        ),
        "the loss is below 0 on one side: to lie too high costs (1 - `level`) (f - y)": quantiles_with(
            lambda f, y, levels: (
                (y[..., None] - f) * torch.where(y[..., None] > f, torch.tensor(levels), 1 - torch.tensor(levels))
            )
        ),
        "missing targets count as 0: where a target is NaN, nothing is known": quantiles_with(
            lambda f, y, levels: tilted(f, y.nan_to_num(0.0), levels)
        ),
        "missing targets are counted in the mean: divide by the number of losses that are known": quantiles_with(
            mean=lambda losses: losses.nansum() / losses.numel()
        ),
        "one missing target makes the mean NaN: take that of the losses that are known": quantiles_with(
            mean=torch.mean
        ),
        "the levels are added up: the mean is one over all values and all levels": quantiles_with(
            mean=lambda losses: losses.sum(dim=-1).nanmean()
        ),
    },
)


# --- what is to be beaten ------------------------------------------------------------------------------------


def season_reference(history, horizon, season) -> np.ndarray:
    known = [list(window) for window in np.asarray(history, float)]
    for window in known:
        for _ in range(horizon):
            window.append(window[-season])  # beyond a season that is a forecast already
    return np.array([window[-horizon:] for window in known])


def error_reference(forecast, target, train, season) -> np.float64:
    forecast, target, train = (np.asarray(a, float) for a in (forecast, target, train))
    ratios = []
    for c in range(target.shape[-1]):
        errors = [abs(y - f) for y, f in zip(target[..., c].flat, forecast[..., c].flat) if not np.isnan(y)]
        steps = [abs(train[t, c] - train[t - season, c]) for t in range(season, len(train))]
        steps = [step for step in steps if not np.isnan(step)]
        ratios.append(sum(errors) / len(errors) / (sum(steps) / len(steps)))
    return np.float64(sum(ratios) / len(ratios))


def baselines_cases(generator: torch.Generator) -> list[Case]:
    draw = partial(numbers, generator=generator)

    def again(aspect, about, N, L, C, horizon, season):
        return Case(aspect, f"season_again: {about}", ("season_again", draw(N, L, C), horizon, season))

    def scaled(aspect, about, N, H, C, T, season, gaps=False, unit=1.0):
        size = unit * (1.0 + 4 * torch.arange(C)) * (0.8 + 0.4 * torch.rand(C, generator=generator))
        train = draw(T, C).cumsum(dim=0) * size
        forecast, target = (train[-1] + size * draw(N, H, C, scale=2.0) for _ in range(2))
        if gaps:
            train = torch.where(torch.rand(T, C, generator=generator) < 0.15, NAN, train)
            lost = torch.rand(N, H, C, generator=generator) < 0.4 * torch.arange(C) / C + 0.1
            lost[0, 0], lost[1, 0] = True, False  # of each quantity one is missing, and one is there
            target = torch.where(lost, NAN, target)
        return Case(aspect, f"scaled_error: {about}", ("scaled_error", forecast, target, train, season))

    season, N, C = sizes(generator, 3, 3, 5)
    L = season + number(generator, 2, 4)
    H = season + 2  # so that the season comes again, and that the target has pairs of its own
    row = torch.tensor([[[1.0], [2.0], [3.0], [4.0], [5.0]]])
    small = (torch.tensor([[[4.0]]]), torch.tensor([[[7.0]]]), torch.tensor([[1.0], [4.0], [3.0], [6.0]]), 2)
    return [
        Case("season", "season_again: 1 2 3 4 5, season 3, horizon 3", ("season_again", row, 3, 3), public=True),
        again("season", f"horizon 2, season {season}", N, L, C, 2, season),
        again("season", "N = L = C: no axis can be told by its size", 5, 5, 5, 3, 3),
        Case(
            "beyond a season", "season_again: 1 2 3 4 5, season 3, horizon 7", ("season_again", row, 7, 3), public=True
        ),
        again("beyond a season", f"horizon {2 * season + 1}, season {season}", N, L, C, 2 * season + 1, season),
        again("beyond a season", "season 1: the last value", N, L, C, 4, 1),
        again("beyond a season", "horizon 50, season 2", N, L, C, 50, 2),
        Case(
            "scaled error",
            "scaled_error: one hour, wrong by 3; training 1 4 3 6, season 2",
            ("scaled_error", *small),
            public=True,
        ),
        scaled("scaled error", f"one quantity, season {season}", N, H, 1, 40, season),
        scaled("several quantities", f"{C} quantities in different units", N, H, C, 40, season),
        scaled("several quantities", "numbers around 0.001", N, H, C, 40, season, unit=1e-3),
        scaled("several quantities", "N = H = C: no axis can be told by its size", 4, 4, 4, 30, 2),
        scaled("missing values", f"{C} quantities, some values missing", N, H, C, 60, season, True),
        scaled("missing values", "four quantities, some values missing", 3, 5, 4, 50, 2, True),
    ]


def repeated(last: Callable[[Tensor, int], Tensor], place: Callable[[int, int], int] = lambda h, m: h % m):
    """``season_again`` with something else in it: which season, and which hour of it comes in hour h."""

    def mistake(history, horizon, season):
        return last(history, season)[:, [place(h, season) for h in range(horizon)]]

    return by_task(season_again=mistake)


def the_last(history: Tensor, season: int) -> Tensor:
    return history[:, history.shape[1] - season :]


def known_mean(x: Tensor) -> Tensor:
    """Over all but the last axis, of what is known."""
    return x.flatten(0, -2).nanmean(dim=0)


def apart(x: Tensor, season: int) -> Tensor:
    return (x[..., season:, :] - x[..., :-season, :]).abs()


def scaled_with(
    target: Callable[[Tensor], Tensor] = lambda y: y,
    scale: Callable[[Tensor, Tensor, int], Tensor] = lambda y, train, m: known_mean(apart(train, m)),
    after: Callable[[Tensor, Tensor], Tensor] = lambda errors, scale: (errors / scale).mean(),
):
    def mistake(f, y, train, season):
        f, y, train = wide([f, target(y), train])
        return after(known_mean((y - f).abs()), scale(y, train, season))

    return by_task(scaled_error=mistake)


baselines = Part(
    "baselines",
    {"season": 3, "beyond a season": 3, "scaled error": 3, "several quantities": 3, "missing values": 3},
    baselines_cases,
    by_task(season_again=season_reference, scaled_error=error_reference),
    {
        "this is the last value, again and again: repeat the last season": repeated(
            lambda history, season: history[:, -1:].expand(-1, season, -1)
        ),
        "this is the season at the start of the history: take the one at its end": repeated(
            lambda history, season: history[:, :season]
        ),
        "beyond a season the last value stands still: begin the season again": repeated(
            the_last, lambda h, m: min(h, m - 1)
        ),
        "the scale is taken from the targets, which nobody has yet: take it from the training part": scaled_with(
            scale=lambda y, train, m: known_mean(apart(y, m))
        ),
        "the scale compares with the value just before: compare with the one a season before": scaled_with(
            scale=lambda y, train, m: known_mean(apart(train, 1))
        ),
        "errors of different units are averaged before they are scaled: first divide, each quantity by its own scale": (
            scaled_with(after=lambda errors, scale: errors.mean() / scale.mean())
        ),
        "missing targets count as 0: leave them out": scaled_with(target=lambda y: y.nan_to_num(0.0)),
        "pairs with a missing value count as 0 in the scale: leave them out": scaled_with(
            scale=lambda y, train, m: apart(train, m).nan_to_num(0.0).mean(dim=0)
        ),
    },
)


# --- a forecaster for a place where it has never been --------------------------------------------------------

HISTORY, HORIZON, SEASON = 96, 24, 24  # hours, as in the exercise
SIZES = PatchTSTConfig(HISTORY, patch_size=24, stride=12, d_model=32, n_heads=4, d_ff=64, n_layers=1)
BOUNDS = LOW, HIGH = 0.40, 0.55  # of the way from the seasonal naive forecast to the best one that there is
PLACES, STRETCHES = 8, 64


class Asked(NamedTuple):
    """Windows (N, L, C) and (N, H, C), and forecasts of these targets."""

    history: Tensor
    target: Tensor
    best: Tensor
    naive: Tensor


def at_a_place(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Stretches of a place, one behind the other in time, each in a weather of its own; no target is in a history."""
    generator, T = torch.Generator().manual_seed(seed), HISTORY + HORIZON + 1  # each begins an hour later in the day
    rules, regimes = climate(seed), draw_regimes(STRETCHES, T, generator)
    whole, noise = measured(rules, regimes, T * torch.arange(STRETCHES), generator)
    flat = whole.flatten(0, 1)
    known = Station(flat, flat, regimes.flatten(), noise.flatten(0, 1), rules)
    best = best_forecast(known, T * torch.arange(STRETCHES) + HISTORY, HORIZON)
    return whole[:, :HISTORY], whole[:, HISTORY : HISTORY + HORIZON], best


@functools.lru_cache(maxsize=8)
def asked(seed: int) -> Asked:
    """Windows of ``PLACES`` places."""
    generator = torch.Generator().manual_seed(seed)
    places = torch.randint(1_000, 2**31 - 1, (PLACES,), generator=generator).tolist()
    history, target, best = (torch.cat(parts) for parts in zip(*map(at_a_place, places)))
    return Asked(history, target, best, seasonal_naive(history, HORIZON, SEASON))


def scaled_errors(windows: Asked, forecast: Tensor) -> float:
    """MASE, by the histories; a day of NaN between them, so that no pair of hours lies in two of them."""
    history, target = windows.history, windows.target
    night = torch.full((len(history), SEASON, history.shape[2]), NAN)
    return mase(forecast, target, torch.cat([history, night], dim=1).flatten(0, 1), SEASON)


def way(windows: Asked, forecast: Tensor) -> float:
    """How far a forecast has come: 0 is the seasonal naive one, 1 the best that there is."""
    best, naive, found = (scaled_errors(windows, f) for f in (windows.best, windows.naive, forecast))
    return (naive - found) / (naive - best)


def train_cases(generator: torch.Generator) -> list[Case]:
    seed = number(generator, 1, 2**31 - 1)
    return [Case(f"{bound:.0%} of the way", "windows of places of the check's own", secret=seed) for bound in BOUNDS]


def why_not(model: PatchForecaster, windows: Asked, forecast: Tensor) -> str:
    """The likely reason for poor forecasts, in words."""
    history, target, _, naive = windows
    if bool((model.encoder.blocks[0].attention_residual.norm.weight == 1).all()):
        return "no weight has changed: do the updates reach the model that you return (backward, then step)?"
    scale = history.std(dim=1, correction=0).mean(dim=0)  # (C,)
    offset = ((forecast - target).mean(dim=(0, 1)) / scale).abs().max().item()
    if offset > 0.4:
        return (
            "on the average its forecasts lie far beside what came, always on the same side: does a missing target "
            "(NaN) count as 0? Leave it out"
        )
    moved = ((naive - target).abs().mean(dim=(0, 1)) / scale).mean().item()
    if ((forecast - naive).abs().mean(dim=(0, 1)) / scale).mean().item() < 0.5 * moved:
        return "it repeats the last day, as the seasonal naive forecast does: is it trained on what came afterwards?"
    if ((forecast - history[:, -1:]).abs().mean(dim=(0, 1)) / scale).mean().item() < 0.3 * moved:
        return "it repeats the last value: is it trained on all hours of the horizon?"
    return "train longer, with a rate that falls to 0 at the end, on windows drawn at random"


@once_for_a_model
def judged(model: PatchForecaster, seed: int) -> tuple[float, str]:
    """How far its forecasts have come, and why not farther."""
    windows = asked(seed)
    with torch.inference_mode():
        forecast = model(windows.history)
    far = way(windows, forecast)
    return far, why_not(model, windows, forecast) if far < HIGH else ""


def judge_forecasts(case: Case, answers: Sequence[Arrays]) -> str | None:
    """Load the weights into a model of our own and let it forecast at places of our own."""
    if any(map(diverged, answers[-1].values())):
        return (
            "the weights are no finite numbers: has a missing target (NaN) come into the loss? If not, the training "
            "diverged, and the learning rate is far too high"
        )
    model = PatchForecaster(SIZES, HORIZON).eval()
    missing = "this is not a model of new_forecaster: it has no weights {name}"
    problem = put_into(model, answers[-1], missing, "its sizes are not those of new_forecaster")
    if problem:
        return problem
    far, why = judged(model, case.secret)
    wanted = {f"{bound:.0%} of the way": bound for bound in BOUNDS}[case.aspect]
    if far >= wanted:
        return None
    reached = f"it comes {far:.0%} of the way" if far > 0 else "it is no better than the seasonal naive forecast"
    return f"{reached}, {wanted:.0%} are asked for: {why}"


train_forecaster = Part(
    "train_forecaster",
    {f"{LOW:.0%} of the way": 8, f"{HIGH:.0%} of the way": 8},
    train_cases,
    judge=judge_forecasts,
    result="model",
    seconds=180,
)

PARTS = (no_leaks, normalising, patching, quantiles, baselines, train_forecaster)
WRITTEN = {"too_good": 14}
score = partial(show_score, PARTS, WRITTEN)
