"""From exports to submissions: whose, when, and what is refused, with everything that platforms do to files."""

import io
import json
import os
import zipfile
from datetime import UTC, datetime

import nbformat
import pytest

from coursekit.grading import GradingError
from coursekit.grading.intake import (
    Student,
    answers,
    clean,
    known,
    plain_stem,
    read_released,
    read_roster,
    submissions,
)
from coursekit.lectures import home
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

TEXT = nbformat.writes(handed_in())


def put(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def zipped(entries):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return data.getvalue()


def taken(path, roster=()):
    return submissions([path], NAME, list(roster))


def read(notebook):
    from coursekit.grading.intake import Submission, read_notebook

    submission = Submission("x.ipynb")
    read_notebook(submission, (notebook if isinstance(notebook, str) else json.dumps(notebook)).encode())
    return submission


# --- whose ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "student"),
    [
        (f"alice/{NAME}.ipynb", "alice"),
        (f"alice/{NAME}/{NAME}.ipynb", "alice"),
        (f"submitted/alice/{NAME}/{NAME}.ipynb", "alice"),
        ("alice/homework final.ipynb", "alice"),
        ("alice.ipynb", "alice"),
        (f"alice_{NAME}.ipynb", "alice"),
        (f"{NAME}_alice (2).ipynb", "alice"),
        (f"Doe Jane_4711_assignsubmission_file_/{NAME}.ipynb", "4711"),
        (f"doejane_815_99_{NAME}-1.ipynb", "815"),
        (f"doejane_LATE_815_99_{NAME}.ipynb", "815"),
        (f"../../{NAME}.ipynb", ""),
    ],
)
def test_the_place_says_whose(tmp_path, place, student):
    data = zipped({place: TEXT, "other/x.ipynb": TEXT})
    first, _ = taken(put(tmp_path, {"e.zip": data}) / "e.zip")
    assert first.student == student
    assert first.late == ("LATE" in place)


def test_the_notebook_itself_says_nothing_on_whose(tmp_path):
    notebook = handed_in()
    notebook.metadata["student"] = notebook.metadata["nbgrader"] = {"student_id": "mallory"}
    (one,) = taken(put(tmp_path, {"alice/x.ipynb": nbformat.writes(notebook)}))
    assert one.student == "alice"


def test_a_wrapping_folder_is_nobody(tmp_path):
    data = zipped({"export/alice.ipynb": TEXT, "export/bob.ipynb": TEXT})
    assert [s.student for s in taken(put(tmp_path, {"e.zip": data}) / "e.zip")] == ["alice", "bob"]
    data = zipped({"export/alice/a.ipynb": TEXT, "export/bob/b.ipynb": TEXT})
    assert [s.student for s in taken(put(tmp_path, {"e.zip": data}) / "e.zip")] == ["alice", "bob"]


def test_one_file_is_its_name_or_its_folder(tmp_path):
    put(tmp_path, {"alice.ipynb": TEXT, f"bob/{NAME}.ipynb": TEXT})
    found = submissions([tmp_path / "alice.ipynb", tmp_path / "bob" / f"{NAME}.ipynb"], NAME, [])
    assert [s.student for s in found] == ["alice", "bob"]


def test_a_zip_called_like_the_exercise_is_not_its_folders(tmp_path):
    put(tmp_path, {f"z1/{NAME}.zip": zipped({"bn2.ipynb": TEXT})})
    (one,) = taken(tmp_path / "z1" / f"{NAME}.zip")
    assert one.student == "bn2"


CLASS = [
    Student("s1", "Jane Doe", "jane.doe@example.org", "4711"),
    Student("s2", "José Núñez", "jn@example.org", "815"),
    Student("s3", "Ann Lee", "ann@example.org", ""),
]


