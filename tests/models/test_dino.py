"""DINO beside its formulas written out again in NumPy, its steps one after another, and its resuming."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from coursekit.data.batches import Fresh
from coursekit.data.crops import multi_crop
from coursekit.models.dino import DINO, MOST_BATCHES, DINOConfig, ProjectionHead, dino_loss, pair_losses, sharpen
from coursekit.models.vit import ViT, ViTConfig
from coursekit.nn.blocks import DropPath
from coursekit.train import Training, adamw, seed, warmup_cosine
from coursekit.train.checkpoint import load_state
from tests.conftest import randomise
from tests.train.states import same

D, K, B = 12, 11, 3
VIT = {"image_size": 12, "patch_size": 3, "d_model": D, "n_heads": 3, "d_ff": 20, "n_layers": 2, "classes": 0}
SMALL = {"d_head": 10, "bottleneck": 6, "out_dim": K, "steps": 20}
SMALL |= {"teacher_temperature_warmup": 4, "freeze_last_layer": 0}


def config(vit=None, **changes) -> DINOConfig:
    return DINOConfig(ViTConfig(**VIT | (vit or {})), **SMALL | changes)


def make(vit=None, dtype=torch.float64, **changes) -> DINO:
    """With student, teacher and centre at random, and apart from each other."""
    model = DINO(config(vit, **changes))
    randomise(model.student, 1)
    randomise(model.teacher, 2)
    for network in (model.student, model.teacher):
        nn.init.ones_(network.head.last.parametrizations.weight.original0)
    model.centre.copy_(torch.randn(K, generator=torch.Generator().manual_seed(3)) * 0.1)
    return model.to(dtype)


def views(n_local: int = 2, seed: int = 0, side: int = 6, dtype=torch.float64) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    batch = {"global": torch.randn(B, 2, 3, 12, 12, generator=generator, dtype=dtype)}
    if n_local:
        batch["local"] = torch.randn(B, n_local, 3, side, side, generator=generator, dtype=dtype)
    return batch


# --- the formulas, written out again --------------------------------------------------------------------------


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max())
    return e / e.sum()


def loss_by_hand(student, teacher, centre, tau_s: float, tau_t: float) -> np.ndarray:
    """One image after another and one pair after another: (B,)."""
    found = []
    for images, targets in zip(student, teacher):
        terms = []
        for i, t in enumerate(targets):
            for j, s in enumerate(images):
                if i != j:
                    terms.append(-(softmax((t - centre) / tau_t) * np.log(softmax(s / tau_s))).sum())
        found.append(sum(terms) / len(terms))
    return np.array(found)


def head_by_hand(head: ProjectionHead, x: np.ndarray) -> np.ndarray:
    w = {name: p.detach().numpy() for name, p in head.named_parameters()}
    for i in (0, 2, 4):
        x = x @ w[f"mlp.{i}.weight"].T + w[f"mlp.{i}.bias"]
        if i < 4:
            x = x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
    z = x / np.sqrt((x**2).sum(axis=-1, keepdims=True))
    rows = w["last.parametrizations.weight.original1"]
    return np.stack([z @ (row / np.sqrt((row**2).sum())) for row in rows], axis=-1)


def test_the_head_is_the_published_one():
    """Catches another activation or count of layers, a length missing on either side, and a bias in the last layer."""
    head = randomise(ProjectionHead(D, 10, 6, K)).double()
    nn.init.ones_(head.last.parametrizations.weight.original0)
    x = torch.randn(4, 3, D, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = head(x)
    np.testing.assert_allclose(found.detach(), head_by_hand(head, x.numpy()), atol=1e-12)
    assert found.abs().max() <= 1, "each is a cosine"
    with torch.no_grad():
        for p in (head.last.parametrizations.weight.original1, head.mlp[4].weight, head.mlp[4].bias):
            p *= 5
    torch.testing.assert_close(head(x), found, atol=1e-12, rtol=1e-12)


@settings(max_examples=30)
@given(st.integers(1, 4), st.integers(0, 4), st.integers(1, 9), st.integers(0, 99))
def test_the_loss_is_that_of_all_pairs_but_the_same_view(n, n_local, K, seed):
    generator = torch.Generator().manual_seed(seed)
    student = torch.randn(n, 2 + n_local, K, generator=generator, dtype=torch.float64)
    teacher = torch.randn(n, 2, K, generator=generator, dtype=torch.float64) / 3
    centre = torch.randn(K, generator=generator, dtype=torch.float64) / 3
    found = pair_losses(student, sharpen(teacher, centre, 0.04), 0.1)
    assert found.shape == (n, 2 * (1 + n_local))
    expected = loss_by_hand(student.numpy(), teacher.numpy(), centre.numpy(), 0.1, 0.04)
    np.testing.assert_allclose(found.mean(dim=1), expected, rtol=1e-9)


def test_a_view_is_not_compared_with_itself():
    """The student agrees with the teacher on each view, and the global views contradict each other: no term is small.

    Whoever counts the pairs of a view with itself gets two that are nearly 0.
    """
    logits = torch.eye(4)[None, :2] * 9
    found = pair_losses(logits, sharpen(logits, torch.zeros(4), 0.1), 0.1)
    assert found.shape == (1, 2)
    assert (found > 80).all()


def test_the_objective_of_a_batch_is_the_formula_on_the_networks_logits():
    model, batch = make(), views()
    student, teacher = model(batch)
    assert (student.shape, teacher.shape) == ((B, 4, K), (B, 2, K))
    for network, logits, crops in (
        (model.student, student, [*batch["global"].unbind(1), *batch["local"].unbind(1)]),
        (model.teacher, teacher, batch["global"].unbind(1)),
    ):
        for v, crop in enumerate(crops):  # one forward per crop
            vectors = network.backbone(crop).detach().numpy()
            np.testing.assert_allclose(logits[:, v].detach(), head_by_hand(network.head, vectors), atol=1e-10)
    total, count = dino_loss(model, batch)
    expected = loss_by_hand(student.detach().numpy(), teacher.numpy(), model.centre.numpy(), 0.1, 0.04)
    assert total.item() == pytest.approx(expected.sum(), rel=1e-9)
    assert count == B


@pytest.mark.parametrize(("n_local", "passes"), [(0, 1), (3, 2)])
def test_one_forward_pass_for_each_size(n_local, passes):
    model, seen = make(), {"student": [], "teacher": []}
    for name, found in seen.items():
        getattr(model, name).backbone.register_forward_pre_hook(lambda _, x, found=found: found.append(x[0].shape))
    dino_loss(model, views(n_local))
    assert seen["student"] == [(2 * B, 3, 12, 12), (n_local * B, 3, 6, 6)][:passes]
    assert seen["teacher"] == [(2 * B, 3, 12, 12)], "no local view is shown to the teacher"


# --- schedules ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("step", "temperature", "momentum"), [
    (0, 0.04, 0.9), (1, 0.0475, None), (2, 0.055, None), (4, 0.07, None), (5, 0.07, 1 - 0.1 * (2 + 2**0.5) / 4),
    (10, 0.07, 0.95), (20, 0.07, 1.0), (25, 0.07, 1.0),
])  # fmt: skip
def test_schedules_at_their_ends_and_between(step, temperature, momentum):
    model = make(momentum=0.9)
    model.step = step
    assert model.temperature == pytest.approx(temperature, abs=1e-12)
    if momentum is not None:
        assert model.momentum == pytest.approx(momentum, abs=1e-12)


def test_without_warmup_the_teacher_is_as_warm_as_it_will_be():
    assert make(teacher_temperature_warmup=0).temperature == pytest.approx(0.04)
    model = make(teacher_temperature_warmup=0)
    model.step = 1
    assert model.temperature == pytest.approx(0.07)


def test_published_numbers():
    c = DINOConfig.s16()
    assert (c.out_dim, c.d_head, c.bottleneck, c.student_temperature) == (65_536, 2048, 256, 0.1)
    assert (c.teacher_temperature, c.momentum, c.centre_momentum) == ((0.04, 0.07), 0.996, 0.9)
    epoch = 1_281_167 // 1024
    assert (c.freeze_last_layer, c.teacher_temperature_warmup, c.steps) == (epoch, 30 * epoch, 100 * epoch)
    with torch.device("meta"):
        assert sum(p.numel() for p in ViT(c.vit).parameters()) == 21_665_664
    assert "21,665,664" in DINOConfig.s16.__doc__
    decay = warmup_cosine(0, floor=10)
    assert [0.04 * decay(step, 100) for step in (0, 50, 100)] == pytest.approx([0.04, 0.22, 0.4])


# --- a step ---------------------------------------------------------------------------------------------------


def test_the_teacher_gets_no_gradient_and_the_student_does():
    model = make()
    total, _ = dino_loss(model, views())
    total.backward()
    assert not any(p.requires_grad or p.grad is not None for p in model.teacher.parameters())
    lengths = "parametrizations.weight.original0"
    for name, p in model.student.named_parameters():
        if name.endswith(lengths):
            assert p.grad is None, "the last layer's lengths stay 1"
        elif "qkv.bias" not in name:  # of keys, which softmax takes no notice of
            assert p.grad.abs().max() > 1e-9, name
    assert not model(views())[1].requires_grad


def test_nothing_of_the_teacher_is_ever_dropped():
    model = make({"drop_path": 0.5, "dropout": 0.3})
    assert any(m.p for m in model.student.modules() if isinstance(m, DropPath))
    for mode in (True, False, True):
        model.train(mode)
        assert model.student.training is mode
        assert not any(m.training for m in model.teacher.modules())
    first, second = model(views()), model(views())
    assert not torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1])
    assert not any(m.training for m in DINO(config()).teacher.modules()), "from the beginning"


def test_student_and_teacher_begin_alike():
    torch.manual_seed(0)
    model = DINO(config())
    pairs = list(zip(model.student.parameters(), model.teacher.parameters(), strict=True))
    assert all(torch.equal(a, b) and a.data_ptr() != b.data_ptr() for a, b in pairs)
    assert (model.centre == 0).all()
    head = ProjectionHead(300, 300, 300, 4)
    for layer in head.mlp[::2]:
        assert layer.weight.std().item() == pytest.approx(0.02, rel=0.02)
        assert (layer.bias == 0).all()
    torch.testing.assert_close(head.last.weight.norm(dim=1), torch.ones(4))


def test_the_centre_follows_the_raw_logits_after_the_loss():
    """Catches a centre that is updated before, one of centred or sharpened logits, and one of the student's."""
    model, batch = make(), views()
    before = model.centre.clone()
    total, _ = dino_loss(model, batch)
    student, teacher = model(batch)
    expected = loss_by_hand(student.detach().numpy(), teacher.numpy(), before.numpy(), 0.1, 0.04).sum()
    assert total.item() == pytest.approx(expected, rel=1e-9)
    assert torch.equal(model.centre, before)
    model.update_teacher()
    mean = np.mean([teacher[b, g].numpy() for b in range(B) for g in range(2)], axis=0)
    np.testing.assert_allclose(model.centre, 0.9 * before.numpy() + 0.1 * mean, atol=1e-12)
    assert model.step == 1


