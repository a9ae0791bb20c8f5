"""A model's answer in a conversation, token by token, each with how likely it was."""

import codecs
from collections.abc import Sequence

import torch

from coursekit.decode.generate import Decoder, generate
from coursekit.nn.log_probs import token_log_probs
from coursekit.nn.modes import evaluating
from coursekit.text.bpe import BPE, BYTE, END
from coursekit.text.chat import END_OF_TURN


@torch.inference_mode()
def reply(
    model: Decoder,
    tokenizer: BPE,
    prompt: str | Sequence[int],
    end: str = END_OF_TURN,
    max_new: int = 60,
    **choices,
) -> list[tuple[str, float]]:
    """What the model writes after the prompt, up to the end of its turn: (token, probability) of each.

    The probability is the model's own, ``softmax(logits)`` with no temperature. The answer ended if its last token is
    ``end``. A base model, which has never seen ``end``, goes on to the last token that it may write.

    Args:
        prompt: a conversation in the chat template, up to where the assistant begins to write: as text, such as
            ``text.chat.chat_text(turns)``, before which ``<|endoftext|>`` is put; or as ids, such as
            ``text.chat.chat_ids(tokenizer, turns)``, which are taken as they are.
        end: the token that ends a turn: ``text.chat.template_of(tokenizer)[1]``.
        max_new: most tokens of an answer; fewer where the model has no places for so many.
        choices: of ``stream``; ``temperature`` is 0 unless given.

    Returns:
        Tokens as text. Those that share a character, as bytes of an emoji do, are one, with the product of their
        probabilities.

    Raises:
        ValueError: the conversation leaves no place for an answer.
    """
    end_id, where = tokenizer.ids[end], model.tokens.weight.device
    given = [tokenizer.ids[END], *tokenizer.encode(prompt)] if isinstance(prompt, str) else prompt
    ids = torch.tensor([given], device=where)
    left = model.config.max_length - ids.shape[1]
    if left < 1:
        raise ValueError(
            f"the conversation takes {ids.shape[1]:,} tokens, and the model has {model.config.max_length:,} places for "
            "it and the answer: write less, or start a new conversation"
        )
    written = generate(model, ids, None, min(max_new, left), **{"temperature": 0, "stop": [end_id]} | choices)
    whole = torch.cat([ids, written], dim=1)
    with evaluating(model):
        p = token_log_probs(model(whole), whole)[0, -written.shape[1] :].exp().tolist()
    tokens = written[0].tolist()
    if tokens[-1] != end_id:
        return whole_characters(tokenizer, tokens, p)
    return [*whole_characters(tokenizer, tokens[:-1], p[:-1]), (end, p[-1])]


def whole_characters(tokenizer: BPE, tokens: Sequence[int], p: Sequence[float]) -> list[tuple[str, float]]:
    """Each token as text; one that ends within a character is joined with the next, their probabilities multiplied."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    found, text, share = [], "", 1.0
    for i, token in enumerate(tokens):
        name = tokenizer.tokens[token]
        spelled = name in tokenizer.special_tokens or name in tokenizer.added_tokens  # as it is, not in bytes
        raw = name.encode() if spelled else bytes(BYTE[character] for character in name)
        text, share = text + decoder.decode(raw, final=i == len(tokens) - 1), share * p[i]
        if not decoder.getstate()[0]:  # no byte waits for the rest of its character
            found.append((text, share))
            text, share = "", 1.0
    return found
