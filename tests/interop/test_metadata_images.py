"""Metadata records are Kafka's byte for byte, and make the image that Kafka's `MetadataDelta` makes of them."""

from __future__ import annotations

import importlib
import random
import subprocess
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from stratalog.broker.cluster.delta import MetadataDelta
from stratalog.broker.cluster.image import MetadataImage
from stratalog.broker.cluster.image_records import image_records
from stratalog.broker.cluster.local_changes import local_changes
from stratalog.broker.cluster.snapshot import encode_snapshot
from stratalog.wire import make_message
from stratalog.wire.metadata_records import control_class, decode_metadata_record, encode_metadata_record
from stratalog.wire.metadata_records.definitions import RECORDS
from tests.broker.cluster.metadata_histories import History, any_record, rebuilt
from tests.support.reference_jars import BROKER_JARS, SHORT_LIVED, classpath, java
from tests.support.reference_kafka import dump_log, require_reference_kafka

pytestmark = pytest.mark.interop

PROGRAM = Path(__file__).parent / "MetadataImages.java"
HISTORIES = 150
DELTAS = 40


def ask_kafka(lines: list[str], *arguments: str) -> list[str]:
    require_reference_kafka()
    command = [java(), *SHORT_LIVED, "-cp", classpath(BROKER_JARS), str(PROGRAM), *arguments]
    done = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def image_of(line: str) -> MetadataImage:
    assert not line.startswith("refused"), line
    return rebuilt([decode_metadata_record(bytes.fromhex(word)) for word in line.split()])


def test_records_of_all_versions_are_kafkas() -> None:
    written = [
        " ".join(
            encode_metadata_record(any_record(random.Random(seed), cls, version), version).hex() for seed in range(30)
        )
        for cls, newest in RECORDS.values()
        for version in range(newest + 1)
    ]
    assert ask_kafka(written, "again") == written


def test_the_same_records_make_the_same_image() -> None:
    histories = [History(seed) for seed in range(HISTORIES)]
    for each in histories:
        each.go_on(DELTAS)
    answers = ask_kafka([each.as_hex() for each in histories])
    for seed, (history, answer) in enumerate(zip(histories, answers, strict=True)):
        assert rebuilt(list(image_records(history.image))) == image_of(answer), f"seed {seed}"


def test_kafka_reads_the_records_of_our_images() -> None:
    histories = [History(seed) for seed in range(HISTORIES)]
    for each in histories:
        each.go_on(DELTAS)
    images = [rebuilt(list(image_records(each.image))) for each in histories]
    lines = [" ".join(encode_metadata_record(*record).hex() for record in image_records(each)) for each in images]
    for seed, (image, answer) in enumerate(zip(images, ask_kafka(lines), strict=True)):
        assert image_of(answer) == image, f"seed {seed}"


@pytest.mark.parametrize("broker", [2])
def test_a_delta_changes_the_same_local_replicas(broker: int) -> None:
    histories = [History(seed) for seed in range(HISTORIES)]
    for each in histories:
        each.go_on(DELTAS)
    answers = ask_kafka([each.as_hex() for each in histories], "local", str(broker))
    for seed, (history, answer) in enumerate(zip(histories, answers, strict=True)):
        assert _local_changes(history, broker) == set(filter(None, answer.split(","))), f"seed {seed}"


def _local_changes(history: History, broker: int) -> set[str]:
    """Return the changes as `MetadataImages.java` prints them."""
    image, found = MetadataImage(), set()
    for number, records in enumerate(history.deltas):
        delta = MetadataDelta(image)
        for framed in records:
            delta.replay(framed.record)
        image = delta.apply(0, 0)
        changes = local_changes(delta, image, broker)
        found |= {f"delete {each.topic}-{each.partition} {number}" for each in changes.deletes}
        found |= {f"elected {each.topic}-{each.partition} {number}" for each in changes.elected}
        found |= {f"follow {each.topic}-{each.partition} {number}" for each in changes.followers}
        for key, partition in changes.leaders.items():
            found.add(f"lead {key.topic}-{key.partition} {number} {partition.leader_epoch}")
    return found


def test_kafka_reads_a_snapshot_that_we_write(tmp_path: Path) -> None:
    require_reference_kafka()
    history = History(5)
    history.go_on(DELTAS)
    endpoint = make_message(_part("Endpoint"), {"name": "CONTROLLER", "host": "c", "port": 9093})
    levels = make_message(_part("KRaftVersionFeature"), {"max_supported_version": 1})
    voter = {
        "voter_id": 100,
        "voter_directory_id": UUID(int=7),
        "endpoints": [endpoint],
        "k_raft_version_feature": levels,
    }
    voters = make_message(control_class(6), {"voters": [make_message(_part("Voter"), voter)]})
    data = encode_snapshot(history.image, kraft_version=1, voters=voters, timestamp_ms=1_700_000_000_000)
    path = tmp_path / f"{history.image.offset + 1:020d}-{1:010d}.checkpoint"
    path.write_bytes(data)
    text = dump_log(["--cluster-metadata-decoder", "--files", str(path)])
    for name in ("SnapshotHeader", "KRaftVersion", "KRaftVoters", "SnapshotFooter"):
        assert name in text
    assert "isvalid: false" not in text
    assert text.count('"type":"') == len(list(image_records(history.image)))


def _part(name: str) -> Any:
    return getattr(importlib.import_module("kio.schema.voters_record.v0.data"), name)
