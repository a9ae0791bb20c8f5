"""BERT beside transformers' at the same shapes, with the same weights: seconds of both, in one run.

``python -m tests.bench_bert`` prints a table; a ratio above 1 means that ours is faster. On cuda too, where there is
one. At base width with three blocks of the twelve, which are all alike; dropout as published.

Forward passes and the body alone are as fast as theirs and no faster: both spend nine tenths of the time in the same
kernels of PyTorch. A step of pre-training gains by the words that are not guessed, since theirs are masked after the
logits of all places are there.
"""

from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.nn import functional as F

from coursekit.convert.bert import from_hugging_face
from coursekit.models.bert import BertForPreTraining, pretraining_loss
from coursekit.train import adamw
from coursekit.train.device import autocast, has_fast_bf16
from tests.bench import ROUNDS, alternate
from tests.bench_transformer import wait

# name: B, T, D, H, F, blocks, V, passes in a measurement
SHAPES = {
    "base width, 3 blocks": (8, 128, 768, 12, 3072, 3, 30_522, 1),
    "lecture, 2 blocks": (32, 64, 128, 2, 512, 2, 4000, 5),
    "lecture, 4 blocks": (32, 64, 128, 2, 512, 4, 4000, 3),
}
AIMS = {"base width, 3 blocks": "≥ 1.0", "lecture, 2 blocks": "≥ 1.3", "lecture, 4 blocks": "≥ 1.3"}
Batch = dict[str, torch.Tensor]


def both(shape: str, device: torch.device) -> tuple[BertForPreTraining, nn.Module, Batch]:
    """Ours, theirs, and a batch with padding in which 15 % are masked."""
    from transformers import BertConfig
    from transformers import BertForPreTraining as Theirs

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
            **{"target": ids, "masked": masked, "label": label},
        },
    )


def forward(bert: nn.Module, batch: Batch, precision: str, times: int, everywhere: bool) -> Callable[[], None]:
    """All logits of words and of the next sentence (``everywhere``), or the states of the body alone."""
    inputs = [batch[name] for name in ("ids", "mask", "segments")]
    ours = isinstance(bert, BertForPreTraining)
    model = bert if everywhere else bert.bert

    def work() -> None:
        with torch.inference_mode(), autocast(inputs[0].device, precision):
            for _ in range(times):
                model(*inputs) if ours else model(inputs[0], inputs[1].long(), inputs[2])
        wait(inputs[0].device)

    return work


def train(bert: nn.Module, batch: Batch, precision: str, times: int) -> Callable[[], None]:
    """Training steps as each library's users take them: theirs computes the logits of all places."""
    ours = isinstance(bert, BertForPreTraining)
    optimizer = adamw(bert, lr=1e-4)
    labels = batch["target"].masked_fill(~batch["masked"], -100)
    inputs = {"input_ids": batch["ids"], "attention_mask": batch["mask"].long(), "token_type_ids": batch["segments"]}

    def work() -> None:
        for _ in range(times):
            optimizer.zero_grad(set_to_none=True)
            with autocast(labels.device, precision):
                if ours:
                    loss, count = pretraining_loss(bert, batch)
                    loss = loss / count
                else:
                    loss = bert(**inputs, labels=labels, next_sentence_label=batch["label"]).loss
            loss.backward()
            nn.utils.clip_grad_norm_(bert.parameters(), 1.0)
            optimizer.step()
        wait(labels.device)

    return work


def body_step(bert: nn.Module, batch: Batch, precision: str, times: int) -> Callable[[], None]:
    """Forward and backward pass of the body alone, without heads: fine-tuning, all but its thin layer."""
    ours, body = isinstance(bert, BertForPreTraining), bert.bert
    inputs = [batch["ids"], batch["mask"] if ours else batch["mask"].long(), batch["segments"]]
    optimizer = adamw(body, lr=1e-4)

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


def main() -> None:
    torch.manual_seed(0)
    console = Console()
    for name in ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]:
        device = torch.device(name)
        title = f"{name}, {torch.get_num_threads()} threads; medians of {ROUNDS} rounds"
        table = Table("what", "ours", "theirs", "theirs / ours", "aim", title=title)

        def add(what: str, ours: Callable, theirs: Callable, times: int, aim: str, table=table) -> None:
            a, b, ratio = alternate(ours, theirs)
            ms = f"{a * 1e3 / times:.0f} ms", f"{b * 1e3 / times:.0f} ms"
            table.add_row(what, *ms, f"{ratio:.2f}", aim)

        for shape, sizes in SHAPES.items():
            ours, theirs, batch = both(shape, device)
            times, aim = sizes[-1], AIMS[shape]
            for model in (ours, theirs):
                model.eval()
            for what, everywhere in (("forward, body", False), ("forward, all logits", True)):
                args = batch, "float32", times, everywhere
                add(f"{shape}: {what}", forward(ours, *args), forward(theirs, *args), times, aim)
            for model in (ours, theirs):
                model.train()
            args = batch, "float32", times
            add(f"{shape}: training step, body", body_step(ours, *args), body_step(theirs, *args), times, aim)
            add(f"{shape}: training step", train(ours, *args), train(theirs, *args), times, aim)
            if has_fast_bf16(device):
                fast = batch, "bfloat16", times
                step = train(ours, *fast)
                add(f"{shape}: training step, ours bf16, theirs float32", step, train(theirs, *args), times, "≥ 2")
                add(f"{shape}: training step, both bf16", step, train(theirs, *fast), times, aim)
            heads = head(ours, batch, False, times), head(ours, batch, True, times)
            add(f"{shape}: head at masked places; theirs: ours at all", *heads, times, "shown")
        console.print(table)
        console.print(f"torch {torch.__version__}; shapes (B, T, D, H, F, blocks, V): {list(SHAPES.values())}")


if __name__ == "__main__":
    main()
