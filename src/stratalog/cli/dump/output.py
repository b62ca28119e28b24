"""The output of a dump: lines as kafka-dump-log prints them, or JSON, one object a line. Problems go to stderr."""

from __future__ import annotations

import base64
import json
import sys
from dataclasses import dataclass, field
from typing import BinaryIO, Final, NamedTuple

from typing_extensions import Buffer

from stratalog.cli.dump.control_text import control_text
from stratalog.cli.dump.ranges import WHOLE, DumpRange
from stratalog.records import MAGIC, Record, RecordBatch

TIMESTAMP_TYPE: Final = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}
_INT64_MASK: Final = (1 << 64) - 1
#: Larger than any batch.
SIZE_MAX: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """The options of the command line."""

    print_data_log: bool = False
    deep_iteration: bool = False
    verify_index_only: bool = False
    index_sanity_check: bool = False
    skip_record_metadata: bool = False
    json: bool = False
    #: "offsets", "transaction-log", "cluster-metadata", "remote-log-metadata", "share-group-state", or None: key and
    #: value by the two decoder classes; None means text.
    decoder: str | None = None
    key_decoder: str | None = None
    value_decoder: str | None = None
    max_bytes: int | None = None
    #: The largest batch that an index entry may point to.
    max_message_size: int = SIZE_MAX
    range: DumpRange = WHOLE

    @property
    def shows_data(self) -> bool:
        return self.print_data_log or self.has_decoder

    @property
    def has_decoder(self) -> bool:
        """Return whether keys and values are decoded as anything but text."""
        return any(name is not None for name in (self.decoder, self.key_decoder, self.value_decoder))

    @property
    def is_deep(self) -> bool:
        return self.deep_iteration or self.shows_data


class Decoded(NamedTuple):
    """Key and payload of a record as text; None: not printed."""

    key: str | None
    payload: str | None


@dataclass
class Problems:
    """The problems of a file. They are printed on stderr when the file is done, apart from the lines of stdout."""

    found: int = 0
    unknown_files: int = 0
    lines: list[str] = field(default_factory=list)

    def add(self, line: str) -> None:
        """Report damage: the exit code becomes 1."""
        self.lines.append(line)
        self.found += 1

    def ignore(self, name: str) -> None:
        """Report a file of an unknown kind: the exit code becomes 2."""
        self.lines.append(f"Ignoring unknown file {name}")
        self.unknown_files += 1

    def remark(self, line: str) -> None:
        """Report a remark that is not damage."""
        self.lines.append(line)

    def flush(self, output: TextOutput) -> None:
        output.problems(self.lines)
        output.flush()
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

    def begin(self, name: str, kind: str | None) -> None:  # noqa: ARG002 - JSON says it
        """Begin a file; `kind` is None for an unknown one."""
        self.line(f"Dumping {name}")

    def log_start(self, offset: int) -> None:
        self.line(f"Log starting offset: {offset}")

    def snapshot_end(self, offset: int, epoch: int) -> None:
        """Print the point of the metadata log that a KRaft snapshot stands for."""
        self.line(f"Snapshot end offset: {offset}, epoch: {epoch}")

    def note(self, text: str) -> None:
        self.line(text)

    def problems(self, lines: list[str]) -> None:
        """Report a problem of the file. As text it goes to stderr only."""

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

    def record(
        self, batch: RecordBatch, record: Record, decoded: Decoded | None, message: RecordBatch | None = None
    ) -> None:
        """Print a record of a batch; `message` is what it is itself, in formats 0 and 1."""
        self.line(record_line(batch, record, decoded, message, skip_metadata=self.options.skip_record_metadata))


