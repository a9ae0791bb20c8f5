"""Answers to exercise 02, wrong ones with the points they deserve and the words they must be told, and right ones.

A wrong answer is ``(points, words, source)``. Each is a mistake that a student could make.
"""

MUTANTS = {
    "luong_score": [
        (0, "divided by the square root of D", """
def luong_score(query, keys, W=None):
    if W is not None:
        keys = keys @ W.T
    return torch.einsum("bd,bsd->bs", query, keys) / query.shape[-1] ** 0.5
"""),
        (0, "these are weights already", """
def luong_score(query, keys, W=None):
    if W is not None:
        keys = keys @ W.T
    return torch.einsum("bd,bsd->bs", query, keys).softmax(dim=-1)
"""),
        (0, "a mean over the entries", """
def luong_score(query, keys, W=None):
    if W is not None:
        keys = keys @ W.T
    return (query[:, None] * keys).mean(dim=-1)
"""),
        (7, "W is transposed", """
def luong_score(query, keys, W=None):
    if W is not None:
        keys = keys @ (W if W.shape[0] == W.shape[1] else W.T)
    return (query[:, None] * keys).sum(dim=-1)
"""),
        (7, "W is not used", """
def luong_score(query, keys, W=None):
    size = min(query.shape[-1], keys.shape[-1])
    if query.shape[-1] != keys.shape[-1]:
        keys = keys @ W.T
    return (query[:, None] * keys).sum(dim=-1)
"""),
        (0, "that is the cosine", """
def luong_score(query, keys, W=None):
    if W is not None:
        keys = keys @ W.T
    return torch.cosine_similarity(query[:, None], keys, dim=-1)
"""),
        (0, "it returned None", """
def luong_score(query, keys, W=None):
    if W is not None:
        keys = keys @ W.T
    scores = (query[:, None] * keys).sum(dim=-1)
"""),
        (0, "the result has the wrong shape", """
def luong_score(query, keys, W=None):
    if W is not None:
        keys = keys @ W.T
    return keys @ query[:, :, None]
"""),
    ],
    "additive_score": [
        (0, "the tanh is missing", """
def additive_score(query, keys, W, U, v):
    return ((query @ W.T)[:, None] + keys @ U.T) @ v
"""),
        (0, "tanh is taken of each part", """
def additive_score(query, keys, W, U, v):
    return (torch.tanh(query @ W.T)[:, None] + torch.tanh(keys @ U.T)) @ v
"""),
        (0, "a relu where the formula has tanh", """
def additive_score(query, keys, W, U, v):
    return torch.relu((query @ W.T)[:, None] + keys @ U.T) @ v
"""),
        (0, "v is not used", """
def additive_score(query, keys, W, U, v):
    return torch.tanh((query @ W.T)[:, None] + keys @ U.T).sum(dim=-1)
"""),
        (4, "W and U are swapped", """
def additive_score(query, keys, W, U, v):
    if W.shape == U.shape:
        W, U = U, W
    return torch.tanh((query @ W.T)[:, None] + keys @ U.T) @ v
"""),
        (6, "query number b met position number b", """
def additive_score(query, keys, W, U, v):
    if len(query) in (1, keys.shape[1]):
        return torch.tanh(query @ W.T + keys @ U.T) @ v
    return torch.tanh((query @ W.T)[:, None] + keys @ U.T) @ v
"""),
        (0, "W is transposed", """
def additive_score(query, keys, W, U, v):
    return torch.tanh((query @ W)[:, None] + keys @ U.T) @ v
"""),
    ],
    "masked_softmax": [
        (4, "the mask is not used", """
def masked_softmax(scores, mask):
    return scores.softmax(dim=-1)
"""),
        (0, "the mask is upside down", """
def masked_softmax(scores, mask):
    return scores.masked_fill(mask, -torch.inf).softmax(dim=-1)
"""),
        (4, "a masked score of 0 still gets weight", """
def masked_softmax(scores, mask):
    return (scores * mask).softmax(dim=-1)
"""),
        (4, "no longer sum to 1", """
def masked_softmax(scores, mask):
    return scores.softmax(dim=-1) * mask
"""),
        (0, "wrong axis", """
def masked_softmax(scores, mask):
    return scores.masked_fill(~mask, -torch.inf).softmax(dim=0)
"""),
        (11, "the highest score is a masked one", """
def masked_softmax(scores, mask):
    e = (scores - scores.max(dim=-1, keepdim=True).values).exp() * mask
    return e / e.sum(dim=-1, keepdim=True)
"""),
        (11, "exp overflows for large scores", """
def masked_softmax(scores, mask):
    e = scores.exp() * mask
    return e / e.sum(dim=-1, keepdim=True)
"""),
        (11, "not with a large number", """
def masked_softmax(scores, mask):
    return scores.masked_fill(~mask, -1e9).softmax(dim=-1)
"""),
    ],
    "attention_step": [
        (12, "h and c are swapped", """
def attention_step(h, states, mask, W_c):
    a = (states @ h[:, :, None])[:, :, 0].masked_fill(~mask, -torch.inf).softmax(dim=-1)
    c = (a[:, None] @ states)[:, 0]
    return torch.tanh(torch.cat([h, c], dim=-1) @ W_c.T), a
"""),
        (12, "the tanh is missing", """
def attention_step(h, states, mask, W_c):
    a = (states @ h[:, :, None])[:, :, 0].masked_fill(~mask, -torch.inf).softmax(dim=-1)
    c = (a[:, None] @ states)[:, 0]
    return torch.cat([c, h], dim=-1) @ W_c.T, a
"""),
        (14, "padding gets weight", """
def attention_step(h, states, mask, W_c):
    a = (states @ h[:, :, None])[:, :, 0].softmax(dim=-1)
    c = (a[:, None] @ states)[:, 0]
    return torch.tanh(torch.cat([c, h], dim=-1) @ W_c.T), a
"""),
        (12, "this is the context", """
def attention_step(h, states, mask, W_c):
    a = (states @ h[:, :, None])[:, :, 0].masked_fill(~mask, -torch.inf).softmax(dim=-1)
    return (a[:, None] @ states)[:, 0], a
"""),
        (8, "these are the scores", """
def attention_step(h, states, mask, W_c):
    scores = (states @ h[:, :, None])[:, :, 0]
    a = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    c = (a[:, None] @ states)[:, 0]
    return torch.tanh(torch.cat([c, h], dim=-1) @ W_c.T), scores
"""),
        (0, "divided by the square root of D", """
def attention_step(h, states, mask, W_c):
    scores = (states @ h[:, :, None])[:, :, 0] / h.shape[-1] ** 0.5
    a = course.masked_softmax(scores, mask)
    c = (a[:, None] @ states)[:, 0]
    return torch.tanh(torch.cat([c, h], dim=-1) @ W_c.T), a
"""),
        (0, "the two results are in the wrong order", """
def attention_step(h, states, mask, W_c):
    a = course.masked_softmax((states @ h[:, :, None])[:, :, 0], mask)
    c = (a[:, None] @ states)[:, 0]
    return a, torch.tanh(torch.cat([c, h], dim=-1) @ W_c.T)
"""),
    ],
    "reversal_batch": [
        (10, "the whole row is reversed", """
def reversal_batch(n_sequences, longest, n_symbols, generator):
    lengths = torch.randint(1, longest + 1, (n_sequences, 1), generator=generator)
    mask = torch.arange(longest) < lengths
    source = torch.randint(n_symbols, (n_sequences, longest), generator=generator) * mask
    return source, mask, source.flip(1)
"""),
        (0, "0 is a symbol too", """
def reversal_batch(n_sequences, longest, n_symbols, generator):
    lengths = torch.randint(1, longest + 1, (n_sequences, 1), generator=generator)
    source = torch.randint(n_symbols, (n_sequences, longest), generator=generator)
    source = source * (torch.arange(longest) < lengths)
    index = (lengths - 1 - torch.arange(longest)).clamp(min=0)
    mask = source != 0
    return source, mask, source.gather(1, index) * (torch.arange(longest) < lengths)
"""),
        (9, "the last symbol, n_symbols - 1, never occurs", """
def reversal_batch(n_sequences, longest, n_symbols, generator):
    lengths = torch.randint(1, longest + 1, (n_sequences, 1), generator=generator)
    mask = torch.arange(longest) < lengths
    source = torch.randint(n_symbols - 1, (n_sequences, longest), generator=generator) * mask
    index = (lengths - 1 - torch.arange(longest)).clamp(min=0)
    return source, mask, source.gather(1, index) * mask
"""),
        (9, "the same generator state gave another batch", """
def reversal_batch(n_sequences, longest, n_symbols, generator):
    lengths = torch.randint(1, longest + 1, (n_sequences, 1))
    mask = torch.arange(longest) < lengths
    source = torch.randint(n_symbols, (n_sequences, longest)) * mask
    index = (lengths - 1 - torch.arange(longest)).clamp(min=0)
    return source, mask, source.gather(1, index) * mask
"""),
        (9, "gave the same batch", """
def reversal_batch(n_sequences, longest, n_symbols, generator):
    generator = torch.Generator().manual_seed(generator.initial_seed())
    lengths = torch.randint(1, longest + 1, (n_sequences, 1), generator=generator)
    mask = torch.arange(longest) < lengths
    source = torch.randint(n_symbols, (n_sequences, longest), generator=generator) * mask
    index = (lengths - 1 - torch.arange(longest)).clamp(min=0)
    return source, mask, source.gather(1, index) * mask
"""),
        (6, "padding stands on the left", """
def reversal_batch(n_sequences, longest, n_symbols, generator):
    lengths = torch.randint(1, longest + 1, (n_sequences, 1), generator=generator)
    mask = torch.arange(longest) >= longest - lengths
    source = torch.randint(n_symbols, (n_sequences, longest), generator=generator) * mask
    return source, mask, source.flip(1)
"""),
        (9, "or not independent", """
def reversal_batch(n_sequences, longest, n_symbols, generator):
    lengths = torch.randint(1, longest + 1, (n_sequences, 1), generator=generator)
    mask = torch.arange(longest) < lengths
    source = torch.randint(n_symbols, (n_sequences, 1), generator=generator).expand(-1, longest) * mask
    return source, mask, source
"""),
        (9, "the lengths are not equally likely", """
def reversal_batch(n_sequences, longest, n_symbols, generator):
    first, second = torch.randint(1, longest + 1, (2, n_sequences, 1), generator=generator)
    lengths = torch.maximum(first, second)
    mask = torch.arange(longest) < lengths
    source = torch.randint(n_symbols, (n_sequences, longest), generator=generator) * mask
    index = (lengths - 1 - torch.arange(longest)).clamp(min=0)
    return source, mask, source.gather(1, index) * mask
"""),
    ],
    "train": [
        (0, "guessing gives 10 %", """
def train(model):
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for update in range(20):
        loss, count = seq2seq_loss(model, reversal(64, 10, 10, generator))
        optimizer.zero_grad()
        (loss / count).backward()
    return model
"""),
        (0, "the model copies the source", """
def train(model):
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for update in range(250):
        batch = reversal(64, 10, 10, generator)
        loss, count = seq2seq_loss(model, batch | {"target": batch["source"]})
        optimizer.zero_grad()
        (loss / count).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
    return model
"""),
        (0, "the training diverged", """
def train(model):
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e38)
    for update in range(10):
        loss, count = seq2seq_loss(model, reversal(64, 10, 10, generator))
        optimizer.zero_grad()
        (loss / count).backward()
        optimizer.step()
    return model
"""),
        (0, "are there a few hundred updates", """
def train(model):
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for update in range(30):
        loss, count = seq2seq_loss(model, reversal(64, 10, 10, generator))
        optimizer.zero_grad()
        (loss / count).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
    return model
"""),
        (0, "its sizes differ", """
def train(model):
    return Seq2Seq(Seq2SeqConfig(vocab_size=11, bos_id=10, hidden_size=8, score="dot"))
"""),
        (0, "it returned None", """
def train(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
"""),
        (5, "99 % are asked for", """
def train(model):
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=95)
    for update in range(95):
        loss, count = seq2seq_loss(model, reversal(64, 10, 10, generator))
        optimizer.zero_grad()
        (loss / count).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        schedule.step()
    return model
"""),
    ],
}  # fmt: skip

