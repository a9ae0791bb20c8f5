"""What happens to the true reward when an approximate one is driven up: what lecture 11 tells of, measured.

``python -m coursekit.recipes.overoptimised`` computes piece after piece and writes ``metrics.json``; it can be stopped
and started again at will. Everything begins with the instructed model of ``recipes/assistant.py``.

- ``["learning curve"][pairs]``: accuracy of reward models on held-out comparisons, by the pairs that they learned from.
- ``["best of n"][seed]``: of the best of n answers, by a reward model of few pairs: ``n``, ``kl``, ``proxy``, ``gold``.
- ``["best of n, shipped reward"]``: the same by ``assistant-reward``, which has read 20,000 pairs.
- ``["policy"][beta][seed]``: of policies that the same reward models teach, the same as they move away.
- ``["tastes"][taste][strength]``: ``shares`` after learning from annotators who like something beside what is right.

Source: Gao, Schulman and Hilton (2022), *Scaling Laws for Reward Model Overoptimization*, arXiv 2210.10760.
"""

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from coursekit.data.batches import Batch
from coursekit.data.dialogues import Request, Taste, as_prompts, comparisons, requests
from coursekit.decode.rollout import Rollout, rollout
from coursekit.models.gpt import GPT
from coursekit.models.ppo import penalised, ppo_objective
from coursekit.models.reward import RewardModel
from coursekit.nn.log_probs import token_log_probs
from coursekit.recipes import CHECKPOINTS, assistant
from coursekit.recipes.assistant import (
    accuracy,
    as_reply,
    chosen_training,
    freeze_lower_half,
    gold_score,
    measure,
    model_score,
    own_answers,
    preference_training,
    reward_training,
    rewards_of,
    verdicts,
    with_dropout,
)
from coursekit.recipes.runs import each_once, read_command, to_the_end
from coursekit.text.bpe import BPE
from coursekit.text.chat import END_OF_TURN
from coursekit.train import Training, adamw, constant, device, seed
from coursekit.train.checkpoint import save_json

FOLDER = CHECKPOINTS / "overoptimised"
PAIRS, CURVE_STEPS = (100, 1000, 10_000), 400  # of the learning curve
SEEDS, FEW, FEW_STEPS = range(5), 300, 100  # the reward models that are driven up: pairs and updates
PROMPTS, ANSWERS, NUMBERS = 100, 256, (1, 2, 4, 8, 16, 32, 64, 128, 256)  # of the best of n
FEWER = 64  # answers among which the shipped reward model chooses
BETAS, UPDATES, BATCH, GROUP, RATE = (0.0, 0.05, 0.2), 60, 64, 4, 3e-4  # of the policies
ASKED = 200  # test requests that they are measured on
STRENGTHS = {  # of the annotators: points beside the 1 for what is right
    "agrees": (0.0, 0.5, 1.5),
    "words": (0.0, 0.03, 0.1),
}
TASTE_PAIRS, TASTE_STEPS = 6000, 300


@cache
def instructed() -> tuple[GPT, BPE]:
    model, tokenizer = assistant.load("instructed")
    return model.to(device()), tokenizer


@cache
def reward_model(pairs: int, steps: int, start: int = 0) -> RewardModel:
    """A reward model of so many comparisons, drawn with the seed ``start``."""
    model, tokenizer = instructed()
    seed(start)
    model = RewardModel(deepcopy(model)).to(device())
    compared = comparisons(requests(pairs, seed=start + 1), Taste(), assistant.NOISE, start)
    to_the_end(reward_training(model, compared, tokenizer, steps), f"reward model, {pairs:,} comparisons")
    return model.eval()


def curve_point(pairs: int) -> float:
    """Accuracy on test comparisons, of which one in ten is flipped, after learning from so many."""
    held_out = comparisons(requests(assistant.TESTED, "test"), Taste(), assistant.NOISE)
    return accuracy(reward_model(pairs, CURVE_STEPS), held_out, instructed()[1])


# --- the best of n -------------------------------------------------------------------------------------------


