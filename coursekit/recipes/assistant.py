"""From lecture 06's GPT to an assistant: instructions, a reward model, preferences, and a reward that can be verified.

``python -m coursekit.recipes.assistant VARIANT`` trains one and writes it to ``checkpoints/assistant-VARIANT`` in eight
bits, with what it does on requests that nobody trained on in ``metrics.json``. ``reward`` and ``chosen`` begin with
``instructed``, ``preferred`` with ``chosen``, ``verified`` with ``preferred``: the order of Lambert et al. (2024),
arXiv 2411.15124, instructions, preferences, then a reward that can be verified. It can be stopped and started again at
will.

All but the first train the upper half of the blocks only; so they are smaller on the disk, and each is read as the
first with what it changed.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from coursekit.convert.eight_bits import from_eight_bits, in_eight_bits
from coursekit.convert.gpt import DROPOUTS, from_hugging_face, to_hugging_face
from coursekit.convert.hub import read_model, write_model
from coursekit.data.batches import Batch, Fresh, of_like_length
from coursekit.data.dialogues import (
    Comparison,
    Request,
    Taste,
    Verdict,
    as_demonstrations,
    as_pairs,
    as_prompts,
    comparisons,
    requests,
    verdict,
)
from coursekit.decode.generate import generate, left_padded
from coursekit.decode.rollout import Rollout, rollout
from coursekit.models.dpo import dpo_objective, with_reference
from coursekit.models.gpt import GPT, gpt_loss
from coursekit.models.grpo import group_advantages, grpo_objective
from coursekit.models.reward import RewardModel, preference_loss
from coursekit.nn.log_probs import token_log_probs
from coursekit.recipes import CHECKPOINTS, gpt
from coursekit.recipes.runs import Clock, read_command, report, to_the_end, versions
from coursekit.text.bpe import BPE
from coursekit.text.chat import END_OF_TURN, with_chat
from coursekit.train import Training, adamw, constant, device, seed, warmup_cosine
from coursekit.train.checkpoint import load_weights, save_json

VARIANTS = {
    "instructed": "lecture 06's GPT, taught to answer what has an answer",
    "reward": "a reward model of what an annotator chose",
    "chosen": "the instructed model, taught to answer as the chosen answers do",
    "preferred": "the model of the chosen answers after DPO on the same choices",
    "verified": "the preferred model after GRPO, rewarded by the true verdict",
}
BEGINNING = {"reward": "instructed", "chosen": "instructed", "preferred": "chosen", "verified": "preferred"}
REQUESTS, PAIRS, TESTED = 60_000, 20_000, 1000
MAX_NEW = 40  # tokens of an answer: 23 of 100 translations need more; every recorded number is under this limit
NOISE, TASTE = 0.1, Taste()  # the annotator: likes what is right and in form, and flips one choice in ten
STEPS = {"instructed": 5000, "reward": 1500, "chosen": 1000, "preferred": 1000, "verified": 80}
RATES = {"instructed": 1e-3, "reward": 5e-4, "chosen": 5e-4, "preferred": 1e-4, "verified": 5e-4}
BATCH, DROPOUT, BETA, PROMPTS, GROUP, SAVE_EVERY = 32, 0.1, 0.1, 16, 8, 100


# --- the models ----------------------------------------------------------------------------------------------


def with_chat_tokens(model: GPT, n: int) -> GPT:
    """The model with ``n`` more tokens, whose vectors begin at the mean of the others, each with a little noise.

    So the model does not suddenly write them: the logit of the mean is the mean of all logits, and by Jensen's
    inequality no token with it is likelier than one in V.
    """
    larger, weights = GPT(replace(model.config, vocab_size=model.config.vocab_size + n)), model.state_dict()
    old = weights["tokens.weight"]
    new = old.mean(dim=0) + 0.02 * torch.randn(n, old.shape[1])
    larger.load_state_dict(weights | {"tokens.weight": torch.cat([old, new])})
    return larger


def begin() -> tuple[GPT, BPE]:
    """Lecture 06's GPT with the tokens of the template, which it has never read, and its tokenizer with them."""
    seed(0)
    model, tokenizer = gpt.load()
    chat = with_chat(tokenizer)
    return with_chat_tokens(model, len(chat) - len(tokenizer)).eval(), chat


