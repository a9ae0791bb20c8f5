"""Four tasks with labels for a model that was pre-trained without: a text, a pair of texts, a span, a tag per word.

Each function returns ``n`` samples of a split as one batch, ready for the losses of ``models.bert``, the same for a
seed on every machine. All of them hold ``ids``, ``mask`` and ``segments`` (N, T); ``tokenizer.decode`` gives the text.
"""

from collections.abc import Sequence
from random import Random

import torch

from coursekit.data.batches import Batch, pad
from coursekit.data.world import Sentence, question, questions, sentences
from coursekit.data.world.lexicon import CITIES, DAYS, NOUNS, PEOPLE
from coursekit.text.wordpiece import CLS, PAD, SEP, WordPiece

PLAUSIBLE = ANSWERED = ("no", "yes")
BOTH_WAYS = {"carried", "followed", "fish"}  # a chair may carry a man, a bus follow a dog, a fish eat a boy
TAGS = ("O", "PERSON", "ANIMAL", "FOOD", "PLACE", "THING", "DAY")
KINDS = {
    **{"person": "PERSON", "animal": "ANIMAL", "food": "FOOD", "way": "PLACE", "height": "PLACE", "room": "PLACE"},
    **{"load": "THING", "text": "THING", "runner": "THING"},
}
KIND_OF = {
    **{form: KINDS[noun.kind] for noun in NOUNS for form in (noun.english(False), noun.english(True))},
    **dict.fromkeys(PEOPLE, "PERSON") | dict.fromkeys(CITIES, "PLACE") | dict.fromkeys(DAYS, "DAY"),
    **dict.fromkeys(("mouse", "mice"), "ANIMAL"),  # the lexicon has it among what can be chased
}
Words = Sequence[str]


def plausible(n: int, tokenizer: WordPiece, split: str = "train", seed: int = 0) -> Batch:
    """A sentence, and whether it makes sense: ``labels`` (N,), of ``PLAUSIBLE``.

    In every second one who acts has changed places with what it acts on: *the soup ate the boy*. The same words, so
    that nobody can tell by counting them.
    """
    drawn = sentences(4 * n + 100, split, seed, kinds=("plain",))
    found = [one for one in drawn if not one.events[0].negated and not BOTH_WAYS & {*one.en}][:n]
    texts = [(one.en if i % 2 else exchanged(one),) for i, one in enumerate(found)]
    return {**packed(texts, tokenizer), "labels": torch.arange(n) % 2}


def exchanged(sentence: Sentence) -> Words:
    """Its words, with subject and object in each other's place."""
    (first, after_first), (second, after_second) = sentence.events[0].subject_span, sentence.events[0].target_span
    words = sentence.en
    return (
        *words[:first],
        *words[second:after_second],
        *words[after_first:second],
        *words[first:after_first],
        *words[after_second:],
    )


def answered(n: int, tokenizer: WordPiece, split: str = "train", seed: int = 0) -> Batch:
    """A question and a sentence, and whether the sentence answers it: ``labels`` (N,), of ``ANSWERED``.

    Every second question was asked about another sentence. (As QNLI in the paper's table 1, made from SQuAD.)
    """
    rng = Random(f"answered {split} {seed}")
    found = [one for one in sentences(2 * n + 100, split, seed) if questions(one)][: n + 1]
    asked = [question(one, rng) for one in found]
    pairs, label = [], []
    for i in range(n):
        own = {other.key for other in questions(found[i])}
        other = next(one for one in asked[i + 1 :] + asked[:i] if one.key not in own)
        pairs.append(((other if i % 2 else asked[i]).tokens, found[i].en))
        label.append(1 - i % 2)
    return {**packed(pairs, tokenizer), "labels": torch.tensor(label)}


def answers(n: int, tokenizer: WordPiece, split: str = "train", seed: int = 0) -> Batch:
    """A question and a sentence that answers it: ``start`` and ``end`` (N,), the places in ``ids`` where the answer
    begins and where its last token is, and ``allowed`` (N, T), True in the sentence."""
    rng = Random(f"answers {split} {seed}")
    found = [(one.en, question(one, rng)) for one in sentences(2 * n + 100, split, seed) if questions(one)][:n]
    batch = packed([(asked.tokens, words) for words, asked in found], tokenizer)
    places = []
    for words, asked in found:
        first, last = asked.answer
        before = 2 + len(to_pieces(asked.tokens, tokenizer))  # [CLS] question [SEP]
        places.append([before + len(to_pieces(words[:place], tokenizer)) for place in (first, last)])
    start, end = torch.tensor(places).unbind(dim=1)
    allowed = (batch["segments"] == 1) & (batch["ids"] != tokenizer.ids[SEP])
    return {**batch, "start": start, "end": end - 1, "allowed": allowed}


def entities(n: int, tokenizer: WordPiece, split: str = "train", seed: int = 0) -> Batch:
    """A sentence, and what its nouns and names stand for: ``tags`` (N, T), of ``TAGS``, and ``tagged`` (N, T), True at
    the first piece of each word, where they count."""
    found = [one.en for one in sentences(n, split, seed)]
    batch = packed([(words,) for words in found], tokenizer)
    tags, tagged = torch.zeros_like(batch["ids"]), torch.zeros_like(batch["mask"])
    for row, words in enumerate(found):
        place = 1  # after [CLS]
        for word in words:
            tags[row, place], tagged[row, place] = TAGS.index(KIND_OF.get(word, "O")), True
            place += len(to_pieces([word], tokenizer))
    return {**batch, "tags": tags, "tagged": tagged}


def to_pieces(words: Words, tokenizer: WordPiece) -> list[int]:
    """The ids of words, without ``[CLS]`` and ``[SEP]``; each word has its own pieces, whatever stands beside it."""
    return tokenizer.encode(" ".join(words))[1:-1]


def packed(texts: Sequence[tuple[Words, ...]], tokenizer: WordPiece) -> Batch:
    """``[CLS] A [SEP]`` or ``[CLS] A [SEP] B [SEP]`` of each, padded at the end."""
    rows, segments = [], []
    for words in texts:
        ids, kinds = [tokenizer.ids[CLS]], [0]
        for segment, part in enumerate(words):
            added = [*to_pieces(part, tokenizer), tokenizer.ids[SEP]]
            ids, kinds = ids + added, kinds + [segment] * len(added)
        rows.append(ids)
        segments.append(kinds)
    ids, mask = pad(rows, tokenizer.ids[PAD])
    return {"ids": ids, "mask": mask, "segments": pad(segments)[0]}
