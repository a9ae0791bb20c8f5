"""What belongs in place of ``[MASK]``: the likeliest tokens of each place, in one model or in several."""

import html
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from coursekit.text.wordpiece import MASK
from coursekit.viz.next_token import brief, checked_k, checked_tokens, likeliest, rest, written
from coursekit.viz.pictures import cell, table_html
from coursekit.viz.tokens import visible
from coursekit.viz.widget import ROOM, Widget

# What one model says: for each [MASK] of the text, in its order, (token, probability) of its tokens.
Guesses = Sequence[Iterable[tuple[str, float]]]


class FillMask(Widget):
    """See what is likely in place of each ``[MASK]`` of a text: a bar for each of the likeliest tokens.

    A bar is as long as its probability, 0 to 1. The last bar holds what is left, 1 minus those above it. A click on a
    bar fills its token in. With ``live`` a text can be typed, and a click on a word masks it.

    Args:
        tokens: the text, with ``"[MASK]"`` as the token of each place that is to be guessed.
        guesses: what the model says of each place, ``[[(token, probability), ...], ...]``, or that of several models,
            ``{name: [[(token, probability), ...], ...]}``. The list of a place may hold all tokens or only the
            likeliest ones: its probabilities add up to 1 or less.
        title: what stands above.
        k: how many tokens of each place have bars of their own.
    """

    module = "fill_mask"

    def __init__(
        self,
        tokens: Sequence[str],
        guesses: Guesses | Mapping[str, Guesses],
        title: str = "What belongs in place of [MASK]",
        k: int = 8,
    ):
        self.k = checked_k(k)
        example = masked_text(tokens, guesses, self.k)
        if not example["places"]:
            raise ValueError(f"tokens has no {MASK!r}: put it in place of each token that is to be guessed")
        self._show([{"name": "first text", **example}], title, 0)

    @classmethod
    def of(
        cls,
        examples: "Mapping[str, FillMask]",
        title: str = "What belongs in place of [MASK]",
        first: str | None = None,
    ) -> "FillMask":
        """Several texts to choose from, without the kernel.

        Args:
            examples: name -> FillMask.
            title: what stands above, in place of the titles of the examples.
            first: the name of the example that is shown first; by default the first one.
        """
        if not isinstance(examples, Mapping) or not examples:
            raise ValueError("examples must name at least one: {name: FillMask(...)}")
        for name, example in examples.items():
            if not isinstance(example, FillMask):
                raise ValueError(f"the example {name!r} is {type(example).__name__}: it must be FillMask")
        if first is not None and first not in examples:
            raise ValueError(f"first={first!r}: must be one of the examples, {', '.join(map(repr, examples))}")
        self = cls.__new__(cls)
        self.k = max(example.k for example in examples.values())
        shown = [{**each.data["examples"][each.data["chosen"]], "name": str(name)} for name, each in examples.items()]
        self._show(shown, title, 0 if first is None else list(examples).index(first))
        return self

    def _show(self, examples: list[dict[str, Any]], title: str, chosen: int) -> None:
        self.data = {"title": title, "mask": MASK, "chosen": chosen, "examples": examples}
        self.data["shown"] = shown_otherwise(examples)
        if (size := self.size()) > ROOM:
            raise ValueError(f"the texts take {size:,} bytes, more than {ROOM:,}: give fewer of them or a smaller k")

    def static_html(self) -> str:
        title = f"<p><b>{html.escape(self.data['title'])}</b></p>"
        several = len(self.data["examples"]) > 1
        return title + "".join(static_text(example, several) for example in self.data["examples"])

    def live(
        self,
        fn: Callable[[list[str]], Guesses | Mapping[str, Guesses]],
        split: Callable[[str], Iterable[str]] | None = None,
    ):
        """With a field for typing, and with words that a click masks: ``fn`` is asked about each new text.

        Args:
            fn: the tokens of a text with at least one ``[MASK]`` -> what the models say of each, as in ``guesses``. A
                ``ValueError`` is shown with its message.
            split: what was typed -> its tokens, those of the model's tokenizer. By default words and signs.
        """
        answered = None  # what is answered belongs to this view, and to this fn

        def answer(message: dict[str, Any]) -> dict[str, Any]:
            nonlocal answered
            error = ""
            try:
                if "source" in message:
                    tokens = (split or words_and_signs)(str(message["source"]))
                else:
                    tokens = map(str, message["tokens"])
                tokens = checked_tokens(tokens, "the text")
                if not tokens:
                    raise ValueError(f"the text is empty: write a sentence, with {MASK} in place of a word")
                answered = masked_text(tokens, fn(list(tokens)) if MASK in tokens else [], self.k)
            except ValueError as refused:
                error = str(refused)
            shown = shown_otherwise([*self.data["examples"], *([answered] if answered else [])])
            return {**self.data, "shown": shown, "answer": answered, "asked": message, "error": error}

        return super().live(answer)


