"""What the benchmarks share; nothing here is timed."""

import dataclasses
import json
import multiprocessing
import os
import platform
import random
import signal
import subprocess
import time
from functools import partial

import numpy as np
import pytest
import torch

import coursekit
from tests import bench
from tests.benchmarks import shared
from tests.benchmarks.shared import Row, measured, noise, read, rows_of, save, verdict


def row(*rounds: float, what: str = "step", **changes) -> Row:
    return Row(**{"topic": "06 GPT", "what": what, "against": "theirs", "rounds": rounds, "at_least": 2.0} | changes)


@pytest.fixture
def clockwork(monkeypatch):
    """Time passes only when a work says so."""
    now = [0.0]
    monkeypatch.setattr(shared.time, "perf_counter", lambda: now[0])

    def work(*lasting: float):
        seconds = iter(lasting)

        def run() -> None:
            now[0] += next(seconds, lasting[-1])

        return run

    return work


# --- The clock -------------------------------------------------------------------------------------------------


def test_works_are_run_in_turn_and_the_first_call_of_each_is_not_counted(monkeypatch):
    calls = []
    monkeypatch.setattr(shared, "ENOUGH", 0.0)
    times = shared.clock(lambda: calls.append("a"), lambda: calls.append("b"), rounds=3)
    assert calls == ["a", "b"] * 4
    assert [len(one) for one in times] == [2, 2, 2]


def test_quick_works_get_more_rounds_but_not_for_ever_and_slow_ones_no_fewer(clockwork):
    assert len(shared.clock(clockwork(1e-6), clockwork(1e-6))) == shared.MOST
    assert len(shared.clock(clockwork(60.0), clockwork(60.0))) == shared.ROUNDS
    between = len(shared.clock(clockwork(0.1), clockwork(0.1)))
    assert between == pytest.approx(shared.ENOUGH / 0.2, abs=1)
    assert len(shared.clock(clockwork(1e-6), clockwork(1e-6), rounds=3, most=3)) == 3


def test_the_ratio_is_the_median_of_the_rounds_not_of_the_medians(clockwork):
    # after the warming up: ours 1 10 1 ..., theirs 2 30 5 ...: in each round both are disturbed alike, or are not
    works = clockwork(99, 1, 10, 1, 1, 1), clockwork(99, 2, 30, 5, 4, 4)
    found = shared.race(row(at_least=None), *works, amount=8)
    assert found.rounds == (2, 3, 5, 4, 4)
    assert (found.value, found.spread) == (4, (3, 4))
    assert found.both == (8, 2), "8 done in 1 and in 4 seconds"
    assert shared.race(row(), clockwork(2), clockwork(4), factor=0.25).value == 0.5


@pytest.mark.parametrize(("first", "reached"), [((30, 10, 30), True), ((10, 30, 10), False)])
def test_more_rounds_decide_where_the_aim_lies_among_the_first(clockwork, first, reached):
    found = shared.race(row(), clockwork(10), clockwork(99, *first, 20, 20, 20))
    assert found.rounds[:3] == tuple(x / 10 for x in first)
    assert (len(found.rounds), found.value, found.reached) == (5, 2, True)
    apart = shared.race(row(), clockwork(10), clockwork(99, *(x + 20 * reached - 10 * (not reached) for x in first)))
    assert (len(apart.rounds), apart.reached) == (shared.FIRST, reached), "nothing is open"
    never = shared.race(row(), clockwork(10), clockwork(99, *[10, 30] * 20))
    assert len(never.rounds) == shared.LAST, "but not for ever"


def test_few_rounds_have_their_whole_range_as_spread():
    assert row(1, 2, 9).spread == (1, 9)
    assert row(7).spread == (7, 7)
    assert row(1, 2, 3, 4, 100).spread == (2, 4)


# --- Aims ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "reached", "tick"),
    [
        (row(2.0), True, "✓"),
        (row(1.999), False, "–"),
        (row(1.04, at_least=None, at_most=1.03), False, "–"),
        (row(1.02, at_least=None, at_most=1.03), True, "✓"),
        (row(5.0, at_least=None), None, ""),
        (row(error="KeyError: 'x'"), False, "–"),
    ],
)
def test_a_row_has_its_aim_reached_or_not(found, reached, tick):
    assert found.reached is reached
    assert list(shared.table([found]).columns[-1].cells) == [tick]


