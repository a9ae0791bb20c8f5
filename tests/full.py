"""Everything that is too long for every change: Pythons, lowest dependencies, seeds, Colab, models, recipes, times.

``make full`` does all of it in ``build/full/``, for hours on two cores, and writes ``tests/full.md``; ``python -m
tests.full lowest seeds`` does the parts that are named, and replaces their rows alone. Tests are run on what is
committed, the others on what is here.
"""

import argparse
import os
import platform
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from pathlib import Path
from xml.etree import ElementTree

from rich.console import Console

from coursekit.commands.lectures import execute, home, lectures
from coursekit.grading.release import masters
from coursekit.train.checkpoint import save_json

PYTHONS = ("3.11", "3.12", "3.13")
OFFLINE = ["bwrap", "--dev-bind", "/", "/", "--unshare-net", "--die-with-parent"]
FOLDER = home() / "build" / "full"
TABLE = home() / "tests" / "full.md"
OWN_TABLES = (":!tests/full.md", ":!tests/colab/results.md")  # what these runs write is no change
console = Console()


class Failed(Exception):
    """A part that could not be done, or whose outcome is not as it should be; the message is its row."""


def command(*words: str | Path, cwd: Path | None = None, **environment: str) -> str:
    """Run it and return what it prints, which is also kept in ``build/full/log``."""
    with (FOLDER / "log").open("a+", encoding="utf-8") as log:
        log.write(f"\n$ {' '.join(map(str, words))}\n")
        log.flush()
        done = subprocess.run(
            list(map(str, words)), cwd=cwd or home(), env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        log.write(done.stdout)
    if done.returncode:
        last = (done.stdout.strip().splitlines() or ["nothing printed"])[-1]
        raise Failed(f"`{' '.join(map(str, words[-3:]))}` ended with {done.returncode}: {last}")
    return done.stdout


def find_python(version: str) -> str | None:
    """A Python of this version that runs: on the path, or kept by pyenv."""
    candidates = [shutil.which(f"python{version}")]
    candidates += sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}*/bin/python"), reverse=True)
    for found in filter(None, candidates):
        asked = subprocess.run([found, "-V"], capture_output=True, text=True, check=False)
        if asked.returncode == 0 and asked.stdout.split()[1].startswith(f"{version}."):
            return str(found)
    return None


def clean_clone(name: str, python: str, constraints: str | None = None) -> Path:
    """What is committed, with an environment of its own; all that is downloaded is downloaded here."""
    clone = FOLDER / name
    shutil.rmtree(clone, ignore_errors=True)
    command("git", "clone", "--quiet", home(), clone)
    if constraints is not None:
        (clone / "constraints.txt").write_text(constraints, encoding="utf-8")
    command("make", ".venv/test", "system", f"PYTHON={python}", cwd=clone)
    return clone


def tested(clone: Path, **environment: str) -> str:
    """All tests without a network, where it can be cut; how many passed, and how long it took."""
    started, results = time.perf_counter(), clone / "build" / "tests.xml"
    offline = OFFLINE if subprocess.run([*OFFLINE, "true"], capture_output=True, check=False).returncode == 0 else []
    words = [".venv/bin/python", "-m", "pytest", "-n", "2", "--dist", "loadfile", f"--junitxml={results}"]
    failure = None
    try:
        command(*offline, *words, cwd=clone, CI="true", **environment)
    except Failed as error:
        failure = error
    if not results.exists():
        raise failure or Failed("the tests left no results")
    counts = ElementTree.parse(results).getroot().find("testsuite").attrib
    bad = int(counts["failures"]) + int(counts["errors"])
    passed = int(counts["tests"]) - bad - int(counts["skipped"])
    network = "without a network" if offline else "with the network"
    text = f"{passed:,} tests passed, {bad} failed, {counts['skipped']} skipped, {network}, {minutes_since(started)}"
    if bad or failure:
        raise Failed(text)
    return text


def minutes_since(started: float) -> str:
    return f"{(time.perf_counter() - started) / 60:.0f} min"


def on_python(version: str) -> str:
    python = find_python(version)
    if python is None:
        raise Failed(f"Python {version} is not on this machine")
    clone = clean_clone(f"python-{version}", python)
    # the many seeds of the exercises' checks once: they do not hang on the version
    seeds = {"FULL": "true"} if version == next(filter(find_python, PYTHONS)) else {}
    return f"{versions(clone)}: {tested(clone, **seeds)}"


