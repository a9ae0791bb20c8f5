"""How the loss of small GPTs falls with their size and with the computing spent on them: a scaling curve.

``python -m coursekit.recipes.scaling`` trains models of six widths on the same source files, in the same order, none of
them read twice, and writes ``checkpoints/scaling/metrics.json`` beside this file. The law is fitted to the five smaller
ones and has to predict the sixth. The command can be stopped and started again at will; no weights are kept.

In the metrics ``["runs"][width]`` is what ``run`` returns, width a number as a str; ``["checks"][width][factor]`` is
the same with another learning rate.

Source: Kaplan et al. (2020), arXiv 2001.08361; Hoffmann et al. (2022), arXiv 2203.15556, section 3.
"""

from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from scipy.optimize import curve_fit
from scipy.stats import t as student_t
from torch import Tensor, nn

from coursekit.data import code
from coursekit.data.batches import Shuffled
from coursekit.data.packing import pack
from coursekit.models.gpt import GPT, GPTConfig, gpt_loss
from coursekit.recipes import CHECKPOINTS
from coursekit.recipes.runs import Clock, data_hash, each_once, read_command, to_the_end, versions
from coursekit.text.bpe import BPE, END
from coursekit.text.tokenizer_json import load_tokenizer, save_tokenizer
from coursekit.train import EMA, Training, adamw, device, seed
from coursekit.train.checkpoint import save_json

METRICS = CHECKPOINTS / "scaling" / "metrics.json"
VOCAB_SIZE, LENGTH, N_LAYERS, HEAD = 512, 128, 3, 8
WIDTHS, PREDICTED = (16, 24, 40, 64, 104), 176
BATCH, STEPS, EVERY, WARMUP = 8, 1000, 100, 50
ROWS = {"train": BATCH * STEPS, "validation": 200, "test": 800}  # of LENGTH tokens each
DECAY = 0.96  # of the average of weights that is measured, so that every point is as good as an end of training


def rate(width: int) -> float:
    """The learning rate of a width: smaller for larger models, ``0.024 / sqrt(width)``."""
    return 0.024 / width**0.5


# --- texts ---------------------------------------------------------------------------------------------------


def files(split: str) -> list[str]:
    """The source files of a split in an order drawn once."""
    texts = [document.text for document in code.documents(split)]
    Random(split).shuffle(texts)
    return texts


def read_tokenizer(folder: Path) -> BPE:
    path = folder / "tokenizer.json"
    if not path.exists():
        save_tokenizer(BPE.train(files("train"), VOCAB_SIZE, [END]), path)
    return load_tokenizer(path)


@cache
def rows(split: str, tokenizer: BPE) -> Tensor:
    """``ROWS`` of a split, (N, LENGTH + 1), drawn at random from its files."""
    found = pack([tokenizer.encode(text) for text in files(split)], LENGTH, tokenizer.ids[END])
    generator = torch.Generator().manual_seed(0)
    return found[torch.randperm(len(found), generator=generator)[: ROWS[split]]]


# --- the runs ------------------------------------------------------------------------------------------------


@torch.no_grad()
def loss_of(model: nn.Module, found: Tensor) -> float:
    """Nats per token on rows (N, LENGTH + 1)."""
    where = next(model.parameters()).device
    sums = [gpt_loss(model, {"ids": part.to(where)}) for part in found.split(100)]
    return sum(total.item() for total, _ in sums) / sum(int(count) for _, count in sums)


