"""Measures: of predictions and of attention maps."""

from coursekit.evaluate.sequences import exact_match, peak_accuracy, symbol_accuracy

__all__ = ["exact_match", "peak_accuracy", "symbol_accuracy"]
