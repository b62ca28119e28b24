"""The layout of Aiven's plugin in S3 and Azure, with the plugin's keys for them, over the wire."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from stratalog.remote.storage import AivenRemoteStorageManager, ObjectStore
from tests.remote.storage.test_aiven_writing import TestAsAStoragePlugin as OnADirectory
from tests.support.azure_server import ACCOUNT, CONTAINER, KEY, AzureServer, require_azure_server
from tests.support.s3_server import ACCESS_KEY, SECRET_KEY, S3Server, require_s3_server

pytestmark = pytest.mark.soak

PACKAGE = "io.aiven.kafka.tieredstorage.storage"


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    require_s3_server()
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        ObjectStore.from_url(server.url("bucket"), server.options).put("first", b"")  # which makes the bucket
        yield {
            "storage.backend.class": f"{PACKAGE}.s3.S3Storage",
            "storage.s3.bucket.name": "bucket",
            "storage.s3.region": "us-east-1",
            "storage.s3.endpoint.url": server.endpoint,
            "storage.s3.path.style.access.enabled": "true",
            "storage.aws.access.key.id": ACCESS_KEY,
            "storage.aws.secret.access.key": SECRET_KEY,
        }


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    require_azure_server()
    with AzureServer(tmp_path_factory.mktemp("azure")) as server:
        yield {
            "storage.backend.class": f"{PACKAGE}.azure.AzureBlobStorage",
            "storage.azure.container.name": CONTAINER,
            "storage.azure.account.name": ACCOUNT,
            "storage.azure.account.key": KEY,
            "storage.azure.endpoint.url": server.endpoint,
        }


def configured(keys: Mapping[str, str], prefix: str) -> AivenRemoteStorageManager:
    manager = AivenRemoteStorageManager()
    manager.configure({**keys, "chunk.size": "1000000", "compression.enabled": "true", "key.prefix": f"tier/{prefix}-"})
    return manager


class TestS3(OnADirectory):
    @pytest.fixture(autouse=True)
    def _s3(self, s3: Mapping[str, str]) -> None:
        self.keys = s3

    def make_plugin(self, tmp_path: Path) -> AivenRemoteStorageManager:
        return configured(self.keys, tmp_path.name)


class TestAzure(OnADirectory):
    @pytest.fixture(autouse=True)
    def _azure(self, azure: Mapping[str, str]) -> None:
        self.keys = azure

    def make_plugin(self, tmp_path: Path) -> AivenRemoteStorageManager:
        return configured(self.keys, tmp_path.name)
