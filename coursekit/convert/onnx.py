"""Models as ONNX graphs, for the browsers of the course's site: GPT, BERT with its heads, ViT, and translators.

A graph is a small file; its matrices lie beside it, compressed, each in files named by what they hold, so that models
which share some of their weights share these files. In a few bits a matrix is its rows' integers and scales, as in
``eight_bits``. ONNX Runtime multiplies them once, when it loads the graph: what is computed is float32.

Legend: P tokens read before, T read now, S = P + T (of a translator: tokens of the source), L layers, H heads, Dh size
of a head, V vocabulary size.
"""

import copy
import hashlib
import logging
import warnings
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from coursekit.models.bert import BertForPreTraining
from coursekit.models.gpt import GPT
from coursekit.models.seq2seq import Encoder, Seq2Seq
from coursekit.models.transformer import Transformer
from coursekit.models.vit import ViT
from coursekit.nn.attention import record_attention
from coursekit.nn.cells import State

LARGE = 1024  # numbers of a matrix from which it lies in files of its own, and in few bits


class Past:
    """Keys and values (1, H, P, Dh) that went in, and with what was read (1, H, S, Dh): a ``Cache`` without memory."""

    def __init__(self, key: Tensor, value: Tensor):
        self.key, self.value, self.length = key, value, key.shape[-2]

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        self.key, self.value = torch.cat([self.key, key], dim=-2), torch.cat([self.value, value], dim=-2)
        return self.key, self.value


class ReadingOn(nn.Module):
    """A GPT that reads ``ids`` (1, T) after a ``past`` (2, L, 1, H, P, Dh) of keys and values.

    It gives logits (T, V), the past of all S tokens, and the weights (L, H, T, S).
    """

    def __init__(self, model: GPT):
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, past: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        caches = [Past(key, value) for key, value in zip(*past.unbind())]
        mask = torch.ones(1, past.shape[-2] + ids.shape[1], dtype=torch.bool)  # with which any length is looked up
        with record_attention(self.model) as maps:
            logits = self.model(ids, mask, caches)[0]
        present = torch.stack([torch.stack([c.key for c in caches]), torch.stack([c.value for c in caches])])
        return logits, present, together(maps)


class FillingIn(nn.Module):
    """A BERT that reads ``ids`` and ``segments`` (1, T): logits (T, V), and the weights (L, H, T, T)."""

    def __init__(self, model: BertForPreTraining):
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, segments: Tensor) -> tuple[Tensor, Tensor]:
        with record_attention(self.model) as maps:
            logits, _ = self.model(ids, None, segments)
        return logits[0], together(maps)


class Looking(nn.Module):
    """A ViT that looks at ``images`` (1, C, height, width): the class token's weights (H, N) on the patches, of the
    last block."""

    def __init__(self, model: ViT):
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        with record_attention(self.model) as maps:
            self.model(images)
        return list(maps.values())[-1][0][0, :, 0, 1:]


