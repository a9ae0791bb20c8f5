"""From exports to submissions: when, what is refused, and what no file may do to the marking of others."""

import io
import json
import os
import random
import shutil
import socket
import struct
import subprocess
import sys
import time
import zipfile
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import nbformat
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coursekit
from coursekit.commands.lectures import home
from coursekit.grading import GradingError, intake, reading
from coursekit.grading.identity import Student
from coursekit.grading.intake import submissions
from coursekit.grading.notebooks import NoNotebookError, answers, cells_of, read_released
from tests.grading.classroom import (
    NAME,
    RELEASED,
    SOLUTIONS,
    bare,
    cell_of,
    handed_in,
    only,
    saved_by_colab,
    with_copied_cells,
    with_equal_ids,
    without_cell,
    without_grading_metadata,
)

HOME = home()
CELLS = read_released(HOME)[NAME]
TEXT = nbformat.writes(handed_in())


def put(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def zipped(entries, method=zipfile.ZIP_DEFLATED):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", method) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return data.getvalue()


def taken(path, roster=(), exercise=NAME):
    return submissions([path], exercise, list(roster), HOME).found


def taken_from_zip(folder, entries):
    return taken(put(folder, {"e.zip": zipped(entries)}) / "e.zip")


def found_in(notebook):
    """(answers, flags) of a notebook."""
    data = (notebook if isinstance(notebook, str) else json.dumps(notebook)).encode()
    return answers(CELLS, cells_of(data, "x.ipynb"))


# --- the top level of what the marker names ------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "student"),
    [
        (f"alice/{NAME}.ipynb", "alice"),
        (f"alice/{NAME}/{NAME}.ipynb", "alice"),
        (f"alice/bob/submitted/{NAME}.ipynb", "alice"),
        ("alice/homework final.ipynb", "alice"),
        ("alice/bob_4711_assignsubmission_file_/x.ipynb", "alice"),
        ("alice/bob_815_99_x.ipynb", "alice"),
        ("alice.ipynb", "alice"),
        (f"alice_{NAME}.ipynb", "alice"),
        (f"{NAME}_alice (2).ipynb", "alice"),
        (f"Doe Jane_4711_assignsubmission_file_/{NAME}.ipynb", "4711"),
        (f"Doe Jane_4711_assignsubmission_file_/Poe Ann_4712_assignsubmission_file_/{NAME}.ipynb", "4711"),
        (f"Doe Jane_4711_assignsubmission_file_{NAME}.ipynb", "4711"),
        (f"doejane_815_99_{NAME}-1.ipynb", "815"),
        (f"doejane_LATE_815_99_{NAME}.ipynb", "815"),
        (f"alice+{NAME}+2026-11-30 23:59:59.123456 UTC+Zm9v/x.ipynb", "alice"),
        (f"../../{NAME}.ipynb", ""),
        (f"/alice/{NAME}.ipynb", ""),
        ("alice/../../bob/x.ipynb", "alice"),
        ("./alice//x.ipynb", "alice"),
    ],
)
def test_the_outermost_part_says_whose(tmp_path, place, student):
    found = taken_from_zip(tmp_path, {place: TEXT, "other/x.ipynb": TEXT})
    (first,) = [one for one in found if one.student != "other"]
    assert first.student == student
    assert first.late == ("LATE" in place)


def test_the_notebook_itself_says_nothing_on_whose(tmp_path):
    notebook = handed_in()
    notebook.metadata["student"] = notebook.metadata["nbgrader"] = {"student_id": "mallory"}
    (one,) = taken(put(tmp_path, {"alice/x.ipynb": nbformat.writes(notebook)}))
    assert one.student == "alice"


def test_one_folder_around_all_is_skipped_if_it_is_called_like_the_zip(tmp_path):
    for files in ({"e/alice.ipynb": TEXT, "e/bob.ipynb": TEXT}, {"e/alice/a.ipynb": TEXT, "e/bob/b.ipynb": TEXT}):
        assert [s.student for s in taken_from_zip(tmp_path, files | {"__MACOSX/e/._x": "x"})] == ["alice", "bob"]
    files = {f"submitted/alice/{NAME}/x.ipynb": TEXT, "submitted/bob/": ""}
    assert [s.student for s in taken_from_zip(tmp_path, files)] == ["alice", "bob"]


@pytest.mark.parametrize("entries", [{"x/alice.ipynb": TEXT}, {"e/a.ipynb": TEXT, "bob.ipynb": TEXT}])
def test_no_other_folder_is_skipped(tmp_path, entries):
    assert "alice" not in {s.student for s in taken_from_zip(tmp_path, entries)}
    assert {s.student for s in taken(put(tmp_path / "f" / "f", {"alice.ipynb": TEXT}).parent)} == {"f"}


def test_one_file_is_its_name_or_its_folder(tmp_path):
    put(tmp_path, {"alice.ipynb": TEXT, f"bob/{NAME}.ipynb": TEXT})
    found = submissions([tmp_path / "alice.ipynb", tmp_path / "bob" / f"{NAME}.ipynb"], NAME, [], HOME).found
    assert [s.student for s in found] == ["alice", "bob"]


def test_a_zip_called_like_the_exercise_is_not_its_folders(tmp_path):
    put(tmp_path, {f"z1/{NAME}.zip": zipped({"bn2.ipynb": TEXT})})
    (one,) = taken(tmp_path / "z1" / f"{NAME}.zip")
    assert one.student == "bn2"


def test_a_conflict_is_flagged_on_every_row_and_nobodys_mark_changes(tmp_path):
    roster = [Student("s1", "Jane Doe"), Student("s2", "Ann Poe"), Student("s3", "Bob Lee")]
    put(tmp_path, {"s1/a.ipynb": TEXT, "Jane Doe/b.ipynb": "{", "s2/c.ipynb": TEXT})
    collected = submissions([tmp_path], NAME, roster, HOME)
    rows = {s.file: s for s in collected.found}
    sentence = "'Jane Doe' and 's1' become one student (s1), so none is booked: rename one"
    assert collected.doubts == {"s1": [sentence]}
    assert [(s.student, s.flags) for s in rows.values()] == [("", [sentence]), ("", [sentence]), ("s2", [])]
    assert rows["s1/a.ipynb"].problem == "", "it is marked, and shown, and booked for nobody"


def test_the_platforms_number_goes_back_to_the_platform(tmp_path):
    roster = [Student("s1", "Jane Doe"), Student("s2", "Ann Poe", platform_id="815")]
    put(tmp_path, {"Doe Jane_9999_assignsubmission_file_/x.ipynb": TEXT, "s2.ipynb": TEXT})
    assert [(s.student, s.platform_id) for s in taken(tmp_path, roster)] == [("s1", "9999"), ("s2", "815")]


