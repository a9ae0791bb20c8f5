"""What all benchmarks share: the clock, the row, the table, the saved file, and two of these files side by side.

A benchmark is a file of this folder with a function ``parts()``: a list of functions without arguments, each of which
gives rows. Every benchmark runs in a new process, so that it measures alone what it measures among the others: what
PyTorch and the allocator keep from earlier work makes small models faster or slower.
"""

import contextlib
import importlib
import itertools
import json
import multiprocessing
import os
import platform
import statistics
import subprocess
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

import coursekit
from coursekit.files import write_atomically

ROOT = Path(__file__).parents[2]
ROUNDS, MOST, ENOUGH = 5, 25, 2.0  # rounds at least; at most, while they have taken fewer seconds than this
FIRST, LAST, MORE = 3, 13, 3  # of a race with an aim: at least, at most; of quick ones at most so many times the first
PAR = 0.95  # the aim where both spend their time in the same matrix products: as fast, but for the noise
BUSY = 0.7  # cores that others may use before a run says that its ratios will scatter
FEW = 5  # below which quartiles say little, and the spread is that of all rounds
WIDTHS = 1.5  # of the spreads of both runs together, which a difference must exceed
SAME = 0.02  # from run to run at least this changes, although the rounds of each agree
Run = dict[str, Any]  # what is saved: ``about`` and "rows"


# --- The row ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """A ratio, or another number, that was measured in several rounds."""

    topic: str  # the lecture, or what else it belongs to
    what: str
    against: str
    rounds: tuple[float, ...] = ()
    at_least: float | None = None
    at_most: float | None = None
    unit: str = ""  # of a ratio none; "%" of a share; else "s", "ms", "MB", "MiB"
    counted: bool = False  # not timed: it has no noise
    both: tuple[float, ...] = ()  # the medians of which it is the ratio, for those who read the saved file,
    measured_in: str = "s"  # and their unit
    error: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        return self.topic, self.what, self.against

    @property
    def value(self) -> float:
        return statistics.median(self.rounds)

    @property
    def spread(self) -> tuple[float, float]:
        """The quartiles of the rounds; of few rounds the smallest and the largest."""
        if len(self.rounds) < FEW:
            return min(self.rounds), max(self.rounds)
        low, _, high = statistics.quantiles(self.rounds, n=4, method="inclusive")
        return low, high

    @property
    def reached(self) -> bool | None:
        """Whether the aim is; None without one. What failed has not reached it."""
        if self.at_least is None and self.at_most is None:
            return None
        return not self.error and (
            (self.at_least is None or self.value >= self.at_least)
            and (self.at_most is None or self.value <= self.at_most)
        )


def one_line(error: BaseException) -> str:
    """Its type, the first line of what it says, and where it was raised."""
    said = next(iter(str(error).splitlines()), "")
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}{': ' * bool(said)}{said[:200]}{where}"


# --- The clock -------------------------------------------------------------------------------------------------


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def clock(*works: Callable[[], object], rounds: int = ROUNDS, most: int = MOST) -> list[tuple[float, ...]]:
    """Seconds of each work in each round, all in turn, after one call of each; quick ones get more rounds."""
    for work in works:
        work()
    found, start = [], time.perf_counter()
    while len(found) < rounds or (len(found) < most and time.perf_counter() - start < ENOUGH):
        found.append(tuple(seconds(work) for work in works))
    return found


def ratio(row: Row, times: Iterable[tuple[float, float]], factor: float = 1, amount: float | None = None) -> Row:
    """The row with ``factor`` * second / first of each round.

    Args:
        amount: what is done in these seconds, in the row's ``measured_in``; None keeps the seconds.
    """
    times = list(times)
    medians = [statistics.median(column) for column in zip(*times)]
    return replace(
        row,
        rounds=tuple(factor * second / first for first, second in times),
        both=tuple(medians if amount is None else (amount / median for median in medians)),
    )


def guarded(row: Row, measure: Callable[[], Row]) -> Row:
    """What ``measure`` returns, or the row with its error: the others are worth having."""
    try:
        return measure()
    except Exception as error:
        return replace(row, error=one_line(error))


def race(
    row: Row,
    ours: Callable[[], object],
    theirs: Callable[[], object],
    factor: float = 1,
    amount: float | None = None,
) -> Row:
    """How many times as long ``theirs`` takes as ``ours``, run in turn; for the rest see ``ratio``.

    Where the aim lies among the rounds, more of them decide, whichever side of it the first are on.
    """

    def measure() -> Row:
        times = clock(ours, theirs, rounds=FIRST if aim(row) else ROUNDS)
        most = max(LAST, MORE * len(times))
        while open_yet(found := ratio(row, times, factor, amount)) and len(times) < most:
            times.append((seconds(ours), seconds(theirs)))
        return found

    return guarded(row, measure)


def open_yet(row: Row) -> bool:
    """Whether an aim lies within the spread, so that a few more rounds might change what is said of it."""
    low, high = row.spread
    return any(low < bound < high for bound in (row.at_least, row.at_most) if bound is not None)


