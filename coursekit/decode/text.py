"""From text to text with a GPT and its tokenizer: answers to prompts, and suggestions at the cursor."""

from collections.abc import Sequence

import torch
from torch.nn.utils.rnn import pad_sequence

from coursekit.decode.generate import Decoder, generate, next_logits
from coursekit.nn.modes import evaluating
from coursekit.text.bpe import BPE, END


def complete(
    model: Decoder, tokenizer: BPE, prompts: Sequence[str], max_new: int = 100, batch_size: int = 100, **choices
) -> list[str]:
    """The text that the model writes behind each prompt, up to the end of the document; most likely tokens as a rule.

    Every prompt is read as the beginning of a document.

    Args:
        max_new: most tokens of an answer.
        batch_size: prompts side by side; those of like length are put together.
        choices: of ``stream``; ``temperature`` is 0 unless given.
    """
    end_id, where = tokenizer.ids[END], model.tokens.weight.device
    rows = [[end_id, *tokenizer.encode(prompt)] for prompt in prompts]
    order, found = sorted(range(len(rows)), key=lambda i: len(rows[i])), [""] * len(rows)
    for first in range(0, len(order), batch_size):
        chosen = order[first : first + batch_size]
        lengths = torch.tensor([[len(rows[i])] for i in chosen], device=where)
        ids = pad_sequence([torch.tensor(rows[i], device=where) for i in chosen], True, end_id)
        mask = torch.arange(ids.shape[1], device=where) < lengths
        written = generate(model, ids, mask, max_new, **{"temperature": 0, "stop": [end_id]} | choices)
        for i, row in zip(chosen, written.tolist()):
            found[i] = tokenizer.decode(row[: row.index(end_id)] if end_id in row else row)
    return found


@torch.inference_mode()
def suggest(model: Decoder, tokenizer: BPE, text: str, k: int = 3, length: int = 4) -> list[tuple[str, float]]:
    """How a text may go on: ``k`` pieces of text with their probabilities, the likeliest first.

    The pieces differ in their first token; each goes on with the most likely tokens, up to ``length`` of them or to
    the end of the line. A text may end in the middle of a word: the last token is taken back, and what is written
    instead has to begin with its letters. Probabilities are among such texts.

    Args:
        text: what stands before the cursor; where it is too long for the model, its end is read.

    Raises:
        ValueError: ``k`` or ``length`` is below 1.
    """
    for name, value in (("k", k), ("length", length)):
        if value < 1:
            raise ValueError(f"{name}={value}: must be at least 1")
    end_id, where = tokenizer.ids[END], model.tokens.weight.device
    room = model.config.max_length - length - 1
    if room < 2:
        raise ValueError(
            f"length={length}: a model of max_length={model.config.max_length} has no room for a text, too"
        )
    ids = [end_id, *tokenizer.encode(text)[-room + 1 :]]
    with evaluating(model):
        log_p = model(torch.tensor([ids], device=where))[0].float().log_softmax(dim=-1)
    log_p[:, end_id] = -torch.inf  # a suggestion is text
    candidates = [((token,), p) for token, p in likeliest_tokens(log_p[-1], k)]
    begun = ""
    if len(ids) > 1 and ids[-1] != end_id:  # behind an end a new text begins
        last = ids.pop()
        begun = tokenizer.decode([last])
        fits = [i for i in range(len(tokenizer)) if i != last and tokenizer.decode([i]).startswith(begun)]
        scale = log_p[-2][[last, *fits]].logsumexp(dim=0)
        candidates = [((last, *tokens), p + (log_p[-2][last] - scale).item()) for tokens, p in candidates]
        others = torch.full_like(log_p[-2], -torch.inf)
        others[fits] = log_p[-2][fits] - scale
        candidates += [((token,), p) for token, p in likeliest_tokens(others, k)]
    found: dict[str, float] = {}
    for tokens, p in sorted(candidates, key=lambda candidate: -candidate[1]):
        if len(found) == k:
            break
        piece, p = go_on(model, tokenizer, ids, list(tokens), p, length + (len(tokens) - 1))
        if piece[len(begun) :].strip("\n") and "\ufffd" not in piece:
            found.setdefault(piece[len(begun) :], p)
    return sorted(found.items(), key=lambda pair: -pair[1])


def likeliest_tokens(log_p: torch.Tensor, k: int) -> list[tuple[int, float]]:
    """Up to ``k`` tokens that are possible, with their ``ln p``."""
    best = log_p.topk(min(k, len(log_p)))
    return [(token, p) for token, p in zip(best.indices.tolist(), best.values.tolist()) if p > -torch.inf]


def go_on(
    model: Decoder, tokenizer: BPE, ids: list[int], tokens: list[int], log_p: float, length: int
) -> tuple[str, float]:
    """``tokens`` behind ``ids`` and what most likely follows, up to ``length`` tokens or the end of the line: the text
    and its probability."""
    end_id, where = tokenizer.ids[END], model.tokens.weight.device
    caches = model.new_caches(len(ids) + length)
    inputs = [*ids, *tokens]
    while len(tokens) < length and "\n" not in tokenizer.decode(tokens).lstrip("\n"):
        logits = next_logits(model, torch.tensor([inputs], device=where), None, caches)[0].float().log_softmax(dim=-1)
        token = int(logits.argmax())
        if token == end_id:
            break
        tokens, inputs, log_p = [*tokens, token], [token], log_p + logits[token].item()
    text = tokenizer.decode(tokens)
    line = text.lstrip("\n")
    return text[: len(text) - len(line)] + line.split("\n")[0], float(torch.tensor(log_p).exp())