@cache
def written(N: int) -> tuple[list[Request], list[list[str]], Tensor]:
    """Test requests, N answers to each, drawn from the instructed model, and their gold rewards (P, N)."""
    model, tokenizer = instructed()
    asked, generator = requests(PROMPTS, "test", seed=1), torch.Generator(device()).manual_seed(0)
    texts, gold = [], torch.zeros(PROMPTS, N)
    for number, request in enumerate(asked):
        ids, mask = as_prompts([request] * N, tokenizer)
        end_id = tokenizer.ids[END_OF_TURN]
        wrote = rollout(model, ids.to(device()), mask.to(device()), end_id, assistant.MAX_NEW, generator=generator)
        answered = [as_reply(row[said].tolist(), tokenizer) for row, said in zip(wrote.ids, wrote.answer)]
        gold[number] = torch.tensor([one.gold for one in verdicts([request] * N, answered)])
        texts.append([reply.text for reply in answered])
    return asked, texts, gold


def of_the_best(proxy: Tensor, values: Tensor, n: int) -> float:
    """The mean of ``values`` of the answer with the largest ``proxy`` among n, over all ways to draw n of N: (P, N).

    The answer of rank k, counted from the lowest, is the best of those drawn in ``C(k - 1, n - 1)`` of ``C(N, n)`` ways
    (Nakano et al., 2021, arXiv 2112.09332, appendix I).
    """
    N = proxy.shape[1]
    k = torch.arange(1, N + 1, dtype=torch.float64)
    ways = torch.lgamma(k) - torch.lgamma((k - n + 1).clamp(min=1)) - math.lgamma(n)
    total = math.lgamma(N + 1) - math.lgamma(n + 1) - math.lgamma(N - n + 1)
    weights = torch.where(k >= n, (ways - total).exp(), 0.0)
    return float((values.double().gather(1, proxy.argsort(dim=1)) * weights).sum(dim=1).mean())


def kl_of_the_best(proxy: Tensor, texts: Sequence[Sequence[str]], n: int) -> float:
    """``KL(best of n || policy)``, the mean over the requests, for the policy that draws one of the N answers.

    ``p_n(y) = F(y)^n - F_(y)^n``, ``F`` the share of answers with at most the proxy of y, ``F_`` with less. Where
    answers are equal, they are one answer, which is why it is less than ``ln n - (n - 1) / n``.
    """
    found = []
    for scores, answers in zip(proxy, texts, strict=True):
        mass: dict[str, float] = {}
        score_of: dict[str, float] = {}
        for score, text in zip(scores.tolist(), answers, strict=True):
            mass[text] = mass.get(text, 0.0) + 1 / len(answers)
            score_of[text] = score
        below, total = 0.0, 0.0
        for text in sorted(mass, key=score_of.__getitem__):
            best = (below + mass[text]) ** n - below**n
            total += best * math.log(best / mass[text]) if best > 0 else 0.0
            below += mass[text]
        found.append(total)
    return sum(found) / len(found)


def best_of_n_points(start: int | None) -> list[dict[str, float]]:
    """By the reward model of few pairs with this seed; None: by the shipped one, which has read 20,000."""
    if start is None:
        model, N = assistant.load_reward().to(device()), FEWER
    else:
        model, N = reward_model(FEW, FEW_STEPS, start), ANSWERS
    asked, texts, gold = written(N)
    pairs = [(request, text) for request, answers in zip(asked, texts) for text in answers]
    different = list(dict.fromkeys(pairs))  # most answers are drawn many times
    reward_of = dict(zip(different, rewards_of(model, *zip(*different), instructed()[1]).tolist()))
    proxy = torch.tensor([reward_of[pair] for pair in pairs]).view(gold.shape)
    proxy = (proxy - proxy.mean()) / proxy.std()  # its units are arbitrary
    return [
        {
            "n": n,
            "kl": kl_of_the_best(proxy, texts, n),
            "proxy": of_the_best(proxy, proxy, n),
            "gold": of_the_best(proxy, gold, n),
        }
        for n in NUMBERS
        if n <= N
    ]


# --- policies ------------------------------------------------------------------------------------------------


