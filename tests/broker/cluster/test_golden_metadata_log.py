"""A metadata log and a snapshot of a real cluster: written again byte for byte, and the image that Kafka made."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker.cluster.metadata_histories import rebuilt

from stratalog.broker.cluster.image import MetadataImage
from stratalog.broker.cluster.image_records import image_records
from stratalog.broker.cluster.loader import ImageLoader
from stratalog.broker.cluster.metadata_batches import decode_batches
from stratalog.records import Record, build_batch, iter_batches
from stratalog.wire.metadata_records import decode_metadata_record, encode_metadata_record

GOLDEN = Path(__file__).parents[2] / "golden" / "metadata_log"
FILES = sorted([*GOLDEN.glob("*.log"), *GOLDEN.glob("*.checkpoint")])


def test_the_files_are_there() -> None:
    assert {path.suffix for path in FILES} == {".log", ".checkpoint"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.suffix)
def test_batches_are_written_again_byte_for_byte(path: Path) -> None:
    for batch in iter_batches(path.read_bytes()):
        if batch.is_control:
            continue
        again = [
            Record(each.offset, each.timestamp_ms, each.key, _again(each.value or b""), each.headers)
            for each in batch.records()
        ]
        written = build_batch(again, base_offset=batch.base_offset, partition_leader_epoch=batch.partition_leader_epoch)
        assert written == bytes(batch.as_memoryview()), batch


def _again(value: bytes) -> bytes:
    return encode_metadata_record(*decode_metadata_record(value))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.suffix)
def test_the_image_is_kafkas(path: Path) -> None:
    loader = ImageLoader(lambda _delta, _image: None)
    for batch in decode_batches(path.read_bytes()):
        loader.load(batch)
    lines = path.with_suffix(".image.txt").read_text().split()
    kafkas = rebuilt([decode_metadata_record(bytes.fromhex(line)) for line in lines])
    assert rebuilt(list(image_records(loader.image))) == kafkas
    assert kafkas != MetadataImage()
    assert len(kafkas.topics) > 1
