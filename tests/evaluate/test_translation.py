import math
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from coursekit.evaluate import alignment_error_rate, attention_links, bleu


def bleu_by_hand(outputs: list[list[str]], references: list[list[str]]) -> float:
    """Papineni's formula: clipped n-gram precisions of the whole corpus, their geometric mean, brevity penalty."""
    log_precision = 0.0
    for n in range(1, 5):
        right = total = 0
        for output, reference in zip(outputs, references):
            own = Counter(tuple(output[i : i + n]) for i in range(len(output) - n + 1))
            theirs = Counter(tuple(reference[i : i + n]) for i in range(len(reference) - n + 1))
            right += sum((own & theirs).values())
            total += sum(own.values())
        log_precision += math.log(right / total) / 4
    out, ref = sum(map(len, outputs)), sum(map(len, references))
    return 100 * math.exp(min(0, 1 - ref / out) + log_precision)


def test_bleu_is_papinenis():
    references = ["the dog crossed the wide street today", "a cat ate the fish in the small kitchen"]
    outputs = ["the dog crossed the street today", "a cat ate the fish in the kitchen kitchen"]
    expected = bleu_by_hand([o.split() for o in outputs], [r.split() for r in references])
    assert 30 < expected < 90
    assert bleu(outputs, references) == pytest.approx(expected, abs=1e-6)
    assert bleu(references, references) == pytest.approx(100)
    with pytest.raises(ValueError, match="2 outputs, 1 references"):
        bleu(outputs, references[:1])


links = st.sets(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1)


@given(st.lists(st.tuples(links, links), min_size=1, max_size=4))
def test_alignment_error_rate(pairs):
    found, gold = [a for a, _ in pairs], [g for _, g in pairs]
    a = {(i, link) for i, row in enumerate(found) for link in row}
    g = {(i, link) for i, row in enumerate(gold) for link in row}
    precision, recall = len(a & g) / len(a), len(a & g) / len(g)
    f1 = 0 if precision + recall == 0 else 2 * precision * recall / (precision + recall)
    assert alignment_error_rate(found, gold) == pytest.approx(1 - f1)
    assert alignment_error_rate(gold, gold) == 0


def test_alignments_of_other_number_are_refused():
    with pytest.raises(ValueError):
        alignment_error_rate([{(0, 0)}], [])
    with pytest.raises(ValueError, match="no links"):
        alignment_error_rate([set()], [set()])


def test_links_of_attention():
    weights = torch.tensor([[0.6, 0.3, 0.1], [0.1, 0.2, 0.7], [0.45, 0.1, 0.45]])
    assert attention_links(weights) == {(0, 0), (1, 0), (2, 1), (0, 2), (2, 2)}
    assert attention_links(weights, share=0.9) == {(0, 0), (2, 1), (0, 2), (2, 2)}


def test_bleu_of_a_text_alone_is_refused():
    """Its characters would be taken for texts."""
    with pytest.raises(ValueError, match="lists of texts"):
        bleu("the cat", "the cat")


def test_nothing_has_no_bleu():
    with pytest.raises(ValueError, match="no outputs: BLEU needs at least one"):
        bleu([], [])
