"""Runs that go on: one that was stopped beside one that was not, and a later stage beside the first."""

from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from coursekit.recipes import unlabelled
from coursekit.recipes.runs import Clock
from coursekit.train import Training
from coursekit.train.checkpoint import load_state


def ends_like_one_that_was_not(train, name, folder, monkeypatch, stage="") -> tuple[dict[str, Any], dict[str, Any]]:
    """Stop a recipe's run, ``train(state, out)``, after step 4, with its state saved after step 3, and let it go on:
    the same weights to the bit, in float16, and nothing is written before the end. Returns the metrics of both, which
    are to be compared.

    Of a recipe that trains in stages ``stage`` is the one that is stopped: its folder in the state's."""
    whole = train(folder / "whole", folder / "out1")
    steps = Training.__iter__

    def until_four(self):
        for record in steps(self):
            yield record
            if self.step == 4 and self.folder == folder / "parts" / stage:
                raise KeyboardInterrupt

    with monkeypatch.context() as stopped:
        stopped.setattr(Training, "__iter__", until_four)
        with pytest.raises(KeyboardInterrupt):
            train(folder / "parts", folder / "out2")
    assert not (folder / "out2").exists()
    assert load_state(folder / "parts" / stage / "last.ckpt")["step"] == 3
    again = train(folder / "parts", folder / "out2")
    one, other = (load_file(folder / out / name / "model.safetensors") for out in ("out1", "out2"))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert {tensor.dtype for tensor in one.values()} == {torch.float16}
    return whole, again


def later_stage_goes_on(recipe, run, folder, monkeypatch, name, learned) -> None:
    """Catches a later stage that begins anew, or with the colours of the first.

    ``name`` is the entry of a batch with the views, ``learned(model)`` the parameters that the optimizer moves.
    """
    clock, shown, in_batches = Clock(folder / "seconds.json"), [], recipe.in_batches

    def note(images, start=0, later=False):
        shown.append(later)
        return in_batches(images, start, later)

    monkeypatch.setattr(recipe, "in_batches", note)
    begun, _ = run(folder / "first", clock)
    assert shown == [False, False]
    monkeypatch.setattr(recipe, "LATER_RATE", 0.0)
    model, later = run(folder / "later", clock, begun=begun)
    assert shown == [False, False, True, True]
    assert later.step == recipe.LATER
    pairs = zip(learned(model), learned(begun), strict=True)
    assert all(torch.equal(p, q) for p, q in pairs), "at rate 0 nothing moves"
    images = unlabelled.pictures(24)
    mild, strong = (next(in_batches(images, 5, later)) for later in (False, True))
    assert mild[name].shape == strong[name].shape
    assert not torch.equal(mild[name], strong[name])
