"""What the benchmarks of models share: the devices, a training step, and the most that a device multiplies."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from coursekit.train import adamw
from coursekit.train.device import autocast, has_fast_bf16
from tests.benchmarks.shared import seconds

SIZES = {"cpu": (256, 512, 1024, 2048), "cuda": (2048, 4096, 8192, 16384)}
TIMES, LASTING = 5, 1.0  # for each size: so many products at least, and for so many seconds


def devices() -> list[torch.device]:
    """The CPU, and cuda where there is one."""
    return [torch.device(name) for name in (("cpu", "cuda") if torch.cuda.is_available() else ("cpu",))]


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def training(
    model: nn.Module, loss: Callable[[], Tensor], device: torch.device, precision: str, times: int
) -> Callable[[], None]:
    """So many steps: forward and backward pass, clipping and an update."""
    optimizer = adamw(model, lr=1e-4)
    model.train()

    def work() -> None:
        for _ in range(times):
            optimizer.zero_grad(set_to_none=True)
            with autocast(device, precision):
                found = loss()
            found.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        wait(device)

    return work


def mean(total_and_count: tuple[Tensor, Tensor | int]) -> Tensor:
    """Of our losses, which are sums."""
    total, count = total_and_count
    return total / count


def products(n: int, times: int, device: torch.device, dtype: torch.dtype = torch.float32) -> Callable[[], None]:
    """Matrix products of ``2 n^3`` operations each."""
    a, b = torch.randn(2, n, n, device=device).to(dtype)

    def work() -> None:
        for _ in range(times):
            a @ b
        wait(device)

    return work


def least(model: nn.Module, weights: Iterable[Tensor], ids: Tensor) -> Callable[[], None]:
    """What no training step of a decoder can do without: its matrix products, at their own shapes, and AdamW's update.

    A weight is multiplied three times: with its inputs, and for the gradients of both. Of attention's two products each
    has two gradients.
    """
    c, (B, T), device = model.config, ids.shape, ids.device
    layers = [(w.detach(), *(torch.randn(B * T, n, device=device) for n in w.shape)) for w in weights]
    heads = torch.randn(B * c.n_heads, T, c.d_model // c.n_heads, device=device)
    scores = torch.randn(B * c.n_heads, T, T, device=device)
    optimizer = adamw(model, lr=1e-4)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)

    def work() -> None:
        for w, y, x in layers:  # (out, in), (B T, out), (B T, in)
            x @ w.T, y @ w, y.T @ x
        for _ in range(c.n_layers):
            for _ in range(2):
                heads @ heads.transpose(1, 2), scores @ heads, scores.transpose(1, 2) @ heads
        optimizer.step()
        wait(device)

    return work


def peak(device: torch.device, dtype: torch.dtype) -> float:
    """GFLOP/s of matrix products: the best of the best size, each timed alone, so that others disturb few of them."""
    best = 0.0
    for n in SIZES[device.type]:
        work, times = products(n, 1, device, dtype), []
        work()
        while len(times) < TIMES or sum(times) < LASTING:
            times.append(seconds(work))
        best = max(best, 2 * n**3 / min(times) / 1e9)
    return best


def peaks() -> dict[str, float | str]:
    """By device and precision: GFLOP/s, or why there is none."""
    found = {}
    for device in devices():
        found[f"{device} float32"] = peak(device, torch.float32)
        fast = has_fast_bf16(device)
        found[f"{device} bfloat16"] = peak(device, torch.bfloat16) if fast else "not fast here, its rows are left out"
    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # the benchmarks' processes need it
    return found


def gpu() -> str | None:
    """Its name."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else None
