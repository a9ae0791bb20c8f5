"""What a check tells a student: every wrong answer its own words and points, every right answer its points."""

import contextlib
import functools
import importlib
import itertools
import linecache
import random

import nbformat
import numpy as np
import pytest
import torch

from coursekit.commands.lectures import home
from coursekit.data.digits import digits
from coursekit.grading.calls import Seed, Unusable, collect, fresh_copies, same
from coursekit.grading.checks import language_models
from coursekit.grading.differences import difference, without_values
from coursekit.grading.kernel import CheckFailed, place_of
from coursekit.grading.parts import Case, Part
from coursekit.grading.release import CHECK, checks_of, mark_up, masters
from coursekit.grading.rules import borrowed_in
from coursekit.grading.weights import DIVERGED, NOT_GIVEN, once_for_a_model, put_into
from tests.conftest import FULL
from tests.grading.answers import answers_of, changed, trained

SEE = "(docs/contributing.md, 'A new lecture with its exercise', says how)"
EXERCISES = {path.stem: nbformat.read(path, as_version=4) for path in masters(home())}
ANSWERS = {name: answers_of(name) for name in EXERCISES}


@pytest.fixture(autouse=True)
def one_order(monkeypatch):
    """What a given cell shuffles, so that nobody can know the order, is shuffled here as in the run before."""
    monkeypatch.setattr(random, "SystemRandom", lambda: random.Random(0))


def execute(cell, source, names):
    """Run ``source`` as what stands in the cell, unless it installs the course."""
    if "%pip" not in source:
        exec(compile(source, cell.id, "exec"), names)


def is_given(cell):
    about = mark_up(cell)
    return cell.cell_type == "code" and not about.get("grade") and not about.get("solution")


@functools.lru_cache(maxsize=1)
def given_before(exercise, place):
    """What the given cells before an answer define, twice, since answers add to the first; and torch's state then."""
    names = {}
    for cell in filter(is_given, EXERCISES[exercise].cells[:place]):
        execute(cell, cell.source, names)
    return names, dict(names), torch.get_rng_state()


def namespace(exercise, answer, source):
    """Everything that the exercise's cells define, with ``source`` as the answer called ``answer``.

    Only the given cells that the answer's part needs are run, and no check. Those before the answer are run once for
    all its variants, one after the other, unless it trains, which changes what it is given.
    """
    cells, part = EXERCISES[exercise].cells, part_of(exercise, answer)
    place = next(i for i, cell in enumerate(cells) if mark_up(cell).get("grade_id") == answer)
    names, before, state = (given_before.__wrapped__ if trained(part) else given_before)(exercise, place)
    names.clear()
    names.update(before)
    torch.set_rng_state(state)
    execute(cells[place], source, names)
    for cell in itertools.takewhile(lambda cell: not mark_up(cell).get("grade"), cells[place + 1 :]):
        if is_given(cell):
            execute(cell, cell.source, names)
    return names.get(part.result), part


def part_of(exercise, answer):
    """The part whose check comes next after the answer."""
    graded = [mark_up(cell).get("grade_id", "") for cell in EXERCISES[exercise].cells]
    check = next(name for name in graded[graded.index(answer) :] if name.startswith(CHECK))
    return getattr(checks_of(exercise), check.removeprefix(CHECK))


def cases(which):
    return [
        pytest.param(
            exercise,
            answer,
            wrong,
            id=f"{exercise[:2]}-{answer}-{number}",
            marks=[pytest.mark.slow] if trained(part_of(exercise, answer)) else [],
        )
        for exercise, module in ANSWERS.items()
        for answer, all_of_it in getattr(module, which).items()
        if FULL or which == "MUTANTS" or not trained(part_of(exercise, answer))  # test_marking.py trains one of those
        for number, wrong in enumerate(all_of_it)
    ]


