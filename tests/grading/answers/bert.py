"""Answers to exercise 05, wrong ones with the points they deserve and the words they must be told, and right ones.

A wrong answer is ``(points, words, source)``. Each is a mistake that a student could make.
"""


def packing(
    cut="(a if len(a) > len(b) else b).pop()",
    room="max_length - 3",
    row="[CLS] + a + [SEP] + b + [SEP]",
    segments="[0] * (len(a) + 2) + [1] * (len(b) + 1)",
    behind="0",
    mask="[True] * len(row) + [False] * gap",
    then="",
):
    """Packing with lists, and something else in it."""
    return f"""
def pack_pair(a, b, max_length):
    a, b = list(a), list(b)
    while len(a) + len(b) > {room}:
        {cut}
    row = {row}
    segments = {segments}
    {then}
    gap = max_length - len(row)
    mask = {mask}
    return torch.tensor(row + [PAD] * gap), torch.tensor(segments + [{behind}] * gap), torch.tensor(mask)
"""


def pairing(
    sentences="enumerate(document[:-1])",
    following="document[i + 1]",
    coin="draw(2)",
    labels="(0, 1)",
    other="documents[(d + 1 + draw(len(documents) - 1)) % len(documents)]",
    stranger="other[draw(len(other))]",
    then="",
    generator="generator",
):
    """Pairs one after another, and something else in them."""
    return f"""
def pair_sentences(documents, generator):
    generator = {generator}

    def draw(n):
        return int(torch.randint(n, (), generator=generator))

    pairs = []
    for d, document in enumerate(documents):
        for i, a in {sentences}:
            if {coin}:
                other = {other}
                pairs.append((a, {stranger}, {labels}[1]))
            else:
                pairs.append((a, {following}, {labels}[0]))
    {then}
    return pairs
"""


def masking(
    free="mask & (ids >= 5)",
    number="(0.15 * mask.sum(dim=1)).round().clamp(min=1)",
    chosen="(rank < number[:, None]) & free",
    random="torch.randint(vocab_size, ids.shape, generator=generator)",
    fate="torch.rand(ids.shape, generator=generator)",
    hidden="fate < 0.8",
    other="(fate >= 0.8) & (fate < 0.9)",
    seen="ids.clone()",
    generator="generator",
):
    """Masking of the whole batch at once, and something else in it."""
    return f"""
def mask_words(ids, mask, vocab_size, generator):
    generator = {generator}
    free = {free}
    number = {number}
    rank = torch.rand(ids.shape, generator=generator).masked_fill(~free, 9).argsort(1).argsort(1)
    chosen = {chosen}
    random = {random}
    fate = {fate}
    seen = {seen}
    seen[chosen & ({hidden})] = MASK
    where = chosen & {other}
    seen[where] = random[where]
    return seen, chosen
"""


def spans(
    order="j >= i",
    may="allowed[b, i] and allowed[b, j]",
    length="longest is None or j - i + 1 <= longest",
    worth="start[b, i] + end[b, j]",
):
    """Every pair of places in a loop, and something else in it."""
    return f"""
def best_spans(start, end, allowed, longest=None):
    found = []
    for b in range(len(start)):
        best, place = -float("inf"), (0, 0)
        for i in range(start.shape[1]):
            for j in range(start.shape[1]):
                if {order} and {may} and ({length}) and {worth} > best:
                    best, place = {worth}, (i, j)
        found.append(place)
    return torch.tensor(found)
"""


def aligning(
    tag="[tag] + [0] * (len(pieces) - 1)", counts="[True] + [False] * (len(pieces) - 1)", first="[CLS]", frame="False"
):
    """Tags for pieces, and something else in them."""
    return f"""
def align_tags(words, tags):
    ids, found, tagged = {first}, [0] * len({first}), [{frame}] * len({first})
    for pieces, tag in zip(words, tags):
        ids = ids + pieces
        found += {tag}
        tagged += {counts}
    return torch.tensor(ids + [SEP]), torch.tensor(found + [0]), torch.tensor(tagged + [{frame}])
"""


SCORES = """
def tag_scores(logits, tags, tagged):
    losses = F.cross_entropy(logits.transpose(1, 2), tags, reduction="none")
    right = logits.argmax(dim=2) == tags
    return losses[tagged].mean(), right[tagged].float().mean()
"""


