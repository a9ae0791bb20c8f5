"""A Drive that is a folder of this machine."""

from pathlib import Path


def mount(mountpoint: str, force_remount: bool = False, timeout_ms: int = 120_000, readonly: bool = False) -> None:
    Path(mountpoint, "MyDrive").mkdir(parents=True, exist_ok=True)
    print(f"Mounted at {mountpoint}")


def flush_and_unmount(timeout_ms: int = 86_400_000) -> None:
    """Nothing waits to be written."""
