"""Mark one submission: run its answers in the sandbox, judge what comes out of it here.

``mark`` is a pure function from one JSON-able job to one JSON-able result, so that it runs as well in a thread
of this process as on another machine.
"""

import ast
import bisect
import hashlib
import hmac
import importlib.util
import json
import time
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from coursekit.grading import GradingError, sandbox
from coursekit.grading.calls import MORE_THAN_A_MODEL, NOTHING, Arrays, Seed, Unusable
from coursekit.grading.differences import without_values
from coursekit.grading.inside import first_changed, pack_arguments, unpack
from coursekit.grading.limited import TookTooLong, limited
from coursekit.grading.magics import LONGEST, as_python
from coursekit.grading.parts import Case, Part, Verdict
from coursekit.grading.plain import beyond
from coursekit.grading.release import CHECK, checks_of, mark_up
from coursekit.grading.rules import builtins_in, made_in, places_in

COURSE = "attention-course"
DETAILS = 40  # notes for the marker on one submission
SECONDS = 60.0  # of the CPU to judge a part; usually it is less than one
Step = dict[str, Any]  # a cell to run, or calls of what it defines: see ``sandbox.run``


def seed_for(key: bytes, exercise: str, student: str, answers: Mapping[str, str] = {}) -> int:
    """The secret seed of a student's cases: the same whenever the same answers are marked, and no other's.

    Whatever somebody finds out about the cases of one hand-in says nothing about those of the next.
    """
    text = "\0".join([COURSE, exercise, student, *([json.dumps(sorted(answers.items()))] if answers else [])]).encode()
    return int.from_bytes(hmac.digest(key, text, hashlib.sha256)[:7], "big")


def seed_of(seed: int, part: str) -> int:
    """A part's own seed, which those of other parts do not tell: 32 bits, all that PyTorch's generator uses."""
    return int.from_bytes(hashlib.sha256(f"{seed} {part}".encode()).digest()[:4], "big")


def hidden_cases(private: str | None, exercise: str) -> dict[str, Any]:
    """Functions that draw more cases for parts, by the part's name, from ``private/EXERCISE.py``."""
    path = Path(private or "", f"{exercise}.py")
    if not private or not path.is_file():
        return {}
    spec = importlib.util.spec_from_file_location("hidden_cases", path)
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise GradingError(f"{path} cannot be run: {type(error).__name__}: {error}") from None
    names = {part.name for part in checks_of(exercise).PARTS}
    if not isinstance(getattr(module, "CASES", None), dict) or not set(module.CASES) <= names:
        raise GradingError(f"{path}: expected CASES = {{part: function of a generator}}, with parts of {sorted(names)}")
    return module.CASES


def check_hidden_cases(private: str, exercise: str) -> None:
    """Draw the hidden cases once, so that a mistake in them is said before the marking and not for each student."""
    path = Path(private, f"{exercise}.py")
    parts = {part.name: part for part in checks_of(exercise).PARTS}
    for name, cases in hidden_cases(private, exercise).items():
        try:
            aspects = {case.aspect for case in replace(parts[name], cases=cases).draw(0)}
        except Exception as error:
            raise GradingError(
                f"{path}: the cases of {name} cannot be drawn: {type(error).__name__}: {error}"
            ) from None
        if unknown := sorted(aspects - set(parts[name].aspects)):
            raise GradingError(f"{path}: {name} has the aspects {sorted(parts[name].aspects)}, not {unknown[0]!r}")


