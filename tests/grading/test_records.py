"""Records of a marking: nothing in them can be changed unseen, and everything of a student can be removed."""

import contextlib
import csv
import hashlib
import json
import os
import shutil
import sqlite3
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coursekit.grading import GradingError, records
from coursekit.grading.batch import changed_by_hand
from coursekit.grading.book import book_exercise, book_submission, open_book, standing
from coursekit.grading.feedback import page
from coursekit.grading.intake import Student, Submission
from coursekit.grading.records import (
    Edited,
    Log,
    expire,
    forget,
    gradebook,
    private,
    pseudonym,
    store,
    stored,
    verify,
    without_names,
    write,
)
from coursekit.grading.tables import write_tables

KEY = b"k" * 32
SURROGATE = "it said \ud800 and \x1b[31m"


def result(points=8, unsure=False, **more):
    aspects = [{"name": "value", "points": points, "of": 10, "words": ""}]
    parts = [{"name": "sum", "points": points, "of": 10, "aspects": aspects, "problem": ""}]
    return {"parts": parts, "details": [], "peak": 1, "unsure": unsure} | more


# --- results -------------------------------------------------------------------------------------------


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text() | st.floats(), st.lists, max_leaves=5))
def test_every_result_comes_back_as_it_was(tmp_path_factory, value):
    path = tmp_path_factory.mktemp("r") / "09_x" / "abc.json"
    told = result(details=[SURROGATE, value])
    store(path, told, KEY)
    assert repr(stored(path, KEY)) == repr(told)


def test_a_result_that_was_edited_moved_or_signed_by_somebody_else_is_not_believed(tmp_path):
    path = tmp_path / "09_x" / "abc.json"
    assert stored(path, KEY) is None
    store(path, result(8), KEY)
    text = path.read_text()
    other = tmp_path / "09_x" / "def.json"
    for where, what in {
        path: text.replace('"points": 8', '"points": 10'),
        other: text,  # the result of another student's answers
        tmp_path / "10_y" / "abc.json": text,
        tmp_path / "09_x" / "1.json": json.dumps(result(8)),  # as the first edition wrote them
        tmp_path / "09_x" / "2.json": "[" * 100_000,
        tmp_path / "09_x" / "3.json": '{"signature": "é\\ud800", "result": {}}',
        tmp_path / "09_x" / "4.json": "",
    }.items():
        write(where, what)
        with pytest.raises(Edited, match=f"results/{where.parent.name}/{where.name} is not as it was written"):
            stored(where, KEY)
    with pytest.raises(Edited):
        stored(path, b"another key of somebody else....")
    store(path, result(8), KEY)
    assert stored(path, KEY) == result(8)


def test_what_a_busy_machine_may_have_caused_is_believed_the_second_time(tmp_path):
    path = tmp_path / "09_x" / "abc.json"
    store(path, result(unsure=True), KEY)
    assert stored(path, KEY) is None
    store(path, result(unsure=True), KEY)
    assert stored(path, KEY) == result()
    path.write_text(path.read_text().replace("8", "9"))
    store(path, result(unsure=True), KEY)
    assert stored(path, KEY) is None, "a file that somebody edited is no first time"


# --- log -----------------------------------------------------------------------------------------------


@pytest.fixture
def log(tmp_path):
    """Five events."""
    log = Log(tmp_path, KEY)
    log.add("started", "09_x", submissions=2)
    log.add("marked", "09_x", "s1", digest="abc", points=8)
    log.add("marked", "09_x", "s2", digest="def", points={"check-sum": 9.0})
    log.add("edited", "09_x", words=SURROGATE * 100)
    log.add("verified", problems=0)
    assert Log(tmp_path, KEY).problems == []
    return log


