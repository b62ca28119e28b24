"""Controllers of a quorum without sockets: they answer Fetch and FetchSnapshot as KRaft's leader and voters do."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from stratalog.records import Record, build_batch, iter_batches
from stratalog.wire import ApiKey, make_message, message_module
from stratalog.wire.client import ConnectionOptions, UnreachableError
from stratalog.wire.metadata_records import MetadataRecord, encode_metadata_record
from stratalog.wire.metadata_records.definitions import RECORDS

VERSION = {ApiKey.FETCH: 18, ApiKey.FETCH_SNAPSHOT: 1}
FENCED_LEADER_EPOCH, NOT_LEADER, INCONSISTENT_CLUSTER_ID = 74, 6, 104


def batch_of(records: Sequence[MetadataRecord], *, offset: int, epoch: int) -> bytes:
    values = [encode_metadata_record(each, _newest(each)) for each in records]
    made = [Record(offset + n, 1_000, None, value) for n, value in enumerate(values)]
    return build_batch(made, base_offset=offset, partition_leader_epoch=epoch)


def control_batch(control_type: int, message: Any, *, offset: int, epoch: int) -> bytes:
    from stratalog.wire import write_message

    key = b"\0\0" + control_type.to_bytes(2, "big")
    record = Record(offset, 1_000, key, write_message(message))
    return build_batch([record], base_offset=offset, partition_leader_epoch=epoch, is_control=True)


def _newest(record: MetadataRecord) -> int:
    return next(version for cls, version in RECORDS.values() if isinstance(record, cls))


@dataclass
class FakeQuorum:
    """Controllers that share one log; which of them leads, and what is committed, is the test's to say."""

    cluster_id: str = "cluster"
    leader: int = 100
    epoch: int = 1
    addresses: dict[int, tuple[str, int]] = field(default_factory=lambda: {n: ("c", n) for n in (100, 101, 102)})
    dead: set[int] = field(default_factory=set)
    #: Whether the leader has resigned: it refuses, and names itself until another one is elected.
    has_resigned: bool = False
    batches: list[tuple[int, int, bytes]] = field(default_factory=list)  #: base offset, epoch, bytes
    high_watermark: int = 0
    log_start: int = 0
    start_epoch: int = 0
    snapshots: dict[tuple[int, int], bytes] = field(default_factory=dict)
    #: Batches in one answer.
    batches_max: int = 1000
    asked: list[int] = field(default_factory=list)
    #: Held while a request is answered.
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def end(self) -> int:
        return next(iter_batches(self.batches[-1][2])).next_offset if self.batches else self.log_start

    def write(self, *records: MetadataRecord, commit: bool = True) -> None:
        self.batches.append((self.end, self.epoch, batch_of(records, offset=self.end, epoch=self.epoch)))
        if commit:
            self.high_watermark = self.end

    def cut(self, offset: int) -> None:
        """Lose what was not committed, as an election may."""
        self.batches = [each for each in self.batches if each[0] < offset]

    def connect(self, host: str, port: int, options: ConnectionOptions) -> Any:
        if port in self.dead or port not in self.addresses:
            raise UnreachableError(f"cannot reach {port}")
        return _Connection(self, port)

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """Return the newest epoch here that is not above `epoch`, and where it ends."""
        known = [each for each in self.batches if each[1] <= epoch]
        if not known:
            return self.start_epoch, self.log_start
        last = known[-1]
        return last[1], next(iter_batches(last[2])).next_offset


class _Connection:
    def __init__(self, quorum: FakeQuorum, node: int) -> None:
        self._quorum = quorum
        self._node = node
        self.address = f"c:{node}"

    def close(self) -> None:
        pass

    def call(self, key: ApiKey, versions: tuple[int, int], /, **request: Any) -> Any:
        if self._node in self._quorum.dead:
            raise UnreachableError("gone")
        with self._quorum.lock:
            self._quorum.asked.append(self._node)
            return self._fetch(request) if key is ApiKey.FETCH else self._snapshot(request)

    def _make(self, name: str, /, key: ApiKey = ApiKey.FETCH, **values: Any) -> Any:
        return make_message(getattr(message_module(key, VERSION[key], "response"), name), values)

    def _fetch(self, request: dict[str, Any]) -> Any:
        quorum = self._quorum
        if request["cluster_id"] != quorum.cluster_id:
            return self._make("FetchResponse", error_code=INCONSISTENT_CLUSTER_ID, throttle_time=datetime.timedelta())
        asked = request["topics"][0]["partitions"][0]
        values: dict[str, Any] = {"partition_index": 0, "high_watermark": quorum.high_watermark, "records": b""}
        endpoints = []
        values["current_leader"] = self._make("LeaderIdAndEpoch", leader_id=quorum.leader, leader_epoch=quorum.epoch)
        if quorum.leader in quorum.addresses:
            host, port = quorum.addresses[quorum.leader]
            endpoints = [self._make("NodeEndpoint", node_id=quorum.leader, host=host, port=port, rack=None)]
        if asked["current_leader_epoch"] != quorum.epoch or self._node != quorum.leader or quorum.has_resigned:
            behind = asked["current_leader_epoch"] < quorum.epoch
            values["error_code"] = FENCED_LEADER_EPOCH if behind else NOT_LEADER
        else:
            values |= self._data(asked)
        partition = self._make("PartitionData", **values)
        topic = self._make("FetchableTopicResponse", partitions=[partition])
        return self._make("FetchResponse", responses=[topic], node_endpoints=endpoints)

    def _data(self, asked: dict[str, Any]) -> dict[str, Any]:
        quorum, offset = self._quorum, asked["fetch_offset"]
        if offset < quorum.log_start or (offset == 0 and quorum.log_start):
            end_offset, epoch = max(quorum.snapshots)
            return {"snapshot_id": self._make("SnapshotId", end_offset=end_offset, epoch=epoch)}
        epoch, end = quorum.epoch_end(asked["last_fetched_epoch"])
        if (
            offset
            and (epoch != asked["last_fetched_epoch"] or offset > end)
            and (offset, epoch) not in quorum.snapshots
        ):
            return {"diverging_epoch": self._make("EpochEndOffset", epoch=epoch, end_offset=end)}
        found = [each[2] for each in quorum.batches if next(iter_batches(each[2])).last_offset >= offset]
        return {"records": b"".join(found[: quorum.batches_max])}

    def _snapshot(self, request: dict[str, Any]) -> Any:
        key = ApiKey.FETCH_SNAPSHOT
        asked = request["topics"][0]["partitions"][0]
        data = self._quorum.snapshots[asked["snapshot_id"]["end_offset"], asked["snapshot_id"]["epoch"]]
        at = asked["position"]
        identity = self._make("SnapshotId", key, **asked["snapshot_id"])
        part = self._make(
            "PartitionSnapshot",
            key,
            snapshot_id=identity,
            size=len(data),
            position=at,
            unaligned_records=data[at : at + 100],
        )
        topic = self._make("TopicSnapshot", key, name="__cluster_metadata", partitions=[part])
        return self._make("FetchSnapshotResponse", key, topics=[topic])
