"""SiT's recipe: what its views show, how its features are measured, and that runs can be stopped."""

import copy
import json
from functools import partial

import pytest
import torch
from torch.nn import functional as F

from coursekit.data.shapes import shapes
from coursekit.evaluate.features import knn, linear_probe
from coursekit.models.sit import OBJECTIVES, SiT, SiTConfig
from coursekit.models.vit import ViTConfig
from coursekit.recipes import load_metrics, unlabelled
from coursekit.recipes import sit as recipe
from coursekit.recipes.runs import Clock
from coursekit.train import seed
from coursekit.train.checkpoint import load_state
from tests.conftest import randomise
from tests.recipes import marked
from tests.recipes.stopped import ends_like_one_that_was_not, later_stage_goes_on


def test_batches_are_corrupted_views_as_the_model_reads_them():
    images = unlabelled.pictures(24)
    batch = next(recipe.in_batches(images))
    B = recipe.BATCH
    assert {name: (x.shape, x.dtype) for name, x in batch.items()} == {
        "views": ((B, 2, 3, 32, 32), torch.float32),
        "clean": ((B, 2, 3, 32, 32), torch.float32),
        "masks": ((B, 2, 32, 32), torch.bool),
        "rotations": ((B, 2), torch.int64),
    }
    for name in ("views", "clean"):
        assert -2 <= batch[name].min() < -1.5, name
        assert 1.5 < batch[name].max() <= 2, name
    assert batch["rotations"].unique().tolist() == [0, 1, 2, 3]
    share = batch["masks"].float().mean(dim=(2, 3))
    assert 0 < share.min() < 0.35
    assert 0.5 <= share.max() < 0.75
    again, other = (next(recipe.in_batches(images, start)) for start in (0, 1))
    assert all(torch.equal(x, again[name]) for name, x in batch.items())
    assert not torch.equal(batch["views"], other["views"])


@pytest.fixture
def same_colours(monkeypatch):
    monkeypatch.setattr(recipe, "COLOURS", dict.fromkeys(recipe.COLOURS, 0.0))
    monkeypatch.setattr(recipe, "VIEWS", recipe.VIEWS | {"sigma": (0.0, 0.0)})


def test_both_views_show_one_object_each_in_its_own_picture(same_colours):
    """What they should be restored to does, and so does what of them is not corrupted."""
    batch = next(recipe.in_batches(marked.pictures()))
    numbers = marked.shown(batch["clean"])
    assert torch.equal(numbers % 2, torch.tensor([0, 1]).expand_as(numbers))
    assert torch.equal(numbers[:, 0] // 2, numbers[:, 1] // 2)
    assert len(numbers.unique()) > marked.OBJECTS, "drawn by lot"
    wrong = (batch["views"] - batch["clean"]).abs().amax(dim=2)  # (B, V, 32, 32)
    assert wrong[~batch["masks"]].max() < 1e-5
    assert wrong[batch["masks"]].mean() > 0.05


def test_of_one_picture_both_views_show_the_same(same_colours):
    numbers = marked.shown(recipe.scaled(recipe.corrupted(marked.pictures()[:, 1] / 255, torch.Generator())["clean"]))
    assert torch.equal(numbers, (2 * torch.arange(marked.OBJECTS) + 1)[:, None].expand(-1, 2))


# --- measures -------------------------------------------------------------------------------------------------


def small_config(objectives=OBJECTIVES) -> SiTConfig:
    vit = ViTConfig(32, 8, d_model=8, n_heads=2, d_ff=8, n_layers=1, classes=0, pooling="mean")
    return SiTConfig(vit, objectives, d_contrast=4)


@torch.no_grad()
@pytest.mark.parametrize("objectives", [OBJECTIVES, ("rotation",), ("reconstruction",)])
def test_features_are_evaluated_again_from_what_the_objectives_read(objectives, few_images):
    model = randomise(SiT(small_config(objectives)), std=0.5)
    found = recipe.evaluate_features(model, "test")
    known, asked = unlabelled.images_of("train", 36), unlabelled.images_of("test", 24)
    features = []
    for images in (known, asked):
        hidden = model.hidden(recipe.scaled(images.images / 255))
        parts = {"reconstruction": hidden[:, 2:].mean(dim=1), "rotation": hidden[:, 0], "contrastive": hidden[:, 1]}
        features.append(torch.cat([F.normalize(parts[name], dim=1) for name in objectives], dim=1))
    for name, method in {"knn": knn, "probe": linear_probe}.items():
        classes = method(features[0], known.labels, features[1])
        assert found[name] == pytest.approx((classes == asked.labels).float().mean().item())
    assert found.keys() == {"knn", "probe"}


# --- runs -----------------------------------------------------------------------------------------------------


def test_the_later_stage_goes_on_from_the_first_with_strong_colours(tiny, tmp_path, monkeypatch):
    later_stage_goes_on(
        recipe, partial(recipe.run, "sit"), tmp_path, monkeypatch, "views", lambda model: model.parameters()
    )


@pytest.fixture
def tiny(few_images, monkeypatch):
    monkeypatch.setattr(recipe, "CONFIG", SiTConfig(small_config().vit))
    monkeypatch.setattr(recipe, "STEPS", {"sit": 6, "sit-objectives": 4})
    for name, value in {"LATER": 5, "BATCH": 4, "SAVE_EVERY": 3, "EVALUATE_EVERY": 2}.items():
        monkeypatch.setattr(recipe, name, value)


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["first", "later"])
def test_a_run_that_was_stopped_ends_like_one_that_was_not(stage, tiny, tmp_path, monkeypatch):
    whole, again = ends_like_one_that_was_not(partial(recipe.train, "sit"), "sit", tmp_path, monkeypatch, stage)
    for name in ("test", "curve", "steps"):
        assert whole[name] == again[name], name
    assert whole["steps"] == 11
    assert whole["seconds"] >= 1, "this process has computed for longer"
    assert whole["command"] == "python -m coursekit.recipes.sit sit"