def run(width: int, folder: Path, clock: Clock, factor: float = 1.0) -> dict[str, Any]:
    """Train one width, or go on with it where ``folder`` says, and measure it.

    Args:
        factor: on the learning rate; other than 1 to check that the rule for it favours no size.

    Returns:
        ``n``, the weights in matrix products; ``curve``, nats per validation token over training; ``test``, at the end.
    """
    tokenizer = read_tokenizer(folder)
    seed(0)
    sizes = {"d_model": width, "n_heads": max(1, width // HEAD), "d_ff": 4 * width, "n_layers": N_LAYERS}
    model = GPT(GPTConfig(VOCAB_SIZE, max_length=LENGTH, dropout=0.0, **sizes)).to(device())
    ema = EMA(model, DECAY)
    training = Training(
        model,
        gpt_loss,
        Shuffled({"ids": rows("train", tokenizer)}, BATCH),
        adamw(model, factor * rate(width), weight_decay=0.1, betas=(0.9, 0.95)),
        STEPS,
        schedule=lambda step, _: min(1.0, (step + 1) / WARMUP),  # constant, so that each point ends a run of its own
        evaluate=lambda _: {"validation": loss_of(ema.average, rows("validation", tokenizer))},
        monitor="validation",
        evaluate_every=EVERY,
        save_every=EVERY,
        log_every=EVERY,
        ema=ema,
        folder=folder / f"{width} {factor:g}",
        precision="float32",
    )
    to_the_end(training, f"width {width}, rate {factor:g}", clock)
    return {
        "n": 12 * N_LAYERS * width**2 + VOCAB_SIZE * width,  # in blocks and in the output
        "rate": factor * rate(width),
        "curve": {str(record["step"]): record["validation"] for record in training.history if "validation" in record},
        "test": loss_of(ema.average, rows("test", tokenizer)),
    }


# --- the law -------------------------------------------------------------------------------------------------


def law(n: np.ndarray, floor: float, scale: float, exponent: float) -> np.ndarray:
    """``loss(N) = floor + scale (N / 10^5)^-exponent``, nats per token, for models of N weights."""
    return floor + scale * (np.asarray(n) / 1e5) ** -exponent


def predicted(n: Sequence[float], losses: Sequence[float], new: float) -> dict[str, Any]:
    """Fit ``law`` by least squares, and say what it expects of a model of ``new`` weights.

    Returns:
        ``law``, its three numbers; ``loss``; and ``low`` and ``high``, the ends of the 95 % prediction interval of
        nonlinear regression: ``t_{0.975, n - 3} s sqrt(1 + g C g^T / s^2)``, where s is the scatter about the law, C
        the covariance of its numbers and g the gradient of the law in them at ``new``.

    Source: Seber and Wild (1989), Nonlinear Regression, section 5.1.
    """
    n, losses = np.asarray(n, float), np.asarray(losses, float)
    begin = (0.8 * losses.min(), losses.mean() - 0.8 * losses.min(), 0.3)
    bounds = ([0, 0, 0.01], [losses.min(), np.inf, 2])
    numbers, _ = curve_fit(law, n, losses, begin, bounds=bounds)

    def slopes(at: np.ndarray) -> np.ndarray:
        power = (at / 1e5) ** -numbers[2]
        return np.stack([np.ones_like(at), power, -numbers[1] * power * np.log(at / 1e5)], axis=-1)

    free = len(n) - 3
    scatter = np.sqrt(((losses - law(n, *numbers)) ** 2).sum() / free)
    at_new, inverse = slopes(np.array([float(new)])), np.linalg.inv(slopes(n).T @ slopes(n))
    half = student_t.ppf(0.975, free) * scatter * np.sqrt(1 + (at_new @ inverse @ at_new.T).item())
    loss, half = law(new, *numbers).item(), float(half)
    return {"law": numbers.tolist(), "loss": loss, "low": loss - half, "high": loss + half}


def main(arguments: Sequence[str] | None = None) -> None:
    alone = {"scaling": "these are many short runs, one after another"}
    _, folder, out, _ = read_command("scaling", __doc__, arguments, alone=alone)
    kept, clock = folder / "metrics.json", Clock(folder / "seconds.json")
    pieces: dict[tuple[str, ...], Any] = {
        ("runs", str(width)): partial(run, width, folder, clock) for width in (*WIDTHS, PREDICTED)
    }
    pieces |= {
        ("checks", str(width), str(factor)): partial(run, width, folder, clock, factor)
        for width in (WIDTHS[0], WIDTHS[-1])
        for factor in (0.5, 2.0)
    }
    found = each_once(pieces, kept)
    about: Mapping[str, Any] = {
        "command": "python -m coursekit.recipes.scaling",
        "tokens": STEPS * BATCH * LENGTH,
        "seconds": round(clock.seconds()),
        "versions": versions(),
        "data": data_hash({split: files(split) for split in ROWS}),
    }
    save_json(METRICS if out is None else out / "scaling" / "metrics.json", about | found)


if __name__ == "__main__":
    main()