def scoring(loss="losses[tagged].mean()", accuracy="right[tagged].mean()"):
    return (
        aligning()
        + f"""
def tag_scores(logits, tags, tagged):
    losses = F.cross_entropy(logits.transpose(1, 2), tags, reduction="none")
    right = (logits.argmax(dim=2) == tags).float()
    return {loss}, {accuracy}
"""
    )


def tuning(
    updates=60,
    body="body",
    parameters="model.parameters()",
    tags="tags",
    rate="1e-3 * min((step + 1) / 10, (updates - step) / (updates - 10))",
    then="optimizer.step()",
    optimizer="AdamW",
    returned="model",
):
    """A loop of fine-tuning, with something else in it."""
    return f"""
from coursekit.models.bert import Bert

def fine_tune(body, batch):
    updates = {updates}
    model = BertForTokenClassification({body}, TAGS).train()
    optimizer = torch.optim.{optimizer}({parameters}, lr=1.0)
    for step in range(updates):
        optimizer.param_groups[0]["lr"] = {rate}
        rows = torch.randperm(50)[:16]
        tags, tagged = batch["tags"][rows], batch["tagged"][rows]
        logits = model(batch["ids"][rows], batch["mask"][rows], batch["segments"][rows])
        loss = F.cross_entropy(logits[tagged], {tags}[tagged])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        {then}
    return {returned}
"""


