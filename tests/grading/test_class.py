"""A class of over sixty hands in; it is marked by one command, killed in the middle, and marked to the end."""

import csv
import json
import os
import re
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
    saved_by_colab,
    with_copied_cells,
    with_equal_ids,
    without_cell,
    without_grading_metadata,
)

pytestmark = pytest.mark.usefixtures("bubblewrap")

ON_TIME, LATE = (2026, 11, 30, 12, 0, 0), (2026, 12, 2, 14, 30, 0)


def the_class():
    """(file's name, content, what the total must be or None, a word that the flags must hold)."""
    name = f"{NAME}.ipynb"
    yield name, handed_in(), 90, ""
    for style in (0, 1):
        yield name, handed_in(**{part: all_of_it[style] for part, all_of_it in answers.RIGHT.items()}), 90, ""
    for part, number, lost, source in mutants():
        if number % 6:  # most did not get to the training
            yield name, handed_in(**{"train": None, part: source}), 90 - lost - 15 * (part != "train"), ""
        else:
            yield name, handed_in(**{part: source}), 90 - lost, ""
    nothing = dict.fromkeys(POINTS)
    yield name, handed_in(**nothing), 0, ""
    yield name, handed_in(reversal_batch=None, train=None), 60, ""
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


def test_the_class_is_large_enough():
    assert len(CLASS) >= 60


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
