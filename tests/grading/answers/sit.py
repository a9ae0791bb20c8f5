"""Answers to exercise 08, wrong ones with the points they deserve and the words they must be told, and right ones.

A wrong answer is ``(points, words, source)``. Each is a mistake that a student could make.
"""


def covering(
    block="mask[top : top + h, left : left + w] = True",
    order="top, left, h, w",
    enough="mask.sum() >= share * height * width",
    count="",
    after="mask",
    corrupted="torch.where(masks[:, None], filling, images)",
):
    """A loop over blocks, and something else in it."""
    return f"""
def block_mask(blocks, height, width, share):
    mask, area = torch.zeros(height, width, dtype=torch.bool), 0
    for {order} in blocks.tolist():
        if {enough}:
            break
        {count}
        {block}
    return {after}

def corrupt(images, masks, filling):
    return {corrupted}
"""


def turning(
    one="torch.rot90(image, int(k), (1, 2))",
    turns="turns",
    images="images.repeat_interleave(4, dim=0)",
    labels="torch.arange(4).repeat(len(images))",
    said="labels",
):
    """One image after the other, and something else in it."""
    return f"""
def turn(images, turns):
    return torch.stack([{one} for image, k in zip(images, {turns})])

def four_turns(images):
    labels = {labels}
    return turn({images}, labels), {said}
"""


def restoring(
    error="(found - clean).abs()", channels="error.mean(dim=1)", kept="masks.float()", result="total / n.clamp(min=1)"
):
    """Step by step, and something else in it."""
    return f"""
def reconstruction_losses(found, clean, masks):
    error = {error}
    kept = {kept}
    total = ({channels} * kept).sum(dim=(1, 2))
    n = kept.sum(dim=(1, 2))
    return {result}
"""


def contrasting(
    unit="z / z.norm(dim=1, keepdim=True)",
    similar="z @ z.T / temperature",
    mask="similar.masked_fill(torch.eye(len(z), dtype=torch.bool), -torch.inf)",
    other="torch.arange(len(z)) + 1 - 2 * (torch.arange(len(z)) % 2)",
    losses="F.cross_entropy(similar, other, reduction='none')",
    result="losses.view(-1, 2)",
):
    """One table of all views, and something else in it."""
    return f"""
def contrastive_losses(vectors, temperature):
    z = vectors.reshape(-1, vectors.shape[-1])
    z = {unit}
    similar = {similar}
    similar = {mask}
    other = {other}
    losses = {losses}
    return {result}
"""


def summing(
    variances="torch.exp(log_variances)",
    total="(losses / (2 * variances) + torch.log(1 + variances)).sum()",
    best="torch.log((losses + (losses**2 + 8 * losses).sqrt()) / 4)",
):
    """Both functions, and something else in them."""
    return f"""
def weigh(losses, log_variances):
    variances = {variances}
    return {total}

def best_log_variances(losses):
    return {best}
"""


def judging(
    mean="features.mean(dim=0)",
    deviation="features.std(dim=0, correction=0)",
    constant="torch.where(deviation > 0, deviation, 1.0)",
    queries="(queries - mean) / deviation",
    cosines="F.normalize(queries, dim=1) @ F.normalize(features, dim=1).T",
    weights="(found / temperature).exp()",
    votes="votes.scatter_add(1, labels[rows], weights)",
    k="k",
    shares="votes / votes.sum(dim=1, keepdim=True)",
):
    """Both functions, and something else in them."""
    return f"""
def standardise(features, queries):
    mean, deviation = {mean}, {deviation}
    deviation = {constant}
    return (features - mean) / deviation, {queries}

def knn_shares(features, labels, queries, k, temperature, classes):
    cosines = {cosines}
    found, rows = cosines.topk({k}, dim=1)
    weights = {weights}
    votes = torch.zeros(len(queries), classes)
    votes = {votes}
    return {shares}
"""


