"""Golden files of conversations: the answers by step, and the records that the broker stored, in hexadecimal."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.support.consumer_offsets import StoredRecord, stored_records
from tests.support.reference_kafka import ReferenceKafka


def as_json(answers: Mapping[str, Any]) -> dict[str, Any]:
    """Return answers as they are read back from a file: without tuples, with text as keys."""
    found: dict[str, Any] = json.loads(json.dumps(answers))
    return found


def write_answers(path: Path, answers: Mapping[str, Any]) -> None:
    """Write one line for each step."""
    lines = ",\n".join(f"{json.dumps(step)}: {json.dumps(answer)}" for step, answer in answers.items())
    path.write_text(f"{{\n{lines}\n}}\n")


def write_records(path: Path, records: Iterable[StoredRecord], *, partitions: bool = True) -> None:
    """Write one line for each record: [partition, key, value or null], or without the partition."""
    rows = [[partition, key.hex(), None if value is None else value.hex()] for partition, key, value in records]
    lines = ",\n".join(json.dumps(row if partitions else row[1:]) for row in rows)
    path.write_text(f"[\n{lines}\n]\n")


def read_records(path: Path) -> list[tuple[bytes, bytes | None]]:
    """Return the keys and values of a file of `write_records`."""
    rows = (row[-2:] for row in json.loads(path.read_text()))
    return [(bytes.fromhex(key), None if value is None else bytes.fromhex(value)) for key, value in rows]


def play_to_kafka(
    run: Callable[[str], dict[str, Any]], config: Mapping[str, str], topic: str = "__consumer_offsets"
) -> tuple[dict[str, Any], list[StoredRecord]]:
    """Return what Kafka answered to a conversation, and the records of `topic` behind it."""
    with tempfile.TemporaryDirectory() as directory:
        with ReferenceKafka(directory, config=dict(config)) as kafka:
            answers = run(kafka.bootstrap_servers)
        return answers, stored_records(kafka.data_dir, topic)