@pytest.mark.parametrize(("exercise", "answer", "mutant"), cases("MUTANTS"))
def test_a_wrong_answer_is_told_its_own_mistake(exercise, answer, mutant, pytestconfig):
    """And what a student sees in the notebook holds in the marking: the same points with another seed (`ALL=1`)."""
    points, words, source = mutant
    result, part = namespace(exercise, answer, source)
    quick = trained(part) or pytestconfig.getoption("markexpr") == "not slow"
    for seed in (0,) if quick and not FULL else (0, 77):
        with pytest.raises(CheckFailed) as failed:
            part(result, seed=seed)
        told = failed.value.text
        assert words in " ".join(told.split())
        assert part.earned == points, f"with the seed {seed}: {told}"
    for seed in range(1, 25) if FULL and not trained(part) else ():
        with contextlib.suppress(CheckFailed):
            part(result, seed=seed)
        assert part.earned == points, f"with the seed {seed}"


@pytest.mark.parametrize(("exercise", "answer", "source"), cases("RIGHT"))
def test_a_right_answer_of_another_style_passes(exercise, answer, source, capsys):
    """With several seeds: the marking draws one for each student."""
    result, part = namespace(exercise, answer, source)
    few, many = ((0,), range(4)) if trained(part) else ((0, 1, 77), range(60))
    for seed in many if FULL else few:
        part(result, seed=seed)
        assert capsys.readouterr().out.endswith(f"✓ {part.name}: {part.points} of {part.points} points\n")


@pytest.mark.parametrize("exercise", EXERCISES)
def test_every_answer_has_enough_wrong_and_right_ones(exercise):
    cells = EXERCISES[exercise].cells
    answers = {mark_up(c)["grade_id"] for c in cells if mark_up(c).get("solution") and c.cell_type == "code"}
    module = ANSWERS[exercise]
    assert set(module.MUTANTS) == set(module.RIGHT) == answers
    for answer in answers:
        assert len(module.MUTANTS[answer]) >= 4, f"{answer}: fewer than four wrong answers {SEE}"
        words = [words for _, words, _ in module.MUTANTS[answer]]
        assert all(words), f"{answer}: a wrong answer without the words that it must be told {SEE}"
        assert len(set(words)) == len(words), f"{answer}: each wrong answer needs words of its own {SEE}"
        assert len(module.RIGHT[answer]) >= 2


def test_what_a_patch_replaces_has_to_be_there_once():
    assert changed("a = b", ("b", "c", "c", "d"), "") == "a = d"
    for old, times in {"b": 2, "x": 0}.items():
        with pytest.raises(ValueError, match=f"04, train: '{old}' is to be replaced.* there {times} times"):
            changed("a = b + b", (old, "c"), "04, train")


@pytest.mark.parametrize("exercise", EXERCISES)
def test_a_stub_earns_nothing_and_is_told_so(exercise):
    for part in checks_of(exercise).PARTS:

        def stub(*arguments):
            raise NotImplementedError

        if not trained(part):
            with pytest.raises(CheckFailed, match=rf"^○ {part.name}: 0 of (?s:.*)not answered yet"):
                part(stub)
            assert (part.earned, part.answered) == (0, False)


@pytest.mark.parametrize(
    "call", ["model(", "model.forward(", "Transformer.forward(model, ", "super(type(model), model).forward("]
)
def test_the_translator_is_not_to_be_called_itself(call):
    """Exercise 04 forbids it, by whatever name: it would do two of the five steps."""
    source = f"""
from coursekit.models.transformer import Transformer
def train(model):
    source, target = next(batches())
    return {call}source, source != PAD, target)
"""
    with pytest.raises(RuntimeError, match=r"model\.encode, then model\.decode"):
        namespace("04_transformer", "train", source)


def test_nor_is_it_called_through_another_class():
    source = """
from coursekit.models.transformer import Transformer
class Whole(Transformer):
    def __init__(self, model):
        super().__init__(model.config)
        self.both = [model]
    def encode(self, source, mask):
        return self.both[0].encode(source, mask)
def train(model):
    source, target = next(batches())
    return Whole(model)(source, source != PAD, target)
"""
    with pytest.raises(RuntimeError, match=r"model\.encode, then model\.decode"):
        namespace("04_transformer", "train", source)


