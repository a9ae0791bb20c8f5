"""One line on everything the course depends on, with what to do where something is wrong."""

import importlib.util
import os
import platform
import socket
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

# What Colab's runtime ships (August 2026). Older is fine wherever pyproject.toml's lower bounds hold.
COLAB = {
    "torch": "2.11.0",
    "numpy": "2.1.3",
    "matplotlib": "3.10.0",
    "ipywidgets": "7.7.1",
    "ipython": "7.34.0",
    "anywidget": "0.9.21",
    "safetensors": "0.8.0",
    "tqdm": "4.67.3",
    "typer": "0.27.1",
    "rich": "13.9.4",
}

Line = tuple[bool, str, str]  # fine?, subject, what was seen and what to do about it


def is_missing(what: str, extra: str) -> str:
    """The sentence that says so, and what to do."""
    install = f"pip install --constraint constraints.txt --editable '.[{extra}]'"
    return f"{what} is missing: in the course's folder, {install}"


def examine() -> Iterator[Line]:
    """The lines, one after the other."""
    python = platform.python_version()
    fits = (3, 11) <= sys.version_info[:2] <= (3, 13)
    yield fits, "Python", python if fits else f"{python}: the course is tested with 3.11 to 3.13; install one of these"
    yield torch_line()
    yield device_line()
    yield memory_line()
    yield versions_line()
    yield widgets_line()
    yield sandbox_line()
    yield network_line()


def torch_line() -> Line:
    try:
        found = version("torch")
    except PackageNotFoundError:
        return False, "torch", "missing: pip install torch"
    return True, "torch", found


def device_line() -> Line:
    if importlib.util.find_spec("torch") is None:
        return False, "device", "unknown without torch"
    import torch

    from coursekit.train.device import device, has_fast_bf16

    where = device()
    name = torch.cuda.get_device_name() if where.type == "cuda" else f"{os.cpu_count()} cores"
    kind = "bfloat16 is fast here" if has_fast_bf16(where) else "trains in float32"
    return True, "device", f"{where.type} ({name}), {kind}; every lecture runs on a CPU"


def memory_line() -> Line:
    try:
        gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    except (ValueError, OSError, AttributeError):
        return True, "memory", "unknown on this system; 4 GiB are enough"
    return (
        gib >= 4,
        "memory",
        f"{gib:.0f} GiB" + ("" if gib >= 4 else ": the lectures want 4 GiB; close other programs"),
    )


def versions_line() -> Line:
    differing, missing = [], []
    for name, colab in COLAB.items():
        try:
            found = version(name)
        except PackageNotFoundError:
            missing.append(name)
            continue
        if found.split("+")[0] != colab:
            differing.append(f"{name} {found} ({colab})")
    if missing:
        return False, "versions", f"missing: pip install {' '.join(missing)}"
    return True, "versions", f"here (Colab): {', '.join(differing)}" if differing else "those of Colab"


def widgets_line() -> Line:
    if importlib.util.find_spec("anywidget") is None:
        return False, "widgets", "anywidget is missing: pip install anywidget; pictures work without it"
    if any(importlib.util.find_spec(name) for name in ("jupyterlab", "notebook")):
        return True, "widgets", f"anywidget {version('anywidget')}"
    return False, "widgets", is_missing("JupyterLab", "lab")


def sandbox_line() -> Line:
    """Only who marks exercises needs it: its absence is no fault."""
    if importlib.util.find_spec("torch") is None or importlib.util.find_spec("psutil") is None:
        return True, "sandbox", "not looked for: it is for marking exercises"
    from coursekit.grading.walls import memory_is_counted, why_not

    if problem := why_not():
        return True, "sandbox", f"only marking needs it: {problem}"
    if importlib.util.find_spec("nbgrader") is None:
        return True, "sandbox", f"works, but {is_missing('nbgrader', 'grade')}"
    if memory_is_counted():
        return True, "sandbox", "works: exercises can be marked safely; a memory cgroup counts all that a run uses"
    return (
        True,
        "sandbox",
        "works: exercises can be marked safely; without a memory cgroup (start by 'systemd-run --user --scope' to have "
        "one), only resident memory is watched",
    )


def network_line() -> Line:
    try:
        socket.create_connection(("huggingface.co", 443), timeout=2).close()
    except OSError:
        return True, "network", "offline: cells marked 'online' say so and are passed over"
    return True, "network", "online: cells marked 'online' will run"
