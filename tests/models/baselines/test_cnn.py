"""The convolutional network that the Vision Transformer is compared with."""

import pytest
import torch
from torch.nn import functional as F

from coursekit.models.baselines.cnn import CNN, CNNConfig
from tests.conftest import randomise


def test_is_what_its_words_say():
    """Written with the functions, in eval mode with statistics of its own."""
    model = randomise(CNN(CNNConfig(channels=2, width=3, stages=2, classes=5))).eval()
    generator = torch.Generator().manual_seed(1)
    for name, buffer in model.named_buffers():
        if name.endswith(("mean", "var")):
            buffer.copy_(torch.rand(buffer.shape, generator=generator) + 0.5)
    x = images = torch.randn(2, 2, 7, 9, generator=generator)
    convolutions = [layer for layer in model.modules() if isinstance(layer, torch.nn.Conv2d)]
    norms = [layer for layer in model.modules() if isinstance(layer, torch.nn.BatchNorm2d)]
    assert [tuple(layer.weight.shape) for layer in convolutions] == [
        (3, 2, 3, 3),
        (3, 3, 3, 3),
        (6, 3, 3, 3),
        (6, 6, 3, 3),
    ]
    for i, (convolution, norm) in enumerate(zip(convolutions, norms, strict=True)):
        if i == 2:
            x = F.max_pool2d(x, 2)
        x = F.conv2d(x, convolution.weight, padding=1)
        shift, scale = (v[:, None, None] for v in (norm.running_mean, (norm.running_var + norm.eps).rsqrt()))
        x = F.relu((x - shift) * scale * norm.weight[:, None, None] + norm.bias[:, None, None])
    expected = x.flatten(2).mean(dim=-1) @ model.head.weight.T + model.head.bias
    torch.testing.assert_close(model(images), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 3, 4, 4), (1, 2, 1, 4), (2, 4, 4)])
def test_refuses_other_images(shape):
    model = CNN(CNNConfig(channels=2, width=3, stages=2, classes=5))
    with pytest.raises(ValueError, match=r"must be \(B, 2, height, width\), both at least 2"):
        model(torch.zeros(shape))


def test_refuses_sizes_below_one():
    with pytest.raises(ValueError, match="width=0"):
        CNNConfig(width=0)
