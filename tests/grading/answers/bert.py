"""Answers to exercise 05, right and wrong ones: see __init__."""

from tests.grading.answers import FIRST, load

RIGHT, MUTANTS = load("05_bert", {
"pack_pair": (FIRST, ["""def pack_pair(a, b, max_length):
    a, b = list(a), list(b)
    while len(a) + len(b) > max_length - 3:
        (a if len(a) > len(b) else b).pop()
    row = [CLS] + a + [SEP] + b + [SEP]
    segments = [0] * (len(a) + 2) + [1] * (len(b) + 1)
    gap = max_length - len(row)
    mask = [True] * len(row) + [False] * gap
    return torch.tensor(row + [PAD] * gap), torch.tensor(segments + [0] * gap), torch.tensor(mask)
""", """def pack_pair(a, b, max_length):
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
""", """from coursekit.data import pretraining as course
def pack_pair(a, b, max_length):
    a, b = a[:], b[:]
    while len(a) + len(b) + 3 > max_length:
        longest = max([b, a], key=len)
        del longest[-1]
    texts = [[CLS] + a + [SEP], b + [SEP]]
    segments = [kind for kind, text in enumerate(texts) for _ in text]
    ids, mask = course.pad([texts[0] + texts[1], [0] * max_length])  # the second only for the length
    return ids[0].tolist(), F.pad(torch.tensor(segments), (0, max_length - len(segments))), mask[0]
"""], [
    (9, "the first [SEP] has segment 1", "len(a) + 2", "len(a) + 1", "len(b) + 1", "len(b) + 2"),
    (9, "the last [SEP] has segment 0", "[1] * (len(b) + 1)", "[1] * len(b) + [0]"),
    (7, "only B is cut", "(a if len(a) > len(b) else b).pop", "b.pop() if b else a.pop"),
    (7, "where A and B are as long A loses a token", "len(a) > len(b) else", "len(a) >= len(b) else"),
    (7, "tokens are lost at the front", "pop()", "pop(0)"),
    (7, "A and B lose the same number",
     "(a if len(a) > len(b) else b).pop", "b.pop(); len(a) + len(b) > max_length - 3 and a.pop"),
    (7, "the finished row is cut, and with it the last [SEP]", "max_length - 3", "9999",
     "gap = max_length", "row, segments = row[:max_length], segments[:max_length]\n    gap = max_length"),
    (9, "the padding has segment 1", "[0] * gap", "[1] * gap"),
    (10, "[CLS] and [SEP] are masked away", "[True] * len(row)", "[t > 4 for t in row]"),
    (10, "the mask ends before the last [SEP]", "[True] * len(row)", "[True] * (len(row) - 1)",
     "[False] *", "[False] + [False] *"),
    (10, "ids are no whole numbers", "torch.tensor(row + [PAD] * gap)", "torch.tensor(row + [PAD] * gap).float()"),
    (0, "the last [SEP] is missing", "max_length - 3", "max_length - 2", "b + [SEP]", "b",
     "[1] * (len(b) + 1)", "[1] * len(b)"),
]),
"pair_sentences": (FIRST, ["""def pair_sentences(documents, generator):
    def draw(n):
        return int(torch.randint(n, (), generator=generator))
    pairs = []
    for d, document in enumerate(documents):
        for i, a in enumerate(document[:-1]):
            if draw(2):
                other = documents[(d + 1 + draw(len(documents) - 1)) % len(documents)]
                pairs.append((a, other[draw(len(other))], 1))
            else:
                pairs.append((a, document[i + 1], 0))
    return pairs
""", """import random
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
""", """def pair_sentences(documents, generator):
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
"""], [
    (8, "comes from A's own document", "documents[(d + 1 + draw(len(documents) - 1)) % len(documents)]", "document"),
    (5, "the labels are exchanged", "draw(len(other))], 1", "draw(len(other))], 0",
     "document[i + 1], 0", "document[i + 1], 1"),
    (8, "always the first sentence of its document", "draw(len(other))", "0"),
    (8, "long documents are drawn more often", "documents[(d + 1 + draw(len(documents) - 1)) % len(documents)]",
     "[s for o in documents[:d] + documents[d + 1:] for s in o]"),
    (10, "not from one with a seed of its own",
     "    def draw", "    generator = torch.Generator().manual_seed(0)\n    def draw"),
    (7, "as if they took turns", "draw(2)", "len(pairs) % 2"),
    (9, "nothing follows it there, so it makes no pair", "document[:-1]", "document",
     "if draw(2)", "if i == len(document) - 1 or draw(2)"),
    (9, "exactly half of the pairs have the label 1",
     "    pairs = []\n", """    pairs, n = [], sum(map(len, documents)) - len(documents)
    coins = iter((torch.randperm(n, generator=generator) % 2).tolist())
""", "if draw(2)", "if next(coins)"),
    (9, "the label of one pair says what that of another one is",
     "            if draw(2)", """            if len(pairs) % 4 == 0: coins = [draw(2), draw(2)]
            if coins[len(pairs) % 2] ^ (len(pairs) % 4 > 1)"""),
    (8, "the strangers depend on one another, as if they took turns", "    pairs = []\n",
     "    pairs, turn = [], draw(12)\n", "documents[(d + 1 + draw(len(documents) - 1)) % len(documents)]",
     "documents[(d + 1 + (turn := turn + 1) % (len(documents) - 1)) % len(documents)]"),
    (0, "every pair has the label 0", """def pair_sentences(documents, generator):
    return [(a, b, 0) for document in documents for a, b in zip(document, document[1:])]
"""),
    (2, "A or B is none of the sentences that were given", "return pairs", """longest = max(len(b) for _, b, _ in pairs)
    return [(a, b + [0] * (longest - len(b)), label) for a, b, label in pairs]"""),
    (9, "a coin decides for each pair by itself", "if draw(2)", "if coins[len(pairs) % 64]",
     "    pairs = []\n", "    pairs, coins = [], torch.randint(2, (64,), generator=generator)\n"),
    (10, "a second call with the same generator gives the same again",
     "    def draw", "    generator = torch.Generator().set_state(generator.get_state())\n    def draw"),
    (10, "a number that has few values", "    def draw",
     "    generator = torch.Generator().manual_seed(int(torch.randint(500, (), generator=generator)))\n    def draw"),
    (8, "which sentence a stranger is depends on which document it comes from",
     "documents[(d + 1 + draw(len(documents) - 1)) % len(documents)]",
     "documents[(d + 1 + (u := draw(2 ** 20)) % (len(documents) - 1)) % len(documents)]",
     "draw(len(other))", "u % len(other)"),
    (9, "says what that of another one is: a coin decides", "    pairs = []\n", "    pairs, coins = [], {}\n",
     "if draw(2)", "if coins.setdefault(tuple(a), draw(2))"),
    (9, "the pairs are in another order", "return pairs", "return pairs[::-1]"),
    (0, "far more pairs than the documents make", "return pairs", "return pairs * 9"),
    (9, "B stands two places behind A", "i + 1", "min(i + 2, len(document) - 1)"),
]),
"mask_words": (FIRST, ["""def mask_words(ids, mask, vocab_size, generator):
    free = mask & (ids != CLS) & (ids != SEP)
    number = (0.15 * mask.sum(dim=1)).round().clamp(min=1)
    rank = torch.rand(ids.shape, generator=generator).masked_fill(~free, 9).argsort(1).argsort(1)
    chosen = (rank < number[:, None]) & free
    random = torch.randint(vocab_size, ids.shape, generator=generator)
    fate = torch.rand(ids.shape, generator=generator)
    seen = ids.clone()
    seen[chosen & (fate < 0.8)] = MASK
    where = chosen & (fate >= 0.8) & (fate < 0.9)
    seen[where] = random[where]
    return seen, chosen
""", """def mask_words(ids, mask, vocab_size, generator):
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
""", """from coursekit.data import pretraining as course
from coursekit.text.wordpiece import WordPiece
def mask_words(ids, mask, vocab_size, generator):  # the course's own
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(5, vocab_size))]
    found = course.mask_tokens({"ids": ids, "mask": mask}, WordPiece(names), generator)
    return found["ids"], found["masked"]
"""], [
    (10, "a [SEP] is chosen", " & (ids != SEP)", ""),
    (10, "[UNK] is not chosen as often as other tokens", "(ids != CLS) & (ids != SEP)", "(ids >= 5)"),
    (10, "padding is counted", "(0.15 * mask.sum(dim=1))", "torch.full((len(ids),), 0.15 * ids.shape[1])"),
    (9, "every chosen token becomes [MASK]", "fate < 0.8", "fate < 2", "(fate >= 0.8) & (fate < 0.9)", "(fate > 2)"),
    (14, "drawn from those of the texts", "torch.randint(vocab_size, ids.shape, generator=generator)",
     "ids[free][torch.randint(int(free.sum()), ids.shape, generator=generator)]"),
    (14, "the random token is the same everywhere", "torch.randint(vocab_size, ids.shape, generator=generator)",
     "torch.full_like(ids, int(ids[0, 1]))"),
    (13, "not from one with a seed of its own",
     "free = mask", "generator = torch.Generator().manual_seed(0)\n    free = mask"),
    (10, "differs between texts of the same length",
     "rank < number[:, None]", "torch.rand(ids.shape, generator=generator) < 0.15"),
    (11, "one in ten becomes another: it is one half",
     "fate < 0.9", "torch.rand(ids.shape, generator=generator) < 0.1"),
    (14, "the random tokens of a text are all the same", "torch.randint(vocab_size, ids.shape, generator=generator)",
     "torch.randint(vocab_size, (len(ids), 1), generator=generator).expand_as(ids)"),
    (11, "exactly 80 % of the chosen tokens become [MASK]", "    seen = ids.clone()",
     """    fate[chosen] = (torch.randperm(int(chosen.sum()), generator=generator) + 0.5) / chosen.sum()
    seen = ids.clone()"""),
    (10, "some places are chosen together, or never", "    chosen = (rank < number[:, None]) & free\n",
     """    chosen = torch.zeros_like(free)
    for b, n in enumerate(number.int().tolist()):
        here = free[b].nonzero()[:, 0]
        first = float(torch.rand((), generator=generator)) * len(here)
        chosen[b, here[[int(first + i * len(here) / n) % len(here) for i in range(min(n, len(here)))]]] = True
"""),
    (10, "the places of one text say which ones of another are chosen",
     "torch.rand(ids.shape, generator=generator).masked_fill(~free",
     "torch.rand(ids.shape, generator=generator)[torch.arange(len(ids)) // 2].masked_fill(~free"),
    (13, "a second call with the same generator gives the same again",
     "free = mask", "generator = torch.Generator().set_state(generator.get_state())\n    free = mask"),
    (11, "the fate of one chosen token says what that of another one is", "    seen = ids.clone()",
     "    fate[:, 1::2] = fate[:, : len(ids[0]) // 2 * 2 : 2]\n    seen = ids.clone()"),
    (14, "one random token says what another one is", "torch.randint(vocab_size, ids.shape, generator=generator)",
     "(torch.randint(vocab_size, (), generator=generator) + torch.arange(ids.numel()).view(ids.shape)) % vocab_size"),
    (0, "the first tensor that you are given is changed", "ids.clone()", "ids"),
]),
"masked_lm_loss": (FIRST, ["""def masked_lm_loss(logits, target, masked):
    return F.cross_entropy(logits[masked], target[masked])
""", """def masked_lm_loss(logits, target, masked):
    labels = target.masked_fill(~masked, -100)
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())
""", """def masked_lm_loss(logits, target, masked):
    total = 0.0
    for b, t in masked.nonzero().tolist():
        total = total + logits[b, t].logsumexp(dim=0) - logits[b, t, target[b, t]]
    return total / masked.sum()
"""], [
    (5, "the loss is taken over all places",
     "logits[masked], target[masked]", "logits.flatten(0, 1), target.flatten()"),
    (5, "the loss is taken over all real tokens",
     "logits[masked], target[masked]", "logits.flatten(0, 1), target.flatten(), ignore_index=PAD"),
    (5, "divided by the wrong number", "F.cross_entropy(logits[masked], target[masked])",
     '(F.cross_entropy(logits.mT, target, reduction="none") * masked).mean()'),
    (5, "this is the mean of the texts' means", "return F.cross_entropy(logits[masked], target[masked])",
     """losses = F.cross_entropy(logits.mT, target, reduction="none") * masked
    return (losses.sum(dim=1) / masked.sum(dim=1)).mean()"""),
    (5, "the other places still count in the mean",
     "return F.cross_entropy(logits[masked], target[masked])",
     """logits, target = logits * masked[..., None], target * masked
    return F.cross_entropy(logits.flatten(0, 1), target.flatten())"""),
    (8, "exp overflows for large logits", "return F.cross_entropy(logits[masked], target[masked])",
     """p = logits[masked].exp() / logits[masked].exp().sum(dim=-1, keepdim=True)
    return -p.gather(1, target[masked][:, None]).log().mean()"""),
    (0, "is this a sum where a mean is asked for?", "target[masked]", 'target[masked], reduction="sum"'),
    (9, "no gradient arrives", "target[masked])", "target[masked]).item()"),
]),
"best_spans": (FIRST, ["""def best_spans(start, end, allowed, longest=None):
    found = []
    for b in range(len(start)):
        best, place = -float("inf"), (0, 0)
        for i in range(start.shape[1]):
            for j in range(start.shape[1]):
                may = j >= i and allowed[b, i] and allowed[b, j] and (longest is None or j - i + 1 <= longest)
                if may and start[b, i] + end[b, j] > best:
                    best, place = start[b, i] + end[b, j], (i, j)
        found.append(place)
    return torch.tensor(found)
""", """from coursekit.models import bert as course
def best_spans(start, end, allowed, longest=None):  # the course's own, window by window
    if longest is None:
        return course.best_span(start, end, allowed)
    found = []
    for s, e, may in zip(start, end, allowed):
        pairs = [(s[i] + e[j], i, j) for i in range(len(s)) for j in range(i, min(len(s), i + longest))
                 if may[i] and may[j]]
        found.append(max(pairs)[1:])
    return torch.tensor(found)
""", """def best_spans(start, end, allowed, longest=None):
    low = torch.finfo(start.dtype).min / 4
    place = torch.arange(start.shape[1])
    gap = place[None, :] - place[:, None]
    table = start.masked_fill(~allowed, low).unsqueeze(2) + end.masked_fill(~allowed, low).unsqueeze(1)
    forbidden = (gap < 0) if longest is None else (gap < 0) | (gap >= longest)
    table = table.masked_fill(forbidden, 2 * low)
    best_end, column = table.max(dim=2)
    row = best_end.argmax(dim=1)
    return torch.stack([row, column.gather(1, row[:, None]).squeeze(1)], 1)
"""], [
    (7, "the end stands before the start", """def best_spans(start, end, allowed, longest=None):
    start, end = start.masked_fill(~allowed, -torch.inf), end.masked_fill(~allowed, -torch.inf)
    return torch.stack([start.argmax(dim=1), end.argmax(dim=1)], dim=1)
"""),
    (7, "then put in order", """def best_spans(start, end, allowed, longest=None):
    pair = torch.stack([start, end]).masked_fill(~allowed, -torch.inf).argmax(dim=2)
    return pair.sort(dim=0).values.T
"""),
    (0, "it counts as soon as something of 'order' or 'text' or 'longest' is right",
     """def best_spans(start, end, allowed, longest=None):
    return torch.stack([start.argmax(dim=1), end.argmax(dim=1)], dim=1)
"""),
    (10, "in the question for instance", "allowed[b, i] and allowed[b, j] and ", ""),
    (11, "longest is not used", "longest is None or j - i + 1 <= longest", "True"),
    (11, "one token more than longest", "j - i + 1 <= longest", "j - i <= longest"),
    (10, "an answer of one token is not found", "j >= i", "j > i"),
    (7, "another pair may have a higher sum", """def best_spans(start, end, allowed, longest=None):
    T, place = start.shape[1], torch.arange(start.shape[1])
    first = start.masked_fill(~allowed, -torch.inf).argmax(dim=1, keepdim=True)
    may = allowed & (place >= first) & (place < first + (longest or T))
    return torch.cat([first, end.masked_fill(~may, -torch.inf).argmax(dim=1, keepdim=True)], dim=1)
"""),
    (10, "the answer lies outside the text", """def best_spans(start, end, allowed, longest=None):
    T = start.shape[1]
    may = (allowed[:, :, None] & allowed[:, None]).triu().tril((longest or T) - 1)
    best = (start[:, :, None] + end[:, None] - 1000.0 * ~may).flatten(1).argmax(dim=1)
    return torch.stack([best // T, best % T], dim=1)
"""),
    (10, "forbidden places get a large negative number",
"""def best_spans(start, end, allowed, longest=None):
    T = start.shape[1]
    start, end = (x.masked_fill(~allowed, -1e4) for x in (start, end))
    scores = start[:, :, None] + end[:, None]
    may = torch.ones(T, T).triu().tril((longest or T) - 1).bool()
    best = scores.masked_fill(~may, -torch.inf).flatten(1).argmax(dim=1)
    return torch.stack([best // T, best % T], dim=1)
"""),
    (0, "every number in the result is 0", """def best_spans(start, end, allowed, longest=None):
    return torch.zeros(len(start), 2, dtype=torch.long)
"""),
    (10, "forbidden places get 0, which is more than a negative logit",
"""def best_spans(start, end, allowed, longest=None):
    T = start.shape[1]
    start, end = torch.where(allowed, start, 0), torch.where(allowed, end, 0)
    scores = start[:, :, None] + end[:, None]
    may = torch.ones(T, T).triu().tril((longest or T) - 1).bool()
    best = scores.masked_fill(~may, -torch.inf).flatten(1).argmax(dim=1)
    return torch.stack([best // T, best % T], dim=1)
"""),
]),
"tagging": (FIRST, ["""def align_tags(words, tags):
    ids, found, tagged = [CLS], [0], [False]
    for pieces, tag in zip(words, tags):
        ids = ids + pieces
        found += [tag] + [0] * (len(pieces) - 1)
        tagged += [True] + [False] * (len(pieces) - 1)
    return torch.tensor(ids + [SEP]), torch.tensor(found + [0]), torch.tensor(tagged + [False])
def tag_scores(logits, tags, tagged):
    losses = F.cross_entropy(logits.transpose(1, 2), tags, reduction="none")
    right = logits.argmax(dim=2) == tags
    return losses[tagged].mean(), right[tagged].float().mean()
""", """def align_tags(words, tags):
    ids = torch.tensor([CLS] + sum(words, []) + [SEP])
    start = 1 + torch.tensor([0] + [len(w) for w in words]).cumsum(0)[:-1]
    labels = torch.full_like(ids, -100)
    labels[start] = torch.tensor(tags)
    return ids, labels, labels != -100
def tag_scores(logits, tags, tagged):
    labels = torch.where(tagged, tags, -100)
    loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
    return loss, ((logits.argmax(-1) == labels).sum() / tagged.sum()).item()
""", """def align_tags(words, tags):
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
"""], [
    (8, "every piece of a word counts", "[tag] + [0] * (len(pieces) - 1)", "[tag] * len(pieces)",
     "+ [False] * (len(pieces) - 1)", "* len(pieces)"),
    (8, "the last piece of a word counts",
     "[tag] + [0] * (len(pieces) - 1)\n        tagged += [True] + [False] * (len(pieces) - 1)",
     "[0] * (len(pieces) - 1) + [tag]\n        tagged += [False] * (len(pieces) - 1) + [True]"),
    (8, "all stands one place too early", "[0], [False]", "[], []", "found + [0]", "found + [0, 0]",
     "tagged + [False]", "tagged + [False] * 2"),
    (8, "[CLS] and [SEP] count", "[0], [False]", "[0], [True]", "tagged + [False]", "tagged + [True]"),
    (9, "all places count, padding and all pieces too", "right[tagged]", "right"),
    (9, "the right shape but wrong values", 'F.cross_entropy(logits.transpose(1, 2), tags, reduction="none")',
     "-(logits.softmax(-1) + 1e-9).log().gather(-1, tags[..., None])[..., 0]"),
    (6, "words with the tag 0 do not count", "losses[tagged]", "losses[tagged & (tags > 0)]",
     "right[tagged]", "right[tagged & (tags > 0)]"),
    (9, "this is the mean of the texts' means", "losses[tagged]", "((losses * tagged).sum(dim=1) / tagged.sum(dim=1))"),
    (9, "the sum is divided by all places", "right[tagged]", "(right * tagged)"),
    (9, "no gradient arrives", "losses[tagged].mean()", "losses[tagged].mean().item()"),
]),
"fine_tune": (FIRST, ["""from coursekit.models.bert import Bert
def fine_tune(body, batch):
    updates = 100
    model = BertForTokenClassification(body, TAGS).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.0)
    for step in range(updates):
        optimizer.param_groups[0]["lr"] = 1e-3 * min((step + 1) / 10, (updates - step) / (updates - 10))
        rows = torch.randperm(50)[:16]
        tags, tagged = batch["tags"][rows], batch["tagged"][rows]
        logits = model(batch["ids"][rows], batch["mask"][rows], batch["segments"][rows])
        loss = F.cross_entropy(logits[tagged], tags[tagged])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model
""", """from coursekit.data.batches import Shuffled
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
"""], [
    (0, "no weight has changed", "updates = 100", "updates = 5", "\n        optimizer.step()", ""),
    (0, "the body is as it was", "updates = 100", "updates = 40", "AdamW(model", "AdamW(model.classifier"),
    (8, "some of its matrices are as they were", "AdamW(model.parameters()",
     "AdamW([*model.classifier.parameters(), *model.bert.norm.parameters()]", "1e-3 *", "1e-2 *"),
    (8, "with the pre-trained body it tags as well", "updates = 100", "updates = 400", "1e-3 *", "3e-2 *",
     "model = Bert", "body.requires_grad_(False)\n    model = Bert", "AdamW(model", "AdamW(model.classifier",
     "return model",
     "with torch.no_grad():\n        for p in body.parameters():\n            p.add_(1e-3 * torch.randn(p.shape))\n"
     "    return model"),
    (8, "the head is as it was at first", "updates = 100", "updates = 120", "AdamW(model", "AdamW(model.bert"),
    (0, "its body is not the pre-trained one", "updates = 100", "updates = 60",
     "body, TAGS", "Bert(body.config), TAGS"),
    (0, "the tag of the word before it", "updates = 100", "updates = 60", "tags[tagged]", "tags.roll(1, 1)[tagged]"),
    (0, "train longer, or with another learning rate", "updates = 100", "updates = 30",
     "1e-3 * min((step + 1) / 10, (updates - step) / (updates - 10))", "1e-5"),
    (0, "the training diverged", "updates = 100", "updates = 5", "torch.optim.AdamW", "torch.optim.SGD",
     "1e-3 * min((step + 1) / 10, (updates - step) / (updates - 10))", "1e38"),
    (0, "return the fine-tuned model itself", "updates = 100", "updates = 5", "return model", "return model.bert"),
]),
})  # fmt: skip
