"""The walls seen from inside, by root and by an ordinary user; what may come through the channel; what is left."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from coursekit.commands.lectures import home
from coursekit.grading import GradingError, batch, inside, sandbox, walls
from coursekit.grading.sandbox import ANSWER_BYTES, FORGED, TOO_MUCH, Broken, Channel
from tests.grading.classroom import NAME

# What student code finds out about where it is, as JSON in the bytes of a tensor.
FACTS = r"""
import ctypes, gc, json, mmap, os, platform, socket, subprocess, threading
from pathlib import Path
def read(path):
    try: return Path(path).read_bytes().decode()
    except OSError: return None
def refused(do):
    try: do()
    except OSError as error: return error.errno
    return 0
def write(folder): Path(folder, "x").write_text("x")
def into_descriptors():
    reached = []
    for fd in range(64):
        try:
            file = os.open(f"/proc/1/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK)
            if fd == 2: os.write(file, b"x" * 100_000)
            reached.append(fd)
        except OSError: pass
    return reached
libc = ctypes.CDLL(None, use_errno=True)
def call(*arguments):
    ctypes.set_errno(0)
    return ctypes.get_errno() if libc.syscall(*arguments) < 0 else 0
x86 = platform.machine() == "x86_64"
status = dict(line.split(":\t", 1) for line in read("/proc/self/status").splitlines())
answered = []
thread = threading.Thread(target=lambda: answered.append(1)); thread.start(); thread.join()
if (child := os.fork()) == 0: os._exit(7)
with open("/dev/shm/y", "w+b") as file:
    file.truncate(4096); mmap.mmap(file.fileno(), 4096).write(b"y")
a, b = socket.socketpair()
folders = ("/", "/dev", "/sys", "/proc", "/course", "/course/coursekit", "/usr", "/usr/lib")
find = "find / -name seq2seq_attention.py -path '*checks*' 2>/dev/null"
links = [os.readlink(f"/proc/self/fd/{fd}") for fd in range(64) if os.path.lexists(f"/proc/self/fd/{fd}")]
private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
facts = {
    "uid": os.getuid(), "groups": os.getgroups(), "rights": status["CapEff"], "new rights": status["NoNewPrivs"],
    "processes": [name for name in os.listdir("/proc") if name.isdigit()],
    "environment": sorted(os.environ),
    "environment of 1": read("/proc/1/environ"), "command of 1": read("/proc/1/cmdline"),
    "devices": sorted(os.listdir("/dev")), "descriptors": links, "descriptors of 1": into_descriptors(),
    "not written": [folder for folder in folders if refused(lambda: write(folder))],
    "written": [folder for folder in ("/tmp", "/dev/shm") if not refused(lambda: write(folder))],
    "device": refused(lambda: open("/dev/null", "w").write("x")),
    "checks": sorted(os.listdir("/course/coursekit/grading/checks")),
    "checks elsewhere": subprocess.run(find, shell=True, capture_output=True, text=True).stdout,
    "shared": refused(lambda: mmap.mmap(-1, 4096)), "private": refused(lambda: mmap.mmap(-1, 4096, flags=private)),
    "inet": refused(lambda: socket.socket(socket.AF_INET)),
    "vsock": refused(lambda: socket.socket(40, socket.SOCK_STREAM)),
    "keyctl": call(250 if x86 else 219, 0, -3, 0),
    "memfd": call(319 if x86 else 279, b"x", 0),
    "unshare": [call(272 if x86 else 97, flag) for flag in (0x10000000, 0x20000, 0x40000000)],
    "clone": [call(56 if x86 else 220, flag | 17, 0, 0, 0, 0) for flag in (0x10000000, 0x20000, 0x20000000)],
    "clone3": call(435, 0, 0),
    "mount": call(165 if x86 else 40, b"x", b"/tmp", b"tmpfs", 0, 0),
    "io_uring": call(425, 1, 0),
    "ptrace": call(101 if x86 else 117, 0, 0, 0, 0),
    "perf": call(298 if x86 else 241, 0, 0, 0, 0, 0),
    "bpf": call(321 if x86 else 280, 0, 0, 0),
    "nested": subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode,
    "x32": call(0x40000000 | 39) if x86 else 1,
    "thread": answered, "fork": os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]),
    "torch": float(torch.ones(100, 100).sum()), "garbage": gc.isenabled(),
}
facts = torch.tensor(list(json.dumps(facts).encode()), dtype=torch.uint8)
"""

STEPS = [
    {"source": f"import torch\n{FACTS}", "seconds": 60},
    {"name": "facts", "forbidden": [], "calls": [None], "seconds": 60},
]


def facts_of(run):
    assert run.died_at is None, run.reason
    (message,) = run.messages
    assert "arrays" in message, message
    return json.loads(bytes(inside.unpack(message["arrays"])["value"]))


AS_NOBODY = """
import json, sys
from coursekit.grading import sandbox, walls
from tests.grading.test_sandbox import STEPS, facts_of
facts = facts_of(sandbox.run(STEPS)) | {"why not": walls.why_not(), "counted": walls.memory_is_counted()}
print(json.dumps(facts))
"""


def as_nobody(folder, *command):
    """Run a command as an ordinary user, who is shown a Python that lies in root's home."""
    base = sys.base_prefix
    home_of_root, seen = "/" + base.split("/")[1], f"{folder}/base"
    folder.chmod(0o755)
    script = f"""
mkdir {seen} && mount --bind {base} {seen}
if [ "$(stat -c %a {home_of_root})" != 755 ]; then
  mount -t tmpfs -o mode=755 none {home_of_root} && mkdir -p {base} && mount --bind {seen} {base}
fi
exec setpriv --reuid 65534 --regid 65534 --clear-groups env HOME=/tmp SECRET=the-teachers-own "$0" "$@"
"""
    command = ["unshare", "--mount", "sh", "-ec", script, *command]
    done = subprocess.run(command, cwd=home(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module", params=["as we are", "as an ordinary user"])
def facts(bubblewrap, request):
    if request.param == "as we are":
        return facts_of(sandbox.run(STEPS))
    if not walls.is_root():
        pytest.skip("we are one")
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders are closed to others
        return json.loads(as_nobody(Path(folder), sys.executable, "-c", AS_NOBODY))


def test_it_has_no_rights_and_is_nobody_who_matters(facts):
    assert int(facts["rights"], 16) == 0
    assert facts["new rights"] == "1"
    assert len(facts["processes"]) <= 3
    if "why not" not in facts and os.geteuid() == 0:
        assert facts["uid"] >= 2_000_000
        assert facts["groups"] == []


def test_an_ordinary_user_has_the_same_walls(facts):
    assert facts.get("why not") is None


def test_nothing_of_the_marker_is_seen(facts):
    ours = {"PATH", "PYTHONPATH", "LANG", "PWD", *walls.surroundings("")}
    imported = {"KMP_INIT_AT_FORK", "KMP_DUPLICATE_LIB_OK", "PAGER", "GIT_PAGER", "CLICOLOR", "TERM"}
    assert set(facts["environment"]) <= ours | imported
    assert not facts["environment of 1"], "empty, or not to be read"
    command = facts["command of 1"] or ""
    assert str(home()) not in command
    assert sys.prefix not in command
    if "why not" in facts:
        assert "--args" in command, "an ordinary user can read it"
    own = ("pipe:", "socket:", "anon_inode:", "/dev/null")
    assert [link for link in facts["descriptors"] if not link.startswith(own)] == []
    assert len([link for link in facts["descriptors"] if link.startswith("pipe:")]) == 1, "only the channel"
    assert 2 not in facts["descriptors of 1"], "nobody reads what is written there"


def test_only_its_own_folders_can_be_written_to(facts):
    assert len(facts["not written"]) == 8
    assert facts["written"] == ["/tmp", "/dev/shm"]
    assert facts["devices"] == ["fd", "null", "random", "shm", "stderr", "stdin", "stdout", "urandom"]
    assert facts["device"] == 0


def test_the_checks_are_not_there(facts):
    assert facts["checks"] in (["__init__.py"], ["__init__.py", "__pycache__"])
    assert facts["checks elsewhere"] == ""


@pytest.mark.skipif(walls.system_calls() is None, reason="the numbers of the system calls are not known here")
def test_what_the_kernel_is_asked_is_refused(facts):
    not_permitted, not_implemented = 1, 38
    asked = ["shared", "inet", "vsock", "keyctl", "memfd", "mount", "io_uring", "ptrace", "perf", "bpf", "x32"]
    assert {name: facts[name] for name in asked} == dict.fromkeys(asked, not_permitted)
    assert facts["unshare"] == facts["clone"] == [not_permitted] * 3
    assert facts["clone3"] == not_implemented
    assert facts["nested"] != 0


def test_what_answers_need_works(facts):
    assert facts["thread"] == [1]
    assert facts["fork"] == 7
    assert facts["torch"] == 10_000
    assert facts["private"] == 0
    assert facts["garbage"], "what an answer throws away is collected"


def test_the_user_inside_has_a_name(bubblewrap):
    """PyTorch 2.11 asks for it wherever an optimiser steps, and the training would stop."""
    (message,) = sandbox.run(
        [{"source": "import getpass; raise RuntimeError(getpass.getuser())", "seconds": 10}]
    ).messages
    assert message["error"]["message"] == "student"


def test_without_walls_root_still_becomes_somebody_else(monkeypatch):
    if not walls.is_root():
        pytest.skip("only root can")
    step = {"source": "import os; raise RuntimeError(f'{os.getuid()} {os.environ.get(\"SECRET\")}')", "seconds": 10}
    monkeypatch.setenv("SECRET", "x")
    for open_to_all in (True, False):  # the second: its Python lies in root's home, and must still work
        if not open_to_all or walls.open_to_all():
            monkeypatch.setattr(walls, "open_to_all", lambda answer=open_to_all: answer)
            (message,) = sandbox.run([step], unsafe=True).messages
            uid, secret = message["error"]["message"].split()
            assert (int(uid) >= 2_000_000, secret) == ((True, "None") if open_to_all else (False, "x"))


def test_code_that_others_cannot_read_is_not_open_to_all(monkeypatch, tmp_path):
    package = tmp_path / "coursekit"
    package.mkdir()
    tmp_path.chmod(0o700)
    monkeypatch.setattr(walls, "PACKAGE", package)
    assert not walls.open_to_all()


@pytest.mark.parametrize("installed", [True, False])
def test_an_installed_package_is_hidden_with_its_checks(monkeypatch, tmp_path, installed):
    """This one; and another that is installed while this one is run from its own folder."""
    place = tmp_path / "site-packages" / "coursekit"
    place.mkdir(parents=True)
    monkeypatch.setattr(walls, "libraries", lambda: {tmp_path / "site-packages"})
    if installed:
        monkeypatch.setattr(walls, "PACKAGE", place)
    words = walls.options()
    binds = [words[i + 1 : i + 3] for i, word in enumerate(words) if word == "--ro-bind"]
    seen = {target: source for source, target in binds}
    assert seen[str(place)] == str(walls.PACKAGE / "grading" / "blank")
    assert list(seen).index(str(place)) > list(seen).index(str(place.parent))
    assert seen["/course/coursekit"] == str(walls.PACKAGE)


# --- memory --------------------------------------------------------------------------------------------

NO_GROUP = not walls.memory_is_counted()


@pytest.mark.skipif(NO_GROUP, reason="no memory cgroup can be had here")
def test_files_in_memory_and_pipes_count(bubblewrap):
    with walls.started(["sh", "-c", "head -c 100000000 /dev/urandom > /tmp/x; echo; sleep 99"], 9) as run:
        run.process.stdout.readline()
        assert walls.resident(run.process.pid) < 50e6 < 100e6 < run.memory() < 150e6


@pytest.mark.parametrize("group", [pytest.param(True, marks=pytest.mark.skipif(NO_GROUP, reason="no cgroup")), False])
@pytest.mark.parametrize("child", [True, False])
def test_too_much_memory_ends_a_run_with_that_reason(bubblewrap, monkeypatch, group, child):
    """Of a child too, whose end its parent would sleep through."""
    monkeypatch.setattr(walls, "MEMORY", 3 * walls.GIB // 4)
    for name in ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.max"):
        monkeypatch.setitem(walls.LIMITS, name, walls.GIB)
    if not group:
        monkeypatch.setattr(walls, "place_of_groups", lambda: None)
    source = f"import os, time\nif {child}: pid = os.fork()\nif not {child} or pid == 0: x = b'x' * (5 * 2**28)\n"
    run = sandbox.run([{"source": source + "time.sleep(99)", "seconds": 50}])
    assert (run.died_at, run.reason) == (0, "used more than 3 GiB of memory")


@pytest.mark.skipif(NO_GROUP, reason="no memory cgroup can be had here")
def test_what_only_the_kernel_sees_in_time_has_that_reason_too(bubblewrap, monkeypatch):
    """A process ends between two looks at it."""
    for name in ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.max"):
        monkeypatch.setitem(walls.LIMITS, name, walls.GIB // 2)
    for source in ("x = b'x' * 2**30", "import os, time\nif os.fork() == 0: x = b'x' * 2**30\ntime.sleep(99)"):
        run = sandbox.run([{"source": source, "seconds": 50}])
        assert (run.died_at, run.reason) == (0, "used more than 3 GiB of memory")


def test_where_groups_are_looked_for(monkeypatch, tmp_path):
    own = tmp_path / "cgroup"
    monkeypatch.setattr(walls, "OWN_GROUPS", own)
    for text, places in {
        "4:memory:/a/b\n0::/\n": ["memory/a/b", "memory", ""],
        "4:cpu,cpuacct:/a\n": [],
        "0::/user.slice/app.slice/x.scope\n": ["user.slice/app.slice"],
        "0::/\n": [""],
    }.items():
        own.write_text(text)
        assert list(walls.places()) == [walls.CGROUPS / place for place in places]
    own.unlink()
    assert list(walls.places()) == []


def test_a_folder_that_is_no_memory_cgroup_is_not_taken_for_one(tmp_path):
    assert walls.new_group(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


# --- what is left --------------------------------------------------------------------------------------

MINE = str(10**6 + os.getpid())  # seconds that nobody else on this machine sleeps
ENDLESS = f"""
from coursekit.grading import sandbox
source = "import subprocess\\nsubprocess.Popen(['setsid', 'sleep', '{MINE}'])\\nwhile True: pass"
sandbox.run([{{"source": source, "seconds": 60}}])
"""


def sleeps():
    return any(MINE in (process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"]))


def wait_until(condition):
    until = time.monotonic() + 60
    while not condition() and time.monotonic() < until:
        time.sleep(0.1)
    return condition()


def processes_in(group):
    try:
        return (group / "cgroup.procs").read_text()
    except OSError:  # another marker has just removed it
        return ""


def test_after_a_kill_nothing_runs_and_no_file_is_left(bubblewrap, tmp_path):
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    marker = subprocess.Popen([sys.executable, "-c", ENDLESS], env=environment, cwd=home())
    try:
        assert wait_until(sleeps)
    finally:
        marker.kill()
        marker.wait()
    assert wait_until(lambda: not sleeps())
    assert list(tmp_path.iterdir()) == []
    if place := walls.place_of_groups():
        left = f"coursekit-{marker.pid}-*"  # its group, unless another test has removed it already
        assert wait_until(lambda: not any(map(processes_in, place.glob(left))))
        walls.remove_group(walls.new_group(place))
        assert not list(place.glob(left)), "the next marker removes it"


@pytest.mark.parametrize("unsafe", [False, True])
def test_after_an_exception_nothing_runs(bubblewrap, unsafe):
    with contextlib.suppress(KeyError), walls.started(["sleep", MINE], 9, unsafe) as run:
        assert wait_until(sleeps)
        raise KeyError
    assert run.process.poll() is not None
    assert not sleeps()
    if place := walls.place_of_groups():
        assert not list(place.glob(f"coursekit-{os.getpid()}-*"))


def test_a_start_that_fails_says_why(bubblewrap, monkeypatch):
    monkeypatch.setattr(sandbox.sys, "executable", "/usr/bin/no-such-python")
    with pytest.raises(GradingError, match=r"the sandbox did not start: .* \(bwrap: execvp no-such-python: No such"):
        sandbox.run([{"source": "x", "seconds": 1}])


def test_a_start_that_fails_once_is_tried_again(bubblewrap, monkeypatch):
    started, commands = walls.started, []

    def fails_first(command, *given):
        commands.append(command)
        return started(["/usr/bin/no-such-python"] if len(commands) == 1 else command, *given)

    monkeypatch.setattr(walls, "started", fails_first)
    found = sandbox.run([{"source": "x = 1", "seconds": 20}])
    assert (found.reason, found.died_at, len(commands)) == ("", None, 2)


def test_without_bubblewrap_marking_is_refused_and_says_how_to_mend_it(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        batch.GradingError, match=r"not marked: bubblewrap is missing.*apt-get install bubblewrap.*--unsafe"
    ):
        batch.grade(NAME, [tmp_path], tmp_path / "out", home())
    assert not (tmp_path / "out").exists()


def test_bubblewrap_that_cannot_start_says_why(monkeypatch, tmp_path):
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(walls, "has_sizes", lambda: True)
    assert "uid map: Permission denied" in walls.why_not()
    assert "AppArmor" in walls.why_not()


def test_an_old_bubblewrap_is_refused_only_where_its_files_would_not_count(monkeypatch):
    monkeypatch.setattr(walls, "has_sizes", lambda: False)
    monkeypatch.setattr(walls, "memory_is_counted", lambda: False)
    assert "older than 0.7" in walls.why_not()
    assert "--size" not in walls.in_memory("/tmp", 5)


# --- the channel ---------------------------------------------------------------------------------------

TWO = [{"source": "x", "seconds": 1}, {"name": "f", "forbidden": [], "calls": [b"a", b"b"], "seconds": 1}]
BEGUN = b'{"begin": 0}\n'
RIGHT = (
    BEGUN + b'{"end": 0, "error": {"kind": "ValueError", "line": 3, "message": "m"}}\n{"begin": 1}\n'
    b'{"end": 1, "call": 0, "arrays": 3, "after": 2, "used": "y"}\nabc\n{{"end": 1, "call": 1, "missing": true}\n'
)


def read(channel, *chunks):
    return [message for chunk in chunks for message in channel.messages(chunk)]


@given(st.lists(st.integers(0, len(RIGHT))))
def test_messages_are_the_same_however_they_are_cut(places):
    cuts = [0, *sorted(places), len(RIGHT)]
    channel = Channel(TWO)
    assert read(channel, *(RIGHT[a:b] for a, b in pairwise(cuts))) == [
        {"begin": 0},
        {"end": 0, "error": {"kind": "ValueError", "line": 3, "message": "m"}},
        {"begin": 1},
        {"end": 1, "call": 0, "used": "y", "arrays": b"abc", "after": b"\n{"},
        {"end": 1, "call": 1, "missing": True},
    ]
    assert channel.due is None


@pytest.mark.parametrize(
    "forged",
    [
        b'{"begin": 0}',  # twice
        b'{"begin": 1}',  # the step before has not ended
        b'{"ready": true}',
        b'{"finished": true}',
        b'{"end": 1}',
        b'{"end": 0, "call": 0}',  # it is a cell
        b'{"end": 0, "begin": 0}',
        b'{"end": 0, "arrays": -1}',
        b'{"end": 0, "arrays": 1.5}',
        b'{"end": 0, "arrays": true}',
        b'{"end": [0]}',
        b"[1]",
        b"7",
        b"",
        b"\xff\xfe",
        b"[" * 4000,
        b'{"end": ' + b"9" * 4000 + b"}",
        b'{"end": 0, "x": "' + b"x" * 5000 + b'"}',
    ],
)
def test_what_is_not_due_is_forged(forged):
    channel = Channel(TWO)
    assert read(channel, BEGUN) == [{"begin": 0}]
    with pytest.raises(Broken, match=FORGED):
        read(channel, forged + b"\n")


def test_what_comes_after_the_last_message_is_not_read():
    channel = Channel(TWO)
    assert len(read(channel, RIGHT + b'{"ready": true}\n' + b"[" * 10**6)) == 5


def test_the_marker_keeps_little_whatever_comes():
    channel = Channel(TWO)
    with pytest.raises(Broken, match=FORGED):
        read(channel, BEGUN, b'{"end": [' + b"{}," * 10**5)
    for size in (ANSWER_BYTES, 2**62, 10**400):
        channel = Channel(TWO)
        with pytest.raises(Broken, match=TOO_MUCH):
            read(channel, BEGUN, b'{"end": 0, "arrays": %d}\n' % size)
    channel = Channel(TWO)
    with pytest.raises(Broken, match=TOO_MUCH):
        read(channel, BEGUN, b'{"end": 0, "arrays": 67000000}\n', *[bytes(2**20)] * 64)


def test_what_is_told_has_the_right_types_and_can_be_written_anywhere():
    header = {"used": 5, "unusable": ["x"], "missing": 1, "error": {"kind": None, "line": True, "message": {}}, "x": 1}
    assert sandbox.cleaned(header) == {"error": {"kind": "Exception", "line": None, "message": ""}}
    told = sandbox.cleaned({"error": {"kind": "E", "line": 5, "message": "\ud800 a\x00\x1b[31m\r\nü"}})
    assert told["error"]["message"] == "? a??[31m  ü"
    assert sandbox.cleaned({"error": "x"}) == {}


def test_arrays_with_endless_names_are_refused_before_they_are_read():
    many = save({f"{i:05}" * 9: np.zeros(0, np.uint8) for i in range(2000)})
    with pytest.raises(ValueError, match="too many names"):
        inside.unpack(many)
    assert len(inside.unpack(save({f"layers.{i}.weight": np.zeros(1) for i in range(500)}))) == 500


def test_forging_in_the_last_step_ends_that_step_and_prolongs_nothing(bubblewrap):
    tell = """
import os, time
def f():
    while True:
        for fd in range(3, 9):
            try: os.write(fd, b'{"ready": true}\\n')
            except OSError: pass
        time.sleep(0.1)
"""
    began = time.monotonic()
    run = sandbox.run(
        [
            {"source": tell, "seconds": 30},
            {"name": "f", "forbidden": [], "calls": [inside.pack_arguments(())], "seconds": 30},
        ]
    )
    assert (run.died_at, run.reason, run.messages) == (1, FORGED, [])
    assert time.monotonic() - began < 30


def test_arguments_come_back_as_they_are_after_the_call(bubblewrap):
    arguments = [torch.arange(3.0), 7, [1, 2], {"a": 1.5}, inside.Seed(3, 1), torch.tensor([float("nan"), -0.0])]
    packed = inside.pack_arguments(arguments)
    sources = [
        "pass",
        "args[0].add_(1)",
        "args[2].append(3)",
        "args[3]['b'] = 2",
        "torch.rand(1, generator=args[4])",
        "args[2].append(object())",
        "args[5][0] = 0",
    ]
    steps = []
    for i, source in enumerate(sources):
        define = f"import torch\ndef f{i}(*args):\n    {source}\n    return args[0]"
        steps += [
            {"source": define, "seconds": 20},
            {"name": f"f{i}", "forbidden": [], "calls": [packed], "seconds": 20},
        ]
    messages = sandbox.run(steps).messages
    found = [inside.first_changed(arguments, message["after"]) for message in messages]
    assert found == [None, 0, 2, 3, None, 0, 5]  # what can no longer be packed is told as the first


DRAWS = """
import os, random, torch
import numpy as np
KEPT = {}
def kept(draw):
    def answer(generator):
        key = bytes(generator.get_state())
        torch.rand(1, generator=generator)
        return KEPT.setdefault((draw, key), draw())
    return answer
given = lambda generator: torch.rand(3, generator=generator)
of_torch = kept(lambda: torch.rand(3))
of_numpy = kept(lambda: torch.tensor(np.random.rand(3)))
of_python = kept(lambda: torch.tensor([random.random() for _ in range(3)]))
of_the_system = kept(lambda: torch.tensor(list(os.urandom(8))))
def ends(generator):
    if generator.initial_seed() == 4:
        os._exit(0)
    return torch.rand(3, generator=generator)
"""


def test_a_call_alone_shares_no_draw_with_the_others_but_from_its_generator(bubblewrap):
    names = ["given", "of_torch", "of_numpy", "of_python", "of_the_system", "ends"]
    calls = [inside.pack_arguments([inside.Seed(seed)]) for seed in (3, 3, 4, 4)]
    steps = [{"source": DRAWS, "seconds": 20}]
    steps += [{"name": f, "forbidden": [], "calls": calls[:3], "seconds": 20, "alone": [1]} for f in names[:5]]
    steps += [{"name": "ends", "forbidden": [], "calls": [calls[0], calls[3]], "seconds": 20, "alone": [1]}]
    run = sandbox.run(steps)
    assert run.died_at is None
    drawn = [inside.unpack(m["arrays"])["value"].tolist() if "arrays" in m else m["error"] for m in run.messages]
    same = {name: drawn[3 * i] == drawn[3 * i + 1] for i, name in enumerate(names[:5])}
    assert same == dict.fromkeys(names[:5], False) | {"given": True}
    assert all(drawn[3 * i] != drawn[3 * i + 2] for i in range(5))  # another generator, another draw
    assert drawn[15] == drawn[0]
    assert drawn[16] == {"kind": "RuntimeError", "line": None, "message": "it ended the process that it ran in"}