def test_an_empty_folder_is_a_row(tmp_path):
    (tmp_path / "alice").mkdir()
    put(tmp_path, {"bob/.DS_Store": "x"})
    assert [(s.student, s.problem) for s in taken(tmp_path)] == [
        ("alice", "an empty folder"),
        ("bob", "a folder that holds only hidden files"),
    ]
    found = taken_from_zip(tmp_path, {"carol/": "", "dan/x.ipynb": TEXT, "dan/": "", "eve/z.zip": zipped({})})
    assert [(s.student, s.problem) for s in found] == [
        ("carol", "an empty folder"),
        ("dan", ""),
        ("eve", "an empty zip"),
    ]


def test_another_exercise_of_the_exchange_is_not_taken(tmp_path):
    put(tmp_path, {f"alice+{name}+2026-11-30 12:00:00.1 UTC/x.ipynb": TEXT for name in (NAME, "03_self_attention")})
    assert [(s.student, s.problem) for s in taken(tmp_path)] == [
        ("alice", ""),
        ("alice", "handed in for 03_self_attention"),
    ]


# --- when ----------------------------------------------------------------------------------------------


def test_the_latest_of_a_student_counts(tmp_path):
    put(tmp_path, {f"alice/{NAME}.ipynb": TEXT, f"alice/{NAME} (1).ipynb": TEXT, "alice/broken.ipynb": "{"})
    for name, hour in ((f"{NAME}.ipynb", 2), (f"{NAME} (1).ipynb", 1), ("broken.ipynb", 3)):
        os.utime(tmp_path / "alice" / name, (1e9 + 3600 * hour,) * 2)
    found = {s.file.removeprefix("alice/"): s for s in taken(tmp_path)}
    assert found[f"{NAME}.ipynb"].problem == ""
    assert found[f"{NAME} (1).ipynb"].problem == f"not the latest: alice/{NAME}.ipynb is marked instead"
    assert "not JSON" in found["broken.ipynb"].problem


def test_the_latest_version_in_the_exchange_counts(tmp_path):
    put(tmp_path, {f"alice+{NAME}+2026-11-{day} 12:00:00.5 UTC/x.ipynb": TEXT for day in (28, 30, 29)})
    (one,) = [s for s in taken(tmp_path) if not s.problem]
    assert one.handed_in == datetime(2026, 11, 30, 12, 0, 0, 500000, UTC)


@pytest.mark.parametrize("stamp", ["2026-11-30 23:59:59.5 UTC", "0001-01-01T00:00:00+14:00", "9999-12-31 23:59:59 UTC"])
def test_a_students_own_timestamp_is_not_read(tmp_path, stamp):
    place = f"alice/{NAME}"
    put(tmp_path / "submitted", {f"{place}/x.ipynb": TEXT, f"{place}/timestamp.txt": stamp})
    put(tmp_path / "others", {f"{place}/x.ipynb": TEXT, f"{place}/timestamp.txt": stamp})
    os.utime(tmp_path / "others" / place / "x.ipynb", (1.6e9, 1.6e9))
    (one,) = taken(tmp_path / "submitted")
    assert one.handed_in is None, "nbgrader's copies keep the times of the student's computer"
    (one,) = taken(tmp_path / "others")
    assert one.handed_in == datetime.fromtimestamp(1.6e9, UTC)
    (one,) = taken_from_zip(tmp_path, {f"submitted/{place}/x.ipynb": TEXT})
    assert (one.student, one.handed_in) == ("alice", None)


def test_times_inside_a_students_zip_count_for_nothing(tmp_path):
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr(zipfile.ZipInfo("x.ipynb", (2099, 1, 1, 0, 0, 0)), TEXT)
    with zipfile.ZipFile(tmp_path / "e.zip", "w") as archive:
        archive.writestr(zipfile.ZipInfo("alice/z.zip", (2026, 11, 30, 12, 0, 0)), inner.getvalue())
        archive.writestr(zipfile.ZipInfo("bob/x.ipynb", (2026, 13, 31, 25, 61, 61)), TEXT)
    assert [s.handed_in for s in taken(tmp_path / "e.zip")] == [datetime(2026, 11, 30, 12).astimezone(UTC), None]


def test_the_time_of_packing_is_not_the_time_of_handing_in(tmp_path):
    found = taken_from_zip(tmp_path, {f"s{i}/x.ipynb": TEXT for i in range(4)})
    assert {s.handed_in for s in found} == {None}
    found = taken_from_zip(tmp_path, {f"s1/{i}.ipynb": TEXT for i in range(4)})
    assert None not in {s.handed_in for s in found}, "that many files of one student tell nothing"


def test_later_numbers_are_later(tmp_path):
    names = [f"doejane_815_99_{NAME}.ipynb", f"doejane_815_100_{NAME}-2.ipynb", f"doejane_815_100_{NAME}-10.ipynb"]
    found = taken_from_zip(tmp_path, dict.fromkeys(names, TEXT))
    assert [s.file for s in found if not s.problem] == [names[2]]
    odd = [f"alice/x²{'9' * 200}.ipynb", "alice/x².ipynb", "alice/x.ipynb"]
    assert sum(not s.problem for s in taken_from_zip(tmp_path, dict.fromkeys(odd, TEXT))) == 1


def test_a_folder_younger_than_the_time_in_its_name_is_flagged(tmp_path, monkeypatch):
    """The student's computer wrote the name; when this machine noted a change, nobody can set."""
    names = {f"{who}+{NAME}+2026-11-{day} 12:00:00.1 UTC": who for who, day in (("a", 20), ("b", 21), ("c", 22))}
    put(tmp_path / "inbound", {f"{name}/x.ipynb": TEXT for name in names})
    lstat, noted = os.lstat, {"a": datetime(2026, 11, 20, 12, 59), "b": datetime(2026, 11, 25, 13)}

    def said(path, **options):
        about = lstat(path, **options)
        who = next((who for name, who in names.items() if name in os.fsdecode(path)), "")
        when = noted.get(who, datetime(2026, 11, 22, 12)).replace(tzinfo=UTC).timestamp()
        return os.stat_result([*about], {"st_ctime": when, "st_mtime": 0.0})

    monkeypatch.setattr("os.lstat", said)
    monkeypatch.setattr(intake, "owner_of", lambda path: path.name[:1])
    found = {s.student: s.flags for s in taken(tmp_path / "inbound")}
    late = "this machine noted a change of its folder 4 days after the time in the folder's name"
    assert found == {"a": [], "b": [late], "c": []}
    noted |= {"a": noted["b"]}  # as in a copy
    assert not any(s.flags for s in taken(tmp_path / "inbound"))


