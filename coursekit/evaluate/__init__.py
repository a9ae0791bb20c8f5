"""Measures: of predictions and of attention maps."""

from coursekit.evaluate.language import perplexity
from coursekit.evaluate.sequences import exact_match, peak_accuracy, symbol_accuracy
from coursekit.evaluate.translation import alignment_error_rate, attention_links, bleu

__all__ = [
    "alignment_error_rate",
    "attention_links",
    "bleu",
    "exact_match",
    "peak_accuracy",
    "perplexity",
    "symbol_accuracy",
]
