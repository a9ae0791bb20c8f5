"""How long a run has computed, over all the times that it was stopped and started again."""

import json
import time
from pathlib import Path

from coursekit.train.checkpoint import save_json


class Clock:
    """CPU seconds of this process and of those that were stopped before it, since ``save`` was called last."""

    def __init__(self, path: Path):
        self.path = path
        self.before = json.loads(path.read_text(encoding="utf-8"))["seconds"] if path.exists() else 0.0

    def seconds(self) -> float:
        return self.before + time.process_time()

    def save(self) -> None:
        save_json(self.path, {"seconds": self.seconds()})
