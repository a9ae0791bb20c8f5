"""Marking one submission: its seed, hidden cases, the protocol; and what a marker sees and is told."""

import builtins
import importlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from datetime import UTC, datetime
from pathlib import Path

import nbformat
import numpy as np
import psutil
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from coursekit.commands.lectures import home
from coursekit.grading import GradingError, batch, folder, marking, sandbox
from coursekit.grading.calls import Seed
from coursekit.grading.checks import seq2seq_attention as check
from coursekit.grading.inside import pack, pack_arguments, unpack, unpack_arguments
from coursekit.grading.intake import Submission
from coursekit.grading.marking import (
    LATER,
    check_hidden_cases,
    fault,
    mark,
    once,
    reached,
    seed_for,
    stopped,
    syntax_error,
)
from coursekit.grading.parts import Part
from coursekit.grading.release import checks_of, mark_up, masters
from tests.grading.answers import answers_of, models, trained
from tests.grading.classroom import NAME, RELEASED, SOLUTIONS, only

pytestmark = pytest.mark.slow  # most of them mark classes in the sandbox


def job(**answers):
    private, unsafe = answers.pop("private", None), answers.pop("unsafe", False)
    return {
        "exercise": NAME,
        "master": RELEASED,
        "answers": answers,
        "seed": answers.pop("seed", 5),
        "private": private,
        "unsafe": unsafe,
    }


def part(result, name):
    return next(part for part in result["parts"] if part["name"] == name)


def test_the_seed_is_secret_stable_and_each_students_own():
    assert seed_for(b"k" * 32, "a", "b") == seed_for(b"k" * 32, "a", "b")
    others = [seed_for(b"k" * 32, "a", "c"), seed_for(b"k" * 32, "b", "b"), seed_for(b"j" * 32, "a", "b")]
    assert len({seed_for(b"k" * 32, "a", "b"), seed_for(b"k" * 32, "ab", ""), *others}) == 5
    torch.Generator().manual_seed(seed_for(b"k" * 32, "a", "b"))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["float32", "float64", "int64", "bool", "uint8"]), st.lists(st.integers(0, 4), max_size=3)
        ),
        max_size=4,
    )
)
def test_arrays_survive_the_journey(kinds):
    rng = np.random.default_rng(0)
    arrays = {str(i): (rng.normal(size=shape) * 10).astype(kind) for i, (kind, shape) in enumerate(kinds)}
    back = unpack(pack(arrays))
    assert set(back) == set(arrays)
    for name in arrays:
        np.testing.assert_array_equal(back[name], arrays[name])
        assert back[name].dtype == arrays[name].dtype


def test_arguments_survive_the_journey():
    arguments = (torch.randn(2, 3).T, torch.tensor(True), 7, "text", None, Seed(5, used=3))
    back = unpack_arguments(pack_arguments(arguments))
    assert torch.equal(back[0], arguments[0])
    assert torch.equal(back[1], arguments[1])
    assert back[2:] == [7, "text", None, Seed(5, used=3)]


def test_one_part_that_loops_costs_the_others_nothing(bubblewrap, monkeypatch):
    monkeypatch.setattr(check.additive_score, "seconds", 3)
    answers = {name: source for name, source in SOLUTIONS.items() if name != "train"}
    result = mark(job(**answers | {"additive_score": "def additive_score(*x):\n    while True: pass"}))
    lost = ("additive_score", "train")
    assert [p["points"] for p in result["parts"]] == [0 if p["name"] in lost else p["of"] for p in result["parts"]]
    assert part(result, "additive_score")["problem"] == "it took longer than 3 seconds"
    assert part(result, "train")["problem"] == "not answered"


def test_a_call_that_dies_costs_its_aspect_alone(bubblewrap):
    source = "import os\ndef luong_score(query, keys, W=None):\n    if W is not None: os._exit(1)\n"
    source += "    return (query[:, None] * keys).sum(-1)"
    luong = part(mark(job(luong_score=source)), "luong_score")
    assert [(a["name"], a["points"]) for a in luong["aspects"]] == [("dot", 7), ("general", 0)]
    assert luong["problem"] == ""
    assert luong["aspects"][1]["words"] == "it ended the process that it ran in"


def test_warnings_and_progress_on_stderr_cost_nothing(bubblewrap):
    source = (
        "import sys, warnings\nfrom tqdm import tqdm\nwarnings.warn('careful')\nprint('x' * 10**6, file=sys.stderr)\n"
    )
    source += "for _ in tqdm(range(9)): pass\n" + SOLUTIONS["luong_score"]
    assert part(mark(job(luong_score=source)), "luong_score")["points"] == 15


def test_magics_helpers_and_top_level_await_run_as_in_a_notebook(bubblewrap):
    source = "%matplotlib inline\nimport asyncio\nawait asyncio.sleep(0)\n!true\n" + SOLUTIONS["luong_score"]
    assert part(mark(job(luong_score=source)), "luong_score")["points"] == 15


def test_words_name_kind_and_line_but_not_the_message(bubblewrap):
    result = mark(job(luong_score="def luong_score(query, keys, W=None):\n    return query @@ keys"))
    assert part(result, "luong_score")["problem"] == "it stopped with a SyntaxError in line 2"
    result = mark(job(luong_score="def luong_score(query, keys, W=None):\n    return helper(query)"))
    words = part(result, "luong_score")["aspects"][0]["words"]
    assert words.startswith("it stopped with a NameError in line 2 (only the answer cells are read")
    assert "luong_score: NameError: name 'helper' is not defined" in result["details"]


