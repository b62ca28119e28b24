"""Follow the metadata log as an observer: fetch it, store it, and apply committed batches.

The thread finds the leader by fetching: a response with another epoch names it (see `Quorum`). Fetched batches are
written to disk at once, and applied to the image when the leader reports them as committed. Source: KIP-595, KIP-630,
`KafkaRaftClient`.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

from stratalog.broker.cluster.controller_channel import connect_to_node
from stratalog.broker.cluster.loader import ImageLoader
from stratalog.broker.cluster.metadata_batches import MetadataBatch, decode_batches
from stratalog.broker.cluster.metadata_log import METADATA_TOPIC, METADATA_TOPIC_ID, ClusterMetadataLog, SnapshotId
from stratalog.broker.cluster.quorum import Quorum, voter_addresses
from stratalog.broker.cluster.snapshot import encode_snapshot
from stratalog.errors import CorruptRecordError, StratalogError
from stratalog.util import SYSTEM_CLOCK, Clock, join_host_port
from stratalog.wire import ApiKey
from stratalog.wire.client import Client, ConnectionOptions, UnreachableError

logger = logging.getLogger(__name__)

_FETCH_VERSIONS: Final = (16, 18)
_FETCH_SNAPSHOT_VERSIONS: Final = (0, 1)
_FETCH_BYTES: Final = 8 << 20
_SNAPSHOT_BYTES: Final = 1 << 20
_WAIT_MS: Final = 500

_NONE, _NOT_LEADER, _FENCED_EPOCH, _UNKNOWN_EPOCH, _WRONG_CLUSTER = 0, 6, 74, 75, 104
_NOT_AUTHORIZED: Final = 31
_LOOK_ELSEWHERE: Final = {_NOT_LEADER, _FENCED_EPOCH, _UNKNOWN_EPOCH, 5, 8}


class ObserverFault(StratalogError):
    """The metadata cannot be followed any further, from any controller: the broker has to stop."""


class _Elsewhere(Exception):
    """Fetch from another controller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObserverSettings:
    """The observer's identity and connection."""

    node_id: int
    cluster_id: str
    directory_id: UUID
    connection: ConnectionOptions
    #: Time without a response after which another controller is tried.
    fetch_timeout_s: float = 2.0
    retry_s: float = 0.1
    controller_listener: str | None = None
    #: Bytes of the log applied since the last snapshot after which another is written.
    snapshot_bytes: int = 20 << 20