def test_nor_is_its_class_at_hand_to_build_another():
    """Whose import is told to a person; and what the given cell counts is nowhere that an answer could reach."""
    for source, words in {
        "Transformer(model.config)": "Transformer",
        "model._batches_read.fill_(600)": "_read",
    }.items():
        with pytest.raises((NameError, AttributeError), match=words):
            namespace("04_transformer", "train", f"def train(model):\n    return {source}")
    source = "from coursekit.models.transformer import Transformer"
    above = itertools.takewhile(lambda cell: cell.id != "train", EXERCISES["04_transformer"].cells)
    given = [cell.source for cell in above if cell.cell_type == "code" and not mark_up(cell).get("solution")]
    assert borrowed_in(source, given, len(given), "") == ["imports Transformer from coursekit.models.transformer"]


def in_place(arguments, number):
    """Change one of the arguments; False where there is nothing to change."""
    given = arguments[number]
    if isinstance(given, torch.Tensor) and given.numel():
        with torch.no_grad():
            given.copy_(~given if given.dtype is torch.bool else given + 1)
    elif isinstance(given, list):
        given.append(given[0] if given else 0)
    else:
        return False
    return True


def vandal(result, part, number):
    """A right answer that changes an argument, and the aspects in whose cases it found something to change."""
    aspects, touched = iter([case.aspect for case in part.draw(0)]), set()

    def answer(*arguments):
        aspect, returned = next(aspects), result(*fresh_copies(arguments))
        if number < len(arguments) and in_place(arguments, number):
            touched.add(aspect)
        return returned

    return answer, touched


@pytest.mark.parametrize("exercise", EXERCISES)
def test_a_right_answer_that_changes_what_it_is_given_fails_the_case(exercise):
    """In every part, whichever argument it is: a tensor, a list, one behind a task's name."""
    for name, styles in ANSWERS[exercise].RIGHT.items():
        part = next(part for part in checks_of(exercise).PARTS if part.name == name)
        if trained(part):
            continue
        result, _ = namespace(exercise, name, styles[0])
        cases = part.draw(0)
        kinds = {(n, type(a)) for case in cases for n, a in enumerate(case.arguments)}
        for number in {n for n, kind in kinds if kind in (torch.Tensor, list)}:
            answer, touched = vandal(result, part, number)
            with contextlib.suppress(CheckFailed):
                part(answer)
            assert touched, "nothing was changed"
            assert part.earned == sum(points for aspect, points in part.aspects.items() if aspect not in touched)


def test_which_argument_is_changed_is_said_in_the_words_of_the_part():
    def shift(x, y, amounts):
        {"x": x, "y": y}[which].add_(1) if which in "xy" else amounts.append(1)
        return x * 0

    arguments = (torch.ones(2), torch.ones(2), [2])
    for reference, words in {
        (lambda x, y, amounts: x * 0): {"x": "the tensor x that", "y": "the tensor y that", "list": "the list amounts"},
        (lambda task, *rest: task * 0): {"x": "the first tensor", "y": "the second tensor", "list": "the list that"},
        (lambda x, *rest: x * 0): {"x": "the tensor x that", "y": "the second tensor", "list": "the list that"},
    }.items():
        part = Part("shift", {"a": 1}, lambda g: [Case("a", "", arguments)], reference)
        for which, told in words.items():
            with pytest.raises(CheckFailed) as failed:
                part(shift)
            assert f"{told} " in " ".join(failed.value.text.split()), (which, failed.value.text)
            assert "expected:" not in failed.value.text, "the result is right"
    assert arguments[2] == [2], "lists are copied, too"


@pytest.mark.parametrize(
    ("before", "change"),
    [
        (torch.ones(2, 3), lambda x: x.t_()),
        (torch.ones(2, 2), lambda x: x.resize_(4)),
        (torch.tensor([1.0, torch.nan]), lambda x: x.nan_to_num_()),
        (torch.tensor([True, False]), lambda x: x.logical_not_()),
        ([[1], [2]], lambda x: x[1].append(3)),
        ({"a": torch.ones(2)}, lambda x: x["a"].zero_()),
        ({"a": 1}, lambda x: x.update(b=2)),
        ([1.0, None], lambda x: x.reverse()),
    ],
)
def test_every_change_of_an_argument_is_seen_and_nothing_else(before, change):
    (now,) = fresh_copies([before])
    assert same(before, now)
    change(now)
    assert not same(before, now)


