"""The Transformer and its parts beside PyTorch's and transformers' at the same shapes."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import nn

from coursekit.convert.marian import from_marian
from coursekit.decode.translate import beam_search, greedy
from coursekit.models.transformer import Transformer, TransformerConfig
from coursekit.nn.attention import MultiHeadAttention
from coursekit.nn.blocks import Block, FeedForward
from coursekit.nn.masks import padding_mask
from tests.benchmarks.machine import devices, wait
from tests.benchmarks.shared import PAR, Row, race

TOPIC = "04 Transformer"
B, T, D, H, F, LAYERS, V, STEPS = 16, 64, 256, 4, 1024, 2, 1000, 40
FORWARD, TRAIN = 5, 3  # passes in a measurement
Work = Callable[[], object]


def forward(call: Work, device: torch.device) -> Callable[[], None]:
    def work() -> None:
        with torch.inference_mode():
            for _ in range(FORWARD):
                call()
        wait(device)

    return work


def train(module: nn.Module, call: Work, device: torch.device) -> Callable[[], None]:
    """Forward and backward pass and an update."""
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4, fused=True)

    def work() -> None:
        for _ in range(TRAIN):
            optimizer.zero_grad(set_to_none=True)
            call().pow(2).mean().backward()
            optimizer.step()
        wait(device)

    return work


def both_ways(
    what: str, against: str, ours: nn.Module, call: Work, theirs: nn.Module, their_call: Work, device: torch.device
) -> Iterator[Row]:
    """Forward, and a training step."""
    for module in (ours, theirs):
        module.eval()
    row = Row(TOPIC, f"{device}: {what}, forward", against, at_least=PAR, measured_in="passes/s")
    yield race(row, forward(call, device), forward(their_call, device), amount=FORWARD)
    for module in (ours, theirs):
        module.train()
    row = Row(TOPIC, f"{device}: {what}, training step", against, at_least=PAR, measured_in="steps/s")
    yield race(row, train(ours, call, device), train(theirs, their_call, device), amount=TRAIN)


def inputs(device: torch.device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Vectors, which of them are no padding, and ids."""
    torch.manual_seed(0)
    x = torch.randn(B, T, D, device=device)
    real = torch.arange(T, device=device) < torch.randint(T // 2, T + 1, (B, 1), device=device)
    return x, real, torch.randint(2, V, (B, T), device=device)


def attention(device: torch.device) -> Iterator[Row]:
    x, real, _ = inputs(device)
    mask = padding_mask(real)
    ours, theirs = MultiHeadAttention(D, H).to(device), nn.MultiheadAttention(D, H, batch_first=True).to(device)
    yield from both_ways(
        *("MultiHeadAttention", "torch.nn", ours, lambda: ours(x, mask=mask)),
        *(theirs, lambda: theirs(x, x, x, key_padding_mask=~real, need_weights=False)[0], device),
    )


def block(device: torch.device) -> Iterator[Row]:
    x, real, _ = inputs(device)
    mask = padding_mask(real)
    ours = Block(MultiHeadAttention(D, H), FeedForward(D, F), norm_first=False).to(device)
    theirs = nn.TransformerEncoderLayer(D, H, F, dropout=0.0, batch_first=True).to(device)
    call = ours, lambda: ours(x, mask=mask)
    yield from both_ways("Block", "torch.nn", *call, theirs, lambda: theirs(x, src_key_padding_mask=~real), device)


def block_beside_berts(device: torch.device) -> Iterator[Row]:
    from transformers import BertConfig
    from transformers.models.bert.modeling_bert import BertLayer

    x, real, _ = inputs(device)
    mask = padding_mask(real)
    ours = Block(MultiHeadAttention(D, H), FeedForward(D, F), norm_first=False).to(device)
    sizes = {"hidden_size": D, "num_attention_heads": H, "intermediate_size": F}
    no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "attn_implementation": "sdpa"}
    theirs = BertLayer(BertConfig(hidden_act="relu", **sizes, **no_dropout)).to(device)

    def their_call() -> torch.Tensor:
        out = theirs(x, attention_mask=mask)
        return out[0] if isinstance(out, tuple) else out

    call = ours, lambda: ours(x, mask=mask)
    yield from both_ways("Block", "transformers (BERT's layer)", *call, theirs, their_call, device)


