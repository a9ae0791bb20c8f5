"""A limit on the marker's own work: in any thread, by its own time, and nothing is left of it afterwards."""

import contextlib
import sys
import threading
import time

import pytest

from coursekit.grading import limited as module
from coursekit.grading.limited import TookTooLong, limited


def work(seconds):
    """Use so much of the CPU; what stands in its way is taken for a mistake of its own."""
    begun = time.thread_time()
    while time.thread_time() - begun < seconds:
        with contextlib.suppress(Exception):
            sum(range(1000))


def test_what_takes_too_long_is_ended():
    begun = time.thread_time()
    with pytest.raises(TookTooLong), limited(0.3):
        work(60)
    assert time.thread_time() - begun < 10


def test_what_is_done_in_time_is_left_alone():
    with limited(30):
        work(0.3)
    time.sleep(3 * module.EVERY)


def test_waiting_is_no_work():
    with limited(0.2):
        time.sleep(4 * module.EVERY)


def test_a_thread_is_ended_and_others_go_on():
    ended, done = [], []

    def slow():
        try:
            with limited(0.3):
                work(60)
        except TookTooLong:
            ended.append(threading.current_thread())

    def quick():
        work(0.6)
        done.append(threading.current_thread())

    threads = [threading.Thread(target=target) for target in (slow, quick)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (ended, done) == (threads[:1], threads[1:])


def test_nothing_is_raised_after_the_end(monkeypatch):
    """Catches a watcher that looks just before the end and raises just after it."""
    monkeypatch.setattr(module, "EVERY", 1e-3)
    ended = 0
    for _ in range(100):
        try:
            with limited(0.005):
                work(0.01)
        except TookTooLong:
            ended += 1
        work(0.001)
    assert ended  # else nothing was tried


def test_a_profile_can_be_taken_afterwards():
    """Catches an exception that is taken back: Python 3.11 then never ends its search while somebody looks at calls."""
    called = []
    for seconds in (30, 0.01):
        with contextlib.suppress(TookTooLong), limited(seconds):
            work(0.5)
        sys.setprofile(lambda frame, event, _: called.append(frame.f_code.co_name))
        try:
            work(0.001)
        finally:
            sys.setprofile(None)
    assert called.count("work") >= 2


def test_where_the_system_tells_no_time_of_a_thread_the_clock_counts(monkeypatch):
    monkeypatch.delattr(time, "pthread_getcpuclockid", raising=False)
    with pytest.raises(TookTooLong), limited(0.05):
        work(60)
