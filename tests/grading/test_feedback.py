"""The page that a student gets back: what it says, and that no hand-in makes it slow, huge or harmful."""

import re
import time
from datetime import datetime, timedelta, timezone

import nbformat
import pytest

from coursekit.grading.book import Standing
from coursekit.grading.feedback import SHOWN, in_colour, page, sentence
from coursekit.grading.intake import Submission


def master():
    """Three parts in code, of 10 points each, and a written answer of 5."""
    found = []
    for name in ("one", "two", "three"):
        found.append(nbformat.v4.new_code_cell("", metadata={"nbgrader": {"grade_id": name, "solution": True}}))
        check = {"grade_id": f"check-{name}", "grade": True, "points": 10}
        found.append(nbformat.v4.new_code_cell("", metadata={"nbgrader": check}))
    written = {"grade_id": "why", "grade": True, "solution": True, "points": 5}
    found.append(nbformat.v4.new_markdown_cell("", metadata={"nbgrader": written}))
    return nbformat.v4.new_notebook(cells=found)


def part(name, *aspects, problem=""):
    aspects = [{"name": what, "points": got, "of": of, "words": words} for what, got, of, words in aspects]
    return {"name": name, "points": sum(a["points"] for a in aspects), "of": 10, "aspects": aspects, "problem": problem}


def made(parts, answers, why=None, by_hand=(), comments=(), **about):
    points = {f"check-{p['name']}": float(p["points"]) for p in parts} | {"why": why} | dict(by_hand)
    standing = Standing(points, dict(comments), set(dict(by_hand)))
    return page("09_x", master(), Submission("f", student="s1", **about), answers, {"parts": parts}, standing)


RIGHT = [part(name, ("value", 10, 10, "")) for name in ("one", "two", "three")]
MIXED = [
    part("one", ("value", 6, 6, ""), ("shape", 0, 4, "W is transposed")),
    part("two", ("value", 0, 10, "it stopped"), problem="it stopped with a TypeError in line 3"),
    part("three", ("value", 0, 10, "not answered"), problem="not answered"),
]


def row_of(html, name):
    """Width of the bar, points and sentence of a part in the table at the top."""
    row = re.search(rf'<tr><td><a href="#{name}">.*?</tr>', html, re.DOTALL)[0]
    return (
        "".join(re.findall(r"width: (\d+)%", row)),
        *re.search(r'"points">(.*?)</td><td>(.*?)</td>', row, re.DOTALL).groups(),
    )


def test_a_question_ends_with_its_mark():
    part = {"aspects": [], "points": 0, "of": 5, "by_hand": False, "problem": "is there a 'return' at the end?"}
    assert sentence(part).endswith("at the end?")
    wrong = {"name": "shape", "points": 0, "of": 1, "words": "was it turned?"}
    assert sentence(part | {"problem": "", "aspects": [wrong]}).endswith("“shape”: was it turned?")


def test_the_top_of_the_page_says_it_all():
    html = made(MIXED, {"one": "1", "two": "2", "why": "since"}, comments={"why": "Yes."}.items())
    assert "<strong>6 of 35 points</strong>, and 5 more are read by a person" in html
    assert row_of(html, "one") == ("60", "6 of 10", "1 of 2 checks passed. Wrong in “shape”: W is transposed.")
    assert row_of(html, "two") == (
        *("0", "0 of 10"),
        "The answer could not be run: it stopped with a TypeError in line 3.",
    )
    assert row_of(html, "three") == ("0", "0 of 10", "There is no answer yet.")
    assert row_of(html, "why") == ("", "– of 5", "A person still has to read this answer.")
    assert re.search(
        r'Look at <a href="#two">two</a> first:</strong>\s*it cost 10 of the 24 points that are missing.', html
    )


def test_points_by_hand_go_before_what_the_machine_found():
    html = made(MIXED, {}, why=5.0, by_hand={"check-two": 9.5})
    assert "<strong>20.5 of 35 points</strong>" in html
    assert row_of(html, "two") == ("95", "9.5 of 10", "The points were set by hand.")
    assert html.count("A person set these points") == 1
    assert 'Look at <a href="#three">' in html


def test_who_has_all_points_is_told_so():
    html = made(RIGHT, {}, why=5.0)
    assert "All points: well done." in html
    assert "Look at" not in html
    assert row_of(html, "one") == ("100", "10 of 10", "Everything is right.")
    assert "All points so far: well done." in made(RIGHT, {})


HOSTILE = {
    "nested replacement fields": "'{a[b",  # what took Pygments 7 seconds at 200 kB
    "blank lines": " \n",
    "only line ends": "\n",
    "tabs": "\t",
    "brackets": "(",
    "carriage returns": "\r",
    "markup": "</pre><script>alert(1)</script>",
    "surrogates": "x = '\ud800'\n",
    "bidirectional": "# \u202e\u2066 \x1b[31m\x00\n",
    "quotes": "'''\"",
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("size", [4_900, 10**6])
def test_no_answer_makes_the_page_slow_huge_or_harmful(name, size):
    text = (HOSTILE[name] * size)[:size]
    started = time.process_time()
    html = made(RIGHT, dict.fromkeys(("one", "two", "three", "why"), text), name=text[:100], flags=[text[:100]])
    assert time.process_time() - started < 3, "three answers; Pygments alone takes minutes"
    assert len(html) < 3_000_000
    html.encode("utf-8")
    assert "<script" not in html
    assert not set(html) & {"\u202e", "\u2066", "\x1b", "\x00"}
    assert html.count("only its beginning is shown") == 4 or size < SHOWN


def test_a_long_answer_is_numbered_like_a_short_one():
    short = in_colour("a = 1\n\nb = 2")
    long = in_colour("a = 1\n" + "\n" * 200 + "b = '<i>'")
    numbers = re.compile(r'<span class="linenos"> *(\d+)</span>')
    assert numbers.findall(short) == ["1", "2", "3"]
    assert numbers.findall(long) == [str(n) for n in range(1, 203)]
    assert 'class="k">' in in_colour("return 1")
    assert "b = &#39;&lt;i&gt;&#39;" in long
    assert in_colour("x = 1\n" * 2_000).count("linenos") == 1_000
    assert "This answer has 12,000 characters: only its beginning is shown." in in_colour("x = 1\n" * 2_000)


@pytest.mark.parametrize("hours", [-14, 0, 14])
@pytest.mark.parametrize("when", [datetime.min, datetime.max])
@pytest.mark.parametrize("here", ["Etc/GMT+12", "Etc/GMT-14"])
def test_no_time_stops_a_page(when, hours, here, monkeypatch):
    monkeypatch.setenv("TZ", here)
    time.tzset()
    try:
        html = made(RIGHT, {}, handed_in=when.replace(tzinfo=timezone(timedelta(hours=hours))))
    finally:
        monkeypatch.undo()
        time.tzset()
    assert re.search(r"handed in (0001|9999)-\d\d-\d\d \d\d:\d\d", html)