def steps_of(master: Sequence[Any], answers: dict[str, str], parts: Sequence[Part]) -> list[Step]:
    """The master's code cells with the student's answers in their places, and after each part its calls.

    Every step belongs to the part whose check comes next; ``cell`` is the answer's ``grade_id``, if it is one.
    """
    by_check = {CHECK + part.name: part for part in parts}
    steps, waiting = [], []
    for cell in master:
        name = mark_up(cell).get("grade_id")
        if name in by_check:
            part = by_check[name]
            waiting.append({"name": part.result, "forbidden": list(part.forbidden)})
            steps += [step | {"part": part.name, "seconds": part.seconds} for step in waiting]
            waiting = []
        elif cell["cell_type"] == "code":
            is_answer = bool(mark_up(cell).get("solution"))
            source = answers.get(name, cell["source"]) if is_answer else cell["source"]
            waiting.append({"source": source} | ({"cell": name} if is_answer else {}))
    return steps


def mark(job: dict[str, Any]) -> dict[str, Any]:
    """Mark one submission.

    Args:
        job: ``exercise``; ``master``, the released notebook as JSON; ``answers`` by ``grade_id``; ``seed``;
            ``private``, a folder with hidden cases or None; ``unsafe``.

    Returns:
        ``parts``: for each part its ``name``, ``points``, ``of``, ``aspects`` (name, points, of, words) and
        ``problem``, why it did not run, in words for the student (empty if it did); ``details``: what only a
        marker may read; ``peak``: bytes that the sandbox used; ``unsure``: something ended for lack of time or
        memory, which a busy machine may have caused.
    """
    checks = checks_of(job["exercise"])
    extra = hidden_cases(job["private"], job["exercise"])
    cases = {}
    for part in checks.PARTS:
        cases[part.name] = part.draw(seed_of(job["seed"], part.name), marking=True)
        if part.name in extra:
            cases[part.name] += replace(part, cases=extra[part.name]).draw(
                seed_of(job["seed"], part.name), marking=True
            )
    steps = steps_of(job["master"]["cells"], job["answers"], checks.PARTS)
    parts, orders = {part.name: part for part in checks.PARTS}, {}
    for step in steps:
        if "name" in step:
            asked, orders[step["part"]] = in_secret_order(parts[step["part"]], cases[step["part"]], job["seed"])
            given = [case.arguments for case in asked]
            step["calls"] = [None if arguments is None else pack_arguments(arguments) for arguments in given]
            step["alone"] = [n for n, some in enumerate(given) if some and any(map(is_alone, some))]
    found, records = {}, []
    for together in apart(steps, checks.PARTS, job["answers"]):
        records.append(record := run_all(together, job["exercise"], job["unsafe"]))
        number_of = {(n, i): orders[together[n]["part"]][i] for n, i in record.calls}
        record.calls = {(n, number_of[n, i]): said for (n, i), said in record.calls.items() if number_of[n, i] >= 0}
        called = {step["part"] for step in together if "name" in step}
        for part in checks.PARTS:
            if part.name in called:
                found[part.name] = judge(part, cases[part.name], together, record, job["answers"])
    return {
        "parts": [found[part.name] for part in checks.PARTS],
        "details": list(dict.fromkeys(note for record in records for note in record.details)),
        "peak": max(record.peak for record in records),
        "unsure": any(reason.startswith(("took", "used")) for record in records for reason in record.deaths.values()),
    }


def in_secret_order(part: Part, cases: list[Case], seed: int) -> tuple[list[Case], list[int]]:
    """What is asked of an answer, call by call, and the number of each case, -1 for those that do not count.

    An answer could count its calls, and be right only where it is judged. So before the cases it is asked a few more of
    the first kind, nobody knows how many, and within an aspect the cases change places. The aspects keep theirs: an
    answer that ends the process, or does not end, loses what comes after.
    """
    rng = Random(seed_of(seed, f"order of {part.name}"))
    more = part.draw(seed_of(seed, f"more of {part.name}"), marking=True)
    more = [case for case in more if case.aspect == cases[0].aspect and case.arguments is not None]
    more = more[: rng.randint(0, len(more))]
    order = [-1] * len(more)
    for case in cases:
        alike = [n for n, other in enumerate(cases) if other.aspect == case.aspect and n not in order]
        order.append(rng.choice(alike))
    return [*more, *(cases[n] for n in order[len(more) :])], order


