"""Answers to exercise 09, wrong ones with the points they deserve and the words they must be told, and right ones.

A wrong answer is ``(points, words, source)``. Each is a mistake that a student could make.
"""


def following(
    rate="1 - (1 - momentum) * (math.cos(math.pi * step / steps) + 1) / 2",
    which="zip(teacher.parameters(), student.parameters())",
    move="theirs.copy_(momentum * theirs + (1 - momentum) * ours)",
    how="with torch.no_grad():",
):
    """Both functions, and something else in them."""
    return f"""
def momentum_at(step, steps, momentum):
    return {rate}

def follow(teacher, student, momentum):
    {how}
        for theirs, ours in {which}:
            {move}
"""


def centred(
    targets="torch.softmax((logits - centre) / temperature, dim=-1)",
    rows="logits.flatten(0, 1)",
    centre="momentum * centre + (1 - momentum) * mean",
):
    """Both functions, and something else in them."""
    return f"""
def targets(logits, centre, temperature):
    return {targets}

def new_centre(centre, logits, momentum):
    mean = {rows}.mean(dim=0)
    return {centre}
"""


def paired(
    log_p="torch.log_softmax(student / temperature, dim=-1)",
    losses="-(targets[:, :, None] * log_p[:, None]).sum(dim=-1)",
    other="~torch.eye(G, V, dtype=torch.bool)",
    mean="losses[:, other].mean()",
):
    """All pairs as one table (B, G, V), and something else in it."""
    return f"""
def pair_loss(student, targets, temperature):
    G, V = targets.shape[1], student.shape[1]
    log_p = {log_p}
    losses = {losses}
    other = {other}
    return {mean}
"""


def grouped(
    key="view.shape[-1]",
    together="torch.cat([views[v] for v in places])",
    part="vectors.view(len(places), B, -1)[i]",
    result="torch.stack([found[v] for v in range(len(views))], dim=1)",
):
    """Groups in a dictionary, and something else with them."""
    return f"""
def encode(backbone, views):
    groups, found, B = {{}}, {{}}, len(views[0])
    for v, view in enumerate(views):
        groups.setdefault({key}, []).append(v)
    for places in groups.values():
        vectors = backbone({together})
        for i, v in enumerate(places):
            found[v] = {part}
    return {result}
"""


TEACHER_SAYS = """with torch.no_grad():
        raw = teacher(views[:, :2])"""
GOAL = "goal = course_targets(raw, centre, settings.teacher_temperature)"
LOSS = """loss = course_losses(student(views), goal, settings.student_temperature).mean()
    optimizer.zero_grad()
    loss.backward()"""
STEP = "optimizer.step()"
FOLLOW = """with torch.no_grad():
        for theirs, ours in zip(teacher.parameters(), student.parameters()):
            theirs.copy_(settings.momentum * theirs + (1 - settings.momentum) * ours)"""
CENTRE = """m = settings.centre_momentum
    centre = m * centre + (1 - m) * raw.detach().flatten(0, 1).mean(dim=0)"""


def stepping(*lines):
    """One step, from these lines in their order."""
    body = "\n    ".join(lines or (TEACHER_SAYS, GOAL, LOSS, STEP, FOLLOW, CENTRE))
    return f"""
def training_step(student, teacher, optimizer, centre, views, settings):
    {body}
    return loss, centre
"""


def voting(
    cosines="F.normalize(queries, dim=-1) @ F.normalize(features, dim=-1).T",
    nearest="cosines.topk(k)",
    weights="torch.exp(nearest / temperature)",
    add="votes.scatter_add(1, labels[rows], weights)",
):
    """The three steps, and something else in them."""
    return f"""
def knn_votes(features, labels, queries, k, temperature, classes):
    cosines = {cosines}
    nearest, rows = {nearest}
    weights = {weights}
    votes = torch.zeros(len(queries), classes)
    return {add}
"""


