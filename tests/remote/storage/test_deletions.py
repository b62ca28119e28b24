"""Many objects go by few requests on a real S3 server, in the order that readers rely on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from stratalog.errors import RemoteResourceNotFoundError
from stratalog.remote.storage.object_store import ObjectStore
from stratalog.remote.storage.rsm import ObjectStoreRemoteStorageManager
from stratalog.testing.faulty_store import FaultPlan, FaultyObjectStore
from tests.remote.world import World
from tests.support.s3_server import S3Server, require_s3_server


@pytest.fixture(scope="module", params=["memory", "directory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    if request.param == "memory":
        yield ObjectStore.from_url("memory:///")
    elif request.param == "directory":
        yield ObjectStore.from_url(tmp_path_factory.mktemp("store").as_uri())
    else:
        require_s3_server()
        with S3Server(tmp_path_factory.mktemp("s3")) as server:
            yield ObjectStore.from_url(server.url("bucket/prefix"), server.options)


def test_objects_go_together_and_missing_ones_are_no_error(store: ObjectStore) -> None:
    keys = [f"dir/object {number}+%.log" for number in range(30)]
    for key in keys:
        store.put(key, b"x")
    store.put("dir/stays", b"x")
    store.delete_together([*keys, "dir/never there"])
    assert [info.key for info in store.list("dir")] == ["dir/stays"]
    store.delete_together(keys)
    store.delete_together([])
    with pytest.raises(RemoteResourceNotFoundError):
        store.head(keys[0])


class Requests(FaultyObjectStore):
    """Counts deletions by request."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner, FaultPlan())
        self.deletions: list[list[str]] = []

    def delete(self, keys: Sequence[str]) -> None:
        self.deletions += [[key] for key in keys]
        self.inner.delete(keys)

    def delete_together(self, keys: Sequence[str]) -> None:
        self.deletions.append(list(keys))
        self.inner.delete_together(keys)


def test_a_segment_goes_manifest_first_and_its_contents_by_one_request(tmp_path: Path) -> None:
    requests = Requests(ObjectStore.from_url("memory:///"))
    with World(tmp_path, store=requests.inner) as world:
        world.append(20)
        world.tier()
        segment = world.rlmm.list_remote_log_segments(world.partition)[0]
        there = len(list(requests.inner.list()))
        ObjectStoreRemoteStorageManager(requests, deadline_ms=20_000).delete_log_segment_data(segment)
        assert len(list(requests.inner.list())) < there
    first, _, contents, last = requests.deletions
    assert first[0].endswith(".manifest.json")
    assert len(contents) >= 6
    assert last[0].endswith(".replaced.json")
