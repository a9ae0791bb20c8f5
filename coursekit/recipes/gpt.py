"""Two small GPTs: one has read the Python documentation and much else, the other only Python's standard library.

``python -m coursekit.recipes.gpt VARIANT`` trains one, measures it on texts that it has not read, and writes it to
``checkpoints/VARIANT`` beside this file: float16 weights in Hugging Face's layout, the tokenizer, and ``metrics.json``.
It can be stopped and started again at will. Of the LSTM that the first is compared with only the metrics are kept.
"""

import json
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from torch import nn

from coursekit.convert.gpt import DROPOUTS, from_hugging_face, to_hugging_face
from coursekit.convert.hub import write_model
from coursekit.data import code, pydocs
from coursekit.data.packing import packed_anew
from coursekit.data.pretraining import Redrawn
from coursekit.data.prompts import PROMPTS
from coursekit.data.world import as_text, sentences, stories
from coursekit.evaluate.language import LanguageModel, SlidingWindow, perplexity
from coursekit.models.gpt import GPT, GPTConfig, gpt_loss
from coursekit.models.rnn_lm import RNNLM, RNNLMConfig, Streams, tbptt_objective
from coursekit.recipes import CHECKPOINTS
from coursekit.recipes.runs import Clock, read_command, report, texts_once, to_the_end, versions
from coursekit.text.bpe import BPE, END
from coursekit.text.tokenizer_json import load_tokenizer, save_tokenizer
from coursekit.train import Training, adamw, device, distributed, seed, warmup_cosine
from coursekit.train.checkpoint import load_weights, save_json

VARIANTS = {
    "gpt-documentation": "GPT on Python's documentation and source files, English stories and French sentences",
    "gpt-code": "GPT on the source files of Python's standard library alone",
    "lstm-documentation": "lecture 01's LSTM on the texts of gpt-documentation, as many tokens of them",
}
VOCAB_SIZE = 2048
SIZES = {"d_model": 256, "n_heads": 8, "d_ff": 1024, "n_layers": 4, "max_length": 256}
TIMES, STORIES, FRENCH = 3, 12_000, 20_000  # the documentation is read three times in one pass over the others
STEPS = {"gpt-documentation": 4500, "gpt-code": 5500}
DROPOUT = {"gpt-documentation": 0.1, "gpt-code": 0.0}  # what is read 20 times, and what is read 11 times
BATCH, RATE, WARMUP, EVALUATE_EVERY, SAVE_EVERY = 16, 1.5e-3, 200, 500, 100


# --- texts ---------------------------------------------------------------------------------------------------


@cache
def corpus(variant: str, split: str = "train") -> dict[str, list[str]]:
    """The documents of a split by their source; a file is in the same split as its documentation.

    What is English in the world is told in stories, and what is French is other sentences: the model never reads one
    beside the other.
    """
    every = 5 if split == "validation" else 1  # a fifth of the files says enough, now and then
    files = [document.text for document in code.documents(split)[::every]]
    if variant == "gpt-code":
        return {"code": files}
    n = 1.0 if split == "train" else 0.05
    return {
        "documentation": [document.text for document in pydocs.documents(split)],
        "code": files,
        "stories": [story.text for story in stories(round(n * STORIES), split)],
        "french": [as_text(sentence.fr) for sentence in sentences(round(n * FRENCH), split, seed=2)],
    }


def train_tokenizer(texts: dict[str, list[str]]) -> BPE:
    """Of all sources; of the world a tenth, which has all of its words.

    The tokens of ``PROMPTS`` are in no text: fine-tuning gives them a meaning.
    """
    chosen = {source: found if source in ("documentation", "code") else found[::10] for source, found in texts.items()}
    return BPE.train([text for found in chosen.values() for text in found], VOCAB_SIZE, [END, *PROMPTS])


Encoded = dict[str, list[list[int]]]


def encode(texts: dict[str, list[str]], tokenizer: BPE) -> Encoded:
    return {source: [tokenizer.encode(text) for text in found] for source, found in texts.items()}


def in_one_pass(texts: Encoded) -> list[list[int]]:
    """The documents of one pass."""
    return [one for source, found in texts.items() for one in found * (TIMES if source == "documentation" else 1)]


# --- measures ------------------------------------------------------------------------------------------------


def measure(model: LanguageModel, variant: str, split: str, tokenizer: BPE) -> dict[str, dict[str, float]]:
    """Perplexity of a token and bits of a character, of each source of a split."""
    found = {}
    for source, texts in corpus(variant, split).items():
        of_source = perplexity(model, [tokenizer.encode(text) for text in texts], sum(map(len, texts)))
        found[source] = {"perplexity": of_source.perplexity, "bits per character": of_source.bits_per_character}
    return found


# --- the runs ------------------------------------------------------------------------------------------------


def new_gpt(variant: str) -> GPT:
    """The untrained model. Dropout is on the residual stream only: on attention weights it would double the time."""
    seed(0)
    model = GPT(GPTConfig(VOCAB_SIZE, **SIZES, dropout=DROPOUT[variant]))
    for block in model.blocks:
        block.attention.dropout = 0.0
    return model


