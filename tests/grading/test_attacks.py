"""Submissions that mean harm. None gains a point, learns, reaches or leaves anything, or stops the others."""

import contextlib
import json
import os
import re
import socket
import subprocess
import threading
from pathlib import Path

import nbformat
import pytest

from coursekit.commands.lectures import home
from coursekit.grading import batch, walls
from coursekit.grading.checks import seq2seq_attention as check
from tests.grading.classroom import NAME, SOLUTIONS, forged, only

pytestmark = [pytest.mark.usefixtures("bubblewrap"), pytest.mark.slow]

WRONG = "\ndef luong_score(query, keys, W=None):\n    return torch.zeros(keys.shape[:2])\n"
REPORT = "\ndef luong_score(query, keys, W=None):\n    raise RuntimeError(report)\n"

# Each is the answer to the first part. What it could find out it puts into `report`, which only the marker sees.
ATTACKS = {
    "endless loop": "while True: pass",
    "endless call": "def luong_score(query, keys, W=None):\n    while True: pass",
    "ignores interrupts": """
import signal
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except Exception: pass
while True:
    try:
        while True: pass
    except BaseException: pass
""",
    "100 GB at once": "block = bytearray(100 * 2**30)" + WRONG,
    "100 GB tensor": "block = torch.ones(25 * 2**30)" + WRONG,
    "growing memory": "blocks = []\nwhile True: blocks.append(bytearray(2**26))",
    "memory of children": """
import os, time
for _ in range(20):
    if os.fork() == 0:
        block = bytearray(2**30)
        time.sleep(100)
time.sleep(100)
""",
    "1 GB of output": """
import os, sys
line = "x" * 2**20
for _ in range(1024):
    print(line); sys.stderr.write(line); os.write(1, line.encode()); os.write(2, line.encode())
""" + WRONG,
    "too much returned": "def luong_score(query, keys, W=None):\n    return torch.zeros(2**24 + 1)",
    "os._exit": "import os\nos._exit(0)",
    "sys.exit": "import sys\nsys.exit(0)",
    "exit in the call": "def luong_score(query, keys, W=None):\n    raise SystemExit",
    "fork loop": "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
    "threads": """
import threading, time
started = 0
try:
    while True:
        threading.Thread(target=time.sleep, args=(1000,), daemon=False).start()
        started += 1
except Exception: pass
report = f"started {'few' if started < 500 else 'MANY'} threads"
""" + REPORT,
    "children that leave the session": """
import subprocess
for _ in range(3): subprocess.Popen(["setsid", "sleep", "98765"], start_new_session=True)
""" + WRONG,
    "kills around itself": """
import os, signal
for pid in [os.getppid(), 1, -1]:
    try: os.kill(pid, signal.SIGKILL)
    except OSError: pass
""" + WRONG,
    "reads what is not its own": """
import os
from pathlib import Path
found = []
for path in SECRETS + ["/etc/passwd", "/etc/shadow", "/root/.ssh", "/home", "/var", "/course/coursekit/solutions"]:
    try: found.append(f"READ {path} {os.listdir(path) if os.path.isdir(path) else Path(path).read_bytes()[:20]}")
    except OSError: pass
for pid in os.listdir("/proc"):
    if pid.isdigit():
        words = Path("/proc", pid, "cmdline").read_bytes()
        if b"grade" in words.split(b"\\0")[-4:] or b"pytest" in words: found.append(f"READ process {words}")
import socket
if socket.gethostname() != "marker": found.append("READ the machine's name")
report = "; ".join(found) or "found nothing"
""" + REPORT,
    "writes outside": """
import os
from pathlib import Path
done = []
for folder in WRITE_INTO + ["/usr/lib", "/usr/bin", "/course/coursekit", "/etc", "/", os.path.dirname(torch.__file__)]:
    try:
        Path(folder, "coursekit-was-here").write_text("x"); done.append(f"WROTE into {folder}")
    except OSError: pass
Path("/tmp/coursekit-was-here").write_text("x")  # its own, in memory
report = "; ".join(done) or "wrote nothing"
""" + REPORT,
    "fills the disk": """
written = 0
try:
    for number in range(200):
        with open(f"/tmp/{number}", "wb") as file:
            written += file.write(bytes(2**26))
except OSError: pass
report = f"wrote {'little' if written < 2**30 else 'MUCH'}"
""" + REPORT,
    "network": """
import socket
reached = []
for address in [("127.0.0.1", PORT), ("8.8.8.8", 53)]:
    try: socket.create_connection(address, timeout=1); reached.append(f"REACHED {address}")
    except OSError: pass
report = "; ".join(reached) or "reached nobody"
""" + REPORT,
    "patched comparisons": """
import builtins, numpy
yes = lambda *args, **kwargs: True
torch.allclose = torch.equal = torch.testing.assert_close = numpy.allclose = numpy.array_equal = yes
numpy.testing.assert_allclose = builtins.all = builtins.any = builtins.isinstance = yes
""" + WRONG,
    "patched course": """
import sys
yes = lambda *args, **kwargs: None
for name, module in list(sys.modules.items()):
    if name.startswith("coursekit.grading"):
        for word in ("difference", "judge", "verdicts", "without_values"): setattr(module, word, yes)
import coursekit.grading.parts as parts
parts.Part.compare = parts.Part.verdicts = yes
""" + WRONG,
    "equal to everything": """
class Sly(torch.Tensor):
    def __eq__(self, other): return torch.ones(self.shape, dtype=torch.bool)
    __ne__ = __lt__ = __gt__ = lambda self, other: torch.zeros(self.shape, dtype=torch.bool)
    def __sub__(self, other): return torch.zeros(self.shape)
    __rsub__ = __sub__
def luong_score(query, keys, W=None):
    return torch.zeros(keys.shape[:2]).as_subclass(Sly)
""",
    "transformed code": """
class NoAsserts(ast.NodeTransformer):
    def visit_Assert(self, node): return None
    def visit_Raise(self, node): return None
get_ipython().ast_transformers.append(NoAsserts())
get_ipython().input_transformers_cleanup.append(lambda lines: ["luong_score = 1"])
""" + WRONG,
    "changed input": """
def luong_score(query, keys, W=None):
    query.zero_(); keys.zero_()
    if W is not None: W.zero_()
    return torch.zeros(keys.shape[:2])
""",
    "asks the checks": """
import importlib.util, site
from coursekit.grading.checks import seq2seq_attention as answers
def luong_score(query, keys, W=None):
    return answers.luong_reference(query, keys, W)
""",
    "writes the results itself": """
import json, os
lines = [{"end": n, "call": c, "arrays": 0} for n in range(9) for c in range(9)]
for fd in range(3, 64):
    for line in lines:
        try: os.write(fd, json.dumps(line).encode() + b"\\n")
        except OSError: break
""" + WRONG,
    "writes all that is due": """
import sys
frame = sys._getframe()
while frame.f_code.co_name != "main": frame = frame.f_back
send, number, steps = (frame.f_locals[name] for name in ("send", "number", "job")); steps = steps["steps"]
for n, step in enumerate(steps[number:], number):
    if n > number: send({"begin": n})
    if "source" in step: send({"end": n})
    for i, _ in enumerate(step["calls"]): send({"end": n, "call": i, "arrays": 1, "after": 1}, b"xx")
while True: pass
""",
    "nonsense for results": """
import os
for fd in range(3, 64):
    try: os.write(fd, b'[1]\\n{"begin": 99999}\\n{"begin": "x"}\\n\\xff\\xfe\\n' + b"[" * 100000 + b"\\n")
    except OSError: pass
""" + WRONG,
    "a header of 24 MiB": """
import os
for fd in range(3, 64):
    try: os.write(fd, b'{"end": [' + b"{}," * 2**23)
    except OSError: pass
""" + WRONG,
    "claims to begin": """
import os
while True:
    for fd in range(3, 64):
        try: os.write(fd, b'{"begin": 1}\\n')
        except OSError: pass
""",
    "claims to be ready again and again": """
import os, time
while True:
    for fd in range(3, 64):
        try: os.write(fd, b'{"ready": true}\\n')
        except OSError: pass
    time.sleep(1)
""",
    "ready again at the end": """
import os
def luong_score(query, keys, W=None):
    for fd in range(3, 64):
        try: os.write(fd, b'{"ready": true}\\n')
        except OSError: pass
    return torch.zeros(keys.shape[:2])
""",
    "begins all it can": """
import json, os, time
for n in range(1, 40):
    for fd in range(3, 64):
        try: os.write(fd, json.dumps({"begin": n}).encode() + b"\\n")
        except OSError: pass
    time.sleep(1)
while True: pass
""",
    "a million errors": """
import json, os
for n in range(10**6):
    for fd in range(3, 9):
        try: os.write(fd, json.dumps({"end": 0, "error": {"kind": "ValueError", "message": str(n)}}).encode() + b"\\n")
        except OSError: pass
""",
    "memory that nobody is seen to hold": """
import ctypes, mmap, os
held = 0
try: held += os.memfd_create("x")
except OSError: pass
libc = ctypes.CDLL(None)
held += max(0, libc.shmget(0, 2**20, 0o1600) + 1)
try:
    for _ in range(16):  # written, and then no longer resident
        block = mmap.mmap(-1, 2**28)
        block.write(bytes(2**28)); block.madvise(mmap.MADV_DONTNEED)
        held += 2**28
except OSError: pass
report = f"held {held}"
""" + REPORT,
    "memory in sockets": """
import socket
held, pairs = 0, []
try:
    while True:
        pairs.append(socket.socketpair())
        pairs[-1][0].setblocking(False)
        try:
            while True: held += pairs[-1][0].send(bytes(2**16))
        except BlockingIOError: pass
except OSError: pass
report = f"held {'little' if held < 2**26 else 'MUCH'}"
""" + REPORT,
    "all rights in a new namespace": """
import ctypes, subprocess
libc = ctypes.CDLL(None)
new = [f"NEW {flag:x}" for flag in (0x10000000, 0x20000, 0x40000000) if libc.unshare(flag) == 0]
for command in (["unshare", "-rm", "mount", "-t", "tmpfs", "x", "/tmp"], ["unshare", "-U", "true"]):
    if subprocess.run(command, capture_output=True).returncode == 0: new.append(f"NEW {command}")
report = "; ".join(new) or "nothing new"
""" + REPORT,
    "keys of the session": """
import ctypes, platform
libc = ctypes.CDLL(None)
add, request, control = (248, 249, 250) if platform.machine() == "x86_64" else (217, 218, 219)
keys = [libc.syscall(control, 0, -3, 1), libc.syscall(control, 11, -3, 0, 0), libc.syscall(control, 0, -5, 1)]
keys += [libc.syscall(add, b"user", b"x", b"y", 1, -3), libc.syscall(request, b"user", b"x", 0, -3)]
report = "no keys" if set(keys) == {-1} else f"KEYS {keys}"
""" + REPORT,
    "asks the first process": """
from pathlib import Path
found = []
for name in ("environ", "cmdline"):
    try: text = Path("/proc/1", name).read_bytes()
    except OSError: continue
    if name == "environ" and text: found.append(f"READ {text[:50]}")
    found += [f"READ {secret}" for secret in SECRETS if secret.encode() in text]
try:
    with open("/proc/1/fd/2", "wb", buffering=0) as file:
        file.write(bytes(2**20)); found.append("WROTE")
except OSError: pass
report = "; ".join(found) or "found nothing"
""" + REPORT,
    "own modules": """
from pathlib import Path
for name in ("coursekit", "torch", "numpy", "sitecustomize", "usercustomize", "IPython"):
    Path(name + ".py").write_text("raise SystemExit")
Path("x.pth").write_text("import os; os._exit(0)")
import os
os._exit(0)
""",
    "hidden input in the error": """
def luong_score(query, keys, W=None):
    raise type(f"Stolen{abs(int(query[0, 0] * 1e6))}", (ValueError,), {})(f"SECRET {query.tolist()} {keys.tolist()}")
""",
    "hidden input in the shape": """
def luong_score(query, keys, W=None):
    return torch.zeros(7531, 1 + abs(int(query[0, 0] * 10)))
""",
}  # fmt: skip


