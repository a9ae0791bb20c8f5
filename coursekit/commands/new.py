"""``coursekit new``: the files of a lecture, a widget or a recipe, with everything that the tests ask for.

What is made passes the tests as it is; each place that is to be filled in says TODO.
"""

import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from coursekit.commands.lectures import LectureError
from coursekit.commands.publish import colab_line, published_as, setup_cell
from coursekit.files import write_atomically
from coursekit.grading.release import release

KERNEL = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
GRADED = {"grade": False, "locked": True, "schema_version": 3, "solution": False, "task": False}
# of an exercise's cell by its kind: type, and what nbgrader has to know of it
KINDS = {
    "markdown": ("markdown", {}),
    "code": ("code", {}),
    "answer": ("code", {"locked": False, "solution": True}),
    "check": ("code", {"grade": True}),
    "written": ("markdown", {"grade": True, "locked": False, "solution": True}),
}


def template(file: str, **values: str) -> str:
    """A file of ``coursekit/templates`` with each ``@NAME@`` replaced."""
    text = (files("coursekit.commands") / "templates" / f"{file}.txt").read_text(encoding="utf-8")
    return re.sub(r"@([A-Z]+)@", lambda found: values[found[1].lower()], text)


def cells(text: str) -> Iterator[tuple[str, list[str], str]]:
    """Of each cell its id, the other words of its line ``%% ID KIND ...``, and its source."""
    for block in re.split(r"^%% ", text, flags=re.MULTILINE)[1:]:
        head, _, source = block.partition("\n")
        name, *words = head.split()
        yield name, words, source.strip("\n")


def notebook(text: str, address: str, repository: str | None, exercise: bool) -> Any:
    made = new_notebook(metadata=KERNEL | {"language_info": {"name": "python"}})
    for name, (kind, *more), source in cells(text):
        source = source.replace("SETUP", setup_cell(repository)) if name == "setup" else source
        source = source.replace("COLAB", colab_line(address, repository)) if name == "title" else source
        kind, marks = KINDS[kind]
        if exercise:
            about = {"nbgrader": GRADED | marks | {"grade_id": name}}
            about["nbgrader"] |= {"points": int(more[0])} if more else {}
            about |= {"tags": ["raises-exception"]} if kind == "code" and marks else {}
        else:
            about = {"slideshow": {"slide_type": more[0]}}
        make = new_code_cell if kind == "code" else new_markdown_cell
        made.cells.append(make(source, id=name, metadata=about))
    return made


def write_all(home: Path, texts: dict[str, str], hint: str) -> list[Path]:
    """Write new files, or none: nothing that is there is replaced."""
    if there := [name for name in texts if (home / name).exists()]:
        raise LectureError(f"{there[0]} is there already: {hint}")
    for name, text in texts.items():
        path = home / name
        write_atomically(path, lambda unfinished, text=text: unfinished.write_text(text, encoding="utf-8"))
    return [home / name for name in texts]


def named(name: str, what: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name):
        raise LectureError(f"{name!r} cannot name a {what}: use small letters, digits and _, such as time_series")
    return name


def new_lecture(home: Path, number: int, name: str, title: str = "") -> list[Path]:
    """A lecture that runs, its exercise with master, checks and answers, and its row in the README.

    Returns:
        The files to fill in.

    Raises:
        LectureError: the name or number will not do, or is taken. Nothing is written then.
    """
    repository = published_as(home)
    stem = f"{number:02d}_{named(name, 'lecture')}"
    if not 1 <= number <= 99:
        raise LectureError(f"lecture {number}: a number from 1 to 99 is needed")
    if taken := sorted((home / "notebooks").glob(f"{number:02d}_*.ipynb")):
        raise LectureError(f"{taken[0].name} is lecture {number} already: choose another number")
    values = {
        "number": f"{number:02d}",
        "stem": stem,
        "module": name,
        "title": title or name.replace("_", " ").capitalize(),
    }
    readme = (home / "README.md").read_text(encoding="utf-8")
    rows = list(re.finditer(r"^\| \d\d \| .*\]\(notebooks/.*\n", readme, re.MULTILINE))
    if not rows:
        raise LectureError("README.md has no table of lectures with rows such as '| 01 | [...](notebooks/...)'")
    stands, drawn = f"notebooks/{stem}.ipynb", f"exercises/{stem}/{stem}.ipynb"
    colab = colab_line(stands, repository) if repository else "yes"
    row = f"| {number:02d} | [{values['title']}]({stands}) | 90 | TODO min | [100 points]({drawn}) | {colab} |\n"
    after = [found for found in rows if int(found[0][2:4]) < number]
    place = after[-1].end() if after else rows[0].start()
    texts = {}
    for path, (kind, exercise) in {
        f"notebooks/{stem}.ipynb": ("lecture", False),
        f"solutions/{stem}/{stem}.ipynb": ("exercise", True),
    }.items():
        address = path.replace("solutions/", "exercises/")
        texts[path] = nbformat.writes(notebook(template(kind, **values), address, repository, exercise)) + "\n"
    texts[f"coursekit/grading/checks/{name}.py"] = template("checks.py", **values)
    texts[f"tests/grading/answers/{name}.py"] = template("wrong_and_right.py", **values)
    made = write_all(home, texts, "choose another name")
    changed = readme[:place] + row + readme[place:]
    write_atomically(home / "README.md", lambda unfinished: unfinished.write_text(changed, encoding="utf-8"))
    return [*made, home / "README.md", *release(home, only=stem)]


def new_widget(home: Path, name: str) -> list[Path]:
    """A widget: its Python, its JavaScript and its test; ``coursekit.viz`` exports it."""
    published_as(home)
    kind = "".join(part.capitalize() for part in named(name, "widget").split("_"))
    values = {"name": name, "class": kind}
    door = home / "coursekit" / "viz" / "__init__.py"
    text = door.read_text(encoding="utf-8")
    made = write_all(
        home,
        {
            f"coursekit/viz/{name}.py": template("widget.py", **values),
            f"coursekit/viz/js/{name}.js": template("widget.js", **values),
            f"tests/viz/test_{name}.py": template("test_widget.py", **values),
        },
        "choose another name",
    )
    exported = sorted(
        [kind, *re.findall(r'^    "(\w+)",$', text, re.MULTILINE)], key=lambda n: (not n.isupper(), n[0].islower(), n)
    )
    imports = sorted(
        [f"from coursekit.viz.{name} import {kind}", *re.findall(r"^from coursekit\.viz\..*$", text, re.MULTILINE)]
    )
    about = text[: text.index("from coursekit.viz.")]
    lines = [about + imports[0], *imports[1:], "", "__all__ = [", *(f'    "{name}",' for name in exported), "]", ""]
    write_atomically(door, lambda unfinished: unfinished.write_text("\n".join(lines), encoding="utf-8"))
    return [*made, door]


def new_recipe(home: Path, name: str) -> list[Path]:
    """A recipe that trains something small, and its test."""
    published_as(home)
    values = {"name": named(name, "recipe")}
    texts = {
        f"coursekit/recipes/{name}.py": template("recipe.py", **values),
        f"tests/recipes/test_{name}.py": template("test_recipe.py", **values),
    }
    return write_all(home, texts, "choose another name")
