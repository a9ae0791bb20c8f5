"""Several processes that train one model, on the GPUs of one machine or of many, or on a CPU.

::

    torchrun --nproc-per-node 2 -m coursekit train gpt
    torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint HOST:29500 -m coursekit train gpt

torchrun starts the processes and tells each by its environment how many they are (``WORLD_SIZE``) and which one it is
(``RANK``); where it has not, everything here stands aside. All processes draw the same batches, each computes the
gradients of its own rows, and the gradients are added up: with n the number of things in the whole batch and L_r the
summed loss of the rows of process r, ``g = (1 / n) sum over r of dL_r / dw``. That is the gradient of one process with
the whole batch, so that the curve is the same however many they are, but for rounding and for dropout. A loss that has
means within, as BERT's of next sentences, is weighed as with ``accumulate``.

Only the first process evaluates, writes and prints. When one is lost, all end, and the same command goes on from the
last checkpoint, with as many processes as one likes. The folder of checkpoints must be the same on all machines.

Source: Li et al. (2020), *PyTorch Distributed*, arXiv 2006.15704, section 3.
"""

import atexit
import contextlib
import io
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from coursekit.train.checkpoint import save_state
from coursekit.train.device import DistributedError, autocast, seed
from coursekit.train.loop import Data, History, Record, Training

TIMEOUT_S = 1800.0  # the others wait for as long as the first evaluates
LOST = "the same command goes on from the last checkpoint"


def world_size() -> int:
    """How many processes train together: 1 without torchrun."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def rank() -> int:
    """The number of this one among them, from 0."""
    return int(os.environ["RANK"]) if world_size() > 1 else 0


def join(where: torch.device, timeout_s: float = TIMEOUT_S) -> None:
    """Meet the other processes, if there are any and it has not yet been done.

    Args:
        where: the device of this one.
        timeout_s: a process that does not answer for so long counts as lost.
    """
    if world_size() == 1 or dist.is_initialized():
        return
    if where.type == "cuda":
        torch.cuda.set_device(where)
    with noticing_losses():
        dist.init_process_group("nccl" if where.type == "cuda" else "gloo", timeout=timedelta(seconds=timeout_s))
    atexit.register(dist.destroy_process_group)
    say_why_on_sigterm()


def say_why_on_sigterm() -> None:
    """torchrun ends the others by SIGTERM when one is lost. They say so, even while they wait inside of C code."""
    if threading.current_thread() is not threading.main_thread():
        return  # no other may set handlers; then it ends without a word
    listen, tell = socket.socketpair()
    tell.setblocking(False)
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.set_wakeup_fd(tell.fileno(), warn_on_full_buffer=False)  # written to at once, whatever Python is doing
    words = f"process {rank()} of {world_size()} ends because torchrun says so, as it does when one is lost: {LOST}\n"

    def wait(tell: socket.socket) -> None:  # which is held open as long as it waits
        while listen.recv(1) != bytes([signal.SIGTERM]):
            pass
        os.write(2, words.encode())
        os._exit(1)  # files are whole at any moment: see coursekit.files

    threading.Thread(target=wait, args=(tell,), daemon=True).start()


@contextlib.contextmanager
def noticing_losses() -> Iterator[None]:
    """Turn the many errors of a connection into one sentence.

    Raises:
        DistributedError: another process has ended, or has not answered in time.
    """
    try:
        yield
    except RuntimeError as error:
        if world_size() == 1 or not (isinstance(error, dist.DistError) or "gloo" in str(error)):
            raise
        atexit.unregister(dist.destroy_process_group)  # it would wait for those that are lost
        raise DistributedError(
            f"process {rank()} of {world_size()} ends because another one has ended or has not answered in time: {LOST}"
        ) from None


def share(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """Of the rows of a batch those of this process: number ``rank``, ``rank + world_size``, …

    Raises:
        DistributedError: there are fewer rows than processes, or the tensors differ in their number of rows.
    """
    rows = {len(tensor) if tensor.dim() else 0 for tensor in batch.values()}
    if len(rows) > 1 or min(rows) < world_size():
        found = " or ".join(map(str, sorted(rows)))
        raise DistributedError(f"a batch of {found} rows cannot be shared by {world_size()} processes: start fewer")
    return {name: tensor[rank() :: world_size()] for name, tensor in batch.items()}


class Objective(nn.Module):
    """A loss as a module, so that the loss may use more of its model than ``forward``: see ``together``."""

    def __init__(self, model: nn.Module, loss_fn: Callable[[Any, dict[str, Tensor]], tuple[Tensor, Tensor]]):
        super().__init__()
        self.model, self.loss_fn = model, loss_fn

    def forward(self, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        return self.loss_fn(self.model, batch)


def together(
    model: nn.Module, loss_fn: Callable[[Any, dict[str, Tensor]], tuple[Tensor, Tensor]]
) -> DistributedDataParallel:
    """``batch -> loss_fn(model, batch)``, whose gradients are the means over the processes after ``backward``.

    All begin with the weights of the first.

    Raises:
        DistributedError: see ``refuse_batch_statistics``.
    """
    refuse_batch_statistics(model)
    # not every loss reaches every parameter
    return DistributedDataParallel(Objective(model, loss_fn), find_unused_parameters=True)


def refuse_batch_statistics(model: nn.Module) -> None:
    """Return if each row of a batch is computed by itself.

    Raises:
        DistributedError: the model normalises by the statistics of a batch, of which each process would see its part.
    """
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and not isinstance(module, nn.SyncBatchNorm):
            kind = type(module).__name__
            raise DistributedError(
                f"{name or 'the model'} is a {kind}, whose statistics are of a whole batch: start one process, or on "
                "GPUs convert it by torch.nn.SyncBatchNorm.convert_sync_batchnorm"
            )


def summed(loss_sum: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """The sums of both over all processes."""
    both = torch.stack([loss_sum.double(), count.to(loss_sum.device, torch.float64)])
    dist.all_reduce(both)
    return both[0], both[1]


def from_first(make: Callable[[], Any]) -> Any:
    """What ``make`` returns in the first process, in all of them; in the others it is not called."""
    found = [None]
    if rank() == 0:
        with alone():
            found = [make()]
    dist.broadcast_object_list(found)
    return found[0]


@contextlib.contextmanager
def in_turn(where: torch.device) -> Iterator[None]:
    """The first process goes ahead, then the others, who find the files that it has written."""
    join(where)
    if rank() > 0:
        with noticing_losses():
            dist.barrier()
    yield
    if world_size() > 1 and rank() == 0:
        with noticing_losses():
            dist.barrier()


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Inside, this is a process like any other: a ``Training`` there is its own affair."""
    before = os.environ.pop("WORLD_SIZE", None)
    try:
        yield
    finally:
        if before is not None:
            os.environ["WORLD_SIZE"] = before


