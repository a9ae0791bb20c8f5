"""BERT beside transformers' at the same shapes, with the same weights.

At base width with three blocks of the twelve, which are all alike; dropout as published.

Forward passes and the body alone are as fast as theirs and no faster: both spend nine tenths of the time in the same
kernels of PyTorch. A step of pre-training gains by the words that are not guessed, since theirs are masked after the
logits of all places are there.
"""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from coursekit.convert.bert import from_hugging_face
from coursekit.data.batches import Batch
from coursekit.data.pretraining import places_of
from coursekit.models.bert import BertForPreTraining, pretraining_loss
from coursekit.train import adamw
from coursekit.train.device import autocast, has_fast_bf16
from tests.benchmarks.machine import devices, mean, training, wait
from tests.benchmarks.shared import PAR, Row, race

# name: B, T, D, H, F, blocks, V, passes in a measurement
SHAPES = {
    "base width, 3 blocks": (8, 128, 768, 12, 3072, 3, 30_522, 1),
    "lecture, 2 blocks": (32, 64, 128, 2, 512, 2, 4000, 5),
}
MASKED = 1.3  # the aim of what computes logits only where words are masked; theirs does everywhere


def both(shape: str, device: torch.device) -> tuple[BertForPreTraining, nn.Module, Batch]:
    """Ours, theirs, and a batch with padding in which 15 % are masked."""
    from transformers import BertConfig
    from transformers import BertForPreTraining as Theirs

    torch.manual_seed(0)
    B, T, D, H, width, blocks, V, _ = SHAPES[shape]
    config = BertConfig(
        **{"vocab_size": V, "hidden_size": D, "num_hidden_layers": blocks, "num_attention_heads": H},
        **{"intermediate_size": width, "attn_implementation": "sdpa"},
    )
    theirs = Theirs(config).to(device)
    ours = from_hugging_face(BertForPreTraining, config.to_dict(), theirs.state_dict()).to(device)
    ids = torch.randint(5, V, (B, T), device=device)
    mask = torch.arange(T, device=device) < torch.randint(T // 2, T + 1, (B, 1), device=device)
    masked = mask & (torch.rand(B, T, device=device) < 0.15)
    segments = (torch.arange(T, device=device) >= T // 3).long().expand(B, T)
    label = torch.randint(2, (B,), device=device)
    return (
        ours,
        theirs,
        {
            **{"ids": ids, "mask": mask, "segments": segments},
            **{"target": ids, "masked": masked, "places": places_of(masked), "labels": label},
        },
    )


def forward(bert: nn.Module, batch: Batch, precision: str, times: int, everywhere: bool) -> Callable[[], None]:
    """All logits of words and of the next sentence (``everywhere``), or the states of the body alone."""
    inputs = [batch[name] for name in ("ids", "mask", "segments")]
    ours = isinstance(bert, BertForPreTraining)
    model = bert if everywhere else bert.bert
    bert.eval()

    def work() -> None:
        with torch.inference_mode(), autocast(inputs[0].device, precision):
            for _ in range(times):
                model(*inputs) if ours else model(inputs[0], inputs[1].long(), inputs[2])
        wait(inputs[0].device)

    return work


def train(bert: nn.Module, batch: Batch, precision: str, times: int) -> Callable[[], None]:
    """Training steps as each library's users take them: theirs computes the logits of all places."""
    labels = batch["target"].masked_fill(~batch["masked"], -100)
    inputs = {"input_ids": batch["ids"], "attention_mask": batch["mask"].long(), "token_type_ids": batch["segments"]}

    def loss() -> torch.Tensor:
        if isinstance(bert, BertForPreTraining):
            return mean(pretraining_loss(bert, batch))
        return bert(**inputs, labels=labels, next_sentence_label=batch["labels"]).loss

    return training(bert, loss, labels.device, precision, times)


def body_step(bert: nn.Module, batch: Batch, precision: str, times: int) -> Callable[[], None]:
    """Forward and backward pass of the body alone, without heads: fine-tuning, all but its thin layer."""
    ours, body = isinstance(bert, BertForPreTraining), bert.bert
    inputs = [batch["ids"], batch["mask"] if ours else batch["mask"].long(), batch["segments"]]
    optimizer = adamw(body, lr=1e-4)
    bert.train()

    def work() -> None:
        for _ in range(times):
            optimizer.zero_grad(set_to_none=True)
            with autocast(inputs[0].device, precision):
                out = body(*inputs) if ours else body(*inputs).last_hidden_state
            out.float().pow(2).mean().backward()
            optimizer.step()
        wait(inputs[0].device)

    return work


def head(bert: BertForPreTraining, batch: Batch, everywhere: bool, times: int) -> Callable[[], None]:
    """The head for masked words and its loss, forward and backward: at the masked places, or at all of them."""
    hidden = torch.randn(*batch["ids"].shape, bert.bert.config.d_model, device=batch["ids"].device, requires_grad=True)
    masked, target = batch["masked"], batch["target"][batch["masked"]]

    def work() -> None:
        for _ in range(times):
            logits = bert.guess(hidden)[masked] if everywhere else bert.guess(hidden[masked])
            F.cross_entropy(logits, target).backward()
        wait(masked.device)

    return work


def beside(shape: str, device: torch.device) -> Iterator[Row]:
    """Forward passes, training steps and the head at one shape."""
    ours, theirs, batch = both(shape, device)
    times = SHAPES[shape][-1]

    def row(what: str, ours: Callable, theirs: Callable, aim: float | None, against: str = "transformers") -> Row:
        of = Row("05 BERT", f"{device}: {shape}: {what}", against, at_least=aim, measured_in="passes/s")
        return race(of, ours, theirs, amount=times)

    for what, everywhere in (("forward, body", False), ("forward, all logits", True)):
        args = batch, "float32", times, everywhere
        yield row(what, forward(ours, *args), forward(theirs, *args), PAR)
    args = batch, "float32", times
    yield row("training step, body", body_step(ours, *args), body_step(theirs, *args), PAR)
    yield row("training step", train(ours, *args), train(theirs, *args), MASKED)
    if has_fast_bf16(device):
        step = train(ours, batch, "bfloat16", times)
        yield row("training step, bfloat16", step, train(theirs, *args), 1.6, "transformers, float32")
    heads = head(ours, batch, False, times), head(ours, batch, True, times)
    yield row("head at masked places", *heads, None, "ours at all places")


def parts() -> list[Callable[[], Iterator[Row]]]:
    return [partial(beside, shape, device) for device in devices() for shape in SHAPES]
