"""A broker for the tests of others: its time can be moved, and its disks and its object store can fail.

with BrokerUnderTest() as broker:
    broker.clock.advance(hours=1)
    broker.faults.disk_full()
"""

from __future__ import annotations

from collections.abc import Mapping

from stratalog.broker.server import SETTINGS_FOR_TESTS, Broker
from stratalog.testing.failing_filesystem import FailingFileSystem
from stratalog.testing.faults import BrokerFaults
from stratalog.testing.movable_clock import MovableClock

#: Clients do not notice that time was moved.
_CONNECTIONS_STAY = {"connections.max.idle.ms": -1}


class BrokerUnderTest(Broker):
    """A broker as `Broker.testing` starts it, with a `clock` to advance and `faults` to switch on.

    What follows the clock: retention, copies to the remote tier and deletions there, compaction, sessions and offsets
    of groups, transactions, producers, quotas, and the broker's timestamps. Clients have their own time.
    """

    def __init__(self, config: Mapping[str, object] | None = None, *, data_dir: str | None = None) -> None:
        fs = FailingFileSystem()
        self.clock = MovableClock()
        self.faults = BrokerFaults(
            fs, lambda: [each.path for each in self.services.logs.dirs.live], lambda: self.services.logs.remote
        )
        super().__init__(
            data_dir,
            config={**SETTINGS_FOR_TESTS, **_CONNECTIONS_STAY, **(config or {})},
            clock=self.clock,
            fs=fs,
            loop_factory=self.clock.new_event_loop,
        )

    def close(self) -> None:
        """End the broker cleanly: nothing fails any more. Harmless when called again."""
        self.faults.heal()
        super().close()
