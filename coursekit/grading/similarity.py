"""Who wrote the same code: pairs of students whose answers are alike beyond what the task forces.

Winnowed fingerprints (Schleimer, Wilkerson, Aiken: "Winnowing: local algorithms for document fingerprinting",
SIGMOD 2003, the method of MOSS). Code becomes a row of tokens without comments, docstrings, formatting and own
names; of the hashes of all runs of ``RUN`` tokens, the least in each window of ``WINDOW`` is kept. Two answers that
share ``RUN + WINDOW - 1`` tokens in a row are certain to share a fingerprint.

A pair is a reason to look, and nothing more.
"""

import builtins
import functools
import hashlib
import io
import keyword
import tokenize
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment

from coursekit.grading import printable
from coursekit.grading.book import written_before
from coursekit.grading.records import write
from coursekit.grading.tables import write_csv

RUN, WINDOW = 10, 4  # tokens
LONGEST, MOST_TOKENS = 20_000, 3_000  # characters and tokens of an answer that are looked at
EVIDENCE = 8  # fingerprints that a pair has to share: some 30 tokens
SHARE = 0.6  # of the fingerprints of whoever of the two has fewer
COMMON, FEW, MANY = 1 / 3, 4, 60  # what this share of the class has is no evidence; at least 4 people, at most 60
MOST = 200  # pairs of answers in a report
SHOWN_LINES, SHOWN_WIDTH = 200, 160

KEPT = {*keyword.kwlist, *dir(builtins), "self"}
NOT_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, tokenize.ENDMARKER}
AT_START = {tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}

Answers = Mapping[str, Mapping[str, str]]  # code by the part's name, by student


class Print(NamedTuple):
    """A fingerprint, and the lines that it was taken from."""

    value: bytes
    first: int
    last: int


@dataclass(frozen=True)
class Pair:
    """Two answers to a part that are alike.

    Attributes:
        one, other: the students; ``other`` may be of an earlier class, and ends with "(earlier)" then.
        share: of the fingerprints of whoever has fewer, those that both have.
        shared: their number.
    """

    part: str
    one: str
    other: str
    share: float
    shared: int


def similar(answers: Answers, released: Iterable[str], earlier: Answers | None = None) -> list[Pair]:
    """The pairs of students whose answers to a part are alike, those with the most in common first.

    Args:
        released: code that everybody has, or comes to without help: the released cells and the model answers.
        earlier: answers of an earlier class, to compare this one with; nobody in it is compared with each other.
    """
    given = {found.value for source in released for found in fingerprints(source)}
    mine, pairs = set(answers), []
    everybody = together(answers, earlier)
    for part in sorted({part for of_one in everybody.values() for part in of_one}):
        prints = {
            student: {found.value for found in fingerprints(everybody[student].get(part, ""))} - given
            for student in sorted(everybody)
        }
        holders: dict[bytes, list[str]] = {}
        for student, found in prints.items():
            for value in found:
                holders.setdefault(value, []).append(student)
        most = min(MANY, max(FEW, COMMON * sum(map(bool, prints.values()))))
        common = {value for value, students in holders.items() if len(students) > most}
        counts = Counter(
            pair
            for value, students in holders.items()
            if value not in common
            for pair in combinations(students, 2)
            if mine & set(pair)
        )
        for (one, other), shared in counts.items():
            share = shared / min(len(prints[one] - common), len(prints[other] - common))
            if shared >= EVIDENCE and share >= SHARE:
                pairs.append(Pair(part, *((one, other) if one in mine else (other, one)), share, shared))
    return sorted(pairs, key=lambda pair: (-pair.shared * pair.share, pair.one, pair.other, pair.part))


def together(answers: Answers, earlier: Answers | None) -> Answers:
    """Both classes; ids such as ``s1`` may be in both, and be different people."""
    return {f"{student} (earlier)": found for student, found in (earlier or {}).items()} | dict(answers)


# --- fingerprints --------------------------------------------------------------------------------------


def fingerprints(source: str) -> list[Print]:
    """Winnowed hashes of the runs of tokens. They do not depend on formatting, comments, or the names chosen."""
    tokens = tokens_of(source)
    hashes = []
    for start in range(len(tokens) - RUN + 1):
        run = tokens[start : start + RUN]
        order: dict[str, str] = {}  # an own name is known by its place among the run's
        text = "\n".join(order.setdefault(word, f"#{len(order)}") if own else word for word, own, _ in run)
        value = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()
        hashes.append(Print(value, run[0][2], run[-1][2]))
    kept = {
        min(range(start, min(start + WINDOW, len(hashes))), key=lambda i: (hashes[i].value, -i))
        for start in range(max(1, len(hashes) - WINDOW + 1) if hashes else 0)
    }
    return [hashes[i] for i in sorted(kept)]


