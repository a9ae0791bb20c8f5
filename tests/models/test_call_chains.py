"""What a model's docstring says of its call chain is what happens."""

import re
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch

from coursekit.commands.single import models
from coursekit.models.gpt import GPT
from tests.train.objectives import OBJECTIVES

PACKAGE = Path(import_module("coursekit").__file__).parent
# of these a chain need not tell
HELPERS = {f"nn/{name}.py" for name in ("checks", "dropout", "losses", "masks", "precision", "sampling", "tied")}
MODELS = {name: module for name, module in models().items() if name != "ngram"}


def calls(module: str) -> set[tuple[str, str]]:
    """File and name of every function of the package that all objectives of a model call, but for losses themselves."""
    found = set()

    def note(frame, event, _):
        path, name = Path(frame.f_code.co_filename), frame.f_code.co_qualname
        if event == "call" and path.is_relative_to(PACKAGE) and not name.endswith("_loss"):
            found.add((path.relative_to(PACKAGE).as_posix(), name))

    for make in OBJECTIVES.values():
        net, loss_fn, draw = make()
        if (loss_fn if isinstance(net, GPT) else type(net)).__module__ == module:  # a GPT learns by several papers
            batch = draw()
            sys.setprofile(note)
            try:
                loss_fn(net, batch)
            finally:
                sys.setprofile(None)
    return found


def chain(module: str) -> list[str]:
    """The names and files that a model's call chain tells, in their order."""
    doc = import_module(module).__doc__
    found = re.search(r"^Call chain: (.*?)\n\n", doc, re.MULTILINE | re.DOTALL)
    return re.findall(r"``([\w./]+)``", found[1]) if found else []


@pytest.mark.parametrize("model", MODELS)
def test_the_call_chain_is_true_and_leaves_out_no_file(model):
    torch.manual_seed(0)
    called, words, module = calls(MODELS[model]), chain(MODELS[model]), import_module(MODELS[model])
    own = f"{module.__name__.removeprefix('coursekit.').replace('.', '/')}.py"
    for place, name in enumerate(words):
        if not name.endswith(".py"):  # a class or function of this file, or of the one that is named next
            mine = getattr(getattr(module, name.split(".")[0], None), "__module__", "") == module.__name__
            file = own if mine else next(word for word in words[place:] if word.endswith(".py"))
            assert called & {(file, name), (file, f"{name}.forward")}, f"{name} of {file} is not called"
    others = [f"coursekit.{word[:-3].replace('/', '.')}" for word in words if word.startswith("models/")]  # go on
    told = {*words, *(word for other in others for word in chain(other))}
    assert {file for file, _ in called} - HELPERS - {own} <= told