def test_the_table_has_all_rows_and_brackets_are_no_mark_up(capsys):
    rows = [row(2.5, 2.4, 2.6), row(what="[red]x[/nothing]", error="OSError: gone"), row(0.1, unit="%", what="share")]
    shared.console().print(shared.table(rows))
    shown = capsys.readouterr().out
    for text in ("2.500 (2.400–2.600)", "≥ 2", "[red]x[/nothing]", "failed", "10.0 %"):
        assert text in shown
    assert shared.summary(rows) == [
        "1 of 3 aims reached; ✓ reached, – not, blank: no aim",
        "failed: 06 GPT, [red]x[/nothing], theirs: OSError: gone",
    ]


# --- What fails ------------------------------------------------------------------------------------------------


def breaks(message: str = "the first line\nthe second") -> None:
    raise KeyError(message) if not message else ValueError(message)


def test_a_measurement_that_fails_keeps_its_place_and_says_why():
    found = shared.race(row(what="generation"), lambda: None, breaks)
    assert (found.what, found.rounds, found.reached) == ("generation", (), False)
    assert found.error.startswith("ValueError: the first line (test_bench.py:")
    assert "second" not in found.error


def test_errors_are_one_line_whatever_they_say():
    assert shared.one_line(ValueError()) == "ValueError"
    assert shared.one_line(ValueError("\n\n")) == "ValueError"
    assert len(shared.one_line(ValueError("x" * 10_000))) < 250


def test_what_fails_before_it_is_measured_loses_only_its_own_part():
    def half(name):
        yield row(3, what=name)
        breaks()
        yield row(4, what="never")

    def whole():
        return [row(5, what="whole")]

    found = list(rows_of("gpt", lambda: [partial(half, "small"), whole]))
    assert [one.what for one in found] == ["small", "the rest of half(small)", "whole"]
    assert found[1].error.startswith("ValueError: the first line")
    (alone,) = rows_of("gpt", breaks)
    assert alone.error.startswith("ValueError: the first line")


def dies(benchmark: str, connection) -> None:
    connection.send(row(3, topic=benchmark))
    os._exit(7)  # as for want of memory: nothing can be caught


def test_a_process_that_dies_leaves_the_rows_before_and_a_benchmark_that_is_not_there_says_so():
    before, last = measured("gpt", dies)
    assert (before, last.error) == (row(3, topic="gpt"), "its process ended with 7")
    (missing,) = measured("no_such_file")
    assert missing.error.startswith("ModuleNotFoundError")


def lingers(benchmark: str, connection) -> None:
    connection.send(row(3, topic=benchmark))
    time.sleep(600)


def test_a_process_whose_rows_are_no_longer_wanted_is_ended():
    rows = measured("gpt", lingers)
    next(rows)
    (child,) = multiprocessing.active_children()
    rows.close()
    child.join(30)
    assert child.exitcode == -signal.SIGKILL


@pytest.fixture
def faked(monkeypatch):
    """``python -m tests.bench`` with rows that are given by name, and a matrix product in no time."""
    rows = {}
    monkeypatch.setattr(bench.shared, "measured", lambda name: iter(rows[name]))
    monkeypatch.setattr("tests.benchmarks.machine.peaks", lambda: {"cpu float32": 123.4, "cpu bfloat16": "not here"})
    return rows


def test_a_failure_is_listed_beside_the_others_which_are_saved_and_the_exit_status_is_1(faked, tmp_path, capsys):
    faked |= {"bert": [row(3), row(what="broken", error="ValueError: no")], "gpt": [row(4, what="last")]}
    assert bench.main(["bert", "gpt"], tmp_path) == 1
    shown = capsys.readouterr().out
    assert "failed: 06 GPT, broken, theirs: ValueError: no" in shown
    assert "cpu float32: 123 GFLOP/s; cpu bfloat16: not here" in shown
    (path,) = tmp_path.glob("*.json")
    assert [one.what for one in read(path)[1]] == ["step", "broken", "last"]
    faked["bert"] = [row(0.1)]
    assert bench.main(["bert"], tmp_path) == 0, "an aim that is missed is no failure"


