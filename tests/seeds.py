"""Do the lectures' claims hang on luck? Every lecture on five seeds, and twice on the first.

``python -m tests.seeds`` executes the lectures in ``build/seeds/``, with another number wherever one seeds a generator,
and writes ``notebooks/seeds.json``, which the site shows. What has been executed is kept there for as long as the
lecture's code is the same: a second call goes on. Begin again, with ``--fresh``, after a change of the package that
may change what is measured. It takes about two hours on two cores.
"""

import argparse
import json
import os
import re
import shutil
from concurrent.futures import ProcessPoolExecutor, as_completed
from hashlib import sha256
from pathlib import Path

import nbformat
from rich.console import Console
from rich.table import Table

from coursekit.commands import lectures
from coursekit.train.checkpoint import save_json
from coursekit.viz.claims import bound_of

SEEDS = 5
APART = 1000  # seeds of two runs never meet
AGAIN = "again"  # the second run of seed 0
# Training draws its batches by these; what a data set holds does not change.
ORDERS = """from coursekit.data import batches, pretraining, translation
from coursekit.models import rnn_lm
kinds = batches.Shuffled, batches.Fresh, pretraining.Redrawn, translation.Bucketed, rnn_lm.Streams
for drawn in (batches.of_like_length, *(kind.__init__ for kind in kinds)):
    assert drawn.__code__.co_varnames[drawn.__code__.co_argcount - 1] == "seed", drawn
    drawn.__defaults__ = (*drawn.__defaults__[:-1], {offset})"""
TIMED = re.compile(r"\btime$")  # the names of claims about measured times
SEEDED = re.compile(r"\b(seed|manual_seed|default_rng)\((\d+)\)")


