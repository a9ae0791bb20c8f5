"""Run a student's cells where they can do no harm: bubblewrap, limits, and a watch from outside.

Inside there is no network, a read-only system, an empty home in memory, no other process and no file of the
course but the package (its checks replaced by empty ones). Where marking was started by root, the code runs
as a user that exists nowhere else. Everything in it dies with it.
"""

import contextlib
import json
import os
import platform
import random
import selectors
import shutil
import signal
import struct
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from coursekit.grading import GradingError

GIB = 2**30
MEMORY = 3 * GIB  # of all processes of a submission together
MESSAGES = 10_000  # and how many
ANSWER_BYTES = 64 * 2**20  # that may come back from a run
START_SECONDS = 120  # for importing torch on a busy machine
stop = threading.Event()  # set to end all runs of this process at once
FORGED = "wrote something of its own where its results are read"
PACKAGE = Path(__file__).resolve().parents[1]

MEND = (
    "install it (Debian, Ubuntu: apt-get install bubblewrap); on Ubuntu 24.04 and later also allow it user "
    "namespaces (an AppArmor profile for bwrap, or sysctl kernel.apparmor_restrict_unprivileged_userns=0)"
)


def why_not() -> str | None:
    """None if bubblewrap works here; otherwise what is wrong and what would mend it, in one sentence."""
    if shutil.which("bwrap") is None:
        return f"bubblewrap is missing: {MEND}"
    done = subprocess.run([*walls(), "--", "/usr/bin/true"], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return None
    said = (done.stderr.strip().splitlines() or ["no message"])[-1]
    return f"bubblewrap does not start ({said}): {MEND}"


def is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0


def walls() -> list[str]:
    """The command line of bubblewrap up to what is mounted beside the system."""
    command = ["bwrap", "--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL"]
    if is_root():  # in the system's own user namespace it can become nobody, and loses both rights with that
        command += ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
        command += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        command += ["--unshare-all"]
    command += ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib64", "lib32"):
        if Path("/", name).is_symlink():
            command += ["--symlink", f"usr/{name}", f"/{name}"]
        elif Path("/", name).is_dir():
            command += ["--ro-bind", f"/{name}", f"/{name}"]
    command += ["--ro-bind-try", "/sys/devices/system/cpu", "/sys/devices/system/cpu"]
    command += ["--proc", "/proc", "--dev", "/dev", "--size", str(256 * 2**20), "--perms", "1777", "--tmpfs", "/tmp"]
    return [*command, "--size", str(64 * 2**20), "--perms", "1777", "--tmpfs", "/dev/shm"]


def packages() -> list[Path]:
    """Where this Python and its packages lie, as far as that is not under /usr."""
    found = {Path(sys.base_prefix), Path(sys.prefix)}
    found |= {Path(entry) for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")}
    found.add(Path(sysconfig.get_paths()["purelib"]))
    found |= {path.resolve() for path in found}
    return sorted(path for path in found if path.is_dir() and not path.is_relative_to("/usr"))


# memory that no process is seen to hold: memfd_create, memfd_secret, shmget
HIDDEN_MEMORY = {"x86_64": (0xC000003E, (319, 447, 29)), "aarch64": (0xC00000B7, (279, 447, 194))}


def system_calls() -> int | None:
    """A file with rules for the kernel (seccomp, classic BPF) that refuse ``HIDDEN_MEMORY``; None elsewhere."""
    if platform.machine() not in HIDDEN_MEMORY:
        return None
    architecture, refused = HIDDEN_MEMORY[platform.machine()]
    n = len(refused)
    rules = [
        (0x20, 0, 0, 4),  # load the architecture
        (0x15, 0, n + 3, architecture),  # another one: refuse
        (0x20, 0, 0, 0),  # load the number of the call
        (0x35, n + 1, 0, 0x40000000),  # x32's numbers: refuse
        *((0x15, n - i, 0, number) for i, number in enumerate(refused)),
        (0x06, 0, 0, 0x7FFF0000),  # allow
        (0x06, 0, 0, 0x00050001),  # refuse: EPERM
    ]
    file, path = tempfile.mkstemp()
    os.unlink(path)
    os.write(file, b"".join(struct.pack("HBBI", *rule) for rule in rules))
    os.lseek(file, 0, os.SEEK_SET)
    return file


@contextlib.contextmanager
def staged(name: str) -> Iterator[Path]:
    """A copy of the package as the sandbox sees it: the checks of the exercise do nothing and know nothing."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        inner = Path(folder) / "coursekit"
        shutil.copytree(PACKAGE, inner, ignore=shutil.ignore_patterns("__pycache__", "checks"))
        checks = inner / "grading" / "checks"
        checks.mkdir()
        (checks / "__init__.py").touch()
        empty = "def __getattr__(name):\n    return lambda *args, **kwargs: None\n"
        (checks / f"{name}.py").write_text(empty, encoding="utf-8")
        yield Path(folder)


@dataclass
class Run:
    """How one run of the sandbox went."""

    messages: list[dict[str, Any]]
    died_at: int | None  # number of the step in which it ended early
    reason: str  # why, in words that follow "it"
    peak: int = 0  # bytes, of all its processes together


def command_for(stage: Path, unsafe: bool, rules: int | None = None) -> list[str]:
    python = [sys.executable, "-m", "coursekit.grading.inside"]
    if unsafe:
        return python
    mounts, above = [], {parent for path in packages() for parent in path.parents if parent != Path("/")}
    for parent in sorted(above - set(packages())):
        mounts += ["--perms", "0755", "--dir", str(parent)]
    for path in packages():
        mounts += ["--ro-bind", str(path), str(path)]
    if PACKAGE.is_relative_to("/usr") or any(PACKAGE.is_relative_to(path) for path in packages()):
        mounts += ["--tmpfs", str(PACKAGE)]  # an installed package has its checks: only the staged one is seen
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": "/tmp",
        "PYTHONPATH": "/course",
        "PYTHONDONTWRITEBYTECODE": "1",
        "LANG": "C.UTF-8",
        **surroundings("/tmp"),
    }
    settings = [word for name, value in environment.items() for word in ("--setenv", name, value)]
    if rules is not None:
        mounts += ["--seccomp", str(rules)]
    return [*walls(), *mounts, "--ro-bind", str(stage), "/course", *settings, "--chdir", "/tmp", "--", *python]


def surroundings(home: str) -> dict[str, str]:
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    folders = {"IPYTHONDIR": f"{home}/.ipython", "MPLCONFIGDIR": f"{home}/.matplotlib"}
    # the user has a number that no file knows: older PyTorch asks for the name to name a folder of its compiler's
    return {**folders, "MPLBACKEND": "agg", "LOGNAME": "student", **one_thread}


def limits(seconds: float, unsafe: bool) -> dict[str, int]:
    """For ``inside.limit``: per process, the memory of all together is watched from outside."""
    if sys.platform == "win32":
        return {}
    tasks = 128
    if not is_root() or unsafe:  # the limit then counts all that this user runs
        mine = [p for p in psutil.process_iter(["uids", "num_threads"]) if p.info["uids"]]
        tasks += sum(p.info["num_threads"] or 0 for p in mine if p.info["uids"].real == os.getuid())
    found = {
        "RLIMIT_CPU": int(seconds) + START_SECONDS,
        "RLIMIT_AS": 8 * GIB,
        "RLIMIT_FSIZE": 128 * 2**20,
        "RLIMIT_NOFILE": 1024,
        "RLIMIT_CORE": 0,
        "RLIMIT_NPROC": tasks,
    }
    if is_root() and not unsafe:
        found["uid"] = random.SystemRandom().randrange(2_000_000, 2_000_000_000)
    return found


def run(steps: list[dict[str, Any]], stage: Path, unsafe: bool = False, seconds: float = 600) -> Run:
    """Run the steps once, until they are done or one goes too far.

    Args:
        steps: each ``source`` of a cell, or ``name`` and ``calls`` of something defined; with its ``seconds``.
        stage: the package as the sandbox sees it, from ``staged``.
        unsafe: without walls; only limits.
        seconds: for all of them together, whatever each may take.
    """
    job = json.dumps({"steps": steps, "limits": limits(sum(step["seconds"] for step in steps), unsafe)})
    environment, folder = None, None
    if unsafe:
        folder = tempfile.mkdtemp()
        environment = {**os.environ, **surroundings(folder), "PYTHONPATH": str(stage), "HOME": folder}
    with tempfile.TemporaryFile() as complaints:  # of the start alone: student code finds standard error closed
        rules = None if unsafe else system_calls()
        process = subprocess.Popen(
            command_for(stage, unsafe, rules),
            pass_fds=(rules,) if rules else (),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            env=environment,
            cwd=folder,
            start_new_session=True,
        )
        try:
            return watch(process, job.encode() + b"\n", steps, seconds)
        except GradingError as error:
            complaints.seek(0)
            said = complaints.read().decode(errors="replace").strip().splitlines()
            raise GradingError(f"{error} ({said[-1] if said else 'it said nothing'})") from None
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            process.wait()
            process.stdout.close()
            if folder:
                shutil.rmtree(folder, ignore_errors=True)
            if rules:
                os.close(rules)


def watch(process: subprocess.Popen, job: bytes, steps: list[dict[str, Any]], seconds: float) -> Run:
    """Read what comes, and look at time, memory and amount while waiting."""
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(job)
        process.stdin.close()
    outcome = Run([], None, "")
    current, begun, pending, received, looked = None, 0, bytearray(), 0, 0.0
    deadline = time.monotonic() + START_SECONDS
    last = deadline + seconds
    os.set_blocking(process.stdout.fileno(), False)
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            reason, chunk = None, b""
            if selector.select(timeout=0.05):
                chunk = process.stdout.read(2**20)
                if chunk == b"":
                    reason = "ended the process that it ran in"
                received += len(chunk or b"")
                pending += chunk or b""
            lines = []
            if b"\n" in (chunk or b""):
                *lines, pending = pending.split(b"\n")
            for line in lines:
                try:
                    message = json.loads(line)
                    if message.get("finished"):
                        return outcome
                    if message.get("ready") or message.get("begin") == begun < len(steps):
                        current, begun = begun, begun + ("begin" in message)
                        deadline = time.monotonic() + steps[current]["seconds"]
                    elif "end" in message and len(outcome.messages) < MESSAGES:
                        outcome.messages.append(message)
                    else:
                        reason = FORGED
                except (ValueError, AttributeError, RecursionError):
                    reason = FORGED
            if time.monotonic() > looked + 0.05:
                outcome.peak, looked = max(outcome.peak, memory(process.pid)), time.monotonic()
            if outcome.peak > MEMORY:
                reason = f"used more than {MEMORY // GIB} GiB of memory"
            elif received > ANSWER_BYTES:
                reason = f"returned more than {ANSWER_BYTES // 2**20} MiB"
            elif time.monotonic() > deadline:
                reason = (
                    f"took longer than {steps[current]['seconds']:g} seconds" if current is not None else "no start"
                )
            elif time.monotonic() > last:
                reason = "took all the time that there is for the whole exercise"
            elif stop.is_set():
                raise GradingError("stopped")
            if reason:
                if current is None:
                    raise GradingError(f"the sandbox did not start: {reason}")
                outcome.died_at, outcome.reason = current, reason
                return outcome


def memory(pid: int) -> int:
    """Bytes in use by a process and all below it."""
    total = 0
    with contextlib.suppress(psutil.Error):
        for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                total += process.memory_info().rss
    return total
