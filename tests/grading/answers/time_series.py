"""Answers to exercise 10, wrong ones with the points they deserve and the words they must be told, and right ones.

A wrong answer is ``(points, words, source)``. Each is a mistake that a student could make.
"""


def splitting(
    fill="torch.where(values[t].isnan(), filled[t - 1], values[t])",
    filled="filled",
    past="values[:cut]",
    deviation="(past - mean).square().nanmean(dim=0).sqrt()",
    history="start - history : start",
    target="values[start : start + horizon]",
    known="fill_gaps(values)",
):
    """Hour by hour, and something else in it."""
    return f"""
def fill_gaps(values):
    filled = values.clone()
    for t in range(1, len(values)):
        filled[t] = {fill}
    return {filled}

def scale_of(values, cut):
    past = {past}
    mean = past.nanmean(dim=0)
    return mean, {deviation}

def cut_windows(values, history, horizon, begin, end):
    known = {known}
    starts = range(begin, end - horizon + 1)
    histories = [known[{history}] for start in starts]
    return torch.stack(histories), torch.stack([{target} for start in starts])
"""


def standing(
    std="(x.var(dim=1, correction=0, keepdim=True) + 1e-5).sqrt()",
    mean="x.mean(dim=1, keepdim=True)",
    back="y * std + mean",
    through="from_standard(model(z), mean, std)",
):
    """The three functions, and something else in them."""
    return f"""
def to_standard(x):
    mean = {mean}
    std = {std}
    return (x - mean) / std, mean, std

def from_standard(y, mean, std):
    return {back}

def forecast_with(model, history):
    z, mean, std = to_standard(history)
    return {through}
"""


def cutting(patches="x[..., (x.shape[-1] - size) % stride :].unfold(-1, size, stride)", series="x.mT.flatten(0, 1)"):
    """Both functions, and something else in them."""
    return f"""
def patches_of(x, size, stride):
    return {patches}

def channel_tokens(x, size, stride):
    return patches_of({series}, size, stride)
"""


def tilting(
    losses="torch.where(above > 0, q * above, (q - 1) * above)",
    target="target",
    q="torch.tensor(levels)",
    mean="losses[~losses.isnan()].mean()",
):
    """Both functions, and something else in them."""
    return f"""
def quantile_losses(forecast, target, levels):
    above, q = {target}[..., None] - forecast, {q}
    return {losses}

def quantile_loss(forecast, target, levels):
    losses = quantile_losses(forecast, target, levels)
    return {mean}
"""


def comparing(
    last="history[:, -season:]",
    hours="torch.arange(horizon) % season",
    target="target",
    changes="(train[season:] - train[:-season]).abs().nanmean(dim=0)",
    errors="wrong.flatten(0, 1).nanmean(dim=0)",
    result="(errors / changes).mean()",
):
    """Both functions, and something else in them."""
    return f"""
def season_again(history, horizon, season):
    return {last}[:, {hours}]

def scaled_error(forecast, target, train, season):
    wrong = ({target} - forecast).abs()
    errors = {errors}
    changes = {changes}
    return {result}
"""


def learning(
    updates=2,
    after="y",
    wrong="((model(x) - y) / x.std(dim=1, keepdim=True))[~y.isnan()]",
    loss="wrong.abs().mean()",
    step="optimizer.step()",
    returned="model",
):
    """A loop over updates, and something else in it."""
    return f"""
def train_forecaster(history, target):
    updates, model = {updates}, new_forecaster()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.0)
    for step in range(updates):
        optimizer.param_groups[0]["lr"] = 3e-3 * min((step + 1) / (1 + updates // 10), 1.1 - step / updates)
        some = torch.randint(len(history), (128,))
        x, y = history[some], target[some]
        y = {after}
        wrong = {wrong}
        loss = {loss}
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        {step}
    return {returned}
"""


