"""Pictures and widgets. They take NumPy arrays (or anything that turns into one), never a model."""

from coursekit.viz.alignment import Alignment
from coursekit.viz.association import Association
from coursekit.viz.chat import Chat
from coursekit.viz.claims import ClaimFailed, claim, claims
from coursekit.viz.corruption import Corruption
from coursekit.viz.crops import Crops
from coursekit.viz.diagrams import block_diagram, encoder_decoder, several_heads, transformer_stacks
from coursekit.viz.figures import COLORS, color_of, with_alt
from coursekit.viz.fill_mask import FillMask
from coursekit.viz.flow import Flow
from coursekit.viz.forecast import Forecast
from coursekit.viz.generate import Generate
from coursekit.viz.heads import AttentionHeads
from coursekit.viz.live import Curves, LivePlot
from coursekit.viz.masks import Masks
from coursekit.viz.next_token import NextToken
from coursekit.viz.overlay import Overlay
from coursekit.viz.patches import Patches
from coursekit.viz.plots import bars, curves, heatmap, image_grid, new_axes, new_panels
from coursekit.viz.position_map import PositionMap
from coursekit.viz.positions import Positions
from coursekit.viz.prefer import Prefer
from coursekit.viz.qkv import QKV
from coursekit.viz.reconstruction import Reconstruction
from coursekit.viz.rotary import Rotary
from coursekit.viz.show import show
from coursekit.viz.tokens import Tokens
from coursekit.viz.write import Write

__all__ = [
    "COLORS",
    "QKV",
    "Alignment",
    "Association",
    "AttentionHeads",
    "Chat",
    "ClaimFailed",
    "Corruption",
    "Crops",
    "Curves",
    "FillMask",
    "Flow",
    "Forecast",
    "Generate",
    "LivePlot",
    "Masks",
    "NextToken",
    "Overlay",
    "Patches",
    "PositionMap",
    "Positions",
    "Prefer",
    "Reconstruction",
    "Rotary",
    "Tokens",
    "Write",
    "bars",
    "block_diagram",
    "claim",
    "claims",
    "color_of",
    "curves",
    "encoder_decoder",
    "heatmap",
    "image_grid",
    "new_axes",
    "new_panels",
    "several_heads",
    "show",
    "transformer_stacks",
    "with_alt",
]
