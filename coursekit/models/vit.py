"""ViT: Dosovitskiy, Beyer, Kolesnikov, Weissenborn, Zhai et al. (2021), arXiv 2010.11929.

Read it top to bottom: images as rows of patches and back, the configuration with the published sizes, the model, its
objective.

Call chain: ``ViT.forward`` -> ``ViT.embed`` -> ``GridPositions`` in ``nn/positions.py``, then for each layer ``Block``,
for the last one ``LastBlock``, in ``nn/blocks.py`` -> ``MultiHeadAttention`` -> ``attend`` in ``nn/attention.py``.

Legend: B batch, C channels, P side of a patch in pixels, N patches, T tokens (N and the class token), D = d_model,
K classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import isqrt

import torch
from torch import Tensor, nn

from coursekit.models.pretrained import Pretrained
from coursekit.nn.attention import MultiHeadAttention
from coursekit.nn.blocks import Block, FeedForward, LastBlock
from coursekit.nn.checks import check_dropout, check_heads, check_probability, check_sizes
from coursekit.nn.dropout import Dropout
from coursekit.nn.losses import summed_cross_entropy
from coursekit.nn.positions import GridPositions, check_resize

POOLINGS = ("class", "mean")


def grid_of(images: Tensor, size: int) -> tuple[int, int]:
    """Rows and columns of the patches of ``size`` x ``size`` pixels in images (B, C, height, width)."""
    if images.dim() != 4:
        raise ValueError(f"images of shape {tuple(images.shape)}: must be (B, C, height, width)")
    height, width = images.shape[-2:]
    if size < 1 or height % size or width % size or not height * width:
        raise ValueError(f"images of {height} x {width} pixels: both must be multiples of the patches' {size}")
    return height // size, width // size


def patchify(images: Tensor, size: int) -> Tensor:
    """Cut images into patches of ``size`` x ``size`` pixels, row by row: (B, C, height, width) -> (B, N, C P^2).

    The numbers of a patch stand channel by channel, and row by row in each, as those of a convolution's kernel do.

    Raises:
        ValueError: patches of this size do not fill the images.

    Source: section 3.1.
    """
    rows, columns = grid_of(images, size)
    x = images.unflatten(3, (columns, size)).unflatten(2, (rows, size))  # (B, C, rows, P, columns, P)
    return x.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)  # (B, rows, columns, C, P, P) -> (B, N, C P^2)


def unpatchify(patches: Tensor, size: int, grid: tuple[int, int] | None = None) -> Tensor:
    """Put together again what ``patchify`` has cut: (B, N, C P^2) -> (B, C, height, width).

    Args:
        size: P.
        grid: rows and columns of patches; None for as many rows as columns.

    Raises:
        ValueError: the patches do not fill the grid, or their numbers no channel.
    """
    N, numbers = patches.shape[-2:]
    rows, columns = (isqrt(N), isqrt(N)) if grid is None else grid
    if rows * columns != N:
        raise ValueError(f"{N} patches: a grid of {rows} x {columns} has {rows * columns}; say which with grid=")
    if numbers % size**2:
        raise ValueError(f"patches of {numbers} numbers: must be a multiple of {size} x {size}, one for each channel")
    x = patches.unflatten(2, (-1, size, size)).unflatten(1, (rows, columns))  # (B, rows, columns, C, P, P)
    return x.permute(0, 3, 1, 4, 2, 5).flatten(4).flatten(2, 3)  # (B, C, rows, P, columns, P) -> (B, C, height, width)


@dataclass(frozen=True)
class ViTConfig:
    """Sizes and choices of a ``ViT``; the defaults are ViT-B/16 for ImageNet.

    Attributes:
        image_size: height and width in pixels that the positions are learned for; other images may be read too.
        patch_size, channels: P and C; P must divide ``image_size``.
        d_model, n_heads, d_ff, n_layers: D, the heads, the width of the feed-forward networks, the blocks (table 1).
        classes: K; 0 for a model without a head, which gives the pooled vector.
        representation_size: width of a hidden layer with tanh before the head, as in pre-training (section 3.1); 0 for
            none, as in fine-tuning.
        pooling: ``"class"``: a class token is put in front, and its last state stands for the image. ``"mean"``: there
            is no such token, and the mean of the patches stands for it (appendix D.3).
        dropout: in training: on the embeddings, the hidden units and both branches of a block, not on the attention
            weights (appendix B.1).
        drop_path: in training: probability to leave out a branch of the last block; it grows to that linearly, from 0
            in the first block.
        eps: of every layer norm; 1e-6 in the papers' programs, ViT's and DINO's, 1e-12 in files of Hugging Face.
        resize: how the positions of images of other sizes are found, as in ``coursekit.nn.positions.resize_grid``.
    """

    image_size: int = 224
    patch_size: int = 16
    channels: int = 3
    d_model: int = 768
    n_heads: int = 12
    d_ff: int = 3072
    n_layers: int = 12
    classes: int = 1000
    representation_size: int = 0
    pooling: str = "class"
    dropout: float = 0.0
    drop_path: float = 0.0
    eps: float = 1e-6
    resize: str = "size"

    def __post_init__(self):
        check_sizes(self, "image_size", "patch_size", "channels", "d_model", "n_heads", "d_ff", "n_layers")
        if self.image_size % self.patch_size:
            raise ValueError(f"patch_size={self.patch_size}: must divide image_size={self.image_size}")
        check_heads(self)
        check_sizes(self, "classes", "representation_size", least=0)  # 0 for none
        if self.pooling not in POOLINGS:
            raise ValueError(f"pooling={self.pooling!r}: must be one of {', '.join(map(repr, POOLINGS))}")
        check_dropout(self)
        check_probability("drop_path", self.drop_path)
        if not self.eps > 0:
            raise ValueError(f"eps={self.eps}: must be above 0")
        check_resize(self.resize)

    @classmethod
    def s16(cls, **changes) -> "ViTConfig":
        """ViT-S/16 (DeiT-S of Touvron et al., 2021, arXiv 2012.12877), with changes: 22,050,664 parameters."""
        return cls(**{"d_model": 384, "n_heads": 6, "d_ff": 1536} | changes)

    @classmethod
    def b16(cls, **changes) -> "ViTConfig":
        """ViT-B/16, with changes: 86,567,656 parameters."""
        return cls(**changes)

    @classmethod
    def b32(cls, **changes) -> "ViTConfig":
        """ViT-B/32, with changes: 88,224,232 parameters."""
        return cls(**{"patch_size": 32} | changes)

    @classmethod
    def l16(cls, **changes) -> "ViTConfig":
        """ViT-L/16, with changes: 304,326,632 parameters."""
        return cls(**{"d_model": 1024, "n_heads": 16, "d_ff": 4096, "n_layers": 24} | changes)

    @classmethod
    def l32(cls, **changes) -> "ViTConfig":
        """ViT-L/32, with changes: 306,535,400 parameters."""
        return cls.l16(**{"patch_size": 32} | changes)

    @classmethod
    def h14(cls, **changes) -> "ViTConfig":
        """ViT-H/14, with changes: 632,045,800 parameters."""
        sizes = {"patch_size": 14, "d_model": 1280, "n_heads": 16, "d_ff": 5120, "n_layers": 32}
        return cls(**sizes | changes)


class ViT(Pretrained):
    """An image is cut into patches, and an encoder reads their vectors as it would read words.

    ``z_0 = [x_class; x_1 E; …; x_N E] + E_pos``, ``z_l = block(z_{l-1})``, ``y = LN(z_L)``; the logits come from the
    first of y (section 3.1, equations 1 to 4). E, a linear layer on each patch, is written as a convolution whose
    stride is as wide as its kernel.

    Args:
        config: its sizes.
        labels: names of the classes; empty where they have none.

    Raises:
        ValueError: the labels are not as many as the classes.
    """

    def __init__(self, config: ViTConfig, labels: Sequence[str] = ()):
        super().__init__()
        self.config = c = config
        self.patch_embedding = nn.Conv2d(c.channels, c.d_model, kernel_size=c.patch_size, stride=c.patch_size)
        n_prefix_tokens = 1 if c.pooling == "class" else 0
        self.class_token = nn.Parameter(torch.zeros(1, c.d_model)) if n_prefix_tokens else None
        self.positions = GridPositions(c.image_size // c.patch_size, c.d_model, n_prefix_tokens, c.resize)
        self.dropout = Dropout(c.dropout)
        self.blocks = nn.ModuleList(
            (Block if i < c.n_layers - 1 else LastBlock)(
                MultiHeadAttention(c.d_model, c.n_heads),  # no dropout of the weights (appendix B.1)
                # exact, as in every published PyTorch file; the paper's own program, in JAX, computes it with tanh
                FeedForward(c.d_model, c.d_ff, "gelu", dropout=c.dropout),
                norm=partial(nn.LayerNorm, eps=c.eps),
                dropout=c.dropout,
                drop_path=c.drop_path * i / max(1, c.n_layers - 1),
            )
            for i in range(c.n_layers)
        )
        self.norm = nn.LayerNorm(c.d_model, eps=c.eps)
        R = c.representation_size
        self.representation = nn.Linear(c.d_model, R) if R else None
        self.head = nn.Linear(R or c.d_model, c.classes) if c.classes else nn.Identity()
        self.labels = names_of(c.classes, labels)
        self.init_weights()

    def init_weights(self) -> None:
        """Draw the weights as the paper's program does; the paper says nothing of them but that a new head is 0.

        In the blocks uniformly from ``±sqrt(6 / (inputs + outputs))``, queries, keys and values each by themselves;
        the layer on patches and the hidden one of the head from a normal distribution of variance 1 / inputs, cut at
        two deviations; positions from ``N(0, 0.02^2)``, biases of the feed-forward networks from ``N(0, 1e-6^2)``.
        Head, class token and all other biases are 0.
        """
        for block in self.blocks:
            qkv, out, up, down = (
                block.attention.qkv,
                block.attention.out,
                block.feed_forward.up,
                block.feed_forward.down,
            )
            for matrix in (*qkv.weight.data.chunk(3), out.weight, up.weight, down.weight):
                nn.init.xavier_uniform_(matrix)
            for layer, std in ((qkv, 0.0), (out, 0.0), (up, 1e-6), (down, 1e-6)):
                nn.init.normal_(layer.bias, std=std)
        for layer in (self.patch_embedding, self.representation):
            if layer is not None:
                # the cut leaves 0.8796 of a deviation, which is made good
                std = layer.weight[0].numel() ** -0.5 / 0.87962566103423978
                nn.init.trunc_normal_(layer.weight, std=std, a=-2 * std, b=2 * std)
                nn.init.zeros_(layer.bias)
        for parameter in self.head.parameters():
            nn.init.zeros_(parameter)

    def replace_head(self, classes: int, labels: Sequence[str] = ()) -> None:
        """Put a new head of zeros on a pre-trained body, for fine-tuning: one layer, D x K (section 3.2).

        Args:
            classes: K; 0 for none.
            labels: their names.
        """
        config = replace(self.config, classes=classes, representation_size=0)
        self.config, self.labels, self.representation = config, names_of(classes, labels), None
        self.head = nn.Identity()
        if classes:
            self.head = nn.Linear(config.d_model, classes).to(self.positions.encoding)
            nn.init.zeros_(self.head.weight)
            nn.init.zeros_(self.head.bias)

    def grid(self, images: Tensor) -> tuple[int, int]:
        """Rows and columns of the patches of images (B, C, height, width)."""
        return grid_of(images, self.config.patch_size)

    def patches(self, images: Tensor) -> Tensor:
        """The vector of each patch by itself, ``x_i E``: (B, C, height, width) -> (B, N, D)."""
        self.grid(images)
        if images.shape[1] != self.config.channels:
            raise ValueError(f"images of {images.shape[1]} channels: the model was built for {self.config.channels}")
        if not images.is_floating_point():
            raise ValueError(f"images of {images.dtype}: must be floating-point numbers, scaled as in training")
        return self.patch_embedding(images).flatten(2).transpose(1, 2)  # (B, D, rows, columns) -> (B, N, D)

    def embed(self, images: Tensor) -> Tensor:
        """``z_0``, what the first block reads: the class token in front, positions added; (B, T, D)."""
        x = self.patches(images)
        if self.class_token is not None:
            x = torch.cat([self.class_token.expand(x.shape[0], 1, -1), x], dim=1)  # (B, 1 + N, D)
        return self.dropout(self.positions(x, self.grid(images)))

    def hidden_states(self, images: Tensor) -> list[Tensor]:
        """The embeddings, and what each block makes of them: ``n_layers + 1`` tensors (B, T, D), before the last norm.

        Args:
            images: (B, C, height, width), of any height and width that patches fill; the more pixels they have, the
                more tokens there are.

        Raises:
            ValueError: the images have another number of channels, or patches do not fill them.
        """
        states = [self.embed(images)]
        for block in self.blocks:
            states.append(block(states[-1]))
        return states

    def hidden(self, images: Tensor) -> Tensor:
        """All tokens as the model understands them, ``LN(z_L)``: (B, T, D); arguments as for ``hidden_states``."""
        return self.norm(self.hidden_states(images)[-1])

    def patch_tokens(self, hidden: Tensor) -> Tensor:
        """Those of the patches alone, without the class token: (B, T, D) -> (B, N, D), row by row of the image."""
        return hidden[:, self.positions.n_prefix_tokens :]

    def pool(self, hidden: Tensor) -> Tensor:
        """One vector for an image, (B, T, D) -> (B, D), or ``tanh(W h + b)`` of it with a ``representation_size``."""
        x = hidden[:, 0] if self.config.pooling == "class" else hidden.mean(dim=1)
        return x if self.representation is None else torch.tanh(self.representation(x))

    def forward(self, images: Tensor) -> Tensor:
        """Logits (B, K), or the pooled vectors where ``classes`` is 0; arguments as for ``hidden_states``."""
        x = self.embed(images)
        for block in self.blocks[:-1]:
            x = block(x)
        x = self.blocks[-1](x, first_only=self.config.pooling == "class")
        return self.head(self.pool(self.norm(x)))


def names_of(classes: int, labels: Sequence[str]) -> tuple[str, ...]:
    if isinstance(labels, str):
        raise ValueError(f"labels={labels!r}: must be a list of names")
    if labels and len(labels) != classes:
        raise ValueError(f"{len(labels)} labels: must be as many as classes={classes}, or none")
    return tuple(labels)


def vit_loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """The objective for ``Training``: cross-entropy of ``labels`` (B,), summed (nats), and how many there are.

    A batch holds ``images`` (B, C, height, width) too; the model gives their logits.
    """
    return summed_cross_entropy(model(batch["images"]), batch["labels"])
