"""From the masters to what students get."""

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import nbformat
import pytest

from coursekit.commands.lectures import execute, home
from coursekit.grading import GradingError
from coursekit.grading.kernel import GIVEN
from coursekit.grading.release import CHECK, checks_of, mark_up, masters, problems_of, release, student_kit

MASTERS = masters(home())
SEQ2SEQ = next(path for path in MASTERS if path.stem == "02_seq2seq_attention")


@pytest.fixture(params=MASTERS, ids=lambda path: path.stem)
def master(request):
    return request.param


@pytest.mark.slow
def test_what_is_committed_is_what_release_makes(tmp_path):
    made = {path.name: path.read_bytes() for path in release(home(), tmp_path)}
    committed = {path.name: path.read_bytes() for path in (home() / "exercises").glob("*/*.ipynb")}
    assert made == committed, "run `coursekit release`"
    names = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()}
    there = {p.relative_to(home() / "exercises") for p in (home() / "exercises").rglob("*") if p.is_file()}
    assert names == {path for path in there if "checkpoints" not in str(path)}


def test_a_released_exercise_is_its_master_without_the_answers(master):
    released = nbformat.read(home() / "exercises" / master.stem / master.name, as_version=4)
    notebook = nbformat.read(master, as_version=4)
    for cell in notebook.cells:
        written = cell.cell_type == "markdown" and mark_up(cell).get("solution")
        cell.source = "" if written else cell.source.partition("### BEGIN")[0].rstrip()
    shown = {cell.id: cell.source for cell in released.cells}
    assert list(shown) == [cell.id for cell in notebook.cells], f"run `coursekit release {master.stem[:2]}`"
    for cell in notebook.cells:
        assert shown[cell.id].startswith(cell.source), f"{cell.id}: run `coursekit release {master.stem[:2]}`"


def test_a_master_is_without_fault_and_clean(master):
    assert problems_of(master) == []
    notebook = nbformat.read(master, as_version=4)
    nbformat.validate(notebook)
    assert "widgets" not in notebook.metadata
    assert not [cell.id for cell in notebook.cells if re.fullmatch(r"[0-9a-f]{8}", cell.id)]


def test_an_exercise_has_its_anatomy(master):
    notebook = nbformat.read(master, as_version=4)
    cells = notebook.cells
    checks = checks_of(master.stem)
    assert 1 <= len(checks.PARTS) <= 8, "an exercise has up to eight parts that are checked, most have six or seven"
    assert len(checks.WRITTEN) == 1, "an exercise has one written question, that a person marks"
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    for number in range(1, len(checks.PARTS) + len(checks.WRITTEN) + 1):
        (heading,) = re.findall(rf"^## {number} · .*\n\n(.*)$", text, re.MULTILINE)
        told = "below the heading of a part stands a line such as '★★☆ · 20 minutes · 12 points'"
        assert re.match(r"[★☆]{3} · \d+ minutes · \d+ points", heading), told
    assert text.count("<details><summary>Hint</summary>") == len(checks.PARTS), "each checked part has a hint"
    for number, part in enumerate(checks.PARTS, 1):  # what a card says of them
        place = next(i for i, cell in enumerate(cells) if cell.id == CHECK + part.name)
        near = "".join(cell.source for cell in cells[place - 2 : place])
        assert "<summary>Hint</summary>" in near, f"a hint is above the check of {part.name}"
        above = "\n".join(cell.source for cell in cells[:place])
        assert re.findall(r"^## (\d+) · ", above, re.MULTILINE)[-1] == str(number), f"{part.name} is part {number}"
    setup = next(cell.source for cell in cells if cell.id == "setup")
    lecture = nbformat.read(next((home() / "notebooks").glob(f"{master.stem[:2]}_*.ipynb")), as_version=4)
    assert setup == next(cell.source for cell in lecture.cells if cell.id == "setup")
    for cell in cells:
        about = mark_up(cell)
        if cell.cell_type == "code" and (about.get("grade") or about.get("solution")):
            assert "raises-exception" in cell.metadata.tags, f"{cell.id}: a failed part would stop all that follow"


def printed(notebook, name: str) -> str:
    """All that a cell has shown, as text."""
    (cell,) = (cell for cell in notebook.cells if cell.id == name)
    return "".join(out.data["text/plain"] for out in cell.outputs if out.output_type == "display_data")


