"""As ``shared_run``, of a model in parts: ``sharded_run.py FOLDER [--killed-at STEP] [--precision PRECISION]``."""

import argparse
import json
import os
import signal
import sys
from functools import partial
from pathlib import Path

import torch
from torch import nn

from coursekit.data.batches import Fresh
from coursekit.train import Training, adamw, device, distributed, seed, warmup_cosine
from coursekit.train.sharded import ShardedTraining
from tests.train import shared_run


class Block(nn.Module):
    """With a parameter of which the second process has nothing, and one that no loss reaches."""

    def __init__(self):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(16), nn.Linear(16, 16)
        self.scale, self.unused = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(2, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.scale * self.linear(self.norm(x)).tanh()


class Model(shared_run.Model):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Block(), Block())

    def logits(self, ids: torch.Tensor) -> torch.Tensor:
        return self.out(self.hidden(self.blocks(self.embedding(ids))).tanh())


def training(folder: Path | None, precision: str = "float32", clip_each: bool = False) -> Training:
    seed(3 + distributed.rank())  # what the others begin with does not count
    where = device() if os.environ.get("ON_GPU") else torch.device("cpu")
    model = Model().to(where)
    batch = {name: tensor.to(where) for name, tensor in shared_run.make(torch.Generator().manual_seed(9)).items()}

    @torch.inference_mode()
    def evaluate(model: Model) -> dict[str, float]:
        assert "WORLD_SIZE" not in os.environ, "each thinks itself alone"
        assert not model.training
        loss_sum, count = shared_run.loss_fn(model, batch)
        return {"valid": (loss_sum / count).item(), "norm": model.embedding.weight.norm().item()}

    kind = partial(ShardedTraining, blocks=model.blocks) if distributed.world_size() > 1 else Training
    return kind(
        model, shared_run.loss_fn, Fresh(shared_run.make, seed=5), adamw(model, 0.02, weight_decay=0.1),
        shared_run.STEPS, schedule=warmup_cosine(3), clip=0.5, clip_each=clip_each, accumulate=2, precision=precision,
        log_every=2, evaluate=evaluate, evaluate_every=4, monitor="valid", folder=folder, save_every=3,
    )  # fmt: skip


def held(run: Training) -> dict[str, int]:
    """How many numbers lie in this process, and how many the parameters have."""
    parameters = list(run.model.parameters())
    moments = [state["exp_avg_sq"] for state in run.optimizer.state.values()]
    gradients = [p.grad for p in parameters if p.grad is not None]
    found = {"parameters": parameters, "gradients": gradients, "moments": moments}
    return {name: sum(t.to_local().numel() for t in tensors) for name, tensors in found.items()} | {
        "whole": sum(p.numel() for p in parameters),
        "learned": sum(p.numel() for p in parameters if p.grad is not None),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--killed-at", type=int)
    parser.add_argument("--precision", default="float32")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    run = training(chosen.folder, chosen.precision)
    try:
        for _ in run:
            if run.step == chosen.killed_at and distributed.rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
    except distributed.DistributedError as error:
        sys.exit(str(error))
    each = training(None, chosen.precision, clip_each=True)
    each.steps = 2
    found = {"history": list(run.history), "each": list(each.fit()), "held": held(run)}
    (chosen.folder / f"{distributed.rank()}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
