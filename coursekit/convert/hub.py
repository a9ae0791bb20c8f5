"""Models in Hugging Face's layout, ``config.json`` beside ``model.safetensors``: from a folder, from the hub, and back.

The weights of a large model lie in several files, its shards, which ``model.safetensors.index.json`` names. Those are
read, never written.

Only safetensors: a pickle may run any code when it is read, so ``pytorch_model.bin`` is never opened.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from coursekit.files import write_atomically
from coursekit.models.pretrained import Pretrained

Model = TypeVar("Model", bound=Pretrained)

CONFIG, WEIGHTS, PICKLE = "config.json", "model.safetensors", "pytorch_model.bin"
INDEX = "model.safetensors.index.json"
SHARD = r"\w[\w.-]*\.safetensors"  # beside the index: no name with a folder in it leads out of the model's own
NAME = r"(?!.*(--|\.\.))(\w[\w.-]*/)?\w[\w.-]*"  # what the hub lets a model be called
SECONDS = 10.0  # for the hub to answer
DIGESTS = {64: "sha256", 40: "git"}  # what the hub calls a file's version: by its length


class HubError(OSError):
    """The hub does not have a file, or did not hand it over whole; the message is one sentence."""


class NoSuchFile(HubError):
    """The hub answers that the model has no such file; or nobody answers, and it was not fetched before."""


def fetch(name: str, filename: str, local_files_only: bool = False) -> Path:
    """A file of a model on the Hugging Face hub, in huggingface_hub's cache: fetched at most once for each version.

    Where the hub cannot be reached, what was fetched before does. Every file is compared with the checksum that the
    hub gave for it; one that differs is deleted.

    Args:
        name: of the model, ``"bert-base-uncased"`` or ``"google-bert/bert-base-uncased"``.
        filename: such as ``"config.json"``.
        local_files_only: do not ask the hub.

    Raises:
        HubError: there is no such file (``NoSuchFile``), the hub does not answer, or the file came damaged.
        ImportError: huggingface_hub is not installed.
    """
    try:
        from huggingface_hub import constants, hf_hub_download
        from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError, RepositoryNotFoundError
    except ImportError:
        raise ImportError(
            f"{name!r} from the hub needs huggingface_hub: pip install huggingface_hub, or give a folder"
        ) from None

    version = None
    try:
        version, trouble = (None, "offline") if local_files_only else ask_hub(name, filename)
        path = Path(hf_hub_download(name, filename, local_files_only=version is None))
    except LocalEntryNotFoundError:
        raise NoSuchFile(f"{trouble}, and {filename} of {name!r} was not fetched before") from None
    except EntryNotFoundError:
        pickled = f": {PICKLE} may be there, a pickle, but is never opened" if filename == WEIGHTS else ""
        raise NoSuchFile(f"{name!r} has no {filename} on {constants.ENDPOINT}{pickled}") from None
    except RepositoryNotFoundError:
        raise HubError(f"{constants.ENDPOINT} has no model {name!r}, or not for all: see how it is spelt") from None
    except Exception as error:
        # where huggingface_hub before 2.0 leaves what came before the connection broke
        half = Path(constants.HF_HUB_CACHE, f"models--{name.replace('/', '--')}", "blobs", f"{version}.incomplete")
        half.unlink(missing_ok=True)
        raise HubError(f"{filename} of {name!r} did not come whole ({reason_of(error)}): try again later") from None
    if not is_whole(path):
        blob = path.parent / path.readlink()
        path.unlink()
        blob.unlink()
        raise HubError(f"{filename} of {name!r} came with a wrong checksum and was deleted: try again later")
    return path


def ask_hub(name: str, filename: str) -> tuple[str | None, str]:
    """The version of a file that the hub has, or else None and why it cannot be had.

    One short try: ``hf_hub_download`` by itself goes on for minutes when nobody answers.
    """
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url
    from huggingface_hub.errors import EntryNotFoundError, RepositoryNotFoundError

    if constants.HF_HUB_OFFLINE:
        return None, "offline"
    try:
        found = get_hf_file_metadata(hf_hub_url(name, filename), timeout=SECONDS)
    except (EntryNotFoundError, RepositoryNotFoundError):
        raise
    except Exception as error:  # of whichever library it talks through, which changes with its versions
        return None, f"{constants.ENDPOINT} gave no answer that could be used ({reason_of(error)})"
    if found.commit_hash is None or found.etag is None:  # such as the page of a hotel, where one has to log in
        return None, f"what answers at {constants.ENDPOINT} is not the hub"
    return found.etag, ""


def reason_of(error: Exception) -> str:
    """The kind of an error and its first line, without a full stop."""
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0].rstrip('.')}" if lines and lines[0] else type(error).__name__


def is_whole(path: Path) -> bool:
    """Whether a file in the cache has the digest that the hub gave: its link leads to a file of that name."""
    if not path.is_symlink():
        return True  # a system without links: the digest was not kept
    digest = path.readlink().name
    with path.open("rb") as file:
        if DIGESTS.get(len(digest)) == "sha256":
            return hashlib.file_digest(file, "sha256").hexdigest() == digest
        if DIGESTS.get(len(digest)) == "git":
            content = file.read()
            return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest() == digest
    return True


def find_file(name_or_folder: str | Path, filename: str, local_files_only: bool = False) -> Path:
    """A file of a model in a folder, or else on the hub.

    Raises:
        ValueError: there is no such folder and it cannot be a model's name, or the folder lacks the file.
        OSError, ImportError: as ``fetch``.
    """
    folder = Path(name_or_folder)
    if name_or_folder != "" and folder.is_dir():  # "" would be the working directory
        if not (folder / filename).is_file():
            raise ValueError(f"{folder} has no {filename}: {suggestion(folder, filename)}")
        return folder / filename
    if isinstance(name_or_folder, Path) or not re.fullmatch(NAME, name_or_folder):
        raise ValueError(
            f"{str(name_or_folder)!r} is no folder, and no name of a model on the hub such as 'owner/model'"
        )
    return fetch(name_or_folder, filename, local_files_only)


def suggestion(folder: Path, filename: str) -> str:
    """Suggest a fix for a file that the folder lacks."""
    if filename == WEIGHTS and (folder / PICKLE).is_file():
        return (
            f"{PICKLE} is a pickle, which may run any code and is never opened; save the model as safetensors, with "
            "save_pretrained of transformers"
        )
    return "give a folder that save_pretrained has written"


def read_model(name_or_folder: str | Path, local_files_only: bool = False) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The configuration and the weights of a model.

    The files of weights are mapped, not read: each tensor takes memory of its own only when it is converted.

    Raises:
        ValueError: a file is missing from the folder, or damaged.
        OSError, ImportError: as ``fetch``.
    """
    config = read_json(find_file(name_or_folder, CONFIG, local_files_only), "configuration")
    path = find_weights(name_or_folder, local_files_only)
    if path.name == INDEX:
        return config, read_shards(name_or_folder, path, local_files_only)
    return config, read_weights(path)


