"""Walls around students' code: what it can see, ask of the kernel and use up. When it ends, all of it is gone.

Bubblewrap shows it a small read-only system without a network, other processes or the checks. A seccomp filter
refuses the system calls in ``REFUSED``. A memory cgroup counts everything that the kernel holds for it; where none
can be had, its processes' resident memory is watched instead.
"""

import contextlib
import functools
import itertools
import os
import platform
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from coursekit.grading import GradingError

GIB = 2**30
MEMORY = 3 * GIB  # of all processes of a run together
TASKS = 128  # processes and threads of a run
START_SECONDS = 120  # for importing torch on a busy machine
PACKAGE = Path(__file__).resolve().parents[1]
BLANK = Path("grading", "blank")  # in the package: what is seen in the place of the checks

MEND = (
    "install it (Debian, Ubuntu: apt-get install bubblewrap); on Ubuntu 24.04 and later also allow it user "
    "namespaces (an AppArmor profile for bwrap, or sysctl kernel.apparmor_restrict_unprivileged_userns=0)"
)


def why_not() -> str | None:
    """Return None if the sandbox works here; otherwise what is wrong and how to mend it, in one sentence."""
    if shutil.which("bwrap") is None:
        return f"bubblewrap is missing: {MEND}"
    if not has_sizes() and not memory_is_counted():
        return "bubblewrap is older than 0.7 and cannot limit files in memory: install a newer one"
    with started(["true"], 1) as run:
        try:
            if run.process.wait(START_SECONDS) == 0:
                return None
        except subprocess.TimeoutExpired:
            return "bubblewrap does not start in two minutes"
        return f"bubblewrap does not start ({run.complaint()}): {MEND}"


def is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0


# --- what it can see -----------------------------------------------------------------------------------


@functools.cache
def has_sizes() -> bool:
    """Whether bubblewrap can limit a file system in memory (``--size``, since 0.7)."""
    said = subprocess.run([shutil.which("bwrap"), "--version"], capture_output=True, text=True, check=False).stdout
    return tuple(map(int, re.findall(r"\d+", said)))[:2] >= (0, 7)


def in_memory(folder: str, size: int) -> list[str]:
    """Options for an empty folder in memory that everybody may write to."""
    limit = ["--size", str(size)] if has_sizes() else []
    return [*limit, "--perms", "1777", "--tmpfs", folder]


def packages() -> list[Path]:
    """Where this Python and its packages lie, as far as that is not under /usr."""
    found = {Path(sys.base_prefix), Path(sys.prefix), *libraries()}
    found |= {path.resolve() for path in found}
    return sorted(path for path in found if path.is_dir() and not path.is_relative_to("/usr"))


