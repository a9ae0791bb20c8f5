"""Read what a student wrote, in a process that may break: zips, and the notebooks in them.

This is the child of ``intake.py``. It answers each line on its standard input with a line, under limits on memory,
time and open files, and it can write no file. It imports little, so that it starts at once.
"""

import errno
import gc
import hashlib
import io
import json
import os
import stat
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coursekit.grading import printable
from coursekit.grading.notebooks import NoNotebookError, Released, answers, cells_of, other_exercise, read_released

MB = 2**20
LARGEST = 20 * MB  # bytes of one file
LARGEST_ITEM = 100 * MB  # bytes of all files of one hand-in, unpacked
MOST_FILES = 1000  # in one hand-in
MOST_ENTRIES = 100_000  # in what the marker names
HIGHEST_RATIO = 200  # of unpacked to packed; text reaches 20
DEEPEST_ZIP = 2  # zips of the student's in each other
DEEPEST_FOLDER = 40
LONGEST_NAME = 255  # characters of a file's or folder's name
MOST_ANSWERS = 4 * MB  # of all notebooks of one hand-in, as JSON
MEMORY = 1024 * MB  # addresses of the child
LITTER = {".ds_store", "thumbs.db", "desktop.ini", "timestamp.txt", ".gitkeep"}
DROPPED = {"__macosx", ".ipynb_checkpoints"}
LEADS_OUT = "a path in the zip that leads out of it: not read"
NO_NAME = "a name in the zip that is none: not read"
LINK = "a symbolic link: not followed"
WRAPPER = "submitted"  # the folder around all others, in nbgrader's layout
READY = b"ready\n"


def answer_parent() -> None:
    """Read requests from stdin, a line of JSON each, and answer each with a line, under limits."""
    set_limits()
    gc.disable()  # it would go through millions of small lists again and again
    start = json.loads(sys.stdin.buffer.readline())
    exercise, released = start["exercise"], read_released(Path(start["home"]))
    sys.stdout.buffer.write(READY)
    sys.stdout.buffer.flush()
    for line in sys.stdin.buffer:
        request = json.loads(line)
        more_time(request["seconds"])
        try:
            if "list" in request:
                reply = list_zip(bytes.fromhex(request["list"]))
            else:
                reply = read_item(request["read"], exercise, released)
            text = json.dumps(reply)
        except MemoryError:  # what is left of it may be anything
            os._exit(1)
        sys.stdout.buffer.write(text.encode() + b"\n")
        sys.stdout.buffer.flush()


def set_limits() -> None:
    try:
        import resource
    except ModuleNotFoundError:  # Windows: the parent's limits on time and length are left
        return
    for what, most in (
        (resource.RLIMIT_AS, MEMORY),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, 32),
    ):
        with suppress(ValueError, OSError):  # a lower limit is in force, or the system knows none
            resource.setrlimit(what, (most, most))


def more_time(seconds: float) -> None:
    """So many seconds of CPU for the next request: they end the child even if the parent is gone."""
    with suppress(ModuleNotFoundError, ValueError, OSError):
        import resource

        used = resource.getrusage(resource.RUSAGE_SELF)
        most = int(used.ru_utime + used.ru_stime + seconds) + 2
        resource.setrlimit(resource.RLIMIT_CPU, (most, resource.getrlimit(resource.RLIMIT_CPU)[1]))


OPEN: dict[bytes, zipfile.ZipFile] = {}  # the marker's zip, kept open from one item to the next


def marker_zip(path: bytes) -> zipfile.ZipFile:
    if path not in OPEN:
        for archive in OPEN.values():
            archive.close()
        OPEN.clear()
        OPEN[path] = zipfile.ZipFile(os.fsdecode(path))
    return OPEN[path]


def list_zip(path: bytes) -> list[Any] | str:
    """The names and times in a zip that the marker named; or what is wrong with it."""
    try:
        entries = marker_zip(path).infolist()
    except OSError as error:
        return error.strerror or str(error)
    except MemoryError:
        raise
    except Exception:  # zipfile's own, and what its parsing runs into
        return "it is no zip, or was broken on its way"
    found, seen = [], Counter[tuple[str, ...]]()
    for index, entry in enumerate(entries):
        row = listed(entry)
        around = row[0][:1] in ([Path(os.fsdecode(path)).stem], [WRAPPER])
        part = tuple(row[0][: 2 if around else 1])
        seen[part] += 1
        if seen[part] <= MOST_FILES + 2:  # more than are read of anyone, so that it will be said
            found.append([index, *row])
        if len(found) > MOST_ENTRIES:
            return f"it holds more than {MOST_ENTRIES} files, not counting those beyond {MOST_FILES} of anyone"
    return found


