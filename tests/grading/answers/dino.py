"""Answers to exercise 09, right and wrong ones: see __init__."""

from tests.grading.answers import FIRST, load

RIGHT, MUTANTS = load("09_dino", {
"averages": (FIRST, ["""def momentum_at(step, steps, momentum):
    return 1 - (1 - momentum) * (math.cos(math.pi * step / steps) + 1) / 2
def follow(teacher, student, momentum):
    with torch.no_grad():
        for theirs, ours in zip(teacher.parameters(), student.parameters()):
            theirs.copy_(momentum * theirs + (1 - momentum) * ours)
""", """def momentum_at(step, steps, momentum):
    return momentum + (1 - momentum) * math.sin(0.5 * math.pi * step / steps) ** 2
@torch.no_grad()
def follow(teacher, student, momentum):
    torch._foreach_lerp_(list(teacher.parameters()), list(student.parameters()), 1 - momentum)
""", """def momentum_at(step, steps, momentum):
    done = torch.tensor(step / steps)
    return torch.lerp(torch.tensor(1.0), torch.tensor(momentum), 0.5 + 0.5 * torch.cos(torch.pi * done))
def follow(teacher, student, momentum):
    theirs, ours = teacher.state_dict(), student.state_dict()
    teacher.load_state_dict({name: momentum * theirs[name] + (1 - momentum) * ours[name] for name in theirs})
"""], [
    (7, "the cosine is the wrong way round",
     "math.cos(math.pi * step / steps) + 1", "1 - math.cos(math.pi * step / steps)"),
    (7, "it falls from momentum to 0", "1 - (1 - momentum) * (math.cos(math.pi * step / steps) + 1) / 2",
     "momentum * (1 + math.cos(math.pi * step / steps)) / 2"),
    (7, "it comes back to momentum at the end", "math.pi * step", "2 * math.pi * step"),
    (7, "it rises along a straight line",
     "1 - (1 - momentum) * (math.cos(math.pi * step / steps) + 1) / 2", "momentum + (1 - momentum) * step / steps"),
    (7, "1 - momentum takes the place of `momentum`",
     "momentum * theirs + (1 - momentum) * ours", "(1 - momentum) * theirs + momentum * ours"),
    (5, "the teacher that was given has not changed",
     "theirs.copy_(momentum * theirs + (1 - momentum) * ours)", "theirs = momentum * theirs + (1 - momentum) * ours"),
    (5, "only the matrices follow",
     "in zip(teacher.parameters(), student.parameters()):",
     "in [ts for ts in zip(teacher.parameters(), student.parameters()) if ts[0].dim() > 1]:"),
    (5, "has the right shape but wrong values", "teacher.parameters(), student.parameters()",
     "teacher.layers[1].parameters(), student.layers[1].parameters()"),
    (5, "only the linear layers follow",
     "in zip(teacher.parameters(), student.parameters()):",
     "in [ts for t, s in zip(teacher.modules(), student.modules()) if isinstance(t, nn.Linear)\n"
     "                             for ts in zip(t.parameters(), s.parameters())]:"),
    (0, "it counts as soon as something of 'teacher' is right", """def momentum_at(step, steps, momentum):
    return momentum
def follow(teacher, student, momentum):
    pass
"""),
    (10, "the teacher's weights now hang on the student's", "with torch.no_grad()", "if True"),
]),
"centring": (FIRST, ["""def targets(logits, centre, temperature):
    return torch.softmax((logits - centre) / temperature, dim=-1)
def new_centre(centre, logits, momentum):
    mean = logits.flatten(0, 1).mean(dim=0)
    return momentum * centre + (1 - momentum) * mean
""", """from coursekit.models.dino import sharpen
targets = sharpen  # the course's own
def new_centre(centre, logits, momentum):
    B, G, K = logits.shape
    return torch.lerp(centre, torch.einsum("bgk->k", logits) / (B * G), 1 - momentum)
""", """def targets(logits, centre, temperature):
    x = (logits - centre.view(1, 1, -1)) / temperature
    e = (x - x.amax(dim=2, keepdim=True)).exp()
    return e / e.sum(dim=2, keepdim=True)
def new_centre(centre, logits, momentum):
    return centre + (1 - momentum) * (logits - centre).mean(dim=1).mean(dim=0)
"""], [
    (6, "the mean is that of probabilities", "logits.flatten", "logits.softmax(dim=-1).flatten"),
    (6, "1 - momentum takes the place of `momentum`",
     "momentum * centre + (1 - momentum) * mean", "(1 - momentum) * centre + momentum * mean"),
    (6, "the mean is that of centred logits", "logits.flatten", "(logits - centre).flatten"),
    (6, "the mean over the first axis of your result is still to be taken", "flatten(0, 1).", ""),
    (6, "no finite number", "torch.softmax((logits - centre) / temperature, dim=-1)",
     "(e := ((logits - centre) / temperature).exp()) / e.sum(dim=-1, keepdim=True)"),
    (6, "`centre` has the wrong sign", "logits - centre", "logits + centre"),
    (6, "the centre is taken away after the division",
     "(logits - centre) / temperature", "logits / temperature - centre"),
    (6, "`temperature` is upside down", "/ temperature", "* temperature"),
    (6, "the softmax runs over the views", "dim=-1", "dim=1"),
]),
"pair_loss": (FIRST, ["""def pair_loss(student, targets, temperature):
    G, V = targets.shape[1], student.shape[1]
    log_p = torch.log_softmax(student / temperature, dim=-1)
    losses = -(targets[:, :, None] * log_p[:, None]).sum(dim=-1)
    other = ~torch.eye(G, V, dtype=torch.bool)
    return losses[:, other].mean()
""", """from coursekit.models.dino import pair_losses
def pair_loss(student, targets, temperature):  # the course's own
    return pair_losses(student, targets, temperature).mean()
""", """def pair_loss(student, targets, temperature):
    losses = []
    for g, target in enumerate(targets.unbind(dim=1)):
        others = [v for v in range(student.shape[1]) if v != g]
        for v in others:
            losses.append(F.cross_entropy(student[:, v] / temperature, target))
    return sum(losses) / len(losses)
"""], [
    (0, "pairs of a view with itself are kept", "losses[:, other]", "losses"),
    (0, "pairs of a view with itself are set to 0, but counted", "losses[:, other]", "(losses * other)"),
    (0, "the global views are taken for the last ones", "(G, V, dtype=torch.bool)", "(V, dtype=torch.bool)[V - G :]"),
    (3, "only local views are compared", "losses[:, other]", "losses[:, :, G:]"),
    (8, "`temperature` is not used", "student / temperature", "student"),
    (0, "the softmax runs over the views", "temperature, dim=-1", "temperature, dim=1"),
    (0, "teacher and student have changed places", " * log_p[:, None]", ".log() * log_p[:, None].exp()"),
    (11, "no gradient arrives", ".mean()", ".mean().item()"),
    (2, "this is the KL divergence",
     "-(targets[:, :, None] * log_p[:, None])", "(targets[:, :, None] * (targets[:, :, None].log() - log_p[:, None]))"),
    (10, "no finite number",
     "torch.log_softmax(student / temperature, dim=-1)", "torch.softmax(student / temperature, dim=-1).log()"),
]),
"crops": (FIRST, ["""def encode(backbone, views):
    groups, found, B = {}, {}, len(views[0])
    for v, view in enumerate(views):
        groups.setdefault(view.shape[-1], []).append(v)
    for places in groups.values():
        vectors = backbone(torch.cat([views[v] for v in places]))
        for i, v in enumerate(places):
            found[v] = vectors.view(len(places), B, -1)[i]
    return torch.stack([found[v] for v in range(len(views))], dim=1)
""", """def encode(backbone, views):
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
"""], [
    (5, "the vectors stand size by size, in the order in which the sizes come first",
     "[found[v] for v in range(len(views))]", "list(found.values())"),
    (5, "images and views are mixed up", "(len(places), B, -1)[i]", "(B, len(places), -1)[:, i]"),
    (5, "the first and the second axis have changed places", ", dim=1", ""),
    (6, "the backbone is called once for each view", "view.shape[-1]", "v"),
    (0, "ten views, five sizes", "groups.values()", "list(groups.values())[:3]"),
    (6, "the backbone is called again for each run of views of one size",
"""def encode(backbone, views):  # as published, where views of one size stand beside each other
    sides = torch.tensor([view.shape[-1] for view in views])
    ends = torch.unique_consecutive(sides, return_counts=True)[1].cumsum(0).tolist()
    found, start = [], 0
    for end in ends:
        vectors = backbone(torch.cat(views[start:end]))
        found += vectors.chunk(end - start)
        start = end
    return torch.stack(found, dim=1)
"""),
    (0, "it counts as soon as something of 'vectors' is right", """def encode(backbone, views):
    found = [backbone(view) for view in {view.shape[-1]: view for view in views}.values()]
    return torch.zeros(len(views[0]), len(views), found[0].shape[-1])
"""),
    (0, "all views were scaled to one size", """def encode(backbone, views):
    side = max(view.shape[-1] for view in views)
    views = [F.interpolate(view, size=(side, side), mode="bilinear") for view in views]
    return torch.stack(backbone(torch.cat(views)).chunk(len(views)), dim=1)
"""),
    (6, "the backbone is called once for each image", """def encode(backbone, views):
    return torch.stack([torch.cat([backbone(image[None]) for image in view]) for view in views], dim=1)
"""),
]),
"steps": (FIRST, ["""def training_step(student, teacher, optimizer, centre, views, settings):
    with torch.no_grad():
        raw = teacher(views[:, :2])
    goal = course_targets(raw, centre, settings.teacher_temperature)
    loss = course_losses(student(views), goal, settings.student_temperature).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for theirs, ours in zip(teacher.parameters(), student.parameters()):
            theirs.copy_(settings.momentum * theirs + (1 - settings.momentum) * ours)
    m = settings.centre_momentum
    centre = m * centre + (1 - m) * raw.detach().flatten(0, 1).mean(dim=0)
    return loss, centre
""", """def training_step(student, teacher, optimizer, centre, views, settings):
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
""", """@torch.no_grad()
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
"""], [
    (14, "a gradient went into the teacher", "with torch.no_grad():\n        raw", "raw"),
    (14, "a gradient went into the teacher: compute its logits inside torch.no_grad()",
     "with torch.no_grad():\n        raw", "raw",
     "    optimizer.step()\n", "    optimizer.step()\n    teacher.zero_grad()\n"),
    (5, "the centre is updated before the loss", """    m = settings.centre_momentum
    centre = m * centre + (1 - m) * raw.detach().flatten(0, 1).mean(dim=0)
""", "", "    goal = ", """    m = settings.centre_momentum
    centre = m * centre + (1 - m) * raw.detach().flatten(0, 1).mean(dim=0)
    goal = """),
    (11, "the centre follows the targets, which are probabilities", "raw.detach", "goal.detach"),
    (11, "the teacher follows before the optimizer's step", "    optimizer.step()\n", "",
     "    m = settings", "    optimizer.step()\n    m = settings"),
    (11, "the teacher's average is the wrong way round", "settings.momentum * theirs + (1 - settings.momentum) * ours",
     "settings.momentum * ours + (1 - settings.momentum) * theirs"),
    (5, "the student's temperature sharpens the teacher", "teacher_temperature", "student_temperature"),
    (0, "the teacher sees all views", "views[:, :2]", "views"),
    (0, "it counts as soon as something of 'loss'",
"""def training_step(student, teacher, optimizer, centre, views, settings):
    return torch.tensor(1.0), centre
"""),
    (9, "has the right shape but wrong values", "    optimizer.step()\n",
     "    for ours in student.parameters():\n        ours.data -= 0.5 * ours.grad\n"),
    (14, "the student's step is not the optimizer's", "    optimizer.step()\n",
     """    rate, decay = (optimizer.param_groups[0][name] for name in ("lr", "weight_decay"))
    for ours in student.parameters():
        ours.data -= rate * (ours.grad + decay * ours.data)
"""),
    (14, "the gradients are not set to zero", "    optimizer.zero_grad()\n", ""),
]),
"knn_votes": (FIRST, ["""def knn_votes(features, labels, queries, k, temperature, classes):
    cosines = F.normalize(queries, dim=-1) @ F.normalize(features, dim=-1).T
    nearest, rows = cosines.topk(k)
    weights = torch.exp(nearest / temperature)
    votes = torch.zeros(len(queries), classes)
    return votes.scatter_add(1, labels[rows], weights)
""", """def knn_votes(features, labels, queries, k, temperature, classes):
    votes = torch.zeros(len(queries), classes)
    for i, query in enumerate(queries):
        cosines = F.cosine_similarity(query[None], features)
        for row in cosines.argsort(descending=True)[:k]:
            votes[i, labels[row]] += math.exp(cosines[row] / temperature)
    return votes
""", """def knn_votes(features, labels, queries, k, temperature, classes):
    cosines = queries @ features.T / queries.norm(dim=1)[:, None] / features.norm(dim=1)
    least = cosines.sort(dim=1, descending=True).values[:, k - 1 : k]
    weights = (cosines / temperature).exp() * (cosines >= least)  # (m, n)
    return weights @ F.one_hot(labels, classes).float()
"""], [
    (3, "`temperature` is not used", "torch.exp(nearest / temperature)", "nearest.exp()"),
    (0, "the votes are counted, each as 1", "torch.exp", "torch.ones_like", "nearest / temperature", "nearest"),
    (0, "a vote weighs as much as its cosine", "torch.exp(nearest / temperature)", "nearest"),
    (0, "this is the product, not the cosine",
     "F.normalize(queries, dim=-1) @ F.normalize(features, dim=-1).T", "queries @ features.T"),
    (0, "the farthest vote", "cosines.topk(k)", "cosines.topk(k, largest=False)"),
    (0, "the votes of a query are made to sum to 1",
     "torch.exp(nearest / temperature)", "(nearest / temperature).softmax(dim=-1)"),
    (7, "many neighbours", "cosines.topk(k)", "cosines.topk(min(k, 8))"),
    (0, "the nearest is left out", "cosines.topk(k)", "[x[:, 1:] for x in cosines.topk(k + 1)]"),
    (7, "of several neighbours of a class only the last one's weight is left",
     "return votes.scatter_add(1, labels[rows], weights)", """for j in range(k):
        votes[torch.arange(len(queries)), labels[rows[:, j]]] = weights[:, j]
    return votes"""),
]),
"masks": (FIRST, ["""def keep_mass(weights, mass):
    shares, places = (weights / weights.sum(dim=-1, keepdim=True)).sort(dim=-1, descending=True)
    kept = shares.cumsum(dim=-1) - shares < mass
    return torch.zeros_like(kept).scatter(-1, places, kept)
def as_pixels(kept, rows, columns, size):
    grid = kept.view(*kept.shape[:2], rows, 1, columns, 1).expand(-1, -1, -1, size, -1, size)
    return grid.reshape(*kept.shape[:2], rows * size, columns * size)
def jaccard(found, true):
    both = (found & true).flatten(-2).sum(dim=-1)
    either = (found | true).flatten(-2).sum(dim=-1)
    return torch.where(either == 0, 1.0, both / either)
""", """def keep_mass(weights, mass):
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
""", """from coursekit.evaluate.features import jaccard, keep_mass  # the course's own
def as_pixels(kept, rows, columns, size):
    block = torch.ones(size, size, dtype=torch.int)
    heads = [torch.kron(head.view(rows, columns).int(), block) for head in kept.flatten(0, 1)]
    return torch.stack(heads).view(*kept.shape[:2], rows * size, columns * size) > 0
"""], [
    (7, "a fixed threshold",
     "shares, places = ", "return weights > weights.mean(dim=-1, keepdim=True)\n    shares, places = "),
    (7, "the patch that crosses the mass is left out", " - shares", ""),
    (7, "the weights are not divided by their sum", "(weights / weights.sum(dim=-1, keepdim=True))", "weights"),
    (7, "the kept places are places in the sorted order", "torch.zeros_like(kept).scatter(-1, places, kept)", "kept"),
    (7, "144 patches", ".sort(dim=-1, descending=True)", ".topk(min(24, weights.shape[-1]))",
     "torch.zeros_like(kept)", "torch.zeros_like(weights, dtype=torch.bool)"),
    (10, "the whole grid is repeated, like tiles",
     "grid = kept", "return kept.unflatten(-1, (rows, columns)).repeat(1, 1, size, size)\n    grid = kept"),
    (10, "the grid is filled column by column",
     "grid = kept", "kept = kept.unflatten(-1, (columns, rows)).mT.flatten(-2)\n    grid = kept"),
    (9, "this is the accuracy",
     "torch.where(either == 0, 1.0, both / either)", "(found == true).float().mean(dim=(-2, -1))"),
    (9, "this is the precision",
     "torch.where(either == 0, 1.0, both / either)", "both / found.flatten(-2).sum(dim=-1)"),
]),
})  # fmt: skip