# --- what is refused, each as one row ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("x.ipynb", "{ broken", "not JSON"),
        ("x.ipynb", b"\xff\xfe\x00", "not JSON as notebooks are written: in UTF-16"),
        ("x.ipynb", '{"cells": "ä"}'.encode("utf-16"), "not JSON as notebooks are written: in UTF-16"),
        ("x.ipynb", '{"cells": "ä"}'.encode("cp1252"), "not JSON as notebooks are written: not in UTF-8"),
        ("x.ipynb", b" \n", "an empty file"),
        ("x.ipynb", "[" * 100_000, "not JSON"),
        ("x.ipynb", '{"cells": ' + "9" * 10_000 + "}", "not JSON"),
        ("x.ipynb", "[]", "without a list of cells"),
        ("x.ipynb", '{"worksheets": [{"cells": []}]}', "without a list of cells"),
        ("x.ipynb", '{"cells": [1, null, {"cell_type": "code", "source": 5}]}', "without cells"),
        ("x.ipynb", '{"cells": [{"cell_type": ["code"], "source": ""}]}', "without cells"),
        ("x.ipynb", json.dumps({"cells": [{}] * 2001}), "a notebook with 2001 cells: more than 2000 are not read"),
        ("x.ipynb", b" " * (20 * 2**20 + 1), "over 20 MB"),
        ("x.docx", "PK", "not a notebook: a .docx file"),
        ("x", "PK", "not a notebook: a file whose name has no ending"),
        ("x.zip", "no zip", "not a zip, though it is called one"),
    ],
)
def test_what_is_no_notebook_is_a_row_with_the_reason(tmp_path, name, content, words):
    (one,) = taken(put(tmp_path, {f"alice/{name}": content}))
    assert words in one.problem
    assert not one.answers


def test_a_file_that_cannot_be_read_is_a_row(tmp_path, monkeypatch):
    put(tmp_path, {"alice.ipynb": TEXT, "bob.ipynb": TEXT, "carol/x/y.ipynb": TEXT})
    real = os.lstat

    def denied(path):
        if os.fsencode(path).endswith((b"bob.ipynb", b"carol/x")):
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr("os.lstat", denied)
    assert [s.problem for s in taken(tmp_path)] == ["", *["cannot be read: Permission denied"] * 2]


def test_what_is_exchanged_after_it_was_listed_is_not_opened(tmp_path, monkeypatch):
    put(tmp_path, {f"{name}.ipynb": TEXT for name in ("alice", "bob", "carol", "dan")})
    real = intake.Child.read

    def exchanged(reader, entries):
        path = Path(os.fsdecode(entries[0].path))
        if path.stem != "alice":
            path.unlink()
        if path.stem == "bob":
            path.symlink_to(tmp_path / "alice.ipynb")
        elif path.stem == "carol":
            os.mkfifo(path)
        return real(reader, entries)

    monkeypatch.setattr(intake.Child, "read", exchanged)
    assert [s.problem for s in taken(tmp_path)] == [
        "",
        "a symbolic link: not followed",
        "neither file nor folder: not opened",
        "cannot be read: No such file or directory",
    ]


@pytest.mark.parametrize("rewrite", [dict, saved_by_colab, without_grading_metadata, bare])
def test_another_exercise_is_no_hand_in_of_this_one(tmp_path, rewrite):
    """The two share ``masked_softmax``. A deleted cell, or all of them, does not make another exercise of it."""
    text = json.dumps(rewrite(handed_in()))
    put(tmp_path, {"alice.ipynb": text, "bob.ipynb": json.dumps(without_cell(handed_in(), "train")), "eve.ipynb": "{}"})
    put(tmp_path, {"carol.ipynb": json.dumps({"cells": [{"cell_type": "code", "source": "1"}]})})
    found = taken(tmp_path, exercise="03_self_attention")
    assert [(s.problem, s.flags) for s in found[:2]] == [(f"this is {NAME}", [])] * 2
    assert [s.problem for s in found[2:]] == ["", "not a notebook: JSON without a list of cells"]
    assert [s.problem for s in taken(tmp_path)][:3] == ["", "", ""]


def test_another_exercise_does_not_take_the_place_of_this_one(tmp_path):
    other = HOME / "exercises" / "03_self_attention" / "03_self_attention.ipynb"
    put(tmp_path, {"alice/a.ipynb": TEXT, "alice/b.ipynb": other.read_bytes()})
    assert [s.problem for s in taken(tmp_path)] == ["", "this is 03_self_attention"]


def test_moodles_text_field_is_no_second_hand_in(tmp_path):
    text = "_assignsubmission_onlinetext_/onlinetext.html"
    entries = {f"Doe Jane_1_assignsubmission_file_/{NAME}.ipynb": TEXT, f"Doe Jane_1{text}": "<p>See my file."}
    found = taken_from_zip(tmp_path, entries | {f"Poe Ann_2{text}": "<p>Sorry."})
    assert [(s.student, s.problem) for s in found] == [("1", ""), ("2", "not a notebook: a .html file")]


def test_what_is_no_plain_file_is_never_opened(tmp_path):
    (tmp_path / "secret.ipynb").write_text(TEXT)
    folder = put(tmp_path / "in", {"bob/x.ipynb": TEXT})
    (folder / "alice.ipynb").symlink_to(tmp_path / "secret.ipynb")
    (folder / "folder").symlink_to(tmp_path)
    (folder / "bob" / "up").symlink_to(tmp_path)
    os.mkfifo(folder / "carol.ipynb")
    os.mkfifo(folder / "bob" / "fifo.ipynb")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "dan.ipynb"))
        found = {s.file: s.problem for s in taken(folder)}
    link, other = "a symbolic link: not followed", "neither file nor folder: not opened"
    assert found == {
        "alice.ipynb": link,
        "bob/fifo.ipynb": other,
        "bob/up": link,
        "bob/x.ipynb": "",
        "carol.ipynb": other,
        "dan.ipynb": other,
        "folder": link,
    }


def test_a_folder_may_be_deep_and_wide_and_costs_only_its_own_student(tmp_path, monkeypatch):
    monkeypatch.setattr(intake, "MOST_FILES", 20)
    put(tmp_path, {f"alice/{i:03}.ipynb": "{" for i in range(100)} | {"bob.ipynb": TEXT})
    put(tmp_path, {f"carol{'/d' * 60}/x.ipynb": TEXT})
    found = taken(tmp_path)
    (*first, last) = [s for s in found if s.student == "alice"]
    assert len(first) == 10
    told = (
        "and 10 more files that are not marked; the last of them: more than 20 files and folders: the rest is not read"
    )
    assert last.problem == told
    problems = {student: [s.problem for s in found if s.student == student] for student in ("alice", "bob", "carol")}
    assert problems["bob"] == [""]
    assert len(problems["carol"]) == 1
    monkeypatch.undo()
    assert "folders more than 40 deep: not read" in [s.problem for s in taken(tmp_path)]