def is_alone(argument: Any) -> bool:
    return isinstance(argument, Seed) and argument.alone


def apart(steps: list[Step], parts: Sequence[Part], answers: dict[str, str]) -> list[list[Step]]:
    """The steps that run in one process, for each process: usually there is one.

    What a part forbids is noticed in the process in which it happens, where code that finds other code could hide it.
    So an answer that uses more than ``plain`` lists does not run beside the parts that forbid something.
    """
    given = {part.name: part.given for part in parts}
    cells = [step for step in steps if "cell" in step]
    odd = {step["cell"] for step in cells if is_odd(answers.get(step["cell"], ""), given[step["part"]])}
    strict = {part.name for part in parts if part.forbidden and odd}
    if not strict:
        return [steps]
    free = [step for step in steps if "name" not in step or step["part"] not in strict]
    guarded = [step for step in steps if "name" not in step or step["part"] in strict]
    return [free, [step | {"source": ""} if step.get("cell") in odd else step for step in guarded]]


def is_odd(source: str, given: Collection[str]) -> bool:
    try:
        return bool(beyond(source, given))
    except RecursionError:  # who nests so deeply need not be read
        return True


@dataclass
class Record:
    """What happened in the sandbox, over all its runs."""

    calls: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict)  # by step and call
    errors: dict[int, dict[str, Any]] = field(default_factory=dict)  # of cells, by step
    deaths: dict[int, str] = field(default_factory=dict)  # steps that ended a run, and how
    details: list[str] = field(default_factory=list)  # for the marker's eyes only
    peak: int = 0


def run_all(steps: list[Step], exercise: str, unsafe: bool) -> Record:
    """Run the steps; when one ends the run, run the others again without it, so that only its part suffers."""
    record = Record()
    called = {step["part"] for step in steps if "name" in step}
    seconds = 1.5 * sum(part.seconds for part in checks_of(exercise).PARTS if part.name in called)  # for all runs
    while True:
        left = [n for n, step in enumerate(steps) if n not in record.deaths and not (done(n, step, record))]
        if not any("name" in steps[n] for n in left):
            return record
        started = time.monotonic()
        outcome = sandbox.run([steps[n] for n in left], unsafe, seconds)
        seconds = max(0.0, seconds - (time.monotonic() - started))
        record.peak = max(record.peak, outcome.peak)
        for message in outcome.messages:
            take(message, left, steps, record)
        if outcome.died_at is None:
            return record
        dead = left[outcome.died_at]
        record.deaths[dead] = outcome.reason
        if seconds == 0:
            record.deaths |= {n: outcome.reason for n in left if n not in record.deaths}
        record.details.append(f"{steps[dead]['part']}: {outcome.reason}")


def done(number: int, step: dict[str, Any], record: Record) -> bool:
    return "name" in step and all((number, i) in record.calls for i in range(len(step["calls"])))


def take(message: dict[str, Any], left: list[int], steps: list[Step], record: Record) -> None:
    """Keep a message of a run. The first answer to a call counts."""
    number = left[message["end"]]
    error = message.get("error")
    if "call" in message:
        record.calls.setdefault((number, message["call"]), message)
    else:
        record.errors.setdefault(number, error)
    if error and error["kind"] != "NotImplementedError" and len(record.details) < DETAILS:
        note = f"{steps[number]['part']}: {error['kind']}: {error['message']}"[:300]
        if note not in record.details:
            record.details.append(note)


def judge(part: Part, cases: list[Case], steps: list[Step], record: Record, answers: dict[str, str]) -> dict[str, Any]:
    """The points of a part, and why not all of them, in words that give no input away.

    Whatever came back, it does not stop the marking: what cannot be judged, or not in ``SECONDS``, is for a person.
    """
    try:
        with limited(SECONDS):
            return judged(part, cases, steps, record, answers)
    except TookTooLong:
        record.details.append(f"{part.name}: judging it took longer than {SECONDS:g} seconds")
    except Exception as error:  # arrays that the judge did not expect
        record.details.append(f"{part.name}: the judge failed with {type(error).__name__}: {error}")
    problem = "the result could not be judged; a person will look at it"
    return in_words(part, part.verdicts(cases, [Unusable(problem)] * len(cases)), problem)


