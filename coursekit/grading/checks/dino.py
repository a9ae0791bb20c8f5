"""Checks of exercise 09: a teacher that follows, targets, pairs of views, crops, one step, neighbours, masks.

The references are written in NumPy, one number at a time, and share nothing with ``coursekit.models.dino`` and
``coursekit.evaluate.features``.

Legend: B images, V views of each, G of them global, C channels, D size of a vector, K outputs or classes, n known
images, m queries, H heads, N patches.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from coursekit.grading.checks.common import (
    before_it,
    cosines_of,
    log_p,
    not_undone,
    number,
    numbers,
    share,
    sizes,
    smallest_set,
    votes_reference,
    votes_with,
    wide,
    without_the_last,
)
from coursekit.grading.checks.slopes import as_losses, with_slopes
from coursekit.grading.mistakes import by_task
from coursekit.grading.parts import Case, Part
from coursekit.grading.parts import score as show_score

# --- a teacher that follows ----------------------------------------------------------------------------------


def rate_reference(step, steps, momentum):
    return momentum + (1 - momentum) * np.sin(np.pi * step / steps / 2) ** 2


def follow_reference(momentum, *weights):
    teacher, student = np.split(np.concatenate([np.asarray(w, float).ravel() for w in weights]), 2)
    return np.array([m + (1 - momentum) * (s - m) for m, s in zip(teacher, student)]), student, np.array(False)


def averages_cases(generator: torch.Generator) -> list[Case]:
    def rate(about, step, steps, momentum):
        about = f"{about}: step {step} of {steps}, momentum {momentum}"
        return Case("momentum", about, ("momentum_at", step, steps, momentum))

    def follow(aspect, about, momentum, D, d_ff, K, result, middle=0):
        layers = [(d_ff, D), (d_ff,), *[(d_ff, d_ff), (d_ff,)] * middle, (K, d_ff), (K,)]
        shapes = [(D,), *layers, (K,), (K,)]  # a token in front, and a norm behind the layers
        weights = [numbers(*shape, generator=generator) for _ in range(2) for shape in shapes]
        return Case(aspect, f"{about}, momentum {momentum}", ("follow", momentum, *weights), result)

    steps, first, later = number(generator, 12, 40), share(generator, 0.6, 0.8), share(generator, 0.8, 0.95)
    D, d_ff, K = sizes(generator, 3, 2, 5)
    tiny, small = "two networks of seven weights", "two networks of two layers, with a token and a norm"
    return [
        rate("at the start", 0, steps, first),
        rate("on the way", steps // 4, steps, first),
        rate("half of the way", steps, 2 * steps, first),
        rate("at the end", steps, steps, first),
        rate("on the way", steps - 2, steps, later),
        follow("teacher", tiny, 0.9, 1, 1, 1, "0"),
        follow("teacher", tiny, 0.5, 1, 1, 1, "0"),
        follow("teacher", small, first, D, d_ff, K, "0"),
        follow("teacher", small, later, 3, 3, 3, "0"),
        follow("teacher", "two networks of five layers", later, D, d_ff, K, "0", middle=3),
        follow("apart", small, first, D, d_ff, K, "1"),
        follow("apart", small, later, D, d_ff, K, "2"),
    ]


def rate_with(shape: Callable[[float], float], between: Callable[[float, float], float] | None = None):
    """Another way from ``momentum`` to 1; ``shape`` falls from 1 to 0, by the share of steps that is done."""
    between = between or (lambda momentum, left: 1 - (1 - momentum) * left)
    return by_task(momentum_at=lambda step, steps, momentum: between(momentum, shape(step / steps)))


def half_cosine(done: float) -> float:
    return 0.5 * (1 + np.cos(np.pi * done))


def follow_with(
    move: Callable[[Tensor, Tensor, float], Tensor] = lambda t, s, m: m * t + (1 - m) * s,
    linked: bool = False,
    layers_alone: bool = False,
):
    """Another average; ``move`` sees one of the teacher's tensors and the student's. ``layers_alone``: neither the
    token, the first, nor the norm, the last two, follows."""

    def mistake(momentum, *weights):
        teacher, student = weights[: len(weights) // 2], weights[len(weights) // 2 :]
        moved = [move(t, s, momentum) for t, s in zip(teacher, student)]
        if layers_alone:
            moved = [teacher[0], *moved[1:-2], *teacher[-2:]]
        return *(torch.cat([w.flatten() for w in part]) for part in (moved, student)), torch.tensor(linked)

    return by_task(follow=mistake)


averages = Part(
    "averages",
    {"momentum": 5, "teacher": 5, "apart": 2},
    averages_cases,
    by_task(momentum_at=rate_reference, follow=follow_reference),
    {
        "the cosine is the wrong way round: the momentum begins with momentum and rises to 1": rate_with(
            lambda done: half_cosine(1 - done)
        ),
        "it falls from momentum to 0, as a learning rate does: it rises to 1": rate_with(
            half_cosine, lambda momentum, left: momentum * left
        ),
        "it comes back to momentum at the end: half a cosine, cos(π step / steps), not a whole one": rate_with(
            lambda done: half_cosine(2 * done)
        ),
        "it rises along a straight line: along half a cosine": rate_with(lambda done: 1 - done),
        "the teacher that was given has not changed: write into its own tensors, as with copy_, lerp_ or mul_ and "
        "add_; a new model, or a name that stands for another tensor, changes nothing": follow_with(lambda t, s, m: t),
        "only the matrices follow: the biases do, too": follow_with(
            lambda t, s, m: m * t + (1 - m) * s if t.dim() > 1 else t
        ),
        "only the linear layers follow: so does every other weight, as parameters() lists them": follow_with(
            layers_alone=True
        ),
        "the teacher's weights now hang on the student's: do it inside torch.no_grad()": follow_with(linked=True),
    },
    needs={"apart": ("teacher",)},
)


# --- what the teacher says, centred and sharpened ------------------------------------------------------------


def chances(logits: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    """The softmax of the last axis, row by row."""
    result = np.zeros(logits.shape)
    for place in np.ndindex(logits.shape[:-1]):
        result[place] = np.exp(log_p(logits[place] / temperature))
    return result


def targets_reference(logits, centre, temperature) -> np.ndarray:
    return chances(np.asarray(logits, float) - np.asarray(centre, float), temperature)


def centre_reference(centre, logits, momentum) -> np.ndarray:
    rows = np.asarray(logits, float).reshape(-1, len(centre))
    return momentum * np.asarray(centre, float) + (1 - momentum) * sum(rows) / len(rows)


def centring_cases(generator: torch.Generator) -> list[Case]:
    draw = partial(numbers, generator=generator)

    def sharpen(about, B, G, K, temperature, scale=1.0):
        about = f"targets: {about}, temperature {temperature}"
        return Case("targets", about, ("targets", draw(B, G, K, scale=scale), draw(K, scale=scale), temperature))

    def move(about, B, G, K, momentum):
        about = f"new_centre: {about}, momentum {momentum}"
        return Case("centre", about, ("new_centre", draw(K), 1 + draw(B, G, K), momentum))

    B, K = sizes(generator, 2, 3, 6)
    t, m = share(generator, 0.3, 0.7), share(generator, 0.7, 0.95)
    alike = "B = G = K: no axis can be told by its size"
    return [
        sharpen("two views of two images, three outputs", 2, 2, 3, 0.5),
        sharpen("a batch", B, 2, K, t),
        sharpen(alike, 3, 3, 3, t),
        sharpen("large logits, of which exp alone gives inf", B, 2, K, 0.3, 25.0),
        sharpen("a batch, small logits as a model has them", B, 2, K, 0.04, 0.1),
        move("two views of two images, three outputs", 2, 2, 3, 0.9),
        move("a batch", B, 2, K, m),
        move(alike, 3, 3, 3, m),
    ]


def sharpened(logits: Tensor, centre: Tensor, temperature: float) -> Tensor:
    return ((logits - centre) / temperature).softmax(dim=-1)


def running_mean(centre: Tensor, logits: Tensor, momentum: float) -> Tensor:
    return momentum * centre + (1 - momentum) * logits.mean(dim=(0, 1))


def targets_with(mistake: Callable[[Tensor, Tensor, float], Tensor]):
    return by_task(targets=lambda logits, centre, temperature: mistake(logits.double(), centre, temperature))


def centre_with(mean: Callable[[Tensor, Tensor], Tensor]):
    """Another mean, of logits and centre."""
    return by_task(new_centre=lambda centre, logits, m: m * centre + (1 - m) * mean(logits.double(), centre))


centring = Part(
    "centring",
    {"targets": 6, "centre": 6},
    centring_cases,
    by_task(targets=targets_reference, new_centre=centre_reference),
    {
        "the centre is taken away after the division: first the centre, then the temperature": targets_with(
            lambda logits, centre, temperature: (logits / temperature - centre).softmax(dim=-1)
        ),
        "the softmax runs over the views: over the K outputs, the last axis": targets_with(
            lambda logits, centre, temperature: ((logits - centre) / temperature).softmax(dim=-2)
        ),
        "the mean is that of probabilities: the centre follows the raw logits": centre_with(
            lambda logits, centre: logits.softmax(dim=-1).mean(dim=(0, 1))
        ),
        "the mean is that of centred logits: the centre follows the raw ones": centre_with(
            lambda logits, centre: (logits - centre).mean(dim=(0, 1))
        ),
    },
)


# --- pairs of views ------------------------------------------------------------------------------------------


def pairs_reference(student, targets, temperature) -> float:
    student, targets = np.asarray(student, float), np.asarray(targets, float)
    (B, V, _), G = student.shape, targets.shape[1]
    losses = [-sum(targets[b, g] * log_p(student[b, v] / temperature)) for b, g, v in np.ndindex(B, G, V) if g != v]
    return sum(losses) / len(losses)


@with_slopes(7)
def pairs_cases(generator: torch.Generator) -> list[Case]:
    def case(aspect, about, B, G, V, K, temperature, scale=1.0):
        student, targets = (numbers(B, n, K, generator=generator) for n in (V, G))
        about = f"{about}: {B} image{'s' * (B > 1)}, G = {G}, V = {V}, temperature {temperature}"
        return Case(aspect, about, (scale * student, (2 * targets).softmax(dim=-1), temperature))

    B, V, K = sizes(generator, 3, 3, 7)
    t = share(generator, 0.3, 0.7)
    return [
        case("one pair", "the teacher sees only view 0", 1, 1, 2, 3, 1.0),
        case("one pair", "a batch, the teacher sees only view 0", B, 1, 2, K, 1.0),
        case("all pairs", "two views, both global", 2, 2, 2, 3, 1.0),
        case("all pairs", "two global views, and local ones", B, 2, V, K, 1.0),
        case("all pairs", "three global views", B, 3, 4, K, 1.0),
        case("all pairs", "B = V = K: no axis can be told by its size", 4, 2, 4, 4, 1.0),
        case("temperature", "the teacher sees only view 0", 1, 1, 2, 3, 0.5),
        case("temperature", "two global views and a local one", 1, 2, 3, 3, 0.5),
        case("temperature", "two global views, and local ones", B, 2, V, K, t),
        case("temperature", "so low that some probabilities are 0 to a computer", B, 2, V, K, 0.02, 3.0),
    ]


def apart(G: int, V: int) -> Tensor:
    """The pairs that count, (G, V)."""
    return ~torch.eye(G, V, dtype=torch.bool)


def cross_entropies(student: Tensor, targets: Tensor) -> Tensor:
    """Of logits, those of each pair: (B, G, V)."""
    return -targets @ student.log_softmax(dim=-1).mT


def pairs_with(
    scale: Callable[[Tensor, float], Tensor] = lambda student, t: student / t,
    losses: Callable[[Tensor, Tensor], Tensor] = cross_entropies,
    kept: Callable[[int, int], Tensor] = apart,
    mean: Callable[[Tensor, Tensor], Tensor] = lambda losses, kept: losses[:, kept].mean(),
):
    """``losses`` sees scaled logits and targets; ``mean`` the losses (B, G, V) and the pairs kept (G, V)."""

    def mistake(student, targets, temperature):
        student, targets = wide([student, targets])
        return mean(losses(scale(student, temperature), targets), kept(targets.shape[1], student.shape[1]))

    return mistake


def exchanged(student: Tensor, targets: Tensor) -> Tensor:
    return -targets.log() @ student.softmax(dim=-1).mT


def divergences(student: Tensor, targets: Tensor) -> Tensor:
    return cross_entropies(student, targets) + (targets * targets.log()).sum(dim=-1, keepdim=True)


def local_alone(G: int, V: int) -> Tensor:
    return (torch.arange(V) >= G).expand(G, V)


def last_ones(G: int, V: int) -> Tensor:
    return ~torch.eye(V, dtype=torch.bool)[V - G :]


pair_loss = Part(
    "pair_loss",
    {"one pair": 3, "all pairs": 5, "temperature": 3, "gradient": 2},
    pairs_cases,
    **as_losses(
        pairs_reference,
        {
            "pairs of a view with itself are kept: leave out view g of the student for view g of the "
            "teacher": pairs_with(kept=lambda G, V: torch.ones(G, V, dtype=torch.bool)),
            "pairs of a view with itself are set to 0, but counted: divide by the number of pairs that are left, "
            "B G (V - 1)": pairs_with(mean=lambda losses, kept: (losses * kept).mean()),
            "the global views are taken for the last ones: they are the first, view g of the teacher is view g of the "
            "student": pairs_with(kept=last_ones),
            "only local views are compared: the other global view belongs to the pairs": pairs_with(kept=local_alone),
            "teacher and student have changed places: targets times the logarithm of the student's probabilities": (
                pairs_with(losses=exchanged)
            ),
            "this is the KL divergence, without the targets' entropy: the loss is the cross-entropy": pairs_with(
                losses=divergences
            ),
            "the softmax runs over the views: over the K outputs, the last axis": pairs_with(
                losses=lambda student, targets: -targets @ student.log_softmax(dim=1).mT
            ),
        },
    ),
    result="run_pair_loss",
)


# --- crops of several sizes ----------------------------------------------------------------------------------


def small_backbone(images: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """What the backbone of the notebook makes of images of one size: (n, C, side, side) -> (n, D)."""
    n, C, side, _ = images.shape
    half = side // 2
    corners = [images[:, :, y : y + half, x : x + half] for y in (0, half) for x in (0, half)]
    quarters = np.stack([corner.reshape(n, C, -1).mean(axis=-1) for corner in corners], axis=-1)  # (n, C, 4)
    return side * np.tanh(quarters.reshape(n, -1) @ weight.T)


def crops_reference(weight, *views) -> tuple[np.ndarray, np.ndarray]:
    weight, views = np.asarray(weight, float), [np.asarray(view, float) for view in views]
    found = np.stack([small_backbone(view, weight) for view in views], axis=1)
    return found, np.array(len({view.shape[-1] for view in views}))


def crops_cases(generator: torch.Generator) -> list[Case]:
    def case(aspect, about, B, C, D, sides, result):
        weight = numbers(D, 4 * C, generator=generator)
        views = [numbers(B, C, side, side, generator=generator) for side in sides]
        return Case(aspect, f"{about}: sides {', '.join(map(str, sides))}", (weight, *views), result)

    B, C, D = sizes(generator, 3, 2, 5)
    large, middle, small = 8, 6, 4
    published = [large, large, *[small] * number(generator, 2, 4)]
    mixed = [small, large, small, small, large]
    three = [middle, large, small, large, middle, middle]
    many = torch.tensor([2, 4, 6, 8, 10] * 2)[torch.randperm(10, generator=generator)].tolist()
    alike = "B = V = D: no axis can be told by its size"
    return [
        case("vectors", "one image, one view", 1, 1, 2, [small], "0"),
        case("vectors", "one image, two views of one size", 1, 1, 2, [small] * 2, "0"),
        case("vectors", "two large views first, then small ones", B, C, D, published, "0"),
        case("vectors", "sizes in any order", B, C, D, mixed, "0"),
        case("vectors", "three sizes in any order", B, C, D, three, "0"),
        case("vectors", "ten views, five sizes in any order", 2, C, D, many, "0"),
        case("vectors", alike, 4, 1, 4, [large, small, large, small], "0"),
        case("calls", "two large views first, then small ones", B, C, D, published, "1"),
        case("calls", "three views of one size", B, C, D, [small] * 3, "1"),
        case("calls", "sizes in any order", B, C, D, mixed, "1"),
        case("calls", "three sizes in any order", B, C, D, three, "1"),
        case("calls", "ten views, five sizes in any order", 2, C, D, many, "1"),
    ]


def backbone_of(images: Tensor, weight: Tensor) -> Tensor:
    return images.shape[-1] * torch.tanh(F.adaptive_avg_pool2d(images, 2).flatten(1) @ weight.T)


def by_size(views: Sequence[Tensor]) -> dict[int, list[int]]:
    """Numbers of the views of each size, the sizes in the order in which they come first."""
    groups: dict[int, list[int]] = {}
    for i, view in enumerate(views):
        groups.setdefault(view.shape[-1], []).append(i)
    return groups


def size_by_size(weight, *views):
    """The vectors stay where the groups put them."""
    groups = by_size(views)
    found = [backbone_of(views[i], weight) for rows in groups.values() for i in rows]
    return torch.stack(found, dim=1), torch.tensor(len(groups))


def unmixed(weight, *views):
    return torch.stack([backbone_of(view, weight) for view in views], dim=1)


def calls_of(count: Callable[[Sequence[int], int], int]):
    """Right vectors and another number of calls, by the sides of the views and B."""
    return lambda weight, *views: (
        unmixed(weight, *views),
        torch.tensor(count([view.shape[-1] for view in views], len(views[0]))),
    )


def mixed_up(weight, *views):
    """A group's rows are taken as (B, its number): they come as (its number, B)."""
    result, groups = unmixed(weight, *views), by_size(views)
    for rows in groups.values():
        group = torch.cat([backbone_of(views[i], weight) for i in rows])
        result[:, rows] = group.view(len(views[0]), len(rows), -1)
    return result, torch.tensor(len(groups))


