"""Uploads that a killed process left in an S3 bucket: found, and taken back."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stratalog.cli.main import run
from stratalog.errors import RemoteStorageError, RetriableRemoteStorageError
from stratalog.jobs import Severity
from stratalog.jobs.audit.findings import TakeBackUpload
from stratalog.jobs.audit.repair import carry_out
from stratalog.jobs.audit.segment_history import NotProvedError
from stratalog.jobs.audit.uploads import audit_uploads
from stratalog.remote.storage.object_names import partition_directory
from stratalog.remote.storage.object_store import ObjectStore
from stratalog.remote.storage.s3_uploads import PendingUpload, S3Uploads
from tests.remote.values import PARTITION
from tests.support.s3_server import S3Server, require_s3_server

KEY = f"{partition_directory(PARTITION)}/00000000000000004711-hB5yJqzOSDmxmNHsV7oUaw.log"
KEYS = {"access_key_id": "a", "secret_access_key": "b"}

#: Puts a file in parts and dies when most of it is sent.
DIES = """
import os, sys
from pathlib import Path
from stratalog.remote.storage.object_store import ObjectStore
url, key, path, *options = sys.argv[1:]
store = ObjectStore.from_url(url, dict(option.split("=", 1) for option in options))
store.put_file(key, Path(path), progress=lambda position: os._exit(9) if position >= 24 << 20 else None)
"""


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    require_s3_server()
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


def die_while_uploading(s3: S3Server, url: str, key: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(32 << 20))
    options = [f"{name}={value}" for name, value in s3.options.items()]
    died = subprocess.run([sys.executable, "-c", DIES, url, key, str(path), *options], check=False)
    assert died.returncode == 9


@pytest.mark.slow
def test_what_a_killed_upload_left_is_found_and_taken_back(
    s3: S3Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = s3.url("killed/some/prefix")
    ObjectStore.from_url(url, s3.options).put("here", b"x")
    die_while_uploading(s3, url, KEY, tmp_path)
    die_while_uploading(s3, url, "of/nobody", tmp_path)
    die_while_uploading(s3, s3.url("killed/some/prefix-of-others"), KEY, tmp_path)
    assert len(s3.pending_uploads("killed")) == 3
    uploads = S3Uploads.of(url, s3.options)
    assert uploads is not None
    assert sorted(upload.key for upload in uploads.list()) == sorted(["of/nobody", KEY])

    options = [part for name, value in s3.options.items() for part in ("--store-option", f"{name}={value}")]
    assert run(["tier", "repair", url, "--apply", *options]) == 0  # all of it is young
    assert "can be repaired once older than the grace period" in capsys.readouterr().out
    assert len(s3.pending_uploads("killed")) == 3
    assert run(["tier", "audit", url, "--grace", "0s", *options]) == 1
    assert "unfinished-upload" in capsys.readouterr().out
    assert run(["tier", "repair", url, "--grace", "0s", "--apply", *options]) == 0
    assert f"repaired {KEY}: aborted the upload" in capsys.readouterr().out
    assert [upload.key for upload in uploads.list()] == ["of/nobody"]
    assert len(s3.pending_uploads("killed")) == 2


@pytest.mark.slow
def test_a_client_that_may_not_take_back_is_reported(s3: S3Server, tmp_path: Path) -> None:
    url = s3.url("told/prefix")
    ObjectStore.from_url(url, s3.options).put("here", b"x")
    die_while_uploading(s3, url, KEY, tmp_path)
    owner, reader = S3Uploads.of(url, s3.options), S3Uploads.of(url, s3.read_only_options)
    wrong = S3Uploads.of(url, {**s3.options, "secret_access_key": "wrong"})
    away = S3Uploads.of(url, {**s3.options, "endpoint": "http://127.0.0.1:1"})
    assert owner is not None
    assert reader is not None
    assert wrong is not None
    assert away is not None
    (upload,) = owner.list()
    with pytest.raises(RemoteStorageError, match="answered 403"):
        reader.abort(upload)
    with pytest.raises(RemoteStorageError, match="answered 403"):
        list(wrong.list())
    with pytest.raises(RetriableRemoteStorageError, match="cannot be reached"):
        list(away.list())
    owner.abort(upload)
    owner.abort(upload)  # one that is gone is no error
    assert list(owner.list()) == []


def test_pages_are_read_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = {
        (): ("true", ["prefix/a", "elsewhere/b"], "prefix/a"),
        ("prefix/a",): ("false", ["prefix/c"], ""),
    }

    def answer(_: S3Uploads, method: str, path: str, query: dict[str, str]) -> bytes:
        assert (method, path, query["uploads"], query["prefix"]) == ("GET", "/bucket", "", "prefix/")
        truncated, keys, following = pages[tuple(query[name] for name in ("key-marker",) if name in query)]
        listed = "".join(
            f"<Upload><Key>{key}</Key><UploadId>1</UploadId><Initiated>2026-01-02T03:04:05.000Z</Initiated></Upload>"
            for key in keys
        )
        return (
            '<R xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<IsTruncated>{truncated}</IsTruncated><NextKeyMarker>{following}</NextKeyMarker>{listed}</R>"
        ).encode()

    monkeypatch.setattr(S3Uploads, "_request", answer)
    uploads = S3Uploads.of("s3://bucket/prefix", {**KEYS, "endpoint": "http://x"})
    assert uploads is not None
    assert list(uploads.list()) == [PendingUpload(key, "1", 1767323045000) for key in ("a", "c")]


def test_an_answer_that_is_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(S3Uploads, "_request", lambda *_, **__: b"<html>")
    uploads = S3Uploads.of("s3://bucket/prefix", KEYS)
    assert uploads is not None
    with pytest.raises(RemoteStorageError, match="the answer is not XML"):
        list(uploads.list())


def test_where_nothing_can_be_asked_there_are_no_uploads(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    assert S3Uploads.of("s3://bucket", {}) is None
    assert S3Uploads.of("file:///bucket", KEYS) is None
    assert S3Uploads.of("gs://bucket", KEYS) is None
    assert S3Uploads.of("s3://bucket", KEYS) is not None


def test_only_what_is_of_a_segment_and_old_enough_is_taken_back() -> None:
    uploads = [
        PendingUpload(KEY, "1", 900),
        PendingUpload(KEY, "2", 100),
        PendingUpload("of/nobody", "3", 100),
    ]
    young, old, nobodys = audit_uploads(uploads, now_ms=1000, grace_ms=500)
    assert (young.severity, old.severity, nobodys.severity) == (
        Severity.NOTE,
        Severity.WARNING,
        Severity.NOTE,
    )
    assert (old.topic, old.partition, old.mend) == ("flights", 3, TakeBackUpload(uploads[1]))
    assert nobodys.mend is None
    assert list(audit_uploads(uploads, now_ms=1000, grace_ms=500, topics=["others"])) == []
    assert old.mend is not None
    with pytest.raises(NotProvedError, match="are unknown"):
        carry_out(ObjectStore.from_url("memory:///"), old.mend)
