"""From a GPT to an assistant: what is learned and what is frozen, what is measured, and what is written and read."""

import json
from copy import deepcopy

import pytest
import torch
from torch import nn

from coursekit.data.dialogues import (
    UNKNOWN,
    Comparison,
    Request,
    Taste,
    Verdict,
    as_chat,
    as_pairs,
    comparisons,
    requests,
    verdict,
)
from coursekit.decode.rollout import rollout
from coursekit.models.dpo import pair_log_probs
from coursekit.models.gpt import GPT, GPTConfig
from coursekit.models.reward import RewardModel
from coursekit.nn.log_probs import token_log_probs
from coursekit.recipes import assistant, gpt
from coursekit.text.bpe import BPE, END
from coursekit.text.chat import CHAT
from tests.conftest import randomise

ASKED = requests(60, "validation")


@pytest.fixture(scope="module")
def shipped():
    """A small GPT and its tokenizer, for lecture 06's."""
    tokenizer = BPE.train([one.turns[0] + one.right[0] for one in ASKED], 400, [END, "<to-fr>"])
    return randomise(GPT(GPTConfig(len(tokenizer), 16, 2, 32, 2, 256, dropout=0.1))).eval(), tokenizer


@pytest.fixture
def tiny(monkeypatch, shipped):
    monkeypatch.setattr(gpt, "load", lambda: (deepcopy(shipped[0]), shipped[1]))
    sizes = {"REQUESTS": 40, "PAIRS": 30, "TESTED": 8, "MAX_NEW": 6, "BATCH": 4, "PROMPTS": 2, "GROUP": 3}
    for name, value in sizes.items():
        monkeypatch.setattr(assistant, name, value)
    monkeypatch.setattr(assistant, "STEPS", dict.fromkeys(assistant.STEPS, 5))
    return assistant.begin()


# --- the models ----------------------------------------------------------------------------------------------


def test_new_tokens_begin_as_the_mean_and_the_others_stay(tiny, shipped):
    model, tokenizer = tiny
    old, new = shipped[0].tokens.weight, model.tokens.weight
    assert tokenizer.tokens == [*shipped[1].tokens, *CHAT]
    assert torch.equal(new[: len(old)], old)
    assert len(new) == len(old) + 4
    assert (new[len(old) :] - old.mean(dim=0)).abs().max() < 0.1
    assert len({tuple(row) for row in new[len(old) :].tolist()}) == 4
    ids = torch.tensor([[5, 6, 7]])
    assert torch.allclose(model(ids)[..., : len(old)], shipped[0](ids), atol=1e-5)
    assert torch.equal(assistant.begin()[0].tokens.weight, new)  # the same each time


def test_only_the_upper_half_learns(tiny):
    model, _ = tiny
    learned = {name for name, p in assistant.freeze_lower_half(model).named_parameters() if p.requires_grad}
    expected = {name for name, _ in model.named_parameters() if name.startswith(("blocks.1.", "norm."))}
    assert learned == expected
    assert {m.p for m in assistant.with_dropout(model, 0.3).modules() if isinstance(m, nn.Dropout)} == {0.3}


# --- what they answer ----------------------------------------------------------------------------------------


def test_replies_are_each_requests_own(tiny):
    """In batches, whatever the lengths beside them, as one by one by hand; cut at the end of the turn."""
    model, tokenizer = tiny
    together = assistant.replies(model, tokenizer, ASKED[:7], max_new=5, batch_size=3)
    for one, reply in zip(ASKED, together):
        ids = [tokenizer.ids[END], *tokenizer.encode(as_chat(one))]
        written = []
        while len(written) < 5 and (not written or written[-1] != tokenizer.ids[CHAT[3]]):
            written.append(int(model(torch.tensor([ids + written]))[0, -1].argmax()))
        ended = written[-1] == tokenizer.ids[CHAT[3]]
        assert reply == (tokenizer.decode(written[:-1] if ended else written), ended)
    end = tokenizer.ids[CHAT[3]]
    assert assistant.as_reply([7, 8, end, 9, end], tokenizer) == (tokenizer.decode([7, 8]), True)


