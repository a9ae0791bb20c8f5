"""Whose a hand-in is: the outermost part decides alone, and what is in doubt is booked for nobody."""

import io
import itertools
import os
import shutil
import time
import zipfile
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coursekit.grading import GradingError
from coursekit.grading.identity import (
    LONGEST_ID,
    Part,
    Student,
    clean,
    identify,
    name_in,
    plain_stem,
    printable,
    read_part,
    read_roster,
    time_of,
)
from coursekit.grading.intake import owner_of, submissions

NAME = "02_seq2seq_attention"
CLASS = [
    Student("s1", "Jane Doe", "jane.doe@example.org", "4711"),
    Student("s2", "José Núñez Ibarra", "jn@example.org", "815"),
    Student("s3", "Ann Lee", "ann@example.org"),
    Student("s4", "Nan Eel", "nan@example.org"),
]


def whose(text, roster=CLASS, *, folder=True):
    """(student, flags, doubts) of one part."""
    (one,), doubts = identify([read_part(text, NAME, folder=folder)], roster)
    return one.student, one.flags, doubts


def students(*texts, roster=CLASS, folder=True):
    found, doubts = identify([read_part(text, NAME, folder=folder) for text in texts], roster)
    return [one.student for one in found], doubts


# --- what a part says ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "layout", "key", "name"),
    [
        ("Doe Jane_4711_assignsubmission_file_", "moodle", "4711", "Doe Jane"),
        ("Doe Jane_4711_assignsubmission_onlinetext_", "moodle", "4711", "Doe Jane"),
        ("a_12_34_b_4711_assignsubmission_file_", "moodle", "4711", "a_12_34_b"),
        ("doejane_815_99_x.ipynb", "plain", "doejane_815_99_x.ipynb", ""),
        ("alice+02_x+2026-11-30 23:59:59.123456 UTC", "nbgrader", "alice", ""),
        ("al+ice+02_x+2026-11-30 23:59:59.123456 UTC+Zm9vYmFy", "nbgrader", "al+ice", ""),
        ("alice+02_x+yesterday", "plain", "alice+02_x+yesterday", ""),
        (NAME, "plain", "", ""),
    ],
)
def test_a_folder_says(text, layout, key, name):
    part = read_part(text, NAME, folder=True)
    assert (part.layout, part.key, part.name) == (layout, key, name)


@pytest.mark.parametrize(
    ("text", "layout", "key", "name", "late"),
    [
        ("Doe Jane_4711_assignsubmission_file_x.ipynb", "moodle", "4711", "Doe Jane", False),
        ("doejane_815_99_x.ipynb", "canvas", "815", "doejane", False),
        ("doe_jane_LATE_815_99_x.zip", "canvas", "815", "doe_jane", True),
        ("doejane_815_99_bob_7_8_x.ipynb", "canvas", "815", "doejane", False),
        ("_815_99_x.ipynb", "plain", "815_99_x", "", False),
        (f"alice_{NAME} (2).ipynb", "plain", "alice", "", False),
        (f"{NAME}.ipynb", "plain", "", "", False),
    ],
)
def test_a_file_says(text, layout, key, name, late):
    part = read_part(text, NAME, folder=False)
    assert (part.layout, part.key, part.name, part.late) == (layout, key, name, late)


def test_nbgraders_exchange_says_when_and_for_what():
    part = read_part("alice+02_x+2026-11-30 23:59:59.123456 UTC+Zm9v", NAME, folder=True)
    assert part.handed_in == datetime(2026, 11, 30, 23, 59, 59, 123456, UTC)
    assert part.exercise == "02_x"
    assert read_part("alice+02_x+2026-11-30 23:59:59.1 CET", NAME, folder=True).handed_in is None
    for year in ("0001", "9999", "1979", "2101"):
        assert read_part(f"alice+02_x+{year}-12-31 23:59:59.1 UTC", NAME, folder=True).handed_in is None