def resized(weight, *views):
    side = max(view.shape[-1] for view in views)
    views = [F.interpolate(view, size=(side, side), mode="bilinear") for view in views]
    return unmixed(weight, *views), torch.tensor(1)


crops = Part(
    "crops",
    {"vectors": 6, "calls": 5},
    crops_cases,
    crops_reference,
    {
        "the vectors stand size by size, in the order in which the sizes come first: each belongs to the place of its "
        "view": size_by_size,
        "images and views are mixed up: what torch.cat joins comes back view by view, (number of views, B, D)": (
            mixed_up
        ),
        "the backbone is called once for each view: views of one size go together": calls_of(
            lambda sides, B: len(sides)
        ),
        "the backbone is called once for each image: all images and all views of one size go together": calls_of(
            lambda sides, B: B * len(sides)
        ),
        "the backbone is called again for each run of views of one size: views of one size go together wherever they "
        "stand": calls_of(lambda sides, B: 1 + sum(a != b for a, b in pairwise(sides))),
        "all views were scaled to one size, that of the largest: the backbone reads each size as it is": resized,
    },
    needs={"calls": ("vectors",)},
)


# --- one step of a training ----------------------------------------------------------------------------------

FRONTS = {"Identity": lambda x: x, "Tanh": np.tanh}  # by their names in torch.nn