def learning(
    updates=3,
    objective="contrastive",
    views="lit(some), lit(some)",
    losses="course_contrastive(vectors, 0.2).mean()",
    rate="4e-3 * min((step + 1) / warmup, (updates - step) / (updates - warmup))",
    step="optimizer.step()",
    optimizer="AdamW",
    returned="model",
    batch=128,
):
    """A loop with two views, and something else in it."""
    return f"""
def pretrain(images):
    updates, model = {updates}, new_sit("{objective}")
    warmup = 1 + updates // 10
    optimizer = torch.optim.{optimizer}(model.parameters(), lr=1.0)
    for step in range(updates):
        optimizer.param_groups[0]["lr"] = {rate}
        some = images[torch.randperm(len(images))[:{batch}]]
        views = torch.stack([{views}], dim=1)
        found = model(views.flatten(0, 1))
        vectors = found.get("contrastive", views.flatten(2).flatten(0, 1)).unflatten(0, (-1, 2))
        loss = {losses}
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        {step}
    return {returned}
"""


RESTORING = (
    "course_reconstruction(found['reconstruction'], views.flatten(0, 1), torch.ones(2 * len(some), 8, 8) > 0).mean()"
)

MUTANTS = {
    "block_masks": [
        (10, "a pixel in two blocks counts twice", covering(
            enough="area >= share * height * width", count="area += h * w"
        )),
        (3, "rows and columns have changed places", covering(order="left, top, w, h")),
        (3, "the third and fourth number are read as the lower and the right edge", covering(
            "mask[top:h, left:w] = True"
        )),
        (3, "the block with which the share is reached is left out", covering(count="""before = mask.clone()
        before[top : top + h, left : left + w] = True
        if before.sum() >= share * height * width:
            break""")),
        (6, "all blocks are taken", covering(enough="False")),
        (9, "one block too many", covering(enough="mask.sum() > share * height * width")),
        (3, "the mask is the other way round", covering(after="~mask")),
        (10, "the filling stands outside of the mask", covering(
            corrupted="torch.where(masks[:, None], images, filling)"
        )),
    ],
    "rotations": [
        (0, "the images are turned clockwise: one quarter", turning("torch.rot90(image, -int(k), (1, 2))")),
        (6, "the images are turned clockwise, or the labels count clockwise", turning(said="(4 - labels) % 4")),
        (6, "images and labels have different orders: the labels go 0 1 2 3 0 1 2 3", turning(
            images="images.repeat(4, 1, 1, 1)",
            labels="torch.arange(4).repeat_interleave(len(images))",
            said="torch.arange(4).repeat(len(images))",
        )),
        (6, "images and labels have different orders: the turns go 0 1 2 3 0 1 2 3", turning(
            said="torch.arange(4).repeat_interleave(len(images))"
        )),
        (6, "all images with no turn come first", turning(
            images="images.repeat(4, 1, 1, 1)", labels="torch.arange(4).repeat_interleave(len(images))"
        )),
        (9, "each image is turned by the first one's number", """
def turn(images, turns):
    return torch.rot90(images, int(turns[0]), (2, 3))

def four_turns(images):
    found = torch.stack([torch.rot90(images, k, (2, 3)) for k in range(4)], dim=1)
    return found.flatten(0, 1), torch.arange(4).repeat(len(images))
"""),
        (0, "the images are mirrored at their diagonal", turning(
            "(image, image.mT, image.flip(-1, -2), image.mT.flip(-1, -2))[int(k)]"
        )),
        (6, "the labels are the images' numbers", turning(
            said="torch.arange(len(images)).repeat_interleave(4)"
        )),
    ],
    "reconstruction_losses": [
        (0, "all pixels count", restoring(kept="torch.ones_like(masks).float()")),
        (0, "this is the mean over all pixels, with zeros where nothing was corrupted", restoring(
            result="total / masks[0].numel()"
        )),
        (0, "the pixels that were not corrupted count", restoring(kept="(~masks).float()")),
        (0, "the errors are squared", restoring("(found - clean) ** 2")),
        (5, "the channels are added up", restoring(channels="error.sum(dim=1)")),
        (0, "this is one number for all", restoring(result="total.sum() / n.sum()")),
        (5, "all corrupted pixels of the batch are counted together", restoring(result="total / n.sum().clamp(min=1)")),
        (8, "an image without a corrupted pixel gives 0 / 0", restoring(result="total / n")),
    ],
    "contrastive_losses": [
        (0, "the view itself is among those to choose from", contrasting(mask="similar")),
        (0, "the view itself keeps the logit 0 in the sum", contrasting(
            mask="similar.masked_fill(torch.eye(len(z), dtype=torch.bool), 0.0)"
        )),
        (0, "only the first views look for their partners", """
def contrastive_losses(vectors, temperature):
    first, second = F.normalize(vectors, dim=-1).unbind(dim=1)
    return F.cross_entropy(first @ second.T / temperature, torch.arange(len(first)), reduction="none")
"""),
        (0, "the other view is left out of the sum", contrasting(
            losses="similar.scatter(1, other[:, None], -torch.inf).logsumexp(dim=1) - similar[range(len(z)), other]"
        )),
        (0, "this is the partner's place as if all first views came before all second ones", contrasting(
            other="(torch.arange(len(z)) + len(z) // 2) % len(z)"
        )),
        (9, "the cosines are not divided by the temperature", contrasting(similar="z @ z.T")),
        (9, "the cosines are multiplied by the temperature", contrasting(similar="z @ z.T * temperature")),
        (12, "the vectors are not scaled to length 1", contrasting("z")),
    ],
    "weighing": [
        (3, "s is taken for the variance itself", summing("log_variances")),
        (3, "the term ln(1 + sigma^2) is missing", summing(total="(losses / (2 * variances)).sum()")),
        (3, "this is ln(sigma^2)", summing(total="(losses / (2 * variances) + log_variances).sum()")),
        (3, "the factor 1/2 is missing", summing(total="(losses / variances + torch.log(1 + variances)).sum()")),
        (3, "s is taken for ln(sigma)", summing("torch.exp(log_variances) ** 2")),
        (8, "no gradient reaches s", summing("log_variances.detach().exp()")),
        (8, "this is sigma^2: its logarithm is asked for", summing(
            best="(losses + (losses**2 + 8 * losses).sqrt()) / 4"
        )),
        (8, "this is for ln(sigma^2) in the place of ln(1 + sigma^2)", summing(best="torch.log(losses / 2)")),
    ],
    "evaluation": [
        (6, "the queries are standardised by their own mean and deviation", judging(
            queries="(queries - queries.mean(dim=0)) / queries.std(dim=0, correction=0).clamp(min=1e-6)"
        )),
        (6, "mean and deviation are those of features and queries together", judging(
            "torch.cat([features, queries]).mean(dim=0)", "torch.cat([features, queries]).std(dim=0, correction=0)"
        )),
        (6, "one mean and one deviation for all numbers", judging("features.mean()", "features.std(correction=0)")),
        (10, "a number that is the same in all vectors gives 0 / 0", judging(constant="deviation")),
        (6, "these are products of vectors that are not scaled to length 1", judging(cosines="queries @ features.T")),
        (6, "all neighbours have the same weight", judging(weights="torch.ones_like(found)")),
        (6, "all vectors vote", judging(k="len(features)")),
        (6, "a class with several neighbours has one vote", judging(
            votes="votes.scatter(1, labels[rows], weights)"
        )),
    ],
    "pretrain": [
        (0, "no weight has changed", learning(step="")),
        (0, "two digits in one light are more alike", learning(
            100, views="*[lit(some)] * 2"
        )),
        (0, "your objective gains nothing from what stays", learning(
            60, "reconstruction", losses=RESTORING
        )),
        (0, "its contrastive loss is that of mere guesses", learning(
            60, losses="course_contrastive(vectors.view(2, -1, 64).transpose(0, 1), 0.2).mean()"
        )),
        (6, "train longer", learning(185)),
        (0, "the training diverged", learning(rate="1e38", optimizer="SGD")),
        (0, "it returned a model and something else", learning(returned="model, loss")),
        (0, "this is no SiT", learning(returned="model.vit")),
    ],
}  # fmt: skip

