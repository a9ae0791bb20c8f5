"""Graphs for the browser compute what the models do; what runs them here is ``onnx``'s own evaluator, not torch."""

import shutil
import zlib

import numpy as np
import pytest
import torch

from coursekit.convert.onnx import export
from coursekit.models.bert import Bert, BertConfig, BertForPreTraining
from coursekit.models.gpt import GPT, GPTConfig
from coursekit.models.seq2seq import Seq2Seq, Seq2SeqConfig
from coursekit.models.transformer import Transformer, TransformerConfig
from coursekit.models.vit import ViT, ViTConfig
from coursekit.nn.attention import record_attention
from tests.conftest import randomise

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxscript")


def evaluator(path):
    """What runs a graph, after its weights were unpacked into a folder beside it."""
    from onnx.reference import ReferenceEvaluator

    plain = path.parent / f"{path.stem}-plain"
    plain.mkdir(exist_ok=True)
    shutil.copy(path, plain)
    for file in path.parent.glob("*.bin"):
        (plain / file.name).write_bytes(zlib.decompress(file.read_bytes()))
    model = onnx.load(plain / path.name)
    onnx.checker.check_model(model)
    return ReferenceEvaluator(model)


def maps_of(model, *inputs):
    with record_attention(model) as maps, torch.no_grad():
        output = model(*inputs)
    return output, torch.stack([weights[0][0] for weights in maps.values()])


@pytest.fixture(scope="module")
def gpt(tmp_path_factory):
    model = randomise(GPT(GPTConfig(60, 32, 4, 64, 3, 12)), std=0.2).eval()
    folder = tmp_path_factory.mktemp("gpt")
    return model, folder, export(model, folder / "gpt.onnx", bits=None)


def test_a_gpt_reads_any_length_at_once_and_step_by_step(gpt):
    model, folder, about = gpt
    assert about | {"weights": 0} == {
        "kind": "gpt",
        "max_length": 12,
        "layers": 3,
        "heads": 4,
        "size": 8,
        "weights": 0,
    }
    run = evaluator(folder / "gpt.onnx")
    ids = torch.arange(12)[None] * 5 % 60
    wanted, weights = maps_of(model, ids)
    nothing = np.zeros((2, 3, 1, 4, 0, 8), np.float32)
    for cuts in ([12], [1], [1, 2, 3], [5, 6, 7, 12], [11, 12]):
        past, start = nothing, 0
        for end in cuts:
            read = ids[:, start:end].numpy().astype(np.int32)
            logits, past, maps = run.run(None, {"ids": read, "past": past})
            np.testing.assert_allclose(logits, wanted[0, start:end].numpy(), atol=1e-4)
            np.testing.assert_allclose(maps, weights[:, :, start:end, :end].numpy(), atol=1e-5)
            start = end


@pytest.mark.slow
def test_the_weights_lie_beside_the_graph_and_are_shared(gpt, tmp_path):
    """The same matrices are the same files, whichever model they belong to."""
    model, folder, about = gpt
    files = {file.name for file in folder.glob("*.bin")}
    assert files == set(about["weights"])
    other = GPT(model.config)
    other.load_state_dict(model.state_dict())
    torch.nn.init.normal_(other.blocks[2].feed_forward.up.weight)
    changed = set(export(other.eval(), tmp_path / "other.onnx", bits=None)["weights"])
    assert len(changed - files) == len(files - changed) == 1


