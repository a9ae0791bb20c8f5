"""GGUF, the one file of llama.cpp, as this course's ``Llama``: its settings, its weights, and its tokenizer's parts.

A file holds pairs of name and value, among them the tokenizer, then the tensors. Most matrices are in blocks of 32
numbers of a row that share a scale; ``read_q8_0`` and ``read_q4_1`` read one such block, the library ``gguf`` all of
them, in these and in its other types. Nothing in a file is run.

Only the architecture ``llama`` is read, which Mistral and SmolLM2 have too.

Source: the format's specification and ``gguf-py``, both in llama.cpp's repository (ggml-org/llama.cpp).
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from coursekit.convert.undrawn import undrawn
from coursekit.models.llama import Llama, LlamaConfig
from coursekit.nn.rotary import RotaryScaling, rotary_frequencies

try:
    from gguf import GGMLQuantizationType, GGUFReader, ReaderTensor, TokenType
    from gguf.quants import dequantize
except ImportError:
    raise ImportError("GGUF files need the package gguf: pip install gguf") from None

BLOCK_SIZE = 32  # numbers in a block of Q8_0 or Q4_1
ROWS = 1024  # of a matrix, dequantised at a time
SIZES = {  # ours -> theirs
    "d_model": "embedding_length",
    "n_heads": "attention.head_count",
    "n_kv_heads": "attention.head_count_kv",
    "d_ff": "feed_forward_length",
    "n_layers": "block_count",
    "max_length": "context_length",
}
NUMBERS = {"eps": "attention.layer_norm_rms_epsilon", "rotary_base": "rope.freq_base"}  # ours -> theirs
FIXED = {  # what a Llama of the course is; the same where a file is silent
    "expert_count": 0,
    "attention.sliding_window": 0,
    "attention.causal": True,
    "rope.scaling.type": "none",
    "rope.scaling.factor": 1.0,
    "rope.scale_linear": 1.0,
}
BODY = {"tokens.weight": ("token_embd.weight",), "norm.weight": ("output_norm.weight",)}
OUTPUT = "output.weight"  # ours and theirs
ROPE_FACTORS = "rope_freqs.weight"
BLOCK = {
    "attention.qkv": ("attn_q", "attn_k", "attn_v"),
    "attention.out": ("attn_output",),
    "attention_residual.norm": ("attn_norm",),
    "feed_forward.gate": ("ffn_gate",),
    "feed_forward.up": ("ffn_up",),
    "feed_forward.down": ("ffn_down",),
    "feed_forward_residual.norm": ("ffn_norm",),
}
SPECIAL = (TokenType.CONTROL, TokenType.USER_DEFINED)

Tensors = Mapping[str, ReaderTensor]


def read_q8_0(block: bytes) -> tuple[float, np.ndarray]:
    """The scale ``d`` and the integers ``q`` (32,), from -128 to 127, of a block of Q8_0: its numbers are ``d q``.

    Two bytes for ``d`` in float16, then one for each number: 8.5 bits a number.
    """
    check_block(block, 2 + BLOCK_SIZE, "Q8_0")
    (d,) = np.frombuffer(block, "<f2", 1)
    return float(d), np.frombuffer(block, np.int8, offset=2)


def read_q4_1(block: bytes) -> tuple[float, float, np.ndarray]:
    """The scale ``d``, the minimum ``m`` and the integers ``q`` (32,), from 0 to 15, of a block of Q4_1: ``d q + m``.

    Two bytes each for ``d`` and ``m`` in float16, then 16 bytes of two numbers: 5 bits a number. The lower half of a
    byte, its lower *nibble*, belongs to the first sixteen numbers, the upper one to the others.
    """
    check_block(block, 4 + BLOCK_SIZE // 2, "Q4_1")
    d, m = np.frombuffer(block, "<f2", 2)
    nibbles = np.frombuffer(block, np.uint8, offset=4)
    return float(d), float(m), np.concatenate([nibbles & 15, nibbles >> 4])


def check_block(block: bytes, size: int, kind: str) -> None:
    if len(block) != size:
        raise ValueError(f"a block of {len(block)} bytes: one of {kind} has {size}")


class CheckedReader(GGUFReader):
    """The library's, which takes many thousands of slices, on an array whose slices are cheap and never too short."""

    @property
    def data(self) -> np.ndarray:
        return self._data

    @data.setter
    def data(self, mapped: np.memmap) -> None:
        self._data = np.asarray(mapped)

    def _get(self, offset: int, dtype: Any, count: int = 1, *others: Any, **options: Any) -> np.ndarray:
        found = super()._get(offset, dtype, count, *others, **options)
        if len(found) < count:  # also the one thing that ends the reading of an array said to have 2^60 entries
            raise ValueError("it ends too early")
        return found


