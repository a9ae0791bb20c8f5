"""Marking where students hand in: Gradescope's autograder and classroom50.

``autograder_zip`` and ``classroom50_bundle`` write what a platform is given once. For each hand-in the platform then
runs ``python -m coursekit.grading.platforms``, which marks one notebook and writes the result in the platform's format:

- Gradescope: ``results.json``, https://gradescope-autograders.readthedocs.io/en/latest/specs/
- classroom50: ``result.json``, https://github.com/foundation50/classroom50/wiki/Advanced-Autograding

Moodle, Canvas and nbgrader hand out files instead, which ``coursekit grade`` reads.
"""

import argparse
import json
import os
import secrets
import shutil
import stat
import sys
import tempfile
import traceback
import zipfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import nbformat

from coursekit.files import write_atomically
from coursekit.grading import GradingError, walls
from coursekit.grading.book import in_words
from coursekit.grading.folder import key_of, refuse_private
from coursekit.grading.identity import plain_stem
from coursekit.grading.intake import submissions
from coursekit.grading.marking import check_hidden_cases, mark, seed_for
from coursekit.grading.notebooks import read_released
from coursekit.grading.release import build_wheel, checks_of

FILES = Path(__file__).with_name("platform_files")
FAILED = "The marking itself failed. That is no fault of yours: please tell your teacher, who can run it again."
LARGEST_BUNDLE = 10 * 2**20  # bytes that classroom50 fetches


class HandInError(GradingError):
    """What was handed in cannot be marked. The message is for the student."""


# --- one hand-in ---------------------------------------------------------------------------------------


def mark_one(
    path: Path,
    exercise: str,
    home: Path,
    key: bytes | None,
    student: str = "",
    private: Path | None = None,
    unsafe: bool = False,
) -> dict[str, Any]:
    """Mark what one student handed in.

    Args:
        path: the notebook, or the folder that holds it.
        home: ``home / "exercises"`` holds the released notebooks.
        key: makes the secret seed, with ``student``; without a key the seed is a new one each time.
        private: a folder with hidden cases.
        unsafe: run the student's code without bubblewrap.

    Returns:
        ``exercise``; ``problem``, one sentence for the student where nothing could be marked, otherwise empty;
        ``parts``, as ``marking.mark`` returns them; ``written``, for each question that a person reads its ``name``,
        ``of`` and whether it is ``answered``; ``details``, for teachers only; ``of``, the points that a machine
        can give.

    Raises:
        GradingError: something is wrong that is not the student's to mend.
    """
    checks = checks_of(exercise)
    result = {"exercise": exercise, "problem": "", "parts": [], "written": [], "details": []}
    result["of"] = sum(part.points for part in checks.PARTS)
    master = nbformat.read(home / "exercises" / exercise / f"{exercise}.ipynb", as_version=4)
    try:
        found = read_answers(only_notebook(path, exercise), exercise, home)
    except HandInError as error:
        return result | {"problem": str(error)}
    seed = secrets.randbits(56) if key is None else seed_for(key, exercise, student, found)
    job = {"exercise": exercise, "master": master, "answers": found, "seed": seed, "unsafe": unsafe}
    marked = mark(job | {"private": str(private) if private else None})
    written = [{"name": name, "of": of, "answered": name in found} for name, of in checks.WRITTEN.items()]
    return result | {"parts": marked["parts"], "written": written, "details": marked["details"]}


def only_notebook(path: Path, exercise: str) -> Path:
    """The one notebook in a folder; of several, the one that is called like the exercise. Links are not followed."""
    found = [path]
    if path.is_dir():
        inside = [Path(top, name) for top, _, names in os.walk(path) for name in names if name.endswith(".ipynb")]
        inside = [file for file in inside if not hidden(file.relative_to(path)) and stat.S_ISREG(file.lstat().st_mode)]
        named = [file for file in inside if plain_stem(file.name) == exercise]
        found = inside if len(inside) == 1 else named or inside
    if not found:
        raise HandInError(f"There is no notebook in what you handed in: hand in {exercise}.ipynb.")
    if len(found) > 1:
        raise HandInError(f"You handed in {len(found)} notebooks: hand in only one, {exercise}.ipynb.")
    return found[0]