@pytest.mark.parametrize(
    ("place", "student"),
    [
        ("Doe Jane_4711_assignsubmission_file_/x.ipynb", "s1"),
        ("Doe Jane_9999_assignsubmission_file_/x.ipynb", "s1"),
        ("nunezjose_815_1_x.ipynb", "s2"),
        ("nunezjose_1_1_x.ipynb", "s2"),
        ("jane.doe/x.ipynb", "s1"),
        ("s3.ipynb", "s3"),
        ("week 2/S3/x.ipynb", "s3"),
        ("stranger/x.ipynb", ""),
    ],
)
def test_the_roster_decides(tmp_path, place, student):
    (one,) = taken(put(tmp_path, {place: TEXT}), CLASS)
    assert one.student == student
    assert ("not in the roster" in one.flags) == (student == "")


def test_the_number_in_the_files_name_goes_back_to_the_platform(tmp_path):
    """Moodle numbers a student anew in each assignment; the roster may still hold the number of another one."""
    put(tmp_path, {"Doe Jane_9999_assignsubmission_file_/x.ipynb": TEXT, "s2.ipynb": TEXT})
    assert [(s.student, s.platform_id) for s in taken(tmp_path, CLASS)] == [("s1", "9999"), ("s2", "815")]


def test_two_of_the_same_name_are_not_guessed():
    twins = [Student("a", "Jane Doe"), Student("b", "Doe Jane")]
    assert known("Jane Doe", twins) is None
    assert known("a", twins).id == "a"


def test_a_roster_with_a_mistake_is_refused(tmp_path):
    path = tmp_path / "roster.csv"
    for text, words in {
        "name\nJane\n": "column 'id'",
        "id,name\na,x\na,y\n": "more than one line with the id 'a'",
        "id\na/b\n": "letters, digits",
    }.items():
        path.write_text(text)
        with pytest.raises(GradingError, match=words):
            read_roster(path)
    path.write_text("id;name\ns1;Doe, Jane\n")
    assert read_roster(path) == [Student("s1", "Doe, Jane")]
    path.write_text("\ufeffid,name,email\n s1 ,Jane,\n,,\n", encoding="utf-8")
    assert read_roster(path) == [Student("s1", "Jane")]


def test_names_of_folders_are_harmless():
    assert clean("../../etc/passwd") == "etc_passwd"
    assert clean("a b/ü@x.de") == "a_b_ü@x.de"
    assert clean("..") == ""


def test_two_names_that_become_one_are_flagged(tmp_path):
    found = taken(put(tmp_path, {"a b/x.ipynb": TEXT, "a_b/x.ipynb": TEXT, "c/x.ipynb": TEXT}))
    clash = ["'a b' and 'a_b' become one student: rename one, or use a roster"]
    assert [submission.flags for submission in found] == [clash, clash, []]


@pytest.mark.parametrize(
    "name", ["x.ipynb", "Copy of x.ipynb", "x (1).ipynb", "x-Copy1.ipynb", "Kopie von x (2).ipynb"]
)
def test_what_browsers_and_colab_add_to_names(name):
    assert plain_stem(name) == "x"


# --- when ----------------------------------------------------------------------------------------------


def test_the_latest_of_a_student_counts(tmp_path):
    put(tmp_path, {f"alice/{NAME}.ipynb": TEXT, f"alice/{NAME} (1).ipynb": TEXT, "alice/broken.ipynb": "{"})
    for name, time in ((f"{NAME}.ipynb", 2000), (f"{NAME} (1).ipynb", 1000), ("broken.ipynb", 3000)):
        os.utime(tmp_path / "alice" / name, (time, time))
    found = {s.file.removeprefix("alice/"): s for s in taken(tmp_path)}
    assert found[f"{NAME}.ipynb"].problem == ""
    assert found[f"{NAME} (1).ipynb"].problem == f"not the latest: alice/{NAME}.ipynb is marked instead"
    assert "not JSON" in found["broken.ipynb"].problem


def test_nbgraders_timestamp_is_taken(tmp_path):
    put(tmp_path, {f"alice/{NAME}/x.ipynb": TEXT, f"alice/{NAME}/timestamp.txt": "2026-11-30 23:59:59.5 UTC"})
    (one,) = taken(tmp_path)
    assert one.handed_in == datetime(2026, 11, 30, 23, 59, 59, 500000, UTC)


