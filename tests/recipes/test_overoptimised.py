"""The best of n against all ways to draw them, policies that begin where they should, and pieces computed once."""

import json
import math
from copy import deepcopy
from functools import cache
from itertools import combinations, product

import pytest
import torch

from coursekit.data.dialogues import Taste, requests
from coursekit.models.gpt import GPT, GPTConfig
from coursekit.models.reward import RewardModel
from coursekit.recipes import assistant, overoptimised
from coursekit.recipes.overoptimised import kl_of_the_best, of_the_best
from coursekit.text.bpe import BPE, END
from coursekit.text.chat import with_chat
from tests.conftest import randomise


@pytest.mark.parametrize("n", range(1, 7))
def test_the_best_of_n_is_the_mean_over_all_ways_to_draw_them(n):
    generator = torch.Generator().manual_seed(n)
    proxy, gold = torch.rand(2, 6, generator=generator), torch.rand(2, 6, generator=generator)
    drawn = [gold[p, max(some, key=lambda i, p=p: proxy[p, i])] for p in range(2) for some in combinations(range(6), n)]
    assert of_the_best(proxy, gold, n) == pytest.approx(torch.stack(drawn).mean().item(), abs=1e-6)


def test_the_best_of_many_needs_no_large_numbers():
    proxy = torch.arange(256.0)[None]
    assert of_the_best(proxy, torch.ones(1, 256), 128) == pytest.approx(1, abs=1e-9)
    assert of_the_best(proxy, proxy, 256) == pytest.approx(255)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_divergence_of_the_best_is_that_of_all_ways_to_draw(n):
    """With replacement, as a policy draws; answers that are equal are one."""
    proxy, texts = [0.3, 0.1, 0.3, 0.7], ["b", "a", "b", "c"]
    mass = {"a": 0.25, "b": 0.5, "c": 0.25}
    best = dict.fromkeys(mass, 0.0)
    for some in product(range(4), repeat=n):
        best[texts[max(some, key=proxy.__getitem__)]] += 4.0**-n
    expected = sum(p * math.log(p / mass[text]) for text, p in best.items() if p)
    assert kl_of_the_best(torch.tensor([proxy]), [texts], n) == pytest.approx(expected, abs=1e-6)
    assert expected <= math.log(n) - (n - 1) / n + 1e-12


def test_where_no_two_answers_are_equal_it_is_the_formulas():
    proxy = torch.rand(1, 4000, generator=torch.Generator().manual_seed(0))
    found = kl_of_the_best(proxy, [[str(i) for i in range(4000)]], 16)
    assert found == pytest.approx(math.log(16) - 15 / 16, abs=0.01)


@pytest.fixture
def tiny(monkeypatch):
    asked = requests(30, "validation")
    tokenizer = with_chat(BPE.train([one.turns[0] for one in asked], 400, [END, "<to-fr>"]))
    model = randomise(GPT(GPTConfig(len(tokenizer), 16, 2, 32, 2, 256, dropout=0.0))).eval()
    monkeypatch.setattr(overoptimised, "instructed", lambda: (model, tokenizer))
    monkeypatch.setattr(overoptimised, "reward_model", lambda *_: RewardModel(deepcopy(model)).eval())
    sizes = {"UPDATES": 6, "BATCH": 6, "GROUP": 2, "PROMPTS": 2, "ANSWERS": 8, "NUMBERS": (1, 2, 8), "RATE": 1e-2}
    sizes |= {"ASKED": 6, "FEWER": 2}
    for name, value in sizes.items():
        monkeypatch.setattr(overoptimised, name, value)
    monkeypatch.setattr(assistant, "MAX_NEW", 5)
    monkeypatch.setattr(assistant, "load_reward", lambda: RewardModel(deepcopy(model)).eval())
    overoptimised.written.cache_clear()
    yield model, tokenizer
    overoptimised.written.cache_clear()


def test_the_best_by_a_reward_model_has_the_higher_reward(tiny):
    points = overoptimised.best_of_n_points(0)
    assert [point["n"] for point in points] == [1, 2, 8]
    proxies, divergences = ([point[name] for point in points] for name in ("proxy", "kl"))
    assert proxies[0] == pytest.approx(0, abs=1e-5)  # in units of its standard deviation, from its mean
    assert proxies == sorted(proxies)
    assert divergences[0] == pytest.approx(0, abs=1e-6)
    assert divergences == sorted(divergences)
    shipped = [point["n"] for point in overoptimised.best_of_n_points(None)]
    assert shipped == [1, 2]
    asked, texts, gold = overoptimised.written(8)
    assert [len(asked), {len(answers) for answers in texts}, gold.shape] == [2, {8}, (2, 8)]


