"""A real S3 server that is not as it should be: what is wrong is named, tried again or refused, and nothing is lost."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from stratalog.cli.main import run
from stratalog.errors import RemoteStorageError, RetriableRemoteStorageError
from stratalog.remote.storage.object_names import ObjectKind
from stratalog.remote.storage.object_store import ObjectStore
from tests.remote.world import World
from tests.scenarios.tiered_story import TieredStory
from tests.scenarios.tiered_topic import eventually
from tests.support.certificate import make_certificate
from tests.support.faulty_proxy import FaultyProxy, skewed
from tests.support.s3_server import READER_KEY, S3Server, require_s3_server


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    require_s3_server()
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    require_s3_server()
    home = tmp_path_factory.mktemp("tls")
    with S3Server(home, certificate=make_certificate(home)) as server:
        yield server


def store_of(s3: S3Server, path: str, **options: str) -> ObjectStore:
    return ObjectStore.from_url(s3.url(path), {**s3.options, "max_retries": "0", **options})


# --- the same stories as in a directory -------------------------------------------------------------------------------


def tell(story: TieredStory) -> None:
    """Offload and consume, expire, delete the topic."""
    with story:
        a = story.create_topic("a", batches_per_segment=1)
        a.produce("k0", "k1", "k2")
        a.expect_remote({0: ["k0"], 1: ["k1"]})
        a.expect_earliest_local_offset(2)
        story.bounce()
        a.expect_consumed(from_offset=0, keys=["k0", "k1", "k2"], of_them_remote=2)
        a.delete_records(before=1)
        a.expect_remote({1: ["k1"]})
        a.delete()
        a.expect_nothing_remote()


def test_a_story_on_s3(tmp_path: Path, s3: S3Server) -> None:
    tell(TieredStory(tmp_path, s3=s3))


def test_a_story_on_s3_with_tls(tmp_path: Path, tls: S3Server) -> None:
    tell(TieredStory(tmp_path, s3=tls))


def test_a_server_whose_certificate_no_one_trusts_is_not_spoken_to(tls: S3Server) -> None:
    options = {name: value for name, value in tls.options.items() if name != "root_certificate_file"}
    store = ObjectStore.from_url(tls.url("bucket"), {**options, "max_retries": "0"})
    with pytest.raises(RemoteStorageError, match=r"certificate|cannot be reached"):
        store.check()


# --- who may not ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("access_key_id", "the access key is not known there"),
        ("secret_access_key", "the secret key is wrong"),
    ],
)
def test_wrong_credentials_are_named_and_everything_stays_here(
    tmp_path: Path, s3: S3Server, option: str, said: str
) -> None:
    store = store_of(s3, f"credentials/{option}", **{option: "wrong"})
    with World(tmp_path, store=store) as world:
        world.append(25)
        with pytest.raises(RemoteStorageError, match=said) as caught:
            world.tier()
        assert not isinstance(caught.value, RetriableRemoteStorageError)
        assert world.drop_local() == 0
        world.expect_everything()


def test_wrong_credentials_are_named_at_start(tmp_path: Path, s3: S3Server, caplog: pytest.LogCaptureFixture) -> None:
    settings = {"rsm.config.secret_access_key": "wrong", "rsm.config.max.retries": "0"}
    with (
        caplog.at_level(logging.WARNING, "stratalog"),
        TieredStory(tmp_path, s3=s3, settings=settings) as story,
    ):
        a = story.create_topic("a", batches_per_segment=1)
        a.produce("k0", "k1")
        assert a.consume(0, 2) == [(0, "k0"), (1, "k1")]
    said = [record.getMessage() for record in caplog.records if "the secret key is wrong" in record.getMessage()]
    assert 1 <= len(said) <= 3, said  # at start, and once for each task


@pytest.mark.parametrize("trouble", ["wrong secret", "read-only bucket", "missing bucket", "wrong clock"])
def test_what_is_wrong_with_the_store_is_in_the_tier_status_and_goes_when_it_is_right(
    tmp_path: Path, s3: S3Server, trouble: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with FaultyProxy(s3.endpoint) as proxy:
        settings = {"rsm.config.max.retries": "0", "rsm.config.endpoint": proxy.endpoint}
        if trouble == "wrong secret":
            settings["rsm.config.secret_access_key"], said = "wrong", "the secret key is wrong"
        elif trouble == "wrong clock":
            said = "clock"
            proxy.spoil(skewed)
        else:
            settings["rsm.config.access_key_id"], said = READER_KEY, "access is denied"
        if trouble == "missing bucket":
            settings["stratalog.remote.url"] = "s3://no-such-bucket-at-all/tier"
        with TieredStory(tmp_path, s3=s3, settings=settings) as story:
            a = story.create_topic("a", batches_per_segment=1)
            a.produce("k0", "k1")
            asked = ["tier", "status", "--bootstrap-server", story.address]
            eventually("the failure is told", lambda: run(asked), 1)
            (line, end) = capsys.readouterr().out.splitlines()[-2:]
            assert line.startswith("a-0\tfailing\t")
            assert said in line
            assert end == "1 of 1 tiered partitions are failing"
            assert a.local_segments == [0, 1]
            assert a.consume(0, 2) == [(0, "k0"), (1, "k1")]
            if trouble == "wrong clock":
                proxy.heal()
                a.expect_remote({0: ["k0"]})
                eventually("the failure has gone", lambda: run(asked), 0)


def test_a_bucket_that_may_only_be_read_is_read_and_keeps_all_else_here(tmp_path: Path, s3: S3Server) -> None:
    with World(tmp_path, store=store_of(s3, "readonly/tier")) as world:
        world.append(25)
        world.tier()
        world.drop_local()
        reader = {name: value for name, value in s3.read_only_options.items() if "key" in name}
        world.store.inner = store_of(s3, "readonly/tier", **reader)
        world.append(25)
        world.restart()
        with pytest.raises(RemoteStorageError, match="access is denied"):
            world.tier()
        assert world.drop_local() == 0
        world.expect_everything()
        world.store.inner = world.inner
        world.restart()
        world.tier()
        world.drop_local()
        assert world.orphans() == []
        world.expect_everything()


def test_a_bucket_that_is_not_there_is_named(s3: S3Server) -> None:
    reader = {name: value for name, value in s3.read_only_options.items() if "key" in name}
    store = store_of(s3, "no-such-bucket-anywhere", **reader)
    with pytest.raises(RemoteStorageError, match=r"bucket|denied"):
        store.check()


# --- objects that others have touched ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [ObjectKind.LOG, ObjectKind.OFFSET_INDEX, ObjectKind.MANIFEST])
def test_an_object_that_was_replaced_is_never_served(tmp_path: Path, s3: S3Server, kind: ObjectKind) -> None:
    store = store_of(s3, f"replaced/{kind.name.lower()}")
    with World(tmp_path, store=store) as world:
        world.append(60)
        world.tier()
        world.drop_local()
        world.restart()
        first, second = [key for key in world.objects() if key.endswith(f".{kind.value}")][:2]
        right = bytes(store.get(first))
        store.put(first, bytes(store.get(second)))
        if kind is ObjectKind.OFFSET_INDEX:
            world.expect_everything()  # it is rebuilt from the records
        else:
            with pytest.raises(RemoteStorageError, match=r"damaged in the store|another segment"):
                world.manager.read(world.partition, 0, 1_000)
        store.put(first, right)
        world.restart()
        world.expect_everything()


def test_a_manifest_from_the_future_is_named_and_left_alone(tmp_path: Path, s3: S3Server) -> None:
    store = store_of(s3, "future/tier")
    with World(tmp_path, store=store) as world:
        world.append(25)
        world.tier()
        world.drop_local()
        world.restart()
        key = next(key for key in world.objects() if key.endswith(f".{ObjectKind.MANIFEST.value}"))
        right = bytes(store.get(key))
        document = json.loads(right)
        future = json.dumps({**document, "version": document["version"] + 98}).encode()
        store.put(key, future)
        for _ in range(2):
            with pytest.raises(RemoteStorageError, match="version"):
                world.manager.read(world.partition, 0, 1_000)
        trouble = world.manager.health.troubles[world.partition, "read"]  # what tier status tells
        assert "upgrade" in trouble.message
        assert trouble.times == 2
        last = max(each.start_offset for each in world.rlmm.list_remote_log_segments(world.partition))
        world.manager.read(world.partition, last, 1_000)
        assert (world.partition, "read") not in world.manager.health.troubles
        world.tier()
        assert bytes(store.get(key)) == future
        store.put(key, right)
        world.restart()
        world.expect_everything()