# --- what is refused, each as one row ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("x.ipynb", "{ broken", "not JSON"),
        ("x.ipynb", b"\xff\xfe\x00", "not JSON"),
        ("x.ipynb", "[" * 100_000, "not JSON"),
        ("x.ipynb", "[]", "without a list of cells"),
        ("x.ipynb", '{"worksheets": [{"cells": []}]}', "without a list of cells"),
        ("x.ipynb", '{"cells": [1, null, {"cell_type": "code", "source": 5}]}', "without cells"),
        ("x.ipynb", b" " * (20 * 2**20 + 1), "over 20 MB"),
        ("x.docx", "PK", "not a notebook: a .docx file"),
        ("x.zip", "no zip", "not a zip, though it is called one"),
    ],
)
def test_what_is_no_notebook_is_a_row_with_the_reason(tmp_path, name, content, words):
    (one,) = taken(put(tmp_path, {f"alice/{name}": content}))
    assert words in one.problem
    assert not one.cells


def test_a_file_that_cannot_be_read_is_a_row(tmp_path, monkeypatch):
    put(tmp_path, {"alice.ipynb": TEXT, "bob.ipynb": TEXT})
    real = type(tmp_path).read_bytes

    def denied(path):
        if path.name == "bob.ipynb":
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(type(tmp_path), "read_bytes", denied)
    assert [s.problem for s in taken(tmp_path)] == ["", "cannot be read: Permission denied"]


@pytest.mark.parametrize("rewrite", [dict, saved_by_colab, without_grading_metadata, bare])
def test_another_exercise_is_no_hand_in_of_this_one(tmp_path, rewrite):
    """The two share ``masked_softmax``. A deleted cell, or all of them, does not make another exercise of it."""
    text = json.dumps(rewrite(handed_in()))
    released = read_released(home())
    put(tmp_path, {"alice.ipynb": text, "bob.ipynb": json.dumps(without_cell(handed_in(), "train")), "eve.ipynb": "{}"})
    put(tmp_path, {"carol.ipynb": json.dumps({"cells": [{"cell_type": "code", "source": "1"}]})})
    found = submissions([tmp_path], "03_self_attention", [], released)
    assert [(s.problem, s.flags) for s in found[:2]] == [(f"this is {NAME}", [])] * 2
    assert [s.problem for s in found[2:]] == ["", "not a notebook: JSON without a list of cells"]
    assert [s.problem for s in submissions([tmp_path], NAME, [], released)][:3] == ["", "", ""]


def test_another_exercise_does_not_take_the_place_of_this_one(tmp_path):
    other = home() / "exercises" / "03_self_attention" / "03_self_attention.ipynb"
    put(tmp_path, {"alice/a.ipynb": TEXT, "alice/b.ipynb": other.read_bytes()})
    found = submissions([tmp_path], NAME, [], read_released(home()))
    assert [s.problem for s in found] == ["", "this is 03_self_attention"]


def test_moodles_text_field_is_no_second_hand_in(tmp_path):
    text = "_assignsubmission_onlinetext_/onlinetext.html"
    entries = {f"Doe Jane_1_assignsubmission_file_/{NAME}.ipynb": TEXT, f"Doe Jane_1{text}": "<p>See my file."}
    found = taken(put(tmp_path, {"e.zip": zipped(entries | {f"Poe Ann_2{text}": "<p>Sorry."})}) / "e.zip")
    assert [(s.student, s.problem) for s in found] == [("1", ""), ("2", "not a notebook: a .html file")]


def test_links_are_not_followed(tmp_path):
    (tmp_path / "secret.ipynb").write_text(TEXT)
    (tmp_path / "in" / "bob").mkdir(parents=True)
    (tmp_path / "in" / "alice.ipynb").symlink_to(tmp_path / "secret.ipynb")
    (tmp_path / "in" / "folder").symlink_to(tmp_path)
    found = taken(tmp_path / "in")
    assert len(found) == 2
    assert {s.problem for s in found} == {"a symbolic link: not followed"}


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
    assert [s.problem.split(":")[0] for s in found] == [
        *["a path in the zip that leads out of it"] * 3,
        "a symbolic link in the zip",
        "over 20 MB",
        "",
    ]
    assert not os.path.exists("/tmp/coursekit-was-here.ipynb")