@pytest.mark.parametrize(
    "name",
    ["x.ipynb", "Copy of x.ipynb", "x (1).ipynb", "x-Copy1.ipynb", "Kopie von x (2).ipynb", "x - Copy (3).ipynb"],
)
def test_what_browsers_and_colab_add_to_names(name):
    assert plain_stem(name) == "x"


@pytest.mark.parametrize("name", ["x (a).ipynb", "x ().ipynb", "copy.ipynb", "x-copycat.ipynb"])
def test_what_only_looks_added_stays(name):
    assert plain_stem(name) == name.removesuffix(".ipynb")


@pytest.mark.parametrize(
    "text", [" " * 32_000, "(1)" * 10_000, "-" * 32_000, "_1" * 16_000, "+" * 32_000, "\t " * 16_000]
)
def test_long_names_are_read_in_no_time(text):
    start = time.process_time()
    for end in ("", "x", ".ipynb", "_1_assignsubmission_"):
        for folder in (True, False):
            read_part(text + end, NAME, folder=folder)
        name_in(text + end, NAME), clean(text + end), printable(text + end)
    assert time.process_time() - start < 2


# --- the roster ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "folder", "student"),
    [
        ("Doe Jane_4711_assignsubmission_file_", True, "s1"),
        ("JANE DOÉ_4711_assignsubmission_file_x.ipynb", False, "s1"),
        ("Smith Jane_4711_assignsubmission_file_", True, "s1"),  # the number decides where no name contradicts it
        ("Lee Ann_9_assignsubmission_file_", True, "s3"),  # the roster has no number for her
        ("Lee Annabel_9_assignsubmission_file_", True, ""),
        ("nunezibarrajose_815_1_x.ipynb", False, "s2"),
        ("leeann_7_1_x.ipynb", False, "s3"),
        ("eelnan_7_1_x.ipynb", False, "s4"),  # the same letters as Ann Lee
        ("neelna_7_1_x.ipynb", False, ""),
        ("jane.doe", True, "s1"),
        ("Jane.Doe@example.org", True, "s1"),
        ("Doe, Jane", True, "s1"),
        ("S3", True, "s3"),
        (f"s3_{NAME}.ipynb", False, "s3"),
        ("4711", True, ""),  # a number means something in a platform's name only
        ("Participant_s3_assignsubmission_file_", True, ""),
        ("stranger", True, ""),
    ],
)
def test_the_roster_decides(text, folder, student):
    found, flags, doubts = whose(text, folder=folder)
    assert (found, "not in the roster" in flags, doubts) == (student, student == "", {})


def test_a_number_that_equals_somebodys_id_is_no_match():
    roster = [Student("4711", "Bob Miller", platform_id="12"), Student("12", "Jane Doe", platform_id="4711")]
    assert whose("Doe Jane_4711_assignsubmission_file_", roster)[0] == "12"
    assert whose("Poe Ann_13_assignsubmission_file_", [Student("13", "Bob Miller")])[0] == ""
    assert whose("poeann_13_1_x.ipynb", [Student("13", "Bob Miller")], folder=False)[0] == ""


@pytest.mark.parametrize(
    ("text", "folder", "sentence", "doubted"),
    [
        (
            "Lee Ann_4711_assignsubmission_file_",
            True,
            "'Lee Ann_4711_assignsubmission_file_': the number 4711 is s1's, and the name is s3's, so it is not booked",
            {"s1", "s3"},
        ),
        (
            "Doe Jane_9999_assignsubmission_file_",
            True,
            "'Doe Jane_9999_assignsubmission_file_': the name is s1's, but the roster's platform_id for s1 is 4711, "
            "not 9999, so it is not booked",
            {"s1"},
        ),
        (
            "leeann_815_1_x.ipynb",
            False,
            "'leeann_815_1_x.ipynb': the number 815 is s2's, and the name is s3's, so it is not booked",
            {"s2", "s3"},
        ),
        (
            "Lee Ann_815_assignsubmission_file_Doe Jane_4711_assignsubmission_file_x.ipynb",
            False,
            "its name has Moodle's '_NUMBER_assignsubmission_' more than once, so it is not booked",
            {"s2", "s3"},
        ),
        (
            "leeann_7_1_Doe Jane_4711_assignsubmission_file_x.ipynb",
            False,
            "its name could be Canvas's or Moodle's, so it is not booked",
            {"s1", "s3"},
        ),
    ],
)
def test_a_part_that_says_two_things_is_nobodys(text, folder, sentence, doubted):
    found, flags, doubts = whose(text, folder=folder)
    assert (found, flags) == ("", [sentence])
    theirs = sentence if repr(text) in sentence else f"{text!r}: {sentence}"  # in their rows it says whose name it is
    assert doubts == {student: [theirs] for student in doubted}


