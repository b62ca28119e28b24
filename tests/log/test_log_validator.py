"""Good and bad appends: the bytes that Kafka's log writes, or its error with the same records at fault."""

from __future__ import annotations

import json
from base64 import b64decode
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stratalog.config.topic import LogConfig
from stratalog.errors import KafkaError
from stratalog.log.append import validation
from stratalog.log.append.preparation import AppendRules, prepare_leader_append
from stratalog.records import batch_format as fmt, record_scan
from stratalog.records.batch import RecordBatch
from stratalog.records.batch_builder import build_batch
from stratalog.records.compression import Codec
from stratalog.records.record import Record

GOLDEN = Path(__file__).parents[1] / "golden" / "validator"
INPUT = json.loads((GOLDEN / "cases.json").read_text(encoding="utf-8"))
ANSWERS: dict[str, dict[str, Any]] = json.loads((GOLDEN / "answers.json").read_text(encoding="utf-8"))
CASES: dict[str, dict[str, Any]] = {case["name"]: case for case in INPUT["cases"]}

#: What a client gets instead of an error of Kafka's that no one meant (UNKNOWN_SERVER_ERROR): records that its reader
#: stumbles over, or that it means to rewrite and cannot.
FAILS_IN_KAFKA = -1
#: Refused here and taken by Kafka, by the end of the records' name: every consumer would fail on them, or lose its
#: place.
STRICTER = {
    "records-length-short": "a compressed record's length that is not that of its fields",
    "records-length-long": "the same",
    "records-offset-huge": "an offset that is none of the batch's: consumers go on behind it",
    "records-offset-negative": "the same",
}
#: Kafka's log drops bytes that are no whole batch; Produce has said before that there has to be one. Here it is one
#: check.
NO_BATCH = ("v2-bytes-cut", "v2-bytes-short", "v2-bytes-header-alone", "v2-bytes-length-beyond")
#: Kafka has no error code for these, ours has.
UNKNOWN_CODEC = ("v2-bytes-codec-5", "v2-bytes-codec-7")


def outcome(name: str, *, validate_records: bool = True) -> dict[str, Any]:
    """What our append makes of a case, in the words of `answers.json`."""
    case = CASES[name]
    config = replace(LogConfig.from_properties(dict(case["config"])), validate_records=validate_records)
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


def assert_as_meant(name: str, ours: dict[str, Any]) -> None:
    """Where Kafka fails with an error that says nothing."""
    records = CASES[name]["records"]
    if records.endswith("timestamp-before-epoch"):
        assert "error" not in ours  # Kafka cannot rewrite such a timestamp
    elif records in UNKNOWN_CODEC:
        assert ours == {"error": 76}
    elif "-payload-" in records:
        assert ours == {"error": FAILS_IN_KAFKA}
    else:
        assert ours == {"error": 87}


@pytest.mark.parametrize("native", [True, False], ids=["native", "plain"])
@pytest.mark.parametrize("records", INPUT["records"])
def test_an_append_ends_as_in_kafka(records: str, native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if native:
        record_scan.load_native()
    else:
        monkeypatch.setattr(record_scan, "_native", None)
        monkeypatch.setattr(record_scan, "_loading", True)
    for name, case in CASES.items():
        if case["records"] != records:
            continue
        ours, kafkas = outcome(name), ANSWERS[name]
        if records.endswith(tuple(STRICTER)) or records in NO_BATCH:
            assert ours == {"error": 87}, name
        elif kafkas.get("error") == FAILS_IN_KAFKA:
            assert_as_meant(name, ours)
        else:
            assert_same(name, ours, kafkas)


def test_with_the_header_alone_records_are_not_looked_at() -> None:
    """`stratalog.produce.validation=header`: what the header says counts, unless a rule of the topic reads the
    records."""
    for name, case in CASES.items():
        if not case["records"].endswith(("max-too-small", "more-records-than-counted")):
            continue
        ours = outcome(name, validate_records=False)
        rules = AppendRules.of(LogConfig.from_properties(dict(case["config"])))
        given = b64decode(INPUT["records"][case["records"]])
        if rules.read_records or rules.codec not in (None, RecordBatch(given).codec):
            assert_same(name, ours, ANSWERS[name])
        else:
            assert ours["written"][fmt.HEADER_SIZE :] == given[fmt.HEADER_SIZE :]


def test_every_case_has_its_answer() -> None:
    assert sorted(CASES) == sorted(ANSWERS)
    assert len(CASES) > 1_000


@pytest.mark.parametrize(
    ("configs", "is_read"),
    [({"cleanup.policy": "compact"}, False), ({"message.timestamp.before.max.ms": "1000"}, True)],
)
def test_own_records_are_read_again_only_where_a_rule_asks(
    monkeypatch: pytest.MonkeyPatch, configs: dict[str, str], is_read: bool
) -> None:
    scanned: list[RecordBatch] = []
    real = record_scan.scan_records

    def scan(batch: RecordBatch) -> record_scan.RecordFacts:
        scanned.append(batch)
        return real(batch)

    monkeypatch.setattr(validation, "scan_records", scan)
    prepared = prepare_leader_append(
        build_batch([Record(0, 5_000, b"k", b"v")]),
        AppendRules.of(LogConfig.from_properties(configs)),
        origin="coordinator",
        next_offset=0,
        leader_epoch=0,
        now_ms=5_000,
    )
    assert prepared.max_timestamp == 5_000
    assert bool(scanned) is is_read