def versions(clone: Path) -> str:
    asked = "import platform, torch, numpy; print(platform.python_version(), torch.__version__, numpy.__version__)"
    python, torch, numpy = command(clone / ".venv/bin/python", "-c", asked, cwd=clone).split()
    return f"Python {python}, torch {torch}, NumPy {numpy}"


def lowest() -> str:
    """The tests on the lowest versions that ``pyproject.toml`` admits, as uv finds them."""
    options = ["--quiet", "--no-annotate", "--no-header", "--extra", "test", "--resolution", "lowest-direct"]
    compile_them = [sys.executable, "-m", "uv", "pip", "compile", *options, "--python", sys.executable]
    compiled = command(*compile_them, "pyproject.toml")
    clone = clean_clone("lowest", sys.executable, compiled)
    return f"{versions(clone)}: {tested(clone)}"


def seeds() -> str:
    """Every lecture on five seeds, and twice on the first: see ``tests.seeds``."""
    return command(sys.executable, "-m", "tests.seeds").strip().splitlines()[-1]


def colab() -> str:
    """Every lecture and exercise with Colab's versions: see ``tests.colab``."""
    return command(sys.executable, "-m", "tests.colab", "--all").strip().splitlines()[-1]


def trl() -> str:
    """The losses of lecture 11 beside those of the library ``trl``, in an environment of its own: see ``tests.trl``."""
    folder = FOLDER / "trl"
    venv.create(folder, clear=True, with_pip=True)
    (own,), (whole,) = (list(one.glob("lib/python*/site-packages")) for one in (folder, Path(sys.prefix)))
    (own / "course.pth").write_text(f"{whole}\n{home()}\n", encoding="utf-8")
    python = folder / "bin/python"
    command(python, "-m", "pip", "install", "--quiet", "--constraint", "constraints.txt", "trl==1.16.0")
    return command(python, "-m", "tests.trl", HF_HUB_OFFLINE="1").strip().splitlines()[-1]


def smollm2() -> str:
    """What ``coursekit fetch smollm2`` gets, beside transformers reading the same file: see ``tests.smollm2``."""
    return command(sys.executable, "-m", "tests.smollm2", HF_HUB_OFFLINE="1").strip().splitlines()[-1]


def kills() -> str:
    """The marking of a class, killed a thousand times: see ``tests.kills``."""
    return command(sys.executable, "-m", "tests.kills", "1000").strip().splitlines()[-1]


def times() -> str:
    """How long all lectures and all model answers take, two at a time with one thread each; no answer over 90 s."""
    os.environ["OMP_NUM_THREADS"] = "1"
    told = []
    with ProcessPoolExecutor(2) as pool:
        for kind, paths in (("lectures", lectures()), ("model answers", masters(home()))):
            started, folders = time.perf_counter(), [FOLDER / kind / path.stem for path in paths]
            results = dict(zip(paths, pool.map(execute, paths, folders)))
            told.append(f"{len(paths)} {kind} in {minutes_since(started)}")
            if wrong := [result["error"] for result in results.values() if result["error"]]:
                raise Failed(wrong[0])
            slowest = max(paths, key=lambda path: results[path]["seconds"])
            seconds = results[slowest]["seconds"]
            told[-1] += f" (the longest, {slowest.stem}, {seconds:.0f} s)"
            if kind == "model answers" and seconds > 90:
                raise Failed("; ".join(told))
    return "; ".join(told)


