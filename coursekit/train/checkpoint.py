"""Files that survive a kill: written aside, then renamed; checked whole before anything is loaded."""

import hashlib
import io
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_model, save_model
from torch import nn

from coursekit.files import write_atomically

MAGIC = b"coursekit training state 1\n"
DRIVE = Path("/content/drive/MyDrive")  # a person's Google Drive, where Colab mounts it


class CheckpointError(ValueError):
    """A checkpoint that cannot be used; the message says which file, why, and what to do."""


def runs_folder() -> Path:
    """The folder for runs that shall survive: in Google Drive where it is mounted, else ``build``; says so in a line.

    A runtime of Colab that ends takes its disk with it, but not the Drive. ``Training(..., folder=runs_folder() /
    "mine")`` saves there, and in the next runtime the same line goes on from it.
    """
    if DRIVE.is_dir():
        print(f"Checkpoints: in a folder of {DRIVE / 'attention-course'}, which outlives this runtime")
        return DRIVE / "attention-course"
    on_colab = DRIVE.parents[1].is_dir()
    lost = "; mount Google Drive before, and they outlive this runtime" if on_colab else ""
    print(f"Checkpoints: in a folder of {Path('build').resolve()}{lost}")
    return Path("build")


def save_json(path: Path, data: Any) -> None:
    """Write ``data`` as readable JSON."""
    text = json.dumps(data, indent=2, ensure_ascii=False) + "\n"
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def save_state(path: Path, state: dict[str, Any]) -> None:
    """Write a training state (tensors and plain values) with a digest of itself in front."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    payload = buffer.getvalue()
    digest = hashlib.sha256(payload).hexdigest().encode() + b"\n"
    write_atomically(path, lambda temporary: temporary.write_bytes(MAGIC + digest + payload))


def load_state(path: Path) -> dict[str, Any]:
    """Read what ``save_state`` wrote, onto the CPU.

    Raises:
        CheckpointError: the file is not a training state, or is truncated or damaged.
    """
    path = Path(path)
    content = path.read_bytes()
    if not content.startswith(MAGIC):
        raise CheckpointError(f"{path} is not a training state of coursekit; move it away to start afresh")
    digest, _, payload = content[len(MAGIC) :].partition(b"\n")
    if hashlib.sha256(payload).hexdigest().encode() != digest:
        raise CheckpointError(f"{path} is truncated or damaged; delete it to start afresh")
    return torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)


def check_same_run(path: Path, state: dict[str, Any], settings: dict[str, Any]) -> None:
    """Refuse the state of a run with other settings than these.

    Raises:
        CheckpointError: the state at ``path`` is foreign, or a setting differs; the message names it.
    """
    try:
        saved = state["settings"]
        differs = [name for name in settings if saved[name] != settings[name]]
    except (KeyError, TypeError):
        raise CheckpointError(f"{path} is not the state of a Training; move it away to start afresh") from None
    if differs:
        name = differs[0]
        short = len(repr(saved[name])) + len(repr(settings[name])) < 100
        which = f"{name} {saved[name]!r}, now {settings[name]!r}" if short else f"other {name}"
        raise CheckpointError(
            f"{path} belongs to a run with {which}; give the new run its own folder or delete the old one"
        )


def random_state() -> dict[str, Any]:
    """The states of all random generators: Python's, NumPy's and PyTorch's."""
    name, keys, *rest = np.random.get_state()  # noqa: NPY002
    return {
        "python": random.getstate(),
        "numpy": (name, keys.tolist(), *rest),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def set_random_state(state: dict[str, Any]) -> None:
    """Set all random generators as ``random_state`` found them."""
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])  # noqa: NPY002
    torch.set_rng_state(state["torch"])
    if torch.cuda.is_available() and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])


def save_weights(path: Path, model: nn.Module) -> None:
    """Write a model's weights as safetensors, tied ones once."""
    write_atomically(path, lambda temporary: save_model(model, str(temporary)))


def load_weights(path: Path, model: nn.Module) -> None:
    """Fill ``model`` with the weights at ``path``; it stays as it was unless all of them fit.

    Raises:
        CheckpointError: the file is damaged, or holds other tensors than the model.
    """
    path = Path(path)
    own = model.state_dict()
    try:
        with safe_open(path, framework="pt") as file:
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
            aliases = file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} cannot be read as safetensors: {error}") from None
    # of tied tensors the file holds one, and its metadata names the others
    missing = sorted(name for name in own if name not in shapes and aliases.get(name) not in shapes)
    foreign = sorted(shapes.keys() - own.keys())
    other = sorted(name for name in shapes.keys() & own.keys() if shapes[name] != tuple(own[name].shape))
    for names, what in ((missing, "lacks"), (foreign, "has, unlike the model,"), (other, "has another shape for")):
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise CheckpointError(
                f"{path} {what} {names[0]!r}{more}: it was saved from another model than this {type(model).__name__}"
            )
    load_model(model, str(path))