def test_a_name_that_is_not_defined_is_said(bubblewrap):
    result = mark(job(luong_score="def luong_scores(query, keys, W=None):\n    return 0"))
    assert part(result, "luong_score")["problem"] == "no luong_score is defined"


REMEMBERED = """
import torch
KEPT = {}
def reversal_batch(n_sequences, longest, n_symbols, generator):
    key = bytes(generator.get_state())
    torch.rand(1, generator=generator)
    if key not in KEPT:
        lengths = torch.randint(1, longest + 1, (n_sequences, 1))
        mask = torch.arange(longest) < lengths
        source = torch.randint(n_symbols, (n_sequences, longest)) * mask
        target = source.gather(1, (lengths - 1 - torch.arange(longest)).clamp(min=0)) * mask
        KEPT[key] = source, mask, target
    return KEPT[key]
"""


def test_draws_of_other_generators_cannot_be_remembered(bubblewrap):
    result = mark(job(reversal_batch=REMEMBERED))
    aspects = {aspect["name"]: aspect["points"] for aspect in part(result, "reversal_batch")["aspects"]}
    assert aspects["sequences"] == 0
    assert aspects["target"] > 0


def test_odd_escapes_of_a_student_warn_nobody():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert syntax_error(r"found = '\d'") is None


def test_hidden_cases_of_the_private_folder_count(bubblewrap, tmp_path):
    """An answer that works for all public shapes, and not for a batch of eleven."""
    source = SOLUTIONS["luong_score"].replace("if W is not", "if len(query) == 11: return query\n    if W is not")
    assert part(mark(job(luong_score=source)), "luong_score")["points"] == 15
    (tmp_path / f"{NAME}.py").write_text(
        "import torch\nfrom coursekit.grading.parts import Case\n"
        "def luong(g): return [Case('dot', 'eleven', (torch.randn(11, 3, generator=g), torch.randn(11, 2, 3)))]\n"
        "CASES = {'luong_score': luong}\n"
    )
    luong = part(mark(job(luong_score=source, private=str(tmp_path))), "luong_score")
    assert luong["points"] == 8
    assert part(mark(job(luong_score=SOLUTIONS["luong_score"], private=str(tmp_path))), "luong_score")["points"] == 15


def test_a_private_folder_with_a_mistake_is_said(tmp_path):
    (tmp_path / f"{NAME}.py").write_text("CASES = {'no such part': None}")
    with pytest.raises(GradingError, match="expected CASES"):
        mark(job(private=str(tmp_path)))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("CASES = {'no such part': None}", "expected CASES"),
        ("CASES = {", "cannot be run: SyntaxError"),
        ("CASES = {'luong_score': None}", "the cases of luong_score cannot be drawn: TypeError"),
        (
            "from coursekit.grading.parts import Case\nCASES = {'luong_score': lambda g: [Case('dots', 'x', ())]}",
            r"luong_score has the aspects \['dot', 'general'\], not 'dots'",
        ),
    ],
)
def test_a_mistake_in_the_hidden_cases_is_said_before_the_marking(tmp_path, text, words):
    """Once, and not for each student; what lies in the folder of the results is not touched."""
    hand_in(tmp_path / "in", alice=SOLUTIONS["luong_score"])
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / f"{NAME}.py").write_text(text)
    with pytest.raises(GradingError, match=words):
        check_hidden_cases(str(tmp_path / "private"), NAME)
    with pytest.raises(GradingError, match=words):
        batch.grade(NAME, [tmp_path / "in"], tmp_path / "out", home(), private=tmp_path / "private", unsafe=True)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["seq2seq_attention", "02", "hidden"])
def test_hidden_cases_under_a_wrong_name_are_refused(tmp_path, name):
    (tmp_path / f"{name}.py").write_text("CASES = {}")
    with pytest.raises(GradingError, match=rf"{name}\.py is no exercise's: .* belong in .*/{NAME}\.py"):
        batch.grade(NAME, [tmp_path / "in"], tmp_path / "out", home(), private=tmp_path, unsafe=True)


@pytest.mark.slow
@pytest.mark.parametrize("path", masters(home()), ids=lambda path: path.stem)
def test_model_answers_earn_all_points_in_the_sandbox(bubblewrap, path):
    """What an answer needs of the package, checkpoints too, has to be there; a written answer is read as no code.

    What trains is answered in another style than the master's, which ``test_release.py`` executes.
    """
    name = path.stem
    cells = nbformat.read(path, as_version=4).cells
    answers = {mark_up(cell)["grade_id"]: cell.source for cell in cells if mark_up(cell).get("solution")}
    parts = {part.name: part for part in checks_of(name).PARTS}
    answers |= {answer: styles[0] for answer, styles in answers_of(name).RIGHT.items() if trained(parts[answer])}
    released = nbformat.read(home() / "exercises" / name / f"{name}.ipynb", as_version=4)
    result = mark({**job(), "exercise": name, "master": released, "answers": answers})
    assert not [(p["name"], p["problem"], p["points"]) for p in result["parts"] if p["points"] < p["of"]]