def test_the_teacher_follows_the_student():
    model = make(momentum=0.75)
    model.step = 5
    m = model.momentum
    before = [p.clone() for p in model.teacher.parameters()]
    student = [p.detach().clone() for p in model.student.parameters()]
    dino_loss(model, views())
    model.update_teacher()
    for old, new, other in zip(before, model.teacher.parameters(), student):
        torch.testing.assert_close(new, m * old + (1 - m) * other, atol=1e-12, rtol=1e-12)
    assert all(torch.equal(p, old) for p, old in zip(model.student.parameters(), student))
    assert (model.teacher.head.last.parametrizations.weight.original0 == 1).all()


def test_several_batches_of_an_update_have_one_centre():
    """As one large batch would: ``accumulate`` changes nothing."""
    apart, together = make(), make()
    one, two = views(seed=0), views(seed=1)
    both = {name: torch.cat([one[name], two[name]]) for name in one}
    totals = [dino_loss(apart, batch)[0].item() for batch in (one, two)]
    assert sum(totals) == pytest.approx(dino_loss(together, both)[0].item(), rel=1e-9)
    apart.update_teacher()
    together.update_teacher()
    torch.testing.assert_close(apart.centre, together.centre, atol=1e-12, rtol=1e-12)


def test_only_training_moves_the_centre():
    model = make().eval()
    dino_loss(model, views())
    model.diagnose(views())
    with pytest.raises(RuntimeError, match="no teacher logits: call it after dino_loss in training mode"):
        model.update_teacher()
    model.train()
    dino_loss(model, views())
    model.update_teacher()
    with pytest.raises(RuntimeError, match="no teacher logits"):
        model.update_teacher()


