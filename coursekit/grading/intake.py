"""From what a learning platform exports to submissions: whose, when, and the answers in it.

What the platform wrote (the names and times of the outermost files) is read here. What a student wrote is read in a
child process with limits, so that no file can stop or swell the marking: a file that kills the child costs one row.
Nothing is unpacked onto the disk.
"""

import json
import os
import re
import stat
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as TookTooLong
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from coursekit.grading import GradingError, printable
from coursekit.grading.identity import (
    Part,
    Roster,
    Student,
    Whose,
    fold,
    identify,
    joined_by_and,
    nbgraders,
    plain_stem,
    read_part,
    shown,
    time_of,
)
from coursekit.grading.notebooks import read_released
from coursekit.grading.reading import (
    DEEPEST_FOLDER,
    LARGEST,
    LINK,
    MB,
    MEMORY,
    MOST_ENTRIES,
    MOST_FILES,
    NO_NAME,
    READY,
    WRAPPER,
    litter,
    over,
)

SECONDS = 10  # of CPU for one hand-in
SECONDS_TO_LIST = 60
MUCH_LATER = timedelta(hours=1)  # than the time in a folder's name
PATIENCE = 6  # times as long may it take on a busy machine, where the child waits
SECONDS_TO_START = 120
MOST_FOLDERS = 100  # of one owner in nbgrader's inbound
MOST_ROWS = 10  # of one hand-in, besides what is marked
LONGEST_REPLY = 16 * MB
LONGEST_LIST = 128 * MB
CHILD = "import sys; sys.path.insert(0, sys.argv[1]); from coursekit.grading.reading import answer_parent as go; go()"
TWICE = "the zip holds this name more than once: none of them is read"
NO_ACCOUNT = "user number "  # of an owner without a name on this machine
NONSENSE = "what came back from reading it makes no sense"


@dataclass
class Submission:
    """One file that was handed in.

    Attributes:
        file: where it came from, for people.
        student: of the roster or of the outermost part; empty if that says nothing, or is in doubt.
        platform_id: the platform's number for the student, where the outermost part or the roster holds one.
        name: the student's name, where roster or platform tell it.
        handed_in: when, in UTC; None if unknown.
        late: the platform says so.
        problem: why it cannot be marked; empty if it can.
        flags: what a person should know.
        answers: the source of each answer, by ``grade_id``.
    """

    file: str
    student: str = ""
    platform_id: str = ""
    name: str = ""
    handed_in: datetime | None = None
    late: bool = False
    problem: str = ""
    flags: list[str] = field(default_factory=list)
    answers: dict[str, str] = field(default_factory=dict)


@dataclass
class Collected:
    """All that was handed in; and for each student what may be theirs but was booked for nobody."""

    found: list[Submission]
    doubts: dict[str, list[str]]


@dataclass
class Entry:
    """A file that the platform wrote: one on the disk, or one in the outermost zip."""

    place: tuple[str, ...]  # the names of folders and file
    when: datetime | None = None
    path: bytes = b""  # on the disk; of the zip if ``index`` is not negative
    index: int = -1
    problem: str = ""
    written: datetime | None = None  # on the disk: when this machine last noted a change


@dataclass
class Item:
    """All that lies in one outermost part: one hand-in, unless several of its notebooks can be read."""

    part: str
    folder: bool
    entries: list[Entry] = field(default_factory=list)
    owner: str = ""  # of a folder on the disk
    written: datetime | None = None  # when this machine last noted a change of it, a time that its owner cannot set
    hidden: bool = False  # whether there was something, but only what systems put beside files


def submissions(paths: list[Path], exercise: str, roster: list[Student], home: Path) -> Collected:
    """Every file under ``paths`` (folders, zips, notebooks), each as a submission, in a stable order.

    Args:
        paths: what the marker names. Their top-level folders and files are taken to be named by the platform.
        exercise: its name. A notebook of another exercise in ``home / "exercises"`` is no hand-in of this one.
        roster: the class; empty if there is none.

    Raises:
        GradingError: a path is not there or cannot be opened, or holds nothing.
    """
    released = read_released(home).get(exercise)
    if not released:
        raise GradingError(f"no exercise {exercise!r} in {home / 'exercises'}")
    with Child(exercise, home, {cell["grade_id"] for cell in released if cell["solution"]}) as reader:
        items = [item for path in paths for item in items_in(Path(path), exercise, reader)]
        if not items:
            raise GradingError(f"no files in {', '.join(map(str, paths))}")
        parts = read_parts(items, exercise)
        owners_agree(items, parts, roster)
        owned, doubts = identify(parts, roster)
        flag_copied_exchange(items, parts, owned)
        flag_old_names(items, parts, owned)
        found = [[*hand_ins(*about, exercise, reader)] for about in zip(items, parts, owned)]
    sources = [whose.student or part.source for part, whose in zip(parts, owned)]
    latest_counts(sources, found)
    readable = {source for source, together in zip(sources, found) if not all(s.problem for s in together)}
    for source, together in zip(sources, found):
        together[:] = [s for s in together if not (is_online_text(s.file) and s.problem and source in readable)]
    return Collected([s for item, together in zip(items, found) for s in folded(together, item)], doubts)