@pytest.mark.parametrize("exercise", ["03_self_attention", "04_transformer"])
def test_what_an_answer_must_not_do_costs_the_same_as_in_the_notebook(bubblewrap, exercise):
    """It changes what it is given, or uses a function that the part forbids."""
    module = importlib.import_module(f"tests.grading.answers.{exercise[3:]}")
    wrong = {
        name: (points, words, source)
        for name, mutants in module.MUTANTS.items()
        for points, words, source in mutants
        if "you are given is changed" in words or "is used: write it out" in words
    }
    assert len(wrong) == {"03_self_attention": 5, "04_transformer": 1}[exercise]
    released = nbformat.read(home() / "exercises" / exercise / f"{exercise}.ipynb", as_version=4)
    answers = {name: source for name, (_, _, source) in wrong.items()}
    result = mark({**job(), "exercise": exercise, "master": released, "answers": answers})
    for name, (points, words, _) in wrong.items():
        found = part(result, name)
        assert found["points"] == points
        assert any(words in aspect["words"] for aspect in found["aspects"])


def test_arguments_are_compared_outside_and_lies_about_them_gain_nothing():
    luong = next(part for part in check.PARTS if part.name == "luong_score")
    case = luong.draw(0)[0]
    sent = pack_arguments(case.arguments)
    changed = pack_arguments((case.arguments[0], case.arguments[1] + 1))
    assert fault(luong, case, None) is None
    for used in (None, True, -1, "layer_norm", [], {}):
        assert fault(luong, case, {"after": sent, "used": used}) is None
    assert "the tensor keys that you are given is changed" in fault(luong, case, {"after": changed})
    for lie in (b"", b"x", sent[:-1]):
        assert "is changed" in fault(luong, case, {"after": lie})


def test_the_line_of_an_error_is_that_of_the_answer_not_of_a_given_cell(bubblewrap):
    """The given cell fails on line 11, with what the answer, of eleven lines, returned to it."""
    exercise = "03_self_attention"
    released = nbformat.read(home() / "exercises" / exercise / f"{exercise}.ipynb", as_version=4)
    source = "\n" * 9 + "class MultiHeadAttention(nn.Linear):\n    pass"
    job_of_it = {**job(), "exercise": exercise, "master": released, "answers": {"multi_head_attention": source}}
    words = part(mark(job_of_it), "multi_head_attention")["aspects"][0]["words"]
    assert words == "it stopped with a ValueError"


def test_unsafe_marks_without_walls():
    result = mark(job(luong_score=SOLUTIONS["luong_score"], additive_score="import os\nos._exit(1)", unsafe=True))
    assert [p["points"] for p in result["parts"]] == [15, *[0] * (len(result["parts"]) - 1)]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="the other tests are unprivileged then")
def test_marking_as_an_ordinary_user(bubblewrap):
    """Most markers are not root: bubblewrap then works with a user namespace of its own."""
    with tempfile.TemporaryDirectory() as temporary:  # pytest's own folders are closed to others
        marked_by_nobody(Path(temporary))


