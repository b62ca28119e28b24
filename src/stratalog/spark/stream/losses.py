"""Offsets that a stream should have read and cannot: an error, or a warning and a count."""

from __future__ import annotations

import logging
from typing import Final

from stratalog.spark.snapshot import DataLossError

logger = logging.getLogger("stratalog.spark")

#: Messages that are remembered, so that what is still lost at the next trigger is not told again.
_TOLD_MAX: Final = 10_000


class Losses:
    """Told of losses; `offsets` counts those that were told of with a number. Raises DataLossError where `fail`."""

    def __init__(self, fail: bool) -> None:
        self._fail = fail
        self._told: dict[str, None] = {}
        self.offsets = 0

    def __call__(self, message: str, offsets: int = 0) -> None:
        if self._fail:
            raise DataLossError(f"{message}; set failOnDataLoss=false to go on without")
        if message in self._told:
            return
        self._told[message] = None
        if len(self._told) > _TOLD_MAX:
            del self._told[next(iter(self._told))]
        self.offsets += offsets
        logger.warning(
            "%s; the stream goes on without, as failOnDataLoss=false says (%d offsets since it was started)",
            message,
            self.offsets,
        )
