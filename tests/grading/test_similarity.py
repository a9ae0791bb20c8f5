"""Who wrote the same code: copies are found whatever their names and formatting, independent answers are not."""

import ast
import csv
import importlib
import re
import time

import nbformat
import pytest

from coursekit.commands.lectures import home
from coursekit.grading import similarity
from coursekit.grading.similarity import Pair, answers_in, fingerprints, similar, tokens_of, write_report

EXERCISES = sorted(path.parent.name for path in home().glob("exercises/*/*.ipynb"))
# The authors of these right answers changed a line of another one: alike they are.
SAME_HAND = {
    ("language_models", "bpe", 0, 1),
    ("language_models", "train", 0, 2),
    ("transformer", "decoder_layer", 0, 2),
}


def right_answers(exercise):
    module = importlib.import_module(f"tests.grading.answers.{re.sub(r'^[0-9]+_', '', exercise)}")
    return {part: list(sources) for part, sources in module.RIGHT.items()}


def released(exercise):
    """The code that is given, and the model answers."""
    notebooks = [
        nbformat.read(home() / kind / exercise / f"{exercise}.ipynb", 4) for kind in ("exercises", "solutions")
    ]
    return [cell.source for notebook in notebooks for cell in notebook.cells if cell.cell_type == "code"]


def disguised(source):
    """A copy as a student would hide it: own names changed, formatted anew, commented, docstrings added and removed."""
    tree = ast.parse(source)
    own = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    own |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    own -= {"self"}

    class Rename(ast.NodeTransformer):
        def visit_Name(self, node):
            return ast.Name(f"my_{node.id}_2" if node.id in own else node.id, node.ctx)

        def visit_arg(self, node):
            return ast.arg(f"my_{node.arg}_2" if node.arg in own else node.arg, node.annotation)

        def visit_FunctionDef(self, node):
            self.generic_visit(node)
            has_one = ast.get_docstring(node) is not None
            node.body = node.body[1:] if has_one else [ast.Expr(ast.Constant("My own words.")), *node.body]
            node.body = node.body or [ast.Pass()]
            return node

    text = ast.unparse(ast.fix_missing_locations(Rename().visit(tree)))
    return "# all my own work\n\n" + text.replace("\n", "  # and so on\n\n")


@pytest.mark.parametrize("exercise", EXERCISES)
def test_answers_of_different_authors_are_not_reported(exercise):
    """All right answers to all parts, as a class; those to the same part that share a line's text are known."""
    right = right_answers(exercise)
    for part, sources in right.items():
        answers = {f"s{n}": {part: source} for n, source in enumerate(sources)}
        found = {tuple(sorted((pair.one, pair.other))) for pair in similar(answers, released(exercise))}
        expected = {(f"s{i}", f"s{j}") for name, of, i, j in SAME_HAND if (exercise[3:], part) == (name, of)}
        assert found == expected, part


@pytest.mark.parametrize("exercise", EXERCISES)
def test_a_disguised_copy_is_reported_if_it_is_long_enough(exercise):
    """A copy of each right answer, in a class that holds all the others."""
    known = released(exercise)
    given = {found.value for source in known for found in fingerprints(source)}
    looked = 0
    for part, sources in right_answers(exercise).items():
        for number, source in enumerate(sources):
            own = {found.value for found in fingerprints(source)} - given
            answers = {f"s{n}": {part: text} for n, text in enumerate(sources)} | {"copy": {part: disguised(source)}}
            found = {(pair.one, pair.other) for pair in similar(answers, known)}
            if len(own) >= 1.5 * similarity.EVIDENCE:
                assert ("copy", f"s{number}") in found, (part, number)
                looked += 1
            elif len(own) < similarity.EVIDENCE:
                assert ("copy", f"s{number}") not in found, (part, number)
    assert looked >= 6


COPIED = """
def visits(rooms, people, limit=3):
    '''Who was where.'''
    found = {}
    for room in rooms:
        guests = [person for person in people if person.room == room]
        if len(guests) > limit:
            guests = sorted(guests, key=lambda guest: guest.age, reverse=True)[:limit]
        found[room.number] = torch.tensor([guest.age for guest in guests], dtype=torch.float32)
    return torch.stack([found[number].mean(dim=-1) for number in sorted(found)])
"""
OTHERS = [
    f"def visits(rooms, people, limit=3):\n    return people.pool(rooms, {n}) / {n + 1} - limit" for n in range(40)
]


def test_a_copy_in_pieces_is_found_with_its_share():
    moved = COPIED.replace("    found = {}\n", "    found = {}\n    print('start')\n    counter = 0\n")
    (pair,) = similar({"a": {"visits": COPIED}, "b": {"visits": moved}, "c": {"visits": OTHERS[0]}}, [])
    assert (pair.part, pair.one, pair.other) == ("visits", "a", "b")
    assert 0.8 < pair.share < 1
    assert pair.shared >= 2 * similarity.EVIDENCE


def test_what_everybody_was_given_is_no_evidence():
    answers = {"a": {"visits": COPIED}, "b": {"visits": disguised(COPIED)}}
    assert len(similar(answers, [])) == 1
    assert similar(answers, [COPIED]) == []
    assert similar(answers, ["import torch\n" + disguised(COPIED)]) == [], "nor the model answer under other names"


