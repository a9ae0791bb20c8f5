"""Training curves that grow while a cell runs, with a button that stops it."""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from IPython.display import display

from coursekit.viz.claims import note_stopped
from coursekit.viz.widget import Widget, live_view, pack


class Curves(Widget):
    """Training curves that show their values under the cursor; also what ``LivePlot`` leaves behind.

    Args:
        histories: name -> records with ``step`` and ``key``; records without ``key`` are passed over.
        key: the entry that is drawn.
        total: right end of the horizontal axis; by default the last step.
    """

    module = "curves"

    def __init__(
        self,
        histories: Mapping[str, Sequence[Mapping[str, float]]],
        key: str = "loss",
        title: str = "",
        ylabel: str = "loss (nats per symbol)",
        total: int | None = None,
        note: str = "",
    ):
        self.points = {
            name: np.array([(r["step"], r[key]) for r in history if key in r], dtype=float).reshape(-1, 2)
            for name, history in histories.items()
        }
        self.data = {
            "title": title,
            "xlabel": "updates",
            "ylabel": ylabel,
            "total": total,
            "names": list(self.points),
            "series": [pack(points) for points in self.points.values()],
            "note": note,
        }

    def static_html(self) -> str:
        from matplotlib import pyplot as plt

        from coursekit.viz.figures import figure_html
        from coursekit.viz.plots import curves

        drawn = {name: [{"step": s, "y": y} for s, y in points] for name, points in self.points.items() if len(points)}
        if not drawn:
            return f"<p>{self.data['title']}: no point yet</p>"
        last = "; ".join(
            f"{name} {points[-1]['y']:.4f} after {points[-1]['step']:.0f}" for name, points in drawn.items()
        )
        alt = f"{self.data['title']}: {last} updates"
        ax = curves(drawn, key="y", title=self.data["title"], ylabel=self.data["ylabel"], alt=alt)
        plt.close(ax.figure)
        return figure_html(ax.figure)


class LivePlot:
    """Draw a training run while it runs::

        history = await LivePlot("Learning to reverse").follow(Training(...))

    The curve grows in the notebook, and its button ends the run at the next redraw; so does the notebook's
    own interrupt. Then the ``stop`` of the run is called, if it has one, and a claim that fails later says what was
    stopped. When the run is over the curve stays as a picture.

    Args:
        title: what stands above.
        key, ylabel: which entry of the records is drawn, and the axis it goes on.
        name: of the curve.
        every: seconds between redraws.
    """

    def __init__(
        self,
        title: str,
        key: str = "loss",
        ylabel: str = "loss (nats per symbol)",
        every: float = 0.3,
    ):
        self.title, self.key, self.ylabel, self.every = title, key, ylabel, every
        self.stopped = False

    async def follow(self, run: Iterable[Mapping[str, float]]) -> list[Mapping[str, float]]:
        """Take the records of ``run`` (which does the work) to its end, or until stopped; return them all."""
        total = getattr(run, "steps", None)
        self.stopped = False
        view = live_view("curves", self.draw(run, [], total, running=True))
        view.on_msg(self.on_message)
        handle = display(view, display_id=True)
        records: list[Mapping[str, float]] = []
        redraw = time.monotonic() + self.every
        try:
            for record in run:
                records.append(record)
                if time.monotonic() >= redraw:
                    view.data = self.draw(run, records, total, running=True)
                    await asyncio.sleep(0.005)  # let the kernel hear the button
                    redraw = time.monotonic() + self.every
                if self.stopped:
                    break
        except (KeyboardInterrupt, asyncio.CancelledError):
            self.stopped = True
        if self.stopped and hasattr(run, "stop"):
            run.stop()
        history = getattr(run, "history", records)
        if total and history and history[-1]["step"] == total:
            self.stopped = False  # too late: it was done
        view.data = self.draw(run, records, total, running=False)
        done = f"{history[-1]['step']} of {total}" if total and history else f"{len(history)} records"
        note = f"Stopped after {done} updates. Run the cell again to train to the end." if self.stopped else ""
        note_stopped(self.title, f"{self.title!r} was stopped after {done} updates" if self.stopped else None)
        if handle is not None:
            handle.update(Curves({"training": history}, self.key, self.title, self.ylabel, total, note))
            view.close()
        return history

    def draw(self, run: Any, records: list, total: int | None, running: bool) -> dict[str, Any]:
        history = getattr(run, "history", records)
        data = Curves({"training": history}, self.key, self.title, self.ylabel, total).data
        return {**data, "running": running}

    def on_message(self, _view, message: dict[str, Any], _buffers) -> None:
        if message.get("stop"):
            self.stopped = True