def test_a_teacher_that_nobody_updates_is_said():
    model, data = make(), Fresh(lambda generator: views())
    training = Training(model, dino_loss, data, torch.optim.SGD(model.student.parameters(), 0.1), steps=100)
    with pytest.raises(RuntimeError, match="no update of the teacher in 64 batches: give Training after_update="):
        training.fit()
    assert training.step == MOST_BATCHES


# --- in Training ----------------------------------------------------------------------------------------------


def train(steps: int, folder=None, upto: int | None = None, **changes) -> Training:
    """A small training with all that has a state; ``upto``: left there, as if it were killed."""
    seed(0)
    model = DINO(config({"drop_path": 0.3}, steps=steps, **changes))
    images = torch.rand(16, 3, 12, 12, generator=torch.Generator().manual_seed(1))

    def draw(generator):
        rows = torch.randint(len(images), (4,), generator=generator)
        crops = multi_crop(images[rows], generator, 2, (12, 6), ((0.5, 1.0), (0.2, 0.5)), (0.1, 1.0))
        return {name: 4 * x - 2 for name, x in crops.items() if "boxes" not in name}

    options = {"schedule": warmup_cosine(2), "decay_schedule": warmup_cosine(0, floor=10), "clip": 3.0}
    options |= {
        "clip_each": True,
        "after_update": DINO.update_teacher,
        "accumulate": 2,
        "precision": "float32",
        "log_every": 1,
    }
    options |= {"evaluate": lambda model: model.diagnose(views(dtype=torch.float32)), "evaluate_every": 3}
    optimizer = adamw(model, 1e-3, 0.04)
    training = Training(model, dino_loss, Fresh(draw, 2), optimizer, steps, folder=folder, save_every=2, monitor="kl",
                        **options)  # fmt: skip
    for record in training:
        if record["step"] == upto:
            break
    return training


