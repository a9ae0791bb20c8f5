"""A class from the command's point of view: who is who, what goes wrong with one, and what others see of it."""

import csv
import json
import zipfile

import nbformat
import pytest

from coursekit.commands.lectures import home
from coursekit.grading import GradingError, batch, records
from tests.grading.classroom import NAME, SOLUTIONS, only

pytestmark = pytest.mark.usefixtures("bubblewrap")
RIGHT = SOLUTIONS["luong_score"]


def export(path, **sources):
    """Moodle's export with an answer for each ``Name_NUMBER``."""
    with zipfile.ZipFile(path, "w") as archive:
        for number, (part, source) in enumerate(sources.items()):
            content = source if isinstance(source, bytes) else nbformat.writes(only(luong_score=source))
            place = zipfile.ZipInfo(f"{part}_assignsubmission_file_/{NAME}.ipynb", (2026, 11, 1 + number, 9, 0, 0))
            archive.writestr(place, content)
    return path


def table(out, kind=""):
    with (out / f"{NAME}{kind}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def roster(path, *lines):
    path.write_text("\n".join(["id,name,email,platform_id", *lines]) + "\n")
    return path


@pytest.mark.slow
def test_two_who_could_be_one_are_both_flagged_and_an_earlier_mark_stays(tmp_path):
    """Anna calls herself Bob on the platform after Bob was marked."""
    students = roster(tmp_path / "class.csv", "s1,Anna Schmidt,,", "s2,Bob Miller,,")
    first = export(tmp_path / "a.zip", **{"Anna Schmidt_11": "x = 1", "Bob Miller_12": RIGHT})
    out = tmp_path / "out"
    batch.grade(NAME, [first], out, home(), roster=students)
    assert [row["total"] for row in table(out)] == ["0", "15"]
    second = export(tmp_path / "b.zip", **{"Bob Miller_11": "x = 1", "Bob Miller_12": RIGHT, "Cy_13": RIGHT})
    batch.grade(NAME, [second], out, home(), roster=students)
    rows = table(out)
    assert [(row["status"], row["student"], row["total"]) for row in rows if "one student (s2)" in row["flags"]] == [
        ("waits for a person", "", "0"),
        ("waits for a person", "", "15"),
        ("booked before, now in doubt", "s2", "15"),
    ]
    assert [row["status"] for row in rows if row["student"] == "s1"] == ["booked before, no longer handed in"]
    assert [(r["Identifier"], r["ID number"], r["Grade"]) for r in table(out, "_moodle")] == [
        ("Participant 12", "s2", "15")
    ], "the platform's marks stay as they are"
    assert [r["SIS User ID"] for r in table(out, "_canvas")] == ["", "s2"]
    assert (out / "feedback" / "s2" / NAME / f"{NAME}.html").is_file()
    assert (out / "superseded" / "s1" / NAME / f"{NAME}.html").is_file()
    assert records.verify(out, bytes.fromhex((out / "key").read_text())) == []
    with records.gradebook(out) as book:
        assert records.in_book(book)[NAME, "s2"]["check-luong_score"][0] == 15


@pytest.mark.slow
@pytest.mark.parametrize("with_roster", [True, False])
def test_without_names_an_earlier_mark_stays_too(tmp_path, with_roster):
    students = roster(tmp_path / "class.csv", "s1,Anna Schmidt,,", "s2,Bob Miller,,") if with_roster else None
    out = tmp_path / "out"
    both = {"Anna Schmidt_11": "x = 1", "Bob Miller_12": RIGHT}
    batch.grade(NAME, [export(tmp_path / "a.zip", **both)], out, home(), roster=students, anonymous=True)
    taken = "Bob Miller_11" if with_roster else "Eve_12"
    second = export(tmp_path / "b.zip", **{"Cy_13": "x = 2", taken: "x = 1", "Bob Miller_12": RIGHT})
    batch.grade(NAME, [second], out, home(), roster=students, anonymous=True)
    (kept,) = [row for row in table(out) if row["status"] == "booked before, now in doubt"]
    assert (kept["total"], kept["flags"]) == ("15", batch.HIDDEN_DOUBT)
    assert records.is_pseudonym(kept["student"])
    expected = ("Participant 12", "Bob Miller", "s2" if with_roster else "", "15")
    assert expected in [tuple(list(row.values())[:4]) for row in table(out, "_moodle")]
    assert (out / "feedback" / kept["student"] / NAME / f"{NAME}.html").is_file()


@pytest.mark.slow
def test_a_number_that_equals_an_id_is_nobodys(tmp_path):
    students = roster(tmp_path / "class.csv", "4711,Anna Schmidt,,", "4712,Bob Miller,,")
    given = export(tmp_path / "a.zip", **{"Bob Miller_4711": RIGHT, "Zoe_4712": "x = 1"})
    batch.grade(NAME, [given], tmp_path / "out", home(), roster=students)
    rows = {row["student"]: row for row in table(tmp_path / "out")}
    assert rows["4712"]["total"] == "15"
    assert rows["4711"]["status"] == "nothing handed in"
    assert "not in the roster" in rows[""]["flags"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "source",
    [
        "raise ValueError('\\ud800')",
        "raise ValueError('\\x1b[2J' + '\\0' * 9)",
        "x = '" + "{a[b" * 20_000 + "'",
        "#" * 99_000,
        b'{"cells": [' + b"[" * 100_000,
    ],
    ids=["surrogate", "escape", "braces", "long", "deep"],
)
def test_one_strange_submission_stops_nobody_at_any_run(tmp_path, source):
    given = export(tmp_path / "a.zip", **{"Anna_1": source, "Bob_2": RIGHT})
    for _ in range(2):
        outcome = batch.grade(NAME, [given], tmp_path / "out", home())
        rows = {row["student"]: row for row in table(tmp_path / "out")}
        assert rows["2"]["total"] == "15"
        assert len(outcome.rows) == 2
    assert records.verify(tmp_path / "out", bytes.fromhex((tmp_path / "out" / "key").read_text())) == []


@pytest.mark.slow
def test_whatever_fails_for_one_is_that_ones_row(tmp_path, monkeypatch):
    given = export(tmp_path / "a.zip", **{"Anna_1": RIGHT, "Bob_2": RIGHT + "\n"})
    for module, name in (
        (batch, "notes_on"),
        (batch, "digest"),
        (batch.records, "store"),
        (batch, "book_submission"),
        (batch, "standing"),
        (batch, "page"),
    ):
        real, calls = getattr(module, name), []

        def once_broken(*given, real=real, calls=calls, **named):
            calls.append(1)
            if len(calls) == 1:
                raise RuntimeError("\ud800 broken")
            return real(*given, **named)

        monkeypatch.setattr(module, name, once_broken)
        out = tmp_path / name
        batch.grade(NAME, [given], out, home())
        monkeypatch.setattr(module, name, real)
        broken = [row for row in table(out) if "broken" in row["flags"]]
        assert len(broken) == 1, name
        assert len([row for row in table(out) if row["total"] == "15"]) >= 1, name


@pytest.mark.slow
def test_without_names_nothing_but_the_platforms_tables_leads_to_a_student(tmp_path):
    students = roster(tmp_path / "class.csv", "s1,Anna Schmidt,anna@x.org,", "s2,Bob Miller,,", "s3,Cy Young,,")
    given = export(tmp_path / "a.zip", **{"Anna Schmidt_11": RIGHT, "Bob Miller_12": "import coursekit.nn.scores"})
    out = tmp_path / "out"
    batch.grade(NAME, [given], out, home(), roster=students, anonymous=True)
    with (out / "identities.csv").open(newline="") as file:
        led = {row["pseudonym"]: row["student"] for row in csv.DictReader(file)}
    assert set(led.values()) == {"s1", "s2", "s3"}
    assert {row["Full name"]: row["Grade"] for row in table(out, "_moodle")} == {
        "Anna Schmidt": "15",
        "Bob Miller": "0",
    }
    for path in out.rglob("*"):
        if path.is_file() and path.name not in ("identities.csv", f"{NAME}_moodle.csv", f"{NAME}_canvas.csv"):
            assert not any(word in path.read_bytes() for word in (b"Schmidt", b"Miller", b"anna@", b"Young")), path
    assert all(records.is_pseudonym(row["student"]) for row in table(out))
    named = batch.grade(NAME, [given], tmp_path / "named", home(), roster=students, private=None)
    assert named.of == 100
    with pytest.raises(GradingError, match="was marked with --anonymous in"):
        batch.grade(NAME, [given], out, home(), roster=students)
    assert records.verify(out, bytes.fromhex((out / "key").read_text())) == [], "refused before it began"


@pytest.mark.slow
def test_many_flags_of_one_kind_do_not_hide_what_else_there_is(tmp_path):
    """An attacker floods the cell: with one long name, with many imports, and many libraries."""
    flood = "if False:\n    import coursekit." + "x" * 9_000 + "\n"
    flood += "".join(f"    import coursekit.a{i}\n    import lib{i}\n" for i in range(150))
    source = flood + "max = max\n" + RIGHT
    batch.grade(NAME, [export(tmp_path / "a.zip", Anna_1=source)], tmp_path / "out", home())
    (row,) = table(tmp_path / "out")
    assert "luong_score and 146 more of this kind" in row["flags"]
    assert "luong_score replaces max: read it" in row["flags"]
    assert "more of this kind, which few answers need: worth a look" in row["flags"]
    assert len(row["flags"]) < 2_000


@pytest.mark.slow
def test_what_is_borrowed_or_hidden_is_for_the_marker_alone(tmp_path):
    source = "import gc, coursekit.nn.attention as mine\nmax = max\n" + RIGHT
    batch.grade(NAME, [export(tmp_path / "a.zip", Anna_1=source)], tmp_path / "out", home())
    (row,) = table(tmp_path / "out")
    assert row["total"] == "15"
    assert "luong_score imports coursekit.nn.attention" in row["flags"]
    assert "luong_score uses gc, which few answers need: worth a look" in row["flags"]
    assert "luong_score replaces max: read it" in row["flags"]
    page = (tmp_path / "out" / "feedback" / "1" / NAME / f"{NAME}.html").read_text()
    assert "few answers" not in page
    assert json.loads((tmp_path / "out" / "log.jsonl").read_text().splitlines()[0])["user"]