def read_gguf(path: str | Path) -> tuple[dict[str, Any], dict[str, ReaderTensor]]:
    """The settings of a file by their names, and its tensors, which are mapped, not read.

    Raises:
        ValueError: the file is damaged, or no GGUF.
        OSError: it cannot be opened.
    """
    try:
        with np.errstate(over="raise"):  # of offsets that are none
            reader = CheckedReader(path)
        if reader.byte_order != "I":
            raise ValueError("its numbers have their bytes in the other order, which gguf-convert-endian turns")
        metadata = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    except (ValueError, LookupError, ArithmeticError, RecursionError, TypeError) as error:
        raise ValueError(f"{path} cannot be read as GGUF: {error}") from None
    return metadata, {tensor.name: tensor for tensor in reader.tensors}


def load_gguf(path: str | Path) -> Llama:
    """The model in a file, in float32 and in eval mode.

    A tensor is dequantised into the place that it keeps, so memory is taken for the float32 weights once, and for the
    pages of the file, which the system may drop again.

    Raises:
        ValueError: the file is damaged or holds another model than a ``Llama``.
        OSError: it cannot be opened.
    """
    metadata, tensors = read_gguf(path)
    try:
        return from_gguf(metadata, tensors)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def from_gguf(metadata: Mapping[str, Any], tensors: Tensors) -> Llama:
    """A ``Llama`` of what ``read_gguf`` found. Without an output matrix, that of the embeddings is the output's too.

    Raises:
        ValueError: the model differs from ``Llama`` in a way that weights cannot mend, or weights are missing, too many
            or of another shape.
    """
    config = llama_config(metadata, tensors)
    names = {}
    for ours, theirs in their_names(config):
        for name in theirs:
            if name not in tensors:  # before a model of so many layers is made
                raise ValueError(f"no weight {name}, so this is no llama of the configuration's size")
        names[ours] = theirs
    known = {name for theirs in names.values() for name in theirs} | {ROPE_FACTORS}
    if others := tensors.keys() - known:
        raise ValueError(f"a Llama of the course has no place for {min(others)}")
    try:
        with undrawn():
            model = Llama(config)
    except (RuntimeError, OverflowError):
        raise ValueError("the configuration's sizes are larger than any tensor's") from None
    found = {}
    for ours, theirs in names.items():
        wanted = model.get_parameter(ours).shape
        parts = list(model.blocks[0].attention.qkv_sizes if len(theirs) > 1 else wanted[:1])
        for name, rows in zip(theirs, parts):
            if (shape := shape_of(tensors[name])) != (rows, *wanted[1:]):
                raise ValueError(f"{name} of {shape}: the configuration says {(rows, *wanted[1:])}")
        found[ours] = torch.empty(wanted)
        for name, rows in zip(theirs, found[ours].split(parts)):
            dequantise(tensors[name], rows)
            if name.endswith(("attn_q.weight", "attn_k.weight")):
                rows.copy_(halves(rows, config.head_size))
    model.load_state_dict(found, assign=True)
    return model.eval()


def their_names(config: LlamaConfig) -> Iterator[tuple[str, tuple[str, ...]]]:
    """For each weight of ours the names that it has there, three of them where it is one of ``qkv``."""
    yield from BODY.items()
    if not config.tied:
        yield OUTPUT, (OUTPUT,)
    for i in range(config.n_layers):
        for ours, theirs in BLOCK.items():
            yield f"blocks.{i}.{ours}.weight", tuple(f"blk.{i}.{name}.weight" for name in theirs)


def shape_of(tensor: ReaderTensor) -> tuple[int, ...]:
    """As ours: theirs is written with the innermost axis first."""
    return tuple(map(int, reversed(tensor.shape)))


def dequantise(tensor: ReaderTensor, out: Tensor) -> None:
    """Write a tensor's numbers into ``out``, some rows at a time, since the library's working copies are large."""
    data, numbers = np.atleast_2d(tensor.data), np.atleast_2d(out.numpy())
    try:
        for first in range(0, len(data), ROWS):
            with np.errstate(all="ignore"):  # the library warns of the numbers of a damaged file
                numbers[first : first + ROWS] = dequantize(data[first : first + ROWS], tensor.tensor_type)
    except NotImplementedError:
        kind = GGMLQuantizationType(tensor.tensor_type).name
        raise ValueError(f"{tensor.name} is of type {kind}, which the library gguf cannot dequantise") from None