class Translating(nn.Module):
    """A translator that reads ``source`` (1, S) and ``target`` (1, T), what it has written and one symbol more.

    It gives the logits (V,) of the last symbol, and the weights (L, H, S) with which it looked at the source.
    """

    def __init__(self, model: Seq2Seq | Transformer):
        super().__init__()
        self.model = copy.copy(model)
        if isinstance(model, Seq2Seq):
            self.model._modules = {**model._modules, "encoder": WithoutPadding(model.encoder)}

    def forward(self, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        with record_attention(self.model) as maps:
            logits = self.model(source, torch.ones_like(source, dtype=torch.bool), target)
        looks = [weights[0] for name, (weights,) in maps.items() if name.startswith("decoder") and "self" not in name]
        looks = [w if w.ndim == 3 else w[None] for w in looks]  # a Seq2Seq has one head, and no axis for it
        return logits[0, -1], torch.stack([w[:, -1] for w in looks])


class WithoutPadding(nn.Module):
    """An encoder of sources that are all of one length: ``pack_padded_sequence`` cannot be exported."""

    def __init__(self, encoder: Encoder):
        super().__init__()
        self.encoder = encoder

    def forward(self, source: Tensor, mask: Tensor) -> tuple[Tensor, State]:
        states, final = self.encoder.rnn(self.encoder.embedding(source))
        return states, self.encoder.to_first(final)


def together(maps: Mapping[str, list[Tensor]]) -> Tensor:
    """The weights of all layers of one text, (L, H, T, S)."""
    return torch.stack([weights[0] for (weights,) in maps.values()])


def export(
    model: GPT | BertForPreTraining | ViT | Seq2Seq | Transformer, path: Path, size: int = 0, bits: int | None = 8
) -> dict[str, Any]:
    """Write ``path``, a graph, and the files of its weights into the same folder.

    Args:
        size: of the images that a ViT is to look at, in pixels.
        bits: of each weight, 8 or up to 16; None for float32.

    Returns:
        What a reader of the graph has to know: its kind, sizes, and the ``weights``, the names of their files.
    """
    longest = torch.export.Dim.DYNAMIC
    if isinstance(model, GPT):
        c = model.config
        about = {"kind": "gpt", "max_length": c.max_length, "layers": c.n_layers, "heads": c.n_heads}
        about["size"] = c.d_model // c.n_heads
        inputs = {"ids": torch.zeros(1, 3, dtype=torch.int32)}
        inputs["past"] = torch.zeros(2, c.n_layers, 1, c.n_heads, 4, about["size"])
        wrapped, dynamic = ReadingOn(model), {"ids": {1: longest}, "past": {4: longest}}
        outputs = ["logits", "present", "weights"]
    elif isinstance(model, BertForPreTraining):
        about = {"kind": "bert", "max_length": model.bert.config.max_length}
        inputs = {name: torch.zeros(1, 3, dtype=torch.int32) for name in ("ids", "segments")}
        wrapped, dynamic = FillingIn(model), {name: {1: longest} for name in inputs}
        outputs = ["logits", "weights"]
    elif isinstance(model, Seq2Seq | Transformer):
        about: dict[str, Any] = {"kind": "translator", "max_length": 1000, "end": None, "never": None}
        if isinstance(model, Transformer):  # a Seq2Seq, which knows no end, writes as much as it reads
            c = model.config
            about |= {"max_length": c.max_length, "end": c.eos_id, "never": c.pad_id}
        inputs = {name: torch.zeros(1, n, dtype=torch.int32) for name, n in (("source", 4), ("target", 3))}
        wrapped, dynamic = Translating(model), {name: {1: longest} for name in inputs}
        outputs = ["logits", "weights"]
    else:
        about = {"kind": "vit", "size": size}
        inputs = {"images": torch.zeros(1, model.config.channels, size, size)}
        wrapped, dynamic, outputs = Looking(model), None, ["weights"]
    with torch.no_grad(), quiet():
        program = torch.onnx.export(
            wrapped.eval(),
            kwargs=inputs,
            dynamo=True,
            dynamic_shapes=dynamic,
            input_names=list(inputs),
            output_names=outputs,
            verbose=False,
        )
    return about | {"weights": write_graph(program.model_proto, path, bits)}


@contextmanager
def quiet() -> Iterator[None]:
    """Without what PyTorch's exporter says to its own developers."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            warnings.filterwarnings("ignore", "The tensor attributes .*_flat_weights", UserWarning)
            yield
    finally:
        logging.disable(before)


def write_graph(proto: Any, path: Path, bits: int | None) -> list[str]:
    """Write a graph with its large matrices in files beside it; returns their names."""
    from onnx import TensorProto, helper, numpy_helper

    graph, files = proto.graph, []
    kept, nodes = list(graph.initializer), []
    del graph.initializer[:]

    def beside(name: str, values: np.ndarray) -> str:
        raw = np.ascontiguousarray(values).tobytes()
        file = f"{hashlib.sha256(raw).hexdigest()[:16]}.bin"
        (path.parent / file).write_bytes(zlib.compress(raw, 9))
        files.append(file)
        kind = helper.np_dtype_to_tensor_dtype(values.dtype)
        tensor = TensorProto(name=name, dims=values.shape, data_type=kind, data_location=TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value=file)
        graph.initializer.append(tensor)
        return name

    def times(values: np.ndarray, scale: np.ndarray, name: str) -> str:
        """The product of integers and their rows' scales."""
        whole = beside(f"{name}.whole", values)
        graph.initializer.append(numpy_helper.from_array(scale, f"{name}.scale"))
        nodes.append(helper.make_node("Cast", [whole], [f"{name}.float"], to=TensorProto.FLOAT))
        nodes.append(helper.make_node("Mul", [f"{name}.float", f"{name}.scale"], [name]))
        return name

    for one in kept:
        values = numpy_helper.to_array(one)
        if values.dtype != np.float32 or values.ndim < 2 or values.size < LARGE:
            graph.initializer.append(one)
        elif bits is None:
            beside(one.name, values)
        else:
            largest = np.abs(values).max(axis=-1, keepdims=True)
            scale = np.where(largest > 0, largest / np.float32(2 ** (bits - 1) - 1), np.float32(1))
            whole = np.rint(values / scale).astype(np.int16)
            if bits == 8:
                times(whole.astype(np.int8), scale, one.name)
            else:  # high and low bytes apart: they compress better
                high = times((whole >> 8).astype(np.int8), 256 * scale, f"{one.name}.high")
                low = times((whole & 255).astype(np.uint8), scale, f"{one.name}.low")
                nodes.append(helper.make_node("Add", [high, low], [one.name]))
    nodes += graph.node
    for part in (proto, graph, *graph.input, *graph.output, *nodes):
        part.ClearField("metadata_props")  # which line of Python each node comes from
    for known in (graph.node, graph.value_info):
        del known[:]
    for output in graph.output:
        for length in output.type.tensor_type.shape.dim:
            length.Clear()  # a recurrent network's is said to be that of the example, whatever it reads
    graph.node.extend(nodes)
    path.write_bytes(proto.SerializeToString())
    return sorted(set(files))