def test_the_log_says_what_happened_but_not_to_whom(tmp_path, log):
    lines = (tmp_path / "log.jsonl").read_text("ascii").splitlines()
    assert [json.loads(line)["event"] for line in lines] == ["started", "marked", "marked", "edited", "verified"]
    assert (
        json.loads(lines[1]).items()
        >= {
            "exercise": "09_x",
            "student": pseudonym(KEY, "s1"),
            "digest": "abc",
            "points": 8,
            "version": "0.1.0",
        }.items()
    )
    assert {"time", "user", "host"} <= set(json.loads(lines[0]))
    assert not any("s1" in json.loads(line).values() for line in lines)
    assert max(map(len, lines)) < 3_000
    assert [e["event"] for e in Log(tmp_path, KEY).events] == [e["event"] for e in log.events]
    assert Log(tmp_path, KEY).known == log.known


@pytest.mark.parametrize(
    ("how", "told"),
    [
        (lambda lines: [*lines[:2], lines[2].replace("9.0", "9.5"), *lines[3:]], "line 3 was changed"),
        (lambda lines: [*lines[:2], lines[2].replace('{"time"', '{"a": 1, "time"'), *lines[3:]], "line 3 was changed"),
        (lambda lines: [*lines[:2], *lines[3:]], "before line 3, lines are missing"),
        (lambda lines: lines[1:], "before line 1, lines are missing"),
        (lambda lines: [lines[0], lines[2], lines[1], *lines[3:]], "before line 2, lines are missing, or were moved"),
        (lambda lines: [*lines, lines[1]], "before line 6, lines are missing, or were moved or added"),
        (lambda lines: [*lines, '{"event": "marked", "before": ""}'], "line 6 is torn"),
        (lambda lines: [*lines[:2], "[" * 10_000, *lines[3:]], "before line 4, lines are missing"),
    ],
)
def test_no_line_is_changed_removed_or_moved_unseen(tmp_path, log, how, told):
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(how(path.read_text().splitlines())) + "\n")
    assert any(f"log.jsonl: {told}" in problem for problem in Log(tmp_path, KEY).problems)


def test_another_key_believes_no_line(tmp_path, log):
    assert len(Log(tmp_path, b"x" * 32).problems) == 5
    assert Log(tmp_path, b"x" * 32).events == []


def test_a_changed_line_is_not_believed(tmp_path, log):
    path = tmp_path / "log.jsonl"
    assert Log(tmp_path, KEY).of("09_x", "s2")["points"] == {"check-sum": 9.0}
    path.write_text(path.read_text().replace("9.0", "9.5"))
    assert "points" not in Log(tmp_path, KEY).of("09_x", "s2")


@pytest.mark.parametrize("left", [1, 50, -80, -70, -3, -2, -1])
def test_a_crash_in_the_middle_of_a_line_is_no_forgery(tmp_path, log, left):
    """Whatever is left of the last line, the next run goes on, and all other lines hold."""
    path = tmp_path / "log.jsonl"
    *whole, last = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(whole) + last[:left])
    again = Log(tmp_path, KEY)
    again.add("started")
    again.add("verified")
    torn = "log.jsonl: line 5 is torn, as by a crash while it was written"
    assert Log(tmp_path, KEY).problems == ([] if left == -1 else [torn])
    events = [event["event"] for event in Log(tmp_path, KEY).events]
    assert events == [*["started", "marked", "marked", "edited"], *["verified"] * (left == -1), "started", "verified"]


