"""Where a notebook gets the course from: the one setup cell, and the links of a course with a public address.

``coursekit publish OWNER/REPO`` writes the address of a repository on GitHub into every place that names one; until
then each of these places says how to do without.
"""

import re
import shutil
import tempfile
import tomllib
from pathlib import Path

import nbformat

from coursekit.commands.lectures import LectureError
from coursekit.files import write_atomically
from coursekit.grading.release import refuse_to_lose_answers, release

GITHUB = "https://github.com/"
# The archive of the main branch takes no login, no git and no history: one download, from which pip builds the package.
ARCHIVE = GITHUB + "{}/archive/refs/heads/main.zip"
COLAB = "https://colab.research.google.com/github/{}/blob/main/{}"
# The error is no ModuleNotFoundError: below one of those Colab writes advice on apt and pip, which is no help here.
SETUP = r"""
try:
    import coursekit
except ModuleNotFoundError:  # on Colab: from a wheel here or in Google Drive, else from online
    import re
    from pathlib import Path

    online = "ONLINE"
    drive, name = Path("/content/drive/MyDrive"), "attention_course-*-any.whl"
    wheels = [*Path().glob(name)] or [w for d in ("", "*/", "*/*/") for w in drive.glob(d + name)]
    versions = {w: [int(n) for n in re.findall(r"\d+", w.name.split("-")[1])] for w in wheels}
    course = max(versions, key=versions.get, default=online)
    if not course:
        raise FileNotFoundError(f"put {name} beside the notebook, or mount Drive with it") from None
    %pip install --quiet "{course}"
    import coursekit
"""
WITHOUT = "*Colab:* upload this notebook together with the course's wheel, as the README describes."
COLAB_LINE = re.compile(r"^(?:\*Colab:\*|\[Open in Colab\]).*$", re.MULTILINE)
LECTURE_ROW = re.compile(r"^(\| \d\d \| .*\]\(notebooks/\w+\.ipynb\).*\| )[^|\n]*( \|)$", re.MULTILINE)
URLS = re.compile(r"^\[project\.urls\]\n(?:.+\n)*\n?", re.MULTILINE)


def setup_cell(repository: str | None = None) -> str:
    """The source of the cell that every notebook opens with, of a course published as ``repository`` or not at all.

    It does nothing where the package is installed, and changes no package that is.
    """
    return SETUP.strip().replace("ONLINE", ARCHIVE.format(repository) if repository else "")


def colab_line(path: str, repository: str | None = None) -> str:
    """How the notebook at ``path`` in the repository is opened in Colab: a line of its title cell."""
    return f"[Open in Colab]({COLAB.format(repository, path)})" if repository else WITHOUT


def published_as(home: Path) -> str | None:
    """The ``OWNER/REPO`` that the course in ``home`` was published as, or None."""
    if not (home / "pyproject.toml").is_file():
        raise LectureError(f"no pyproject.toml in {home}: run this in the course's repository")
    project = tomllib.loads((home / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project.get("urls", {}).get("Repository", "").removeprefix(GITHUB) or None


def publish(home: Path, repository: str) -> list[Path]:
    """Write the address of ``repository``, ``OWNER/REPO`` on GitHub, into notebooks, exercises, README and metadata.

    An address that was written before is replaced everywhere.

    Returns:
        The files that changed.

    Raises:
        LectureError, GradingError: the name, a notebook or somebody's answers are in the way; nothing is changed then.
    """
    if not re.fullmatch(r"[A-Za-z\d][A-Za-z\d-]{0,38}/(?!\.{1,2}$)[\w.-]{1,100}", repository, re.ASCII):
        raise LectureError(f"{repository!r} is no repository: name it OWNER/REPO, as in its address on GitHub")
    if repository.lower().endswith(".git"):
        raise LectureError(f"{repository!r} is the address for git: leave out {repository[-4:]!r}")
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        written_into(home, work, repository)
        release(work)
        refuse_to_lose_answers([*(home / "exercises").glob("*/*.ipynb")])
        return replace_all(work, home)


def written_into(home: Path, work: Path, repository: str) -> None:
    """Fill ``work`` with what ``publish`` changes of the course, and what the exercises are made from."""
    published_as(home)  # refuses a folder that is not the course's repository
    for name, change in (("pyproject.toml", with_urls), ("README.md", with_links)):
        text = (home / name).read_text(encoding="utf-8")
        (work / name).write_text(change(text, repository), encoding="utf-8")
    shutil.copytree(home / "solutions", work / "solutions", ignore=shutil.ignore_patterns(".*", "__pycache__", "build"))
    (work / "notebooks").mkdir()
    for path in (home / "notebooks").glob("*.ipynb"):
        shutil.copy(path, work / "notebooks")
    for path in (work / "notebooks").glob("*.ipynb"):
        write_notebook(path, f"notebooks/{path.name}", repository)
    for path in (work / "solutions").glob("*/*.ipynb"):  # who follows a master's link gets the exercise
        write_notebook(path, f"exercises/{path.parent.name}/{path.name}", repository)


def write_notebook(path: Path, address: str, repository: str | None = None) -> None:
    """Write the setup cell, and into the title how ``address`` is opened in Colab."""
    notebook = nbformat.read(path, as_version=4)
    cells = {cell.get("id"): cell for cell in notebook.cells}
    if missing := {"title", "setup"} - cells.keys():
        raise LectureError(f"{path.name} has no cell with the id {missing.pop()!r}: give it one")
    line, title = colab_line(address, repository), cells["title"].source
    found = COLAB_LINE.search(title)
    cells["title"].source = COLAB_LINE.sub(lambda _: line, title) if found else f"{title.rstrip()}\n\n{line}"
    cells["setup"].source = setup_cell(repository)
    nbformat.write(notebook, path)


def with_urls(metadata: str, repository: str) -> str:
    """``pyproject.toml`` with the repository as the project's address."""
    before, scripts, after = URLS.sub("", metadata).partition("[project.scripts]\n")
    return f'{before}[project.urls]\nRepository = "{GITHUB}{repository}"\n\n{scripts}{after}'


def with_links(readme: str, repository: str) -> str:
    """The README with links in the last column of its table of lectures: open in Colab."""

    def row(match: re.Match[str]) -> str:
        paths = re.findall(r"\]\(((?:notebooks|exercises)/[\w/]+\.ipynb)\)", match[1])
        names = ("lecture", "exercise")
        return match[1] + ", ".join(f"[{n}]({COLAB.format(repository, p)})" for n, p in zip(names, paths)) + match[2]

    return LECTURE_ROW.sub(row, readme)


def replace_all(made: Path, home: Path) -> list[Path]:
    """Put every file of ``made`` in its place in ``home``; if one cannot be written, those before it are put back."""
    new = {home / path.relative_to(made): path.read_bytes() for path in sorted(made.rglob("*")) if path.is_file()}
    old = {path: path.read_bytes() if path.exists() else b"" for path in new}
    changed = [path for path in new if new[path] != old[path]]
    try:
        for path in changed:
            write_bytes(path, new[path])
    except BaseException:
        for path in changed:
            if path.exists() and path.read_bytes() != old[path]:
                write_bytes(path, old[path])
        raise
    return changed


def write_bytes(path: Path, content: bytes) -> None:
    write_atomically(path, lambda temporary: temporary.write_bytes(content))
