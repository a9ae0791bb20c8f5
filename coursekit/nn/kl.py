"""How far a policy has moved from its reference, estimated from what the policy writes.

``KL(pi || ref) = E_pi [ln pi(x) - ln ref(x)]``. It is a sum over all that could be written, so one takes the mean of an
estimator over samples. Three are in use, functions of ``r = ln pi(x) - ln ref(x)`` of a sample x that the policy drew
(of a token, or of a whole answer, whose r is the sum of its tokens'):

========  ====================  =================================  ==================================================
name      value                 as a value                         as a loss (its gradient, the samples held fixed)
========  ====================  =================================  ==================================================
``k1``    r                     unbiased; may be negative          of no use: the expected gradient is 0
``k2``    r^2 / 2               biased, little near the reference  that of KL(pi || ref)
``k3``    exp(-r) - 1 + r       unbiased; never negative           that of KL(ref || pi), the other direction
========  ====================  =================================  ==================================================

Source: Schulman (2020), *Approximating KL divergence*, joschu.net/blog/kl-approx.html; k3 as a loss: Shao et al.
(2024), arXiv 2402.03300, equation 4.
"""

import math

import torch
from torch import Tensor

FAR = 20.0  # nats below the reference from which k3 grows as a straight line: exp(-r) would soon overflow


def k1(log_ratio: Tensor) -> Tensor:
    """``r``, for ``log_ratio`` of any shape: ``ln pi(x) - ln ref(x)`` at samples x of pi."""
    return log_ratio


def k2(log_ratio: Tensor) -> Tensor:
    """``r^2 / 2``."""
    return log_ratio.square() / 2


def k3(log_ratio: Tensor) -> Tensor:
    """``exp(-r) - 1 + r``: the ratio of reference to policy, not the other way round.

    Where the policy finds its own sample ``exp(20)`` times less likely than the reference does, the exponential is
    continued by its tangent, which keeps value and gradient finite. ``where`` chooses between the two, they are not
    added up: in float32 a gradient of 1 is lost beside the tangent's ``exp(20)``.
    """
    near = log_ratio.clamp(min=-FAR)
    tangent = math.expm1(FAR) * (1.0 - FAR - log_ratio) - FAR
    return torch.where(log_ratio < -FAR, tangent, torch.expm1(-near) + near)
