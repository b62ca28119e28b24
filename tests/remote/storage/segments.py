"""Segments of random bytes for tests of storage."""

from __future__ import annotations

import os
import random
from pathlib import Path

from stratalog.remote.api.interfaces import LogSegmentData, RemoteLogSegmentMetadata
from stratalog.remote.storage.manifest import BLOCK_BYTES
from stratalog.remote.storage.object_names import ObjectKind
from tests.remote.values import segment

SIZE = 2 * BLOCK_BYTES + 777


def make_segment(
    directory: Path, number: int = 1, size: int = SIZE
) -> tuple[RemoteLogSegmentMetadata, LogSegmentData, dict[ObjectKind, bytes]]:
    """Metadata, files, and their contents: bytes of which half can be compressed, different for each segment."""
    directory.mkdir(parents=True, exist_ok=True)
    random_bytes = random.Random(number).randbytes(4096)
    records = (random_bytes + b"compressible " * 315)[: 2 * 4096] * (size // 8000 + 1)
    contents = {
        ObjectKind.LOG: records[:size],
        ObjectKind.OFFSET_INDEX: os.urandom(800),
        ObjectKind.TIME_INDEX: os.urandom(800),
        ObjectKind.TXN_INDEX: os.urandom(34),
        ObjectKind.PRODUCER_SNAPSHOT: b"",
        ObjectKind.LEADER_EPOCHS: b"0\n1\n0 0\n",
    }
    paths = {kind: directory / f"{number}.{kind.value}" for kind in contents}
    for kind, content in contents.items():
        paths[kind].write_bytes(content)
    data = LogSegmentData(
        log_segment=paths[ObjectKind.LOG],
        offset_index=paths[ObjectKind.OFFSET_INDEX],
        time_index=paths[ObjectKind.TIME_INDEX],
        transaction_index=paths[ObjectKind.TXN_INDEX],
        producer_snapshot_index=paths[ObjectKind.PRODUCER_SNAPSHOT],
        leader_epoch_index=contents[ObjectKind.LEADER_EPOCHS],
        topic_config={"retention.ms": "1000"},
        partition_count=4,
    )
    return segment(number, 100 * number, 100 * number + 99, size=size, txn_index_empty=False), data, contents
