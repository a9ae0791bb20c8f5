"""Tables that spreadsheets read with any separator, and names that come out as they went in."""

import csv
import io
import unicodedata
from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace

import nbformat
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from coursekit.grading import printable
from coursekit.grading.book import Standing
from coursekit.grading.intake import Submission
from coursekit.grading.tables import (
    LONGEST,
    LONGEST_FLAG,
    as_cell,
    in_zone,
    remove_student,
    write_csv,
    write_tables,
)

NASTY = st.text(
    st.one_of(
        st.sampled_from("=+-@＝－;,|\t\r\n\"' \u200b\u200d\u202e\u2066\ufeff\u00a0\x00\x1b\x7f\x85\u2028"),
        st.characters(),  # with surrogates
    ),
    max_size=30,
)
HEAD = ["student", "name", "total", "flags"]


def is_formula(cell):
    """As a spreadsheet sees it, after it took quotes and blanks away, full-width signs included."""
    seen = cell.strip('" \u00a0\u200b\ufeff')
    return cell[:1] in ("\t", "\r", "\n") or unicodedata.normalize("NFKC", seen[:1]) in ("=", "+", "-", "@")


@given(st.lists(NASTY, min_size=1, max_size=4))
@example(["x;=1+1"])
@example(['x;"=1+1', "\u200b;\t=cmd|' /C calc'!A0"])
@example(['";', "=2"])
@example(["", ",|"])
@example(["a\n=1", "a\r\n\u202e;=1"])
@example(["＝1", '"＋1', "x;－1", "\u3000＠1"])
def test_no_cell_begins_a_formula_whatever_the_separator(tmp_path_factory, texts):
    path = tmp_path_factory.getbasetemp() / "table.csv"
    write_csv(path, [HEAD, texts, ["x", *texts, 5]])
    text = path.read_bytes().decode()  # and no surrogates: that would raise
    for separators in (",", ";", "\t", "|"):
        for line in csv.reader(io.StringIO(text, newline=""), delimiter=separators):
            assert not [cell for cell in line if is_formula(cell)], (separators, line)
    assert len(text.splitlines()) == 3, "no text begins a line of its own"
    assert all(char.isprintable() or char in "\r\n\u200c\u200d" for char in text)


@given(st.lists(NASTY, min_size=1, max_size=4))
def test_names_survive_but_for_what_would_begin_a_formula(tmp_path_factory, texts):
    path = tmp_path_factory.getbasetemp() / "table.csv"
    write_csv(path, [texts])
    with path.open(encoding="utf-8", newline="") as file:
        (line,) = csv.reader(file)
    for text, cell in zip(texts, line):
        plain = " ".join(printable(text).split())
        assert cell.replace("'", "") == plain.replace("'", "")
        if not set(plain) & set("=+-@＝＋－＠﹦﹢﹣﹫;|"):
            assert cell == plain


@pytest.mark.parametrize(
    "name",
    ["O'Brien, Anna-Maria", "José Núñez y Pérez", "محمد\u200cرضا", "क्\u200dष", "李雷", 'Bob "B" Miller', "Jean–Luc"],
)
def test_people_keep_their_names(name):
    assert as_cell(name) == printable(name) == name


def test_numbers_stay_numbers():
    assert [as_cell(value) for value in (88, 88.0, 7.5, -2.0, "-2")] == ["88", "88", "7.5", "-2", "'-2"]


@given(NASTY)
def test_what_is_shown_neither_steers_a_terminal_nor_turns_the_text_round(text):
    shown = printable(text)
    shown.encode("utf-8")
    assert len(shown) == len(text)
    assert not {unicodedata.category(char) for char in shown} & {"Cc", "Cs", "Zl", "Zp", "Co", "Cn"}
    assert not {"\u202e", "\u2066", "\ufeff", "\u200b", "\u061c"} & set(shown)
    assert not shown.startswith(("\u200d", "\u200c"))


