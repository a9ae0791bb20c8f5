"""GGUF files, which the library's writer makes here: the model beside transformers reading the same file, and bad ones.

What stands in the file of SmolLM2 that ``coursekit fetch`` gets is in ``tests/full.py``.
"""

import importlib
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Type
from gguf import GGUFValueType, GGUFWriter, quants
from hypothesis import example, given
from hypothesis import strategies as st

from coursekit.convert import gguf
from coursekit.convert.gguf import load_gguf, read_gguf, read_q4_1, read_q8_0, tokenizer_parts
from coursekit.convert.llama import to_hugging_face
from coursekit.models.llama import Llama, LlamaConfig
from coursekit.nn.rotary import RotaryScaling
from coursekit.recipes.smollm2 import load as load_with_tokenizer
from coursekit.text.bpe import BPE
from coursekit.text.chat import chat_ids
from coursekit.text.pre_tokens import kind_of
from tests.conftest import randomise

V, T = 40, 12
SIZES = {"vocab_size": V, "d_model": 64, "n_heads": 4, "n_kv_heads": 2, "d_ff": 96, "n_layers": 2, "max_length": 32}
MODELS = {
    "tied": {"tied": True},
    "output matrix, all heads": {"n_kv_heads": 4, "rotary_base": 100.0, "eps": 1e-6},
    "large heads": {"d_head": 32},
}
THEIRS = {  # Hugging Face's -> llama.cpp's
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "model.layers": "blk",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "input_layernorm": "attn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "post_attention_layernorm": "ffn_norm",
}


def all_of(kind: Type):
    return lambda name, weight: kind if weight.ndim > 1 else Type.F32


def as_in_smollm2(name: str, weight: np.ndarray) -> Type:
    """Those of the file that ``coursekit fetch`` gets."""
    return Type.Q8_0 if name == "token_embd.weight" else all_of(Type.Q4_1)(name, weight)


KINDS = {
    "F32": all_of(Type.F32),
    "F16": all_of(Type.F16),
    "BF16": all_of(Type.BF16),
    "Q4_0": all_of(Type.Q4_0),
    "Q5_1": all_of(Type.Q5_1),
    "Q8_0": all_of(Type.Q8_0),
    "SmolLM2": as_in_smollm2,
}


def llama(seed: int = 0, **changes) -> Llama:
    model = randomise(Llama(LlamaConfig(**SIZES | changes)), seed).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "norm" in name:
                p += 1
    return model


def permuted(weight: np.ndarray, n_heads: int) -> np.ndarray:
    """As llama.cpp's converter writes queries and keys."""
    return weight.reshape(n_heads, 2, len(weight) // n_heads // 2, -1).swapaxes(1, 2).reshape(weight.shape)


def settings_of(c: LlamaConfig) -> dict:
    found = {"embedding_length": c.d_model, "feed_forward_length": c.d_ff, "block_count": c.n_layers}
    found |= {"attention.head_count": c.n_heads, "attention.head_count_kv": c.n_kv_heads}
    found |= {"context_length": c.max_length, "rope.dimension_count": c.head_size, "vocab_size": c.vocab_size}
    found |= {"attention.layer_norm_rms_epsilon": c.eps, "rope.freq_base": c.rotary_base}
    return found | ({"attention.key_length": c.head_size, "attention.value_length": c.head_size} if c.d_head else {})


def weights_of(model: Llama) -> dict[str, np.ndarray]:
    found = {}
    for name, tensor in to_hugging_face(model)[1].items():
        weight = tensor.numpy()
        if "q_proj" in name or "k_proj" in name:
            weight = permuted(weight, model.config.n_heads if "q_proj" in name else model.config.n_kv_heads)
        for theirs, short in THEIRS.items():
            name = name.replace(theirs, short)
        found[name] = weight
    return found


def add(writer: GGUFWriter, name: str, value) -> None:
    kinds = {bool: GGUFValueType.BOOL, int: GGUFValueType.UINT32, float: GGUFValueType.FLOAT32}
    kinds |= {str: GGUFValueType.STRING, list: GGUFValueType.ARRAY}
    if value is not None:
        writer.add_key_value(name, value, kinds[type(value)])


def write(
    path: Path, model: Llama, kind=as_in_smollm2, settings=(), weights=(), tokenizer=(), architecture="llama"
) -> Path:
    """A file of the model, with ``settings`` and ``weights`` changed; None leaves one out."""
    writer = GGUFWriter(path, architecture)
    for name, value in {**settings_of(model.config), **dict(settings)}.items():
        add(writer, f"llama.{name}", value)
    for name, value in dict(tokenizer).items():
        add(writer, f"tokenizer.ggml.{name}", value)
    for name, weight in {**weights_of(model), **dict(weights)}.items():
        if weight is not None:
            chosen = kind(name, weight)
            data = weight if chosen is Type.I8 else quants.quantize(np.ascontiguousarray(weight), chosen)
            writer.add_tensor(name, data, raw_dtype=chosen)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def theirs_of(path: Path):
    """Their model of the same file; ``from_pretrained`` does this too, but asks for a package more."""
    import transformers
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**load_gguf_checkpoint(path)["config"]))
    found = model.load_state_dict(load_gguf_checkpoint(path, True, model)["tensors"], strict=False)
    assert not found.unexpected_keys
    assert found.missing_keys == (["lm_head.weight"] if model.config.tie_word_embeddings else [])
    return model.eval()


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "model.gguf"


