"""Measures for predicted sequences and for attention maps."""

from torch import Tensor


def symbol_accuracy(predicted: Tensor, target: Tensor, mask: Tensor) -> float:
    """Share of the real symbols that are right. All (B, T); ``mask`` True = real."""
    return (predicted == target)[mask].float().mean().item()


def exact_match(predicted: Tensor, target: Tensor, mask: Tensor) -> float:
    """Share of sequences whose real symbols are all right. All (B, T); ``mask`` True = real."""
    return ((predicted == target) | ~mask).all(dim=1).float().mean().item()


def peak_accuracy(weights: Tensor, position: Tensor, mask: Tensor) -> float:
    """Share of the real output steps whose largest weight lies on the given source position.

    Args:
        weights: attention weights, (B, T, S).
        position: the true source position of each output, (B, T).
        mask: (B, T), True = real.
    """
    return (weights.argmax(dim=-1) == position)[mask].float().mean().item()
