"""A run that is stopped and begun again, beside one that is not."""

from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from coursekit.train.checkpoint import load_state


def ends_like_one_that_was_not(recipe, variant, folder, monkeypatch, stage="") -> tuple[dict[str, Any], dict[str, Any]]:
    """Stop a run of a recipe after step 4, with its state saved after step 3, and let it go on: the same weights to the
    bit, in float16, and nothing is written before the end. Returns the metrics of both, which are to be compared.

    Of a recipe that trains in stages ``stage`` is the one that is stopped: its folder in the state's."""
    whole = recipe.train(variant, folder / "whole", folder / "out1")
    steps = recipe.Training.__iter__

    def until_four(self):
        for record in steps(self):
            yield record
            if self.step == 4 and self.folder == folder / "parts" / stage:
                raise KeyboardInterrupt

    with monkeypatch.context() as stopped:
        stopped.setattr(recipe.Training, "__iter__", until_four)
        with pytest.raises(KeyboardInterrupt):
            recipe.train(variant, folder / "parts", folder / "out2")
    assert not (folder / "out2").exists()
    assert load_state(folder / "parts" / stage / "last.ckpt")["step"] == 3
    again = recipe.train(variant, folder / "parts", folder / "out2")
    one, other = (load_file(folder / out / variant / "model.safetensors") for out in ("out1", "out2"))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert {tensor.dtype for tensor in one.values()} == {torch.float16}
    return whole, again
