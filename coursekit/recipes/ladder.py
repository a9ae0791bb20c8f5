"""From GPT-2's decoder to Llama's, one change after another: what each is worth to a small model.

``python -m coursekit.recipes.ladder`` trains lecture 06's GPT and what becomes of it with each of ``SWAPS`` added to
those before, with as many parameters (within 1 %), on the same rows in the same order, with several seeds, and writes
``checkpoints/ladder/metrics.json`` beside this file. It can be stopped and started again at will; no weights are kept.

In the metrics ``["runs"][swap][seed]`` is what ``run`` returns, for ``"GPT"`` and for each swap, which is added to all
of those above it; ``["checks"][swap][factor]`` is the same with another learning rate, for the first and the last.

``python -m coursekit.recipes.ladder ladder-further`` asks what a single KV head costs, beside two of them on the same
machine, and writes ``checkpoints/ladder-further`` in the same layout. (What the models read differs a little from one
version of Python to the next, so compare runs of one file; those that are in both say how much the machines differ.)
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from coursekit.data.batches import Shuffled
from coursekit.data.packing import pack
from coursekit.evaluate.language import SlidingWindow, perplexity
from coursekit.models.gpt import GPT, GPTConfig, gpt_loss
from coursekit.nn.blocks import Block, FeedForward
from coursekit.nn.cache import Cache
from coursekit.nn.grouped_query import GroupedQueryAttention
from coursekit.nn.norms import RMSNorm
from coursekit.nn.rotary import rotary_angles, rotary_frequencies, rotate
from coursekit.recipes import CHECKPOINTS, gpt
from coursekit.recipes.runs import Clock, each_once, read_command, to_the_end, versions
from coursekit.text.bpe import END
from coursekit.train import Training, adamw, device, seed, warmup_cosine
from coursekit.train.checkpoint import save_json

METRICS = CHECKPOINTS / "ladder" / "metrics.json"
SWAPS = ("no biases", "RMSNorm", "rotary positions", "SwiGLU", "two KV heads")
FURTHER = "one KV head"  # the last rung with a single head of keys and values in place of two
NAMES = ("GPT", *SWAPS, FURTHER)  # by height
SEEDS, FEW_SEEDS, STEPS, BATCH, RATE, WARMUP = range(5), range(3), 600, 16, 1.5e-3, 60
LENGTH, DOCUMENTS = 256, 40  # tokens of a row; of each source to measure on
# Widths of the feed-forward networks that keep the number of parameters: positions that are not learned leave room, a
# gate is a third matrix, and fewer KV heads (heads of keys and values) leave room again.
D_FF = {"GPT": 1024, "rotary positions": 1056, "SwiGLU": 704, "two KV heads": 832, FURTHER: 853}
KV_HEADS = {"two KV heads": 2, FURTHER: 1}


class Rung(GPT):
    """Lecture 06's GPT with the first so many of ``SWAPS``; with all of them, or ``FURTHER``, it is a ``Llama``."""

    def __init__(self, height: int):
        swapped = NAMES[: height + 1]
        bias = "no biases" not in swapped
        d_ff = [width for name, width in D_FF.items() if name in swapped][-1]
        sizes = gpt.SIZES | {"d_ff": d_ff, "max_length": LENGTH, "dropout": 0.0}
        super().__init__(GPTConfig(gpt.VOCAB_SIZE, **sizes))
        c = self.config
        norm = RMSNorm if "RMSNorm" in swapped else partial(nn.LayerNorm, bias=bias)
        gated = "SwiGLU" in swapped
        self.blocks = nn.ModuleList(
            Block(
                GroupedQueryAttention(c.d_model, c.n_heads, KV_HEADS.get(swapped[-1]), bias=bias),
                FeedForward(c.d_model, c.d_ff, "silu" if gated else "gelu_tanh", bias, gated=gated),
                norm=norm,
            )
            for _ in range(c.n_layers)
        )
        self.norm = norm(c.d_model)
        self.init_weights()
        self.rotary = "rotary positions" in swapped
        if self.rotary:
            self.positions = nn.Identity()

    def hidden(self, ids: Tensor, mask: Tensor | None = None, caches: list[Cache] | None = None) -> Tensor:
        """As in ``GPT``, for rows without padding and without a cache."""
        if not self.rotary:
            return super().hidden(ids, mask, caches)
        frequencies = rotary_frequencies(self.config.d_model // self.config.n_heads, device=ids.device)
        cos, sin = rotary_angles(torch.arange(ids.shape[1], device=ids.device), frequencies)
        x = self.tokens(ids)
        for block in self.blocks:
            x = block(x, causal=True, rotary=partial(rotate, cos=cos, sin=sin))
        return self.norm(x)


@cache
def rows() -> Tensor:
    """What all of them read, (STEPS * BATCH, LENGTH + 1): drawn from one pass over lecture 06's texts."""
    tokenizer = gpt.load()[1]
    documents = gpt.in_one_pass(gpt.encode(gpt.corpus("gpt-documentation"), tokenizer))
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(documents), generator=generator).tolist()
    found = pack([documents[i] for i in order], LENGTH, tokenizer.ids[END])
    return found[torch.randperm(len(found), generator=generator)[: STEPS * BATCH]]


