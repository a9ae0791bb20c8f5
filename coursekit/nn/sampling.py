"""Which token comes next: what is done to the logits (..., V) of a language model before one is drawn.

Legend: B batch, T tokens written so far, V vocabulary size.
"""

from numbers import Integral

import torch
from torch import Tensor

from coursekit.nn.checks import check_all

NOTHING = "there is no next token: the logits hold nan, or all of a row are -inf"
COLDEST = 1e-6  # temperature: at less, logits divided by it might overflow


def with_temperature(logits: Tensor, temperature: float) -> Tensor:
    """``logits / temperature``: below 1 the likely becomes likelier, above 1 all become more alike.

    Raises:
        ValueError: ``temperature`` is below ``COLDEST``. (The most likely token, its limit, is ``logits.argmax``.)
    """
    if not temperature >= COLDEST:
        raise ValueError(f"temperature={temperature}: must be at least {COLDEST}")
    return logits / temperature


def check_temperature(temperature: float) -> None:
    """Refuse what is neither 0 nor a temperature that logits can be divided by."""
    if temperature != 0 and not temperature >= COLDEST:
        raise ValueError(f"temperature={temperature}: must be 0, for the most likely token, or at least {COLDEST}")


def keep_top_k(logits: Tensor, k: int) -> Tensor:
    """-inf for all but the k largest; what equals the k-th stays too.

    Source: Fan, Lewis and Dauphin (2018), arXiv 1805.04833, section 5.4.
    """
    check_top_k(k)
    least = logits.topk(min(k, logits.shape[-1])).values[..., -1:]
    return logits.masked_fill(logits < least, -torch.inf)


def check_top_k(k: int, name: str = "k") -> None:
    """Refuse what is no number of tokens; ``name`` is what the caller calls it."""
    if not isinstance(k, Integral) or k < 1:
        raise ValueError(f"{name}={k}: must be a whole number, at least 1")


def keep_top_p(logits: Tensor, p: float) -> Tensor:
    """-inf for all but the nucleus: the fewest tokens, likeliest first, whose probabilities add up to ``p`` or more.

    The token that crosses ``p`` belongs to it, so there is always one.

    Source: Holtzman et al. (2020), arXiv 1904.09751, section 3.1.
    """
    check_top_p(p)
    ordered, order = logits.sort(dim=-1)  # the least likely first, so that what is left out is a sum of small numbers
    out = ordered.softmax(dim=-1).cumsum(dim=-1) <= 1 - p
    out[..., -1] = False
    return logits.masked_fill(torch.zeros_like(out).scatter(-1, order, out), -torch.inf)


def check_top_p(p: float, name: str = "p") -> None:
    """Refuse what is no probability that tokens can add up to."""
    if not 0 < p <= 1:
        raise ValueError(f"{name}={p}: must lie above 0 and not above 1")


def penalise_repetition(logits: Tensor, written: Tensor, penalty: float, real: Tensor | None = None) -> Tensor:
    """Logits of tokens that were written before, divided by ``penalty`` where above 0 and multiplied by it below.

    Args:
        logits: (B, V).
        written: (B, T) tokens, the prompt's included.
        real: (B, T), False for those that do not count, such as padding.

    Source: Keskar et al. (2019), arXiv 1909.05858, section 4.1.
    """
    check_penalty(penalty)
    seen = torch.zeros_like(logits, dtype=torch.long)
    written = written.long()
    seen.scatter_add_(1, written, torch.ones_like(written) if real is None else real.long())
    return torch.where(seen > 0, torch.where(logits > 0, logits / penalty, logits * penalty), logits)


def check_penalty(penalty: float, name: str = "penalty") -> None:
    """Refuse to divide logits by what is not above 0."""
    if not penalty > 0:
        raise ValueError(f"{name}={penalty}: must be above 0; 1 changes nothing")


def next_token(
    logits: Tensor,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """One token (B,), drawn from logits (B, V): temperature first, then top-k, then top-p. At 0 it is the argmax."""
    if logits.dim() != 2:
        raise ValueError(f"logits of shape {tuple(logits.shape)}: must be (B, V), those of the last place of each text")
    if temperature == 0:
        token = logits.argmax(dim=-1)  # of nan, where there is one
        check_all(logits.gather(-1, token[:, None]) > -torch.inf, NOTHING)  # nan is not above it either
        return token
    logits = with_temperature(logits.float(), temperature)
    if top_k is not None:
        logits = keep_top_k(logits, top_k)
    if top_p is not None:
        logits = keep_top_p(logits, top_p)
    return draw(logits.softmax(dim=-1), generator)


def draw(p: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """One token (B,) from probabilities ``p`` (B, V): the first whose cumulative probability exceeds a uniform number.

    This is inverse transform sampling. ``torch.multinomial`` draws a random number for each token of the vocabulary,
    which can take as long as a block of a small model; here it is one for each text.
    """
    exact = torch.float32 if p.device.type == "mps" else torch.float64  # a Mac's GPU has no float64
    total = p.cumsum(dim=-1, dtype=exact)
    check_all(total[:, -1] > 0, NOTHING)
    u = torch.rand(len(p), 1, dtype=exact, device=p.device, generator=generator)
    # u < 1, so the number stays below the last total; equal totals, which are steps of probability 0, are passed over
    return torch.searchsorted(total, u * total[:, -1:], right=True)[:, 0]