def test_a_full_disk_does_not_break_the_chain(tmp_path, log, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(records.os, "fsync", lambda file: os.ftruncate(file, os.fstat(file).st_size - 9) or 1 / 0)
        with pytest.raises(ZeroDivisionError):
            log.add("started")
    log.add("verified")
    again = Log(tmp_path, KEY)
    assert again.problems == ["log.jsonl: line 6 is torn, as by a crash while it was written"]
    assert again.events[-1]["event"] == "verified"


# --- a marked class ------------------------------------------------------------------------------------


def about(**more):
    return {"nbgrader": {"locked": False, "schema_version": 3, "task": False} | more}


MASTER = nbformat.v4.new_notebook(
    cells=[
        nbformat.v4.new_code_cell("", metadata=about(grade_id="sum", solution=True, grade=False)),
        nbformat.v4.new_code_cell("", metadata=about(grade_id="check-sum", solution=False, grade=True, points=10)),
        nbformat.v4.new_markdown_cell("", metadata=about(grade_id="why", solution=True, grade=True, points=5)),
    ]
)
CLASS = {"s1": ("Anna Schmidt", 8), "s2": ("Bob Miller", 9), "s3": ("Carol Jones", 10)}


def mark(out, exercise="09_x", points=None, only=tuple(CLASS)):
    """What ``batch.grade`` does after the sandbox; see the wiring in the order of the calls."""
    log = Log(out, KEY)
    log.add("started", exercise)
    rows, digests = [], {}
    with contextlib.closing(open_book(out)) as book:
        book_exercise(book, out, exercise, MASTER)
        for student in only:
            name, got = CLASS[student]
            submission = Submission(f"{name}/x.ipynb", student=student, name=name)
            found = result((points or {}).get(student, got), details=[f"{name} \ud800"])
            digests[student] = hashlib.sha256(f"{student} {found['parts']}".encode()).hexdigest()[:32]
            store(out / "results" / exercise / f"{digests[student]}.json", found, KEY)
            log.add("marked", exercise, student, digest=digests[student])
            book_submission(book, out, exercise, MASTER, submission, {"sum": "1", "why": "since"}, found)
            rows.append(SimpleNamespace(submission=submission, status="marked", result=found, standing=None))
        log.booked(book, exercise, digests)
        for row in rows:
            s = row.submission
            row.standing = standing(book, exercise, s.student)
            html = out / "feedback" / s.student / exercise / f"{exercise}.html"
            write(html, page(exercise, MASTER, s, {"sum": "1", "why": "since"}, row.result, row.standing))
            notebook = out / "autograded" / s.student / exercise / f"{exercise}.ipynb"
            log.wrote(exercise, [html, notebook], s.student)
        log.wrote(exercise, write_tables(rows, out, exercise, MASTER, 15))
        log.add("finished", exercise)
    return rows


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    """nbgrader takes seconds to make a gradebook."""
    out = tmp_path_factory.mktemp("empty")
    open_book(out).close()
    return out


@pytest.fixture
def new(empty, tmp_path):
    return shutil.copytree(empty, tmp_path / "new")


@pytest.fixture(scope="module")
def marked(empty, tmp_path_factory):
    out = shutil.copytree(empty, tmp_path_factory.mktemp("marked") / "out")
    mark(out)
    assert verify(out, KEY) == []
    return out


@pytest.fixture
def out(marked, tmp_path):
    return shutil.copytree(marked, tmp_path / "out")


def by_hand(out, student, cell, exercise="09_x", **changed):
    with gradebook(out) as book:
        grade = book.find_grade(cell, exercise, exercise, student)
        for name, value in changed.items():
            setattr(grade, name, value)
        book.db.commit()


def test_a_run_that_changes_nothing_adds_one_line(out):
    before = len(Log(out, KEY).events)
    mark(out)
    events = Log(out, KEY).events[before:]
    assert [e["event"] for e in events if e["event"] != "marked"] == ["started", "finished"]
    assert verify(out, KEY) == []


def test_points_changed_in_the_gradebook_are_noticed(out):
    by_hand(out, "s2", "check-sum", auto_score=10)
    assert verify(out, KEY) == ["09_x, s2: check-sum has 10 points in the gradebook, the marking booked 9 points"]
    mark(out, only=["s1"])  # who is not marked again does not get the forged points into the log
    assert any("s2: check-sum has 10 points" in problem for problem in verify(out, KEY))
    mark(out)
    assert verify(out, KEY) == [], "a marking books its own points again"


def test_what_people_set_is_noticed_until_a_marking_notes_it(out):
    by_hand(out, "s1", "check-sum", manual_score=10.0, needs_manual_grade=False)
    by_hand(out, "s3", "why", extra_credit=1.0)
    assert verify(out, KEY, people=False) == []
    assert verify(out, KEY) == [
        "09_x, s1: check-sum has points by hand (10 points) that no marking has noted yet (none)",
        "09_x, s3: why has points by hand (1 point) that no marking has noted yet (none)",
    ]
    mark(out)
    assert verify(out, KEY) == []
    overruled = [event for event in Log(out, KEY).events if event["event"] == "overruled"]
    assert [(e["student"], e["by_hand"]) for e in overruled] == [
        (pseudonym(KEY, "s1"), {"check-sum": [10.0, None]}),
        (pseudonym(KEY, "s3"), {"why": [None, 1.0]}),
    ]
    by_hand(out, "s1", "check-sum", manual_score=None)
    mark(out)
    assert Log(out, KEY).of("09_x", "s1")["by_hand"] == {}
    assert "set aside" in [event["event"] for event in Log(out, KEY).events]


def test_a_log_cut_off_at_its_end_is_noticed(new):
    mark(new, only=["s1"])
    short = (new / "log.jsonl").read_bytes()
    mark(new)
    (new / "log.jsonl").write_bytes(short)
    problems = verify(new, KEY)
    assert [p for p in problems if "of which the log knows nothing" in p and "s2" in p]
    assert "09_x.csv was changed" in problems
    (new / "log.jsonl").unlink()
    assert len([p for p in verify(new, KEY) if "of which the log knows nothing" in p]) == 3


def test_a_marking_that_was_stopped_is_said_once_and_not_for_every_student(new, monkeypatch):
    with monkeypatch.context() as killed:
        killed.setattr(Log, "booked", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            mark(new)
    (problem,) = verify(new, KEY)
    assert problem.startswith("09_x: the last marking was not finished")
    mark(new)
    assert verify(new, KEY) == []


def test_marks_that_vanish_are_noticed(out):
    with gradebook(out) as book:
        book.remove_student("s2")
    assert f"09_x: marks of {pseudonym(KEY, 's2')} are in the log and not in the gradebook" in verify(out, KEY)


def test_a_grade_that_vanishes_is_noticed_and_booked_again(out):
    with gradebook(out) as book:
        book.db.delete(book.find_grade("check-sum", "09_x", "09_x", "s2"))
        book.db.commit()
    assert verify(out, KEY) == ["09_x, s2: check-sum has no points in the gradebook, the marking booked 9 points"]
    mark(out)
    assert verify(out, KEY) == []
    with gradebook(out) as book:
        assert book.find_grade("check-sum", "09_x", "09_x", "s2").auto_score == 9


def test_a_gradebook_that_lost_a_cell_is_said_in_a_sentence(out):
    with contextlib.closing(sqlite3.connect(out / "gradebook.db")) as book, book:
        book.execute("delete from grade_cells where id in (select id from base_cell where name = 'check-sum')")
    with pytest.raises(GradingError, match="has lost a part of check-sum: put back a copy"):
        mark(out)


def test_changed_files_are_noticed(out):
    for path in ("09_x_moodle.csv", "feedback/s1/09_x/09_x.html", "autograded/s3/09_x/09_x.ipynb"):
        (out / path).write_text((out / path).read_text() + " ")
    (out / "feedback/s2/09_x/09_x.html").unlink()
    (out / "feedback/nobody/09_x").mkdir(parents=True)
    (out / "feedback/nobody/09_x/09_x.html").touch()
    shutil.copy(out / "09_x.csv", out / "10_y.csv")
    shutil.copy(out / "09_x_moodle.csv", out / "09_x_moodle_final.csv")
    (out / "class.csv").write_text("id,name")  # the marker's own
    changed = next((out / "results" / "09_x").iterdir())
    changed.write_text(changed.read_text().replace("10", "11"))
    assert sorted(verify(out, KEY)) == [
        "09_x_moodle.csv was changed",
        "09_x_moodle_final.csv was not written by a marking",
        "10_y.csv was not written by a marking",
        "autograded/s3/09_x/09_x.ipynb was changed",
        "feedback/nobody/09_x/09_x.html was not written by a marking",
        "feedback/s1/09_x/09_x.html was changed",
        "feedback/s2/09_x/09_x.html is gone",
        f"results/09_x/{changed.name} is not as it was written: it is not believed; the next marking decides anew",
    ]


def test_a_result_that_is_gone_is_noticed_until_a_marking_knows(out):
    gone = next((out / "results" / "09_x").iterdir())
    gone.unlink()
    assert verify(out, KEY) == [f"results/09_x/{gone.name} is gone; the next marking decides anew"]
    changed_by_hand(Log(out, KEY), out, KEY)
    assert verify(out, KEY) == []
    mark(out)
    assert verify(out, KEY) == []
    gone.unlink()
    assert len(verify(out, KEY)) == 1
    forget(out, "s1", KEY), forget(out, "s2", KEY), forget(out, "s3", KEY)
    assert verify(out, KEY) == []


def test_files_beside_the_feedback_are_noticed(out):
    page = out / "feedback/s1/09_x/09_x.html"
    for path in ("feedback/s1/09_x.html", "feedback/index.html", "feedback/s1/09_x/a/b.txt", "superseded/s1/x.html"):
        (out / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(page, out / path)
    (out / "feedback/s2/09_x/09_x.html").rename(out / "elsewhere.html")
    (out / "feedback/s2/09_x/link.html").symlink_to(out / "elsewhere.html")
    assert sorted(verify(out, KEY)) == [
        "feedback/index.html was not written by a marking",
        "feedback/s1/09_x.html was not written by a marking",
        "feedback/s1/09_x/a/b.txt was not written by a marking",
        "feedback/s2/09_x/09_x.html is gone",
        "feedback/s2/09_x/link.html was not written by a marking",
        "superseded/s1/x.html was not written by a marking",
    ]


def test_tables_older_than_the_points_are_noticed(out):
    """The machine stopped after booking, before the tables were written."""
    known = Log(out, KEY).of("09_x", "s1")["digest"]
    Log(out, KEY).add("booked", "09_x", "s1", points={"check-sum": 8.0, "why": None}, digest=known)
    assert verify(out, KEY) == [
        "09_x: the tables may be older than the points; mark again to write them anew",
        "09_x: the feedback of s1 may be older than the points; mark again to write them anew",
    ]


def test_feedback_put_aside_is_not_missed(out):
    (out / "superseded").mkdir()
    (out / "feedback/s2").rename(out / "superseded/s2")
    Log(out, KEY).put_aside("09_x", "s2")
    (out / "autograded/s2/09_x/09_x.ipynb").unlink()
    assert verify(out, KEY) == []
    page = out / "superseded/s2/09_x/09_x.html"
    page.write_text(page.read_text().replace("9 of", "10 of"))
    shutil.copytree(out / "superseded/s2", out / "superseded/s1")
    assert verify(out, KEY) == [
        "superseded/s2/09_x/09_x.html was changed",
        "superseded/s1/09_x/09_x.html was not written by a marking",
    ]


def test_what_no_marking_writes_into_the_gradebook_is_noticed(out):
    with contextlib.closing(sqlite3.connect(out / "gradebook.db")) as book, book:
        book.execute("update submitted_notebook set late_submission_penalty = 7 where rowid = 1")
        book.execute("update submitted_assignment set extension = '100 days' where student_id = 's3'")
    told = "is in the gradebook, which no marking writes and no table counts"
    assert verify(out, KEY) == [f"09_x, s1: a penalty {told}", f"09_x, s3: an extension {told}"]


@pytest.mark.parametrize("kind", ["trigger", "TRIGGER"])
def test_a_trigger_in_the_gradebook_is_said_before_anything_is_booked(out, kind):
    """It would change the marks as they are booked, and the log would sign them."""
    with contextlib.closing(sqlite3.connect(out / "gradebook.db")) as book, book:
        book.execute("create trigger more after update on grade begin update grade set auto_score = 9; end")
        book.execute("pragma writable_schema = on")
        book.execute("update sqlite_master set type = ? where name = 'more'", [kind])
    for what in (lambda: verify(out, KEY), lambda: open_book(out)):
        with pytest.raises(GradingError, match=r"somebody has put the trigger 'more' into .*gradebook\.db"):
            what()


def test_a_folder_without_marks_cannot_be_verified(tmp_path):
    with pytest.raises(GradingError, match="no gradebook in"):
        verify(tmp_path, KEY)


# --- forget --------------------------------------------------------------------------------------------


def everything(out):
    """All bytes in a folder, with the names of its files."""
    return b"\n".join(
        str(path.relative_to(out)).encode() + (path.read_bytes() if path.is_file() else b"") for path in out.rglob("*")
    )


def test_a_forgotten_student_is_nowhere_any_more(out):
    mark(out, points={"s1": 3})  # another answer: two results
    mark(out, "10_y")
    (out / "superseded/s1/09_x").mkdir(parents=True)
    (out / "similar").mkdir()
    (out / "similar/09_x.csv").write_text("Anna Schmidt,Bob Miller")
    write_tables([], out, "11_z", MASTER, 15, {"student-1": Submission("f", student="s1", name="Anna Schmidt")})
    assert len(list((out / "results").rglob("*.json"))) == 7
    removed = forget(out, "s1", KEY)
    assert len(list((out / "results").rglob("*.json"))) == 4
    for told in ("s1 in the gradebook", "feedback/s1", "superseded/s1", "1 row of 10_y_moodle.csv", "similar"):
        assert told in removed
    left = everything(out)
    assert b"s1" not in left.replace(b".code .s1 ", b"")
    assert b"Anna" not in left
    assert b"Schmidt" not in left
    assert b"Bob" in left
    assert [p for p in verify(out, KEY) if "11_z" not in p] == []
    assert {at[1] for at in Log(out, KEY).known if at[0] == "09_x"} == {"", pseudonym(KEY, "s2"), pseudonym(KEY, "s3")}
    with pytest.raises(GradingError, match="names a student 's1'"):
        forget(out, "s1", KEY)


def test_a_forgotten_student_is_not_quoted_in_other_rows(out):
    flag = "its folder says s1, and whoever made it made one for s2 and s1: the number 4711, not 47110"
    rows = [
        SimpleNamespace(submission=one, status="not marked", result=None, standing=None)
        for one in (
            Submission("Anna Schmidt_4711_file_/x.ipynb", student="s1", name="Anna Schmidt", platform_id="4711"),
            Submission("ANNA SCHMIDT_2_file_/x.ipynb", flags=[flag]),
            Submission("s2/x.ipynb", student="s2", name="Bob Miller", flags=[flag]),
        )
    ]
    write_tables(rows, out, "10_y", MASTER, 15)
    assert "their name in 2 other rows of 10_y.csv" in forget(out, "s1", KEY)
    left = (out / "10_y.csv").read_text()
    assert not [word for word in ("s1", "Anna", "ANNA") if word in left]
    assert "its folder says …, and whoever made it made one for s2 and …: the number …, not 47110" in left


def booked_for_nobody(name, **more):
    place = f"{name}_4713_assignsubmission_file_/x.ipynb"
    submission = Submission(place, name=name, platform_id="4713", **more)
    return SimpleNamespace(submission=submission, status="not marked", result=None, standing=None)


@pytest.mark.parametrize("spelling", ["Anna Schmidt", "SCHMIDT Anna", "annaschmidt"])
def test_a_forgotten_name_is_not_left_in_rows_that_are_nobodys(out, spelling):
    flag = f"'{spelling}_4713_assignsubmission_file_' could be s1 or s9"
    rows = [booked_for_nobody(spelling, flags=[flag]), booked_for_nobody("Zoe Stranger")]
    rows.append(booked_for_nobody("Anna Schmidt"))
    rows[2].submission.student = "s9"  # of the same name, and not forgotten
    write_tables(rows, out, "10_y", MASTER, 15)
    assert "their name in 2 other rows of 10_y.csv" in forget(out, "s1", KEY)
    left = (out / "10_y.csv").read_text()
    assert spelling not in left.replace("s9,Anna Schmidt", "")
    assert "s9,Anna Schmidt" in left
    forget(out, "Zoe Stranger", KEY)  # by the name just as it stands in the table
    assert "Stranger" not in (out / "10_y.csv").read_text()


def test_whoever_stands_in_the_identities_alone_is_forgotten_and_expires(new):
    CLASS["student-0123456789ab"] = ("", 8)
    try:
        rows = mark(new, only=["student-0123456789ab"])
    finally:
        del CLASS["student-0123456789ab"]
    real = {
        "student-0123456789ab": Submission("Anna/x.ipynb", student="s1", name="Anna Schmidt"),
        "student-000000000001": booked_for_nobody("Schmidt Anna").submission,
        "student-000000000002": booked_for_nobody("Zoe Stranger").submission,
        "student-000000000003": Submission("Tom Plain.ipynb"),
        "student-000000000004": Submission("", student="s4", name="Dora Absent"),
    }
    absent = SimpleNamespace(
        submission=Submission("", student="student-000000000004"), status="-", result=None, standing=None
    )
    write_tables([*rows, absent], new, "09_x", MASTER, 15, real)
    assert "1 row of what is booked for nobody in identities.csv" in forget(new, "Zoe Stranger", KEY)
    assert forget(new, "tom plain", KEY)
    left = (new / "identities.csv").read_text()
    assert ["Zoe" in left, "Tom" in left, "Anna" in left, "Dora" in left] == [False, False, True, True]
    forget(new, "s1", KEY)
    assert "Anna" not in (new / "identities.csv").read_text()
    assert "1 row of identities.csv" in expire(new, datetime.now(UTC) + timedelta(days=1), KEY)
    assert (new / "identities.csv").read_text().split() == ["pseudonym,student,name,platform_id,file"]


@pytest.mark.parametrize("student", ["", ".", "..", "../s1", "/", "s1/..", "x\x1b", "09_x", "*"])
def test_forgetting_nobody_removes_nothing(out, student):
    before = everything(out)
    with pytest.raises(GradingError, match="names a student"):
        forget(out, student, KEY)
    assert everything(out) == before


def test_an_anonymous_student_is_forgotten_by_the_real_name(new):
    name = pseudonym(KEY, "s1")
    CLASS[name] = ("", 8)
    try:
        rows = mark(new, only=[name])
    finally:
        del CLASS[name]
    rows[0].submission.file = ""
    real = {name: Submission("Anna/x.ipynb", student="s1", name="Anna Schmidt", platform_id="no-4711")}
    write_tables(rows, new, "09_x", MASTER, 15, real)
    forget(new, "s1", KEY)
    left = everything(new)
    assert not [word for word in (b"Anna", b"no-4711", name.encode()) if word in left]


def test_exercises_expire_with_those_who_have_nothing_else(new, monkeypatch):
    class Clock(datetime):
        @classmethod
        def now(cls, zone=None):
            return datetime(2025, 3, 1, tzinfo=UTC)

    with monkeypatch.context() as patch:
        patch.setattr(records, "datetime", Clock)
        mark(new, "09_x")
    mark(new, "10_y", only=["s1", "s2"])
    assert expire(new, datetime(2025, 2, 1, tzinfo=UTC), KEY) == []
    removed = expire(new, datetime(2025, 4, 1, tzinfo=UTC), KEY)
    assert removed[0] == "09_x in the gradebook, last marked 2025-03-01"
    assert {"s3 in the gradebook", "results/09_x", "09_x.csv", "autograded/s2/09_x"} <= set(removed)
    assert not [path for path in new.rglob("*") if path.name.startswith("09_x") or path.name == "s3"]
    assert b"Carol" not in everything(new)
    assert verify(new, KEY) == []
    with gradebook(new) as book:
        assert sorted(student.id for student in book.students) == ["s1", "s2"]
    assert expire(new, datetime.now(UTC) + timedelta(days=1), KEY)
    assert b"Anna" not in everything(new)


def test_an_open_formgrader_is_said(out, monkeypatch):
    connect = sqlite3.connect
    monkeypatch.setattr(records.sqlite3, "connect", lambda path, timeout: connect(path, timeout=0.1))
    with contextlib.closing(connect(out / "gradebook.db")) as other:
        list(other.execute("pragma journal_mode"))
        reading = other.execute("select * from student")
        next(reading)
        with pytest.raises(GradingError, match=r"could not be rewritten \(database is locked\): close Formgrader"):
            records.overwrite_removed_rows(out)


# --- anonymous -----------------------------------------------------------------------------------------


def test_pseudonyms_are_stable_and_differ(tmp_path):
    assert pseudonym(KEY, "s1") == pseudonym(KEY, "s1")
    assert len({pseudonym(KEY, f"s{n}") for n in range(2_000)}) == 2_000
    assert pseudonym(KEY, "s1") != pseudonym(b"x" * 32, "s1")
    assert pseudonym(KEY, "\ud800").isprintable()


def test_without_names_nothing_says_who_somebody_is():
    anna = Submission("Anna Schmidt_4711/x.ipynb", student="s1", platform_id="4711", name="Anna Schmidt")
    anna.flags = [
        "its folder says Bob Miller, but belongs to s1",
        "'4711' and 's1' become one student: rename one, or use a roster",
        "sum: a NameError in s10",
        "'schmidtanna_4711' could be S1 or BOB MILLER, as 'Anna Schmidt_4711' could",
    ]
    old = Submission(
        "Anna Schmidt_4711/y.ipynb", student="s1", problem=f"not the latest: {anna.file} is marked instead"
    )
    lost = Submission("who.pdf", problem="not a notebook: a .pdf file")
    third = Submission("schmidtanna_4711/z.ipynb", student="s3")
    hidden = without_names([anna, old, lost, third], KEY, [Student("s2", "Bob Miller")])
    first = pseudonym(KEY, "s1")
    assert [s.student for s in hidden[:3]] == [first, first, ""]
    second = pseudonym(KEY, "s2")
    assert hidden[0].flags == [
        f"its folder says {second}, but belongs to {first}",
        f"'{first}' and '{first}' become one student: rename one, or use a roster",
        anna.flags[2],
        f"'{pseudonym(KEY, 's3')}' could be {first} or {second}, as '{first}' could",
    ]
    assert hidden[1].problem == f"not the latest: {first} is marked instead"
    assert hidden[2].file == pseudonym(KEY, "who.pdf")
    assert not [
        word for word in ("Anna", "Schmidt", "4711", "s1'", "who", "Bob", "BOB", "schmidt") if word in repr(hidden)
    ]
    assert anna.name == "Anna Schmidt", "the real ones stay as they are: the platforms' tables are made of them"
    assert without_names([], KEY) == []


# --- files ---------------------------------------------------------------------------------------------


def modes(out):
    return {path.stat().st_mode & 0o777 for path in [out, *out.rglob("*")] if not path.is_symlink()}


def test_everything_a_marking_writes_is_its_owners_alone(empty, tmp_path):
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    elsewhere.touch()
    before = os.umask(0o000)
    try:
        shutil.copytree(empty, out)
        (out / "gradebook.db").chmod(0o644)
        (out / "feedback").mkdir()
        (out / "old.csv").touch()
        (out / "link").symlink_to(elsewhere)
        elsewhere.chmod(0o644)
        with private(out):
            assert modes(out) == {0o700, 0o600}, "also what was there before"
            mark(out)
            assert out.stat().st_mode & 0o777 == 0o700
        assert modes(out) == {0o700, 0o600}
        assert (out / "gradebook.db").stat().st_mode & 0o777 == 0o600
        assert elsewhere.stat().st_mode & 0o777 == 0o644
        assert os.umask(0) == 0
    finally:
        os.umask(before)


def test_the_table_of_identities_is_a_csv_of_its_own(new):
    write_tables([], new, "09_x", MASTER, 15, {"student-1": Submission("f", student="s1", name="=Anna")})
    with (new / "identities.csv").open() as file:
        assert [row["name"] for row in csv.DictReader(file)] == ["'=Anna"]
