"""The copy of the metadata in the bucket: made after changes, by the owner alone, and used by a restore."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.tiered_broker import tiered_and_copied, tiering_broker

from stratalog.broker.metadata import MetadataStore, export_document
from stratalog.broker.server import Broker
from stratalog.cli.main import run
from stratalog.errors import RemoteStorageError
from stratalog.remote.storage import METADATA_COPY

_CONFIGS = {"remote.storage.enable": "true", "retention.ms": "-1", "segment.bytes": "2097152"}


def test_a_lost_disk_does_not_lose_the_settings_that_were_made_after_the_last_segment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = tmp_path / "bucket"
    with tiering_broker(tmp_path / "data", bucket.as_uri()) as broker:
        tiered_and_copied(broker, "t", 1)
        copies = broker.services.metadata_copies
        assert copies is not None
        assert not (bucket / METADATA_COPY).exists()
        assert copies.copy()
        assert json.loads((bucket / METADATA_COPY).read_bytes()) == export_document(tmp_path / "data")
        _breaks_once(broker, monkeypatch)
        broker.services.topics.set_configs("t", _CONFIGS)
        assert not copies.copy()
        assert copies.copy()
        metadata = broker.services.metadata
        assert isinstance(metadata, MetadataStore)
        metadata.set_broker_configs(None, {"log.retention.ms": "7"})
        document = export_document(tmp_path / "data")
    assert json.loads((bucket / METADATA_COPY).read_bytes()) == document, "the stop copies what has changed"
    assert run(["tier", "audit", str(bucket)]) == 0
    assert run(["tier", "restore", str(bucket), "--data-dir", str(tmp_path / "new"), "--take-over"]) == 0
    with closing(MetadataStore.open(tmp_path / "new")) as store:
        topic = store.topic("t")
        assert topic is not None
        assert topic.configs == _CONFIGS
        assert {"t"} <= {each["name"] for each in document["topics"]}
    (bucket / METADATA_COPY).write_bytes(b"{")
    capsys.readouterr()
    assert run(["tier", "restore", str(bucket), "--data-dir", str(tmp_path / "newer"), "--dry-run"]) == 0
    assert "those of their last copied segments" in capsys.readouterr().out


def _breaks_once(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the next question for the owner of the bucket fail."""
    remote = broker.services.logs.remote
    assert remote is not None
    asked = []

    def ensure_owner() -> None:
        asked.append(1)
        if len(asked) == 1:
            raise RemoteStorageError("the store is away")

    monkeypatch.setattr(remote.storage, "ensure_owner", ensure_owner)


def test_a_broker_without_a_tier_copies_nothing(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        assert broker.services.metadata_copies is None