def marked_by_nobody(tmp_path):
    base, out = sys.base_prefix, tmp_path / "out"
    folder = tmp_path / "in" / "alice"
    folder.mkdir(parents=True)
    nbformat.write(only(luong_score=SOLUTIONS["luong_score"]), folder / f"{NAME}.ipynb")
    tmp_path.chmod(0o777)
    # a Python that lies in root's home is shown to others, in a mount namespace of its own
    home_of_root, seen = "/" + base.split("/")[1], f"{tmp_path}/base"
    script = f"""
mkdir {seen} && mount --bind {base} {seen}
if [ "$(stat -c %a {home_of_root})" != 755 ]; then
  mount -t tmpfs -o mode=755 none {home_of_root} && mkdir -p {base} && mount --bind {seen} {base}
fi
exec setpriv --reuid 65534 --regid 65534 --clear-groups env HOME={tmp_path} \
  {sys.executable} -m coursekit grade 02 {tmp_path}/in --out {out}
"""
    command = ["unshare", "--mount", "sh", "-ec", script]
    done = subprocess.run(command, cwd=home(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "1 row: 1 marked" in done.stdout
    assert (out / "gradebook.db").stat().st_uid == 65534
    assert ",15,100," in (out / f"{NAME}.csv").read_text()


# --- small things of the batch -------------------------------------------------------------------------


def test_lateness_is_flagged():
    due = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
    for when, flag in ((datetime(2026, 11, 30, 12, 0), []), (datetime(2026, 12, 1, 13, 5), ["late by 1 d 1 h 5 min"])):
        submission = Submission("x", handed_in=when.replace(tzinfo=UTC))
        batch.flag_late(submission, due)
        assert submission.flags == flag
    submission = Submission("x", late=True)
    batch.flag_late(submission, None)
    assert submission.flags == ["late, says the platform"]


def test_a_changed_answer_seed_check_or_hidden_case_is_marked_again(tmp_path):
    first = batch.digest(job(luong_score="a"), "x")
    assert first == batch.digest(job(luong_score="a"), "x")
    assert first != batch.digest(job(luong_score="b"), "x")
    assert first != batch.digest(job(luong_score="a", seed=6), "x")
    assert first != batch.digest(job(luong_score="a"), "y")
    (tmp_path / f"{NAME}.py").write_text("CASES = {}")
    with_cases = batch.digest(job(luong_score="a", private=str(tmp_path)), "x")
    (tmp_path / f"{NAME}.py").write_text("CASES = {}  # others")
    assert with_cases != batch.digest(job(luong_score="a", private=str(tmp_path)), "x")


def test_a_key_with_a_mistake_is_said(tmp_path):
    (tmp_path / "key").write_text("short")
    with pytest.raises(GradingError, match="cannot use the secret key"):
        folder.key_of(tmp_path, None)
    (tmp_path / "key").write_text("abcd")
    with pytest.raises(GradingError, match="shorter than 16 bytes"):
        folder.key_of(tmp_path, None)


def test_an_exercise_that_is_not_there_is_said(tmp_path):
    with pytest.raises(GradingError, match="no exercise '99_x'"):
        batch.grade("99_x", [tmp_path], tmp_path / "out", home())


def test_a_machine_that_fails_is_no_mark(bubblewrap, tmp_path, monkeypatch):
    """The sandbox does not start for one submission: it is flagged, and marked at the next run."""
    for name in ("alice", "bob"):
        (tmp_path / "in" / name).mkdir(parents=True)
        nbformat.write(only(luong_score=SOLUTIONS["luong_score"]), tmp_path / "in" / name / "x.ipynb")
    real = sandbox.run

    def fails_once(*arguments):
        monkeypatch.setattr(sandbox, "run", real)
        raise GradingError("the sandbox did not start: no memory")

    monkeypatch.setattr(sandbox, "run", fails_once)
    outcome = batch.grade(NAME, [tmp_path / "in"], tmp_path / "out", home(), workers=1)
    assert sorted(row.status for row in outcome.rows) == ["marked", "not marked"]
    failed = next(row for row in outcome.rows if row.status == "not marked")
    assert failed.submission.problem == "marking failed, mark it again: the sandbox did not start: no memory"
    outcome = batch.grade(NAME, [tmp_path / "in"], tmp_path / "out", home(), workers=1)
    assert [(row.status, row.standing.total) for row in outcome.rows] == [("marked", 15)] * 2
    assert outcome.again == 1


def hand_in(folder, **answered):
    for name, source in answered.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        nbformat.write(only(luong_score=source), folder / name / "x.ipynb")


def test_a_broken_export_does_not_empty_the_tables(bubblewrap, tmp_path):
    hand_in(tmp_path / "in", alice=SOLUTIONS["luong_score"])
    started = []
    batch.grade(NAME, [tmp_path / "in"], tmp_path / "out", home(), start=started.append)
    assert started == [1]
    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    (tmp_path / "export.zip").write_text("<html>Your session has ended.")
    (tmp_path / "wrong").mkdir()
    (tmp_path / "wrong" / "alice.ipynb").write_text("{")
    (tmp_path / "wrong" / "bob.pdf").write_text("%PDF")
    for name, words in {
        "export.zip": "cannot open",
        "wrong": r"nothing that can be marked was handed in: alice\.ipynb: not JSON.* \(and 1 more\)",
    }.items():
        with pytest.raises(GradingError, match=words):
            batch.grade(NAME, [tmp_path / name], tmp_path / "out", home(), start=started.append)
    assert {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()} == before
    assert started == [1]


@pytest.mark.slow
def test_the_command_counts_well_and_says_mistakes_without_a_bar(bubblewrap, tmp_path):
    hand_in(tmp_path / "in", alice=SOLUTIONS["luong_score"])
    (tmp_path / "no.zip").write_text("no zip")
    command = [sys.executable, "-m", "coursekit", "grade", "02", "--out", str(tmp_path / "out")]
    done = subprocess.run([*command, str(tmp_path / "in")], capture_output=True, text=True, check=True, cwd=home())
    assert "1/1 submissions" in done.stdout
    assert "1 row: 1 marked" in done.stdout
    done = subprocess.run([*command, str(tmp_path / "no.zip")], capture_output=True, text=True, cwd=home())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("cannot open")


def test_one_marking_at_a_time_in_a_folder(tmp_path):
    with (
        folder.locked(tmp_path),
        pytest.raises(GradingError, match="another marking is at work"),
        folder.locked(tmp_path),
    ):
        pass
    with folder.locked(tmp_path):
        pass


def test_what_is_no_longer_handed_in_is_said_and_put_aside(bubblewrap, tmp_path):
    hand_in(tmp_path / "in", alice=SOLUTIONS["luong_score"], bob=SOLUTIONS["luong_score"])
    batch.grade(NAME, [tmp_path / "in"], tmp_path / "out", home(), workers=2)
    shutil.rmtree(tmp_path / "in" / "bob")
    outcome = batch.grade(NAME, [tmp_path / "in"], tmp_path / "out", home())
    assert [(row.submission.student, row.status) for row in outcome.rows] == [
        ("alice", "marked"),
        ("bob", "booked before, no longer handed in"),
    ]
    assert not (tmp_path / "out" / "feedback" / "bob" / NAME).exists()
    assert (tmp_path / "out" / "superseded" / "bob" / NAME / f"{NAME}.html").is_file()


def test_a_roster_that_renames_who_is_booked_is_refused(bubblewrap, tmp_path):
    hand_in(tmp_path / "in", **{"Doe Jane_4711_assignsubmission_file_": SOLUTIONS["luong_score"]})
    batch.grade(NAME, [tmp_path / "in"], tmp_path / "out", home())
    (tmp_path / "roster.csv").write_text("id,platform_id\ns1,4711\n")
    with pytest.raises(GradingError, match="4711 was marked here before the roster called them s1"):
        batch.grade(NAME, [tmp_path / "in"], tmp_path / "out", home(), roster=tmp_path / "roster.csv")


@pytest.mark.slow
def test_what_a_busy_machine_may_have_caused_is_tried_once_more(bubblewrap, tmp_path, monkeypatch):
    monkeypatch.setattr(check.luong_score, "seconds", 2)
    hand_in(tmp_path / "in", alice="while True: pass")
    for again in (0, 0, 1):
        outcome = batch.grade(NAME, [tmp_path / "in"], tmp_path / "out", home())
        assert outcome.again == again
        assert outcome.rows[0].standing.total == 0


def test_a_booking_that_fails_stops_nobody_else(bubblewrap, tmp_path, monkeypatch):
    hand_in(tmp_path / "in", alice=SOLUTIONS["luong_score"], bob=SOLUTIONS["luong_score"])
    real = batch.book_submission

    def fails_for_alice(book, out, exercise, master, submission, *rest):
        if submission.student == "alice":
            raise UnicodeEncodeError("utf-8", "x", 0, 1, "strange")
        real(book, out, exercise, master, submission, *rest)

    monkeypatch.setattr(batch, "book_submission", fails_for_alice)
    outcome = batch.grade(NAME, [tmp_path / "in"], tmp_path / "out", home())
    assert {row.submission.student: row.status for row in outcome.rows} == {"alice": "not marked", "bob": "marked"}
    assert "could not be booked" in outcome.rows[0].submission.problem


@pytest.mark.parametrize("of_the_course", [True, False])
def test_marks_are_not_written_among_other_files(tmp_path, of_the_course):
    """The key, names and marks would be handed out with the exercises, or committed."""
    hand_in(tmp_path / "in", alice=SOLUTIONS["luong_score"])
    out = home() / "exercises" if of_the_course else tmp_path / "thesis"
    out.mkdir(exist_ok=True)
    if not of_the_course:
        (out / "chapter.tex").touch()
    before = sorted(out.iterdir())
    with pytest.raises(GradingError, match=r"holds something else: name a new folder, or that of an earlier marking"):
        batch.grade(NAME, [tmp_path / "in"], out, home(), unsafe=True)
    assert sorted(out.iterdir()) == before


def test_a_lost_key_is_said(bubblewrap, tmp_path):
    hand_in(tmp_path / "in", alice=SOLUTIONS["luong_score"])
    batch.grade(NAME, [tmp_path / "in"], tmp_path / "out", home())
    (tmp_path / "out" / "key").unlink()
    with pytest.raises(GradingError, match=r"the secret key .* is gone: if --private was given before"):
        batch.grade(NAME, [tmp_path / "in"], tmp_path / "out", home())


def test_a_private_folder_that_comes_later_takes_the_key_over(bubblewrap, tmp_path):
    """With a new key, the same answers would get other marks, and nobody would know why."""
    hand_in(tmp_path / "in", alice=SOLUTIONS["luong_score"])
    private = tmp_path / "private"
    private.mkdir()
    batch.grade(NAME, [tmp_path / "in"], tmp_path / "out", home())
    with pytest.raises(GradingError, match=r"move .*/out/key into .*/private, so that they stay as they are, or leave"):
        batch.grade(NAME, [tmp_path / "in"], tmp_path / "out", home(), private=private)
    assert not list(private.iterdir())
    (private / "key").write_text("ab" * 32)
    with pytest.raises(GradingError, match=r"others by the key in .*/private: leave --private out here, or mark anew"):
        batch.grade(NAME, [tmp_path / "in"], tmp_path / "out", home(), private=private)
    (tmp_path / "out" / "key").rename(private / "key")
    key = (private / "key").read_bytes()
    outcome = batch.grade(NAME, [tmp_path / "in"], tmp_path / "out", home(), private=private)
    assert outcome.rows[0].standing.total == 15
    assert not (tmp_path / "out" / "key").exists()
    assert (private / "key").read_bytes() == key


def test_an_interrupt_ends_the_sandboxes_at_once(bubblewrap, tmp_path):
    hand_in(tmp_path / "in", alice="while True: pass")
    command = [sys.executable, "-m", "coursekit", "grade", "02", str(tmp_path / "in"), "--out", str(tmp_path / "out")]
    listens = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.default_int_handler)}  # also under nohup
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=home(), **streams, **listens) as process:
        try:
            while "bwrap" not in [child.name() for child in psutil.Process(process.pid).children()]:
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    assert "stopped; what is marked is kept, and the same command goes on" in said
    assert "Traceback" not in said


