"""Report records that a stream cannot read: raise an error, or log a warning and count them."""

from __future__ import annotations

import logging
from typing import Final

from stratalog.spark.options import DataLossError, TopicPartition

logger = logging.getLogger("stratalog.spark")

#: Number of messages to remember, so that the next trigger does not log the same loss again.
_LOGGED_MAX: Final = 10_000


class Losses:
    """Raises DataLossError for a loss if `fail`; otherwise logs one warning for each loss.

    `offsets` counts the offsets that the plans of all batches lack. Tasks report damage themselves.
    """

    def __init__(self, fail: bool) -> None:
        self._fail = fail
        self._logged: dict[str, None] = {}
        self._gone_to: dict[TopicPartition, int] = {}
        self.offsets = 0

    def __call__(self, message: str, offsets: int = 0, size: int = 0) -> None:  # noqa: ARG002
        """Handle a loss that planning reports; see `OnDataLoss`."""
        self._raise_if_asked(message)
        if message not in self._logged:
            self._logged[message] = None
            if len(self._logged) > _LOGGED_MAX:
                del self._logged[next(iter(self._logged))]
            self.offsets += offsets
            self._warn(message)

    def offsets_gone(self, key: TopicPartition, start: int, end: int, message: str) -> None:
        """Report that the offsets [start, end) of a partition are lost, without those reported before."""
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
