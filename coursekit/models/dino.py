"""DINO: Caron, Touvron, Misra, Jégou, Mairal, Bojanowski and Joulin (2021), arXiv 2104.14294.

Read it top to bottom: the configuration, the projection head, a network for views of several sizes, the objective as
two functions of logits, then student and teacher with what happens in each step. The views are drawn in
``coursekit/data/crops.py``. A training with the paper's settings, where an epoch has
``epoch`` steps (in the authors' program the learning rate ends at 1e-6, here at 0)::

    model = DINO(config)
    optimizer = adamw(model, lr=5e-4 * batch_size / 256, weight_decay=0.04)
    options = {"schedule": warmup_cosine(10 * epoch), "decay_schedule": warmup_cosine(0, floor=10)}  # 0.04 -> 0.4
    options |= {"clip": 3.0, "clip_each": True, "after_update": DINO.update_teacher}
    Training(model, dino_loss, data, optimizer, config.steps, **options)

Call chain: ``DINO.forward`` -> ``Network`` of the student and of the teacher -> ``ViT`` in ``models/vit.py``, whose
call chain is given there, then ``ProjectionHead``.

Legend: B batch, V views of an image (the G = 2 global ones first), C channels, D = d_model, K outputs.
"""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

from coursekit.models.vit import ViT, ViTConfig
from coursekit.nn.checks import check_sizes
from coursekit.nn.modes import evaluating
from coursekit.nn.precision import full_precision

STD = 0.02  # of the head's weights at first; not in the paper, but in its program


MOST_BATCHES = 64  # of one update


@dataclass(frozen=True)
class DINOConfig:
    """Sizes and choices of a ``DINO``; the defaults of all but ``vit`` are those for ImageNet, 100 epochs of 1,251
    batches of 1,024.

    Attributes:
        vit: of student and teacher alike; ``classes`` must be 0. The teacher drops nothing.
        d_head: width of the projection head's two hidden layers.
        bottleneck: size of the vector before its last layer.
        out_dim: K.
        student_temperature: tau_s.
        teacher_temperature: tau_t at first, and after ``teacher_temperature_warmup`` steps, rising linearly between.
        momentum: how much of the teacher stays at the first update; it rises to 1 along half a cosine.
        centre_momentum: how much of the centre stays at each update; 1 for no centring.
        steps: updates of the whole training.
        teacher_temperature_warmup: steps (not epochs), see ``teacher_temperature``; published are 30 epochs.
        freeze_last_layer: steps (not epochs) at the beginning during which the head's last layer does not learn;
            published is 1 epoch.
    """

    vit: ViTConfig
    d_head: int = 2048
    bottleneck: int = 256
    out_dim: int = 65_536
    student_temperature: float = 0.1
    teacher_temperature: tuple[float, float] = (0.04, 0.07)
    momentum: float = 0.996
    centre_momentum: float = 0.9
    steps: int = 125_100
    teacher_temperature_warmup: int = 37_530
    freeze_last_layer: int = 1_251

    def __post_init__(self):
        check_sizes(self, "d_head", "bottleneck", "out_dim", "steps")
        if self.vit.classes:
            raise ValueError(f"vit.classes={self.vit.classes}: must be 0, the projection head takes its place")
        check_sizes(self, "teacher_temperature_warmup", "freeze_last_layer", least=0)
        if not self.student_temperature > 0:
            raise ValueError(f"student_temperature={self.student_temperature}: must be above 0")
        temperatures = self.teacher_temperature
        if not isinstance(temperatures, Sequence) or len(temperatures) != 2 or not min(temperatures) > 0:
            raise ValueError(f"teacher_temperature={temperatures}: must be two numbers above 0")
        for field in ("momentum", "centre_momentum"):
            if not 0 <= getattr(self, field) <= 1:
                raise ValueError(f"{field}={getattr(self, field)}: must lie in 0..1")

    @classmethod
    def s16(cls, **changes) -> "DINOConfig":
        """ViT-S/16, with changes: 21,665,664 parameters without the head, for each of student and teacher."""
        return cls(**{"vit": ViTConfig.s16(classes=0, drop_path=0.1, resize="dino")} | changes)


class ProjectionHead(nn.Module):
    """Three linear layers with GELU between, a vector of length 1, and a last layer whose rows have length 1 too.

    ``z = MLP(x)``, ``logits = W z / |z|`` with each row of W divided by its length: each of the K outputs is a cosine.
    Of a row only the direction is learned; its length g is a parameter that stays 1.

    Source: section 3.1, "Network architecture", and appendix C; weight normalisation: Salimans and Kingma (2016),
    arXiv 1602.07868.
    """

    def __init__(self, d_model: int, d_head: int, bottleneck: int, out_dim: int):
        super().__init__()
        one, two, three = nn.Linear(d_model, d_head), nn.Linear(d_head, d_head), nn.Linear(d_head, bottleneck)
        for layer in (one, two, three):
            nn.init.trunc_normal_(layer.weight, std=STD)
            nn.init.zeros_(layer.bias)
        self.mlp = nn.Sequential(one, nn.GELU(), two, nn.GELU(), three)
        self.last = weight_norm(nn.Linear(bottleneck, out_dim, bias=False))
        length = self.last.parametrizations.weight.original0  # (K, 1)
        nn.init.ones_(length)
        length.requires_grad_(False)

    def forward(self, x: Tensor, frozen: bool = False) -> Tensor:
        """(..., D) -> (..., K); ``frozen``: nothing is learned by the last layer."""
        z = F.normalize(self.mlp(x), dim=-1)  # (..., bottleneck)
        weight = self.last.weight
        return F.linear(z, weight.detach() if frozen else weight)


