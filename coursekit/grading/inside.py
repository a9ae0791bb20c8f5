"""What runs inside the sandbox: a student's cells, and calls of what they define.

It reads one job from standard input and writes what happens to standard output. It knows inputs, never right
answers, and trusts nobody: the marker outside judges.

Job and answers travel alike: a line of JSON, the header, and after it as many raw bytes as the header says.
What is written, in this order and no other (``sandbox.due``):

    {"begin": n}                                        step n begins
    {"end": n, ...}                                     it was a cell
    {"end": n, "call": i, "arrays": a, "after": b, ...} it was a call; a bytes of results and b of arguments follow
"""

import gc

if __name__ == "__main__":  # and not where the marker imports this
    gc.disable()  # a sixth of the start would be spent on looking for garbage among what is imported, in vain

import importlib
import json
import math
import os
import struct
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load, save

from coursekit.grading.calls import Arrays, Seed, Unusable, call, collect, spoiled
from coursekit.grading.kernel import YOURS, place_of

HEADER_BYTES = 4096  # at most, of what is written
NAMES_BYTES = 2**16  # at most, of the names and shapes of arrays
MOST_NUMBERS = 2**24  # at most, of what comes back from a call; the largest model that an exercise trains has 2**22
MOST_AXES = 8  # of what comes back; right answers have five


def pack(arrays: Arrays) -> bytes:
    """Arrays as bytes: safetensors, which holds nothing but numbers."""
    return save({name: np.array(array, order="C") for name, array in arrays.items()})


def unpack(packed: bytes) -> Arrays:
    """What came back from a call.

    Raises:
        ValueError: it has so many names or numbers, or so long an axis, that judging it would take for ever: an array
            without any number may say that it has as many rows as it likes.
    """
    if int.from_bytes(packed[:8], "little") > NAMES_BYTES:
        raise ValueError("too many names")
    arrays = load(packed)
    if sum(math.prod(max(1, size) for size in array.shape) for array in arrays.values()) > MOST_NUMBERS:
        raise ValueError("too many numbers")
    if any(array.ndim > MOST_AXES for array in arrays.values()):
        raise ValueError("too many axes")
    return arrays


def pack_arguments(arguments: Sequence[Any]) -> bytes:
    """A case's arguments as bytes, one after the other: equal arguments are equal bytes."""
    return b"".join(map(pack_argument, arguments))


def pack_argument(argument: Any) -> bytes:
    """A tensor, a seed or a plain value: a letter for its kind, the length (8 bytes), and the bytes."""
    if isinstance(argument, torch.Tensor):
        kind, packed = b"T", pack({"": argument.detach().contiguous().numpy()})
    else:
        kind, packed = b"S" if isinstance(argument, Seed) else b"V", json.dumps(argument).encode()
    return struct.pack("<cQ", kind, len(packed)) + packed


def unpack_arguments(packed: bytes) -> list[Any]:
    arguments = []
    while packed:
        kind, length = struct.unpack_from("<cQ", packed)
        body, packed = packed[9 : 9 + length], packed[9 + length :]
        if kind == b"T":
            arguments.append(torch.from_numpy(load(body)[""]))
        else:
            value = json.loads(body)
            arguments.append(Seed(*value) if kind == b"S" else value)
    return arguments


def first_changed(arguments: Sequence[Any], after: bytes) -> int | None:
    """The number of the first argument that is not as it was, by what a run says they are after a call.

    Nothing that the run wrote is unpacked for that.
    """
    place = 0
    for number, argument in enumerate(arguments):
        packed = pack_argument(argument)
        if not after.startswith(packed, place):
            return number
        place += len(packed)
    return None


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


def attempt(result: Any, packed: bytes | None, forbidden: list[str]) -> tuple[dict[str, Any], bytes, bytes]:
    """Call ``result`` with arguments (or take it as it is): what happened, what came back, the arguments then."""
    try:
        if packed is None:
            return {}, pack(collect(result)), b""
        with spoiled(forbidden) as used:  # all of it, since the answer may have changed what is called before and after
            called = call(result, unpack_arguments(packed))
            arrays, after = pack(called.arrays), pack_after(called.after)
        return {"used": next(iter(used), "")}, arrays, after
    except Unusable as problem:
        return {"unusable": str(problem)[:300]}, b"", b""
    except BaseException as error:
        return {"error": describe(error)}, b"", b""


