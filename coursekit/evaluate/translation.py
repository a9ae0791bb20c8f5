"""Measures of translations: BLEU, and how well attention finds the words that translate each other."""

from collections.abc import Collection, Sequence

from torch import Tensor

Link = tuple[int, int]  # (source place, target place)


def bleu(outputs: Sequence[str], references: Sequence[str]) -> float:
    """Corpus BLEU from 0 to 100, by sacrebleu with its standard tokenizer; one reference for each output.

    Source: Papineni et al. (2002); Post (2018), arXiv 1804.08771.
    """
    import sacrebleu

    if isinstance(outputs, str) or isinstance(references, str):
        raise ValueError("a text alone: outputs and references are lists of texts")
    if len(outputs) != len(references):
        raise ValueError(f"{len(outputs)} outputs, {len(references)} references: each output needs its own")
    if not outputs:
        raise ValueError("no outputs: BLEU needs at least one")
    return sacrebleu.corpus_bleu(list(outputs), [list(references)]).score


def alignment_error_rate(found: Sequence[Collection[Link]], gold: Sequence[Collection[Link]]) -> float:
    """``1 - 2 |A and G| / (|A| + |G|)`` over all sentences: 0 if all links are right and none is missing.

    Args:
        found: A, the links of each sentence.
        gold: G, the true ones (all of them sure: the possible links of the source's formula are the same set).

    Source: Och and Ney (2003), *A Systematic Comparison of Various Statistical Alignment Models*, section 5.
    """
    right = sum(len(set(a) & set(g)) for a, g in zip(found, gold, strict=True))
    total = sum(len(set(a)) + len(set(g)) for a, g in zip(found, gold, strict=True))
    if not total:
        raise ValueError("no links at all: there is nothing to measure")
    return 1 - 2 * right / total


def attention_links(weights: Tensor, share: float = 0.5) -> set[Link]:
    """The links that attention (T, S) shows: each target word with its strongest source word, and with every
    other whose weight is at least ``share`` of that."""
    strong = weights >= share * weights.max(dim=-1, keepdim=True).values
    return {(s, t) for t, s in strong.nonzero().tolist()}