def folded(together: list[Submission], item: Item) -> list[Submission]:
    """The rows of one hand-in, in which those that are not marked are ten and one for all others."""
    rest = [submission for submission in together if submission.problem][MOST_ROWS:]
    if len(rest) < 2:
        return together
    problem = f"and {len(rest)} more files that are not marked; the last of them: {rest[-1].problem}"
    dropped = set(map(id, rest))
    kept = [submission for submission in together if id(submission) not in dropped]
    return [*kept, replace(rest[-1], file=item_name(item), problem=problem)]


def is_online_text(file: str) -> bool:
    """Moodle's text field: no second hand-in of those who handed in a notebook too."""
    return "_assignsubmission_onlinetext" in file and file.endswith("onlinetext.html")


def read_parts(items: list[Item], exercise: str) -> list[Part]:
    """What the outermost parts say. A name that two platforms could have written is the one's that wrote the others."""
    parts = [read_part(item.part, exercise, folder=item.folder) for item in items]
    platforms = {part.layout for part in parts if not part.problem} & {"moodle", "canvas"}
    platform = platforms.pop() if len(platforms) == 1 else ""
    return [
        read_part(item.part, exercise, folder=item.folder, platform=platform) if part.problem else part
        for item, part in zip(items, parts)
    ]


def owners_agree(items: list[Item], parts: list[Part], roster: list[Student]) -> None:
    """Refuse folders of nbgrader's exchange that somebody else made: everybody may write into ``inbound``.

    A folder whose owner has the name that it says counts, whatever others made in that name. Where the owners' names
    say nothing, one owner has to keep to one name, and one name to one owner.
    """
    book = Roster(roster)

    def called(name: str) -> frozenset[str]:
        return frozenset({s.id for s in book.called(name)} if roster else {fold(name)})

    exchange = [n for n, part in enumerate(parts) if part.layout == "nbgrader"]
    several = len({items[n].owner for n in exchange}) > 1  # in a copy, everything has the same owner
    owners, names = defaultdict(set), defaultdict(set)
    for n in exchange:
        owners[called(parts[n].key)].add(items[n].owner)
        names[items[n].owner].add(parts[n].key)
    rightful = set[str]().union(*(called(items[n].owner) & called(parts[n].key) for n in exchange))
    by_name = several and bool(rightful or not roster)  # then whoever has an account hands in by its name
    for n in exchange:
        owner, part, words, meant = items[n].owner, parts[n], "", (parts[n].key,)
        known = bool(owner) and not owner.startswith(NO_ACCOUNT)
        if fold(owner) == fold(part.key) or called(owner) & called(part.key):
            words = ""
        elif (known and by_name) or (roster and called(owner)) or (several and called(part.key) & rightful):
            words, meant = f"but belongs to {printable(owner)}", (part.key, owner)
        elif len(owners[called(part.key)]) > 1 and called(part.key):
            others = map(printable, sorted(owners[called(part.key)]))
            words = f"as others do, and they belong to {' and '.join(others)}"
        elif several and len(names[owner]) > 1:
            words = f"and whoever made it made one for {joined_by_and([printable(k) for k in sorted(names[owner])])}"
            meant = tuple(names[owner])
        if not words and part.handed_in is None:
            words = "at a time that cannot be"
        if words:
            problem = f"its folder says {printable(part.key)}, {words}, so it is not booked"
            origin = f"made by {owner}" if several else ""
            parts[n] = Part(part.text, "nbgrader", problem=problem, meant=meant, origin=origin)


