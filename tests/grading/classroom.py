"""Notebooks as students hand them in, and as platforms and Colab rewrite them."""

import copy
import json

import nbformat

from coursekit.commands.lectures import home
from coursekit.grading.release import mark_up
from tests.grading.answers import models
from tests.grading.answers import seq2seq_attention as answers

NAME = "02_seq2seq_attention"
RELEASED = nbformat.read(home() / "exercises" / NAME / f"{NAME}.ipynb", as_version=4)
SOLUTIONS = models(NAME)
POINTS = {
    "luong_score": 15,
    "additive_score": 10,
    "masked_softmax": 10,
    "attention_step": 15,
    "bahdanau_step": 15,
    "reversal_batch": 10,
    "train": 15,
}


def handed_in(**changed):
    """The released notebook with the answers ``changed`` (None leaves the stub), the others right; nothing written."""
    sources = {**SOLUTIONS, **changed}
    notebook = copy.deepcopy(RELEASED)
    for cell in notebook.cells:
        if sources.get(mark_up(cell).get("grade_id")) is not None:
            cell.source = sources[mark_up(cell)["grade_id"]]
    return notebook


def only(**answered):
    """The released notebook with nothing but these answers."""
    return handed_in(**{name: answered.get(name) for name in SOLUTIONS} | answered)


def cell_of(notebook, name):
    return next(cell for cell in notebook["cells"] if mark_up(cell).get("grade_id") == name)


# --- what happens to notebooks on their way ------------------------------------------------------------


def saved_by_colab(notebook):
    """No cell ids, format 4.0, Colab's own metadata, widgets without state, sources as Colab writes them."""
    rewritten = json.loads(nbformat.writes(notebook))
    rewritten |= {"nbformat_minor": 0}
    rewritten["metadata"] = {"colab": {"provenance": []}, "widgets": {"application/vnd.jupyter.widget-state+json": {}}}
    for number, cell in enumerate(rewritten["cells"]):
        cell.pop("id")
        cell["metadata"]["id"] = f"x{number}"
        cell["metadata"]["outputId"] = "y"
    return rewritten


def without_grading_metadata(notebook):
    rewritten = json.loads(nbformat.writes(notebook))
    for cell in rewritten["cells"]:
        cell["metadata"] = {}
    return rewritten


def bare(notebook):
    """Neither ids nor grading metadata: only what the cells define is left."""
    return saved_by_colab(nbformat.from_dict(without_grading_metadata(notebook)))


def with_equal_ids(notebook):
    rewritten = json.loads(nbformat.writes(notebook))
    for cell in rewritten["cells"]:
        cell["id"] = "same"
    return rewritten


def with_copied_cells(notebook, name):
    """The answer was tried in a copy below the stub, whose metadata were copied with it; a test cell twice too."""
    rewritten = json.loads(nbformat.writes(notebook))
    cells = rewritten["cells"]
    place = cells.index(cell_of(rewritten, name))
    stub = copy.deepcopy(cell_of(RELEASED, name))
    cells.insert(place, json.loads(json.dumps(stub)))
    check = cell_of(rewritten, f"check-{name}")
    cells.insert(cells.index(check), copy.deepcopy(check))
    return rewritten


def without_cell(notebook, name):
    rewritten = json.loads(nbformat.writes(notebook))
    rewritten["cells"].remove(cell_of(rewritten, name))
    return rewritten


def forged(notebook):
    """Points, ids and flags of the grading metadata as one would like them."""
    rewritten = json.loads(nbformat.writes(notebook))
    for cell in rewritten["cells"]:
        about = mark_up(cell)
        if about.get("grade"):
            about |= {"points": 1000, "locked": False, "grade": False, "solution": True}
            cell["source"] = "pass"
    rewritten["cells"].append(
        {
            "cell_type": "code",
            "execution_count": None,
            "outputs": [],
            "id": "extra",
            "metadata": {"nbgrader": {"grade": True, "grade_id": "bonus", "points": 500, "solution": False}},
            "source": "500",
        }
    )
    return rewritten


def mutants():
    """Every wrong answer with its truth: (answer's name, number, points lost, notebook)."""
    for name, all_of_it in answers.MUTANTS.items():
        for number, (points, _, source) in enumerate(all_of_it):
            yield name, number, POINTS[name] - points, source


def packed():
    """Every wrong answer, those with the same number in one hand-in: its changed answers and its true points."""
    found = {}
    for name, number, lost, source in mutants():
        changed, points = found.setdefault(number, ({}, dict(POINTS)))
        changed[name], points[name] = source, points[name] - lost
    return found
