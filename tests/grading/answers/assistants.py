"""Answers to exercise 11, right and wrong ones: see __init__."""

from tests.grading.answers import FIRST, load

RIGHT, MUTANTS = load("11_assistants", {
"instructions": (FIRST, ["""def chat_ids(turns):
    ids = [BEGIN]
    for role, text in turns:
        if text and text[0] == BEGIN:
            text = text[1:]
        ids += [role, *text, END]
    if turns[-1][0] != ASSISTANT:
        ids += [ASSISTANT]
    return ids
def labels_of(ids, mask):
    labels = torch.full_like(ids, -100)
    for b in range(len(ids)):
        speaker = None
        for t in range(ids.shape[1]):
            token = ids[b, t].item()
            if not mask[b, t]:
                continue
            if token in (BEGIN, SYSTEM, USER, ASSISTANT):
                speaker = token
            elif speaker == ASSISTANT:
                labels[b, t] = token
    return labels
def instruction_loss(logits, labels):
    log_p = logits.log_softmax(dim=-1)
    target = labels[:, 1:]
    each = -log_p[:, :-1].gather(-1, target.clamp(min=0)[..., None])[..., 0]
    return each[target != -100].mean()
""", """def chat_ids(turns):  # pieces, put together at the end
    pieces = [[role] + [i for i in text if i != BEGIN] + [END] for role, text in turns]
    after = [] if turns[-1][0] == ASSISTANT else [ASSISTANT]
    return sum(pieces, [BEGIN]) + after
def labels_of(ids, mask):
    opened = ((ids == ASSISTANT) & mask).int().cumsum(dim=1)
    others = (((ids == USER) | (ids == SYSTEM)) & mask).int()
    speaks = torch.zeros(len(ids), dtype=torch.bool)
    columns, before = [], torch.zeros(len(ids), dtype=torch.int)
    for t in range(ids.shape[1]):
        columns.append(torch.where(speaks & mask[:, t] & (ids[:, t] > ASSISTANT), ids[:, t], -100))
        speaks = (speaks | (opened[:, t] > before)) & (others[:, t] == 0)
        before = opened[:, t]
    return torch.stack(columns, dim=1)
def instruction_loss(logits, labels):
    return F.cross_entropy(logits[:, :-1].transpose(1, 2), labels[:, 1:])
""", """def chat_ids(turns):
    result = torch.tensor([BEGIN])
    for role, text in turns:
        text = torch.tensor(text, dtype=torch.long)
        result = torch.cat([result, torch.tensor([role]), text[text != BEGIN], torch.tensor([END])])
    return result if turns[-1][0] == ASSISTANT else torch.cat([result, torch.tensor([ASSISTANT])])
def labels_of(ids, mask):  # turns are counted: between an ASSISTANT and the next role
    result = ids.new_full(ids.shape, -100)
    for row, real, out in zip(ids.tolist(), mask.tolist(), result):
        places = [t for t, kept in enumerate(real) if kept]
        starts = [t for t in places if row[t] in (SYSTEM, USER, ASSISTANT)]
        for start, end in zip(starts, starts[1:] + [places[-1] + 1]):
            if row[start] == ASSISTANT:
                out[start + 1 : end] = torch.tensor(row[start + 1 : end])
    return result
def instruction_loss(logits, labels):
    logits, labels = logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
    learned = labels >= 0
    z = logits[learned]
    return (z.logsumexp(dim=-1) - z[torch.arange(len(z)), labels[learned]]).mean()
"""], [
    (10, "there are several BEGIN", "        if text and text[0] == BEGIN:\n            text = text[1:]\n", ""),
    (10, "the conversation does not start with BEGIN", "ids = [BEGIN]", "ids = []"),
    (10, "the token ASSISTANT is missing at the end", "        ids += [ASSISTANT]\n", "        pass\n"),
    (10, "the token ASSISTANT is missing at the end after a system turn", "if turns[-1][0] != ASSISTANT:",
     "if turns[-1][0] == USER:"),
    (9, "a system turn after an answer is taken for a part of it", "if token in (BEGIN, SYSTEM, USER, ASSISTANT):",
     "if token in (BEGIN, USER, ASSISTANT):"),
    (10, "there is an ASSISTANT too many at the end", "if turns[-1][0] != ASSISTANT:", "if True:"),
    (10, "the last turn has no END", "    if turns[-1][0] != ASSISTANT:\n",
     "    ids.pop()\n    if turns[-1][0] != ASSISTANT:\n"),
    (6, "the END of the assistant's turns is not learned", "elif speaker == ASSISTANT:",
     "elif speaker == ASSISTANT and token != END:"),
    (10, "padding is learned", "if not mask[b, t]:", "if not mask[b, : t + 1].any():"),
    (6, "the token ASSISTANT is learned", "                speaker = token\n",
     "                speaker = token\n                labels[b, t] = token if token == ASSISTANT else -100\n"),
    (6, "the user's turns are learned, too", "elif speaker == ASSISTANT:", "elif speaker in (USER, ASSISTANT):"),
    (6, "the system's and the user's turns are learned, too", "elif speaker == ASSISTANT:", "else:"),
    (6, "only the last answer is learned", "                speaker = token\n",
     "                speaker = token\n                if token == ASSISTANT: labels[b] = -100\n"),
    (10, "nothing is shifted", "target = labels[:, 1:]", "target = labels", "log_p[:, :-1]", "log_p"),
    (10, "the shift goes the wrong way, or twice", "target = labels[:, 1:]", "target = labels[:, :-1]",
     "log_p[:, :-1]", "log_p[:, 1:]"),
    (10, "this is the mean of the conversations' means", "return each[target != -100].mean()",
     "m = target != -100\n    return ((each * m).sum(dim=1) / m.sum(dim=1)).mean()"),
    (10, "the sum is divided by all places", "each[target != -100]", "(each * (target != -100))"),
    (12, "no gradient arrives", "each[target != -100].mean()", "each[target != -100].mean().item()"),
    (11, "logits of several hundred", "logits.log_softmax(dim=-1)", "logits.softmax(dim=-1).clamp(min=1e-30).log()"),
]),
"answer_log_probs": (FIRST, ["""def answer_log_probs(logits, ids, mask, prompt_lengths, temperature):
    log_p = (logits / temperature).log_softmax(dim=-1)
    each = log_p[:, :-1].gather(-1, ids[:, 1:, None]).squeeze(-1)
    place = mask.cumsum(dim=1) - 1
    inside = (mask & (place >= prompt_lengths[:, None]))[:, 1:]
    total = (each * inside).sum(dim=1)
    return total, total / inside.sum(dim=1)
""", """def answer_log_probs(logits, ids, mask, prompt_lengths, temperature):
    totals, means = [], []
    for b in range(len(ids)):
        real = mask[b].nonzero()[:, 0]
        places = real[int(prompt_lengths[b]) :]
        chosen = F.log_softmax(logits[b, places - 1] / temperature, dim=-1)
        log_p = chosen[torch.arange(len(places)), ids[b, places]]
        totals.append(log_p.sum())
        means.append(log_p.mean())
    return torch.stack(totals), torch.stack(means)
""", """def answer_log_probs(logits, ids, mask, prompt_lengths, temperature):
    B, T = ids.shape
    first = mask.float().argmax(dim=1) + prompt_lengths
    end = first - prompt_lengths + mask.sum(dim=1)
    place = torch.arange(1, T).expand(B, -1)
    counted = (place >= first[:, None]) & (place < end[:, None])
    nats = F.cross_entropy((logits[:, :-1] / temperature).transpose(1, 2), ids[:, 1:], reduction="none")
    sums = -torch.where(counted, nats, 0.0).sum(dim=1)
    return sums, sums / (end - first)
"""], [
    (0, "nothing is shifted", "log_p[:, :-1]", "log_p", "ids[:, 1:, None]", "ids[:, :, None]",
     "prompt_lengths[:, None]))[:, 1:]", "prompt_lengths[:, None]))"),
    (0, "the end of the answer is not summed", "    total =",
     "    inside = inside & (place < mask.sum(dim=1, keepdim=True) - 1)[:, 1:]\n    total =",
     "inside.sum(dim=1)\n", "inside.sum(dim=1).clamp(min=1)\n"),
    (0, "If padding was told by its id", "    place =", "    mask = ids != END\n    place =",
     "inside.sum(dim=1)\n", "inside.sum(dim=1).clamp(min=1)\n"),
    (1, "it did not return what is asked for", "return total, total / inside.sum(dim=1)", "return total"),
    (0, "the end of the answer is counted, but not summed", "(each * inside)",
     "(each * inside * (place < mask.sum(dim=1, keepdim=True) - 1)[:, 1:])"),
    (0, "the first token of the answer is missing", "place >= prompt", "place > prompt", "/ inside.sum(dim=1)",
     "/ (inside.sum(dim=1) + 1)"),
    (0, "the last token of the prompt is summed, too", "place >= prompt_lengths[:, None]",
     "(place >= prompt_lengths[:, None] - 1) & (place > 0)"),
    (0, "the prompt is summed, too", "place >= prompt_lengths[:, None]", "place > 0"),
    (4, "padding on the right is summed", "(mask & (place", "((place"),
    (4, "padding on the left is taken for the prompt", "mask.cumsum(dim=1) - 1",
     "torch.arange(ids.shape[1]).expand_as(ids)"),
    (8, "the temperature has no effect", "logits / temperature", "logits"),
    (8, "the logits are multiplied by the temperature", "logits / temperature", "logits * temperature"),
    (8, "the log-probability is divided by the temperature", "(logits / temperature).log_softmax(dim=-1)",
     "logits.log_softmax(dim=-1) / temperature"),
    (0, "this is the mean over the tokens where the sum is asked for", "return total, total / inside.sum(dim=1)",
     "return total / inside.sum(dim=1), total"),
    (10, "the mean is over all places", "total / inside.sum(dim=1)", "total / inside.shape[1]"),
    (10, "no gradient arrives", "(each * inside).sum(dim=1)", "(each * inside).sum(dim=1).detach()"),
    (7, "logits of several hundred", "(logits / temperature).log_softmax(dim=-1)",
     "((logits / temperature).softmax(dim=-1) + 1e-30).log()"),
]),
"preferences": (FIRST, ["""def rewards_of(hidden, mask, weight, bias):
    T = mask.shape[1]
    last = T - 1 - mask.flip(1).int().argmax(dim=1)
    return hidden[torch.arange(len(hidden)), last] @ weight + bias
def ranking_loss(rewards):
    P, K = rewards.shape
    i, j = torch.triu_indices(K, K, 1)
    difference = rewards[:, i] - rewards[:, j]
    return F.softplus(-difference).mean()
""", """def rewards_of(hidden, mask, weight, bias):
    each = (hidden * weight).sum(dim=-1) + bias  # of all tokens
    is_last = mask & (mask.cumsum(dim=1) == mask.sum(dim=1, keepdim=True))
    return each[is_last]
def ranking_loss(rewards):
    difference = rewards[:, :, None] - rewards[:, None, :]
    upper = torch.ones(difference.shape[1:], dtype=torch.bool).triu(1)
    return -F.logsigmoid(difference[:, upper]).mean()
""", """def rewards_of(hidden, mask, weight, bias):
    found = []
    for vectors, real in zip(hidden, mask):
        found.append(vectors[real][-1].dot(weight) + bias)
    return torch.stack(found)
def ranking_loss(rewards):
    total, pairs = 0.0, 0
    for i in range(rewards.shape[1]):
        for j in range(i + 1, rewards.shape[1]):
            z = rewards[:, j] - rewards[:, i]
            total = total + torch.logaddexp(z, torch.zeros_like(z)).sum()
            pairs += len(z)
    return total / pairs
"""], [
    (9, "the reward is read at the last place", "last = T - 1 - mask.flip(1).int().argmax(dim=1)",
     "last = torch.full((len(mask),), T - 1)"),
    (9, "the reward is read at the place whose number is the count", "T - 1 - mask.flip(1).int().argmax(dim=1)",
     "mask.sum(dim=1) - 1"),
    (6, "the reward is read one place too early", "T - 1 -", "T - 2 -",
     "return hidden[torch.arange(len(hidden)), last]", "return hidden[torch.arange(len(hidden)), last.clamp(min=0)]"),
    (6, "the reward is read at the first token", "T - 1 - mask.flip(1).int()", "mask.int()"),
    (6, "this is the mean of all tokens' rewards", "hidden[torch.arange(len(hidden)), last]",
     "((hidden * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True))"),
    (6, "the bias is missing", " + bias", ""),
    (6, "the sign of the difference is wrong", "softplus(-difference)", "softplus(difference)"),
    (6, "this is ln sigma, which is below 0", "F.softplus(-difference).mean()", "F.logsigmoid(difference).mean()"),
    (6, "this is the probability of the choice", "F.softplus(-difference).mean()", "torch.sigmoid(difference).mean()"),
    (8, "only neighbours are compared", "i, j = torch.triu_indices(K, K, 1)",
     "i, j = torch.arange(K - 1), torch.arange(1, K)"),
    (8, "only the best answer is compared with the others", "i, j = torch.triu_indices(K, K, 1)",
     "i, j = torch.zeros(K - 1, dtype=torch.long), torch.arange(1, K)"),
    (6, "each answer is compared with itself", "triu_indices(K, K, 1)", "triu_indices(K, K, 0)"),
    (6, "each pair counts in both orders", "i, j = torch.triu_indices(K, K, 1)",
     "i, j = (~torch.eye(K, dtype=torch.bool)).nonzero().T"),
    (8, "this is the sum over the pairs of a ranking", ".mean()", ".sum(dim=1).mean()"),
    (6, "this is the sum over all pairs", ".mean()", ".sum()"),
    (6, "this is a squared error", "F.softplus(-difference)", "(1 - difference).square()"),
    (10, "no finite number", "F.softplus(-difference)", "-torch.sigmoid(difference).log()"),
    (10, "the gradient is 0 where the margin is large", "F.softplus(-difference)",
     "-(torch.sigmoid(difference) + 1e-12).log()"),
    (11, "no gradient arrives", ".mean()", ".mean().item()"),
    (11, "so that no model could learn by this", "weight + bias", "weight.detach() + bias", "return hidden[",
     "return hidden.detach()["),
    (11, "no gradient reaches `weight`", "weight + bias", "weight.detach() + bias"),
    (11, "no gradient reaches `hidden`", "return hidden[", "return hidden.detach()["),
]),
"dpo_loss": (FIRST, ["""def dpo_loss(policy, reference, answer, beta, label_smoothing=0.0):
    reference = reference.detach()
    ours = (policy * answer).sum(dim=-1)
    theirs = (reference * answer).sum(dim=-1)
    h = (ours[0] - theirs[0]) - (ours[1] - theirs[1])
    right, flipped = F.logsigmoid(beta * h), F.logsigmoid(-beta * h)
    return -((1 - label_smoothing) * right + label_smoothing * flipped).mean()
""", """def dpo_loss(policy, reference, answer, beta, label_smoothing=0.0):
    with torch.no_grad():
        fixed = reference.masked_fill(~answer, 0.0).sum(dim=2)
    ratio = policy.masked_fill(~answer, 0.0).sum(dim=2) - fixed
    z = beta * (ratio[0] - ratio[1])
    # - ln sigma(-z) = z - ln sigma(z)
    return (F.softplus(-z) + label_smoothing * z).mean()
""", """def dpo_loss(policy, reference, answer, beta, label_smoothing=0.0):
    total = 0.0
    for b in range(policy.shape[1]):
        rewards = []
        for side in (0, 1):
            kept = answer[side, b]
            rewards.append(beta * (policy[side, b][kept] - reference[side, b][kept].detach()).sum())
        difference = rewards[0] - rewards[1]
        zero = torch.zeros_like(difference)
        total = total + (1 - label_smoothing) * torch.logaddexp(zero, -difference)
        total = total + label_smoothing * torch.logaddexp(zero, difference)
    return total / policy.shape[1]
"""], [
    (0, "is the ratio upside down", "(ours[0] - theirs[0]) - (ours[1] - theirs[1])",
     "(theirs[0] - ours[0]) - (theirs[1] - ours[1])"),
    (0, "the reference is missing", "(ours[0] - theirs[0]) - (ours[1] - theirs[1])", "ours[0] - ours[1]"),
    (0, "the rejected answers are missing", " - (ours[1] - theirs[1])", ""),
    (0, "the answers' log-probabilities are means", "(policy * answer).sum(dim=-1)",
     "(policy * answer).sum(dim=-1) / answer.sum(dim=-1)", "(reference * answer).sum(dim=-1)",
     "(reference * answer).sum(dim=-1) / answer.sum(dim=-1)"),
    (0, "padding or the prompt is summed, too", "(policy * answer)", "policy", "(reference * answer)", "reference"),
    (0, "this is the sum over the pairs", ".mean()", ".sum()"),
    (0, "beta is missing", "F.logsigmoid(beta * h), F.logsigmoid(-beta * h)", "F.logsigmoid(h), F.logsigmoid(-h)"),
    (2, "beta stands before the logarithm", "F.logsigmoid(beta * h), F.logsigmoid(-beta * h)",
     "beta * F.logsigmoid(h), beta * F.logsigmoid(-h)"),
    (0, "the margin is divided by beta", "F.logsigmoid(beta * h), F.logsigmoid(-beta * h)",
     "F.logsigmoid(h / beta), F.logsigmoid(-h / beta)"),
    (4, "the smoothing has the wrong sign", "right + label_smoothing", "right - label_smoothing"),
    (4, "nothing is smoothed", "F.logsigmoid(-beta * h)", "F.logsigmoid(beta * h)"),
    (4, "only half of it is used", "    reference =", "    label_smoothing = label_smoothing / 2\n    reference ="),
    (4, "the second term of the smoothing is missing", " + label_smoothing * flipped", ""),
    (4, "the first term is not weakened", "(1 - label_smoothing) * right", "right"),
    (9, "a gradient reaches the reference", "    reference = reference.detach()\n", ""),
    (7, "no finite number", "F.logsigmoid(beta * h), F.logsigmoid(-beta * h)",
     "torch.sigmoid(beta * h).log(), torch.sigmoid(-beta * h).log()"),
    (7, "the gradient is 0 where the margin is large", "F.logsigmoid(beta * h), F.logsigmoid(-beta * h)",
     "(torch.sigmoid(beta * h) + 1e-12).log(), (torch.sigmoid(-beta * h) + 1e-12).log()"),
    (9, "no gradient arrives", ".mean()", ".mean().item()"),
    (0, "this calls PyTorch's binary cross-entropy",
     "    return -((1 - label_smoothing) * right + label_smoothing * flipped).mean()",
     "    return F.binary_cross_entropy_with_logits(beta * h, torch.full_like(h, 1 - label_smoothing))"),
    (0, "this calls PyTorch's cross_entropy",
     "    return -((1 - label_smoothing) * right + label_smoothing * flipped).mean()",
     "    z = torch.stack([beta * h, torch.zeros_like(h)], dim=1)\n    return F.cross_entropy("
     "z, torch.zeros(len(z), dtype=torch.long), label_smoothing=2 * label_smoothing)"),
]),
"kl": (FIRST, ["""def kl_exact(logits, reference_logits):
    p = logits.softmax(dim=-1)
    difference = logits.log_softmax(dim=-1) - reference_logits.log_softmax(dim=-1)
    return torch.where(p > 0, p * difference, 0.0).sum(dim=-1)
def kl_estimates(log_probs, reference):
    r = log_probs - reference
    k1 = r
    k2 = 0.5 * r.square()
    k3 = (-r).exp() - 1 + r
    return k1, k2, k3
def safe_k3(log_probs, reference):
    r = log_probs - reference.detach()
    near = torch.clamp(r, min=-20)
    far = (math.exp(20) - 21) - (math.exp(20) - 1) * (r + 20)
    return torch.where(r < -20, far, (-near).exp() - 1 + near)
""", """def kl_exact(logits, reference_logits):
    log_p = logits - logits.logsumexp(dim=-1, keepdim=True)
    log_q = reference_logits - reference_logits.logsumexp(dim=-1, keepdim=True)
    p = log_p.exp()
    return (torch.xlogy(p, p) - (p * log_q).nan_to_num(0.0)).sum(dim=-1)
def kl_estimates(log_probs, reference):
    inverse = reference - log_probs
    return -inverse, inverse**2 / 2, inverse.expm1() - inverse
def safe_k3(log_probs, reference):
    with torch.no_grad():
        fixed = reference.clone()
    x = fixed - log_probs  # -r
    held = x.clamp(max=20.0)
    beyond = (x - 20.0).clamp(min=0.0)
    return held.expm1() - held + beyond * math.expm1(20.0)
""", """def kl_exact(logits, reference_logits):
    shape = logits.shape[:-1]
    rows = zip(logits.reshape(-1, logits.shape[-1]), reference_logits.reshape(-1, logits.shape[-1]))
    found = []
    for a, b in rows:
        p, q = a.softmax(0), b.softmax(0)
        kept = p > 0
        found.append((p[kept] * (p[kept] / q[kept]).log()).sum())
    return torch.stack(found).reshape(shape)
def kl_estimates(log_probs, reference):
    ratio = (reference - log_probs).exp()
    return log_probs - reference, (log_probs - reference).pow(2) / 2, ratio - 1 - ratio.log()
def safe_k3(log_probs, reference):
    r = (log_probs - reference.detach()).flatten()
    at, slope = math.exp(20) - 1 - 20, 1 - math.exp(20)
    found = [at + slope * (x + 20) if x < -20 else torch.exp(-x) - 1 + x for x in r]
    return torch.stack(found).reshape(log_probs.shape)
"""], [
    (10, "this is KL(ref || pi), the other direction", "    p = logits.softmax(dim=-1)",
     "    logits, reference_logits = reference_logits, logits\n    p = logits.softmax(dim=-1)"),
    (10, "the sign is wrong", "logits.log_softmax(dim=-1) - reference_logits.log_softmax(dim=-1)",
     "reference_logits.log_softmax(dim=-1) - logits.log_softmax(dim=-1)"),
    (10, "this is the mean over the vocabulary", "0.0).sum(dim=-1)", "0.0).mean(dim=-1)"),
    (10, "a token of probability 0 gives NaN", "torch.where(p > 0, p * difference, 0.0)", "(p * difference)"),
    (11, "k1 is r itself, with its sign", "k1 = r", "k1 = r.abs()"),
    (10, "k2 lacks its factor 1/2", "0.5 * r.square()", "r.square()"),
    (5, "k3 has its ratio upside down", "k3 = (-r).exp() - 1 + r", "k3 = r.exp() - 1 - r",
     "r = log_probs - reference.detach()", "r = reference.detach() - log_probs"),
    (10, "k3 lacks the - 1", "k3 = (-r).exp() - 1 + r", "k3 = (-r).exp() + r"),
    (10, "k3 lacks the term r", "k3 = (-r).exp() - 1 + r", "k3 = (-r).exp() - 1"),
    (7, "exp(-r) overflows", "torch.where(r < -20, far, (-near).exp() - 1 + near)", "(-r).exp() - 1 + r"),
    (10, "the gradient is NaN, although the values are right", "(-near).exp() - 1 + near", "(-r).exp() - 1 + r"),
    (10, "the gradient is lost in rounding", "torch.where(r < -20, far, (-near).exp() - 1 + near)",
     "(-near).exp() - 1 + near + (1 - math.exp(20)) * (r - near)"),
    (7, "far below the reference it stops growing", "torch.where(r < -20, far, (-near).exp() - 1 + near)",
     "(-near).exp() - 1 + near"),
    (7, "only the exponential is held at exp(20)", "torch.where(r < -20, far, (-near).exp() - 1 + near)",
     "(-near).exp() - 1 + r"),
    (10, "a gradient reaches the reference", "reference.detach()", "reference"),
    (10, "no gradient arrives", "    return torch.where(r < -20, far, (-near).exp() - 1 + near)",
     "    return torch.where(r < -20, far, (-near).exp() - 1 + near).detach()"),
    (10, "this calls PyTorch's kl_div", "    return torch.where(p > 0, p * difference, 0.0).sum(dim=-1)",
     "    return F.kl_div(reference_logits.log_softmax(dim=-1), p, reduction='none').sum(dim=-1)"),
]),
"groups": (FIRST, ["""def group_advantages(rewards):
    mean, std = rewards.mean(dim=1, keepdim=True), rewards.std(dim=1, keepdim=True)
    equal = (rewards == rewards[:, :1]).all(dim=1, keepdim=True)
    return torch.where(equal, 0.0, (rewards - mean) / std)
def clipped_loss(log_probs, old, advantages, answer, clip):
    old, advantages = old.detach(), advantages.detach()
    ratio = torch.exp(log_probs - old)
    A = advantages[:, None]
    one, other = ratio * A, ratio.clamp(1 - clip, 1 + clip) * A
    gain = torch.minimum(one, other) * answer
    each = gain.sum(dim=1) / answer.sum(dim=1)
    return -each.mean()
""", """def group_advantages(rewards):  # one group after the other
    found = []
    for group in rewards:
        if group.max() - group.min() < 1e-6:
            found.append(torch.zeros_like(group))
        else:
            found.append((group - group.mean()) / group.std())
    return torch.stack(found)
def clipped_loss(log_probs, old, advantages, answer, clip):
    losses = []
    for b in range(len(answer)):
        kept = answer[b]
        w = (log_probs[b][kept] - old[b][kept].detach()).exp()
        A = advantages[b].item()
        held = w.clamp(max=1 + clip) if A > 0 else w.clamp(min=1 - clip)
        losses.append(-(held * A).mean())
    return sum(losses) / len(losses)
""", """def group_advantages(rewards):
    G = rewards.shape[1]
    centred = rewards - rewards.sum(dim=1, keepdim=True) / G
    spread = rewards.amax(dim=1) > rewards.amin(dim=1)
    result = torch.zeros_like(rewards)
    some = centred[spread]
    result[spread] = some / (some.square().sum(dim=1, keepdim=True) / (G - 1)).sqrt()
    return result
def clipped_loss(log_probs, old, advantages, answer, clip):
    with torch.no_grad():
        A = advantages.clone().unsqueeze(1)
        weight = answer / answer.sum(dim=1, keepdim=True) / len(answer)
        base = old.clone()
    w = (log_probs - base).exp()
    outside = torch.where(A > 0, w > 1 + clip, w < 1 - clip)
    bound = torch.where(A > 0, 1 + clip, 1 - clip)
    return -(weight * torch.where(outside, bound, w) * A).sum()
"""], [
    (8, "the deviation is divided by G", "rewards.std(dim=1, keepdim=True)",
     "rewards.std(dim=1, keepdim=True, correction=0)"),
    (8, "something is added to the deviation", "/ std)", "/ (std + 1e-4))"),
    (11, "in a group of equal rewards 0 is divided by 0", "torch.where(equal, 0.0, (rewards - mean) / std)",
     "torch.where(equal, torch.nan, (rewards - mean) / std)"),
    (11, "a group of equal rewards has advantages that are not 0", "torch.where(equal, 0.0, (rewards - mean) / std)",
     "(rewards - mean) / (std + 1e-8)"),
    (11, "Ask whether the rewards are equal", "torch.where(equal, 0.0, (rewards - mean) / std)",
     "((rewards - mean) / std).nan_to_num(0.0)"),
    (8, "the mean is not subtracted", "(rewards - mean)", "rewards"),
    (8, "the deviation is missing", "(rewards - mean) / std", "rewards - mean"),
    (8, "this is divided by the variance", "/ std)", "/ std**2)"),
    (8, "mean and deviation are those of all rewards together",
     "rewards.mean(dim=1, keepdim=True), rewards.std(dim=1, keepdim=True)", "rewards.mean(), rewards.std()"),
    (8, "mean and deviation are taken over the prompts",
     "rewards.mean(dim=1, keepdim=True), rewards.std(dim=1, keepdim=True)",
     "rewards.mean(dim=0), rewards.std(dim=0, correction=min(1, len(rewards) - 1))",
     "torch.where(equal, 0.0, (rewards - mean) / std)", "((rewards - mean) / std).nan_to_num(0.0)"),
    (5, "the ratio is clipped from above only", "ratio.clamp(1 - clip, 1 + clip)", "ratio.clamp(max=1 + clip)"),
    (5, "or they are clipped from above, and that is all", "torch.minimum(one, other)",
     "ratio.clamp(max=1 + clip) * A"),
    (5, "the larger of the two terms is taken", "torch.minimum", "torch.maximum"),
    (5, "the ratio is clipped always", "torch.minimum(one, other)", "other"),
    (5, "nothing is clipped", "torch.minimum(one, other)", "one"),
    (5, "the minimum is taken of the ratios", "torch.minimum(one, other)",
     "torch.minimum(ratio, ratio.clamp(1 - clip, 1 + clip)) * A"),
    (5, "the old policy is computed anew", "old, advantages = old.detach()", "old, advantages = log_probs.detach()"),
    (5, "the ratio is upside down", "log_probs - old", "old - log_probs"),
    (5, "this is the logarithm of the ratio", "torch.exp(log_probs - old)", "log_probs - old"),
    (5, "this is the ratio of whole answers", "torch.exp(log_probs - old)",
     "((log_probs - old) * answer).sum(dim=1, keepdim=True).exp().expand_as(old)"),
    (5, "the sign is wrong", "-each.mean()", "each.mean()"),
    (9, "this is the mean over all tokens", "    return -each.mean()", "    return -gain.sum() / answer.sum()"),
    (5, "the answers' sums are not divided by their lengths", " / answer.sum(dim=1)", ""),
    (9, "padding counted in", "gain.sum(dim=1) / answer.sum(dim=1)", "gain.mean(dim=1)"),
    (9, "what is not the answer is summed, too", " * answer\n", "\n", "gain.sum(dim=1) / answer.sum(dim=1)",
     "gain.mean(dim=1)"),
    (5, "the answers are summed", "-each.mean()", "-each.sum()"),
    (11, "a gradient reaches the advantages", "old.detach(), advantages.detach()", "old.detach(), advantages"),
    (11, "a gradient reaches the old policy", "old.detach(), advantages.detach()", "old, advantages.detach()"),
    (11, "no gradient arrives", "-each.mean()", "-each.mean().detach()"),
]),
"best_of": (FIRST, ["""def best_of_n(rewards, values, n):
    N = len(rewards)
    total = 0.0
    for below, value in enumerate(values[rewards.argsort()].tolist()):
        total += value * (math.comb(below, n - 1) / math.comb(N, n))
    return total
def kl_bound(n):
    return math.log(n) - (n - 1) / n
""", """def best_of_n(rewards, values, n):  # the chance that all others drawn are worse, by logarithms
    N = len(rewards)
    ordered = values.double()[torch.argsort(rewards)]
    log_factorial = torch.lgamma(torch.arange(N + 1, dtype=torch.float64) + 1)
    below = torch.arange(n - 1, N)
    ways = log_factorial[below] - log_factorial[n - 1] - log_factorial[below - n + 1]
    all_ways = log_factorial[N] - log_factorial[n] - log_factorial[N - n]
    return ((ways - all_ways).exp() * ordered[n - 1 :]).sum()
def kl_bound(n):
    n = torch.tensor(float(n))
    return n.log() - 1 + 1 / n
""", """def best_of_n(rewards, values, n):  # from the best answer on: it is drawn, or all of n come from the others
    pairs = sorted(zip(rewards.tolist(), values.tolist()), reverse=True)
    left, expected = 1.0, 0.0
    for rank, (_, value) in enumerate(pairs):
        chance = min(n / (len(pairs) - rank), 1.0)
        expected += left * chance * value
        left *= 1.0 - chance
    return torch.tensor(expected)
def kl_bound(n):
    return sum(math.log(k + 1) - math.log(k) for k in range(1, n)) - (n - 1) / n
"""], [
    (1, "this is the worst of n", "rewards.argsort()", "rewards.argsort(descending=True)"),
    (3, "the answers are in the order of their values", "values[rewards.argsort()]", "values.sort().values"),
    (3, "the rewards are averaged", "values[rewards.argsort()]", "rewards.sort().values"),
    (1, "the answers are not in the order of their rewards", "values[rewards.argsort()]", "values"),
    (1, "the same answer may be drawn twice", "math.comb(below, n - 1) / math.comb(N, n)",
     "((below + 1) / N) ** n - (below / N) ** n"),
    (1, "the chances do not add up to 1", "math.comb(below, n - 1)", "math.comb(below + 1, n - 1)"),
    (1, "n answers are drawn from those below", "math.comb(below, n - 1)", "math.comb(below, n)"),
    (1, "this is the best of the first n", "    total = 0.0\n",
     "    return values[rewards[:n].argmax()]\n    total = 0.0\n"),
    (1, "this is the best of all", "    total = 0.0\n", "    return values[rewards.argmax()]\n    total = 0.0\n"),
    (1, "this is the mean of all values", "    total = 0.0\n", "    return values.mean()\n    total = 0.0\n"),
    (6, "OverflowError", "(math.comb(below, n - 1) / math.comb(N, n))",
     "float(math.comb(below, n - 1)) / float(math.comb(N, n))"),
    (7, "the bound is ln n alone", " - (n - 1) / n", ""),
    (7, "it lacks the division by n", "(n - 1) / n\n", "(n - 1)\n"),
    (7, "the logarithm has base 2", "math.log(n)", "math.log2(n)"),
    (7, "(n - 1) / n is added", "- (n - 1) / n", "+ (n - 1) / n"),
]),
"learn_by_trying": (FIRST, ["""def token_log_probs(one, ids):
    return one(ids)[:, :-1].log_softmax(dim=-1).gather(-1, ids[:, 1:, None])[..., 0]
def learn_by_trying(model, reference):
    updates, price = 150, 0.2
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.0)
    for step in range(updates):
        optimizer.param_groups[0]["lr"] = 3e-3 * min((step + 1) / 10, 1.05 - step / updates)
        ids, answer = write(model, torch.randint(5, 15, (8,)).repeat_interleave(8))
        r = reward(ids).view(8, 8)
        A = ((r - r.mean(dim=1, keepdim=True)) / r.std(dim=1, keepdim=True)).nan_to_num(0.0).view(64, 1)
        with torch.no_grad():
            theirs = token_log_probs(reference, ids)
        ours, kept = token_log_probs(model, ids), answer[:, 1:]
        d = theirs - ours
        loss = ((price * (d.exp() - 1 - d) - (ours - ours.detach()).exp() * A) * kept).sum() / kept.sum()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model
""", """def learn_by_trying(model, reference):  # REINFORCE; the price is taken off the reward
    def of_answers(one, ids, answer):
        each = -F.cross_entropy(one(ids)[:, :-1].transpose(1, 2), ids[:, 1:], reduction="none")
        return (each * answer[:, 1:]).sum(dim=1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=200, pct_start=0.1)
    for _ in range(200):
        ids, answer = write(model, torch.arange(5, 15).repeat_interleave(8))
        log_p = of_answers(model, ids, answer)
        with torch.no_grad():
            worth = reward(ids) - 0.1 * (log_p - of_answers(reference, ids, answer))
            worth = worth - worth.view(10, 8).mean(dim=1).repeat_interleave(8)
        optimizer.zero_grad()
        (-(worth * log_p).mean()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model
"""], [
    (0, "it could do that before", "updates, price = 150", "updates, price = 2",
     "\n        optimizer.step()", ""),
    (0, "are advantages given to other answers", "updates, price = 150", "updates, price = 40", ".view(64, 1)",
     ".T.reshape(64, 1)"),
    (0, "has the loss, or the advantage, the wrong sign", "updates, price = 150", "updates, price = 60",
     "exp() * A)", "exp() * -A)"),
    (7, "is there a price for moving away", "price = 150, 0.2", "price = 150, 0.0"),
    (7, "is what `model` says the first argument of safe_k3", "d = theirs - ours",
     "d = theirs - ours.detach()"),
    (0, "it returned a model and something else", "updates, price = 150", "updates, price = 2", "return model",
     "return model, loss"),
    (0, "this is not the model that you were given", "updates, price = 150", "updates, price = 2", "return model",
     "return model.blocks[0]"),
    (0, "are three letters and an end", "updates, price = 150, 0.2", "updates, price = 100, 0.0",
     "reward(ids).view(8, 8)", "(ids[:, 5:] == ids[:, 2:3]).float().mean(dim=1).view(8, 8)"),
    (0, "train longer", "updates, price = 150", "updates, price = 12"),
]),
})  # fmt: skip
