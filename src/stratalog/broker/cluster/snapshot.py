"""Write a snapshot of an image: a checkpoint of the metadata log (KIP-630).

    control batch    SnapshotHeaderRecord; from kraft.version 1 on KRaftVersionRecord and VotersRecord
    batches          the records of the image
    control batch    SnapshotFooterRecord

Offsets count from 0, every batch has the epoch of the snapshot. Source: Kafka's `RecordsSnapshotWriter`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from stratalog.broker.cluster.image import MetadataImage
from stratalog.broker.cluster.image_records import image_records
from stratalog.records import ControlType, Record, build_batch, control_key
from stratalog.wire import make_message, write_message
from stratalog.wire.metadata_records import control_class, encode_metadata_record

_BATCH_BYTES: Final = 1 << 20


def encode_snapshot(image: MetadataImage, *, kraft_version: int, voters: Any, timestamp_ms: int) -> bytes:
    """Return a snapshot of `image`; `voters` is the VotersRecord of the log, None if it has none."""
    header = make_message(control_class(ControlType.SNAPSHOT_HEADER), {"last_contained_log_timestamp": timestamp_ms})
    head = [(ControlType.SNAPSHOT_HEADER, header)]
    if kraft_version > 0 and voters is not None:
        version = make_message(control_class(ControlType.KRAFT_VERSION), {"k_raft_version": kraft_version})
        head += [(ControlType.KRAFT_VERSION, version), (ControlType.KRAFT_VOTERS, voters)]
    footer = make_message(control_class(ControlType.SNAPSHOT_FOOTER), {})
    parts = []
    offset = 0
    values = (encode_metadata_record(*each) for each in image_records(image))
    groups: Iterable[tuple[bool, Sequence[tuple[bytes | None, bytes]]]] = (
        (True, _control(head)),
        *((False, each) for each in _grouped(values)),
        (True, _control([(ControlType.SNAPSHOT_FOOTER, footer)])),
    )
    for is_control, entries in groups:
        records = [Record(offset + n, timestamp_ms, key, value) for n, (key, value) in enumerate(entries)]
        parts.append(
            build_batch(records, base_offset=offset, partition_leader_epoch=max(image.epoch, 0), is_control=is_control)
        )
        offset += len(records)
    return b"".join(parts)


def _control(messages: Iterable[tuple[ControlType, Any]]) -> list[tuple[bytes | None, bytes]]:
    return [(control_key(kind), write_message(message)) for kind, message in messages]


def _grouped(values: Iterable[bytes]) -> Iterator[list[tuple[bytes | None, bytes]]]:
    """Return the values in groups of about one batch."""
    group: list[tuple[bytes | None, bytes]] = []
    size = 0
    for value in values:
        if group and size + len(value) > _BATCH_BYTES:
            yield group
            group, size = [], 0
        group.append((None, value))
        size += len(value)
    if group:
        yield group