def test_a_zip_that_means_harm_writes_and_reads_nothing(tmp_path):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../../../tmp/coursekit-was-here.ipynb", TEXT)
        archive.writestr("/etc/coursekit-was-here.ipynb", TEXT)
        archive.writestr("..\\windows.ipynb", TEXT)
        link = zipfile.ZipInfo("alice/link.ipynb")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
        archive.writestr("bob/bomb.ipynb", bytes(500 * 2**20))
        archive.writestr("carol/x.ipynb", TEXT)
    found = taken(put(tmp_path, {"e.zip": data.getvalue()}) / "e.zip")
    assert [(s.student, s.problem.split(":")[0]) for s in found] == [
        ("alice", "a symbolic link in the zip"),
        ("bob", "over 20 MB"),
        ("carol", ""),
        *[("", "a path in the zip that leads out of it")] * 3,
    ]
    assert not os.path.exists("/tmp/coursekit-was-here.ipynb")


def test_zips_in_zips_and_litter(tmp_path):
    inner = zipped({f"{NAME}.ipynb": TEXT, "__MACOSX/._x.ipynb": "x", ".DS_Store": "x"})
    outer = {"Doe_1_assignsubmission_file_/work.zip": inner, "Poe_2_assignsubmission_file_/x.ipynb": TEXT}
    found = taken_from_zip(tmp_path, outer)
    assert [(s.student, s.problem) for s in found] == [("1", ""), ("2", "")]
    assert found[0].file == f"Doe_1_assignsubmission_file_/work.zip/{NAME}.ipynb"
    deep = TEXT
    for depth in range(4):
        (one,) = taken_from_zip(tmp_path, {"alice/x.zip" if depth else "alice/x.ipynb": deep})
        assert one.problem == ("" if depth < 3 else "zips in zips more than 2 deep: not opened")
        deep = zipped({"z.zip" if depth else "z.ipynb": deep})


@pytest.mark.parametrize("outermost", [True, False])
def test_odd_names_in_a_zip_are_rows(tmp_path, outermost):
    """NUL, nothing, dots, and one name twice; in the platform's zip or in a student's."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name in ("a/x.ipynb", "./", "/", ".", "..", "//", "a/./b.ipynb", "z/x.ipynb"):
            archive.writestr(zipfile.ZipInfo(name), TEXT)
        archive.writestr("NULNU", TEXT)
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("z/x.ipynb", TEXT)
    data = data.getvalue().replace(b"NULNU", b"\0NUL\0")
    files = {"e.zip": data} if outermost else {"e.zip": zipped({"eve/z.zip": data, "frank/x.ipynb": TEXT})}
    found = taken(put(tmp_path, files) / "e.zip")
    problems = [s.problem for s in found]
    assert problems.count(reading.NO_NAME) == 2
    assert problems.count(reading.LEADS_OUT) >= 1
    if outermost:
        assert [s.problem for s in found if s.student == "z"] == [intake.TWICE] * 2
    else:
        assert {s.student for s in found} == {"eve", "frank"}
        assert found[-1].problem == ""


@pytest.mark.parametrize("outermost", [True, False])
@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (lambda data: flipped(data, b"PK\x01\x02", 8, b"\x01\x00"), "it is encrypted"),
        (lambda data: data.replace(TEXT.encode()[:40], b"#" * 40, 1), "Bad CRC-32"),
        (lambda data: flipped(data, b"PK\x03\x04", 30, b"?"), "differ"),
        (lambda data: flipped(data, b"PK\x01\x02", 10, b"\x63\x00"), "only the usual deflate is read"),
        (lambda data: flipped(data, b"PK\x01\x02", 42, b"\xf0\xff\xff\x00"), "cannot be read from the zip"),
    ],
)
def test_a_damaged_entry_is_a_row(tmp_path, outermost, break_it, words):
    data = break_it(zipped({"b/x.ipynb": TEXT, "c/x.ipynb": TEXT}, zipfile.ZIP_STORED))
    files = {"e.zip": data} if outermost else {"e.zip": zipped({"b/z.zip": data, "c/x.ipynb": TEXT})}
    found = taken(put(tmp_path, files) / "e.zip")
    assert words in found[0].problem
    assert (found[-1].student, found[-1].problem) == ("c", "")


def flipped(data, mark, offset, new):
    place = data.index(mark) + offset
    return data[:place] + new + data[place + len(new) :]


def test_entries_with_data_descriptors_are_read(tmp_path):
    class Pipe(io.BytesIO):
        def seekable(self):
            return False

        def tell(self):
            raise OSError

    data = Pipe()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("alice.ipynb", TEXT)
    assert struct.unpack("<H", data.getvalue()[6:8])[0] & 8
    (one,) = taken(put(tmp_path, {"e.zip": data.getvalue()}) / "e.zip")
    assert one.problem == ""
    assert one.answers["luong_score"] == SOLUTIONS["luong_score"]


def test_a_path_that_is_not_there_is_said(tmp_path):
    for path in (tmp_path / "nowhere", tmp_path / "nul\0", tmp_path / ("x" * 300)):
        with pytest.raises(GradingError, match=r"no such file or folder: |cannot open"):
            taken(path)
    with pytest.raises(GradingError, match="no exercise '99_x'"):
        taken(tmp_path, exercise="99_x")
    with pytest.raises(GradingError, match="no files in"):
        taken(tmp_path)


def test_what_is_named_has_to_open(tmp_path):
    put(tmp_path, {"no.zip": "no zip", "half.zip": zipped({"alice.ipynb": TEXT})[:-40], "alice.ipynb": TEXT})
    for name in ("no.zip", "half.zip"):
        with pytest.raises(GradingError, match=rf"cannot open .*{name}: it is no zip, or was broken on its way"):
            submissions([tmp_path / "alice.ipynb", tmp_path / name], NAME, [], HOME)
    (tmp_path / "link.zip").symlink_to(tmp_path / "half.zip")
    with pytest.raises(GradingError, match="a symbolic link, which is not followed"):
        taken(tmp_path / "link.zip")
    os.mkfifo(tmp_path / "fifo.zip")
    with pytest.raises(GradingError, match="neither a file nor a folder"):
        taken(tmp_path / "fifo.zip")


# --- bombs ---------------------------------------------------------------------------------------------


def read_alone(tmp_path, name, content):
    """The rows of one hand-in, and the most memory that its child held, in MB."""
    path = put(tmp_path, {name: content}) / name
    with intake.Child(NAME, HOME, set(SOLUTIONS) | {"read_a_map"}) as reader:
        rows = reader.read([intake.Entry((name,), None, os.fsencode(path))])
        status = Path(f"/proc/{reader.process.pid}/status").read_text()
    return rows, int(status.split("VmHWM:")[1].split()[0]) // 1024


needs_proc = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is measured with /proc")
BLANK = bytes(80 * 2**20)


@needs_proc
@pytest.mark.parametrize(
    ("name", "make", "words", "most"),
    [
        ("x.zip", lambda: zipped({"x.ipynb": BLANK}, zipfile.ZIP_BZIP2), "it is packed with bzip2", 60),
        ("x.zip", lambda: zipped({"x.ipynb": BLANK}, zipfile.ZIP_LZMA), "it is packed with lzma", 60),
        ("x.zip", lambda: zipped({"x.ipynb": BLANK}), "over 20 MB", 60),
        ("x.zip", lambda: claiming_less(zipped({"x.ipynb": BLANK})), "Bad CRC-32", 60),
        ("x.zip", lambda: zipped({"z.zip": zipped({"x": BLANK[: 19 * 2**20]})}), "unpacks to over 200 times", 60),
        ("x.ipynb", lambda: b'{"cells": [' + b"{}," * (4 * 2**20 // 3) + b"{}]}", "cells: more than 2000", 250),
        (
            "x.ipynb",
            lambda: b'{"cells": [{"cell_type": "code", "source": "", "metadata": [' + b"{}," * 1_400_000 + b"{}]}]}",
            "",
            250,
        ),
        ("x.ipynb", lambda: b'{"a":' * 3_000_000, "not JSON", 150),
        ("x.ipynb", lambda: b"[" * (20 * 2**20), "not JSON", 150),
        ("x.zip", lambda: zipped({" " * 32_000 + f"{i}.ipynb": "{" for i in range(50)}), "not JSON", 100),
        ("x.zip", lambda: zipped({f"{i}.txt": "" for i in range(3000)}), "more than 1000 files", 100),
        ("x.ipynb", lambda: one_cell("(" * 90_000), "", 400),
        ("x.ipynb", lambda: one_cell("-" * 90_000 + "1"), "", 400),
    ],
)
def test_bombs_cost_little(tmp_path, name, make, words, most):
    start = time.monotonic()
    rows, memory = read_alone(tmp_path, name, make())
    assert memory < most
    assert time.monotonic() - start < 10
    assert any(words in row["problem"] for row in rows)
    assert max(len(row["inside"]) for row in rows) < 300


def claiming_less(data):
    """A zip's list that says its first entry unpacks to 100 bytes."""
    return flipped(data, b"PK\x01\x02", 24, struct.pack("<I", 100))


