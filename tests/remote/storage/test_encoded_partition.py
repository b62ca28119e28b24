"""A partition whose remote segments are compressed and encrypted lives as any other."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

import tests.remote.world as world_module
from stratalog.inspect.bucket_catalog import list_remote_segments
from stratalog.remote.storage.chunk_codec import Compression
from stratalog.remote.storage.encoder import Encoding
from stratalog.remote.storage.keyring import Keyring, key_id
from stratalog.remote.storage.rsm import ObjectStoreRemoteStorageManager
from tests.remote.world import World

KEY = b"k" * 32
ENCODINGS = [
    Encoding(Compression.ZSTD),
    Encoding(Compression.NONE, Keyring({key_id(KEY): KEY}, key_id(KEY))),
    Encoding(Compression.ZSTD, Keyring({key_id(KEY): KEY}, key_id(KEY))),
]


@pytest.mark.parametrize("encoding", ENCODINGS, ids=["zstd", "aes", "both"])
def test_it_is_copied_read_after_a_restart_and_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: Encoding
) -> None:
    monkeypatch.setattr(
        world_module,
        "ObjectStoreRemoteStorageManager",
        partial(ObjectStoreRemoteStorageManager, encoding=encoding),
    )
    with World(tmp_path) as world:
        world.append(40)
        assert world.tier().copied > 0
        world.drop_local()
        world.expect_everything()
        world.restart()
        world.expect_everything()
        for manifest in list_remote_segments(world.inner):
            assert manifest.compression is encoding.compression
            assert manifest.encryption == encoding.encryption
        world.configure(retention_ms=0)
        world.tier()
        assert world.objects() == []
