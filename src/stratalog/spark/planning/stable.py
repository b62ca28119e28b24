"""Read files that other processes replace and delete at the same time, with retries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from stratalog.inspect import PlaceMissingError
from stratalog.spark.options import DataLossError

_TRIES: Final = 10

T = TypeVar("T")


def again_while_changing(look: Callable[[], T]) -> T:
    """Call `look` until no file disappears during it, and return its result. Raises DataLossError after some tries."""
    for _ in range(_TRIES):
        try:
            return look()
        except (PlaceMissingError, FileNotFoundError) as error:
            last = error
    raise DataLossError(f"files were missing or replaced at each of {_TRIES} looks: {last}") from last
