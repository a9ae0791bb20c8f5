"""Answers to exercise 06, right and wrong ones: see __init__."""

from tests.grading.answers import FIRST, load

RIGHT, MUTANTS = load("06_gpt", {
"blocks": (FIRST, ["""def look_back(query, key, value):
    T, S = query.shape[2], key.shape[2]
    mask = torch.arange(S) <= torch.arange(S - T, S)[:, None]
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
def gpt_block(x, w, n_heads):
    B, T, D = x.shape
    def norm(z, name):
        return F.layer_norm(z, (D,), *w[name])
    def attention(z):
        query, key, value = (z.view(B, T, n_heads, -1).transpose(1, 2) for z in F.linear(z, *w["qkv"]).split(D, -1))
        joined = look_back(query, key, value).transpose(1, 2).reshape(B, T, D)
        return F.linear(joined, *w["out"])
    def network(z):
        return F.linear(F.gelu(F.linear(z, *w["up"]), approximate="tanh"), *w["down"])
    h = x + attention(norm(x, "norm_1"))
    return h + network(norm(h, "norm_2"))
""", """from math import sqrt
def look_back(query, key, value):
    B, H, T, Dh = query.shape
    S = key.shape[2]
    result = torch.empty(B, H, T, value.shape[-1])
    for t in range(T):
        end = S - T + t + 1
        scores = torch.einsum("bhd,bhsd->bhs", query[:, :, t], key[:, :, :end]) / sqrt(Dh)
        result[:, :, t] = torch.einsum("bhs,bhsd->bhd", scores.softmax(-1), value[:, :, :end])
    return result
def gpt_block(x, w, n_heads):
    y = F.layer_norm(x, x.shape[-1:], *w["norm_1"]) @ w["qkv"][0].T + w["qkv"][1]
    D = x.shape[-1]
    size, joined = D // n_heads, []
    for h in range(n_heads):
        q, k, v = (y[:, None, :, part * D + h * size : part * D + (h + 1) * size] for part in range(3))
        joined.append(look_back(q, k, v)[:, 0])
    x = x + torch.cat(joined, dim=-1) @ w["out"][0].T + w["out"][1]
    z = F.layer_norm(x, x.shape[-1:], *w["norm_2"]) @ w["up"][0].T + w["up"][1]
    z = 0.5 * z * (1 + torch.tanh(sqrt(2 / torch.pi) * (z + 0.044715 * z**3)))
    return x + z @ w["down"][0].T + w["down"][1]
""", """from coursekit.nn.attention import MultiHeadAttention, attend
from coursekit.nn.blocks import Block, FeedForward
def look_back(query, key, value):  # the course's own
    return attend(query, key, value, causal=True)[0]
def gpt_block(x, w, n_heads):
    D, d_ff = x.shape[-1], len(w["up"][0])
    layer = Block(MultiHeadAttention(D, n_heads), FeedForward(D, d_ff, "gelu_tanh"))
    names = {"norm_1": "attention_residual.norm", "qkv": "attention.qkv", "out": "attention.out",
             "norm_2": "feed_forward_residual.norm", "up": "feed_forward.up", "down": "feed_forward.down"}
    layer.load_state_dict({f"{names[n]}.{kind}": t for n, pair in w.items()
                           for kind, t in zip(("weight", "bias"), pair)})
    return layer(x, causal=True)
"""], [
    (12, "the triangle starts at the top left", "attn_mask=mask", "is_causal=True"),
    (0, "no mask: a query sees what comes after it", "attn_mask=mask", "attn_mask=None"),
    (0, "a query does not see its own position", "torch.arange(S) <=", "torch.arange(S) <",
     "attn_mask=mask)", "attn_mask=mask).nan_to_num(0)"),
    (0, "the scores are not divided by the square root of Dh", "attn_mask=mask", "attn_mask=mask, scale=1.0"),
    (8, "this is post-norm, as in 2017", 'x + attention(norm(x, "norm_1"))', 'norm(x + attention(x), "norm_1")',
     'h + network(norm(h, "norm_2"))', 'norm(h + network(h), "norm_2")'),
    (8, "the normalised x is added", "h = x +", 'h = norm(x, "norm_1") +', "return h +", 'return norm(h, "norm_2") +'),
    (8, "the feed-forward network reads what came into the block", 'norm(h, "norm_2")', 'norm(x, "norm_2")'),
    (8, "this is the exact gelu", ', approximate="tanh"', ""),
    (12, "the result holds entries that are no finite number",
     "return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)",
     "e = (query @ key.mT / query.shape[-1] ** 0.5).exp() * mask\n    return e / e.sum(dim=-1, keepdim=True) @ value"),
    (12, "the later positions get a number such as -1e9",
     "return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)",
     "return (query @ key.mT / query.shape[-1] ** 0.5).masked_fill(~mask, -1e9).softmax(-1) @ value"),
    (12, "a number such as -1e9 is added", "attn_mask=mask", "attn_mask=-1e4 * ~mask"),
    (0, "a query sees one position too many", "torch.arange(S - T, S)", "torch.arange(S - T + 1, S + 1)"),
    (8, "has the right shape but wrong values", 'F.gelu(F.linear(z, *w["up"]), approximate="tanh")',
     '(lambda u: u * torch.sigmoid(1.5957691216 * (u + 0.0435 * u**3)))(F.linear(z, *w["up"]))'),
    (8, "the heads are cut by a view alone",
     "z.view(B, T, n_heads, -1).transpose(1, 2)", "z.reshape(B, n_heads, T, D // n_heads)"),
]),
"next_token_loss": (FIRST, ["""def next_token_loss(logits, ids, real, learned):
    losses = F.cross_entropy(logits[:, :-1].transpose(1, 2), ids[:, 1:], reduction="none")
    counts = real[:, :-1] & real[:, 1:] & learned[:, 1:]
    return losses[counts].mean()
""", """def next_token_loss(logits, ids, real, learned):
    target = ids.roll(-1, dims=1)
    counts = (real & learned).roll(-1, dims=1) & real
    counts[:, -1] = False
    labels = target.masked_fill(~counts, -100)
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())
""", """def next_token_loss(logits, ids, real, learned):
    total, n = 0.0, 0
    for b in range(len(ids)):
        for t in range(1, ids.shape[1]):
            if learned[b, t] and real[b, t] and real[b, t - 1]:
                total = total + logits[b, t - 1].logsumexp(0) - logits[b, t - 1, ids[b, t]]
                n += 1
    return total / n
"""], [
    (0, "nothing is shifted", "logits[:, :-1]", "logits", "ids[:, 1:]", "ids", "real[:, :-1] & real[:, 1:]", "real",
     "learned[:, 1:]", "learned"),
    (8, "`learned` is not used", " & learned[:, 1:]", ""),
    (8, "learned is read one place too early", "learned[:, 1:]", "learned[:, :-1]"),
    (5, "padding is told by its id", "real[:, :-1] & real[:, 1:]", "(ids[:, 1:] != 0)"),
    (9, "the first token behind padding on the left counts", "real[:, :-1] & real[:, 1:]", "real[:, 1:]"),
    (7, "the last place predicts the first token", "logits[:, :-1]", "logits", "ids[:, 1:]", "ids.roll(-1, dims=1)",
     "real[:, :-1]", "real", "real[:, 1:]", "real.roll(-1, dims=1)", "learned[:, 1:]", "learned.roll(-1, dims=1)"),
    (5, "this is the mean of the texts' means", "losses[counts]", "((losses * counts).sum(dim=1) / counts.sum(dim=1))"),
    (5, "the sum is divided by all places", "losses[counts]", "(losses * counts)"),
    (10, "no gradient arrives", ".mean()", ".mean().item()"),
    (9, "logits of several hundred",
     'F.cross_entropy(logits[:, :-1].transpose(1, 2), ids[:, 1:], reduction="none")',
     "-logits[:, :-1].softmax(dim=-1).clamp(min=1e-30).log().gather(2, ids[:, 1:, None])[..., 0]"),
]),
"may_come": (FIRST, ["""def may_come(logits, k=None, p=None):
    kept = torch.ones(logits.shape, dtype=torch.bool)
    if k is not None:
        kept = torch.zeros_like(kept).scatter(-1, logits.topk(k).indices, True)
    if p is not None:
        chance, ids = logits.masked_fill(~kept, -torch.inf).softmax(dim=-1).sort(dim=-1, descending=True)
        inside = chance.cumsum(dim=-1) - chance < p
        kept = kept & torch.zeros_like(kept).scatter(-1, ids, inside)
    return kept
""", """def may_come(logits, k=None, p=None):
    shape = logits.shape
    rows = logits.reshape(-1, shape[-1])
    result = torch.zeros(rows.shape, dtype=torch.bool)
    for row, kept in zip(rows, result):
        ids = row.argsort(descending=True)[:k]
        chances = row[ids].softmax(dim=0).tolist()
        total = 0.0
        for i, chance in zip(ids.tolist(), chances):
            kept[i] = True
            total += chance
            if p is not None and total >= p:
                break
    return result.view(shape)
""", """from coursekit.nn import sampling as course
def may_come(logits, k=None, p=None):  # the course's own
    if k is not None:
        logits = course.keep_top_k(logits, k)
    if p is not None:
        logits = course.keep_top_p(logits, p)
    return logits > -torch.inf
"""], [
    (3, "the token that crosses p is left out: without it", "- chance < p", "< p"),
    (3, "unless nothing else is left",
     "chance.cumsum(dim=-1) - chance < p", "(chance.cumsum(dim=-1) < p) | (torch.arange(logits.shape[-1]) == 0)"),
    (3, "the kept places are places in the sorted order", "torch.zeros_like(kept).scatter(-1, ids, inside)", "inside"),
    (3, "the probabilities are added up in the order of the ids",
     "chance, ids = ", "ids = torch.arange(logits.shape[-1]).expand(logits.shape)\n        chance = ",
     ".sort(dim=-1, descending=True)", ""),
    (3, "the probabilities are added up from the smallest", "descending=True", "descending=False"),
    (9, "with k and p top-p looks at the probabilities before top-k", "masked_fill(~kept, -torch.inf).", ""),
    (3, "whose own probability is at least p",
     "chance.cumsum(dim=-1) - chance < p", "(chance >= p) | (torch.arange(logits.shape[-1]) == 0)"),
    (0, "True and False have changed places", "return kept", "return ~kept"),
    (12, "150 tokens, of which many may come", ".sort(dim=-1, descending=True)",
     ".topk(min(24, logits.shape[-1]))"),
    (11, "of which most are 0 to a computer",
     "torch.zeros_like(kept).scatter(-1, logits.topk(k).indices, True)",
     "(chance := logits.softmax(dim=-1)) >= chance.topk(k).values[..., -1:]"),
    (6, "k + 1 tokens are kept", "logits.topk(k)", "logits.topk(k + 1)"),
    (12, "exp overflows for large logits", "chance, ids = logits.masked_fill(~kept, -torch.inf).softmax(dim=-1)",
     """chance = logits.exp() * kept
        chance, ids = (chance / chance.sum(dim=-1, keepdim=True))"""),
    (8, "a batch, k = None, p = 0.97", "if p is not None:", "if p is not None:\n        p = min(max(p, 0.1), 0.9)"),
]),
"draw_token": (FIRST, ["""def draw_token(logits, temperature, k, p, generator):
    if temperature == 0: return logits.max(dim=-1).indices
    logits = logits / temperature
    if k is not None: logits = keep_top_k(logits, k)
    if p is not None: logits = keep_top_p(logits, p)
    chance = logits.softmax(dim=-1)
    return torch.multinomial(chance, 1, generator=generator).squeeze(1)
""", """def draw_token(logits, temperature, k, p, generator):
    if not temperature:
        return logits.argmax(1)
    chance = (logits / temperature).softmax(dim=1)
    chance, order = chance.sort(dim=1, descending=True)
    if k is not None:
        chance[:, k:] = 0
        chance = chance / chance.sum(dim=1, keepdim=True)
    if p is not None:
        chance[chance.cumsum(dim=1) - chance >= p] = 0
        chance = chance / chance.sum(dim=1, keepdim=True)
    u = torch.rand(len(chance), 1, generator=generator)
    place = (chance.cumsum(dim=1) <= u).sum(dim=1, keepdim=True)
    place = torch.minimum(place, (chance > 0).sum(dim=1, keepdim=True) - 1)
    return order.gather(1, place)[:, 0]
""", """def draw_token(logits, temperature, k, p, generator):
    if temperature == 0:
        return logits.argmax(dim=-1)
    logits = logits / temperature
    logits = logits if k is None else keep_top_k(logits, k)
    logits = logits if p is None else keep_top_p(logits, p)
    noise = -torch.empty_like(logits).exponential_(generator=generator).log()
    return (logits + noise).argmax(dim=-1)
"""], [
    (10, "probability tensor contains either", "chance = logits.softmax(dim=-1)",
     "chance = logits.exp()\n    chance = chance / chance.sum(dim=-1, keepdim=True)"),
    (6, "the temperature has no effect", "    logits = logits / temperature\n", ""),
    (6, "the logits are multiplied by the temperature", "/ temperature", "* temperature"),
    (10, "the temperature comes last", "    logits = logits / temperature\n", "",
     "logits.softmax", "(logits / temperature).softmax"),
    (9, "top-p comes before top-k", "    if k is not None: logits = keep_top_k(logits, k)\n", "",
     "    chance = logits", "    if k is not None: logits = keep_top_k(logits, k)\n    chance = logits"),
    (10, "at temperature 0 it is not the most likely", "return logits.max(dim=-1).indices", "temperature = 1"),
    (8, "it is always the most likely token that comes: draw", "temperature == 0", "temperature < 0.2"),
    (11, "not from one with a seed of its own", "generator=generator", "generator=torch.Generator().manual_seed(0)"),
    (11, "the same one later, gave the same result", "    return torch.multinomial(chance, 1, generator=generator)",
     "    copy = torch.Generator()\n    copy.set_state(generator.get_state())\n"
     "    return torch.multinomial(chance, 1, generator=copy)"),
    (2, "one token for each row", ".squeeze(1)", ""),
    (3, "the tokens of two rows depend on each other",
     "return torch.multinomial(chance, 1, generator=generator).squeeze(1)",
     """u = (torch.rand(1, generator=generator) + 0.618034 * torch.arange(len(chance)).double()) % 1
    return (chance.cumsum(dim=1) < u[:, None]).sum(dim=1).clamp(max=chance.shape[1] - 1)"""),
    (8, "those of the softmax, as they are", "softmax(dim=-1)", "softmax(dim=-1) ** 0.97"),
    (3, "draw one for each row by itself",
     "return torch.multinomial(chance, 1, generator=generator).squeeze(1)",
     """u = torch.rand(len(chance), generator=generator).argsort() + torch.rand(len(chance), generator=generator)
    return (chance.cumsum(dim=1) < u[:, None] / len(u)).sum(dim=1).clamp(max=chance.shape[1] - 1)"""),
    (3, "drawn from the probabilities of the first one", "torch.multinomial(chance, 1, generator=generator).squeeze(1)",
     "torch.multinomial(chance[0], len(chance), replacement=True, generator=generator)"),
]),
"cached_step": (FIRST, ["""def cached_step(ids, past, w, n_heads):
    (B, T), D = ids.shape, w["tokens"].shape[1]
    if past is None:
        past = [torch.zeros(B, n_heads, 0, D // n_heads)] * 2
    S = past[0].shape[2]
    x = w["tokens"][ids] + w["positions"][torch.arange(ids.shape[1]) + S]
    query, key, value = F.linear(x, *w["qkv"]).view(B, T, 3, n_heads, -1).permute(2, 0, 3, 1, 4)
    def append(old, new):
        return torch.cat([old, new], dim=2)
    keys, values = append(past[0], key), append(past[1], value)
    mask = torch.arange(keys.shape[2]) <= torch.arange(keys.shape[2] - ids.shape[1], keys.shape[2])[:, None]
    heads = F.scaled_dot_product_attention(query, keys, values, attn_mask=mask)
    return x + F.linear(heads.transpose(1, 2).reshape(B, T, D), *w["out"]), keys, values
""", """def cached_step(ids, past, w, n_heads):
    outputs = []
    for t in range(ids.shape[1]):
        place = 0 if past is None else past[0].shape[2]
        x = w["tokens"][ids[:, t]] + w["positions"][place]
        three = F.linear(x, *w["qkv"]).chunk(3, dim=-1)
        query, key, value = (z.unflatten(-1, (n_heads, -1))[:, :, None] for z in three)
        if past is not None:
            key, value = torch.cat([past[0], key], 2), torch.cat([past[1], value], 2)
        past = key, value
        scores = (query * key).sum(-1) / query.shape[-1] ** 0.5
        heads = (scores.softmax(-1)[..., None] * value).sum(dim=2)
        outputs.append(x + F.linear(heads.flatten(1), *w["out"]))
    return torch.stack(outputs, dim=1), *past
""", """def cached_step(ids, past, w, n_heads):
    module = course.MultiHeadAttention(w["tokens"].shape[1], n_heads)
    module.load_state_dict({f"{n}.{kind}": t for n in ("qkv", "out") for kind, t in zip(("weight", "bias"), w[n])})
    cache, start = course.Cache(100), 0
    if past is not None:
        cache.append(*past)
        start = cache.length
    x = F.embedding(ids, w["tokens"]) + w["positions"][start : start + ids.shape[1]]
    y = x + module(x, causal=True, cache=cache)
    return y, cache.key[:, :, : cache.length], cache.value[:, :, : cache.length]
"""], [
    (10, "the position is one too small", "+ S", "+ S - 1"),
    (10, "the position is one too large", "+ S", "+ S + 1"),
    (10, "the positions start at 0 again", " + S", ""),
    (3, "the triangle starts at the top left", "attn_mask=mask", "is_causal=True"),
    (11, "no mask: a query sees what comes after it", "attn_mask=mask", "attn_mask=None"),
    (11, "only the new keys and values are returned", "), keys, values", "), key, value"),
    (11, "the cache is returned as it came", "), keys, values", "), *(past if S else (keys, values))"),
    (8, "the new keys and values stand before the cached ones", "[old, new]", "[new, old]"),
]),
"pack_rows": (FIRST, ["""def pack_rows(documents, length, end_id):
    stream = [end_id] + [i for d in documents for i in d + [end_id]]
    rows = range(0, len(stream) - length, length)
    inputs = [stream[at : at + length] for at in rows]
    targets = [stream[at + 1 : at + length + 1] for at in rows]
    return torch.tensor(inputs), torch.tensor(targets)
""", """from coursekit.data.packing import pack
def pack_rows(documents, length, end_id):  # the course's own
    rows = pack(documents, length, end_id)
    return rows[:, :-1], rows[:, 1:]
""", """def pack_rows(documents, length, end_id):
    end = torch.tensor([end_id])
    stream = torch.cat([end] + [torch.tensor(d + [end_id]) for d in documents])
    stream = stream[: (len(stream) - 1) // length * length + 1]
    return stream[:-1].reshape(-1, length), stream[1:].reshape(-1, length)
"""], [
    (0, "there are no ends", "[end_id] + [i for d in documents for i in d + [end_id]]", "sum(documents, [])"),
    (0, "there is no end before the first document", "[end_id] + [i", "[i"),
    (0, "the rows share no token", "length, length", "length, length + 1"),
    (5, "one of them empty", "in documents for i", "in documents if d for i"),
    (5, "ids of 40,000", "torch.tensor(inputs)", "torch.tensor(inputs, dtype=torch.int16)"),
    (5, "8 with the ends", """def pack_rows(documents, length, end_id):
    stream = torch.tensor([end_id] + [i for d in documents for i in d + [end_id]])
    n = len(stream) // length
    return stream[: n * length].view(n, length), stream[1 : n * length + 1].view(n, length)
"""),
    (3, "the rest is filled up", "rows = ", "stream += (1 - len(stream)) % length * [end_id]\n    rows = "),
    (3, "a last row that just fits is missing", "- length", "- length - 1"),
    (6, "the targets are the inputs", "stream[at + 1 : at + length + 1]", "stream[at : at + length]"),
    (6, "the last target of a row is its first input",
     "stream[at + 1 : at + length + 1]", "stream[at + 1 : at + length] + [stream[at]]"),
    (0, "each document has rows of its own", """def pack_rows(documents, length, end_id):
    inputs, targets = [], []
    for document in documents:
        row = [end_id] + document + [end_id]
        for at in range(0, len(row) - 1, length):
            part = row[at : at + length + 1]
            part = part + [end_id] * (length + 1 - len(part))
            inputs.append(part[:-1])
            targets.append(part[1:])
    return torch.tensor(inputs), torch.tensor(targets)
"""),
]),
"fine_tune": (FIRST, ["""from coursekit.models.gpt import GPT
def next_token_loss(logits, ids, real, learned):
    counts = learned[:, 1:] & real[:, 1:] & real[:, :-1]
    return F.cross_entropy(logits[:, :-1][counts], ids[:, 1:][counts])
def fine_tune(model, batch):
    updates = 180
    model = model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.0)
    for step in range(updates):
        optimizer.param_groups[0]["lr"] = 1e-3 * min((step + 1) / 10, (updates - step) / (updates - 10))
        rows = torch.randperm(1000)[:8]
        width = int(batch["mask"][rows].sum(dim=1).max())
        ids, mask, learned = (batch[name][rows, :width] for name in ("ids", "mask", "loss_mask"))
        loss = next_token_loss(model(ids, mask), ids, mask, learned)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model
""", """from itertools import islice
from coursekit.data.batches import Shuffled
from coursekit.models.gpt import gpt_loss
def fine_tune(model, batch):
    torch.manual_seed(3)
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=180, pct_start=0.1)
    for part in islice(Shuffled(batch, 8), 180):
        width = part["mask"].any(dim=0).sum()
        loss, count = gpt_loss(model, {name: tensor[:, :width] for name, tensor in part.items()})
        optimizer.zero_grad()
        (loss / count).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model
"""], [
    (0, "no weight has changed", "updates = 180", "updates = 3", "\n        optimizer.step()", ""),
    (0, "it writes one token again and again", "updates = 180", "updates = 90",
     "next_token_loss(model(ids, mask), ids, mask, learned)",
     "F.cross_entropy(model(ids, mask)[learned], ids[learned])"),
    (0, "its weights are not the pre-trained ones", "updates = 180", "updates = 3",
     "model.train", "GPT(model.config).train"),
    (0, "some of its matrices are as they were", "updates = 180", "updates = 3",
     "AdamW(model", "AdamW(model.blocks[-1]"),
    (8, "half of its blocks do as well as they were before", "updates = 180", "updates = 200", "1e-3 *", "2e-3 *",
     "[:8]", "[:16]",
     "model = model.train()", "model = model.train()\n    model.requires_grad_(False)\n"
     "    torch.nn.ModuleList([*model.blocks[-2:], model.norm]).requires_grad_(True)",
     "AdamW(model.parameters()", "AdamW([*model.blocks[-2:].parameters(), *model.norm.parameters()]",
     "return model", "frozen = [model.tokens, model.positions, *model.blocks[:-2]]\n    with torch.no_grad():\n"
     "        for p in torch.nn.ModuleList(frozen).parameters():\n            p.add_(1e-3 * torch.randn(p.shape))\n"
     "    return model"),
    (0, "train longer", "updates = 180", "updates = 3",
     "1e-3 * min((step + 1) / 10, (updates - step) / (updates - 10))", "1e-6"),
    (0, "the training diverged", "updates = 180", "updates = 3", "torch.optim.AdamW", "torch.optim.SGD",
     "1e-3 * min((step + 1) / 10, (updates - step) / (updates - 10))", "1e38"),
    (0, "return the fine-tuned model itself", "updates = 180", "updates = 3", "return model", "return model.blocks"),
]),
})  # fmt: skip
