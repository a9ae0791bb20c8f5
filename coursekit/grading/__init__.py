"""Graded exercises: their parts and checks, release, and marking in a sandbox (see README.md beside this file)."""

import re

# Persian and the scripts of India need the zero-width joiner and non-joiner inside words.
JOINER = re.compile("(?<=[\u0300-\u1fff])[\u200c\u200d](?=[\u0300-\u1fff])")


class GradingError(Exception):
    """Something a person can mend, said in one line."""


def shortened(text: str, most: int) -> str:
    """At most so many characters of a text; a … takes the place of the others."""
    return text if len(text) <= most else text[: most - 1] + "…"


def few(texts: list[str], most: int = 5) -> list[str]:
    """The first of many texts and, if there are more, how many."""
    rest = len(texts) - most
    return texts if rest < 1 else [*texts[:most], f"and {rest} more of this kind"]


def printable(text: str) -> str:
    """Text from elsewhere, safe to show in a terminal and to write into a file.

    White space of any kind becomes a blank. A question mark replaces what steers a terminal (ESC), turns the
    direction of reading round, shows nothing at all, or is no Unicode (half of a surrogate pair).
    """
    if text.isprintable():
        return text
    joiners = {match.start() for match in JOINER.finditer(text)}
    return "".join(
        char if char.isprintable() or place in joiners else " " if char.isspace() else "?"
        for place, char in enumerate(text)
    )