def test_by_the_true_reward_the_best_of_all_is_the_best(tiny, monkeypatch):
    """Answers that were drawn more than once have one reward, and each answer has its own."""
    asked, texts = (
        requests(2),
        [["b", "a", "b", "ccc", "a", "b", "a", "dd"], ["x", "x", "yy", "x", "b", "yy", "x", "x"]],
    )
    worth = {
        (0, "a"): 3.0,
        (0, "b"): 0.0,
        (0, "ccc"): 5.0,
        (0, "dd"): 1.0,
        (1, "x"): 2.0,
        (1, "yy"): 9.0,
        (1, "b"): 4.0,
    }
    gold = torch.tensor([[worth[i, text] for text in row] for i, row in enumerate(texts)])
    scored = []

    def true_rewards(model, some, answers, tokenizer):
        scored.extend(answers)
        return torch.tensor([worth[asked.index(one), text] for one, text in zip(some, answers)])

    monkeypatch.setattr(overoptimised, "written", cache(lambda N: (asked, texts, gold)))
    monkeypatch.setattr(overoptimised, "rewards_of", true_rewards)
    points = {point["n"]: point["gold"] for point in overoptimised.best_of_n_points(0)}
    assert points[8] == pytest.approx((5 + 9) / 2)
    assert points[1] == pytest.approx(gold.mean().item())
    assert len(scored) == len(worth)


def test_a_policy_begins_as_its_reference_and_moves(tiny):
    model, _ = tiny
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    points = overoptimised.policy_points(0.0, 0)
    assert len(points) == 1 + 6
    assert points[0]["kl"] == pytest.approx(0, abs=1e-5)
    assert points[0]["proxy"] == pytest.approx(0, abs=1e-5)
    assert abs(points[-1]["kl"]) > 1e-3
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())  # the reference stays
    dear = overoptimised.policy_points(50.0, 0)
    assert dear[0] == pytest.approx(points[0], abs=1e-5)
    assert dear[-1] != points[-1]  # the penalty is learned from


def test_answers_to_one_request_are_each_others_baseline(tiny, monkeypatch):
    kept = {}

    def own_answers(*arguments):
        kept["advantages"], kept["prompts"], kept["group"] = arguments[5:8]
        raise KeyboardInterrupt

    monkeypatch.setattr(overoptimised, "own_answers", own_answers)
    generator = torch.Generator().manual_seed(0)
    old, reference = torch.randn(2, 6, 3, generator=generator)
    answer = torch.tensor([[False, False, True, True]] * 6)
    batch = {"rewards": torch.arange(6.0) ** 2, "old_log_probs": old, "reference": reference, "answer": answer}
    for beta in (0.0, 0.3):
        with pytest.raises(KeyboardInterrupt):
            overoptimised.policy_points(beta, 0)
        worth = batch["rewards"] - beta * (old - reference)[:, 1:].sum(dim=1)
        expected = worth - worth.view(3, 2).mean(dim=1).repeat_interleave(2)
        torch.testing.assert_close(kept["advantages"](batch), expected)
        assert (kept["prompts"], kept["group"]) == (3, 2)


def test_each_piece_is_computed_once(monkeypatch, tmp_path):
    computed, stopped = [], set()

    def piece(name, *arguments):
        if name == "policy" and name not in stopped:
            stopped.add(name)
            raise KeyboardInterrupt
        computed.append((name, *arguments))
        return [len(computed)]

    for name, function in (
        ("learning curve", "curve_point"),
        ("best of n", "best_of_n_points"),
        ("policy", "policy_points"),
        ("tastes", "taste_shares"),
    ):
        monkeypatch.setattr(overoptimised, function, lambda *arguments, name=name: piece(name, *arguments))
    arguments = ["--state", str(tmp_path / "state"), "--out", str(tmp_path / "out")]
    with pytest.raises(KeyboardInterrupt):
        overoptimised.main(arguments)
    overoptimised.main(arguments)
    assert len(computed) == len(overoptimised.pieces()) == 3 + 5 + 1 + 15 + 6
    assert len(set(computed)) == len(computed) - 1  # no taste at all stands in both rows, and is kept
    found = json.loads((tmp_path / "out/overoptimised/metrics.json").read_text())
    assert found["learning curve"]["100"] == [1]
    assert found["best of n, shipped reward"] == [computed.index(("best of n", None)) + 1]
    assert found["policy"]["0.05"]["3"] == [computed.index(("policy", 0.05, 3)) + 1]
    assert found["tastes"]["agrees"]["1.5"] == [computed.index(("tastes", Taste(agrees=1.5))) + 1]