def test_a_run_that_is_killed_goes_on_to_the_same_bits(tmp_path):
    """Catches a centre, a teacher, a step or a weight decay that is not kept; two steps are done again."""
    whole = train(6, tmp_path / "whole")
    train(6, tmp_path / "killed", upto=3)
    train(6, tmp_path / "killed", upto=5)
    again = train(6, tmp_path / "killed")
    assert again.step == whole.step == whole.model.step == 6
    expected, found = (load_state(tmp_path / name / "last.ckpt") for name in ("whole", "killed"))
    assert not [name for name in expected if not same(expected[name], found[name])]
    assert whole.optimizer.param_groups[0]["weight_decay"] == pytest.approx(
        0.04 + 0.36 * 0.5 * (1 - math.cos(5 / 6 * math.pi))
    )
    assert {"entropy", "entropy_of_mean", "kl", "centre", "loss"} <= whole.history[-1].keys()
    assert (whole.model.centre != 0).all()


def test_which_weights_decay():
    """Matrices, class token and positions; no bias, no norm; nothing of the teacher, nor the last layer's lengths."""
    model = make()
    names = {id(p): name for name, p in model.named_parameters()}
    decayed, spared = ({names[id(p)] for p in g["params"]} for g in adamw(model, 1e-4, 0.04).param_groups)
    assert {"student.backbone.class_token", "student.backbone.positions.encoding"} <= decayed
    assert "student.head.last.parametrizations.weight.original1" in decayed
    assert all(name.endswith(".bias") or "norm" in name for name in spared)
    assert not [n for n in decayed if n.endswith(".bias") or "norm" in n]
    everything = {n for n in names.values() if n.startswith("student.")}
    assert everything - decayed - spared == {"student.head.last.parametrizations.weight.original0"}
    assert not (decayed | spared) - everything


