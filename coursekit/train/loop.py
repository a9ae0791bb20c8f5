"""The training loop of every model in the course; one update is ``Training.update``.

It knows no model: it is given ``loss_fn(model, batch) -> (loss_sum, count)``, the summed loss of a batch and
the number of things summed (tokens, images, ...).
"""

import math
import os
from collections.abc import Callable, Iterator, Mapping
from numbers import Integral
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from coursekit.nn.checks import check_all
from coursekit.train.bar import new_bar
from coursekit.train.checkpoint import (
    CheckpointError,
    check_same_run,
    load_state,
    random_state,
    save_json,
    save_state,
    save_weights,
    set_random_state,
)
from coursekit.train.device import autocast, check_precision
from coursekit.train.ema import EMA
from coursekit.train.optim import Schedule, constant

Record = dict[str, float]


class History(list[Record]):
    """The records of a run: a plain list that shows itself in one line."""

    def __repr__(self) -> str:
        last = f", the last after step {self[-1]['step']} with loss {self[-1]['loss']:.4f}" if self else ""
        return f"<History of {len(self)} records{last}>"


class Data(Protocol):
    """Endless mini-batches that can say where they are, and go there."""

    def __next__(self) -> dict[str, Tensor]: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class Training:
    """A training run. Iterate over it for a record now and then, or call ``fit()`` for all of it.

    Updates are made in train mode; when the iteration ends, the model is in eval mode, ready to be used.

    One step draws ``accumulate`` batches, adds up the gradients of their summed losses, divides by the
    number of things in all of them, clips the norm, and updates the weights.

    With a ``folder`` the run survives a kill: its whole state goes to ``folder/last.ckpt`` every
    ``save_every`` steps, and the same ``Training`` made again goes on from there, on a CPU to the same bits.
    The best weights so far, by ``monitor``, go to ``folder/best.safetensors`` with their metrics in
    ``folder/best.json``.

    Started by torchrun, ``Training(...)`` makes a ``DataParallelTraining``, in which several processes share each batch
    (``coursekit.train.distributed``). For a model that is too large for each, see ``coursekit.train.sharded``.

    Args:
        model: trained where it is (move it to a device first).
        loss_fn: ``(model, batch) -> (loss_sum, count)``, both scalar tensors.
        data: endless batches, such as ``coursekit.data.batches.Shuffled``.
        optimizer: for example ``adamw(model, lr=1e-3)``.
        steps: number of updates.
        schedule: factor on each group's learning rate.
        decay_schedule: factor on each group's weight decay, or None to leave it as it is.
        clip: largest gradient norm, or None.
        clip_each: clip the gradient of each tensor by itself, not that of all together (as DINO's program does).
        accumulate: batches per update.
        precision: see ``coursekit.train.device.autocast``.
        log_every: steps between records.
        evaluate: ``model -> {name: number}``, called in eval mode without gradients.
        evaluate_every: steps between evaluations; the last step is evaluated too.
        monitor: the name in ``evaluate``'s result that decides which weights are best.
        higher_is_better: whether a larger ``monitor`` is better.
        patience: stop after this many evaluations in a row without a better one.
        ema: weights averaged after every step.
        after_update: ``(model) -> None``, called after every update of the weights, such as for a teacher that follows
            them. What it depends on must be in the model's state, or a resumed run goes another way.
        folder, save_every: see above.

    Attributes:
        step: updates done.
        after_step: None, or what is called after every step, when its record is read and what is due is saved.
        history: the records so far: ``step``, ``loss`` (mean since the record before), ``lr``,
            ``grad_norm`` (before clipping) and, where evaluated, the metrics.
    """

    def __new__(cls, *args: Any, **options: Any) -> "Training":
        if cls is Training and int(os.environ.get("WORLD_SIZE", "1")) > 1:
            from coursekit.train.distributed import DataParallelTraining

            return super().__new__(DataParallelTraining)
        return super().__new__(cls)

    def __init__(
        self,
        model: nn.Module,
        loss_fn: Callable[[Any, dict[str, Tensor]], tuple[Tensor, Tensor]],
        data: Data,
        optimizer: torch.optim.Optimizer,
        steps: int,
        *,
        schedule: Schedule = constant,
        decay_schedule: Schedule | None = None,
        clip: float | None = 1.0,
        clip_each: bool = False,
        accumulate: int = 1,
        precision: str = "auto",
        log_every: int = 10,
        evaluate: Callable[[Any], Record] | None = None,
        evaluate_every: int | None = None,
        monitor: str = "validation_loss",
        higher_is_better: bool = False,
        patience: int | None = None,
        ema: EMA | None = None,
        after_update: Callable[[Any], None] | None = None,
        folder: str | Path | None = None,
        save_every: int = 500,
    ):
        whole = {"steps": steps, "accumulate": accumulate, "log_every": log_every, "save_every": save_every}
        for name, value in (whole | {"evaluate_every": evaluate_every, "patience": patience}).items():
            if value is not None and (not isinstance(value, Integral) or value < 1):
                raise ValueError(f"{name}={value}: must be a whole number, at least 1")
        if clip is not None and not clip > 0:
            raise ValueError(f"clip={clip}: must be above 0, or None for no clipping")
        check_precision(precision)
        if not hasattr(data, "__next__"):
            raise ValueError(
                f"data of type {type(data).__name__}: must give a batch at each next(data), without end; Shuffled and "
                "Fresh in coursekit.data.batches do"
            )
        if folder is not None and not hasattr(data, "state_dict"):
            raise ValueError(
                f"data of type {type(data).__name__}: must have state_dict and load_state_dict, as Shuffled and Fresh "
                "have, so that a run with a folder can go on where it was stopped"
            )
        if patience is not None and evaluate is None:
            raise ValueError("patience needs evaluate: without it nothing says whether the model got better")
        learned = {id(p) for group in optimizer.param_groups for p in group["params"]}
        if learned.isdisjoint(map(id, model.parameters())):
            raise ValueError("the optimizer has none of the model's parameters: make it from model.parameters()")
        self.model, self.loss_fn, self.data, self.optimizer = model, loss_fn, data, optimizer
        self.steps, self.schedule, self.decay_schedule, self.accumulate = steps, schedule, decay_schedule, accumulate
        self.clip, self.clip_each = clip, clip_each
        self.precision, self.log_every, self.ema, self.after_update = precision, log_every, ema, after_update
        self.evaluate, self.evaluate_every = evaluate, evaluate_every or steps
        self.monitor, self.higher_is_better, self.patience = monitor, higher_is_better, patience
        self.folder = None if folder is None else Path(folder)
        self.save_every = save_every

        self.device = next(model.parameters()).device
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
            if decay_schedule is not None:
                group.setdefault("initial_weight_decay", group["weight_decay"])
        self.step = 0
        self.after_step: Callable[[], None] | None = None
        self.history = History()
        self.best: float | None = None
        self.without_better, self.evaluated_at = 0, 0
        # The sums stay where the model is. Fetched after every step, they would make the processor wait for the GPU; as
        # it need not, it draws the next batch while the GPU still computes. (Apple's GPUs know no float64.)
        sums_on = torch.device("cpu") if self.device.type == "mps" else self.device
        self.loss_sum = torch.zeros((), dtype=torch.float64, device=sums_on)
        self.count = torch.zeros((), dtype=torch.float64, device=sums_on)
        if self.folder is not None and (self.folder / "last.ckpt").exists():
            self.resume()

    def __iter__(self) -> Iterator[Record]:
        try:
            while self.step < self.steps and not self.stopped_early:
                self.model.train()
                grad_norm = self.update()
                self.step += 1
                last = self.step == self.steps
                evaluation_due = self.evaluate is not None and (last or self.step % self.evaluate_every == 0)
                record_due = evaluation_due or last or self.step % self.log_every == 0
                save_due = self.folder is not None and (last or self.step % self.save_every == 0)
                if record_due or save_due:
                    self.check_finite(grad_norm)
                record = self.write_record(grad_norm, evaluation_due) if record_due else None
                if save_due or (self.folder is not None and self.stopped_early):
                    self.save()
                if record is not None:
                    yield record
                if self.after_step is not None:
                    self.after_step()
        finally:
            self.model.eval()

    def update(self) -> Tensor:
        """One update of the weights; returns the gradient's norm before clipping."""
        factor = self.schedule(self.step, self.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = group["initial_lr"] * factor
            if self.decay_schedule is not None:
                group["weight_decay"] = group["initial_weight_decay"] * self.decay_schedule(self.step, self.steps)
        self.optimizer.zero_grad(set_to_none=True)
        total, count = torch.zeros_like(self.loss_sum), torch.zeros((), device=self.device)
        for number in range(1, self.accumulate + 1):
            batch = next(self.data, None)
            if batch is None:
                raise ValueError(f"the data ended in step {self.step + 1} of {self.steps}: it must be endless")
            loss_sum, batch_count = self.backward(batch, number == self.accumulate)
            count += batch_count
            total += loss_sum.to(total)
        self.loss_sum += total
        self.count += count.to(self.count)
        nothing = f"the batches of step {self.step + 1} hold nothing to learn: their masks leave nothing to count"
        check_all(count != 0, nothing)
        # only now is the number of things in all batches known
        learned = [p for p in self.model.parameters() if p.grad is not None]
        gradients = [p.grad for p in learned]
        torch._foreach_div_(gradients, count)
        norm = self.norm_of(gradients)
        if self.clip is not None and self.clip_each:
            for p in learned:
                nn.utils.clip_grads_with_norm_(p, self.clip, self.norm_of([p.grad]))
        elif self.clip is not None:
            nn.utils.clip_grads_with_norm_(learned, self.clip, norm)
        self.optimizer.step()
        if self.ema is not None:
            self.ema.update(self.model)
        if self.after_update is not None:
            self.after_update(self.model)
        return norm

    def backward(self, batch: dict[str, Tensor], last: bool) -> tuple[Tensor, Tensor]:
        """Add the gradients of a batch's summed loss to those of the batches before; return the loss and the count.

        ``last`` says that it is the update's last batch.
        """
        batch = self.moved(batch)
        try:
            with autocast(self.device, self.precision):
                result = self.loss_fn(self.model, batch)
        except KeyError as error:
            if not error.args or error.args[0] in batch:
                raise
            held = ", ".join(batch) or "nothing"
            raise ValueError(f"the loss function asked for {error.args[0]!r}; its batch holds {held}") from error
        if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[0], Tensor):
            kinds = ", ".join(type(part).__name__ for part in (result if isinstance(result, tuple) else [result]))
            raise ValueError(
                f"the loss function returned {kinds}: it must return (loss_sum, count), the sum of the losses, not "
                "their mean, as a tensor, and how many they are"
            )
        loss_sum, count = result
        loss_sum.backward()
        return loss_sum.detach(), count

    def norm_of(self, gradients: list[Tensor]) -> Tensor:
        """The norm of all of them together."""
        return nn.utils.get_total_norm(gradients)

    def moved(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """The batch on the model's device; through pinned memory, else a copy waits for what the GPU computes."""
        if self.device.type == "cuda":
            whole = {name: tensor.contiguous() for name, tensor in batch.items()}  # what is expanded cannot be pinned
            batch = {name: tensor.pin_memory() if tensor.is_cpu else tensor for name, tensor in whole.items()}
        return {name: tensor.to(self.device, non_blocking=True) for name, tensor in batch.items()}

    @property
    def stopped_early(self) -> bool:
        return self.patience is not None and self.without_better >= self.patience

    def fit(self) -> History:
        """Run to the end with a progress bar and return the history; the model is left in eval mode.

        An interrupt ends it too, and leaves the weights as they are.
        """
        bar = new_bar(self.steps, self.step)
        try:
            for record in self:
                bar.set_postfix_str(f"loss {record['loss']:.4f}", refresh=False)
                bar.update(record["step"] - bar.n)
            taken = f"{bar.n - bar.initial:,} steps in {bar.seconds:.0f} s"
            bar.end(f"{taken}: loss {self.history[-1]['loss']:.4f}" if self.history else taken)
        except KeyboardInterrupt:
            self.stop()
            bar.end(f"Interrupted after {self.step} of {self.steps} steps; fit() again, in a cell of its own, goes on.")
        except BaseException:
            bar.end(f"Ended by an error after {self.step} of {self.steps} steps.")
            raise
        return self.history

    def stop(self) -> None:
        """End by hand where the run stands, as it ends by itself: with a record, evaluated. It can still go on."""
        if self.step == 0:
            return
        without_better = self.without_better
        self.check_finite()
        if not self.history or self.history[-1]["step"] < self.step:
            self.write_record(math.nan, self.evaluate is not None)
        elif self.evaluate is not None and self.evaluated_at < self.step:
            self.history[-1] |= self.evaluated()
        self.without_better = min(self.without_better, without_better)  # out of turn, it takes no patience

    def write_record(self, grad_norm: Tensor | float, evaluates: bool) -> Record:
        record = {
            "step": self.step,
            "loss": (self.loss_sum / self.count).item(),
            "lr": self.optimizer.param_groups[0]["lr"],
            "grad_norm": float(grad_norm),
        }
        if evaluates:
            record |= self.evaluated()
        self.loss_sum.zero_()
        self.count.zero_()
        self.history.append(record)
        return record

    def check_finite(self, grad_norm: Tensor | float = 0.0) -> None:
        """End a run whose weights are lost, before they are evaluated or saved."""
        for what, value in (("loss", self.loss_sum), ("norm of the gradient", grad_norm)):
            if not math.isfinite(value := float(value)):
                raise FloatingPointError(
                    f"the {what} is {value} at step {self.step}: does a batch hold nan or inf? "
                    "If not, try a lower learning rate, a longer warm-up or a smaller clip"
                )

    def evaluated(self) -> Record:
        """The metrics of the weights as they are, which are kept if they are the best."""
        self.model.eval()
        with torch.no_grad():
            metrics = self.measure()
        self.evaluated_at = self.step
        self.keep_best(metrics)
        return metrics

    def measure(self) -> Record:
        metrics = self.evaluate(self.model)
        if not isinstance(metrics, Mapping):
            raise ValueError(f"evaluate returned a {type(metrics).__name__}: it must return {{name: number}}")
        if taken := sorted(metrics.keys() & {"step", "loss", "lr", "grad_norm"}):
            raise ValueError(
                f"evaluate returned {taken[0]!r}, which each record has of the training itself: call it "
                f"'validation_{taken[0]}', for example"
            )
        return metrics

    def keep_best(self, metrics: Record) -> None:
        """Note whether ``monitor`` improved, and if so keep the weights."""
        if self.monitor not in metrics:
            if self.patience is None and self.folder is None:
                return
            raise ValueError(f"monitor={self.monitor!r}: evaluate returned only {', '.join(metrics)}")
        value = metrics[self.monitor]
        better = self.best is None or (value > self.best if self.higher_is_better else value < self.best)
        better &= not math.isnan(value)  # nothing would ever be better than it
        self.without_better = 0 if better else self.without_better + 1
        if better:
            self.best = value
            if self.folder is not None:
                self.save_best(self.model, metrics)

    def save_best(self, model: Any, metrics: Record) -> None:
        """Write ``folder/best.safetensors`` and ``folder/best.json``."""
        save_weights(self.folder / "best.safetensors", model)
        save_json(self.folder / "best.json", {"step": self.step, **metrics})

    def settings(self) -> dict[str, Any]:
        """What must be the same when a run is resumed."""
        scheduled = {"lr"} if self.decay_schedule is None else {"lr", "weight_decay"}
        schedules = [schedule for schedule in (self.schedule, self.decay_schedule) if schedule is not None]
        some = range(0, self.steps, max(1, self.steps // 20))
        return {
            "model": type(self.model).__name__,
            "parameters": {name: list(p.shape) for name, p in self.model.named_parameters()},
            "optimizer": type(self.optimizer).__name__,
            "optimizer's settings": [
                {name: value for name, value in group.items() if name not in {"params", *scheduled}}
                for group in self.optimizer.param_groups
            ],
            "steps": self.steps,
            "schedule": [schedule(step, self.steps) for schedule in schedules for step in some],
            "accumulate": self.accumulate,
            "clip": (self.clip, "each tensor") if self.clip_each else self.clip,
            "precision": self.precision,
            "log_every": self.log_every,
            "evaluate_every": self.evaluate_every,
            "monitor": self.monitor,
            "higher_is_better": self.higher_is_better,
            "patience": self.patience,
            "ema decay": None if self.ema is None else self.ema.decay,
        }

    def save(self) -> None:
        """Write ``folder/last.ckpt``."""
        save_state(self.folder / "last.ckpt", self.state_dict())

    def state_dict(self) -> dict[str, Any]:
        """Everything that the rest of the run depends on, random generators included."""
        return {
            "settings": self.settings(),
            "step": self.step,
            "history": list(self.history),
            "best": self.best,
            "without_better": self.without_better,
            "loss_sum": self.loss_sum,
            "count": self.count,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "ema": None if self.ema is None else self.ema.state_dict(),
            "data": self.data.state_dict(),
            **random_state(),
        }

    def resume(self) -> None:
        """Go on from ``folder/last.ckpt``; nothing is changed unless the file fits this run.

        Raises:
            CheckpointError: the file is damaged, foreign, or of a run with other settings.
        """
        path = self.folder / "last.ckpt"
        state = load_state(path)
        check_same_run(path, state, self.settings())
        try:
            self.data.load_state_dict(state["data"])
        except (KeyError, ValueError) as error:
            raise CheckpointError(f"{path} belongs to a run with other data: {error}") from None
        self.restore_weights(state["model"], state["optimizer"])
        if self.ema is not None:
            self.ema.load_state_dict(state["ema"])
        self.history = History(state["history"])
        for name in ("step", "best", "without_better"):
            setattr(self, name, state[name])
        for own, saved in ((self.loss_sum, state["loss_sum"]), (self.count, state["count"])):
            own.copy_(saved)
        self.restore_random(state)
        tqdm.write(f"Resumed after {self.step} of {self.steps} steps from {path}")

    def restore_weights(self, model: dict[str, Any], optimizer: dict[str, Any]) -> None:
        """Take over the states of a model and its optimizer."""
        self.model.load_state_dict(model)
        self.optimizer.load_state_dict(optimizer)

    def restore_random(self, state: dict[str, Any]) -> None:
        """Take over the states of all random generators."""
        set_random_state(state)
