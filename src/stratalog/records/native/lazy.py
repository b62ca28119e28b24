"""Globals of compiled code, created when the first function that refers to them is compiled.

A module of loops is imported to call them. They are machine code already, as a rule (`kept_loops`), so that nothing of
numba is needed; the helpers, pointers and tables that they were compiled from are not made then.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

#: Held while anything is made or compiled.
COMPILING = threading.RLock()


class Lazy:
    """A function that is made when it is first needed. A call makes it once, and calls it."""

    __slots__ = ("_is_made", "_make", "_value")

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._is_made = False
        self._value: Any = None

    @property
    def value(self) -> Any:
        with COMPILING:
            if not self._is_made:
                self._value = self._make()
                self._is_made = True
            return self._value

    def __call__(self, *arguments: Any) -> Any:
        return self.value(*arguments)


def make_globals(function: Callable[..., Any]) -> None:
    """Put what was made in the place of each Lazy that the function refers to: numba sees globals as they are then."""
    space: dict[str, Any] = function.__globals__
    for name in _names(function.__code__):
        value = space.get(name)
        if isinstance(value, Lazy):
            space[name] = value.value


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