MUTANTS = {
    "no_leaks": [
        (9, "gaps are filled from the future", splitting(filled="next_known(values)") + """
def next_known(values):
    filled = values.clone()
    for t in range(len(values) - 2, -1, -1):
        filled[t] = torch.where(values[t].isnan(), filled[t + 1], values[t])
    return filled
"""),
        (9, "gaps are filled on a line to the next value", splitting(filled="""torch.stack([
        torch.from_numpy(np.interp(range(len(x)), (~x.isnan()).nonzero()[:, 0].numpy(), x[~x.isnan()].numpy())).float()
        for x in values.T
    ], dim=1)""") + "\nimport numpy as np\n"),
        (14, "the scale is that of all hours", splitting(past="values")),
        (14, "the deviation is divided by n - 1", splitting(
            deviation="torch.stack([column[~column.isnan()].std() for column in past.T])"
        )),
        (14, "missing values are filled before the scale is taken", splitting(past="fill_gaps(values)[:cut]")),
        (8, "the history holds the first hour of the target", splitting(history="start - history + 1 : start + 1")),
        (13, "the targets are filled, too", splitting(target="known[start : start + horizon]")),
        (13, "the series is cut before its gaps are filled", splitting(
            known="torch.cat([values[: begin - history], fill_gaps(values[begin - history :])])")),
    ],
    "normalising": [
        (2, "the variance is divided by L - 1", standing("(x.var(1, keepdim=True) + 1e-5).sqrt()")),
        (10, "1e-5 is added to the deviation", standing("x.std(1, correction=0, keepdim=True) + 1e-5")),
        (10, "1e-5 is missing", standing("x.std(1, correction=0, keepdim=True)")),
        (2, "this is divided by the variance", standing("x.var(1, correction=0, keepdim=True) + 1e-5")),
        (9, "this is not brought back", standing(through="model(z)")),
        (7, "the mean is added first", standing(back="(y + mean) * std")),
        (7, "only the deviation comes back", standing(back="y * std")),
        (2, "mean and deviation are those of all histories together", standing(
            "(x.var(dim=(0, 1), correction=0) + 1e-5).sqrt().expand(len(x), 1, -1)",
            "x.mean(dim=(0, 1)).expand(len(x), 1, -1)",
        )),
    ],
    "patching": [
        (5, "the patches begin with the first number", cutting("x.unfold(-1, size, stride)")),
        (2, "the patches stand side by side", cutting("x[..., x.shape[-1] % size :].unfold(-1, size, size)")),
        (0, "`stride` numbers lie between the patches", cutting(
            "x[..., (x.shape[-1] - size) % (size + stride) :].unfold(-1, size, size + stride)"
        )),
        (0, "the patches come in the reverse order", """
def patches_of(x, size, stride):
    ends = range(x.shape[-1], size - 1, -stride)
    return torch.stack([x[..., end - size : end] for end in ends], dim=-2)

def channel_tokens(x, size, stride):
    return patches_of(x.transpose(1, 2).flatten(0, 1), size, stride)
"""),
        (0, "the end is padded with its last value", cutting(
            "torch.cat([x, x[..., -1:].expand(*x.shape[:-1], stride)], dim=-1).unfold(-1, size, stride)"
        )),
        (9, "hours and quantities are mixed", cutting(series="x.reshape(-1, x.shape[1])")),
        (9, "the first quantity of all windows comes first", cutting(series="x.permute(2, 0, 1).flatten(0, 1)")),
        (0, "the last patch is missing", cutting(
            "torch.stack([x[..., i : i + size] for i in range((x.shape[-1] - size) % stride, "
            "x.shape[-1] - size, stride)] or [x[..., :0]], dim=-2)"
        )),
    ],
    "quantiles": [
        (0, "the sides have changed places", tilting(q="1 - torch.tensor(levels)")),
        (0, "this is the absolute error, whatever the level", tilting("above.abs()")),
        (0, "this is the absolute error times the level", tilting("q * above.abs()")),
        (0, "the loss is below 0 on one side", tilting("torch.where(above > 0, q, 1 - q) * above")),
        (8, "missing targets count as 0", tilting(target="target.nan_to_num(0.0)")),
        (8, "missing targets are counted in the mean", tilting(mean="losses.nansum() / losses.numel()")),
        (8, "one missing target makes the mean NaN", tilting(mean="losses.mean()")),
        (6, "the levels are added up", tilting(mean="losses.sum(dim=-1).nanmean()")),
    ],
    "baselines": [
        (9, "this is the last value, again and again", comparing("history[:, -1:]", "torch.arange(horizon) * 0")),
        (9, "this is the season at the start of the history", comparing("history[:, :season]")),
        (12, "beyond a season the last value stands still", comparing(
            hours="torch.arange(horizon).clamp(max=season - 1)"
        )),
        (6, "the scale is taken from the targets", comparing(
            changes="(target[:, season:] - target[:, :-season]).abs().flatten(0, 1).nanmean(dim=0)"
        )),
        (6, "the scale compares with the value just before", comparing(
            changes="(train[1:] - train[:-1]).abs().nanmean(dim=0)"
        )),
        (9, "errors of different units are averaged before they are scaled", comparing(
            result="errors.mean() / changes.mean()"
        )),
        (12, "missing targets count as 0", comparing(target="target.nan_to_num(0.0)")),
        (12, "pairs with a missing value count as 0 in the scale", comparing(
            changes="(train[season:] - train[:-season]).abs().nan_to_num(0.0).mean(dim=0)"
        )),
    ],
    "train_forecaster": [
        (0, "no weight has changed", learning(step="")),
        (0, "has a missing target (NaN) come into the loss", learning(
            wrong="(model(x) - y) / x.std(dim=1, keepdim=True)", loss="wrong.square().mean()"
        )),
        (0, "does a missing target (NaN) count as 0", learning(
            60, "y.nan_to_num(0.0)", loss="wrong.square().mean()"
        )),
        (0, "it repeats the last day", learning(60, "x[:, -24:]")),
        (0, "it repeats the last value", learning(60, "x[:, -1:].expand_as(y)")),
        (8, "train longer", learning(42)),
        (0, "it returned a model and something else", learning(returned="model, loss")),
        (0, "this is not a model of new_forecaster", learning(returned="model.encoder")),
    ],
}  # fmt: skip