def model(dropout: float = 0.0) -> Transformer:
    return Transformer(TransformerConfig(V, D, H, F, LAYERS, dropout=dropout, max_length=128))


def beside_pytorch(device: torch.device, dropout: float) -> tuple[Transformer, Work, nn.Module, Work]:
    """Ours and theirs, each with a call; both read our embedding."""
    _, real, source = inputs(device)
    ours = model(dropout).to(device)
    theirs = nn.Transformer(D, H, LAYERS, LAYERS, F, dropout=dropout, batch_first=True).to(device)
    later = nn.Transformer.generate_square_subsequent_mask(T, device=device)

    def their_call() -> torch.Tensor:
        out = theirs(
            *(ours.embed(source), ours.embed(source)),
            tgt_mask=later,
            src_key_padding_mask=torch.zeros_like(real, dtype=torch.float).masked_fill(~real, -torch.inf),
            memory_key_padding_mask=torch.zeros_like(real, dtype=torch.float).masked_fill(~real, -torch.inf),
            tgt_is_causal=True,
        )
        return out @ ours.embedding.weight.T

    return ours, lambda: ours(source, real, source), theirs, their_call


def whole(device: torch.device) -> Iterator[Row]:
    yield from both_ways("Transformer", "torch.nn", *beside_pytorch(device, dropout=0.0), device)


def whole_with_dropout(device: torch.device) -> Iterator[Row]:
    ours, call, theirs, their_call = beside_pytorch(device, dropout=0.1)
    what, aim = f"{device}: Transformer with dropout, training step", 1.1 if device.type == "cpu" else PAR
    row = Row(TOPIC, what, "torch.nn", at_least=aim, measured_in="steps/s")
    yield race(row, train(ours, call, device), train(theirs, their_call, device), amount=TRAIN)


def marian(device: torch.device) -> nn.Module:
    from transformers import MarianConfig, MarianMTModel

    sizes = {}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_layers": LAYERS, f"{side}_attention_heads": H, f"{side}_ffn_dim": F}
    settings = {"scale_embedding": True, "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
    settings |= {"activation_function": "relu", "forced_eos_token_id": None, "dropout": 0.0}
    return MarianMTModel(MarianConfig(vocab_size=V, d_model=D, max_position_embeddings=128, **sizes, **settings)).to(
        device
    )


def whole_beside_marian(device: torch.device) -> Iterator[Row]:
    _, real, source = inputs(device)
    ours, theirs = model().to(device), marian(device)
    given = {"input_ids": source, "attention_mask": real.long(), "decoder_input_ids": source}
    yield from both_ways(
        *("Transformer", "transformers (Marian)", ours, lambda: ours(source, real, source)),
        *(theirs, lambda: theirs(**given).logits, device),
    )


def decoding(device: torch.device) -> Iterator[Row]:
    """Forty steps with caches, the same weights; nothing ends early."""
    torch.manual_seed(0)
    theirs = marian(device).eval()
    theirs.final_logits_bias[:, :2] = -1e9
    ours = from_marian(theirs.config.to_dict(), theirs.state_dict()).to(device)
    source = torch.randint(2, V, (B, T // 4), device=device)
    mask = torch.ones_like(source).bool()

    def generate(beams: int):
        settings = {"num_beams": beams, "do_sample": False, "max_new_tokens": STEPS, "length_penalty": 0.6}
        if beams == 1:
            del settings["length_penalty"]
        return theirs.generate(input_ids=source, attention_mask=mask.long(), **settings)

    assert torch.equal(generate(1)[:, 1:], greedy(ours, source, mask, STEPS)), "other words than theirs"
    for what, beams, search in (
        ("greedy", 1, lambda: greedy(ours, source, mask, STEPS)),
        ("4 beams", 4, lambda: beam_search(ours, source, mask, 4, 0.6, STEPS)),
    ):
        row = Row(TOPIC, f"{device}: decoding, {what}, {STEPS} steps", "transformers' generate", at_least=1.2)
        yield race(
            row,
            lambda search=search: (search(), wait(device)),
            lambda beams=beams: (generate(beams), wait(device)),
        )


def parts() -> list[Callable[[], Iterator[Row]]]:
    found = (attention, block, block_beside_berts, whole, whole_with_dropout, whole_beside_marian, decoding)
    return [partial(part, device) for device in devices() for part in found]