def one_cell(source):
    return json.dumps({"cells": [{"cell_type": "code", "source": source}]}).encode()


@needs_proc
def test_the_child_has_limits(tmp_path):
    with intake.Child(NAME, HOME, set(SOLUTIONS) | {"read_a_map"}) as reader:
        reader.read([intake.Entry(("x",), None, b"/dev/null")])
        limits = Path(f"/proc/{reader.process.pid}/limits").read_text()
        environment = Path(f"/proc/{reader.process.pid}/environ").read_bytes()
    values = {line[:26].strip(): line[26:].split()[:2] for line in limits.splitlines()}
    assert values["Max address space"] == [str(2**30)] * 2
    assert values["Max file size"] == values["Max core file size"] == ["0", "0"]
    assert int(values["Max open files"][1]) <= 32
    assert int(values["Max cpu time"][0]) <= 15
    assert environment.strip(b"\0") == b"", "nothing of the marker's environment, which may hold secrets"


def test_a_hand_in_has_one_budget_and_so_does_each(tmp_path):
    rubbish = random.Random(0).randbytes(15 * 2**20)
    inner = zipped({"0.bin": rubbish}, zipfile.ZIP_STORED)
    found = taken_from_zip(
        tmp_path,
        {f"alice/{i}.zip": inner for i in range(5)} | {"bob/z.zip": zipped({"0.bin": rubbish, "x.ipynb": TEXT})},
    )
    assert [s.problem for s in found if s.student == "alice"][-1] == "over 100 MB in all: the rest is not read"
    assert [s.problem for s in found if s.student == "bob"] == ["not a notebook: a .bin file", ""]


def test_files_of_a_hand_in_are_counted_across_its_zips(tmp_path):
    inner = zipped({f"{i}.txt": "" for i in range(400)})
    (_, *_, last) = found = taken_from_zip(tmp_path, {f"alice/{i}.zip": inner for i in range(3)})
    told = "and 990 more files that are not marked; the last of them: more than 1000 files: the rest is not read"
    assert last.problem == told.replace("990", "988")
    assert len(found) == 11
    data = zipped({f"{i}.txt": "" for i in range(1200)})
    data = data.replace(b"PK\x01\x02\x14\x03\x14\0\0\0", b"PK\x01\x02\x14\x03\x14\0\1\0")  # encrypted
    (first, *_, last) = found = taken_from_zip(tmp_path, {"alice/x.zip": data})
    assert "encrypted" in first.problem
    assert last.problem == told
    assert len(found) == 11
    found = taken_from_zip(tmp_path, {f"alice/{i:04}.txt": "" for i in range(1200)} | {"bob.ipynb": TEXT})
    assert [s.problem for s in found][10:] == [told.replace("990", "991"), ""]


def test_a_hand_in_of_many_files_makes_few_rows_and_the_latest_counts(tmp_path):
    entries = {f"{i:03}.ipynb": TEXT if i > 900 else "{}" for i in range(990)}
    found = taken_from_zip(tmp_path, {"alice/x.zip": zipped(entries), "bob/x.ipynb": TEXT})
    assert [s.student for s in found] == ["alice"] * 12 + ["bob"]
    assert [s.file for s in found if not s.problem] == ["alice/x.zip/989.ipynb", "bob/x.ipynb"]
    told = "and 979 more files that are not marked; the last of them: not the latest: alice/x.zip/989.ipynb is marked"
    assert found[11].problem.startswith(told)


@pytest.mark.parametrize(
    ("part", "roster"),
    [
        ("Otto the Great_4713_assignsubmission_file_", [Student("s1", "Anna")]),
        ("Otto_1_assignsubmission_file_ x_4713_assignsubmission_file_", []),
        (NAME, []),
    ],
)
def test_of_what_is_nobodys_the_latest_is_marked_too(tmp_path, part, roster):
    """Otherwise a zip of a thousand notebooks, in a name that is in doubt, would be a thousand markings."""
    entries = {f"{part}/x.zip": zipped({f"{i:03}.ipynb": TEXT for i in range(30)}), "Anna_2_1_x.ipynb": TEXT}
    found = [s for s in taken(put(tmp_path, {"e.zip": zipped(entries)}) / "e.zip", roster) if part in s.file]
    assert {s.student for s in found} == {""}
    assert [s.file for s in found if not s.problem] == [f"{part}/x.zip/029.ipynb"]
    assert len(found) == 12


def test_files_whose_names_leave_in_doubt_whose_they_are_are_one_hand_in(tmp_path):
    """In a flat export a student chooses the end of each file's name."""
    marks = [f"Otto_4713_assignsubmission_file_Bob_{i}_assignsubmission_file_x.ipynb" for i in range(20)]
    found = taken_from_zip(tmp_path, dict.fromkeys([*marks, "Eve_4714_assignsubmission_file_x.ipynb"], TEXT))
    assert {s.student for s in found if not s.problem} == {"", "4714"}
    assert len([s for s in found if not s.problem]) == 2


# --- a child that fails --------------------------------------------------------------------------------


