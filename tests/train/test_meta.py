"""An update waits for no number: on the ``meta`` device, whose tensors have none, every objective goes through.

What asks there for one (``.item()``, ``if tensor``, a selection by a mask, whose size is a number) is an error with
its line, as is a mix of devices. On a GPU it would wait for all that was computed before, and nothing be ahead.
"""

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from coursekit.data.batches import Fresh
from coursekit.models.dino import DINO
from coursekit.train import EMA, Training, seed
from tests.train.objectives import OBJECTIVES

# The encoder of 2014 is packed, which PyTorch does by lengths that are known on the CPU: it waits, once an update.
WAITS = [name for name in OBJECTIVES if name.startswith("seq2seq")]


class NothingIsSent(TorchFunctionMode):
    """Refuses what ``meta`` lets pass: a tensor made on the CPU in the midst of an update, and sent to the device."""

    def __torch_function__(self, function, types, args=(), options=None):
        options = options or {}
        made = getattr(function, "__name__", "") in ("tensor", "as_tensor", "from_numpy", "new_tensor")
        assert not (made and torch.device(options.get("device") or "cpu").type == "meta"), "made on the CPU, and sent"
        result = function(*args, **options)
        if isinstance(result, torch.Tensor) and result.is_meta and not options.get("non_blocking"):
            given = [x for x in tree_leaves((args, options)) if isinstance(x, torch.Tensor) and x.dim()]
            assert all(x.is_meta for x in given), f"{function}: something of the CPU was sent"
        return result


def update(name: str, accumulate: int = 2) -> Training:
    seed(0)
    model, loss_fn, batch = OBJECTIVES[name]()
    model = model.to("meta")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
    follows = DINO.update_teacher if isinstance(model, DINO) else None
    options = {"clip": 1.0, "accumulate": accumulate, "ema": EMA(model, 0.9), "after_update": follows}
    run = Training(model, loss_fn, Fresh(lambda generator: batch(), seed=0), optimizer, steps=4, **options)
    with NothingIsSent():
        for _ in range(2):
            assert run.update().device.type == "meta"
    return run


@pytest.mark.parametrize("name", [name for name in OBJECTIVES if name not in WAITS])
def test_no_objective_asks_for_a_number(name):
    model = update(name).model
    learned = [name for name, p in model.named_parameters() if p.requires_grad]
    assert [name for name, p in model.named_parameters() if p.grad is not None] == learned


@pytest.mark.parametrize("name", WAITS)
def test_only_the_packing_of_lengths_waits(name):
    with pytest.raises(NotImplementedError, match="copy out of meta") as error:
        update(name)
    assert "pack_padded_sequence" in str(error.traceback[-1].statement) or "pack" in str(error.traceback[-2].statement)


def test_what_asks_for_a_number_is_found():
    def asks(model, batch):
        loss = model(batch["images"]).sum()
        return loss, loss.new_full((), 1 + int(loss > 0))

    def sends(model, batch):
        return model(batch["images"]).sum(), torch.tensor(3, device=batch["labels"].device)

    def selects(model, batch):
        return model(batch["images"])[batch["labels"] > 1].sum(), batch["labels"].new_full((), 3)

    model, _, batch = OBJECTIVES["cnn"]()
    for loss_fn, words in ((asks, "meta"), (sends, "made on the CPU"), (selects, "nonzero")):
        OBJECTIVES["broken"] = lambda loss_fn=loss_fn: (model, loss_fn, batch)
        with pytest.raises((RuntimeError, NotImplementedError, AssertionError), match=words):
            update("broken")
        del OBJECTIVES["broken"]
