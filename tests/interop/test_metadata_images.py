"""Metadata records are Kafka's byte for byte, and make the image that Kafka's `MetadataDelta` makes of them."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from stratalog.broker.cluster.image import MetadataImage
from stratalog.broker.cluster.image_records import image_records
from stratalog.wire.metadata_records import decode_metadata_record, encode_metadata_record
from stratalog.wire.metadata_records.definitions import RECORDS
from tests.broker.cluster.metadata_histories import History, any_record, rebuilt
from tests.support.reference_jars import BROKER_JARS, classpath, java
from tests.support.reference_kafka import require_reference_kafka

pytestmark = pytest.mark.interop

PROGRAM = Path(__file__).parent / "MetadataImages.java"
HISTORIES = 150
DELTAS = 40


def ask_kafka(lines: list[str], *arguments: str) -> list[str]:
    require_reference_kafka()
    command = [java(), "-XX:+UseSerialGC", "-cp", classpath(BROKER_JARS), str(PROGRAM), *arguments]
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
