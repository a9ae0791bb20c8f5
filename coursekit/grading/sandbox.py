"""One run of a submission: start it inside the walls, send it the job, and watch what comes back.

Whatever runs inside may write anything into the channel. Only messages that are due are taken; anything else ends
the run, and what is kept in memory is bounded by ``ANSWER_BYTES`` however it looks.
"""

import json
import os
import selectors
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from coursekit.grading import GradingError, printable, walls
from coursekit.grading.inside import HEADER_BYTES
from coursekit.grading.walls import GIB, MEMORY, START_SECONDS

ANSWER_BYTES = 64 * 2**20  # that may come back from a run
stop = threading.Event()  # set to end all runs of this process at once
FORGED = "wrote something of its own where its results are read"
TOO_MUCH = f"returned more than {ANSWER_BYTES // 2**20} MiB"


class Broken(Exception):
    """The run has to end; the message says why, in words that follow "it"."""


@dataclass
class Outcome:
    """How a run of the sandbox went."""

    messages: list[dict[str, Any]]
    died_at: int | None  # number of the step in which it ended early
    reason: str  # why, in words that follow "it"
    peak: int = 0  # bytes, of all its processes together


def run(steps: list[dict[str, Any]], unsafe: bool = False, seconds: float = 600) -> Outcome:
    """Run the steps once, until they are done or one goes too far.

    Args:
        steps: each ``source`` of a cell, or ``name``, ``forbidden`` and ``calls`` (packed arguments, or None) of
            something defined; with its ``seconds``.
        unsafe: without walls; only limits.
        seconds: for all of them together, whatever each may take.

    Returns:
        Its messages are of calls, ``end`` and ``call`` with ``arrays`` and ``after`` (packed, if something came
        back), ``used``, ``unusable``, ``missing`` or ``error``; and of cells that failed, ``end`` and ``error``.

    Raises:
        GradingError: the sandbox did not start, twice; or the marking is stopped.
    """
    command = [sys.executable, "-P", "-m", "coursekit.grading.inside"]  # nothing is imported from where it may write
    for again in (True, False):
        try:
            with walls.started(command, sum(step["seconds"] for step in steps), unsafe) as started:
                return watch(started, job_of(steps, started.limits), steps, seconds)
        except GradingError:  # before any of the steps ran: a busy machine may have no room for a process just then
            if stop.is_set() or not again:
                raise


def job_of(steps: list[dict[str, Any]], limits: dict[str, int]) -> bytes:
    """The job as ``inside`` reads it: a line of JSON, and then the packed arguments."""
    calls = [call for step in steps for call in step.get("calls", ()) if call is not None]
    told = [
        {**step, **({"calls": [None if c is None else len(c) for c in step["calls"]]} if "calls" in step else {})}
        for step in steps
    ]
    return b"".join([json.dumps({"steps": told, "limits": limits}).encode(), b"\n", *calls])


def due(steps: list[dict[str, Any]]) -> Iterator[dict[str, int]]:
    """What has to come, in this order."""
    for number, step in enumerate(steps):
        yield {"begin": number}
        if "source" in step:
            yield {"end": number}
        for i in range(len(step.get("calls", ()))):
            yield {"end": number, "call": i}


