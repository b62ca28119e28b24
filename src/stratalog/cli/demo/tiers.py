"""The location of each partition's segments: on the local disk and in the object store."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stratalog.cli.demo.traffic import LOCAL_RETENTION_BYTES, PARTITIONS, TOPIC
from stratalog.errors import StratalogError
from stratalog.inspect import list_remote_segments
from stratalog.log import SegmentFiles, list_segments
from stratalog.remote.storage import ObjectStore

_WAIT_SECONDS_MAX = 90


@dataclass(frozen=True, slots=True)
class PartitionTiers:
    """One partition: count, bytes, start and end of each tier."""

    partition: int
    remote_segments: int
    remote_bytes: int
    remote_end_offset: int
    local_segments: int
    local_bytes: int
    local_start_offset: int
    active_base_offset: int
    oldest_local_bytes: int

    @property
    def settled(self) -> bool:
        """Return whether all sealed segments are remote and local retention has nothing left to delete."""
        all_remote = self.remote_end_offset + 1 >= self.active_base_offset
        kept = self.local_bytes - self.oldest_local_bytes < LOCAL_RETENTION_BYTES
        return all_remote and (kept or self.local_segments == 1)


def survey(data_dir: Path, remote_url: str) -> list[PartitionTiers]:
    """Read the current state of directory and bucket. A segment in both tiers counts in both."""
    store = ObjectStore.from_url(remote_url)
    remote: dict[int, list[tuple[int, int]]] = {number: [] for number in range(PARTITIONS)}
    for manifest in list_remote_segments(store, topics=[TOPIC]):
        remote[manifest.partition].append((manifest.end_offset, manifest.segment_size_in_bytes))
    found = []
    for number in range(PARTITIONS):
        local: list[SegmentFiles] = list_segments(data_dir / f"{TOPIC}-{number}")
        there = remote[number]
        found.append(
            PartitionTiers(
                partition=number,
                remote_segments=len(there),
                remote_bytes=sum(size for _, size in there),
                remote_end_offset=max((end for end, _ in there), default=-1),
                local_segments=len(local),
                local_bytes=sum(segment.size for segment in local),
                local_start_offset=local[0].base_offset,
                active_base_offset=local[-1].base_offset,
                oldest_local_bytes=local[0].size,
            )
        )
    return found


def wait_until_settled(data_dir: Path, remote_url: str, report: Callable[[int], object]) -> list[PartitionTiers]:
    """Wait until every partition has settled, and pass their number to `report`. Raises StratalogError after 90 s."""
    deadline = time.monotonic() + _WAIT_SECONDS_MAX
    while True:
        tiers = survey(data_dir, remote_url)
        waiting = [tier.partition for tier in tiers if not tier.settled]
        report(len(tiers) - len(waiting))
        if not waiting:
            return tiers
        if time.monotonic() > deadline:
            raise StratalogError(
                f"partitions {', '.join(map(str, waiting))} are not in the object store after "
                f"{_WAIT_SECONDS_MAX} s; see the broker's log"
            )
        time.sleep(0.25)