def attempt_alone(result: Any, packed: bytes, forbidden: list[str]) -> tuple[dict[str, Any], bytes, bytes]:
    """``attempt`` in a child that begins as this process is now, but for the global generators.

    So what is drawn from these, or remembered from one call to the next, is not the same here and there.
    """
    read, write = os.pipe()
    if not (child := os.fork()):
        torch.seed()
        np.random.seed()  # noqa: NPY002  whatever an answer may draw from; Python's own random does so by itself
        header, arrays, after = attempt(result, packed, forbidden)
        with os.fdopen(write, "wb") as pipe:
            pipe.write(json.dumps([header, len(arrays)]).encode() + b"\n" + arrays + after)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        line, both = pipe.readline(), pipe.read()
    os.waitpid(child, 0)
    if not line:
        error = {"kind": "RuntimeError", "line": None, "message": "it ended the process that it ran in"}
        return {"error": error}, b"", b""
    header, size = json.loads(line)
    return header, both[:size], both[size:]


def pack_after(arguments: list[Any]) -> bytes:
    try:
        return pack_arguments(arguments)
    except Exception:
        return b""  # what can no longer be packed was changed


def limit(limits: dict[str, int]) -> None:
    """Bound what this process and its children may take; where it was started as root, become nobody first."""
    import resource

    for name, amount in limits.items():
        if name != "uid":
            hard = resource.getrlimit(getattr(resource, name))[1]
            amount = amount if hard == resource.RLIM_INFINITY else min(amount, hard)
            resource.setrlimit(getattr(resource, name), (amount, amount))
    if "uid" in limits:
        os.setgroups([])
        os.setresgid(limits["uid"], limits["uid"], limits["uid"])
        os.setresuid(limits["uid"], limits["uid"], limits["uid"])


def main() -> None:
    job = json.loads(sys.stdin.buffer.readline())
    for step in job["steps"]:
        step["calls"] = [None if n is None else sys.stdin.buffer.read(n) for n in step.get("calls", ())]
    channel = os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    limit(job["limits"])
    # without walls the real ones are still there
    sys.modules["coursekit.grading.checks"] = importlib.import_module("coursekit.grading.blank")

    def send(header: dict[str, Any], *parts: bytes) -> None:
        channel.write(json.dumps(header, ensure_ascii=False).encode(errors="replace") + b"\n" + b"".join(parts))
        channel.flush()

    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "NoColor"
    shell = InteractiveShell.instance(config=config)
    shell.showtraceback = shell.showsyntaxerror = lambda *args, **kwargs: None
    shell.enable_gui = lambda gui=None: None  # %matplotlib inline asks for it
    shell.system = shell.system_raw  # the other way needs a terminal
    torch.set_num_threads(1)
    gc.freeze()  # what is imported stays
    gc.enable()
    os.dup2(nowhere, 2)  # until here, what goes wrong is the course's own fault and may be read
    for number, step in enumerate(job["steps"]):
        send({"begin": number})
        if "source" in step:
            ran = shell.run_cell(step["source"])
            error = ran.error_before_exec or ran.error_in_exec
            send({"end": number, **({"error": describe(error)} if error is not None else {})})
        alone = {}
        if step["calls"] and step["name"] in shell.user_ns and hasattr(os, "fork"):  # Windows has none
            answer = shell.user_ns[step["name"]]
            alone = {i: attempt_alone(answer, step["calls"][i], step["forbidden"]) for i in step.get("alone", ())}
        for i, packed in enumerate(step["calls"]):
            header, arrays, after = {"missing": True}, b"", b""
            if i in alone:
                header, arrays, after = alone[i]
            elif step["name"] in shell.user_ns:
                header, arrays, after = attempt(shell.user_ns[step["name"]], packed, step["forbidden"])
            send({"end": number, "call": i, "arrays": len(arrays), "after": len(after), **header}, arrays, after)
    os._exit(0)


if __name__ == "__main__":
    main()
