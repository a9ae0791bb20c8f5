"""Measures: of predictions, of vectors and of attention maps."""

from coursekit.evaluate.features import extract, jaccard, keep_mass, knn, linear_probe, neighbours, segment
from coursekit.evaluate.handmade import colour_histogram, hog
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
    "colour_histogram",
    "distinct_n",
    "exact_match",
    "extract",
    "hog",
    "jaccard",
    "keep_mass",
    "knn",
    "linear_probe",
    "neighbours",
    "peak_accuracy",
    "perplexity",
    "repetition_n",
    "segment",
    "symbol_accuracy",
]
