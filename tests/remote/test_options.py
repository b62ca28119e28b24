from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.config.broker import BrokerConfig
from stratalog.errors import InvalidConfigError, UsageError
from stratalog.remote.storage.object_store import ObjectStore
from stratalog.remote.storage.options import storage_manager_options
from stratalog.remote.storage.rsm import ObjectStoreRemoteStorageManager


def test_without_a_url_the_default_directory_is_taken() -> None:
    assert storage_manager_options(BrokerConfig(), "file:///d") == {
        "url": "file:///d",
        "deadline.ms": "60000",
        "compression": "none",
        "timeout_ms": "30000",
    }


def test_s3_keys_become_options_of_the_store() -> None:
    config = BrokerConfig(
        {
            "stratalog.remote.url": "s3://bucket/prefix",
            "stratalog.remote.s3.endpoint": "http://127.0.0.1:9000",
            "stratalog.remote.s3.access.key.id": "me",
            "stratalog.remote.s3.secret.access.key": "secret",
            "stratalog.remote.s3.region": "eu-central-1",
            "stratalog.remote.s3.path.style": "true",
            "stratalog.remote.request.timeout.ms": "5000",
            "stratalog.remote.deadline.ms": "9000",
        }
    )
    options = storage_manager_options(config, "file:///d")
    assert options == {
        "url": "s3://bucket/prefix",
        "endpoint": "http://127.0.0.1:9000",
        "access_key_id": "me",
        "secret_access_key": "secret",
        "region": "eu-central-1",
        "path_style": "True",
        "timeout_ms": "5000",
        "deadline.ms": "9000",
        "compression": "none",
    }
    rsm = ObjectStoreRemoteStorageManager()
    rsm.configure(options)
    assert rsm.store.url == "s3://bucket/prefix"
    rsm.close()


@pytest.mark.parametrize(
    "options", [{}, {"url": "file:///d", "deadline.ms": "0"}, {"url": "file:///d", "deadline.ms": "x"}]
)
def test_a_storage_manager_refuses_what_it_cannot_use(options: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        ObjectStoreRemoteStorageManager().configure(options)


def test_the_endpoint_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
    }.items():
        monkeypatch.setenv(name, value)
    store = ObjectStore.from_url("s3://bucket", {"max_retries": "0"})
    with pytest.raises(Exception, match="cannot be reached"):
        store.check()


def test_the_storage_manager_may_be_loaded_by_name_as_any_plugin(tmp_path: Path) -> None:
    rsm = ObjectStoreRemoteStorageManager()
    rsm.configure({"url": tmp_path.as_uri(), "broker.id": "1", "cluster.id": "x", "compression": "zstd"})
    rsm.store.check()
    rsm.close()


def test_keys_of_the_broker_name_compression_and_key_files() -> None:
    config = BrokerConfig(
        {
            "stratalog.remote.compression": "zstd",
            "stratalog.remote.encryption.key.file": "/a,/b",
            "stratalog.remote.aiven.encryption.key.file": "key1=/c",
        }
    )
    options = storage_manager_options(config, "file:///d")
    assert options["compression"] == "zstd"
    assert options["encryption.key.file"] == "/a,/b"
    assert options["aiven.encryption.key.file"] == "key1=/c"
    with pytest.raises(InvalidConfigError):
        BrokerConfig({"stratalog.remote.compression": "gzip"})
