"""BERT's recipe: its texts, its measures, that it can be stopped, and that what it shipped is what it says."""

import json
from functools import partial

import pytest
import torch
from torch import nn

from coursekit.data.pretraining import mask_tokens
from coursekit.data.world.associations import CHOICES, GIVENS, log_odds, odds
from coursekit.data.world.stories import stories
from coursekit.models.bert import Bert, BertConfig, BertForPreTraining, pretraining_loss
from coursekit.recipes import bert as recipe
from coursekit.recipes import load_metrics
from coursekit.recipes.runs import data_hash
from coursekit.text.wordpiece import WordPiece
from tests.recipes.stopped import ends_like_one_that_was_not


def small_batch(n=12, T=20, V=60):
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(6, T + 1, (n,), generator=generator)
    mask = torch.arange(T) < lengths[:, None]
    ids = torch.randint(5, V, (n, T), generator=generator).masked_fill(~mask, 0)
    tokenizer = WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(chr(0x4E00 + i) for i in range(V - 5))])
    batch = {"ids": ids, "mask": mask, "segments": (torch.arange(T) > 4).long() * mask, "labels": lengths % 2}
    return mask_tokens(batch, tokenizer, generator)


def small_model(V=60):
    torch.manual_seed(0)
    model = BertForPreTraining(Bert(BertConfig(V, 16, 2, 32, 2, 32, dropout=0.0)))
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model.eval()


# --- texts ---------------------------------------------------------------------------------------------------


def test_a_retold_story_names_whom_each_sentence_speaks_of():
    changed = 0
    for story in stories(300):
        told = recipe.retold(story)
        assert len(told) == len(story.sentences)
        for sentence, one in zip(told, story.sentences):
            if sentence == one.en:
                continue
            changed += 1
            place = next(i for i, (a, b) in enumerate(zip(sentence, one.en)) if a != b)
            assert one.en[place] in ("he", "she", "it", "they")
            longer = len(sentence) - len(one.en)  # "she" -> "Anna" or -> "the queen"
            assert longer in (0, 1)
            assert sentence[place + 1 + longer :] == one.en[place + 1 :]
            named = sentence[place : place + 1 + longer]
            assert set(named) <= {word for s in story.sentences for word in s.en} | {"the"}
    assert changed > 100


@pytest.mark.parametrize(
    ("sentences", "tied"),
    [
        (["Anna bought a lamp .", "The lamp was red ."], True),
        (["Anna bought a lamp .", "Later , she was happy ."], False),
        (["Anna bought two lamps .", "The lamp was red .", "It rained ."], False),
        (["The mice ran .", "A mouse ate .", "That mouse was grey ."], True),
        (["Only one ."], True),
    ],
)
def test_tied_sentences_share_a_noun_or_name_with_the_one_before(sentences, tied):
    assert recipe.is_tied([sentence.replace("The", "the").split() for sentence in sentences]) is tied


def test_splits_share_no_story_and_no_question():
    for source in (recipe.tied_stories, recipe.told_stories, recipe.asked):
        train, test = set(source(400, "train")), set(source(200, "test"))
        assert len(train) == 400
        assert not train & test


# --- batches and measures ------------------------------------------------------------------------------------


def test_parts_of_a_batch_hold_every_token_once():
    batch = small_batch()
    parts = recipe.by_length(batch, 3)
    assert sum(int(part["mask"].sum()) for part in parts) == int(batch["mask"].sum())
    assert all(part["mask"].any(dim=0).all() for part in parts), "no column is padding in every row"
    rows = {tuple(row[m].tolist()) for row, m in zip(batch["ids"], batch["mask"])}
    assert {tuple(row[m].tolist()) for part in parts for row, m in zip(part["ids"], part["mask"])} == rows
    longest = [int(part["mask"].sum(dim=1).max()) for part in parts]
    assert longest == sorted(longest)


def test_the_loss_in_parts_is_that_of_its_parts():
    model, batch = small_model(), small_batch()
    total, count = recipe.loss_in_parts(model, batch)
    order = batch["mask"].sum(dim=1).argsort(stable=True)
    halves = [{name: rows[some] for name, rows in batch.items()} for some in (order[:6], order[6:])]
    expected = sum(pretraining_loss(model, half)[0] for half in halves)
    assert count == batch["masked"].sum()
    assert torch.allclose(total, expected, atol=1e-4)