def halves(weight: Tensor, size: int) -> Tensor:
    """The rows of queries or keys as ``nn.rotary.rotate`` wants them, (H Dh, D) -> (H Dh, D).

    Llama.cpp turns neighbours as a pair, so within each head the rows of the two halves lie in turn in its files:
    0, Dh/2, 1, Dh/2 + 1, …
    """
    pairs = weight.unflatten(0, (-1, size // 2, 2))  # (H, Dh / 2, 2, D)
    return pairs.transpose(1, 2).flatten(0, 2)


def llama_config(metadata: Mapping[str, Any], tensors: Tensors) -> LlamaConfig:
    """The settings of a file as our configuration."""
    architecture = metadata.get("general.architecture")
    if architecture != "llama":
        raise ValueError(
            f"architecture {architecture!r}: only 'llama' is read; another one would need the names of its settings "
            "and tensors, whether its rows of queries and keys are permuted, and what its layers have and Llama's not"
        )
    told = {name.removeprefix("llama."): value for name, value in metadata.items() if name.startswith("llama.")}
    for name, wanted in FIXED.items():
        if told.get(name, wanted) != wanted:
            raise ValueError(f"llama.{name}={told[name]!r}: a Llama of the course has {wanted!r}")
    told.setdefault("attention.head_count_kv", told.get("attention.head_count"))
    told.setdefault("rope.freq_base", LlamaConfig.rotary_base)
    numbers = {ours: number(told, theirs, int) for ours, theirs in SIZES.items()}
    # a float32, such as 9.99999975e-06, as the decimal that was meant
    numbers |= {ours: float(str(np.float32(number(told, theirs, float)))) for ours, theirs in NUMBERS.items()}
    if (embeddings := "token_embd.weight") not in tensors:
        raise ValueError(f"no weight {embeddings}, so this is no llama")
    numbers |= {"vocab_size": shape_of(tensors[embeddings])[0], "tied": OUTPUT not in tensors}
    numbers["d_head"] = number(told, "attention.key_length", int) if "attention.key_length" in told else None
    config = LlamaConfig(**numbers)
    for name in ("attention.key_length", "attention.value_length", "rope.dimension_count"):
        if told.get(name, config.head_size) != config.head_size:
            raise ValueError(
                f"llama.{name}={told[name]!r}: all of a head of {config.head_size} is one size here, and turned"
            )
    scaling = rotary_scaling(tensors[ROPE_FACTORS], config) if ROPE_FACTORS in tensors else None
    return LlamaConfig(**numbers, rotary_scaling=scaling)


def number(told: Mapping[str, Any], name: str, kind: type) -> Any:
    """A setting that must be a number."""
    if name not in told or told[name] is None:
        raise ValueError(f"no llama.{name} in the file: it is not that of a llama")
    if type(told[name]) not in (int, kind):
        raise ValueError(f"llama.{name}={told[name]!r}: must be a number, the same for all layers")
    return told[name]


def rotary_scaling(factors: ReaderTensor, config: LlamaConfig) -> RotaryScaling:
    """The scaling that a file holds as one factor for each pair of entries, by which its angle is divided."""
    if shape_of(factors) != (config.head_size // 2,):
        raise ValueError(f"{ROPE_FACTORS} of {shape_of(factors)}: a head has {config.head_size // 2} pairs")
    wanted = torch.empty(config.head_size // 2)
    dequantise(factors, wanted)
    scaling = RotaryScaling(factor=max(1.0, float(wanted.max())))
    plain, scaled = (rotary_frequencies(config.head_size, config.rotary_base, one) for one in (None, scaling))
    if not torch.allclose(plain / wanted, scaled, rtol=1e-4, atol=0):
        raise ValueError(
            f"{ROPE_FACTORS} has other factors than Llama 3's scaling: a Llama of the course has that alone"
        )
    return scaling


class TokenizerParts(NamedTuple):
    """What a byte-level BPE is made of.

    Attributes:
        tokens: in the order of their ids, written in ``byte_characters`` (``coursekit/text/bpe.py``).
        merges: pairs of tokens, first learned first.
        special_tokens: those of ``tokens`` that stand for themselves and are found first in a text.
        pre_tokenizer: llama.cpp's name for the expression that cuts texts before merging, such as ``"smollm"``.
    """

    tokens: list[str]
    merges: list[tuple[str, str]]
    special_tokens: list[str]
    pre_tokenizer: str


def tokenizer_parts(metadata: Mapping[str, Any]) -> TokenizerParts:
    """The parts of the tokenizer in a file.

    Raises:
        ValueError: it has none, or one of another kind.
    """
    prefix = "tokenizer.ggml."
    told = {name.removeprefix(prefix): value for name, value in metadata.items() if name.startswith(prefix)}
    if told.get("model") != "gpt2":
        raise ValueError(f"{prefix}model={told.get('model')!r}: only 'gpt2', a byte-level BPE, can be read")
    for name, kind in (("tokens", str), ("merges", str), ("token_type", int)):
        if not (isinstance(told.get(name), list) and told[name] and isinstance(told[name][0], kind)):
            raise ValueError(f"no {prefix}{name} in the file: its tokenizer is not whole")
    tokens, types = told["tokens"], told["token_type"]
    if len(types) != len(tokens):
        raise ValueError(f"{prefix}token_type has {len(types)} entries for {len(tokens)} tokens")
    merges = [tuple(pair.split(" ")) for pair in told["merges"]]
    for pair in merges:
        if len(pair) != 2:
            raise ValueError(f"the merge {' '.join(pair)!r} is not of two tokens")
    special_tokens = [token for token, kind in zip(tokens, types) if kind in SPECIAL]
    return TokenizerParts(tokens, merges, special_tokens, told.get("pre", "default"))
