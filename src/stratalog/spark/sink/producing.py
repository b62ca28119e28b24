"""Send batches to the leaders of their partitions: in order, once each, acknowledged by all in-sync replicas.

A request has batches of several partitions, but only one of each, as Kafka requires. Unacknowledged batches are sent
again with the same sequence numbers, by which a broker detects duplicates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from stratalog.errors import (
    DuplicateSequenceError,
    InvalidProducerEpochError,
    KafkaError,
    MessageTooLargeError,
    ProducerFencedError,
    RecordListTooLargeError,
)
from stratalog.records import EncodedBatch
from stratalog.spark.sink.errors import FencedWriterError, RefusedRecordsError
from stratalog.wire import ApiKey
from stratalog.wire.client import Cluster, Coordinators, ProducerIdentity, TopicPartition, wire_error

#: Bytes of batches to gather before a request is sent.
_REQUEST_BYTES: Final = 4 << 20
_VERSIONS: Final = (3, 11)
_ALL_IN_SYNC_REPLICAS: Final = -1
_OFFSET_ZERO: Final = bytes(8)


@dataclass
class BatchProducer:
    """Sends the batches of one task. Not thread-safe. `sent` counts the batches and bytes acknowledged."""

    cluster: Cluster
    coordinators: Coordinators
    producer: ProducerIdentity
    batches_sent: int = 0
    bytes_sent: int = 0
    _waiting: dict[TopicPartition, EncodedBatch] = field(default_factory=dict)
    _waiting_bytes: int = 0
    _in_transaction: set[TopicPartition] = field(default_factory=set)

    def send(self, topic: str, partition: int, batch: EncodedBatch) -> None:
        """Send a batch without waiting for its acknowledgement; `flush` waits.

        Raises RefusedRecordsError, FencedWriterError or KafkaError.
        """
        key = topic, partition
        if key in self._waiting or self._waiting_bytes >= _REQUEST_BYTES:
            self.flush()
        self._waiting[key] = batch
        self._waiting_bytes += batch.size

    def flush(self) -> None:
        """Wait until all batches are acknowledged. Raises as `send`; the next call sends unacknowledged ones again."""
        waiting = self._waiting
        if not waiting:
            return
        try:
            self._join_transaction(waiting)
            self.cluster.retry(
                lambda: self._ask(waiting),
                "produce",
                {topic for topic, _ in (*waiting, *self._in_transaction)},
            )
        except (InvalidProducerEpochError, ProducerFencedError) as error:
            raise FencedWriterError(
                f"another attempt of this task writes under {self.producer.transactional_id} by now: {error}"
            ) from error
        finally:
            self._waiting_bytes = sum(batch.size for batch in waiting.values())

    def _join_transaction(self, waiting: Mapping[TopicPartition, EncodedBatch]) -> None:
        if self.producer.transactional_id is None:
            return
        new = waiting.keys() - self._in_transaction
        if new:
            self.coordinators.add_partitions(self.producer, sorted(new))
            self._in_transaction |= new

    def _ask(self, waiting: dict[TopicPartition, EncodedBatch]) -> None:
        """Send one request to each leader. Remove acknowledged batches from `waiting`."""
        by_leader: dict[int, dict[TopicPartition, EncodedBatch]] = {}
        for key, batch in waiting.items():
            by_leader.setdefault(self.cluster.leader_of(*key), {})[key] = batch
        failed: KafkaError | None = None
        for node, part in by_leader.items():
            for key, error in self._answers(node, part).items():
                if error is None or isinstance(error, DuplicateSequenceError):
                    self.batches_sent += 1
                    self.bytes_sent += waiting.pop(key).size
                elif isinstance(error, MessageTooLargeError | RecordListTooLargeError):
                    raise RefusedRecordsError(
                        f"{key[0]}-{key[1]} refuses a batch of {part[key].size} bytes and {part[key].records} records: "
                        "it"
                        " is larger than the topic's max.message.bytes; raise that, or lower option batchBytes"
                    ) from error
                else:
                    failed = error
        if failed is not None:
            raise failed

    def _answers(
        self, node: int, batches: Mapping[TopicPartition, EncodedBatch]
    ) -> dict[TopicPartition, KafkaError | None]:
        by_topic: dict[str, list[dict[str, object]]] = {}
        for (topic, partition), batch in batches.items():
            by_topic.setdefault(topic, []).append({"index": partition, "records": _from_zero(batch)})
        answer = self.cluster.node(node).call(
            ApiKey.PRODUCE,
            _VERSIONS,
            transactional_id=self.producer.transactional_id,
            acks=_ALL_IN_SYNC_REPLICAS,
            timeout=timedelta(seconds=self.cluster.options.request_timeout_s),
            topic_data=[{"name": name, "partition_data": parts} for name, parts in by_topic.items()],
        )
        found: dict[TopicPartition, KafkaError | None] = {}
        for topic in answer.responses:
            for each in topic.partition_responses:
                key, code = (str(topic.name), int(each.index)), int(each.error_code)
                why = f": {each.error_message}" if getattr(each, "error_message", None) else ""
                found[key] = wire_error(code, f"produce to {key[0]}-{key[1]}{why}") if code else None
        return found


def _from_zero(batch: EncodedBatch) -> bytes:
    """Return the batch with first offset 0, as Kafka demands of compressed ones; no CRC covers it."""
    return _OFFSET_ZERO + memoryview(batch.data)[len(_OFFSET_ZERO) :]