def test_measures_count_by_hand():
    model, batch = small_model(), small_batch(n=37)
    found = recipe.measure(model, batch)
    words, follows = model(batch["ids"], batch["mask"], batch["segments"])
    p = words.softmax(dim=-1)
    right, nats = [], []
    for row, place in batch["masked"].nonzero().tolist():
        right.append(words[row, place].argmax().item() == batch["target"][row, place].item())
        nats.append(-p[row, place, batch["target"][row, place]].log().item())
    assert found["masked words"] == pytest.approx(sum(right) / len(right))
    assert found["nats of a masked word"] == pytest.approx(sum(nats) / len(nats), rel=1e-5)
    assert found["next sentence"] == pytest.approx((follows.argmax(dim=1) == batch["labels"]).float().mean().item())


def test_always_mask_hides_every_chosen_token_and_draws_the_same():
    tokenizer = WordPiece.train(["the cat sat on a mat. a dog ate the soup."] * 3, 60)
    documents = {"one": [[tokenizer.encode(s)[1:-1] for s in ("the cat sat.", "a dog ate the soup.")]] * 40}
    drawn = [
        recipe.draw_pairs(documents, tokenizer, torch.Generator().manual_seed(5), always_mask=always)
        for always in (False, True)
    ]
    assert torch.equal(drawn[0]["masked"], drawn[1]["masked"])
    hidden = drawn[1]["ids"] == tokenizer.ids["[MASK]"]
    assert torch.equal(hidden, drawn[1]["masked"])
    assert 0 < (drawn[0]["ids"] == tokenizer.ids["[MASK]"]).sum() < hidden.sum()


class Oracle(nn.Module):
    """Says of every blank just what the world's associations are, times ``slope``."""

    def __init__(self, tokenizer, slope):
        super().__init__()
        self.tokenizer, self.slope = tokenizer, slope
        self.anything = nn.Parameter(torch.zeros(()))

    def forward(self, ids, where):
        words = [self.tokenizer.tokens[i] for i in ids[0].tolist()]
        text = " ".join(words)
        for kind, givens in GIVENS.items():
            for given in givens:
                if all(word in words for word in given.lower().split()):
                    logits = torch.full((len(self.tokenizer),), -9.0)
                    for choice, p in odds(kind, given).items():
                        logits[self.tokenizer.ids[choice]] = self.slope * torch.tensor(p).log()
                    return logits.repeat(int(where.sum()), 1), None
        raise AssertionError(text)


@pytest.mark.parametrize("slope", [1.0, 0.5])
def test_an_oracle_recovers_what_was_planted(slope):
    choices = [choice for one in CHOICES.values() for choice in one]
    givens = [word.lower() for one in GIVENS.values() for given in one for word in given.split()]
    letters = [chr(i) for i in range(ord("a"), ord("z") + 1)]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", ","]
    tokens = dict.fromkeys([*special, *choices, *givens, *letters, *(f"##{letter}" for letter in letters)])
    model = Oracle(WordPiece(tokens), slope)
    off = 1e-4 if slope == 1 else 0.01  # what makes all choices add up to 1 differs a little from pair to pair
    for found in recipe.compare(model, model.tokenizer).values():
        assert found["correlation"] == pytest.approx(1, abs=off)
        assert found["slope"] == pytest.approx(slope, abs=off)
    if slope == 1:
        found = recipe.recovered(model, model.tokenizer, "region", "Texas", "Oregon")
        assert found == pytest.approx(log_odds("region", "Texas", "Oregon"), abs=1e-4)


def test_one_blank_is_asked_for():
    model, tokenizer = small_model(), WordPiece.train(["the cat sat on a mat."], 60)
    for text in ("the cat sat.", "the [MASK] sat [MASK]"):
        with pytest.raises(ValueError, match="needs one"):
            recipe.log_likelihoods(model, tokenizer, text)


def test_a_choice_that_is_cut_into_pieces_is_refused():
    model, tokenizer = small_model(), WordPiece.train(["In Texas, they like to buy bread, in Oregon too."], 60)
    with pytest.raises(ValueError, match="'blankets' is not one token"):
        recipe.recovered(model, tokenizer, "region", "Texas", "Oregon")