def test_the_last_layer_does_not_learn_at_first():
    """Nor does it decay."""
    frozen, free = (train(3, freeze_last_layer=frozen, upto=2).model for frozen in (2, 0))
    begun = train(3, freeze_last_layer=2).model
    seed(0)
    first = DINO(config({"drop_path": 0.3})).student.head.last.parametrizations.weight.original1
    rows = [m.student.head.last.parametrizations.weight.original1 for m in (frozen, free, begun)]
    assert torch.equal(rows[0], first)
    assert not torch.equal(rows[1], first)
    assert not torch.equal(rows[2], first)
    assert not torch.equal(frozen.student.head.mlp[0].weight, begun.student.head.mlp[0].weight)


def test_head_and_loss_are_in_float32_under_autocast():
    model, batch = make(dtype=torch.float32), views(dtype=torch.float32)
    seen = []
    model.student.head.mlp[0].register_forward_hook(lambda _, x, y: seen.append((x[0].dtype, y.dtype)))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, _ = dino_loss(model, batch)
        student, teacher = (x.double().detach().numpy() for x in model(batch))
    assert seen == [(torch.float32, torch.float32)] * 2
    assert found.dtype == torch.float32
    expected = loss_by_hand(student, teacher, model.centre.double().numpy(), 0.1, 0.04).sum()
    assert found.item() == pytest.approx(expected, rel=1e-5)
    assert model(batch)[0].detach().numpy() != pytest.approx(student, abs=1e-6), "the backbone is in bfloat16"


def test_the_student_learns_what_a_teacher_says_that_stands_still():
    """Of two kinds of image, from other views; whether one that moves says anything, a lecture has to measure."""
    kinds = torch.randn(2, 3, 1, 1, generator=torch.Generator().manual_seed(0))

    def draw(generator):
        def look(n, side):
            noise = torch.randn(4, 2, n, 3, side, side, generator=generator)
            return (kinds[:, None] + 0.2 * noise).flatten(0, 1)

        return {"global": look(2, 12), "local": look(2, 6)}

    still = {"momentum": 1.0, "centre_momentum": 1.0, "teacher_temperature": (0.04, 0.04)}
    model, test = make(dtype=torch.float32, steps=40, **still), draw(torch.Generator())
    before = model.diagnose(test)
    options = {"precision": "float32", "after_update": DINO.update_teacher}
    Training(model, dino_loss, Fresh(draw), adamw(model, 1e-2), 40, **options).fit()
    after = model.diagnose(test)
    assert after["kl"] < 0.2 * before["kl"]
    assert after["entropy"] == before["entropy"]
    assert after["centre"] == before["centre"], "it is not moved with a momentum of 1"


# --- diagnosis ------------------------------------------------------------------------------------------------


def test_the_diagnosis_is_the_slow_one():
    model, batch = make({"drop_path": 0.5}), views()
    found = model.diagnose(batch)
    assert model.training
    assert model.diagnose(batch) == found, "nothing is dropped, nothing moves"
    student, teacher = (x.detach().numpy() for x in model.eval()(batch))
    entropies, kls, targets = [], [], []
    for b in range(B):
        for i in range(2):
            p = softmax((teacher[b, i] - model.centre.numpy()) / 0.04)
            targets.append(p)
            entropies.append(-(p * np.log(p)).sum())
            kls += [(p * np.log(p / softmax(student[b, j] / 0.1))).sum() for j in range(4) if j != i]
    mean = np.mean(targets, axis=0)
    expected = {"entropy": np.mean(entropies), "entropy_of_mean": -(mean * np.log(mean)).sum(), "kl": np.mean(kls)}
    expected["centre"] = math.sqrt(sum(x**2 for x in model.centre.tolist()))
    assert found == pytest.approx(expected, rel=1e-9)


