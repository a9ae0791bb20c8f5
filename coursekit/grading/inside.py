"""What runs inside the sandbox: a student's cells, and calls of what they define.

It reads one job, a line of JSON, from standard input, and writes a line of JSON for everything that happens
to standard output. It knows inputs, never right answers, and trusts nobody: the marker outside judges.
"""

import base64
import json
import os
import sys
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load, save

from coursekit.grading.calls import Arrays, Seed, Unusable, call, collect
from coursekit.grading.parts import YOURS, place_of


def pack(arrays: Arrays) -> str:
    """Arrays as text: safetensors, which holds nothing but numbers, in base64."""
    return base64.b64encode(save({name: np.array(array, order="C") for name, array in arrays.items()})).decode()


def unpack(text: str) -> Arrays:
    return load(base64.b64decode(text, validate=True))


def pack_arguments(arguments: tuple[Any, ...]) -> dict[str, Any]:
    """A case's arguments for the journey: tensors, seeds, and plain values."""
    tensors = {str(i): a.contiguous().numpy() for i, a in enumerate(arguments) if isinstance(a, torch.Tensor)}
    kinds = ["tensor" if isinstance(a, torch.Tensor) else "seed" if isinstance(a, Seed) else "value" for a in arguments]
    values = [None if kind == "tensor" else a for kind, a in zip(kinds, arguments)]
    return {"kinds": kinds, "values": values, "tensors": pack(tensors)}


def unpack_arguments(packed: dict[str, Any]) -> list[Any]:
    tensors = unpack(packed["tensors"])
    return [
        torch.from_numpy(tensors[str(i)]) if kind == "tensor" else Seed(*value) if kind == "seed" else value
        for i, (kind, value) in enumerate(zip(packed["kinds"], packed["values"]))
    ]


def place(error: BaseException) -> int | None:
    """The line of the student's own code in which it happened, or which cannot be read."""
    line, step = None, error.__traceback__
    if isinstance(error, SyntaxError) and place_of(str(error.filename)) == YOURS:
        line = error.lineno
    while step is not None:
        if place_of(step.tb_frame.f_code.co_filename) == YOURS:
            line = step.tb_lineno
        step = step.tb_next
    return line


def describe(error: BaseException) -> dict[str, Any]:
    """An exception for the marker: its built-in type, the line, and the message for the marker's eyes only."""
    kind = next((k.__name__ for k in type(error).__mro__ if k.__module__ == "builtins"), "Exception")
    try:
        line, message = place(error), str(error)[:300]
    except Exception:
        line, message = None, ""
    return {"kind": kind, "line": line, "message": message}


def attempt(result: Any, arguments: list[Any] | None, forbidden: list[str]) -> dict[str, Any]:
    """Call ``result`` with ``arguments`` (or take it as it is) and describe what comes back."""
    try:
        if arguments is None:
            return {"arrays": pack(collect(result))}
        called = call(result, arguments, forbidden)
        return {"arrays": pack(called.arrays), "changed": called.changed, "used": called.used}
    except Unusable as problem:
        return {"unusable": str(problem)}
    except BaseException as error:
        return {"error": describe(error)}


def limit(limits: dict[str, int]) -> None:
    """Bound what this process and its children may take; where it was started as root, become nobody first."""
    import resource

    for name, amount in limits.items():
        if name != "uid":
            resource.setrlimit(getattr(resource, name), (amount, amount))
    if "uid" in limits:
        os.setgroups([])
        os.setresgid(limits["uid"], limits["uid"], limits["uid"])
        os.setresuid(limits["uid"], limits["uid"], limits["uid"])


def main() -> None:
    job = json.loads(sys.stdin.buffer.readline())
    channel = os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    if job["limits"]:
        limit(job["limits"])

    def send(**message: Any) -> None:
        channel.write(json.dumps(message).encode() + b"\n")
        channel.flush()

    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "NoColor"
    shell = InteractiveShell.instance(config=config)
    shell.showtraceback = shell.showsyntaxerror = lambda *args, **kwargs: None
    shell.enable_gui = lambda gui=None: None  # %matplotlib inline asks for it
    torch.set_num_threads(1)
    send(ready=True)
    os.dup2(nowhere, 2)  # until here, what goes wrong is the course's own fault and may be read
    for number, step in enumerate(job["steps"]):
        send(begin=number)
        if "source" in step:
            ran = shell.run_cell(step["source"])
            error = ran.error_before_exec or ran.error_in_exec
            send(end=number, **({"error": describe(error)} if error is not None else {}))
            continue
        missing = step["name"] not in shell.user_ns
        for i, packed in enumerate(step["calls"]):
            if missing:
                send(end=number, call=i, missing=True)
                continue
            arguments = None if packed is None else unpack_arguments(packed)
            send(end=number, call=i, **attempt(shell.user_ns[step["name"]], arguments, step["forbidden"]))
    send(finished=True)
    channel.close()
    os._exit(0)


if __name__ == "__main__":
    main()
