"""Readers at a pace, each on its thread, in a process of its own: what cold and raw readers share."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

#: Reader number -> the sizes of what it reads, one after the other and without end.
Reads = Callable[[int], Iterator[int]]


def read_at_pace(reads: Reads, readers: int, bytes_per_second: float, seconds: float) -> None:
    """Print a line when all have begun, and at the end how many bytes a second they read together.

    A pace of 0 is none.
    """
    until = time.monotonic() + seconds
    sizes = [0] * readers
    started = threading.Barrier(readers + 1)

    def run(number: int) -> None:
        found = reads(number)
        started.wait()
        if bytes_per_second:  # nobody's reads are in step with the others'
            time.sleep(number / readers)
        begun = time.monotonic()
        while time.monotonic() < until:
            sizes[number] += next(found)
            if bytes_per_second:
                time.sleep(max(0.0, begun + sizes[number] / bytes_per_second - time.monotonic()))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(readers)]
    for thread in threads:
        thread.start()
    started.wait()
    print("begun", flush=True)
    for thread in threads:
        thread.join()
    print(sum(sizes) / seconds)