def new_lstm(end_id: int) -> RNNLM:
    """The untrained LSTM of lecture 01."""
    seed(0)
    return RNNLM(RNNLMConfig(VOCAB_SIZE, embed_size=64, hidden_size=256, cell="lstm", end_id=end_id))


def train(variant: str, folder: Path, checkpoints: Path = CHECKPOINTS) -> dict[str, Any]:
    """Train a variant, or go on with it where ``folder`` says, and write its checkpoint; returns the metrics."""
    texts, tokenizer, hashes = texts_once(folder, partial(corpus, variant), train_tokenizer, encode)
    end_id, documents, clock = tokenizer.ids[END], in_one_pass(texts), Clock(folder / "seconds.json")
    settings: dict[str, Any] = {"folder": folder, "evaluate_every": EVALUATE_EVERY, "save_every": SAVE_EVERY}
    if variant == "lstm-documentation":  # as in lecture 01, for as many tokens
        model = new_lstm(end_id).to(device())
        data = Streams(documents, batch_size=32, length=32, end_id=end_id)
        steps = STEPS["gpt-documentation"] * BATCH * SIZES["max_length"] // (32 * 32)
        loss, optimizer, schedule = tbptt_objective(data), adamw(model, lr=6e-3), warmup_cosine(50)
        settings |= {"log_every": 400, "evaluate_every": 4 * EVALUATE_EVERY, "save_every": 4 * SAVE_EVERY}
    else:
        model = new_gpt(variant).to(device())
        data = Redrawn(partial(packed_anew, documents, SIZES["max_length"], end_id), BATCH)
        steps, loss, schedule = STEPS[variant], gpt_loss, warmup_cosine(WARMUP, floor=0.05)
        optimizer = adamw(model, RATE, weight_decay=0.1, betas=(0.9, 0.95))  # as GPT-3's, appendix B
        settings |= {"log_every": 100}

    def evaluate(model: nn.Module) -> dict[str, float]:
        found = measure(as_language_model(model, end_id), variant, "validation", tokenizer)
        bits = {f"{source}: bits per character": one["bits per character"] for source, one in found.items()}
        return {"bits per character": next(iter(bits.values()))} | bits

    monitor = {"monitor": "bits per character", "evaluate": evaluate}
    training = Training(model, loss, data, optimizer, steps, schedule=schedule, **monitor, **settings)
    to_the_end(training, variant, clock)
    distributed.leave_to_first()
    load_weights(folder / "best.safetensors", model)
    best = json.loads((folder / "best.json").read_text(encoding="utf-8"))["step"]
    metrics = {
        "variant": VARIANTS[variant],
        "command": f"python -m coursekit.recipes.gpt {variant}",
        "parameters": sum(p.numel() for p in model.parameters()),
        "steps": steps,
        "step of the best weights": best,
        "tokens": steps * BATCH * SIZES["max_length"] if isinstance(model, GPT) else steps * 32 * 32,
        "tokens of a pass": sum(len(document) + 1 for document in documents),
        "seconds": round(clock.seconds()),
        "versions": versions(),
        "data": hashes,
    }
    curve = [record for record in training.history if "bits per character" in record]
    return finish(variant, model.cpu().eval(), tokenizer, metrics, curve, checkpoints / variant)


def as_language_model(model: nn.Module, end_id: int) -> LanguageModel:
    return SlidingWindow(model, end_id) if isinstance(model, GPT) else model


def finish(
    variant: str,
    model: nn.Module,
    tokenizer: BPE,
    metrics: dict[str, Any],
    curve: list[dict[str, float]],
    folder: Path,
) -> dict[str, Any]:
    """Round a GPT's weights to float16, measure the model on the test split, and write it with its metrics."""
    if isinstance(model, GPT):
        config, weights = to_hugging_face(model)
        weights = {name: tensor.half() for name, tensor in weights.items()}
        config |= dict.fromkeys(DROPOUTS, 0.0)
        model = from_hugging_face(GPT, config, weights).eval()
    metrics |= {"test": measure(as_language_model(model, tokenizer.ids[END]), variant, "test", tokenizer)}
    metrics |= {"curve": curve}
    if isinstance(model, GPT):
        write_model(folder, config, weights)
        save_tokenizer(tokenizer, folder / "tokenizer.json")
    save_json(folder / "metrics.json", metrics)
    return metrics


def load(variant: str = "gpt-documentation") -> tuple[GPT, BPE]:
    """A shipped model, in float32 and in eval mode, and its tokenizer."""
    folder = CHECKPOINTS / variant
    return GPT.from_pretrained(folder), load_tokenizer(folder / "tokenizer.json")


def main(arguments: Sequence[str] | None = None) -> None:
    alone = {"lstm-documentation": "what it remembers from batch to batch is kept in one place"}
    variant, folder, out, _ = read_command("gpt", __doc__, arguments, VARIANTS, alone=alone)
    report(train(variant, folder, out or CHECKPOINTS))


if __name__ == "__main__":
    main()
