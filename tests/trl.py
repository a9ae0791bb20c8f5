"""The losses of lecture 11 beside those of the library ``trl``: the same weights and answers, the same numbers.

``python -m tests.trl`` compares them. It needs ``trl``, so ``python -m tests.full trl`` runs it in an environment of
its own. Both define DPO, the reward model's loss and GRPO alike. In IPO ``trl`` takes the mean over an answer's tokens
where the paper's equation 17 and the course take the sum; for answers of n tokens each, its loss at beta is the
course's at beta / n, divided by n squared. DPO with label smoothing, as in the authors' program, it no longer has.
"""

import tempfile
from collections import defaultdict
from types import SimpleNamespace

import torch
import trl
from accelerate import Accelerator
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor, nn
from transformers import GPT2Config, GPT2ForSequenceClassification, GPT2LMHeadModel, PreTrainedTokenizerFast

from coursekit.convert.gpt import to_hugging_face
from coursekit.models.dpo import dpo_objective, with_reference
from coursekit.models.gpt import GPT, GPTConfig
from coursekit.models.grpo import group_advantages, grpo_objective
from coursekit.models.reward import RewardModel, preference_loss
from coursekit.nn.log_probs import token_log_probs

V, PAD, END, BETA, CLOSE = 23, 21, 22, 0.3, 1e-5


def new_gpt(seed: int) -> GPT:
    torch.manual_seed(seed)
    model = GPT(GPTConfig(V, 16, 2, 32, 2, 32)).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    return model


def as_theirs(model: GPT, kind: type[nn.Module] = GPT2LMHeadModel, **more: int) -> nn.Module:
    """The same weights in a class that ``trl`` takes."""
    config, weights = to_hugging_face(model)
    other = kind(GPT2Config(**config | more)).eval()
    left = other.load_state_dict(weights, strict=False)
    assert set(left.missing_keys) <= {"lm_head.weight", "score.weight"}, left
    assert not left.unexpected_keys, left
    return other


def pairs(lengths: range) -> list[dict[str, list[int]]]:
    """Six prompts with two answers each, of as many tokens as ``lengths`` allows, and their end."""

    def draw(some: range) -> list[int]:
        return torch.randint(PAD, (some[int(torch.randint(len(some), ()))],)).tolist()

    torch.manual_seed(3)
    return [
        {"prompt": draw(range(2, 6)), "chosen": [*draw(lengths), END], "rejected": [*draw(lengths), END]}
        for _ in range(6)
    ]


def in_batch(rows: list[dict[str, list[int]]]) -> dict[str, Tensor]:
    """The same pairs as the course's objectives read them."""
    batch = {}
    for side in ("chosen", "rejected"):
        texts = [row["prompt"] + row[side] for row in rows]
        longest = max(map(len, texts))
        batch[side] = torch.tensor([text + [PAD] * (longest - len(text)) for text in texts])
        batch[f"{side}_mask"] = torch.tensor([[t < len(text) for t in range(longest)] for text in texts])
        starts = torch.tensor([[len(row["prompt"])] for row in rows])
        batch[f"{side}_answer"] = batch[f"{side}_mask"] & (torch.arange(longest) >= starts)
    return batch


