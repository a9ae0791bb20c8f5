"""Speed, as ratios measured side by side in one run, since machines differ and are shared.

``python -m tests.bench`` measures all that an issue asked for, prints one table with the aims, and saves it in
``build/bench/``; ``python -m tests.bench bert gpt`` measures only these. It fails on no aim that is missed, but on a
measurement that fails. ``python -m tests.bench --compare`` puts the two latest runs side by side, or the two named.
"""

import argparse
import sys
import time
from pathlib import Path

from rich.progress import Progress, SpinnerColumn, TimeElapsedColumn

from tests.benchmarks import shared
from tests.benchmarks.shared import Row

NAMES = ("package", "text", "seq2seq", "transformer", "bert", "gpt", "vit", "dino", "llama", "viz")
SLOW = ("grading",)  # it marks a class four times; only by its name
SAVED = shared.ROOT / "build" / "bench"


def measure(names: list[str], folder: Path) -> int:
    """Measure, print and save; what was measured is saved after each row, for it takes minutes."""
    import torch

    from tests.benchmarks import machine

    out, run, rows = shared.console(), shared.about(), []
    path = folder / f"{run['time']}.json"
    columns = SpinnerColumn(), "[progress.description]{task.description}", TimeElapsedColumn()
    with Progress(*columns, console=shared.console(error=True), transient=True) as progress:
        task = progress.add_task("matrix products")
        run |= {"threads": torch.get_num_threads(), "gpu": machine.gpu(), "peaks": machine.peaks()}
        try:
            for i, name in enumerate(names):
                progress.update(task, description=f"{i + 1} of {len(names)}: {name}")
                start, before = time.monotonic(), len(rows)
                for row in shared.measured(name):
                    rows.append(row)
                    shared.save(path, run, rows)
                    said = f"{i + 1} of {len(names)}: {name}, after {len(rows)} rows: {row.what} {shared.shown(row)}"
                    progress.update(task, description=shared.escape(said))
                progress.console.print(f"{name}: {len(rows) - before} rows, {time.monotonic() - start:.0f} s")
        except KeyboardInterrupt:
            rows.append(Row(name, "the rest", "", error="interrupted"))
            shared.save(path, run, rows)
    out.print(*shared.header(run), sep="\n", markup=False)
    out.print(shared.table(rows))
    out.print(*shared.summary(rows), f"saved as {path}", sep="\n", markup=False)
    return int(any(row.error for row in rows))


def compare(paths: list[Path], folder: Path) -> int:
    """Print two runs side by side, the older first if they are the two latest."""
    paths = paths or sorted(folder.glob("*.json"))[-2:]
    try:
        if len(paths) != 2:
            raise ValueError(f"two runs are compared; there are {len(paths)} (saved ones lie in {folder})")
        (first, a), (second, b) = map(shared.read, paths)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    made, rows, said = shared.comparison(first, second, a, b)
    shared.console().print(made, rows)
    shared.console().print(*said, sep="\n", markup=False)
    return 0


def main(arguments: list[str] | None = None, folder: Path = SAVED) -> int:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m tests.bench", description=__doc__, formatter_class=form)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; {', '.join(SLOW)} (minutes)")
    parser.add_argument("--compare", nargs="*", type=Path, metavar="FILE", help="A.json B.json; default: the latest")
    options = parser.parse_args(arguments)
    if options.compare is not None:
        return compare(options.compare, folder)
    unknown = [name for name in options.names if name not in (*NAMES, *SLOW)]
    if unknown:
        parser.error(f"no benchmark is called {unknown[0]}; there are {', '.join((*NAMES, *SLOW))}")
    return measure(options.names or list(NAMES), folder)


if __name__ == "__main__":
    raise SystemExit(main())
