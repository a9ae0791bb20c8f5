"""A limit on the time that a piece of the marker's own work may take, in whatever thread it runs."""

import contextlib
import ctypes
import threading
import time
from collections.abc import Callable, Iterator

EVERY = 0.2  # seconds from one look at the clock to the next


class TookTooLong(BaseException):
    """No ``Exception``, so that nothing on the way takes it for a mistake of the work's own."""


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """End what this thread does inside with ``TookTooLong`` after so many seconds of the CPU.

    It is raised between two steps of Python; a single call of a library is waited for. Where the system does not tell
    a thread's own time, ten times as many seconds of the clock count.
    """
    thread, done, lock, ended = threading.get_ident(), threading.Event(), threading.Lock(), []
    clock, most = clock_of(thread), seconds
    if clock is time.monotonic:
        most = 10 * seconds
    begun = clock()

    def watch() -> None:
        while not done.wait(EVERY):
            if clock() - begun > most:
                with lock:
                    if not done.is_set():
                        ended.append(thread)
                        raise_in(thread, TookTooLong)
                return

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        with lock:
            done.set()
        for _ in range(100 * len(ended)):  # steps of Python, in which it is raised at the latest
            pass


def clock_of(thread: int) -> Callable[[], float]:
    """Seconds of the CPU that a thread has used, or else of the clock."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return time.monotonic
    number = time.pthread_getcpuclockid(thread)
    return lambda: time.clock_gettime(number)


def raise_in(thread: int, kind: type[BaseException]) -> None:
    """Once set, it has to be raised: taking it back leaves Python 3.11 looking for it for ever."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(kind))
