"""A training whose parameters, gradients and moments lie in parts on several processes: for models too large for one.

A script ``run.py``, started by ``torchrun --nproc-per-node 8 run.py``::

    model = GPT(GPTConfig.gpt2_xl()).to(device())
    model.gradient_checkpointing = True  # saves most of what is left: what the blocks keep for the backward pass
    optimizer = adamw(model, lr=2e-4, weight_decay=0.1)
    ShardedTraining(model, gpt_loss, data, optimizer, 100_000, blocks=model.blocks, folder="runs/xl").fit()

AdamW in float32 takes 16 bytes for each parameter: for itself, its gradient and two moments; 25 GB for GPT-2 XL, which
``Training`` holds in each process. Here each of P processes holds one P-th of every tensor, cut along its first axis. A
block's parameters are gathered when it is computed, forward and backward, and let go of after it; its gradients are
added up over the processes at once, of which each keeps its part. What is in no block stays whole for a forward and
backward pass. With ``accumulate``, adding up after the last batch alone would send a third less, but every process
would hold a whole gradient until then; so it is done after each.

Source: Zhao et al. (2023), *PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel*, arXiv 2304.11277,
section 3; the idea is that of Rajbhandari et al. (2019), *ZeRO*, arXiv 1910.02054, section 5.
"""

import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from coursekit.train import distributed
from coursekit.train.device import autocast
from coursekit.train.distributed import DataParallelTraining, DistributedError
from coursekit.train.loop import Record


class InParts(distributed.Objective):
    """``batch -> loss_fn(model, batch)``: the root for ``fully_shard``, as a loss may use more than ``forward``."""

    def no_sync(self) -> contextlib.AbstractContextManager:
        return contextlib.nullcontext()  # gradients are added up after each batch all the same


def shard(model: nn.Module, loss_fn: Callable, blocks: list[nn.Module], precision: str) -> InParts:
    """Leave in each process a part of every parameter of ``model``, with the values that they have in the first.

    On cuda, blocks are gathered in bfloat16 where ``precision`` is. Autocast goes on to choose the precision of each
    step as in any ``Training``; but it would make its own bfloat16 copies of the weights and keep them for the backward
    pass, almost the whole model in each process. Of weights that come in bfloat16 it makes none, and half as much is
    sent. Gradients are added up in float32. What differs: scales and offsets of the layer norms in blocks are rounded.
    """
    within = {module for block in blocks for module in block.modules()}
    inside = [parameter for block in blocks for parameter in block.parameters()]
    outside = {p for module in model.modules() if module not in within for p in module.parameters(recurse=False)}
    if len(set(inside)) < len(inside) or outside & set(inside):
        raise DistributedError("a parameter lies in two blocks, or in one and outside of it too: name fewer blocks")
    distributed.refuse_batch_statistics(model)
    where = next(model.parameters()).device
    half = where.type == "cuda" and isinstance(autocast(where, precision), torch.autocast)  # a CPU's norms refuse it
    types = {"param_dtype": torch.bfloat16, "reduce_dtype": torch.float32} if half else {}
    distributed.join(where)
    with distributed.noticing_losses():
        for tensor in (*model.parameters(), *model.buffers()):
            dist.broadcast(tensor.data, 0)
        mesh = init_device_mesh(where.type, (distributed.world_size(),))
        for block in blocks:
            fully_shard(block, mesh=mesh, mp_policy=MixedPrecisionPolicy(**types, cast_forward_inputs=False))
        return fully_shard(InParts(model, loss_fn), mesh=mesh)


def part(value: Any, like: Tensor) -> Any:
    """Of a whole tensor the part that this process holds of ``like``; anything of another shape as it is."""
    if not isinstance(like, DTensor) or not isinstance(value, Tensor) or value.shape != like.shape:
        return value
    parts = value.chunk(distributed.world_size())  # fewer, if the first axis is short
    own = parts[distributed.rank()] if distributed.rank() < len(parts) else value[:0]
    where = {"device_mesh": like.device_mesh, "placements": like.placements}
    return DTensor.from_local(own.to(like.device), **where, shape=like.shape, stride=like.stride())


