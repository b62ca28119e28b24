"""Bulk jobs to one topic at the same time on a real S3 server, which decides who is published first."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from stratalog.inspect.bucket_catalog import list_remote_segments
from stratalog.records.columns import decode_columns
from stratalog.remote.storage.object_store import ObjectStore
from stratalog.remote.transactions import bucket_transaction
from stratalog.spark.sink.options import SinkOptions
from stratalog.spark.sink.writer import BulkWriter
from tests.spark.sink.test_targets import SCHEMA, rows
from tests.support.s3_server import S3Server, require_s3_server


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    require_s3_server()
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


def test_jobs_that_overlap_lie_one_behind_the_other(s3: S3Server) -> None:
    """Each job's rows are together, behind those of another, and no offset is there twice or missing."""
    url = s3.url("jobs/tiered")
    remote = {f"remote.{name}": value for name, value in s3.options.items()}
    options = SinkOptions.parse({"remote": url, "topic": "t", **remote})
    store = ObjectStore.from_url(url, s3.options)
    store.put("there", b"")  # makes the bucket
    before = BulkWriter(options, SCHEMA, overwrite=False)
    before.commit([before.write(iter([rows(["before"])]))])
    jobs = [BulkWriter(options, SCHEMA, overwrite=False) for _ in range(5)]
    staged = [
        [job.write(iter([rows([f"{number}-{task}-{n}" for n in range(3)])])) for task in range(2)]
        for number, job in enumerate(jobs)
    ]
    with ThreadPoolExecutor(len(jobs)) as pool:
        for done in [pool.submit(job.commit, list(tasks)) for job, tasks in zip(jobs, staged, strict=True)]:
            done.result()
    found: list[tuple[int, bytes]] = []
    for manifest in list_remote_segments(store, covered=True):
        decoded = decode_columns(bytes(store.get(manifest.key())), columns=["offset", "value"])
        found += zip(decoded.column("offset").to_pylist(), decoded.column("value").to_pylist(), strict=True)
    assert [offset for offset, _ in found] == list(range(31))
    values = [value.decode() for _, value in found[1:]]
    expected = [[f"{number}-{task}-{n}" for task in range(2) for n in range(3)] for number in range(5)]
    assert sorted(values[start : start + 6] for start in range(0, 30, 6)) == expected
    assert bucket_transaction.read_publications(store) == []


def test_the_server_lets_one_of_two_have_a_turn(s3: S3Server) -> None:
    store = ObjectStore.from_url(s3.url("turns/tiered"), s3.options)
    store.put("there", b"")  # makes the bucket
    turn = bucket_transaction.next_turn(store)
    bucket_transaction.publish(store, "first", [], turn=turn)
    with pytest.raises(bucket_transaction.OvertakenError, match="another job was published first"):
        bucket_transaction.publish(store, "second", [], turn=turn)
