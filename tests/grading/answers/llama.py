"""Answers to exercise 12, right and wrong ones: see __init__."""

from tests.grading.answers import FIRST, load

RIGHT, MUTANTS = load("12_llama", {
"rms_norm": (FIRST, ["""def rms_norm(x, weight, eps):
    y = x.float()
    mean_square = (y * y).mean(dim=-1, keepdim=True)
    y = y / (mean_square + eps).sqrt()
    return weight * y.to(x.dtype)
""", """def rms_norm(x, weight, eps):
    size = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float64)
    return (x / (size**2 / x.shape[-1] + eps) ** 0.5 * weight).to(x.dtype)
""", """import numpy as np
def rms_norm(x, weight, eps):
    out = torch.empty_like(x)
    for b in range(x.shape[0]):
        for t in range(x.shape[1]):
            v = x[b, t].double().numpy()
            out[b, t] = torch.from_numpy(weight.double().numpy() * v / np.sqrt(np.mean(v**2) + eps)).to(x.dtype)
    return out
"""], [
    (5, "the numbers are squared in float16", "y = x.float()", "y = x"),
    (5, "the result has another type than x", "weight * y.to(x.dtype)", "weight * y"),
    (0, "the mean is subtracted, as in a layer norm", "y = x.float()",
     "y = x.float() - x.float().mean(dim=-1, keepdim=True)"),
    (6, "eps is outside the root", "(mean_square + eps).sqrt()", "(mean_square.sqrt() + eps)"),
    (6, "eps is missing", "(mean_square + eps)", "mean_square"),
    (6, "eps is squared", "mean_square + eps", "mean_square + eps**2"),
    (0, "the weight is missing", "weight * y", "y"),
    (0, "the weight is 1 + weight", "return weight", "return (1 + weight)"),
    (0, "the squares are summed", ".mean(dim=-1", ".sum(dim=-1"),
    (0, "divided by D - 1", "(y * y).mean(dim=-1, keepdim=True)",
     "(y * y).sum(dim=-1, keepdim=True) / (y.shape[-1] - 1)"),
    (0, "the mean runs over the positions", "dim=-1", "dim=1"),
    (0, "the mean runs over all positions together", "mean(dim=-1, keepdim=True)", "mean()"),
    (0, "the root is missing", "(mean_square + eps).sqrt()", "(mean_square + eps)"),
    (3, "these are mean sizes, without a square", "(y * y)", "y.abs()", ".sqrt()", ""),
    (0, "a norm of PyTorch is used", "def rms_norm(x, weight, eps):\n"
     "    return torch.nn.functional.rms_norm(x.float(), (x.shape[-1],), weight.float(), eps).to(x.dtype)\n"),
    (0, "used: write it out, weight * x", "def rms_norm(x, weight, eps):\n"
     "    return torch.nn.functional.normalize(x.float(), dim=-1) * weight\n"),
]),
"rotate": (FIRST, ["""def rotate(x, positions, base):
    half = x.shape[-1] // 2
    theta = 1.0 / base ** (torch.arange(half).float() / half)
    angle = positions[:, None, :, None].float() * theta
    cos, sin = angle.cos(), angle.sin()
    a, b = x[..., :half], x[..., half:]
    first, second = a * cos - b * sin, a * sin + b * cos
    return torch.cat([first, second], dim=-1).to(x.dtype)
""", """def rotate(x, positions, base):
    Dh = x.shape[-1]
    theta = base ** (-torch.arange(0, Dh, 2).float() / Dh)
    angle = (positions.float().unsqueeze(-1) * theta).repeat(1, 1, 2).unsqueeze(1)
    a, b = x.chunk(2, dim=-1)
    partner = torch.cat([-b, a], dim=-1)
    return x * angle.cos().to(x.dtype) + partner * angle.sin().to(x.dtype)
""", """def rotate(x, positions, base):
    Dh = x.shape[-1]
    out = torch.zeros_like(x)
    for i in range(Dh // 2):
        angle = positions.double() * base ** (-2 * i / Dh)
        turn = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()], dim=-1).unflatten(-1, (2, 2))
        pair = torch.stack([x[..., i], x[..., i + Dh // 2]], dim=-1).double()  # (B, H, T, 2)
        turned = (turn[:, None] @ pair[..., None])[..., 0]
        out[..., i], out[..., i + Dh // 2] = turned[..., 0].to(x.dtype), turned[..., 1].to(x.dtype)
    return out
"""], [
    (3, "neighbours are turned as a pair", "x[..., :half], x[..., half:]", "x[..., ::2], x[..., 1::2]",
     "torch.cat([first, second], dim=-1)", "torch.stack([first, second], dim=-1).flatten(-2)"),
    (3, "the pairs are neighbours when they are read or when they are put back",
     "torch.cat([first, second], dim=-1)", "torch.stack([first, second], dim=-1).flatten(-2)"),
    (3, "each twice in a row", """def rotate(x, positions, base):
    Dh = x.shape[-1]
    theta = base ** (-torch.arange(0, Dh, 2).float() / Dh)
    angle = (positions.float().unsqueeze(-1) * theta).repeat_interleave(2, dim=-1).unsqueeze(1)
    a, b = x.chunk(2, dim=-1)
    partner = torch.cat([-b, a], dim=-1)
    return x * angle.cos().to(x.dtype) + partner * angle.sin().to(x.dtype)
"""),
    (0, "this turns the other way", "a * cos - b * sin, a * sin + b * cos", "a * cos + b * sin, b * cos - a * sin"),
    (0, "the second half is not that of a rotation", "a * sin + b * cos", "b * cos - a * sin"),
    (6, "the positions that are given are not used", "positions[:, None, :, None].float()",
     "torch.arange(x.shape[2])[:, None].float()"),
    (6, "all sequences are turned by the positions of the first", "positions[:, None, :, None]",
     "positions[0, :, None]"),
    (0, "the positions are one too large", "positions[:, None, :, None]", "(1 + positions[:, None, :, None])"),
    (3, "the base is always 10,000", "1.0 / base", "1.0 / 10_000"),
    (3, "the exponent is i / Dh", "float() / half", "float() / (2 * half)"),
    (3, "the exponent is 4i / Dh", "float() / half", "float() * 2 / half"),
    (3, "the exponent is 2i / (Dh - 2)", "float() / half", "float() / max(half - 1, 1)"),
    (3, "the exponent has the wrong sign", "1.0 / base", "1.0 * base"),
    (10, "the angles are computed in float16", "positions[:, None, :, None].float() * theta",
     "positions[:, None, :, None].to(x.dtype) * theta.to(x.dtype)"),
    (10, "the result has another type than x", "return torch.cat([first, second], dim=-1).to(x.dtype)",
     "return torch.cat([first, second], dim=-1)"),
]),
"grouped_attention": (FIRST, ["""def grouped_attention(query, key, value, window=None):
    H, G = query.shape[1], key.shape[1]
    T, S = query.shape[2], key.shape[2]
    key = key.repeat_interleave(H // G, dim=1)
    value = value.repeat_interleave(H // G, dim=1)
    offset = S - T
    allowed = torch.ones(T, S, dtype=torch.bool).tril(offset)
    if window is not None:
        allowed = allowed.triu(offset - window + 1)
    scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
    scores = scores.masked_fill(~allowed, -torch.inf)
    return scores.softmax(dim=-1) @ value
""", """def grouped_attention(query, key, value, window=None):
    G = key.shape[1]
    T, S = query.shape[2], key.shape[2]
    shared = query.unflatten(1, (G, -1))  # (B, G, H / G, T, Dh)
    scores = torch.einsum("bgntd,bgsd->bgnts", shared, key) * query.shape[-1] ** -0.5
    age = torch.arange(S - T, S)[:, None] - torch.arange(S)[None]
    allowed = (age >= 0) & (age < (S if window is None else window))
    weights = torch.where(allowed, scores, -torch.inf).softmax(dim=-1)
    return torch.einsum("bgnts,bgsd->bgntd", weights, value).flatten(1, 2)
""", """def grouped_attention(query, key, value, window=None):
    B, H, T, Dh = query.shape
    n, S = H // key.shape[1], key.shape[2]
    out = torch.zeros(B, H, T, value.shape[-1])
    for h in range(H):
        for t in range(T):
            end = t + S - T + 1
            start = 0 if window is None else max(0, end - window)
            k, v = key[:, h // n, start:end], value[:, h // n, start:end]
            scores = (k @ query[:, h, t, :, None])[..., 0] / Dh**0.5
            e = (scores - scores.amax(dim=-1, keepdim=True)).exp()
            out[:, h, t] = ((e / e.sum(dim=-1, keepdim=True))[..., None] * v).sum(dim=1)
    return out
"""], [
    (7, "the heads of keys and values are tiled", "key.repeat_interleave(H // G, dim=1)", "key.repeat(1, H // G, 1, 1)",
     "value.repeat_interleave(H // G, dim=1)", "value.repeat(1, H // G, 1, 1)"),
    (7, "the heads of the keys are tiled", "key.repeat_interleave(H // G, dim=1)", "key.repeat(1, H // G, 1, 1)"),
    (7, "the heads of the values are tiled", "value.repeat_interleave(H // G, dim=1)",
     "value.repeat(1, H // G, 1, 1)"),
    (0, "all heads of queries use the first head", "key.repeat_interleave(H // G, dim=1)", "key[:, :1]",
     "value.repeat_interleave(H // G, dim=1)", "value[:, :1]"),
    (0, "the scores are not divided by the square root of Dh", " / query.shape[-1] ** 0.5", ""),
    (0, "the scores are divided by Dh", "query.shape[-1] ** 0.5", "query.shape[-1]"),
    (0, "the softmax runs over the queries", ".softmax(dim=-1)", ".softmax(dim=-2).nan_to_num(0)"),
    (5, "masked after the softmax", "    scores = scores.masked_fill(~allowed, -torch.inf)\n", "",
     "scores.softmax(dim=-1)", "(scores.softmax(dim=-1) * allowed)"),
    (12, "a number such as -20", "-torch.inf", "-20.0"),
    (5, "the forbidden scores get a 0", "-torch.inf", "0.0"),
    (10, "the window is one too wide", "offset - window + 1", "offset - window"),
    (10, "the window is one too narrow", "offset - window + 1", "offset - max(window - 1, 1) + 1"),
    (10, "is not used", "window is not None", "False"),
    (10, "with a window the future is seen", "allowed = allowed.triu(offset - window + 1)",
     "allowed = torch.ones(T, S, dtype=torch.bool).triu(offset - window + 1).tril(offset + window - 1)"),
    (5, "the queries are taken for the first of the positions", "offset = S - T", "offset = 0"),
    (0, "a token may not attend to itself", ".tril(offset)", ".tril(offset - 1)", "scores.softmax(dim=-1)",
     "scores.softmax(dim=-1).nan_to_num(0)"),
    (5, "later tokens are attended to", ".tril(offset)", ""),
    (0, "the causal mask is turned round", ".tril(offset)", ".triu(offset)", "allowed.triu(offset - window + 1)",
     "allowed"),
    (0, "the weights belong to the values", "scores.softmax(dim=-1) @ value", "scores.softmax(dim=-1) @ key"),
    (0, "PyTorch's own attention is used", """def grouped_attention(query, key, value, window=None):
    T, S = query.shape[2], key.shape[2]
    age = torch.arange(S - T, S)[:, None] - torch.arange(S)
    allowed = (age >= 0) & (age < (window or S))
    n = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(n, dim=1), value.repeat_interleave(n, dim=1)
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, allowed)
"""),
]),
"feed_forward": (FIRST, ["""def feed_forward(x, gate, up, down):
    g, u = x @ gate.T, x @ up.T
    return (g * torch.sigmoid(g) * u) @ down.T
def width(d_model, multiple):
    wanted = 8 * d_model
    return -(-wanted // (3 * multiple)) * multiple
""", """def feed_forward(x, gate, up, down):
    both = F.linear(x, torch.cat([gate, up]))
    g, u = both.chunk(2, dim=-1)
    return F.linear(torch.nn.SiLU()(g) * u, down)
def width(d_model, multiple):
    found = multiple
    while 3 * found < 8 * d_model:
        found += multiple
    return found
""", """def feed_forward(x, gate, up, down):
    g = torch.einsum("btd,fd->btf", x, gate)
    return torch.einsum("btf,btf,df->btd", g / (1 + torch.exp(-g)), torch.einsum("btd,fd->btf", x, up), down)
def width(d_model, multiple):
    return torch.tensor((8 * d_model + 3 * multiple - 1) // (3 * multiple) * multiple)
"""], [
    (2, "gate and up have changed places", "x @ gate.T, x @ up.T", "x @ up.T, x @ gate.T"),
    (2, "the gate goes through a GELU", "g * torch.sigmoid(g) * u", "F.gelu(g) * u"),
    (2, "the gate goes through the approximate GELU", "g * torch.sigmoid(g) * u", "F.gelu(g, approximate='tanh') * u"),
    (2, "the gate goes through a sigmoid alone", "g * torch.sigmoid(g)", "torch.sigmoid(g)"),
    (2, "the gate goes through a ReLU", "g * torch.sigmoid(g)", "torch.relu(g)"),
    (2, "the SiLU is taken of the product", "g * torch.sigmoid(g) * u", "g * u * torch.sigmoid(g * u)"),
    (2, "both branches go through the SiLU", "g * torch.sigmoid(g) * u", "F.silu(g) * F.silu(u)"),
    (2, "gate and up are added", "torch.sigmoid(g) * u", "torch.sigmoid(g) + u"),
    (2, "nothing goes through the SiLU", "g * torch.sigmoid(g) * u", "g * u"),
    (2, "`up` is missing", "torch.sigmoid(g) * u", "torch.sigmoid(g)"),
    (5, "this is rounded down to a multiple", "-(-wanted // (3 * multiple))", "wanted // (3 * multiple)"),
    (5, "this is rounded to the nearest multiple", "-(-wanted // (3 * multiple))", "round(wanted / (3 * multiple))"),
    (5, "this is 4 D", "return -(-wanted // (3 * multiple)) * multiple", "return 4 * d_model"),
    (5, "this is 2/3 D, rounded up", "wanted = 8", "wanted = 2"),
    (5, "it is to be a multiple", "-(-wanted // (3 * multiple)) * multiple", "-(-wanted // 3)"),
    (5, "one multiple too many", "-(-wanted // (3 * multiple))", "(wanted // (3 * multiple) + 1)"),
]),
"cached_attention": (FIRST, ["""def cached_attention(query, key, value, cache, base, window=None):
    keys, values, seen = cache
    first = seen
    query = turn(query, first, base)
    key = turn(key, first, base)
    keys = torch.cat([keys, key], dim=2)
    values = torch.cat([values, value], dim=2)
    output = attend_within(query, keys, values, window)
    if window is not None:
        length = keys.shape[2]
        start = max(0, length - window + 1)
        keys, values = keys[:, :, start:], values[:, :, start:]
    seen = seen + key.shape[2]
    return output, (keys, values, seen)
""", """def cached_attention(query, key, value, cache, base, window=None):  # with parts 2 and 3 in one cell
    old_keys, old_values, seen = cache
    B, H, T, Dh = query.shape
    theta = base ** (-torch.arange(0, Dh, 2).float() / Dh)
    angle = torch.arange(seen, seen + T)[:, None] * theta
    cos, sin = angle.cos(), angle.sin()
    def turned(x):
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)
    keys = torch.cat([old_keys, turned(key)], dim=2)
    values = torch.cat([old_values, value], dim=2)
    S, n = keys.shape[2], H // keys.shape[1]
    age = torch.arange(S - T, S)[:, None] - torch.arange(S)
    allowed = (age >= 0) & (age < (S if window is None else window))
    scores = turned(query) @ keys.repeat_interleave(n, dim=1).mT / Dh**0.5
    weights = scores.masked_fill(~allowed, -torch.inf).softmax(dim=-1)
    kept = S if window is None else min(S, window - 1)
    cache = keys[:, :, S - kept :], values[:, :, S - kept :], seen + T
    return weights @ values.repeat_interleave(n, dim=1), cache
""", """def cached_attention(query, key, value, cache, base, window=None):  # one token after the other
    keys, values, seen = cache
    outputs = []
    for t in range(query.shape[2]):
        one = slice(t, t + 1)
        keys = torch.cat([keys, turn(key[:, :, one], seen, base)], dim=2)
        values = torch.cat([values, value[:, :, one]], dim=2)
        outputs.append(attend(turn(query[:, :, one], seen, base), keys, values)[0])
        seen += 1
        if window is not None and keys.shape[2] >= window:
            keys, values = keys[:, :, 1:], values[:, :, 1:]
    return torch.cat(outputs, dim=2), (keys, values, seen)
"""], [
    (3, "every piece is turned as if it began at position 0", "first = seen", "first = 0"),
    (10, "the first position is the number of keys in the cache", "first = seen", "first = keys.shape[2]"),
    (7, "the positions are one too large", "first = seen", "first = seen + 1"),
    (3, "all keys are turned again with every piece", "    key = turn(key, first, base)\n", "",
     "    output =", "    keys = turn(keys, first - keys.shape[2] + key.shape[2], base)\n    output ="),
    (7, "the keys in the cache are not turned", "    key = turn(key, first, base)\n", "",
     "attend_within(query, keys,", "attend_within(query, turn(keys, first - keys.shape[2] + key.shape[2], base),"),
    (0, "neither queries nor keys are turned", "    query = turn(query, first, base)\n", "",
     "    key = turn(key, first, base)\n", ""),
    (3, "the queries are not turned", "    query = turn(query, first, base)\n", ""),
    (0, "the keys are not turned", "    key = turn(key, first, base)\n", ""),
    (0, "the values are turned, too", "torch.cat([values, value], dim=2)",
     "torch.cat([values, turn(value, first, base)], dim=2)"),
    (3, "`seen` is the length of the last piece", "seen = seen + key.shape[2]", "seen = key.shape[2]"),
    (3, "grows with every piece by the number of its tokens", "seen = seen + key.shape[2]", "seen = seen"),
    (3, "the new cache holds the new tokens alone", "return output, (keys, values, seen)",
     "n = key.shape[2]\n    return output, (key, value, seen)"),
    (10, "the cache is cut before the attention",
     "    output = attend_within(query, keys, values, window)\n", "", "    seen = seen +",
     "    output = attend_within(query, keys, values, window)\n    seen = seen +"),
    (10, "nothing is cut off", "if window is not None", "if False"),
    (10, "the cache keeps one position too many", "length - window + 1", "length - window"),
    (10, "with window 1 everything is kept", "keys[:, :, start:], values[:, :, start:]",
     "keys[:, :, -(window - 1) :], values[:, :, -(window - 1) :]"),
    (6, "the attention is over the new tokens alone", "within(query, keys, values, ", "within(query, key, value, "),
    (10, "the window is not used in the attention", "values, window)", "values)"),
    (3, "within a piece later tokens are attended to", "attend_within(query, keys, values, window)",
     "attend(query, keys, values)[0]"),
]),
"memory": (FIRST, ["""def parameters_of(config):
    V, D, F_, L = (config[name] for name in ("vocab_size", "d_model", "d_ff", "n_layers"))
    H, G, Dh = (config[name] for name in ("n_heads", "n_kv_heads", "d_head"))
    query, key, value, out = D * H * Dh, D * G * Dh, D * G * Dh, H * Dh * D
    network = 3 * D * F_
    norms = 2 * D
    embeddings, output = V * D, 0 if config["tied"] else V * D
    return embeddings + L * (query + key + value + out + network + norms) + D + output
def cache_bytes(config, batch, tokens, bits=16):
    window = config["window"]
    length = tokens if window is None else min(tokens, window - 1)
    numbers = 2 * config["n_layers"] * batch * length * config["n_kv_heads"] * config["d_head"]
    return numbers * bits // 8
""", """def parameters_of(config):
    D, size = config["d_model"], config["d_head"]
    shapes = [(config["vocab_size"], D)] * (1 + (not config["tied"])) + [(1, D)]
    for _ in range(config["n_layers"]):
        shapes += [(config["n_heads"] * size, D), (D, config["n_heads"] * size)]
        shapes += [(config["n_kv_heads"] * size, D)] * 2 + [(config["d_ff"], D)] * 3 + [(1, D)] * 2
    return sum(rows * columns for rows, columns in shapes)
def cache_bytes(config, batch, tokens, bits=16):
    per_token = config["n_kv_heads"] * config["d_head"] * config["n_layers"] * (bits / 8) * 2
    if config["window"] is not None and tokens >= config["window"]:
        tokens = config["window"] - 1
    return float(batch * tokens * per_token)
""", """def parameters_of(config):
    D, heads = config["d_model"], config["n_heads"] + config["n_kv_heads"]
    of_a_layer = D * (2 * config["d_head"] * heads + 3 * config["d_ff"] + 2)
    total = D * (1 + config["vocab_size"]) + config["n_layers"] * of_a_layer
    return torch.tensor(total if config["tied"] else total + D * config["vocab_size"])
def cache_bytes(config, batch, tokens, bits=16):
    kept = torch.arange(tokens)
    if config["window"] is not None:
        kept = kept[max(0, tokens - config["window"] + 1) :]
    shape = (2, config["n_layers"], batch, config["n_kv_heads"], len(kept), config["d_head"])
    return math.prod(shape) * bits / 8
"""], [
    (4, "the embeddings are counted twice although they are tied", '0 if config["tied"] else V * D', "V * D"),
    (4, "the output layer is missing", '0 if config["tied"] else V * D', "0"),
    (4, "keys and values are counted with as many heads as the queries", "D * G * Dh, D * G * Dh, H * Dh * D",
     "D * H * Dh, D * H * Dh, H * Dh * D"),
    (4, "the output of the attention is missing", "H * Dh * D\n", "0\n"),
    (4, "the output of the attention is counted with n_kv_heads", "H * Dh * D\n", "G * Dh * D\n"),
    (4, "keys and values share a matrix here", "D * G * Dh, D * G * Dh", "D * G * Dh, 0"),
    (4, "the size of a head is d_model / n_heads: it is d_head", "query, key, value, out = ",
     "Dh = D // H\n    query, key, value, out = "),
    (4, "the network has two matrices here", "3 * D * F_", "2 * D * F_"),
    (4, "the norms are missing", "norms = 2 * D", "norms = 0", " + D + output", " + output"),
    (4, "the last norm is missing", " + D + output", " + output"),
    (4, "a layer has one norm here", "norms = 2 * D", "norms = D"),
    (4, "the norms have a bias here", "norms = 2 * D", "norms = 4 * D", " + D + output", " + 2 * D + output"),
    (4, "biases are counted", "norms = 2 * D", "norms = 2 * D + (H + 2 * G) * Dh + 2 * F_ + 2 * D"),
    (5, "where bytes are asked for", "numbers * bits // 8", "numbers * bits"),
    (5, "only keys, or only values, are counted", "numbers = 2 * ", "numbers = "),
    (5, "there are as many heads here as queries have", 'length * config["n_kv_heads"]', 'length * config["n_heads"]'),
    (5, "the cache holds heads of size d_head", 'config["n_kv_heads"] * config["d_head"]',
     'config["n_kv_heads"] * config["d_model"] / config["n_heads"]'),
    (5, "this is one layer", '2 * config["n_layers"] * batch', "2 * batch"),
    (5, "the window is not used", "tokens if window is None else min(tokens, window - 1)", "tokens"),
    (5, "one position too many is counted", "min(tokens, window - 1)", "min(tokens, window)"),
    (5, "even where the text is shorter", "min(tokens, window - 1)", "window - 1"),
    (5, "the texts of a batch are not counted", " * batch * length", " * length"),
    (5, "the bits are always 16", "numbers * bits // 8", "numbers * 2"),
]),
"quantisation": (FIRST, ["""def quantise(weight, bits, block):
    R, C = weight.shape
    blocks = weight.reshape(R, C // block, block)
    low, high = blocks.min(dim=-1).values, blocks.max(dim=-1).values
    top = 2**bits - 1
    scale = (high - low) / top
    q = (blocks - low[..., None]) / scale[..., None]
    q = q.round().nan_to_num(0).reshape(R, C).to(torch.int64)
    return q, scale, low
def dequantise(q, scale, minimum):
    block = q.shape[1] // scale.shape[1]
    d = scale.repeat_interleave(block, dim=1)
    m = minimum.repeat_interleave(block, dim=1)
    return d * q + m
def bits_per_number(bits, block):
    return bits + 32 / block
""", """def quantise(weight, bits, block):
    q, scales, minima = torch.zeros(weight.shape, dtype=torch.uint8), [], []
    for start in range(0, weight.shape[1], block):
        part = weight[:, start : start + block]
        m, M = part.amin(dim=1, keepdim=True), part.amax(dim=1, keepdim=True)
        d = (M - m) / (2**bits - 1)
        safe = torch.where(d > 0, d, 1.0)
        q[:, start : start + block] = torch.floor((part - m) / safe + 0.5).to(torch.uint8)
        scales.append(d)
        minima.append(m)
    return q, torch.cat(scales, dim=1), torch.cat(minima, dim=1)
def dequantise(q, scale, minimum):
    out = torch.zeros(q.shape)
    n = scale.shape[1]
    for j, part in enumerate(q.chunk(n, dim=1)):
        width = part.shape[1]
        out[:, j * width : (j + 1) * width] = part * scale[:, j, None] + minimum[:, j, None]
    return out
def bits_per_number(bits, block):
    return (block * bits + 16 + 16) / block
""", """def quantise(weight, bits, block):
    rows = weight.reshape(-1, block).double()
    m = rows.amin(dim=1, keepdim=True)
    d = (rows.amax(dim=1, keepdim=True) - m) / (2**bits - 1)
    q = torch.round((rows - m) / (d + (d == 0)))
    shape = (len(weight), -1)
    return q.reshape(weight.shape), d.reshape(shape), m.reshape(shape)
def dequantise(q, scale, minimum):
    return (q.reshape(scale.numel(), -1) * scale.reshape(-1, 1) + minimum.reshape(-1, 1)).reshape(q.shape)
def bits_per_number(bits, block):
    return torch.tensor(bits + 2 * 16 / block)
"""], [
    (10, "in a block of equal numbers 0 is divided by 0", ".nan_to_num(0).reshape(R, C).to(torch.int64)",
     ".reshape(R, C)"),
    (10, "the scale of equal numbers is not 0", "    q = (blocks",
     "    scale = scale.masked_fill(scale == 0, 1.0)\n    q = (blocks"),
    (5, "the range is divided by 2^bits", "2**bits - 1", "2**bits"),
    (5, "as with a sign", "2**bits - 1", "2 ** (bits - 1) - 1"),
    (5, "this is cut off, not rounded", "q.round()", "q.floor()"),
    (5, "this is rounded up", "q.round()", "q.ceil()"),
    (5, "the blocks lie in the columns", "blocks = weight.reshape", "blocks = weight.mT.reshape"),
    (5, "each row has one scale and one minimum here", "blocks.min(dim=-1).values, blocks.max(dim=-1).values",
     "(f(dim=(1, 2), keepdim=True)[..., 0].expand(R, C // block) for f in (blocks.amin, blocks.amax))"),
    (5, "all blocks have the same scale and minimum here", "blocks.min(dim=-1).values, blocks.max(dim=-1).values",
     "(f().expand(R, C // block) for f in (blocks.amin, blocks.amax))"),
    (5, "the levels are symmetric around 0", "low, high = blocks.min(dim=-1).values, blocks.max(dim=-1).values",
     "high = blocks.abs().amax(dim=-1)\n    low = -high"),
    (5, "the minimum is not subtracted before q", "(blocks - low[..., None])", "blocks"),
    (7, "levels above 127 have become negative", ".to(torch.int64)", ".to(torch.uint8).to(torch.int8)"),
    (9, "scale and minimum have changed places", "return d * q + m", "return m * q + d"),
    (9, "the minimum is added before the scale is multiplied", "return d * q + m", "return d * (q + m)"),
    (9, "the minimum is missing", "return d * q + m", "return d * q"),
    (9, "the minimum is subtracted", "return d * q + m", "return d * q - m"),
    (9, "scales and minima are tiled", "scale.repeat_interleave(block, dim=1)", "scale.repeat(1, block)",
     "minimum.repeat_interleave(block, dim=1)", "minimum.repeat(1, block)"),
    (10, "scale and minimum of a block are not counted", "bits + 32 / block", "bits"),
    (10, "only one of scale and minimum is counted", "bits + 32 / block", "bits + 16 / block"),
    (10, "with 32 bits each", "bits + 32 / block", "bits + 64 / block"),
    (10, "this is in bytes", "bits + 32 / block", "(bits + 32 / block) / 8"),
    (10, "divide by its numbers", "bits + 32 / block", "bits * block + 32"),
]),
"mixture": (FIRST, ["""def gates_of(logits, k):
    top = logits.topk(k, dim=-1)
    weights = top.values.softmax(dim=-1)
    return torch.zeros_like(logits).scatter(1, top.indices, weights)
def mixture(x, logits, experts, k):
    gates = gates_of(logits, k)
    chosen = logits.topk(k, dim=-1).indices
    output = torch.zeros_like(x)
    for e, expert in enumerate(experts):
        tokens = (chosen == e).any(dim=-1).nonzero()[:, 0]
        if len(tokens) == 0:
            continue
        output[tokens] += gates[tokens, e, None] * expert(x[tokens])
    return output
def balance_loss(logits, k):
    E = logits.shape[-1]
    p = logits.softmax(dim=-1)
    chosen = F.one_hot(logits.topk(k, dim=-1).indices, E).sum(dim=1).float()
    f = chosen.mean(dim=0) / k
    P = p.mean(dim=0)
    return E * (f * P).sum()
""", """def gates_of(logits, k):  # the softmax over all experts, and then a division
    kth = logits.sort(dim=-1, descending=True).values[:, k - 1 : k]
    p = logits.double().softmax(dim=-1) * (logits >= kth)
    return p / p.sum(dim=-1, keepdim=True)
def mixture(x, logits, experts, k):
    parts = torch.zeros(len(x), k, x.shape[1])
    top = logits.topk(k, dim=-1)
    weights = top.values.softmax(dim=-1)
    for e in range(len(experts)):
        token, place = (top.indices == e).nonzero(as_tuple=True)
        parts[token, place] = experts[e](x[token])
    return (parts * weights[..., None]).sum(dim=1)
def balance_loss(logits, k):
    N, E = logits.shape
    counts = torch.zeros(E)
    for e in logits.topk(k, dim=-1).indices.flatten().tolist():
        counts[e] += 1
    return E / (N * k) * (logits.softmax(dim=-1) @ counts).mean()
""", """def gates_of(logits, k):
    out = torch.zeros_like(logits)
    for n in range(len(logits)):
        best = sorted(range(logits.shape[1]), key=lambda e: -logits[n, e].item())[:k]
        out[n, best] = logits[n, best].softmax(dim=0)
    return out
def mixture(x, logits, experts, k):
    gates, order = gates_of(logits, k), logits.argsort(dim=-1, descending=True)[:, :k]
    results = x.new_zeros(x.shape)
    for e, expert in enumerate(experts):
        which = (order == e).any(dim=1)
        if which.any():
            results = results.index_add(0, which.nonzero().flatten(), gates[which, e][:, None] * expert(x[which]))
    return results
def balance_loss(logits, k):
    f = (gates_of(logits.detach(), k) > 0).double().mean(dim=0) / k
    P = torch.exp(logits - logits.logsumexp(dim=-1, keepdim=True)).mean(dim=0)
    return len(f) * f.float().dot(P)
"""], [
    (6, "the gates of the chosen experts do not sum to 1", "weights = top.values.softmax(dim=-1)",
     "weights = logits.softmax(dim=-1).gather(1, top.indices)"),
    (5, "all experts have a gate above 0",
     "    return torch.zeros_like(logits).scatter(1, top.indices, weights)", "    return logits.softmax(dim=-1)",
     "for e, expert in enumerate(experts):\n        tokens = (chosen == e).any(dim=-1).nonzero()[:, 0]",
     "for e, expert in enumerate(experts):\n        tokens = torch.arange(len(x))"),
    (6, "the softmax is taken twice", "top.values.softmax(dim=-1)",
     "logits.softmax(dim=-1).gather(1, top.indices).softmax(dim=-1)"),
    (6, "the chosen experts have equal gates", "top.values.softmax(dim=-1)", "torch.ones_like(top.values) / k"),
    (6, "the logits themselves, divided by their sum", "top.values.softmax(dim=-1)",
     "top.values / top.values.sum(dim=-1, keepdim=True)"),
    (6, "these are sigmoids, divided by their sum", "top.values.softmax(dim=-1)",
     "top.values.sigmoid() / top.values.sigmoid().sum(dim=-1, keepdim=True)"),
    (6, "the smallest logits are chosen", "top = logits.topk(k, dim=-1)",
     "top = logits.topk(k, dim=-1, largest=False)"),
    (6, "one expert is used: it is k", "top = logits.topk(k, dim=-1)", "top = logits.topk(1, dim=-1)"),
    (6, "the softmax runs over the tokens", "    return torch.zeros_like(logits).scatter(1, top.indices, weights)",
     "    out = torch.full_like(logits, -torch.inf).scatter(1, top.indices, top.values)\n"
     "    return out.softmax(dim=0).nan_to_num(0)"),
    (10, "the experts' results are summed without their gates", "gates[tokens, e, None] * expert", "expert"),
    (10, "a token keeps what the last of its experts gave", "output[tokens] +=", "output[tokens] ="),
    (10, "a token is added to what its experts made of it", "torch.zeros_like(x)", "x.clone()"),
    (12, "every expert is called with all tokens", "expert(x[tokens])", "expert(x)[tokens]",
     "        if len(tokens) == 0:\n            continue\n", ""),
    (8, "the factor E is missing", "return E * ", "return "),
    (8, "the shares f sum to k", "chosen.mean(dim=0) / k", "chosen.mean(dim=0)"),
    (8, "only the first choice of each token is counted",
     "F.one_hot(logits.topk(k, dim=-1).indices, E).sum(dim=1).float()",
     "F.one_hot(logits.argmax(dim=-1), E) * k * 1.0"),
    (8, "P is taken for f as well", "f = chosen.mean(dim=0) / k", "f = p.mean(dim=0)"),
    (8, "f is taken for P as well", "P = p.mean(dim=0)", "P = f"),
    (8, "P is the mean of the gates", "P = p.mean(dim=0)", "P = gates_of(logits, k).mean(dim=0)"),
    (8, "P is summed over the tokens", "P = p.mean(dim=0)", "P = p.sum(dim=0)"),
    (8, "this is the squared distance from equal shares", "E * (f * P).sum()", "((f - 1 / E) ** 2).sum()"),
    (11, "no gradient arrives", "P = p.mean(dim=0)", "P = p.detach().mean(dim=0)"),
]),
})  # fmt: skip