def optimizer_of(kind: str, rate: float, decay: float) -> Callable[[Any, Any], Any]:
    """Makes new weights of old ones and their gradient, and remembers what it has to; for arrays and for tensors."""
    first = second = 0.0
    steps = 0

    def update(weights, slope):
        nonlocal first, second, steps
        slope, steps = slope + decay * weights, steps + 1
        if kind == "SGD":
            return weights - rate * slope
        first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope**2
        return weights - rate * (first / (1 - 0.9**steps)) / ((second / (1 - 0.999**steps)) ** 0.5 + 1e-8)

    return update


def steps_reference(settings, kind, rate, decay, front, student, teacher, centre, *batches):
    """Two linear networks, (K, D + 1) with the bias as the last column; the gradient is written out."""
    tau_s, tau_t, momentum, centre_momentum = settings
    student, teacher, centre = (np.asarray(x, float).copy() for x in (student, teacher, centre))
    losses, update = [], optimizer_of(kind, rate, decay)
    for batch in batches:
        x = FRONTS[front](np.asarray(batch, float))
        x = np.concatenate([x, np.ones((*x.shape[:-1], 1))], axis=-1)  # (B, V, D + 1)
        B, V, _ = x.shape
        raw, says = x[:, :2] @ teacher.T, x @ student.T
        targets, said = chances(raw - centre, tau_t), chances(says, tau_s)
        pairs = [(b, g, v) for b, g, v in np.ndindex(B, 2, V) if g != v]
        losses.append(-sum(targets[b, g] @ log_p(says[b, v] / tau_s) for b, g, v in pairs) / len(pairs))
        slope = sum(np.outer(said[b, v] - targets[b, g], x[b, v]) for b, g, v in pairs) / tau_s / len(pairs)
        student = update(student, slope)
        teacher = momentum * teacher + (1 - momentum) * student
        centre = centre_momentum * centre + (1 - centre_momentum) * raw.mean(axis=(0, 1))
    return np.array(losses), student, teacher, centre, np.array(False)


