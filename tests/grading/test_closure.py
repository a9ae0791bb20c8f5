"""A mark is fresh: whatever it depends on changes its digest, and nothing else does."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import coursekit
from coursekit.commands.lectures import home
from coursekit.grading.closure import closure, fingerprint, imported, path_of
from coursekit.grading.release import checks_of, masters

CHECKS = "coursekit.grading.checks."


# What each module of the package imports, by a child of a process that has read torch before.
LOADED = """
import os, sys, torch
for name in sys.argv[1:]:
    if os.fork() == 0:
        __import__(name)
        print(name, *[m for m in sys.modules if m[:9] == "coursekit"], flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.mark.slow
def test_every_checks_closure_holds_what_it_imports_and_the_marking_but_no_other_exercises_checks():
    every = {CHECKS + path.stem[3:] for path in masters(home())}
    command = [sys.executable, "-c", LOADED, *sorted(every)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True, cwd=home()).stdout.splitlines()
    assert len(lines) == len(every)
    for name, *loaded in map(str.split, lines):
        found = closure([name])
        assert {name, "coursekit.grading.parts", "coursekit.grading.calls", "coursekit.grading"} <= found
        assert name in loaded
        assert set(loaded) - {"coursekit.grading.checks"} <= found, "Python itself imports it"


def test_imports_are_found_inside_functions_and_of_modules():
    source = "def f():\n    from coursekit.nn import attention\n%pip install x\nimport coursekit.text.bpe as b, torch"
    assert set(imported(source)) == {"coursekit.nn", "coursekit.nn.attention", "coursekit.text.bpe"}
    assert path_of("coursekit.nn.attention.attend") is None


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A copy of the package."""
    folder = tmp_path_factory.mktemp("copy") / "coursekit"
    return shutil.copytree(Path(coursekit.__file__).parent, folder, ignore=shutil.ignore_patterns("__pycache__"))


def fingerprint_in(package) -> str:
    asked = f"""
from coursekit.grading.closure import fingerprint
print(fingerprint({CHECKS + "vit"!r}, "from coursekit.recipes.vit import load"))
"""
    command = [sys.executable, "-c", asked]
    return subprocess.run(command, cwd=package.parent, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def before(package):
    return fingerprint_in(package)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "fresh"),
    [
        ("grading/checks/vit.py", False),
        ("grading/checks/common.py", False),
        ("grading/marking.py", False),
        ("grading/inside.py", False),
        ("nn/attention.py", False),
        ("recipes/checkpoints/vit/model.safetensors", False),
        ("grading/checks/gpt.py", True),
        ("grading/feedback.py", True),
        ("grading/card.py", True),
        ("viz/heads.py", True),
    ],
)
def test_a_change_of_what_a_mark_depends_on_is_a_new_fingerprint(package, before, changed, fresh):
    path = package / changed
    kept = path.read_bytes()
    path.write_bytes(kept + b"\n# changed\n")
    try:
        assert (fingerprint_in(package) == before) == fresh
    finally:
        path.write_bytes(kept)


def test_the_given_code_counts():
    name = checks_of("03_self_attention").__name__
    assert fingerprint(name, "") != fingerprint(name, "from coursekit.text.bpe import BPE")