class Observer:
    """Runs a thread from `start` to `close`. Other threads may read `loader`."""

    def __init__(
        self,
        settings: ObserverSettings,
        log: ClusterMetadataLog,
        quorum: Quorum,
        loader: ImageLoader,
        *,
        clock: Clock = SYSTEM_CLOCK,
        connect: Callable[[str, int, ConnectionOptions], Client] = connect_to_node,
    ) -> None:
        self._settings = settings
        self._connect = connect
        self._clock = clock
        self._bytes_since_snapshot = 0
        self._log = log
        self._loader = loader
        self.quorum = quorum
        self.high_watermark = -1
        #: Voters and kraft.version of a dynamic quorum, which stores them in the log.
        self.voters: Any = None
        self.kraft_version = 0
        #: Fetched batches that may not be committed yet.
        self._uncommitted: deque[MetadataBatch] = deque()
        self._stop = threading.Event()
        self._failure: Exception | None = None
        #: Why the last fetch failed; None if it did not.
        self.trouble: Exception | None = None
        self._listeners: list[Callable[[], object]] = []
        self._client: Client | None = None
        self._thread = threading.Thread(target=self._run, name="metadata-observer", daemon=True)

    @property
    def failure(self) -> Exception | None:
        """The error that ended the observer, if any."""
        return self._failure

    def start(self) -> None:
        """Load the log on disk, then follow it. Raises CorruptRecordError if it cannot be read."""
        self._load_from_disk()
        self._thread.start()

    def close(self, *, clean: bool = True) -> None:
        self._stop.set()
        client = self._client
        if client is not None:
            with suppress(OSError):
                client.close()
        if self._thread.is_alive():
            self._thread.join()
        self._log.close(clean=clean)

    # --- what is on disk --------------------------------------------------------------------------------------------

    def _load_from_disk(self) -> None:
        begin = 0
        newest = self._log.newest_snapshot()
        if newest is not None:
            self._apply_snapshot(newest, self._log.read_snapshot(newest))
            begin = newest.end_offset
        for batch in self._log.batches_from(begin):
            self._take(batch)
        self.quorum.epoch = max(self._log.quorum_epoch(), self._log.last_epoch)

    # --- the thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._follow(self.quorum.address())
            except _Elsewhere:
                pass
            except (UnreachableError, OSError) as error:
                if not self._stop.is_set():
                    logger.info("Metadata log: %s", error)
                    self.trouble = error
                    self.quorum.lost()
                    self._stop.wait(self._settings.retry_s)
            except Exception as error:
                if not self._stop.is_set():
                    unexpected = None if isinstance(error, StratalogError) else error
                    logger.error("The metadata log cannot be followed any further: %s", error, exc_info=unexpected)
                    self._failure = error
                    return

    def _follow(self, address: tuple[str, int]) -> None:
        """Fetch from one controller until another has to be tried."""
        seconds = self._settings.fetch_timeout_s
        options = replace(self._settings.connection, connect_timeout_s=seconds, request_timeout_s=seconds)
        client = self._connect(*address, options)
        self._client = client
        try:
            while not self._stop.is_set():
                self._fetch(client)
        finally:
            self._client = None
            client.close()

    def _fetch(self, client: Client) -> None:
        settings = self._settings
        partition: dict[str, Any] = {
            "partition": 0,
            "current_leader_epoch": self.quorum.epoch,
            "fetch_offset": self._log.end_offset,
            "last_fetched_epoch": self._log.last_epoch,
            "log_start_offset": -1,
            "replica_directory_id": settings.directory_id,
            "high_watermark": self.high_watermark,
        }
        answer = client.call(
            ApiKey.FETCH,
            _FETCH_VERSIONS,
            cluster_id=settings.cluster_id,
            replica_state={"replica_id": settings.node_id, "replica_epoch": -1},
            max_wait=_WAIT_MS,
            min_bytes=0,
            max_bytes=_FETCH_BYTES,
            session_epoch=-1,
            topics=[{"topic_id": METADATA_TOPIC_ID, "partitions": [partition]}],
        )
        self._refuse_cluster(int(answer.error_code))
        if int(answer.error_code) == _NOT_AUTHORIZED:
            raise UnreachableError(
                f"the controller at {client.address} does not let this broker's principal follow the metadata:"
                " CLUSTER_AUTHORIZATION_FAILED; put it among super.users of the controllers and brokers, or allow it"
                " CLUSTER_ACTION on the cluster"
            )
        if int(answer.error_code) != _NONE or not answer.responses:
            raise UnreachableError(f"the controller at {client.address} returned {answer.error_code.name.upper()}")
        self._take_answer(client, answer, answer.responses[0].partitions[0])
        self.trouble = None

    def _take_answer(self, client: Client, answer: Any, partition: Any) -> None:
        self._learn(client, answer, partition)
        code = int(partition.error_code)
        if code in _LOOK_ELSEWHERE:
            leader = self.quorum.leader
            if leader is None or join_host_port(*leader) == client.address:  # a leader that resigns names itself
                self.quorum.lost()
                self._stop.wait(self._settings.retry_s)
            raise _Elsewhere
        if code != _NONE:
            raise UnreachableError(f"the controller at {client.address} returned {partition.error_code.name.upper()}")
        if partition.diverging_epoch.epoch >= 0:
            self._truncate(int(partition.diverging_epoch.epoch), int(partition.diverging_epoch.end_offset))
        elif partition.snapshot_id.epoch >= 0:
            self._fetch_snapshot(
                client, SnapshotId(int(partition.snapshot_id.end_offset), int(partition.snapshot_id.epoch))
            )
        else:
            self._append(bytes(partition.records or b""))
            self._commit(int(partition.high_watermark))

    def _learn(self, client: Client, answer: Any, partition: Any) -> None:
        """Update the leader from a response. Raises _Elsewhere if it is another controller."""
        named = {int(node.node_id): (node.host, int(node.port)) for node in answer.node_endpoints}
        self.quorum.know(named)
        leader = partition.current_leader
        if not self.quorum.learn(int(leader.leader_id), int(leader.leader_epoch)):
            return
        self._log.write_quorum_state(self.quorum.leader_id, self.quorum.epoch)
        address = self.quorum.leader
        where = "not known" if address is None else join_host_port(*address)
        logger.info("The controller in epoch %d is %d (%s)", self.quorum.epoch, self.quorum.leader_id, where)
        if address is not None and join_host_port(*address) != client.address:
            raise _Elsewhere

    def _refuse_cluster(self, code: int) -> None:
        if code == _WRONG_CLUSTER:
            raise ObserverFault(
                f"the controllers are of another cluster than {self._settings.cluster_id}, to which this directory"
                " belongs; set controller.quorum.bootstrap.servers to its own controllers"
            )

    # --- what is fetched --------------------------------------------------------------------------------------------

    def _append(self, records: bytes) -> None:
        if not records:
            return
        expected = self._log.end_offset
        batches = list(decode_batches(records))
        if not batches:
            raise CorruptRecordError("the controller sent an incomplete batch")
        if batches[0].base_offset != expected:
            raise CorruptRecordError(f"metadata log: a batch at offset {batches[0].base_offset}, expected {expected}")
        self._log.append(records, leader_epoch=self.quorum.epoch)
        self._bytes_since_snapshot += len(records)
        for batch in batches:
            if batch.last_offset < self._log.end_offset:
                self._take(batch)

    def _take(self, batch: MetadataBatch) -> None:
        """Keep a batch until it is committed. Voters apply as soon as they are in the log, committed or not."""
        self._take_control(batch.control)
        self._uncommitted.append(batch)

    def _commit(self, high_watermark: int) -> None:
        """Apply the batches below the high watermark."""
        if high_watermark < 0:
            return
        self.high_watermark = max(self.high_watermark, high_watermark)
        while self._uncommitted and self._uncommitted[0].last_offset < self.high_watermark:
            self._loader.load(self._uncommitted.popleft())
        if self._loader.last_applied >= high_watermark - 1:
            self._loader.caught_up()
            self._keep_short()
        self._wake()

    def _keep_short(self) -> None:
        """Write a snapshot when the log has grown long, and start the log there."""
        image = self._loader.image
        if self._bytes_since_snapshot < self._settings.snapshot_bytes or image.offset != self._loader.last_applied:
            return  # a transaction is open: the image is before it
        snapshot = SnapshotId(image.offset + 1, image.epoch)
        now_ms = self._clock.now_ms()
        data = encode_snapshot(image, kraft_version=self.kraft_version, voters=self.voters, timestamp_ms=now_ms)
        self._log.add_snapshot(snapshot, data)
        self._bytes_since_snapshot = 0
        logger.info("Wrote snapshot %s: %d bytes", snapshot.file_name, len(data))

    def _truncate(self, epoch: int, end_offset: int) -> None:
        """Truncate the log where it diverges from the leader's, which is above all applied records."""
        offset = self._log.common_end(epoch, end_offset)
        if offset <= self._loader.last_applied:
            raise ObserverFault(
                f"the controller's metadata log differs from offset {offset} on, but it was applied up to"
                f" {self._loader.last_applied}; these controllers have lost committed metadata"
            )
        logger.warning("The metadata log is truncated from %d to %d", self._log.end_offset, offset)
        self._log.truncate_to(offset)
        while self._uncommitted and self._uncommitted[-1].last_offset >= offset:
            self._uncommitted.pop()

    # --- snapshots --------------------------------------------------------------------------------------------------

    def _fetch_snapshot(self, client: Client, snapshot: SnapshotId) -> None:
        """Fetch a complete snapshot, and continue after it."""
        data = bytearray()
        size = 1
        while len(data) < size:
            if self._stop.is_set():
                return
            partition = self._snapshot_part(client, snapshot, len(data))
            size = int(partition.size)
            part = bytes(partition.unaligned_records or b"")
            if not part and len(data) < size:
                raise UnreachableError(f"the controller at {client.address} sends no data of a snapshot")
            data += part
        logger.info("Snapshot %s: %d bytes", snapshot.file_name, len(data))
        batches = self._log.begin_with_snapshot(snapshot, bytes(data))
        self._uncommitted.clear()
        self._apply_snapshot(snapshot, batches)

    def _snapshot_part(self, client: Client, snapshot: SnapshotId, position: int) -> Any:
        settings = self._settings
        part = {
            "partition": 0,
            "current_leader_epoch": self.quorum.epoch,
            "snapshot_id": {"end_offset": snapshot.end_offset, "epoch": snapshot.epoch},
            "position": position,
            "replica_directory_id": settings.directory_id,
        }
        answer = client.call(
            ApiKey.FETCH_SNAPSHOT,
            _FETCH_SNAPSHOT_VERSIONS,
            cluster_id=settings.cluster_id,
            replica_id=settings.node_id,
            max_bytes=_SNAPSHOT_BYTES,
            topics=[{"name": METADATA_TOPIC, "partitions": [part]}],
        )
        self._refuse_cluster(int(answer.error_code))
        partition = answer.topics[0].partitions[0] if answer.topics else None
        for each in (answer, partition):
            if each is None or int(each.error_code) != _NONE:
                # There may be a newer snapshot, or another leader: the next fetch finds out.
                raise UnreachableError(f"the controller at {client.address} does not send {snapshot.file_name}")
        return partition

    def _apply_snapshot(self, snapshot: SnapshotId, batches: list[MetadataBatch]) -> None:
        for batch in batches:
            self._take_control(batch.control)
        records = [each for batch in batches for each in batch.records]
        self._loader.load_snapshot(records, end_offset=snapshot.end_offset, epoch=snapshot.epoch)
        self.high_watermark = max(self.high_watermark, snapshot.end_offset)

    def _take_control(self, messages: Iterable[Any]) -> None:
        for message in messages:
            kind = type(message).__name__
            if kind == "VotersRecord":
                self.voters = message
                self.quorum.know(voter_addresses(message, self._settings.controller_listener))
            elif kind == "KRaftVersionRecord":
                self.kraft_version = int(message.k_raft_version)

    # --- listeners --------------------------------------------------------------------------------------------------

    def on_applied(self, listener: Callable[[], object]) -> None:
        """Call `listener` on the observer's thread after each response with a high watermark."""
        self._listeners.append(listener)

    def _wake(self) -> None:
        for listener in self._listeners:
            listener()
