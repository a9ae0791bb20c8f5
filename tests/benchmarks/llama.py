"""Llama beside transformers' at the same shapes, with the same weights: training, writing, loading."""

import tempfile
from collections.abc import Callable, Iterator
from functools import partial

import torch

from coursekit.convert.llama import to_hugging_face
from coursekit.models.llama import Llama, LlamaConfig
from tests.benchmarks.gpt import Both, beside
from tests.benchmarks.machine import devices
from tests.benchmarks.shared import PAR, Row, race

OURS = LlamaConfig(vocab_size=2048, d_model=256, n_heads=4, n_kv_heads=2, d_ff=683, n_layers=4, tied=True)
# name: configuration, B, T, passes in a measurement; tokens that are written, texts at once: aim
SHAPES = {
    "4 blocks of 256": (OURS, 16, 128, 3, (200, {1: 1.1, 16: 1.1})),
    "SmolLM2 135M": (LlamaConfig.smollm2_135m(), 2, 128, 1, (30, {1: PAR})),
}


def both(config: LlamaConfig, B: int, T: int, device: torch.device) -> Both:
    """Ours, theirs, and a batch without padding."""
    from transformers import LlamaConfig as TheirConfig
    from transformers import LlamaForCausalLM

    torch.manual_seed(0)
    ours = Llama(config)
    told, weights = to_hugging_face(ours)
    no_ends = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    theirs = LlamaForCausalLM(TheirConfig(**told | no_ends, attn_implementation="sdpa"))
    missing, unknown = theirs.load_state_dict(weights, strict=False)
    if unknown or set(missing) - {"lm_head.weight"}:
        raise ValueError(f"not the same weights: {missing} missing, {unknown} unknown")
    return ours.to(device), theirs.to(device), torch.randint(config.vocab_size, (B, T), device=device)


def rows(shape: str, device: torch.device) -> Iterator[Row]:
    config, B, T, times, written = SHAPES[shape]
    yield from beside("12 Llama", shape, device, both(config, B, T, device), times, written)


def loading() -> Iterator[Row]:
    """From a folder as the hub has it, and a first pass. Theirs maps the file, ours is a copy in memory."""
    from transformers import LlamaForCausalLM

    theirs, ids = both(SHAPES["SmolLM2 135M"][0], 1, 8, torch.device("cpu"))[1:]
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        what = "SmolLM2 135M: loading and a pass over 8 tokens"
        of = Row("12 Llama", what, "transformers' from_pretrained", at_least=PAR)
        kinds = Llama, LlamaForCausalLM
        yield race(of, *(partial(lambda kind: kind.from_pretrained(folder)(ids), kind) for kind in kinds))


def parts() -> list[Callable[[], Iterator[Row]]]:
    return [*(partial(rows, shape, device) for device in devices() for shape in SHAPES), loading]
