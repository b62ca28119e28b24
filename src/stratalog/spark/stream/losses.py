"""Records that a stream should have read and cannot: an error, or a warning and a count."""

from __future__ import annotations

import logging
from typing import Final

from stratalog.spark.options import DataLossError, TopicPartition

logger = logging.getLogger("stratalog.spark")

#: Messages that are remembered, so that what is still lost at the next trigger is not logged again.
_LOGGED_MAX: Final = 10_000


class Losses:
    """Takes losses; raises DataLossError if `fail`, else warns once of each.

    `offsets` counts what the plans of all batches lack. Tasks report damage themselves.
    """

    def __init__(self, fail: bool) -> None:
        self._fail = fail
        self._logged: dict[str, None] = {}
        self._gone_to: dict[TopicPartition, int] = {}
        self.offsets = 0

    def __call__(self, message: str, offsets: int = 0, size: int = 0) -> None:  # noqa: ARG002
        """Take a loss that planning reports; see `OnDataLoss`."""
        self._raise_if_asked(message)
        if message not in self._logged:
            self._logged[message] = None
            if len(self._logged) > _LOGGED_MAX:
                del self._logged[next(iter(self._logged))]
            self.offsets += offsets
            self._warn(message)

    def offsets_gone(self, key: TopicPartition, start: int, end: int, message: str) -> None:
        """Report that the offsets [start, end) of a partition are gone; those reported before are left out."""
        self._raise_if_asked(message)
        start = max(start, self._gone_to.get(key, 0))
        if start < end:
            self._gone_to[key] = end
            self.offsets += end - start
            self._warn(message)

    def _raise_if_asked(self, message: str) -> None:
        if self._fail:
            raise DataLossError(f"{message}; set failOnDataLoss=false to continue without them")

    def _warn(self, message: str) -> None:
        logger.warning(
            "%s; the stream continues without, as failOnDataLoss=false says (%d offsets lost since it was started)",
            message,
            self.offsets,
        )
