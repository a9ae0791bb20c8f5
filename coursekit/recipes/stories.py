"""A small GPT that tells stories of the world, with plots, and a judge's opinion of them.

``python -m coursekit.recipes.stories`` trains it on stories that are told anew for every pass, so that it reads none
twice, and writes ``checkpoints/stories`` beside this file: weights in eight bits, the tokenizer, and ``metrics.json``.
It can be stopped and started again at will.
"""

import json
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from torch import nn

from coursekit.convert.eight_bits import from_eight_bits, in_eight_bits
from coursekit.convert.gpt import DROPOUTS, from_hugging_face, to_hugging_face
from coursekit.convert.hub import read_model, write_model
from coursekit.data.batches import Batch
from coursekit.data.packing import pack
from coursekit.data.pretraining import Redrawn
from coursekit.data.world import stories
from coursekit.data.world.judge import judged, novelty, split_sentences
from coursekit.data.world.plain_judge import judge_plain
from coursekit.data.world.plots import tales
from coursekit.decode.text import complete
from coursekit.evaluate.language import SlidingWindow, distinct_n, perplexity
from coursekit.models.gpt import GPT, GPTConfig, gpt_loss
from coursekit.models.ngram import KneserNey, NGram
from coursekit.recipes import CHECKPOINTS, gpt
from coursekit.recipes.runs import Clock, data_hash, read_command, report, to_the_end, versions
from coursekit.text.bpe import BPE, END
from coursekit.text.tokenizer_json import load_tokenizer, save_tokenizer
from coursekit.train import Training, adamw, device, distributed, seed, warmup_cosine
from coursekit.train.checkpoint import load_weights, save_json

FOLDER = CHECKPOINTS / "stories"
VOCAB_SIZE, FOR_TOKENIZER = 1536, 6000
SIZES = {"d_model": 256, "n_heads": 8, "d_ff": 1024, "n_layers": 5, "max_length": 256}
BATCH, RATE, WARMUP = 8, 1e-3, 300
STEPS, PASS = 12_000, 2000  # 25 million tokens; stories of a pass
EVALUATE_EVERY, SAVE_EVERY, LOG_EVERY = 500, 50, 50
HELD_OUT = {"validation": 200, "test": 500}
TOLD = {"validation": 50, "test": 500}  # by the model, for the judge
COUNTED, ORDERS = 10, (3, 5, 8)  # passes that the rival has read, and its lengths to choose from


# --- texts ---------------------------------------------------------------------------------------------------


def train_tokenizer() -> BPE:
    """Nearly all words of the stories become tokens of their own."""
    return BPE.train([tale.text for tale in tales(FOR_TOKENIZER)], VOCAB_SIZE, [END])


def read_tokenizer(folder: Path) -> BPE:
    """The tokenizer of a run, which is trained where ``folder`` has none."""
    path = folder / "tokenizer.json"
    with distributed.in_turn(device()):
        if not path.exists():
            save_tokenizer(train_tokenizer(), path)
    return load_tokenizer(path)


def drawn_stories(generator: torch.Generator) -> list[str]:
    """The stories of one pass, which nobody has told before."""
    number = int(torch.randint(2**31, (), generator=generator))
    return [tale.text for tale in tales(PASS, "train", number)]


def told_anew(tokenizer: BPE, generator: torch.Generator) -> Batch:
    """One pass as the model reads it: ``ids`` (N, T + 1)."""
    documents = [tokenizer.encode(text) for text in drawn_stories(generator)]
    return {"ids": pack(documents, SIZES["max_length"], tokenizer.ids[END])}


def read_first(passes: int) -> list[str]:
    """The stories of the first passes again, as ``Redrawn`` draws them."""
    return [text for number in range(passes) for text in drawn_stories(torch.Generator().manual_seed(number))]


@cache
def held_out(split: str) -> list[str]:
    return [tale.text for tale in tales(HELD_OUT[split], split)]


# --- telling and measuring -----------------------------------------------------------------------------------