NORM = """
def norm(z, weight, bias, eps):
    return F.layer_norm(z, z.shape[-1:], weight, bias, eps)
"""
EVASIONS = {
    "plain": ("from torch.nn import functional as F" + NORM, "norm(x + y, weight, bias, eps)"),
    "switched off": (
        "from torch.nn import functional as F" + NORM,
        "off(norm, x + y, weight, bias, eps)\n\n"
        "def off(f, *a):\n    with torch._C.DisableTorchFunction():\n        return f(*a)",
    ),
    "scripted": (
        "from torch.nn import functional as F\n@torch.jit.script\n"
        "def norm(z, weight, bias, eps: float):\n    return F.layer_norm(z, [z.size(-1)], weight, bias, eps)\n",
        "norm(x + y, weight, bias, eps)",
    ),
    "thread": (
        "import threading\nfrom torch.nn import functional as F" + NORM,
        "run(x + y, weight, bias, eps)\n\ndef run(*a):\n    box = []\n"
        "    one = threading.Thread(target=lambda: box.append(norm(*a)))\n"
        "    one.start(); one.join()\n    return box[0]",
    ),
    "by a computed name": (
        "from torch.nn import functional as F\n"
        "def norm(z, *a):\n    return getattr(F, 'layer' + '_norm')(z, z.shape[-1:], *a)\n",
        "norm(x + y, weight, bias, eps)",
    ),
    "patched": (
        "import contextlib\nfrom coursekit.grading import calls, inside\nfrom torch.nn import functional as F\n"
        "calls.spoiled = lambda forbidden: contextlib.nullcontext([])" + NORM,
        "norm(x + y, weight, bias, eps)",
    ),
    "patched by frames": (
        "from torch.nn import functional as F\n" + NORM,
        "norm(x + y, weight, bias, eps)\ntry: 1 / 0\nexcept Exception as e: frame = e.__traceback__.tb_frame\n",
    ),
}