def test_a_text_of_megabytes_becomes_a_cell_that_excel_can_hold():
    assert len(as_cell(";=" * 10**6)) <= 32_767
    assert len(as_cell(" \x1b" * 10**6)) <= 32_767


def test_no_flag_hides_another(tmp_path):
    flags = [
        "a imports coursekit." + "x" * 16_500,
        "'" + "long words " * 2_000 + "'",
        "add_positions imports coursekit",
    ]
    write_tables([row("s1", flags=flags, details=["y" * 20_000, "last"])], tmp_path, "09_x", MASTER, 15)
    write_tables([row("s1", flags=[f"flag {i:04}" + " z" * 50 for i in range(999)])], tmp_path, "10_y", MASTER, 15)
    (one,), (many,) = table(tmp_path / "09_x.csv"), table(tmp_path / "10_y.csv")
    first, second, third = one["flags"].split("; ")
    assert (first[:20], first[-1], len(first) < 120) == ("a imports coursekit.", "…", True)
    assert (second[:12], second[-1], len(second)) == ("'long words ", "…", LONGEST_FLAG)
    assert third == flags[2]
    assert one["details"] == "y" * 99 + "… | last"
    *shown, more = many["flags"].split("; ")
    assert len(shown) > 100
    assert more == f"and {999 - len(shown)} more, for which there is no room"
    assert len(many["flags"]) <= LONGEST
    assert as_cell("x" * 20_000)[-1] == "…"


@pytest.mark.parametrize("zone", [None, UTC, timezone(timedelta(hours=14)), timezone(-timedelta(hours=14))])
@pytest.mark.parametrize("when", [datetime.min, datetime.max])
@pytest.mark.parametrize("given_in", [-14, 14])
def test_no_time_is_too_early_or_too_late_to_be_written(when, given_in, zone):
    when = when.replace(tzinfo=timezone(timedelta(hours=given_in)))
    assert abs(in_zone(when, zone).replace(tzinfo=None) - when.replace(tzinfo=None)) <= timedelta(hours=29)


# --- a class -------------------------------------------------------------------------------------------


def cell_of(grade_id, points):
    about = {"grade": True, "grade_id": grade_id, "points": points, "solution": False, "locked": True}
    return nbformat.v4.new_code_cell("", metadata={"nbgrader": about})


MASTER = nbformat.v4.new_notebook(cells=[cell_of("check-sum", 10), cell_of("explain", 5)])


def row(student="", points=(8, 2), details=(), **about):
    standing = Standing(dict(zip(["check-sum", "explain"], map(float_or_none, points)))) if points else None
    result = {"parts": [{"name": "sum", "points": 8}], "details": list(details)} if points else None
    submission = Submission(about.pop("file", "f"), student=student, **about)
    return SimpleNamespace(submission=submission, status="marked", result=result, standing=standing)


def float_or_none(points):
    return None if points is None else float(points)