def test_zips_in_zips_and_litter(tmp_path):
    inner = zipped({f"{NAME}.ipynb": TEXT, "__MACOSX/._x.ipynb": "x", ".DS_Store": "x"})
    outer = zipped({"Doe_1_assignsubmission_file_/work.zip": inner, "Poe_2_assignsubmission_file_/x.ipynb": TEXT})
    found = taken(put(tmp_path, {"e.zip": outer}) / "e.zip")
    assert [(s.student, s.problem) for s in found] == [("1", ""), ("2", "")]
    deep = TEXT
    for _ in range(5):
        deep = zipped({"z.zip": deep})
    assert "not a notebook" in taken(put(tmp_path, {"d.zip": deep}) / "d.zip")[0].problem


def test_an_encrypted_or_damaged_entry_is_a_row(tmp_path):
    good = zipped({"a.ipynb": TEXT, "b.ipynb": TEXT})
    place = good.index(b"b.ipynb") + 100
    damaged = good[:place] + bytes(50) + good[place + 50 :]
    first, second = taken(put(tmp_path, {"e.zip": damaged}) / "e.zip")
    assert first.problem == ""
    assert "cannot be read from the zip" in second.problem


def test_a_path_that_is_not_there_is_said(tmp_path):
    with pytest.raises(GradingError, match=r"no such file or folder: .*nowhere"):
        taken(tmp_path / "nowhere")


def test_what_is_named_has_to_open(tmp_path):
    put(tmp_path, {"no.zip": "no zip", "half.zip": zipped({"alice.ipynb": TEXT})[:-40], "alice.ipynb": TEXT})
    for name in ("no.zip", "half.zip"):
        with pytest.raises(GradingError, match=rf"cannot open .*{name}: it is no zip, or was broken on its way"):
            submissions([tmp_path / "alice.ipynb", tmp_path / name], NAME, [])
    (tmp_path / "link.zip").symlink_to(tmp_path / "half.zip")
    with pytest.raises(GradingError, match="a symbolic link, which is not followed"):
        taken(tmp_path / "link.zip")


# --- answers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rewrite", [dict, saved_by_colab, without_grading_metadata, bare, with_equal_ids])
def test_answers_are_found_however_the_file_was_rewritten(rewrite):
    notebook = handed_in(train=None)
    cell_of(notebook, "read_a_map").source = "Neighbours change places."
    found = answers(RELEASED.cells, read(rewrite(notebook)))
    expected = {name: source for name, source in SOLUTIONS.items() if name != "train"}
    assert found == expected | {"read_a_map": "Neighbours change places."}


def test_the_last_changed_copy_counts_and_is_flagged():
    copied = with_copied_cells(handed_in(), "masked_softmax")
    submission = read(copied)
    assert answers(RELEASED.cells, submission)["masked_softmax"] == SOLUTIONS["masked_softmax"]
    assert submission.flags == []
    place = copied["cells"].index(cell_of(copied, "masked_softmax"))
    second = json.loads(json.dumps(copied["cells"][place + 1]))
    second["source"] = "def masked_softmax(scores, mask): return 0"
    copied["cells"].append(second)
    submission = read(copied)
    assert answers(RELEASED.cells, submission)["masked_softmax"] == second["source"]
    assert submission.flags == ["masked_softmax: 2 different answers, one of them is marked"]


def test_a_deleted_answer_is_flagged_and_an_own_cell_found_by_its_name():
    submission = read(without_cell(handed_in(), "luong_score"))
    assert "luong_score" not in answers(RELEASED.cells, submission)
    assert submission.flags == ["luong_score: the answer cell is gone"]
    rewritten = without_cell(handed_in(), "luong_score")
    own = {"cell_type": "code", "metadata": {}, "source": SOLUTIONS["luong_score"], "id": "own", "outputs": []}
    rewritten["cells"].append(own)
    assert answers(RELEASED.cells, read(rewritten))["luong_score"] == SOLUTIONS["luong_score"]


