"""The page that a student gets back: one file that needs nothing else."""

from typing import Any

from jinja2 import Environment
from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from coursekit.grading.book import Standing
from coursekit.grading.intake import Submission
from coursekit.grading.release import CHECK, mark_up

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ exercise }}: {{ total }} of {{ of }} points</title>
<style>
:root { color-scheme: light dark; --line: #bbb; --soft: #f4f4f4; --good: #006b4f; --bad: #a33c00; }
@media (prefers-color-scheme: dark) { :root { --line: #555; --soft: #222; --good: #5fd0ac; --bad: #ffb27d; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 50rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .25rem .6rem .25rem 0; border-bottom: 1px solid var(--line); }
td.points, th.points { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
section { margin-top: 2.5rem; }
h2 { border-bottom: 2px solid var(--line); }
.good { color: var(--good); } .bad { color: var(--bad); }
pre, blockquote { background: var(--soft); padding: .7rem 1rem; margin: .7rem 0; overflow-x: auto; }
pre { font-size: 14px; } pre, blockquote { white-space: pre-wrap; overflow-wrap: anywhere; }
ul { list-style: none; padding-left: 0; }
{{ style }}
</style>
</head>
<body>
<h1>{{ exercise }}</h1>
<p>{{ student }}{% if when %} · handed in {{ when }}{% endif %}</p>
<p><strong>{{ total }} of {{ of }} points</strong>
{%- if waiting %}, and {{ waiting }} more are read by a person{% endif %}</p>
{% for flag in flags %}<p class="bad">{{ flag }}</p>{% endfor %}
<table>
<thead><tr><th>part</th><th class="points">points</th></tr></thead>
<tbody>
{% for part in parts %}<tr><td><a href="#{{ part.name }}">{{ part.name }}</a></td>
<td class="points">{{ part.shown }} of {{ part.of }}</td></tr>
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
</section>
{% endfor %}</body>
</html>
"""


def plain(points: float) -> str:
    return f"{points:g}"


def page(exercise: str, master: Any, submission: Submission, answers: dict, result: dict, standing: Standing) -> str:
    """The feedback on one submission: parts, points, what went wrong in words, and the student's own answers."""
    formatter = HtmlFormatter(cssclass="code", linenos="inline")  # the words name lines
    by_name = {part["name"]: part for part in result["parts"]}
    parts, code = [], []
    for cell in master.cells:
        about, name = mark_up(cell), mark_up(cell).get("grade_id")
        if about.get("solution") and cell.cell_type == "code" and name in answers:
            code.append((name, highlight(answers[name], PythonLexer(stripnl=False), formatter)))
        if not about.get("grade"):
            continue
        points = standing.points.get(name)
        part = by_name.get(
            name.removeprefix(CHECK), {"name": name, "of": about["points"], "aspects": [], "problem": ""}
        )
        comments = [standing.comments[key] for key in (*[key for key, _ in code], name) if key in standing.comments]
        parts.append(
            part
            | {
                "shown": "–" if points is None else plain(points),
                "of": plain(part["of"]),
                "by_hand": name in standing.by_hand and name.removeprefix(CHECK) in by_name,
                "comment": " ".join(comments),
                "code": [Markup(html) for _, html in code],
                "text": answers.get(name, "") if cell.cell_type == "markdown" else "",
            }
        )
        if cell.cell_type == "markdown" and name not in answers:
            parts[-1]["problem"] = "not answered"
        code = []
    waiting = sum(mark_up(cell)["points"] for cell in master.cells if mark_up(cell).get("grade_id") in standing.waiting)
    return (
        Environment(autoescape=True)
        .from_string(PAGE)
        .render(
            exercise=exercise,
            student=submission.name or submission.student,
            when=submission.handed_in.astimezone().strftime("%Y-%m-%d %H:%M") if submission.handed_in else "",
            total=plain(standing.total),
            of=plain(sum(mark_up(cell)["points"] for cell in master.cells if mark_up(cell).get("grade"))),
            waiting=plain(waiting) if waiting else "",
            flags=[flag for flag in submission.flags if " imports " not in flag],
            parts=parts,
            style=Markup(styles()),
        )
    )


def styles() -> str:
    light = HtmlFormatter(style="default", cssclass="code").get_style_defs(".code")
    dark = HtmlFormatter(style="github-dark", cssclass="code").get_style_defs(".code")
    once = ".code .linenos { user-select: none }"  # what is copied is the code alone
    return (
        f"{once}\n@media (prefers-color-scheme: light) {{ {light} }}\n@media (prefers-color-scheme: dark) {{ {dark} }}"
    )
