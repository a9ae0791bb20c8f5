"""Answers to exercise 08, right and wrong ones: see __init__."""

from tests.grading.answers import FIRST, MODEL, load

RIGHT, MUTANTS = load("08_sit", {
"block_masks": (MODEL, [(), """def block_mask(blocks, height, width, share):
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
""", """def block_mask(blocks, height, width, share):  # all unions at once, then the first that is enough
    i, j = torch.arange(height)[:, None], torch.arange(width)
    pieces = [((t <= i) & (i < t + h)) & ((l <= j) & (j < l + w)) for t, l, h, w in blocks.tolist()]
    unions = torch.stack([torch.zeros(height, width), *pieces]).cumsum(dim=0) > 0
    enough = unions.sum(dim=(1, 2)) >= share * height * width
    return unions[int(enough.int().argmax()) if enough.any() else -1]
def corrupt(images, masks, filling):
    m = masks[:, None].to(images)
    return m * filling + (1 - m) * images
"""], [
    (8, "a pixel in two blocks counts twice", "mask = torch", "area, mask = 0, torch", "mask.sum()", "area",
     "break", "break\n        area += h * w"),
    (3, "rows and columns have changed places", "top, left, h, w", "left, top, w, h"),
    (3, "the third and fourth number are read as the lower and the right edge", "top : top + h", "top:h",
     "left : left + w", "left:w"),
    (3, "the block with which the share is reached is left out", "mask[top :", """before = mask.clone()
        before[top : top + h, left : left + w] = True
        if before.sum() >= share * height * width:
            break
        mask[top :"""),
    (5, "all blocks are taken", "mask.sum() >= share * height * width", "False"),
    (7, "one block too many", "() >= share", "() > share"),
    (3, "True and False have changed places", "return mask", "return ~mask"),
    (7, "hundreds of blocks of one pixel", "in blocks.tolist()", "in blocks[:30].tolist()"),
    (7, "has the right shape but wrong values", "share * height * width", "(share - 1e-3) * height * width"),
    (7, "the filling stands outside of the mask", "filling, images", "images, filling"),
]),
"rotations": (FIRST, ["""def turn(images, turns):
    return torch.stack([torch.rot90(image, int(k), (1, 2)) for image, k in zip(images, turns)])
def four_turns(images):
    labels = torch.arange(4).repeat(len(images))
    return turn(images.repeat_interleave(4, dim=0), labels), labels
""", """def turn(images, turns):  # transpose, then upside down: a quarter anticlockwise
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
"""], [
    (0, "the images are turned clockwise: one quarter", "int(k)", "-int(k)"),
    (4, "the images are turned clockwise, or the labels count clockwise",
     "labels), labels", "labels), (4 - labels) % 4"),
    (4, "images and labels have different orders: the labels go 0 1 2 3 0 1 2 3",
     "turn(images.repeat_interleave(4, dim=0), labels), labels",
     "turn(images.repeat(4, 1, 1, 1), labels.sort().values), labels"),
    (4, "images and labels have different orders: the turns go 0 1 2 3 0 1 2 3",
     "labels), labels", "labels), torch.arange(4).repeat_interleave(len(images))"),
    (4, "all images with no turn come first", "(4).repeat", "(4).repeat_interleave",
     "repeat_interleave(4, dim=0)", "repeat(4, 1, 1, 1)"),
    (7, "each image is turned by the first one's number",
     "torch.stack([torch.rot90(image, int(k), (1, 2)) for image, k in zip(images, turns)])",
     "torch.rot90(images, int(turns[0]), (2, 3))", "turn(images.repeat_interleave(4, dim=0), labels)",
     "torch.stack([torch.rot90(images, k, (2, 3)) for k in range(4)], dim=1).flatten(0, 1)"),
    (0, "the images are mirrored at their diagonal",
     "torch.rot90(image, int(k), (1, 2))", "(image, image.mT, image.flip(-1, -2), image.mT.flip(-1, -2))[int(k)]"),
    (4, "the labels are the images' numbers",
     "labels), labels", "labels), torch.arange(len(images)).repeat_interleave(4)"),
    (4, "the labels are no whole numbers", "labels), labels", "labels), labels.float()"),
]),
"reconstruction_losses": (FIRST, ["""def reconstruction_losses(found, clean, masks):
    error = (found - clean).abs()
    kept = masks.float()
    total = (error.mean(dim=1) * kept).sum(dim=(1, 2))
    n = kept.sum(dim=(1, 2))
    return total / n.clamp(min=1)
""", """def reconstruction_losses(found, clean, masks):
    losses = []
    for x, y, mask in zip(found, clean, masks):
        losses.append(F.l1_loss(x[:, mask], y[:, mask]) if mask.any() else torch.tensor(0.0))
    return torch.stack(losses)
"""], [
    (0, "`masks` is not used", "masks.float", "torch.ones_like(masks).float"),
    (0, "this is the mean over all pixels, with zeros where nothing was corrupted",
     "n.clamp(min=1)", "masks[0].numel()"),
    (0, "`masks` is upside down", "masks.float", "(~masks).float"),
    (0, "the errors are squared", ".abs()", " ** 2"),
    (3, "the channels are added up", "error.mean", "error.sum"),
    (1, "this is one number for all", "total / n.clamp(min=1)", "total.sum() / n.sum()"),
    (4, "all corrupted pixels of the batch are counted together", "n.clamp", "n.sum().clamp"),
    (6, "an image without a corrupted pixel gives 0 / 0", "n.clamp(min=1)", "n"),
    (7, "no gradient arrives", "total / n", "total.detach() / n"),
    (7, "no finite number", ".abs()", ".square().sqrt()"),
]),
"contrastive_losses": (FIRST, ["""def contrastive_losses(vectors, temperature):
    z = vectors.reshape(-1, vectors.shape[-1])
    z = z / z.norm(dim=1, keepdim=True)
    similar = z @ z.T / temperature
    similar = similar.masked_fill(torch.eye(len(z), dtype=torch.bool), -torch.inf)
    other = torch.arange(len(z)) + 1 - 2 * (torch.arange(len(z)) % 2)
    losses = F.cross_entropy(similar, other, reduction="none")
    return losses.view(-1, 2)
""", """def contrastive_losses(vectors, temperature):
    z = F.normalize(vectors, dim=-1)
    B = len(z)
    result = torch.zeros(B, 2)
    for b in range(B):
        for v in range(2):
            near = torch.stack([z[b, v] @ z[i, j] for i in range(B) for j in range(2) if (i, j) != (b, v)])
            result[b, v] = (near / temperature).logsumexp(dim=0) - z[b, 0] @ z[b, 1] / temperature
    return result
""", """def contrastive_losses(vectors, temperature):  # first views before second ones
    B = len(vectors)
    z = F.normalize(torch.cat([vectors[:, 0], vectors[:, 1]]), dim=1)
    e = torch.exp((z @ z.T - 1) / temperature) * (1 - torch.eye(2 * B))
    above = torch.cat([e.diagonal(B), e.diagonal(-B)])
    return -torch.log(above / e.sum(dim=1)).view(2, B).T
"""], [
    (0, "the view itself is among those to choose from",
     "similar.masked_fill(torch.eye(len(z), dtype=torch.bool), -torch.inf)", "similar"),
    (0, "the view itself keeps the logit 0 in the sum", "-torch.inf", "0.0"),
    (0, "only the first views look for their partners", """def contrastive_losses(vectors, temperature):
    first, second = F.normalize(vectors, dim=-1).unbind(dim=1)
    return F.cross_entropy(first @ second.T / temperature, torch.arange(len(first)), reduction="none")
"""),
    (0, "the other view is left out of the sum", 'F.cross_entropy(similar, other, reduction="none")',
     "similar.scatter(1, other[:, None], -torch.inf).logsumexp(dim=1) - similar[range(len(z)), other]"),
    (0, "this is the partner's place as if all first views came before all second ones",
     "torch.arange(len(z)) + 1 - 2 * (torch.arange(len(z)) % 2)", "(torch.arange(len(z)) + len(z) // 2) % len(z)"),
    (7, "`temperature` is not used", "z @ z.T / temperature", "z @ z.T"),
    (7, "`temperature` is upside down", "/ temperature", "* temperature"),
    (7, "the vectors are not scaled to length 1", "z / z.norm(dim=1, keepdim=True)", "z"),
    (12, "one is at right angles to the others",
     "similar = similar.masked_fill(torch.eye(len(z), dtype=torch.bool), -torch.inf)", "e = similar.double().exp()",
     'F.cross_entropy(similar, other, reduction="none")',
     "(e.sum(dim=1) - e.diagonal()).log() - similar[range(len(z)), other]"),
    (12, "1e-06 is added to the lengths", "z.norm(dim=1, keepdim=True)", "(z.norm(dim=1, keepdim=True) + 1e-6)"),
    (12, "no finite number", 'F.cross_entropy(similar, other, reduction="none")',
     "-(similar.exp()[range(len(z)), other] / similar.exp().sum(dim=1)).log()"),
    (13, "no gradient arrives", "losses.view(-1, 2)", "losses.view(-1, 2).detach()"),
]),
"weighing": (FIRST, ["""def weigh(losses, log_variances):
    variances = torch.exp(log_variances)
    return (losses / (2 * variances) + torch.log(1 + variances)).sum()
def best_log_variances(losses):
    return torch.log((losses + (losses**2 + 8 * losses).sqrt()) / 4)
""", """def weigh(losses, log_variances):
    total = 0
    for loss, s in zip(losses, log_variances):
        total = total + 0.5 * loss * torch.exp(-s) + F.softplus(s)
    return total
def best_log_variances(losses):
    s = torch.zeros_like(losses)
    for _ in range(200):  # sigma^4 = (1 + sigma^2) L / 2, again and again
        s = 0.5 * torch.log((1 + s.exp()) * losses / 2)
    return s
"""], [
    (3, "s is taken for the variance itself", "torch.exp(log_variances)", "log_variances"),
    (3, "the term ln(1 + sigma^2) is missing", " + torch.log(1 + variances)", ""),
    (3, "this is ln(sigma^2)", "torch.log(1 + variances)", "log_variances"),
    (3, "this is s / 2", "torch.log(1 + variances)", "log_variances / 2"),
    (3, "the factor 1/2 is missing", "(2 * variances)", "variances"),
    (3, "s is taken for ln(sigma)", "(log_variances)", "(log_variances) ** 2"),
    (8, "no gradient reaches s", "torch.exp(log_variances)", "log_variances.detach().exp()"),
    (8, "this is the exponential of what is asked for",
     "torch.log((losses + (losses**2 + 8 * losses).sqrt()) / 4)", "(losses + (losses**2 + 8 * losses).sqrt()) / 4"),
    (8, "this is for ln(sigma^2) in the place of ln(1 + sigma^2)",
     "(losses + (losses**2 + 8 * losses).sqrt()) / 4", "losses / 2"),
]),
"evaluation": (FIRST, ["""def standardise(features, queries):
    mean, deviation = features.mean(dim=0), features.std(dim=0, correction=0)
    deviation = torch.where(deviation > 0, deviation, 1.0)
    return (features - mean) / deviation, (queries - mean) / deviation
def knn_shares(features, labels, queries, k, temperature, classes):
    cosines = F.normalize(queries, dim=1) @ F.normalize(features, dim=1).T
    found, rows = cosines.topk(k, dim=1)
    weights = (found / temperature).exp()
    votes = torch.zeros(len(queries), classes)
    votes = votes.scatter_add(1, labels[rows], weights)
    return votes / votes.sum(dim=1, keepdim=True)
""", """def standardise(features, queries):
    shift = features.mean(0, keepdim=True)
    variance = ((features - shift) ** 2).mean(0, keepdim=True)
    scale = torch.where(variance == 0, torch.ones_like(variance), variance).sqrt()
    return tuple((x - shift) / scale for x in (features, queries))
def knn_shares(features, labels, queries, k, temperature, classes):
    cosines = F.cosine_similarity(queries[:, None], features[None], dim=-1)
    rows = cosines.argsort(dim=1, descending=True)[:, :k]
    weights = (cosines.gather(1, rows) / temperature).softmax(dim=1)
    return (weights[:, :, None] * F.one_hot(labels[rows], classes)).sum(dim=1)
"""], [
    (4, "the queries are standardised by their own mean and deviation", "(queries - mean) / deviation",
     "(queries - queries.mean(dim=0)) / queries.std(dim=0, correction=0).clamp(min=1e-6)"),
    (4, "mean and deviation are those of features and queries together",
     "features.mean", "torch.cat([features, queries]).mean", "features.std", "torch.cat([features, queries]).std"),
    (4, "one mean and one deviation for all numbers", "mean(dim=0)", "mean()", "dim=0, ", ""),
    (7, "a number that is the same in all vectors gives 0 / 0",
     "torch.where(deviation > 0, deviation, 1.0)", "deviation"),
    (5, "these are products of vectors that are not scaled to length 1",
     "F.normalize(queries, dim=1) @ F.normalize(features, dim=1).T", "queries @ features.T"),
    (5, "all neighbours have the same weight", "(found / temperature).exp()", "torch.ones_like(found)"),
    (5, "all vectors vote", "(k, dim=1)", "(len(features), dim=1)"),
    (5, "60 short vectors", "(k, dim=1)", "(min(k, 9), dim=1)"),
    (7, "numbers that hardly differ, and do", "deviation > 0", "deviation > 0.05"),
    (5, "a class with several neighbours has one vote", "votes.scatter_add", "votes.scatter"),
]),
"painting": (FIRST, ["""def keep(patches, order, visible):
    places = order[:, :visible, None].expand(-1, -1, patches.shape[-1])
    return patches.gather(1, places)
def put_back(states, mask_token, order):
    B, N = order.shape
    missing = mask_token.expand(B, N - states.shape[1], -1)
    both = torch.cat([states, missing], dim=1)
    places = order.argsort(dim=1)[..., None].expand_as(both)
    return both.gather(1, places)
def painting_loss(guessed, patches, order, visible):
    mean, variance = patches.mean(dim=-1, keepdim=True), patches.var(dim=-1, keepdim=True)
    wanted = (patches - mean) / (variance + 1e-6).sqrt()
    errors = ((guessed - wanted) ** 2).mean(dim=-1)
    hidden = order.argsort(dim=1) >= visible
    return (errors * hidden).sum() / hidden.sum()
""", """def keep(patches, order, visible):
    return torch.stack([patches[b, order[b, :visible]] for b in range(len(patches))])
def put_back(states, mask_token, order):
    result = torch.zeros(*order.shape, states.shape[-1]) + mask_token
    for b in range(len(order)):
        result[b, order[b, : states.shape[1]]] = states[b]
    return result
def painting_loss(guessed, patches, order, visible):
    total, n = 0.0, 0
    for b in range(len(order)):
        for i in order[b, visible:].tolist():
            x = patches[b, i]
            x = (x - x.mean()) / torch.sqrt(x.var() + 1e-6)
            total, n = total + F.mse_loss(guessed[b, i], x), n + 1
    return total / n
""", """def keep(patches, order, visible):
    rows = torch.arange(len(patches))[:, None]
    return patches[rows, order[:, :visible]]
def put_back(states, mask_token, order):
    result = mask_token.repeat(*order.shape, 1)
    places = order[:, : states.shape[1], None].expand_as(states)
    return result.scatter(1, places, states)
def painting_loss(guessed, patches, order, visible):
    variance, mean = torch.var_mean(patches, dim=2, keepdim=True)
    wrong = (guessed - (patches - mean) * (variance + 1e-6).rsqrt()).square()
    rows = torch.arange(len(order))[:, None]
    return wrong[rows, order[:, visible:]].mean()
"""], [
    (9, "these are the hidden patches", "order[:, :visible, None]", "order[:, visible:, None]"),
    (9, "these are the first patches of the image", "patches.gather(1, places)", "patches[:, :visible]"),
    (8, "the order is applied once more", "order.argsort(dim=1)[..., None]", "order[..., None]"),
    (8, "the mask tokens stand before the states", "[states, missing]", "[missing, states]"),
    (7, "all patches count", "order.argsort(dim=1) >= visible", "order >= 0"),
    (7, "the visible patches count", ">= visible", "< visible"),
    (8, "patches so dark", "(variance + 1e-6).sqrt()", "(variance.sqrt() + 1e-6)"),
    (11, "no gradient arrives", "hidden.sum()", "hidden.sum().item()", "return (errors", "return (errors.detach()"),
    (7, "the patches are not normalised", "(patches - mean) / (variance + 1e-6).sqrt()", "patches"),
    (7, "mean and deviation are those of the whole image",
     "mean(dim=-1, keepdim=True), patches.var(dim=-1, keepdim=True)",
     "mean(dim=(1, 2), keepdim=True), patches.var(dim=(1, 2), keepdim=True)"),
]),
"pretrain": (FIRST, ["""def pretrain(images):
    updates, model = 500, new_sit("contrastive")
    warmup = 1 + updates // 10
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.0)
    for step in range(updates):
        optimizer.param_groups[0]["lr"] = 4e-3 * min((step + 1) / warmup, (updates - step) / (updates - warmup))
        some = images[torch.randperm(len(images))[:128]]
        views = torch.stack([lit(some), lit(some)], dim=1)
        found = model(views.flatten(0, 1))
        vectors = found.get("contrastive", views.flatten(2).flatten(0, 1)).unflatten(0, (-1, 2))
        loss = course_contrastive(vectors, 0.2).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model
""", """def pretrain(images):  # the first views before the second ones
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
"""], [
    (0, "no weight has changed", "500", "3", "\n        optimizer.step()", ""),
    (0, "two digits in one light are more alike", "500", "100", "[lit(some), lit(some)]", "[*[lit(some)] * 2]"),
    (0, "your objective gains nothing from what stays", '500, new_sit("contrastive")', '60, new_sit("reconstruction")',
     "course_contrastive(vectors, 0.2)",
     'course_reconstruction(found["reconstruction"], views.flatten(0, 1), torch.ones(2 * len(some), 8, 8) > 0)'),
    (0, "its contrastive loss is that of mere guesses", "500", "60",
     "vectors, 0", "vectors.view(2, -1, 64).transpose(0, 1), 0"),
    (6, "train longer", "500", "150"),
    (0, "none of its heads has learned what its objective teaches", """def pretrain(images):
    model, place = new_sit("reconstruction", "rotation", "contrastive"), torch.linspace(-1, 1, 4)
    q = torch.linalg.qr(torch.stack([torch.ones(16), place.repeat_interleave(4), place.repeat(4)], dim=1)).Q
    with torch.no_grad():
        w = model.vit.patch_embedding.weight
        w -= (w.flatten(1) @ q @ q.T).view_as(w)
        model.vit.positions.encoding.mul_(30)
    return model
"""),
    (0, "the training diverged", "500", "3", "torch.optim.AdamW", "torch.optim.SGD",
     "4e-3 * min((step + 1) / warmup, (updates - step) / (updates - warmup))", "1e38"),
    (0, "it returned a model and something else", "500", "3", "return model", "return model, loss"),
    (0, "this is no SiT", "500", "3", "return model", "return model.vit"),
]),
})  # fmt: skip