def with_dropout(model: GPT, rate: float) -> GPT:
    """The same model with dropout on the residual stream."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = rate
    return model


def freeze_lower_half(model: GPT) -> GPT:
    """Only the upper half of the blocks and the last norm go on learning."""
    model.requires_grad_(False)
    for part in (*model.blocks[len(model.blocks) // 2 :], model.norm):
        part.requires_grad_(True)
    return model


# --- what they answer ----------------------------------------------------------------------------------------


class Reply(NamedTuple):
    """What a model wrote, without the end of its turn, and whether it wrote that."""

    text: str
    ended: bool


def as_reply(written: Sequence[int], tokenizer: BPE) -> Reply:
    """Tokens up to the first end of turn as text."""
    end_id = tokenizer.ids[END_OF_TURN]
    ended = end_id in written
    return Reply(tokenizer.decode(written[: written.index(end_id)] if ended else written), ended)


def replies(
    model: GPT, tokenizer: BPE, asked: Sequence[Request], max_new: int = MAX_NEW, batch_size: int = 100, **choices: Any
) -> list[Reply]:
    """An answer of the model to each request: the likeliest tokens, unless ``choices`` of ``stream`` say otherwise."""
    ids, mask = as_prompts(asked, tokenizer)
    order, found = mask.sum(dim=1).argsort(stable=True).tolist(), {}
    choices = {"temperature": 0, "stop": [tokenizer.ids[END_OF_TURN]]} | choices
    for first in range(0, len(order), batch_size):
        chosen = order[first : first + batch_size]
        given = (rows[chosen].to(device()) for rows in (ids, mask))
        written = generate(model, *left_padded(*given), max_new, **choices)
        found |= {i: as_reply(row, tokenizer) for i, row in zip(chosen, written.tolist())}
    return [found[i] for i in range(len(order))]


def verdicts(asked: Sequence[Request], answered: Sequence[Reply]) -> list[Verdict]:
    return [verdict(request, *reply) for request, reply in zip(asked, answered, strict=True)]


def shares(asked: Sequence[Request], found: Sequence[Verdict]) -> dict[str, float]:
    """Of requests and the verdicts on their answers: the gold reward, and what it is made of.

    ``gold`` and ``in form``: shares of all. ``known right``, ``abstains where known``: of questions that the text
    answers; ``abstains where unknown``: of questions that it does not. ``agrees with what is not so``: where the
    user is sure of it. ``courtesies`` and ``words``: means of an answer. And the gold reward of each kind of request.
    """
    by: dict[str, list[float]] = defaultdict(list)
    for one, of in zip(asked, found, strict=True):
        by["gold"].append(of.gold)
        by["in form"].append(of.in_form)
        by["courtesies"].append(of.polite)
        by["words"].append(of.words)
        by[one.kind].append(of.gold)
        if one.kind == "unknown":
            by["abstains where unknown"].append(of.abstained)
        if one.kind == "question":
            by["known right"].append(of.right)
            by["abstains where known"].append(of.abstained)
        if one.believed in one.wrong:
            by["agrees with what is not so"].append(of.agrees)
    return {name: sum(values) / len(values) for name, values in by.items()}


def measure(model: GPT, tokenizer: BPE, split: str = "test", n: int = TESTED) -> dict[str, float]:
    """``shares`` of a model's likeliest answers to ``n`` requests of a split."""
    asked = requests(n, split)
    return shares(asked, verdicts(asked, replies(model, tokenizer, asked)))