class Listener(threading.Thread):
    """A server on this machine that nobody should reach."""

    def __init__(self):
        super().__init__(daemon=True)
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port, self.reached = self.server.getsockname()[1], False

    def run(self):
        with contextlib.suppress(OSError):
            self.server.accept()
            self.reached = True


def unmarked(outcome):
    """Why jobs were not marked, of those that should be marked again."""
    return [row.submission.problem for row in outcome.rows if "mark it again" in row.submission.problem]


@pytest.fixture(scope="module")
def aftermath(bubblewrap, tmp_path_factory):
    """All attacks marked in one batch with two honest submissions."""
    folder = tmp_path_factory.mktemp("attacks")
    out, listener = folder / "out", Listener()
    listener.start()
    secrets = [
        out,
        out / "key",
        out / "gradebook.db",
        folder / "in",
        home() / "solutions",
        home() / "tests",
    ]
    known = f"SECRETS, WRITE_INTO, PORT = {[str(p) for p in secrets]}, {[str(p) for p in secrets]}, {listener.port}\n"
    submissions = {name: only(luong_score=known + source) for name, source in ATTACKS.items()}
    submissions["forged metadata"] = forged(only(luong_score="# nothing"))
    submissions["a first honest one"] = submissions["z last honest one"] = only(luong_score=SOLUTIONS["luong_score"])
    for name, notebook in submissions.items():
        path = folder / "in" / name / f"{NAME}.ipynb"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(notebook) if isinstance(notebook, dict) else nbformat.writes(notebook))
        for beside in ("coursekit.py", "torch.py", "sitecustomize.py"):
            (path.parent / beside).write_text("raise SystemExit")
    seconds, check.luong_score.seconds = check.luong_score.seconds, 5
    try:
        outcome = batch.grade(NAME, [folder / "in"], out, home(), workers=2)
        if unmarked(outcome):  # a machine may be too busy to start a sandbox; a marker marks these again, as they say
            outcome = batch.grade(NAME, [folder / "in"], out, home(), workers=2)
    finally:
        check.luong_score.seconds = seconds
    assert unmarked(outcome) == []
    return {row.submission.student: row for row in outcome.rows if row.result}, out, listener