def listed(entry: zipfile.ZipInfo) -> list[Any]:
    names, leads_out = names_in(entry.filename)
    when = entry.date_time if entry.date_time > (1980, 1, 1, 0, 0, 0) else None
    return [[shortened(name) for name in names], when, is_folder(entry), LEADS_OUT if leads_out else ""]


def is_folder(entry: zipfile.ZipInfo) -> bool:
    return entry.filename.endswith(("/", "\\"))  # ``is_dir`` fails for an empty name


def names_in(filename: str) -> tuple[list[str], bool]:
    """The names in a zip's path, and whether it leads out of the zip; deep paths are shortened at their end."""
    parts = filename.replace("\\", "/").split("/")
    names = [part for part in parts if part not in ("", ".")]
    if parts[0] == "" and len(parts) > 1:
        names.insert(0, "")  # absolute
    if len(names) > DEEPEST_FOLDER:
        names = [*names[: DEEPEST_FOLDER - 1], "/".join(names[DEEPEST_FOLDER - 1 :])]
    return names, ".." in parts or names[:1] == [""]


def shortened(name: str) -> str:
    """A name of at most 255 characters that differs where the long ones differ, and ends as they do."""
    if len(name) <= LONGEST_NAME:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{name[:200]}…{digest}…{name[-20:]}"


class TooMuch(Exception):
    """A hand-in is larger than is read."""


@dataclass
class Budget:
    """What may still be read of one hand-in."""

    bytes: int = LARGEST_ITEM
    files: int = MOST_FILES
    answers: int = MOST_ANSWERS

    def count_file(self) -> None:
        self.files -= 1
        if self.files < 0:
            raise TooMuch(f"more than {MOST_FILES} files: the rest is not read")

    def take(self, count: int) -> None:
        self.bytes -= count
        if self.bytes < 0:
            raise TooMuch(f"{over(LARGEST_ITEM)} in all: the rest is not read")


def read_item(entries: list[Any], exercise: str, released: Released) -> list[dict[str, Any]]:
    """The rows of one item: for each file what is wrong with it, or its answers."""
    budget, rows = Budget(), []
    for number, (name, path, index, depth) in enumerate(entries):
        try:
            for inside, data, problem in contents(name, bytes.fromhex(path), index, depth, budget):
                row = row_of(data, inside or name, exercise, released, budget) if not problem else {"problem": problem}
                rows.append({"number": number, "inside": inside, "problem": "", "flags": [], "answers": {}} | row)
        except TooMuch as why:
            rows.append({"number": number, "inside": "", "problem": str(why), "flags": [], "answers": {}})
            return rows
    return rows


def row_of(data: bytes, name: str, exercise: str, released: Released, budget: Budget) -> dict[str, Any]:
    try:
        cells = cells_of(data, name)
        if other := other_exercise(cells, exercise, released):
            return {"problem": f"this is {other}"}
        found, flags = answers(released[exercise], cells)
        budget.answers -= len(json.dumps(found))
        if budget.answers < 0:
            return {"problem": f"the answers of all notebooks are over {MOST_ANSWERS // MB} MB together"}
        return {"answers": found, "flags": flags}
    except NoNotebookError as why:
        return {"problem": str(why)}
    except MemoryError:
        raise
    except Exception as error:
        return {"problem": f"could not be read: {in_words(error)}"}


File = tuple[str, bytes, str]  # its place inside the entry, content, problem


def contents(name: str, path: bytes, index: int, depth: int, budget: Budget) -> Iterator[File]:
    """The files that an entry holds: itself, or those of the student's zip."""
    try:
        if index < 0:
            data, problem = read_file(path, depth)
            budget.take(len(data))
        else:
            archive = marker_zip(path)
            data, problem = read_member(archive, archive.infolist()[index], budget)
    except (TooMuch, MemoryError):
        raise
    except Exception as error:
        data, problem = b"", f"cannot be read: {in_words(error)}"
    if problem:
        yield "", b"", problem
    else:
        yield from unfold("", name, data, budget)