def leave_to_first() -> None:
    """All but the first process end here; from now on that is one like any other."""
    if world_size() == 1:
        return
    others = rank() > 0
    dist.destroy_process_group()
    atexit.unregister(dist.destroy_process_group)
    if others:
        raise SystemExit(0)
    os.environ.pop("WORLD_SIZE")


class DataParallelTraining(Training):
    """A ``Training`` whose batches several processes share. ``Training(...)`` makes it when torchrun has started them.

    Its curve and its files are those of one process, but for rounding and dropout; with a ``folder``, a run may go on
    with another number of processes.

    Raises:
        DistributedError: ``after_update`` is wanted, which would see one part of each batch; the model needs whole
            batches (see ``refuse_batch_statistics``); or the processes don't share a folder.
    """

    def __init__(self, model: nn.Module, loss_fn: Callable, data: Data, optimizer: Any, steps: int, **options: Any):
        self.world_size, self.rank, self.first_seed = world_size(), rank(), torch.initial_seed()
        if options.get("after_update") is not None:
            raise DistributedError(
                f"after_update would see one part of {self.world_size} of each batch: start one process, not torchrun"
            )
        super().__init__(model, loss_fn, data, optimizer, steps, **options)
        join(self.device)
        with noticing_losses():
            if self.step != (found := from_first(lambda: self.step)):
                raise DistributedError(
                    f"process {self.rank} is at step {self.step} and the first at {found}: "
                    f"{self.folder} must be the same folder on all machines"
                )
            self.objective = self.together()
        self.draw_differently()

    def together(self) -> Any:
        """The objective of all processes: see the function of this name."""
        return together(self.model, self.loss_fn)

    def draw_differently(self) -> None:
        """Give this process random numbers of its own, for dropout; those of the first stay as they are.

        Done at every checkpoint too: they depend on the step alone, and need not be saved.
        """
        if self.rank > 0:
            seed((self.first_seed + self.world_size * self.step + self.rank) % 2**32)

    def fit(self) -> History:
        if self.rank == 0:
            return super().fit()
        for _ in self:  # the first shows the progress
            pass
        return self.history

    def stop(self) -> None:
        """Nothing: the others would not hear of it."""

    @noticing_losses()
    def update(self) -> Tensor:
        return super().update()

    def backward(self, batch: dict[str, Tensor], last: bool) -> tuple[Tensor, Tensor]:
        batch = self.moved(share(batch))
        # gradients are added up over the processes with the last batch, for all batches of the update
        with contextlib.nullcontext() if last else self.objective.no_sync():
            with autocast(self.device, self.precision):
                loss_sum, count = self.objective(batch)
            (loss_sum * self.world_size).backward()  # the processes take the mean of their gradients: now the sum
        return summed(loss_sum.detach(), count)

    @noticing_losses()
    def evaluated(self) -> Record:
        return super().evaluated()

    def measure(self) -> Record:
        return from_first(super().measure)

    def save_best(self, model: Any, metrics: Record) -> None:
        if self.rank == 0:
            super().save_best(model, metrics)

    def save(self) -> None:
        state = self.state_dict()  # made by all processes, since each may hold a part
        if self.rank == 0:
            save_state(self.folder / "last.ckpt", state)
        self.draw_differently()

    def resume(self) -> None:
        with contextlib.redirect_stdout(sys.stdout if self.rank == 0 else io.StringIO()):
            super().resume()

    def restore_random(self, state: dict[str, Any]) -> None:
        if self.rank == 0:  # the others draw differently
            super().restore_random(state)