# --- Running ---------------------------------------------------------------------------------------------------


def name_of(part: Callable) -> str:
    """As it would be called: ``shape_rows(base, cpu)``."""
    if isinstance(part, partial):
        return f"{part.func.__name__}({', '.join(str(x) for x in part.args)})"
    return f"{part.__name__}()"


def rows_of(benchmark: str, parts: Callable[[], list[Callable[[], Iterable[Row]]]]) -> Iterator[Row]:
    """The rows of all parts; of one that fails, those before, and one that says so."""
    try:
        found = parts()
    except Exception as error:
        yield Row(benchmark, "all of it", "", error=one_line(error))
        return
    for part in found:
        try:
            yield from part()
        except Exception as error:
            yield Row(benchmark, f"the rest of {name_of(part)}", "", error=one_line(error))


def _send(benchmark: str, connection) -> None:
    warnings.simplefilter("ignore")  # other libraries' would run into the progress
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    # imported among the parts, so that what cannot be imported is a row with an error
    with contextlib.suppress(KeyboardInterrupt):  # the parent gets it too, and says so
        for row in rows_of(benchmark, lambda: importlib.import_module(f"tests.benchmarks.{benchmark}").parts()):
            connection.send(row)


def measured(benchmark: str, work: Callable[..., None] = _send) -> Iterator[Row]:
    """The rows of a benchmark as its own process measures them; the last says so if that died."""
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe(duplex=False)
    child = spawn.Process(target=work, args=(benchmark, there), daemon=True)
    child.start()
    there.close()
    try:
        while True:
            try:
                yield here.recv()
            except EOFError:
                break
        child.join()
    finally:
        child.kill()
    if child.exitcode:
        yield Row(benchmark, "the rest of it", "", error=f"its process ended with {child.exitcode}")


# --- The saved file --------------------------------------------------------------------------------------------


