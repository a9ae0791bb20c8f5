"""What a browser needs to run the shipped models on the site: their graphs, their tokenizers, and ONNX Runtime Web.

ONNX Runtime Web comes from npm once and is kept in the user's cache folder; what is not the file that is named here,
by its hash, is refused.
"""

import base64
import hashlib
import importlib.util
import json
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from coursekit.commands.doctor import is_missing
from coursekit.commands.lectures import LectureError

RUNTIME = "onnxruntime-web@1.30.0"
INTEGRITY = "sha512-q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1SigqR4CXAfKYQ=="
# the file's name in the package, and what it is called here: every server knows the type of .js and .wasm
PARTS = {
    "ort.wasm.min.mjs": "ort.js",
    "ort-wasm-simd-threaded.mjs": "ort-wasm.js",
    "ort-wasm-simd-threaded.wasm": "ort-wasm.wasm",
}
NEEDED = ("onnx", "onnxscript")


class CannotRun(LectureError):
    """Why the site's pages have stored answers only."""


def gpt(variant: str) -> tuple[Any, Any]:
    from coursekit.recipes import gpt

    return gpt.load(variant)


def assistant(variant: str) -> tuple[Any, Any]:
    from coursekit.recipes import assistant

    return assistant.load(variant)


def bert() -> tuple[Any, Any]:
    from coursekit.recipes import bert

    return bert.load()


def vit(recipe: str) -> tuple[Any, None]:
    from coursekit.recipes import dino, labelled, vit

    return {"dino": dino, "labelled": labelled, "vit": vit}[recipe].load(), None


def from_page(kind: str, config: dict[str, Any], float16: str) -> tuple[Any, None]:
    """A model that a lecture has trained, as ``carried`` in ``viz/widget.py`` put it into the page."""
    from safetensors.torch import load

    from coursekit.models.seq2seq import Seq2Seq, Seq2SeqConfig
    from coursekit.models.transformer import Transformer, TransformerConfig

    model, settings = {"Seq2Seq": (Seq2Seq, Seq2SeqConfig), "Transformer": (Transformer, TransformerConfig)}[kind]
    made = model(settings(**config))
    made.load_state_dict(load(base64.b64decode(float16)))
    return made, None


Load = Callable[[], tuple[Any, Any]]
# of a weight, so many that probabilities stay within 0.01; the assistants ship in 8 bits, and the ViTs do with them
BITS = {"gpt-documentation": 10, "bert": 12}
# name -> what gives the model, and its tokenizer if it has one
MODELS: dict[str, Load] = {
    "gpt-documentation": partial(gpt, "gpt-documentation"),
    "bert": bert,
    **{f"assistant-{name}": partial(assistant, name) for name in ("instructed", "chosen", "preferred")},
    **{name: partial(vit, name) for name in ("dino", "labelled", "vit")},
}
PICTURE = 64  # pixels along a side of what the image models look at: the pictures of lecture 09


def named(page: str) -> dict[str, Load]:
    """The models that the widgets of an HTML page name, and what gives each.

    Raises:
        LectureError: there is no such model.
    """
    found, mark = {}, '"browser": '
    at = page.find(mark)
    while at >= 0:
        record, _ = json.JSONDecoder().raw_decode(page, at + len(mark))
        names = {record["model"]} if isinstance(record["model"], str) else set(record["model"].values())
        here = MODELS | ({record["model"]: partial(from_page, **record["trained"])} if "trained" in record else {})
        if unknown := sorted(names - here.keys()):
            raise LectureError(f"a widget names the model {unknown[0]!r}; there are: {', '.join(MODELS)}")
        found |= {name: here[name] for name in names}
        at = page.find(mark, at + 1)
    return found


def without_weights(page: str) -> str:
    """A page without the weights of ``trained`` models: the site has them beside it, and loads them when asked."""
    return re.sub(r'"float16": "[A-Za-z0-9+/=]+"', '"float16": ""', page)


def stage(models: Mapping[str, Load], folder: Path, cache: Path | None = None) -> None:
    """Write what pages need to run these models into a new folder.

    Args:
        cache: where ONNX Runtime Web is kept; by default the user's cache folder.

    Raises:
        CannotRun: something that is needed is not here and cannot be fetched.
    """
    for module in NEEDED:
        if importlib.util.find_spec(module) is None:
            raise CannotRun(is_missing(module, "site"))
    folder.mkdir(parents=True)
    for file in runtime(cache).iterdir():
        shutil.copy(file, folder)
    for script in (files("coursekit.viz") / "browser").iterdir():
        (folder / script.name).write_text(script.read_text(encoding="utf-8"), encoding="utf-8")
    for name, load in sorted(models.items()):
        write_model(name, load, folder)


def write_model(name: str, load: Load, folder: Path) -> None:
    """Write a model as the scripts of ``viz/browser`` read it: its graph, weights and tokenizer, and what it is."""
    from coursekit.convert.onnx import export
    from coursekit.text.tokenizer_json import save_tokenizer

    model, tokenizer = load()
    about = export(
        model.eval(), folder / f"{name}.onnx", PICTURE, 10 if name.startswith("trained") else BITS.get(name, 8)
    )
    if about["kind"] == "vit":
        import torch

        from coursekit.recipes.vit import scaled

        about["range"] = scaled(torch.tensor([0.0, 1.0])).tolist()  # of black and white
    if tokenizer is not None:
        save_tokenizer(tokenizer, folder / "tokenizer.json")
        text = json.dumps(json.loads((folder / "tokenizer.json").read_text("utf-8")), ensure_ascii=False).encode()
        (folder / "tokenizer.json").unlink()
        about["tokenizer"] = f"{hashlib.sha256(text).hexdigest()[:16]}.json"
        (folder / about["tokenizer"]).write_bytes(text)
    (folder / f"{name}.json").write_text(json.dumps(about), encoding="utf-8")


def runtime(cache: Path | None = None) -> Path:
    """The folder with ONNX Runtime Web's files, which are fetched from npm if they are not there.

    Raises:
        CannotRun: npm is missing, cannot be reached, or gives another file.
    """
    import platformdirs

    cache = cache or Path(platformdirs.user_cache_dir("coursekit"))
    folder = cache / RUNTIME
    if folder.is_dir():
        return folder
    npm = shutil.which("npm")
    if npm is None:
        raise CannotRun(f"npm is not installed, which fetches {RUNTIME}")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as room:
        command = [npm, "pack", RUNTIME, "--pack-destination", room, "--silent", "--fetch-retries", "1"]
        done = subprocess.run(command, cwd=room, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        packed = next(Path(room).glob("*.tgz"), None)
        if done.returncode or packed is None:
            raise CannotRun(f"npm could not fetch {RUNTIME}")
        found = base64.b64encode(hashlib.sha512(packed.read_bytes()).digest()).decode()
        if f"sha512-{found}" != INTEGRITY:
            raise CannotRun(f"what npm gave for {RUNTIME} is not the file that this course was tested with")
        ready = Path(room) / "ready"
        ready.mkdir()
        with tarfile.open(packed) as archive:
            for name, here in PARTS.items():
                (ready / here).write_bytes(archive.extractfile(f"package/dist/{name}").read())
        ready.rename(folder)
    return folder
