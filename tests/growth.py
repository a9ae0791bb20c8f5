"""``python -m tests.growth``: how time and memory of a GPT grow with its sizes, ours beside transformers' GPT-2.

Measures on the CPU, each size in a process of its own with one thread, and writes the table into
``docs/performance.md`` and the figure ``docs/growth.svg``. Some minutes on a quiet machine.
"""

import json
import multiprocessing
import re
import time
import warnings
from pathlib import Path

import numpy as np
import torch

from tests.benchmarks import shared

DOCS = Path(__file__).parents[1] / "docs"
BASE = {"T": 128, "D": 256, "B": 8, "V": 2048}
AXES = {"T": (64, 128, 256, 512), "D": (64, 128, 256, 512), "B": (2, 8, 32, 128), "V": (2048, 8192, 32_768, 65_536)}
NAMES = {"T": "length (tokens)", "D": "width d_model", "B": "batch (texts)", "V": "vocabulary"}
MEASURES = {"step": "training step (ms)", "memory": "its memory (MiB)", "token": "writing a token to each text (ms)"}
BLOCKS, WRITTEN, ROUNDS = 4, 32, 5


def resident(key: str) -> float:
    """``VmRSS`` or ``VmHWM``, the most so far, of this process in MiB."""
    text = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(re.search(rf"{key}:\s+(\d+) kB", text)[1]) / 1024


def measure(whose: str, sizes: dict[str, int]) -> dict[str, float]:
    """Of one model at one size: the best of some rounds, since others on the machine only ever add time."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    from transformers import GPT2Config, GPT2LMHeadModel

    from coursekit.decode.generate import generate
    from coursekit.models.gpt import GPT, GPTConfig, gpt_loss
    from coursekit.train import adamw

    T, D, B, V = (sizes[name] for name in "TDBV")
    before = resident("VmRSS")
    config = {"vocab_size": V, "n_embd": D, "n_head": 4, "n_layer": BLOCKS, "n_positions": 1024, "bos_token_id": None}
    config |= {"eos_token_id": None, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    if whose == "ours":
        model = GPT(GPTConfig(V, D, n_heads=4, d_ff=4 * D, n_layers=BLOCKS, dropout=0.0))
    else:
        model = GPT2LMHeadModel(GPT2Config(**config, attn_implementation="sdpa"))
    ids, optimizer = torch.randint(V, (B, T + 1)), adamw(model, 1e-4)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        if whose == "ours":
            loss, count = gpt_loss(model, {"ids": ids})
            loss = loss / count
        else:
            loss = model(ids, labels=ids).loss  # of as many predictions
        loss.backward()
        optimizer.step()

    def write() -> None:
        prompt = ids[:, :T]
        if whose == "ours":
            generate(model, prompt, max_new=WRITTEN, temperature=0)
        else:
            model.generate(
                prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=WRITTEN, min_new_tokens=WRITTEN,
                do_sample=False,
            )  # fmt: skip

    times = [shared.seconds(step) for _ in range(1 + ROUNDS)][1:]
    found = {"step": 1000 * min(times), "memory": resident("VmHWM") - before}
    model.eval()
    with torch.inference_mode():
        found["token"] = 1000 * min(shared.seconds(write) for _ in range(3)) / WRITTEN
    return found


def exponent(sizes: tuple[int, ...], values: list[float]) -> float:
    """The slope in a plot with two logarithmic axes, between the two largest sizes."""
    return float(np.log(values[-1] / values[-2]) / np.log(sizes[-1] / sizes[-2]))


def table(found: dict[str, dict[str, list[dict[str, float]]]]) -> str:
    rows = ["| " + " | ".join(("what grows", "measure", "ours", "transformers", "ratio", "exponents")) + " |"]
    rows.append("|---|---|---|---|---|---|")
    for axis, by in found.items():
        for key, what in MEASURES.items():
            ours, theirs = ([one[key] for one in by[whose]] for whose in ("ours", "theirs"))
            shown = [" · ".join(f"{x:.3g}" if x < 100 else f"{x:.0f}" for x in values) for values in (ours, theirs)]
            ratios = [b / a for a, b in zip(ours, theirs)]
            powers = [exponent(AXES[axis], values) for values in (ours, theirs)]
            cells = (
                f"{NAMES[axis]}: {' · '.join(map(str, AXES[axis]))}",
                what,
                *shown,
                f"{min(ratios):.2f} to {max(ratios):.2f}",
                f"{powers[0]:.2f}, {powers[1]:.2f}",
            )
            rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def draw(found: dict[str, dict[str, list[dict[str, float]]]], path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import LogLocator

    from coursekit.viz.figures import COLORS
    from coursekit.viz.plots import STYLE

    with plt.rc_context(STYLE | {"font.size": 10, "axes.titlesize": 11, "svg.hashsalt": "growth"}):
        figure, grid = plt.subplots(3, 4, figsize=(12, 8), layout="constrained", sharex="col")
        for column, (axis, by) in zip(grid.T, found.items()):
            for ax, (key, what) in zip(column, MEASURES.items()):
                for whose, style, color in (("ours", "o-", COLORS[0]), ("theirs", "s--", COLORS[1])):
                    label = {"ours": "coursekit", "theirs": "transformers"}[whose]
                    ax.loglog(AXES[axis], [one[key] for one in by[whose]], style, color=color, label=label)
                ax.set_ylabel(what if axis == "T" else "")
                ax.set_xticks(AXES[axis], [f"{size}" if size < 10_000 else f"{size // 1024}k" for size in AXES[axis]])
                ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
                ax.yaxis.set_major_formatter("{x:,g}")
                ax.minorticks_off()
            column[-1].set_xlabel(NAMES[axis])
        grid[0, 0].legend(frameon=False)
        figure.savefig(path, metadata={"Date": None}, facecolor="white")


def main() -> None:
    spawn = multiprocessing.get_context("spawn")
    found, start = {}, time.monotonic()
    for axis, sizes in AXES.items():
        found[axis] = {"ours": [], "theirs": []}
        for size in sizes:
            for whose in ("ours", "theirs"):
                with spawn.Pool(1) as process:  # a new one, whose memory nobody has used
                    found[axis][whose].append(process.apply(measure, (whose, BASE | {axis: size})))
            print(f"{time.monotonic() - start:4.0f} s  {NAMES[axis]} {size}", flush=True)
    (DOCS.parent / "build").mkdir(exist_ok=True)
    (DOCS.parent / "build" / "growth.json").write_text(json.dumps(found, indent=1), encoding="utf-8")
    draw(found, DOCS / "growth.svg")
    path, machine = DOCS / "performance.md", f"One thread of {shared.processor()}, float32, {BLOCKS} blocks; "
    base = ", ".join(f"{NAMES[axis]} {size:,}" for axis, size in BASE.items())
    text = f"<!-- growth -->\n{machine}where nothing else is said, {base}.\n\n{table(found)}\n<!-- end -->"
    page = re.sub(r"<!-- growth -->.*?<!-- end -->", lambda _: text, path.read_text(encoding="utf-8"), flags=re.DOTALL)
    path.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