READY = "print('ready', flush=True)\n"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import time; time.sleep(60)", "reading it took more than 0.5 seconds, twice"),
        ("while True: pass", "reading it took more than 0.5 seconds, twice"),
        ("import os; os.kill(os.getpid(), 9)", "or broke the program that reads notebooks"),
        ("raise SystemExit", "makes no sense"),
        ("print('{}')", "makes no sense"),
        ("print('[]')", "makes no sense"),
        ("print('[' * 100000)", "makes no sense"),
        ("print('no JSON')", "makes no sense"),
        ("print('[1, null]')", "makes no sense"),
        ("""print('[{"number": 7, "inside": "", "problem": "", "flags": [], "answers": {}}]')""", "makes no sense"),
        ("""print('[{"number": 0, "inside": "", "problem": "", "flags": [], "answers": {"x": ""}}]')""", "no sense"),
        ("""print('[{"number": 0, "inside": "", "problem": "", "flags": [3], "answers": {}}]')""", "makes no sense"),
        ("while True: print('x' * 2**20, end='')", "makes no sense"),
    ],
)
def test_a_child_that_fails_is_one_row(tmp_path, monkeypatch, code, words):
    monkeypatch.setattr(intake, "CHILD", READY + code)
    monkeypatch.setattr(intake, "SECONDS", 0.5)
    monkeypatch.setattr(intake, "PATIENCE", 1)
    found = taken(put(tmp_path, {"alice/x.ipynb": TEXT, "bob/x.ipynb": TEXT}))
    assert [s.student for s in found] == ["alice", "bob"]
    assert all(s.problem.startswith("could not be read: ") and words in s.problem for s in found)
    assert all(s.handed_in for s in found)


@pytest.mark.parametrize(
    "deed", ["os.kill(os.getpid(), 11)", "time.sleep(60)", "bytes(2**31)", "json.loads('[' * 10**5)", "1 / 0"]
)
def test_honest_neighbours_of_what_breaks_the_child_are_unharmed(tmp_path, monkeypatch, deed):
    child = f"""
import json, os, sys, time
sys.path.insert(0, sys.argv[1])
from coursekit.grading import reading
real = reading.cells_of
def cells_of(data, name):
    if b"break me" in data:
        {deed}
    return real(data, name)
reading.cells_of = cells_of
reading.answer_parent()
"""
    monkeypatch.setattr(intake, "CHILD", child)
    monkeypatch.setattr(intake, "SECONDS", 2)
    monkeypatch.setattr(intake, "PATIENCE", 1)
    broken = zipped({"x.ipynb": "break me"})
    entries = {
        "alice/x.ipynb": TEXT,
        "bob/x.ipynb": "break me",
        "carol/x.ipynb": TEXT,
        "dan/z.zip": broken,
        "eve.ipynb": TEXT,
    }
    found = taken_from_zip(tmp_path, entries)
    assert [(s.student, s.problem == "") for s in found] == [
        ("alice", True),
        ("bob", False),
        ("carol", True),
        ("dan", False),
        ("eve", True),
    ]
    assert all("could not be read: " in s.problem for s in found if s.problem)
    assert all(s.answers["luong_score"] == SOLUTIONS["luong_score"] for s in found if not s.problem)


def test_what_the_child_dies_of_later_costs_no_honest_row(tmp_path, monkeypatch):
    """Each file is read, but its memory is not given back: the next hand-in would pay for it."""
    real = "from coursekit.grading import reading; real = reading.read_item; seen = []"
    dies = "reading.read_item = lambda *a: seen.append(1) or (os._exit(1) if len(seen) > 2 else real(*a))"
    child = f"import os, sys; sys.path.insert(0, sys.argv[1]); {real}; {dies}; reading.answer_parent()"
    monkeypatch.setattr(intake, "CHILD", child)
    found = taken_from_zip(tmp_path, {f"s{i}.ipynb": TEXT for i in range(6)})
    assert [s.problem for s in found] == [""] * 6


@pytest.mark.parametrize("code", ["import os; os.abort()", "import time; time.sleep(60)", "print('other')"])
def test_a_child_that_does_not_start_is_no_students_fault(tmp_path, monkeypatch, code):
    monkeypatch.setattr(intake, "CHILD", code)
    monkeypatch.setattr(intake, "SECONDS_TO_START", 0.5)
    with pytest.raises(GradingError, match="the program that reads notebooks does not start"):
        taken(put(tmp_path, {"alice.ipynb": TEXT}))


def test_a_child_that_starts_slowly_or_stops_once_costs_no_honest_row(tmp_path, monkeypatch):
    """As on a busy machine: neither its start nor a pause is the hand-in's."""
    slow = f"""
import pathlib, sys, time
time.sleep(2)
sys.path.insert(0, sys.argv[1])
from coursekit.grading import reading
real, stopped = reading.read_item, pathlib.Path({str(tmp_path / "stopped")!r})
def read_item(*about):
    if not stopped.exists():
        stopped.touch()
        time.sleep(60)
    return real(*about)
reading.read_item, reading.set_limits = read_item, lambda: None
reading.answer_parent()
"""
    monkeypatch.setattr(intake, "CHILD", slow)
    monkeypatch.setattr(intake, "SECONDS", 1)
    monkeypatch.setattr(intake, "PATIENCE", 1)
    found = taken_from_zip(tmp_path, {"alice.ipynb": TEXT, "bob.ipynb": TEXT})
    assert [s.problem for s in found] == ["", ""]
    assert (tmp_path / "stopped").exists()


def test_time_is_the_cpus_and_ends_what_never_ends(tmp_path, monkeypatch):
    endless = "from coursekit.grading import reading; reading.read_item = lambda *a: any(iter(int, 1))"
    monkeypatch.setattr(
        intake, "CHILD", f"import sys; sys.path.insert(0, sys.argv[1]); {endless}; reading.answer_parent()"
    )
    monkeypatch.setattr(intake, "SECONDS", 1)
    monkeypatch.setattr(intake, "PATIENCE", 100)
    (one,) = taken(put(tmp_path, {"alice.ipynb": TEXT}))
    assert one.problem.startswith("could not be read: reading it took more than 1 seconds or 1024 MB of memory")


def test_a_zip_that_breaks_the_child_when_it_is_listed_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(intake, "CHILD", READY + "import os; os.abort()")
    with pytest.raises(GradingError, match=r"cannot open .*e\.zip: reading it took more than"):
        taken_from_zip(tmp_path, {"alice.ipynb": TEXT})
    monkeypatch.undo()
    monkeypatch.setattr(reading, "MOST_ENTRIES", 3)
    path = os.fsencode(put(tmp_path, {"e.zip": zipped({f"{n}.ipynb": TEXT for n in range(4)})}) / "e.zip")
    assert reading.list_zip(path) == "it holds more than 3 files, not counting those beyond 1000 of anyone"
    reading.OPEN.pop(path).close()