def flag_copied_exchange(items: list[Item], parts: list[Part], owned: list[Whose]) -> None:
    """Of several folders in one student's name, some may be another's; a copy of the exchange cannot tell."""
    exchanged = [
        (item.owner, part, whose) for item, part, whose in zip(items, parts, owned) if part.layout == "nbgrader"
    ]
    folders = Counter(whose.student for _, _, whose in exchanged)
    if len({owner for owner, _, _ in exchanged}) > 1 or len(folders) < 2:
        return
    for _, _, whose in exchanged:
        if whose.student and folders[whose.student] > 1:
            whose.flags.append(
                "one of several folders with this name in a copy of nbgrader's exchange, which does not show who made "
                "them: check that the latest is the student's, or mark inbound itself"
            )


def flag_old_names(items: list[Item], parts: list[Part], owned: list[Whose]) -> None:
    """Flag folders of nbgrader's exchange that are younger than the time in their names, which a student's computer
    wrote. In a copy most of them are, and it shows nothing."""
    times = [
        (item.written - part.handed_in, whose)
        for item, part, whose in zip(items, parts, owned)
        if part.layout == "nbgrader" and part.handed_in and item.written
    ]
    late = [(by, whose) for by, whose in times if by > MUCH_LATER]
    for by, whose in late if 2 * len(late) < len(times) else ():
        by = f"{by.days} days" if by.days > 1 else f"{by.total_seconds() / 3600:.0f} hours"
        whose.flags.append(f"this machine noted a change of its folder {by} after the time in the folder's name")


def hand_ins(item: Item, part: Part, whose: Whose, exercise: str, reader: "Child") -> Iterator[Submission]:
    """The submissions in one item: one for each file."""
    about = {"student": whose.student, "platform_id": whose.platform_id, "name": whose.name, "late": part.late}
    problem = "" if item.entries else "a folder that holds only hidden files" if item.hidden else "an empty folder"
    if part.exercise and part.exercise != exercise:
        problem = f"handed in for {printable(part.exercise)[:100]}"
    if problem:
        flags = list(whose.flags)
        yield Submission(item_name(item), **about, handed_in=part.handed_in, problem=problem, flags=flags)
        return
    readable = [entry for entry in item.entries if not entry.problem]
    try:
        rows = reader.read(readable) if readable else []
    except Unanswered as why:
        times = [entry.when for entry in item.entries if entry.when]
        when = part.handed_in or max(times, default=None)
        problem = f"could not be read: {why}"
        yield Submission(item_name(item), **about, handed_in=when, problem=problem, flags=list(whose.flags))
        return
    rows = [(readable[row["number"]], row) for row in rows]
    rows += [(entry, {"problem": entry.problem}) for entry in item.entries if entry.problem]
    for entry, row in sorted(rows, key=lambda pair: pair[0].place):
        place = [*entry.place, *([row["inside"]] if row.get("inside") else [])]
        yield Submission(
            printable("/".join(place)),
            **about,
            handed_in=part.handed_in or entry.when,
            problem=printable(row["problem"]),
            flags=[*whose.flags, *row.get("flags", [])],
            answers=row.get("answers", {}),
        )


def item_name(item: Item) -> str:
    return printable("/".join(item.entries[0].place)) if len(item.entries) == 1 else printable(item.part)


def latest_counts(sources: list[Any], found: list[list[Submission]]) -> None:
    """Of several files from one source the latest readable one is marked; the others say so.

    A source is a student, or what is booked for nobody and was handed in by one person: it costs one marking too.
    """
    by_source: dict[Any, list[Submission]] = {}
    for source, together in zip(sources, found):
        by_source.setdefault(source, []).extend(s for s in together if not s.problem)
    beginning = datetime.min.replace(tzinfo=UTC)
    for group in by_source.values():
        group.sort(key=lambda s: (s.handed_in or beginning, by_number(s.file)))
        for submission in group[:-1]:
            submission.problem = f"not the latest: {group[-1].file} is marked instead"


def by_number(file: str) -> list[tuple[int, str]]:
    """For sorting: ``x.ipynb`` before ``x-1.ipynb`` before ``x-10.ipynb``."""
    folder, _, name = file.rpartition("/")
    stem = f"{folder}/{name.rpartition('.')[0] or name}"
    pieces = re.split(r"([0-9]+)", stem)  # every second one is a number, of any length
    return [(len(p.lstrip("0")), p.lstrip("0")) if n % 2 else (0, p) for n, p in enumerate(pieces)]


# --- what the platform wrote ---------------------------------------------------------------------------


