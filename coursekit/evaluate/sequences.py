"""Measures for predicted sequences and for attention maps."""

from torch import Tensor

from coursekit.nn.checks import check_mask, check_shape


def symbol_accuracy(predicted: Tensor, target: Tensor, mask: Tensor) -> float:
    """Share of the real symbols that are right. All (B, T); ``mask`` True = real."""
    check_predicted(predicted, target, mask)
    return (predicted == target)[mask].float().mean().item()


def check_predicted(predicted: Tensor, target: Tensor, mask: Tensor) -> None:
    """Refuse what does not belong together, or holds nothing to compare."""
    check_shape("predicted", predicted, target.shape)
    check_mask("mask", mask, target.shape)
    if not mask.any():
        raise ValueError("the mask has no True: there is nothing to compare")


def exact_match(predicted: Tensor, target: Tensor, mask: Tensor) -> float:
    """Share of sequences whose real symbols are all right. All (B, T); ``mask`` True = real."""
    check_predicted(predicted, target, mask)
    return ((predicted == target) | ~mask).all(dim=1).float().mean().item()


def peak_accuracy(weights: Tensor, position: Tensor, mask: Tensor) -> float:
    """Share of the real output steps whose largest weight lies on the given source position.

    Args:
        weights: attention weights, (B, T, S).
        position: the true source position of each output, (B, T).
        mask: (B, T), True = real.
    """
    check_predicted(weights.argmax(dim=-1), position, mask)
    return (weights.argmax(dim=-1) == position)[mask].float().mean().item()
