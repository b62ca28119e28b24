"""Log why connections are closed, at a limited rate. Lines above the rate are counted.

    Closing the connection from 192.0.2.7: 12 bytes cannot be a request; 4,711 others since the last such line

The count is logged with the next line, or within seconds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

logger = logging.getLogger(__name__)

#: Lines allowed at once after a pause, and per second: one takes some 100 us of the loop's time.
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
        """Log why the connection of a client is closed, or count it."""
        if not self._may_write():
            self._unsaid += 1
            return
        others = self._taken()
        behind = f"; {others:,} others since the last such line" if others else ""
        logger.warning("Closing the connection from %s: %s%s", client_host, why, behind)

    def say_the_rest(self) -> None:
        """Log the number of lines that were only counted, if there are any and the rate allows it."""
        if self._unsaid and self._may_write():
            logger.warning(
                "%s more connections were closed for what came by them, since the last such line", f"{self._taken():,}"
            )

    def _taken(self) -> int:
        """Return the number of lines that were only counted, and reset it: it is logged now."""
        self._allowed -= 1
        others, self._unsaid = self._unsaid, 0
        return others

    def _may_write(self) -> bool:
        now = self._clock()
        self._allowed = min(_LINES_AT_ONCE, self._allowed + (now - self._at) * _LINES_A_SECOND)
        self._at = now
        return self._allowed >= 1