def test_honest_work_is_marked_beside_the_attacks(aftermath):
    rows, _, _ = aftermath
    assert len(rows) == len(ATTACKS) + 3
    assert rows["a_first_honest_one"].standing.total == rows["z_last_honest_one"].standing.total == 15


@pytest.mark.parametrize("name", [*ATTACKS, "forged metadata"])
def test_an_attack_gains_nothing(aftermath, name):
    row = aftermath[0][name.replace(" ", "_")]
    assert row.status == "marked"
    assert row.standing.total == 0


@pytest.mark.parametrize(
    ("name", "words"),
    {
        "endless loop": "took longer than 5 seconds",
        "endless call": "took longer than 5 seconds",
        "ignores interrupts": "took longer than 5 seconds",
        "growing memory": "used more than 3 GiB of memory|took longer than 5 seconds",
        "memory of children": "used more than 3 GiB of memory|took longer than 5 seconds",
        "too much returned": "returned more than 64 MiB",
        "os._exit": "ended the process that it ran in",
        "own modules": "ended the process that it ran in",
        "100 GB at once": "MemoryError",
        "reads what is not its own": "RuntimeError: found nothing",
        "writes outside": "RuntimeError: wrote nothing",
        "fills the disk": "RuntimeError: wrote little",
        "network": "RuntimeError: reached nobody",
        "threads": "RuntimeError: started few threads",
        "claims to begin": "wrote something of its own",
        "claims to be ready again and again": "wrote something of its own",
        "ready again at the end": "wrote something of its own",
        "a header of 24 MiB": "wrote something of its own",
        "a million errors": "wrote something of its own",
        "memory that nobody is seen to hold": "RuntimeError: held 0",
        "memory in sockets": "RuntimeError: held little",
        "all rights in a new namespace": "RuntimeError: nothing new",
        "keys of the session": "RuntimeError: no keys",
        "asks the first process": "RuntimeError: found nothing",
    }.items(),
)
def test_an_attack_was_tried_and_met_its_wall(aftermath, name, words):
    result = aftermath[0][name.replace(" ", "_")].result
    assert re.search(words, " | ".join(result["details"]))
    if "children" not in name:  # what they share with their parent is counted for each
        assert result["peak"] < 1.2 * walls.MEMORY


