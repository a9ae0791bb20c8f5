"""What all recipes share: the command line, how long a run has computed over all its lives, and what it has read."""

import argparse
import contextlib
import hashlib
import json
import os
import platform
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from coursekit.text.tokenizer import Tokenizer
from coursekit.text.tokenizer_json import load_tokenizer, save_tokenizer
from coursekit.train import Training, device, distributed
from coursekit.train.bar import new_bar
from coursekit.train.checkpoint import runs_folder, save_json


class Chosen(NamedTuple):
    """What a command line asks for.

    Attributes:
        folder: where the run is kept meanwhile.
        out: where weights and metrics go; None for beside the recipes.
        fresh: what was in ``folder`` has been deleted.
    """

    variant: str
    folder: Path
    out: Path | None
    fresh: bool


def read_command(
    recipe: str,
    about: str,
    arguments: Sequence[str] | None,
    variants: Iterable[str] = (),
    named: Callable[[str], str] = str,
    alone: Mapping[str, str] | None = None,
) -> Chosen:
    """The command line of a recipe: ``[VARIANT] [--state FOLDER] [--out FOLDER] [--fresh]``.

    Args:
        recipe: its module.
        about: what ``--help`` says.
        arguments: None for those of this process.
        variants: the first is trained where none is named; empty where there is only the recipe itself.
        named: of a variant, the run's folder in that of ``--state``.
        alone: variants that several processes cannot share, each with the reason.

    Raises:
        SystemExit: the arguments are wrong, nothing can be written into one of the folders, or torchrun started several
            processes for such a variant.
    """
    variants = list(variants)
    parser = argparse.ArgumentParser(prog=f"python -m coursekit.recipes.{recipe}", description=about)
    if variants:
        parser.add_argument("variant", nargs="?", choices=variants, default=variants[0])
        parser.add_argument("--variant", dest="option", choices=variants, help="the same")
    where = "where the run is kept meanwhile (default: build/recipes, in Colab in a mounted Google Drive)"
    parser.add_argument("--state", type=Path, help=where)
    parser.add_argument("--out", type=Path, help="where weights and metrics go (default: beside the recipes)")
    parser.add_argument("--fresh", action="store_true", help="forget what is kept, and begin again")
    chosen = parser.parse_args(arguments)
    if distributed.rank() > 0:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  only the first prints
    variant = (chosen.option or chosen.variant) if variants else recipe
    if distributed.world_size() > 1 and variant in (alone or {}):
        words = f"{variant} is trained by one process, so start it without torchrun: {alone[variant]}"
        raise SystemExit(words if distributed.rank() == 0 else 1)
    for option, place in (("--state", chosen.state), ("--out", chosen.out)):
        if place is not None and (problem := unfit(place)):
            if distributed.rank() == 0:
                print(f"{option} {problem}", file=sys.stderr)
            raise SystemExit(2)
    folder = (chosen.state or runs_folder() / "recipes") / named(variant)
    if chosen.fresh:
        with distributed.in_turn(device()):
            if distributed.rank() == 0 and folder.exists():
                shutil.rmtree(folder)
    return Chosen(variant, folder, chosen.out, chosen.fresh)


def unfit(folder: Path) -> str | None:
    """Why a run cannot write into ``folder``, which need not be there, in a sentence; better now than hours later."""
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not there.is_dir():
        return f"{folder}: {there} is a file, and a folder is needed"
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        return f"{folder}: nothing can be written there: {error.strerror}"
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
        command = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))["command"]
        return f"{folder} holds what {command!r} has written: name another folder, in which this training makes its own"
    return None


