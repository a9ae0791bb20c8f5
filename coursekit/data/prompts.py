"""Tasks as text: a prompt that ends in a token which says what to do, and what is to be written behind it.

*Sarah ate the fish.<to-fr>* is to be followed by *Sarah a mangé le poisson.* and the end of the text. Each function
returns ``n`` such pairs of a split, the same for a seed on every machine. What belongs to ``"test"`` holds a pair of
words (noun and adjective, or verb and object) that nothing in ``"train"`` holds.

Source: Radford et al. (2018), section 3.3 (tasks as sequences with tokens of their own); Raffel et al. (2020), arXiv
1910.10683, section 2.4 (every answer is a text).
"""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

import torch

from coursekit.data.batches import Batch, pad
from coursekit.data.world import as_text, question, questions, sentences, stories
from coursekit.text.bpe import BPE, END

TO_FRENCH, SUMMARIZE, CLASSIFY, ANSWER = PROMPTS = ("<to-fr>", "<summarize>", "<classify>", "<answer>")
FEELINGS = {-1: "bad", 0: "neither", 1: "good"}
IN_FRENCH, HOW_IS_IT, AGAIN = "Say it in French.", "Is that good or bad?", "Say it again."  # instructions


class Prompted(NamedTuple):
    """What is given and what is to be written."""

    prompt: str
    target: str


def translations(n: int, split: str = "train", seed: int = 0) -> list[Prompted]:
    """A sentence in English, the same in French."""
    return [Prompted(as_text(s.en) + TO_FRENCH, as_text(s.fr)) for s in sentences(n, split, seed)]


def summaries(n: int, split: str = "train", seed: int = 0) -> list[Prompted]:
    """A story; the first thing that its main character did or did not do, and where."""
    return [Prompted(story.text + SUMMARIZE, as_text(story.summary)) for story in stories(n, split, seed)]


def classifications(n: int, split: str = "train", seed: int = 0) -> list[Prompted]:
    """A sentence, and whether what it tells is good, bad or neither: as many of each, as far as they go."""
    found = sentences(3 * n + 100, split, seed)
    by_label = {label: [s for s in found if s.sentiment == label] for label in FEELINGS}
    return [
        Prompted(as_text(by_label[label][i // 3].en) + CLASSIFY, FEELINGS[label])
        for i, label in zip(range(n), 3 * n * list(FEELINGS))
    ]


def instructions(n: int, split: str = "train", seed: int = 0) -> list[Prompted]:
    """A sentence, and in the line below it, in words, what to do: answer a question, translate, judge, repeat.

    Half of them are questions.
    """
    rng = Random(f"instructions {split} {seed}")
    found = [sentence for sentence in sentences(n + n // 2 + 100, split, seed + 1) if questions(sentence)][:n]
    result = []
    for number, sentence in enumerate(found):
        text = as_text(sentence.en)
        if number % 2:
            asked = question(sentence, rng)
            line, target = as_text(asked.tokens), " ".join(sentence.en[slice(*asked.answer)])
        else:
            others = {IN_FRENCH: as_text(sentence.fr), HOW_IS_IT: FEELINGS[sentence.sentiment], AGAIN: text}
            line = list(others)[number // 2 % len(others)]
            target = others[line]
        result.append(Prompted(f"{text}\n{line}{ANSWER}", target))
    return result


def as_ids(pairs: Sequence[Prompted], tokenizer: BPE) -> Batch:
    """Pairs as a batch for ``models.gpt.gpt_loss``: ``<|endoftext|> prompt target <|endoftext|>``.

    Returns:
        ``ids`` (N, T), ``mask`` (N, T), True where a token is real, and ``loss_mask`` (N, T), True at the target and at
        the end behind it; padded at the end.
    """
    end_id, rows, learned = tokenizer.ids[END], [], []
    for prompt, target in pairs:
        given, wanted = [end_id, *tokenizer.encode(prompt)], [*tokenizer.encode(target), end_id]
        rows.append(given + wanted)
        learned.append(len(given))
    ids, mask = pad(rows, end_id)
    places = torch.arange(ids.shape[1])
    return {"ids": ids, "mask": mask, "loss_mask": mask & (places >= torch.tensor(learned)[:, None])}