def recipes() -> str:
    """The shipped weights, measured again as they were when they were made, on the whole test split."""
    import torch

    from coursekit.recipes import bert, dino, gpt, labelled, load_metrics, sit, stories, vit

    found, saved = {}, {}
    model, tokenizer = bert.load()
    for source, samples in bert.held_out("test", tokenizer).items():
        found[f"bert, {source}"], saved[f"bert, {source}"] = bert.measure(model, samples), load_metrics("bert")[source]
    for variant in ("gpt-documentation", "gpt-code"):
        model, tokenizer = gpt.load(variant)
        measured = gpt.measure(gpt.as_language_model(model, tokenizer.ids[gpt.END]), variant, "test", tokenizer)
        found |= {f"{variant}, {source}": values for source, values in measured.items()}
        saved |= {f"{variant}, {source}": values for source, values in load_metrics(variant)["test"].items()}
    for recipe, name in ((dino, "dino"), (sit, "sit")):
        found[name], saved[name] = recipe.evaluate_features(recipe.load(), "test"), load_metrics(name)["test"]
    model, tokenizer = stories.load()
    found["stories"], saved["stories"] = stories.measure(model, "test", tokenizer), load_metrics("stories")["test"]
    found["labelled"] = {"accuracy": labelled.right(labelled.load(), "test")}
    saved["labelled"] = load_metrics("labelled")["test"]
    with torch.no_grad():
        found["vit"], saved["vit"] = {"accuracy": vit.accuracy_on_test(vit.load())}, load_metrics("vit")["test"]
    flat, shipped = ({(part, name): v for part, d in x.items() for name, v in d.items()} for x in (found, saved))
    save_json(FOLDER / "recipes.json", {"measured": found, "shipped": saved})
    apart = {pair: abs(flat[pair] - value) / max(abs(value), 1e-9) for pair, value in shipped.items()}
    worst = max(apart, key=apart.get)
    text = (
        f"{len(shipped)} numbers of {len(found)} parts; furthest from what is shipped: {', '.join(worst)}, "
        f"{flat[worst]:.5g} against {shipped[worst]:.5g}"
    )
    if apart[worst] > 0.01:  # Python's documentation, which two of them read, differs a little between its versions
        raise Failed(text)
    return text


PARTS: dict[str, tuple[str, Callable[[], str]]] = {
    **{f"python-{v}": (f"tests on Python {v}", lambda v=v: on_python(v)) for v in PYTHONS},
    "lowest": ("tests on the lowest versions of what is depended on", lowest),
    "seeds": ("every lecture on five seeds, and twice on the first", seeds),
    "colab": ("every lecture and exercise with Colab's versions", colab),
    "trl": ("losses of lecture 11 beside those of the library trl", trl),
    "smollm2": ("SmolLM2 out of its GGUF file beside transformers", smollm2),
    "recipes": ("shipped weights, measured again", recipes),
    "kills": ("the marking of a class, killed at a thousand random moments", kills),
    "times": ("time of everything, two processes of one thread", times),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)} (default: all)")
    chosen = parser.parse_args().parts or list(PARTS)
    if unknown := [name for name in chosen if name not in PARTS]:
        parser.error(f"no part {unknown[0]!r}; there are: {', '.join(PARTS)}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    rows = kept_rows(TABLE.read_text("utf-8")) if TABLE.exists() else {}
    fine = True
    for name in chosen:
        commit = command("git", "rev-parse", "--short", "HEAD").strip()  # before: meanwhile somebody may commit
        if command("git", "status", "--porcelain", "--", ".", *OWN_TABLES):
            commit += ", with changes"
        with console.status(PARTS[name][0]):
            try:
                mark, text = "✓", PARTS[name][1]()
            except Failed as error:
                mark, text, fine = "✗", str(error), False
            except Exception as error:  # the other parts are worth having
                mark, text, fine = "✗", f"{type(error).__name__}: {error}".splitlines()[0], False
        console.print(f"{mark} {PARTS[name][0]}: {text}", highlight=False, markup=False)
        about = PARTS[name][0]
        rows[about] = f"| {mark} | {about} | {text.replace('|', '/')} | {date.today()}, {commit} |"
        TABLE.write_text(table(rows), encoding="utf-8")
    return 0 if fine else 1


def kept_rows(text: str) -> dict[str, str]:
    """The rows of an earlier table, by what they are about."""
    lines = [line for line in text.splitlines() if line.startswith(("| ✓", "| ✗"))]
    return {line.split(" | ")[1]: line for line in lines}


def table(rows: dict[str, str]) -> str:
    head = ["| | what | outcome | on |", "|---|---|---|---|"]
    where = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    found = [rows[about] for about, _ in PARTS.values() if about in rows]
    return "\n".join(["# What `make full` found", "", f"On {where}.", "", *head, *found, ""])


if __name__ == "__main__":
    raise SystemExit(main())