def bits_of_each_source(model: GPT) -> dict[str, float]:
    """Of each source's test documents."""
    tokenizer, found = gpt.load()[1], {}
    window = SlidingWindow(model, tokenizer.ids[END])
    for source, texts in gpt.corpus("gpt-documentation", "test").items():
        some = [text[:3000] for text in texts[:: max(1, len(texts) // DOCUMENTS)]]
        of_source = perplexity(window, [tokenizer.encode(text) for text in some], sum(map(len, some)))
        found[source] = of_source.bits_per_character
    return found


def run(height: int, start: int, folder: Path, clock: Clock, factor: float = 1.0) -> dict[str, Any]:
    """Train one model, or go on with it where ``folder`` says, and measure it.

    Args:
        height: how many of ``SWAPS`` it has; one more for ``FURTHER``.
        start: the seed of its weights and of the order of its rows.
        factor: on the learning rate; other than 1 to check that it favours neither end of the ladder.

    Returns:
        ``parameters``, ``bits per character`` of each source, and ``loss``, the mean of the last hundred updates.
    """
    seed(start)
    model = Rung(height).to(device())
    optimizer = adamw(model, factor * RATE, weight_decay=0.1, betas=(0.9, 0.95))
    settings = {"log_every": 100, "save_every": 200, "folder": folder / f"{height} {start} {factor:g}"}
    data = Shuffled({"ids": rows()}, BATCH, start)
    training = Training(model, gpt_loss, data, optimizer, STEPS, schedule=warmup_cosine(WARMUP, floor=0.05), **settings)
    to_the_end(training, f"{height} swaps, seed {start}, rate {factor:g}", clock)
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "bits per character": bits_of_each_source(model.eval()),
        "loss": training.history[-1]["loss"],
    }


def pieces(variant: str, folder: Path, clock: Clock) -> dict[tuple[str, ...], Callable[[], Any]]:
    """What is computed, by its place in the metrics."""
    top, further = len(SWAPS), variant != "ladder"
    starts, heights = (FEW_SEEDS, (top, top + 1)) if further else (SEEDS, range(top + 1))
    found: dict[tuple[str, ...], Callable[[], Any]] = {
        ("runs", NAMES[height], str(start)): partial(run, height, start, folder, clock)
        for start in starts
        for height in heights
    }
    checks: dict[tuple[str, ...], Callable[[], Any]] = {
        ("checks", NAMES[height], str(factor)): partial(run, height, 0, folder, clock, factor)
        for height in (0, top)
        for factor in (0.5, 2.0)
    }
    return found if further else found | checks


def main(arguments: Sequence[str] | None = None) -> None:
    variants = ("ladder", "ladder-further")
    alone = dict.fromkeys(variants, "these are many short runs, one after another")
    variant, folder, out, _ = read_command("ladder", __doc__, arguments, variants, alone=alone)
    clock = Clock(folder / "seconds.json")
    found = each_once(pieces(variant, folder, clock), folder / "metrics.json")
    about = {
        "command": f"python -m coursekit.recipes.ladder {variant}",
        "tokens": STEPS * BATCH * LENGTH,
        "seconds": round(clock.seconds()),
        "device": device().type,
        "versions": versions(),
    }
    metrics = METRICS.parent.with_name(variant) / METRICS.name
    save_json(metrics if out is None else out / variant / "metrics.json", about | found)


if __name__ == "__main__":
    main()
