"""ViT beside transformers' at the same shapes, with the same weights.

In float32 both spend nearly all of their time in the same kernels of PyTorch, at the same shapes: there neither can be
much faster. What ours gains is bfloat16, in which ``Training`` runs where it is fast.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import torch
from torch import nn

from coursekit.convert.vit import from_hugging_face
from coursekit.data.batches import Batch
from coursekit.models.vit import ViT, vit_loss
from coursekit.train.device import autocast, has_fast_bf16
from tests.benchmarks.machine import devices, mean, training, wait
from tests.benchmarks.shared import Row, race

# name: B, pixels, P, D, H, F, blocks, K, passes in a measurement
SHAPES = {
    "lecture, 6 blocks of 128": (64, 32, 4, 128, 4, 512, 6, 10, 2),
    "B/16": (2, 224, 16, 768, 12, 3072, 12, 1000, 1),
}


def both(shape: str, device: torch.device) -> tuple[ViT, nn.Module, Batch]:
    """Ours, theirs, and a batch. No dropout: published ones are trained without."""
    from transformers import ViTConfig, ViTForImageClassification

    torch.manual_seed(0)
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
    def loss() -> torch.Tensor:
        if isinstance(model, ViT):
            return mean(vit_loss(model, batch))
        return model(batch["images"], labels=batch["labels"]).loss

    return training(model, loss, batch["images"].device, precision, times)


def beside(shape: str, device: torch.device) -> Iterator[Row]:
    """Forward passes and training steps at one shape; theirs always in float32."""
    ours, theirs, batch = both(shape, device)
    B, *_, times = SHAPES[shape]
    for what, work, aims in (("forward", forward, (1.0, 1.2)), ("training", train, (1.0, 1.4))):
        for precision, aim in zip(("float32", "bfloat16"), aims):
            if precision == "float32" or has_fast_bf16(device):
                row = Row("07 ViT", f"{device}: {shape}: {what}, {precision}", "transformers, float32", at_least=aim)
                works = work(ours, batch, precision, times), work(theirs, batch, "float32", times)
                yield race(replace(row, measured_in="images/s"), *works, amount=B * times)


def parts() -> list[Callable[[], Iterator[Row]]]:
    return [partial(beside, shape, device) for device in devices() for shape in SHAPES]
