"""How much work something is, counted and not timed: for tests that hold how a cost grows.

few = lines_of_work(lambda: create("a"))
fill_the_broker()
assert lines_of_work(lambda: create("b")) < 1.5 * few
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def lines_of_work(function: Callable[[], object]) -> int:
    """How many lines of Python a call executes on this thread; a line in a loop or comprehension counts each time."""
    count = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        if event == "line":
            count += 1
        return trace

    before = sys.gettrace()
    was_collecting = gc.isenabled()
    gc.disable()  # finalizers of what is collected would be counted
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
        if was_collecting:
            gc.enable()
    return count