class Network(nn.Module):
    """A Vision Transformer, the backbone, and a projection head on its pooled vector: what student and teacher are."""

    def __init__(self, config: DINOConfig):
        super().__init__()
        self.backbone = ViT(config.vit)
        width = config.vit.representation_size or config.vit.d_model
        self.head = ProjectionHead(width, config.d_head, config.bottleneck, config.out_dim)

    def forward(self, views: Sequence[Tensor], frozen: bool = False) -> Tensor:
        """Logits of all views of each image, with one forward pass of the backbone for each size.

        Args:
            views: of one size each, (B, its number, C, side, side).
            frozen: see ``ProjectionHead``.

        Returns:
            (B, V, K), in the order of ``views``.
        """
        vectors = [self.backbone(x.flatten(0, 1)).unflatten(0, x.shape[:2]) for x in views]  # (B, its number, D)
        x = torch.cat(vectors, dim=1)  # (B, V, D)
        # never in bfloat16: differences among logits of -1 to 1 are divided by temperatures of a few hundredths
        with full_precision(x.device):
            return self.head(x.to(self.head.mlp[0].weight), frozen)


def sharpen(logits: Tensor, centre: Tensor, temperature: float) -> Tensor:
    """The teacher's output, centred and sharpened: ``P_t = softmax((logits - centre) / tau_t)``.

    Centring keeps one output from winning everywhere, and pushes towards all being equal; a low temperature does the
    opposite. Together they avoid both.

    Args:
        logits: of the teacher, (..., K).
        centre: (K,).
        temperature: tau_t.

    Returns:
        Probabilities (..., K).

    Raises:
        ValueError: ``temperature`` is not above 0.

    Source: section 3.1, "Avoiding collapse", and algorithm 1.
    """
    check_temperature(temperature)
    return ((logits - centre) / temperature).softmax(dim=-1)


def pair_losses(student_logits: Tensor, targets: Tensor, temperature: float) -> Tensor:
    """Cross-entropies ``- sum over k of P_t(k) ln P_s(k)``, ``P_s = softmax(z / tau_s)``, of pairs of views.

    Each global view as the teacher sees it is paired with every view that the student sees, except with itself.

    Args:
        student_logits: z, of all views, the global ones first, (B, V, K).
        targets: probabilities from the teacher for the global views, (B, G, K).
        temperature: tau_s.

    Returns:
        In nats, (B, G (V - 1)).

    Raises:
        ValueError: ``temperature`` is not above 0.

    Source: section 3.1, equation 3.
    """
    check_temperature(temperature)
    G, V = targets.shape[1], student_logits.shape[1]
    with full_precision(student_logits.device):
        log_p = (student_logits / temperature).log_softmax(dim=-1)
        losses = -targets @ log_p.mT  # (B, G, K) @ (B, K, V) -> (B, G, V)
    pair = torch.arange(G * (V - 1), device=losses.device)
    g, v = pair // (V - 1), pair % (V - 1)
    return losses[:, g, v + (v >= g)]  # without a view and itself


def check_temperature(temperature: float) -> None:
    """Refuse to divide logits by what is not above 0."""
    if not temperature > 0:
        raise ValueError(f"temperature={temperature}: must be above 0")


def check_views(batch: dict[str, Tensor]) -> None:
    """Refuse a batch without two global views; only names and shapes are read, so no GPU has to be waited for."""
    shape = tuple(batch["global"].shape) if "global" in batch else None
    if shape is None or len(shape) != 5 or shape[1] < 2:
        found = f"global of shape {shape}" if shape else f"a batch of {', '.join(batch) or 'nothing'}, without global"
        raise ValueError(f"{found}: must hold at least two global views of each image, (B, 2, C, side, side)")


