"""A small training for torchrun to start: ``shared_run.py FOLDER [--stop-at STEP HOW] [--timeout SECONDS]``."""

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from coursekit.data.batches import Fresh
from coursekit.train import EMA, Training, adamw, device, seed, warmup_cosine
from coursekit.train.distributed import DistributedError, join, rank

STEPS = 12


class Model(nn.Module):
    """With what makes sharing hard: a tied matrix, a parameter that no loss reaches, and a loss beside ``forward``."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(9, 16)
        self.hidden, self.out = nn.Linear(16, 16), nn.Linear(16, 9, bias=False)
        self.out.weight, self.unused = self.embedding.weight, nn.Parameter(torch.ones(3))

    def logits(self, ids: torch.Tensor) -> torch.Tensor:
        return self.out(self.hidden(self.embedding(ids)).tanh())


def loss_fn(model: Model, batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows have different numbers of things, so that the mean of the processes' means would be wrong."""
    torch.rand(())  # as dropout does; the states of the generators are compared at the end
    target = batch["target"].masked_fill(~batch["mask"], -100).flatten()
    return F.cross_entropy(model.logits(batch["ids"]).flatten(0, 1), target, reduction="sum"), batch["mask"].sum()


def make(generator: torch.Generator) -> dict[str, torch.Tensor]:
    """Seven rows: two processes get four and three."""
    ids = torch.randint(9, (7, 5), generator=generator)
    lengths = torch.randint(1, 6, (7, 1), generator=generator)
    return {"ids": ids, "target": (ids + 1) % 9, "mask": torch.arange(5) < lengths}


def training(folder: Path | None) -> Training:
    seed(3)
    where = device() if os.environ.get("ON_GPU") else torch.device("cpu")
    model = Model().to(where)

    def evaluate(model: Model) -> dict[str, float]:
        assert rank() == 0, "only the first evaluates, and thinks itself alone"
        assert "WORLD_SIZE" not in os.environ
        norm = model.hidden.weight.norm().item()
        return {"valid": abs(norm - 2.75), "norm": norm}  # best in the middle

    return Training(
        model, loss_fn, Fresh(make, seed=5), adamw(model, 0.02), STEPS, schedule=warmup_cosine(3), clip=0.5,
        accumulate=2, precision="float32", log_every=2, evaluate=evaluate, evaluate_every=4, monitor="valid",
        ema=EMA(model, 0.9), folder=folder, save_every=3,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--timeout", type=float, default=60.0)
    parser.add_argument("--stop-at", nargs=2, metavar=("STEP", "HOW"))
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    join(torch.device("cuda", rank()) if os.environ.get("ON_GPU") else torch.device("cpu"), chosen.timeout)
    run = training(chosen.folder)
    try:
        for _ in run:
            if chosen.stop_at and run.step == int(chosen.stop_at[0]) and rank() == 1:
                if chosen.stop_at[1] == "killed":
                    os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(3600)
    except DistributedError as error:
        sys.exit(str(error))
    weights = {name: tensor.flatten().tolist() for name, tensor in run.model.state_dict().items()}
    found = {"history": list(run.history), "weights": weights, "random": torch.get_rng_state().tolist()}
    (chosen.folder / f"{rank()}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