def masking(
    keep="""shares, places = (weights / weights.sum(dim=-1, keepdim=True)).sort(dim=-1, descending=True)
    kept = shares.cumsum(dim=-1) - shares < mass
    return torch.zeros_like(kept).scatter(-1, places, kept)""",
    pixels="""grid = kept.view(*kept.shape[:2], rows, 1, columns, 1).expand(-1, -1, -1, size, -1, size)
    return grid.reshape(*kept.shape[:2], rows * size, columns * size)""",
    overlap="torch.where(either == 0, 1.0, both / either)",
):
    """The three functions, and something else in them."""
    return f"""
def keep_mass(weights, mass):
    {keep}

def as_pixels(kept, rows, columns, size):
    {pixels}

def jaccard(found, true):
    both = (found & true).flatten(-2).sum(dim=-1)
    either = (found | true).flatten(-2).sum(dim=-1)
    return {overlap}
"""


MUTANTS = {
    "averages": [
        (7, "the cosine is the wrong way round", following(
            "1 - (1 - momentum) * (1 - math.cos(math.pi * step / steps)) / 2"
        )),
        (7, "it falls from momentum to 0", following("momentum * (1 + math.cos(math.pi * step / steps)) / 2")),
        (7, "it comes back to momentum at the end", following(
            "1 - (1 - momentum) * (1 + math.cos(2 * math.pi * step / steps)) / 2"
        )),
        (7, "it rises along a straight line", following("momentum + (1 - momentum) * step / steps")),
        (7, "the average is the wrong way round", following(
            move="theirs.copy_((1 - momentum) * theirs + momentum * ours)"
        )),
        (7, "the teacher that was given has not changed", following(
            move="theirs = momentum * theirs + (1 - momentum) * ours"
        )),
        (7, "only the matrices follow", following(
            which="[(t.weight, s.weight) for t, s in zip(teacher, student)]"
        )),
        (10, "the teacher's weights now hang on the student's", following(how="if True:")),
    ],
    "centring": [
        (6, "the mean is that of probabilities", centred(rows="logits.softmax(dim=-1).flatten(0, 1)")),
        (6, "the average is the wrong way round", centred(centre="(1 - momentum) * centre + momentum * mean")),
        (6, "the mean is that of centred logits", centred(rows="(logits - centre).flatten(0, 1)")),
        (6, "each view has a centre of its own", centred(rows="logits")),
        (6, "the centre is added", centred("torch.softmax((logits + centre) / temperature, dim=-1)")),
        (6, "the centre is taken away after the division", centred(
            "torch.softmax(logits / temperature - centre, dim=-1)"
        )),
        (6, "the logits are multiplied by the temperature", centred(
            "torch.softmax((logits - centre) * temperature, dim=-1)"
        )),
        (6, "the softmax runs over the views", centred("torch.softmax((logits - centre) / temperature, dim=1)")),
    ],
    "pair_loss": [
        (0, "pairs of a view with itself are kept", paired(mean="losses.mean()")),
        (0, "pairs of a view with itself are set to 0, but counted", paired(mean="(losses * other).mean()")),
        (0, "the global views are taken for the last ones", paired(
            other="~torch.eye(V, dtype=torch.bool)[V - G :]", mean="losses[:, other].mean()"
        )),
        (4, "only local views are compared", paired(mean="losses[:, :, G:].mean()")),
        (9, "the temperature is not used", paired("torch.log_softmax(student, dim=-1)")),
        (0, "teacher and student have changed places", paired(
            losses="-(targets[:, :, None].log() * log_p[:, None].exp()).sum(dim=-1)"
        )),
        (0, "this is the KL divergence", paired(
            losses="(targets[:, :, None] * (targets[:, :, None].log() - log_p[:, None])).sum(dim=-1)"
        )),
        (9, "no finite number", paired("torch.softmax(student / temperature, dim=-1).log()")),
    ],
    "crops": [
        (5, "the vectors stand size by size, in the order in which the sizes come first", grouped(
            result="torch.stack(list(found.values()), dim=1)"
        )),
        (5, "images and views are mixed up", grouped(part="vectors.view(B, len(places), -1)[:, i]")),
        (5, "the first axis is that of the views", grouped(
            result="torch.stack([found[v] for v in range(len(views))])"
        )),
        (6, "the backbone is called once for each view", grouped("v")),
        (6, "the backbone is called again for each run of views of one size", """
def encode(backbone, views):  # as published, where views of one size stand beside each other
    sides = torch.tensor([view.shape[-1] for view in views])
    ends = torch.unique_consecutive(sides, return_counts=True)[1].cumsum(0).tolist()
    found, start = [], 0
    for end in ends:
        vectors = backbone(torch.cat(views[start:end]))
        found += vectors.chunk(end - start)
        start = end
    return torch.stack(found, dim=1)
"""),
        (0, "all views were scaled to one size", """
def encode(backbone, views):
    side = max(view.shape[-1] for view in views)
    views = [F.interpolate(view, size=(side, side), mode="bilinear") for view in views]
    return torch.stack(backbone(torch.cat(views)).chunk(len(views)), dim=1)
"""),
        (6, "the backbone is called once for each image", """
def encode(backbone, views):
    return torch.stack([torch.cat([backbone(image[None]) for image in view]) for view in views], dim=1)
"""),
    ],
    "steps": [
        (14, "a gradient went into the teacher", stepping(
            "raw = teacher(views[:, :2])", GOAL, LOSS, STEP, FOLLOW, CENTRE
        )),
        (5, "the centre is updated before the loss", stepping(TEACHER_SAYS, CENTRE, GOAL, LOSS, STEP, FOLLOW)),
        (11, "the centre follows the targets, which are probabilities", stepping(
            TEACHER_SAYS, GOAL, LOSS, STEP, FOLLOW, CENTRE.replace("raw", "goal")
        )),
        (11, "the teacher follows before the optimizer's step", stepping(
            TEACHER_SAYS, GOAL, LOSS, FOLLOW, STEP, CENTRE
        )),
        (11, "the teacher's average is the wrong way round", stepping(
            TEACHER_SAYS, GOAL, LOSS, STEP,
            FOLLOW.replace("momentum * theirs", "momentum * ours").replace("momentum) * ours", "momentum) * theirs"),
            CENTRE,
        )),
        (5, "the student's temperature sharpens the teacher", stepping(
            TEACHER_SAYS, GOAL.replace("teacher_t", "student_t"), LOSS, STEP, FOLLOW, CENTRE
        )),
        (2, "the teacher sees all views", stepping(
            TEACHER_SAYS.replace("[:, :2]", ""), GOAL, LOSS, STEP, FOLLOW, CENTRE
        )),
        (14, "the gradients are not set to zero", stepping(
            TEACHER_SAYS, GOAL, LOSS.replace("optimizer.zero_grad()", ""), STEP, FOLLOW, CENTRE
        )),
    ],
    "knn_votes": [
        (3, "the temperature is not used", voting(weights="nearest.exp()")),
        (0, "the votes are counted, each as 1", voting(weights="torch.ones_like(nearest)")),
        (0, "a vote weighs as much as its cosine", voting(weights="nearest")),
        (0, "this is the product, not the cosine", voting("queries @ features.T")),
        (0, "the farthest vote", voting(nearest="cosines.topk(k, largest=False)")),
        (0, "the votes of a query are made to sum to 1", voting(weights="(nearest / temperature).softmax(dim=-1)")),
        (0, "the nearest is left out", voting(nearest="[x[:, 1:] for x in cosines.topk(k + 1)]")),
        (7, "of several neighbours of a class only the last one's weight is left", """
def knn_votes(features, labels, queries, k, temperature, classes):
    cosines = F.normalize(queries, dim=-1) @ F.normalize(features, dim=-1).T
    nearest, rows = cosines.topk(k)
    votes = torch.zeros(len(queries), classes)
    for j in range(k):
        votes[torch.arange(len(queries)), labels[rows[:, j]]] = (nearest[:, j] / temperature).exp()
    return votes
"""),
    ],
    "masks": [
        (7, "a fixed threshold", masking("return weights > weights.mean(dim=-1, keepdim=True)")),
        (7, "the patch that crosses the mass is left out", masking("""
    shares, places = (weights / weights.sum(dim=-1, keepdim=True)).sort(dim=-1, descending=True)
    kept = shares.cumsum(dim=-1) < mass
    return torch.zeros_like(kept).scatter(-1, places, kept)""")),
        (7, "the weights are not divided by their sum", masking("""
    shares, places = weights.sort(dim=-1, descending=True)
    kept = shares.cumsum(dim=-1) - shares < mass
    return torch.zeros_like(kept).scatter(-1, places, kept)""")),
        (7, "the kept places are places in the sorted order", masking("""
    shares, places = (weights / weights.sum(dim=-1, keepdim=True)).sort(dim=-1, descending=True)
    return shares.cumsum(dim=-1) - shares < mass""")),
        (10, "the whole grid is repeated, like tiles", masking(
            pixels="return kept.unflatten(-1, (rows, columns)).repeat(1, 1, size, size)"
        )),
        (10, "the grid is filled column by column", masking(
            pixels="grid = kept.unflatten(-1, (columns, rows)).mT\n"
            "    return grid.repeat_interleave(size, -1).repeat_interleave(size, -2)"
        )),
        (9, "this is the accuracy", masking(overlap="(found == true).float().mean(dim=(-2, -1))")),
        (9, "this is the precision", masking(overlap="both / found.flatten(-2).sum(dim=-1)")),
    ],
}  # fmt: skip

