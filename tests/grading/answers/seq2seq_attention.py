"""Answers to exercise 02, right and wrong ones: see __init__."""

from tests.grading.answers import MODEL, load

RIGHT, MUTANTS = load("02_seq2seq_attention", {
"luong_score": (MODEL, ["""def luong_score(query, keys, W=None):
    if W is None:
        return torch.einsum("bd,bsd->bs", query, keys)
    return torch.einsum("bd,dk,bsk->bs", query, W, keys)
""", """def luong_score(query, keys, W=None):
    rows = []
    for q, k in zip(query, keys):
        rows.append(torch.stack([q @ (key if W is None else W @ key) for key in k]))
    return torch.stack(rows)
"""], [
    (0, "divided by the square root of D", ".sum(dim=-1)", ".sum(dim=-1) / query.shape[-1] ** 0.5"),
    (0, "this is the softmax of what is asked for", ".sum(dim=-1)", ".sum(dim=-1).softmax(dim=-1)"),
    (0, "is this a mean where a sum is asked for", ".sum(", ".mean("),
    (7, "`W` is transposed", "keys @ W.T", "keys @ (W if W.shape[0] == W.shape[1] else W.T)"),
    (7, "W is not used", "if W is not None", "if query.shape[-1] != keys.shape[-1]"),
    (0, "that is the cosine",
     "(query[:, None] * keys).sum(dim=-1)", "torch.cosine_similarity(query[:, None], keys, dim=-1)"),
    (0, "it returned None", "return (query", "scores = (query"),
    (0, "the right shape but wrong values",
     ".sum(dim=-1)", ".sum(dim=-1).where(torch.arange(keys.shape[1]) < 40, 0)"),
    (0, "an axis of length 1 is lost",
     "return (query[:, None] * keys).sum(dim=-1)", "return (keys @ query[:, :, None]).squeeze()"),
    (0, "the result has the wrong shape", "(query[:, None] * keys).sum(dim=-1)", "keys @ query[:, :, None]"),
]),
"additive_score": (MODEL, ["""def additive_score(query, keys, W, U, v):
    q = torch.nn.functional.linear(query, W).unsqueeze(1)
    return (torch.tanh(q + torch.nn.functional.linear(keys, U)) * v).sum(-1)
""", """def helper(q, k, W, U, v):
    return v @ torch.tanh(W @ q + U @ k)
def additive_score(query, keys, W, U, v):
    return torch.stack([torch.stack([helper(q, k, W, U, v) for k in ks]) for q, ks in zip(query, keys)])
"""], [
    (0, "the tanh is missing", "torch.tanh(", "("),
    (6, "no finite number", "torch.tanh((query @ W.T)[:, None] + keys @ U.T)",
     "((e := (2 * ((query @ W.T)[:, None] + keys @ U.T)).exp()) - 1) / (e + 1)"),
    (0, "tanh is taken of each part",
     "torch.tanh((query @ W.T)[:, None] + keys @ U.T)", "torch.tanh(query @ W.T)[:, None] + torch.tanh(keys @ U.T)"),
    (0, "a relu where the formula has tanh", "torch.tanh", "torch.relu"),
    (0, "`v` is not used", "hidden @ v", "hidden.sum(dim=-1)"),
    (4, "`W` and `U` change places", "hidden = ", "W, U = (U, W) if W.shape == U.shape else (W, U)\n    hidden = "),
    (6, "query number b met position number b",
     "(query @ W.T)[:, None]", "(query @ W.T if len(query) in (1, keys.shape[1]) else (query @ W.T)[:, None])"),
    (0, "`W` is transposed", "query @ W.T", "query @ W"),
]),
"masked_softmax": (MODEL, ["""def masked_softmax(scores, mask):
    scores = torch.where(mask, scores, torch.tensor(float("-inf")))
    e = (scores - scores.max(dim=-1, keepdim=True).values).exp()
    return e / e.sum(dim=-1, keepdim=True)
""", """def masked_softmax(scores, mask):
    weights = torch.zeros_like(scores)
    mask = mask.expand_as(scores)
    rows = zip(scores.reshape(-1, scores.shape[-1]), mask.reshape(-1, scores.shape[-1]))
    done = []
    for row, allowed in rows:
        out = torch.zeros_like(row)
        out[allowed] = row[allowed].softmax(0)
        done.append(out)
    return torch.stack(done).reshape(scores.shape)
"""], [
    (3, "the mask is not used", ".masked_fill(~mask, -torch.inf)", ""),
    (0, "the mask is upside down", "~mask", "mask"),
    (3, "a masked score of 0 still gets weight", "scores.masked_fill(~mask, -torch.inf)", "(scores * mask)"),
    (3, "no longer sum to 1", "scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)", "scores.softmax(dim=-1) * mask"),
    (0, "wrong axis", "dim=-1", "dim=0"),
    (7, "the highest score is a masked one", "return scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)",
     """e = (scores - scores.max(dim=-1, keepdim=True).values).exp() * mask
    return e / e.sum(dim=-1, keepdim=True)"""),
    (7, "exp overflows for large scores", "return scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)",
     "e = scores.exp() * mask\n    return e / e.sum(dim=-1, keepdim=True)"),
    (7, "not with a large number", "-torch.inf", "-1e9"),
]),
"attention_step": (MODEL, ["""def attention_step(h, states, mask, W_c):
    weights = torch.einsum("bd,bsd->bs", h, states).masked_fill(~mask, -torch.inf).softmax(-1)
    context = torch.einsum("bs,bsd->bd", weights, states)
    D = h.shape[1]
    return torch.tanh(context @ W_c[:, :D].T + h @ W_c[:, D:].T), weights
""", """def attention_step(h, states, mask, W_c):
    out, all_weights = [], []
    for b in range(len(h)):
        e = states[b] @ h[b]
        e[~mask[b]] = float("-inf")
        a = e.softmax(0)
        c = a @ states[b]
        out.append(torch.tanh(W_c @ torch.cat([c, h[b]])))
        all_weights.append(a)
    return [torch.stack(out), torch.stack(all_weights)]
"""], [
    (7, "h and c are swapped", "[context, h]", "[h, context]"),
    (7, "the tanh is missing", "torch.tanh(", "("),
    (4, "the mask is not used", "course.masked_softmax(scores, mask)", "scores.softmax(dim=-1)"),
    (7, "this is the context", "return h_tilde, weights", "return context, weights"),
    (8, "these are the scores", "return h_tilde, weights", "return h_tilde, scores"),
    (0, "the mask is upside down", "scores, mask)", "scores, ~mask)"),
    (7, "weights that ignore the mask", "(weights[:, None] @ states)", "(scores.softmax(dim=-1)[:, None] @ states)"),
    (0, "divided by the square root of D", ".squeeze(-1)", ".squeeze(-1) / h.shape[-1] ** 0.5"),
    (0, "the results are in the wrong order", "return h_tilde, weights", "return weights, h_tilde"),
    (4, "holds entries that are no finite number", "weights = course.masked_softmax(scores, mask)",
     "weights = scores.softmax(dim=-1) * mask\n    weights = weights / weights.sum(dim=-1, keepdim=True)"),
]),
"bahdanau_step": (MODEL, ["""def bahdanau_step(x, s, states, mask, W_s, W_o):
    a = torch.einsum("bd,bsd->bs", s, states).masked_fill(~mask, -torch.inf).softmax(-1)
    c = torch.einsum("bs,bsd->bd", a, states)
    E, D = x.shape[1], s.shape[1]
    new = torch.tanh(x @ W_s[:, :E].T + c @ W_s[:, E:E + D].T + s @ W_s[:, E + D:].T)
    return new, torch.tanh(new @ W_o[:, :D].T + c @ W_o[:, D:2 * D].T + x @ W_o[:, 2 * D:].T), a
""", """def bahdanau_step(x, s, states, mask, W_s, W_o):
    rows = []
    for b in range(len(x)):
        kept = states[b][mask[b]]
        a = (kept @ s[b]).softmax(0)
        c = a @ kept
        new = torch.tanh(W_s @ torch.cat([x[b], c, s[b]]))
        weights = torch.zeros(states.shape[1])
        weights[mask[b]] = a
        rows.append((new, torch.tanh(W_o @ torch.cat([new, c, x[b]])), weights))
    return tuple(torch.stack(column) for column in zip(*rows))
"""], [
    (0, "the old state is the query", "states @ s[:, :, None]", "states @ torch.tanh("
     "torch.cat([x, torch.zeros_like(s), s], dim=-1) @ W_s.T)[:, :, None]"),
    (0, "the mask is upside down", "scores, mask)", "scores, ~mask)"),
    (5, "weights that ignore the mask", "(weights[:, None] @ states)", "(scores.softmax(dim=-1)[:, None] @ states)"),
    (0, "the mask is not used", "course.masked_softmax(scores, mask)", "scores.softmax(dim=-1)"),
    (9, "the read-out does not see the context", "[s_new, context, x]", "[s_new, 0 * context, x]"),
    (9, "the read-out reads the old state", "[s_new, context, x]", "[s, context, x]"),
    (9, "in the wrong order: W_o", "[s_new, context, x]", "[context, s_new, x]"),
    (10, "fill with -inf, not with a large number",
     "course.masked_softmax(scores, mask)", "scores.masked_fill(~mask, -1e9).softmax(dim=-1)"),
    (9, "the tanh of the read-out is missing",
     "torch.tanh(torch.cat([s_new, context, x], dim=-1) @ W_o.T)", "torch.cat([s_new, context, x], dim=-1) @ W_o.T"),
    (0, "divided by the square root of D", ".squeeze(-1)", ".squeeze(-1) / s.shape[-1] ** 0.5"),
]),
"reversal_batch": (MODEL, ["""def reversal_batch(n_sequences, longest, n_symbols, generator):
    source = torch.zeros(n_sequences, longest, dtype=torch.long)
    target, mask = source.clone(), source.bool()
    for b in range(n_sequences):
        n = int(torch.randint(1, longest + 1, (1,), generator=generator))
        row = torch.randint(0, n_symbols, (n,), generator=generator)
        source[b, :n], target[b, :n], mask[b, :n] = row, row.flip(0), True
    return source, mask, target
""", """def reversal_batch(n_sequences, longest, n_symbols, generator):
    lengths = 1 + torch.randint(longest, (n_sequences,), generator=generator)
    mask = torch.arange(longest).expand(n_sequences, -1) < lengths[:, None]
    source = (torch.rand(n_sequences, longest, generator=generator) * n_symbols).long().masked_fill(~mask, 0)
    target = torch.zeros_like(source)
    target[mask] = torch.cat([row[:n].flip(0) for row, n in zip(source, lengths)])
    return source, mask, target
"""], [
    (7, "the whole row is reversed",
     "source.gather(1, (lengths - 1 - place).clamp(min=0)).where(mask, 0)", "source.flip(1)"),
    (0, "0 is a symbol too", "return source, mask", "return source, source != 0"),
    (6, "the last symbol, n_symbols - 1, never occurs", "randint(n_symbols,", "randint(n_symbols - 1,"),
    (6, "the same generator state gave another batch", "1), generator=generator)", "1))",
     "longest), generator=generator)", "longest))"),
    (6, "gave the same batch",
     "lengths = ", "generator = torch.Generator().manual_seed(generator.initial_seed())\n    lengths = "),
    (4, "padding stands on the left", "place < lengths", "place >= longest - lengths",
     "source.gather(1, (lengths - 1 - place).clamp(min=0)).where(mask, 0)", "source.flip(1)"),
    (6, "or not independent",
     "(n_sequences, longest), generator=generator)", "(n_sequences, 1), generator=generator).expand(-1, longest)"),
    (6, "two symbols of a sequence depend on each other",
     "source.gather", "(source := source.index_copy(1, place[2::2], source[:, :1].expand(-1, len(place[2::2])))"
     ".where(mask, 0)).gather"),
    (6, "of three symbols in a row two say what the third one is", "source.gather",
     "(source := source.index_copy(1, place[2::3], (source[:, 0:-2:3] + source[:, 1:-1:3]) % n_symbols)"
     ".where(mask, 0)).gather"),
    (6, "source is not of type torch.long", "return source, mask", "return source.byte(), mask"),
    (6, "a second call with the same generator gives the same again",
     "lengths = ", "generator = torch.Generator().set_state(generator.get_state())\n    lengths = "),
    (6, "a number that has few values", "lengths = ",
     "generator = torch.Generator().manual_seed(int(torch.randint(500, (), generator=generator)))\n    lengths = "),
    (6, "as from a shuffled deck", "torch.randint(1, longest + 1, (n_sequences, 1), generator=generator)",
     "1 + torch.randperm(max(n_sequences, longest), generator=generator)[:n_sequences, None] % longest"),
    (6, "of this batch or of the one before",
     "lengths = ", "state = generator.get_state()\n    lengths = ", "    place = ",
     "    generator.set_state(state)\n    place = "),
    (6, "not every length from 1 to longest occurs", "longest + 1, (n", "min(longest, 12) + 1, (n"),
    (6, "two sequences of a batch depend on each other", "    return source", """    half = n_sequences // 2
    for one in (source, mask, target):
        one[half : 2 * half] = one[:half]
    return source"""),
    (0, "all sequences are the same", """def reversal_batch(n_sequences, longest, n_symbols, generator):
    source = torch.zeros(n_sequences, longest, dtype=torch.long)
    return source, source == 0, source
"""),
    (6, "the lengths are not equally likely",
     "(n_sequences, 1), generator=generator)", "(2, n_sequences, 1), generator=generator).amax(dim=0)"),
]),
"train": (MODEL, ["""def train(model):
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
""", """def train(model, updates=400):
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
"""], [
    (0, "guessing gives 10%", "updates, generator = 400", "updates, generator = 20",
     "        optimizer.step()\n        schedule.step()\n", ""),
    (0, "the model copies the source", "updates, generator = 400", "updates, generator = 250",
     "reversal(64, 10, 10, generator))", "(batch := reversal(64, 10, 10, generator)) | {'target': batch['source']})"),
    (0, "the training diverged", "updates, generator = 400", "updates, generator = 10",
     "AdamW(model.parameters(), lr=1e-2)", "SGD(model.parameters(), lr=1e38)"),
    (0, "are there a few hundred updates", "updates, generator = 400", "updates, generator = 30"),
    (0, "its sizes differ",
     'def train(model): return Seq2Seq(Seq2SeqConfig(vocab_size=11, bos_id=10, hidden_size=8, score="dot"))'),
    (0, "it returned None", "def train(model): optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)"),
    (5, "99% are asked for", "updates, generator = 400", "updates, generator = 95"),
]),
})  # fmt: skip