def test_shares_by_hand():
    known = Request("question", ("A.",), ("Yes.",), ("No.",))
    unknown = Request("unknown", ("B.",), (UNKNOWN,), ("No.",))
    sure = Request("sure", ("C.",), ("Yes.",), ("No.",), believed="No.")
    sure_and_right = Request("sure", ("D.",), ("Yes.",), ("No.",), believed="Yes.")
    found = [
        (known, Verdict(True, True, False, 2, False, 7)),
        (known, Verdict(False, True, True, 0, False, 5)),
        (unknown, Verdict(True, True, True, 0, False, 5)),
        (unknown, Verdict(False, False, False, 0, False, 1)),
        (sure, Verdict(False, True, False, 0, True, 1)),
        (sure_and_right, Verdict(True, True, False, 0, True, 1)),
    ]
    assert assistant.shares(*zip(*found)) == {
        "gold": 0.5,
        "in form": 5 / 6,
        "courtesies": 1 / 3,
        "words": 20 / 6,
        "question": 0.5,
        "known right": 0.5,
        "abstains where known": 0.5,
        "unknown": 0.5,
        "abstains where unknown": 0.5,
        "sure": 0.5,
        "agrees with what is not so": 1.0,
    }


def test_the_balance_of_two_models_by_hand(tiny, monkeypatch):
    """Of three questions that the text answers the first model abstains at two, the second at one, another one."""
    who, why, when = (
        Request(kind, (f"A.\n{word} is it?",), (right,), ("No.",))
        for word, kind, right in (
            ("Who", "question", "Yes."),
            ("Why", "question", "Yes."),
            ("When", "unknown", UNKNOWN),
        )
    )
    said = {"first": {"question": [UNKNOWN, UNKNOWN, "Yes."], "unknown": ["No."]}}
    said["second"] = {"question": ["Yes.", "Yes.", UNKNOWN], "unknown": [UNKNOWN]}
    monkeypatch.setattr(assistant, "requests", lambda n, split: [who, who, when, why])
    monkeypatch.setattr(
        assistant,
        "replies",
        lambda model, tokenizer, asked: [assistant.Reply(text, True) for text in said[model][asked[0].kind]],
    )
    assert assistant.balance("first", "second", None) == {
        "known": {
            "questions": 3,
            "abstains": [2 / 3, 1 / 3],
            "right": [1 / 3, 2 / 3],
            "only before": 2,
            "only after": 1,
            "by word": {"Who": [2, 1, 0], "Why": [1, 0, 1]},
        },
        "unknown": {
            "questions": 1,
            "abstains": [0, 1],
            "right": [0, 1],
            "only before": 0,
            "only after": 1,
            "by word": {"When": [1, 0, 1]},
        },
    }


# --- what is learned -----------------------------------------------------------------------------------------


def test_instructions_leave_out_what_has_no_answer():
    asked = requests(400, "validation")
    left = assistant.answerable(asked)
    assert {one.kind for one in asked} - {one.kind for one in left} == {"unknown", "harmless"}
    assert all(one.known for one in left)
    assert all(one in left for one in asked if one.right[0] != UNKNOWN)


def test_instructions_are_learned(tiny, monkeypatch):
    model, tokenizer = tiny
    monkeypatch.setitem(assistant.RATES, "instructed", 1e-2)
    few = [one for one in ASKED if one.kind == "unsafe"][:1] * 4
    run = assistant.instruction_training(model, few, tokenizer, 150, precision="float32")
    run.fit()
    (reply,) = assistant.replies(model.eval(), tokenizer, few[:1], max_new=30)
    assert verdict(few[0], *reply).gold == 1


