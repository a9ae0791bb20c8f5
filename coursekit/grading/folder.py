"""The folder of a marking: what may become one, one marking at a time in it, and its secret key."""

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from coursekit.grading import GradingError


def refuse_folder(out: Path, paths: list[Path]) -> None:
    """Marks, names and the key belong neither among other files nor among what was handed in."""
    for path in paths:
        if path.is_dir() and out.resolve().is_relative_to(path.resolve()):
            raise GradingError(f"the results in {out} would be read as handed in, since it lies inside {path}")
    if out.is_dir() and any(out.iterdir()) and not any((out / mine).exists() for mine in (".lock", "results")):
        raise GradingError(f"{out} holds something else: name a new folder, or that of an earlier marking")


def make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True, mode=0o700)
        (out / ".writable").touch()
        (out / ".writable").unlink()
    except OSError as error:
        raise GradingError(f"cannot write results into {out}: {error.strerror}") from None


@contextlib.contextmanager
def locked(out: Path) -> Iterator[None]:
    """One marking at a time in a folder; the lock ends with the process."""
    try:
        import fcntl
    except ModuleNotFoundError:  # not on Windows
        yield
        return
    with (out / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise GradingError(f"another marking is at work in {out}: wait for it, or name another folder") from None
        yield


def refuse_private(private: Path | None, exercise: str, exercises: list[str]) -> None:
    """The folder of the key must be there, and what it holds must be hidden cases of exercises."""
    if private is None:
        return
    if not private.is_dir():
        raise GradingError(f"no private folder {private}: make it first (a new key would draw other cases)")
    for path in sorted(private.glob("*.py")):
        if path.stem not in exercises:  # it would be passed over without a word
            right = next((name for name in exercises if path.stem in name.split("_", 1)), exercise)
            raise GradingError(f"{path} is no exercise's: the hidden cases of {right} belong in {private / right}.py")


def key_of(out: Path, private: Path | None, *, new: bool = True) -> bytes:
    """The key of the secret seeds and of the signatures, in ``private`` or else in ``out``; made where there is none.

    Args:
        new: False where a marking was there before, whose key it has to be.
    """
    if private and (out / "key").exists():
        begins = f"marks in {out} are drawn by the key that lies there"
        if (private / "key").exists():
            raise GradingError(
                f"{begins}, others by the key in {private}: leave --private out here, or mark anew into another --out"
            )
        raise GradingError(
            f"{begins}: move {out / 'key'} into {private}, so that they stay as they are, or leave --private out"
        )
    path = (private or out) / "key"
    try:
        if not path.exists():
            if not new or any((out / "results").glob("*/*.json")):
                raise GradingError(
                    f"the secret key {path} is gone: if --private was given before, give it again; if not, put the key "
                    "back, since a new one would draw every mark anew"
                )
            unfinished = path.with_name(f"key.{os.getpid()}")
            with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(secrets.token_hex(32) + "\n")
            unfinished.rename(path)
        key = bytes.fromhex(path.read_text(encoding="ascii").strip())
    except (OSError, ValueError) as error:
        raise GradingError(f"cannot use the secret key {path}: {error}") from None
    if len(key) < 16:
        raise GradingError(f"the secret key {path} is shorter than 16 bytes: delete it, and a new one is made")
    return key
