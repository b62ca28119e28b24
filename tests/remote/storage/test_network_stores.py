"""The real clients of S3, GCS and Azure against a stub: what goes over the wire, and what failures are called."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

from stratalog.errors import (
    MissingBucketError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RetriableRemoteStorageError,
    UsageError,
)
from stratalog.remote.storage.object_store import UPLOAD_PART_BYTES, ObjectStore
from stratalog.util.checksum import crc32c
from tests.remote.storage.stub_store import Answer, StubStore, error

KINDS = ["s3", "gs", "az"]


@pytest.fixture
def stub() -> Iterator[StubStore]:
    with StubStore() as server:
        yield server


def opened(stub: StubStore, kind: str, **options: str) -> ObjectStore:
    url, own = stub.url_and_options(kind)
    return ObjectStore.from_url(url, own | options)


@pytest.mark.parametrize("kind", KINDS)
def test_objects_go_there_and_come_back(stub: StubStore, kind: str) -> None:
    store = opened(stub, kind)
    data = os.urandom(1000)
    uploaded = store.put("a/b", data)
    assert (uploaded.size, uploaded.crc32c) == (1000, crc32c(data))
    assert uploaded.etag
    assert [unquote(path).rsplit("bucket/", 1)[1] for path in stub.objects] == ["dir/a/b"]
    assert bytes(store.get("a/b")) == data
    assert bytes(store.get_range("a/b", 10, 30)) == data[10:30]
    info = store.head("a/b")
    assert (info.key, info.size, info.etag) == ("a/b", 1000, uploaded.etag)
    stub.objects.clear()
    with pytest.raises(RemoteResourceNotFoundError, match=r"get .*/a/b: there is no such object"):
        store.get("a/b")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("answer", "type_", "message"),
    [
        (error(403, "AccessDenied"), RemoteStorageError, r"or the bucket is read-only.*\(AccessDenied\)"),
        (error(403, "AuthenticationFailed"), RemoteStorageError, "account or its key is wrong"),
        (error(403, "SignatureDoesNotMatch"), RemoteStorageError, "the secret key is wrong"),
        (error(403, "RequestTimeTooSkewed"), RetriableRemoteStorageError, "set the clock"),
        (error(404, "NoSuchBucket"), MissingBucketError, "the bucket does not exist; create it or correct the URL"),
        (error(404, "ContainerNotFound"), MissingBucketError, "the bucket does not exist"),
        (error(400, "ExpiredToken"), RemoteStorageError, "the session token has expired; renew it"),
        (error(503, "SlowDown"), RetriableRemoteStorageError, "answered 503"),
        (error(429, "TooManyRequests"), RetriableRemoteStorageError, "answered 429"),
        (error(500, "InternalError"), RetriableRemoteStorageError, "answered 500"),
    ],
)
def test_a_failed_put_is_named_with_what_to_do(
    stub: StubStore, kind: str, answer: Answer, type_: type[RemoteStorageError], message: str
) -> None:
    stub.fail = lambda _: answer
    store = opened(stub, kind, max_retries="0")
    with pytest.raises(RemoteStorageError, match=message) as caught:
        store.put("a/b", b"x")
    assert type(caught.value) is type_
    assert str(caught.value).startswith(f"put {store.url}/a/b: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_bucket_is_named_at_the_first_look(stub: StubStore, kind: str) -> None:
    stub.fail = lambda _: error(404, "ContainerNotFound" if kind == "az" else "NoSuchBucket")
    with pytest.raises(RemoteStorageError, match="the bucket does not exist"):
        opened(stub, kind).check()


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_that_is_away_is_retriable(stub: StubStore, kind: str) -> None:
    store = opened(stub, kind, max_retries="0")
    stub._server.shutdown()
    stub._server.server_close()
    with pytest.raises(RetriableRemoteStorageError, match=r"cannot be reached|connection to the store broke"):
        store.put("a", b"x")
    stub._thread.join()
    stub.__init__()  # type: ignore[misc]
    stub._thread.start()


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("az://bucket", {}),
        ("az://bucket", {"account_name": "a", "account_key": "not base64"}),
        ("gs://bucket", {"service_account_key": "{"}),
        ("gs://bucket", {"service_account": "/nowhere/key.json"}),
        ("az://bucket", {"no_such_option": "x"}),
        ("gs://bucket", {"access_key_id": "x"}),
    ],
)
def test_options_that_no_store_can_be_made_of_are_a_usage_error(
    url: str, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in os.environ:
        if name.startswith(("AZURE_", "GOOGLE_")):
            monkeypatch.delenv(name)
    with pytest.raises(UsageError, match=f"^{url}: "):
        ObjectStore.from_url(url, options)


def test_options_may_come_from_the_environment(stub: StubStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind, names in [
        ("az", {"account_name": "AZURE_STORAGE_ACCOUNT_NAME", "account_key": "AZURE_STORAGE_ACCOUNT_KEY"}),
        ("gs", {"service_account_key": "GOOGLE_SERVICE_ACCOUNT_KEY"}),
        ("s3", {"access_key_id": "AWS_ACCESS_KEY_ID", "secret_access_key": "AWS_SECRET_ACCESS_KEY"}),
    ]:
        url, options = stub.url_and_options(kind)
        for option, name in names.items():
            monkeypatch.setenv(name, options.pop(option))
        store = ObjectStore.from_url(url, options)
        store.put("x", kind.encode())
        assert bytes(store.get("x")) == kind.encode()


# --- uploads in parts -------------------------------------------------------------------------------------------------


def put_large(store: ObjectStore, tmp_path: Path) -> tuple[bytes, list[int]]:
    data = os.urandom(3 * UPLOAD_PART_BYTES + 5)
    (tmp_path / "file").write_bytes(data)
    moved: list[int] = []
    store.put_file("large", tmp_path / "file", progress=moved.append)
    return data, moved


def test_a_part_that_fails_is_sent_again_alone(stub: StubStore, tmp_path: Path) -> None:
    failed: list[str] = []

    def fail(request: str) -> Answer | None:
        if "partNumber=2" in request and len(failed) < 2:
            failed.append(request)
            return error(503, "SlowDown")
        return None

    stub.fail = fail
    data, moved = put_large(opened(stub, "s3"), tmp_path)
    assert stub.objects["/bucket/dir/large"] == data
    sent = [request.split("partNumber=")[1].split("&")[0] for request in stub.requests if "partNumber" in request]
    assert sorted(sent) == ["1", "2", "2", "2", "3", "4"]
    assert len([request for request in stub.requests if "?uploads" in request]) == 1
    assert moved == [0, UPLOAD_PART_BYTES, 2 * UPLOAD_PART_BYTES, 3 * UPLOAD_PART_BYTES]


def test_an_upload_whose_part_never_gets_there_leaves_no_object_and_is_taken_back(
    stub: StubStore, tmp_path: Path
) -> None:
    stub.fail = lambda request: error(503, "SlowDown") if "partNumber=2" in request else None
    with pytest.raises(RetriableRemoteStorageError, match="answered 503"):
        put_large(opened(stub, "s3"), tmp_path)
    assert stub.objects == {}
    assert any(request.startswith("DELETE") and "uploadId=one" in request for request in stub.requests)