def unfold(inside: str, name: str, data: bytes, budget: Budget, depth: int = 0) -> Iterator[File]:
    """A file, or those in it if it is a zip."""
    budget.count_file()
    if not name.lower().endswith(".zip"):
        yield inside, data, ""
        return
    if depth == DEEPEST_ZIP:
        yield inside, b"", f"zips in zips more than {DEEPEST_ZIP} deep: not opened"
        return
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except MemoryError:
        raise
    except Exception:
        yield inside, b"", "not a zip, though it is called one"
        return
    empty = True
    with archive:
        for entry in archive.infolist():
            names, leads_out = names_in(entry.filename)
            if is_folder(entry) or (names and litter(tuple(names))):
                continue
            empty = False
            below = shortened("/".join([*([inside] if inside else []), *names]) or "?")
            if leads_out or not names:
                content, problem = b"", LEADS_OUT if leads_out else NO_NAME
            else:
                content, problem = read_member(archive, entry, budget)
            if problem:
                budget.count_file()
                yield below, b"", problem
            else:
                yield from unfold(below, names[-1], content, budget, depth + 1)
    if empty:
        yield inside, b"", "an empty zip"


def read_file(path: bytes, depth: int) -> tuple[bytes, str]:
    """A file on the disk: (content, problem). What is no plain file any more is not opened.

    Of its path, the last ``depth`` names are a student's, who may put links in their places at any time: each of them
    is opened from the one before, and none is followed.
    """
    try:
        number = open_below(path, depth)
    except OSError as error:
        is_link = error.errno in (errno.ELOOP, errno.ENOTDIR)
        return b"", LINK if is_link else f"cannot be read: {error.strerror}"
    with open(number, "rb") as file:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            return b"", "neither file nor folder: not opened"
        data = file.read(LARGEST + 1)
    return (b"", over(LARGEST)) if len(data) > LARGEST else (data, "")


def open_below(path: bytes, depth: int) -> int:
    flags = os.O_RDONLY
    for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"):
        flags |= getattr(os, name, 0)
    if os.open not in os.supports_dir_fd:  # Windows
        return os.open(path, flags)
    names = path.split(b"/")
    above, below = b"/".join(names[:-depth]), [name for name in names[-depth:] if name]
    opened = os.open(above or (b"/" if path.startswith(b"/") else b"."), os.O_RDONLY | os.O_DIRECTORY)
    for number, name in enumerate(below, 1):
        folder = opened
        try:
            owner = os.fstat(folder).st_uid
            opened = os.open(name, flags | (os.O_DIRECTORY if number < len(below) else 0), dir_fd=folder)
        finally:
            os.close(folder)
    found = os.fstat(opened)
    if len(below) > 1 and stat.S_ISREG(found.st_mode) and found.st_nlink > 1 and found.st_uid != owner:
        os.close(opened)
        raise OSError(errno.EPERM, "a second name (hard link) of a file that belongs to somebody else")
    return opened


def read_member(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, budget: Budget) -> tuple[bytes, str]:
    """A file in a zip: (content, problem). Sizes are counted while reading; what the zip says is not believed.

    Only what is stored or deflated is read: other methods unpack without a limit that could be set.
    """
    if stat.S_ISLNK(entry.external_attr >> 16):
        return b"", "a symbolic link in the zip: not followed"
    if entry.flag_bits & 1:
        return b"", "cannot be read from the zip: it is encrypted"
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        method = zipfile.compressor_names.get(entry.compress_type, f"method {entry.compress_type}")
        return b"", f"cannot be read from the zip: it is packed with {method}; only the usual deflate is read"
    if entry.file_size > LARGEST:
        return b"", over(LARGEST)
    data = bytearray()
    try:
        with archive.open(entry) as stream:
            while chunk := stream.read(2**16):
                data += chunk
                budget.take(len(chunk))
                if len(data) > LARGEST:
                    return b"", over(LARGEST)
                if len(data) > max(MB, HIGHEST_RATIO * entry.compress_size):
                    return b"", f"unpacks to over {HIGHEST_RATIO} times its size: not read"
    except (TooMuch, MemoryError):
        raise
    except Exception as error:  # zlib and its relatives have errors of their own
        return b"", f"cannot be read from the zip: {in_words(error)}"
    return bytes(data), ""


def in_words(error: Exception) -> str:
    return printable(f"{error}"[:200]) or type(error).__name__


def litter(place: tuple[str, ...]) -> bool:
    """What operating systems leave behind."""
    return place[-1].lower() in LITTER or place[-1].startswith("._") or bool({p.lower() for p in place} & DROPPED)


def over(limit: int) -> str:
    return f"over {limit // MB} MB"