def test_two_of_the_same_name_are_not_guessed():
    twins = [Student("a", "Jane Doe", platform_id="1"), Student("b", "Doe Jane", "a@example.org")]
    assert whose("Jane Doe", twins) == (
        "",
        ["'Jane Doe' could be a or b, so it is not booked"],
        {s: ["'Jane Doe' could be a or b, so it is not booked"] for s in "ab"},
    )
    assert whose("Doe Jane_1_assignsubmission_file_", twins)[0] == "a"
    assert whose("Doe Jane_2_assignsubmission_file_", twins)[0] == ""
    assert whose("a", twins)[0] == "", "an id of one and an address of the other"
    assert whose("b", twins)[0] == "b"


def test_two_parts_of_one_student_are_booked_for_nobody():
    found, doubts = students("s1", "Jane Doe", "s2")
    assert found == ["", "", "s2"]
    assert doubts == {"s1": ["'s1' and 'Jane Doe' become one student (s1), so none is booked: rename one"]}
    found, _ = students("Doe Jane_4711_assignsubmission_file_", "s1")
    assert found == ["", ""]
    found, _ = students("s1", "s1")
    assert found == ["s1", "s1"], "the same folder in two exports"


def test_a_conflict_of_others_leaves_ones_own_hand_in():
    found, doubts = students("Lee Ann_4711_assignsubmission_file_", "Lee Ann_9_assignsubmission_file_")
    assert found == ["", "s3"]
    assert set(doubts) == {"s1", "s3"}


def test_several_files_of_one_student_are_no_conflict():
    moodle = ["Doe Jane_4711_assignsubmission_file_a.ipynb", "Doe Jane_4711_assignsubmission_file_b.ipynb"]
    canvas = ["doejane_LATE_815_98_a.ipynb", "doejane_815_99_b.ipynb"]
    for roster, expected in (([], ["4711", "4711", "815", "815"]), (CLASS[:1], ["s1", "s1", "", ""])):
        assert students(*moodle, *canvas, roster=roster, folder=False)[0] == expected
    versions = [f"alice+{NAME}+2026-11-{day} 23:59:59.1 UTC" for day in (29, 30)]
    assert students(*versions, roster=[]) == (["alice", "alice"], {})


@pytest.mark.parametrize(
    ("first", "second", "student"),
    [
        ("a b", "a_b", "a_b"),
        ("Alice", "alice", "Alice"),
        ("Doe_7_assignsubmission_file_", "7", "7"),
        ("Doe_7_assignsubmission_file_", "Poe_7_assignsubmission_file_", "7"),
    ],
)
def test_without_a_roster_two_parts_that_become_one_are_booked_for_nobody(first, second, student):
    found, doubts = students(first, second, "c", roster=[])
    assert found == ["", "", "c"]
    assert f"'{first}' and '{second}' become one student ({student}), so none is booked" in doubts[student][0]


def test_a_roster_with_a_mistake_is_refused(tmp_path):
    path = tmp_path / "roster.csv"
    for text, words in {
        "name\nJane\n": "column 'id'",
        "id,name\na,x\na,y\n": "more than one line with the id 'a'",
        "id,name\nA,x\na,y\n": "more than one line with the id 'A'",
        "id,platform_id\na,1\nb,1\nc,\nd,\n": "more than one line with the platform_id '1'",
        "id\na/b\n": "letters, digits",
        f"id\n{'ä' * 41}\n": "at most 80 bytes",
    }.items():
        path.write_text(text, encoding="utf-8")
        with pytest.raises(GradingError, match=words):
            read_roster(path)
    path.write_text("id;name\ns1;Doe, Jane\n")
    assert read_roster(path) == [Student("s1", "Doe, Jane")]
    path.write_text("\ufeffid,name,email\n s1 ,Jane,\n,,\n", encoding="utf-8")
    assert read_roster(path) == [Student("s1", "Jane")]


