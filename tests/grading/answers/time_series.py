"""Answers to exercise 10, right and wrong ones: see __init__."""

from tests.grading.answers import FIRST, MODEL, load

RIGHT, MUTANTS = load("10_time_series", {
"no_leaks": (MODEL, [(), """def fill_gaps(values):  # the number of the last row that is known
    rows = torch.arange(len(values))[:, None].expand_as(values)
    last = torch.where(values.isnan(), 0, rows).cummax(dim=0).values
    return torch.gather(values, 0, last)
def scale_of(values, cut):
    known = [column[~column.isnan()] for column in values[:cut].unbind(dim=1)]
    return torch.stack([x.mean() for x in known]), torch.stack([x.std(correction=0) for x in known])
def cut_windows(values, history, horizon, begin, end):
    filled = fill_gaps(values[:end])
    histories = filled[begin - history : end - horizon].unfold(0, history, 1)
    targets = values[begin:end].unfold(0, horizon, 1)
    return histories.permute(0, 2, 1), targets.permute(0, 2, 1)
""", """def fill_gaps(values):  # again and again, one hour farther each time
    filled = values
    while filled.isnan().any():
        filled = torch.where(filled.isnan(), filled.roll(1, dims=0), filled)
    return filled
def scale_of(values, cut):
    past, known = values[:cut].nan_to_num(0.0), (~values[:cut].isnan()).double()
    n = known.sum(dim=0)
    mean = past.double().sum(dim=0) / n
    return mean, ((known * (past - mean) ** 2).sum(dim=0) / n) ** 0.5
def cut_windows(values, history, horizon, begin, end):
    starts = torch.arange(begin, end - horizon + 1)[:, None]
    return fill_gaps(values)[starts + torch.arange(-history, 0)], values[starts + torch.arange(horizon)]
"""], [
    (9, "gaps are filled from the future", "range(1, len(values))", "range(len(values) - 2, -1, -1)",
     "filled[t - 1]", "filled[t + 1]"),
    (9, "gaps are filled on a line to the next value", "    return filled", """    import numpy as np
    known = [(np.flatnonzero(~np.isnan(x)), x[~np.isnan(x)]) for x in values.T.numpy()]
    return torch.tensor(np.stack([np.interp(range(len(values)), *x) for x in known], axis=1)).float()"""),
    (14, "gaps of 40 hours", "range(1, len(values))", "range(1, min(30, len(values)))"),
    (14, "values around 1013", "(past - mean).square().nanmean(dim=0).sqrt()",
     "(past.square().nanmean(dim=0) - mean.square()).clamp(min=0).sqrt()"),
    (14, "the scale is that of all hours", "values[:cut]", "values"),
    (14, "the deviation is divided by n - 1", "(past - mean).square().nanmean(dim=0).sqrt()",
     "torch.stack([column[~column.isnan()].std() for column in past.T])"),
    (14, "missing values are filled before the scale is taken", "values[:cut]", "fill_gaps(values)[:cut]"),
    (8, "the history holds the first hour of the target", "history : start", "history + 1 : start + 1"),
    (13, "the targets are filled, too", "[values[start", "[filled[start"),
    (13, "the series is cut before its gaps are filled", "filled = fill_gaps(values)",
     "filled = torch.cat([values[: begin - history], fill_gaps(values[begin - history :])])"),
]),
"normalising": (MODEL, [(), """def to_standard(x):
    mean = x.sum(dim=1, keepdim=True) / x.shape[1]
    rest = x - mean
    std = torch.sqrt((rest * rest).mean(dim=1, keepdim=True) + 0.00001)
    return rest / std, mean, std
def from_standard(y, mean, std):
    return torch.addcmul(mean.expand_as(y), y, std.expand_as(y))
def forecast_with(model, history):
    mean = history.mean(1, True)
    std = torch.sqrt(torch.var(history, 1, correction=0, keepdim=True) + 1e-5)
    return model((history - mean) / std) * std + mean
"""], [
    (2, "the variance is divided by L - 1", "correction=0", "correction=1"),
    (10, "1e-5 is added to the deviation",
     "(x.var(dim=1, correction=0, keepdim=True) + 1e-5).sqrt()", "x.std(dim=1, correction=0, keepdim=True) + 1e-5"),
    (10, "1e-5 is missing", " + 1e-5", ""),
    (2, "this is divided by the variance", ".sqrt()", ""),
    (9, "pressures of about 1013", "x.var(dim=1, correction=0, keepdim=True)",
     "(x**2).mean(dim=1, keepdim=True) - mean**2"),
    (9, "this is not brought back", "from_standard(model(z), mean, std)", "model(z)"),
    (7, "the mean is added first", "y * std + mean", "(y + mean) * std"),
    (7, "only the deviation comes back", "y * std + mean", "y * std"),
    (2, "mean and deviation are those of all histories together", "x.mean(dim=1, keepdim=True)",
     "x.mean(dim=(0, 1)).expand(len(x), 1, -1)", "(x.var(dim=1, correction=0, keepdim=True) + 1e-5).sqrt()",
     "(x.var(dim=(0, 1), correction=0) + 1e-5).sqrt().expand(len(x), 1, -1)"),
]),
"patching": (FIRST, ["""def patches_of(x, size, stride):
    return x[..., (x.shape[-1] - size) % stride :].unfold(-1, size, stride)
def channel_tokens(x, size, stride):
    return patches_of(x.mT.flatten(0, 1), size, stride)
""", """def patches_of(x, size, stride):  # places of all numbers at once
    N = (x.shape[-1] - size) // stride + 1
    first = x.shape[-1] - size - stride * torch.arange(N - 1, -1, -1)
    return x[..., first[:, None] + torch.arange(size)]
def channel_tokens(x, size, stride):
    return torch.cat([patches_of(window.T, size, stride) for window in x])
""", """def patches_of(x, size, stride):
    found, end = [], x.shape[-1]
    while end - size >= 0:
        found.insert(0, x[..., end - size : end])
        end = end - stride
    return torch.stack(found, -2)
def channel_tokens(x, size, stride):
    B, L, C = x.shape
    return patches_of(x.permute(0, 2, 1).reshape(B * C, L), size, stride)
"""], [
    (5, "the patches begin with the first number", "x[..., (x.shape[-1] - size) % stride :]", "x"),
    (2, "the patches stand side by side", "(x.shape[-1] - size) % stride", "x.shape[-1] % size",
     "1, size, stride", "1, size, size"),
    (0, "`stride` numbers lie between the patches", "% stride :", "% (size + stride) :",
     "1, size, stride", "1, size, size + stride"),
    (0, "the order is reversed", ".unfold(-1, size, stride)", ".unfold(-1, size, stride).flip(-2)"),
    (0, "the end is padded with its last value",
     "x[..., (x.shape[-1] - size) % stride :]", "torch.cat([x, x[..., -1:].expand(*x.shape[:-1], stride)], dim=-1)"),
    (9, "100 patches", "size, stride)\ndef", "size, stride)[..., :20, :]\ndef"),
    (9, "hours and quantities are mixed", "x.mT.flatten(0, 1)", "x.reshape(-1, x.shape[1])"),
    (9, "the first quantity of all windows comes first", "x.mT.flatten", "x.permute(2, 0, 1).flatten"),
    (0, "the last entry is missing", ".unfold(-1, size, stride)", ".unfold(-1, size, stride)[..., :-1, :]"),
]),
"quantiles": (FIRST, ["""def quantile_losses(forecast, target, levels):
    above, q = target[..., None] - forecast, torch.tensor(levels)
    return torch.where(above > 0, q * above, (q - 1) * above)
def quantile_loss(forecast, target, levels):
    losses = quantile_losses(forecast, target, levels)
    return losses[~losses.isnan()].mean()
""", """def quantile_losses(forecast, target, levels):  # two hinges
    columns = []
    for k, level in enumerate(levels):
        too_low, too_high = target - forecast[..., k], forecast[..., k] - target
        columns.append(level * too_low.clamp(min=0) + (1 - level) * too_high.clamp(min=0))
    return torch.stack(columns, dim=-1)
def quantile_loss(forecast, target, levels):
    known = ~target.isnan()
    return quantile_losses(forecast[known], target[known], levels).mean()
""", ("torch.where(above > 0, q * above, (q - 1) * above)", "(q - (above < 0).float()) * above",
      "losses[~losses.isnan()].mean()", "losses.nansum() / (~losses.isnan()).sum()")], [
    (0, "the sides have changed places", "torch.tensor(levels)", "1 - torch.tensor(levels)"),
    (0, "this is the absolute error, whatever the level",
     "torch.where(above > 0, q * above, (q - 1) * above)", "above.abs()"),
    (0, "this is the absolute error times the level",
     "torch.where(above > 0, q * above, (q - 1) * above)", "q * above.abs()"),
    (0, "the loss is below 0 on one side",
     "torch.where(above > 0, q * above, (q - 1) * above)", "torch.where(above > 0, q, 1 - q) * above"),
    (9, "has the right shape but wrong values",
     "torch.where(above > 0, q * above, (q - 1) * above)",
     "torch.maximum(q * above, (q - 1) * above) * (~(above.abs() < 2e-4))"),
    (9, "0.995", "torch.tensor(levels)", "torch.tensor([round(level, 2) for level in levels])"),
    (11, "no gradient arrives", "[~losses.isnan()].mean()", "[~losses.isnan()].mean().item()"),
    (9, "missing targets count as 0", "target[..., None]", "target.nan_to_num(0.0)[..., None]"),
    (9, "missing targets are counted in the mean",
     "losses[~losses.isnan()].mean()", "losses.nansum() / losses.numel()"),
    (9, "one missing target makes the mean NaN", "losses[~losses.isnan()]", "losses"),
    (6, "the levels are added up", "losses[~losses.isnan()].mean()", "losses.sum(dim=-1).nanmean()"),
]),
"baselines": (FIRST, ["""def season_again(history, horizon, season):
    return history[:, -season:][:, torch.arange(horizon) % season]
def scaled_error(forecast, target, train, season):
    wrong = (target - forecast).abs()
    errors = wrong.flatten(0, 1).nanmean(dim=0)
    changes = (train[season:] - train[:-season]).abs().nanmean(dim=0)
    return (errors / changes).mean()
""", """def season_again(history, horizon, season):
    season_before = history[:, history.shape[1] - season :]
    times = -(-horizon // season)
    return season_before.repeat(1, times, 1)[:, :horizon]
def scaled_error(forecast, target, train, season):
    ratios = []
    for c in range(target.shape[-1]):
        y, f, x = target[..., c], forecast[..., c], train[:, c]
        known = ~y.isnan()
        step = (x[season:] - x[:-season]).abs()
        ratios.append((y[known] - f[known]).abs().mean() / step[~step.isnan()].mean())
    return sum(ratios) / len(ratios)
"""], [
    (9, "this is the last value, again and again",
     "history[:, -season:][:, torch.arange(horizon) % season]", "history[:, -1:][:, torch.arange(horizon) * 0]"),
    (9, "this is the season at the start of the history", ":, -season:", ":, :season"),
    (12, "beyond a season the last value stands still", " % season", ".clamp(max=season - 1)"),
    (6, "the scale is taken from the targets",
     "(train[season:] - train[:-season]).abs()", "(target[:, season:] - target[:, :-season]).abs().flatten(0, 1)"),
    (6, "the scale compares with the value just before", "train[season:]", "train[1:]", ":-season", ":-1"),
    (9, "errors of different units are averaged before they are scaled",
     "(errors / changes).mean", "errors.mean() / changes.mean"),
    (12, "horizon 50", "torch.arange(horizon) % season", "(torch.arange(horizon) % season)[: 8 * season]"),
    (12, "numbers around 0.001", "(errors / changes)", "(errors / (changes + 1e-5))"),
    (12, "missing targets count as 0", "target - forecast", "target.nan_to_num(0.0) - forecast"),
    (12, "pairs with a missing value count as 0 in the scale", "().nanmean", "().nan_to_num(0.0).mean"),
]),
"train_forecaster": (FIRST, ["""def train_forecaster(history, target):
    updates, model = 500, new_forecaster()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.0)
    for step in range(updates):
        optimizer.param_groups[0]["lr"] = 3e-3 * min((step + 1) / (1 + updates // 10), 1.1 - step / updates)
        some = torch.randint(len(history), (128,))
        x, y = history[some], target[some]
        wrong = ((model(x) - y) / x.std(dim=1, keepdim=True))[~y.isnan()]
        loss = wrong.abs().mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model
""", """def train_forecaster(history, target):  # squared errors, in order through all windows
    model = new_forecaster()
    unit = history.flatten(0, 1).std(dim=0)
    optimizer = torch.optim.Adam(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=10 * 50)
    for _ in range(10):
        for rows in torch.randperm(len(history))[: 50 * 128].view(50, 128):
            y = target[rows]
            known = ~y.isnan()
            wrong = torch.where(known, model(history[rows]) - y.nan_to_num(0.0), 0.0) / unit
            optimizer.zero_grad()
            (wrong.square().sum() / known.sum()).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
    return model
"""], [
    (0, "no weight has changed", "500", "2", "\n        optimizer.step()", ""),
    (0, "has a missing target (NaN) come into the loss", "500", "2", "[~y.isnan()]", "", "wrong.abs", "wrong.square"),
    (0, "does a missing target (NaN) count as 0", "500", "60", "wrong =", "y = y.nan_to_num(0.0)\n        wrong =",
     "wrong.abs", "wrong.square"),
    (0, "it repeats the last day", "500", "60", "wrong =", "y = x[:, -24:]\n        wrong ="),
    (0, "it repeats the last value", "500", "60", "wrong =", "y = x[:, -1:].expand_as(y)\n        wrong ="),
    (8, "train longer", "500", "42"),
    (0, "it returned a model and something else", "500", "2", "return model", "return model, loss"),
    (0, "this is not a model of new_forecaster", "500", "2", "return model", "return model.encoder"),
]),
})  # fmt: skip