def processor() -> str:
    """Its name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):  # not Linux, or a processor that it has no name for
        return platform.processor() or platform.machine()


def commit(folder: Path = ROOT) -> str | None:
    """Git's, with ``-dirty`` where files differ from it; None where there is none."""
    command = ["git", "describe", "--always", "--abbrev=12", "--dirty", "--exclude=*"]
    try:
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "coursekit": coursekit.__version__}
    for name in ("torch", "numpy", "transformers", "tokenizers"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "none"
    return found


def about() -> Run:
    """When and where, before anything is measured."""
    return {
        "time": time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()),
        "processor": processor(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "versions": versions(),
        "commit": commit(),
    }


def save(path: Path, run: Run, rows: list[Row]) -> None:
    text = json.dumps(run | {"rows": [asdict(row) for row in rows]}, indent=1, ensure_ascii=False) + "\n"
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def read(path: Path) -> tuple[Run, list[Row]]:
    """
    Raises:
        ValueError: the file is none of these.
    """
    try:
        run = json.loads(path.read_text(encoding="utf-8"))
        rows = [Row(**row | {"rounds": tuple(row["rounds"]), "both": tuple(row["both"])}) for row in run.pop("rows")]
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{path} is no saved benchmark: {one_line(error)}") from error
    return run, rows


# --- Two files -------------------------------------------------------------------------------------------------


def noise(a: Row, b: Row) -> float | None:
    """What the difference of two runs must exceed: 1.5 times the widths of both spreads together, and 2 %.

    Two runs of five rounds of the same thing differ by more in 1 to 1.5 % of all cases, also if some of the rounds are
    disturbed; by the widths alone, unmultiplied, in 5 %, and their quartiles do not overlap in 20 %. None where
    something was timed but once; 0 where it was counted.
    """
    if a.counted and b.counted:
        return 0.0
    if min(len(a.rounds), len(b.rounds)) < 2:
        return None
    widths = [high - low for low, high in (a.spread, b.spread)]
    return max(WIDTHS * sum(widths), SAME * abs(a.value))


def verdict(a: Row, b: Row) -> str:
    """Of the second: "better", "worse", without an aim "changed"; "" within the noise; "?" where that is unknown."""
    if a.error or b.error:
        return "?" if a.error and b.error else "failed" if b.error else "works"
    limit = noise(a, b)
    if limit is None:
        return "?"
    if abs(b.value - a.value) <= limit:
        return ""
    if a.at_least is None and a.at_most is None:
        return "changed"
    return "better" if (b.value > a.value) == (a.at_least is not None) else "worse"


def compared(first: list[Row], second: list[Row]) -> tuple[list[tuple[Row, Row]], list[Row], list[Row]]:
    """The rows that both have, in the order of the first; those that only the first has; and only the second."""
    a, b = ({row.key: row for row in rows} for rows in (first, second))
    return (
        [(a[key], b[key]) for key in a if key in b],
        [a[key] for key in a if key not in b],
        [b[key] for key in b if key not in a],
    )


# --- What is printed -------------------------------------------------------------------------------------------


def number(x: float, unit: str = "") -> str:
    if unit == "%":
        return f"{x:.1%}".replace("%", " %")
    digits = 3 if abs(x) < 10 else 1 if abs(x) < 1000 else 0
    return f"{x:,.{digits}f} {unit}".rstrip()


def shown(row: Row) -> str:
    """The median, and the spread in brackets."""
    if row.error:
        return "failed"
    value = number(row.value, row.unit)
    if len(row.rounds) < 2:
        return value
    low, high = (number(x, "%" if row.unit == "%" else "").removesuffix(" %") for x in row.spread)
    return f"{value} ({low}–{high})"


def aim(row: Row) -> str:
    bounds = [(sign, bound) for sign, bound in (("≥", row.at_least), ("≤", row.at_most)) if bound is not None]
    return ", ".join(f"{sign} {bound * 100:g} %" if row.unit == "%" else f"{sign} {bound:.3g} {row.unit}".rstrip()
                     for sign, bound in bounds)  # fmt: skip


TICKS = {True: "✓", False: "–", None: ""}


def by_topic(rows: Iterable[Row]) -> Iterator[list[Row]]:
    return (list(group) for _, group in itertools.groupby(rows, key=lambda row: row.topic))


def table(rows: list[Row]) -> Table:
    found = Table("topic", "what", "against", "measured (spread)", "aim", "")
    for group in by_topic(rows):
        found.add_section()
        for row in group:
            cells = row.topic, row.what, row.against, shown(row), aim(row), TICKS[row.reached]
            found.add_row(*map(escape, cells))
    return found


def summary(rows: list[Row]) -> list[str]:
    """How many aims were reached, and each error."""
    aimed = [row for row in rows if row.reached is not None]
    failed = [row for row in rows if row.error]
    lines = [f"{sum(row.reached for row in aimed)} of {len(aimed)} aims reached; ✓ reached, – not, blank: no aim"]
    return lines + [f"failed: {', '.join(filter(None, row.key))}: {row.error}" for row in failed]


def peaks(run: Run) -> dict[str, str]:
    """Those of the matrix product, as shown."""
    return {what: x if isinstance(x, str) else f"{x:,.0f} GFLOP/s" for what, x in run.get("peaks", {}).items()}


def facts(run: Run) -> dict[str, str]:
    """What a run was made with, line by line."""
    names = ("time", "processor", "cores", "threads", "gpu", "commit")
    found = {name: str(run.get(name) or "none") for name in names}
    return found | {f"matrix product, {what}": best for what, best in peaks(run).items()} | run["versions"]


def busy(run: Run) -> list[str]:
    """What to say of a machine on which others work."""
    load = run.get("load") or 0.0
    return [f"NOT QUIET: others kept {load:.1f} cores busy in the minute before; ratios scatter"] * (load > BUSY)


def header(run: Run) -> list[str]:
    """What stands above the table."""
    return [
        f"{run['processor']}, {run['cores']} cores, threads used: {run['threads']}",
        f"matrix product: {'; '.join(f'{what}: {best}' for what, best in peaks(run).items())}",
        f"GPU: {run['gpu'] or 'none, its rows are left out'}",
        *busy(run),
        ", ".join(f"{name} {what}" for name, what in run["versions"].items()) + f"; commit {run['commit'] or 'none'}",
    ]


def comparison(first: Run, second: Run, a: list[Row], b: list[Row]) -> tuple[Table, Table, list[str]]:
    """What the two were made with; their rows side by side; and what to say below."""
    made = Table("", "A", "B", "")
    lines = facts(first), facts(second)
    for name in lines[0] | lines[1]:
        here, there = (one.get(name, "none") for one in lines)
        made.add_row(*map(escape, (name, here, there)), "differs" if here != there and name != "time" else "")
    rows = Table("topic", "what", "against", "A (spread)", "B (spread)", "change", "beyond the noise")
    both, only_a, only_b = compared(a, b)
    verdicts = {old.key: verdict(old, new) for old, new in both}
    for group in by_topic(old for old, _ in both):
        rows.add_section()
        for old in group:
            new = next(new for _, new in both if new.key == old.key)
            change = "" if old.error or new.error or not old.value else f"{new.value / old.value - 1:+.1%}"
            cells = *old.key, shown(old), shown(new), change.replace("%", " %"), verdicts[old.key]
            rows.add_row(*map(escape, cells))
    beyond = sum(word not in ("", "?") for word in verdicts.values())
    said = [f"{beyond} of {len(both)} differ by more than the noise: {WIDTHS:g} times both spreads, and {SAME:.0%}"]
    said += [f"? at {list(verdicts.values()).count('?')}: timed once, or failed in both"] * ("?" in verdicts.values())
    for name, alone in (("A", only_a), ("B", only_b)):
        said += [f"only in {name}: {', '.join(filter(None, row.key))}" for row in alone]
    return made, rows, said


def console(error: bool = False) -> Console:
    """As wide as the tables where no terminal says how wide it is."""
    found = Console(stderr=error, highlight=False)
    return found if found.is_terminal else Console(stderr=error, highlight=False, width=170)
