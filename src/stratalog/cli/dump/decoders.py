"""Format records of internal topics as kafka-dump-log's decoders do.

A decoder never raises: like Kafka's, it prints an error for an unreadable record.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from typing import Any, Final

from stratalog.cli.dump.field_decoders import FieldDecoder, field_decoder
from stratalog.cli.dump.java_text import plain_text
from stratalog.cli.dump.message_schema import (
    JsonValue,
    MalformedMessageError,
    decode_message,
    schemas,
    to_json,
)
from stratalog.cli.dump.output import Decoded
from stratalog.errors import CorruptRecordError
from stratalog.records import Record
from stratalog.remote import api, metadata
from stratalog.util import VARINT_BYTES_MAX, decode_unsigned, uuid_to_base64

Decoder = Callable[[Record], Decoded]

_FRAME_VERSION: Final = 1
_UNSUPPORTED: Final = "org.apache.kafka.common.errors.UnsupportedVersionException"


def decoder_for(name: str | None, key_class: str | None = None, value_class: str | None = None) -> Decoder:
    """Return the decoder of an option ("offsets", ...), or that of the two classes for key and value.

    Raises UsageError for an unknown class.
    """
    if name is None:
        if key_class is None and value_class is None:
            return _plain
        decode_key, decode_value = field_decoder(key_class), field_decoder(value_class)
        return lambda record: Decoded(
            _field(decode_key, record.key, record), _field(decode_value, record.value, record)
        )
    if name == "remote-log-metadata":
        return _remote_log_metadata
    if name == "cluster-metadata":
        return _cluster_metadata
    kind = _COORDINATORS[name]
    return lambda record: _coordinator_record(kind, record)


_COORDINATORS: Final = {"offsets": "group", "transaction-log": "transaction", "share-group-state": "share"}


def _plain(record: Record) -> Decoded:
    return Decoded(plain_text(record.key), plain_text(record.value))


def _field(decode: FieldDecoder, data: bytes | None, record: Record) -> str | None:
    try:
        return None if data is None else decode(data)
    except Exception as error:  # a decoder may be user code  # noqa: BLE001
        return f"Error at offset {record.offset}, skipping. {type(error).__name__}: {error}"


def _cluster_metadata(record: Record) -> Decoded:
    try:
        return Decoded(None, _metadata_text(record.value or b""))
    except MalformedMessageError as error:
        return Decoded(None, f"Error at {record.offset}, skipping. {error}")


def _metadata_text(data: bytes) -> str:
    """Frame version, API key and version, each an unsigned varint, and the message (Kafka's `MetadataRecordSerde`)."""
    at, numbers = 0, []
    for what in ("frame version", "type", "version"):
        try:
            number, at = decode_unsigned(data, at, VARINT_BYTES_MAX)
        except CorruptRecordError:
            raise MalformedMessageError(f"Error while reading {what}") from None
        numbers.append(number)
        if what == "frame version" and number != _FRAME_VERSION:
            raise MalformedMessageError(_frame_complaint(number))
    _, api_key, version = numbers
    entry = schemas()["metadata"].get(str(api_key))
    if entry is None:
        raise MalformedMessageError(f"{_UNSUPPORTED}: Unknown metadata id {api_key}")
    try:
        message = decode_message(entry["value"], version, data[at:])
    except MalformedMessageError as error:
        raise MalformedMessageError(f"Failed to deserialize record with type {entry['type']}: {error}") from None
    return to_json({"type": entry["type"], "version": version, "data": message})


def _frame_complaint(version: int) -> str:
    if version == 0:
        return (
            "Could not deserialize metadata record with frame version 0. Note that upgrades from the preview release of"
            " KRaft in 2.8 to newer versions are not supported."
        )
    return (
        f"Could not deserialize metadata record due to unknown frame version {version}(only frame version"
        f" {_FRAME_VERSION} is supported)"
    )


def _coordinator_record(kind: str, record: Record) -> Decoded:
    if record.key is None:
        return Decoded(
            f"Failed to decode message at offset {record.offset} using the specified decoder (message had a missing "
            "key)",
            None,
        )
    try:
        key_type, key_data = _split_version(record.key)
        entry = schemas()[kind].get(str(key_type))
        if entry is None:
            return Decoded(f"Unknown record type {key_type} at offset {record.offset}, skipping.", None)
        key: dict[str, JsonValue] = {"type": str(key_type), "data": decode_message(entry["key"], 0, key_data)}
        if record.value is None:
            return Decoded(to_json(key), "<DELETE>")
        version, data = _split_version(record.value)
        value = decode_message(entry["value"], version, data)
        if entry["value"]["name"] == "GroupMetadataValue":
            _open_consumer_protocol(value)
        return Decoded(to_json(key), to_json({"version": str(version), "data": value}))
    except MalformedMessageError as error:
        return Decoded(f"Error at offset {record.offset}, skipping. {error}", None)


def _open_consumer_protocol(group: dict[str, Any]) -> None:
    """Decode subscriptions and assignments of consumers; keep the bytes of other protocols."""
    if group.get("protocolType") != "consumer":
        return
    protocol = schemas()["protocol"]
    for member in group.get("members") or ():
        for name, schema in (
            ("subscription", protocol["ConsumerProtocolSubscription"]),
            ("assignment", protocol["ConsumerProtocolAssignment"]),
        ):
            try:
                version, data = _split_version(base64.b64decode(member[name]))
                member[name] = decode_message(schema, version, data)
            except (MalformedMessageError, KeyError, TypeError):
                continue


def _split_version(data: bytes) -> tuple[int, bytes]:
    if len(data) < 2:
        raise MalformedMessageError(f"{len(data)} bytes, expected at least the 2 of a version")
    (version,) = struct.unpack_from(">h", data)
    return version, data[2:]


def _remote_log_metadata(record: Record) -> Decoded:
    try:
        return Decoded(None, _event_text(metadata.decode(record.value or b"")))
    except CorruptRecordError as error:
        return Decoded(None, f"Error at offset {record.offset}, skipping. {error}")


def _event_text(event: Any) -> str:
    """`toString` of Kafka's classes."""
    if isinstance(event, api.RemoteLogSegmentMetadata):
        epochs = ", ".join(f"{epoch}={offset}" for epoch, offset in sorted(event.segment_leader_epochs.items()))
        return (
            f"RemoteLogSegmentMetadata{{remoteLogSegmentId={_segment_id(event.segment_id)},"
            f" startOffset={event.start_offset}, endOffset={event.end_offset}, brokerId={event.broker_id},"
            f" maxTimestampMs={event.max_timestamp_ms}, eventTimestampMs={event.event_timestamp_ms},"
            f" segmentLeaderEpochs={{{epochs}}}, segmentSizeInBytes={event.segment_size_bytes},"
            f" customMetadata={_custom_metadata(event.custom_metadata)}, state={event.state.name},"
            f" txnIdxEmpty={'true' if event.txn_index_empty else 'false'}}}"
        )
    if isinstance(event, api.RemoteLogSegmentMetadataUpdate):
        return (
            f"RemoteLogSegmentMetadataUpdate{{remoteLogSegmentId={_segment_id(event.segment_id)},"
            f" customMetadata={_custom_metadata(event.custom_metadata)}, state={event.state.name},"
            f" eventTimestampMs={event.event_timestamp_ms}, brokerId={event.broker_id}}}"
        )
    return (
        f"RemotePartitionDeleteMetadata{{topicPartition={_partition(event.topic_id_partition)},"
        f" state={event.state.name}, eventTimestampMs={event.event_timestamp_ms}, brokerId={event.broker_id}}}"
    )


def _segment_id(segment_id: Any) -> str:
    return (
        f"RemoteLogSegmentId{{topicIdPartition={_partition(segment_id.topic_id_partition)},"
        f" id={uuid_to_base64(segment_id.id)}}}"
    )


def _partition(partition: Any) -> str:
    return f"{uuid_to_base64(partition.topic_id)}:{partition.topic}-{partition.partition}"


def _custom_metadata(custom: Any) -> str:
    return "Optional.empty" if custom is None else f"Optional[CustomMetadata{{{len(custom.value)} bytes}}]"
