"""Training: the device, the loop, schedules, averages, checkpoints. It knows no model."""

from coursekit.train.checkpoint import CheckpointError, load_weights, runs_folder, save_weights
from coursekit.train.device import device, seed
from coursekit.train.ema import EMA
from coursekit.train.loop import Training
from coursekit.train.optim import adamw, constant, warmup_cosine, warmup_linear

__all__ = [
    "EMA",
    "CheckpointError",
    "Training",
    "adamw",
    "constant",
    "device",
    "load_weights",
    "runs_folder",
    "save_weights",
    "seed",
    "warmup_cosine",
    "warmup_linear",
]