def steps_cases(generator: torch.Generator) -> list[Case]:
    draw = partial(numbers, generator=generator)

    def case(aspect, about, steps, result, B=2, V=3, D=2, K=3, front="Tanh", kind="SGD"):
        settings = [share(generator, 0.4, 0.6), share(generator, 0.2, 0.35)]
        settings += [share(generator, 0.75, 0.9), share(generator, 0.6, 0.7)]
        weights = [draw(K, D + 1, scale=0.5), draw(K, D + 1, scale=0.5), draw(K, scale=0.5)]
        batches = [draw(B, V, D) for _ in range(steps)]
        how = kind, share(generator, 0.3, 0.9), share(generator, 0.05, 0.2), front
        about = f"{about}, {V} views, nn.{front} in front, {kind}, rate {how[1]}, weight decay {how[2]}"
        easy = kind == "Adam"  # its first step is made of signs, which are right in many a wrong gradient
        return Case(aspect, about, (settings, *how, *weights, *batches), result, easy=easy)

    B, D, K = sizes(generator, 3, 3, 6)
    V = number(generator, 4, 5)
    return [
        case("loss", "one step", 1, "0"),
        case("loss", "one step, a batch", 1, "0", B, V, D, K),
        case("student", "one step", 1, "1", front="Identity"),
        case("student", "one step", 1, "1"),
        case("student", "one step", 1, "1", kind="Adam"),
        case("teacher", "one step", 1, "2", front="Identity"),
        case("centre", "one step", 1, "3"),
        case("centre", "one step, a batch", 1, "3", B, V, D, K),
        case("no gradient", "one step", 1, "4"),
        case("three steps", "three steps, a batch", 3, "0", B, V, D, K),
    ]