def masked_text(tokens: Sequence[str], guesses: Guesses | Mapping[str, Guesses], k: int) -> dict[str, Any]:
    """One text as fill_mask.js reads it: its tokens, the names of the models, what they say of each place."""
    tokens = checked_tokens(tokens, "tokens")
    n = tokens.count(MASK)
    if not isinstance(guesses, Mapping):
        guesses = {"": guesses}
    if not guesses:
        raise ValueError("guesses names no model: give a list for each [MASK], or {name: [a list for each [MASK]]}")
    places = [[] for _ in range(n)]
    for name, says in guesses.items():
        of = f", {name}" if name else ""
        try:
            says = list(says)
        except TypeError:
            raise ValueError(
                f"guesses{of} is {says!r}: must hold a list of (token, probability) for each {MASK}"
            ) from None
        if len(says) != n:
            raise ValueError(
                f"guesses{of} has {len(says)} entries, but the text has {n} {MASK}: "
                "give a list of (token, probability) for each"
            )
        for m, pairs in enumerate(says):
            best = likeliest(pairs, k, f"place {m + 1}{of}")
            places[m].append([[[token, brief(p)] for token, p in best], brief(rest(best))])
    return {"tokens": tokens, "names": [str(name) for name in guesses], "places": places}


def shown_otherwise(examples: Iterable[dict[str, Any]]) -> dict[str, str]:
    """The tokens that are not shown as they are, with what is shown for them."""
    bars = (token for each in examples for models in each["places"] for says, _ in models for token, _ in says)
    tokens = dict.fromkeys(itertools.chain(*(each["tokens"] for each in examples), bars))
    return {token: visible(token) for token in tokens if visible(token) != token}


def words_and_signs(text: str) -> list[str]:
    """The words of a text and its signs, each alone, ``[MASK]`` as one."""
    return re.findall(rf"{re.escape(MASK)}|\w+(?:['’]\w+)*|[^\w\s]", text)


def static_text(example: dict[str, Any], named: bool) -> str:
    """One text and a table for each of its places and models, with inline styles."""
    # each token keeps its direction to itself, and so its place in the row
    words = (f"<b>{MASK}</b>" if token == MASK else html.escape(visible(token)) for token in example["tokens"])
    name = f"<b>{html.escape(example['name'])}</b>: " if named else ""
    parts = [f'<p style="overflow-wrap:anywhere">{name}{" ".join(f"<bdi>{word}</bdi>" for word in words)}</p>']
    for m, models in enumerate(example["places"], start=1):
        for model, (says, left) in zip(example["names"], models):
            rows = [[visible(token), cell(html.escape(written(p)), p)] for token, p in says]
            rows.append(["all others", cell(html.escape(written(left)), left)])
            place = f"{MASK} {m}" if len(example["places"]) > 1 else MASK
            parts.append(table_html(f"{place}, {model}" if model else place, ["token", "probability"], rows))
    return "".join(parts)
