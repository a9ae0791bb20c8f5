"""GPT beside transformers' GPT-2 at the same shapes, with the same weights.

Their training step has their loss, which is of the same tokens; their generation has their cache.
"""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import nn

from coursekit.convert.gpt import from_hugging_face
from coursekit.decode.generate import generate
from coursekit.decode.rollout import rollout
from coursekit.models.gpt import GPT, gpt_loss
from coursekit.models.llama import Llama
from coursekit.nn.log_probs import token_log_probs
from coursekit.train.device import has_fast_bf16
from tests.benchmarks.machine import devices, least, mean, training, wait
from tests.benchmarks.shared import PAR, Row, race

# name: B, T, D, H, blocks, V, passes in a measurement
SHAPES = {"4 blocks of 256": (16, 128, 256, 4, 4, 2048, 3), "GPT-2 small": (2, 128, 768, 12, 12, 50_257, 1)}
FOR_GPUS = {"GPT-2 small, 1,024 tokens": (12, 1024, 768, 12, 12, 50_257, 5)}  # what fills one
# tokens that are written; texts at once: aim. GPT-2 small's half a gigabyte of weights is read for each of them.
WRITTEN = {"4 blocks of 256": (200, {1: 1.25, 16: 1.2}), "GPT-2 small": (30, {1: PAR})}
DRAWN = {"4 blocks of 256": (64, 40, 1.2)}  # texts; tokens of a rollout; aim
LIMIT = 0.75  # of a step's time, for what it can't do without
Both = tuple[GPT | Llama, nn.Module, torch.Tensor]


def both(shape: str, device: torch.device) -> Both:
    """Ours, theirs, and a batch without padding. No dropout, whose kernels would be measured instead."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    B, T, D, H, blocks, V, _ = (SHAPES | FOR_GPUS)[shape]
    config = GPT2Config(
        **{"vocab_size": V, "n_embd": D, "n_head": H, "n_layer": blocks, "n_positions": max(T, 256)},
        **{"bos_token_id": None},
        **{"eos_token_id": None, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
        **{"attn_implementation": "sdpa"},
    )
    theirs = GPT2LMHeadModel(config).to(device)
    ours = from_hugging_face(GPT, config.to_dict(), theirs.state_dict()).to(device)
    return ours, theirs, torch.randint(V, (B, T), device=device)


def train(model: nn.Module, ids: torch.Tensor, precision: str, times: int) -> Callable[[], None]:
    """Training steps as each library's users take them."""

    def loss() -> torch.Tensor:
        if isinstance(model, (GPT, Llama)):
            return mean(gpt_loss(model, {"ids": ids}))
        return model(ids, labels=ids).loss

    return training(model, loss, ids.device, precision, times)


def write(model: nn.Module, new: int, batch_size: int, device: torch.device) -> Callable[[], None]:
    """The most likely tokens behind prompts of 8, one after another with cached keys and values."""
    model.eval()
    ids = torch.arange(8, device=device).expand(batch_size, -1).contiguous()

    def work() -> None:
        if isinstance(model, (GPT, Llama)):
            generate(model, ids, max_new=new, temperature=0)
        else:
            with torch.inference_mode():
                model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, do_sample=False)
        wait(device)

    return work


def draw(model: nn.Module, new: int, batch_size: int, device: torch.device) -> Callable[[], None]:
    """Answers that are drawn, and how likely each of their tokens was: what a policy learns from."""
    model.eval()
    ids = torch.arange(8, device=device).expand(batch_size, -1).contiguous()
    end = 0  # hardly ever drawn, and all texts are written on until each has ended: both write as many

    def work() -> None:
        if isinstance(model, (GPT, Llama)):
            rollout(model, ids, None, end, new)
        else:
            with torch.inference_mode():
                options = {"max_new_tokens": new, "do_sample": True, "top_k": 0}
                written = model.generate(ids, attention_mask=torch.ones_like(ids), **options)
                token_log_probs(model(written).logits, written)
        wait(device)

    return work


def matrices(model: GPT | Llama) -> list[torch.Tensor]:
    """The weights that every token is multiplied with."""
    return [p for name, p in model.named_parameters() if p.dim() == 2 and name != "positions.encoding"]


def beside(
    topic: str, shape: str, device: torch.device, both: Both, times: int, written: tuple[int, dict[int, float]]
) -> Iterator[Row]:
    """Training, how much of it none can do without, and generation at one shape."""
    ours, theirs, ids = both

    def row(what: str, against: str, aim: float, unit: str = "", rate: str = "tokens/s") -> Row:
        return Row(topic, f"{device}: {shape}: {what}", against, at_least=aim, unit=unit, measured_in=rate)

    for precision, aim in (("float32", PAR), ("bfloat16", 1.4)):
        if precision == "float32" or has_fast_bf16(device):
            rival = "float32" if device.type == "cpu" else precision  # as its users take it
            of = row(f"training, {precision}", f"transformers, {rival}", aim)
            works = train(ours, ids, precision, times), train(theirs, ids, rival, times)
            yield race(of, *works, amount=ids.numel() * times)
    of = row("training, float32: share of the limit", "its matrix products and AdamW alone", LIMIT, "%", "1/s")
    yield race(of, train(ours, ids, "float32", times), least(ours, matrices(ours), ids), factor=times, amount=1)
    new, aims = written
    for batch_size, aim in aims.items():
        of = row(f"{new} tokens, {batch_size} texts", "transformers' generate", aim)
        works = write(ours, new, batch_size, device), write(theirs, new, batch_size, device)
        yield race(of, *works, amount=new * batch_size)


def rows(shape: str, device: torch.device) -> Iterator[Row]:
    made, times = both(shape, device), (SHAPES | FOR_GPUS)[shape][-1]
    yield from beside("06 GPT", shape, device, made, times, WRITTEN.get(shape, (0, {})))
    if shape in DRAWN:
        batch_size, new, aim = DRAWN[shape]
        what, against = f"rollout, {new} tokens, {batch_size} texts", "transformers' generate, then a pass"
        of = Row("06 GPT", f"{device}: {shape}: {what}", against, at_least=aim, measured_in="tokens/s")
        works = draw(made[0], new, batch_size, device), draw(made[1], new, batch_size, device)
        yield race(of, *works, amount=new * batch_size)


def parts() -> list[Callable[[], Iterator[Row]]]:
    found = [partial(rows, shape, device) for device in devices() for shape in SHAPES]
    return found + [partial(rows, shape, device) for device in devices() if device.type == "cuda" for shape in FOR_GPUS]