Made = dict[str, Any]


def steps_with(
    says: Callable[[Made], Tensor] = lambda m: m["teacher"](m["views"][:, :2]),
    targets: Callable[[Made], Tensor] = lambda m: sharpened(m["raw"], m["centre"], m["tau_t"]),
    order: Sequence[str] = ("says", "loss", "student", "teacher", "centre"),
    follow: Callable[[Tensor, Tensor, Made], Tensor] = lambda t, s, m: m["momentum"] * t + (1 - m["momentum"]) * s,
    centre: Callable[[Made], Tensor] = lambda m: running_mean(m["centre"], m["raw"], m["centre_momentum"]),
    fresh: bool = True,
    leaks: bool = False,
    by_hand: bool = False,
):
    """A training with something else in it; each function sees all there is by name.

    Args:
        order: of what happens in a step; what is left out does not happen.
        fresh: whether the gradients are set to zero.
        by_hand: the step is one of gradient descent, whatever the optimizer is.
    """

    def apply(weight: Tensor, x: Tensor) -> Tensor:
        return x @ weight[:, :-1].T + weight[:, -1]

    def mistake(settings, kind, rate, decay, front, student, teacher, first_centre, *batches):
        student, teacher, first_centre, *batches = wide([student, teacher, first_centre, *batches])
        m: Made = dict(zip(("tau_s", "tau_t", "momentum", "centre_momentum"), settings))
        m |= {"centre": first_centre, "slope": 0.0}
        losses, update = [], optimizer_of("SGD" if by_hand else kind, rate, decay)
        for views in batches:
            student = student.detach().requires_grad_()
            m |= {
                "views": torch.as_tensor(FRONTS[front](views)),
                "teacher": partial(apply, teacher),
                "student": partial(apply, student),
            }
            for what in order:
                if what == "says":
                    m["raw"] = says(m)
                elif what == "loss":
                    losses_of = cross_entropies(m["student"](m["views"]) / m["tau_s"], targets(m))
                    value = losses_of[:, apart(*losses_of.shape[1:])].mean()
                    (slope,) = torch.autograd.grad(value, student)
                    m["slope"] = slope if fresh else m["slope"] + slope
                    losses.append(value.detach())
                elif what == "student":
                    student = update(student.detach(), m["slope"])
                    m["student"] = partial(apply, student)
                elif what == "teacher":
                    teacher = follow(teacher, student.detach(), m)
                    m["teacher"] = partial(apply, teacher)
                else:
                    m["centre"] = centre(m).detach()
        return torch.stack(losses), student.detach(), teacher, m["centre"], torch.tensor(leaks)

    return mistake