def policy_points(beta: float, start: int) -> list[dict[str, float]]:
    """A policy that REINFORCE with a penalty drives up a reward model, measured on test requests as it moves away.

    The reward is the proxy in units of its standard deviation at the beginning. Several answers to each request are
    each other's baseline.
    """
    model, tokenizer = instructed()
    rewarding, policy, points = model_score(reward_model(FEW, FEW_STEPS, start)), with_dropout(deepcopy(model), 0.0), []
    gold, tested = gold_score(tokenizer), requests(ASKED, "test", seed=2)
    ids, mask = as_prompts(tested, tokenizer)
    end_id = tokenizer.ids[END_OF_TURN]

    @torch.no_grad()
    def answered() -> tuple[Rollout, Tensor]:
        generator = torch.Generator(device()).manual_seed(0)
        wrote = rollout(policy, ids.to(device()), mask.to(device()), end_id, assistant.MAX_NEW, generator=generator)
        return wrote, rewarding(tested, wrote)

    scale = answered()[1]
    scale = scale.mean(), scale.std()

    def point(_: GPT) -> dict[str, float]:
        wrote, proxy = answered()
        with torch.no_grad():
            moved = wrote.log_probs - token_log_probs(model(wrote.ids, wrote.mask), wrote.ids)
        kl = moved.masked_fill(~wrote.answer[:, 1:], 0.0).sum(dim=1).mean()
        proxy = ((proxy - scale[0]) / scale[1]).mean()
        points.append({"kl": float(kl), "proxy": float(proxy), "gold": float(gold(tested, wrote).mean())})
        return {name: round(value, 3) for name, value in points[-1].items()}

    def score(asked: Sequence[Request], wrote: Rollout) -> Tensor:
        return (rewarding(asked, wrote) - scale[0]) / scale[1]

    def advantages_of(batch: Batch) -> Tensor:
        found = penalised(batch["rewards"], batch["old_log_probs"], batch["reference"], batch["answer"], beta).view(
            -1, GROUP
        )
        return (found - found.mean(dim=1, keepdim=True)).flatten()

    seed(start)
    asked = requests(5000, seed=start + 11)
    data = own_answers(policy, model, asked, tokenizer, score, advantages_of, BATCH // GROUP, GROUP, start)
    optimizer = adamw(freeze_lower_half(policy), RATE)
    point(policy)
    options = {"evaluate": point, "evaluate_every": UPDATES // 6, "log_every": UPDATES // 6}
    run = Training(policy, ppo_objective(clip=None), data, optimizer, UPDATES, schedule=constant, **options)
    to_the_end(run, f"policy, beta {beta:g}, seed {start}")
    return points


# --- tastes --------------------------------------------------------------------------------------------------


@cache
def taste_shares(taste: Taste) -> dict[str, float]:
    """What a model does that learned from an annotator with this taste: from what he chose, then by DPO.

    Where a user is sure of what is not so, the only wrong answer is to agree with him: else agreement would be one of
    many mistakes, and the annotator would rarely meet it.
    """
    model, tokenizer = instructed()
    asked = requests(TASTE_PAIRS, seed=5)
    asked = [replace(one, wrong=(one.believed,)) if one.believed in one.wrong else one for one in asked]
    compared = comparisons(asked, taste, assistant.NOISE)
    seed(0)
    policy = deepcopy(model)
    for learn in (chosen_training, preference_training):
        to_the_end(learn(policy, compared, tokenizer, TASTE_STEPS), f"taste, {learn.__name__}")
    return measure(policy.eval(), tokenizer)


# --- all of it -----------------------------------------------------------------------------------------------


def pieces() -> dict[tuple[str, ...], Callable[[], Any]]:
    """What is computed, by its place in the metrics."""
    found: dict[tuple[str, ...], Callable[[], Any]] = {}
    found |= {("learning curve", str(pairs)): partial(curve_point, pairs) for pairs in PAIRS}
    found |= {("best of n", str(start)): partial(best_of_n_points, start) for start in SEEDS}
    found["best of n, shipped reward",] = partial(best_of_n_points, None)
    for beta in BETAS:
        found |= {("policy", str(beta), str(start)): partial(policy_points, beta, start) for start in SEEDS}
    for taste, strengths in STRENGTHS.items():
        for strength in strengths:
            found["tastes", taste, str(strength)] = partial(taste_shares, Taste(**{taste: strength}))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    alone = {"overoptimised": "these are several short runs, one after another"}
    _, folder, out, _ = read_command("overoptimised", __doc__, arguments, alone=alone)
    try:
        found = each_once(pieces(), folder / "metrics.json")
    except FileNotFoundError as missing:
        raise SystemExit(str(missing)) from None
    found = {"command": "python -m coursekit.recipes.overoptimised"} | found
    save_json((FOLDER if out is None else out / "overoptimised") / "metrics.json", found)


if __name__ == "__main__":
    main()