def judged(part: Part, cases: list[Case], steps: list[Step], record: Record, answers: dict[str, str]) -> dict[str, Any]:
    mine = [n for n, step in enumerate(steps) if step["part"] == part.name]
    calling = next(n for n in mine if "name" in steps[n])
    cells = [steps[n]["cell"] for n in mine if "cell" in steps[n]]
    later = later_names(part, steps, answers)
    problem = ""
    if not any(name in answers for name in cells):
        problem = "not answered"
    elif part.forbidden and (broken := next(filter(None, (syntax_error(answers.get(n, "")) for n in cells)), None)):
        problem = stopped(broken, answers, cells, later)
    elif unread := part.unread(reached(part, steps, answers)):
        problem = unread
    elif all(record.calls.get((calling, i), {"missing": True}).get("missing") for i in range(len(cases))):
        ways = [f"it {record.deaths[n]}" for n in mine if n in record.deaths]
        ways += [stopped(record.errors[n], answers, cells, later) for n in mine if n in record.errors]
        problem = ways[0] if ways else f"no {part.result} is defined"
    got = [
        Unusable(problem) if problem else usable(calling, i, record, answers, cells, later) for i in range(len(cases))
    ]
    faults = {i: words for i, case in enumerate(cases) if (words := fault(part, case, record.calls.get((calling, i))))}
    return in_words(part, part.verdicts(cases, got, faults), problem)


def in_words(part: Part, verdicts: Sequence[Verdict], problem: str) -> dict[str, Any]:
    words = once([without_values(v.words) for v in verdicts])
    aspects = [{"name": v.aspect, "points": v.points, "of": v.of, "words": told} for v, told in zip(verdicts, words)]
    points = sum(v.points for v in verdicts)
    return {"name": part.name, "points": points, "of": part.points, "aspects": aspects, "problem": problem}


def syntax_error(source: str) -> dict[str, Any] | None:
    """The error of an answer that Python cannot read, as ``inside.describe`` has it; of a short one only."""
    if len(source) <= LONGEST:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of a student's odd escapes
                ast.parse(source)
        except SyntaxError as error:
            return {"kind": "SyntaxError", "line": error.lineno}
        except Exception:  # of too deep a nesting
            return None
    return None


def reached(part: Part, steps: list[Step], answers: dict[str, str]) -> dict[str, str]:
    """The answers whose code a part's calls can run: its own, and those that make what these name, directly or not."""
    last = max(n for n, step in enumerate(steps) if step["part"] == part.name)
    sources: dict[tuple[int, int], str] = {}  # of answers, and of each statement of given cells, up to the part's check
    for n, step in enumerate(steps[: last + 1]):
        if "cell" in step:
            sources[n, 0] = answers.get(step["cell"], "")
        elif "source" in step:
            sources |= {(n, i): ast.unparse(one) for i, one in enumerate(ast.parse(as_python(step["source"])).body)}
    found = waiting = [place for place in sources if steps[place[0]]["part"] == part.name]
    while waiting:
        named = set[str]().union(*(builtins_in(sources[place]) for place in waiting))
        waiting = [place for place in sources if place not in found and named & made_in(sources[place])]
        found = found + waiting
    return {steps[n]["cell"]: sources[n, i] for n, i in found if "cell" in steps[n]}