# --- the run -------------------------------------------------------------------------------------------------


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(recipe, "DOCUMENTS", dict.fromkeys(recipe.DOCUMENTS, 60) | {"associations": 400})
    documents = recipe.pydocs.documents
    monkeypatch.setattr(recipe.pydocs, "documents", lambda split: documents(split)[:5])
    for name, value in {
        "HELD_OUT": 30,
        "STEPS": 6,
        "BATCH": 8,
        "WARMUP": 2,
        "EVALUATE_EVERY": 2,
        "SAVE_EVERY": 3,
    }.items():
        monkeypatch.setattr(recipe, name, value)
    monkeypatch.setattr(recipe, "SIZES", {**recipe.SIZES, "d_model": 16, "d_ff": 32, "n_layers": 1})
    monkeypatch.setattr(recipe, "few_labels", lambda new_bert, tokenizer: {"d_model": new_bert().config.d_model})
    monkeypatch.setattr(recipe, "held_out", lambda split, tokenizer: {"stories": small_batch(V=len(tokenizer))})


@pytest.mark.slow
def test_a_run_that_was_stopped_ends_like_one_that_was_not(tiny, tmp_path, monkeypatch):
    whole, again = ends_like_one_that_was_not(partial(recipe.train, "bert"), "bert", tmp_path, monkeypatch)
    assert whole["stories"] == again["stories"]
    assert json.loads((tmp_path / "out2/bert/metrics.json").read_text())["pairs"] == 48


def test_of_the_other_variants_only_the_metrics_are_kept(tiny, tmp_path):
    recipe.train("without-associations", tmp_path / "state", tmp_path / "out")
    assert [path.name for path in (tmp_path / "out/without-associations").iterdir()] == ["metrics.json"]


# --- what it shipped -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shipped():
    return recipe.load()


@pytest.mark.slow
def test_the_shipped_texts_can_be_made_again():
    """A change in the world's sentences would leave the checkpoint behind with texts that nobody can make."""
    n, saved = recipe.DOCUMENTS, load_metrics("bert")["data"]
    told = recipe.associations(n["associations"])
    texts = {
        "questions": [list(pair) for pair in recipe.asked(n["questions"], "train")],
        "associations": [[one.text for one in text] for text in told],
    }
    assert data_hash(texts) == {source: saved[source] for source in texts}


def test_the_shipped_model_is_as_good_as_its_metrics_say(shipped):
    model, tokenizer = shipped
    metrics = load_metrics("bert")
    assert sum(p.numel() for p in model.parameters()) == metrics["parameters"]
    assert not model.training
    texts = recipe.encode({"stories": recipe.tied_stories(300, "test")}, tokenizer)
    found = recipe.measure(model, recipe.draw_pairs(texts, tokenizer, torch.Generator().manual_seed(0)))
    assert found["next sentence"] == pytest.approx(metrics["stories"]["next sentence"], abs=0.03)  # 400 pairs
    assert found["masked words"] == pytest.approx(metrics["stories"]["masked words"], abs=0.04)
    assert recipe.compare(model, tokenizer)["year"] == pytest.approx(metrics["log-odds"]["year"], abs=0.01)


def test_the_shipped_metrics_are_of_runs_that_differ_in_one_thing():
    metrics = {variant: load_metrics(variant) for variant in recipe.VARIANTS}
    assert {one["steps"] for one in metrics.values()} == {recipe.STEPS}
    data = {variant: one["data"] for variant, one in metrics.items()}
    assert data["bert"] == data["always-mask"]
    differs = {source for source in data["bert"] if data["bert"][source] != data["without-associations"][source]}
    assert differs == {"associations"}
    for variant, one in metrics.items():
        assert one["command"].endswith(f"--variant {variant}")
        assert one["curve"][-1]["step"] == recipe.STEPS


def test_the_shipped_files_are_small():
    sizes = [path.stat().st_size for path in recipe.CHECKPOINTS.rglob("*") if path.is_file()]
    assert sum(sizes) < 40e6  # of all recipes


def test_a_small_model_is_made_for_comparison():
    small, usual = recipe.new_model(50, sizes=recipe.SMALL), recipe.new_model(50)
    assert [len(model.bert.blocks) for model in (small, usual)] == [2, 4]
    assert [model.bert.config.d_model for model in (small, usual)] == [64, 128]
