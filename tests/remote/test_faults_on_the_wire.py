"""A real S3 server whose answers are spoiled on their way: short, wrong, throttled, refused for a wrong clock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from stratalog.errors import CorruptRecordError, RemoteStorageError, RetriableRemoteStorageError
from stratalog.inspect.bucket_catalog import list_remote_segments
from stratalog.remote.storage.object_store import ObjectStore
from tests.remote.world import CONFIG, World
from tests.support.faulty_proxy import (
    Fault,
    FaultyProxy,
    Request,
    flipped,
    shortened,
    skewed,
    slow_down,
    too_many,
)
from tests.support.s3_server import S3Server, require_s3_server

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    require_s3_server()
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[FaultyProxy]:
    with FaultyProxy(s3.endpoint) as found:
        yield found


def store_behind(proxy: FaultyProxy, s3: S3Server, name: str, **options: str) -> ObjectStore:
    given = {**s3.options, "endpoint": proxy.endpoint, "timeout_ms": "10000", **options}
    return ObjectStore.from_url(s3.url(f"bucket/{name}"), given)


def gets(request: Request) -> bool:
    return request.method == "GET" and ".log" in request.path


def puts(request: Request) -> bool:
    return request.method == "PUT"


@pytest.mark.parametrize("fault", [shortened, slow_down, too_many])
def test_what_passes_by_itself_is_tried_again_within_one_call(
    s3: S3Server, proxy: FaultyProxy, tmp_path: Path, fault: Fault
) -> None:
    store = store_behind(proxy, s3, fault.__name__)
    with World(tmp_path, store=store) as world:
        world.append(40)
        proxy.spoil(fault if fault is not shortened else slow_down, puts, times=2)
        assert world.tier().copied > 0
        world.drop_local()
        proxy.spoil(fault, gets, times=2)
        world.expect_everything()
        assert proxy.spoiled == 4


class Parts:
    """Which parts of uploads were sent, and how often; asks for faults of the second one."""

    def __init__(self, s3: S3Server) -> None:
        self.sent: list[int] = []
        self.uploads: set[str] = set()
        #: Of these, what the server had under way.
        self.pending: set[str] = set()
        self._s3 = s3

    def __call__(self, request: Request) -> bool:
        query = parse_qs(urlsplit(request.path).query)
        if request.method != "PUT" or "partNumber" not in query:
            return False
        self.uploads |= {*query["uploadId"]}
        self.pending |= {*self._s3.pending_uploads("bucket")}
        self.sent.append(int(query["partNumber"][0]))
        return self.sent[-1] == 2


def in_parts(world: World) -> None:
    """One sealed segment of some 20 MiB: three parts."""
    world.append(31, value_size=100_000)


PARTS = replace(CONFIG, segment_bytes=20 * 2**20)


@pytest.mark.parametrize("fault", [slow_down, too_many])
def test_an_upload_that_breaks_goes_on_where_it_was(
    s3: S3Server, proxy: FaultyProxy, tmp_path: Path, fault: Fault
) -> None:
    """The part that did not get through is sent again, by itself; what was sent before it stays."""
    with World(tmp_path, PARTS, store=store_behind(proxy, s3, f"goes-on-{fault.__name__}")) as world:
        in_parts(world)
        parts = Parts(s3)
        proxy.spoil(lambda answer: fault(answer) if parts.sent.count(2) <= 2 else answer, parts)
        assert world.tier().copied == 1
        assert sorted(parts.sent) == [1, 2, 2, 2, 3]
        assert len(parts.uploads) == 1
        world.drop_local()
        world.expect_everything()
    assert s3.pending_uploads("bucket") == []


def test_an_upload_that_cannot_go_on_is_taken_back_and_begun_again_at_the_next_turn(
    s3: S3Server, proxy: FaultyProxy, tmp_path: Path
) -> None:
    store = store_behind(proxy, s3, "again", max_retries="1")
    with World(tmp_path, PARTS, store=store) as world:
        in_parts(world)
        parts = Parts(s3)
        proxy.spoil(slow_down, parts)
        with pytest.raises(RetriableRemoteStorageError, match="answered 503"):
            world.tier()
        assert parts.sent.count(2) == 2
        assert parts.pending == parts.uploads
        assert s3.pending_uploads("bucket") == []
        assert world.objects() == []
        assert world.drop_local() == 0
        proxy.heal()
        assert world.tier().copied == 1
        assert world.orphans() == []
        world.drop_local()
        world.expect_everything()


@pytest.mark.parametrize("fault", [slow_down, too_many])
def test_throttling_that_lasts_is_retriable_and_nothing_is_lost(
    s3: S3Server, proxy: FaultyProxy, tmp_path: Path, fault: Fault
) -> None:
    store = store_behind(proxy, s3, f"lasting-{fault.__name__}", max_retries="1")
    with World(tmp_path, store=store) as world:
        world.append(40)
        proxy.spoil(fault)
        with pytest.raises(RetriableRemoteStorageError):
            world.tier()
        assert world.drop_local() == 0
        proxy.heal()
        world.tier()
        world.drop_local()
        world.expect_everything()


@pytest.mark.parametrize("fault", [shortened, flipped])
def test_a_body_that_is_always_spoiled_is_never_served(
    s3: S3Server, proxy: FaultyProxy, tmp_path: Path, fault: Fault
) -> None:
    store = store_behind(proxy, s3, f"body-{fault.__name__}", max_retries="1")
    with World(tmp_path, store=store) as world:
        world.append(40)
        world.tier()
        world.drop_local()
        proxy.spoil(fault, gets)
        with pytest.raises((RemoteStorageError, CorruptRecordError)):
            world.manager.read(world.partition, 0, 3_000)
        assert proxy.spoiled > 0
        proxy.heal()
        world.expect_everything()


def test_a_wrong_clock_is_named_and_copies_go_on_when_it_is_right(
    s3: S3Server, proxy: FaultyProxy, tmp_path: Path
) -> None:
    store = store_behind(proxy, s3, "skewed")
    with World(tmp_path, store=store) as world:
        world.append(40)
        proxy.spoil(skewed)
        with pytest.raises(RemoteStorageError, match="clock"):
            world.tier()
        assert world.drop_local() == 0
        proxy.heal()
        copied = world.tier().copied
        assert copied > 0
        world.drop_local()
        world.expect_everything()
        assert len(list_remote_segments(store, topics=["t"])) == copied
