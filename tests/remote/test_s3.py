"""The whole tier over a real S3 server: it works, it is down, it is back."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.errors import RetriableRemoteStorageError
from stratalog.inspect.bucket_catalog import list_remote_segments
from stratalog.remote.storage.object_store import ObjectStore
from tests.remote.world import World
from tests.support.s3_server import S3Server, require_s3_server


@pytest.mark.slow
def test_a_partition_lives_through_an_outage_of_its_s3_server(tmp_path: Path) -> None:
    require_s3_server()
    with S3Server(tmp_path / "s3") as s3:
        options = {**s3.options, "max_retries": "0", "timeout_ms": "5000"}
        store = ObjectStore.from_url(s3.url("bucket/some/prefix"), options)
        with World(tmp_path, store=store) as world:
            world.append(40)
            copied = world.tier().copied
            assert copied > 0
            world.drop_local()
            world.expect_everything()
            assert len(list_remote_segments(store, topics=["t"])) == copied

            s3.stop()
            world.append(40)
            with pytest.raises(RetriableRemoteStorageError, match="cannot be reached"):
                world.tier()
            assert world.drop_local() == 0
            world.restart()
            with pytest.raises(RetriableRemoteStorageError, match="cannot be reached"):
                world.manager.read(world.partition, 0, 1_000)

            s3.start()
            world.tier()
            world.drop_local()
            world.expect_everything()
            world.configure(retention_ms=0)
            world.tier()
            assert world.objects() == []