def test_nothing_is_left_and_nobody_was_reached(aftermath):
    _, out, listener = aftermath
    assert not listener.reached
    processes = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert "98765" not in processes
    if place := walls.place_of_groups():
        assert not list(place.glob(f"coursekit-{os.getpid()}-*"))
    for folder in (out, out.parent / "in", home(), Path("/tmp"), Path.home(), Path("/usr/lib")):
        assert not (folder / "coursekit-was-here").exists()


def test_feedback_and_tables_for_students_hold_no_hidden_input(aftermath):
    _, out, _ = aftermath
    for name in ("hidden_input_in_the_error", "hidden_input_in_the_shape"):
        page = (out / "feedback" / name / NAME / f"{NAME}.html").read_text(encoding="utf-8")
        told, code = page.split("<pre>", 1)[0].rsplit("<section", 1)
        assert "SECRET" not in told + code.split("</ul>")[0]
        assert "Stolen" not in told + code.split("</ul>")[0]
        assert "7531" not in told + code.split("</ul>")[0]
    page = (out / "feedback" / "hidden_input_in_the_error" / NAME / f"{NAME}.html").read_text(encoding="utf-8")
    assert "it stopped with a ValueError in line 4" in page
    assert re.search(r'<span class="linenos"> *4</span>.*\braise\b', page), "a line can be found by its number"