def gathered(value: Any) -> Any:
    """A tensor of parts whole, on the CPU of the first process, and None in the others; anything else as it is."""
    if not isinstance(value, DTensor):
        return value
    whole = value.detach().full_tensor()
    return whole.to("cpu", copy=True) if distributed.rank() == 0 else None  # without the padding that came with it


def with_each(optimizer: dict[str, Any], change: Callable[[int, Any], Any]) -> dict[str, Any]:
    """An optimizer's state, with ``change(number of the parameter, value)`` for each value kept of a parameter."""
    kept = {n: {name: change(n, value) for name, value in of.items()} for n, of in optimizer["state"].items()}
    return optimizer | {"state": kept}


class ShardedTraining(DataParallelTraining):
    """A ``Training`` of a model that lies in parts on several processes; its curve and its files are the same.

    So a run can go on with another number of processes, and in one as a plain ``Training``; and the other way round.

    All processes evaluate, since each has but a part of the model, and with autocast as in training: ``evaluate`` must
    take the same steps in each, and random numbers that decide on them come from a generator of its own. Each process'
    rows must reach the same parameters. A checkpoint is made, and read by one process after another, in the memory of
    the CPU, where it takes 12 bytes for each parameter a few times over. At first the model is whole in each process.

    Args:
        model, loss_fn, data, optimizer, steps, options: as for ``Training``; the optimizer is new, for the whole model.
        blocks: modules of the model that are computed one after another, each gathered at once.

    Raises:
        DistributedError: there is only one process; an EMA is wanted, which keeps a whole model; a parameter of a block
            is tied to one elsewhere; or see ``Training``.
    """

    def __init__(self, model, loss_fn, data, optimizer, steps, *, blocks: Iterable[nn.Module], **options):
        if distributed.world_size() == 1:
            raise DistributedError("one process has no other to share a model with: use torchrun, or a Training")
        if options.get("ema") is not None:
            raise DistributedError("an EMA keeps a whole model in each process: leave it out, or use a Training")
        names = {parameter: name for name, parameter in model.named_parameters()}
        groups = [[names[parameter] for parameter in group["params"]] for group in optimizer.param_groups]
        self.parts = shard(model, loss_fn, list(blocks), options.get("precision", "auto"))
        parts = dict(model.named_parameters())
        for group, held in zip(optimizer.param_groups, groups):
            group["params"] = [parts[name] for name in held]
        folder = options.get("folder")
        goes_on = folder is not None and (Path(folder) / "last.ckpt").exists()
        if distributed.from_first(lambda: goes_on) != goes_on:
            raise DistributedError(f"{folder} must be the same folder on all machines")
        super().__init__(model, loss_fn, data, optimizer, steps, **options)

    def together(self) -> InParts:
        return self.parts

    def norm_of(self, gradients: list[Tensor]) -> Tensor:
        return super().norm_of(gradients).full_tensor()

    def measure(self) -> Record:
        self.parts.unshard()  # what is in no block; a block gathers itself
        with distributed.alone(), autocast(self.device, self.precision):
            metrics = self.evaluate(self.model)
        self.parts.reshard()
        return distributed.from_first(lambda: metrics)

    def whole_model(self) -> SimpleNamespace:
        """Something whose ``state_dict()`` has all weights, in the first process. All processes call it."""
        own = self.model.state_dict(keep_vars=True)
        whole = {tensor: gathered(tensor) for tensor in dict.fromkeys(own.values())}  # tied ones once
        return SimpleNamespace(state_dict=lambda: {name: whole[tensor] for name, tensor in own.items()})

    def save_best(self, model: Any, metrics: Record) -> None:
        super().save_best(self.whole_model(), metrics)

    @distributed.noticing_losses()
    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        optimizer = with_each(state["optimizer"], lambda _, value: gathered(value))
        return state | {"model": self.whole_model().state_dict(), "optimizer": optimizer}

    def resume(self) -> None:
        for process in range(self.world_size):  # each reads the whole file
            if process == self.rank:
                super().resume()
            with distributed.noticing_losses():
                dist.barrier()

    def restore_weights(self, model: dict[str, Any], optimizer: dict[str, Any]) -> None:
        own = self.model.state_dict()
        parameters = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        weights = {name: part(tensor, own[name]) for name, tensor in model.items()}
        super().restore_weights(weights, with_each(optimizer, lambda number, value: part(value, parameters[number])))