@pytest.mark.parametrize("wrapper", ["", "submitted/"])
def test_a_students_many_files_in_the_markers_zip_are_nobody_elses_trouble(tmp_path, monkeypatch, wrapper):
    monkeypatch.setattr(reading, "MOST_ENTRIES", 3 * reading.MOST_FILES)
    files = {f"{wrapper}eve/{NAME}/d/{n}": "" for n in range(3 * reading.MOST_FILES)}
    files |= {f"{wrapper}{student}/{NAME}/{NAME}.ipynb": TEXT for student in ("anna", "zoe")}
    found = {one.student: one for one in taken_from_zip(tmp_path, files)}
    assert [found[student].problem for student in ("anna", "zoe")] == ["", ""]
    assert found["zoe"].answers["luong_score"] == SOLUTIONS["luong_score"]


def test_a_folder_that_becomes_a_link_after_it_was_listed_is_not_followed(tmp_path, monkeypatch):
    """Catches a path that is opened as a whole: only its last name would be kept from being a link."""
    folder = put(tmp_path / "class", {"eve/sub/a.ipynb": TEXT, "bob/b.ipynb": TEXT})
    secret = put(tmp_path / "secret", {"a.ipynb": TEXT})
    read = intake.Child.read

    def swapped(self, entries):
        if "eve" in entries[0].place:
            (folder / "eve/sub").rename(folder / "eve/.sub")
            (folder / "eve/sub").symlink_to(secret)
        return read(self, entries)

    monkeypatch.setattr(intake.Child, "read", swapped)
    found = {one.student: one for one in taken(folder)}
    assert found["eve"].problem == reading.LINK
    assert found["bob"].problem == ""


def test_a_hard_link_to_somebody_elses_file_is_not_read(tmp_path):
    if os.name == "nt" or os.geteuid():
        pytest.skip("only root can give a file away")
    folder = put(tmp_path, {"anna/a.ipynb": TEXT, "zoe/z.ipynb": TEXT})
    os.chown(folder / "anna", 30_001, 30_001)
    os.chown(folder / "anna/a.ipynb", 30_001, 30_001)
    (folder / "eve").mkdir()
    os.link(folder / "anna/a.ipynb", folder / "eve/a.ipynb")
    os.link(folder / "zoe/z.ipynb", tmp_path / "a copy of zoe's")  # such as a backup makes, for its owner
    found = {one.student: one for one in taken(folder)}
    assert "belongs to somebody else" in found["eve"].problem
    assert [found[name].problem for name in ("anna", "zoe")] == ["", ""]


def test_what_a_marker_names_may_lie_behind_links_of_his_own(tmp_path):
    folder = put(tmp_path / "class", {"bob/b.ipynb": TEXT})
    (tmp_path / "link").symlink_to(folder)
    for path in (tmp_path / "link/bob", tmp_path / "link/bob/b.ipynb"):
        (one,) = submissions([path], NAME, [], HOME).found
        assert one.answers["luong_score"] == SOLUTIONS["luong_score"]


def test_many_zips_may_be_named(tmp_path):
    zips = {f"{i}.zip": zipped({f"s{i}.ipynb": TEXT}) for i in range(40)}
    put(tmp_path, zips)
    found = submissions([tmp_path / name for name in zips], NAME, [], HOME).found
    assert [(s.student, s.problem) for s in found] == [(f"s{i}", "") for i in range(40)]


def test_the_child_works_without_limits_and_imports_little(tmp_path, monkeypatch):
    there = {"torch", "numpy", "nbformat", "nbgrader", "jsonschema"}
    code = f"import sys; sys.modules['resource'] = None; {intake.CHILD}"
    monkeypatch.setattr(intake, "CHILD", code)
    (one,) = taken(put(tmp_path, {"alice.ipynb": TEXT}))
    assert one.answers["luong_score"] == SOLUTIONS["luong_score"]
    code = "import sys; sys.path.insert(0, sys.argv[1]); import coursekit.grading.reading; print(*sys.modules)"
    words = [sys.executable, "-I", "-c", code, str(Path(coursekit.__file__).parents[1])]
    names = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    assert "coursekit.grading.reading" in names
    assert not there & set(names)


# --- anything at all -----------------------------------------------------------------------------------

PIECES = st.one_of(
    st.binary(max_size=60),
    st.sampled_from([b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06", b"\xff" * 4, b"\0" * 4, b"[" * 50_000, b'{"cells":']),
)
NOTEBOOK = nbformat.writes(only(luong_score="def luong_score(): return 1")).encode()


@st.composite
def damaged(draw, data):
    """The bytes with some of them replaced, taken out or put in."""
    for _ in range(draw(st.integers(0, 4))):
        place, length = draw(st.integers(0, len(data))), draw(st.integers(0, 30))
        data = data[:place] + draw(PIECES) + data[place + length :]
    return data


names = st.one_of(
    st.sampled_from(
        ["x.ipynb", "x.zip", "a/b.zip", "..", ".", "/", "\\", "a\0b", " " * 3000, "²/2.ipynb", "é\u202e\x1b.ipynb"]
    ),
    # zipfile cuts a name at a zero, and cannot write the empty one that may be left
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20).filter(lambda name: name[0] != "\0"),
)
notebooks = st.one_of(
    damaged(NOTEBOOK),
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.floats(), st.text(max_size=5), st.integers()),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(
                st.sampled_from(["cells", "cell_type", "source", "metadata", "nbgrader", "id"]), inner, max_size=4
            ),
        ),
        max_leaves=12,
    ).map(lambda value: json.dumps({"cells": [value, value]}).encode()),
)
quiet = pytest.mark.filterwarnings("ignore:Duplicate name")
fuzzed = settings(max_examples=25, deadline=None, database=None)


@st.composite
def hostile_zips(draw):
    inside = draw(st.dictionaries(names, notebooks, max_size=3))
    return draw(damaged(zipped(inside, draw(st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])))))


@quiet
@fuzzed
@given(st.lists(st.tuples(names, st.one_of(notebooks, hostile_zips())), max_size=3))
def test_whatever_one_hands_in_is_rows_and_neighbours_are_unharmed(tmp_path_factory, files):
    folder = tmp_path_factory.mktemp("e")
    entries = {f"mallory/{name}": content for name, content in files}
    with zipfile.ZipFile(folder / "e.zip", "w") as archive:
        archive.writestr("alice/x.ipynb", NOTEBOOK)
        for name, content in entries.items():
            archive.writestr(name, content)
        archive.writestr("bob/x.ipynb", NOTEBOOK)
        archive.writestr("mallory/", "")
    found = taken(folder / "e.zip")
    shutil.rmtree(folder)
    honest = [s for s in found if s.student in ("alice", "bob")]
    assert [(s.student, s.problem, s.flags, s.answers) for s in honest] == [
        (student, "", [], {"luong_score": "def luong_score(): return 1"}) for student in ("alice", "bob")
    ]
    assert [s for s in found if s.student == "mallory"]
    assert {s.student for s in found} == {"alice", "bob", "mallory"}
    for s in found:
        assert f"{s.file}{s.problem}{''.join(s.flags)}{s.name}".isprintable()


