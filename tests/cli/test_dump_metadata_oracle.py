"""Records of `__cluster_metadata`, old messages and number decoders beside the real kafka-dump-log."""

from __future__ import annotations

import random
import shutil
import struct
import uuid
from pathlib import Path
from typing import Any

import pytest
from tests.cli.dump_cases import LOG_NAME, T0
from tests.cli.test_dump_oracle import Captured, assert_same
from tests.records.legacy_cases import DIRECTORY as LEGACY
from tests.support.reference_kafka import require_reference_kafka

from stratalog.cli.dump.message_schema import java_double, schemas
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.remote.api.interfaces import RemotePartitionDeleteMetadata
from stratalog.remote.api.segment_state import RemotePartitionDeleteState
from stratalog.remote.api.topic_id_partition import TopicIdPartition
from stratalog.remote.metadata.serde import encode

pytestmark = pytest.mark.interop

#: Since 4.4.0; the tool is of 4.3.1.
_TOO_NEW = {"29"}
_TOO_NEW_FIELDS = {"storedDescriptionTopologyEpoch", "failedDescriptionTopologyEpoch"}
_SIZES = {"int8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "bool": 1}


@pytest.fixture(autouse=True)
def _reference(monkeypatch: pytest.MonkeyPatch) -> None:
    require_reference_kafka()
    monkeypatch.setenv("LC_ALL", "C.UTF-8")


def unsigned(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def holds(versions: str, version: int) -> bool:
    first, _, last = versions.partition("-")
    if versions.endswith("+"):
        return version >= int(versions[:-1])
    return int(first) <= version <= int(last or first)


class RandomMessage:
    """The bytes of a message by its schema, with values by chance."""

    def __init__(self, seed: int, schema: dict[str, Any], version: int) -> None:
        self.chosen = random.Random(seed)
        self.schema = schema
        self.version = version
        self.flexible = schema["flexibleVersions"] != "none" and holds(schema["flexibleVersions"], version)

    def encode(self) -> bytes:
        return self.fields(self.schema["fields"])

    def fields(self, fields: list[dict[str, Any]]) -> bytes:
        present = [field for field in fields if holds(field["versions"], self.version)]
        tagged = [
            field for field in present if self.flexible and "tag" in field and holds(field["tagged"], self.version)
        ]
        plain = b"".join(self.value(field, field["type"]) for field in present if field not in tagged)
        if not self.flexible:
            return plain
        known = [field for field in tagged if field["name"] not in _TOO_NEW_FIELDS]
        kept = sorted((field for field in known if self.chosen.random() < 0.7), key=lambda field: int(field["tag"]))
        values = [(field["tag"], self.value(field, field["type"])) for field in kept]
        return (
            plain
            + unsigned(len(values))
            + b"".join(unsigned(tag) + unsigned(len(value)) + value for tag, value in values)
        )

    def value(self, field: dict[str, Any], kind: str) -> bytes:
        chosen = self.chosen
        is_nullable = "nullable" in field and holds(field["nullable"], self.version) and kind == field["type"]
        is_null = is_nullable and chosen.random() < 0.3
        if kind.startswith("[]"):
            count = chosen.randrange(3)
            elements = b"".join(self.value(field, kind[2:]) for _ in range(count))
            return self.size(None if is_null else count, ">i") + (b"" if is_null else elements)
        if kind == "bool":
            return bytes([chosen.randrange(2)])
        if kind in _SIZES:
            return chosen.randbytes(_SIZES[kind])
        if kind == "uuid":
            return chosen.randbytes(16)
        if kind == "float64":
            return struct.pack(">d", chosen.choice((0.0, 1024.0, 0.001, 9.9e-4, 1e7, 12345678.9, -2.5e300, 1 / 3)))
        if kind in ("string", "bytes"):
            data = chosen.choice((b"", b"name", 'größe "1"'.encode(), b"\t"))
            form = ">h" if kind == "string" else ">i"
            return self.size(None, form) if is_null else self.size(len(data), form) + data
        body = self.fields(field["fields"])
        if is_nullable:
            return b"\xff" if is_null else b"\1" + body
        return body

    def size(self, number: int | None, form: str) -> bytes:
        if self.flexible:
            return unsigned(0 if number is None else number + 1)
        return struct.pack(form, -1 if number is None else number)


def versions(schema: dict[str, Any]) -> range:
    first, _, last = schema["validVersions"].partition("-")
    return range(int(first), int(last or first) + 1)


def test_every_metadata_record_in_every_version_is_printed_the_same(capfdbinary: Captured, tmp_path: Path) -> None:
    records: list[Record] = []
    for key, entry in schemas()["metadata"].items():
        schema = entry["value"]
        if key in _TOO_NEW:
            continue
        for version in versions(schema):
            for seed in range(4):
                body = RandomMessage(seed, schema, version).encode()
                value = b"\1" + unsigned(int(key)) + unsigned(version) + body
                records.append(Record(len(records), T0, None, value))
    (tmp_path / LOG_NAME).write_bytes(build_batch(records, base_offset=0))
    printed = assert_same(capfdbinary, [tmp_path / LOG_NAME], "--cluster-metadata-decoder")
    assert printed.count('payload: {"type":"') == len(records)


@pytest.mark.parametrize(
    ("topic", "option"),
    [
        ("group", "--offsets-decoder"),
        ("share", "--share-group-state-decoder"),
        ("transaction", "--transaction-log-decoder"),
    ],
)
def test_every_record_of_a_coordinator_in_every_version_is_printed_the_same(
    capfdbinary: Captured, tmp_path: Path, topic: str, option: str
) -> None:
    records: list[Record] = []
    for kind, entry in schemas()[topic].items():
        for version in versions(entry["value"]):
            for seed in range(3):
                key = struct.pack(">h", int(kind)) + RandomMessage(seed, entry["key"], 0).encode()
                value = struct.pack(">h", version) + RandomMessage(seed, entry["value"], version).encode()
                records.append(Record(len(records), T0, key, value))
        records.append(Record(len(records), T0, key, None))
    (tmp_path / LOG_NAME).write_bytes(build_batch(records, base_offset=0))
    printed = assert_same(capfdbinary, [tmp_path / LOG_NAME], option)
    assert printed.count("payload: ") == len(records)


def test_every_control_record_of_kraft_is_printed_the_same(capfdbinary: Captured, tmp_path: Path) -> None:
    names = (
        "LeaderChangeMessage",
        "SnapshotHeaderRecord",
        "SnapshotFooterRecord",
        "KRaftVersionRecord",
        "VotersRecord",
    )
    batches: list[bytes] = []
    for seed in range(4):
        for number, name in enumerate(names, start=2):
            body = RandomMessage(seed, schemas()["control"][name], 0).encode()
            # the tool writes the JSON in the version that the record says, and knows version 0 only
            record = Record(len(batches), T0, struct.pack(">hh", 0, number), b"\0\0" + body[2:])
            batches.append(build_batch([record], base_offset=len(batches), is_control=True))
    snapshot = tmp_path / "00000000000000000123-0000000045.checkpoint"
    bootstrap = tmp_path / "bootstrap.checkpoint"
    for path in (snapshot, bootstrap):
        path.write_bytes(b"".join(batches))
    printed = assert_same(capfdbinary, [snapshot, bootstrap], "--deep-iteration")
    assert "Snapshot end offset: 123, epoch: 45" in printed
    assert "KRaft bootstrap snapshot" in printed
    assert printed.count("KRaftVoters {") == 8


@pytest.mark.parametrize(
    "option", [(), ("--deep-iteration",), ("--print-data-log",), ("--print-data-log", "--skip-record-metadata")]
)
def test_old_messages_are_printed_the_same(capfdbinary: Captured, tmp_path: Path, option: tuple[str, ...]) -> None:
    files = []
    for path in sorted(LEGACY.glob("*.log")):
        target = tmp_path / path.stem / LOG_NAME
        target.parent.mkdir()
        shutil.copy(path, target)
        files.append(target)
    printed = assert_same(capfdbinary, files, *option)
    assert " magic: 0 " in printed
    assert " magic: 1 " in printed


def test_remote_log_metadata_in_several_batches_from_any_offset_is_printed_the_same(
    capfdbinary: Captured, tmp_path: Path
) -> None:
    partition = TopicIdPartition(uuid.UUID(int=7), "orders", 3)
    marked = RemotePartitionDeleteState.DELETE_PARTITION_MARKED
    empty, log = tmp_path / LOG_NAME, tmp_path / "00000000000000000010.log"
    empty.write_bytes(b"")
    values = [encode(RemotePartitionDeleteMetadata(partition, marked, T0 + n, 1)) for n in range(4)]
    log.write_bytes(
        build_batch([Record(10 + n, T0, None, values[n]) for n in range(2)], base_offset=10)
        + build_batch([Record(12 + n, T0, None, values[2 + n]) for n in range(2)], base_offset=12)
    )
    printed = assert_same(capfdbinary, [empty, log], "--remote-log-metadata-decoder")
    assert printed.count("payload: RemotePartitionDeleteMetadata{") == 4
    assert "Log starting offset: 10" in printed


def test_kafkas_own_decoder_classes_print_the_same(capfdbinary: Captured, tmp_path: Path) -> None:
    path = tmp_path / LOG_NAME
    rows = [(struct.pack(">i", n), struct.pack(">q", n * 2**33)) for n in (-5, 0, 2**28)]
    path.write_bytes(build_batch([Record(n, T0, key, value) for n, (key, value) in enumerate(rows)]))
    package = "org.apache.kafka.tools.api."
    for key, value in (("Integer", "Long"), ("String", "Integer"), ("Long", "String")):
        classes = [
            "--key-decoder-class",
            f"{package}{key}Decoder",
            "--value-decoder-class",
            f"{package}{value}Decoder",
        ]
        if key == "Long":
            continue  # four bytes are no long: the tool ends with a stack trace, we tell it in its place
        assert_same(capfdbinary, [path], *classes)


def test_a_file_of_another_kind_is_passed_over_by_both(capfdbinary: Captured, tmp_path: Path) -> None:
    from tests.support.reference_kafka import dump_log

    from stratalog.cli.main import run

    path = tmp_path / LOG_NAME
    path.write_bytes(build_batch([Record(0, T0, None, b"v")]))
    unknown = tmp_path / "notes.txt"
    unknown.write_bytes(b"?")
    assert run(["dump", "--files", f"{unknown},{path}"]) == 2
    ours = capfdbinary.readouterr()
    assert ours.out.decode() == dump_log(["--files", f"{unknown},{path}"])
    assert ours.err.decode().splitlines() == [f"Ignoring unknown file {unknown}"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (0.001, "0.001"),
        (9.99e-4, "9.99E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (1e22, "1.0E22"),
        (123456.75, "123456.75"),
        (-2.5e300, "-2.5E300"),
        (5e-324, "4.9E-324"),
        (float("nan"), '"NaN"'),
        (float("inf"), '"Infinity"'),
        (float("-inf"), '"-Infinity"'),
    ],
)
def test_doubles_are_written_as_java_does(value: float, text: str) -> None:
    assert java_double(value) == text