RIGHT = {
    "luong_score": ["""
def luong_score(query, keys, W=None):
    if W is None:
        return torch.einsum("bd,bsd->bs", query, keys)
    return torch.einsum("bd,dk,bsk->bs", query, W, keys)
""", """
def luong_score(query, keys, W=None):
    rows = []
    for q, k in zip(query, keys):
        rows.append(torch.stack([q @ (key if W is None else W @ key) for key in k]))
    return torch.stack(rows)
"""],
    "additive_score": ["""
def additive_score(query, keys, W, U, v):
    q = torch.nn.functional.linear(query, W).unsqueeze(1)
    return (torch.tanh(q + torch.nn.functional.linear(keys, U)) * v).sum(-1)
""", """
def helper(q, k, W, U, v):
    return v @ torch.tanh(W @ q + U @ k)

def additive_score(query, keys, W, U, v):
    return torch.stack([torch.stack([helper(q, k, W, U, v) for k in ks]) for q, ks in zip(query, keys)])
"""],
    "masked_softmax": ["""
def masked_softmax(scores, mask):
    scores = torch.where(mask, scores, torch.tensor(float("-inf")))
    e = (scores - scores.max(dim=-1, keepdim=True).values).exp()
    return e / e.sum(dim=-1, keepdim=True)
""", """
def masked_softmax(scores, mask):
    weights = torch.zeros_like(scores)
    mask = mask.expand_as(scores)
    rows = zip(scores.reshape(-1, scores.shape[-1]), mask.reshape(-1, scores.shape[-1]))
    done = []
    for row, allowed in rows:
        out = torch.zeros_like(row)
        out[allowed] = row[allowed].softmax(0)
        done.append(out)
    return torch.stack(done).reshape(scores.shape)
"""],
    "attention_step": ["""
def attention_step(h, states, mask, W_c):
    weights = torch.einsum("bd,bsd->bs", h, states).masked_fill(~mask, -torch.inf).softmax(-1)
    context = torch.einsum("bs,bsd->bd", weights, states)
    D = h.shape[1]
    return torch.tanh(context @ W_c[:, :D].T + h @ W_c[:, D:].T), weights
""", """
def attention_step(h, states, mask, W_c):
    out, all_weights = [], []
    for b in range(len(h)):
        e = states[b] @ h[b]
        e[~mask[b]] = float("-inf")
        a = e.softmax(0)
        c = a @ states[b]
        out.append(torch.tanh(W_c @ torch.cat([c, h[b]])))
        all_weights.append(a)
    return [torch.stack(out), torch.stack(all_weights)]
"""],
    "reversal_batch": ["""
def reversal_batch(n_sequences, longest, n_symbols, generator):
    source = torch.zeros(n_sequences, longest, dtype=torch.long)
    target, mask = source.clone(), source.bool()
    for b in range(n_sequences):
        n = int(torch.randint(1, longest + 1, (1,), generator=generator))
        row = torch.randint(0, n_symbols, (n,), generator=generator)
        source[b, :n], target[b, :n], mask[b, :n] = row, row.flip(0), True
    return source, mask, target
""", """
def reversal_batch(n_sequences, longest, n_symbols, generator):
    lengths = 1 + torch.randint(longest, (n_sequences,), generator=generator)
    mask = torch.arange(longest).expand(n_sequences, -1) < lengths[:, None]
    source = (torch.rand(n_sequences, longest, generator=generator) * n_symbols).long().masked_fill(~mask, 0)
    target = torch.zeros_like(source)
    target[mask] = torch.cat([row[:n].flip(0) for row, n in zip(source, lengths)])
    return source, mask, target
"""],
    "train": ["""
def train(model):
    torch.manual_seed(1)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for update in range(500):
        for group in optimizer.param_groups:
            group["lr"] = 5e-3 * (1 - update / 500)
        source = torch.randint(10, (64, 10))
        ones = torch.ones_like(source).bool()
        logits = model(source, ones, source.flip(1))
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), source.flip(1).flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model
""", """
def train(model, updates=400):
    generator = torch.Generator().manual_seed(3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=updates)
    for _ in range(updates):
        optimizer.zero_grad()
        loss, count = seq2seq_loss(model, reversal(64, 10, 10, generator))
        (loss / count).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model.double()
"""],
}  # fmt: skip