class Channel:
    """Takes apart what comes out of a run."""

    def __init__(self, steps: list[dict[str, Any]]):
        self.coming, self.received, self.pending = due(steps), 0, bytearray()
        self.due: dict[str, int] | None = next(self.coming, None)  # what comes next; None when all is there
        self.header: dict[str, Any] | None = None  # of a message whose bytes are still on their way

    def messages(self, chunk: bytes) -> Iterator[dict[str, Any]]:
        """The messages that are complete with this chunk.

        Raises:
            Broken: it is too much, or not what is due.
        """
        self.received += len(chunk)
        if self.received > ANSWER_BYTES:
            raise Broken(TOO_MUCH)
        self.pending += chunk
        while self.due is not None:
            if self.header is None:
                length = self.pending.find(b"\n", 0, HEADER_BYTES)
                if length < 0 and len(self.pending) < HEADER_BYTES:
                    return
                self.header = self.read(bytes(self.pending[: max(0, length)]))  # where no line ends, none is right
                del self.pending[: length + 1]
            sizes = self.header["arrays"], self.header["after"]
            if sum(sizes) > ANSWER_BYTES - self.received + len(self.pending):
                raise Broken(TOO_MUCH)
            if len(self.pending) < sum(sizes):
                return
            with memoryview(self.pending) as view:
                parts = {"arrays": bytes(view[: sizes[0]]), "after": bytes(view[sizes[0] : sum(sizes)])}
            del self.pending[: sum(sizes)]
            message, self.due, self.header = self.due | cleaned(self.header), next(self.coming, None), None
            came_back = "call" in message and not message.keys() & {"error", "unusable", "missing"}
            yield message | parts if came_back else message

    def read(self, line: bytes) -> dict[str, Any]:
        """The header of the message that is due."""
        try:
            header = json.loads(line)
            sizes = {name: header.get(name, 0) for name in ("arrays", "after")}
            right = all(header.get(name) == self.due.get(name) for name in ("begin", "end", "call"))
        except (ValueError, AttributeError, RecursionError):
            raise Broken(FORGED) from None
        if not right or any(type(size) is not int or size < 0 for size in sizes.values()):
            raise Broken(FORGED)
        return header | sizes


def cleaned(header: dict[str, Any]) -> dict[str, Any]:
    """What is told of a call or a cell, as far as it has the right types; its text without control characters."""
    told = {name: printable(header[name]) for name in ("used", "unusable") if isinstance(header.get(name), str)}
    if header.get("missing") is True:
        told["missing"] = True
    if isinstance(error := header.get("error"), dict):
        kind, line, message = (error.get(name) for name in ("kind", "line", "message"))
        told["error"] = {
            "kind": printable(kind) if isinstance(kind, str) else "Exception",
            "line": line if type(line) is int else None,
            "message": printable(message) if isinstance(message, str) else "",
        }
    return told


def watch(started: walls.Run, job: bytes, steps: list[dict[str, Any]], seconds: float) -> Outcome:
    """Send the job and read what comes; look at time, memory and amount while waiting."""
    process, unsent, channel = started.process, memoryview(job), Channel(steps)
    messages, current, looked = [], None, 0.0
    deadline = time.monotonic() + START_SECONDS
    last = deadline + seconds
    for pipe in (process.stdin, process.stdout):
        os.set_blocking(pipe.fileno(), False)
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        selector.register(process.stdin, selectors.EVENT_WRITE)
        while channel.due is not None:
            reason = None
            for key, _ in selector.select(timeout=0.05):
                if key.fileobj is process.stdin:
                    try:
                        unsent = unsent[os.write(process.stdin.fileno(), unsent) :]
                    except BrokenPipeError:  # it has ended: standard output will say so
                        unsent = unsent[:0]
                    if not unsent:
                        selector.unregister(process.stdin)
                        process.stdin.close()
                    continue
                chunk = os.read(process.stdout.fileno(), 2**20)
                reason = None if chunk else "ended the process that it ran in"
                try:
                    for message in channel.messages(chunk):
                        if "begin" in message:
                            current = message["begin"]
                            deadline = time.monotonic() + steps[current]["seconds"]
                            process.stderr.close()  # student code runs from now on, and shall reach nothing by it
                        elif "call" in message or "error" in message:
                            messages.append(message)
                except Broken as broken:
                    reason = str(broken)
            now = time.monotonic()
            if reason or now > looked + 0.05:
                looked, _ = now, started.memory()
                if started.was_full():
                    reason = f"used more than {MEMORY // GIB} GiB of memory"
            if stop.is_set():
                raise GradingError("stopped")
            if channel.due is None:
                break
            if now > deadline and not reason:
                reason = "no start" if current is None else f"took longer than {steps[current]['seconds']:g} seconds"
            if now > last and not reason:
                reason = "took all the time that there is for the whole exercise"
            if reason and current is None:
                raise GradingError(f"the sandbox did not start: {reason} ({started.complaint()})")
            if reason:
                return Outcome(messages, current, reason, started.peak)
    return Outcome(messages, None, "", started.peak)