MUTANTS = {
    "pack_pair": [
        (9, "the first [SEP] has segment 1", packing(segments="[0] * (len(a) + 1) + [1] * (len(b) + 2)")),
        (7, "only B is cut", packing(cut="b.pop() if b else a.pop()")),
        (7, "tokens are lost at the front", packing(cut="(a if len(a) > len(b) else b).pop(0)")),
        (7, "A and B lose the same number", packing(cut="b.pop(); len(a) + len(b) > max_length - 3 and a.pop()")),
        (
            7,
            "the finished row is cut, and with it the last [SEP]",
            packing(room="9999", then="row, segments = row[:max_length], segments[:max_length]"),
        ),
        (9, "the padding has segment 1", packing(behind="1")),
        (10, "[CLS] and [SEP] are masked away", packing(mask="[t > 4 for t in row] + [False] * gap")),
        (
            0,
            "the last [SEP] is missing",
            packing(
                room="max_length - 2", row="[CLS] + a + [SEP] + b", segments="[0] * (len(a) + 2) + [1] * len(b)"
            ),
        ),
    ],
    "pair_sentences": [
        (8, "comes from A's own document", pairing(other="document")),
        (5, "the labels are exchanged", pairing(labels="(1, 0)")),
        (8, "always the first sentence of its document", pairing(stranger="other[0]")),
        (8, "long documents are drawn more often", pairing(
            other="[s for o in documents[:d] + documents[d + 1:] for s in o]",
        )),
        (10, "not from one with a seed of its own", pairing(generator="torch.Generator().manual_seed(0)")),
        (7, "as if they took turns", pairing(coin="len(pairs) % 2")),
        (9, "nothing follows it there, so it makes no pair", pairing(
            sentences="enumerate(document)", coin="i == len(document) - 1 or draw(2)"
        )),
        (9, "B stands two places behind A", pairing(
            following="document[min(i + 2, len(document) - 1)]",
        )),
    ],
    "mask_words": [
        (10, "a [SEP] is chosen", masking(free="mask & (ids != CLS)")),
        (10, "padding is counted", masking(number="torch.full((len(ids),), 0.15 * ids.shape[1]).round().clamp(min=1)")),
        (9, "every chosen token becomes [MASK]", masking(hidden="fate < 2", other="(fate > 2)")),
        (14, "drawn from those of the texts", masking(
            random="ids[free][torch.randint(int(free.sum()), ids.shape, generator=generator)]"
        )),
        (13, "not from one with a seed of its own", masking(generator="torch.Generator().manual_seed(0)")),
        (10, "differs between texts of the same length", masking(
            chosen="(torch.rand(ids.shape, generator=generator) < 0.15) & free"
        )),
        (11, "one in ten becomes another: it is one half", masking(
            other="(fate >= 0.8) & (torch.rand(ids.shape, generator=generator) < 0.1)"
        )),
        (0, "the first tensor that you are given is changed", masking(seen="ids")),
    ],
    "masked_lm_loss": [
        (5, "the loss is taken over all places", """
def masked_lm_loss(logits, target, masked):
    return F.cross_entropy(logits.flatten(0, 1), target.flatten())
"""),
        (5, "the loss is taken over all real tokens", """
def masked_lm_loss(logits, target, masked):
    return F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PAD)
"""),
        (5, "the sum is divided by all places", """
def masked_lm_loss(logits, target, masked):
    return (F.cross_entropy(logits.mT, target, reduction="none") * masked).mean()
"""),
        (5, "this is the mean of the texts' means", """
def masked_lm_loss(logits, target, masked):
    losses = F.cross_entropy(logits.mT, target, reduction="none") * masked
    return (losses.sum(dim=1) / masked.sum(dim=1)).mean()
"""),
        (5, "the logits of the other places are set to 0, but still counted", """
def masked_lm_loss(logits, target, masked):
    logits, target = logits * masked[..., None], target * masked
    return F.cross_entropy(logits.flatten(0, 1), target.flatten())
"""),
        (8, "exp overflows for large logits", """
def masked_lm_loss(logits, target, masked):
    p = logits[masked].exp() / logits[masked].exp().sum(dim=-1, keepdim=True)
    return -p.gather(1, target[masked][:, None]).log().mean()
"""),
        (0, "this is the sum", """
def masked_lm_loss(logits, target, masked):
    return F.cross_entropy(logits[masked], target[masked], reduction="sum")
"""),
    ],
    "best_spans": [
        (7, "the end stands before the start", """
def best_spans(start, end, allowed, longest=None):
    start, end = start.masked_fill(~allowed, -torch.inf), end.masked_fill(~allowed, -torch.inf)
    return torch.stack([start.argmax(dim=1), end.argmax(dim=1)], dim=1)
"""),
        (7, "then put in order", """
def best_spans(start, end, allowed, longest=None):
    pair = torch.stack([start, end]).masked_fill(~allowed, -torch.inf).argmax(dim=2)
    return pair.sort(dim=0).values.T
"""),
        (10, "in the question for instance", spans(may="start[b, i] > -99 and end[b, j] > -99")),
        (11, "longest is not used", spans(length="True")),
        (11, "one token more than longest", spans(length="longest is None or j - i <= longest")),
        (10, "an answer of one token is not found", spans(order="j > i")),
        (7, "another pair may have a higher sum", """
def best_spans(start, end, allowed, longest=None):
    T, place = start.shape[1], torch.arange(start.shape[1])
    first = start.masked_fill(~allowed, -torch.inf).argmax(dim=1, keepdim=True)
    may = allowed & (place >= first) & (place < first + (longest or T))
    return torch.cat([first, end.masked_fill(~may, -torch.inf).argmax(dim=1, keepdim=True)], dim=1)
"""),
        (10, "forbidden places get 0, which is more than a negative logit", """
def best_spans(start, end, allowed, longest=None):
    T = start.shape[1]
    start, end = torch.where(allowed, start, 0), torch.where(allowed, end, 0)
    scores = start[:, :, None] + end[:, None]
    may = torch.ones(T, T).triu().tril((longest or T) - 1).bool()
    best = scores.masked_fill(~may, -torch.inf).flatten(1).argmax(dim=1)
    return torch.stack([best // T, best % T], dim=1)
"""),
    ],
    "tagging": [
        (8, "every piece of a word counts", aligning("[tag] * len(pieces)", "[True] * len(pieces)") + SCORES),
        (8, "the last piece of a word counts", aligning(
            "[0] * (len(pieces) - 1) + [tag]", "[False] * (len(pieces) - 1) + [True]"
        ) + SCORES),
        (8, "one place too far to the left", """
def align_tags(words, tags):
    ids, found, tagged = [CLS], [], []
    for pieces, tag in zip(words, tags):
        ids += pieces
        found += [tag] + [0] * (len(pieces) - 1)
        tagged += [True] + [False] * (len(pieces) - 1)
    return torch.tensor([*ids, SEP]), torch.tensor([*found, 0, 0]), torch.tensor([*tagged, False, False])
""" + SCORES),
        (8, "[CLS] and [SEP] count", aligning(frame="True") + SCORES),
        (9, "all places count, padding and all pieces too", scoring(accuracy="right.mean()")),
        (6, "words with the tag 0 do not count", scoring(
            "losses[tagged & (tags > 0)].mean()", "right[tagged & (tags > 0)].mean()"
        )),
        (9, "this is the mean of the texts' means", scoring(
            loss="((losses * tagged).sum(dim=1) / tagged.sum(dim=1)).mean()"
        )),
        (9, "the sum is divided by all places", scoring(accuracy="(right * tagged).mean()")),
    ],
    "fine_tune": [
        (0, "no weight has changed", tuning(5, then="")),
        (0, "the body is as it was", tuning(40, parameters="model.classifier.parameters()")),
        (8, "the head is as it was at first", tuning(120, parameters="model.bert.parameters()")),
        (0, "its body is not the pre-trained one", tuning(body="Bert(body.config)")),
        (0, "the tag of the word before it", tuning(tags="tags.roll(1, dims=1)")),
        (0, "train longer, or with another learning rate", tuning(30, rate="1e-5")),
        (0, "the training diverged", tuning(5, rate="1e38", optimizer="SGD")),
        (0, "return the fine-tuned model itself", tuning(5, returned="model.bert")),
    ],
}  # fmt: skip

