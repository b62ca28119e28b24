"""The cases of `tests/golden/records/cases.json`, and what `build_batch` needs to write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stratalog.records import Codec, ControlType, Record, build_batch, end_transaction_marker

DIRECTORY = Path(__file__).parents[1] / "golden" / "records"
CASES: dict[str, dict[str, Any]] = {
    case["name"]: case for case in json.loads((DIRECTORY / "cases.json").read_text(encoding="utf-8"))
}
UNCOMPRESSED = [name for name, case in CASES.items() if "codec" not in case]


def written_by_kafka(name: str) -> bytes:
    return (DIRECTORY / f"{name}.batch").read_bytes()


def _content(node: Any) -> bytes | None:
    if node is None:
        return None
    text: str = node[0] * node[1] if isinstance(node, list) else node
    return text.encode()


def records_of(name: str) -> list[Record]:
    """The records of a case as a reader should see them: append time and sequences filled in."""
    case = CASES[name]
    base_offset = case.get("base_offset", 0)
    base_sequence = case.get("base_sequence", -1)
    return [
        Record(
            record["offset"],
            case.get("log_append_time_ms", record["timestamp_ms"]),
            _content(record["key"]),
            _content(record["value"]),
            tuple((key, _content(value)) for key, value in record.get("headers", ())),
            (base_sequence + record["offset"] - base_offset) % 2**31 if base_sequence >= 0 else -1,
        )
        for record in case["records"]
    ]


def written_by_us(name: str) -> bytes:
    case = CASES[name]
    if marker := case.get("end_transaction"):
        return end_transaction_marker(
            ControlType[marker["type"]],
            producer_id=case["producer_id"],
            producer_epoch=case["producer_epoch"],
            coordinator_epoch=marker["coordinator_epoch"],
            timestamp_ms=marker["timestamp_ms"],
            base_offset=case["base_offset"],
            partition_leader_epoch=case["partition_leader_epoch"],
        )
    options = {key: value for key, value in case.items() if key not in ("name", "codec", "records")}
    original = [
        Record(record.offset, source["timestamp_ms"], record.key, record.value, record.headers)
        for record, source in zip(records_of(name), case["records"], strict=True)
    ]
    return build_batch(original, codec=Codec.from_name(case.get("codec", "none")), **options)
