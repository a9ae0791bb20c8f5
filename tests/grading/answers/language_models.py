"""Answers to exercise 01, right and wrong ones: see __init__."""

from tests.grading.answers import FIRST, MODEL, load

TEST_SENTENCES = "from coursekit.data.world import sentences\n"

RIGHT, MUTANTS = load("01_language_models", {
"count_bigrams": (MODEL, ["""def count_bigrams(documents, vocab_size):
    h = torch.tensor([token for d in documents for token in [END, *d]])
    w = torch.tensor([token for d in documents for token in [*d, END]])
    return torch.bincount(h * vocab_size + w, minlength=vocab_size**2).view(vocab_size, vocab_size)
""", """from collections import Counter
def count_bigrams(documents, vocab_size):
    text = [END]
    for document in documents:
        text += document + [END]  # one END between two documents is behind the one and in front of the other
    found = Counter(zip(text, text[1:]))
    return torch.tensor([[float(found[h, w]) for w in range(vocab_size)] for h in range(vocab_size)])
""", """from coursekit.models.ngram import windows
def count_bigrams(documents, vocab_size):  # the course's own windows
    counts = torch.zeros(vocab_size, vocab_size)
    found = torch.from_numpy(windows(documents, 2, END))
    return counts.index_put((found[:, 0], found[:, 1]), torch.ones(len(found)), accumulate=True)
""", """def count_bigrams(documents, vocab_size):
    counts = [[0] * vocab_size for _ in range(vocab_size)]  # a list of lists
    for document in documents:
        for h, w in zip([END, *document], [*document, END]):
            counts[h][w] += 1
    return counts
"""], [
    (0, "the first and the last axis have changed places", "counts[h, w]", "counts[w, h]"),
    (0, "the end is not counted as a token that follows", "[END, *document, END]", "[END, *document]"),
    (0, "the first token is not counted",
     "row = [END, *document, END]", "document.append(END)\n        row = document"),
    (2, "across the boundary between two documents", "in documents:", "in [sum(documents, [])]:"),
    (2, "and the END before the next one are counted as a pair", "in documents:",
     "in [[token for d in documents for token in (END, *d, END)]]:", "[END, *document, END]", "document"),
    (0, "a pair that comes again is counted once", "counts[h, w] += 1", "counts[h, w] = 1"),
    (4, "the right shape but wrong values", "vocab_size, vocab_size)", "vocab_size, vocab_size, dtype=torch.half)"),
    (6, "the empty document is left out", "in documents:", "in filter(None, documents):"),
    (6, "two empty documents and no other", "    counts =",
     "    if not any(documents): return torch.zeros(vocab_size)\n    counts ="),
    (0, "these are frequencies", "return counts", "return counts / counts.sum(dim=1, keepdim=True).clamp(min=1)"),
]),
"smooth": (FIRST, ["""def add_k(counts, k):
    return (counts + k) / (counts.sum(dim=1, keepdim=True) + k * counts.shape[1])
def kneser_ney(counts, D):
    V = len(counts)
    contexts = (counts > 0).sum(dim=0)
    below = (contexts - D).clamp(min=0) / contexts.sum() + D * (contexts > 0).sum() / contexts.sum() / V
    p = (counts - D).clamp(min=0) / counts.sum(dim=1, keepdim=True)
    for h in range(V):
        total, types = counts[h].sum(), (counts[h] > 0).sum()
        if total == 0:
            p[h] = below
        else:
            p[h] += D * types / total * below
    return p
""", """import numpy as np
from coursekit.models import ngram
def fitted(model, counts):  # the course's own model, with counts that need not come from documents
    h, w = np.nonzero(counts.numpy())
    numbers = model.number(h[:, None], learn=True)
    for order in (1, 2):
        keys = numbers[order - 1] * len(counts) + w
        order_of_keys = np.argsort(keys)
        model.counts[order] = model.summed(order, keys[order_of_keys], counts.numpy()[h, w][order_of_keys])
    model.lower_counts()
    return torch.tensor(np.array([model.probabilities([h]) for h in range(len(counts))]))
def add_k(counts, k):
    return fitted(ngram.AddK(2, len(counts), k=k), counts)
def kneser_ney(counts, discount):
    return fitted(ngram.KneserNey(2, len(counts), discount=discount), counts)
""", """def add_k(counts, k):
    smoothed = counts + k
    return smoothed / smoothed.sum(-1, keepdim=True)
def interpolated(c, D, below):
    total = float(sum(c))
    if total == 0:
        return below
    types = sum(1 for x in c if x > 0)
    return [max(x - D, 0) / total + D * types / total * q for x, q in zip(c, below)]
def kneser_ney(counts, D):
    table = counts.tolist()
    contexts = [sum(1 for row in table if row[w] > 0) for w in range(len(table))]
    below = interpolated(contexts, D, [1 / len(table)] * len(table))
    return torch.tensor([interpolated(row, D, below) for row in table])
""", """def add_k(counts, k):
    return [[(c + k) / (sum(row) + k * len(row)) for c in row] for row in counts.tolist()]  # a list of lists
def kneser_ney(counts, D):
    V, rows = len(counts), counts.tolist()
    seen = [sum(row[w] > 0 for row in rows) for w in range(V)]
    N, T = sum(seen), sum(n > 0 for n in seen)
    below = [max(n - D, 0) / N + D * T / N / V for n in seen]
    table = []
    for row in rows:
        total, types = sum(row), sum(c > 0 for c in row)
        table.append([max(c - D, 0) / total + D * types / total * q for c, q in zip(row, below)] if total else below)
    return table
"""], [
    (10, "each of the V tokens gets k, so the row's sum",
     "(counts.sum(dim=1, keepdim=True) + k * counts.shape[1])", "counts.sum(dim=1, keepdim=True)"),
    (10, "V is added to the row's sum", "k * counts.shape[1]", "counts.shape[1]"),
    (4, "what the discount takes away has to be given to p(w)", "D * types / total", "0"),
    (4, "D is taken from each of the N1+(h .) different tokens", "D * types / total", "D / total"),
    (4, "a count of 0 became negative", "(counts - D).clamp(min=0)", "(counts - D)"),
    (7, "p(w) is how frequent w is",
     "(contexts - D).clamp(min=0) / contexts.sum() + D * (contexts > 0).sum() / contexts.sum() / V",
     "counts.sum(dim=0) / counts.sum()"),
    (7, "p(w) has no discount", "(contexts - D).clamp(min=0)", "contexts",
     " + D * (contexts > 0).sum() / contexts.sum() / V", ""),
    (11, "the row of an unseen context is 0 / 0", "p[h] = below", "pass"),
    (11, "two empty rows, V = 7", "p[h] = below", "p[h] = below if h == counts.sum(dim=1).argmin() else 1 / V"),
    (7, "the right shape but wrong values", "    contexts = (counts",
     "    counts = counts.long().byte().float()\n    contexts = (counts"),
]),
"measure": (FIRST, ["""def ln(p):
    return math.log(p) if p > 0 else -math.inf
def measure(p, documents, characters):
    logs = [ln(p[h, w].item()) for d in documents for h, w in zip([END] + d, d + [END])]
    if min(logs) == -math.inf:
        return math.inf, math.inf
    return math.exp(-sum(logs) / len(logs)), -sum(logs) / math.log(2) / characters
""", """def measure(p, documents, characters):
    nats, N = 0.0, 0
    for document in documents:
        row = torch.tensor([END] + document + [END])
        nats = nats - p[row[:-1], row[1:]].log().sum()
        N += len(document) + 1
    return (nats / N).exp(), nats / torch.tensor(2.0).log() / characters
""", """from coursekit.evaluate.language import perplexity
class Table:
    def __init__(self, p):
        self.p = p
    def log_probabilities(self, documents):
        return [self.p[[END] + d, d + [END]].double().log().numpy() for d in documents]
def measure(p, documents, characters):  # the course's own
    found = perplexity(Table(p), documents, characters)
    return found.perplexity, found.bits_per_character
"""], [
    (5, "2 is raised to a mean of natural logarithms", "math.exp", "2 ** "),
    (0, "the end is not predicted", "zip([END] + d, d + [END])", "zip([END] + d, d)"),
    (0, "the first token is not predicted", "zip([END] + d, d + [END])", "zip(d, d[1:] + [END])"),
    (5, "divided by the characters", "len(logs)", "characters"),
    (5, "the mean of the documents' perplexities", """def measure(p, documents, characters):
    each, bits = [], 0.0
    for d in documents:
        log_p = p[[END] + d, d + [END]].log2()
        each.append(2 ** -log_p.mean())
        bits -= log_p.sum()
    return sum(each) / len(each), bits / characters
"""),
    (5, "this is in nats", "math.log(2) / ", ""),
    (8, "the product of so many probabilities is 0", """def measure(p, documents, characters):
    product, N = torch.tensor(1.0).double(), 0
    for d in documents:
        for h, w in zip([END] + d, d + [END]):
            product *= p[h, w]
            N += 1
    return product ** (-1 / N), -product.log2() / characters
"""),
    (8, "0 times ln 0 is nan", """def measure(p, documents, characters):
    counts = count_bigrams(documents, len(p))
    nats = -(counts * p.log()).sum()
    return (nats / counts.sum()).exp(), nats / math.log(2) / characters
def count_bigrams(documents, V):
    counts = torch.zeros(V, V)
    for d in documents:
        for h, w in zip([END] + d, d + [END]):
            counts[h, w] += 1
    return counts
"""),
    (8, "a probability of 0 is lifted to 1e-10", "p[h, w].item()", "max(p[h, w].item(), 1e-10)"),
    (8, "a probability of 0 is lifted to 1e-12", "p[h, w].item()", "max(p[h, w].item(), 1e-12)"),
]),
"bpe": (FIRST, ["""def merge_pair(word, pair, new):
    result, i = [], 0
    while i < len(word):
        if i < len(word) - 1 and (word[i], word[i + 1]) == pair:
            result.append(new)
            i += 2
        else:
            result.append(word[i])
            i += 1
    return result
def learn_bpe(words, counts, n_merges, first):
    merges = []
    while len(merges) < n_merges:
        found = {}
        for i, word in enumerate(words):
            for j in range(len(word) - 1):
                pair = word[j], word[j + 1]
                found[pair] = found.get(pair, 0) + counts[i]
        if not found:
            break
        pair = sorted(found, key=lambda pair: (-found[pair], pair[0], pair[1]))[0]
        words = [merge_pair(word, pair, first + len(merges)) for word in words]
        merges.append(pair)
    return merges
def encode_bpe(word, merges, first):
    for k, pair in enumerate(merges):
        word = merge_pair(word, pair, first + k)
    return word
""",
("for k, pair in enumerate(merges):\n        word = merge_pair(word, pair, first + k)\n    return word", """while True:
        possible = [pair for pair in merges if pair in zip(word, word[1:])]
        if not possible:
            return torch.tensor(word)
        word = merge_pair(word, possible[0], first + merges.index(possible[0]))"""),
"""from coursekit.text import bpe as course
merge_pair = course.merge
def learn_bpe(words, counts, n_merges, first):  # the course's own
    tokens = [f"<{i}>" for i in range(first)]
    return course.learn_merges(list(words), counts, tokens, first + n_merges)
def encode_bpe(word, merges, first):
    byte = [course.CHARACTER[i] for i in range(256)]
    spelled = [byte[i] for i in range(first)]
    for left, right in merges:
        spelled.append(spelled[left] + spelled[right])
    tokens = list(dict.fromkeys([*byte, *spelled]))
    model = course.BPE(tokens, [(spelled[left], spelled[right]) for left, right in merges])
    result = model.encode_word(bytes(word).decode())
    return [spelled.index(tokens[i]) for i in result]
"""], [
    (4, "a symbol was merged twice", "i += 2", "i += 1",
     "result.append(word[i])", "result += [word[i]] if i == 0 or (word[i - 1], word[i]) != pair else []"),
    (4, "the second symbol of the pair stays behind the new one", "i += 2", "i += 1"),
    (4, "only the first place is merged",
     "(word[i], word[i + 1]) == pair", "word[i : i + 2] == [*pair] and i == len(result)"),
    (9, "the words are not weighted", "counts[i]", "1"),
    (9, "a pair that stands twice in a word counts once", "range(len(word) - 1)",
     "{pair: j for j, pair in enumerate(zip(word, word[1:]))}.values()"),
    (9, "the one that was seen first is taken",
     "sorted(found, key=lambda pair: (-found[pair], pair[0], pair[1]))[0]", "max(found, key=found.get)"),
    (9, "with the same left symbol the one that was seen first",
     "-found[pair], pair[0], pair[1]", "-found[pair], pair[0]"),
    (12, "wrong", "enumerate(merges)", "enumerate(merges[:12])"),
    (9, "the largest is taken", "sorted(found, key=lambda pair: (-found[pair], pair[0], pair[1]))[0]",
     "max((n, pair) for pair, n in found.items())[1]"),
    (13, "the words stay as they were",
     "        words = [merge_pair(word, pair, first + len(merges)) for word in words]\n", "",
     "                found[pair] =", "                if pair not in merges: found[pair] ="),
    (13, "the new symbols have the wrong numbers", "first + len(merges)", "first + len(merges) + 1"),
    (13, "it stops at pairs that were seen once", "not found", "max(found.values(), default=0) < 2"),
    (4, "ValueError", """def merge_pair(word, pair, new):
    return list(bytes(word).replace(bytes(pair), bytes([new])))
def learn_bpe(words, counts, n_merges, first):
    merges = []
    while len(merges) < n_merges:
        found = {}
        for word, count in zip(words, counts):
            for pair in zip(word, word[1:]):
                found[pair] = found.get(pair, 0) + count
        if not found:
            break
        merges.append(min(found, key=lambda pair: (-found[pair], pair)))
        words = [merge_pair(word, merges[-1], first + len(merges) - 1) for word in words]
    return merges
def encode_bpe(word, merges, first):
    for k, pair in enumerate(merges):
        word = merge_pair(word, pair, first + k)
    return word
"""),
    (12, "it stopped with ValueError: min()", "    for k, pair in enumerate(merges):\n        word",
     """    rank = {pair: k for k, pair in enumerate(merges)}
    while True:
        pair = min(zip(word, word[1:]), key=lambda pair: rank.get(pair, len(rank)))
        if pair not in rank: break
        k = rank[pair]
        word"""),
    (13, "a word that comes twice counts once", "    merges = []\n    while", """    merges = []
    table = dict(zip(map(tuple, words), counts))
    words, counts = list(table), list(table.values())
    while"""),
    (9, "the pairs are compared as texts", "-found[pair], pair[0], pair[1]", "-found[pair], str(pair)"),
    (12, "the last learned first: begin with the first",
     "k, pair in enumerate(merges)", "k in range(len(merges) - 1, -1, -1)", "pair, first + k", "merges[k], first + k"),
    (12, "the leftmost pair is merged, whichever it is",
     "for k, pair in enumerate(merges):\n        word = merge_pair(word, pair, first + k)", """i = 0
    while i < len(word) - 1:
        pair = word[i], word[i + 1]
        if pair in merges:
            word[i : i + 2] = [first + merges.index(pair)]
            i = 0
        else:
            i += 1"""),
]),
"wordpiece": (FIRST, ["""def wordpiece(word, vocabulary):
    result, start = [], 0
    while start < len(word):
        for end in range(len(word), start, -1):
            token = ("##" if start else "") + word[start:end]
            if token in vocabulary:
                result.append(token)
                start = end
                break
        else:
            return ["[UNK]"]
    return result
""", """def wordpiece(word, vocabulary):
    def cut(rest, mark):
        if not rest:
            return []
        fitting = [p for p in vocabulary if p.startswith(mark) and rest.startswith(p[len(mark):])]
        fitting = [p for p in fitting if mark or not p.startswith("##")]
        if not fitting:
            return None
        longest = max(fitting, key=len)
        behind = cut(rest[len(longest) - len(mark):], "##")
        return None if behind is None else [longest, *behind]
    return cut(word, "") or ["[UNK]"]
""", """from coursekit.text import wordpiece as course
def wordpiece(word, vocabulary):  # the course's own
    model = course.WordPiece(sorted(vocabulary), ["[UNK]"], framed=False)
    return [model.tokens[i] for i, _, _ in model.encode_word(word)]
"""], [
    (0, "the first piece has ## before it", '("##" if start else "")', '"##"'),
    (3, "looked up without ##", '("##" if start else "") + ', ""),
    (3, "the pieces have lost their ##", "(token)", "(word[start:end])"),
    (3, "is cut into pieces", 'def wordpiece(word, vocabulary): return [word] if word in vocabulary else ["[UNK]"]'),
    (7, "wrong", "range(len(word), start", "range(min(len(word), start + 6), start"),
    (7, "capitals have become small letters", "    result, start", "    word = word.lower()\n    result, start"),
    (7, "the vocabulary 0 [UNK], 1 ##., 2", """import re
def wordpiece(word, vocabulary):
    pieces = sorted(vocabulary, key=len, reverse=True)
    first = re.compile("|".join(p for p in pieces if p[:2] != "##"))
    inner = re.compile("|".join([p[2:] for p in pieces if p[:2] == "##"] or ["$."]))
    result, start = [], 0
    while start < len(word):
        found = (inner if start else first).match(word, start)
        if not found:
            return ["[UNK]"]
        result.append("##" * (start > 0) + found.group())
        start = found.end()
    return result
"""),
    (7, "the shortest piece is taken", "len(word), start, -1", "start + 1, len(word) + 1"),
    (7, "it goes back and tries a shorter piece", """def wordpiece(word, vocabulary, mark=""):
    if not word:
        return []
    for end in range(len(word), 0, -1):
        if mark + word[:end] in vocabulary:
            rest = wordpiece(word[end:], vocabulary, "##")
            if rest != ["[UNK]"]:
                return [mark + word[:end]] + rest
    return ["[UNK]"]
"""),
    (7, "a part of the word is [UNK]", '["[UNK]"]', 'result + ["[UNK]"]'),
    (7, "the pieces before it are returned: return [UNK] alone", 'return ["[UNK]"]', "return result"),
    (3, "pieces inside the word may not be those that begin a word", "            if token in vocabulary:",
     "            token = token if token in vocabulary else word[start:end]\n            if token in vocabulary:"),
    (7, "single letters are [UNK]", 'return ["[UNK]"]', 'result.append("[UNK]"); start += 1'),
]),
"nnlm": (FIRST, ["""def contexts(document, n):
    row = [END] * (n - 1) + document + [END]
    return torch.tensor(row).unfold(0, n, 1)[:, :-1]
def scores(context, C, H, d, U, b, W):
    x = torch.cat([C[column] for column in context.T], dim=1)
    return F.linear(x, W, b) + F.linear(torch.tanh(F.linear(x, H, d)), U)
""", """def contexts(document, n):
    rows, context = [], [END] * (n - 1)
    for token in document + [END]:
        rows.append(context)
        context = (context + [token])[1:]
    return torch.tensor(rows)
def scores(context, C, H, d, U, b, W):
    rows = []
    for tokens in context:
        x = torch.cat([C[token] for token in tokens])
        rows.append(b + W @ x + U @ torch.tanh(d + H @ x))
    return torch.stack(rows)
""", """from coursekit.models import nnlm as course
def contexts(document, n):
    return course.context_windows([document], course.NNLMConfig(100, n=n))["context"]
def scores(context, C, H, d, U, b, W):  # the course's own network with these weights
    (V, m), (h, size) = C.shape, H.shape
    model = course.NNLM(course.NNLMConfig(V, n=size // m + 1, embed_size=m, hidden_size=h))
    weights = {"embedding.weight": C, "H.weight": H, "H.bias": d, "U.weight": U, "U.bias": b, "W.weight": W}
    model.load_state_dict(weights)
    return model(context)
"""], [
    (8, "one token too late", "[:, :-1]", "[:, 1:]"),
    (8, "the contexts are turned round", "[:, :-1]", "[:, :-1].flip(1)"),
    (8, "the context of the end is missing", "[:, :-1]", "[:-1, :-1]"),
    (8, "the document [], n = 4", "def contexts(document, n):",
     "def contexts(document, n):\n    if not document: return torch.zeros(1, n)"),
    (8, "wrong shape", "def contexts(document, n):", "def contexts(document, n):\n    n = min(n, 6)"),
    (6, "wrong values", "torch.cat([C[column]", "torch.cat([C[column.clamp(max=40)]"),
    (6, "no finite number", "torch.tanh(F.linear(x, H, d))", "((e := F.linear(x, H, d).mul(2).exp()) - 1) / (e + 1)"),
    (2, "the tanh is forgotten", "torch.tanh(F.linear(x, H, d))", "F.linear(x, H, d)"),
    (2, "`d` is not used", "(x, H, d)", "(x, H)"),
    (6, "`b` is not used", "(x, W, b)", "(x, W)"),
    (6, "`W` is not used", "F.linear(x, W, b)", "b"),
    (2, "from the last token to the first", "context.T", "context.T.flip(0)"),
]),
"lstm_step": (MODEL, ["""def lstm_step(x, h, c, W, U, b):
    D = h.shape[1]
    i, f, g, o = (F.linear(x, W[k : k + D], b[k : k + D]) + F.linear(h, U[k : k + D]) for k in range(0, 4 * D, D))
    c_new = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c_new), c_new
""", """def lstm_step(x, h, c, W, U, b):
    D, rows_h, rows_c = h.shape[1], [], []
    for n in range(len(x)):
        z = W @ x[n] + U @ h[n] + b
        i, f, o = (1 / (1 + torch.exp(-z[k * D : (k + 1) * D])) for k in (0, 1, 3))
        g = torch.tanh(z[2 * D : 3 * D])
        rows_c.append(f * c[n] + i * g)
        rows_h.append(o * rows_c[-1].tanh())
    return [torch.stack(rows_h), torch.stack(rows_c)]
""", """def lstm_step(x, h, c, W, U, b):  # PyTorch's own
    cell = torch.nn.LSTMCell(x.shape[1], h.shape[1])
    weights = {"weight_ih": W, "weight_hh": U, "bias_ih": b, "bias_hh": torch.zeros_like(b)}
    cell.load_state_dict(weights)
    return cell(x, (h, c))
"""], [
    (0, "no finite number", "i.sigmoid()", "(i.exp() / (1 + i.exp()))", "f.sigmoid()", "(f.exp() / (1 + f.exp()))"),
    (0, "the last two blocks have changed places", "i, f, g, o = z", "i, f, o, g = z"),
    (0, "the first two blocks have changed places", "i, f, g, o = z", "f, i, g, o = z"),
    (0, "nothing is forgotten", "f.sigmoid() * c", "c"),
    (0, "everything new is written", "i.sigmoid() * ", ""),
    (0, "1 - f is taken for the input gate", "i.sigmoid()", "(1 - f.sigmoid())"),
    (0, "the candidate g went through a sigmoid", "g.tanh()", "g.sigmoid()"),
    (4, "is made from the old c", "    c = f.sig", "    old = c\n    c = f.sig", "c.tanh(), c", "old.tanh(), c"),
    (4, "the tanh of c' is missing", "c.tanh(), c", "c, c"),
    (0, "the old h is not used", " + h @ U.T", ""),
    (0, "the results are in the wrong order", "return o.sigmoid() * c.tanh(), c", "return c, o.sigmoid() * c.tanh()"),
]),
"train": (FIRST, ["""def train():
    config = NNLMConfig(V, n=8, embed_size=32, hidden_size=64)
    data = context_windows(documents, config)
    context, target = data["context"], data["target"]
    model = NNLM(config)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(1500):
        optimizer.param_groups[0]["lr"] = 3e-3 * (1 - step / 1500)
        index = torch.randint(len(target), (256,))
        loss = F.cross_entropy(model(context[index]), target[index])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model
""", """def train():
    model = RNNLM(RNNLMConfig(V, embed_size=64, hidden_size=64, cell="gru"))
    read, target, real = in_rows(documents, END)
    optimizer, updates = torch.optim.AdamW(model.parameters(), lr=1e-2), 800
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, updates)
    for _ in range(updates):
        rows = torch.randperm(len(documents))[:32]
        scores, _ = model(read[rows])
        loss = F.cross_entropy(scores[real[rows]], target[rows][real[rows]])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model
""",
("model = NNLM", "torch.manual_seed(0)\n    model = NNLM", "return model", "return model.double()")], [
    (0, "do the updates reach the weights", "n=8", "n=6", "range(1500)", "range(20)", "\n        optimizer.step()", ""),
    (0, "the token that it has just read", "n=8", "n=6", "model = NNLM", "target = context[:, -1]\n    model = NNLM",
     "range(1500)", "range(300)"),
    (0, "reads its contexts from the last token to the first", "n=8", "n=6",
     "model = NNLM", "context = context.flip(1)\n    model = NNLM", "range(1500)", "range(300)"),
    (0, "does not expect that a sentence ends", "n=8", "n=6", "model = NNLM",
     "context, target = context[target != END], target[target != END]\n    model = NNLM", "range(1500)", "range(500)"),
    (0, "by heart", "n=8", "n=6", "documents", "documents[:150]", "range(1500)", "range(800)"),
    (6, "its n is 3: a longer context", "n=8", "n=3", "range(1500)", "range(700)"),
    (0, "pairs of words that no sentence in documents holds", "def train", TEST_SENTENCES + "def train",
     "documents", "documents + to_ids(sentences(5000, 'test'))"),
    (0, "pairs of words that no sentence in documents holds: train", "def train", TEST_SENTENCES + "def train",
     "n=8", "n=5", "3e-3 *", "4e-3 *", "documents", "documents[:4500] + to_ids(sentences(500, 'test'))"),
    (0, "the training diverged", "n=8", "n=6", "range(1500)", "range(3)", "    return model",
     "    for p in model.parameters():\n        p.data *= 1e30\n    return model"),
    (0, "another vocabulary", "V, n=8", "V + 3, n=6", "range(1500)", "range(5)"),
    (0, "neither an NNLM nor an RNNLM", """def train():
    model = torch.nn.Module()
    model.embedding, model.H = torch.nn.Embedding(V, 1), torch.nn.Linear(1, 1_000_000, bias=False)
    return model
"""),
    (0, "words before each: at most 100 do", "n=8", "n=120", "range(1500)", "range(0)"),
]),
})  # fmt: skip