LAYER_NORMS = {
    "F": "F.layer_norm(x, (4,))",
    "module": "nn.LayerNorm(4)(x)",
    "torch": "torch.layer_norm(x, (4,))",
    "alias": "alias(x, (4,))",
    "caught": "caught(x)",
    "ops": "torch.ops.aten.layer_norm(x, (4,))",
    "overload": "torch.ops.aten.layer_norm.default(x, (4,), None, None, 1e-5)",
}


@pytest.mark.parametrize("way", LAYER_NORMS)
def test_a_forbidden_function_is_seen_under_every_name_and_not_outside_of_the_part(way):
    from torch import layer_norm, nn
    from torch.nn import functional as F

    def caught(x):
        try:
            return F.layer_norm(x, (4,))
        except Exception:
            return x

    names = {"torch": torch, "nn": nn, "F": F, "alias": layer_norm, "caught": caught}
    answer = eval(f"lambda x: {LAYER_NORMS[way]}", names)
    x = torch.randn(3, 4)
    by_hand = Part("norm", {"a": 2}, lambda g: [Case("a", "", (x,))], answer, forbidden={"layer_norm": "write it out"})
    with pytest.raises(CheckFailed, match="write it out"):
        by_hand(answer)
    by_hand(lambda x: (x - x.mean(1, keepdim=True)) / (x.var(1, keepdim=True, correction=0) + 1e-5).sqrt())
    assert by_hand.earned == 2
    Part("norm", {"a": 2}, by_hand.cases, answer)(answer)


def test_a_forbidden_function_that_is_written_in_python_is_seen_too():
    """``F.multi_head_attention_forward`` is none of the dispatcher's: nn.MultiheadAttention and aliases reach it."""
    from torch import nn
    from torch.nn.functional import multi_head_attention_forward as alias

    module = nn.MultiheadAttention(4, 2)
    given = 4, 2, module.in_proj_weight, module.in_proj_bias, None, None, False, 0.0
    answers = {
        "module": lambda x: module(x, x, x)[0],
        "alias": lambda x: alias(x, x, x, *given, module.out_proj.weight, module.out_proj.bias)[0],
    }
    cases = [Case("a", "", (torch.randn(3, 1, 4),))]
    with torch.no_grad():
        for answer in answers.values():
            part = Part("a", {"a": 1}, lambda g: cases, answer, forbidden={"F.multi_head_attention_forward": "by hand"})
            with pytest.raises(CheckFailed, match="by hand"):
                part(answer)
            Part("a", {"a": 1}, part.cases, answer)(answer)


def test_what_is_forbidden_is_said_before_other_mistakes():
    """Whoever mends the others first would learn only then that it was in vain."""
    suspects = {"the sum is not halved": torch.nn.functional.layer_norm}
    cases = [Case("a", "", (torch.randn(3, 4), (4,))), Case("a", "", (torch.randn(2, 4), (4,)))]
    half = Part(
        "half", {"a": 2}, lambda g: cases, lambda x, shape: x / 2, suspects, forbidden={"layer_norm": "no norm"}
    )
    with pytest.raises(CheckFailed) as failed:
        half(torch.nn.functional.layer_norm)
    assert "no norm" in failed.value.text
    assert "halved" not in failed.value.text
    with pytest.raises(CheckFailed, match="halved"):
        half(lambda x, shape: (x - x.mean(1, keepdim=True)) / (x.var(1, keepdim=True, correction=0) + 1e-5).sqrt())


DOUBLE = Part(
    "double",
    {"small": 2, "large": 3},
    lambda g: [Case("small", "a one", (torch.ones(2),)), Case("large", "noise", (torch.randn(20, generator=g),))],
    lambda x: np.asarray(x) * 2,
    {"you squared": lambda x: x**2},
)