class JsonOutput(TextOutput):
    """One JSON object a line; `docs/reference/dump.md` lists their fields."""

    def _object(self, type_: str, /, **values: object) -> None:
        self.line(json.dumps({"type": type_, **values}, ensure_ascii=False, separators=(",", ":")))

    def begin(self, name: str, kind: str | None) -> None:
        self._object("file", name=name, kind=kind)

    def log_start(self, offset: int) -> None:
        self._object("note", logStartingOffset=offset)

    def snapshot_end(self, offset: int, epoch: int) -> None:
        self._object("note", snapshotEndOffset=offset, epoch=epoch)

    def note(self, text: str) -> None:
        self._object("note", text=text)

    def problems(self, lines: list[str]) -> None:
        for line in lines:
            self._object("problem", text=line)

    def fields(self, **values: object) -> None:
        self._object("entry", **values)

    def producer(self, values: dict[str, object], batch: dict[str, object] | None) -> None:
        self._object("producer", **values, lastBatch=batch)

    def batch(self, batch: RecordBatch, position: int, is_valid: bool) -> None:
        newer: dict[str, object] = {}
        if batch.magic == MAGIC:
            newer = {
                "baseOffset": batch.base_offset,
                "count": batch.record_count,
                "baseSequence": batch.base_sequence,
                "lastSequence": batch.last_sequence,
                "producerId": batch.producer_id,
                "producerEpoch": batch.producer_epoch,
                "partitionLeaderEpoch": batch.partition_leader_epoch,
                "isTransactional": batch.is_transactional,
                "isControl": batch.is_control,
                "deleteHorizonMs": batch.delete_horizon_ms,
            }
        self._object(
            "batch",
            **newer,
            lastOffset=_long(batch.last_offset),
            position=position,
            timestampType=TIMESTAMP_TYPE[batch.timestamp_type],
            maxTimestamp=batch.max_timestamp,
            size=batch.size,
            magic=batch.magic,
            compresscodec=batch.codec_name,
            crc=batch.crc,
            isvalid=is_valid,
        )

    def record(
        self, batch: RecordBatch, record: Record, decoded: Decoded | None, message: RecordBatch | None = None
    ) -> None:
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
            if message is not None:
                values |= {"isvalid": message.is_crc_valid, "crc": message.crc}
            if batch.is_control:
                values["control"] = control_text(record).strip()
        if decoded is not None and not batch.is_control:
            if self.options.has_decoder:
                values |= {"key": decoded.key, "payload": decoded.payload}
            else:
                values |= {**_as_json("key", record.key), **_as_json("payload", record.value)}
                values["headers"] = [{"key": key, **_as_json("value", value)} for key, value in record.headers]
        self._object("record", **values)


def batch_line(batch: RecordBatch, position: int, is_valid: bool) -> str:
    head = (
        f"baseOffset: {batch.base_offset} lastOffset: {_long(batch.last_offset)} count: {batch.record_count}"
        f" baseSequence: {batch.base_sequence} lastSequence: {batch.last_sequence} producerId: {batch.producer_id}"
        f" producerEpoch: {batch.producer_epoch} partitionLeaderEpoch: {batch.partition_leader_epoch}"
        f" isTransactional: {_bool(batch.is_transactional)} isControl: {_bool(batch.is_control)}"
        f" deleteHorizonMs: {optional_long(batch.delete_horizon_ms)}"
        if batch.magic == MAGIC
        else f"offset: {batch.last_offset}"
    )
    return (
        f"{head} position: {position} {TIMESTAMP_TYPE[batch.timestamp_type]}: {batch.max_timestamp} size: {batch.size}"
        f" magic: {batch.magic} compresscodec: {batch.codec_name} crc: {batch.crc} isvalid: {_bool(is_valid)}"
    )


def record_line(
    batch: RecordBatch,
    record: Record,
    decoded: Decoded | None,
    message: RecordBatch | None = None,
    *,
    skip_metadata: bool = False,
) -> str:
    """Return the line of a record, empty if nothing of it is shown, as in Kafka. `decoded` None: only metadata."""
    parts = []
    if not skip_metadata:
        parts.append(
            f"offset: {record.offset} {TIMESTAMP_TYPE[batch.timestamp_type]}: {record.timestamp_ms}"
            f" keySize: {_size(record.key)} valueSize: {_size(record.value)}{_more_metadata(batch, record, message)}"
        )
    if decoded is not None and not batch.is_control:
        if decoded.key is not None:
            parts.append(f"key: {decoded.key}")
        if decoded.payload is not None:
            parts.append(f"payload: {decoded.payload}")
    return f"| {' '.join(parts)}" if parts else ""


def _more_metadata(batch: RecordBatch, record: Record, message: RecordBatch | None) -> str:
    """Return the fields that only one of the message formats has."""
    if message is not None:
        return f" isValid: {_bool(message.is_crc_valid)} crc: {message.crc}"
    header_keys = ",".join(key for key, _ in record.headers)
    control = control_text(record) if batch.is_control else ""
    return f" sequence: {record.sequence} headerKeys: [{header_keys}]{control}"


def optional_long(value: object) -> str:
    """Return a number that may be missing, as Java's OptionalLong prints it."""
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _long(value: int) -> int:
    """Wrap to a signed 64-bit number, which only damaged headers need."""
    return ((value + (1 << 63)) & _INT64_MASK) - (1 << 63)


def _as_json(name: str, data: bytes | None) -> dict[str, str | None]:
    """Text as text, anything else as base64 under another name, so that nothing is lost."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}Base64": base64.b64encode(data).decode()}
