"""DINO's recipe: what its views show, how its teacher is measured, and that runs can be stopped."""

import json
import math

import pytest
import torch

from coursekit.convert.vit import from_hugging_face, to_hugging_face
from coursekit.evaluate.features import Segmentation, extract, knn, linear_probe, segment
from coursekit.models.vit import ViT, ViTConfig
from coursekit.recipes import dino as recipe
from coursekit.recipes import load_metrics, unlabelled
from coursekit.recipes.runs import Clock
from coursekit.train.checkpoint import load_state
from tests.conftest import randomise
from tests.recipes import marked
from tests.recipes.stopped import ends_like_one_that_was_not, later_stage_goes_on


def test_batches_are_views_as_the_model_reads_them():
    images = unlabelled.pictures(24)
    batch = next(recipe.in_batches(images))
    assert {name: x.shape for name, x in batch.items()} == {
        "global": (recipe.BATCH, 2, 3, 32, 32),
        "local": (recipe.BATCH, recipe.CROPS["n_local"], 3, 16, 16),
    }
    for x in batch.values():
        assert x.dtype == torch.float32
        assert -2 <= x.min() < -1.5
        assert 1.5 < x.max() <= 2
    again, other = (next(recipe.in_batches(images, start)) for start in (0, 1))
    assert all(torch.equal(x, again[name]) for name, x in batch.items())
    assert not torch.equal(batch["global"], other["global"])


@pytest.mark.parametrize("several", [True, False])
def test_views_of_a_row_show_one_object(several, monkeypatch):
    """In two pictures, which global and local views show in turns; or all in one, as published."""
    monkeypatch.setattr(recipe, "COLOURS", dict.fromkeys(recipe.COLOURS, 0.0))
    images = marked.pictures()
    batch = next(recipe.in_batches(images if several else images[:, 1]))
    objects = None
    for name in ("global", "local"):
        numbers = marked.shown(batch[name])
        which = torch.arange(numbers.shape[1]) % 2 if several else torch.ones(numbers.shape[1], dtype=torch.long)
        assert torch.equal(numbers % 2, which.expand_as(numbers)), name
        objects = numbers[:, :1] // 2 if objects is None else objects
        assert torch.equal(numbers // 2, objects.expand_as(numbers)), name
    assert len(objects.unique()) > marked.OBJECTS / 2, "drawn by lot"


def test_the_models_schedules_are_as_long_as_the_training():
    steps = recipe.STEPS
    config = recipe.config(steps)
    assert config.steps == steps
    assert 0 < config.freeze_last_layer < config.teacher_temperature_warmup < steps
    assert config.vit == recipe.VIT


def test_the_later_stage_goes_on_where_the_first_has_warmed_up():
    config = recipe.config(recipe.LATER, later=True)
    assert (config.steps, config.freeze_last_layer) == (recipe.LATER, 0)
    assert set(config.teacher_temperature) == {recipe.config(recipe.STEPS).teacher_temperature[1]}


# --- measures -------------------------------------------------------------------------------------------------


def small_vit() -> ViT:
    config = ViTConfig(32, 8, d_model=8, n_heads=2, d_ff=8, n_layers=2, classes=0, resize="dino")
    return randomise(ViT(config), std=0.5)


@torch.no_grad()
def test_what_heads_find_is_that_of_the_last_block_written_out(few_images):
    vit = small_vit()
    found = recipe.segmented(vit, "test", n=7)
    images = unlabelled.images_of("test", 24)
    last = vit.blocks[-1]
    x = last.attention_residual.norm(vit.hidden_states(recipe.as_numbers(images.images[:7]))[-2])
    query, key, _ = (part.unflatten(2, (2, 4)).transpose(1, 2) for part in last.attention.qkv(x).chunk(3, dim=2))
    weights = (query @ key.mT / math.sqrt(4)).softmax(dim=-1)  # (7, H, T, T)
    expected = segment(weights, images.masks[:7], 8)
    assert torch.equal(found.masks, expected.masks)
    assert torch.equal(found.jaccard, expected.jaccard)
    assert found.jaccard.shape == (7, 2)
    assert len(recipe.segmented(vit, "validation", n=5).masks) == 5


def test_features_are_evaluated_again(few_images):
    vit = small_vit()
    found = recipe.evaluate_features(vit, "test")
    known, asked = unlabelled.images_of("train", 36), unlabelled.images_of("test", 24)
    features, queries = (extract(vit, recipe.as_numbers(images.images)) for images in (known, asked))
    for name, classes in {
        "knn": knn(features, known.labels, queries),
        "probe": linear_probe(features, known.labels, queries),
    }.items():
        assert found[name] == pytest.approx((classes == asked.labels).float().mean().item())
    head = int(recipe.segmented(vit, "validation").per_head.argmax())
    assert found["jaccard"] == recipe.segmented(vit, "test").per_head[head].item()
    assert found.keys() == {"knn", "probe", "jaccard"}


def test_the_head_is_chosen_on_validation_images(few_images, monkeypatch):
    """Were it chosen on those it is judged by, the best of several heads would flatter."""
    per_head = {"validation": torch.tensor([0.1, 0.9, 0.3]), "test": torch.tensor([0.75, 0.25, 0.5])}

    def segmented(vit, split, *_):
        return Segmentation(None, None, per_head[split], int(per_head[split].argmax()))

    monkeypatch.setattr(recipe, "segmented", segmented)
    assert recipe.evaluate_features(small_vit(), "test")["jaccard"] == 0.25
    assert recipe.evaluate_features(small_vit(), "validation")["jaccard"] == pytest.approx(0.9)


# --- runs -----------------------------------------------------------------------------------------------------


def test_the_later_stage_goes_on_from_the_first_with_strong_colours(tiny, tmp_path, monkeypatch):
    later_stage_goes_on(recipe, recipe.run, tmp_path, monkeypatch, "global", lambda model: model.student.parameters())


@pytest.fixture
def tiny(few_images, monkeypatch):
    monkeypatch.setattr(recipe, "VIT", small_vit().config)
    monkeypatch.setattr(recipe, "HEAD", {"d_head": 8, "bottleneck": 4, "out_dim": 6})
    monkeypatch.setattr(recipe, "STEPS", 6)
    for name, value in {"LATER": 5, "BATCH": 4, "SAVE_EVERY": 3, "EVALUATE_EVERY": 2}.items():
        monkeypatch.setattr(recipe, name, value)


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["first", "later"])
def test_a_run_that_was_stopped_ends_like_one_that_was_not(stage, tiny, tmp_path, monkeypatch):
    whole, again = ends_like_one_that_was_not(recipe.train, "dino", tmp_path, monkeypatch, stage)
    for name in ("test", "curve", "steps"):
        assert whole[name] == again[name], name
    assert whole["steps"] == 11
    assert whole["seconds"] >= 1, "this process has computed for longer"
    assert whole["command"] == "python -m coursekit.recipes.dino"


