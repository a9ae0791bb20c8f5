"""The shape of the project: who may import whom, what imports cost, how notebooks are committed."""

import ast
import dis
import functools
import itertools
import re
import statistics
import subprocess
import sys
from collections import Counter
from pathlib import Path

import nbformat
import pytest

from coursekit.commands.publish import colab_line, published_as, setup_cell
from coursekit.commands.reading import PREDICT
from coursekit.commands.site import ROOMS

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "coursekit"

# room -> the rooms that it may import
MAY_IMPORT = {
    "nn": {"nn"},
    "text": {"text"},
    "data": {"data", "text"},
    "train": {"train", "nn"},
    "models": {"models", "nn"},
    "decode": {"decode", "models", "nn", "text"},
    "convert": {"convert", "models", "nn"},
    "evaluate": {"evaluate", "models", "nn"},
    "viz": {"viz", "text"},
    "grading": {"grading", "models", "nn", "data", "text", "decode", "evaluate"},
    "recipes": {"recipes", "models", "nn", "train", "data", "text", "decode", "convert", "evaluate", "viz"},
}
MAY_IMPORT["commands"] = {"commands", *MAY_IMPORT}
# inside of a function, where it costs nothing before it is called: a model's ``from_pretrained``
MAY_IMPORT_LATE = {"models": {"convert"}}
BENEATH = {"files"}  # modules beside the rooms that every room may import
WITHOUT_TORCH = {"viz", "text"}
MIRRORED = ("nn", "models", "decode", "train")  # rooms in which tests/ROOM/test_FILE.py tests FILE.py, but for these:
TESTED_IN = {
    "decode/beams": "decode/test_translate",
    "models/baselines/encoder_decoder_forecaster": "models/test_patchtst",
    "models/pretrained": "convert/test_folders",
    "train/bar": "train/test_loop",
    "train/device": "train/test_loop",
    "train/ema": "train/test_loop",
}


def imported(path: Path, late: bool = True) -> set[str]:
    """Full names of the modules that a file imports, with those that it imports ``late``, inside of functions."""
    names, nodes = set(), [ast.parse(path.read_text(encoding="utf-8"))]
    for node in nodes:
        if late or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            nodes += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def room_files() -> list[Path]:
    return sorted(p for p in PACKAGE.rglob("*.py") if p.parent != PACKAGE)


def test_the_reference_has_all_rooms_but_those_that_nobody_imports():
    rooms = {".".join(path.parent.relative_to(PACKAGE).parts) for path in PACKAGE.rglob("__init__.py")}
    assert set(ROOMS) == rooms - {"", "commands", "grading.blank", "grading.checks"}


@pytest.mark.parametrize("path", room_files(), ids=lambda p: p.relative_to(PACKAGE).as_posix())
def test_imports_point_down(path):
    room = path.relative_to(PACKAGE).parts[0]
    assert room in MAY_IMPORT, f"{room} is not a room of the design"
    names = imported(path)
    rooms, early = (
        {name.split(".")[1] for name in found if name.startswith("coursekit.")}
        for found in (names, imported(path, late=False))
    )
    assert early <= MAY_IMPORT[room] | BENEATH
    assert rooms <= MAY_IMPORT[room] | BENEATH | MAY_IMPORT_LATE.get(room, set())
    if room in WITHOUT_TORCH:
        assert not {name for name in names if name.split(".")[0] == "torch"}


def test_the_page_for_readers_says_who_may_import_whom():
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    told = {
        room: {room, *re.findall(r"`(\w+)`", others)}
        for rooms, others in re.findall(r"^\| (`.+?`) \| (.+) \|$", page, re.MULTILINE)
        for room in re.findall(r"`(\w+)`", rooms)
    }
    assert told == {room: rooms | MAY_IMPORT_LATE.get(room, set()) for room, rooms in MAY_IMPORT.items()}


def where_is() -> list[tuple[str, list[str]]]:
    """The rows of the tables *Where is …?*: the question, and all that its answer names."""
    _, tables = (ROOT / "docs/architecture.md").read_text(encoding="utf-8").split("## Where is …?")
    rows = [row for row in re.findall(r"^\| (.+?) \| (.+) \|$", tables, re.MULTILINE) if row != ("question", "answer")]
    return [(question, re.findall(r"`([^`]+)`", answer)) for question, answer in rows]