def reseeded(notebook: nbformat.NotebookNode, offset: int) -> nbformat.NotebookNode:
    """The lecture with ``offset`` added to every seed, going on after a claim that fails."""
    notebook = nbformat.from_dict(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            if offset:
                cell.source = SEEDED.sub(lambda found: f"{found[1]}({int(found[2]) + offset})", cell.source)
            cell.metadata["tags"] = [*cell.metadata.get("tags", []), "raises-exception"]
    setup = next(i for i, cell in enumerate(notebook.cells) if cell.cell_type == "code")
    if offset:
        notebook.cells.insert(setup + 1, nbformat.v4.new_code_cell(ORDERS.format(offset=offset)))
    return notebook


def run(lecture: Path, seed: int, folder: Path) -> list[dict]:
    """Execute the lecture there; returns its claims, which ``folder`` keeps for as long as its code is the same."""
    notebook = reseeded(nbformat.read(lecture, as_version=4), APART * seed)
    code = "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    code = sha256(code.encode()).hexdigest()
    kept = folder / "claims" / f"{lecture.stem}.json"
    if kept.exists() and (before := json.loads(kept.read_text("utf-8")))["code"] == code:
        return before["claims"]
    place = folder / "notebooks"
    place.mkdir(parents=True, exist_ok=True)
    shutil.copytree(lecture.parent / "pictures", place / "pictures", dirs_exist_ok=True)
    nbformat.write(notebook, place / lecture.name)
    result = lectures.execute(place / lecture.name, folder / lecture.stem)
    executed = nbformat.read(folder / lecture.stem / "notebook.ipynb", as_version=4)
    wrong = [out for cell in executed.cells for out in cell.get("outputs", []) if out.output_type == "error"]
    wrong = [f"{out.ename}: {out.evalue}" for out in wrong if out.ename != "ClaimFailed"]
    if wrong or result["error"]:
        raise RuntimeError(f"{lecture.stem}, seed {seed}: {result['error'] or wrong[0]}")
    save_json(kept, {"code": code, "claims": result["claims"]})
    return result["claims"]


def collected(found: dict[tuple[str, int | str], list[dict]]) -> dict[str, list[dict]]:
    """By lecture its claims, each with its ``values`` on all seeds and, of the second run, ``again``."""
    table: dict[str, list[dict]] = {}
    for stem in sorted({stem for stem, _ in found}):
        by_seed = {seed: {c["name"]: c for c in claims} for (name, seed), claims in found.items() if name == stem}
        of_any = {name: c for claims in by_seed.values() for name, c in claims.items()}
        table[stem] = []
        for name, c in of_any.items():
            # a claim that fails ends its cell: those below it were not reached, and have None
            value = {seed: claims.get(name, {"value": None})["value"] for seed, claims in by_seed.items()}
            bound = {key: c[key] for key in ("name", "at_least", "at_most") if key in c}
            table[stem].append(bound | {"values": [value[seed] for seed in range(SEEDS)], AGAIN: value[AGAIN]})
    return table


def holds(claim: dict, value: float | None) -> bool:
    if value is None:
        return False
    return value >= claim["at_least"] if "at_least" in claim else value <= claim["at_most"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lectures", nargs="*", help="numbers or names (default: all)")
    parser.add_argument("--jobs", type=int, default=2, help="lectures at a time")
    parser.add_argument("--fresh", action="store_true", help="forget what has been executed")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    chosen = [lectures.find_lecture(name) for name in options.lectures] or lectures.lectures()
    build, kept = lectures.home() / "build" / "seeds", lectures.home() / "notebooks" / "seeds.json"
    if options.fresh:
        shutil.rmtree(build, ignore_errors=True)
    console, found, failed = Console(), {}, []
    with ProcessPoolExecutor(options.jobs) as pool:
        futures = {}
        for seed in (*range(SEEDS), AGAIN):
            for lecture in chosen:
                number = 0 if seed == AGAIN else seed
                futures[pool.submit(run, lecture, number, build / str(seed))] = lecture.stem, seed
        for future in as_completed(futures):
            stem, seed = futures[future]
            try:
                found[stem, seed] = future.result()
                broken = [f"{c['name']} ({c['value']:.4g})" for c in found[stem, seed] if not c["ok"]]
                console.print(f"{stem}, seed {seed}: {'; '.join(broken) or 'all claims hold'}", highlight=False)
            except Exception as error:  # the others are worth having
                failed.append(stem)
                console.print(f"[red]{stem}, seed {seed}: {error}", highlight=False)
    whole = {pair: claims for pair, claims in found.items() if pair[0] not in failed}
    table = json.loads(kept.read_text("utf-8")) if kept.exists() else {}
    table |= collected(whole)
    save_json(kept, dict(sorted(table.items())))
    broken = report(console, {stem: table[stem] for stem in sorted({stem for stem, _ in whole})})
    if failed:
        console.print(f"not executed to the end: {', '.join(sorted(set(failed)))}", soft_wrap=True)
    return 1 if failed or broken else 0


def report(console: Console, table: dict[str, list[dict]]) -> bool:
    """Print what has not held, or differs between two runs of one seed; returns whether anything has."""
    shown = Table("lecture", "claim", "bound", "on the seeds", "again", title="Claims that hang on luck")
    unlucky = {}
    for stem, claims in table.items():
        for c in claims:
            repeats = c["values"][0] == c[AGAIN] or TIMED.search(c["name"])
            if not repeats or not all(holds(c, value) for value in [*c["values"], c[AGAIN]]):
                unlucky[f"{stem[:2]} {c['name']}"] = c
                *values, again = ("not reached" if v is None else f"{v:.4g}" for v in [*c["values"], c[AGAIN]])
                shown.add_row(stem[:2], c["name"], bound_of(c), "  ".join(values), again)
    number = sum(map(len, table.values()))
    if unlucky:
        console.print(shown)
        if None in (value for c in unlucky.values() for value in [*c["values"], c[AGAIN]]):
            console.print("A claim that was not reached stands in one cell below another one that failed there.")
        both = {name: (c["values"][0], c[AGAIN]) for name, c in unlucky.items() if not TIMED.search(c["name"])}
        if drawn := [name for name, (first, again) in both.items() if None not in (first, again) and first != again]:
            advice = "something is drawn without a seed (coursekit.train.seed)"
            console.print(f"Not the same twice with the same seed, so {advice}: {'; '.join(drawn)}", soft_wrap=True)
        console.print(f"{len(unlucky)} of {number} claims hang on luck: {'; '.join(unlucky)}", soft_wrap=True)
    else:
        console.print(f"All {number} claims hold on {SEEDS} seeds, and repeat exactly but for measured times.")
    for stem, claims in table.items():
        if claims and all(len(set(c["values"])) == 1 for c in claims):
            console.print(
                f"{stem}: every claim is the same on all seeds, so nothing that it measures is drawn by them."
            )
    return bool(unlucky)


if __name__ == "__main__":
    raise SystemExit(main())