def hidden(place: Path) -> bool:
    return any(part.startswith(".") or part == "__MACOSX" for part in place.parts)


def read_answers(notebook: Path, exercise: str, home: Path) -> dict[str, str]:
    """The student's answers by ``grade_id``."""
    (submission,) = submissions([notebook], exercise, [], home).found
    if submission.problem:
        raise HandInError(f"Your notebook cannot be marked: {shown(submission.problem)}.")
    if not submission.answers:
        raise HandInError("Nothing is answered in your notebook: all answer cells are as they were handed out.")
    return submission.answers


def shown(words: str) -> str:
    """Words that may hold a student's text, harmless in JSON and Markdown."""
    return "".join(char if char.isprintable() and char not in "`<>" else "?" for char in words[:200])


def student_code_without_walls() -> bool:
    """Whether students' code has to run outside bubblewrap, as a user who exists nowhere else.

    Raises:
        GradingError: it can run neither way here.
    """
    problem = walls.why_not()
    if problem and not (walls.is_root() and walls.open_to_all()):
        raise GradingError(f"{problem}; without it only root can mark, with a Python that every user may read")
    return problem is not None


# --- results -------------------------------------------------------------------------------------------


def points(result: dict[str, Any]) -> int:
    return sum(part["points"] for part in result["parts"])


def gradescope_results(result: dict[str, Any]) -> dict[str, Any]:
    """A result as Gradescope's ``results.json``: a test for each part.

    Students see at once what was read, and marks when the teacher publishes them: who could hand in again and again
    and look, could learn hidden inputs bit by bit.
    """
    if result["problem"]:
        return {"score": 0, "output": result["problem"], "output_format": "text", "stdout_visibility": "hidden"}
    given = {part["name"]: part["problem"] != "not answered" for part in result["parts"]}
    given |= {question["name"]: question["answered"] for question in result["written"]}
    lines = [f"{name}: {'answered' if answered else 'not answered'}" for name, answered in given.items()]
    status = "passed" if all(given.values()) else "failed"
    read = {"name": "What was read", "status": status, "output": "\n".join(lines), "visibility": "visible"}
    tests = [
        {
            "name": part["name"],
            "score": part["points"],
            "max_score": part["of"],
            "output": "\n".join(in_words(part)[1:]),
        }
        for part in result["parts"]
    ]
    waiting = [{"name": q["name"], "output": in_person(q)} for q in result["written"]]
    return {
        "score": points(result),
        "visibility": "after_published",
        "stdout_visibility": "hidden",
        "tests": [read, *tests, *waiting],
    }


def in_person(question: dict[str, Any]) -> str:
    if not question["answered"]:
        return f"not answered: 0 of {question['of']} points"
    return f"a person reads it and gives up to {question['of']} points, which are not counted here"