@pytest.mark.parametrize(("question", "named"), where_is(), ids=lambda x: x if isinstance(x, str) else "")
def test_where_is(question, named):
    """Each file that an answer names exists; each other name is in one of these files, or defined in another."""
    found, names, folder = [], [], PACKAGE
    for name in named:
        if " " in name or name.startswith("build/"):  # a command, or what it leaves
            continue
        if "/" in name or name.endswith(".py"):
            place = name.partition("NAME")[0]
            paths = [path for base in (folder, PACKAGE, ROOT) if (path := base / place).exists()]
            paths += PACKAGE.rglob(place)
            assert paths, f"there is no {name}"
            found.append(paths[0])
            folder = paths[0] if paths[0].is_dir() else paths[0].parent
        else:
            names += re.findall(r"\w+", name)
    files = [path for place in found for path in ([place] if place.is_file() else place.rglob("*.py"))]
    near, everywhere = (
        "\n".join(path.read_text(encoding="utf-8") for path in paths) for paths in (files, PACKAGE.rglob("*.py"))
    )
    for name in names:
        assert re.search(rf"\b{name}\b", near) or re.search(rf"\b(def|class) {name}\b", everywhere), name


@pytest.mark.parametrize("module", BENEATH)
def test_what_is_beneath_the_rooms_needs_only_the_standard_library(module):
    assert {name.split(".")[0] for name in imported(PACKAGE / f"{module}.py")} <= sys.stdlib_module_names