def test_a_failed_check_shows_small_results_and_where_the_students_code_stopped():
    with pytest.raises(CheckFailed) as failed:
        DOUBLE(lambda x: x**2)
    text = failed.value.text
    assert "✗ double: 0 of 5 points" in text
    assert "you squared" in text
    assert "tried: a one" in text
    assert "returned: [1. 1.]" in text
    assert "expected: [2. 2.]" in text
    assert len(text.splitlines()) == 7, "twenty numbers are not shown"

    def buggy(x):
        return x @ torch.ones(7)

    with pytest.raises(CheckFailed) as failed:
        DOUBLE(buggy)
    shown = "\n".join(failed.value._render_traceback_())
    assert "return x @ torch.ones(7)" in shown
    assert "shapes (2,)" in shown
    assert "parts.py" not in shown


def test_the_place_of_an_error(monkeypatch):
    assert place_of("/tmp/ipykernel_12/345.py") == place_of("<ipython-input-3-abc>") == "your cell"
    assert place_of(torch.nn.functional.__file__) == place_of(contextlib.__file__) == place_of(np.__file__) == ""
    assert place_of(importlib.import_module("coursekit.nn.attention").__file__) == place_of("<frozen runpy>") == ""
    assert place_of("/env/ipykernel/lib/python3.13/site-packages/torch/x.py") == ""
    assert place_of("/home/me/helpers.py") == "/home/me/helpers.py"
    monkeypatch.setitem(linecache.cache, "<ipython-input-4>", (9, None, ["# given, leave as it is\n"], ""))
    assert place_of("<ipython-input-4>") == "a given cell"


def test_partial_points_and_the_score(capsys):
    from coursekit.grading.parts import score

    with pytest.raises(CheckFailed, match="2 of 5"):
        DOUBLE(lambda x: x * 2 if len(x) == 2 else x)
    score([DOUBLE], {"essay": 4})
    out = capsys.readouterr().out
    assert "1  double  ████░░░░░░    2 of   5" in out
    assert "2  essay                 – of   4  a person reads it" in out
    assert "2 of   5  and 4 for a person to give" in out


def test_arguments_are_copies_and_generators_are_new():
    seen = []

    def vandal(x, generator):
        seen.append(torch.rand(1, generator=generator).item())
        return x.zero_()

    tensor = torch.ones(2)
    part = Part(
        "p",
        {"a": 1},
        lambda g: [Case("a", "", (tensor, Seed(5, used))) for used in (0, 0, 3)],
        lambda x, seed: np.zeros(2),
    )
    with pytest.raises(CheckFailed, match="the tensor x that you are given is changed"):
        part(vandal)
    assert tensor.tolist() == [1, 1]
    assert seen[0] == seen[1] != seen[2]


@pytest.mark.parametrize("value", ["text", {1, 2}, object(), [["nested"]]])
def test_what_is_no_array_is_refused(value):
    with pytest.raises(Unusable, match="where a tensor is expected"):
        collect(value)


def test_collect_takes_tensors_numbers_dictionaries_and_models():
    assert collect(torch.tensor(2.0, requires_grad=True))["value"].shape == ()
    assert collect({"a": True})["a"].dtype == bool
    assert set(collect((1, torch.ones(2)))) == {"0", "1"}
    assert collect(torch.ones(2, dtype=torch.bfloat16))["value"].dtype == np.float32
    assert set(collect(torch.nn.Linear(2, 1))) == {"weight", "bias"}


def test_difference_sees_each_kind():
    one = {"value": np.ones(2)}
    assert difference(one, {"value": np.ones(2) + 1e-7}) is None
    assert "not return what is asked for (got one tensor, expected a tuple or list of 2)" in difference(
        one, {"0": 1, "1": 2}
    )
    assert "wrong shape (got (2,), expected (3,))" in difference(one, {"value": np.ones(3)})
    assert "finite" in difference({"value": np.array([1, np.nan])}, one)
    assert "wrong values" in difference(one, {"value": np.ones(2) * 1.001})
    assert "of type bool" in difference({"value": np.ones(2, bool)}, one)