# --- blocks ---------------------------------------------------------------------------------------------------


@given(st.binary(min_size=32, max_size=32), st.floats(-100, 100, width=16))
@example(bytes(range(240, 256)) * 2, 0.5)
def test_a_block_of_q8_0_is_read_as_the_library_reads_it(integers, scale):
    block = np.float16(scale).tobytes() + integers
    d, q = read_q8_0(block)
    assert np.array_equal(np.float32(d) * q, quants.dequantize(np.frombuffer(block, np.uint8), Type.Q8_0))
    assert (d, q.tolist()) == (scale, [b - 256 if b > 127 else b for b in integers])


@given(st.binary(min_size=16, max_size=16), st.floats(-100, 100, width=16), st.floats(-100, 100, width=16))
@example(bytes(range(0x0F, 0xFF, 0xF)), 0.5, -2.0)
def test_a_block_of_q4_1_is_read_as_the_library_reads_it(nibbles, scale, minimum):
    block = np.float16(scale).tobytes() + np.float16(minimum).tobytes() + nibbles
    d, m, q = read_q4_1(block)
    found = np.float32(d) * q + np.float32(m)
    assert np.array_equal(found, quants.dequantize(np.frombuffer(block, np.uint8), Type.Q4_1))
    assert (d, m, q.tolist()) == (scale, minimum, [b % 16 for b in nibbles] + [b // 16 for b in nibbles])


def test_a_block_of_another_size_is_refused():
    with pytest.raises(ValueError, match="a block of 33 bytes: one of Q8_0 has 34"):
        read_q8_0(bytes(33))
    with pytest.raises(ValueError, match="a block of 34 bytes: one of Q4_1 has 20"):
        read_q4_1(bytes(34))


# --- models ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["F32", "SmolLM2"])
@pytest.mark.parametrize("changes", MODELS.values(), ids=MODELS)
def test_weights_and_logits_equal_transformers(path, changes, kind):
    model = load_gguf(write(path, llama(**changes), KINDS[kind]))
    theirs = theirs_of(path)
    assert not model.training
    expected = dict(theirs.named_parameters())
    found = to_hugging_face(model)[1]
    assert found.keys() == expected.keys()
    assert all(torch.equal(weight, expected[name]) for name, weight in found.items())
    ids = torch.randint(V, (2, T), generator=torch.Generator().manual_seed(0))
    logits = theirs(ids).logits
    assert logits.std() > 0.1, "it says nothing"
    torch.testing.assert_close(model(ids), logits, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("changes", MODELS.values(), ids=MODELS)
def test_what_is_written_in_float32_comes_back(path, changes):
    ours = llama(**changes)
    model = load_gguf(write(path, ours, KINDS["F32"]))
    assert model.config == ours.config
    state = ours.state_dict()
    assert model.state_dict().keys() == state.keys()
    assert all(torch.equal(x, state[name]) and x.is_contiguous() for name, x in model.state_dict().items())
    assert all(p.requires_grad and not p.is_meta for p in model.parameters())
    path.unlink()
    assert torch.isfinite(model(torch.zeros(1, 2, dtype=torch.long))).all(), "nothing of the file is needed any more"


@pytest.mark.parametrize("rows", [3, 7, 10**6])
@pytest.mark.parametrize("kind", KINDS)
def test_every_type_is_dequantised_as_by_the_library(path, kind, rows, monkeypatch):
    """However many rows at a time; V, on which it does not fall even, has its first and its last."""
    monkeypatch.setattr(gguf, "ROWS", rows)
    ours = llama()
    model = load_gguf(write(path, ours, KINDS[kind]))
    for name, ours_name in (("token_embd.weight", "tokens.weight"), ("blk.1.ffn_down.weight", None)):
        weight = weights_of(ours)[name]
        chosen = KINDS[kind](name, weight)
        expected = quants.dequantize(quants.quantize(weight, chosen), chosen)
        found = model.get_parameter(ours_name or "blocks.1.feed_forward.down.weight").detach().numpy()
        assert np.array_equal(found, expected)
        assert 0 <= np.abs(found - weight).max() < 0.1, "nothing was lost but precision"


MEMORY = """
import os, sys
from coursekit.convert.gguf import load_gguf
def told(name):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024
load_gguf(sys.argv[1])
open("/proc/self/clear_refs", "w").write("5")  # the peak begins anew
before = told("VmRSS")
model = load_gguf(sys.argv[2])
print(told("VmHWM") - before, sum(p.numel() for p in model.parameters()) * 4, os.path.getsize(sys.argv[2]))
"""


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="Linux alone tells the peak")
def test_the_weights_are_in_memory_once(tmp_path):
    """Nor is the largest tensor, half of them, there twice at any time."""
    small = write(tmp_path / "small.gguf", llama())
    large = write(tmp_path / "large.gguf", llama(vocab_size=60_000), KINDS["Q8_0"])
    run = [sys.executable, "-c", MEMORY, str(small), str(large)]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    peak, weights, file = map(int, done.stdout.split())
    assert weights > 30e6
    assert weights * 0.9 < peak < weights + file + 8e6


# --- settings -------------------------------------------------------------------------------------------------


def test_settings_that_a_file_may_leave_out(path):
    ours = llama(n_kv_heads=4)
    left_out = dict.fromkeys(("attention.head_count_kv", "rope.freq_base", "rope.dimension_count", "vocab_size"))
    assert load_gguf(write(path, ours, settings=left_out)).config == ours.config


def factors_of(scaling: RotaryScaling, size: int, base: float) -> np.ndarray:
    """As llama.cpp's converter writes them."""
    found = []
    for i in range(size // 2):
        wavelength = 2 * math.pi * base ** (2 * i / size)
        if wavelength < scaling.original / scaling.high:
            found.append(1.0)
        elif wavelength > scaling.original / scaling.low:
            found.append(scaling.factor)
        else:
            smooth = (scaling.original / wavelength - scaling.low) / (scaling.high - scaling.low)
            found.append(1 / ((1 - smooth) / scaling.factor + smooth))
    return np.array(found, np.float32)


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_the_scaling_of_llama_3_is_read_from_its_factors(path, factor):
    ours = llama(d_head=32, rotary_base=500_000.0, rotary_scaling=RotaryScaling(factor=factor))
    factors = factors_of(ours.config.rotary_scaling, 32, 500_000.0)
    assert len(set(factors.tolist())) > 2, "some are between"
    model = load_gguf(write(path, ours, KINDS["F32"], weights={"rope_freqs.weight": factors}))
    assert model.config == ours.config
    ids = torch.arange(32)[None]
    torch.testing.assert_close(model(ids), ours(ids))
    for other in (factors_of(RotaryScaling(factor, original=4096), 32, 500_000.0), np.full(16, 2.0, np.float32)):
        write(path, ours, weights={"rope_freqs.weight": other})
        with pytest.raises(ValueError, match=r"rope_freqs\.weight has other factors than Llama 3's scaling"):
            load_gguf(path)


# --- what is refused ------------------------------------------------------------------------------------------


def refused(path: Path, words: str) -> None:
    with pytest.raises(ValueError, match=words) as error:
        load_gguf(path)
    said = str(error.value)
    assert said.startswith(f"{path}")
    assert "\n" not in said
    assert len(said) < 350


def test_another_architecture_is_refused_and_told_what_it_would_need(path):
    write(path, llama(), architecture="qwen2")
    refused(path, "architecture 'qwen2': only 'llama' is read; another one would need the names of its settings and")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"block_count": None}, r"no llama\.block_count in the file: it is not that of a llama"),
        ({"attention.head_count": [4, 4]}, r"llama\.attention\.head_count=\[4, 4\]: must be a number, the same"),
        ({"context_length": "long"}, r"llama\.context_length='long': must be a number"),
        ({"context_length": 0}, "max_length=0: must be at least 1"),
        ({"attention.head_count": 3, "attention.head_count_kv": 3}, "n_heads=3: must divide d_model=64"),
        ({"attention.head_count": 8}, r"llama\.rope\.dimension_count=16: all of a head of 8 is one size"),
        ({"attention.value_length": 8}, r"llama\.attention\.value_length=8: all of a head of 16 is one size"),
        ({"expert_count": 8}, r"llama\.expert_count=8: a Llama of the course has 0"),
        ({"rope.scaling.type": "yarn"}, r"llama\.rope\.scaling\.type='yarn': a Llama of the course has 'none'"),
        ({"rope.scaling.factor": 4.0}, r"llama\.rope\.scaling\.factor=4\.0: a Llama of the course has 1\.0"),
        ({"attention.sliding_window": 8}, r"llama\.attention\.sliding_window=8: a Llama of the course has 0"),
        ({"block_count": 3}, r"no weight blk\.2\.attn_q\.weight, so this is no llama of the configuration's size"),
        ({"block_count": 2**32 - 1}, r"no weight blk\.2\.attn_q\.weight"),
        ({"block_count": 1}, r"a Llama of the course has no place for blk\.1\.attn_k\.weight"),
        ({"feed_forward_length": 97}, r"blk\.0\.ffn_gate\.weight of \(96, 64\): the configuration says \(97, 64\)"),
        ({"embedding_length": 2**32 - 8, "feed_forward_length": 2**32 - 1, "rope.dimension_count": None},
         "the configuration's sizes are larger than any tensor's"),
    ],
)  # fmt: skip
def test_settings_that_do_not_fit_are_refused(path, settings, words):
    write(path, llama(), settings=settings)
    refused(path, words)


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ({"token_embd.weight": None}, r"no weight token_embd\.weight, so this is no llama"),
        ({"blk.1.attn_k.weight": None}, r"no weight blk\.1\.attn_k\.weight, so this is no llama of"),
        ({"blk.1.attn_k.weight": np.ones((64, 64), np.float32)}, r"attn_k\.weight of \(64, 64\): the .* \(32, 64\)"),
        (
            {"blk.0.attn_q.bias": np.ones(64, np.float32)},
            r"a Llama of the course has no place for blk\.0\.attn_q\.bias",
        ),
        ({"rope_freqs.weight": np.ones(4, np.float32)}, r"rope_freqs\.weight of \(4,\): a head has 8 pairs"),
        ({"output_norm.weight": np.ones((1, 64), np.float32)}, r"output_norm\.weight of \(1, 64\): .* says \(64,\)"),
    ],
)
def test_weights_that_do_not_fit_are_refused(path, weights, words):
    write(path, llama(), KINDS["F32"], weights=weights)
    refused(path, words)


