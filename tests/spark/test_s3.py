"""The remote tier on a real S3 server."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.errors import RemoteStorageError
from stratalog.remote.storage.object_store import ObjectStore
from tests.spark.partitions import Partition, expected_row, scan, steady
from tests.support.s3_server import S3Server, require_s3_server


def test_segments_in_s3(tmp_path: Path) -> None:
    require_s3_server()
    partition = Partition(tmp_path / "data", index_interval=1000)
    bases = [partition.segment(steady(100, value_size=200)) for _ in range(3)]
    with S3Server(tmp_path / "s3") as s3:
        url = s3.url("bucket/tiered")
        store = ObjectStore.from_url(url, s3.options)
        for base in bases[:2]:
            partition.upload_to(store, base)
        partition.drop_local(bases[0])
        options = {f"remote__{name}": value for name, value in s3.options.items()}
        found = scan(
            path=tmp_path / "data",
            remote=url,
            subscribe="orders",
            includeHeaders="true",
            splitBytes="20k",
            **options,
        )
        assert found.rows == [expected_row(partition, each) for each in partition.records]
        assert len(found.plans) > 8
    gone = {"remote__timeout_ms": "500", "remote__max_retries": "0"}
    with pytest.raises(RemoteStorageError, match=url):
        scan(remote=url, subscribe="orders", **(options | gone))
