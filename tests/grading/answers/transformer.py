"""Answers to exercise 04, right and wrong ones: see __init__."""

from tests.grading.answers import FIRST, MODEL, load

RIGHT, MUTANTS = load("04_transformer", {
"encoder_layer": (MODEL, ["""class EncoderLayer(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.attention = course.MultiHeadAttention(d_model, n_heads)
        self.attention_norm = nn.LayerNorm(d_model)
        self.up = nn.Linear(d_model, d_ff)
        self.down = nn.Linear(d_ff, d_model)
        self.feed_forward_norm = nn.LayerNorm(d_model)
    def network(self, x):
        return self.down(torch.relu(self.up(x)))
    def forward(self, x, real):
        B, T, D = x.shape
        mask = real.view(B, 1, 1, T).expand(B, self.attention.n_heads, T, T)
        x = self.attention_norm(self.attention(x, mask=mask) + x)
        return self.feed_forward_norm(self.network(x) + x)
""", """from coursekit.nn.attention import MultiHeadAttention
from coursekit.nn.blocks import Block, FeedForward
class EncoderLayer(nn.Module):  # the course's own layer, with the names of the exercise
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        block = Block(MultiHeadAttention(d_model, n_heads), FeedForward(d_model, d_ff), norm_first=False)
        self.attention, self.attention_norm = block.attention, block.attention_residual.norm
        self.up, self.down = block.feed_forward.up, block.feed_forward.down
        self.feed_forward_norm = block.feed_forward_residual.norm
        self.block = [block]
    def forward(self, x, real):
        return self.block[0](x, mask=real[:, None, None, :])
""", """class Norm(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(d_model)), nn.Parameter(torch.zeros(d_model))
    def forward(self, x):
        x = x - x.mean(dim=-1, keepdim=True)
        return self.weight * x * (x.var(dim=-1, keepdim=True, unbiased=False) + 1e-5).rsqrt() + self.bias
class EncoderLayer(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.attention = course.MultiHeadAttention(d_model, n_heads)
        self.attention_norm = Norm(d_model)
        self.up = nn.Linear(d_model, d_ff)
        self.down = nn.Linear(d_ff, d_model)
        self.feed_forward_norm = Norm(d_model)
    def network(self, x):
        return self.down(torch.relu(self.up(x)))
    def forward(self, x, real):  # queries that are padding attend to nothing
        x = self.attention_norm(x + self.attention(x, mask=(real[:, :, None] & real[:, None, :])[:, None]))
        return self.feed_forward_norm(x + self.network(x))
"""], [
    (0, "comes before the branch (pre-norm)",
     "self.attention_norm(x + self.attention(x, mask=mask))", "x + self.attention(self.attention_norm(x), mask=mask)",
     "self.up(y)", "self.up(self.feed_forward_norm(y))", "self.feed_forward_norm(y + network)", "y + network"),
    (0, "the residual connections are forgotten", "x + self.attention", "self.attention", "y + network", "network"),
    (10, "padding is attended", "(x, mask=mask)", "(x)"),
    (10, "padding is attended: no query", "super().__init__()", "super().__init__()\n        self.kept = None",
     "        mask = real[:, None, None, :]",
     "        self.kept = mask = real[:, None, None, :] if self.kept is None else self.kept"),
    (5, "the mask is upside down", "mask=mask", "mask=~mask"),
    (0, "the variance of the layer norm divides by D - 1",
     "attention_norm = nn.LayerNorm", "attention_norm = Norm",
     "feed_forward_norm = nn.LayerNorm", "feed_forward_norm = Norm", "class EncoderLayer", """class Norm(nn.LayerNorm):
    def forward(self, x):
        std = x.std(-1, keepdim=True)
        return self.weight * (x - x.mean(-1, keepdim=True)) / (std + self.eps) + self.bias

class EncoderLayer"""),
    (0, "the norm is taken of the branch alone",
     "self.attention_norm(x + self.attention(x, mask=mask))", "x + self.attention_norm(self.attention(x, mask=mask))",
     "self.feed_forward_norm(y + network)", "y + self.feed_forward_norm(network)"),
    (0, "the second residual connection begins at x", "y + network", "x + network"),
    (9, "the feed-forward network reads x", "self.up(y)", "self.up(x)"),
    (0, "the two norms have changed places", "self.attention_norm(x +", "self.feed_forward_norm(x +",
     "self.feed_forward_norm(y +", "self.attention_norm(y +"),
    (0, "the first norm is used twice", "self.feed_forward_norm(y +", "self.attention_norm(y +"),
    (9, "the activation is gelu", "self.up(y).relu()", "nn.functional.gelu(self.up(y))"),
    (9, "the relu between the two linear layers is missing", ".relu()", ""),
    (11, "hidden units of 30", ".relu()", ".clamp(0, 6)"),
    (2, "leave out dropout", "network = self.down(self.up(y).relu())",
     "network = torch.dropout(self.down(self.up(y).relu()), 0.1, True)",
     "self.attention(x, mask=mask)", "torch.dropout(self.attention(x, mask=mask), 0.1, True)"),
    (5, "not divided by the square root of Dh", "course.MultiHeadAttention", "Heads",
     "class EncoderLayer", """class Heads(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.qkv, self.out = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)

    def forward(self, x, mask):
        parts = [z.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for z in self.qkv(x).chunk(3, dim=-1)]
        scores = (parts[0] @ parts[1].mT).masked_fill(~mask, -torch.inf)
        return self.out((scores.softmax(dim=-1) @ parts[2]).transpose(1, 2).flatten(2))

class EncoderLayer"""),
]),
"decoder_layer": (FIRST, ["""class DecoderLayer(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.self_attention = course.MultiHeadAttention(d_model, n_heads)
        self.self_norm = nn.LayerNorm(d_model)
        self.cross_attention = course.MultiHeadAttention(d_model, n_heads)
        self.cross_norm = nn.LayerNorm(d_model)
        self.up = nn.Linear(d_model, d_ff)
        self.down = nn.Linear(d_ff, d_model)
        self.feed_forward_norm = nn.LayerNorm(d_model)
    def network(self, x):
        return self.down(torch.relu(self.up(x)))
    def forward(self, x, memory, real):
        x = self.self_norm(x + self.self_attention(x, causal=True))
        x = self.cross_norm(x + self.cross_attention(x, memory=memory, mask=real[:, None, None, :]))
        return self.feed_forward_norm(x + self.network(x))
""", """from coursekit.nn.attention import MultiHeadAttention
from coursekit.nn.blocks import DecoderBlock, FeedForward
class DecoderLayer(nn.Module):  # the course's own layer, with the names of the exercise
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        own, other = (MultiHeadAttention(d_model, n_heads) for _ in range(2))
        block = DecoderBlock(own, other, FeedForward(d_model, d_ff), norm_first=False)
        self.self_attention, self.self_norm = block.self_attention, block.self_residual.norm
        self.cross_attention, self.cross_norm = block.cross_attention, block.cross_residual.norm
        self.up, self.down = block.feed_forward.up, block.feed_forward.down
        self.feed_forward_norm = block.feed_forward_residual.norm
        self.block = [block]
    def forward(self, x, memory, real):
        return self.block[0](x, memory, memory_mask=real[:, None, None, :])
""",
("    def forward(self, x, memory, real):", """    def forward(self, x, memory, real):  # one position after the other
        return torch.cat([self.one(x[:, : t + 1], memory, real) for t in range(x.shape[1])], dim=1)
    def one(self, before, memory, real):
        x = before[:, -1:]""", "self.self_attention(x, causal=True)", "self.self_attention(x, before)")], [
    (8, "a causal mask is missing", ", causal=True", ""),
    (12, "the right shape but wrong values", "(x, causal=True)",
     "(x, mask=torch.ones(x.shape[1], x.shape[1]).tril().bool() | (torch.arange(x.shape[1]) > 60))"),
    (12, "mask of shape (200, 200)", "(x, causal=True)",
     "(x, mask=torch.ones(200, 200).tril().bool()[: x.shape[1], : x.shape[1]])"),
    (0, "comes before the branch (pre-norm)", "self.self_norm(x + self.self_attention(x, causal=True))",
     "x + self.self_attention(self.self_norm(x), causal=True)",
     "self.cross_norm(x + self.cross_attention(x, memory=memory, mask=real[:, None, None, :]))",
     "x + self.cross_attention(self.cross_norm(x), memory=memory, mask=real[:, None, None, :])",
     "self.feed_forward_norm(x + self.network(x))", "x + self.network(self.feed_forward_norm(x))"),
    (0, "the residual connections are forgotten", "x + self.self_attention", "self.self_attention",
     "x + self.cross_attention", "self.cross_attention", "x + self.network", "self.network"),
    (0, "the norm is taken of the branch alone", "self.self_norm(x + self", "x + self.self_norm(self",
     "self.cross_norm(x + self", "x + self.cross_norm(self",
     "self.feed_forward_norm(x + self", "x + self.feed_forward_norm(self"),
    (4, "the memory is not used", ", memory=memory, mask=real[:, None, None, :]", ""),
    (12, "the source's padding is attended", ", mask=real[:, None, None, :]", ""),
    (12, "source's padding is attended", "super().__init__()", "super().__init__()\n        self.kept = None",
     "        x = self.cross_norm",
     "        self.kept = real if self.kept is None else self.kept\n        x = self.cross_norm",
     "mask=real", "mask=self.kept"),
    (4, "`real` is upside down", "mask=real", "mask=~real"),
    (12, "padding on the left", "    def forward(self, x, memory, real):\n", """    def forward(self, x, memory, real):
        real = torch.arange(memory.shape[1]) < real.sum(dim=1, keepdim=True)
"""),
    (12, "hidden units of 30", "torch.relu(self.up(x))", "nn.functional.relu6(self.up(x))"),
    (0, "x is not added to the result of the cross-attention", "x + self.cross_attention", "self.cross_attention"),
    (12, "the source's mask is laid on the target too", "self.self_attention(x, causal=True)",
     "self.self_attention(x, mask=real[:, None, None, :] if x.shape[1] == memory.shape[1] else None, causal=True)"),
    (4, "the cross-attention is causal too", "mask=real[:, None, None, :]",
     "mask=real[:, None, None, :] & torch.ones(x.shape[1], memory.shape[1]).tril().bool()"),
    (0, "the cross-attention comes first", "        x = self.self_norm(x + self.self_attention(x, causal=True))\n", "",
     "        return self.feed",
     "        x = self.self_norm(x + self.self_attention(x, causal=True))\n        return self.feed"),
]),
"learning_rate": (MODEL, ["""def learning_rate(step, d_model, warmup):
    n = torch.tensor(step + 1.0)
    return torch.minimum(n.rsqrt(), n / warmup ** 1.5) / d_model ** 0.5
""", """import math
def learning_rate(step, d_model, warmup):
    step += 1
    if step < warmup:
        return step / (warmup * math.sqrt(d_model * warmup))
    return 1 / math.sqrt(d_model * step)
"""], [
    (0, "in the warm-up n ** -0.5 is the larger of the two", "min(", "max("),
    (0, "it counts as soon as something of 'warm-up' or 'decay'", "min(n**-0.5, n * warmup**-1.5)", "warmup**-0.5"),
    (0, "ZeroDivisionError", "step + 1", "step"),
    (0, "the right shape but wrong values", "d_model**-0.5 * ", "0.0 * "),
    (2, "the first update, step 0, is n = 1", "step + 1", "max(step, 1)"),
    (0, "lost its sign: d_model ** -0.5", "d_model**-0.5", "d_model**0.5"),
    (4, "so that the two lines meet at n = warmup", "warmup**-1.5", "warmup**-0.5"),
    (7, "after the warm-up n * warmup ** -1.5 is the larger", "(n**-0.5", "(n**0.5"),
    (0, "d_model is not used", "d_model**-0.5 * ", ""),
]),
"smoothed_loss": (MODEL, ["""def smoothed_loss(logits, target, smoothing, pad_id):
    F, real = torch.nn.functional, target != pad_id
    uniform = torch.full(logits.shape, 1 / logits.shape[-1])
    hard = F.cross_entropy(logits.transpose(1, 2), target, ignore_index=pad_id)
    soft = F.cross_entropy(logits.transpose(1, 2), uniform.transpose(1, 2), reduction="none")
    return torch.lerp(hard, soft[real].mean(), smoothing)
""", """def smoothed_loss(logits, target, smoothing, pad_id):
    V = logits.size(-1)
    q = torch.nn.functional.one_hot(target, V) * (1 - smoothing) + smoothing / V
    log_p = logits - logits.logsumexp(dim=-1, keepdim=True)
    mask = (target != pad_id).float()
    return -((q * log_p).sum(-1) * mask).sum() / mask.sum()
""", """def smoothed_loss(logits, target, smoothing, pad_id):
    total, n = 0.0, 0
    for row, ids in zip(logits, target):
        for e, y in zip(row, ids):
            if y != pad_id:
                log_p = torch.log_softmax(e, dim=0)
                total = total - (1 - smoothing) * log_p[y] - smoothing / len(e) * sum(log_p)
                n += 1
    return total / n
"""], [
    (5, "spread over the V - 1 wrong symbols",
     "log_p.mean(dim=-1)", "(log_p.sum(dim=-1) - right) / (log_p.shape[-1] - 1)"),
    (5, "spread over V - 2 symbols",
     "log_p.mean(dim=-1)", "(log_p.sum(dim=-1) - right - log_p[:, pad_id]) / (log_p.shape[-1] - 2)"),
    (11, "the smoothing's part of the loss counts padding",
     "log_p.mean(dim=-1)", "logits.log_softmax(dim=-1).mean(dim=-1).sum() / real.sum()"),
    (8, "padding is not ignored", "target != pad_id", "target >= 0"),
    (8, "symbol 0 is taken for padding", "target != pad_id", "target != 0"),
    (8, "the mean of each row is taken first", """def smoothed_loss(logits, target, smoothing, pad_id):
    log_p, real = logits.log_softmax(dim=-1), target != pad_id
    right = log_p.gather(-1, target[..., None])[..., 0]
    losses = -((1 - smoothing) * right + smoothing * log_p.mean(dim=-1)) * real
    return (losses.sum(dim=1) / real.sum(dim=1)).mean()
"""),
    (8, "divided by all places, padding too", "losses.mean()", "losses.sum() / target.numel()"),
    (5, "the right symbol has lost epsilon, but nobody got it", " - smoothing * log_p.mean(dim=-1)", ""),
    (12, "exp overflows for large logits", "log_softmax(dim=-1)", "softmax(dim=-1).log()"),
    (5, "the option label_smoothing is used: write it out", """def smoothed_loss(logits, target, smoothing, pad_id):
    loss = nn.CrossEntropyLoss(ignore_index=pad_id, label_smoothing=smoothing)
    return loss(logits.flatten(0, 1), target.flatten())
"""),
]),
"beam_search": (FIRST, ["""def best_sequence(step, bos_id, eos_id, beams, alpha, max_length):
    def lp(length):
        return ((5 + length) / 6) ** alpha
    def worth(total, prefix):
        return total / lp(len(prefix) - 1)
    alive, finished = [(0.0, [bos_id])], []
    for _ in range(max_length):
        rows = step(torch.tensor([prefix for _, prefix in alive])) if alive else []
        grown = []
        for (log_p, prefix), row in zip(alive, rows):
            grown += [(log_p + row[symbol].item(), prefix + [symbol]) for symbol in range(len(row))]
        grown.sort(reverse=True)
        pool = grown
        grown = []
        for total, prefix in pool:
            symbol = prefix[-1]
            if symbol == eos_id:
                finished.append((worth(total, prefix), prefix))
            else:
                grown.append((total, prefix))
        alive = grown[:beams]
    best, prefix = max(finished + [(worth(total, prefix), prefix) for total, prefix in alive])
    return prefix[1:], best
""", """def best_sequence(step, bos_id, eos_id, beams, alpha, max_length):
    # all 2 K best continuations at once, finished ones kept beside; stops when nothing unfinished can win
    prefixes, log_p = torch.full((1, 1), bos_id), torch.zeros(1)
    best, best_worth = None, float("-inf")
    lp = lambda n: ((5 + n) / 6) ** alpha
    for n in range(1, max_length + 1):
        scores = step(prefixes) + log_p.unsqueeze(1)
        V = scores.size(1)
        values, places = scores.view(-1).sort(descending=True)
        grown = torch.cat([prefixes[places // V], (places % V).unsqueeze(1)], dim=1)
        done = grown[:, -1] == eos_id
        for value, row in zip(values[done], grown[done]):
            if value / lp(n) > best_worth:
                best, best_worth = row, (value / lp(n)).item()
        prefixes, log_p = grown[~done][:beams], values[~done][:beams]
        if n == max_length and log_p[0] / lp(n) > best_worth:
            best, best_worth = prefixes[0], (log_p[0] / lp(n)).item()
        if best_worth > log_p[0] / lp(max_length):
            break
    return best[1:].tolist(), best_worth
""", """def best_sequence(step, bos_id, eos_id, beams, alpha, max_length):
    alive, finished = {(bos_id,): 0.0}, {}
    for length in range(max_length):
        found = {}
        for prefix, log_p in alive.items():
            for symbol, more in enumerate(step(torch.tensor([prefix]))[0].tolist()):
                (finished if symbol == eos_id else found)[prefix + (symbol,)] = log_p + more
        alive = dict(sorted(found.items(), key=lambda item: -item[1])[:beams])
    finished.update(alive)
    worth = {Y: log_p / (((5 + len(Y) - 1) / 6) ** alpha) for Y, log_p in finished.items()}
    winner = max(worth, key=worth.get)
    return torch.tensor(winner[1:]), worth[winner]
"""], [
    (0, "does not begin with bos_id", "    def lp", "    bos_id, eos_id = 0, 1\n    def lp"),
    (12, "no length penalty", "((5 + length) / 6) ** alpha", "1.0"),
    (12, "the penalty is |Y| ** alpha", "((5 + length) / 6)", "length"),
    (12, "the start symbol is counted", "len(prefix) - 1", "len(prefix)"),
    (11, "one beam alone is followed", ":beams", ":1"),
    (11, "more than K go on", ":beams", ": beams + 1"),
    (5, "extended behind its end", "symbol == eos_id", "False"),
    (12, "is set aside, but goes on as well", """            else:
                grown.append((total, prefix))
""", """            grown.append((total, prefix))
"""),
    (11, "index k out of range", """def best_sequence(step, bos_id, eos_id, beams, alpha, max_length):
    alive, log_p, found = torch.tensor([[bos_id]]), torch.zeros(1), []
    for n in range(1, max_length + 1):
        grown = log_p[:, None] + step(alive)
        V, lp = grown.shape[1], ((5 + n) / 6) ** alpha
        found += [(w, [*row, eos_id]) for w, row in zip((grown[:, eos_id] / lp).tolist(), alive.tolist())]
        grown[:, eos_id] = -torch.inf
        log_p, index = grown.flatten().topk(beams)
        alive = torch.cat([alive[index // V], index[:, None] % V], dim=1)
    worth, best = max([*found, *zip((log_p / lp).tolist(), alive.tolist())])
    return best[1:], worth
"""),
    (11, "finished sequences take places among the K", "pool = grown", "pool = grown[:beams]"),
    (12, "that what has finished is worth more now is no reason to stop", "        alive = grown[:beams]\n",
     "        alive = grown[:beams]\n        if finished and max(finished)[0] > worth(*alive[0]): break\n"),
    (12, "the penalty favours length", "        alive = grown[:beams]\n", """        alive = grown[:beams]
        if sum(found[0] > worth(*alive[0]) for found in finished) >= beams: break
"""),
    (0, "that K sequences have finished is no reason to stop", "        alive = grown[:beams]\n",
     "        alive = grown[:beams]\n        if len(finished) >= beams:\n            alive = []\n            break\n"),
    (0, "log P is that of the last symbol alone", "log_p + row", "row"),
    (13, "what has not ended after max_length symbols",
     " + [(worth(total, prefix), prefix) for total, prefix in alive]", ""),
]),
"train": (FIRST, ["""def train(model):
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    supply = batches()
    for step in range(350):
        source, target = next(supply)
        optimizer.param_groups[0]["lr"] = 0.5 * inverse_sqrt(64, 100)(step, 0)
        mask, labels = source != PAD, target
        inputs = torch.cat([torch.full((len(target), 1), BOS), target[:, :-1]], dim=1)
        logits = model.decode(inputs, model.encode(source, mask), mask)
        real = labels != PAD
        loss = smoothed_cross_entropy(logits[real], labels[real], 0.1) / real.sum()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model
""", """from itertools import islice
def shifted(target):
    inputs = torch.roll(target, 1, dims=1)
    inputs[:, 0] = BOS
    return inputs
def train(model, updates=350):
    torch.manual_seed(1)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, betas=(0.9, 0.98))
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=updates, pct_start=0.15)
    for source, target in islice(batches(), updates):
        optimizer.zero_grad()
        real = source.ne(PAD)
        logits = model.decode(shifted(target), model.encode(source, real), real)
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PAD, label_smoothing=0.1)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
    return model.double()
"""], [
    (0, "do the updates reach the weights", "range(350)", "range(10)", "\n        optimizer.step()", ""),
    (0, "copy what it reads", "range(350)", "range(150)",
     "torch.cat([torch.full((len(target), 1), BOS), target[:, :-1]], dim=1)", "target"),
    (0, "from French to English", "range(350)", "range(150)", "source, target", "target, source"),
    (0, "but not begin one", "range(350)", "range(150)", "source != PAD, target", "source != PAD, target[:, 1:]",
     "torch.cat([torch.full((len(target), 1), BOS), target[:, :-1]], dim=1)", "target[:, :-1]"),
    (12, "leave padding out of the loss", "range(350)", "range(300)", "labels != PAD", "labels > -1"),
    (12, "read the source's padding like words", "range(350)", "range(300)", "source != PAD", "source > -1"),
    (12, "the encoder has learned to read", "range(350)", "range(300)",
     "model.encode(source, mask)", "model.encode(source, source > -1)"),
    (12, "the model that learned is not the one that train was given", "range(350)", "range(300)",
     "    optimizer = ", """    from coursekit.models.transformer import Transformer
    given, model = model, Transformer(model.config)
    optimizer = """,
     "model.encode(source, mask)", "model.encode(source, source > -1)",
     "return model", "given.load_state_dict(model.state_dict(), strict=False)\n    return given"),
    (0, "the training diverged", "torch.optim.Adam", "torch.optim.SGD", "betas=(0.9, 0.98), eps=1e-9", "lr=1.0",
     "range(350)", "range(10)", "0.5 * inverse_sqrt(64, 100)(step, 0)", "1e38"),
    (12, "with model.encode and model.decode, and return it", "range(350)", "range(300)",
     "    optimizer = ", """    from coursekit.models.transformer import Transformer
    twin = Transformer(model.config)
    for name, part in model.named_children():
        twin.add_module(name, part)
    optimizer = """,
     "        inputs = torch.cat([torch.full((len(target), 1), BOS), target[:, :-1]], dim=1)\n", "",
     "model.decode(inputs, model.encode(source, mask), mask)", "twin(source, mask, target)"),
    (0, "its sizes differ", """from coursekit.models.transformer import Transformer, TransformerConfig
def train(model):
    return Transformer(TransformerConfig(len(vocab), d_model=32, n_heads=2, d_ff=256, n_layers=2, max_length=80))
"""),
]),
})  # fmt: skip
