"""The bar of a training run."""

import sys
import time
from typing import Any

from tqdm.auto import tqdm
from tqdm.notebook import tqdm_notebook

FORMAT = "{l_bar}{bar}| step {n_fmt} of {total_fmt}, {remaining} left{postfix}"
EVERY_S = 30.0  # between the lines that take the bar's place in a file


class Bar(tqdm):
    """tqdm's bar; ``end`` leaves a line in its place, as a notebook's bar is a widget that no file keeps."""

    def __init__(self, **settings: Any):
        self.is_widget = isinstance(self, tqdm_notebook)
        super().__init__(**settings, leave=False, **({"display": False} if self.is_widget else {}))
        self.place = None
        if self.is_widget:
            from IPython.display import display

            self.place = display(self.container, display_id=True)

    @property
    def seconds(self) -> float:
        return self.format_dict["elapsed"]

    def end(self, text: str) -> None:
        """Put ``text`` there instead."""
        self.close()
        if self.place is not None:
            self.place.update({"text/plain": text}, raw=True)
        else:
            self.write(text)


class Lines:
    """The same where it is written to a file: a plain line now and then, without what moves a terminal's cursor."""

    def __init__(self, total: int, initial: int = 0, desc: str = ""):
        self.total, self.initial, self.n, self.desc, self.postfix = total, initial, initial, desc, ""
        self.started = time.monotonic()
        self.due = self.started + EVERY_S

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    def set_postfix_str(self, text: str, refresh: bool = False) -> None:
        self.postfix = text

    def update(self, steps: int) -> None:
        self.n += steps
        if self.n == self.initial or time.monotonic() < self.due:
            return
        self.due = time.monotonic() + EVERY_S
        left = tqdm.format_interval(self.seconds / (self.n - self.initial) * (self.total - self.n))
        words = [f"step {self.n:,} of {self.total:,}", f"{left} left", *filter(None, [self.postfix])]
        print(f"{self.desc}: " * bool(self.desc) + ", ".join(words), flush=True)

    def end(self, text: str) -> None:
        print(text, flush=True)

    def close(self) -> None:
        """Nothing has to be taken away."""


def new_bar(total: int, initial: int, desc: str = "") -> Bar | Lines:
    """A bar of so many steps where somebody can see it move, else lines."""
    settings = {"total": total, "initial": initial, "desc": desc}
    if issubclass(Bar, tqdm_notebook):
        return Bar(**settings, unit="step", dynamic_ncols=True)
    return Bar(**settings, bar_format=FORMAT, dynamic_ncols=True) if sys.stderr.isatty() else Lines(**settings)