def test_an_interrupted_run_keeps_what_it_has(faked, tmp_path, capsys):
    def interrupted():
        yield row(3)
        raise KeyboardInterrupt

    faked["bert"] = interrupted()
    assert bench.main(["bert", "gpt"], tmp_path) == 1
    assert "interrupted" in capsys.readouterr().out
    (path,) = tmp_path.glob("*.json")
    assert read(path)[1][0] == row(3)


def test_an_unknown_name_is_refused_before_anything_is_measured(tmp_path, capsys):
    with pytest.raises(SystemExit) as stopped:
        bench.main(["brt"], tmp_path)
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert "brt" in said
    assert all(name in said for name in (*bench.NAMES, *bench.SLOW))


def test_every_benchmark_has_a_name():
    helpers = {"__init__", "shared", "machine"}
    files = {path.stem for path in (shared.ROOT / "tests" / "benchmarks").glob("*.py")} - helpers
    assert files == {*bench.NAMES, *bench.SLOW}


# --- The saved file --------------------------------------------------------------------------------------------


def test_the_saved_file_says_what_was_measured_with(faked, tmp_path, capsys):
    faked["bert"] = [row(3, 4, both=(1.0, 2.0))]
    bench.main(["bert"], tmp_path)
    (path,) = tmp_path.glob("*.json")
    saved = json.loads(path.read_text("utf-8"))
    mine = {"python": platform.python_version(), "coursekit": coursekit.__version__, "numpy": np.__version__}
    assert saved["versions"].items() >= mine.items()
    assert saved["versions"]["torch"].partition("+")[0] == torch.__version__.partition("+")[0]
    assert saved["threads"] == torch.get_num_threads()
    assert saved["peaks"]["cpu float32"] == 123.4
    assert saved["processor"]
    assert path.name == f"{saved['time']}.json"
    assert saved["rows"][0]["rounds"] == [3, 4]
    assert read(path)[1] == faked["bert"]


def test_the_commit_is_gits_and_says_when_files_differ(tmp_path):
    assert shared.commit(tmp_path) is None

    def git(*command: str) -> str:
        who = ["-c", "user.name=x", "-c", "user.email=x@x"]
        return subprocess.run(["git", *who, *command], cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    git("init", "-q")
    (tmp_path / "a").write_text("1")
    git("add", "a")
    git("commit", "-qm", "one", "--no-verify")
    git("tag", "-a", "v1", "-m", "a tag is no commit")
    head = git("rev-parse", "HEAD")[:12]
    assert shared.commit(tmp_path) == head
    (tmp_path / "a").write_text("2")
    assert shared.commit(tmp_path) == f"{head}-dirty"


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"rows": [{"what": "x"}]}', '{"rows": [{"rounds": 1}]}'])
def test_what_is_no_saved_benchmark_is_refused_in_one_line(tmp_path, text, capsys):
    path, good = tmp_path / "bad.json", tmp_path / "good.json"
    path.write_text(text)
    save(good, shared.about(), [row(3)])
    assert bench.main(["--compare", str(good), str(path)], tmp_path) == 2
    said = capsys.readouterr().err
    assert "bad.json is no saved benchmark" in said
    assert said.count("\n") == 1


# --- Two runs --------------------------------------------------------------------------------------------------


def test_a_difference_must_exceed_both_spreads_together():
    quiet, wide = row(1.9, 1.95, 2.0, 2.05, 2.1), row(1.0, 1.5, 2.0, 2.5, 3.0)
    higher = row(2.25, 2.3, 2.35, 2.4, 2.45)
    assert noise(quiet, higher) == pytest.approx(0.3), "one and a half times two widths of 0.1"
    assert verdict(quiet, higher) == "better"
    assert verdict(higher, quiet) == "worse"
    assert verdict(wide, higher) == verdict(higher, wide) == "", "one disturbed run is enough to say nothing"
    assert verdict(quiet, row(2.15, 2.2, 2.25, 2.3, 2.35)) == "", "although no round of one is one of the other"