def balance(before: GPT, after: GPT, tokenizer: BPE) -> dict[str, Any]:
    """Of two models, how often each abstains: where the text answers a question (``"known"``), and where it does not.

    For each of the two, among the test requests, the number of ``questions``; of these, ``abstains`` and ``right``: the
    shares of both models; ``only before``, ``only after``: how many questions only the one abstains at (both are asked
    the same, so the interval of the difference is that of these two counts); and ``abstains`` ``by word`` that the
    question begins with, the number of questions first.
    """
    asked = requests(6 * TESTED, "test")
    found = {}
    for name, kind in (("known", "question"), ("unknown", "unknown")):
        some = [one for one in asked if one.kind == kind]
        old, new = (verdicts(some, replies(model, tokenizer, some)) for model in (before, after))
        abstained = [(a.abstained, b.abstained) for a, b in zip(old, new)]
        found[name] = {
            "questions": len(some),
            "abstains": [sum(of) / len(some) for of in zip(*abstained)],
            "right": [sum(one.right for one in of) / len(some) for of in (old, new)],
            "only before": abstained.count((True, False)),
            "only after": abstained.count((False, True)),
            "by word": {},
        }
        words = [one.turns[0].split("\n")[-1].split()[0] for one in some]
        for word in sorted(set(words)):
            of_word = [pair for pair, its in zip(abstained, words) if its == word]
            shares_of = [sum(of) / len(of_word) for of in zip(*of_word)]
            found[name]["by word"][word] = [len(of_word), *shares_of]
    return found


# --- instructions --------------------------------------------------------------------------------------------


def answerable(asked: Sequence[Request]) -> list[Request]:
    """Without the questions that the text does not answer."""
    return [one for one in asked if one.known]