def items_in(path: Path, exercise: str, reader: "Child") -> list[Item]:
    """The outermost folders and files of what the marker names."""
    refuse_unopenable(path)
    if path.is_dir():
        return folder_items(path, exercise)
    if path.suffix.lower() == ".zip":
        return zip_items(path, reader)
    place, folder = (path.name,), False
    if plain_stem(path.name) == exercise:  # then its folder says whose it is
        place, folder = (path.resolve().parent.name, path.name), True
    entry = Entry(place, time_of(path.stat().st_mtime), os.fsencode(path.parent.resolve() / path.name))
    return [Item(place[0], folder, [entry])]


def refuse_unopenable(path: Path) -> None:
    """What a person names must be there to read: a broken export would otherwise be a class that handed in nothing."""
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            raise GradingError(f"{path} is a symbolic link, which is not followed: name what it leads to")
        if stat.S_ISDIR(mode):
            next(path.iterdir(), None)
        elif stat.S_ISREG(mode):
            path.open("rb").close()
        else:
            raise GradingError(f"{path} is neither a file nor a folder")
    except (FileNotFoundError, NotADirectoryError, ValueError):
        raise GradingError(f"no such file or folder: {path}") from None
    except OSError as error:
        raise GradingError(f"cannot open {path}: {error.strerror or error}") from None


def folder_items(path: Path, exercise: str) -> list[Item]:
    names = sorted(name for name in os.listdir(path) if not litter((name,)))
    if path.resolve().name == "inbound" and (found := {n: p for n in names if (p := exchanged(path / n))}):
        return exchange_items(path, names, found, exercise)
    if len(names) > MOST_ENTRIES:
        raise GradingError(f"{path} holds more than {MOST_ENTRIES} files and folders: name the one that is meant")
    items = [item_at(path / name) for name in names]
    if path.resolve().name == "submitted":
        forget_times(items)  # nbgrader's: copies keep the times that the student's computer gave
    return items


def item_at(path: Path) -> Item:
    is_folder = path.is_dir() and not path.is_symlink()
    entries = list(walk(path, path.name))
    written = max(filter(None, [written_of(path), *(entry.written for entry in entries)]), default=None)
    return Item(path.name, is_folder, entries, owner_of(path), written, is_folder and any_in(path))


def written_of(path: Path) -> datetime | None:
    with suppress(OSError):
        return time_of(os.lstat(path).st_ctime)
    return None


def any_in(path: Path) -> bool:
    with suppress(OSError):
        return bool(os.listdir(path))
    return False


def exchanged(path: Path) -> Part | None:
    """What a folder of nbgrader's exchange says by its name; None for anything else."""
    part = nbgraders(path.name)
    return part if part and path.is_dir() and not path.is_symlink() else None


def exchange_items(path: Path, names: list[str], found: dict[str, Part], exercise: str) -> list[Item]:
    """What is in nbgrader's ``inbound``, where everybody may write as much as they like, under any name.

    Args:
        names: all that is there.
        found: those of them that are folders of the exchange. Others are left out, in one row.
    """
    by_owner = defaultdict(list)
    for name in found:
        by_owner[owner_of(path / name)].append(name)
    if len(by_owner) == 1 and len(found) > MOST_ENTRIES:
        raise GradingError(f"{path} holds more than {MOST_ENTRIES} folders, all of one owner: take the old ones away")
    beginning = datetime.min.replace(tzinfo=UTC)
    kept, left_out = [], []
    for owner, theirs in by_owner.items():
        theirs.sort(key=lambda n: (found[n].exercise == exercise, found[n].handed_in or beginning), reverse=True)
        most = MOST_FOLDERS if len(by_owner) > 1 else MOST_ENTRIES
        kept += theirs[:most]
        if rest := len(theirs[most:]):
            left_out.append(f"not read: the oldest {rest} of {printable(owner)}'s folders, of which {most} are read")
    if others := [shown(name) for name in names if name not in found]:
        rule = "nbgrader makes only folders called STUDENT+EXERCISE+TIME here"
        left_out.append(f"not read, since {rule}: {joined_by_and(others)}")
    nobodys = [Item("", False, [Entry((path.name,), problem=words)]) for words in left_out]
    return [*(item_at(path / name) for name in sorted(kept)), *nobodys]


