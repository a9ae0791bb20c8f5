"""Pictures and widgets. They take NumPy arrays (or anything that turns into one), never a model."""

from coursekit.viz.alignment import Alignment
from coursekit.viz.claims import ClaimFailed, claim, claims
from coursekit.viz.diagrams import encoder_decoder
from coursekit.viz.live import Curves, LivePlot
from coursekit.viz.plots import COLORS, bars, curves, heatmap, new_axes
from coursekit.viz.show import show

__all__ = [
    "COLORS",
    "Alignment",
    "ClaimFailed",
    "Curves",
    "LivePlot",
    "bars",
    "claim",
    "claims",
    "curves",
    "encoder_decoder",
    "heatmap",
    "new_axes",
    "show",
]
