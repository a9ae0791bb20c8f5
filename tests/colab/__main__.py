"""The course in Colab's environment, made on this machine from ``versions.txt``.

``python -m tests.colab`` (``make colab``) asks pip what it would do to install the course's wheel there, which may
change no package that is there, and then lets the setup cell do it. ``--all`` also executes the lectures and the
exercises' masters there, or those that are named, and writes ``results.md``.
"""

import argparse
import hashlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import nbformat
from hatchling.builders.wheel import WheelBuilder

from coursekit.commands.lectures import execute, home, lectures
from coursekit.commands.publish import published_as, setup_cell
from coursekit.grading.release import build_wheel, masters
from tests.full import find_python

HERE = Path(__file__).parent
FOLDER = home() / "build" / "colab"
PYTHON, TORCH = "3.13", "2.11.0"
# For pip the metadata are all there is to a package, so an empty torch does: the real one, which for Linux comes with
# CUDA alone, is gigabytes. What executes notebooks takes the real one.
NO_TORCH = (
    f'[project]\nname = "torch"\nversion = "{TORCH}"\n[tool.hatch.build.targets.wheel]\nbypass-selection = true\n'
)
Packages = dict[str, str]


class Failed(Exception):
    """What is not as it should be, in one line."""


def command(*words: str | Path, cwd: Path = FOLDER, **environment: str) -> str:
    """Run it and return what it prints; where it fails, its last line says why."""
    done = subprocess.run(
        list(map(str, words)), cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "nothing printed").splitlines()
        raise Failed(f"`{' '.join(map(str, words[1:4]))} …` ended with {done.returncode}: {said[-1]}")
    return done.stdout


def colabs_python() -> str:
    """Python 3.13; where this machine has none, the newest at hand, which is said."""
    if found := find_python(PYTHON):
        return found
    found, version = next(
        ((found, version) for version in ("3.14", "3.12", "3.11") if (found := find_python(version))),
        (sys.executable, ".".join(map(str, sys.version_info[:2]))),
    )
    print(f"Colab's Python {PYTHON} is not on this machine: {version} is taken")
    return found


def environment(real_torch: bool) -> Path:
    """The folder of Colab's environment, made where it is missing or old; nothing of the course is in it."""
    folder, made = FOLDER / ("all" if real_torch else "pip"), FOLDER / ("all.json" if real_torch else "pip.json")
    base, pip = colabs_python(), [folder / "bin" / "python", "-m", "pip", "--disable-pip-version-check"]
    sources = [HERE / "versions.txt", *sorted((HERE / "stand_in").rglob("*.py"))]
    wanted = hashlib.sha256(b"".join([base.encode(), *(path.read_bytes() for path in sources)])).hexdigest()
    kept = json.loads(made.read_text("utf-8")) if made.exists() else {}
    if kept.get("wanted") == wanted and folder.exists():
        if foreign := packages(folder).keys() - kept["packages"].keys():
            command(*pip, "uninstall", "--quiet", "--yes", *sorted(foreign))
        if packages(folder) == kept["packages"]:
            return folder
    made.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    command(base, "-m", "venv", folder)
    wheels = [wheel_of(HERE / "stand_in")]
    if not real_torch:
        (FOLDER / "torch").mkdir(exist_ok=True)
        (FOLDER / "torch" / "pyproject.toml").write_text(NO_TORCH, encoding="utf-8")
        wheels.append(wheel_of(FOLDER / "torch"))
    torch = [f"torch=={TORCH}"] if real_torch else []
    command(*pip, "install", "--quiet", "--no-compile", *wheels, *torch, "--requirement", HERE / "versions.txt")
    made.write_text(json.dumps({"wanted": wanted, "packages": packages(folder)}), encoding="utf-8")
    return folder


def wheel_of(source: Path) -> str:
    return next(WheelBuilder(str(source)).build(directory=str(FOLDER / "wheels"), versions=["standard"]))


