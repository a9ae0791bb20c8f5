"""Which tests ``make test ONLY=03`` runs."""

import re
import subprocess
import sys

import pytest

from coursekit.commands.lectures import home, lectures
from tests.only import FOR_ALL, TESTS, files_of, modules_of


def test_modules_are_found_by_their_file_and_through_the_door_of_their_room():
    source = (
        "%matplotlib inline\nfrom coursekit.nn.masks import causal_mask\nfrom coursekit.viz import bars\nimport numpy"
    )
    assert {"coursekit.nn.masks", "coursekit.viz", "coursekit.viz.plots"} == modules_of(source)
    assert "coursekit.recipes.dino" in modules_of("from coursekit.recipes import dino as recipe")


def test_a_lecture_touches_what_mirrors_its_imports_and_nothing_else():
    found = {path.relative_to(TESTS).as_posix() for path in files_of("03_self_attention")}
    assert {"nn/test_attention.py", "viz/test_heads.py", "test_structure.py"} <= found
    assert not {"models/test_dino.py", "recipes/test_dino.py", "commands/test_site.py"} & found


@pytest.mark.parametrize("stem", [path.stem for path in lectures()])
def test_every_lecture_touches_something_of_its_own(stem):
    assert len(files_of(stem) - FOR_ALL) >= 5


@pytest.mark.slow
def test_cases_of_other_lectures_are_left_out_and_an_unknown_lecture_is_refused():
    command = [sys.executable, "-m", "pytest", "-o", "addopts=", "-p", "tests.only", "--collect-only", "-q"]
    files = ["tests/grading/test_checks.py", "tests/grading/test_parts.py"]
    told = subprocess.run([*command, "--lecture", "3", *files], capture_output=True, text=True, cwd=home())
    cases = [line.partition("[")[2] for line in told.stdout.splitlines() if "told_its_own_mistake[" in line]
    assert cases
    assert {case[:2] for case in cases} == {"03"}
    assert "test_the_translator_is_not_to_be_called_itself" not in told.stdout, "it names exercise 04"
    assert re.findall(r"gives_the_points_of_the_notebook\[(\d\d)", told.stdout) == ["03"]
    told = subprocess.run([*command, "--lecture", "77", *files[1:]], capture_output=True, text=True, cwd=home())
    assert "no lecture '77'; there are: 01_language_models" in told.stderr
