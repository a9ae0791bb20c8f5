"""Fine-tuning the pre-trained GPT for tasks that are given by a prompt, and what pre-training was worth for them."""

from collections.abc import Sequence
from typing import Any

import torch

from coursekit.data.batches import Batch, Fresh
from coursekit.data.prompts import Prompted, as_ids
from coursekit.decode.text import complete
from coursekit.models.gpt import GPT, gpt_loss
from coursekit.text.bpe import BPE
from coursekit.train import Training, adamw, warmup_cosine

BATCH, RATE, WARMUP = 32, 1e-3, 20


def in_batches(pairs: Sequence[Prompted], tokenizer: BPE, batch_size: int = BATCH, seed: int = 0) -> Fresh:
    """Endless batches of ``as_ids``, each of pairs drawn at random, without the columns that are padding in all."""
    samples = as_ids(pairs, tokenizer)

    def make(generator: torch.Generator) -> Batch:
        chosen = torch.randint(len(pairs), (batch_size,), generator=generator)
        length = int(samples["mask"][chosen].sum(dim=1).max())
        return {name: rows[chosen, :length] for name, rows in samples.items()}

    return Fresh(make, seed)


def prompted_training(model: GPT, pairs: Sequence[Prompted], tokenizer: BPE, steps: int, **options: Any) -> Training:
    """A run that teaches ``model`` to write the targets of ``pairs``; ``options`` are those of ``Training``."""
    optimizer = adamw(model, RATE)
    schedule = warmup_cosine(min(WARMUP, steps // 2))
    return Training(model, gpt_loss, in_batches(pairs, tokenizer), optimizer, steps, schedule=schedule, **options)


def share_exact(model: GPT, tokenizer: BPE, pairs: Sequence[Prompted], max_new: int = 60) -> float:
    """The share of prompts behind which the model writes just the target, taking the most likely token each time."""
    written = complete(model, tokenizer, [prompt for prompt, _ in pairs], max_new)
    return sum(one == target for one, (_, target) in zip(written, pairs, strict=True)) / len(pairs)
