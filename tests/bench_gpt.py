"""GPT beside transformers' GPT-2 at the same shapes, with the same weights: both in one run.

``python -m tests.bench_gpt`` prints a table; a ratio above 1 means that ours is faster. On cuda too, if there is one.
Their training step has their loss, which is of the same tokens; their generation has their cache.
"""

from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from coursekit.convert.gpt import from_hugging_face
from coursekit.decode.generate import generate
from coursekit.models.gpt import GPT, gpt_loss
from coursekit.train import adamw
from coursekit.train.device import autocast, has_fast_bf16
from tests.bench import ROUNDS, alternate
from tests.bench_transformer import wait

# name: B, T, D, H, blocks, V, passes in a measurement
SHAPES = {"4 blocks of 256": (16, 128, 256, 4, 4, 2048, 3), "GPT-2 small": (2, 128, 768, 12, 12, 50_257, 1)}
NEW = 200
WRITTEN = {"4 blocks of 256": {1: "≥ 3", 16: "≥ 2"}, "GPT-2 small": {1: "≥ 3"}}  # texts at once: aim


def both(shape: str, device: torch.device) -> tuple[GPT, nn.Module, torch.Tensor]:
    """Ours, theirs, and a batch without padding. No dropout, whose kernels would be measured instead."""
    from transformers import GPT2Config, GPT2LMHeadModel

    B, T, D, H, blocks, V, _ = SHAPES[shape]
    config = GPT2Config(
        **{"vocab_size": V, "n_embd": D, "n_head": H, "n_layer": blocks, "n_positions": 256, "bos_token_id": None},
        **{"eos_token_id": None, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
        **{"attn_implementation": "sdpa"},
    )
    theirs = GPT2LMHeadModel(config).to(device)
    ours = from_hugging_face(GPT, config.to_dict(), theirs.state_dict()).to(device)
    return ours, theirs, torch.randint(V, (B, T), device=device)


def train(model: nn.Module, ids: torch.Tensor, precision: str, times: int) -> Callable[[], None]:
    """Training steps as each library's users take them."""
    optimizer = adamw(model, lr=1e-4)
    model.train()

    def work() -> None:
        for _ in range(times):
            optimizer.zero_grad(set_to_none=True)
            with autocast(ids.device, precision):
                if isinstance(model, GPT):
                    loss, count = gpt_loss(model, {"ids": ids})
                    loss = loss / count
                else:
                    loss = model(ids, labels=ids).loss
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        wait(ids.device)

    return work


def write(model: nn.Module, batch_size: int, device: torch.device) -> Callable[[], None]:
    """The most likely tokens behind prompts of 8, one after another with cached keys and values."""
    model.eval()
    ids = torch.arange(8, device=device).expand(batch_size, -1).contiguous()

    def work() -> None:
        if isinstance(model, GPT):
            generate(model, ids, max_new=NEW, temperature=0)
        else:
            with torch.inference_mode():
                model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW, do_sample=False)
        wait(device)

    return work


def product(size: int, device: torch.device) -> Callable[[], None]:
    """Ten float32 matrix products of ``2 size^3`` operations each: the peak that the step is compared with."""
    a, b = torch.randn(2, size, size, device=device)

    def work() -> None:
        for _ in range(10):
            a @ b
        wait(device)

    return work


def operations(model: GPT, ids: torch.Tensor) -> float:
    """Of the matrix products of a training step: 6 for each weight and token, and attention's two products."""
    c, (B, T) = model.config, ids.shape
    weights = sum(p.numel() for name, p in model.named_parameters() if p.dim() == 2 and name != "positions.code")
    return B * T * (6 * weights + 3 * 4 * c.n_layers * c.d_model * T)


def main() -> None:
    torch.manual_seed(0)
    console = Console()
    for name in ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]:
        device = torch.device(name)
        title = f"{name}, {torch.get_num_threads()} threads; medians of {ROUNDS} rounds"
        for shape, (B, T, *_, times) in SHAPES.items():
            table = Table("what", "ours", "theirs", "theirs / ours", "aim", title=title)
            ours, theirs, ids = both(shape, device)
            for what, mine, other, aim in (
                ("float32", "float32", "float32", "≥ 1.35"),
                *([("ours bf16, theirs float32", "bfloat16", "float32", "≥ 2.2")] if has_fast_bf16(device) else []),
            ):
                a, b, ratio = alternate(train(ours, ids, mine, times), train(theirs, ids, other, times))
                rates = [f"{B * T * times / seconds:,.0f} tokens/s" for seconds in (a, b)]
                table.add_row(f"{shape}: training, {what}", *rates, f"{ratio:.2f}", aim)
            a, b, ratio = alternate(train(ours, ids, "float32", times), product(1024, device))
            done, peak = operations(ours, ids) * times / a, 10 * 2 * 1024**3 / b
            rates = f"{done / 1e9:.0f} GFLOP/s", f"{peak / 1e9:.0f} GFLOP/s"
            table.add_row(f"{shape}: share of the matrix product's peak", *rates, f"{done / peak:.2f}", "≥ 0.7")
            for batch_size, aim in WRITTEN[shape].items():
                a, b, ratio = alternate(write(ours, batch_size, device), write(theirs, batch_size, device))
                rates = [f"{NEW * batch_size / seconds:,.0f} tokens/s" for seconds in (a, b)]
                table.add_row(f"{shape}: {NEW} tokens, {batch_size} texts", *rates, f"{ratio:.2f}", aim)
            console.print(table)
        console.print(f"torch {torch.__version__}; shapes (B, T, D, H, blocks, V): {list(SHAPES.values())}")


if __name__ == "__main__":
    main()