def test_validation_images_are_what_is_measured_meanwhile(tiny, tmp_path, monkeypatch):
    seen, starts, in_batches = [], set(), recipe.in_batches

    def evaluate_features(model, split):
        seen.append((model, split))
        return {"probe": 1 / len(seen), "knn": len(seen)}

    def note(images, start=0, later=False):
        assert torch.equal(images, unlabelled.pictures(24))
        starts.add(start)
        return in_batches(images, start, later)

    monkeypatch.setattr(recipe, "evaluate_features", evaluate_features)
    monkeypatch.setattr(recipe, "in_batches", note)
    model, training = recipe.run("sit", tmp_path, Clock(tmp_path / "seconds.json"))
    assert training.step == 6
    assert len(starts) == 2, "what it is diagnosed with is not what it learns from"
    assert seen
    assert all(measured is model and split == "validation" for measured, split in seen)
    assert json.loads((tmp_path / "best.json").read_text())["probe"] == 1, "the best is the first"
    assert {"loss", "knn", "probe", *OBJECTIVES} <= training.history[-1].keys()


def test_what_is_written_is_the_model_and_measured_as_it_is_written(tiny, tmp_path, monkeypatch):
    """Catches weights of another step, and measures of weights that are not rounded yet."""
    measured, evaluate = [], recipe.evaluate_features

    def note(model, split):
        measured.append(({name: x.clone() for name, x in model.state_dict().items()}, split))
        return evaluate(model, split)

    monkeypatch.setattr(recipe, "evaluate_features", note)
    metrics = recipe.train("sit", tmp_path / "state", tmp_path / "out")
    assert json.loads((tmp_path / "out/sit/metrics.json").read_text()) == metrics
    assert [split for _, split in measured].count("test") == 1
    state, split = measured[-1]
    assert split == "test"
    monkeypatch.setattr(recipe, "CHECKPOINTS", tmp_path / "out")
    loaded = recipe.load()
    assert not loaded.training
    before, last = (load_state(tmp_path / "state" / stage / "last.ckpt") for stage in ("first", "later"))
    assert metrics["curve"] == [*before["history"], *({**r, "step": 6 + r["step"]} for r in last["history"])]
    for name, x in loaded.state_dict().items():
        assert x.dtype == torch.float32
        assert torch.equal(x, state[name]), name
        assert torch.equal(x, last["model"][name].half().float()), name
    assert evaluate(loaded, "test") == metrics["test"]
    assert sum(p.numel() for p in loaded.parameters()) == metrics["parameters"]