steps = Part(
    "steps",
    {"loss": 4, "student": 2, "teacher": 3, "centre": 3, "no gradient": 2, "three steps": 2},
    steps_cases,
    steps_reference,
    {
        "a gradient went into the teacher: compute its logits inside torch.no_grad()": steps_with(leaks=True),
        "the centre is updated before the loss: the loss uses the centre of before the step": steps_with(
            order=("says", "centre", "loss", "student", "teacher")
        ),
        "the centre follows the targets, which are probabilities: it follows the teacher's raw logits": steps_with(
            centre=lambda m: running_mean(
                m["centre"], sharpened(m["raw"], m["centre"], m["tau_t"]), m["centre_momentum"]
            )
        ),
        "the teacher follows before the optimizer's step: it follows the new student": steps_with(
            order=("says", "loss", "teacher", "student", "centre")
        ),
        "the teacher's average is the wrong way round: momentum is what stays of the teacher": steps_with(
            follow=lambda t, s, m: (1 - m["momentum"]) * t + m["momentum"] * s
        ),
        "the student's step is not the optimizer's: call optimizer.step(), whatever it is": steps_with(by_hand=True),
        "the student's temperature sharpens the teacher: each has its own": steps_with(
            targets=lambda m: sharpened(m["raw"], m["centre"], m["tau_s"])
        ),
        "the teacher sees all views: it sees the two global ones, the first": steps_with(
            says=lambda m: m["teacher"](m["views"])
        ),
        "the gradients are not set to zero before the backward pass: those of earlier steps are added": steps_with(
            fresh=False
        ),
    },
    needs={"no gradient": ("loss", "student", "teacher", "centre")},
)


# --- neighbours that vote ------------------------------------------------------------------------------------


def by_product(features: Tensor, queries: Tensor) -> Tensor:
    return queries @ features.T


def closeness(features: Tensor, queries: Tensor) -> Tensor:
    return -torch.cdist(queries, features)


