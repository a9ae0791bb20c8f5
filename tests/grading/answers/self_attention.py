"""Answers to exercise 03, right and wrong ones: see __init__."""

from tests.grading.answers import MODEL, load

RIGHT, MUTANTS = load("03_self_attention", {
"masked_softmax": (MODEL, ["""def masked_softmax(scores, mask):
    scores = torch.where(mask, scores, float("-inf"))
    highest = scores.max(dim=-1, keepdim=True).values
    e = (scores - torch.where(highest.isinf(), 0, highest)).exp()
    total = e.sum(dim=-1, keepdim=True)
    return e / torch.where(total == 0, 1, total)
""", """def masked_softmax(scores, mask):
    mask = mask.expand(scores.shape)
    weights = torch.zeros(scores.shape)
    for row in np.ndindex(*scores.shape[:-1]):
        allowed = mask[row]
        if allowed.any():
            weights[row][allowed] = torch.softmax(scores[row][allowed].float(), dim=0)
    return weights
import numpy as np
""", """def masked_softmax(scores, mask):
    low = torch.finfo(scores.dtype).min
    return torch.softmax(scores.masked_fill(mask.logical_not(), low), -1) * mask
""", """def masked_softmax(scores, mask):
    scores = scores + torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)
    return torch.nan_to_num(scores.log_softmax(dim=-1).exp())
"""], [
    (0, "the mask is upside down", "alive = ", "mask = ~mask\n    alive = "),
    (3, "mask the scores before the softmax", "def masked_softmax(scores, mask): return scores.softmax(dim=-1) * mask"),
    (10, "became nan", "    scores = scores.masked_fill(~alive, 0)  # any number will do: no 0 / 0\n", ""),
    (7, "fill with -inf, not with a large number",
     "def masked_softmax(scores, mask): return scores.masked_fill(mask == 0, -1e9).softmax(dim=-1)"),
    (10, "got equal weights, as if all were allowed", " * alive", ""),
    (11, "the right shape but wrong values", "-torch.inf", "-5e10", " * alive", " * alive * mask"),
    (0, "runs over the wrong axis", """def masked_softmax(scores, mask):
    return scores.masked_fill(~mask, -torch.inf).softmax(dim=-2).nan_to_num(0)
"""),
    (7, "the highest score is a masked one", """def masked_softmax(scores, mask):
    e = (scores - scores.amax(dim=-1, keepdim=True)).exp() * mask
    return e / e.sum(dim=-1, keepdim=True)
"""),
    (0, "extreme scores 0 of 3: the same", """def masked_softmax(scores, mask):
    return scores.masked_fill(mask, -torch.inf).softmax(dim=-1).nan_to_num(0)
"""),
    (11, "exp overflows for large scores: subtract each row's", """def masked_softmax(scores, mask):
    e = scores.masked_fill(~mask, -torch.inf).exp()
    return e / e.sum(dim=-1, keepdim=True).clamp(min=1e-30)
"""),
    (11, "exp overflows for large scores: subtract the highest", """def masked_softmax(scores, mask):
    e = scores.exp() * mask
    return e / e.sum(dim=-1, keepdim=True).clamp(min=1e-30)
"""),
    (3, "the tensor scores that you are given is changed", "masked_fill(~mask", "masked_fill_(~mask"),
]),
"attention": (MODEL, ["""def attention(query, key, value, mask=None):
    scores = torch.einsum("btd,bsd->bts", query, key) * query.size(-1) ** -0.5
    if mask is not None:
        scores = torch.where(mask, scores, float("-inf"))
    weights = torch.nn.functional.softmax(scores, dim=2)
    return torch.einsum("bts,bsd->btd", weights, value), weights
""", """import math
def attention(query, key, value, mask=None):
    B, T, Dh = query.shape
    S = key.shape[1]
    if mask is None:
        mask = torch.ones(B, T, S, dtype=torch.bool)
    mask = mask.expand(B, T, S)
    output, weights = torch.zeros(B, T, value.shape[2]), torch.zeros(B, T, S)
    for b in range(B):
        for t in range(T):
            scores = [query[b, t] @ key[b, s] / math.sqrt(Dh) for s in range(S)]
            top = max(e for e, may in zip(scores, mask[b, t]) if may)
            e = [math.exp(e - top) if may else 0.0 for e, may in zip(scores, mask[b, t])]
            weights[b, t] = torch.tensor(e) / sum(e)
            output[b, t] = weights[b, t] @ value[b]
    return output, weights
""", """def attention(query, key, value, mask=None):
    if mask is None:
        mask = torch.ones(1, dtype=torch.bool)
    weights = course.masked_softmax(torch.bmm(query / query.shape[-1] ** 0.5, key.mT), mask)
    return [sum(weights[..., s, None] * value[:, None, s] for s in range(value.shape[1])), weights]
"""], [
    (0, "not divided by the square root of Dh", " / Dh**0.5", ""),
    (0, "divide by its square root", "Dh**0.5", "Dh"),
    (0, "the softmax runs over the queries", "scores.softmax(dim=-1)", "scores.softmax(dim=1)",
     "course.masked_softmax(scores, mask)", "scores.masked_fill(~mask, -torch.inf).softmax(dim=1)"),
    (10, "masked after the softmax", "course.masked_softmax(scores, mask)", "scores.softmax(dim=-1) * mask"),
    (0, "divided by the square root of Dv", "query.shape[-1]", "value.shape[-1]"),
    (10, "the mask is on the wrong axis", "(scores, mask)", "(scores, mask.mT)"),
    (10, "the mask is upside down", "(scores, mask)", "(scores, ~mask)"),
    (10, "the mask is upside down: True means", "course.masked_softmax(scores, mask)",
     "scores.masked_fill(mask, -torch.inf).softmax(dim=-1)"),
    (5, "the weights belong to the values", "weights @ value", "weights @ key"),
    (0, "the results are in the wrong order", "return weights @ value, weights", "return weights, weights @ value"),
    (10, "the forbidden scores get a number such as -1e9",
     "course.masked_softmax(scores, mask)", "scores.masked_fill(~mask, -1e9).softmax(dim=-1)"),
    (10, "the forbidden scores get a number such as -20",
     "course.masked_softmax(scores, mask)", "scores.masked_fill(~mask, -20).softmax(dim=-1)"),
    (10, "no finite number (nan or inf)", "weights = course.masked_softmax(scores, mask)",
     "weights = scores.softmax(dim=-1) * mask\n        weights = weights / weights.sum(dim=-1, keepdim=True)"),
    (0, "PyTorch's own attention is used: write it out", """def attention(query, key, value, mask=None):
    weights = (query @ key.mT / query.shape[-1] ** 0.5).masked_fill(
        torch.tensor(False) if mask is None else ~mask, -torch.inf
    ).softmax(dim=-1)
    return nn.functional.scaled_dot_product_attention(query, key, value, mask), weights
"""),
]),
"multi_head_attention": (MODEL, ["""class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.H, self.Dh = n_heads, d_model // n_heads
        self.out = nn.Linear(d_model, d_model)
        self.qkv = nn.Linear(d_model, 3 * d_model)
    def forward(self, x, mask=None):
        B, T, D = x.shape
        query, key, value = self.qkv(x).reshape(B, T, 3, self.H, self.Dh).unbind(2)
        scores = torch.einsum("bthd,bshd->bhts", query, key) / self.Dh ** 0.5
        if mask is not None:
            scores = scores.masked_fill(mask == False, float("-inf"))
        heads = torch.einsum("bhts,bshd->bthd", scores.softmax(-1), value)
        return self.out(heads.reshape(B, T, D))
""", """class Head(nn.Module):
    def forward(self, query, key, value, mask):
        scores = query @ key.mT / query.shape[-1] ** 0.5
        return course.masked_softmax(scores, mask) @ value
class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.head, self.n_heads = Head(), n_heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)
        self.register_buffer("note", torch.zeros(1))
    def forward(self, x, mask=None):
        B, T, D = x.shape
        if mask is None:
            mask = torch.ones(T, T).bool()
        mask = mask.expand(B, self.n_heads, T, T)
        Dh, qkv = D // self.n_heads, self.qkv(x)
        heads = []
        for h in range(self.n_heads):
            query, key, value = (qkv[:, :, i * D + h * Dh : i * D + (h + 1) * Dh] for i in range(3))
            heads.append(self.head(query, key, value, mask[:, h]))
        return self.out(torch.cat(heads, dim=-1))
""", """class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)
    def split(self, x):
        B, T, D = x.shape
        return x.view(B, T, self.n_heads, D // self.n_heads).transpose(1, 2)
    def forward(self, x, mask=None):
        query, key, value = (self.split(part) for part in self.qkv(x).chunk(3, dim=-1))
        heads = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return self.out(heads.transpose(1, 2).contiguous().view(x.shape))
"""], [
    (6, "the heads are cut by a view alone", "z.view(apart).transpose(1, 2)", "z.reshape(B, self.n_heads, T, -1)"),
    (6, "joined without swapping the axes back", "heads.transpose(1, 2)", "heads"),
    (6, "divided by the square root of D: a head", "attend(query, key", "attend(query / self.n_heads**0.5, key"),
    (0, "taken as key, query, value", "query, key, value = ", "key, query, value = "),
    (6, "each head into three", "(z.view(apart).transpose(1, 2) for z in three)",
     "self.qkv(x).view(B, T, self.n_heads, -1).transpose(1, 2).chunk(3, dim=-1)"),
    (0, "the output projection is missing", "self.out(together.reshape(B, T, D))", "together.reshape(B, T, D)"),
    (0, "attend returns a pair, of which you need the first", "heads, _ = ", "heads = "),
    (18, "the mask is not used", "value, mask)", "value)"),
    (18, "the mask is upside down", "value, mask)", "value, None if mask is None else ~mask)"),
    (18, "mask (H, T, T)", "B, T, D = x.shape", """B, T, D = x.shape
        if mask is not None and mask.dim() == 3:
            mask = mask[:, None]"""),
    (18, "if the mask is not used", "self.n_heads = n_heads", "self.n_heads, self.kept = n_heads, None",
     "value, mask)", "value, self.kept)", "heads, _ =", "self.kept = mask if self.kept is None else self.kept\n"
     "        heads, _ ="),
    (18, "the forbidden scores get a number such as -20", "heads, _ = course.attend(query, key, value, mask)",
     """e = query @ key.mT / (D // self.n_heads) ** 0.5
        heads = (e if mask is None else e.masked_fill(~mask, -20)).softmax(dim=-1) @ value"""),
    (0, "two calls with the same numbers give different results", "return self.out(together.reshape(B, T, D))",
     "return nn.functional.dropout(self.out(together.reshape(B, T, D)), 0.1)"),
    (0, "PyTorch's own multi-head attention is used: write it out", """class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)
    def forward(self, x, mask=None):
        B, T, D = x.shape
        if mask is not None:
            mask = ~mask.expand(B, self.n_heads, T, T).flatten(0, 1)
        return nn.functional.multi_head_attention_forward(
            *3 * [x.transpose(0, 1)], D, self.n_heads, self.qkv.weight, self.qkv.bias, None, None, False, 0.0,
            self.out.weight, self.out.bias, attn_mask=mask,
        )[0].transpose(0, 1)
"""),
]),
"add_positions": (MODEL, ["""import math
def add_positions(x):
    B, T, D = x.shape
    code = torch.zeros(T, D)
    for t in range(T):
        for i in range(D // 2):
            w = 1 / 10000 ** (2 * i / D)
            code[t, 2 * i], code[t, 2 * i + 1] = math.sin(w * t), math.cos(w * t)
    return code + x
""", """import math
def add_positions(x):
    position = torch.arange(0, x.size(1), dtype=torch.float).unsqueeze(1)
    div_term = torch.exp(torch.arange(0, x.size(2), 2).float() * (-math.log(10000.0) / x.size(2)))
    pe = torch.zeros(x.size(1), x.size(2))
    pe[:, 0::2] = torch.sin(position * div_term)
    pe[:, 1::2] = torch.cos(position * div_term)
    return x + pe.unsqueeze(0)
""", """def add_positions(x):
    T, D = x.shape[1:]
    dims = torch.arange(D)
    angle = torch.outer(torch.arange(T).double(), 10000.0 ** (-(dims // 2 * 2) / D).double())
    return x + torch.where(dims % 2 == 0, angle.sin(), angle.cos())
"""], [
    (0, "the positions run over the batch", "_, T, D = x.shape", "T, _, D = x.shape", "x + code", "x + code[:, None]"),
    (0, "all sines come first, then all cosines",
     "code[:, 0::2], code[:, 1::2]", "code[:, : D // 2], code[:, D // 2 :]"),
    (0, "the exponent is i / D: it is 2i / D", "arange(0, D, 2)", "arange(D // 2)"),
    (0, "each entry has a frequency of its own", "arange(0, D, 2)", "arange(D)",
     "angle.sin(), angle.cos()", "angle[:, 0::2].sin(), angle[:, 1::2].cos()"),
    (0, "t is multiplied by 10000^(2i/D): divide by it", "-torch.arange(0, D, 2)", "torch.arange(0, D, 2)"),
    (0, "the exponent is 4i / D, doubled twice", "-torch.arange(0, D, 2)", "-2 * torch.arange(0, D, 2)"),
    (0, "the exponent is i / (D/2 - 1)", "-torch.arange(0, D, 2) / D", "-torch.arange(D // 2) / (D // 2 - 1)"),
    (0, "the positions begin at 1", "torch.arange(T)", "torch.arange(1, T + 1)"),
    (6, "the right shape but wrong values", "torch.arange(T)", "(torch.arange(T) % 512)"),
    (6, "must match the size of tensor b (2000)", "x + code", "x + code[:2000]"),
    (7, "`x` is not used", "x + code", "code.expand_as(x)"),
    (0, "the tensor x that you are given is changed, and its owner may still need it", "x + code", "x.add_(code)"),
]),
"decoder_mask": (MODEL, ["""def decoder_mask(real):
    place = torch.arange(real.shape[1])
    return (place[None, None, :, None] >= place) * real.view(len(real), 1, 1, -1)
""", """def decoder_mask(real):
    B, T = real.shape
    mask = torch.zeros(B, 1, T, T).bool()
    for t in range(T):
        mask[:, 0, t, : t + 1] = real[:, : t + 1]
    return mask
""", """def decoder_mask(real):
    B, T = real.shape
    later = torch.triu(torch.full((T, T), True), diagonal=1)
    return torch.logical_and(~later, real.unsqueeze(1).expand(B, T, T)).unsqueeze(1)
"""], [
    (0, "the causal mask is turned round", ".tril()", ".triu()"),
    (7, "The size of tensor a (256) must match", "causal & real", "causal[:256, :256] & real"),
    (0, "may not attend to itself", ".tril()", ".tril(-1)"),
    (7, "the right shape but wrong values", ".tril()", ".tril().index_fill(1, torch.arange(min(T, 60), T), 1)"),
    (0, "later positions may be attended: only s <= t is allowed", ".tril()", ""),
    (0, "PyTorch's own module means by True 'forbidden'", ".tril()", ".triu(1)"),
    (6, "the padding is on the query axis", "real[:, None, None, :]", "real[:, None, :, None]"),
    (0, "both must hold", "causal & real", "causal | real"),
    (6, "whether position s is real", "real[:, None, None, :]", "real[:, None, None, :] & real[:, None, :, None]"),
    (0, "the axis of the heads is missing", "real[:, None, None, :]", "real[:, None, :]"),
]),
"add_and_norm": (MODEL, ["""def add_and_norm(x, y, weight, bias, eps):
    z = torch.add(x, y)
    z -= z.mean(dim=-1, keepdim=True)
    return torch.addcmul(bias, weight, z / torch.sqrt(z.pow(2).mean(dim=-1, keepdim=True) + eps))
""", """def add_and_norm(x, y, weight, bias, eps):
    D = x.shape[-1]
    z = x + y
    mean = z.sum(-1, keepdim=True) / D
    variance = ((z - mean) ** 2).sum(-1, keepdim=True) / D
    return (z - mean) * torch.rsqrt(variance + eps) * weight + bias
""", """def one(z, weight, bias, eps):
    variance, mean = torch.var_mean(z, correction=0)
    return weight * (z - mean) / (variance + eps) ** 0.5 + bias
def add_and_norm(x, y, weight, bias, eps):
    return torch.stack([torch.stack([one(z, weight, bias, eps) for z in row]) for row in x + y])
"""], [
    (0, "the variance divides by D - 1, which is torch's default",
     "centred.square().mean(dim=-1, keepdim=True)", "z.var(dim=-1, keepdim=True)"),
    (7, "numbers around 10,000", "centred.square().mean(dim=-1, keepdim=True)",
     "z.square().mean(dim=-1, keepdim=True) - z.mean(dim=-1, keepdim=True).square()"),
    (7, "eps is outside the root", "(variance + eps).sqrt()", "(variance.sqrt() + eps)"),
    (0, "run over the positions", "z.mean(dim=-1", "z.mean(dim=1", "square().mean(dim=-1", "square().mean(dim=1"),
    (0, "y is added after the norm", "z = x + y", "z = x", "+ bias", "+ bias + y"),
    (7, "the tensor y that you are given is changed, and its owner may still need it", "x + y", "y.add_(x)"),
    (7, "x is added after the norm", "z = x + y", "z = y", "+ bias", "+ bias + x"),
    (0, "`weight` and `bias` change places", "weight * centred", "bias * centred", "+ bias", "+ weight"),
    (0, "a norm of PyTorch is used: write it out", """def add_and_norm(x, y, weight, bias, eps):
    return nn.functional.layer_norm(x + y, x.shape[-1:], weight, bias, eps)
"""),
]),
})  # fmt: skip
