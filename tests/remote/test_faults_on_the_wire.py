"""A real S3 server whose answers are spoiled on their way: short, wrong, throttled, refused for a wrong clock."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stratalog.errors import CorruptRecordError, RemoteStorageError, RetriableRemoteStorageError
from stratalog.remote.catalog import list_remote_segments
from stratalog.remote.storage.object_store import ObjectStore
from tests.remote.world import World
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