def to_the_end(training: Training, name: str, clock: "Clock | None" = None) -> None:
    """Run a training to its end, while a bar shows the step, the time that remains and what was measured last.

    Control-C ends it when its step is done: everything is saved, if the training has a folder, and the
    ``KeyboardInterrupt`` says the step.

    Args:
        name: what the bar is called.
        clock: saved with every record, and when the run is stopped.
    """
    if distributed.rank() > 0:
        for _ in training:  # the first shows the progress
            pass
        return
    bar, measured = new_bar(training.steps, training.step, name), {}
    with noting_interrupts() as asked, contextlib.closing(bar):

        def after_step() -> None:
            bar.update(training.step - bar.n)
            if not asked:
                return
            where = f"stopped after step {training.step:,} of {training.steps:,}"
            if training.folder is None:
                raise KeyboardInterrupt(f"{where} of {name}, which begins again; what was finished before is kept")
            training.save()
            if clock is not None:
                clock.save()
            raise KeyboardInterrupt(f"{where}, which is saved; the same command goes on from there")

        training.after_step = after_step
        try:
            for record in training:
                if clock is not None:
                    clock.save()
                measured |= {key: value for key, value in record.items() if key not in ("step", "lr", "grad_norm")}
                bar.set_postfix_str(in_words(measured), refresh=False)
        finally:
            training.after_step = None
        if (steps := training.step - bar.initial) > 0:
            bar.end(f"{name}: {steps:,} steps in {bar.seconds:.0f} s, {in_words(measured)}")


def in_words(measured: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in measured.items())


@contextlib.contextmanager
def noting_interrupts() -> Iterator[list[int]]:
    """Inside, Control-C is noted in a list, so that what is being computed comes to its end; the second breaks it off.

    It stays as it was in a thread, where another handler is set, and under torchrun, which ends all processes.
    """
    asked: list[int] = []
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not usual or threading.current_thread() is not threading.main_thread() or distributed.world_size() > 1:
        yield asked
        return

    def note(number: int, _: Any) -> None:
        asked.append(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.write(2, b"\nstopping after this step; Control-C again stops at once, and saves nothing\n")

    signal.signal(signal.SIGINT, note)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def report(metrics: Mapping[str, Any]) -> None:
    """Print what was measured, but for the curves."""
    print(json.dumps({name: value for name, value in metrics.items() if name not in ("curve", "runs")}, indent=1))


def each_once(pieces: Mapping[tuple[str, ...], Callable[[], Any]], kept: Path) -> dict[str, Any]:
    """Compute each piece that the file ``kept`` does not hold, saving after each, and return all that it holds then.

    So a run of many short ones can be stopped between any two of them.

    Args:
        pieces: by their places: ``("curve", "100")`` is ``["curve"]["100"]`` in the file.
    """
    found: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    for (*outer, name), compute in pieces.items():
        place = found
        for one in outer:
            place = place.setdefault(one, {})
        if name not in place:
            place[name] = compute()
            print(*outer, name, json.dumps(place[name])[:200], flush=True)
            save_json(kept, found)
    return found


def versions() -> dict[str, str]:
    """Of what a result depends on besides the data."""
    return {"python": platform.python_version(), "torch": torch.__version__}


def texts_once(
    folder: Path, corpus: Callable[[], Mapping], train_tokenizer: Callable[[Mapping], Tokenizer], encode: Callable
) -> tuple[Any, Any, dict[str, str]]:
    """What is trained on, as ids, its tokenizer and its hashes; kept in ``folder``, since it takes up to a minute."""
    kept = folder / "texts.json"
    with distributed.in_turn(device()):
        if not kept.exists():
            texts = corpus()
            tokenizer = train_tokenizer(texts)
            save_tokenizer(tokenizer, folder / "tokenizer.json")
            save_json(kept, {"hash": data_hash(texts), "texts": encode(texts, tokenizer)})
    content = json.loads(kept.read_text(encoding="utf-8"))
    return content["texts"], load_tokenizer(folder / "tokenizer.json"), content["hash"]


def data_hash(texts: Mapping[str, Any]) -> dict[str, str]:
    """SHA-256 of each source; those of Python differ from one version of it to the next."""
    return {source: hashlib.sha256(json.dumps(found).encode()).hexdigest() for source, found in texts.items()}


class Clock:
    """CPU seconds of this process and of those that were stopped before it, since ``save`` was called last."""

    def __init__(self, path: Path):
        self.path = path
        self.before = json.loads(path.read_text(encoding="utf-8"))["seconds"] if path.exists() else 0.0

    def seconds(self) -> float:
        return self.before + time.process_time()

    def save(self) -> None:
        if distributed.rank() == 0:
            save_json(self.path, {"seconds": self.seconds()})