def table(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_one_line_for_each_file_and_what_platforms_import(tmp_path):
    late = datetime(9999, 12, 31, 23, tzinfo=timezone(-timedelta(hours=5)))
    rows = [
        row("s1", name="Anna Schmidt", platform_id="4711", details=["\x1b[31mred", "| =1+1"], handed_in=late),
        row("4712", (8, None), name="=cmd", platform_id="4712", handed_in=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        row("", None, file="essay\ud800.pdf", problem="not a notebook"),
    ]
    write_tables(rows, tmp_path, "09_x", MASTER, 15)
    first, second, third = table(tmp_path / "09_x.csv")
    assert first == {
        "student": "s1",
        "name": "Anna Schmidt",
        "file": "f",
        "handed_in": "9999-12-31 23:00:00 UTC-05:00",
        "status": "marked",
        "total": "10",
        "of": "15",
        "sum": "8",
        "explain": "2",
        "flags": "",
        "details": "?[31mred | | '=1+1",
    }
    assert (second["status"], second["total"], second["explain"]) == ("waits for a person", "8", "")
    assert (second["name"], second["handed_in"]) == ("'=cmd", "2026-01-02 03:04:05 UTC")
    assert (third["file"], third["flags"], third["total"]) == ("essay?.pdf", "not a notebook", "")
    moodle = table(tmp_path / "09_x_moodle.csv")
    assert [(r["Identifier"], r["ID number"], r["Grade"], r["Maximum Grade"]) for r in moodle] == [
        ("Participant 4711", "s1", "10", "15"),
        ("Participant 4712", "", "", "15"),
    ]
    canvas = table(tmp_path / "09_x_canvas.csv")
    assert [(r["Student"], r["ID"], r["SIS User ID"], r["09_x"]) for r in canvas] == [
        ("Points Possible", "", "", "15"),
        ("Anna Schmidt", "4711", "s1", "10"),
    ]


def test_a_mark_that_stays_keeps_its_number_and_name_for_the_platforms(tmp_path):
    """Of a student whose hand-in is in doubt only the id is known, without a roster."""
    rows = [row("4711", name="=Anna", platform_id="4711"), row("s2", name="Bob", platform_id="4712"), row("s3")]
    write_tables(rows, tmp_path, "09_x", MASTER, 15)
    before = [(tmp_path / f"09_x_{kind}.csv").read_text() for kind in ("moodle", "canvas")]
    for _ in range(2):
        write_tables([row("4711"), row("s2"), row("s3")], tmp_path, "09_x", MASTER, 15)
        assert [(tmp_path / f"09_x_{kind}.csv").read_text() for kind in ("moodle", "canvas")] == before
    for rubbish in (b"\xff", b"a\n\n", b""):
        (tmp_path / "09_x_moodle.csv").write_bytes(rubbish)
        write_tables(rows, tmp_path, "09_x", MASTER, 15)
        assert (tmp_path / "09_x_moodle.csv").read_text() == before[0]


def test_anonymous_tables_name_students_to_the_platforms_alone(tmp_path):
    real = {
        "p9": Submission("Anna_4711/x.ipynb", student="s1", name="Anna Schmidt", platform_id="4711"),
        "p3": Submission("Bob_4712/x.ipynb", student="s2", name="Bob Miller", platform_id="4712"),
    }
    rows = [row("p9", file=""), row("p3", (1, 1), file="")]
    paths = write_tables(rows, tmp_path, "09_x", MASTER, 15, real)
    assert [r["student"] for r in table(paths[0])] == ["p3", "p9"], "not in the order of the names"
    assert not {"Anna", "Bob", "4711", "s1"} & set(paths[0].read_text().replace(",", " ").split())
    for path in paths[1:]:
        text = path.read_text()
        assert "Anna Schmidt" in text
        assert "Bob Miller" in text
        assert "p9" not in text
    assert [(r["Full name"], r["Grade"]) for r in table(paths[1])] == [("Anna Schmidt", "10"), ("Bob Miller", "2")]
    write_tables(rows[:1], tmp_path, "10_y", MASTER, 15, {"p9": real["p9"]})
    assert [(r["pseudonym"], r["student"]) for r in table(tmp_path / "identities.csv")] == [("p3", "s2"), ("p9", "s1")]


def test_a_student_is_taken_out_of_every_table_and_nobody_else(tmp_path):
    rows = [
        row("s1", name="Anna", platform_id="4711"),
        row("s2", name="Bob", platform_id="s1"),  # on Canvas numbers may be like others' ids
        row("4712", name="Carol", platform_id="4712"),
        row("=d", name="Dan", platform_id="4713"),
    ]
    paths = write_tables(rows, tmp_path, "09_x", MASTER, 15)
    for name, first in (("s1", "Anna"), ("4712", "Carol"), ("=d", "Dan")):
        assert [len(remove_student(path, {name})) for path in paths] == [1, 1, 1]
        assert not [path for path in paths if first in path.read_text()]
    assert [remove_student(path, {"nobody"}) for path in paths] == [[], [], []]
    assert [path.read_text().count("Bob") for path in paths] == [1, 1, 1]
    assert len(table(paths[2])) == 2, "the points possible stay"