@quiet
@fuzzed
@given(damaged(zipped({"alice/x.ipynb": NOTEBOOK, "b.ipynb": NOTEBOOK, "c_1_2_x.zip": zipped({"x.ipynb": NOTEBOOK})})))
def test_whatever_the_marker_names_is_rows_or_one_sentence(tmp_path_factory, data):
    folder = put(tmp_path_factory.mktemp("e"), {"e.zip": data, "f/x.ipynb": data, "f/y.zip": data})
    with suppress(GradingError):
        assert all(s.problem or s.answers or s.flags for s in taken(folder / "e.zip"))
    assert {s.student for s in taken(folder / "f")} == {"x", "y"}
    shutil.rmtree(folder)


# --- answers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rewrite", [dict, saved_by_colab, without_grading_metadata, bare, with_equal_ids])
def test_answers_are_found_however_the_file_was_rewritten(rewrite):
    notebook = handed_in(train=None)
    cell_of(notebook, "read_a_map").source = "Neighbours change places."
    expected = {name: source for name, source in SOLUTIONS.items() if name != "train"}
    assert found_in(rewrite(notebook)) == (expected | {"read_a_map": "Neighbours change places."}, [])


def test_the_last_changed_copy_counts_and_is_flagged():
    copied = with_copied_cells(handed_in(), "masked_softmax")
    found, flags = found_in(copied)
    assert found["masked_softmax"] == SOLUTIONS["masked_softmax"]
    assert flags == []
    place = copied["cells"].index(cell_of(copied, "masked_softmax"))
    second = json.loads(json.dumps(copied["cells"][place + 1]))
    second["source"] = "def masked_softmax(scores, mask): return 0"
    copied["cells"].append(second)
    found, flags = found_in(copied)
    assert found["masked_softmax"] == second["source"]
    assert flags == ["masked_softmax: 2 different answers, one of them is marked"]


def test_a_deleted_answer_is_flagged_and_an_own_cell_found_by_its_name():
    found, flags = found_in(without_cell(handed_in(), "luong_score"))
    assert "luong_score" not in found
    assert flags == ["luong_score: the answer cell is gone"]
    rewritten = without_cell(handed_in(), "luong_score")
    own = {"cell_type": "code", "metadata": {}, "source": SOLUTIONS["luong_score"], "id": "own", "outputs": []}
    rewritten["cells"].append(own)
    assert found_in(rewritten)[0]["luong_score"] == SOLUTIONS["luong_score"]


def test_a_written_answer_in_cells_beside_its_own_is_found():
    notebook = only()
    place = notebook.cells.index(cell_of(notebook, "read_a_map"))
    new = [nbformat.v4.new_markdown_cell("(a) One."), nbformat.v4.new_code_cell("1 + 1")]
    new.append(nbformat.v4.new_markdown_cell("(b) Two."))
    notebook.cells[place + 1 : place + 1] = new
    notebook.cells.insert(place, nbformat.v4.new_markdown_cell("Before."))
    notebook.cells.insert(1, nbformat.v4.new_markdown_cell("A note at the top."))
    found, flags = found_in(notebook)
    assert found == {"read_a_map": "Before.\n\n(a) One.\n\n(b) Two."}
    assert flags == ["read_a_map: the answer is in new cells beside its own"]
    cell_of(notebook, "read_a_map").source = "Here."
    assert found_in(notebook) == ({"read_a_map": "Here."}, [])


def test_an_own_cell_counts_where_the_stub_was_left():
    notebook = only()
    notebook.cells.append(nbformat.v4.new_code_cell("import math\n\n" + SOLUTIONS["luong_score"]))
    assert found_in(nbformat.writes(notebook))[0]["luong_score"].startswith("import math")


def test_a_touched_stub_gives_way_to_a_finished_answer():
    stub = cell_of(RELEASED, "luong_score").source + "  # see my own cell below"
    notebook = only(luong_score=stub)
    notebook.cells.append(nbformat.v4.new_code_cell(SOLUTIONS["luong_score"]))
    found, flags = found_in(nbformat.writes(notebook))
    assert found["luong_score"] == SOLUTIONS["luong_score"]
    assert flags == ["luong_score: 2 different answers, one of them is marked"]


def test_what_is_no_unicode_and_what_terminals_obey_is_replaced(tmp_path):
    notebook = only(luong_score="x = '\\ud800'")
    text = nbformat.writes(notebook).replace("\\\\ud800", "\\ud800")
    (one,) = taken_from_zip(tmp_path, {"a\x1b[31m\u202e/x.ipynb": text})
    assert one.file == "a?[31m?/x.ipynb"
    assert one.answers["luong_score"] == "x = '?'"


def test_an_answer_that_is_too_long_is_flagged_and_not_marked():
    notebook = only(additive_score="x = 1")
    notebook.cells.append(nbformat.v4.new_code_cell("x = 1\n" * 500_000 + SOLUTIONS["luong_score"]))
    found, flags = found_in(nbformat.writes(notebook))
    assert found == {"additive_score": "x = 1"}
    assert flags == ["luong_score: the answer is longer than 100 kB and is not marked"]


def test_an_emptied_answer_cell_is_an_answer():
    assert found_in(nbformat.writes(only(luong_score=""))) == ({"luong_score": ""}, [])


def test_nothing_of_a_notebook_is_kept_but_its_cells():
    notebook = {
        "cells": [{"cell_type": "code", "source": ["a", 1, "b"], "metadata": {"x": 1, "nbgrader": {"grade_id": []}}}]
    }
    (cell,) = cells_of(json.dumps(notebook).encode(), "x.ipynb")
    assert cell == {"cell_type": "code", "source": "ab", "id": "", "grade_id": "", "solution": False}
    with pytest.raises(NoNotebookError):
        cells_of(b"[]", "x.ipynb")


def test_an_answer_that_does_not_parse_is_found_by_its_name():
    broken = "def luong_score(query, keys, W=None):\n    return query @@ keys)"
    assert found_in(bare(only(luong_score=broken)))[0] == {"luong_score": broken}


def test_sources_as_strings_and_windows_line_ends():
    rewritten = json.loads(nbformat.writes(only(luong_score=SOLUTIONS["luong_score"])))
    for cell in rewritten["cells"]:
        cell["source"] = "".join(cell["source"]).replace("\n", "\r\n")
    assert found_in(rewritten)[0] == {"luong_score": SOLUTIONS["luong_score"]}


def test_spaces_do_not_make_an_answer():
    rewritten = json.loads(nbformat.writes(only()))
    cell_of(rewritten, "luong_score")["source"] = cell_of(RELEASED, "luong_score").source.replace("    ", "  ") + "\n\n"
    assert found_in(rewritten)[0] == {}
