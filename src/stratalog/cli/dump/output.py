"""How a dump is said: lines as kafka-dump-log prints them, or JSON, one object a line; and problems, on stderr."""

from __future__ import annotations

import base64
import codecs
import json
import sys
from dataclasses import dataclass, field
from typing import BinaryIO, Final, NamedTuple

from typing_extensions import Buffer

from stratalog.records.batch import RecordBatch
from stratalog.records.control import ControlType, parse_control_key, parse_control_value
from stratalog.records.record import Record

TIMESTAMP_TYPE: Final = ("CreateTime", "LogAppendTime")
_REPLACE: Final = "stratalog.java-replace"
_INT64_MASK: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """What was asked for on the command line."""

    print_data_log: bool = False
    deep_iteration: bool = False
    verify_index_only: bool = False
    index_sanity_check: bool = False
    skip_record_metadata: bool = False
    json: bool = False
    #: "offsets", "transaction-log", "remote-log-metadata", "share-group-state", or None for plain text.
    decoder: str | None = None
    max_bytes: int | None = None

    @property
    def shows_data(self) -> bool:
        return self.print_data_log or self.decoder is not None

    @property
    def is_deep(self) -> bool:
        return self.deep_iteration or self.shows_data


class Decoded(NamedTuple):
    """Key and payload of a record as text; None: not printed."""

    key: str | None
    payload: str | None


@dataclass
class Problems:
    """What was found. Said on stderr when a file is done, so that it does not stand among the lines of stdout."""

    found: int = 0
    lines: list[str] = field(default_factory=list)

    def add(self, line: str) -> None:
        """Something is damaged: the exit code becomes 1."""
        self.lines.append(line)
        self.found += 1

    def remark(self, line: str) -> None:
        """Worth saying, but no damage."""
        self.lines.append(line)

    def flush(self) -> None:
        for line in self.lines:
            print(line, file=sys.stderr)
        sys.stderr.flush()
        self.lines.clear()


class TextOutput:
    """kafka-dump-log's lines, in UTF-8."""

    def __init__(self, stream: BinaryIO, options: DumpOptions) -> None:
        self._stream = stream
        self.options = options

    def line(self, text: str) -> None:
        self._stream.write(text.encode(errors="replace") + b"\n")

    def lines(self, data: Buffer) -> None:
        """Whole lines that are bytes already."""
        self._stream.write(data)

    def flush(self) -> None:
        self._stream.flush()

    def begin(self, name: str) -> None:
        self.line(f"Dumping {name}")

    def log_start(self, offset: int) -> None:
        self.line(f"Log starting offset: {offset}")

    def note(self, text: str) -> None:
        self.line(text)

    def fields(self, **values: object) -> None:
        """One entry of an index or of another small file."""
        self.line(" ".join(f"{name}: {value}" for name, value in values.items()))

    def producer(self, values: dict[str, object], batch: dict[str, object] | None) -> None:
        """One producer of a snapshot, and its last batch."""
        shown = {**values, "currentTxnFirstOffset": optional_long(values["currentTxnFirstOffset"])}
        head = " ".join(f"{name}: {value}" for name, value in shown.items())
        tail = " ".join(f"{name}: {value}" for name, value in (batch or {}).items())
        self.line(f"{head} {tail}")

    def batch(self, batch: RecordBatch, position: int, is_valid: bool) -> None:
        self.line(batch_line(batch, position, is_valid))

    def record(self, batch: RecordBatch, record: Record, decoded: Decoded | None) -> None:
        self.line(record_line(batch, record, decoded, skip_metadata=self.options.skip_record_metadata))


class JsonOutput(TextOutput):
    """One JSON object a line. `type` is "file", "note", "entry", "producer", "batch" or "record"."""

    def _object(self, kind: str, **values: object) -> None:
        self.line(json.dumps({"type": kind, **values}, ensure_ascii=False, separators=(",", ":")))

    def begin(self, name: str) -> None:
        self._object("file", name=name)

    def log_start(self, offset: int) -> None:
        self._object("note", logStartingOffset=offset)

    def note(self, text: str) -> None:
        self._object("note", text=text)

    def fields(self, **values: object) -> None:
        self._object("entry", **values)

    def producer(self, values: dict[str, object], batch: dict[str, object] | None) -> None:
        self._object("producer", **values, lastBatch=batch)

    def batch(self, batch: RecordBatch, position: int, is_valid: bool) -> None:
        self._object(
            "batch",
            baseOffset=batch.base_offset,
            lastOffset=_long(batch.last_offset),
            count=batch.record_count,
            baseSequence=batch.base_sequence,
            lastSequence=batch.last_sequence,
            producerId=batch.producer_id,
            producerEpoch=batch.producer_epoch,
            partitionLeaderEpoch=batch.partition_leader_epoch,
            isTransactional=batch.is_transactional,
            isControl=batch.is_control,
            deleteHorizonMs=batch.delete_horizon_ms,
            position=position,
            timestampType=TIMESTAMP_TYPE[batch.timestamp_type],
            maxTimestamp=batch.max_timestamp,
            size=batch.size,
            magic=batch.magic,
            compresscodec=batch.codec_name,
            crc=batch.crc,
            isvalid=is_valid,
        )

    def record(self, batch: RecordBatch, record: Record, decoded: Decoded | None) -> None:
        values: dict[str, object] = {}
        if not self.options.skip_record_metadata:
            values = {
                "offset": record.offset,
                "timestampType": TIMESTAMP_TYPE[batch.timestamp_type],
                "timestamp": record.timestamp_ms,
                "keySize": _size(record.key),
                "valueSize": _size(record.value),
                "sequence": record.sequence,
                "headerKeys": [key for key, _ in record.headers],
            }
            if batch.is_control:
                values["control"] = control_text(record).strip()
        if decoded is not None and not batch.is_control:
            if self.options.decoder is not None:
                values |= {"key": decoded.key, "payload": decoded.payload}
            else:
                values |= {**_as_json("key", record.key), **_as_json("payload", record.value)}
                values["headers"] = [
                    {"key": key, **_as_json("value", value)} for key, value in record.headers
                ]
        self._object("record", **values)