def classroom50_result(result: dict[str, Any], environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """A result as classroom50's ``result.json``. Who and what is marked stands in its runner's environment."""
    tests = [
        {
            "test-name": part["name"],
            "passed": part["points"] == part["of"],
            "score": part["points"],
            "max-score": part["of"],
        }
        for part in result["parts"]
    ]
    for question in result["written"]:
        about = {"test-name": f"{question['name']}: {in_person(question)}", "passed": question["answered"]}
        tests.append(about | {"score": 0, "max-score": 0})
    if result["problem"]:
        tests = [{"test-name": result["problem"], "passed": False, "score": 0, "max-score": result["of"]}]
    commit = environment.get("COMMIT_URL", "")
    return {
        "schema": "classroom50/result/v1",
        "classroom": environment.get("CLASSROOM", ""),
        "assignment": environment.get("ASSIGNMENT", ""),
        "assignment_type": environment.get("ASSIGNMENT_TYPE", "individual"),
        "owner": environment.get("OWNER", environment.get("USERNAME", "")),
        "submission": environment.get("SUBMISSION_TAG", ""),
        "commit": commit,
        "release": environment.get("RELEASE_URL", ""),
        "review": environment.get("REVIEW_URL", commit),
        "datetime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "score": points(result),
        "max-score": result["of"],
        "tests": tests,
    }


def release_body(result: dict[str, Any]) -> str:
    """What a student reads on classroom50's page of a hand-in, in Markdown."""
    title = f"### {result['exercise']}: {points(result)} of {result['of']} points\n\n"
    if result["problem"]:
        return f"{title}{result['problem']}\n"
    lines = []
    for part in result["parts"]:
        first, *others = in_words(part)
        lines += [f"{part['name']}: {first}", *(f"    {line}" for line in others)]
    lines += [f"{question['name']}: {in_person(question)}" for question in result["written"]]
    return title + "\n".join(["```text", *lines, "```", ""])


# --- what the platforms run ----------------------------------------------------------------------------


def run_gradescope(exercise: str, root: Path) -> int:
    """Mark what lies in Gradescope's folder ``root`` and write ``results/results.json``, whatever happens.

    What is printed only teachers can see.
    """
    private = root / "source" / "private"
    try:
        key = bytes.fromhex((private / "key").read_text(encoding="ascii").strip())
        student = gradescope_student(root / "submission_metadata.json")
        unsafe = student_code_without_walls()
        if unsafe:
            print(f"Students' code runs as another user, but without walls: {walls.why_not()}")
        result = mark_one(root / "submission", exercise, root / "source", key, student, private, unsafe)
        print("\n".join(shown(words) for words in result["details"]))
        found = gradescope_results(result)
    except Exception:
        traceback.print_exc(file=sys.stdout)
        found = {"score": 0, "output": FAILED, "output_format": "text", "stdout_visibility": "hidden"}
    write_json(root / "results" / "results.json", found)
    return 0


def gradescope_student(metadata: Path) -> str:
    """The addresses of those who handed in together; for the same students always the same text."""
    users = json.loads(metadata.read_text(encoding="utf-8"))["users"]
    return ",".join(sorted(str(user["email"]) for user in users))


def run_classroom50(exercise: str, home: Path) -> int:
    """Mark the student's checkout, which is the current folder, and write ``result.json`` there, whatever happens.

    Returns:
        1 if the marking failed, so that classroom50 keeps the student's earlier result.
    """
    failed = 0
    try:
        result = mark_one(Path.cwd(), exercise, home, key=None, unsafe=student_code_without_walls())
    except Exception as error:
        why = str(error) if isinstance(error, GradingError) else type(error).__name__
        print(f"{FAILED} ({shown(why)})")  # students read this log: no traceback
        result, failed = {"exercise": exercise, "problem": FAILED, "parts": [], "written": [], "of": 0}, 1
    write_json(Path("result.json"), classroom50_result(result))
    body = release_body(result)
    write_atomically("release-body.md", lambda unfinished: unfinished.write_text(body, encoding="utf-8"))
    return failed


def write_json(path: Path, content: dict[str, Any]) -> None:
    text = json.dumps(content, indent=1, allow_nan=False) + "\n"
    write_atomically(path, lambda unfinished: unfinished.write_text(text, encoding="ascii"))


# --- what the platforms are given ----------------------------------------------------------------------


def autograder_zip(home: Path, exercise: str, out: Path, private: Path | None = None) -> Path:
    """Write the zip that a teacher uploads to Gradescope. It holds the secret key: nobody else may read it.

    Args:
        private: a folder with the key and perhaps hidden cases, the same as for ``coursekit grade --private``.
            Without it the zip gets a key of its own, and another one each time it is made.

    Returns:
        ``out``.
    """
    if out.is_dir():
        raise GradingError(f"{out} is a folder: name a zip")
    with tempfile.TemporaryDirectory() as folder:
        kit = Path(folder)
        put_course(home, exercise, kit, ("setup.sh", "run_autograder", "install.sh"))
        (kit / "private").mkdir()
        key = secrets.token_bytes(32)
        if private:
            refuse_private(private, exercise, list(read_released(home)))
            check_hidden_cases(str(private), exercise)
            key = key_of(private, None)
            if (private / f"{exercise}.py").is_file():
                shutil.copy(private / f"{exercise}.py", kit / "private")
        (kit / "private" / "key").write_text(key.hex() + "\n", encoding="ascii")
        out.parent.mkdir(parents=True, exist_ok=True)
        unfinished = out.with_name(f".{out.name}.part")
        unfinished.unlink(missing_ok=True)
        with (
            os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file,
            zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
        ):
            for path in sorted(path for path in kit.rglob("*") if path.is_file()):
                place = path.relative_to(kit)
                mode = 0o600 if "private" in place.parts else 0o755 if path.read_bytes()[:2] == b"#!" else 0o644
                entry = zipfile.ZipInfo(place.as_posix(), (2026, 1, 1, 0, 0, 0))
                entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, (stat.S_IFREG | mode) << 16
                archive.writestr(entry, path.read_bytes())
        unfinished.replace(out)
    return out


def classroom50_bundle(home: Path, exercise: str, out: Path) -> Path:
    """Write the folder for classroom50's ``CLASSROOM/autograders/ASSIGNMENT``. Everybody can read it: no secret is in.

    Returns:
        ``out``.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise GradingError(f"{out} is not empty: name a new folder")
    with tempfile.TemporaryDirectory() as folder:
        kit = Path(folder)
        wheel = put_course(home, exercise, kit, ("autograder.py", "install.sh"))
        if (size := wheel.stat().st_size) > LARGEST_BUNDLE - 2**20:
            raise GradingError(f"the wheel takes {size / 2**20:.0f} MiB: classroom50 fetches no more than 10 in all")
        runtime = {"runs-on": "ubuntu-latest", "python": "3.12", "apt": ["bubblewrap"]}
        write_json(kit / "runtime.json", runtime)
        shutil.copytree(kit, out, dirs_exist_ok=True)
    return out


def needed(weights: str, home: Path, exercise: str) -> bool:
    """Whether an exercise or its checks load the shipped weights of this name."""
    notebook = (home / "exercises" / exercise / f"{exercise}.ipynb").read_text(encoding="utf-8")
    checks = Path(checks_of(exercise).__file__).read_text(encoding="utf-8")
    return f"coursekit.recipes.{weights} import" in notebook or f'"{weights}"' in checks


def put_course(home: Path, exercise: str, kit: Path, names: tuple[str, ...]) -> Path:
    """Put the released exercises, what to install and the scripts called ``names`` into ``kit``; return the wheel."""
    if not (home / "exercises" / exercise / f"{exercise}.ipynb").is_file():
        raise GradingError(f"no exercise {exercise!r} in {home / 'exercises'} ('coursekit release' makes it)")
    for released in (home / "exercises").glob("*/*.ipynb"):  # all of them, to tell a student which one it is instead
        if released.stem == released.parent.name:
            (kit / "exercises" / released.stem).mkdir(parents=True)
            shutil.copy(released, kit / "exercises" / released.stem)
    shutil.copy(home / "constraints.txt", kit)
    for name in names:
        text = (FILES / name).read_text(encoding="utf-8").replace("@EXERCISE@", exercise).replace("@FAILED@", FAILED)
        (kit / name).write_text(text, encoding="utf-8", newline="\n")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder)
        for name in ("pyproject.toml", "README.md", "LICENSE", "LICENSE-text"):
            shutil.copy(home / name, source)
        shutil.copytree(home / "coursekit", source / "coursekit", ignore=shutil.ignore_patterns("__pycache__", ".*"))
        for weights in source.rglob("*.safetensors"):
            if not needed(weights.parent.name, home, exercise):
                weights.unlink()
        return build_wheel(source, kit)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m coursekit.grading.platforms", description="Mark one hand-in.")
    parser.add_argument("platform", choices=["gradescope", "classroom50"])
    parser.add_argument("exercise", help="its whole name")
    parser.add_argument("folder", type=Path, help="Gradescope's /autograder; for classroom50 that of autograder.py")
    given = parser.parse_args(words)
    run = run_gradescope if given.platform == "gradescope" else run_classroom50
    return run(given.exercise, given.folder.resolve())


if __name__ == "__main__":
    sys.exit(main())