def walk(top: Path, name: str) -> Iterator[Entry]:
    """The files at or under ``top``, without following links, opening anything, or going on for ever."""
    waiting, steps = [(os.fsencode(top), (name,))], 0
    while waiting:
        path, place = waiting.pop()
        steps += 1
        if steps > MOST_FILES:
            yield Entry(place, problem=f"more than {MOST_FILES} files and folders: the rest is not read")
            return
        try:
            about = os.lstat(path)
            kind, when = about.st_mode, time_of(about.st_mtime)
            if stat.S_ISDIR(kind) and len(place) > DEEPEST_FOLDER:
                yield Entry(place, problem=f"folders more than {DEEPEST_FOLDER} deep: not read")
            elif stat.S_ISDIR(kind):
                with os.scandir(path) as entries:
                    first = [entry.name for _, entry in zip(range(MOST_FILES + 1), entries)]
                names = [os.fsdecode(inner) for inner in sorted(first, reverse=True)]
                inner = [(os.path.join(path, os.fsencode(n)), (*place, n)) for n in names]
                waiting += [pair for pair in inner if not litter(pair[1])]
            elif stat.S_ISREG(kind):
                problem = "" if about.st_size <= LARGEST else over(LARGEST)
                yield Entry(place, when, path, problem=problem, written=time_of(about.st_ctime))
            else:
                yield Entry(place, when, problem=LINK if stat.S_ISLNK(kind) else "neither file nor folder: not opened")
        except OSError as error:
            yield Entry(place, problem=f"cannot be read: {error.strerror or error}")


def owner_of(path: Path) -> str:
    """The name of a folder's owner, or the number in words where this machine has no name for it."""
    try:
        return path.owner()
    except KeyError:
        return f"{NO_ACCOUNT}{path.stat().st_uid}"
    except (OSError, NotImplementedError):  # it is gone, or this is Windows
        return ""


def zip_items(path: Path, reader: "Child") -> list[Item]:
    try:
        listed = reader.entries_of(path)
    except Unanswered as why:
        raise GradingError(f"cannot open {path}: {why}") from None
    entries, folders = [], set()
    for index, names, when, is_folder, problem in listed:
        place = tuple(names)
        if place and litter(place):
            continue
        if is_folder and not problem:
            folders.add(place)
        else:
            entries.append(Entry(place, time_of(when) if when else None, os.fsencode(path), index, problem))
    inside = [entry for entry in entries if not leads_nowhere(entry)]
    tops = {entry.place[0] for entry in inside} | {place[0] for place in folders if place}
    wrapper = next(iter(tops)) if len(tops) == 1 and all(len(entry.place) > 1 for entry in inside) else ""
    if wrapper not in (path.stem, WRAPPER):
        wrapper = ""
    items: dict[str, Item] = {}
    for place in folders:
        if place := place[bool(wrapper) :]:
            items.setdefault(place[0], Item(place[0], folder=True))
    nobodys = []
    for entry in entries:
        if leads_nowhere(entry):
            entry.place = entry.place or ("?",)
            entry.problem = entry.problem or NO_NAME
            nobodys.append(Item("", False, [entry]))
        else:
            entry.place = entry.place[bool(wrapper) :]
            item = items.setdefault(entry.place[0], Item(entry.place[0], folder=False))
            item.folder |= len(entry.place) > 1
            item.entries.append(entry)
    for item in items.values():
        limit_files(item)
    found = [*(items[part] for part in sorted(items)), *nobodys]
    times = [max(e.when for e in item.entries if e.when) for item in found if any(e.when for e in item.entries)]
    packed = len(times) > 2 and (max(times) - min(times)).total_seconds() < 600
    if packed or WRAPPER in (wrapper, path.stem):  # the time of packing, or the student's computer's
        forget_times(found)
    return found


def leads_nowhere(entry: Entry) -> bool:
    """Whether a zip's entry lies under no name at its top level."""
    return entry.place[:1] in ((), ("",), ("..",))


def limit_files(item: Item) -> None:
    twice = {place for place, count in Counter(entry.place for entry in item.entries).items() if count > 1}
    for entry in item.entries:
        if entry.place in twice:
            entry.problem = entry.problem or TWICE
    if len(item.entries) > MOST_FILES:
        rest = item.entries[MOST_FILES]
        rest.problem = f"more than {MOST_FILES} files: the rest is not read"
        del item.entries[MOST_FILES + 1 :]


def forget_times(items: list[Item]) -> None:
    for item in items:
        for entry in item.entries:
            entry.when = None


# --- the child, seen from here -------------------------------------------------------------------------


