"""Gradescope, classroom50, Moodle, Canvas and nbgrader as a course meets them: by every way the same marks."""

import copy
import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat
import pytest

from coursekit.commands.lectures import home
from coursekit.grading import GradingError, intake, platforms, walls
from coursekit.grading.checks import seq2seq_attention as check
from coursekit.grading.marking import mark, seed_for
from tests.grading.classroom import NAME, POINTS, RELEASED, SOLUTIONS, bare, handed_in, only, packed, saved_by_colab

FILE = f"{NAME}.ipynb"
KEY = bytes(range(32))
(WRITTEN,) = check.WRITTEN

# what classroom50's runner sets for an autograder
RUNNER = {
    "CLASSROOM": "attention",
    "ASSIGNMENT": "seq2seq",
    "ASSIGNMENT_TYPE": "individual",
    "OWNER": "anna",
    "USERNAME": "anna",
    "SUBMISSION_TAG": "submit/2026-11-30T12-00-00Z-a1b2c3d",
    "COMMIT_URL": "https://example.org/commit/a1b2c3d",
    "RELEASE_URL": "https://example.org/releases/a1b2c3d",
    "REVIEW_URL": "https://example.org/compare/a1b2c3d",
}


def strict(text):
    """JSON as a strict reader takes it: no NaN, no half of a surrogate pair."""
    found = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    json.dumps(found, ensure_ascii=False).encode()
    return found


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


# --- the same marks by every way -----------------------------------------------------------------------


# Four with a wrong answer to each part. That every wrong answer gets its points is seen in test_class.py.
CLASS = {
    number: (changed | {WRITTEN: f"Number {number}."}, points)
    for number, (changed, points) in list(packed().items())[:4]
}


def marked_with(answers, seed=1):
    job = {"exercise": NAME, "master": RELEASED, "answers": answers, "seed": seed, "private": None, "unsafe": False}
    return mark(job)


@pytest.fixture(scope="module")
def direct(bubblewrap):
    """What marking the answers themselves comes to, by the answers."""
    all_of_it = [SOLUTIONS | changed for changed, _ in CLASS.values()]
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(map(as_key, all_of_it), pool.map(marked_with, all_of_it)))


def as_key(answers):
    return json.dumps({name: source.strip() for name, source in answers.items()}, sort_keys=True)


@pytest.fixture
def known(direct, monkeypatch):
    """Marking that knows what it has marked before. Answers that were changed on their way are marked anew."""

    def remembered(job):
        return direct.get(as_key(job["answers"])) or mark(job)

    monkeypatch.setattr(platforms, "mark", remembered)
    return lambda answers: direct.get(as_key(answers)) or marked_with(answers)


@pytest.mark.slow
def test_gradescope_gives_the_same_marks(known, tmp_path):
    for number, (changed, points) in CLASS.items():
        write(tmp_path / f"{number}" / FILE, saved_by_colab(handed_in(**changed)))
        found = platforms.gradescope_results(platforms.mark_one(tmp_path / f"{number}", NAME, home(), KEY, "anna"))
        assert {test["name"]: test["score"] for test in found["tests"] if "score" in test} == points
        assert found["score"] == sum(points.values())


@pytest.mark.slow
def test_classroom50_gives_the_same_marks(known, tmp_path):
    for number, (changed, points) in CLASS.items():
        write(tmp_path / f"{number}" / "work" / f"Copy of {FILE}", bare(handed_in(**changed)))
        found = platforms.classroom50_result(platforms.mark_one(tmp_path / f"{number}", NAME, home(), None), RUNNER)
        assert {test["test-name"]: test["score"] for test in found["tests"] if test["max-score"]} == points
        assert (found["score"], found["max-score"]) == (sum(points.values()), sum(POINTS.values()))
        agrees_with_classroom50(found)


LAYOUTS = {
    "moodle": f"Student {{0:02}}_{{1}}_assignsubmission_file_/{FILE}",
    "canvas": f"student{{0:02}}_{{1}}_99_{FILE}",
    "nbgrader": f"submitted/student{{0:02}}/{NAME}/{FILE}",
}


