"""Files that are there whole or not at all. Every room may import this; it imports none of them."""

import os
from collections.abc import Callable
from pathlib import Path


def write_atomically(path: str | Path, write: Callable[[Path], object]) -> None:
    """Call ``write(temporary)``, then rename to ``path``: readers see the old file or the new, never half.

    The folder is made where it is missing. The bytes are on the disk before the name is, so that this holds for a loss
    of power too. When anything fails, the old file stays and the temporary one is removed.

    Args:
        write: makes the file whose path it is given.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.touch()
        mode = temporary.stat().st_mode
        temporary.unlink()
        write(temporary)
        temporary.chmod(mode)  # as any new file of this user: some writers (safetensors) lock all others out
        with temporary.open("r+b") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