@pytest.mark.parametrize("way", EVASIONS)
def test_no_way_to_a_forbidden_function_earns_a_point(bubblewrap, way):
    exercise = "03_self_attention"
    released = nbformat.read(home() / "exercises" / exercise / f"{exercise}.ipynb", as_version=4)
    before, result = EVASIONS[way]
    source = f"{before}\ndef add_and_norm(x, y, weight, bias, eps=1e-5):\n    return {result}\n"
    found = part(
        mark({**job(), "exercise": exercise, "master": released, "answers": {"add_and_norm": source}}), "add_and_norm"
    )
    assert found["points"] == 0
    assert found["problem"] or any("is used: write it out" in aspect["words"] for aspect in found["aspects"]), found


HELPER = """
def helper(query, key, value, mask):
    mask = mask[:, None] if mask is not None and mask.dim() == 3 else mask
    out, weights = course.attend(query[:, None], key[:, None], value[:, None], mask, need_weights=True)
    return out[:, 0], weights[:, 0]
"""
CALLED = "def attention(query, key, value, mask=None):\n    return helper(query, key, value, mask)\n"
BORROWED = """
def attention(query, key, value, mask=None):
    return COURSE.attend(query, key, value, mask, need_weights=True)
"""
WITHIN = """
class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.heads = n_heads
        self.qkv, self.out = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        B, T, D = x.shape
        mine = nn.MultiheadAttention(D, self.heads, batch_first=True)
        with torch.no_grad():
            mine.in_proj_weight.copy_(self.qkv.weight)
            mine.in_proj_bias.copy_(self.qkv.bias)
            mine.out_proj.weight.copy_(self.out.weight)
            mine.out_proj.bias.copy_(self.out.bias)
        no = None if mask is None else ~mask.expand(B, self.heads, T, T).reshape(-1, T, T)

        class Scores:
            def softmax(self, dim):
                return mine(x, x, x, attn_mask=no, need_weights=False)[0]

        return nn.functional.softmax(Scores(), -1)
"""
BLIND = WITHIN.replace("batch_first=True)", "batch_first=True).eval()").replace(
    "return nn.functional.softmax(Scores(), -1)", "with torch.no_grad():\n            return Scores().softmax(0)"
)
IN_A_STRING = "a = '''\n%pip '''; course.attend; b = '''\n'''"
AROUND = {
    "a helper in another answer": {"masked_softmax": HELPER, "attention": CALLED},
    "a line in a string": {"attention": IN_A_STRING + BORROWED.replace("COURSE", "course")},
    "what breaks a reader": {"attention": "z = (7\n%autoreload\n) if 0 else 0" + BORROWED.replace("COURSE", "course")},
    "the course by its own name": {"attention": BORROWED.replace("COURSE", "coursekit.nn.attention")},
    "inside of another function": {"multi_head_attention": WITHIN},
    "without gradients": {"multi_head_attention": BLIND},
}


@pytest.mark.parametrize("way", AROUND)
def test_no_way_around_a_prohibition_through_other_code_earns_a_point(bubblewrap, way):
    exercise = "03_self_attention"
    released = nbformat.read(home() / "exercises" / exercise / f"{exercise}.ipynb", as_version=4)
    result = mark({**job(), "exercise": exercise, "master": released, "answers": AROUND[way]})
    found = part(result, list(AROUND[way])[-1])
    assert found["points"] == 0
    words = [found["problem"], *(aspect["words"] for aspect in found["aspects"])]
    assert any("which this part does not allow" in text or "is used: write it out" in text for text in words), found


