"""The way of the data through a model, layer by layer."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from coursekit.viz.pictures import table_html
from coursekit.viz.widget import MAX_BYTES, Widget, pack, to_numpy

ROWS, COLUMNS = 16, 32  # most values of a stage that are kept
MOST_STAGES = 1000
IDLE = ("Identity", "Dropout", "DropPath")  # in evaluation they give what they were given


@dataclass(frozen=True)
class Stage:
    """One call of one module.

    Attributes:
        name: of the module in the model, as in ``named_modules``; "" is the model itself.
        kind: its class.
        depth: how many calls it stands inside of; 0 for the model.
        inputs, outputs: shapes of the tensors that went in and came out.
        parameters: how many numbers the module learns, those of its parts included.
        mean, std, low, high: of all numbers of the first output; NaN where there is none. ``std`` divides by the count.
        sample: some of them, (rows, columns): the first of the batch, evenly strided.
    """

    name: str
    kind: str
    depth: int
    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]
    parameters: int
    mean: float
    std: float
    low: float
    high: float
    sample: np.ndarray


class Flow(Widget):
    """Step through the calls of a model's modules, with shapes, parameters and values.

    Args:
        stages: the calls in their order, each before the calls inside it; see ``Flow.trace``.
        title: what stands above.
    """

    module = "flow"

    def __init__(self, stages: Sequence[Stage], title: str = "The way through the model"):
        self.stages = list(stages)
        if not 1 <= len(self.stages) <= MOST_STAGES:
            raise ValueError(
                f"{len(self.stages)} stages: between 1 and {MOST_STAGES} can be shown, so trace a part of the model"
            )
        rows, columns = ROWS, COLUMNS
        while len(self.stages) * rows * columns * 16 // 3 > 0.6 * MAX_BYTES:  # float32 in base64
            rows, columns = rows // 2, columns // 2
        self.data = {"title": title, "stages": []}
        names: list[str] = []  # of the calls around the present one
        for stage in self.stages:
            names = [*names[: stage.depth], stage.name]
            around = [name + "." for name in names[:-1] if name and stage.name.startswith(name + ".")]
            short = stage.name[max(map(len, around), default=0) :] or stage.kind
            self.data["stages"].append(
                {
                    **{key: getattr(stage, key) for key in ("name", "kind", "depth", "parameters")},
                    "short": short,
                    "inputs": [written(shape) for shape in stage.inputs],
                    "outputs": [written(shape) for shape in stage.outputs],
                    "numbers": [stage.mean, stage.std, stage.low, stage.high] if stage.sample.size else None,
                    "sample": pack(strided(stage.sample, rows, columns)),
                }
            )

    @classmethod
    def trace(cls, model: Any, *inputs: Any, **named: Any) -> "Flow":
        """Run ``model(*inputs, **named)`` once, as in evaluation, and keep what each module took and gave.

        Modules that do nothing in evaluation, such as dropout, are left out. The model is left as it was: its
        hooks are gone and its modules train or not as before, also after an error.

        Args:
            model: a ``torch.nn.Module``.
        """
        if not hasattr(model, "named_modules") or not hasattr(model, "register_forward_hook"):
            raise ValueError(f"a {type(model).__name__} cannot be traced: give a model made of modules (nn.Module)")
        calls: list[dict[str, Any]] = []
        inside: list[dict[str, Any]] = []  # the calls that are under way
        handles = []

        def watch(name: str, module: Any) -> None:
            def begin(module: Any, args: tuple, kwargs: dict) -> None:
                call = {"name": name, "kind": type(module).__name__, "depth": len(inside)}
                call["inputs"] = tuple(tuple(x.shape) for x in tensors([args, kwargs]))
                call["parameters"] = sum(p.numel() for p in module.parameters())
                calls.append(call)
                inside.append(call)

            def end(module: Any, args: tuple, output: Any) -> None:
                inside.pop().update(measured(output))

            handles.append(module.register_forward_pre_hook(begin, with_kwargs=True))
            handles.append(module.register_forward_hook(end))

        training = [(module, module.training) for module in model.modules()]
        try:
            for name, module in model.named_modules():
                if not name or type(module).__name__ not in IDLE:
                    watch(name, module)
            model.eval()
            model(*inputs, **named)
        finally:
            for handle in handles:
                handle.remove()
            for module, was in training:
                module.training = was
        return cls([Stage(**call) for call in calls], title=f"The way through a {type(model).__name__}")

    def static_html(self) -> str:
        rows = [
            [
                "\u2003" * stage.depth + shown["short"],
                stage.kind,
                ", ".join(shown["outputs"]) or "–",
                f"{stage.parameters:,}",
                f"{stage.std:.3g}" if stage.sample.size else "–",
            ]
            for stage, shown in zip(self.stages, self.data["stages"])
        ]
        return table_html(self.data["title"], ["module", "class", "output", "parameters", "std"], rows)


def written(shape: Sequence[int]) -> str:
    return str(tuple(shape))


def tensors(x: Any) -> Iterator[Any]:
    """The tensors in nested tuples, lists and dictionaries, in order."""
    if hasattr(x, "detach") and hasattr(x, "shape"):
        yield x
    elif isinstance(x, dict):
        yield from tensors(list(x.values()))
    elif isinstance(x, tuple | list):
        for part in x:
            yield from tensors(part)


def measured(output: Any) -> dict[str, Any]:
    """What a stage keeps of an output: shapes, statistics, a sample."""
    found = list(tensors(output))
    shapes = {"outputs": tuple(tuple(x.shape) for x in found)}
    if not found or 0 in found[0].shape:
        nothing = dict.fromkeys(("mean", "std", "low", "high"), float("nan"))
        return {**shapes, **nothing, "sample": np.zeros((0, 0))}
    values = to_numpy(found[0])
    first = values[0] if values.ndim > 1 else values  # (B, ..., D) -> (..., D)
    table = first.reshape(-1, first.shape[-1] if first.ndim else 1)  # (..., D) -> (rows, D)
    return {
        **shapes,
        "mean": float(values.mean()),
        "std": float(values.std()),
        "low": float(values.min()),
        "high": float(values.max()),
        "sample": strided(table, ROWS, COLUMNS),
    }


def strided(table: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """At most ``rows`` x ``columns`` entries of a table, evenly strided, with the first and the last of each axis."""
    picks = [np.linspace(0, n - 1, min(n, most)).round().astype(int) for n, most in zip(table.shape, (rows, columns))]
    return table[np.ix_(*picks)].copy()