def votes_cases(generator: torch.Generator) -> list[Case]:
    draw = partial(numbers, generator=generator)

    def case(aspect, about, n, m, D, k, temperature, classes, own=False, unit=1.0):
        """With ``own`` each image has a class of its own. What is nearest by cosine is not so by product or distance,
        and no two are nearly as near where k ends."""
        while True:
            lengths = [unit * (0.7 * draw(count, 1)).exp() for count in (n, m)]
            features, queries = (F.normalize(draw(len(x), D), dim=-1) * x for x in lengths)
            labels = (
                torch.randperm(classes, generator=generator)[:n]
                if own
                else torch.randint(classes, (n,), generator=generator)
            )
            cosines, best = cosines_of(features, queries).sort(dim=1, descending=True)
            clear = k == n or (cosines[:, k - 1] - cosines[:, k]).min() > 1e-3
            chosen = [near(features, queries).topk(k).indices.sort(dim=1).values for near in (by_product, closeness)]
            chosen.append(best[:, :k].sort(dim=1).values)
            repeated = own or all(len(set(labels[row].tolist())) < k for row in chosen[-1])
            if clear and repeated and (k == n or all((a != b).any() for a, b in combinations(chosen, 2))):
                break
        about = f"{about}: {n} known images, k = {k}, temperature {temperature}"
        return Case(aspect, about, (features, labels, queries, k, temperature, classes))

    m, D = sizes(generator, 2, 3, 5)
    n, t = number(generator, 9, 12), share(generator, 0.1, 0.4)
    return [
        case("nearest", "all classes differ, two queries", 5, 2, 2, 2, 1.0, 5, own=True),
        case("nearest", "all classes differ, a batch of queries", n, m, D, 2, 1.0, n, own=True),
        case("weights", "all classes differ, two queries", 5, 2, 2, 3, 0.4, 5, own=True),
        case("weights", "all classes differ, a batch of queries", n, m, D, 4, t, n, own=True),
        case("weights", "the temperature as published", n, m, D, 3, 0.07, n, own=True),
        case("classes", "several of a class, two queries", 7, 2, 2, 4, 0.5, 3),
        case("classes", "several of a class, a batch of queries", n, m, D, 5, t, 4),
        case("classes", "all vote", 6, 3, D, 6, t, 3),
        case("classes", "many neighbours, short vectors", 50, m, D, 30, t, 4, unit=0.01),
    ]


knn_votes = Part(
    "knn_votes",
    {"nearest": 3, "weights": 4, "classes": 4},
    votes_cases,
    votes_reference,
    {
        "the votes are counted, each as 1: a vote weighs exp(cosine / temperature)": votes_with(
            weigh=lambda cosines, t: torch.ones_like(cosines)
        ),
        "a vote weighs as much as its cosine: exp(cosine / temperature)": votes_with(weigh=lambda cosines, t: cosines),
        "the votes of a query are made to sum to 1: a vote weighs exp(cosine / temperature) as it is": votes_with(
            weigh=lambda cosines, t: (cosines / t).softmax(dim=-1)
        ),
        "this is the product, not the cosine: divide by the lengths of both vectors": votes_with(by_product),
        "the farthest vote: the largest cosine is the nearest": votes_with(
            choose=lambda near, k: (-near).topk(k).indices
        ),
        "the nearest is left out: no query is among the known ones here": votes_with(
            choose=lambda near, k: near.topk(k + 1).indices[:, 1:]
        ),
        "of several neighbours of a class only the last one's weight is left: add them up, as scatter_add does": (
            votes_with(add=False)
        ),
    },
)


# --- attention as a mask -------------------------------------------------------------------------------------


def keep_reference(weights, mass) -> np.ndarray:
    weights = np.asarray(weights, float)
    result = np.zeros(weights.shape, bool)
    for place in np.ndindex(weights.shape[:-1]):
        held, row = 0.0, weights[place]
        for patch in sorted(range(len(row)), key=lambda patch: -row[patch]):
            result[place][patch] = held < mass * sum(row)
            held += row[patch]
    return result


