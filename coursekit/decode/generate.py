"""Writing with a language model, one token after another, with cached keys and values.

How a token is chosen from the logits stands in ``coursekit/nn/sampling.py``.

Legend: B batch, T tokens of a prompt, N tokens written, V vocabulary size.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial

import torch
from torch import Tensor

from coursekit.decode.beams import check_beams, search
from coursekit.models.gpt import GPT
from coursekit.models.llama import Llama
from coursekit.nn.cache import Cache
from coursekit.nn.checks import check_mask
from coursekit.nn.modes import evaluating, out_of_inference_mode
from coursekit.nn.sampling import (
    check_penalty,
    check_temperature,
    check_top_k,
    check_top_p,
    next_token,
    penalise_repetition,
)

Decoder = GPT | Llama


def left_padded(ids: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """The same prompts with their padding before them, so that all of them end, and go on, at one place.

    Raises:
        ValueError: there is no prompt, or one has no token; or the mask is another's.
    """
    if ids.dim() != 2 or 0 in ids.shape:
        raise ValueError(f"ids of shape {tuple(ids.shape)}: must be (B, T), at least one prompt with one token")
    if mask is None:
        return ids, None
    check_mask("mask", mask, ids.shape, "as the prompts")
    if mask.all():
        return ids, None
    if not mask.any(dim=1).all():
        raise ValueError(f"prompt {int(mask.any(dim=1).int().argmin())} has no token: give it at least one")
    order = mask.int().argsort(dim=1, stable=True)  # what is not real comes first, the rest in its order
    mask = mask.gather(1, order)
    first = int(mask.any(dim=0).int().argmax())  # columns that are padding everywhere are left out
    return ids.gather(1, order)[:, first:], mask[:, first:]


def check_length(model: Decoder, ids: Tensor, max_new: int) -> int:
    """The places that prompt and continuation take; refused where they are too many."""
    if max_new < 1:
        raise ValueError(f"max_new={max_new}: must be at least 1")
    places, most = ids.shape[1] + max_new - 1, model.config.max_length  # the last token is written, never read
    if places > most:
        raise ValueError(
            f"a prompt of {ids.shape[1]} tokens and {max_new} new ones: the model's max_length={most} has room for "
            f"{max(0, most + 1 - ids.shape[1])} new ones; shorten the prompt"
        )
    return places


def next_logits(model: Decoder, ids: Tensor, mask: Tensor | None, caches: list[Cache]) -> Tensor:
    """Logits (B, V) of the token after the last of ``ids``, in eval mode; those of other places are not computed.

    The mode is changed while they are computed, not from the first token of a text to the last: in between, whoever
    reads the text may do what they like with the model.
    """
    with evaluating(model) if model.training else nullcontext():
        return model.logits(model.hidden(ids, mask, caches)[:, -1])


def check_stop(stop: Sequence[int], vocab_size: int) -> None:
    """Refuse to stop at a token that no text can have."""
    if unknown := [token for token in stop if not 0 <= token < vocab_size]:
        raise ValueError(f"stop: token {unknown[0]} is not one of the {vocab_size} in the vocabulary")


def stream(
    model: Decoder,
    ids: Tensor,
    mask: Tensor | None = None,
    max_new: int = 100,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    repetition_penalty: float = 1.0,
    stop: Sequence[int] = (),
    generator: torch.Generator | None = None,
) -> Iterator[Tensor]:
    """Write on, token by token: an iterator of (B,), until ``max_new`` or until every text has ended.

    The keys and values of what was read and written are cached, so that each step reads one token. A model in train
    mode writes without dropout, too, and stays in train mode.
    With ``model.hidden = torch.compile(model.hidden, dynamic=True)`` it is compiled at the first text, and for no other
    length again.

    Args:
        ids: prompts (B, T).
        mask: (B, T), True where a token is real, for prompts of unequal length; padding may stand on either side.
        temperature: 0 takes the most likely token each time, 1 draws from the model's own probabilities.
        top_k, top_p: draw from so many of the most likely tokens only, from the nucleus of so much probability only.
        repetition_penalty: see ``penalise_repetition``; 1 for none.
        stop: tokens that end a text. Behind the end the same token is yielded again.
        generator: what is drawn from; on the model's device.

    Raises:
        ValueError: an empty prompt, more tokens than the model has positions, or a number out of range.
    """
    check_temperature(temperature)
    if top_k is not None:  # at temperature 0 nobody else looks at them
        check_top_k(top_k, "top_k")
    if top_p is not None:
        check_top_p(top_p, "top_p")
    check_stop(stop, model.config.vocab_size)
    if repetition_penalty != 1:
        check_penalty(repetition_penalty, "repetition_penalty")
    with torch.inference_mode():
        ids, mask = left_padded(ids, mask)
    caches = model.new_caches(check_length(model, ids, max_new))
    choose = partial(next_token, temperature=temperature, top_k=top_k, top_p=top_p, generator=generator)
    return write_on(model, ids, mask, caches, max_new, choose, repetition_penalty, stop)


@torch.inference_mode()
def write_on(
    model: Decoder,
    ids: Tensor,
    mask: Tensor | None,
    caches: list[Cache],
    max_new: int,
    choose: Callable[[Tensor], Tensor],
    repetition_penalty: float,
    stop: Sequence[int],
) -> Iterator[Tensor]:
    """The loop of ``stream``, which has looked at the arguments; ``choose`` takes logits (B, V) to tokens (B,)."""
    written, ended = ids, torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
    stops = torch.tensor(list(stop), dtype=ids.dtype, device=ids.device)
    token, inputs = ids[:, -1], ids
    for _ in range(max_new):
        logits = next_logits(model, inputs, mask, caches)
        if repetition_penalty != 1:
            logits = penalise_repetition(logits, written, repetition_penalty, mask)
        token = torch.where(ended, token, choose(logits))
        yield out_of_inference_mode(token)
        if len(stops):
            ended = ended | torch.isin(token, stops)
            if ended.all():
                return
        inputs = token[:, None]
        if repetition_penalty != 1:
            written = torch.cat([written, inputs], dim=1)
        if mask is not None:
            mask = torch.cat([mask, torch.ones_like(mask[:, :1])], dim=1)


def generate(model: Decoder, ids: Tensor, mask: Tensor | None = None, max_new: int = 100, **choices) -> Tensor:
    """What ``stream`` writes, at once: (B, N), without the prompts. Arguments and errors are those of ``stream``."""
    return torch.stack(list(stream(model, ids, mask, max_new, **choices)), dim=1)


@torch.inference_mode()
def beam_search(
    model: Decoder,
    ids: Tensor,
    mask: Tensor | None = None,
    max_new: int = 100,
    beams: int = 4,
    alpha: float = 0.0,
    stop: Sequence[int] = (),
    pad_id: int = 0,
) -> tuple[Tensor, Tensor]:
    """The best continuations (B, N), with ``pad_id`` behind the end, and their scores: ``decode.beams.search``.

    Args: as for ``stream``, and
        beams: K.
        alpha: strength of the length penalty, 0 for none.
    """
    check_beams(beams, alpha, model.config.vocab_size)
    check_stop(stop, model.config.vocab_size)
    ids, mask = left_padded(ids, mask)
    caches = model.new_caches(check_length(model, ids, max_new))
    first = next_logits(model, ids, mask, caches)
    each = torch.arange(len(ids), device=ids.device).repeat_interleave(beams)  # (B K,)
    for cache in caches:
        cache.reorder(each)
    mask = None if mask is None else mask[each]

    def step(token: Tensor) -> Tensor:
        nonlocal mask
        if mask is not None:
            mask = torch.cat([mask, torch.ones_like(mask[:, :1])], dim=1)
        return next_logits(model, token, mask, caches)

    def reorder(rows: Tensor) -> None:  # the beams of a prompt have the same mask
        for cache in caches:
            cache.reorder(rows)

    found, scores = search(first, step, reorder, beams, alpha, max_new, list(stop), pad_id)
    return out_of_inference_mode(found), out_of_inference_mode(scores)