@pytest.mark.slow
@pytest.mark.parametrize("bits", [8, 10, 12])
def test_in_few_bits_a_weight_is_at_most_half_a_step_off(gpt, tmp_path, bits):
    """Catches a scale of the wrong axis, high and low bytes of different rows, a sign lost with the high byte."""
    from onnx import numpy_helper

    model, folder, _ = gpt
    export(model, tmp_path / "few.onnx", bits=bits)
    few, plain = evaluator(tmp_path / "few.onnx"), evaluator(folder / "gpt.onnx")
    exact = {one.name: numpy_helper.to_array(one) for one in plain.proto_.graph.initializer}
    stored = {one.name: numpy_helper.to_array(one).astype(np.float32) for one in few.proto_.graph.initializer}
    for name, values in exact.items():
        if values.ndim < 2 or values.size < 1024:
            continue
        if bits == 8:
            again = stored[f"{name}.whole"] * stored[f"{name}.scale"]
        else:
            parts = [stored[f"{name}.{part}.whole"] * stored[f"{name}.{part}.scale"] for part in ("high", "low")]
            again = parts[0] + parts[1]
        step = np.abs(values).max(axis=-1, keepdims=True) / (2 ** (bits - 1) - 1)
        assert (np.abs(again - values) <= 0.501 * step).all()
    ids = np.arange(9, dtype=np.int32)[None]
    logits, *_ = few.run(None, {"ids": ids, "past": np.zeros((2, 3, 1, 4, 0, 8), np.float32)})
    wanted = model(torch.tensor(ids))[0].softmax(dim=-1).detach().numpy()
    assert 0 < np.abs(torch.tensor(logits).softmax(dim=-1).numpy() - wanted).max() < 4 / 2**bits


@pytest.mark.slow
def test_a_bert_with_two_texts(tmp_path):
    model = randomise(BertForPreTraining(Bert(BertConfig(50, 32, 4, 64, 2, 10))), std=0.2).eval()
    export(model, tmp_path / "bert.onnx", bits=None)
    run = evaluator(tmp_path / "bert.onnx")
    for n in (1, 2, 7, 10):
        ids, segments = torch.arange(n)[None] * 7 % 50, (torch.arange(n) > n // 2)[None].long()
        (wanted, _), weights = maps_of(model, ids, None, segments)
        feeds = {"ids": ids.int().numpy(), "segments": segments.int().numpy()}
        logits, maps = run.run(None, feeds)
        np.testing.assert_allclose(logits, wanted[0].numpy(), atol=1e-4)
        np.testing.assert_allclose(maps, weights.numpy(), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("resize", ["size", "dino"])
def test_a_vit_on_pictures_larger_than_it_was_trained_on(resize, tmp_path):
    config = ViTConfig(16, 4, 3, 32, 4, 64, 2, 0, resize=resize)
    model = randomise(ViT(config), std=0.2).eval()
    about = export(model, tmp_path / "vit.onnx", size=24, bits=None)
    assert about["kind"] == "vit"
    images = torch.randn(1, 3, 24, 24, generator=torch.Generator().manual_seed(0))
    _, weights = maps_of(model, images)
    (found,) = evaluator(tmp_path / "vit.onnx").run(None, {"images": images.numpy()})
    np.testing.assert_allclose(found, weights[-1, :, 0, 1:].numpy(), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        Seq2Seq(Seq2SeqConfig(17, 16, 8, 24, encoder_size=16, bidirectional=True, score="general")),
        Seq2Seq(Seq2SeqConfig(17, 16, 8, 24, score="dot", cell="gru")),
        Transformer(TransformerConfig(17, 32, 4, 64, 2, max_length=20)),
    ],
    ids=["seq2seq", "one-way-gru", "transformer"],
)
def test_a_translator_says_what_comes_next_and_where_it_looked(model, tmp_path):
    randomise(model, std=0.3).eval()
    export(model, tmp_path / "translator.onnx", bits=None)
    outputs = onnx.load(tmp_path / "translator.onnx").graph.output
    said = [length.dim_value for output in outputs for length in output.type.tensor_type.shape.dim]
    assert said == [0] * 4, "no output is said to have one length: in a browser the console would complain"
    run = evaluator(tmp_path / "translator.onnx")
    for S, T in ((1, 1), (4, 3), (2, 7), (9, 12)):
        source, target = torch.arange(S)[None] * 5 % 16, torch.arange(T)[None] * 7 % 16
        with record_attention(model) as maps, torch.no_grad():
            wanted = model(source, torch.ones_like(source).bool(), target)[0, -1]
        names = {"decoder.attention", "decoder.0.cross_attention", "decoder.1.cross_attention"}
        crossing = [weights for name, (weights,) in maps.items() if name in names]
        feeds = {"source": source.int().numpy(), "target": target.int().numpy()}
        logits, weights = run.run(None, feeds)
        np.testing.assert_allclose(logits, wanted.numpy(), atol=1e-4)
        np.testing.assert_allclose(weights, torch.stack([w[0].reshape(-1, T, S)[:, -1] for w in crossing]), atol=1e-5)