# --- how it is written ---------------------------------------------------------------------------------


def test_names_of_folders_are_harmless():
    assert clean("../../etc/passwd") == "etc_passwd"
    assert clean("a b/ü@x.de") == "a_b_ü@x.de"
    assert clean("..") == ""
    assert clean("\ud800\0x") == "x"


@given(st.text(min_size=1, max_size=200), st.text(min_size=1, max_size=200))
def test_ids_fit_into_file_systems_and_long_ones_stay_different(one, two):
    long = "𝒜" * 80
    for text in (one, two, long + one):
        name = clean(text)
        assert len(name.encode()) <= LONGEST_ID
        assert clean(name) == name, "a roster made of these is accepted"
        assert not {"/", "\0", "\\"} & set(name)
        assert name[:1] != "."
    if clean(one) and clean(two) and clean(one) != clean(two):
        assert clean(long + one) != clean(long + two)


def test_what_terminals_and_readers_obey_is_replaced():
    assert printable("a\x1b[31m\u202eb\ud800\u2028\0") == "a?[31m?b? ?"


@pytest.mark.parametrize(
    "stamp",
    [
        -1e20,
        1e20,
        float("nan"),
        float("inf"),
        0,
        (1980, 13, 1, 0, 0, 0),
        (2101, 1, 1, 0, 0, 0),
        (2026, 2, 30, 0, 0, 0),
    ],
)
def test_times_that_cannot_be_are_unknown(stamp):
    assert time_of(stamp) is None