RIGHT = {
    "no_leaks": [
        splitting(),
        """
def fill_gaps(values):  # the number of the last row that is known
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
""",
        """
def fill_gaps(values):  # again and again, one hour farther each time
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
""",
    ],
    "normalising": [
        standing(),
        """
def to_standard(x):
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
""",
    ],
    "patching": [
        cutting(),
        """
def patches_of(x, size, stride):  # places of all numbers at once
    N = (x.shape[-1] - size) // stride + 1
    first = x.shape[-1] - size - stride * torch.arange(N - 1, -1, -1)
    return x[..., first[:, None] + torch.arange(size)]

def channel_tokens(x, size, stride):
    return torch.cat([patches_of(window.T, size, stride) for window in x])
""",
        """
def patches_of(x, size, stride):
    found, end = [], x.shape[-1]
    while end - size >= 0:
        found.insert(0, x[..., end - size : end])
        end = end - stride
    return torch.stack(found, -2)

def channel_tokens(x, size, stride):
    B, L, C = x.shape
    return patches_of(x.permute(0, 2, 1).reshape(B * C, L), size, stride)
""",
    ],
    "quantiles": [
        tilting(),
        """
def quantile_losses(forecast, target, levels):  # two hinges
    columns = []
    for k, level in enumerate(levels):
        too_low, too_high = target - forecast[..., k], forecast[..., k] - target
        columns.append(level * too_low.clamp(min=0) + (1 - level) * too_high.clamp(min=0))
    return torch.stack(columns, dim=-1)

def quantile_loss(forecast, target, levels):
    known = ~target.isnan()
    return quantile_losses(forecast[known], target[known], levels).mean()
""",
        tilting("(q - (above < 0).float()) * above", mean="losses.nansum() / (~losses.isnan()).sum()"),
    ],
    "baselines": [
        comparing(),
        """
def season_again(history, horizon, season):
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
""",
    ],
    "train_forecaster": [
        learning(500),
        """
def train_forecaster(history, target):  # squared errors in units of the whole series, in order through all windows
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
""",
    ],
}  # fmt: skip