def test_a_type_that_cannot_be_dequantised_is_refused(path):
    weight = np.ones((96, 64), np.int8)
    write(path, llama(), weights={"blk.0.ffn_up.weight": weight},
          kind=lambda name, weight: Type.I8 if weight.dtype == np.int8 else Type.F32)  # fmt: skip
    refused(path, r"blk\.0\.ffn_up\.weight is of type I8, which the library gguf cannot dequantise")


# --- bad files ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def content(tmp_path_factory) -> bytes:
    sizes = {"vocab_size": 32, "d_model": 32, "n_heads": 2, "n_kv_heads": 1, "d_ff": 32, "n_layers": 1}
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    tokens = [f"t{i}" for i in range(32)]
    parts = {"model": "gpt2", "tokens": tokens, "token_type": [1] * 32, "merges": ["t 1"], "pre": "smollm"}
    return write(path, llama(**sizes), tokenizer=parts).read_bytes()


def loads_or_is_refused(path: Path, content: bytes) -> bool:
    path.write_bytes(content)
    said = ""
    try:
        load_gguf(path)
    except ValueError as error:
        said = str(error)
    assert not said or said.startswith(f"{path}")
    assert "\n" not in said
    return not said


def test_a_file_that_ends_too_early_is_refused(path, content):
    assert loads_or_is_refused(path, content)
    for end in [*range(0, 200), *range(200, len(content), 97), len(content) - 1]:
        assert not loads_or_is_refused(path, content[:end]), end