def later_names(part: Part, steps: list[Step], answers: dict[str, str]) -> set[str]:
    """What a part's answers take from cells that stand after its check."""
    last = max(n for n, step in enumerate(steps) if step["part"] == part.name)
    made: tuple[set[str], set[str]] = set(), set()
    for n, step in enumerate(steps):
        if "source" in step:
            source = answers.get(step["cell"], "") if "cell" in step else as_python(step["source"])
            made[n > last].update(made_in(source))
    used = set[str]().union(
        *(builtins_in(answers.get(s["cell"], "")) for s in steps[: last + 1] if "cell" in s and s["part"] == part.name)
    )
    return used & made[True] - made[False]


def usable(
    number: int, call: int, record: Record, answers: dict[str, str], cells: list[str], later: Collection[str]
) -> Arrays | Unusable:
    """What came back from a call, or why there is nothing to judge."""
    message = record.calls.get((number, call))
    if message is None:
        return Unusable(f"it {record.deaths.get(number, 'did not run')}")
    if "arrays" in message:
        try:
            return unpack(message["arrays"])
        except Exception:
            return Unusable("it returned something that cannot be read")
    if "error" in message:
        return Unusable(stopped(message["error"], answers, cells, later))
    said = message.get("unusable")
    return Unusable(said if said in (NOTHING, MORE_THAN_A_MODEL) else "it returned something that is not a tensor")


def fault(part: Part, case: Case, message: dict[str, Any] | None) -> str | None:
    """In words, what a call did that an answer must not do.

    The arguments as they were after the call are compared here with what was sent. What the sandbox says of a forbidden
    function is believed, since it speaks against the answer; whoever hides it is left with a result of nan.
    """
    used = (message or {}).get("used")
    used = used if isinstance(used, str) and used in part.forbidden else ""
    number = None
    if "after" in (message or {}) and case.arguments is not None:
        number = first_changed(case.arguments, message["after"])
    return part.fault(case, number, used)


# How a part came to an end is told once, by one of 11 kinds of exception at one of 21 places or by one of a few ways to
# die: under 256 sentences, hence at most eight bits for whoever chooses them by the inputs that should stay hidden.
KINDS = (
    *("AttributeError", "IndexError", "KeyError", "MemoryError", "ModuleNotFoundError", "NameError", "RuntimeError"),
    *("SyntaxError", "TypeError", "ValueError"),
)
PLACES = 20  # and no place
ENDS = (
    "it stopped with ",
    "it took ",
    "it used more ",
    "it ended ",
    "it returned more ",
    "it wrote ",
    "it did not run",
)


LATER = " (a cell below its check defines something that it uses: a part is judged with the cells above its check)"


def stopped(error: dict[str, Any], answers: dict[str, str], cells: list[str], later: Collection[str] = ()) -> str:
    """An exception in words. Its message stays out: a student's code could write anything there."""
    kind, line = error.get("kind"), error.get("line")
    if kind == "NotImplementedError":
        return "not answered: it still raises NotImplementedError"
    kind = kind if kind in KINDS else "Exception"
    where = max((place(line, answers.get(name, ""), PLACES // len(cells)) for name in cells), key=len)
    words = f"it stopped with {'an' if kind[0] in 'AEIOU' else 'a'} {kind}{where}"
    if kind == "NameError":
        words += LATER if later else " (only the answer cells are read: do they define all that they use?)"
    return words


def place(line: Any, source: str, places: int = PLACES) -> str:
    """The line of an exception in words, or the few around it where an answer is long; empty if there is no such."""
    written = len(source.splitlines())
    if type(line) is not int or not 1 <= line <= written:
        return ""
    lines = places_in(source) or list(range(1, written + 1))
    together = -(-len(lines) // places)  # statements that are told as one place
    number = max(0, bisect.bisect_right(lines, line) - 1) // together * together
    first, last = lines[number], lines[min(number + together, len(lines)) - 1]
    return f" in line {first}" if first == last else f" in lines {first} to {last}"


def once(words: Sequence[str]) -> list[str]:
    """The words of a part's aspects, in which only one end is told."""
    told = next((text for text in words if text.startswith(ENDS)), "")
    return ["it stopped, too" if text.startswith(ENDS) and text != told else text for text in words]
