"""What holds for the parts of all exercises together."""

import ast
import contextlib
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from coursekit.commands.lectures import home
from coursekit.grading import checks, parts
from coursekit.grading.calls import collect
from coursekit.grading.checks import self_attention
from coursekit.grading.checks.common import chosen_together, dealt, sizes, tied, tied_neighbours
from coursekit.grading.differences import alike
from coursekit.grading.kernel import CheckFailed
from coursekit.grading.mistakes import Compared, by_task, recognise
from coursekit.grading.parts import Case, Part
from coursekit.grading.release import checks_of, masters
from tests.grading.test_checks import ANSWERS, EXERCISES, namespace

MODULES = sorted(Path(checks.__file__).parent.glob("[!_]*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_no_exercise_imports_the_checks_of_another(path):
    """A change of one exercise's checks must change no mark of another."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            imported |= {f"{node.module}.{alias.name}" for alias in node.names}
    found = {name.split(".")[3] for name in imported if name.startswith(f"{checks.__name__}.")}
    shared = {"common", "slopes"}
    assert found <= (shared if path.stem not in shared else set())


def test_more_different_sizes_than_there_are_are_refused():
    generator = torch.Generator().manual_seed(0)
    assert sorted(sizes(generator, 4)) == [3, 4, 5, 6]
    with pytest.raises(ValueError, match="5 different sizes from 3 to 6: there are 4"):
        sizes(generator, 5)


PARTS = {
    f"{path.stem[:2]}-{part.name}": part
    for path in masters(home())
    for part in checks_of(path.stem).PARTS
    if part.reference is not None
}


# A mistake, the part in which it is made, and what it does to the right result.
MADE = [
    ("the sign is wrong", "04-smoothed_loss", lambda x: -x),
    ("every number is one too large", "05-best_spans", lambda x: x + 1),
    ("every number is one too small", "05-best_spans", lambda x: x - 1),
    ("every number is twice as large", "10-quantiles", lambda x: 2 * x),
    ("every number is half as large", "04-learning_rate", lambda x: x / 2),
    ("this is in percent", "08-reconstruction_losses", lambda x: 100 * x),
    ("this is in bits", "05-masked_lm_loss", lambda x: x / np.log(2)),
    ("this is in nats", "06-next_token_loss", lambda x: x * np.log(2)),
    ("this is 1 minus", "02-masked_softmax", lambda x: 1 - x),
    ("this is 1 divided by", "04-learning_rate", lambda x: 1 / x),
    ("this is the square", "08-contrastive_losses", lambda x: x**2),
    ("this is the root", "08-contrastive_losses", np.sqrt),
    ("this is the logarithm", "04-smoothed_loss", np.log),
    ("this is the exponential", "02-luong_score", np.exp),
    ("this is the softmax", "02-additive_score", lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True)),
    ("True and False have changed places", "03-decoder_mask", lambda x: ~x),
    ("the first and the last axis have changed places", "02-luong_score", lambda x: x.T),
    ("the third and the last axis have changed places", "03-decoder_mask", lambda x: x.swapaxes(2, 3)),
    ("along the second axis the order is reversed", "03-add_positions", lambda x: np.flip(np.asarray(x), 1).copy()),
    (
        "along the first axis all is like the first entry",
        "02-luong_score",
        lambda x: np.asarray(x)[:1].repeat(len(x), 0),
    ),
    ("along the first axis the first entry is missing", "05-best_spans", lambda x: x[1:]),
    ("along the second axis the last entry is missing", "03-add_positions", lambda x: x[:, :-1]),
    ("along the second axis all stands one place too late", "03-add_positions", lambda x: np.roll(x, 1, 1)),
    ("along the second axis all stands one place too early", "03-add_positions", lambda x: np.roll(x, -1, 1)),
    ("the mean is taken over the second axis too", "03-add_and_norm", lambda x: x.mean(1)),
    ("the sum is taken over the last axis too", "08-contrastive_losses", lambda x: x.sum(1)),
    ("this is the mean of all", "08-contrastive_losses", lambda x: x.mean()),
    ("the mean over the last axis of your result", "08-reconstruction_losses", lambda x: np.stack([x - 1, x + 1], -1)),
    (
        "the sum over the last axis of your result",
        "08-reconstruction_losses",
        lambda x: np.stack([x - 1, x**0], -1),
    ),
]


def told(part, answer):
    with pytest.raises(CheckFailed) as failed:
        part(answer)
    return " ".join(failed.value.text.split())


@pytest.mark.parametrize(("words", "name", "change"), MADE, ids=[f"{name}: {words}" for words, name, _ in MADE])
def test_a_common_mistake_is_recognised_in_a_part_that_does_not_name_it(words, name, change):
    part = PARTS[name]
    assert words in told(part, lambda *arguments: change(part.reference(*arguments)))


def test_what_an_idle_answer_has_counts_only_with_something_that_it_has_not():
    x = torch.arange(1.0, 4.0)
    cases = [Case("doubled", "zeros", (0 * x,), "0", easy=True)]
    cases += [Case("doubled", "", (y,), "0") for y in (x, x - 9)]
    cases += [Case("as long", "", (x,), result="1")]
    part = Part(
        "double",
        {"doubled": 3, "as long": 2},
        lambda g: cases,
        lambda x: (2 * x, len(x)),
        needs={"as long": ("doubled",)},
    )
    assert "as soon as something of 'doubled' is right" in told(part, lambda x: (x, len(x)))
    assert part.earned == 0
    told(part, lambda x: (2 * x.abs(), len(x)))
    assert part.earned == 2, "a part of the other aspect is enough"
    told(part, lambda x: (2 * x, 1))
    assert part.earned == 3
    part(lambda x: (2 * x, len(x)))


def test_draws_that_depend_on_one_another_are_told_from_those_that_do_not():
    def draws(seed, *shape, kinds=5):
        return np.random.default_rng(seed).integers(kinds, size=shape)

    assert not any(tied(draws(seed, 60, 30), 1 / 5) for seed in range(300))
    assert not any(chosen_together(np.random.default_rng(seed).random((500, 20)) < 0.1, 0.01) for seed in range(300))
    copied = draws(0, 60, 30)
    copied[:, 20] = copied[:, 3]
    assert tied(copied, 1 / 5)
    coins = draws(0, 60, 30, kinds=2)
    coins[:, 7] = 1 - coins[:, 11]
    assert tied(coins, 1 / 2), "never alike"
    missing = np.where(draws(1, 60, 30) < 2, draws(0, 60, 30), -1)
    assert not tied(missing, 1 / 5)
    chosen = np.random.default_rng(0).random((500, 20)) < 0.1
    chosen[:, 4] = chosen[:, 9]
    assert chosen_together(chosen, 0.01)
    turned = draws(0, 60, 30)
    turned[:, 9] = (turned[:, 2] + 3) % 5
    assert tied(turned, 1 / 5), "never alike, and never anything else"
    assert not any(tied_neighbours(draws(seed, 60, 30), 1 / 5) or dealt(draws(seed, 60, 30), 5) for seed in range(300))
    turned[:, 1::2] = np.where(draws(1, 60, 15) < 3, turned[:, ::2], turned[:, 1::2])
    assert tied_neighbours(turned, 1 / 5)
    assert dealt(np.stack([np.random.default_rng(seed).permutation(30) % 5 for seed in range(60)]), 5)
    fates = np.random.default_rng(0).choice(3, (240, 30), p=[0.8, 0.1, 0.1])
    assert not tied(fates, [0.8, 0.1, 0.1])
    fates[:, 8] = np.where(fates[:, 5] == 0, 0, 3 - fates[:, 5])
    assert tied(fates, [0.8, 0.1, 0.1])


def weighted(x, weight, shift, temperature, mask=None):
    y = (x @ weight).tanh() / temperature + shift
    return y if mask is None else y * mask


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("the mask is not used", lambda *a: weighted(*a[:4])),
        ("the mask is upside down", lambda *a: weighted(*a[:4], ~a[4])),
        ("`weight` is transposed", lambda *a: weighted(a[0], a[1].T, *a[2:])),
        ("`x` and `weight` change places", lambda *a: weighted(a[1], a[0], *a[2:])),
        ("`shift` is not used", lambda *a: weighted(*a[:2], 0, *a[3:])),
        ("`shift` has the wrong sign", lambda *a: weighted(*a[:2], -a[2], *a[3:])),
        ("`temperature` is not used", lambda *a: weighted(*a[:3], 1, a[4])),
        ("`temperature` is upside down", lambda *a: weighted(*a[:3], 1 / a[3], a[4])),
        ("1 - temperature takes the place of `temperature`", lambda *a: weighted(*a[:3], 1 - a[3], a[4])),
        ("this is `x` as it was given", lambda *a: a[0]),
        ("`x` is added to what is asked for", lambda *a: weighted(*a) + a[0]),
        ("`x` is to be added to this", lambda *a: weighted(*a) - a[0]),
    ],
)
def test_a_mistake_with_an_argument_is_recognised_by_its_name(words, answer):
    def cases(generator):
        x, weight, shift = torch.randn(3, 4, 4, generator=generator)
        return [Case("a", "", (x, weight, shift[0], 0.3, torch.rand(4, 4, generator=generator) < 0.5))]

    assert words in told(Part("weighted", {"a": 1}, cases, weighted), answer)
    task = Part("weighted", {"a": 1}, lambda g: [Case("a", "", ("w", *cases(g)[0].arguments))], by_task(w=weighted))
    assert words in told(task, lambda task, *arguments: answer(*arguments)), "the same behind the name of a task"


def test_a_common_mistake_must_explain_every_call_and_be_the_only_one_that_does():
    def found(*calls):
        return recognise(lambda x: x, [Compared((), {"value": np.array(y)}, {"value": np.array(x)}) for x, y in calls])

    assert found((3.0, -3.0)) == (0, "the sign is wrong")
    assert found((3.0, 3.0), (4.0, -4.0)) is None, "the first is right as it is"
    assert found((0.0, 0.0), (4.0, -4.0)) == (1, "the sign is wrong"), "in the first a sign makes no difference"
    assert found((3.0, -3.0), (4.0, 5.0)) is None
    assert found((2.0, 4.0)) is None, "twice as large, or the square?"
    assert found(([[1.0]], [[2.0]])) is None
    assert found((3.0, 3.0)) is None
    assert found(([True, False], [False, True])) is None, "two entries may be so by chance"


@pytest.mark.slow
@pytest.mark.parametrize("name", PARTS)
def test_of_a_right_answer_and_of_noise_no_common_mistake_is_told(name):
    part, generator = PARTS[name], np.random.default_rng(1)

    def noise(x):
        wrong = {"b": lambda: generator.random(x.shape) < 0.5, "i": lambda: generator.integers(-99, 99, x.shape)}
        return wrong.get(x.dtype.kind, lambda: generator.normal(size=x.shape))()

    for seed in range(3):
        cases = part.draw(seed)
        right = [collect(part.reference(*case.arguments)) for case in cases]
        for aspect in part.aspects:
            assert part.common_mistake(aspect, cases, right) is None
            wrong = [{key: noise(array) for key, array in one.items()} for one in right]
            assert part.common_mistake(aspect, cases, wrong) is None


PUBLIC, SECRET = range(4), (10**15 + 7, 2**55 - 3, 3**34, 5**23, 7**19)


def flat(value):
    """An argument as its kind and its numbers, to find those that are most like it."""
    if isinstance(value, torch.Tensor):
        return (str(value.dtype), tuple(value.shape)), value.double().nan_to_num(0.5, 9e9, -9e9).flatten().tolist()
    if isinstance(value, dict):
        return flat(list(value.values()))
    if isinstance(value, list | tuple):
        kinds, numbers = zip(*map(flat, value), strict=True) if value else ((), ())
        return (type(value), kinds), [x for one in numbers for x in one]
    return (type(value), value) if isinstance(value, str | None) else type(value), (
        [] if isinstance(value, str | None) else [float(value)]
    )


def counted(part, case):
    right = collect(part.reference(*case.arguments))
    return {name: array for name, array in right.items() if case.result in ("", name)}


# What these ask for is the same with every seed, and they count beside others: that a probability of 0 is not lifted,
# that the whole word becomes [UNK]. The last two are measured by the notebook's given cells: no answer returns them.
SAME = {"01-measure": "impossible", "01-wordpiece": "unknown", "09-crops": "calls", "09-steps": "no gradient"}


@pytest.mark.parametrize("name", PARTS)
def test_no_table_of_the_public_cases_earns_points_in_the_marking(name):
    """An answer that looks its arguments up, takes those most like them where they are missing, or returns zeros."""
    part = PARTS[name]
    table = {}
    for seed in PUBLIC:
        for case in part.draw(seed):
            kind, numbers = flat(case.arguments)
            table.setdefault((kind, case.result), []).append((np.array(numbers), counted(part, case)))
    for seed in SECRET:
        earned = dict.fromkeys(part.aspects, True)
        zeros = dict.fromkeys(part.aspects, True)
        for case in part.draw(seed, marking=True):
            kind, numbers = flat(case.arguments)
            right, known = counted(part, case), table.get((kind, case.result), [])
            _, found = min(known, key=lambda entry: abs(entry[0] - numbers).sum(), default=(None, {}))
            earned[case.aspect] &= found.keys() == right.keys() and all(alike(found[key], right[key]) for key in right)
            zeros[case.aspect] &= not any(array.any() for array in right.values())
        lost = {aspect for aspect in part.aspects if earned[aspect] or zeros[aspect]}
        assert lost <= {SAME.get(name)}, seed


@pytest.mark.parametrize("exercise", EXERCISES)
def test_the_marking_gives_the_points_of_the_notebook(exercise):
    """It leaves public cases out: what is wrong in these shows in others, too. Every aspect keeps a case."""
    for part in checks_of(exercise).PARTS:
        assert {case.aspect for case in part.draw(0, marking=True)} == set(part.aspects)
    for answer, mutants in ANSWERS[exercise].MUTANTS.items():
        part = next(part for part in checks_of(exercise).PARTS if part.name == answer)
        if not any(case.public for case in part.draw(0)):
            continue
        marked = replace(part, cases=lambda g, part=part: [case for case in part.cases(g) if not case.public])
        for points, words, source in mutants:
            result, _ = namespace(exercise, answer, source)
            for seed in SECRET[:2]:
                with contextlib.suppress(CheckFailed):
                    marked(result, seed=seed)
                assert marked.earned == points, words


def test_the_mistake_that_explains_all_is_told_and_not_one_that_explains_a_single_case():
    """Without a mask the keys with huge scores win, too, where -20 is filled in."""

    def unmasked(query, key, value, mask):
        weights = (query @ key.mT / query.shape[-1] ** 0.5).softmax(dim=-1)
        return weights @ value, weights

    for seed in range(3):
        with pytest.raises(CheckFailed, match=r"mask +0 of 4: this is the result if the mask is not used"):
            self_attention.attention(unmasked, seed)


def test_numbers_that_look_alike_are_told_apart(monkeypatch):
    monkeypatch.setattr(parts, "difference", lambda *given: "not near enough")
    part = self_attention.masked_softmax
    case = replace(part.draw(0)[0], arguments=(torch.zeros(1, 2), torch.ones(1, 2, dtype=torch.bool)))
    told = part.details(case, 0, {"value": np.array([[0.50002, 0.49998]])})
    assert told[-3:] == ["returned: [[0.5 0.5]]", "expected: [[0.5 0.5]]", "They differ by up to 2.0e-05."]


def test_of_what_is_forbidden_no_result_is_shown(capsys):
    """It gives nothing but nan inside a check, and something else if one calls it oneself."""

    def borrowed(x, y, weight, bias, eps=1e-5):
        return torch.nn.functional.layer_norm(x + y, x.shape[-1:], weight, bias, eps)

    with pytest.raises(CheckFailed, match="a norm of PyTorch is used") as failed:
        self_attention.add_and_norm(borrowed)
    assert "returned" not in failed.value.text
    with pytest.raises(CheckFailed, match="returned: "):
        self_attention.add_and_norm(lambda x, y, *others: x)


def test_guesses_at_mistakes_warn_nobody():
    """PyTorch warns of ``.T`` of what is no matrix, which weights are when a guess lets two arguments change places."""
    part = Part(
        "linear",
        {"all": 1},
        lambda generator: [Case("all", "x", (torch.ones(2, 3), torch.ones(3, 3), torch.ones(3)))],
        lambda x, weight, bias: x @ weight.T + bias,
        {"the bias is transposed": lambda x, weight, bias: x @ bias.T},
    )
    with warnings.catch_warnings(action="always", record=True) as told, pytest.raises(CheckFailed):
        part(lambda x, weight, bias: 7 * x)
    assert told == []


@pytest.mark.parametrize(("n", "told"), [(8, "(8,)"), (30, "(8,), … (30 tensors)")])
def test_of_many_arguments_the_first_shapes_are_told(n, told):
    given = tuple(torch.ones(i + 1) for i in range(n))
    part = Part("count", {"all": 1}, lambda generator: [Case("all", "tensors", given)], lambda *given: 0.0)
    with pytest.raises(CheckFailed) as failed:
        part(lambda *given: 1.0)
    assert f"tried: tensors; shapes (1,), (2,), (3,), (4,), (5,), (6,), (7,), {told}\n" in failed.value.text