def test_both_collapses_are_told_apart():
    """Logits that are all alike are uniform behind their own centre; without one, a high output wins everywhere."""
    model, rows = make(), torch.eye(6)[:1] * torch.tensor([1.0] + [-1.0] * (K - 1))[:, None]
    with torch.no_grad():
        for network in (model.student, model.teacher):
            network.head.mlp[4].weight.zero_()
            network.head.last.parametrizations.weight.original1.copy_(rows)
            network.head.mlp[4].bias.copy_(torch.eye(6)[0])
    model.centre.copy_(rows[:, 0])
    uniform = model.diagnose(views())
    assert uniform["entropy"] == pytest.approx(math.log(K))
    assert uniform["entropy_of_mean"] == pytest.approx(math.log(K))
    model.centre.zero_()
    won = model.diagnose(views())
    assert won["entropy"] == pytest.approx(0, abs=1e-8)
    assert won["entropy_of_mean"] == pytest.approx(0, abs=1e-8)


def test_it_runs_where_there_is_an_accelerator(where):
    model, batch = make(dtype=torch.float32), views(dtype=torch.float32)
    expected, _ = dino_loss(model, batch)
    numbers = model.diagnose(batch)
    model = make(dtype=torch.float32).to(where)
    found, count = dino_loss(model, {name: x.to(where) for name, x in batch.items()})
    assert (found.device.type, count.device.type) == (where.type, where.type)
    assert found.item() == pytest.approx(expected.item(), rel=1e-3)
    model.update_teacher()
    assert model.centre.device.type == where.type
    assert make(dtype=torch.float32).to(where).diagnose(batch) == pytest.approx(numbers, rel=1e-3)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"vit": ViTConfig.s16()}, "vit.classes=1000: must be 0, the projection head takes its place"),
        ({"out_dim": 0}, "out_dim=0: must be at least 1"),
        ({"steps": 0}, "steps=0: must be at least 1"),
        ({"teacher_temperature_warmup": -1}, "teacher_temperature_warmup=-1: must be at least 0"),
        ({"freeze_last_layer": -1}, "freeze_last_layer=-1: must be at least 0"),
        ({"student_temperature": 0}, "student_temperature=0: must be above 0"),
        ({"teacher_temperature": (0.04, 0)}, r"teacher_temperature=\(0.04, 0\): must be two numbers above 0"),
        ({"teacher_temperature": 0.04}, "teacher_temperature=0.04: must be two numbers above 0"),
        ({"momentum": 1.5}, r"momentum=1\.5: must lie in 0\.\.1"),
        ({"centre_momentum": -1}, r"centre_momentum=-1: must lie in 0\.\.1"),
    ],
)
def test_nonsense_is_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        DINOConfig.s16(**changes)


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        ({"local": torch.zeros(2, 4, 3, 8, 8)}, "a batch of local, without global: must hold at least two global"),
        ({}, "a batch of nothing, without global: must hold"),
        ({"global": torch.zeros(2, 1, 3, 16, 16)}, r"global of shape \(2, 1, 3, 16, 16\): must hold at least two"),
        ({"global": torch.zeros(2, 3, 16, 16)}, r"global of shape \(2, 3, 16, 16\): must hold at least two"),
    ],
)
def test_a_batch_without_two_global_views_is_refused(batch, words):
    with pytest.raises(ValueError, match=words):
        dino_loss(make(), batch)


@pytest.mark.parametrize("temperature", [0, -0.1])
def test_logits_are_divided_by_a_temperature_above_0(temperature):
    with pytest.raises(ValueError, match=f"temperature={temperature}: must be above 0"):
        sharpen(torch.zeros(2, 3), torch.zeros(3), temperature)
    with pytest.raises(ValueError, match=f"temperature={temperature}: must be above 0"):
        pair_losses(torch.zeros(1, 4, 3), torch.zeros(1, 2, 3), temperature)
