"""What a model's single file does when it is run: it trains a tiny model on made-up data.

``coursekit single NAME`` makes the function NAME the ``main`` of the file.
"""

from collections.abc import Callable
from copy import deepcopy

import torch
from torch import Tensor, nn

from coursekit.models.bert import Bert, BertConfig, BertForPreTraining, pretraining_loss
from coursekit.models.dino import DINO, DINOConfig, dino_loss
from coursekit.models.dpo import dpo_objective, pair_log_probs, with_reference
from coursekit.models.gpt import GPT, GPTConfig, gpt_loss
from coursekit.models.llama import Llama, LlamaConfig
from coursekit.models.transformer import Transformer, TransformerConfig, transformer_objective
from coursekit.models.vit import ViT, ViTConfig, vit_loss
from coursekit.nn.sampling import next_token


def train_tiny(model: nn.Module, loss_fn: Callable, draw: Callable[[], dict[str, Tensor]], lr: float = 3e-3) -> None:
    """200 updates as ``Training`` makes them, but without its schedules, clipping, records and files."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    for step in range(1, 201):
        loss_sum, count = loss_fn(model, draw())
        optimizer.zero_grad()
        (loss_sum / count).backward()
        optimizer.step()
        if hasattr(model, "update_teacher"):  # DINO
            model.update_teacher()
        if step == 1 or step % 50 == 0:
            print(f"update {step:3}: loss {loss_sum.item() / count.item():.3f}")


def count_up() -> Tensor:
    """Rows of digits that go up by 1, 2 or 3, with 0 after 9, (64, 12)."""
    start, by = torch.randint(10, (64, 1)), torch.randint(1, 4, (64, 1))
    return (start + by * torch.arange(12)) % 10


def learn_to_count(model: nn.Module) -> None:
    """Learn rows of digits, then write one on."""
    train_tiny(model, gpt_loss, lambda: {"ids": count_up()})
    ids = new = torch.tensor([[3, 5]])
    caches = model.eval().new_caches(10)  # keys and values of what was read, so that each step reads one token
    for _ in range(8):
        with torch.no_grad():
            new = next_token(model(new, caches=caches)[:, -1], temperature=0)[:, None]  # (B, 1)
        ids = torch.cat([ids, new], dim=1)
    print("3 5 goes on as", *ids[0, 2:].tolist())


def gpt() -> None:
    torch.manual_seed(0)
    learn_to_count(GPT(GPTConfig(10, d_model=32, n_heads=2, d_ff=64, n_layers=2, max_length=16, dropout=0.0)))


def llama() -> None:
    torch.manual_seed(0)
    learn_to_count(Llama(LlamaConfig(10, d_model=32, n_heads=4, n_kv_heads=2, d_ff=64, n_layers=2, max_length=16)))


def dpo() -> None:
    """Learn from pairs of answers that rows of digits are to go up evenly, though none was ever shown as a target."""
    torch.manual_seed(0)
    model = GPT(GPTConfig(10, d_model=32, n_heads=2, d_ff=64, n_layers=2, max_length=16, dropout=0.0))
    reference, real = deepcopy(model), torch.ones(64, 12, dtype=torch.bool)
    answer = real & (torch.arange(12) > 1)  # the first two digits are the prompt

    def draw() -> dict[str, Tensor]:
        chosen = count_up()
        pairs = {"chosen": chosen, "rejected": torch.where(answer, torch.randint(10, (64, 12)), chosen)}
        masks = {f"{side}_mask": real for side in pairs} | {f"{side}_answer": answer for side in pairs}
        return with_reference(reference, pairs | masks)

    train_tiny(model, dpo_objective(), draw, lr=1e-3)
    new = draw()
    chosen, rejected = (
        p - new[f"{side}_reference"] for side, p in zip(("chosen", "rejected"), pair_log_probs(model, new))
    )
    print(
        f"new pairs: the better answer gained more in {(chosen > rejected).float().mean().item():.0%}, by chance 50 %"
    )


def bert() -> None:
    """Learn to fill the blanks in rows of digits."""
    torch.manual_seed(0)
    blank = 10
    config = BertConfig(11, d_model=64, n_heads=4, d_ff=128, n_layers=2, max_length=16, dropout=0.0)
    model = BertForPreTraining(Bert(config))

    def draw() -> dict[str, Tensor]:
        rows = count_up()
        masked = torch.rand(rows.shape) < 0.2
        ids = rows.masked_fill(masked, blank)
        return {"ids": ids, "mask": torch.ones_like(masked), "masked": masked, "target": rows}

    train_tiny(model, pretraining_loss, draw)
    new = draw()
    logits, _ = model(new["ids"], where=new["masked"])  # (N, V)
    right = (logits.argmax(dim=-1) == new["target"][new["masked"]]).float().mean().item()
    print(f"blanks in new rows: {right:.0%} right, 10 % by chance")


def transformer() -> None:
    """Learn to translate five symbols into the same symbols from last to first."""
    torch.manual_seed(0)
    config = TransformerConfig(13, d_model=32, n_heads=2, d_ff=64, n_layers=2, max_length=8, dropout=0.0)
    model, real = Transformer(config), torch.ones(64, 5, dtype=torch.bool)

    def draw() -> dict[str, Tensor]:
        source = torch.randint(3, 13, real.shape)
        return {"source": source, "source_mask": real, "target": source.flip(1), "target_mask": real}

    train_tiny(model, transformer_objective(), draw)
    memory, written = model.encode(torch.tensor([[3, 4, 5, 6, 7]]), real[:1]), torch.tensor([[config.bos_id]])
    for _ in range(5):
        logits = model.decode(written, memory, real[:1])[:, -1]
        written = torch.cat([written, logits.argmax(dim=-1, keepdim=True)], dim=1)
    print("3 4 5 6 7 becomes", *written[0, 1:].tolist())


def vit() -> None:
    """Learn which quarter of a noisy image is brighter than the others."""
    torch.manual_seed(0)
    model = ViT(ViTConfig(16, 4, channels=1, d_model=32, n_heads=2, d_ff=64, n_layers=2, classes=4))

    def draw() -> dict[str, Tensor]:
        labels = torch.randint(4, (64,))
        quarters = torch.eye(4)[labels].view(64, 1, 2, 2)
        images = torch.randn(64, 1, 16, 16) + quarters.repeat_interleave(8, dim=2).repeat_interleave(8, dim=3)
        return {"images": images, "labels": labels}

    train_tiny(model, vit_loss, draw)
    new = draw()
    right = (model.eval()(new["images"]).argmax(dim=-1) == new["labels"]).float().mean().item()
    print(f"new images: {right:.0%} right, 25 % by chance")


def dino() -> None:
    """Learn from pairs of views that differ by noise. The teacher moves too, so the loss need not fall all the time."""
    torch.manual_seed(0)
    body = ViTConfig(16, 4, channels=1, d_model=32, n_heads=2, d_ff=64, n_layers=2, classes=0)
    options = {"teacher_temperature": (0.02, 0.02), "teacher_temperature_warmup": 0, "freeze_last_layer": 0}
    model = DINO(DINOConfig(body, d_head=64, bottleneck=32, out_dim=16, momentum=0.99, steps=200, **options))

    def draw() -> dict[str, Tensor]:
        images = torch.randn(64, 1, 1, 4, 4).repeat_interleave(4, dim=3).repeat_interleave(4, dim=4)
        return {"global": images + 0.5 * torch.randn(64, 2, 1, 16, 16)}

    train_tiny(model, dino_loss, draw, lr=3e-4)
    print("no collapse:", {name: round(number, 2) for name, number in model.diagnose(draw()).items()})