RIGHT = {
    "block_masks": [
        covering(),
        """
def block_mask(blocks, height, width, share):
    covered = torch.zeros(height * width)
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    for top, left, h, w in blocks:
        if covered.count_nonzero() >= share * covered.numel():
            return covered.view(height, width) > 0
        covered += ((y >= top) & (y < top + h) & (x >= left) & (x < left + w)).flatten()
    return covered.view(height, width) > 0

def corrupt(images, masks, filling):
    result = images.clone()
    where = masks.unsqueeze(1).expand_as(images)
    result[where] = filling[where]
    return result
""",
        """
def block_mask(blocks, height, width, share):  # all unions at once, then the first that is enough
    i, j = torch.arange(height)[:, None], torch.arange(width)
    pieces = [((t <= i) & (i < t + h)) & ((l <= j) & (j < l + w)) for t, l, h, w in blocks.tolist()]
    unions = torch.stack([torch.zeros(height, width), *pieces]).cumsum(dim=0) > 0
    enough = unions.sum(dim=(1, 2)) >= share * height * width
    return unions[int(enough.int().argmax()) if enough.any() else -1]

def corrupt(images, masks, filling):
    m = masks[:, None].to(images)
    return m * filling + (1 - m) * images
""",
    ],
    "rotations": [
        turning(),
        """
def turn(images, turns):  # transpose, then upside down: a quarter anticlockwise
    for times in (1, 2, 3):
        images = torch.where((turns >= times)[:, None, None, None], images.mT.flip(2), images)
    return images

def four_turns(images):
    B = len(images)
    result, labels = [], []
    for image in images:
        for k in range(4):
            result.append(torch.rot90(image, k, dims=[-2, -1]))
            labels.append(k)
    return torch.stack(result), torch.tensor(labels)
""",
    ],
    "reconstruction_losses": [
        restoring(),
        """
def reconstruction_losses(found, clean, masks):
    losses = []
    for x, y, mask in zip(found, clean, masks):
        losses.append(F.l1_loss(x[:, mask], y[:, mask]) if mask.any() else torch.tensor(0.0))
    return torch.stack(losses)
""",
    ],
    "contrastive_losses": [
        contrasting(),
        """
def contrastive_losses(vectors, temperature):
    z = F.normalize(vectors, dim=-1)
    B = len(z)
    result = torch.zeros(B, 2)
    for b in range(B):
        for v in range(2):
            near = torch.stack([z[b, v] @ z[i, j] for i in range(B) for j in range(2) if (i, j) != (b, v)])
            result[b, v] = (near / temperature).exp().sum().log() - z[b, 0] @ z[b, 1] / temperature
    return result
""",
        """
def contrastive_losses(vectors, temperature):  # first views before second ones
    B = len(vectors)
    z = F.normalize(torch.cat([vectors[:, 0], vectors[:, 1]]), dim=1)
    e = torch.exp(z @ z.T / temperature)
    below = e.sum(dim=1) - e.diagonal()
    above = torch.cat([e.diagonal(B), e.diagonal(-B)])
    return -torch.log(above / below).view(2, B).T
""",
    ],
    "weighing": [
        summing(),
        """
def weigh(losses, log_variances):
    total = 0
    for loss, s in zip(losses, log_variances):
        total = total + 0.5 * loss * torch.exp(-s) + F.softplus(s)
    return total

def best_log_variances(losses):
    s = torch.zeros_like(losses)
    for _ in range(200):  # sigma^4 = (1 + sigma^2) L / 2, again and again
        s = 0.5 * torch.log((1 + s.exp()) * losses / 2)
    return s
""",
    ],
    "evaluation": [
        judging(),
        """
def standardise(features, queries):
    shift = features.mean(0, keepdim=True)
    variance = ((features - shift) ** 2).mean(0, keepdim=True)
    scale = torch.where(variance == 0, torch.ones_like(variance), variance).sqrt()
    return tuple((x - shift) / scale for x in (features, queries))

def knn_shares(features, labels, queries, k, temperature, classes):
    cosines = F.cosine_similarity(queries[:, None], features[None], dim=-1)
    rows = cosines.argsort(dim=1, descending=True)[:, :k]
    weights = (cosines.gather(1, rows) / temperature).softmax(dim=1)
    return (weights[:, :, None] * F.one_hot(labels[rows], classes)).sum(dim=1)
""",
    ],
    "pretrain": [
        learning(500),
        """
def pretrain(images):  # all heads but one could be added; views beside each other, first ones before second ones
    model = new_sit("contrastive")
    log_variances = model.log_variances
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=500, pct_start=0.1)
    for _ in range(500):
        rows = torch.randint(0, len(images), (128,))
        first, second = (model(lit(images[rows]))["contrastive"] for _ in range(2))
        z = torch.cat([first, second])
        logits = (z @ z.T / 0.15).fill_diagonal_(-torch.inf)
        loss = F.cross_entropy(logits, torch.arange(256).roll(128))
        optimizer.zero_grad()
        course_weigh(loss[None], log_variances).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model
""",
    ],
}  # fmt: skip
