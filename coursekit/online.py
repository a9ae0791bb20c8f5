"""Cells of a lecture that need the network or a package that is no part of the course."""

import socket
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import urlsplit

Result = TypeVar("Result")


def hub_answers(seconds: float = 3) -> bool:
    """Whether the Hugging Face hub can be reached; asked in one short try, since its own client tries for a minute."""
    from huggingface_hub.constants import ENDPOINT, HF_HUB_OFFLINE

    where = urlsplit(ENDPOINT)
    try:
        address = where.hostname, where.port or {"http": 80}.get(where.scheme, 443)
        socket.create_connection(address, seconds).close()
    except OSError:
        return False
    return not HF_HUB_OFFLINE


def online(cell: Callable[[bool], Result]) -> Result | None:
    """Call ``cell(offline)`` at once; where that cannot work, say so in one line and go on with None.

    ``offline`` is for the argument ``local_files_only`` of ``from_pretrained``: what was fetched once is found
    without the network too. Made to be written above a function: ``@online``.
    """
    try:
        return cell(not hub_answers())
    except (ImportError, OSError) as error:
        said = " ".join(str(error).split()) or type(error).__name__
        print(f"Skipped, an extra that cannot run here: {said.split('. ')[0]}")
        return None