def plain_text(data: bytes | None) -> str | None:
    """Bytes as Java's `new String(bytes, UTF_8)`."""
    return None if data is None else data.decode(errors=_REPLACE)


def batch_line(batch: RecordBatch, position: int, is_valid: bool) -> str:
    return (
        f"baseOffset: {batch.base_offset} lastOffset: {_long(batch.last_offset)} count: {batch.record_count}"
        f" baseSequence: {batch.base_sequence} lastSequence: {batch.last_sequence} producerId: {batch.producer_id}"
        f" producerEpoch: {batch.producer_epoch} partitionLeaderEpoch: {batch.partition_leader_epoch}"
        f" isTransactional: {_bool(batch.is_transactional)} isControl: {_bool(batch.is_control)}"
        f" deleteHorizonMs: {optional_long(batch.delete_horizon_ms)} position: {position}"
        f" {TIMESTAMP_TYPE[batch.timestamp_type]}: {batch.max_timestamp} size: {batch.size} magic: {batch.magic}"
        f" compresscodec: {batch.codec_name} crc: {batch.crc} isvalid: {_bool(is_valid)}"
    )


def record_line(
    batch: RecordBatch, record: Record, decoded: Decoded | None, *, skip_metadata: bool = False
) -> str:
    """`decoded` None: only the metadata was asked for. A record of which nothing is shown is an empty line, as in Kafka."""
    parts = []
    if not skip_metadata:
        header_keys = ",".join(key for key, _ in record.headers)
        parts.append(
            f"offset: {record.offset} {TIMESTAMP_TYPE[batch.timestamp_type]}: {record.timestamp_ms}"
            f" keySize: {_size(record.key)} valueSize: {_size(record.value)} sequence: {record.sequence}"
            f" headerKeys: [{header_keys}]{control_text(record) if batch.is_control else ''}"
        )
    if decoded is not None and not batch.is_control:
        if decoded.key is not None:
            parts.append(f"key: {decoded.key}")
        if decoded.payload is not None:
            parts.append(f"payload: {decoded.payload}")
    return f"| {' '.join(parts)}" if parts else ""


def control_text(record: Record) -> str:
    """What a control record says. Raises InvalidRecordError."""
    control_type = parse_control_key(record.key)
    if control_type in (ControlType.ABORT, ControlType.COMMIT):
        marker = parse_control_value(record.value)
        return f" endTxnMarker: {control_type.name} coordinatorEpoch: {marker.coordinator_epoch}"
    number = int.from_bytes((record.key or b"")[2:4], "big", signed=True)
    return f" controlType: {control_type.name}({number})"


def optional_long(value: object) -> str:
    """A number that may be missing, as Java's OptionalLong prints it."""
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _long(value: int) -> int:
    """Wrapped to a signed 64-bit number, which only damaged headers need."""
    return ((value + (1 << 63)) & _INT64_MASK) - (1 << 63)


def _as_json(name: str, data: bytes | None) -> dict[str, str | None]:
    """Text as text, anything else as base64 under another name, so that nothing is lost."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}Base64": base64.b64encode(data).decode()}


def _replace_as_java_does(error: UnicodeError) -> tuple[str, int]:
    """U+FFFD for each malformed piece; an encoded surrogate (ED A0..BF xx) is one piece in Java, several in Python."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    piece = error.object[error.start : error.start + 3]
    if len(piece) >= 2 and piece[0] == 0xED and 0xA0 <= piece[1] <= 0xBF:
        is_whole = len(piece) == 3 and 0x80 <= piece[2] <= 0xBF
        return "\ufffd", error.start + (3 if is_whole else 2)
    return "\ufffd", error.end


codecs.register_error(_REPLACE, _replace_as_java_does)
