"""A partition's life with a store and a metadata log that fail at random, and a process that dies at random.

Invariant, after every event: what has left the local tier is whole in the store and finished in the metadata, whatever
has been acknowledged is there, and what a read gives is what was written. In the end, when the store works again:
everything is copied and served, retention has its way, and after `tier repair` there is nothing in the bucket that
no one knows of.

`STRATALOG_SEED` begins with that seed; a failing test names its own.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from stratalog.errors import RemoteStorageError
from stratalog.inspect.facts import PartitionMetadata
from stratalog.jobs.audit.bucket import AuditOptions, BucketAudit, audit_bucket
from stratalog.jobs.audit.findings import plan_repair
from stratalog.jobs.audit.repair import carry_out
from stratalog.records.batch import iter_batches
from stratalog.remote.api.interfaces import RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate
from stratalog.remote.api.segment_state import RemoteLogSegmentState
from stratalog.remote.metadata.serde import decode
from stratalog.testing.faulty_store import SimulatedCrash, StoreFault
from tests.remote.audit_world import KnownDirs, later
from tests.remote.world import BATCH_MS, World

SEED = int(os.environ.get("STRATALOG_SEED", "1"))

#: Faults that let no caller wait come often; the others cost a deadline each.
QUICK = [
    StoreFault.UNAVAILABLE,
    StoreFault.THROTTLED,
    StoreFault.DENIED,
    StoreFault.LOST_ANSWER,
    StoreFault.SHORT,
    StoreFault.WRONG,
]
SLOW = [StoreFault.HANG, StoreFault.LATE]
DEADLY = [StoreFault.CRASH, StoreFault.CRASH_AFTER]

EVENTS = 14
DEADLINE_MS = 60


class Life:
    """One partition, and what it has been through."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.chance = random.Random(seed)
        self.events: list[str] = []

    def live(self) -> None:
        world = self.world
        for _ in range(EVENTS):
            event = self.chance.choice(
                [
                    self.append,
                    self.tier,
                    self.tier,
                    self.tier,
                    self.drop,
                    self.read,
                    self.shorten,
                    self.begin_later,
                    self.restart,
                ]
            )
            self.events.append(event.__name__)
            if self.chance.random() < 0.8:
                world.faults.by(self._fault)
            try:
                event()
            except RemoteStorageError:
                pass  # it is tried again
            except SimulatedCrash:
                self.events.append("crash")
                world.restart(crashed=True)
            self.check()
            if self.chance.random() < 0.3:
                world.faults.heal()
        self.settle()

    def _fault(self, what: str) -> StoreFault | None:
        """Rarely enough that several steps in a row may go well."""
        die = self.chance.random()
        if die < 0.06:
            return self.chance.choice(QUICK)
        if die < 0.075:
            return self.chance.choice(DEADLY)
        if die < 0.08 and not what.startswith("append metadata"):
            return self.chance.choice(SLOW)
        return None

    # --- events -----------------------------------------------------------------------------------------------------

    def append(self) -> None:
        self.world.append(self.chance.randrange(1, 15))

    def tier(self) -> None:
        self.world.tier()

    def drop(self) -> None:
        self.world.drop_local()

    def restart(self) -> None:
        self.world.restart()

    def read(self) -> None:
        """From anywhere in the remote tier, as a consumer: what comes is what was written."""
        log = self.world.log
        if log.log_start_offset < log.local_log_start_offset:
            offset = self.chance.randrange(log.log_start_offset, log.local_log_start_offset)
            records = self.world.manager.read(self.world.partition, offset, 2_000).records
            for batch in iter_batches(records):
                assert bytes(batch.as_memoryview()) == self.world.expected[batch.base_offset]

    def shorten(self) -> None:
        """Retention by time that lets some of the segments go."""
        self.world.configure(retention_ms=self.chance.randrange(20, 60) * BATCH_MS)
        try:
            self.world.tier()
        finally:
            self.world.configure(retention_ms=-1)

    def begin_later(self) -> None:
        """DeleteRecords, and the checkpoint of it."""
        log = self.world.log
        offset = self.chance.randrange(log.log_start_offset, log.log_end_offset + 1)
        log.increment_log_start_offset(min(offset, log.log_start_offset + 100), "client delete records")
        self.world.checkpoint()

    # --- what is so -------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Every offset that is not here any more is in a finished segment all of whose objects are in the store."""
        log, world = self.world.log, self.world
        wanted = log.log_start_offset
        for segment in sorted(self._known().values(), key=lambda found: found.start_offset):
            if segment.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED and segment.start_offset <= wanted:
                wanted = max(wanted, segment.end_offset + 1)
        assert wanted >= log.local_log_start_offset, f"offsets from {wanted} on are nowhere"
        acknowledged = max(world.expected, default=-1)
        assert log.log_end_offset > acknowledged

    def _known(self) -> dict[object, RemoteLogSegmentMetadata]:
        """Segments as the durable events have them, those whose deletion has finished left out."""
        found: dict[object, RemoteLogSegmentMetadata] = {}
        for values in self.world.metadata_log.values:
            for value in values:
                event = decode(value)
                if isinstance(event, RemoteLogSegmentMetadata):
                    found[event.segment_id] = event
                elif isinstance(event, RemoteLogSegmentMetadataUpdate) and event.segment_id in found:
                    found[event.segment_id] = found[event.segment_id].with_update(event)
        return {
            key: segment
            for key, segment in found.items()
            if segment.state is not RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
        }

    def settle(self) -> None:
        """The store works again: all that was begun comes to its end within two turns."""
        world = self.world
        world.faults.heal()
        world.faults.wait_for_late()
        world.deadline_ms = 60_000
        world.restart()
        world.tier()
        world.drop_local()
        world.tier()
        assert world.manager.copy_lag(world.partition).segments == 0
        assert world.manager.delete_lag(world.partition).segments == 0
        world.expect_everything()
        first = self._audit()
        for planned in plan_repair(first.findings, later(), 0).mends:
            carry_out(world.inner, planned.mend)
        assert self._audit().findings == []
        assert world.orphans() == []
        world.expect_everything()

    def _audit(self) -> BucketAudit:
        segments = self.world.rlmm.list_remote_log_segments(self.world.partition)
        mentioned = {
            event.segment_id.id
            for values in self.world.metadata_log.values
            for event in map(decode, values)
            if isinstance(event, RemoteLogSegmentMetadata)
        }
        known = {segment.segment_id.id: segment for segment in segments}
        metadata = PartitionMetadata(known, frozenset(mentioned - known.keys()))
        dirs = KnownDirs({self.world.partition: metadata})
        return audit_bucket(self.world.inner, AuditOptions(later(), 0, deep=True), dirs)


def live(path: Path, seed: int) -> None:
    with World(path, deadline_ms=DEADLINE_MS) as world:
        life = Life(world, seed)
        try:
            life.live()
        except BaseException as error:
            error.add_note(f"STRATALOG_SEED={seed}: {', '.join(life.events)}")
            raise


@pytest.mark.parametrize("lives", [200, pytest.param(6_000, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])])
def test_no_life_loses_or_leaks_anything(tmp_path: Path, lives: int) -> None:
    for seed in range(SEED, SEED + lives):
        live(tmp_path / str(seed), seed)
