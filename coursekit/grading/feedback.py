"""The page that a student gets back: one file that needs nothing else."""

import re
from typing import Any

from jinja2 import Environment
from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from coursekit.grading import printable
from coursekit.grading.book import Standing
from coursekit.grading.intake import Submission
from coursekit.grading.release import CHECK, mark_up
from coursekit.grading.tables import in_zone

# Pygments' lexer takes time quadratic in a run of white space, or in '{a[b{a[b: within these limits at most 60 ms.
COLOURED = 5_000  # characters; the longest model answer has 1,321
LONGEST_BLANK = 100
SHOWN, SHOWN_LINES = 50_000, 1_000  # of one answer: what is longer is cut

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ exercise }}: {{ total }} of {{ of }} points</title>
<style>
:root { color-scheme: light dark; --line: #c8c8c8; --soft: #f5f5f5; --good: #006b4f; --bad: #a33c00; --dim: #5a5a5a; }
@media (prefers-color-scheme: dark) {
:root { --line: #555; --soft: #1d1f23; --good: #5fd0ac; --bad: #ffb27d; --dim: #aaa; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem; }
h1 { margin-bottom: .2rem; } h2 { margin: 0 0 .4rem; }
.dim { color: var(--dim); }
.total { font-size: 1.5rem; margin: 1rem 0 .3rem; }
.bar { background: var(--line); height: .55rem; min-width: 6rem; border-radius: .3rem; overflow: hidden; }
.bar span { display: block; height: 100%; background: var(--good); }
@media print { .bar, .bar span { print-color-adjust: exact; } }
.first { border-left: .3rem solid var(--bad); background: var(--soft); padding: .7rem 1rem; margin: 1.2rem 0; }
.first p { margin: 0; }
.first.done { border-color: var(--good); }
table { border-collapse: collapse; width: 100%; margin-top: 1.2rem; }
th, td { text-align: left; vertical-align: top; padding: .4rem .8rem .4rem 0; border-bottom: 1px solid var(--line); }
td .bar { margin-top: .5rem; }
td:last-child { overflow-wrap: anywhere; }
td.points, th.points { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
section { margin-top: 2rem; border-top: 2px solid var(--line); padding-top: 1rem; }
.good { color: var(--good); } .bad { color: var(--bad); }
pre, blockquote { background: var(--soft); padding: .7rem 1rem; margin: .7rem 0; border-radius: .3rem; }
pre { font-size: 13px; } pre, blockquote { white-space: pre-wrap; overflow-wrap: anywhere; }
ul { list-style: none; padding-left: 0; margin: .4rem 0; }
{{ style }}
.code pre span.linenos { color: var(--dim); background: none; padding: 0 .7rem 0 0; user-select: none; }
</style>
</head>
<body>
<h1>{{ exercise }}</h1>
<p class="dim">{{ student }}{% if when %} · handed in {{ when }}{% endif %}</p>
<p class="total"><strong>{{ total }} of {{ of }} points</strong>
{%- if waiting %}, and {{ waiting }} more are read by a person{% endif %}</p>
<div class="bar" aria-hidden="true"><span style="width: {{ share }}%"></span></div>
{% for flag in flags %}<p class="bad">{{ flag }}</p>{% endfor %}
{% if first %}<div class="first"><p><strong>Look at <a href="#{{ first.name }}">{{ first.name }}</a> first:</strong>
it cost {{ first.lost }} of the {{ lost }} points that are missing. {{ first.sentence }}</p></div>
{% else %}<div class="first done"><p><strong>
{{ 'All points so far' if waiting else 'All points' }}: well done.</strong></p></div>
{% endif %}<table>
<thead><tr><th>part</th><th colspan="2" class="points">points</th><th>in one sentence</th></tr></thead>
<tbody>
{% for part in parts %}<tr><td><a href="#{{ part.name }}">{{ part.name }}</a></td>
<td>{% if part.points is not none %}<div class="bar" aria-hidden="true">
<span style="width: {{ part.share }}%"></span></div>{% endif %}</td>
<td class="points">{{ part.shown }} of {{ part.of }}</td><td>{{ part.sentence }}</td></tr>
{% endfor %}</tbody>
</table>
{% for part in parts %}<section id="{{ part.name }}">
<h2>{{ part.name }}: {{ part.shown }} of {{ part.of }}</h2>
{% if part.by_hand %}<p><strong>A person set these points</strong>, whatever the marking below says.</p>
{% endif %}{% if part.problem %}<p class="bad">✗ {{ part.problem }}</p>
{% else %}<ul>
{% for a in part.aspects %}<li class="{{ 'good' if a.points == a.of else 'bad' }}">
{{ '✓' if a.points == a.of else '✗' }} {{ a.name }}: {{ a.points }} of {{ a.of }}
{%- if a.words %} – {{ a.words }}{% endif %}</li>
{% endfor %}</ul>
{% endif %}{% if part.comment %}<p><strong>Comment:</strong> {{ part.comment }}</p>
{% endif %}{% for source in part.code %}{{ source }}{% endfor %}
{% if part.text %}<blockquote>{{ part.text }}</blockquote>{% endif %}
{% if part.cut %}<p class="bad">{{ part.cut }}</p>{% endif %}
</section>
{% endfor %}</body>
</html>
"""


def plain(points: float) -> str:
    return f"{points:g}"


def page(exercise: str, master: Any, submission: Submission, answers: dict, result: dict, standing: Standing) -> str:
    """The feedback on one submission: parts, points, what went wrong in words, and the student's own answers.

    Its length and the time it takes are bounded, whatever was handed in.
    """
    by_name = {part["name"]: part for part in result["parts"]}
    parts, code = [], []
    for cell in master.cells:
        about, name = mark_up(cell), mark_up(cell).get("grade_id")
        if about.get("solution") and cell.cell_type == "code" and name in answers:
            code.append((name, in_colour(answers[name])))
        if not about.get("grade"):
            continue
        points = standing.points.get(name)
        part = by_name.get(
            name.removeprefix(CHECK), {"name": name, "of": about["points"], "aspects": [], "problem": ""}
        )
        comments = [standing.comments[key] for key in (*[key for key, _ in code], name) if key in standing.comments]
        lines, cut = lines_of(answers.get(name, "") if cell.cell_type == "markdown" else "")
        part = part | {
            "points": points,
            "shown": "–" if points is None else plain(points),
            "share": share(points, part["of"]),
            "lost": plain(part["of"] - (points or 0)),
            "by_hand": name in standing.by_hand and name.removeprefix(CHECK) in by_name,
            "comment": "\n".join(comments),
            "code": [html for _, html in code],
            "text": "\n".join(lines),
            "cut": cut,
        }
        if cell.cell_type == "markdown" and name not in answers:
            part["problem"] = "not answered"
        parts.append(part | {"sentence": sentence(part)})
        code = []
    waiting = sum(part["of"] for part in parts if part["points"] is None)
    of = sum(part["of"] for part in parts)
    lost = [part for part in parts if part["points"] is not None and part["points"] < part["of"]]
    when = submission.handed_in and in_zone(submission.handed_in).replace(tzinfo=None).isoformat(" ", "minutes")
    for part in parts:
        part["of"] = plain(part["of"])
    return (
        Environment(autoescape=True)
        .from_string(PAGE)
        .render(
            exercise=exercise,
            student=printable(submission.name or submission.student),
            when=when,
            total=plain(standing.total),
            of=plain(of),
            share=share(standing.total, of),
            waiting=plain(waiting) if waiting else "",
            flags=[printable(flag) for flag in submission.flags if " imports " not in flag],
            first=max(lost, key=lambda part: float(part["lost"]), default=None),
            lost=plain(sum(float(part["lost"]) for part in lost)),
            parts=parts,
            style=Markup(styles()),
        )
    )


def share(points: float | None, of: float) -> str:
    """In per cent, for the width of a bar."""
    return plain(round(100 * min(1.0, max(0.0, (points or 0) / of)))) if of else "0"


def ended(words: str) -> str:
    """With a full stop, if it ends with nothing yet."""
    return words if words.endswith(("?", ".", "!")) else f"{words}."


def sentence(part: dict[str, Any]) -> str:
    """What came of a part, in one sentence."""
    wrong = [aspect for aspect in part["aspects"] if aspect["points"] < aspect["of"]]
    if part["points"] is None:
        return "A person still has to read this answer."
    if part["by_hand"]:
        return "The points were set by hand."
    if part["problem"].startswith("not answered"):
        return "There is no answer yet."
    if part["problem"]:
        return f"The answer could not be run: {ended(part['problem'])}"
    if not wrong:
        return "Everything is right." if part["points"] >= part["of"] else ""
    words = f": {wrong[0]['words']}" if wrong[0]["words"] else ""
    right = len(part["aspects"]) - len(wrong)
    mistake = ended(f"Wrong in “{wrong[0]['name']}”{words}")
    return f"{right} of {len(part['aspects'])} checks passed. {mistake}"


# --- the student's own words ---------------------------------------------------------------------------


def lines_of(text: str) -> tuple[list[str], str]:
    """The lines of an answer that a page has room for, safe to show; and words on what was cut, if anything was."""
    lines = re.split(r"\r\n|\r|\n", text[:SHOWN])
    cut = len(text) > SHOWN or len(lines) > SHOWN_LINES
    words = f"This answer has {len(text):,} characters: only its beginning is shown." if cut else ""
    return [printable(line.expandtabs(4)) for line in lines[:SHOWN_LINES]], words


def in_colour(source: str) -> Markup:
    """Python code as HTML with numbered lines, since the words name them; without colour where that takes long."""
    lines, words = lines_of(source)
    text = "\n".join(lines)
    if len(text) <= COLOURED and not re.search(rf"\s{{{LONGEST_BLANK}}}", text):
        html = Markup(highlight(text, PythonLexer(stripnl=False), HtmlFormatter(cssclass="code", linenos="inline")))
    else:
        width = len(str(len(lines)))
        numbered = [
            Markup('<span class="linenos">{:{}}</span>{}').format(n, width, line) for n, line in enumerate(lines, 1)
        ]
        html = Markup('<div class="code"><pre>{}\n</pre></div>\n').format(Markup("\n").join(numbered))
    return html + (Markup('<p class="bad">{}</p>\n').format(words) if words else Markup())


def styles() -> str:
    light = HtmlFormatter(style="default", cssclass="code").get_style_defs(".code")
    dark = HtmlFormatter(style="github-dark", cssclass="code").get_style_defs(".code")
    return f"@media (prefers-color-scheme: light) {{ {light} }}\n@media (prefers-color-scheme: dark) {{ {dark} }}"