def test_what_is_no_gguf_is_refused(path, tmp_path):
    for other in (b"", b"GGUF", b"PK\x03\x04" + bytes(100), bytes(100)):
        path.write_bytes(other)
        refused(path, "cannot be read as GGUF")
    with pytest.raises(FileNotFoundError):
        load_gguf(tmp_path / "nowhere.gguf")


@given(st.data())
def test_a_damaged_file_loads_or_is_refused(content, tmp_path_factory, data):
    """Nothing else is raised, and no size that a file invents is believed."""
    header = content.index(b"blk.0.attn_q") + 2000
    damaged = bytearray(content)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, header))] = data.draw(st.integers(0, 255))
    loads_or_is_refused(tmp_path_factory.getbasetemp() / "damaged.gguf", bytes(damaged))


def test_numbers_that_damage_made_infinite_are_no_warning(path, content):
    """One damaged byte, found by the test above once in thousands: the library adds an infinite scale."""
    loads_or_is_refused(path, content[:1640] + b"\0" + content[1641:])


@pytest.mark.parametrize("entries", [2**31, 2**60, 2**64 - 1])
def test_an_array_that_says_it_is_endless_is_no_endless_work(path, content, entries):
    at = content.index(b"tokenizer.ggml.token_type") + len(b"tokenizer.ggml.token_type") + 8
    assert int.from_bytes(content[at : at + 8], "little") == 32
    assert not loads_or_is_refused(path, content[:at] + entries.to_bytes(8, "little") + content[at + 8 :])