class DINO(nn.Module):
    """A student learns, without labels, to predict from one view of an image its teacher's output for another view.

    The teacher is a slow average of the student and gets no gradient. ``dino_loss`` is the objective for ``Training``
    and keeps the teacher's logits; ``update_teacher``, its ``after_update``, then moves teacher and centre. Centre,
    teacher and the number of steps are in ``state_dict()``. What is used after training is ``teacher.backbone``, a
    ``ViT``.

    A batch holds ``global`` (B, 2, C, side, side) and, where there are any, ``local`` (B, V - 2, C, side, side), as
    ``coursekit.data.crops.multi_crop`` draws them, scaled as the ViT reads them.

    Attributes:
        centre: running mean of the teacher's raw logits, (K,).
        step: updates done.
    """

    def __init__(self, config: DINOConfig):
        super().__init__()
        self.config = config
        self.student = Network(config)
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)
        self.register_buffer("centre", torch.zeros(config.out_dim))
        self.step = 0
        self.teacher_logits: list[Tensor] = []  # since the last update, (B, G, K)
        self.train()

    def train(self, mode: bool = True) -> "DINO":
        """As of every module, but the teacher stays in eval mode: nothing of it is ever dropped."""
        super().train(mode)
        self.teacher.eval()
        return self

    def get_extra_state(self) -> Tensor:
        return torch.tensor(self.step)  # no buffer: on a GPU its number would have to be waited for

    def set_extra_state(self, state: Tensor) -> None:
        self.step = int(state)

    @property
    def temperature(self) -> float:
        """tau_t at this step: from the first to the second linearly, within ``teacher_temperature_warmup`` steps."""
        first, second = self.config.teacher_temperature
        return first + (second - first) * min(1.0, self.step / max(1, self.config.teacher_temperature_warmup))

    @property
    def momentum(self) -> float:
        """How much of the teacher stays at this step: ``1 - (1 - momentum) (1 + cos(pi step / steps)) / 2``."""
        done = min(1.0, self.step / self.config.steps)
        return 1 - (1 - self.config.momentum) * 0.5 * (1 + math.cos(math.pi * done))

    def forward(self, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Logits of a batch: the student's of all views, (B, V, K), and the teacher's of the global ones, (B, G, K).

        Raises:
            ValueError: the batch has no ``global``, or fewer than two global views.
        """
        check_views(batch)
        views = [batch[name] for name in ("global", "local") if name in batch]
        with torch.no_grad():
            teacher_logits = self.teacher(views[:1])
        return self.student(views, frozen=self.step < self.config.freeze_last_layer), teacher_logits

    @torch.no_grad()
    def update_teacher(self) -> None:
        """After an update of the student: teacher and centre take one step, and the step is counted.

        ``teacher <- m teacher + (1 - m) student``, ``centre <- m_c centre + (1 - m_c) mean(logits)``, the mean over the
        teacher's raw logits of all global views since the last update.

        Raises:
            RuntimeError: there was no loss in training mode since the last update.

        Source: algorithm 1 and equation 4.
        """
        if not self.teacher_logits:
            raise RuntimeError("no teacher logits: call it after dino_loss in training mode and the optimizer's step")
        torch._foreach_lerp_(list(self.teacher.parameters()), list(self.student.parameters()), 1 - self.momentum)
        mean = torch.cat(self.teacher_logits).flatten(0, 1).mean(dim=0)  # (B, G, K) -> (K,)
        self.centre.lerp_(mean.to(self.centre), 1 - self.config.centre_momentum)
        self.teacher_logits.clear()
        self.step += 1

    @torch.no_grad()
    def diagnose(self, batch: dict[str, Tensor]) -> dict[str, float]:
        """Measure whether the model collapses, which the loss does not show; in nats, in eval mode.

        Returns:
            ``entropy``: the mean entropy of the teacher's output for one view; ln K if all outputs are always equal
            (uniform collapse). ``entropy_of_mean``: the entropy of its mean output; 0 if one output wins for all images
            (then ``entropy`` is 0 too). ``kl``: the loss minus ``entropy``, the divergence of student and teacher; 0
            if there is nothing left to learn, as in either collapse. ``centre``: the length of the centre.

        Source: section 5.3, "Avoiding collapse", figure 7 (entropy and KL).
        """
        with evaluating(self):
            student_logits, teacher_logits = self({name: x.to(self.centre.device) for name, x in batch.items()})
        targets = sharpen(teacher_logits, self.centre, self.temperature)
        entropy = torch.special.entr(targets).sum(dim=-1).mean()
        of_mean = torch.special.entr(targets.mean(dim=(0, 1))).sum()
        loss = pair_losses(student_logits, targets, self.config.student_temperature).mean()
        metrics = {"entropy": entropy, "entropy_of_mean": of_mean, "kl": loss - entropy, "centre": self.centre.norm()}
        return {name: number.item() for name, number in metrics.items()}


def dino_loss(model: DINO, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """The objective for ``Training``: the mean of ``pair_losses``, summed over images (nats), and how many there are.

    In train mode it keeps the teacher's logits for ``DINO.update_teacher``, and uses the centre of before. So give
    ``Training`` that method as ``after_update``: without it the teacher would never move.

    Raises:
        RuntimeError: the teacher was not updated after ``MOST_BATCHES`` batches.
    """
    if len(model.teacher_logits) == MOST_BATCHES:
        raise RuntimeError(
            f"no update of the teacher in {MOST_BATCHES} batches: give Training after_update=DINO.update_teacher, "
            "or call model.update_teacher() after each step of the optimizer"
        )
    student_logits, teacher_logits = model(batch)
    targets = sharpen(teacher_logits, model.centre, model.temperature)
    loss = pair_losses(student_logits, targets, model.config.student_temperature).mean(dim=1).sum()
    if model.training:
        model.teacher_logits.append(teacher_logits)
    return loss, loss.new_full((), len(student_logits))