def pixels_reference(kept, rows, columns, size) -> np.ndarray:
    kept = np.asarray(kept)
    result = np.zeros((*kept.shape[:-1], rows * size, columns * size), bool)
    for place in np.ndindex(result.shape):
        *front, y, x = place
        result[place] = kept[(*front, (y // size) * columns + x // size)]
    return result


def overlap_reference(found, true) -> np.ndarray:
    found, true = np.asarray(found), np.asarray(true)
    result = np.ones(found.shape[:-2])
    for place in np.ndindex(result.shape):
        both = sum(a and b for a, b in zip(found[place].ravel(), true[place].ravel()))
        either = sum(a or b for a, b in zip(found[place].ravel(), true[place].ravel()))
        result[place] = both / either if either else 1.0
    return result


def shares_of(weights: Tensor) -> Tensor:
    weights = weights.double()
    return weights / weights.sum(dim=-1, keepdim=True)


KEEPS: dict[str, Callable[[Tensor, float], Tensor]] = {
    "the patch that crosses the mass is left out: without it the patches hold less": lambda weights, mass: smallest_set(
        shares_of(weights), mass, without_the_last
    ),
    "the weights are not divided by their sum: that of a row is less than 1, since the class token has its share": (
        lambda weights, mass: smallest_set(weights.double(), mass, before_it)
    ),
    "the kept places are places in the sorted order: each must find back to its own patch (scatter)": (
        lambda weights, mass: not_undone(shares_of(weights), mass)
    ),
    "these are the patches above the mean, a fixed threshold: keep the fewest that hold the mass together": (
        lambda weights, mass: weights > weights.mean(dim=-1, keepdim=True)
    ),
}


def precision(found: Tensor, true: Tensor) -> Tensor:
    both, a = (x.sum(dim=(-2, -1)) for x in (found & true, found))
    return torch.where(a > 0, both / a.clamp(min=1), 1.0)


def masks_cases(generator: torch.Generator) -> list[Case]:
    def attention(B, H, N, mass):
        """Every mistake keeps something else, and the patches of each row reach the mass clearly."""
        while True:
            rows = numbers(B, H, N + 1, generator=generator, scale=1.2).softmax(dim=-1)[..., 1:]
            ordered = shares_of(rows).sort(descending=True).values
            near = (ordered.cumsum(dim=-1) - mass).abs().amin(dim=-1) < 0.01
            right = smallest_set(shares_of(rows), mass, before_it)
            if not near.any() and all((keep(rows, mass) != right).any() for keep in KEEPS.values()):
                return rows

    def long_row(about, B, H, N):
        """Each weight is a little less than the one before; the mass lies in the middle of one."""
        order = [torch.randperm(N, generator=generator) for _ in range(B * H)]
        rows = 0.01 * (-0.03 * torch.stack(order)).exp().view(B, H, N)
        sums, kept = shares_of(rows[0, 0]).sort(descending=True).values.cumsum(dim=0), number(generator, 30, 60)
        return keep(about, rows, round(sums[kept - 1 : kept + 1].mean().item(), 4))

    def keep(about, weights, mass, **more):
        return Case("mass", f"keep_mass: {about}, mass {mass}", ("keep_mass", weights, mass), **more)

    def pixels(about, B, H, rows, columns, size):
        chosen = torch.rand(B, H, rows * columns, generator=generator) < 0.5
        chosen[..., :3], chosen[..., -1] = torch.tensor([True, False, False]), True  # no mistake gives the same
        return Case("pixels", f"as_pixels: {about}", ("as_pixels", chosen, rows, columns, size))

    def overlap(about, *shape, empty=()):
        """Each pair but the ``empty`` ones has at least as many pixels of each kind as the first case."""
        kinds = [3] * 2 + [1] * 3 + [2] * 2 + [0] * (shape[-1] * shape[-2] - 7)  # 1 is found alone, 2 is true alone
        rows = [torch.tensor(kinds) for _ in range(int(np.prod(shape[:-2])))]
        for i, row in enumerate(rows):
            row[12:] = torch.randint(4, (len(row) - 12,), generator=generator)
            rows[i] = row[torch.randperm(len(row), generator=generator)] * (i not in empty)
        pixels = torch.stack(rows).view(shape)
        return Case("overlap", f"jaccard: {about}", ("jaccard", pixels % 2 == 1, pixels > 1))

    B, H, size = sizes(generator, 3, 2, 4)
    rows, columns = sizes(generator, 2, 3, 5)
    mass = share(generator, 0.55, 0.7)
    tiny = torch.tensor([[[0.05, 0.25, 0.055, 0.19, 0.02, 0.065]]])  # the class token has the rest
    return [
        keep("one image, one head, six patches", tiny, 0.6, public=True),
        keep("a batch", attention(B, H, rows * columns, mass), mass),
        long_row("144 patches, of which many are kept", 2, 2, 144),
        keep("B = H = N: no axis can be told by its size", attention(5, 5, 5, 0.6), 0.6),
        pixels("one image, one head, 2 x 3 patches of 2 x 2 pixels", 1, 1, 2, 3, 2),
        pixels(f"a batch, {rows} x {columns} patches of {size} x {size} pixels", B, H, rows, columns, size),
        pixels("3 x 3 patches", B, H, 3, 3, 2),
        overlap("one pair of masks of 2 x 6 pixels", 2, 6),
        overlap("a batch", B, H, 5, 6),
        overlap("a batch, in which one pair is empty", B + 1, 4, 5, empty=[1]),
    ]


masks = Part(
    "masks",
    {"mass": 6, "pixels": 3, "overlap": 4},
    masks_cases,
    by_task(keep_mass=keep_reference, as_pixels=pixels_reference, jaccard=overlap_reference),
    {
        **{words: by_task(keep_mass=keep) for words, keep in KEEPS.items()},
        "the grid is filled column by column: the patches go row by row": by_task(
            as_pixels=lambda kept, rows, columns, size: (
                kept.unflatten(-1, (columns, rows)).mT.repeat_interleave(size, -2).repeat_interleave(size, -1)
            )
        ),
        "the whole grid is repeated, like tiles: each patch becomes size x size equal pixels": by_task(
            as_pixels=lambda kept, rows, columns, size: kept.unflatten(-1, (rows, columns)).repeat(1, 1, size, size)
        ),
        "this is the accuracy, which counts the background too: |A and B| / |A or B|": by_task(
            jaccard=lambda found, true: (found == true).double().mean(dim=(-2, -1))
        ),
        "this is the precision, the share of what was found that is right: divide by |A or B|": by_task(
            jaccard=precision
        ),
    },
)

PARTS = (averages, centring, pair_loss, crops, steps, knn_votes, masks)
WRITTEN = {"read_the_curves": 12}
score = partial(show_score, PARTS, WRITTEN)
