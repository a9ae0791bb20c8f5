"""Measures: of predictions and of attention maps."""

from coursekit.evaluate.language import SlidingWindow, distinct_n, perplexity, repetition_n
from coursekit.evaluate.sequences import exact_match, peak_accuracy, symbol_accuracy
from coursekit.evaluate.translation import alignment_error_rate, attention_links, bleu
from coursekit.evaluate.vision import attention_distance, attention_rollout

__all__ = [
    "SlidingWindow",
    "alignment_error_rate",
    "attention_distance",
    "attention_links",
    "attention_rollout",
    "bleu",
    "distinct_n",
    "exact_match",
    "peak_accuracy",
    "perplexity",
    "repetition_n",
    "symbol_accuracy",
]