RIGHT = {
    "averages": [
        following(),
        """
def momentum_at(step, steps, momentum):
    return momentum + (1 - momentum) * math.sin(0.5 * math.pi * step / steps) ** 2

@torch.no_grad()
def follow(teacher, student, momentum):
    torch._foreach_lerp_(list(teacher.parameters()), list(student.parameters()), 1 - momentum)
""",
        """
def momentum_at(step, steps, momentum):
    done = torch.tensor(step / steps)
    return torch.lerp(torch.tensor(1.0), torch.tensor(momentum), 0.5 + 0.5 * torch.cos(torch.pi * done))

def follow(teacher, student, momentum):
    theirs, ours = teacher.state_dict(), student.state_dict()
    teacher.load_state_dict({name: momentum * theirs[name] + (1 - momentum) * ours[name] for name in theirs})
""",
    ],
    "centring": [
        centred(),
        """
from coursekit.models.dino import sharpen

targets = sharpen  # the course's own

def new_centre(centre, logits, momentum):
    B, G, K = logits.shape
    return torch.lerp(centre, torch.einsum("bgk->k", logits) / (B * G), 1 - momentum)
""",
        """
def targets(logits, centre, temperature):
    x = (logits - centre.view(1, 1, -1)) / temperature
    e = (x - x.amax(dim=2, keepdim=True)).exp()
    return e / e.sum(dim=2, keepdim=True)

def new_centre(centre, logits, momentum):
    return centre + (1 - momentum) * (logits - centre).mean(dim=1).mean(dim=0)
""",
    ],
    "pair_loss": [
        paired(),
        """
from coursekit.models.dino import pair_losses

def pair_loss(student, targets, temperature):  # the course's own
    return pair_losses(student, targets, temperature).mean()
""",
        """
def pair_loss(student, targets, temperature):
    losses = []
    for g, target in enumerate(targets.unbind(dim=1)):
        others = [v for v in range(student.shape[1]) if v != g]
        for v in others:
            losses.append(F.cross_entropy(student[:, v] / temperature, target))
    return sum(losses) / len(losses)
""",
    ],
    "crops": [
        grouped(),
        """
def encode(backbone, views):
    sides = torch.tensor([view.shape[-1] for view in views])
    result = None
    for side in sides.unique():
        places = (sides == side).nonzero()[:, 0]
        x = torch.stack([views[v] for v in places], dim=1)  # (B, its number, C, side, side)
        vectors = backbone(x.flatten(0, 1)).unflatten(0, x.shape[:2])
        if result is None:
            result = vectors.new_empty(len(views[0]), len(views), vectors.shape[-1])
        result[:, places] = vectors
    return result
""",
    ],
    "steps": [
        stepping(),
        """
def training_step(student, teacher, optimizer, centre, views, settings):
    student.zero_grad()
    raw = teacher(views)[:, :2].detach()
    p = ((raw - centre) / settings.teacher_temperature).softmax(dim=-1)
    log_p = (student(views) / settings.student_temperature).log_softmax(dim=-1)
    pairs = [(g, v) for g in range(2) for v in range(views.shape[1]) if g != v]
    loss = -sum((p[:, g] * log_p[:, v]).sum(dim=-1).mean() for g, v in pairs) / len(pairs)
    loss.backward()
    optimizer.step()
    for theirs, ours in zip(teacher.parameters(), student.parameters()):
        theirs.data += (1 - settings.momentum) * (ours.data - theirs.data)
    return loss.item(), centre + (1 - settings.centre_momentum) * (raw.mean(dim=0).mean(dim=0) - centre)
""",
        """
@torch.no_grad()
def training_step(student, teacher, optimizer, centre, views, settings):
    raw = teacher(views[:, :2])
    old = centre.clone()
    centre = centre.lerp(raw.mean(dim=(0, 1)), 1 - settings.centre_momentum)  # early, but the loss has the old one
    with torch.enable_grad():
        targets = course_targets(raw, old, settings.teacher_temperature)
        loss = course_losses(student(views), targets, settings.student_temperature).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    weights = zip(teacher.state_dict().values(), student.state_dict().values())
    for theirs, ours in weights:
        theirs.lerp_(ours, 1 - settings.momentum)
    return loss, centre
""",
    ],
    "knn_votes": [
        voting(),
        """
def knn_votes(features, labels, queries, k, temperature, classes):
    votes = torch.zeros(len(queries), classes)
    for i, query in enumerate(queries):
        cosines = F.cosine_similarity(query[None], features)
        for row in cosines.argsort(descending=True)[:k]:
            votes[i, labels[row]] += math.exp(cosines[row] / temperature)
    return votes
""",
        """
def knn_votes(features, labels, queries, k, temperature, classes):
    cosines = queries @ features.T / queries.norm(dim=1)[:, None] / features.norm(dim=1)
    least = cosines.sort(dim=1, descending=True).values[:, k - 1 : k]
    weights = (cosines / temperature).exp() * (cosines >= least)  # (m, n)
    return weights @ F.one_hot(labels, classes).float()
""",
    ],
    "masks": [
        masking(),
        """
def keep_mass(weights, mass):
    larger = weights[..., None, :] > weights[..., :, None]  # (B, H, N, N): those larger than each
    before = (larger * weights[..., None, :]).sum(dim=-1)
    return before < mass * weights.sum(dim=-1, keepdim=True)

def as_pixels(kept, rows, columns, size):
    grid = kept.view(*kept.shape[:2], rows, columns).float()
    return F.interpolate(grid, scale_factor=size, mode="nearest").bool()

def jaccard(found, true):
    both = torch.logical_and(found, true).float().sum(dim=(-1, -2))
    either = found.float().sum(dim=(-1, -2)) + true.float().sum(dim=(-1, -2)) - both
    return (both / either).nan_to_num(1.0)
""",
        """
from coursekit.evaluate.features import jaccard, keep_mass  # the course's own

def as_pixels(kept, rows, columns, size):
    block = torch.ones(size, size, dtype=torch.int)
    heads = [torch.kron(head.view(rows, columns).int(), block) for head in kept.flatten(0, 1)]
    return torch.stack(heads).view(*kept.shape[:2], rows * size, columns * size) > 0
""",
    ],
}  # fmt: skip