def test_times_can_be_printed_in_every_zone(monkeypatch):
    for zone in ("UTC+12", "UTC-14", "Europe/Berlin"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        for stamp in ((1980, 1, 2, 0, 0, 0), (2100, 12, 30, 23, 59, 58), 4133894400.0):
            time_of(stamp).astimezone().isoformat()
    monkeypatch.undo()
    time.tzset()


# --- nobody changes what is another's ------------------------------------------------------------------


def notebook(answer):
    cell = '{"cell_type": "code", "metadata": {"nbgrader": {"grade_id": "f"}}, "source": "%s"}'
    return ('{"cells": [%s]}' % (cell % answer)).encode()


@pytest.fixture(scope="module")
def small_home(tmp_path_factory):
    """A course with one small exercise, so that many classes can be read."""
    folder = tmp_path_factory.mktemp("home") / "exercises" / NAME
    folder.mkdir(parents=True)
    stub = notebook("stub").replace(b'"f"', b'"f", "solution": true')
    (folder / f"{NAME}.ipynb").write_bytes(stub)
    return folder.parents[1]


def zipped(entries, when=(2099, 1, 1, 0, 0, 0)):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, content in entries:
            archive.writestr(zipfile.ZipInfo(name, when), content)
    return data.getvalue()


LAYOUTS = {
    "moodle": ("{name}_{number}_assignsubmission_file_/", True),
    "moodle, flat": ("{name}_{number}_assignsubmission_file_", False),
    "canvas": ("{joined}_{number}_{number}9_", False),
    "submitted": (f"submitted/{{id}}/{NAME}/", True),
    "exchange": (f"{{id}}+{NAME}+2026-11-0{{day}} 12:00:00.000001 UTC+Zm9v/", True),
    "folders": ("{id}/", True),
    "names": ("{name}/", True),
}
NAMES = ["Jane Doe", "José Núñez", "Ann Lee", "Nan Eel"]
ROSTER = [Student(f"s{n}", name, f"{name[:3]}@x.org", f"47{n}" * (n % 2)) for n, name in enumerate(NAMES)]
HOSTILE = [
    f"{NAME}.ipynb",
    "s1.ipynb",
    "s1/x.ipynb",
    "José Núñez_471_assignsubmission_file_/x.ipynb",
    "José Núñez_471_assignsubmission_file_x.ipynb",
    "josenunez_471_4719_x.ipynb",
    f"s1+{NAME}+2099-11-30 23:59:59.1 UTC/x.ipynb",
    f"submitted/s1/{NAME}/{NAME}.ipynb",
    "../s1/x.ipynb",
    "/s1/x.ipynb",
    "timestamp.txt",
    "s1/timestamp.txt",
    "x\x1b\u202e.ipynb",
    ".ipynb",
    "s2.zip",
]
contents = st.one_of(
    st.sampled_from([notebook("own"), b"{", b"", b"2099-01-01 00:00:00 UTC", b"0001-01-01T00:00:00+14:00"]),
    st.lists(st.sampled_from(HOSTILE), max_size=4).map(
        lambda names: zipped((n, notebook("inner")) for n in set(names))
    ),
)
handed_in = st.dictionaries(st.sampled_from(HOSTILE), contents, max_size=4)


def exported(layout, folder, of_the_first):
    """The class as the platform exports it, with what the first student handed in; the parts that it wrote."""
    pattern, deep = LAYOUTS[layout]
    parts = []
    with zipfile.ZipFile(folder / "export.zip", "w") as archive:
        for n, student in enumerate(ROSTER):
            joined = "".join(reversed(student.name.lower().split()))
            part = pattern.format(id=student.id, name=student.name, joined=joined, number=f"47{n}", day=n + 1)
            parts.append(part)
            entries = {f"{NAME}.ipynb": notebook(f"answer {n}")} if n else of_the_first
            for name, content in entries.items():
                flat = name.replace("/", "_") if not deep else name
                archive.writestr(zipfile.ZipInfo(part + flat, (2026, 11, n + 1, 12, 0, 0)), content)
    return [part.removeprefix("submitted/") for part in parts]


def read(folder, roster, home):
    collected = submissions([folder / "export.zip"], NAME, roster, home)
    return collected.found, collected.doubts


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("with_roster", [True, False])
def test_what_one_hands_in_changes_nothing_for_others(layout, with_roster, tmp_path_factory, small_home):
    folder = tmp_path_factory.mktemp("class")
    roster = ROSTER if with_roster else []
    exported(layout, folder, {f"{NAME}.ipynb": notebook("answer 0")})
    honest, no_doubts = read(folder, roster, small_home)
    assert no_doubts == {}
    assert len({one.student for one in honest} - {""}) == len(ROSTER)
    assert [one.answers for one in honest] == [{"f": f"answer {NAMES.index(n)}"} for n in names_of(honest, layout)]
    if layout != "submitted":
        assert all(one.handed_in for one in honest)

    @settings(max_examples=10, deadline=None, database=None)
    @given(handed_in)
    def others_stay_as_they_are(hostile):
        parts = exported(layout, folder, hostile)
        found, doubts = read(folder, roster, small_home)
        mine = [one for one in found if one.file.startswith(parts[0].rstrip("/"))]
        assert [one for one in found if one not in mine] == [o for o in honest if not o.file.startswith(parts[0])]
        own = next(one for one in honest if one.file.startswith(parts[0]))
        assert {one.student for one in mine} <= {own.student, ""}
        times = {own.handed_in, None} if layout == "submitted" else {own.handed_in}
        assert {one.handed_in for one in mine} <= times
        assert set(doubts) <= {student.id for student in roster}
        assert all(
            "more than once" in words or "Canvas's or Moodle's" in words
            for sentences in doubts.values()
            for words in sentences
        )
        assert bool(mine) >= bool([name for name in hostile if not name.endswith("timestamp.txt")])

    others_stay_as_they_are()


def names_of(honest, layout):
    """The students' names in the order of the rows: the platform's parts sorted."""
    pattern = LAYOUTS[layout][0]
    order = {}
    for n, s in enumerate(ROSTER):
        joined = "".join(reversed(s.name.lower().split()))
        order[pattern.format(id=s.id, name=s.name, joined=joined, number=f"47{n}", day=n + 1)] = s.name
    return [order[part] for part in sorted(order)]


PARTS = st.sampled_from(
    [
        *("a", "A", "a b", "a_b", "s1", "s2", "S1", "Jane Doe", "doe jane", "jane.doe", "471", "472"),
        *(
            f"{name}_{number}_assignsubmission_file_"
            for name in ("Jane Doe", "Ann Lee", "471")
            for number in (471, 472, 9)
        ),
        *(f"{name}_{number}_1_x.ipynb" for name in ("doejane", "leeann", "eelnan") for number in (471, 473)),
        *(f"{student}+{NAME}+2026-11-30 12:00:00.1 UTC" for student in ("s1", "a", "471")),
        "Jane Doe_471_assignsubmission_file_Ann Lee_473_assignsubmission_file_x.ipynb",
    ]
)
SCHOOL = [
    Student("s1", "Jane Doe", "jane.doe@x.org", "471"),
    Student("s2", "Ann Lee", "", "472"),
    Student("471", "Nan Eel"),
    Student("a", "Jane Doe", "s2@x.org"),
]


@given(st.lists(PARTS, max_size=6), PARTS, st.sampled_from([SCHOOL, SCHOOL[:2], SCHOOL[1:], []]), st.randoms())
def test_parts_that_collide_never_replace_each_other(texts, another, roster, random):
    def parts_of(texts):
        return [read_part(text, NAME, folder=not text.endswith(".ipynb")) for text in texts]

    parts = parts_of(texts)
    found, doubts = identify(parts, roster)
    for (one, his), (two, hers) in itertools.combinations(zip(parts, found), 2):
        if his.student and his.student.casefold() == hers.student.casefold():
            assert one.source == two.source
    for one in found:
        assert one.student or one.flags, "who is nobody is told why"
        assert not one.student or not one.flags
    shuffled = list(range(len(texts)))
    random.shuffle(shuffled)
    again, doubts_again = identify([parts[n] for n in shuffled], roster)
    assert [again[shuffled.index(n)].student for n in range(len(texts))] == [one.student for one in found]
    assert set(doubts_again) == set(doubts)
    more, more_doubts = identify([*parts, *parts_of([another])], roster)
    for before, after in zip(found, more):
        assert after.student in (before.student, ""), "another's part never gives a hand-in to somebody else"
        if after.student != before.student:
            assert before.student in more_doubts or before.student.casefold() in map(str.casefold, more_doubts)


def test_who_made_a_folder_is_known_without_a_name_for_the_account(tmp_path):
    if os.name == "nt" or os.geteuid():
        pytest.skip("only root can give a folder away")
    os.chown(tmp_path, 30_001, 30_001)
    assert owner_of(tmp_path) == "user number 30001"


def test_a_folder_of_the_exchange_that_another_student_made_is_nobodys(tmp_path, monkeypatch, small_home):
    """Every student may write into nbgrader's ``inbound``; the owner of a folder is what the system says."""
    for student in ("bob", "mallory"):
        (tmp_path / f"{student}+{NAME}+2026-11-30 12:00:00.1 UTC").mkdir()
        (tmp_path / f"{student}+{NAME}+2026-11-30 12:00:00.1 UTC" / "x.ipynb").write_bytes(notebook("x"))
    monkeypatch.setattr("coursekit.grading.intake.owner_of", lambda path: "jovyan")
    both = submissions([tmp_path], NAME, [], small_home)
    assert [one.student for one in both.found] == ["bob", "mallory"], "one account for all says nothing"
    assert not [one.flags for one in both.found if one.flags]
    second = tmp_path / f"bob+{NAME}+2026-12-01 12:00:00.1 UTC+x"
    second.mkdir()
    (second / "x.ipynb").write_bytes(notebook("x = 3"))
    flags = [one.flags for one in submissions([tmp_path], NAME, [], small_home).found]
    assert [bool(one) for one in flags] == [True, True, False], "two of one name: nobody can tell who made them"
    assert "a copy of nbgrader's exchange" in flags[0][0]
    shutil.rmtree(second)
    monkeypatch.setattr("coursekit.grading.intake.owner_of", lambda path: "mallory")
    both = submissions([tmp_path], NAME, [Student("bob"), Student("mallory")], small_home)
    assert [one.student for one in both.found] == ["", "mallory"]
    assert both.found[0].flags == ["its folder says bob, but belongs to mallory, so it is not booked"]
    assert set(both.doubts) == {"bob", "mallory"}
    assert os.name == "nt" or Part("x").source == ("plain", "x")
    again = tmp_path / f"bob+{NAME}+2099-01-01 00:00:00.0 UTC"
    again.mkdir()
    (again / "x.ipynb").write_bytes(notebook("x = 2"))
    monkeypatch.setattr("coursekit.grading.intake.owner_of", lambda path: "u2" if "2099" in path.name else "u1")
    three = submissions([tmp_path], NAME, [Student("bob"), Student("mallory")], small_home)
    assert [one.student for one in three.found] == ["", "", ""], "two accounts for one student: nobody is chosen"
    assert "and they belong to u1 and u2" in three.doubts["bob"][0]
    monkeypatch.setattr("coursekit.grading.intake.owner_of", lambda path: "u3" if "2099" in path.name else "u1")
    again.rename(tmp_path / f"anna+{NAME}+2099-01-01 00:00:00.0 UTC")
    three = submissions([tmp_path], NAME, [Student(name) for name in ("anna", "bob", "mallory")], small_home)
    assert [one.student for one in three.found] == ["anna", "", ""], "one account with the names of two"
    assert "whoever made it made one for bob and mallory" in three.doubts["bob"][0]


def exchange(folder, monkeypatch, *made):
    """An ``inbound`` with a folder of the exchange, or a file, for each name and owner."""
    inbound, owners = folder / "inbound", {}
    for number, (name, owner) in enumerate(made):
        path = inbound / (f"{name}+{NAME}+2026-11-{number + 1:02} 12:00:00.1 UTC" if name[0] != "." else name[1:])
        owners[path.name] = owner
        inbound.mkdir(exist_ok=True, parents=True)
        if name[0] == ".":
            path.write_bytes(notebook("a file"))
        else:
            path.mkdir()
            (path / "x.ipynb").write_bytes(notebook(f"by {owner}"))
    monkeypatch.setattr("coursekit.grading.intake.owner_of", lambda path: owners[path.name])
    return inbound


SCHOOLMATES = [Student("anna"), Student("bob"), Student("s3", "Cy Young", "cy@x.org"), Student("mallory")]


@pytest.mark.parametrize("roster", [SCHOOLMATES, []])
def test_in_the_exchange_nobody_takes_the_place_of_the_rightful_owner(tmp_path, monkeypatch, small_home, roster):
    honest = [(name, name) for name in ("anna", "bob", "cy")]
    forged = [(name, "mallory") for name in ("anna", "anna", "bob", "ANNA", "Cy Young", "cy@x.org", "mallory")]
    files = [(".anna", "mallory"), (".bob.ipynb", "mallory"), (".cy_1_2_x.ipynb", "mallory")]
    found = submissions([exchange(tmp_path, monkeypatch, *honest, *forged, *files)], NAME, roster, small_home)
    booked = {one.student: one.answers["f"] for one in found.found if one.student}
    cy = "s3" if roster else "cy"
    assert booked == {"anna": "by anna", "bob": "by bob", cy: "by cy", "mallory": "by mallory"}
    refused = [one for one in found.found if not one.student and "but belongs to mallory" in one.flags[0]]
    assert len(refused) == 6
    assert len([one for one in refused if not one.problem]) == 1, "all of them cost one marking"
    assert {"anna", "bob", "mallory", *(["s3"] if roster else [])} <= set(found.doubts)
    (others,) = [one for one in found.found if one.file == "inbound"]
    assert others.problem.endswith("TIME here: 'anna' and 'bob.ipynb' and 'cy_1_2_x.ipynb'")


@pytest.mark.parametrize("roster", [SCHOOLMATES, []])
def test_in_the_exchange_nobody_hands_in_for_one_who_did_not(tmp_path, monkeypatch, small_home, roster):
    made = [("anna", "mallory"), ("bob", "bob"), ("zoe", "zoe")]
    found = submissions([exchange(tmp_path, monkeypatch, *made)], NAME, roster, small_home)
    assert [one.student for one in found.found] == ["", "bob", "" if roster else "zoe"]
    assert found.found[0].flags == ["its folder says anna, but belongs to mallory, so it is not booked"]
    assert roster == [] or found.found[2].flags[0] == "not in the roster"


def test_accounts_that_are_called_otherwise_or_have_no_name_are_told_by_one_name_each(
    tmp_path, monkeypatch, small_home
):
    made = [("anna", "user number 7"), ("bob", "user number 8"), ("mallory", "user number 9")]
    for roster in (SCHOOLMATES, []):
        found = submissions([exchange(tmp_path / f"{len(roster)}", monkeypatch, *made)], NAME, roster, small_home)
        assert [one.student for one in found.found] == ["anna", "bob", "mallory"]
    other = [(name, owner.replace("user number ", "u")) for name, owner in [*made, ("bob", "u9")]]
    found = submissions([exchange(tmp_path / "other", monkeypatch, *other)], NAME, SCHOOLMATES, small_home)
    assert [one.student for one in found.found] == ["anna", "", "", ""]
    own = [*other, ("u9", "u9")]  # who hands in by the name of the account changes nothing for others
    found = submissions([exchange(tmp_path / "own", monkeypatch, *own)], NAME, SCHOOLMATES, small_home)
    assert [one.student for one in found.found] == ["anna", "", "", "", ""]


def test_the_exchange_may_be_full_of_what_one_made(tmp_path, monkeypatch, small_home):
    monkeypatch.setattr("coursekit.grading.intake.MOST_ENTRIES", 20)
    monkeypatch.setattr("coursekit.grading.intake.MOST_FOLDERS", 5)
    made = [("anna", "anna"), *(("mallory", "mallory") for _ in range(25)), ("bob", "bob")]
    inbound = exchange(tmp_path, monkeypatch, *made, *((f".{n}", "mallory") for n in range(25)))
    found = submissions([inbound], NAME, [], small_home).found
    assert [one.student for one in found if not one.problem] == ["anna", "bob", "mallory"]
    assert len(found) == 1 + 1 + 5 + 2
    assert [one.problem for one in found if one.file == "inbound"] == [
        "not read: the oldest 20 of mallory's folders, of which 5 are read",
        "not read, since nbgrader makes only folders called STUDENT+EXERCISE+TIME here: '0' and '1' and '10' and '11' "
        "and '12' and 20 others",
    ]
    (latest,) = [one for one in found if one.student == "mallory" and not one.problem]
    assert latest.handed_in.day == 26
    monkeypatch.setattr("coursekit.grading.intake.owner_of", lambda path: "jovyan")
    with pytest.raises(GradingError, match="more than 20 folders, all of one owner"):
        submissions([inbound], NAME, [], small_home)


def test_a_file_that_two_platforms_could_have_written_is_the_ones_that_wrote_the_others(tmp_path, small_home):
    """Whoever can choose a file's name could else put each victim's row in doubt, one a file."""
    odd = "adam_815_99_bob_4711_assignsubmission_file.ipynb"
    roster = [Student("a", "Adam"), Student("b", "Bob", platform_id="4711"), Student("c", "Cleo")]
    (tmp_path / odd).write_bytes(notebook("x = 1"))
    alone = submissions([tmp_path], NAME, roster, small_home)
    assert alone.found[0].student == ""
    assert "Canvas's or Moodle's" in alone.found[0].flags[0]
    (tmp_path / "cleo_816_98_x.ipynb").write_bytes(notebook("x = 2"))
    canvas = submissions([tmp_path], NAME, roster, small_home)
    assert [one.student for one in canvas.found] == ["a", "c"]
    assert not canvas.doubts