class Unanswered(Exception):
    """Why the child gave no answer that can be used."""


class Child:
    """The child process. It is started when it is needed, and again after it died or was ended."""

    def __init__(self, exercise: str, home: Path, names: set[str]) -> None:
        self.start = {"exercise": exercise, "home": str(home.resolve())}
        self.names = names  # of the answers
        self.process: subprocess.Popen | None = None
        self.worker = ThreadPoolExecutor(1)

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        self.worker.shutdown()

    def end(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()
            with suppress(OSError):  # what was never written
                self.process.stdin.close()
            self.process.stdout.close()
            self.process = None

    def begin(self) -> None:
        """Start it, and wait until it is ready: its own start is on nobody's time."""
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-X", "utf8", "-c", CHILD, str(Path(__file__).parents[2])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={key: os.environ[key] for key in ("SYSTEMROOT",) if key in os.environ},  # Windows needs it
        )
        started = self.worker.submit(exchange, self.process, self.start, len(READY))
        try:
            ready = started.result(SECONDS_TO_START) == READY
        except TookTooLong:
            ready = False
        except BaseException:
            self.end()
            raise
        if not ready:
            self.end()
            raise GradingError("the program that reads notebooks does not start; is this machine very busy?")

    def read(self, entries: list[Entry]) -> list[dict[str, Any]]:
        """What the child found in the files of one item; each row names its entry's number."""
        wanted = [[entry.place[-1], entry.path.hex(), entry.index, len(entry.place)] for entry in entries]
        rows = self.ask({"read": wanted}, SECONDS, LONGEST_REPLY)
        if not isinstance(rows, list) or not rows or not all(self.is_row(row, len(entries)) for row in rows):
            self.refuse()
        return rows

    def is_row(self, row: Any, entries: int) -> bool:
        return (
            isinstance(row, dict)
            and isinstance(row.get("number"), int)
            and 0 <= row["number"] < entries
            and isinstance(row.get("inside"), str)
            and isinstance(row.get("problem"), str)
            and isinstance(row.get("flags"), list)
            and all(isinstance(flag, str) for flag in row["flags"])
            and isinstance(row.get("answers"), dict)
            and all(name in self.names and isinstance(text, str) for name, text in row["answers"].items())
        )

    def entries_of(self, path: Path) -> list[Any]:
        """(index, names, time, whether it is a folder, problem) of each entry of the marker's zip that may be read."""
        found = self.ask({"list": os.fsencode(path).hex()}, SECONDS_TO_LIST, LONGEST_LIST)
        if isinstance(found, str):
            raise Unanswered(found)
        return found

    def ask(self, request: dict[str, Any], seconds: float, most: int, again: bool = False) -> Any:
        """The child's answer to one request, of at most ``most`` bytes.

        It limits its own time of the CPU, which does not depend on what else this machine does. Only where it comes to
        a stop is it ended from here, and asked once more before a hand-in is blamed.

        Raises:
            Unanswered: it took longer, died or said nonsense. It is ended, and the next request starts another.
        """
        fresh = self.process is None
        if fresh:
            self.begin()
        answer = self.worker.submit(exchange, self.process, request | {"seconds": seconds}, most)
        try:
            line = answer.result(PATIENCE * seconds)
            if not line and not fresh:  # it may have died of what it read before
                self.end()
                return self.ask(request, seconds, most, again)
            if not line:
                status = self.process.wait(5)
                raise Unanswered(f"reading it took more than {limits(seconds)}" if status else NONSENSE)
            return json.loads(line)  # one that is too long was cut, and is no JSON
        except (TookTooLong, subprocess.TimeoutExpired):
            self.end()
            if not again:
                return self.ask(request, seconds, most, again=True)
            raise Unanswered(f"reading it took more than {PATIENCE * seconds:g} seconds, twice") from None
        except (ValueError, RecursionError):
            self.refuse()
        except BaseException:
            self.end()
            raise

    def refuse(self) -> None:
        self.end()
        raise Unanswered(NONSENSE)


def limits(seconds: float) -> str:
    return f"{seconds:g} seconds or {MEMORY // MB} MB of memory, or broke the program that reads notebooks"


def exchange(process: subprocess.Popen, line: Any, most: int) -> bytes:
    """Write a line and read one; nothing where the process has ended."""
    try:
        process.stdin.write(json.dumps(line).encode() + b"\n")
        process.stdin.flush()
        return process.stdout.readline(most)
    except (OSError, ValueError):
        return b""