def packages(folder: Path) -> Packages:
    """What is installed: version by name."""
    asked = "import json, importlib.metadata as m; print(json.dumps([(d.name, d.version) for d in m.distributions()]))"
    found = json.loads(command(folder / "bin" / "python", "-I", "-c", asked))
    return {normal(name): version for name, version in found}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def would_change(report: dict[str, Any], there: Packages) -> list[str]:
    """The packages of ``there`` that pip would replace, by its report."""
    new = {normal(item["metadata"]["name"]): item["metadata"]["version"] for item in report["install"]}
    return [f"{name} {there[name]} -> {version}" for name, version in sorted(new.items()) if name in there]


def ask_pip(folder: Path, wheel: Path) -> list[str]:
    """What pip would add to install the wheel; refused if it would change a package that is there."""
    words = ["--dry-run", "--quiet", "--disable-pip-version-check", "--report", "-"]
    report = json.loads(command(folder / "bin" / "python", "-m", "pip", "install", *words, wheel))
    if changed := would_change(report, packages(folder)):
        raise Failed(f"installing {wheel.name} in Colab would change {', '.join(changed)}")
    return sorted(f"{item['metadata']['name']} {item['metadata']['version']}" for item in report["install"])


def beside(wheel: Path, notebook: Path, content: Path) -> Path:
    """A copy of a notebook in the folder ``content``, as in Colab: the wheel beside it, nothing else of the course."""
    shutil.rmtree(content, ignore_errors=True)
    content.mkdir(parents=True)
    shutil.copy(wheel, content)
    return Path(shutil.copy(notebook, content))


def run_setup_cell(folder: Path, wheel: Path) -> None:
    """The cell itself in Colab's IPython: the course is there afterwards, and all else as it was."""
    there, content = packages(folder), beside(wheel, lectures()[0], FOLDER / "content" / "setup").parent
    shell = [folder / "bin" / "python", "-I", "-m", "IPython", "--no-banner", "--colors=NoColor", "-c"]
    ask = "\nimport sys, coursekit.commands.cli; assert 'torch' not in sys.modules; print(coursekit.__file__)"
    said = command(*shell, setup_cell(published_as(home())) + ask, cwd=content, IPYTHONDIR=str(FOLDER / "ipython"))
    if str(folder) not in said:
        raise Failed(f"the setup cell did not install the course: {said.strip().splitlines()[-1]}")
    nothing_changed(folder, there)


def nothing_changed(folder: Path, there: Packages) -> None:
    now = packages(folder)
    if changed := [f"{name} {there[name]} -> {now.get(name)}" for name in there if now.get(name) != there[name]]:
        raise Failed(f"installing the course changed {', '.join(changed)}")
    if "attention-course" not in now:
        raise Failed("the setup cell did not install the course")


def run_notebook(folder: Path, wheel: Path, path: Path) -> dict[str, Any]:
    """Execute a lecture or a master from an environment without the course, which its setup cell installs."""
    there, out = packages(folder), FOLDER / "executed" / name_of(path)
    spec = {"argv": [str(folder / "bin" / "python"), "-m", "google.colab", "-f", "{connection_file}"]}
    kernel = FOLDER / "jupyter" / "kernels" / "python3" / "kernel.json"  # before all others of this name
    kernel.parent.mkdir(parents=True, exist_ok=True)
    spec |= {"display_name": "Colab", "language": "python", "env": {"PYDEVD_DISABLE_FILE_VALIDATION": "1"}}
    kernel.write_text(json.dumps(spec), encoding="utf-8")
    os.environ |= {"JUPYTER_PATH": str(FOLDER / "jupyter"), "IPYTHONDIR": str(FOLDER / "ipython")}
    before = computed_by_children()
    result = execute(beside(wheel, path, FOLDER / "content" / name_of(path)), out)
    kept = sum(claim["ok"] for claim in result["claims"])
    about = f"{kept} of {len(result['claims'])} claims"
    if not result["error"]:
        nothing_changed(folder, there)
    if path.parent.name == path.stem:
        earned, of = points(out / "notebook.ipynb")
        about = f"{earned} of {of} points"
        if earned < of and not result["error"]:
            result["error"] = f"{path.stem}: its model answers earn {about}"
    computed = computed_by_children() - before
    return {"seconds": result["seconds"], "computed": computed, "about": about, "error": result["error"]}


