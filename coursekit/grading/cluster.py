"""Marking on the machines of a Dask cluster, which talk in TLS with one certificate that all of them hold."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from coursekit.grading import GradingError, walls
from coursekit.grading.marking import mark

NEEDED = "--scheduler needs Dask: pip install 'attention-course[grade,dask]'"
COMMANDS = """dask scheduler --protocol tls --tls-ca-file {0}/cert.pem --tls-cert {0}/cert.pem --tls-key {0}/key.pem
dask worker tls://ADDRESS:8786 --tls-ca-file {0}/cert.pem --tls-cert {0}/cert.pem --tls-key {0}/key.pem"""


def new_certificate(folder: Path) -> str:
    """Write ``cert.pem`` and ``key.pem`` for a cluster, valid for a year; return the commands that use them.

    Whoever has the key can run code on all machines of the cluster.
    """
    try:
        from distributed.security import Security

        made = Security.temporary()
    except ImportError:
        raise GradingError(NEEDED) from None
    if any((folder / name).exists() for name in ("cert.pem", "key.pem")):
        raise GradingError(f"{folder} holds a certificate already: name another folder, or delete it there first")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name, text in {"cert.pem": made.tls_ca_file, "key.pem": made.tls_client_key}.items():
        (folder / name).touch(mode=0o600)
        (folder / name).write_text(text)
    return COMMANDS.format(folder)


def marked_by_dask(jobs: dict[int, dict], keys: dict[int, str], scheduler: str, tls: Path | None) -> Iterator[tuple]:
    """``(number, future)`` for each job, as they come; a job whose worker dies is given to another by Dask.

    Args:
        keys: a name for each job, the same for the same job.
        scheduler: its address, ``tls://HOST:PORT``.
        tls: the folder of ``new_certificate``.
    """
    try:
        from distributed import Client, as_completed
        from distributed.security import Security
    except ImportError:
        raise GradingError(NEEDED) from None
    security = None
    if tls:
        cert, key = str(tls / "cert.pem"), str(tls / "key.pem")
        if not (Path(cert).is_file() and Path(key).is_file()):
            raise GradingError(f"no cert.pem and key.pem in {tls}: 'coursekit grade cluster {tls}' makes them")
        security = Security(tls_ca_file=cert, tls_client_cert=cert, tls_client_key=key, require_encryption=True)
    elif urlsplit(scheduler).hostname not in ("127.0.0.1", "localhost", "::1"):
        raise GradingError(
            f"answers do not leave this machine unencrypted, and whoever reaches {scheduler} could run code there: "
            "'coursekit grade cluster DIR' makes a certificate; start the cluster with it and give --tls DIR"
        )
    try:
        client = Client(scheduler, security=security)  # it waits as long as Dask's "comm.timeouts.connect" says
    except (OSError, ValueError, TypeError) as error:
        raise GradingError(f"no Dask scheduler answers at {scheduler}: {error}") from None
    with client:
        futures = {client.submit(mark_walled, job, key=f"mark-{keys[n]}-{n}", pure=False): n for n, job in jobs.items()}
        for future in as_completed(list(futures)):
            yield futures[future], future


def mark_walled(job: dict[str, Any]) -> dict[str, Any]:
    """``mark`` on a machine that was not asked yet whether it has a sandbox."""
    if not job["unsafe"] and (problem := walls.why_not()):
        raise GradingError(problem)
    return mark(job)