def test_an_own_cell_counts_where_the_stub_was_left():
    notebook = only()
    notebook.cells.append(nbformat.v4.new_code_cell("import math\n\n" + SOLUTIONS["luong_score"]))
    assert answers(RELEASED.cells, read(json.loads(nbformat.writes(notebook))))["luong_score"].startswith("import math")


def test_a_touched_stub_gives_way_to_a_finished_answer():
    stub = cell_of(RELEASED, "luong_score").source + "  # see my own cell below"
    notebook = only(luong_score=stub)
    notebook.cells.append(nbformat.v4.new_code_cell(SOLUTIONS["luong_score"]))
    submission = read(json.loads(nbformat.writes(notebook)))
    assert answers(RELEASED.cells, submission)["luong_score"] == SOLUTIONS["luong_score"]
    assert submission.flags == ["luong_score: 2 different answers, one of them is marked"]


def test_what_is_no_unicode_and_what_terminals_obey_is_replaced(tmp_path):
    notebook = only(luong_score="x = '\\ud800'")
    text = nbformat.writes(notebook).replace("\\\\ud800", "\\ud800")
    (one,) = taken(put(tmp_path, {"e.zip": zipped({"a\x1b[31m/x.ipynb": text})}) / "e.zip")
    assert one.file == "a?[31m/x.ipynb"
    assert answers(RELEASED.cells, one)["luong_score"] == "x = '?'"


def test_a_huge_cell_is_not_parsed():
    notebook = only()
    notebook.cells.append(nbformat.v4.new_code_cell("x = 1\n" * 500_000 + SOLUTIONS["luong_score"]))
    assert len(answers(RELEASED.cells, read(json.loads(nbformat.writes(notebook))))["luong_score"]) > 2_000_000


def test_zips_in_zips_share_one_budget(tmp_path, monkeypatch):
    monkeypatch.setattr("coursekit.grading.intake.LARGEST_ZIP", 3 * 2**20)
    inner = zipped({f"{i}.ipynb": b" " * 2**20 for i in range(3)})
    outer = zipped({f"s{i}/z.zip": inner for i in range(5)})
    found = taken(put(tmp_path, {"e.zip": outer}) / "e.zip")
    assert sum("the zip holds over" in s.problem for s in found) >= 3


def test_the_time_of_packing_is_not_the_time_of_handing_in(tmp_path):
    data = zipped({f"s{i}/x.ipynb": TEXT for i in range(4)})
    assert {s.handed_in for s in taken(put(tmp_path, {"e.zip": data}) / "e.zip")} == {None}


def test_later_numbers_are_later(tmp_path):
    names = [f"doejane_815_99_{NAME}.ipynb", f"doejane_815_100_{NAME}-2.ipynb", f"doejane_815_100_{NAME}-10.ipynb"]
    found = taken(put(tmp_path, {"e.zip": zipped(dict.fromkeys(names, TEXT))}) / "e.zip")
    assert [s.file for s in found if not s.problem] == [names[2]]


def test_an_answer_that_does_not_parse_is_found_by_its_name():
    broken = "def luong_score(query, keys, W=None):\n    return query @@ keys)"
    assert answers(RELEASED.cells, read(bare(only(luong_score=broken)))) == {"luong_score": broken}


def test_sources_as_strings_and_windows_line_ends():
    rewritten = json.loads(nbformat.writes(only(luong_score=SOLUTIONS["luong_score"])))
    for cell in rewritten["cells"]:
        cell["source"] = "".join(cell["source"]).replace("\n", "\r\n")
    assert answers(RELEASED.cells, read(rewritten)) == {"luong_score": SOLUTIONS["luong_score"]}


def test_spaces_do_not_make_an_answer():
    rewritten = json.loads(nbformat.writes(only()))
    cell_of(rewritten, "luong_score")["source"] = cell_of(RELEASED, "luong_score").source.replace("    ", "  ") + "\n\n"
    assert answers(RELEASED.cells, read(rewritten)) == {}