def computed_by_children() -> float:
    """Seconds of computing, which a busy machine does not stretch as it does the time on the clock."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def points(notebook: Path) -> tuple[int, int]:
    """What a master's last cell says of its answers."""
    outputs = [out for cell in nbformat.read(notebook, as_version=4).cells for out in cell.get("outputs", [])]
    said = "".join(out.get("data", {}).get("text/plain", "") for out in outputs)
    found = re.findall(r"so far +(\d+) of +(\d+) ", said)
    return tuple(map(int, found[-1])) if found else (0, 1)


def name_of(path: Path) -> str:
    """``03_self_attention`` of a lecture, ``solutions/03_self_attention`` of a master."""
    return f"solutions/{path.stem}" if path.parent.name == path.stem else path.stem


def chosen(names: list[str]) -> list[Path]:
    """Lectures and masters that are named by their beginning (``03``, ``solutions/02``), all where none is."""
    known = {name_of(path): path for path in [*lectures(), *masters(home())]}
    unknown = [name for name in names if not any(one.startswith(name) for one in known)]
    if unknown:
        raise Failed(f"no notebook begins with {unknown[0]!r}; there are: {', '.join(known)}")
    return [path for name, path in known.items() if not names or name.startswith(tuple(names))]


def table(results: dict[str, dict[str, Any]], there: Packages) -> str:
    versions = ", ".join(f"{name} {there[name]}" for name in ("torch", "numpy", "ipython", "ipykernel", "ipywidgets"))
    rows = [
        f"| {name} | {one['seconds']:.0f} | {one['computed']:.0f} | {one['about']} | {one['error'] or ''} |"
        for name, one in sorted(results.items())
    ]
    about = f"Made by `python -m tests.colab --all`, with {versions} and the rest of `versions.txt`."
    head = ["| notebook | seconds | of computing | kept | error |", "|---|---|---|---|---|"]
    return "\n".join(["# The course in Colab's environment", "", about, "", *head, *rows, ""])


def check(real_torch: bool, names: list[str]) -> str:
    """All of it; returns what was found, in one line."""
    started = time.perf_counter()
    FOLDER.mkdir(parents=True, exist_ok=True)
    folder = environment(real_torch)
    there, wheel = packages(folder), build_wheel(home(), FOLDER / "wheels")
    new = ask_pip(folder, wheel)
    print(f"Of {len(there)} packages in Colab's environment none would change; new: {', '.join(new)}", flush=True)
    run_setup_cell(folder, wheel)
    if not real_torch:
        return f"The setup cell installs the course in Colab's environment ({time.perf_counter() - started:.0f} s)"
    kept = FOLDER / "results.json"
    results, paths = json.loads(kept.read_text("utf-8")) if kept.exists() else {}, chosen(names)
    for path in paths:
        environment(real_torch)  # without the course again
        result = results[name_of(path)] = run_notebook(folder, wheel, path)
        print(f"{name_of(path)}: {result['seconds']:.0f} s, {result['error'] or result['about']}", flush=True)
        kept.write_text(json.dumps(results, indent=1), encoding="utf-8")
        (HERE / "results.md").write_text(table(results, there), encoding="utf-8")
    if wrong := [results[name_of(path)]["error"] for path in paths if results[name_of(path)]["error"]]:
        raise Failed(f"{len(wrong)} of {len(paths)} notebooks fail in Colab's environment: {wrong[0]}")
    seconds = time.perf_counter() - started
    return f"{len(paths)} notebooks run in Colab's environment, torch {there['torch']}, in {seconds / 60:.0f} min"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="execute notebooks too, with the real torch (gigabytes)")
    parser.add_argument("names", nargs="*", help="with --all: notebooks, such as 03 or solutions/02 (default: all)")
    arguments = parser.parse_args()
    try:
        print(check(arguments.all, arguments.names))
    except Failed as failure:
        print(failure)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
