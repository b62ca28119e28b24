"""Lines of the log about connections that are closed for what came by them. A flood of them is counted, not written.

Closing the connection from 192.0.2.7: 12 bytes cannot be a request; 4,711 others since the last such line

How many were not written is said with the next line, or within seconds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

logger = logging.getLogger(__name__)

#: Lines that may be written at once after a pause, and a second: one takes some 100 us of the loop's time.
_LINES_AT_ONCE: Final = 100
_LINES_A_SECOND: Final = 5.0


class ClosingLog:
    """Belongs to the loop's thread. `clock` counts seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._allowed: float = _LINES_AT_ONCE
        self._at = clock()
        self._unsaid = 0

    def warn(self, client_host: str, why: object) -> None:
        """Say why the connection of a client is closed, or count it."""
        if not self._may_write():
            self._unsaid += 1
            return
        others = self._taken()
        behind = f"; {others:,} others since the last such line" if others else ""
        logger.warning("Closing the connection from %s: %s%s", client_host, why, behind)

    def say_the_rest(self) -> None:
        """Write how many were only counted, if there are any and a line may be written."""
        if self._unsaid and self._may_write():
            logger.warning(
                "%s more connections were closed for what came by them, since the last such line", f"{self._taken():,}"
            )

    def _taken(self) -> int:
        """Return how many were only counted, for the line that is written now."""
        self._allowed -= 1
        others, self._unsaid = self._unsaid, 0
        return others

    def _may_write(self) -> bool:
        now = self._clock()
        self._allowed = min(_LINES_AT_ONCE, self._allowed + (now - self._at) * _LINES_A_SECOND)
        self._at = now
        return self._allowed >= 1