@pytest.mark.slow
def test_a_master_earns_all_its_points(master, tmp_path):
    result = execute(master, tmp_path)
    assert result["error"] is None
    executed = nbformat.read(tmp_path / "notebook.ipynb", as_version=4)
    failed = [cell.id for cell in executed.cells for out in cell.get("outputs", []) if out.output_type == "error"]
    assert failed == []
    score = printed(executed, "score")
    automatic = sum(part.points for part in checks_of(master.stem).PARTS)
    assert re.search(rf"so far +{automatic} of +{automatic} ", score)


@pytest.mark.slow
def test_a_stub_fails_every_check_and_stops_nothing(master, tmp_path):
    stub = home() / "exercises" / master.stem / master.name
    result = execute(stub, tmp_path)
    executed = nbformat.read(tmp_path / "notebook.ipynb", as_version=4)
    assert executed.cells[-1].execution_count, "the last cell was reached"
    for cell in executed.cells:
        if mark_up(cell).get("grade") and cell.cell_type == "code":
            *card, error = [out.output_type for out in cell.outputs]
            checked = cell.outputs[-1].get("ename") == "CheckFailed"  # and not a name that the stub did not make
            assert (card, error) == (["display_data"] if checked else [], "error")
    score = printed(executed, "score")
    assert re.search(r"so far +0 of", score)
    assert result["error"] is None


def error_shown(tmp_path, path, answer, source):
    """What a student sees of a check, with the given cells before it and this answer."""
    notebook = nbformat.read(home() / "exercises" / path.stem / path.name, as_version=4)
    ids = [cell.id for cell in notebook.cells]
    place = ids.index(answer)
    check = next(i for i in range(place, len(ids)) if ids[i].startswith("check-"))
    notebook.cells = [notebook.cells[ids.index("imports")], *notebook.cells[place : check + 1]]
    notebook.cells[1].source = source
    nbformat.write(notebook, tmp_path / "x.ipynb")
    execute(tmp_path / "x.ipynb", tmp_path / "out")
    card, error = nbformat.read(tmp_path / "out" / "notebook.ipynb", as_version=4).cells[-1].outputs
    text = card.data["text/plain"]
    assert error.traceback == [text.splitlines()[0]], "the card says the rest"
    assert error.evalue == text.partition("\n\n")[0], "whoever reads the run still finds the words"
    return text


def test_an_error_in_a_notebook_shows_words_and_no_traceback_of_ours(tmp_path):
    source = "def luong_score(query, keys, W=None):\n    return query @ keys"
    text = error_shown(tmp_path, SEQ2SEQ, "luong_score", source)
    assert text.startswith("✗ luong_score: 0 of 15 points")
    shown = text[text.index("Where it stopped:") :]
    assert re.fullmatch(
        r"Where it stopped:\n  your cell, line 2, in luong_score\n    return query @ keys\nRuntimeError: .*", shown
    )


def test_an_error_is_in_the_cell_in_which_it_is_and_not_in_torch(tmp_path):
    """The given cell that calls the answer is told from it, and libraries are passed over."""
    attention = next(path for path in MASTERS if path.stem == "03_self_attention")
    source = """class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.qkv, self.out = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)
    def forward(self, x, mask=None):
        return nn.functional.cross_entropy(x, x, reduction="no")"""
    text = error_shown(tmp_path, attention, "multi_head_attention", source)
    places = re.findall(r"^  (.+), line (\d+), in (\w+)$", text, re.MULTILINE)
    assert [(where, name) for where, _, name in places] == [
        ("a given cell", "multi_head_attention"),
        ("your cell", "forward"),
    ]
    assert places[1][1] == "6"
    assert text.splitlines()[-1].startswith("ValueError: no is not a valid value")
    assert "site-packages" not in text


def test_given_cells_say_so_where_they_define_something(master):
    """By that the place of an error is known: see ``place_of``."""
    for cell in nbformat.read(master, as_version=4).cells:
        about = mark_up(cell)
        if cell.cell_type != "code" or cell.id == "setup":
            continue
        if about.get("solution") or about.get("grade"):
            assert not cell.source.startswith(GIVEN)
        elif re.search(r"^\s*(def|class) ", cell.source, re.MULTILINE) or cell.id == "train-it":
            assert cell.source.startswith(GIVEN + ", leave as it is\n"), cell.id


