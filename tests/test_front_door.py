"""The files by which a code host knows the course, against the schemas of those who read them."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

HOME = Path(__file__).parents[1]
FILES = {
    "vendor.github-workflows": sorted(HOME.glob(".github/workflows/*.yml")),
    "vendor.dependabot": [HOME / ".github/dependabot.yml"],
    "vendor.github-issue-forms": [
        path for path in sorted(HOME.glob(".github/ISSUE_TEMPLATE/*.yml")) if path.name != "config.yml"
    ],
    "vendor.github-issue-config": [HOME / ".github/ISSUE_TEMPLATE/config.yml"],
    "vendor.citation-file-format": [HOME / "CITATION.cff"],
}


def check(schema: str, *files: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("schema", FILES)
def test_files_are_as_their_readers_want_them(schema):
    done = check(schema, *FILES[schema])
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_workflow_with_a_mistake_is_refused(tmp_path):
    (workflow,) = FILES["vendor.github-workflows"]
    wrong = tmp_path / workflow.name
    wrong.write_text(workflow.read_text("utf-8").replace("runs-on:", "run-on:"), "utf-8")
    assert check("vendor.github-workflows", wrong).returncode == 1


def test_no_workflow_needs_a_secret():
    for path in FILES["vendor.github-workflows"]:
        assert "secrets." not in path.read_text("utf-8"), path


def test_the_workflow_tests_the_oldest_and_the_newest_python_of_the_package():
    project = tomllib.loads((HOME / "pyproject.toml").read_text("utf-8"))["project"]
    workflow = (HOME / ".github/workflows/course.yml").read_text("utf-8")
    assert project["requires-python"] == ">=3.11"
    assert 'python: ["3.11", "3.13"]' in workflow


def test_licences_and_citation_agree():
    project = tomllib.loads((HOME / "pyproject.toml").read_text("utf-8"))["project"]
    citation = (HOME / "CITATION.cff").read_text("utf-8")
    assert f"version: {project['version']}" in citation
    assert project["license"] == "MIT"
    assert project["license-files"] == ["LICENSE", "LICENSE-text"]
    assert (HOME / "LICENSE").read_text("utf-8").startswith("MIT License")
    assert "CC BY 4.0" in (HOME / "LICENSE-text").read_text("utf-8")


def test_the_container_is_json_but_for_its_comments():
    lines = (HOME / ".devcontainer/devcontainer.json").read_text("utf-8").splitlines()
    container = json.loads("\n".join(line for line in lines if not line.strip().startswith("//")))
    assert "bubblewrap" in container["onCreateCommand"]


PAGES = [*sorted(HOME.glob("*.md")), *sorted(HOME.glob("docs/*.md")), HOME / "coursekit/grading/README.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(HOME).as_posix())
def test_every_link_of_a_page_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        path, _, place = target.partition("#")
        if "://" in target:
            continue
        there = page.parent / path if path else page
        assert there.exists(), target
        if place:
            heads = re.findall(r"^#+ (.+)$", there.read_text("utf-8"), re.MULTILINE)
            assert place in {re.sub(r"[^\w -]", "", head).strip().lower().replace(" ", "-") for head in heads}, target


def test_the_glossary_is_sorted_and_each_term_says_where_it_comes_from():
    lines = [line for line in (HOME / "docs/glossary.md").read_text("utf-8").splitlines() if line.startswith("- ")]
    terms = []
    for line in lines:
        found = re.fullmatch(
            r"- \*\*(.+?)\*\*(?: \(also: .+?\))?: .+ \[(\d\d), part (\d+)\]\(../notebooks/(\d\d)_\w+.ipynb\)", line
        )
        assert found, line
        term, lecture, part, linked = found.groups()
        assert lecture == linked, line
        (notebook,) = (HOME / "notebooks").glob(f"{lecture}_*.ipynb")
        assert f"## {part} ·" in notebook.read_text("utf-8"), line
        terms.append(term.lower())
    assert len(terms) > 100
    assert terms == sorted(set(terms))


@pytest.mark.parametrize("page", sorted(HOME.glob("docs/*.md")), ids=lambda page: page.name)
def test_the_code_of_a_page_runs_if_it_is_whole(page, capsys):
    """Code that imports what it needs; what only shows a call is no program."""
    for code in re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL):
        if code.startswith("import"):
            exec(compile(code, page.name, "exec"), {})


def test_each_question_of_the_self_test_has_four_answers_one_of_them_right():
    questions = (HOME / "docs/self_test.md").read_text("utf-8").split("\n## ")[1:]
    assert len(questions) == 12
    rights = []
    for question in questions:
        answers = re.findall(r"<details><summary>([A-D]): .+</summary>\n\n\*\*(Right|Not quite)\.\*\* \S", question)
        assert [letter for letter, _ in answers] == list("ABCD"), question
        (right,) = [letter for letter, verdict in answers if verdict == "Right"]
        rights.append(right)
        assert "To read up: " in question
    assert all(rights.count(letter) <= 7 for letter in "ABCD"), "no letter is a good guess"


def test_the_cells_that_the_page_for_lecturers_names_are_there():
    rows = re.findall(
        r"^\| (\d\d) \| .+ \| `([\w-]+)` \|$", (HOME / "docs/teaching.md").read_text("utf-8"), re.MULTILINE
    )
    assert len(rows) >= 30
    for lecture, cell in rows:
        (notebook,) = (HOME / "notebooks").glob(f"{lecture}_*.ipynb")
        assert f'"id": "{cell}"' in notebook.read_text("utf-8"), (lecture, cell)
