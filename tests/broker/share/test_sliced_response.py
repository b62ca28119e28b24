"""A response whose records are sent from files has the bytes of one that holds them."""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from stratalog.broker.server import RecordSlices
from stratalog.broker.server.sliced_response import write_sliced
from stratalog.log.format import FileSlice
from stratalog.util import REAL_FILESYSTEM
from stratalog.wire import ApiKey, make_message, message_module, response_class, write_message, write_response


def response(version: int, records: list[bytes], order: list[int]) -> Any:
    """Return a response with a partition for each of `records`, in another order, over two topics."""
    module = message_module(ApiKey.SHARE_FETCH, version, "response")
    leader = make_message(module.LeaderIdAndEpoch, {"leader_id": 1, "leader_epoch": 2})
    partitions = [
        make_message(module.PartitionData, {"partition_index": at, "current_leader": leader, "records": records[at]})
        for at in order
    ]
    topics = [
        make_message(module.ShareFetchableTopicResponse, {"topic_id": UUID(int=number), "partitions": part})
        for number, part in enumerate((partitions[:2], partitions[2:]))
    ]
    fields = {"error_code": 0, "acquisition_lock_timeout": 5, "responses": topics, "node_endpoints": []}
    return make_message(response_class(ApiKey.SHARE_FETCH, version), fields)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("seed", range(6))
def test_the_bytes_are_those_of_a_whole_response(tmp_path: Path, version: int, seed: int) -> None:
    rng = random.Random(seed)
    sizes = [rng.choice((0, 1, 14, 15, 16, 126, 127, 128, 16_382, 16_383, 70_000)) for _ in range(5)]
    records = [rng.randbytes(size) for size in sizes]
    path = tmp_path / "records"
    path.write_bytes(b"".join(records))
    order = rng.sample(range(5), 5)
    with closing(REAL_FILESYSTEM.open(path)) as file:
        parts = [FileSlice(file, sum(sizes[:at]), size) for at, size in enumerate(sizes)]
        slices = RecordSlices()
        marked = [slices.mark(part if rng.random() < 0.7 else each) for part, each in zip(parts, records, strict=True)]
        sliced = slices.response(response(version, marked, order))
        first, rest = write_sliced(ApiKey.SHARE_FETCH, 7, sliced)
        sent = first + b"".join(bytes(each.read() if isinstance(each, FileSlice) else each) for each in rest)
    whole = response(version, records, order)
    assert sent == write_response(ApiKey.SHARE_FETCH, 7, whole)
    assert sliced.body_size == len(write_message(whole))