def test_an_answer_that_calls_another_one_is_told_what_that_one_must_not_use(bubblewrap):
    exercise = "03_self_attention"
    released = nbformat.read(home() / "exercises" / exercise / f"{exercise}.ipynb", as_version=4)
    right = models(exercise)
    calls = right["attention"].replace("course.masked_softmax", "masked_softmax")
    assert calls != right["attention"]
    told = "it calls the code of masked_softmax, which uses os"
    for more, points, words in (("from functools import partial\n", 14, ""), ("import os\n", 0, told)):
        answers = {"masked_softmax": more + right["masked_softmax"], "attention": calls}
        result = mark({**job(), "exercise": exercise, "master": released, "answers": answers})
        assert part(result, "masked_softmax")["points"] == 14
        assert part(result, "attention")["points"] == points
        assert words in part(result, "attention")["problem"]


@pytest.mark.parametrize(
    ("source", "uses"),
    [
        ("def two(x):\n    return x", False),
        ("def two():\n    x = 1\n    return [x for x in (x,)]", False),
        ("def two():\n    return x", True),
        ("y = lambda x=x: x", True),
        ("def two():\n    global x\n    return x", True),
        ("class Two:\n    x = x", True),
    ],
)
def test_a_parameter_is_no_use_of_what_another_answer_calls_so(source, uses):
    one, two = Part("one", {}, list), Part("two", {}, list)
    steps = [{"source": "", "cell": name, "part": name} for name in ("one", "two")]
    answers = {"one": "import os\nx = os.getcwd()", "two": source}
    assert reached(two, steps, answers).keys() == ({"one", "two"} if uses else {"two"})
    assert reached(one, steps, answers).keys() == {"one"}


def test_a_name_that_only_a_later_cell_defines_is_said_to_be_there(bubblewrap):
    answers = {"luong_score": "def luong_score(query, keys, W=None):\n    return helper(query)"}
    answers["additive_score"] = SOLUTIONS["additive_score"] + "\ndef helper(x):\n    return x\n"
    words = part(mark(job(**answers)), "luong_score")["aspects"][0]["words"]
    assert words == f"it stopped with a NameError in line 2{LATER}"


def test_odd_code_in_one_answer_costs_another_nothing(bubblewrap):
    """It runs apart from what forbids functions, and so can change nothing there."""
    exercise = "03_self_attention"
    released = nbformat.read(home() / "exercises" / exercise / f"{exercise}.ipynb", as_version=4)
    right = models(exercise)
    spy = (
        "\nimport gc, torch\nfor one in gc.get_objects():\n    type(one) is torch.library.Library and one._destroy()\n"
    )
    own = right | {"add_and_norm": right["add_and_norm"] + "\nimport os"}
    others = right | {"decoder_mask": right["decoder_mask"] + spy}
    for answers, points in ((own, 0), (others, 10)):
        result = mark({**job(), "exercise": exercise, "master": released, "answers": answers})
        assert part(result, "add_and_norm")["points"] == points
        assert part(result, "decoder_mask")["points"] == part(result, "decoder_mask")["of"]
    problem = part(mark({**job(), "exercise": exercise, "master": released, "answers": own}), "add_and_norm")["problem"]
    assert problem.startswith("it uses os, which this part does not allow")


def test_two_processes_share_the_time_of_one_hand_in(monkeypatch):
    exercise = "03_self_attention"
    released = nbformat.read(home() / "exercises" / exercise / f"{exercise}.ipynb", as_version=4)
    asked = []

    def run(steps, unsafe, seconds):
        asked.append(seconds)
        raise GradingError("seen")

    monkeypatch.setattr(sandbox, "run", run)
    parts = importlib.import_module("coursekit.grading.checks.self_attention").PARTS
    answers = models(exercise) | {"decoder_mask": models(exercise)["decoder_mask"] + "\nimport os\n"}
    steps = marking.steps_of(released["cells"], answers, parts)
    for step in steps:
        step |= {"calls": [None]} if "name" in step else {}
    processes = marking.apart(steps, parts, answers)
    assert len(processes) == 2
    for together in processes:
        with pytest.raises(GradingError, match="seen"):
            marking.run_all(together, exercise, unsafe=False)
    assert sum(asked) == 1.5 * sum(part.seconds for part in parts)


def test_a_cell_that_uses_what_another_part_is_given_does_not_run_beside_what_forbids_it():
    """It could leave it somewhere for the answer of that part, such as in a list of a module's."""
    exercise = "03_self_attention"
    released = nbformat.read(home() / "exercises" / exercise / f"{exercise}.ipynb", as_version=4)
    parts = importlib.import_module("coursekit.grading.checks.self_attention").PARTS
    left = "import warnings\nwarnings.filters.append(lambda *given: course.attend(*given, need_weights=True))\n"
    answers = models(exercise) | {"masked_softmax": left + models(exercise)["masked_softmax"]}
    steps = marking.steps_of(released["cells"], answers, parts)
    _, guarded = marking.apart(steps, parts, answers)
    assert [step["source"] for step in guarded if step.get("cell") == "masked_softmax"] == [""]
    assert (
        len(marking.apart(marking.steps_of(released["cells"], models(exercise), parts), parts, models(exercise))) == 1
    )