def fine_tuning(model: GPT, samples: Batch, steps: int, rate: float, **options: Any) -> Training:
    """A run that teaches ``model`` the answers in ``samples``, which hold what ``gpt_loss`` reads."""
    data = of_like_length(samples, samples["mask"].sum(dim=1), BATCH)
    optimizer = adamw(with_dropout(model, DROPOUT), rate)
    return Training(model, gpt_loss, data, optimizer, steps, schedule=warmup_cosine(min(50, steps // 2)), **options)


def instruction_training(model: GPT, asked: Sequence[Request], tokenizer: BPE, steps: int, **options: Any) -> Training:
    """A run that teaches ``model`` to answer as ``dialogues.demonstration`` does."""
    return fine_tuning(model, as_demonstrations(asked, tokenizer), steps, RATES["instructed"], **options)


# --- choices -------------------------------------------------------------------------------------------------


def pairs_as_data(compared: Sequence[Comparison], tokenizer: BPE, reference: GPT | None = None) -> Fresh:
    """Endless batches of comparisons; with the log-probabilities of ``reference`` for DPO, where one is given."""
    samples = as_pairs(compared, tokenizer)
    lengths = torch.maximum(samples["chosen_mask"].sum(dim=1), samples["rejected_mask"].sum(dim=1))
    if reference is not None:
        known = {name: torch.zeros(len(lengths)) for name in ("chosen_reference", "rejected_reference")}
        for rows in lengths.argsort(stable=True).split(256):
            longest = int(lengths[rows].max())
            batch = {name: one[rows, :longest].to(device()) for name, one in samples.items()}
            found = with_reference(reference, batch)
            for name, one in known.items():
                one[rows] = found[name].cpu()
        samples |= known
    return of_like_length(samples, lengths, BATCH)


def reward_training(model: RewardModel, compared: Sequence[Comparison], tokenizer: BPE, steps: int, **options: Any):
    """A run that fits a reward model to an annotator's choices."""
    freeze_lower_half(with_dropout(model.body, 0.0))
    learned = adamw(model, RATES["reward"])
    data = pairs_as_data(compared, tokenizer)
    return Training(
        model, preference_loss, data, learned, steps, schedule=warmup_cosine(min(50, steps // 2)), **options
    )


@torch.no_grad()
def rewards_of(model: RewardModel, asked: Sequence[Request], answers: Sequence[str], tokenizer: BPE) -> Tensor:
    """The reward of an answer to each request, (N,)."""
    samples = as_pairs(
        [Comparison(one, text, text, False) for one, text in zip(asked, answers, strict=True)], tokenizer
    )
    ids, mask = samples["chosen"], samples["chosen_mask"]
    order, found = mask.sum(dim=1).argsort(), torch.zeros(len(ids))
    for chosen in order.split(256):
        longest = int(mask[chosen].sum(dim=1).max())
        found[chosen] = model(ids[chosen, :longest].to(device()), mask[chosen, :longest].to(device())).float().cpu()
    return found


def accuracy(model: RewardModel, compared: Sequence[Comparison], tokenizer: BPE) -> float:
    """The share of comparisons in which the chosen answer has the higher reward."""
    asked = [one.request for one in compared]
    chosen, rejected = (
        rewards_of(model, asked, [getattr(one, side) for one in compared], tokenizer) for side in ("chosen", "rejected")
    )
    return float((chosen > rejected).float().mean())


def chosen_training(model: GPT, compared: Sequence[Comparison], tokenizer: BPE, steps: int, **options: Any) -> Training:
    """A run that teaches ``model`` to answer as the chosen answers do, and nothing of the others.

    DPO takes probability from answers and gives it to others that have some; so it begins with a model that gives the
    chosen ones at all (Rafailov et al., 2023, section 4).
    """
    pairs = as_pairs(compared, tokenizer)
    samples = {"ids": pairs["chosen"], "mask": pairs["chosen_mask"], "loss_mask": pairs["chosen_answer"]}
    return fine_tuning(freeze_lower_half(model), samples, steps, RATES["chosen"], **options)


def preference_training(
    model: GPT, compared: Sequence[Comparison], tokenizer: BPE, steps: int, beta: float = BETA, **options: Any
) -> Training:
    """DPO: a run that moves ``model`` away from itself towards what was chosen."""
    with_dropout(model, 0.0)
    data = pairs_as_data(compared, tokenizer, reference=model)
    optimizer = adamw(freeze_lower_half(model), RATES["preferred"])
    schedule = warmup_cosine(min(50, steps // 2))
    return Training(model, dpo_objective(beta, NOISE), data, optimizer, steps, schedule=schedule, **options)


# --- rewards -------------------------------------------------------------------------------------------------

Score = Callable[[Sequence[Request], Rollout], Tensor]  # what each answer is worth, (B,)


def gold_score(tokenizer: BPE) -> Score:
    """The true verdict: what a reward is called that can be verified."""

    def score(asked: Sequence[Request], wrote: Rollout) -> Tensor:
        answered = [as_reply(ids[answer].tolist(), tokenizer) for ids, answer in zip(wrote.ids, wrote.answer)]
        return torch.tensor([one.gold for one in verdicts(asked, answered)])

    return score


def model_score(model: RewardModel) -> Score:
    """What a reward model says."""

    @torch.no_grad()
    def score(asked: Sequence[Request], wrote: Rollout) -> Tensor:
        return model(wrote.ids, wrote.mask).float()

    return score


def on_device(generator: torch.Generator) -> torch.Generator:
    """To draw from where the models are: the generator itself on a CPU, else one that it seeds."""
    if device().type == "cpu":
        return generator
    return torch.Generator(device()).manual_seed(int(torch.randint(2**62, (), generator=generator)))


def own_answers(
    policy: GPT,
    reference: GPT,
    asked: Sequence[Request],
    tokenizer: BPE,
    score: Score,
    advantages_of: Callable[[Batch], Tensor],
    prompts: int,
    group: int,
    start: int = 0,
) -> Fresh:
    """Endless batches that the policy writes itself: ``group`` answers to each of ``prompts`` requests of like length.

    They hold what ``ppo_objective`` and ``grpo_objective`` read, and ``rewards`` (B,), the answers to one request side
    by side.

    Args:
        advantages_of: of a batch that holds all else, the advantage of each answer, (B,).
    """
    ids, mask = as_prompts(asked, tokenizer)
    lengths = mask.sum(dim=1)

    def make(generator: torch.Generator) -> Batch:
        one = lengths[torch.randint(len(asked), (), generator=generator)]
        alike = (lengths - one).abs().argsort(stable=True)[: 8 * prompts]
        chosen = alike[torch.randperm(len(alike), generator=generator)[:prompts]].repeat_interleave(group)
        given = (rows[chosen].to(device()) for rows in (ids, mask))
        wrote = rollout(policy, *given, tokenizer.ids[END_OF_TURN], MAX_NEW, generator=on_device(generator))
        with torch.no_grad():
            expected = token_log_probs(reference(wrote.ids, wrote.mask), wrote.ids)
        batch = {"ids": wrote.ids, "mask": wrote.mask, "answer": wrote.answer, "old_log_probs": wrote.log_probs}
        batch |= {"reference": expected, "rewards": score([asked[i] for i in chosen.tolist()], wrote)}
        return batch | {"advantages": advantages_of(batch)}

    return Fresh(make, start)


def in_groups(batch: Batch) -> Tensor:
    """GRPO's advantages, (B,)."""
    return group_advantages(batch["rewards"].view(-1, GROUP)).flatten()


def verified_training(
    model: GPT, asked: Sequence[Request], tokenizer: BPE, steps: int, beta: float = 0.02, **options: Any
) -> Training:
    """GRPO with the true verdict as the reward; ``model`` as it is now is the reference."""
    reference = deepcopy(with_dropout(model, 0.0)).eval()
    data = own_answers(model, reference, asked, tokenizer, gold_score(tokenizer), in_groups, PROMPTS, GROUP)
    optimizer = adamw(freeze_lower_half(model), RATES["verified"])
    return Training(model, grpo_objective(beta), data, optimizer, steps, schedule=constant, **options)


# --- the runs ------------------------------------------------------------------------------------------------


def folder_of(variant: str, checkpoints: Path = CHECKPOINTS) -> Path:
    return checkpoints / f"assistant-{variant}"


def write(model: GPT | RewardModel, variant: str, checkpoints: Path = CHECKPOINTS) -> None:
    """Weights in eight bits: all of the instructed model, of the others what differs from it."""
    body = model.body if isinstance(model, RewardModel) else model
    config, weights = to_hugging_face(body)
    if variant != "instructed":
        begun = weights_of("instructed", checkpoints)
        weights = {name: weight for name, weight in weights.items() if not torch.equal(weight, begun[name])}
    if isinstance(model, RewardModel):
        weights |= {f"head.{name}": weight for name, weight in model.head.state_dict().items()}
    write_model(folder_of(variant, checkpoints), config | dict.fromkeys(DROPOUTS, 0.0), in_eight_bits(weights))


def weights_of(variant: str, checkpoints: Path = CHECKPOINTS) -> dict[str, Tensor]:
    """In Hugging Face's layout; a reward model's head is among them.

    Raises:
        FileNotFoundError: nobody has trained the variant, or the one that it begins with.
    """
    if not folder_of(variant, checkpoints).is_dir():
        command = f"python -m coursekit.recipes.assistant {variant}"
        raise FileNotFoundError(f"there is no {folder_of(variant, checkpoints)}: make it first, with {command}")
    begun = {} if variant == "instructed" else weights_of("instructed", checkpoints)
    return begun | from_eight_bits(read_model(folder_of(variant, checkpoints))[1])


def load(variant: str, checkpoints: Path = CHECKPOINTS) -> tuple[GPT, BPE]:
    """A variant that answers, any but ``"reward"``, in float32 and in eval mode, and the tokenizer of all of
    them."""
    weights = weights_of(variant, checkpoints)
    config, _ = read_model(folder_of("instructed", checkpoints))
    return from_hugging_face(GPT, config, weights).eval(), with_chat(gpt.load()[1])


def load_reward(checkpoints: Path = CHECKPOINTS) -> RewardModel:
    """The reward model, in float32 and in eval mode."""
    weights = weights_of("reward", checkpoints)
    config, _ = read_model(folder_of("instructed", checkpoints))
    head = {name.removeprefix("head."): weights.pop(name) for name in list(weights) if name.startswith("head.")}
    model = RewardModel(from_hugging_face(GPT, config, weights))
    model.head.load_state_dict(head)
    return model.eval()


def train(variant: str, folder: Path, checkpoints: Path = CHECKPOINTS) -> dict[str, Any]:
    """Train a variant, or go on with it where ``folder`` says, and write its checkpoint; returns the metrics."""
    clock, validation = Clock(folder / "seconds.json"), requests(TESTED // 2, "validation")
    options: dict[str, Any] = {"folder": folder, "save_every": SAVE_EVERY, "log_every": max(1, STEPS[variant] // 20)}
    model, tokenizer = begin() if variant == "instructed" else load(BEGINNING[variant], checkpoints)
    seed(0)
    model = (RewardModel(model) if variant == "reward" else model).to(device())
    if variant == "reward":
        held_out = comparisons(validation, TASTE, NOISE, seed=1)
        measures = lambda model: {"accuracy": accuracy(model, held_out, tokenizer)}  # noqa: E731
    else:
        measures = lambda model: shares(validation, verdicts(validation, replies(model, tokenizer, validation)))  # noqa: E731
    options |= {"evaluate": measures, "evaluate_every": max(1, STEPS[variant] // 5), "higher_is_better": True}
    options["monitor"] = "accuracy" if variant == "reward" else "gold"
    asked, steps = requests(REQUESTS), STEPS[variant]
    if variant == "instructed":
        run = instruction_training(model, answerable(asked), tokenizer, steps, **options)
    elif variant == "verified":
        run = verified_training(model, asked, tokenizer, steps, **options)
    else:
        compared = comparisons(asked[:PAIRS], TASTE, NOISE)
        learn = {"reward": reward_training, "chosen": chosen_training, "preferred": preference_training}[variant]
        run = learn(model, compared, tokenizer, steps, **options)
    to_the_end(run, variant, clock)
    load_weights(folder / "best.safetensors", model)
    write(model.cpu(), variant, checkpoints)
    metrics = {
        "variant": VARIANTS[variant],
        "command": f"python -m coursekit.recipes.assistant {variant}",
        "steps": steps,
        "seconds": round(clock.seconds()),
        "versions": versions(),
        "curve": [record for record in run.history if len(record) > 4],
    }
    if variant == "reward":
        rewarding, compared = load_reward(checkpoints).to(device()), comparisons(requests(TESTED, "test"), TASTE, NOISE)
        metrics["test"] = {
            "accuracy": accuracy(rewarding, compared, tokenizer),
            "accuracy without noise": accuracy(rewarding, comparisons(requests(TESTED, "test"), TASTE, 0.0), tokenizer),
        }
    else:
        written = load(variant, checkpoints)[0].to(device())
        metrics["test"] = measure(written, tokenizer)
        if variant == "preferred":
            begun = load(BEGINNING[variant], checkpoints)[0].to(device())
            metrics["balance"] = balance(begun, written, tokenizer)
    save_json(folder_of(variant, checkpoints) / "metrics.json", metrics)
    return metrics


def main(arguments: Sequence[str] | None = None) -> None:
    alone = {"verified": "it writes its own texts, one batch after another"}
    variant, folder, out, _ = read_command("assistant", __doc__, arguments, VARIANTS, alone=alone)
    try:
        report(train(variant, folder, CHECKPOINTS if out is None else out))
    except FileNotFoundError as missing:
        raise SystemExit(str(missing)) from None


if __name__ == "__main__":
    main()