def test_numbers_in_the_other_order_are_refused(path):
    from gguf import GGUFEndian

    writer = GGUFWriter(path, "llama", endianess=GGUFEndian.BIG)
    writer.add_uint32("llama.block_count", 1)
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file):
        step()
    writer.close()
    refused(path, "its numbers have their bytes in the other order, which gguf-convert-endian turns")


def test_without_the_library_one_is_told_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "gguf", None)
    monkeypatch.delitem(sys.modules, "coursekit.convert.gguf")
    with pytest.raises(ImportError, match=r"^GGUF files need the package gguf: pip install gguf$"):
        importlib.import_module("coursekit.convert.gguf")


# --- its tokenizer --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bpe() -> BPE:
    return BPE.train(["the cat sat on the mat, the cat sat"] * 3, 275, ["<|im_start|>", "<|im_end|>", "<think>"])


def parts_of(bpe: BPE) -> dict:
    kinds = [3 if token.startswith("<|") else 4 if token == "<think>" else 1 for token in bpe.tokens]
    merges = [f"{left} {right}" for left, right in bpe.merges]
    return {"model": "gpt2", "pre": "smollm", "tokens": bpe.tokens, "token_type": kinds, "merges": merges}


def test_the_tokenizers_parts_are_those_of_the_bpe_that_was_written(path, bpe):
    write(path, llama(vocab_size=len(bpe)), tokenizer=parts_of(bpe))
    parts = tokenizer_parts(read_gguf(path)[0])
    assert len(bpe.merges) > 5
    assert parts == (bpe.tokens, bpe.merges, bpe.special_tokens, "smollm")
    text = "<|im_start|>the cat, élan<think><|im_end|>"
    assert BPE(*parts[:3]).encode(text) == bpe.encode(text)
    write(path, llama(vocab_size=len(bpe)), tokenizer=parts_of(bpe) | {"pre": None})
    assert tokenizer_parts(read_gguf(path)[0]).pre_tokenizer == "default"


def test_a_chat_model_is_loaded_with_its_tokenizer(path, bpe):
    write(path, llama(vocab_size=len(bpe)), tokenizer=parts_of(bpe))
    model, tokenizer = load_with_tokenizer(path)
    assert tokenizer.kind == kind_of("smollm")
    prompt = chat_ids(tokenizer, ["the cat 12"])
    assert prompt == tokenizer.encode("<|im_start|>user\nthe cat 12<|im_end|>\n<|im_start|>assistant\n")
    ids = torch.tensor([prompt[: SIZES["max_length"]]])
    assert torch.equal(model(ids), load_gguf(path)(ids))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": "llama"}, r"tokenizer\.ggml\.model='llama': only 'gpt2', a byte-level BPE, can be read"),
        ({"model": None}, r"tokenizer\.ggml\.model=None: only 'gpt2'"),
        ({"merges": None}, r"no tokenizer\.ggml\.merges in the file: its tokenizer is not whole"),
        ({"tokens": [1, 2]}, r"no tokenizer\.ggml\.tokens in the file: its tokenizer is not whole"),
        ({"token_type": [1, 1]}, r"tokenizer\.ggml\.token_type has 2 entries for \d+ tokens"),
        ({"merges": ["t h e"]}, "the merge 't h e' is not of two tokens"),
    ],
)
def test_other_tokenizers_are_refused(path, bpe, changes, words):
    write(path, llama(), tokenizer=parts_of(bpe) | changes)
    with pytest.raises(ValueError, match=words):
        tokenizer_parts(read_gguf(path)[0])
