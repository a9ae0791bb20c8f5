"""One graph holds a whole objective: it compiles without a break. A model exports for any length. The numbers stay."""

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, export

from coursekit.models import bert, dino, gpt, mae, patchtst, transformer, vit
from coursekit.train import seed
from tests.train.objectives import DINO, GPT, OBJECTIVES, PATCHES, VIT, V, body, ids

# Loops over symbols in Python, and packed sequences, whose lengths are numbers.
BREAKS = [name for name in OBJECTIVES if name.startswith(("seq2seq", "rnn_lm", "lstm"))]
TOKENS = {0: Dim("B", min=2, max=64), 1: Dim("T", min=2, max=9)}


def double(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: x.double() if x.is_floating_point() else x for name, x in batch.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in OBJECTIVES if name not in BREAKS])
def test_an_objective_is_one_graph_with_the_same_numbers(name):
    seed(0)
    model, loss_fn, batch = OBJECTIVES[name]()
    model, batch = model.double().eval(), double(batch())  # nothing is dropped
    found = []
    for way in (loss_fn, torch.compile(loss_fn, fullgraph=True, backend="aot_eager")):
        model.zero_grad()
        loss, count = way(model, batch)
        loss.backward()
        found.append((loss.detach(), count, [p.grad.clone() for p in model.parameters() if p.grad is not None]))
    torch.testing.assert_close(found[1], found[0])


def real(texts: int, length: int, left: bool = False) -> Tensor:
    """(B, T): of each text the first tokens are real, or the last."""
    mask = torch.arange(length) < 1 + torch.arange(texts)[:, None] % length
    return mask.flip(1) if left else mask


TEXTS = {
    "gpt": (lambda: gpt.GPT(GPT), lambda b, n: (ids(b, n),), (TOKENS,)),
    "gpt-padded": (lambda: gpt.GPT(GPT), lambda b, n: (ids(b, n), real(b, n, left=True)), (TOKENS, TOKENS)),
    "bert": (body, lambda b, n: (ids(b, n), real(b, n)), (TOKENS, TOKENS)),
    "bert-words": (lambda: bert.BertForPreTraining(body()), lambda b, n: (ids(b, n), real(b, n)), (TOKENS, TOKENS)),
    "bert-class": (
        lambda: bert.BertForSequenceClassification(body(), ["a", "b", "c"]),
        lambda b, n: (ids(b, n), real(b, n)),
        (TOKENS, TOKENS),
    ),
    "bert-tags": (
        lambda: bert.BertForTokenClassification(body(), ["a", "b", "c"]),
        lambda b, n: (ids(b, n), real(b, n)),
        (TOKENS, TOKENS),
    ),
    "bert-span": (
        lambda: bert.BertForQuestionAnswering(body()),
        lambda b, n: (ids(b, n), real(b, n)),
        (TOKENS, TOKENS),
    ),
    "transformer": (
        lambda: transformer.Transformer(transformer.TransformerConfig(V, 16, 2, 32, 2, max_length=10)),
        lambda b, n: (ids(b, n), real(b, n), ids(b, 7)),
        (TOKENS, TOKENS, {0: TOKENS[0]}),
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_model_of_texts_exports_for_any_length(name):
    seed(0)
    make, arguments, dynamic = TEXTS[name]
    model = make().eval()
    program = export(model, arguments(5, 6), dynamic_shapes=dynamic).module()
    for texts, length in ((5, 2), (3, 5), (7, 9)):
        given = arguments(texts, length)
        torch.testing.assert_close(program(*given), model(*given))


IMAGES = {
    "vit": lambda: vit.ViT(VIT(classes=3)),
    "dino": lambda: dino.Network(DINO).backbone,
    "mae": lambda: mae.MAE(mae.MAEConfig(VIT(classes=0), d_decoder=8, decoder_heads=2, decoder_layers=1)).vit,
    "patchtst": lambda: patchtst.PatchForecaster(PATCHES, 6),
}


@pytest.mark.parametrize("name", IMAGES)
def test_a_model_exports_for_any_number_of_images_or_series(name):
    seed(0)
    model = IMAGES[name]().eval()
    shape = (24, 2) if name == "patchtst" else (3, 16, 16)
    program = export(model, (torch.rand(5, *shape),), dynamic_shapes=({0: TOKENS[0]},)).module()
    for number in (2, 7):
        given = torch.rand(number, *shape)
        torch.testing.assert_close(program(given), model(given))


def test_a_break_is_found():
    class Asks(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x if x.sum() > 0 else -x

    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(Asks(), fullgraph=True, backend="aot_eager")(torch.ones(3))