def test_what_should_be_small_is_better_when_smaller_and_without_aim_nothing_is_better():
    low, high = (1.00, 1.01, 1.02), (1.50, 1.51, 1.52)
    at_most = partial(row, at_least=None, at_most=1.03)
    assert verdict(at_most(*low), at_most(*high)) == "worse"
    assert verdict(at_most(*high), at_most(*low)) == "better"
    assert verdict(row(*low, at_least=None), row(*high, at_least=None)) == "changed"


def test_two_percent_are_never_a_difference_of_times_but_of_counts_everything_is():
    assert verdict(row(2.0, 2.0, 2.0), row(2.03, 2.03, 2.03)) == ""
    assert verdict(row(2.0, 2.0, 2.0), row(2.05, 2.05, 2.05)) == "better"
    assert verdict(row(2.0, counted=True), row(2.0, counted=True)) == ""
    assert verdict(row(2.0, counted=True), row(2.001, counted=True)) == "better"


def test_what_was_timed_once_or_failed_is_not_judged_by_its_size():
    assert noise(row(2.0), row(9.0, 9.1, 9.2)) is None
    assert verdict(row(2.0), row(9.0, 9.1, 9.2)) == "?"
    failed = row(error="ValueError: no")
    assert [verdict(*pair) for pair in ((row(2, 2), failed), (failed, row(2, 2)), (failed, failed))] == [
        "failed",
        "works",
        "?",
    ]


@pytest.mark.parametrize("disturbed", [0.0, 0.15])
def test_two_runs_of_the_same_differ_in_hardly_any_row(disturbed):
    """Rounds with 10 % of noise, and some that last up to twice as long because another program ran."""
    draw = random.Random(0)

    def run() -> Row:
        rounds = (draw.gauss(3, 0.3) * (1 + draw.random() * (draw.random() < disturbed)) for _ in range(shared.ROUNDS))
        return row(*rounds)

    wrong = sum(bool(verdict(run(), run())) for _ in range(2000))
    assert wrong <= 40, f"{wrong} of 2000"
    faster = sum(verdict(run(), dataclasses.replace(one, rounds=tuple(2 * x for x in one.rounds))) == "better"
                 for one in (run() for _ in range(2000)))  # fmt: skip
    assert faster >= 1600, f"twice as fast was seen in {faster} of 2000"


def test_two_saved_runs_stand_side_by_side_the_two_latest_by_default(tmp_path, capsys):
    made = shared.about() | {"threads": 1, "peaks": {"cpu float32": 50.0}}
    rest = row(3, 3, what="[gone]"), row(3, 3, what="new")
    save(tmp_path / "20250101T000000Z.json", made, [row(99, what="too old")])
    save(tmp_path / "20260101T000000Z.json", made, [row(2, 2, 2), row(5, 5, 5, what="same"), rest[0]])
    newer = made | {"threads": 2}
    save(tmp_path / "20260102T000000Z.json", newer, [row(5, 5.1, 5, what="same"), row(3, 3, 3), rest[1]])
    assert bench.main(["--compare"], tmp_path) == 0
    shown = capsys.readouterr().out
    lines = {line.split("│")[2].strip(): line for line in shown.splitlines() if line.startswith("│ 06 GPT")}
    assert lines.keys() == {"step", "same"}
    assert "better" in lines["step"]
    assert "+50.0 %" in lines["step"]
    assert "2.000" in lines["step"].split("│")[4], "the older is A"
    assert "better" not in lines["same"]
    (threads,) = (line for line in shown.splitlines() if "threads" in line)
    assert "differs" in threads
    assert "differs" not in next(line for line in shown.splitlines() if "processor" in line)
    for said in ("1 of 2 differ by more", "only in A: 06 GPT, [gone], theirs", "only in B: 06 GPT, new, theirs"):
        assert said in shown
    assert "too old" not in shown
    backwards = [str(tmp_path / f"2026010{day}T000000Z.json") for day in (2, 1)]
    assert bench.main(["--compare", *backwards], tmp_path) == 0
    assert "worse" in capsys.readouterr().out


def test_one_run_cannot_be_compared(tmp_path, capsys):
    save(tmp_path / "20260101T000000Z.json", shared.about(), [row(3)])
    assert bench.main(["--compare"], tmp_path) == 2
    assert "there are 1" in capsys.readouterr().err
