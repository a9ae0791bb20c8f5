"""ViT beside transformers' at the same shapes, with the same weights: both in one run.

``python -m tests.bench_vit`` prints a table; a ratio above 1 means that ours is faster. On cuda too, if there is one.

In float32 both spend nearly all of their time in the same kernels of PyTorch, at the same shapes: there neither can be
much faster. What ours gains is bfloat16, in which ``Training`` runs where it is fast.
"""

from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from coursekit.convert.vit import from_hugging_face
from coursekit.models.vit import ViT, vit_loss
from coursekit.train import adamw
from coursekit.train.device import autocast, has_fast_bf16
from tests.bench import ROUNDS, alternate
from tests.bench_transformer import wait

# name: B, pixels, P, D, H, F, blocks, K, passes in a measurement
SHAPES = {
    "lecture, 6 blocks of 128": (64, 32, 4, 128, 4, 512, 6, 10, 2),
    "B/16": (2, 224, 16, 768, 12, 3072, 12, 1000, 1),
}
Batch = dict[str, torch.Tensor]


def both(shape: str, device: torch.device) -> tuple[ViT, nn.Module, Batch]:
    """Ours, theirs, and a batch. No dropout: published ones are trained without."""
    from transformers import ViTConfig, ViTForImageClassification

    B, pixels, P, D, H, width, blocks, K, _ = SHAPES[shape]
    config = ViTConfig(
        **{"image_size": pixels, "patch_size": P, "hidden_size": D, "num_attention_heads": H},
        **{"intermediate_size": width, "num_hidden_layers": blocks, "num_labels": K, "attn_implementation": "sdpa"},
    )
    theirs = ViTForImageClassification(config).to(device)
    ours = from_hugging_face(ViT, config.to_dict(), theirs.state_dict()).to(device)
    images, labels = torch.randn(B, 3, pixels, pixels, device=device), torch.randint(K, (B,), device=device)
    return ours, theirs, {"images": images, "labels": labels}


def forward(model: nn.Module, batch: Batch, precision: str, times: int) -> Callable[[], None]:
    model.eval()

    def work() -> None:
        with torch.inference_mode(), autocast(batch["images"].device, precision):
            for _ in range(times):
                model(batch["images"])
        wait(batch["images"].device)

    return work


def train(model: nn.Module, batch: Batch, precision: str, times: int) -> Callable[[], None]:
    """Forward and backward pass, clipping and an update."""
    optimizer = adamw(model, lr=1e-4)
    model.train()

    def work() -> None:
        for _ in range(times):
            optimizer.zero_grad(set_to_none=True)
            with autocast(batch["images"].device, precision):
                if isinstance(model, ViT):
                    loss, count = vit_loss(model, batch)
                    loss = loss / count
                else:
                    loss = model(batch["images"], labels=batch["labels"]).loss
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        wait(batch["images"].device)

    return work


def main() -> None:
    torch.manual_seed(0)
    console = Console()
    for name in ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]:
        device = torch.device(name)
        title = f"{name}, {torch.get_num_threads()} threads; medians of {ROUNDS} rounds"
        for shape, (B, *_, times) in SHAPES.items():
            table = Table("what", "ours", "theirs", "theirs / ours", "aim", title=title)
            ours, theirs, batch = both(shape, device)
            for what, work, aims in (("forward", forward, ("≥ 1.0", "≥ 2")), ("training", train, ("≥ 1.3", "≥ 2"))):
                for precision, aim in zip(("float32", "bfloat16"), aims):
                    if precision == "bfloat16" and not has_fast_bf16(device):
                        continue
                    a, b, ratio = alternate(work(ours, batch, precision, times), work(theirs, batch, "float32", times))
                    rates = [f"{B * times / seconds:,.1f} images/s" for seconds in (a, b)]
                    against = "" if precision == "float32" else ", theirs float32"
                    table.add_row(f"{shape}: {what}, {precision}{against}", *rates, f"{ratio:.2f}", aim)
            console.print(table)
        console.print(f"torch {torch.__version__}; shapes (B, pixels, P, D, H, F, blocks, K): {list(SHAPES.values())}")


if __name__ == "__main__":
    main()