RIGHT = {
    "pack_pair": [
        packing(),
        """
def pack_pair(a, b, max_length):
    room = max_length - 3
    if len(a) + len(b) > room:
        half = room // 2
        if len(b) <= half:
            a = a[: room - len(b)]
        elif len(a) <= room - half:
            b = b[: room - len(a)]
        else:
            a, b = a[: room - half], b[:half]
    ids = torch.full((max_length,), PAD)
    segments = torch.zeros(max_length, dtype=torch.long)
    end = len(a) + len(b) + 3
    ids[:end] = torch.tensor([CLS, *a, SEP, *b, SEP])
    segments[len(a) + 2 : end] = 1
    return ids, segments, ids != PAD
""",
        """
from coursekit.data import pretraining as course

def pack_pair(a, b, max_length):
    a, b = a[:], b[:]
    while len(a) + len(b) + 3 > max_length:
        longest = max([b, a], key=len)
        del longest[-1]
    texts = [[CLS] + a + [SEP], b + [SEP]]
    segments = [kind for kind, text in enumerate(texts) for _ in text]
    ids, mask = course.pad([texts[0] + texts[1], [0] * max_length])  # the second only for the length
    return ids[0].tolist(), F.pad(torch.tensor(segments), (0, max_length - len(segments))), mask[0]
""",
    ],
    "pair_sentences": [
        pairing(),
        """
import random

def pair_sentences(documents, generator):
    rng = random.Random(torch.randint(2 ** 60, (1,), generator=generator).item())
    pairs = []
    for document in documents:
        for a, b in zip(document, document[1:]):
            if rng.random() < 0.5:
                pairs.append([a, b, False])
            else:
                other = rng.choice([o for o in documents if o is not document])
                pairs.append([a, rng.choice(other), True])
    return pairs
""",
        """
def pair_sentences(documents, generator):
    places = [(d, i) for d, document in enumerate(documents) for i in range(len(document) - 1)]
    coins = torch.rand(len(places), generator=generator) < 0.5
    chances = torch.rand(len(places), 2, generator=generator)
    pairs = []
    for (d, i), coin, (first, second) in zip(places, coins.tolist(), chances.tolist()):
        if coin:
            pairs.append((documents[d][i], documents[d][i + 1], 0))
        else:
            other = [e for e in range(len(documents)) if e != d][int(first * (len(documents) - 1))]
            pairs.append((documents[d][i], documents[other][int(second * len(documents[other]))], 1))
    return pairs
""",
    ],
    "mask_words": [
        masking(),
        """
def mask_words(ids, mask, vocab_size, generator):
    seen, chosen = ids.clone(), torch.zeros_like(mask)
    for row in range(len(ids)):
        free = [t for t, i in enumerate(ids[row].tolist()) if i not in (PAD, CLS, SEP)]
        n = max(1, round(0.15 * int(mask[row].sum())))
        picked = torch.tensor(free)[torch.randperm(len(free), generator=generator)[:n]]
        chosen[row, picked] = True
        fate = torch.rand(n, generator=generator)
        new = torch.randint(vocab_size, (n,), generator=generator)
        seen[row, picked] = torch.where(fate < 0.8, MASK, torch.where(fate < 0.9, new, ids[row, picked]))
    return seen, chosen
""",
        """
from coursekit.data import pretraining as course
from coursekit.text.wordpiece import WordPiece

def mask_words(ids, mask, vocab_size, generator):  # the course's own
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(5, vocab_size))]
    found = course.mask_tokens({"ids": ids, "mask": mask}, WordPiece(names), generator)
    return found["ids"], found["masked"]
""",
    ],
    "masked_lm_loss": ["""
def masked_lm_loss(logits, target, masked):
    return F.cross_entropy(logits[masked], target[masked])
""", """
def masked_lm_loss(logits, target, masked):
    labels = target.masked_fill(~masked, -100)
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())
""", """
def masked_lm_loss(logits, target, masked):
    total = 0.0
    for b, t in masked.nonzero().tolist():
        total = total + logits[b, t].logsumexp(dim=0) - logits[b, t, target[b, t]]
    return total / masked.sum()
"""],
    "best_spans": [spans(), """
from coursekit.models import bert as course

def best_spans(start, end, allowed, longest=None):  # the course's own, window by window
    if longest is None:
        return course.best_span(start, end, allowed)
    found = []
    for s, e, may in zip(start, end, allowed):
        pairs = [(s[i] + e[j], i, j) for i in range(len(s)) for j in range(i, min(len(s), i + longest))
                 if may[i] and may[j]]
        found.append(max(pairs)[1:])
    return torch.tensor(found)
""", """
def best_spans(start, end, allowed, longest=None):
    low = torch.finfo(start.dtype).min / 4
    place = torch.arange(start.shape[1])
    gap = place[None, :] - place[:, None]
    table = start.masked_fill(~allowed, low).unsqueeze(2) + end.masked_fill(~allowed, low).unsqueeze(1)
    forbidden = (gap < 0) if longest is None else (gap < 0) | (gap >= longest)
    table = table.masked_fill(forbidden, 2 * low)
    best_end, column = table.max(dim=2)
    row = best_end.argmax(dim=1)
    return torch.stack([row, column.gather(1, row[:, None]).squeeze(1)], 1)
"""],
    "tagging": [aligning() + SCORES, """
def align_tags(words, tags):
    ids = torch.tensor([CLS] + sum(words, []) + [SEP])
    start = 1 + torch.tensor([0] + [len(w) for w in words]).cumsum(0)[:-1]
    labels = torch.full_like(ids, -100)
    labels[start] = torch.tensor(tags)
    return ids, labels, labels != -100

def tag_scores(logits, tags, tagged):
    labels = torch.where(tagged, tags, -100)
    loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
    return loss, ((logits.argmax(-1) == labels).sum() / tagged.sum()).item()
""", """
def align_tags(words, tags):
    rows = [(CLS, 0, False)]
    for pieces, tag in zip(words, tags):
        rows += [(piece, tag if i == 0 else 0, i == 0) for i, piece in enumerate(pieces)]
    return tuple(map(list, zip(*rows, (SEP, 0, False))))

def tag_scores(logits, tags, tagged):
    total, right, n = 0.0, 0, 0
    for b, t in tagged.nonzero().tolist():
        total = total - logits[b, t].log_softmax(dim=0)[tags[b, t]]
        right += int(logits[b, t].argmax() == tags[b, t])
        n += 1
    return total / n, right / n
"""],
    "fine_tune": [tuning(100), """
from coursekit.data.batches import Shuffled
from coursekit.models.bert import tagging_loss
from itertools import islice

def fine_tune(body, batch):
    torch.manual_seed(3)
    model = BertForTokenClassification(body, TAGS)
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=120, pct_start=0.1)
    for part in islice(Shuffled(batch, 10), 120):
        loss, count = tagging_loss(model, part)
        optimizer.zero_grad()
        (loss / count).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model.double()
"""],
}  # fmt: skip
