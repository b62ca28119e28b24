"""Apache Kafka 4.4.0 reads batches that we wrote, and sees what we meant."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.records.golden_cases import CASES, DIRECTORY, written_by_us
from tests.support.reference_jars import BROKER_JARS, ReferenceUnavailableError, classpath, java

from stratalog.records import Codec, ControlType, Record, RecordBatch, build_batch, end_transaction_marker
from stratalog.records.control import parse_control_key

pytestmark = pytest.mark.interop

TIMESTAMP_MS = 1_700_000_000_000


def own_batches() -> dict[str, bytes]:
    """Beyond the golden cases: every codec at several levels, several blocks, incompressible and empty contents."""
    incompressible = bytes(n * n * 31 >> 3 & 0xFF for n in range(200_000))
    records = [
        Record(
            100 + n,
            TIMESTAMP_MS + n,
            None if n % 3 else b"k%d" % n,
            bytes([n % 251]) * (n * 7),
            (("h", None),),
        )
        for n in range(300)
    ]
    records.append(Record(400, TIMESTAMP_MS, b"", incompressible, (("a", b""), ("b", incompressible[:9]))))
    batches = {
        f"{codec.name}-{level}.batch": build_batch(records, base_offset=100, codec=codec, level=level)
        for codec, levels in (
            (Codec.NONE, [None]),
            (Codec.GZIP, [None, 1, 9]),
            (Codec.SNAPPY, [None]),
            (Codec.LZ4, [None, 1, 17]),
            (Codec.ZSTD, [None, 1, 9]),
        )
        for level in levels
    }
    batches["markers.batch"] = b"".join(
        end_transaction_marker(
            kind,
            producer_id=5,
            producer_epoch=2,
            coordinator_epoch=9,
            timestamp_ms=TIMESTAMP_MS,
            base_offset=n,
        )
        for n, kind in enumerate((ControlType.COMMIT, ControlType.ABORT))
    )
    return batches


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    directory = tmp_path_factory.mktemp("batches")
    contents = {f"{name}.batch": written_by_us(name) for name in CASES} | own_batches()
    for name, content in contents.items():
        (directory / name).write_bytes(content)
    return {name: directory / name for name in contents}


@pytest.fixture(scope="module")
def kafkas_view(files: dict[str, Path]) -> dict[str, list[dict[str, Any]]]:
    """What Kafka reads from each file, in one JVM."""
    try:
        command = [
            java(),
            "-Xmx256m",
            "-cp",
            classpath(BROKER_JARS),
            str(DIRECTORY / "RecordBatches.java"),
            "read",
        ]
    except ReferenceUnavailableError as error:
        pytest.skip(f"KAFKA DID NOT CHECK OUR BATCHES: {error}")
    done = subprocess.run([*command, *map(str, files.values())], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    view: dict[str, list[dict[str, Any]]] = json.loads(done.stdout)
    return view


def _own_view(data: bytes) -> list[dict[str, Any]]:
    """The same from our own reader, in the shape that the Java program prints."""
    batches = []
    position = 0
    while position < len(data):
        batch = RecordBatch(data, position)
        position += batch.size
        view: dict[str, Any] = {
            name: getattr(batch, name)
            for name in (
                "base_offset",
                "last_offset",
                "size",
                "partition_leader_epoch",
                "timestamp_type",
                "max_timestamp",
                "producer_id",
                "producer_epoch",
                "base_sequence",
                "last_sequence",
                "is_transactional",
                "is_control",
                "crc",
            )
        }
        view["codec"] = batch.codec_name
        if batch.delete_horizon_ms is not None:
            view["delete_horizon_ms"] = batch.delete_horizon_ms
        view["records"] = [_row(record, is_control=batch.is_control) for record in batch.records()]
        batches.append(view)
    return batches


def _row(record: Record, *, is_control: bool) -> dict[str, Any]:
    row: dict[str, Any] = {
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "sequence": record.sequence,
        "key": _hex(record.key),
        "value": _hex(record.value),
        "headers": [[key, _hex(value)] for key, value in record.headers],
    }
    if is_control:
        row["control_type"] = parse_control_key(record.key).name
    return row


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


@pytest.mark.parametrize("name", [f"{name}.batch" for name in CASES] + list(own_batches()))
def test_kafka_sees_what_we_wrote(
    name: str, files: dict[str, Path], kafkas_view: dict[str, list[dict[str, Any]]]
) -> None:
    assert kafkas_view[name] == _own_view(files[name].read_bytes())