def libraries() -> set[Path]:
    """The folders in which packages are installed."""
    found = {Path(entry) for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")}
    return found | {Path(sysconfig.get_paths()["purelib"])}


def options() -> list[str]:
    """Bubblewrap's options, without those that name a file descriptor."""
    words = ["--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL"]
    if is_root():  # in the system's own user namespace it can become nobody, and loses both rights with that
        words += ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
        words += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        words += ["--unshare-all"]
    words += ["--hostname", "marker", "--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib64", "lib32"):
        if Path("/", name).is_symlink():
            words += ["--symlink", f"usr/{name}", f"/{name}"]
        elif Path("/", name).is_dir():
            words += ["--ro-bind", f"/{name}", f"/{name}"]
    words += ["--proc", "/proc", "--perms", "0755", "--tmpfs", "/dev"]  # its own --dev would have terminals
    for name in ("null", "random", "urandom"):
        words += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        words += ["--symlink", f"/proc/self/fd/{number}", f"/dev/{name}"]
    words += ["--symlink", "/proc/self/fd", "/dev/fd"]
    words += [*in_memory("/dev/shm", 64 * 2**20), "--remount-ro", "/dev", *in_memory("/tmp", 256 * 2**20)]
    shown, processors = packages(), Path("/sys/devices/system/cpu")
    above = {parent for path in (*shown, processors, Path("/course/coursekit")) for parent in path.parents}
    for parent in sorted(above - {Path("/"), *shown}):
        words += ["--perms", "0755", "--dir", str(parent)]
    words += ["--ro-bind-try", str(processors), str(processors)]
    for path in shown:
        words += ["--ro-bind", str(path), str(path)]
    installed = {PACKAGE, *(path / "coursekit" for path in libraries())}  # where the checks could be found, too
    for path in sorted(path for path in installed if path.is_dir()):
        if any(path.is_relative_to(seen) for seen in [Path("/usr"), *shown]):
            words += ["--ro-bind", str(PACKAGE / BLANK), str(path)]
    words += ["--ro-bind", str(PACKAGE), "/course/coursekit"]
    words += ["--ro-bind", str(PACKAGE / BLANK), "/course/coursekit/grading/checks"]
    return [*words, "--remount-ro", "/", "--chdir", "/tmp"]


def surroundings(home: str) -> dict[str, str]:
    """Environment variables, inside walls and without."""
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    folders = {"HOME": home, "IPYTHONDIR": f"{home}/.ipython", "MPLCONFIGDIR": f"{home}/.matplotlib"}
    # the user has a number that no file knows: older PyTorch asks for the name to name a folder of its compiler's
    return {**folders, "MPLBACKEND": "agg", "LOGNAME": "student", "PYTHONDONTWRITEBYTECODE": "1", **one_thread}


# --- what it can ask of the kernel ---------------------------------------------------------------------

# system calls by their numbers on x86-64 and on ARM64
REFUSED = {
    "add_key": (248, 217),  # keyrings are not of a namespace: what the marker's session holds could be read
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "memfd_create": (319, 279),  # memory that no process is seen to hold
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "vmsplice": (278, 75),
    "io_uring_setup": (425, 425),
    "unshare": (272, 97),  # namespaces: inside a new one it would have all rights again
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "ptrace": (101, 117),  # other processes
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "bpf": (321, 280),  # what has let people out of sandboxes before, and no answer needs
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
}
CLONE, CLONE3, MMAP, SOCKET = (56, 220), (435, 435), (9, 222), (41, 198)
NEW_NAMESPACES = 0x7E020000  # all of CLONE_NEW*
SHARED_ANONYMOUS = 0x21  # MAP_SHARED | MAP_ANONYMOUS, memory that can be held without being resident
AF_UNIX = 1  # the other families reach devices and hosts (AF_VSOCK has no namespace), or hold uncounted buffers
ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column above, and the kernel's number

# classic BPF, and what a filter can answer
LOAD, AND, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
ALLOW, NOT_PERMITTED, NOT_IMPLEMENTED = 0x7FFF0000, 0x00050001, 0x00050026
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, (16, 24, 32, 40)  # offsets in what the filter sees (low halves)


def system_calls() -> bytes | None:
    """The filter for the kernel; None on processors for which the numbers are not known here."""
    if platform.machine() not in ARCHITECTURES:
        return None
    column, architecture = ARCHITECTURES[platform.machine()]
    # instruction, how many to jump over if it holds and if not, operand
    rules = [(LOAD, 0, 0, ARCHITECTURE), (EQUAL, 1, 0, architecture), (RETURN, 0, 0, NOT_PERMITTED)]
    rules += [(LOAD, 0, 0, NUMBER), (AT_LEAST, 0, 1, 0x40000000), (RETURN, 0, 0, NOT_PERMITTED)]  # x32's numbers
    for numbers in REFUSED.values():
        rules += [(EQUAL, 0, 1, numbers[column]), (RETURN, 0, 0, NOT_PERMITTED)]
    # its flags lie in memory, where a filter cannot look: the C library then takes clone
    rules += [(EQUAL, 0, 1, CLONE3[column]), (RETURN, 0, 0, NOT_IMPLEMENTED)]
    verdicts = [(RETURN, 0, 0, NOT_PERMITTED), (RETURN, 0, 0, ALLOW)]
    for call, argument, test in (
        (CLONE, 0, [(ANY_BIT, 0, 1, NEW_NAMESPACES), *verdicts]),
        (MMAP, 3, [(AND, 0, 0, SHARED_ANONYMOUS), (EQUAL, 0, 1, SHARED_ANONYMOUS), *verdicts]),
        (SOCKET, 0, [(EQUAL, 1, 0, AF_UNIX), *verdicts]),
    ):
        block = [(LOAD, 0, 0, ARGUMENTS[argument]), *test]
        rules += [(EQUAL, 0, len(block), call[column]), *block]
    rules += [(RETURN, 0, 0, ALLOW)]
    return b"".join(struct.pack("HBBI", *rule) for rule in rules)


# --- what it can use up --------------------------------------------------------------------------------

CGROUPS, OWN_GROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
HARD = MEMORY + GIB // 4  # the kernel takes seconds to end what arrives there; mostly, the watch is faster
LIMITS = {  # the files of a group, of version 1 and of version 2, in this order
    "memory.limit_in_bytes": HARD,
    "memory.memsw.limit_in_bytes": HARD,
    "memory.max": HARD,
    "memory.swap.max": 0,
    "memory.oom.group": 1,
    "pids.max": 2 * TASKS,
}
count = itertools.count()


def memory_is_counted() -> bool:
    """Whether a memory cgroup counts and limits everything; if not, only resident memory is watched."""
    return place_of_groups() is not None


@functools.cache
def place_of_groups() -> Path | None:
    """Where this process may make memory cgroups and start something in them, tried once."""
    for place in places():
        if group := new_group(place):
            enter = ["/bin/sh", "-c", 'echo 0 > "$0"', str(group / "cgroup.procs")]
            entered = subprocess.run(enter, capture_output=True, check=False).returncode == 0
            remove_group(group)
            if entered:
                return place
    return None


def places() -> Iterator[Path]:
    """Folders in which a memory cgroup may be made, as far as they are there."""
    with contextlib.suppress(OSError):
        for line in OWN_GROUPS.read_text(encoding="utf-8").splitlines():
            _, kinds, own = line.split(":", 2)
            if "memory" in kinds.split(","):  # version 1: in our own group; in a container that is the root
                yield from (CGROUPS / "memory" / own.lstrip("/"), CGROUPS / "memory")
            elif not kinds:  # version 2: beside our own, since a group with processes can have no others in it
                yield (CGROUPS / own.lstrip("/")).parent if own != "/" else CGROUPS


def new_group(place: Path) -> Path | None:
    """Make a memory cgroup with its limits; None where that is not possible."""
    for left in place.glob("coursekit-*"):  # by a marker that was killed
        if not Path("/proc", left.name.split("-")[1]).exists():
            with contextlib.suppress(OSError):
                left.rmdir()
    group = place / f"coursekit-{os.getpid()}-{next(count)}"
    try:
        group.mkdir()
        if any((group / name).exists() for name in ("memory.max", "memory.limit_in_bytes")):
            for name, amount in LIMITS.items():
                if (group / name).exists():
                    (group / name).write_text(str(amount))
            return group
        group.rmdir()
    except OSError:
        with contextlib.suppress(OSError):
            group.rmdir()
    return None


def remove_group(group: Path) -> None:
    """Kill all that is in it and remove it."""
    for _ in range(500):
        with contextlib.suppress(OSError):
            for pid in (group / "cgroup.procs").read_text().split():
                os.kill(int(pid), signal.SIGKILL)
        with contextlib.suppress(OSError):
            group.rmdir()
        if not group.exists():
            return
        time.sleep(0.01)


def limits(seconds: float, uid: int | None) -> dict[str, int]:
    """Limits of each process, and the user to become: for ``inside.limit``, which sets them from within."""
    if sys.platform == "win32":
        return {}
    tasks = TASKS
    if uid is None:  # the limit then counts all that this user runs
        mine = [p for p in psutil.process_iter(["uids", "num_threads"]) if p.info["uids"]]
        tasks += sum(p.info["num_threads"] or 0 for p in mine if p.info["uids"].real == os.getuid())
    found = {
        "RLIMIT_CPU": int(seconds) + START_SECONDS,
        "RLIMIT_AS": 8 * GIB,
        "RLIMIT_FSIZE": 128 * 2**20,
        "RLIMIT_NOFILE": 256,  # the buffers of sockets and pipes are no process's memory
        "RLIMIT_CORE": 0,
        "RLIMIT_NPROC": tasks,
    }
    return found if uid is None else {**found, "uid": uid}


def open_to_all() -> bool:
    """Whether another user could read this Python and the package, as code without walls has to."""
    return all(
        path.stat().st_mode & 0o005 == 0o005 and all(parent.stat().st_mode & 0o001 for parent in path.parents)
        for path in {Path(sys.executable).resolve(), PACKAGE, *packages()}
    )


# --- from the start to the end -------------------------------------------------------------------------


class Run:
    """A command within its walls.

    Attributes:
        process: with pipes to its standard input and from its standard output.
        limits: what it has to set for itself, see ``inside.limit``.
        peak: bytes, the most that ``memory`` has found.
    """

    def __init__(self, process: subprocess.Popen, limits: dict[str, int], group: Path | None):
        self.process, self.limits, self.group, self.peak = process, limits, group, 0

    def memory(self) -> int:
        """Bytes in use now: all that the cgroup counts, or the resident memory of all processes."""
        if self.group:
            now = int(self.read("memory.usage_in_bytes", "memory.current"))
            kinds = dict(line.split() for line in self.read("memory.stat").splitlines())
            cache = int(kinds["total_cache" if "total_cache" in kinds else "file"])
            now -= cache - int(kinds["total_shmem" if "total_shmem" in kinds else "shmem"])  # the kernel's own copies
        else:
            now = resident(self.process.pid)
        self.peak = max(self.peak, now)
        return now

    def was_full(self) -> bool:
        """Whether it was seen to use more than ``MEMORY``, or the kernel has ended a process of it for that."""
        killed = self.group and re.search(r"^oom_kill [1-9]", self.read("memory.oom_control", "memory.events"), re.M)
        return bool(killed) or self.peak > MEMORY

    def read(self, *names: str) -> str:
        """The first of these files of the cgroup that is there."""
        return next(self.group / name for name in names if (self.group / name).exists()).read_text()

    def complaint(self) -> str:
        """The last line that it wrote to standard error, while starting."""
        with contextlib.suppress(OSError, ValueError):
            os.set_blocking(self.process.stderr.fileno(), False)
            lines = (self.process.stderr.read(2**16) or b"").decode(errors="replace").strip().splitlines()
            return "".join(filter(str.isprintable, lines[-1]))[:300] if lines else "it said nothing"
        return "it said nothing"


def resident(pid: int) -> int:
    total = 0
    with contextlib.suppress(psutil.Error):
        for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                total += process.memory_info().rss
    return total


@contextlib.contextmanager
def started(words: Sequence[str], seconds: float, unsafe: bool = False) -> Iterator[Run]:
    """Start a command inside the walls; afterwards nothing of it is left.

    Args:
        words: the command. Of its program only the name is seen inside, and found again by PATH.
        seconds: of computing that a process may use, beside the start.
        unsafe: without walls, but with the limits; started by root it still becomes another user where it can.
    """
    with contextlib.ExitStack() as stack:
        fds, folder, environment, uid = [], "/", {}, None
        if is_root() and (not unsafe or open_to_all()):
            uid = random.SystemRandom().randrange(2_000_000, 2_000_000_000)
        if unsafe:
            command = list(words)
            folder = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
            if uid is not None:
                os.chown(folder, uid, uid)
            kept = {n: v for n, v in os.environ.items() if uid is None or n in ("PATH", "LD_LIBRARY_PATH", "LANG")}
            environment = {**kept, **surroundings(folder), "PYTHONPATH": str(PACKAGE.parent)}
        else:
            folders, program = os.path.split(words[0])
            path = ":".join(filter(None, (folders, "/usr/bin", "/bin")))
            inside = {"PATH": path, "PYTHONPATH": "/course", "LANG": "C.UTF-8"}
            given = options()
            for name, value in {**inside, **surroundings("/tmp")}.items():
                given += ["--setenv", name, value]
            if rules := system_calls():
                fds.append(filled(rules, stack))
                given += ["--seccomp", str(fds[0])]
            fds.append(filled("\0".join(given).encode() + b"\0", stack))
            bubblewrap = os.path.abspath(shutil.which("bwrap"))
            command = ["/usr/bin/env", "-i", bubblewrap, "--args", str(fds[-1]), "--", program, *words[1:]]
        group = None
        if place := place_of_groups():
            group = new_group(place)
        if group:
            stack.callback(remove_group, group)
            command = ["/bin/sh", "-c", 'echo 0 > "$0" && exec "$@"', str(group / "cgroup.procs"), *command]
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        try:
            process = subprocess.Popen(
                command, pass_fds=fds, env=environment, cwd=folder, start_new_session=True, **pipes
            )
        except OSError as error:
            raise GradingError(f"the sandbox did not start: {error}") from None
        stack.callback(end, process, uid if unsafe else None)
        yield Run(process, limits(seconds, uid), group)


def filled(content: bytes, stack: contextlib.ExitStack) -> int:
    """A pipe to read ``content`` from: it leaves no file behind, and holds far more than is ever written here."""
    read, write = os.pipe()
    stack.callback(os.close, read)
    os.write(write, content)
    os.close(write)
    return read


def end(process: subprocess.Popen, uid: int | None) -> None:
    """End a command and all that it has started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        with contextlib.suppress(OSError):
            pipe.close()
    if uid is not None:  # what left the session is found by its user
        for other in psutil.process_iter(["uids"]):
            if other.info["uids"] and other.info["uids"].real == uid:
                with contextlib.suppress(psutil.Error):
                    other.kill()