def tell(
    model: GPT, tokenizer: BPE, n: int = 1, prompt: str = "", temperature: float = 1.0, seed: int = 0
) -> list[str]:
    """``n`` stories that the model tells, each beginning with ``prompt``; at temperature 0 all are the same."""
    generator = torch.Generator(model.tokens.weight.device).manual_seed(seed)
    room = model.config.max_length - len(tokenizer.encode(prompt))
    choices = {"temperature": temperature, "generator": generator}
    return [prompt + text for text in complete(model, tokenizer, [prompt] * n, room, **choices)]


def measure(model: nn.Module, split: str, tokenizer: BPE) -> dict[str, float]:
    """Perplexity of a token and bits of a character on a split, and the judge's shares of what the model tells."""
    texts = held_out(split)
    ids = [tokenizer.encode(text) for text in texts]
    found = perplexity(SlidingWindow(model, tokenizer.ids[END]), ids, sum(map(len, texts)))
    shares = judged(tell(model, tokenizer, TOLD[split]))
    return {"perplexity": found.perplexity, "bits per character": found.bits_per_character} | shares


# --- beside others -------------------------------------------------------------------------------------------


def counting_rival(tokenizer: BPE, texts: Sequence[str]) -> KneserNey:
    """The best that counting does: of all lengths of context the one with the lowest perplexity on validation."""
    end_id = tokenizer.ids[END]
    documents = [tokenizer.encode(text) for text in texts]
    models = [KneserNey(n, len(tokenizer), end_id=end_id).fit(documents) for n in ORDERS]
    ids = [tokenizer.encode(text) for text in held_out("validation")]
    return min(models, key=lambda model: perplexity(model, ids).perplexity)


def tell_by_counts(model: NGram, tokenizer: BPE, n: int) -> list[str]:
    """Stories of an n-gram model, each token drawn from its own distribution, with as much room as the GPT has."""
    generator, found = np.random.default_rng(0), []
    for _ in range(n):
        ids: list[int] = []
        while len(ids) < SIZES["max_length"]:
            p = model.next_probabilities(ids)
            token = int(generator.choice(len(p), p=p / p.sum()))
            if token == model.end_id:
                break
            ids.append(token)
        found.append(tokenizer.decode(ids))
    return found


def shuffled(text: str, rng: Random) -> str:
    """A story with its sentences in another order, but for the first, which introduces somebody."""
    first, *rest = split_sentences(text)
    return " ".join([first, *sorted(rest, key=lambda _: rng.random())])


def tell_plainly(n: int) -> list[str]:
    """Plain stories of ``gpt-documentation``, which reads much else: its own after three words of the world's."""
    model, tokenizer = gpt.load()
    prompts = [" ".join(story.text.split()[:3]) for story in stories(n, "validation")]
    choices = {"temperature": 1.0, "generator": torch.Generator().manual_seed(0)}
    return [prompt + text for prompt, text in zip(prompts, complete(model, tokenizer, prompts, 150, **choices))]


def compare(model: GPT, tokenizer: BPE) -> dict[str, dict[str, float]]:
    """The judge's shares, novelty and variety of as many stories by each: the model, counting, the world itself, and
    the world's stories with their sentences shuffled, which is what knowing sentences but no stories is worth. And of
    plain stories, which are shorter and have no plot, those of the model that reads documentation, code and French too.

    What counts as known is what the first ``COUNTED`` passes hold: all that counting has read (on one core it takes a
    minute), and for the GPT a beginning. To count more makes the next word a little likelier, not the story consistent.
    """
    n, read, rng = TOLD["test"], read_first(COUNTED), Random(0)
    rival, real = counting_rival(tokenizer, read), held_out("test")[:n]
    told = {
        "model": tell(model, tokenizer, n),
        "model at temperature 0.5": tell(model, tokenizer, n, temperature=0.5),
        f"Kneser-Ney of order {rival.n}": tell_by_counts(rival, tokenizer, n),
        "real stories": real,
        "real sentences, shuffled": [shuffled(text, rng) for text in real],
    }
    found = {teller: judged(texts) | novelty(texts, read) for teller, texts in told.items()}
    ids = [tokenizer.encode(text) for text in real]
    for teller, one in (("model", SlidingWindow(model, rival.end_id)), (f"Kneser-Ney of order {rival.n}", rival)):
        found[teller]["bits per character"] = perplexity(one, ids, sum(map(len, real))).bits_per_character
    told |= {
        "plain stories of gpt-documentation": tell_plainly(n),
        "real plain stories": [story.text for story in stories(n, "test")],
    }
    plain = {teller: judged(texts, judge_plain) for teller, texts in told.items() if teller not in found}
    varied = {teller: {"distinct-3": distinct_n([text.split() for text in texts], 3)} for teller, texts in told.items()}
    return {teller: shares | varied[teller] for teller, shares in (found | plain).items()}