@pytest.mark.slow
@pytest.mark.parametrize("platform", LAYOUTS)
def test_exports_give_the_same_marks(known, platform, tmp_path):
    path = tmp_path / "exchange" if platform == "nbgrader" else tmp_path / "export.zip"
    for number, (changed, _) in CLASS.items():
        place = LAYOUTS[platform].format(number, 1000 + number)
        text = nbformat.writes(handed_in(**changed))
        if platform == "nbgrader":
            write(path / place, text)
            write((path / place).with_name("timestamp.txt"), "2026-11-30 12:00:00.000000 UTC")
        else:
            with zipfile.ZipFile(path, "a") as archive:
                archive.writestr(place, text)
    found = taken_in(path / "submitted" if platform == "nbgrader" else path)
    assert len(found) == len(CLASS)
    for file, answers in found.items():
        number = int(re.search(r"student ?(\d\d)", file, re.IGNORECASE)[1])
        parts = known(answers)["parts"]
        assert {part["name"]: part["points"] for part in parts} == CLASS[number][1]


def taken_in(path):
    found = intake.submissions([path], NAME, [], home()).found
    assert not [submission.problem for submission in found if submission.problem]
    return {submission.file: submission.answers for submission in found}


# --- what a result says --------------------------------------------------------------------------------


def agrees_with_classroom50(found):
    """The contract of result.json, as classroom50's runner insists on it."""
    assert found["schema"] == "classroom50/result/v1"
    for field, variable in {"classroom": "CLASSROOM", "assignment": "ASSIGNMENT", "owner": "OWNER"}.items():
        assert found[field] == RUNNER[variable]
    assert found["submission"].startswith("submit/")
    assert all(isinstance(found[field], str) and found[field] for field in ("commit", "release", "review", "datetime"))
    for counted in (found, *found["tests"]):
        assert type(counted["score"]) is type(counted["max-score"]) is int
        assert 0 <= counted["score"] <= counted["max-score"]
    for test in found["tests"]:
        assert type(test["passed"]) is bool
        assert isinstance(test["test-name"], str)
        assert test["test-name"]
    assert found["tests"], "without tests it counts as passed"
    assert sum(test["score"] for test in found["tests"]) == found["score"]
    assert sum(test["max-score"] for test in found["tests"]) == found["max-score"]


def result_of(**changed):
    """A marked hand-in, without marking."""
    parts = [
        {"name": name, "points": 0, "of": of, "problem": "", "aspects": [a_mistake(of)]} for name, of in POINTS.items()
    ]
    written = [{"name": WRITTEN, "of": 10, "answered": True}]
    whole = {"exercise": NAME, "problem": "", "parts": parts, "written": written, "details": [], "of": 90}
    return whole | changed


def a_mistake(of):
    return {"name": "values", "points": 0, "of": of, "words": "W is transposed"}


def test_gradescope_shows_marks_when_they_are_published_and_what_was_read_at_once():
    found = platforms.gradescope_results(result_of())
    assert found["visibility"] == "after_published"
    assert found["stdout_visibility"] == "hidden"
    read, *parts, written = found["tests"]
    assert read["visibility"] == "visible"
    assert "transposed" not in read["output"]
    assert "score" not in read
    assert [part["output"] for part in parts] == [f"values: 0 of {of}, W is transposed" for of in POINTS.values()]
    assert [part["max_score"] for part in parts] == list(POINTS.values())
    assert not any("visibility" in part for part in (*parts, written)), "they are hidden with the whole"
    assert "score" not in written
    assert "up to 10 points" in written["output"]


def test_what_is_not_answered_is_said_at_once():
    parts = copy.deepcopy(result_of()["parts"])
    parts[1]["problem"] = "not answered"
    result = result_of(parts=parts, written=[{"name": WRITTEN, "of": 10, "answered": False}])
    read, *_, written = platforms.gradescope_results(result)["tests"]
    assert read["status"] == "failed"
    assert re.findall(r"(.*): not answered", read["output"]) == [parts[1]["name"], WRITTEN]
    assert written["output"] == "not answered: 0 of 10 points"
    assert platforms.classroom50_result(result, RUNNER)["tests"][-1]["passed"] is False