@pytest.mark.parametrize("module", ["coursekit", "coursekit.commands.cli", "coursekit.viz"])
def test_importing_is_light_and_silent(module):
    code = f"import sys, {module}; heavy = {{'torch', 'sklearn', 'nbclient'}} & set(sys.modules); sys.exit(bool(heavy))"
    strict = ["-W", "error", "-W", "ignore::DeprecationWarning"]  # which nobody sees, and old libraries give each other
    done = subprocess.run([sys.executable, *strict, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_tests_mirror_the_package():
    """Every room with code has a folder of tests of the same name; in four of them every file has its own test."""
    rooms = {p.relative_to(PACKAGE).parts[0] for p in room_files()}
    assert not {room for room in rooms if not list((ROOT / "tests" / room).glob("test_*.py"))}
    untested = set()
    for room in MIRRORED:
        modules = {path.relative_to(PACKAGE).as_posix() for path in (PACKAGE / room).rglob("[!_]*.py")}
        tests = {path.relative_to(ROOT / "tests").as_posix() for path in (ROOT / "tests" / room).rglob("test_*.py")}
        untested |= {module[:-3] for module in modules - {test.replace("test_", "", 1) for test in tests}}
    assert untested == set(TESTED_IN), "write a test that bears the file's name, or say in TESTED_IN which one tests it"
    assert all((ROOT / "tests" / f"{test}.py").exists() for test in TESTED_IN.values())


def test_no_pickle_and_no_remote_code():
    forbidden = r"pickle\.load|weights_only\s*=\s*False|trust_remote_code\s*=\s*True|allow_pickle\s*=\s*True"
    files = [*PACKAGE.rglob("*.py"), *(ROOT / "notebooks").glob("*.ipynb")]
    assert not [path for path in files if re.search(forbidden, path.read_text(encoding="utf-8"))]


LECTURES = sorted((ROOT / "notebooks").glob("*.ipynb"))
ORDER = ["objectives", "setup", "claims", "summary", "references", "exercises"]
SEE = "(docs/contributing.md, 'A change to a lecture', says how)"


def test_there_is_a_lecture():
    assert LECTURES


@pytest.fixture(params=LECTURES, ids=lambda p: p.stem)
def lecture(request):
    return nbformat.read(request.param, as_version=4)


def test_a_notebook_is_committed_clean(lecture):
    nbformat.validate(lecture)
    assert "widgets" not in lecture.metadata
    ids = [cell.id for cell in lecture.cells]
    assert len(set(ids)) == len(ids)
    accidents = [cell for cell in lecture.cells if re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f-]+)?", cell.id)]
    assert not accidents, f"give {accidents[0].id} a name as its id {SEE}: {accidents[0].source[:60]!r}"
    for cell in lecture.cells:
        # JupyterLab's "-", to go on with the slide before, writes nothing
        kind = cell.metadata.get("slideshow", {}).get("slide_type", "-")
        choose = "choose its Slide Type in the right sidebar's Property Inspector"
        assert kind in ("slide", "subslide", "fragment", "notes", "skip", "-"), f"{cell.id} is {kind!r}: {choose} {SEE}"
        if cell.cell_type == "code":
            clean = not cell.outputs and cell.execution_count is None
            assert clean, f"{cell.id} has outputs: Edit, Clear Outputs of All Cells, then save {SEE}"


def test_a_notebook_has_the_anatomy_of_a_lecture(lecture):
    lines = [(c.id, line) for c in lecture.cells if c.cell_type == "code" for line in c.source.splitlines()]
    length = Counter(name for name, _ in lines)
    middle = statistics.median(length.values())
    long = ", ".join(f"{name} ({n})" for name, n in sorted(length.items(), key=lambda item: item[1]) if n > 8)
    assert middle <= 8, (
        f"half of the code cells have {middle:g} lines or more, where 8 can be read while one speaks: "
        f"shorten or split one of {long} {SEE}"
    )
    longest = max(length, key=length.get)
    assert length[longest] <= 40, f"{longest} has {length[longest]} lines: no slide holds more than 40 {SEE}"
    wide = [f"{name}: {line.strip()}" for name, line in lines if len(line) > 100]
    assert not wide, f"lines of more than 100 characters are too wide to project {SEE}: {'; '.join(wide)}"
    ids = [cell.id for cell in lecture.cells]
    places = [next((i for i, name in enumerate(ids) if name.startswith(part)), None) for part in ORDER]
    missing = [part for part, place in zip(ORDER, places) if place is None]
    assert not missing, f"no cell whose id begins with {missing[0]!r} {SEE}"
    assert places == sorted(places), f"the order is {', '.join(ORDER)} {SEE}"
    assert lecture.cells[0].source.startswith("# "), f"the first cell is the title {SEE}"
    assert sum(i.startswith("predict") for i in ids) >= 3, (
        f"at least three cells ask: their ids begin with 'predict' {SEE}"
    )
    assert sum(i.startswith("break") for i in ids) >= 1, (
        f"at least one bug to be found: its id begins with 'break' {SEE}"
    )
    prompts = [i for i, name in enumerate(ids) if name.startswith("predict")] + [len(ids)]
    for prompt, following in itertools.pairwise(prompts):
        assert PREDICT.search(lecture.cells[prompt].source), f"{ids[prompt]}: its question follows **Predict.** {SEE}"
        kinds = ["<details>" in cell.source or cell.cell_type for cell in lecture.cells[prompt + 1 : following]]
        assert kinds[0] == "code", f"{ids[prompt]}: nothing to run after the prompt {SEE}"
        assert True in kinds, f"{ids[prompt]}: no folded answer before the next prompt {SEE}"


def test_title_plan_and_readme_agree_on_the_minutes(lecture):
    title, plan = lecture.cells[0].source, next(cell.source for cell in lecture.cells if cell.id == "prerequisites")
    minutes = int(re.search(r"About (\d+) minutes", title)[1])
    parts = sum(map(int, re.findall(r"^\| \d+ · [^|]* \| (\d+) \|", plan, re.MULTILINE)))
    assert abs(parts - minutes) <= 5, f"the parts take {parts} minutes, the title says {minutes} {SEE}"
    row = re.search(rf"^\| {title[2:4]} \|.*?\| (\d+) \|", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)
    assert int(row[1]) == minutes, f"README.md says {row[1]} minutes, the title {minutes} {SEE}"


def test_charts_can_be_read_from_the_last_row_and_in_the_dark(lecture):
    """Whatever is wider than a page is drawn smaller there; a dark grey vanishes in the dark, a light one shouts."""
    for name, source in ((cell.id, cell.source) for cell in lecture.cells if cell.cell_type == "code"):
        small = [n for n in re.findall(r"(?:font|label)size\"?\s*[=:]\s*([\d.]+)", source) if float(n) < 11]
        wide = [n for n in re.findall(r"new_(?:axes|panels)\((?:\d+, \d+, )?\(([\d.]+)", source) if float(n) > 8]
        greys = set(re.findall(r"(?:colors?|[fe]?c|shade)\"?\s*[=:]\s*\"(0\.\d+)\"", source)) - {"0.5"}
        assert not small, f"{name}: letters of {small[0]} points, 11 is the least {SEE}"
        assert not wide, f"{name}: a figure {wide[0]} inches wide, 8 is the most {SEE}"
        assert not greys, f'{name}: the grey {min(greys)} vanishes in light or dark: "black", "0.5" or GREY {SEE}'
        assert not re.search(r"\bplt\.(subplots|figure)", source), f"{name}: use new_axes or new_panels {SEE}"


@pytest.mark.parametrize("folder", ["notebooks", "solutions", "exercises"])
def test_every_notebook_opens_with_the_one_setup_cell(folder):
    """Published or not: all of them name the one address, and a master that of its exercise."""
    repository = published_as(ROOT)
    paths = sorted((ROOT / folder).glob("*.ipynb" if folder == "notebooks" else "*/*.ipynb"))
    assert len(paths) == len(LECTURES)
    for path in paths:
        cells = {cell.id: cell.source for cell in nbformat.read(path, as_version=4).cells}
        address = path.relative_to(ROOT).as_posix().replace("solutions/", "exercises/")
        assert [name for name in cells if name.startswith("setup")] == ["setup"]
        assert cells["setup"] == setup_cell(repository), f"{path.name}: see coursekit/commands/publish.py"
        assert colab_line(address, repository) in cells["title"].splitlines(), path.name


@functools.cache
def defined() -> dict[str, Path]:
    """Where the package defines each function and class that a lecture could import, so not of marking and commands."""
    leaves = [PACKAGE / room for room in ("commands", "grading")]
    return {
        node.name: path.relative_to(PACKAGE.parent)
        for path in PACKAGE.rglob("*.py")
        if not any(path.is_relative_to(leaf) for leaf in leaves)
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }


def test_a_notebook_holds_no_copy_of_package_code(lecture):
    """No function or class of the package is defined again in a notebook."""
    places = defined()
    source = "\n".join(cell.source for cell in lecture.cells if cell.cell_type == "code")
    names = re.findall(r"^\s*(?:def|class)\s+(\w+)", source, re.MULTILINE)
    twice = [f"`{name}` is in {places[name]}" for name in names if name in places]
    assert not twice, f"{', '.join(twice)}: import what is there, or give yours another name {SEE}"


def test_names_in_the_text_are_there(lecture):
    """What the text calls by its name in code is in the package or in the lecture, also after it was renamed there."""
    code = [cell.source for cell in lecture.cells if cell.cell_type == "code"]
    code += [path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*") if path.suffix in (".py", ".js")]
    known = set(re.findall(r"\w+", "\n".join(code))) | {"ursley", "sentencepiece"}  # a token, a library
    texts = [cell for cell in lecture.cells if cell.cell_type == "markdown" and not cell.id.startswith("exercises")]
    missing = [
        f"`{name}` in {cell.id}"
        for cell in texts
        for name in re.findall(r"(?<!`)`([A-Za-z_]\w*(?:\.\w+)*)(?:\(\))?`(?!`)", cell.source)
        if name.rpartition(".")[2] not in known
    ]
    assert not missing, f"{', '.join(missing)}: no code has this name {SEE}"


def test_no_cell_returns_what_it_drew_on(lecture):
    """Else ``<matplotlib.legend.Legend at 0x7f84>`` stands below the figure."""
    for cell in lecture.cells:
        lines = cell.source.rstrip().splitlines() or [""]
        last = re.match(r"(?:ax\w*|bars\(.*\)|heatmap\(.*\))\.\w+\(.*\)$", lines[-1])
        assert cell.cell_type != "code" or not last, f"{cell.id}: end its last line with a semicolon {SEE}"


def names_of(source: str) -> tuple[set[str], set[str]]:
    """The names that a cell takes from those before it, and those that it sets."""
    code = compile(source, "cell", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    taken, given, inside = set(), set(), [c for c in code.co_consts if hasattr(c, "co_code")]
    for step in dis.get_instructions(code):
        if step.opname.startswith(("LOAD_NAME", "LOAD_GLOBAL")) and step.argval not in given:
            taken.add(step.argval)
        elif step.opname.startswith(("STORE_NAME", "STORE_GLOBAL")):
            given.add(step.argval)
    for function in inside:
        inside += [c for c in function.co_consts if hasattr(c, "co_code")]
        steps = dis.get_instructions(function)
        taken |= {s.argval for s in steps if s.opname.startswith(("LOAD_GLOBAL", "LOAD_NAME"))} - given
    return taken, given


def test_each_cell_can_be_run_again(lecture):
    """No later cell gives another meaning to a name that an earlier one took from the cells before it."""
    origin, taken_by, again = {}, {}, []
    for cell in lecture.cells:
        if cell.cell_type == "code" and cell.id != "setup":
            taken, given = names_of(cell.source)
            for name in taken & set(origin):
                taken_by[name] = cell.id
            again += [
                f"{cell.id} sets {name} anew: {taken_by[name]}, run again after it, would take this one "
                f"for that of {origin[name]}"
                for name in given - taken
                if name in taken_by
            ]
            for name in given:
                origin[name] = cell.id
                taken_by.pop(name, None)
    assert not again, "\n".join(again)
