"""A plain convolutional network, for comparison: Simonyan and Zisserman (2015), arXiv 1409.1556, made small.

Legend: B batch, C channels, W = width, K classes.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from coursekit.nn.checks import check_sizes


@dataclass(frozen=True)
class CNNConfig:
    """Sizes of a ``CNN``.

    Attributes:
        channels: C, of the images.
        width: W, channels of the first stage; each stage has twice as many as the one before.
        stages: each but the first sees half as many pixels across.
        classes: K.
    """

    channels: int = 3
    width: int = 48
    stages: int = 3
    classes: int = 1000

    def __post_init__(self):
        check_sizes(self, "channels", "width", "stages", "classes")


class CNN(nn.Module):
    """Stages of two 3 x 3 convolutions, each with batch norm and ReLU; between them the largest of 2 x 2 is kept.

    Behind the last stage each channel is averaged over the image, and a linear layer reads the means. The norm is not
    in the paper: Ioffe and Szegedy (2015), arXiv 1502.03167. Nor is the average: Lin et al. (2014), arXiv 1312.4400.
    """

    def __init__(self, config: CNNConfig):
        super().__init__()
        self.config = c = config
        layers: list[nn.Module] = []
        before = c.channels
        for stage in range(c.stages):
            after = c.width * 2**stage
            if stage:
                layers.append(nn.MaxPool2d(2))
            for inputs in (before, after):
                layers += [nn.Conv2d(inputs, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
            before = after
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(before, c.classes)

    def forward(self, images: Tensor) -> Tensor:
        """Logits (B, K) of images (B, C, height, width).

        Raises:
            ValueError: the images are smaller than 2 ** (stages - 1) pixels, or have another number of channels.
        """
        least = 2 ** (self.config.stages - 1)
        if images.dim() != 4 or images.shape[1] != self.config.channels or min(images.shape[2:]) < least:
            raise ValueError(
                f"images of shape {tuple(images.shape)}: must be (B, {self.config.channels}, height, width), "
                f"both at least {least}"
            )
        return self.head(torch.mean(self.features(images), dim=(2, 3)))  # (B, 4 W, height / 4, width / 4) -> (B, K)
