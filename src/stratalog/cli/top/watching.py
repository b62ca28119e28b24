"""A thread that looks at a broker repeatedly, so that keys work while the broker is slow."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from stratalog.cli.top.snapshot import TopOrder, TopSnapshot, TopSource
from stratalog.cli.web_address import NotOursError
from stratalog.errors import StratalogError
from stratalog.util import SYSTEM_CLOCK, Clock
from stratalog.wire.client import UnreachableError


@dataclass(frozen=True, slots=True)
class TopState:
    """The last snapshot, and why there is no newer one. `looks` counts attempts, `fatal` ends the watch."""

    snapshot: TopSnapshot | None = None
    problem: str | None = None
    problem_since_ms: int = 0
    looks: int = 0
    fatal: NotOursError | None = None

    def after(self, seen: TopSnapshot | StratalogError, now_ms: int) -> TopState:
        """Return the state after one more look."""
        if isinstance(seen, TopSnapshot):
            return TopState(seen, looks=self.looks + 1)
        since_ms = self.problem_since_ms if self.problem is not None else now_ms
        # A broker that was ours and responds differently now is starting, or another has taken its port.
        fatal = seen if isinstance(seen, NotOursError) and self.snapshot is None else None
        return TopState(self.snapshot, str(seen), since_ms, self.looks + 1, fatal)


class BrokerWatch:
    """Looks every `interval_s` from `start` to `close`, and calls `on_look` after each look. It closes the source."""

    def __init__(
        self,
        source: TopSource,
        order: TopOrder,
        interval_s: float,
        on_look: Callable[[], None],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._source, self._interval_s, self._on_look, self._clock = source, interval_s, on_look, clock
        self._order = order
        self._changed = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stratalog-top", daemon=True)
        self.state = TopState()
        #: No looks while this is set.
        self.is_paused = False

    @property
    def order(self) -> TopOrder:
        return self._order

    @order.setter
    def order(self, order: TopOrder) -> None:
        self._order = order
        self._changed.set()

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop looking. Does not wait for a look that is in progress."""
        self._ended.set()
        self._changed.set()

    def _run(self) -> None:
        try:
            self._look_again_and_again()
        finally:
            self._source.close()

    def _look_again_and_again(self) -> None:
        while not self._ended.is_set():
            if not self.is_paused:
                seen = self.look()
                if self._ended.is_set():
                    return
                self.state = self.state.after(seen, self._clock.now_ms())
                self._on_look()
            self._changed.wait(self._interval_s)
            self._changed.clear()

    def look(self) -> TopSnapshot | StratalogError:
        """Return the snapshot of one look, or the error."""
        try:
            return self._source.look(self._order)
        except (UnreachableError, NotOursError) as error:
            return error
