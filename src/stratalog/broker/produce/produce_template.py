"""The fast path for a producer that sends similar Produce requests.

Most requests of a connection differ from the previous one only in correlation id and records: same client id, acks,
topic and partition. A template stores all bytes that stay the same, and their result, so that the next such request is
compared instead of parsed, and its response packed in one call. Pipelined requests that are received together are
appended by one write; those that wait for replicas are confirmed and answered together. Anything unusual (other bytes,
a tagged field, a deleted topic, a new configuration, refused records) is left unchanged to the normal path.

    request:  api key, version | correlation id | ... as before ... index | length varint, records | 3 empty tagged
    fields response: size, correlation id | ... up to index | error, base offset, log append time, log start offset |
    tail
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from stratalog.broker.confirmation import Unconfirmed, still_unconfirmed
from stratalog.broker.frame_fields import compact_length, varint
from stratalog.broker.produce.produce_frames import (
    FLEXIBLE_FROM,
    TOPIC_IDS_FROM,
    ProduceRequest,
)
from stratalog.broker.server import Deferred
from stratalog.errors import InvalidRequestError, KafkaError
from stratalog.records import batch_format as fmt
from stratalog.wire import INT32

if TYPE_CHECKING:
    from stratalog.engine import Partition
    from stratalog.log.format import AppendInfo

#: Of the partition, topic and request.
_NO_TAGGED_FIELDS = b"\0\0\0"
#: No record errors, no message, no tagged fields of partition and topic, no throttling, no tagged fields.
_RESPONSE_TAIL = b"\x01\x00\x00\x00" + b"\0\0\0\0" + b"\x00"

_CORRELATION_ID_AT = 4
_ATTRIBUTES_LOW_BYTE_AT = fmt.ATTRIBUTES_AT + 1


class AppendedTogether:
    """Requests whose records are in the log, in order, and their responses unless the replicas do not confirm them."""

    __slots__ = ("_template", "correlation_ids", "infos", "last")

    def __init__(
        self, template: ProduceTemplate, correlation_ids: list[int], infos: list[AppendInfo], last: Unconfirmed
    ) -> None:
        self._template = template
        self.correlation_ids = correlation_ids
        self.infos = infos
        #: Of all their records.
        self.last = last

    def responses(self) -> list[bytes]:
        return self._template.responses(self.correlation_ids, self.infos)


#: Answers requests once the replicas have confirmed their records, or will not.
WaitForReplicas: TypeAlias = Callable[[AppendedTogether], Deferred]


class ProduceTemplate:
    """Made from a successful request; answers similar ones of the same connection.

    Immutable: requests in progress belong to the connection, so a failed one leaves no state here.
    """

    __slots__ = (
        "_all_replicas",
        "_config",
        "_head",
        "_key_version",
        "_pack",
        "_partition",
        "_response_mid",
        "_same",
        "_size",
        "_unpack",
        "_wait",
    )

    def __init__(
        self,
        frame: memoryview,
        records_length_at: int,
        partition: Partition,
        response_mid: bytes,
        *,
        wait: WaitForReplicas,
        all_replicas: bool,
    ) -> None:
        #: Whether the producer waits for all replicas.
        self._all_replicas = all_replicas
        self._wait = wait
        self._partition = partition
        self._config = partition.log.config
        self._head = records_length_at
        self._unpack = struct.Struct(f">4s4x{records_length_at - 8}s").unpack_from
        self._key_version, self._same = self._unpack(frame)
        response = struct.Struct(f">ii{len(response_mid)}shqqq{len(_RESPONSE_TAIL)}s")
        self._pack = response.pack
        self._size = response.size - 4
        self._response_mid = response_mid

    @classmethod
    def of(
        cls, frame: memoryview, version: int, request: ProduceRequest, partition: Partition, wait: WaitForReplicas
    ) -> ProduceTemplate | None:
        """Return the template of a successful request; None if it has no fast path."""
        if version < FLEXIBLE_FROM or request.acks == 0 or len(request.topics) != 1:
            return None
        if request.transactional_id is not None:
            return None  # transactional batches may have to be verified
        key, partitions = request.topics[0]
        index, records, _ = partitions[0]
        if len(partitions) != 1 or records is None:
            return None
        length = varint(len(records) + 1)
        head = len(frame) - len(_NO_TAGGED_FIELDS) - len(records) - len(length)
        if bytes(frame[head : head + len(length)]) != length or frame[-3:] != _NO_TAGGED_FIELDS:
            return None  # tagged fields
        name = key if version >= TOPIC_IDS_FROM else varint(len(key) + 1) + key
        response_mid = b"\x00\x02" + name + b"\x02" + INT32.pack(index)
        return cls(frame, head, partition, response_mid, wait=wait, all_replicas=request.acks < 0)

    def records_of(self, frame: memoryview) -> memoryview | None:
        """Return the records of a matching request; None if it has to take the normal path. Never raises."""
        position = self._head
        size = len(frame)
        if size < position + fmt.HEADER_SIZE:
            return None
        key_version, same = self._unpack(frame)
        if same != self._same or key_version != self._key_version:
            return None
        try:
            length, position = compact_length(frame, position)
        except InvalidRequestError:
            return None
        end = position + length
        if end + 3 != size or frame[end] or frame[end + 1] or frame[end + 2] or length < fmt.HEADER_SIZE:
            return None
        records = frame[position:end]
        if INT32.unpack_from(records, fmt.LENGTH_AT)[0] != length - fmt.LOG_OVERHEAD:
            return None
        if records[_ATTRIBUTES_LOW_BYTE_AT] & fmt.TRANSACTIONAL_BIT:
            return None
        return records

    def answer(self, frames: Sequence[memoryview], records: Sequence[memoryview]) -> list[bytes] | Deferred | None:
        """Append the `records` of `frames`, and return the responses in order, or what they wait for.

        None: nothing was done, and each frame has to take the normal path.
        """
        partition = self._partition
        epoch = partition.leader_epoch
        if epoch < 0 or partition.log.config is not self._config:
            return None
        waits = self._all_replicas and partition.replicated
        try:
            if waits:
                partition.check_min_isr()
            infos = [partition.append(records[0])] if len(records) == 1 else partition.append_group(records)
        except (KafkaError, OSError):
            return None  # nothing is in the log; the normal path finds and reports the same error
        if infos is None:
            return None
        correlation_ids = [INT32.unpack_from(frame, _CORRELATION_ID_AT)[0] for frame in frames]
        if waits:
            last = Unconfirmed(partition, partition.topic, max(info.last_offset for info in infos), epoch)
            failed: dict[tuple[str, int], KafkaError] = {}
            if still_unconfirmed((last,), failed) or failed:
                return self._wait(AppendedTogether(self, correlation_ids, infos, last))
        return self.responses(correlation_ids, infos)

    def responses(self, correlation_ids: Sequence[int], infos: Sequence[AppendInfo]) -> list[bytes]:
        """Return the responses to requests that were appended like this."""
        pack, size, mid = self._pack, self._size, self._response_mid
        return [
            pack(
                size,
                correlation_id,
                mid,
                0,
                info.first_offset,
                info.log_append_time,
                info.log_start_offset,
                _RESPONSE_TAIL,
            )
            for correlation_id, info in zip(correlation_ids, infos, strict=True)
        ]
