"""Answers to exercise 04, wrong ones with the points they deserve and the words they must be told, and right ones.

A wrong answer is ``(points, words, source)``. Each is a mistake that a student could make.
"""

ENCODER = """
class EncoderLayer(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.attention = course.MultiHeadAttention(d_model, n_heads)
        self.attention_norm = nn.LayerNorm(d_model)
        self.up = nn.Linear(d_model, d_ff)
        self.down = nn.Linear(d_ff, d_model)
        self.feed_forward_norm = nn.LayerNorm(d_model)

    def network(self, x):
        return self.down(torch.relu(self.up(x)))

"""
OWN_NORM = """
class Norm(nn.Module):
    def __init__(self, features, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features))
        self.eps = eps

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        std = x.std(-1, keepdim=True)
        return self.weight * (x - mean) / (std + self.eps) + self.bias

"""
WITH_NORM = (
    ENCODER.replace("nn.LayerNorm", "Norm")
    + """
    def forward(self, x, real):
        x = self.attention_norm(x + self.attention(x, mask=real[:, None, None]))
        return self.feed_forward_norm(x + self.network(x))
"""
)
DECODER = """
class DecoderLayer(nn.Module):
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

"""


def beams(
    penalty="((5 + length) / 6) ** alpha",
    worth="total / lp(len(prefix) - 1)",
    total="log_p + row[symbol].item()",
    keep="grown[:beams]",
    ends="symbol == eos_id",
    pool="grown",
    last="finished + [(worth(total, prefix), prefix) for total, prefix in alive]",
):
    """Beam search with lists, and something else in it."""
    return f"""
def best_sequence(step, bos_id, eos_id, beams, alpha, max_length):
    def lp(length):
        return {penalty}

    def worth(total, prefix):
        return {worth}

    alive, finished = [(0.0, [bos_id])], []
    for _ in range(max_length):
        rows = step(torch.tensor([prefix for _, prefix in alive])) if alive else []
        grown = []
        for (log_p, prefix), row in zip(alive, rows):
            grown += [({total}, prefix + [symbol]) for symbol in range(len(row))]
        grown.sort(reverse=True)
        pool = {pool}
        grown = []
        for total, prefix in pool:
            symbol = prefix[-1]
            if {ends}:
                finished.append((worth(total, prefix), prefix))
            else:
                grown.append((total, prefix))
        alive = {keep}
    best, prefix = max({last})
    return prefix[1:], best
"""


def training(
    updates,
    rate="0.5 * inverse_sqrt(64, 100)(step, 0)",
    inputs="torch.cat([torch.full((len(target), 1), BOS), target[:, :-1]], dim=1)",
    labels="target",
    mask="source != PAD",
    real="labels != PAD",
    optimizer="Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)",
    then="optimizer.step()",
):
    """A loop of training, with something else in it."""
    return f"""
def train(model):
    optimizer = torch.optim.{optimizer}
    supply = batches()
    for step in range({updates}):
        source, target = next(supply)
        optimizer.param_groups[0]["lr"] = {rate}
        mask, inputs, labels = {mask}, {inputs}, {labels}
        logits = model.decode(inputs, model.encode(source, mask), mask)
        real = {real}
        loss = smoothed_cross_entropy(logits[real], labels[real], 0.1) / real.sum()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        {then}
    return model
"""


