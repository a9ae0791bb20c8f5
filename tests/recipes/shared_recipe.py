"""``coursekit train`` of a tiny GPT, for torchrun to start: as ``coursekit`` itself, but for its sizes."""

from importlib import import_module

from coursekit.commands.cli import main
from coursekit.recipes import gpt as recipe

TEXTS = {
    "documentation": [f"the value {i} is returned by function number {i}" for i in range(40)],
    "stories": [f"On Monday, Anna was in room {i}." for i in range(40)],
}


def shrink() -> None:
    import_module("coursekit.train.device").has_fast_bf16 = lambda where: False  # two halves round otherwise
    recipe.corpus = lambda variant, split="train": TEXTS
    recipe.SIZES = {"d_model": 16, "n_heads": 2, "d_ff": 32, "n_layers": 1, "max_length": 16}
    recipe.STEPS = dict.fromkeys(recipe.STEPS, 6)
    recipe.DROPOUT = dict.fromkeys(recipe.DROPOUT, 0.0)  # the processes would drop different units
    recipe.VOCAB_SIZE, recipe.BATCH, recipe.WARMUP, recipe.EVALUATE_EVERY, recipe.SAVE_EVERY = 280, 4, 2, 2, 3


if __name__ == "__main__":
    shrink()
    main()
