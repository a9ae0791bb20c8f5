"""What ``make colab`` concludes from pip's report; the rest of it is the check itself."""

import os
import subprocess
import sys
import tomllib
import zipfile

import nbformat
import pytest

from coursekit.commands import doctor
from coursekit.commands.lectures import home
from tests.colab.__main__ import HERE, TORCH, Failed, beside, chosen, name_of, normal, points, would_change


def report(**new: str) -> dict:
    return {"install": [{"metadata": {"name": name, "version": version}} for name, version in new.items()]}


def test_a_package_that_is_there_is_named_if_it_would_change():
    there = {"numpy": "2.1.3", "typing-extensions": "4.1", "rich": "13.9.4"}
    assert would_change(report(sacrebleu="2.6.0", lxml="6.1"), there) == []
    assert would_change(report(numpy="2.4.0", sacrebleu="2.6.0", Typing_Extensions="4.9"), there) == [
        "numpy 2.1.3 -> 2.4.0",
        "typing-extensions 4.1 -> 4.9",
    ]


def test_the_versions_are_those_that_the_doctor_compares_with():
    lines = [line for line in (HERE / "versions.txt").read_text("utf-8").splitlines() if not line.startswith("#")]
    versions = {"torch": TORCH, **dict(line.split("==") for line in lines)}
    assert {name: versions[name] for name in doctor.COLAB} == doctor.COLAB


def test_every_dependency_of_the_wheel_is_there_or_small():
    """What Colab lacks is downloaded by every student, so a new dependency is a decision."""
    lines = (HERE / "versions.txt").read_text("utf-8").splitlines()
    there = {line.split("==")[0] for line in lines}
    there |= {"torch", "pillow", "platformdirs", "pygments", "regex"}  # these need the others
    project = tomllib.loads((home() / "pyproject.toml").read_text("utf-8"))["project"]
    needed = {normal(line.split(">=")[0]) for line in project["dependencies"]}
    assert needed - there == {"sacrebleu"}


def test_a_notebook_is_alone_with_the_wheel(tmp_path):
    wheel = tmp_path / "attention_course-1-py3-none-any.whl"
    zipfile.ZipFile(wheel, "w").close()
    (tmp_path / "content").mkdir()
    (tmp_path / "content" / "last.ckpt").touch()
    notebook = beside(wheel, home() / "notebooks" / "03_self_attention.ipynb", tmp_path / "content")
    assert {path.name for path in notebook.parent.iterdir()} == {wheel.name, notebook.name}


def test_notebooks_are_chosen_by_their_beginning():
    assert [name_of(path) for path in chosen(["03", "solutions/02"])] == [
        "03_self_attention",
        "solutions/02_seq2seq_attention",
    ]
    everything = [*(home() / "notebooks").glob("*.ipynb"), *(home() / "solutions").glob("*/*.ipynb")]
    assert sorted(chosen([])) == sorted(everything)
    with pytest.raises(Failed, match="no notebook begins with '77'"):
        chosen(["77"])


def test_the_points_of_a_master_are_what_it_prints_last(tmp_path):
    path = tmp_path / "x.ipynb"
    cell = nbformat.v4.new_code_cell("check.score()")
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)
    assert points(path) == (0, 1), "a master that prints none fails"
    cards = ("shapes  2 of 2\nso far  2 of 88 points", "steps  5 of 5\nso far  7 of 88 points")
    cell.outputs = [nbformat.v4.new_output("display_data", {"text/plain": card, "text/html": ""}) for card in cards]
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)
    assert points(path) == (7, 88)


def test_the_stand_in_is_what_widgets_look_for(tmp_path):
    """anywidget asks for the module and then for Colab's widget manager."""
    code = (
        "import sys; from google.colab import drive; import anywidget._util as u; assert u.in_colab();"
        "u.get_repr_metadata(); assert sys.modules['google.colab.output']._widgets._installed_url;"
        "drive.mount(sys.argv[1]); print(*__import__('pathlib').Path(sys.argv[1]).iterdir())"
    )
    words, environment = [sys.executable, "-c", code, "drive"], {**os.environ, "PYTHONPATH": str(HERE / "stand_in")}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "Mounted at drive\ndrive/MyDrive\n", done.stderr
