"""What attention maps of images say: where a token looks through all layers, and how far.

Legend: B batch, H heads, T tokens, N patches (the last N of the tokens).
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def attention_rollout(maps: Sequence[Tensor]) -> Tensor:
    """How much of each token at the input reaches each token after the last layer, as far as attention tells.

    ``A_L ··· A_2 A_1`` with ``A_l = rows of (mean over heads of W_l) + I, divided by their sums``: I stands for the
    residual connection, which hands on a token's own vector.

    Args:
        maps: the weights W_l of each layer, from the first on, (B, H, T, T).

    Returns:
        (B, T, T): row t tells of token t after the last layer, and sums to 1.

    Raises:
        ValueError: there is no map.

    Source: Abnar and Zuidema (2020), arXiv 2005.00928, section 3; Dosovitskiy et al. (2021), appendix D.8.
    """
    if not len(maps):
        raise ValueError("no attention maps: give those of each layer, from the first on")
    rollout = None
    for weights in map(precise, maps):
        own = torch.eye(weights.shape[-1], dtype=weights.dtype, device=weights.device)
        step = weights.mean(dim=1) + own  # (B, H, T, T) -> (B, T, T)
        step = step / step.sum(dim=-1, keepdim=True)
        rollout = step if rollout is None else step @ rollout
    return rollout


def attention_distance(weights: Tensor, grid: tuple[int, int], patch_size: float = 1.0) -> Tensor:
    """How far away what patches attend to lies, on the average: (..., T, T) -> (...).

    The mean over queries of ``sum over keys of w |place of the query - place of the key|``, from centre to centre. A
    class token lies nowhere: it is left out, and the weights of the patches among each other are made to sum to 1.

    Args:
        weights: of attention, (..., T, T), as a rule (B, H, T, T).
        grid: rows and columns of the patches, which are the last ``rows columns`` tokens.
        patch_size: side of a patch in pixels; the distance is in pixels then, with 1 in patches.

    Raises:
        ValueError: there are fewer tokens than places in the grid.

    Source: Dosovitskiy et al. (2021), arXiv 2010.11929, figure 7 and appendix D.7.
    """
    rows, columns = grid
    N, T = rows * columns, weights.shape[-1]
    if T < N:
        raise ValueError(f"{T} tokens: a grid of {rows} x {columns} has {N} patches")
    among = precise(weights[..., T - N :, T - N :])
    among = among / among.sum(dim=-1, keepdim=True)
    places = torch.cartesian_prod(torch.arange(rows), torch.arange(columns)).to(among)  # (N, 2)
    distance = (places[:, None] - places).norm(dim=-1) * patch_size  # (N, N)
    return (among * distance).sum(dim=-1).mean(dim=-1)


def precise(weights: Tensor) -> Tensor:
    """Half precision as float32: what was recorded under autocast is summed over hundreds of tokens here."""
    return weights.to(torch.promote_types(weights.dtype, torch.float32))