# --- the run -------------------------------------------------------------------------------------------------


def new_model() -> GPT:
    """The untrained model. No dropout: what is read once cannot be learned by heart."""
    seed(0)
    return GPT(GPTConfig(VOCAB_SIZE, **SIZES, dropout=0.0))


def train(folder: Path, out: Path = FOLDER) -> dict[str, Any]:
    """Train the model, or go on with it where ``folder`` says, and write its checkpoint; returns the metrics."""
    tokenizer, clock = read_tokenizer(folder), Clock(folder / "seconds.json")
    model = new_model().to(device())
    data = Redrawn(partial(told_anew, tokenizer), BATCH)
    training = Training(
        model,
        gpt_loss,
        data,
        adamw(model, RATE, weight_decay=0.1, betas=(0.9, 0.95)),
        STEPS,
        schedule=warmup_cosine(WARMUP, floor=0.05),
        evaluate=lambda model: measure(model, "validation", tokenizer),
        monitor="bits per character",
        evaluate_every=EVALUATE_EVERY,
        save_every=SAVE_EVERY,
        log_every=LOG_EVERY,
        folder=folder,
    )
    to_the_end(training, "stories", clock)
    distributed.leave_to_first()
    load_weights(folder / "best.safetensors", model)
    metrics = {
        "command": "python -m coursekit.recipes.stories",
        "parameters": sum(p.numel() for p in model.parameters()),
        "steps": STEPS,
        "step of the best weights": json.loads((folder / "best.json").read_text(encoding="utf-8"))["step"],
        "tokens": STEPS * BATCH * SIZES["max_length"],
        "seconds": round(clock.seconds()),
        "versions": versions(),
        "data": data_hash({split: held_out(split) for split in HELD_OUT}),
    }
    curve = [record for record in training.history if "bits per character" in record]
    return finish(model.cpu().eval(), tokenizer, metrics | {"curve": curve}, out)


def finish(model: GPT, tokenizer: BPE, metrics: dict[str, Any], out: Path = FOLDER) -> dict[str, Any]:
    """Round the weights to eight bits, measure before and after, and write all."""
    before = measure(model, "test", tokenizer)
    config, weights = to_hugging_face(model)
    config |= dict.fromkeys(DROPOUTS, 0.0)
    weights = in_eight_bits(weights)
    model = from_hugging_face(GPT, config, from_eight_bits(weights))
    metrics |= {"test": measure(model, "test", tokenizer), "test in float32": before}
    metrics |= {"tellers": compare(model, tokenizer)}
    write_model(out, config, weights)
    save_tokenizer(tokenizer, out / "tokenizer.json")
    save_json(out / "metrics.json", metrics)
    return metrics


def load() -> tuple[GPT, BPE]:
    """The shipped model, in float32 and in eval mode, and its tokenizer."""
    config, weights = read_model(FOLDER)
    return from_hugging_face(GPT, config, from_eight_bits(weights)), load_tokenizer(FOLDER / "tokenizer.json")


def main(arguments: Sequence[str] | None = None) -> None:
    _, folder, out, _ = read_command("stories", __doc__, arguments)
    report(train(folder, FOLDER if out is None else out / "stories"))


if __name__ == "__main__":
    main()