def test_classroom50_tells_words_in_the_release():
    text = platforms.release_body(result_of())
    assert text.startswith(f"### {NAME}: 0 of 90 points")
    assert text.count("W is transposed") == len(POINTS)
    assert "up to 10 points" in text


def nested():
    return '{"cells":' + "[" * 10_000 + "]" * 10_000 + "}"


REFUSED = {
    "no notebook": ({"essay.pdf": "%PDF"}, f"There is no notebook in what you handed in: hand in {FILE}."),
    "only hidden ones": ({f".ipynb_checkpoints/{FILE}": "{}", "__MACOSX/._x.ipynb": "{}"}, "There is no notebook"),
    "two": ({"a.ipynb": handed_in(), "b.ipynb": handed_in()}, f"You handed in 2 notebooks: hand in only one, {FILE}."),
    "the same name twice": ({f"a/{FILE}": handed_in(), f"b/{FILE}": handed_in()}, "You handed in 2 notebooks"),
    "another exercise": (
        {FILE: (home() / "exercises/03_self_attention/03_self_attention.ipynb").read_text(encoding="utf-8")},
        "Your notebook cannot be marked: this is 03_self_attention.",
    ),
    "nothing answered": ({FILE: RELEASED}, "Nothing is answered in your notebook"),
    "broken": ({FILE: "{ broken"}, "Your notebook cannot be marked: not JSON"),
    "nested": ({FILE: nested()}, "Your notebook cannot be marked: "),
    "half a surrogate pair": ({FILE: '{"cells": ["\\ud800"]}'}, "Your notebook cannot be marked: "),
    "too large": ({FILE: " " * (21 * 2**20)}, "Your notebook cannot be marked: over 20 MB"),
}


