"""The recipe of DINO's rival with labels: its views are DINO's, its labels the objects', and it can be stopped."""

import json
from dataclasses import replace

import pytest
import torch

from coursekit.data.shapes import CLASSES
from coursekit.models.vit import ViT, ViTConfig
from coursekit.recipes import dino, load_metrics, unlabelled
from coursekit.recipes import labelled as recipe
from coursekit.recipes.runs import Clock
from tests.conftest import randomise
from tests.recipes.stopped import ends_like_one_that_was_not


@pytest.mark.parametrize("later", [False, True])
def test_views_are_those_that_dino_sees_each_with_its_label(later, few_images):
    """Catches other pictures, other crops or colours, no local views, and labels in another order than the views."""
    ours, theirs = recipe.in_batches(later=later), dino.in_batches(unlabelled.pictures(24), later=later)
    next(ours), next(theirs)
    generator = ours.generator.get_state()
    batch, expected = next(ours), next(theirs)
    for name in ("global", "local"):
        assert torch.equal(batch[name], expected[name].flatten(0, 1))
    rows = torch.randint(24, (dino.BATCH,), generator=torch.Generator().set_state(generator))
    labels = unlabelled.images_of("train", 24).labels[rows]
    assert torch.equal(batch["labels"].view(-1, 2), labels[:, None].expand(-1, 2))


def test_the_loss_is_the_cross_entropy_of_each_view(few_images):
    """Catches a kind of views left out, and means instead of sums."""
    vit, batch = randomise(ViT(recipe.CONFIG, CLASSES)).eval(), next(recipe.in_batches())
    loss, count = recipe.loss_of_views(vit, batch)
    logits = torch.cat([vit(batch["global"]), vit(batch["local"])])
    expected = -logits.log_softmax(-1)[range(4 * dino.BATCH), batch["labels"].repeat(2)].sum()
    assert count == 4 * dino.BATCH
    torch.testing.assert_close(loss, expected)


def test_the_network_is_dinos_with_a_layer_for_the_classes():
    assert replace(recipe.CONFIG, classes=0) == dino.VIT
    assert recipe.CONFIG.classes == len(CLASSES)


@pytest.fixture
def tiny(few_images, monkeypatch):
    config = ViTConfig(32, 8, d_model=8, n_heads=2, d_ff=8, n_layers=2, classes=12, resize="dino")
    monkeypatch.setattr(recipe, "CONFIG", config)
    for name, value in {"STEPS": 6, "LATER": 5, "BATCH": 4, "SAVE_EVERY": 3, "EVALUATE_EVERY": 2}.items():
        monkeypatch.setattr(dino, name, value)


def test_the_later_stage_goes_on_with_what_has_begun(tiny, tmp_path, monkeypatch):
    """Catches a later stage that begins anew, and one with the colours of the first."""
    shown, in_batches = [], recipe.in_batches
    monkeypatch.setattr(recipe, "in_batches", lambda *which: shown.append(which) or in_batches(*which))
    clock = Clock(tmp_path / "seconds.json")
    begun, average, _ = recipe.run(tmp_path / "first", clock)
    pairs = zip(begun.parameters(), average.parameters(), strict=True)
    assert not any(torch.equal(p, q) for p, q in pairs), "what is kept is an average of the weights"
    before = [p.detach().clone() for p in begun.parameters()]
    monkeypatch.setattr(recipe, "RATES", (1.0, 0.0))
    model, average, later = recipe.run(tmp_path / "later", clock, begun=begun)
    assert later.step == dino.LATER
    for kept in (model, average):
        assert all(torch.equal(p, q) for p, q in zip(before, kept.parameters(), strict=True)), "at rate 0 nothing moves"
    assert shown == [(0, False), (1, True)]


@pytest.mark.parametrize("stage", ["first", "later"])
def test_a_run_that_was_stopped_ends_like_one_that_was_not(stage, tiny, tmp_path, monkeypatch):
    whole, again = ends_like_one_that_was_not(recipe.train, "labelled", tmp_path, monkeypatch, stage)
    for name in ("test", "curve", "steps"):
        assert whole[name] == again[name], name
    assert whole["steps"] == 11
    assert whole["command"] == "python -m coursekit.recipes.labelled"


def test_what_is_written_is_measured_as_it_is_written_on_test_images(tiny, tmp_path, monkeypatch):
    metrics = recipe.train(tmp_path / "state", tmp_path / "out")
    monkeypatch.setattr(recipe, "CHECKPOINTS", tmp_path / "out")
    loaded = recipe.load()
    assert not loaded.training
    assert metrics["test"] == {"accuracy": recipe.right(loaded, "test")}
    assert json.loads((tmp_path / "out/labelled/metrics.json").read_text()) == metrics
    vit = randomise(ViT(recipe.CONFIG, CLASSES), std=0.5).eval()
    expected = (vit(unlabelled.asked("test")).argmax(-1) == unlabelled.images_of("test", 24).labels).float().mean()
    assert recipe.right(vit, "test") == pytest.approx(expected.item())


def test_the_shipped_network_is_as_good_as_its_metrics_say():
    model, metrics = recipe.load(), load_metrics("labelled")
    assert model.config == recipe.CONFIG
    assert sum(p.numel() for p in model.parameters()) == metrics["parameters"]
    assert metrics["steps"] == dino.STEPS + dino.LATER
    assert recipe.right(model, "test") == pytest.approx(metrics["test"]["accuracy"], abs=0.005)


def test_several_processes_are_refused_before_anything_is_trained(monkeypatch):
    """Each of them would measure and write at the end."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(SystemExit, match="is trained by one process, so start it without torchrun"):
        recipe.main([])