def test_each_objective_is_learned_alone_and_none_is_trained_again(tiny, tmp_path, monkeypatch):
    run, learned = recipe.run, []

    def note(variant, folder, clock, objectives):
        model, training = run(variant, folder, clock, objectives)
        learned.append(tuple(model.heads))
        return model, training

    monkeypatch.setattr(recipe, "run", note)
    first = recipe.train("sit-objectives", tmp_path / "state", tmp_path / "out")
    assert list(first["runs"]) == ["all", *OBJECTIVES]
    assert learned == [OBJECTIVES, *((name,) for name in OBJECTIVES)]
    for (name, found), objectives in zip(first["runs"].items(), learned):
        assert found.keys() == {"knn", "probe", "curve"}
        assert found["curve"][-1]["step"] == first["steps"] == 4
        assert {key for key in found["curve"][-1] if key in OBJECTIVES} == set(objectives), name
    assert [path.name for path in (tmp_path / "out").rglob("*.*")] == ["metrics.json"]
    assert json.loads((tmp_path / "out/sit-objectives/metrics.json").read_text()) == first
    monkeypatch.setattr(recipe.Training, "update", lambda _: pytest.fail("it was trained before"))
    assert recipe.train("sit-objectives", tmp_path / "state", tmp_path / "again")["runs"] == first["runs"]


# --- few labels -----------------------------------------------------------------------------------------------


@pytest.fixture
def few(tiny, tmp_path, monkeypatch):
    """A tiny SiT that stands in for the shipped one, and sets of 12 images, two of them."""
    shipped = randomise(SiT(small_config()), std=0.5)
    monkeypatch.setattr(recipe, "load", lambda: copy.deepcopy(shipped).eval())
    monkeypatch.setattr(recipe, "CONFIG", small_config())
    for name, value in {"FEW": 12, "DRAWS": 2, "FEW_STEPS": (3, 5), "FEW_TESTED": 12, "WIDTH": 2}.items():
        monkeypatch.setattr(recipe, name, value)
    return shipped


@pytest.mark.parametrize("augment", [False, True])
def test_batches_of_few_labels_are_of_one_set(augment, few):
    batch, all_images = next(recipe.few_labels(12, augment)), recipe.as_numbers(shapes(24).images)
    assert batch["images"].shape == (64, 3, 32, 32)
    whole = (batch["images"][:, None] == all_images[12:]).flatten(2).all(dim=2)  # which of the set it is
    assert whole.any(dim=1).all() == (not augment)
    assert (batch["labels"] < 12).all()
    if not augment:
        assert torch.equal(batch["labels"], shapes(24).labels[12:][whole.int().argmax(dim=1)])
        assert whole.any(dim=0).sum() == 12, "all of the set"


def test_fine_tuning_begins_with_the_shipped_features_and_changes_all_weights(few):
    model, images = recipe.Tuned(recipe.load()), recipe.as_numbers(shapes(4).images)
    with torch.no_grad():
        torch.testing.assert_close(model(images), model.layer(few.features(images)))
    before = {name: x.clone() for name, x in model.named_parameters()}
    recipe.learn_few(model, 1e-2, steps=3)
    unread = [name for name, x in model.named_parameters() if torch.equal(x, before[name])]
    assert all(name.startswith("model.heads") or name == "model.log_variances" for name in unread)


def test_few_labels_are_measured_once_and_kept(few, tmp_path, monkeypatch):
    metrics = recipe.train("sit-few", tmp_path / "state", tmp_path / "out")
    assert json.loads((tmp_path / "out/sit-few/metrics.json").read_text()) == metrics
    kinds = ("CNN", "SiT, fine-tuned", "SiT from random weights")
    names = [f"{kind}, {steps} updates" for steps in (3, 5) for kind in kinds]
    assert list(metrics["runs"]) == [*names, *(f"{name}, unaugmented" for name in names[:3])]
    assert {len(found) for found in metrics["runs"].values()} == {2}
    test = shapes(12, "test")
    for augment, how in ((True, ""), (False, ", unaugmented")):
        seed(1)
        model = recipe.learn_few(recipe.Tuned(recipe.load()), 2e-3, 12, augment, 3)
        right = recipe.accuracy(model, recipe.as_numbers(test.images), test.labels)
        assert metrics["runs"][f"SiT, fine-tuned, 3 updates{how}"][1]["test"] == right
    monkeypatch.setattr(recipe.Training, "update", lambda _: pytest.fail("it was trained before"))
    assert recipe.train("sit-few", tmp_path / "state", tmp_path / "again")["runs"] == metrics["runs"]


@pytest.mark.slow
def test_the_shipped_model_is_as_good_as_its_metrics_say():
    """Measured again as a whole: other processors round otherwise, which a few of the 2,400 images may notice."""
    model, metrics = recipe.load(), load_metrics("sit")
    assert not model.training
    assert model.config == recipe.CONFIG
    assert sum(p.numel() for p in model.parameters()) == metrics["parameters"]
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert metrics["steps"] == recipe.STEPS["sit"] + recipe.LATER
    assert metrics["test"].keys() == {"knn", "probe"}
    assert recipe.evaluate_features(model, "test") == pytest.approx(metrics["test"], abs=0.005)