def test_how_a_part_ended_tells_at_most_eight_bits():
    """Whatever kinds and lines of exceptions a student's code makes up, in however long an answer."""

    def told(kind, line, source="x = 1\n"):
        return stopped({"kind": kind, "line": line}, {"a": source}, ["a"])

    kinds = {told(kind, None) for kind in [*dir(builtins), "Stolen", None, [], 7]}
    for source in ("\n" * 99_000 + "x", "x = 1\n" * 2000, "x = 1\n" * 7, "def f(:\n" * 300):
        lines = [None, -1, 0, True, 2.0, "3", *range(1, 2100, 31), *range(1, 23), 99_001, 10**9]
        places = {told("ValueError", line, source) for line in lines}
        assert (len(kinds) - 1) * len(places) + 1 + len(WAYS_TO_DIE) <= 256  # NotImplementedError tells no place
    assert told("TypeError", 3, "x = 1\n" * 7) == "it stopped with a TypeError in line 3"
    assert told("IndexError", 3, "x = 1\n" * 42) == "it stopped with an IndexError in lines 1 to 3"
    words = [
        "it took longer than 5 seconds",
        "",
        "it stopped with a KeyError in line 2",
        "it stopped with an IndexError",
    ]
    assert once(words) == ["it took longer than 5 seconds", "", "it stopped, too", "it stopped, too"]


WAYS_TO_DIE = (
    *(
        "took longer",
        "took all the time",
        "used more",
        "ended the process",
        "returned more",
        "wrote something of its own",
    ),
    *("did not run", "not answered", "not defined", "cannot be read"),
)


def test_cases_come_in_an_order_that_no_answer_can_count_on():
    """Catches a fixed number of calls of a kind, a case that is left out, and aspects that change places."""
    part, before, places = check.luong_score, set(), set()
    for seed in range(30):
        cases = part.draw(seed, marking=True)
        asked, order = marking.in_secret_order(part, cases, seed)
        more = order.count(-1)
        assert order[:more] == [-1] * more
        assert sorted(order[more:]) == list(range(len(cases)))
        assert all(asked[more + i] is cases[n] for i, n in enumerate(order[more:]))
        assert [one.aspect for one in asked] == [cases[0].aspect] * more + [case.aspect for case in cases]
        packed = [pack_arguments(one.arguments) for one in asked]
        assert len({*packed}) == len(packed)  # what comes again would be known as what does not count
        before.add(more)
        places.add(tuple(order[more:]))
    assert {0, 1, 2} <= before
    assert len(places) > 5


def test_what_is_asked_besides_counts_for_nothing():
    """Whatever comes back from it, and the other calls are those of their cases."""
    right = SOLUTIONS["luong_score"]
    for seed in range(4):
        result = part(mark(job(seed=seed, unsafe=True, luong_score=right)), "luong_score")
        assert result["points"] == result["of"]


@pytest.mark.parametrize("shape", [(10**12, 0), (0, 10**7, 10**7), (2**25,), (1,) * 9])
def test_what_would_take_for_ever_to_be_judged_is_not_unpacked(shape):
    """An array without numbers says as many rows as it likes, and a judge that goes through them does not end."""
    packed = pack({"0": np.zeros(shape, dtype=np.uint8)})
    with pytest.raises(ValueError, match="too many"):
        unpack(packed)


@pytest.mark.parametrize("trouble", ["while True: pass", "raise RecursionError"])
def test_what_cannot_be_judged_is_for_a_person_and_stops_nobody(monkeypatch, trouble):
    def judged(*given):
        exec(trouble)

    monkeypatch.setattr(marking, "SECONDS", 0.3)
    monkeypatch.setattr(marking, "judged", judged)
    record = marking.Record()
    found = marking.judge(check.luong_score, check.luong_score.draw(1), [], record, {})
    assert (found["points"], found["of"]) == (0, check.luong_score.points)
    assert found["problem"] == "the result could not be judged; a person will look at it"
    (detail,) = record.details
    assert detail.startswith(
        ("luong_score: judging it took longer", "luong_score: the judge failed with RecursionError")
    )


def test_an_answer_too_deep_to_be_looked_through_costs_its_own_part_at_most(bubblewrap, tmp_path):
    deep = SOLUTIONS["luong_score"] + "\nx = " + "+".join(["1"] * 700)
    hand_in(tmp_path / "in", alice=deep, bob=SOLUTIONS["luong_score"])
    rows = {row.submission.student: row for row in batch.grade(NAME, [tmp_path / "in"], tmp_path / "out", home()).rows}
    assert [rows[name].status for name in ("alice", "bob")] == ["marked"] * 2
    assert any("could not be looked through" in flag for flag in rows["alice"].submission.flags)
    assert rows["bob"].standing.total == 15


def test_what_a_given_cell_names_beside_what_is_needed_is_not_reached():
    """The cell that imports a helper also calls an earlier answer: the later part does not depend on that one."""
    exercise = "11_assistants"
    released = nbformat.read(home() / "exercises" / exercise / f"{exercise}.ipynb", as_version=4)
    parts = importlib.import_module("coursekit.grading.checks.assistants").PARTS
    right = models(exercise)
    steps = marking.steps_of(released["cells"], right, parts)
    for name in ("dpo_loss", "kl"):
        (one,) = [part for part in parts if part.name == name]
        assert reached(one, steps, right).keys() == {name}