MUTANTS = {
    "encoder_layer": [
        (0, "comes before the branch (pre-norm)", ENCODER + """
    def forward(self, x, real):
        x = x + self.attention(self.attention_norm(x), mask=real[:, None, None])
        return x + self.network(self.feed_forward_norm(x))
"""),
        (0, "the residual connections are forgotten", ENCODER + """
    def forward(self, x, real):
        x = self.attention_norm(self.attention(x, mask=real[:, None, None]))
        return self.feed_forward_norm(self.network(x))
"""),
        (10, "padding is attended", ENCODER + """
    def forward(self, x, real):
        x = self.attention_norm(x + self.attention(x))
        return self.feed_forward_norm(x + self.network(x))
"""),
        (5, "the mask is upside down", ENCODER + """
    def forward(self, x, real):
        x = self.attention_norm(x + self.attention(x, mask=~real[:, None, None]))
        return self.feed_forward_norm(x + self.network(x))
"""),
        (0, "divides by D - 1 and its eps stands outside the root", OWN_NORM + WITH_NORM),
        (0, "the norm is taken of the branch alone", ENCODER + """
    def forward(self, x, real):
        x = x + self.attention_norm(self.attention(x, mask=real[:, None, None]))
        return x + self.feed_forward_norm(self.network(x))
"""),
        (9, "the relu between the two linear layers is missing", ENCODER + """
    def forward(self, x, real):
        x = self.attention_norm(x + self.attention(x, mask=real[:, None, None]))
        return self.feed_forward_norm(x + self.down(self.up(x)))
"""),
        (5, "not divided by the square root of Dh", """
class Heads(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.qkv, self.out = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)

    def forward(self, x, mask):
        parts = [z.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for z in self.qkv(x).chunk(3, dim=-1)]
        scores = (parts[0] @ parts[1].mT).masked_fill(~mask, -torch.inf)
        return self.out((scores.softmax(dim=-1) @ parts[2]).transpose(1, 2).flatten(2))

""" + ENCODER.replace("course.MultiHeadAttention", "Heads") + """
    def forward(self, x, real):
        x = self.attention_norm(x + self.attention(x, mask=real[:, None, None]))
        return self.feed_forward_norm(x + self.network(x))
"""),
    ],
    "decoder_layer": [
        (8, "a causal mask is missing", DECODER + """
    def forward(self, x, memory, real):
        x = self.self_norm(x + self.self_attention(x))
        x = self.cross_norm(x + self.cross_attention(x, memory, mask=real[:, None, None]))
        return self.feed_forward_norm(x + self.network(x))
"""),
        (0, "comes before the branch (pre-norm)", DECODER + """
    def forward(self, x, memory, real):
        x = x + self.self_attention(self.self_norm(x), causal=True)
        x = x + self.cross_attention(self.cross_norm(x), memory, mask=real[:, None, None])
        return x + self.network(self.feed_forward_norm(x))
"""),
        (4, "the memory is not used", DECODER + """
    def forward(self, x, memory, real):
        x = self.self_norm(x + self.self_attention(x, causal=True))
        x = self.cross_norm(x + self.cross_attention(x))
        return self.feed_forward_norm(x + self.network(x))
"""),
        (12, "the source's padding is attended", DECODER + """
    def forward(self, x, memory, real):
        x = self.self_norm(x + self.self_attention(x, causal=True))
        x = self.cross_norm(x + self.cross_attention(x, memory))
        return self.feed_forward_norm(x + self.network(x))
"""),
        (4, "the mask is upside down", DECODER + """
    def forward(self, x, memory, real):
        x = self.self_norm(x + self.self_attention(x, causal=True))
        x = self.cross_norm(x + self.cross_attention(x, memory, mask=~real[:, None, None]))
        return self.feed_forward_norm(x + self.network(x))
"""),
        (0, "x is not added to the result of the cross-attention", DECODER + """
    def forward(self, x, memory, real):
        x = self.self_norm(x + self.self_attention(x, causal=True))
        x = self.cross_norm(self.cross_attention(x, memory, mask=real[:, None, None]))
        return self.feed_forward_norm(x + self.network(x))
"""),
        (4, "the cross-attention is causal too", DECODER + """
    def forward(self, x, memory, real):
        x = self.self_norm(x + self.self_attention(x, causal=True))
        earlier = torch.ones(x.shape[1], memory.shape[1]).tril().bool()
        x = self.cross_norm(x + self.cross_attention(x, memory, mask=real[:, None, None] & earlier))
        return self.feed_forward_norm(x + self.network(x))
"""),
        (0, "the cross-attention comes first", DECODER + """
    def forward(self, x, memory, real):
        x = self.cross_norm(x + self.cross_attention(x, memory, mask=real[:, None, None]))
        x = self.self_norm(x + self.self_attention(x, causal=True))
        return self.feed_forward_norm(x + self.network(x))
"""),
    ],
    "learning_rate": [
        (1, "in the warm-up n ** -0.5 is the larger of the two", """
def learning_rate(step, d_model, warmup):
    n = step + 1
    return d_model ** -0.5 * max(n ** -0.5, n * warmup ** -1.5)
"""),
        (0, "ZeroDivisionError", """
def learning_rate(step, d_model, warmup):
    return d_model ** -0.5 * min(step ** -0.5, step * warmup ** -1.5)
"""),
        (2, "the first update, step 0, is n = 1", """
def learning_rate(step, d_model, warmup):
    n = max(step, 1)
    return d_model ** -0.5 * min(n ** -0.5, n * warmup ** -1.5)
"""),
        (0, "lost its sign: d_model ** -0.5", """
def learning_rate(step, d_model, warmup):
    n = step + 1
    return d_model ** 0.5 * min(n ** -0.5, n * warmup ** -1.5)
"""),
        (4, "so that the two lines meet at n = warmup", """
def learning_rate(step, d_model, warmup):
    n = step + 1
    return d_model ** -0.5 * min(n ** -0.5, n * warmup ** -0.5)
"""),
        (7, "after the warm-up n * warmup ** -1.5 is the larger", """
def learning_rate(step, d_model, warmup):
    n = step + 1
    return d_model ** -0.5 * min(n ** 0.5, n * warmup ** -1.5)
"""),
        (0, "d_model is not used", """
def learning_rate(step, d_model, warmup):
    n = step + 1
    return min(n ** -0.5, n * warmup ** -1.5)
"""),
    ],
    "smoothed_loss": [
        (5, "spread over the V - 1 wrong symbols", """
def smoothed_loss(logits, target, smoothing, pad_id):
    V, real = logits.shape[-1], target != pad_id
    log_p = logits[real].log_softmax(dim=-1)
    q = torch.full_like(log_p, smoothing / (V - 1)).scatter(1, target[real][:, None], 1 - smoothing)
    return -(q * log_p).sum(dim=-1).mean()
"""),
        (5, "spread over V - 2 symbols", """
def smoothed_loss(logits, target, smoothing, pad_id):
    log_p = logits.log_softmax(dim=-1)
    q = torch.full_like(log_p, smoothing / (logits.shape[-1] - 2))
    q.scatter_(-1, target[..., None], 1 - smoothing)
    q[..., pad_id] = 0
    q[target == pad_id] = 0
    return -(q * log_p).sum() / (target != pad_id).sum()
"""),
        (11, "the smoothing's part of the loss counts padding", """
def smoothed_loss(logits, target, smoothing, pad_id):
    log_p = logits.log_softmax(dim=-1)
    n = (target != pad_id).sum()
    right = torch.nn.functional.nll_loss(log_p.flatten(0, 1), target.flatten(), ignore_index=pad_id)
    return (1 - smoothing) * right - smoothing * log_p.mean(dim=-1).sum() / n
"""),
        (8, "padding is not ignored", """
def smoothed_loss(logits, target, smoothing, pad_id):
    log_p = logits.log_softmax(dim=-1)
    right = torch.nn.functional.nll_loss(log_p.flatten(0, 1), target.flatten())
    return (1 - smoothing) * right - smoothing * log_p.mean()
"""),
        (8, "divided by all places, padding too", """
def smoothed_loss(logits, target, smoothing, pad_id):
    log_p = logits.log_softmax(dim=-1)
    right = torch.nn.functional.nll_loss(log_p.mT, target, reduction="none")
    losses = (1 - smoothing) * right - smoothing * log_p.mean(dim=-1)
    return losses.masked_fill(target == pad_id, 0).mean()
"""),
        (5, "the right symbol has lost epsilon, but nobody got it", """
def smoothed_loss(logits, target, smoothing, pad_id):
    losses = torch.nn.functional.cross_entropy(logits.mT, target, reduction="none")
    return (1 - smoothing) * losses[target != pad_id].mean()
"""),
        (12, "exp overflows for large logits", """
def smoothed_loss(logits, target, smoothing, pad_id):
    real = target != pad_id
    log_p = logits[real].softmax(dim=-1).log()
    right = log_p.gather(1, target[real][:, None])[:, 0]
    return (-(1 - smoothing) * right - smoothing * log_p.mean(dim=-1)).mean()
"""),
        (5, "the option label_smoothing is used: write it out", """
def smoothed_loss(logits, target, smoothing, pad_id):
    loss = nn.CrossEntropyLoss(ignore_index=pad_id, label_smoothing=smoothing)
    return loss(logits.flatten(0, 1), target.flatten())
"""),
    ],
    "beam_search": [
        (12, "no length penalty", beams(penalty="1.0")),
        (12, "the penalty is |Y| ** alpha", beams(penalty="length ** alpha")),
        (12, "the start symbol is counted", beams(worth="total / lp(len(prefix))")),
        (11, "one beam alone is followed", beams(keep="grown[:1]")),
        (5, "extended behind its end", beams(ends="False")),
        (11, "finished sequences take places among the K", beams(pool="grown[:beams]")),
        (0, "log P is that of the last symbol alone", beams(total="row[symbol].item()")),
        (13, "what has not ended after max_length symbols", beams(last="finished")),
    ],
    "train": [
        (0, "do the updates reach the weights", training(10, then="")),
        (0, "copy what it reads", training(150, inputs="target")),
        (0, "from French to English", training(150).replace("source, target = next", "target, source = next")),
        (0, "but not begin one", training(150, inputs="target[:, :-1]", labels="target[:, 1:]")),
        (12, "leave padding out of the loss", training(300, real="torch.ones_like(labels).bool()")),
        (12, "read the source's padding like words", training(300, mask="torch.ones_like(source).bool()")),
        (0, "the training diverged", training(10, rate="1e38", optimizer="SGD(model.parameters(), lr=1.0)")),
        (0, "its sizes differ", """
def train(model):
    return Transformer(TransformerConfig(len(vocab), d_model=32, n_heads=2, d_ff=256, n_layers=2, max_length=80))
"""),
    ],
}  # fmt: skip