def of_trainer(
    kind: type, config: type, model: nn.Module, rows: list[dict[str, list[int]]], **options: object
) -> float:
    """What a trainer of ``trl`` gives for all rows in one batch."""
    words = Tokenizer(models.WordLevel({str(i): i for i in range(V)}, "0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token=str(PAD), eos_token=str(END))
    own = {name: options.pop(name) for name in ("ref_model",) if name in options}
    with tempfile.TemporaryDirectory() as folder:
        settings = config(
            folder, per_device_train_batch_size=len(rows), report_to="none", use_cpu=True, bf16=False, **options
        )
        data = Dataset.from_list([{name: "".join(f" {i}" for i in ids) for name, ids in row.items()} for row in rows])
        trainer = kind(model, args=settings, train_dataset=data, processing_class=tokenizer, **own)
        batch = next(iter(trainer.get_train_dataloader()))
        return float(trainer.compute_loss(trainer.model.eval(), dict(batch)).detach())


def relative(ours: Tensor, other: float) -> float:
    return abs(float(ours) - other) / abs(other)


def dpo_apart() -> dict[str, float]:
    policy, reference = new_gpt(0), new_gpt(1)
    rows = pairs(range(1, 7))
    total, count = dpo_objective(BETA)(policy, with_reference(reference, in_batch(rows)))
    options = {"ref_model": as_theirs(reference), "beta": BETA}
    found = {
        "DPO": relative(total / count, of_trainer(trl.DPOTrainer, trl.DPOConfig, as_theirs(policy), rows, **options))
    }
    n = 4
    rows = pairs(range(n - 1, n))  # and the end
    total, count = dpo_objective(BETA / n, loss="ipo")(policy, with_reference(reference, in_batch(rows)))
    options["loss_type"] = "ipo"
    other = of_trainer(trl.DPOTrainer, trl.DPOConfig, as_theirs(policy), rows, **options)
    found["IPO"] = relative(total / count / n**2, other)
    return found


def reward_apart() -> dict[str, float]:
    model = RewardModel(new_gpt(2)).eval()
    other = as_theirs(
        model.body, GPT2ForSequenceClassification, num_labels=1, pad_token_id=PAD
    )  # it looks for padding by its number
    other.score.weight.data.copy_(model.head.weight)  # a bias cancels out
    rows = pairs(range(1, 7))
    whole = [{side: row["prompt"] + row[side] for side in ("chosen", "rejected")} for row in rows]
    total, count = preference_loss(model, in_batch(rows))
    return {"reward": relative(total / count, of_trainer(trl.RewardTrainer, trl.RewardConfig, other, whole))}


def grpo_apart() -> dict[str, float]:
    """Its loss alone, with the log-probabilities of the course's model, since its trainer writes the answers itself."""
    policy, old, reference = new_gpt(4), new_gpt(5), new_gpt(6)
    batch = in_batch(pairs(range(1, 7)))
    ids, mask, answer = batch["chosen"], batch["chosen_mask"], batch["chosen_answer"]
    own = {"ids": ids, "mask": mask, "answer": answer, "advantages": group_advantages(torch.rand(2, 3)).flatten()}
    with torch.no_grad():
        own["old_log_probs"], own["reference"] = (token_log_probs(model(ids, mask), ids) for model in (old, reference))
        total, count = grpo_objective(0.04, 0.2)(policy, own)
        log_probs = token_log_probs(policy(ids, mask), ids)
    trainer = object.__new__(trl.GRPOTrainer)
    settings = SimpleNamespace(use_bias_correction_kl=False, delta=None)
    for name, value in {
        "args": settings, "model": policy, "beta": 0.04, "epsilon_low": 0.2, "epsilon_high": 0.2, "loss_type": "grpo",
        "importance_sampling_level": "token", "top_entropy_quantile": 1.0, "off_policy_mask_threshold": None,
        "use_vllm": False, "aux_loss_enabled": False, "_entropy_bonus_enabled": False,
        "current_gradient_accumulation_steps": 1,
        "accelerator": Accelerator(cpu=True), "_metrics": {"eval": defaultdict(list)},
        "_get_per_token_logps_and_entropies": lambda *_, **__: (log_probs, torch.zeros_like(log_probs), None),
    }.items():  # fmt: skip
        setattr(trainer, name, value)
    asked = {"prompt_ids": ids[:, :1], "prompt_mask": mask[:, :1].long(), "completion_ids": ids[:, 1:]}
    asked |= {"completion_mask": answer[:, 1:].long(), "advantages": own["advantages"]}
    asked |= {"old_per_token_logps": own["old_log_probs"], "ref_per_token_logps": own["reference"]}
    return {"GRPO": relative(total / count, float(trainer._compute_loss(policy, asked)))}


def main() -> int:
    found = dpo_apart() | reward_apart() | grpo_apart()
    for name, apart in found.items():
        print(f"{name}: {apart:.1e} of it apart")
    worst = max(found, key=found.get)
    print(f"trl {trl.__version__}: {len(found)} losses, furthest apart {worst}, by {found[worst]:.0e} of it")
    return int(found[worst] > CLOSE)


if __name__ == "__main__":
    raise SystemExit(main())