@pytest.mark.parametrize(("files", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_marked_gets_no_points_and_one_sentence(files, words, tmp_path, monkeypatch):
    monkeypatch.setattr(platforms, "mark", lambda job: pytest.fail("nothing is there to be marked"))
    for name, content in files.items():
        write(tmp_path / name, content)
    result = platforms.mark_one(tmp_path, NAME, home(), KEY)
    assert result["problem"].startswith(words)
    assert str(tmp_path) not in result["problem"]
    found = strict(json.dumps(platforms.gradescope_results(result)))
    assert (found["score"], found["output"]) == (0, result["problem"])
    assert found.get("visibility", "visible") == "visible", "a student can mend it only if it is said at once"
    found = strict(json.dumps(platforms.classroom50_result(result, RUNNER)))
    agrees_with_classroom50(found)
    assert (found["score"], found["max-score"], found["tests"][0]["passed"]) == (0, 90, False)
    assert result["problem"] in platforms.release_body(result)


def test_links_are_not_followed(tmp_path):
    key = write(tmp_path / "key.ipynb", nbformat.writes(handed_in()))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / FILE).symlink_to(key)
    (tmp_path / "in" / "folder").symlink_to(tmp_path)
    assert "There is no notebook" in platforms.mark_one(tmp_path / "in", NAME, home(), KEY)["problem"]


def test_of_several_notebooks_that_of_the_exercise_is_marked(tmp_path):
    """As in a repository that holds the whole course."""
    for name in ("01_language_models.ipynb", f"exercises/{NAME}/{FILE}", "notebooks/02_seq2seq.ipynb"):
        write(tmp_path / name, "{}")
    assert platforms.only_notebook(tmp_path, NAME) == tmp_path / "exercises" / NAME / FILE


# --- seeds ---------------------------------------------------------------------------------------------


def test_the_seed_is_the_students_own_and_without_a_key_a_new_one(tmp_path, monkeypatch):
    seeds = []
    marked = {"parts": [], "details": []}
    monkeypatch.setattr(platforms, "mark", lambda job: seeds.append(job["seed"]) or marked)
    answers = {"luong_score": "x = 1"}
    path = write(tmp_path / FILE, nbformat.writes(only(**answers)))
    for key, student in ((KEY, "a@example.org"), (KEY, "b@example.org"), (None, ""), (None, "")):
        platforms.mark_one(path, NAME, home(), key, student)
    assert seeds[0] == seed_for(KEY, NAME, "a@example.org", answers), "as 'coursekit grade' draws it"
    assert len(set(seeds)) == 4


def test_a_group_is_the_same_whoever_hands_in(tmp_path):
    users = [{"email": "b@example.org", "id": 2, "name": "B"}, {"email": "a@example.org", "id": 1, "name": "A"}]
    for order in (users, users[::-1]):
        path = write(tmp_path / "submission_metadata.json", {"id": 7, "users": order})
        assert platforms.gradescope_student(path) == "a@example.org,b@example.org"


# --- the marking itself fails --------------------------------------------------------------------------


@pytest.fixture
def breaks(monkeypatch):
    def fail(job):
        raise RuntimeError(f"SECRET {job['seed']} {KEY.hex()}")

    monkeypatch.setattr(platforms, "mark", fail)
    monkeypatch.setattr(platforms, "student_code_without_walls", lambda: False)


def test_gradescope_hears_of_a_failure_without_a_word_of_it(breaks, tmp_path, capsys):
    write(tmp_path / "submission" / FILE, nbformat.writes(handed_in()))
    write(tmp_path / "submission_metadata.json", {"users": [{"email": "a@example.org"}]})
    write(tmp_path / "source" / "private" / "key", KEY.hex() + "\n")
    (tmp_path / "source" / "exercises").symlink_to(home() / "exercises")
    assert platforms.main(["gradescope", NAME, str(tmp_path)]) == 0
    text = (tmp_path / "results" / "results.json").read_text()
    assert strict(text) | {"score": 0, "output": platforms.FAILED} == strict(text)
    assert "SECRET" not in text
    assert "SECRET" in capsys.readouterr().out, "teachers can see why"


@pytest.mark.parametrize("missing", ["source/private/key", "submission_metadata.json", "submission", "exercises"])
def test_gradescope_hears_of_it_whatever_is_missing(missing, tmp_path):
    write(tmp_path / "submission" / FILE, nbformat.writes(handed_in()))
    write(tmp_path / "submission_metadata.json", {"users": [{"email": "a@example.org"}]})
    write(tmp_path / "source" / "private" / "key", KEY.hex() + "\n")
    if missing != "exercises":
        (tmp_path / "source" / "exercises").symlink_to(home() / "exercises")
        path = tmp_path / missing
        path.rename(tmp_path / "gone")
    assert platforms.main(["gradescope", NAME, str(tmp_path)]) == 0
    assert strict((tmp_path / "results" / "results.json").read_text())["output"] == platforms.FAILED


def test_classroom50_hears_of_a_failure_and_keeps_the_earlier_result(breaks, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for variable, value in RUNNER.items():
        monkeypatch.setenv(variable, value)
    write(tmp_path / FILE, nbformat.writes(handed_in()))
    assert platforms.main(["classroom50", NAME, str(home())]) == 1, "classroom50 makes an error of it"
    found = strict((tmp_path / "result.json").read_text())
    agrees_with_classroom50(found)
    assert found["tests"][0]["test-name"] == platforms.FAILED
    said = capsys.readouterr()
    for text in (
        said.out,
        said.err,
        (tmp_path / "result.json").read_text(),
        (tmp_path / "release-body.md").read_text(),
    ):
        assert "SECRET" not in text
        assert "Traceback" not in text


def test_students_code_runs_without_walls_only_as_another_user(monkeypatch):
    monkeypatch.setattr(walls, "why_not", lambda: "bubblewrap does not start")
    monkeypatch.setattr(walls, "is_root", lambda: True)
    monkeypatch.setattr(walls, "open_to_all", lambda: True)
    assert platforms.student_code_without_walls()
    monkeypatch.setattr(walls, "open_to_all", lambda: False)
    with pytest.raises(GradingError, match="bubblewrap does not start; without it only root"):
        platforms.student_code_without_walls()
    monkeypatch.setattr(walls, "why_not", lambda: None)
    assert not platforms.student_code_without_walls()


# --- what the platforms are given ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def uploaded(tmp_path_factory):
    """The zip for Gradescope, with a teacher's key and hidden cases."""
    folder = tmp_path_factory.mktemp("gradescope")
    write(folder / "private" / "key", KEY.hex() + "\n")
    write(folder / "private" / f"{NAME}.py", "CASES = {}\n")
    write(folder / "private" / "03_self_attention.py", "CASES = {}\n")
    return platforms.autograder_zip(home(), NAME, folder / "to" / "autograder.zip", folder / "private")


def test_the_zip_for_gradescope_holds_what_it_needs_and_nothing_of_other_exercises(uploaded):
    with zipfile.ZipFile(uploaded) as archive:
        entries = {entry.filename: (entry.external_attr >> 16) & 0o777 for entry in archive.infolist()}
        assert archive.read("private/key").decode() == KEY.hex() + "\n"
        assert archive.read(f"exercises/{NAME}/{FILE}") == (home() / "exercises" / NAME / FILE).read_bytes()
        for name in ("setup.sh", "run_autograder", "install.sh"):
            text = archive.read(name).decode()
            assert entries[name] == 0o755
            assert text.startswith("#!/usr/bin/env bash\n")
            assert "\r" not in text
            assert "@" not in text.replace('"$@"', ""), "every gap is filled"
            assert not re.search(r"https?:|index-url", text), "pip and uv know where packages are"
            subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    assert {name for name in entries if name.startswith("private/")} == {"private/key", f"private/{NAME}.py"}
    assert {entries["private/key"], entries[f"private/{NAME}.py"]} == {0o600}
    assert sum(name.endswith(".whl") for name in entries) == 1
    assert "constraints.txt" in entries
    assert not any("solutions" in name for name in entries)
    assert uploaded.stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in uploaded.parent.iterdir()) == ["autograder.zip"]


def test_a_zip_without_a_private_folder_has_a_key_of_its_own(tmp_path):
    keys = set()
    for _ in range(2):
        with zipfile.ZipFile(platforms.autograder_zip(home(), NAME, tmp_path / "x.zip")) as archive:
            keys.add(archive.read("private/key"))
    assert len(keys) == 2
    assert all(len(bytes.fromhex(key.decode())) == 32 for key in keys)


def test_hidden_cases_that_would_be_passed_over_are_refused(tmp_path):
    write(tmp_path / "private" / "seq2seq_attention.py", "CASES = {}\n")
    with pytest.raises(GradingError, match=f"belong in .*{NAME}.py"):
        platforms.autograder_zip(home(), NAME, tmp_path / "x.zip", tmp_path / "private")
    assert not (tmp_path / "x.zip").exists()


@pytest.mark.parametrize("give", [platforms.autograder_zip, platforms.classroom50_bundle])
def test_an_exercise_that_is_not_there(give, tmp_path):
    with pytest.raises(GradingError, match="no exercise '99_nothing'"):
        give(home(), "99_nothing", tmp_path / "x")
    assert not (tmp_path / "x").exists()


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return platforms.classroom50_bundle(home(), NAME, tmp_path_factory.mktemp("classroom50") / NAME)


def test_the_bundle_for_classroom50_holds_no_secret_and_is_small(bundle, tmp_path):
    names = {path.relative_to(bundle).as_posix() for path in bundle.rglob("*") if path.is_file()}
    (wheel,) = (name for name in names if name.endswith(".whl"))
    expected = {"autograder.py", "install.sh", "constraints.txt", "runtime.json", wheel}
    assert {name for name in names if not name.startswith("exercises/")} == expected
    assert not zipfile.ZipFile(bundle / wheel).testzip()
    assert not [name for name in zipfile.ZipFile(bundle / wheel).namelist() if name.endswith(".safetensors")]
    assert strict((bundle / "runtime.json").read_text())["apt"] == ["bubblewrap"]
    compile((bundle / "autograder.py").read_text(), "autograder.py", "exec")
    with pytest.raises(GradingError, match="is not empty"):
        platforms.classroom50_bundle(home(), NAME, bundle)


def test_the_wheel_keeps_the_weights_that_its_exercise_loads(tmp_path):
    for exercise, expected in {"05_bert": ["bert"], "06_gpt": ["gpt-documentation"], "09_dino": ["vit"]}.items():
        bundle = platforms.classroom50_bundle(home(), exercise, tmp_path / exercise)
        (wheel,) = bundle.glob("*.whl")
        names = zipfile.ZipFile(wheel).namelist()
        assert [name.split("/")[-2] for name in names if name.endswith(".safetensors")] == expected
        assert sum(path.stat().st_size for path in bundle.rglob("*") if path.is_file()) < platforms.LARGEST_BUNDLE


# --- the whole way, as the platforms go it -------------------------------------------------------------

SPY = """
import os
found = []
def attempt(what, path, act):
    try: act(path); found.append(f"{what} {path}")
    except OSError: pass
for path in SECRET:
    attempt("READ", path, lambda path: os.listdir(path) if os.path.isdir(path) else open(path).read())
for path in SECRET + FIXED:
    attempt("WROTE", path, lambda path: open(path, "ab").close())
    attempt("CHANGED", path, lambda path: os.chmod(path, 0o777))
    attempt("MOVED", path, lambda path: os.rename(path, path + ".away"))
def luong_score(query, keys, W=None):
    raise RuntimeError("; ".join(found) or "found nothing")
"""


@pytest.fixture
def autograder(uploaded):
    """Gradescope's folder after the image was built. Others may enter the folders above it, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        root = Path(folder) / "autograder"
        with zipfile.ZipFile(uploaded) as archive:
            archive.extractall(root / "source")  # with everybody's right to read, as unzip does it without modes
        (root / "run_autograder").write_bytes((root / "source" / "run_autograder").read_bytes())
        (root / "run_autograder").chmod(0o755)
        (root / "venv").symlink_to(sys.prefix)
        (root / "submission").mkdir()
        write(root / "submission_metadata.json", {"users": [{"email": "anna@example.org", "id": 1, "name": "Anna"}]})
        yield root


def put_open_python(venv):
    """An environment with the packages of this one, and a Python that others may read, as install.sh makes it."""
    version = f"python3.{sys.version_info.minor}"
    if not Path("/usr/bin", version).exists():
        pytest.skip(f"no /usr/bin/{version}, and that of the tests may not be open to others")
    venv.unlink()
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to(f"/usr/bin/{version}")
    (venv / "lib" / version).mkdir(parents=True)
    (venv / "lib" / version / "site-packages").symlink_to(sysconfig.get_paths()["purelib"])
    write(venv / "pyvenv.cfg", "home = /usr/bin\n")


def environment(root, stubs):
    """What a platform's process sees: the fake folder, and the stubs before what is installed."""
    path = f"{stubs}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "AUTOGRADER": str(root), "PYTHONPATH": str(home()), "PATH": path}


def stub(folder, name, text):
    write(folder / name, f"#!/usr/bin/env bash\n{text}\n").chmod(0o755)


@pytest.mark.slow
@pytest.mark.parametrize("walls", [True, False], ids=["bubblewrap", "without bubblewrap"])
def test_gradescope_from_the_zip_to_the_results(autograder, walls, tmp_path, bubblewrap):
    if not walls and os.geteuid() != 0:
        pytest.skip("Gradescope runs autograders as root")
    if not walls:
        put_open_python(autograder / "venv")
        stub(tmp_path, "bwrap", "echo 'bwrap: Creating new namespace failed: Operation not permitted' >&2; exit 1")
    secret = ["source/private/key", "source", "submission", "submission_metadata.json", "results/results.json"]
    paths = [[str(autograder / name) for name in names] for names in (secret, ["results", "run_autograder"])]
    spy = "SECRET, FIXED = {}, {}\n".format(*paths) + SPY
    changed, points = CLASS[1]
    notebook = handed_in(**changed | {"luong_score": spy})
    write(autograder / "submission" / FILE, nbformat.writes(notebook))
    command = [str(autograder / "run_autograder")]
    done = subprocess.run(
        command, env=environment(autograder, tmp_path), cwd=autograder, capture_output=True, text=True, check=True
    )
    text = (autograder / "results" / "results.json").read_text()
    found = strict(text)
    assert "found nothing" in done.stdout, done.stdout + done.stderr
    assert ("without walls" in done.stdout) == (not walls)
    got = {test["name"]: test["score"] for test in found["tests"] if "score" in test}
    assert got == points | {"luong_score": 0}
    seed = str(seed_for(KEY, NAME, "anna@example.org"))
    for hidden in (KEY.hex(), seed, "Traceback", "RuntimeError:", str(autograder)):
        assert hidden not in text


def test_gradescope_hears_of_it_when_not_even_python_starts(autograder, tmp_path):
    (autograder / "venv").unlink()
    command = [str(autograder / "run_autograder")]
    done = subprocess.run(command, env=environment(autograder, tmp_path), capture_output=True, check=False)
    assert done.returncode != 0
    found = strict((autograder / "results" / "results.json").read_text())
    assert (found["score"], found["output"]) == (0, platforms.FAILED)


def test_setup_installs_the_wheel_and_locks_the_key(autograder, tmp_path):
    """setup.sh, with stubs that only note what they are told; python3 puts those of pip and uv into an environment."""
    log, stubs = tmp_path / "log", tmp_path / "stubs"
    for name in ("apt-get", "pip", "uv"):
        stub(stubs, name, f'echo "$(pwd): {name} $*" >> {log}')
    stub(stubs, "python3", f'mkdir -p "$3/bin" && cp {stubs}/pip {stubs}/uv "$3/bin"')
    command = ["bash", str(autograder / "source" / "setup.sh")]
    subprocess.run(command, env=environment(autograder, stubs), cwd="/", check=True)
    lines = log.read_text().splitlines()
    assert "bubblewrap" in lines[1]
    folder, _, words = lines[-1].partition(": uv ")
    assert words.startswith(f"pip install --python {autograder}/venv/bin/python --torch-backend cpu")
    assert (Path(folder) / re.search(r"--constraint (\S+)", words)[1]).is_file()
    assert (Path(folder) / re.search(r"(\S+\.whl)\[grade\]$", words)[1]).is_file()
    assert not (autograder / "source" / "private" / "key").stat().st_mode & 0o077


@pytest.mark.slow
def test_classroom50_from_the_bundle_to_the_result(bundle, tmp_path, bubblewrap):
    runtime, checkout, stubs = tmp_path / "runtime", tmp_path / "checkout", tmp_path / "stubs"
    with tarfile.open(tmp_path / "bundle.tar.gz", "w:gz") as archive:
        archive.add(bundle, "seq2seq")
    with tarfile.open(tmp_path / "bundle.tar.gz") as archive:
        archive.extractall(runtime, filter="data")
    write(runtime / "seq2seq" / "install.sh", f'ln -s {sys.prefix} "$1/venv"\n')
    changed, points = CLASS[2]
    write(checkout / FILE, nbformat.writes(handed_in(**changed)))
    write(checkout / ".github" / "workflows" / "autograde.yaml", "on: push\n")
    for trap in ("torch.py", "json.py", "coursekit.py", "sitecustomize.py", "subprocess.py"):
        write(checkout / trap, f"open({str(tmp_path / 'trapped')!r}, 'w'); raise SystemExit(0)\n")
    victim = write(tmp_path / "victim", "untouched")
    (checkout / "result.json").symlink_to(victim)
    stub(stubs, "sudo", "exit 1")
    entry = [sys.executable, str(runtime / "seq2seq" / "autograder.py")]
    whole = environment(tmp_path, stubs) | RUNNER
    done = subprocess.run(entry, cwd=checkout, env=whole, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (tmp_path / "trapped").exists(), "nothing of the checkout is imported"
    assert victim.read_text() == "untouched"
    found = strict((checkout / "result.json").read_text())
    agrees_with_classroom50(found)
    assert {test["test-name"]: test["score"] for test in found["tests"] if test["max-score"]} == points
    assert "of 90 points" in (checkout / "release-body.md").read_text()
    assert "Traceback" not in done.stdout + done.stderr
