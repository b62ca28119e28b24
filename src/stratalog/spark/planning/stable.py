"""Looking at files that others replace and delete meanwhile: what was seen half is looked at again as a whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from stratalog.spark.model import PlaceMissingError
from stratalog.spark.options import DataLossError

_TRIES: Final = 10

T = TypeVar("T")


def again_while_changing(look: Callable[[], T]) -> T:
    """Return what `look` gives as soon as nothing that it has found goes away under it.

    DataLossError when that does not end.
    """
    for _ in range(_TRIES):
        try:
            return look()
        except (PlaceMissingError, FileNotFoundError) as error:
            last = error
    raise DataLossError(f"files were missing or replaced at each of {_TRIES} looks: {last}") from last