def test_a_training_is_judged_before_another_cell_shows_its_model_anything(master):
    """A model is the student's own code: it could learn from test images that a cell hands it."""
    cells = nbformat.read(master, as_version=4).cells
    names = [cell.id for cell in cells if cell.cell_type == "code"]
    for place in (place for place, name in enumerate(names) if name == "train-it"):
        assert names[place + 1].startswith("check-"), names[place + 1]


# --- masters with a fault ------------------------------------------------------------------------------


@pytest.fixture
def course(tmp_path):
    """A copy of one master alone, to break."""
    name = SEQ2SEQ.stem
    folder = tmp_path / "solutions" / name
    folder.mkdir(parents=True)
    path = folder / f"{name}.ipynb"
    path.write_bytes(SEQ2SEQ.read_bytes())
    (tmp_path / "exercises" / name).mkdir(parents=True)
    (tmp_path / "exercises" / name / f"{name}.ipynb").write_bytes(
        (home() / "exercises" / name / path.name).read_bytes()
    )
    return path


def change(path, edit):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    edit(notebook)
    path.write_text(json.dumps(notebook), encoding="utf-8")


def duplicate_grade_id(notebook):
    notebook["cells"][5]["metadata"]["nbgrader"]["grade_id"] = "title"


def duplicate_cell_id(notebook):
    notebook["cells"][5]["id"] = notebook["cells"][4]["id"]


def missing_id(notebook):
    del notebook["cells"][5]["metadata"]["nbgrader"]["grade_id"]


def no_cell_ids(notebook):
    notebook["nbformat_minor"] = 4
    for cell in notebook["cells"]:
        del cell["id"]


def half_renamed(notebook):
    next(c for c in notebook["cells"] if c["id"] == "luong_score")["id"] = "score"


def other_points(notebook):
    next(c for c in notebook["cells"] if c["id"] == "check-luong_score")["metadata"]["nbgrader"]["points"] = 16


def outputs(notebook):
    out = {"output_type": "stream", "name": "stdout", "text": "x"}
    next(c for c in notebook["cells"] if c["id"] == "imports")["outputs"] = [out]


def unmarked_solution(notebook):
    next(c for c in notebook["cells"] if c["id"] == "luong_score")["source"] = "def luong_score(): return 1"


def imported_early(notebook):
    imports = next(c for c in notebook["cells"] if c["id"] == "imports")
    imports["source"] = [*imports["source"], "\nfrom coursekit.data.reversal import reversal as turned"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (duplicate_grade_id, "duplicate grade_id 'title'"),
        (duplicate_cell_id, "duplicate cell id"),
        (missing_id, "has no grade_id"),
        (half_renamed, "cell 'score' has the grade_id 'luong_score', but must have its id"),
        (no_cell_ids, "no cell ids"),
        (other_points, "the points add up to 101, not 100"),
        (outputs, "'imports' has outputs"),
        (unmarked_solution, "'luong_score' marks no solution"),
        (imported_early, "turned is imported in the part luong_score, which does not use it"),
    ],
)
def test_a_fault_in_a_master_is_said_and_nothing_is_changed(course, edit, words):
    change(course, edit)
    released = course.parents[2] / "exercises" / course.stem / course.name
    before = released.read_bytes()
    with pytest.raises(GradingError, match=words):
        release(course.parents[2])
    assert released.read_bytes() == before


def test_release_does_not_overwrite_answers(course):
    """Somebody works through the exercise in the repository: their work is not thrown away."""
    released = course.parents[2] / "exercises" / course.stem / course.name

    def answer(notebook):
        next(c for c in notebook["cells"] if c["id"] == "luong_score")["source"] = "def luong_score(): return 1"

    change(released, answer)
    before = released.read_bytes()
    with pytest.raises(GradingError, match="holds answers"):
        release(course.parents[2])
    assert released.read_bytes() == before


def test_one_exercise_can_be_made_alone(course):
    home = course.parents[2]
    (made,) = home.glob("exercises/*/*.ipynb")
    wanted = made.read_bytes()
    for folder in ("solutions", "exercises"):  # another, whose master is broken and in which somebody works
        (home / folder / "03_other").mkdir()
        (home / folder / "03_other" / "03_other.ipynb").write_text("somebody's", encoding="utf-8")
    made.unlink()
    assert release(home, only=course.stem) == [made]
    assert made.read_bytes() == wanted
    assert (home / "exercises" / "03_other" / "03_other.ipynb").read_text(encoding="utf-8") == "somebody's"