def test_the_teacher_follows_and_is_what_is_measured_meanwhile(tiny, tmp_path, monkeypatch):
    """Catches a teacher that stands still, the student in its place, a curve of the test images, another monitor."""
    seen = []

    def evaluate_features(vit, split):
        seen.append((vit, split))
        return {"knn": 1 / len(seen), "probe": len(seen), "jaccard": 0.0}

    monkeypatch.setattr(recipe, "evaluate_features", evaluate_features)
    model, training = recipe.run(tmp_path, Clock(tmp_path / "seconds.json"))
    assert model.step == training.step == model.config.steps == 6
    recipe.seed(0)
    begun = recipe.DINO(model.config)
    moved = [model.teacher.backbone.norm.weight, model.student.backbone.norm.weight, begun.teacher.backbone.norm.weight]
    assert len({tuple(x.tolist()) for x in moved}) == 3
    assert seen
    assert all(vit is model.teacher.backbone and split == "validation" for vit, split in seen)
    assert [record["knn"] for record in training.history] == [1 / (n + 1) for n in range(len(seen))]
    assert json.loads((tmp_path / "best.json").read_text())["knn"] == 1, "the best is the first"
    assert {"loss", "entropy", "entropy_of_mean", "kl", "centre"} <= training.history[-1].keys()


def test_what_is_written_is_the_teacher_and_measured_as_it_is_written(tiny, tmp_path, monkeypatch):
    """Catches the student in its place, weights of another step, and measures of weights that are not rounded yet."""
    measured, evaluate = [], recipe.evaluate_features

    def note(vit, split):
        measured.append(([p.detach().clone() for p in vit.parameters()], split))
        return evaluate(vit, split)

    monkeypatch.setattr(recipe, "evaluate_features", note)
    metrics = recipe.train(tmp_path / "state", tmp_path / "out")
    assert json.loads((tmp_path / "out/dino/metrics.json").read_text()) == metrics
    assert [split for _, split in measured].count("test") == 1
    parameters, split = measured[-1]
    assert split == "test"
    monkeypatch.setattr(recipe, "CHECKPOINTS", tmp_path / "out")
    loaded = recipe.load()
    assert not loaded.training
    assert all(torch.equal(p, q) for p, q in zip(parameters, loaded.parameters(), strict=True))
    assert evaluate(loaded, "test") == metrics["test"]
    assert sum(p.numel() for p in loaded.parameters()) == metrics["parameters"]

    before, state = (load_state(tmp_path / "state" / stage / "last.ckpt") for stage in ("first", "later"))
    assert metrics["curve"] == [*before["history"], *({**r, "step": 6 + r["step"]} for r in state["history"])]
    teacher, prefix = ViT(recipe.VIT), "teacher.backbone."
    teacher.load_state_dict({n.removeprefix(prefix): x for n, x in state["model"].items() if n.startswith(prefix)})
    described, weights = to_hugging_face(teacher)
    rounded = from_hugging_face(ViT, described, {name: x.half() for name, x in weights.items()})
    assert rounded.config == loaded.config
    assert all(torch.equal(p, q) for p, q in zip(rounded.parameters(), loaded.parameters(), strict=True))


@pytest.mark.slow
def test_the_shipped_model_is_as_good_as_its_metrics_say():
    """Measured again as a whole: other processors round otherwise, which a few of the 2,400 images may notice."""
    model, metrics = recipe.load(), load_metrics("dino")
    assert not model.training
    assert model.config == recipe.VIT
    assert sum(p.numel() for p in model.parameters()) == metrics["parameters"]
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert metrics["steps"] == recipe.STEPS + recipe.LATER
    assert metrics["test"].keys() == {"knn", "probe", "jaccard"}
    assert recipe.evaluate_features(model, "test") == pytest.approx(metrics["test"], abs=0.005)
