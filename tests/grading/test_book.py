"""The gradebook, a person's marks in it through nbgrader's own formgrader, and the feedback that follows."""

import csv
import html
import os
import re
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from contextlib import closing

import nbformat
import pytest

from coursekit.commands.lectures import home
from coursekit.grading import batch
from coursekit.grading.book import as_plain_text
from tests.grading.classroom import NAME, SOLUTIONS, cell_of, only

pytestmark = [pytest.mark.usefixtures("bubblewrap"), pytest.mark.slow]

EVIL = f"""Neighbours swap, for $a<b$. {"A long line. " * 40}<script>document.title = 'owned'</script>
<img src="x" onerror="document.title = 'owned'"> <a href="javascript:document.title='owned'">click</a>
[click](javascript:document.title='owned') ![pixel](https://example.org/pixel.png)
```
</pre><script>document.title = 'owned'</script>
```"""


def hand_in(folder, **written):
    for student, text in written.items():
        notebook = only(luong_score=SOLUTIONS["luong_score"])
        if text:
            cell_of(notebook, "read_a_map").source = text
        (folder / student).mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook, folder / student / f"{NAME}.ipynb")


def mark(folder):
    return batch.grade(NAME, [folder / "in"], folder / "out", home(), workers=2)


def rows(folder, kind=""):
    with (folder / "out" / f"{NAME}{kind}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def course(bubblewrap, tmp_path_factory):
    folder = tmp_path_factory.mktemp("book")
    hand_in(folder / "in", alice=EVIL, bob="Something else.", carol=None)
    mark(folder)
    return folder


@pytest.fixture(scope="module")
def formgrader(course):
    """nbgrader's formgrader, served from the folder of the marking."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "jupyter", "server", "--no-browser", "--ip=127.0.0.1", f"--port={port}"]
    command += ["--ServerApp.port_retries=0", "--IdentityProvider.token=t", f"--ServerApp.root_dir={course / 'out'}"]
    command += ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    own = {name: str(course / name.lower()) for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR")}
    path = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
    log = (course / "server.log").open("w")
    server = subprocess.Popen(
        command, cwd=course / "out", env={**os.environ, **own, "PATH": path}, stdout=log, stderr=subprocess.STDOUT
    )
    address = f"http://127.0.0.1:{port}/formgrader"
    for _ in range(600):
        try:
            urllib.request.urlopen(f"{address}/api/status?token=t", timeout=5).close()
            break
        except OSError:
            assert server.poll() is None, (course / "server.log").read_text()
            time.sleep(0.1)
    yield address
    server.terminate()
    server.wait()
    log.close()


def test_before_anybody_read_the_answers(course):
    by_student = {row["student"]: row for row in rows(course)}
    for student in ("alice", "bob"):
        assert by_student[student]["status"] == "waits for a person", by_student[student]["flags"]
    assert by_student["alice"]["read_a_map"] == ""
    assert by_student["carol"] | {"handed_in": ""} == by_student["carol"] | {
        "handed_in": "",
        "status": "marked",
        "total": "15",
        "read_a_map": "0",
    }
    assert [row["Grade"] for row in rows(course, "_moodle")] == ["", "", "15"], "no grade before it is final"
    page = (course / "out" / "feedback" / "alice" / NAME / f"{NAME}.html").read_text(encoding="utf-8")
    assert "and 10 more are read by a person" in page


def test_a_person_marks_the_written_answer_in_formgrader(course, formgrader, browser):
    page = browser.new_page()
    page.goto(f"{formgrader}/gradebook?token=t")
    page.get_by_text(NAME).first.wait_for()
    page.goto(f"{formgrader}/gradebook/{NAME}/{NAME}")
    page.get_by_text("Submission #1").wait_for()
    links = page.get_by_role("link", name=re.compile("Submission #"))
    addresses = [link.get_attribute("href") for link in links.all()]
    assert len(addresses) == 3
    for address in addresses:
        page.goto(f"{formgrader.removesuffix('/formgrader')}{address}")
        page.locator("#read_a_map").wait_for()
        page.wait_for_load_state("networkidle")
        if "Neighbours swap" in page.content():
            assert "owned" not in page.title(), "a student's script ran with the rights of the marker"
            assert page.locator("img[onerror], .nbgrader_cell script").count() == 0
            assert page.locator("a[href^='javascript:'], img[src*='example.org']").count() == 0
            shown = page.locator("pre", has_text="Neighbours swap")
            assert shown.evaluate("pre => pre.scrollWidth <= pre.clientWidth"), "long lines run out of the page"
            assert shown.inner_text().strip() == EVIL
            saved = page.expect_response(lambda answer: "/api/grade/" in answer.url and answer.request.method == "PUT")
            with saved:
                page.locator("input#read_a_map").fill("7")
                page.locator("input#read_a_map").press("Tab")
            saved = page.expect_response(
                lambda answer: "/api/comment/" in answer.url and answer.request.method == "PUT"
            )
            with saved:
                page.locator("textarea.comment").last.fill("Name an <experiment>.")
                page.locator("textarea.comment").last.press("Tab")
    page.close()
    mark(course)
    by_student = {row["student"]: row for row in rows(course)}
    assert (by_student["alice"]["status"], by_student["alice"]["total"]) == ("marked", "22")
    assert by_student["bob"]["status"] == "waits for a person"
    assert [row["Grade"] for row in rows(course, "_moodle")] == ["22", "", "15"]
    assert [row[NAME] for row in rows(course, "_canvas")] == ["100", "22", "15"], "an empty cell would wipe a grade"
    page = (course / "out" / "feedback" / "alice" / NAME / f"{NAME}.html").read_text(encoding="utf-8")
    assert "22 of 100 points" in page
    assert "Name an &lt;experiment&gt;." in page
    assert "&lt;script&gt;" in page
    assert "<script" not in page


def test_a_person_overrules_and_a_later_marking_keeps_it(course):
    """Depends on nothing but the gradebook: 5 points by hand for a part that was marked with 0."""
    from nbgrader.api import Gradebook

    with Gradebook(f"sqlite:///{course / 'out' / 'gradebook.db'}") as book:
        book.find_grade("check-train", NAME, NAME, "bob").manual_score = 5
        book.find_grade("read_a_map", NAME, NAME, "bob").manual_score = 3
        book.find_grade("read_a_map", NAME, NAME, "bob").needs_manual_grade = False
        book.db.commit()
    mark(course)
    assert next(row for row in rows(course) if row["student"] == "bob")["total"] == "23"
    hand_in(course / "in", bob="Something new.")
    mark(course)
    with Gradebook(f"sqlite:///{course / 'out' / 'gradebook.db'}") as book:
        grade = book.find_grade("read_a_map", NAME, NAME, "bob")
        assert grade.needs_manual_grade, "another answer has to be read again"
        assert grade.manual_score == 3
        assert not book.find_grade("check-train", NAME, NAME, "bob").needs_manual_grade
    with closing(sqlite3.connect(course / "out" / "gradebook.db")) as db:
        assert db.execute("select count(*) from submitted_assignment").fetchone() == (3,)


def test_what_a_person_set_does_not_stand_under_another_answer(tmp_path):
    """Neither points nor comment; it is said until the person has looked, and points for other parts stay."""
    from nbgrader.api import Gradebook

    def by_hand(part, points, comment=None):
        with Gradebook(f"sqlite:///{tmp_path / 'out' / 'gradebook.db'}") as book:
            grade = book.find_grade(f"check-{part}", NAME, NAME, "alice")
            grade.manual_score, grade.needs_manual_grade = points, False  # as the formgrader saves it
            if comment:
                book.find_comment(part, NAME, NAME, "alice").manual_comment = comment
            book.db.commit()

    def marked():
        mark(tmp_path)
        (row,) = rows(tmp_path)
        page = (tmp_path / "out" / "feedback" / "alice" / NAME / f"{NAME}.html").read_text(encoding="utf-8")
        return row, page

    def hand_in_both(**changed):
        notebook = only(**{"luong_score": SOLUTIONS["luong_score"]} | changed)
        (tmp_path / "in").mkdir(exist_ok=True)
        nbformat.write(notebook, tmp_path / "in" / "alice.ipynb")

    hand_in_both(masked_softmax="def masked_softmax(scores, mask):\n    return scores")
    mark(tmp_path)
    by_hand("masked_softmax", 6, "A good start.")
    by_hand("luong_score", 14)
    row, page = marked()
    assert (row["luong_score"], row["masked_softmax"], row["flags"]) == ("14", "6", "")
    assert page.count("A person set these points") == 2
    assert "A good start." in page
    hand_in_both(masked_softmax="def masked_softmax(scores, mask):\n    return mask")
    for _ in range(2):  # said again, until a person has looked
        row, page = marked()
        assert (row["luong_score"], row["masked_softmax"]) == ("14", "0"), "only the answer that changed"
        assert row["flags"] == "your 6 points and comment for masked_softmax were for an earlier answer"
        assert page.count("A person set these points") == 1
        assert "A good start." not in page
        assert "earlier answer" not in page, "the student cannot do anything with that"
    with Gradebook(f"sqlite:///{tmp_path / 'out' / 'gradebook.db'}") as book:
        assert book.find_grade("check-masked_softmax", NAME, NAME, "alice").needs_manual_grade
        note = book.find_comment("masked_softmax", NAME, NAME, "alice").auto_comment
        assert note.endswith("were for an earlier answer\nA good start."), "the formgrader shows it"
    by_hand("masked_softmax", 1)
    row, _ = marked()
    assert (row["masked_softmax"], row["flags"]) == ("1", "")
    hand_in_both()
    row, _ = marked()
    assert (row["masked_softmax"], row["flags"]) == (
        "0",
        "your 1 point for masked_softmax was for an earlier answer",
    )


def test_a_comment_on_a_written_answer_does_not_stand_under_another(tmp_path):
    from nbgrader.api import Gradebook

    hand_in(tmp_path / "in", alice="Neighbours swap.")
    mark(tmp_path)
    with Gradebook(f"sqlite:///{tmp_path / 'out' / 'gradebook.db'}") as book:
        grade = book.find_grade("read_a_map", NAME, NAME, "alice")
        grade.manual_score, grade.needs_manual_grade = 4, False
        book.find_comment("read_a_map", NAME, NAME, "alice").manual_comment = "And why?"
        book.db.commit()
    page = tmp_path / "out" / "feedback" / "alice" / NAME / f"{NAME}.html"
    mark(tmp_path)
    assert "And why?" in page.read_text(encoding="utf-8")
    hand_in(tmp_path / "in", alice="Neighbours swap, since German puts the verb last.")
    mark(tmp_path)
    (row,) = rows(tmp_path)
    assert (row["status"], row["flags"]) == (
        "waits for a person",
        "your comment for read_a_map was for an earlier answer",
    )
    assert "And why?" not in page.read_text(encoding="utf-8")
    with Gradebook(f"sqlite:///{tmp_path / 'out' / 'gradebook.db'}") as book:
        book.find_grade("read_a_map", NAME, NAME, "alice").needs_manual_grade = False  # read
        book.db.commit()
    hand_in(tmp_path / "in", alice=None)
    mark(tmp_path)
    (row,) = rows(tmp_path)
    assert (row["read_a_map"], row["flags"]) == ("0", "your 4 points for read_a_map were for an earlier answer")


TEXTS = ["plain", "```\ncode\n```", "a\n\n\nb", "`x`", "~~~\n", "<b>", "$a<b$", "</pre><script>x</script>", "äß∑ &amp;"]


@pytest.mark.parametrize("text", TEXTS)
def test_a_written_answer_is_shown_as_it_is(text):
    from nbconvert.filters.markdown_mistune import markdown2html_mistune

    shown = markdown2html_mistune(as_plain_text(text)).strip()
    before, inside = re.fullmatch(r"(<pre[^<>]*>)([^<>]*)</pre>", shown, re.DOTALL).groups()
    assert "white-space: pre-wrap" in before
    assert html.unescape(inside) == text