def tokens_of(source: str) -> list[tuple[str, bool, int]]:
    """The tokens that carry meaning: (text, whether it is a name that the student chose, line)."""
    found: list[tuple[str, bool, int]] = []
    begins, brackets, in_def = True, 0, 0  # in_def: the depth of the brackets around a function's parameters
    text = source[:LONGEST].encode("utf-8", "replace").decode() + "\n"
    read = tokenize.generate_tokens(io.StringIO(text).readline)
    try:
        waiting = next(read)
        for following in read:
            token, waiting = waiting, following
            if len(found) == MOST_TOKENS:
                break
            if token.type in AT_START:
                begins = True
            elif token.type not in NOT_CODE:
                kind, text, line = token.type, token.string, token.start[0]
                if text in ("(", "[", "{"):
                    brackets += 1
                    in_def = in_def or (brackets if len(found) > 1 and found[-2][0] == "def" else 0)
                elif text in (")", "]", "}"):
                    in_def = 0 if in_def == brackets else in_def
                    brackets -= 1
                if kind == tokenize.NAME:
                    before = [word for word, _, _ in found[-2:]]
                    named = brackets > 0 and not in_def and following.string == "="  # softmax(dim=-1)
                    member = before[-1:] == ["."] and before[0] != "self"
                    found.append((text, not (member or named or text in KEPT), line))
                elif kind == tokenize.STRING or tokenize.tok_name[kind] == "FSTRING_START":
                    if not begins:  # a docstring otherwise
                        found.append(("''", False, line))
                elif kind in (tokenize.NUMBER, tokenize.OP) and text not in (*"(),;",):
                    found.append((text, False, line))
                begins = False
    except (tokenize.TokenError, SyntaxError, StopIteration):
        pass  # what can be read of an answer that is no Python is compared all the same
    return found


# --- for the marker ------------------------------------------------------------------------------------


def answers_in(out: Path, exercise: str, parts: Iterable[str]) -> dict[str, dict[str, str]]:
    """The answers that were marked into ``out``, by student and name; ``parts``: the names of those in code."""
    parts = set(parts)
    return {
        path.parents[1].name: {name: text for name, text in written_before(path).items() if name in parts}
        for path in sorted(out.glob(f"autograded/*/{exercise}/{exercise}.ipynb"))
    }


def write_report(
    pairs: list[Pair], answers: Answers, out: Path, exercise: str, earlier: Answers | None = None
) -> list[Path]:
    """Write ``similar/EXERCISE.csv``, and ``.html`` with the answers side by side; return their paths."""
    table, page = (out / "similar" / f"{exercise}{suffix}" for suffix in (".csv", ".html"))
    head = ["student", "other", "part", "share in %", "fingerprints"]
    write_csv(table, [head, *([p.one, p.other, p.part, round(100 * p.share), p.shared] for p in pairs)])
    everybody = together(answers, earlier)
    shown, prints_of = [], functools.cache(fingerprints)
    for pair in pairs[:MOST]:
        sources = [everybody[student][pair.part] for student in (pair.one, pair.other)]
        prints = [prints_of(source) for source in sources]
        both = {found.value for found in prints[0]} & {found.value for found in prints[1]}
        shown.append(
            {
                "title": f"{printable(pair.one)} and {printable(pair.other)}: {pair.part}",
                "words": f"{100 * pair.share:.0f} % alike, {pair.shared} fingerprints",
                "sides": [lines_of(source, found, both) for source, found in zip(sources, prints)],
            }
        )
    write(page, Environment(autoescape=True).from_string(PAGE).render(exercise=exercise, pairs=shown, of=len(pairs)))
    return [table, page]


def lines_of(source: str, prints: list[Print], both: set[bytes]) -> list[tuple[int, str, bool]]:
    """The lines of an answer: number, text, whether the other one has it too."""
    alike = {line for found in prints if found.value in both for line in range(found.first, found.last + 1)}
    lines = source[:LONGEST].split("\n")[:SHOWN_LINES]
    return [(n, printable(line.expandtabs(4)[:SHOWN_WIDTH]), n in alike) for n, line in enumerate(lines, 1)]


PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{{ exercise }}: answers that are alike</title>
<style>
:root { color-scheme: light dark; --line: #c8c8c8; --mark: #ffe9a8; }
@media (prefers-color-scheme: dark) { :root { --line: #555; --mark: #5c4a12; } }
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem; }
section { border-top: 2px solid var(--line); margin-top: 2rem; }
.sides { display: grid; grid-template-columns: 1fr 1fr; gap: 1rem; }
pre { font-size: 13px; white-space: pre-wrap; overflow-wrap: anywhere; margin: 0; }
mark { background: var(--mark); color: inherit; }
.number { user-select: none; opacity: .6; }
</style>
</head>
<body>
<h1>{{ exercise }}: answers that are alike</h1>
<p>Marked lines are in both answers, whatever their names, comments and formatting. What the exercise gives, the model
answer, and what a third of the class wrote were left out of the counting. This is a reason to look and to ask, and no
proof: two people may have learned from the same page.</p>
<p>{{ of }} {{ 'pair' if of == 1 else 'pairs' }} of answers
{%- if of > pairs | length %}, of which the first {{ pairs | length }} are shown{% endif %}.</p>
{% for pair in pairs %}<section>
<h2>{{ pair.title }}</h2>
<p>{{ pair.words }}</p>
<div class="sides">{% for side in pair.sides %}<pre>
{% for number, text, alike in side %}<span class="number">{{ '%3d' % number }}</span>
{%- if alike %} <mark>{{ text }}</mark>{% else %} {{ text }}{% endif %}
{% endfor %}</pre>{% endfor %}</div>
</section>
{% endfor %}</body>
</html>
"""