@pytest.mark.slow
def test_a_reward_model_learns_what_was_chosen_and_dpo_moves_towards_it(tiny, monkeypatch):
    model, tokenizer = tiny
    monkeypatch.setitem(assistant.RATES, "reward", 3e-2)
    monkeypatch.setitem(assistant.RATES, "preferred", 3e-2)
    compared = comparisons(ASKED, Taste(0, words=-1), noise=0)
    rewarding = RewardModel(deepcopy(model))
    before = assistant.accuracy(rewarding.eval(), compared, tokenizer)
    assistant.reward_training(rewarding, compared, tokenizer, 500, precision="float32").fit()
    after = assistant.accuracy(rewarding.eval(), compared, tokenizer)
    assert before < 0.8 < 0.9 < after
    reversed_ = [Comparison(one.request, one.rejected, one.chosen, False) for one in compared]
    assert assistant.accuracy(rewarding, reversed_, tokenizer) == pytest.approx(1 - after, abs=1e-6)

    policy = deepcopy(model)
    run = assistant.preference_training(policy, compared, tokenizer, 120, precision="float32")
    batch = next(run.data)
    reference = pair_log_probs(model, batch)
    for side, expected in zip(("chosen", "rejected"), reference):
        assert torch.allclose(batch[f"{side}_reference"], expected, atol=1e-4)  # of the model as it was
    total, count = run.loss_fn(policy.eval(), batch)
    assert (total / count).item() == pytest.approx(0.6931, abs=1e-4)
    run.fit()
    moved = [ours - theirs for ours, theirs in zip(pair_log_probs(policy.eval(), batch), reference)]
    assert (moved[0] - moved[1]).mean() > 1


def test_chosen_answers_are_learned_and_rejected_ones_are_not(tiny, monkeypatch):
    model, tokenizer = tiny
    monkeypatch.setitem(assistant.RATES, "chosen", 1e-2)
    compared = [Comparison(one, "The dog.", "Yes.", False) for one in ASKED[:20]]
    lower = {name: p.clone() for name, p in model.named_parameters() if not name.startswith(("blocks.1.", "norm."))}
    pairs = as_pairs(compared, tokenizer)
    before = pair_log_probs(model, pairs)
    assistant.chosen_training(model, compared, tokenizer, 150, precision="float32").fit()
    rose = [(after - of).mean() for of, after in zip(before, pair_log_probs(model.eval(), pairs))]
    assert rose[0] > 5
    assert rose[0] > rose[1] + 5
    for name, before in lower.items():
        assert torch.equal(model.get_parameter(name), before), name


def test_rewards_are_read_at_each_answers_end(tiny):
    model, tokenizer = tiny
    rewarding = RewardModel(model).eval()
    answers = [one.wrong[0] for one in ASKED[:9]]
    together = assistant.rewards_of(rewarding, ASKED[:9], answers, tokenizer)
    for one, answer, expected in zip(ASKED, answers, together):
        text = END + as_chat(one) + answer + CHAT[3]
        assert rewarding(torch.tensor([tokenizer.encode(text)])).item() == pytest.approx(expected.item(), abs=1e-5)


def test_what_the_policy_writes_comes_with_its_rewards_in_groups(tiny):
    policy, tokenizer = tiny
    reference = randomise(deepcopy(policy)).eval()
    noted = []

    def score(asked, wrote):
        noted.extend(asked)
        return wrote.answer.sum(dim=1).float() + torch.arange(len(asked)) % 2

    data = assistant.own_answers(policy, reference, ASKED, tokenizer, score, assistant.in_groups, 2, 3)
    batch = next(data)
    assert [noted[i] for i in (0, 3)] == [noted[2], noted[5]]  # two groups of three
    assert noted[0] != noted[3]
    for one, ids, mask, answer in zip(noted, batch["ids"], batch["mask"], batch["answer"]):
        assert tokenizer.decode(ids[mask & ~answer].tolist()) == END + as_chat(one)
    assert torch.allclose(
        batch["old_log_probs"], token_log_probs(policy(batch["ids"], batch["mask"]), batch["ids"]), atol=1e-5
    )
    expected = token_log_probs(reference(batch["ids"], batch["mask"]), batch["ids"])
    assert torch.allclose(batch["reference"], expected, atol=1e-5)
    grouped = batch["advantages"].view(2, 3)
    assert grouped.sum(dim=1).abs().max() < 1e-5
    assert torch.equal(grouped.argsort(dim=1), batch["rewards"].view(2, 3).argsort(dim=1))


