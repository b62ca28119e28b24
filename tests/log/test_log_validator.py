"""Good and bad appends: the bytes that Kafka's log writes, or its error with the same records at fault."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from stratalog.config.topic import LogConfig
from stratalog.errors import KafkaError
from stratalog.log.append import AppendRules, prepare_leader_append
from stratalog.records import batch_format as fmt
from stratalog.records.batch import RecordBatch
from stratalog.records.compression import Codec

GOLDEN = Path(__file__).parents[1] / "golden" / "validator"
INPUT = json.loads((GOLDEN / "cases.json").read_text(encoding="utf-8"))
ANSWERS: dict[str, dict[str, Any]] = json.loads((GOLDEN / "answers.json").read_text(encoding="utf-8"))
CASES: dict[str, dict[str, Any]] = {case["name"]: case for case in INPUT["cases"]}

#: Where ours trusts the header of a client's batch instead of reading its records, and so takes what Kafka refuses, or
#: keeps what Kafka corrects: by the end of the records' name.
HEADER_TRUSTED = (
    "max-too-large",
    "max-too-small",
    "inner-offsets",
    "more-records-than-counted",
    "fewer-records-than-counted",
)
#: Compressed records that are not numbered one by one: Kafka means to write them anew, and stumbles.
FAILS_IN_KAFKA = -1


def outcome(name: str) -> dict[str, Any]:
    """What our append makes of a case, in the words of `answers.json`."""
    case = CASES[name]
    config = LogConfig.from_properties(dict(case["config"]))
    origin = case.get("origin", "CLIENT").lower()
    try:
        prepared = prepare_leader_append(
            b64decode(INPUT["records"][case["records"]]),
            AppendRules.of(config),
            origin=origin,
            next_offset=1_000,
            leader_epoch=7,
            now_ms=INPUT["now_ms"],
        )
    except KafkaError as error:
        failed: dict[str, Any] = {"error": error.code}
        if error.record_errors:
            failed["record_errors"] = [record.batch_index for record in error.record_errors]
        return failed
    return {
        "first_offset": prepared.batches[0].base_offset,
        "last_offset": prepared.batches[-1].last_offset,
        "max_timestamp": prepared.max_timestamp,
        "log_append_time": prepared.log_append_time,
        "written": b"".join(bytes(part) for part in prepared.parts),
    }


def comparable(data: bytes) -> object:
    """The bytes; of a compressed batch everything but what the compression library decides on."""
    batch = RecordBatch(data)
    batch.ensure_valid()
    assert batch.size == len(data)
    if batch.codec is Codec.NONE:
        return data
    header = list(fmt.HEADER.unpack_from(data))
    header[1] = header[4] = 0  # length and CRC
    return header, bytes(batch.decompressed_payload())


def assert_same(name: str, ours: dict[str, Any], kafkas: dict[str, Any]) -> None:
    if "error" in kafkas:
        assert ours.get("error") == kafkas["error"], (ours, kafkas)
        assert ours.get("record_errors") == kafkas.get("record_errors")
        return
    assert "error" not in ours, (ours, kafkas)
    written = b64decode(kafkas["written"])
    given = b64decode(INPUT["records"][CASES[name]["records"]])
    if given[fmt.HEADER_SIZE :] == written[fmt.HEADER_SIZE :]:  # stored as it came
        assert ours["written"] == written
    else:
        assert comparable(ours["written"]) == comparable(written)
    for key in ("first_offset", "last_offset", "max_timestamp", "log_append_time"):
        assert ours[key] == kafkas[key], key


def trusts_header(case: dict[str, Any]) -> bool:
    """Whether nothing about this append makes the records of a batch be read."""
    batch = RecordBatch(b64decode(INPUT["records"][case["records"]]))
    rules = AppendRules.of(LogConfig.from_properties(dict(case["config"])))
    return not rules.read_records and rules.codec in (None, batch.codec)


@pytest.mark.parametrize("records", INPUT["records"])
def test_an_append_ends_as_in_kafka(records: str) -> None:
    for name, case in CASES.items():
        if case["records"] != records:
            continue
        ours = outcome(name)
        if records.endswith(HEADER_TRUSTED) and trusts_header(case):
            assert (
                ours["written"][fmt.HEADER_SIZE :] == b64decode(INPUT["records"][records])[fmt.HEADER_SIZE :]
            )
        elif ANSWERS[name].get("error") == FAILS_IN_KAFKA:
            assert [record.offset for record in RecordBatch(ours["written"]).records()] == [
                1_000,
                1_001,
                1_002,
            ]
        else:
            assert_same(name, ours, ANSWERS[name])


def test_every_case_has_its_answer() -> None:
    assert sorted(CASES) == sorted(ANSWERS)
    assert len(CASES) > 1_000
    failing = {
        case["records"] for name, case in CASES.items() if ANSWERS[name].get("error") == FAILS_IN_KAFKA
    }
    assert all(records.endswith("-inner-offsets") for records in failing)