RIGHT = {
    "encoder_layer": [ENCODER + """
    def forward(self, x, real):
        B, T, D = x.shape
        mask = real.view(B, 1, 1, T).expand(B, self.attention.n_heads, T, T)
        x = self.attention_norm(self.attention(x, mask=mask) + x)
        return self.feed_forward_norm(self.network(x) + x)
""", """
from coursekit.nn.blocks import Block

class EncoderLayer(nn.Module):  # the course's own layer, with the names of the exercise
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        block = Block(d_model, n_heads, d_ff, norm_first=False)
        self.attention, self.attention_norm = block.attention, block.attention_residual.norm
        self.up, self.down = block.feed_forward.up, block.feed_forward.down
        self.feed_forward_norm = block.feed_forward_residual.norm
        self.block = [block]

    def forward(self, x, real):
        return self.block[0](x, mask=real[:, None, None, :])
""", """
class Norm(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(d_model)), nn.Parameter(torch.zeros(d_model))

    def forward(self, x):
        x = x - x.mean(dim=-1, keepdim=True)
        return self.weight * x * (x.var(dim=-1, keepdim=True, unbiased=False) + 1e-5).rsqrt() + self.bias

""" + ENCODER.replace("nn.LayerNorm", "Norm") + """
    def forward(self, x, real):  # queries that are padding attend to nothing
        x = self.attention_norm(x + self.attention(x, mask=(real[:, :, None] & real[:, None, :])[:, None]))
        return self.feed_forward_norm(x + self.network(x))
"""],
    "decoder_layer": [DECODER + """
    def forward(self, x, memory, real):
        x = self.self_norm(x + self.self_attention(x, causal=True))
        x = self.cross_norm(x + self.cross_attention(x, memory=memory, mask=real[:, None, None, :]))
        return self.feed_forward_norm(x + self.network(x))
""", """
from coursekit.nn.blocks import DecoderBlock

class DecoderLayer(nn.Module):  # the course's own layer, with the names of the exercise
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        block = DecoderBlock(d_model, n_heads, d_ff, norm_first=False)
        self.self_attention, self.self_norm = block.self_attention, block.self_residual.norm
        self.cross_attention, self.cross_norm = block.cross_attention, block.cross_residual.norm
        self.up, self.down = block.feed_forward.up, block.feed_forward.down
        self.feed_forward_norm = block.feed_forward_residual.norm
        self.block = [block]

    def forward(self, x, memory, real):
        return self.block[0](x, memory, memory_mask=real[:, None, None, :])
""", DECODER + """
    def forward(self, x, memory, real):
        rows = []
        for t in range(x.shape[1]):  # one position after the other
            y = x[:, t : t + 1]
            y = self.self_norm(y + self.self_attention(y, x[:, : t + 1]))
            y = self.cross_norm(y + self.cross_attention(y, memory, real[:, None, None]))
            rows.append(self.feed_forward_norm(y + self.network(y)))
        return torch.cat(rows, dim=1)
"""],
    "learning_rate": ["""
def learning_rate(step, d_model, warmup):
    n = torch.tensor(step + 1.0)
    return torch.minimum(n.rsqrt(), n / warmup ** 1.5) / d_model ** 0.5
""", """
import math

def learning_rate(step, d_model, warmup):
    step += 1
    if step < warmup:
        return step / (warmup * math.sqrt(d_model * warmup))
    return 1 / math.sqrt(d_model * step)
"""],
    "smoothed_loss": ["""
def smoothed_loss(logits, target, smoothing, pad_id):
    F, real = torch.nn.functional, target != pad_id
    uniform = torch.full(logits.shape, 1 / logits.shape[-1])
    hard = F.cross_entropy(logits.transpose(1, 2), target, ignore_index=pad_id)
    soft = F.cross_entropy(logits.transpose(1, 2), uniform.transpose(1, 2), reduction="none")
    return torch.lerp(hard, soft[real].mean(), smoothing)
""", """
def smoothed_loss(logits, target, smoothing, pad_id):
    V = logits.size(-1)
    q = torch.nn.functional.one_hot(target, V) * (1 - smoothing) + smoothing / V
    log_p = logits - logits.logsumexp(dim=-1, keepdim=True)
    mask = (target != pad_id).float()
    return -((q * log_p).sum(-1) * mask).sum() / mask.sum()
""", """
def smoothed_loss(logits, target, smoothing, pad_id):
    total, n = 0.0, 0
    for row, ids in zip(logits, target):
        for e, y in zip(row, ids):
            if y != pad_id:
                log_p = torch.log_softmax(e, dim=0)
                total = total - (1 - smoothing) * log_p[y] - smoothing / len(e) * sum(log_p)
                n += 1
    return total / n
"""],
    "beam_search": [beams(), """
def best_sequence(step, bos_id, eos_id, beams, alpha, max_length):
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
""", """
def best_sequence(step, bos_id, eos_id, beams, alpha, max_length):
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
"""],
    "train": [training(350), """
from itertools import islice

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
"""],
}  # fmt: skip
