"""MAE: He, Chen, Xie, Li, Dollár and Girshick (2022), "Masked Autoencoders Are Scalable Vision Learners".

Three quarters of an image's patches are hidden. The encoder, an ordinary Vision Transformer, reads the others *alone*;
a small decoder is told where patches are missing and paints them. Read it top to bottom: fixed positions, which patches
are hidden, what is to be predicted, the configuration, the model, its objective. (arXiv 2111.06377.)

Call chain: ``MAE.forward`` -> ``MAE.encode`` -> ``ViT.embed`` in ``models/vit.py``, then ``MAE.decode``; for each
layer of both ``Block`` in ``nn/blocks.py`` -> ``MultiHeadAttention`` -> ``attend`` in ``nn/attention.py``.

Legend: B batch, C channels, P side of a patch in pixels, N patches, K visible ones, D width of the encoder, E of the
decoder.
"""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from coursekit.models.vit import ViT, ViTConfig, patchify, unpatchify
from coursekit.nn.attention import MultiHeadAttention
from coursekit.nn.blocks import Block, FeedForward
from coursekit.nn.checks import check_all, check_shape, check_sizes
from coursekit.nn.positions import sinusoidal

STD = 0.02  # of the two tokens at first


def sinusoidal_2d(side: int, d_model: int) -> Tensor:
    """Fixed positions of a square grid and of a class token before it: (1 + side^2, d_model).

    The first half of a cell's vector is the ``sinusoidal`` code of its row, the second half that of its column; the
    class token has zeros.

    Raises:
        ValueError: ``d_model`` is no multiple of 4.

    Source: appendix A.1 ("the sine-cosine version"); the order of the numbers is that of ``sinusoidal``.
    """
    if d_model % 4:
        raise ValueError(f"d_model={d_model}: must be a multiple of 4, sines and cosines of rows and of columns")
    one = sinusoidal(side, d_model // 2)  # (side, D / 2)
    cells = torch.cat([one.repeat_interleave(side, dim=0), one.repeat(side, 1)], dim=1)  # row by row: (side^2, D)
    return torch.cat([torch.zeros(1, d_model), cells])


def draw_orders(n: int, n_patches: int, generator: torch.Generator) -> Tensor:
    """A random order of the patches for each of n images, (n, N): ``order[b, 0]`` is the patch that comes first.

    All orders are equally likely, and so are all sets of patches that can be at its start. (Section 3, "Simple
    implementation": a list of random numbers is sorted.)
    """
    return torch.rand(n, n_patches, generator=generator, device=generator.device).argsort(dim=1)


def shuffle(tokens: Tensor, order: Tensor) -> Tensor:
    """``tokens[b, order[b, i]]`` at place i: (B, N, D) by (B, K) -> (B, K, D), the first K of an order."""
    return tokens.gather(1, order[..., None].expand(-1, -1, tokens.shape[-1]))


def unshuffle(tokens: Tensor, order: Tensor) -> Tensor:
    """Bring what a whole ``order`` (B, N) has shuffled back to its places: (B, N, D) -> (B, N, D)."""
    return shuffle(tokens, order.argsort(dim=1))  # argsort of a permutation is its inverse


def normalised_patches(images: Tensor, size: int) -> Tensor:
    """Patches of ``size`` x ``size`` pixels, each minus its mean, divided by its standard deviation: (B, N, C P^2).

    What is left shows the pattern of a patch, but neither its brightness nor its contrast. Mean and deviation are
    taken over all channels together, so hue is left too: a patch of one grey gives zeros, a patch of one red does not.
    (Section 3, "Reconstruction target"; 1e-6 in the variance and its divisor of C P^2 - 1 are those of the authors'
    program.)
    """
    patches = patchify(images, size)  # (B, N, C P^2)
    mean, deviation = brightness_and_contrast(patches)
    return (patches - mean) / deviation


def brightness_and_contrast(patches: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each patch, (B, N, 1) both."""
    variance, mean = torch.var_mean(patches, dim=-1, keepdim=True)
    return mean, (variance + 1e-6).sqrt()


@dataclass(frozen=True)
class MAEConfig:
    """Sizes of an ``MAE``; the decoder's defaults are the paper's.

    Attributes:
        vit: the encoder; ``classes`` must be 0 and ``pooling`` "class".
        mask_ratio: share of the patches that the encoder does not see.
        d_decoder, decoder_heads, decoder_layers: sizes of the decoder; its feed-forward networks are four times as
            wide.
    """

    vit: ViTConfig
    mask_ratio: float = 0.75
    d_decoder: int = 512
    decoder_heads: int = 16
    decoder_layers: int = 8

    def __post_init__(self):
        if self.vit.classes or self.vit.representation_size:
            field = "classes" if self.vit.classes else "representation_size"
            raise ValueError(f"vit.{field}={getattr(self.vit, field)}: must be 0, the decoder takes its place")
        if self.vit.pooling != "class":
            raise ValueError(f"vit.pooling={self.vit.pooling!r}: must be 'class', which keeps the class token")
        check_sizes(self, "d_decoder", "decoder_heads", "decoder_layers")
        if self.d_decoder % self.decoder_heads:
            raise ValueError(f"d_decoder={self.d_decoder}: must be a multiple of decoder_heads={self.decoder_heads}")
        if not 0 < self.mask_ratio < 1 or not 1 <= self.visible < self.patches:
            raise ValueError(
                f"mask_ratio={self.mask_ratio}: of {self.patches} patches some must be hidden, and some visible"
            )

    @property
    def patches(self) -> int:
        """N."""
        return (self.vit.image_size // self.vit.patch_size) ** 2

    @property
    def visible(self) -> int:
        """K, how many patches the encoder sees: ``N (1 - mask_ratio)``, rounded down."""
        return int(self.patches * (1 - self.mask_ratio) + 1e-9)  # 100 (1 - 0.9) is 9.999999999999998

    @classmethod
    def b16(cls, **changes) -> "MAEConfig":
        """ViT-B/16 with the paper's decoder, with changes: 111,907,840 parameters, 252,160 of them fixed."""
        return cls(**{"vit": ViTConfig.b16(classes=0)} | changes)


class MAE(nn.Module):
    """An encoder of the visible patches and a decoder of all.

    - ``encode``: patches and their positions, of which only the visible ones go on, with the class token, through the
      blocks of a ``ViT``. Its cost falls with their number.
    - ``decode``: a linear layer to the decoder's width; a learned **mask token** in every hidden place; all back in
      order, with positions of the decoder's own; blocks, a norm, and a linear layer to the numbers of each patch.

    After pre-training ``vit`` is all that is kept: a ViT as any other, for whole images. Its positions are fixed. Which
    patches are hidden is not drawn here but given, as an ``order`` of them whose first K are visible.
    ``mae_loss`` is the objective for ``Training``.
    """

    def __init__(self, config: MAEConfig):
        super().__init__()
        self.config = c = config
        self.vit, D, E = ViT(c.vit), c.vit.d_model, c.d_decoder
        side = c.vit.image_size // c.vit.patch_size
        self.vit.positions.encoding = nn.Parameter(sinusoidal_2d(side, D), requires_grad=False)
        nn.init.normal_(self.vit.class_token, std=STD)
        self.embed = nn.Linear(D, E)
        self.mask_token = nn.Parameter(torch.empty(1, 1, E).normal_(std=STD))
        self.positions = nn.Parameter(sinusoidal_2d(side, E), requires_grad=False)
        self.blocks = nn.ModuleList(
            Block(
                MultiHeadAttention(E, c.decoder_heads),
                FeedForward(E, 4 * E, "gelu"),
                norm=partial(nn.LayerNorm, eps=c.vit.eps),
            )
            for _ in range(c.decoder_layers)
        )
        self.norm = nn.LayerNorm(E, eps=c.vit.eps)
        self.predict = nn.Linear(E, c.vit.channels * c.vit.patch_size**2)
        for layer in (self.embed, *self.blocks.modules(), self.predict):
            if isinstance(layer, nn.Linear):
                nn.init.xavier_uniform_(layer.weight)
                nn.init.zeros_(layer.bias)

    def encode(self, images: Tensor, order: Tensor) -> Tensor:
        """States of the class token and of the visible patches, in their order: (B, 1 + K, D).

        Args:
            images: (B, C, height, width), of the size that the model was built for.
            order: (B, N), as from ``draw_orders``.

        Raises:
            ValueError: the images are of another size, or the order is not one of the N patches of B images.
        """
        c, N = self.config.vit, self.config.patches
        check_shape("images", images, (len(images), c.channels, c.image_size, c.image_size))
        check_shape("order", order, (len(images), N))
        each = order.sort(dim=1).values == torch.arange(N, device=order.device)
        check_all(each, f"order: each row must hold each of the numbers 0 to {N - 1} once")
        x = self.vit.embed(images)  # (B, 1 + N, D), with positions
        x = torch.cat([x[:, :1], shuffle(x[:, 1:], order[:, : self.config.visible])], dim=1)  # (B, 1 + K, D)
        for block in self.vit.blocks:
            x = block(x)
        return self.vit.norm(x)

    def decode(self, states: Tensor, order: Tensor) -> Tensor:
        """What each patch looks like, from the states of the visible ones: (B, 1 + K, D) -> (B, N, C P^2)."""
        x = self.embed(states)  # (B, 1 + K, E)
        class_token, seen = x[:, :1], x[:, 1:]
        missing = self.mask_token.expand(len(x), order.shape[1] - seen.shape[1], -1)  # (B, N - K, E)
        x = unshuffle(torch.cat([seen, missing.to(seen)], dim=1), order)  # all in their places: (B, N, E)
        x = torch.cat([class_token, x], dim=1) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.predict(self.norm(x))[:, 1:]

    def forward(self, images: Tensor, order: Tensor) -> Tensor:
        """The numbers of each patch as the decoder guesses them, (B, N, C P^2); arguments as for ``encode``."""
        return self.decode(self.encode(images, order), order)

    def hidden_patches(self, order: Tensor) -> Tensor:
        """True where a patch is hidden, (B, N), in the places of the image."""
        return order.argsort(dim=1) >= self.config.visible  # when its turn comes

    def features(self, images: Tensor) -> Tensor:
        """A vector of each whole image, nothing hidden: the mean of the encoder's patches, (B, D)."""
        return self.vit.patch_tokens(self.vit.hidden(images)).mean(dim=1)

    @torch.no_grad()
    def reconstruct(self, images: Tensor, order: Tensor) -> Tensor:
        """The images with their hidden patches filled in, to be looked at: (B, C, height, width).

        The model predicts neither the brightness nor the contrast of a patch; both are taken from the hidden patch.
        """
        size, guessed = self.config.vit.patch_size, self(images, order)  # guessed: (B, N, C P^2)
        patches = patchify(images, size)  # (B, N, C P^2)
        mean, deviation = brightness_and_contrast(patches)
        guessed = guessed * deviation + mean
        hidden = self.hidden_patches(order)[..., None]  # (B, N, 1)
        return unpatchify(torch.where(hidden, guessed, patches), size)


def mae_loss(model: MAE, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """The objective for ``Training``: squared error of the hidden patches alone, summed, and how many there are.

    The error of a patch is the mean over its C P^2 numbers of ``(guessed - normalised)^2``. Whoever guesses zeros pays
    a little less than 1 for each. A batch holds ``images`` (B, C, height, width), scaled as the ViT reads them, and an
    ``order`` (B, N) of their patches.
    """
    images, order = batch["images"], batch["order"]
    wanted = normalised_patches(images, model.config.vit.patch_size)  # (B, N, C P^2)
    errors = (model(images, order).float() - wanted).square().mean(dim=-1)  # (B, N)
    hidden = model.hidden_patches(order)  # (B, N)
    return (errors * hidden).sum(), hidden.sum()