def test_scores_are_the_verdict_and_the_reward_models(tiny):
    model, tokenizer = tiny
    ids = torch.tensor([tokenizer.encode(END + as_chat(one)) for one in ASKED[:1]])
    wrote = rollout(model, ids, None, tokenizer.ids[CHAT[3]], 4, generator=torch.Generator().manual_seed(0))
    rewarding = RewardModel(model).eval()
    assert torch.allclose(assistant.model_score(rewarding)(ASKED[:1], wrote), rewarding(wrote.ids, wrote.mask))
    text, length = ASKED[0].right[0], ids.shape[1]
    said = [*tokenizer.encode(text), tokenizer.ids[CHAT[3]]]
    right = torch.tensor([ids[0].tolist() + said])
    answer = torch.arange(right.shape[1])[None] >= length
    golden = assistant.gold_score(tokenizer)
    whole = wrote._replace(ids=right, mask=torch.ones_like(answer), answer=answer)
    expected = verdict(ASKED[0], text).gold
    assert golden(ASKED[:1], whole).tolist() == [expected]
    cut = whole._replace(ids=right[:, :-1], mask=whole.mask[:, :-1], answer=answer[:, :-1])
    assert golden(ASKED[:1], cut).tolist() == [0.0]  # it did not end


# --- the runs ------------------------------------------------------------------------------------------------


def test_what_a_variant_begins_with_must_be_there(tiny, tmp_path):
    with pytest.raises(
        SystemExit, match=r"no .*assistant-preferred: make it first, with python -m .*assistant preferred"
    ):
        assistant.main(["verified", "--state", str(tmp_path / "state"), "--out", str(tmp_path / "out")])


def test_each_variant_begins_where_it_should(tiny, tmp_path, monkeypatch):
    """Where nothing but the chosen answers is learned, what comes after them is as they left it, the rest as before."""
    monkeypatch.setattr(assistant, "measure", lambda model, tokenizer: {})
    monkeypatch.setattr(assistant, "balance", lambda before, after, tokenizer: {})
    monkeypatch.setattr(assistant, "RATES", dict.fromkeys(assistant.RATES, 0.0) | {"chosen": 1e-2})
    for variant in assistant.VARIANTS:
        assistant.main([variant, "--state", str(tmp_path / "state"), "--out", str(tmp_path / "out")])
    weights = {name: assistant.weights_of(name, tmp_path / "out") for name in assistant.VARIANTS}
    name = next(name for name in weights["instructed"] if "h.1.mlp.c_fc.weight" in name)
    found = {variant: torch.equal(of[name], weights["chosen"][name]) for variant, of in weights.items()}
    assert found == {"instructed": False, "reward": False, "chosen": True, "preferred": True, "verified": True}


def test_each_variant_is_trained_written_and_read(tiny, tmp_path, monkeypatch):
    # so small a model may never be right, and learns nothing where all answers are worth the same
    monkeypatch.setattr(assistant, "gold_score", lambda tokenizer: lambda asked, wrote: wrote.ids[:, -1].float())
    monkeypatch.setattr(assistant, "measure", lambda model, tokenizer: {"gold": float(model.training)})
    training = lambda before, after, tokenizer: [before.training, after.training]  # noqa: E731
    monkeypatch.setattr(assistant, "balance", training)
    for variant in assistant.VARIANTS:
        arguments = [variant, "--state", str(tmp_path / "state"), "--out", str(tmp_path / "out")]
        assistant.main(arguments)
        folder = tmp_path / "out" / f"assistant-{variant}"
        metrics = json.loads((folder / "metrics.json").read_text())
        assert metrics["command"].endswith(variant)
        assert metrics["steps"] == 5
        if variant == "reward":
            assert set(metrics["test"]) == {"accuracy", "accuracy without noise"}
            assert isinstance(assistant.load_reward(tmp_path / "out"), RewardModel)
        else:
            assert metrics["test"] == {"gold": 0.0}
            assert metrics.get("balance") == ([False, False] if variant == "preferred" else None)
    models = {
        name: assistant.load(name, tmp_path / "out")[0].state_dict() for name in assistant.VARIANTS if name != "reward"
    }
    models["reward"] = assistant.load_reward(tmp_path / "out").body.state_dict()
    for name in models["instructed"]:
        for other, begun in assistant.BEGINNING.items():
            same = torch.equal(models[begun][name], models[other][name])
            shifts_all = other == "reward" and name == "norm.bias"  # every reward alike, so nothing is learned
            assert same == (not name.startswith(("blocks.1.", "norm.")) or shifts_all), (name, begun, other)
    sizes = {one.parent.name: one.stat().st_size for one in (tmp_path / "out").glob("*/model.safetensors")}
    assert max(sizes, key=sizes.get) == "assistant-instructed"
