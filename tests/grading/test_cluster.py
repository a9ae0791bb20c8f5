"""Marking on a Dask cluster: two real workers, one killed in the middle; every submission is marked once, in TLS."""

import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import dask.config
import distributed  # noqa: F401 - its defaults must be there before a test sets one of them
import nbformat
import pytest

from coursekit.commands.lectures import home
from coursekit.grading import GradingError, batch
from coursekit.grading.cluster import new_certificate
from tests.grading.classroom import NAME, SOLUTIONS, only

CLASS = 8


@pytest.fixture
def cluster(bubblewrap, tmp_path):
    """A scheduler and two workers that talk in TLS, each its own process: the address, certificate and processes."""
    tls = tmp_path / "tls"
    assert f"--tls-key {tls}/key.pem" in new_certificate(tls)
    environment = {**os.environ, "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "9", "OMP_NUM_THREADS": "1"}
    started = []

    def start(*words):
        command = [sys.executable, "-m", "distributed.cli." + words[0], *words[1:]]
        command += ["--tls-ca-file", tls / "cert.pem", "--tls-cert", tls / "cert.pem", "--tls-key", tls / "key.pem"]
        with (tmp_path / f"{len(started)}.log").open("w") as log:
            started.append(subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=tmp_path))

    start("dask_scheduler", "--host", "tls://127.0.0.1", "--port", "0", "--no-dashboard")
    address = None
    for _ in range(600):
        if found := re.search(r"tls://127\.0\.0\.1:\d+", (tmp_path / "0.log").read_text()):
            address = found[0]
            break
        time.sleep(0.1)
    for _ in range(2):
        start("dask_worker", address, "--nthreads", "1", "--no-dashboard", "--no-nanny")
    yield address, tls, started[1:]
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_a_killed_worker_loses_nothing(cluster, tmp_path):
    address, tls, workers = cluster
    for number in range(CLASS):
        source = SOLUTIONS["luong_score"] + f"\n# student {number}"
        folder = tmp_path / "in" / f"s{number:02}"
        folder.mkdir(parents=True)
        nbformat.write(
            only(luong_score=source if number % 2 else "import time\ntime.sleep(3)\n" + source), folder / "x.ipynb"
        )
    seen = []

    def progress(done, of):
        seen.append(done)
        if done == 3:
            workers[0].send_signal(signal.SIGKILL)

    soon = dask.config.set({"distributed.comm.timeouts.connect": "2s"})
    other = tmp_path / "other"
    new_certificate(other)
    for wrong in (None, other):  # nobody without this cluster's certificate gets in
        with soon, pytest.raises(GradingError, match="no Dask scheduler answers at"):
            batch.grade(NAME, [tmp_path / "in"], tmp_path / "no", home(), scheduler=address, tls=wrong)
    given = {"scheduler": address, "tls": tls, "progress": progress}
    outcome = batch.grade(NAME, [tmp_path / "in"], tmp_path / "out", home(), **given)
    assert seen == list(range(1, CLASS + 1))
    assert [row.standing.total for row in outcome.rows] == [15] * CLASS
    assert workers[0].wait() == -signal.SIGKILL
    assert workers[1].poll() is None
    with closing(sqlite3.connect(tmp_path / "out" / "gradebook.db")) as db:
        assert db.execute("select count(*) from submitted_assignment").fetchone() == (CLASS,)


@pytest.mark.slow
def test_no_scheduler_is_said(tmp_path):
    (tmp_path / "in" / "alice").mkdir(parents=True)
    nbformat.write(only(), tmp_path / "in" / "alice" / "x.ipynb")
    soon = dask.config.set({"distributed.comm.timeouts.connect": "1s"})
    with soon, pytest.raises(GradingError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"):
        batch.grade(NAME, [tmp_path / "in"], tmp_path / "out", home(), scheduler="tcp://127.0.0.1:9")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheduler", "tls", "words"),
    [
        ("tcp://10.1.2.3:8786", None, "answers do not leave this machine unencrypted"),
        ("tls://10.1.2.3:8786", None, "answers do not leave this machine unencrypted"),
        ("tls://127.0.0.1:9", "nothing", "no cert.pem and key.pem in .*: 'coursekit grade cluster"),
    ],
)
def test_a_cluster_without_its_certificate_is_refused(tmp_path, scheduler, tls, words):
    (tmp_path / "in" / "alice").mkdir(parents=True)
    nbformat.write(only(), tmp_path / "in" / "alice" / "x.ipynb")
    with pytest.raises(GradingError, match=words):
        batch.grade(NAME, [tmp_path / "in"], tmp_path / "out", home(), scheduler=scheduler, tls=tls and tmp_path / tls)


def test_a_certificate_is_its_owners_and_never_replaced(tmp_path):
    new_certificate(tmp_path / "tls")
    assert {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "tls").iterdir()} == {
        "cert.pem": 0o600,
        "key.pem": 0o600,
    }
    with pytest.raises(GradingError, match="holds a certificate already"):
        new_certificate(tmp_path / "tls")
