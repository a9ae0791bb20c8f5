"""A class of over thirty hands in; it is marked by one command, killed in the middle, and marked to the end."""

import csv
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import zipfile
from contextlib import closing

import nbformat
import pytest

from tests.grading.answers import seq2seq_attention as answers
from tests.grading.classroom import (
    NAME,
    POINTS,
    bare,
    forged,
    handed_in,
    mutants,
    only,
    packed,
    saved_by_colab,
    with_copied_cells,
    with_equal_ids,
    without_cell,
    without_grading_metadata,
)

pytestmark = [pytest.mark.usefixtures("bubblewrap"), pytest.mark.slow]

ON_TIME, LATE = (2026, 11, 30, 12, 0, 0), (2026, 12, 2, 14, 30, 0)


def the_class():
    """(file's name, content, what the total must be or None, a word that the flags must hold)."""
    name = f"{NAME}.ipynb"
    yield name, handed_in(), 90, ""
    for style in (0, 1):
        yield name, handed_in(**{part: all_of_it[style] for part, all_of_it in answers.RIGHT.items()}), 90, ""
    for changed, points in packed().values():
        if "train" not in changed:  # these did not get to the training, which takes long
            changed, points = changed | {"train": None}, points | {"train": 0}
        yield name, handed_in(**changed), sum(points.values()), ""
    nothing = dict.fromkeys(POINTS)
    yield name, handed_in(**nothing), 0, ""
    yield name, handed_in(reversal_batch=None, train=None), 65, ""
    yield f"Copy of {name}", saved_by_colab(handed_in(train=None)), 75, ""
    yield name.replace(".ipynb", " (1).ipynb"), without_grading_metadata(handed_in(train=None)), 75, ""
    yield name, bare(handed_in(train=None)), 75, ""
    yield name, with_equal_ids(handed_in(train=None)), 75, ""
    yield name, with_copied_cells(handed_in(train=None), "masked_softmax"), 75, ""
    yield name, without_cell(handed_in(train=None), "luong_score"), 60, "luong_score: the answer cell is gone"
    yield name, forged(only(luong_score=answers.RIGHT["luong_score"][0])), 15, ""
    yield name, "{ broken", None, "not JSON"
    yield name, '{"cells": 3}', None, "not a notebook"
    yield name, " " * (21 * 2**20), None, "over 20 MB"
    yield "essay.pdf", "%PDF-1.7", None, "not a notebook: a .pdf file"
    yield name, handed_in(train=None), 75, "late by 1 d 14 h"