def test_no_number_of_a_result_leaves_the_marking():
    assert without_values("it has the wrong shape (got (2, 77), expected (3,))") == "it has the wrong shape"
    for forged in ("x (got ) expected, 5)", "a (got 1, expected 2) b (got 3, expected 4)"):
        assert "3" not in without_values(forged)


def test_no_label_is_in_scope_where_none_may_be_used():
    names, _ = namespace("08_sit", "pretrain", "def pretrain(images):\n    return [*globals()]")
    assert "images" in names
    assert not {"learned", "tested", "digits"} & {*names}


def test_nor_does_the_order_of_the_images_tell_their_labels(monkeypatch):
    monkeypatch.undo()
    found = [namespace("08_sit", "pretrain", "def pretrain(images):\n    return images")[0] for _ in range(2)]
    assert not torch.equal(*found)
    in_order = [sorted(images.flatten(1).tolist()) for images in (*found, digits("train").images)]
    assert in_order[0] == in_order[1] == in_order[2]


def test_weights_are_put_into_a_model_of_ours_or_it_is_said_why_not():
    theirs, ours = torch.nn.Linear(2, 3), torch.nn.Linear(2, 3)
    weights = collect(theirs.double())
    assert put_into(ours, weights | {"more": np.ones(1)}) is None
    assert torch.equal(ours.weight, theirs.weight.float())
    assert torch.equal(ours.bias, theirs.bias.float())
    wrong = {
        NOT_GIVEN + "it has no weights bias": {"weight": weights["weight"]},
        NOT_GIVEN + "its sizes differ (got (3,), expected (3, 2))": weights | {"weight": weights["bias"]},
        DIVERGED: weights | {"bias": np.array([1, np.nan, 1])},
    }
    for odd in (np.inf, 1e300, 3e38, -1e7):  # finite for now, and then not, in float32 or in the logits
        assert put_into(ours, weights | {"bias": np.array([1, odd, 1])}) == DIVERGED
    before = collect(ours)
    for words, found in wrong.items():
        assert put_into(ours, found) == words
    assert put_into(ours, {}, missing="no {name}") == "no weight"
    assert (
        put_into(ours, wrong[DIVERGED] | {"weight": np.ones(2)}, sizes="too few")
        == "too few (got (2,), expected (3, 2))"
    )
    assert difference(collect(ours), before) is None, "what does not fit changes nothing"
    assert put_into(ours, {"weight": np.zeros((3, 2)), "bias": np.ones(9)}, unused=("bi",)) is None
    assert ours.weight.count_nonzero() == 0
    assert np.array_equal(collect(ours)["bias"], before["bias"]), "it is passed over where it is given, too"


def test_a_model_that_is_not_whole_is_refused_before_anything_is_built(monkeypatch):
    """A million units make a matrix of gigabytes, of which nothing need have come."""
    built, V, made = [], len(language_models.vocabulary()) + 1, language_models.NNLM

    def noted(config):
        built.append(torch.get_default_device())
        return made(config)

    monkeypatch.setattr(language_models, "NNLM", noted)
    forged = {"embedding.weight": np.zeros((V, 1)), "H.weight": np.zeros((1_900_000, 1))}
    assert "neither an NNLM" in language_models.rebuilt(forged)
    assert built == [torch.device("meta")]


def test_a_model_is_examined_once_for_all_aspects_and_anew_when_anything_differs():
    asked = []
    examine = once_for_a_model(lambda model, secret: asked.append(secret) or (model.weight.sum().item(), secret))
    model, other = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    found = [examine(model, 1), examine(model, 1), examine(model, 2), examine(other, 2)]
    with torch.no_grad():
        model.bias += 1  # a part of the weights that the sum does not show
    found += [examine(model, 2)]
    assert asked == [1, 2, 2, 2]
    a, b = model.weight.sum().item(), other.weight.sum().item()
    assert found == [(a, 1), (a, 1), (a, 2), (b, 2), (a, 2)]