def find_weights(name_or_folder: str | Path, local_files_only: bool = False) -> Path:
    """The file of all weights or, where there is none, the index of the shards."""
    folder = Path(name_or_folder)
    if folder.is_dir():
        sharded = (folder / INDEX).is_file() and not (folder / WEIGHTS).is_file()
        return find_file(name_or_folder, INDEX if sharded else WEIGHTS)
    try:
        return find_file(name_or_folder, WEIGHTS, local_files_only)
    except NoSuchFile as error:
        try:
            return find_file(name_or_folder, INDEX, local_files_only)
        except NoSuchFile:
            raise error from None


def read_json(path: Path, what: str) -> dict[str, Any]:
    """The object in a file of JSON."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise ValueError("not an object")
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no {what}: {reason_of(error)}") from None
    return found


def read_weights(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{path} cannot be read as safetensors: {reason_of(error)}") from None


def read_shards(name_or_folder: str | Path, index: Path, local_files_only: bool = False) -> dict[str, Tensor]:
    """The weights in all files that an index names: ``{"weight_map": {"lm_head.weight": "model-00002-of-…", …}}``.

    Raises:
        ValueError: the index is damaged or leads out of the folder, shards are missing from the folder, or one has
            other weights than the index says.
        OSError: as ``fetch``.
    """
    places = read_json(index, "index of weights").get("weight_map")
    if not isinstance(places, dict) or not places:
        raise ValueError(f"{index} is no index of weights: no weight_map in it says which file has which")
    for shard in places.values():
        if not isinstance(shard, str) or not re.fullmatch(SHARD, shard):
            raise ValueError(f"{index} names {shard!r}, and only .safetensors files in its own folder are read")
    shards = sorted(set(places.values()))
    if Path(name_or_folder).is_dir() and (missing := [one for one in shards if not (index.parent / one).is_file()]):
        raise ValueError(f"{name_or_folder} has no {', '.join(missing)}: {INDEX} names {len(shards)} files, give all")
    weights = {}
    for shard in shards:
        path = find_file(name_or_folder, shard, local_files_only)
        found = read_weights(path)
        if differing := found.keys() ^ {name for name, place in places.items() if place == shard}:
            one = min(differing)
            has = "has" if one in found else "lacks"
            raise ValueError(f"{path} {has} {one}, and {INDEX} says otherwise: they are not of one model")
        weights |= found
    return weights


def write_model(folder: str | Path, config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> None:
    """Write both files of a model; readers see the old file or the new, never half."""
    text = json.dumps(config, indent=2, sort_keys=True) + "\n"
    tensors = {name: tensor.detach().contiguous() for name, tensor in weights.items()}
    write_atomically(Path(folder) / CONFIG, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    metadata = {"format": "pt"}  # transformers asks for it
    write_atomically(Path(folder) / WEIGHTS, lambda temporary: save_file(tensors, temporary, metadata=metadata))


def load_model(kind: type[Model], name_or_folder: str | Path, local_files_only: bool = False) -> Model:
    """The model of class ``kind`` in a folder or on the hub: ``kind.from_pretrained``.

    The names of its weights are known to ``from_hugging_face(kind, config, weights)`` of the file of this room that
    is called as the model's; ``to_hugging_face(model)`` there gives configuration and weights.
    """
    config, weights = read_model(name_or_folder, local_files_only)
    try:
        return converter(kind).from_hugging_face(kind, config, weights)
    except ValueError as error:
        raise ValueError(f"{name_or_folder}: {error}") from None


def save_model(model: Pretrained, folder: str | Path) -> None:
    """Write ``model`` as transformers does: ``model.save_pretrained``."""
    write_model(folder, *converter(type(model)).to_hugging_face(model))


def converter(kind: type[Pretrained]) -> ModuleType:
    """``coursekit.convert.NAME`` for a class of ``coursekit.models.NAME``, or for one derived from it."""
    models = "coursekit.models."
    module = next(base.__module__ for base in kind.__mro__ if base.__module__.startswith(models))
    return import_module(f"coursekit.convert.{module.removeprefix(models)}")