@pytest.mark.parametrize(("copies", "reported"), [(2, True), (4, True), (13, True), (14, False), (40, False)])
def test_what_a_third_of_the_class_wrote_is_no_evidence(copies, reported):
    answers = {f"s{n}": {"visits": COPIED if n < copies else OTHERS[n]} for n in range(40)}
    assert len(similar(answers, [])) == (copies * (copies - 1) // 2 if reported else 0)


def test_short_answers_are_no_evidence():
    formula = "def score(q, k, W):\n    k = k @ W.T\n    return torch.einsum('bd,bsd->bs', q, k)\n"
    assert similar({"a": {"score": formula}, "b": {"score": formula}}, []) == []


def test_an_earlier_class_is_compared_with_but_not_within(tmp_path):
    earlier = {"a": {"visits": OTHERS[1]}, "s1": {"visits": COPIED}, "z": {"visits": COPIED}}
    answers = {"a": {"visits": disguised(COPIED)}, "z": {"visits": OTHERS[0]}}
    pairs = similar(answers, [], earlier)
    assert [(pair.one, pair.other) for pair in pairs] == [("a", "s1 (earlier)"), ("a", "z (earlier)")]
    write_report(pairs, answers, tmp_path, "09_x", earlier)
    assert "a and z (earlier): visits" in (tmp_path / "similar" / "09_x.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x = f(a, b)  # why", "result=f(first,\n  second)"),
        ("def f(a, b=1):\n    '''Doc.'''\n    return a", "def g(c, d=1): return c"),
        ("x = 'a'; y = 2", 'x = """b"""\ny = 2'),
        ("self.inner = inner", "self.other = other"),
    ],
)
def test_names_and_formatting_do_not_count(one, other):
    def shape(source):
        order = {}
        return [order.setdefault(word, len(order)) if own else word for word, own, _ in tokens_of(source)]

    assert shape(one) == shape(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x.sum(dim=1)", "x.sum(axis=1)"),
        ("x.sum(dim=1)", "x.mean(dim=1)"),
        ("x + 1", "x + 2"),
        ("x + y", "x - y"),
        ("a + b + a", "a + b + b"),
    ],
)
def test_what_the_code_does_counts(one, other):
    padding = "\nfor i in range(10): print(i)"
    assert {p.value for p in fingerprints(one + padding)} != {p.value for p in fingerprints(other + padding)}


HOSTILE = [
    "(" * 10**6,
    "'''" * 10**6,
    "\ud800\0" * 10**5,
    "a." * 10**6,
    "if x:\n" * 10**5,
    " \n" * 10**6,
    "x=1\n" * 10**6,
]


def test_a_large_class_and_hostile_answers_take_seconds():
    varied = [
        "\n".join(f"def f{i}(a, b): return a.m{i * n % 89}(b, {n}) + [a, b, {i}]" for i in range(15))
        for n in range(300)
    ]
    started = time.perf_counter()
    similar({f"s{n}": {f"part{p}": varied[n] for p in range(5)} for n in range(300)}, [])
    assert time.perf_counter() - started < 60, "300 students with 5 long answers each"
    started = time.perf_counter()
    similar({f"s{n}": {"part": source} for n, source in enumerate(HOSTILE)}, HOSTILE)
    assert time.perf_counter() - started < 20


def test_the_report_shows_both_answers_and_marks_what_is_alike(tmp_path):
    evil = COPIED + "\n# <script>alert(1)</script> \x1b[31m \u202e\n" + "x = 1\n" * 10_000
    answers = {"=a": {"visits": COPIED}, "b\ud800": {"visits": evil}}
    pairs = similar(answers, [])
    table, page = write_report(pairs, answers, tmp_path, "09_x")
    with table.open(encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["student"], row["other"], row["part"], row["share in %"]) == ("'=a", "b?", "visits", "100")
    html = page.read_text(encoding="utf-8")
    assert "<script" not in html
    assert not set(html) & {"\x1b", "\u202e"}
    left, right = html.split('<div class="sides">')[1].split("</pre>")[:2]
    for side in (left, right):
        assert "<mark>    for room in rooms:</mark>" in side
    assert "<mark>x = 1</mark>" not in right
    assert right.count('class="number"') == similarity.SHOWN_LINES
    many = [Pair("visits", "=a", "b\ud800", 0.7, 9)] * 500
    _, page = write_report(many, answers, tmp_path, "09_x")
    assert page.stat().st_size < 20_000_000
    assert "500 pairs of answers, of which the first 200 are shown" in page.read_text(encoding="utf-8")


def test_the_answers_are_read_from_the_marking(tmp_path):
    for student, source in (("a", COPIED), ("b", "pass")):
        cells = [nbformat.v4.new_code_cell(source), nbformat.v4.new_markdown_cell("words")]
        for cell, name in zip(cells, ("visits", "why")):
            cell.metadata = {"nbgrader": {"grade_id": name}, "handed_in": cell.source}
        path = tmp_path / "autograded" / student / "09_x" / "09_x.ipynb"
        path.parent.mkdir(parents=True)
        nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    assert answers_in(tmp_path, "09_x", ["visits"]) == {"a": {"visits": COPIED}, "b": {"visits": "pass"}}
