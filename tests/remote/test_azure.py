"""Azure's object store, spoken to over the wire: a storage plugin's contract, and a partition's life."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stratalog.errors import RemoteStorageError
from stratalog.inspect.bucket_catalog import list_remote_segments
from stratalog.remote.storage.object_store import ObjectStore
from stratalog.remote.storage.rsm import ObjectStoreRemoteStorageManager
from stratalog.testing.remote_storage_contract import RemoteStorageManagerContract
from tests.remote.world import World
from tests.support.azure_server import AzureServer, require_azure_server

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureServer]:
    require_azure_server()
    with AzureServer(tmp_path_factory.mktemp("azure")) as server:
        yield server


class TestContract(RemoteStorageManagerContract):
    @pytest.fixture(autouse=True)
    def _azure(self, azure: AzureServer) -> None:
        self.azure = azure

    def make_plugin(self, tmp_path: Path) -> ObjectStoreRemoteStorageManager:
        plugin = ObjectStoreRemoteStorageManager()
        plugin.configure({"url": self.azure.url(tmp_path.name), **self.azure.options})
        return plugin


def test_a_partition_is_copied_read_listed_and_deleted(azure: AzureServer, tmp_path: Path) -> None:
    store = ObjectStore.from_url(azure.url("some/prefix"), azure.options)
    store.check()
    with World(tmp_path, store=store) as world:
        world.append(40)
        copied = world.tier().copied
        assert copied > 0
        world.drop_local()
        world.expect_everything()
        assert len(list_remote_segments(store, topics=["t"])) == copied
        world.restart()
        world.expect_everything()
        world.configure(retention_ms=0)
        world.tier()
        assert world.objects() == []


def test_a_container_that_is_not_there_is_named(azure: AzureServer) -> None:
    store = ObjectStore.from_url(azure.url("prefix", container="missing"), azure.options)
    with pytest.raises(RemoteStorageError, match=r"az://missing/prefix/key: the bucket does not exist"):
        store.put("key", b"bytes")


def test_a_wrong_key_is_named_at_first_use(azure: AzureServer) -> None:
    store = ObjectStore.from_url(azure.url("prefix"), {**azure.options, "account_key": "d3Jvbmc="})
    with pytest.raises(
        RemoteStorageError, match=r"put az://container/prefix/key: access is denied.*AuthorizationFailure"
    ):
        store.put("key", b"bytes")