CLASS = list(the_class())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("class")
    with zipfile.ZipFile(folder / "export.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for number, (name, content, _, flag) in enumerate(CLASS):
            if isinstance(content, nbformat.NotebookNode):
                content = nbformat.writes(content)
            elif isinstance(content, dict):
                content = json.dumps(content)
            place = f"Student {number:02}_{1000 + number}_assignsubmission_file_/{name}"
            archive.writestr(zipfile.ZipInfo(place, LATE if "late" in flag else ON_TIME), content)
    with (folder / "roster.csv").open("w") as file:
        print("id,name,email,platform_id", file=file)
        for number in range(len(CLASS) + 1):
            print(f"s{number:02},Student {number:02},s{number:02}@example.org,{1000 + number}", file=file)
    return folder


def environment(folder):
    (folder / "tmp").mkdir(exist_ok=True)
    return {**os.environ, "COLUMNS": "200", "TMPDIR": str(folder / "tmp")}  # seen in the sandbox's command line


def command(folder):
    words = [sys.executable, "-m", "coursekit", "grade", "02", str(folder / "export.zip"), "--out", str(folder / "out")]
    return [*words, "--roster", str(folder / "roster.csv"), "--due", "2026-12-01", "--workers", "2"]


@pytest.fixture(scope="module")
def marked(bubblewrap, folder):
    """The class marked, after the first marking was killed; what the first had done by then."""
    results = folder / "out" / "results" / NAME
    process = subprocess.Popen(
        command(folder), stdout=subprocess.DEVNULL, start_new_session=True, env=environment(folder)
    )
    while process.poll() is None and len(list(results.glob("*.json"))) < 6:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    time.sleep(1)
    left = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(folder) not in left, "the sandboxes die with the marker"
    before = {path: path.stat().st_mtime_ns for path in results.glob("*.json")}
    done = subprocess.run(command(folder), capture_output=True, text=True, check=True, env=environment(folder))
    return before, done.stdout


def table(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_every_wrong_answer_is_handed_in():
    assert sum(len(changed) for changed, _ in packed().values()) == len(list(mutants())) > 40


def test_every_file_is_a_row_and_every_mark_is_the_truth(folder, marked):
    rows = {row["student"]: row for row in table(folder / "out" / f"{NAME}.csv")}
    assert len(rows) == len(CLASS) + 1
    wrong = {}
    for number, (_, _, total, flag) in enumerate(CLASS):
        row = rows[f"s{number:02}"]
        expected = "" if total is None else f"{total}"
        if (row["total"], flag in row["flags"]) != (expected, True) or (not flag and row["flags"]):
            wrong[number] = (expected, flag, row)
    assert not wrong
    assert rows[f"s{len(CLASS):02}"]["status"] == "nothing handed in"


def test_a_killed_marking_goes_on_and_books_nothing_twice(folder, marked):
    before, out = marked
    assert 6 <= len(before) < len(CLASS) - 10
    assert all(path.stat().st_mtime_ns == time for path, time in before.items()), "what was done is not done again"
    flagged = sum(total is None or flag != "" for _, _, total, flag in CLASS)
    assert f"({len(before)} of them before), {flagged} flagged, 1 handed in nothing." in out
    with closing(sqlite3.connect(folder / "out" / "gradebook.db")) as db:
        count = db.execute("select count(*), count(distinct student_id) from submitted_assignment").fetchone()
    booked = sum(total is not None for _, _, total, _ in CLASS)
    assert count == (booked, booked)


def test_a_third_run_changes_nothing(folder, marked):
    out = folder / "out"
    files = [path for path in out.rglob("*") if path.suffix in (".csv", ".html", ".ipynb", ".json")]
    before = {path: path.read_bytes() for path in files}
    done = subprocess.run(command(folder), capture_output=True, text=True, check=True)
    assert {path: path.read_bytes() for path in files} == before
    booked = sum(total is not None for _, _, total, _ in CLASS)
    assert len(before) == 3 * booked + 4, "notebook, result and feedback of each; the exercise and three tables"
    assert f"{booked} marked ({booked} of them before)" in done.stdout


def test_what_platforms_take(folder, marked):
    moodle = table(folder / "out" / f"{NAME}_moodle.csv")
    assert moodle[0] | {"Feedback comments": ""} == {
        "Identifier": "Participant 1000",
        "Full name": "Student 00",
        "ID number": "s00",
        "Grade": "90",
        "Maximum Grade": "100",
        "Last modified (grade)": "",
        "Feedback comments": "",
    }
    canvas = table(folder / "out" / f"{NAME}_canvas.csv")
    assert canvas[0][NAME] == "100"
    assert canvas[1] | {} == {
        "Student": "Student 00",
        "ID": "1000",
        "SIS User ID": "s00",
        "SIS Login ID": "",
        "Section": "",
        NAME: "90",
    }


def test_feedback_says_what_went_wrong_and_gives_no_number_away(folder, marked):
    for number, (_, _, total, _) in enumerate(CLASS):
        path = folder / "out" / "feedback" / f"s{number:02}" / NAME / f"{NAME}.html"
        assert path.is_file() == (total is not None)
    pages = sorted((folder / "out" / "feedback").rglob("*.html"))
    text = "\n".join(path.read_text(encoding="utf-8") for path in pages)
    text = re.sub(r'<div class="code">.*?</div>', "", text, flags=re.DOTALL)  # the students' own code
    told = [words for all_of_it in answers.MUTANTS.values() for _, words, _ in all_of_it]
    assert [words for words in told if words.replace("'", "&#39;") not in text] == []
    for secret in ("Traceback (most", "luong_reference", "tensor([", "array([", "BEGIN SOLUTION", "seed", "got ("):
        assert secret not in text, secret
    assert "https:" not in text
    assert "<script" not in text


def test_the_key_is_secret_and_kept(folder, marked):
    key = folder / "out" / "key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert len(bytes.fromhex(key.read_text())) == 32


# --- looking after the marks (on copies of the folder) -------------------------------------------------


def ask(*words):
    done = subprocess.run(
        [sys.executable, "-m", "coursekit", "grade", *map(str, words)], capture_output=True, text=True
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def copied(folder, marked, tmp_path):
    shutil.copytree(folder / "out", tmp_path / "out")
    return tmp_path / "out"


def test_an_untouched_folder_is_verified_and_private(folder, marked, copied):
    assert ask("verify", "--out", copied) == (0, "Everything is as the marking left it.\n")
    for path in (folder / "out", *(folder / "out").rglob("*")):
        assert path.stat().st_mode & 0o077 == 0, path


def edited_gradebook(out):
    with closing(sqlite3.connect(out / "gradebook.db")) as book:
        book.execute("update grade set auto_score = auto_score + 1 where id = (select id from grade limit 1)")
        book.commit()


def edited_result(out):
    path = next(p for p in sorted((out / "results" / NAME).glob("*.json")) if '"points": 0' in p.read_text())
    path.write_text(path.read_text().replace('"points": 0', '"points": 15'))


def edited_feedback(out):
    path = next(out.glob(f"feedback/*/{NAME}/*.html"))
    path.write_text(path.read_text().replace("0 of", "15 of", 1))


def edited_table(out):
    path = out / f"{NAME}_moodle.csv"
    path.write_text(path.read_text().replace("75", "90", 1))


def shortened_log(out):
    lines = (out / "log.jsonl").read_text().splitlines(keepends=True)
    (out / "log.jsonl").write_text("".join(lines[:5] + lines[6:]))


@pytest.mark.parametrize("edit", [edited_gradebook, edited_result, edited_feedback, edited_table, shortened_log])
def test_what_somebody_changed_is_noticed(copied, edit):
    edit(copied)
    code, said = ask("verify", "--out", copied)
    assert code == 1
    assert said.strip()
    assert "Traceback" not in said


def test_an_edited_result_is_flagged_and_marked_again(folder, copied):
    """Whoever raises the points in the file of a result gets the points of the answer all the same."""
    edited_result(copied)
    words = [str(copied) if word == str(folder / "out") else word for word in command(folder)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=environment(folder))
    booked = sum(total is not None for _, _, total, _ in CLASS)
    assert f"{booked} marked ({booked - 1} of them before)" in done.stdout
    (flagged,) = [row for row in table(copied / f"{NAME}.csv") if "it is not believed" in row["flags"]]
    assert "it was marked again" in flagged["flags"]
    assert [row["total"] for row in table(copied / f"{NAME}.csv")] == [
        row["total"] for row in table(folder / "out" / f"{NAME}.csv")
    ]


def test_a_forgotten_student_is_nowhere(copied):
    code, said = ask("forget", "s03", "--out", copied)
    assert code == 0, said
    for path in copied.rglob("*"):
        assert "s03" not in path.name
        if path.is_file() and path.suffix in (".csv", ".jsonl", ".html", ".ipynb"):
            assert not re.search(rb"\bs03\b|Student 03", path.read_bytes()), path
    assert ask("verify", "--out", copied)[0] == 0


def test_who_wrote_the_same_is_reported(copied):
    """Many of this class handed in the model answers: those are no evidence; some handed in the same mutants."""
    code, said = ask("similar", "02", "--out", copied)
    assert code == 0
    assert re.search(r"\d+ pairs among \d+ students", said)
    assert (copied / "similar" / f"{NAME}.csv").is_file()
    assert "s00" not in (copied / "similar" / f"{NAME}.csv").read_text(), "the model answer was handed out"
