"""The Transformer and its parts beside PyTorch's and transformers' at the same shapes: seconds of both, in one run.

``python -m tests.bench_transformer`` prints a table; a ratio above 1 means that ours is faster. On cuda too, where
there is one.
"""

from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from coursekit.convert.marian import from_marian
from coursekit.decode.translate import beam_search, greedy
from coursekit.models.transformer import Transformer, TransformerConfig
from coursekit.nn.attention import MultiHeadAttention
from coursekit.nn.blocks import Block
from coursekit.nn.masks import padding_mask
from tests.bench import ROUNDS, alternate

B, T, D, H, F, LAYERS, V, STEPS = 16, 64, 256, 4, 1024, 2, 1000, 40
Work = Callable[[], object]


def forward(call: Work, device: torch.device) -> Callable[[], None]:
    def work() -> None:
        with torch.inference_mode():
            for _ in range(5):
                call()
        wait(device)

    return work


def train(module: nn.Module, call: Work, device: torch.device) -> Callable[[], None]:
    """Forward and backward pass and an update."""
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4, fused=True)

    def work() -> None:
        for _ in range(3):
            optimizer.zero_grad(set_to_none=True)
            call().pow(2).mean().backward()
            optimizer.step()
        wait(device)

    return work


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


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


def pairs(device: torch.device) -> list[tuple[str, nn.Module, Work, nn.Module, Work]]:
    """What, ours and how to call it, theirs and how to call it."""
    from transformers import BertConfig
    from transformers.models.bert.modeling_bert import BertLayer

    x = torch.randn(B, T, D, device=device)
    real = torch.arange(T, device=device) < torch.randint(T // 2, T + 1, (B, 1), device=device)
    source = torch.randint(2, V, (B, T), device=device)
    mask = padding_mask(real)

    def made(module: nn.Module) -> nn.Module:
        return module.to(device)

    ours, theirs = made(MultiHeadAttention(D, H)), made(nn.MultiheadAttention(D, H, batch_first=True))
    found = [
        (
            "MultiHeadAttention, torch.nn",
            *(ours, lambda m=ours: m(x, mask=mask)),
            *(theirs, lambda m=theirs: m(x, x, x, key_padding_mask=~real, need_weights=False)[0]),
        )
    ]
    ours = made(Block(D, H, F, norm_first=False))
    theirs = made(nn.TransformerEncoderLayer(D, H, F, dropout=0.0, batch_first=True))
    call = (ours, lambda m=ours: m(x, mask=mask))
    found.append(("Block, torch.nn", *call, theirs, lambda m=theirs: m(x, src_key_padding_mask=~real)))
    sizes = {"hidden_size": D, "num_attention_heads": H, "intermediate_size": F}
    no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "attn_implementation": "sdpa"}
    theirs = made(BertLayer(BertConfig(hidden_act="relu", **sizes, **no_dropout)))

    def bert_layer(m=theirs):
        out = m(x, attention_mask=mask)
        return out[0] if isinstance(out, tuple) else out

    found.append(("Block, transformers (BERT's layer)", *call, theirs, bert_layer))
    config = TransformerConfig(V, D, H, F, LAYERS, dropout=0.0, max_length=128)
    ours, theirs = (
        made(Transformer(config)),
        made(nn.Transformer(D, H, LAYERS, LAYERS, F, dropout=0.0, batch_first=True)),
    )
    embedding, later = ours.embedding, nn.Transformer.generate_square_subsequent_mask(T, device=device)

    def torchs(m=theirs):
        out = m(
            *(ours.embed(source), ours.embed(source)),
            tgt_mask=later,
            src_key_padding_mask=torch.zeros_like(real, dtype=torch.float).masked_fill(~real, -torch.inf),
            memory_key_padding_mask=torch.zeros_like(real, dtype=torch.float).masked_fill(~real, -torch.inf),
            tgt_is_causal=True,
        )
        return out @ embedding.weight.T

    call = (ours, lambda m=ours: m(source, real, source))
    found.append(("Transformer, torch.nn", *call, theirs, torchs))
    theirs = marian(device)
    inputs = {"input_ids": source, "attention_mask": real.long(), "decoder_input_ids": source}
    found.append(("Transformer, transformers (Marian)", *call, theirs, lambda m=theirs: m(**inputs).logits))
    return found


def decoding(device: torch.device) -> list[tuple[str, Work, Work]]:
    """Forty steps with caches, the same weights; nothing ends early."""
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

    assert torch.equal(generate(1)[:, 1:], greedy(ours, source, mask, STEPS))

    def ours_and_theirs(beams: int, search: Work) -> tuple[Work, Work]:
        return lambda: (search(), wait(device)), lambda: (generate(beams), wait(device))

    return [
        ("greedy, 40 steps, transformers' generate", *ours_and_theirs(1, lambda: greedy(ours, source, mask, STEPS))),
        (
            "4 beams, 40 steps, transformers' generate",
            *ours_and_theirs(4, lambda: beam_search(ours, source, mask, 4, 0.6, STEPS)),
        ),
    ]


def main() -> None:
    torch.manual_seed(0)
    console = Console()
    for name in ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]:
        device = torch.device(name)
        shapes = f"B {B}, T {T}, D {D}, H {H}, F {F}, {LAYERS} + {LAYERS} layers, {V} words"
        title = f"{name}, {torch.get_num_threads()} threads, {shapes}; medians of {ROUNDS} rounds"
        table = Table("what", "ours", "theirs", "theirs / ours", "aim", title=title)

        def add(what, ours, theirs, aim, table=table):
            a, b, ratio = alternate(ours, theirs)
            table.add_row(what, f"{a * 1e3:.0f} ms", f"{b * 1e3:.0f} ms", f"{ratio:.2f}", aim)

        for what, ours, call, theirs, their_call in pairs(device):
            for module in (ours, theirs):
                module.eval()
            add(f"forward: {what}", forward(call, device), forward(their_call, device), "≥ 1.0")
            for module in (ours, theirs):
                module.train()
            add(f"training step: {what}", train(ours, call, device), train(theirs, their_call, device), "≥ 1.0")
        for what, ours, theirs in decoding(device):
            add(f"decoding: {what}", ours, theirs, "≥ 1.2")
        console.print(table)


if __name__ == "__main__":
    main()