# --- what students get ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kit(tmp_path_factory):
    out = tmp_path_factory.mktemp("kit") / "attention"
    return out, student_kit(home(), out)


@pytest.fixture(scope="module")
def everything(kit):
    """Every file of the folder, of the zip, and of the wheels in both, by name."""
    out, archive = kit
    found = {f"folder/{path.relative_to(out)}": path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with zipfile.ZipFile(archive) as file:
        found |= {f"zip/{name}": file.read(name) for name in file.namelist()}
    for name in [name for name in found if name.endswith(".whl")]:
        (Path(out).parent / "x.whl").write_bytes(found[name])
        with zipfile.ZipFile(Path(out).parent / "x.whl") as wheel:
            found |= {f"{name}/{entry}": wheel.read(entry) for entry in wheel.namelist()}
    return found


@pytest.mark.slow
def test_students_get_lectures_exercises_and_the_package(everything):
    names = set(everything)
    name = SEQ2SEQ.stem
    wheel = next(n for n in names if n.startswith("folder/") and n.endswith(".whl"))
    for wanted in (
        f"folder/exercises/{name}/{name}.ipynb",
        f"zip/attention/notebooks/{name}.ipynb",
        "folder/README.md",
        "folder/constraints.txt",
    ):
        assert wanted in names
    assert f"{wheel}/coursekit/grading/checks/{name[3:]}.py" in names
    assert f"{wheel}/coursekit/viz/js/alignment.js" in names


@pytest.mark.slow
def test_students_get_nothing_secret(everything):
    assert not [name for name in everything if "solutions" in name or "/tests/" in name or "answers" in name]
    files = {data: name for name, data in everything.items()}  # what is there twice is looked through once
    hidden, solved = [], []
    for path in MASTERS:
        for cell in nbformat.read(path, as_version=4).cells:
            hidden += re.findall(r"### BEGIN HIDDEN TESTS\n(.*?)\n### END", cell.source, re.DOTALL)
            solved += re.findall(r"### BEGIN SOLUTION\n(.*?)\n *### END", cell.source, re.DOTALL)
            if mark_up(cell).get("solution") and cell.cell_type == "markdown":
                solved.append(cell.source)
    assert len(hidden) == sum(len(checks_of(path.stem).PARTS) for path in MASTERS)
    assert len(solved) > len(hidden)
    assert not [name for data, name in files.items() for secret in hidden if secret.encode() in data]
    notebooks = {data: name for name, data in everything.items() if name.endswith(".ipynb")}
    for secret in hidden + solved:
        lines = [json.dumps(line, ensure_ascii=False)[1:-1].encode() for line in secret.splitlines() if len(line) > 60]
        lines.append(json.dumps(secret, ensure_ascii=False)[1:-1].encode())
        assert not [name for data, name in notebooks.items() for line in lines if line in data]
    marks = (b"### BEGIN HIDDEN", b"### BEGIN SOLUTION", b"### BEGIN MARK SCHEME")
    assert not [name for data, name in notebooks.items() for mark in marks if mark in data]


@pytest.mark.slow
def test_a_folder_with_something_in_it_is_not_overwritten(kit):
    out, archive = kit
    before = archive.read_bytes()
    with pytest.raises(GradingError, match="is not empty"):
        student_kit(home(), out)
    assert archive.read_bytes() == before


@pytest.mark.slow
def test_the_checks_run_from_the_wheel_alone(kit, tmp_path):
    """As in a student's environment: no tests, no solutions, no nbgrader."""
    wheel = next(kit[0].glob("*.whl"))
    code = """
import sys
sys.modules["nbgrader"] = sys.modules["psutil"] = sys.modules["nbformat"] = None
from coursekit.grading.checks import seq2seq_attention as check
import coursekit, torch
assert ".whl" in coursekit.__file__
check.luong_score(lambda q, k, W=None: torch.einsum("bd,bsd->bs", q, k if W is None else k @ W.T))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={"PYTHONPATH": str(wheel)}, capture_output=True, text=True
    )
    assert done.stdout == "✓ luong_score: 15 of 15 points\n", done.stderr
