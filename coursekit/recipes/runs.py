"""What every run notes: how long it has computed, over all the times that it was stopped, and what it has read."""

import hashlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coursekit.train.checkpoint import save_json


def data_hash(texts: Mapping[str, Any]) -> dict[str, str]:
    """SHA-256 of each source; those of Python differ from one version of it to the next."""
    return {source: hashlib.sha256(json.dumps(found).encode()).hexdigest() for source, found in texts.items()}


class Clock:
    """CPU seconds of this process and of those that were stopped before it, since ``save`` was called last."""

    def __init__(self, path: Path):
        self.path = path
        self.before = json.loads(path.read_text(encoding="utf-8"))["seconds"] if path.exists() else 0.0

    def seconds(self) -> float:
        return self.before + time.process_time()

    def save(self) -> None:
        save_json(self.path, {"seconds": self.seconds()})
